//! Names and values as SQL text.

/// A name that means itself, whatever is in it.
pub fn quoted_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `"schema"."name"`.
pub fn quoted_name(schema: &str, name: &str) -> String {
    format!("{}.{}", quoted_identifier(schema), quoted_identifier(name))
}

/// A string literal that means the same under either setting of `standard_conforming_strings`.
pub fn quoted_literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    // A space: the E must not become part of a word before it.
    if text.contains('\\') { format!(" E'{}'", doubled.replace('\\', "\\\\")) } else { format!("'{doubled}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_reads_back() {
        assert_eq!(quoted_identifier("a \"b\""), "\"a \"\"b\"\"\"");
        assert_eq!(quoted_name("My \"s\"", "t"), "\"My \"\"s\"\"\".\"t\"");
        assert_eq!(quoted_literal("it's"), "'it''s'");
        assert_eq!(quoted_literal("it's \\"), " E'it''s \\\\'");
    }
}
