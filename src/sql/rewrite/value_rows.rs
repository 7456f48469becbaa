//! Where the rows of an INSERT's VALUES are in its text, so that some can be taken out.

use std::ops::Range;

use crate::sql::parse::tokens::Tokens;

/// Byte ranges of the rows, parentheses included, in their order; `None`: these are not `count` rows.
///
/// The statement has been read by PostgreSQL's grammar, which has found `count` rows: what is found here is held against that.
pub fn value_rows(text: &str, count: usize) -> Option<Vec<Range<usize>>> {
    let tokens = Tokens::of(text);
    let mut from = 0;
    loop {
        let values = tokens.word_at_top(from, &["values"])?;
        let rows = rows_after(&tokens, values + 1)?;
        // A table may be called so.
        if rows.len() == count {
            return Some(rows);
        }
        from = values + 1;
    }
}

/// The parenthesised lists, parted by commas, that begin at this token.
fn rows_after(tokens: &Tokens<'_>, first: usize) -> Option<Vec<Range<usize>>> {
    let mut rows = Vec::new();
    let mut index = first;
    while tokens.piece(index) == "(" {
        let close = tokens.closing(index)?;
        rows.push(tokens.range(index, close)?);
        if tokens.piece(close + 1) != "," {
            break;
        }
        index = close + 2;
    }
    Some(rows)
}

/// The text with only these rows, of which there is one at least. `kept`: their indexes, ascending.
pub fn with_rows(text: &str, rows: &[Range<usize>], kept: &[usize]) -> Option<String> {
    let (first, last) = (rows.first()?, rows.last()?);
    let chosen: Vec<&str> = kept.iter().map(|row| text.get(rows.get(*row)?.clone())).collect::<Option<_>>()?;
    (!chosen.is_empty()).then_some(())?;
    Some(format!("{}{}{}", text.get(..first.start)?, chosen.join(", "), text.get(last.end..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(text: &str, count: usize, kept: &[usize]) -> Option<String> {
        with_rows(text, &value_rows(text, count)?, kept)
    }

    #[test]
    fn rows_are_found_whatever_is_in_them() {
        let text = "INSERT INTO t (a, b) VALUES (1, 'x), (2'), /* (9) */ (f(2, (3)), ARRAY[(1), 2]), ($1, $$),($$) RETURNING (a)";
        assert_eq!(
            kept(text, 3, &[0, 2]).as_deref(),
            Some("INSERT INTO t (a, b) VALUES (1, 'x), (2'), ($1, $$),($$) RETURNING (a)")
        );
        assert_eq!(kept("INSERT INTO values VALUES (1),(2)", 2, &[1]).as_deref(), Some("INSERT INTO values VALUES (2)"));
        assert_eq!(
            kept("insert into t values (1), (2) on conflict (a) do update set b = (1)", 2, &[0]).as_deref(),
            Some("insert into t values (1) on conflict (a) do update set b = (1)")
        );
    }

    #[test]
    fn another_number_of_rows_is_nothing() {
        assert_eq!(value_rows("INSERT INTO t VALUES (1), (2)", 3), None);
        assert_eq!(value_rows("INSERT INTO t SELECT 1", 1), None);
        assert_eq!(value_rows("INSERT INTO t VALUES (1), (2", 2), None);
        assert_eq!(kept("INSERT INTO t VALUES (1), (2)", 2, &[]), None);
    }
}
