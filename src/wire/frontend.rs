//! Messages from clients, borrowed from the buffer. Names and texts are bytes: their encoding is checked where they are used.

use std::sync::OnceLock;

use super::{DecodeError, Reader};
use crate::shard_key::Format;

/// Body of a Parse message.
#[derive(Clone, Copy, Debug)]
pub struct Parse<'a> {
    pub name: &'a [u8],
    pub text: &'a [u8],
    /// Four bytes a type, big-endian.
    types: &'a [u8],
}

impl<'a> Parse<'a> {
    pub fn types(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.types.chunks_exact(4).map(|chunk| chunk.iter().fold(0, |oid, &byte| (oid << 8) | u32::from(byte)))
    }
}

/// Body of a Bind message.
#[derive(Clone, Debug)]
pub struct Bind<'a> {
    pub portal: &'a [u8],
    pub statement: &'a [u8],
    /// Two bytes a format code.
    formats: &'a [u8],
    pub parameter_count: usize,
    values: &'a [u8],
    /// Where in `values` each begins, once one behind the first few has been asked for: walking to each of them from the first one
    /// takes the square of their number.
    starts: OnceLock<Box<[u32]>>,
    /// From the parameter format codes to the end of the body: forwarded as it is.
    pub after_names: &'a [u8],
    /// Two bytes a result format code.
    pub result_formats: &'a [u8],
}

impl<'a> Bind<'a> {
    /// The n-th parameter, 0-based: its format and bytes; `None` for NULL.
    pub fn parameter(&self, index: usize) -> Option<(Format, Option<&'a [u8]>)> {
        if index >= self.parameter_count {
            return None;
        }
        let mut reader = Reader::new(self.values);
        if index < WALKED_TO {
            for _ in 0..index {
                reader.value().ok()?;
            }
        } else {
            let start = *self.starts.get_or_init(|| self.find_starts()).get(index)?;
            reader = Reader::new(self.values.get(start as usize..)?);
        }
        Some((self.format(index), reader.value().ok()?))
    }

    fn find_starts(&self) -> Box<[u32]> {
        let mut reader = Reader::new(self.values);
        let start = |_| {
            let start = self.values.len() - reader.rest().len();
            reader.value().ok()?;
            u32::try_from(start).ok()
        };
        (0..self.parameter_count).map_while(start).collect()
    }

    pub fn parameters(&self) -> impl Iterator<Item = (Format, Option<&'a [u8]>)> + '_ {
        let mut reader = Reader::new(self.values);
        (0..self.parameter_count).map_while(move |index| Some((self.format(index), reader.value().ok()?)))
    }

    /// Of the n-th parameter, 0-based.
    pub fn format(&self, index: usize) -> Format {
        format_at(self.formats, index)
    }

    /// Of the n-th column, 0-based.
    pub fn result_format(&self, index: usize) -> Format {
        format_at(self.result_formats, index)
    }

    /// Any column is asked for in binary.
    #[inline]
    pub fn has_binary_results(&self) -> bool {
        self.result_formats.contains(&1)
    }

    /// Any parameter comes in binary.
    #[inline]
    pub fn has_binary_parameters(&self) -> bool {
        self.parameter_count > 0 && self.formats.contains(&1)
    }

    pub fn result_format_count(&self) -> usize {
        self.result_formats.len() / 2
    }

    /// `after_names` with the results in these formats, two bytes a code.
    pub fn with_result_formats(&self, codes: &[u8]) -> Vec<u8> {
        let kept = self.after_names.len().saturating_sub(self.result_formats.len() + 2);
        let count = u16::try_from(codes.len() / 2).unwrap_or(u16::MAX).to_be_bytes();
        [self.after_names.get(..kept).unwrap_or_default(), &count, codes].concat()
    }

    /// Where in `after_names` the parameters' values begin.
    pub fn values_start(&self) -> usize {
        // The number of formats, the formats, the number of values.
        2 + self.formats.len() + 2
    }
}

/// None: text; one: for all.
fn format_at(codes: &[u8], index: usize) -> Format {
    let code = match codes.len() / 2 {
        0 => 0,
        1 => codes.get(1).copied().unwrap_or(0),
        _ => codes.get(index * 2 + 1).copied().unwrap_or(0),
    };
    if code == 0 { Format::Text } else { Format::Binary }
}

/// What Describe and Close name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    Statement(&'a [u8]),
    Portal(&'a [u8]),
}

/// Body of a Query message: the text.
pub fn query(body: &[u8]) -> Result<&[u8], DecodeError> {
    let mut reader = Reader::new(body);
    let text = reader.cstr()?;
    reader.end()?;
    Ok(text)
}

pub fn parse(body: &[u8]) -> Result<Parse<'_>, DecodeError> {
    let mut reader = Reader::new(body);
    let (name, text) = (reader.cstr()?, reader.cstr()?);
    let count = reader.count()?;
    let types = reader.bytes(count * 4)?;
    reader.end()?;
    Ok(Parse { name, text, types })
}

pub fn bind(body: &[u8]) -> Result<Bind<'_>, DecodeError> {
    let mut reader = Reader::new(body);
    let (portal, statement) = (reader.cstr()?, reader.cstr()?);
    let after_names = reader.rest();
    let format_count = reader.count()?;
    let formats = reader.bytes(format_count * 2)?;
    check_formats(formats)?;
    let parameter_count = reader.count()?;
    if format_count > 1 && format_count != parameter_count {
        return Err(DecodeError::FormatCount { formats: format_count, parameters: parameter_count });
    }
    let values = reader.rest();
    for _ in 0..parameter_count {
        reader.value()?;
    }
    let result_count = reader.count()?;
    let result_formats = reader.bytes(result_count * 2)?;
    check_formats(result_formats)?;
    reader.end()?;
    let starts = OnceLock::new();
    Ok(Bind { portal, statement, formats, parameter_count, values, starts, after_names, result_formats })
}

/// Parameters before this one are found by walking to them.
const WALKED_TO: usize = 16;

fn check_formats(codes: &[u8]) -> Result<(), DecodeError> {
    match codes.chunks_exact(2).find(|code| !matches!(code, [0, 0 | 1])) {
        None => Ok(()),
        Some(code) => Err(DecodeError::FormatCode(code.iter().fold(0, |sum, &byte| (sum << 8) | i16::from(byte)))),
    }
}

/// Body of an Execute message: portal and row limit (0: none).
pub fn execute(body: &[u8]) -> Result<(&[u8], i32), DecodeError> {
    let mut reader = Reader::new(body);
    let (portal, limit) = (reader.cstr()?, reader.i32()?);
    reader.end()?;
    Ok((portal, limit))
}

pub fn describe(body: &[u8]) -> Result<Target<'_>, DecodeError> {
    target(body, "DESCRIBE")
}

pub fn close(body: &[u8]) -> Result<Target<'_>, DecodeError> {
    target(body, "CLOSE")
}

fn target<'a>(body: &'a [u8], message: &'static str) -> Result<Target<'a>, DecodeError> {
    let mut reader = Reader::new(body);
    let kind = reader.u8()?;
    let name = reader.cstr()?;
    reader.end()?;
    match kind {
        b'S' => Ok(Target::Statement(name)),
        b'P' => Ok(Target::Portal(name)),
        subtype => Err(DecodeError::Subtype { message, subtype }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Bind with one text and one NULL parameter, both formats given.
    const BIND: &[u8] = b"p\0s\0\0\x02\0\0\0\x01\0\x02\0\0\0\x0242\xff\xff\xff\xff\0\x01\0\x01";

    #[test]
    fn bind_gives_each_parameter_with_its_format() {
        let bind = bind(BIND).unwrap();
        assert_eq!((bind.portal, bind.statement, bind.parameter_count), (&b"p"[..], &b"s"[..], 2));
        assert_eq!(bind.parameter(0), Some((Format::Text, Some(&b"42"[..]))));
        assert_eq!(bind.parameter(1), Some((Format::Binary, None)));
        assert_eq!(bind.parameter(2), None);
        assert_eq!(bind.result_formats, [0, 1]);
    }

    #[test]
    fn parameters_are_found_in_any_order() {
        let count: u16 = 50;
        let values = (0..count).flat_map(|n| [&2_u32.to_be_bytes()[..], &n.to_be_bytes()].concat());
        let mut body = [b"\0\0\0\0", &count.to_be_bytes()[..]].concat();
        body.extend(values);
        body.extend([0, 0]);
        let bind = bind(&body).unwrap();
        for n in (0..count).rev().chain([7, 49, 16, 15]) {
            assert_eq!(bind.parameter(usize::from(n)), Some((Format::Text, Some(&n.to_be_bytes()[..]))));
        }
        assert_eq!(bind.parameter(50), None);
    }

    #[test]
    fn every_cut_of_a_message_is_an_error() {
        for end in 0..BIND.len() {
            assert!(bind(&BIND[..end]).is_err(), "cut at {end}");
        }
        let parse_body = b"s\0select $1\0\0\x01\0\0\0\x17";
        assert_eq!(parse(parse_body).unwrap().types().collect::<Vec<_>>(), [23]);
        for end in 0..parse_body.len() {
            assert!(parse(&parse_body[..end]).is_err(), "cut at {end}");
        }
        for end in 0..6 {
            assert!(execute(&b"p\0\0\0\0\0"[..end]).is_err());
        }
    }

    #[test]
    fn trailing_bytes_and_bad_codes_are_errors() {
        assert!(query(b"select 1\0x").is_err());
        assert!(query(b"select 1").is_err());
        assert_eq!(describe(b"Qx\0").unwrap_err().to_string(), "invalid DESCRIBE message subtype 81");
        assert_eq!(close(b"Qx\0").unwrap_err().to_string(), "invalid CLOSE message subtype 81");
        assert_eq!(bind(b"\0\0\0\x01\0\x07\0\0\0\0").unwrap_err(), DecodeError::FormatCode(7));
        assert_eq!(
            bind(b"\0\0\0\x02\0\0\0\0\0\0\0\0").unwrap_err().to_string(),
            "bind message has 2 parameter formats but 0 parameters"
        );
        assert!(bind(b"\0\0\0\0\0\x01\xff\xff\xff\xf0\0\0").is_err(), "length -16");
    }
}
