//! From the arguments of a call to the parameters of a function: by position, by name, with defaults.
//!
//! Follows PostgreSQL's rules, and its errors where a call fits no function. What binds is typed and complete: each parameter
//! has a value, and the accessors refuse a null where one makes no sense.

use super::array::parse_text_array;
use super::signature::{Default, Function, Kind, Parameter};
use super::{Argument, Call};
use crate::error::{PgError, SqlState};
use crate::shard_key::Oid;

/// A call whose arguments fit its function.
#[derive(Debug)]
pub(super) struct Arguments {
    function: Function,
    values: Vec<Bound>,
}

#[derive(Clone, Debug, PartialEq)]
struct Bound {
    value: Value,
    /// The call gave it, even if it gave the default.
    is_given: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Null,
    Text(String),
    Integer(i32),
    Float(f64),
    Boolean(bool),
    Json(serde_json::Value),
    Texts(Vec<String>),
}

impl Arguments {
    pub(super) fn bind(function: Function, call: &Call) -> Result<Self, PgError> {
        let mismatch = || no_such_function(call, Some(function));
        let names: Vec<Option<&str>> = call.arguments.iter().map(|(name, _)| name.as_deref()).collect();
        let places = places(function, &names)?.ok_or_else(mismatch)?;
        let parameters = function.parameters();
        let mut given: Vec<Vec<&Argument>> = vec![Vec::new(); parameters.len()];
        for (place, (_, argument)) in places.iter().zip(&call.arguments) {
            given.get_mut(*place).ok_or_else(mismatch)?.push(argument);
        }
        let bind = |(place, (parameter, given)): (usize, (&Parameter, Vec<&Argument>))| {
            let is_given = !given.is_empty();
            let is_named = places.iter().zip(&names).any(|(of, name)| *of == place && name.is_some());
            let value = bind_one(parameter, &given, is_named)?.ok_or_else(mismatch)?;
            Ok(Bound { value, is_given })
        };
        let values = parameters.iter().zip(given).enumerate().map(bind).collect::<Result<_, PgError>>()?;
        Ok(Self { function, values })
    }

    pub(super) fn text(&self, name: &str) -> Result<&str, PgError> {
        self.optional_text(name)?.ok_or_else(|| self.null_refused(name))
    }

    pub(super) fn optional_text(&self, name: &str) -> Result<Option<&str>, PgError> {
        match &self.bound(name)?.value {
            Value::Text(text) => Ok(Some(text)),
            Value::Null => Ok(None),
            Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Json(_) | Value::Texts(_) => {
                Err(self.wrong_accessor(name))
            }
        }
    }

    pub(super) fn integer(&self, name: &str) -> Result<i32, PgError> {
        self.optional_integer(name)?.ok_or_else(|| self.null_refused(name))
    }

    pub(super) fn optional_integer(&self, name: &str) -> Result<Option<i32>, PgError> {
        match &self.bound(name)?.value {
            Value::Integer(value) => Ok(Some(*value)),
            Value::Null => Ok(None),
            Value::Text(_) | Value::Float(_) | Value::Boolean(_) | Value::Json(_) | Value::Texts(_) => {
                Err(self.wrong_accessor(name))
            }
        }
    }

    pub(super) fn float(&self, name: &str) -> Result<f64, PgError> {
        self.optional_float(name)?.ok_or_else(|| self.null_refused(name))
    }

    pub(super) fn optional_float(&self, name: &str) -> Result<Option<f64>, PgError> {
        match &self.bound(name)?.value {
            Value::Float(value) => Ok(Some(*value)),
            Value::Null => Ok(None),
            Value::Text(_) | Value::Integer(_) | Value::Boolean(_) | Value::Json(_) | Value::Texts(_) => {
                Err(self.wrong_accessor(name))
            }
        }
    }

    pub(super) fn boolean(&self, name: &str) -> Result<bool, PgError> {
        match &self.bound(name)?.value {
            Value::Boolean(value) => Ok(*value),
            Value::Null => Err(self.null_refused(name)),
            Value::Text(_) | Value::Integer(_) | Value::Float(_) | Value::Json(_) | Value::Texts(_) => {
                Err(self.wrong_accessor(name))
            }
        }
    }

    pub(super) fn json(&self, name: &str) -> Result<&serde_json::Value, PgError> {
        self.optional_json(name)?.ok_or_else(|| self.null_refused(name))
    }

    pub(super) fn optional_json(&self, name: &str) -> Result<Option<&serde_json::Value>, PgError> {
        match &self.bound(name)?.value {
            Value::Json(value) => Ok(Some(value)),
            Value::Null => Ok(None),
            Value::Text(_) | Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Texts(_) => {
                Err(self.wrong_accessor(name))
            }
        }
    }

    pub(super) fn texts(&self, name: &str) -> Result<&[String], PgError> {
        self.optional_texts(name)?.ok_or_else(|| self.null_refused(name))
    }

    pub(super) fn optional_texts(&self, name: &str) -> Result<Option<&[String]>, PgError> {
        match &self.bound(name)?.value {
            Value::Texts(texts) => Ok(Some(texts)),
            Value::Null => Ok(None),
            Value::Text(_) | Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Json(_) => {
                Err(self.wrong_accessor(name))
            }
        }
    }

    pub(super) fn integers(&self, name: &str) -> Result<Vec<i32>, PgError> {
        let number = |text: &String| match convert(Kind::Integer, text)? {
            Value::Integer(number) => Ok(number),
            Value::Null | Value::Text(_) | Value::Float(_) | Value::Boolean(_) | Value::Json(_) | Value::Texts(_) => {
                Err(self.wrong_accessor(name))
            }
        };
        self.texts(name)?.iter().map(number).collect()
    }

    pub(super) fn is_given(&self, name: &str) -> Result<bool, PgError> {
        Ok(self.bound(name)?.is_given)
    }

    fn bound(&self, name: &str) -> Result<&Bound, PgError> {
        let place = self.function.parameters().iter().position(|parameter| parameter.name == name);
        place.and_then(|place| self.values.get(place)).ok_or_else(|| self.wrong_accessor(name))
    }

    fn null_refused(&self, name: &str) -> PgError {
        PgError::new(
            NULL_VALUE_NOT_ALLOWED,
            format!("argument \"{name}\" of shardgate.{}() must not be null", self.function.name()),
        )
    }

    fn wrong_accessor(&self, name: &str) -> PgError {
        PgError::internal(format!("shardgate.{}() reads its argument \"{name}\" wrongly", self.function.name()))
    }
}

/// A call's arguments as its namesake in the map database has them, in the order of its parameters and with their defaults.
pub fn arguments_in_from(call: &Call) -> Result<serde_json::Value, PgError> {
    let function = Function::find(&call.function).ok_or_else(|| no_such_function(call, None))?;
    let value = |bound: &Bound| match &bound.value {
        Value::Null => serde_json::Value::Null,
        Value::Text(text) => text.as_str().into(),
        Value::Integer(number) => (*number).into(),
        Value::Float(number) => (*number).into(),
        Value::Boolean(value) => (*value).into(),
        Value::Json(value) => value.clone(),
        Value::Texts(texts) => texts.as_slice().into(),
    };
    Ok(Arguments::bind(function, call)?.values.iter().map(value).collect())
}

const NULL_VALUE_NOT_ALLOWED: SqlState = SqlState(*b"22004");

/// Types of a call's arguments by their order in the call; `None`: no such function, or they do not fit it. For parameters of
/// the extended protocol.
pub(super) fn types(function: Function, names: &[Option<&str>]) -> Option<Vec<Oid>> {
    let parameters = function.parameters();
    let places = places(function, names).ok()??;
    let last = parameters.len().checked_sub(1);
    let is_variadic_list = |place: usize| {
        // One value alone is an element too: `locate('t', $1)`. A whole array comes by name.
        Some(place) == last && parameters.last().is_some_and(|parameter| parameter.default == Default::Variadic)
    };
    places
        .iter()
        .zip(names)
        .map(|(place, name)| {
            let parameter = parameters.get(*place)?;
            Some(if is_variadic_list(*place) && name.is_none() { Kind::Text.oid() } else { parameter.kind.oid() })
        })
        .collect()
}

/// For each argument the parameter that it is for. `None`: they do not fit the function.
fn places(function: Function, names: &[Option<&str>]) -> Result<Option<Vec<usize>>, PgError> {
    let parameters = function.parameters();
    let is_variadic = parameters.last().is_some_and(|parameter| parameter.default == Default::Variadic);
    let mut places: Vec<usize> = Vec::with_capacity(names.len());
    let mut named_from = None;
    for (index, name) in names.iter().enumerate() {
        let place = match name {
            None if named_from.is_some() => {
                return Err(PgError::new(SqlState::SYNTAX_ERROR, "positional argument cannot follow named argument"));
            }
            None if is_variadic => index.min(parameters.len().saturating_sub(1)),
            None if index < parameters.len() => index,
            None => return Ok(None),
            Some(name) => {
                let first_named = *named_from.get_or_insert(index);
                if names.iter().take(index).skip(first_named).any(|other| *other == Some(*name)) {
                    let message = format!("argument name \"{name}\" used more than once");
                    return Err(PgError::new(SqlState::SYNTAX_ERROR, message));
                }
                match parameters.iter().position(|parameter| parameter.name == *name) {
                    // Given by position already, or unknown.
                    Some(place) if !places.contains(&place) => place,
                    Some(_) | None => return Ok(None),
                }
            }
        };
        places.push(place);
    }
    Ok(Some(places))
}

/// `Ok(None)`: the arguments do not fit the parameter's type, or a needed one is missing.
fn bind_one(parameter: &Parameter, given: &[&Argument], is_named: bool) -> Result<Option<Value>, PgError> {
    match given {
        // All of a list at once. A text that is no array is its only element.
        [Argument::Text(text)] if is_named && parameter.default == Default::Variadic && text.trim_start().starts_with('{') => {
            convert(parameter.kind, text).map(Some)
        }
        [] => Ok(match parameter.default {
            Default::None => None,
            Default::Null => Some(Value::Null),
            Default::Text(text) => Some(Value::Text(text.to_owned())),
            Default::Integer(value) => Some(Value::Integer(value)),
            Default::Float(value) => Some(Value::Float(value)),
            Default::Boolean(value) => Some(Value::Boolean(value)),
            // Like PostgreSQL: at least one is needed.
            Default::Variadic => None,
            Default::EmptyArray => Some(Value::Texts(Vec::new())),
        }),
        [Argument::Array(elements)] if matches!(parameter.kind, Kind::TextArray | Kind::IntegerArray) => {
            Ok(Some(Value::Texts(not_null(elements)?)))
        }
        elements if parameter.default == Default::Variadic => {
            let mut texts = Vec::with_capacity(elements.len());
            for element in elements {
                match element {
                    Argument::Text(text) => texts.push(text.clone()),
                    Argument::Null => return Err(null_element()),
                    Argument::Array(_) => return Ok(None),
                }
            }
            Ok(Some(Value::Texts(texts)))
        }
        [Argument::Null] => Ok(Some(Value::Null)),
        [Argument::Text(text)] => convert(parameter.kind, text).map(Some),
        _ => Ok(None),
    }
}

fn convert(kind: Kind, text: &str) -> Result<Value, PgError> {
    let invalid = || {
        PgError::new(SqlState::INVALID_TEXT_REPRESENTATION, format!("invalid input syntax for type {}: \"{text}\"", kind.name()))
    };
    match kind {
        Kind::Text => Ok(Value::Text(text.to_owned())),
        Kind::Integer => text.trim().parse().map(Value::Integer).map_err(|_| invalid()),
        Kind::Boolean => boolean(text.trim()).map(Value::Boolean).ok_or_else(invalid),
        Kind::Json => serde_json::from_str(text).map(Value::Json).map_err(|error| invalid().with_detail(error.to_string())),
        Kind::Float => text.trim().parse().map(Value::Float).map_err(|_| invalid()),
        Kind::TextArray | Kind::IntegerArray => not_null(&parse_text_array(text)?).map(Value::Texts),
    }
}

/// The words that PostgreSQL takes.
fn boolean(text: &str) -> Option<bool> {
    let text = text.to_ascii_lowercase();
    let is_one_of = |words: &[&str]| words.contains(&text.as_str());
    match text.as_str() {
        _ if is_one_of(&["t", "true", "y", "yes", "on", "1"]) => Some(true),
        _ if is_one_of(&["f", "false", "n", "no", "off", "0"]) => Some(false),
        _ => None,
    }
}

fn not_null(elements: &[Option<String>]) -> Result<Vec<String>, PgError> {
    elements.iter().map(|element| element.clone().ok_or_else(null_element)).collect()
}

fn null_element() -> PgError {
    PgError::new(NULL_VALUE_NOT_ALLOWED, "array elements must not be null")
}

/// As PostgreSQL says it, with the declaration of the function that was probably meant.
pub(super) fn no_such_function(call: &Call, meant: Option<Function>) -> PgError {
    let arguments: Vec<String> = call
        .arguments
        .iter()
        .map(|(name, argument)| {
            let kind = match argument {
                Argument::Null | Argument::Text(_) => "unknown",
                Argument::Array(_) => "text[]",
            };
            name.as_ref().map_or_else(|| kind.to_owned(), |name| format!("{name} => {kind}"))
        })
        .collect();
    let error = PgError::new(
        SqlState::UNDEFINED_FUNCTION,
        format!("function shardgate.{}({}) does not exist", call.function, arguments.join(", ")),
    );
    match meant {
        Some(function) => error.with_hint(format!("The function is {function}.")),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Argument {
        Argument::Text(value.to_owned())
    }

    fn call(function: &str, arguments: &[(Option<&str>, Argument)]) -> Call {
        let arguments = arguments.iter().map(|(name, argument)| (name.map(str::to_owned), argument.clone())).collect();
        Call { function: function.to_owned(), arguments }
    }

    fn bind(function: &str, arguments: &[(Option<&str>, Argument)]) -> Result<Arguments, PgError> {
        Arguments::bind(Function::find(function).unwrap(), &call(function, arguments))
    }

    #[test]
    fn positions_names_and_defaults_fill_the_parameters() {
        let bound =
            bind("distribute_table", &[(None, text("orders")), (None, text("tenant_id")), (Some("partitions"), text("16"))])
                .unwrap();
        assert_eq!(bound.text("table_name").unwrap(), "orders");
        assert_eq!(bound.integer("partitions").unwrap(), 16);
        assert_eq!(bound.text("strategy").unwrap(), "hash");
        assert!(!bound.is_given("strategy").unwrap());
        assert_eq!(bound.optional_text("colocate_with").unwrap(), None);
    }

    #[test]
    fn wrong_counts_and_names_are_answered_as_postgresql_does() {
        let error = bind("drop_shard", &[]).unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (SqlState::UNDEFINED_FUNCTION, "function shardgate.drop_shard() does not exist")
        );
        assert_eq!(error.hint.as_deref(), Some("The function is shardgate.drop_shard(name text)."));
        let error = bind("drop_shard", &[(Some("shard"), text("a"))]).unwrap_err();
        assert_eq!(error.message, "function shardgate.drop_shard(shard => unknown) does not exist");
        assert!(bind("drop_shard", &[(None, text("a")), (None, text("b"))]).is_err());
        assert!(bind("drop_shard", &[(None, text("a")), (Some("name"), text("b"))]).is_err());
        assert!(bind("drop_shard", &[(None, Argument::Array(vec![]))]).is_err());
        let error = bind("map_key", &[(Some("key"), text("a")), (None, text("b"))]).unwrap_err();
        assert_eq!(error.code, SqlState::SYNTAX_ERROR);
        let error = bind("map_key", &[(Some("key"), text("a")), (Some("key"), text("b"))]).unwrap_err();
        assert_eq!(error.message, "argument name \"key\" used more than once");
    }

    #[test]
    fn values_of_the_wrong_form_and_nulls_are_refused() {
        let error = bind("merge_partitions", &[(None, text("1")), (None, text("two"))]).unwrap_err();
        assert_eq!(error.message, "invalid input syntax for type integer: \"two\"");
        let bound = bind("drop_shard", &[(None, Argument::Null)]).unwrap();
        assert_eq!(bound.text("name").unwrap_err().code, NULL_VALUE_NOT_ALLOWED);
    }

    #[test]
    fn arrays_come_as_literals_as_lists_and_variadic() {
        let bound = bind("declare_function", &[(None, text("f")), (Some("reads"), text("{a,\"b c\"}"))]).unwrap();
        assert_eq!(bound.texts("reads").unwrap(), ["a", "b c"]);
        assert!(bound.texts("writes").unwrap().is_empty());
        let list = Argument::Array(vec![Some("x".into()), Some("y".into())]);
        assert_eq!(bind("locate", &[(None, text("t")), (Some("key"), list.clone())]).unwrap().texts("key").unwrap(), ["x", "y"]);
        assert_eq!(bind("locate", &[(None, text("t")), (None, list)]).unwrap().texts("key").unwrap(), ["x", "y"]);
        let bound = bind("locate", &[(None, text("t")), (None, text("x")), (None, text("{y}"))]).unwrap();
        assert_eq!(bound.texts("key").unwrap(), ["x", "{y}"]);
        let named = |key: &str| bind("locate", &[(None, text("t")), (Some("key"), text(key))]).unwrap();
        assert_eq!(named("{x,y}").texts("key").unwrap(), ["x", "y"]);
        assert_eq!(named("x").texts("key").unwrap(), ["x"]);
        assert!(bind("locate", &[(None, text("t"))]).is_err());
        assert!(bind("declare_function", &[(None, text("f")), (None, Argument::Array(vec![None]))]).is_err());
    }

    #[test]
    fn types_of_parameters_follow_the_call() {
        let types = |function, names: &[Option<&str>]| types(Function::find(function).unwrap(), names);
        assert_eq!(types("map_key", &[None, None, None]), Some(vec![25, 25, 25]));
        assert_eq!(types("add_shard", &[None, None, Some("capacity")]), Some(vec![25, 25, 701]));
        assert_eq!(types("locate", &[None, None, None]), Some(vec![25, 25, 25]));
        assert_eq!(types("locate", &[None, Some("key")]), Some(vec![25, 1009]));
        assert_eq!(types("map_key", &[Some("nothing")]), None);
    }
}
