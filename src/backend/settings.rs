//! The session settings that a connection has, by name and value.
//!
//! A session and a connection each hold one of these behind an `Arc`; equal pointers mean equal settings, which is the common
//! case and costs nothing. Otherwise the difference is sent as SET and RESET before the session's first statement.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Settings that differ from what a fresh connection has. Names are lower-case; values as `SHOW` prints them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Settings {
    values: BTreeMap<Arc<str>, Arc<str>>,
}

impl Settings {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|value| &**value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (&**name, &**value))
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    #[must_use]
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut values = self.values.clone();
        values.insert(name.to_ascii_lowercase().into(), value.into());
        Self { values }
    }

    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        let mut values = self.values.clone();
        values.remove(name.to_ascii_lowercase().as_str());
        Self { values }
    }

    /// SQL that turns a connection with these settings into one with `wanted`; empty when they are equal.
    pub fn change_to(&self, wanted: &Settings) -> String {
        self.statements_to(wanted).iter().flat_map(|statement| [statement.as_str(), ";"]).collect()
    }

    /// The same, statement by statement. The role is set last: a setting may need the rights of the login role.
    pub fn statements_to(&self, wanted: &Settings) -> Vec<String> {
        let mut statements = Vec::new();
        for (name, _) in self.iter().filter(|(name, _)| wanted.get(name).is_none()) {
            let mut sql = String::from("RESET ");
            push_setting_name(&mut sql, name);
            statements.push(sql);
        }
        let changed = wanted.iter().filter(|(name, value)| self.get(name) != Some(*value));
        let (roles, others): (Vec<_>, Vec<_>) = changed.partition(|(name, _)| matches!(*name, "role" | "session_authorization"));
        for (name, value) in others.into_iter().chain(roles.into_iter().rev()) {
            let mut sql = String::from("SELECT pg_catalog.set_config(");
            push_literal(&mut sql, name);
            sql.push(',');
            push_literal(&mut sql, value);
            sql.push_str(",false)");
            statements.push(sql);
        }
        statements
    }
}

fn push_setting_name(sql: &mut String, name: &str) {
    for (index, part) in name.split('.').enumerate() {
        if index > 0 {
            sql.push('.');
        }
        sql.push('"');
        sql.push_str(&part.replace('"', "\"\""));
        sql.push('"');
    }
}

/// A string literal that means the same under either setting of `standard_conforming_strings`.
pub fn push_literal(sql: &mut String, value: &str) {
    if value.contains('\\') {
        sql.push('E');
    }
    sql.push('\'');
    sql.push_str(&value.replace('\\', "\\\\").replace('\'', "''"));
    sql.push('\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_resets_what_is_gone_and_sets_what_differs() {
        let had = Settings::default().with("work_mem", "64MB").with("TimeZone", "UTC");
        let wanted = Settings::default().with("timezone", "UTC").with("role", "o'neil").with("app.tenant", r"a\b");
        let sql = had.change_to(&wanted);
        assert_eq!(
            sql,
            r#"RESET "work_mem";SELECT pg_catalog.set_config('app.tenant',E'a\\b',false);SELECT pg_catalog.set_config('role','o''neil',false);"#
        );
        assert_eq!(wanted.change_to(&wanted.clone()), "");
    }
}
