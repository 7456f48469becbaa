//! ALTER SEQUENCE of sequences of the whole cluster: with its transaction, and for everybody at once.
//!
//! ```text
//!   ALTER      home shard: the sequence's lock, which one transaction has     map: closed, blocks are void, and every proxy knows
//!              each shard: PostgreSQL alters its own sequence, which stands where the cluster's does meanwhile
//!   then       the transaction draws by itself; who else wants a number waits, as with one PostgreSQL
//!   COMMIT     with it the home shard has what the sequence is now
//!   after      whoever closes the change of the schema reads that there, tells the map, and the sequence is open again
//!   ROLLBACK   the home shard has nothing of it: the sequence is open again, as it was
//! ```
//! So the outcome is the home shard's: a proxy that is lost on the way, or does not know whether it has committed, leaves the sequence
//! closed until another proxy has looked. Unlike PostgreSQL it does not wait for transactions that have drawn before: their numbers are
//! from before, whatever it makes of the sequence.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::fill::{SEEN_WITHIN, quoted, unreachable};
use super::{Numbers, not_in_time, unconfirmed};
use crate::catalog::SequenceName;
use crate::error::{PgError, SqlState};
use crate::execute::recovery::LinkError;
use crate::shardmap::{SchemaChangeId, SequencePlace, SequenceState, Shard};

/// A sequence as the transaction sees it that has altered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alteration {
    pub sequence: SequenceName,
    pub state: SequenceState,
    /// The home shard does not know yet how far it has come.
    pub has_moved: bool,
}

impl Alteration {
    /// nextval(), so many times.
    pub fn draw(&mut self, count: usize) -> Result<Vec<i64>, PgError> {
        let mut drawn = Vec::with_capacity(count);
        while drawn.len() < count {
            let SequenceState { increment, minimum, maximum, place } = &mut self.state;
            let reached = |which, limit: i64| {
                let message = format!("nextval: reached {which} value of sequence \"{}\" ({limit})", self.sequence.1);
                Err(PgError::new(SqlState::SEQUENCE_LIMIT_EXCEEDED, message))
            };
            match i64::try_from(place.next) {
                Ok(number) if *increment > 0 && number <= *maximum => drawn.push(number),
                Ok(number) if *increment < 0 && number >= *minimum => drawn.push(number),
                _ if *increment > 0 => return reached("maximum", *maximum),
                _ => return reached("minimum", *minimum),
            }
            place.next += i128::from(*increment);
            self.has_moved = true;
        }
        Ok(drawn)
    }

    /// setval().
    pub fn set(&mut self, number: i64, is_called: bool) -> Result<(), PgError> {
        let SequenceState { increment, minimum, maximum, place } = &mut self.state;
        if !(*minimum..=*maximum).contains(&number) {
            let message =
                format!("setval: value {number} is out of bounds for sequence \"{}\" ({minimum}..{maximum})", self.sequence.1);
            return Err(PgError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
        }
        let step = if is_called { i128::from(*increment) } else { 0 };
        *place = SequencePlace { next: i128::from(number) + step, set_to: Some(number.into()) };
        self.has_moved = true;
        Ok(())
    }
}

impl Numbers {
    /// The sequence's lock on the home shard is had. From here to the end of this change of the schema nobody else is given its numbers.
    /// Returns where it is. Not cancel safe: at worst it stays closed until that end.
    pub async fn begin_alteration(
        self: &Arc<Self>,
        actor: &str,
        name: &SequenceName,
        change: SchemaChangeId,
    ) -> Result<SequencePlace, PgError> {
        let entry = self.entry(name);
        let (fetching, mut held) = entry.whole().await;
        let (known, incarnation) = self.sequence(name)?;
        let unused = held.give_up(&known, incarnation);
        let until = Instant::now() + PATIENCE;
        let store = self.map.store();
        let begun = while_closed(until, || store.begin_alteration(actor, (&name.0, &name.1), change, unused.clone())).await?;
        drop((held, fetching));
        let Some(place) = begun else {
            self.unconfirmed.lock().insert(name.clone());
            self.nudge.notify_one();
            return Err(unconfirmed(&name.1));
        };
        let epoch = self.map.refresh().await?;
        if !self.map.seen_by_all(epoch, SEEN_WITHIN).await? {
            return Err(not_in_time(
                "a proxy has not heard in time that a sequence is altered",
                "It may still give numbers of it.",
            ));
        }
        let before = i64::try_from(place.next - i128::from(known.increment)).unwrap_or_default();
        self.void(name, before).await?;
        Ok(place)
    }

    /// The transaction has gone back to before it altered the sequence.
    pub async fn reopen(&self, name: &SequenceName, change: SchemaChangeId) -> Result<(), PgError> {
        Ok(self.map.store().reopen_sequence((&name.0, &name.1), change).await?)
    }

    /// Does a transaction still last, on the home shard, that has made or altered sequences in one of these changes?
    pub async fn are_under_way(self: &Arc<Self>, changes: &[SchemaChangeId]) -> Result<bool, PgError> {
        let home = self.map.snapshot().home().cloned().ok_or_else(|| PgError::internal("there is no home shard"))?;
        let ids: Vec<String> = changes.iter().map(|change| change.0.to_string()).collect();
        let sql = format!(
            "SELECT 'under way' FROM pg_catalog.unnest(ARRAY[{}]::bigint[]) c (change) \
             WHERE NOT pg_catalog.pg_try_advisory_xact_lock({}) LIMIT 1",
            ids.join(","),
            lock_key("c.change")
        );
        let this = Arc::clone(self);
        self.on_runtime(async move {
            match this.links.of(&home).values(Instant::now(), sql).await {
                Ok(found) => Ok(!found.is_empty()),
                // It has never had a sequence of the whole cluster.
                Err(LinkError::NotReady) => Ok(false),
                Err(error) => Err(unreachable(&home.name, &error)),
            }
        })
        .await
    }

    /// Tells the map what these changes of the schema have made of sequences, before they are closed. Their transactions have
    /// ended, or are about to. Returns the names of those whose numbers go on where they were. May be repeated.
    pub async fn settle_alterations(self: &Arc<Self>, actor: &str, changes: &[SchemaChangeId]) -> Result<Vec<String>, PgError> {
        let store = self.map.store();
        let closed = store.closed_sequences(changes).await?;
        let mut not_set = Vec::new();
        let until = Instant::now() + END_PATIENCE;
        while !closed.is_empty() && self.are_under_way(changes).await? {
            if Instant::now() >= until {
                return Err(under_way_still());
            }
            sleep(PAUSE).await;
        }
        for (name, change) in &closed {
            match self.left_by(name, *change).await? {
                None => store.reopen_sequence((&name.0, &name.1), *change).await?,
                Some(state) => {
                    if !store.finish_alteration(actor, (&name.0, &name.1), *change, &state).await? {
                        not_set.push(name.1.clone());
                    }
                }
            }
        }
        if !closed.is_empty() {
            self.map.refresh().await?;
        }
        Ok(not_set)
    }

    /// What a transaction has left on the home shard. `None`: it was rolled back, or the sequence is gone. Waits for a transaction
    /// that is still there: one that is prepared, or whose connection was lost just now.
    async fn left_by(self: &Arc<Self>, name: &SequenceName, change: SchemaChangeId) -> Result<Option<SequenceState>, PgError> {
        let home = self.map.snapshot().home().cloned().ok_or_else(|| PgError::internal("there is no home shard"))?;
        let (this, name) = (Arc::clone(self), name.clone());
        let row = self.on_runtime(async move { this.altered_row(&home, &name).await }).await?;
        let state = row.and_then(|row| serde_json::from_str::<Left>(&row).ok()).filter(|left| left.0 == change.0);
        Ok(state.and_then(|Left(_, state)| read_state(&state)))
    }

    async fn altered_row(&self, home: &Arc<Shard>, name: &SequenceName) -> Result<Option<String>, PgError> {
        // The row's lock is that transaction's until it has ended everywhere.
        let sql = format!(
            "SELECT pg_catalog.json_build_array(k.altered_by, k.altered_to::text[])::text FROM shardgate.number_sequences k \
             WHERE k.sequence = pg_catalog.to_regclass({}) AND k.altered_by IS NOT NULL FOR UPDATE NOWAIT",
            quoted(name)
        );
        let until = Instant::now() + END_PATIENCE;
        loop {
            match self.links.of(home).values(Instant::now(), sql.clone()).await {
                Ok(rows) => return Ok(rows.into_iter().next()),
                Err(error) if error.is_lock_timeout() && Instant::now() < until => sleep(PAUSE).await,
                Err(error) => return Err(unreachable(&home.name, &error)),
            }
        }
    }
}

/// To be run in the transaction of this change on the home shard, before the map hears of its sequences. What a savepoint takes back
/// takes this back too.
pub fn under_way(change: SchemaChangeId) -> String {
    format!("SELECT pg_catalog.pg_advisory_xact_lock_shared({})", lock_key(&change.0.to_string()))
}

fn lock_key(change: &str) -> String {
    format!("pg_catalog.hashtextextended('shardgate schema change', {change})")
}

fn under_way_still() -> PgError {
    PgError::new(SqlState::OBJECT_IN_USE, "a transaction that alters sequences has not ended on the home shard")
}

/// As the home shard has it: the change, and (increment, minimum, maximum, next number, set to).
#[derive(serde::Deserialize)]
struct Left(i64, Vec<String>);

/// Five numbers, as a shard tells them.
pub fn read_state(told: &[String]) -> Option<SequenceState> {
    let [increment, minimum, maximum, next, set_to] = told else { return None };
    let place = SequencePlace { next: next.parse().ok()?, set_to: Some(set_to.parse().ok()?) };
    Some(SequenceState {
        increment: increment.parse().ok()?,
        minimum: minimum.parse().ok()?,
        maximum: maximum.parse().ok()?,
        place,
    })
}

/// Asks the map again and again while somebody else alters the sequence.
pub(super) async fn while_closed<T, E: Into<PgError>, F: Future<Output = Result<T, E>>>(
    until: Instant,
    mut ask: impl FnMut() -> F,
) -> Result<T, PgError> {
    loop {
        match ask().await.map_err(Into::into) {
            Err(error) if error.code == SqlState::OBJECT_IN_USE && Instant::now() < until => sleep(PAUSE).await,
            answer => return answer,
        }
    }
}

/// For the transaction that alters the sequence. PostgreSQL would wait for ever, and find out who waits for each other.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// For a transaction that has been ended.
const END_PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn alteration(increment: i64, next: i128) -> Alteration {
        let place = SequencePlace { next, set_to: None };
        let state = SequenceState { increment, minimum: -4, maximum: 12, place };
        Alteration { sequence: ("public".into(), "s".into()), state, has_moved: false }
    }

    #[test]
    fn its_own_numbers_end_where_the_sequence_ends() {
        let mut up = alteration(5, 3);
        assert_eq!(up.draw(2), Ok(vec![3, 8]));
        let error = up.draw(1).expect_err("the end");
        assert_eq!((error.code.0, error.message.as_str()), (*b"2200H", "nextval: reached maximum value of sequence \"s\" (12)"));
        let mut down = alteration(-3, 1);
        assert_eq!(down.draw(2), Ok(vec![1, -2]));
        assert_eq!(down.draw(1).expect_err("the end").message, "nextval: reached minimum value of sequence \"s\" (-4)");
    }

    #[test]
    fn setval_counts_from_there_on() {
        let mut altered = alteration(2, 0);
        altered.set(5, true).expect("set");
        assert_eq!(altered.draw(1), Ok(vec![7]));
        altered.set(5, false).expect("set");
        assert_eq!((altered.draw(1), altered.state.place.set_to), (Ok(vec![5]), Some(5)));
        let error = altered.set(13, true).expect_err("too far");
        assert_eq!(error.message, "setval: value 13 is out of bounds for sequence \"s\" (-4..12)");
    }
}
