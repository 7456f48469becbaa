//! Reads the bodies of SQL and PL/pgSQL functions: which relations they read and write, which functions they call.
//!
//! SQL is parsed by PostgreSQL's own grammar. PL/pgSQL is taken apart into the SQL statements and expressions in it
//! (`plpgsql`), each of which is parsed the same way. Whatever is not understood makes the answer unknown, with a reason that
//! completes the sentence `function "f" …`. Names are reported generously: a name that might be a table's is one.

use std::collections::BTreeSet;

use pg_raw_parse::nodes::{CmdType, OnConflictAction};
use pg_raw_parse::walk::{Recurse, walk_manual};
use pg_raw_parse::{ConstValue, Node, nodes};

use super::parse::tree;
use crate::catalog::{BodyName, BodyReader, BodyReferences, Kept, RowWrites, SchemaEffect, SessionEffects, UpdatedColumns};
use crate::sql::ddl;
use crate::sql::parse::parse;
use crate::sql::utility::session_command;

mod given_texts;
mod object_settings;
mod plpgsql;
mod schema_effects;

pub use object_settings::custom_settings_given;
pub use schema_effects::{begins_with_change, begins_with_other, strings};

/// Reads bodies with PostgreSQL's grammar. Stateless.
#[derive(Clone, Copy, Debug, Default)]
pub struct SqlBodyReader;

impl BodyReader for SqlBodyReader {
    fn references(&self, language: &str, body: &str) -> BodyReferences {
        let mut found = Found::default();
        match language {
            "sql" => sql(body, &mut found),
            "plpgsql" => plpgsql::read(body, &mut found),
            other => found.lose(format!("is written in {other}")),
        }
        found.finish(body)
    }

    fn schema_effect(&self, language: &str, body: &str) -> Option<SchemaEffect> {
        schema_effects::schema_effect(language, body)
    }
}

/// What one statement refers to, read like the body of an SQL function. `text`: where its words are.
pub fn references_of(node: Node<'_>, text: &str) -> BodyReferences {
    let mut found = Found::default();
    statement(node, &mut found);
    found.finish(text)
}

/// The same of an expression alone.
pub fn references_of_expression(node: Node<'_>, text: &str) -> BodyReferences {
    let mut found = Found::default();
    // There is no node to walk where an expression is left out.
    if !matches!(node, Node::None) {
        query(node, &mut found);
    }
    found.finish(text)
}

/// Bodies longer than this are not read.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// The statements of a function's body. `None`: some part of it is not understood.
pub fn queries(language: &str, body: &str) -> Option<Vec<String>> {
    let mut found = Found { queries: Some(Vec::new()), ..Found::default() };
    match language {
        "sql" => sql(body, &mut found),
        "plpgsql" => plpgsql::read(body, &mut found),
        _ => return None,
    }
    let Found { queries, unknown, .. } = found;
    queries.filter(|_| unknown.is_none())
}

/// What was found so far.
#[derive(Default)]
struct Found {
    references: BodyReferences,
    unknown: Option<String>,
    /// Some part is not understood, or made when it runs: what it leaves in the session is told by the words of the text.
    is_unread: bool,
    /// The structure is not understood from here on.
    is_lost: bool,
    new_row: NewRow,
    /// Texts of schema changes; `None` where these are not to be seen.
    changes: Option<Vec<String>>,
    /// Where schema changes are looked for: it makes the text of some itself.
    makes_changes: bool,
    /// Texts of all statements; `None` where these are not asked for.
    queries: Option<Vec<String>>,
}

/// What a PL/pgSQL body does to NEW.
enum NewRow {
    /// Columns assigned one by one.
    Columns(Vec<String>),
    /// Assigned as a whole, or handed to something unknown.
    Unknown,
}

impl Default for NewRow {
    fn default() -> Self {
        NewRow::Columns(Vec::new())
    }
}

impl Found {
    fn give_up(&mut self, why: impl Into<String>) {
        self.unknown.get_or_insert_with(|| why.into());
    }

    /// Runs SQL that is not in the text.
    fn give_up_unread(&mut self, why: impl Into<String>) {
        self.is_unread = true;
        self.give_up(why);
    }

    fn lose(&mut self, why: impl Into<String>) {
        self.is_lost = true;
        self.give_up_unread(why);
    }

    fn finish(self, text: &str) -> BodyReferences {
        let mut references = self.references;
        if self.is_unread {
            references.effects.add(&SessionEffects::of_unread(text));
        }
        for list in [&mut references.reads, &mut references.functions] {
            list.sort_unstable();
            list.dedup();
        }
        references.reads.retain(|name| !references.writes.contains_key(name));
        for list in [&mut references.operators, &mut references.fields, &mut references.bound_names] {
            list.sort_unstable();
            list.dedup();
        }
        references.assigned_new = match (self.new_row, &self.unknown) {
            (NewRow::Columns(mut columns), _) => {
                columns.sort_unstable();
                columns.dedup();
                Some(columns)
            }
            (NewRow::Unknown, _) => None,
        };
        references.unknown = self.unknown;
        references
    }

    /// What a text that is run by its words refers to counts as well.
    fn take_over(&mut self, inner: Found) {
        let Found { references, is_unread, .. } = inner;
        self.is_unread |= is_unread;
        self.references.reads.extend(references.reads);
        references.writes.into_iter().for_each(|(name, writes)| self.writes(name, &writes));
        self.references.functions.extend(references.functions);
        self.references.operators.extend(references.operators);
        self.references.fields.extend(references.fields);
        self.references.notifies |= references.notifies;
        self.references.sets_local |= references.sets_local;
        self.references.sets_session |= references.sets_session;
        self.references.effects.add(&references.effects);
    }

    /// A schema change, where these are looked for.
    fn takes_change(&mut self, node: Node<'_>, text: &str) -> bool {
        match &mut self.changes {
            Some(changes) if ddl::classify(node).is_some() => {
                changes.push(text.to_owned());
                true
            }
            Some(_) | None => false,
        }
    }

    fn writes(&mut self, name: BodyName, writes: &RowWrites) {
        self.references.writes.entry(name).or_default().add(writes);
    }

    fn asked_for(&mut self, text: &str) {
        self.queries.iter_mut().for_each(|queries| queries.push(text.to_owned()));
    }

    fn binds(&mut self, name: String) {
        self.references.bound_names.push(name);
    }

    fn assign_new_column(&mut self, column: String) {
        if let NewRow::Columns(columns) = &mut self.new_row {
            columns.push(column);
        }
    }

    fn lose_new(&mut self) {
        self.new_row = NewRow::Unknown;
    }
}

/// The body of an SQL function: statements between semicolons, or `BEGIN ATOMIC … END`, or `RETURN expression`.
fn sql(body: &str, found: &mut Found) {
    if body.len() > BODY_BYTES_MAX {
        return found.lose("is too long to be read");
    }
    let trimmed = body.trim();
    let folded = trimmed.get(..12).unwrap_or_default().to_ascii_lowercase();
    if folded == "begin atomic" {
        // What pg_get_function_sqlbody prints. Inside a function's declaration the grammar reads it.
        let declaration = format!("CREATE FUNCTION f() RETURNS void LANGUAGE sql {trimmed}");
        let inside = trimmed.get(folded.len()..trimmed.len().saturating_sub("end".len())).unwrap_or_default();
        found.asked_for(inside);
        return match parse(&declaration) {
            Ok(tree) => tree.stmts().for_each(|statement| match statement {
                Node::CreateFunctionStmt(create) => nested_statements(create.sql_body(), found),
                _ => found.lose(UNREADABLE),
            }),
            Err(_) => found.lose(UNREADABLE),
        };
    }
    if folded.starts_with("return ") {
        return expression(trimmed.get("return ".len()..).unwrap_or_default(), found);
    }
    statements(trimmed, found);
}

const UNREADABLE: &str = "has a part that cannot be read";

fn nested_statements(node: Node<'_>, found: &mut Found) {
    match node {
        Node::None => {}
        Node::NodeList(list) => list.iter().for_each(|inner| nested_statements(inner, found)),
        other => statement(other, found),
    }
}

/// SQL statements between semicolons.
fn statements(text: &str, found: &mut Found) {
    found.asked_for(text);
    match parse(text) {
        Ok(tree) if tree.stmts().count() == 1 => tree.stmts().for_each(|node| {
            if !found.takes_change(node, text) {
                statement(node, found);
            }
        }),
        Ok(tree) => tree.stmts().for_each(|node| statement(node, found)),
        Err(_) => found.lose(UNREADABLE),
    }
}

/// What a body does to the schema, and what it refers to besides.
pub struct Changes {
    /// The texts that stand in it, in their order.
    pub texts: Vec<String>,
    /// It makes others when it runs.
    pub makes_more: bool,
    pub references: BodyReferences,
}

/// The schema changes of a body.
pub fn schema_changes(language: &str, body: &str) -> Changes {
    let mut found = Found { changes: Some(Vec::new()), ..Found::default() };
    match language {
        "sql" => sql(body, &mut found),
        "plpgsql" => plpgsql::read(body, &mut found),
        other => found.lose(format!("is written in {other}")),
    }
    let texts = found.changes.take().unwrap_or_default();
    Changes { texts, makes_more: found.makes_changes, references: found.finish(body) }
}

/// An expression, or several between commas.
fn expression(text: &str, found: &mut Found) {
    statements(&format!("SELECT {text}"), found);
}

fn statement(node: Node<'_>, found: &mut Found) {
    match node {
        Node::SelectStmt(select) if select.into_clause().is_some() => {
            query(node, found);
            let is_dropped_at_commit =
                select.into_clause().is_some_and(|into| into.on_commit == nodes::OnCommitAction::ONCOMMIT_DROP);
            creates(select.into_clause().and_then(nodes::IntoClause::rel), is_dropped_at_commit, found);
        }
        Node::SelectStmt(_) | Node::InsertStmt(_) | Node::UpdateStmt(_) | Node::DeleteStmt(_) | Node::MergeStmt(_) => {
            query(node, found)
        }
        Node::ReturnStmt(statement) => query(statement.returnval(), found),
        Node::CallStmt(call) => match call.funccall() {
            Some(call) => query(Node::FuncCall(call), found),
            None => found.lose(UNREADABLE),
        },
        Node::TruncateStmt(truncate) => truncate.relations().iter().for_each(|relation| match relation {
            Node::RangeVar(relation) => found.writes(name_of(relation), &RowWrites::TRUNCATE),
            _ => found.lose(UNREADABLE),
        }),
        Node::LockStmt(lock) => lock.relations().iter().for_each(|relation| match relation {
            Node::RangeVar(relation) => found.writes(name_of(relation), &RowWrites::ALL),
            _ => found.lose(UNREADABLE),
        }),
        // A table of the session's own: of no shard's rows, but of one backend.
        Node::CreateStmt(create) => {
            let is_dropped_at_commit = create.oncommit == nodes::OnCommitAction::ONCOMMIT_DROP;
            creates(create.relation(), is_dropped_at_commit, found);
        }
        Node::CreateTableAsStmt(create) => {
            // A query, or EXECUTE.
            statement(create.query(), found);
            let is_dropped_at_commit = create.into().is_some_and(|into| into.on_commit == nodes::OnCommitAction::ONCOMMIT_DROP);
            creates(create.into().and_then(nodes::IntoClause::rel), is_dropped_at_commit, found);
        }
        Node::DropStmt(_) | Node::IndexStmt(_) => creates(None, false, found),
        Node::VariableSetStmt(set) => setting(set, found),
        Node::VariableShowStmt(_) | Node::ConstraintsSetStmt(_) => {}
        Node::TransactionStmt(_) => found.give_up("ends transactions"),
        // Each shard would send it.
        Node::NotifyStmt(_) if found.changes.is_some() => found.give_up("sends notifications"),
        Node::NotifyStmt(_) => found.references.notifies = true,
        other => {
            if let Some(kept) = keeps(other) {
                found.references.effects.keeps(kept);
            }
            found.references.effects.names_left.extend(custom_settings_given(other));
            found.give_up_unread("runs a statement that is neither a query nor a change of rows");
        }
    }
}

/// A statement by whose kind alone it is known what it leaves.
fn keeps(node: Node<'_>) -> Option<Kept> {
    match node {
        Node::ListenStmt(_) => Some(Kept::Listen),
        Node::PrepareStmt(_) | Node::DeallocateStmt(_) | Node::DiscardStmt(_) => Some(Kept::PreparedStatement),
        Node::LoadStmt(_) => Some(Kept::Library),
        _ => None,
    }
}

fn creates(relation: Option<&nodes::RangeVar>, is_dropped_at_commit: bool, found: &mut Found) {
    if relation.is_some_and(ddl::is_temporary) && !is_dropped_at_commit {
        found.references.effects.keeps(Kept::TemporaryObject);
    }
    found.references.effects.is_unproven = true;
    found.give_up("creates or drops objects");
}

/// What outlives the transaction would be met by the next client of the connection.
fn setting(set: &nodes::VariableSetStmt, found: &mut Found) {
    use nodes::VariableSetKind as Kind;
    let name = set.name().unwrap_or_default().to_ascii_lowercase();
    let effects = &mut found.references.effects;
    if name == "seed" {
        // What it sets is no setting, and no rollback takes it back.
        effects.keeps(Kept::Seed);
    }
    match (set.kind, name.as_str()) {
        (Kind::VAR_SET_MULTI, "session characteristics") => {
            DEFAULT_MODES.iter().for_each(|mode| effects.sets(mode));
        }
        (Kind::VAR_SET_MULTI, _) => {
            effects.sets_for_transaction(None);
            found.references.sets_local = true;
            return;
        }
        _ if set.is_local || name.starts_with("transaction_") => {
            effects.sets_for_transaction(is_followed(&name).then_some(&name));
            found.references.sets_local = true;
            return;
        }
        // What it is in any case.
        (Kind::VAR_SET_VALUE, "standard_conforming_strings" | "transform_null_equals")
            if matches!(session_command::classify(Node::VariableSetStmt(set)), Some(Ok(_))) => {}
        (Kind::VAR_RESET_ALL, _) => effects.sets_any(),
        (_, "seed") => {}
        _ => {
            effects.sets(&name);
            if is_followed(&name) {
                found.references.sets_session = true;
                return;
            }
        }
    }
    found.give_up("changes a setting of the session");
}

/// The session can follow it by its name, and it does not change what the rest of the body means: the search path does, and so do
/// those of the transaction.
fn is_followed(name: &str) -> bool {
    !name.eq_ignore_ascii_case("search_path") && !name.to_ascii_lowercase().starts_with("transaction_")
}

/// Settings of SET SESSION CHARACTERISTICS.
const DEFAULT_MODES: [&str; 3] =
    ["default_transaction_isolation", "default_transaction_read_only", "default_transaction_deferrable"];

/// Everything in a query, its sub-selects and common table expressions included. With a stack of its own: a body may nest
/// deeper than ours reaches.
fn query(root: Node<'_>, found: &mut Found) {
    let mut stack = vec![root];
    while let Some(node) = stack.pop() {
        visit(node, found);
        walk_manual::<()>(node, |child| {
            stack.push(child);
            Recurse::no()
        });
    }
}

fn visit(node: Node<'_>, found: &mut Found) {
    match node {
        // Targets of changes come by here too, and are taken out again in the end. Names of common table expressions as well:
        // the catalogue knows whether there is a table of that name, which then may be meant elsewhere.
        Node::RangeVar(relation) => found.references.reads.push(name_of(relation)),
        Node::InsertStmt(_) | Node::DeleteStmt(_) | Node::MergeStmt(_) => change(node, found),
        Node::UpdateStmt(update) => {
            if update.relation().is_some_and(|relation| relation.relname() == Some("pg_settings")) {
                found.references.effects.sets_any();
                found.give_up("changes a setting of the session");
            }
            change(node, found);
        }
        Node::FuncCall(call) => function_call(call, found),
        Node::A_Expr(_) | Node::CaseExpr(_) | Node::SubLink(_) => {
            found.references.operators.extend(tree::operators_of(node).into_iter().map(str::to_owned));
        }
        Node::JoinExpr(join) if join.is_natural || !join.using_clause().is_empty() => {
            found.references.operators.push("=".to_owned());
        }
        // A function of the row may be meant.
        Node::ColumnRef(column) if column.fields().len() > 1 => {
            found.references.fields.extend(column.fields().iter().next_back().and_then(Node::as_str).map(str::to_owned));
        }
        Node::A_Indirection(value) => {
            found.references.fields.extend(value.indirection().iter().filter_map(Node::as_str).map(str::to_owned));
        }
        _ => {}
    }
}

/// What the statement does to rows of its target.
fn change(node: Node<'_>, found: &mut Found) {
    let (relation, writes) = match node {
        Node::InsertStmt(insert) => {
            let mut writes = RowWrites::INSERT;
            if let Some(conflict) = insert.on_conflict_clause().filter(|it| it.action != OnConflictAction::ONCONFLICT_NOTHING) {
                writes.add(&update_of(conflict.target_list().iter().map(Some)));
            }
            (insert.relation(), writes)
        }
        Node::UpdateStmt(update) => (update.relation(), update_of(update.target_list().iter().map(Some))),
        Node::DeleteStmt(delete) => (delete.relation(), RowWrites::DELETE),
        Node::MergeStmt(merge) => {
            let mut writes = RowWrites::NONE;
            for clause in merge.merge_when_clauses().iter() {
                match clause.command_type {
                    CmdType::CMD_INSERT => writes.add(&RowWrites::INSERT),
                    CmdType::CMD_UPDATE => {
                        let targets = clause.target_list().iter();
                        writes.add(&update_of(targets.map(|target| match target {
                            Node::ResTarget(target) => Some(target),
                            _ => None,
                        })));
                    }
                    CmdType::CMD_DELETE => writes.add(&RowWrites::DELETE),
                    CmdType::CMD_NOTHING => {}
                    _ => writes.add(&RowWrites::ALL),
                }
            }
            (merge.relation(), writes)
        }
        _ => return,
    };
    if let Some(relation) = relation {
        found.writes(name_of(relation), &writes);
    }
}

fn update_of<'n>(targets: impl Iterator<Item = Option<&'n nodes::ResTarget>>) -> RowWrites {
    let columns: Option<BTreeSet<String>> = targets.map(|target| target?.name().map(str::to_owned)).collect();
    match columns {
        Some(columns) => RowWrites::update(columns),
        None => RowWrites { updates: UpdatedColumns::Any, ..RowWrites::NONE },
    }
}

fn function_call(call: &nodes::FuncCall, found: &mut Found) {
    let names: Option<Vec<&str>> = call.funcname().iter().map(Node::as_str).collect();
    let name = match names.as_deref() {
        Some([name]) => BodyName { schema: None, name: (*name).to_owned() },
        Some([schema, name]) => BodyName { schema: Some((*schema).to_owned()), name: (*name).to_owned() },
        _ => return found.lose(UNREADABLE),
    };
    match name.name.as_str() {
        "nextval" | "setval" | "currval" => match call.args().iter().next().and_then(sequence_of) {
            Some(sequence) => found.writes(sequence, &RowWrites::ALL),
            None => found.give_up(format!("calls {} on a sequence that it does not name", name.name)),
        },
        "lastval" => found.give_up("calls lastval"),
        "set_config" if !is_local_set_config(call) => {
            let setting = call.args().iter().next().and_then(tree::constant_text);
            match &setting {
                Some(setting) => found.references.effects.sets(setting),
                None => found.references.effects.sets_unnamed(is_name_given(call)),
            }
            match setting.is_some_and(|setting| is_followed(&setting)) {
                true => found.references.sets_session = true,
                false => found.give_up("changes a setting of the session"),
            }
        }
        name if is_session_lock(name) => found.give_up("takes or gives back a lock of the session"),
        "set_config" => {
            match call.args().iter().next().and_then(tree::constant_text) {
                Some(setting) => found.references.effects.sets_for_transaction(is_followed(&setting).then_some(&setting)),
                None => found.references.effects.sets_unnamed_for_transaction(is_name_given(call)),
            }
            found.references.sets_local = true;
        }
        "pg_notify" => found.references.notifies = true,
        _ => {}
    }
    found.references.functions.push(name);
}

/// The name is a parameter or variable as it is.
fn is_name_given(call: &nodes::FuncCall) -> bool {
    call.args().iter().next().is_some_and(|name| matches!(name, Node::ParamRef(_) | Node::ColumnRef(_)))
}

/// `set_config(name, value, true)`: for the transaction.
fn is_local_set_config(call: &nodes::FuncCall) -> bool {
    let Some(mut flag) = call.args().iter().nth(2) else { return false };
    while let Node::TypeCast(cast) = flag {
        flag = cast.arg();
    }
    matches!(flag, Node::A_Const(constant) if matches!(constant.val(), Some(ConstValue::Boolean(true))))
}

fn is_session_lock(name: &str) -> bool {
    let is_lock = name.starts_with("pg_advisory_") || name.starts_with("pg_try_advisory_");
    is_lock && !name.contains("_xact_")
}

/// The sequence that a literal names.
fn sequence_of(mut argument: Node<'_>) -> Option<BodyName> {
    while let Node::TypeCast(cast) = argument {
        argument = cast.arg();
    }
    let Node::A_Const(constant) = argument else { return None };
    let Some(ConstValue::String(text)) = constant.val() else { return None };
    let tree = parse(&format!("SELECT {text}")).ok()?;
    let Some(Node::SelectStmt(select)) = tree.stmts().next() else { return None };
    let target = select.target_list().iter().next()?;
    let Node::ColumnRef(reference) = target.val() else { return None };
    let fields: Vec<&str> = reference.fields().iter().map(Node::as_str).collect::<Option<_>>()?;
    match fields.as_slice() {
        [name] => Some(BodyName { schema: None, name: (*name).to_owned() }),
        [schema, name] => Some(BodyName { schema: Some((*schema).to_owned()), name: (*name).to_owned() }),
        _ => None,
    }
}

fn name_of(relation: &nodes::RangeVar) -> BodyName {
    BodyName { schema: relation.schemaname().map(str::to_owned), name: relation.relname().unwrap_or_default().to_owned() }
}

#[cfg(test)]
mod tests;
