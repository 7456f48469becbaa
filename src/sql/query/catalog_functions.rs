//! What is known of PostgreSQL's own functions: the aggregates, and those that are more than a computation.
//!
//! A name that is not listed is taken for a computation over its arguments, the same on every server: that is what nearly all of
//! the three thousand are. Names that begin with `pg_` are the exception: they count as writing unless they are listed.

use crate::sql::analysis::SessionCall;

/// What calling a function means beyond its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    Plain,
    /// Another result on each call, and nothing worse: it may run where the row is.
    Random,
    /// The clock of the transaction or the statement.
    Clock,
    /// Answers for one server.
    Server,
    /// The bytes that a relation occupies on one server.
    Size,
    /// Reads or moves a sequence.
    Sequence,
    /// Changes the session.
    Session,
    /// Changes data, locks or the server.
    Writing,
    /// Runs a query that is given as text.
    RunsQuery,
}

pub fn is_aggregate(name: &str) -> bool {
    AGGREGATES.binary_search(&name).is_ok()
}

pub fn nature(name: &str, argument_count: usize) -> Nature {
    match name {
        "now" | "statement_timestamp" | "transaction_timestamp" => Nature::Clock,
        // Of one argument: the time until today.
        "age" if argument_count == 1 => Nature::Clock,
        "nextval" | "setval" | "currval" | "lastval" => Nature::Sequence,
        "set_config" | "setseed" => Nature::Session,
        "loread" | "lowrite" | "brin_desummarize_range" | "brin_summarize_new_values" | "brin_summarize_range" => Nature::Writing,
        "gin_clean_pending_list" => Nature::Writing,
        "ts_stat" => Nature::RunsQuery,
        "ts_rewrite" if argument_count == 2 => Nature::RunsQuery,
        "pg_indexes_size" | "pg_relation_size" | "pg_table_size" | "pg_total_relation_size" => Nature::Size,
        _ if RANDOM.contains(&name) => Nature::Random,
        _ if SERVER.contains(&name) || name.starts_with("txid_") => Nature::Server,
        _ if QUERY_RUNNERS.iter().any(|prefix| name.starts_with(prefix)) => Nature::RunsQuery,
        _ if WRITERS.iter().any(|prefix| name.starts_with(prefix)) => Nature::Writing,
        _ if !name.starts_with("pg_") || HARMLESS.contains(&name) || is_harmless(name) => Nature::Plain,
        _ if SERVER_READERS.iter().any(|prefix| name.starts_with(prefix)) && !name.starts_with("pg_stat_reset") => Nature::Server,
        _ => Nature::Writing,
    }
}

/// A call that the session has to know of.
pub fn session_call(name: &str) -> Option<SessionCall> {
    match name {
        "set_config" => Some(SessionCall::SetConfig),
        "currval" | "lastval" => Some(SessionCall::SequenceValue),
        "setseed" => Some(SessionCall::Seed),
        "pg_advisory_lock" | "pg_advisory_lock_shared" | "pg_try_advisory_lock" | "pg_try_advisory_lock_shared" => {
            Some(SessionCall::AdvisoryLock)
        }
        _ if name.starts_with("pg_advisory_unlock") => Some(SessionCall::AdvisoryUnlock),
        _ => None,
    }
}

/// Families of `pg_` functions that only look names up or describe objects.
fn is_harmless(name: &str) -> bool {
    name.ends_with("_is_visible") || name.starts_with("pg_lsn") || (name.starts_with("pg_get_") && !name.contains("replication"))
}

/// Of [`Nature::Server`], and about the transaction there.
pub fn is_of_transaction(name: &str) -> bool {
    OF_TRANSACTION.iter().any(|prefix| name.starts_with(prefix))
}

const OF_TRANSACTION: [&str; 7] = [
    "pg_current_snapshot",
    "pg_current_xact_id",
    "pg_export_snapshot",
    "pg_snapshot_",
    "pg_visible_in_snapshot",
    "pg_xact_status",
    "txid_",
];

/// Of [`Nature::Plain`]: it is given numbers of objects.
pub fn describes_object(name: &str) -> bool {
    let prefixes = ["pg_get_", "pg_index", "pg_identify_", "pg_describe_", "pg_collation_actual_", "pg_column_is_", "has_"];
    prefixes.iter().any(|prefix| name.starts_with(prefix))
        || name.ends_with("_is_visible")
        || name.ends_with("_description")
        || matches!(name, "format_type" | "pg_has_role" | "row_security_active")
}

/// Every aggregate of pg_catalog, up to PostgreSQL 18; sorted.
const AGGREGATES: [&str; 56] = [
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
];

const RANDOM: [&str; 12] = [
    "array_sample",
    "array_shuffle",
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

/// Of [`Nature::Server`] since it would be said or done once per shard; but each server does the same.
pub const ONCE_ANYWHERE: [&str; 4] = ["current_query", "pg_sleep", "pg_sleep_for", "version"];

const SERVER: [&str; 12] = [
    "current_catalog",
    "current_database",
    "current_query",
    "currtid2",
    "inet_client_addr",
    "inet_client_port",
    "inet_server_addr",
    "inet_server_port",
    "mxid_age",
    "pg_sleep",
    "pg_sleep_for",
    "version",
];

/// Their names begin with these and go on as `_and_xmlschema`.
const QUERY_RUNNERS: [&str; 5] = ["cursor_to_xml", "database_to_xml", "query_to_xml", "schema_to_xml", "table_to_xml"];

const WRITERS: [&str; 3] = ["binary_upgrade_", "dblink", "lo_"];

/// `pg_` functions that read one server's state.
const SERVER_READERS: [&str; 35] = [
    "pg_available_",
    "pg_backend_",
    "pg_blocking_pids",
    "pg_conf_load_time",
    "pg_config",
    "pg_control_",
    "pg_current_",
    "pg_cursor",
    "pg_database_size",
    "pg_filenode_",
    "pg_hba_file_rules",
    "pg_is_",
    "pg_isolation_test_",
    "pg_jit_",
    "pg_last_",
    "pg_listening_channels",
    "pg_lock_status",
    "pg_ls_",
    "pg_notification_queue_usage",
    "pg_partition_",
    "pg_postmaster_start_time",
    "pg_prepared_",
    "pg_read_",
    "pg_relation_",
    "pg_safe_snapshot_",
    "pg_sequence_",
    "pg_settings_",
    "pg_show_all_",
    "pg_snapshot_",
    "pg_stat_",
    "pg_tablespace_",
    "pg_trigger_depth",
    "pg_visible_in_snapshot",
    "pg_wal",
    "pg_xact_",
];

/// `pg_` functions that compute, or describe a catalogue object.
const HARMLESS: [&str; 26] = [
    "pg_basetype",
    "pg_char_to_encoding",
    "pg_client_encoding",
    "pg_collation_actual_version",
    "pg_collation_for",
    "pg_column_compression",
    "pg_column_is_updatable",
    "pg_column_size",
    "pg_describe_object",
    "pg_encoding_max_length",
    "pg_encoding_to_char",
    "pg_extension_update_paths",
    "pg_has_role",
    "pg_identify_object",
    "pg_identify_object_as_address",
    "pg_index_column_has_property",
    "pg_index_has_property",
    "pg_indexam_has_property",
    "pg_input_error_info",
    "pg_input_is_valid",
    "pg_mcv_list_items",
    "pg_options_to_table",
    "pg_size_bytes",
    "pg_size_pretty",
    "pg_timezone_names",
    "pg_typeof",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_into_what_they_do() {
        assert!(AGGREGATES.is_sorted());
        assert!(is_aggregate("count") && is_aggregate("string_agg") && !is_aggregate("lower"));
        for (name, arguments, expected) in [
            ("lower", 1, Nature::Plain),
            ("age", 2, Nature::Plain),
            ("age", 1, Nature::Clock),
            ("pg_typeof", 1, Nature::Plain),
            ("pg_get_viewdef", 1, Nature::Plain),
            ("pg_table_is_visible", 1, Nature::Plain),
            ("pg_stat_get_numscans", 1, Nature::Server),
            ("pg_stat_reset", 0, Nature::Writing),
            ("pg_advisory_xact_lock", 1, Nature::Writing),
            ("pg_notify", 2, Nature::Writing),
            ("pg_something_new", 0, Nature::Writing),
            ("pg_current_xact_id", 0, Nature::Server),
            ("query_to_xml_and_xmlschema", 4, Nature::RunsQuery),
            ("lo_import", 1, Nature::Writing),
            ("random", 0, Nature::Random),
        ] {
            assert_eq!(nature(name, arguments), expected, "{name}");
        }
    }
}
