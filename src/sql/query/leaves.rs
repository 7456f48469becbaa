//! Leaves: each reference to a relation, with what is known of its columns.

use std::sync::Arc;

use super::equal_image::has_equal_image;
use super::{ColumnProperties, Output, Term};
use crate::catalog::{self, Catalog, Relation};
use crate::shard_key::{KeyColumn, KeyType};
use crate::shardmap::Group;

/// One reference to a relation in a statement.
#[derive(Debug)]
pub struct Leaf<'c> {
    /// As messages call it.
    pub name: String,
    pub kind: LeafKind<'c>,
    pub columns: Columns<'c>,
    /// `t AS x(a, b)`: names of the first columns.
    pub renamed: Vec<String>,
}

#[derive(Debug)]
pub enum LeafKind<'c> {
    Sharded {
        group: &'c Arc<Group>,
        key: Vec<LeafKey<'c>>,
    },
    Replicated,
    Home,
    /// Catalogue relations and the proxy's own: counted apart when they are met, and nowhere sharded.
    Elsewhere,
    /// Stands for the rows of a sub-select.
    Derived,
}

/// A column of the shard key, as a term of the leaf.
#[derive(Clone, Debug)]
pub struct LeafKey<'c> {
    pub term: Term,
    pub column: &'c KeyColumn,
}

#[derive(Debug)]
pub enum Columns<'c> {
    Relation(&'c Relation),
    Listed(Vec<Output>),
    Unknown,
}

impl Leaf<'_> {
    /// `Some(None)`: not here, for certain. `None`: the columns are not known.
    pub fn find(&self, name: &str) -> Option<Option<usize>> {
        if let Some(index) = self.renamed.iter().position(|renamed| renamed == name) {
            return Some(Some(index));
        }
        let after = self.renamed.len();
        match &self.columns {
            // A sub-select may have several columns of one name, the first of them renamed.
            Columns::Relation(relation) => {
                Some(relation.columns.iter().skip(after).position(|column| column.name == name).map(|index| index + after))
            }
            Columns::Listed(columns) => {
                Some(columns.iter().skip(after).position(|column| column.name == name).map(|index| index + after))
            }
            Columns::Unknown => None,
        }
    }

    pub fn column_count(&self) -> Option<usize> {
        match &self.columns {
            Columns::Relation(relation) => Some(relation.columns.len()),
            Columns::Listed(columns) => Some(columns.len()),
            Columns::Unknown => None,
        }
    }

    pub fn column_name(&self, index: usize) -> Option<&str> {
        if let Some(renamed) = self.renamed.get(index) {
            return Some(renamed);
        }
        match &self.columns {
            Columns::Relation(relation) => relation.columns.get(index).map(|column| column.name.as_str()),
            Columns::Listed(columns) => columns.get(index).map(|column| column.name.as_str()),
            Columns::Unknown => None,
        }
    }

    pub fn properties(&self, index: usize, catalog: &Catalog) -> ColumnProperties {
        match &self.columns {
            Columns::Relation(relation) => {
                relation.columns.get(index).map(|column| column_properties(column, catalog)).unwrap_or_default()
            }
            Columns::Listed(columns) => columns.get(index).map(|column| column.properties.clone()).unwrap_or_default(),
            Columns::Unknown => ColumnProperties::default(),
        }
    }

    /// Of a table's or view's column that has one, as SQL names it.
    pub fn collation(&self, index: usize) -> Option<&str> {
        match &self.columns {
            Columns::Relation(relation) => relation.columns.get(index)?.collation.as_deref(),
            Columns::Listed(_) | Columns::Unknown => None,
        }
    }
}

pub fn column_properties(column: &catalog::Column, catalog: &Catalog) -> ColumnProperties {
    let type_oid = catalog.under_domains(column.type_oid);
    ColumnProperties {
        type_oid,
        is_domain: type_oid != column.type_oid,
        typmod: column.typmod,
        is_deterministic: column.is_deterministic,
        is_collation_c: column.is_collation_c,
        collation: column.collation.clone(),
        is_not_null: column.is_not_null,
        has_equal_image: column.is_deterministic && has_equal_image(type_oid, column.typmod, catalog),
    }
}

/// Types within which equal values are the same value: an equality between columns of one such family carries a key over.
pub fn same_family(a: KeyType, b: KeyType) -> bool {
    let is_integer = |key_type| matches!(key_type, KeyType::Int2 | KeyType::Int4 | KeyType::Int8);
    a == b || (is_integer(a) && is_integer(b))
}
