//! Rows of a cursor over several shards that were fetched ahead, and settings that have changed since.
//!
//! PostgreSQL makes a cursor's rows when they are fetched, under the settings of that moment. Rows that wait here were made under those
//! of an earlier FETCH. Where a setting has changed by which they may be others, the FETCH is refused; a query of plain columns goes on.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::merged::MergedCursor;
use crate::backend::Settings;
use crate::catalog::{Catalog, RelationKind, mentions};
use crate::error::PgError;
use crate::shard_key::oid;
use crate::sql::may_read_settings;
use crate::wire::FieldDescription;

/// What a query's rows may depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SettingsRead {
    /// How values are printed and read: dates, floats, byte strings.
    formats: bool,
    /// The user, the role, row security, settings of the client's own.
    others: bool,
}

impl SettingsRead {
    /// `types`: of the query's parameters.
    fn of(text: &str, types: &[u32], columns: &[FieldDescription], catalog: &Catalog) -> Self {
        let of_users = !catalog.operator_functions.is_empty() || !catalog.conversions.is_empty();
        let all = Self { formats: true, others: true };
        let named = |is_meant: &dyn Fn(&crate::catalog::Relation) -> bool| {
            let names: BTreeSet<String> =
                catalog.relations.values().filter(|relation| is_meant(relation)).map(|relation| relation.name.clone()).collect();
            mentions(text, &names)
        };
        let is_view = |kind: RelationKind| matches!(kind, RelationKind::View | RelationKind::MaterializedView);
        if of_users || may_read_settings(text, catalog) || named(&|relation| is_view(relation.kind)) {
            return all;
        }
        let zoned = catalog.relations.values().flat_map(|relation| &relation.columns);
        let zoned = zoned.filter(|column| ZONED.contains(&column.type_oid)).map(|column| column.name.clone()).collect();
        let is_plain = columns.iter().all(|column| PLAIN.contains(&column.type_oid));
        Self {
            formats: !is_plain || mentions(text, &zoned) || types.iter().any(|type_oid| ZONED.contains(type_oid)),
            others: named(&|relation| relation.has_row_security || !relation.policies.is_empty()),
        }
    }

    fn may_read(self, setting: &str) -> bool {
        if FORMATS.contains(&setting) {
            return self.formats;
        }
        let is_of_planner = OF_PLANS.contains(&setting) || OF_PLANS_BEGIN.iter().any(|begin| setting.starts_with(begin));
        self.others && !is_of_planner
    }
}

impl MergedCursor {
    /// Before a FETCH. `now`: the settings that are in force for it.
    pub(super) fn check_rows_are_of_now(&mut self, now: Arc<Settings>, catalog: &Catalog) -> Result<(), PgError> {
        if !Arc::ptr_eq(&now, &self.settings) && self.is_ahead() {
            let both = now.iter().chain(self.settings.iter()).map(|(name, _)| name);
            let mut changed = both.filter(|name| now.get(name) != self.settings.get(name)).peekable();
            if changed.peek().is_some() {
                let read = SettingsRead::of(self.statement.text(), &self.types, &self.columns, catalog);
                if let Some(name) = changed.find(|name| read.may_read(name)) {
                    return Err(set_between(name));
                }
            }
        }
        self.settings = now;
        Ok(())
    }
}

fn set_between(name: &str) -> PgError {
    PgError::unsupported(
        format!("changing \"{name}\" between the FETCHes of a cursor over several shards is not supported"),
        "Rows of the cursor that its query makes by settings have been fetched ahead.",
        "Change it before the first FETCH, or fetch all rows before.",
    )
}

/// Their text is the same under all settings.
const PLAIN: [u32; 9] = [oid::BOOL, oid::INT2, oid::INT4, oid::INT8, oid::TEXT, oid::VARCHAR, oid::BPCHAR, oid::UUID, oid::NUMERIC];
/// Compared with other dates they depend on the time zone: timestamptz, timetz.
const ZONED: [u32; 2] = [oid::TIMESTAMPTZ, 1266];
const FORMATS: [&str; 9] = [
    "datestyle",
    "intervalstyle",
    "timezone",
    "extra_float_digits",
    "bytea_output",
    "xmlbinary",
    "xmloption",
    "client_encoding",
    "array_nulls",
];
/// How a query runs, and not what it says.
const OF_PLANS: [&str; 16] = [
    "application_name",
    "client_min_messages",
    "constraint_exclusion",
    "cursor_tuple_fraction",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "effective_cache_size",
    "hash_mem_multiplier",
    "lock_timeout",
    "plan_cache_mode",
    "random_page_cost",
    "seq_page_cost",
    "statement_timeout",
    "synchronous_commit",
    "temp_buffers",
    "work_mem",
];
const OF_PLANS_BEGIN: [&str; 9] = ["enable_", "cpu_", "geqo", "idle_", "jit", "log_", "maintenance_", "max_parallel_", "parallel_"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_counts_for_what_reads_it() {
        let (formats, others) = (SettingsRead { formats: true, others: false }, SettingsRead { formats: false, others: true });
        assert!(formats.may_read("timezone") && !formats.may_read("app.tenant"));
        assert!(others.may_read("app.tenant") && others.may_read("role") && !others.may_read("timezone"));
        assert!(!others.may_read("work_mem") && !others.may_read("enable_seqscan"));
    }
}
