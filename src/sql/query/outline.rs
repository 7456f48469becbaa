//! Where the pieces of a SELECT lie in its text: the items of the select list, of GROUP BY and ORDER BY, and what follows.
//!
//! The parse tree says where an expression begins, not where it ends, so the text is walked token by token. Clauses begin with
//! words that PostgreSQL reserves, outside of parentheses; after AS or a dot such a word is a name. What is found is held
//! against the tree: as many items, and the tree's own positions within them. Whatever does not fit has no outline, and the
//! statement is then not taken apart.

use std::ops::Range;

use pg_raw_parse::{Node, nodes};

use crate::sql::parse::lexer::{self, Token, TokenKind};

/// Byte ranges of the text, from first to last token.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// Items of the select list, with their aliases.
    pub targets: Vec<Range<usize>>,
    pub group_items: Vec<Range<usize>>,
    /// Items of ORDER BY, without direction and NULLS.
    pub order_items: Vec<Range<usize>>,
    pub having: Option<Range<usize>>,
    pub limit: Option<Range<usize>>,
    pub offset: Option<Range<usize>>,
    /// FOR UPDATE and its kind, each from its first word on.
    pub locking: Vec<Range<usize>>,
    /// HAVING, WINDOW, ORDER BY, LIMIT and whatever else follows the rows and their groups; empty at the end when nothing does.
    pub tail: Range<usize>,
    /// Within the tail, what follows HAVING.
    pub after_having: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clause {
    Targets,
    /// FROM and WHERE.
    Rows,
    Groups,
    Having,
    Window,
    Order,
    Limit,
    Offset,
    Fetch,
    Locking,
}

impl Outline {
    /// Of a SELECT that is no set operation, or of the tail of one.
    pub fn of(text: &str, select: &nodes::SelectStmt) -> Option<Self> {
        let first = select.target_list().iter().map(|target| target.location).min()?;
        let outline = Walk::over(text, usize::try_from(first).ok()?)?;
        outline.fits(select).then_some(outline)
    }

    /// Where a column can be added to the select list.
    pub fn targets_end(&self) -> usize {
        self.targets.last().map_or(0, |target| target.end)
    }

    fn fits(&self, select: &nodes::SelectStmt) -> bool {
        let targets: Vec<i32> = select.target_list().iter().map(|target| target.location).collect();
        let is_at = |range: &Range<usize>, location: i32| usize::try_from(location).is_ok_and(|location| location == range.start);
        let has_limit = !matches!(select.limit_count(), Node::None);
        self.targets.len() == targets.len()
            && self.targets.iter().zip(targets).all(|(range, location)| is_at(range, location))
            && self.group_items.len() == select.group_clause().len()
            && self.order_items.len() == select.sort_clause().iter().count()
            && self.locking.len() == select.locking_clause().iter().count()
            && self.having.is_some() != matches!(select.having_clause(), Node::None)
            // LIMIT ALL and LIMIT NULL are in the text all the same.
            && (self.limit.is_some() || !has_limit)
            && self.offset.is_some() != matches!(select.limit_offset(), Node::None)
    }
}

/// Tokens that were read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    One,
    Two,
}

struct Walk<'t> {
    text: &'t str,
    clause: Clause,
    clause_start: usize,
    depth: usize,
    /// Tokens of the item that is read.
    item: Vec<Token>,
    /// Where the tail begins, once it has.
    tail: Option<usize>,
    after_having: Option<usize>,
    end: usize,
    outline: Outline,
}

impl<'t> Walk<'t> {
    fn over(text: &'t str, start: usize) -> Option<Outline> {
        let rest = text.get(start..)?;
        // No further than the statement's end: other statements may follow.
        let placed = lexer::tokens(rest).map(|token| Token { start: token.start + start, end: token.end + start, ..token });
        let mut tokens = placed.filter(|token| token.kind != TokenKind::Comment).peekable();
        let mut walk = Walk {
            text,
            clause: Clause::Targets,
            clause_start: start,
            depth: 0,
            item: Vec::new(),
            tail: None,
            after_having: None,
            end: start,
            outline: Outline::default(),
        };
        let mut before: Option<Token> = None;
        while let Some(token) = tokens.next() {
            match walk.token(token, before.as_ref(), tokens.peek())? {
                None => break,
                Some(Taken::One) => before = Some(token),
                Some(Taken::Two) => before = tokens.next(),
            }
        }
        walk.finish()
    }

    fn piece(&self, token: &Token) -> &'t str {
        self.text.get(token.start..token.end).unwrap_or_default()
    }

    fn is_word(&self, token: Option<&Token>, word: &str) -> bool {
        token.is_some_and(|token| token.kind == TokenKind::Word && self.piece(token).eq_ignore_ascii_case(word))
    }

    /// What was taken; `Some(None)` at the end of the statement, `None` where it cannot be followed.
    fn token(&mut self, token: Token, before: Option<&Token>, after: Option<&Token>) -> Option<Option<Taken>> {
        let piece = self.piece(&token);
        match (token.kind, piece) {
            (TokenKind::Symbol, "(" | "[") => self.depth += 1,
            (TokenKind::Symbol, ")" | "]") => self.depth = self.depth.checked_sub(1)?,
            (TokenKind::Symbol, ";") if self.depth == 0 => return Some(None),
            (TokenKind::Symbol, ",") if self.depth == 0 && self.has_items() => {
                self.close_item()?;
                self.end = token.end;
                return Some(Some(Taken::One));
            }
            (TokenKind::Word, word) if self.depth == 0 => {
                let is_name = self.is_word(before, "as") || before.is_some_and(|before| self.piece(before) == ".");
                if !is_name && let Some((clause, words)) = self.clause_at(word, before, after)? {
                    self.close_clause()?;
                    self.begin(clause, token.start);
                    self.end = if words == Taken::Two { after?.end } else { token.end };
                    return Some(Some(words));
                }
            }
            _ => {}
        }
        self.item.push(token);
        self.end = token.end;
        Some(Some(Taken::One))
    }

    fn has_items(&self) -> bool {
        matches!(self.clause, Clause::Targets | Clause::Groups | Clause::Order)
    }

    /// The clause that a word begins, and how many words begin it; `None` for what ends a query in another way.
    fn clause_at(&self, word: &str, before: Option<&Token>, after: Option<&Token>) -> Option<Option<(Clause, Taken)>> {
        let is = |reserved: &str| word.eq_ignore_ascii_case(reserved);
        let clause = if is("from") {
            // IS DISTINCT FROM
            if self.clause != Clause::Targets || self.is_word(before, "distinct") {
                return Some(None);
            }
            (Clause::Rows, Taken::One)
        } else if is("where") {
            (Clause::Rows, Taken::One)
        } else if is("group") {
            if self.is_word(before, "within") {
                return Some(None);
            }
            self.is_word(after, "by").then_some((Clause::Groups, Taken::Two))?
        } else if is("having") {
            (Clause::Having, Taken::One)
        } else if is("window") {
            (Clause::Window, Taken::One)
        } else if is("order") {
            self.is_word(after, "by").then_some((Clause::Order, Taken::Two))?
        } else if is("limit") {
            (Clause::Limit, Taken::One)
        } else if is("offset") {
            (Clause::Offset, Taken::One)
        } else if is("fetch") {
            (Clause::Fetch, Taken::One)
        } else if is("for") {
            (Clause::Locking, Taken::One)
        } else if is("union") || is("intersect") || is("except") || is("into") {
            return None;
        } else {
            return Some(None);
        };
        Some(Some(clause))
    }

    fn begin(&mut self, clause: Clause, start: usize) {
        self.clause = clause;
        self.clause_start = start;
        if !matches!(clause, Clause::Targets | Clause::Rows | Clause::Groups) {
            self.tail.get_or_insert(start);
            if clause != Clause::Having {
                self.after_having.get_or_insert(start);
            }
        }
    }

    fn range(&self) -> Option<Range<usize>> {
        Some(self.item.first()?.start..self.item.last()?.end)
    }

    fn close_item(&mut self) -> Option<()> {
        match self.clause {
            Clause::Targets => self.outline.targets.push(self.range()?),
            Clause::Groups => self.outline.group_items.push(self.range()?),
            Clause::Order => {
                self.drop_direction();
                self.outline.order_items.push(self.range()?);
            }
            Clause::Rows | Clause::Having | Clause::Window | Clause::Limit | Clause::Offset | Clause::Fetch | Clause::Locking => {}
        }
        self.item.clear();
        Some(())
    }

    /// ASC, DESC, NULLS FIRST, NULLS LAST.
    fn drop_direction(&mut self) {
        let is_dotted = |walk: &Self, from_end: usize| {
            let before = walk.item.len().checked_sub(from_end + 1).and_then(|index| walk.item.get(index));
            before.is_some_and(|before| walk.piece(before) == ".")
        };
        let count = self.item.len();
        if count > 2
            && (self.is_word(self.item.last(), "first") || self.is_word(self.item.last(), "last"))
            && self.is_word(self.item.get(count - 2), "nulls")
            && !is_dotted(self, 2)
        {
            self.item.truncate(count - 2);
        }
        if (self.is_word(self.item.last(), "asc") || self.is_word(self.item.last(), "desc")) && !is_dotted(self, 1) {
            self.item.pop();
        }
    }

    fn close_clause(&mut self) -> Option<()> {
        let range = self.range();
        match self.clause {
            Clause::Targets | Clause::Groups | Clause::Order => return self.close_item(),
            Clause::Having => self.outline.having = Some(range?),
            Clause::Limit => self.outline.limit = Some(range?),
            Clause::Offset => self.outline.offset = Some(self.without_rows()?),
            Clause::Fetch => self.outline.limit = self.fetch_count(),
            Clause::Locking => self.outline.locking.push(self.clause_start..range?.end),
            Clause::Rows | Clause::Window => {}
        }
        self.item.clear();
        Some(())
    }

    /// OFFSET n ROWS.
    fn without_rows(&mut self) -> Option<Range<usize>> {
        let is_noise = |token| self.is_word(token, "row") || self.is_word(token, "rows");
        if self.item.len() > 1 && is_noise(self.item.last()) {
            self.item.pop();
        }
        self.range()
    }

    /// FETCH { FIRST | NEXT } [ n ] { ROW | ROWS } { ONLY | WITH TIES }: empty where n is left out.
    fn fetch_count(&self) -> Option<Range<usize>> {
        let first = self.item.get(1)?;
        let end = self.item.iter().rposition(|token| self.is_word(Some(token), "row") || self.is_word(Some(token), "rows"))?;
        if end == 1 {
            return Some(first.start..first.start);
        }
        Some(first.start..self.item.get(end.checked_sub(1)?)?.end)
    }

    fn finish(mut self) -> Option<Outline> {
        if self.depth != 0 {
            return None;
        }
        self.close_clause()?;
        let end = self.end;
        self.outline.tail = self.tail.unwrap_or(end)..end;
        self.outline.after_having = self.after_having.unwrap_or(end)..end;
        Some(self.outline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::parse;

    fn pieces(text: &str) -> Option<String> {
        let tree = parse::parse(text).expect("parses");
        let select = tree.stmts().find_map(|statement| match statement {
            Node::SelectStmt(select) => Some(select),
            _ => None,
        })?;
        let outline = Outline::of(text, select)?;
        let at = |range: &Range<usize>| text[range.clone()].to_owned();
        let list = |ranges: &[Range<usize>]| ranges.iter().map(at).collect::<Vec<_>>().join("|");
        let one = |range: &Option<Range<usize>>| range.as_ref().map(at).unwrap_or_default();
        Some(format!(
            "{} / {} / {} / {} / {} / {} / {}",
            list(&outline.targets),
            list(&outline.group_items),
            one(&outline.having),
            list(&outline.order_items),
            one(&outline.limit),
            one(&outline.offset),
            at(&outline.tail),
        ))
    }

    #[test]
    fn clauses_and_items_are_found() {
        for (text, expected) in [
            ("select a, b from t", "a|b /  /  /  /  /  / "),
            ("select 1", "1 /  /  /  /  /  / "),
            ("with x as (select 1 order by 1) select a from x ;", "a /  /  /  /  /  / "),
            (
                "select a x, count(*) filter (where b) from t where c group by a, (b, c) having f(d) order by 1 desc nulls last, a, b asc limit 3 offset $1",
                "a x|count(*) filter (where b) / a|(b, c) / f(d) / 1|a|b / 3 / $1 / having f(d) order by 1 desc nulls last, a, b asc limit 3 offset $1",
            ),
            ("select a as from, b.order, c is distinct from d from t", "a as from|b.order|c is distinct from d /  /  /  /  /  / "),
            (
                "select percentile_cont(1) within group (order by a) from t order by x.desc",
                "percentile_cont(1) within group (order by a) /  /  / x.desc /  /  / order by x.desc",
            ),
            ("select a -- , b\n, c /* from */ from t order by a -- last\n", "a|c /  /  / a /  /  / order by a"),
            (
                "select a from t order by nulls nulls first, case when a then b end limit all",
                "a /  /  / nulls|case when a then b end / all /  / order by nulls nulls first, case when a then b end limit all",
            ),
            (
                "select a from t order by a offset (1 + 1) rows fetch next 2 rows with ties",
                "a /  /  / a / 2 / (1 + 1) / order by a offset (1 + 1) rows fetch next 2 rows with ties",
            ),
            ("select a from t fetch first row only", "a /  /  /  /  /  / fetch first row only"),
            (
                "select substring(a from 1 for 2), b[1] from t for update",
                "substring(a from 1 for 2)|b[1] /  /  /  /  /  / for update",
            ),
        ] {
            assert_eq!(pieces(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_followed_has_no_outline() {
        for text in ["(select a from t) order by 1", "(select a from t order by 1)", "select from t"] {
            assert_eq!(pieces(text), None, "{text}");
        }
    }
}
