//! Key functions: `right(isbn, 1)` and its kind, evaluated as PostgreSQL would.

/// A deterministic, immutable function from a column's value to a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyFunction {
    Left(i32),
    Right(i32),
    /// `substr(column, from, length)`
    Substr(i32, i32),
}
