//! Leaves rows out of a text that lie on a shard and are not owned by it: the residues of a move.
//!
//! While a partition moves, its rows lie on two shards: copies on the target from the first copied row to the switch, left
//! overs on the source from the switch to the end of the clean-up. Every text that runs on two shards or more excludes them by
//! one condition for each reference to such a table (`condition`). Where the condition stands decides whether the answer is
//! PostgreSQL's (`places`):
//!
//! | the table | its condition |
//! |---|---|
//! | kept by its joins; target of UPDATE and DELETE | first in WHERE |
//! | nullable side of LEFT or RIGHT with ON | first in that ON |
//! | below a join with an alias | first in an inner ON below it |
//! | FULL; USING and NATURAL on the nullable side; source of MERGE | a one-row join: `(t JOIN (SELECT) AS sg_1 ON …)` |
//! | target of MERGE | first in ON, and in each WHEN NOT MATCHED BY SOURCE |
//!
//! The client's text is spliced and never printed from a tree. What comes out counts only when it is read again and is the
//! client's statement but for exactly these conditions (`proof`). What cannot be covered with certainty is refused; views that
//! reach such a table are. Pure; knows nothing of moves, only which keys are excluded.
//!
//! What goes through [`cover`] is every text that is made of a client's statement and runs on several shards, or on one of which
//! routing has not said why the text may run there as it is. As long as the map knows no rows that are not owned, a text stays as
//! it is.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::error::PgError;
use crate::shardmap::{GroupId, MapSnapshot};
use crate::sql::analysis::Splice;
use crate::sql::context::Context;
use crate::sql::parse;

mod condition;
mod from_clause;
mod places;
mod proof;
#[cfg(test)]
mod tests;

pub use condition::can_exclude;

/// A text that sees only rows which its shard owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covered(Bytes);

impl Covered {
    pub fn text(&self) -> &Bytes {
        &self.0
    }
}

/// `text`: one statement or several. `map`: the version that they were routed by. It holds no rows that are not owned yet.
pub fn cover(text: impl Into<Bytes>, _map: &MapSnapshot) -> Covered {
    Covered(text.into())
}

/// The keys that are excluded on a shard, by colocation group.
pub type Residues = BTreeMap<GroupId, Excluded>;

/// Keys of one group: a multirange of hashes or key values, or an array of lookup keys, as PostgreSQL reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Excluded {
    Literal(String),
    /// `$n`, behind the client's own parameters: one text then serves all shards, moves and versions. An empty multirange
    /// excludes nothing.
    Parameter(usize),
}

/// The statement without the rows of `residues`; the text itself where it reads none of their tables.
///
/// `text` is one SELECT, INSERT, UPDATE, DELETE or MERGE. `0A000` for what cannot be covered.
pub fn exclude(text: &str, context: &Context, residues: &Residues) -> Result<String, PgError> {
    if residues.is_empty() {
        return Ok(text.to_owned());
    }
    let tree = parse::parse(text)?;
    let mut statements = tree.stmts();
    let (Some(statement), None) = (statements.next(), statements.next()) else {
        return Err(uncoverable("It is not one statement."));
    };
    let additions = places::additions(text, statement, context, residues)?;
    if additions.splices.is_empty() {
        return Ok(text.to_owned());
    }
    let covered = spliced(text, additions.splices);
    if proof::holds(text, &covered, &additions.conditions)? {
        Ok(covered)
    } else {
        Err(uncoverable("The text with the conditions does not read as the statement with them."))
    }
}

/// Insertions in the order of the text; of several at one place the earlier one comes first.
fn spliced(text: &str, mut splices: Vec<Splice>) -> String {
    splices.sort_by_key(|splice| splice.start);
    let mut out = String::with_capacity(text.len() + splices.iter().map(|splice| splice.text.len()).sum::<usize>());
    let mut position = 0;
    for splice in &splices {
        out.push_str(text.get(position..splice.start).unwrap_or_default());
        out.push_str(&splice.text);
        position = splice.end;
    }
    out.push_str(text.get(position..).unwrap_or_default());
    out
}

fn uncoverable(detail: &str) -> PgError {
    PgError::unsupported(
        "rows that are being moved cannot be left out of this statement",
        detail,
        "Restrict the statement to one shard key, or repeat it after the move.",
    )
}
