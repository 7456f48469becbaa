//! Puts the layers over each other: defaults < file < environment, and refuses what does not fit before it is converted.
//!
//! The defaults, written out as JSON, are the schema: which keys there are and of which kind. The environment has text only,
//! so its values are read as the kind that the default has: `SHARDGATE__AUTH__USERS__0__PASSWORD=007` stays text.
//! A number in the environment's name is a place in a list.

use std::ffi::OsString;

use config::{File, FileFormat, Source, Value, ValueKind};
use serde_json::Value as Json;

use super::secret::HIDDEN;
use super::{Config, ConfigError, UserConfig};

/// The merged configuration, of the right kinds but with unchecked ranges. `file` is (name, text).
pub(super) fn merge(
    file: Option<(&str, &str)>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Config, ConfigError> {
    let schema = Schema::of_defaults();
    let mut builder = config::Config::builder();
    if let Some((path, text)) = file {
        let source = File::from_str(text, FileFormat::Toml);
        let table = source.collect().map_err(|error| syntax_error(path, &error))?;
        for (key, value) in &table {
            schema.check(key, key, value, &format!("in {path}"))?;
        }
        builder = builder.add_source(source);
    }
    for (name, value) in environment {
        let Some(variable) = Variable::new(&name, value)? else { continue };
        let value = schema.read(&variable)?;
        builder = builder.set_override(variable.path, value).map_err(other_error)?;
    }
    builder.build().map_err(other_error)?.try_deserialize().map_err(other_error)
}

/// One `SHARDGATE__…` variable.
struct Variable {
    name: String,
    /// As an operator writes it in the file: `auth.users.0.password`.
    key: String,
    /// As the `config` crate wants it: `auth.users[0].password`.
    path: String,
    text: String,
}

impl Variable {
    /// None for a variable of somebody else.
    fn new(name: &OsString, value: OsString) -> Result<Option<Self>, ConfigError> {
        let Some(name) = name.to_str() else { return Ok(None) };
        let Some(rest) = name.strip_prefix(PREFIX) else { return Ok(None) };
        let key = rest.to_lowercase().replace("__", ".");
        let mut path = String::new();
        for segment in key.split('.') {
            if !path.is_empty() && !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit()) {
                path.push_str(&format!("[{segment}]"));
            } else {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(segment);
            }
        }
        let text = value.into_string().map_err(|_| ConfigError::Invalid {
            key: key.clone(),
            value: HIDDEN.into(),
            allowed: "expected UTF-8".into(),
            origin: Some(format!("environment variable {name}")),
        })?;
        Ok(Some(Self { name: name.into(), key, path, text }))
    }

    fn origin(&self) -> String {
        format!("environment variable {}", self.name)
    }
}

/// The defaults as a tree: objects are sections, leaves say the kind.
struct Schema {
    root: Json,
    user: Json,
}

impl Schema {
    fn of_defaults() -> Self {
        let json = |value: Result<Json, serde_json::Error>| value.unwrap_or(Json::Null);
        Self { root: json(serde_json::to_value(Config::default())), user: json(serde_json::to_value(UserConfig::default())) }
    }

    /// Steps down by one segment; a list (there is only one kind of list, users) is stepped into by any index.
    fn step<'a>(&'a self, at: &'a Json, segment: &str) -> Option<&'a Json> {
        match at {
            Json::Object(map) => map.get(segment),
            Json::Array(_) => segment.parse::<u16>().ok().map(|_| &self.user),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => None,
        }
    }

    fn find(&self, key: &str, origin: &str) -> Result<&Json, ConfigError> {
        let mut at = &self.root;
        for segment in key.split('.') {
            at = self.step(at, segment).ok_or_else(|| ConfigError::Unknown {
                key: key.into(),
                origin: origin.into(),
                allowed: allowed_names(at),
            })?;
        }
        Ok(at)
    }

    /// Checks that every key below is known and every value of its kind.
    fn check(&self, key: &str, shown: &str, value: &Value, origin: &str) -> Result<(), ConfigError> {
        let expected = self.find(key, origin)?;
        match &value.kind {
            ValueKind::Table(table) if matches!(expected, Json::Object(_)) => table
                .iter()
                .try_for_each(|(name, value)| self.check(&format!("{key}.{name}"), &format!("{shown}.{name}"), value, origin)),
            ValueKind::Array(items) if matches!(expected, Json::Array(_)) => items
                .iter()
                .enumerate()
                .try_for_each(|(at, item)| self.check(&format!("{key}.{at}"), &format!("{shown}[{at}]"), item, origin)),
            kind if fits(expected, kind) => Ok(()),
            kind => Err(ConfigError::Invalid {
                key: shown.into(),
                value: shown_value(key, kind),
                allowed: format!("expected {}", kind_name(expected)),
                origin: Some(origin.into()),
            }),
        }
    }

    /// A variable's text as the kind that its key has.
    fn read(&self, variable: &Variable) -> Result<Value, ConfigError> {
        let expected = self.find(&variable.key, &variable.origin())?;
        let text = variable.text.as_str();
        let kind = match expected {
            Json::Bool(_) => text.parse().ok().map(ValueKind::Boolean),
            Json::Number(number) if number.is_f64() => text.parse().ok().filter(|n: &f64| n.is_finite()).map(ValueKind::Float),
            Json::Number(_) => text.parse().ok().map(ValueKind::I64),
            Json::Null | Json::String(_) => Some(ValueKind::String(text.into())),
            Json::Array(_) | Json::Object(_) => None,
        };
        let kind = kind.ok_or_else(|| ConfigError::Invalid {
            key: variable.key.clone(),
            value: shown_value(&variable.key, &ValueKind::String(text.into())),
            allowed: format!("expected {}", kind_name(expected)),
            origin: Some(variable.origin()),
        })?;
        Ok(Value::new(Some(&variable.origin()), kind))
    }
}

/// An integer is welcome where a fraction is expected, not the other way round.
fn fits(expected: &Json, kind: &ValueKind) -> bool {
    match kind {
        ValueKind::Boolean(_) => expected.is_boolean(),
        ValueKind::I64(_) | ValueKind::I128(_) | ValueKind::U64(_) | ValueKind::U128(_) => expected.is_number(),
        ValueKind::Float(number) => expected.is_f64() && number.is_finite(),
        ValueKind::String(_) => expected.is_string() || expected.is_null(),
        ValueKind::Nil | ValueKind::Table(_) | ValueKind::Array(_) => false,
    }
}

fn kind_name(expected: &Json) -> &'static str {
    match expected {
        Json::Null | Json::String(_) => "text in quotes",
        Json::Bool(_) => "true or false",
        Json::Number(number) if number.is_f64() => "a number",
        Json::Number(_) => "a whole number",
        Json::Array(_) => "a list of sections",
        Json::Object(_) => "a section",
    }
}

fn allowed_names(at: &Json) -> String {
    match at {
        Json::Object(map) => map.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
        Json::Array(_) => "0, 1, 2 and so on".into(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => "no further parts".into(),
    }
}

/// A value for an error's text, unless it is, or could be part of, a secret.
fn shown_value(key: &str, kind: &ValueKind) -> String {
    let last = key.rsplit('.').next().unwrap_or(key);
    if SECRET_KEYS.contains(&last) || matches!(kind, ValueKind::Table(_) | ValueKind::Array(_)) {
        return HIDDEN.into();
    }
    match kind {
        ValueKind::String(text) => format!("{text:?}"),
        kind => kind.to_string(),
    }
}

/// The parser's message without the quoted line: it may hold a password.
fn syntax_error(path: &str, error: &config::ConfigError) -> ConfigError {
    let text = match error {
        config::ConfigError::FileParse { cause, .. } => cause.to_string(),
        other => other.to_string(),
    };
    let is_excerpt = |line: &&str| line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').starts_with('|');
    let reason = text.lines().filter(|line| !is_excerpt(line)).map(str::trim).collect::<Vec<_>>().join(": ");
    ConfigError::Syntax { path: path.into(), reason }
}

/// What serde had to say about a value of the right kind: an unknown word for an enum, a malformed address.
fn other_error(error: config::ConfigError) -> ConfigError {
    match error {
        config::ConfigError::At { error, origin, key } => {
            ConfigError::Rejected { key: key.unwrap_or_default(), reason: error.to_string(), origin }
        }
        other => ConfigError::Rejected { key: String::new(), reason: other.to_string(), origin: None },
    }
}

const PREFIX: &str = "SHARDGATE__";

/// Last parts of keys whose values are never shown.
const SECRET_KEYS: [&str; 3] = ["url", "password", "verifier"];
