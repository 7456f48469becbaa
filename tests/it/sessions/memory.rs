//! Bounds in bytes: what the proxy keeps for one session has a limit, and the error names the setting.

use super::stage::{Stage, succeed};
use crate::support::ProxyOptions;

#[tokio::test]
async fn what_is_kept_for_a_session_is_bounded_in_bytes() {
    let settings = [("cross_shard.row_bytes_max", "65536"), ("cross_shard.prepared_bytes_max", "20000")];
    let settings = settings.map(|(name, value)| (name, value.to_owned())).into();
    let stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    long_rows(&stage).await;
    rows_of_returning(&stage).await;
    prepared_statements(&stage).await;
    portals(&stage).await;
    without_sync(&stage).await;
    stage.assert_log_is_clean();
}

/// A row over several shards is kept as a whole, one of a single shard is passed on.
async fn long_rows(stage: &Stage) {
    let mut client = stage.client().await;
    let of_one = format!("SELECT repeat('x', 200000) FROM accounts WHERE id = {}", stage.key(1, 0));
    assert_eq!(client.value(&of_one).await.len(), 200_000);
    for text in [
        "SELECT repeat('x', 200000) FROM accounts",
        "SELECT repeat('x', 200000) FROM accounts ORDER BY id",
        "UPDATE accounts SET balance = 100 RETURNING repeat('x', 200000)",
    ] {
        let told = client.ask(text).await;
        assert!(told.starts_with("E(53400") || told.contains(" E(53400"), "{text}: {}", &told[..told.len().min(300)]);
        assert!(told.contains("cross_shard.row_bytes_max"), "{text}");
        assert_eq!(client.value(&of_one).await.len(), 200_000, "the session goes on");
    }
}

async fn rows_of_returning(stage: &Stage) {
    let mut client = stage.client().await;
    let insert = |bytes: usize| {
        let rows: Vec<String> = (1_000..1_040).map(|id| format!("({id}, repeat('x', {bytes}), 1)")).collect();
        format!("INSERT INTO accounts VALUES {} RETURNING owner", rows.join(", "))
    };
    client.query(&insert(10_000));
    let answers = client.answers().await;
    let error = answers.iter().find(|message| message.tag == b'E').expect("refused");
    assert_eq!(error.field(b'C'), "53400");
    assert!(error.field(b'D').contains("cross_shard.row_bytes_max"), "{}", error.field(b'D'));
    assert_eq!(client.value("SELECT count(*) FROM accounts WHERE id >= 1000").await, "0");
    succeed(&mut client, &insert(1_000)).await;
    succeed(&mut client, "DELETE FROM accounts WHERE id >= 1000").await;
}

async fn prepared_statements(stage: &Stage) {
    let mut client = stage.client().await;
    let text = |number: usize| format!("SELECT {number}, owner /* {} */ FROM accounts WHERE id = $1", "x".repeat(8_000));
    for number in 0..2 {
        client.parse(&format!("p{number}"), &text(number)).sync();
        assert_eq!(client.transcript().await, "1 Z(I)");
    }
    let refused = "E(53400 prepared statements and portals of more than 20000 bytes in one session)";
    client.parse("p2", &text(2)).sync();
    assert_eq!(client.transcript().await, format!("{refused} Z(I)"));
    assert_eq!(client.ask(&format!("PREPARE p2 AS {}", text(2).replace("$1", "1"))).await, format!("{refused} Z(I)"));
    // What is closed makes room, by either way.
    client.close(b'S', "p0").parse("p2", &text(2)).sync();
    assert_eq!(client.transcript().await, "3 1 Z(I)");
    succeed(&mut client, "DEALLOCATE p2").await;
    client.parse("p3", &text(3)).bind("", "p3", &["1"]).execute("", 0).sync();
    assert!(!client.transcript().await.contains("E("));
    // The unnamed one is replaced each time.
    succeed(&mut client, "DEALLOCATE ALL").await;
    for number in 0..5 {
        client.unnamed(&text(number), &["1"]).sync();
        assert!(!client.transcript().await.contains("E("), "{number}");
    }
}

async fn portals(stage: &Stage) {
    let mut client = stage.client().await;
    client.query("BEGIN");
    client.transcript().await;
    client.parse("p", "SELECT id FROM accounts WHERE owner <> $1");
    let value = "x".repeat(8_000);
    client.bind("a", "p", &[&value]).bind("b", "p", &[&value]).bind("c", "p", &[&value]).sync();
    let told = client.transcript().await;
    assert!(told.contains("E(53400 prepared statements and portals of more than 20000 bytes"), "{told}");
    succeed(&mut client, "ROLLBACK").await;
    // Those that are on a shard take room here too.
    succeed(&mut client, "BEGIN").await;
    client.parse("one", &format!("SELECT id FROM accounts WHERE id = {}", stage.key(1, 0)));
    for number in 0..1_000 {
        client.bind(&format!("p{number}"), "one", &[]);
    }
    client.sync();
    let told = client.transcript().await;
    assert!(
        told.starts_with("1 2 2 ") && told.contains("E(53400 prepared statements and portals of more than 20000 bytes"),
        "{told}"
    );
    succeed(&mut client, "ROLLBACK").await;
}

/// What a client asks for is answered long before Sync, as by PostgreSQL: nothing waits that has no bound.
async fn without_sync(stage: &Stage) {
    let query = format!("SELECT g FROM accounts, generate_series(1, 3) g WHERE id = {}", stage.key(1, 0));
    let kinds = [(b'E', "1 2 D(1) s D(2) s"), (b'D', "1 2 T(g) T(g)"), (b'C', "1 2 3 3"), (b'P', "1 2 1 1")];
    for (kind, expected) in kinds {
        let mut client = stage.client().await;
        succeed(&mut client, "BEGIN").await;
        client.parse("p", &query).bind("a", "p", &[]);
        for _ in 0..20_000 {
            match kind {
                b'E' => client.execute("a", 1),
                b'D' => client.describe(b'P', "a"),
                b'C' => client.close(b'P', "nothing"),
                _ => client.parse("", "SHOW work_mem"),
            };
        }
        assert_eq!(client.some(expected.split(' ').count()).await, expected);
        client.sync();
        assert!(client.transcript().await.ends_with("Z(T)"));
        succeed(&mut client, "ROLLBACK").await;
    }
}
