//! By texts: which statements are about temporary tables, which about lasting ones, and which are refused for naming both.

use crate::sql::analysis::{Command, Scope};
use crate::sql::{Analyzer, testing};

/// Where a session with temporary tables `tmp` and `doc` runs it, of which the latter has the name of a lasting table.
fn placed(text: &str) -> String {
    let mut fixture = testing::library();
    fixture.table("doc", "id int8, t text");
    fixture.table("other", "id int8, t text");
    let context = fixture.context(&["public"], &["doc", "doc_id_idx", "doc_id_seq", "tmp"]);
    let read = Analyzer::new().read(text, &context).expect(text);
    let statement = read.analyzed.statements.first().expect("a statement");
    match (&statement.scope, &statement.command) {
        (Scope::Placed { parts, .. }, _) if parts.iter().all(|part| *part == crate::sql::analysis::Part::Home) => {
            "temporary".into()
        }
        (Scope::EveryShard, _) => "everywhere".into(),
        (Scope::Refused(refusal), _) => format!("refused: {}", refusal.message),
        (Scope::Session, Command::TwoPhase) => "session".into(),
        (other, _) => format!("{other:?}"),
    }
}

/// `{}`: the table. Every statement of the grammar that is about a relation, or about what belongs to one.
const ABOUT_TABLE: &[&str] = &[
    "DROP TABLE {}",
    "DROP VIEW IF EXISTS {}",
    "DROP SEQUENCE {}",
    "DROP INDEX {}",
    "DROP MATERIALIZED VIEW {}",
    "DROP FOREIGN TABLE {}",
    "DROP POLICY p ON {}",
    "DROP TRIGGER g ON {}",
    "DROP RULE r ON {}",
    "DROP TYPE {}",
    "DROP DOMAIN {}",
    "ALTER TABLE {} ADD COLUMN n int",
    "ALTER TABLE IF EXISTS {} ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE {} OWNER TO joe",
    "ALTER TABLE {} SET SCHEMA app",
    "ALTER TABLE {} RENAME TO n",
    "ALTER TABLE {} RENAME COLUMN t TO n",
    "ALTER TABLE {} RENAME CONSTRAINT c TO n",
    "ALTER TABLE {} REPLICA IDENTITY FULL",
    "ALTER INDEX {} RENAME TO n",
    "ALTER INDEX {} SET (fillfactor = 50)",
    "ALTER INDEX {} DEPENDS ON EXTENSION e",
    "ALTER SEQUENCE {} RESTART",
    "ALTER SEQUENCE {} OWNER TO joe",
    "ALTER SEQUENCE {} RENAME TO n",
    "ALTER VIEW {} RENAME TO n",
    "ALTER VIEW {} ALTER COLUMN t SET DEFAULT 'x'",
    "ALTER MATERIALIZED VIEW {} RENAME TO n",
    "ALTER FOREIGN TABLE {} OPTIONS (a 'b')",
    "ALTER TRIGGER g ON {} RENAME TO n",
    "ALTER TRIGGER g ON {} DEPENDS ON EXTENSION e",
    "ALTER RULE r ON {} RENAME TO n",
    "ALTER POLICY p ON {} USING (true)",
    "ALTER POLICY p ON {} RENAME TO n",
    "ALTER EXTENSION e ADD TABLE {}",
    "ALTER EXTENSION e DROP SEQUENCE {}",
    "CREATE INDEX ON {} (t)",
    "CREATE INDEX CONCURRENTLY n ON {} (t)",
    "CREATE TRIGGER g BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION f()",
    "CREATE POLICY p ON {} USING (true)",
    "CREATE RULE r AS ON DELETE TO {} DO INSTEAD NOTHING",
    "CREATE STATISTICS pg_temp.s ON id, t FROM {}",
    "COMMENT ON TABLE {} IS 'x'",
    "COMMENT ON VIEW {} IS 'x'",
    "COMMENT ON INDEX {} IS 'x'",
    "COMMENT ON SEQUENCE {} IS 'x'",
    "COMMENT ON MATERIALIZED VIEW {} IS 'x'",
    "COMMENT ON FOREIGN TABLE {} IS 'x'",
    "COMMENT ON TYPE {} IS 'x'",
    "COMMENT ON COLUMN {}.t IS 'x'",
    "COMMENT ON TRIGGER g ON {} IS 'x'",
    "COMMENT ON RULE r ON {} IS 'x'",
    "COMMENT ON POLICY p ON {} IS 'x'",
    "COMMENT ON CONSTRAINT c ON {} IS 'x'",
    "SECURITY LABEL ON TABLE {} IS 'x'",
    "SECURITY LABEL ON COLUMN {}.t IS 'x'",
    "GRANT SELECT ON {} TO joe",
    "GRANT USAGE ON SEQUENCE {} TO joe",
    "REVOKE ALL ON TABLE {} FROM joe",
];

#[test]
fn a_name_means_the_same_table_wherever_the_statement_runs() {
    for text in ABOUT_TABLE {
        let on = |table: &str| placed(&text.replace("{}", table));
        for temporary in ["doc", "pg_temp.doc", "pg_temp_7.doc", "tmp", "\"doc\"", "DOC"] {
            assert_eq!(on(temporary), "temporary", "{text} of {temporary}");
        }
        let lasting = if text.contains("pg_temp.s") { "refused" } else { "everywhere" };
        for name in ["other", "public.other", "public.doc", "app.doc", "\"Doc\""] {
            let found = on(name);
            // By other rules some are refused whatever the table is.
            assert!(found == "everywhere" || found.starts_with(lasting), "{text} of {name}: {found}");
        }
    }
}

#[test]
fn lists_of_both_kinds_are_refused() {
    for text in [
        "DROP TABLE doc, other",
        "DROP TABLE other, pg_temp.doc",
        "DROP INDEX doc_id_idx, other_idx",
        "DROP SEQUENCE doc_id_seq, other_id_seq",
        "GRANT SELECT ON doc, other TO joe",
        "REVOKE SELECT ON other, doc FROM joe",
        "TRUNCATE t, doc",
        "TRUNCATE doc, t CASCADE",
        "LOCK TABLE t, doc",
        "VACUUM doc, t",
        "ANALYZE t, pg_temp.doc",
    ] {
        assert!(placed(text).starts_with("refused: temporary table \"doc"), "{text}: {}", placed(text));
    }
    for text in ["TRUNCATE doc, tmp", "LOCK TABLE doc", "VACUUM doc, tmp", "DROP TABLE doc, tmp", "REINDEX INDEX doc_id_idx"] {
        assert_eq!(placed(text), "temporary", "{text}");
    }
}

#[test]
fn what_lasts_is_not_made_of_temporary_tables() {
    for text in [
        "CREATE TABLE n (LIKE doc)",
        "CREATE TABLE n () INHERITS (doc)",
        "CREATE TABLE n (d doc)",
        "CREATE TABLE n OF doc",
        "CREATE TABLE n (id int REFERENCES doc)",
        "CREATE TABLE n (id int DEFAULT nextval('doc_id_seq'))",
        "CREATE TABLE n (id int DEFAULT nextval('pg_temp.doc_id_seq'::regclass))",
        "ALTER TABLE other ADD FOREIGN KEY (id) REFERENCES doc",
        "ALTER TABLE other ADD COLUMN d doc",
        "ALTER TABLE other INHERIT doc",
        "ALTER TABLE other ATTACH PARTITION doc DEFAULT",
        "CREATE POLICY p ON other USING (id IN (SELECT id FROM doc))",
        "ALTER POLICY p ON other USING (EXISTS (SELECT FROM doc))",
        "CREATE RULE r AS ON DELETE TO other DO ALSO DELETE FROM doc",
        "CREATE CONSTRAINT TRIGGER g AFTER INSERT ON other FROM doc FOR EACH ROW EXECUTE FUNCTION f()",
        "CREATE FUNCTION n(doc) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE FUNCTION n() RETURNS SETOF doc LANGUAGE sql AS 'SELECT 1'",
        "CREATE FUNCTION n() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT count(*) FROM doc; END",
        "DROP FUNCTION f(doc)",
        "CREATE CAST (doc AS text) WITH FUNCTION f(doc)",
        "CREATE TYPE n AS (d doc)",
        "CREATE DOMAIN n AS doc",
        "CREATE AGGREGATE n (doc) (SFUNC = f, STYPE = int)",
        "CREATE PUBLICATION n FOR TABLE doc",
        "ALTER PUBLICATION n ADD TABLE other, doc",
        "GRANT USAGE ON TYPE doc TO joe",
        "CREATE STATISTICS s ON id, t FROM doc",
        "CREATE VIEW n AS SELECT * FROM doc",
        "CREATE TABLE n AS SELECT * FROM doc",
        "CREATE MATERIALIZED VIEW n AS SELECT * FROM doc",
        "DROP STATISTICS s, pg_temp.s",
    ] {
        let found = placed(text);
        assert!(found.starts_with("refused: "), "{text}: {found}");
    }
    assert_eq!(placed("ALTER TABLE U&\"d\\006fc\" ADD COLUMN n int"), "temporary", "a name that is spelled by code points");
    for text in [
        "CREATE TABLE n (LIKE public.doc)",
        "ALTER TABLE public.doc ADD COLUMN n int DEFAULT 7",
        "CREATE INDEX ON public.doc (t)",
        "DROP STATISTICS s",
        "ALTER STATISTICS s SET STATISTICS 7",
        "COMMENT ON STATISTICS s IS 'x'",
        "CREATE FUNCTION n() RETURNS text LANGUAGE sql AS $$SELECT t FROM doc$$",
        "COMMENT ON TABLE other IS 'as a doc'",
    ] {
        assert_eq!(placed(text), "everywhere", "{text}");
    }
    for text in ["DROP STATISTICS pg_temp.s", "ALTER STATISTICS pg_temp.s RENAME TO n", "COMMENT ON STATISTICS pg_temp.s IS 'x'"] {
        assert_eq!(placed(text), "temporary", "{text}");
    }
}

#[test]
fn odd_statistics_are_read_without_harm() {
    assert!(!placed("CREATE STATISTICS s ON a, b FROM (SELECT 1 AS a, 2 AS b) x").is_empty());
}
