//! The first messages to a client: the parameters of a real server, the cancel key, ready.
//!
//! What the client asked for at startup (application name, time zone, `options`) is tried on a shard once for each combination,
//! so that a wrong value is refused at login as PostgreSQL does, and the values reported are PostgreSQL's own.
//!
//! The home shard's defaults are those of every shard: what ALTER DATABASE and ALTER ROLE give there, and its values of what
//! changes answers. No dump carries them to the others. A session starts as if its client had asked for them.

use std::sync::Arc;
use std::time::Duration;

use bytes::BufMut;
use tokio::time::sleep;

use crate::backend::{CheckoutError, Connection, ConnectionError, Own, Pooled, Settings};
use crate::catalog::quoted_literal;
use crate::error::{PgError, Severity, SqlState};
use crate::routing;
use crate::session::settings::defaults::Defaults;
use crate::session::settings::setting::check_allowed;
use crate::session::{Failure, Session, SessionEnd};
use crate::shardmap::{Shard, ShardState};
use crate::sql::analysis::Isolation;
use crate::wire::{error_fields, originate};

/// What a login with these parameters yields.
#[derive(Clone, Debug, Default)]
pub(in crate::session) struct Greeting {
    pub settings: Arc<Settings>,
    /// Settings that `settings` leaves out: their values at login, where a session may change them.
    pub at_login: Arc<Settings>,
    /// Whose defaults the shards have given.
    pub role: String,
    /// Those that were known before it was asked for.
    pub defaults: Arc<Defaults>,
    pub parameters: Vec<(Arc<str>, Arc<str>)>,
    /// Effective, as `SHOW search_path` prints it.
    pub search_path: String,
    /// Of transactions where neither BEGIN nor a setting says.
    pub isolation: Isolation,
    /// Not of another shard while home was away, whose defaults may differ.
    pub is_of_home: bool,
}

impl Session {
    pub(in crate::session) async fn greet(&mut self) -> Result<(), SessionEnd> {
        let key = (self.login.identity.user.clone(), self.login.identity.parameters.clone());
        self.follow_defaults().await;
        self.login.defaults = self.gateway.defaults.load_full();
        let is_current = |greeting: &Arc<Greeting>| Arc::ptr_eq(&greeting.defaults, &self.login.defaults);
        let greeting = match self.gateway.greetings.get(&key).filter(is_current) {
            Some(greeting) => greeting,
            None => {
                let defaults = Arc::clone(&self.login.defaults);
                let learned = self.learn_greeting().await?;
                let (settings, at_login) = (self.gateway.shared(learned.settings), self.gateway.shared(learned.at_login));
                let greeting = Arc::new(Greeting { settings, at_login, defaults, ..learned });
                if greeting.is_of_home {
                    self.gateway.greetings.insert(key, Arc::clone(&greeting));
                }
                greeting
            }
        };
        self.settings = Arc::clone(&greeting.settings);
        self.login.settings = Arc::clone(&greeting.settings);
        greeting.settings.iter().for_each(|(name, _)| self.custom_names.insert(name));
        self.reported.clone_from(&greeting.parameters);
        for (name, value) in &greeting.parameters {
            originate::parameter_status(&mut self.client.output, name, value);
            if &**name == "application_name" {
                self.shown.row.set_application_name(value);
            }
        }
        self.shown.row.end(b'I');
        self.login.greeting = greeting;
        let (process_id, secret) = self.login.cancel_key;
        self.client.output.put_slice(&[b'K', 0, 0, 0, 12]);
        self.client.output.put_i32(process_id);
        self.client.output.put_i32(secret);
        originate::ready(&mut self.client.output, b'I');
        self.client.flush().await
    }

    /// Whoever has changed a default through a proxy was answered when the map showed a change: it counts for this login.
    async fn follow_defaults(&self) {
        let map = self.gateway.map.load();
        if map.home().is_some()
            && !self.gateway.serves_catalog(&map)
            && let Err(error) = self.gateway.follow_schema().await
        {
            tracing::debug!(%error, "a login does not know the newest defaults");
        }
    }

    /// Asks the home shard, or another one while home is away. Without any shard: fixed values.
    async fn learn_greeting(&mut self) -> Result<Greeting, SessionEnd> {
        let wanted = startup_settings(&self.login.identity.parameters).map_err(SessionEnd::Fatal)?;
        for (name, value) in &wanted {
            check_allowed(&name.to_ascii_lowercase(), Some(value))
                .map_err(|error| SessionEnd::Fatal(PgError { severity: Severity::Fatal, ..error }))?;
        }
        let snapshot = self.gateway.map.snapshot();
        if snapshot.shards.is_empty() {
            return Ok(Greeting {
                parameters: parameters_without_shard(&self.login.identity.user),
                search_path: "\"$user\", public".to_owned(),
                ..Greeting::default()
            });
        }
        let mut home_first: Vec<&Arc<Shard>> = snapshot.shards.iter().filter(|shard| shard.state.is_ready()).collect();
        // In maintenance it would be waited for.
        home_first.sort_by_key(|shard| (shard.state == ShardState::Maintenance, !shard.is_home));
        let mut failure = None;
        for shard in home_first {
            match self.checkout_for_login(shard).await {
                Ok(mut connection) => {
                    let learned = learn(&mut connection, &wanted).await;
                    match learned {
                        Ok(greeting) => {
                            connection.release();
                            return Ok(Greeting { is_of_home: shard.is_home, ..greeting });
                        }
                        Err(ConnectionError::Refused { body, .. }) => return Err(SessionEnd::Fatal(fatal_of(&body))),
                        Err(error) => failure = Some(crate::session::lost(&shard.name, &error)),
                    }
                }
                Err(Failure::Error(error)) => failure = failure.or(Some(error)),
                Err(Failure::End(end)) => return Err(end),
                Err(Failure::Shard(_) | Failure::Forwarded) => {}
            }
        }
        let mut error = failure.unwrap_or_else(|| PgError::internal("no shard answered"));
        error.severity = Severity::Fatal;
        Err(SessionEnd::Fatal(error))
    }

    /// A login relies on no map: where the proxy had lost its lease and has another one, it is tried by that one.
    async fn checkout_for_login(&mut self, shard: &Arc<Shard>) -> Result<Pooled, Failure> {
        for _ in 0..LEASE_ATTEMPTS {
            self.transaction.generation = self.gateway.map.load().generation();
            match self.checkout_any(shard, &Arc::default()).await {
                Err(Failure::Error(error)) if error == routing::was_shut_out() => sleep(LEASE_PAUSE).await,
                checked_out => return checked_out,
            }
        }
        Err(CheckoutError::ShutOut { shard: shard.name.clone(), generation: self.transaction.generation }.into())
    }
}

/// The shard's own words, as the end of the login.
fn fatal_of(body: &[u8]) -> PgError {
    let Ok(fields) = error_fields(body) else { return PgError::fatal(SqlState::INTERNAL_ERROR, "unreadable error of a shard") };
    let text = |code| fields.get(code).map(|text| String::from_utf8_lossy(text).into_owned());
    let code = fields.sqlstate().and_then(|code| code.try_into().ok()).map_or(SqlState::INTERNAL_ERROR, SqlState);
    PgError { detail: text(b'D'), hint: text(b'H'), ..PgError::fatal(code, fields.message()) }
}

/// Tries the settings in a transaction that is rolled back; reads what came of them.
async fn learn(connection: &mut Connection, wanted: &[(String, String)]) -> Result<Greeting, ConnectionError> {
    let (mut settings, mut at_login) = (Settings::default(), Vec::new());
    let mut sql = String::from("BEGIN;");
    for (name, value) in wanted {
        sql.push_str("SELECT pg_catalog.set_config(");
        sql.push_str(&quoted_literal(name));
        sql.push(',');
        sql.push_str(&quoted_literal(value));
        sql.push_str(",false);");
        connection.custom_names.insert(&name.to_ascii_lowercase());
    }
    let rows = match connection.simple(&Own::Setting.text(&sql)).await {
        Ok(rows) => rows,
        Err(error) => {
            connection.simple(&Own::Transaction.text("ROLLBACK")).await?;
            return Err(error);
        }
    };
    for row in connection.simple(&Own::Catalog.text(DEFAULTS)).await? {
        if let [Some(name), Some(value), is_given] = row.as_slice() {
            let name = String::from_utf8_lossy(name);
            if is_given.as_deref() != Some(b"t") {
                at_login.push((name.into_owned(), String::from_utf8_lossy(value).into_owned()));
                continue;
            }
            connection.custom_names.insert(&name);
            let value = match &*name {
                // Statements are read by these rules, whatever a database's default says.
                "standard_conforming_strings" => "on".into(),
                "transform_null_equals" => "off".into(),
                _ => String::from_utf8_lossy(value),
            };
            settings = settings.with(&name, &value);
        }
    }
    for ((name, _), row) in wanted.iter().zip(rows) {
        if let Some(Some(value)) = row.first() {
            settings = settings.with(name, &String::from_utf8_lossy(value));
        }
    }
    let rows = connection.simple(&Own::Setting.text(EFFECTIVE_SETTINGS)).await?;
    let value = |column: usize| {
        rows.first().and_then(|row| row.get(column)?.as_ref()).map(|value| String::from_utf8_lossy(value).into_owned())
    };
    let isolation = value(1).as_deref().and_then(Isolation::of_name).unwrap_or_default();
    let parameters = connection.parameters.clone();
    connection.simple(&Own::Transaction.text("ROLLBACK")).await?;
    let (search_path, role) = (value(0).unwrap_or_default(), value(2).unwrap_or_default());
    at_login.push(("role".to_owned(), "none".to_owned()));
    let at_login = Arc::new(Settings::default().with_defaults(&at_login));
    Ok(Greeting { settings: Arc::new(settings), at_login, role, parameters, search_path, isolation, ..Greeting::default() })
}

/// Names and values of what a session may set, and whether a login is given them: by ALTER DATABASE and ALTER ROLE, or, where they change
/// answers, in whatever way. Not names of locales, tablespaces and libraries: one server may not have another's. Nor what the user may
/// not see, which pg_settings leaves out: asking for it would be an error.
const DEFAULTS: &str = "
    WITH known AS MATERIALIZED (
        SELECT pg_catalog.lower(name) AS name, reset_val,
               context = 'user' OR context = 'superuser' AND pg_catalog.current_setting('is_superuser') = 'on' AS may_be_set
        FROM pg_catalog.pg_settings
    ), given AS (
        SELECT pg_catalog.lower(pg_catalog.split_part(setting, '=', 1)) AS name
        FROM pg_catalog.pg_db_role_setting s CROSS JOIN pg_catalog.unnest(s.setconfig) AS setting
        WHERE s.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()))
          AND s.setrole IN (0, (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = session_user))
        UNION
        SELECT pg_catalog.unnest('{array_nulls, bytea_output, datestyle, default_text_search_config,
            default_transaction_isolation, default_transaction_read_only, extra_float_digits, intervalstyle, search_path,
            timezone, xmlbinary, xmloption}'::text[])
    )
    SELECT name, value, is_given
    FROM (
        SELECT given.name, CASE
            WHEN known.may_be_set OR known.name IS NULL AND (given.name = 'role' OR given.name ~ '[.]')
                THEN pg_catalog.current_setting(given.name, true)
            END AS value, true AS is_given
        FROM given LEFT JOIN known ON known.name = given.name
        UNION ALL
        SELECT name, reset_val, false FROM known WHERE may_be_set AND name NOT IN (SELECT name FROM given)
    ) AS defaults
    WHERE value IS NOT NULL AND name !~ '^lc_|tablespace|_preload_libraries$'";

/// What the proxy itself goes by.
const EFFECTIVE_SETTINGS: &str =
    "SELECT pg_catalog.current_setting('search_path'), pg_catalog.current_setting('default_transaction_isolation'), session_user";

/// Startup parameters that are settings, `options` taken apart.
fn startup_settings(parameters: &[(String, String)]) -> Result<Vec<(String, String)>, PgError> {
    let mut settings = Vec::new();
    for (name, value) in parameters {
        if name == "options" {
            settings.extend(parse_options(value)?);
        } else {
            settings.push((name.clone(), value.clone()));
        }
    }
    Ok(settings)
}

/// `-c name=value`, `-cname=value`, `--name=value`; blanks are escaped by a backslash.
fn parse_options(options: &str) -> Result<Vec<(String, String)>, PgError> {
    let mut settings = Vec::new();
    let mut words = split_words(options).into_iter();
    while let Some(word) = words.next() {
        let assignment = match word.strip_prefix("-c") {
            Some("") => words.next(),
            Some(rest) => Some(rest.to_owned()),
            None => word.strip_prefix("--").map(str::to_owned),
        };
        let pair = assignment.as_deref().and_then(|assignment| assignment.split_once('='));
        let Some((name, value)) = pair else {
            return Err(PgError::fatal(
                SqlState::SYNTAX_ERROR,
                format!("invalid command-line argument for server process: {word}"),
            ));
        };
        settings.push((name.trim().replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

fn split_words(options: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut characters = options.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => words.last_mut().into_iter().for_each(|word| word.extend(characters.next())),
            blank if blank.is_ascii_whitespace() => words.push(String::new()),
            other => words.last_mut().into_iter().for_each(|word| word.push(other)),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Its map is read a moment after it has the lease.
const LEASE_ATTEMPTS: usize = 20;
const LEASE_PAUSE: Duration = Duration::from_millis(50);

/// Before the first shard is added there is no server to ask.
fn parameters_without_shard(user: &str) -> Vec<(Arc<str>, Arc<str>)> {
    [
        ("application_name", ""),
        ("client_encoding", "UTF8"),
        ("DateStyle", "ISO, MDY"),
        ("default_transaction_read_only", "off"),
        ("in_hot_standby", "off"),
        ("integer_datetimes", "on"),
        ("IntervalStyle", "postgres"),
        ("is_superuser", "off"),
        ("server_encoding", "UTF8"),
        ("server_version", "15.0"),
        ("session_authorization", user),
        ("standard_conforming_strings", "on"),
        ("TimeZone", "UTC"),
    ]
    .into_iter()
    .map(|(name, value)| (name.into(), value.into()))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_apart_as_the_server_does() {
        let parsed = parse_options(r"-c search_path=a,b --work-mem=4MB -cTimeZone=Asia/Kolkata -c app.name=x\ y").unwrap();
        let expected = [("search_path", "a,b"), ("work_mem", "4MB"), ("TimeZone", "Asia/Kolkata"), ("app.name", "x y")];
        assert_eq!(parsed, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(parse_options("-x").is_err());
        assert!(parse_options("-c").is_err());
    }
}
