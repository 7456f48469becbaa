//! Reading SQL: parse, analyse, rewrite. Pure: no I/O, no clock, no wait.

pub mod analysis;
pub mod body;
pub mod lexer;
pub mod literal;
pub mod parse;
pub mod tree;
