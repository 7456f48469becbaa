//! The corpus: statements of every shape with what their reading must be, in `corpus/*.txt`.
//!
//! A case is a statement on one or more lines, then a line that begins with `=`: where it may run, and what the second reading
//! says of it. `@path a, b` and `@temporary t` hold for the cases below them. With `UPDATE_CORPUS=1` the expectations
//! are written anew, to be looked at in the diff: a condition that is narrower than the statement is the worst defect there is.

use std::fs;
use std::path::{Path, PathBuf};

use super::analysis::{Analysis, Effect, Fact, KeyCondition, Opinion, Part, Scope};
use super::cache::Analyzer;
use super::context::Context;
use super::parse::lexer::Literal;
use super::testing;

#[test]
fn every_statement_of_the_corpus_is_read_as_written_down() {
    let is_update = std::env::var_os("UPDATE_CORPUS").is_some();
    let mut faults = Vec::new();
    let mut count = 0;
    for path in files() {
        let written = fs::read_to_string(&path).expect("readable");
        let read = reread(&written, &mut count);
        if is_update {
            fs::write(&path, &read).expect("writable");
            continue;
        }
        for (number, (expected, found)) in written.lines().zip(read.lines()).enumerate() {
            if expected != found {
                faults.push(format!("{}:{}\n  expected {expected}\n  found    {found}", path.display(), number + 1));
            }
        }
        assert_eq!(written.lines().count(), read.lines().count(), "a case in {} has no expectation", path.display());
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(count >= 300, "{count} statements");
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sql/corpus");
    let entries = fs::read_dir(folder).expect("the corpus");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

/// The file as it should be.
fn reread(written: &str, count: &mut usize) -> String {
    let mut read = String::new();
    let mut statement = String::new();
    let mut path = vec!["public".to_owned()];
    let mut temporary = Vec::new();
    let mut context = made(&path, &temporary);
    let list =
        |text: &str| -> Vec<String> { text.split(',').map(|name| name.trim().to_owned()).filter(|n| !n.is_empty()).collect() };
    let finish = |statement: &mut String, context: &Context, read: &mut String, count: &mut usize| {
        if !statement.trim().is_empty() {
            *count += 1;
            for line in reading(statement.trim(), context) {
                read.push_str(&format!("= {line}\n"));
            }
        }
        statement.clear();
    };
    for line in written.lines() {
        if line.starts_with('=') {
            continue;
        }
        if let Some(names) = line.strip_prefix("@path") {
            path = list(names);
            context = made(&path, &temporary);
        } else if let Some(names) = line.strip_prefix("@temporary") {
            temporary = list(names);
            context = made(&path, &temporary);
        } else if line.is_empty() || line.starts_with('#') {
            finish(&mut statement, &context, &mut read, count);
        } else {
            statement.push_str(line);
            statement.push('\n');
        }
        read.push_str(line);
        read.push('\n');
        // The expectation follows the statement's last line.
        if !statement.is_empty() && line.ends_with(';') {
            finish(&mut statement, &context, &mut read, count);
        }
    }
    finish(&mut statement, &context, &mut read, count);
    read
}

fn made(path: &[String], temporary: &[String]) -> Context {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let temporary: Vec<&str> = temporary.iter().map(String::as_str).collect();
    testing::library().context(&path, &temporary)
}

fn reading(text: &str, context: &Context) -> Vec<String> {
    match Analyzer::new().read(text, context) {
        Err(error) => vec![format!("error: {}", error.message)],
        Ok(read) => read.analyzed.statements.iter().map(|analysis| words(analysis, text, &read.literals)).collect(),
    }
}

fn words(analysis: &Analysis, text: &str, literals: &[Literal]) -> String {
    let effect = match analysis.effect {
        Effect::Read => "",
        Effect::ReadLocking => " [locks]",
        Effect::Write => " [writes]",
    };
    let scope = match &analysis.scope {
        Scope::Session => "session".to_owned(),
        Scope::Map => "map".to_owned(),
        Scope::Proxy(rows) => {
            let calls = rows.calls.iter().map(|call| format!("{}()", call.function));
            format!("proxy ({})", rows.relations.iter().cloned().chain(calls).collect::<Vec<_>>().join(", "))
        }
        Scope::Tableless => "tableless".to_owned(),
        Scope::System => "system".to_owned(),
        Scope::Replicated => "replicated".to_owned(),
        Scope::EveryShard => "every shard".to_owned(),
        Scope::Refused(refusal) => format!("refused: {}", refusal.message),
        Scope::Placed { parts, pushdown } => {
            let across = match (pushdown, &analysis.merge) {
                (Err(reason), _) => format!("one shard ({})", reason.message),
                (Ok(()), Err(reason)) => format!("one shard (merge: {})", reason.message),
                (Ok(()), Ok(_)) => "any shards".to_owned(),
            };
            format!("{} | {across}", placed(analysis, parts, text, literals).join(", "))
        }
    };
    let opinion = match analysis.opinion {
        None => "",
        Some(Opinion::Agrees) => " | second: agrees",
        Some(Opinion::Unsure) => " | second: unsure",
        Some(Opinion::Differs(reason)) => &format!(" | second: {reason}"),
    };
    format!("{scope}{effect}{opinion}")
}

/// Every sharded table with its condition, then what else must be there.
fn placed(analysis: &Analysis, parts: &[Part], text: &str, literals: &[Literal]) -> Vec<String> {
    let mut words = Vec::new();
    let mut explained = Vec::new();
    for fact in &analysis.why {
        if let Fact::Restriction { condition, .. } = fact {
            explained.push(condition);
            words.push(
                fact.sentence(text, literals).trim_end_matches('.').replace("Table ", "").replace(" is restricted by ", ": "),
            );
        }
    }
    for word in &mut words {
        if let Some((table, _)) = word.clone().split_once(" is not restricted") {
            *word = format!("{table}: all");
        } else if let Some((table, _)) = word.clone().split_once(" is restricted to no row") {
            *word = format!("{table}: nothing");
        }
    }
    let mut everything = Vec::new();
    for part in parts {
        match part {
            Part::Sharded { condition, .. } if explained.contains(&condition) => {}
            Part::Home => words.push("home".to_owned()),
            Part::Sharded { group, condition: KeyCondition::All, .. } => everything.push(group.0.to_string()),
            Part::Sharded { group, condition, .. } => words.push(format!("group {}: {condition:?}", group.0)),
        }
    }
    if !everything.is_empty() {
        words.push(format!("all of groups {}", everything.join(" ")));
    }
    words
}
