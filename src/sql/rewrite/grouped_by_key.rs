//! Queries of views that group by a primary key, with further columns in their `GROUP BY`.
//!
//! Where a query groups by the primary key of a table, PostgreSQL lets it show the table's other columns. With more columns in that key
//! they have to stand in `GROUP BY` as well; the groups stay the same as long as the old key tells the rows apart.

use crate::sql::parse::tree;
use pg_raw_parse::list::NodeList;
use pg_raw_parse::walk::{Recurse, walk_manual};
use pg_raw_parse::{Node, nodes};

use super::staging::spliced;
use crate::catalog::quoted_identifier;
use crate::sql::analysis::Splice;
use crate::sql::parse;

/// A table whose primary key gets columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RekeyedTable<'t> {
    pub schema: &'t str,
    pub name: &'t str,
    /// Of the primary key, as it was.
    pub columns: Vec<&'t str>,
    /// That come to it.
    pub added: Vec<&'t str>,
}

/// `query` as PostgreSQL prints it, with the new columns where it groups by the old ones. `None`: it groups by the key of one of these
/// tables in no way that is understood.
pub fn regrouped(query: &str, tables: &[RekeyedTable<'_>]) -> Option<String> {
    let tree = parse::parse(query).ok()?;
    let mut splices = Vec::new();
    let mut found = vec![false; tables.len()];
    for select in tree.stmts().flat_map(selects_within) {
        let from: Vec<&nodes::RangeVar> = select.from_clause().iter().flat_map(tree::tables_of).collect();
        let is_alone = from.len() == 1 && select.from_clause().len() == 1;
        for name in from {
            let place =
                tables.iter().position(|table| name.schemaname() == Some(table.schema) && name.relname() == Some(table.name));
            let Some((place, table)) = place.and_then(|place| Some((place, tables.get(place)?))) else { continue };
            if name.alias().is_some_and(|alias| !alias.colnames().is_empty()) {
                return None;
            }
            let called = name.alias().and_then(nodes::Alias::aliasname).unwrap_or(table.name);
            let grouped = Grouped { items: select.group_clause(), called, is_alone };
            let Some(first) = grouped.first_of(&table.columns) else { continue };
            if let Some(found) = found.get_mut(place) {
                *found = true;
            }
            let start = usize::try_from(first.location).ok()?;
            let prefix = if first.fields().len() > 1 { format!("{}.", quoted_identifier(called)) } else { String::new() };
            let added: String = table
                .added
                .iter()
                .filter(|column| grouped.item(column).is_none())
                .map(|column| format!("{prefix}{}, ", quoted_identifier(column)))
                .collect();
            splices.push(Splice { start, end: start, text: added });
        }
    }
    found.iter().all(|found| *found).then(|| spliced(query, &splices))
}

/// A `GROUP BY`, as it is about one table.
struct Grouped<'n> {
    items: &'n NodeList,
    called: &'n str,
    /// Its columns may stand by their names alone.
    is_alone: bool,
}

impl<'n> Grouped<'n> {
    /// The first item of these columns, if all of them are there.
    fn first_of(&self, columns: &[&str]) -> Option<&'n nodes::ColumnRef> {
        let mut items: Vec<&nodes::ColumnRef> = columns.iter().map(|column| self.item(column)).collect::<Option<_>>()?;
        items.sort_by_key(|item| item.location);
        items.first().copied()
    }

    fn item(&self, column: &str) -> Option<&'n nodes::ColumnRef> {
        self.items.iter().find_map(|item| {
            let Node::ColumnRef(item) = item else { return None };
            let path: Vec<&str> = item.fields().iter().map(Node::as_str).collect::<Option<_>>()?;
            let is_it = match path.as_slice() {
                [name] => self.is_alone && *name == column,
                [of, name] => *of == self.called && *name == column,
                _ => false,
            };
            is_it.then_some(item)
        })
    }
}

/// Every SELECT of a statement, itself and within it.
pub(super) fn selects_within(root: Node<'_>) -> Vec<&nodes::SelectStmt> {
    let mut stack = vec![root];
    let mut found = Vec::new();
    while let Some(node) = stack.pop() {
        if let Node::SelectStmt(select) = node {
            found.push(select);
        }
        walk_manual::<()>(node, |child| {
            stack.push(child);
            Recurse::no()
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_tenant(query: &str) -> Option<String> {
        let table = RekeyedTable { schema: "s", name: "p", columns: vec!["id"], added: vec!["Tenant"] };
        regrouped(query, &[table])
    }

    #[test]
    fn the_new_columns_stand_before_the_old_ones() {
        for (query, expected) in [
            ("SELECT id, title FROM s.p GROUP BY id;", "SELECT id, title FROM s.p GROUP BY \"Tenant\", id;"),
            (
                " SELECT p.id, p.title FROM (s.p JOIN s.t ON ((t.p = p.id))) GROUP BY t.kind, p.id HAVING (count(*) > 2)",
                " SELECT p.id, p.title FROM (s.p JOIN s.t ON ((t.p = p.id))) GROUP BY t.kind, \"p\".\"Tenant\", p.id HAVING (count(*) > 2)",
            ),
            (
                "WITH x AS (SELECT \"P\".id, \"P\".title FROM s.p \"P\" GROUP BY \"P\".id) SELECT * FROM x UNION ALL SELECT 1, 'a'",
                "WITH x AS (SELECT \"P\".id, \"P\".title FROM s.p \"P\" GROUP BY \"P\".\"Tenant\", \"P\".id) SELECT * FROM x UNION ALL SELECT 1, 'a'",
            ),
            // It is there already.
            ("SELECT id, title FROM s.p GROUP BY \"Tenant\", id", "SELECT id, title FROM s.p GROUP BY \"Tenant\", id"),
        ] {
            assert_eq!(with_tenant(query).as_deref(), Some(expected));
        }
    }

    #[test]
    fn what_groups_otherwise_is_left() {
        for query in [
            "SELECT id FROM s.p",
            "SELECT id FROM other.p GROUP BY id",
            "SELECT x.id FROM s.p x(id, b) GROUP BY x.id",
            "SELECT id, title FROM s.p GROUP BY GROUPING SETS ((id), ())",
            "SELECT t.id, p.title FROM s.p JOIN s.t USING (id) GROUP BY t.id",
            "not a query",
        ] {
            assert_eq!(with_tenant(query), None, "{query}");
        }
    }
}
