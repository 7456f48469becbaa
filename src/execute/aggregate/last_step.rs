//! The query that PostgreSQL runs over the whole groups: they stand in it as constants of their own types.

use super::groups::GroupRow;
use super::{CombineError, inexact};
use crate::catalog::quoted_literal;
use crate::execute::sort_key::decode;
use crate::shard_key::Format;
use crate::shard_key::oid::{
    BOOL, BPCHAR, BYTEA, DATE, INT2, INT4, INT8, NAME, NUMERIC, OID, TEXT, TIME, TIMESTAMP, TIMESTAMPTZ, UUID, VARCHAR,
};
use crate::sql::analysis::{ColumnUse, LastStep};
use crate::wire::FieldDescription;

/// `columns`: of the groups, all in text.
pub fn last_step_text(step: &LastStep, columns: &[FieldDescription], rows: &[GroupRow]) -> Result<String, CombineError> {
    if step.uses.len() != columns.len() {
        return Err(inexact("the columns are not those that were expected"));
    }
    let types =
        columns.iter().zip(&step.uses).map(|(column, used)| type_name(column, used)).collect::<Result<Vec<_>, CombineError>>()?;
    let mut text = step.before.clone();
    if rows.is_empty() {
        let nulls: Vec<String> = types.iter().map(|name| format!("NULL::{name}")).collect();
        text.push_str(&format!("SELECT {} WHERE FALSE", nulls.join(", ")));
    }
    for (number, row) in rows.iter().enumerate() {
        text.push_str(if number == 0 { "VALUES (" } else { ", (" });
        for (index, (value, (name, column))) in row.values.iter().zip(types.iter().zip(columns)).enumerate() {
            if index > 0 {
                text.push(',');
            }
            push_value(&mut text, value.as_deref(), column)?;
            // The first row's types are those of all.
            if number == 0 {
                text.push_str("::");
                text.push_str(name);
            }
        }
        text.push(')');
    }
    // Of a single row of constants the planner would compute the select list before any row is filtered or counted.
    text.push_str(" OFFSET 0");
    text.push_str(&step.after);
    Ok(text)
}

fn push_value(text: &mut String, value: Option<&[u8]>, column: &FieldDescription) -> Result<(), CombineError> {
    let Some(bytes) = value else {
        text.push_str("NULL");
        return Ok(());
    };
    // In another form than ISO the zone is named by an abbreviation, which may mean another one when it is read.
    if column.type_oid == TIMESTAMPTZ && decode(TIMESTAMPTZ, Format::Text, false, Some(bytes)).is_none() {
        return Err(inexact("a value of timestamptz is not in ISO form"));
    }
    let value = std::str::from_utf8(bytes).map_err(|_| inexact("a value is not UTF-8"))?;
    text.push_str(&quoted_literal(value));
    Ok(())
}

/// Types whose text form gives the same value again, whatever the settings are.
fn type_name(column: &FieldDescription, used: &ColumnUse) -> Result<String, CombineError> {
    let is_text = matches!(column.type_oid, TEXT | VARCHAR | BPCHAR | NAME);
    let refused = |why: &str| Err(inexact(format!("column \"{}\" {why}", String::from_utf8_lossy(&column.name))));
    if column.format != 0 {
        return refused("is not in text form");
    }
    if is_text && used.is_computed && used.collation.is_none() {
        return refused("is text in an expression over groups, whose collation the proxy does not know");
    }
    if is_text && used.is_sorted && !used.is_bytewise && used.collation.is_none() {
        return refused("sorts in an order that the proxy does not know");
    }
    let collation = match &used.collation {
        _ if !is_text => None,
        Some(collation) => Some(collation.as_str()),
        None => used.is_sorted.then_some("\"C\""),
    };
    let name = match column.type_oid {
        TEXT => "pg_catalog.text",
        VARCHAR => "pg_catalog.varchar",
        BPCHAR => "pg_catalog.bpchar",
        BOOL => "pg_catalog.bool",
        BYTEA => "pg_catalog.bytea",
        NAME => "pg_catalog.name",
        INT2 => "pg_catalog.int2",
        INT4 => "pg_catalog.int4",
        INT8 => "pg_catalog.int8",
        OID => "pg_catalog.oid",
        NUMERIC => "pg_catalog.numeric",
        DATE => "pg_catalog.date",
        TIME => "pg_catalog.time",
        TIMESTAMP => "pg_catalog.timestamp",
        TIMESTAMPTZ => "pg_catalog.timestamptz",
        UUID => "pg_catalog.uuid",
        _ => return refused("has a type whose text form may not give the same value again"),
    };
    Ok(collation.map_or_else(|| name.to_owned(), |collation| format!("{name} COLLATE {collation}")))
}
