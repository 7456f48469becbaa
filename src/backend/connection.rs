//! One connection to a shard: its socket, its buffers, what it still owes us, and what it has been set to.
//!
//! Requests are appended to `output` together with an entry in `pending` for each answer that will come; [`Connection::fill`]
//! writes and reads at once, so that a long pipeline can never block both sides. The owner consumes frames from `input` and
//! drops the entries of `pending` that they answer. When both are empty, all that was asked is answered, and the last status was
//! idle, the connection is clean.
//!
//! What comes is held against what was asked ([`ShardProtocol`]) when its bytes arrive: a message that is out of order ends the
//! connection for whoever reads it, after what came before it.
//!
//! ```text
//!   checked out ── append request, push Pending ──► fill ⇄ frames ──► pending empty, status I ──► is_clean ──► pool
//!        └────────────── anything unexpected, an error of the socket, a dropped owner ──────────────► closed
//! ```

mod own;
mod parting;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use smallvec::SmallVec;
use thiserror::Error;
use tokio::io::AsyncWrite;
use tokio::time::timeout;

use super::reset::ResetValues;
use super::{
    CustomNames, ForeignOids, NestedValues, Output, Pending, PreparedStatements, Reply, Settings, StatementId, StatementName,
};
use crate::auth::{BackendKey, Greeting};
use crate::catalog::SessionEffects;
use crate::net::{ShardEndpoint, ShardStream};
use crate::shardmap::Pledge;
use crate::wire::{DecodeError, FRAME_HEADER_BYTES, FrameHeader, ShardProtocol, client_tag, error_fields, shard_tag};

/// What ended a connection, or a statement of ours on it.
#[derive(Debug, Error)]
pub enum ConnectionError {
    #[error("connection to shard lost")]
    Io(#[from] io::Error),
    #[error("shard closed the connection")]
    Closed,
    #[error("unexpected message from shard: {0}")]
    Decode(#[from] DecodeError),
    /// The shard has sent more at once, or without being asked, than is kept.
    #[error("the shard has sent {what} of more than {bytes_max} bytes")]
    TooMuch { what: &'static str, setting: &'static str, bytes_max: usize },
    /// FATAL: its own words.
    #[error("the shard ended the connection: {0}")]
    Ended(String),
    /// What it answers from then on counts for nothing.
    #[error("the shard has another primary server now")]
    FormerPrimary,
    /// A statement of the proxy's own failed.
    #[error("shard refused a statement of the proxy: {message}")]
    Refused { sqlstate: String, message: String, body: Bytes },
}

/// What a connection keeps of what its shard sends.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Of one message that is kept as a whole.
    pub message_bytes_max: usize,
    /// Of notifications, and of settings that the shard reports.
    pub unasked_bytes_max: usize,
}

impl ConnectionLimits {
    /// Of connections for the proxy's own statements, whose answers are short.
    pub const OWN: Self = Self { message_bytes_max: 16 << 20, unasked_bytes_max: 1 << 20 };
}

/// A frame at the front of the input.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub header: FrameHeader,
    /// The whole frame has arrived.
    pub is_complete: bool,
}

/// Names one backend in cancel requests.
pub struct CancelHandle {
    pub endpoint: Arc<ShardEndpoint>,
    pub key: BackendKey,
}

pub struct Connection {
    stream: ShardStream,
    limits: ConnectionLimits,
    /// Bytes from the shard that nobody has consumed.
    pub input: BytesMut,
    /// Requests that have not been written.
    pub output: Output,
    /// Notifications that came among the answers to the proxy's own requests: the session's client gets them.
    pub notifications: BytesMut,
    pub pending: VecDeque<Pending>,
    /// Bytes of a large row that are still to come and go to the client as they are.
    pub frame_bytes_left: usize,
    /// Last ReadyForQuery: `I`, `T` or `E`.
    pub status: u8,
    /// What was asked and is not answered. Whoever gives up in the middle leaves it to the next one: such a connection is nobody's any
    /// more.
    protocol: ShardProtocol,
    /// What came next is out of order.
    disorder: Option<DecodeError>,
    /// Why it has ended, where that may be more than its own affair.
    loss: Option<String>,
    /// Bytes that were sent and that the shard may not have read yet.
    unread: usize,
    /// Bytes at the front of `output` whose requests are counted.
    counted: usize,
    /// How often the unnamed portal was made anew by a counted request.
    unnamed_portals: u32,
    /// Syncs that were sent since the shard waits for the data of a COPY, which are no part of `pending`.
    pub syncs_in_copy: u32,
    /// Command tag of the last Query whose answer the client did not see.
    pub hidden_tag: SmallVec<[u8; 16]>,
    /// Where cancel requests for this backend go; a pooler in between may have given no key.
    pub cancel_handle: Option<Arc<CancelHandle>>,
    pub prepared: PreparedStatements,
    /// The first half of the answer to [`Reply::Columns`].
    pub parameters_described: Vec<u32>,
    /// Which statement is parsed as the unnamed one.
    pub unnamed: Option<StatementId>,
    pub settings: Arc<Settings>,
    pub custom_names: CustomNames,
    /// Others that it may know: something was to run that leaves them behind.
    pub doubted_names: CustomNames,
    /// What the shard's oids are at home, for row descriptions.
    pub oids: Arc<ForeignOids>,
    /// For the answers of [`Reply::ExecuteNested`] that are due.
    nested: Vec<NestedValues>,
    /// ParameterStatus values as last reported.
    pub parameters: Vec<(Arc<str>, Arc<str>)>,
    /// The same, as long as no setting was changed.
    pub(super) parameters_at_first: Vec<(Arc<str>, Arc<str>)>,
    /// One of them has changed since.
    pub(super) has_reported: bool,
    /// Known after the first reset.
    pub(super) reset_values: Option<ResetValues>,
    /// Its reset was sent, or is in the output, and the answer is not read yet.
    pub(super) reset_sent_at: Option<Instant>,
    /// A mistake, in tests: the reset looks for functions by the search path that it finds.
    pub has_planted_reset: bool,
    /// What the statements that ran on it may have left behind and is not on record.
    pub effects: Option<Arc<SessionEffects>>,
    pub opened_at: Instant,
    /// When it was first seen idle.
    pub idle_since: Option<Instant>,
    /// Index of the runtime whose reactor knows the socket.
    pub runtime: usize,
    /// A cancel request may still arrive at this backend: it must be proven quiet before anyone else gets it.
    pub is_cancel_pending: bool,
    /// What is owed prepares or ends a transaction: no cancel request goes there when the connection is closed.
    pub ends_transaction: bool,
    /// Who has drawn from the shard's own sequences on it last, a session and the how manieth time.
    pub drawn_by: Option<(i32, u64)>,
    /// The session left something behind that no SET can undo.
    pub is_pinned: bool,
    /// Of the proxy's lease when it was opened: see [`crate::shardmap::Membership`].
    pub generation: i64,
    /// Its server is the shard's primary; `None`: nobody has looked.
    pub(super) pledge: Option<Pledge>,
}

impl Connection {
    pub fn new(stream: ShardStream, endpoint: &Arc<ShardEndpoint>, greeting: Greeting, runtime: usize) -> Self {
        Self::after_login(stream, endpoint, greeting, runtime, 0)
    }

    /// `queries`: so many were sent behind the login, and their answers may have begun to come.
    pub(super) fn after_login(
        stream: ShardStream,
        endpoint: &Arc<ShardEndpoint>,
        greeting: Greeting,
        runtime: usize,
        queries: usize,
    ) -> Self {
        let now = Instant::now();
        let parameters: Vec<(Arc<str>, Arc<str>)> =
            greeting.parameter_status.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let mut connection = Self {
            stream,
            limits: ConnectionLimits::OWN,
            input: BytesMut::new(),
            output: Output::default(),
            notifications: BytesMut::new(),
            pending: VecDeque::new(),
            frame_bytes_left: 0,
            status: b'I',
            protocol: ShardProtocol::default(),
            disorder: None,
            loss: None,
            unread: 0,
            counted: 0,
            unnamed_portals: 0,
            syncs_in_copy: 0,
            hidden_tag: SmallVec::new(),
            cancel_handle: greeting.backend_key.map(|key| Arc::new(CancelHandle { endpoint: Arc::clone(endpoint), key })),
            prepared: PreparedStatements::default(),
            parameters_described: Vec::new(),
            unnamed: None,
            settings: Arc::new(Settings::default()),
            custom_names: CustomNames::default(),
            doubted_names: CustomNames::default(),
            oids: Arc::default(),
            nested: Vec::new(),
            parameters_at_first: parameters.clone(),
            parameters,
            has_reported: false,
            reset_values: None,
            reset_sent_at: None,
            has_planted_reset: false,
            effects: None,
            opened_at: now,
            idle_since: None,
            runtime,
            is_cancel_pending: false,
            ends_transaction: false,
            drawn_by: None,
            is_pinned: false,
            generation: 0,
            pledge: None,
        };
        connection.input = greeting.leftover;
        (0..queries).for_each(|_| connection.protocol.asked(client_tag::QUERY, None));
        connection.check_received(0);
        connection
    }

    /// It knows no custom setting that is not among these.
    pub fn knows_only(&self, names: &CustomNames) -> bool {
        self.custom_names.is_subset(names) && self.doubted_names.is_subset(names)
    }

    #[inline]
    pub fn expect(&mut self, reply: Reply, is_visible: bool) {
        self.pending.push_back(Pending { reply, is_visible });
    }

    /// The answer to Execute, whose rows hold values that name types.
    pub fn expect_nested(&mut self, nested: &NestedValues) {
        if self.pending.is_empty() {
            self.nested.clear();
        }
        let known = self.nested.iter().position(|known| known == nested);
        let index = known.unwrap_or_else(|| {
            self.nested.push(nested.clone());
            self.nested.len() - 1
        });
        // Far more than a pipeline can hold.
        self.expect(Reply::ExecuteNested(u16::try_from(index).unwrap_or(u16::MAX)), true);
    }

    /// Translates the body of a DataRow, at this place of the input.
    pub fn translate_row(&mut self, nested: &NestedValues, body: Range<usize>) {
        if let Some(body) = self.input.get_mut(body).filter(|_| !nested.is_empty()) {
            self.oids.translate_row(nested, body);
        }
    }

    /// The same, for the answer of [`Reply::ExecuteNested`].
    pub fn translate_row_of(&mut self, entry: u16, body: Range<usize>) {
        if let (Some(nested), Some(body)) = (self.nested.get(usize::from(entry)), self.input.get_mut(body)) {
            self.oids.translate_row(nested, body);
        }
    }

    pub fn set_limits(&mut self, limits: ConnectionLimits) {
        self.limits = limits;
    }

    /// Writes what is waiting and reads at least one byte. Cancel safe: bytes are in `output` or `input` or on the wire.
    ///
    /// Errors: the socket's, or [`ConnectionError::Closed`] at its end.
    pub async fn fill(&mut self) -> Result<(), ConnectionError> {
        poll_fn(|context| self.poll_fill(context)).await
    }

    pub fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        if let Some(pledge) = &self.pledge {
            pledge.wake_when_broken(context.waker());
        }
        if self.is_of_former_primary() {
            self.note_loss(&ConnectionError::FormerPrimary);
            return Poll::Ready(Err(ConnectionError::FormerPrimary));
        }
        // A full socket must not stop the reading: the shard may be waiting for us to take its answers.
        let written = self.poll_flush(context);
        if let Poll::Ready(Err(error)) = written {
            return Poll::Ready(Err(error));
        }
        let read = self.poll_read(context);
        if let Poll::Ready(Err(error)) = &read {
            self.note_loss(error);
        }
        read
    }

    /// Another server was promoted since it was opened: nothing is to be sent there, and nothing that came from there counts.
    #[inline]
    pub fn is_of_former_primary(&self) -> bool {
        self.pledge.as_ref().is_some_and(Pledge::is_broken)
    }

    fn note_loss(&mut self, error: &ConnectionError) {
        self.loss.get_or_insert_with(|| error.to_string());
    }

    /// FATAL, in its own words. A limit of the session on the shard says nothing of other connections.
    pub fn note_farewell(&mut self, sqlstate: Option<&[u8]>, message: &str) {
        if !sqlstate.is_some_and(|sqlstate| OWN_LIMITS.contains(&sqlstate)) {
            self.loss.get_or_insert_with(|| message.to_owned());
        }
    }

    /// Why it has ended; `None`: it has not, or by a limit that is its own.
    pub fn loss(&self) -> Option<&str> {
        self.loss.as_deref()
    }

    /// Writes what is waiting, as far as the socket takes it.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        if self.unread > 0 && !self.output.is_empty() && self.protocol.is_settled() {
            self.note_sent(0);
        }
        self.count_requests();
        while !self.output.is_empty() {
            match self.stream.poll_send(context, self.output.bytes()) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => {
                    let error = error.into();
                    self.note_loss(&error);
                    return Poll::Ready(Err(error));
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(ConnectionError::Closed)),
                Poll::Ready(Ok(written)) => {
                    self.output.advance(written);
                    self.note_sent(self.unread.saturating_add(written));
                    self.counted = self.counted.saturating_sub(written);
                }
            }
        }
        match &self.stream {
            // A TLS stream holds back records until it is flushed.
            ShardStream::Plain(_) => Poll::Ready(Ok(())),
            ShardStream::Tls(_) => Pin::new(&mut self.stream).poll_flush(context).map_err(ConnectionError::from),
        }
    }

    /// What is small fits into the shard's window whether it reads or not, so that an acknowledgement is due at once; what is large waits
    /// for a shard that reads.
    #[inline]
    fn note_sent(&mut self, unread: usize) {
        let before = std::mem::replace(&mut self.unread, unread);
        if (before > UNREAD_BYTES_SMALL) != (unread > UNREAD_BYTES_SMALL) {
            self.stream.bound_acknowledgement(unread <= UNREAD_BYTES_SMALL);
        }
    }

    /// Takes note of the requests that have come to `output`, by their frames.
    #[inline]
    fn count_requests(&mut self) {
        while let Some([tag, length @ ..]) =
            self.output.bytes().get(self.counted..).and_then(|rest| rest.first_chunk::<FRAME_HEADER_BYTES>())
        {
            let first = self.output.bytes().get(self.counted + FRAME_HEADER_BYTES).copied();
            self.protocol.asked(*tag, first);
            let is_unnamed = *tag == client_tag::QUERY || (*tag == client_tag::BIND && first == Some(0));
            self.unnamed_portals = self.unnamed_portals.wrapping_add(u32::from(is_unnamed));
            self.counted += 1 + u32::from_be_bytes(*length) as usize;
        }
    }

    /// Tells the unnamed portal that is there, or in `output`, from those before it.
    pub fn unnamed_portal(&mut self) -> u32 {
        self.count_requests();
        self.unnamed_portals
    }

    /// ReadyForQuery has been read.
    #[inline]
    pub fn note_ready(&mut self, status: u8) {
        self.status = status;
    }

    /// A COPY has its data, and all that was sent before the end of them was read with them.
    #[inline]
    pub fn end_copy(&mut self) {
        self.syncs_in_copy = 0;
    }

    /// A COPY has failed. Which of the Syncs that were sent to it the shard has read as part of the data is not known: it answers the
    /// others, and what is put behind them shows where its answers end.
    pub fn ask_for_syncs(&mut self) {
        let syncs = std::mem::take(&mut self.syncs_in_copy);
        if syncs == 0 {
            return;
        }
        self.output.sync();
        self.output.close_statement(StatementName::Unnamed);
        self.output.sync();
        self.unnamed = None;
        (0..=syncs).for_each(|_| self.expect(Reply::Sync, false));
        self.expect(Reply::SyncsOfCopy(syncs), false);
        self.expect(Reply::Sync, false);
    }

    /// The answer to that. How many Syncs were not read with the data; `None`: nothing of the kind was asked.
    pub fn take_syncs_of_copy(&mut self) -> Option<u32> {
        let read = self.pending.iter().take_while(|pending| pending.reply == Reply::Sync).count();
        let Some(Pending { reply: Reply::SyncsOfCopy(syncs), .. }) = self.pending.get(read).copied() else { return None };
        self.pending.drain(..=read);
        Some(syncs.saturating_sub(u32::try_from(read).unwrap_or(u32::MAX)))
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        if let Some(disorder) = &self.disorder {
            return Poll::Ready(Err(disorder.clone().into()));
        }
        let before = self.input.len();
        match self.stream.poll_receive(context, &mut self.input) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Ready(Ok(0)) => Poll::Ready(Err(ConnectionError::Closed)),
            Poll::Ready(Ok(_)) => {
                self.check_received(before);
                match &self.disorder {
                    Some(disorder) if self.input.len() == before => Poll::Ready(Err(disorder.clone().into())),
                    _ => Poll::Ready(Ok(())),
                }
            }
        }
    }

    /// Holds what has come behind this place of the input against what was asked. From a message on that is out of order nothing
    /// counts.
    #[inline]
    fn check_received(&mut self, before: usize) {
        let received = self.input.get(before..).unwrap_or_default();
        if let Err((at, disorder)) = self.protocol.received(received, SHARD_FRAME_BYTES_MAX) {
            self.input.truncate(before + at);
            self.disorder = Some(disorder);
        }
    }

    /// Writes everything, without reading. For small requests only.
    pub async fn flush(&mut self) -> Result<(), ConnectionError> {
        poll_fn(|context| self.poll_flush(context)).await
    }

    /// The same, before the answer is read or another shard is asked. An error of the socket is met again by the reader: who has
    /// asked several shards hears all of them, and leaves no answer to somebody else.
    pub async fn send(&mut self) {
        if let Err(error) = self.flush().await {
            tracing::debug!(%error, "a shard was lost before it could be asked");
        }
    }

    /// Asks the shard to stop what this connection runs. Nobody else gets it any more.
    pub async fn stop(&mut self) {
        self.is_cancel_pending = true;
        let Some(handle) = &self.cancel_handle else { return };
        match timeout(CANCEL_TIMEOUT, handle.endpoint.cancel(&handle.key.bytes)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "cancel request not delivered"),
            Err(_) => tracing::debug!("cancel request not delivered in time"),
        }
    }

    /// An answer is still to come.
    pub fn owes(&self) -> bool {
        self.disorder.is_some() || self.protocol.owes()
    }

    /// The frame at the front of the input; `None` when not even its header has arrived. Notifications are put aside.
    ///
    /// Errors: [`ConnectionError::Ended`] instead of a FATAL, which ends this connection and not the client's.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<Frame>, ConnectionError> {
        loop {
            let header = FrameHeader::peek(&self.input, SHARD_FRAME_BYTES_MAX)?;
            let frame = header.map(|header| Frame { header, is_complete: self.input.len() >= header.total });
            match frame {
                Some(Frame { header, is_complete: true }) if header.tag == shard_tag::NOTIFICATION => {
                    self.keep_notification(header)?
                }
                Some(Frame { header, is_complete: false }) => {
                    self.check_is_kept(header)?;
                    return Ok(frame);
                }
                Some(Frame { header, is_complete: true }) if header.tag == shard_tag::PARAMETER_STATUS => {
                    self.note_status(header)?;
                    return Ok(frame);
                }
                Some(Frame { header, is_complete: true }) if header.tag == shard_tag::ERROR => {
                    let fields = error_fields(self.input.get(FRAME_HEADER_BYTES..header.total).unwrap_or_default())?;
                    if !fields.is_fatal() {
                        return Ok(frame);
                    }
                    let (sqlstate, message) = (fields.sqlstate().map(<[u8]>::to_vec), fields.message());
                    self.note_farewell(sqlstate.as_deref(), &message);
                    return Err(ConnectionError::Ended(message));
                }
                frame => return Ok(frame),
            }
        }
    }

    /// A message that has not come as a whole, and is to be kept until it has.
    #[inline]
    pub fn check_is_kept(&self, header: FrameHeader) -> Result<(), ConnectionError> {
        let bytes_max = self.limits.message_bytes_max;
        match header.total > bytes_max {
            true => Err(ConnectionError::TooMuch { what: "a row or message", setting: "cross_shard.row_bytes_max", bytes_max }),
            false => Ok(()),
        }
    }

    /// The one at the front of the input, until the client may have it.
    pub fn keep_notification(&mut self, header: FrameHeader) -> Result<(), ConnectionError> {
        let notification = self.input.split_to(header.total);
        self.check_unasked(self.notifications.len() + notification.len(), "notifications")?;
        self.notifications.extend_from_slice(&notification);
        Ok(())
    }

    fn check_unasked(&self, bytes: usize, what: &'static str) -> Result<(), ConnectionError> {
        let bytes_max = self.limits.unasked_bytes_max;
        match bytes > bytes_max {
            true => Err(ConnectionError::TooMuch { what, setting: "pool.unasked_bytes_max", bytes_max }),
            false => Ok(()),
        }
    }

    /// Whoever reads the answer: a setting that nobody has on record keeps the connection from its next user.
    fn note_status(&mut self, header: FrameHeader) -> Result<(), ConnectionError> {
        let body = self.input.get(FRAME_HEADER_BYTES..header.total).unwrap_or_default();
        let (name, value) = crate::wire::parameter_status(body)?;
        let (name, value) = (String::from_utf8_lossy(name).into_owned(), String::from_utf8_lossy(value).into_owned());
        self.note_parameter(&name, &value)
    }

    /// The next whole frame: its tag and body. Waits for it.
    pub async fn next_frame(&mut self) -> Result<(u8, Bytes), ConnectionError> {
        loop {
            if let Some(Frame { header, is_complete: true }) = self.peek()? {
                let mut frame = self.input.split_to(header.total).freeze();
                frame.advance(FRAME_HEADER_BYTES);
                return Ok((header.tag, frame));
            }
            self.fill().await?;
        }
    }

    /// A setting that the server reports.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| &**known == name).map(|(_, value)| &**value)
    }

    /// Of the server, as it reports itself; `None`: it does not.
    pub fn major_version(&self) -> Option<u32> {
        let version = self.parameter("server_version")?;
        version.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
    }

    /// Remembers a ParameterStatus.
    pub fn note_parameter(&mut self, name: &str, value: &str) -> Result<(), ConnectionError> {
        match self.parameters.iter_mut().find(|(known, _)| &**known == name) {
            Some((_, known)) if &**known == value => return Ok(()),
            Some((_, known)) => *known = value.into(),
            None => self.parameters.push((name.into(), value.into())),
        }
        self.has_reported = true;
        let bytes = self.parameters.iter().map(|(name, value)| PARAMETER_BYTES + name.len() + value.len()).sum();
        self.check_unasked(bytes, "values of settings")
    }

    /// Nothing is owed in either direction, and no transaction has failed.
    pub fn is_at_rest(&self) -> bool {
        self.pending.is_empty() && !self.owes() && self.input.is_empty() && self.output.is_empty() && self.status != b'E'
    }

    /// The same; nothing is open, nothing is left behind.
    pub fn is_clean(&self) -> bool {
        self.is_at_rest()
            && self.notifications.is_empty()
            && self.status == b'I'
            && !self.is_pinned
            && !self.keeps_something()
            && !self.is_cancel_pending
    }

    /// The shard has ended it, which nobody has met yet as nothing was asked since, or it is of a former primary. One system call.
    pub fn has_ended_unseen(&mut self) -> bool {
        if self.is_of_former_primary() {
            return true;
        }
        let mut has_come = false;
        while !self.owes() {
            let before = self.input.len();
            match self.stream.try_receive_now(&mut self.input) {
                Ok(1..) => self.check_received(before),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Ok(0) | Err(_) => return true,
            }
            has_come = true;
        }
        // Unasked, something else than a notice: a farewell, whose end of the connection may be still on its way.
        has_come
    }

    /// Looks for bytes or an end that came while nobody waited; no system call when the reactor has seen nothing, unless it was idle so
    /// long that much may have happened meanwhile.
    ///
    /// Notices and parameter changes are processed; anything else, and the end, mean that the connection is of no use.
    pub fn is_quiet(&mut self) -> bool {
        if self.is_of_former_primary() {
            self.note_loss(&ConnectionError::FormerPrimary);
            return false;
        }
        loop {
            let before = self.input.len();
            let received = match self.idle_since {
                Some(_) => self.stream.try_receive_now(&mut self.input),
                None => self.stream.try_receive(&mut self.input),
            };
            match received {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.input.is_empty() && !self.owes(),
                Err(error) => {
                    self.note_loss(&error.into());
                    return false;
                }
                Ok(0) => {
                    self.note_loss(&ConnectionError::Closed);
                    return false;
                }
                // The end may come right behind a farewell.
                Ok(_) => {
                    self.check_received(before);
                    if !self.process_unasked() {
                        return false;
                    }
                }
            }
        }
    }

    fn process_unasked(&mut self) -> bool {
        while let Ok(Some(Frame { header, is_complete: true })) = self.peek() {
            self.input.advance(header.total);
            if !matches!(header.tag, shard_tag::NOTICE | shard_tag::NOTIFICATION | shard_tag::PARAMETER_STATUS) {
                return false;
            }
        }
        self.input.is_empty()
    }

    /// Registers the socket with the runtime that calls this. An error means that the connection is lost.
    pub fn move_to_runtime(self, runtime: usize) -> io::Result<Self> {
        let stream = self.stream.detach()?.attach()?;
        Ok(Self { stream, runtime, ..self })
    }

    pub fn process_id(&self) -> i32 {
        self.cancel_handle.as_ref().map_or(0, |handle| handle.key.process_id)
    }

    /// Gives back memory that a large result has taken.
    pub fn shrink(&mut self) {
        if self.input.is_empty() && self.input.capacity() > IDLE_BUFFER_BYTES {
            self.input = BytesMut::new();
        }
        if self.output.is_empty() && self.output.capacity() > IDLE_BUFFER_BYTES {
            self.output = Output::default();
        }
    }
}

fn owned_columns(body: &Bytes) -> Result<Vec<Option<Bytes>>, DecodeError> {
    crate::wire::data_row_columns(body).map(|column| Ok(column?.map(|bytes| body.slice_ref(bytes)))).collect()
}

/// Of a session that was idle too long, in a transaction or not, or whose transaction was too long.
const OWN_LIMITS: [&[u8]; 3] = [b"25P03", b"57P05", b"25P04"];
/// A shard that does not take a cancel request for so long is left to notice the closed connection.
pub const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);
/// Buffers above this are given back when a connection becomes idle.
const IDLE_BUFFER_BYTES: usize = 32 * 1024;
/// What an entry of the reported settings takes beside its name and value. Their number is bounded by it too: each of them is looked
/// at when one is reported.
const PARAMETER_BYTES: usize = 4096;
/// Of the 64 KB and more that a kernel takes for a process that does not read.
const UNREAD_BYTES_SMALL: usize = 16 * 1024;
/// PostgreSQL's own limit of a message.
const SHARD_FRAME_BYTES_MAX: usize = 0x3fff_ffff;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Own;
    use crate::config::ShardUrl;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    pub(super) async fn pair(limits: ConnectionLimits) -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let stream = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("connected");
        let (shard, _) = listener.accept().await.expect("accepted");
        let url = ShardUrl::parse("postgres://postgres@127.0.0.1:1/app").expect("valid");
        let endpoint = ShardEndpoint::of(url).expect("usable").remove(0);
        let greeting = Greeting { parameter_status: Vec::new(), backend_key: None, leftover: BytesMut::new() };
        let mut connection = Connection::new(ShardStream::Plain(stream), &endpoint, greeting, 0);
        connection.set_limits(limits);
        (connection, shard)
    }

    pub(super) fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
        [&[tag][..], &length, body].concat()
    }

    #[tokio::test]
    async fn what_a_shard_sends_too_much_of_names_its_setting() {
        let limits = ConnectionLimits { message_bytes_max: 10_000, unasked_bytes_max: 50_000 };
        let notification = message(shard_tag::NOTIFICATION, &[&[0, 0, 0, 1][..], b"channel\0", &[b'x'; 1_000], b"\0"].concat());
        let settings = |count: usize| (0..count).flat_map(|n| message(b'S', format!("name{n}\0value\0").as_bytes())).collect();
        let row = |bytes: usize| [message(b'T', &[0, 0]), message(shard_tag::DATA_ROW, &vec![0; bytes])].concat();
        let end = [message(b'C', b"SELECT 1\0"), message(shard_tag::READY, b"I")].concat();
        let cases: [(Vec<u8>, Option<&str>); 6] = [
            (notification.repeat(40), None),
            (notification.repeat(60), Some("pool.unasked_bytes_max")),
            (settings(5), None),
            (settings(20), Some("pool.unasked_bytes_max")),
            (row(9_000), None),
            (row(11_000)[..9_000].to_vec(), Some("cross_shard.row_bytes_max")),
        ];
        for (sent, expected) in cases {
            let (mut connection, mut shard) = pair(limits).await;
            connection.output.query(&Own::Constants.text("SELECT"));
            shard.write_all(&[sent.as_slice(), &end].concat()).await.expect("sent");
            let told = loop {
                match connection.next_frame().await {
                    Ok((shard_tag::READY, _)) => break None,
                    Ok(_) => {}
                    Err(error) => break Some(error),
                }
            };
            let setting = told.map(|error| match error {
                ConnectionError::TooMuch { setting, .. } => setting,
                other => panic!("{other}"),
            });
            assert_eq!(setting, expected);
        }
    }

    #[tokio::test]
    async fn a_message_that_was_sent_in_part_is_not_ended_by_another() {
        let (mut connection, mut shard) = pair(ConnectionLimits { message_bytes_max: 1 << 20, unasked_bytes_max: 1 << 20 }).await;
        // More than two kernels keep.
        connection.output.query(&Own::Constants.text(&vec![b'x'; 64 << 20]));
        let whole = connection.output.len();
        let is_pending = poll_fn(|context| Poll::Ready(connection.poll_flush(context).is_pending())).await;
        assert!(is_pending);
        let mut sent = vec![0; whole - connection.output.len()];
        shard.read_exact(&mut sent).await.expect("what was sent");
        // There is room again.
        tokio::time::sleep(Duration::from_millis(20)).await;
        connection.close();
        let mut rest = Vec::new();
        shard.read_to_end(&mut rest).await.expect("its end");
        assert_eq!(rest, b"");
    }
}
