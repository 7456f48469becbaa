//! What a query text names, with where: relations, columns, functions, constructs that matter when its tables are gathered.
//!
//! Walks the whole parse tree, sub-selects and WITH queries included. A WITH query hides a table only where it is visible. The
//! [`Survey::trace`] of two texts says whether they are the same query but for the names of relations: it is how a spliced text
//! is proven. A node that is not known is an error: it might name a table.

use std::mem::discriminant;
use std::ops::Range;

use pg_raw_parse::list::NodeList;
use pg_raw_parse::{Node, nodes};

use super::filters::{self, ColumnName, Filter, Unqualified};
use super::groups::{self, Groups};
use super::inner::Inner;
use super::lookups::{self, Lookup};
use super::own_names::{self, Cast};
use super::reading::{ConditionRead, Operand, Reading};
use super::refusals;
use crate::error::PgError;
use crate::sql::parse::tree;

/// Everything that was met, in the order of the walk.
#[derive(Debug, Default)]
pub struct Survey {
    pub relations: Vec<RelationUse>,
    pub columns: Vec<ColumnUse>,
    pub calls: Vec<Call>,
    pub casts: Vec<Cast>,
    /// Operators without a schema.
    pub operators: Vec<String>,
    /// Names that the text gives: aliases of anything, columns of aliases and WITH queries.
    pub given_names: Vec<String>,
    /// Names of the items of FROM: each may mean a whole row.
    pub row_names: Vec<String>,
    /// Last names of the columns in GROUP BY clauses.
    pub group_names: Vec<String>,
    /// A GROUP BY clause names its columns by position.
    pub has_group_ordinal: bool,
    /// NATURAL joins, and aliases of joins that rename columns: every column counts.
    pub uses_all_columns: bool,
    /// CURRENT_TIMESTAMP and its kind.
    pub has_clock: bool,
    pub filters: Vec<Filter>,
    /// Equalities in sub-selects that may be evaluated once for each row around them.
    pub lookups: Vec<Lookup>,
    /// SELECTs that have a FROM.
    pub levels: Vec<Level>,
    pub equalities: Vec<Equality>,
    pub usings: Vec<Using>,
    pub existences: Vec<Existence>,
    /// SELECTs below the outermost, inner ones first.
    pub inner: Vec<Inner>,
    pub trace: Vec<Step>,
}

/// A table or view in FROM; never a WITH query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelationUse {
    /// Byte offset of its name.
    pub location: usize,
    pub schema: Option<String>,
    pub name: String,
    pub alias: Option<String>,
    /// The alias renames columns.
    pub has_column_aliases: bool,
    /// Not ONLY.
    pub with_children: bool,
}

/// A column, a whole row or a star.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnUse {
    pub location: Option<usize>,
    pub path: Vec<String>,
    /// Ends in `*`.
    pub is_star: bool,
    /// The list of an EXISTS, which nobody looks at.
    pub is_ignored: bool,
    /// The direct argument of this function, unqualified.
    pub argument_of: Option<String>,
    /// Levels whose tables it may name; `None`: others too, which are not known where it is met.
    pub around: Option<Vec<usize>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub schema: Option<String>,
    pub name: String,
    pub argument_count: usize,
    /// Text of the first argument when it is a constant.
    pub first_constant: Option<String>,
}

/// One SELECT of the query.
#[derive(Debug)]
pub struct Level {
    /// The SELECT around it, when what is looked for is a column that is not found here. `None` also where that one's own tables
    /// are not visible: in its FROM and WITH.
    pub parent: Option<usize>,
    /// Every table of its FROM: indexes in the survey's relations.
    pub relations: Vec<usize>,
    /// Those that no outer join extends by NULLs: of each row that the level has, they have a row of their own.
    pub kept: Vec<usize>,
    pub unqualified: Unqualified,
    /// There is nothing else in FROM.
    pub is_closed: bool,
    /// Names of the items of FROM.
    pub names: Vec<String>,
    /// Sub-selects and WITH queries in FROM that are one SELECT each.
    pub derived: Vec<Derived>,
    /// Columns of its own that it hands on.
    pub outputs: Vec<Output>,
    /// Place of the sub-select in an expression.
    pub entered_by: Option<i32>,
    /// Its only column.
    pub output: Option<ColumnName>,
    pub groups: Option<Groups>,
    /// Only whether it has a row matters, or one of these values.
    pub is_membership: bool,
}

/// `column = column`, or `column IN (SELECT …)`, in a conjunction.
#[derive(Debug)]
pub struct Equality {
    pub level: usize,
    /// Tables of the level whose rows it filters.
    pub relations: Vec<usize>,
    /// Which of the level's names it sees, in an ON; `None`: all.
    pub visible: Option<Range<usize>>,
    pub left: ColumnName,
    pub right: Right,
}

#[derive(Debug)]
pub enum Right {
    Column(ColumnName),
    /// By its place.
    SubSelect(i32),
}

/// A column of USING.
#[derive(Debug)]
pub struct Using {
    pub level: usize,
    pub name: String,
    pub left: Side,
    pub right: Side,
    /// Tables whose rows it filters.
    pub relations: Vec<usize>,
}

/// One side of a join.
#[derive(Debug)]
pub enum Side {
    /// The name by which its columns may be qualified.
    Item(String),
    /// A join of these: the first that has such a column.
    Join(Vec<usize>),
}

/// `EXISTS (SELECT …)` or `column IN (SELECT …)` in a conjunction.
#[derive(Debug)]
pub struct Existence {
    /// Of the sub-select.
    pub place: i32,
    /// Tables whose rows it filters.
    pub relations: Vec<usize>,
}

/// A SELECT in FROM.
#[derive(Debug)]
pub struct Derived {
    /// The name by which its columns may be qualified.
    pub name: String,
    /// Its level.
    pub level: usize,
}

/// An item of a SELECT's list.
#[derive(Debug)]
pub enum Output {
    Column {
        name: String,
        column: ColumnName,
    },
    /// `*`, `t.*`.
    All(Option<String>),
}

/// One step of the walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Index in [`Survey::relations`].
    Relation(usize),
    /// Index in [`Survey::columns`].
    Column(usize),
    Other(String),
}

/// Surveys a query.
pub fn survey(query: Node<'_>) -> Result<Survey, PgError> {
    let mut walk = Walk {
        survey: Survey::default(),
        is_repeated: false,
        is_exists: false,
        is_any: false,
        ignores_star: false,
        entered_by: None,
        around: Vec::new(),
        derived: Vec::new(),
        finished: None,
    };
    walk.query(query, &Names::default())?;
    Ok(walk.survey)
}

impl Survey {
    /// The table's name may mean this table where the column stands: it is of a level that is visible there, and no level further
    /// inside has another item of that name.
    pub fn may_be_named(&self, relation: usize, column: &ColumnUse) -> bool {
        let (Some(around), Some(used)) = (&column.around, self.relations.get(relation)) else { return true };
        for level in around.iter().rev().filter_map(|level| self.levels.get(*level)) {
            if level.relations.contains(&relation) {
                return true;
            }
            if level.unqualified != Unqualified::Hidden && level.names.iter().any(|name| name == used.effective_name()) {
                return false;
            }
        }
        false
    }

    /// The relations whose columns a star stands for; `None`: it may be any.
    pub fn starred(&self, star: &ColumnUse) -> Option<Vec<usize>> {
        let level = self.levels.get(*star.around.as_ref()?.last()?)?;
        let Some(name) = star.path.last() else { return Some(level.relations.clone()) };
        let is_called = |index: &usize| self.relations.get(*index).is_some_and(|relation| relation.effective_name() == name);
        let found: Vec<usize> = level.relations.iter().copied().filter(is_called).collect();
        // A sub-select has its own columns, and those of a join are of the tables in it.
        let is_of_level = level.unqualified != Unqualified::Hidden && level.names.contains(name);
        is_of_level.then_some(found)
    }

    /// The relation is kept at a level around this one.
    pub fn is_outer(&self, relation: usize, level: usize) -> bool {
        let parent = |level: usize| self.levels.get(level).and_then(|level| level.parent);
        std::iter::successors(parent(level), |level| parent(*level))
            .any(|outer| self.levels.get(outer).is_some_and(|outer| outer.kept.contains(&relation)))
    }
}

impl RelationUse {
    /// The name by which columns may be qualified.
    pub fn effective_name(&self) -> &str {
        self.alias.as_deref().unwrap_or(&self.name)
    }
}

/// WITH queries that are visible, and the levels of those that are one SELECT.
#[derive(Clone, Debug, Default)]
struct Names(Vec<(String, Option<usize>)>);

struct Walk {
    survey: Survey,
    /// What is walked next is the outermost level of a sub-select that PostgreSQL does not make a join of.
    is_repeated: bool,
    /// It is that of an EXISTS.
    is_exists: bool,
    /// It is that of `IN` or `op ANY`.
    is_any: bool,
    /// A star that is met now stands for nothing.
    ignores_star: bool,
    /// The place of that sub-select.
    entered_by: Option<i32>,
    /// Levels whose tables are visible in what is walked, the innermost last; `None` where it also sees tables of a level that is
    /// not known yet.
    around: Vec<Option<usize>>,
    /// Of the FROM that is walked.
    derived: Vec<Derived>,
    /// The level of the query that was walked last, when it is one SELECT.
    finished: Option<usize>,
}

impl Walk {
    fn note(&mut self, step: impl Into<String>) {
        self.survey.trace.push(Step::Other(step.into()));
    }

    fn query(&mut self, node: Node<'_>, visible: &Names) -> Result<(), PgError> {
        match node {
            Node::SelectStmt(select) => stacker::maybe_grow(STACK_LEFT_BYTES_MIN, STACK_BYTES, || self.select(select, visible)),
            _ => Err(refusals::construct("a statement that changes data in WITH")),
        }
    }

    fn select(&mut self, select: &nodes::SelectStmt, outer: &Names) -> Result<(), PgError> {
        if select.into_clause().is_some() || !select.locking_clause().is_empty() {
            return Err(refusals::construct("SELECT INTO or a locking clause"));
        }
        let is_repeated = std::mem::take(&mut self.is_repeated);
        let entered_by = self.entered_by.take();
        let is_exists = std::mem::take(&mut self.is_exists) && select.op == nodes::SetOperation::SETOP_NONE;
        let is_membership = (std::mem::take(&mut self.is_any) || is_exists) && is_plain(select);
        let begun = Inner::begun(select, &self.survey);
        let mut visible = outer.clone();
        if let Some(with) = select.with_clause() {
            self.with(with, &mut visible)?;
        }
        self.note(format!("select {} {} {} {}", select.op, select.all, select.group_distinct, select.limit_option));
        for branch in [select.larg(), select.rarg()].into_iter().flatten() {
            self.query(Node::SelectStmt(branch), &visible)?;
        }
        let around = std::mem::take(&mut self.derived);
        for item in select.from_clause() {
            self.item_of_from(item, &visible)?;
        }
        let derived = std::mem::replace(&mut self.derived, around);
        let level = self.level(select, (is_repeated, is_membership), entered_by, derived);
        self.expressions(select.distinct_clause(), &visible)?;
        // How many different rows there are may matter: OFFSET counts them.
        let is_distinct = !select.distinct_clause().is_empty();
        for target in select.target_list() {
            self.survey.given_names.extend(target.name().map(str::to_owned));
            self.ignores_star = is_exists && !is_distinct && matches!(target.val(), Node::ColumnRef(_));
            self.expression(Node::ResTarget(target), &visible)?;
            self.ignores_star = false;
        }
        self.expression(select.where_clause(), &visible)?;
        for item in select.group_clause() {
            self.grouping(item);
            self.expression(item, &visible)?;
        }
        self.expression(select.having_clause(), &visible)?;
        self.expressions(select.window_clause(), &visible)?;
        for row in select.values_lists() {
            self.expression(row, &visible)?;
        }
        for sort in select.sort_clause() {
            self.note(format!("sort {} {}", sort.sortby_dir, sort.sortby_nulls));
            self.expression(sort.node(), &visible)?;
        }
        self.expression(select.limit_count(), &visible)?;
        self.expression(select.limit_offset(), &visible)?;
        self.around.pop();
        self.finished = (select.op == nodes::SetOperation::SETOP_NONE).then_some(level);
        self.note("end");
        if let Some(inner) = begun.filter(|inner| inner.steps.start > 0) {
            let ended = inner.ended(&self.survey, level);
            self.survey.inner.push(ended);
        }
        Ok(())
    }

    /// Notes the level and its conditions: of WHERE, and of ON for the sides of joins that it filters. `is_repeated`: it may be
    /// evaluated once for each row around it.
    fn level(
        &mut self,
        select: &nodes::SelectStmt,
        (is_repeated, is_membership): (bool, bool),
        entered_by: Option<i32>,
        derived: Vec<Derived>,
    ) -> usize {
        let mut read = Reading::default();
        let mut kept = Vec::new();
        for item in select.from_clause() {
            kept.extend(read.item(item));
        }
        read.conditions.push(ConditionRead { root: select.where_clause(), filtered: kept.clone(), visible: None });
        let only_output = match select.target_list().iter().collect::<Vec<_>>().as_slice() {
            [only] if select.op == nodes::SetOperation::SETOP_NONE => filters::column(only.val()),
            _ => None,
        };
        let relations = self.at(&read.places);
        let level = self.survey.levels.len();
        let unqualified = match (read.has_hidden_tables, read.has_hidden_names) {
            (true, _) => Unqualified::Hidden,
            (false, true) => Unqualified::Unknown,
            (false, false) => Unqualified::Own { merged: std::mem::take(&mut read.merged) },
        };
        self.survey.levels.push(Level {
            parent: self.around.last().copied().flatten(),
            is_closed: read.has_tables_only && relations.len() == read.places.len(),
            names: std::mem::take(&mut read.names),
            relations,
            kept: self.at(&kept),
            unqualified: unqualified.clone(),
            derived,
            outputs: select.target_list().iter().filter_map(output).collect(),
            entered_by,
            output: only_output,
            groups: groups::groups(select),
            is_membership,
        });
        for condition in read.conditions {
            self.conjuncts(&condition, &unqualified, level, is_repeated);
        }
        for using in read.usings {
            let side = |operand: Operand| match operand.name {
                Some(name) => Side::Item(name),
                None => Side::Join(self.at(&operand.places)),
            };
            let (left, right, relations) = (side(using.left), side(using.right), self.at(&using.filtered));
            self.survey.usings.push(Using { level, name: using.name, left, right, relations });
        }
        self.around.push(Some(level));
        level
    }

    /// Relations by the places of their names; not WITH queries.
    fn at(&self, places: &[i32]) -> Vec<usize> {
        let is_meant = |relation: &RelationUse| places.iter().any(|place| usize::try_from(*place) == Ok(relation.location));
        self.survey.relations.iter().enumerate().filter(|(_, relation)| is_meant(relation)).map(|(index, _)| index).collect()
    }

    fn conjuncts(&mut self, read: &ConditionRead<'_>, unqualified: &Unqualified, level: usize, is_repeated: bool) {
        let relations = &self.at(&read.filtered);
        let (mut equal, mut in_all_cases) = (Vec::new(), Vec::new());
        let mut conjuncts = vec![read.root];
        while let Some(conjunct) = conjuncts.pop().filter(|_| !relations.is_empty()) {
            match conjunct {
                Node::None => {}
                Node::BoolExpr(e) if e.boolop == nodes::BoolExprType::AND_EXPR => conjuncts.extend(e.args().iter()),
                other => {
                    equal.extend(lookups::equal_columns(other));
                    in_all_cases.extend(lookups::equal_in_all_cases(other));
                    if let Some((left, place)) = membership(other) {
                        let (relations, visible) = (relations.clone(), read.visible.clone());
                        let right = Right::SubSelect(place);
                        self.survey.equalities.push(Equality { level, relations, visible, left, right });
                    }
                    if let Node::SubLink(sublink) = other
                        && matches!(sublink.sub_link_type, nodes::SubLinkType::EXISTS_SUBLINK | nodes::SubLinkType::ANY_SUBLINK)
                    {
                        self.survey.existences.push(Existence { place: sublink.location, relations: relations.to_vec() });
                    }
                    self.survey.filters.push(Filter {
                        relations: relations.to_vec(),
                        unqualified: unqualified.clone(),
                        condition: filters::condition(other),
                    });
                }
            }
        }
        for (left, right) in equal.iter().chain(&in_all_cases) {
            let (left, right) = (left.clone(), Right::Column(right.clone()));
            let (relations, visible) = (relations.clone(), read.visible.clone());
            self.survey.equalities.push(Equality { level, relations, visible, left, right });
        }
        if is_repeated && !equal.is_empty() {
            self.survey.lookups.push(Lookup { relations: relations.to_vec(), equal });
        }
    }

    fn with(&mut self, with: &nodes::WithClause, visible: &mut Names) -> Result<(), PgError> {
        self.note(format!("with {}", with.recursive));
        if with.recursive {
            visible.0.extend(with.ctes().iter().filter_map(|cte| cte.ctename()).map(|name| (name.to_owned(), None)));
        }
        for cte in with.ctes() {
            let name = cte.ctename().unwrap_or_default().to_owned();
            self.note(format!("with query {name}"));
            self.give_names(cte.aliascolnames());
            self.query(cte.ctequery(), visible)?;
            if !with.recursive {
                let level = self.finished.filter(|_| cte.aliascolnames().is_empty());
                visible.0.push((name, level));
            }
        }
        Ok(())
    }

    fn give_names(&mut self, names: &NodeList) {
        let given: Vec<String> = names.iter().filter_map(Node::as_str).map(str::to_owned).collect();
        self.note(given.join(","));
        self.survey.given_names.extend(given);
    }

    /// Whether the alias renames columns.
    fn alias(&mut self, alias: Option<&nodes::Alias>) -> bool {
        let Some(alias) = alias else {
            self.note("no alias");
            return false;
        };
        let name = alias.aliasname().unwrap_or_default();
        self.note(name);
        self.survey.given_names.push(name.to_owned());
        self.survey.row_names.push(name.to_owned());
        self.give_names(alias.colnames());
        !alias.colnames().is_empty()
    }

    fn item_of_from(&mut self, item: Node<'_>, visible: &Names) -> Result<(), PgError> {
        self.survey.trace.push(kind(item));
        match item {
            Node::RangeVar(relation) => self.relation(relation, visible),
            Node::RangeSubselect(subselect) => {
                self.note(format!("lateral {}", subselect.lateral));
                let has_column_aliases = self.alias(subselect.alias());
                match subselect.lateral {
                    true => self.beside(|walk| walk.query(subselect.subquery(), visible))?,
                    false => self.query(subselect.subquery(), visible)?,
                }
                let name = subselect.alias().and_then(|alias| alias.aliasname());
                self.derive(name, self.finished.filter(|_| !has_column_aliases));
                Ok(())
            }
            Node::RangeFunction(function) => {
                self.note(format!("lateral {} {} {}", function.lateral, function.ordinality, function.is_rowsfrom));
                self.alias(function.alias());
                for item in function.functions() {
                    // The call, and perhaps its column definitions.
                    let call = item.as_node_list().and_then(NodeList::first).unwrap_or(item);
                    self.beside(|walk| walk.expression(call, visible))?;
                }
                Ok(())
            }
            Node::RangeTableFunc(table) => {
                self.alias(table.alias());
                self.beside(|walk| {
                    for expression in [table.docexpr(), table.rowexpr()] {
                        walk.expression(expression, visible)?;
                    }
                    walk.expressions_of(table.namespaces().iter(), visible)?;
                    for column in table.columns() {
                        walk.expression(column.colexpr(), visible)?;
                        walk.expression(column.coldefexpr(), visible)?;
                    }
                    Ok(())
                })
            }
            Node::JsonTable(table) => {
                self.alias(table.alias());
                self.beside(|walk| {
                    let mut expressions = tree::expressions_of_json_table(table).into_iter();
                    expressions.try_for_each(|expression| walk.expression(expression, visible))
                })
            }
            Node::JoinExpr(join) => self.join(join, visible),
            Node::RangeTableSample(_) => Err(refusals::table_sample()),
            _ => Err(refusals::construct("this item of the FROM clause")),
        }
    }

    fn join(&mut self, join: &nodes::JoinExpr, visible: &Names) -> Result<(), PgError> {
        self.note(format!("join {} {}", join.jointype, join.is_natural));
        self.survey.uses_all_columns |= join.is_natural;
        let using: Vec<&str> = join.using_clause().iter().filter_map(|name| name.sval()).collect();
        self.note(using.join(","));
        self.alias(join.join_using_alias());
        self.survey.uses_all_columns |= self.alias(join.alias());
        stacker::maybe_grow(STACK_LEFT_BYTES_MIN, STACK_BYTES, || {
            self.item_of_from(join.larg(), visible)?;
            self.item_of_from(join.rarg(), visible)
        })?;
        self.beside(|walk| walk.expression(join.quals(), visible))
    }

    /// Notes a SELECT in FROM. `level`: its own.
    fn derive(&mut self, name: Option<&str>, level: Option<usize>) {
        let derived = name.zip(level).map(|(name, level)| Derived { name: name.to_owned(), level });
        self.derived.extend(derived);
    }

    /// Walks what sees tables of the same FROM.
    fn beside(&mut self, walk: impl FnOnce(&mut Self) -> Result<(), PgError>) -> Result<(), PgError> {
        self.around.push(None);
        let walked = walk(self);
        self.around.pop();
        walked
    }

    fn relation(&mut self, relation: &nodes::RangeVar, visible: &Names) -> Result<(), PgError> {
        let name = relation.relname().unwrap_or_default();
        if relation.catalogname().is_some() {
            return Err(refusals::construct("a table that is named with its database"));
        }
        let with = visible.0.iter().rev().find(|(with, _)| with == name).filter(|_| relation.schemaname().is_none());
        if let Some((_, level)) = with {
            self.note(format!("with query {name}"));
            self.survey.row_names.push(name.to_owned());
            let has_column_aliases = self.alias(relation.alias());
            let name = relation.alias().map_or(Some(name), |alias| alias.aliasname());
            self.derive(name, level.filter(|_| !has_column_aliases));
            return Ok(());
        }
        let location = usize::try_from(relation.location).map_err(|_| refusals::construct("a table of unknown place"))?;
        let found = RelationUse {
            location,
            schema: relation.schemaname().map(str::to_owned),
            name: name.to_owned(),
            alias: relation.alias().and_then(|alias| alias.aliasname()).map(str::to_owned),
            has_column_aliases: relation.alias().is_some_and(|alias| !alias.colnames().is_empty()),
            with_children: relation.inh,
        };
        self.survey.row_names.push(found.effective_name().to_owned());
        self.survey.trace.push(Step::Relation(self.survey.relations.len()));
        self.survey.relations.push(found);
        if let Some(alias) = relation.alias() {
            self.give_names(alias.colnames());
        } else {
            self.note("");
        }
        Ok(())
    }

    /// GROUP BY: which columns it names, in grouping sets and lists too; not those inside of expressions.
    fn grouping(&mut self, item: Node<'_>) {
        let (names, has_ordinal) = (&mut self.survey.group_names, &mut self.survey.has_group_ordinal);
        tree::walk(item, &mut |node| match node {
            Node::ColumnRef(column) => {
                names.extend(column.fields().iter().next_back().and_then(Node::as_str).map(str::to_owned));
                false
            }
            Node::A_Const(_) => {
                *has_ordinal = true;
                false
            }
            other => matches!(other, Node::NodeList(_) | Node::GroupingSet(_) | Node::RowExpr(_)),
        });
    }

    fn expressions(&mut self, list: &NodeList, visible: &Names) -> Result<(), PgError> {
        self.expressions_of(list.iter(), visible)
    }

    fn expressions_of<'n>(&mut self, list: impl Iterator<Item = Node<'n>>, visible: &Names) -> Result<(), PgError> {
        self.note("list");
        for item in list {
            self.expression(item, visible)?;
        }
        Ok(())
    }

    fn expression(&mut self, root: Node<'_>, visible: &Names) -> Result<(), PgError> {
        let mut sublinks = Vec::new();
        let mut unknown = false;
        let mut arguments: Vec<(i32, String)> = Vec::new();
        tree::walk(root, &mut |node| {
            if !tree::is_known(node) {
                unknown = true;
                return false;
            }
            match node {
                Node::SubLink(sublink) => sublinks.push(sublink),
                Node::ColumnRef(column) => {
                    let argument_of = arguments.iter().find(|(location, _)| *location == column.location).map(|(_, name)| name);
                    self.column(column, argument_of.cloned());
                    return false;
                }
                Node::FuncCall(call) => arguments.extend(self.call(call)),
                Node::SQLValueFunction(function) => {
                    self.survey.has_clock |= tree::is_clock(function);
                    if function.op == nodes::SQLValueFunctionOp::SVFOP_CURRENT_CATALOG {
                        let name = "current_catalog".to_owned();
                        self.survey.calls.push(Call { schema: None, name, argument_count: 0, first_constant: None });
                    }
                    self.note(format!("value {}", function.op));
                }
                other => self.other(other),
            }
            true
        });
        if unknown {
            return Err(refusals::construct("an SQL construct of a newer PostgreSQL"));
        }
        for sublink in sublinks {
            self.note(format!("sub-select {}", sublink.sub_link_type));
            self.operator(sublink.oper_name());
            self.entered_by = Some(sublink.location);
            self.is_exists = sublink.sub_link_type == nodes::SubLinkType::EXISTS_SUBLINK;
            self.is_any = sublink.sub_link_type == nodes::SubLinkType::ANY_SUBLINK;
            self.is_repeated = !self.is_exists;
            self.query(sublink.subselect(), visible)?;
        }
        Ok(())
    }

    fn column(&mut self, column: &nodes::ColumnRef, argument_of: Option<String>) {
        let is_star = matches!(column.fields().iter().next_back(), Some(Node::A_Star(_)));
        let path = column.fields().iter().filter_map(Node::as_str).map(str::to_owned).collect();
        self.survey.trace.push(Step::Column(self.survey.columns.len()));
        let is_ignored = is_star && self.ignores_star;
        let location = usize::try_from(column.location).ok();
        let around = self.around.iter().copied().collect();
        self.survey.columns.push(ColumnUse { location, path, is_star, is_ignored, argument_of, around });
    }

    /// Notes a call; the places of its direct arguments that are columns.
    fn call(&mut self, call: &nodes::FuncCall) -> Vec<(i32, String)> {
        let names = tree::names(call.funcname()).unwrap_or_default();
        let (schema, name) = match names.as_slice() {
            [.., schema, name] => (Some((*schema).to_owned()), (*name).to_owned()),
            [name] => (None, (*name).to_owned()),
            [] => (None, String::new()),
        };
        self.note(format!("call {schema:?} {name} {} {} {}", call.agg_star, call.agg_distinct, call.func_variadic));
        let plain = name.clone();
        let is_plain = schema.is_none();
        let first_constant = call.args().first().and_then(tree::constant_text);
        self.survey.calls.push(Call { schema, name, argument_count: call.args().len(), first_constant });
        let columns = call.args().iter().filter_map(|argument| match argument {
            Node::ColumnRef(column) if is_plain => Some((column.location, plain.clone())),
            _ => None,
        });
        columns.collect()
    }

    fn other(&mut self, node: Node<'_>) {
        match node {
            Node::A_Expr(e) => {
                self.note(format!("operation {}", e.kind));
                self.operator(e.name());
            }
            Node::A_Const(_) => self.note(format!("constant {:?}", tree::constant_text(node))),
            Node::ParamRef(parameter) => self.note(format!("parameter {}", parameter.number)),
            Node::ResTarget(target) => self.note(format!("target {:?}", target.name())),
            Node::WindowDef(window) => self.note(format!("window {:?} {:?}", window.name(), window.refname())),
            Node::BoolExpr(e) => self.note(format!("bool {}", e.boolop)),
            Node::String(name) => self.note(name.sval().unwrap_or_default()),
            Node::TypeCast(cast) => {
                self.survey.casts.extend(own_names::cast(cast));
                self.survey.trace.push(kind(node));
            }
            other => self.survey.trace.push(kind(other)),
        }
    }

    fn operator(&mut self, name: &NodeList) {
        let names = tree::names(name).unwrap_or_default();
        self.note(names.join("."));
        if let [name] = names.as_slice() {
            self.survey.operators.push((*name).to_owned());
        }
    }
}

/// Each row makes one of its rows, whatever the others are.
fn is_plain(select: &nodes::SelectStmt) -> bool {
    let is_value = |node: Node<'_>| matches!(node, Node::ColumnRef(_) | Node::A_Const(_));
    select.op == nodes::SetOperation::SETOP_NONE
        && select.group_clause().is_empty()
        && select.window_clause().is_empty()
        // An aggregate, there too, makes one row of all.
        && select.sort_clause().iter().all(|sort| is_value(sort.node()))
        && matches!(select.having_clause(), Node::None)
        && matches!(select.limit_count(), Node::None)
        && matches!(select.limit_offset(), Node::None)
        && select.target_list().iter().all(|target| is_value(target.val()))
}

/// A column of the list that keeps its values.
fn output(target: &nodes::ResTarget) -> Option<Output> {
    let Node::ColumnRef(column) = target.val() else { return None };
    if matches!(column.fields().iter().next_back(), Some(Node::A_Star(_))) {
        let path: Vec<&str> = column.fields().iter().filter_map(Node::as_str).collect();
        return match path.as_slice() {
            [] => Some(Output::All(None)),
            [table] => Some(Output::All(Some((*table).to_owned()))),
            _ => None,
        };
    }
    let column = filters::column(target.val())?;
    Some(Output::Column { name: target.name().unwrap_or(&column.name).to_owned(), column })
}

/// `column IN (SELECT …)`, the sub-select by its place.
fn membership(conjunct: Node<'_>) -> Option<(ColumnName, i32)> {
    match conjunct {
        Node::SubLink(sublink) if sublink.sub_link_type == nodes::SubLinkType::ANY_SUBLINK => {
            let names = tree::names(sublink.oper_name()).unwrap_or_default();
            let column = filters::column(sublink.testexpr())?;
            (names.is_empty() || names == ["="]).then_some((column, sublink.location))
        }
        _ => None,
    }
}

fn kind(node: Node<'_>) -> Step {
    Step::Other(format!("{:?}", discriminant(&node)))
}

pub const STACK_LEFT_BYTES_MIN: usize = 512 * 1024;
pub const STACK_BYTES: usize = 4 * 1024 * 1024;
