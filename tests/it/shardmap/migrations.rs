//! The map's schema: made once, made again, made by many at once, and upgraded from every earlier version.

use shardgate::shardmap::{ShardMap, Store, StoreError, migrations, migrations_up_to};
use sqlx::{Connection, PgConnection};

use super::{connect_map, map_cluster, options};

#[tokio::test]
async fn migrating_again_changes_nothing_and_many_may_do_it_at_once() {
    let cluster = map_cluster().await;
    let maps = futures::future::join_all((0..4).map(|_| connect_map(&cluster))).await;
    let epoch = maps[0].store().epoch().await.expect("epoch");
    let migrated = maps[0].store().migrate().await.expect("migrate again");
    assert_eq!(migrated.before, Some(migrated.after));
    assert_eq!(maps[0].store().epoch().await.expect("epoch"), epoch);
    for map in maps {
        map.close().await;
    }
}

#[tokio::test]
async fn every_earlier_version_is_upgraded() {
    let cluster = map_cluster().await;
    missing_rights_are_named(&cluster).await;
    let latest = migrations().iter().count();
    for earlier in 0..=latest {
        let database = format!("map_{earlier}");
        cluster.map_server().create_database(&database).await.expect("create a database");
        let url = cluster.map_server().url(&database);
        let mut connection = PgConnection::connect(&url).await.expect("connect");
        migrations_up_to(earlier).run(&mut connection).await.expect("the earlier version");
        connection.close().await.expect("close");
        let map = ShardMap::connect(shardgate::shardmap::MapOptions { url, ..options(&cluster) }).await.expect("upgrade");
        super::add_shard(map.store(), "a").await;
        map.refresh().await.expect("refresh");
        assert!(map.snapshot().home().is_some(), "upgraded from {earlier}");
        map.close().await;
    }
}

async fn missing_rights_are_named(cluster: &crate::support::Cluster) {
    cluster.map_server().create_database("Not mine").await.expect("create a database");
    let url = cluster.map_server().url("map");
    let mut connection = PgConnection::connect(&url).await.expect("connect");
    sqlx::raw_sql("CREATE ROLE mapper LOGIN").execute(&mut connection).await.expect("a role");
    connection.close().await.expect("close");
    let url = cluster.map_server().url("Not%20mine").replace("postgres@", "mapper@");
    let refused = Store::new(&url).expect("a url").migrate().await.expect_err("no rights").to_string();
    assert!(refused.contains("GRANT CREATE ON DATABASE \"Not mine\" TO mapper"), "{refused}");
}

/// The files are read when the program is built, and a new one does not start a build by itself.
#[test]
fn every_migration_file_is_built_in() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("shardmap-migrations");
    let files = std::fs::read_dir(directory).expect("the directory").count();
    assert_eq!(migrations().iter().count(), files);
}

#[tokio::test]
async fn a_map_of_a_later_version_is_left_alone() {
    let cluster = map_cluster().await;
    connect_map(&cluster).await.close().await;
    let client = cluster.connect_map().await;
    client
        .batch_execute(
            "INSERT INTO shardgate_map._sqlx_migrations (version, description, success, checksum, execution_time)
             VALUES (9999, 'from the future', true, '', 0)",
        )
        .await
        .expect("pretend");
    let outcome = ShardMap::connect(options(&cluster)).await.map(drop);
    assert!(matches!(outcome, Err(StoreError::OtherVersion(_))), "{outcome:?}");
}

#[tokio::test]
async fn without_the_schema_and_without_leave_to_make_it_the_error_says_what_to_do() {
    let cluster = map_cluster().await;
    let outcome = ShardMap::connect(shardgate::shardmap::MapOptions { migrate: false, ..options(&cluster) }).await;
    let error = super::refusal(outcome);
    assert_eq!(error.code.as_str(), "57P03");
    assert!(error.hint.is_some_and(|hint| hint.contains("shardgate init")));
}
