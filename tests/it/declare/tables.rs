//! `distribute_table` and the names that Citus users know.

use super::{Declarer, code, told};

async fn placement(d: &Declarer, table: &str) -> String {
    d.value_on_map(&format!(
        "SELECT string_agg(shard || ' ' || n, ', ' ORDER BY shard) FROM (SELECT p.shard, count(*) AS n FROM shardgate.partitions p \
         JOIN shardgate.tables t USING (colocation_group) WHERE t.table_name = '{table}' GROUP BY 1) x"
    ))
    .await
}

#[tokio::test]
async fn an_empty_table_spreads_and_one_with_rows_stays_home() {
    let d = Declarer::with_schema(
        2,
        "CREATE TABLE empty (id int PRIMARY KEY); CREATE TABLE full_ (id int PRIMARY KEY); INSERT INTO full_ VALUES (1)",
    )
    .await;
    d.call("distribute_table", &["empty", "id"]).await.expect("empty");
    d.call("distribute_table", &["full_", "id"]).await.expect("full");
    assert_eq!(placement(&d, "empty").await, "shard0 32, shard1 32");
    assert_eq!(placement(&d, "full_").await, "shard0 64");
    // The gate is gone.
    d.on_shard(0, "INSERT INTO empty VALUES (1)").await;
    assert_eq!(d.value_on_shard(0, "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal").await, "0");
}

#[tokio::test]
async fn a_table_whose_rows_are_all_at_home_is_undistributed() {
    let d = Declarer::with_schema(
        2,
        "CREATE TABLE orders (tenant int, id int, PRIMARY KEY (tenant, id));
         CREATE TABLE items (tenant int, order_id int, n int, PRIMARY KEY (tenant, order_id, n));
         CREATE TABLE notes (tenant int, note text);
         CREATE TABLE spread (id int PRIMARY KEY); CREATE TABLE home (id int); CREATE TABLE everywhere (id int PRIMARY KEY);
         INSERT INTO orders VALUES (1, 1); INSERT INTO items VALUES (1, 1, 1); INSERT INTO notes VALUES (1, 'n')",
    )
    .await;
    d.call("distribute_table", &["orders", "tenant"]).await.expect("orders");
    for table in ["items", "notes"] {
        let arguments = [("", table), ("", "tenant"), ("colocate_with", "orders")];
        d.call_named("distribute_table", &arguments).await.expect(table);
    }
    d.call("distribute_table", &["spread", "id"]).await.expect("spread");
    d.call("reference_table", &["everywhere"]).await.expect("everywhere");
    for shard in 0..2 {
        d.on_shard(shard, "ALTER TABLE items ADD CONSTRAINT of_order FOREIGN KEY (tenant, order_id) REFERENCES orders").await;
    }
    let refused = async |table: &str, expected: &str| {
        let error = d.call("undistribute_table", &[table]).await.unwrap_err();
        assert!(told(&error).contains(expected), "{table}: {}", told(&error));
    };
    refused("home", "table \"home\" is not sharded").await;
    refused("everywhere", "\"everywhere\" is a reference table").await;
    refused("spread", "32 of its 64 partitions are not on the home shard \"shard0\"").await;
    refused("orders", "Foreign key \"of_order\" of table \"items\" refers to table \"orders\"").await;
    d.on_shard(1, "INSERT INTO notes VALUES (2, 'stray')").await;
    refused("notes", "shard \"shard1\" has rows of it").await;
    d.on_shard(1, "DELETE FROM notes").await;

    d.call("undistribute_table", &["notes"]).await.expect("notes");
    d.call_named("undistribute_table", &[("", "items"), ("cascade_via_foreign_keys", "true")]).await.expect("with orders");
    let kinds =
        "SELECT string_agg(table_name || ' ' || kind, ', ' ORDER BY table_name) FROM shardgate.tables WHERE table_name <> 'home'";
    assert_eq!(d.value_on_map(kinds).await, "everywhere reference, items home, notes home, orders home, spread sharded");
    assert_eq!(d.value_on_map("SELECT count(*) FROM shardgate.partitions").await, "64", "the group has gone with its last table");
    let last = "SELECT change || ' ' || arguments::text FROM shardgate_map.history ORDER BY counter DESC LIMIT 1";
    assert_eq!(d.value_on_map(last).await, r#"undistribute_tables {"tables": [["public", "items"], ["public", "orders"]]}"#);
    // And sharded again, by another key.
    d.call("undistribute_table", &["items"]).await.expect_err("it is not sharded");
    d.call("distribute_table", &["notes", "tenant", "lookup"]).await.expect("again");
}

#[tokio::test]
async fn tables_with_foreign_keys_are_declared_by_one_call() {
    let schema = "CREATE TABLE {p}tenants (id int PRIMARY KEY, name text);
        CREATE TABLE {p}orders (tenant int REFERENCES {p}tenants, id int, PRIMARY KEY (tenant, id));
        CREATE TABLE {p}items (tenant int, order_id int, n int, PRIMARY KEY (tenant, order_id, n),
            FOREIGN KEY (tenant, order_id) REFERENCES {p}orders);
        CREATE TABLE {p}big (tenant bigint PRIMARY KEY); CREATE TABLE {p}other (tenant text PRIMARY KEY); CREATE TABLE {p}loose (tenant int, id int PRIMARY KEY, o int REFERENCES {p}loose);";
    let all = format!(
        "{}{} INSERT INTO full_tenants VALUES (1, 'a'); INSERT INTO full_orders VALUES (1, 1)",
        schema.replace("{p}", "empty_"),
        schema.replace("{p}", "full_")
    );
    let d = Declarer::with_schema(2, &all).await;
    let keys = |prefix: &str| format!(r#"{{"{prefix}tenants": "id", "{prefix}orders": "tenant", "{prefix}items": "tenant"}}"#);
    let refused = async |keys: &str, expected: &str| {
        let error = d.call("distribute_tables", &[keys]).await.unwrap_err();
        assert!(told(&error).contains(expected), "{keys}: {}", told(&error));
    };
    refused(r#"{"empty_orders": "tenant", "empty_items": "tenant"}"#, "refers to table \"empty_tenants\"").await;
    refused(
        r#"{"empty_orders": "tenant", "empty_items": "tenant"}"#,
        r#"distribute_tables('{"public.empty_orders": "tenant", "public.empty_tenants": "id"}')"#,
    )
    .await;
    refused(r#"{"empty_other": "tenant", "empty_tenants": "id"}"#, "\"empty_other\": text; table \"empty_tenants\": integer").await;
    // All that is in the way, the types first.
    refused(r#"{"empty_loose": "id", "empty_other": "tenant"}"#, "have different types. Table \"empty_loose\": integer;").await;
    refused(r#"{"empty_tenants": "id", "public.empty_tenants": "id"}"#, "table \"empty_tenants\" is named twice").await;
    refused(r#"{"empty_loose": "tenant"}"#, "Primary key \"empty_loose_pkey\" does not contain the shard key").await;
    refused("[1]", "keys must be an object").await;
    refused("{", "invalid input syntax for type jsonb").await;
    assert_eq!(d.value_on_map("SELECT count(*) FROM shardgate.tables WHERE kind = 'sharded'").await, "0");

    d.call("distribute_tables", &[&keys("empty_")]).await.expect("empty");
    d.call("distribute_tables", &[&keys("full_")]).await.expect("full");
    assert_eq!(placement(&d, "empty_orders").await, "shard0 32, shard1 32");
    assert_eq!(placement(&d, "full_items").await, "shard0 64");
    let groups =
        "SELECT count(DISTINCT colocation_group) FROM shardgate.tables WHERE table_name LIKE 'empty%' AND kind = 'sharded'";
    assert_eq!(d.value_on_map(groups).await, "1");
    let changes = "SELECT count(*) FROM shardgate_map.history WHERE change = 'distribute_table'";
    assert_eq!(d.value_on_map(changes).await, "6");
    // The gates are gone, and the foreign keys hold on each shard.
    d.on_shard(0, "INSERT INTO empty_tenants VALUES (1); INSERT INTO empty_orders VALUES (1, 1)").await;
    let foreign_keys = "SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND conrelid::regclass::text LIKE 'empty%'";
    assert_eq!(d.value_on_shard(1, foreign_keys).await, "3");
    assert_eq!(d.call("distribute_tables", &[&keys("empty_")]).await.map_err(|error| code(&error)), Err("42710".to_owned()));
    // Integers are placed alike, whatever their width.
    for shard in 0..2 {
        d.on_shard(shard, "ALTER TABLE empty_loose DROP CONSTRAINT empty_loose_o_fkey, DROP CONSTRAINT empty_loose_pkey").await;
    }
    d.call("distribute_tables", &[r#"{"empty_loose": "tenant", "full_big": "tenant"}"#]).await.expect("integers");
    let types = "SELECT string_agg(DISTINCT g.key_types::text, '') FROM shardgate_map.colocation_group g
                 JOIN shardgate_map.declared_table t USING (group_id) WHERE t.table_name = 'full_big'";
    assert_eq!(d.value_on_map(types).await, "{bigint}");
}

#[tokio::test]
async fn partitions_and_shards_are_chosen() {
    let d = Declarer::with_schema(3, "CREATE TABLE t (region text, id int, PRIMARY KEY (id, region))").await;
    d.call_named("distribute_table", &[("", "public.t"), ("", "region, id"), ("partitions", "6"), ("on_shards", "shard1,shard2")])
        .await
        .expect("distribute");
    assert_eq!(placement(&d, "t").await, "shard1 3, shard2 3");
    assert_eq!(d.value_on_map("SELECT key FROM shardgate.tables WHERE table_name = 't'").await, "region, id");
    let error = d.call("distribute_table", &["t", "id"]).await.unwrap_err();
    assert_eq!((code(&error).as_str(), error.message.as_str()), ("42710", "table \"t\" is already sharded"));
}

#[tokio::test]
async fn wrong_arguments_have_their_own_errors() {
    let d = Declarer::with_schema(
        1,
        "CREATE TABLE orders (id int PRIMARY KEY, tags jsonb, ts timestamptz(0)); CREATE VIEW v AS SELECT 1 AS id;
         CREATE TABLE gen (a int, b int GENERATED ALWAYS AS (a) STORED)",
    )
    .await;
    let expect = async |arguments: &[(&str, &str)], expected_code: &str, text: &str| {
        let error = d.call_named("distribute_table", arguments).await.unwrap_err();
        assert_eq!(code(&error), expected_code, "{}", told(&error));
        assert!(told(&error).contains(text), "{text}: {}", told(&error));
    };
    expect(&[("", "ordrs"), ("", "id")], "42P01", "Perhaps you meant \"public.orders\".").await;
    expect(&[("", "orders"), ("", "idd")], "42703", "Perhaps you meant \"id\".").await;
    expect(&[("", "v"), ("", "id")], "42809", "\"v\" is a view").await;
    expect(&[("", "orders"), ("", "tags")], "0A000", "Its type is jsonb.").await;
    expect(&[("", "orders"), ("", "ts")], "0A000", "timestamp(0) with time zone").await;
    expect(&[("", "gen"), ("", "b")], "0A000", "generated column").await;
    expect(&[("", "orders"), ("", "lower(id)")], "22023", "key function").await;
    expect(&[("", "orders"), ("", "right(id, 1)")], "0A000", "does not take column").await;
    expect(&[("", "orders"), ("", "id"), ("strategy", "modulo")], "22023", "unknown strategy").await;
    expect(&[("", "orders"), ("", "id"), ("partitions", "0")], "22023", "between 1 and 100000").await;
    expect(&[("", "orders"), ("", "id"), ("on_shards", "shard7")], "42704", "shard \"shard7\" does not exist").await;
    expect(&[("", "orders"), ("", "id"), ("colocate_with", "gen")], "55000", "It is not sharded.").await;
    expect(&[("", "orders"), ("key_column", "id")], "42883", "The function is shardgate.distribute_table(").await;
    expect(&[("", "orders")], "42883", "does not exist").await;
    let error = d.call("distribute_tabel", &["orders", "id"]).await.unwrap_err();
    assert!(told(&error).contains("Perhaps you meant shardgate.distribute_table("), "{}", told(&error));
}

#[tokio::test]
async fn tables_are_colocated_when_their_keys_fit() {
    let d = Declarer::with_schema(
        2,
        "CREATE TABLE a (id bigint PRIMARY KEY); CREATE TABLE b (a_id int, n int, PRIMARY KEY (a_id, n));
         CREATE TABLE c (id uuid PRIMARY KEY); CREATE TABLE full_ (id bigint PRIMARY KEY); INSERT INTO full_ VALUES (1)",
    )
    .await;
    d.call_named("distribute_table", &[("", "a"), ("", "id"), ("partitions", "8")]).await.expect("a");
    d.call_named("distribute_table", &[("", "b"), ("", "a_id"), ("colocate_with", "a")]).await.expect("b");
    assert_eq!(d.value_on_map("SELECT count(DISTINCT colocation_group) FROM shardgate.tables WHERE kind = 'sharded'").await, "1");
    let error = d.call_named("distribute_table", &[("", "c"), ("", "id"), ("colocate_with", "a")]).await.unwrap_err();
    assert!(told(&error).contains("different types"), "{}", told(&error));
    let error = d
        .call_named("distribute_table", &[("", "c"), ("", "id"), ("colocate_with", "a"), ("strategy", "range")])
        .await
        .unwrap_err();
    assert!(told(&error).contains("sharded by range"), "{}", told(&error));
    let error = d.call_named("distribute_table", &[("", "full_"), ("", "id"), ("colocate_with", "a")]).await.unwrap_err();
    assert!(told(&error).contains("because it holds rows"), "{}", told(&error));
}

#[tokio::test]
async fn rows_of_a_lookup_table_are_found_by_its_default() {
    let d = Declarer::with_schema(2, "CREATE TABLE t (tenant text, n int, PRIMARY KEY (tenant, n)); INSERT INTO t VALUES ('x', 1)")
        .await;
    d.call_named("distribute_table", &[("", "t"), ("", "tenant"), ("strategy", "lookup")]).await.expect("distribute");
    let located = d.call("locate", &["t", "x"]).await.expect("locate");
    assert_eq!(located.rows[0][1].as_deref(), Some("shard0"));
}

#[tokio::test]
async fn a_table_that_a_shard_lacks_is_made_there() {
    let d = Declarer::with_schema(2, "").await;
    // Past the proxy, so that the other shard does not have it.
    d.on_shard(0, "CREATE TABLE late (id int PRIMARY KEY, note text DEFAULT 'x'); CREATE INDEX late_note ON late (note)").await;
    d.call("distribute_table", &["late", "id"]).await.expect("distribute");
    d.on_shard(1, "INSERT INTO late VALUES (1)").await;
    d.on_shard(0, "CREATE TABLE differs (id int PRIMARY KEY)").await;
    d.on_shard(1, "CREATE TABLE differs (id bigint PRIMARY KEY)").await;
    let error = d.call("distribute_table", &["differs", "id"]).await.unwrap_err();
    assert!(told(&error).contains("column \"id\" of table \"public.differs\" is integer not null here and bigint not null there"));
}

#[tokio::test]
async fn rows_that_lie_on_another_shard_are_refused() {
    let d = Declarer::with_schema(2, "CREATE TABLE t (id int PRIMARY KEY)").await;
    d.on_shard(1, "INSERT INTO t VALUES (7)").await;
    let error = d.call("distribute_table", &["t", "id"]).await.unwrap_err();
    assert_eq!(error.message, "table \"t\" holds rows on shard \"shard1\"");
}

#[tokio::test]
async fn an_open_writer_holds_up_the_declaration_and_is_named() {
    let d = Declarer::with_schema(2, "CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut writer = d.cluster.connect_shard(0).await;
    let transaction = writer.transaction().await.unwrap();
    transaction.execute("INSERT INTO t VALUES (1)", &[]).await.unwrap();
    let error = d.call("distribute_table", &["t", "id"]).await.unwrap_err();
    assert_eq!(code(&error), "55P03");
    assert!(told(&error).contains("is still open"), "{}", told(&error));
    transaction.commit().await.unwrap();
    d.call("distribute_table", &["t", "id"]).await.expect("now it has rows, and stays");
    assert_eq!(placement(&d, "t").await, "shard0 64");
}

#[tokio::test]
async fn citus_names_work_and_colocate_what_fits() {
    let d = Declarer::with_schema(2, "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY); CREATE TABLE c (id int PRIMARY KEY); CREATE TABLE r (id int PRIMARY KEY)").await;
    d.call("create_distributed_table", &["a", "id"]).await.expect("a");
    d.call_named("create_distributed_table", &[("", "b"), ("", "id"), ("shard_count", "64")]).await.expect("b");
    d.call_named("create_distributed_table", &[("", "c"), ("", "id"), ("colocate_with", "none")]).await.expect("c");
    d.call("create_reference_table", &["r"]).await.expect("r");
    let groups =
        "SELECT string_agg(table_name || coalesce(colocation_group::text, kind), ' ' ORDER BY table_name) FROM shardgate.tables";
    assert_eq!(d.value_on_map(groups).await, "a1 b1 c2 rreference");
    assert_eq!(code(&d.call("create_distributed_table", &["a", "id", "append"]).await.unwrap_err()), "0A000");
}

#[tokio::test]
async fn partitions_are_placed_like_the_table_that_they_belong_to() {
    let d = Declarer::with_schema(
        2,
        "CREATE TABLE events (tenant int, at date, id bigserial, PRIMARY KEY (tenant, at, id)) PARTITION BY RANGE (at);
         CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2020-01-01') TO ('2020-02-01') PARTITION BY LIST (tenant);
         CREATE TABLE events_1_rest PARTITION OF events_1 DEFAULT; CREATE TABLE events_2 PARTITION OF events DEFAULT",
    )
    .await;
    let partitions =
        "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class WHERE relkind IN ('r', 'p') AND relname ~ '^events'";
    // A partition that is elsewhere only, or missing there.
    d.on_shard(1, "DROP TABLE events_2").await;
    let error = d.call("distribute_table", &["events", "tenant"]).await.unwrap_err();
    assert!(told(&error).contains("table \"public.events_2\" exists here and is missing there"), "{}", told(&error));
    // All of them are made where there is none.
    d.on_shard(1, "DROP TABLE events").await;
    d.call("distribute_table", &["events", "tenant"]).await.expect("distribute");
    assert_eq!(d.value_on_shard(1, partitions).await, "events events_1 events_1_rest events_2");
    assert_eq!(
        d.value_on_map("SELECT string_agg(table_name, ' ') FROM shardgate.tables WHERE table_name ~ '^events'").await,
        "events"
    );
    // Writers of the table and of each partition are let in again.
    let gates = "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal";
    assert_eq!(d.value_on_shard(0, gates).await, "0");
}
