//! What has another value on each server: names of databases, numbers of objects, settings of the server; and functions of users that
//! ask for these.
//!
//! Copies of a reference table would become different ones, and rows of several shards would each show their shard's own.

use std::collections::HashSet;

use pg_raw_parse::{Node, nodes};

use super::bind::Reader;
use super::catalog_functions::{self, Nature};
use super::expression::Place;
use super::functions::one_server;
use crate::catalog::{BodyReader, Function, Oid};
use crate::sql::analysis::SessionCall;
use crate::sql::body::SqlBodyReader;
use crate::sql::parse::tree;
use crate::sql::rewrite::clock::mentions_clock;

impl Reader<'_> {
    /// A call that answers for one server.
    pub fn note_server(&mut self, name: &str) {
        if !catalog_functions::ONCE_ANYWHERE.contains(&name) {
            self.notes.session_call(SessionCall::Server);
            self.notes.asks_one_server |= !catalog_functions::is_of_transaction(name);
        }
        self.notes.volatile.get_or_insert_with(|| format!("{name}()"));
        self.notes.not_pushable(one_server(name));
    }

    /// The session's settings are the same on every shard, the servers' own are not.
    pub fn note_setting(&mut self, call: &nodes::FuncCall) {
        self.fix_arguments(call);
        let name = call.args().first().map(tree::without_casts).and_then(tree::constant_text);
        if name.is_none_or(|name| is_of_server(&name.to_ascii_lowercase())) {
            self.note_server("current_setting");
        }
    }

    /// A cast to what is named by its number, which differs from server to server; and to a type whose casts and checks call functions
    /// of users.
    pub fn note_cast(&mut self, cast: &nodes::TypeCast, place: Place) {
        let Some(name) = type_name(cast) else { return };
        if REGISTERED.contains(&name) {
            self.notes.of_one_copy.get_or_insert_with(|| format!("a cast to {name}"));
            let is_number = |text: String| text.bytes().all(|byte| byte.is_ascii_digit());
            self.notes.asks_one_server |= tree::constant_text(tree::without_casts(cast.arg())).is_none_or(is_number);
        }
        if NUMBERS.contains(&name) && is_registered(cast.arg()) {
            self.note_server("oid");
        }
        let catalog = &self.context.catalog;
        for function in catalog.type_functions.get(name).into_iter().flatten() {
            if let Some(function) = catalog.functions.get(function) {
                self.note_user_function(function, place);
            }
        }
    }

    /// What a function of users asks the server for.
    pub fn note_server_calls(&mut self, function: &Function) {
        let mut seen = HashSet::new();
        let found = self.server_calls(function, &mut seen);
        if found.of_server {
            self.note_server(&function.name);
        }
        if found.of_clock {
            self.notes.of_one_copy.get_or_insert_with(|| format!("{}()", function.name));
        }
    }

    fn server_calls(&self, function: &Function, seen: &mut HashSet<Oid>) -> Asked {
        let is_read = matches!(function.language.as_str(), "sql" | "plpgsql") && !function.is_extension_member;
        if !is_read || !seen.insert(function.oid) {
            return Asked::default();
        }
        let body = function.body.to_ascii_lowercase();
        let mut asked = Asked { of_server: body.contains("current_catalog"), of_clock: mentions_clock(&body) };
        let catalog = &self.context.catalog;
        for called in SqlBodyReader.references(&function.language, &function.body).functions {
            let candidates = catalog.function_names.get(&called.name).into_iter().flatten();
            for other in candidates.filter_map(|oid| catalog.functions.get(oid)) {
                let of_other = self.server_calls(other, seen);
                asked.of_server |= of_other.of_server;
                asked.of_clock |= of_other.of_clock;
            }
            // Beside those of users, unless the schema says which.
            let may_be_built_in = called.schema.as_deref().is_none_or(|schema| schema == "pg_catalog");
            asked.of_server |= may_be_built_in && catalog_functions::nature(&called.name, 0) == Nature::Server;
        }
        asked
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    of_server: bool,
    of_clock: bool,
}

fn type_name(cast: &nodes::TypeCast) -> Option<&str> {
    cast.type_name()?.names().iter().next_back()?.sval()
}

/// `'t'::regclass`, or a look-up of the same.
fn is_registered(node: Node<'_>) -> bool {
    match node {
        Node::TypeCast(cast) => type_name(cast).is_some_and(|name| REGISTERED.contains(&name)),
        Node::FuncCall(call) => tree::names(call.funcname())
            .and_then(|names| names.last().copied())
            .is_some_and(|name| name.strip_prefix("to_").is_some_and(|name| REGISTERED.contains(&name))),
        _ => false,
    }
}

/// Of the server's configuration, its files and its addresses.
pub fn is_of_server(setting: &str) -> bool {
    OF_SERVER.contains(&setting) || FAMILIES_OF_SERVER.iter().any(|prefix| setting.starts_with(prefix))
}

const OF_SERVER: [&str; 12] = [
    "cluster_name",
    "config_file",
    "data_directory",
    "external_pid_file",
    "hba_file",
    "ident_file",
    "in_hot_standby",
    "listen_addresses",
    "port",
    "shared_buffers",
    "synchronous_standby_names",
    "temp_tablespaces",
];

const FAMILIES_OF_SERVER: [&str; 12] = [
    "archive_",
    "data_",
    "huge_page",
    "log_",
    "max_",
    "primary_",
    "recovery_",
    "restore_",
    "server_version",
    "ssl",
    "unix_socket_",
    "wal_",
];

/// Stored and compared as numbers of objects. Not those of text search, which functions take and nobody stores.
const REGISTERED: [&str; 9] =
    ["regclass", "regcollation", "regnamespace", "regoper", "regoperator", "regproc", "regprocedure", "regrole", "regtype"];

const NUMBERS: [&str; 6] = ["int2", "int4", "int8", "numeric", "oid", "oid8"];
