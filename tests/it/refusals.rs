//! What is refused: each statement of `refusals.txt` with its message, DETAIL and HINT, listed in the documentation; and each
//! declaration of `refusals_of_declarations.txt`.

use tokio_postgres::{Client, SimpleQueryMessage};

use crate::sessions::Stage;
use crate::support::ProxyOptions;

const CASES: &str = include_str!("refusals.txt");
const DECLARATIONS: &str = include_str!("refusals_of_declarations.txt");

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

/// The list in the documentation is the one that is tested here. `UPDATE_DOCS=1` writes it.
#[test]
fn the_documentation_lists_every_refusal() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/sql-support.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let (before, rest) = page.split_once(LIST_BEGIN).expect("the beginning of the list");
    let (listed, after) = rest.split_once(LIST_END).expect("the end of the list");
    let expected = format!("\n{}", list(CASES));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, [before, LIST_BEGIN, &expected, LIST_END, after].concat()).expect("the page is written");
    } else {
        assert!(listed == expected, "docs/sql-support.md differs from refusals.txt: UPDATE_DOCS=1 cargo test --test it refusals");
    }
}

const LIST_BEGIN: &str = "<!-- refusals: made from tests/it/refusals.txt; UPDATE_DOCS=1 cargo test --test it refusals -->";
const LIST_END: &str = "<!-- /refusals -->";

/// A table for each heading (`# ---- reads ----`), a row for each refusal.
fn list(text: &str) -> String {
    let headings: Vec<(usize, &str)> = text.lines().enumerate().filter_map(|(line, text)| Some((line, heading(text)?))).collect();
    let mut list = String::new();
    let mut current = None;
    for case in cases(text) {
        let at = headings.partition_point(|(line, _)| *line < case.line);
        if current.replace(at) != Some(at) {
            let title = at.checked_sub(1).and_then(|index| headings.get(index)).map_or("other", |(_, title)| title);
            list.push_str(&format!("\n### Refused: {title}\n\n| statement | message | instead |\n|---|---|---|\n"));
        }
        let cell = |text: &str| text.replace('|', "\\|");
        let (statement, hint) = (case.statements.last().expect("a statement"), case.told.get(2).unwrap_or(&""));
        list.push_str(&format!("| `{}` | {} | {} |\n", cell(statement), cell(case.told[0]), cell(hint)));
    }
    list.push('\n');
    list
}

fn heading(line: &str) -> Option<&str> {
    line.strip_prefix("# ---- ")?.strip_suffix(" ----")
}
