//! `SET column = DEFAULT`: who evaluates the default, and whether all who do get the same.
//!
//! Each copy of a reference table evaluates it for itself, so that only a constant is right there. Over several shards of a sharded
//! table a clock has one time for all rows of a statement, which nobody can put in the place of the word DEFAULT.

use pg_raw_parse::{Node, nodes};

use super::bind::Reader;
use super::modify::{Target, TargetKind};
use crate::catalog::Column;
use crate::error::PgError;
use crate::sql::parse;
use crate::sql::parse::tree;
use crate::sql::rewrite::clock;

impl Reader<'_> {
    /// One assignment of an UPDATE, of ON CONFLICT, or of a MERGE.
    pub fn check_set_default(&mut self, assignment: &nodes::ResTarget, target: &Target<'_>) {
        let Some(relation) = target.relation.filter(|_| sets_default(assignment.val())) else { return };
        // A view may call its columns otherwise.
        let is_set = |column: &&Column| target.view.is_some() || assignment.name() == Some(column.name.as_str());
        for column in relation.columns.iter().filter(is_set) {
            match target.kind {
                TargetKind::Replicated if !is_same_on_every_copy(column) => {
                    self.notes.volatile.get_or_insert_with(|| format!("the default of column \"{}\"", column.name));
                }
                TargetKind::Sharded { .. } if column.default.as_deref().is_some_and(reads_clock) => {
                    self.notes.not_pushable(PgError::unsupported(
                        format!("the default of column \"{}\" is not supported for rows of several shards", column.name),
                        "It would be evaluated on each shard, at a time of its own.",
                        "Give its value: SET column = now().",
                    ));
                }
                TargetKind::Replicated | TargetKind::Sharded { .. } | TargetKind::Home => {}
            }
        }
    }
}

/// DEFAULT, by itself or in a list of values.
pub fn sets_default(value: Node<'_>) -> bool {
    match value {
        Node::SetToDefault(_) => true,
        Node::MultiAssignRef(assignment) => match assignment.source() {
            Node::RowExpr(row) => row.args().iter().any(|value| matches!(value, Node::SetToDefault(_))),
            _ => false,
        },
        _ => false,
    }
}

/// Nothing is computed, drawn or read.
pub fn is_same_on_every_copy(column: &Column) -> bool {
    if column.is_numbered_by_shard() || column.is_drawn_by_proxy() {
        return false;
    }
    column.default.as_deref().is_none_or(is_constant)
}

fn reads_clock(default: &str) -> bool {
    clock::mentions_clock(default) && !is_constant(default)
}

/// One that is not a time by another name.
fn is_constant(default: &str) -> bool {
    let text = format!("SELECT {default}");
    let is_constant = |statement: Node<'_>| match statement {
        Node::SelectStmt(select) => select.target_list().iter().all(|target| {
            let is_constant = matches!(tree::without_casts(target.val()), Node::A_Const(_));
            is_constant && !tree::constant_text(target.val()).is_some_and(|text| is_time(&text))
        }),
        _ => false,
    };
    parse::parse(&text).is_ok_and(|tree| tree.stmts().into_iter().all(is_constant))
}

/// `('now'::text)::timestamptz`: a time of the transaction that no name of a clock tells of. By itself, or cast once, such a word was
/// read when the default was made.
pub fn hides_clock(default: &str) -> bool {
    let text = format!("SELECT {default}");
    let hides = |statement: Node<'_>| match statement {
        Node::SelectStmt(select) => select.target_list().iter().any(|target| match target.val() {
            Node::A_Const(_) => false,
            Node::TypeCast(cast) if matches!(cast.arg(), Node::A_Const(_)) => false,
            value => {
                let mut found = false;
                tree::walk(value, &mut |node| {
                    let constant = matches!(node, Node::A_Const(_)).then(|| tree::constant_text(node)).flatten();
                    found |= constant.is_some_and(|text| is_time(&text));
                    !found
                });
                found
            }
        }),
        _ => true,
    };
    parse::parse(&text).map_or(true, |tree| tree.stmts().into_iter().any(hides))
}

fn is_time(text: &str) -> bool {
    let text = text.trim_start().to_ascii_lowercase();
    ["now", "today", "tomorrow", "yesterday"].iter().any(|word| text.starts_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_may_hide_in_a_default() {
        for default in ["('now'::text)::timestamp with time zone", "('today'::text || ' 10:00')::timestamp", "upper(' Now')"] {
            assert!(hides_clock(default), "{default}");
        }
        for default in ["'now'", "'now'::text", "now()", "('2020-01-01'::text)::date", "5 + 1", "'{}'::jsonb"] {
            assert!(!hides_clock(default), "{default}");
        }
    }

    #[test]
    fn a_default_may_be_a_constant() {
        for default in ["'a message'::text", "5", "('-1'::integer)::bigint", "NULL::text"] {
            assert!(is_constant(default), "{default}");
        }
        for default in ["now()", "'now'::text", "gen_random_uuid()", "5 + random()", "CURRENT_DATE"] {
            assert!(!is_constant(default), "{default}");
        }
    }
}
