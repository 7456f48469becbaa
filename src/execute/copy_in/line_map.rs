//! The line of the client's data that a shard means when it names a line of its own.
//!
//! A shard reports an error soon after it was sent the line: only so much lies between as buffers hold. Older lines are
//! forgotten; a line that is not known is left out of the message.

use std::collections::VecDeque;

use bytes::Bytes;

use super::added::without_cells;
use crate::error::SqlState;
use crate::sql::utility::copy_in::CopyIn;
use crate::wire::{self, FRAME_HEADER_BYTES};

/// Lines that one shard was sent.
#[derive(Debug, Default)]
pub struct LineMap {
    /// The client's number of each line, the last ones.
    lines: VecDeque<u64>,
    /// How many have been forgotten.
    forgotten: u64,
}

impl LineMap {
    /// `count` lines, the last one of which is the client's `last`.
    pub fn push(&mut self, count: u64, last: u64) {
        for line in last.saturating_sub(count)..last {
            if self.lines.len() == LINES_MAX {
                self.lines.pop_front();
                self.forgotten += 1;
            }
            self.lines.push_back(line + 1);
        }
    }

    /// The shard has been sent none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The client's number of the shard's n-th line, from 1.
    pub fn at(&self, number: u64) -> Option<u64> {
        let index = number.checked_sub(1)?.checked_sub(self.forgotten)?;
        self.lines.get(usize::try_from(index).ok()?).copied()
    }
}

/// The line that an error's context names. `body`: of the ErrorResponse.
pub fn line_of(body: &[u8], table: &str) -> Option<u64> {
    let fields = wire::error_fields(body).ok()?;
    let context = std::str::from_utf8(fields.get(b'W')?).ok()?;
    context
        .lines()
        .find_map(|line| number_in(line, table))
        .and_then(|(start, digits, line)| line.get(start..start + digits)?.parse().ok())
}

/// The ErrorResponse with another line in its context, `None`: without any; and without what was put before the client's row.
pub fn with_line(body: &[u8], copy: &CopyIn, number: Option<u64>) -> Bytes {
    let frame = |body: &[u8]| -> Bytes {
        let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX).to_be_bytes();
        [&[wire::shard_tag::ERROR][..], &length, body].concat().into()
    };
    let Ok(fields) = wire::error_fields(body) else { return frame(body) };
    let is_about_header = copy.has_header && number == Some(1) && fields.sqlstate() == Some(&SqlState::BAD_COPY_FILE_FORMAT.0[..]);
    let mut kept = Vec::with_capacity(body.len() + FRAME_HEADER_BYTES);
    for (code, value) in fields.iter() {
        kept.push(code);
        match std::str::from_utf8(value) {
            Ok(message) if code == b'M' && is_about_header => {
                kept.extend_from_slice(with_fewer_fields(message, copy.added.len()).as_bytes());
            }
            Ok(context) if code == b'W' => kept.extend_from_slice(renumbered(context, copy, number).as_bytes()),
            Ok(_) | Err(_) => kept.extend_from_slice(value),
        }
        kept.push(0);
    }
    kept.push(0);
    frame(&kept)
}

fn renumbered(context: &str, copy: &CopyIn, number: Option<u64>) -> String {
    let table = copy.table.as_str();
    let mut is_done = false;
    let lines = context.lines().map(|line| match number_in(line, table) {
        Some((start, digits, line)) if !is_done => {
            is_done = true;
            let (before, after) = (line.get(..start).unwrap_or_default(), line.get(start + digits..).unwrap_or_default());
            let after = match after.strip_prefix(": \"") {
                Some(shown) if !copy.added.is_empty() => format!(": \"{}", without_cells(copy, shown)),
                Some(_) | None => after.to_owned(),
            };
            match number {
                Some(number) => format!("{before}{number}{after}"),
                // "COPY t, line 3, column a" becomes "COPY t, column a".
                None => format!("COPY {table}{after}"),
            }
        }
        Some(_) | None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What is said of the fields of a header counts those that were added. Names in it are quoted.
fn with_fewer_fields(message: &str, added: usize) -> String {
    let mut out = String::with_capacity(message.len());
    for (index, piece) in message.split('"').enumerate() {
        if index > 0 {
            out.push('"');
        }
        let mut rest = piece;
        while let Some(start) = rest.find(|character: char| character.is_ascii_digit()).filter(|_| index % 2 == 0) {
            let (before, from) = rest.split_at_checked(start).unwrap_or((rest, ""));
            let end = from.find(|character: char| !character.is_ascii_digit()).unwrap_or(from.len());
            let (digits, after) = from.split_at_checked(end).unwrap_or((from, ""));
            let count = digits.parse::<usize>().map(|count| count.saturating_sub(added).to_string());
            out.push_str(before);
            out.push_str(count.as_deref().unwrap_or(digits));
            rest = after;
        }
        out.push_str(rest);
    }
    out
}

/// `COPY table, line 3…`, in whatever language: where the number stands, and how long it is.
fn number_in<'l>(line: &'l str, table: &str) -> Option<(usize, usize, &'l str)> {
    let prefix = format!("COPY {table}, ");
    let rest = line.strip_prefix(prefix.as_str())?;
    let offset = rest.find(|character: char| character.is_ascii_digit())?;
    // Other words before it would be a column's name, or the data.
    if rest.get(..offset)?.contains([',', ':', '"']) {
        return None;
    }
    let digits = rest.get(offset..)?.bytes().take_while(u8::is_ascii_digit).count();
    Some((prefix.len() + offset, digits, line))
}

/// Rows of twenty bytes fill the buffers of a connection before so many are forgotten.
const LINES_MAX: usize = 1 << 18;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::utility::copy_in::{AddedColumn, AddedValue, CopyFormat};

    #[test]
    fn a_shards_line_is_the_clients() {
        let mut map = LineMap::default();
        map.push(1, 1);
        map.push(2, 7);
        assert_eq!([0, 1, 2, 3, 4].map(|number| map.at(number)), [None, Some(1), Some(6), Some(7), None]);
        for line in 8..8 + LINES_MAX as u64 {
            map.push(1, line);
        }
        assert_eq!(map.at(3), None, "forgotten");
        assert_eq!(map.at(4), Some(8));
    }

    fn copy() -> CopyIn {
        let number = AddedValue::Number(("public".to_owned(), "s".to_owned()));
        CopyIn {
            table: "t".to_owned(),
            qualified: "t".to_owned(),
            format: CopyFormat::Text { delimiter: b',', null: Vec::new() },
            has_header: false,
            encoding: None,
            key: Vec::new(),
            column_count: 1,
            added: vec![AddedColumn { name: "n".to_owned(), type_oid: 20, value: number }],
            fires_per_statement: false,
            skips_bad_rows: false,
        }
    }

    #[test]
    fn what_was_added_is_not_shown() {
        let message = "column name mismatch in header line field 4: got \"c2\", expected \"v3\"";
        assert_eq!(with_fewer_fields(message, 3), "column name mismatch in header line field 1: got \"c2\", expected \"v3\"");
        assert_eq!(with_fewer_fields("got 4, expected 5", 1), "got 3, expected 4");
        assert_eq!(renumbered("COPY t, line 2: \"17,a,b\"", &copy(), Some(9)), "COPY t, line 9: \"a,b\"");
    }

    #[test]
    fn the_context_names_the_clients_line() {
        let body = b"SERROR\0C22P02\0Mno\0WCOPY t, line 3, column id: \"7\"\0\0";
        assert_eq!(line_of(body, "t"), Some(3));
        assert_eq!(line_of(body, "u"), None);
        let context = |number| {
            let frame = with_line(body, &copy(), number);
            let fields = wire::error_fields(&frame[FRAME_HEADER_BYTES..]).unwrap();
            String::from_utf8(fields.get(b'W').unwrap().to_vec()).unwrap()
        };
        assert_eq!(context(Some(41)), "COPY t, line 41, column id: \"7\"");
        assert_eq!(context(None), "COPY t, column id: \"7\"");
        assert_eq!(
            renumbered("PL/pgSQL function f() line 3 at RAISE\nCOPY t, line 2", &copy(), Some(9)).lines().last(),
            Some("COPY t, line 9")
        );
    }
}
