//! Replaces the names of relations in a text by their byte offsets, and proves the result by reading it again.
//!
//! Works on PostgreSQL's tokens around the places that the parser reports; whatever does not look as expected is refused. A
//! spliced text counts only when its survey is that of the original but for the names that were replaced.

use std::ops::Range;

use super::computed::Computed;
use super::refusals;
use super::survey::{ColumnUse, RelationUse, Step, Survey};
use crate::catalog::quoted_identifier;
use crate::error::PgError;
use crate::sql::analysis::Splice;
use crate::sql::lexer::{self, Token, TokenKind};

/// What stands in a relation's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// Index in [`Survey::relations`].
    pub relation: usize,
    /// A name of `pg_temp`, unquoted.
    pub name: String,
}

/// A text with its tokens; comments are left out.
pub struct Tokens<'t> {
    text: &'t str,
    list: Vec<Token>,
}

impl<'t> Tokens<'t> {
    pub fn of(text: &'t str) -> Self {
        Self { text, list: lexer::tokens(text).filter(|token| token.kind != TokenKind::Comment).collect() }
    }

    pub fn iter(&self) -> impl Iterator<Item = (TokenKind, &'t str)> + '_ {
        self.list.iter().map(|token| (token.kind, self.slice(token)))
    }

    fn slice(&self, token: &Token) -> &'t str {
        self.text.get(token.start..token.end).unwrap_or_default()
    }

    fn at(&self, offset: usize) -> Option<usize> {
        self.list.binary_search_by_key(&offset, |token| token.start).ok()
    }

    fn piece(&self, index: Option<usize>) -> &'t str {
        index.and_then(|index| self.list.get(index)).map(|token| self.slice(token)).unwrap_or_default()
    }

    fn is_word(&self, index: Option<usize>, word: &str) -> bool {
        let is_plain = index.and_then(|index| self.list.get(index)).is_some_and(|token| token.kind == TokenKind::Word);
        is_plain && self.piece(index).eq_ignore_ascii_case(word)
    }

    /// The dotted name that begins at a token, and the index of its last one.
    fn dotted(&self, first: usize) -> Option<(Vec<String>, usize)> {
        let mut names = vec![self.identifier(first)?];
        let mut last = first;
        while self.piece(Some(last + 1)) == "." {
            let Some(name) = self.identifier(last + 2) else { break };
            names.push(name);
            last += 2;
        }
        Some((names, last))
    }

    /// A name as PostgreSQL folds it.
    fn identifier(&self, index: usize) -> Option<String> {
        identifier(self.list.get(index)?.kind, self.piece(Some(index)))
    }

    /// The splice that puts `replacement` in the place of a relation in FROM.
    pub fn relation(&self, relation: &RelationUse, replacement: &str) -> Result<Splice, PgError> {
        let first = self.at(relation.location).ok_or_else(unexpected)?;
        let (names, mut last) = self.dotted(first).ok_or_else(unexpected)?;
        let expected: Vec<&str> = relation.schema.as_deref().into_iter().chain([relation.name.as_str()]).collect();
        if names != expected {
            return Err(unexpected());
        }
        let mut first = first;
        if relation.with_children {
            if self.piece(Some(last + 1)) == "*" {
                last += 1;
            }
        } else {
            let before = first.checked_sub(1);
            if self.piece(before) == "(" && self.piece(Some(last + 1)) == ")" {
                first = before.ok_or_else(unexpected)?;
                last += 1;
            }
            first = first.checked_sub(1).filter(|only| self.is_word(Some(*only), "only")).ok_or_else(unexpected)?;
        }
        let command = first.checked_sub(1).filter(|table| self.is_word(Some(*table), "table"));
        let (Some(start), Some(end)) = (self.list.get(command.unwrap_or(first)), self.list.get(last)) else {
            return Err(unexpected());
        };
        let select = if command.is_some() { "SELECT * FROM " } else { "" };
        let alias = match relation.alias {
            Some(_) => String::new(),
            None => format!("AS {} ", quoted_identifier(&relation.name)),
        };
        Ok(Splice { start: start.start, end: end.end, text: format!(" {select}{replacement} {alias}") })
    }

    /// What stands between the innermost parentheses around an offset that begin with one of these words.
    pub fn parenthesised(&self, offset: usize, words: &[&str]) -> Option<Range<usize>> {
        let mut open = self.at(offset)?;
        let mut depth = 0_usize;
        loop {
            open = open.checked_sub(1)?;
            match self.piece(Some(open)) {
                ")" => depth += 1,
                "(" if depth > 0 => depth -= 1,
                "(" if words.iter().any(|word| self.is_word(Some(open + 1), word)) => break,
                "(" => return None,
                _ => {}
            }
        }
        let mut close = open;
        while let Some(token) = self.list.get(close + 1) {
            close += 1;
            match self.slice(token) {
                "(" => depth += 1,
                ")" if depth > 0 => depth -= 1,
                ")" => return Some(self.list.get(open)?.end..token.start),
                _ => {}
            }
        }
        None
    }

    /// `schema.table.column` without its schema.
    pub fn unqualified(&self, column: &ColumnUse) -> Result<Splice, PgError> {
        let first = column.location.and_then(|location| self.at(location)).ok_or_else(unexpected)?;
        let (names, _) = self.dotted(first).ok_or_else(unexpected)?;
        let (Some(start), Some(table)) = (self.list.get(first), self.list.get(first + 2)) else {
            return Err(unexpected());
        };
        if names.first() != column.path.first() || names.get(1) != column.path.get(1) {
            return Err(unexpected());
        }
        Ok(Splice { start: start.start, end: table.start, text: " ".to_owned() })
    }
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
fn cut(mut name: String) -> String {
    if name.len() > NAME_BYTES_MAX {
        name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
    }
    name
}

/// The text with its pieces replaced. `splices` in any order, not overlapping.
pub fn apply(text: &str, splices: &mut [Splice]) -> Result<String, PgError> {
    splices.sort_by_key(|splice| splice.start);
    let mut out = String::with_capacity(text.len() + 32 * splices.len());
    let mut position = 0;
    for splice in splices.iter() {
        out.push_str(text.get(position..splice.start).ok_or_else(unexpected)?);
        out.push_str(&splice.text);
        position = splice.end;
    }
    out.push_str(text.get(position..).ok_or_else(unexpected)?);
    Ok(out)
}

/// What is replaced in a text.
#[derive(Clone, Copy, Debug)]
pub struct Replaced<'r> {
    pub relations: &'r [Replacement],
    /// Columns of the form `schema.table.column` that lose their schema.
    pub shortened: &'r [usize],
    pub computed: &'r [Computed],
}

/// Whether `new` is `old` with these replacements.
pub fn is_same(old: &Survey, new: &Survey, replaced: &Replaced<'_>) -> bool {
    let mut steps = new.trace.iter();
    let mut index = 0;
    while let Some(step) = old.trace.get(index) {
        if let Some(computed) = replaced.computed.iter().find(|computed| computed.inner.steps.start == index) {
            let is_there =
                |step: &Step| steps.next().is_some_and(|new_step| is_same_step(&computed.replaced, step, new, new_step, None));
            if !computed.replaced.trace.iter().all(is_there) {
                return false;
            }
            index = computed.inner.steps.end;
            continue;
        }
        if !steps.next().is_some_and(|new_step| is_same_step(old, step, new, new_step, Some(replaced))) {
            return false;
        }
        index += 1;
    }
    steps.next().is_none()
}

/// Whether a step is the same in another survey, but for what was replaced.
pub fn is_same_step(old: &Survey, old_step: &Step, new: &Survey, new_step: &Step, replaced: Option<&Replaced<'_>>) -> bool {
    match (old_step, new_step) {
        (Step::Relation(a), Step::Relation(b)) => match (old.relations.get(*a), new.relations.get(*b)) {
            (Some(a_use), Some(b_use)) => {
                let mut relations = replaced.into_iter().flat_map(|replaced| replaced.relations);
                match relations.find(|replacement| replacement.relation == *a) {
                    Some(replacement) => is_replaced(a_use, b_use, replacement),
                    None => RelationUse { location: 0, ..a_use.clone() } == RelationUse { location: 0, ..b_use.clone() },
                }
            }
            _ => false,
        },
        (Step::Column(a), Step::Column(b)) => match (old.columns.get(*a), new.columns.get(*b)) {
            (Some(a_use), Some(b_use)) => {
                let skipped = usize::from(replaced.is_some_and(|replaced| replaced.shortened.contains(a)));
                a_use.is_star == b_use.is_star && a_use.path.get(skipped..) == Some(&b_use.path)
            }
            _ => false,
        },
        (Step::Other(a), Step::Other(b)) => a == b,
        (Step::Relation(_) | Step::Column(_) | Step::Other(_), _) => false,
    }
}

fn is_replaced(old: &RelationUse, new: &RelationUse, replacement: &Replacement) -> bool {
    new.schema.as_deref() == Some(TEMPORARY_SCHEMA)
        && new.name == replacement.name
        && new.alias.as_deref() == Some(old.effective_name())
        && new.has_column_aliases == old.has_column_aliases
        && new.with_children
}

/// NAMEDATALEN, without its terminating zero.
const NAME_BYTES_MAX: usize = 63;

pub const TEMPORARY_SCHEMA: &str = "pg_temp";

fn unexpected() -> PgError {
    refusals::unproven("A table's name stands in a form that the proxy does not know.")
}
