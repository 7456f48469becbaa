//! Binding: names resolved, WITH and views opened, the parse tree turned into [`Bound`].

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use pg_raw_parse::{ConstValue, Node, nodes};

use super::aggregate::GroupedQuery;
use super::distinct::OnItem;
use super::equal_image::{has_equal_image, united};
use super::expression::{Findings, Place, Scope, is_equality};
use super::found_first::{Asked, Level};
use super::from::LEAVES_MAX;
use super::functions::volatile;
use super::leaves::{Leaf, LeafKind};
use super::outline::Outline;
use super::predicate::{Operand, is_star};
use super::scope::Frame;
use super::with::CteList;
use super::{Block, Body, Bound, Column, ColumnProperties, Distinct, Facts, Grouping, Output, Predicate, SetOperation, Term};
use crate::error::{PgError, SqlState};
use crate::shard_key::{KeyType, Oid, oid};
use crate::sql::analysis::{Fact, KeyValue, Locking, Merge, Part, SessionCall};
use crate::sql::context::Context;
use crate::sql::notes::Notes;
use crate::sql::parse::lexer::{Literal, LiteralClass};

/// Queries nest no deeper: a limit of ours, so that no text overflows the stack.
pub const QUERY_DEPTH_MAX: usize = 40;
/// Branches of one UNION, INTERSECT or EXCEPT chain.
const SET_BRANCHES_MAX: usize = 200;
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
    /// Relations that the text names, but for WITH queries: schema, if given, and name.
    pub named: BTreeSet<(Option<String>, String)>,
    /// What the statement needs to be on one shard.
    pub parts: Vec<Part>,
    pub why: Vec<Fact>,
    /// What holds for the rows that a modification in WITH returns, by the leaf that stands for them.
    pub returned: HashMap<usize, Facts>,
    /// EXCLUDED of the INSERT that is read.
    pub excluded_leaf: Option<usize>,
    pub depth: usize,
    pub view_depth: usize,
    /// The statement is a query.
    pub is_query: bool,
    /// Of the outermost query.
    pub outline: Option<Outline>,
    /// How groups of the outermost query would be made of the shards' parts.
    pub groups: Option<Result<Merge, PgError>>,
    pub draws: Draws,
    /// Of the outermost query.
    pub distinct_on_items: Vec<OnItem>,
    /// Of the outermost query, where they can be taken on several shards.
    pub locking: Option<Locking>,
    /// What to do where they cannot.
    pub lock_hint: Option<String>,
    /// A query inside takes row locks too.
    pub has_inner_locks: bool,
    /// The statement is a SELECT, in whose text one time can be put in the place of each shard's clock.
    pub moves_clocks: bool,
    /// A function in the select list that is read, with another value on each call: the first one found.
    pub drawn: Option<String>,
    /// Of the query that is read next.
    pub asked: Asked,
    /// At this depth the RETURNING of an INSERT is read.
    pub returns_inserted: Option<usize>,
    /// The statement is an INSERT, UPDATE, DELETE or MERGE.
    pub is_modification: bool,
    /// A query of a function's body: a name that is no column is a parameter or a variable.
    pub is_body: bool,
    /// How many bodies of functions this one is in.
    pub body_depth: usize,
    /// Sharded tables that triggers of this statement touch by the key of their row.
    pub keyed: BTreeSet<Oid>,
    /// The one item of FROM may be a function of the schema `shardgate` that changes the map.
    pub may_declare: bool,
}

/// Calls that give a number, where the proxy puts one in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draws {
    Nothing,
    /// In the value of a row.
    Value,
    /// In a SELECT of nothing but values.
    Select,
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
            named: BTreeSet::new(),
            parts: Vec::new(),
            why: Vec::new(),
            returned: HashMap::new(),
            excluded_leaf: None,
            depth: 0,
            view_depth: 0,
            is_query: false,
            outline: None,
            groups: None,
            draws: Draws::Nothing,
            asked: Asked::Rows,
            returns_inserted: None,
            is_modification: false,
            is_body: false,
            body_depth: 0,
            keyed: BTreeSet::new(),
            may_declare: false,
            distinct_on_items: Vec::new(),
            locking: None,
            lock_hint: None,
            has_inner_locks: false,
            moves_clocks: false,
            drawn: None,
        }
    }

    /// Reads and places the statement's own query; how its answers merge.
    pub fn outermost(&mut self, select: &nodes::SelectStmt) -> Result<Result<Merge, PgError>, PgError> {
        self.outline = Outline::of(self.text, select);
        self.is_query = true;
        let bound = self.select(select, None, &None)?;
        let placed = self.place(&bound, None, &Facts::new(), &[]);
        Ok(match placed.combined {
            Some(combined) => self.combine(select, &bound, combined),
            None => self.merge(select, &bound),
        })
    }

    /// The clock is read here.
    pub fn note_clock(&mut self, name: &str) {
        if self.moves_clocks && self.view_depth == 0 {
            self.notes.session_call(SessionCall::Server);
        } else {
            self.notes.clock(name);
        }
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

    /// An expression that stands by itself.
    pub fn expression(&mut self, node: Node<'_>) -> Result<(), PgError> {
        self.expression_at(node, Place::Inside)
    }

    /// A default, or what else is evaluated for each row of a table.
    pub fn value_of_rows(&mut self, node: Node<'_>) -> Result<(), PgError> {
        self.expression_at(node, Place::Output)
    }

    fn expression_at(&mut self, node: Node<'_>, place: Place) -> Result<(), PgError> {
        let frame = Frame::default();
        let scope = Scope { frame: &frame, ctes: &None, windows: None };
        let mut findings = Findings::default();
        self.scan(node, &scope, place, &mut findings)?;
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
        let bound = with_stack(|| self.select_inside(select, outer, ctes));
        self.depth -= 1;
        bound
    }

    fn select_inside<'n>(
        &mut self,
        select: &'n nodes::SelectStmt,
        outer: Option<&Frame<'_>>,
        ctes: &CteList<'n>,
    ) -> Result<Bound, PgError> {
        let asked = std::mem::take(&mut self.asked);
        let ctes = self.with(select.with_clause(), outer, ctes)?;
        if select.op != nodes::SetOperation::SETOP_NONE {
            return self.set_operation(select, outer, &ctes, asked);
        }
        if !select.values_lists().is_empty() {
            return self.values(select, outer, &ctes);
        }
        self.block(select, outer, &ctes, asked)
    }

    fn set_operation<'n>(
        &mut self,
        select: &'n nodes::SelectStmt,
        outer: Option<&Frame<'_>>,
        ctes: &CteList<'n>,
        asked: Asked,
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
        let first_leaf = self.leaves.len();
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
        let is_limited = self.has_limit(select);
        if let Body::SetOperation { has_limit, subqueries, .. } = &mut bound.body {
            *has_limit = is_limited;
            *subqueries = findings.subqueries;
        }
        bound.order = self.order(select, None, (&bound.outputs, bound.is_complete));
        self.note_shown_equals_of_set(&bound, is_limited);
        if self.depth > 1 || self.is_modification || self.is_body {
            self.note_found_first_of_set(select, &bound, first_leaf..self.leaves.len(), asked);
        }
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
        let mut is_complete = true;
        for (number, row) in select.values_lists().iter().enumerate() {
            let row = row.as_node_list().ok_or_else(unknown_query)?;
            for (index, value) in row.iter().enumerate() {
                self.scan(value, &scope, Place::Inside, &mut findings)?;
                is_complete &= !is_star(value);
                let value = self.typed_value(value, &frame);
                match (number, columns.get_mut(index)) {
                    (0, _) => columns.push(value.map(|(value_type, value)| (value_type, vec![value]))),
                    (_, Some(column)) => add_value(column, value),
                    (_, None) => {}
                }
            }
        }
        self.scan_tail(select, &scope, &mut findings)?;
        if !is_complete {
            columns.iter_mut().for_each(|column| *column = None);
        }
        let outputs = columns
            .iter()
            .enumerate()
            .map(|(index, column)| {
                let type_oid = column.as_ref().map(|(value_type, _)| value_type.oid()).unwrap_or_default();
                // Those of one known type have it for certain.
                let has_equal_image = type_oid != 0 && has_equal_image(type_oid, -1, &self.context.catalog);
                let known = ColumnProperties { type_oid, typmod: -1, is_deterministic: true, ..ColumnProperties::default() };
                let properties = ColumnProperties { has_equal_image, ..known };
                Output { properties, ..Output::unknown(format!("column{}", index + 1)) }
            })
            .collect();
        let body = Body::Values { columns, subqueries: findings.subqueries };
        Ok(Bound { outputs, is_complete, body, order: Vec::new() })
    }

    /// A constant or parameter whose type is certain outside any comparison.
    fn typed_value(&mut self, node: Node<'_>, frame: &Frame<'_>) -> Option<(KeyType, KeyValue)> {
        let Operand::Value(value) = self.operand(node, frame) else {
            return None;
        };
        let oid = match &value {
            KeyValue::Parameter { cast, .. } => (*cast)?,
            KeyValue::Literal { cast: Some(cast), .. } => *cast,
            KeyValue::Literal { ordinal, cast: None, .. } => match self.literals.get(*ordinal as usize)?.class {
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
        asked: Asked,
    ) -> Result<Bound, PgError> {
        let mut frame = Frame::inside(outer);
        let mut block = Block::default();
        let mut findings = Findings::default();
        let first_leaf = self.leaves.len();
        let drawn_around = self.drawn.take();
        for item in select.from_clause() {
            let item = self.item_of_from(item, &mut frame, ctes, &mut findings.subqueries)?;
            block.from.push(item);
        }
        let leaves = first_leaf..self.leaves.len();
        let scope = Scope { frame: &frame, ctes, windows: Some(select.window_clause()) };
        block.filter = self.filter(select.where_clause(), &scope, &mut findings)?;
        block.row_subquery_count = findings.subqueries.len();
        let (outputs, is_complete) = self.targets(select.target_list().iter(), &scope, &mut findings)?;
        block.grouping = self.grouping(select, &scope, (&outputs, is_complete), &mut findings)?;
        for window in select.window_clause() {
            self.scan(window, &scope, Place::Inside, &mut findings)?;
        }
        self.scan_tail(select, &scope, &mut findings)?;
        block.distinct = self.distinct(select.distinct_clause(), &scope, (&outputs, is_complete), &mut findings)?;
        if findings.has_aggregate && matches!(block.grouping, Grouping::None) {
            block.grouping = Grouping::Whole;
        }
        block.windows = findings.windows;
        block.distinct_arguments = findings.distinct_arguments;
        block.subqueries = findings.subqueries;
        block.has_limit = self.has_limit(select);
        if !select.locking_clause().is_empty() {
            block.is_locking = true;
            self.notes.locks();
            self.locking = self.row_locks(select, &frame);
            self.lock_hint = self.lock_less(select, &frame).filter(|_| self.depth == 1);
            self.note_locked_copies(select, &frame, leaves.clone());
            self.has_inner_locks |= self.depth > 1;
        }
        let drawn = std::mem::replace(&mut self.drawn, drawn_around);
        if let Some(name) = drawn.filter(|_| !self.has_sharded_leaf(first_leaf)) {
            // No row of a shard is there for whose sake it would be drawn: one value is for all of them.
            self.notes.not_pushable(volatile(&name));
        }
        let order = self.order(select, Some(&frame), (&outputs, is_complete));
        let level = Level { select, frame: &frame, block: &block, outputs: &outputs, is_complete, order: &order, leaves };
        self.note_shown_equals(&level);
        if self.depth > 1 || self.is_modification || self.is_body {
            self.note_found_first(&level, asked);
        }
        if self.depth == 1 && matches!(block.grouping, Grouping::Whole | Grouping::By(_)) {
            let source = GroupedQuery { select, frame: &frame, outputs: &outputs, is_complete, block: &block, order: &order };
            self.groups = Some(self.grouped(&source));
        }
        if self.depth == 1 && matches!(block.distinct, Distinct::On(_)) {
            self.distinct_on_items = self.distinct_on(select.distinct_clause(), &frame, (&outputs, is_complete));
        }
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
        let is_membership = sublink.sub_link_type == Type::ANY_SUBLINK && is_equality(sublink) && self.operators_are_plain();
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
        if tests.len() != bound.outputs.len() || !bound.is_complete || tests.iter().copied().any(is_star) {
            return link;
        }
        for (index, test) in tests.into_iter().enumerate() {
            let inner = super::facts::filterable_origin(bound, index);
            if let (Operand::Term(outer, outer_type), Some(inner)) = (self.operand(test, scope.frame), inner)
                && self.term_type(&inner).is_some_and(|inner_type| super::leaves::same_family(inner_type, outer_type))
            {
                link.push(Rc::new(Predicate::Same(outer, inner)));
            }
        }
        link
    }

    /// ORDER BY, LIMIT and OFFSET.
    pub fn scan_tail<'n>(
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
        is_given(select.limit_count()) || is_given(select.limit_offset())
    }

    /// It has a LIMIT, or an OFFSET that is not `OFFSET 0`.
    pub fn leaves_out_rows(&mut self, select: &nodes::SelectStmt) -> bool {
        let offset = match select.limit_offset() {
            Node::A_Const(constant) if matches!(constant.val(), Some(ConstValue::Integer(0))) => Some(constant.location),
            _ => None,
        };
        match offset {
            _ if is_given(select.limit_count()) => true,
            Some(location) => {
                self.fix_literal(location);
                false
            }
            None => is_given(select.limit_offset()),
        }
    }

    fn has_sharded_leaf(&self, first: usize) -> bool {
        self.leaves.iter().skip(first).any(|leaf| matches!(leaf.kind, LeafKind::Sharded { .. }))
    }

    pub fn is_in_view(&self) -> bool {
        self.view_depth > 0
    }

    pub fn properties(&self, column: Column) -> ColumnProperties {
        self.leaves.get(column.leaf).map(|leaf| leaf.properties(column.index, &self.context.catalog)).unwrap_or_default()
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
        match self.literal_at(location).and_then(|(ordinal, _)| u32::try_from(ordinal).ok()) {
            Some(ordinal) => {
                self.notes.fixed_literals.insert(ordinal);
            }
            None => self.notes.is_bound_to_text = true,
        }
    }
}

impl Output {
    pub fn unknown(name: impl Into<String>) -> Self {
        Self { name: name.into(), origin: None, properties: ColumnProperties::default() }
    }
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
            let is_same_type = a.type_oid == b.type_oid;
            let properties = ColumnProperties {
                type_oid: if is_same_type { a.type_oid } else { 0 },
                is_domain: a.is_domain || b.is_domain,
                typmod: if is_same_type { -1 } else { 0 },
                is_deterministic: a.is_deterministic && b.is_deterministic,
                is_collation_c: a.is_collation_c && b.is_collation_c,
                collation: a.collation.clone().filter(|_| a.collation == b.collation),
                is_not_null: is_same_type && a.is_not_null && b.is_not_null,
                has_equal_image: united(a, b),
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

/// Recursion over queries goes through here: it moves to a larger stack when a worker's is nearly used up.
pub fn with_stack<R>(read: impl FnOnce() -> R) -> R {
    const LEFT_BYTES_MIN: usize = 512 * 1024;
    const STACK_BYTES: usize = 4 * 1024 * 1024;
    stacker::maybe_grow(LEFT_BYTES_MIN, STACK_BYTES, read)
}

pub fn too_complex() -> PgError {
    PgError::new(SqlState::STATEMENT_TOO_COMPLEX, "statement is too complex to be routed")
        .with_detail(format!(
            "Queries may nest {QUERY_DEPTH_MAX} deep, a set operation may have {SET_BRANCHES_MAX} branches, and a statement {LEAVES_MAX} references to tables, views and WITH queries opened."
        ))
        .with_hint("Split the statement, or, if it only reads, set shardgate.shard to send it to one shard unchanged.")
}

/// LIMIT or OFFSET; ALL and NULL are none.
fn is_given(node: Node<'_>) -> bool {
    match node {
        Node::None => false,
        Node::A_Const(constant) => !constant.isnull,
        _ => true,
    }
}

pub fn unknown_query() -> PgError {
    PgError::unsupported(
        "this form of query is not known",
        "It belongs to a newer PostgreSQL than this proxy reads.",
        "Write it in the form of PostgreSQL 15.",
    )
}
