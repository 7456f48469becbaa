-- A survey tool by workspace: most tables only lead to it.
CREATE SCHEMA survey;
CREATE TABLE survey.organizations (id text PRIMARY KEY, name text NOT NULL);
CREATE TABLE survey.workspaces (
    id text PRIMARY KEY, organization_id text NOT NULL REFERENCES survey.organizations, name text NOT NULL, UNIQUE (organization_id, name));
CREATE TABLE survey.environments (id text PRIMARY KEY, workspace_id text NOT NULL REFERENCES survey.workspaces ON DELETE CASCADE, kind text);
CREATE TABLE survey.attribute_keys (
    id text PRIMARY KEY, key text NOT NULL, environment_id text NOT NULL REFERENCES survey.environments ON DELETE CASCADE, UNIQUE (key, environment_id));
CREATE TABLE survey.contacts (id text PRIMARY KEY, environment_id text NOT NULL REFERENCES survey.environments ON DELETE CASCADE);
CREATE TABLE survey.contact_attributes (
    id text PRIMARY KEY, contact_id text NOT NULL REFERENCES survey.contacts ON DELETE CASCADE,
    key_id text NOT NULL REFERENCES survey.attribute_keys ON DELETE CASCADE, value text, UNIQUE (contact_id, key_id));
CREATE TABLE survey.surveys (
    id text PRIMARY KEY, environment_id text NOT NULL REFERENCES survey.environments ON DELETE CASCADE, updated_at timestamptz NOT NULL DEFAULT '2020-01-01');
CREATE TABLE survey.responses (
    id text PRIMARY KEY, survey_id text NOT NULL REFERENCES survey.surveys ON DELETE CASCADE,
    contact_id text REFERENCES survey.contacts ON DELETE SET NULL, single_use_id text, updated_at timestamptz NOT NULL DEFAULT '2020-01-01',
    UNIQUE (survey_id, single_use_id));
CREATE TABLE survey.response_notes (id text PRIMARY KEY, response_id text NOT NULL REFERENCES survey.responses ON DELETE CASCADE, body text);
CREATE TABLE survey.displays (
    id text PRIMARY KEY, survey_id text NOT NULL REFERENCES survey.surveys ON DELETE CASCADE, response_id text UNIQUE REFERENCES survey.responses ON DELETE SET NULL);
CREATE TABLE survey.tags (id text PRIMARY KEY, environment_id text NOT NULL REFERENCES survey.environments ON DELETE CASCADE, name text, UNIQUE (environment_id, name));
CREATE TABLE survey.tags_on_responses (
    response_id text NOT NULL REFERENCES survey.responses ON DELETE CASCADE, tag_id text NOT NULL REFERENCES survey.tags ON DELETE CASCADE, PRIMARY KEY (response_id, tag_id));
CREATE FUNCTION survey.touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.updated_at := now(); RETURN NEW; END $$;
CREATE TRIGGER touch BEFORE UPDATE ON survey.responses FOR EACH ROW EXECUTE FUNCTION survey.touch();
CREATE TRIGGER "Touch" BEFORE UPDATE ON survey.surveys FOR EACH ROW EXECUTE FUNCTION survey.touch();
ALTER TABLE survey.surveys ENABLE ALWAYS TRIGGER "Touch";

INSERT INTO survey.organizations VALUES ('o', 'Org');
INSERT INTO survey.workspaces SELECT 'w' || n, 'o', 'W' || n FROM generate_series(1, 4) n;
INSERT INTO survey.environments SELECT w.id || k, w.id, k FROM survey.workspaces w, unnest(ARRAY['dev', 'prod']) k;
INSERT INTO survey.attribute_keys SELECT e.id || 'k', 'email', e.id FROM survey.environments e;
INSERT INTO survey.contacts SELECT e.id || g, e.id FROM survey.environments e, generate_series(1, 5) g;
INSERT INTO survey.contact_attributes SELECT c.id, c.id, k.id, 'x' FROM survey.contacts c JOIN survey.attribute_keys k USING (environment_id);
INSERT INTO survey.surveys SELECT e.id || 's', e.id FROM survey.environments e;
INSERT INTO survey.responses SELECT c.id || 'r', s.id, CASE WHEN c.id LIKE '%1' THEN c.id END, c.id FROM survey.contacts c JOIN survey.surveys s USING (environment_id);
INSERT INTO survey.response_notes SELECT r.id || 'n', r.id, 'note' FROM survey.responses r;
INSERT INTO survey.displays SELECT r.id || 'd', r.survey_id, r.id FROM survey.responses r;
INSERT INTO survey.tags SELECT e.id || 't', e.id, 'tag' FROM survey.environments e;
INSERT INTO survey.tags_on_responses SELECT r.id, t.id FROM survey.responses r JOIN survey.surveys s ON s.id = r.survey_id JOIN survey.tags t USING (environment_id);
