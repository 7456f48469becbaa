//! The oids of the built-in types that the proxy knows by name, and which of them a shard key column may have.
//!
//! Fixed for ever by PostgreSQL's pg_type.dat. Types of users and extensions have other oids on every server and never occur
//! here; a value of such a type is unknown to us.

use super::{KeyType, Oid};

pub const BOOL: Oid = 16;
pub const BYTEA: Oid = 17;
/// `"char"`, of one byte.
pub const CHAR: Oid = 18;
pub const NAME: Oid = 19;
pub const INT8: Oid = 20;
pub const INT2: Oid = 21;
pub const INT4: Oid = 23;
pub const TEXT: Oid = 25;
pub const OID: Oid = 26;
pub const JSON: Oid = 114;
pub const JSONB: Oid = 3802;
pub const XML: Oid = 142;
pub const XML_ARRAY: Oid = 143;
pub const FLOAT4: Oid = 700;
pub const FLOAT8: Oid = 701;
pub const UNKNOWN: Oid = 705;
pub const INT4_ARRAY: Oid = 1007;
pub const TEXT_ARRAY: Oid = 1009;
pub const BPCHAR: Oid = 1042;
pub const VARCHAR: Oid = 1043;
pub const DATE: Oid = 1082;
pub const TIME: Oid = 1083;
pub const TIMESTAMP: Oid = 1114;
pub const TIMESTAMPTZ: Oid = 1184;
pub const NUMERIC: Oid = 1700;
pub const VOID: Oid = 2278;
pub const UUID: Oid = 2950;

/// `true` for 0 and `unknown`: a literal whose type the other side of the comparison decides.
pub fn is_untyped(oid: Oid) -> bool {
    oid == 0 || oid == UNKNOWN
}

/// The element type of an array type; only of arrays whose elements can meet a shard key.
pub fn array_element(array: Oid) -> Option<Oid> {
    match array {
        1000 => Some(BOOL),
        1001 => Some(BYTEA),
        1003 => Some(NAME),
        1005 => Some(INT2),
        1007 => Some(INT4),
        TEXT_ARRAY => Some(TEXT),
        1014 => Some(BPCHAR),
        1015 => Some(VARCHAR),
        1016 => Some(INT8),
        1115 => Some(TIMESTAMP),
        1182 => Some(DATE),
        1185 => Some(TIMESTAMPTZ),
        1231 => Some(NUMERIC),
        2951 => Some(UUID),
        _ => None,
    }
}

impl KeyType {
    /// The key type of a column, from `pg_attribute.atttypid`; `None`: not supported as a shard key.
    pub fn of_column(type_oid: Oid) -> Option<Self> {
        match type_oid {
            INT2 => Some(KeyType::Int2),
            INT4 => Some(KeyType::Int4),
            INT8 => Some(KeyType::Int8),
            TEXT | VARCHAR => Some(KeyType::Text),
            BPCHAR => Some(KeyType::Bpchar),
            UUID => Some(KeyType::Uuid),
            DATE => Some(KeyType::Date),
            TIMESTAMP => Some(KeyType::Timestamp),
            TIMESTAMPTZ => Some(KeyType::Timestamptz),
            BOOL => Some(KeyType::Bool),
            BYTEA => Some(KeyType::Bytea),
            NUMERIC => Some(KeyType::Numeric),
            _ => None,
        }
    }

    /// The type's oid; of `text` for text and varchar.
    pub fn oid(self) -> Oid {
        match self {
            KeyType::Int2 => INT2,
            KeyType::Int4 => INT4,
            KeyType::Int8 => INT8,
            KeyType::Text => TEXT,
            KeyType::Bpchar => BPCHAR,
            KeyType::Uuid => UUID,
            KeyType::Date => DATE,
            KeyType::Timestamp => TIMESTAMP,
            KeyType::Timestamptz => TIMESTAMPTZ,
            KeyType::Bool => BOOL,
            KeyType::Bytea => BYTEA,
            KeyType::Numeric => NUMERIC,
        }
    }

    /// As `format_type` prints it; also the form in which the shard map stores it.
    pub fn name(self) -> &'static str {
        match self {
            KeyType::Int2 => "smallint",
            KeyType::Int4 => "integer",
            KeyType::Int8 => "bigint",
            KeyType::Text => "text",
            KeyType::Bpchar => "character",
            KeyType::Uuid => "uuid",
            KeyType::Date => "date",
            KeyType::Timestamp => "timestamp without time zone",
            KeyType::Timestamptz => "timestamp with time zone",
            KeyType::Bool => "boolean",
            KeyType::Bytea => "bytea",
            KeyType::Numeric => "numeric",
        }
    }

    /// The reverse of [`KeyType::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key_type| key_type.name() == name)
    }

    pub const ALL: [KeyType; 12] = [
        KeyType::Int2,
        KeyType::Int4,
        KeyType::Int8,
        KeyType::Text,
        KeyType::Bpchar,
        KeyType::Uuid,
        KeyType::Date,
        KeyType::Timestamp,
        KeyType::Timestamptz,
        KeyType::Bool,
        KeyType::Bytea,
        KeyType::Numeric,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_oids_lead_back_to_the_type() {
        for key_type in KeyType::ALL {
            assert_eq!(KeyType::from_name(key_type.name()), Some(key_type));
            assert_eq!(KeyType::of_column(key_type.oid()), Some(key_type));
        }
        assert_eq!(KeyType::of_column(VARCHAR), Some(KeyType::Text));
        assert_eq!(KeyType::of_column(FLOAT8), None);
        assert_eq!(KeyType::from_name("jsonb"), None);
    }
}
