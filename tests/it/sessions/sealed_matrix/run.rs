//! Runs a cell on plain PostgreSQL and through the proxy, and compares what was answered and seen.

use std::fmt::Write;
use std::ops::Range;

use super::cells::{Cell, Tables};
use super::ends::End;
use super::observers::{Sight, observe};
use super::stage::{Side, Stage, Words};
use super::ways::Form;
use crate::support::{Message, WireClient};

/// How a cell ended that is not wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Equal,
    /// The statement that sets was refused, and nothing is left of it.
    Refused(String),
    /// What the cell needs was refused.
    NotCreated(String),
}

/// What one side answered, and who saw what.
struct Run {
    sent: Vec<String>,
    told: Vec<String>,
    refusals: Vec<Message>,
    sights: Vec<Sight>,
}

/// What the cell sends in place of a statement that was refused: it fails too, and leaves nothing.
const FAILING: &str = "SELECT 1/0";

/// Refused in transaction pooling, though an empty table has no rows for which it would be evaluated.
const EVALUATED: &str = "in a schema change that evaluates it";

/// Creates what these cells need, in as few schema changes as that takes: where one of them is refused none of the change is there.
/// Returns for which it is done.
pub async fn create_together(stage: &Stage, cells: &[(Cell, Words)]) -> Vec<bool> {
    let mut created = vec![false; cells.len()];
    let mut waiting: Vec<Range<usize>> = std::iter::once(0..cells.len()).collect();
    while let Some(range) = waiting.pop() {
        let some = &cells[range.clone()];
        let all: Vec<Vec<String>> = some.iter().map(|(cell, words)| objects(cell, words)).collect();
        let (Some((_, words)), whole) = (some.first(), all.concat().join("; ")) else { continue };
        if !whole.is_empty() && create(&stage.side(true, words), &[whole]).await.is_err() {
            let middle = range.start + range.len() / 2;
            // One alone is told when it is run.
            waiting.extend(
                [middle..range.end, range.start..middle].into_iter().filter(|half| half.len() < range.len() && !half.is_empty()),
            );
            continue;
        }
        for ((cell, words), objects) in some.iter().zip(&all) {
            let told = create(&stage.side(false, words), objects).await;
            told.unwrap_or_else(|told| panic!("{cell}: {objects:#?}: {told}"));
        }
        created[range].fill(true);
    }
    created
}

/// `is_created`: what it needs is there. Errors: what is wrong, with everything that a person needs to see it again.
pub async fn run(stage: &Stage, cell: &Cell, words: &Words, is_created: bool) -> Result<Outcome, String> {
    let (plain, proxied) = (stage.side(false, words), stage.side(true, words));
    let objects = objects(cell, words);
    let to_create = if is_created { &[] } else { objects.as_slice() };
    create(&plain, to_create).await.unwrap_or_else(|told| panic!("{cell}: {objects:#?}: {told}"));
    let created = create(&proxied, &[to_create, &declarations(cell, words)].concat()).await;
    let outcome = match created {
        Ok(()) => compare(&plain, &proxied, cell).await,
        Err(told) if told.contains("E(0A000 ") && (cell.tables != Tables::Nothing || told.contains(EVALUATED)) => {
            Ok(Outcome::NotCreated(told))
        }
        Err(told) => Err(format!("creating the objects: {told}")),
    };
    let outcome = match (outcome, stage.held_for_ever().await) {
        (Ok(_), Some(held)) => Err(format!("held for ever: {held}")),
        (outcome, _) => outcome,
    };
    let outcome = match (outcome, stage.panics()) {
        (_, Some(panics)) => Err(format!("the proxy panicked: {panics}")),
        (outcome, None) => outcome,
    };
    outcome.map_err(|what| format!("{cell}\n  {what}\n  created:\n    {};", objects.join(";\n    ")))
}

async fn compare(plain: &Side<'_>, proxied: &Side<'_>, cell: &Cell) -> Result<Outcome, String> {
    let (sql, form) = cell.way.call(cell.kind);
    let row = match form {
        Form::Insert { row } => row,
        _ => None,
    };
    let mut expected = play(plain, cell, &sql, row, &[]).await;
    let got = play(proxied, cell, &sql, row, &expected.sights).await;
    let is_refused = got.refusals.len() > expected.refusals.len();
    if is_refused {
        let mute = got.refusals.iter().find(|refusal| refusal.field(b'D').is_empty() || refusal.field(b'H').is_empty());
        if let Some(mute) = mute {
            return Err(format!("a refusal without DETAIL or HINT: {}\n{}", mute.describe(), sent(&got)));
        }
        expected = play(plain, cell, FAILING, row.map(|_| ("id", "wrong")), &[]).await;
    }
    let of = |who: &str| expected.sights.iter().find(|sight| sight.who == who);
    // What reaches others is worse than what the session itself is told.
    let (itself, others): (Vec<_>, Vec<_>) = got.sights.iter().partition(|sight| sight.is_itself);
    let differing = |sight: &&Sight| {
        let wanted = of(&sight.who).unwrap_or_else(|| panic!("{cell}: {} is new", sight.who));
        let is_right = |(wanted, told): (&String, &String)| wanted == told || (sight.is_itself && told.starts_with("E(0A000 "));
        let is_equal = sight.told.len() == wanted.told.len() && wanted.told.iter().zip(&sight.told).all(is_right);
        (!is_equal).then(|| {
            let mut all = sent(&got);
            sight.sent.iter().for_each(|line| writeln!(all, "    {line}").expect("written"));
            let refused = if is_refused { " (the statement was refused)" } else { "" };
            differences(&format!("{}{refused}", sight.who), &wanted.told, &sight.told, &all)
        })
    };
    if let Some(difference) = others.iter().find_map(differing) {
        return Err(difference);
    }
    if !is_refused && expected.told != got.told {
        return Err(differences("the session", &expected.told, &got.told, &sent(&got)));
    }
    if let Some(difference) = itself.iter().find_map(differing) {
        return Err(difference);
    }
    let reason = got.refusals.last().filter(|_| is_refused);
    Ok(reason.map_or(Outcome::Equal, |refusal| Outcome::Refused(format!("{} {}", refusal.field(b'M'), refusal.field(b'D')))))
}

/// A session: what it does, and who looks at it.
async fn play(side: &Side<'_>, cell: &Cell, sql: &str, row: Option<(&str, &str)>, expected: &[Sight]) -> Run {
    let mut session = side.speaker("session").await;
    for text in cell.way.prelude().iter().chain(cell.kind.prelude) {
        session.query(text).await;
    }
    cell.protocol.send(&mut session, cell.end, sql, row).await;
    if cell.end != End::Left {
        session.end_block().await;
    }
    let (sent, told, refusals) = (session.sent.clone(), session.told.clone(), session.refusals.clone());
    let sights = observe(side, cell.observer, cell.kind, session, expected).await;
    Run { sent, told, refusals, sights }
}

fn objects(cell: &Cell, words: &Words) -> Vec<String> {
    let made = cell.way.objects(cell.kind);
    if made.is_empty() {
        return Vec::new();
    }
    let script = format!(
        "CREATE SCHEMA {{schema}}; GRANT ALL ON SCHEMA {{schema}} TO PUBLIC; {made} \
         GRANT ALL ON ALL TABLES IN SCHEMA {{schema}} TO PUBLIC"
    );
    vec![words.fill_in(&script)]
}

fn declarations(cell: &Cell, words: &Words) -> Vec<String> {
    let declare = |name: &&str| format!("SELECT shardgate.declare_function('{}')", words.fill_in(name));
    let functions = if cell.tables.is_declared() { cell.way.declared() } else { &[] };
    functions.iter().map(declare).collect()
}

async fn create(side: &Side<'_>, statements: &[String]) -> Result<(), String> {
    let mut client = side.client().await;
    for sql in statements {
        let told = client.ask(sql).await;
        if told.contains("E(") {
            return Err(told);
        }
    }
    Ok(())
}

/// What cells have created goes, on both sides.
pub async fn clean_up(stage: &Stage, cells: &[(Cell, Words)]) {
    let Some((_, words)) = cells.first() else { return };
    let schemas: Vec<&str> = cells.iter().map(|(_, words)| words.schema()).collect();
    let mut script = format!("DROP SCHEMA IF EXISTS {} CASCADE", schemas.join(", "));
    // The rows apart: until a schema change is committed, statements are read by the catalog before it.
    let mut rows = String::new();
    for (cell, words) in cells {
        script += &words.fill_in(cell.way.clean_up());
        if matches!(cell.way.call(cell.kind).1, Form::Insert { .. }) {
            rows += &words.fill_in("DELETE FROM {inbox};");
        }
    }
    for is_proxied in [false, true] {
        let mut client: WireClient = stage.side(is_proxied, words).client().await;
        for text in [&script, &rows] {
            let told = client.ask(text).await;
            assert!(!told.contains("E("), "{text}: {told}");
        }
    }
}

fn sent(run: &Run) -> String {
    run.sent.iter().fold(String::new(), |all, line| all + "    " + line + "\n")
}

fn differences(who: &str, expected: &[String], got: &[String], sent: &str) -> String {
    let mut text = format!("{who} saw something else; sent:\n{sent}");
    let missing = String::from("nothing");
    for index in 0..expected.len().max(got.len()) {
        let (wanted, told) = (expected.get(index).unwrap_or(&missing), got.get(index).unwrap_or(&missing));
        if wanted != told {
            let (wanted, told) = what_differs(wanted, told);
            writeln!(text, "    PostgreSQL: {wanted}\n    proxy:      {told}").expect("written");
        }
    }
    text
}

/// Of two answers that have as many parts the parts that differ.
fn what_differs(wanted: &str, told: &str) -> (String, String) {
    const APART: &str = ", ";
    if wanted.split(APART).count() != told.split(APART).count() {
        return (wanted.to_owned(), told.to_owned());
    }
    let parts = wanted.split(APART).zip(told.split(APART)).filter(|(wanted, told)| wanted != told);
    let (wanted, told): (Vec<&str>, Vec<&str>) = parts.unzip();
    (wanted.join(APART), told.join(APART))
}
