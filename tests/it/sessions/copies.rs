//! COPY FROM STDIN over several shards, below the level of SQL: the pieces in which data comes, the binary format, who ends it.
//!
//! A COPY through the proxy leaves the rows that the same bytes leave in one PostgreSQL, and nothing anywhere when it fails.

use std::time::{Duration, Instant};

use bytes::{BufMut, BytesMut};

use super::stage::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

const ALL: &str = "SELECT count(*), sum(id), sum(balance), sum(length(owner)) FROM accounts";

#[tokio::test]
async fn data_may_come_in_any_pieces() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    stage.create_plain().await;
    let rows = |separator: &str| -> Vec<u8> {
        (100..160).map(|id| format!("{id}\towner \\\\ {id}\t{}{separator}", id * 2)).collect::<String>().into_bytes()
    };
    let csv: Vec<u8> = (100..160).map(|id| format!("{id},\"o,\n{id}\",5\n")).collect::<String>().into_bytes();
    let text = "COPY accounts FROM STDIN";
    let binary = "COPY accounts FROM STDIN (FORMAT binary)";
    for (sql, data) in [
        (text, rows("\n")),
        (text, rows("\r\n")),
        (text, rows("\r")),
        (text, [rows("\n"), b"\\.\nnot looked at".to_vec()].concat()),
        (text, rows("\n").strip_suffix(b"\n").expect("a line").to_vec()),
        ("COPY accounts FROM STDIN (FORMAT csv)", csv),
        (binary, tuples(100..160)),
        (binary, tuples(100..160).strip_suffix(&[0xff, 0xff]).expect("a trailer").to_vec()),
    ] {
        for step in [1, 7, 1000, data.len()] {
            let mut answers = Vec::new();
            for mut client in [stage.plain_client().await, stage.client().await] {
                let told = copied(&mut client, sql, &data, step).await;
                let state = client.row(ALL).await;
                succeed(&mut client, "DELETE FROM accounts WHERE id >= 100").await;
                answers.push((told, state));
            }
            assert_eq!(answers[0], answers[1], "{sql} in pieces of {step}");
            assert!(answers[0].0.contains("C(COPY 60)"), "{}", answers[0].0);
        }
    }
    stage.assert_log_is_clean();
}

#[tokio::test]
async fn what_is_no_row_is_told_as_by_one_postgresql() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    stage.create_plain().await;
    let header = &tuples(0..0)[..19];
    for (options, data) in [
        ("", b"100\ta\t1\n101\tb\r\t1\n102\tc\t1\n".to_vec()),
        ("", b"100\ta\t1\r\n101\tb\t1\n".to_vec()),
        ("", b"100\ta\t1\n\\.x\n".to_vec()),
        ("", b"100\ta\t1\n101\tb\t1\\.".to_vec()),
        ("", b"100\ta\t1\n101\tb\xff\t1\n".to_vec()),
        ("(FORMAT csv)", b"100,a,1\n101,b\r,1\n".to_vec()),
        ("(FORMAT csv)", b"100,a,1\r\n101,b,1\n".to_vec()),
        ("(FORMAT csv)", b"100,a,1\n\\.x,b,1\n".to_vec()),
        ("(FORMAT binary)", b"PGCOPX\n\xff\r\n\0".to_vec()),
        ("(FORMAT binary)", header[..15].to_vec()),
        ("(FORMAT binary)", [header, &[0, 3, 0, 0, 0, 8, 0, 0]].concat()),
        ("(FORMAT binary)", [header, &[0, 2, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 0]].concat()),
        ("(FORMAT binary)", [header, &[0, 3, 0, 0, 0, 4, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]].concat()),
        ("(FORMAT binary)", [header, &[0, 3, 0xff, 0xff, 0xff, 0xf0]].concat()),
        ("(FORMAT binary)", [tuples(100..103), vec![1]].concat()),
    ] {
        let sql = format!("COPY accounts FROM STDIN {options}");
        for step in [3, data.len()] {
            let mut answers = Vec::new();
            for mut client in [stage.plain_client().await, stage.client().await] {
                let told = copied(&mut client, &sql, &data, step).await;
                // PostgreSQL 18 says this of a marker with anything behind it, too.
                let told = told.replace("end-of-copy marker corrupt", "end-of-copy marker is not alone on its line");
                answers.push((told, client.row(ALL).await));
            }
            assert_eq!(answers[0], answers[1], "{sql} of {}", String::from_utf8_lossy(&data));
            assert!(answers[0].0.contains("E("), "{}", answers[0].0);
        }
    }
    stage.assert_log_is_clean();
}

#[tokio::test]
async fn a_copy_that_does_not_end_leaves_nothing() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    let before = client.row(ALL).await;
    let begin = |client: &mut WireClient| {
        client.query("COPY accounts FROM STDIN");
        client.put(b'd', b"100\ta\t1\n101\tb\t1\n102\tc\t1\n103\td\t1\n");
    };
    begin(&mut client);
    client.put(b'f', b"enough\0");
    assert_eq!(client.transcript().await, "G E(57014 COPY from stdin failed: enough) Z(I)");
    assert_eq!(client.row(ALL).await, before, "ended by the client");

    let mut leaving = stage.client().await;
    begin(&mut leaving);
    assert_eq!(leaving.some(1).await, "G");
    leaving.reset();
    let mut terminating = stage.client().await;
    begin(&mut terminating);
    terminating.put(b'X', b"");
    terminating.rest().await;
    assert_eq!(client.row(ALL).await, before, "the client has gone");

    begin(&mut client);
    assert_eq!(client.some(1).await, "G");
    let terminate =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'COPY accounts%'";
    stage.cluster.connect_shard(1).await.batch_execute(terminate).await.expect("terminated");
    let told = client.transcript().await;
    assert!(told.starts_with("E(08006 ") && told.ends_with("Z(I)"), "{told}");
    client.put(b'd', b"104\te\t1\n").put(b'c', b"");
    assert_eq!(client.row(ALL).await, before, "a shard was lost");

    begin(&mut client);
    assert_eq!(client.some(1).await, "G");
    client.cancel().await;
    client.put(b'd', b"104\te\t1\n105\tf\t1\n106\tg\t1\n107\th\t1\n").put(b'c', b"");
    let told = client.transcript().await;
    assert!(told.contains("E(57014 canceling statement due to user request)"), "{told}");
    assert_eq!(client.row(ALL).await, before, "cancelled");
    stage.assert_no_panic();
}

/// The rest of a CopyData whose rows have been refused is nobody's, whatever it looks like.
#[tokio::test]
async fn the_rest_of_data_that_was_refused_is_no_message() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    stage.create_plain().await;
    let mut message = BytesMut::new();
    message.put_u8(b'Q');
    let sql = b"INSERT INTO notes VALUES (1, 'from the data')\0";
    message.put_u32(u32::try_from(sql.len() + 4).expect("short"));
    message.put_slice(sql);
    let rest = message.repeat(8000);
    let taken: String = (1000..5000).map(|id| format!("{id}\tx\t1\n")).collect();
    for (head, code) in [
        ("\\N\tno key\t1\n".to_owned(), "23502"),
        ("1000\tx\tno number\n".to_owned(), "22P02"),
        ("1000\tx\t1\tmore\n".to_owned(), "22P04"),
        (format!("1\ttaken\t1\n{taken}"), "23505"),
    ] {
        for is_extended in [false, true] {
            let begin = |client: &mut WireClient| match is_extended {
                false => drop(client.query("COPY accounts FROM STDIN")),
                true => drop(client.unnamed("COPY accounts FROM STDIN", &[])),
            };
            let end = if is_extended { "S" } else { "" };
            let whole = [head.as_bytes(), &rest].concat();
            for mut client in [stage.plain_client().await, stage.client().await] {
                begin(&mut client);
                client.put(b'd', &whole).put(b'c', b"").output.put_slice(if is_extended { SYNC } else { b"" });
                let told = client.transcript().await;
                assert!(told.contains(&format!(" E({code} ")) && told.ends_with(" Z(I)"), "{told}");
                assert_eq!(client.ask("SELECT count(*) FROM notes").await, "T(count) D(0) C(SELECT 1) Z(I)", "{code}{end}");
            }
            // The rest comes when the error has been found.
            let mut client = stage.client().await;
            begin(&mut client);
            client.put(b'd', &whole);
            let late = client.output.split_off(client.output.len() - rest.len());
            client.flush().await;
            client.output.put_slice(&late);
            client.put(b'c', b"").output.put_slice(if is_extended { SYNC } else { b"" });
            let told = client.transcript().await;
            assert!(told.contains(&format!(" E({code} ")) && told.ends_with(" Z(I)"), "{told}");
            assert_eq!(client.ask("SELECT count(*) FROM notes").await, "T(count) D(0) C(SELECT 1) Z(I)", "{code}{end}, later");
        }
    }
    stage.assert_log_is_clean();
}

/// Two shards that wait for each other's locks would show as a COPY that stops: more data than all buffers together take.
#[tokio::test]
async fn a_long_copy_is_committed_as_one_transaction() {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    let other = stage.client().await;
    client.query("COPY accounts FROM STDIN");
    let count = 200_000;
    for first in (1000..1000 + count).step_by(1000) {
        let rows: String = (first..first + 1000).map(|id| format!("{id}\towner of {id}\t{}\n", id % 7)).collect();
        client.put(b'd', rows.as_bytes());
        client.flush().await;
    }
    assert_eq!(client.some(1).await, "G");
    let mut other = other;
    assert_eq!(other.value("SELECT count(*) FROM accounts").await, "90", "nobody sees some of it");
    client.put(b'c', b"");
    assert_eq!(client.transcript().await, format!("C(COPY {count}) Z(I)"));
    assert_eq!(other.value("SELECT count(*) FROM accounts").await, format!("{}", count + 90));
    // An error at the end of it undoes all of it.
    client.query("COPY accounts FROM STDIN");
    for first in (500_000..520_000).step_by(1000) {
        let rows: String = (first..first + 1000).map(|id| format!("{id}\towner of {id}\t{}\n", id % 7)).collect();
        client.put(b'd', rows.as_bytes());
    }
    client.put(b'd', b"1001\tagain\t1\n").put(b'c', b"");
    let answers = client.answers().await;
    let error = answers.iter().find(|message| message.tag == b'E').expect("an error");
    assert_eq!((error.field(b'C').as_str(), error.field(b'W').lines().next()), ("23505", Some("COPY accounts, line 20001")));
    assert_eq!(other.value("SELECT count(*) FROM accounts").await, format!("{}", count + 90));
}

/// Before a shard has read anything of what comes after the statement, and in the middle of it.
#[tokio::test]
async fn a_copy_that_fails_swallows_the_syncs_that_postgresql_would() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    stage.create_plain().await;
    let mut clients = [stage.plain_client().await, stage.client().await];
    for client in &mut clients {
        succeed(client, "CREATE FUNCTION closed() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'closed'; END$$").await;
        succeed(client, "CREATE TABLE shut (id int)").await;
        for table in ["accounts", "shut"] {
            let trigger = format!("CREATE TRIGGER closed BEFORE INSERT ON {table} EXECUTE FUNCTION closed()");
            succeed(client, &trigger).await;
        }
    }
    let backends = backends_of_shards(&stage).await;
    for table in ["notes (id)", "shut", "accounts (id)", "currencies (code)"] {
        let fails_at_once = matches!(table, "shut" | "accounts (id)");
        let waiting = ["CS|dcS", "CH|dcS", "CH|SdcS", "CXS|", "CSXS|", "CSX|dcS", "BCS|dcS", "BCH|SdcS", "Q|dcS", "BQ|SdcS"];
        let at_once = ["CSbcS", "CSbSdcS", "CSdbcSXS", "CbcHS", "QbcS", "QSbSdc", "BCSbcS", "BQSbcS", "BXCSbcS", "CSSfS", "CSfHS"];
        for script in waiting.iter().filter(|_| fails_at_once).chain(&at_once) {
            let mut told = Vec::new();
            for client in &mut clients {
                told.push(play(client, script, table).await);
            }
            assert_eq!(told[1], told[0], "{script} into {table}");
        }
    }
    let left = backends_of_shards(&stage).await;
    assert!(backends.iter().all(|backend| left.contains(backend)), "connections were dropped: {backends:?}, {left:?}");
    stage.assert_log_is_clean();
}

/// The message of data whose first row is refused ends long after it.
#[tokio::test]
async fn the_rest_of_refused_data_is_no_message() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    let mut client = stage.client().await;
    for _ in 0..2 {
        client.query("COPY accounts FROM STDIN");
        assert_eq!(client.some(1).await, "G");
        let data = format!("none\towner\t1\n{}", "Q\0\0\0\u{6}\0".repeat(50_000));
        client.put(b'd', data.as_bytes());
        let rest = client.output.split_off(1000);
        client.flush().await;
        until_nothing_is_copied(&stage).await;
        client.output.unsplit(rest);
        client.put(b'c', b"");
        let told = client.transcript().await;
        assert!(told.starts_with("E(22P02 ") && told.ends_with(" Z(I)"), "{told}");
    }
    assert_eq!(client.value("SELECT count(*) FROM accounts").await, "90");
    stage.assert_log_is_clean();
}

#[tokio::test]
async fn copy_to_several_shards_is_refused_where_the_settings_say_so() {
    let settings = vec![("cross_shard.writes", "refuse".to_owned())];
    let stage = Stage::start(2, ProxyOptions { settings, ..ProxyOptions::default() }).await;
    let mut client = stage.client().await;
    for table in ["accounts", "currencies"] {
        client.query(&format!("COPY {table} FROM STDIN"));
        let answers = client.answers().await;
        assert_eq!(answers[0].field(b'C'), "0A000");
        assert!(!answers[0].field(b'D').is_empty() && !answers[0].field(b'H').is_empty());
    }
}

const SYNC: &[u8] = b"S\0\0\0\x04";

/// Runs a COPY with its data in messages of `step` bytes.
async fn copied(client: &mut WireClient, sql: &str, data: &[u8], step: usize) -> String {
    client.query(sql);
    for piece in data.chunks(step) {
        client.put(b'd', piece);
    }
    client.put(b'c', b"");
    client.transcript().await
}

/// What a client hears that sends this: `C` COPY and `X` a SELECT in the extended protocol, `Q` COPY in the simple one, `d` data and
/// `b` bad data, `c` its end and `f` its failure, `S` Sync, `H` Flush, `B` a transaction block around it; at `|` it waits for an error.
async fn play(client: &mut WireClient, script: &str, table: &str) -> String {
    let copy = format!("COPY {table} FROM STDIN");
    let mut told = Vec::new();
    for step in script.chars() {
        match step {
            'B' => succeed(client, "BEGIN").await,
            'C' => drop(client.unnamed(&copy, &[])),
            'X' => drop(client.unnamed("SELECT 'selected'", &[])),
            'Q' => drop(client.query(&copy)),
            'd' => drop(client.put(b'd', b"1000\n")),
            'b' => drop(client.put(b'd', b"bad\tdata\n")),
            'c' => drop(client.put(b'c', b"")),
            'f' => drop(client.put(b'f', b"enough\0")),
            'S' => drop(client.sync()),
            'H' => drop(client.flush_message()),
            _ => {
                client.flush().await;
                while !told.last().is_some_and(|told: &String| told.starts_with('E')) {
                    told.push(client.some(1).await);
                    assert!(!matches!(told[told.len() - 1].as_str(), "end" | "nothing"), "{script}: {told:?}");
                }
            }
        }
    }
    client.query("ROLLBACK").query("SELECT 'the end'");
    while !told.last().is_some_and(|told| told == "D(the end)" || told == "end" || told == "nothing") {
        told.push(client.some(1).await);
    }
    told.push(client.some(2).await);
    told.join(" ")
}

/// Of clients: those of the proxy itself come and go.
async fn backends_of_shards(stage: &Stage) -> Vec<i32> {
    let sql = "SELECT pid FROM pg_stat_activity WHERE datname ~ '^shard' AND backend_type = 'client backend' \
               AND application_name !~ '^shardgate'";
    let rows = stage.cluster.connect_map().await.query(sql, &[]).await.expect("activity");
    rows.iter().map(|row| row.get(0)).collect()
}

async fn until_nothing_is_copied(stage: &Stage) {
    let sql = "SELECT FROM pg_stat_activity WHERE state = 'active' AND starts_with(query, 'COPY')";
    let client = stage.cluster.connect_map().await;
    let deadline = Instant::now() + Duration::from_secs(10);
    while !client.query(sql, &[]).await.expect("activity").is_empty() {
        assert!(Instant::now() < deadline, "a COPY goes on");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Rows of `accounts` in the binary format.
fn tuples(ids: std::ops::Range<i64>) -> Vec<u8> {
    let mut out = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
    for id in ids {
        out.extend_from_slice(&[0, 3, 0, 0, 0, 8]);
        out.extend_from_slice(&id.to_be_bytes());
        match id % 5 {
            0 => out.extend_from_slice(&(-1_i32).to_be_bytes()),
            _ => out.extend_from_slice(b"\0\0\0\x05owner"),
        }
        out.extend_from_slice(&[0, 0, 0, 4, 0, 0, 1, 0]);
    }
    out.extend_from_slice(&[0xff, 0xff]);
    out
}
