//! What a client's statement may leave in its session without the proxy seeing it: by functions, triggers, defaults and the like.
//!
//! The statement is read like the body of a function. What it does by its own words (SET, setseed, advisory locks, temporary
//! tables) the session follows anyway.

use std::collections::BTreeSet;
use std::sync::Arc;

use pg_raw_parse::{Node, nodes};

use super::body::{self, SqlBodyReader};
use super::context::Context;
use super::parse::lexer::Literal;
use super::statement::Source;
use super::utility::session_command;
use crate::catalog::{BodyName, BodyReader, BodyReferences, ChangedSettings, Kept, RowWrites, SessionEffects, UnnamedLeft};

/// `None`: proven to leave nothing. Names that the catalogue does not have may be of what was made a moment ago.
pub fn of_statement(node: Node<'_>, text: &str, context: &Context, has_unknown_names: bool) -> Option<Arc<SessionEffects>> {
    let mut effects = of_node(node, text, context);
    // Those of temporary tables are not in the catalogue; their connection is kept.
    effects.is_unproven |= has_unknown_names && context.temporary_tables.is_empty();
    (!effects.is_nothing()).then(|| Arc::new(effects))
}

/// What the words of such a statement say, its constants aside: of these each execution has its own.
pub fn of_words(node: Node<'_>, source: Source<'_>, effects: Option<&SessionEffects>) -> Option<Arc<SessionEffects>> {
    if !effects.is_some_and(|effects| effects.is_unproven) || !gives_values(node) {
        return None;
    }
    let mut words = String::new();
    let mut from = source.start;
    let is_in_it = |literal: &&Literal| literal.start as usize >= source.start && literal.end as usize <= source.end;
    for literal in source.literals.iter().filter(is_in_it) {
        words.push_str(source.text.get(from..literal.start as usize).unwrap_or_default());
        words.push_str("''");
        from = literal.end as usize;
    }
    words.push_str(source.text.get(from..source.end).unwrap_or_default());
    Some(Arc::new(SessionEffects::of_unread(&words)))
}

/// Its functions are given what stands in it.
fn gives_values(node: Node<'_>) -> bool {
    match node {
        Node::SelectStmt(select) => select.into_clause().is_none(),
        Node::ExplainStmt(explain) => gives_values(explain.query()),
        Node::InsertStmt(_)
        | Node::UpdateStmt(_)
        | Node::DeleteStmt(_)
        | Node::MergeStmt(_)
        | Node::CallStmt(_)
        | Node::DeclareCursorStmt(_)
        | Node::CopyStmt(_)
        | Node::ExecuteStmt(_) => true,
        _ => false,
    }
}

fn of_node(node: Node<'_>, text: &str, context: &Context) -> SessionEffects {
    match node {
        Node::SelectStmt(select) if select.into_clause().is_some() => of_ddl(node, text, context),
        Node::SelectStmt(_)
        | Node::InsertStmt(_)
        | Node::UpdateStmt(_)
        | Node::DeleteStmt(_)
        | Node::MergeStmt(_)
        | Node::CallStmt(_)
        | Node::TruncateStmt(_)
        | Node::LockStmt(_) => of_query(node, text, context),
        Node::ExplainStmt(explain) => of_node(explain.query(), text, context),
        Node::DeclareCursorStmt(cursor) => of_node(cursor.query(), text, context),
        Node::CopyStmt(copy) => match copy.relation() {
            None => of_node(copy.query(), text, context),
            Some(relation) => of_copy(copy, relation, text, context),
        },
        Node::DoStmt(block) => of_block(block, context),
        Node::ExecuteStmt(execute) => execute.params().iter().fold(SessionEffects::default(), |mut all, argument| {
            let found = body::references_of_expression(argument, text);
            all.add(&context.catalog.session_effects(&found, text, &SqlBodyReader));
            all
        }),
        Node::None | Node::PrepareStmt(_) | Node::NotifyStmt(_) | Node::CheckPointStmt(_) => SessionEffects::default(),
        _ if session_command::classify(node).is_some() => SessionEffects::default(),
        _ => of_ddl(node, text, context),
    }
}

fn of_query(node: Node<'_>, text: &str, context: &Context) -> SessionEffects {
    context.catalog.session_effects(&body::references_of(node, text), text, &SqlBodyReader)
}

/// The condition of a COPY FROM is evaluated for each row.
fn of_copy(copy: &nodes::CopyStmt, relation: &nodes::RangeVar, text: &str, context: &Context) -> SessionEffects {
    let name =
        BodyName { schema: relation.schemaname().map(str::to_owned), name: relation.relname().unwrap_or_default().to_owned() };
    let condition = copy.where_clause();
    let (mut found, text) = match condition {
        Node::None => (BodyReferences::default(), ""),
        _ => (body::references_of_expression(condition, text), text),
    };
    if copy.is_from {
        found.writes.insert(name, RowWrites::INSERT);
    } else {
        found.reads.push(name)
    }
    context.catalog.session_effects(&found, text, &SqlBodyReader)
}

fn of_block(block: &nodes::DoStmt, context: &Context) -> SessionEffects {
    let option = |name: &str| {
        let found = block.args().iter().find(|option| option.defname() == Some(name));
        found.and_then(|option| option.arg().as_str())
    };
    let body = option("as").unwrap_or_default();
    let language = option("language").unwrap_or("plpgsql").to_ascii_lowercase();
    if language != "plpgsql" {
        return SessionEffects::of_other_language(&language, body);
    }
    context.catalog.session_effects(&SqlBodyReader.references(&language, body), body, &SqlBodyReader)
}

/// The grammar's walk does not reach into schema changes: any function whose name stands in the text may be called, of the schema that
/// stands before it.
fn functions_named(text: &str, context: &Context) -> BodyReferences {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut functions = BTreeSet::new();
    let mut before = "";
    for piece in text.split_inclusive(|letter: char| !is_part(letter)) {
        let word = piece.trim_end_matches(|letter: char| !is_part(letter));
        let name = word.to_ascii_lowercase();
        if context.catalog.function_names.contains_key(&name) {
            let schema =
                before.strip_suffix('.').map(str::to_ascii_lowercase).filter(|schema| context.catalog.schemas.contains(schema));
            functions.insert(BodyName { schema, name });
        }
        before = piece;
    }
    BodyReferences { functions: functions.into_iter().collect(), ..BodyReferences::default() }
}

/// Expressions are evaluated, and event triggers fire.
fn of_ddl(node: Node<'_>, text: &str, context: &Context) -> SessionEffects {
    let found = match node {
        Node::CreateTableAsStmt(_) | Node::SelectStmt(_) => body::references_of(node, text),
        _ => functions_named(text, context),
    };
    let mut effects = context.catalog.session_effects(&found, text, &SqlBodyReader);
    let mut evaluated = found.clone();
    // The temporary table that it makes is its own.
    evaluated.effects.kept.remove(&Kept::TemporaryObject);
    let likely = context.catalog.likely_session_effects(&evaluated, text, &SqlBodyReader);
    effects.is_of_schema_change = evaluates(node) && !(likely.settings.is_nothing() && likely.kept.is_empty());
    if let (true, ChangedSettings::Named(names)) = (effects.is_of_schema_change, &likely.settings) {
        // A session that keeps its connections reads all back, but these are not listed.
        effects.custom_names.extend(names.iter().filter(|name| name.contains('.')).cloned());
    }
    // What a function sets there is not read back; it goes with the connection.
    let leaves_names = !effects.names_left.is_empty() || effects.unnamed_left != UnnamedLeft::Nothing;
    effects.is_closed |= !effects.settings.is_nothing() || leaves_names || !body::custom_settings_given(node).is_empty();
    effects.settings = ChangedSettings::Nothing;
    effects.named = BTreeSet::new();
    effects.names_left = BTreeSet::new();
    effects.unnamed_left = UnnamedLeft::Nothing;
    if !evaluates(node) {
        effects.kept.remove(&Kept::PreparedStatement);
    }
    effects.is_unproven = true;
    effects
}

/// It runs the functions that it names, for the rows that there are; others only name them.
fn evaluates(node: Node<'_>) -> bool {
    match node {
        Node::CreateTableAsStmt(_)
        | Node::SelectStmt(_)
        | Node::IndexStmt(_)
        | Node::RefreshMatViewStmt(_)
        | Node::AlterDomainStmt(_) => true,
        Node::AlterTableStmt(alter) => alter.cmds().iter().any(|command| match command {
            Node::AlterTableCmd(command) => matches!(
                command.subtype,
                nodes::AlterTableType::AT_AddColumn
                    | nodes::AlterTableType::AT_AddConstraint
                    | nodes::AlterTableType::AT_ValidateConstraint
                    | nodes::AlterTableType::AT_AlterColumnType
            ),
            _ => true,
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{ObjectName, RelationKind};
    use crate::sql::parse::parse;
    use crate::sql::testing::Fixture;

    fn context() -> Context {
        let mut fixture = Fixture::default();
        fixture.catalog.schemas.push("public".to_owned());
        for (name, body) in [
            ("set_tenant", "begin perform set_config('app.tenant', t, false); end"),
            ("outer_tenant", "begin return set_tenant(1); end"),
            ("dynamic", "begin execute t; end"),
            ("watch", "begin set work_mem = 1; return new; end"),
            ("pure", "begin return 1; end"),
            ("lock", "begin perform pg_advisory_lock(1); end"),
        ] {
            fixture.function(name, 'v', "plpgsql", body);
        }
        let watch = *fixture.catalog.function_names["watch"].first().expect("made");
        let watched = fixture.table("watched", "id int8");
        fixture.trigger(watched, "watch", watch, true);
        fixture.table("plain", "id int8");
        let foreign = fixture.table("away", "id int8");
        fixture.catalog.relations.get_mut(&foreign).expect("made").kind = RelationKind::ForeignTable;
        fixture.table("checked", "id int8");
        let check = ObjectName::part_of("table public.checked", "constraint", "c");
        fixture.catalog.definitions.insert(check, "CHECK (set_config('a.b', 'c', false) <> '')");
        fixture.context(&["public"], &[])
    }

    fn effects(context: &Context, text: &str) -> SessionEffects {
        let tree = parse(text).expect("parses");
        let node = tree.stmts().next().expect("a statement");
        of_statement(node, text, context, false).map_or_else(SessionEffects::default, |effects| (*effects).clone())
    }

    #[test]
    fn a_temporary_table_is_made_of_what_leaves_nothing() {
        let context = context();
        for (text, leaves) in [
            ("CREATE TEMP TABLE made AS SELECT id FROM plain", false),
            ("SELECT pure(1) INTO TEMP made FROM plain", false),
            ("CREATE TEMP TABLE made AS SELECT set_tenant(1)", true),
            ("CREATE TABLE made AS SELECT lock()", true),
        ] {
            assert_eq!(effects(&context, text).is_of_schema_change, leaves, "{text}");
        }
    }

    #[test]
    fn what_a_statement_may_leave_is_found_whatever_the_way() {
        let context = context();
        for text in [
            "SELECT pure(1) FROM plain",
            "INSERT INTO plain VALUES (1)",
            "SELECT * FROM watched",
            "DO $$ begin perform pure(1); set local work_mem = 1; end $$",
            "EXPLAIN UPDATE plain SET id = pure(id)",
            "EXECUTE p(1, pure(2))",
            "SET work_mem = 1",
            "COPY plain FROM STDIN",
        ] {
            assert_eq!(effects(&context, text).without_transaction(), SessionEffects::default(), "{text}");
        }
        let named = |name: &str| ChangedSettings::Named([name.to_owned()].into());
        for (text, settings) in [
            ("SELECT set_tenant(1)", named("app.tenant")),
            ("CALL outer_tenant()", named("app.tenant")),
            ("WITH w AS (SELECT outer_tenant()) SELECT * FROM w", named("app.tenant")),
            ("INSERT INTO watched VALUES (1)", named("work_mem")),
            ("COPY watched FROM STDIN", named("work_mem")),
            ("EXPLAIN ANALYZE DELETE FROM watched", named("work_mem")),
            ("DECLARE c CURSOR FOR SELECT set_tenant(1)", named("app.tenant")),
            ("DO $$ begin set search_path = a; end $$", named("search_path")),
            ("COPY (SELECT set_tenant(1)) TO STDOUT", named("app.tenant")),
            ("COPY plain FROM STDIN WHERE set_tenant(id) <> 0", named("app.tenant")),
            ("SELECT table_to_xml('v', true, false, '')", ChangedSettings::Any),
            ("EXECUTE p(set_tenant(1))", named("app.tenant")),
            ("UPDATE pg_settings SET setting = 1", ChangedSettings::Any),
            ("INSERT INTO checked VALUES (1)", ChangedSettings::Any),
        ] {
            assert_eq!(effects(&context, text).settings, settings, "{text}");
        }
        assert!(effects(&context, "SELECT dynamic('x')").is_unproven);
        assert!(effects(&context, "DO LANGUAGE plperl 'x'").is_unproven);
        assert!(effects(&context, "CREATE INDEX ON plain (pure(id))").is_unproven);
        for (text, kept) in [
            ("SELECT lock()", Kept::AdvisoryLock),
            ("SELECT * FROM away", Kept::RemoteConnection),
            ("SELECT dblink_connect('x')", Kept::RemoteConnection),
            ("SELECT pg_replication_origin_session_setup('x')", Kept::Replication),
        ] {
            assert!(effects(&context, text).kept.contains(&kept), "{text}");
        }
    }

    #[test]
    fn what_casts_do_counts_for_every_statement() {
        let mut fixture = Fixture::default();
        let cast = fixture.function("cast_it", 'v', "plpgsql", "begin set work_mem = 1; return 1; end");
        fixture.catalog.type_functions.insert("t".to_owned(), vec![cast]);
        let context = fixture.context(&["public"], &[]);
        assert_eq!(effects(&context, "SELECT 1").settings, ChangedSettings::Named(["work_mem".to_owned()].into()));
    }
}
