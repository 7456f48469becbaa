//! Where the items of a FROM clause stand in its text: tables with their aliases, joins with their ON.
//!
//! The parse tree says where a name begins and nothing of where an item ends, so the clause is read once more, token by token,
//! with PostgreSQL's grammar of joins (`table_ref` in gram.y). What is read is held against the tree, item by item; what does
//! not agree is not covered.

use pg_raw_parse::list::NodeList;
use pg_raw_parse::{Node, nodes};

use crate::sql::parse::lexer::TokenKind;
use crate::sql::parse::tokens::Tokens;

/// An item of FROM; tokens from first to last, parentheses and alias included.
#[derive(Debug, PartialEq, Eq)]
pub struct Item {
    pub first: usize,
    pub last: usize,
    pub kind: ItemKind,
}

#[derive(Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A name; the token that it begins with.
    Named(usize),
    /// A sub-select or a function.
    Derived,
    Join(Box<JoinItem>),
}

#[derive(Debug, PartialEq, Eq)]
pub struct JoinItem {
    pub left: Item,
    pub right: Item,
    pub kind: JoinKind,
    pub is_natural: bool,
    /// Tokens of the condition behind ON.
    pub on: Option<(usize, usize)>,
    /// Hides the names of its items.
    pub has_alias: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    Inner,
    Left,
    Right,
    Full,
}

/// Words that PostgreSQL reserves and that end an expression in FROM or WHERE.
pub const CLAUSE_WORDS: &[&str] = &[
    "where",
    "group",
    "having",
    "window",
    "union",
    "intersect",
    "except",
    "order",
    "limit",
    "offset",
    "fetch",
    "for",
    "returning",
    "when",
];

/// Words that stand behind an item and are no alias of it.
const NO_ALIAS: &[&str] =
    &["join", "inner", "left", "right", "full", "cross", "natural", "on", "using", "tablesample", "then", "do", "with"];

const DEPTH_MAX: usize = 200;

/// The items of the clause whose first item begins at this token, and the token behind the last one.
pub fn items(tokens: &Tokens<'_>, first: usize) -> Option<(Vec<Item>, usize)> {
    let reader = Reader { tokens };
    let mut items = Vec::new();
    let mut at = first;
    loop {
        let (item, next) = reader.item(at, 0)?;
        items.push(item);
        if tokens.piece(next) != "," {
            return Some((items, next));
        }
        at = next + 1;
    }
}

/// One item, as the source of a MERGE is.
pub fn item(tokens: &Tokens<'_>, first: usize) -> Option<(Item, usize)> {
    Reader { tokens }.item(first, 0)
}

/// The last token of the expression that begins at this one. CASE … END counts as a parenthesis.
pub fn expression_end(tokens: &Tokens<'_>, first: usize, ends: &[&str]) -> Option<usize> {
    let mut at = first;
    let mut cases = 0_usize;
    while at < tokens.count() {
        let is_name = at > first && tokens.piece(at - 1) == ".";
        match tokens.piece(at) {
            "(" | "[" => at = tokens.closing(at)?,
            ")" | "]" | ";" => break,
            "," if cases == 0 => break,
            _ if is_name => {}
            _ if tokens.is_word(at, "case") => cases += 1,
            _ if tokens.is_word(at, "end") && cases > 0 => cases -= 1,
            _ if cases > 0 => {}
            _ if tokens.is_one_of(at, CLAUSE_WORDS) || tokens.is_one_of(at, ends) || begins_join(tokens, at) => break,
            _ => {}
        }
        at += 1;
    }
    (cases == 0 && at > first).then(|| at - 1)
}

/// JOIN, or the words before it; not the functions left() and right().
fn begins_join(tokens: &Tokens<'_>, at: usize) -> bool {
    tokens.is_one_of(at, &["join", "cross", "natural"])
        || (tokens.is_one_of(at, &["inner", "left", "right", "full"]) && tokens.is_one_of(at + 1, &["join", "outer"]))
}

struct Reader<'t> {
    tokens: &'t Tokens<'t>,
}

impl Reader<'_> {
    fn item(&self, first: usize, depth: usize) -> Option<(Item, usize)> {
        if depth > DEPTH_MAX {
            return None;
        }
        let (mut left, mut at) = self.primary(first, depth)?;
        while let Some((kind, is_natural, is_cross, after)) = self.join_words(at) {
            let (right, next) = if is_natural || is_cross { self.primary(after, depth + 1)? } else { self.item(after, depth + 1)? };
            let mut last = right.last;
            let mut on = None;
            at = next;
            if self.tokens.is_word(at, "on") {
                last = expression_end(self.tokens, at + 1, &["on", "using"])?;
                on = Some((at + 1, last));
                at = last + 1;
            } else if self.tokens.is_word(at, "using") {
                last = self.tokens.closing(at + 1)?;
                at = last + 1;
                if self.tokens.is_word(at, "as") {
                    last = at + 1;
                    at += 2;
                }
            }
            let join = JoinItem { left, right, kind, is_natural, on, has_alias: false };
            left = Item { first: join.left.first, last, kind: ItemKind::Join(Box::new(join)) };
        }
        Some((left, at))
    }

    /// Kind, NATURAL, CROSS, and the token behind the words.
    fn join_words(&self, first: usize) -> Option<(JoinKind, bool, bool, usize)> {
        let mut at = first;
        let is_natural = self.tokens.is_word(at, "natural");
        at += usize::from(is_natural);
        let is_cross = self.tokens.is_word(at, "cross");
        let kinds = [("inner", JoinKind::Inner), ("left", JoinKind::Left), ("right", JoinKind::Right), ("full", JoinKind::Full)];
        let named = kinds.into_iter().find(|(word, _)| self.tokens.is_word(at, word));
        at += usize::from(is_cross || named.is_some());
        at += usize::from(named.is_some() && self.tokens.is_word(at, "outer"));
        let kind = named.map_or(JoinKind::Inner, |(_, kind)| kind);
        self.tokens.is_word(at, "join").then_some((kind, is_natural, is_cross, at + 1))
    }

    fn primary(&self, first: usize, depth: usize) -> Option<(Item, usize)> {
        let tokens = self.tokens;
        let start = first + usize::from(tokens.is_word(first, "lateral"));
        if tokens.piece(start) == "(" {
            let close = tokens.closing(start)?;
            if self.is_query(start, 0)? {
                let last = self.alias_end(close);
                return Some((Item { first, last, kind: ItemKind::Derived }, last + 1));
            }
            let (mut inner, next) = self.item(start + 1, depth + 1)?;
            if next != close {
                return None;
            }
            let last = self.alias_end(close);
            if let ItemKind::Join(join) = &mut inner.kind {
                join.has_alias |= last > close;
            }
            return Some((Item { first, last, kind: inner.kind }, last + 1));
        }
        if tokens.is_word(start, "rows") && tokens.is_word(start + 1, "from") && tokens.piece(start + 2) == "(" {
            return self.function(first, tokens.closing(start + 2)?);
        }
        let only = tokens.is_word(start, "only");
        if only && tokens.piece(start + 1) == "(" {
            return self.table(first, start + 2, tokens.closing(start + 1)?);
        }
        let name = start + usize::from(only);
        tokens.identifier(name)?;
        let end = tokens.name_end(name);
        if tokens.piece(end + 1) == "(" {
            return self.function(first, tokens.closing(end + 1)?);
        }
        self.table(first, name, end + usize::from(tokens.piece(end + 1) == "*"))
    }

    fn table(&self, first: usize, name: usize, end: usize) -> Option<(Item, usize)> {
        let mut last = self.alias_end(end);
        if self.tokens.is_word(last + 1, "tablesample") {
            last = self.tokens.closing(self.tokens.name_end(last + 2) + 1)?;
            if self.tokens.is_word(last + 1, "repeatable") {
                last = self.tokens.closing(last + 2)?;
            }
        }
        Some((Item { first, last, kind: ItemKind::Named(name) }, last + 1))
    }

    fn function(&self, first: usize, close: usize) -> Option<(Item, usize)> {
        let has_ordinality = self.tokens.is_word(close + 1, "with") && self.tokens.is_word(close + 2, "ordinality");
        let last = self.alias_end(close + 2 * usize::from(has_ordinality));
        Some((Item { first, last, kind: ItemKind::Derived }, last + 1))
    }

    /// The last token of the alias behind this one, or this one.
    fn alias_end(&self, end: usize) -> usize {
        let tokens = self.tokens;
        let mut last = end;
        if tokens.is_word(end + 1, "as") {
            last = end + 1;
        }
        let is_name = match tokens.get(last + 1).map(|token| token.kind) {
            Some(TokenKind::QuotedIdentifier) => true,
            Some(TokenKind::Word) => !tokens.is_one_of(last + 1, NO_ALIAS) && !tokens.is_one_of(last + 1, CLAUSE_WORDS),
            _ => false,
        };
        last += usize::from(is_name);
        if last > end && tokens.piece(last + 1) == "(" { tokens.closing(last + 1).unwrap_or(last) } else { last }
    }

    /// Does this parenthesis hold a query, and not a join?
    fn is_query(&self, open: usize, depth: usize) -> Option<bool> {
        let tokens = self.tokens;
        if tokens.is_one_of(open + 1, &["select", "values", "with", "table"]) {
            return Some(true);
        }
        if tokens.piece(open + 1) != "(" || depth > DEPTH_MAX {
            return Some(false);
        }
        let behind = tokens.closing(open + 1)? + 1;
        let goes_on = ["union", "intersect", "except", "order", "limit", "offset", "fetch", "for"];
        let ends = tokens.piece(behind) == ")";
        Some((ends || tokens.is_one_of(behind, &goes_on)) && self.is_query(open + 1, depth + 1)?)
    }
}

/// Are these the items of the tree?
pub fn agree(tokens: &Tokens<'_>, items: &[Item], tree: &NodeList) -> bool {
    items.len() == tree.len() && items.iter().zip(tree.iter()).all(|(item, node)| agrees(tokens, item, node))
}

pub fn agrees(tokens: &Tokens<'_>, item: &Item, node: Node<'_>) -> bool {
    match (&item.kind, node) {
        (ItemKind::Named(name), Node::RangeVar(table)) => tokens.at_location(table.location) == Some(*name),
        (ItemKind::Named(_), Node::RangeTableSample(sample)) => agrees(tokens, item, sample.relation()),
        (ItemKind::Derived, other) => !matches!(other, Node::RangeVar(_) | Node::RangeTableSample(_) | Node::JoinExpr(_)),
        (ItemKind::Join(item), Node::JoinExpr(join)) => {
            kind_of(join) == Some(item.kind)
                && join.is_natural == item.is_natural
                && item.on.is_some() != matches!(join.quals(), Node::None)
                && item.has_alias == join.alias().is_some()
                && agrees(tokens, &item.left, join.larg())
                && agrees(tokens, &item.right, join.rarg())
        }
        (ItemKind::Named(_) | ItemKind::Join(_), _) => false,
    }
}

fn kind_of(join: &nodes::JoinExpr) -> Option<JoinKind> {
    match join.jointype {
        nodes::JoinType::JOIN_INNER => Some(JoinKind::Inner),
        nodes::JoinType::JOIN_LEFT => Some(JoinKind::Left),
        nodes::JoinType::JOIN_RIGHT => Some(JoinKind::Right),
        nodes::JoinType::JOIN_FULL => Some(JoinKind::Full),
        _ => None,
    }
}
