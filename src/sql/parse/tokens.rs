//! A text with its tokens: names, words and parentheses around the places that the parser reports.
//!
//! The parser says where something begins, seldom where it ends; what is taken out of a text or put into it is found here. An index
//! beyond the last token is a token of no text. Whoever splices by this proves the result by reading it again.

use std::ops::Range;

use super::lexer::{self, Token, TokenKind};

/// Comments are left out.
#[derive(Clone, Debug)]
pub struct Tokens<'t> {
    text: &'t str,
    list: Vec<Token>,
}

impl<'t> Tokens<'t> {
    pub fn of(text: &'t str) -> Self {
        Self { text, list: lexer::tokens(text).filter(|token| token.kind != TokenKind::Comment).collect() }
    }

    pub fn text(&self) -> &'t str {
        self.text
    }

    pub fn count(&self) -> usize {
        self.list.len()
    }

    pub fn get(&self, index: usize) -> Option<&Token> {
        self.list.get(index)
    }

    pub fn iter(&self) -> impl Iterator<Item = (TokenKind, &'t str)> + '_ {
        self.list.iter().enumerate().map(|(index, token)| (token.kind, self.piece(index)))
    }

    /// The token that begins at this byte offset.
    pub fn at(&self, offset: usize) -> Option<usize> {
        self.list.binary_search_by_key(&offset, |token| token.start).ok()
    }

    /// The token that begins where the parser says.
    pub fn at_location(&self, location: i32) -> Option<usize> {
        self.at(usize::try_from(location).ok()?)
    }

    pub fn piece(&self, index: usize) -> &'t str {
        self.list.get(index).and_then(|token| self.text.get(token.start..token.end)).unwrap_or_default()
    }

    /// Is it this word, without quotes?
    pub fn is_word(&self, index: usize, word: &str) -> bool {
        self.list.get(index).is_some_and(|token| token.kind == TokenKind::Word) && self.piece(index).eq_ignore_ascii_case(word)
    }

    pub fn is_one_of(&self, index: usize, words: &[&str]) -> bool {
        words.iter().any(|word| self.is_word(index, word))
    }

    /// The first of these words from this token on, outside of parentheses.
    pub fn word_at_top(&self, from: usize, words: &[&str]) -> Option<usize> {
        let mut index = from;
        while index < self.count() {
            match self.piece(index) {
                "(" | "[" => index = self.closing(index)?,
                _ if self.is_one_of(index, words) => return Some(index),
                _ => {}
            }
            index += 1;
        }
        None
    }

    /// FROM as a clause, as [`Tokens::word_at_top`]; not that of IS DISTINCT FROM.
    pub fn from_at_top(&self, from: usize) -> Option<usize> {
        let mut found = self.word_at_top(from, &["from"])?;
        while self.is_word(found.checked_sub(1)?, "distinct") {
            found = self.word_at_top(found + 1, &["from"])?;
        }
        Some(found)
    }

    /// The token that closes this parenthesis or bracket.
    pub fn closing(&self, open: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for index in open..self.count() {
            match self.piece(index) {
                "(" | "[" => depth += 1,
                ")" | "]" => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some(index);
                    }
                }
                _ if depth == 0 => return None,
                _ => {}
            }
        }
        None
    }

    /// The last token of the dotted name that begins at this one.
    pub fn name_end(&self, first: usize) -> usize {
        let mut last = first;
        while self.piece(last + 1) == "." && self.piece(last + 2) != "*" {
            last += 2;
        }
        last
    }

    /// The dotted name that begins at this token, as PostgreSQL folds it.
    pub fn names(&self, first: usize) -> Option<Vec<String>> {
        (first..=self.name_end(first)).step_by(2).map(|index| self.identifier(index)).collect()
    }

    /// A name as PostgreSQL folds it.
    pub fn identifier(&self, index: usize) -> Option<String> {
        identifier(self.list.get(index)?.kind, self.piece(index))
    }

    /// Byte offsets from the first of these tokens to the last.
    pub fn range(&self, first: usize, last: usize) -> Option<Range<usize>> {
        Some(self.list.get(first)?.start..self.list.get(last)?.end)
    }

    /// The text from the first of these tokens to the last.
    pub fn slice(&self, first: usize, last: usize) -> Option<&'t str> {
        self.text.get(self.range(first, last)?)
    }

    /// The text between two tokens.
    pub fn between(&self, before: usize, after: usize) -> Option<&'t str> {
        self.text.get(self.list.get(before)?.end..self.list.get(after)?.start)
    }

    /// What the commas part, from this token up to the one at `end`: the first and the last token of each.
    pub fn elements(&self, first: usize, end: usize) -> Option<Vec<(usize, usize)>> {
        let mut elements = Vec::new();
        let (mut start, mut index) = (first, first);
        while index < end {
            match self.piece(index) {
                "(" | "[" => index = self.closing(index)?,
                "," => {
                    elements.push((start, index.checked_sub(1)?));
                    start = index + 1;
                }
                _ => {}
            }
            index += 1;
        }
        elements.push((start, end.checked_sub(1)?));
        Some(elements)
    }
}

/// A name may be spelled by code points, which no comparison of names here knows. Also true where a string holds such a word.
pub fn may_spell_names(text: &str) -> bool {
    text.contains("U&\"") || text.contains("u&\"")
}

/// As PostgreSQL folds it; `None` for what is no plain name, `U&"…"` among it.
pub fn identifier(kind: TokenKind, piece: &str) -> Option<String> {
    match kind {
        TokenKind::Word => Some(cut(piece.to_ascii_lowercase())),
        TokenKind::QuotedIdentifier => Some(cut(piece.strip_prefix('"')?.strip_suffix('"')?.replace("\"\"", "\""))),
        TokenKind::Literal(_) | TokenKind::Parameter | TokenKind::Comment | TokenKind::Symbol => None,
    }
}

/// Names are cut to what PostgreSQL keeps of them.
pub fn cut(mut name: String) -> String {
    if name.len() > NAME_BYTES_MAX {
        name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
    }
    name
}

/// NAMEDATALEN, without its terminating zero.
const NAME_BYTES_MAX: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_words_and_parentheses_are_found_whatever_is_in_quotes() {
        let tokens = Tokens::of("SELECT f((1), 'set (', \"set\") /* set */ FROM s.\"A b\" SET x");
        assert_eq!(tokens.closing(2).and_then(|close| tokens.slice(2, close)), Some("((1), 'set (', \"set\")"));
        assert_eq!(tokens.closing(1), None);
        let set = tokens.word_at_top(0, &["set"]).expect("found");
        assert_eq!(tokens.piece(set + 1), "x");
        let name = tokens.word_at_top(0, &["from"]).expect("found") + 1;
        assert_eq!(tokens.names(name), Some(vec!["s".to_owned(), "A b".to_owned()]));
        let arguments = tokens.elements(3, tokens.closing(2).expect("closes")).expect("closes");
        let arguments: Vec<_> = arguments.into_iter().filter_map(|(first, last)| tokens.slice(first, last)).collect();
        assert_eq!(arguments, ["(1)", "'set ('", "\"set\""]);
    }

    #[test]
    fn names_are_cut_as_postgresql_cuts_them() {
        let long = "X".repeat(70);
        assert_eq!(identifier(TokenKind::Word, &long), Some("x".repeat(63)));
        let wide = format!("\"{}\"", "é".repeat(40));
        assert_eq!(identifier(TokenKind::QuotedIdentifier, &wide), Some("é".repeat(31)));
    }
}
