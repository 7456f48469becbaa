//! A shard refuses a row whose partition moves, or has moved: a statement that is all of its transaction is run again by a newer map,
//! and any other one gets the refusal.

use super::by_hand::Moving;
use crate::sessions::succeed;
use crate::support::WireClient;

const REFUSED: &str = "E(40001 the partition of this key is being moved)";

/// Each to another owner: the rows of the set have this balance there. `{b}`: in the answer.
const ALONE: &[(&str, &str)] = &[
    ("UPDATE accounts SET owner = 'x' WHERE id = {k} RETURNING balance", "D({b})"),
    ("UPDATE accounts SET owner = 'x' WHERE id IN ({k}, {z}) AND balance >= 100", "C(UPDATE 2)"),
    ("UPDATE accounts SET owner = 'x'", "C(UPDATE 90)"),
    ("DELETE FROM accounts WHERE id = {q} RETURNING balance", "D({b})"),
    ("INSERT INTO accounts VALUES ({q}, 'x', {b}), ({z}, 'x', 1) ON CONFLICT (id) DO UPDATE SET owner = 'y'", "C(INSERT 0 2)"),
    ("UPDATE accounts SET owner = (SELECT max(a.balance) FROM accounts a) WHERE id = {k} RETURNING owner", "D({b})"),
    ("UPDATE accounts SET id = 200000 - id WHERE id IN ({m}, {far})", "C(UPDATE 1)"),
    ("WITH u AS (UPDATE accounts SET owner = 'x' WHERE id = {k} RETURNING balance) SELECT * FROM u", "D({b})"),
    ("EXECUTE by_key({k})", "D({b})"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_a_gate_refuses_is_run_again_by_a_newer_map() {
    let moving = Moving::start(2, &[]).await;
    moving.install_gates().await;
    let mut client = moving.client().await;
    succeed(&mut client, "GRANT ALL ON accounts TO reader").await;
    for (place, (text, answer)) in ALONE.iter().enumerate() {
        for is_extended in [false, true] {
            let balance = 1000 + i32::try_from(place).expect("few");
            let far = 200_000 - moving.id(0, 2);
            let text = moving.fill_in(text).replace("{b}", &balance.to_string()).replace("{far}", &far.to_string());
            let mut client = moving.reader().await;
            if text.starts_with("EXECUTE") {
                let prepare = "PREPARE by_key(bigint) AS UPDATE accounts SET owner = 'x' WHERE id = $1 RETURNING balance";
                succeed(&mut client, prepare).await;
            }
            moving.close_gate().await;
            match is_extended {
                false => client.query(&text),
                true => client.parse("named", &text).bind("", "named", &[]).describe(b'P', "").execute("", 0).sync(),
            };
            let told = after_the_switch(&moving, &mut client, balance).await;
            let begins = if is_extended { "1 2 " } else { "" };
            let answer = answer.replace("{b}", &balance.to_string());
            assert!(told.starts_with(begins) && told.contains(&answer) && !told.contains("E("), "{text}: {told}");
            assert_eq!(told.matches("C(").count(), 1, "{told}");
            let again = "INSERT INTO accounts VALUES ({q}, 'again', 100) ON CONFLICT DO NOTHING";
            moving.run(&mut client, &[again]).await;
        }
    }
    // The short way of a prepared statement.
    let mut client = moving.reader().await;
    moving.open_gate(moving.owner()).await;
    let update = moving.fill_in("UPDATE accounts SET owner = 'x' WHERE id = {k} RETURNING balance");
    for _ in 0..2 {
        let told = client.parse("", &update).bind("", "", &[]).execute("", 0).sync().transcript().await;
        assert!(told.contains("D("), "{told}");
    }
    client.parse("p", &update).sync().transcript().await;
    for _ in 0..2 {
        assert!(client.bind("", "p", &[]).execute("", 0).sync().transcript().await.contains("D("));
    }
    moving.close_gate().await;
    client.bind("", "p", &[]).execute("", 0).sync();
    assert_eq!(after_the_switch(&moving, &mut client, 2000).await, "2 D(2000) C(UPDATE 1) Z(I)");
    moving.stage.assert_log_is_clean();
}

/// The statement leaves and is refused, and the set changes its owner.
async fn after_the_switch(moving: &Moving, client: &mut WireClient, balance: i32) -> String {
    let before = moving.refusals().await;
    client.flush().await;
    moving.until_refused(before).await;
    moving.switch(balance).await;
    let told = client.transcript().await;
    moving.until_online().await;
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_of_a_transaction_is_not_run_again() {
    let moving = Moving::start(2, &[]).await;
    moving.install_gates().await;
    moving.close_gate().await;
    let update = moving.fill_in("UPDATE accounts SET owner = 'x' WHERE id = {k}");
    let other = moving.fill_in("UPDATE accounts SET owner = 'other' WHERE id = {o}");
    let mut client = moving.client().await;
    succeed(&mut client, "BEGIN").await;
    assert_eq!(client.ask(&update).await, format!("{REFUSED} Z(E)"));
    succeed(&mut client, "ROLLBACK").await;
    assert_eq!(client.ask(&format!("{other}; {update}")).await, format!("C(UPDATE 1) {REFUSED} Z(I)"));
    let told = client.unnamed(&other, &[]).unnamed(&update, &[]).sync().transcript().await;
    assert!(told.ends_with(&format!("{REFUSED} Z(I)")), "{told}");
    let owner = moving.fill_in("SELECT count(*) FROM accounts WHERE owner IN ('x', 'other')");
    assert_eq!(client.value(&owner).await, "0");
    // Nor is one for which no newer map comes.
    succeed(&mut client, "SET statement_timeout = '50ms'").await;
    assert_eq!(client.ask(&update).await, format!("{REFUSED} Z(I)"));
    let told = client.unnamed(&update, &[]).sync().transcript().await;
    assert_eq!(told, format!("1 2 {REFUSED} Z(I)"));
    moving.stage.assert_log_is_clean();
}
