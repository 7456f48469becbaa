//! What is brought to one place where text sorts otherwise than by its bytes: the first rows of each shard, and no more.

use std::net::{Ipv4Addr, SocketAddr};

use super::stage::{Stage, succeed};
use crate::support::{Cluster, ProxyOptions, Text, WireClient};

/// Titles that sort otherwise than by their bytes, too many of them to be gathered or kept.
const ROWS: i32 = 3000;
const TITLES: &str =
    "(ARRAY['Zebra', 'äpfel', 'apple', 'Éclair', 'eclair', 'öl', 'Oel', 'zoo', '_'])[1 + i % 9] || repeat(' long', 9) || i % 50";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_rows_by_text_are_those_of_each_shard_put_in_order() {
    let settings = vec![("cross_shard.gather_bytes_max", "65536".to_owned()), ("cross_shard.merge_bytes_max", "65536".to_owned())];
    let cluster = Cluster::start_sorting(2, Text::Linguistic).await;
    let stage = Stage::on(cluster, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    stage.cluster.create_database("ordered").await;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, stage.cluster.map_server().port()));
    let mut plain = WireClient::connect_with(address, &[("user", "postgres"), ("database", "ordered")]).await;
    let mut client = stage.client().await;
    for side in [&mut plain, &mut client] {
        succeed(side, "CREATE TABLE books (id int PRIMARY KEY, title text, n int)").await;
    }
    succeed(&mut client, "SELECT shardgate.distribute_table('books', 'id')").await;
    for first in (1..ROWS).step_by(250) {
        let rows = format!("INSERT INTO books SELECT i, {TITLES}, i % 7 FROM generate_series({first}, {first} + 249) i");
        succeed(&mut plain, &rows).await;
        succeed(&mut client, &rows).await;
    }
    only_first_rows(&mut client, &mut plain).await;
    explained(&mut client).await;
    stage.assert_log_is_clean();
}

/// A table that is too large to be brought together, or kept, is not.
async fn only_first_rows(client: &mut WireClient, plain: &mut WireClient) {
    for sql in ["SELECT id FROM books ORDER BY title, id", "SELECT id FROM books ORDER BY title, id LIMIT 2900"] {
        assert!(client.ask(sql).await.contains("E(53400"), "{sql}");
    }
    for sql in [
        "SELECT id, title FROM books ORDER BY title, id LIMIT 20",
        "SELECT id FROM books ORDER BY title DESC, n, id LIMIT 20 OFFSET 130",
        "SELECT title FROM books ORDER BY 1 FETCH FIRST 3 ROWS WITH TIES",
        "SELECT DISTINCT title FROM books ORDER BY title LIMIT 20 OFFSET 3",
        "SELECT DISTINCT ON (title) title, id FROM books ORDER BY title, id DESC LIMIT 12",
        "SELECT DISTINCT ON (n) n, title, id FROM books ORDER BY n, title, id",
        "SELECT id FROM books ORDER BY lower(title), id LIMIT 5",
        "SELECT id FROM books ORDER BY title COLLATE \"sv-x-icu\", id LIMIT 5",
        "SELECT min(title), max(title), count(*) FROM books",
        "SELECT n, max(title) FROM books GROUP BY n ORDER BY max(title), n",
        "SELECT title FROM books UNION SELECT upper(title) FROM books ORDER BY title LIMIT 7",
    ] {
        assert_eq!(client.ask(sql).await, plain.ask(sql).await, "{sql}");
    }
    for side in [&mut *client, &mut *plain] {
        side.parse("page", "SELECT id, title FROM books WHERE n < $1 ORDER BY title, id LIMIT $2 OFFSET $3");
        side.bind("", "page", &["6", "9", "40"]).execute("", 5).execute("", 0).sync();
    }
    assert_eq!(client.transcript().await, plain.transcript().await);
    for sql in [
        "BEGIN",
        "DECLARE c CURSOR FOR SELECT id, title FROM books ORDER BY title, id LIMIT 30",
        "FETCH 4 FROM c",
        "FETCH ALL FROM c",
        "COMMIT",
    ] {
        assert_eq!(client.ask(sql).await, plain.ask(sql).await, "{sql}");
    }
}

async fn explained(client: &mut WireClient) {
    let sorted = "as PostgreSQL sorts text COLLATE pg_catalog.\"default\"";
    for (sql, lines) in [
        (
            "SELECT id FROM books ORDER BY title DESC LIMIT 20 OFFSET 5",
            [
                "Route: scatter",
                "On shard1: SELECT id, \"title\" AS shardgate_hidden FROM books ORDER BY title DESC LIMIT 25 OFFSET 0",
                &format!("Merge: by column 2 descending ({sorted}), limit literal 1, offset literal 2"),
            ],
        ),
        (
            "SELECT max(title) FROM books",
            [
                "Route: scatter",
                "On shard0: SELECT max(title) FROM books",
                &format!("Merge: one group of all rows, greatest of column 1 ({sorted})"),
            ],
        ),
        // All rows are wanted: they go to PostgreSQL at once.
        (
            "SELECT id FROM books ORDER BY title",
            ["Route: gather", "Shards: shard0, shard1", "Merge: PostgreSQL on shard0: SELECT id FROM"],
        ),
        ("SELECT id FROM books ORDER BY upper(title)", ["Route: gather", "Shards: shard0, shard1", "Merge: PostgreSQL on shard0"]),
    ] {
        let told = client.ask(&format!("EXPLAIN (SHARDS) {sql}")).await;
        for line in lines {
            assert!(told.contains(line), "{sql}: no {line} in {told}");
        }
    }
}
