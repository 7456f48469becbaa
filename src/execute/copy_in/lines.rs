//! Where lines of the formats text and csv end: `CopyReadLineText` of PostgreSQL, byte for byte.
//!
//! The first line says what ends all of them: a newline, a carriage return, or both. In text a backslash takes the meaning of
//! the byte after it; in csv nothing ends a line between quotes. `\.` alone on a line ends the data, in csv before PostgreSQL 18.

use memchr::{memchr2, memchr3};

use super::bad_format;
use crate::error::PgError;

/// Reads the lines of one COPY, in order.
#[derive(Debug)]
pub struct Lines {
    csv: Option<Quoting>,
    /// As PostgreSQL 18 reads them: in csv `\.` is a value like any other, in text nothing stands before it.
    is_strict: bool,
    line_end: LineEnd,
    /// Bytes of the line that have been looked at.
    scanned: usize,
    is_in_quotes: bool,
    /// Line ends between quotes, in this line.
    embedded: u64,
}

#[derive(Clone, Copy, Debug)]
struct Quoting {
    quote: u8,
    /// `None`: the quote itself.
    escape: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnd {
    /// No line has ended.
    Unknown,
    Newline,
    Return,
    ReturnNewline,
}

/// What the data begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundLine {
    /// Not a whole line yet.
    More,
    Line {
        /// Without what ends it.
        values: usize,
        length: usize,
        /// As PostgreSQL counts them: those between quotes too.
        lines: u64,
    },
    /// The mark of the end of the data, after so many bytes of a last line.
    End { values: usize, lines: u64 },
}

/// What stands after a backslash and a full stop.
enum Mark {
    More,
    End,
    /// Values, in csv.
    Data,
}

impl Lines {
    pub fn text() -> Self {
        Self { csv: None, is_strict: false, line_end: LineEnd::Unknown, scanned: 0, is_in_quotes: false, embedded: 0 }
    }

    pub fn csv(quote: u8, escape: u8) -> Self {
        let escape = Some(escape).filter(|escape| *escape != quote);
        Self { csv: Some(Quoting { quote, escape }), ..Self::text() }
    }

    pub fn be_strict(&mut self) {
        self.is_strict = true;
    }

    pub fn embedded(&self) -> u64 {
        self.embedded
    }

    /// `data` begins with a line. `is_complete`: nothing follows it.
    pub fn find(&mut self, data: &[u8], is_complete: bool) -> Result<FoundLine, PgError> {
        let found = match self.csv {
            None => self.find_in_text(data, is_complete)?,
            Some(quoting) => self.find_in_csv(quoting, data, is_complete)?,
        };
        Ok(match found {
            FoundLine::More if is_complete => self.ended(data.len(), data.len()),
            found => found,
        })
    }

    fn find_in_text(&mut self, data: &[u8], is_complete: bool) -> Result<FoundLine, PgError> {
        while let Some(at) = self.next(data, |rest| memchr3(b'\n', b'\r', b'\\', rest)) {
            match (data.get(at), data.get(at + 1)) {
                (Some(b'\\'), None) => {
                    self.scanned = at;
                    return Ok(FoundLine::More);
                }
                (Some(b'\\'), Some(b'.')) => match self.mark(data, at + 2, is_complete)? {
                    Mark::More => {
                        self.scanned = at;
                        return Ok(FoundLine::More);
                    }
                    Mark::End if self.is_strict && at > 0 => {
                        return Err(bad_format("end-of-copy marker is not alone on its line"));
                    }
                    Mark::End => return Ok(FoundLine::End { values: at, lines: 1 }),
                    Mark::Data => self.scanned = at + 2,
                },
                (Some(b'\\'), Some(_)) => self.scanned = at + 2,
                _ => return self.line_end(data, at, is_complete),
            }
        }
        Ok(FoundLine::More)
    }

    fn find_in_csv(&mut self, quoting: Quoting, data: &[u8], is_complete: bool) -> Result<FoundLine, PgError> {
        if !self.is_strict && self.scanned == 0 && data.first() == Some(&b'\\') {
            match data.get(1) {
                None if !is_complete => return Ok(FoundLine::More),
                Some(b'.') => match self.mark(data, 2, is_complete)? {
                    Mark::More => return Ok(FoundLine::More),
                    Mark::End => return Ok(FoundLine::End { values: 0, lines: 1 }),
                    Mark::Data => {}
                },
                Some(_) | None => {}
            }
        }
        loop {
            let at = match self.is_in_quotes {
                false => self.next(data, |rest| memchr3(b'\n', b'\r', quoting.quote, rest)),
                true => {
                    let line_end = self.embedded_line_end();
                    self.next(data, |rest| match quoting.escape {
                        Some(escape) => memchr3(quoting.quote, escape, line_end, rest),
                        None => memchr2(quoting.quote, line_end, rest),
                    })
                }
            };
            let (Some(at), Some(byte)) = (at, at.and_then(|at| data.get(at))) else { return Ok(FoundLine::More) };
            if self.is_in_quotes && Some(*byte) == quoting.escape {
                match data.get(at + 1) {
                    None if !is_complete => {
                        self.scanned = at;
                        return Ok(FoundLine::More);
                    }
                    Some(next) if *next == quoting.quote || *next == *byte => self.scanned = at + 2,
                    Some(_) | None => self.scanned = at + 1,
                }
            } else if *byte == quoting.quote {
                self.is_in_quotes = !self.is_in_quotes;
                self.scanned = at + 1;
            } else if self.is_in_quotes {
                self.embedded += 1;
                self.scanned = at + 1;
            } else {
                return self.line_end(data, at, is_complete);
            }
        }
    }

    /// The next byte that matters; without one all has been looked at.
    fn next(&mut self, data: &[u8], search: impl Fn(&[u8]) -> Option<usize>) -> Option<usize> {
        let found = search(data.get(self.scanned..).unwrap_or_default());
        match found {
            Some(offset) => Some(self.scanned + offset),
            None => {
                self.scanned = data.len();
                None
            }
        }
    }

    /// What counts as a line between quotes.
    fn embedded_line_end(&self) -> u8 {
        match self.line_end {
            LineEnd::Newline => b'\n',
            LineEnd::Unknown | LineEnd::Return | LineEnd::ReturnNewline => b'\r',
        }
    }

    /// A newline or carriage return that is not quoted.
    fn line_end(&mut self, data: &[u8], at: usize, is_complete: bool) -> Result<FoundLine, PgError> {
        if data.get(at) == Some(&b'\n') {
            return match self.line_end {
                LineEnd::Return | LineEnd::ReturnNewline => Err(self.stray("newline", "\\n")),
                LineEnd::Unknown | LineEnd::Newline => {
                    self.line_end = LineEnd::Newline;
                    Ok(self.ended(at, at + 1))
                }
            };
        }
        match (self.line_end, data.get(at + 1)) {
            (LineEnd::Newline, _) => Err(self.stray("carriage return", "\\r")),
            (LineEnd::Return, _) => Ok(self.ended(at, at + 1)),
            (LineEnd::Unknown | LineEnd::ReturnNewline, None) if !is_complete => {
                self.scanned = at;
                Ok(FoundLine::More)
            }
            (LineEnd::Unknown | LineEnd::ReturnNewline, Some(b'\n')) => {
                self.line_end = LineEnd::ReturnNewline;
                Ok(self.ended(at, at + 2))
            }
            (LineEnd::ReturnNewline, _) => Err(self.stray("carriage return", "\\r")),
            (LineEnd::Unknown, _) => {
                self.line_end = LineEnd::Return;
                Ok(self.ended(at, at + 1))
            }
        }
    }

    fn ended(&mut self, values: usize, length: usize) -> FoundLine {
        let lines = 1 + std::mem::take(&mut self.embedded);
        self.scanned = 0;
        self.is_in_quotes = false;
        FoundLine::Line { values, length, lines }
    }

    /// Does a line's end stand at `at`, after a backslash and a full stop?
    fn mark(&self, data: &[u8], mut at: usize, is_complete: bool) -> Result<Mark, PgError> {
        let corrupt = || match self.csv {
            None => Err(bad_format("end-of-copy marker corrupt")),
            Some(_) => Ok(Mark::Data),
        };
        let other_style = || bad_format("end-of-copy marker does not match previous newline style");
        if self.line_end == LineEnd::ReturnNewline {
            match data.get(at) {
                None if !is_complete => return Ok(Mark::More),
                Some(b'\r') => at += 1,
                Some(b'\n') if self.csv.is_none() => return Err(other_style()),
                Some(_) | None => return corrupt(),
            }
        }
        match (data.get(at), self.line_end) {
            (None, _) if !is_complete => Ok(Mark::More),
            (Some(b'\n'), LineEnd::Return) | (Some(b'\r'), LineEnd::Newline | LineEnd::ReturnNewline) => Err(other_style()),
            (Some(b'\n' | b'\r'), _) => Ok(Mark::End),
            (Some(_) | None, _) => corrupt(),
        }
    }

    fn stray(&self, what: &str, spelling: &str) -> PgError {
        match self.csv {
            None => {
                bad_format(&format!("literal {what} found in data")).with_hint(format!("Use \"{spelling}\" to represent {what}."))
            }
            Some(_) => bad_format(&format!("unquoted {what} found in data"))
                .with_hint(format!("Use quoted CSV field to represent {what}.")),
        }
    }
}
