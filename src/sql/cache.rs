//! The readings of all sessions, kept: by exact text, and by shape where literals decide nothing.
//!
//! A text that is in no cache is read twice, by two parsers, before a condition may narrow it ([`super::second`]).

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use metrics::Counter;
use moka::sync::Cache;

use super::analysis::{Analysis, Command, Opinion};
use super::context::Context;
use super::parse;
use super::parse::lexer::{self, Literal, Literals, SHAPE_BYTES_MAX, SHAPE_LITERALS_MAX, Scanned};
use super::statement::{self, Source};
use crate::error::PgError;

/// Every statement of a text.
#[derive(Debug)]
pub struct Analyzed {
    /// Empty for a text of blanks and comments.
    pub statements: Vec<Analysis>,
    /// One statement, and other texts of its shape may share it: `start` is 0 and `end` beyond every text then, so the
    /// statement is the whole text.
    pub is_template: bool,
    /// The text that was read, with its literals: a text is served by a template only when it agrees outside literals, and
    /// inside those of `fixed_literals`.
    text: Box<str>,
    literals: Literals,
    fixed_literals: Vec<u32>,
}

/// A text's reading, with the literals of this very text.
#[derive(Clone, Debug)]
pub struct Read {
    pub analyzed: Arc<Analyzed>,
    pub literals: Literals,
}

/// Reads texts, each once. Shared by all sessions.
pub struct Analyzer {
    texts: Cache<TextKey, Arc<Analyzed>>,
    shapes: Cache<ShapeKey, Arc<Shape>>,
    /// Statements whose two readings differ.
    disagreements: Counter,
}

#[derive(PartialEq, Eq, Hash)]
struct TextKey {
    context: u64,
    text: Box<str>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ShapeKey {
    context: u64,
    hash: u128,
}

/// Templates of one shape that differ in the literals that their reading depends on.
struct Shape {
    variants: Vec<Arc<Analyzed>>,
}

/// The templates that one session has used last, found without asking the cache that all sessions share.
#[derive(Default)]
pub struct RecentTemplates {
    /// With the context that it was read in.
    templates: Vec<(u64, Arc<Analyzed>)>,
    next: usize,
}

impl RecentTemplates {
    fn read(&self, text: &str, context: u64) -> Option<Read> {
        let mut known = self.templates.iter().filter(|(known, _)| *known == context);
        known.find_map(|(_, template)| {
            let literals = lexer::literals_like(&template.text, &template.literals, text)?;
            let serves = template.has_fixed_of(text, &literals);
            serves.then(|| Read { analyzed: Arc::clone(template), literals })
        })
    }

    fn add(&mut self, context: u64, template: Arc<Analyzed>) -> Arc<Analyzed> {
        let entry = (context, Arc::clone(&template));
        match self.templates.get_mut(self.next) {
            Some(oldest) => *oldest = entry,
            None => self.templates.push(entry),
        }
        self.next = (self.next + 1) % RECENT_MAX;
        template
    }
}

const RECENT_MAX: usize = 4;
/// Memory that each of the two caches may take, by [`weight`].
const CACHE_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Longer texts are read each time: they are loads, not statements that come again.
const CACHED_TEXT_BYTES_MAX: usize = 64 * 1024;
const SHAPE_VARIANTS_MAX: usize = 8;

impl Default for Analyzer {
    fn default() -> Self {
        Self::new()
    }
}

impl Analyzer {
    /// Counts nothing.
    pub fn new() -> Self {
        Self::counting(Counter::noop())
    }

    pub fn counting(disagreements: Counter) -> Self {
        Self {
            texts: Cache::builder()
                .max_capacity(CACHE_BYTES_MAX)
                .weigher(|key: &TextKey, _: &Arc<Analyzed>| weight(&key.text))
                .build(),
            shapes: Cache::builder()
                .max_capacity(CACHE_BYTES_MAX)
                .weigher(|_: &ShapeKey, shape: &Arc<Shape>| {
                    shape.variants.iter().map(|variant| weight(&variant.text)).fold(0, u32::saturating_add)
                })
                .build(),
            disagreements,
        }
    }

    /// The statements of a text, and its literals. A text that PostgreSQL's grammar refuses is PostgreSQL's error.
    pub fn read(&self, text: &str, context: &Context) -> Result<Read, PgError> {
        let scanned = lexer::scan(text);
        let analyzed = self.analyze_scanned(text, &scanned, context)?;
        Ok(Read { analyzed, literals: scanned.literals })
    }

    /// As [`Analyzer::read`], of a text whose shape has been read before; nothing is read here.
    pub fn read_known(&self, text: &str, context: &Context, recent: &mut RecentTemplates) -> Option<Read> {
        if text.len() > SHAPE_BYTES_MAX {
            return None;
        }
        if let Some(read) = recent.read(text, context.id) {
            return Some(read);
        }
        let scanned = lexer::scan(text);
        let shape = self.shapes.get(&ShapeKey { context: context.id, hash: scanned.hash })?;
        let template = shape.variants.iter().find(|variant| variant.serves(text, &scanned))?;
        Some(Read { analyzed: recent.add(context.id, Arc::clone(template)), literals: scanned.literals })
    }

    /// The statements of a text. They were read one after the other in the same context: what an earlier one changes (the search
    /// path, the schema) the later ones do not know yet.
    pub fn analyze(&self, text: &str, context: &Context) -> Result<Arc<Analyzed>, PgError> {
        self.analyze_scanned(text, &lexer::scan(text), context)
    }

    pub fn analyze_scanned(&self, text: &str, scanned: &Scanned, context: &Context) -> Result<Arc<Analyzed>, PgError> {
        let may_share = text.len() <= SHAPE_BYTES_MAX && scanned.literals.len() <= SHAPE_LITERALS_MAX;
        let shape_key = ShapeKey { context: context.id, hash: scanned.hash };
        let shape = if may_share { self.shapes.get(&shape_key) } else { None };
        if let Some(known) = shape.as_ref().and_then(|shape| shape.variants.iter().find(|variant| variant.serves(text, scanned))) {
            return Ok(Arc::clone(known));
        }
        if text.len() > CACHED_TEXT_BYTES_MAX {
            return read_text(text, scanned, context, &self.disagreements).map(Arc::new);
        }
        // Only texts that no shape serves are looked up by their bytes.
        let key = TextKey { context: context.id, text: text.into() };
        if let Some(known) = self.texts.get(&key) {
            return Ok(known);
        }
        let analyzed = Arc::new(read_text(text, scanned, context, &self.disagreements)?);
        if analyzed.is_template && may_share {
            let mut variants = shape.map(|shape| shape.variants.clone()).unwrap_or_default();
            variants.truncate(SHAPE_VARIANTS_MAX - 1);
            variants.insert(0, Arc::clone(&analyzed));
            self.shapes.insert(shape_key, Arc::new(Shape { variants }));
        } else {
            self.texts.insert(key, Arc::clone(&analyzed));
        }
        Ok(analyzed)
    }
}

impl Analyzed {
    /// What of the text belongs to each of its statements: from behind the semicolon before it, comments included.
    pub fn ranges<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
        let mut lead = 0;
        self.statements.iter().map(move |statement| {
            let before = text.get(lead..statement.start).unwrap_or_default();
            let is_semicolon = |token: &lexer::Token| before.get(token.start..token.end) == Some(";");
            let start = lead + lexer::tokens(before).filter(is_semicolon).last().map_or(0, |semicolon| semicolon.end);
            let end = statement.end.min(text.len());
            lead = end;
            start..end
        })
    }

    /// The reading of another text of the same hash holds for this one.
    fn serves(&self, text: &str, scanned: &Scanned) -> bool {
        lexer::same_shape(&self.text, &self.literals, text, &scanned.literals) && self.has_fixed_of(text, &scanned.literals)
    }

    /// A text of this shape, with these literals, agrees in those that the reading depends on.
    fn has_fixed_of(&self, text: &str, literals: &[Literal]) -> bool {
        self.fixed_literals.iter().all(|ordinal| {
            let own = self
                .literals
                .get(*ordinal as usize)
                .and_then(|literal| self.text.get(literal.start as usize..literal.end as usize));
            let other = literals.get(*ordinal as usize).and_then(|literal| text.get(literal.start as usize..literal.end as usize));
            own.is_some() && own == other
        })
    }
}

/// About the bytes that a reading takes: those of a short text were seen to take 3 to 7 KiB, those of a list of 500 numbers 20 times its
/// text.
fn weight(text: &str) -> u32 {
    u32::try_from(4 * 1024 + 16 * text.len()).unwrap_or(u32::MAX)
}

/// Reads a text that is in no cache. A panic, of the parser's wrapper or ours, is an error of this statement alone.
fn read_text(text: &str, scanned: &Scanned, context: &Context, disagreements: &Counter) -> Result<Analyzed, PgError> {
    match catch_unwind(AssertUnwindSafe(|| read_statements(text, scanned, context))) {
        Ok(read) => {
            let statements = read.iter().flat_map(|analyzed| &analyzed.statements);
            let differ = statements.filter(|analysis| matches!(analysis.opinion, Some(Opinion::Differs(_)))).count();
            disagreements.increment(differ as u64);
            read
        }
        Err(_) => {
            tracing::error!(shape = %format_args!("{:032x}", scanned.hash), "reading a statement panicked");
            Err(PgError::internal("the statement could not be read"))
        }
    }
}

fn read_statements(text: &str, scanned: &Scanned, context: &Context) -> Result<Analyzed, PgError> {
    let tree = parse::parse(text)?;
    let mut statements = Vec::new();
    let mut fixed_literals = Vec::new();
    let mut lead = 0;
    for raw in tree.iter() {
        let start = usize::try_from(raw.stmt_location).unwrap_or(0);
        let end = match usize::try_from(raw.stmt_len) {
            Ok(length) if length > 0 => start + length,
            _ => text.len(),
        };
        let start = start + blanks(text.get(start..end).unwrap_or_default());
        let source = Source { text, literals: &scanned.literals, lead, start, end };
        let mut reading = statement::read(raw.stmt(), source, context);
        fixed_literals.append(&mut reading.fixed_literals);
        if let Some(Opinion::Differs(reason)) = reading.analysis.opinion {
            tracing::warn!(shape = %format_args!("{:032x}", scanned.hash), reason, "two readings of a statement differ");
        }
        statements.push(reading.analysis);
        lead = end;
    }
    let is_template = statements.len() == 1 && statements.iter().all(|statement| statement.is_template);
    for statement in &mut statements {
        statement.is_template = is_template;
        if is_template {
            (statement.start, statement.end) = (0, usize::MAX);
        }
    }
    debug_assert!(is_template || statements.iter().all(|statement| !matches!(statement.command, Command::Empty)));
    Ok(Analyzed { statements, is_template, text: text.into(), literals: scanned.literals.clone(), fixed_literals })
}

/// Bytes of white space and comments before the first token.
fn blanks(text: &str) -> usize {
    lexer::tokens(text).find(|token| token.kind != lexer::TokenKind::Comment).map_or(text.len(), |token| token.start)
}
