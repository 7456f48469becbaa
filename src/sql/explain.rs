//! Words for `EXPLAIN (SHARDS)`: which condition a table's key has, and why.
//!
//! Literals appear by number: the sentence is shared by all texts of a shape, and logs may show it.

use super::analysis::{Comparison, KeyCondition, KeyTest, KeyValue, Test};
use crate::shard_key::KeyColumn;

/// One sentence about a sharded table of the statement.
pub fn part(table: &str, condition: &KeyCondition, key: &[KeyColumn]) -> String {
    match condition {
        KeyCondition::All => format!("table \"{table}\" is not restricted by its shard key ({})", key_names(key)),
        KeyCondition::Nothing => format!("table \"{table}\" is restricted to no row"),
        condition => format!("table \"{table}\" is restricted by {}", self::condition(condition, key)),
    }
}

fn key_names(key: &[KeyColumn]) -> String {
    key.iter().map(key_column).collect::<Vec<String>>().join(", ")
}

fn key_column(column: &KeyColumn) -> String {
    match &column.function {
        Some(function) => function.to_sql(&column.column),
        None => column.column.clone(),
    }
}

/// A condition in SQL's words.
pub fn condition(condition: &KeyCondition, key: &[KeyColumn]) -> String {
    let join = |parts: &[KeyCondition], word: &str| {
        let shown: Vec<String> = parts.iter().take(PARTS_SHOWN_MAX).map(|part| self::condition(part, key)).collect();
        let more = if parts.len() > PARTS_SHOWN_MAX { format!(" {word} …") } else { String::new() };
        format!("({}{more})", shown.join(&format!(" {word} ")))
    };
    match condition {
        KeyCondition::All => "anything".to_owned(),
        KeyCondition::Nothing => "nothing".to_owned(),
        KeyCondition::Test(key_test) => test(key_test, key),
        KeyCondition::And(parts) => join(parts, "AND"),
        KeyCondition::Or(parts) => join(parts, "OR"),
    }
}

const PARTS_SHOWN_MAX: usize = 5;

fn test(test: &KeyTest, key: &[KeyColumn]) -> String {
    let left = match key.get(test.column) {
        Some(column) if test.function.is_some() => column.column.clone(),
        Some(column) => key_column(column),
        None => "key".to_owned(),
    };
    match &test.test {
        Test::Equals(right) => format!("{left} = {}", value(right)),
        Test::Stored(stored) => format!("{left} := {}", value(&stored.value)),
        Test::In(values) => {
            let shown: Vec<String> = values.iter().take(PARTS_SHOWN_MAX).map(value).collect();
            let more = if values.len() > PARTS_SHOWN_MAX { ", …" } else { "" };
            format!("{left} IN ({}{more})", shown.join(", "))
        }
        Test::AnyOf(array) => format!("{left} = ANY ({})", value(array)),
        Test::Compare(comparison, right) => format!("{left} {} {}", comparison_symbol(*comparison), value(right)),
    }
}

fn comparison_symbol(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
    }
}

fn value(value: &KeyValue) -> String {
    let with_cast = |text: String, cast: &Option<u32>| match cast {
        Some(oid) => format!("{text}::{oid}"),
        None => text,
    };
    match value {
        KeyValue::Parameter { number, cast } => with_cast(format!("${number}"), cast),
        KeyValue::Literal { ordinal, negative, cast } => {
            with_cast(format!("{}literal {}", if *negative { "-" } else { "" }, usize::from(*ordinal) + 1), cast)
        }
        KeyValue::Null => "NULL".to_owned(),
        KeyValue::Bool(true) => "true".to_owned(),
        KeyValue::Bool(false) => "false".to_owned(),
        KeyValue::Constant { text, .. } => format!("'{}'", text.replace('\'', "''")),
    }
}
