//! What a function, trigger, policy, default, rule or view touches beyond what a statement names.
//!
//! A statement names its tables; a trigger's function does not show in it. Run on one shard of several, a hidden read of a
//! table whose rows are elsewhere gives another answer, and a hidden write leaves a row where nobody looks. The closure is
//! walked from pg_depend (views, policies, `BEGIN ATOMIC` bodies, expressions) and from the text of SQL and PL/pgSQL bodies,
//! which a [`BodyReader`] of layer 2 reads. Names in bodies are resolved generously: an unqualified name means every relation
//! of that name unless the function sets its own search path. What cannot be read is [`Closure::Unknown`], never empty.
//!
//! Members of extensions, functions of pg_catalog and functions written in the server's own C are transparent. Results are
//! kept in the catalogue, which never changes, so each body is read once a version.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::effects::{CONVERTS_BY_ARGUMENT, READS_BY_ARGUMENT};
use super::{
    Catalog, ChangedSettings, DependencyTarget, DependentKind, FIRST_USER_OID, Function, Oid, Relation, RelationKind,
    SessionEffects, TriggerEvents,
};

mod session;
mod writes;

pub use writes::{RowWrites, UpdatedColumns};

/// The relations that are read and written, or that this cannot be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closure {
    Known(References),
    /// Says what could not be proven: `function "f" is written in plperl`.
    Unknown(String),
}

/// Sorted, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    pub reads: Vec<Oid>,
    /// Tables, and sequences that a body draws from by name.
    pub writes: Vec<Oid>,
    /// Sequences that column defaults draw from when a written table's rows come without a value.
    pub sequences: Vec<Oid>,
}

/// What a statement does with a relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// Views and policies take part.
    Read,
    /// Triggers, defaults, checks, indexes and rules too.
    Write,
    /// A write on behalf of one to another relation, by a foreign key's action or by the table that it is a part of: policies do
    /// not look on.
    Action,
}

/// A closure together with what it is of: `trigger "audit" (function "public.log")`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartClosure {
    pub name: String,
    /// The function that the part calls first, if there is just one.
    pub function: Option<Oid>,
    pub closure: Closure,
    /// It sends notifications, or may.
    pub notifies: bool,
    /// It changes a setting for the transaction.
    pub sets_local: bool,
    /// What it may do to the schema, and which function does it.
    pub changes_schema: Option<(SchemaEffect, Oid)>,
    /// Of a trigger: when it fires. What is no trigger takes part in every write.
    pub fires_on: TriggerEvents,
    /// A trigger that fires for each row.
    pub is_of_row: bool,
}

/// A possibly qualified name in a body.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyName {
    pub schema: Option<String>,
    pub name: String,
}

/// What the text of a body says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyReferences {
    pub reads: Vec<BodyName>,
    /// Written tables, with what is done to their rows, and sequences that are drawn from.
    pub writes: BTreeMap<BodyName, RowWrites>,
    /// Functions called, built-in ones included.
    pub functions: Vec<BodyName>,
    /// Names of the operators used.
    pub operators: Vec<String>,
    /// What stands after a dot where a column does: `r.total` may call a function of the row.
    pub fields: Vec<String>,
    /// Why the list is not complete: `runs SQL that it makes itself (EXECUTE)`.
    pub unknown: Option<String>,
    /// PL/pgSQL: columns of NEW that are assigned; `None`: cannot be told.
    pub assigned_new: Option<Vec<String>>,
    /// PL/pgSQL: names of variables, parameters and records that it declares or may assign, and of their fields that it assigns.
    pub bound_names: Vec<String>,
    /// NOTIFY, or a call of pg_notify().
    pub notifies: bool,
    /// SET LOCAL, or set_config(…, true).
    pub sets_local: bool,
    /// It changes settings of the session whose names stand in it.
    pub sets_session: bool,
    /// What the text itself leaves in the session; not what the functions in it do.
    pub effects: SessionEffects,
}

/// What a body may do to the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SchemaEffect {
    /// It runs texts that are given to it.
    RunsAnything,
    /// It creates, alters or drops objects that are not temporary.
    Changes,
}

/// A call that a statement makes by its own words.
#[derive(Clone, Debug)]
pub struct Call {
    /// What it touches, its settings aside.
    pub closure: Arc<Closure>,
    pub sets: CallSets,
}

/// The settings that a call changes, whose names are known: its session follows them. They would differ from shard to shard where it
/// runs on several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallSets {
    /// None, or by names that it makes when it runs.
    Nothing,
    /// Of the transaction.
    Local,
    /// Of the session, and perhaps of the transaction.
    Session,
}

/// What running a DO block does.
#[derive(Clone, Debug)]
pub struct BlockCall {
    pub call: Call,
    pub notifies: bool,
    pub sets_local: bool,
}

/// As a [`PartClosure`] calls it.
fn trigger_part(name: &str) -> String {
    format!("trigger \"{name}\"")
}

/// Reads bodies; implemented where SQL is parsed.
pub trait BodyReader: Send + Sync {
    /// `language` is `sql` or `plpgsql`; no other is asked for.
    fn references(&self, language: &str, body: &str) -> BodyReferences;

    /// Of a body in any language.
    fn schema_effect(&self, language: &str, body: &str) -> Option<SchemaEffect>;
}

/// Closures that were walked already.
#[derive(Default)]
pub struct ClosureCache {
    walked: Mutex<HashMap<CacheKey, Walked>>,
    leaving: std::sync::OnceLock<session::LeavingParts>,
}

/// What a walk has found.
#[derive(Clone, Debug)]
struct Walked {
    closure: Arc<Closure>,
    /// The closure counts a change of the session's settings as something that is not known.
    call: Call,
    /// Apart from the closure: it is asked for too of what is declared because it is not known.
    notifies: bool,
    sets_local: bool,
    changes_schema: Option<(SchemaEffect, Oid)>,
    names: Arc<BTreeSet<String>>,
    /// As `notifies`: of what is declared too.
    effects: Arc<SessionEffects>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum CacheKey {
    Function(Oid),
    Relation(Oid, Access),
    /// What any statement may run: casts and checks of domains.
    Anywhere,
}

/// A copy of a catalogue is to become another one.
impl Clone for ClosureCache {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for ClosureCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClosureCache").field(&self.walked.lock().len()).finish()
    }
}

impl Catalog {
    /// What calling the function touches.
    pub fn closure_of_function(&self, function: Oid, reader: &dyn BodyReader) -> Arc<Closure> {
        self.walked_function(function, reader).closure
    }

    /// Does calling the function send notifications, or may it?
    pub fn function_notifies(&self, function: Oid, reader: &dyn BodyReader) -> bool {
        self.walked_function(function, reader).notifies
    }

    /// Does calling the function change a setting for the transaction?
    pub fn function_sets_local(&self, function: Oid, reader: &dyn BodyReader) -> bool {
        self.walked_function(function, reader).sets_local
    }

    /// What a statement that calls the function touches by it, and which settings that changes.
    pub fn call_of_function(&self, function: Oid, reader: &dyn BodyReader) -> Call {
        self.walked_function(function, reader).call
    }

    /// What calling the function may do to the schema, and which function does that.
    pub fn function_changes_schema(&self, function: Oid, reader: &dyn BodyReader) -> Option<(SchemaEffect, Oid)> {
        self.walked_function(function, reader).changes_schema
    }

    /// The same of a DO block, whose function is none.
    pub fn block_changes_schema(&self, language: &str, body: &str, reader: &dyn BodyReader) -> Option<(SchemaEffect, Oid)> {
        let own = reader.schema_effect(language, body).map(|effect| (effect, 0));
        if language != "plpgsql" {
            return own;
        }
        let mut walk = Walk::new(self, reader);
        walk.references(&reader.references(language, body), None, "the DO block");
        own.max(walk.changes_schema)
    }

    /// Names of relations in the function's body, and in those of functions that it calls, by which a session's temporary tables
    /// would be found.
    pub fn names_in_function(&self, function: Oid, reader: &dyn BodyReader) -> Arc<BTreeSet<String>> {
        self.walked_function(function, reader).names
    }

    fn walked_function(&self, function: Oid, reader: &dyn BodyReader) -> Walked {
        self.cached(CacheKey::Function(function), reader, |walk| walk.function(function))
    }

    /// What running the PL/pgSQL body of a DO block touches: under this search path, unless the body, or a function that it calls,
    /// may change it.
    pub fn call_of_block(&self, body: &str, search_path: &[String], reader: &dyn BodyReader) -> BlockCall {
        let of = "the DO block";
        let mut walk = Walk::new(self, reader);
        let found = reader.references("plpgsql", body);
        if let Some(why) = &found.unknown {
            walk.give_up(format!("{of} {why}"));
        }
        let calls_users = found.functions.iter().any(|function| self.function_names.contains_key(&function.name));
        let keeps_path = !calls_users && !body.to_ascii_lowercase().contains("search_path");
        walk.references(&found, keeps_path.then_some(search_path), of);
        walk.conversions(body, &[]);
        let (notifies, sets_local) = (walk.notifies, walk.sets_local);
        BlockCall { call: walk.finish_call().1, notifies, sets_local }
    }

    /// What using the relation touches beyond the relation itself.
    pub fn closure_of_relation(&self, relation: Oid, access: Access, reader: &dyn BodyReader) -> Arc<Closure> {
        self.cached(CacheKey::Relation(relation, access), reader, |walk| walk.relation(relation, access)).closure
    }

    fn cached(&self, key: CacheKey, reader: &dyn BodyReader, walk: impl FnOnce(&mut Walk<'_>)) -> Walked {
        if let Some(known) = self.closures.walked.lock().get(&key) {
            return known.clone();
        }
        // Not under the lock: two may walk the same at once, with the same result.
        let mut state = Walk::new(self, reader);
        walk(&mut state);
        let (notifies, sets_local, changes_schema) = (state.notifies, state.sets_local, state.changes_schema);
        let names = Arc::new(std::mem::take(&mut state.names));
        let effects = Arc::new(state.effects.clone());
        let (closure, call) = state.finish_call();
        let walked = Walked { closure, call, notifies, sets_local, changes_schema, names, effects };
        self.closures.walked.lock().insert(key, walked.clone());
        walked
    }

    /// The same as [`Catalog::closure_of_relation`], told apart by trigger, policy, rule and so on. Parts that touch nothing are
    /// left out.
    pub fn closures_by_part(&self, relation: Oid, access: Access, reader: &dyn BodyReader) -> Vec<PartClosure> {
        let Some(found) = self.relations.get(&relation) else { return Vec::new() };
        let mut parts = Vec::new();
        let mut add = |name: String, function: Option<Oid>, fires_on: TriggerEvents, visit: &dyn Fn(&mut Walk<'_>)| {
            let mut walk = Walk::new(self, reader);
            visit(&mut walk);
            let (notifies, sets_local, changes_schema) = (walk.notifies, walk.sets_local, walk.changes_schema);
            let closure = walk.finish();
            if notifies || sets_local || changes_schema.is_some() || closure != Closure::Known(References::default()) {
                let is_of_row = found.triggers.iter().any(|of| of.is_row && name == trigger_part(&of.name));
                parts.push(PartClosure { name, function, closure, notifies, sets_local, changes_schema, fires_on, is_of_row });
            }
        };
        if access != Access::Read {
            for trigger in &found.triggers {
                let visit = |walk: &mut Walk<'_>| walk.function(trigger.function);
                add(trigger_part(&trigger.name), Some(trigger.function), trigger.fires_on, &visit);
            }
            for rule in &found.rules {
                let events = self.events_of_rule(found, rule);
                add(format!("rule \"{rule}\""), None, events, &|walk| walk.rule(found, rule));
            }
        }
        for policy in found.policies.iter().filter(|_| access != Access::Action) {
            let visit = |walk: &mut Walk<'_>| {
                walk.policies(found, Some(&policy.name));
                walk.dependencies(found, access, &RowWrites::ALL, Some((DependentKind::Policy, &policy.name)));
            };
            add(format!("policy \"{}\"", policy.name), None, TriggerEvents::ALL, &visit);
        }
        let mut others: Vec<(DependentKind, &str)> = self
            .relation_dependencies
            .get(&relation)
            .into_iter()
            .flatten()
            .filter(|dependency| dependency.of.takes_part_in(access) && dependency.of != DependentKind::Policy)
            .map(|dependency| (dependency.of, dependency.name.as_str()))
            .collect();
        others.sort_unstable_by_key(|(kind, name)| (kind.word(), *name));
        others.dedup();
        for (kind, name) in others {
            let functions = self.functions_of(relation, kind, name);
            let function = if let [one] = functions.as_slice() { Some(*one) } else { None };
            // A sequence that a default draws from is expected, and no obstacle.
            let trigger = found.triggers.iter().find(|trigger| kind == DependentKind::TriggerWhen && trigger.name == name);
            let fires_on = match kind {
                DependentKind::Rule => self.events_of_rule(found, name),
                _ => trigger.map_or(TriggerEvents::ALL, |trigger| trigger.fires_on),
            };
            add(format!("{} \"{name}\"", kind.word()), function, fires_on, &|walk| {
                walk.dependencies(found, access, &RowWrites::ALL, Some((kind, name)));
                walk.sequences.clear();
            });
        }
        parts
    }

    fn functions_of(&self, relation: Oid, kind: DependentKind, name: &str) -> Vec<Oid> {
        let dependencies = self.relation_dependencies.get(&relation).into_iter().flatten();
        dependencies
            .filter(|dependency| dependency.of == kind && dependency.name == name)
            .filter_map(|dependency| match dependency.on {
                DependencyTarget::Function(oid) => Some(oid),
                DependencyTarget::Relation(_) => None,
            })
            .collect()
    }

    /// Columns of NEW that a trigger function may change, of types that keys have; `None`: cannot be told, it may be all of them.
    pub fn assigned_new_columns(&self, function: Oid, reader: &dyn BodyReader) -> Option<Vec<String>> {
        // PostgreSQL's own change nothing in a row, or a tsvector.
        let Some(function) = self.functions.get(&function) else { return (function < FIRST_USER_OID).then(Vec::new) };
        // What an extension's function (moddatetime and the like) changes its arguments say, which are not read.
        if function.is_extension_member || function.language != "plpgsql" {
            return None;
        }
        reader.references(&function.language, &function.body).assigned_new
    }
}

impl DependentKind {
    fn takes_part_in(self, access: Access) -> bool {
        match self {
            DependentKind::View | DependentKind::Policy => access != Access::Action,
            DependentKind::Rule
            | DependentKind::Default
            | DependentKind::Check
            | DependentKind::Index
            | DependentKind::TriggerWhen => access != Access::Read,
        }
    }

    fn word(self) -> &'static str {
        match self {
            DependentKind::View => "query of view",
            DependentKind::Rule => "rule",
            DependentKind::Policy => "policy",
            DependentKind::Default => "default of column",
            DependentKind::Check => "check",
            DependentKind::Index => "index",
            DependentKind::TriggerWhen => "condition of trigger",
        }
    }
}

/// One walk over what refers to what. Each function and relation is visited once, so recursion ends.
struct Walk<'a> {
    catalog: &'a Catalog,
    reader: &'a dyn BodyReader,
    functions: HashSet<Oid>,
    /// With what is done to their rows.
    relations: HashMap<(Oid, Access), RowWrites>,
    reads: BTreeSet<Oid>,
    writes: BTreeSet<Oid>,
    sequences: BTreeSet<Oid>,
    /// Names without a schema, and those of `pg_temp`.
    names: BTreeSet<String>,
    unknown: Option<String>,
    notifies: bool,
    sets_local: bool,
    /// What changes settings of the session, by their names.
    sets_session: Option<String>,
    effects: SessionEffects,
    changes_schema: Option<(SchemaEffect, Oid)>,
}

/// Of extensions, whose other functions are transparent: the trigger of `tcn`.
const NOTIFYING_EXTENSION_FUNCTIONS: [&str; 1] = ["triggered_change_notification"];

/// Of a body that cannot be read as a whole: does it say NOTIFY, or pg_notify, anywhere?
fn mentions_notify(body: &str) -> bool {
    body.to_ascii_lowercase().contains("notify")
}

impl<'a> Walk<'a> {
    fn new(catalog: &'a Catalog, reader: &'a dyn BodyReader) -> Self {
        Self {
            catalog,
            reader,
            functions: HashSet::new(),
            relations: HashMap::new(),
            reads: BTreeSet::new(),
            writes: BTreeSet::new(),
            sequences: BTreeSet::new(),
            names: BTreeSet::new(),
            unknown: None,
            notifies: false,
            sets_local: false,
            sets_session: None,
            effects: SessionEffects::default(),
            changes_schema: None,
        }
    }

    fn finish(self) -> Closure {
        Arc::unwrap_or_clone(self.finish_call().0)
    }

    fn finish_call(self) -> (Arc<Closure>, Call) {
        let sets = match (&self.unknown, &self.sets_session, &self.effects.settings_of_transaction) {
            (None, Some(_), ChangedSettings::Nothing | ChangedSettings::Named(_)) => CallSets::Session,
            (None, None, ChangedSettings::Named(_)) => CallSets::Local,
            (_, _, ChangedSettings::Nothing | ChangedSettings::Any) | (Some(_), _, _) => CallSets::Nothing,
        };
        let closure = Arc::new(match self.unknown {
            Some(why) => Closure::Unknown(why),
            None => Closure::Known(References {
                reads: self.reads.into_iter().collect(),
                writes: self.writes.into_iter().collect(),
                sequences: self.sequences.into_iter().collect(),
            }),
        });
        match (self.sets_session, &*closure) {
            (Some(why), Closure::Known(_)) => {
                let unknown = Arc::new(Closure::Unknown(why));
                let closure = if sets == CallSets::Session { closure } else { Arc::clone(&unknown) };
                (unknown, Call { closure, sets })
            }
            (_, _) => (Arc::clone(&closure), Call { closure, sets }),
        }
    }

    /// The first reason is kept: it is the nearest to what the user wrote.
    fn give_up(&mut self, why: String) {
        self.unknown.get_or_insert(why);
    }

    fn function(&mut self, oid: Oid) {
        if !self.functions.insert(oid) {
            return;
        }
        let Some(function) = self.catalog.functions.get(&oid) else { return };
        self.effects.names_left.extend(function.custom_settings.iter().cloned());
        if function.runs_queries() {
            self.effects.may_do_anything();
            self.give_up(format!("function \"{}\" runs a query that is given to it as text", function.name));
        }
        let effect = self.reader.schema_effect(&function.language, &function.body).filter(|effect| match effect {
            SchemaEffect::Changes => true,
            SchemaEffect::RunsAnything => !function.is_extension_member,
        });
        self.changes_schema = self.changes_schema.max(effect.map(|effect| (effect, oid)));
        if function.is_extension_member {
            self.notifies |= NOTIFYING_EXTENSION_FUNCTIONS.contains(&function.name.as_str());
            self.effects_of_member(function);
            return;
        }
        self.effects_of_signature(function);
        // Of an aggregate, its support functions; of any other, what its parameters' defaults and BEGIN ATOMIC body call.
        for called in self.catalog.function_dependencies.get(&oid).into_iter().flatten() {
            self.function(*called);
        }
        match function.language.as_str() {
            "internal" => {}
            "sql" | "plpgsql" => self.body(function),
            other => {
                self.notifies |= mentions_notify(&function.body);
                self.effects.add(&match other {
                    "c" => SessionEffects::of_c_function(&function.name, function.volatility),
                    _ => SessionEffects::of_other_language(other, &function.body),
                });
                self.give_up(format!("function \"{}\" is written in {other}", function.name));
            }
        }
    }

    fn body(&mut self, function: &Function) {
        let found = self.reader.references(&function.language, &function.body);
        if let Some(why) = &found.unknown {
            self.notifies |= mentions_notify(&function.body);
            self.give_up(format!("function \"{}\" {why}", function.name));
        }
        self.references(&found, function.search_path.as_deref(), &format!("function \"{}\"", function.name));
        // What pg_depend names and the text did not: seen as read.
        let named: Vec<Oid> = function.relations.iter().copied().filter(|oid| !self.writes.contains(oid)).collect();
        for oid in named {
            self.read(oid);
        }
        self.conversions(&function.body, &function.types);
    }

    /// What a body of this text calls without naming it. `types`: of values that it is given.
    fn conversions(&mut self, body: &str, types: &[Oid]) {
        let catalog = self.catalog;
        for conversion in &catalog.conversions {
            let is_given = types.iter().any(|given| conversion.types.contains(given));
            if is_given || catalog.may_convert(conversion, body, self.reads.iter().chain(&self.writes)) {
                self.function(conversion.function);
            }
        }
    }

    /// Values that are stored become those of the columns' types.
    fn assigned(&mut self, relation: &Relation) {
        let catalog = self.catalog;
        for known in relation.columns.iter().filter_map(|column| catalog.types.get(&column.type_oid)) {
            for function in catalog.type_functions.get(&known.name).into_iter().flatten() {
                self.function(*function);
            }
        }
    }

    fn references(&mut self, found: &BodyReferences, search_path: Option<&[String]>, of: &str) {
        self.notifies |= found.notifies;
        self.sets_local |= found.sets_local;
        if found.sets_session {
            self.sets_session.get_or_insert_with(|| format!("{of} changes a setting of the session"));
        }
        self.effects.add(&found.effects);
        let may_be_temporary = |name: &&BodyName| name.schema.as_deref().is_none_or(|schema| schema == "pg_temp");
        self.names.extend(found.reads.iter().chain(found.writes.keys()).filter(may_be_temporary).map(|name| name.name.clone()));
        for name in &found.reads {
            for oid in self.resolve(name, search_path) {
                self.read(oid);
            }
        }
        for (name, writes) in &found.writes {
            for oid in self.resolve(name, search_path) {
                self.write(oid, writes);
            }
        }
        for name in &found.functions {
            self.call(name, of);
        }
        for field in &found.fields {
            let functions = self.catalog.function_names.get(field).into_iter().flatten();
            let takes_row = |oid: &&Oid| self.catalog.functions.get(oid).is_some_and(|function| function.takes_row);
            let meant: Vec<Oid> = functions.filter(takes_row).copied().collect();
            for function in meant {
                self.function(function);
            }
        }
        for operator in &found.operators {
            for function in self.catalog.operator_functions.get(operator).into_iter().flatten() {
                self.function(*function);
            }
        }
    }

    fn call(&mut self, name: &BodyName, of: &str) {
        let candidates = self.catalog.function_names.get(&name.name).map(Vec::as_slice).unwrap_or_default();
        let is_meant = |oid: &&Oid| match (&name.schema, self.catalog.functions.get(oid)) {
            (Some(schema), Some(function)) => *schema == function.schema,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let meant: Vec<Oid> = candidates.iter().filter(is_meant).copied().collect();
        // One of pg_catalog may be meant beside those of users, unless the schema says which.
        let may_be_built_in = meant.is_empty() || name.schema.as_deref().is_none_or(|schema| schema == "pg_catalog");
        if may_be_built_in && READS_BY_ARGUMENT.contains(&name.name.as_str()) {
            self.give_up(format!("{of} calls {}, which reads what its argument names", name.name));
        }
        if may_be_built_in && name.name.starts_with("pg_") && name.name.contains("advisory") {
            self.give_up(format!("{of} calls {}, whose lock holds on one shard only", name.name));
        }
        if may_be_built_in {
            self.effects.add(&SessionEffects::of_function(&name.name));
        }
        if may_be_built_in && CONVERTS_BY_ARGUMENT.contains(&name.name.as_str()) {
            self.types();
        }
        for oid in meant {
            self.function(oid);
        }
    }

    /// Nothing found: a temporary table, a common name of pg_catalog, or an error when it runs.
    fn resolve(&self, name: &BodyName, search_path: Option<&[String]>) -> Vec<Oid> {
        let catalog = self.catalog;
        match (&name.schema, search_path) {
            (Some(schema), _) => catalog.resolve(Some(schema), &name.name, &[]).map(|relation| relation.oid).into_iter().collect(),
            (None, Some(path)) => catalog.resolve(None, &name.name, path).map(|relation| relation.oid).into_iter().collect(),
            (None, None) => catalog
                .schemas
                .iter()
                .filter_map(|schema| catalog.resolve(Some(schema), &name.name, &[]))
                .map(|relation| relation.oid)
                .collect(),
        }
    }

    fn read(&mut self, oid: Oid) {
        let Some(relation) = self.catalog.relations.get(&oid) else { return };
        if relation.kind != RelationKind::View {
            self.reads.insert(oid);
        }
        self.relation(oid, Access::Read);
    }

    fn write(&mut self, oid: Oid, writes: &RowWrites) {
        let Some(relation) = self.catalog.relations.get(&oid) else { return };
        if relation.kind != RelationKind::View {
            self.writes.insert(oid);
        }
        self.relation_written(oid, Access::Write, writes);
    }

    /// A write: any.
    fn relation(&mut self, oid: Oid, access: Access) {
        let writes = if access == Access::Read { RowWrites::NONE } else { RowWrites::ALL };
        self.relation_written(oid, access, &writes);
    }

    fn rule(&mut self, relation: &Relation, rule: &str) {
        self.effects.may_do_anything();
        self.give_up(format!("rule \"{rule}\" of \"{}\" rewrites statements", relation.name));
    }

    /// A policy depends on its own table's columns in any case; whether it also reads that table in a sub-select only its text
    /// tells.
    fn policies(&mut self, relation: &Relation, only: Option<&str>) {
        let chosen =
            relation.policies.iter().filter(|policy| relation.has_row_security && only.is_none_or(|only| only == policy.name));
        for policy in chosen {
            let of = format!("policy \"{}\" of \"{}\"", policy.name, relation.name);
            for expression in &policy.expressions {
                let found = self.reader.references("sql", &format!("SELECT {expression}"));
                if let Some(why) = &found.unknown {
                    self.give_up(format!("{of} {why}"));
                }
                self.references(&found, None, &of);
            }
            for oid in &policy.relations {
                self.read(*oid);
            }
        }
    }

    fn dependencies(&mut self, relation: &Relation, access: Access, writes: &RowWrites, only: Option<(DependentKind, &str)>) {
        let catalog = self.catalog;
        for dependency in catalog.relation_dependencies.get(&relation.oid).into_iter().flatten() {
            let is_chosen = only.is_none_or(|(kind, name)| kind == dependency.of && name == dependency.name);
            let counts = dependency.of != DependentKind::Policy || relation.has_row_security;
            if !is_chosen || !counts || !dependency.of.takes_part_in(access) || !self.takes_part(relation, dependency, writes) {
                continue;
            }
            // A materialised view shows what it stored, not what its query reads.
            if dependency.of == DependentKind::View && relation.kind != RelationKind::View {
                continue;
            }
            match dependency.on {
                DependencyTarget::Function(oid) => self.function(oid),
                DependencyTarget::Relation(oid) => self.depends_on_relation(relation, dependency.of, oid, (access, writes)),
            }
        }
    }

    fn depends_on_relation(&mut self, relation: &Relation, kind: DependentKind, oid: Oid, (access, writes): (Access, &RowWrites)) {
        match kind {
            DependentKind::Default
                if self.catalog.relations.get(&oid).is_some_and(|found| found.kind == RelationKind::Sequence) =>
            {
                self.sequences.insert(oid);
            }
            DependentKind::View => {
                self.read(oid);
                // Without an INSTEAD OF trigger the write goes through to the tables below.
                let through = writes.through_view(relation);
                if access == Access::Write && through != RowWrites::NONE {
                    self.write(oid, &through);
                }
            }
            DependentKind::Default
            | DependentKind::Rule
            | DependentKind::Policy
            | DependentKind::Check
            | DependentKind::Index
            | DependentKind::TriggerWhen => self.read(oid),
        }
    }
}

#[cfg(test)]
mod tests;
