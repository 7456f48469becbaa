//! From a boolean expression of the parse tree to a [`Predicate`]: only what is proven, everything else is unknown.
//!
//! Comparisons count when the operator is `pg_catalog`'s, one side is a column (or a key function of one) with deterministic
//! equality and the other a constant, a parameter or such a column. COLLATE, arithmetic and casts of columns prove nothing.

use pg_raw_parse::list::NodeList;
use pg_raw_parse::{ConstValue, Node, nodes};

use super::bind::Reader;
use super::leaves;
use super::scope::{Frame, Resolution};
use super::{Predicate, Term};
use crate::shard_key::{FunctionArgument, KeyFunction, KeyType, Oid, oid};
use crate::sql::analysis::{Comparison, KeyValue, Test};
use crate::sql::parse::lexer::LiteralClass;
use crate::sql::parse::tree;

/// AND, OR and NOT nest no deeper; beyond, nothing is proven.
const DEPTH_MAX: usize = 48;

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    Term(Term, KeyType),
    Value(KeyValue),
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    Compare(Comparison),
}

impl Reader<'_> {
    pub fn lower(&mut self, node: Node<'_>, frame: &Frame<'_>, depth: usize) -> Predicate {
        if depth > DEPTH_MAX {
            return Predicate::Unknown;
        }
        match node {
            Node::BoolExpr(e) => match e.boolop {
                nodes::BoolExprType::AND_EXPR => {
                    Predicate::And(e.args().iter().map(|argument| self.lower(argument, frame, depth + 1)).collect())
                }
                nodes::BoolExprType::OR_EXPR => {
                    Predicate::Or(e.args().iter().map(|argument| self.lower(argument, frame, depth + 1)).collect())
                }
                _ => match e.args().first() {
                    Some(argument) if e.args().len() == 1 => self.boolean(argument, frame, false),
                    _ => Predicate::Unknown,
                },
            },
            Node::ColumnRef(_) => self.boolean(node, frame, true),
            Node::BooleanTest(e) => match e.booltesttype {
                nodes::BoolTestType::IS_TRUE => self.boolean(e.arg(), frame, true),
                nodes::BoolTestType::IS_FALSE => self.boolean(e.arg(), frame, false),
                _ => Predicate::Unknown,
            },
            Node::A_Const(e) => match e.val() {
                _ if e.isnull => Predicate::False,
                Some(ConstValue::Boolean(false)) => Predicate::False,
                _ => Predicate::Unknown,
            },
            Node::A_Expr(e) => self.comparison(e, frame),
            _ => Predicate::Unknown,
        }
    }

    /// A column of type boolean as a condition.
    fn boolean(&mut self, node: Node<'_>, frame: &Frame<'_>, value: bool) -> Predicate {
        if !matches!(node, Node::ColumnRef(_)) {
            return Predicate::Unknown;
        }
        match self.operand(node, frame) {
            Operand::Term(term, KeyType::Bool) => {
                Predicate::Test { term, term_type: KeyType::Bool, test: Test::Equals(KeyValue::Bool(value)) }
            }
            _ => Predicate::Unknown,
        }
    }

    fn comparison(&mut self, e: &nodes::A_Expr, frame: &Frame<'_>) -> Predicate {
        use nodes::A_Expr_Kind as Kind;
        match e.kind {
            Kind::AEXPR_OP => match self.operator(e.name()) {
                Some(operator) => self.compare(e.lexpr(), operator, e.rexpr(), frame),
                None => Predicate::Unknown,
            },
            Kind::AEXPR_IN if tree::single_name(e.name()) == Some("=") && self.operators_are_plain() => {
                match e.rexpr().as_node_list() {
                    Some(list) => self.in_list(e.lexpr(), list, frame),
                    None => Predicate::Unknown,
                }
            }
            Kind::AEXPR_OP_ANY if self.operator(e.name()) == Some(Operator::Equal) => self.equals_any(e.lexpr(), e.rexpr(), frame),
            Kind::AEXPR_BETWEEN if self.operators_are_plain() => match e.rexpr().as_node_list() {
                Some(bounds) if bounds.len() == 2 => {
                    let compare = |reader: &mut Self, bound: Option<Node<'_>>, comparison| match bound {
                        Some(bound) => reader.compare(e.lexpr(), Operator::Compare(comparison), bound, frame),
                        None => Predicate::Unknown,
                    };
                    let low = compare(self, bounds.get(0), Comparison::GreaterOrEqual);
                    let high = compare(self, bounds.get(1), Comparison::LessOrEqual);
                    Predicate::And(vec![low, high])
                }
                _ => Predicate::Unknown,
            },
            // Unlike `=`, true of two NULLs: only a literal is certain not to be one.
            Kind::AEXPR_NOT_DISTINCT if self.operators_are_plain() => {
                match (self.operand(e.lexpr(), frame), self.operand(e.rexpr(), frame)) {
                    (Operand::Term(term, term_type), Operand::Value(value @ (KeyValue::Literal { .. } | KeyValue::Bool(_))))
                    | (Operand::Value(value @ (KeyValue::Literal { .. } | KeyValue::Bool(_))), Operand::Term(term, term_type)) => {
                        Predicate::Test { term, term_type, test: Test::Equals(value) }
                    }
                    _ => Predicate::Unknown,
                }
            }
            _ => Predicate::Unknown,
        }
    }

    fn compare(&mut self, left: Node<'_>, operator: Operator, right: Node<'_>, frame: &Frame<'_>) -> Predicate {
        if let (Node::RowExpr(left), Node::RowExpr(right)) = (left, right) {
            return self.compare_rows(left.args(), operator, right.args(), frame);
        }
        let (left, right) = (self.operand(left, frame), self.operand(right, frame));
        combine(left, operator, right)
    }

    fn compare_rows(&mut self, left: &NodeList, operator: Operator, right: &NodeList, frame: &Frame<'_>) -> Predicate {
        // `t.*` in a row is several columns: what stands at which place is not known.
        if left.len() != right.len() || left.iter().chain(right).any(is_star) {
            return Predicate::Unknown;
        }
        let mut pairs = left.iter().zip(right.iter());
        match operator {
            Operator::Equal => {
                Predicate::And(pairs.map(|(left, right)| self.compare(left, Operator::Equal, right, frame)).collect())
            }
            // (a, b) > (1, 2) says of a that it is at least 1.
            Operator::Compare(comparison) => match pairs.next() {
                Some((left, right)) if !matches!((left, right), (Node::RowExpr(_), _)) => {
                    let (left, right) = (self.operand(left, frame), self.operand(right, frame));
                    combine(left, Operator::Compare(or_equal(comparison)), right)
                }
                _ => Predicate::Unknown,
            },
        }
    }

    fn in_list(&mut self, left: Node<'_>, list: &NodeList, frame: &Frame<'_>) -> Predicate {
        if let Node::RowExpr(_) = left {
            return Predicate::Or(list.iter().map(|row| self.compare(left, Operator::Equal, row, frame)).collect());
        }
        match self.operand(left, frame) {
            Operand::Term(term, term_type) => {
                let mut values = Vec::with_capacity(list.len());
                for item in list {
                    match self.operand(item, frame) {
                        Operand::Value(value) => values.push(value),
                        Operand::Term(..) | Operand::Other => return self.in_operands(term, term_type, list, frame),
                    }
                }
                Predicate::Test { term, term_type, test: Test::In(values) }
            }
            // 1 IN (a.k, b.k)
            value @ Operand::Value(_) => Predicate::Or(
                list.iter()
                    .map(|item| {
                        let item = self.operand(item, frame);
                        combine(value.clone(), Operator::Equal, item)
                    })
                    .collect(),
            ),
            Operand::Other => Predicate::Unknown,
        }
    }

    fn in_operands(&mut self, term: Term, term_type: KeyType, list: &NodeList, frame: &Frame<'_>) -> Predicate {
        // The values among them get a common type, which for these may be another than that of each comparison.
        if term_type == KeyType::Bpchar && list.len() > 1 {
            return Predicate::Unknown;
        }
        Predicate::Or(
            list.iter()
                .map(|item| {
                    let item = self.operand(item, frame);
                    combine(Operand::Term(term.clone(), term_type), Operator::Equal, item)
                })
                .collect(),
        )
    }

    fn equals_any(&mut self, left: Node<'_>, right: Node<'_>, frame: &Frame<'_>) -> Predicate {
        let Operand::Term(term, term_type) = self.operand(left, frame) else {
            return Predicate::Unknown;
        };
        let (array, array_type) = match right {
            Node::TypeCast(cast) => match self.cast_type(cast) {
                Some(oid) => (cast.arg(), Some(oid)),
                None => return Predicate::Unknown,
            },
            other => (other, None),
        };
        match (array, array_type) {
            (Node::A_ArrayExpr(array), None) => self.in_list(left, array.elements(), frame),
            (Node::A_ArrayExpr(array), Some(array_type)) => self.in_array(term, term_type, array.elements(), array_type),
            (Node::ParamRef(_) | Node::A_Const(_), _) => match self.value(array, array_type) {
                Some(KeyValue::Null) => Predicate::False,
                Some(value) => Predicate::Test { term, term_type, test: Test::AnyOf(value) },
                None => Predicate::Unknown,
            },
            _ => Predicate::Unknown,
        }
    }

    /// `= ANY (ARRAY[…]::type[])`: each element is cast.
    fn in_array(&mut self, term: Term, term_type: KeyType, elements: &NodeList, array_type: Oid) -> Predicate {
        let element_type = oid::array_element(array_type);
        // An element type of another family changes the comparison.
        if element_type.and_then(KeyType::of_column).is_none_or(|element| !leaves::same_family(element, term_type)) {
            return Predicate::Unknown;
        }
        let values: Option<Vec<KeyValue>> = elements.iter().map(|element| self.value(element, element_type)).collect();
        match values {
            Some(values) => Predicate::Test { term, term_type, test: Test::In(values) },
            None => Predicate::Unknown,
        }
    }

    pub fn operand(&mut self, node: Node<'_>, frame: &Frame<'_>) -> Operand {
        match node {
            Node::ColumnRef(column) => self.column_term(column, frame),
            Node::FuncCall(call) => self.function_term(call, frame),
            // A user's % may take a bigint and an integer, which the catalogue's own does not without a conversion.
            Node::A_Expr(e)
                if e.kind == nodes::A_Expr_Kind::AEXPR_OP
                    && tree::single_name(e.name()) == Some("%")
                    && !self.context.catalog.operator_functions.contains_key("%") =>
            {
                self.key_function("%", [e.lexpr(), e.rexpr()].into_iter(), frame)
            }
            Node::ParamRef(_) | Node::A_Const(_) => self.value(node, None).map_or(Operand::Other, Operand::Value),
            Node::TypeCast(cast) => match (self.cast_type(cast), cast.arg()) {
                (Some(oid), argument @ (Node::ParamRef(_) | Node::A_Const(_))) => {
                    self.value(argument, Some(oid)).map_or(Operand::Other, Operand::Value)
                }
                _ => Operand::Other,
            },
            _ => Operand::Other,
        }
    }

    fn column_term(&mut self, column: &nodes::ColumnRef, frame: &Frame<'_>) -> Operand {
        let Some(path) = tree::names(column.fields()) else {
            return Operand::Other;
        };
        let Resolution::Column(column) = frame.resolve(&path, &self.leaves) else {
            return Operand::Other;
        };
        let properties = self.properties(column);
        match KeyType::of_column(properties.type_oid) {
            Some(key_type) if properties.is_deterministic => Operand::Term(column.into(), key_type),
            _ => Operand::Other,
        }
    }

    /// `right(column, 1)` and its kind, of `pg_catalog`.
    fn function_term(&mut self, call: &nodes::FuncCall, frame: &Frame<'_>) -> Operand {
        let is_plain = !call.agg_distinct
            && !call.agg_star
            && !call.func_variadic
            && !call.agg_within_group
            && call.over().is_none()
            && call.agg_order().is_empty()
            && matches!(call.agg_filter(), Node::None);
        match self.catalog_function(call, frame) {
            Some(name) if is_plain => self.key_function(name, call.args().iter(), frame),
            _ => Operand::Other,
        }
    }

    /// A function of one column and constants, whose values decide the reading: texts that differ in them do not share it.
    fn key_function<'n>(&mut self, name: &str, arguments: impl Iterator<Item = Node<'n>>, frame: &Frame<'_>) -> Operand {
        let mut column = None;
        let mut read = Vec::new();
        let mut locations = Vec::new();
        for argument in arguments {
            match argument {
                Node::ColumnRef(reference) if column.is_none() => {
                    column = Some(reference);
                    read.push(FunctionArgument::Column);
                }
                Node::A_Const(constant) => {
                    locations.push(constant.location);
                    match constant.val() {
                        Some(ConstValue::Integer(value)) => read.push(FunctionArgument::Integer(i64::from(value))),
                        Some(ConstValue::String(text)) => read.push(FunctionArgument::Text(text)),
                        _ => return Operand::Other,
                    }
                }
                _ => return Operand::Other,
            }
        }
        let (Some(column), Some(function)) = (column, KeyFunction::from_call(name, &read)) else {
            return Operand::Other;
        };
        let Operand::Term(term, column_type) = self.column_term(column, frame) else {
            return Operand::Other;
        };
        let Some(result_type) = function.result_type(column_type) else {
            return Operand::Other;
        };
        for location in locations {
            self.fix_literal(location);
        }
        Operand::Term(Term { function: Some(function), ..term }, result_type)
    }

    /// A constant or parameter; `cast`: the type that it is cast to.
    pub fn value(&mut self, node: Node<'_>, cast: Option<Oid>) -> Option<KeyValue> {
        match node {
            Node::ParamRef(parameter) => Some(KeyValue::Parameter { number: u16::try_from(parameter.number).ok()?, cast }),
            // In a list, a NULL of this type makes PostgreSQL compare timestamps by the session's TimeZone.
            Node::A_Const(constant) if constant.isnull && cast == Some(oid::TIMESTAMPTZ) => None,
            Node::A_Const(constant) if constant.isnull => Some(KeyValue::Null),
            Node::A_Const(constant) => match constant.val()? {
                ConstValue::Boolean(value) => (cast.is_none() || cast == Some(oid::BOOL)).then_some(KeyValue::Bool(value)),
                ConstValue::BitString(_) => None,
                value if self.is_in_view() => view_constant(value, cast),
                _ => self.literal(constant.location, cast),
            },
            _ => None,
        }
    }

    fn literal(&mut self, location: i32, cast: Option<Oid>) -> Option<KeyValue> {
        let (ordinal, negative) = self.literal_at(location)?;
        let class = self.literals.get(ordinal)?.class;
        if class == LiteralClass::Other || !cast_is_exact(class, cast) {
            return None;
        }
        Some(KeyValue::Literal { ordinal: u32::try_from(ordinal).ok()?, negative, cast })
    }

    /// The type of a cast without a length, precision or array bound, if it is one that keys can be compared with.
    pub fn cast_type(&self, cast: &nodes::TypeCast) -> Option<Oid> {
        self.named_type(cast.type_name().filter(|name| name.typmods().is_empty())?)
    }

    /// The type of a name, with a length or precision or without, if it is one that keys can be compared with.
    pub fn named_type(&self, name: &nodes::TypeName) -> Option<Oid> {
        if name.setof || name.pct_type {
            return None;
        }
        let names: Vec<&str> = name.names().iter().filter_map(|part| part.sval()).collect();
        let oid = match names.as_slice() {
            ["pg_catalog", type_name] => builtin_type(type_name)?,
            // An unqualified name may be hidden by a user's type only when pg_catalog is named later in the path.
            [type_name] if !self.search_path.iter().any(|schema| schema == "pg_catalog") => builtin_type(type_name)?,
            _ => return None,
        };
        match name.array_bounds().len() {
            0 => Some(oid),
            1 => builtin_array(oid),
            _ => None,
        }
    }

    fn operator(&self, name: &NodeList) -> Option<Operator> {
        let names = tree::names(name)?;
        let symbol = match names.as_slice() {
            ["pg_catalog", symbol] => symbol,
            [symbol] if self.operators_are_plain() => symbol,
            _ => return None,
        };
        Some(match *symbol {
            "=" => Operator::Equal,
            "<" => Operator::Compare(Comparison::Less),
            "<=" => Operator::Compare(Comparison::LessOrEqual),
            ">" => Operator::Compare(Comparison::Greater),
            ">=" => Operator::Compare(Comparison::GreaterOrEqual),
            _ => return None,
        })
    }

    pub fn operators_are_plain(&self) -> bool {
        self.context.has_plain_operators(&self.search_path)
    }
}

fn combine(left: Operand, operator: Operator, right: Operand) -> Predicate {
    match (left, operator, right) {
        (Operand::Value(value), Operator::Equal, term @ Operand::Term(..)) => combine(term, Operator::Equal, Operand::Value(value)),
        (Operand::Value(value), Operator::Compare(comparison), term @ Operand::Term(..)) => {
            combine(term, Operator::Compare(mirrored(comparison)), Operand::Value(value))
        }
        (Operand::Term(..), _, Operand::Value(KeyValue::Null)) => Predicate::False,
        (Operand::Term(term, term_type), Operator::Equal, Operand::Value(value)) => {
            Predicate::Test { term, term_type, test: Test::Equals(value) }
        }
        (Operand::Term(term, term_type), Operator::Compare(comparison), Operand::Value(value)) => {
            Predicate::Test { term, term_type, test: Test::Compare(comparison, value) }
        }
        (Operand::Term(left, left_type), Operator::Equal, Operand::Term(right, right_type))
            if leaves::same_family(left_type, right_type) =>
        {
            Predicate::Same(left, right)
        }
        _ => Predicate::Unknown,
    }
}

/// `*`, `t.*` or `(expression).*`.
pub fn is_star(node: Node<'_>) -> bool {
    let last = match node {
        Node::ColumnRef(column) => column.fields().iter().next_back(),
        Node::A_Indirection(indirection) => indirection.indirection().iter().next_back(),
        _ => None,
    };
    matches!(last, Some(Node::A_Star(_)))
}

fn mirrored(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Less => Comparison::Greater,
        Comparison::LessOrEqual => Comparison::GreaterOrEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::LessOrEqual,
    }
}

fn or_equal(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Less | Comparison::LessOrEqual => Comparison::LessOrEqual,
        Comparison::Greater | Comparison::GreaterOrEqual => Comparison::GreaterOrEqual,
    }
}

fn view_constant(value: ConstValue<'_>, cast: Option<Oid>) -> Option<KeyValue> {
    let class = match value {
        ConstValue::Integer(_) => LiteralClass::Integer,
        ConstValue::Float(text) if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') => match text.parse::<i64>() {
            Ok(_) => LiteralClass::BigInteger,
            Err(_) => LiteralClass::Numeric,
        },
        ConstValue::Float(text) if text.bytes().all(|byte| b"0123456789.eE+-".contains(&byte)) => LiteralClass::Numeric,
        ConstValue::String(_) => LiteralClass::String,
        _ => return None,
    };
    cast_is_exact(class, cast).then(|| KeyValue::Constant { text: value.to_string(), oid: cast.unwrap_or(class.type_oid()) })
}

/// Whether a cast of a constant leaves its value as written: PostgreSQL rounds 1.5::int and cuts nothing else among these.
fn cast_is_exact(class: LiteralClass, cast: Option<Oid>) -> bool {
    let Some(cast) = cast else {
        return true;
    };
    match class {
        LiteralClass::String => true,
        LiteralClass::Integer | LiteralClass::BigInteger => {
            matches!(cast, oid::INT2 | oid::INT4 | oid::INT8 | oid::NUMERIC)
        }
        LiteralClass::Numeric => cast == oid::NUMERIC,
        LiteralClass::Other => false,
    }
}

fn builtin_type(name: &str) -> Option<Oid> {
    Some(match name {
        "bool" | "boolean" => oid::BOOL,
        "bytea" => oid::BYTEA,
        "int8" | "bigint" => oid::INT8,
        "int2" | "smallint" => oid::INT2,
        "int4" | "int" | "integer" => oid::INT4,
        "text" => oid::TEXT,
        "bpchar" => oid::BPCHAR,
        "varchar" => oid::VARCHAR,
        "date" => oid::DATE,
        "timestamp" => oid::TIMESTAMP,
        "timestamptz" => oid::TIMESTAMPTZ,
        "numeric" => oid::NUMERIC,
        "uuid" => oid::UUID,
        _ => return None,
    })
}

/// The arrays that PostgreSQL's own types have.
const ARRAYS: [Oid; 14] = [1000, 1001, 1003, 1005, 1007, 1009, 1014, 1015, 1016, 1115, 1182, 1185, 1231, 2951];

fn builtin_array(element: Oid) -> Option<Oid> {
    ARRAYS.into_iter().find(|array| oid::array_element(*array) == Some(element))
}
