//! What is refused for the schema of the corpus, and what is let through, statement by statement.

use crate::sql::analysis::{Command, Scope};
use crate::sql::cache::Analyzer;
use crate::sql::context::Context;
use crate::sql::testing;

fn read(text: &str, context: &Context) -> (Option<String>, bool) {
    let read = Analyzer::new().read(text, context).expect(text);
    let analysis = read.analyzed.statements.first().expect("a statement");
    let renames = matches!(analysis.command, Command::Ddl { renames: Some(_), .. });
    match &analysis.scope {
        Scope::Refused(refusal) => {
            assert!(refusal.detail.is_some() && refusal.hint.is_some(), "{text}");
            (Some(refusal.message.clone()), renames)
        }
        _ => (None, renames),
    }
}

#[test]
fn changes_that_would_make_the_map_or_a_constraint_wrong_are_refused() {
    let context = testing::library().context(&["public"], &[]);
    let key = "cannot drop or retype shard key column \"k\"";
    let unique = |what: &str| format!("a {what} of sharded table \"t\" must contain its shard key");
    let foreign = |table: &str| format!("a foreign key to table \"{table}\" is not supported here");
    for (text, message) in [
        ("ALTER TABLE t DROP COLUMN k", key.to_owned()),
        ("ALTER TABLE t DROP COLUMN IF EXISTS k CASCADE", key.to_owned()),
        ("ALTER TABLE t ADD COLUMN z int, ALTER COLUMN k TYPE numeric", key.to_owned()),
        ("ALTER SCHEMA app RENAME TO z", "schema \"app\" cannot be renamed".to_owned()),
        ("ALTER TABLE t SET SCHEMA pg_catalog", "table \"t\" cannot be moved to schema \"pg_catalog\"".to_owned()),
        ("CREATE UNIQUE INDEX ON t (x)", unique("unique index")),
        ("CREATE UNIQUE INDEX ON t (lower(name))", unique("unique index")),
        ("CREATE UNIQUE INDEX ON t ((k + 1))", unique("unique index")),
        ("CREATE UNIQUE INDEX ON t (x) WHERE k = 1", unique("unique index")),
        ("CREATE UNIQUE INDEX ON t (x) INCLUDE (k)", unique("unique index")),
        ("ALTER TABLE t ADD UNIQUE (x)", unique("unique constraint")),
        ("ALTER TABLE t ADD PRIMARY KEY (x, name)", unique("primary key")),
        ("ALTER TABLE t ADD COLUMN z int UNIQUE", unique("unique constraint")),
        ("ALTER TABLE t ADD EXCLUDE USING gist (x WITH =)", unique("exclusion constraint")),
        ("ALTER TABLE t ADD EXCLUDE USING gist (k WITH <>, x WITH =)", unique("exclusion constraint")),
        ("ALTER TABLE t ADD FOREIGN KEY (x) REFERENCES home (id)", foreign("home")),
        ("ALTER TABLE t ADD FOREIGN KEY (x) REFERENCES u (k)", foreign("u")),
        ("ALTER TABLE t ADD FOREIGN KEY (k) REFERENCES events (day)", foreign("events")),
        ("ALTER TABLE t ADD COLUMN z int REFERENCES u (k)", foreign("u")),
        ("ALTER TABLE home ADD FOREIGN KEY (k) REFERENCES t (k)", foreign("t")),
        ("ALTER TABLE ref ADD FOREIGN KEY (id) REFERENCES t (k)", foreign("t")),
        ("CREATE TABLE n (k int8 REFERENCES t (k))", foreign("t")),
        ("CREATE TABLE n (k int8, FOREIGN KEY (k) REFERENCES t (k))", foreign("t")),
        (
            "ALTER TABLE t ATTACH PARTITION home DEFAULT",
            "attaching or detaching a partition of a distributed table is not supported".into(),
        ),
        ("ALTER TABLE home INHERIT t", "attaching or detaching a partition of a distributed table is not supported".into()),
        ("ALTER TABLE shardgate.shards ADD COLUMN z int", "the schema shardgate cannot be changed".into()),
        ("DROP FUNCTION shardgate.next_id CASCADE", "the schema shardgate cannot be changed".into()),
        ("DROP TABLE home, shardgate.decisions", "the schema shardgate cannot be changed".into()),
        ("DROP SCHEMA shardgate CASCADE", "the schema shardgate cannot be changed".into()),
        ("DROP TRIGGER x ON shardgate.decisions", "the schema shardgate cannot be changed".into()),
        ("CREATE FUNCTION shardgate.ff() RETURNS int LANGUAGE sql AS 'SELECT 1'", "the schema shardgate cannot be changed".into()),
        ("ALTER FUNCTION shardgate.next_id(text) STABLE", "the schema shardgate cannot be changed".into()),
        ("ALTER FUNCTION shardgate.next_id(text) RENAME TO x", "the schema shardgate cannot be changed".into()),
        ("ALTER FUNCTION shardgate.next_id(text) OWNER TO me", "the schema shardgate cannot be changed".into()),
        ("GRANT SELECT ON shardgate.decisions TO me", "the schema shardgate cannot be changed".into()),
        ("COMMENT ON COLUMN shardgate.decisions.x IS 'x'", "the schema shardgate cannot be changed".into()),
        ("CREATE SCHEMA z CREATE TABLE n (k int8 REFERENCES public.t (k))", foreign("t")),
    ] {
        assert_eq!(read(text, &context).0.as_deref(), Some(message.as_str()), "{text}");
    }
}

#[test]
fn changes_that_leave_the_key_alone_go_to_every_shard() {
    let context = testing::library().context(&["public"], &[]);
    for text in [
        "ALTER TABLE t DROP COLUMN x",
        "ALTER TABLE t ALTER COLUMN x TYPE int8",
        "ALTER TABLE t ALTER COLUMN k SET DEFAULT 1",
        "ALTER TABLE t ALTER COLUMN x DROP DEFAULT",
        "ALTER TABLE home ALTER COLUMN k DROP DEFAULT",
        "ALTER TABLE t DROP CONSTRAINT t_pkey",
        "ALTER TABLE t RENAME COLUMN x TO z",
        "ALTER TABLE home DROP COLUMN k",
        "CREATE UNIQUE INDEX ON t (k, x)",
        "CREATE INDEX ON t (x)",
        "ALTER TABLE t ADD PRIMARY KEY (k)",
        "ALTER TABLE t ADD UNIQUE (x, k)",
        "ALTER TABLE t ADD EXCLUDE USING gist (k WITH =, x WITH &&)",
        "ALTER TABLE t ADD PRIMARY KEY USING INDEX t_k",
        "ALTER TABLE t ADD FOREIGN KEY (k) REFERENCES u (k)",
        "ALTER TABLE t ADD FOREIGN KEY (x, k) REFERENCES u (y, k)",
        "ALTER TABLE t ADD FOREIGN KEY (x) REFERENCES ref (id)",
        "ALTER TABLE home ADD FOREIGN KEY (k) REFERENCES ref (id)",
        "ALTER TABLE pair ADD FOREIGN KEY (tenant, region) REFERENCES pair_log (tenant, region)",
        "CREATE TABLE n (k int8 PRIMARY KEY, r int REFERENCES ref (id), h int REFERENCES home (id))",
        "CREATE TABLE n (k int8 REFERENCES nowhere (k))",
        "ALTER TABLE nowhere DROP COLUMN k",
    ] {
        assert_eq!(read(text, &context), (None, false), "{text}");
    }
}

#[test]
fn renames_of_distributed_tables_are_reported() {
    let context = testing::library().context(&["public"], &[]);
    for (text, expected) in [
        ("ALTER TABLE t RENAME TO z", true),
        ("ALTER TABLE public.ref RENAME TO z", true),
        ("ALTER INDEX t RENAME TO z", true),
        ("ALTER TABLE t SET SCHEMA app", true),
        ("ALTER TABLE public.t RENAME COLUMN k TO kk", true),
        ("ALTER TABLE t RENAME k TO kk", true),
        ("ALTER TABLE home SET SCHEMA app", false),
        ("ALTER TABLE t SET SCHEMA public", false),
        ("ALTER SCHEMA ops RENAME TO z", false),
        ("ALTER TABLE home RENAME TO z", false),
        ("ALTER TABLE app.t RENAME TO z", false),
        ("ALTER TABLE t RENAME COLUMN x TO z", false),
        ("ALTER TABLE t RENAME CONSTRAINT x TO z", false),
        ("ALTER VIEW v_t RENAME TO z", false),
    ] {
        assert_eq!(read(text, &context), (None, expected), "{text}");
    }
}
