//! Statements with more literals, rows and parameters than 16 bits count, as dumps and bulk inserts send them.

use super::stage::{Stage, succeed};
use crate::support::ProxyOptions;

#[tokio::test]
async fn more_literals_than_16_bits_count_are_read_like_few() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    for statement in [
        "CREATE TABLE many (id bigint PRIMARY KEY, v text)",
        "SELECT shardgate.distribute_table('many', 'id')",
        "CREATE TABLE numbered (id bigserial, k bigint, PRIMARY KEY (k, id))",
        "SELECT shardgate.distribute_table('numbered', 'k')",
    ] {
        succeed(&mut client, statement).await;
    }
    let rows: Vec<String> = (1..=70_000).map(|id| format!("({id},'v{id}')")).collect();
    let insert = format!("INSERT INTO many VALUES {}", rows.join(","));
    assert_eq!(client.ask(&insert).await, "C(INSERT 0 70000) Z(I)");
    client.query("DELETE FROM many");
    client.transcript().await;
    client.unnamed(&insert, &[]).sync();
    assert_eq!(client.transcript().await, "1 2 C(INSERT 0 70000) Z(I)");
    assert_eq!(client.row("SELECT count(*), min(id), max(id), sum(length(v)) FROM many").await, ["70000", "1", "70000", "408894"]);
    // Each is on the shard of its key.
    for id in [1, 32_768, 65_536, 65_537, 70_000] {
        assert_eq!(client.value(&format!("SELECT v FROM many WHERE id = {id}")).await, format!("v{id}"));
    }
    let numbered: Vec<String> = (1..=70_000).map(|id| format!("({id})")).collect();
    let insert = format!("INSERT INTO numbered (k) VALUES {}", numbered.join(","));
    assert_eq!(client.ask(&insert).await, "C(INSERT 0 70000) Z(I)");
    assert_eq!(client.value("SELECT count(DISTINCT id) FROM numbered").await, "70000");

    // Behind as many in a list, a condition on the key and a limit are those of the text.
    let list: Vec<String> = (1..=70_000).map(|n| format!("'w{n}'")).collect();
    let list = list.join(",");
    assert_eq!(
        client.ask(&format!("SELECT v FROM many WHERE v NOT IN ({list}) AND id = 70000")).await,
        "T(v) D(v70000) C(SELECT 1) Z(I)"
    );
    assert_eq!(
        client.ask(&format!("SELECT id FROM many WHERE v NOT IN ({list}) ORDER BY id LIMIT 2 OFFSET 1")).await,
        "T(id) D(2) D(3) C(SELECT 2) Z(I)"
    );

    // As many parameters as the protocol has.
    let places: Vec<String> = (1..=65_535).map(|n| format!("${n}")).collect();
    let values: Vec<String> = (1..=65_535).map(|n| n.to_string()).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    client.unnamed(&format!("SELECT count(*) FROM many WHERE id IN ({})", places.join(",")), &values).sync();
    assert_eq!(client.transcript().await, "1 2 D(65535) C(SELECT 1) Z(I)");
    stage.assert_log_is_clean();
}
