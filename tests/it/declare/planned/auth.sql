-- An auth service by user: one table has the user's id as text.
CREATE SCHEMA auth;
CREATE TABLE auth.users (id uuid PRIMARY KEY, email text, phone text UNIQUE, is_sso boolean NOT NULL DEFAULT false, confirmation_token text);
CREATE UNIQUE INDEX users_email_partial_key ON auth.users (email) WHERE NOT is_sso;
CREATE UNIQUE INDEX users_confirmation_token_key ON auth.users (confirmation_token) WHERE confirmation_token !~ '^[0-9 ]*$';
CREATE TABLE auth.identities (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), user_id uuid NOT NULL REFERENCES auth.users ON DELETE CASCADE, provider text NOT NULL, provider_id text NOT NULL,
    UNIQUE (provider_id, provider));
CREATE TABLE auth.sessions (id uuid PRIMARY KEY, user_id uuid NOT NULL REFERENCES auth.users ON DELETE CASCADE, tag text);
CREATE TABLE auth.refresh_tokens (
    id bigserial PRIMARY KEY, token varchar(255) UNIQUE, user_id varchar(255), parent varchar(255), session_id uuid REFERENCES auth.sessions ON DELETE CASCADE);
CREATE TABLE auth.mfa_factors (id uuid PRIMARY KEY, user_id uuid NOT NULL REFERENCES auth.users ON DELETE CASCADE, friendly_name text);
CREATE UNIQUE INDEX mfa_factors_friendly ON auth.mfa_factors (friendly_name, user_id) WHERE trim(friendly_name) <> '';
CREATE TABLE auth.mfa_challenges (id uuid PRIMARY KEY, factor_id uuid NOT NULL REFERENCES auth.mfa_factors ON DELETE CASCADE);
CREATE TABLE auth.mfa_amr_claims (
    id uuid PRIMARY KEY, session_id uuid NOT NULL REFERENCES auth.sessions ON DELETE CASCADE, method text NOT NULL, UNIQUE (session_id, method));
CREATE TABLE auth.follows (follower uuid NOT NULL REFERENCES auth.users, followed uuid NOT NULL REFERENCES auth.users, PRIMARY KEY (follower, followed));
CREATE TABLE auth.audit_log (id uuid PRIMARY KEY, payload json, actor uuid REFERENCES auth.users);
CREATE TABLE auth.sso_providers (id uuid PRIMARY KEY);

INSERT INTO auth.users SELECT gen_random_uuid(), 'u' || n, NULL, false, 'c' || n FROM generate_series(1, 30) n;
INSERT INTO auth.identities (user_id, provider, provider_id) SELECT id, 'email', email FROM auth.users;
INSERT INTO auth.sessions SELECT gen_random_uuid(), id FROM auth.users;
INSERT INTO auth.refresh_tokens (token, user_id, session_id) SELECT 't' || s.id, s.user_id, s.id FROM auth.sessions s;
INSERT INTO auth.mfa_factors SELECT gen_random_uuid(), id, 'phone' FROM auth.users;
INSERT INTO auth.mfa_challenges SELECT gen_random_uuid(), id FROM auth.mfa_factors;
INSERT INTO auth.mfa_amr_claims SELECT gen_random_uuid(), id, 'otp' FROM auth.sessions;
INSERT INTO auth.follows SELECT a.id, b.id FROM auth.users a JOIN auth.users b ON a.email = 'u1' AND b.email = 'u2';
INSERT INTO auth.audit_log SELECT gen_random_uuid(), '{}', id FROM auth.users;
INSERT INTO auth.sso_providers VALUES (gen_random_uuid());
