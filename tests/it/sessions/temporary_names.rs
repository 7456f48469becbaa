//! Temporary tables that have the names of lasting ones: a schema change means the temporary table, as it does in PostgreSQL, and
//! leaves the lasting one as it is on every shard; and what cannot be done for both at once is refused.

use super::stage::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_temporary_table_hides_a_lasting_one_on_every_shard() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    stage.create_plain().await;
    let (mut client, mut plain) = (stage.client().await, stage.plain_client().await);
    for statement in LASTING {
        succeed(&mut client, statement).await;
        succeed(&mut plain, statement).await;
    }
    succeed(&mut client, "SELECT shardgate.distribute_table('doc', 'id')").await;
    let before = described(&stage).await;
    for statement in TEMPORARY.iter().chain(CHANGES) {
        let (told, expected) = (client.ask(statement).await, plain.ask(statement).await);
        assert_eq!(told, expected, "{statement}");
        assert_eq!(described(&stage).await, before, "{statement}");
    }
    for statement in OF_BOTH {
        let told = client.ask(statement).await;
        assert!(told.starts_with("E(0A000 "), "{statement}: {told}");
        assert_eq!(described(&stage).await, before, "{statement}");
    }
    rows_stay_hidden(&stage, &mut client).await;
    stage.assert_log_is_clean();
}

/// From a role that may not see them, on whatever shard they are.
async fn rows_stay_hidden(stage: &Stage, client: &mut WireClient) {
    succeed(client, "INSERT INTO public.doc SELECT g, 'secret' FROM generate_series(1, 30) g").await;
    let mut reader = stage.client().await;
    succeed(&mut reader, "SET ROLE reader").await;
    assert_eq!(reader.value("SELECT count(*) FROM doc").await, "0");
    // Once the temporary table is gone the name means the lasting one.
    succeed(client, "DROP TABLE doc").await;
    succeed(client, "DROP POLICY hide ON doc; DROP POLICY show ON doc; ALTER TABLE doc DISABLE ROW LEVEL SECURITY").await;
    assert_eq!(reader.value("SELECT count(*) FROM doc").await, "30");
}

/// All that hangs on the lasting table, on each shard.
async fn described(stage: &Stage) -> Vec<String> {
    let mut found = Vec::new();
    for shard in 0..3 {
        let direct = stage.cluster.connect_shard(shard).await;
        found.push(direct.query_one(DESCRIBED, &[]).await.expect("described").get(0));
    }
    found
}

const LASTING: &[&str] = &[
    "CREATE TABLE doc (id int, t text CONSTRAINT is_some CHECK (t <> ''))",
    "CREATE INDEX doc_t_idx ON doc (t)",
    "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "CREATE TRIGGER g BEFORE INSERT ON doc FOR EACH ROW EXECUTE FUNCTION nothing()",
    "CREATE POLICY hide ON doc USING (false)",
    "CREATE POLICY show ON doc FOR INSERT WITH CHECK (true)",
    "ALTER TABLE doc ENABLE ROW LEVEL SECURITY",
    "GRANT SELECT ON doc TO reader",
];

const TEMPORARY: &[&str] = &[
    "CREATE TEMP TABLE doc (id serial, t text CONSTRAINT is_some CHECK (t <> ''))",
    "CREATE INDEX doc_t_idx ON doc (t)",
    "CREATE TRIGGER g BEFORE INSERT ON doc FOR EACH ROW EXECUTE FUNCTION nothing()",
    "CREATE POLICY hide ON doc USING (false)",
    "CREATE POLICY show ON doc FOR INSERT WITH CHECK (true)",
    "CREATE RULE r AS ON DELETE TO doc DO INSTEAD NOTHING",
];

const CHANGES: &[&str] = &[
    "COMMENT ON TABLE doc IS 'temporary'",
    "COMMENT ON COLUMN doc.t IS 'temporary'",
    "COMMENT ON TRIGGER g ON doc IS 'temporary'",
    "COMMENT ON POLICY hide ON doc IS 'temporary'",
    "COMMENT ON RULE r ON doc IS 'temporary'",
    "COMMENT ON CONSTRAINT is_some ON doc IS 'temporary'",
    "COMMENT ON INDEX doc_t_idx IS 'temporary'",
    "COMMENT ON TYPE doc IS 'temporary'",
    "ALTER POLICY hide ON doc USING (true)",
    "ALTER POLICY show ON pg_temp.doc RENAME TO shown",
    "ALTER TRIGGER g ON doc RENAME TO h",
    "ALTER TABLE doc RENAME CONSTRAINT is_some TO is_text",
    "ALTER TABLE doc ENABLE ROW LEVEL SECURITY",
    "ALTER SEQUENCE doc_id_seq RESTART WITH 5",
    "SELECT nextval('doc_id_seq')",
    "CREATE STATISTICS pg_temp.s ON id, t FROM doc",
    "DROP STATISTICS pg_temp.s",
    "GRANT SELECT ON doc TO reader",
    "REVOKE SELECT ON doc FROM reader",
    "DROP POLICY hide ON doc",
    "DROP TRIGGER h ON doc",
    "DROP RULE r ON doc",
    "DROP INDEX doc_t_idx",
    "TRUNCATE doc",
    // PostgreSQL's own refusal, and nothing is done on any shard.
    "DROP POLICY hide ON doc",
    "DROP TRIGGER g ON doc",
];

const OF_BOTH: &[&str] = &[
    "DROP TABLE doc, notes",
    "TRUNCATE accounts, doc",
    "LOCK TABLE doc, accounts",
    "CREATE TABLE made (LIKE doc)",
    "CREATE TABLE made (d doc)",
    "ALTER POLICY hide ON public.doc USING (EXISTS (SELECT FROM doc))",
    "ALTER TABLE notes ADD COLUMN number int DEFAULT nextval('doc_id_seq')",
    "CREATE STATISTICS s ON id, t FROM doc",
];

const DESCRIBED: &str = "SELECT concat_ws(E'\\n',
    (SELECT string_agg(concat_ws(' ', polname, polcmd, pg_get_expr(polqual, polrelid), obj_description(oid, 'pg_policy')), ', ' ORDER BY polname)
     FROM pg_policy WHERE polrelid = 'public.doc'::regclass),
    (SELECT string_agg(concat_ws(' ', tgname, obj_description(oid, 'pg_trigger')), ', ' ORDER BY tgname)
     FROM pg_trigger WHERE tgrelid = 'public.doc'::regclass),
    (SELECT string_agg(concat_ws(' ', conname, obj_description(oid, 'pg_constraint')), ', ' ORDER BY conname)
     FROM pg_constraint WHERE conrelid = 'public.doc'::regclass),
    (SELECT string_agg(concat_ws(' ', indexrelid::regclass, obj_description(indexrelid, 'pg_class')), ', ' ORDER BY indexrelid::regclass::text)
     FROM pg_index WHERE indrelid = 'public.doc'::regclass),
    (SELECT string_agg(concat_ws(' ', relname, relkind, relacl), ', ' ORDER BY relname) FROM pg_class WHERE relnamespace = 'public'::regnamespace),
    (SELECT relrowsecurity FROM pg_class WHERE oid = 'public.doc'::regclass),
    obj_description('public.doc'::regclass, 'pg_class'), col_description('public.doc'::regclass, 2),
    obj_description((SELECT reltype FROM pg_class WHERE oid = 'public.doc'::regclass), 'pg_type'))";
