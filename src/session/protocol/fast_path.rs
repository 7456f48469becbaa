//! Function calls of the wire protocol, by which drivers use large objects.
//!
//! libpq, pgjdbc and others open, read and write large objects by FunctionCall messages only. Such a call runs as the SELECT that it stands
//! for, planned like one that the client has written: it goes to the home shard. Its value is sent in the answer to the message. Calls of
//! other functions are refused: no driver makes them.
//!
//! Reads the message and writes its answer. Where the function runs, and in which transaction, is the SELECT's.

use bytes::{BufMut, BytesMut};

use super::diversion::{Diverted, frames_of};
use crate::catalog::{hex, quoted_literal};
use crate::error::{PgError, SqlState};
use crate::session::Failure;
use crate::wire::{DecodeError, FRAME_HEADER_BYTES, Reader, data_row_columns, shard_tag};

/// What arguments and results of these functions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Int4,
    Int8,
    Oid,
    Bytea,
}

/// `pg_proc.oid`, the name, the arguments and the result of a function.
type Function = (u32, &'static str, &'static [Kind], Kind);

/// A call as the SELECT that it stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub text: String,
    result: Kind,
    is_binary: bool,
}

impl Call {
    pub fn read(body: &[u8]) -> Result<Self, Failure> {
        let mut reader = Reader::new(body);
        let function = reader.u32()?;
        let (_, name, kinds, result) = FUNCTIONS.iter().find(|(oid, ..)| *oid == function).ok_or_else(not_supported)?;
        let formats = (0..reader.count()?).map(|_| is_binary(reader.i16()?)).collect::<Result<Vec<_>, _>>()?;
        let count = reader.count()?;
        if count != kinds.len() {
            let told = format!("function call message contains {count} arguments but function requires {}", kinds.len());
            return Err(PgError::new(SqlState::PROTOCOL_VIOLATION, told).into());
        }
        if formats.len() > 1 && formats.len() != count {
            let told = format!("function call message contains {} argument formats but {count} arguments", formats.len());
            return Err(PgError::new(SqlState::PROTOCOL_VIOLATION, told).into());
        }
        let mut arguments = Vec::new();
        for (index, kind) in kinds.iter().enumerate() {
            let is_binary = formats.get(index).or(formats.first()).copied().unwrap_or_default();
            arguments.push(kind.literal(reader.value()?, is_binary, index)?);
        }
        let is_binary = is_binary(reader.i16()?)?;
        reader.end()?;
        let call = format!("pg_catalog.{name}({})", arguments.join(", "));
        // So that no setting says how bytes are written.
        let text = match result {
            Kind::Bytea => format!("SELECT pg_catalog.encode({call}, 'hex')"),
            Kind::Int4 | Kind::Int8 | Kind::Oid => format!("SELECT {call}"),
        };
        Ok(Self { text, result: *result, is_binary })
    }

    /// Makes the SELECT's answer the call's.
    pub fn answer(&self, diverted: Diverted, output: &mut BytesMut) -> Result<(), PgError> {
        let row = frames_of(diverted.rows.freeze()).next();
        let row = row.map(|(_, frame)| frame.slice(FRAME_HEADER_BYTES..));
        let value = row.as_ref().map(|row| data_row_columns(row).next()).and_then(|value| value?.ok()?);
        let value = value.map(|value| self.result.value(value, self.is_binary)).transpose()?;
        let frames = diverted.frames.freeze();
        let is_answered = !frames_of(frames.clone()).any(|(tag, _)| tag == shard_tag::ERROR);
        if is_answered && !diverted.is_whole {
            return Err(PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, "the result of a function call is too large")
                .with_detail("The limit is cross_shard.merge_bytes_max.")
                .with_hint("Read fewer bytes at a time, or raise the limit."));
        }
        for (tag, frame) in frames_of(frames) {
            match tag {
                shard_tag::ROW_DESCRIPTION | shard_tag::COMMAND_COMPLETE => continue,
                shard_tag::READY if is_answered => function_result(output, value.as_deref()),
                _ => {}
            }
            output.extend_from_slice(&frame);
        }
        Ok(())
    }
}

impl Kind {
    /// An argument as a literal of SQL.
    fn literal(self, value: Option<&[u8]>, is_binary: bool, index: usize) -> Result<String, Failure> {
        let text = match value {
            None => return Ok(format!("NULL::{}", self.name())),
            Some(value) if is_binary => match self {
                Kind::Bytea => format!("\\x{}", hex(value)),
                Kind::Int4 => i32::from_be_bytes(exactly(value, index)?).to_string(),
                Kind::Int8 => i64::from_be_bytes(exactly(value, index)?).to_string(),
                Kind::Oid => u32::from_be_bytes(exactly(value, index)?).to_string(),
            },
            Some(value) => String::from_utf8(value.to_vec())
                .map_err(|_| PgError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding \"UTF8\""))?,
        };
        Ok(format!("{}::{}", quoted_literal(&text), self.name()))
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Int4 => "pg_catalog.int4",
            Kind::Int8 => "pg_catalog.int8",
            Kind::Oid => "pg_catalog.oid",
            Kind::Bytea => "pg_catalog.bytea",
        }
    }

    /// What the SELECT has answered, as the call wants it.
    fn value(self, text: &[u8], is_binary: bool) -> Result<Vec<u8>, PgError> {
        let read = std::str::from_utf8(text).map_err(|_| unexpected())?;
        Ok(match (self, is_binary) {
            (Kind::Bytea, true) => bytes_of(read).ok_or_else(unexpected)?,
            (Kind::Bytea, false) => [b"\\x", text].concat(),
            (_, false) => text.to_vec(),
            (Kind::Int4, true) => read.parse::<i32>().map_err(|_| unexpected())?.to_be_bytes().to_vec(),
            (Kind::Int8, true) => read.parse::<i64>().map_err(|_| unexpected())?.to_be_bytes().to_vec(),
            (Kind::Oid, true) => read.parse::<u32>().map_err(|_| unexpected())?.to_be_bytes().to_vec(),
        })
    }
}

fn is_binary(code: i16) -> Result<bool, DecodeError> {
    match code {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(DecodeError::FormatCode(other)),
    }
}

fn exactly<const SIZE: usize>(value: &[u8], index: usize) -> Result<[u8; SIZE], Failure> {
    let told = || format!("incorrect binary data format in function argument {}", index + 1);
    value.try_into().map_err(|_| PgError::new(SqlState::INVALID_BINARY_REPRESENTATION, told()).into())
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair.filter(|pair| pair.len() == 2)?, 16).ok()).collect()
}

fn function_result(output: &mut BytesMut, value: Option<&[u8]>) {
    let length = value.map_or(0, <[u8]>::len);
    output.put_u8(shard_tag::FUNCTION_RESULT);
    output.put_u32(u32::try_from(8 + length).unwrap_or(u32::MAX));
    output.put_i32(value.map_or(-1, |value| i32::try_from(value.len()).unwrap_or(i32::MAX)));
    output.put_slice(value.unwrap_or_default());
}

fn not_supported() -> Failure {
    PgError::unsupported(
        "function calls by the fast-path protocol are supported for large objects only",
        "Other calls do not say which shard they are for.",
        "Call the function in a SELECT.",
    )
    .into()
}

fn unexpected() -> PgError {
    PgError::internal("a function of large objects has answered something else")
}

const FUNCTIONS: &[Function] = &[
    (715, "lo_create", &[Kind::Oid], Kind::Oid),
    (952, "lo_open", &[Kind::Oid, Kind::Int4], Kind::Int4),
    (953, "lo_close", &[Kind::Int4], Kind::Int4),
    (954, "loread", &[Kind::Int4, Kind::Int4], Kind::Bytea),
    (955, "lowrite", &[Kind::Int4, Kind::Bytea], Kind::Int4),
    (956, "lo_lseek", &[Kind::Int4, Kind::Int4, Kind::Int4], Kind::Int4),
    (957, "lo_creat", &[Kind::Int4], Kind::Oid),
    (958, "lo_tell", &[Kind::Int4], Kind::Int4),
    (964, "lo_unlink", &[Kind::Oid], Kind::Int4),
    (1004, "lo_truncate", &[Kind::Int4, Kind::Int4], Kind::Int4),
    (3170, "lo_lseek64", &[Kind::Int4, Kind::Int8, Kind::Int4], Kind::Int8),
    (3171, "lo_tell64", &[Kind::Int4], Kind::Int8),
    (3172, "lo_truncate64", &[Kind::Int4, Kind::Int8], Kind::Int4),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::originate;

    fn message(function: u32, formats: &[i16], arguments: &[Option<&[u8]>], result: i16) -> Vec<u8> {
        let mut body = BytesMut::new();
        body.put_u32(function);
        body.put_u16(u16::try_from(formats.len()).expect("few"));
        formats.iter().for_each(|&format| body.put_i16(format));
        body.put_u16(u16::try_from(arguments.len()).expect("few"));
        for argument in arguments {
            body.put_i32(argument.map_or(-1, |value| i32::try_from(value.len()).expect("short")));
            body.put_slice(argument.unwrap_or_default());
        }
        body.put_i16(result);
        body.to_vec()
    }

    fn text(body: &[u8]) -> String {
        Call::read(body).map(|call| call.text).unwrap_or_else(|_| "refused".to_owned())
    }

    #[test]
    fn a_call_is_the_select_that_it_stands_for() {
        let open = message(952, &[1], &[Some(&[0xf0, 0, 0, 1]), Some(&[0, 4, 0, 0])], 1);
        assert_eq!(text(&open), "SELECT pg_catalog.lo_open('4026531841'::pg_catalog.oid, '262144'::pg_catalog.int4)");
        let write = message(955, &[0, 1], &[Some(b"0"), Some(b"\x00'\xff")], 0);
        assert_eq!(text(&write), "SELECT pg_catalog.lowrite('0'::pg_catalog.int4,  E'\\\\x0027ff'::pg_catalog.bytea)");
        let read = message(954, &[], &[Some(b"0"), None], 1);
        assert_eq!(text(&read), "SELECT pg_catalog.encode(pg_catalog.loread('0'::pg_catalog.int4, NULL::pg_catalog.int4), 'hex')");
        let quoted = message(953, &[], &[Some(b"0'); DROP TABLE t; --")], 0);
        assert_eq!(text(&quoted), "SELECT pg_catalog.lo_close('0''); DROP TABLE t; --'::pg_catalog.int4)");
    }

    #[test]
    fn what_is_not_such_a_call_is_refused() {
        let right = message(953, &[1], &[Some(&[0, 0, 0, 1])], 1);
        for length in 0..right.len() {
            assert_eq!(text(&right[..length]), "refused", "{length} bytes");
        }
        assert_eq!(text(&[&right[..], b"x"].concat()), "refused");
        for wrong in [
            message(1, &[], &[], 0),
            message(953, &[2], &[Some(b"0")], 0),
            message(953, &[], &[Some(b"0")], 3),
            message(953, &[], &[], 0),
            message(954, &[0, 1, 0], &[Some(b"0"), Some(b"1")], 0),
            message(953, &[1], &[Some(&[0, 1])], 0),
            message(953, &[0], &[Some(&[0xff])], 0),
        ] {
            assert_eq!(text(&wrong), "refused", "{wrong:?}");
        }
    }

    fn answered(result: Kind, is_binary: bool, row: Option<&[u8]>) -> Vec<u8> {
        let mut messages = BytesMut::new();
        originate::data_row(&mut messages, &[row]);
        let rows = messages.split();
        originate::error(&mut messages, &PgError::warning(SqlState::WARNING, "a notice"));
        let notice = messages.len();
        originate::command_complete(&mut messages, "SELECT 1");
        originate::ready(&mut messages, b'T');
        let mut diverted = Diverted::default();
        (diverted.frames, diverted.rows, diverted.is_whole) = (messages, rows, true);
        let mut output = BytesMut::new();
        let call = Call { text: String::new(), result, is_binary };
        call.answer(diverted, &mut output).expect("answered");
        assert!(output.ends_with(&[b'Z', 0, 0, 0, 5, b'T']));
        output[notice..output.len() - 6].to_vec()
    }

    #[test]
    fn the_value_is_sent_as_it_was_asked_for() {
        assert_eq!(
            answered(Kind::Int4, true, Some(b"-2")),
            [b"V\0\0\0\x0c\0\0\0\x04".as_slice(), &(-2_i32).to_be_bytes()].concat()
        );
        assert_eq!(answered(Kind::Oid, false, Some(b"4026531841")), b"V\0\0\0\x12\0\0\0\x0a4026531841");
        assert_eq!(answered(Kind::Bytea, true, Some(b"00ff")), b"V\0\0\0\x0a\0\0\0\x02\x00\xff");
        assert_eq!(answered(Kind::Bytea, true, Some(b"")), b"V\0\0\0\x08\0\0\0\0");
        assert_eq!(answered(Kind::Int8, true, None), b"V\0\0\0\x08\xff\xff\xff\xff");
    }
}
