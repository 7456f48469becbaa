//! A Bind over several shards is answered before they see its values: they are sent with Execute.
//!
//! A value that its type does not take is an error of Bind in PostgreSQL, in place of BindComplete. Here it comes with Execute, mostly
//! in the same packet of the client's. What was answered since the Bind is taken back then, if it has not left yet: as in PostgreSQL
//! the client hears the error and nothing else.
//!
//! ```text
//!   Bind ─► BindComplete, kept in the output ─► Describe, Execute ─► a shard refuses a value of this portal ─► the error alone
//! ```

use bytes::Bytes;

use super::client::Client;
use super::describe::error_frame;
use crate::wire::{self, FRAME_HEADER_BYTES, FrameHeader, shard_tag};

/// Where the answer to a Bind is in the client's output.
#[derive(Debug)]
pub(in crate::session) struct BoundUnseen {
    portal: Bytes,
    /// How often the output had been sent.
    flushes: u64,
    at: usize,
}

impl BoundUnseen {
    /// Of this portal, whose answer comes next.
    pub fn new(portal: Bytes, client: &Client) -> Self {
        Self { portal, flushes: client.flushes, at: client.output.len() }
    }

    /// The pipeline has failed: if by a value of this Bind, that has failed.
    pub fn take_back(self, client: &mut Client) {
        if self.flushes != client.flushes {
            return;
        }
        let since = client.output.get(self.at..).unwrap_or_default();
        if let Some(before) = answers_before_error(since, &self.portal) {
            let error = client.output.split_off(self.at + before);
            client.output.truncate(self.at);
            match under_its_name(&error, &self.portal) {
                Some(named) => client.output.extend_from_slice(&named),
                None => client.output.unsplit(error),
            }
        }
    }
}

/// How many bytes stand before the error by a value of the portal, if these are answers to its Bind and to what describes it alone.
fn answers_before_error(mut output: &[u8], portal: &[u8]) -> Option<usize> {
    let mut before = 0;
    loop {
        let header = FrameHeader::peek(output, usize::MAX - 8).ok().flatten()?;
        let (frame, rest) = output.split_at_checked(header.total)?;
        match header.tag {
            shard_tag::ERROR => return is_of_value(frame.get(FRAME_HEADER_BYTES..)?, portal).then_some(before),
            shard_tag::BIND_COMPLETE | shard_tag::ROW_DESCRIPTION | shard_tag::NO_DATA => {}
            _ => return None,
        }
        before += header.total;
        output = rest;
    }
}

/// By the words of PostgreSQL's `bind_param_error_callback`, where messages are English; the context of an error by a value in a row, say,
/// has others. The shards run a portal under its name or under none.
fn is_of_value(body: &[u8], portal: &[u8]) -> bool {
    let Ok(fields) = wire::error_fields(body) else { return false };
    let context = fields.get(b'W').map(String::from_utf8_lossy).unwrap_or_default();
    let names = [UNNAMED.to_owned(), called(portal)];
    // Several callbacks may have added to it: the one of Bind is the last.
    context.lines().any(|line| names.iter().any(|name| line.strip_prefix(&**name).is_some_and(|rest| rest.starts_with(PARAMETER))))
}

/// The error and what comes after it, in which the portal that a shard ran under no name has the client's name. `None`: it has it.
fn under_its_name(output: &[u8], portal: &[u8]) -> Option<Vec<u8>> {
    let header = FrameHeader::peek(output, usize::MAX - 8).ok().flatten().filter(|_| !portal.is_empty())?;
    let (frame, rest) = output.split_at_checked(header.total)?;
    let fields = wire::error_fields(frame.get(FRAME_HEADER_BYTES..)?).ok()?;
    let context = fields.get(b'W').map(String::from_utf8_lossy)?;
    let own = format!("{}{PARAMETER}", called(portal));
    let named = context.replace(&format!("{UNNAMED}{PARAMETER}"), &own);
    if named == context {
        return None;
    }
    let mut body = Vec::with_capacity(frame.len() + portal.len());
    for (code, value) in fields.iter() {
        body.push(code);
        body.extend_from_slice(if code == b'W' { named.as_bytes() } else { value });
        body.push(0);
    }
    body.push(0);
    Some([&error_frame(&body)[..], rest].concat())
}

fn called(portal: &[u8]) -> String {
    match portal {
        b"" => UNNAMED.to_owned(),
        name => format!("portal \"{}\"", String::from_utf8_lossy(name)),
    }
}

const UNNAMED: &str = "unnamed portal";
const PARAMETER: &str = " parameter $";

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
        [&[tag][..], &length, body].concat()
    }

    #[test]
    fn only_what_answers_the_bind_is_taken_back() {
        let error = |context: &str| frame(b'E', format!("SERROR\0C22P02\0Mx\0W{context}\0\0").as_bytes());
        let of_value = error("unnamed portal parameter $2 = '...'\nshard \"s1\"");
        let bound = frame(b'2', b"");
        let described = frame(b'T', &[0, 0]);
        let all = |frames: &[&[u8]]| frames.concat();
        assert_eq!(answers_before_error(&all(&[&bound, &described, &of_value]), b""), Some(bound.len() + described.len()));
        assert_eq!(answers_before_error(&all(&[&bound, &error("portal \"q\" parameter $1")]), b"p"), None, "another portal's");
        let of_named = error("portal \"p\" parameter $1");
        assert_eq!(answers_before_error(&all(&[&bound, &of_named]), b"p"), Some(bound.len()));
        assert_eq!(answers_before_error(&all(&[&bound, &frame(b'D', &[0, 0]), &of_value]), b""), None, "rows have come");
        assert_eq!(answers_before_error(&all(&[&bound, &error("PL/pgSQL function f()")]), b""), None);
        assert_eq!(answers_before_error(&bound, b""), None);
    }

    #[test]
    fn a_portal_that_ran_without_a_name_has_the_clients() {
        let error = |context: &str| frame(b'E', format!("SERROR\0C22P02\0Mx\0W{context}\0\0").as_bytes());
        let ready = frame(b'Z', b"I");
        let of_value = [error("unnamed portal parameter $2 = '...'\nshard \"s1\""), ready.clone()].concat();
        assert_eq!(answers_before_error(&of_value, b"p"), Some(0));
        let named = [error("portal \"p\" parameter $2 = '...'\nshard \"s1\""), ready].concat();
        assert_eq!(under_its_name(&of_value, b"p"), Some(named.clone()));
        assert_eq!((under_its_name(&of_value, b""), under_its_name(&named, b"p")), (None, None));
    }
}
