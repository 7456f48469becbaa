//! What is refused: each statement of `refusals.txt` with its message, DETAIL and HINT, and a row in README's list; and each
//! declaration of `refusals_of_declarations.txt`.

use tokio_postgres::{Client, SimpleQueryMessage};

use crate::sessions::Stage;
use crate::support::ProxyOptions;

const CASES: &str = include_str!("refusals.txt");
const DECLARATIONS: &str = include_str!("refusals_of_declarations.txt");
const README: &str = include_str!("../../README.md");

struct Case<'t> {
    line: usize,
    statements: Vec<&'t str>,
    /// Message, DETAIL and HINT.
    told: Vec<&'t str>,
}

/// Blocks of statements, one a line, and `=> message`, DETAIL and HINT; `#` begins a comment.
fn cases(text: &str) -> Vec<Case<'_>> {
    let mut cases = Vec::new();
    let mut statements = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if let Some(message) = line.strip_prefix("=> ") {
            let mut told = vec![message];
            while let Some((_, more)) = lines.next_if(|(_, line)| line.starts_with("   ")) {
                told.push(more.trim_start());
            }
            cases.push(Case { line: number + 1, statements: std::mem::take(&mut statements), told });
        } else if !line.is_empty() && !line.starts_with('#') {
            statements.push(line);
        }
    }
    assert!(statements.is_empty(), "statements without an answer at the end");
    cases
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_say_what_why_and_what_to_do() {
    all_are_told(CASES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_declarations_say_what_why_and_what_to_do() {
    all_are_told(DECLARATIONS).await;
}

async fn all_are_told(text: &str) {
    let stage = Stage::start(3, ProxyOptions::default()).await;
    let mut wrong = String::new();
    for case in cases(text) {
        let client = stage.proxy.connect().await;
        let told = refusal(&client, &case).await;
        if told != case.told {
            wrong.push_str(&format!("line {}:\n=> {}\n", case.line, told.join("\n   ")));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    stage.assert_no_panic();
}

/// Of the last statement; those before have to succeed.
async fn refusal(client: &Client, case: &Case<'_>) -> Vec<String> {
    let (last, before) = case.statements.split_last().expect("a statement");
    for statement in before {
        if let Err(error) = client.simple_query(statement).await {
            return vec![format!("{statement}: {error:?}")];
        }
    }
    let answer: Result<Vec<SimpleQueryMessage>, _> = client.simple_query(last).await;
    let Err(error) = answer else { return vec!["it is not refused".to_owned()] };
    let Some(error) = error.as_db_error() else { return vec![error.to_string()] };
    let mut told = vec![error.message().to_owned()];
    told.extend(error.detail().map(str::to_owned));
    told.extend(error.hint().map(str::to_owned));
    if error.code().code() != "0A000" {
        told.push(format!("SQLSTATE {}", error.code().code()));
    }
    told
}

/// README's list has a row for each message.
#[test]
fn the_readme_lists_every_refusal() {
    let rows: Vec<String> = README.lines().filter(|line| line.starts_with("| ")).map(without_names).collect();
    for case in cases(CASES) {
        let message = without_names(case.told[0]);
        assert!(rows.iter().any(|row| row.contains(&message)), "README does not list: {}", case.told[0]);
    }
}

/// What stands in double quotes, and a function of PostgreSQL's, stands for any.
fn without_names(text: &str) -> String {
    let parts = text.split('"').enumerate();
    let text: String = parts.map(|(place, part)| if place % 2 == 0 { part } else { "*" }).collect();
    match text.split_once("function ").and_then(|(before, rest)| Some((before, rest.split_once("() ")?.1))) {
        Some((before, after)) => format!("{before}function *() {after}"),
        None => text,
    }
}
