//! INSERT: the keys of the rows that are made.
//!
//! A row's key must be known before the row is: a constant or parameter, or a column of a sub-select whose rows are on the same
//! shard by the same key. What the shard would compute (defaults, expressions) has no home, and only runs where everything is.

use pg_raw_parse::{Node, nodes};

use super::bind::{Draws, Reader, unknown_query};
use super::expression::{Findings, Place, Scope};
use super::facts;
use super::leaves::{Columns, Leaf, LeafKey, LeafKind};
use super::modify::{Modified, Target, TargetKind};
use super::numbered::Given;
use super::placement::{Distribution, RowKey, classes};
use super::predicate::{Operand, is_star};
use super::scope::{Frame, Visible, VisibleColumns};
use super::set_default::hides_clock;
use super::with::CteList;
use super::{Block, Body, Bound, Facts, FromItem, Output, Term};
use crate::catalog::Column;
use crate::catalog::TriggerEvents;
use crate::error::PgError;
use crate::shardmap::GroupId;
use crate::sql::analysis::{KeyCondition, KeyTest, KeyValue, Numbers, Part, StoredValue, Test};
use crate::sql::parse;
use crate::sql::parse::tree;
use crate::sql::rewrite::drawing;

/// An INSERT with its target read.
struct MadeRows<'t, 'c> {
    target: &'t Target<'c>,
    /// Names of the columns that the source's columns go to.
    columns: Vec<String>,
    /// OVERRIDING USER VALUE: identity columns ignore what is given.
    is_overridden: bool,
}

impl MadeRows<'_, '_> {
    /// The source's column that goes to this one.
    fn position(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|name| name == column)
    }
}

impl<'c> Reader<'c> {
    pub fn insert<'n>(&mut self, insert: &'n nodes::InsertStmt, ctes: &CteList<'n>) -> Result<Modified, PgError> {
        let ctes = self.with(insert.with_clause(), None, ctes)?;
        let mut frame = Frame::default();
        let updates = |conflict: &nodes::OnConflictClause| conflict.action == nodes::OnConflictAction::ONCONFLICT_UPDATE;
        let events = TriggerEvents { update: insert.on_conflict_clause().is_some_and(updates), ..TriggerEvents::INSERT };
        let target = self.target_or_view(insert.relation().ok_or_else(unknown_query)?, &mut frame, events)?;
        self.check_rows_of_view(&target);
        let columns = insert_columns(insert, &target);
        let is_overridden = insert.override_ == nodes::OverridingKind::OVERRIDING_USER_VALUE;
        let mut made = MadeRows { target: &target, columns, is_overridden };
        let mut findings = Findings::default();
        match insert.select_stmt() {
            Node::SelectStmt(select) if is_plain_values(select) => {
                self.insert_values(select, &made, &ctes, &mut findings)?;
            }
            Node::None => self.insert_default(&made),
            node => self.insert_select(node, &mut made, &ctes)?,
        }
        // Evaluated by the shard of each row: only constants may be known there.
        let reads_rows = !findings.subqueries.is_empty();
        let columns = &made.columns;
        let is_given = |column: &str| columns.iter().any(|name| name == column) && !uses_default(insert, columns, column);
        let is_values = match insert.select_stmt() {
            Node::None => true,
            Node::SelectStmt(select) => is_plain_values(select),
            _ => false,
        };
        self.note_numbered_columns(insert, &made, is_values && !may_be_rows(insert));
        self.check_made_rows(made.target, &is_given);
        if let Some(conflict) = insert.on_conflict_clause() {
            self.add_excluded(&target, &mut frame)?;
            self.on_conflict(conflict, &target, &Scope { frame: &frame, ctes: &ctes, windows: None }, &mut findings)?;
            frame.items.pop();
        }
        let scope = Scope { frame: &frame, ctes: &ctes, windows: None };
        self.returns_inserted = Some(self.depth);
        let returned = self.returning(insert.returning_clause(), &scope, &mut findings);
        self.returns_inserted = None;
        let (outputs, is_complete) = returned?;
        self.check_copied_write(&target, is_values);
        self.note_notifying(&target, events);
        let is_split = self.notes.split_rows.is_some();
        if is_split && reads_rows {
            self.notes.not_pushable(not_split("It reads other rows, which are not on all of these shards."));
        }
        // Each shard would evaluate it once, for its own rows.
        if is_split && !findings.subqueries.is_empty() && self.notes.volatile.is_some() {
            self.notes.not_pushable(not_split("A sub-select of it would have another value on each shard."));
        }
        let mut anchors = self.target_anchor(&target);
        anchors.extend(insert.on_conflict_clause().and_then(|_| self.excluded_anchor(&target)));
        let block = Block { subqueries: findings.subqueries, ..Block::default() };
        let reason = self.notes.pushdown.take();
        self.place_subqueries(&block.subqueries, &Facts::new(), &anchors);
        if is_split && self.notes.pushdown.is_some() {
            self.notes.pushdown = Some(not_split("It reads other rows, which are not on all of these shards."));
        }
        self.notes.pushdown = reason.or(self.notes.pushdown.take());
        if matches!(target.kind, TargetKind::Home) {
            self.place_from_list(&[FromItem::Leaf(target.leaf)], &Facts::new(), &[]);
        }
        Ok(Modified { outputs, is_complete, ..Modified::of(&target) })
    }

    fn target_anchor(&self, target: &Target<'c>) -> Vec<RowKey> {
        match &target.kind {
            TargetKind::Sharded { group, key } => {
                vec![RowKey { group: *group, terms: key.iter().map(|key| key.term.clone()).collect(), is_total: true }]
            }
            TargetKind::Replicated | TargetKind::Home => Vec::new(),
        }
    }

    /// The row that was to be inserted is on the shard of its key, as the one that is in its way.
    fn excluded_anchor(&self, target: &Target<'c>) -> Option<RowKey> {
        let (leaf, TargetKind::Sharded { group, key }) = (self.excluded_leaf?, &target.kind) else { return None };
        let of_excluded = |term: &Term| {
            let column = super::Column { leaf, index: term.column.index };
            Term { column, function: term.function.clone() }
        };
        Some(RowKey { group: *group, terms: key.iter().map(|key| of_excluded(&key.term)).collect(), is_total: true })
    }

    fn insert_values<'n>(
        &mut self,
        select: &'n nodes::SelectStmt,
        made: &MadeRows<'_, 'c>,
        ctes: &CteList<'n>,
        findings: &mut Findings,
    ) -> Result<(), PgError> {
        let frame = Frame::default();
        let scope = Scope { frame: &frame, ctes, windows: None };
        let mut rows = Vec::new();
        let lengths = || select.values_lists().iter().map(|row| row.as_node_list().map_or(0, |row| row.len()));
        let is_even = lengths().all(|length| Some(length) == lengths().next());
        for row in select.values_lists() {
            let row = row.as_node_list().ok_or_else(unknown_query)?;
            if row.iter().any(is_star) && self.fills_by_place(made.target) {
                self.notes.refuse(expanded_value());
            }
            for value in row {
                self.draws = if drawing::draws(value, self.context) { Draws::Value } else { Draws::Nothing };
                let scanned = self.scan(value, &scope, Place::Stored, findings);
                self.draws = Draws::Nothing;
                scanned?;
            }
            if let TargetKind::Sharded { key, .. } = &made.target.kind {
                let value_of = |column: &str| row.get(made.position(column)?);
                rows.push(self.row_condition(key, made.target, made.is_overridden, &value_of));
            }
        }
        // Rows of different lengths, and functions that return rows in one of several, are PostgreSQL's to refuse, which sees it where
        // they are together.
        let makes_rows = || {
            let mut values = select.values_lists().iter().filter_map(|row| row.as_node_list()).flatten();
            select.values_lists().len() > 1 && values.any(|value| self.may_be_rows(value))
        };
        if !is_even || makes_rows() {
            rows = vec![Ok(KeyCondition::Nothing)];
        }
        self.insert_parts(made.target, rows);
        Ok(())
    }

    /// It counts which values stand at which places of a row.
    pub fn fills_by_place(&self, target: &Target<'c>) -> bool {
        let is_numbered =
            || target.relation.is_some_and(|relation| relation.columns.iter().any(|column| column.cluster_sequence().is_some()));
        !matches!(target.kind, TargetKind::Home) || is_numbered()
    }

    /// By a function of PostgreSQL's, or of users.
    fn may_be_rows(&self, value: Node<'_>) -> bool {
        let mut is_found = drawing::may_be_rows(value);
        let catalog = &self.context.catalog;
        tree::walk(value, &mut |node| {
            if let Node::FuncCall(call) = node
                && let Some(names) = tree::names(call.funcname())
                && let Some(candidates) = names.last().and_then(|name| catalog.function_names.get(*name))
            {
                is_found |= candidates.iter().filter_map(|oid| catalog.functions.get(oid)).any(|function| function.returns_set);
            }
            true
        });
        is_found
    }

    /// DEFAULT VALUES.
    fn insert_default(&mut self, made: &MadeRows<'_, 'c>) {
        if let TargetKind::Sharded { key, .. } = &made.target.kind {
            let row = self.row_condition(key, made.target, false, &|_| None);
            self.insert_parts(made.target, vec![row]);
        }
    }

    /// The rows' keys as one condition, and whether they may be on several shards.
    fn insert_parts(&mut self, target: &Target<'c>, rows: Vec<Result<KeyCondition, PgError>>) {
        let TargetKind::Sharded { group, key } = &target.kind else {
            return;
        };
        let split: Option<Vec<KeyCondition>> = rows.iter().map(|row| row.as_ref().ok().cloned()).collect();
        let split = split.filter(|rows| rows.len() > 1);
        let mut conditions = Vec::new();
        for row in rows {
            match row {
                Ok(condition) => facts::add_distinct(&mut conditions, condition),
                Err(reason) => {
                    self.notes.not_pushable(reason);
                    conditions = vec![KeyCondition::All];
                    break;
                }
            }
        }
        let condition = if conditions.len() == 1 { conditions.remove(0) } else { KeyCondition::Or(conditions) };
        let key: Vec<_> = key.iter().map(|key| key.column.clone()).collect();
        match split {
            // Each row goes to its shard.
            Some(rows) => self.notes.split_rows = Some(rows),
            None => self.notes.not_pushable(one_row()),
        }
        let name = self.leaves.get(target.leaf).map(|leaf| leaf.name.clone()).unwrap_or_default();
        self.add_part(Part::Sharded { group: *group, condition, stores: true }, &name, &key);
    }

    /// The key of one row that is made. An error: its key is not known before the row is made.
    pub fn row_condition<'n>(
        &mut self,
        key: &[LeafKey<'c>],
        target: &Target<'c>,
        is_overridden: bool,
        value_of: &dyn Fn(&str) -> Option<Node<'n>>,
    ) -> Result<KeyCondition, PgError> {
        let mut tests = Vec::new();
        for (index, key) in key.iter().enumerate() {
            let name = key.column.column.as_str();
            let column = target.relation.and_then(|relation| relation.column(name));
            let column = column.ok_or_else(|| unknown_key(name, "The column is not known."))?;
            if column.is_generated || (is_overridden && column.identity.is_some()) {
                return Err(unknown_key(name, "The column's value is generated when the row is made."));
            }
            let value = match value_of(name) {
                Some(node) if !matches!(node, Node::SetToDefault(_)) => self
                    .operand_value(node)
                    .ok_or_else(|| unknown_key(name, "Its value is an expression that the shard would compute."))?,
                _ if column.default.is_none() && column.identity.is_none() => KeyValue::Null,
                _ => return Err(unknown_key(name, "Its value is the column's default, which the shard would compute.")),
            };
            let stored = StoredValue { value, typmod: column.typmod, is_not_null: column.is_not_null };
            tests.push(KeyCondition::Test(KeyTest {
                column: index,
                column_type: key.column.column_type,
                function: key.column.function.clone(),
                test: Test::Stored(stored),
            }));
        }
        Ok(if tests.len() == 1 { tests.remove(0) } else { KeyCondition::And(tests) })
    }

    fn operand_value(&mut self, node: Node<'_>) -> Option<KeyValue> {
        match self.operand(node, &Frame::default()) {
            Operand::Value(value) => Some(value),
            Operand::Term(..) | Operand::Other => None,
        }
    }

    fn insert_select<'n>(&mut self, node: Node<'n>, made: &mut MadeRows<'_, 'c>, ctes: &CteList<'n>) -> Result<(), PgError> {
        let target = made.target;
        let bound = self.query(node, None, ctes)?;
        if bound.is_complete {
            // Without a list the columns beyond those of the query are left to their defaults.
            made.columns.truncate(bound.outputs.len());
        }
        let made = &*made;
        if let Some(column) = self.leaves(made, Column::is_unique_id) {
            // The query is answered first, and its rows get theirs here.
            self.notes.refuse(PgError::unsupported(
                format!("the values of column \"{column}\" are not known where these rows are made"),
                "Its default is shardgate.unique_id(), and a shard has none of these.",
                "Select the rows, and insert them with VALUES.",
            ));
        }
        if bound.is_complete && bound.outputs.is_empty() && !matches!(target.kind, TargetKind::Home) {
            self.notes.refuse(PgError::unsupported(
                "INSERT of rows without columns is not supported",
                "The rows of the query are inserted by their values, of which they have none.",
                "Select a value for one column, as in INSERT INTO t (note) SELECT NULL FROM ....",
            ));
        }
        let placed = self.place(&bound, None, &Facts::new(), &[]);
        if let Some(combined) = placed.combined {
            self.notes.not_pushable(combined.reason);
        }
        let TargetKind::Sharded { group, key } = &target.kind else {
            if let Distribution::Sharded(_) = placed.distribution {
                self.notes.not_pushable(PgError::unsupported(
                    "INSERT ... SELECT from sharded tables into a table that is not sharded is not supported across shards",
                    "The rows of several shards would have to be collected first.",
                    "Select the rows and insert them, or restrict the query to one shard key.",
                ));
            }
            return Ok(());
        };
        let is_limited = matches!(&bound.body, Body::Block(block) if block.has_limit)
            || matches!(&bound.body, Body::SetOperation { has_limit: true, .. });
        if is_limited {
            self.notes.not_pushable(PgError::unsupported(
                "INSERT ... SELECT with LIMIT is not supported across shards",
                "Each shard would take that many rows of its own.",
                "Restrict the query to one shard key.",
            ));
        }
        let is_ordered = matches!(node, Node::SelectStmt(select) if !select.sort_clause().is_empty());
        if is_ordered && self.leaves(made, Column::is_drawn_by_proxy).is_some() {
            self.notes.not_pushable(PgError::unsupported(
                "INSERT ... SELECT with ORDER BY into a numbered table is not supported across shards",
                "Each shard would number its own rows, and the numbers would not be in this order.",
                "Leave out ORDER BY, or give the numbers.",
            ));
        }
        let source = select_values(node);
        let constants: Vec<Option<Node<'n>>> =
            key.iter().map(|key| source.as_ref()?.get(made.position(&key.column.column)?).copied()).collect();
        let value_of = |column: &str| constants.get(key.iter().position(|key| key.column.column == column)?).copied().flatten();
        if let Ok(condition) = self.constant_row(key, made, &value_of) {
            let columns: Vec<_> = key.iter().map(|key| key.column.clone()).collect();
            self.notes.not_pushable(unpushable_source());
            let name = self.leaves.get(target.leaf).map(|leaf| leaf.name.clone()).unwrap_or_default();
            self.add_part(Part::Sharded { group: *group, condition, stores: true }, &name, &columns);
            return Ok(());
        }
        self.insert_from_columns(made, *group, key, &bound, &placed.distribution)
    }

    /// A column of this kind that is not given.
    fn leaves(&self, made: &MadeRows<'_, 'c>, is_such: fn(&Column) -> bool) -> Option<&'c str> {
        let mut columns = made.target.relation.iter().flat_map(|relation| &relation.columns);
        columns.find(|column| is_such(column) && made.position(&column.name).is_none()).map(|column| column.name.as_str())
    }

    /// Every key column is a constant of the select list.
    fn constant_row<'n>(
        &mut self,
        key: &[LeafKey<'c>],
        made: &MadeRows<'_, 'c>,
        value_of: &dyn Fn(&str) -> Option<Node<'n>>,
    ) -> Result<KeyCondition, PgError> {
        if key.iter().any(|key| value_of(&key.column.column).is_none()) {
            return Err(unpushable_source());
        }
        self.row_condition(key, made.target, made.is_overridden, value_of)
    }

    /// The key comes from the query's columns: the rows stay where they are when those are its rows' key.
    fn insert_from_columns(
        &mut self,
        made: &MadeRows<'_, 'c>,
        group: GroupId,
        key: &[LeafKey<'c>],
        bound: &Bound,
        source: &Distribution,
    ) -> Result<(), PgError> {
        let target = made.target;
        let mut source_key = Vec::new();
        for key in key {
            let origin = made.position(&key.column.column).and_then(|index| bound.outputs.get(index)).filter(|_| bound.is_complete);
            let fits = origin.is_some_and(|output| self.stores_unchanged(key, target, output)) && !made.is_overridden;
            match origin.and_then(|output| output.origin.clone()).filter(|_| fits) {
                Some(origin) => source_key.push(LeafKey {
                    term: Term { column: origin.column, function: key.column.function.clone().or(origin.function) },
                    column: key.column,
                }),
                None => break,
            }
        }
        let names: Vec<_> = key.iter().map(|key| key.column.clone()).collect();
        let name = self.leaves.get(target.leaf).map(|leaf| leaf.name.clone()).unwrap_or_default();
        if source_key.len() != key.len() {
            self.notes.not_pushable(unpushable_source());
            self.add_part(Part::Sharded { group, condition: KeyCondition::All, stores: true }, &name, &names);
            return Ok(());
        }
        let implied = facts::implied(bound);
        let own = RowKey { group, terms: source_key.iter().map(|key| key.term.clone()).collect(), is_total: true };
        let classes = classes(&implied);
        let stays = match source {
            Distribution::Sharded(sharded) => sharded.keys.iter().any(|key| key.is_total && key.is_same(&own, &classes)),
            Distribution::Replicated | Distribution::Home => false,
        };
        if !stays {
            self.notes.not_pushable(unpushable_source());
        }
        let strategy =
            self.context.map.group(group).map(|group| group.strategy).ok_or_else(|| PgError::internal("group is gone"))?;
        let sorts_bytewise = |term: &Term| self.properties(term.column).is_collation_c;
        let condition = facts::condition(&implied, &source_key, strategy, &sorts_bytewise);
        // The key of a row that is there already has its place.
        self.add_part(Part::Sharded { group, condition, stores: !stays }, &name, &names);
        Ok(())
    }

    /// Assigning the source's column to the key column changes no value: same type, and no length that cuts.
    pub fn stores_unchanged(&self, key: &LeafKey<'_>, target: &Target<'c>, output: &Output) -> bool {
        let Some(column) = target.relation.and_then(|relation| relation.column(&key.column.column)) else {
            return false;
        };
        let is_function_output = output.origin.as_ref().is_some_and(|origin| origin.function.is_some());
        let same_type = crate::shard_key::KeyType::of_column(output.properties.type_oid) == Some(key.column.column_type);
        let same_length = column.typmod == -1 || column.typmod == output.properties.typmod;
        same_type && same_length && !column.is_generated && !(is_function_output && key.column.function.is_some())
    }

    /// What rows that are made draw from: defaults of columns that are not given.
    pub fn check_made_rows(&mut self, target: &Target<'c>, is_given: &dyn Fn(&str) -> bool) {
        let Some(relation) = target.relation else {
            return;
        };
        for column in &relation.columns {
            let draws = column.is_numbered_by_shard();
            let is_numbered = column.is_drawn_by_proxy();
            if column.is_generated || is_given(&column.name) {
                continue;
            }
            match target.kind {
                TargetKind::Sharded { .. } if draws => self.notes.needs_home(|| {
                    format!(
                        "Column \"{}\" of table \"{}\" takes its default from a sequence, which lives on the home shard.",
                        column.name, relation.name
                    )
                }),
                TargetKind::Sharded { .. } if is_numbered => self.note_numbers(Numbers::Unseen),
                TargetKind::Replicated if draws || is_numbered => {
                    self.notes.volatile.get_or_insert_with(|| format!("the default of column \"{}\"", column.name));
                }
                TargetKind::Replicated => {
                    if let Some(default) = &column.default {
                        self.note_default(default, &column.name);
                    }
                }
                TargetKind::Sharded { .. } => {
                    if let Some(default) = &column.default {
                        self.note_default_of_rows(default, &column.name);
                    }
                }
                TargetKind::Home if draws => self.note_numbers(Numbers::AtHome),
                TargetKind::Home if is_numbered => self.note_numbers(Numbers::Unseen),
                TargetKind::Home => {}
            }
        }
    }

    /// Columns of cluster-wide sequences, and of unique ids.
    fn note_numbered_columns(&mut self, insert: &nodes::InsertStmt, made: &MadeRows<'_, 'c>, is_values: bool) {
        let columns = &made.columns;
        let Some(relation) = made.target.relation else { return };
        for column in relation.columns.iter().filter(|column| column.is_drawn_by_proxy()) {
            let is_named = columns.contains(&column.name);
            let is_ever = is_named && gives_value(insert, columns, &column.name);
            let is_always = is_named && !uses_default(insert, columns, &column.name);
            self.note_numbered(insert, column, Given { is_always, is_ever }, is_values);
        }
    }

    /// A default that differs from shard to shard.
    fn note_default(&mut self, default: &str, column: &str) {
        let text = format!("SELECT {default}");
        let Ok(tree) = parse::parse(&text) else {
            self.notes.volatile.get_or_insert_with(|| format!("the default of column \"{column}\""));
            return;
        };
        let mut reader = Reader::new(self.context, &text, &[]);
        for statement in tree.stmts() {
            let is_read = reader.query(statement, None, &None).is_ok();
            let differs =
                reader.notes.volatile.is_some() || reader.notes.of_one_copy.is_some() || reader.notes.home_reason.is_some();
            if !is_read || differs || hides_clock(default) {
                self.notes.volatile.get_or_insert_with(|| format!("the default of column \"{column}\""));
            }
        }
    }

    /// Rows of one statement have one time, wherever they are.
    fn note_default_of_rows(&mut self, default: &str, column: &str) {
        let text = format!("SELECT {default}");
        let is_same_everywhere = !hides_clock(default)
            && parse::parse(&text).is_ok_and(|tree| {
                let mut reader = Reader::new(self.context, &text, &[]);
                // No function of users hides the catalogue's in what was read when the default was made.
                reader.search_path.retain(|schema| schema != "pg_catalog");
                let mut read = |statement: Node<'_>| match statement {
                    Node::SelectStmt(select) => {
                        select.target_list().iter().all(|target| reader.value_of_rows(target.val()).is_ok())
                    }
                    _ => false,
                };
                tree.stmts().into_iter().all(&mut read)
                    && reader.notes.pushdown.is_none()
                    && reader.notes.touches_anything.is_none()
                    && reader.notes.may_be_of_query_around.is_none()
            });
        if !is_same_everywhere {
            self.notes.not_pushable(PgError::unsupported(
                format!("the default of column \"{column}\" is not supported for rows of several shards"),
                "It would be evaluated on each shard, with values of its own.",
                "List the column, and give its value in each row.",
            ));
        }
    }

    /// EXCLUDED: the row that was to be inserted, with the target's columns.
    fn add_excluded(&mut self, target: &Target<'c>, frame: &mut Frame<'_>) -> Result<(), PgError> {
        let columns = target.named().map_or(Columns::Unknown, Columns::Relation);
        let leaf = Leaf { name: EXCLUDED.to_owned(), kind: LeafKind::Replicated, columns, renamed: Vec::new() };
        let leaf = self.add_leaf(leaf)?;
        self.excluded_leaf = Some(leaf);
        frame.items.push(Visible { name: Some(EXCLUDED.to_owned()), schema: None, columns: VisibleColumns::Leaf(leaf) });
        Ok(())
    }

    fn on_conflict<'n>(
        &mut self,
        conflict: &'n nodes::OnConflictClause,
        target: &Target<'c>,
        scope: &Scope<'_, 'n>,
        findings: &mut Findings,
    ) -> Result<(), PgError> {
        if let Some(infer) = conflict.infer() {
            self.scan(infer.where_clause(), scope, Place::Inside, findings)?;
        }
        for assignment in conflict.target_list() {
            self.scan(Node::ResTarget(assignment), scope, Place::Stored, findings)?;
        }
        self.scan(conflict.where_clause(), scope, Place::Inside, findings)?;
        self.check_key_assignments(conflict.target_list(), target, scope, &Facts::new());
        self.updated_rows(conflict.target_list().iter(), target, scope, &Facts::new());
        Ok(())
    }
}

const EXCLUDED: &str = "excluded";

/// Names of the columns that the source's columns go to.
fn insert_columns(insert: &nodes::InsertStmt, target: &Target<'_>) -> Vec<String> {
    if insert.cols().is_empty() {
        return target
            .named()
            .map(|relation| relation.columns.iter().map(|column| column.name.clone()).collect())
            .unwrap_or_default();
    }
    insert
        .cols()
        .iter()
        .map(|node| match node {
            Node::ResTarget(column) => column.name().unwrap_or_default().to_owned(),
            _ => String::new(),
        })
        .collect()
}

/// VALUES and nothing else.
fn is_plain_values(select: &nodes::SelectStmt) -> bool {
    !select.values_lists().is_empty()
        && select.with_clause().is_none()
        && select.sort_clause().is_empty()
        && matches!(select.limit_count(), Node::None)
        && matches!(select.limit_offset(), Node::None)
}

/// A function in the only row of VALUES makes several of it: which numbers they get is the shard's to say.
fn may_be_rows(insert: &nodes::InsertStmt) -> bool {
    let Node::SelectStmt(select) = insert.select_stmt() else { return false };
    let mut values = select.values_lists().iter().filter_map(|row| row.as_node_list()).flatten();
    select.values_lists().len() == 1 && values.any(drawing::may_be_rows)
}

/// The select list's expressions, when each is one column.
fn select_values(node: Node<'_>) -> Option<Vec<Node<'_>>> {
    let Node::SelectStmt(select) = node else {
        return None;
    };
    // A grouping set makes NULLs of what it leaves out, constants among them.
    let has_sets = select.group_clause().iter().any(|item| matches!(item, Node::GroupingSet(_)));
    if select.op != nodes::SetOperation::SETOP_NONE || !select.values_lists().is_empty() || has_sets {
        return None;
    }
    let values: Vec<Node<'_>> = select.target_list().iter().map(|target| target.val()).collect();
    (!values.iter().copied().any(is_star)).then_some(values)
}

/// Some row gives DEFAULT for the column, or has no value for it.
fn uses_default(insert: &nodes::InsertStmt, columns: &[String], column: &str) -> bool {
    let Some(position) = columns.iter().position(|name| name == column) else {
        return true;
    };
    match insert.select_stmt() {
        Node::None => true,
        Node::SelectStmt(select) if is_plain_values(select) => select
            .values_lists()
            .iter()
            .any(|row| row.as_node_list().is_none_or(|row| matches!(row.get(position), None | Some(Node::SetToDefault(_))))),
        Node::SelectStmt(_) => false,
        _ => true,
    }
}

/// Some row has a value for it other than DEFAULT. `columns`: those that the rows fill.
pub fn gives_value(insert: &nodes::InsertStmt, columns: &[String], column: &str) -> bool {
    let Some(position) = columns.iter().position(|name| name == column) else { return false };
    match insert.select_stmt() {
        Node::None => false,
        Node::SelectStmt(select) if is_plain_values(select) => select.values_lists().iter().any(|row| {
            row.as_node_list().is_none_or(|row| row.get(position).is_some_and(|value| !matches!(value, Node::SetToDefault(_))))
        }),
        Node::SelectStmt(_) => !uses_default(insert, columns, column),
        _ => true,
    }
}

/// `(value).*` among the values of a row.
pub fn expanded_value() -> PgError {
    PgError::unsupported(
        "a composite value cannot be expanded among the values of a row here",
        "How many columns (value).* stands for is not known where the row's shard key is looked for.",
        "Write its columns one by one: (value).a, (value).b.",
    )
}

pub fn unknown_key(column: &str, detail: &str) -> PgError {
    PgError::unsupported(
        format!("the value of shard key column \"{column}\" is not known before the row is inserted"),
        detail,
        "Give it as a constant or as a parameter.",
    )
}

fn not_split(detail: &str) -> PgError {
    PgError::unsupported(
        "INSERT of rows for several shards is not supported",
        detail,
        "Insert the rows of each shard key in a statement of their own.",
    )
}

/// Only where rows of another key are needed too.
fn one_row() -> PgError {
    PgError::unsupported(
        "INSERT of a row that needs other shards is not supported",
        "Besides the row itself, which belongs to one shard, a function or sub-select of the statement touches rows of others.",
        "Read them in a statement of their own, and give the values as constants or parameters.",
    )
}

fn unpushable_source() -> PgError {
    PgError::unsupported(
        "INSERT ... SELECT whose rows change their shard is not supported",
        "The selected rows are not on the shards that own the keys they are inserted with.",
        "Select the same shard key that the rows have, or read the rows and insert them one shard key at a time.",
    )
}
