//! Shard keys as values: their types, their conversion from what clients send, their hash and their order.
//!
//! Everything here must agree with PostgreSQL bit for bit: the hash is PostgreSQL's own (`hashint8extended(k, 0)` and its
//! siblings, several columns chaining the seed), so that a shard can evaluate it without us; the order is the one of
//! PostgreSQL's btree operators, text bytewise only. A value that would not convert with certainty is an error here, and the
//! caller then treats the condition as unknown; nothing is ever guessed.

use std::borrow::Cow;

mod array;
mod calendar;
mod convert;
mod decimal;
mod function;
mod hash;
mod input;
mod number;
pub mod oid;
mod order;
#[cfg(test)]
pub(crate) mod strategies;
mod text;

pub use calendar::timestamp_text;
pub use convert::{Conversion, Format, Position};
pub use decimal::Decimal;
pub use function::{DateUnit, FunctionArgument, KeyFunction};
pub use order::after_prefix;

/// PostgreSQL type oid.
pub type Oid = u32;

/// The types that a shard key column may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyType {
    Int2,
    Int4,
    Int8,
    /// `text` and `varchar`: equality and hash are the same.
    Text,
    /// `char(n)`: trailing blanks do not count.
    Bpchar,
    Uuid,
    Date,
    Timestamp,
    Timestamptz,
    Bool,
    Bytea,
    /// With any precision and scale: `1.0` and `1.00` are equal.
    Numeric,
}

impl KeyType {
    /// Is a value of this type, as a function has it, the same key in a column of that type? Integers of all widths are equal and hash alike.
    pub fn is_alike(self, other: Self) -> bool {
        let is_integer = |of: Self| matches!(of, Self::Int2 | Self::Int4 | Self::Int8);
        self == other || (is_integer(self) && is_integer(other))
    }
}

/// One column's value, not null. Equal values of one type are equal here and hash alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyDatum {
    /// int2, int4 and int8 alike.
    Int(i64),
    /// text, varchar; and char(n) without its trailing blanks.
    Text(Box<str>),
    Uuid([u8; 16]),
    /// Days since 2000-01-01; `i32::MIN`/`MAX` are the infinities.
    Date(i32),
    /// Microseconds since 2000-01-01 (UTC for timestamptz); `i64::MIN`/`MAX` are the infinities.
    Timestamp(i64),
    Bool(bool),
    Bytea(Box<[u8]>),
    Numeric(Decimal),
}

/// A [`KeyDatum`] that borrows from the bytes it was read from, so that routing by a parameter does not allocate.
#[derive(Clone, Debug, PartialEq)]
pub enum DatumRef<'a> {
    Int(i64),
    Text(&'a str),
    Uuid([u8; 16]),
    Date(i32),
    Timestamp(i64),
    Bool(bool),
    Bytea(Cow<'a, [u8]>),
    Numeric(Cow<'a, Decimal>),
}

/// The value of a whole shard key: one datum a column, in the key's column order. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Box<[KeyDatum]>);

/// How a table's key column becomes one column of the group's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyColumn {
    /// The table's column, as in pg_attribute.
    pub column: String,
    /// Type of the column itself.
    pub column_type: KeyType,
    /// `right(isbn, 1)`: the group's key is this function of the column.
    pub function: Option<KeyFunction>,
}

impl Key {
    /// Panics on an empty list: a key has at least one column.
    pub fn new(data: Vec<KeyDatum>) -> Self {
        assert!(!data.is_empty(), "a shard key has at least one column");
        Self(data.into_boxed_slice())
    }

    pub fn data(&self) -> &[KeyDatum] {
        &self.0
    }
}

impl KeyDatum {
    pub fn as_ref(&self) -> DatumRef<'_> {
        match self {
            KeyDatum::Int(value) => DatumRef::Int(*value),
            KeyDatum::Text(text) => DatumRef::Text(text),
            KeyDatum::Uuid(bytes) => DatumRef::Uuid(*bytes),
            KeyDatum::Date(days) => DatumRef::Date(*days),
            KeyDatum::Timestamp(micros) => DatumRef::Timestamp(*micros),
            KeyDatum::Bool(value) => DatumRef::Bool(*value),
            KeyDatum::Bytea(bytes) => DatumRef::Bytea(Cow::Borrowed(bytes)),
            KeyDatum::Numeric(decimal) => DatumRef::Numeric(Cow::Borrowed(decimal)),
        }
    }
}

impl DatumRef<'_> {
    pub fn to_datum(&self) -> KeyDatum {
        match self {
            DatumRef::Int(value) => KeyDatum::Int(*value),
            DatumRef::Text(text) => KeyDatum::Text((*text).into()),
            DatumRef::Uuid(bytes) => KeyDatum::Uuid(*bytes),
            DatumRef::Date(days) => KeyDatum::Date(*days),
            DatumRef::Timestamp(micros) => KeyDatum::Timestamp(*micros),
            DatumRef::Bool(value) => KeyDatum::Bool(*value),
            DatumRef::Bytea(bytes) => KeyDatum::Bytea(bytes.as_ref().into()),
            DatumRef::Numeric(decimal) => KeyDatum::Numeric(decimal.as_ref().clone()),
        }
    }
}
