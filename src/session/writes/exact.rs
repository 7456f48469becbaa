//! Whether rows that a statement is given as constants are read back as the values that they were.

use crate::error::PgError;
use crate::session::Session;
use crate::sql::rewrite::staging::AnswerColumn;

/// Values travel as text under the client's own settings.
pub(in crate::session) fn check_text_is_exact(session: &Session) -> Result<(), PgError> {
    let is_utf8 = session.effective("client_encoding").is_none_or(|name| {
        let name: String = name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect();
        matches!(name.as_str(), "utf8" | "unicode" | "sqlascii")
    });
    let has_nulls = session.effective("array_nulls").is_none_or(|value| matches!(value, "on" | "true" | "1" | "yes"));
    if is_utf8 && has_nulls {
        return Ok(());
    }
    Err(not_exact(if is_utf8 { "array_nulls" } else { "client_encoding" }))
}

/// Values of these columns may be written as constants.
pub(in crate::session) fn check_types_are_exact(session: &Session, columns: &[AnswerColumn]) -> Result<(), PgError> {
    let base = |oid: u32| match session.context.catalog.types.get(&oid) {
        Some(found) if found.base != 0 => found.base,
        Some(_) | None => oid,
    };
    for column in columns {
        let type_oid = base(column.type_oid);
        if OF_ONE_SERVER.contains(&type_oid) {
            return Err(PgError::unsupported(
                "a sub-select of this type is not supported across shards",
                format!("Column \"{}\" means something on one server only.", column.name),
                "Select a key of the rows instead.",
            ));
        }
        if XML.contains(&type_oid) {
            return Err(PgError::unsupported(
                "a sub-select of this type is not supported across shards",
                format!("Column \"{}\" is xml, whose declaration is not part of its text.", column.name),
                "Cast the column to text in the sub-select.",
            ));
        }
        check_style_of(session, type_oid)?;
    }
    Ok(())
}

/// Values of the type are printed so that they are read as the same.
pub(in crate::session) fn check_style_of(session: &Session, type_oid: u32) -> Result<(), PgError> {
    if EXACT_ALWAYS.contains(&type_oid) { Ok(()) } else { check_styles(session) }
}

/// Settings that say how floats, dates and times are printed. Intervals are read back under the style that printed them.
fn check_styles(session: &Session) -> Result<(), PgError> {
    let digits = session.effective("extra_float_digits");
    if digits.is_some_and(|digits| !digits.trim().parse().is_ok_and(|digits: i32| digits >= 1)) {
        return Err(not_exact("extra_float_digits"));
    }
    let date_style = session.reported.iter().find(|(known, _)| known.eq_ignore_ascii_case("DateStyle"));
    if date_style.is_some_and(|(_, value)| !value.to_ascii_lowercase().starts_with("iso")) {
        return Err(not_exact("DateStyle"));
    }
    Ok(())
}

fn not_exact(setting: &str) -> PgError {
    PgError::unsupported(
        format!("this write is not supported with this value of {setting}"),
        "Rows of its sub-selects are written as constants, which must be read back as the same values.",
        format!("RESET {setting} before it."),
    )
}

/// Object, row and transaction identifiers.
const OF_ONE_SERVER: [u32; 16] = [24, 26, 27, 28, 29, 2202, 2203, 2204, 2205, 2206, 3734, 3769, 4089, 4096, 4191, 5069];
/// And its array.
const XML: [u32; 2] = [142, 143];
/// Printed alike under all settings: bool, bytea, char, name, integers, text, json, bpchar, varchar, numeric, uuid, jsonb.
const EXACT_ALWAYS: [u32; 14] = [16, 17, 18, 19, 20, 21, 23, 25, 114, 1042, 1043, 1700, 2950, 3802];
