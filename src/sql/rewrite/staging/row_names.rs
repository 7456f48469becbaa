//! Names that mean another thing when a sub-select stands alone: that of a row of its own, if the tables around it have a column
//! of that name, which PostgreSQL looks for first, at every level.
//!
//! `UPDATE orders … WHERE x IN (SELECT status::text FROM status …)`: the column `orders.status`, but alone the row of `status`.

use std::collections::BTreeSet;

use pg_raw_parse::list::NodeList;
use pg_raw_parse::{Node, nodes};

use crate::sql::context::Context;
use crate::sql::parse::tree;
use crate::sql::query::{Resolved, resolve};

/// The columns of the tables around; `None`: any name may be one.
pub struct Around(Option<BTreeSet<String>>);

impl Around {
    /// Of what a statement writes, and of the tables beside it.
    pub fn of<'n>(target: Option<&'n nodes::RangeVar>, from: impl Iterator<Item = Node<'n>>, context: &Context) -> Self {
        let mut columns = BTreeSet::new();
        let mut waiting: Vec<Node<'_>> = from.collect();
        waiting.extend(target.map(Node::RangeVar));
        while let Some(item) = waiting.pop() {
            let relation = match item {
                Node::JoinExpr(join) => {
                    waiting.extend([join.larg(), join.rarg()]);
                    continue;
                }
                Node::RangeVar(table) if table.alias().is_none_or(|alias| alias.colnames().is_empty()) => {
                    match resolve(context, table, &context.search_path) {
                        Resolved::Sharded { relation, .. } | Resolved::Reference(relation) | Resolved::View(relation) => relation,
                        Resolved::Home(Some(relation)) => relation,
                        Resolved::Home(None) | Resolved::System | Resolved::Map(_) | Resolved::Proxy(_) | Resolved::Mixed(_) => {
                            return Self(None);
                        }
                    }
                }
                _ => return Self(None),
            };
            columns.extend(relation.columns.iter().map(|column| column.name.clone()));
        }
        Self(Some(columns))
    }

    /// A name in the query means a column here, and a row when the query stands alone.
    pub fn changes(&self, query: &nodes::SelectStmt) -> bool {
        let mut names = Names::default();
        names.select(query);
        let is_around = |name: &&String| self.0.as_ref().is_none_or(|columns| columns.contains(*name));
        names.columns.intersection(&names.rows).any(|name| is_around(&name))
    }
}

/// What a query names.
#[derive(Default)]
struct Names {
    /// Columns without a qualifier.
    columns: BTreeSet<String>,
    /// Items of FROM; not functions, whose names are those of columns too.
    rows: BTreeSet<String>,
}

impl Names {
    fn select(&mut self, select: &nodes::SelectStmt) {
        for cte in select.with_clause().into_iter().flat_map(|with| with.ctes()) {
            self.query(cte.ctequery());
        }
        [select.larg(), select.rarg()].into_iter().flatten().for_each(|branch| self.query(Node::SelectStmt(branch)));
        select.from_clause().iter().for_each(|item| self.item(item));
        let lists = [select.distinct_clause(), select.group_clause(), select.window_clause(), select.values_lists()];
        lists.iter().flat_map(|list| list.iter()).for_each(|item| self.expression(item));
        select.target_list().iter().for_each(|target| self.expression(target.val()));
        select.sort_clause().iter().for_each(|sort| self.expression(sort.node()));
        [select.where_clause(), select.having_clause(), select.limit_count(), select.limit_offset()]
            .into_iter()
            .for_each(|root| self.expression(root));
    }

    fn query(&mut self, query: Node<'_>) {
        if let Node::SelectStmt(select) = query {
            stacker::maybe_grow(STACK_LEFT_BYTES_MIN, STACK_BYTES, || self.select(select));
        }
    }

    fn item(&mut self, item: Node<'_>) {
        match item {
            Node::RangeVar(table) => {
                let name = table.alias().map_or(table.relname(), nodes::Alias::aliasname);
                self.rows.extend(name.map(str::to_owned));
            }
            Node::RangeSubselect(query) => {
                self.name(query.alias());
                self.query(query.subquery());
            }
            Node::JoinExpr(join) => stacker::maybe_grow(STACK_LEFT_BYTES_MIN, STACK_BYTES, || {
                self.name(join.alias());
                self.name(join.join_using_alias());
                self.item(join.larg());
                self.item(join.rarg());
                self.expression(join.quals());
            }),
            Node::RangeFunction(function) => {
                let calls = function.functions().iter().map(|item| item.as_node_list().and_then(NodeList::first).unwrap_or(item));
                calls.for_each(|call| self.expression(call));
            }
            _ => {}
        }
    }

    fn name(&mut self, alias: Option<&nodes::Alias>) {
        self.rows.extend(alias.and_then(nodes::Alias::aliasname).map(str::to_owned));
    }

    fn expression(&mut self, root: Node<'_>) {
        let mut queries = Vec::new();
        tree::walk(root, &mut |node| {
            match node {
                Node::SubLink(sublink) => queries.push(sublink.subselect()),
                Node::ColumnRef(column) => {
                    let name = tree::names(column.fields()).filter(|names| names.len() == 1);
                    self.columns.extend(name.into_iter().flatten().map(str::to_owned));
                }
                _ => {}
            }
            true
        });
        queries.into_iter().for_each(|query| self.query(query));
    }
}

const STACK_LEFT_BYTES_MIN: usize = 512 * 1024;
const STACK_BYTES: usize = 4 * 1024 * 1024;
