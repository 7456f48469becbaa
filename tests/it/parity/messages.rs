//! Exchanges of the extended protocol, message by message: portals, row limits, pipelines, errors up to Sync, Flush.

use super::answer::RowOrder;
use super::raw_client::{Format, Message};
use super::runner::Runner;

/// What is sent between two Syncs.
type Cycle = Vec<Message>;

pub async fn run(runner: &mut Runner<'_>) {
    for (name, cycles) in exchanges() {
        runner.renew().await;
        for cycle in cycles {
            runner.exchange(name, &cycle, RowOrder::Total).await;
        }
        runner.restore(name).await;
    }
    for (name, cycle) in [
        ("a pipeline that writes on several shards", writes_on_several_shards()),
        (
            "its last statement fails",
            [
                writes_on_several_shards(),
                vec![parse("", "UPDATE accounts SET balance = -9999 WHERE id = 7"), bind("", "", &[]), execute("", 0)],
            ]
            .concat(),
        ),
        (
            "a statement that writes on several shards",
            vec![
                parse("", "UPDATE accounts SET note = $1"),
                bind("", "", &["all"]),
                execute("", 0),
                parse("", "DELETE FROM entries WHERE account_id = 2"),
                bind("", "", &[]),
                execute("", 0),
            ],
        ),
        (
            "and fails on one",
            vec![
                parse("", "UPDATE accounts SET note = 'one' WHERE id = 1"),
                bind("", "", &[]),
                execute("", 0),
                parse("", "UPDATE accounts SET balance = CASE WHEN id = 3 THEN -5000 ELSE balance END"),
                bind("", "", &[]),
                execute("", 0),
                parse("", "SELECT 1"),
            ],
        ),
    ] {
        runner.renew().await;
        runner.exchange(name, &cycle, RowOrder::Total).await;
        runner.restore(name).await;
    }
    runner.renew().await;
    flushes(runner).await;
}

fn exchanges() -> Vec<(&'static str, Vec<Cycle>)> {
    [portals(), prepared(), pipelines(), errors(), transactions()].concat()
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn portals() -> Vec<(&'static str, Vec<Cycle>)> {
    let entries = "SELECT n, kind FROM entries WHERE account_id = 4 ORDER BY n";
    vec![
        (
            "row limits on one shard",
            vec![vec![
                parse("", entries),
                bind("", "", &[]),
                describe_portal(""),
                execute("", 1),
                execute("", 1),
                execute("", 1),
                execute("", 1),
            ]],
        ),
        (
            "the columns of cursors that were declared by SQL",
            [
                ("SELECT 1 AS one, 'a' AS two", "c"),
                ("SELECT n, kind FROM entries WHERE account_id = 4 ORDER BY n", "one shard"),
                ("SELECT id, note FROM accounts ORDER BY id", "Merged"),
                ("SELECT a.id, b.note FROM accounts a JOIN accounts b ON b.id = a.id + 1 ORDER BY 1", "gathered"),
            ]
            .into_iter()
            .flat_map(|(query, name)| {
                let declare = |kind: &str| {
                    let text = format!("DECLARE \"{name}\" {kind} CURSOR FOR {query}");
                    vec![parse("", &text), bind("", "", &[]), execute("", 0), describe_portal(name)]
                };
                let fetch = format!("FETCH 2 FROM \"{name}\"");
                vec![
                    vec![parse("", "BEGIN"), bind("", "", &[]), execute("", 0)],
                    declare(""),
                    vec![describe_portal(name)],
                    vec![parse("", &fetch), bind("", "", &[]), describe_portal(""), execute("", 0), describe_portal(name)],
                    vec![parse("", &format!("CLOSE \"{name}\"")), bind("", "", &[]), execute("", 0)],
                    vec![describe_portal(name)],
                    vec![parse("", "ROLLBACK"), bind("", "", &[]), execute("", 0)],
                    vec![parse("", "BEGIN"), bind("", "", &[]), execute("", 0)],
                    declare("BINARY"),
                    vec![parse("", "SELECT 1 / 0"), bind("", "", &[]), execute("", 0)],
                    vec![describe_portal(name)],
                    vec![parse("", "ROLLBACK"), bind("", "", &[]), execute("", 0)],
                ]
            })
            .collect(),
        ),
        ("a limit above the rows", vec![vec![parse("", entries), bind("", "", &[]), execute("", 100), execute("", 100)]]),
        (
            "two portals of one statement",
            vec![vec![
                parse("s", "SELECT n FROM entries WHERE account_id = $1 ORDER BY n"),
                bind("a", "s", &["4"]),
                bind("b", "s", &["4"]),
                execute("a", 1),
                execute("b", 2),
                execute("a", 0),
                execute("b", 0),
                Message::ClosePortal("a".into()),
                Message::ClosePortal("nothing".into()),
            ]],
        ),
        (
            "portals in a transaction outlive Sync",
            vec![
                vec![parse("", "BEGIN"), bind("", "", &[]), execute("", 0)],
                vec![parse("s", entries), bind("p", "s", &[]), execute("p", 1)],
                vec![execute("p", 1)],
                vec![describe_portal("p"), execute("p", 0)],
                vec![parse("", "COMMIT"), bind("", "", &[]), execute("", 0)],
                vec![execute("p", 1)],
            ],
        ),
        ("a portal is gone after Sync", vec![vec![parse("", entries), bind("p", "", &[]), execute("p", 1)], vec![execute("p", 1)]]),
        (
            "a portal twice under one name",
            vec![vec![parse("s", entries), bind("p", "s", &[]), bind("p", "s", &[]), execute("p", 0)]],
        ),
        ("an unknown portal", vec![vec![execute("nothing", 0)], vec![describe_portal("nothing")]]),
        (
            "home table with a row limit",
            vec![vec![parse("", "SELECT id FROM audit ORDER BY id"), bind("", "", &[]), execute("", 2), execute("", 2)]],
        ),
        (
            "rows of a write with a limit",
            vec![vec![
                parse("", "UPDATE entries SET kind = 'fee' WHERE account_id = 4 AND n = 2 RETURNING n"),
                bind("", "", &[]),
                execute("", 1),
                execute("", 1),
            ]],
        ),
        (
            "several shards, described and executed",
            vec![vec![
                parse("", "SELECT id FROM accounts WHERE id < $1 ORDER BY id"),
                bind("p", "", &["4"]),
                describe_portal("p"),
                execute("p", 0),
            ]],
        ),
        (
            "row limits on several shards",
            vec![vec![
                parse("", "SELECT id, name FROM accounts ORDER BY id"),
                bind("", "", &[]),
                describe_portal(""),
                execute("", 2),
                execute("", 3),
                execute("", 0),
                execute("", 1),
            ]],
        ),
        (
            "a limit above the rows of several shards",
            vec![vec![
                parse("", "SELECT id FROM accounts WHERE id < $1 ORDER BY id"),
                bind("", "", &["4"]),
                execute("", 100),
                execute("", 100),
            ]],
        ),
        (
            "exactly as many rows as the limit, of several shards",
            vec![vec![
                parse("", "SELECT id FROM accounts WHERE id < 4 ORDER BY id"),
                bind("", "", &[]),
                execute("", 3),
                execute("", 3),
            ]],
        ),
        (
            "row limits on rows that several shards write",
            vec![vec![
                parse(
                    "",
                    "INSERT INTO accounts (id, name) VALUES (901, 'a'), (902, 'b'), (903, 'c'), (904, 'd') RETURNING id, name",
                ),
                bind("", "", &[]),
                describe_portal(""),
                execute("", 1),
                execute("", 2),
                execute("", 5),
                execute("", 1),
            ]],
        ),
        (
            "exactly as many rows as several shards write",
            vec![vec![
                parse("", "INSERT INTO accounts (id, name) SELECT g, 'g' FROM generate_series(901, 903) AS g RETURNING name"),
                bind("p", "", &[]),
                execute("p", 3),
                execute("p", 0),
            ]],
        ),
        (
            "a portal that has written, and is closed by SQL",
            vec![
                vec![parse("", "BEGIN"), bind("", "", &[]), execute("", 0)],
                vec![
                    parse("", "INSERT INTO accounts (id, name) VALUES (901, 'a'), (902, 'b'), (903, 'c') RETURNING id"),
                    bind("p", "", &[]),
                    execute("p", 1),
                ],
                vec![parse("", "CLOSE p"), bind("", "", &[]), execute("", 0)],
                vec![execute("p", 1)],
                vec![parse("", "ROLLBACK"), bind("", "", &[]), execute("", 0)],
            ],
        ),
        (
            "a portal that has written, and whose savepoint is rolled back",
            vec![
                vec![parse("", "BEGIN"), bind("", "", &[]), execute("", 0)],
                vec![parse("", "SAVEPOINT s"), bind("", "", &[]), execute("", 0)],
                vec![
                    parse("", "INSERT INTO accounts (id, name) VALUES (901, 'a'), (902, 'b'), (903, 'c') RETURNING id"),
                    bind("p", "", &[]),
                    execute("p", 1),
                ],
                vec![parse("", "ROLLBACK TO s"), bind("", "", &[]), execute("", 0)],
                vec![execute("p", 1)],
                vec![parse("", "ROLLBACK"), bind("", "", &[]), execute("", 0)],
            ],
        ),
        (
            "a row limit on a write of several shards that fails",
            vec![vec![
                parse("", "INSERT INTO accounts (id, name) VALUES (901, 'a'), (902, 'b'), (3, 'c') RETURNING id"),
                bind("", "", &[]),
                execute("", 1),
            ]],
        ),
        (
            "a row limit on rows that several shards lock",
            vec![vec![
                parse("", "SELECT id FROM accounts ORDER BY id LIMIT 3 FOR UPDATE"),
                bind("", "", &[]),
                execute("", 2),
                execute("", 2),
                parse("", "SELECT id FROM accounts ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"),
                bind("", "", &[]),
                execute("", 1),
            ]],
        ),
        (
            "a whole answer of several shards twice",
            vec![vec![
                parse("", "SELECT count(*) FROM accounts"),
                bind("", "", &[]),
                execute("", 0),
                execute("", 0),
                execute("", 2),
            ]],
        ),
        (
            "portals over several shards in a transaction outlive Sync",
            vec![
                vec![parse("", "BEGIN"), bind("", "", &[]), execute("", 0)],
                vec![parse("s", "SELECT id, balance FROM accounts ORDER BY id"), bind("p", "s", &[]), execute("p", 2)],
                vec![bind("q", "s", &[]), execute("q", 1), execute("p", 1)],
                vec![parse("", "UPDATE accounts SET balance = 7 WHERE id < 9"), bind("", "", &[]), execute("", 0)],
                vec![parse("", "SELECT sum(balance) FROM accounts"), bind("r", "", &[]), bind("", "", &[]), execute("", 0)],
                vec![execute("q", 2), describe_portal("q"), execute("r", 5), execute("r", 5)],
                vec![Message::ClosePortal("p".into()), execute("q", 0), execute("q", 0)],
                vec![execute("p", 1)],
                vec![parse("", "ROLLBACK"), bind("", "", &[]), execute("", 0)],
                vec![execute("q", 1)],
            ],
        ),
        (
            "a portal shows what was there at Bind",
            vec![
                vec![parse("", "BEGIN"), bind("", "", &[]), execute("", 0)],
                vec![parse("", "SELECT id, note FROM accounts WHERE id < 9 ORDER BY id"), bind("p", "", &[])],
                vec![parse("", "UPDATE accounts SET note = 'new' WHERE id < 9"), bind("", "", &[]), execute("", 0)],
                vec![execute("p", 0)],
                vec![parse("", "ROLLBACK"), bind("", "", &[]), execute("", 0)],
            ],
        ),
        (
            "a portal over several shards is gone after Sync",
            vec![
                vec![parse("", "SELECT id FROM accounts ORDER BY id"), bind("p", "", &[]), execute("p", 1)],
                vec![execute("p", 1)],
                vec![parse("", "SELECT id FROM accounts ORDER BY id"), bind("p", "", &[]), execute("p", 1)],
            ],
        ),
        (
            "a limit and an error",
            vec![
                vec![parse("", "BEGIN"), bind("", "", &[]), execute("", 0)],
                vec![parse("", "SELECT 1 / (id - id) FROM accounts ORDER BY id"), bind("p", "", &[]), execute("p", 1)],
                vec![execute("p", 1)],
                vec![parse("", "ROLLBACK"), bind("", "", &[]), execute("", 0)],
            ],
        ),
        (
            "FETCH from a portal over several shards",
            vec![
                vec![parse("", "BEGIN"), bind("", "", &[]), execute("", 0)],
                vec![parse("", "SELECT id, name FROM accounts ORDER BY id"), bind("p", "", &[]), execute("p", 1)],
                vec![parse("", "FETCH 2 FROM p"), bind("", "", &[]), describe_portal(""), execute("", 0)],
                vec![execute("p", 2)],
                vec![parse("", "DECLARE p CURSOR FOR SELECT id FROM accounts"), bind("", "", &[]), execute("", 0)],
                vec![parse("", "ROLLBACK"), bind("", "", &[]), execute("", 0)],
            ],
        ),
        (
            "a portal without an execution",
            vec![
                vec![parse("", "SELECT id FROM accounts ORDER BY id"), bind("", "", &[])],
                vec![parse("", "SELECT 1"), bind("", "", &[]), execute("", 0)],
            ],
        ),
    ]
}

fn prepared() -> Vec<(&'static str, Vec<Cycle>)> {
    let by_key = "SELECT id, name, balance FROM accounts WHERE id = $1";
    vec![
        (
            "one statement for keys of every shard",
            (1..=12).map(|key: i32| vec![bind("", "s", &[&key.to_string()]), describe_portal(""), execute("", 0)]).fold(
                vec![vec![parse("s", by_key), describe("s")]],
                |mut cycles, cycle| {
                    cycles.push(cycle);
                    cycles
                },
            ),
        ),
        ("a name twice", vec![vec![parse("s", by_key)], vec![parse("s", "SELECT 1")], vec![bind("", "s", &["3"]), execute("", 0)]]),
        (
            "closed and used again",
            vec![
                vec![parse("s", by_key), Message::CloseStatement("s".into()), Message::CloseStatement("never".into())],
                vec![bind("", "s", &["3"]), execute("", 0)],
                vec![describe("s")],
                vec![parse("s", "SELECT 2"), describe("s"), bind("", "s", &[]), execute("", 0)],
            ],
        ),
        (
            "unnamed is replaced",
            vec![vec![parse("", by_key), parse("", "SELECT 5 AS five"), describe(""), bind("", "", &[]), execute("", 0)]],
        ),
        (
            "unnamed lasts over Sync",
            vec![vec![parse("", by_key)], vec![bind("", "", &["3"]), execute("", 0)], vec![bind("", "", &["4"]), execute("", 0)]],
        ),
        ("no such statement", vec![vec![bind("", "nothing", &[]), execute("", 0)], vec![describe("nothing")]]),
        ("empty statements", vec![vec![parse("", ""), describe(""), bind("", "", &[]), describe_portal(""), execute("", 0)]]),
        ("several in one text", vec![vec![parse("", "SELECT 1; SELECT 2"), bind("", "", &[]), execute("", 0)]]),
        (
            "statements without rows are described",
            vec![vec![
                parse("s", "UPDATE accounts SET note = $2 WHERE id = $1"),
                describe("s"),
                bind("", "s", &["3", "x"]),
                describe_portal(""),
                execute("", 0),
            ]],
        ),
        (
            "one statement on one shard and on several",
            vec![
                vec![parse("s", "SELECT id FROM accounts WHERE id = ANY ($1) ORDER BY id"), describe("s")],
                vec![bind("", "s", &["{1}"]), execute("", 0)],
                vec![bind("", "s", &["{1,2,3,4,5}"]), execute("", 0)],
                vec![bind("", "s", &["{2}"]), execute("", 0)],
                vec![bind("", "s", &["{}"]), execute("", 0)],
                vec![bind("", "s", &["{5,x}"]), execute("", 0)],
                vec![bind("", "s", &["{1,2,3,4,5}"]), execute("", 0)],
            ],
        ),
        (
            "after a change of the table",
            vec![
                vec![parse("s", "SELECT * FROM sparse WHERE id = $1")],
                vec![bind("", "s", &["7"]), describe_portal(""), execute("", 0)],
                vec![parse("", "ALTER TABLE sparse ADD COLUMN more int DEFAULT 3"), bind("", "", &[]), execute("", 0)],
                vec![parse("", "SELECT * FROM sparse WHERE id = 7"), bind("", "", &[]), describe_portal(""), execute("", 0)],
                vec![parse("", "ALTER TABLE sparse DROP COLUMN more"), bind("", "", &[]), execute("", 0)],
                vec![parse("", "SELECT * FROM sparse WHERE id = 7"), bind("", "", &[]), describe_portal(""), execute("", 0)],
            ],
        ),
    ]
}

fn pipelines() -> Vec<(&'static str, Vec<Cycle>)> {
    let by_key = |key: &str| [parse("", "SELECT id, name FROM accounts WHERE id = $1"), bind("", "", &[key]), execute("", 0)];
    vec![
        ("many keys in one cycle", vec![["1", "2", "3", "4", "5", "6", "99"].iter().flat_map(|key| by_key(key)).collect()]),
        (
            "writes and reads in one cycle",
            vec![
                [
                    vec![parse("", "UPDATE accounts SET note = 'piped' WHERE id = 3"), bind("", "", &[]), execute("", 0)],
                    vec![parse("", "SELECT note FROM accounts WHERE id = 3"), bind("", "", &[]), execute("", 0)],
                    by_key("5").to_vec(),
                    vec![parse("", "SELECT count(*) FROM audit"), bind("", "", &[]), execute("", 0)],
                ]
                .concat(),
            ],
        ),
        (
            "a write, a read of several shards, and a write again",
            vec![
                [
                    "UPDATE accounts SET note = 'first' WHERE id = 3",
                    "SELECT count(*), min(note) FROM accounts WHERE note = 'first'",
                    "UPDATE accounts SET note = 'second' WHERE id = 5",
                ]
                .iter()
                .flat_map(|text| [parse("", text), bind("", "", &[]), execute("", 0)])
                .collect(),
                vec![parse("", "SELECT id, note FROM accounts WHERE id IN (3, 5) ORDER BY id"), bind("", "", &[]), execute("", 0)],
            ],
        ),
        (
            "own answers between shards' answers",
            vec![
                [
                    by_key("1").to_vec(),
                    vec![parse("", "BEGIN"), bind("", "", &[]), execute("", 0)],
                    by_key("2").to_vec(),
                    vec![parse("", "SET LOCAL work_mem = '6MB'"), bind("", "", &[]), execute("", 0)],
                    vec![parse("", "SHOW work_mem"), bind("", "", &[]), execute("", 0)],
                    vec![parse("", "COMMIT"), bind("", "", &[]), execute("", 0)],
                    by_key("3").to_vec(),
                ]
                .concat(),
            ],
        ),
    ]
}

fn errors() -> Vec<(&'static str, Vec<Cycle>)> {
    let one = || vec![parse("", "SELECT 1"), bind("", "", &[]), execute("", 0)];
    vec![
        ("an error skips to Sync", vec![[vec![parse("", "SELECT nothing")], one()].concat(), one()]),
        (
            "an error in the middle",
            vec![
                [
                    vec![parse("", "SELECT name FROM accounts WHERE id = 1"), bind("", "", &[]), execute("", 0)],
                    vec![parse("", "SELECT 1 / 0 FROM accounts WHERE id = 2"), bind("", "", &[]), execute("", 0)],
                    one(),
                ]
                .concat(),
                one(),
            ],
        ),
        (
            "a failed pipeline takes its write back",
            vec![
                vec![
                    parse("", "UPDATE accounts SET note = 'lost' WHERE id = 3"),
                    bind("", "", &[]),
                    execute("", 0),
                    parse("", "SELECT 1 / 0"),
                    bind("", "", &[]),
                    execute("", 0),
                ],
                vec![parse("", "SELECT note FROM accounts WHERE id = 3"), bind("", "", &[]), execute("", 0)],
            ],
        ),
        (
            "a failed pipeline that has read several shards takes its write back",
            vec![
                ["UPDATE accounts SET note = 'lost' WHERE id = 3", "SELECT count(*) FROM accounts", "SELECT 1 / 0"]
                    .iter()
                    .flat_map(|text| [parse("", text), bind("", "", &[]), execute("", 0)])
                    .collect(),
                vec![parse("", "SELECT note FROM accounts WHERE id = 3"), bind("", "", &[]), execute("", 0)],
            ],
        ),
        (
            "a failed pipeline takes back its write and its table",
            vec![
                ["UPDATE accounts SET note = 'lost' WHERE id = 3", "CREATE TABLE lost (id int)", "SELECT 1 / 0"]
                    .iter()
                    .flat_map(|text| [parse("", text), bind("", "", &[]), execute("", 0)])
                    .collect(),
                vec![parse("", "SELECT note, to_regclass('lost') FROM accounts WHERE id = 3"), bind("", "", &[]), execute("", 0)],
            ],
        ),
        ("a bad value", vec![vec![parse("", "SELECT $1::int"), bind("", "", &["x"]), execute("", 0)], one()]),
        ("too few values", vec![vec![parse("", "SELECT $1::int, $2::int"), bind("", "", &["1"]), execute("", 0)], one()]),
        ("too many values", vec![vec![parse("", "SELECT $1::int"), bind("", "", &["1", "2"]), execute("", 0)], one()]),
        (
            "several shards, one fails",
            vec![vec![parse("", "SELECT 1 / (id - 5) AS x FROM accounts ORDER BY x"), bind("", "", &[]), execute("", 0)], one()],
        ),
        (
            "a column that is not there, after a write on the home shard",
            vec![
                ["BEGIN", "INSERT INTO options VALUES ('lost')", "SELECT nothing FROM accounts WHERE id = $1"]
                    .iter()
                    .flat_map(|text| [parse("", text), bind("", "", if text.contains('$') { &["1"] } else { &[] }), execute("", 0)])
                    .collect(),
                vec![parse("", "ROLLBACK"), bind("", "", &[]), execute("", 0)],
            ],
        ),
        (
            "a bad value for several shards",
            vec![
                vec![parse("", "SELECT id FROM accounts WHERE balance > $1 ORDER BY id"), bind("", "", &["x"]), execute("", 0)],
                one(),
            ],
        ),
    ]
}

fn transactions() -> Vec<(&'static str, Vec<Cycle>)> {
    let run = |text: &str| vec![parse("", text), bind("", "", &[]), execute("", 0)];
    vec![
        (
            "a transaction over many cycles",
            vec![
                run("BEGIN"),
                run("UPDATE accounts SET note = 'cycles' WHERE id = 3"),
                run("SELECT 1 / 0"),
                run("SELECT 1"),
                run("ROLLBACK"),
                run("SELECT note FROM accounts WHERE id = 3"),
            ],
        ),
        (
            "savepoints in a pipeline",
            vec![
                [
                    run("BEGIN"),
                    run("UPDATE accounts SET note = 'a' WHERE id = 3"),
                    run("SAVEPOINT s"),
                    run("UPDATE accounts SET note = 'b' WHERE id = 3"),
                ]
                .concat(),
                [run("ROLLBACK TO s"), run("SELECT note FROM accounts WHERE id = 3"), run("COMMIT")].concat(),
                run("SELECT note FROM accounts WHERE id = 3"),
            ],
        ),
        (
            "a failed transaction lets nothing through",
            vec![
                run("BEGIN"),
                run("SELECT nothing"),
                vec![parse("s", "SELECT 1"), describe("s")],
                vec![parse("", "SAVEPOINT x"), bind("", "", &[])],
                run("COMMIT"),
                run("SELECT 1"),
            ],
        ),
    ]
}

fn writes_on_several_shards() -> Cycle {
    let write = |key: &&str| [parse("", "UPDATE accounts SET note = 'lost' WHERE id = $1"), bind("", "", &[key]), execute("", 0)];
    ["1", "2", "3", "5"].iter().flat_map(write).collect()
}

/// Flush without Sync: what has been asked for is answered at once.
async fn flushes(runner: &mut Runner<'_>) {
    runner.renew().await;
    let by_key = [parse("s", "SELECT id, name FROM accounts WHERE id = $1"), describe("s")];
    // ParseComplete, ParameterDescription, RowDescription.
    runner.flush("flush after Describe", &by_key, 3).await;
    runner.flush("flush after Execute", &[bind("", "s", &["1"]), execute("", 0)], 3).await;
    runner.flush("flush on another shard", &[bind("", "s", &["2"]), execute("", 0)], 3).await;
    runner
        .flush(
            "flush on several shards",
            &[parse("", "SELECT id FROM accounts WHERE id < 0 ORDER BY id"), bind("", "", &[]), execute("", 0)],
            6,
        )
        .await;
    runner.flush("flush after an error", &[parse("", "SELECT nothing")], 1).await;
    runner.exchange("Sync after the error", &[bind("", "s", &["3"]), execute("", 0)], RowOrder::Total).await;
    runner.exchange("everything works again", &[bind("", "s", &["3"]), execute("", 0)], RowOrder::Total).await;
}

fn parse(name: &str, text: &str) -> Message {
    Message::Parse { name: name.to_owned(), text: text.to_owned(), types: Vec::new() }
}

fn bind(portal: &str, statement: &str, values: &[&str]) -> Message {
    Message::Bind {
        portal: portal.to_owned(),
        statement: statement.to_owned(),
        format: Format::Text,
        values: values.iter().map(|value| Some(value.as_bytes().to_vec())).collect(),
        results: Vec::new(),
    }
}

fn describe(name: &str) -> Message {
    Message::DescribeStatement(name.to_owned())
}

fn describe_portal(name: &str) -> Message {
    Message::DescribePortal(name.to_owned())
}

fn execute(portal: &str, rows: i32) -> Message {
    Message::Execute { portal: portal.to_owned(), rows }
}
