//! The value that a literal of the text stands for.
//!
//! Only what is certain: a notation that is not decoded here (`U&'…'`, hexadecimal numbers, rare escapes) yields `None`, and the
//! statement is then not narrowed by it.

use std::borrow::Cow;

use super::lexer::{Literal, LiteralClass};
use crate::shard_key::{Oid, oid};

impl LiteralClass {
    /// The type that PostgreSQL gives to the constant; 0 for a string, whose type comes from its context.
    pub fn type_oid(self) -> Oid {
        match self {
            LiteralClass::Integer => oid::INT4,
            LiteralClass::BigInteger => oid::INT8,
            LiteralClass::Numeric => oid::NUMERIC,
            LiteralClass::String | LiteralClass::Other => 0,
        }
    }
}

impl Literal {
    /// The value in PostgreSQL's text form, unquoted; `None` where the notation is not decoded.
    pub fn value<'t>(&self, text: &'t str) -> Option<Cow<'t, str>> {
        let token = text.get(self.start as usize..self.end as usize)?;
        match self.class {
            LiteralClass::Integer | LiteralClass::BigInteger | LiteralClass::Numeric => {
                (!token.contains('_')).then_some(Cow::Borrowed(token))
            }
            LiteralClass::String => string_value(token),
            LiteralClass::Other => None,
        }
    }
}

fn string_value(token: &str) -> Option<Cow<'_, str>> {
    if let Some(after_dollar) = token.strip_prefix('$') {
        let tag_length = after_dollar.find('$')? + 2;
        let body = token.get(tag_length..token.len().checked_sub(tag_length)?)?;
        return token.ends_with(token.get(..tag_length)?).then_some(Cow::Borrowed(body));
    }
    let (has_escapes, quoted) = match token.strip_prefix(['e', 'E']) {
        Some(rest) => (true, rest),
        None => (false, token),
    };
    let inner = quoted.strip_prefix('\'')?.strip_suffix('\'')?;
    if !inner.contains(['\'', '\\']) || (!has_escapes && !inner.contains('\'')) {
        return Some(Cow::Borrowed(inner));
    }
    unescape(inner, has_escapes).map(Cow::Owned)
}

fn unescape(inner: &str, has_escapes: bool) -> Option<String> {
    let mut value = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        match character {
            // A single quote that is not doubled ends a piece of a string that goes on on another line: not decoded.
            '\'' => match characters.next()? {
                '\'' => value.push('\''),
                _ => return None,
            },
            '\\' if has_escapes => value.push(match characters.next()? {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\u{8}',
                'f' => '\u{c}',
                // Octal, hexadecimal and Unicode escapes are not decoded.
                '0'..='9' | 'x' | 'u' | 'U' => return None,
                other => other,
            }),
            other => value.push(other),
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::super::lexer::scan;

    #[test]
    fn values_are_what_postgresql_reads_or_nothing() {
        let cases = [
            ("12", Some("12")),
            ("1.50", Some("1.50")),
            ("'a'", Some("a")),
            ("''", Some("")),
            ("'it''s'", Some("it's")),
            ("'a\\b'", Some("a\\b")),
            ("E'a\\\\b\\'c\\n'", Some("a\\b'c\n")),
            ("E'\\x41'", None),
            ("E'\\u0041'", None),
            ("$$a'b$$", Some("a'b")),
            ("$q$a$$b$q$", Some("a$$b")),
            ("$$$$", Some("")),
            ("$$open", None),
            ("'open", None),
            ("'a'\n'b'", None),
            ("U&'a'", None),
            ("0x1F", None),
            ("1_000", None),
        ];
        for (text, expected) in cases {
            let scanned = scan(text);
            assert_eq!(scanned.literals[0].value(text).as_deref(), expected, "{text}");
        }
    }
}
