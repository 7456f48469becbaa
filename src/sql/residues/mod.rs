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
//! Which keys are excluded a shard says itself: the condition reads them there (`shardgate.residue_hashes` and its siblings), in the
//! statement's own snapshot. So one text serves all shards, and all moves of the group.
//!
//! The client's text is spliced and never printed from a tree. What comes out counts only when it is read again and is the
//! client's statement but for exactly these conditions (`proof`). What cannot be covered with certainty is refused. Pure; knows
//! nothing of moves, only which groups have such rows.
//!
//! A view that reaches such a table has its table's name inside, where no text of the client can be changed. In its place the text
//! names its *covering view* (`views`), which each shard has as long as the view's groups may have residues: the same query with the
//! conditions, with the view's owner, rights and options. The statement knows it under the view's name (`renames`).
//!
//! What goes through [`cover`] is every text that is made of a client's statement and runs on several shards, or on one of which
//! routing has not said why the text may run there as it is. As long as the map knows no rows that are not owned, a text stays as
//! it is.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::PgError;
use crate::shardmap::{GroupId, MapSnapshot};
use crate::sql::analysis::Splice;
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::parse::tokens::Tokens;

mod condition;
mod from_clause;
mod long_lists;
mod places;
mod proof;
mod renames;
#[cfg(test)]
mod tests;
mod views;

pub use condition::{array_element, bytewise, key_types, key_value, takes_null};
pub use views::{covering_name, covering_query, reading_besides_views, uncovered, view_of_covering, views_to_cover};

/// A text that sees only rows which its shard owns, while no other groups have residues than those that it was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covered {
    text: Bytes,
    /// None: it has no conditions.
    alteration: Option<Arc<Alteration>>,
    /// Groups that had residues when it was made, ascending.
    groups: Box<[GroupId]>,
}

#[derive(Debug, PartialEq, Eq)]
struct Alteration {
    /// In the order of the text.
    shifts: Vec<Shift>,
    /// The client's own conditions may be evaluated for rows that are excluded: PostgreSQL begins with the cheaper condition.
    may_evaluate_excluded: bool,
    names_views: bool,
}

/// A place where something was put in; characters.
#[derive(Debug, PartialEq, Eq)]
struct Shift {
    /// In the covered text.
    at: usize,
    added: usize,
    removed: usize,
}

impl Covered {
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// As the query of DECLARE. `declare`: what comes before it.
    pub fn declared(&self, declare: &str) -> Self {
        Self { text: [declare.as_bytes(), &self.text].concat().into(), ..self.clone() }
    }

    /// It has conditions.
    pub fn is_altered(&self) -> bool {
        self.alteration.is_some()
    }

    /// An error in a row may be one of a row that is excluded.
    pub fn may_evaluate_excluded(&self) -> bool {
        self.alteration.as_ref().is_some_and(|alteration| alteration.may_evaluate_excluded)
    }

    /// It names covering views: columns of a row description come of these.
    pub fn names_views(&self) -> bool {
        self.alteration.as_ref().is_some_and(|alteration| alteration.names_views)
    }

    /// The place in the text that it was made of, of a place in it; both from 1. `0`: it is in a condition.
    pub fn position_before(&self, position: usize) -> usize {
        let mut before = position;
        for shift in self.alteration.iter().flat_map(|alteration| &alteration.shifts) {
            if position <= shift.at {
                break;
            }
            if position <= shift.at + shift.added {
                return 0;
            }
            before = before + shift.removed - shift.added;
        }
        before
    }

    /// Whether it was made for the residues of this map.
    #[inline]
    pub fn is_for(&self, map: &MapSnapshot) -> bool {
        self.groups.iter().copied().eq(with_residues(map))
    }
}

fn with_residues(map: &MapSnapshot) -> impl Iterator<Item = GroupId> + '_ {
    map.groups.values().filter(|group| group.has_residues).map(|group| group.id)
}

/// `text`: statements as their shards read them, by the names of `context`. `map`: the version that they were routed by. `0A000` for
/// what cannot be covered.
pub fn cover(text: impl Into<Bytes>, context: &Context, map: &MapSnapshot) -> Result<Covered, PgError> {
    let text = text.into();
    let groups: Box<[GroupId]> = with_residues(map).collect();
    if groups.is_empty() {
        return Ok(Covered { text, alteration: None, groups });
    }
    let sql = std::str::from_utf8(&text).map_err(|_| uncoverable("It is not in UTF-8."))?;
    Ok(match exclude(sql, context, &groups)? {
        Some(Excluding { text, shifts, names_views }) => {
            let may_evaluate_excluded = names_views || has_conditions(sql);
            Covered {
                text: text.into(),
                alteration: Some(Arc::new(Alteration { shifts, may_evaluate_excluded, names_views })),
                groups,
            }
        }
        None => Covered { text, alteration: None, groups },
    })
}

/// A text with its conditions.
struct Excluding {
    text: String,
    shifts: Vec<Shift>,
    /// Covering views, whose conditions are evaluated as well.
    names_views: bool,
}

/// The statements without the rows of `groups` that are not owned; `None`: they read none of their tables.
fn exclude(text: &str, context: &Context, groups: &[GroupId]) -> Result<Option<Excluding>, PgError> {
    let tree = parse::parse(text)?;
    let additions = places::additions(text, &tree, context, groups)?;
    if additions.splices.is_empty() {
        return Ok(None);
    }
    let (before, after) = abridged(text, &additions.splices);
    let (covered, shifts) = spliced(text, additions.splices);
    if proof::holds(&before, &after, &additions.conditions, &additions.renamed)? {
        Ok(Some(Excluding { text: covered, shifts, names_views: !additions.renamed.is_empty() }))
    } else {
        Err(uncoverable("The text with the conditions does not read as the statement with them."))
    }
}

/// Both texts without the most of their long lists.
fn abridged(text: &str, splices: &[Splice]) -> (String, String) {
    let mut cuts = long_lists::cuts(&Tokens::of(text));
    // Nothing is put into a list of constants.
    cuts.retain(|cut| splices.iter().all(|splice| splice.end <= cut.start || splice.start >= cut.end));
    let before = spliced(text, cuts.clone()).0;
    cuts.extend_from_slice(splices);
    (before, spliced(text, cuts).0)
}

/// Insertions in the order of the text; of several at one place the earlier one comes first.
fn spliced(text: &str, mut splices: Vec<Splice>) -> (String, Vec<Shift>) {
    splices.sort_by_key(|splice| splice.start);
    let mut out = String::with_capacity(text.len() + splices.iter().map(|splice| splice.text.len()).sum::<usize>());
    let mut position = 0;
    let mut characters = 0;
    let mut shifts = Vec::with_capacity(splices.len());
    for splice in &splices {
        let kept = text.get(position..splice.start).unwrap_or_default();
        let removed = text.get(splice.start..splice.end).unwrap_or_default().chars().count();
        characters += kept.chars().count();
        shifts.push(Shift { at: characters, added: splice.text.chars().count(), removed });
        characters += splice.text.chars().count();
        out.push_str(kept);
        out.push_str(&splice.text);
        position = splice.end;
    }
    out.push_str(text.get(position..).unwrap_or_default());
    (out, shifts)
}

/// What stands elsewhere is evaluated for rows that have passed all conditions.
fn has_conditions(text: &str) -> bool {
    let tokens = Tokens::of(text);
    (0..tokens.count()).any(|token| tokens.is_one_of(token, &["where", "on", "having"]))
}

fn uncoverable(detail: &str) -> PgError {
    PgError::unsupported(
        "rows that are being moved cannot be left out of this statement",
        detail,
        "Restrict the statement to one shard key, or repeat it after the move.",
    )
}
