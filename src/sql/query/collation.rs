//! What an expression's collation says about equality and order: the proxy compares bytes, and only where PostgreSQL would find
//! the same.
//!
//! The collation of an expression comes from its columns, from COLLATE, from a domain, or else is the database's. Whatever may
//! bring another one ends the certainty: sub-selects, functions and operators of users, casts to types of users.

use pg_raw_parse::{Node, nodes};

use super::bind::Reader;
use super::scope::{Frame, Resolution};
use super::select_list::{item_order, quoted_path};
use super::{ColumnProperties, ItemOrder};
use crate::shard_key::KeyType;
use crate::sql::analysis::TextOrder;
use crate::sql::parse::tree;

impl Reader<'_> {
    /// Whether an expression, if it is text, has a collation that sorts bytewise: the database's and every column's do, or it
    /// says so itself.
    pub fn sorts_bytewise(&self, value: Node<'_>, frame: &Frame<'_>) -> bool {
        if let Node::CollateClause(collate) = value {
            let names = tree::names(collate.collname()).unwrap_or_default();
            return matches!(names.last(), Some(&("C" | "POSIX")));
        }
        let is_bytewise_column = |column: &nodes::ColumnRef| {
            let path = tree::names(column.fields()).unwrap_or_default();
            let Resolution::Column(column) = frame.resolve(&path, &self.leaves) else { return false };
            let properties = self.properties(column);
            let key_type = KeyType::of_column(properties.type_oid);
            properties.is_collation_c || key_type.is_some_and(|key_type| !matches!(key_type, KeyType::Text | KeyType::Bpchar))
        };
        if let Node::ColumnRef(column) = value {
            return is_bytewise_column(column);
        }
        let mut is_certain = self.context.catalog.is_collation_c;
        self.walk_collations(value, frame, &mut is_certain, &is_bytewise_column);
        is_certain
    }

    /// Whether equal values of an expression, if it is text, are the same bytes: nothing brings a nondeterministic collation. A
    /// database's own is deterministic.
    pub fn compares_bytewise(&self, value: Node<'_>, frame: &Frame<'_>) -> bool {
        let is_deterministic_column = |column: &nodes::ColumnRef| {
            let path = tree::names(column.fields()).unwrap_or_default();
            match frame.resolve(&path, &self.leaves) {
                Resolution::Column(column) => self.properties(column).is_deterministic,
                Resolution::Unknown => false,
            }
        };
        let mut is_certain = true;
        self.walk_collations(value, frame, &mut is_certain, &is_deterministic_column);
        is_certain
    }

    /// How the values of an expression sort.
    pub fn order_of_value(&self, value: Node<'_>, frame: &Frame<'_>) -> ItemOrder {
        let is_text = match value {
            Node::CollateClause(collate) => self.is_text_column(collate.arg(), frame),
            Node::FuncCall(call) => {
                let is_of_text = self.catalog_function(call, frame).is_some_and(|name| TEXT_OF_TEXT.contains(&name));
                is_of_text && call.args().first().is_some_and(|argument| self.is_text_column(argument, frame))
            }
            value => self.is_text_column(value, frame),
        };
        let text = TextOrder { is_bytewise: self.sorts_bytewise(value, frame), collation: self.collation_of_value(value, frame) };
        ItemOrder { text, is_text }
    }

    /// The collation of an expression, if it is text, as SQL names it. `None`: not known.
    ///
    /// An expression over values of the database's own collation has that one too. Others give way to it, or prevail, by rules that
    /// hang on the types of all that is between: of expressions with them nothing is concluded.
    pub fn collation_of_value(&self, value: Node<'_>, frame: &Frame<'_>) -> Option<String> {
        match value {
            Node::CollateClause(collate) => Some(quoted_path(&tree::names(collate.collname())?)),
            Node::ColumnRef(column) => self.properties_of(column, frame)?.collation,
            // No text.
            Node::A_Expr(e) if matches!(tree::single_name(e.name()), Some("+" | "-" | "*" | "/" | "%")) => None,
            value => {
                let mut is_default = true;
                tree::walk(value, &mut |node| {
                    is_default &= self.keeps_default_collation(node, frame);
                    is_default
                });
                is_default.then(|| DEFAULT.to_owned())
            }
        }
    }

    /// A part of an expression that brings no other collation than the database's.
    fn keeps_default_collation(&self, node: Node<'_>, frame: &Frame<'_>) -> bool {
        match node {
            Node::ColumnRef(column) => self.properties_of(column, frame).is_some_and(|properties| match &properties.collation {
                Some(collation) => collation == DEFAULT,
                None => properties.type_oid != 0,
            }),
            Node::FuncCall(call) => {
                call.over().is_none() && self.catalog_function(call, frame).is_some_and(|name| PLAIN_FUNCTIONS.contains(&name))
            }
            Node::TypeCast(cast) => cast.type_name().is_some_and(|name| self.is_catalog_type(name) && !is_name(name)),
            Node::A_Expr(e) => {
                let name = e.name().iter().next_back().and_then(Node::as_str).unwrap_or_default();
                !self.context.catalog.operator_functions.contains_key(name)
            }
            Node::None
            | Node::NodeList(_)
            | Node::A_Const(_)
            | Node::BoolExpr(_)
            | Node::NullTest(_)
            | Node::CaseExpr(_)
            | Node::CaseWhen(_)
            | Node::CoalesceExpr(_)
            | Node::String(_)
            | Node::Integer(_)
            | Node::Float(_)
            | Node::Boolean(_) => true,
            _ => false,
        }
    }

    fn properties_of(&self, column: &nodes::ColumnRef, frame: &Frame<'_>) -> Option<ColumnProperties> {
        match frame.resolve(&tree::names(column.fields())?, &self.leaves) {
            Resolution::Column(column) => Some(self.properties(column)),
            Resolution::Unknown => None,
        }
    }

    fn is_text_column(&self, node: Node<'_>, frame: &Frame<'_>) -> bool {
        let Node::ColumnRef(column) = node else { return false };
        self.properties_of(column, frame).is_some_and(|properties| item_order(&properties).is_text)
    }

    fn walk_collations(
        &self,
        value: Node<'_>,
        frame: &Frame<'_>,
        is_certain: &mut bool,
        is_plain_column: &dyn Fn(&nodes::ColumnRef) -> bool,
    ) {
        tree::walk(value, &mut |node| {
            *is_certain &= match node {
                Node::ColumnRef(column) => is_plain_column(column),
                Node::FuncCall(call) => self.catalog_function(call, frame).is_some(),
                Node::TypeCast(cast) => cast.type_name().is_some_and(|name| self.is_catalog_type(name)),
                Node::A_Expr(e) => {
                    let name = e.name().iter().next_back().and_then(Node::as_str).unwrap_or_default();
                    !self.context.catalog.operator_functions.contains_key(name)
                }
                Node::CollateClause(_) | Node::SubLink(_) | Node::A_Indirection(_) => false,
                other => tree::is_known(other),
            };
            *is_certain
        });
    }

    /// A type of `pg_catalog`, whose collation is the database's if it has one.
    fn is_catalog_type(&self, name: &nodes::TypeName) -> bool {
        let names: Vec<&str> = name.names().iter().filter_map(|part| part.sval()).collect();
        let is_elsewhere = |name: &str| {
            let mut known = self.context.catalog.types.values().filter(|known| known.name == name);
            known.any(|known| known.schema != "pg_catalog")
        };
        match names.as_slice() {
            ["pg_catalog", _] => true,
            [name] => !is_elsewhere(name),
            _ => false,
        }
    }

    /// The oid is one of an enum type.
    pub fn is_enum(&self, type_oid: u32) -> bool {
        self.context.catalog.types.get(&type_oid).is_some_and(|known| known.kind == 'e')
    }
}

fn is_name(name: &nodes::TypeName) -> bool {
    name.names().iter().filter_map(|part| part.sval()).next_back() == Some("name")
}

/// The database's own collation.
const DEFAULT: &str = "pg_catalog.\"default\"";

/// Functions that make text of text.
const TEXT_OF_TEXT: [&str; 12] =
    ["lower", "upper", "initcap", "btrim", "ltrim", "rtrim", "left", "right", "substr", "substring", "replace", "reverse"];

/// Functions whose result, if it is text, has a collation by nothing but their arguments: none yields a `name`.
const PLAIN_FUNCTIONS: [&str; 32] = [
    "lower",
    "upper",
    "initcap",
    "btrim",
    "ltrim",
    "rtrim",
    "left",
    "right",
    "substr",
    "substring",
    "replace",
    "reverse",
    "lpad",
    "rpad",
    "translate",
    "repeat",
    "split_part",
    "concat",
    "concat_ws",
    "regexp_replace",
    "to_char",
    "md5",
    "length",
    "char_length",
    "date_trunc",
    "date_part",
    "extract",
    "round",
    "floor",
    "ceil",
    "abs",
    "mod",
];
