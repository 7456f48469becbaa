//! LIMIT, OFFSET and FETCH FIRST over several shards: each shard gives as many rows as could be needed, the proxy cuts.
//!
//! An integer literal or a parameter is known to the proxy. Any other expression is computed by the shards, whose rows carry its
//! value in a hidden column; where the clause itself goes from what a shard runs, a sub-select of no rows keeps it there, so that
//! a value PostgreSQL refuses is refused in its words.

use std::ops::Range;

use pg_raw_parse::{ConstValue, Node, nodes};

use super::bind::Reader;
use super::merge::Assembly;
use crate::error::PgError;
use crate::sql::analysis::Count;

/// The clauses of one query.
#[derive(Debug, Default)]
pub struct Limits {
    limit: Option<Found>,
    offset: Option<Found>,
    pub has_ties: bool,
}

#[derive(Debug)]
struct Found {
    value: FoundValue,
    /// In the text; empty where FETCH FIRST ROW leaves the number out.
    range: Range<usize>,
}

#[derive(Debug)]
enum FoundValue {
    Known(Count),
    Expression,
}

impl Reader<'_> {
    pub fn limits(&self, select: &nodes::SelectStmt) -> Result<Limits, PgError> {
        let ranges = self.outline.as_ref();
        Ok(Limits {
            limit: self.count(select.limit_count(), ranges.and_then(|outline| outline.limit.clone()))?,
            offset: self.count(select.limit_offset(), ranges.and_then(|outline| outline.offset.clone()))?,
            has_ties: select.limit_option == nodes::LimitOption::LIMIT_OPTION_WITH_TIES,
        })
    }

    fn count(&self, node: Node<'_>, range: Option<Range<usize>>) -> Result<Option<Found>, PgError> {
        let known = |value: Count, range: Range<usize>| Ok(Some(Found { value: FoundValue::Known(value), range }));
        match node {
            Node::None => return Ok(None),
            Node::A_Const(constant) if constant.isnull => return Ok(None),
            // FETCH FIRST ROW.
            Node::A_Const(constant) if constant.location < 0 => {
                return known(Count::Constant(1), range.filter(Range::is_empty).ok_or_else(unknown_count)?);
            }
            Node::A_Const(constant) => {
                let is_count = match constant.val() {
                    Some(ConstValue::Integer(value)) => value >= 0,
                    Some(ConstValue::Float(text)) => text.parse::<i64>().is_ok_and(|value| value >= 0),
                    _ => false,
                };
                if let Some((ordinal, false)) = self.literal_at(constant.location)
                    && let (Some(literal), Ok(number)) = (self.literals.get(ordinal), u32::try_from(ordinal))
                    && is_count
                {
                    return known(Count::Literal(number), literal.start as usize..literal.end as usize);
                }
            }
            Node::ParamRef(parameter) => {
                if let (Some(range), Ok(number)) = (range.clone(), u16::try_from(parameter.number)) {
                    return known(Count::Parameter(number), range);
                }
            }
            _ => {}
        }
        range.map(|range| Some(Found { value: FoundValue::Expression, range })).ok_or_else(unknown_count)
    }

    fn constant_of(&self, found: &Found) -> Option<u64> {
        match &found.value {
            FoundValue::Known(Count::Constant(value)) => Some(*value),
            FoundValue::Known(Count::Literal(ordinal)) => self.literals.get(*ordinal as usize)?.value(self.text)?.parse().ok(),
            FoundValue::Known(Count::Parameter(_) | Count::Column(_)) | FoundValue::Expression => None,
        }
    }

    fn text_of(&self, found: &Found) -> &str {
        match &found.value {
            FoundValue::Known(Count::Constant(_)) => "1",
            _ => self.text.get(found.range.clone()).unwrap_or_default(),
        }
    }

    /// The clauses stay in what the shards run, which sort and cut by themselves.
    pub fn keep_limits(&self, limits: &Limits, assembly: &mut Assembly) {
        self.count_rows(limits, assembly);
        let Some(offset) = &limits.offset else { return };
        // The shards must not skip rows: the proxy does, and each of them gives up to LIMIT + OFFSET.
        let nothing = self.check(limits).unwrap_or_else(|| "0".to_owned());
        assembly.splice(offset.range.clone(), nothing);
        if let Some(limit) = &limits.limit {
            let text = match (self.constant_of(limit), self.constant_of(offset)) {
                (Some(limit), Some(offset)) => limit.saturating_add(offset).min(i64::MAX.unsigned_abs()).to_string(),
                _ => format!(
                    "(LEAST(({})::pg_catalog.int8::pg_catalog.numeric + COALESCE(({})::pg_catalog.int8, 0), 9223372036854775807)::pg_catalog.int8)",
                    self.text_of(limit),
                    self.text_of(offset),
                ),
            };
            let text = if limit.range.is_empty() { format!("{text} ") } else { text };
            assembly.splice(limit.range.clone(), text);
        }
    }

    /// The clauses go from what the shards run; what takes their place there.
    pub fn drop_limits(&self, limits: &Limits, assembly: &mut Assembly) -> String {
        self.count_rows(limits, assembly);
        self.check(limits).map_or_else(String::new, |nothing| format!(" OFFSET {nothing}"))
    }

    /// What the proxy counts by.
    fn count_rows(&self, limits: &Limits, assembly: &mut Assembly) {
        let mut counted = |found: &Option<Found>| {
            found.as_ref().map(|found| match &found.value {
                FoundValue::Known(count) => count.clone(),
                FoundValue::Expression => Count::Column(assembly.hide(format!("({})::pg_catalog.int8", self.text_of(found)))),
            })
        };
        let (limit, offset) = (counted(&limits.limit), counted(&limits.offset));
        assembly.merge.limit = limit;
        assembly.merge.offset = offset;
        assembly.merge.has_ties = limits.has_ties;
    }

    /// Zero, once PostgreSQL has looked at the expressions; `None` where the proxy does that.
    fn check(&self, limits: &Limits) -> Option<String> {
        let is_expression = |found: &&Found| matches!(found.value, FoundValue::Expression);
        let (limit, offset) = (limits.limit.as_ref(), limits.offset.as_ref());
        limit.filter(is_expression).or(offset.filter(is_expression))?;
        let clause = |name: &str, found: Option<&Found>| {
            found.map_or_else(String::new, |found| format!(" {name} ({})", self.text_of(found)))
        };
        Some(format!("COALESCE((SELECT 0{}{}), 0)", clause("OFFSET", offset), clause("LIMIT", limit)))
    }
}

fn unknown_count() -> PgError {
    PgError::unsupported(
        "this LIMIT or OFFSET is not supported across shards",
        "It is neither an integer nor a parameter, and stands where the proxy cannot take it out of the text.",
        "Compute the number first and pass it.",
    )
}
