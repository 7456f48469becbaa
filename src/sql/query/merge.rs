//! How the answers of several shards to a SELECT become one: order, LIMIT and OFFSET.

use pg_raw_parse::{ConstValue, Node, nodes};

use super::bind::Reader;
use super::{Body, Bound, Distinct, Grouping, OrderBy};
use crate::error::PgError;
use crate::sql::analysis::{Count, Fragment, Merge, SortKey, Splice};
use crate::sql::lexer::{self, TokenKind};

impl Reader<'_> {
    /// The merge of the outermost query; an error names what the proxy cannot merge.
    pub fn merge(&mut self, select: &nodes::SelectStmt, bound: &Bound) -> Result<Merge, PgError> {
        let mut merge = Merge::default();
        let mut splices = Vec::new();
        let mut hidden = Vec::new();
        let output_count = bound.outputs.len();
        for item in &bound.order {
            let column = match &item.by {
                OrderBy::Output(index) if bound.is_complete || self.is_before_star(select, *index) => *index,
                OrderBy::Hidden(sql) if bound.is_complete && self.takes_hidden_columns(bound) => {
                    hidden.push(sql.clone());
                    output_count + hidden.len() - 1
                }
                OrderBy::Output(_) | OrderBy::Hidden(_) | OrderBy::Other => return Err(unknown_order()),
            };
            merge.order_by.push(SortKey {
                column,
                is_descending: item.is_descending,
                is_nulls_first: item.is_nulls_first,
                is_bytewise: item.is_bytewise,
            });
        }
        if !hidden.is_empty() {
            let end = self.select_list_end(select).ok_or_else(unknown_order)?;
            splices.push(Splice { start: end, end, text: format!(", {} ", hidden.join(", ")) });
            merge.hidden_columns = hidden.len();
        }
        self.limits(select, &mut merge, &mut splices)?;
        if !splices.is_empty() {
            // Offsets of this text only.
            self.notes.is_bound_to_text = true;
            splices.sort_by_key(|splice| splice.start);
            merge.fragment = Some(Fragment { splices });
        }
        Ok(merge)
    }

    /// The output's position is certain although a later `*` is not known.
    fn is_before_star(&self, select: &nodes::SelectStmt, index: usize) -> bool {
        let is_star = |target: &nodes::ResTarget| matches!(target.val(), Node::ColumnRef(column) if matches!(column.fields().iter().next_back(), Some(Node::A_Star(_))));
        select.target_list().iter().position(is_star).is_none_or(|star| index < star)
    }

    /// A column can be added to the select list without changing the rows.
    fn takes_hidden_columns(&self, bound: &Bound) -> bool {
        match &bound.body {
            Body::Block(block) => {
                matches!(block.distinct, Distinct::None) && matches!(block.grouping, Grouping::None | Grouping::By(_))
            }
            Body::SetOperation { .. }
            | Body::Values { .. }
            | Body::Recursive { .. }
            | Body::Modification { .. }
            | Body::SelfReference => false,
        }
    }

    /// Where the select list ends: before the FROM of this level.
    fn select_list_end(&self, select: &nodes::SelectStmt) -> Option<usize> {
        let last = select.target_list().iter().map(|target| target.location).max()?;
        let start = usize::try_from(last).ok()?;
        let mut depth = 0usize;
        let mut previous = "";
        for token in lexer::tokens(self.text.get(start..)?) {
            let piece = self.text.get(start + token.start..start + token.end)?;
            match (token.kind, piece) {
                (TokenKind::Symbol, "(" | "[") => depth += 1,
                (TokenKind::Symbol, ")" | "]") => depth = depth.checked_sub(1)?,
                (TokenKind::Word, word)
                    if depth == 0 && word.eq_ignore_ascii_case("from")
                    // IS DISTINCT FROM
                    && !previous.eq_ignore_ascii_case("distinct") =>
                {
                    return Some(start + token.start);
                }
                _ => {}
            }
            if token.kind != TokenKind::Comment {
                previous = piece;
            }
        }
        None
    }

    fn limits(&mut self, select: &nodes::SelectStmt, merge: &mut Merge, splices: &mut Vec<Splice>) -> Result<(), PgError> {
        if select.limit_option == nodes::LimitOption::LIMIT_OPTION_WITH_TIES {
            return Err(PgError::unsupported(
                "FETCH FIRST ... WITH TIES is not supported across shards",
                "Which rows tie is known only when the rows of all shards are together.",
                "Use ONLY, or restrict the statement to one shard key.",
            ));
        }
        let limit = self.count(select.limit_count())?;
        let offset = self.count(select.limit_offset())?;
        merge.limit = limit.as_ref().map(|limit| limit.count.clone());
        merge.offset = offset.as_ref().map(|offset| offset.count.clone());
        let Some(offset) = offset else {
            return Ok(());
        };
        // The shards must not skip rows: the proxy does, and each of them gives up to LIMIT + OFFSET.
        splices.push(Splice { start: offset.start, end: offset.end, text: "0".to_owned() });
        if let Some(limit) = limit {
            let text = match (self.constant_of(&limit), self.constant_of(&offset)) {
                (Some(limit), Some(offset)) => limit.saturating_add(offset).min(i64::MAX.unsigned_abs()).to_string(),
                _ => format!(
                    "LEAST(({})::int8::numeric + COALESCE(({})::int8, 0), 9223372036854775807)::int8",
                    self.text.get(limit.start..limit.end).unwrap_or_default(),
                    self.text.get(offset.start..offset.end).unwrap_or_default(),
                ),
            };
            splices.push(Splice { start: limit.start, end: limit.end, text });
        }
        // The numbers are in the splices: another text of this shape has others.
        self.notes.is_bound_to_text = true;
        Ok(())
    }

    fn constant_of(&self, found: &FoundCount) -> Option<u64> {
        match found.count {
            Count::Constant(value) => Some(value),
            Count::Literal(ordinal) => self.literals.get(usize::from(ordinal))?.value(self.text)?.parse().ok(),
            Count::Parameter(_) => None,
        }
    }

    /// LIMIT or OFFSET: nothing, an integer literal, or a parameter.
    fn count(&mut self, node: Node<'_>) -> Result<Option<FoundCount>, PgError> {
        match node {
            Node::None => Ok(None),
            Node::A_Const(constant) if constant.isnull => Ok(None),
            Node::A_Const(constant) => {
                let is_count = match constant.val() {
                    Some(ConstValue::Integer(value)) => value >= 0,
                    Some(ConstValue::Float(text)) => text.parse::<i64>().is_ok_and(|value| value >= 0),
                    _ => false,
                };
                let (ordinal, is_negative) = self.literal_at(constant.location).ok_or_else(unknown_count)?;
                let literal = self.literals.get(ordinal).ok_or_else(unknown_count)?;
                match u16::try_from(ordinal) {
                    Ok(ordinal) if is_count && !is_negative => Ok(Some(FoundCount {
                        count: Count::Literal(ordinal),
                        start: literal.start as usize,
                        end: literal.end as usize,
                    })),
                    _ => Err(unknown_count()),
                }
            }
            Node::ParamRef(parameter) => {
                let start = usize::try_from(parameter.location).map_err(|_| unknown_count())?;
                let number = u16::try_from(parameter.number).map_err(|_| unknown_count())?;
                let token = self.text.get(start..).and_then(|rest| lexer::tokens(rest).next()).ok_or_else(unknown_count)?;
                Ok(Some(FoundCount { count: Count::Parameter(number), start, end: start + token.end }))
            }
            _ => Err(unknown_count()),
        }
    }
}

/// A LIMIT or OFFSET and its place in the text.
struct FoundCount {
    count: Count,
    start: usize,
    end: usize,
}

fn unknown_order() -> PgError {
    PgError::unsupported(
        "this ORDER BY is not supported across shards",
        "It sorts by something that is not a column of the result, or in an order that the proxy does not know.",
        "Select what the rows are sorted by, and sort by that column; or restrict the statement to one shard key.",
    )
}

fn unknown_count() -> PgError {
    PgError::unsupported(
        "this LIMIT or OFFSET is not supported across shards",
        "It is neither an integer nor a parameter.",
        "Compute the number first and pass it.",
    )
}
