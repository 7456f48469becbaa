//! A bound parameter as SQL: a literal of its type, for statements that take no parameters.

use crate::catalog::{Catalog, hex, quoted_literal, quoted_name};
use crate::shard_key::{Conversion, Format, KeyDatum, KeyType, oid};

/// `None` when the value is not certainly one of its type: PostgreSQL says so where it is bound. NULL is one of every type.
pub(in crate::session) fn as_sql(type_oid: u32, format: Format, value: Option<&[u8]>) -> Option<String> {
    let (name, key_type) = match type_oid {
        oid::INT2 => ("int2", KeyType::Int2),
        oid::INT4 => ("int4", KeyType::Int4),
        oid::INT8 => ("int8", KeyType::Int8),
        oid::BOOL => ("bool", KeyType::Bool),
        oid::UUID => ("uuid", KeyType::Uuid),
        oid::TEXT => ("text", KeyType::Text),
        oid::VARCHAR => ("\"varchar\"", KeyType::Text),
        _ => return None,
    };
    let Some(bytes) = value else { return Some(format!("NULL::pg_catalog.{name}")) };
    let is_valid = matches!(KeyDatum::convert(key_type, type_oid, format, bytes), Conversion::Exactly(_));
    let text = match (key_type, format) {
        _ if !is_valid => return None,
        (_, Format::Text) | (KeyType::Text, Format::Binary) => std::str::from_utf8(bytes).ok()?.to_owned(),
        (KeyType::Int2, Format::Binary) => i16::from_be_bytes(bytes.try_into().ok()?).to_string(),
        (KeyType::Int4, Format::Binary) => i32::from_be_bytes(bytes.try_into().ok()?).to_string(),
        (KeyType::Int8, Format::Binary) => i64::from_be_bytes(bytes.try_into().ok()?).to_string(),
        (KeyType::Bool, Format::Binary) => (bytes == [1]).to_string(),
        (KeyType::Uuid, Format::Binary) => hex(bytes),
        (
            KeyType::Bpchar | KeyType::Date | KeyType::Timestamp | KeyType::Timestamptz | KeyType::Bytea | KeyType::Numeric,
            Format::Binary,
        ) => return None,
    };
    Some(format!("{}::pg_catalog.{name}", quoted_literal(&text)))
}

/// The same of any type that has a name, where the value came as text: PostgreSQL says what is wrong with it.
pub(in crate::session) fn as_constant(type_oid: u32, format: Format, value: Option<&[u8]>, catalog: &Catalog) -> Option<String> {
    if let Some(sql) = as_sql(type_oid, format, value) {
        return Some(sql);
    }
    let found = catalog.types.get(&type_oid).filter(|found| found.kind != 'p')?;
    let name = quoted_name(&found.schema, &found.name);
    match (value, format) {
        (None, _) => Some(format!("NULL::{name}")),
        (Some(bytes), Format::Text) => Some(format!("{}::{name}", quoted_literal(std::str::from_utf8(bytes).ok()?))),
        (Some(_), Format::Binary) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_literals_of_their_types() {
        let sql = |oid, format, value: &[u8]| as_sql(oid, format, Some(value));
        assert_eq!(sql(oid::INT4, Format::Text, b"42").unwrap(), "'42'::pg_catalog.int4");
        assert_eq!(sql(oid::INT8, Format::Binary, &(-7_i64).to_be_bytes()).unwrap(), "'-7'::pg_catalog.int8");
        assert_eq!(sql(oid::BOOL, Format::Binary, &[1]).unwrap(), "'true'::pg_catalog.bool");
        assert_eq!(sql(oid::TEXT, Format::Binary, br"o'n\e").unwrap(), r" E'o''n\\e'::pg_catalog.text");
        assert_eq!(as_sql(oid::INT4, Format::Text, None).unwrap(), "NULL::pg_catalog.int4");
    }

    #[test]
    fn what_is_no_value_of_its_type_is_left_to_postgresql() {
        assert_eq!(as_sql(oid::INT4, Format::Text, Some(b"x")), None);
        assert_eq!(as_sql(oid::INT4, Format::Binary, Some(b"x")), None);
        assert_eq!(as_sql(oid::INT2, Format::Text, Some(b"70000")), None);
        assert_eq!(as_sql(oid::TEXT, Format::Text, Some(b"\xff")), None);
        assert_eq!(as_sql(oid::NUMERIC, Format::Text, Some(b"1.5")), None);
    }
}
