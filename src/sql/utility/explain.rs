//! Words for `EXPLAIN (SHARDS)`: which condition a table's key has, and why; how the shards' answers become one.
//!
//! A reading is shared by all texts of a shape, so the facts name literals by number only; the words are made for one text,
//! with its literals as they stand there. For the client that sent the text, never for a log.

use crate::shard_key::{KeyColumn, KeyType, Oid, oid};
use crate::sql::analysis::{
    Combination, Combine, Comparison, Count, DistinctRows, Fact, Groups, KeyCondition, KeyTest, KeyValue, Merge, SortKey, Test,
};
use crate::sql::parse::lexer::Literal;

impl Fact {
    /// The fact as a sentence about this text. `literals`: of the text, as [`crate::sql::Read`] has them.
    pub fn sentence(&self, text: &str, literals: &[Literal]) -> String {
        match self {
            Fact::Sentence(sentence) => sentence.clone(),
            Fact::Restriction { table, condition, key } => Words { text, literals, key }.restriction(table, condition),
        }
    }
}

/// What the proxy does with the rows of several shards. Columns are counted from 1, hidden ones behind the client's.
pub fn merge(merge: &Merge) -> String {
    let mut parts = Vec::new();
    match &merge.combine {
        Some(Combine::Groups(groups)) => parts.extend(grouped(groups)),
        Some(Combine::Distinct(DistinctRows::Whole { .. })) => parts.push("distinct rows".to_owned()),
        Some(Combine::Distinct(DistinctRows::On(keys))) => {
            parts.push(format!("distinct on {}", columns(keys.iter().map(|key| key.column))));
        }
        None => {}
    }
    match (merge.order_by.is_empty(), &merge.combine) {
        (true, None) => parts.push("concatenate".to_owned()),
        (true, Some(_)) => {}
        (false, Some(Combine::Groups(_))) => parts.push(format!("sort by {}", sort_keys(&merge.order_by))),
        (false, Some(Combine::Distinct(_)) | None) => parts.push(format!("by {}", sort_keys(&merge.order_by))),
    }
    let count = |count: &Count| match count {
        Count::Constant(count) => count.to_string(),
        Count::Parameter(number) => format!("${number}"),
        Count::Literal(ordinal) => format!("literal {}", ordinal + 1),
        Count::Column(column) => format!("as column {} says", column + 1),
    };
    let ties = if merge.has_ties { " with ties" } else { "" };
    parts.extend(merge.limit.as_ref().map(|limit| format!("limit {}{ties}", count(limit))));
    parts.extend(merge.offset.as_ref().map(|offset| format!("offset {}", count(offset))));
    parts.join(", ")
}

fn grouped(groups: &Groups) -> Vec<String> {
    let by = match groups.keys.as_slice() {
        [] => "one group of all rows".to_owned(),
        keys => format!("group by {}", columns(keys.iter().map(|key| key.column))),
    };
    let combined = groups.columns.iter().enumerate().filter_map(|(index, combination)| {
        let word = match combination {
            Combination::First => return None,
            Combination::Count | Combination::Sum => "sum",
            Combination::Minimum(_) => "least",
            Combination::Maximum(_) => "greatest",
            Combination::All => "all",
            Combination::Any => "any",
            Combination::Average { counts } => return Some(format!("sum of column {} by sum of column {}", index + 1, counts + 1)),
        };
        let asked = match combination {
            Combination::Minimum(order) | Combination::Maximum(order) => order.asked(),
            _ => None,
        };
        let asked = asked.map(|collation| format!(" (as PostgreSQL sorts text COLLATE {collation})"));
        Some(format!("{word} of column {}{}", index + 1, asked.unwrap_or_default()))
    });
    let last = groups.last_step.as_ref().map(|step| {
        let text = format!("{}...{}", step.before, step.after);
        format!("then PostgreSQL on one of the shards: {}", text.split_whitespace().collect::<Vec<_>>().join(" "))
    });
    std::iter::once(by).chain(combined).chain(last).collect()
}

fn columns(columns: impl Iterator<Item = usize>) -> String {
    columns.map(|column| format!("column {}", column + 1)).collect::<Vec<_>>().join(", ")
}

fn sort_keys(keys: &[SortKey]) -> String {
    let key = |key: &SortKey| {
        let direction = if key.is_descending { " descending" } else { "" };
        let asked = key.text.asked().map(|collation| format!(" (as PostgreSQL sorts text COLLATE {collation})"));
        format!("column {}{direction}{}", key.column + 1, asked.unwrap_or_default())
    };
    keys.iter().map(key).collect::<Vec<_>>().join(", ")
}

/// A text, and the key that its conditions are about.
struct Words<'t> {
    text: &'t str,
    literals: &'t [Literal],
    key: &'t [KeyColumn],
}

const PARTS_SHOWN_MAX: usize = 5;
const LITERAL_CHARACTERS_MAX: usize = 60;

impl Words<'_> {
    fn restriction(&self, table: &str, condition: &KeyCondition) -> String {
        match condition {
            KeyCondition::All => {
                let key: Vec<String> = self.key.iter().map(key_column).collect();
                format!("Table \"{table}\" is not restricted by its shard key ({}).", key.join(", "))
            }
            KeyCondition::Nothing => format!("Table \"{table}\" is restricted to no row."),
            condition => format!("Table \"{table}\" is restricted by {}.", self.condition(condition)),
        }
    }

    /// A condition in SQL's words.
    fn condition(&self, condition: &KeyCondition) -> String {
        let join = |parts: &[KeyCondition], word: &str| {
            let shown: Vec<String> = parts.iter().take(PARTS_SHOWN_MAX).map(|part| self.condition(part)).collect();
            let more = if parts.len() > PARTS_SHOWN_MAX { format!(" {word} ...") } else { String::new() };
            format!("({}{more})", shown.join(&format!(" {word} ")))
        };
        match condition {
            KeyCondition::All => "anything".to_owned(),
            KeyCondition::Nothing => "nothing".to_owned(),
            KeyCondition::Test(test) => self.test(test),
            KeyCondition::And(parts) => join(parts, "AND"),
            KeyCondition::Or(parts) => join(parts, "OR"),
        }
    }

    fn test(&self, test: &KeyTest) -> String {
        let left = match self.key.get(test.column) {
            Some(column) if test.function.is_some() => column.column.clone(),
            Some(column) => key_column(column),
            None => "key".to_owned(),
        };
        match &test.test {
            Test::Equals(right) => format!("{left} = {}", self.value(right)),
            Test::Stored(stored) => format!("{left} := {}", self.value(&stored.value)),
            Test::In(values) => {
                let shown: Vec<String> = values.iter().take(PARTS_SHOWN_MAX).map(|value| self.value(value)).collect();
                let more = if values.len() > PARTS_SHOWN_MAX { ", ..." } else { "" };
                format!("{left} IN ({}{more})", shown.join(", "))
            }
            Test::AnyOf(array) => format!("{left} = ANY ({})", self.value(array)),
            Test::Compare(comparison, right) => format!("{left} {} {}", comparison_symbol(*comparison), self.value(right)),
        }
    }

    fn value(&self, value: &KeyValue) -> String {
        match value {
            KeyValue::Parameter { number, cast } => format!("${number}{}", cast_words(*cast)),
            KeyValue::Literal { ordinal, negative, cast } => {
                let sign = if *negative { "-" } else { "" };
                format!("{sign}{}{}", self.literal(*ordinal), cast_words(*cast))
            }
            KeyValue::Null => "NULL".to_owned(),
            KeyValue::Bool(true) => "true".to_owned(),
            KeyValue::Bool(false) => "false".to_owned(),
            KeyValue::Constant { text, .. } => format!("'{}'", shortened(&text.replace('\'', "''"))),
        }
    }

    /// As it stands in the text.
    fn literal(&self, ordinal: u32) -> String {
        let literal = self.literals.get(ordinal as usize);
        let token = literal.and_then(|literal| self.text.get(literal.start as usize..literal.end as usize));
        token.map_or_else(|| format!("literal {}", ordinal + 1), shortened)
    }
}

fn key_column(column: &KeyColumn) -> String {
    match &column.function {
        Some(function) => function.to_sql(&column.column),
        None => column.column.clone(),
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

fn cast_words(cast: Option<Oid>) -> String {
    let Some(cast) = cast else {
        return String::new();
    };
    match (type_name(cast), oid::array_element(cast).and_then(type_name)) {
        (Some(name), _) => format!("::{name}"),
        (None, Some(element)) => format!("::{element}[]"),
        (None, None) => format!("::{cast}"),
    }
}

fn type_name(type_oid: Oid) -> Option<&'static str> {
    match type_oid {
        oid::VARCHAR => Some("character varying"),
        other => KeyType::of_column(other).map(KeyType::name),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LITERAL_CHARACTERS_MAX) {
        Some((cut, _)) => format!("{}...", text.get(..cut).unwrap_or_default()),
        None => text.to_owned(),
    }
}
