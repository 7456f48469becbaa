//! What a function, trigger, policy, default, rule or view touches beyond what a statement names.

use super::Oid;

/// The relations that are read and written, or that this cannot be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closure {
    Known(References),
    /// Says what could not be proven: "function \"f\" is written in plperl".
    Unknown(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    pub reads: Vec<Oid>,
    pub writes: Vec<Oid>,
}
