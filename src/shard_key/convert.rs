//! From what a client sends (text or binary, of some type) to a key column's value.

use super::{KeyDatum, KeyType, Oid};

/// Wire format of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Binary,
}

/// What a value means for a comparison with a key column.
#[derive(Clone, Debug, PartialEq)]
pub enum Conversion {
    /// Equal to exactly this value of the key type.
    Exactly(KeyDatum),
    /// Cannot equal any value of the key type (out of range, 1.5 against an integer).
    NoValue,
    /// Depends on settings, would fail, or is not proven: the condition is unknown.
    Unknown,
}

impl KeyDatum {
    /// What a value of type `oid` (0: an untyped literal) means when compared by `=` with a column of `key_type`.
    pub fn convert(key_type: KeyType, oid: Oid, format: Format, bytes: &[u8]) -> Conversion {
        let _ = (key_type, oid, format, bytes);
        Conversion::Unknown
    }
}
