//! The type of an expression, where it is certain: by it PostgreSQL chooses among functions of one name.
//!
//! Columns have the catalogue's, casts their own, constants PostgreSQL's for their spelling. Operators and functions count where all
//! of that name are PostgreSQL's and give one type for these arguments. Everything else is not known.

use pg_raw_parse::{ConstValue, Node, nodes};

use super::bind::Reader;
use super::equal_image::is_small;
use super::leaves::Columns;
use super::scope::{Frame, Resolution, VisibleColumns};
use crate::catalog::Oid;
use crate::shard_key::oid;
use crate::sql::called::ArgumentType;
use crate::sql::parse::tree;

impl Reader<'_> {
    /// The type by which PostgreSQL chooses a function that has the expression as an argument.
    pub fn type_of_value(&self, value: Node<'_>, frame: &Frame<'_>) -> Option<ArgumentType> {
        if is_small(value) { self.value_type(value, frame) } else { None }
    }

    fn value_type(&self, value: Node<'_>, frame: &Frame<'_>) -> Option<ArgumentType> {
        match value {
            Node::ColumnRef(column) => self.column_type(column, frame),
            Node::TypeCast(cast) => self.named_type(cast.type_name()?).map(ArgumentType::exactly),
            Node::A_Const(constant) => match constant.val()? {
                ConstValue::Integer(_) => Some(oid::INT4),
                ConstValue::Boolean(_) => Some(oid::BOOL),
                // What begins with a minus sign may be the smallest integer.
                ConstValue::Float(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                    Some(if text.parse::<i64>().is_ok() { oid::INT8 } else { oid::NUMERIC })
                }
                _ => None,
            }
            .map(ArgumentType::exactly),
            Node::BoolExpr(_) | Node::NullTest(_) | Node::BooleanTest(_) => Some(ArgumentType::exactly(oid::BOOL)),
            Node::CoalesceExpr(e) => self.common_type(e.args().iter(), frame),
            Node::MinMaxExpr(e) => self.common_type(e.args().iter(), frame),
            Node::CaseExpr(e) => {
                let results = e.args().iter().map(|when| match when {
                    Node::CaseWhen(when) => when.result(),
                    other => other,
                });
                self.common_type(results.chain([e.defresult()]), frame)
            }
            Node::A_Expr(e) if e.kind == nodes::A_Expr_Kind::AEXPR_OP => self.computed_type(e, frame),
            Node::FuncCall(call) => self.result_type(call, frame),
            _ => None,
        }
    }

    /// A column that is merged of two may have the type that both can be coerced to.
    fn column_type(&self, column: &nodes::ColumnRef, frame: &Frame<'_>) -> Option<ArgumentType> {
        let path = tree::names(column.fields())?;
        let levels = || std::iter::successors(Some(frame), |frame| frame.outer);
        let is_merged = levels().any(|level| {
            level.has_unknown_merge
                || path.last().is_some_and(|name| level.merged_as(name).is_some())
                || level.items.iter().any(|item| matches!(item.columns, VisibleColumns::Join { .. }))
        });
        let Resolution::Column(found) = frame.resolve(&path, &self.leaves) else { return None };
        let properties = self.properties(found);
        if is_merged || properties.type_oid == 0 {
            return None;
        }
        let is_of_relation = self.leaves.get(found.leaf).is_some_and(|leaf| matches!(leaf.columns, Columns::Relation(_)));
        let is_exact = !properties.is_domain && (is_of_relation || properties.type_oid != oid::TEXT);
        let is_row = self.context.catalog.types.get(&properties.type_oid).is_none_or(|known| matches!(known.kind, 'c' | 'd' | 'p'));
        (!is_row).then_some(ArgumentType { oid: properties.type_oid, is_exact })
    }

    /// Strings and NULL become of the others' type.
    fn common_type<'n>(&self, values: impl Iterator<Item = Node<'n>>, frame: &Frame<'_>) -> Option<ArgumentType> {
        let is_open = |value: &Node<'_>| match value {
            Node::None => true,
            Node::A_Const(constant) => matches!(constant.val(), None | Some(ConstValue::String(_))),
            _ => false,
        };
        let mut common = None;
        for value in values.filter(|value| !is_open(value)) {
            let found = self.value_type(value, frame).filter(|found| found.is_exact)?;
            if *common.get_or_insert(found) != found {
                return None;
            }
        }
        common
    }

    /// Arithmetic of two numbers of one type, or of integers, which gives the wider type of the two.
    fn computed_type(&self, e: &nodes::A_Expr, frame: &Frame<'_>) -> Option<ArgumentType> {
        let name = tree::single_name(e.name()).filter(|name| matches!(*name, "+" | "-" | "*" | "/" | "%"))?;
        if self.context.catalog.operator_functions.contains_key(name)
            || self.search_path.iter().any(|schema| schema == "pg_catalog")
        {
            return None;
        }
        // A domain counts as the type under it.
        let side = |side: Node<'_>| self.value_type(side, frame).map(|found| found.oid);
        let (left, right) = (side(e.lexpr())?, side(e.rexpr())?);
        let width = |oid: Oid| WIDTHS.iter().position(|known| *known == oid);
        let found = match (width(left), width(right)) {
            (Some(of_left), Some(of_right)) => WIDTHS.get(of_left.max(of_right)).copied()?,
            _ if left == right && left == oid::NUMERIC => left,
            _ if left == right && left == oid::FLOAT8 && name != "%" => left,
            _ => return None,
        };
        Some(ArgumentType::exactly(found))
    }

    fn result_type(&self, call: &nodes::FuncCall, frame: &Frame<'_>) -> Option<ArgumentType> {
        let name = self.catalog_function(call, frame)?;
        let argument = |place: usize| {
            let argument = self.value_type(call.args().get(place)?, frame)?;
            argument.is_exact.then_some(argument.oid)
        };
        let is_text = || argument(0).is_some_and(|oid| matches!(oid, oid::TEXT | oid::VARCHAR));
        let found = match name {
            "char_length" | "character_length" | "octet_length" | "bit_length" | "strpos" | "ascii" | "cardinality" => oid::INT4,
            // Of a line segment it is a number of another kind.
            "length" if is_text() => oid::INT4,
            "now" => oid::TIMESTAMPTZ,
            "lower" | "upper" | "initcap" | "btrim" | "ltrim" | "rtrim" | "left" | "right" | "reverse" if is_text() => oid::TEXT,
            "date_trunc" => match argument(1)? {
                oid::TIMESTAMP => oid::TIMESTAMP,
                oid::TIMESTAMPTZ | oid::DATE => oid::TIMESTAMPTZ,
                _ => return None,
            },
            "abs" => argument(0).filter(|oid| WIDTHS.contains(oid) || matches!(*oid, oid::NUMERIC | oid::FLOAT8))?,
            "round" | "floor" | "ceil" | "ceiling" | "trunc" if argument(0) == Some(oid::NUMERIC) => oid::NUMERIC,
            _ => return None,
        };
        Some(ArgumentType::exactly(found))
    }
}

/// Integers, by how much they hold.
const WIDTHS: [Oid; 3] = [oid::INT2, oid::INT4, oid::INT8];
