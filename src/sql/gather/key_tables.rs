//! Tables of the home shard whose keys restrict what is shipped to them.
//!
//! The statement reads them where it runs, so none of their rows are shipped. But a big sharded table that is joined with a few of
//! them would be, as a whole: their keys are copied into a temporary table first, as if they were an input, by the scratch session
//! itself and in the snapshot in which the statement will read them.
//!
//! Not views, which may compute anything twice; not foreign tables, which have another snapshot each time; not tables with row
//! security, whose policies would be asked twice.

use std::collections::BTreeSet;

use super::filters::Piece;
use super::inputs::{column_definition, qualified};
use super::keys::Keys;
use super::semijoins::{Known, Place};
use super::splicing::TEMPORARY_SCHEMA;
use super::{Input, Source};
use crate::catalog::{Catalog, Relation, RelationKind, quoted_identifier};

/// A table whose keys may be wanted.
#[derive(Clone, Debug)]
pub struct KeyTable<'c> {
    pub name: String,
    pub relation: &'c Relation,
    pub with_children: bool,
    /// Rows that fail one of these are not needed.
    pub predicates: Vec<Vec<Piece>>,
}

/// Whether a table that stays where it is may be asked for keys.
pub fn has_keys(known: &Known<'_>, catalog: &Catalog) -> bool {
    known.place == Place::Elsewhere && catalog.family(known.relation).iter().all(|relation| is_read_alike(relation))
}

/// Read again in the same snapshot it has the same rows.
fn is_read_alike(relation: &Relation) -> bool {
    let is_stored = match relation.kind {
        RelationKind::Table | RelationKind::PartitionedTable | RelationKind::MaterializedView => true,
        RelationKind::View | RelationKind::ForeignTable | RelationKind::Sequence => false,
    };
    is_stored && !relation.has_row_security
}

/// Inputs for those tables whose keys these inputs wait for, or each other.
pub fn key_inputs(tables: &[KeyTable<'_>], inputs: &[Input]) -> Vec<Input> {
    let mut wanted: BTreeSet<(String, String)> = BTreeSet::new();
    let key = |keys: &Keys| (keys.input.clone(), keys.column.clone());
    wanted.extend(inputs.iter().flat_map(Input::keys).map(key));
    let is_wanted = |wanted: &BTreeSet<(String, String)>, table: &KeyTable<'_>| wanted.iter().any(|(name, _)| *name == table.name);
    loop {
        let before = wanted.len();
        for table in tables {
            if is_wanted(&wanted, table) {
                wanted.extend(super::keys_in(&table.predicates).map(key));
            }
        }
        if wanted.len() == before {
            break;
        }
    }
    let columns =
        |table: &KeyTable<'_>| wanted.iter().filter(|(name, _)| *name == table.name).map(|(_, column)| column.clone()).collect();
    tables.iter().filter(|table| is_wanted(&wanted, table)).map(|table| input(table, columns(table))).collect()
}

fn input(table: &KeyTable<'_>, columns: Vec<String>) -> Input {
    let KeyTable { name, relation, with_children, predicates } = table;
    let is_column = |column: &&crate::catalog::Column| columns.contains(&quoted_identifier(&column.name));
    let definitions: Vec<String> = relation.columns.iter().filter(is_column).map(column_definition).collect();
    let only = if *with_children { "" } else { "ONLY " };
    Input {
        source: Source::Scratch,
        name: name.clone(),
        loaded: name.clone(),
        relation: format!("{}.{}", relation.schema, relation.name),
        create: format!(
            "CREATE TEMPORARY TABLE {TEMPORARY_SCHEMA}.{} ({}) ON COMMIT DROP",
            quoted_identifier(name),
            definitions.join(", ")
        ),
        fragment: format!("SELECT {} FROM {only}{}", columns.join(", "), qualified(relation)),
        columns,
        inserted: None,
        predicates: predicates.clone(),
        indexes: Vec::new(),
        round: 0,
        combine: None,
        origin: None,
        brought: Vec::new(),
    }
}
