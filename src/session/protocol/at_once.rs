//! The short way: one statement about one key or a home table, outside of a transaction, for which everything is at hand.
//!
//! That is what most cycles of most applications are: `Bind, Describe, Execute, Sync` of a prepared statement, or a Query. The
//! general way ([`super::extended`], [`super::simple`]) waits at many places where there is mostly nothing to wait for: for
//! the map, for a connection, for its settings. Here nothing is waited for and nothing is sent before all of it is there:
//!
//! ```text
//!   whole cycle in the input? ─ at rest? ─ names as they were read? ─ key known? ─ connection idle, set up and prepared?
//!        └── no, at any point: nothing has been changed, the general way goes ◄──────────┘        └─ yes: bytes to the shard
//! ```
//!
//! What is then owed is in [`crate::backend::Connection::pending`], as on the general way, which relays the answers, errors
//! among them. Decides nothing that the general way would decide differently.

use std::sync::Arc;

use bytes::Buf;

use crate::backend::{ColumnsDigest, Pooled, Reply, ShardText, StatementId, StatementName};
use crate::routing::{Inputs, MapSource, Proof, SingleKey, unsharded};
use crate::session::transaction::participant::Participant;
use crate::session::{Session, SessionEnd};
use crate::shardmap::MapInUse;
use crate::sql::analysis::{Analysis, Command, Effect, Numbers, Part, Scope};
use crate::telemetry::RouteKind;
use crate::wire::{self, FRAME_HEADER_BYTES, FrameHeader, Target, client_tag};

/// `Bind, Execute, Sync` of the unnamed portal at the front of the input, perhaps with Describe between the first two.
struct Cycle<'a> {
    bind: wire::Bind<'a>,
    has_describe: bool,
    row_limit: i32,
    bytes: usize,
}

impl<'a> Cycle<'a> {
    /// `None`: something else, or not all of it has come.
    fn read(input: &'a [u8]) -> Option<Self> {
        let (bind, rest) = take(input, client_tag::BIND)?;
        let bind = wire::bind(bind).ok().filter(|bind| bind.portal.is_empty())?;
        let (has_describe, rest) = match take(rest, client_tag::DESCRIBE) {
            Some((body, rest)) if wire::describe(body) == Ok(Target::Portal(b"")) => (true, rest),
            Some(_) => return None,
            None => (false, rest),
        };
        let (execute, rest) = take(rest, client_tag::EXECUTE)?;
        let (_, row_limit) = wire::execute(execute).ok().filter(|(portal, _)| portal.is_empty())?;
        let (_, rest) = take(rest, client_tag::SYNC).filter(|(body, _)| body.is_empty())?;
        Some(Self { bind, has_describe, row_limit, bytes: input.len() - rest.len() })
    }
}

/// The body of a whole message of this kind, and what follows it.
fn take(input: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let header = FrameHeader::peek(input, usize::MAX / 2).ok()?.filter(|header| header.tag == tag)?;
    let (frame, rest) = input.split_at_checked(header.total)?;
    Some((frame.get(FRAME_HEADER_BYTES..)?, rest))
}

impl Session {
    /// Sends the whole cycle at the front of the input to its shard, if that takes no wait, and relays the answer.
    /// False: nothing has happened.
    #[inline]
    pub(in crate::session) async fn serve_at_once(&mut self, tag: u8) -> Result<bool, SessionEnd> {
        let is_sent = match tag {
            client_tag::BIND => self.bind_at_once(),
            client_tag::QUERY => self.query_at_once(),
            _ => None,
        };
        let Some(bytes) = is_sent else { return Ok(false) };
        let before = (self.client.output.len(), self.client.flushes);
        if let Err(failure) = self.drain(0).await {
            self.settle(failure)?;
            // The general way has its turn, by a newer map.
            if let Some(met) = self.cycle.take_met()
                && Box::pin(self.may_repeat(met, before)).await?
            {
                return Ok(false);
            }
        }
        self.client.input.advance(bytes);
        self.ready().await?;
        Ok(true)
    }

    /// How many bytes of the input are the cycle, when it has been sent.
    fn bind_at_once(&mut self) -> Option<usize> {
        if !self.is_at_rest() {
            return None;
        }
        let cycle = Cycle::read(&self.client.input)?;
        let statement = self.statements.get(cycle.bind.statement)?;
        let analysis = statement.analysis()?;
        // Before a shard has said what its parameters and columns are, the general way asks.
        let told = statement.told.get()?;
        let declared = &*statement.key.types;
        let is_declared = declared.len() >= cycle.bind.parameter_count && !declared.contains(&0);
        let types = if is_declared { declared } else { &told.parameter_types };
        let expected = usize::from(analysis.parameter_count).max(declared.len());
        if !self.is_current(statement) || cycle.bind.parameter_count != expected {
            return None;
        }
        // In binary form they may name types, by other oids on other shards.
        let has_binary = cycle.bind.has_binary_results() || cycle.bind.has_binary_parameters();
        if has_binary && !told.has_system_types_only() {
            return None;
        }
        let inputs = Inputs::bound(statement.text_of_literals(), &statement.literals, &cycle.bind, types);
        let (map, mut connection, proof) = self.place_at_once(analysis, &inputs, Some((statement.id, told.columns())))?;
        self.shown.row.show_prepared(&statement.key);
        let text = ShardText::proven(&statement.key.text, proof);
        connection.output.bind(b"", StatementName::Registered(statement.id), &text, cycle.bind.after_names);
        connection.expect(Reply::Bind, true);
        if cycle.has_describe {
            connection.output.describe_portal(b"");
            connection.expect(Reply::DescribePortal, true);
        }
        connection.output.execute(b"", cycle.row_limit);
        connection.expect(Reply::Execute, true);
        connection.output.sync();
        connection.expect(Reply::Sync, false);
        let (bytes, has_written) = (cycle.bytes, analysis.effect == Effect::Write);
        self.begin_at_once((map, analysis.is_plain_read()), connection, has_written);
        Some(bytes)
    }

    fn query_at_once(&mut self) -> Option<usize> {
        // The unnamed statement and portal end with a Query: where there are any, the general way forgets them.
        if !self.is_at_rest() || self.statements.contains_key(&b""[..]) {
            return None;
        }
        let (body, rest) = take(&self.client.input, client_tag::QUERY)?;
        let text = std::str::from_utf8(wire::query(body).ok()?).ok()?;
        if text.len() > crate::session::route::READ_HERE_BYTES_MAX {
            return None;
        }
        let read = self.gateway.analyzer.read_known(text, &self.context, &mut self.recent_templates)?;
        let [analysis] = read.analyzed.statements.as_slice() else { return None };
        let inputs = Inputs::literals(text, &read.literals);
        let (map, mut connection, proof) = self.place_at_once(analysis, &inputs, None)?;
        let bytes = self.client.input.len() - rest.len();
        self.shown.row.show_text(text);
        connection.output.query(&ShardText::proven(text.as_bytes(), proof));
        connection.unnamed = None;
        connection.expect(Reply::Query, true);
        self.begin_at_once((map, analysis.is_plain_read()), connection, analysis.effect == Effect::Write);
        Some(bytes)
    }

    /// No transaction, no open cycle, nothing kept on any connection, and the context is what the settings say.
    #[inline]
    fn is_at_rest(&self) -> bool {
        !self.batch.is_open
            && !self.transaction.is_open()
            && self.transaction.participants().is_empty()
            && self.portals.is_empty()
            && !self.temporary_tables.is_used()
            && self.reading.settled.as_ref().is_some_and(|settled| Arc::ptr_eq(settled, &self.settings))
    }

    /// The map that the statement is routed by and a connection where it can run, ready for it. `prepared`: the connection has
    /// this statement, with these columns.
    fn place_at_once(
        &self,
        analysis: &Analysis,
        inputs: &Inputs<'_>,
        prepared: Option<(StatementId, ColumnsDigest)>,
    ) -> Option<(Arc<MapInUse>, Pooled, Proof)> {
        // A name that is not known may come of a schema change that another proxy is making: the general way looks.
        let is_plain = matches!(analysis.command, Command::Query(_))
            && analysis.session_calls.is_empty()
            && analysis.effects.is_none()
            && analysis.numbers == Numbers::None
            && analysis.shard_hint.is_none()
            && !analysis.has_unknown_names;
        let Scope::Placed { parts, .. } = &analysis.scope else { return None };
        if !is_plain {
            return None;
        }
        let snapshot = self.gateway.map.newest();
        if !snapshot.redefinitions.is_empty()
            || !self.gateway.has_catalog_for(&snapshot)
            || !self.context_is_of(&self.gateway.catalog.load(), &snapshot)
        {
            return None;
        }
        let home = snapshot.home()?.id;
        let (shard, proof) = match parts.as_slice() {
            [Part::Home] => (home, Proof::Unsharded(unsharded(&analysis.scope)?)),
            _ => {
                let place = SingleKey::of(parts)?.place(&*self.gateway.map, &snapshot, inputs)?;
                (place.shard, place.proof)
            }
        };
        let pool = self.known_pool(shard)?;
        let is_home = shard == home;
        let version = self.context.catalog.version;
        let connection = pool.take_ready(self.login.runtime, |connection| {
            connection.generation <= snapshot.generation()
                && connection.settings == self.settings
                && self.has_these_names(&connection.custom_names)
                && connection.doubted_names.is_subset(&connection.custom_names)
                && prepared.is_none_or(|(id, columns)| connection.prepared.columns(id) == Some(columns))
                && (is_home || connection.oids.version == version)
        })?;
        Some((Arc::clone(&snapshot), connection, proof))
    }

    /// `map`: by which it was placed, and whether it is a plain read.
    fn begin_at_once(&mut self, (map, is_plain_read): (Arc<MapInUse>, bool), connection: Pooled, has_written: bool) {
        self.shown.row.begin();
        self.transaction.pinned_map.unpin();
        self.transaction.pinned_map.pin(|| map);
        self.transaction.pinned_map.note_planned(is_plain_read);
        let shard = connection.pool().shard;
        self.transaction.add_participant(Participant { has_written, ..Participant::new(shard, connection) });
        self.count_statement(RouteKind::SingleShard, Some(shard));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::originate;
    use bytes::BytesMut;

    fn cycle(portal: &[u8], describe: Option<u8>, has_sync: bool) -> BytesMut {
        let mut input = BytesMut::new();
        originate::bind(&mut input, portal, b"s", originate::BIND_NOTHING);
        if let Some(kind) = describe {
            originate::describe(&mut input, kind, portal);
        }
        originate::execute(&mut input, portal, 0);
        if has_sync {
            originate::sync(&mut input);
        }
        input
    }

    #[test]
    fn a_whole_cycle_of_the_unnamed_portal_is_taken() {
        for describe in [None, Some(b'P')] {
            let input = cycle(b"", describe, true);
            let read = Cycle::read(&input).expect("a cycle");
            assert_eq!((read.bind.statement, read.has_describe, read.bytes), (&b"s"[..], describe.is_some(), input.len()));
            assert_eq!(read.row_limit, 0);
            let mut longer = input.clone();
            longer.extend_from_slice(&input);
            assert_eq!(Cycle::read(&longer).expect("a cycle").bytes, input.len(), "the next one is left");
            for end in 0..input.len() {
                assert!(Cycle::read(&input[..end]).is_none(), "cut at {end}");
            }
        }
    }

    #[test]
    fn anything_else_goes_the_general_way() {
        assert!(Cycle::read(&cycle(b"named", None, true)).is_none());
        assert!(Cycle::read(&cycle(b"", Some(b'S'), true)).is_none(), "describes a statement");
        assert!(Cycle::read(&cycle(b"", None, false)).is_none(), "Sync has not come");
        let mut flushed = cycle(b"", None, false);
        originate::flush(&mut flushed);
        originate::sync(&mut flushed);
        assert!(Cycle::read(&flushed).is_none());
    }
}
