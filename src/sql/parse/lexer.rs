//! One pass over a statement's bytes that finds its literals, so that texts which differ only in them share one analysis.
//!
//! Follows PostgreSQL's `scan.l` with `standard_conforming_strings` on (the proxy refuses to turn it off): strings in every
//! notation with their continuation over lines, dollar quotes, quoted identifiers, nested comments, numbers, parameters.
//! Literals are numbers and strings; TRUE, FALSE and NULL are keywords. A sign is not part of a number.
//!
//! [`scan`] hashes everything but the literals' bytes: two texts whose [`Scanned`] agree in `hash` are *probably* alike, and
//! [`same_shape`] says whether they are; nothing is decided by the hash alone. Bytes that PostgreSQL would refuse (an
//! unterminated string) make a token up to the end of the text; the parser, not this, reports them.
//!
//! Invariant: for every text that PostgreSQL accepts, literals begin and end exactly where PostgreSQL's tokens do. The parser's
//! token positions are compared with these in the tests.

use smallvec::SmallVec;

/// What [`scan`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// Of all bytes outside literals, and of the literals' classes.
    pub hash: u128,
    /// In the order of the text; [`crate::sql::analysis::KeyValue::Literal`] counts them from 0.
    pub literals: Literals,
}

pub type Literals = SmallVec<[Literal; 8]>;

/// A number or string of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Literal {
    /// Byte offsets, quotes and prefix included.
    pub start: u32,
    pub end: u32,
    pub class: LiteralClass,
}

/// What PostgreSQL makes of a literal before it knows its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LiteralClass {
    /// Fits `int4`.
    Integer,
    /// Fits `int8` and not `int4`.
    BigInteger,
    /// Decimal, with an exponent, or too large for `int8`.
    Numeric,
    /// `'…'`, `E'…'` or a dollar quote: of type unknown.
    String,
    /// Bit strings, `U&'…'`, and numbers in notations that PostgreSQL 15 does not know: never used for routing.
    Other,
}

/// Texts longer than this are scanned, but never shared by shape.
pub const SHAPE_BYTES_MAX: usize = 8 * 1024;

/// Texts with more literals than this are never shared by shape.
pub const SHAPE_LITERALS_MAX: usize = 1000;

/// A token, as far as this lexer distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    Literal(LiteralClass),
    /// Keyword or identifier, not quoted.
    Word,
    QuotedIdentifier,
    Parameter,
    Comment,
    /// One character of an operator or of punctuation, or `..`.
    Symbol,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub kind: TokenKind,
    pub start: usize,
    pub end: usize,
}

/// Finds the literals and hashes the rest.
pub fn scan(text: &str) -> Scanned {
    let bytes = text.as_bytes();
    let mut hasher = ShapeHasher::new();
    let mut literals = Literals::new();
    let mut segment_start = 0;
    let mut position = 0;
    while position < bytes.len() {
        let (kind, end) = next(bytes, position);
        if let Some(TokenKind::Literal(class)) = kind {
            hasher.segment(bytes.get(segment_start..position).unwrap_or_default());
            hasher.literal(class);
            literals.push(Literal { start: offset(position), end: offset(end), class });
            segment_start = end;
        }
        position = end;
    }
    hasher.segment(bytes.get(segment_start..).unwrap_or_default());
    Scanned { hash: hasher.finish(), literals }
}

/// Two texts are equal outside their literals, and their literals have the same classes.
pub fn same_shape(a: &str, a_literals: &[Literal], b: &str, b_literals: &[Literal]) -> bool {
    if a_literals.len() != b_literals.len() {
        return false;
    }
    let (mut a_from, mut b_from) = (0, 0);
    for (in_a, in_b) in a_literals.iter().zip(b_literals) {
        if in_a.class != in_b.class
            || a.as_bytes().get(a_from..in_a.start as usize) != b.as_bytes().get(b_from..in_b.start as usize)
        {
            return false;
        }
        (a_from, b_from) = (in_a.end as usize, in_b.end as usize);
    }
    a.as_bytes().get(a_from..) == b.as_bytes().get(b_from..)
}

/// The literals of a text that has the shape of this known one: then, and only then, what [`scan`] finds in it. `None`: they may
/// be alike all the same.
///
/// Only the literals are lexed; what is between them is compared. The known text's tokens end before each of its literals, and
/// the other text has the same tokens there, as no token looks further ahead than at what kind of byte the literal begins with.
pub fn literals_like(known: &str, known_literals: &[Literal], text: &str) -> Option<Literals> {
    let (known, bytes) = (known.as_bytes(), text.as_bytes());
    let mut literals = Literals::new();
    let (mut known_from, mut from) = (0, 0);
    for literal in known_literals {
        let known_start = literal.start as usize;
        let between = known.get(known_from..known_start)?;
        let start = from + between.len();
        if bytes.get(from..start)? != between || class_of(*bytes.get(start)?) != class_of(*known.get(known_start)?) {
            return None;
        }
        let (kind, end) = next(bytes, start);
        if kind != Some(TokenKind::Literal(literal.class)) {
            return None;
        }
        literals.push(Literal { start: offset(start), end: offset(end), class: literal.class });
        (known_from, from) = (literal.end as usize, end);
    }
    (bytes.get(from..)? == known.get(known_from..)?).then_some(literals)
}

/// Every token of the text, comments included, white space left out.
pub fn tokens(text: &str) -> impl Iterator<Item = Token> + '_ {
    let bytes = text.as_bytes();
    let mut position = 0;
    std::iter::from_fn(move || {
        while position < bytes.len() {
            let start = position;
            let (kind, end) = next(bytes, start);
            position = end;
            if let Some(kind) = kind {
                return Some(Token { kind, start, end });
            }
        }
        None
    })
}

/// The token, or white space (`None`), that begins at `position`, and where it ends. Always advances.
#[inline]
fn next(bytes: &[u8], position: usize) -> (Option<TokenKind>, usize) {
    let Some(&first) = bytes.get(position) else {
        return (None, bytes.len() + 1);
    };
    match class_of(first) {
        Class::Space => {
            let mut end = position + 1;
            while bytes.get(end).is_some_and(|&byte| class_of(byte) == Class::Space) {
                end += 1;
            }
            (None, end)
        }
        Class::Letter => word(bytes, position),
        Class::Digit => number(bytes, position),
        Class::Quote => (Some(TokenKind::Literal(LiteralClass::String)), string_end(bytes, position + 1, false)),
        Class::DoubleQuote => (Some(TokenKind::QuotedIdentifier), quoted_identifier_end(bytes, position + 1)),
        Class::Dollar => dollar(bytes, position),
        Class::Dot if bytes.get(position + 1) == Some(&b'.') => (Some(TokenKind::Symbol), position + 2),
        Class::Dot if bytes.get(position + 1).is_some_and(u8::is_ascii_digit) => number(bytes, position),
        Class::Minus if bytes.get(position + 1) == Some(&b'-') => (Some(TokenKind::Comment), line_comment_end(bytes, position)),
        Class::Slash if bytes.get(position + 1) == Some(&b'*') => (Some(TokenKind::Comment), block_comment_end(bytes, position)),
        Class::Dot | Class::Minus | Class::Slash | Class::Symbol => (Some(TokenKind::Symbol), position + 1),
    }
}

#[inline]
fn word(bytes: &[u8], position: usize) -> (Option<TokenKind>, usize) {
    let mut end = position + 1;
    while bytes.get(end).is_some_and(|&byte| IDENTIFIER[byte as usize]) {
        end += 1;
    }
    if end == position + 1 {
        match (bytes.get(position), bytes.get(end)) {
            (Some(b'e' | b'E'), Some(b'\'')) => {
                return (Some(TokenKind::Literal(LiteralClass::String)), string_end(bytes, end + 1, true));
            }
            (Some(b'b' | b'B' | b'x' | b'X'), Some(b'\'')) => {
                return (Some(TokenKind::Literal(LiteralClass::Other)), string_end(bytes, end + 1, false));
            }
            (Some(b'u' | b'U'), Some(b'&')) => match bytes.get(end + 1) {
                Some(b'\'') => return (Some(TokenKind::Literal(LiteralClass::Other)), string_end(bytes, end + 2, false)),
                Some(b'"') => return (Some(TokenKind::QuotedIdentifier), quoted_identifier_end(bytes, end + 2)),
                _ => {}
            },
            // N'…' is the keyword NCHAR and a string of its own.
            _ => {}
        }
    }
    (Some(TokenKind::Word), end)
}

/// A number that begins with a digit or with a dot before a digit.
fn number(bytes: &[u8], position: usize) -> (Option<TokenKind>, usize) {
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let digits_end = |mut at: usize| {
        while is_digit(at) || (bytes.get(at) == Some(&b'_') && is_digit(at + 1)) {
            at += 1;
        }
        at
    };
    if bytes.get(position) == Some(&b'0') && bytes.get(position + 1).is_some_and(|byte| b"xXoObB".contains(byte)) {
        let mut end = position + 2;
        while bytes.get(end).is_some_and(|byte| byte.is_ascii_hexdigit() || *byte == b'_') {
            end += 1;
        }
        return (Some(TokenKind::Literal(LiteralClass::Other)), end);
    }
    let mut end = digits_end(position);
    let mut is_integer = end > position;
    // `1..2` is 1, two dots, 2.
    if bytes.get(end) == Some(&b'.') && bytes.get(end + 1) != Some(&b'.') {
        is_integer = false;
        end = digits_end(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        if is_digit(end + 1 + sign) {
            is_integer = false;
            end = digits_end(end + 1 + sign);
        }
    }
    let digits = bytes.get(position..end).unwrap_or_default();
    (Some(TokenKind::Literal(number_class(digits, is_integer))), end)
}

fn number_class(digits: &[u8], is_integer: bool) -> LiteralClass {
    if digits.contains(&b'_') {
        return LiteralClass::Other;
    }
    if !is_integer {
        return LiteralClass::Numeric;
    }
    let mut value: u64 = 0;
    for digit in digits {
        match value.checked_mul(10).and_then(|value| value.checked_add(u64::from(digit.wrapping_sub(b'0')))) {
            Some(next) => value = next,
            None => return LiteralClass::Numeric,
        }
    }
    if i32::try_from(value).is_ok() {
        LiteralClass::Integer
    } else if i64::try_from(value).is_ok() {
        LiteralClass::BigInteger
    } else {
        LiteralClass::Numeric
    }
}

/// Where the string ends whose first character is at `position`, with the pieces that continue it on later lines.
fn string_end(bytes: &[u8], mut position: usize, has_escapes: bool) -> usize {
    loop {
        match bytes.get(position) {
            None => return bytes.len(),
            Some(b'\\') if has_escapes => position += 2,
            Some(b'\'') if bytes.get(position + 1) == Some(&b'\'') => position += 2,
            Some(b'\'') => match continuation(bytes, position + 1) {
                Some(next) => position = next,
                None => return position + 1,
            },
            Some(_) => position += 1,
        }
    }
}

/// After a closing quote: white space with a line break, and another quote. Where the next piece's characters begin.
fn continuation(bytes: &[u8], mut position: usize) -> Option<usize> {
    let mut has_newline = false;
    loop {
        match bytes.get(position)? {
            b'\n' | b'\r' => {
                has_newline = true;
                position += 1;
            }
            b' ' | b'\t' | 0x0b | 0x0c => position += 1,
            b'-' if bytes.get(position + 1) == Some(&b'-') => position = line_comment_end(bytes, position),
            b'\'' if has_newline => return Some(position + 1),
            _ => return None,
        }
    }
}

fn quoted_identifier_end(bytes: &[u8], mut position: usize) -> usize {
    loop {
        match bytes.get(position) {
            None => return bytes.len(),
            Some(b'"') if bytes.get(position + 1) == Some(&b'"') => position += 2,
            Some(b'"') => return position + 1,
            Some(_) => position += 1,
        }
    }
}

/// `$1`, `$tag$…$tag$`, or a lone dollar.
fn dollar(bytes: &[u8], position: usize) -> (Option<TokenKind>, usize) {
    let mut end = position + 1;
    if bytes.get(end).is_some_and(u8::is_ascii_digit) {
        while bytes.get(end).is_some_and(u8::is_ascii_digit) {
            end += 1;
        }
        return (Some(TokenKind::Parameter), end);
    }
    while bytes.get(end).is_some_and(|&byte| IDENTIFIER[byte as usize] && byte != b'$') {
        end += 1;
    }
    if bytes.get(end) != Some(&b'$') {
        return (Some(TokenKind::Symbol), position + 1);
    }
    let tag = bytes.get(position..=end).unwrap_or_default();
    let body = bytes.get(end + 1..).unwrap_or_default();
    let end = match find(body, tag) {
        Some(at) => end + 1 + at + tag.len(),
        None => bytes.len(),
    };
    (Some(TokenKind::Literal(LiteralClass::String)), end)
}

/// First place of `needle`, which begins with a dollar sign that occurs again only at its end.
fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + haystack.get(from..)?.iter().position(|&byte| byte == b'$')?;
        if haystack.get(at..)?.starts_with(needle) {
            return Some(at);
        }
        from = at + 1;
    }
}

fn line_comment_end(bytes: &[u8], position: usize) -> usize {
    let rest = bytes.get(position..).unwrap_or_default();
    rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).map_or(bytes.len(), |length| position + length)
}

fn block_comment_end(bytes: &[u8], mut position: usize) -> usize {
    let mut depth = 0usize;
    loop {
        match (bytes.get(position), bytes.get(position + 1)) {
            (Some(b'/'), Some(b'*')) => {
                depth += 1;
                position += 2;
            }
            (Some(b'*'), Some(b'/')) => {
                depth -= 1;
                position += 2;
                if depth == 0 {
                    return position;
                }
            }
            (Some(_), _) => position += 1,
            (None, _) => return bytes.len(),
        }
    }
}

/// Offsets fit: the wire allows no message of 4 GiB, and an offset that did not fit would match nothing.
fn offset(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Space,
    Letter,
    Digit,
    Quote,
    DoubleQuote,
    Dollar,
    Dot,
    Minus,
    Slash,
    Symbol,
}

#[inline]
fn class_of(byte: u8) -> Class {
    CLASSES[byte as usize]
}

const CLASSES: [Class; 256] = {
    let mut classes = [Class::Symbol; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => Class::Space,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80..=0xff => Class::Letter,
            b'0'..=b'9' => Class::Digit,
            b'\'' => Class::Quote,
            b'"' => Class::DoubleQuote,
            b'$' => Class::Dollar,
            b'.' => Class::Dot,
            b'-' => Class::Minus,
            b'/' => Class::Slash,
            _ => Class::Symbol,
        };
        byte += 1;
    }
    classes
};

/// Bytes that go on with an identifier.
const IDENTIFIER: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(byte as u8, b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'0'..=b'9' | b'$' | 0x80..=0xff);
        byte += 1;
    }
    table
};

/// Two lanes of multiply-and-fold over eight bytes at a time. Not secret and not collision-proof: see [`same_shape`].
struct ShapeHasher {
    low: u64,
    high: u64,
}

impl ShapeHasher {
    const K0: u64 = 0xa076_1d64_78bd_642f;
    const K1: u64 = 0xe703_7ed1_a0b4_28db;

    fn new() -> Self {
        Self { low: 0x8ebc_6af0_9c88_c6e3, high: 0x5899_65cc_7537_4cc3 }
    }

    #[inline]
    fn segment(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.word(chunk.try_into().map(u64::from_le_bytes).unwrap_or_default());
        }
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(chunks.remainder()) {
            *to = *from;
        }
        self.word(u64::from_le_bytes(last));
        self.word(bytes.len() as u64);
    }

    fn literal(&mut self, class: LiteralClass) {
        self.word(0x51 + class as u64);
    }

    #[inline]
    fn word(&mut self, word: u64) {
        self.low = fold(self.low ^ word, Self::K0);
        self.high = fold(self.high.rotate_left(23) ^ word, Self::K1);
    }

    fn finish(&self) -> u128 {
        (u128::from(self.high) << 64) | u128::from(self.low)
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literals(text: &str) -> Vec<(&str, LiteralClass)> {
        scan(text).literals.iter().map(|literal| (&text[literal.start as usize..literal.end as usize], literal.class)).collect()
    }

    #[test]
    fn literals_begin_and_end_where_postgresql_says() {
        use LiteralClass::*;
        let cases: &[(&str, &[(&str, LiteralClass)])] = &[
            ("select 1", &[("1", Integer)]),
            ("select t1.c2 from t3", &[]),
            ("select $1, a$2, $3x", &[]),
            ("a-1", &[("1", Integer)]),
            ("-1", &[("1", Integer)]),
            (
                "1.5 .5 1. 1e5 1.e5 .5E-3 1e+2",
                &[
                    ("1.5", Numeric),
                    (".5", Numeric),
                    ("1.", Numeric),
                    ("1e5", Numeric),
                    ("1.e5", Numeric),
                    (".5E-3", Numeric),
                    ("1e+2", Numeric),
                ],
            ),
            ("1..2", &[("1", Integer), ("2", Integer)]),
            ("1...5", &[("1", Integer), (".5", Numeric)]),
            (
                "2147483647 2147483648 9223372036854775807 9223372036854775808",
                &[
                    ("2147483647", Integer),
                    ("2147483648", BigInteger),
                    ("9223372036854775807", BigInteger),
                    ("9223372036854775808", Numeric),
                ],
            ),
            ("007", &[("007", Integer)]),
            ("0x1F 1_000 0b11", &[("0x1F", Other), ("1_000", Other), ("0b11", Other)]),
            ("'it''s' 'a\\'", &[("'it''s'", String), ("'a\\'", String)]),
            ("E'a\\'b' e'\\\\'", &[("E'a\\'b'", String), ("e'\\\\'", String)]),
            ("te'a'", &[("'a'", String)]),
            (
                "B'01' x'1F' N'a' U&'d\\0061' U&\"x\"",
                &[("B'01'", Other), ("x'1F'", Other), ("'a'", String), ("U&'d\\0061'", Other)],
            ),
            ("'a'\n'b'", &[("'a'\n'b'", String)]),
            ("'a' -- c '\n  'b' 'c'", &[("'a' -- c '\n  'b'", String), ("'c'", String)]),
            ("'a' 'b'", &[("'a'", String), ("'b'", String)]),
            ("'a'/*x*/\n'b'", &[("'a'", String), ("'b'", String)]),
            ("$$a'b$$ $x$ $$ $y$ $x$", &[("$$a'b$$", String), ("$x$ $$ $y$ $x$", String)]),
            ("a$$b$$", &[]),
            ("/* 1 /* '2' */ 3 */ 4 -- 5\n6", &[("4", Integer), ("6", Integer)]),
            ("\"a1 '2' \"\"3\" 4", &[("4", Integer)]),
            ("a+--1\n2", &[("2", Integer)]),
            ("a*/*1*/2", &[("2", Integer)]),
            ("été1 = 2", &[("2", Integer)]),
            ("'open", &[("'open", String)]),
            ("E'open\\", &[("E'open\\", String)]),
            ("$$open", &[("$$open", String)]),
            ("/* open 1", &[]),
            ("\"open 1", &[]),
            ("", &[]),
        ];
        for (text, expected) in cases {
            assert_eq!(&literals(text), expected, "in {text}");
        }
    }

    #[test]
    fn hash_depends_on_everything_but_the_literals_bytes() {
        let same = [("select 1 from t", "select 22 from t"), ("select 'a''b'", "select ''"), ("k=1 and l='x'", "k=2 and l='y'")];
        for (a, b) in same {
            let (in_a, in_b) = (scan(a), scan(b));
            assert_eq!(in_a.hash, in_b.hash, "{a} / {b}");
            assert!(same_shape(a, &in_a.literals, b, &in_b.literals));
        }
        let different = [
            ("select 1 from t", "select 1 from u"),
            ("select 1", "select 1.5"),
            ("select 1", "select 3000000000"),
            ("select 1", "select '1'"),
            ("select 1 /* a */", "select 1 /* b */"),
            ("select 1", "select -1"),
            ("select 1, 2", "select 1,2"),
            ("select 1", "select 1 "),
            ("select 1, 1", "select 1"),
            ("1a", "a1"),
            ("", " "),
            ("a b", "ab "),
        ];
        for (a, b) in different {
            let (in_a, in_b) = (scan(a), scan(b));
            assert_ne!(in_a.hash, in_b.hash, "{a} / {b}");
            assert!(!same_shape(a, &in_a.literals, b, &in_b.literals));
        }
    }

    #[test]
    fn tokens_cover_the_text_in_order() {
        let kinds: Vec<TokenKind> = tokens("select \"A\", $1 /* x */ from t -- end").map(|token| token.kind).collect();
        use TokenKind::*;
        assert_eq!(kinds, [Word, QuotedIdentifier, Symbol, Parameter, Comment, Word, Word, Comment]);
    }

    #[test]
    fn a_text_like_a_known_one_has_the_literals_that_a_scan_finds() {
        let like = |known: &str, text: &str| literals_like(known, &scan(known).literals, text);
        for (known, text) in [
            ("", ""),
            ("select 1", "select 23"),
            ("k=1 and l='x'", "k=2 and l='y''z'"),
            ("select 'a', E'b'", "select 'c'\n'd', e'\\''"),
            ("select .5, 1..2", "select .7, 3..4"),
        ] {
            assert_eq!(like(known, text), Some(scan(text).literals), "{known} / {text}");
        }
        for (known, text) in [
            ("select 1", "select 1.5"),
            ("select 1", "select 1 "),
            ("select 1", "select"),
            ("select 1", "select 'a'"),
            ("date'1'", "dateE'1'"),
            ("$1'a'", "$1$$a$$"),
            ("a -1", "a --1"),
            ("select 'a' b", "select 'a"),
        ] {
            assert_eq!(like(known, text), None, "{known} / {text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_found_like_a_known_text_is_what_a_scan_finds(
            between in proptest::collection::vec("[ \\na-c0-2eEuxN&'\"$.*/+-]{0,4}", 1..4),
            known in proptest::collection::vec("[0-2]{1,2}(\\.[0-2])?|\\.[0-2]|[eEuxN]?&?'[a'\\\\]{0,3}'|\\$[a]?\\$[1$a]{0,4}", 4),
            other in proptest::collection::vec("[0-2]{1,2}(\\.[0-2])?|\\.[0-2]|[eEuxN]?&?'[a'\\\\]{0,3}'|\\$[a]?\\$[1$a]{0,4}", 4),
        ) {
            let text = |literals: &[String]| -> String { between.iter().zip(literals).map(|(a, b)| format!("{a}{b}")).collect() };
            let (known, other) = (text(&known), text(&other));
            let (in_known, in_other) = (scan(&known).literals, scan(&other).literals);
            if let Some(found) = literals_like(&known, &in_known, &other) {
                proptest::prop_assert_eq!(&found, &in_other);
                proptest::prop_assert!(same_shape(&known, &in_known, &other, &in_other));
            }
            if in_known.iter().all(|literal| literal.end as usize <= known.len()) {
                proptest::prop_assert_eq!(literals_like(&known, &in_known, &known), Some(in_known));
            }
        }

        #[test]
        fn any_text_is_scanned_to_its_end(text in "[ \\ta-c0-9eExX'\"$.*/\\\\\\n&-]{0,40}|.{0,40}") {
            let mut end = 0;
            for token in tokens(&text) {
                proptest::prop_assert!(token.start >= end && token.end > token.start);
                end = token.end;
            }
            for literal in scan(&text).literals {
                proptest::prop_assert!(literal.end as usize <= text.len() + 1);
            }
        }
    }
}
