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
use crate::sql::parse::tokens::Tokens;
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
    fn of(text: &str, columns: &[FieldDescription], catalog: &Catalog) -> Self {
        let of_users = !catalog.operator_functions.is_empty() || !catalog.conversions.is_empty();
        let all = Self { formats: true, others: true };
        let named = |is_meant: &dyn Fn(&crate::catalog::Relation) -> bool| {
            let names: BTreeSet<String> =
                catalog.relations.values().filter(|relation| is_meant(relation)).map(|relation| relation.name.clone()).collect();
            mentions(text, &names)
        };
        let is_view = |kind: RelationKind| matches!(kind, RelationKind::View | RelationKind::MaterializedView);
        if of_users || has_calls(text) || named(&|relation| is_view(relation.kind)) {
            return all;
        }
        let zoned = catalog.relations.values().flat_map(|relation| &relation.columns);
        let zoned = zoned.filter(|column| ZONED.contains(&column.type_oid)).map(|column| column.name.clone()).collect();
        let is_plain = columns.iter().all(|column| PLAIN.contains(&column.type_oid));
        Self {
            formats: !is_plain || mentions(text, &zoned),
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
                let read = SettingsRead::of(self.statement.text(), &self.columns, catalog);
                if let Some(name) = changed.find(|name| read.may_read(name)) {
                    return Err(set_between(name));
                }
            }
        }
        self.settings = now;
        Ok(())
    }
}

/// Something that is written as a function is, a conversion, or a value that stands for a function.
fn has_calls(text: &str) -> bool {
    let tokens = Tokens::of(text);
    (0..tokens.count()).any(|index| {
        let piece = tokens.piece(index);
        let word = piece.trim_matches('"').to_ascii_lowercase();
        let is_word = word.starts_with(|letter: char| letter.is_alphabetic() || letter == '_');
        match is_word {
            true if tokens.piece(index + 1) == "(" => !BEFORE_BRACKETS.contains(&&*word),
            true => VALUES_BY_NAME.contains(&&*word) || word == "at",
            false => piece.starts_with("::") || piece.starts_with("||") || piece == ":" || piece == "|",
        }
    })
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
/// Words of the grammar, and functions whose answer hangs on their arguments alone.
const BEFORE_BRACKETS: [&str; 40] = [
    "abs",
    "all",
    "and",
    "any",
    "as",
    "avg",
    "between",
    "by",
    "case",
    "coalesce",
    "count",
    "else",
    "except",
    "exists",
    "filter",
    "for",
    "from",
    "having",
    "in",
    "intersect",
    "join",
    "lateral",
    "least",
    "greatest",
    "length",
    "like",
    "limit",
    "lower",
    "max",
    "min",
    "mod",
    "not",
    "nullif",
    "on",
    "or",
    "over",
    "select",
    "sum",
    "upper",
    "where",
];
const VALUES_BY_NAME: [&str; 12] = [
    "cast",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "localtime",
    "localtimestamp",
    "session_user",
    "user",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_columns_depend_on_nothing() {
        for text in [
            "SELECT id, owner FROM accounts WHERE id > 5 AND (balance IN (1, 2)) ORDER BY id",
            "SELECT * FROM t x JOIN y ON (x.a = y.a) WHERE count > 'now'",
            "SELECT owner, count(*), sum(balance) FROM accounts GROUP BY owner",
        ] {
            assert!(!has_calls(text), "{text}");
        }
        for text in [
            "SELECT current_setting('app.x') FROM t",
            "SELECT id FROM t WHERE owner = current_user",
            "SELECT a::text FROM t",
            "SELECT CAST(a AS text) FROM t",
            "SELECT 'x' || d FROM t",
            "SELECT \"f\" (a) FROM t",
            "SELECT s.f(a) FROM t",
            "SELECT a AT TIME ZONE 'UTC' FROM t",
        ] {
            assert!(has_calls(text), "{text}");
        }
    }

    #[test]
    fn each_setting_counts_for_what_reads_it() {
        let (formats, others) = (SettingsRead { formats: true, others: false }, SettingsRead { formats: false, others: true });
        assert!(formats.may_read("timezone") && !formats.may_read("app.tenant"));
        assert!(others.may_read("app.tenant") && others.may_read("role") && !others.may_read("timezone"));
        assert!(!others.may_read("work_mem") && !others.may_read("enable_seqscan"));
    }
}
