//! How a query over several shards is answered by PostgreSQL itself: the rows that it needs become temporary tables of unique
//! names, and the names of relations in the client's text are replaced by these.
//!
//! Pure: [`recipe`] makes the statements, who runs them is `execute`. Tables of the same name would not do: qualified names,
//! views and functions see the real table all the same. What makes the result PostgreSQL's own answer:
//!
//! * A temporary table has **all** columns of its table, in order, so that names resolve as they do there; values are loaded for
//!   those only whose name occurs anywhere in the text, and for all as soon as a star, a whole row or NATURAL occurs.
//! * Conditions that compare a column with constants go along; of a table that is read several times come the rows that one of its
//!   readers needs. Of a table that is joined with another one on each shard come the rows that may find a partner there.
//! * Tables of which few rows are needed are loaded first, and their keys go along too (`steps`, `semijoins`, `keys`); those of
//!   the home shard's own tables as well, which stay where they are (`key_tables`).
//! * Temporary tables of the session are on its own connection alone: their rows are loaded like any other's.
//! * Sub-selects that the shards can compute are inputs too (`computed`).
//! * Where one table is far bigger than the others, it may stay where it is, and their rows are brought to it (`staying`).
//! * A view whose rows are the union of the shards' own is loaded by its name, so that the rights and policies of its owner
//!   count; any other over sharded tables is opened in the text.
//! * The spliced text is read again and must be the same query but for those names.
//!
//! Refused are things that would be seen to differ (system columns, functions about the server or the session, whole rows where
//! their type matters) and everything that is not known. Does not decide whether to gather, and knows no shard.

mod computed;
mod constants;
mod filters;
mod groups;
mod inner;
mod inputs;
mod key_tables;
mod keys;
mod lookups;
mod own_names;
mod reading;
mod reference_keys;
mod refusals;
mod semijoins;
mod splicing;
mod staying;
mod steps;
mod survey;

use std::collections::BTreeMap;

use pg_raw_parse::Node;

use super::analysis::{Effect, Splice};
use super::called;
use super::context::Context;
use super::parse;
use super::parse::lexer;
use super::parse::tokens::Tokens;
use super::placing::hidden_hint;
use super::query::{Nature, Reader, nature};
use super::rewrite::clock_literals::mentions_time;
use super::rewrite::staging::with_parameters;
use crate::catalog::{Oid, Relation, quoted_identifier};
use crate::error::{PgError, capitalised};
use computed::{Computed, computed};
pub use filters::Piece;
pub(in crate::sql) use inputs::takes_any_row;
use inputs::{Class, Inputs};
pub use keys::{Found, KEY_ROWS_MAX, Keys};
pub use reference_keys::ReferenceKeys;
use splicing::{Replaced, Replacement};
pub use staying::{BROUGHT_BYTES_MAX, BROUGHT_ROWS_MAX, Brought, Choice};
use survey::{RelationUse, Survey, survey};

/// What is to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The statement over the temporary tables.
    pub text: String,
    /// What was replaced in the client's text, ascending.
    pub splices: Vec<Splice>,
    pub inputs: Vec<Input>,
    /// It reads the clock of the transaction.
    pub has_clock: bool,
    /// The columns of the answer have other names than those of the client's statement.
    pub is_renamed: bool,
    /// The same over the rows of tables alone, where the shards compute some of the inputs.
    pub plain: Option<Box<Recipe>>,
}

/// A temporary table and where its rows come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    pub source: Source,
    /// Its name, in `pg_temp`.
    pub name: String,
    /// The table that its rows are loaded into: another one where `combine` makes them of what the shards send.
    pub loaded: String,
    /// The relation, as messages name it.
    pub relation: String,
    /// CREATE TEMPORARY TABLE, and what proves that `combine` is right.
    pub create: String,
    /// The columns that are loaded, quoted; empty: all of the table.
    pub columns: Vec<String>,
    /// The SELECT that yields them, without a WHERE where there are predicates.
    pub fragment: String,
    /// Columns as they are inserted where some are sent as another type.
    pub inserted: Option<Vec<String>>,
    /// Rows that fail one of these are not needed.
    pub predicates: Vec<Vec<Piece>>,
    /// CREATE INDEX, worth its time where much is loaded.
    pub indexes: Vec<String>,
    /// Inputs are loaded in rounds: the keys in its predicates are of inputs of earlier ones.
    pub round: usize,
    /// Makes its rows of those that were loaded.
    pub combine: Option<String>,
    /// The relation itself; `None`: the rows are those of a query.
    pub origin: Option<Origin>,
    /// Inputs of earlier rounds whose rows stand in the fragment as constants, where it has their names.
    pub brought: Vec<Brought>,
}

/// What an input is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub relation: Oid,
    pub with_children: bool,
}

impl Recipe {
    /// Over the rows of tables alone.
    pub fn into_plain(self) -> Self {
        match self.plain {
            Some(plain) => *plain,
            None => self,
        }
    }

    /// It has an input from there.
    pub fn reads(&self, source: Source) -> bool {
        self.inputs.iter().any(|input| input.source == source)
    }

    /// Another text for the same; no position in it is one of the client's. `length`: of the client's statement.
    pub fn set_text(&mut self, text: Option<String>, length: usize) {
        if let Some(text) = text {
            self.splices = vec![Splice { start: 0, end: length, text: text.clone() }];
            self.text = text;
        }
    }
}

impl Input {
    /// With the values of parameters in its texts; `None`: one of them is needed and has none. `value`: as SQL, of the type that it
    /// has to be of.
    pub fn bound(&self, value: &dyn Fn(u16, Option<Oid>) -> Option<String>) -> Option<Self> {
        if self.is_computed() {
            let value = &|number| value(number, None);
            let (fragment, create) = (with_parameters(&self.fragment, value)?, with_parameters(&self.create, value)?);
            return Some(Self { fragment, create, ..self.clone() });
        }
        let filled = |predicate: &Vec<Piece>| {
            let pieces = predicate.iter().map(|piece| match piece {
                Piece::Parameter(number) => value(*number, None).map(Piece::Sql),
                Piece::Typed(number, type_oid) => value(*number, Some(*type_oid)).map(Piece::Sql),
                Piece::Sql(_) | Piece::Keys(_) => Some(piece.clone()),
            });
            pieces.collect::<Option<Vec<Piece>>>()
        };
        Some(Self { predicates: self.predicates.iter().filter_map(filled).collect(), ..self.clone() })
    }

    fn is_computed(&self) -> bool {
        self.columns.is_empty()
    }

    /// The keys of other inputs in its predicates.
    pub fn keys(&self) -> impl Iterator<Item = &Keys> {
        keys_in(&self.predicates)
    }

    /// The fragment with its predicates, whose parameters have been bound.
    pub fn query(&self, known: &KnownKeys) -> String {
        self.written(&|keys| keys.condition(known.get(keys).and_then(Option::as_ref)))
    }

    /// The same, with the rows of other inputs in it. `rows`: as SQL, by the input.
    pub fn query_with(&self, known: &KnownKeys, rows: &BTreeMap<String, Found>) -> String {
        let query = self.query(known);
        if self.brought.is_empty() {
            return query;
        }
        staying::with_rows(&query, &|name| rows.get(name).map(|found| found.list.clone()))
    }

    /// The same, with the keys and rows of other inputs by their names.
    pub fn shown(&self) -> String {
        self.with_rows_named(&self.written(&Keys::shown))
    }

    /// With how many they were.
    pub fn shown_as(&self, known: &KnownKeys) -> String {
        self.with_rows_named(&self.written(&|keys| keys.shown_as(known.get(keys).and_then(Option::as_ref))))
    }

    fn with_rows_named(&self, query: &str) -> String {
        let brought = |name: &str| self.brought.iter().find(|brought| brought.input == name);
        staying::with_rows(query, &|name| brought(name).map(|brought| format!("(rows of {})", brought.relation)))
    }

    fn written(&self, keys: &dyn Fn(&Keys) -> String) -> String {
        let sql = |piece: &Piece| match piece {
            Piece::Sql(sql) => sql.clone(),
            Piece::Parameter(number) | Piece::Typed(number, _) => format!("${number}"),
            Piece::Keys(wanted) => keys(wanted),
        };
        let predicates: Vec<String> = self.predicates.iter().map(|pieces| pieces.iter().map(sql).collect()).collect();
        match predicates.is_empty() {
            true => self.fragment.clone(),
            false => format!("{} WHERE {}", self.fragment, predicates.join(" AND ")),
        }
    }
}

/// The keys in conditions.
fn keys_in(conditions: &[Vec<Piece>]) -> impl Iterator<Item = &Keys> {
    conditions.iter().flatten().filter_map(|piece| match piece {
        Piece::Keys(keys) => Some(keys),
        Piece::Sql(_) | Piece::Parameter(_) | Piece::Typed(..) => None,
    })
}

/// Where an input's rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// On the shards that the statement's keys allow.
    Shards,
    /// On the home shard, as the transaction's own connection there sees them.
    Home,
    /// On the home shard, where the statement itself reads them: only their keys are wanted, by other inputs.
    Scratch,
    /// On the session's own connection to the home shard, which alone has them.
    Temporary,
}

/// The keys of inputs that have been loaded; `None`: too many.
pub type KnownKeys = BTreeMap<Keys, Option<Found>>;

/// How tables of the home shard are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HomeTables {
    /// Where the statement runs, which is the home shard.
    InPlace,
    /// As inputs, since the transaction has changes there that other connections do not see.
    Shipped,
    /// As inputs, since the transaction has a snapshot there, which other connections do not have.
    OfSnapshot,
    /// As inputs, to be brought to the shards; those of which every shard has a copy stay.
    Brought,
}

/// The recipe for one SELECT; `text` is the statement alone. `temporary`: the session's tables, in the schema `pg_temp`; what the
/// context has by name alone cannot be read.
pub fn recipe(text: &str, context: &Context, temporary: &[Relation], home: HomeTables) -> Result<Recipe, PgError> {
    check_hidden_references(text, context, home)?;
    let inputs = || Inputs::new(context, temporary, home);
    let (plain, may_compute) = cooked(text, context, inputs(), false)?;
    if !may_compute || home != HomeTables::InPlace || !context.has_plain_operators(&context.search_path) {
        return Ok(plain);
    }
    // What cannot be proven of it has the plain one.
    let computed = cooked(text, context, inputs(), true).ok().map(|(computed, _)| computed);
    match computed.filter(|computed| *computed != plain) {
        Some(computed) => Ok(Recipe { plain: Some(Box::new(plain)), ..computed }),
        None => Ok(plain),
    }
}

/// A recipe, and whether a sub-select may be worth computing on the shards.
fn cooked<'c>(text: &str, context: &'c Context, inputs: Inputs<'c>, computes: bool) -> Result<(Recipe, bool), PgError> {
    let mut kitchen = Kitchen { context, inputs, surveys: Vec::new(), depth: 0, computes };
    let (spliced, splices) = kitchen.prepare(text, &context.search_path)?;
    // The whole, with the views opened in it.
    parse::parse(&spliced).map_err(|_| refusals::unproven("The rewritten statement cannot be read again."))?;
    let has_clock = kitchen.surveys.iter().any(has_clock) || mentions_time(&spliced);
    let may_compute = kitchen.surveys.last().is_some_and(|survey| survey.inner.iter().any(|inner| inner.reduces));
    let inputs = kitchen.inputs.finish(&kitchen.surveys, &spliced)?;
    Ok((Recipe { text: spliced, splices, inputs, has_clock, is_renamed: false, plain: None }, may_compute))
}

/// Functions, policies and triggers must not reach sharded tables behind the statement's back.
fn check_hidden_references(text: &str, context: &Context, home: HomeTables) -> Result<(), PgError> {
    let scanned = lexer::scan(text);
    let tree = parse::parse(text)?;
    let mut statements = tree.stmts();
    let (Some(Node::SelectStmt(select)), None) = (statements.next(), statements.next()) else {
        return Err(refusals::construct("a statement other than SELECT"));
    };
    let mut reader = Reader::new(context, text, &scanned.literals);
    // Why the answers of the shards cannot be merged does not matter here.
    if let Err(refusal) = reader.outermost(select)? {
        tracing::trace!(%refusal, "not merged in the proxy");
    }
    reader.note_hidden();
    let notes = &mut reader.notes;
    if let Some(refusal) = notes.refused.take() {
        return Err(refusal);
    }
    if let Some(reason) = notes.touches_anything.take().or(notes.may_be_of_query_around.take()) {
        return Err(refusals::hidden(sentence(&reason)));
    }
    if let Some(table) = notes.names_temporary.take() {
        return Err(refusals::own_name(&table));
    }
    if let Some(relation) = notes.hidden_sharded_table().and_then(|oid| context.catalog.relations.get(&oid)) {
        let detail = format!("A function or policy reads table \"{}\", which is sharded.", relation.name);
        return Err(refusals::hidden_unless(detail, hidden_hint(notes, &relation.name)));
    }
    if notes.effect() != Effect::Read {
        return Err(refusals::construct("a statement that changes or locks something"));
    }
    if notes.has_map || !notes.proxy.is_empty() {
        return Err(refusals::construct("a relation of the schema shardgate"));
    }
    match (home, notes.home_reason.take().or(notes.hidden_copy.take())) {
        (HomeTables::Shipped, Some(reason)) => Err(refusals::hidden(format!("{reason} The transaction has changes there."))),
        (HomeTables::OfSnapshot, Some(reason)) => Err(refusals::hidden(format!("{reason} The transaction has a snapshot there."))),
        (HomeTables::Shipped | HomeTables::OfSnapshot | HomeTables::InPlace | HomeTables::Brought, _) => Ok(()),
    }
}

struct Kitchen<'c> {
    context: &'c Context,
    inputs: Inputs<'c>,
    /// Of the statement and of every view that was opened.
    surveys: Vec<Survey>,
    depth: usize,
    /// Sub-selects may be computed on the shards.
    computes: bool,
}

impl Kitchen<'_> {
    /// The text with its relations replaced, and what was replaced.
    fn prepare(&mut self, text: &str, search_path: &[String]) -> Result<(String, Vec<Splice>), PgError> {
        let old = survey_text(text)?;
        check_calls(&old)?;
        if self.depth == 0 {
            own_names::check(&old, self.context)?;
        }
        let tokens = Tokens::of(text);
        let computed = self.computed(text, &old, search_path);
        let (mut classes, mut uses) = (Vec::with_capacity(old.relations.len()), Vec::new());
        for (index, relation) in old.relations.iter().enumerate() {
            let class = match computed.iter().any(|computed| computed.inner.relations.contains(&index)) {
                true => Class::Computed,
                false => self.inputs.class(relation, search_path)?,
            };
            uses.push(self.inputs.newest_use(class));
            classes.push(class);
        }
        let (mut replacements, mut proof, mut splices) = (Vec::new(), Vec::new(), Vec::new());
        for (index, (relation, class)) in old.relations.iter().zip(&classes).enumerate() {
            let name = match class {
                Class::InPlace | Class::Computed => continue,
                Class::Input(input) => self.inputs.name(*input),
                Class::Opened(oid) => format!("{VIEW_PREFIX}{oid}"),
            };
            let placeholder = format!("{}.{}", splicing::TEMPORARY_SCHEMA, quoted_identifier(&name));
            let real = match class {
                Class::Opened(oid) => format!("({})", self.open(*oid)?),
                Class::InPlace | Class::Computed | Class::Input(_) => placeholder.clone(),
            };
            proof.push(tokens.relation(relation, &placeholder)?);
            splices.push(tokens.relation(relation, &real)?);
            replacements.push(Replacement { relation: index, name });
        }
        let shortened = self.shortened(&old, &classes)?;
        for index in &shortened {
            let column = old.columns.get(*index).ok_or_else(|| PgError::internal("a column that was met is gone"))?;
            proof.push(tokens.unqualified(column)?);
            splices.push(tokens.unqualified(column)?);
        }
        for computed in &computed {
            let splice = Splice { start: computed.range.start, end: computed.range.end, text: computed.replacement.clone() };
            proof.push(splice.clone());
            splices.push(splice);
        }
        let new = survey_text(&splicing::apply(text, &mut proof)?)?;
        let replaced = Replaced { relations: &replacements, shortened: &shortened, computed: &computed };
        if !splicing::is_same(&old, &new, &replaced) {
            return Err(refusals::unproven("Read again, the rewritten statement is another one."));
        }
        self.inputs.note_columns(&old, &classes, &computed)?;
        self.inputs.note_filters(&old, (&classes, &uses), &computed, search_path);
        self.inputs.note_memberships(&old, &classes);
        self.inputs.note_lookups(&old, &classes);
        self.inputs.note_computed(computed);
        self.surveys.push(old);
        let spliced = splicing::apply(text, &mut splices)?;
        Ok((spliced, splices))
    }

    /// Not those of a view, which are its owner's.
    fn computed(&self, text: &str, survey: &Survey, search_path: &[String]) -> Vec<Computed> {
        if !self.computes || self.depth > 0 {
            return Vec::new();
        }
        let known: Vec<_> = survey.relations.iter().map(|used| self.inputs.known(used, search_path)).collect();
        computed(text, survey, &known, self.context)
    }

    /// A view's query, with its own relations replaced.
    fn open(&mut self, view: Oid) -> Result<String, PgError> {
        let found = self.context.catalog.relations.get(&view).ok_or_else(|| PgError::internal("view is gone"))?;
        let definition = found.view_definition.as_deref().unwrap_or_default().trim().trim_end_matches(';');
        if self.depth == VIEW_DEPTH_MAX {
            return Err(refusals::relation(&found.name, "Views that are defined on views are nested too deep."));
        }
        if self.context.search_path.iter().any(|schema| schema == "pg_catalog") {
            return Err(refusals::relation(&found.name, "Its query would be read by a search path that names pg_catalog."));
        }
        let unread = || refusals::relation(&found.name, "Its query cannot be read.");
        let definition = called::with_own_functions_named(definition, &self.context.catalog).ok_or_else(unread)?;
        self.depth += 1;
        // PostgreSQL prints it with every name of another schema than pg_catalog qualified: none is a temporary table's.
        let temporary = self.inputs.set_temporary(&[]);
        let prepared = self.prepare(&definition, &[]);
        self.inputs.set_temporary(temporary);
        self.depth -= 1;
        let (text, _) = prepared?;
        let opened = self.surveys.last().ok_or_else(|| PgError::internal("no survey of a view"))?;
        let catalog = &self.context.catalog;
        let is_shadowed = opened.operators.iter().any(|name| catalog.operator_functions.contains_key(name));
        if is_shadowed || !self.context.has_plain_operators(&self.context.search_path) {
            return Err(refusals::relation(&found.name, "Operators in its query may mean others in this session."));
        }
        Ok(text)
    }

    /// Columns that are qualified with the schema of a table that gets another name.
    fn shortened(&self, survey: &Survey, classes: &[Class]) -> Result<Vec<usize>, PgError> {
        let mut shortened = Vec::new();
        for (index, column) in survey.columns.iter().enumerate() {
            let (schema, table) = match (column.path.as_slice(), column.is_star) {
                ([schema, table, _], false) | ([schema, table], true) => (schema, table),
                ([_, _, _, ..], _) => return Err(refusals::construct("a column that is named with its database")),
                _ => continue,
            };
            let called: Vec<(&RelationUse, &Class)> =
                survey.relations.iter().zip(classes).filter(|(relation, _)| relation.effective_name() == table).collect();
            if called.iter().all(|(_, class)| matches!(class, Class::InPlace | Class::Computed)) {
                continue;
            }
            // By its short name it must not mean anything else: another alias, a WITH query, a table of another schema.
            let first = called.first().map(|(_, class)| *class);
            let is_sole = called.iter().all(|(relation, class)| relation.alias.is_none() && Some(*class) == first);
            if !is_sole || survey.given_names.contains(table) {
                return Err(refusals::unproven(&format!("\"{schema}.{table}\" is not the only \"{table}\" in it.")));
            }
            shortened.push(index);
        }
        Ok(shortened)
    }
}

fn survey_text(text: &str) -> Result<Survey, PgError> {
    let tree = parse::parse(text)?;
    let mut statements = tree.stmts();
    match (statements.next(), statements.next()) {
        (Some(query), None) => survey(query),
        _ => Err(refusals::construct("a statement other than SELECT")),
    }
}

fn check_calls(survey: &Survey) -> Result<(), PgError> {
    for call in survey.calls.iter().filter(|call| call.schema.as_deref().is_none_or(|schema| schema == "pg_catalog")) {
        match nature(&call.name, call.argument_count) {
            Nature::Plain | Nature::Random | Nature::Clock => {}
            Nature::Server | Nature::Size | Nature::Sequence | Nature::Session | Nature::Writing | Nature::RunsQuery => {
                return Err(refusals::function(&call.name));
            }
        }
        // The scratch session has a temporary schema and a transaction of its own, and its rows are stored anew.
        let is_own = match call.name.as_str() {
            "current_schemas" | "pg_column_compression" | "pg_column_size" => true,
            "current_setting" => call.first_constant.as_ref().is_none_or(|name| {
                let name = name.to_ascii_lowercase();
                name.starts_with("transaction_") || name.starts_with("shardgate_") || OWN_SETTINGS.contains(&name.as_str())
            }),
            _ => false,
        };
        if is_own {
            return Err(refusals::function(&call.name));
        }
    }
    // They run a query that is given to them as text.
    if let Some(call) = survey.calls.iter().find(|call| QUERY_RUNNERS.iter().any(|prefix| call.name.starts_with(prefix))) {
        return Err(refusals::function(&call.name));
    }
    for column in &survey.columns {
        if let Some(name) = column.path.last().filter(|name| !column.is_star && SYSTEM_COLUMNS.contains(&name.as_str())) {
            return Err(refusals::system_column(name));
        }
    }
    Ok(())
}

fn has_clock(survey: &Survey) -> bool {
    let is_clock =
        |call: &survey::Call| nature(&call.name, call.argument_count) == Nature::Clock && call.name != "statement_timestamp";
    survey.has_clock || survey.calls.iter().any(is_clock)
}

/// A reason as a sentence.
fn sentence(reason: &str) -> String {
    format!("{}{}", capitalised(reason), if reason.ends_with('.') { "" } else { "." })
}

/// The scratch transaction has values of its own for these.
const OWN_SETTINGS: [&str; 3] = ["enable_nestloop", "jit", "lock_timeout"];
/// Functions of extensions.
const QUERY_RUNNERS: [&str; 3] = ["connectby", "crosstab", "dblink"];
const SYSTEM_COLUMNS: [&str; 6] = ["ctid", "tableoid", "xmin", "xmax", "cmin", "cmax"];
/// Names a view that is opened while its text is proven.
const VIEW_PREFIX: &str = "shardgate_view_";
const VIEW_DEPTH_MAX: usize = 16;

#[cfg(test)]
mod tests;
