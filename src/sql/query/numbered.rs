//! INSERT into columns that a cluster-wide sequence numbers: who draws, and what GENERATED ALWAYS forbids.
//!
//! On the shards such a column is one with a default like any other; that it was an identity column, and of which kind, is kept
//! to here, in PostgreSQL's words.

use pg_raw_parse::{Node, nodes};

use super::bind::Reader;
use crate::catalog::Column;
use crate::error::{PgError, SqlState};
use crate::sql::analysis::Numbers;
use crate::sql::parse::tree;

/// What an INSERT says of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// Every row has a value for it other than DEFAULT.
    pub is_always: bool,
    /// Some row has.
    pub is_ever: bool,
}

impl Reader<'_> {
    /// A column with a cluster-wide sequence. `is_values`: the rows are in the text.
    pub fn note_numbered(&mut self, insert: &nodes::InsertStmt, column: &Column, given: Given, is_values: bool) {
        let is_overridden = insert.override_ == nodes::OverridingKind::OVERRIDING_USER_VALUE && column.identity.is_some();
        if given.is_ever && is_overridden && !is_values {
            self.notes.refuse(PgError::unsupported(
                "OVERRIDING USER VALUE is not supported here",
                format!(
                    "Column \"{}\" is numbered by a sequence of the whole cluster, and its values come from a query.",
                    column.name
                ),
                "Leave the column out.",
            ));
        }
        let is_system = insert.override_ == nodes::OverridingKind::OVERRIDING_SYSTEM_VALUE;
        if given.is_ever && column.identity == Some('a') && !is_overridden && !is_system {
            self.notes.refuse(generated_always(&column.name));
        }
        if !given.is_always || is_overridden {
            self.note_numbers(if is_values { Numbers::Drawn } else { Numbers::Unseen });
        }
    }

    pub fn note_numbers(&mut self, numbers: Numbers) {
        self.notes.numbers = self.notes.numbers.max(numbers);
    }

    /// The reading depends on what these literals say.
    pub fn fix_arguments(&mut self, call: &nodes::FuncCall) {
        let mut found = Vec::new();
        for argument in call.args() {
            tree::walk(argument, &mut |node| {
                if let Node::A_Const(constant) = node {
                    found.push(constant.location);
                }
                true
            });
        }
        found.into_iter().for_each(|location| self.fix_literal(location));
    }
}

pub fn generated_always(column: &str) -> PgError {
    PgError::new(SqlState::GENERATED_ALWAYS, format!("cannot insert a non-DEFAULT value into column \"{column}\""))
        .with_detail(format!("Column \"{column}\" is an identity column defined as GENERATED ALWAYS."))
        .with_hint("Use OVERRIDING SYSTEM VALUE to override.")
}
