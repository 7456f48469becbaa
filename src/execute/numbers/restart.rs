//! TRUNCATE ... RESTART IDENTITY: sequences begin anew with the transaction that empties their tables, or go on as before.
//!
//! ```text
//!   before      map: blocks are void, numbers to come begin with `end`    every proxy and shard draws by that
//!   TRUNCATE    in the client's transaction, which holds the tables       its own rows get start, … up to before `end`
//!   COMMIT      tables are empty on all shards
//!   after       map: the counter goes back to what was not drawn          what others drew meanwhile, from `end` on, is left out
//!   ROLLBACK    nothing more: the numbers go on with `end`, after a gap
//! ```
//! The numbers before `end` are free once the tables are empty: a statement of another session that was given one before was
//! sent before, and is done when the tables are had. One that was held up all that time between its number and its shard is the
//! exception. Whoever is lost between COMMIT and what comes after it leaves numbers that go on: a gap, never a number twice.

use std::sync::Arc;

use tokio::time::Instant;

use super::alter::{PATIENCE, while_closed};
use super::fill::SEEN_WITHIN;
use super::{Numbers, not_in_time, unconfirmed};
use crate::catalog::{Oid, SequenceName};
use crate::error::{PgError, SqlState};

/// A sequence that begins anew when its transaction is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restart {
    pub sequence: SequenceName,
    start: i64,
    increment: i64,
    /// The transaction's next number.
    next: i128,
    /// The transaction's numbers end before it: from there on others draw.
    end: i128,
    /// How often the sequence was set or restarted when this began.
    settings: i64,
}

impl Restart {
    /// The same once more in the transaction: the tables are empty again.
    pub fn again(&self) -> Self {
        Self { next: self.start.into(), ..self.clone() }
    }

    /// A number of the transaction's own; none when the next one is everybody's.
    pub fn take(&mut self) -> Option<i64> {
        let is_own = if self.increment > 0 { self.next < self.end } else { self.next > self.end };
        let number = i64::try_from(self.next).ok().filter(|_| is_own)?;
        self.next += i128::from(self.increment);
        Some(number)
    }
}

impl Numbers {
    /// Before these tables of the home shard are emptied: their sequences of the whole cluster. Not cancel safe: at worst their
    /// numbers have a gap.
    pub async fn begin_restart(self: &Arc<Self>, actor: &str, tables: &[Oid]) -> Result<Vec<Restart>, PgError> {
        let mut restarts = Vec::new();
        let sequences = self.owned_by(tables).await?;
        // One that is cut off from the map may go on with numbers of before, which would be given again.
        if !sequences.is_empty() {
            self.check_all_follow().await?;
        }
        for (sequence, start) in sequences {
            let entry = self.entry(&sequence);
            let (fetching, mut held) = entry.whole().await;
            let (known, incarnation) = self.sequence(&sequence)?;
            let unused = held.give_up(&known, incarnation);
            let (store, until) = (self.map.store(), Instant::now() + PATIENCE);
            let begin = || store.begin_restart(actor, (&sequence.0, &sequence.1), start, unused.clone());
            let begun = while_closed(until, begin).await?;
            drop((held, fetching));
            let Some((end, settings)) = begun else {
                self.unconfirmed.lock().insert(sequence.clone());
                self.nudge.notify_one();
                return Err(unconfirmed(&sequence.1));
            };
            restarts.push(Restart { sequence, start, increment: known.increment, next: start.into(), end, settings });
        }
        let epoch = self.map.refresh().await?;
        if !restarts.is_empty() {
            if !self.map.seen_by_all(epoch, SEEN_WITHIN).await? {
                let detail = "It may give numbers that are about to be given again.";
                return Err(not_in_time("a proxy has not heard of the restart of a sequence in time", detail));
            }
            // One whose lease has ended meanwhile was not waited for.
            self.check_all_follow().await?;
        }
        for restart in &restarts {
            let before = i64::try_from(restart.end - i128::from(restart.increment)).unwrap_or(restart.start);
            self.void(&restart.sequence, before).await?;
        }
        Ok(restarts)
    }

    /// Those that follow the map hear of the restart, and give no number of before it any more.
    async fn check_all_follow(&self) -> Result<(), PgError> {
        let silent = self.map.silent_proxies().await?;
        let Some(silent) = silent.first() else { return Ok(()) };
        Err(PgError::new(SqlState::OBJECT_IN_USE, "a proxy does not follow the shard map")
            .with_detail(format!("Proxy {} ({}) may still give numbers of before the restart.", silent.id, silent.address))
            .with_hint(
                "Repeat the statement when it has followed, or leave the restart out; SELECT * FROM shardgate.proxies shows all.",
            ))
    }

    /// The tables are had, and nobody else has set the sequences: what this transaction draws is its own.
    pub async fn check_restart(&self, restarts: &[Restart]) -> Result<(), PgError> {
        for Restart { sequence, settings, .. } in restarts {
            if self.map.store().is_set_since(&sequence.0, &sequence.1, *settings).await? {
                return Err(PgError::new(
                    SqlState::SERIALIZATION_FAILURE,
                    format!("sequence \"{}\" was set or restarted meanwhile", sequence.1),
                )
                .with_hint("Repeat the transaction."));
            }
        }
        Ok(())
    }

    /// After the commit. Every proxy and every shard follows before this returns. Not cancel safe: what was not done is a gap.
    pub async fn finish_restart(self: &Arc<Self>, actor: &str, restart: &Restart) -> Result<(), PgError> {
        let Restart { sequence, next, end, settings, .. } = restart;
        let name = (sequence.0.as_str(), sequence.1.as_str());
        if !self.map.store().finish_restart(actor, name, *next, *end, *settings).await? {
            tracing::info!(sequence = sequence.1, "a sequence was set while the transaction that restarts it was committed");
            return Ok(());
        }
        let epoch = self.map.refresh().await?;
        self.void(sequence, i64::try_from(*end).unwrap_or(restart.start)).await?;
        if !self.map.seen_by_all(epoch, SEEN_WITHIN).await? {
            tracing::warn!(%epoch, "a proxy has not heard of the restart of a sequence in time");
        }
        Ok(())
    }

    /// Sequences of the whole cluster that belong to columns of these tables, and their starts: those that PostgreSQL restarts.
    async fn owned_by(self: &Arc<Self>, tables: &[Oid]) -> Result<Vec<(SequenceName, i64)>, PgError> {
        let home = self.map.snapshot().home().cloned().ok_or_else(|| PgError::internal("there is no home shard"))?;
        let oids: Vec<String> = tables.iter().map(ToString::to_string).collect();
        let sql = format!(
            "SELECT DISTINCT pg_catalog.json_build_array(n.nspname, c.relname, s.seqstart)::text
             FROM pg_depend d JOIN pg_class c ON c.oid = d.objid JOIN pg_namespace n ON n.oid = c.relnamespace
             JOIN pg_sequence s ON s.seqrelid = c.oid
             WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
               AND d.refobjid = ANY('{{{}}}'::oid[]) ORDER BY 1",
            oids.join(",")
        );
        let this = Arc::clone(self);
        let rows = self.on_runtime(async move { this.ask(&home, sql).await }).await?;
        let read = |row: &String| serde_json::from_str::<(String, String, i64)>(row).ok();
        let owned = rows.iter().filter_map(read).map(|(schema, name, start)| ((schema, name), start));
        Ok(owned.filter(|(name, _)| self.map.load().sequences.contains_key(name)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transactions_own_numbers_end_where_others_begin() {
        let name = ("public".to_owned(), "s".to_owned());
        let mut restart = Restart { sequence: name, start: 1, increment: 50, next: 1, end: 101, settings: 0 };
        assert_eq!([restart.take(), restart.take(), restart.take()], [Some(1), Some(51), None]);
        assert_eq!(restart.next, 101);
        assert_eq!(restart.again().take(), Some(1));
        let mut down = Restart { start: -1, increment: -1, next: -1, end: -3, ..restart };
        assert_eq!([down.take(), down.take(), down.take()], [Some(-1), Some(-2), None]);
    }
}
