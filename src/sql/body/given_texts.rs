//! Whether a PL/pgSQL body runs a text that it is given, by an argument or in a row: what that does nobody knows from the body.
//!
//! A text that the body puts together has constants in it, whose words say what it may leave in the session. So EXECUTE without a
//! constant runs a text that was given, unless a constant is put into one of its variables somewhere in the body. So does one into which
//! a value of a row is put as it is: it may be any part of a statement.

use super::plpgsql::Token;
use crate::sql::parse::lexer::TokenKind;

pub(super) fn runs_given_text(tokens: &[Token<'_>]) -> bool {
    (0..tokens.len()).any(|at| is_execute(tokens, at) && is_given(executed(tokens, at + 1), tokens))
}

/// The keyword, and no name after a dot.
fn is_execute(tokens: &[Token<'_>], at: usize) -> bool {
    // GRANT EXECUTE ON, and what a trigger is created with.
    if tokens.get(at + 1).is_some_and(|token| token.is_any(&["on", "function", "procedure"])) {
        return false;
    }
    let is_name = at.checked_sub(1).and_then(|before| tokens.get(before)).is_some_and(|before| before.is_symbol("."));
    !is_name && tokens.get(at).is_some_and(|token| token.is("execute"))
}

/// The expression that begins here.
fn executed<'t, 'a>(tokens: &'t [Token<'a>], start: usize) -> &'t [Token<'a>] {
    let rest = tokens.get(start..).unwrap_or_default();
    let is_end = |token: &Token<'_>| token.is_symbol(";") || token.is_any(&["into", "using", "loop"]);
    rest.get(..rest.iter().position(is_end).unwrap_or(rest.len())).unwrap_or_default()
}

fn is_given(expression: &[Token<'_>], tokens: &[Token<'_>]) -> bool {
    let is_made = |name: String| is_made(&name, tokens, VARIABLES_MAX);
    let has_no_constant = !has_constant(before_from(expression)) && !expression.iter().filter_map(Token::name).any(is_made);
    has_no_constant || unquoted_names(expression).any(|name| is_of_rows(&name, tokens))
}

/// Variables whose values are put into the text as they are, not as names or literals.
fn unquoted_names<'t>(expression: &'t [Token<'_>]) -> impl Iterator<Item = String> + 't {
    let mut quoting = vec![false];
    expression.iter().enumerate().filter_map(move |(at, token)| {
        let is_around = quoting.last().copied().unwrap_or_default();
        let before = at.checked_sub(1).and_then(|before| expression.get(before));
        let rest = expression.get(at + 1..).unwrap_or_default();
        if token.is_symbol("(") {
            let quotes = before.is_some_and(|name| name.is_any(&["quote_ident", "quote_literal", "quote_nullable"]));
            let is_format = before.is_some_and(|name| name.is("format"));
            let is_plain = rest.first().is_some_and(|format| format.text.contains("%s") || format.text.contains("$s"));
            quoting.push(quotes || (is_format && !is_plain) || is_around);
        } else if token.is_symbol(")") {
            quoting.pop();
        }
        let is_call = rest.first().is_some_and(|next| next.is_symbol("("));
        let is_field = before.is_some_and(|before| before.is_symbol("."));
        token.name().filter(|_| !is_around && !is_call && !is_field)
    })
}

/// A loop over rows, or INTO, puts what lies in them into the variable.
fn is_of_rows(name: &str, tokens: &[Token<'_>]) -> bool {
    pieces(tokens).any(|piece| {
        let is_it = |token: &Token<'_>| token.name().as_deref() == Some(name);
        let is_loop = piece.first().is_some_and(|first| first.is("for")) && piece.get(1).is_some_and(is_it);
        let is_target = match piece.iter().position(|token| token.is("into")) {
            Some(into) => piece.iter().skip(into + 1).take_while(|token| !token.is("from")).any(is_it),
            None => is_loop,
        };
        is_target && piece.iter().any(|token| token.is("from")) && !has_constant(before_from(piece))
    })
}

fn has_constant(tokens: &[Token<'_>]) -> bool {
    tokens.iter().any(|token| matches!(token.kind, TokenKind::Literal(_)) && token.text != "''")
}

fn before_from<'t, 'a>(tokens: &'t [Token<'a>]) -> &'t [Token<'a>] {
    let end = tokens.iter().position(|token| token.is("from")).unwrap_or(tokens.len());
    tokens.get(..end).unwrap_or_default()
}

/// A constant is assigned to the variable, selected into it, or it goes through rows that have one.
fn is_made(name: &str, tokens: &[Token<'_>], depth: usize) -> bool {
    pieces(tokens).any(|piece| {
        let is_it = |token: Option<&Token<'_>>| token.and_then(Token::name).as_deref() == Some(name);
        let is_loop = piece.first().is_some_and(|first| first.is_any(&["for", "foreach"]));
        let into = piece.iter().position(|token| token.is("into"));
        let is_target = is_it(piece.get(usize::from(is_loop)))
            || into.is_some_and(|into| piece.iter().skip(into + 1).any(|token| is_it(Some(token))));
        let others = || before_from(piece).iter().filter_map(Token::name).filter(|other| other != name);
        let is_made_of_others = || depth > 0 && others().any(|other| is_made(&other, tokens, depth - 1));
        is_target && (has_constant(before_from(piece)) || is_made_of_others())
    })
}

/// Statements, and the heads of loops and conditions.
fn pieces<'t, 'a>(tokens: &'t [Token<'a>]) -> impl Iterator<Item = &'t [Token<'a>]> {
    tokens.split(|token| token.is_symbol(";") || token.is_any(&["loop", "then", "else", "begin", "declare"]))
}

/// A text may come by so many other variables.
const VARIABLES_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use crate::catalog::{BodyReader, Kept};
    use crate::sql::body::SqlBodyReader;

    #[test]
    fn a_text_that_is_given_is_told_from_one_that_is_made() {
        let runs = |body: &str| SqlBodyReader.references("plpgsql", body).effects.kept.contains(&Kept::GivenText);
        for given in [
            "BEGIN EXECUTE t; END",
            "BEGIN EXECUTE t USING 'a'; END",
            "BEGIN EXECUTE $1 INTO x; END",
            "DECLARE q text; BEGIN q := t; EXECUTE q; END",
            "BEGIN FOR r IN SELECT q FROM jobs WHERE state = 'new' LOOP EXECUTE r.q; END LOOP; END",
            "BEGIN RETURN QUERY EXECUTE t; END",
            "BEGIN FOR r IN EXECUTE t LOOP x := 'y'; END LOOP; END",
            "BEGIN OPEN c FOR EXECUTE t; END",
            "BEGIN EXECUTE NEW.q; RETURN NEW; END",
            "DECLARE q text := ''; BEGIN SELECT b INTO q FROM jobs; EXECUTE q; END",
            "BEGIN EXECUTE (SELECT q FROM jobs WHERE state = 'new'); END",
            "BEGIN EXECUTE 'SELECT 1'; EXECUTE t || u; END",
            "BEGIN FOR r IN SELECT q FROM jobs LOOP EXECUTE 'SELECT ' || r.q; END LOOP; END",
            "DECLARE q text; BEGIN SELECT j.q INTO q FROM jobs j; EXECUTE format('SELECT %s', q); END",
            "DECLARE q text; BEGIN SELECT j.q FROM jobs j INTO STRICT q; EXECUTE concat('SELECT ', q); END",
        ] {
            assert!(runs(given), "{given}");
        }
        for made in [
            "BEGIN EXECUTE 'SELECT 1'; END",
            "BEGIN EXECUTE format('DROP TABLE %I', t); END",
            "BEGIN EXECUTE 'SELECT ' || t; END",
            "DECLARE q text := 'SELECT 1'; BEGIN EXECUTE q; END",
            "DECLARE q text; BEGIN q := 'SELECT '; q := q || t; EXECUTE q; END",
            "BEGIN FOR r IN SELECT format('DROP TABLE %I', a) AS q FROM b LOOP EXECUTE r.q; END LOOP; END",
            "BEGIN FOREACH q IN ARRAY ARRAY['SELECT 1'] LOOP EXECUTE q; END LOOP; END",
            "BEGIN SELECT 'DROP ' || a INTO q FROM b; EXECUTE q; END",
            "BEGIN PERFORM a.execute(t); END",
            "DECLARE base text := 'INSERT INTO log'; q text; BEGIN q := base || tg_table_name; EXECUTE q USING NEW; END",
            "BEGIN GRANT EXECUTE ON FUNCTION f() TO PUBLIC; END",
            "BEGIN FOR r IN SELECT t FROM tables LOOP EXECUTE 'DROP TABLE ' || quote_ident(r.t); END LOOP; END",
            "BEGIN FOR r IN SELECT t FROM tables LOOP EXECUTE format('DROP TABLE %I', r.t); END LOOP; END",
            "BEGIN EXECUTE 'INSERT INTO ' || tg_table_name || ' VALUES (1)'; END",
            "DECLARE n int; BEGIN SELECT count(*) INTO n FROM jobs; EXECUTE 'SELECT ' || t; END",
        ] {
            assert!(!runs(made), "{made}");
        }
    }
}
