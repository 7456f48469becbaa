//! WITH queries and views: bound again at each reference, where the facts around them differ.

use std::rc::Rc;

use pg_raw_parse::list::NodeList;
use pg_raw_parse::{Node, nodes};

use super::bind::{Reader, too_complex, unknown_query};
use super::expression::{Findings, Scope};
use super::leaves::{Columns, Leaf, LeafKind, column_properties};
use super::scope::Frame;
use super::{Body, Bound, ColumnProperties, Facts, FromItem, Output};
use crate::catalog::Relation;
use crate::error::PgError;
use crate::sql::analysis::Part;
use crate::sql::parse;

/// WITH queries in scope, innermost first.
pub type CteList<'n> = Option<Rc<Cte<'n>>>;

pub struct Cte<'n> {
    name: &'n str,
    kind: CteKind<'n>,
    /// Levels around the query that has the WITH clause: their columns may be named in it.
    height: usize,
    next: CteList<'n>,
}

/// One by one: a list of many thousands would overflow the stack.
impl Drop for Cte<'_> {
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(cte) = next {
            next = Rc::into_inner(cte).and_then(|mut cte| cte.next.take());
        }
    }
}

/// Queries of one WITH clause.
const WITH_QUERIES_MAX: usize = 1_000;

enum CteKind<'n> {
    /// Bound again at each reference.
    Query { node: &'n nodes::CommonTableExpr, recursive: Option<(&'n nodes::WithClause, CteList<'n>)> },
    /// A recursive query's reference to itself.
    SelfReference,
    /// INSERT, UPDATE, DELETE or MERGE: bound once; the leaf stands for what it returns.
    Modification { leaf: usize },
}

impl<'c> Reader<'c> {
    /// The list with this clause's queries in front. `outer`: around the query that has the clause.
    pub fn with<'n>(
        &mut self,
        clause: Option<&'n nodes::WithClause>,
        outer: Option<&Frame<'_>>,
        ctes: &CteList<'n>,
    ) -> Result<CteList<'n>, PgError> {
        let Some(clause) = clause else {
            return Ok(ctes.clone());
        };
        if clause.ctes().len() > WITH_QUERIES_MAX {
            return Err(too_complex());
        }
        let height = Frame::height(outer);
        let mut list = ctes.clone();
        for cte in clause.ctes() {
            let name = cte.ctename().unwrap_or_default();
            let kind = match cte.ctequery() {
                Node::SelectStmt(_) => CteKind::Query { node: cte, recursive: clause.recursive.then(|| (clause, ctes.clone())) },
                statement => {
                    let modified = self.modification_in_with(statement, &list)?;
                    let leaf = self.add_leaf(derived_leaf(name, modified.outputs, modified.is_complete, cte.aliascolnames()))?;
                    self.returned.insert(leaf, modified.facts);
                    CteKind::Modification { leaf }
                }
            };
            list = Some(Rc::new(Cte { name, kind, height, next: list }));
        }
        Ok(list)
    }

    pub fn cte_reference<'n>(
        &mut self,
        cte: &Rc<Cte<'n>>,
        alias: Option<&nodes::Alias>,
        frame: &mut Frame<'_>,
    ) -> Result<FromItem, PgError> {
        let outer = Frame::at_height(frame.outer, cte.height);
        let (bound, columns) = match &cte.kind {
            CteKind::Query { node, recursive: None } => (self.query(node.ctequery(), outer, &cte.next)?, node.aliascolnames()),
            CteKind::Query { node, recursive: Some((clause, ctes)) } => {
                (self.recursive_query(node, clause, outer, ctes)?, node.aliascolnames())
            }
            CteKind::SelfReference => {
                let bound = Bound { outputs: Vec::new(), is_complete: false, body: Body::SelfReference, order: Vec::new() };
                return self.named_derived(bound, cte.name, alias, frame);
            }
            CteKind::Modification { leaf } => {
                let bound = self.modification_rows(*leaf);
                return self.named_derived(bound, cte.name, alias, frame);
            }
        };
        let item = self.named_derived(bound, cte.name, alias, frame)?;
        if let (FromItem::Derived { leaf, .. }, false) = (&item, columns.is_empty()) {
            self.rename(*leaf, columns);
        }
        Ok(item)
    }

    /// Column names that a CTE gives to its query's outputs; an alias at the reference renames them again.
    fn rename(&mut self, leaf: usize, names: &NodeList) {
        if let Some(leaf) = self.leaves.get_mut(leaf) {
            let given: Vec<String> = names.iter().filter_map(Node::as_str).map(str::to_owned).collect();
            if given.len() > leaf.renamed.len() {
                let mut renamed = std::mem::take(&mut leaf.renamed);
                renamed.extend(given.into_iter().skip(renamed.len()));
                leaf.renamed = renamed;
            }
        }
    }

    fn named_derived(
        &mut self,
        bound: Bound,
        name: &str,
        alias: Option<&nodes::Alias>,
        frame: &mut Frame<'_>,
    ) -> Result<FromItem, PgError> {
        let item = self.derived(bound, alias, frame)?;
        if alias.is_none()
            && let Some(visible) = frame.items.last_mut()
        {
            visible.name = Some(name.to_owned());
        }
        Ok(item)
    }

    /// A query of WITH RECURSIVE: all queries of the clause are visible in it, and it itself as its own result.
    fn recursive_query<'n>(
        &mut self,
        cte: &'n nodes::CommonTableExpr,
        clause: &'n nodes::WithClause,
        outer: Option<&Frame<'_>>,
        ctes: &CteList<'n>,
    ) -> Result<Bound, PgError> {
        let height = Frame::height(outer);
        let mut list = ctes.clone();
        for sibling in clause.ctes() {
            let name = sibling.ctename().unwrap_or_default();
            let is_select = matches!(sibling.ctequery(), Node::SelectStmt(_));
            if is_select && name != cte.ctename().unwrap_or_default() {
                let kind = CteKind::Query { node: sibling, recursive: Some((clause, ctes.clone())) };
                list = Some(Rc::new(Cte { name, kind, height, next: list }));
            } else if !is_select {
                return Err(PgError::unsupported(
                    "INSERT, UPDATE, DELETE and MERGE in WITH RECURSIVE are not supported",
                    format!("\"{name}\" changes data."),
                    "Move it to a WITH clause without RECURSIVE.",
                ));
            }
        }
        let own = Cte { name: cte.ctename().unwrap_or_default(), kind: CteKind::SelfReference, height, next: list.clone() };
        let list = Some(Rc::new(own));
        match cte.ctequery() {
            Node::SelectStmt(select) if select.op == nodes::SetOperation::SETOP_UNION => {
                // Of the recursive query itself, visible in both branches.
                let list = self.with(select.with_clause(), outer, &list)?;
                let start = select.larg().ok_or_else(unknown_query)?;
                let step = select.rarg().ok_or_else(unknown_query)?;
                let first_leaf = self.leaves.len();
                let start = self.select(start, outer, &list)?;
                let step = self.select(step, outer, &list)?;
                if !select.all {
                    // The second branch has the types of the first.
                    self.note_equals_of_union(&start, first_leaf..self.leaves.len());
                }
                let frame = Frame::inside(outer);
                let scope = Scope { frame: &frame, ctes: &list, windows: None };
                self.scan_tail(select, &scope, &mut Findings::default())?;
                let outputs = start.outputs.iter().map(|output| Output { origin: None, ..output.clone() }).collect();
                let is_complete = start.is_complete && cte.search_clause().is_none() && cte.cycle_clause().is_none();
                let body = Body::Recursive { start: Box::new(start), step: Box::new(step) };
                Ok(Bound { outputs, is_complete, body, order: Vec::new() })
            }
            other => self.query(other, outer, &list),
        }
    }

    /// The query of a view, under its own names.
    fn definition(&mut self, view: &'c Relation) -> Result<Bound, PgError> {
        let definition = view.view_definition.as_deref().unwrap_or_default();
        let tree = parse::parse(definition).map_err(|_| unknown_view(&view.name))?;
        let Some(Node::SelectStmt(select)) = tree.stmts().next() else {
            return Err(unknown_view(&view.name));
        };
        let outer_path = std::mem::replace(&mut self.search_path, vec![view.schema.clone(), "public".to_owned()]);
        self.view_depth += 1;
        let bound = self.select(select, None, &None);
        self.view_depth -= 1;
        self.search_path = outer_path;
        bound
    }

    /// What a materialised view is filled with, on the home shard.
    pub fn refreshed(&mut self, view: &'c Relation) -> Result<(), PgError> {
        self.notes.writes();
        let bound = self.definition(view)?;
        self.place(&bound, None, &Facts::new(), &[]);
        self.parts.push(Part::Home);
        Ok(())
    }

    /// Opens a view: its definition, under its own names.
    pub fn view(&mut self, view: &'c Relation, reference: &nodes::RangeVar, frame: &mut Frame<'_>) -> Result<FromItem, PgError> {
        self.notes.touches(view.oid);
        let mut bound = self.definition(view)?;
        // The view's own column names, which CREATE VIEW v (a, b) may have given.
        if bound.is_complete && bound.outputs.len() == view.columns.len() {
            for (output, column) in bound.outputs.iter_mut().zip(&view.columns) {
                output.name.clone_from(&column.name);
                output.properties = ColumnProperties { is_not_null: false, ..column_properties(column, &self.context.catalog) };
            }
        }
        let item = self.derived(bound, reference.alias(), frame)?;
        if let (None, Some(visible)) = (reference.alias(), frame.items.last_mut()) {
            visible.name = Some(view.name.clone());
            visible.schema = Some(view.schema.clone());
        }
        Ok(item)
    }

    /// The rows that a modification in WITH returns.
    fn modification_rows(&self, leaf: usize) -> Bound {
        let facts = self.returned.get(&leaf).cloned().unwrap_or_default();
        let (outputs, is_complete) = match self.leaves.get(leaf).map(|leaf| &leaf.columns) {
            Some(Columns::Listed(outputs)) => (outputs.clone(), true),
            Some(Columns::Relation(_) | Columns::Unknown) | None => (Vec::new(), false),
        };
        Bound { outputs, is_complete, body: Body::Modification { facts }, order: Vec::new() }
    }
}

pub fn find_cte<'n>(ctes: &CteList<'n>, name: &str) -> Option<Rc<Cte<'n>>> {
    let mut current = ctes.as_ref();
    while let Some(cte) = current {
        if cte.name == name {
            return Some(Rc::clone(cte));
        }
        current = cte.next.as_ref();
    }
    None
}

fn derived_leaf<'c>(name: &str, outputs: Vec<Output>, is_complete: bool, renamed: &NodeList) -> Leaf<'c> {
    let columns = if is_complete { Columns::Listed(outputs) } else { Columns::Unknown };
    let renamed = renamed.iter().filter_map(Node::as_str).map(str::to_owned).collect();
    Leaf { name: name.to_owned(), kind: LeafKind::Derived, columns, renamed }
}

fn unknown_view(name: &str) -> PgError {
    PgError::unsupported(
        format!("view \"{name}\" cannot be read"),
        "Its definition is in a form that the proxy does not know.",
        "Use the tables that it is defined on.",
    )
}
