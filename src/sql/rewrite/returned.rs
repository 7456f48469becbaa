//! Items of RETURNING that a write cannot return by itself, because it is made of parts: those of other tables.
//!
//! Such an item is computed before the write, beside its rows. RETURNING is about the rows as they become, so that it must name
//! nothing that the write changes. Of an INSERT, whose rows are not there before, all of RETURNING is a query over the rows that it
//! has returned. How many columns a star has is known when its rows are there: they stand last, each star's after a column
//! [`STAR`]. Pure.

use pg_raw_parse::{Node, nodes};

use crate::catalog::{Relation, quoted_identifier};
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::parse::tokens::{Tokens, may_spell_names};
use crate::sql::parse::tree;
use crate::sql::query::{self, resolve};

/// An INSERT that returns whole rows, and a query over these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsertApart {
    pub insert: String,
    /// What the rows are called.
    pub alias: String,
    list: String,
}

impl InsertApart {
    /// `rows`: a table of the rows, with its alias.
    pub fn query(&self, rows: &str) -> String {
        format!("SELECT {} FROM {rows}", self.list)
    }
}

/// `text`: one INSERT alone, with sub-selects in RETURNING. `None`: it is another, or these might see what it has written.
pub fn insert_apart(text: &str, context: &Context) -> Option<InsertApart> {
    let parsed = parse::parse(text).ok().filter(|_| !may_spell_names(text))?;
    let mut statements = parsed.stmts();
    let (Some(Node::InsertStmt(insert)), None) = (statements.next(), statements.next()) else { return None };
    let (name, clause) = (insert.relation()?, insert.returning_clause()?);
    let has_queries = clause.exprs().iter().any(|item| holds(item, is_query));
    let relation = resolve(context, name, &context.search_path).table().filter(|relation| relation.stands_alone())?;
    let tokens = Tokens::of(text);
    let first = tokens.at_location(name.location)?;
    // It is the last clause; the source may not hold the word, which is reserved.
    let returning = tokens.word_at_top(first, &["returning"])?;
    let last = (returning + 1..tokens.count()).rev().find(|index| tokens.piece(*index) != ";")?;
    let sees = |index: usize| {
        let is_name = |word: &str| {
            word == relation.name && tokens.piece(index + 1) != "."
                || context.catalog.function_names.contains_key(word)
                || context.catalog.relations.values().any(|other| other.name == word && other.view_definition.is_some())
        };
        tokens.identifier(index).is_some_and(|word| is_name(&word))
    };
    let is_apart = has_queries && insert.with_clause().is_none() && !(returning + 1..=last).any(sees);
    let whole = tokens.range(returning, last)?;
    let alias = name.alias().and_then(|alias| alias.aliasname()).or(name.relname())?.to_owned();
    is_apart.then_some(InsertApart {
        insert: format!("{}RETURNING *", text.get(..whole.start)?),
        alias,
        list: tokens.slice(returning + 1, last)?.to_owned(),
    })
}

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
            Node::SubLink(_) => is_query(node),
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
            (None, Node::ColumnRef(column)) if !has_star(item.val()) => {
                tree::names(column.fields())?.last().map(|name| (*name).to_owned())
            }
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

/// The columns of a star that is computed before the write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Star {
    pub text: String,
    /// How many columns at its beginning are the target's.
    pub own: usize,
}

impl Star {
    /// Of a list of expressions.
    pub fn expression(&self) -> String {
        format!("NULL::pg_catalog.bool AS {}, {}", quoted_identifier(STAR), self.text)
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

/// `(value).*`: as many columns as its type has.
pub fn is_expanded(value: Node<'_>) -> bool {
    matches!(value, Node::A_Indirection(_)) && query::is_star(value)
}

/// What stands before the columns of a star.
pub const STAR: &str = "shardgate star";

/// A sub-select, unless it is one of constants alone: what has been answered before stands so.
pub fn is_query(node: Node<'_>) -> bool {
    let Node::SubLink(sublink) = node else { return false };
    let Node::SelectStmt(select) = sublink.subselect() else { return true };
    let is_plain = sublink.sub_link_type == nodes::SubLinkType::EXPR_SUBLINK
        && select.op == nodes::SetOperation::SETOP_NONE
        && select.with_clause().is_none()
        && select.from_clause().is_empty()
        && !select.target_list().is_empty()
        && matches!(select.where_clause(), Node::None);
    let is_constant = |target: &nodes::ResTarget| {
        !holds(target.val(), |node| {
            !matches!(
                node,
                Node::None
                    | Node::A_Const(_)
                    | Node::TypeCast(_)
                    | Node::CollateClause(_)
                    | Node::A_ArrayExpr(_)
                    | Node::NodeList(_)
            )
        })
    };
    !(is_plain && select.target_list().iter().all(is_constant))
}

pub fn holds<'n>(root: Node<'n>, is_such: impl Fn(Node<'n>) -> bool) -> bool {
    let mut found = false;
    tree::walk(root, &mut |node| {
        found |= is_such(node);
        true
    });
    found
}
