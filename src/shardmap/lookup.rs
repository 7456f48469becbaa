//! Asks the map database for the mappings of lookup keys that are not cached.
//!
//! One task asks for all that is missing, one query at a time: while a query is under way the keys of everybody else collect
//! and go together in the next one, so a storm of misses costs few queries and a single miss no delay. A key that is asked for
//! already is not asked for again; all who wait get the one answer.
//!
//! An answer is used only at the epoch of the snapshot: an answer that is newer waits for the snapshot, one that was overtaken
//! is asked for again. Every wait ends within [`LOOKUP_TIMEOUT`].

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::Row;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::cache::LookupKey;
use super::error::{StoreError, map_unreachable};
use super::model::{Epoch, PartitionId};
use super::store::Store;
use crate::error::{PgError, SqlState};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// No answer within a second; 57P03 for the client.
    #[error("the shard map is not reachable")]
    MapUnreachable,
    /// More keys wait for an answer than may.
    #[error("too many lookup keys are waiting for the shard map")]
    TooManyWaiting,
}

impl From<LookupError> for PgError {
    fn from(error: LookupError) -> Self {
        match error {
            LookupError::MapUnreachable => map_unreachable(),
            LookupError::TooManyWaiting => PgError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, error.to_string())
                .with_detail(format!("At most {WAITING_MAX} keys that this proxy does not know may be looked up at once."))
                .with_hint("Use fewer keys in one statement, or try again."),
        }
    }
}

type Answer = Result<Option<PartitionId>, LookupError>;

/// The keys that somebody waits for.
#[derive(Default)]
pub(super) struct Misses {
    waiting: Mutex<Waiting>,
    wake: Notify,
    /// Queries sent.
    pub(super) queries: AtomicU64,
    /// Keys asked for.
    pub(super) keys: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    /// Queued or asked for just now.
    answers: HashMap<LookupKey, Vec<oneshot::Sender<Answer>>>,
    /// Not yet asked for.
    queued: Vec<LookupKey>,
}

impl Misses {
    /// Cancel safe: an answer that nobody waits for any more is cached all the same.
    pub(super) async fn ask(&self, keys: Vec<LookupKey>) -> Result<Vec<Option<PartitionId>>, LookupError> {
        let answers = self.enqueue(keys)?;
        self.wake.notify_one();
        let all = async {
            let mut mappings = Vec::with_capacity(answers.len());
            for answer in answers {
                // The task ends only when the map is closed.
                mappings.push(answer.await.unwrap_or(Err(LookupError::MapUnreachable))?);
            }
            Ok(mappings)
        };
        timeout(LOOKUP_TIMEOUT, all).await.unwrap_or(Err(LookupError::MapUnreachable))
    }

    fn enqueue(&self, keys: Vec<LookupKey>) -> Result<Vec<oneshot::Receiver<Answer>>, LookupError> {
        let mut guard = self.waiting.lock();
        let waiting = &mut *guard;
        if waiting.answers.len().saturating_add(keys.len()) > WAITING_MAX {
            return Err(LookupError::TooManyWaiting);
        }
        let mut receivers = Vec::with_capacity(keys.len());
        for key in keys {
            let (sender, receiver) = oneshot::channel();
            match waiting.answers.entry(key) {
                Entry::Occupied(mut others) => {
                    // Those who gave up leave their senders behind.
                    others.get_mut().retain(|other| !other.is_closed());
                    others.get_mut().push(sender);
                }
                Entry::Vacant(place) => {
                    waiting.queued.push(place.key().clone());
                    place.insert(vec![sender]);
                }
            }
            receivers.push(receiver);
        }
        Ok(receivers)
    }

    fn take_batch(&self) -> Vec<LookupKey> {
        let mut waiting = self.waiting.lock();
        let count = waiting.queued.len().min(BATCH_MAX);
        waiting.queued.drain(..count).collect()
    }

    fn answer(&self, key: &LookupKey, answer: Answer) {
        let senders = self.waiting.lock().answers.remove(key);
        for sender in senders.into_iter().flatten() {
            // An error is that this one has given up.
            sender.send(answer).ok();
        }
    }
}

/// Runs until cancelled.
pub(super) async fn answer_misses(shared: Arc<Shared>, store: Store, cancel: CancellationToken) {
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = shared.misses.wake.notified() => {}
        }
        // Whoever else is about to ask at this moment joins the batch.
        tokio::task::yield_now().await;
        loop {
            let batch = shared.misses.take_batch();
            if batch.is_empty() {
                break;
            }
            tokio::select! {
                () = cancel.cancelled() => return,
                () = answer_batch(&shared, &store, batch) => {}
            }
        }
    }
}

async fn answer_batch(shared: &Shared, store: &Store, batch: Vec<LookupKey>) {
    let outcome = timeout(LOOKUP_TIMEOUT, find_current(shared, store, &batch)).await;
    match outcome {
        Ok(Ok(mappings)) => {
            for (key, partition) in &mappings {
                shared.misses.answer(key, Ok(*partition));
            }
        }
        Ok(Err(error)) => {
            shared.note_failure(&error);
            batch.iter().for_each(|key| shared.misses.answer(key, Err(LookupError::MapUnreachable)));
        }
        Err(_) => batch.iter().for_each(|key| shared.misses.answer(key, Err(LookupError::MapUnreachable))),
    }
}

/// The mappings at the epoch of the snapshot; they are in the cache then.
async fn find_current(
    shared: &Shared,
    store: &Store,
    batch: &[LookupKey],
) -> Result<Vec<(LookupKey, Option<PartitionId>)>, StoreError> {
    loop {
        let known = shared.current.load().epoch;
        shared.misses.queries.fetch_add(1, Ordering::Relaxed);
        shared.misses.keys.fetch_add(batch.len() as u64, Ordering::Relaxed);
        let (epoch, mappings) = store.find_keys(batch).await?;
        if epoch < known {
            return Err(StoreError::Older { found: epoch, known });
        }
        if epoch > shared.current.load().epoch {
            shared.refresh(store).await?;
        }
        if shared.current.remember(epoch, &mappings) {
            return Ok(mappings);
        }
    }
}

impl Store {
    /// The mappings of these keys, and the epoch at which they are so.
    async fn find_keys(&self, keys: &[LookupKey]) -> Result<(Epoch, Vec<(LookupKey, Option<PartitionId>)>), StoreError> {
        let groups: Vec<i32> = keys.iter().map(|key| key.group.0).collect();
        let bytes: Vec<&[u8]> = keys.iter().map(|key| &*key.key).collect();
        let rows = self.answered(sqlx::query(FIND_KEYS).bind(groups).bind(bytes).fetch_all(&self.pool()?)).await?;
        let mut epoch = Epoch::default();
        let mut found = HashMap::new();
        for row in &rows {
            let get = |column| row.try_get::<Option<i64>, _>(column).map_err(StoreError::reading);
            epoch = Epoch { incarnation: get(0)?.unwrap_or_default(), counter: get(1)?.unwrap_or_default() };
            let partition: Option<i32> = row.try_get(3).map_err(StoreError::reading)?;
            if let (Some(place), Some(partition)) = (get(2)?, partition) {
                found.insert(place, PartitionId(partition));
            }
        }
        // WITH ORDINALITY counts from one.
        let mappings = keys.iter().zip(1_i64..).map(|(key, place)| (key.clone(), found.get(&place).copied())).collect();
        Ok((epoch, mappings))
    }
}

/// One statement, so that the epoch and the mappings are of one moment. Gives the epoch also when no key is mapped.
const FIND_KEYS: &str = "SELECT c.incarnation, c.counter, f.place, f.partition_id
     FROM shardgate_map.cluster c
     LEFT JOIN (SELECT n.place, k.partition_id
                FROM ROWS FROM (unnest($1::int[]), unnest($2::bytea[])) WITH ORDINALITY n(group_id, key, place)
                JOIN shardgate_map.lookup_key k ON k.group_id = n.group_id AND k.key = n.key) f ON true";

/// A client hears within a second.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(900);
const BATCH_MAX: usize = 10_000;
const WAITING_MAX: usize = 1_000_000;
