//! DO blocks that touch sharded tables by constant keys: `DO $$ BEGIN UPDATE entries SET amount = 0 WHERE account = 7; … END $$`.
//!
//! Each statement of the block is read as if a client sent it. The block runs where the rows of all of them are, if that is one shard:
//! there it does what it does on one server. The literals are those of the block's own text, so that their values stand in the plan.

use std::collections::BTreeSet;

use pg_raw_parse::Node;

use super::bind::Reader;
use super::keyed_bodies::{key_of, read_statement};
use super::relations::{self, Resolved};
use crate::catalog::{BodyReader, Oid};
use crate::shard_key::oid;
use crate::sql::analysis::{Command, KeyCondition, KeyTest, KeyValue, Part, Scope, StoredValue, Test};
use crate::sql::body::{SqlBodyReader, queries};
use crate::sql::parse::lexer::{self, LiteralClass};
use crate::sql::parse::parse;
use crate::sql::placing;
use crate::sql::statement::Source;

impl Reader<'_> {
    /// The sharded tables that a PL/pgSQL block touches, and where it has to run for it. `None`: some of its statements cannot be read, or
    /// touch rows of several shards.
    pub fn placed_block(&self, body: &str) -> Option<(BTreeSet<Oid>, Vec<Part>)> {
        let references = SqlBodyReader.references("plpgsql", body);
        let is_bound = |name: &str| references.bound_names.iter().any(|bound| bound == name);
        if references.unknown.is_some() || is_bound("#") {
            return None;
        }
        let (mut touched, mut parts) = (BTreeSet::new(), Vec::new());
        for text in queries("plpgsql", body)? {
            let tree = parse(&text).ok()?;
            let literals = lexer::scan(&text).literals;
            for node in tree.stmts() {
                let source = Source { text: &text, literals: &literals, lead: 0, start: 0, end: text.len() };
                let (tables, of_statement) = self.placed_statement(node, source)?;
                touched.extend(tables);
                parts.extend(of_statement);
            }
        }
        // A variable of a key column's name could be meant where the column is.
        let key_columns = touched.iter().filter_map(|oid| key_of(self.context, *oid)).flatten();
        key_columns.into_iter().all(|key| !is_bound(&key.column)).then_some((touched, parts))
    }

    fn placed_statement(&self, node: Node<'_>, source: Source<'_>) -> Option<(BTreeSet<Oid>, Vec<Part>)> {
        let mut reader = Reader::new(self.context, source.text, source.literals);
        reader.is_body = true;
        reader.body_depth = self.body_depth + 1;
        reader.search_path.clone_from(&self.search_path);
        let (kind, merge) = read_statement(&mut reader, node)?;
        // That is the home shard's to answer, as before the block had a key.
        if reader.notes.asks_one_server {
            return None;
        }
        let is_sharded = |oid: &Oid| {
            let relation = self.context.catalog.relations.get(oid);
            relation.is_some_and(|relation| matches!(relations::placed(self.context, relation, true), Resolved::Sharded { .. }))
        };
        let by_calls = reader.keyed.iter().chain(&reader.notes.hidden_keyed).copied();
        let touched = reader.notes.relations.iter().copied().chain(by_calls).filter(is_sharded).collect();
        let named = std::mem::take(&mut reader.named);
        let placement = placing::seen_twice(placing::finish(reader, Command::Query(kind), merge), &named, source, self.context);
        let parts = match placement.scope {
            Scope::Placed { parts, .. } => parts,
            Scope::Tableless | Scope::Replicated | Scope::System => Vec::new(),
            Scope::Session | Scope::Map | Scope::Proxy(_) | Scope::EveryShard | Scope::Refused(_) => return None,
        };
        let parts: Option<Vec<Part>> = parts.into_iter().map(|part| of_constants(part, source)).collect();
        Some((touched, parts?))
    }
}

/// With the literals' values. `None`: it hangs on what the block has no value for.
fn of_constants(part: Part, source: Source<'_>) -> Option<Part> {
    Some(match part {
        Part::Home => Part::Home,
        Part::Sharded { group, condition, stores } => Part::Sharded { group, condition: condition_of(condition, source)?, stores },
    })
}

fn condition_of(condition: KeyCondition, source: Source<'_>) -> Option<KeyCondition> {
    Some(match condition {
        // It would run where one of its rows is.
        KeyCondition::All => return None,
        KeyCondition::Nothing => KeyCondition::Nothing,
        KeyCondition::And(conditions) => {
            let known: Vec<KeyCondition> = conditions.into_iter().filter_map(|inner| condition_of(inner, source)).collect();
            if known.is_empty() {
                return None;
            }
            KeyCondition::And(known)
        }
        KeyCondition::Or(conditions) => {
            let known: Option<Vec<KeyCondition>> = conditions.into_iter().map(|inner| condition_of(inner, source)).collect();
            KeyCondition::Or(known?)
        }
        KeyCondition::Test(test) => KeyCondition::Test(KeyTest { test: test_of(test.test, source)?, ..test }),
    })
}

fn test_of(test: Test, source: Source<'_>) -> Option<Test> {
    Some(match test {
        Test::Equals(value) => Test::Equals(value_of(value, source)?),
        Test::In(values) => Test::In(values.into_iter().map(|value| value_of(value, source)).collect::<Option<_>>()?),
        Test::AnyOf(value) => Test::AnyOf(value_of(value, source)?),
        Test::Compare(comparison, value) => Test::Compare(comparison, value_of(value, source)?),
        Test::Stored(stored) => Test::Stored(StoredValue { value: value_of(stored.value, source)?, ..stored }),
    })
}

fn value_of(value: KeyValue, source: Source<'_>) -> Option<KeyValue> {
    match value {
        KeyValue::Literal { ordinal, negative, cast } => {
            let literal = source.literals.get(usize::try_from(ordinal).ok()?)?;
            // `- '5'` is not a constant, and a cast to char(n) may cut.
            if negative && literal.class == LiteralClass::String || cast == Some(oid::BPCHAR) {
                return None;
            }
            let text = literal.value(source.text)?;
            let text = if negative { format!("-{text}") } else { text.into_owned() };
            Some(KeyValue::Constant { text, oid: cast.unwrap_or(literal.class.type_oid()) })
        }
        KeyValue::Parameter { .. } => None,
        KeyValue::Null | KeyValue::Bool(_) | KeyValue::Constant { .. } => Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::Analyzer;
    use crate::sql::testing;

    /// The parts of a block; of a sharded one whether it has a key.
    fn parts(body: &str, temporary: &[&str]) -> Vec<Option<bool>> {
        let context = testing::library().context(&["public"], temporary);
        let read = Analyzer::new().analyze(&format!("DO $$ {body} $$"), &context).unwrap();
        let Scope::Placed { parts, .. } = &read.statements[0].scope else { panic!("{body}: {:?}", read.statements[0].scope) };
        let is_keyed = |part: &Part| match part {
            Part::Home => None,
            Part::Sharded { condition, .. } => Some(*condition != KeyCondition::All),
        };
        parts.iter().map(is_keyed).collect()
    }

    #[test]
    fn a_block_of_constant_keys_is_where_their_rows_are() {
        let (keyed, unkeyed) = (Some(true), Some(false));
        for (body, expected) in [
            ("BEGIN UPDATE t SET x = 1 WHERE k = 5; END", vec![keyed]),
            ("BEGIN UPDATE t SET x = 1 WHERE k = 5; PERFORM 1 FROM u WHERE k IN (5, 6); END", vec![keyed, keyed]),
            ("BEGIN UPDATE t SET x = 1 WHERE k = 5 AND name = 'a' AND x > 1; END", vec![keyed]),
            ("BEGIN UPDATE t SET x = 1 WHERE k = 5; INSERT INTO home (id) VALUES (1); END", vec![keyed, None]),
            ("DECLARE n int := 5; BEGIN UPDATE t SET x = 1 WHERE k = n; END", vec![unkeyed]),
            ("DECLARE k int := 5; BEGIN UPDATE t SET x = 1 WHERE t.k = 5; END", vec![unkeyed]),
            ("BEGIN UPDATE t SET x = 1 WHERE k = - '5'; END", vec![unkeyed]),
            ("BEGIN UPDATE t SET x = 1; END", vec![unkeyed]),
            ("BEGIN UPDATE t SET name = current_database() WHERE k = 5; END", vec![unkeyed]),
            ("DECLARE n text := current_database(); BEGIN UPDATE t SET name = n WHERE k = 5; END", vec![unkeyed]),
            ("BEGIN RAISE NOTICE '%', 't'::regclass::oid; UPDATE t SET x = 1 WHERE k = 5; END", vec![unkeyed]),
        ] {
            let found = parts(body, &[]);
            assert!(
                expected.iter().all(|part| found.contains(part)) && found.iter().all(|part| expected.contains(part)),
                "{body}: {found:?}"
            );
        }
    }

    /// The lasting table of its name is another one, which may be on the other shard.
    #[test]
    fn a_temporary_table_is_at_home() {
        assert!(parts("BEGIN UPDATE t SET x = 1 WHERE k = 5; PERFORM name FROM ref WHERE id = 1; END", &["ref"]).contains(&None));
    }
}
