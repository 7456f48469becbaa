//! Binding: names resolved, WITH and views opened, the parse tree turned into [`Bound`].

use std::collections::HashMap;
use std::rc::Rc;

use pg_raw_parse::list::NodeList;
use pg_raw_parse::{ConstValue, Node, nodes};

use super::expression::{Findings, Place, Scope};
use super::leaves::{Columns, Leaf, LeafKey, LeafKind, column_properties};
use super::predicate::Operand;
use super::relations::{self, Resolved};
use super::scope::{Frame, Resolution, Visible, VisibleColumns};
use super::{
    Block, Body, Bound, Column, ColumnProperties, Distinct, Facts, FromItem, Grouping, Join, OrderBy, OrderItem, Output, Predicate,
    SetOperation, Subquery, Term,
};
use crate::catalog::Relation;
use crate::error::{PgError, SqlState};
use crate::shard_key::{KeyType, oid};
use crate::shardmap::TableKind;
use crate::sql::analysis::{KeyValue, Merge, Part};
use crate::sql::context::Context;
use crate::sql::lexer::{Literal, LiteralClass};
use crate::sql::notes::Notes;
use crate::sql::{parse, tree};

/// Queries nest no deeper: a limit of ours, so that no text overflows the stack.
const QUERY_DEPTH_MAX: usize = 40;
/// Branches of one UNION, INTERSECT or EXCEPT chain.
const SET_BRANCHES_MAX: usize = 200;
/// References to relations in one statement, with views and CTEs opened at each reference.
const LEAVES_MAX: usize = 1_000;

/// Rows of a VALUES whose columns' values are kept.
const VALUES_MAX: usize = 1_000;

/// Reads the queries of one statement.
pub struct Reader<'c> {
    pub context: &'c Context,
    pub text: &'c str,
    pub literals: &'c [Literal],
    /// In effect where the reader is: a view's definition has its own.
    pub search_path: Vec<String>,
    pub leaves: Vec<Leaf<'c>>,
    pub notes: Notes,
    /// What the statement needs to be on one shard.
    pub parts: Vec<Part>,
    /// One sentence a fact.
    pub why: Vec<String>,
    /// What holds for the rows that a modification in WITH returns, by the leaf that stands for them.
    pub returned: HashMap<usize, Facts>,
    /// EXCLUDED of the INSERT that is read.
    pub excluded_leaf: Option<usize>,
    depth: usize,
    view_depth: usize,
}

/// WITH queries in scope, innermost first.
pub type CteList<'n> = Option<Rc<Cte<'n>>>;

pub struct Cte<'n> {
    name: &'n str,
    kind: CteKind<'n>,
    next: CteList<'n>,
}

enum CteKind<'n> {
    /// Bound again at each reference.
    Query { node: &'n nodes::CommonTableExpr, recursive: Option<(&'n nodes::WithClause, CteList<'n>)> },
    /// A recursive query's reference to itself.
    SelfReference,
    /// INSERT, UPDATE, DELETE or MERGE: bound once; the leaf stands for what it returns.
    Modification { leaf: usize },
}

impl<'c> Reader<'c> {
    pub fn new(context: &'c Context, text: &'c str, literals: &'c [Literal]) -> Self {
        Self {
            context,
            text,
            literals,
            search_path: context.search_path.clone(),
            leaves: Vec::new(),
            notes: Notes::default(),
            parts: Vec::new(),
            why: Vec::new(),
            returned: HashMap::new(),
            excluded_leaf: None,
            depth: 0,
            view_depth: 0,
        }
    }

    /// Reads and places the statement's own query; how its answers merge.
    pub fn outermost(&mut self, select: &nodes::SelectStmt) -> Result<Result<Merge, PgError>, PgError> {
        let bound = self.select(select, None, &None)?;
        let placed = self.place(&bound, None, &Facts::new(), &[]);
        Ok(match placed.gather {
            Some(reason) => Err(reason),
            None => self.merge(select, &bound),
        })
    }

    /// CALL: the procedure and its arguments.
    pub fn procedure(&mut self, call: &nodes::FuncCall) -> Result<(), PgError> {
        let frame = Frame::default();
        let scope = Scope { frame: &frame, ctes: &None, windows: None };
        let mut findings = Findings::default();
        self.notes.writes();
        self.scan(Node::FuncCall(call), &scope, Place::Inside, &mut findings)?;
        self.place_subqueries(&findings.subqueries, &Facts::new(), &[]);
        Ok(())
    }

    /// A SELECT, VALUES or TABLE, at any level.
    pub fn query<'n>(&mut self, node: Node<'n>, outer: Option<&Frame<'_>>, ctes: &CteList<'n>) -> Result<Bound, PgError> {
        match node {
            Node::SelectStmt(select) => self.select(select, outer, ctes),
            _ => Err(unknown_query()),
        }
    }

    pub fn select<'n>(
        &mut self,
        select: &'n nodes::SelectStmt,
        outer: Option<&Frame<'_>>,
        ctes: &CteList<'n>,
    ) -> Result<Bound, PgError> {
        if self.depth == QUERY_DEPTH_MAX {
            return Err(too_complex());
        }
        self.depth += 1;
        let bound = self.select_inside(select, outer, ctes);
        self.depth -= 1;
        bound
    }

    fn select_inside<'n>(
        &mut self,
        select: &'n nodes::SelectStmt,
        outer: Option<&Frame<'_>>,
        ctes: &CteList<'n>,
    ) -> Result<Bound, PgError> {
        let ctes = self.with(select.with_clause(), ctes)?;
        if select.op != nodes::SetOperation::SETOP_NONE {
            return self.set_operation(select, outer, &ctes);
        }
        if !select.values_lists().is_empty() {
            return self.values(select, outer, &ctes);
        }
        self.block(select, outer, &ctes)
    }

    /// The list with this clause's queries in front.
    pub fn with<'n>(&mut self, clause: Option<&'n nodes::WithClause>, ctes: &CteList<'n>) -> Result<CteList<'n>, PgError> {
        let Some(clause) = clause else {
            return Ok(ctes.clone());
        };
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
            list = Some(Rc::new(Cte { name, kind, next: list }));
        }
        Ok(list)
    }

    fn set_operation<'n>(
        &mut self,
        select: &'n nodes::SelectStmt,
        outer: Option<&Frame<'_>>,
        ctes: &CteList<'n>,
    ) -> Result<Bound, PgError> {
        // A chain leans to the left: walked, not recursed into.
        let mut branches = Vec::new();
        let mut leftmost = select;
        loop {
            let right = leftmost.rarg().ok_or_else(unknown_query)?;
            branches.push((leftmost.op, leftmost.all, right));
            leftmost = leftmost.larg().ok_or_else(unknown_query)?;
            if leftmost.op == nodes::SetOperation::SETOP_NONE || has_tail(leftmost) {
                break;
            }
            if branches.len() == SET_BRANCHES_MAX {
                return Err(too_complex());
            }
        }
        let mut bound = self.select(leftmost, outer, ctes)?;
        for (operation, is_all, right) in branches.into_iter().rev() {
            let right = self.select(right, outer, ctes)?;
            let operation = match operation {
                nodes::SetOperation::SETOP_UNION => SetOperation::Union,
                nodes::SetOperation::SETOP_INTERSECT => SetOperation::Intersect,
                _ => SetOperation::Except,
            };
            bound = combined(operation, is_all, bound, right);
        }
        let frame = Frame::inside(outer);
        let scope = Scope { frame: &frame, ctes, windows: None };
        let mut findings = Findings::default();
        self.scan_tail(select, &scope, &mut findings)?;
        if let Body::SetOperation { has_limit, subqueries, .. } = &mut bound.body {
            *has_limit = self.has_limit(select);
            *subqueries = findings.subqueries;
        }
        bound.order = self.order(select, None, &bound.outputs);
        Ok(bound)
    }

    fn values<'n>(
        &mut self,
        select: &'n nodes::SelectStmt,
        outer: Option<&Frame<'_>>,
        ctes: &CteList<'n>,
    ) -> Result<Bound, PgError> {
        let frame = Frame::inside(outer);
        let scope = Scope { frame: &frame, ctes, windows: None };
        let mut findings = Findings::default();
        let mut columns: Vec<Option<(KeyType, Vec<KeyValue>)>> = Vec::new();
        for (number, row) in select.values_lists().iter().enumerate() {
            let row = row.as_node_list().ok_or_else(unknown_query)?;
            for (index, value) in row.iter().enumerate() {
                self.scan(value, &scope, Place::Inside, &mut findings)?;
                let value = self.typed_value(value, &frame);
                match (number, columns.get_mut(index)) {
                    (0, _) => columns.push(value.map(|(value_type, value)| (value_type, vec![value]))),
                    (_, Some(column)) => add_value(column, value),
                    (_, None) => {}
                }
            }
        }
        self.scan_tail(select, &scope, &mut findings)?;
        let outputs = columns
            .iter()
            .enumerate()
            .map(|(index, column)| {
                let type_oid = column.as_ref().map(|(value_type, _)| value_type.oid()).unwrap_or_default();
                let properties = ColumnProperties { type_oid, typmod: -1, is_deterministic: true, ..ColumnProperties::default() };
                Output { properties, ..Output::unknown(format!("column{}", index + 1)) }
            })
            .collect();
        let body = Body::Values { columns, subqueries: findings.subqueries };
        Ok(Bound { outputs, is_complete: true, body, order: Vec::new() })
    }

    /// A constant or parameter whose type is certain outside any comparison.
    fn typed_value(&mut self, node: Node<'_>, frame: &Frame<'_>) -> Option<(KeyType, KeyValue)> {
        let Operand::Value(value) = self.operand(node, frame) else {
            return None;
        };
        let oid = match &value {
            KeyValue::Parameter { cast, .. } => (*cast)?,
            KeyValue::Literal { cast: Some(cast), .. } => *cast,
            KeyValue::Literal { ordinal, cast: None, .. } => match self.literals.get(usize::from(*ordinal))?.class {
                LiteralClass::String => oid::TEXT,
                class => class.type_oid(),
            },
            KeyValue::Constant { oid: 0, .. } => oid::TEXT,
            KeyValue::Constant { oid, .. } => *oid,
            KeyValue::Bool(_) => oid::BOOL,
            KeyValue::Null => return None,
        };
        Some((KeyType::of_column(oid)?, value))
    }

    fn block<'n>(
        &mut self,
        select: &'n nodes::SelectStmt,
        outer: Option<&Frame<'_>>,
        ctes: &CteList<'n>,
    ) -> Result<Bound, PgError> {
        let mut frame = Frame::inside(outer);
        let mut block = Block::default();
        let mut findings = Findings::default();
        for item in select.from_clause() {
            let item = self.from_item(item, &mut frame, ctes, &mut findings.subqueries)?;
            block.from.push(item);
        }
        let scope = Scope { frame: &frame, ctes, windows: Some(select.window_clause()) };
        block.filter = self.filter(select.where_clause(), &scope, &mut findings)?;
        let (outputs, is_complete) = self.targets(select.target_list().iter(), &scope, &mut findings)?;
        block.grouping = self.grouping(select, &scope, &outputs, &mut findings)?;
        for window in select.window_clause() {
            self.scan(window, &scope, Place::Inside, &mut findings)?;
        }
        self.scan_tail(select, &scope, &mut findings)?;
        block.distinct = self.distinct(select.distinct_clause(), &scope, &outputs, &mut findings)?;
        if findings.has_aggregate && matches!(block.grouping, Grouping::None) {
            block.grouping = Grouping::Whole;
        }
        block.windows = findings.windows;
        block.subqueries = findings.subqueries;
        block.has_limit = self.has_limit(select);
        if !select.locking_clause().is_empty() {
            block.is_locking = true;
            self.notes.locks();
        }
        let order = self.order(select, Some(&frame), &outputs);
        Ok(Bound { outputs, is_complete, body: Body::Block(Box::new(block)), order })
    }

    /// WHERE: its conjuncts as facts, with what sub-selects among them imply.
    pub fn filter<'n>(&mut self, node: Node<'n>, scope: &Scope<'_, 'n>, findings: &mut Findings) -> Result<Facts, PgError> {
        let mut facts = Facts::new();
        let mut conjuncts = vec![node];
        while let Some(conjunct) = conjuncts.pop() {
            match conjunct {
                Node::None => {}
                Node::BoolExpr(e) if e.boolop == nodes::BoolExprType::AND_EXPR => conjuncts.extend(e.args().iter()),
                Node::SubLink(sublink) => self.sublink_conjunct(sublink, scope, findings)?,
                _ => {
                    let predicate = self.lower(conjunct, scope.frame, 0);
                    if predicate != Predicate::Unknown {
                        facts.push(Rc::new(predicate));
                    }
                    self.scan(conjunct, scope, Place::Inside, findings)?;
                }
            }
        }
        Ok(facts)
    }

    /// `EXISTS (…)` and `x IN (…)`, not negated: a surviving row has a partner in the sub-select.
    fn sublink_conjunct<'n>(
        &mut self,
        sublink: &'n nodes::SubLink,
        scope: &Scope<'_, 'n>,
        findings: &mut Findings,
    ) -> Result<(), PgError> {
        use nodes::SubLinkType as Type;
        let is_equality = sublink.oper_name().is_empty() || tree::single_name(sublink.oper_name()) == Some("=");
        let is_membership = sublink.sub_link_type == Type::ANY_SUBLINK && is_equality && self.operators_are_plain();
        if !is_membership && sublink.sub_link_type != Type::EXISTS_SUBLINK {
            return self.scan(Node::SubLink(sublink), scope, Place::Inside, findings);
        }
        self.scan(sublink.testexpr(), scope, Place::Inside, findings)?;
        let mut subquery = self.subquery(sublink, scope, Facts::new(), false)?;
        if is_membership {
            subquery.link = self.membership(sublink.testexpr(), &subquery.bound, scope);
        }
        subquery.is_required = true;
        findings.subqueries.push(subquery);
        Ok(())
    }

    /// The equalities of `x IN (SELECT a …)`, through outputs on which a filter commutes with the sub-select.
    fn membership(&mut self, test: Node<'_>, bound: &Bound, scope: &Scope<'_, '_>) -> Facts {
        let tests: Vec<Node<'_>> = match test {
            Node::RowExpr(row) => row.args().iter().collect(),
            single => vec![single],
        };
        let mut link = Facts::new();
        if tests.len() != bound.outputs.len() {
            return link;
        }
        for (index, test) in tests.into_iter().enumerate() {
            let inner = super::facts::filterable_origin(bound, index);
            if let (Operand::Term(outer, outer_type), Some(inner)) = (self.operand(test, scope.frame), inner) {
                if self.term_type(&inner).is_some_and(|inner_type| super::leaves::same_family(inner_type, outer_type)) {
                    link.push(Rc::new(Predicate::Same(outer, inner)));
                }
            }
        }
        link
    }

    pub fn targets<'n>(
        &mut self,
        targets: impl Iterator<Item = &'n nodes::ResTarget>,
        scope: &Scope<'_, 'n>,
        findings: &mut Findings,
    ) -> Result<(Vec<Output>, bool), PgError> {
        let mut outputs = Vec::new();
        let mut is_complete = true;
        for target in targets {
            self.scan(target.val(), scope, Place::Output, findings)?;
            match target.val() {
                Node::ColumnRef(column) if matches!(column.fields().iter().last(), Some(Node::A_Star(_))) => {
                    is_complete &= self.star(column, scope.frame, &mut outputs);
                }
                value => {
                    let (origin, properties) = self.origin(value, scope.frame);
                    let name = target.name().map(str::to_owned).unwrap_or_else(|| output_name(value));
                    outputs.push(Output { name, origin, properties });
                }
            }
        }
        Ok((outputs, is_complete))
    }

    fn origin(&mut self, value: Node<'_>, frame: &Frame<'_>) -> (Option<Term>, ColumnProperties) {
        if let Node::ColumnRef(column) = value {
            let path = tree::names(column.fields()).unwrap_or_default();
            return match frame.resolve(&path, &self.leaves) {
                Resolution::Column(column) => (Some(column.into()), self.properties(column)),
                Resolution::Unknown => (None, ColumnProperties::default()),
            };
        }
        match self.operand(value, frame) {
            Operand::Term(term, term_type) => {
                let base = self.properties(term.column);
                let properties = ColumnProperties { type_oid: term_type.oid(), typmod: -1, ..base };
                (Some(term), properties)
            }
            Operand::Value(_) | Operand::Other => {
                let is_collation_c = self.sorts_bytewise(value, frame);
                (None, ColumnProperties { is_collation_c, ..ColumnProperties::default() })
            }
        }
    }

    /// Whether an expression, if it is text, has a collation that sorts bytewise: the database's and every column's do.
    fn sorts_bytewise(&self, value: Node<'_>, frame: &Frame<'_>) -> bool {
        let mut is_certain = self.context.catalog.is_collation_c;
        tree::walk(value, &mut |node| {
            match node {
                Node::CollateClause(_) | Node::SubLink(_) => is_certain = false,
                Node::ColumnRef(column) => {
                    let path = tree::names(column.fields()).unwrap_or_default();
                    is_certain &= match frame.resolve(&path, &self.leaves) {
                        Resolution::Column(column) => {
                            let properties = self.properties(column);
                            let key_type = KeyType::of_column(properties.type_oid);
                            properties.is_collation_c
                                || key_type.is_some_and(|key_type| !matches!(key_type, KeyType::Text | KeyType::Bpchar))
                        }
                        Resolution::Unknown => false,
                    };
                }
                _ => {}
            }
            is_certain && tree::is_known(node)
        });
        is_certain
    }

    /// ORDER BY, as far as the proxy could follow it.
    fn order(&mut self, select: &nodes::SelectStmt, frame: Option<&Frame<'_>>, outputs: &[Output]) -> Vec<OrderItem> {
        let mut items = Vec::new();
        for sort in select.sort_clause() {
            let is_descending = sort.sortby_dir == nodes::SortByDir::SORTBY_DESC;
            let is_nulls_first = match sort.sortby_nulls {
                nodes::SortByNulls::SORTBY_NULLS_FIRST => true,
                nodes::SortByNulls::SORTBY_NULLS_LAST => false,
                _ => is_descending,
            };
            let (by, is_bytewise) = if sort.sortby_dir == nodes::SortByDir::SORTBY_USING {
                (OrderBy::Other, false)
            } else {
                self.order_by(sort.node(), frame, outputs)
            };
            items.push(OrderItem { by, is_descending, is_nulls_first, is_bytewise });
        }
        items
    }

    fn order_by(&mut self, node: Node<'_>, frame: Option<&Frame<'_>>, outputs: &[Output]) -> (OrderBy, bool) {
        let bytewise = |index: usize| outputs.get(index).is_some_and(|output| output.properties.is_collation_c);
        match node {
            Node::A_Const(constant) => match constant.val() {
                Some(ConstValue::Integer(number)) => {
                    self.fix_literal(constant.location);
                    let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
                    index.map_or((OrderBy::Other, false), |index| (OrderBy::Output(index), bytewise(index)))
                }
                _ => (OrderBy::Other, false),
            },
            Node::CollateClause(collate) => {
                let names = tree::names(collate.collname()).unwrap_or_default();
                if !matches!(names.last(), Some(&("C" | "POSIX"))) {
                    return (OrderBy::Other, false);
                }
                match (collate.arg(), frame) {
                    (Node::ColumnRef(column), Some(frame)) => match self.order_column(column, frame, outputs) {
                        (OrderBy::Output(index), _) => (OrderBy::Output(index), true),
                        _ => (OrderBy::Other, false),
                    },
                    _ => (OrderBy::Other, false),
                }
            }
            Node::ColumnRef(column) => {
                if let Some(name) = tree::single_name(column.fields()) {
                    let mut named = outputs.iter().enumerate().filter(|(_, output)| output.name == name).map(|(index, _)| index);
                    if let Some(index) = named.next() {
                        return (OrderBy::Output(index), bytewise(index));
                    }
                }
                match frame {
                    Some(frame) => self.order_column(column, frame, outputs),
                    None => (OrderBy::Other, false),
                }
            }
            _ => (OrderBy::Other, false),
        }
    }

    /// A column of FROM: one that is selected, or one that has to be.
    fn order_column(&mut self, column: &nodes::ColumnRef, frame: &Frame<'_>, outputs: &[Output]) -> (OrderBy, bool) {
        let path = tree::names(column.fields()).unwrap_or_default();
        let Resolution::Column(found) = frame.resolve(&path, &self.leaves) else {
            return (OrderBy::Other, false);
        };
        let is_bytewise = self.properties(found).is_collation_c;
        match outputs.iter().position(|output| output.origin == Some(found.into())) {
            Some(index) => (OrderBy::Output(index), is_bytewise),
            None => {
                let quoted: Vec<String> = path.iter().map(|name| format!("\"{}\"", name.replace('"', "\"\""))).collect();
                (OrderBy::Hidden(quoted.join(".")), is_bytewise)
            }
        }
    }

    /// Expands `*` or `t.*`; `false` when the columns are not known.
    fn star(&mut self, column: &nodes::ColumnRef, frame: &Frame<'_>, outputs: &mut Vec<Output>) -> bool {
        let qualifier: Vec<&str> = column.fields().iter().filter_map(Node::as_str).collect();
        let (schema, table) = match qualifier.as_slice() {
            [] => (None, None),
            [table] => (None, Some(*table)),
            [schema, table] => (Some(*schema), Some(*table)),
            _ => return false,
        };
        if table.is_none() && (!frame.merged.is_empty() || frame.has_unknown_merge) {
            return false;
        }
        let mut is_complete = true;
        let mut is_found = false;
        for item in frame.items.iter().filter(|item| table.is_none_or(|table| item.is_called(schema, table))) {
            is_found = true;
            is_complete &= self.star_of(item, outputs);
        }
        is_found && is_complete
    }

    fn star_of(&self, item: &Visible, outputs: &mut Vec<Output>) -> bool {
        match &item.columns {
            VisibleColumns::Leaf(leaf_index) => {
                let Some(leaf) = self.leaves.get(*leaf_index) else {
                    return false;
                };
                let Some(count) = leaf.column_count() else {
                    return false;
                };
                for index in 0..count {
                    let column = Column { leaf: *leaf_index, index };
                    outputs.push(Output {
                        name: leaf.column_name(index).unwrap_or_default().to_owned(),
                        origin: Some(column.into()),
                        properties: self.properties(column),
                    });
                }
                true
            }
            VisibleColumns::Join { columns, is_complete } => {
                for (name, column) in columns {
                    let properties = column.map(|column| self.properties(column)).unwrap_or_default();
                    outputs.push(Output { name: name.clone(), origin: column.map(Term::from), properties });
                }
                *is_complete
            }
        }
    }

    fn grouping<'n>(
        &mut self,
        select: &'n nodes::SelectStmt,
        scope: &Scope<'_, 'n>,
        outputs: &[Output],
        findings: &mut Findings,
    ) -> Result<Grouping, PgError> {
        let mut terms = Vec::new();
        let mut has_sets = false;
        for item in select.group_clause() {
            self.scan(item, scope, Place::Inside, findings)?;
            has_sets |= matches!(item, Node::GroupingSet(_));
            terms.extend(self.named_or_numbered(item, scope.frame, outputs, true));
        }
        self.scan(select.having_clause(), scope, Place::Inside, findings)?;
        Ok(match (select.group_clause().is_empty(), has_sets) {
            (true, _) if matches!(select.having_clause(), Node::None) => Grouping::None,
            (true, _) => Grouping::Whole,
            (false, true) => Grouping::Sets,
            (false, false) => Grouping::By(terms),
        })
    }

    fn distinct<'n>(
        &mut self,
        clause: &'n NodeList,
        scope: &Scope<'_, 'n>,
        outputs: &[Output],
        findings: &mut Findings,
    ) -> Result<Distinct, PgError> {
        match clause.first() {
            None => Ok(Distinct::None),
            Some(Node::None) => Ok(Distinct::Rows),
            Some(_) => {
                let mut terms = Vec::new();
                for item in clause {
                    self.scan(item, scope, Place::Inside, findings)?;
                    terms.extend(self.named_or_numbered(item, scope.frame, outputs, false));
                }
                Ok(Distinct::On(terms))
            }
        }
    }

    /// An item of GROUP BY or DISTINCT ON: the n-th output, an output's name, or an expression.
    fn named_or_numbered(&mut self, item: Node<'_>, frame: &Frame<'_>, outputs: &[Output], inputs_first: bool) -> Option<Term> {
        if let Node::A_Const(constant) = item {
            let Some(ConstValue::Integer(number)) = constant.val() else {
                return None;
            };
            self.fix_literal(constant.location);
            let index = usize::try_from(number).ok()?.checked_sub(1)?;
            return outputs.get(index)?.origin.clone();
        }
        let output = match item {
            Node::ColumnRef(column) => tree::single_name(column.fields())
                .and_then(|name| outputs.iter().find(|output| output.name == name))
                .and_then(|output| output.origin.clone()),
            _ => None,
        };
        let input = match self.operand(item, frame) {
            Operand::Term(term, _) => Some(term),
            Operand::Value(_) | Operand::Other => None,
        };
        if inputs_first { input.or(output) } else { output.or(input) }
    }

    /// ORDER BY, LIMIT and OFFSET.
    fn scan_tail<'n>(
        &mut self,
        select: &'n nodes::SelectStmt,
        scope: &Scope<'_, 'n>,
        findings: &mut Findings,
    ) -> Result<(), PgError> {
        for sort in select.sort_clause() {
            self.scan(sort.node(), scope, Place::Inside, findings)?;
        }
        self.scan(select.limit_count(), scope, Place::Inside, findings)?;
        self.scan(select.limit_offset(), scope, Place::Inside, findings)
    }

    fn has_limit(&self, select: &nodes::SelectStmt) -> bool {
        let is_given = |node: Node<'_>| match node {
            Node::None => false,
            Node::A_Const(constant) => !constant.isnull,
            _ => true,
        };
        is_given(select.limit_count()) || is_given(select.limit_offset())
    }

    pub fn from_item<'n>(
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
                let mut findings = Findings::default();
                let scope = Scope { frame, ctes, windows: None };
                for item in function.functions() {
                    self.scan(item, &scope, Place::Inside, &mut findings)?;
                }
                subqueries.append(&mut findings.subqueries);
                self.unknown_rows(function.alias(), frame)
            }
            Node::RangeTableFunc(table) => {
                let mut findings = Findings::default();
                let scope = Scope { frame, ctes, windows: None };
                self.scan(table.docexpr(), &scope, Place::Inside, &mut findings)?;
                self.scan(table.rowexpr(), &scope, Place::Inside, &mut findings)?;
                subqueries.append(&mut findings.subqueries);
                self.unknown_rows(table.alias(), frame)
            }
            Node::RangeTableSample(sample) => {
                self.notes.not_pushable(PgError::unsupported(
                    "TABLESAMPLE is not supported across shards",
                    "Each shard would draw a sample of its own.",
                    "Restrict the statement to one shard key.",
                ));
                self.from_item(sample.relation(), frame, ctes, subqueries)
            }
            Node::JoinExpr(join) => self.join(join, frame, ctes, subqueries),
            _ => {
                self.notes.not_pushable(super::functions::unknown_construct("this item of the FROM clause"));
                self.unknown_rows(None, frame)
            }
        }
    }

    fn range_variable<'n>(
        &mut self,
        relation: &'n nodes::RangeVar,
        frame: &mut Frame<'_>,
        ctes: &CteList<'n>,
    ) -> Result<FromItem, PgError> {
        let name = relation.relname().unwrap_or_default();
        if relation.schemaname().is_none() {
            if let Some(cte) = find_cte(ctes, name) {
                return self.cte_reference(&cte, relation.alias(), frame);
            }
        }
        let resolved = relations::resolve(self.context, relation, &self.search_path);
        let leaf = match resolved {
            Resolved::View(view) => return self.view(view, relation, frame),
            other => self.relation_leaf(other, relation)?,
        };
        self.show(leaf, relation.alias(), Some(relation), frame);
        Ok(FromItem::Leaf(leaf))
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
                if let Some(relation) = relation {
                    self.notes.touches(relation.oid);
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
    fn unknown_rows(&mut self, alias: Option<&nodes::Alias>, frame: &mut Frame<'_>) -> Result<FromItem, PgError> {
        let name = alias.and_then(|alias| alias.aliasname()).unwrap_or("function").to_owned();
        let leaf = self.add_leaf(Leaf { name, kind: LeafKind::Replicated, columns: Columns::Unknown, renamed: Vec::new() })?;
        self.show(leaf, alias, None, frame);
        Ok(FromItem::Leaf(leaf))
    }

    fn cte_reference<'n>(
        &mut self,
        cte: &Rc<Cte<'n>>,
        alias: Option<&nodes::Alias>,
        frame: &mut Frame<'_>,
    ) -> Result<FromItem, PgError> {
        let (bound, columns) = match &cte.kind {
            CteKind::Query { node, recursive: None } => (self.query(node.ctequery(), None, &cte.next)?, node.aliascolnames()),
            CteKind::Query { node, recursive: Some((clause, outer)) } => {
                (self.recursive_query(node, clause, outer)?, node.aliascolnames())
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
        if alias.is_none() {
            if let Some(visible) = frame.items.last_mut() {
                visible.name = Some(name.to_owned());
            }
        }
        Ok(item)
    }

    /// A query of WITH RECURSIVE: all queries of the clause are visible in it, and it itself as its own result.
    fn recursive_query<'n>(
        &mut self,
        cte: &'n nodes::CommonTableExpr,
        clause: &'n nodes::WithClause,
        outer: &CteList<'n>,
    ) -> Result<Bound, PgError> {
        let mut list = outer.clone();
        for sibling in clause.ctes() {
            let name = sibling.ctename().unwrap_or_default();
            let is_select = matches!(sibling.ctequery(), Node::SelectStmt(_));
            if is_select && name != cte.ctename().unwrap_or_default() {
                let kind = CteKind::Query { node: sibling, recursive: Some((clause, outer.clone())) };
                list = Some(Rc::new(Cte { name, kind, next: list }));
            } else if !is_select {
                return Err(PgError::unsupported(
                    "INSERT, UPDATE, DELETE and MERGE in WITH RECURSIVE are not supported",
                    format!("\"{name}\" changes data."),
                    "Move it to a WITH clause without RECURSIVE.",
                ));
            }
        }
        let own = Rc::new(Cte { name: cte.ctename().unwrap_or_default(), kind: CteKind::SelfReference, next: list.clone() });
        let list = Some(own);
        match cte.ctequery() {
            Node::SelectStmt(select) if select.op == nodes::SetOperation::SETOP_UNION && select.with_clause().is_none() => {
                let start = select.larg().ok_or_else(unknown_query)?;
                let step = select.rarg().ok_or_else(unknown_query)?;
                let start = self.select(start, None, &list)?;
                let step = self.select(step, None, &list)?;
                let frame = Frame::default();
                let scope = Scope { frame: &frame, ctes: &list, windows: None };
                self.scan_tail(select, &scope, &mut Findings::default())?;
                let outputs = start.outputs.iter().map(|output| Output { origin: None, ..output.clone() }).collect();
                let is_complete = start.is_complete && cte.search_clause().is_none() && cte.cycle_clause().is_none();
                let body = Body::Recursive { start: Box::new(start), step: Box::new(step) };
                Ok(Bound { outputs, is_complete, body, order: Vec::new() })
            }
            other => self.query(other, None, &list),
        }
    }

    /// Opens a view: its definition, under its own names.
    fn view(&mut self, view: &'c Relation, reference: &nodes::RangeVar, frame: &mut Frame<'_>) -> Result<FromItem, PgError> {
        self.notes.touches(view.oid);
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
        let mut bound = bound?;
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
        let before = frame.items.len();
        let left = Box::new(self.from_item(join.larg(), frame, ctes, subqueries)?);
        let between = frame.items.len();
        let right = Box::new(self.from_item(join.rarg(), frame, ctes, subqueries)?);
        let mut on = self.merge_columns(join, kind, frame, before, between);
        let mut findings = Findings::default();
        {
            let scope = Scope { frame, ctes, windows: None };
            if kind == Join::Inner {
                on.extend(self.filter(join.quals(), &scope, &mut findings)?);
            } else {
                on.extend(self.outer_on(join.quals(), &scope, &mut findings)?);
            }
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
    fn merge_columns(&mut self, join: &nodes::JoinExpr, kind: Join, frame: &mut Frame<'_>, before: usize, between: usize) -> Facts {
        let names: Option<Vec<String>> = if join.is_natural {
            self.common_columns(frame, before, between)
        } else {
            Some(join.using_clause().iter().filter_map(|name| name.sval()).map(str::to_owned).collect())
        };
        let Some(names) = names else {
            frame.has_unknown_merge = true;
            return Facts::new();
        };
        let mut facts = Facts::new();
        for name in names {
            let left = self.column_among(&name, frame, before, between);
            let right = self.column_among(&name, frame, between, frame.items.len());
            if let (Some(left), Some(right)) = (left, right) {
                let types = (self.comparable_type(left), self.comparable_type(right));
                if let (Some(left_type), Some(right_type), true) = (types.0, types.1, self.operators_are_plain()) {
                    if super::leaves::same_family(left_type, right_type) {
                        facts.push(Rc::new(Predicate::Same(left.into(), right.into())));
                    }
                }
            }
            let merged = match kind {
                Join::Inner | Join::Left => left,
                Join::Right => right,
                Join::Full => None,
            };
            frame.merged.retain(|(known, _)| *known != name);
            frame.merged.push((name, merged));
        }
        facts
    }

    fn column_among(&self, name: &str, frame: &Frame<'_>, from: usize, to: usize) -> Option<Column> {
        // A column merged by a join further inside is what the name means there.
        let merged = frame.merged.iter().find(|(known, _)| known == name).and_then(|(_, column)| *column);
        let mut found = None;
        for item in frame.items.get(from..to)? {
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
    fn hide_behind_alias(&mut self, alias: &nodes::Alias, frame: &mut Frame<'_>, before: usize) {
        let hidden = frame.items.split_off(before.min(frame.items.len()));
        let mut outputs = Vec::new();
        let mut is_complete = frame.merged.is_empty() && !frame.has_unknown_merge && alias.colnames().is_empty();
        for item in &hidden {
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
}

impl Output {
    pub fn unknown(name: impl Into<String>) -> Self {
        Self { name: name.into(), origin: None, properties: ColumnProperties::default() }
    }
}

impl Reader<'_> {
    /// The rows that a modification in WITH returns.
    fn modification_rows(&self, leaf: usize) -> Bound {
        let facts = self.returned.get(&leaf).cloned().unwrap_or_default();
        let (outputs, is_complete) = match self.leaves.get(leaf).map(|leaf| &leaf.columns) {
            Some(Columns::Listed(outputs)) => (outputs.clone(), true),
            Some(Columns::Relation(_) | Columns::Unknown) | None => (Vec::new(), false),
        };
        Bound { outputs, is_complete, body: Body::Modification { facts }, order: Vec::new() }
    }

    pub fn is_in_view(&self) -> bool {
        self.view_depth > 0
    }

    pub fn properties(&self, column: Column) -> ColumnProperties {
        self.leaves.get(column.leaf).map(|leaf| leaf.properties(column.index, &self.context.catalog)).unwrap_or_default()
    }

    fn comparable_type(&self, column: Column) -> Option<KeyType> {
        let properties = self.properties(column);
        KeyType::of_column(properties.type_oid).filter(|_| properties.is_deterministic)
    }

    pub fn term_type(&self, term: &Term) -> Option<KeyType> {
        let column_type = self.comparable_type(term.column)?;
        match &term.function {
            Some(function) => function.result_type(column_type),
            None => Some(column_type),
        }
    }

    /// The literal that begins at a parse location, and whether a minus sign stands before it.
    pub fn literal_at(&self, location: i32) -> Option<(usize, bool)> {
        let location = u32::try_from(location).ok()?;
        let ordinal = self.literals.partition_point(|literal| literal.start < location);
        let start = self.literals.get(ordinal)?.start;
        if start == location {
            return Some((ordinal, false));
        }
        let between = self.text.get(location as usize..start as usize)?;
        (between.trim_end() == "-").then_some((ordinal, true))
    }

    /// The reading depends on this literal's value.
    pub fn fix_literal(&mut self, location: i32) {
        if self.is_in_view() {
            return;
        }
        match self.literal_at(location).and_then(|(ordinal, _)| u16::try_from(ordinal).ok()) {
            Some(ordinal) => {
                self.notes.fixed_literals.insert(ordinal);
            }
            None => self.notes.is_bound_to_text = true,
        }
    }
}

fn find_cte<'n>(ctes: &CteList<'n>, name: &str) -> Option<Rc<Cte<'n>>> {
    let mut current = ctes.as_ref();
    while let Some(cte) = current {
        if cte.name == name {
            return Some(Rc::clone(cte));
        }
        current = cte.next.as_ref();
    }
    None
}

/// One more row's value of a VALUES column; another type, or an expression, ends what is known of it.
fn add_value(column: &mut Option<(KeyType, Vec<KeyValue>)>, value: Option<(KeyType, KeyValue)>) {
    match (column.as_mut(), value) {
        (Some((column_type, values)), Some((value_type, value))) if *column_type == value_type && values.len() < VALUES_MAX => {
            values.push(value);
        }
        _ => *column = None,
    }
}

/// ORDER BY, LIMIT, WITH of its own: a branch that is not merely the left end of a chain.
fn has_tail(select: &nodes::SelectStmt) -> bool {
    !select.sort_clause().is_empty()
        || !matches!(select.limit_count(), Node::None)
        || !matches!(select.limit_offset(), Node::None)
        || select.with_clause().is_some()
        || !select.locking_clause().is_empty()
}

fn combined(operation: SetOperation, is_all: bool, left: Bound, right: Bound) -> Bound {
    let is_complete = left.is_complete && right.is_complete && left.outputs.len() == right.outputs.len();
    let outputs = left
        .outputs
        .iter()
        .zip(&right.outputs)
        .map(|(left, right)| {
            let (a, b) = (&left.properties, &right.properties);
            let properties = if a.type_oid == b.type_oid {
                ColumnProperties {
                    type_oid: a.type_oid,
                    typmod: -1,
                    is_deterministic: a.is_deterministic && b.is_deterministic,
                    is_collation_c: a.is_collation_c && b.is_collation_c,
                    is_not_null: a.is_not_null && b.is_not_null,
                }
            } else {
                ColumnProperties::default()
            };
            Output { name: left.name.clone(), origin: None, properties }
        })
        .collect();
    let body = Body::SetOperation {
        operation,
        is_all,
        left: Box::new(left),
        right: Box::new(right),
        has_limit: false,
        subqueries: Vec::new(),
    };
    Bound { outputs, is_complete, body, order: Vec::new() }
}

fn derived_leaf<'c>(name: &str, outputs: Vec<Output>, is_complete: bool, renamed: &NodeList) -> Leaf<'c> {
    let columns = if is_complete { Columns::Listed(outputs) } else { Columns::Unknown };
    let renamed = renamed.iter().filter_map(Node::as_str).map(str::to_owned).collect();
    Leaf { name: name.to_owned(), kind: LeafKind::Derived, columns, renamed }
}

/// The name PostgreSQL gives to an output without an alias, as far as names can matter here.
fn output_name(value: Node<'_>) -> String {
    match value {
        Node::ColumnRef(column) => column.fields().iter().filter_map(Node::as_str).last().unwrap_or_default().to_owned(),
        Node::FuncCall(call) => call.funcname().iter().filter_map(Node::as_str).last().unwrap_or_default().to_owned(),
        Node::TypeCast(cast) => match tree::without_casts(cast.arg()) {
            inner @ (Node::ColumnRef(_) | Node::FuncCall(_)) => output_name(inner),
            _ => "?column?".to_owned(),
        },
        _ => "?column?".to_owned(),
    }
}

pub fn too_complex() -> PgError {
    PgError::new(SqlState::STATEMENT_TOO_COMPLEX, "statement is too complex to be routed")
        .with_detail(format!(
            "Queries may nest {QUERY_DEPTH_MAX} deep, a set operation may have {SET_BRANCHES_MAX} branches, and a statement {LEAVES_MAX} references to tables, views and WITH queries opened."
        ))
        .with_hint("Split the statement, or set shardgate.shard to send it to one shard unchanged.")
}

pub fn unknown_query() -> PgError {
    PgError::unsupported(
        "this form of query is not known",
        "It belongs to a newer PostgreSQL than this proxy reads.",
        "Write it in the form of PostgreSQL 15.",
    )
}

fn unknown_view(name: &str) -> PgError {
    PgError::unsupported(
        format!("view \"{name}\" cannot be read"),
        "Its definition is in a form that the proxy does not know.",
        "Use the tables that it is defined on.",
    )
}
