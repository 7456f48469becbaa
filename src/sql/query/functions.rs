//! Function calls: which are aggregates, which change something or differ from shard to shard, and what a user's function
//! touches behind the statement's back.

use pg_raw_parse::nodes;

use super::bind::Reader;
use super::expression::Place;
use super::relations::{self, Resolved};
use crate::catalog::{Closure, Function, References};
use crate::error::PgError;
use crate::sql::analysis::SessionCall;
use crate::sql::tree;
use crate::sql::{shardgate_call, shardgate_call::Naming};

/// Every aggregate of pg_catalog, up to PostgreSQL 18. Sorted.
const AGGREGATES: [&str; 65] = [
    "any_value",
    "array_agg",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "covar_pop",
    "covar_samp",
    "cume_dist",
    "dense_rank",
    "every",
    "json_agg",
    "json_agg_strict",
    "json_arrayagg",
    "json_object_agg",
    "json_object_agg_strict",
    "json_object_agg_unique",
    "json_object_agg_unique_strict",
    "json_objectagg",
    "jsonb_agg",
    "jsonb_agg_strict",
    "jsonb_object_agg",
    "jsonb_object_agg_strict",
    "jsonb_object_agg_unique",
    "jsonb_object_agg_unique_strict",
    "max",
    "min",
    "mode",
    "percent_rank",
    "percentile_cont",
    "percentile_disc",
    "range_agg",
    "range_intersect_agg",
    "rank",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "sum",
    "var_pop",
    "var_samp",
    "variance",
    "xmlagg",
    // Ordered-set forms that only PostgreSQL's own tests call by these names.
    "bool_accum",
    "int2_avg_accum",
    "int4_avg_accum",
    "int8_avg",
    "int8_avg_accum",
    "numeric_avg",
    "numeric_sum",
    "ordered_set_transition",
    "percentile",
];

/// Different on each call, and nothing worse: once for each row of the answer it may run where the row is.
const RANDOM: [&str; 10] = [
    "clock_timestamp",
    "gen_random_uuid",
    "random",
    "random_normal",
    "timeofday",
    "uuid_generate_v1",
    "uuid_generate_v1mc",
    "uuid_generate_v4",
    "uuidv4",
    "uuidv7",
];

/// The clock of the transaction or statement.
const CLOCKS: [&str; 3] = ["now", "statement_timestamp", "transaction_timestamp"];

/// Writes, or changes the session or the server. Besides everything that begins with `lo_`, `dblink` and `pg_`, of which
/// [`HARMLESS`] are exceptions.
const WRITING: [&str; 12] = [
    "currval",
    "cursor_to_xml",
    "database_to_xml",
    "lastval",
    "loread",
    "lowrite",
    "nextval",
    "query_to_xml",
    "schema_to_xml",
    "set_config",
    "setval",
    "table_to_xml",
];

/// Functions of the catalogue that begin with `pg_`, read only, and answer the same on every shard or concern no data.
const HARMLESS: [&str; 44] = [
    "pg_backend_pid",
    "pg_char_to_encoding",
    "pg_client_encoding",
    "pg_collation_actual_version",
    "pg_collation_for",
    "pg_collation_is_visible",
    "pg_column_compression",
    "pg_column_size",
    "pg_conf_load_time",
    "pg_conversion_is_visible",
    "pg_describe_object",
    "pg_encoding_max_length",
    "pg_encoding_to_char",
    "pg_function_is_visible",
    "pg_get_constraintdef",
    "pg_get_expr",
    "pg_get_function_arguments",
    "pg_get_function_identity_arguments",
    "pg_get_function_result",
    "pg_get_functiondef",
    "pg_get_indexdef",
    "pg_get_keywords",
    "pg_get_partition_constraintdef",
    "pg_get_partkeydef",
    "pg_get_ruledef",
    "pg_get_serial_sequence",
    "pg_get_statisticsobjdef",
    "pg_get_triggerdef",
    "pg_get_userbyid",
    "pg_get_viewdef",
    "pg_has_role",
    "pg_input_is_valid",
    "pg_is_in_recovery",
    "pg_is_other_temp_schema",
    "pg_jit_available",
    "pg_my_temp_schema",
    "pg_operator_is_visible",
    "pg_opclass_is_visible",
    "pg_postmaster_start_time",
    "pg_size_pretty",
    "pg_table_is_visible",
    "pg_tablespace_location",
    "pg_type_is_visible",
    "pg_typeof",
];

/// Their answer means something only within one server.
const ONE_SERVER: [&str; 9] = [
    "current_database",
    "current_catalog",
    "inet_client_addr",
    "inet_client_port",
    "inet_server_addr",
    "inet_server_port",
    "pg_backend_pid",
    "pg_postmaster_start_time",
    "version",
];

impl<'c> Reader<'c> {
    /// The function's name when it can only mean one of `pg_catalog`.
    pub fn catalog_function<'n>(&self, call: &'n nodes::FuncCall) -> Option<&'n str> {
        let names = tree::names(call.funcname())?;
        match names.as_slice() {
            ["pg_catalog", name] => Some(name),
            [name] if !self.context.catalog.function_names.contains_key(*name) => Some(name),
            _ => None,
        }
    }

    /// Notes what a call does; whether it is an aggregate.
    pub fn note_call(&mut self, call: &nodes::FuncCall, place: Place) -> Result<bool, PgError> {
        let names = tree::names(call.funcname()).unwrap_or_default();
        let (schema, name) = match names.as_slice() {
            [name] => (None, *name),
            [schema, name] => (Some(*schema), *name),
            _ => (None, ""),
        };
        let is_user_function = |name: &str| self.context.catalog.function_names.contains_key(name);
        let is_schema_searched = self.search_path.iter().any(|schema| schema == shardgate_call::SCHEMA);
        let naming = Naming { is_schema_searched, is_user_function: &is_user_function };
        if let Some(name) = naming.function(call) {
            if !is_user_function(name) {
                self.notes.refuse(shardgate_call::not_alone(name));
            }
        }
        let candidates = self.user_functions(schema, name);
        let mut is_aggregate = call.agg_star || call.agg_distinct || call.agg_within_group || !call.agg_order().is_empty();
        is_aggregate |= !matches!(call.agg_filter(), pg_raw_parse::Node::None);
        for function in &candidates {
            is_aggregate |= function.kind == 'a' || function.kind == 'w';
            self.note_user_function(function, place);
        }
        if schema.is_none_or(|schema| schema == "pg_catalog") {
            is_aggregate |= AGGREGATES.contains(&name);
            self.note_catalog_function(name, place);
        } else if candidates.is_empty() {
            // Not in the catalogue that was read: PostgreSQL says so, or it came a moment ago.
            self.notes.touches_anything.get_or_insert_with(|| format!("Function \"{name}\" is not known."));
        }
        Ok(is_aggregate)
    }

    fn user_functions(&self, schema: Option<&str>, name: &str) -> Vec<&'c Function> {
        let catalog = &self.context.catalog;
        let Some(oids) = catalog.function_names.get(name) else {
            return Vec::new();
        };
        let is_meant = |function: &&Function| match schema {
            Some(schema) => function.schema == schema,
            None => self.search_path.contains(&function.schema),
        };
        oids.iter().filter_map(|oid| catalog.functions.get(oid)).filter(is_meant).collect()
    }

    fn note_catalog_function(&mut self, name: &str, place: Place) {
        match name {
            "set_config" => self.notes.session_call(SessionCall::SetConfig),
            "currval" | "lastval" => self.notes.session_call(SessionCall::SequenceValue),
            _ if name.starts_with("pg_advisory_unlock") => self.notes.session_call(SessionCall::AdvisoryUnlock),
            _ if name.contains("advisory_lock") || name.contains("advisory_xact_lock") => self.note_advisory_lock(name),
            _ => {}
        }
        if RANDOM.contains(&name) {
            self.notes.volatile.get_or_insert_with(|| format!("{name}()"));
            if place != Place::Output && place != Place::Stored {
                self.notes.not_pushable(volatile(name));
            }
        } else if CLOCKS.contains(&name) {
            self.notes.clock(&format!("{name}()"));
        } else if ONE_SERVER.contains(&name) {
            self.notes.not_pushable(one_server(name));
        } else if is_writing(name) {
            self.notes.volatile.get_or_insert_with(|| format!("{name}()"));
            self.notes.writes();
            self.notes.not_pushable(one_server(name));
            if name.ends_with("nextval") || name == "setval" || name == "currval" || name == "lastval" {
                self.notes.needs_home(|| format!("{name}() uses a sequence, which lives on the home shard."));
            } else if name.starts_with("pg_") || name.starts_with("lo") {
                self.notes.needs_home(|| format!("{name}() concerns one server: the home shard."));
            } else if name.ends_with("_to_xml") {
                self.notes.touches_anything.get_or_insert_with(|| format!("{name}() runs a query that is not read."));
            }
        }
    }

    fn note_advisory_lock(&mut self, name: &str) {
        if !name.contains("xact") {
            self.notes.session_call(SessionCall::AdvisoryLock);
        }
    }

    fn note_user_function(&mut self, function: &Function, place: Place) {
        if function.volatility == 'v' {
            self.notes.volatile.get_or_insert_with(|| format!("{}()", function.name));
            if place != Place::Output || !function.is_extension_member {
                self.notes.not_pushable(volatile(&function.name));
            }
        }
        let closure = self.closure(function);
        let writes = match &closure {
            Closure::Known(References { writes, .. }) => !writes.is_empty(),
            Closure::Unknown(_) => function.volatility == 'v',
        };
        if writes {
            self.notes.writes();
        }
        match closure {
            Closure::Known(references) => self.note_references(&references, &function.name),
            Closure::Unknown(reason) => {
                self.notes.touches_anything.get_or_insert(reason);
            }
        }
    }

    /// What a function touches: declared, or proven from its body.
    fn closure(&self, function: &Function) -> Closure {
        let declared = self.context.map.functions.get(&(function.schema.clone(), function.name.clone()));
        if let Some(declared) = declared {
            let oids = |tables: &[(String, String)]| -> Option<Vec<u32>> {
                tables.iter().map(|table| self.context.catalog.relation_names.get(table).copied()).collect()
            };
            return match (oids(&declared.reads), oids(&declared.writes)) {
                (Some(reads), Some(writes)) => Closure::Known(References { reads, writes }),
                _ => Closure::Unknown(format!("A table that function \"{}\" is declared to touch does not exist.", function.name)),
            };
        }
        if function.is_extension_member || function.language == "internal" {
            return Closure::Known(References::default());
        }
        self.context.catalog.closure_of_function(function.oid)
    }

    /// Relations that are read and written besides those that the statement names.
    pub fn note_references(&mut self, references: &References, by: &str) {
        for (oids, is_write) in [(&references.reads, false), (&references.writes, true)] {
            for oid in oids {
                self.note_hidden_relation(*oid, is_write, by, 0);
            }
        }
    }

    fn note_hidden_relation(&mut self, oid: u32, is_write: bool, by: &str, depth: usize) {
        let Some(relation) = self.context.catalog.relations.get(&oid) else {
            // Of pg_catalog, or gone.
            return;
        };
        match relations::placed(self.context, relation, true) {
            Resolved::Sharded { .. } => self.notes.hidden_sharded.push(oid),
            Resolved::Reference(_) if is_write => self.notes.refuse(PgError::unsupported(
                format!("\"{by}\" writes to reference table \"{}\"", relation.name),
                "It would change the copy on one shard only.",
                "Write to the reference table in a statement of its own.",
            )),
            Resolved::Reference(_) => self.notes.reads_replicated(),
            Resolved::Home(_) => {
                let name = relation.name.clone();
                self.notes.needs_home(|| format!("\"{by}\" uses table \"{name}\", which lives on the home shard."));
            }
            Resolved::View(_) if depth == 0 => match self.context.catalog.closure_of_relation(oid) {
                Closure::Known(references) => {
                    for read in references.reads {
                        self.note_hidden_relation(read, is_write, by, depth + 1);
                    }
                }
                Closure::Unknown(reason) => {
                    self.notes.touches_anything.get_or_insert(reason);
                }
            },
            Resolved::View(_) => {}
            Resolved::Mixed(detail) => {
                self.notes.touches_anything.get_or_insert(detail);
            }
            Resolved::System | Resolved::Map(_) | Resolved::Proxy(_) => {}
        }
    }
}

fn is_writing(name: &str) -> bool {
    WRITING.contains(&name)
        || name.starts_with("lo_")
        || name.starts_with("dblink")
        || name.starts_with("txid_")
        || (name.starts_with("pg_") && !HARMLESS.contains(&name))
}

fn volatile(name: &str) -> PgError {
    PgError::unsupported(
        format!("volatile function {name}() is not supported across shards in this place"),
        "It would be evaluated on each shard, with other results than on one server.",
        "Evaluate it first and pass its result, or restrict the statement to one shard key.",
    )
}

fn one_server(name: &str) -> PgError {
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
