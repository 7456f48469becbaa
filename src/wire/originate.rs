//! Messages that the proxy itself writes: answers to clients and requests to shards.

use bytes::{BufMut, BytesMut};
use pgwire::messages::Message;
use pgwire::messages::data::{self, FieldDescription as WireField, ParameterDescription, RowDescription};
use pgwire::messages::response::{CommandComplete, ErrorResponse, NoticeResponse};
use pgwire::messages::startup::ParameterStatus;

use super::{FieldDescription, client_tag, shard_tag};
use crate::error::{PgError, Severity};

// ---- towards clients ----

/// ErrorResponse, or NoticeResponse for warnings and notices.
pub fn error(out: &mut BytesMut, error: &PgError) {
    let severity = error.severity.as_str().to_owned();
    // Twice: the first one is the one that a server may translate.
    let mut fields = vec![(b'S', severity.clone()), (b'V', severity)];
    fields.push((b'C', error.code.as_str().to_owned()));
    fields.push((b'M', error.message.clone()));
    let optional = [
        (b'D', error.detail.clone()),
        (b'H', error.hint.clone()),
        (b'P', error.position.map(|position| position.to_string())),
        (b'W', error.context.clone()),
        (b'R', error.routine().map(str::to_owned)),
    ];
    fields.extend(optional.into_iter().filter_map(|(code, value)| Some((code, value?))));
    match error.severity {
        Severity::Error | Severity::Fatal => encode(out, &ErrorResponse::new(fields)),
        Severity::Warning | Severity::Notice => encode(out, &NoticeResponse::new(fields)),
    }
}

pub fn command_complete(out: &mut BytesMut, tag: &str) {
    encode(out, &CommandComplete::new(tag.to_owned()));
}

/// `status`: `I`dle, in a `T`ransaction, or in a failed one (`E`).
pub fn ready(out: &mut BytesMut, status: u8) {
    out.put_slice(&[shard_tag::READY, 0, 0, 0, 5, status]);
}

/// A message without a body: ParseComplete, BindComplete, CloseComplete, NoData, EmptyQueryResponse, PortalSuspended, CopyDone.
pub fn bare(out: &mut BytesMut, tag: u8) {
    out.put_slice(&[tag, 0, 0, 0, 4]);
}

pub fn parameter_status(out: &mut BytesMut, name: &str, value: &str) {
    encode(out, &ParameterStatus::new(name.to_owned(), value.to_owned()));
}

pub fn row_description(out: &mut BytesMut, fields: &[FieldDescription]) {
    let fields = fields
        .iter()
        .map(|field| {
            WireField::new(
                String::from_utf8_lossy(&field.name).into_owned(),
                field.table_oid.cast_signed(),
                field.attnum,
                field.type_oid,
                field.type_size,
                field.typmod,
                field.format,
            )
        })
        .collect();
    encode(out, &RowDescription::new(fields));
}

pub fn parameter_description(out: &mut BytesMut, types: &[u32]) {
    encode(out, &ParameterDescription::new(types.to_vec()));
}

/// A row of text or binary values; `None` is NULL.
pub fn data_row<V: AsRef<[u8]>>(out: &mut BytesMut, values: &[Option<V>]) {
    let mut body = BytesMut::new();
    for value in values {
        match value {
            None => body.put_i32(-1),
            Some(value) => {
                let value = value.as_ref();
                body.put_i32(i32::try_from(value.len()).unwrap_or(i32::MAX));
                body.put_slice(value);
            }
        }
    }
    encode(out, &data::DataRow::new(body, i16::try_from(values.len()).unwrap_or(i16::MAX)));
}

/// pgwire refuses only messages over its size limit, which what we originate never reaches.
fn encode(out: &mut BytesMut, message: &impl Message) {
    if let Err(error) = message.encode(out) {
        tracing::error!(%error, "message not encoded");
    }
}

// ---- towards shards ----

pub fn query(out: &mut BytesMut, text: &[u8]) {
    frame(out, client_tag::QUERY, |out| put_cstr(out, text));
}

pub fn parse(out: &mut BytesMut, name: &[u8], text: &[u8], types: &[u32]) {
    frame(out, client_tag::PARSE, |out| {
        put_cstr(out, name);
        put_cstr(out, text);
        out.put_u16(u16::try_from(types.len()).unwrap_or(u16::MAX));
        for &oid in types {
            out.put_u32(oid);
        }
    });
}

/// A Bind for another portal and statement name; `after_names` is the client's own rest of the message.
pub fn bind(out: &mut BytesMut, portal: &[u8], statement: &[u8], after_names: &[u8]) {
    let length = 4 + portal.len() + 1 + statement.len() + 1 + after_names.len();
    out.reserve(length + 1);
    out.put_u8(client_tag::BIND);
    out.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    put_cstr(out, portal);
    put_cstr(out, statement);
    out.put_slice(after_names);
}

/// The rest of a Bind without parameters, results in text.
pub const BIND_NOTHING: &[u8] = &[0, 0, 0, 0, 0, 0];

pub fn execute(out: &mut BytesMut, portal: &[u8], row_limit: i32) {
    frame(out, client_tag::EXECUTE, |out| {
        put_cstr(out, portal);
        out.put_i32(row_limit);
    });
}

/// `kind`: `S`tatement or `P`ortal.
pub fn describe(out: &mut BytesMut, kind: u8, name: &[u8]) {
    frame(out, client_tag::DESCRIBE, |out| {
        out.put_u8(kind);
        put_cstr(out, name);
    });
}

pub fn close(out: &mut BytesMut, kind: u8, name: &[u8]) {
    frame(out, client_tag::CLOSE, |out| {
        out.put_u8(kind);
        put_cstr(out, name);
    });
}

pub fn sync(out: &mut BytesMut) {
    bare(out, client_tag::SYNC);
}

pub fn flush(out: &mut BytesMut) {
    bare(out, client_tag::FLUSH);
}

pub fn terminate(out: &mut BytesMut) {
    bare(out, client_tag::TERMINATE);
}

pub fn copy_fail(out: &mut BytesMut, reason: &str) {
    frame(out, client_tag::COPY_FAIL, |out| put_cstr(out, reason.as_bytes()));
}

fn put_cstr(out: &mut BytesMut, bytes: &[u8]) {
    out.put_slice(bytes);
    out.put_u8(0);
}

/// Writes a header, the body, then the length into the header.
fn frame(out: &mut BytesMut, tag: u8, body: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_slice(&[tag, 0, 0, 0, 0]);
    body(out);
    let length = u32::try_from(out.len() - start - 1).unwrap_or(u32::MAX);
    if let Some(field) = out.get_mut(start + 1..start + 5) {
        field.copy_from_slice(&length.to_be_bytes());
    }
}
