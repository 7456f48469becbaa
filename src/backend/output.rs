//! Requests to a shard that have not been written yet. Everything that PostgreSQL runs is sealed: see [`super::shard_text`].

use bytes::{Buf, BufMut, BytesMut};

use super::{ShardText, StatementId};
use crate::wire::{FRAME_HEADER_BYTES, client_tag, originate};

/// The bytes are this module's; others put messages.
#[derive(Default)]
pub struct Output(BytesMut);

/// The statement that a Bind runs.
#[derive(Clone, Copy, Debug)]
pub enum StatementName<'a> {
    Unnamed,
    Registered(StatementId),
    Named(&'a [u8]),
}

impl Output {
    pub fn query(&mut self, text: &ShardText<'_>) {
        originate::query(&mut self.0, text.as_bytes());
    }

    /// A statement that is bound by [`Output::bind`] with the same text.
    pub fn parse(&mut self, name: StatementName<'_>, text: &ShardText<'_>, types: &[u32]) {
        name.with(|name| originate::parse(&mut self.0, name, text.as_bytes(), types));
    }

    /// A text that PostgreSQL reads, to describe it or to keep it until it is bound: nothing runs.
    pub fn parse_only(&mut self, name: StatementName<'_>, text: &[u8], types: &[u32]) {
        name.with(|name| originate::parse(&mut self.0, name, text, types));
    }

    /// `text`: that of the statement. `after_names`: the rest of the message.
    #[inline]
    pub fn bind(&mut self, portal: &[u8], statement: StatementName<'_>, _text: &ShardText<'_>, after_names: &[u8]) {
        statement.with(|name| originate::bind(&mut self.0, portal, name, after_names));
    }

    /// A Bind that fails: there is no such statement.
    pub fn bind_missing(&mut self) {
        originate::bind(&mut self.0, b"", b"shardgate_abort", originate::BIND_NOTHING);
    }

    #[inline]
    pub fn describe_portal(&mut self, portal: &[u8]) {
        originate::describe(&mut self.0, b'P', portal);
    }

    pub fn describe_statement(&mut self, name: StatementName<'_>) {
        name.with(|name| originate::describe(&mut self.0, b'S', name));
    }

    #[inline]
    pub fn execute(&mut self, portal: &[u8], row_limit: i32) {
        originate::execute(&mut self.0, portal, row_limit);
    }

    pub fn close_portal(&mut self, portal: &[u8]) {
        originate::close(&mut self.0, b'P', portal);
    }

    pub fn close_statement(&mut self, name: StatementName<'_>) {
        name.with(|name| originate::close(&mut self.0, b'S', name));
    }

    #[inline]
    pub fn sync(&mut self) {
        originate::sync(&mut self.0);
    }

    pub fn flush(&mut self) {
        originate::flush(&mut self.0);
    }

    /// A whole CopyData message with this payload, in two pieces.
    pub fn copy_data(&mut self, payload: &[u8], rest: &[u8]) {
        self.0.put_u8(client_tag::COPY_DATA);
        self.0.put_u32(u32::try_from(payload.len() + rest.len() + 4).unwrap_or(u32::MAX));
        self.0.put_slice(payload);
        self.0.put_slice(rest);
    }

    /// Begins a CopyData message, which [`Output::copy_more`] fills and [`Output::end_copy_data`] ends: where it is.
    pub fn begin_copy_data(&mut self) -> usize {
        self.0.put_slice(&[client_tag::COPY_DATA, 0, 0, 0, 0]);
        self.0.len() - FRAME_HEADER_BYTES
    }

    /// Into the CopyData that has begun.
    pub fn copy_more(&mut self, payload: &[u8]) {
        self.0.extend_from_slice(payload);
    }

    /// `None`: the message is too long.
    pub fn end_copy_data(&mut self, start: usize) -> Option<()> {
        let length = u32::try_from(self.0.len().checked_sub(start + 1)?).ok()?;
        self.0.get_mut(start + 1..start + FRAME_HEADER_BYTES)?.copy_from_slice(&length.to_be_bytes());
        Some(())
    }

    /// A message of the client's while a COPY reads its data, whole. Anything else is no part of a COPY, and is not sent.
    pub fn copy_message(&mut self, frame: &[u8]) {
        let is_of_copy = matches!(
            frame.first(),
            Some(&(client_tag::COPY_DATA | client_tag::COPY_DONE | client_tag::COPY_FAIL | client_tag::SYNC | client_tag::FLUSH))
        );
        assert!(is_of_copy, "a message that is no part of a COPY");
        self.0.extend_from_slice(frame);
    }

    pub fn copy_done(&mut self) {
        originate::bare(&mut self.0, client_tag::COPY_DONE);
    }

    pub fn copy_fail(&mut self, reason: &str) {
        originate::copy_fail(&mut self.0, reason);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn terminate(&mut self) {
        originate::terminate(&mut self.0);
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn advance(&mut self, written: usize) {
        self.0.advance(written);
    }

    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

impl StatementName<'_> {
    #[inline]
    fn with<R>(self, put: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Self::Unnamed => put(b""),
            Self::Registered(id) => id.with_name(put),
            Self::Named(name) => put(name),
        }
    }
}
