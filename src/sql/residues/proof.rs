//! The proof that a covered text is the client's statement with the conditions, and nothing else.
//!
//! Both texts are parsed and printed as the parser's trees; the conditions, known by what they parse to, are taken out of the
//! covered one wherever a condition can stand. What is left must be the tree of the client's text, and every condition must
//! have been met. Only positions in the text are left out of the comparison.

use pg_raw_parse::nodes;
use pg_raw_parse::walk::{Recurse, walk_manual};

use super::places::query_within;
use super::renames::Renamed;
use super::uncoverable;
use crate::error::PgError;
use crate::sql::parse::{self, Tree};

/// Whether `covered` is `text` with exactly these conditions, in any order, and with the covering views of these.
pub fn holds(text: &str, covered: &str, conditions: &[String], renamed: &[Renamed]) -> Result<bool, PgError> {
    let original = parse::parse(text)?;
    let Ok(covered) = parse::parse(covered) else { return Ok(false) };
    check_depth(&original)?;
    check_depth(&covered)?;
    stacker::maybe_grow(STACK_BYTES, STACK_BYTES, || {
        let mut expected = conditions.iter().map(|condition| condition_tree(condition)).collect::<Result<Vec<_>, _>>()?;
        let (mut left, mut original) = (printed(&covered), printed(&original));
        left.take_out(&mut expected);
        let names_covering = renamed.iter().all(|view| left.count_covering(view) == renamed_alike(renamed, view));
        for view in renamed {
            left.name_view(view);
            original.name_view(view);
        }
        Ok(expected.is_empty() && names_covering && left == original)
    })
}

fn renamed_alike(renamed: &[Renamed], view: &Renamed) -> usize {
    renamed.iter().filter(|other| other.covering == view.covering).count()
}

/// Nested expressions and queries; each level takes about a kilobyte of stack.
const DEPTH_MAX: usize = 3_000;
const STACK_BYTES: usize = 16 * 1024 * 1024;

fn check_depth(tree: &Tree) -> Result<(), PgError> {
    let mut waiting: Vec<_> = tree.stmts().filter_map(query_within).map(|query| (query, 0)).collect();
    while let Some((node, depth)) = waiting.pop() {
        if depth > DEPTH_MAX {
            return Err(uncoverable("It is nested too deeply."));
        }
        walk_manual::<()>(node, |child| {
            waiting.push((child, depth + 1));
            Recurse::no()
        });
    }
    Ok(())
}

/// A tree as its debug form prints it.
#[derive(Debug, PartialEq, Eq)]
enum Printed {
    /// A number, a string with its quotes, a name without content.
    Atom(String),
    List(Vec<Printed>),
    /// A node and its fields, without those that say where it stands; or a variant around something, without names.
    Node(String, Vec<(String, Printed)>),
}

const NOTHING: &str = "None";
const PLACES: &[&str] =
    &["location", "stmt_location", "stmt_len", "list_start", "list_end", "rexpr_list_start", "rexpr_list_end", "name_location"];

fn printed(tree: &Tree) -> Printed {
    let statements: Vec<_> = tree.stmts().collect();
    let text = format!("{statements:?}");
    Reader { rest: &text }.value()
}

fn condition_tree(condition: &str) -> Result<Printed, PgError> {
    let tree = parse::parse(&format!("SELECT WHERE {condition}"))?;
    printed(&tree).field("where_clause").ok_or_else(|| uncoverable("A condition does not read as one."))
}

impl Printed {
    /// The first field of this name, wherever it is.
    fn field(self, name: &str) -> Option<Printed> {
        match self {
            Printed::Atom(_) => None,
            Printed::List(items) => items.into_iter().find_map(|item| item.field(name)),
            Printed::Node(_, fields) => {
                fields.into_iter().find_map(|(field, value)| if field == name { Some(value) } else { value.field(name) })
            }
        }
    }

    fn is_nothing(&self) -> bool {
        matches!(self, Printed::Atom(text) if text == NOTHING)
    }

    fn content(&self) -> &Printed {
        match self {
            Printed::Node(_, fields) => match &fields[..] {
                [(name, inner)] if name.is_empty() => inner.content(),
                _ => self,
            },
            Printed::Atom(_) | Printed::List(_) => self,
        }
    }

    fn get(&self, name: &str) -> Option<&Printed> {
        match self.content() {
            Printed::Node(_, fields) => fields.iter().find(|(field, _)| field == name).map(|(_, value)| value),
            Printed::Atom(_) | Printed::List(_) => None,
        }
    }

    fn is_node(&self, name: &str) -> bool {
        matches!(self.content(), Printed::Node(node, _) if node == name)
    }

    /// The text of a name or string.
    fn is_text(&self, text: &str) -> bool {
        matches!(self.content(), Printed::Atom(atom) if *atom == format!("{text:?}"))
    }

    /// References to the covering view of this one.
    fn count_covering(&self, view: &Renamed) -> usize {
        match self {
            Printed::Atom(_) => 0,
            Printed::List(items) => items.iter().map(|item| item.count_covering(view)).sum(),
            Printed::Node(_, fields) => {
                let is_it = self.is_node("RangeVar")
                    && fields.iter().any(|(name, value)| name == "schemaname" && value.is_text("shardgate"))
                    && fields.iter().any(|(name, value)| name == "relname" && value.is_text(&view.covering));
                usize::from(is_it) + fields.iter().map(|(_, value)| value.count_covering(view)).sum::<usize>()
            }
        }
    }

    /// The view and its covering view get one name, and so do their columns: without the schema, and without an alias that says it
    /// again.
    fn name_view(&mut self, view: &Renamed) {
        let is_table = matches!(self, Printed::Node(node, _) if node == "RangeVar");
        let is_column = matches!(self, Printed::Node(node, _) if node == "ColumnRef");
        let is_covering = is_table && self.get("relname").is_some_and(|name| name.is_text(&view.covering));
        let is_view = is_table
            && self.get("relname").is_some_and(|name| name.is_text(&view.name))
            && self.get("schemaname").is_some_and(|schema| schema.is_nothing() || schema.is_text(&view.schema));
        match self {
            Printed::Atom(_) => {}
            Printed::List(items) => items.iter_mut().for_each(|item| item.name_view(view)),
            Printed::Node(_, fields) => {
                for (name, value) in fields {
                    match name.as_str() {
                        "relname" if is_covering => *value = Printed::Atom(format!("{:?}", view.name)),
                        "relname" if is_view => *value = Printed::Atom(format!("{:?}", view.name)),
                        "schemaname" if is_covering || is_view => *value = Printed::Atom(NOTHING.to_owned()),
                        "alias" if (is_covering || is_view) && value.is_alias_alone(&view.name) => {
                            *value = Printed::Atom(NOTHING.to_owned());
                        }
                        "fields" if is_column => value.leave_out_schema(view),
                        _ => value.name_view(view),
                    }
                }
            }
        }
    }

    /// `AS name`, without names of columns.
    fn is_alias_alone(&self, name: &str) -> bool {
        self.get("aliasname").is_some_and(|alias| alias.is_text(name))
            && self.get("colnames").is_some_and(|columns| *columns == Printed::List(Vec::new()))
    }

    /// Of the fields of a column.
    fn leave_out_schema(&mut self, view: &Renamed) {
        let Printed::List(fields) = self else { return };
        let is_it = fields.len() == 3
            && fields.first().is_some_and(|field| field.is_string(&view.schema))
            && fields.get(1).is_some_and(|field| field.is_string(&view.name));
        if is_it {
            fields.remove(0);
        }
    }

    fn is_string(&self, text: &str) -> bool {
        self.get("sval").is_some_and(|value| value.is_text(text))
    }

    /// Takes each of the conditions out once; those that are not met stay in `conditions`.
    fn take_out(&mut self, conditions: &mut Vec<Printed>) {
        if let Some(table) = self.beside_one_row(conditions) {
            *self = table;
        }
        match self {
            Printed::Atom(_) => {}
            Printed::List(items) => items.iter_mut().for_each(|item| item.take_out(conditions)),
            Printed::Node(_, fields) => {
                for (name, value) in fields {
                    if ["where_clause", "quals", "join_condition", "condition"].contains(&name.as_str()) {
                        while value.take_from_front(conditions) {}
                    }
                    value.take_out(conditions);
                }
            }
        }
    }

    /// `condition AND … AND (expression)` becomes the expression; conditions alone become nothing.
    fn take_from_front(&mut self, conditions: &mut Vec<Printed>) -> bool {
        if take(self, conditions) {
            *self = Printed::Atom(NOTHING.to_owned());
            return true;
        }
        let and = Printed::Atom(format!("{:?}", nodes::BoolExprType::AND_EXPR));
        let is_and = self.is_node("BoolExpr") && self.get("boolop") == Some(&and);
        let Some(Printed::List(arguments)) = self.get("args") else { return false };
        let met = arguments.iter().take_while(|argument| conditions.contains(argument)).count();
        if !is_and || met == 0 || arguments.len() > met + 1 {
            return false;
        }
        let Some(Printed::List(mut arguments)) = std::mem::replace(self, Printed::Atom(NOTHING.to_owned())).field("args") else {
            return false;
        };
        let rest = arguments.split_off(met);
        arguments.iter().for_each(|argument| {
            take(argument, conditions);
        });
        if let Some(rest) = rest.into_iter().next() {
            *self = rest;
        }
        true
    }

    /// The table of `(table JOIN (SELECT) AS … ON condition)`.
    fn beside_one_row(&mut self, conditions: &mut Vec<Printed>) -> Option<Printed> {
        let is_one_row = |query: &Printed| {
            query.is_node("RangeSubselect")
                && query.get("subquery").is_some_and(|select| {
                    ["target_list", "from_clause", "values_lists"]
                        .iter()
                        .all(|list| select.get(list) == Some(&Printed::List(Vec::new())))
                })
        };
        let is_it = self.is_node("JoinExpr")
            && self.get("rarg").is_some_and(is_one_row)
            && self.get("alias").is_some_and(Printed::is_nothing)
            && self.get("quals").is_some_and(|quals| take(quals, conditions));
        is_it.then(|| std::mem::replace(self, Printed::Atom(NOTHING.to_owned())).field("larg")).flatten()
    }
}

fn take(value: &Printed, conditions: &mut Vec<Printed>) -> bool {
    let found = conditions.iter().position(|condition| condition == value);
    found.map(|index| conditions.swap_remove(index)).is_some()
}

/// Reads what `{:?}` prints.
struct Reader<'t> {
    rest: &'t str,
}

impl Reader<'_> {
    fn value(&mut self) -> Printed {
        match self.rest.as_bytes().first() {
            Some(b'[') => {
                self.skip(1);
                let mut items = Vec::new();
                while !self.goes_past("]") {
                    items.push(self.value());
                    self.goes_past(", ");
                }
                Printed::List(items)
            }
            Some(b'"') => Printed::Atom(self.string()),
            _ => self.named(),
        }
    }

    fn named(&mut self) -> Printed {
        let end = self.rest.find(|letter: char| ",()[]{} ".contains(letter)).unwrap_or(self.rest.len());
        let name = self.rest.get(..end).unwrap_or_default().to_owned();
        self.skip(end.max(usize::from(end == 0 && !self.rest.is_empty())));
        let mut fields = Vec::new();
        if self.goes_past("(") {
            while !self.goes_past(")") {
                fields.push((String::new(), self.value()));
                self.goes_past(", ");
            }
        } else if self.goes_past(" { ") {
            while !self.goes_past(" }") {
                if self.goes_past("..") {
                    continue;
                }
                let Some((field, rest)) = self.rest.split_once(": ") else { break };
                self.rest = rest;
                let value = self.value();
                if !PLACES.contains(&field) {
                    fields.push((field.to_owned(), value));
                }
                self.goes_past(", ");
            }
        } else {
            return Printed::Atom(name);
        }
        Printed::Node(name, fields)
    }

    fn string(&mut self) -> String {
        let mut is_escaped = false;
        let end = self.rest.char_indices().skip(1).find(|(_, letter)| {
            let ends = *letter == '"' && !is_escaped;
            is_escaped = *letter == '\\' && !is_escaped;
            ends
        });
        let end = end.map_or(self.rest.len(), |(index, _)| index + 1);
        let text = self.rest.get(..end).unwrap_or_default().to_owned();
        self.skip(end);
        text
    }

    fn goes_past(&mut self, text: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(text) else { return false };
        self.rest = rest;
        true
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }
}
