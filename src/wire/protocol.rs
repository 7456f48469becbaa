//! What a shard may say next: the order of its messages, from the requests that were sent to it.
//!
//! A shard that is broken, or what lies before it, may leave messages out, repeat them or send those of somebody else: rows that are cut
//! off would then pass for a whole answer, and one client's row for another's. So each message is held against the requests, by
//! its header alone, when its bytes arrive: one place for all who read a connection.
//!
//! ```text
//!   Parse ─ 1     Bind ─ 2     Close ─ 3     Describe ─ t? (T | n)     Sync ─ Z
//!   Execute ─ D* (C | s) | I | G, then C once the data have been sent | H d* c C
//!   Query   ─ (T D* | C | I | G … C | H d* c C)*, the last of them complete, then Z
//!   E at any place: Execute and its kind are skipped up to Sync, a Query has only its Z left
//!   N, S, A at any time; a last E when nothing is asked
//! ```
//!
//! A shard that reads the data of a COPY ignores Sync. When the COPY fails before its data have ended, only the shard knows which Syncs
//! it has read with them: these may be answered or not.

use std::collections::VecDeque;

use super::{DecodeError, FRAME_HEADER_BYTES, FrameHeader, client_tag, shard_tag};

/// Pure, and fed with bytes: those that are sent as the tags of their messages, those that come as they are.
#[derive(Debug, Default)]
pub struct ShardProtocol {
    /// Which are not answered yet, in order.
    requests: VecDeque<Request>,
    /// How far the first of them is.
    phase: Phase,
    /// An error in the extended protocol: everything is skipped up to Sync.
    skips: bool,
    /// The shard has said why it ends the connection.
    has_ended: bool,
    /// ReadyForQuery that were taken for the answers of uncertain Syncs, and may be those of the next ones.
    uncertain_readies: u32,
    /// Bytes of the present message that are still to come.
    body_left: usize,
    /// The part of a header that has come.
    header: [u8; FRAME_HEADER_BYTES],
    header_length: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Parse,
    Bind,
    DescribeStatement,
    DescribePortal,
    Execute,
    Close,
    Sync,
    /// Of a COPY that has failed: perhaps it was read as part of the data.
    UncertainSync,
    Query,
    /// CopyDone or CopyFail.
    CopyEnd,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Begun,
    /// The parameters of a statement are described, its columns are not.
    ParametersDescribed,
    Rows,
    CopyIn,
    CopyOut,
    CopiedOut,
    /// Of a Query: what has begun is complete.
    Complete,
    /// Nothing but ReadyForQuery comes.
    Failed,
}

/// What a message does to the request that it answers.
enum Step {
    Goes(Phase),
    Done,
    /// An error, after which the shard skips up to Sync.
    Skips,
    OutOfOrder,
}

impl ShardProtocol {
    /// A message was sent; `first` is the first byte of its body.
    #[inline]
    pub fn asked(&mut self, tag: u8, first: Option<u8>) {
        let request = match tag {
            client_tag::PARSE => Request::Parse,
            client_tag::BIND => Request::Bind,
            client_tag::DESCRIBE if first == Some(b'S') => Request::DescribeStatement,
            client_tag::DESCRIBE => Request::DescribePortal,
            client_tag::EXECUTE => Request::Execute,
            client_tag::CLOSE => Request::Close,
            client_tag::SYNC => Request::Sync,
            client_tag::QUERY => Request::Query,
            client_tag::COPY_DONE | client_tag::COPY_FAIL => Request::CopyEnd,
            // Flush, data, Terminate: nothing answers them.
            _ => return,
        };
        self.requests.push_back(request);
    }

    /// Everything that was asked is answered: the shard has read it.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.requests.is_empty()
    }

    /// Bytes have come, in whatever pieces. An error: where in them the message begins that is out of order, or has an impossible
    /// length; what comes before it is right.
    #[inline]
    pub fn received(&mut self, bytes: &[u8], body_bytes_max: usize) -> Result<(), (usize, DecodeError)> {
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            if self.body_left > 0 {
                let taken = self.body_left.min(rest.len());
                self.body_left -= taken;
                at += taken;
                if self.body_left > 0 {
                    return Ok(());
                }
                continue;
            }
            let (header, taken) = match self.header_length {
                0 if rest.len() >= FRAME_HEADER_BYTES => (FrameHeader::peek(rest, body_bytes_max), FRAME_HEADER_BYTES),
                _ => {
                    let taken = rest.len().min(FRAME_HEADER_BYTES - self.header_length);
                    let place = self.header.get_mut(self.header_length..self.header_length + taken);
                    place.into_iter().zip(rest.get(..taken)).for_each(|(place, part)| place.copy_from_slice(part));
                    self.header_length += taken;
                    if self.header_length < FRAME_HEADER_BYTES {
                        return Ok(());
                    }
                    self.header_length = 0;
                    (FrameHeader::peek(&self.header, body_bytes_max), taken)
                }
            };
            let header = header.map_err(|error| (at, error))?.ok_or((at, DecodeError::Truncated))?;
            if !self.answered(header.tag) {
                return Err((at, DecodeError::OutOfOrder { tag: header.tag }));
            }
            self.body_left = header.body_bytes();
            at += taken;
        }
    }

    /// Is there anything that was asked and not answered, or a Sync to be sent before anything is?
    #[inline]
    pub fn owes(&self) -> bool {
        self.skips || self.has_ended || self.requests.iter().any(|request| *request != Request::CopyEnd)
    }

    /// A message of this type has come. False: it is out of order.
    #[inline]
    fn answered(&mut self, tag: u8) -> bool {
        if self.has_ended {
            return false;
        }
        match tag {
            shard_tag::NOTICE | shard_tag::PARAMETER_STATUS | shard_tag::NOTIFICATION => return true,
            // The rows of a Query: most messages of most answers.
            shard_tag::DATA_ROW if self.phase == Phase::Rows => return true,
            _ => {}
        }
        loop {
            self.drop_unanswered();
            let Some(&request) = self.requests.front() else {
                self.has_ended = tag == shard_tag::ERROR;
                return self.has_ended;
            };
            if self.passes_over(request, tag) {
                self.requests.pop_front();
                continue;
            }
            match self.step(request, tag) {
                Step::Goes(phase) => self.phase = phase,
                Step::Done => self.finish(request),
                Step::Skips => {
                    self.finish(request);
                    self.skips = true;
                }
                Step::OutOfOrder => return false,
            }
            return true;
        }
    }

    /// What gets no answer: the end of data that nobody reads, and what comes between an error and Sync.
    fn drop_unanswered(&mut self) {
        while let Some(request) = self.requests.front() {
            let is_sync = matches!(request, Request::Sync | Request::UncertainSync);
            if *request != Request::CopyEnd && (is_sync || !self.skips) {
                return;
            }
            self.requests.pop_front();
        }
    }

    /// An uncertain Sync that was read as part of the data after all, or a later one whose answer was taken for its.
    fn passes_over(&mut self, request: Request, tag: u8) -> bool {
        if matches!(tag, shard_tag::READY | shard_tag::ERROR) {
            return false;
        }
        match request {
            Request::UncertainSync => true,
            Request::Sync if self.uncertain_readies > 0 => {
                self.uncertain_readies -= 1;
                true
            }
            _ => false,
        }
    }

    fn finish(&mut self, request: Request) {
        self.requests.pop_front();
        self.phase = Phase::Begun;
        match request {
            Request::UncertainSync => self.uncertain_readies += 1,
            Request::Sync | Request::Query => {}
            _ => self.uncertain_readies = 0,
        }
        if matches!(request, Request::Sync | Request::UncertainSync) {
            self.skips = false;
        }
    }

    fn step(&mut self, request: Request, tag: u8) -> Step {
        if tag == shard_tag::ERROR {
            if self.phase == Phase::CopyIn {
                self.doubt_syncs();
            }
            return match request {
                Request::Query | Request::Sync | Request::UncertainSync => Step::Goes(Phase::Failed),
                _ => Step::Skips,
            };
        }
        match request {
            Request::Query => self.step_of_query(tag),
            Request::Execute => self.step_of_execute(tag),
            Request::Parse => answered_by(tag, shard_tag::PARSE_COMPLETE),
            Request::Bind => answered_by(tag, shard_tag::BIND_COMPLETE),
            Request::Close => answered_by(tag, shard_tag::CLOSE_COMPLETE),
            Request::Sync | Request::UncertainSync => answered_by(tag, shard_tag::READY),
            Request::DescribeStatement if self.phase == Phase::Begun => match tag {
                shard_tag::PARAMETER_DESCRIPTION => Step::Goes(Phase::ParametersDescribed),
                _ => Step::OutOfOrder,
            },
            Request::DescribeStatement | Request::DescribePortal => match tag {
                shard_tag::ROW_DESCRIPTION | shard_tag::NO_DATA => Step::Done,
                _ => Step::OutOfOrder,
            },
            Request::CopyEnd => Step::OutOfOrder,
        }
    }

    fn step_of_query(&mut self, tag: u8) -> Step {
        use Phase::{Begun, Complete, CopiedOut, CopyIn, CopyOut, Failed, ParametersDescribed, Rows};
        match (self.phase, tag) {
            // A rule may add queries, whose rows end without a tag.
            (Begun | Complete | Rows, shard_tag::ROW_DESCRIPTION) | (Rows, shard_tag::DATA_ROW) => Step::Goes(Rows),
            (Begun | Complete | Rows | CopiedOut, shard_tag::COMMAND_COMPLETE) => Step::Goes(Complete),
            (CopyIn, shard_tag::COMMAND_COMPLETE) if self.take_copy_end() => Step::Goes(Complete),
            (Begun, shard_tag::EMPTY_QUERY) => Step::Goes(Complete),
            (Begun | Complete, shard_tag::COPY_IN) => Step::Goes(CopyIn),
            (Begun | Complete, shard_tag::COPY_OUT) | (CopyOut, shard_tag::COPY_DATA) => Step::Goes(CopyOut),
            (CopyOut, shard_tag::COPY_DONE) => Step::Goes(CopiedOut),
            (Complete | Failed, shard_tag::READY) => Step::Done,
            (Begun | ParametersDescribed | Rows | CopyIn | CopyOut | CopiedOut | Complete | Failed, _) => Step::OutOfOrder,
        }
    }

    fn step_of_execute(&mut self, tag: u8) -> Step {
        use Phase::{Begun, Complete, CopiedOut, CopyIn, CopyOut, Failed, ParametersDescribed, Rows};
        match (self.phase, tag) {
            (Begun | Rows, shard_tag::DATA_ROW) => Step::Goes(Rows),
            (Begun | Rows, shard_tag::COMMAND_COMPLETE | shard_tag::PORTAL_SUSPENDED)
            | (Begun, shard_tag::EMPTY_QUERY)
            | (CopiedOut, shard_tag::COMMAND_COMPLETE) => Step::Done,
            (CopyIn, shard_tag::COMMAND_COMPLETE) if self.take_copy_end() => Step::Done,
            (Begun, shard_tag::COPY_IN) => Step::Goes(CopyIn),
            (Begun, shard_tag::COPY_OUT) | (CopyOut, shard_tag::COPY_DATA) => Step::Goes(CopyOut),
            (CopyOut, shard_tag::COPY_DONE) => Step::Goes(CopiedOut),
            (Begun | ParametersDescribed | Rows | CopyIn | CopyOut | CopiedOut | Complete | Failed, _) => Step::OutOfOrder,
        }
    }

    /// A COPY has its data. What was sent before their end was read with them. False: their end was not sent yet.
    fn take_copy_end(&mut self) -> bool {
        let Some(end) = self.requests.iter().position(|request| *request == Request::CopyEnd) else { return false };
        // All but the request itself, which is the first.
        self.requests.drain(1..=end);
        true
    }

    /// A COPY has failed, perhaps before its data have ended.
    fn doubt_syncs(&mut self) {
        let before_the_end = self.requests.iter_mut().take_while(|request| **request != Request::CopyEnd);
        before_the_end.filter(|request| **request == Request::Sync).for_each(|request| *request = Request::UncertainSync);
    }
}

fn answered_by(tag: u8, expected: u8) -> Step {
    if tag == expected { Step::Done } else { Step::OutOfOrder }
}

#[cfg(test)]
mod tests;
