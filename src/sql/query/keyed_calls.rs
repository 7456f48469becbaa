//! Calls of functions that are declared to touch sharded tables by a key that an argument gives: `SELECT balance_of(7)`.
//!
//! Where the argument is a constant or a parameter, the call has to be on that key's shard, like a statement with the key in its
//! condition; on several shards, and over rows that are gathered elsewhere, it is refused like any function that touches such tables.

use pg_raw_parse::{Node, nodes};

use super::bind::Reader;
use super::predicate::Operand;
use super::relations::{self, Resolved};
use super::scope::Frame;
use crate::catalog::{Function, Oid, References};
use crate::shardmap::TableKind;
use crate::sql::analysis::{Fact, KeyCondition, KeyTest, KeyValue, Part, Test};

impl Reader<'_> {
    /// What the call touches besides what it touches by its key.
    pub fn without_key_argument(&mut self, function: &Function, call: &nodes::FuncCall, mut references: References) -> References {
        let Some(value) = self.key_argument(function, call) else { return references };
        let mut touched: Vec<(Oid, Part)> = Vec::new();
        for (oid, stores) in
            references.reads.iter().map(|oid| (*oid, false)).chain(references.writes.iter().map(|oid| (*oid, true)))
        {
            touched.extend(self.part_by_key(oid, &value, stores).map(|part| (oid, part)));
        }
        references.reads.retain(|oid| !touched.iter().any(|(keyed, _)| keyed == oid));
        references.writes.retain(|oid| !touched.iter().any(|(keyed, _)| keyed == oid));
        if !touched.is_empty() {
            self.why.push(Fact::Sentence(format!(
                "Function \"{}\" is declared to touch rows of one key, which it is given.",
                function.name
            )));
            self.notes.not_pushable(super::functions::one_server(&function.name));
        }
        for (oid, part) in touched {
            self.notes.hidden_keyed.push(oid);
            self.parts.push(part);
        }
        references
    }

    fn key_argument(&mut self, function: &Function, call: &nodes::FuncCall) -> Option<KeyValue> {
        let declared = self.context.map.functions.get(&(function.schema.clone(), function.name.clone()))?;
        let place = declared.key_argument?.checked_sub(1)?;
        let is_by_place = !call.func_variadic && !call.args().iter().any(|argument| matches!(argument, Node::NamedArgExpr(_)));
        let argument = call.args().get(place).filter(|_| is_by_place)?;
        match self.operand(argument, &Frame::default()) {
            Operand::Value(value) => Some(value),
            Operand::Term(..) | Operand::Other => None,
        }
    }

    /// `None`: not a sharded table of one key column.
    fn part_by_key(&self, oid: Oid, value: &KeyValue, stores: bool) -> Option<Part> {
        let relation = self.context.catalog.relations.get(&oid)?;
        if self.context.temporary_tables.contains(&relation.name) {
            return None;
        }
        let Resolved::Sharded { table, group, .. } = relations::placed(self.context, relation, true) else { return None };
        let TableKind::Sharded { key, .. } = &table.kind else { return None };
        let [key] = key.as_slice() else { return None };
        let test =
            KeyTest { column: 0, column_type: key.column_type, function: key.function.clone(), test: Test::Equals(value.clone()) };
        Some(Part::Sharded { group: group.id, condition: KeyCondition::Test(test), stores })
    }
}
