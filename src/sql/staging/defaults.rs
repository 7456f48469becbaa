//! Defaults that read the clock of the transaction: one value for all rows of a statement, wherever they are stored.
//!
//! Of a reference table also those that are drawn, where the statement makes one row: its copies get the same value.

use pg_raw_parse::{Node, nodes};

use super::{Finder, Stage, StageKind, is_clock, is_time};
use crate::catalog::Column;
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::query::{Resolved, resolve};
use crate::sql::tree;

/// Columns that an INSERT does not name, and whose defaults are put into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Their values, in one row.
    pub query: String,
    pub names: Vec<String>,
    /// Where the list of columns ends.
    pub list_end: usize,
    /// Where each row of VALUES ends; empty with another source.
    pub row_ends: Vec<usize>,
}

impl Finder<'_> {
    /// The defaults of an INSERT that names its columns. `rows`: of VALUES, `None` for another source.
    pub(super) fn defaults(&mut self, insert: &nodes::InsertStmt, context: &Context, rows: Option<&[(usize, usize)]>) {
        let Some(name) = insert.relation() else { return };
        let (relation, is_copied) = match resolve(context, name, &context.search_path) {
            Resolved::Sharded { relation, .. } => (relation, false),
            Resolved::Reference(relation) => (relation, true),
            Resolved::Home(_)
            | Resolved::View(_)
            | Resolved::System
            | Resolved::Map(_)
            | Resolved::Proxy(_)
            | Resolved::Mixed(_) => return,
        };
        let may_draw = is_copied && rows.is_some_and(|rows| rows.len() == 1);
        let taken: Vec<&Column> = relation.columns.iter().filter(|column| is_taken(column, may_draw)).collect();
        let column = |node: Node<'_>| match node {
            Node::ResTarget(column) => column.name().unwrap_or_default().to_owned(),
            _ => String::new(),
        };
        let has_list = !insert.cols().is_empty();
        let listed: Vec<String> = match has_list {
            true => insert.cols().iter().map(column).collect(),
            false => relation.columns.iter().map(|column| column.name.clone()).collect(),
        };
        if let (Node::SelectStmt(select), Some(_)) = (insert.select_stmt(), rows) {
            self.replace_defaults(select, &listed, &taken);
        }
        let left_out: Vec<&&Column> = taken.iter().filter(|column| !listed.contains(&column.name)).collect();
        let Some(list_end) = self.end_of_columns(name).filter(|_| has_list && !left_out.is_empty()) else { return };
        let values: Vec<&str> = left_out.iter().filter_map(|column| column.default.as_deref()).collect();
        self.stages.defaults = Some(Defaults {
            query: format!("SELECT {}", values.join(", ")),
            names: left_out.iter().map(|column| column.name.clone()).collect(),
            list_end,
            // Before the parenthesis.
            row_ends: rows.unwrap_or_default().iter().map(|(_, end)| end - 1).collect(),
        });
    }

    /// DEFAULT among the values.
    fn replace_defaults(&mut self, select: &nodes::SelectStmt, listed: &[String], taken: &[&Column]) {
        for (row, range) in select.values_lists().iter().zip(self.rows.clone()) {
            let (Some(row), Some(elements)) = (row.as_node_list(), self.elements(range.0, range.1)) else { return };
            for ((value, name), (start, end)) in row.iter().zip(listed).zip(elements) {
                let default = taken.iter().find(|column| column.name == *name).and_then(|column| column.default.as_deref());
                if let (Node::SetToDefault(_), Some(default)) = (value, default) {
                    let query = format!("SELECT {default}");
                    self.stages.queries.push(Stage { start, end, query, kind: StageKind::Scalar });
                }
            }
        }
    }

    /// Where the parenthesis stands that ends the list of columns.
    fn end_of_columns(&self, name: &nodes::RangeVar) -> Option<usize> {
        let mut index = self.at(usize::try_from(name.location).ok()?)?;
        while self.piece(index) != "(" {
            index += 1;
            self.tokens.get(index)?;
        }
        Some(self.tokens.get(self.closing(index)?)?.start)
    }
}

fn is_taken(column: &Column, may_draw: bool) -> bool {
    let Some(default) = column.default.as_deref().filter(|_| !column.is_generated && column.identity.is_none()) else {
        return false;
    };
    let Ok(parsed) = parse::parse(&format!("SELECT {default}")) else { return false };
    let Some(Node::SelectStmt(select)) = parsed.stmts().next() else { return false };
    let (mut is_found, mut is_plain) = (false, true);
    for target in select.target_list().iter() {
        tree::walk(target.val(), &mut |node| {
            match node {
                Node::FuncCall(call) if is_clock(call) => is_found = true,
                Node::FuncCall(call) => {
                    let name = tree::names(call.funcname()).and_then(|names| names.last().copied()).unwrap_or_default();
                    is_found |= DRAWN.contains(&name);
                    is_plain &= OF_TIMES.contains(&name) || (may_draw && DRAWN.contains(&name));
                }
                Node::SQLValueFunction(value) => {
                    is_found |= is_time(value);
                    is_plain &= is_time(value);
                }
                Node::SubLink(_) => is_plain = false,
                node => is_plain &= tree::is_known(node),
            }
            true
        });
    }
    is_found && is_plain
}

/// Give the same for the same.
const OF_TIMES: [&str; 4] = ["date_trunc", "timezone", "to_char", "date_part"];
/// Another value for each row.
const DRAWN: [&str; 5] = ["gen_random_uuid", "uuid_generate_v4", "random", "clock_timestamp", "timeofday"];
