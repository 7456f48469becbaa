//! Function calls: which are aggregates, which change something or differ from shard to shard, and what a user's function
//! touches behind the statement's back.

use std::sync::Arc;

use pg_raw_parse::{Node, nodes};

use super::bind::{Draws, Reader};
use super::catalog_functions::{self, Nature};
use super::expression::Place;
use super::keyed_calls::CallAt;
use super::relations::{self, Resolved};
use super::scope::Frame;
use crate::catalog::{Access, Call, CallSets, Closure, Function, Oid, References, RelationKind, SchemaEffect};
use crate::error::{PgError, capitalised};
use crate::shard_key::KeyType;
use crate::shardmap::DeclaredFunction;
use crate::sql::analysis::{Numbers, SessionCall, ShardgateCall};
use crate::sql::body::SqlBodyReader;
use crate::sql::called::{self, Given};
use crate::sql::parse::tree;
use crate::sql::rewrite::drawing;
use crate::sql::utility::shardgate_call::{self, Naming};

impl<'c> Reader<'c> {
    /// The function's name when it can only mean one of `pg_catalog`.
    pub fn catalog_function<'n>(&self, call: &'n nodes::FuncCall, frame: &Frame<'_>) -> Option<&'n str> {
        self.catalog_function_given(call, || self.given(call, frame))
    }

    /// The same for a call whose argument types are known already: to find them again at each level of nested calls would take a
    /// time that doubles with each level.
    pub(super) fn catalog_function_given<'n>(&self, call: &'n nodes::FuncCall, given: impl FnOnce() -> Given) -> Option<&'n str> {
        let names = tree::names(call.funcname())?;
        match names.as_slice() {
            ["pg_catalog", name] => Some(name),
            [name] if called::functions_of_users(self.context, &self.search_path, name, given).is_empty() => Some(name),
            _ => None,
        }
    }

    fn given(&self, call: &nodes::FuncCall, frame: &Frame<'_>) -> Given {
        Given::of(call, |argument| self.type_of_value(argument, frame))
    }

    /// Functions of users that the call may mean.
    pub(super) fn functions_of_users(&self, call: &nodes::FuncCall, frame: &Frame<'_>) -> Vec<&'c Function> {
        let given = || self.given(call, frame);
        match tree::names(call.funcname()).unwrap_or_default().as_slice() {
            [name] => called::functions_of_users(self.context, &self.search_path, name, given),
            [schema, name] => self.functions_named(name).filter(|function| function.schema == *schema).collect(),
            _ => Vec::new(),
        }
    }

    fn functions_named(&self, name: &str) -> impl Iterator<Item = &'c Function> + use<'c> {
        let catalog = &self.context.catalog;
        catalog.function_names.get(name).into_iter().flatten().filter_map(|oid| catalog.functions.get(oid))
    }

    /// In FROM: a function of the schema `shardgate` whose rows the proxy gives.
    pub fn own_call(&mut self, function: &nodes::RangeFunction) -> Option<Result<ShardgateCall, PgError>> {
        let may_declare = std::mem::take(&mut self.may_declare);
        let is_user_function = |name: &str| self.context.catalog.function_names.contains_key(name);
        let is_schema_searched = self.search_path.iter().any(|schema| schema == shardgate_call::SCHEMA);
        shardgate_call::in_from(function, &Naming { is_schema_searched, is_user_function: &is_user_function }, may_declare)
    }

    /// Its arguments are those of this text.
    pub fn note_own_call(&mut self, call: Result<ShardgateCall, PgError>) {
        self.notes.is_bound_to_text = true;
        match call {
            Ok(call) => self.notes.reads_proxy_call(call),
            Err(refusal) => self.notes.refuse(refusal),
        }
    }

    /// Notes what a call does; whether it is an aggregate.
    pub fn note_call(&mut self, call: &nodes::FuncCall, frame: &Frame<'_>, place: Place) -> Result<bool, PgError> {
        let names = tree::names(call.funcname()).unwrap_or_default();
        let (schema, name) = match names.as_slice() {
            [name] => (None, *name),
            [schema, name] => (Some(*schema), *name),
            _ => (None, ""),
        };
        let is_user_function = |name: &str| self.context.catalog.function_names.contains_key(name);
        let is_schema_searched = self.search_path.iter().any(|schema| schema == shardgate_call::SCHEMA);
        let naming = Naming { is_schema_searched, is_user_function: &is_user_function };
        if let Some(name) = naming.function(call)
            && !is_user_function(name)
        {
            match self.draws {
                Draws::Value | Draws::Select if drawing::is_unique_id(call, self.context) => {
                    self.note_numbers(Numbers::Drawn);
                    return Ok(false);
                }
                Draws::Nothing | Draws::Value | Draws::Select => self.notes.refuse(shardgate_call::not_alone(name)),
            }
        }
        let candidates = self.functions_of_users(call, frame);
        let mut is_aggregate = call.agg_star || call.agg_distinct || call.agg_within_group || !call.agg_order().is_empty();
        is_aggregate |= !matches!(call.agg_filter(), Node::None);
        for function in &candidates {
            is_aggregate |= function.kind == 'a' || function.kind == 'w';
            self.note_called_function(function, CallAt { call, frame, place });
        }
        if schema.is_none_or(|schema| schema == "pg_catalog") {
            is_aggregate |= catalog_functions::is_aggregate(name);
            if schema.is_some() || !self.is_clock_of_users(name, call) {
                self.note_catalog_function(name, call, place);
            }
        } else if candidates.is_empty() && schema != Some("information_schema") {
            // Not in the catalogue that was read: PostgreSQL says so, or it came a moment ago.
            self.notes.has_unknown_names = true;
            self.notes.touches_anything.get_or_insert_with(|| format!("Function \"{name}\" is not known."));
        }
        Ok(is_aggregate)
    }

    /// Whether a call is one of an aggregate or a window function, or may be.
    pub fn is_aggregate_call(&self, call: &nodes::FuncCall, frame: &Frame<'_>) -> bool {
        let names = tree::names(call.funcname()).unwrap_or_default();
        let (schema, name) = match names.as_slice() {
            [name] => (None, *name),
            [schema, name] => (Some(*schema), *name),
            _ => return true,
        };
        let has_clause = call.agg_star || call.agg_distinct || call.agg_within_group || !call.agg_order().is_empty();
        let is_of_catalog = schema.is_none_or(|schema| schema == "pg_catalog") && catalog_functions::is_aggregate(name);
        has_clause
            || !matches!(call.agg_filter(), Node::None)
            || is_of_catalog
            || self.functions_of_users(call, frame).iter().any(|function| matches!(function.kind, 'a' | 'w'))
    }

    /// It may be an aggregate that a user made. Those of extensions are for types of theirs.
    pub fn may_be_aggregate_of_user(&self, call: &nodes::FuncCall, frame: &Frame<'_>) -> bool {
        let is_such = |function: &&Function| matches!(function.kind, 'a' | 'w') && !function.is_extension_member;
        self.functions_of_users(call, frame).iter().any(is_such)
    }

    /// Operators of users call functions of users.
    pub fn note_operators(&mut self, names: &mut Vec<&str>, place: Place) {
        names.sort_unstable();
        names.dedup();
        let catalog = &self.context.catalog;
        for name in names.iter() {
            for oid in catalog.operator_functions.get(*name).into_iter().flatten() {
                if let Some(function) = catalog.functions.get(oid) {
                    self.note_user_function(function, place);
                }
            }
        }
    }

    /// A name after a dot that may be a function's.
    pub fn note_field(&mut self, name: &str, place: Place) {
        for function in self.functions_named(name) {
            if self.search_path.contains(&function.schema) {
                self.note_user_function(function, place);
            }
        }
    }

    fn is_clock_of_users(&self, name: &str, call: &nodes::FuncCall) -> bool {
        let is_clock = call.args().is_empty() && catalog_functions::nature(name, 0) == Nature::Clock;
        is_clock && self.context.hiding(name, &self.search_path).is_some_and(|function| function.argument_count == 0)
    }

    fn note_catalog_function(&mut self, name: &str, call: &nodes::FuncCall, place: Place) {
        match catalog_functions::session_call(name) {
            Some(SessionCall::SetConfig) if is_timeout_of_statement(call) => {
                self.notes.is_bound_to_text = true;
                self.notes.session_call(SessionCall::SetTimeout);
            }
            Some(effect) => self.notes.session_call(effect),
            None => {}
        }
        match catalog_functions::nature(name, call.args().len()) {
            Nature::Plain if name == "current_setting" => self.note_setting(call),
            Nature::Plain => self.notes.asks_one_server |= catalog_functions::describes_object(name),
            Nature::Random => {
                self.notes.volatile.get_or_insert_with(|| format!("{name}()"));
                match place {
                    Place::Output => self.note_drawn(name),
                    Place::Stored => {}
                    Place::Inside | Place::OuterOn => self.notes.not_pushable(volatile(name)),
                }
            }
            Nature::Clock => self.note_clock(&format!("{name}()")),
            Nature::Server => self.note_server(name),
            Nature::Size => {
                self.notes.not_pushable(one_server(name));
                // What the other shards have is added there.
                self.notes.calls_at_home(name, "is computed on the home shard.");
            }
            Nature::Sequence => {
                // Whichever sequence it is: the next text of this form may name another kind of one.
                self.fix_arguments(call);
                if drawing::has_parameters(call) {
                    self.notes.session_call(SessionCall::SequenceOfParameter);
                } else if name == "setval" && !drawing::names_sequence(call) && !self.context.map.sequences.is_empty() {
                    self.notes.refuse(drawing::not_named());
                }
                match drawing::cluster_sequence_of(call, self.context) {
                    Some(_) if self.draws == Draws::Value && name == "nextval" => {
                        self.note_numbers(Numbers::Drawn);
                        return;
                    }
                    Some(_) if self.draws == Draws::Select => {}
                    Some((_, sequence)) => self.notes.refuse(drawing::not_here(name, &sequence)),
                    None if matches!(name, "nextval" | "setval") => self.note_numbers(Numbers::AtHome),
                    None => {}
                }
                self.note_writing(name);
                self.notes.calls_at_home(name, "uses a sequence, which lives on the home shard.");
            }
            Nature::Session => self.note_writing(name),
            Nature::Writing => {
                self.note_writing(name);
                if name == "pg_notify" {
                    self.notes.sends_notifications(|| "pg_notify()".to_owned());
                }
                self.notes.calls_at_home(name, "concerns one server: the home shard.");
            }
            Nature::RunsQuery => {
                self.notes.touches_anything.get_or_insert_with(|| format!("{name}() runs a query that is not read."));
            }
        }
    }

    fn note_drawn(&mut self, name: &str) {
        self.drawn.get_or_insert_with(|| name.to_owned());
    }

    fn note_writing(&mut self, name: &str) {
        self.notes.volatile.get_or_insert_with(|| format!("{name}()"));
        self.notes.writes();
        self.notes.not_pushable(one_server(name));
    }

    /// A function that is called without its name: by an operator, a cast, a domain.
    pub fn note_user_function(&mut self, function: &Function, place: Place) {
        let closure = Arc::new(self.closure(function));
        self.note_function(function, place, &Call { closure, sets: CallSets::Nothing });
    }

    /// A function that a part of a table calls.
    pub fn note_part(&mut self, function: &Function) {
        self.note_user_function(function, Place::Output);
    }

    /// A function whose name stands in the statement: the settings that it changes are followed.
    fn note_called_function(&mut self, function: &Function, at: CallAt<'_, '_>) {
        let mut of_call = match !self.is_declared(function) && !is_transparent(function) {
            true => self.context.catalog.call_of_function(function.oid, &SqlBodyReader),
            false => Call { closure: Arc::new(self.closure(function)), sets: CallSets::Nothing },
        };
        if let Closure::Known(references) = &*of_call.closure {
            of_call.closure = Arc::new(Closure::Known(self.without_key_argument(function, at, references.clone())));
        }
        self.note_function(function, at.place, &of_call);
    }

    fn note_function(&mut self, function: &Function, place: Place, call: &Call) {
        if call.sets == CallSets::Session {
            self.notes.session_call(SessionCall::Server);
            self.notes.session_call(SessionCall::Sets);
            self.notes.volatile.get_or_insert_with(|| format!("{}()", function.name));
            self.notes.not_pushable(one_server(&function.name));
        }
        if function.volatility == 'v' {
            self.notes.volatile.get_or_insert_with(|| format!("{}()", function.name));
            if place != Place::Output || !function.is_extension_member {
                self.notes.not_pushable(volatile(&function.name));
            } else {
                self.note_drawn(&function.name);
            }
        }
        if function.volatility != 'i' {
            self.notes.session_call(SessionCall::Server);
            self.note_server_calls(function);
        }
        let writes = match &*call.closure {
            Closure::Known(References { writes, .. }) => !writes.is_empty(),
            Closure::Unknown(_) => function.volatility == 'v',
        };
        if writes {
            self.notes.writes();
        }
        self.note_temporary_names(function);
        if self.context.catalog.function_notifies(function.oid, &SqlBodyReader) {
            self.notes.sends_notifications(|| format!("function \"{}\"", function.name));
        }
        if !self.is_declared(function) && self.context.catalog.function_sets_local(function.oid, &SqlBodyReader) {
            self.notes.session_call(match call.sets {
                CallSets::Nothing => SessionCall::SetsLocally,
                CallSets::Local | CallSets::Session => SessionCall::SetsNamedLocally,
            });
        }
        // That a function may run anything its declaration rules out.
        let changes = self.context.catalog.function_changes_schema(function.oid, &SqlBodyReader);
        let is_declared = self.is_declared(function);
        self.notes.may_change_schema(changes.filter(|(effect, _)| *effect == SchemaEffect::Changes || !is_declared));
        match &*call.closure {
            Closure::Known(references) => {
                self.note_copies_read(function, references);
                self.note_declaration(function, references);
                self.note_references(references, &format!("function \"{}\"", function.name));
            }
            Closure::Unknown(reason) => {
                self.note_declared_before(function);
                self.notes.touches_anything.get_or_insert_with(|| reason.clone());
            }
        }
    }

    /// What would say that it touches rows of one key, which the first argument gives that has the key's type.
    fn note_declaration(&mut self, function: &Function, references: &References) {
        let key_type = |oid: &Oid| {
            let relation = self.context.catalog.relations.get(oid)?;
            match relations::placed(self.context, relation, true) {
                Resolved::Sharded { group, .. } => group.key_types.first().copied(),
                _ => None,
            }
        };
        let Some(key) = references.reads.iter().chain(&references.writes).find_map(key_type) else { return };
        let place = |is_key: &dyn Fn(KeyType) -> bool| {
            function.argument_types.iter().position(|argument| KeyType::of_column(*argument).is_some_and(is_key))
        };
        let argument = place(&|argument| argument == key).or_else(|| place(&|argument| argument.is_alike(key)));
        // Where it is known which argument gives the key, nothing is left to be said of it.
        if let Some(argument) = argument.filter(|_| !self.is_declared(function) && !self.notes.lacks_key) {
            let text = shardgate_call::declaration(&self.context.catalog, function, references, Some(argument + 1));
            self.notes.declaration.get_or_insert(text);
        }
    }

    /// Where the temporary tables are, names in a body mean these.
    fn note_temporary_names(&mut self, function: &Function) {
        let own = &self.context.temporary_tables;
        if own.is_empty() || function.is_extension_member {
            return;
        }
        let names = self.context.catalog.names_in_function(function.oid, &SqlBodyReader);
        if let Some(table) = own.iter().find(|table| names.contains(*table)) {
            self.notes.needs_home(|| format!("\"{}\" names temporary table \"{table}\".", function.name));
            self.notes.names_temporary.get_or_insert_with(|| table.clone());
        }
    }

    pub fn is_declared(&self, function: &Function) -> bool {
        self.declared(function).is_some()
    }

    /// What was declared of the function as it is.
    pub(super) fn declared(&self, function: &Function) -> Option<&'c DeclaredFunction> {
        self.context.declared(function)
    }

    /// What a function touches: declared, or proven from its body.
    pub(super) fn closure(&self, function: &Function) -> Closure {
        if let Some(declared) = self.declared(function) {
            return match self.declared_references(declared) {
                Some(references) => Closure::Known(references),
                None => {
                    Closure::Unknown(format!("A table that function \"{}\" is declared to touch does not exist.", function.name))
                }
            };
        }
        if is_transparent(function) {
            return Closure::Known(References::default());
        }
        self.context.catalog.closure_of_function(function.oid, &SqlBodyReader).as_ref().clone()
    }

    fn declared_references(&self, declared: &DeclaredFunction) -> Option<References> {
        let oids = |tables: &[(String, String)]| -> Option<Vec<u32>> {
            tables.iter().map(|table| self.context.catalog.relation_names.get(table).copied()).collect()
        };
        Some(References { reads: oids(&declared.reads)?, writes: oids(&declared.writes)?, sequences: Vec::new() })
    }

    /// What was declared of another function of its name, or of what it was.
    pub(super) fn note_declared_before(&mut self, function: &Function) {
        let declared = self.context.map.functions.get(&(function.schema.clone(), function.name.clone()));
        let Some(declared) = declared.filter(|_| !self.is_declared(function)) else { return };
        if let Some(references) = self.declared_references(declared) {
            let text = shardgate_call::declaration(&self.context.catalog, function, &references, declared.key_argument);
            self.notes.declared_before.get_or_insert(text);
        }
    }

    /// Relations that are read and written besides those that the statement names.
    pub fn note_references(&mut self, references: &References, by: &str) {
        let catalog = &self.context.catalog;
        let is_ours = |oid: &&u32| {
            let name = catalog.relations.get(oid).map(|found| (found.schema.clone(), found.name.clone()));
            name.is_some_and(|name| self.context.map.sequences.contains_key(&name))
        };
        let (numbered, sequences): (Vec<u32>, Vec<u32>) = references.sequences.iter().partition(is_ours);
        if !numbered.is_empty() {
            self.note_numbers(Numbers::Unseen);
        } else if !sequences.is_empty() {
            self.note_numbers(Numbers::AtHome);
        }
        let sequences = sequences.iter().map(|oid| (oid, true));
        let writes = references.writes.iter().map(|oid| (oid, true));
        for (oid, is_write) in references.reads.iter().map(|oid| (oid, false)).chain(writes).chain(sequences) {
            self.note_hidden_relation(*oid, is_write, by, 0);
        }
    }

    fn note_hidden_relation(&mut self, oid: u32, is_write: bool, by: &str, depth: usize) {
        let Some(relation) = self.context.catalog.relations.get(&oid) else {
            // Of pg_catalog, or gone.
            return;
        };
        if relation.kind == RelationKind::Sequence {
            self.note_numbers(Numbers::AtHome);
        }
        match relations::placed(self.context, relation, true) {
            Resolved::Sharded { .. } => self.notes.hidden_sharded.push(oid),
            Resolved::Reference(_) if is_write => self.notes.refuse(PgError::unsupported(
                format!("{by} writes to reference table \"{}\"", relation.name),
                "It would change the copy on one shard only.",
                "Write to the reference table in a statement of its own.",
            )),
            Resolved::Reference(_) => self.notes.reads_hidden_copy(by, &relation.name),
            Resolved::Home(_) => {
                let name = relation.name.clone();
                self.notes.needs_home(|| format!("{} uses table \"{name}\", which lives on the home shard.", capitalised(by)));
            }
            Resolved::View(_) if depth == 0 => {
                match self.context.catalog.closure_of_relation(oid, Access::Read, &SqlBodyReader).as_ref() {
                    Closure::Known(references) => {
                        for read in &references.reads {
                            self.note_hidden_relation(*read, is_write, by, depth + 1);
                        }
                    }
                    Closure::Unknown(reason) => {
                        self.notes.touches_anything.get_or_insert_with(|| reason.clone());
                    }
                }
            }
            Resolved::View(_) => {}
            Resolved::Mixed(detail) => {
                self.notes.touches_anything.get_or_insert(detail);
            }
            Resolved::System | Resolved::Map(_) | Resolved::Proxy(_) => {}
        }
    }
}

/// It touches no table of users.
fn is_transparent(function: &Function) -> bool {
    // An aggregate is made of other functions.
    (function.is_extension_member && !function.runs_queries()) || (function.language == "internal" && function.kind != 'a')
}

pub fn volatile(name: &str) -> PgError {
    PgError::unsupported(
        format!("volatile function {name}() is not supported across shards in this place"),
        "It would be evaluated on each shard, with other results than on one server.",
        "Evaluate it first and pass its result, or restrict the statement to one shard key.",
    )
}

pub fn one_server(name: &str) -> PgError {
    PgError::unsupported(
        format!("function {name}() is not supported across shards"),
        "Its result or effect belongs to one server.",
        "Call it in a statement of its own, or restrict the statement to one shard key.",
    )
}

pub fn unknown_construct(what: &str) -> PgError {
    PgError::unsupported(
        format!("{what} is not supported across shards"),
        "What it reads is not known to the proxy.",
        "Restrict the statement to one shard key.",
    )
}

/// `set_config('lock_timeout', …, true)`: outside of a transaction block it counts for this statement alone.
fn is_timeout_of_statement(call: &nodes::FuncCall) -> bool {
    let text = |place: usize| call.args().get(place).and_then(tree::constant_text);
    let is_timeout = text(0).is_some_and(|name| matches!(name.as_str(), "lock_timeout" | "statement_timeout"));
    is_timeout && text(2).is_some_and(|is_local| matches!(is_local.as_str(), "true" | "t"))
}
