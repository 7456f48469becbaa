//! Types that users make have other oids on each shard. Values in binary form name types (the elements of an array, the fields
//! of a composite value): what a client sees and sends are the home shard's oids, wherever a row lies.

use bytes::BytesMut;
use std::error::Error;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::stage::{Stage, succeed};
use crate::support::ProxyOptions;

/// A value as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Raw(Vec<u8>);

impl<'a> FromSql<'a> for Raw {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Raw(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl ToSql for Raw {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

const COLUMNS: [&str; 5] = ["moods", "pair", "pairs", "ROW(pair, moods)", "ARRAY[ROW(moods[1], 1)]"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_in_binary_form_name_the_home_shards_types() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    // So that the second shard numbers alike nothing that comes.
    stage.cluster.connect_shard(1).await.batch_execute("CREATE TYPE only_here AS ENUM ('x')").await.expect("a type");
    let mut client = stage.client().await;
    for statement in [
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE TYPE mood_pair AS (a mood, n int, b mood[])",
        "CREATE TABLE people (id bigint PRIMARY KEY, moods mood[], pair mood_pair, pairs mood_pair[])",
        "SELECT shardgate.distribute_table('people', 'id', colocate_with => 'accounts')",
    ] {
        succeed(&mut client, statement).await;
    }
    let rows = "'{ok,NULL,sad}', ROW('ok', 1, '{sad}'), ARRAY[ROW('ok', 1, '{sad}')::mood_pair, NULL]";
    for id in ["{a}", "{z}"] {
        succeed(&mut client, &stage.fill_in(&format!("INSERT INTO people VALUES ({id}, {rows})"))).await;
    }
    let driver = stage.proxy.connect().await;
    let (here, there) = (stage.key(0, 0), stage.key(1, 0));
    let list = COLUMNS.join(", ");
    let one = driver.prepare(&format!("SELECT {list} FROM people WHERE id = $1")).await.expect("prepared");
    let home = driver.query_one(&one, &[&here]).await.expect("a row");
    for _ in 0..3 {
        let other = driver.query_one(&one, &[&there]).await.expect("a row");
        for (index, column) in COLUMNS.iter().enumerate() {
            assert_eq!(other.get::<_, Raw>(index), home.get::<_, Raw>(index), "{column}");
        }
    }
    // The element's type, as the client can look it up.
    let mood: u32 = driver.query_one("SELECT 'mood'::regtype::oid", &[]).await.expect("a row").get(0);
    assert_eq!(home.get::<_, Raw>(0).0.get(8..12), Some(&mood.to_be_bytes()[..]));

    // Over several shards, concatenated and merged.
    for sql in [format!("SELECT {list} FROM people"), format!("SELECT {list} FROM people ORDER BY id DESC LIMIT 9")] {
        let several = driver.query(&sql, &[]).await.expect("rows");
        assert_eq!(several.len(), 2);
        for (row, (index, column)) in several.iter().flat_map(|row| COLUMNS.iter().enumerate().map(move |column| (row, column))) {
            assert_eq!(row.get::<_, Raw>(index), home.get::<_, Raw>(index), "{column}: {sql}");
        }
    }

    // As parameters, on one shard and on both.
    let [moods, pair, pairs] = [0, 1, 2].map(|index| home.get::<_, Raw>(index));
    let same = "moods = $1::mood[] AND pair = $2::mood_pair AND pairs = $3::mood_pair[]";
    for sql in [
        format!("SELECT count(*) FROM people WHERE {same} AND id = $4"),
        format!("SELECT count(*) FROM people WHERE {same} AND id <> $4"),
    ] {
        for id in [here, there] {
            let count: i64 = driver.query_one(&sql, &[&moods, &pair, &pairs, &id]).await.expect("a row").get(0);
            assert_eq!(count, 1, "{sql} {id}");
        }
    }
    let changed = "UPDATE people SET moods = $1, pair = $2, pairs = $3 WHERE id = $4 RETURNING moods";
    let row = driver.query_one(changed, &[&moods, &pair, &pairs, &there]).await.expect("a row");
    assert_eq!(row.get::<_, Raw>(0), moods);

    // Writes on both shards, and what they return.
    let updated = format!("UPDATE people SET moods = $1, pair = $2, pairs = $3 RETURNING {list}");
    let inserted = format!("INSERT INTO people VALUES ($4, $1, $2, $3), ($5, $6, $7, $8) RETURNING {list}");
    let (new_here, new_there) = (stage.key(0, 5), stage.key(1, 5));
    let written = [
        driver.query(&updated, &[&moods, &pair, &pairs]).await.expect("rows"),
        driver.query(&inserted, &[&moods, &pair, &pairs, &new_here, &new_there, &moods, &pair, &pairs]).await.expect("rows"),
    ];
    let fetched = {
        driver.batch_execute("BEGIN").await.expect("begun");
        driver.batch_execute(&format!("DECLARE c CURSOR FOR SELECT {list} FROM people ORDER BY id")).await.expect("declared");
        let rows = driver.query("FETCH 4 FROM c", &[]).await.expect("rows");
        driver.batch_execute("COMMIT").await.expect("committed");
        rows
    };
    assert_eq!([written[0].len(), written[1].len(), fetched.len()], [2, 2, 4]);
    for row in written.iter().flatten().chain(&fetched) {
        for (index, column) in COLUMNS.iter().enumerate() {
            assert_eq!(row.get::<_, Raw>(index), home.get::<_, Raw>(index), "{column}");
        }
    }
    stage.assert_log_is_clean();
}

/// What is left to do over whole groups runs on one shard, and its parameters may be nowhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_that_only_the_last_step_mentions() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    for shard in [1, 2] {
        let here = format!("CREATE TYPE only_on_{shard} AS ENUM ('x')");
        stage.cluster.connect_shard(shard).await.batch_execute(&here).await.expect("a type");
    }
    let mut client = stage.client().await;
    for statement in [
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE DOMAIN positive AS int CHECK (value > 0)",
        "CREATE TYPE mood_pair AS (a mood, n int, b mood[])",
    ] {
        succeed(&mut client, statement).await;
    }
    let driver = stage.proxy.connect().await;
    let columns =
        "'{ok,sad}'::mood[], ROW('ok', 1, '{sad}')::mood_pair, ARRAY[ROW('ok', 1, '{sad}')::mood_pair], 'ok'::mood, 5::positive";
    let row = driver.query_one(&format!("SELECT {columns}"), &[]).await.expect("a row");
    let values: [Raw; 5] = [0, 1, 2, 3, 4].map(|index| row.get(index));
    let (one, other) = (stage.key(1, 0), stage.key(2, 0));
    for condition in ["", &format!(" WHERE id IN ({one}, {other})")] {
        for (name, value) in ["mood[]", "mood_pair", "mood_pair[]", "mood", "positive"].into_iter().zip(&values) {
            let groups = format!(
                "SELECT count(*), $1::{name} FROM accounts{condition} HAVING min(NULL::{name}::text) IS DISTINCT FROM $1::{name}::text"
            );
            let unmentioned = format!("SELECT count(*) FROM accounts{condition} HAVING NULL::{name} IS DISTINCT FROM $1::{name}");
            for sql in [groups, unmentioned] {
                let rows = driver.query(&sql, &[value]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
                assert_eq!(rows.len(), 1, "{sql}");
                assert!(rows[0].len() == 1 || rows[0].get::<_, Raw>(1) == *value, "{sql}");
            }
        }
    }
    // In pieces.
    let mut driver = driver;
    let transaction = driver.transaction().await.expect("begun");
    for sql in [
        "SELECT id FROM accounts WHERE $1::mood_pair IS NOT NULL",
        "SELECT count(*) FROM accounts HAVING min(NULL::text) IS DISTINCT FROM $1::mood_pair::text",
    ] {
        let portal = transaction.bind(sql, &[&values[1]]).await.expect("bound");
        assert!(!transaction.query_portal(&portal, 2).await.unwrap_or_else(|error| panic!("{sql}: {error:?}")).is_empty());
    }
    let locked = "SELECT id FROM accounts WHERE ($1::mood_pair).n = 1 ORDER BY id LIMIT 3 FOR UPDATE";
    assert_eq!(transaction.query(locked, &[&values[1]]).await.expect("rows").len(), 3);
    transaction.rollback().await.expect("rolled back");
    // As text.
    client.unnamed("SELECT count(*) FROM accounts HAVING min(NULL::mood::text) IS DISTINCT FROM $1::mood::text", &["ok"]).sync();
    assert_eq!(client.transcript().await, "1 2 D(90) C(SELECT 1) Z(I)");
    stage.assert_log_is_clean();
}
