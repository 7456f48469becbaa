//! Functions that touch sharded tables by a key that they are given: those of triggers by the key of the row they fire for (`INSERT INTO
//! audit VALUES (NEW.tenant, …)`), others by an argument (`SELECT sum(amount) FROM entries WHERE account = $1`).
//!
//! Such rows are on the shard where the row is, or the argument's key, so that the function does there what it does on one server, for one
//! row and for many. It is proven as for a statement of a client: each statement of the body is read with `NEW.column` and `OLD.column`, or
//! the arguments' names, as parameters, and has to be restricted to the parameters that are the key. A body that could mean something else
//! by these names is not proven; nor is what a body calls, unless that is proven by itself.

use std::collections::BTreeSet;

use pg_raw_parse::Node;
use pg_raw_parse::walk::{Recurse, walk_manual};

use super::bind::Reader;
use super::relations::{self, Resolved};
use crate::catalog::{BodyName, BodyReader, BodyReferences, Function, Oid, References, Relation, Trigger};
use crate::error::PgError;
use crate::shard_key::{KeyColumn, KeyType};
use crate::shardmap::{GroupId, TableKind};
use crate::sql::analysis::{Command, KeyCondition, KeyTest, KeyValue, Merge, Part, QueryKind, Scope, Test};
use crate::sql::body::{SqlBodyReader, queries};
use crate::sql::context::Context;
use crate::sql::parse::lexer::{self, TokenKind};
use crate::sql::parse::parse;
use crate::sql::placing;
use crate::sql::statement::Source;
use crate::sql::utility::shardgate_call;

/// Bodies that fire each other nest no deeper.
const BODIES_DEPTH_MAX: usize = 4;

/// The sharded tables of the row's group that the trigger's function is proven to touch by the row's key alone. Those that it touches
/// otherwise, and all where nothing is proven, are not among them. `relation`: a sharded table or a partition of one.
pub fn keyed_by_row(context: &Context, relation: &Relation, function: &Function) -> BTreeSet<Oid> {
    let Some(row) = Given::by_row(context, relation, function) else { return BTreeSet::new() };
    row.touched(context, function, 0).unwrap_or_default()
}

/// The sharded tables that the function is proven to touch by the key alone that this argument (0-based) gives, where it touches no other
/// rows of sharded tables.
pub fn keyed_by_argument(
    context: &Context,
    function: &Function,
    references: &References,
    argument: usize,
    depth: usize,
) -> Option<BTreeSet<Oid>> {
    Given::by_argument(context, function, references, argument)?.touched(context, function, depth)
}

impl Reader<'_> {
    /// What a trigger of the relation touches besides what it touches by the key of its row.
    pub fn without_keyed(&mut self, relation: &Relation, function: Option<&Function>, mut references: References) -> References {
        let Some((function, row)) =
            function.and_then(|function| Some((function, Given::by_row(self.context, relation, function)?)))
        else {
            return references;
        };
        let in_group = |oid: &Oid| row.has_in_group(self.context, *oid);
        if !references.reads.iter().chain(&references.writes).any(in_group) {
            return references;
        }
        let keyed = match self.is_declared(function) {
            // A declaration says so: it was taken for tables of the row's own group only.
            true => {
                let hides = |oid: &Oid| {
                    let relation = self.context.catalog.relations.get(oid);
                    relation.is_some_and(|relation| self.context.temporary_tables.contains(&relation.name))
                };
                let all = references.reads.iter().chain(&references.writes).copied();
                all.filter(in_group).filter(|oid| !hides(oid)).collect()
            }
            false => row.touched(self.context, function, self.body_depth).unwrap_or_default(),
        };
        if keyed.is_empty() {
            let text = shardgate_call::declaration(&self.context.catalog, function, &references, None);
            self.notes.declaration.get_or_insert(text);
        }
        references.reads.retain(|oid| !keyed.contains(oid));
        references.writes.retain(|oid| !keyed.contains(oid));
        self.keyed.extend(keyed);
        references
    }
}

/// The key that a function is given.
struct Given<'c> {
    group: GroupId,
    key: &'c [KeyColumn],
    by: By<'c>,
}

enum By<'c> {
    /// The row that a trigger fires for.
    Row {
        relation: &'c Relation,
        /// There is no OLD, or no NEW, on some of the events.
        lacks_old: bool,
        lacks_new: bool,
    },
    /// By its place, 0-based.
    Argument(usize),
}

/// What stands for a parameter in a text of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    /// `NEW.column` or `OLD.column`.
    OfRow { is_new: bool, column: String },
    /// By its place, 0-based.
    Argument(usize),
}

impl<'c> Given<'c> {
    fn by_row(context: &'c Context, relation: &'c Relation, function: &Function) -> Option<Self> {
        let Resolved::Sharded { table, group, .. } = relations::placed(context, relation, false) else { return None };
        let TableKind::Sharded { key, .. } = &table.kind else { return None };
        let of_function = |trigger: &&Trigger| trigger.function == function.oid;
        let triggers = || relation.triggers.iter().filter(of_function);
        // That one of a statement touches rows of the keys that were written can only be declared.
        let is_declared = context.declared(function).is_some();
        let is_of_rows =
            triggers().next().is_some() && triggers().all(|trigger| (trigger.is_row || is_declared) && !trigger.is_instead);
        let by = By::Row {
            relation,
            lacks_old: triggers().any(|trigger| trigger.fires_on.insert),
            lacks_new: triggers().any(|trigger| trigger.fires_on.delete),
        };
        is_of_rows.then(|| Self { group: group.id, key, by })
    }

    /// Of the first sharded table's group, whose key is one column of the argument's type, or both are integers: a value of another type
    /// would be converted before the function sees it.
    fn by_argument(context: &'c Context, function: &Function, references: &References, argument: usize) -> Option<Self> {
        let argument_type = KeyType::of_column(*function.argument_types.get(argument)?)?;
        let mut touched = references.reads.iter().chain(&references.writes);
        touched.find_map(|oid| match relations::placed(context, context.catalog.relations.get(oid)?, true) {
            Resolved::Sharded { table, group, .. } => match &table.kind {
                TableKind::Sharded { key, .. } => match key.as_slice() {
                    [column] if column.column_type.is_alike(argument_type) => {
                        Some(Some(Self { group: group.id, key, by: By::Argument(argument) }))
                    }
                    _ => Some(None),
                },
                TableKind::Reference => None,
            },
            _ => None,
        })?
    }

    fn has_in_group(&self, context: &Context, oid: Oid) -> bool {
        let relation = context.catalog.relations.get(&oid);
        relation.is_some_and(|relation| {
            matches!(relations::placed(context, relation, true), Resolved::Sharded { group, .. } if group.id == self.group)
        })
    }

    /// `None`: some statement is not restricted to the key.
    fn touched(&self, context: &Context, function: &Function, depth: usize) -> Option<BTreeSet<Oid>> {
        let is_read = match &self.by {
            By::Row { .. } => function.language == "plpgsql",
            By::Argument(_) => matches!(function.language.as_str(), "plpgsql" | "sql"),
        };
        if depth == BODIES_DEPTH_MAX || !is_read || function.is_extension_member {
            return None;
        }
        let body = SqlBodyReader.references(&function.language, &function.body);
        let is_bound = |name: &str| body.bound_names.iter().any(|bound| bound == name) || has_variable(function, name);
        if body.unknown.is_some() || is_bound("#") || !self.stays(context, function, &body) {
            return None;
        }
        let mut touched = BTreeSet::new();
        for text in queries(&function.language, &function.body)? {
            if matches!(self.by, By::Argument(_)) && may_name_a_row(&text, function) {
                return None;
            }
            let (text, fields) = match self.by {
                By::Row { .. } => with_parameters(&text, row_field),
                By::Argument(_) => with_parameters(&text, |tokens| argument_field(tokens, function)),
            };
            let tree = parse(&text).ok()?;
            let literals = lexer::scan(&text).literals;
            for node in tree.stmts() {
                // In SQL a column of what it gives would be meant where an argument has its name.
                if matches!(self.by, By::Argument(_)) && function.language == "sql" && calls_in_from(node) {
                    return None;
                }
                let source = Source { text: &text, literals: &literals, lead: 0, start: 0, end: text.len() };
                touched.extend(self.touched_by(node, source, context, function, (depth, &fields))?);
            }
        }
        // A variable of a key column's name could be meant where the column is.
        let key_columns = touched.iter().filter_map(|oid| key_of(context, *oid)).flatten();
        key_columns.into_iter().all(|key| !is_bound(&key.column)).then_some(touched)
    }

    /// What gives the key is what it was when the function began, and its name means nothing else in the body.
    fn stays(&self, context: &Context, function: &Function, body: &BodyReferences) -> bool {
        let is_bound = |name: &str| body.bound_names.iter().any(|bound| bound == name);
        let argument = match self.by {
            By::Row { .. } => {
                let is_assigned =
                    |assigned: &Vec<String>| self.key.iter().any(|key| assigned.contains(&key.column)) || is_bound("old");
                return body.assigned_new.as_ref().is_some_and(|assigned| !is_assigned(assigned));
            }
            By::Argument(argument) => argument,
        };
        let name = function.argument_names.get(argument).map(String::as_str).unwrap_or_default();
        // Where there are arguments that it gives back, PL/pgSQL counts these too.
        let is_numbered = function.language != "plpgsql" || function.result_names.is_empty();
        let is_plain = |name: &str| !is_bound(name) && !function.result_names.iter().any(|result| result == name);
        is_plain(&format!("${}", argument + 1))
            && (is_numbered || !function.body.contains('$'))
            && (name.is_empty()
                || is_plain(name) && body.reads.iter().chain(body.writes.keys()).all(|of| lacks_column(context, of, name)))
    }

    fn touched_by(
        &self,
        node: Node<'_>,
        source: Source<'_>,
        context: &Context,
        function: &Function,
        (depth, fields): (usize, &[Field]),
    ) -> Option<BTreeSet<Oid>> {
        let mut reader = Reader::new(context, source.text, source.literals);
        reader.is_body = true;
        reader.body_depth = depth + 1;
        if let Some(path) = &function.search_path {
            reader.search_path.clone_from(path);
        }
        let (kind, merge) = read_statement(&mut reader, node)?;
        let of_group = |oid: &Oid| self.has_in_group(context, *oid);
        let by_calls = reader.keyed.iter().chain(&reader.notes.hidden_keyed).copied();
        let touched: BTreeSet<Oid> = reader.notes.relations.iter().copied().chain(by_calls).filter(of_group).collect();
        let has_nullable = touched.iter().any(|oid| is_key_nullable(context, *oid));
        let named = std::mem::take(&mut reader.named);
        let placement = placing::seen_twice(placing::finish(reader, Command::Query(kind), merge), &named, source, context);
        let is_keyed = |part: &Part| match part {
            Part::Home => false,
            Part::Sharded { group, condition, .. } => {
                *group == self.group
                    && (0..self.key.len()).all(|column| self.is_restricted(condition, column, fields, has_nullable))
            }
        };
        match placement.scope {
            Scope::Placed { parts, .. } => parts.iter().all(is_keyed).then_some(touched),
            Scope::Tableless | Scope::Replicated | Scope::System => Some(touched),
            Scope::Session | Scope::Map | Scope::Proxy(_) | Scope::EveryShard | Scope::Refused(_) => None,
        }
    }

    /// The condition allows only the row's value of this column of the key.
    fn is_restricted(&self, condition: &KeyCondition, column: usize, fields: &[Field], has_nullable: bool) -> bool {
        match condition {
            KeyCondition::All => false,
            KeyCondition::Nothing => true,
            KeyCondition::And(all) => all.iter().any(|inner| self.is_restricted(inner, column, fields, has_nullable)),
            KeyCondition::Or(any) => any.iter().all(|inner| self.is_restricted(inner, column, fields, has_nullable)),
            KeyCondition::Test(test) => {
                test.column == column && self.key.get(column).is_some_and(|key| self.is_test_of(test, key, fields, has_nullable))
            }
        }
    }

    fn is_test_of(&self, test: &KeyTest, key: &KeyColumn, fields: &[Field], has_nullable: bool) -> bool {
        if test.column_type != key.column_type || test.function != key.function {
            return false;
        }
        let field_of = |value: &KeyValue| match value {
            KeyValue::Parameter { number, cast: None } => {
                let field = fields.get(usize::from(*number).checked_sub(1)?)?;
                let is_key = match (field, &self.by) {
                    (Field::OfRow { column, .. }, By::Row { .. }) => *column == key.column,
                    (Field::Argument(place), By::Argument(argument)) => place == argument,
                    (Field::OfRow { .. }, By::Argument(_)) | (Field::Argument(_), By::Row { .. }) => false,
                };
                is_key.then_some(field)
            }
            _ => None,
        };
        match &test.test {
            Test::Equals(value) => field_of(value).is_some(),
            Test::In(values) => !values.is_empty() && values.iter().all(|value| field_of(value).is_some()),
            Test::Stored(stored) => field_of(&stored.value).is_some_and(|field| match (&self.by, field) {
                (By::Row { relation, lacks_old, lacks_new }, Field::OfRow { is_new, .. }) => {
                    // A row without a key is not on the shard of this one.
                    let is_missing = if *is_new { *lacks_new } else { *lacks_old };
                    let typmod = relation.column(&key.column).map(|column| column.typmod);
                    (stored.typmod == -1 || Some(stored.typmod) == typmod) && !(is_missing && has_nullable)
                }
                // Whoever places the call converts it as the column does.
                (_, _) => true,
            }),
            Test::AnyOf(_) | Test::Compare(..) => false,
        }
    }
}

/// A statement of a body that writes no copies; `None`: another one.
pub(super) fn read_statement(reader: &mut Reader<'_>, node: Node<'_>) -> Option<(QueryKind, Result<Merge, PgError>)> {
    match node {
        Node::SelectStmt(select) if select.into_clause().is_none() => Some((QueryKind::Select, reader.outermost(select).ok()?)),
        Node::InsertStmt(_) | Node::UpdateStmt(_) | Node::DeleteStmt(_) | Node::MergeStmt(_) => {
            let (kind, modified) = reader.modification(node, &None).ok()?;
            (!modified.is_replicated).then(|| (kind, Ok(Merge::default())))
        }
        _ => None,
    }
}

fn calls_in_from(root: Node<'_>) -> bool {
    let mut stack = vec![root];
    while let Some(node) = stack.pop() {
        if matches!(node, Node::RangeFunction(_)) {
            return true;
        }
        walk_manual::<()>(node, |child| {
            stack.push(child);
            Recurse::no()
        });
    }
    false
}

/// An argument that is given back, or a column of the result, is a variable; so is each argument with a name.
fn has_variable(function: &Function, name: &str) -> bool {
    let all = function.result_names.iter().chain(&function.argument_names);
    function.language == "plpgsql" && all.into_iter().any(|variable| variable == name)
}

/// No column could be meant by the name where this relation stands: in SQL the column would be. System catalogues are not looked into.
fn lacks_column(context: &Context, of: &BodyName, name: &str) -> bool {
    let is_systems = of.name.starts_with("pg_") || of.schema.as_deref().is_some_and(|schema| SYSTEM_SCHEMAS.contains(&schema));
    let mut relations = context.catalog.relations.values().filter(|relation| relation.name == of.name);
    !is_systems && relations.all(|relation| relation.column(name).is_none())
}

const SYSTEM_SCHEMAS: [&str; 2] = ["pg_catalog", "information_schema"];

pub(super) fn key_of(context: &Context, oid: Oid) -> Option<&[KeyColumn]> {
    match relations::placed(context, context.catalog.relations.get(&oid)?, true) {
        Resolved::Sharded { table, .. } => match &table.kind {
            TableKind::Sharded { key, .. } => Some(key),
            TableKind::Reference => None,
        },
        _ => None,
    }
}

fn is_key_nullable(context: &Context, oid: Oid) -> bool {
    let relation = context.catalog.relations.get(&oid);
    let key = key_of(context, oid).unwrap_or_default();
    relation.is_none_or(|relation| key.iter().any(|key| relation.column(&key.column).is_none_or(|column| !column.is_not_null)))
}

/// The text with `$n` for the n-th field of the list. `field_at`: whether one begins at the second of these tokens (the first is the one
/// before it, empty at the beginning), and how many tokens it has.
fn with_parameters(text: &str, field_at: impl Fn(&[Word<'_>]) -> Option<(Field, usize)>) -> (String, Vec<Field>) {
    let tokens: Vec<lexer::Token> = lexer::tokens(text).filter(|token| token.kind != TokenKind::Comment).collect();
    let mut words = vec![(TokenKind::Symbol, "")];
    words.extend(tokens.iter().map(|token| (token.kind, text.get(token.start..token.end).unwrap_or_default())));
    let (mut written, mut fields): (String, Vec<Field>) = (String::new(), Vec::new());
    let (mut from, mut at) = (0, 0);
    while let Some(token) = tokens.get(at) {
        let found = words.get(at..).and_then(&field_at);
        let Some((field, count, last)) = found.and_then(|(field, count)| Some((field, count, tokens.get(at + count - 1)?))) else {
            at += 1;
            continue;
        };
        let number = fields.iter().position(|known| *known == field).unwrap_or(fields.len());
        if number == fields.len() {
            fields.push(field);
        }
        written.push_str(text.get(from..token.start).unwrap_or_default());
        written.push_str(&format!("${} ", number + 1));
        from = last.end;
        at += count;
    }
    written.push_str(text.get(from..).unwrap_or_default());
    (written, fields)
}

type Word<'t> = (TokenKind, &'t str);

/// A body of a trigger has no parameters of its own.
fn row_field(words: &[Word<'_>]) -> Option<(Field, usize)> {
    let [before, record, dot, column, ..] = words else { return None };
    if before.1 == "." || record.0 != TokenKind::Word || dot.1 != "." {
        return None;
    }
    let is_new = match record.1 {
        record if record.eq_ignore_ascii_case("new") => true,
        record if record.eq_ignore_ascii_case("old") => false,
        _ => return None,
    };
    Some((Field::OfRow { is_new, column: name_of(column.0, column.1)? }, 3))
}

/// `$1`, or an argument's name, which stands neither for a relation nor for a field. Where it names something else, as in `AS name`, the
/// text is no SQL any more, and nothing is proven.
fn argument_field(words: &[Word<'_>], function: &Function) -> Option<(Field, usize)> {
    let [before, word, rest @ ..] = words else { return None };
    if let (TokenKind::Parameter, Some(number)) = (word.0, word.1.strip_prefix('$')) {
        return Some((Field::Argument(number.parse::<usize>().ok()?.checked_sub(1)?), 1));
    }
    let place = |name: String| function.argument_names.iter().position(|argument| *argument == name);
    let ends = |rest: &[Word<'_>]| rest.first().is_none_or(|next| !matches!(next.1, "." | "("));
    let name = name_of(word.0, word.1).filter(|_| before.1 != ".")?;
    match rest {
        // As PostgreSQL prints it in the bodies that it keeps as trees.
        [dot, argument, rest @ ..] if dot.1 == "." && name == function.name && ends(rest) => {
            Some((Field::Argument(place(name_of(argument.0, argument.1)?)?), 3))
        }
        rest if ends(rest) => Some((Field::Argument(place(name)?), 1)),
        _ => None,
    }
}

/// The function's name is before a dot, and elsewhere too: it may be that of a table, of a query of WITH, or an alias, whose column is meant
/// where an argument would be.
fn may_name_a_row(text: &str, function: &Function) -> bool {
    let tokens: Vec<lexer::Token> = lexer::tokens(text).filter(|token| token.kind != TokenKind::Comment).collect();
    let piece = |token: &lexer::Token| text.get(token.start..token.end).unwrap_or_default();
    let is_name = |token: &lexer::Token| name_of(token.kind, piece(token)).is_some_and(|name| name == function.name);
    let at = tokens.iter().enumerate().filter(|(_, token)| is_name(token)).map(|(at, _)| at);
    let (before_dots, others): (Vec<usize>, Vec<usize>) =
        at.partition(|at| tokens.get(at + 1).is_some_and(|next| piece(next) == "."));
    !before_dots.is_empty() && !others.is_empty()
}

/// Folded; quoted identifiers without their quotes.
fn name_of(kind: TokenKind, text: &str) -> Option<String> {
    match kind {
        TokenKind::Word => Some(text.to_ascii_lowercase()),
        TokenKind::QuotedIdentifier => Some(text.trim_matches('"').replace("\"\"", "\"")),
        TokenKind::Literal(_) | TokenKind::Parameter | TokenKind::Comment | TokenKind::Symbol => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::Analyzer;
    use crate::sql::testing;

    /// Whether rows of several shards may be changed in a table with such a trigger.
    fn is_keyed_of(table: &str, is_nullable: bool, body: &str) -> bool {
        let mut fixture = testing::library();
        let audit = fixture.table("audit", "k int8, what text");
        fixture.shard_by("audit", 1, &[("k", None)]);
        fixture.catalog.relations.get_mut(&audit).unwrap().columns[0].is_not_null = !is_nullable;
        let function = fixture.function("log", 'v', "plpgsql", body);
        let table_oid = fixture.catalog.relation_names[&("public".to_owned(), table.to_owned())];
        fixture.trigger(table_oid, "log", function, false);
        let context = fixture.context(&["public"], &[]);
        let read = Analyzer::new().analyze(&format!("DELETE FROM {table}"), &context).unwrap();
        matches!(&read.statements[0].scope, Scope::Placed { pushdown: Ok(()), parts } if parts.len() == 1)
    }

    fn is_keyed(body: &str) -> bool {
        is_keyed_of("t", false, body)
    }

    #[test]
    fn a_body_that_touches_rows_of_its_row_s_key_is_told_from_others() {
        for body in [
            "BEGIN INSERT INTO audit VALUES (NEW.k, 'x'); RETURN NULL; END",
            "BEGIN INSERT INTO audit (what, k) VALUES (TG_OP, new.\"k\"), ('y', NEW.k); RETURN NEW; END",
            "DECLARE n int; BEGIN SELECT count(*) INTO n FROM audit a WHERE a.k = NEW.k AND what <> NEW.v; RETURN NULL; END",
            "BEGIN UPDATE audit SET what = 'z' WHERE k IN (NEW.k); DELETE FROM audit WHERE NEW.k = k; RETURN NULL; END",
            "BEGIN IF EXISTS (SELECT FROM public.u JOIN audit USING (k) WHERE u.k = NEW.k) THEN RAISE 'no'; END IF; RETURN NULL; END",
            "BEGIN INSERT INTO audit SELECT NEW.k, name FROM u WHERE k = NEW.k; RETURN NULL; END",
        ] {
            assert!(is_keyed(body), "{body}");
        }
        for body in [
            "BEGIN INSERT INTO audit VALUES (NEW.k + 1, 'x'); RETURN NULL; END",
            "BEGIN INSERT INTO audit VALUES (7, 'x'); RETURN NULL; END",
            "BEGIN INSERT INTO audit VALUES (NEW.a, 'x'); RETURN NULL; END",
            "BEGIN DELETE FROM audit WHERE k = NEW.k OR what = 'x'; RETURN NULL; END",
            "BEGIN NEW.k := 7; INSERT INTO audit VALUES (NEW.k, 'x'); RETURN NULL; END",
            "DECLARE new t; BEGIN INSERT INTO audit VALUES (NEW.k, 'x'); RETURN NULL; END",
            "DECLARE k int8 := 7; BEGIN DELETE FROM audit WHERE k = NEW.k; RETURN NULL; END",
            "BEGIN OLD.k := 7; DELETE FROM audit WHERE k = OLD.k; RETURN NULL; END",
            "BEGIN SELECT 7 INTO old.k; DELETE FROM audit WHERE k = OLD.k; RETURN NULL; END",
            "BEGIN INSERT INTO audit VALUES (NEW.k, 'x'); PERFORM count(*) FROM audit; RETURN NULL; END",
            "BEGIN EXECUTE 'DELETE FROM audit'; RETURN NULL; END",
            "BEGIN DELETE FROM audit; RETURN NULL; END",
            "DECLARE other t; c CURSOR (new t) FOR SELECT * FROM audit WHERE k = new.k; BEGIN OPEN c(other); RETURN NULL; END",
            "<<new>> DECLARE k int8 := 8; BEGIN INSERT INTO audit VALUES (new.k, 'x'); RETURN NULL; END",
            "<<new>> DECLARE x int8 := 8; BEGIN INSERT INTO audit VALUES (new.k, 'x'); RETURN NULL; END",
            "BEGIN FOR \"new\" IN SELECT * FROM ref LOOP NULL; END LOOP; INSERT INTO audit VALUES (NEW.k, 'x'); RETURN NULL; END",
            "#variable_conflict use_variable\nDECLARE a record; BEGIN DELETE FROM audit a WHERE a.k = NEW.k; RETURN NULL; END",
        ] {
            assert!(!is_keyed(body), "{body}");
        }
        // Where there is no OLD, the row would have no key.
        let body = "BEGIN INSERT INTO audit VALUES (OLD.k, 'x'); RETURN NULL; END";
        assert!(is_keyed(body) && !is_keyed_of("t", true, body));
        assert!(is_keyed_of("t", true, "BEGIN DELETE FROM audit WHERE k = OLD.k; RETURN NULL; END"));
        let log = "BEGIN INSERT INTO pair_log (tenant, region) VALUES (NEW.tenant, NEW.region); RETURN NULL; END";
        assert!(is_keyed_of("pair", false, log));
        assert!(!is_keyed_of("pair", false, "BEGIN DELETE FROM pair_log WHERE region = NEW.region; RETURN NULL; END"));
        assert!(!is_keyed_of(
            "pair",
            false,
            "BEGIN DELETE FROM pair_log WHERE region = NEW.v AND tenant = NEW.tenant; RETURN NULL; END"
        ));
    }

    #[test]
    fn arguments_are_known_by_their_function_too() {
        let mut fixture = testing::library();
        let oid = fixture.function("owed", 's', "sql", "SELECT 1");
        let function = fixture.catalog.functions.get_mut(&oid).unwrap();
        function.argument_names = vec!["a".to_owned()];
        let function = function.clone();
        let read = |text: &str| with_parameters(text, |words| argument_field(words, &function));
        let (text, fields) = read("SELECT t.a FROM t WHERE t.id = owed.a AND t.owed = 1 AND owed.b = A");
        assert_eq!(text, "SELECT t.a FROM t WHERE t.id = $1  AND t.owed = 1 AND owed.b = $1 ");
        assert_eq!(fields, [Field::Argument(0)]);
        assert!(!may_name_a_row("SELECT id FROM t WHERE id = owed.a", &function));
        for text in [
            "WITH owed AS (SELECT a(7)) SELECT t.id FROM t, owed WHERE t.id = owed.a",
            "SELECT \"owed\".id FROM t AS owed WHERE id = owed.a",
        ] {
            assert!(may_name_a_row(text, &function), "{text}");
        }
    }

    #[test]
    fn fields_become_parameters() {
        let (text, fields) = with_parameters("SELECT new.a, OLD.\"B\", x.new.a, 'new.a', NEW.a /* new.c */ FROM new", row_field);
        assert_eq!(text, "SELECT $1 , $2 , x.new.a, 'new.a', $1  /* new.c */ FROM new");
        let field = |is_new, column: &str| Field::OfRow { is_new, column: column.to_owned() };
        assert_eq!(fields, [field(true, "a"), field(false, "B")]);
    }
}
