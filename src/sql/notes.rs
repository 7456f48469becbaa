//! What was seen while reading a statement, collected across its queries.

use std::collections::BTreeSet;

use super::analysis::{Effect, KeyCondition, Numbers, ProxyRows, SessionCall, ShardgateCall};
use crate::catalog::{Oid, SchemaEffect};
use crate::error::{PgError, capitalised};

#[derive(Debug, Default)]
pub struct Notes {
    effect: SeenEffect,
    pub session_calls: Vec<SessionCall>,
    /// Ordinals of literals whose values decided the reading.
    pub fixed_literals: BTreeSet<u32>,
    /// Decided by something of the text that is not a literal's value alone.
    pub is_bound_to_text: bool,
    /// Why the statement cannot run on several shards: the first reason found.
    pub pushdown: Option<PgError>,
    /// Why it needs the home shard, besides home tables.
    pub home_reason: Option<String>,
    /// That is a call of one of PostgreSQL's own functions.
    pub calls_home: bool,
    /// A view of a sharded table is written to, which is no table of the home shard.
    pub through_view: Option<PgError>,
    /// A materialized view.
    pub reads_stored_view: bool,
    /// What a function or policy reads of reference tables: the first found.
    pub hidden_copy: Option<String>,
    /// The temporary table of the session that a function names.
    pub names_temporary: Option<String>,
    /// Sharded tables that a function reads or writes, without a condition: their relations.
    pub hidden_sharded: Vec<Oid>,
    /// Those that a function reads or writes by a key that it is given.
    pub hidden_keyed: Vec<Oid>,
    /// The trigger or policy that touches the first of them.
    pub hidden_by: Option<String>,
    /// A function touches rows of a key that an argument gives, and the call does not say which.
    pub lacks_key: bool,
    /// The call of `declare_function` that would say that these are rows of one key.
    pub declaration: Option<String>,
    /// The call that has declared a function of this name before it became what it is.
    pub declared_before: Option<String>,
    /// It may touch any table: why.
    pub touches_anything: Option<String>,
    /// The same, if it reads sharded tables at all.
    pub may_be_of_query_around: Option<String>,
    pub has_replicated: bool,
    /// Rows of reference tables are locked: what to say where that is not on the home shard.
    pub locks_copies: Option<PgError>,
    pub has_system: bool,
    pub has_unknown_names: bool,
    pub has_map: bool,
    pub proxy: ProxyRows,
    /// Every relation of the catalogue that the statement names or opens.
    pub relations: BTreeSet<Oid>,
    /// Functions of casts to the types of columns that are written.
    pub assigned: BTreeSet<Oid>,
    /// INSERT: the key of each row of VALUES, when there are several and all are known.
    pub split_rows: Option<Vec<KeyCondition>>,
    /// Refused whatever the keys are.
    pub refused: Option<PgError>,
    pub numbers: Numbers,
    /// Values that differ from one evaluation to the next: the first function found.
    pub volatile: Option<String>,
    /// What sends notifications: the first found.
    pub notifies: Option<String>,
    /// A function or block that may change the schema, by its oid: the first found of those that are most certain to.
    pub changes_schema: Option<(SchemaEffect, Oid)>,
    /// Values that may differ from one copy of a reference table to the next: the first one found.
    pub of_one_copy: Option<String>,
    /// It asks for what differs from server to server, its transaction aside: names, addresses, numbers of objects.
    pub asks_one_server: bool,
    /// What a query gives hangs on which rows of reference tables are found first.
    pub finds_first: bool,
    /// A query shows one of several values that are equal and do not look alike, in columns that conditions above it may be about.
    pub shows_one_of_equals: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum SeenEffect {
    #[default]
    Read,
    Lock,
    Write,
}

impl Notes {
    pub fn not_pushable(&mut self, reason: PgError) {
        self.pushdown.get_or_insert(reason);
    }

    pub fn refuse(&mut self, reason: PgError) {
        self.refused.get_or_insert(reason);
    }

    pub fn clock(&mut self, name: &str) {
        self.session_call(SessionCall::Server);
        self.volatile.get_or_insert_with(|| name.to_owned());
        self.not_pushable(PgError::unsupported(
            format!("{name} is not supported across shards"),
            "Each shard would read its own clock.",
            "Pass the time as a parameter, or restrict the statement to one shard key.",
        ));
    }

    pub fn needs_home(&mut self, reason: impl FnOnce() -> String) {
        self.home_reason.get_or_insert_with(reason);
    }

    /// `what`: that the function is or does.
    pub fn calls_at_home(&mut self, name: &str, what: &str) {
        self.calls_home |= self.home_reason.is_none();
        self.needs_home(|| format!("{name}() {what}"));
    }

    pub fn locks(&mut self) {
        self.effect = self.effect.max(SeenEffect::Lock);
    }

    pub fn writes(&mut self) {
        self.effect = SeenEffect::Write;
    }

    pub fn effect(&self) -> Effect {
        match self.effect {
            SeenEffect::Read => Effect::Read,
            SeenEffect::Lock => Effect::ReadLocking,
            SeenEffect::Write => Effect::Write,
        }
    }

    /// `what` sends notifications, which leave with the commit of one shard.
    pub fn sends_notifications(&mut self, what: impl FnOnce() -> String) {
        self.writes();
        self.notifies.get_or_insert_with(what);
    }

    pub fn may_change_schema(&mut self, effect: Option<(SchemaEffect, Oid)>) {
        let certainty = |found: Option<(SchemaEffect, Oid)>| found.map(|(effect, _)| effect);
        if certainty(effect) > certainty(self.changes_schema) {
            self.changes_schema = effect;
        }
    }

    /// A sharded table that a function reads or writes.
    pub fn hidden_sharded_table(&self) -> Option<Oid> {
        self.hidden_sharded.first().or(self.hidden_keyed.first()).copied()
    }

    pub fn touches(&mut self, relation: Oid) {
        self.relations.insert(relation);
    }

    /// `by`: a function or policy, which the statement does not show.
    pub fn reads_hidden_copy(&mut self, by: &str, table: &str) {
        self.hidden_copy.get_or_insert_with(|| format!("{} uses table \"{table}\".", capitalised(by)));
        self.reads_replicated();
    }

    pub fn reads_replicated(&mut self) {
        self.has_replicated = true;
    }

    pub fn reads_system(&mut self) {
        self.has_system = true;
    }

    pub fn reads_map(&mut self) {
        self.has_map = true;
    }

    pub fn reads_proxy(&mut self, relation: String) {
        self.proxy.relations.push(relation);
    }

    pub fn reads_proxy_call(&mut self, call: ShardgateCall) {
        self.proxy.calls.push(call);
    }

    pub fn session_call(&mut self, call: SessionCall) {
        if !self.session_calls.contains(&call) {
            self.session_calls.push(call);
        }
    }
}
