//! Queries of views that join tables by a foreign key, with the shard key beside it.
//!
//! What refers to a row has that row's shard key. A query that says so as well joins rows of one shard, and each shard answers for its own.

use pg_raw_parse::{Node, nodes};

use super::grouped_by_key::selects_within;
use super::staging::spliced;
use crate::catalog::quoted_identifier;
use crate::sql::analysis::Splice;
use crate::sql::parse;
use crate::sql::parse::tree;

/// A foreign key of one column, and the columns of the shard key that it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedReference<'t> {
    /// Schema, name, column.
    pub own: (&'t str, &'t str, &'t str),
    pub referenced: (&'t str, &'t str, &'t str),
    /// Own and referenced.
    pub added: Vec<(&'t str, &'t str)>,
}

/// `query` as PostgreSQL prints it, with these columns compared wherever it joins two tables by the foreign key. `None`: nowhere.
pub fn joined_by_key(query: &str, references: &[KeyedReference<'_>]) -> Option<String> {
    let tree = parse::parse(query).ok()?;
    let mut splices: Vec<Splice> = Vec::new();
    for select in tree.stmts().flat_map(selects_within) {
        let from: Vec<&nodes::RangeVar> = select.from_clause().iter().flat_map(tree::tables_of).collect();
        // What has to be true of a row, or of a row and its partner.
        let mut conditions = tree::conjuncts(select.where_clause());
        for item in select.from_clause().iter() {
            conditions.extend(joins_of(item).into_iter().flat_map(|join| tree::conjuncts(join.quals())));
        }
        let compared: Vec<Compared<'_>> = conditions.into_iter().filter_map(Compared::of).collect();
        for one in &compared {
            let Some((own, referenced, reference)) = references.iter().find_map(|reference| one.by(reference, &from)) else {
                continue;
            };
            let is_there = |pair: &&(&str, &str)| {
                let (column, other) = **pair;
                compared
                    .iter()
                    .any(|known| known.is((own, column), (referenced, other)) || known.is((referenced, other), (own, column)))
            };
            let added: String = reference
                .added
                .iter()
                .filter(|pair| !is_there(pair))
                .map(|pair| {
                    let (column, other) = *pair;
                    let [own, column, referenced, other] = [own, column, referenced, other].map(quoted_identifier);
                    format!("{own}.{column} = {referenced}.{other} AND ")
                })
                .collect();
            if !added.is_empty() && !splices.iter().any(|splice| splice.start == one.start) {
                splices.push(Splice { start: one.start, end: one.start, text: added });
            }
        }
    }
    (!splices.is_empty()).then(|| spliced(query, &splices))
}

/// `a.x = b.y`.
struct Compared<'n> {
    start: usize,
    left: (&'n str, &'n str),
    right: (&'n str, &'n str),
}

impl<'n> Compared<'n> {
    fn of(condition: Node<'n>) -> Option<Self> {
        let Node::A_Expr(equality) = condition else { return None };
        let is_equality = equality.kind == nodes::A_Expr_Kind::AEXPR_OP && tree::single_name(equality.name()) == Some("=");
        let (Node::ColumnRef(left), Node::ColumnRef(right)) = (equality.lexpr(), equality.rexpr()) else { return None };
        let start = usize::try_from(left.location).ok()?;
        Some(Self { start, left: path(left)?, right: path(right)? }).filter(|_| is_equality)
    }

    fn is(&self, left: (&str, &str), right: (&str, &str)) -> bool {
        self.left == left && self.right == right
    }

    /// What the two tables are called here, where this is the foreign key.
    fn by<'r, 't>(
        &self,
        reference: &'r KeyedReference<'t>,
        from: &[&'n nodes::RangeVar],
    ) -> Option<(&'n str, &'n str, &'r KeyedReference<'t>)> {
        let is_of = |(called, column): (&str, &str), (schema, name, wanted): (&str, &str, &str)| {
            column == wanted && from.iter().any(|table| is_called(table, called, (schema, name)))
        };
        if is_of(self.left, reference.own) && is_of(self.right, reference.referenced) {
            Some((self.left.0, self.right.0, reference))
        } else if is_of(self.right, reference.own) && is_of(self.left, reference.referenced) {
            Some((self.right.0, self.left.0, reference))
        } else {
            None
        }
    }
}

fn path(column: &nodes::ColumnRef) -> Option<(&str, &str)> {
    let path: Vec<&str> = column.fields().iter().map(Node::as_str).collect::<Option<_>>()?;
    match path.as_slice() {
        [of, name] => Some((of, name)),
        _ => None,
    }
}

/// Its columns have their own names here.
fn is_called(table: &nodes::RangeVar, called: &str, (schema, name): (&str, &str)) -> bool {
    let alias = table.alias();
    table.schemaname() == Some(schema)
        && table.relname() == Some(name)
        && alias.and_then(nodes::Alias::aliasname).unwrap_or(name) == called
        && alias.is_none_or(|alias| alias.colnames().is_empty())
}

/// The joins of an item of FROM, not those of its sub-selects.
fn joins_of(item: Node<'_>) -> Vec<&nodes::JoinExpr> {
    let mut waiting = vec![item];
    let mut found = Vec::new();
    while let Some(node) = waiting.pop() {
        if let Node::JoinExpr(join) = node {
            found.push(join);
            waiting.extend([join.larg(), join.rarg()]);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(query: &str) -> Option<String> {
        let reference = KeyedReference { own: ("s", "t", "p_id"), referenced: ("s", "p", "id"), added: vec![("tenant", "Tenant")] };
        joined_by_key(query, &[reference])
    }

    #[test]
    fn what_is_joined_by_the_foreign_key_is_joined_by_the_shard_key() {
        for (query, expected) in [
            (
                "SELECT 1 FROM (s.t JOIN s.p ON ((t.p_id = p.id)))",
                "SELECT 1 FROM (s.t JOIN s.p ON ((\"t\".\"tenant\" = \"p\".\"Tenant\" AND t.p_id = p.id)))",
            ),
            (
                "SELECT 1 FROM (s.p a LEFT JOIN s.t b ON (((a.id = b.p_id) AND (b.x > 1))))",
                "SELECT 1 FROM (s.p a LEFT JOIN s.t b ON (((\"b\".\"tenant\" = \"a\".\"Tenant\" AND a.id = b.p_id) AND (b.x > 1))))",
            ),
            (
                "SELECT 1 FROM s.t, s.p WHERE ((p.id = t.p_id) AND (t.x = 1))",
                "SELECT 1 FROM s.t, s.p WHERE ((\"t\".\"tenant\" = \"p\".\"Tenant\" AND p.id = t.p_id) AND (t.x = 1))",
            ),
        ] {
            assert_eq!(joined(query).as_deref(), Some(expected));
            assert!(parse::parse(expected).is_ok());
        }
    }

    #[test]
    fn other_conditions_are_left() {
        for query in [
            "SELECT 1 FROM (s.t JOIN s.p ON (((t.p_id = p.id) OR (p.x = 1))))",
            "SELECT 1 FROM (s.t JOIN s.p ON ((NOT (t.p_id = p.id))))",
            "SELECT 1 FROM (s.t JOIN other.p ON ((t.p_id = p.id)))",
            "SELECT 1 FROM (s.t JOIN s.p ON ((t.p_id = p.x)))",
            "SELECT 1 FROM (s.t JOIN s.p ON (((p.\"Tenant\" = t.tenant) AND (t.p_id = p.id))))",
            "SELECT 1 FROM (s.t JOIN s.p p(a, id) ON ((t.p_id = p.id)))",
        ] {
            assert_eq!(joined(query), None, "{query}");
        }
    }
}
