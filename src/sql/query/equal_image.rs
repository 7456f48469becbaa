//! Whether values that are equal look alike: what PostgreSQL calls an equal image.
//!
//! `1.0` and `1.00` are one group, one minimum, one first row, and which of them is shown hangs on which is found first. So it is
//! with `0` and `-0`, `1 day` and `24 hours`, texts of a nondeterministic collation, and all that is made of such values: arrays,
//! rows, ranges, jsonb. What is not known to look alike counts as not.

use pg_raw_parse::{ConstValue, Node, nodes};

use super::ColumnProperties;
use super::bind::Reader;
use super::catalog_functions;
use super::scope::{Frame, Resolution};
use crate::catalog::Catalog;
use crate::shard_key::{Oid, oid};
use crate::sql::parse::tree;

/// A type, with its typmod, whose equal values look alike; under a deterministic collation, where it has one.
pub fn has_equal_image(type_oid: Oid, typmod: i32, catalog: &Catalog) -> bool {
    match type_oid {
        // All of one scale, or of one length.
        oid::NUMERIC | oid::BPCHAR => typmod >= 0,
        _ if TYPES.binary_search(&type_oid).is_ok() => true,
        _ => match (oid::array_element(type_oid), catalog.types.get(&type_oid)) {
            (Some(element), _) => TYPES.binary_search(&element).is_ok(),
            (None, Some(of_user)) => of_user.kind == 'e' || (of_user.kind == 'b' && is_of_such(of_user.base, catalog)),
            (None, None) => false,
        },
    }
}

/// The element of an array.
fn is_of_such(element: Oid, catalog: &Catalog) -> bool {
    TYPES.binary_search(&element).is_ok() || catalog.types.get(&element).is_some_and(|element| element.kind == 'e')
}

/// Values of two queries in one column.
pub fn united(a: &ColumnProperties, b: &ColumnProperties) -> bool {
    let is_alone = |properties: &ColumnProperties| matches!(properties.type_oid, oid::NUMERIC | oid::BPCHAR);
    let is_same = a.type_oid == b.type_oid && a.typmod == b.typmod;
    a.has_equal_image && b.has_equal_image && (is_same || !(is_alone(a) || is_alone(b)))
}

/// How values of an expression look.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Image {
    /// Not said yet: NULL, a string, a parameter becomes of the type of what it meets.
    Open,
    Equal,
    /// Among themselves only: `numeric(10, 2)` beside an integer has values of two scales.
    EqualAlone,
    Unequal,
}

impl Reader<'_> {
    /// Values of the expression that are equal look alike, also beside those of other such expressions.
    pub fn output_has_equal_image(&self, value: Node<'_>, frame: &Frame<'_>) -> bool {
        is_small(value) && matches!(self.image(value, frame), Image::Open | Image::Equal)
    }

    /// Values of the expression that are equal look alike.
    pub fn value_has_equal_image(&self, value: Node<'_>, frame: &Frame<'_>) -> bool {
        is_small(value) && self.image(value, frame) != Image::Unequal
    }

    fn image(&self, value: Node<'_>, frame: &Frame<'_>) -> Image {
        let equal_if = |is_equal: bool| if is_equal { Image::Equal } else { Image::Unequal };
        match value {
            Node::ColumnRef(column) => self.known_column(column, frame).map_or(Image::Unequal, |found| image_of(&found)),
            Node::A_Const(constant) => match constant.val() {
                None | Some(ConstValue::String(_)) => Image::Open,
                Some(ConstValue::Float(_)) => Image::EqualAlone,
                Some(_) => Image::Equal,
            },
            Node::ParamRef(_) => Image::Open,
            Node::TypeCast(cast) => match self.cast_type(cast) {
                Some(oid::TEXT | oid::VARCHAR) => equal_if(self.compares_bytewise(value, frame)),
                Some(type_oid) => equal_if(has_equal_image(type_oid, -1, &self.context.catalog)),
                None => Image::Unequal,
            },
            Node::BoolExpr(_) | Node::NullTest(_) | Node::BooleanTest(_) | Node::SQLValueFunction(_) => Image::Equal,
            Node::SubLink(sublink) => {
                use nodes::SubLinkType as Type;
                equal_if(matches!(sublink.sub_link_type, Type::EXISTS_SUBLINK | Type::ANY_SUBLINK | Type::ALL_SUBLINK))
            }
            Node::CoalesceExpr(e) => self.image_of_one(e.args().iter(), frame),
            Node::MinMaxExpr(e) => self.image_of_one(e.args().iter(), frame),
            Node::CaseExpr(e) => {
                let results = e.args().iter().map(|when| match when {
                    Node::CaseWhen(when) => when.result(),
                    other => other,
                });
                self.image_of_one(results.chain([e.defresult()]), frame)
            }
            Node::A_ArrayExpr(e) => equal_if(self.image_of_one(e.elements().iter(), frame) == Image::Equal),
            Node::A_Expr(e) => self.image_of_operator(e, frame),
            Node::FuncCall(call) => self.image_of_call(call, frame),
            _ => Image::Unequal,
        }
    }

    /// Of an expression that has the value of one of these.
    fn image_of_one<'n>(&self, values: impl Iterator<Item = Node<'n>>, frame: &Frame<'_>) -> Image {
        let is_null = |value: &Node<'n>| match value {
            Node::None => true,
            Node::A_Const(constant) => constant.val().is_none(),
            _ => false,
        };
        let images: Vec<Image> = values.filter(|value| !is_null(value)).map(|value| self.image(value, frame)).collect();
        match images.as_slice() {
            [] => Image::Open,
            [one] => *one,
            several if several.iter().all(|image| *image == Image::Open) => Image::Open,
            several if several.iter().all(|image| matches!(image, Image::Open | Image::Equal)) => Image::Equal,
            _ => Image::Unequal,
        }
    }

    fn image_of_operator(&self, e: &nodes::A_Expr, frame: &Frame<'_>) -> Image {
        use nodes::A_Expr_Kind as Kind;
        let name = e.name().iter().next_back().and_then(Node::as_str).unwrap_or_default();
        if self.context.catalog.operator_functions.contains_key(name) {
            return Image::Unequal;
        }
        match e.kind {
            Kind::AEXPR_NULLIF => self.image(e.lexpr(), frame),
            Kind::AEXPR_OP => {
                let is_equal = match name {
                    "=" | "<>" | "!=" | "<" | ">" | "<=" | ">=" | "~" | "~*" | "!~" | "!~*" | "~~" | "!~~" | "~~*" | "!~~*" => true,
                    "||" => {
                        let is_such = |side| matches!(self.image(side, frame), Image::Open | Image::Equal);
                        is_such(e.lexpr()) && is_such(e.rexpr()) && self.compares_bytewise(Node::A_Expr(e), frame)
                    }
                    "+" | "-" | "*" | "/" | "%" => self.is_integer(Node::A_Expr(e), frame) || self.is_moved(e, name, frame),
                    _ => false,
                };
                if is_equal { Image::Equal } else { Image::Unequal }
            }
            // IN, LIKE, BETWEEN, IS DISTINCT FROM, = ANY.
            _ => Image::Equal,
        }
    }

    /// Integers, and what is computed of nothing else.
    fn is_integer(&self, value: Node<'_>, frame: &Frame<'_>) -> bool {
        match value {
            Node::ColumnRef(column) => self.known_column(column, frame).is_some_and(|found| is_integer_type(found.type_oid)),
            Node::A_Const(constant) => matches!(constant.val(), Some(ConstValue::Integer(_))),
            Node::TypeCast(cast) => self.cast_type(cast).is_some_and(is_integer_type),
            Node::A_Expr(e) if e.kind == nodes::A_Expr_Kind::AEXPR_OP => {
                let is_arithmetic = matches!(tree::single_name(e.name()), Some(name @ ("+" | "-" | "*" | "/" | "%"))
                    if !self.context.catalog.operator_functions.contains_key(name));
                let is_such = |side: Node<'_>| matches!(side, Node::None | Node::ParamRef(_)) || self.is_integer(side, frame);
                let is_certain = [e.lexpr(), e.rexpr()].iter().any(|side| !matches!(side, Node::None | Node::ParamRef(_)));
                is_arithmetic && is_certain && is_such(e.lexpr()) && is_such(e.rexpr())
            }
            Node::FuncCall(call) => match self.catalog_function(call, frame) {
                Some("abs" | "mod") => call.args().iter().all(|argument| self.is_integer(argument, frame)),
                Some(name) => INTEGER_FUNCTIONS.contains(&name),
                None => false,
            },
            _ => false,
        }
    }

    /// A date or a time, and what is some time before or after it; or the days between dates.
    fn is_moved(&self, e: &nodes::A_Expr, name: &str, frame: &Frame<'_>) -> bool {
        let moment = |side| self.moment(side, frame);
        match (name, moment(e.lexpr()), moment(e.rexpr())) {
            ("-", Some(oid::DATE), Some(oid::DATE)) => true,
            // A string may be a moment, too.
            ("+" | "-", Some(_), None) => {
                !matches!(e.rexpr(), Node::A_Const(_) | Node::ParamRef(_)) || self.is_integer(e.rexpr(), frame)
            }
            _ => false,
        }
    }

    fn moment(&self, value: Node<'_>, frame: &Frame<'_>) -> Option<Oid> {
        let type_oid = match value {
            Node::ColumnRef(column) => self.known_column(column, frame)?.type_oid,
            Node::TypeCast(cast) => self.cast_type(cast)?,
            _ => return None,
        };
        matches!(type_oid, oid::DATE | oid::TIMESTAMP | oid::TIMESTAMPTZ).then_some(type_oid)
    }

    fn image_of_call(&self, call: &nodes::FuncCall, frame: &Frame<'_>) -> Image {
        let (Some(name), first) = (self.catalog_function(call, frame), call.args().first()) else { return Image::Unequal };
        let is_equal = match name {
            "min" | "max" | "any_value" | "first_value" | "last_value" | "nth_value" | "lag" | "lead" => {
                return first.filter(|_| call.args().len() < 3).map_or(Image::Unequal, |first| self.image(first, frame));
            }
            "sum" => first.is_some_and(|first| self.is_integer(first, frame)),
            "date_trunc" => call.args().get(1).is_some_and(|moment| self.moment(moment, frame).is_some()),
            // A number of one scale for one field. Where the field is a string, the next text of this form may have another.
            "extract" => first.is_some_and(|first| match first {
                Node::A_Const(field) => {
                    matches!(field.val(), Some(ConstValue::String(name)) if FIELDS.contains(&name))
                        && self.literal_at(field.location).is_none()
                }
                _ => false,
            }),
            "bool_and" | "bool_or" | "every" | "row_number" | "rank" | "dense_rank" | "ntile" => true,
            _ if TEXT_FUNCTIONS.contains(&name) => self.compares_bytewise(Node::FuncCall(call), frame),
            _ => self.is_integer(Node::FuncCall(call), frame),
        };
        if is_equal { Image::Equal } else { Image::Unequal }
    }

    fn known_column(&self, column: &nodes::ColumnRef, frame: &Frame<'_>) -> Option<ColumnProperties> {
        match frame.resolve(&tree::names(column.fields())?, &self.leaves) {
            Resolution::Column(column) => Some(self.properties(column)),
            Resolution::Unknown => None,
        }
    }

    /// An aggregate of PostgreSQL that makes the same of the same values in any order.
    pub fn is_orderless(&self, call: &nodes::FuncCall, frame: &Frame<'_>) -> bool {
        let names = tree::names(call.funcname()).unwrap_or_default();
        let name = match names.as_slice() {
            [name] | ["pg_catalog", name] => *name,
            _ => return false,
        };
        if !catalog_functions::is_aggregate(name) || self.may_be_aggregate_of_user(call, frame) {
            return false;
        }
        let (arguments, sorted) = (|| call.args().iter(), || call.agg_order().iter().map(nodes::SortBy::node));
        let is_equal = |value| self.value_has_equal_image(value, frame);
        let is_exact = |value| self.is_exact(value, frame);
        match name {
            "count" | "bool_and" | "bool_or" | "every" | "bit_and" | "bit_or" | "bit_xor" | "regr_count" => true,
            "rank" | "dense_rank" | "percent_rank" | "cume_dist" => true,
            "mode" | "percentile_disc" => sorted().all(is_equal),
            "percentile_cont" => sorted().all(is_equal) || sorted().all(is_exact),
            "min" | "max" | "range_agg" | "range_intersect_agg" => arguments().all(is_equal),
            "sum" | "avg" | "stddev" | "stddev_pop" | "stddev_samp" | "variance" | "var_pop" | "var_samp" => {
                arguments().all(is_exact) && (!call.agg_distinct || arguments().all(is_equal))
            }
            // In the order of their values.
            _ => call.agg_distinct && arguments().all(is_equal),
        }
    }

    /// Sums of it are the same in any order: nothing in it is a floating-point number.
    fn is_exact(&self, value: Node<'_>, frame: &Frame<'_>) -> bool {
        let mut is_exact = true;
        tree::walk(value, &mut |node| {
            is_exact &= match node {
                Node::ColumnRef(column) => {
                    self.known_column(column, frame).is_some_and(|found| found.has_equal_image || EXACT.contains(&found.type_oid))
                }
                Node::TypeCast(cast) => self.cast_type(cast).is_some_and(|found| found == oid::NUMERIC || is_integer_type(found)),
                Node::A_Expr(e) => {
                    let name = e.name().iter().next_back().and_then(Node::as_str).unwrap_or_default();
                    // Of integers a power is a floating-point number.
                    name != "^" && !self.context.catalog.operator_functions.contains_key(name)
                }
                Node::FuncCall(call) => self
                    .catalog_function(call, frame)
                    .is_some_and(|name| EXACT_FUNCTIONS.contains(&name) || INTEGER_FUNCTIONS.contains(&name)),
                Node::SubLink(_) => false,
                other => tree::is_known(other),
            };
            is_exact
        });
        is_exact
    }
}

/// What is larger is not looked into: each operator of it is a recursion.
pub(super) fn is_small(value: Node<'_>) -> bool {
    const NODES_MAX: usize = 200;
    let mut count = 0;
    tree::walk(value, &mut |_| {
        count += 1;
        count <= NODES_MAX
    });
    count <= NODES_MAX
}

fn image_of(properties: &ColumnProperties) -> Image {
    match properties.type_oid {
        _ if !properties.has_equal_image => Image::Unequal,
        oid::NUMERIC | oid::BPCHAR => Image::EqualAlone,
        _ => Image::Equal,
    }
}

fn is_integer_type(type_oid: Oid) -> bool {
    matches!(type_oid, oid::INT2 | oid::INT4 | oid::INT8)
}

/// Types of PostgreSQL whose equal values look alike, sorted: booleans, bytes, numbers without a scale, text, names of objects,
/// addresses, dates and times, bits, and ranges of these.
const TYPES: [Oid; 46] = [
    16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 27, 28, 29, 650, 774, 790, 829, 869, 1043, 1082, 1083, 1114, 1184, 1266, 1560, 1562,
    2202, 2203, 2204, 2205, 2206, 2950, 3220, 3614, 3734, 3769, 3904, 3908, 3910, 3912, 3926, 4089, 4096, 4191, 4451, 5069,
];
/// Of those of which equal values need not look alike: numeric and interval, whose sums are the same in any order.
const EXACT: [Oid; 2] = [oid::NUMERIC, 1186];
/// Fields of a date or a time that are whole numbers.
const FIELDS: [&str; 11] = ["century", "day", "decade", "dow", "doy", "hour", "isodow", "minute", "month", "quarter", "year"];
const INTEGER_FUNCTIONS: [&str; 10] = [
    "length",
    "char_length",
    "character_length",
    "octet_length",
    "bit_length",
    "strpos",
    "position",
    "ascii",
    "cardinality",
    "count",
];
const EXACT_FUNCTIONS: [&str; 13] =
    ["abs", "round", "floor", "ceil", "ceiling", "trunc", "mod", "div", "sign", "extract", "sum", "min", "max"];
/// Functions whose result is text.
const TEXT_FUNCTIONS: [&str; 21] = [
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
    "split_part",
    "concat",
    "concat_ws",
    "regexp_replace",
    "to_char",
    "md5",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_types_is_sorted() {
        assert!(TYPES.is_sorted());
        for unlike in [700, 701, 1186, 3802, 3906] {
            assert!(TYPES.binary_search(&unlike).is_err(), "{unlike}");
        }
    }
}
