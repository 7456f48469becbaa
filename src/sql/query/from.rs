//! FROM: relations, sub-selects, functions and joins, and the names that they make visible.

use std::rc::Rc;

use pg_raw_parse::{Node, nodes};

use super::bind::{QUERY_DEPTH_MAX, Reader, too_complex};
use super::expression::{Findings, Place, Scope};
use super::leaves::{Columns, Leaf, LeafKey, LeafKind, same_family};
use super::relations::{self, Resolved};
use super::scope::{Frame, Mark, Visible, VisibleColumns, merged_as};
use super::with::{CteList, find_cte};
use super::{Bound, Column, Facts, FromItem, Join, Predicate, Subquery, Term};
use crate::catalog::{Relation, RelationKind};
use crate::error::PgError;
use crate::shard_key::KeyType;
use crate::shardmap::TableKind;
use crate::sql::parse::tree;

/// References to relations in one statement, with views and CTEs opened at each reference.
pub const LEAVES_MAX: usize = 1_000;

impl<'c> Reader<'c> {
    pub fn item_of_from<'n>(
        &mut self,
        node: Node<'n>,
        frame: &mut Frame<'_>,
        ctes: &CteList<'n>,
        subqueries: &mut Vec<Subquery>,
    ) -> Result<FromItem, PgError> {
        match node {
            Node::RangeVar(relation) => self.range_variable(relation, frame, ctes),
            Node::RangeSubselect(subselect) => {
                let outer = if subselect.lateral { Some(&*frame) } else { frame.outer };
                let bound = self.query(subselect.subquery(), outer, ctes)?;
                self.derived(bound, subselect.alias(), frame)
            }
            Node::RangeFunction(function) => {
                if let Some(call) = self.own_call(function) {
                    let name = call.as_ref().map_or_else(|_| "function".to_owned(), |call| call.function.clone());
                    self.note_own_call(call);
                    return self.unknown_rows(function.alias(), &name, frame);
                }
                let mut findings = Findings::default();
                let scope = Scope { frame, ctes, windows: None };
                let mut name = "function";
                for item in function.functions() {
                    // The call, and perhaps its column definitions.
                    let call = item.as_node_list().and_then(|item| item.first()).unwrap_or(item);
                    if let Node::FuncCall(call) = call {
                        name = call.funcname().iter().next_back().and_then(Node::as_str).unwrap_or(name);
                    }
                    self.scan(call, &scope, Place::Inside, &mut findings)?;
                }
                subqueries.append(&mut findings.subqueries);
                let item = self.unknown_rows(function.alias(), name, frame)?;
                if let (FromItem::Leaf(leaf), false) = (&item, function.coldeflist().is_empty())
                    && let Some(leaf) = self.leaves.get_mut(*leaf)
                {
                    leaf.renamed = function.coldeflist().iter().filter_map(|column| column.colname().map(str::to_owned)).collect();
                }
                Ok(item)
            }
            Node::RangeTableFunc(table) => {
                let mut findings = Findings::default();
                let scope = Scope { frame, ctes, windows: None };
                self.scan(table.docexpr(), &scope, Place::Inside, &mut findings)?;
                self.scan(table.rowexpr(), &scope, Place::Inside, &mut findings)?;
                for namespace in table.namespaces() {
                    self.scan(namespace, &scope, Place::Inside, &mut findings)?;
                }
                for column in table.columns() {
                    self.scan(column.colexpr(), &scope, Place::Inside, &mut findings)?;
                    self.scan(column.coldefexpr(), &scope, Place::Inside, &mut findings)?;
                }
                subqueries.append(&mut findings.subqueries);
                self.unknown_rows(table.alias(), "xmltable", frame)
            }
            Node::JsonTable(table) => {
                let mut findings = Findings::default();
                let scope = Scope { frame, ctes, windows: None };
                for expression in tree::expressions_of_json_table(table) {
                    self.scan(expression, &scope, Place::Inside, &mut findings)?;
                }
                subqueries.append(&mut findings.subqueries);
                self.unknown_rows(table.alias(), "json_table", frame)
            }
            Node::RangeTableSample(sample) => {
                self.notes.not_pushable(PgError::unsupported(
                    "TABLESAMPLE is not supported across shards",
                    "Each shard would draw a sample of its own.",
                    "Restrict the statement to one shard key.",
                ));
                let mut findings = Findings::default();
                // Unlike those of functions, its arguments do not see what stands before it.
                let around = Frame::inside(frame.outer);
                let scope = Scope { frame: &around, ctes, windows: None };
                for argument in sample.args() {
                    self.scan(argument, &scope, Place::Inside, &mut findings)?;
                }
                self.scan(sample.repeatable(), &scope, Place::Inside, &mut findings)?;
                subqueries.append(&mut findings.subqueries);
                self.item_of_from(sample.relation(), frame, ctes, subqueries)
            }
            Node::JoinExpr(join) => self.join(join, frame, ctes, subqueries),
            // What it reads, and which names it makes visible, is not known.
            _ => Err(super::functions::unknown_construct("this item of the FROM clause")),
        }
    }

    fn range_variable<'n>(
        &mut self,
        relation: &'n nodes::RangeVar,
        frame: &mut Frame<'_>,
        ctes: &CteList<'n>,
    ) -> Result<FromItem, PgError> {
        let name = relation.relname().unwrap_or_default();
        if relation.schemaname().is_none()
            && let Some(cte) = find_cte(ctes, name)
        {
            return self.cte_reference(&cte, relation.alias(), frame);
        }
        self.note_name(relation);
        let resolved = relations::resolve(self.context, relation, &self.search_path);
        let leaf = match resolved {
            Resolved::View(view) => return self.view(view, relation, frame),
            other => self.relation_leaf(other, relation)?,
        };
        self.show(leaf, relation.alias(), Some(relation), frame);
        Ok(FromItem::Leaf(leaf))
    }

    pub fn note_name(&mut self, relation: &nodes::RangeVar) {
        if !self.is_in_view() {
            let name = relation.relname().unwrap_or_default().to_owned();
            self.named.insert((relation.schemaname().map(str::to_owned), name));
        }
    }

    /// A leaf for a relation, noted as read.
    pub fn relation_leaf(&mut self, resolved: Resolved<'c>, name: &nodes::RangeVar) -> Result<usize, PgError> {
        let index = self.leaves.len();
        let (kind, columns) = match resolved {
            Resolved::Sharded { table, group, relation } => {
                self.notes.touches(relation.oid);
                let columns = match &table.kind {
                    TableKind::Sharded { key, .. } => key.as_slice(),
                    TableKind::Reference => &[],
                };
                let key: Option<Vec<LeafKey<'c>>> = columns
                    .iter()
                    .map(|column| {
                        let position = relation.columns.iter().position(|known| known.name == column.column)?;
                        let term = Term { column: Column { leaf: index, index: position }, function: column.function.clone() };
                        Some(LeafKey { term, column })
                    })
                    .collect();
                let key = key.filter(|key| !key.is_empty()).ok_or_else(|| {
                    PgError::internal(format!("table \"{}\" has no column that the shard map names as its key", relation.name))
                })?;
                (LeafKind::Sharded { group, key }, Columns::Relation(relation))
            }
            Resolved::Reference(relation) => {
                self.notes.touches(relation.oid);
                self.notes.reads_replicated();
                (LeafKind::Replicated, Columns::Relation(relation))
            }
            Resolved::Home(relation) => {
                if let Some(sequence) = relation.filter(|relation| self.is_numbered_by_cluster(relation)) {
                    return Err(sequence_as_table(&sequence.name));
                }
                match relation {
                    Some(relation) => {
                        self.notes.reads_stored_view |= relation.kind == RelationKind::MaterializedView;
                        self.notes.touches(relation.oid);
                    }
                    None => self.notes.has_unknown_names = true,
                }
                (LeafKind::Home, relation.map_or(Columns::Unknown, Columns::Relation))
            }
            Resolved::System => {
                self.notes.reads_system();
                (LeafKind::Elsewhere, Columns::Unknown)
            }
            Resolved::Map(_) => {
                self.notes.reads_map();
                (LeafKind::Elsewhere, Columns::Unknown)
            }
            Resolved::Proxy(relation) => {
                self.notes.reads_proxy(relation);
                (LeafKind::Elsewhere, Columns::Unknown)
            }
            // A view as the target of a write; reading one goes through `view`.
            Resolved::View(view) => (LeafKind::Home, Columns::Relation(view)),
            Resolved::Mixed(detail) => {
                return Err(PgError::unsupported(
                    format!("table \"{}\" cannot be placed", name.relname().unwrap_or_default()),
                    detail,
                    "Distribute the parent table instead of its children.",
                ));
            }
        };
        self.add_leaf(Leaf { name: name.relname().unwrap_or_default().to_owned(), kind, columns, renamed: Vec::new() })
    }

    /// A sequence whose numbers the proxies give: a shard has one of this name, which gives none.
    fn is_numbered_by_cluster(&self, relation: &Relation) -> bool {
        relation.kind == RelationKind::Sequence
            && self.context.map.sequences.contains_key(&(relation.schema.clone(), relation.name.clone()))
    }

    pub fn add_leaf(&mut self, leaf: Leaf<'c>) -> Result<usize, PgError> {
        if self.leaves.len() == LEAVES_MAX {
            return Err(too_complex());
        }
        self.leaves.push(leaf);
        Ok(self.leaves.len() - 1)
    }

    /// Makes a leaf visible under its alias or its relation's name.
    pub fn show(&mut self, leaf: usize, alias: Option<&nodes::Alias>, relation: Option<&nodes::RangeVar>, frame: &mut Frame<'_>) {
        if let (Some(alias), Some(leaf)) = (alias, self.leaves.get_mut(leaf)) {
            leaf.renamed = alias.colnames().iter().filter_map(Node::as_str).map(str::to_owned).collect();
        }
        let columns = VisibleColumns::Leaf(leaf);
        let visible = match (alias.and_then(|alias| alias.aliasname()), relation) {
            (Some(alias), _) => Visible { name: Some(alias.to_owned()), schema: None, columns },
            (None, Some(relation)) => {
                // An unqualified table can be named with its schema in a column reference; which one, the catalogue knows.
                let schema = relation.schemaname().map(str::to_owned).or_else(|| self.leaf_schema(leaf));
                Visible { name: relation.relname().map(str::to_owned), schema, columns }
            }
            (None, None) => Visible { name: None, schema: None, columns },
        };
        frame.items.push(visible);
    }

    fn leaf_schema(&self, leaf: usize) -> Option<String> {
        match &self.leaves.get(leaf)?.columns {
            Columns::Relation(relation) => Some(relation.schema.clone()),
            Columns::Listed(_) | Columns::Unknown => None,
        }
    }

    pub fn derived(&mut self, bound: Bound, alias: Option<&nodes::Alias>, frame: &mut Frame<'_>) -> Result<FromItem, PgError> {
        let columns = if bound.is_complete { Columns::Listed(bound.outputs.clone()) } else { Columns::Unknown };
        let name = alias.and_then(|alias| alias.aliasname()).unwrap_or("sub-select").to_owned();
        let leaf = self.add_leaf(Leaf { name, kind: LeafKind::Derived, columns, renamed: Vec::new() })?;
        self.show(leaf, alias, None, frame);
        Ok(FromItem::Derived { leaf, bound: Box::new(bound) })
    }

    /// Rows whose columns are not known, the same on every shard.
    fn unknown_rows(&mut self, alias: Option<&nodes::Alias>, name: &str, frame: &mut Frame<'_>) -> Result<FromItem, PgError> {
        let name = alias.and_then(|alias| alias.aliasname()).unwrap_or(name).to_owned();
        let kind = LeafKind::Replicated;
        let leaf = self.add_leaf(Leaf { name: name.clone(), kind, columns: Columns::Unknown, renamed: Vec::new() })?;
        self.show(leaf, alias, None, frame);
        if let Some(visible) = frame.items.last_mut() {
            visible.name = Some(name);
        }
        Ok(FromItem::Leaf(leaf))
    }

    fn join<'n>(
        &mut self,
        join: &'n nodes::JoinExpr,
        frame: &mut Frame<'_>,
        ctes: &CteList<'n>,
        subqueries: &mut Vec<Subquery>,
    ) -> Result<FromItem, PgError> {
        if self.depth == QUERY_DEPTH_MAX {
            return Err(too_complex());
        }
        self.depth += 1;
        let item = self.join_inside(join, frame, ctes, subqueries);
        self.depth -= 1;
        item
    }

    fn join_inside<'n>(
        &mut self,
        join: &'n nodes::JoinExpr,
        frame: &mut Frame<'_>,
        ctes: &CteList<'n>,
        subqueries: &mut Vec<Subquery>,
    ) -> Result<FromItem, PgError> {
        let kind = match join.jointype {
            nodes::JoinType::JOIN_INNER => Join::Inner,
            nodes::JoinType::JOIN_LEFT => Join::Left,
            nodes::JoinType::JOIN_RIGHT => Join::Right,
            _ => Join::Full,
        };
        let before = frame.mark();
        let left = Box::new(self.item_of_from(join.larg(), frame, ctes, subqueries)?);
        let between = frame.mark();
        let right = Box::new(self.item_of_from(join.rarg(), frame, ctes, subqueries)?);
        let mut on = self.merge_columns(join, kind, frame, before, between);
        let mut findings = Findings::default();
        let own = frame.split_off(before);
        {
            let scope = Scope { frame: &own, ctes, windows: None };
            if kind == Join::Inner {
                on.extend(self.filter(join.quals(), &scope, &mut findings)?);
            } else {
                on.extend(self.outer_on(join.quals(), &scope, &mut findings)?);
            }
        }
        frame.append(own);
        if let Some(alias) = join.join_using_alias() {
            let names = join.using_clause().iter().filter_map(|name| name.sval());
            let columns = names.filter_map(|name| Some((name.to_owned(), frame.merged_as(name)?))).collect();
            let columns = VisibleColumns::Join { columns, is_complete: true };
            frame.items.push(Visible { name: alias.aliasname().map(str::to_owned), schema: None, columns });
        }
        if let Some(alias) = join.alias() {
            self.hide_behind_alias(alias, frame, before);
        }
        Ok(FromItem::Join { kind, left, right, on, subqueries: findings.subqueries })
    }

    /// ON of an outer join: its conjuncts, without what sub-selects imply.
    fn outer_on<'n>(&mut self, node: Node<'n>, scope: &Scope<'_, 'n>, findings: &mut Findings) -> Result<Facts, PgError> {
        self.scan(node, scope, Place::OuterOn, findings)?;
        let mut facts = Facts::new();
        let mut conjuncts = vec![node];
        while let Some(conjunct) = conjuncts.pop() {
            match conjunct {
                Node::BoolExpr(e) if e.boolop == nodes::BoolExprType::AND_EXPR => conjuncts.extend(e.args().iter()),
                other => match self.lower(other, scope.frame, 0) {
                    Predicate::Unknown => {}
                    predicate => facts.push(Rc::new(predicate)),
                },
            }
        }
        Ok(facts)
    }

    /// USING and NATURAL: equalities, and names that stand for one of two columns.
    fn merge_columns(&mut self, join: &nodes::JoinExpr, kind: Join, frame: &mut Frame<'_>, before: Mark, between: Mark) -> Facts {
        if join.is_natural || !join.using_clause().is_empty() {
            self.note_operators(&mut vec!["="], Place::Inside);
        }
        let names: Option<Vec<String>> = if join.is_natural {
            self.common_columns(frame, before.items, between.items)
        } else {
            Some(join.using_clause().iter().filter_map(|name| name.sval()).map(str::to_owned).collect())
        };
        let Some(names) = names else {
            frame.has_unknown_merge = true;
            return Facts::new();
        };
        let mut facts = Facts::new();
        let end = frame.mark();
        for name in names {
            let left = self.column_among(&name, frame, before, between);
            let right = self.column_among(&name, frame, between, end);
            if let (Some(left), Some(right)) = (left, right) {
                let types = (self.comparable_type(left), self.comparable_type(right));
                if let (Some(left_type), Some(right_type), true) = (types.0, types.1, self.operators_are_plain())
                    && same_family(left_type, right_type)
                {
                    facts.push(Rc::new(Predicate::Same(left.into(), right.into())));
                }
            }
            // Of two types, the merged column is of a third perhaps, in which more values are equal.
            let is_alike = matches!((left, right), (Some(left), Some(right)) if self.is_alike(left, right));
            let merged = match kind {
                Join::Inner | Join::Left if is_alike => left,
                Join::Right if is_alike => right,
                Join::Inner | Join::Left | Join::Right | Join::Full => None,
            };
            frame.merged.push((name, merged));
        }
        facts
    }

    fn is_alike(&self, left: Column, right: Column) -> bool {
        let (left, right) = (self.properties(left), self.properties(right));
        left.type_oid != 0
            && left.type_oid == right.type_oid
            && left.is_deterministic == right.is_deterministic
            && left.is_collation_c == right.is_collation_c
    }

    fn column_among(&self, name: &str, frame: &Frame<'_>, from: Mark, to: Mark) -> Option<Column> {
        // A column merged by a join further inside is what the name means there.
        let merged = merged_as(frame.merged.get(from.merged..to.merged)?, name).flatten();
        let mut found = None;
        for item in frame.items.get(from.items..to.items)? {
            match &item.columns {
                VisibleColumns::Leaf(leaf) => match self.leaves.get(*leaf)?.find(name) {
                    Some(Some(index)) => {
                        let column = Column { leaf: *leaf, index };
                        match found {
                            None => found = Some(column),
                            Some(known) if merged == Some(known) => {}
                            Some(_) if merged == Some(column) => found = Some(column),
                            Some(_) => return None,
                        }
                    }
                    Some(None) => {}
                    None => return None,
                },
                VisibleColumns::Join { .. } => return None,
            }
        }
        found
    }

    fn common_columns(&self, frame: &Frame<'_>, before: usize, between: usize) -> Option<Vec<String>> {
        let [left] = frame.items.get(before..between)? else {
            return None;
        };
        let [right] = frame.items.get(between..)? else {
            return None;
        };
        let (VisibleColumns::Leaf(left), VisibleColumns::Leaf(right)) = (&left.columns, &right.columns) else {
            return None;
        };
        let (left, right) = (self.leaves.get(*left)?, self.leaves.get(*right)?);
        let names = (0..left.column_count()?).filter_map(|index| left.column_name(index));
        let mut common = Vec::new();
        for name in names {
            if right.find(name)?.is_some() {
                common.push(name.to_owned());
            }
        }
        Some(common)
    }

    /// `(a JOIN b …) AS j`: only j is visible from here on.
    fn hide_behind_alias(&mut self, alias: &nodes::Alias, frame: &mut Frame<'_>, before: Mark) {
        let hidden = frame.split_off(before);
        let mut outputs = Vec::new();
        let mut is_complete = hidden.merged.is_empty() && !hidden.has_unknown_merge && alias.colnames().is_empty();
        if alias.colnames().is_empty() {
            frame.merged.extend(hidden.merged);
        } else {
            // The merged columns have other names now.
            frame.has_unknown_merge |= !hidden.merged.is_empty();
        }
        for item in &hidden.items {
            is_complete &= self.star_of(item, &mut outputs);
        }
        let columns = if is_complete {
            outputs.into_iter().map(|output| (output.name, output.origin.map(|origin| origin.column))).collect()
        } else {
            Vec::new()
        };
        frame.items.push(Visible {
            name: alias.aliasname().map(str::to_owned),
            schema: None,
            columns: VisibleColumns::Join { columns, is_complete },
        });
    }

    pub fn comparable_type(&self, column: Column) -> Option<KeyType> {
        let properties = self.properties(column);
        KeyType::of_column(properties.type_oid).filter(|_| properties.is_deterministic)
    }
}

fn sequence_as_table(name: &str) -> PgError {
    PgError::unsupported(
        format!("sequence \"{name}\" cannot be read like a table"),
        "It is a sequence of the whole cluster: its numbers are given in blocks, and no shard knows the last one.",
        "Use max() of the column that it numbers, or lastval() after nextval().",
    )
}
