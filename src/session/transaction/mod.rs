//! The session's transaction, as the client sees it.
//!
//! ```text
//!            BEGIN                      an error, on any shard
//!   Idle ─────────────► Open ───────────────────────────────────► Failed
//!     ▲                  │ ▲                                        │ │
//!     │ COMMIT, ROLLBACK │ └────────────── ROLLBACK TO ─────────────┘ │
//!     └──────────────────┴────────────────────────────────────────────┘  (COMMIT of a failed one is a ROLLBACK)
//! ```
//!
//! The state is the session's, never a shard's: BEGIN costs no round trip, a shard joins with its first statement and is then
//! told what it has missed. One failed participant makes the whole transaction failed. The shards' connections are its own: others
//! reach them by [`Transaction::on`], [`Transaction::at`] and the like.

pub(super) mod commit;
pub(super) mod common_snapshot;
pub(super) mod decider;
pub(super) mod everywhere;
pub(super) mod exported_snapshot;
pub(super) mod instant;
pub(super) mod join;
pub(super) mod participant;
pub(super) mod replay;
pub(super) mod sets;
pub(super) mod shard_state;
pub(super) mod snapshot;
pub(super) mod snapshot_map;
pub(super) mod time_of_other;
pub(super) mod waits;

use std::sync::Arc;

use self::sets::Sets;
use super::commands::listening::ListenChange;
use super::ddl::schema::SchemaChange;
use super::pinned_map::PinnedMap;
use crate::backend::Settings;
use crate::catalog::SequenceName;
use crate::error::{PgError, SqlState};
use crate::execute::numbers::{Alteration, Restart};
use crate::routing::Claims;
use crate::session::transaction::common_snapshot::CommonSnapshot;
use crate::session::transaction::decider::Decider;
use crate::session::transaction::exported_snapshot::Export;
use crate::session::transaction::participant::Participant;
use crate::session::transaction::snapshot_map::Snapshots;
use crate::session::transaction::waits::Waiting;
use crate::shardmap::ShardId;
use crate::sql::analysis::TransactionModes;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Idle,
    Open,
    Failed,
}

/// What a shard that joins later is told, in this order.
#[derive(Clone, Debug)]
pub(super) enum Told {
    Setting(LocalSetting),
    /// What else counts to the end of the transaction, as SQL: SET CONSTRAINTS, and SET TRANSACTION behind a savepoint.
    Statement(String),
    /// It counts no more.
    Nothing,
}

impl Told {
    pub fn setting(&self) -> Option<&LocalSetting> {
        match self {
            Told::Setting(setting) => Some(setting),
            Told::Statement(_) | Told::Nothing => None,
        }
    }
}

/// Behind a savepoint, and until that ends.
const READ_ONLY: &str = "SET TRANSACTION READ ONLY";

/// SET inside a transaction.
#[derive(Clone, Debug)]
pub(super) struct LocalSetting {
    pub name: String,
    /// `None`: the default.
    pub value: Option<String>,
    pub is_local: bool,
    /// Where a function has set it; `None`: the client itself has.
    pub by: Option<ShardId>,
}

#[derive(Debug)]
pub(super) struct Savepoint {
    pub name: String,
    settings: Arc<Settings>,
    modes: TransactionModes,
    /// How many settings the transaction had made before it.
    pub set_count: usize,
}

#[derive(Debug)]
struct Lost {
    error: PgError,
    /// The client has heard of it.
    is_told: bool,
}

pub(super) struct Transaction {
    /// Shards' connections that the session holds, of which the transaction uses those that have begun.
    participants: Vec<Participant>,
    /// The map that its statements are planned by.
    pub pinned_map: PinnedMap,
    /// Of the proxy's lease when it began, or the cycle outside of one: it gets no connection of a later one.
    pub generation: i64,
    waiting: Waiting,
    /// It changes the schema, as was announced. Left until the change is finished.
    pub schema_change: Option<SchemaChange>,
    /// A commit has been begun, and the client may not have heard what became of it.
    pub is_committing: bool,
    pub status: Status,
    pub modes: TransactionModes,
    pub savepoints: Vec<Savepoint>,
    pub sets: Sets,
    /// Some participants are spares: see `snapshot`.
    pub has_spares: bool,
    /// All shards that could have taken their snapshots: no other can join.
    pub has_snapshots_open: bool,
    pub common_snapshot: CommonSnapshot,
    /// What it has written is meant for every shard.
    pub is_everywhere: bool,
    /// Nothing but the statement that runs has been done in it: how long the client's output was before, and how often it had been
    /// sent. It may be begun anew as long as nothing of the answer has left.
    pub begun_for: Option<(usize, u64)>,
    /// It has changed the schema on shards that cannot commit at once.
    pub is_piecemeal: bool,
    /// Its time, once a statement over several shards has asked for it.
    pub instant: Option<String>,
    /// Whose `now()` is the transaction's.
    pub clock_shard: Option<ShardId>,
    /// While a text runs that has the transaction's time: the client's own.
    pub timed: Option<time_of_other::Timed>,
    /// Sequences that begin anew when it is committed, and how many savepoints there were; the last of one name counts.
    pub restarts: Vec<(usize, Restart)>,
    /// Sequences of the whole cluster that it has altered, and how many savepoints there were; as `restarts`.
    pub alterations: Vec<(usize, Alteration)>,
    /// Sequences that it has dropped, likewise; others number by them until it is committed.
    pub dropped: Vec<(usize, SequenceName)>,
    /// Nobody else draws from these.
    pub closed: Vec<SequenceName>,
    /// Why the session ends when the client has heard what has become of the transaction.
    pub ending: Option<PgError>,
    /// LISTEN and UNLISTEN, and how many savepoints there were.
    pub listens: Vec<(usize, ListenChange)>,
    /// The shard that cannot be prepared.
    pub decider: Option<Decider>,
    /// A shard that had joined was lost, and with it what was done there: the transaction can only end.
    lost: Option<Lost>,
    /// What it has written or locked, with the owners of then. Of a pipeline outside of a block likewise.
    pub claims: Claims,
    /// With one snapshot for the whole transaction: the map that goes with it.
    pub snapshots: Snapshots,
    /// Snapshots that it has given a name.
    pub exports: Vec<Export>,
    /// The session's settings at BEGIN, to go back to.
    settings_before: Option<Arc<Settings>>,
}

impl Transaction {
    pub fn new(generation: i64, waiting: Waiting) -> Self {
        Self {
            participants: Vec::new(),
            pinned_map: PinnedMap::default(),
            generation,
            waiting,
            schema_change: None,
            is_committing: false,
            status: Status::Idle,
            modes: TransactionModes::default(),
            savepoints: Vec::new(),
            sets: Sets::default(),
            has_spares: false,
            has_snapshots_open: false,
            common_snapshot: CommonSnapshot::None,
            is_everywhere: false,
            begun_for: None,
            is_piecemeal: false,
            instant: None,
            clock_shard: None,
            timed: None,
            restarts: Vec::new(),
            alterations: Vec::new(),
            dropped: Vec::new(),
            closed: Vec::new(),
            ending: None,
            listens: Vec::new(),
            decider: None,
            lost: None,
            claims: Claims::default(),
            snapshots: Snapshots::default(),
            exports: Vec::new(),
            settings_before: None,
        }
    }

    /// The byte of ReadyForQuery.
    pub fn ready_status(&self) -> u8 {
        match self.status {
            Status::Idle => b'I',
            Status::Open => b'T',
            Status::Failed => b'E',
        }
    }

    /// It can only end, as a whole.
    pub fn has_failed_for_good(&self) -> bool {
        self.status == Status::Failed && self.savepoints.is_empty()
    }

    pub fn is_open(&self) -> bool {
        self.status != Status::Idle
    }

    pub fn begin(&mut self, modes: TransactionModes, settings: &Arc<Settings>) {
        self.status = Status::Open;
        self.modes = modes;
        self.settings_before = Some(Arc::clone(settings));
    }

    /// Those that a shard begins with: what is changed behind a savepoint is told after it, and taken back with it.
    pub fn modes_at_begin(&self) -> &TransactionModes {
        self.savepoints.first().map_or(&self.modes, |savepoint| &savepoint.modes)
    }

    /// No shard has begun.
    pub fn change_modes_at_begin(&mut self, change: impl Fn(&mut TransactionModes)) {
        self.savepoints.iter_mut().map(|savepoint| &mut savepoint.modes).chain([&mut self.modes]).for_each(change);
    }

    /// The session's settings when it began: what a shard that joins starts from.
    pub fn settings_before(&self) -> Option<&Arc<Settings>> {
        self.settings_before.as_ref()
    }

    /// The session's settings are others than they were, also where a rollback leads back to.
    pub fn change_settings_before(&mut self, change: impl Fn(&Settings) -> Arc<Settings>) {
        let savepoints = self.savepoints.iter_mut().map(|savepoint| &mut savepoint.settings);
        savepoints.chain(&mut self.settings_before).for_each(|settings| *settings = change(settings));
    }

    /// An error happened: fails an open transaction, means nothing outside one.
    pub fn fail(&mut self) {
        if self.status == Status::Open {
            self.status = Status::Failed;
        }
    }

    /// A shard that had joined is gone. `is_told`: the running statement ends with this error.
    pub fn lose(&mut self, error: &PgError, is_told: bool) {
        if self.is_open() {
            self.status = Status::Failed;
            self.lost.get_or_insert(Lost { error: error.clone(), is_told });
        }
    }

    /// The loss that nobody has told the client yet: the answer to its next statement, COMMIT included.
    pub fn take_untold_loss(&mut self) -> Option<PgError> {
        let lost = self.lost.as_mut().filter(|lost| !lost.is_told)?;
        lost.is_told = true;
        Some(lost.error.clone())
    }

    /// Ends it. Returns the settings to go back to after a rollback.
    pub fn end(&mut self) -> Option<Arc<Settings>> {
        self.status = Status::Idle;
        self.modes = TransactionModes::default();
        self.savepoints.clear();
        self.sets.clear();
        self.has_spares = false;
        self.has_snapshots_open = false;
        self.common_snapshot = CommonSnapshot::None;
        self.is_everywhere = false;
        self.begun_for = None;
        self.is_piecemeal = false;
        self.instant = None;
        self.clock_shard = None;
        self.timed = None;
        self.restarts.clear();
        self.alterations.clear();
        self.dropped.clear();
        self.closed.clear();
        self.listens.clear();
        self.decider = None;
        self.lost = None;
        self.claims.clear();
        self.snapshots.clear();
        self.exports.clear();
        self.settings_before.take()
    }

    pub fn savepoint(&mut self, name: String, settings: &Arc<Settings>) {
        self.savepoints.push(Savepoint {
            name,
            settings: Arc::clone(settings),
            modes: self.modes.clone(),
            set_count: self.sets.len(),
        });
    }

    /// Index of the newest savepoint of this name. No savepoint brings back what was done on a shard that is lost.
    pub fn find_savepoint(&self, name: &str) -> Result<usize, PgError> {
        if let Some(lost) = &self.lost {
            return Err(lost.error.clone());
        }
        self.savepoints
            .iter()
            .rposition(|savepoint| savepoint.name == name)
            .ok_or_else(|| PgError::new(SqlState::INVALID_SAVEPOINT, format!("savepoint \"{name}\" does not exist")))
    }

    /// It goes, with those after it. What it has made of the modes ends with it, as in PostgreSQL.
    pub fn release_savepoint(&mut self, index: usize) {
        if let Some(savepoint) = self.savepoints.get(index) {
            self.modes.clone_from(&savepoint.modes);
            self.sets.forget_statement(savepoint.set_count, READ_ONLY);
        }
        self.savepoints.truncate(index);
        self.restarts.iter_mut().for_each(|(depth, _)| *depth = index.min(*depth));
        self.alterations.iter_mut().for_each(|(depth, _)| *depth = index.min(*depth));
        self.dropped.iter_mut().for_each(|(depth, _)| *depth = index.min(*depth));
        self.listens.iter_mut().for_each(|(depth, _)| *depth = index.min(*depth));
    }

    /// Back to the savepoint, which stays. Returns the settings at that point.
    pub fn rollback_to(&mut self, index: usize) -> Option<Arc<Settings>> {
        self.status = Status::Open;
        if !matches!(self.common_snapshot, CommonSnapshot::Taken) {
            self.snapshots.doubt();
        }
        self.savepoints.truncate(index + 1);
        self.restarts.retain(|(depth, _)| *depth <= index);
        self.alterations.retain(|(depth, _)| *depth <= index);
        self.dropped.retain(|(depth, _)| *depth <= index);
        self.listens.retain(|(depth, _)| *depth <= index);
        let savepoint = self.savepoints.get(index)?;
        self.modes.clone_from(&savepoint.modes);
        self.sets.truncate(savepoint.set_count);
        Some(Arc::clone(&savepoint.settings))
    }

    /// What the transaction knows of a sequence that it has restarted.
    pub fn restart_of(&mut self, sequence: &SequenceName) -> Option<&mut Restart> {
        self.restarts.iter_mut().rev().map(|(_, restart)| restart).find(|restart| restart.sequence == *sequence)
    }

    /// What the transaction knows of a sequence that it has altered.
    pub fn alteration_of(&mut self, sequence: &SequenceName) -> Option<&mut Alteration> {
        let mut altered = self.alterations.iter_mut().rev().map(|(_, alteration)| alteration);
        altered.find(|alteration| alteration.sequence == *sequence)
    }

    /// The last one of each sequence, where its numbers are others by it.
    pub fn last_alterations(&self) -> impl Iterator<Item = &Alteration> {
        let all = self.alterations.iter().map(|(_, alteration)| alteration).enumerate();
        all.filter(|(place, alteration)| {
            let mut later = self.alterations.iter().skip(place + 1);
            alteration.has_moved && !later.any(|(_, later)| later.sequence == alteration.sequence)
        })
        .map(|(_, alteration)| alteration)
    }

    pub fn note_listen(&mut self, change: ListenChange) {
        self.listens.push((self.savepoints.len(), change));
    }

    pub fn has_dropped(&self, sequence: &SequenceName) -> bool {
        self.dropped.iter().any(|(_, dropped)| dropped == sequence)
    }

    /// Numbers that no shard has.
    pub fn has_own_numbers(&self) -> bool {
        !self.restarts.is_empty() || !self.alterations.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rollback_to_takes_back_settings_and_the_failure() {
        let mut transaction = Transaction::new(0, Waiting::new(Arc::default(), 1));
        let before = Arc::new(Settings::default());
        transaction.begin(TransactionModes::default(), &before);
        transaction.savepoint("a".into(), &before);
        let changed = Arc::new(before.with("work_mem", "1MB"));
        let setting = LocalSetting { name: "work_mem".into(), value: Some("1MB".into()), is_local: false, by: None };
        transaction.sets.push(Told::Setting(setting));
        transaction.savepoint("a".into(), &changed);
        transaction.fail();
        assert_eq!(transaction.ready_status(), b'E');
        let index = transaction.find_savepoint("a").unwrap();
        assert_eq!(index, 1, "the newest of that name");
        assert_eq!(transaction.rollback_to(index), Some(changed));
        assert_eq!(transaction.ready_status(), b'T');
        transaction.release_savepoint(index);
        assert_eq!(transaction.rollback_to(0), Some(before));
        assert!(transaction.sets.is_empty());
        assert!(transaction.find_savepoint("b").is_err());
    }

    #[test]
    fn an_error_outside_a_transaction_changes_nothing() {
        let mut transaction = Transaction::new(0, Waiting::new(Arc::default(), 1));
        transaction.fail();
        assert_eq!(transaction.ready_status(), b'I');
    }

    #[test]
    fn no_savepoint_revives_a_transaction_that_has_lost_a_shard() {
        let mut transaction = Transaction::new(0, Waiting::new(Arc::default(), 1));
        let settings = Arc::new(Settings::default());
        let error = PgError::new(SqlState::CONNECTION_FAILURE, "gone");
        transaction.begin(TransactionModes::default(), &settings);
        transaction.savepoint("a".into(), &settings);
        transaction.lose(&error, false);
        assert_eq!(transaction.ready_status(), b'E');
        assert!(transaction.find_savepoint("a").is_err_and(|error| error.code == SqlState::CONNECTION_FAILURE));
        assert!(transaction.take_untold_loss().is_some());
        assert!(transaction.take_untold_loss().is_none(), "told once");
        transaction.end();
        transaction.begin(TransactionModes::default(), &settings);
        transaction.savepoint("a".into(), &settings);
        assert!(transaction.find_savepoint("a").is_ok());
    }
}
