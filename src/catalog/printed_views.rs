//! Compares a view's query as servers of different major versions print it.
//!
//! Up to PostgreSQL 15 every column has its relation's name before it; since 16 it has none where the query reads one relation alone.
//! All else is printed alike from 15 to 18. So the older text must be the newer one with qualifiers added: what is compared is the
//! whole query, and a text of the newer version is unambiguous by itself.

/// The first major version that leaves out qualifiers.
const UNQUALIFIED_SINCE: u32 = 16;

/// Do these texts, each with the major version of its server, define the same view?
pub(super) fn are_alike(one: (u32, &str), other: (u32, &str)) -> bool {
    let ((older, qualified), (newer, text)) = if one.0 <= other.0 { (one, other) } else { (other, one) };
    if older < UNQUALIFIED_SINCE && newer >= UNQUALIFIED_SINCE { is_qualified(qualified, text) } else { qualified == text }
}

/// The one is the other with the name of its only relation before columns. A schema before a function, a type or a relation is none
/// of these: without it, another object is meant.
fn is_qualified(qualified: &str, text: &str) -> bool {
    let sources = sources(qualified);
    let (mut qualified, mut text) = (Tokens(qualified).peekable(), Tokens(text).peekable());
    let mut only_source = None;
    let mut before = ["", ""];
    while let Some(first) = qualified.next() {
        let Some(other) = text.next() else { return false };
        let is_before_dot = is_name(first) && qualified.next_if_eq(&".").is_some();
        let is_other_before_dot = is_name(other) && text.next_if_eq(&".").is_some();
        let mut last = first;
        let is_same = match (is_before_dot, is_other_before_dot) {
            (true, false) => {
                last = qualified.next().unwrap_or_default();
                let is_column = (is_name(last) || last == "*") && qualified.peek() != Some(&"(");
                let names_type_or_relation = before == [":", ":"] || ["FROM", "JOIN", "COLLATE"].contains(&before[1]);
                let is_of_source = sources.contains(&first) && *only_source.get_or_insert(first) == first;
                last == other && is_column && is_of_source && !names_type_or_relation
            }
            _ => first == other && is_before_dot == is_other_before_dot,
        };
        if !is_same {
            return false;
        }
        before = if is_before_dot && is_other_before_dot { ["", "."] } else { [before[1], last] };
    }
    text.next().is_none()
}

/// Names behind FROM that stand alone or behind a qualifier: those of relations are among them, those of schemas are not.
fn sources(text: &str) -> Vec<&str> {
    let tokens: Vec<&str> = Tokens(text).skip_while(|token| *token != "FROM").collect();
    let is_qualifier = |place: usize| tokens.get(place + 1) == Some(&".");
    tokens.iter().enumerate().filter(|(place, token)| is_name(token) && !is_qualifier(*place)).map(|(_, token)| *token).collect()
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first == '"' || first == '_' || first.is_alphabetic())
}

/// Names, numbers, strings, and all other characters one by one; without blanks.
struct Tokens<'t>(&'t str);

impl<'t> Iterator for Tokens<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        let rest = self.0.trim_start();
        let first = rest.chars().next()?;
        let is_word = |c: char| c == '_' || c == '$' || c.is_alphanumeric();
        let length = match first {
            // A quote inside is doubled: two strings then, whose bytes count all the same.
            '\'' | '"' => rest.get(1..)?.find(first).map_or(rest.len(), |end| end + 2),
            digit if digit.is_ascii_digit() => rest.find(|c: char| !is_word(c) && c != '.').unwrap_or(rest.len()),
            letter if is_word(letter) => rest.find(|c: char| !is_word(c)).unwrap_or(rest.len()),
            other => other.len_utf8(),
        };
        let (token, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualifiers_that_a_newer_server_leaves_out_are_no_difference() {
        for (of_15, of_16) in [
            (
                " SELECT t.id,\n    t.b AS bb,\n    t.t\n   FROM public.t\n  WHERE (t.a > 3);",
                "SELECT id, b AS bb, t FROM public.t WHERE (a > 3);",
            ),
            ("SELECT DISTINCT ON (t.\"A b\") t.\"A b\" FROM public.t", "SELECT DISTINCT ON (\"A b\") \"A b\" FROM public.t"),
            ("SELECT (t.c).f, 1.5 AS n, t.* FROM public.t", "SELECT (c).f, 1.5 AS n, t.* FROM public.t"),
            (
                "WITH w AS ( SELECT t.id FROM public.t) SELECT w.id FROM w",
                "WITH w AS ( SELECT t.id FROM public.t) SELECT id FROM w",
            ),
            ("SELECT 'it''s t.a' AS a, t.ä FROM t", "SELECT 'it''s t.a' AS a, ä FROM t"),
            ("SELECT x.a[1:x.n] FROM public.t x ORDER BY x.a", "SELECT a[1:n] FROM public.t x ORDER BY a"),
            (
                "SELECT public.lower(t.a), 'x'::public.money FROM public.t",
                "SELECT public.lower(a), 'x'::public.money FROM public.t",
            ),
        ] {
            assert!(are_alike((15, of_15), (18, of_16)) && are_alike((16, of_16), (15, of_15)), "{of_15}");
        }
    }

    #[test]
    fn what_means_something_else_is_a_difference() {
        for (of_15, of_16) in [
            ("SELECT t.a FROM public.t WHERE (t.a > 3)", "SELECT a FROM public.t WHERE (a > 4)"),
            ("SELECT t.a FROM public.t", "SELECT b FROM public.t"),
            ("SELECT t.a FROM public.t", "SELECT a FROM other.t"),
            ("SELECT a.x FROM a, b", "SELECT b.x FROM a, b"),
            ("SELECT t.a FROM public.t", "SELECT a FROM public.t LIMIT 1"),
            ("SELECT t.a FROM public.t LIMIT 1", "SELECT a FROM public.t"),
            ("SELECT 'a ' FROM t", "SELECT 'a' FROM t"),
            ("SELECT 't.a' FROM t", "SELECT 'a' FROM t"),
            ("SELECT 1.5 FROM t", "SELECT 5 FROM t"),
            ("SELECT t.", "SELECT t"),
            ("SELECT public.lower(t.a) FROM public.t", "SELECT lower(a) FROM public.t"),
            ("SELECT public.lower(1) FROM public.public", "SELECT lower(1) FROM public.public"),
            ("SELECT 'x'::public.money AS m FROM public.t", "SELECT 'x'::money AS m FROM public.t"),
            ("SELECT 'x'::t.money AS m FROM public.t", "SELECT 'x'::money AS m FROM public.t"),
            ("WITH w AS ( SELECT 1 AS a) SELECT w.a FROM public.w", "WITH w AS ( SELECT 1 AS a) SELECT a FROM w"),
            ("SELECT t.a COLLATE public.c FROM public.t", "SELECT a COLLATE c FROM public.t"),
            ("SELECT a.x, b.y FROM a, b", "SELECT x, y FROM a, b"),
        ] {
            assert!(!are_alike((15, of_15), (16, of_16)), "{of_15}");
        }
        // Both print alike.
        assert!(!are_alike((16, "SELECT t.a FROM t"), (18, "SELECT a FROM t")));
        assert!(!are_alike((15, "SELECT t.a FROM t"), (15, "SELECT a FROM t")));
    }
}
