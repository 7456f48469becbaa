//! Items of RETURNING that a write cannot return by itself, because it is made of parts: those of other tables.
//!
//! Such an item is computed before the write, beside its rows. RETURNING is about the rows as they become, so that it must name
//! nothing that the write changes. Pure.

use pg_raw_parse::{Node, nodes};

use super::tokens::Tokens;
use super::tree;
use crate::catalog::{Relation, quoted_identifier};

/// The table whose rows are returned.
pub struct Returned<'a> {
    pub relation: &'a Relation,
    /// As the statement calls it, quoted.
    pub called: &'a str,
    pub assigned: Vec<&'a str>,
}

/// An item of RETURNING that can be computed before the write: its tokens without its alias, and what it is called.
pub struct Apart {
    pub first: usize,
    pub last: usize,
    pub name: Option<String>,
}

impl Returned<'_> {
    /// Something that is not the row's own.
    pub fn is_other(&self, node: Node<'_>, has_from: bool) -> bool {
        match node {
            Node::SubLink(_) => true,
            Node::ColumnRef(column) if has_from && has_star(node) => {
                let table = column.fields().first().and_then(Node::as_str);
                table.is_none_or(|table| quoted_identifier(table) != self.called)
            }
            Node::ColumnRef(column) if has_from => match tree::names(column.fields()).as_deref() {
                Some([name]) => self.relation.column(name).is_none(),
                Some([table, _]) => quoted_identifier(table) != self.called,
                _ => true,
            },
            _ => false,
        }
    }

    /// Such an item, if it is the same before and after the write.
    pub fn apart(&self, tokens: &Tokens<'_>, item: &nodes::ResTarget, (first, last): (usize, usize)) -> Option<Apart> {
        let alias = match item.name() {
            Some(_) if tokens.is_word(last.checked_sub(1)?, "as") => 2,
            Some(_) => 1,
            None => 0,
        };
        let last = last.checked_sub(alias)?;
        let name = match (item.name(), item.val()) {
            (Some(name), _) => Some(name.to_owned()),
            (None, Node::ColumnRef(column)) => tree::names(column.fields())?.last().map(|name| (*name).to_owned()),
            (None, _) => None,
        };
        (first..=last).all(|index| self.is_same_before(tokens, index)).then_some(Apart { first, last, name })
    }

    /// No column that the write changes, and no row as a whole.
    fn is_same_before(&self, tokens: &Tokens<'_>, index: usize) -> bool {
        let Some(name) = tokens.identifier(index).filter(|_| !self.assigned.is_empty()) else { return true };
        let qualifier =
            index.checked_sub(2).filter(|_| tokens.piece(index - 1) == ".").and_then(|before| tokens.identifier(before));
        let is_own = qualifier.is_none_or(|table| quoted_identifier(&table) == self.called);
        let is_made = self.relation.column(&name).is_some_and(|column| column.is_generated);
        let is_row = quoted_identifier(&name) == self.called && (tokens.piece(index + 1) != "." || tokens.piece(index + 2) == "*");
        !is_row && !(is_own && (is_made || self.assigned.contains(&name.as_str())))
    }
}

pub fn is_star(value: Node<'_>) -> bool {
    matches!(value, Node::ColumnRef(column)
        if column.fields().len() == 1 && matches!(column.fields().first(), Some(Node::A_Star(_))))
}

/// All columns of something.
pub fn has_star(value: Node<'_>) -> bool {
    matches!(value, Node::ColumnRef(column) if matches!(column.fields().iter().next_back(), Some(Node::A_Star(_))))
}

pub fn holds<'n>(root: Node<'n>, is_such: impl Fn(Node<'n>) -> bool) -> bool {
    let mut found = false;
    tree::walk(root, &mut |node| {
        found |= is_such(node);
        true
    });
    found
}
