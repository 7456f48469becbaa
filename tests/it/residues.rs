//! What each shard keeps of the rows that lie on it and are not owned by it, and who may ask for it.

use std::time::{Duration, Instant};

use crate::sessions::Stage;
use crate::support::{Proxy, ProxyOptions};

const KEYS: &str = "SELECT concat_ws(' ', shardgate.residue_hashes(5), shardgate.residue_keys(5)::text, shardgate.residue_ranges(5)::int8multirange)";

#[tokio::test]
async fn each_shard_says_which_rows_it_does_not_own() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let direct = stage.cluster.connect_shard(1).await;
    let keys = async || direct.query_one(KEYS, &[]).await.expect("a row").get::<_, String>(0);
    assert_eq!(keys().await, "{} {} {}");
    // Rows of two moves, and of another group.
    let rows = "INSERT INTO shardgate.residue VALUES (5, 1, '{[1,3)}', '{a,\"b c\"}', '{\"[1,4)\"}'),
                    (5, 2, '{[2,9), [20,30)}', '{d}', '{\"[10,12)\",\"[3,6)\"}'), (6, 1, '{(,)}', '{z}', '{\"(,)\"}')";
    direct.batch_execute(rows).await.expect("inserted");
    assert_eq!(keys().await, "{[1,9),[20,30)} {a,\"b c\",d} {[1,6),[10,12)}");
    // A user's own functions and operators first in the path change nothing, and every user may ask; the table is not theirs.
    let theirs = "CREATE ROLE residue_reader; CREATE SCHEMA theirs; GRANT USAGE ON SCHEMA theirs TO PUBLIC;
        CREATE FUNCTION theirs.no(int, int) RETURNS bool LANGUAGE sql AS 'SELECT false';
        CREATE OPERATOR theirs.= (LEFTARG = int, RIGHTARG = int, FUNCTION = theirs.no);
        SET search_path = theirs, pg_catalog, public; SET ROLE residue_reader";
    direct.batch_execute(theirs).await.expect("set");
    assert_eq!(keys().await, "{[1,9),[20,30)} {a,\"b c\",d} {[1,6),[10,12)}");
    let refused = direct.query("SELECT FROM shardgate.residue", &[]).await.expect_err("not theirs");
    assert_eq!(refused.code().map(tokio_postgres::error::SqlState::code), Some("42501"));
    direct.batch_execute("RESET ROLE; DROP SCHEMA theirs CASCADE; DROP ROLE residue_reader").await.expect("dropped");
    stage.assert_log_is_clean();
}

/// By a proxy of this version that starts.
#[tokio::test]
async fn a_shard_of_an_earlier_version_gets_what_it_lacks() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let direct = stage.cluster.connect_shard(1).await;
    let earlier = "DROP FUNCTION shardgate.residue_hashes(int), shardgate.residue_keys(int), shardgate.residue_ranges(int);
                   DROP TABLE shardgate.residue";
    direct.batch_execute(earlier).await.expect("as it was");
    let _second = Proxy::start(&stage.cluster, ProxyOptions::default());
    let deadline = Instant::now() + Duration::from_secs(20);
    while direct.query_one(KEYS, &[]).await.is_err() {
        assert!(Instant::now() < deadline, "the shard is complete");
        tokio::task::yield_now().await;
    }
    assert!(direct.query_opt("SELECT FROM shardgate.residue", &[]).await.expect("the table").is_none());
}
