//! The session settings that a connection has, by name and value.
//!
//! A session and a connection each hold one of these behind an `Arc`; where both hold the same one, which is the common case,
//! comparing them costs nothing. A difference is sent as SET and RESET before the session's first statement.

use crate::catalog::{quoted_identifier, quoted_literal};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Settings that differ from what a fresh connection has. Names are lower-case; values as `SHOW` prints them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Settings {
    values: BTreeMap<Arc<str>, Arc<str>>,
}

/// As whom a connection's settings are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setter {
    /// Whoever it is now.
    Session,
    Login,
    /// The user and the role that are wanted.
    Role,
}

/// The setting that may end what sets the others.
pub const STATEMENT_TIMEOUT: &str = "statement_timeout";

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

    /// With these values where there are none.
    #[must_use]
    pub fn with_defaults(&self, defaults: &[(String, String)]) -> Self {
        let mut values = self.values.clone();
        for (name, value) in defaults {
            values.entry(name.as_str().into()).or_insert_with(|| value.as_str().into());
        }
        Self { values }
    }

    /// The same where a setting needs rights that the user of the connection's session, or its role, does not have: set as the login
    /// user, or as the user and the role that are wanted, who may have set it.
    pub fn statements_as(&self, setter: Setter, wanted: &Settings) -> Vec<String> {
        let without_roles = |settings: &Settings| settings.without(SESSION_AUTHORIZATION).without(ROLE);
        let mut statements = vec![reset(SESSION_AUTHORIZATION), reset(ROLE)];
        match setter {
            Setter::Session => return self.statements_to(wanted),
            Setter::Login => statements.extend(without_roles(self).statements_to(wanted)),
            Setter::Role => {
                let roles = [SESSION_AUTHORIZATION, ROLE].into_iter();
                statements.extend(roles.filter_map(|name| wanted.get(name).map(|value| set(name, value))));
                statements.extend(without_roles(self).statements_to(&without_roles(wanted)));
            }
        }
        statements
    }

    /// Those that are not the same in `others`.
    pub(super) fn but_for(&self, others: &Self) -> Self {
        let differs = |name: &Arc<str>, value: &Arc<str>| others.values.get(name) != Some(value);
        let kept = self.values.iter().filter(|(name, value)| differs(name, value));
        Self { values: kept.map(|(name, value)| (Arc::clone(name), Arc::clone(value))).collect() }
    }

    /// SQL that gives a connection which has been reset these settings, in as few statements as there can be.
    pub(super) fn statements_of_all(&self) -> Vec<String> {
        let mut statements: Vec<String> = Vec::new();
        for statement in Self::default().statements_to(self) {
            let call = statement.strip_prefix(SELECT);
            match (statements.last_mut(), call) {
                // Not what may end the others, and not what needs another user's rights.
                (Some(last), Some(call))
                    if ![ROLE, SESSION_AUTHORIZATION, STATEMENT_TIMEOUT].iter().any(|name| names(call, name)) =>
                {
                    last.push(',');
                    last.push_str(call);
                }
                (_, _) => statements.push(statement),
            }
        }
        statements
    }

    /// SQL that turns a connection with these settings into one with `wanted`. The role is set late: a setting may need the rights
    /// of the login role; and another session user has none, so that it is set again. A limit for statements goes first and comes
    /// last, so that it ends none of the others.
    pub fn statements_to(&self, wanted: &Settings) -> Vec<String> {
        let is_another_user = self.get(SESSION_AUTHORIZATION) != wanted.get(SESSION_AUTHORIZATION);
        let is_changed = |name: &str, value: &str| self.get(name) != Some(value) || (is_another_user && name == ROLE);
        let changed: Vec<_> = wanted.iter().filter(|(name, value)| is_changed(name, value)).collect();
        let gone: Vec<_> = self.iter().map(|(name, _)| name).filter(|name| wanted.get(name).is_none()).collect();
        let mut statements = Vec::with_capacity(changed.len() + gone.len() + 1);
        let limit = self.get(STATEMENT_TIMEOUT);
        if limit.is_some() && limit != wanted.get(STATEMENT_TIMEOUT) {
            statements.push(reset(STATEMENT_TIMEOUT));
        }
        statements.extend(gone.into_iter().filter(|name| *name != STATEMENT_TIMEOUT).map(reset));
        let named = |is_meant: fn(&str) -> bool| changed.iter().filter(move |(name, _)| is_meant(name));
        let others = named(|name| !is_role(name) && name != STATEMENT_TIMEOUT);
        let last = named(|name| name == STATEMENT_TIMEOUT);
        statements.extend(others.chain(named(is_role).rev()).chain(last).map(|(name, value)| set(name, value)));
        statements
    }
}

/// Names of custom settings (`prefix.name`) that have ever been given a value in a session, or on a connection.
///
/// PostgreSQL never forgets such a name: its value is empty after RESET, after ROLLBACK and after DISCARD ALL, where one that
/// was never heard of is NULL. So a connection serves only sessions that have used every name it knows, and is told those
/// that it does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CustomNames(Option<Arc<BTreeSet<Arc<str>>>>);

impl CustomNames {
    /// Nothing happens when the setting is one of PostgreSQL's own, or is known.
    pub fn insert(&mut self, name: &str) {
        if name.contains('.') && !self.contains(name) {
            Arc::make_mut(self.0.get_or_insert_default()).insert(name.into());
        }
    }

    pub fn remove(&mut self, name: &str) {
        if let Some(names) = self.0.as_mut().filter(|names| names.contains(name)) {
            Arc::make_mut(names).remove(name);
            if names.is_empty() {
                self.0 = None;
            }
        }
    }

    pub fn contains(&self, name: &str) -> bool {
        self.0.as_ref().is_some_and(|names| names.contains(name))
    }

    pub fn is_subset(&self, other: &Self) -> bool {
        self == other || self.iter().all(|name| other.contains(name))
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|names| names.iter().map(|name| &**name))
    }

    /// SQL that lets a connection which knows these names know `wanted` too.
    pub fn statements_to(&self, wanted: &Self, settings: &Settings) -> Vec<String> {
        if self == wanted {
            return Vec::new();
        }
        wanted.iter().filter(|name| !self.contains(name) && settings.get(name).is_none()).map(reset).collect()
    }

    /// Takes over `others`; the same afterwards when they were all there were.
    pub fn extend(&mut self, others: &Self) {
        if self.is_subset(others) {
            self.clone_from(others);
        } else {
            others.iter().for_each(|name| self.insert(name));
        }
    }
}

fn is_role(name: &str) -> bool {
    matches!(name, ROLE | SESSION_AUTHORIZATION)
}

const ROLE: &str = "role";
const SESSION_AUTHORIZATION: &str = "session_authorization";

/// A call of `set` is of this setting.
fn names(call: &str, name: &str) -> bool {
    call.strip_prefix(CALL).and_then(|rest| rest.strip_prefix(&*quoted_literal(name))).is_some()
}

const SELECT: &str = "SELECT ";
const CALL: &str = "pg_catalog.set_config(";

fn set(name: &str, value: &str) -> String {
    let mut sql = format!("{SELECT}{CALL}");
    sql.push_str(&quoted_literal(name));
    sql.push(',');
    sql.push_str(&quoted_literal(value));
    sql.push_str(",false)");
    sql
}

fn reset(name: &str) -> String {
    let mut sql = String::from("RESET ");
    push_setting_name(&mut sql, name);
    sql
}

fn push_setting_name(sql: &mut String, name: &str) {
    for (index, part) in name.split('.').enumerate() {
        if index > 0 {
            sql.push('.');
        }
        sql.push_str(&quoted_identifier(part));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_for_statements_ends_none_of_the_changes() {
        let had = Settings::default().with("statement_timeout", "1ms").with("work_mem", "64MB");
        let wanted = Settings::default().with("statement_timeout", "2ms").with("timezone", "UTC").with("role", "a");
        assert_eq!(
            had.statements_to(&wanted),
            [
                r#"RESET "statement_timeout""#,
                r#"RESET "work_mem""#,
                "SELECT pg_catalog.set_config('timezone','UTC',false)",
                "SELECT pg_catalog.set_config('role','a',false)",
                "SELECT pg_catalog.set_config('statement_timeout','2ms',false)",
            ]
        );
        assert_eq!(had.statements_to(&Settings::default()).first().map(String::as_str), Some(r#"RESET "statement_timeout""#));
        assert_eq!(had.statements_to(&had.with("work_mem", "1MB")), ["SELECT pg_catalog.set_config('work_mem','1MB',false)"]);
    }

    #[test]
    fn a_change_resets_what_is_gone_and_sets_what_differs() {
        let had = Settings::default().with("work_mem", "64MB").with("TimeZone", "UTC");
        let wanted = Settings::default().with("timezone", "UTC").with("role", "o'neil").with("app.tenant", r"a\b");
        assert_eq!(
            had.statements_to(&wanted),
            [
                r#"RESET "work_mem""#,
                r"SELECT pg_catalog.set_config('app.tenant', E'a\\b',false)",
                "SELECT pg_catalog.set_config('role','o''neil',false)"
            ]
        );
        assert!(wanted.statements_to(&wanted.clone()).is_empty());
    }

    #[test]
    fn what_needs_rights_is_set_by_those_who_may_have_them() {
        let had = Settings::default().with("lo_compat_privileges", "on").with("session_authorization", "r");
        let (back, none) = ([r#"RESET "session_authorization""#, r#"RESET "role""#], Settings::default());
        let statements = had.statements_as(Setter::Login, &none);
        assert_eq!(statements, [back[0], back[1], r#"RESET "lo_compat_privileges""#]);
        let wanted = none.with("lo_compat_privileges", "on").with("role", "admin");
        let (role, setting) = (
            "SELECT pg_catalog.set_config('role','admin',false)",
            "SELECT pg_catalog.set_config('lo_compat_privileges','on',false)",
        );
        assert_eq!(none.statements_as(Setter::Login, &wanted), [back[0], back[1], setting, role]);
        assert_eq!(none.statements_as(Setter::Role, &wanted), [back[0], back[1], role, setting]);
        assert_eq!(none.statements_as(Setter::Session, &wanted), none.statements_to(&wanted));
    }

    #[test]
    fn after_a_reset_few_statements_bring_everything_back() {
        let settings = Settings::default()
            .with("work_mem", "1MB")
            .with("timezone", "UTC")
            .with("session_authorization", "v")
            .with("role", "u")
            .with("statement_timeout", "1s");
        assert_eq!(
            settings.statements_of_all(),
            [
                "SELECT pg_catalog.set_config('timezone','UTC',false),pg_catalog.set_config('work_mem','1MB',false)",
                "SELECT pg_catalog.set_config('session_authorization','v',false)",
                "SELECT pg_catalog.set_config('role','u',false)",
                "SELECT pg_catalog.set_config('statement_timeout','1s',false)",
            ]
        );
        assert!(Settings::default().statements_of_all().is_empty());
    }

    #[test]
    fn another_session_user_is_given_the_role_again() {
        let role = Settings::default().with("role", "u");
        let both = role.with("session_authorization", "v");
        let (as_v, as_u) =
            ("SELECT pg_catalog.set_config('session_authorization','v',false)", "SELECT pg_catalog.set_config('role','u',false)");
        assert_eq!(role.statements_to(&both), [as_v, as_u]);
        assert_eq!(both.statements_to(&role), [r#"RESET "session_authorization""#, as_u]);
        assert_eq!(both.statements_to(&both.with("work_mem", "1MB")).len(), 1);
    }

    #[test]
    fn a_connection_is_told_the_names_that_it_has_not_heard_of() {
        let (mut session, mut connection) = (CustomNames::default(), CustomNames::default());
        assert!(connection == session && connection.is_subset(&session));
        for name in ["work_mem", "app.tenant", "app.user", "app.old"] {
            session.insert(name);
        }
        connection.insert("app.old");
        assert!(connection.is_subset(&session) && !session.is_subset(&connection) && !session.contains("work_mem"));
        let settings = Settings::default().with("app.user", "x");
        assert_eq!(connection.statements_to(&session, &settings), [r#"RESET "app"."tenant""#]);
        connection.extend(&session);
        assert_eq!(connection, session);
        connection.insert("other.name");
        assert!(!connection.is_subset(&session));
        connection.extend(&session);
        assert!(connection.contains("other.name") && connection.contains("app.user"));
    }
}
