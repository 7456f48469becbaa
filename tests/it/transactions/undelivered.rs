//! Words that do not arrive in a commit: COMMIT PREPARED to a shard that is away, the answer of the one that decides, a PREPARE that
//! lands when all is over. What the client hears, and what is there in the end.

use std::time::{Duration, Instant};

use super::Ledger;
use super::kills::{Points, Told, commit, found_now, uuid, write};
use super::leftover::Leftover;
use crate::sessions::Stage;
use crate::support::{Cluster, Frozen, Message, Proxy, ProxyOptions, WireClient};

const PATIENCE: Duration = Duration::from_secs(15);

fn options(points: &Points, commit_timeout_ms: &str) -> ProxyOptions {
    let settings = vec![("cross_shard.commit_timeout_ms", commit_timeout_ms.to_owned())];
    ProxyOptions { settings, ..points.options() }
}

/// COMMIT, up to ReadyForQuery: notices and errors too.
async fn commit_told(client: &mut WireClient) -> Vec<Message> {
    client.query("COMMIT");
    client.flush().await;
    let mut told = Vec::new();
    while let Some(message) = client.next_within(Duration::from_secs(30)).await {
        let is_last = message.tag == b'Z';
        told.push(message);
        if is_last {
            break;
        }
    }
    told
}

fn described(told: &[Message]) -> String {
    told.iter().map(Message::describe).collect::<Vec<_>>().join(" ")
}

/// The transaction, by its participant's gid on the shard.
async fn transaction_on(stage: &Stage, shard: usize) -> String {
    let sql = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND gid LIKE 'sg:%'";
    let gid: String = stage.cluster.connect_shard(shard).await.query_one(sql, &[]).await.expect("one is prepared").get(0);
    gid.rsplit_once(':').expect("a participant's number").0.to_owned()
}

/// Committed, with a warning; and nobody who asks when the shard is back reads less than that, by whatever proxy. Rounds of
/// recovery are held, so that only what happens before a shard is used again can do it.
#[tokio::test]
async fn what_could_not_be_delivered_is_a_warning_and_is_read_when_the_shard_is_back() {
    let (points, other_points) = (Points::new(), Points::new());
    // Also for the shards that are there to promise and to commit, on a machine that is busy.
    let mut stage = Stage::on(Cluster::separate_servers(3).await, options(&points, "5000")).await;
    Ledger::create(&stage).await;
    let other = Proxy::start(&stage.cluster, other_points.options());
    for (number, is_other) in [true, false].into_iter().enumerate() {
        let id = uuid(number);
        let mut reader = if is_other { WireClient::connect(other.address()).await } else { stage.client().await };
        let read = format!("SELECT count(*) FROM ledger WHERE account = {} AND id = '{id}'", stage.key(1, 0));
        assert_eq!(reader.value(&read).await, "0");
        for points in [&points, &other_points] {
            points.arm("before_recovery_round", "hold");
            points.until_reached("before_recovery_round").await;
        }
        let mut client = stage.client().await;
        write(&mut client, &stage, &id).await;
        points.arm("before_finish.1", "hold");
        let committing = tokio::spawn(async move { commit_told(&mut client).await });
        points.until_reached("before_finish.1").await;
        let transaction = transaction_on(&stage, 1).await;
        stage.cluster.shard_server_mut(1).kill().expect("killed");
        points.release("before_finish.1");
        let told = committing.await.expect("no panic");
        let wanted = format!(
            "N(01000 transaction \"{transaction}\" is committed, and shard \"shard1\" will show it when it is back) C(COMMIT) Z(I)"
        );
        assert_eq!(described(&told), wanted);
        stage.cluster.shard_server_mut(1).start_again().expect("started again");
        assert_eq!(transaction_on(&stage, 1).await, transaction, "nobody has finished it yet");
        assert_eq!(until_answered(&mut reader, &read).await, "1", "by another proxy: {is_other}");
        for points in [&points, &other_points] {
            points.release("before_recovery_round");
        }
        Ledger::until_nothing_is_prepared(&stage, PATIENCE).await;
    }
}

/// A shard that was away may still be believed to be; what it says is right the first time.
async fn until_answered(client: &mut WireClient, sql: &str) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        client.query(sql);
        if let Some(row) = client.answers().await.iter().find(|message| message.tag == b'D') {
            return row.columns().swap_remove(0).expect("a count");
        }
        assert!(Instant::now() < deadline, "the shard does not answer");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The deciding shard does not come back in time: the client is told which transaction to look for.
#[tokio::test]
async fn an_unknown_outcome_names_its_transaction_and_is_settled_later() {
    let points = Points::new();
    let mut stage = Stage::on(Cluster::separate_servers(3).await, options(&points, "1500")).await;
    Ledger::create(&stage).await;
    nobody_waits_for_the_attempts_of_others(&stage, &points).await;
    let mut client = stage.client().await;
    write(&mut client, &stage, &uuid(1)).await;
    points.arm("before_decision", "hold");
    let committing = tokio::spawn(async move { commit_told(&mut client).await });
    points.until_reached("before_decision").await;
    let transaction = transaction_on(&stage, 2).await;
    stage.cluster.shard_server_mut(0).kill().expect("killed");
    points.release("before_decision");
    let told = described(&committing.await.expect("no panic"));
    assert_eq!(told, format!("E(08007 the outcome of COMMIT is unknown for transaction \"{transaction}\") Z(I)"));
    assert_eq!(transaction_on(&stage, 1).await, transaction, "nobody guesses");
    assert_eq!(transaction_on(&stage, 2).await, transaction);
    stage.cluster.shard_server_mut(0).start_again().expect("started again");
    Ledger::until_nothing_is_prepared(&stage, PATIENCE).await;
    assert_eq!(found_now(&stage, &uuid(1)).await, 0, "it had not been decided");
}

/// The deciding shard's machine stands still: each attempt on it takes seconds, and many commits wait for one.
async fn nobody_waits_for_the_attempts_of_others(stage: &Stage, points: &Points) {
    let mut clients = Vec::new();
    for number in 10..16 {
        let mut client = stage.client().await;
        write(&mut client, stage, &uuid(number)).await;
        clients.push(client);
    }
    points.arm("before_decision", "hold");
    let committing: Vec<_> =
        clients.into_iter().map(|mut client| tokio::spawn(async move { commit_told(&mut client).await })).collect();
    let both = "SELECT FROM pg_prepared_xacts WHERE database = current_database()";
    let participants = [stage.cluster.connect_shard(1).await, stage.cluster.connect_shard(2).await];
    for participant in &participants {
        while participant.query(both, &[]).await.expect("prepared").len() < committing.len() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let frozen = Frozen::server(stage.cluster.shard_server(0));
    points.release("before_decision");
    let released_at = Instant::now();
    for told in committing {
        let told = described(&told.await.expect("no panic"));
        assert!(told.starts_with("E(08007 the outcome of COMMIT is unknown") && told.ends_with("Z(I)"), "{told}");
    }
    assert!(released_at.elapsed() < Duration::from_secs(6), "{:?} where 3 s are allowed", released_at.elapsed());
    frozen.thaw();
    Ledger::until_nothing_is_prepared(stage, PATIENCE).await;
    for number in 10..16 {
        let found = found_now(stage, &uuid(number)).await;
        assert!(found == 0 || found == 3, "{found} of 3");
    }
}

/// A participant's part is gone while the transaction is committed: never a success, and somebody must look. Where it has been
/// committed by somebody else its row says so.
#[tokio::test]
async fn a_part_that_is_gone_is_a_success_only_if_it_was_applied() {
    let points = Points::new();
    let stage = Stage::start(3, points.options()).await;
    Ledger::create(&stage).await;
    for (number, (end, found)) in [("COMMIT", 3), ("ROLLBACK", 2)].into_iter().enumerate() {
        let mut client = stage.client().await;
        write(&mut client, &stage, &uuid(number)).await;
        points.arm("before_finish.1", "hold");
        let committing = tokio::spawn(async move { commit_told(&mut client).await });
        points.until_reached("before_finish.1").await;
        let transaction = transaction_on(&stage, 1).await;
        let direct = stage.cluster.connect_shard(1).await;
        direct.batch_execute(&format!("{end} PREPARED '{transaction}:1'")).await.expect("finished by hand");
        points.release("before_finish.1");
        let told = committing.await.expect("no panic");
        match found {
            3 => {
                assert_eq!(described(&told), "C(COMMIT) Z(I)");
                stage.assert_log_is_clean();
            }
            _ => {
                assert_eq!(described(&told), "E(08007 shard \"shard1\" has lost its part of a committed transaction) Z(I)");
                assert!(told[0].field(b'D').contains(&transaction), "{}", told[0].field(b'D'));
                assert!(alarms(&stage, &transaction) > 0, "{}", stage.proxy.log());
            }
        }
        assert_eq!(found_now(&stage, &uuid(number)).await, found);
    }
    a_session_that_ends_hears_first_what_it_has_committed(&stage, &points).await;
}

/// What is pinned to a connection ends the session with it: not before the client has heard what has become of its transaction.
async fn a_session_that_ends_hears_first_what_it_has_committed(stage: &Stage, points: &Points) {
    let direct = stage.cluster.connect_shard(1).await;
    let cases = [("before_finish.1", 3, "C(COMMIT) Z(I)"), ("before_commit", 1, "E(08007 the outcome of COMMIT is unknown) Z(I)")];
    for (number, (point, shards, wanted)) in cases.into_iter().enumerate() {
        let mut client = stage.client().await;
        for sql in ["SET shardgate.shard = 'shard1'", "SELECT pg_advisory_lock(4711)", "RESET shardgate.shard"] {
            assert!(client.ask(sql).await.ends_with("Z(I)"), "{sql}");
        }
        let id = uuid(20 + number);
        match shards {
            3 => write(&mut client, stage, &id).await,
            _ => {
                let insert = format!("BEGIN; INSERT INTO ledger VALUES ('{id}', {}, 1)", stage.key(1, 0));
                assert_eq!(client.ask(&insert).await, "C(BEGIN) C(INSERT 0 1) Z(T)");
            }
        }
        points.arm(point, "hold");
        let committing = tokio::spawn(async move { (commit_told(&mut client).await, client) });
        points.until_reached(point).await;
        let end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND granted";
        assert!(direct.query_one(end, &[]).await.expect("a backend").get::<_, bool>(0));
        points.release(point);
        let (told, mut client) = committing.await.expect("no panic");
        assert_eq!(described(&told), wanted);
        let rest: Vec<String> = client.rest().await.iter().map(Message::describe).collect();
        assert_eq!(rest, ["E(08006 connection to shard \"shard1\" was lost)"]);
        Ledger::until_nothing_is_prepared(stage, PATIENCE).await;
        assert_eq!(found_now(stage, &id).await, if shards == 3 { 3 } else { 0 });
    }
}

/// The same in recovery's hands.
#[tokio::test]
async fn recovery_raises_an_alarm_over_a_part_that_is_gone() {
    let points = Points::new();
    let stage = Stage::start(3, points.options()).await;
    Ledger::create(&stage).await;
    for (number, (end, is_alarm)) in [("COMMIT", false), ("ROLLBACK", true)].into_iter().enumerate() {
        points.arm("before_recovery_finish", "hold");
        let left = Leftover::make(&stage, number, true).await;
        points.until_reached("before_recovery_finish").await;
        let direct = stage.cluster.connect_shard(1).await;
        direct.batch_execute(&format!("{end} PREPARED '{}:1'", left.id)).await.expect("finished by hand");
        points.release("before_recovery_finish");
        left.assert_found(&stage, if is_alarm { 2 } else { 3 }, end).await;
        assert_eq!(alarms(&stage, left.id.as_str()), usize::from(is_alarm), "{}", stage.proxy.log());
    }
}

/// Errors in the log about this transaction.
fn alarms(stage: &Stage, transaction: &str) -> usize {
    let lost = "a shard has lost its part of a committed transaction";
    stage.proxy.log().lines().filter(|line| line.contains("ERROR") && line.contains(lost) && line.contains(transaction)).count()
}

/// As a server does with each new transaction id when a wraparound is near. It says nothing of the commit.
async fn warn_with_each_decision(stage: &Stage) {
    let sql = "CREATE FUNCTION shardgate.near_wraparound() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 RAISE WARNING 'database must be vacuumed within 1000000 transactions'; RETURN NEW; END $$; \
               CREATE TRIGGER near_wraparound BEFORE INSERT OR UPDATE ON shardgate.decisions \
                 FOR EACH ROW EXECUTE FUNCTION shardgate.near_wraparound()";
    stage.cluster.connect_shard(0).await.batch_execute(sql).await.expect("a trigger");
}

/// Nothing is there to be rolled back when the commit is given up; then the PREPARE comes through.
#[tokio::test]
async fn a_prepare_that_lands_late_is_rolled_back() {
    let points = Points::new();
    let stage = Stage::start(3, options(&points, "500")).await;
    Ledger::create(&stage).await;
    let mut client = stage.client().await;
    write(&mut client, &stage, &uuid(1)).await;
    let shard = stage.cluster.connect_shard(2).await;
    warn_with_each_decision(&stage).await;
    let sql = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'";
    let frozen = Frozen::process(shard.query_one(sql, &[]).await.expect("one transaction is open").get(0));
    assert_eq!(commit(&mut client).await, Told::Failed("40001".to_owned()));
    Ledger::until_nothing_is_prepared(&stage, PATIENCE).await;
    points.arm("before_recovery_finish", "hold");
    drop(frozen);
    points.until_reached("before_recovery_finish").await;
    let transaction = transaction_on(&stage, 2).await;
    points.release("before_recovery_finish");
    Ledger::until_nothing_is_prepared(&stage, PATIENCE).await;
    assert_eq!(found_now(&stage, &uuid(1)).await, 0);
    let decision = "SELECT outcome FROM shardgate.decisions WHERE gtx = $1";
    let row = stage.cluster.connect_shard(0).await.query_one(decision, &[&transaction]).await.expect("a decision");
    assert_eq!(row.get::<_, String>(0), "aborted");
    stage.assert_log_is_clean();
}
