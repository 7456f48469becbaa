//! Numbers of cluster-wide sequences that the proxy draws: where they go in a statement's text.
//!
//! ```text
//!   INSERT INTO t (tenant, v) VALUES (1, 'a'), (2, DEFAULT)      INSERT INTO t ("id", tenant, v) VALUES (17, 1, 'a'), (18, 2, DEFAULT)
//!   INSERT INTO t (id, v) VALUES (nextval('s'), 'a')       ─►    INSERT INTO t (id, v) VALUES (17, 'a')
//!   SELECT nextval('s'), 'N' || shardgate.unique_id()            SELECT 17::pg_catalog.int8 AS "nextval", 'N' || (4711::pg_catalog.int8)
//! ```
//! A number that stands in the text is known before the statement is routed, is the same on every copy of a reference table, and
//! is what `currval` will say. What this module does not see (rows from a query, from COPY, from a trigger) is numbered by the
//! shard, from blocks of its own. Pure; the text has been accepted by PostgreSQL's grammar.

use std::ops::Range;

use pg_raw_parse::{ConstValue, Node, nodes};

use super::value_rows::value_rows;
use crate::catalog::{Column, Relation, SequenceName, quoted_identifier};
use crate::error::PgError;
use crate::sql::called::{self, Given};
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::parse::lexer::{self, TokenKind};
use crate::sql::parse::tokens::Tokens;
use crate::sql::parse::tree;
use crate::sql::query::{Resolved, column_name, generated_always, gives_value, resolve, text_means_temporary};
use crate::sql::utility::shardgate_call;

mod refusals;

use refusals::{not_constant, through_view, unreadable};
pub use refusals::{not_here, not_named};

/// One number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Number {
    /// The sequence's next one.
    Next(SequenceName),
    /// The same for an identity column, which asks for no right to the sequence.
    Identity(SequenceName),
    /// `currval`.
    Current(SequenceName),
    /// `lastval`.
    Last,
    /// `shardgate.unique_id()`.
    Unique,
    /// `setval`, which gives what it sets.
    Set { sequence: SequenceName, number: i64, is_called: bool },
}

/// A text with places for numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drawing {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// Bytes of the client's text.
    Kept(Range<usize>),
    Added(String),
    Number(Number),
}

impl Drawing {
    /// What is to be drawn, in the order in which PostgreSQL would.
    pub fn numbers(&self) -> impl Iterator<Item = &Number> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Number(number) => Some(number),
            Piece::Kept(_) | Piece::Added(_) => None,
        })
    }

    /// The text with these in place of the numbers. `written` is called once for each, in their order.
    pub fn text(&self, text: &str, mut written: impl FnMut(usize) -> String) -> String {
        let mut out = String::with_capacity(text.len() + 64);
        let mut ordinal = 0;
        for piece in &self.pieces {
            match piece {
                Piece::Kept(range) => out.push_str(text.get(range.clone()).unwrap_or_default()),
                Piece::Added(added) => out.push_str(added),
                Piece::Number(_) => {
                    out.push_str(&written(ordinal));
                    ordinal += 1;
                }
            }
        }
        out
    }

    /// Where a character of the changed text is in the client's own; both count from 1. What was added stands where it was put.
    pub fn original_position(&self, text: &str, written: impl Fn(usize) -> String, position: usize) -> usize {
        let (mut changed, mut own, mut ordinal, mut counted) = (1, 1, 0, 0);
        for piece in &self.pieces {
            let (length, is_own) = match piece {
                Piece::Kept(range) => {
                    // Pieces that were left out lie before it.
                    own += text.get(counted..range.start).unwrap_or_default().chars().count();
                    counted = range.end;
                    (text.get(range.clone()).unwrap_or_default().chars().count(), true)
                }
                Piece::Added(added) => (added.chars().count(), false),
                Piece::Number(_) => {
                    ordinal += 1;
                    (written(ordinal - 1).chars().count(), false)
                }
            };
            if position < changed + length {
                return if is_own { own + position - changed } else { own };
            }
            changed += length;
            own += if is_own { length } else { 0 };
        }
        own
    }
}

/// Edits of a text, as they are found.
struct Edits {
    found: Vec<(Range<usize>, Vec<Piece>)>,
}

impl Edits {
    fn insert(&mut self, at: usize, pieces: Vec<Piece>) {
        self.found.push((at..at, pieces));
    }

    fn replace(&mut self, range: Range<usize>, pieces: Vec<Piece>) {
        self.found.push((range, pieces));
    }

    /// `None`: two of them overlap.
    fn into_drawing(mut self, text: &str) -> Option<Drawing> {
        self.found.sort_by_key(|(range, _)| range.start);
        let mut pieces = Vec::new();
        let mut position = 0;
        for (range, new) in self.found {
            if range.start < position {
                return None;
            }
            pieces.push(Piece::Kept(position..range.start));
            pieces.extend(new);
            position = range.end;
        }
        pieces.push(Piece::Kept(position..text.len()));
        Some(Drawing { pieces })
    }
}

/// Where numbers go in this text, which is one INSERT of rows or one SELECT of calls.
pub fn drawing(text: &str, context: &Context) -> Result<Drawing, PgError> {
    let tree = parse::parse(text)?;
    let mut statements = tree.stmts();
    let edits = match (statements.next(), statements.next()) {
        (Some(Node::InsertStmt(insert)), None) => rows(text, insert, context)?,
        (Some(Node::SelectStmt(select)), None) => calls(text, select, context)?,
        _ => return Err(unreadable()),
    };
    edits.into_drawing(text).ok_or_else(unreadable)
}

// ---- rows ----

fn rows(text: &str, insert: &nodes::InsertStmt, context: &Context) -> Result<Edits, PgError> {
    let name = insert.relation().ok_or_else(unreadable)?;
    let relation = match resolve(context, name, &context.search_path) {
        Resolved::View(view) => return Err(through_view(view, context)),
        other => other.table().ok_or_else(unreadable)?,
    };
    let drawn: Vec<(usize, &str, Number)> = relation
        .columns
        .iter()
        .enumerate()
        .filter_map(|(index, column)| Some((index, column.name.as_str(), number_of(column)?)))
        .collect();
    let mut edits = Edits { found: Vec::new() };
    let always: Vec<&Column> =
        relation.columns.iter().filter(|column| column.identity == Some('a') && column.cluster_sequence().is_some()).collect();
    let is_overridden = insert.override_ != nodes::OverridingKind::OVERRIDING_NOT_SET;
    let overriding = if is_overridden || always.is_empty() { "" } else { OVERRIDING };
    // What allows the numbers would allow the client's own values.
    let columns = filled_columns(insert, relation);
    if let Some(column) = always.iter().find(|column| !is_overridden && gives_value(insert, &columns, &column.name)) {
        return Err(generated_always(&column.name));
    }
    match insert.select_stmt() {
        Node::None => default_values(text, &drawn, overriding, &mut edits)?,
        Node::SelectStmt(select) => {
            let lists: Vec<_> =
                select.values_lists().iter().map(|row| row.as_node_list()).collect::<Option<_>>().ok_or_else(unreadable)?;
            let ranges = value_rows(text, lists.len()).ok_or_else(unreadable)?;
            let mut list = ColumnList::of(insert, relation, &drawn);
            if list.by_position.iter().any(|place| place.is_given_anyway) {
                let tokens = Tokens::of(text);
                // The numbers are given like the client's own.
                edits.replace(user_of_overriding(&tokens).ok_or_else(unreadable)?, vec![Piece::Added("SYSTEM".to_owned())]);
                list.tokens = Some(tokens);
            }
            if let Some(at) = list.names_at {
                let names: String = list.added.iter().map(|(name, _)| format!("{}, ", quoted_identifier(name))).collect();
                edits.insert(at, vec![Piece::Added(names)]);
            }
            if let (Some(first), false) = (ranges.first(), overriding.is_empty()) {
                let values =
                    lexer::tokens(text).filter(|token| token.kind != TokenKind::Comment && token.end <= first.start).last();
                edits.insert(values.ok_or_else(unreadable)?.start, vec![Piece::Added(overriding.to_owned())]);
            }
            for (row, range) in lists.into_iter().zip(ranges) {
                list.row(text, row, range, context, &mut edits)?;
            }
        }
        _ => return Err(unreadable()),
    }
    Ok(edits)
}

/// Those that it names, or all.
fn filled_columns(insert: &nodes::InsertStmt, relation: &Relation) -> Vec<String> {
    let named = insert.cols().iter().filter_map(|node| match node {
        Node::ResTarget(column) => column.name().map(str::to_owned),
        _ => None,
    });
    let named: Vec<String> = named.collect();
    if named.is_empty() { relation.columns.iter().map(|column| column.name.clone()).collect() } else { named }
}

/// What a column gets that has no value.
fn number_of(column: &Column) -> Option<Number> {
    match (column.is_unique_id(), column.identity) {
        (true, _) => Some(Number::Unique),
        (false, None) => column.cluster_sequence().map(Number::Next),
        (false, Some(_)) => column.cluster_sequence().map(Number::Identity),
    }
}

/// How rows of VALUES fit the table's columns.
struct ColumnList<'c> {
    /// Columns that are put before the client's own; only where it names its columns.
    added: Vec<(&'c str, Number)>,
    /// Where the client's list of names begins.
    names_at: Option<usize>,
    /// Columns that the client names, or all.
    by_position: Vec<Place>,
    /// Of the text, where values are replaced.
    tokens: Option<Tokens<'c>>,
}

/// What a column gets.
struct Place {
    /// Of a value in a row.
    position: usize,
    number: Number,
    /// Whatever the row says: OVERRIDING USER VALUE.
    is_given_anyway: bool,
}

impl<'c> ColumnList<'c> {
    fn of(insert: &nodes::InsertStmt, relation: &'c Relation, drawn: &[(usize, &'c str, Number)]) -> Self {
        let named: Vec<(&str, i32)> = insert
            .cols()
            .iter()
            .filter_map(|node| match node {
                Node::ResTarget(column) => Some((column.name().unwrap_or_default(), column.location)),
                _ => None,
            })
            .collect();
        let is_overridden = insert.override_ == nodes::OverridingKind::OVERRIDING_USER_VALUE;
        let place_at = |position: usize, index: usize, number: &Number| Place {
            position,
            number: number.clone(),
            is_given_anyway: is_overridden && relation.columns.get(index).is_some_and(|column| column.identity.is_some()),
        };
        if named.is_empty() {
            let by_position = drawn.iter().map(|(index, _, number)| place_at(*index, *index, number)).collect();
            return Self { added: Vec::new(), names_at: None, by_position, tokens: None };
        }
        let place = |name: &str| named.iter().position(|(given, _)| *given == name);
        let added: Vec<_> =
            drawn.iter().filter(|(_, name, _)| place(name).is_none()).map(|(_, name, number)| (*name, number.clone())).collect();
        let by_position = drawn.iter().filter_map(|(index, name, number)| Some(place_at(place(name)?, *index, number))).collect();
        let first = named.first().and_then(|(_, location)| usize::try_from(*location).ok());
        Self { names_at: first.filter(|_| !added.is_empty()), added, by_position, tokens: None }
    }

    fn row(
        &self,
        text: &str,
        row: &pg_raw_parse::list::NodeList,
        range: Range<usize>,
        context: &Context,
        edits: &mut Edits,
    ) -> Result<(), PgError> {
        if self.names_at.is_some() {
            let numbers = self.added.iter().flat_map(|(_, number)| [Piece::Number(number.clone()), Piece::Added(", ".into())]);
            edits.insert(range.start + 1, numbers.collect());
        }
        let elements = match &self.tokens {
            Some(tokens) => elements(tokens, &range).ok_or_else(unreadable)?,
            None => Vec::new(),
        };
        let mut count = 0;
        for (position, value) in row.iter().enumerate() {
            count = position + 1;
            let of_column = self.by_position.iter().find(|place| place.position == position);
            match (value, of_column) {
                (_, Some(place)) if place.is_given_anyway => {
                    if !is_right_anyway(value) {
                        return Err(overridden_unseen());
                    }
                    let element = elements.get(position).cloned().ok_or_else(unreadable)?;
                    edits.replace(element, vec![Piece::Number(place.number.clone())]);
                }
                (Node::SetToDefault(default), Some(place)) => {
                    let start = usize::try_from(default.location).map_err(|_| unreadable())?;
                    let word = text.get(start..start + DEFAULT.len()).filter(|word| word.eq_ignore_ascii_case(DEFAULT));
                    word.ok_or_else(unreadable)?;
                    edits.replace(start..start + DEFAULT.len(), vec![Piece::Number(place.number.clone())]);
                }
                (Node::FuncCall(call), _) if is_next(call, context) => {
                    if let Some(Call { number, range }) = Call::of(text, call, context)? {
                        edits.replace(range, vec![Piece::Number(number)]);
                    }
                }
                (value, _) => in_expression(text, value, context, edits)?,
            }
        }
        // Without names the last columns may have no value.
        let mut missing = Vec::new();
        let given = count;
        for Place { position, number, .. } in self.by_position.iter().filter(|place| place.position >= given) {
            missing.extend((count..*position).map(|_| Piece::Added(format!(", {DEFAULT}"))));
            missing.push(Piece::Added(", ".into()));
            missing.push(Piece::Number(number.clone()));
            count = position + 1;
        }
        if !missing.is_empty() {
            edits.insert(range.end - 1, missing);
        }
        Ok(())
    }
}

/// Not looked at by anybody else once it is replaced: nothing can be wrong with it.
fn is_right_anyway(value: Node<'_>) -> bool {
    match value {
        // As the proxy itself writes rows that it has read.
        Node::TypeCast(cast) => is_whole_number_type(cast) && is_right_anyway(cast.arg()),
        Node::SetToDefault(_) => true,
        Node::A_Const(constant) => match constant.val() {
            None | Some(ConstValue::Integer(_)) => true,
            // In range for every type that is numbered.
            Some(ConstValue::String(text)) => text.trim().parse::<i16>().is_ok(),
            Some(_) => false,
        },
        _ => false,
    }
}

fn is_whole_number_type(cast: &nodes::TypeCast) -> bool {
    let name = cast.type_name().and_then(|name| name.names().iter().filter_map(|part| part.sval()).next_back());
    matches!(name, Some("int2" | "int4" | "int8"))
}

fn overridden_unseen() -> PgError {
    PgError::unsupported(
        "OVERRIDING USER VALUE is not supported here",
        "The column is numbered by a sequence of the whole cluster, and its value in this row is not a whole number.",
        "Leave the column out, or give DEFAULT.",
    )
}

/// The values of a row, parentheses included in its range.
fn elements(tokens: &Tokens<'_>, row: &Range<usize>) -> Option<Vec<Range<usize>>> {
    let open = tokens.at(row.start)?;
    let elements = tokens.elements(open + 1, tokens.closing(open)?)?;
    elements.into_iter().map(|(first, last)| tokens.range(first, last)).collect()
}

/// The word that says whose values are overridden.
fn user_of_overriding(tokens: &Tokens<'_>) -> Option<Range<usize>> {
    let mut from = 0;
    loop {
        let overriding = tokens.word_at_top(from, &["overriding"])?;
        let is = |index: usize, word: &str| tokens.piece(index).eq_ignore_ascii_case(word);
        if is(overriding + 1, "user") && is(overriding + 2, "value") {
            return tokens.range(overriding + 1, overriding + 1);
        }
        from = overriding + 1;
    }
}

const DEFAULT: &str = "DEFAULT";
const OVERRIDING: &str = "OVERRIDING SYSTEM VALUE ";

fn default_values(text: &str, drawn: &[(usize, &str, Number)], overriding: &str, edits: &mut Edits) -> Result<(), PgError> {
    let words: Vec<_> = lexer::tokens(text).filter(|token| token.kind != TokenKind::Comment).collect();
    let is = |index: usize, word: &str| {
        words.get(index).and_then(|token| text.get(token.start..token.end)).is_some_and(|found| found.eq_ignore_ascii_case(word))
    };
    let at = (0..words.len()).find(|index| is(*index, DEFAULT) && is(index + 1, "values")).ok_or_else(unreadable)?;
    let (Some(first), Some(last)) = (words.get(at), words.get(at + 1)) else { return Err(unreadable()) };
    let names: Vec<String> = drawn.iter().map(|(_, name, _)| quoted_identifier(name)).collect();
    let mut pieces = vec![Piece::Added(format!("({}) {overriding}VALUES (", names.join(", ")))];
    for (place, (_, _, number)) in drawn.iter().enumerate() {
        if place > 0 {
            pieces.push(Piece::Added(", ".into()));
        }
        pieces.push(Piece::Number(number.clone()));
    }
    pieces.push(Piece::Added(")".into()));
    edits.replace(first.start..last.end, pieces);
    Ok(())
}

// ---- calls ----

/// A call that gives a number of a cluster-wide sequence, and where it is in the text.
struct Call {
    number: Number,
    range: Range<usize>,
}

impl Call {
    /// `None`: it concerns no cluster-wide sequence.
    fn of(text: &str, call: &nodes::FuncCall, context: &Context) -> Result<Option<Self>, PgError> {
        let Some(number) = number(call, context)? else { return Ok(None) };
        let start = usize::try_from(call.location).map_err(|_| unreadable())?;
        let mut depth = 0_usize;
        for token in lexer::tokens(text.get(start..).ok_or_else(unreadable)?) {
            match text.get(start + token.start..start + token.end) {
                Some("(") => depth += 1,
                Some(")") => {
                    depth = depth.checked_sub(1).ok_or_else(unreadable)?;
                    if depth == 0 {
                        return Ok(Some(Self { number, range: start..start + token.end }));
                    }
                }
                _ => {}
            }
        }
        Err(unreadable())
    }
}

fn calls(text: &str, select: &nodes::SelectStmt, context: &Context) -> Result<Edits, PgError> {
    let mut edits = Edits { found: Vec::new() };
    for target in select.target_list() {
        let call = match target.val() {
            Node::FuncCall(function) => Call::of(text, function, context)?,
            _ => None,
        };
        let is_named = target.name().is_some();
        match call {
            Some(call) => {
                let label = if is_named { String::new() } else { format!(" AS {}", quoted_identifier(&column_name(target.val()))) };
                edits.replace(call.range, vec![Piece::Number(call.number), Piece::Added(format!("::pg_catalog.int8{label}"))]);
            }
            None if draws(target.val(), context) => {
                in_expression(text, target.val(), context, &mut edits)?;
                if !is_named {
                    let end = end_of_target(text, target).ok_or_else(unreadable)?;
                    edits.insert(end, vec![Piece::Added(format!(" AS {}", quoted_identifier(&column_name(target.val()))))]);
                }
            }
            None => {}
        }
    }
    Ok(edits)
}

/// Numbers in the places of an expression's calls, of the type that these have.
fn in_expression(text: &str, value: Node<'_>, context: &Context, edits: &mut Edits) -> Result<(), PgError> {
    if !draws(value, context) {
        return Ok(());
    }
    let mut found = Vec::new();
    tree::walk(value, &mut |node| {
        if let Node::FuncCall(call) = node {
            found.push(call);
        }
        true
    });
    for call in found.into_iter().filter(|call| is_next(call, context)) {
        if let Some(Call { number, range }) = Call::of(text, call, context)? {
            let pieces = vec![Piece::Added("(".into()), Piece::Number(number), Piece::Added("::pg_catalog.int8)".into())];
            edits.replace(range, pieces);
        }
    }
    Ok(())
}

/// Where the expression ends that stands for a column without a name, in a SELECT of nothing but values.
fn end_of_target(text: &str, target: &nodes::ResTarget) -> Option<usize> {
    let start = usize::try_from(target.location).ok()?;
    let (mut depth, mut end) = (0_usize, None);
    for token in lexer::tokens(text.get(start..)?).filter(|token| token.kind != TokenKind::Comment) {
        match text.get(start + token.start..start + token.end)? {
            "(" | "[" => depth += 1,
            ")" | "]" => depth = depth.checked_sub(1)?,
            "," | ";" if depth == 0 => break,
            _ => {}
        }
        end = Some(start + token.end);
    }
    end
}

/// A SELECT of nothing but values, some of which the proxy may have to draw.
pub fn is_of_numbers(select: &nodes::SelectStmt, context: &Context) -> bool {
    if !shardgate_call::is_bare(select) || !select.from_clause().is_empty() {
        return false;
    }
    let mut is_ours = false;
    for target in select.target_list() {
        match target.val() {
            Node::FuncCall(call) if sequence_function(call).is_some() => {
                is_ours |= number(call, context).is_ok_and(|number| number.is_some());
            }
            value if draws(value, context) => is_ours = true,
            value if is_without_numbers(value, context) => {}
            _ => return false,
        }
    }
    is_ours
}

/// Some of the expression's calls give a number, one each time that it is evaluated: nothing in it may leave one out.
pub fn draws(value: Node<'_>, context: &Context) -> bool {
    let (mut is_found, mut is_plain) = (false, true);
    tree::walk(value, &mut |node| {
        match node {
            Node::FuncCall(call) if is_next(call, context) => is_found = true,
            Node::FuncCall(call) => is_plain &= is_of_one_value(call, context),
            Node::A_Expr(operation) => {
                use nodes::A_Expr_Kind as Kind;
                is_plain &= matches!(operation.kind, Kind::AEXPR_OP | Kind::AEXPR_NULLIF);
            }
            // A strict function of NULL is not called.
            Node::A_Const(constant) => is_plain &= !constant.isnull,
            Node::TypeCast(_) | Node::ParamRef(_) | Node::CollateClause(_) | Node::A_ArrayExpr(_) | Node::MinMaxExpr(_) => {}
            Node::NodeList(_) | Node::SQLValueFunction(_) => {}
            _ => is_plain = false,
        }
        true
    });
    is_found && is_plain
}

fn is_without_numbers(value: Node<'_>, context: &Context) -> bool {
    let mut is_without = true;
    tree::walk(value, &mut |node| {
        match node {
            Node::FuncCall(call) => is_without &= is_of_one_value(call, context),
            Node::SubLink(_) => is_without = false,
            node => is_without &= tree::is_known(node),
        }
        true
    });
    is_without
}

/// A function of pg_catalog that gives one value for its arguments, whatever they are: of others the rows may be several, each
/// of which would have a number of its own.
fn is_of_one_value(call: &nodes::FuncCall, context: &Context) -> bool {
    let given = || Given::of(call, |_| None);
    let is_of_postgresql = |name: &str| called::functions_of_users(context, &context.search_path, name, given).is_empty();
    let name = match tree::names(call.funcname()).as_deref() {
        Some(["pg_catalog", name]) => *name,
        Some([name]) if is_of_postgresql(name) => *name,
        _ => return false,
    };
    call.over().is_none() && OF_ONE_VALUE.contains(&name)
}

/// A single row of VALUES may be several.
pub fn may_be_rows(value: Node<'_>) -> bool {
    let mut is_found = false;
    tree::walk(value, &mut |node| {
        if let Node::FuncCall(call) = node {
            is_found |= tree::names(call.funcname()).is_some_and(|names| names.last().is_some_and(|name| OF_ROWS.contains(name)));
        }
        true
    });
    is_found
}

fn is_next(call: &nodes::FuncCall, context: &Context) -> bool {
    matches!(number(call, context), Ok(Some(Number::Next(_) | Number::Unique)))
}

/// `shardgate.unique_id()`, by its name alone where the schema is searched and no function of users has it.
pub fn is_unique_id(call: &nodes::FuncCall, context: &Context) -> bool {
    let is_searched = || context.search_path.iter().any(|schema| schema == shardgate_call::SCHEMA);
    let is_users = || context.catalog.function_names.contains_key(shardgate_call::UNIQUE_ID);
    let is_meant = match tree::names(call.funcname()).as_deref() {
        Some([shardgate_call::SCHEMA, shardgate_call::UNIQUE_ID]) => true,
        Some([shardgate_call::UNIQUE_ID]) => is_searched() && !is_users(),
        _ => false,
    };
    is_meant && call.args().is_empty() && call.over().is_none()
}

/// The cluster-wide sequence that a call of a sequence function names: by a literal, or by `pg_get_serial_sequence` of literals.
pub fn cluster_sequence_of(call: &nodes::FuncCall, context: &Context) -> Option<SequenceName> {
    sequence_function(call)?;
    let named = call.args().first()?;
    let sequence = match tree::constant_text(named) {
        Some(text) if text_means_temporary(context, &text) => return None,
        Some(text) => context.catalog.sequence(&text, &context.search_path)?,
        None => sequence_of_column(named, context)?,
    };
    is_of_cluster(&sequence, context).then_some(sequence)
}

fn sequence_of_column(value: Node<'_>, context: &Context) -> Option<SequenceName> {
    let (table, column) = column_of_sequence(value).filter(|(table, _)| !text_means_temporary(context, table))?;
    context.catalog.relation_named(&table, &context.search_path)?.column(&column)?.cluster_sequence()
}

/// The table and the column of a call of `pg_get_serial_sequence`.
fn column_of_sequence(value: Node<'_>) -> Option<(String, String)> {
    let Node::FuncCall(call) = tree::without_casts(value) else { return None };
    if !matches!(tree::names(call.funcname())?.as_slice(), ["pg_get_serial_sequence"] | ["pg_catalog", "pg_get_serial_sequence"]) {
        return None;
    }
    let mut arguments = call.args().iter().map(tree::constant_text);
    Some((arguments.next()??, arguments.next()??))
}

/// A call of a sequence function says in the text which sequence it is about, or that it is about none.
pub fn names_sequence(call: &nodes::FuncCall) -> bool {
    call.args()
        .first()
        .is_none_or(|named| matches!(tree::without_casts(named), Node::A_Const(_)) || column_of_sequence(named).is_some())
}

pub fn has_parameters(call: &nodes::FuncCall) -> bool {
    let mut is_found = false;
    call.args().iter().for_each(|argument| {
        tree::walk(argument, &mut |node| {
            is_found |= matches!(node, Node::ParamRef(_));
            !is_found
        });
    });
    is_found
}

/// Declared, and the shards have given it up: between the two its numbers are still the home shard's.
fn is_of_cluster(sequence: &SequenceName, context: &Context) -> bool {
    context.map.sequences.contains_key(sequence)
        && context
            .catalog
            .relations
            .values()
            .flat_map(|relation| &relation.columns)
            .any(|column| column.cluster_sequence().as_ref() == Some(sequence))
}

pub fn sequence_function(call: &nodes::FuncCall) -> Option<&'static str> {
    let names = tree::names(call.funcname())?;
    let name = match names.as_slice() {
        [name] | ["pg_catalog", name] => *name,
        _ => return None,
    };
    ["nextval", "currval", "lastval", "setval"].into_iter().find(|known| *known == name)
}

/// `None`: it concerns another sequence. An error: it is one of ours, and its arguments are not constants.
pub fn number(call: &nodes::FuncCall, context: &Context) -> Result<Option<Number>, PgError> {
    if is_unique_id(call, context) {
        return Ok(Some(Number::Unique));
    }
    let Some(name) = sequence_function(call) else { return Ok(None) };
    if name == "lastval" {
        return Ok(call.args().is_empty().then_some(Number::Last));
    }
    let Some(sequence) = cluster_sequence_of(call, context) else { return Ok(None) };
    let mut rest = call.args().iter().skip(1).map(tree::constant_text);
    Ok(match (name, call.args().len()) {
        ("nextval", 1) => Some(Number::Next(sequence)),
        ("currval", 1) => Some(Number::Current(sequence)),
        ("setval", 2 | 3) => {
            let number = rest.next().flatten().and_then(|text| text.trim().parse().ok());
            let is_called = match call.args().len() {
                2 => Some(true),
                _ => rest.next().flatten().and_then(|text| truth(&text)),
            };
            let (Some(number), Some(is_called)) = (number, is_called) else { return Err(not_constant(&sequence.1)) };
            Some(Number::Set { sequence, number, is_called })
        }
        _ => None,
    })
}

fn truth(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "t" | "true" | "on" | "yes" | "1" => Some(true),
        "f" | "false" | "off" | "no" | "0" => Some(false),
        _ => None,
    }
}

const OF_ONE_VALUE: [&str; 32] = [
    "abs",
    "btrim",
    "ceil",
    "chr",
    "clock_timestamp",
    "concat",
    "concat_ws",
    "current_user",
    "date_trunc",
    "decode",
    "encode",
    "floor",
    "format",
    "gen_random_uuid",
    "initcap",
    "left",
    "length",
    "lower",
    "lpad",
    "ltrim",
    "md5",
    "mod",
    "now",
    "repeat",
    "replace",
    "right",
    "round",
    "rpad",
    "rtrim",
    "to_char",
    "to_hex",
    "upper",
];
const OF_ROWS: [&str; 22] = [
    "generate_series",
    "generate_subscripts",
    "json_array_elements",
    "json_array_elements_text",
    "json_each",
    "json_each_text",
    "json_object_keys",
    "json_populate_recordset",
    "json_to_recordset",
    "jsonb_array_elements",
    "jsonb_array_elements_text",
    "jsonb_each",
    "jsonb_each_text",
    "jsonb_object_keys",
    "jsonb_path_query",
    "jsonb_populate_recordset",
    "jsonb_to_recordset",
    "regexp_matches",
    "regexp_split_to_table",
    "string_to_table",
    "unnest",
    "aclexplode",
];
