//! Where in a statement the conditions stand: a walk over its queries, sub-selects and WITH queries included.
//!
//! A WITH query hides a table only where it is visible. Every relation is resolved by the session's search path, as PostgreSQL
//! does it; a node that is entered by its children alone holds no relation of its own.

use crate::sql::parse::tree;
use std::collections::BTreeSet;
use std::rc::Rc;

use pg_raw_parse::list::NodeList;
use pg_raw_parse::walk::{Recurse, walk_manual};
use pg_raw_parse::{Node, nodes};

use super::condition::condition;
use super::from_clause::{self, Item, ItemKind, JoinItem, JoinKind};
use super::renames::{self, Renamed};
use super::uncoverable;
use super::views::{covering_name, is_of, reaches};
use crate::catalog::{Relation, quoted_identifier, quoted_name};
use crate::error::PgError;
use crate::shardmap::{GroupId, TableKind};
use crate::sql::analysis::Splice;
use crate::sql::context::Context;
use crate::sql::parse::Tree;
use crate::sql::parse::tokens::{Tokens, may_spell_names};
use crate::sql::query::{Resolved, resolve};

/// What is put into the text, the conditions in it, and the views for which it names their covering views.
#[derive(Debug, Default)]
pub struct Additions {
    pub splices: Vec<Splice>,
    pub conditions: Vec<String>,
    pub renamed: Vec<Renamed>,
}

/// `tree`: of `text`. `groups`: those that have residues.
pub fn additions(text: &str, tree: &Tree, context: &Context, groups: &[GroupId]) -> Result<Additions, PgError> {
    let tokens = Tokens::of(text);
    let mut walk = Walk { tokens: &tokens, context, groups, found: Additions::default(), one_row_names: 0 };
    for statement in tree.stmts() {
        walk.command(statement)?;
    }
    renames::references(tree, &tokens, context, &mut walk.found)?;
    if !walk.found.splices.is_empty() && may_spell_names(text) {
        return Err(uncoverable("It spells names by code points."));
    }
    Ok(walk.found)
}

/// Names of WITH queries that are visible, innermost first.
type Names<'n> = Option<Rc<Name<'n>>>;

struct Name<'n> {
    name: &'n str,
    outer: Names<'n>,
}

const DEPTH_MAX: usize = 2_000;
const STACK_LEFT_BYTES_MIN: usize = 256 * 1024;
const STACK_BYTES: usize = 4 * 1024 * 1024;

struct Walk<'w> {
    tokens: &'w Tokens<'w>,
    context: &'w Context,
    groups: &'w [GroupId],
    found: Additions,
    one_row_names: usize,
}

impl<'w> Walk<'w> {
    fn command(&mut self, node: Node<'_>) -> Result<(), PgError> {
        match (query_within(node), node) {
            (Some(query), _) => self.statement(query, &None, 0),
            (None, Node::CopyStmt(copy)) if copy.is_from => Ok(()),
            // These mean the tables as they are stored.
            (None, Node::LockStmt(_) | Node::TruncateStmt(_) | Node::VacuumStmt(_)) => Ok(()),
            // These name none, or what has been covered itself.
            (
                None,
                Node::TransactionStmt(_)
                | Node::VariableSetStmt(_)
                | Node::VariableShowStmt(_)
                | Node::FetchStmt(_)
                | Node::ClosePortalStmt(_)
                | Node::ExecuteStmt(_)
                | Node::DeallocateStmt(_),
            ) => Ok(()),
            (None, _) if self.names_such_a_table() => Err(uncoverable("It is no query and writes no rows.")),
            (None, _) => Ok(()),
        }
    }

    /// Anywhere in the text, in whatever schema.
    fn names_such_a_table(&self) -> bool {
        if may_spell_names(self.tokens.text()) {
            return true;
        }
        let names: BTreeSet<String> = (0..self.tokens.count()).filter_map(|token| self.tokens.identifier(token)).collect();
        self.context.catalog.relations.values().any(|relation| {
            names.contains(&relation.name)
                && (is_of(self.context, self.groups, relation) || reaches(self.context, self.groups, relation))
        })
    }

    fn statement<'n>(&mut self, node: Node<'n>, names: &Names<'n>, depth: usize) -> Result<(), PgError> {
        if depth > DEPTH_MAX {
            return Err(uncoverable("Its queries are nested too deeply."));
        }
        stacker::maybe_grow(STACK_LEFT_BYTES_MIN, STACK_BYTES, || match node {
            Node::SelectStmt(select) => self.select(select, names, depth),
            Node::InsertStmt(insert) => {
                let names = self.with(insert.with_clause(), names, depth)?;
                self.children(node, &names, depth)
            }
            Node::UpdateStmt(update) => {
                let names = self.with(update.with_clause(), names, depth)?;
                let (table, from, condition) = (update.relation(), update.from_clause(), update.where_clause());
                self.modified(&Modified { table, from, word: "from", condition }, &names)?;
                self.children(node, &names, depth)
            }
            Node::DeleteStmt(delete) => {
                let names = self.with(delete.with_clause(), names, depth)?;
                let (table, from, condition) = (delete.relation(), delete.using_clause(), delete.where_clause());
                self.modified(&Modified { table, from, word: "using", condition }, &names)?;
                self.children(node, &names, depth)
            }
            Node::MergeStmt(merge) => {
                let names = self.with(merge.with_clause(), names, depth)?;
                self.merge(merge, &names)?;
                self.children(node, &names, depth)
            }
            _ => Err(uncoverable("It is no query and writes no rows.")),
        })
    }

    /// The queries inside a statement or expression. Those of its own WITH clause have been looked at.
    fn children<'n>(&mut self, root: Node<'n>, names: &Names<'n>, depth: usize) -> Result<(), PgError> {
        let mut waiting = vec![root];
        let mut inner = Vec::new();
        while let Some(node) = waiting.pop() {
            walk_manual::<()>(node, |child| {
                match child {
                    Node::WithClause(_) => {}
                    Node::SelectStmt(_) | Node::InsertStmt(_) | Node::UpdateStmt(_) | Node::DeleteStmt(_) | Node::MergeStmt(_) => {
                        inner.push(child);
                    }
                    _ => waiting.push(child),
                }
                Recurse::no()
            });
        }
        inner.into_iter().try_for_each(|query| self.statement(query, names, depth + 1))
    }

    fn with<'n>(&mut self, clause: Option<&'n nodes::WithClause>, outer: &Names<'n>, depth: usize) -> Result<Names<'n>, PgError> {
        let Some(clause) = clause else { return Ok(outer.clone()) };
        let queries: Vec<&'n nodes::CommonTableExpr> = clause.ctes().iter().collect();
        let named = |names: &Names<'n>, query: &'n nodes::CommonTableExpr| {
            Some(Rc::new(Name { name: query.ctename().unwrap_or_default(), outer: names.clone() }))
        };
        let all = queries.iter().fold(outer.clone(), |names, query| named(&names, query));
        let mut before = outer.clone();
        for query in queries {
            self.statement(query.ctequery(), if clause.recursive { &all } else { &before }, depth + 1)?;
            before = named(&before, query);
        }
        Ok(all)
    }

    fn select<'n>(&mut self, select: &'n nodes::SelectStmt, names: &Names<'n>, depth: usize) -> Result<(), PgError> {
        let names = self.with(select.with_clause(), names, depth)?;
        if self.concerns(select.from_clause(), &names)? {
            let table = first_name(select.from_clause()).ok_or_else(unplaced)?;
            let at = self.tokens.at_location(table.location).ok_or_else(unplaced)?;
            if let Some(command) = self.table_command(at) {
                self.whole_table(table, command, at)?;
            } else {
                let from = self.clause_begin(at).ok_or_else(unplaced)?;
                let (kept, end) = self.from(from + 1, select.from_clause(), &names)?;
                self.put_into_where(&kept, end, select.where_clause())?;
            }
        }
        self.children(Node::SelectStmt(select), &names, depth)
    }

    /// The items of a clause: conditions for those that are kept, which stand in WHERE, and the token behind the clause.
    fn from(&mut self, first: usize, tree: &NodeList, names: &Names<'_>) -> Result<(Vec<String>, usize), PgError> {
        let (items, end) = from_clause::items(self.tokens, first).ok_or_else(unplaced)?;
        if !from_clause::agree(self.tokens, &items, tree) {
            return Err(unplaced());
        }
        let mut kept = Vec::new();
        for (item, node) in items.iter().zip(tree.iter()) {
            kept.extend(self.item(item, node, names, Above::top())?);
        }
        self.check_beside(tree, None)?;
        Ok((kept, end))
    }

    /// Of a clause, and the target of the statement that it is in.
    fn check_beside(&self, from: &NodeList, target: Option<&nodes::RangeVar>) -> Result<(), PgError> {
        let tables: Vec<&nodes::RangeVar> = from.iter().flat_map(tree::tables_of).chain(target).collect();
        renames::check_beside(&tables, &self.found.renamed, self.context)
    }

    /// Conditions of an item that nothing above it but WHERE can take.
    fn item(&mut self, item: &Item, node: Node<'_>, names: &Names<'_>, above: Above) -> Result<Vec<String>, PgError> {
        match (&item.kind, node) {
            (ItemKind::Join(join), Node::JoinExpr(tree)) => {
                let mut kept = self.item(&join.left, tree.larg(), names, above.left_of(join))?;
                kept.extend(self.item(&join.right, tree.rarg(), names, above.right_of(join))?);
                Ok(kept)
            }
            (ItemKind::Named(_), Node::RangeTableSample(sample)) => self.item(item, sample.relation(), names, above),
            (ItemKind::Named(_), Node::RangeVar(table)) => {
                match (self.excluded(table, names)?, above.place) {
                    (Some(Excluded::By(condition)), Place::Where) => return Ok(vec![condition]),
                    (Some(Excluded::By(condition)), Place::On(first, last)) => self.before_expression(&condition, first, last)?,
                    (Some(Excluded::By(condition)), Place::OneRow) => self.one_row(&condition, item.first, item.last)?,
                    (Some(Excluded::Within(view)), _) => self.rename(view, table)?,
                    (None, _) => {}
                }
                Ok(Vec::new())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// The condition of the target, which stands in WHERE.
    fn target(&mut self, table: Option<&nodes::RangeVar>, condition: Node<'_>) -> Result<Option<String>, PgError> {
        // The cursor's own query leaves the rows out, and nothing can stand beside it.
        let table = table.filter(|_| !matches!(condition, Node::CurrentOfExpr(_)));
        let Some(table) = table else { return Ok(None) };
        match self.excluded(table, &None)? {
            Some(Excluded::By(condition)) => Ok(Some(condition)),
            Some(Excluded::Within(view)) => {
                check_written(view)?;
                self.rename(view, table)?;
                Ok(None)
            }
            None => Ok(None),
        }
    }

    fn modified(&mut self, modified: &Modified<'_>, names: &Names<'_>) -> Result<(), PgError> {
        let target = self.target(modified.table, modified.condition)?;
        self.check_beside(modified.from, modified.table)?;
        if target.is_none() && !self.concerns(modified.from, names)? {
            return Ok(());
        }
        let target_at = modified.table.and_then(|table| self.tokens.at_location(table.location)).ok_or_else(unplaced)?;
        let mut kept: Vec<String> = target.into_iter().collect();
        let end = if modified.from.is_empty() {
            self.first_at_top(target_at, &["where", "returning"])
        } else {
            let clause = self.first_at_top(target_at, &[modified.word]);
            let (more, end) = self.from(clause + 1, modified.from, names)?;
            kept.extend(more);
            end
        };
        self.put_into_where(&kept, end, modified.condition)
    }

    fn merge(&mut self, merge: &nodes::MergeStmt, names: &Names<'_>) -> Result<(), PgError> {
        let target = match merge.relation().map(|table| self.excluded(table, &None)).transpose()?.flatten() {
            Some(Excluded::By(condition)) => Some(condition),
            Some(Excluded::Within(view)) => return Err(uncoverable(&format!("It merges into view \"{}\".", view.name))),
            None => None,
        };
        let at = merge.relation().and_then(|table| self.tokens.at_location(table.location)).ok_or_else(unplaced)?;
        let using = self.first_at_top(at, &["using"]);
        let (source, on) = from_clause::item(self.tokens, using + 1).ok_or_else(unplaced)?;
        if !from_clause::agrees(self.tokens, &source, merge.source_relation()) || !self.tokens.is_word(on, "on") {
            return Err(unplaced());
        }
        let kept = self.item(&source, merge.source_relation(), names, Above { place: Place::OneRow })?;
        assert!(kept.is_empty(), "a source has a place of its own");
        let Some(target) = target else { return Ok(()) };
        let last = from_clause::expression_end(self.tokens, on + 1, &[]).ok_or_else(unplaced)?;
        self.before_expression(&target, on + 1, last)?;
        let mut at = last + 1;
        for clause in merge.merge_when_clauses().iter() {
            let then = self.then(at).ok_or_else(unplaced)?;
            if clause.match_kind == nodes::MergeMatchKind::MERGE_WHEN_NOT_MATCHED_BY_SOURCE {
                let words = ["when", "not", "matched", "by", "source"];
                let is_it = words.iter().enumerate().all(|(index, word)| self.tokens.is_word(at + index, word));
                match (is_it, matches!(clause.condition(), Node::None)) {
                    (true, true) => self.insert_after(at + 4, format!(" AND {target}"))?,
                    (true, false) => self.before_expression(&target, at + 6, then - 1)?,
                    (false, _) => return Err(unplaced()),
                }
                if matches!(clause.condition(), Node::None) {
                    self.found.conditions.push(target.clone());
                }
            }
            at = self.when(then).unwrap_or(self.tokens.count());
        }
        Ok(())
    }

    /// The THEN of the clause that begins here.
    fn then(&self, when: usize) -> Option<usize> {
        let mut at = when + 1;
        let mut cases = 0_usize;
        loop {
            match self.tokens.piece(at) {
                "" | ";" => return None,
                "(" | "[" => at = self.tokens.closing(at)?,
                _ if self.tokens.is_word(at, "case") => cases += 1,
                _ if self.tokens.is_word(at, "end") && cases > 0 => cases -= 1,
                _ if cases == 0 && self.tokens.is_word(at, "then") => return Some(at),
                _ => {}
            }
            at += 1;
        }
    }

    /// The WHEN of the next clause.
    fn when(&self, then: usize) -> Option<usize> {
        let mut at = then + 1;
        let mut cases = 0_usize;
        loop {
            match self.tokens.piece(at) {
                "" | ";" => return None,
                "(" | "[" => at = self.tokens.closing(at)?,
                _ if self.tokens.is_word(at, "case") => cases += 1,
                _ if self.tokens.is_word(at, "end") && cases > 0 => cases -= 1,
                _ if cases == 0 && self.tokens.is_word(at, "when") => return Some(at),
                _ => {}
            }
            at += 1;
        }
    }

    /// What leaves out the rows of a table, or of a view, of which residues may lie on the shard.
    fn excluded(&self, name: &nodes::RangeVar, names: &Names<'_>) -> Result<Option<Excluded<'w>>, PgError> {
        match self.resolved(name, names) {
            Some(Resolved::Sharded { table, group, relation }) if self.groups.contains(&group.id) => {
                let TableKind::Sharded { key, .. } = &table.kind else { return Ok(None) };
                let alias = name.alias();
                let row = match alias.and_then(nodes::Alias::aliasname) {
                    Some(alias) => quoted_identifier(alias),
                    None => quoted_name(&relation.schema, &relation.name),
                };
                let renamed: Vec<&str> =
                    alias.map(|alias| alias.colnames().iter().filter_map(Node::as_str).collect()).unwrap_or_default();
                let column = |name: &str| {
                    let place = relation.columns.iter().position(|column| column.name == name)?;
                    Some(renamed.get(place).map_or_else(|| name.to_owned(), |renamed| (*renamed).to_owned()))
                };
                Ok(Some(Excluded::By(condition(key, group, &row, column)?)))
            }
            Some(Resolved::View(view)) if reaches(self.context, self.groups, view) => Ok(Some(Excluded::Within(view))),
            Some(Resolved::Mixed(reason)) => Err(uncoverable(&reason)),
            _ => Ok(None),
        }
    }

    /// The covering view, under the name by which the statement knows the view.
    fn rename(&mut self, view: &Relation, name: &nodes::RangeVar) -> Result<(), PgError> {
        let first = self.tokens.at_location(name.location).ok_or_else(unplaced)?;
        let last = self.tokens.name_end(first);
        let covering = covering_name(&view.schema, &view.name);
        let range = self.tokens.range(first, last).ok_or_else(unplaced)?;
        let text = format!("shardgate.{covering}");
        self.found.splices.push(Splice { start: range.start, end: range.end, text });
        if name.alias().is_none() {
            self.insert_after(self.table_end(name, first), format!(" AS {}", quoted_identifier(&view.name)))?;
        }
        self.found.renamed.push(Renamed::of(view, covering, name));
        Ok(())
    }

    /// The last token of a table's name, with ONLY's parenthesis or the star behind it.
    fn table_end(&self, name: &nodes::RangeVar, first: usize) -> usize {
        let last = self.tokens.name_end(first);
        let is_only_in_parentheses = !name.inh && first.checked_sub(1).is_some_and(|before| self.tokens.piece(before) == "(");
        last + usize::from(self.tokens.piece(last + 1) == "*" || is_only_in_parentheses)
    }

    fn resolved(&self, name: &nodes::RangeVar, names: &Names<'_>) -> Option<Resolved<'w>> {
        if name.schemaname().is_none() {
            let mut visible = names.as_ref();
            while let Some(known) = visible {
                if Some(known.name) == name.relname() {
                    return None;
                }
                visible = known.outer.as_ref();
            }
        }
        Some(resolve(self.context, name, &self.context.search_path))
    }

    /// Does a clause name a table of which residues may lie on the shard?
    fn concerns(&self, from: &NodeList, names: &Names<'_>) -> Result<bool, PgError> {
        let mut concerns = false;
        for table in from.iter().flat_map(tree::tables_of) {
            concerns |= self.excluded(table, names)?.is_some();
        }
        Ok(concerns)
    }

    /// The token of FROM, from a table of its clause. Parentheses around the table are those of joins.
    fn clause_begin(&self, table: usize) -> Option<usize> {
        let mut at = table;
        loop {
            at = at.checked_sub(1)?;
            match self.tokens.piece(at) {
                ")" | "]" => at = self.opening(at)?,
                _ if self.tokens.is_word(at, "from") && !self.is_other_from(at) => return Some(at),
                _ => {}
            }
        }
    }

    /// IS DISTINCT FROM, ROWS FROM (function(…), …), or a name behind a dot.
    fn is_other_from(&self, from: usize) -> bool {
        let Some(before) = from.checked_sub(1) else { return false };
        let is_of_functions = || self.tokens.piece(from + 1) == "(" && self.tokens.piece(self.tokens.name_end(from + 2) + 1) == "(";
        self.tokens.is_word(before, "distinct")
            || self.tokens.piece(before) == "."
            || (self.tokens.is_word(before, "rows") && is_of_functions())
    }

    fn opening(&self, close: usize) -> Option<usize> {
        let mut depth = 0_usize;
        let mut at = close;
        loop {
            match self.tokens.piece(at) {
                ")" | "]" => depth += 1,
                "(" | "[" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Some(at);
            }
            at = at.checked_sub(1)?;
        }
    }

    /// The first of these words behind a token, outside of parentheses and not as the name behind a dot; else where the query ends.
    fn first_at_top(&self, from: usize, words: &[&str]) -> usize {
        let mut at = from + 1;
        while at < self.tokens.count() {
            match self.tokens.piece(at) {
                "(" | "[" => at = self.tokens.closing(at).unwrap_or(self.tokens.count()),
                ")" | "]" | ";" => break,
                _ if self.tokens.is_one_of(at, words)
                    && self.tokens.piece(at - 1) != "."
                    && !self.tokens.is_word(at - 1, "distinct") =>
                {
                    break;
                }
                _ => {}
            }
            at += 1;
        }
        at.min(self.tokens.count())
    }

    /// `TABLE t`: the token of the command.
    fn table_command(&self, name: usize) -> Option<usize> {
        let mut at = name.checked_sub(1)?;
        while self.tokens.is_word(at, "only") || self.tokens.piece(at) == "(" {
            at = at.checked_sub(1)?;
        }
        self.tokens.is_word(at, "table").then_some(at)
    }

    fn whole_table(&mut self, table: &nodes::RangeVar, command: usize, name: usize) -> Result<(), PgError> {
        let Some(excluded) = self.excluded(table, &None)? else { return Ok(()) };
        let range = self.tokens.range(command, command).ok_or_else(unplaced)?;
        self.found.splices.push(Splice { start: range.start, end: range.end, text: "SELECT * FROM".to_owned() });
        match excluded {
            Excluded::By(condition) => {
                self.insert_after(self.table_end(table, name), format!(" WHERE {condition}"))?;
                self.found.conditions.push(condition);
                Ok(())
            }
            Excluded::Within(view) => self.rename(view, table),
        }
    }

    /// Conditions as the first ones of WHERE, where `behind` is the token behind FROM.
    fn put_into_where(&mut self, conditions: &[String], behind: usize, tree: Node<'_>) -> Result<(), PgError> {
        if conditions.is_empty() {
            return Ok(());
        }
        let all = conditions.join(" AND ");
        let has_condition = self.tokens.is_word(behind, "where");
        if has_condition == matches!(tree, Node::None) {
            return Err(unplaced());
        }
        self.found.conditions.extend_from_slice(conditions);
        if has_condition {
            // ON CONFLICT of an INSERT may come next.
            let last = from_clause::expression_end(self.tokens, behind + 1, &["on"]).ok_or_else(unplaced)?;
            return self.before(&all, behind + 1, last);
        }
        self.insert_after(behind.checked_sub(1).ok_or_else(unplaced)?, format!(" WHERE {all}"))
    }

    /// `condition AND (expression)`.
    fn before_expression(&mut self, condition: &str, first: usize, last: usize) -> Result<(), PgError> {
        self.found.conditions.push(condition.to_owned());
        self.before(condition, first, last)
    }

    fn before(&mut self, condition: &str, first: usize, last: usize) -> Result<(), PgError> {
        let range = self.tokens.range(first, last).ok_or_else(unplaced)?;
        self.found.splices.push(Splice { start: range.start, end: range.start, text: format!("{condition} AND (") });
        self.found.splices.push(Splice { start: range.end, end: range.end, text: ")".to_owned() });
        Ok(())
    }

    fn one_row(&mut self, condition: &str, first: usize, last: usize) -> Result<(), PgError> {
        let range = self.tokens.range(first, last).ok_or_else(unplaced)?;
        let name = self.one_row_name();
        self.found.conditions.push(condition.to_owned());
        self.found.splices.push(Splice { start: range.start, end: range.start, text: "(".to_owned() });
        let join = format!(" JOIN (SELECT) AS {name} ON {condition})");
        self.found.splices.push(Splice { start: range.end, end: range.end, text: join });
        Ok(())
    }

    /// A name that the text does not have.
    fn one_row_name(&mut self) -> String {
        loop {
            self.one_row_names += 1;
            let name = format!("sg_{}", self.one_row_names);
            if !self.tokens.text().to_ascii_lowercase().contains(&name) {
                return name;
            }
        }
    }

    fn insert_after(&mut self, token: usize, text: String) -> Result<(), PgError> {
        let end = self.tokens.get(token).ok_or_else(unplaced)?.end;
        self.found.splices.push(Splice { start: end, end, text });
        Ok(())
    }
}

/// The query, or what writes rows, that a statement is or has in it.
pub fn query_within(statement: Node<'_>) -> Option<Node<'_>> {
    match statement {
        Node::SelectStmt(_) | Node::InsertStmt(_) | Node::UpdateStmt(_) | Node::DeleteStmt(_) | Node::MergeStmt(_) => {
            Some(statement)
        }
        Node::ExplainStmt(explain) => query_within(explain.query()),
        Node::PrepareStmt(prepare) => query_within(prepare.query()),
        Node::DeclareCursorStmt(declare) => query_within(declare.query()),
        Node::CreateTableAsStmt(create) => query_within(create.query()),
        Node::CopyStmt(copy) => query_within(copy.query()),
        _ => None,
    }
}

/// What leaves out the rows that are not owned.
enum Excluded<'w> {
    /// A condition on the table's key.
    By(String),
    /// The covering view of this one.
    Within(&'w Relation),
}

/// PostgreSQL writes through the covering view as through the view: to its table.
fn check_written(view: &Relation) -> Result<(), PgError> {
    let is_plain = view.triggers.is_empty() && view.rules.is_empty() && view.columns.iter().all(|column| column.default.is_none());
    match is_plain {
        true => Ok(()),
        false => Err(uncoverable(&format!("View \"{}\" has triggers, rules or defaults of its own.", view.name))),
    }
}

/// An UPDATE or DELETE.
struct Modified<'n> {
    table: Option<&'n nodes::RangeVar>,
    /// FROM, or USING.
    from: &'n NodeList,
    word: &'static str,
    condition: Node<'n>,
}

/// Where the condition of a table stands, by the joins above it.
#[derive(Clone, Copy)]
struct Above {
    place: Place,
}

#[derive(Clone, Copy)]
enum Place {
    Where,
    /// First in this ON: its tokens.
    On(usize, usize),
    OneRow,
}

impl Above {
    fn top() -> Self {
        Self { place: Place::Where }
    }

    /// For the left item of a join that has these above it.
    fn left_of(self, join: &JoinItem) -> Self {
        self.below(join, matches!(join.kind, JoinKind::Right | JoinKind::Full))
    }

    fn right_of(self, join: &JoinItem) -> Self {
        self.below(join, matches!(join.kind, JoinKind::Left | JoinKind::Full))
    }

    fn below(self, join: &JoinItem, is_nullable: bool) -> Self {
        // Above a join with an alias nobody knows the table's name.
        let hidden = if join.has_alias { Place::OneRow } else { self.place };
        let place = match (join.kind, is_nullable, join.on) {
            (JoinKind::Full, _, _) => Place::OneRow,
            (JoinKind::Left | JoinKind::Right, true, Some((first, last))) => Place::On(first, last),
            (JoinKind::Left | JoinKind::Right, true, None) => Place::OneRow,
            (JoinKind::Inner, _, Some((first, last))) if matches!(hidden, Place::OneRow) => Place::On(first, last),
            (JoinKind::Left | JoinKind::Right | JoinKind::Inner, _, _) => hidden,
        };
        Self { place }
    }
}

fn first_name(from: &NodeList) -> Option<&nodes::RangeVar> {
    from.iter().flat_map(tree::tables_of).min_by_key(|table| table.location)
}

fn unplaced() -> PgError {
    uncoverable("A table stands in a form that the proxy does not know.")
}
