//! `add_shard` and `drop_shard`.

use super::{Declarer, admin, code, told};
use shardgate::declare::{self, Argument, Call, Caller};

#[tokio::test]
async fn the_first_shard_is_home_and_an_empty_one_gets_its_schema() {
    let d = Declarer::with_schema(
        2,
        "CREATE SCHEMA app; CREATE TYPE app.mood AS ENUM ('sad', 'happy');
         CREATE TABLE app.people (id bigint PRIMARY KEY, mood app.mood DEFAULT 'sad', \"odd name\" text);
         CREATE FUNCTION app.twice(x int) RETURNS int LANGUAGE sql AS 'select 2 * x';
         CREATE FUNCTION app.noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN new; END $$;
         CREATE TRIGGER noted AFTER INSERT ON app.people FOR EACH ROW EXECUTE FUNCTION app.noted();
         CREATE VIEW app.happy AS SELECT * FROM app.people WHERE mood = 'happy';",
    )
    .await;
    assert_eq!(
        d.value_on_map("SELECT string_agg(name || ' ' || is_home || ' ' || state, ', ' ORDER BY name) FROM shardgate.shards").await,
        "shard0 true online, shard1 false online"
    );
    assert_eq!(d.value_on_shard(1, "SELECT app.twice(21)").await, "42");
    d.on_shard(1, "INSERT INTO app.people VALUES (1, 'happy'); SELECT * FROM app.happy").await;
    // Each has its own identity and the objects that commits over several shards need.
    let identity = "SELECT shard::text FROM shardgate.identity";
    assert_ne!(d.value_on_shard(0, identity).await, d.value_on_shard(1, identity).await);
    for shard in 0..2 {
        let objects = "SELECT count(*) FROM (VALUES ('shardgate.decide(text,text)'), ('shardgate.joined(text,text)'), ('shardgate.resolve(text,uuid)')) f(name) WHERE to_regprocedure(name) IS NOT NULL";
        assert_eq!(d.value_on_shard(shard, objects).await, "3");
    }
    assert_eq!(d.value_on_map("SELECT string_agg(table_name, ',') FROM shardgate.tables WHERE kind = 'home'").await, "app.people");
}

#[tokio::test]
async fn adding_a_shard_again_changes_nothing() {
    let d = Declarer::with_schema(2, "CREATE TABLE t (id int)").await;
    let epoch = d.map.snapshot().epoch;
    d.add(0).await.expect("home again");
    d.add(1).await.expect("shard1 again");
    assert_eq!(d.map.snapshot().epoch, epoch);
    let error = d.call("add_shard", &["shard1", "postgres://postgres@127.0.0.1:1/other"]).await.unwrap_err();
    assert_eq!((code(&error).as_str(), error.message.as_str()), ("42710", "shard \"shard1\" already exists"));
}

#[tokio::test]
async fn the_same_database_under_another_url_is_refused() {
    let d = Declarer::with_schema(1, "").await;
    let other_url = format!("{}?application_name=x", d.cluster.shard_url(0));
    let error = d.call("add_shard", &["second", &other_url]).await.unwrap_err();
    assert_eq!(error.message, "the database is already shard \"shard0\"");
    assert_eq!(d.value_on_map("SELECT count(*) FROM shardgate.shards").await, "1");
}

#[tokio::test]
async fn a_shard_with_another_schema_is_refused_with_the_differences() {
    let d = Declarer::start(2).await;
    d.on_shard(0, "CREATE TABLE t (id int PRIMARY KEY, name text); CREATE TABLE only_home (x int)").await;
    d.on_shard(1, "CREATE TABLE t (id bigint PRIMARY KEY, name text)").await;
    d.add(0).await.expect("home");
    let error = d.add(1).await.unwrap_err();
    assert_eq!(code(&error), "55000");
    let told = told(&error);
    assert!(told.contains("column \"id\" of table \"public.t\" is integer not null here and bigint not null there"), "{told}");
    assert!(told.contains("table \"public.only_home\" exists here and is missing there"), "{told}");
    assert_eq!(d.value_on_map("SELECT count(*) FROM shardgate.shards").await, "1");
}

#[tokio::test]
async fn a_shard_whose_schema_is_alike_is_taken_as_it_is() {
    let d = Declarer::start(2).await;
    for shard in 0..2 {
        d.on_shard(shard, "CREATE TABLE t (id int PRIMARY KEY); CREATE INDEX t_desc ON t (id DESC)").await;
        d.add(shard).await.expect("add");
    }
}

#[tokio::test]
async fn an_unreachable_shard_is_refused_without_its_password() {
    let d = Declarer::start(1).await;
    let error = d.call("add_shard", &["s", "postgres://postgres:s3cret@127.0.0.1:1/db"]).await.unwrap_err();
    assert_eq!((code(&error).as_str(), error.message.as_str()), ("08001", "could not connect to shard \"s\""));
    assert!(!told(&error).contains("s3cret"));
    let url = d.cluster.url_on_shard(0, "nothing");
    let error = d.call("add_shard", &["s", &url]).await.unwrap_err();
    assert!(told(&error).contains("database \"nothing\" does not exist"), "{}", told(&error));
    for url in ["", "nonsense", "mysql://h/d"] {
        assert_eq!(code(&d.call("add_shard", &["s", url]).await.unwrap_err()), "22023");
    }
    let error = d.call("add_shard", &["a b", &d.cluster.shard_url(0)]).await.unwrap_err();
    assert_eq!(error.message, "invalid shard name \"a b\"");
}

#[tokio::test]
async fn only_admins_change_the_map() {
    let d = Declarer::start(1).await;
    let nobody = Caller { is_admin: false, ..admin() };
    let call = Call { function: "drop_shard".to_owned(), arguments: vec![(None, Argument::Text("x".to_owned()))] };
    let error = declare::call(&d.control, &nobody, &call).await.unwrap_err();
    assert_eq!((code(&error).as_str(), error.message.as_str()), ("42501", "permission denied for function drop_shard"));
    let call = Call { function: "unique_id".to_owned(), arguments: vec![] };
    declare::call(&d.control, &nobody, &call).await.expect("everybody may draw an id");
}

/// Plans and dry runs.
#[tokio::test]
async fn what_changes_nothing_everybody_may_call() {
    let d = Declarer::with_schema(1, "CREATE TABLE t (id int PRIMARY KEY)").await;
    let nobody = Caller { is_admin: false, ..admin() };
    let asked = async |function: &str, arguments: &[(&str, &str)]| {
        let argument =
            |(name, value): &(&str, &str)| ((!name.is_empty()).then(|| (*name).to_owned()), Argument::Text((*value).to_owned()));
        let call = Call { function: function.to_owned(), arguments: arguments.iter().map(argument).collect() };
        declare::call(&d.control, &nobody, &call).await
    };
    let planned = asked("plan_tables", &[("", "{\"t\": \"id\"}")]).await.expect("a plan");
    assert!(!planned.rows.is_empty());
    d.call("distribute_table", &["t", "id"]).await.expect("distribute");
    for (function, arguments) in
        [("rebalance", &[][..]), ("redistribute_table", &[("", "t")]), ("undistribute_table", &[("", "t")])]
    {
        let refused = asked(function, arguments).await.unwrap_err();
        assert_eq!(code(&refused), "42501", "{function}");
        assert!(refused.hint.is_some_and(|hint| hint.contains("dry_run => true")), "{function}");
        // No proxy is here that would look at sizes.
        let dry = [arguments, &[("dry_run", "true")]].concat();
        if let Err(error) = asked(function, &dry).await {
            assert_eq!(code(&error), "0A000", "{function}: {}", error.message);
        }
    }
}

#[tokio::test]
async fn a_shard_that_holds_partitions_is_not_dropped() {
    let d = Declarer::with_schema(3, "CREATE TABLE t (id int PRIMARY KEY)").await;
    d.call_named("distribute_table", &[("", "t"), ("", "id"), ("on_shards", "shard0, shard1")]).await.expect("distribute");
    let error = d.call("drop_shard", &["shard1"]).await.unwrap_err();
    assert_eq!(code(&error), "55006");
    d.call("drop_shard", &["shard2"]).await.expect("shard2 holds nothing");
    assert!(d.call("drop_shard", &["shard0"]).await.is_err(), "the home shard stays");
    assert_eq!(code(&d.call("drop_shard", &["shard9"]).await.unwrap_err()), "42704");
}

#[tokio::test]
async fn before_the_first_shard_tables_cannot_be_declared() {
    let d = Declarer::start(1).await;
    for (function, arguments) in
        [("distribute_table", &["t", "id"][..]), ("reference_table", &["t"]), ("map_key", &["t", "1", "s"])]
    {
        let error = d.call(function, arguments).await.unwrap_err();
        assert_eq!(code(&error), "57P03", "{function}");
        assert!(told(&error).contains("shardgate.add_shard"), "{function}");
    }
}
