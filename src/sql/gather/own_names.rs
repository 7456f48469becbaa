//! Names of the session's temporary tables elsewhere than in FROM: as types, in strings that PostgreSQL takes for names, and where
//! it is asked what a name means.
//!
//! Each temporary table has a row type of its name, before all others of that name. Where the statement runs, there is neither: the
//! name would mean another table, or nothing.

use pg_raw_parse::nodes;

use super::refusals;
use super::survey::{Call, Survey};
use crate::error::PgError;
use crate::sql::context::Context;
use crate::sql::parse::tree;

/// A cast, by the name of its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cast {
    schema: Option<String>,
    name: String,
    /// What is cast, when it is a constant.
    constant: Option<String>,
}

/// What is cast to what; `None` for a type without a name.
pub fn cast(cast: &nodes::TypeCast) -> Option<Cast> {
    let names: Vec<&str> = cast.type_name()?.names().iter().filter_map(nodes::String::sval).collect();
    let (name, before) = names.split_last()?;
    let schema = before.last().map(|schema| (*schema).to_owned());
    Some(Cast { schema, name: (*name).to_owned(), constant: tree::constant_text(cast.arg()) })
}

/// `survey`: of the client's own text.
pub fn check(survey: &Survey, context: &Context) -> Result<(), PgError> {
    let names = &context.temporary_tables;
    let Some(any) = names.first() else { return Ok(()) };
    let is_own = |schema: Option<&str>, name: &str| {
        schema.is_none_or(|schema| schema == "pg_temp") && names.iter().any(|table| table == name)
    };
    let names_own = |text: &str| names.iter().find(|table| last_name(text).eq_ignore_ascii_case(table));
    let named = |constant: Option<&String>| constant.map_or(Some(any), |text| names_own(text));
    for cast in &survey.casts {
        let is_name = NAMED_BY_STRINGS.contains(&cast.name.as_str());
        if is_own(cast.schema.as_deref(), &cast.name) {
            return Err(refusals::own_name(&cast.name));
        }
        if let Some(table) = named(cast.constant.as_ref()).filter(|_| is_name) {
            return Err(refusals::own_name(table));
        }
    }
    for call in &survey.calls {
        // The row type called like a function.
        if call.argument_count == 1 && is_own(call.schema.as_deref(), &call.name) {
            return Err(refusals::own_name(&call.name));
        }
        if call.name.ends_with("_is_visible") || call.name == "pg_my_temp_schema" {
            return Err(refusals::own_name(any));
        }
        // A role may stand before the table.
        let constant = call.first_constant.as_ref().filter(|_| call.argument_count < 3);
        if let Some(table) = named(constant).filter(|_| takes_names(call)) {
            return Err(refusals::own_name(table));
        }
    }
    Ok(())
}

fn takes_names(call: &Call) -> bool {
    let name = call.name.as_str();
    name.starts_with("to_reg") || (name.starts_with("has_") && name.ends_with("_privilege")) || name == "row_security_active"
}

/// `pg_temp."Ids"`, `ids[]`.
fn last_name(text: &str) -> &str {
    let name = text.trim().trim_end_matches("[]");
    name.rsplit('.').next().unwrap_or(name).trim().trim_matches('"')
}

const NAMED_BY_STRINGS: [&str; 2] = ["regclass", "regtype"];
