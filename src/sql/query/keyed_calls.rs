//! Calls of functions that touch sharded tables by a key that an argument gives: `SELECT balance_of(7)`. The body proves it
//! ([`super::keyed_bodies`]), or a declaration says so.
//!
//! Where the argument is a constant or a parameter, the call has to be on that key's shard, like a statement with the key in its
//! condition. Where it is the key column of a sharded table of the same group, and the function only reads, it is on the right shard
//! wherever that row is, as long as the statement runs on one shard. On several shards, and over rows that are gathered elsewhere, it is
//! refused like any function that touches such tables.

use std::collections::BTreeSet;

use pg_raw_parse::{Node, nodes};

use super::bind::Reader;
use super::expression::Place;
use super::functions::one_server;
use super::keyed_bodies::keyed_by_argument;
use super::leaves::LeafKind;
use super::predicate::Operand;
use super::relations::{self, Resolved};
use super::scope::Frame;
use crate::catalog::{Function, Oid, References};
use crate::shard_key::KeyType;
use crate::shardmap::{GroupId, TableKind};
use crate::sql::analysis::{Effect, Fact, KeyCondition, KeyTest, KeyValue, Part, StoredValue, Test};

/// A call and where it is: the frame in which its arguments are resolved, and its place in the statement.
#[derive(Clone, Copy)]
pub struct CallAt<'n, 'f> {
    pub call: &'n nodes::FuncCall,
    pub frame: &'f Frame<'f>,
    pub place: Place,
}

impl Reader<'_> {
    /// What the call touches besides what it touches by its key.
    pub fn without_key_argument(&mut self, function: &Function, at: CallAt<'_, '_>, mut references: References) -> References {
        let Some((place, keyed)) = self.key_argument(function, &references) else { return references };
        let Some((value, argument_type)) = self.argument(function, at.call, place) else {
            return self.without_key_of_row(function, at, (place, keyed), references);
        };
        let mut touched: Vec<(Oid, Part)> = Vec::new();
        let is_keyed = |oid: &Oid| keyed.as_ref().is_none_or(|keyed| keyed.contains(oid));
        let reads = references.reads.iter().map(|oid| (*oid, false));
        for (oid, stores) in reads.chain(references.writes.iter().map(|oid| (*oid, true))).filter(|(oid, _)| is_keyed(oid)) {
            touched.extend(self.part_by_key(oid, (&value, argument_type), stores).map(|part| (oid, part)));
        }
        if references.writes.iter().any(|oid| touched.iter().any(|(keyed, _)| keyed == oid)) {
            self.notes.writes();
        }
        references.reads.retain(|oid| !touched.iter().any(|(keyed, _)| keyed == oid));
        references.writes.retain(|oid| !touched.iter().any(|(keyed, _)| keyed == oid));
        if !touched.is_empty() {
            self.why.push(Fact::Sentence(format!("Function \"{}\" touches rows of one key, which it is given.", function.name)));
            self.notes.not_pushable(one_server(&function.name));
        }
        for (oid, part) in touched {
            self.notes.hidden_keyed.push(oid);
            self.parts.push(part);
        }
        references
    }

    /// The same where the argument is the key column of a row: on one shard it is there with all rows of its key. Rows that WHERE would
    /// leave out have none of their output computed; what the function wrote for one would stay.
    fn without_key_of_row(
        &mut self,
        function: &Function,
        at: CallAt<'_, '_>,
        (place, keyed): (usize, Option<BTreeSet<Oid>>),
        mut references: References,
    ) -> References {
        self.notes.lacks_key = true;
        let Some(group) = self.group_of_argument(function, at, place) else { return references };
        let is_keyed = |oid: &Oid| {
            let relation = self.context.catalog.relations.get(oid);
            let relation = relation.filter(|relation| !self.context.temporary_tables.contains(&relation.name));
            keyed.as_ref().is_none_or(|keyed| keyed.contains(oid))
                && relation.is_some_and(|relation| {
                    matches!(relations::placed(self.context, relation, true), Resolved::Sharded { group: other, .. } if other.id == group)
                })
        };
        if references.writes.iter().any(is_keyed) {
            return references;
        }
        let (touched, others) = std::mem::take(&mut references.reads).into_iter().partition::<Vec<Oid>, _>(is_keyed);
        references.reads = others;
        if !touched.is_empty() {
            self.why
                .push(Fact::Sentence(format!("Function \"{}\" reads rows of the key of a row, which it is given.", function.name)));
            self.notes.not_pushable(one_server(&function.name));
            self.notes.hidden_keyed.extend(touched);
        }
        references
    }

    /// The group of the sharded table whose whole key the argument is.
    fn group_of_argument(&mut self, function: &Function, at: CallAt<'_, '_>, place: usize) -> Option<GroupId> {
        // RETURNING may see another key than the row was found by.
        let is_output = at.place == Place::Output && self.notes.effect() != Effect::Write;
        let argument = given(function, at.call, place).filter(|_| is_output)?;
        let argument_type = KeyType::of_column(*function.argument_types.get(place)?)?;
        let Operand::Term(term, _) = self.operand(argument, at.frame) else { return None };
        let LeafKind::Sharded { group, key } = &self.leaves.get(term.column.leaf)?.kind else { return None };
        let [key] = key.as_slice() else { return None };
        let is_whole_key =
            term.function.is_none() && key.term.column == term.column && key.column.column_type.is_alike(argument_type);
        is_whole_key.then_some(group.id)
    }

    /// The place of the argument that gives the key, and the tables of which that is proven; without a list: all, as it was declared.
    fn key_argument(&self, function: &Function, references: &References) -> Option<(usize, Option<BTreeSet<Oid>>)> {
        if let Some(declared) = self.declared(function) {
            return Some((declared.key_argument?.checked_sub(1)?, None));
        }
        (0..function.argument_types.len()).find_map(|place| {
            let keyed = keyed_by_argument(self.context, function, references, place, self.body_depth)?;
            Some((place, Some(keyed)))
        })
    }

    fn argument(&mut self, function: &Function, call: &nodes::FuncCall, place: usize) -> Option<(KeyValue, KeyType)> {
        // A value of another type would be converted before the function sees it.
        let argument_type = KeyType::of_column(*function.argument_types.get(place)?)?;
        match self.operand(given(function, call, place)?, &Frame::default()) {
            Operand::Value(value) => Some((value, argument_type)),
            Operand::Term(..) | Operand::Other => None,
        }
    }

    /// `None`: not a sharded table of one key column.
    fn part_by_key(&self, oid: Oid, (value, argument_type): (&KeyValue, KeyType), stores: bool) -> Option<Part> {
        let relation = self.context.catalog.relations.get(&oid)?;
        if self.context.temporary_tables.contains(&relation.name) {
            return None;
        }
        let Resolved::Sharded { table, group, .. } = relations::placed(self.context, relation, true) else { return None };
        let TableKind::Sharded { key, .. } = &table.kind else { return None };
        let [key] = key.as_slice() else { return None };
        let column = relation.column(&key.column).filter(|_| key.column_type.is_alike(argument_type))?;
        let value = value.clone();
        let test = match stores {
            true => Test::Stored(StoredValue { value, typmod: column.typmod, is_not_null: column.is_not_null }),
            false => Test::Equals(value),
        };
        let test = KeyTest { column: 0, column_type: key.column_type, function: key.function.clone(), test };
        Some(Part::Sharded { group: group.id, condition: KeyCondition::Test(test), stores })
    }
}

/// What the call gives for the argument at this place, by its place or its name.
fn given<'n>(function: &Function, call: &'n nodes::FuncCall, place: usize) -> Option<Node<'n>> {
    if call.func_variadic {
        return None;
    }
    let name = function.argument_names.get(place).filter(|name| !name.is_empty());
    let named = call.args().iter().find_map(|argument| match argument {
        Node::NamedArgExpr(named) => (named.name().is_some() && named.name() == name.map(String::as_str)).then(|| named.arg()),
        _ => None,
    });
    named.or_else(|| call.args().get(place).filter(|argument| !matches!(argument, Node::NamedArgExpr(_))))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::shard_key::oid;
    use crate::shardmap::DeclaredFunction;
    use crate::sql::Analyzer;
    use crate::sql::analysis::Scope;
    use crate::sql::testing;

    /// The conditions under which a call of a function with an argument of this type is placed.
    fn conditions(call: &str, argument: Oid, writes: bool) -> Vec<KeyCondition> {
        let mut fixture = testing::library();
        let function = fixture.function("f", 'v', "plpgsql", "BEGIN EXECUTE 'x'; END");
        fixture.catalog.functions.get_mut(&function).unwrap().argument_types = vec![argument];
        let tables = vec![("public".to_owned(), "u".to_owned())];
        let declared = DeclaredFunction {
            schema: "public".to_owned(),
            name: "f".to_owned(),
            reads: if writes { Vec::new() } else { tables.clone() },
            writes: if writes { tables } else { Vec::new() },
            key_argument: Some(1),
            declared_as: None,
        };
        fixture.map.functions.insert(("public".to_owned(), "f".to_owned()), Arc::new(declared));
        let context = fixture.context(&["public"], &[]);
        let read = Analyzer::new().analyze(call, &context).unwrap();
        let Scope::Placed { parts, .. } = &read.statements[0].scope else { panic!("{call}: not placed") };
        let condition = |part: &Part| match part {
            Part::Sharded { condition, .. } => condition.clone(),
            Part::Home => panic!("{call}: at home"),
        };
        parts.iter().map(condition).collect()
    }

    #[test]
    fn a_call_is_placed_by_its_key_argument() {
        let is_equal = |found: &[KeyCondition]| matches!(found, [KeyCondition::Test(KeyTest { test: Test::Equals(_), .. })]);
        let is_stored = |found: &[KeyCondition]| matches!(found, [KeyCondition::Test(KeyTest { test: Test::Stored(_), .. })]);
        assert!(is_equal(&conditions("SELECT f(7)", oid::INT8, false)));
        assert!(is_equal(&conditions("SELECT f($1)", oid::INT8, false)));
        // What would store a row has to have a key.
        assert!(is_stored(&conditions("SELECT f(NULL)", oid::INT8, true)));
        for (call, argument) in [
            ("SELECT f('7')", oid::TEXT),
            ("SELECT f(7.5)", oid::NUMERIC),
            ("SELECT f(x => 7)", oid::INT8),
            ("SELECT f(1 + 6)", oid::INT8),
        ] {
            assert_eq!(conditions(call, argument, false), [KeyCondition::All], "{call}");
        }
    }

    /// Whether a statement over `t` that calls `f(key int8)` touches the rows of one key alone, and why it may not run on several shards.
    fn is_of_row(statement: &str, body: &str) -> bool {
        let mut fixture = testing::library();
        let function = fixture.function("f", 's', "sql", body);
        let function = fixture.catalog.functions.get_mut(&function).unwrap();
        (function.argument_count, function.argument_types, function.is_variadic) = (1, vec![oid::INT8], false);
        function.argument_names = vec!["key".to_owned()];
        let context = fixture.context(&["public"], &[]);
        let read = Analyzer::new().analyze(statement, &context).unwrap();
        let Scope::Placed { parts, pushdown } = &read.statements[0].scope else { return false };
        assert!(pushdown.is_err(), "{statement}: on several shards");
        let is_test = |part: &Part| {
            matches!(part, Part::Sharded { condition: KeyCondition::Test(KeyTest { test: Test::Equals(_), .. }), .. })
        };
        parts.iter().all(is_test)
    }

    #[test]
    fn a_call_goes_with_the_row_whose_key_it_is_given() {
        let reads = "SELECT name FROM u WHERE k = key";
        for statement in [
            "SELECT f(k) FROM t WHERE k = 3",
            "SELECT coalesce(f(x.k), 'none'), count(*) FROM t x WHERE x.k = 3 GROUP BY 1",
            "SELECT f(u.k) FROM t JOIN u ON u.k = t.k WHERE t.k = $1",
            "SELECT (SELECT f(t.k)) FROM t WHERE k = 3",
            "SELECT f(key => k) FROM t WHERE k = 3",
        ] {
            assert!(is_of_row(statement, reads), "{statement}");
        }
        for statement in [
            "SELECT f(a) FROM t WHERE k = 3",
            "SELECT f(k + 0) FROM t WHERE k = 3",
            "SELECT f(k) FROM t",
            "SELECT f(other => k) FROM t WHERE k = 3",
            "SELECT a FROM t WHERE k = 3 AND f(k) > 'a'",
            "UPDATE t SET k = 4 WHERE k = 3 RETURNING f(k)",
        ] {
            assert!(!is_of_row(statement, reads), "{statement}");
        }
        // What it writes would stay where a row is left out after all.
        assert!(!is_of_row("SELECT f(k) FROM t WHERE k = 3", "UPDATE u SET name = 'x' WHERE k = key; SELECT 'x'"));
    }

    /// Whether a call of a function with the arguments `key int8` and `other int8` is placed by the first of them.
    fn is_proven(language: &str, body: &str) -> bool {
        let mut fixture = testing::library();
        let function = fixture.function("f", 'v', language, body);
        let function = fixture.catalog.functions.get_mut(&function).unwrap();
        (function.argument_count, function.argument_types, function.is_variadic) = (2, vec![oid::INT8, oid::INT8], false);
        function.argument_names = vec!["key".to_owned(), "other".to_owned()];
        let context = fixture.context(&["public"], &[]);
        let read = Analyzer::new().analyze("SELECT f(7, 8)", &context).unwrap();
        let is_seven = |part: &Part| match part {
            Part::Sharded { condition: KeyCondition::Test(test), .. } => {
                let value = match &test.test {
                    Test::Equals(value) => value,
                    Test::Stored(stored) => &stored.value,
                    Test::In(_) | Test::AnyOf(_) | Test::Compare(..) => return false,
                };
                matches!(value, KeyValue::Literal { ordinal: 0, .. })
            }
            Part::Sharded { .. } | Part::Home => false,
        };
        matches!(&read.statements[0].scope, Scope::Placed { parts, .. } if !parts.is_empty() && parts.iter().all(is_seven))
    }

    #[test]
    fn a_body_whose_rows_are_of_the_key_is_told_from_others() {
        for (language, body) in [
            ("sql", "SELECT name FROM u WHERE k = key"),
            ("sql", "SELECT name FROM u WHERE u.k = $1 AND name > 'a'"),
            ("sql", "UPDATE u SET name = 'x' WHERE k = key; SELECT count(*) FROM u WHERE k = $1"),
            ("plpgsql", "DECLARE n int; BEGIN SELECT count(*) INTO n FROM u x WHERE x.k = key; RETURN n; END"),
            ("plpgsql", "BEGIN INSERT INTO u (k, name) VALUES (key, 'x'); RETURN 1; END"),
            ("plpgsql", "BEGIN IF other > 3 THEN DELETE FROM u WHERE k = key; END IF; RETURN key + other; END"),
        ] {
            assert!(is_proven(language, body), "{body}");
        }
        for (language, body) in [
            ("sql", "SELECT name FROM u WHERE k = key + 0"),
            ("sql", "SELECT name FROM u WHERE k <> key"),
            ("sql", "SELECT name FROM u WHERE k = other OR k = key"),
            ("sql", "SELECT name FROM u WHERE k = key; DELETE FROM u WHERE name = 'x'"),
            ("sql", "SELECT x.n FROM u, (SELECT 5 AS key) x WHERE u.k = key"),
            ("sql", "SELECT name FROM u, generate_series(1, 2) key WHERE u.k = key"),
            ("sql", "SELECT name FROM u WHERE u.k = (SELECT max(key) FROM u)"),
            ("plpgsql", "BEGIN key := other; RETURN (SELECT count(*) FROM u WHERE k = key); END"),
            ("plpgsql", "BEGIN SELECT other INTO key; RETURN (SELECT count(*) FROM u WHERE k = key); END"),
            ("plpgsql", "DECLARE key int8 := 9; BEGIN RETURN (SELECT count(*) FROM u WHERE k = key); END"),
            ("plpgsql", "BEGIN FOR key IN 1 .. 9 LOOP DELETE FROM u WHERE k = key; END LOOP; RETURN 1; END"),
            ("plpgsql", "BEGIN UPDATE u SET k = other WHERE k = key; RETURN 1; END"),
            ("plpgsql", "#variable_conflict use_column\nBEGIN DELETE FROM u WHERE k = key; RETURN 1; END"),
            ("plpgsql", "BEGIN EXECUTE 'DELETE FROM u WHERE k = $1' USING key; RETURN 1; END"),
            ("plpgsql", "BEGIN DELETE FROM u WHERE k = key; DELETE FROM u WHERE k = other; RETURN 1; END"),
        ] {
            assert!(!is_proven(language, body), "{body}");
        }
    }
}
