//! A database's schema as data: relations, columns, constraints, functions, types, as read from the home shard.
//!
//! Immutable; a new version replaces the old one as a whole. Pure: reading it from a server is `backend::catalog_reader`'s
//! work. Names are as in pg_catalog: folded and unquoted. Says nothing about sharding: which tables are distributed is the
//! shard map's knowledge.

use std::collections::HashMap;

mod closure;

pub use closure::{Closure, References};

pub type Oid = u32;

/// Everything known of one database's schema.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Grows with every reload that found a difference; part of the key of every plan cache.
    pub version: u64,
    /// Digest of what was read, for comparing shards and noticing direct DDL.
    pub digest: String,
    pub relations: HashMap<Oid, Relation>,
    /// (schema, name) → oid.
    pub relation_names: HashMap<(String, String), Oid>,
    pub functions: HashMap<Oid, Function>,
    /// name → every function of that name outside pg_catalog and information_schema.
    pub function_names: HashMap<String, Vec<Oid>>,
    pub types: HashMap<Oid, Type>,
    /// Operators named `=`, `<`, `<=`, `>`, `>=` or `<>` exist outside pg_catalog in these schemas: a condition is not proven
    /// when the search path has one of them.
    pub operator_schemas: Vec<String>,
    pub schemas: Vec<String>,
    /// The database's default collation sorts bytewise (C, POSIX, builtin C.UTF-8).
    pub is_collation_c: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelationKind {
    Table,
    PartitionedTable,
    View,
    MaterializedView,
    ForeignTable,
    Sequence,
}

#[derive(Clone, Debug)]
pub struct Relation {
    pub oid: Oid,
    pub schema: String,
    pub name: String,
    pub kind: RelationKind,
    pub owner: String,
    /// Not dropped, in attnum order.
    pub columns: Vec<Column>,
    /// Unique indexes: primary keys, unique constraints, CREATE UNIQUE INDEX, and exclusion constraints.
    pub uniques: Vec<Unique>,
    pub foreign_keys: Vec<ForeignKey>,
    pub triggers: Vec<Trigger>,
    pub policies: Vec<Policy>,
    /// `pg_get_viewdef` of a view or materialised view.
    pub view_definition: Option<String>,
    /// Rules other than a view's `_RETURN`: their names.
    pub rules: Vec<String>,
    pub has_row_security: bool,
    /// Parents (inheritance or partitioning) and children, by oid.
    pub parents: Vec<Oid>,
    pub children: Vec<Oid>,
}

#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub attnum: i16,
    pub type_oid: Oid,
    pub type_name: String,
    pub typmod: i32,
    pub is_not_null: bool,
    /// `true` unless the collation is nondeterministic (an ICU option). Equality is then bytewise.
    pub is_deterministic: bool,
    /// The column's collation sorts bytewise.
    pub is_collation_c: bool,
    /// `pg_get_expr` of the default; also of a generated column.
    pub default: Option<String>,
    pub is_generated: bool,
    /// `a`lways or by `d`efault.
    pub identity: Option<char>,
}

#[derive(Clone, Debug)]
pub struct Unique {
    pub name: String,
    pub is_primary: bool,
    /// An exclusion constraint.
    pub is_exclusion: bool,
    /// A constraint, not only an index.
    pub is_constraint: bool,
    /// Plain columns of the index; `None` stands for an expression.
    pub columns: Vec<Option<String>>,
    pub is_partial: bool,
    /// `pg_get_indexdef`.
    pub definition: String,
}

#[derive(Clone, Debug)]
pub struct ForeignKey {
    pub name: String,
    pub columns: Vec<String>,
    pub referenced: Oid,
    pub referenced_columns: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Trigger {
    pub name: String,
    pub function: Oid,
    pub is_before: bool,
    pub is_row: bool,
    pub has_transition_tables: bool,
    /// `pg_get_triggerdef`.
    pub definition: String,
}

#[derive(Clone, Debug)]
pub struct Policy {
    pub name: String,
    /// USING and WITH CHECK expressions as text.
    pub expressions: Vec<String>,
    /// Relations that pg_depend names.
    pub relations: Vec<Oid>,
}

#[derive(Clone, Debug)]
pub struct Function {
    pub oid: Oid,
    pub schema: String,
    pub name: String,
    pub argument_count: usize,
    pub language: String,
    /// `i`mmutable, `s`table, `v`olatile.
    pub volatility: char,
    /// `f`unction, `p`rocedure, `a`ggregate, `w`indow.
    pub kind: char,
    pub body: String,
    /// Member of an extension: treated as transparent, like pg_catalog.
    pub is_extension_member: bool,
    /// Relations that pg_depend names (`BEGIN ATOMIC` bodies).
    pub relations: Vec<Oid>,
    /// `SET search_path` of the function, if any.
    pub search_path: Option<Vec<String>>,
}

#[derive(Clone, Debug)]
pub struct Type {
    pub oid: Oid,
    pub schema: String,
    pub name: String,
    /// `b`ase, `c`omposite, `d`omain, `e`num, `r`ange, `m`ultirange, `p`seudo.
    pub kind: char,
    /// Base type of a domain; element of an array; 0 otherwise.
    pub base: Oid,
}

impl Catalog {
    /// The relation that an unqualified or qualified name means under this search path. Does not know temporary tables.
    pub fn resolve(&self, schema: Option<&str>, name: &str, search_path: &[String]) -> Option<&Relation> {
        let find = |schema: &str| {
            let oid = self.relation_names.get(&(schema.to_owned(), name.to_owned()))?;
            self.relations.get(oid)
        };
        match schema {
            Some(schema) => find(schema),
            None => search_path.iter().find_map(|schema| find(schema)),
        }
    }
}

impl Relation {
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }
}
