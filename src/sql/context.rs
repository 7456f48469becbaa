//! What a statement's meaning depends on besides its text.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::catalog::{Catalog, Function, Oid};
use crate::shardmap::{DeclaredFunction, MapSnapshot};

/// The schema, the map and the session's settings under which a text is read.
#[derive(Clone, Debug)]
pub struct Context {
    pub catalog: Arc<Catalog>,
    pub map: Arc<MapSnapshot>,
    /// Effective: existing schemas, `$user` replaced, without `pg_catalog` unless named.
    pub search_path: Vec<String>,
    /// Of this session; they hide tables of the same name.
    pub temporary_tables: Vec<String>,
    /// Temporary tables of a statement whose rows go along with it to every shard: the relations that they are rows of, by name.
    pub brought: BTreeMap<String, Oid>,
    /// Identifies this combination of all of the above: a part of the caches' keys. Equal ids must mean equal readings.
    pub id: u64,
    pub user: String,
}

impl Context {
    /// What was declared of the function as it is.
    pub fn declared(&self, function: &Function) -> Option<&DeclaredFunction> {
        let declared = self.map.functions.get(&(function.schema.clone(), function.name.clone()))?;
        declared.is_of(|| self.catalog.fingerprint(function)).then_some(declared)
    }

    /// Comparison operators are the catalogue's own: no schema on the path defines others.
    pub fn has_plain_operators(&self, search_path: &[String]) -> bool {
        !search_path.iter().any(|schema| self.catalog.operator_schemas.contains(schema))
    }

    /// What hides PostgreSQL's own function of this name: one of users in a schema that the path names before `pg_catalog`, which is
    /// searched first where it is not named. Of several the one with the fewest arguments.
    pub fn hiding(&self, name: &str, search_path: &[String]) -> Option<&Function> {
        let catalog = search_path.iter().position(|schema| schema == "pg_catalog")?;
        let before = search_path.get(..catalog)?;
        let functions = self.catalog.function_names.get(name)?.iter().filter_map(|oid| self.catalog.functions.get(oid));
        functions.filter(|function| before.contains(&function.schema)).min_by_key(|function| function.argument_count)
    }
}
