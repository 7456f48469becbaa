//! What keeps a table from being distributed is told, all at once, with what to do.

use super::{Declarer, code, told};

async fn refused(d: &Declarer, table: &str, key: &str) -> String {
    let error = d.call("distribute_table", &[table, key]).await.expect_err("refused");
    assert_eq!(code(&error), "0A000", "{}", told(&error));
    told(&error)
}

#[tokio::test]
async fn unique_indexes_and_exclusion_constraints_need_the_key() {
    let d = Declarer::with_schema(
        2,
        "CREATE EXTENSION btree_gist;
         CREATE TABLE t (id int PRIMARY KEY, tenant int, email text, span int4range, UNIQUE (tenant, email),
                         CONSTRAINT apart EXCLUDE USING gist (span WITH &&), CONSTRAINT apart_too EXCLUDE USING gist (tenant WITH =, span WITH &&));
         CREATE UNIQUE INDEX t_email ON t (lower(email)); CREATE UNIQUE INDEX t_part ON t (email) WHERE tenant > 3;",
    )
    .await;
    let told = refused(&d, "t", "tenant").await;
    for name in ["Primary key \"t_pkey\"", "Exclusion constraint \"apart\"", "Unique index \"t_email\"", "Unique index \"t_part\""]
    {
        assert!(told.contains(name), "{name}: {told}");
    }
    assert!(!told.contains("apart_too") && !told.contains("t_tenant_email_key"), "{told}");
    assert!(told.contains("DROP INDEX \"public\".\"t_email\"") && told.contains("DROP CONSTRAINT \"t_pkey\""), "{told}");
    assert_eq!(d.value_on_map("SELECT count(*) FROM shardgate.tables WHERE kind = 'sharded'").await, "0");
}

#[tokio::test]
async fn foreign_keys_must_stay_within_the_group() {
    let d = Declarer::with_schema(
        2,
        "CREATE TABLE customers (tenant int, id int, PRIMARY KEY (tenant, id), parent int, FOREIGN KEY (tenant, parent) REFERENCES customers);
         CREATE TABLE countries (code text PRIMARY KEY);
         CREATE TABLE orders (tenant int, id int, customer int, country text REFERENCES countries, PRIMARY KEY (tenant, id),
             CONSTRAINT orders_customer FOREIGN KEY (tenant, customer) REFERENCES customers);",
    )
    .await;
    let told = refused(&d, "customers", "tenant").await;
    assert!(told.contains("Foreign key \"orders_customer\" of table \"orders\" refers to table \"customers\""), "{told}");
    assert!(told.contains("ALTER TABLE \"public\".\"orders\" DROP CONSTRAINT \"orders_customer\""), "{told}");
    for shard in 0..2 {
        d.on_shard(shard, "ALTER TABLE orders DROP CONSTRAINT orders_customer").await;
    }
    d.call("distribute_table", &["customers", "tenant"]).await.expect("its own foreign key holds the key");
    assert!(refused(&d, "orders", "tenant").await.contains("refers to table \"countries\""));
    d.call("reference_table", &["countries"]).await.expect("reference");
    for shard in 0..2 {
        d.on_shard(shard, "ALTER TABLE orders ADD CONSTRAINT orders_customer FOREIGN KEY (tenant, customer) REFERENCES customers")
            .await;
    }
    assert!(refused(&d, "orders", "tenant").await.contains("the two tables are not colocated"));
    d.call_named("distribute_table", &[("", "orders"), ("", "tenant"), ("colocate_with", "customers")]).await.expect("colocated");
}

#[tokio::test]
async fn triggers_that_may_set_the_key_are_refused_until_declared() {
    let d = Declarer::with_schema(
        1,
        "CREATE TABLE t (id int PRIMARY KEY, x int, at timestamptz, note text, words tsvector);
         CREATE TRIGGER words BEFORE INSERT OR UPDATE ON t FOR EACH ROW
             EXECUTE FUNCTION tsvector_update_trigger(words, 'pg_catalog.english', note);
         CREATE TRIGGER same BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
         CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN new.at := now(); RETURN new; END $$;
         CREATE FUNCTION rekey() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF new.id IS NULL THEN new.id := 7; END IF; RETURN new; END $$;
         CREATE FUNCTION odd() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN new := jsonb_populate_record(new, '{}'); RETURN new; END $$;
         CREATE TRIGGER touch BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION touch();",
    )
    .await;
    let d = d;
    d.on_shard(0, "CREATE TRIGGER rekey BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION rekey(); CREATE TRIGGER odd BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION odd()").await;
    let told = refused(&d, "t", "id").await;
    assert!(told.contains("Trigger \"rekey\" sets the shard key"), "{told}");
    assert!(told.contains("Trigger \"odd\" fires before each row and may set the shard key"), "{told}");
    assert!(["touch", "words", "same"].iter().all(|name| !told.contains(&format!("\"{name}\""))), "{told}");
    d.call("declare_function", &["rekey"]).await.expect("declare");
    d.call("declare_function", &["odd"]).await.expect("declare");
    d.call("distribute_table", &["t", "id"]).await.expect("declared");
}

/// Of the whole cluster a number is given once: the sequence would not begin anew any more.
#[tokio::test]
async fn sequences_with_cycle_are_refused_until_they_have_none() {
    let d = Declarer::with_schema(
        2,
        "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY (MAXVALUE 100 CYCLE) PRIMARY KEY, \"No\" serial, plain serial);
         ALTER SEQUENCE \"t_No_seq\" CYCLE; CREATE SEQUENCE s CYCLE; CREATE TABLE r (id int DEFAULT nextval('s') PRIMARY KEY)",
    )
    .await;
    let told = refused(&d, "t", "id").await;
    for text in [
        "The sequence of column \"id\" has CYCLE, and of the whole cluster a number is given once.",
        "ALTER TABLE \"public\".\"t\" ALTER COLUMN \"id\" SET NO CYCLE; when its numbers have ended, ALTER SEQUENCE … RESTART lets it begin anew.",
        "The sequence of column \"No\" has CYCLE",
        "ALTER SEQUENCE \"public\".\"t_No_seq\" NO CYCLE",
    ] {
        assert!(told.contains(text), "{text}: {told}");
    }
    assert!(!told.contains("plain"), "{told}");
    assert!(
        super::told(&d.call("reference_table", &["r"]).await.expect_err("refused"))
            .contains("ALTER SEQUENCE \"public\".\"s\" NO CYCLE")
    );
    let planned = d.call_named("plan_tables", &[("", "{\"t\": \"id\"}")]).await.expect("a plan");
    let planned = format!("{planned:?}");
    assert!(planned.contains("ALTER COLUMN \\\"id\\\" SET NO CYCLE") || planned.contains("has CYCLE"), "{planned}");
    assert_eq!(
        d.value_on_shard(0, "SELECT attidentity FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'id'").await,
        "a"
    );
    for shard in 0..2 {
        let end = "ALTER TABLE t ALTER COLUMN id SET NO CYCLE; ALTER SEQUENCE \"t_No_seq\" NO CYCLE; ALTER SEQUENCE s NO CYCLE";
        d.on_shard(shard, end).await;
    }
    d.call("distribute_table", &["t", "id"]).await.expect("distribute");
    d.call("reference_table", &["r"]).await.expect("reference");
}

#[tokio::test]
async fn hidden_references_are_listed() {
    let d = Declarer::with_schema(
        1,
        "CREATE TABLE t (id int PRIMARY KEY, x int); CREATE TABLE audit (id int); CREATE TABLE membership (id int); CREATE TABLE ref (id int PRIMARY KEY);
         CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO audit VALUES (new.id); RETURN NULL; END $$;
         CREATE FUNCTION dynamic() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'select 1'; RETURN NULL; END $$;
         CREATE FUNCTION known() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM 1 FROM ref; RETURN NULL; END $$;
         CREATE TRIGGER log AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION log();
         CREATE TRIGGER dynamic AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION dynamic();
         CREATE TRIGGER known AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION known();
         ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON t USING (EXISTS (SELECT FROM membership m WHERE m.id = t.id));
         CREATE RULE r AS ON DELETE TO t DO ALSO INSERT INTO audit VALUES (old.id);",
    )
    .await;
    d.call("reference_table", &["ref"]).await.expect("reference");
    let told = refused(&d, "t", "id").await;
    for text in [
        "Trigger \"log\" writes the home table \"audit\".",
        "What trigger \"dynamic\" touches cannot be proven: function \"dynamic\" runs SQL that it makes itself (EXECUTE).",
        "Policy \"p\" reads the home table \"membership\".",
        "What rule \"r\" touches cannot be proven",
    ] {
        assert!(told.contains(text), "{text}: {told}");
    }
    assert!(!told.contains("\"known\""), "{told}");
}

#[tokio::test]
async fn a_declared_function_may_touch_colocated_tables_only() {
    let d = Declarer::with_schema(
        1,
        "CREATE TABLE log (id int, n int); CREATE TABLE t (id int PRIMARY KEY);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log VALUES (new.id); RETURN NULL; END $$;
         CREATE TRIGGER note AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION note();",
    )
    .await;
    d.call_named("declare_function", &[("", "note"), ("writes", "{log}")]).await.expect("declare");
    assert!(refused(&d, "t", "id").await.contains("whose rows are not all on the same shard"));
    d.call("distribute_table", &["log", "id"]).await.expect("log");
    d.call_named("distribute_table", &[("", "t"), ("", "id"), ("colocate_with", "log")]).await.expect("colocated and declared");
}

#[tokio::test]
async fn triggers_that_touch_rows_of_the_same_key_are_no_obstacle() {
    let d = Declarer::with_schema(
        1,
        "CREATE TABLE log (id int NOT NULL, n int); CREATE TABLE by_key (id int PRIMARY KEY); CREATE TABLE \"By n\" (id int PRIMARY KEY, n int);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log VALUES (new.id); RETURN NULL; END $$;
         CREATE TRIGGER note AFTER INSERT ON by_key FOR EACH ROW EXECUTE FUNCTION note();
         CREATE FUNCTION note_n() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO log VALUES (new.n); PERFORM 1 FROM \"By n\" b WHERE b.id = new.id; RETURN NULL; END $$;
         CREATE TRIGGER note AFTER INSERT ON \"By n\" FOR EACH ROW EXECUTE FUNCTION note_n();",
    )
    .await;
    d.call("distribute_table", &["log", "id"]).await.expect("log");
    d.call_named("distribute_table", &[("", "by_key"), ("", "id"), ("colocate_with", "log")]).await.expect("proven");
    let elsewhere = d.call_named("distribute_table", &[("", "\"By n\""), ("", "id"), ("colocate_with", "log")]).await.unwrap_err();
    let declaration =
        r#"SELECT shardgate.declare_function('public.note_n', reads => '{public.\"By n\"}', writes => '{public.log}');"#;
    assert!(told(&elsewhere).contains(declaration), "{}", told(&elsewhere));
    let arguments = [("", "public.note_n"), ("reads", r#"{public.\"By n\"}"#), ("writes", "{public.log}")];
    d.call_named("declare_function", &arguments).await.expect("as the hint says");
    d.call_named("distribute_table", &[("", "\"By n\""), ("", "id"), ("colocate_with", "log")]).await.expect("declared");
}

/// What numbers the rows there is a sequence of the whole cluster once the tables are declared.
#[tokio::test]
async fn triggers_may_write_tables_with_numbers_that_are_declared_by_the_same_call() {
    let d = Declarer::with_schema(
        2,
        "CREATE TABLE log (id int NOT NULL, place bigint GENERATED ALWAYS AS IDENTITY, no serial); CREATE TABLE t (id int PRIMARY KEY);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log (id) VALUES (NEW.id); RETURN NULL; END $$;
         CREATE TRIGGER note AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION note();",
    )
    .await;
    d.call("distribute_tables", &[r#"{"t": "id", "log": "id"}"#]).await.expect("both at once");
}

#[tokio::test]
async fn a_reference_table_may_not_refer_to_home_tables() {
    let d = Declarer::with_schema(
        2,
        "CREATE TABLE home (id int PRIMARY KEY); CREATE TABLE r (id int PRIMARY KEY, h int REFERENCES home)",
    )
    .await;
    let error = d.call("reference_table", &["r"]).await.unwrap_err();
    assert_eq!(code(&error), "0A000");
    assert!(told(&error).contains("refers to table \"home\""), "{}", told(&error));
}
