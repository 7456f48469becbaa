//! Long lists of constants, cut short: `(1, 2, … 100,000 more)`, `VALUES (1, 'a'), … (9, 'i')`.
//!
//! The proof compares trees, which are some hundred times larger than their text. What stands between two commas of a list is read the
//! same way however long the list is; so both texts are compared with the same few elements of it. A list that is left has two
//! elements or more, as one in parentheses would be no list.

use crate::sql::analysis::Splice;
use crate::sql::parse::lexer::TokenKind;
use crate::sql::parse::tokens::Tokens;

/// What is left out of the text, ascending.
pub fn cuts(tokens: &Tokens<'_>) -> Vec<Splice> {
    let mut cuts = Vec::new();
    let mut at = 0;
    while at < tokens.count() {
        let begins = at > 0 && (matches!(tokens.piece(at - 1), "(" | "[" | ",") || tokens.is_word(at - 1, "values"));
        let ends = if begins { element_ends(tokens, at) } else { Vec::new() };
        match (ends.get(KEPT - 1), ends.last()) {
            (Some(kept), Some(last)) if ends.len() > KEPT => {
                if let Some(range) = tokens.range(*kept, *last) {
                    let start = tokens.get(*kept).map_or(range.start, |token| token.end);
                    cuts.push(Splice { start, end: range.end, text: String::new() });
                }
                at = last + 1;
            }
            _ => at += 1,
        }
    }
    cuts
}

/// The last tokens of constants, or of rows of constants, between commas.
fn element_ends(tokens: &Tokens<'_>, first: usize) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut at = first;
    while let Some(end) = row(tokens, at).or_else(|| constant(tokens, at)) {
        // What goes on behind it is part of the element.
        if !matches!(tokens.piece(end + 1), "," | ")" | "]") && !ends.is_empty() {
            break;
        }
        ends.push(end);
        if tokens.piece(end + 1) != "," {
            break;
        }
        at = end + 2;
    }
    ends
}

fn row(tokens: &Tokens<'_>, open: usize) -> Option<usize> {
    if tokens.piece(open) != "(" {
        return None;
    }
    let mut at = open + 1;
    loop {
        let end = constant(tokens, at)?;
        match tokens.piece(end + 1) {
            ")" => return Some(end + 1),
            "," => at = end + 2,
            _ => return None,
        }
    }
}

/// `1`, `-1`, `'x'`, `'x'::pg_catalog.text`, `$1`, `NULL`.
fn constant(tokens: &Tokens<'_>, first: usize) -> Option<usize> {
    let value = first + usize::from(matches!(tokens.piece(first), "-" | "+"));
    let is_value = match tokens.get(value)?.kind {
        TokenKind::Literal(_) | TokenKind::Parameter => true,
        _ => tokens.is_one_of(value, &["null", "true", "false"]),
    };
    if !is_value {
        return None;
    }
    let mut end = value;
    while tokens.piece(end + 1) == ":" && tokens.piece(end + 2) == ":" {
        tokens.identifier(end + 3)?;
        end = tokens.name_end(end + 3);
    }
    Some(end)
}

const KEPT: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn abridged(text: &str) -> String {
        let mut out = text.to_owned();
        for cut in cuts(&Tokens::of(text)).iter().rev() {
            out.replace_range(cut.start..cut.end, "");
        }
        out
    }

    #[test]
    fn lists_of_constants_alone_are_cut() {
        let numbers = |count: usize| (1..=count).map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
        assert_eq!(abridged(&format!("SELECT x IN ({}) FROM t", numbers(500))), "SELECT x IN (1, 2, 3, 4, 5, 6, 7, 8) FROM t");
        assert_eq!(abridged(&format!("SELECT ARRAY[{}], 1", numbers(20))), "SELECT ARRAY[1, 2, 3, 4, 5, 6, 7, 8], 1");
        let rows = (1..=30).map(|number| format!("({number}, 'a,('::pg_catalog.text, -1, NULL)")).collect::<Vec<_>>().join(",");
        let cut = abridged(&format!("SELECT * FROM (VALUES {rows}) AS v (a, b, c) WHERE a = 1"));
        assert!(cut.ends_with("(8, 'a,('::pg_catalog.text, -1, NULL)) AS v (a, b, c) WHERE a = 1"), "{cut}");
        for same in [
            format!("SELECT x IN ({}) FROM t", numbers(8)),
            format!("SELECT f({}, x + 1)", numbers(7)),
            "SELECT a, b, c, d, e, f, g, h, i, j, k, l FROM t".to_owned(),
        ] {
            assert_eq!(abridged(&same), same);
        }
        // The last element is an expression.
        assert_eq!(abridged(&format!("SELECT f({} + x)", numbers(20))), "SELECT f(1, 2, 3, 4, 5, 6, 7, 8, 20 + x)");
    }
}
