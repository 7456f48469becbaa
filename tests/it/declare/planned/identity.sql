-- An identity server by network: every table names its network, none has it in a key.
CREATE SCHEMA ident;
CREATE TABLE ident.networks (id uuid PRIMARY KEY, created_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE ident.credential_types (id uuid PRIMARY KEY, name text NOT NULL UNIQUE);
CREATE TABLE ident.organizations (
    id uuid PRIMARY KEY, nid uuid NOT NULL REFERENCES ident.networks ON DELETE CASCADE, label text,
    parent_id uuid REFERENCES ident.organizations ON DELETE SET NULL, rank int UNIQUE DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE ident.identities (
    id uuid PRIMARY KEY, nid uuid NOT NULL REFERENCES ident.networks ON DELETE CASCADE, traits jsonb NOT NULL DEFAULT '{}', external_id text,
    CONSTRAINT identities_external UNIQUE NULLS NOT DISTINCT (external_id, nid));
CREATE TABLE ident.credentials (
    id uuid PRIMARY KEY, nid uuid NOT NULL REFERENCES ident.networks ON UPDATE RESTRICT ON DELETE CASCADE,
    identity_id uuid NOT NULL REFERENCES ident.identities ON DELETE CASCADE,
    type_id uuid NOT NULL REFERENCES ident.credential_types, config jsonb);
CREATE TABLE ident.credential_identifiers (
    id uuid PRIMARY KEY, nid uuid NOT NULL REFERENCES ident.networks ON DELETE CASCADE, identifier text NOT NULL,
    credential_id uuid NOT NULL, type_id uuid NOT NULL REFERENCES ident.credential_types,
    CONSTRAINT of_credential FOREIGN KEY (credential_id) REFERENCES ident.credentials MATCH FULL ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT identifiers_once UNIQUE (identifier, type_id) INCLUDE (credential_id) WITH (fillfactor = 70));
CREATE TABLE ident.verifiable_addresses (
    id uuid PRIMARY KEY, nid uuid NOT NULL REFERENCES ident.networks ON DELETE CASCADE,
    identity_id uuid NOT NULL REFERENCES ident.identities ON DELETE CASCADE, value text NOT NULL, verified boolean NOT NULL DEFAULT false);
CREATE UNIQUE INDEX verified_once ON ident.verifiable_addresses (lower(value)) WHERE verified;
COMMENT ON INDEX ident.verified_once IS 'one''s own';
CREATE TABLE ident.recovery_addresses (
    id uuid PRIMARY KEY, nid uuid NOT NULL REFERENCES ident.networks ON DELETE CASCADE,
    identity_id uuid NOT NULL REFERENCES ident.identities ON DELETE CASCADE, value text NOT NULL);
CREATE TABLE ident.recovery_codes (
    id uuid PRIMARY KEY, nid uuid NOT NULL REFERENCES ident.networks ON DELETE CASCADE, code text NOT NULL UNIQUE,
    address_id uuid REFERENCES ident.recovery_addresses ON DELETE SET NULL);
CREATE TABLE ident.sessions (
    id uuid PRIMARY KEY, nid uuid NOT NULL REFERENCES ident.networks ON DELETE CASCADE, token text NOT NULL UNIQUE,
    identity_id uuid NOT NULL REFERENCES ident.identities ON DELETE CASCADE);
CREATE TABLE ident.session_devices (
    id uuid PRIMARY KEY, nid uuid NOT NULL REFERENCES ident.networks ON DELETE CASCADE,
    session_id uuid NOT NULL REFERENCES ident.sessions ON DELETE CASCADE, ip inet, UNIQUE (session_id, ip));
CREATE TABLE ident."Login Flows" (
    id uuid PRIMARY KEY, nid uuid NOT NULL REFERENCES ident.networks ON DELETE CASCADE, "Session" uuid REFERENCES ident.sessions ON DELETE SET NULL);
CREATE TABLE ident.messages (id bigserial PRIMARY KEY, nid uuid NOT NULL REFERENCES ident.networks ON DELETE CASCADE, body text);
CREATE TABLE ident.dispatches (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, nid uuid NOT NULL REFERENCES ident.networks ON DELETE CASCADE,
    message_id bigint NOT NULL REFERENCES ident.messages ON DELETE CASCADE);
CREATE TABLE ident.memberships (
    identity_id uuid REFERENCES ident.identities ON DELETE CASCADE, organization_id uuid REFERENCES ident.organizations ON DELETE CASCADE,
    nid uuid NOT NULL REFERENCES ident.networks ON DELETE CASCADE, PRIMARY KEY (identity_id, organization_id));
CREATE TABLE ident.events (
    id bigint NOT NULL, nid uuid NOT NULL REFERENCES ident.networks ON DELETE CASCADE, at date NOT NULL,
    identity_id uuid REFERENCES ident.identities ON DELETE SET NULL, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE ident.events_old PARTITION OF ident.events FOR VALUES FROM (MINVALUE) TO ('2024-01-01');
CREATE TABLE ident.events_new PARTITION OF ident.events DEFAULT;
CREATE UNIQUE INDEX events_old_once ON ident.events_old (identity_id);

INSERT INTO ident.networks SELECT ('00000000-0000-0000-0000-00000000000' || n)::uuid FROM generate_series(1, 3) n;
INSERT INTO ident.credential_types VALUES (gen_random_uuid(), 'password'), (gen_random_uuid(), 'oidc');
INSERT INTO ident.identities (id, nid, external_id) SELECT gen_random_uuid(), n.id, 'e' || g FROM ident.networks n, generate_series(1, 20) g;
INSERT INTO ident.organizations SELECT gen_random_uuid(), n.id, 'top', NULL, row_number() OVER () FROM ident.networks n;
INSERT INTO ident.organizations SELECT gen_random_uuid(), o.nid, 'below', o.id, o.rank + 10 FROM ident.organizations o;
INSERT INTO ident.credentials SELECT gen_random_uuid(), i.nid, i.id, t.id FROM ident.identities i, ident.credential_types t;
INSERT INTO ident.credential_identifiers SELECT gen_random_uuid(), c.nid, c.id::text, c.id, c.type_id FROM ident.credentials c;
INSERT INTO ident.verifiable_addresses SELECT gen_random_uuid(), i.nid, i.id, i.id || '@example.org', true FROM ident.identities i;
INSERT INTO ident.recovery_addresses SELECT gen_random_uuid(), i.nid, i.id, i.id || '@example.org' FROM ident.identities i;
INSERT INTO ident.recovery_codes SELECT gen_random_uuid(), a.nid, a.id::text, a.id FROM ident.recovery_addresses a;
INSERT INTO ident.sessions SELECT gen_random_uuid(), i.nid, i.id::text, i.id FROM ident.identities i;
INSERT INTO ident.session_devices SELECT gen_random_uuid(), s.nid, s.id, '10.0.0.1' FROM ident.sessions s;
INSERT INTO ident."Login Flows" SELECT gen_random_uuid(), s.nid, s.id FROM ident.sessions s;
INSERT INTO ident.messages (nid, body) SELECT n.id, 'hello' FROM ident.networks n, generate_series(1, 5);
INSERT INTO ident.dispatches (nid, message_id) SELECT m.nid, m.id FROM ident.messages m;
INSERT INTO ident.memberships SELECT i.id, o.id, i.nid FROM ident.identities i JOIN ident.organizations o USING (nid);
INSERT INTO ident.events SELECT row_number() OVER (), i.nid, '2023-12-01'::date + 40 * (row_number() OVER () % 2)::int, i.id FROM ident.identities i;
