//! `CREATE ROLE … PASSWORD 'x'` and `ALTER ROLE … PASSWORD 'x'`: what is told to the servers instead.
//!
//! Each server would store it with a salt of its own, and a client's login can be passed on only where the salts are the same: the
//! proxy knows a proof for one of them.

use std::ops::Range;

use pg_raw_parse::Node;

use crate::sql::parse;
use crate::sql::parse::tokens::Tokens;

/// The place of the literal, and its value. `None`: no password is set, or one that is stored as it is.
pub fn password(text: &str) -> Option<(Range<usize>, String)> {
    let tree = parse::parse(text).ok()?;
    let options = match tree.stmts().next()? {
        Node::CreateRoleStmt(create) => create.options(),
        Node::AlterRoleStmt(alter) => alter.options(),
        _ => return None,
    };
    let option = options.iter().find(|option| option.defname() == Some("password"))?;
    let value = match option.arg() {
        Node::String(value) => value.sval()?,
        _ => return None,
    };
    let is_stored_as_it_is = value.is_empty() || value.starts_with("SCRAM-SHA-256$") || value.starts_with("md5");
    let tokens = Tokens::of(text);
    let word = tokens.word_at_top(tokens.at_location(option.location)?, &["password"])?;
    let place = tokens.range(word + 1, word + 1)?;
    (!is_stored_as_it_is).then(|| (place, value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_found_where_they_are_set() {
        for (text, literal, value) in [
            ("CREATE ROLE a PASSWORD 'it''s'", "'it''s'", "it's"),
            ("/* password 'x' */ ALTER ROLE password LOGIN ENCRYPTED PASSWORD E'a\\'b' VALID UNTIL 'infinity'", "E'a\\'b'", "a'b"),
            ("CREATE USER a IN ROLE b PASSWORD $$p$$", "$$p$$", "p"),
        ] {
            let (place, found) = password(text).expect(text);
            assert_eq!((&text[place], found.as_str()), (literal, value), "{text}");
        }
        for text in [
            "CREATE ROLE a",
            "ALTER ROLE a PASSWORD NULL",
            "ALTER ROLE a PASSWORD ''",
            "ALTER ROLE a PASSWORD 'SCRAM-SHA-256$4096:c2FsdA==$a:b'",
            "ALTER ROLE a SET work_mem = '1MB'",
            "SELECT 'password'",
        ] {
            assert_eq!(password(text), None, "{text}");
        }
    }
}
