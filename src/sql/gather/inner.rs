//! The SELECTs inside of a query: what of its survey is theirs, and where they stand in its text.

use std::ops::Range;

use pg_raw_parse::{Node, nodes};

use super::survey::Survey;
use crate::sql::parse::tokens::Tokens;
use crate::sql::parse::tree;

/// A SELECT below the outermost: what of the survey is of it, and of what is inside of it.
#[derive(Clone, Debug)]
pub struct Inner {
    pub steps: Range<usize>,
    pub relations: Range<usize>,
    pub columns: Range<usize>,
    pub given_names: Range<usize>,
    row_names: Range<usize>,
    /// Its own.
    pub level: usize,
    /// Byte offset of the first item of its list.
    first_target: usize,
    /// It groups, drops duplicates, or joins: its rows may be fewer than those of its tables.
    pub reduces: bool,
}

impl Inner {
    /// Before anything of it is in the survey. `None`: it has no place.
    pub fn begun(select: &nodes::SelectStmt, survey: &Survey) -> Option<Self> {
        let first_target = usize::try_from(select.target_list().first()?.location).ok()?;
        let begin = |length: usize| length..length;
        let from = select.from_clause();
        let reduces = !select.group_clause().is_empty()
            || !select.distinct_clause().is_empty()
            || from.len() > 1
            || from.iter().any(|item| matches!(item, Node::JoinExpr(_)))
            || select.target_list().iter().any(|target| has_aggregate(target.val()));
        Some(Self {
            steps: begin(survey.trace.len()),
            relations: begin(survey.relations.len()),
            columns: begin(survey.columns.len()),
            given_names: begin(survey.given_names.len()),
            row_names: begin(survey.row_names.len()),
            level: survey.levels.len(),
            first_target,
            reduces,
        })
    }

    /// When all of it is in the survey.
    pub fn ended(self, survey: &Survey, level: usize) -> Self {
        Self {
            level,
            steps: self.steps.start..survey.trace.len(),
            relations: self.relations.start..survey.relations.len(),
            columns: self.columns.start..survey.columns.len(),
            given_names: self.given_names.start..survey.given_names.len(),
            row_names: self.row_names.start..survey.row_names.len(),
            ..self
        }
    }

    /// What stands between the parentheses around it; that it is the SELECT alone, its survey must show.
    pub fn range(&self, tokens: &Tokens<'_>) -> Option<Range<usize>> {
        tokens.parenthesised(self.first_target, &["select", "with"])
    }

    /// Every name of a column means, as far as its survey tells, something inside. `columns`: of a relation.
    pub fn is_closed(&self, survey: &Survey, columns: &dyn Fn(usize, &str) -> bool) -> bool {
        let given = survey.given_names.get(self.given_names.clone()).unwrap_or_default();
        // A column around it comes before a row of its own.
        let rows = survey.row_names.get(self.row_names.clone()).unwrap_or_default();
        let relations = || survey.relations.get(self.relations.clone()).unwrap_or_default().iter();
        survey.columns.get(self.columns.clone()).unwrap_or_default().iter().all(|column| {
            match (column.path.as_slice(), column.is_star) {
                ([], true) => true,
                ([.., table], true) | ([.., table, _], false) => {
                    relations().any(|used| used.effective_name() == table) || given.contains(table)
                }
                ([name], false) => {
                    !rows.contains(name) && (self.relations.clone().any(|index| columns(index, name)) || given.contains(name))
                }
                ([], false) => false,
            }
        })
    }
}

/// A call of one of PostgreSQL's aggregates that may be made of parts.
fn has_aggregate(item: Node<'_>) -> bool {
    let mut found = false;
    tree::walk(item, &mut |node| {
        if let Node::FuncCall(call) = node {
            let name = call.funcname().iter().next_back().and_then(Node::as_str);
            found |= call.over().is_none() && name.is_some_and(|name| AGGREGATES.contains(&name));
        }
        tree::is_known(node)
    });
    found
}

const AGGREGATES: [&str; 8] = ["avg", "bool_and", "bool_or", "count", "every", "max", "min", "sum"];
