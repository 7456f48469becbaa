//! What the client hears of a COPY, by what each shard has said.

use bytes::Bytes;

use super::{Answer, FAIL_REASON, Stop, Stream};
use crate::error::PgError;
use crate::execute::copy_in::{line_of, with_line};
use crate::session::Failure;
use crate::session::protocol::describe::{error_frame, frame};
use crate::session::reads::scatter::with_shard_named;
use crate::session::writes::write::{copies_differ, sum_of_tags};
use crate::wire::{self, shard_tag};

/// Of all that was said against the COPY, what is about the earliest line.
pub(super) fn first_failure(stream: &Stream<'_>, stop: Option<Stop>) -> Option<Failure> {
    let mut first: Option<(u64, Failure)> = None;
    for target in &stream.targets {
        let Answer::Refused(body) = &target.answer else { continue };
        // The answer to the proxy's own CopyFail.
        if wire::error_fields(body).is_ok_and(|fields| fields.message().contains(FAIL_REASON)) {
            continue;
        }
        let named = line_of(body, &stream.copy.table);
        let frame = match (named, &stream.split) {
            (Some(number), Some(_)) => with_line(body, stream.copy, target.lines.at(number)),
            (Some(_), None) | (None, _) => error_frame(body),
        };
        let line = named.map_or(NO_LINE, |number| target.lines.at(number).unwrap_or(0));
        if first.as_ref().is_none_or(|(earlier, _)| line < *earlier) {
            first = Some((line, Failure::Shard(with_shard_named(&frame, &target.name))));
        }
    }
    match (first, stop) {
        // Without a line, and before the data was at its end: PostgreSQL says so before it reads any.
        (Some((line, _)), Some(Stop { failure, line: Some(own) })) if own < line && line != NO_LINE => Some(failure),
        (Some((_, failure)), _) => Some(failure),
        (None, stop) => stop.map(|stop| stop.failure),
    }
}

/// After all lines.
const NO_LINE: u64 = u64::MAX - 1;

/// How many rows were left out, at the end of a COPY with ON_ERROR ignore. By PostgreSQL's own place of it, in any language.
pub(super) fn is_of_skipped(body: &[u8]) -> bool {
    let Ok(fields) = wire::error_fields(body) else { return false };
    fields.get(b'F') == Some(b"copyfrom.c") && fields.get(b'R') == Some(b"CopyFrom") && number_in(&fields.message()).is_some()
}

/// The shards' notices as one, with the sum of their numbers. All shards leave out the same rows of a reference table.
pub(super) fn notice_of_skipped(stream: &Stream<'_>) -> Option<Bytes> {
    let bodies = stream.targets.iter().filter_map(|target| target.skipped.as_deref());
    if stream.is_copied {
        return bodies.take(1).map(|body| frame(shard_tag::NOTICE, body)).next();
    }
    let counted = bodies.filter_map(|body| Some((number_in(&wire::error_fields(body).ok()?.message())?, body)));
    let (sum, most) = counted.fold((0_u64, None), |(sum, most): (u64, Option<(u64, &[u8])>), (number, body)| {
        (sum.saturating_add(number), most.filter(|(other, _)| *other >= number).or(Some((number, body))))
    });
    let (number, body) = most?;
    let fields = wire::error_fields(body).ok()?;
    let mut told = Vec::with_capacity(body.len() + 8);
    for (code, value) in fields.iter() {
        told.push(code);
        match code {
            b'M' => {
                // A message about one row is no message about several in any language.
                let message = match number {
                    1 if sum > 1 => format!("{sum} rows were skipped due to data type incompatibility"),
                    _ => String::from_utf8_lossy(value).replacen(&number.to_string(), &sum.to_string(), 1),
                };
                told.extend_from_slice(message.as_bytes());
            }
            _ => told.extend_from_slice(value),
        }
        told.push(0);
    }
    told.push(0);
    Some(frame(shard_tag::NOTICE, &told))
}

/// The first.
fn number_in(message: &str) -> Option<u64> {
    let start = message.find(|c: char| c.is_ascii_digit())?;
    let digits = message.get(start..)?;
    digits.get(..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len()))?.parse().ok()
}

pub(super) fn tag_of(stream: &Stream<'_>) -> Result<String, Failure> {
    let mut tags = Vec::with_capacity(stream.targets.len());
    for target in &stream.targets {
        match &target.answer {
            Answer::Done(tag) => tags.push(tag.as_str()),
            Answer::Copying | Answer::Refused(_) => return Err(PgError::internal("a shard has not ended its COPY").into()),
        }
    }
    if !stream.is_copied {
        return sum_of_tags(tags.into_iter());
    }
    let (first, rest) = tags.split_first().ok_or_else(|| PgError::internal("no shard to copy to"))?;
    match rest.iter().zip(stream.targets.iter().skip(1)).find(|(tag, _)| *tag != first) {
        None => Ok((*first).to_owned()),
        Some((tag, target)) => Err(copies_differ(first, tag, &target.name).into()),
    }
}
