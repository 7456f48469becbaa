//! Reading SQL: parse, analyse, rewrite. Pure: no I/O, no clock, no wait.

pub mod analysis;
