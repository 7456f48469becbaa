//! Schema changes inside of functions, procedures and DO blocks: every shard runs the call, as it would the changes by themselves, or
//! it is refused before anything is done.
//!
//! A call goes to every shard, in one transaction over all of them, where it is proven to do nothing but change the schema, and to
//! decide what to change by the schema alone, which is the same on every shard; where it decides otherwise nevertheless, by an oid or
//! the order of rows, that shows before the commit (`session::ddl::calls`). Migrations do this: they catch an exception where
//! there is no IF NOT EXISTS, ask the system catalogue whether an object is there, or loop over it and make the texts of their
//! changes by EXECUTE. A body that reads or writes rows may decide otherwise on each shard, or would write on each of them.
//!
//! Changes that stand in the text are looked at like those that a client sends. Texts that a body makes cannot be, so that such a call
//! is refused once there are distributed tables.

use std::collections::BTreeSet;

use pg_raw_parse::{Node, nodes};

use super::Ddl;
use super::redefined::Redefined;
use crate::catalog::{BodyName, BodyReferences, Closure, Function, Oid, References, SchemaEffect};
use crate::error::PgError;
use crate::sql::body::{SqlBodyReader, begins_with_change, begins_with_other, schema_changes, strings};
use crate::sql::context::Context;
use crate::sql::parse::lexer::TokenKind;
use crate::sql::parse::tokens::Tokens;
use crate::sql::placing::Placement;
use crate::sql::statement::{Source, place_changes};
use crate::sql::utility::own_relations::is_computing;

/// The texts of a block's changes, where all of them stand there; `None`: it is another block.
pub fn changes_of_block(block: &nodes::DoStmt, context: &Context) -> Option<Vec<String>> {
    let (language, body) = block_body(block);
    let mut found = Proof::new(context);
    found.body(&language, body?).ok()?;
    (!found.texts.is_empty() && !found.makes_more).then_some(found.texts)
}

/// A statement that may change the schema by what it calls: as a change on every shard, or a refusal.
pub fn place(
    node: Node<'_>,
    source: Source<'_>,
    (effect, function): (SchemaEffect, Oid),
    context: &Context,
) -> Result<Placement, PgError> {
    let by = context.catalog.functions.get(&function).map(|function| function.name.as_str());
    let mut proof = Proof::new(context);
    match proof.statement(node, source) {
        Err(why) => Err(refusal(effect, by, &why)),
        Ok(_) if proof.makes_more && !context.map.tables.is_empty() => {
            Err(refusal(effect, by, "It makes the texts of its changes itself, and they may be about distributed tables"))
        }
        Ok((tag, gives_rows)) => {
            let call = Ddl { redefines: Redefined::Anything, ..Ddl::of_call(tag, gives_rows) };
            place_changes(&proof.texts, call, context)
        }
    }
}

fn refusal(effect: SchemaEffect, by: Option<&str>, why: &str) -> PgError {
    let what = by.map_or_else(|| "the DO block".to_owned(), |name| format!("function \"{name}\""));
    match effect {
        SchemaEffect::Changes => PgError::unsupported(
            format!("{what} changes the schema"),
            format!("Every shard would have to run the statement, and it is not proven to do the same on each of them. {why}."),
            "Send its schema changes as statements of their own, and what it reads or writes besides in other statements.",
        ),
        SchemaEffect::RunsAnything => PgError::unsupported(
            format!("{what} runs a text that may change the schema"),
            format!("A schema change has to be made on every shard, and what the text says is not known before it runs. {why}."),
            "Run the text itself, or, if it never changes the schema, declare the function with shardgate.declare_function().",
        ),
    }
}

pub(super) fn block_body(block: &nodes::DoStmt) -> (String, Option<&str>) {
    let option = |name: &str| {
        let found = block.args().iter().find(|option| option.defname() == Some(name));
        found.and_then(|option| option.arg().as_str())
    };
    (option("language").unwrap_or("plpgsql").to_ascii_lowercase(), option("as"))
}

/// Collects the changes of a statement and of all that it calls. An error says what is in the way, as a sentence without its full stop.
struct Proof<'c> {
    context: &'c Context,
    texts: Vec<String>,
    /// Some of the changes have a text that is made, or given, when they run.
    makes_more: bool,
    /// Of the statement and of all bodies.
    strings: Vec<String>,
    /// It asks which roles there are.
    asks_for_roles: bool,
    seen: BTreeSet<Oid>,
}

impl<'c> Proof<'c> {
    fn new(context: &'c Context) -> Self {
        Self { context, texts: Vec::new(), makes_more: false, strings: Vec::new(), asks_for_roles: false, seen: BTreeSet::new() }
    }

    /// The command tag, and whether the answer has a row description.
    fn statement(&mut self, node: Node<'_>, source: Source<'_>) -> Result<(&'static str, bool), String> {
        let alone = source.alone();
        let (tag, gives_rows) = match node {
            Node::DoStmt(block) => {
                let (language, body) = block_body(block);
                self.body(&language, body.unwrap_or_default())?;
                self.check_made_texts()?;
                return Ok(("DO", false));
            }
            Node::CallStmt(_) => ("CALL", true),
            Node::SelectStmt(select) if select.into_clause().is_none() && select.locking_clause().is_empty() => ("SELECT", true),
            _ => return Err("The statement does something else besides".to_owned()),
        };
        if Tokens::of(alone).iter().any(|(kind, _)| kind == TokenKind::Parameter) {
            return Err("Its arguments are parameters: write their values into the statement".to_owned());
        }
        self.body("sql", alone)?;
        self.check_made_texts()?;
        Ok((tag, gives_rows))
    }

    /// How the texts begin that are run stands in strings: of changes, and of nothing that would touch rows.
    fn check_made_texts(&self) -> Result<(), String> {
        let is_shown = self.strings.iter().any(|text| begins_with_change(text));
        match self.strings.iter().find(|text| begins_with_other(text)) {
            _ if !self.makes_more => Ok(()),
            _ if self.asks_for_roles => {
                Err("It asks for roles, of which each server has its own, and makes the texts of its changes".to_owned())
            }
            Some(text) => {
                Err(format!("It runs a text that is no schema change: \"{}\"", text.chars().take(40).collect::<String>()))
            }
            None if !is_shown => Err("No string in it shows how the text begins".to_owned()),
            None => Ok(()),
        }
    }

    fn body(&mut self, language: &str, body: &str) -> Result<(), String> {
        let found = schema_changes(language, body);
        if names_a_server(body) {
            return Err("It asks for what differs from server to server".to_owned());
        }
        self.decides_by_schema(&found.references)?;
        self.strings.extend(strings(body));
        self.texts.extend(found.texts);
        self.makes_more |= found.makes_more;
        Ok(())
    }

    /// What a body refers to is the schema, which is the same on every shard.
    fn decides_by_schema(&mut self, references: &BodyReferences) -> Result<(), String> {
        let catalog = &self.context.catalog;
        if let Some(why) = &references.unknown {
            return Err(format!("It {why}"));
        }
        if references.sets_session {
            return Err("It changes a setting of the session".to_owned());
        }
        if let Some(table) = references.writes.keys().next() {
            return Err(format!("It also writes to \"{}\"", table.name));
        }
        let is_system = |name: &&BodyName| match name.schema.as_deref() {
            Some("information_schema") => true,
            Some("pg_catalog") => OF_SCHEMA.contains(&name.name.as_str()),
            Some(_) => false,
            None => OF_SCHEMA.contains(&name.name.as_str()) && catalog.relations.values().all(|other| other.name != name.name),
        };
        if let Some(table) = references.reads.iter().find(|name| !is_system(name)) {
            return Err(format!("It also reads \"{}\"", table.name));
        }
        self.asks_for_roles |= references.reads.iter().any(|name| OF_ROLES.contains(&name.name.as_str()));
        if let Some(operator) = references.operators.iter().find(|name| catalog.operator_functions.contains_key(*name)) {
            return Err(format!("It uses operator {operator}, whose function is not PostgreSQL's"));
        }
        references.functions.iter().try_for_each(|name| self.call(name))
    }

    fn call(&mut self, name: &BodyName) -> Result<(), String> {
        let catalog = &self.context.catalog;
        let is_meant = |function: &&Function| name.schema.as_ref().is_none_or(|schema| *schema == function.schema);
        let candidates = catalog.function_names.get(&name.name).into_iter().flatten();
        let candidates: Vec<&Function> = candidates.filter_map(|oid| catalog.functions.get(oid)).filter(is_meant).collect();
        if candidates.is_empty() {
            let is_plain = name.schema.as_deref().is_none_or(|schema| schema == "pg_catalog");
            let is_known = is_plain && (FUNCTIONS.contains(&name.name.as_str()) || is_computing(&name.name));
            return if is_known { Ok(()) } else { Err(format!("It calls function \"{}\"", name.name)) };
        }
        candidates.into_iter().try_for_each(|function| self.function(function))
    }

    fn function(&mut self, function: &Function) -> Result<(), String> {
        if !self.seen.insert(function.oid) {
            return Ok(());
        }
        let catalog = &self.context.catalog;
        let only_computes = catalog.function_changes_schema(function.oid, &SqlBodyReader).is_none()
            && *catalog.closure_of_function(function.oid, &SqlBodyReader) == Closure::Known(References::default())
            && !catalog.function_notifies(function.oid, &SqlBodyReader)
            && !catalog.function_sets_local(function.oid, &SqlBodyReader);
        if only_computes {
            return Ok(());
        }
        if function.is_extension_member || function.kind == 'a' {
            return Err(format!("It calls function \"{}\"", function.name));
        }
        for called in catalog.function_dependencies.get(&function.oid).into_iter().flatten() {
            if let Some(called) = catalog.functions.get(called) {
                self.function(called)?;
            }
        }
        let why = |why: String| {
            format!(
                "Function \"{}\": {}{}",
                function.name,
                why.get(..1).unwrap_or_default().to_lowercase(),
                why.get(1..).unwrap_or_default()
            )
        };
        self.body(&function.language, &function.body).map_err(why)
    }
}

/// What the catalogue has otherwise on every shard though the schema is the same: the database's name, and what is counted or stored.
fn names_a_server(block: &str) -> bool {
    let tokens = Tokens::of(block);
    let is_own = |name: String| OF_SERVER.contains(&name.as_str()) || (name.ends_with("_catalog") && name != "pg_catalog");
    (0..tokens.count()).filter_map(|index| tokens.identifier(index)).any(is_own)
}

/// A change that is made otherwise than by sending it as it is to every shard.
pub fn not_in_a_block(tag: &str) -> PgError {
    PgError::unsupported(
        format!("{tag} in this DO block is not supported"),
        "The proxy has a part in this change, and cannot take it inside of a block.",
        "Send the statement by itself, with IF EXISTS or IF NOT EXISTS where it may have been done before.",
    )
}

/// Of the system catalogue, what holds the schema, and nothing of what runs or is stored on one server.
const OF_SCHEMA: [&str; 31] = [
    "pg_am",
    "pg_attrdef",
    "pg_attribute",
    "pg_auth_members",
    "pg_cast",
    "pg_class",
    "pg_collation",
    "pg_constraint",
    "pg_depend",
    "pg_description",
    "pg_enum",
    "pg_extension",
    "pg_index",
    "pg_indexes",
    "pg_inherits",
    "pg_language",
    "pg_matviews",
    "pg_namespace",
    "pg_operator",
    "pg_policies",
    "pg_policy",
    "pg_proc",
    "pg_roles",
    "pg_rules",
    "pg_tables",
    "pg_trigger",
    "pg_ts_config",
    "pg_ts_dict",
    "pg_type",
    "pg_user",
    "pg_views",
];
/// Of these, what holds roles, which belong to the server.
const OF_ROLES: [&str; 3] = ["pg_auth_members", "pg_roles", "pg_user"];
/// Columns of it that are of one server.
const OF_SERVER: [&str; 9] = [
    "catalog_name",
    "relallvisible",
    "relfilenode",
    "relfrozenxid",
    "relminmxid",
    "relpages",
    "reltuples",
    "information_schema_catalog_name",
    "xmin",
];
const FUNCTIONS: [&str; 30] = [
    "array_agg",
    "bool_or",
    "col_description",
    "concat",
    "count",
    "current_schema",
    "current_schemas",
    "format_type",
    "generate_series",
    "lower",
    "max",
    "min",
    "obj_description",
    "pg_function_is_visible",
    "pg_get_constraintdef",
    "pg_get_expr",
    "pg_get_function_identity_arguments",
    "pg_get_functiondef",
    "pg_get_indexdef",
    "pg_get_ruledef",
    "pg_get_serial_sequence",
    "pg_get_triggerdef",
    "pg_get_viewdef",
    "pg_table_is_visible",
    "pg_type_is_visible",
    "to_regclass",
    "to_regnamespace",
    "to_regproc",
    "to_regtype",
    "upper",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_between_shards_decides_nothing() {
        let asking = |condition: &str| {
            format!("BEGIN IF EXISTS (SELECT FROM information_schema.columns WHERE {condition}) THEN DROP TABLE t; END IF; END")
        };
        for condition in ["table_catalog = 'shard0'", "c.\"table_catalog\" = 'app'", "Reltuples > 0", "catalog_name = 'app'"] {
            assert!(names_a_server(&asking(condition)), "{condition}");
        }
        for condition in ["table_name = 'table_catalog'", "EXISTS (SELECT FROM pg_catalog.pg_class)", "table_schema = 'public'"] {
            assert!(!names_a_server(&asking(condition)), "{condition}");
        }
    }
}
