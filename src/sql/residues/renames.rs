//! References to a view for which a text names its covering view.
//!
//! The covering view stands under the view's own name as its alias, so columns are found as before, but for what names the view's
//! schema: `public.v.x` becomes `v.x` where nothing else is called `v`. A whole row would be of another type; it is refused, unless a
//! function takes it that looks at columns alone.

use pg_raw_parse::walk::{Recurse, walk_manual};
use pg_raw_parse::{Node, nodes};

use super::places::{Additions, query_within};
use super::uncoverable;
use crate::catalog::{Catalog, Relation};
use crate::error::PgError;
use crate::sql::analysis::Splice;
use crate::sql::context::Context;
use crate::sql::gather::takes_any_row;
use crate::sql::parse::Tree;
use crate::sql::parse::tokens::Tokens;
use crate::sql::query::{Resolved, resolve};

/// One reference to a view in FROM, or as a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    pub schema: String,
    pub name: String,
    /// In the schema `shardgate`.
    pub covering: String,
    /// What the statement calls it.
    called: String,
    is_aliased: bool,
    has_column_aliases: bool,
    columns: Vec<String>,
}

impl Renamed {
    pub fn of(view: &Relation, covering: String, name: &nodes::RangeVar) -> Self {
        let alias = name.alias();
        let called = alias.and_then(nodes::Alias::aliasname).unwrap_or(&view.name);
        Self {
            schema: view.schema.clone(),
            name: view.name.clone(),
            covering,
            called: called.to_owned(),
            is_aliased: alias.is_some(),
            has_column_aliases: alias.is_some_and(|alias| !alias.colnames().is_empty()),
            columns: view.columns.iter().map(|column| column.name.clone()).collect(),
        }
    }

    fn may_have(&self, column: &str) -> bool {
        self.has_column_aliases || self.columns.iter().any(|known| known == column)
    }

    /// By its schema, which its alias has not.
    fn is_qualified(&self, schema: &str, name: &str) -> bool {
        !self.is_aliased && self.schema == schema && self.name == name
    }
}

/// Splices for the references to views that are renamed. `0A000` for those that would mean something else.
pub fn references(tree: &Tree, tokens: &Tokens<'_>, context: &Context, found: &mut Additions) -> Result<(), PgError> {
    if found.renamed.is_empty() {
        return Ok(());
    }
    let names = Names::of(tree);
    for (column, argument_of) in &names.columns {
        let path: Vec<Option<&str>> = column.fields().iter().map(Node::as_str).collect();
        names.check_whole_rows(&path, *argument_of, &found.renamed, &context.catalog)?;
        let ([Some(schema), Some(name), _], Some(at)) = (&path[..], tokens.at_location(column.location)) else { continue };
        let Some(view) = found.renamed.iter().find(|renamed| renamed.is_qualified(schema, name)) else { continue };
        if names.given.contains(name) || names.tables.iter().any(|table| is_namesake(table, view, context)) {
            return Err(uncoverable(&format!("\"{schema}.{name}\" is not the only \"{name}\" in it.")));
        }
        let range = tokens.get(at).zip(tokens.get(at + 2)).map(|(schema, name)| (schema.start, name.start));
        let (start, end) =
            range.filter(|_| tokens.piece(at + 1) == ".").ok_or_else(|| uncoverable("A column's name is not read."))?;
        found.splices.push(Splice { start, end, text: String::new() });
    }
    Ok(())
}

/// Is it a relation of the view's name that is not the view?
fn is_namesake(table: &nodes::RangeVar, view: &Renamed, context: &Context) -> bool {
    table.alias().is_none()
        && table.relname() == Some(view.name.as_str())
        && !matches!(resolve(context, table, &context.search_path),
                     Resolved::View(found) if found.schema == view.schema && found.name == view.name)
}

/// Two relations of one name, of two schemas, may stand beside each other in a clause; two aliases may not.
pub fn check_beside(tables: &[&nodes::RangeVar], renamed: &[Renamed], context: &Context) -> Result<(), PgError> {
    for view in renamed.iter().filter(|view| !view.is_aliased) {
        let is_there = |table: &&nodes::RangeVar| table.alias().is_none() && table.relname() == Some(view.name.as_str());
        let has_namesake = tables.iter().any(|table| is_namesake(table, view, context));
        if has_namesake && tables.iter().filter(|table| is_there(table)).count() > 1 {
            return Err(uncoverable(&format!("View \"{}\" is not the only \"{}\" in a FROM clause.", view.name, view.name)));
        }
    }
    Ok(())
}

/// What a text names, anywhere in it.
#[derive(Default)]
struct Names<'n> {
    /// Columns, and of which function each is an argument.
    columns: Vec<(&'n nodes::ColumnRef, Option<&'n str>)>,
    /// Relations without an alias.
    tables: Vec<&'n nodes::RangeVar>,
    /// Aliases, and names of WITH queries.
    given: Vec<&'n str>,
}

impl<'n> Names<'n> {
    fn check_whole_rows(
        &self,
        path: &[Option<&str>],
        argument_of: Option<&str>,
        renamed: &[Renamed],
        catalog: &Catalog,
    ) -> Result<(), PgError> {
        let takes_any_row = argument_of.is_some_and(|function| takes_any_row(function, catalog));
        let is_whole_row = |view: &Renamed| match path {
            [Some(name)] => *name == view.called && !view.may_have(name) && !takes_any_row,
            // A row as an argument, and a function of the row that is written as a column.
            [Some(name), None] => *name == view.called && argument_of.is_some() && !takes_any_row,
            [Some(name), Some(column)] => {
                (*name == view.called && self.nobody_has(name, column, renamed)) || view.is_qualified(name, column)
            }
            [Some(schema), Some(name), None] => view.is_qualified(schema, name) && argument_of.is_some() && !takes_any_row,
            [Some(schema), Some(name), Some(column)] => view.is_qualified(schema, name) && !view.may_have(column),
            [_, Some(schema), Some(name), ..] => view.is_qualified(schema, name),
            _ => false,
        };
        match renamed.iter().find(|view| is_whole_row(view)) {
            Some(view) => Err(uncoverable(&format!("It uses whole rows of view \"{}\".", view.called))),
            None => Ok(()),
        }
    }

    /// Only views are called so, and none of them has the column.
    fn nobody_has(&self, name: &str, column: &str, renamed: &[Renamed]) -> bool {
        let views = || renamed.iter().filter(|view| view.called == name);
        let given = self.given.iter().filter(|given| **given == name).count();
        let tables = self.tables.iter().filter(|table| table.relname() == Some(name)).count();
        given + tables == views().count() && !views().any(|view| view.may_have(column))
    }

    fn of(tree: &'n Tree) -> Self {
        let mut names = Self::default();
        let mut waiting: Vec<(Node<'n>, Option<&'n str>)> =
            tree.stmts().filter_map(query_within).map(|query| (query, None)).collect();
        while let Some((node, argument_of)) = waiting.pop() {
            // A list of arguments is a node of its own.
            let mut function = argument_of.filter(|_| node.as_node_list().is_some());
            match node {
                Node::ColumnRef(column) => names.columns.push((column, argument_of)),
                Node::RangeVar(table) if table.alias().is_none() => names.tables.push(table),
                Node::Alias(alias) => names.given.extend(alias.aliasname()),
                Node::CommonTableExpr(query) => names.given.extend(query.ctename()),
                Node::FuncCall(call) => function = call.funcname().iter().next_back().and_then(Node::as_str),
                _ => {}
            }
            walk_manual::<()>(node, |child| {
                waiting.push((child, function));
                Recurse::no()
            });
        }
        names
    }
}
