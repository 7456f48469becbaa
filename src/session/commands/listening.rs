//! LISTEN on every shard: a trigger notifies on the shard of its row, and who listens hears them all.
//!
//! ```text
//!   LISTEN, UNLISTEN ─► noted in the transaction ─► COMMIT ─► a connection to every shard is in hand
//!                                                     ├─► committed
//!                                                     └─► the same commands on every shard; the connections are kept
//!   a shard's notification ─► put aside ─► to the client, between its transactions
//! ```
//! As in PostgreSQL they count from the commit on. They run after it, outside of any transaction: one with LISTEN cannot be
//! prepared, and would keep the client's transaction on one shard. Only where the transaction itself may have sent notifications, which
//! is the shard that commits without being prepared, they run in it before its commit as well: its own notifications are heard, or not
//! any more, by what it has changed. Whoever notifies does so on one shard, so that each notification comes once.
//!
//! What cannot be heard any more is never missed silently: a session that loses one of the connections, or whose cluster has other
//! shards than it listens on, ends. Its client knows then that it has to look for what it may have missed.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::sync::watch;

use super::command;
use crate::backend::{ConnectionError, Own, ShardAddress};
use crate::catalog::quoted_identifier;
use crate::error::{PgError, SqlState};
use crate::session::protocol::describe::error_frame;
use crate::session::transaction::participant::LISTEN;
use crate::session::{Failure, Session, SessionEnd};
use crate::shardmap::{Epoch, Shard};
use crate::sql::analysis::TransactionModes;
use crate::wire::{FRAME_HEADER_BYTES, FrameHeader, originate};

/// LISTEN or UNLISTEN of an open transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::session) enum ListenChange {
    Listen(String),
    Unlisten(String),
    UnlistenAll,
}

/// What the session listens to, committed.
#[derive(Default)]
pub(in crate::session) struct Listening {
    channels: BTreeSet<String>,
    /// Where: all that were online when it began.
    shards: Vec<Arc<Shard>>,
    /// Tells when the map changes.
    epochs: Option<watch::Receiver<Epoch>>,
}

impl Listening {
    pub fn is_active(&self) -> bool {
        !self.channels.is_empty()
    }

    /// Returns when the map has changed; never where nothing is listened to. Cancel safe.
    pub async fn map_changed(&mut self) {
        let has_changed = match self.epochs.as_mut().filter(|_| !self.channels.is_empty()) {
            Some(epochs) => epochs.changed().await.is_ok(),
            None => false,
        };
        if !has_changed {
            std::future::pending().await
        }
    }

    /// The channels once these changes are made.
    fn after(&self, changes: &[(usize, ListenChange)]) -> BTreeSet<String> {
        let mut channels = self.channels.clone();
        for (_, change) in changes {
            match change {
                ListenChange::Listen(channel) => drop(channels.insert(channel.clone())),
                ListenChange::Unlisten(channel) => drop(channels.remove(channel)),
                ListenChange::UnlistenAll => channels.clear(),
            }
        }
        channels
    }

    /// What a shard is told so that it sends these channels.
    fn commands_for(&self, wanted: &BTreeSet<String>) -> String {
        let quiet = self.channels.difference(wanted).map(|channel| format!("UNLISTEN {};", quoted_identifier(channel)));
        let heard = wanted.difference(&self.channels).map(|channel| format!("LISTEN {};", quoted_identifier(channel)));
        quiet.chain(heard).collect()
    }
}

/// LISTEN and UNLISTEN: in the client's transaction, or in one of their own.
pub(in crate::session) async fn listen(session: &mut Session, change: ListenChange) -> Result<(), Failure> {
    session.home()?;
    let tag = if matches!(change, ListenChange::Listen(_)) { "LISTEN" } else { "UNLISTEN" };
    let begins_here = !session.transaction.is_open();
    if begins_here && session.batch.is_open {
        session.begin_for_pipeline();
    } else if begins_here {
        session.transaction.begin(TransactionModes::default(), &session.settings);
    }
    session.transaction.note_listen(change);
    if begins_here && !session.batch.is_open {
        command::commit_everywhere(session).await?;
    }
    originate::command_complete(&mut session.client.output, tag);
    Ok(())
}

/// Before the commit of a transaction that listens: connections to every shard, so that nothing is committed where one of them
/// cannot be had.
pub(in crate::session) async fn prepare_to_listen(session: &mut Session) -> Result<(), Failure> {
    let wanted = session.listening.after(&session.transaction.listens);
    if !session.listening.is_active() && !wanted.is_empty() {
        attach_everywhere(session).await?;
    }
    listen_within(session, &wanted).await
}

async fn attach_everywhere(session: &mut Session) -> Result<(), Failure> {
    session.listening.epochs = Some(session.gateway.map.subscribe());
    session.listening.shards = shards_to_hear(session);
    for place in 0..session.listening.shards.len() {
        let Some(shard) = session.listening.shards.get(place).map(|shard| shard.id) else { break };
        session.attach(shard).await?;
    }
    Ok(())
}

/// In the transaction, on the shards that it has begun on and that will not be prepared.
async fn listen_within(session: &mut Session, wanted: &BTreeSet<String>) -> Result<(), Failure> {
    let commands = session.listening.commands_for(wanted);
    if commands.is_empty() {
        return Ok(());
    }
    let is_one_writer = session.writer_count() <= 1;
    for index in (0..session.transaction.participants().len()).rev() {
        session.sync_and_commit(index).await?;
        let Some(participant) = session.transaction.participants().get(index) else { continue };
        let is_heard = session.listening.shards.iter().any(|shard| shard.id == participant.shard);
        let is_in_transaction = participant.has_begun && participant.connection.status == b'T';
        if !is_heard || !is_in_transaction || !(is_one_writer || session.transaction.decides(participant.shard)) {
            continue;
        }
        let Some(participant) = session.transaction.participants_mut().get_mut(index) else { continue };
        match participant.connection.simple(&Own::Listen.text(&commands)).await {
            Ok(_) => {}
            Err(ConnectionError::Refused { body, .. }) => return Err(Failure::Shard(error_frame(&body))),
            Err(error) => return Err(session.participant_lost(index, &error)),
        }
    }
    Ok(())
}

/// After the commit. There is no way back: where a shard does not follow, the session ends.
pub(in crate::session) async fn change_listening(
    session: &mut Session,
    changes: &[(usize, ListenChange)],
) -> Result<(), SessionEnd> {
    let wanted = session.listening.after(changes);
    let commands = session.listening.commands_for(&wanted);
    if commands.is_empty() {
        return Ok(());
    }
    for shard in session.listening.shards.clone() {
        let participant = session.transaction.on_mut(shard.id);
        let told = match participant {
            Some(participant) => {
                participant.connection.simple(&Own::Listen.text(&commands)).await.map_err(|error| error.to_string())
            }
            None => Err("the connection was lost".to_owned()),
        };
        told.map_err(|reason| not_heard(&shard.name, &reason))?;
    }
    for participant in session.transaction.participants_mut() {
        if session.listening.shards.iter().any(|shard| shard.id == participant.shard) {
            keep_channels(&mut participant.connection.notifications, &wanted);
            match wanted.is_empty() {
                true => participant.unpin(LISTEN),
                false => participant.pin(LISTEN),
            }
        }
    }
    session.listening.channels = wanted;
    Ok(())
}

/// A session that listens elsewhere than on the shards of the cluster ends.
pub(in crate::session) fn check_listening(session: &Session) -> Result<(), SessionEnd> {
    if !session.listening.is_active() {
        return Ok(());
    }
    let now = shards_to_hear(session);
    // On the same server under another password the connections stay.
    let is_heard = |(now, heard): (&Arc<Shard>, &Arc<Shard>)| {
        now.id == heard.id && (now.url == heard.url || ShardAddress::of(heard).is_ok_and(|(address, _)| address.is_at(now)))
    };
    if now.len() == session.listening.shards.len() && now.iter().zip(&session.listening.shards).all(is_heard) {
        return Ok(());
    }
    let error = PgError::fatal(SqlState::ADMIN_SHUTDOWN, "terminating connection because the shards of the cluster have changed")
        .with_detail("The session listens on every shard, and could miss what is sent on others.")
        .with_hint("Connect again and LISTEN, then look for what may have been missed.");
    Err(SessionEnd::Fatal(error))
}

fn shards_to_hear(session: &Session) -> Vec<Arc<Shard>> {
    let snapshot = session.gateway.map.snapshot();
    snapshot.shards.iter().filter(|shard| shard.state.is_ready()).cloned().collect()
}

/// What has come before UNLISTEN, and would be given to the client after it, is not.
fn keep_channels(frames: &mut BytesMut, wanted: &BTreeSet<String>) {
    let mut rest = frames.split();
    while let Ok(Some(header)) = FrameHeader::peek(&rest, usize::MAX - 8) {
        if header.total > rest.len() {
            break;
        }
        let frame = rest.split_to(header.total);
        let channel = frame.get(FRAME_HEADER_BYTES + 4..).and_then(|names| names.split(|byte| *byte == 0).next());
        if channel.is_some_and(|channel| std::str::from_utf8(channel).is_ok_and(|channel| wanted.contains(channel))) {
            frames.extend_from_slice(&frame);
        }
    }
}

/// What the session has sent itself bears the process id that its client has been given: drivers tell their own notifications by it.
pub(in crate::session) fn name_sender(frames: &mut [u8], backend: i32, own: i32) {
    let mut rest = frames;
    while let Ok(Some(header)) = FrameHeader::peek(rest, usize::MAX - 8) {
        let Some((frame, after)) = std::mem::take(&mut rest).split_at_mut_checked(header.total) else { return };
        if let Some(sender) = frame.get_mut(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + 4)
            && *sender == backend.to_be_bytes()
        {
            sender.copy_from_slice(&own.to_be_bytes());
        }
        rest = after;
    }
}

fn not_heard(shard: &str, reason: &str) -> SessionEnd {
    let error = PgError::fatal(SqlState::CONNECTION_FAILURE, format!("cannot listen on shard \"{shard}\""))
        .with_detail(format!("After the commit, which stands: {reason}."))
        .with_hint("Connect again and LISTEN, then look for what may have been missed.");
    SessionEnd::Fatal(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channels(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_last_word_on_a_channel_counts() {
        let listening = Listening { channels: channels(&["a", "b"]), ..Listening::default() };
        let listen = |name: &str| (0, ListenChange::Listen(name.to_owned()));
        assert_eq!(listening.after(&[]), channels(&["a", "b"]));
        assert_eq!(listening.after(&[(0, ListenChange::Unlisten("a".to_owned())), listen("c")]), channels(&["b", "c"]));
        assert_eq!(listening.after(&[listen("c"), (0, ListenChange::UnlistenAll), listen("d")]), channels(&["d"]));
    }

    #[test]
    fn only_own_notifications_get_the_own_process_id() {
        let frame = |sender: i32| [&b"A\0\0\0\x0c"[..], &sender.to_be_bytes(), b"c\0p\0"].concat();
        let mut frames = [frame(7), frame(8), frame(7)].concat();
        name_sender(&mut frames, 7, -99);
        assert_eq!(frames, [frame(-99), frame(8), frame(-99)].concat());
        name_sender(&mut [], 7, -99);
        let mut cut = frame(7)[..6].to_vec();
        name_sender(&mut cut, 7, -99);
        assert_eq!(cut, frame(7)[..6]);
    }

    #[test]
    fn what_is_not_listened_to_any_more_is_not_kept() {
        let frame = |channel: &[u8]| [&b"A\0\0\0\x0c\0\0\0\x07"[..], channel, b"\0p\0"].concat();
        let mut frames = BytesMut::from(&[frame(b"a"), frame(b"b"), frame(b"a")].concat()[..]);
        keep_channels(&mut frames, &channels(&["a"]));
        assert_eq!(frames, [frame(b"a"), frame(b"a")].concat());
        keep_channels(&mut frames, &channels(&[]));
        assert!(frames.is_empty());
    }

    #[test]
    fn shards_are_told_what_differs() {
        let listening = Listening { channels: channels(&["a", "My \"Own\""]), ..Listening::default() };
        assert_eq!(listening.commands_for(&channels(&["a", "My \"Own\""])), "");
        assert_eq!(listening.commands_for(&channels(&["a", "b"])), "UNLISTEN \"My \"\"Own\"\"\";LISTEN \"b\";");
    }
}
