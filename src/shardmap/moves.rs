//! Moves as the map keeps them: what moves where, how far it is, who drives it.
//!
//! A driver acts under a *term*. It takes a higher one before anything else, and what comes with a lower one is refused by the
//! map, and by the shards likewise: so of two drivers, or of one that was frozen, only the last can change anything. None of these
//! is cancel safe: what was cancelled may have been done.

use std::time::Duration;

use sqlx::types::Json;

use super::changes::read;
use super::encoding::unreadable;
use super::error::StoreError;
use super::model::{Epoch, GroupId, PartitionId, ShardId};
use super::store::Store;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MoveId(pub i32);

/// Of [`Store::take_move`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term(pub i64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MoveState {
    /// Nothing was touched yet.
    Planned,
    /// Gates are put up, and what is needed to copy.
    Preparing,
    Copying,
    /// The copy follows what is written at the source.
    CatchingUp,
    /// Both sides are compared.
    Verifying,
    /// The partitions are held.
    CuttingOver,
    /// The target owns them; the source's rows are still there, and follow what is written until the move is finished.
    Switched,
    /// The source's rows are deleted.
    CleaningUp,
    Done,
    /// What was made for the move is taken away; the source owns them, still or again.
    Aborting,
    Aborted,
    /// Waits for a person.
    Failed,
}

impl MoveState {
    pub const ALL: [MoveState; 12] = [
        MoveState::Planned,
        MoveState::Preparing,
        MoveState::Copying,
        MoveState::CatchingUp,
        MoveState::Verifying,
        MoveState::CuttingOver,
        MoveState::Switched,
        MoveState::CleaningUp,
        MoveState::Done,
        MoveState::Aborting,
        MoveState::Aborted,
        MoveState::Failed,
    ];

    pub fn name(self) -> &'static str {
        match self {
            MoveState::Planned => "planned",
            MoveState::Preparing => "preparing",
            MoveState::Copying => "copying",
            MoveState::CatchingUp => "catching_up",
            MoveState::Verifying => "verifying",
            MoveState::CuttingOver => "cutting_over",
            MoveState::Switched => "switched",
            MoveState::CleaningUp => "cleaning_up",
            MoveState::Done => "done",
            MoveState::Aborting => "aborting",
            MoveState::Aborted => "aborted",
            MoveState::Failed => "failed",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Nobody has anything to do any more.
    pub fn is_over(self) -> bool {
        matches!(self, MoveState::Done | MoveState::Aborted)
    }

    /// The target owns the partitions.
    pub fn has_switched(self) -> bool {
        matches!(self, MoveState::Switched | MoveState::CleaningUp | MoveState::Done)
    }

    /// The source owns them, and nothing leads forward any more.
    pub fn has_gone_back(self) -> bool {
        matches!(self, MoveState::Aborting | MoveState::Aborted)
    }
}

/// What a person, or a change of the schema, wants of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Abort,
    /// Not to be cut over for now.
    Pause,
    /// To be cut over, which [`MoveOptions::manual_cutover`] waits for.
    Cutover,
    Finish,
    /// The same where both sides differ, which is for a person to decide.
    FinishUnverified,
    /// Back to the source after the switch.
    Rollback,
    /// Of a rollback that has failed, since the source may lack what the target gave it: the target's rows go all the same.
    RollbackUnverified,
    /// Of one that has failed: to go on.
    Resume,
}

impl Asked {
    const ALL: [Asked; 8] = [
        Asked::Abort,
        Asked::Pause,
        Asked::Cutover,
        Asked::Finish,
        Asked::FinishUnverified,
        Asked::Rollback,
        Asked::RollbackUnverified,
        Asked::Resume,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Asked::Abort => "abort",
            Asked::Pause => "pause",
            Asked::Cutover => "cutover",
            Asked::Finish => "finish",
            Asked::FinishUnverified => "finish_unverified",
            Asked::Rollback => "rollback",
            Asked::RollbackUnverified => "rollback_unverified",
            Asked::Resume => "resume",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|asked| asked.name() == name)
    }
}

/// How a move is to be done.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MoveOptions {
    /// Longest time for which statements may be held.
    pub max_pause_ms: u64,
    /// Wait for a person before the cut-over.
    pub manual_cutover: bool,
    /// The source's rows stay until a person says `finish`.
    pub keep: bool,
    /// From the switch until the move finishes by itself, unless it keeps. 0: at once, and there is no way back.
    pub grace_ms: u64,
}

impl MoveOptions {
    /// The source is to follow the target after the switch.
    pub fn can_go_back(&self) -> bool {
        self.keep || self.grace_ms > 0
    }
}

impl Default for MoveOptions {
    fn default() -> Self {
        Self { max_pause_ms: 500, manual_cutover: false, keep: false, grace_ms: DEFAULT_GRACE_MS }
    }
}

/// A quarter of an hour.
pub const DEFAULT_GRACE_MS: u64 = 15 * 60 * 1000;

/// One move, as the map knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    pub id: MoveId,
    pub group: GroupId,
    /// Sorted.
    pub partitions: Vec<PartitionId>,
    /// Names of shards.
    pub source: String,
    pub target: String,
    pub state: MoveState,
    pub asked: Option<Asked>,
    pub options: MoveOptions,
    /// What its driver remembers across its death.
    pub journal: serde_json::Value,
    /// Cut-overs that were begun.
    pub attempts: i32,
    pub rows_copied: i64,
    pub bytes_copied: i64,
    pub bytes_expected: Option<i64>,
    pub lag_bytes: Option<i64>,
    pub pause_ms: Option<f64>,
    pub error: Option<String>,
    /// It goes back to the source, or has gone back.
    pub is_rollback: bool,
    /// It can be rolled back now.
    pub can_roll_back: bool,
    /// When it finishes by itself after its switch, in UTC; `None`: not before it is asked for.
    pub finish_at: Option<String>,
    /// That time has come.
    pub is_due: bool,
    /// It waits out its grace period, and was looked at a moment ago.
    pub rests: bool,
    pub asked_by: Option<String>,
}

/// How a change of the schema asks moves to be aborted; behind it stands which.
const GAVE_WAY: &str = "gave way to ";

impl Move {
    /// Why it is aborted, where that is asked for.
    pub fn abort_reason(&self) -> String {
        let of_schema_change = self.asked_by.as_deref().filter(|asked_by| asked_by.starts_with(GAVE_WAY));
        of_schema_change.unwrap_or("aborted").to_owned()
    }

    /// It was remembered by a driver.
    pub fn remembers(&self, what: &str) -> bool {
        self.journal.get(what).is_some()
    }

    /// There is nothing to do: it has ended, or waits for a person.
    pub fn is_at_rest(&self) -> bool {
        self.state.is_over() || self.state == MoveState::Failed && self.asked != Some(Asked::Resume)
    }

    /// Statements of its partitions wait: they are held, or have switched and are not opened yet.
    pub fn holds(&self) -> bool {
        match self.state {
            MoveState::CuttingOver => true,
            MoveState::Switched => !self.remembers("opened"),
            MoveState::Aborting => self.is_rollback && !self.remembers("reopened"),
            _ => false,
        }
    }

    /// It has switched and everything is ready for a rollback, or for the end.
    pub fn has_settled(&self) -> bool {
        self.state == MoveState::Switched && self.remembers("settled")
    }
}

/// What a move that was done has taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PastMove {
    pub bytes: u64,
    /// From its beginning to its switch.
    pub seconds: f64,
    pub pause_ms: Option<f64>,
}

/// How far a move is; `None`: as before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub rows_copied: Option<i64>,
    pub bytes_copied: Option<i64>,
    pub lag_bytes: Option<i64>,
    /// What it waits for, or what is in its way.
    pub error: Option<String>,
}

/// `url` and `replication_url`.
pub type ShardAddresses = (String, Option<String>);

impl Store {
    /// Refused where the partitions are not of one group and one shard, or one of them is being moved. `driver`: who is going to
    /// drive it; `None`: who comes first.
    pub async fn plan_move(
        &self,
        actor: &str,
        partitions: &[PartitionId],
        target: &str,
        options: &MoveOptions,
        driver: Option<i64>,
    ) -> Result<MoveId, StoreError> {
        let partitions: Vec<i32> = partitions.iter().map(|id| id.0).collect();
        let query = sqlx::query("SELECT shardgate_map.plan_move($1, $2, $3, $4, $5)")
            .bind(actor)
            .bind(partitions)
            .bind(target)
            .bind(Json(options))
            .bind(driver);
        Ok(MoveId(read(&self.change(query).await?, 0)?))
    }

    /// `None`: there is no such move.
    pub async fn move_by_id(&self, id: MoveId) -> Result<Option<Move>, StoreError> {
        Ok(self.moves_where("m.move_id = $1", id.0).await?.pop())
    }

    /// Those that have not ended, by id.
    pub async fn running_moves(&self) -> Result<Vec<Move>, StoreError> {
        self.moves_where("m.state NOT IN ('done', 'aborted') AND $1 = 0", 0).await
    }

    /// The last ones that were done without waiting for a person, the newest first.
    pub async fn past_moves(&self) -> Result<Vec<PastMove>, StoreError> {
        let sql = "SELECT m.bytes_expected, extract(epoch FROM m.switched_at - m.started_at)::float8, m.pause_ms
                   FROM shardgate_map.move m
                   WHERE m.state = 'done' AND m.bytes_expected IS NOT NULL AND m.switched_at IS NOT NULL
                     AND NOT coalesce((m.options ->> 'manual_cutover')::bool, false)
                   ORDER BY m.move_id DESC LIMIT 50";
        let rows = self.answered(sqlx::query(sql).fetch_all(&self.pool()?)).await?;
        let past = |row: &sqlx::postgres::PgRow| {
            let bytes = u64::try_from(read::<i64>(row, 0)?).unwrap_or_default();
            Ok(PastMove { bytes, seconds: read(row, 1)?, pause_ms: read(row, 2)? })
        };
        rows.iter().map(past).collect()
    }

    async fn moves_where(&self, condition: &str, argument: i32) -> Result<Vec<Move>, StoreError> {
        let sql = format!(
            "SELECT m.move_id, m.group_id,
                    array(SELECT p.partition_id FROM shardgate_map.move_partition p WHERE p.move_id = m.move_id ORDER BY 1),
                    m.source, m.target, m.state, m.asked, m.options, m.journal, m.attempts, m.rows_copied, m.bytes_copied,
                    m.bytes_expected, m.lag_bytes, m.pause_ms, m.error, m.is_rollback, shardgate_map.can_roll_back(m),
                    to_char(m.finish_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC', due.is_due,
                    coalesce(m.state = 'switched' AND m.journal ? 'settled' AND m.asked IS NULL AND NOT due.is_due
                             AND m.driver_seen > clock_timestamp() - make_interval(secs => $2), false), m.asked_by
             FROM shardgate_map.move m
             CROSS JOIN LATERAL (SELECT coalesce(m.finish_at <= clock_timestamp(), false) AND NOT m.journal ? 'differs' AS is_due) due
             WHERE {condition} ORDER BY m.move_id"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(argument).bind(REST.as_secs_f64());
        let rows = self.answered(query.fetch_all(&self.pool()?)).await?;
        rows.iter().map(move_of_row).collect()
    }

    /// What a person wants of the move. Gives the state that it is in. `driver`: drives it if nobody does now.
    pub async fn ask_move(
        &self,
        actor: &str,
        id: MoveId,
        asked: Option<Asked>,
        driver: Option<i64>,
    ) -> Result<MoveState, StoreError> {
        let what = asked.map_or("resume", Asked::name);
        let query = sqlx::query("SELECT shardgate_map.ask_move($1, $2, $3, $4)").bind(actor).bind(id.0).bind(what).bind(driver);
        state_named(read(&self.change(query).await?, 0)?)
    }

    /// `None`: another driver has the move, and was heard of within `lease`. `driver`: random for each process.
    pub async fn take_move(&self, id: MoveId, driver: i64, lease: Duration) -> Result<Option<Term>, StoreError> {
        let query = sqlx::query("SELECT shardgate_map.take_move($1, $2, make_interval(secs => $3), make_interval(secs => $4))")
            .bind(id.0)
            .bind(driver)
            .bind(lease.as_secs_f64())
            .bind(lease.min(CUTOVER_LEASE).as_secs_f64());
        Ok(read::<Option<i64>>(&self.change(query).await?, 0)?.map(Term))
    }

    /// A shard knows this term of the move, which is higher than the driver's: the next one is higher still. Refused where another driver has
    /// the move, which is why the shard knows it; the map has forgotten it otherwise. The driver's own term is good for nothing any more.
    pub async fn raise_term(&self, id: MoveId, term: Term, known: Term) -> Result<(), StoreError> {
        let query = sqlx::query("SELECT shardgate_map.raise_term($1, $2, $3)::text").bind(id.0).bind(term.0).bind(known.0);
        self.change(query).await.map(drop)
    }

    /// Another driver may take the move at once.
    pub async fn leave_move(&self, id: MoveId, term: Term) -> Result<(), StoreError> {
        self.change(sqlx::query("SELECT shardgate_map.leave_move($1, $2)::text").bind(id.0).bind(term.0)).await.map(drop)
    }

    /// The driver lives. Gives what is asked of the move.
    pub async fn keep_move(&self, id: MoveId, term: Term, progress: &Progress) -> Result<Option<Asked>, StoreError> {
        let query = sqlx::query("SELECT shardgate_map.keep_move($1, $2, $3, $4, $5, $6)")
            .bind(id.0)
            .bind(term.0)
            .bind(progress.rows_copied)
            .bind(progress.bytes_copied)
            .bind(progress.lag_bytes)
            .bind(progress.error.as_deref());
        let asked: Option<String> = read(&self.change(query).await?, 0)?;
        Ok(asked.as_deref().and_then(Asked::from_name))
    }

    /// To a state that changes nothing for the proxies. `remembered`: added to the journal.
    pub async fn advance_move(
        &self,
        (id, term): (MoveId, Term),
        from: MoveState,
        to: MoveState,
        remembered: serde_json::Value,
        error: Option<&str>,
    ) -> Result<(), StoreError> {
        let query = sqlx::query("SELECT shardgate_map.advance_move($1, $2, $3, $4, $5, $6)::text")
            .bind(id.0)
            .bind(term.0)
            .bind(from.name())
            .bind(to.name())
            .bind(Json(remembered))
            .bind(error);
        self.change(query).await.map(drop)
    }

    /// The counter of the epoch by which changes of the schema are shut out. `None`: the move has to wait for another one, or for a
    /// change of the schema.
    pub async fn begin_move(&self, actor: &str, id: MoveId, term: Term) -> Result<Option<i64>, StoreError> {
        let query = sqlx::query("SELECT shardgate_map.begin_move($1, $2, $3)").bind(actor).bind(id.0).bind(term.0);
        read(&self.change(query).await?, 0)
    }

    /// Every proxy leaves out residues of the group from the epoch of this change on.
    pub async fn begin_exclusion(&self, actor: &str, id: MoveId, term: Term) -> Result<(), StoreError> {
        let query = sqlx::query("SELECT shardgate_map.begin_exclusion($1, $2, $3)::text").bind(actor).bind(id.0).bind(term.0);
        self.change(query).await.map(drop)
    }

    /// The epoch from which on no proxy leaves out residues of this move: it has none any more.
    pub async fn end_exclusion(&self, actor: &str, id: MoveId, term: Term) -> Result<Epoch, StoreError> {
        let sql = "SELECT e.incarnation, e.counter FROM shardgate_map.end_exclusion($1, $2, $3) e";
        self.epoch_of(sqlx::query(sql).bind(actor).bind(id.0).bind(term.0)).await
    }

    /// The incarnation of the map that has held the set last.
    pub async fn held_in(&self, id: MoveId) -> Result<Option<i64>, StoreError> {
        self.answered(
            sqlx::query_scalar(
                "SELECT incarnation FROM shardgate_map.history WHERE change = 'hold_move' AND arguments ->> 'move' = $1::text
             ORDER BY incarnation DESC, counter DESC LIMIT 1",
            )
            .bind(id.0.to_string())
            .fetch_optional(&self.pool()?),
        )
        .await
    }

    /// For how long statements of the set have been held, by the map database's clock.
    pub async fn held_for(&self, id: MoveId) -> Result<Option<Duration>, StoreError> {
        let seconds: Option<f64> = self
            .answered(
                sqlx::query_scalar(
                    "SELECT extract(epoch FROM clock_timestamp() - max(h.changed_at))::float8 FROM shardgate_map.history h
                     WHERE h.change = 'hold_move' AND h.arguments ->> 'move' = $1::text
                       AND EXISTS (SELECT FROM shardgate_map.move_partition m JOIN shardgate_map.partition p USING (partition_id)
                                   WHERE m.move_id = $1::text::int AND p.state = 'held')",
                )
                .bind(id.0.to_string())
                .fetch_one(&self.pool()?),
            )
            .await?;
        Ok(seconds.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default()))
    }

    /// The hold ends, and who owned the set before owns it still.
    pub async fn release_move(&self, actor: &str, id: MoveId, term: Term, error: &str) -> Result<(), StoreError> {
        let query =
            sqlx::query("SELECT shardgate_map.release_move($1, $2, $3, $4)::text").bind(actor).bind(id.0).bind(term.0).bind(error);
        self.change(query).await.map(drop)
    }

    /// `Done` or `Aborted`: nothing of the move is left on a shard.
    pub async fn end_move(
        &self,
        actor: &str,
        (id, term): (MoveId, Term),
        state: MoveState,
        error: Option<&str>,
    ) -> Result<(), StoreError> {
        let query = sqlx::query("SELECT shardgate_map.end_move($1, $2, $3, $4, $5)::text")
            .bind(actor)
            .bind(id.0)
            .bind(term.0)
            .bind(state.name())
            .bind(error);
        self.change(query).await.map(drop)
    }

    /// Ends a move that has touched nothing.
    pub async fn withdraw_move(&self, actor: &str, id: MoveId, term: Term, error: &str) -> Result<(), StoreError> {
        let query =
            sqlx::query("SELECT shardgate_map.withdraw_move($1, $2, $3, $4)::text").bind(actor).bind(id.0).bind(term.0).bind(error);
        self.change(query).await.map(drop)
    }

    /// Asks moves before their switch to give way to a change of the schema. Gives those that are in its way still. Refused, and nothing
    /// asked, where one stays for longer than this unless a person ends it.
    pub async fn give_way(&self, change: &str, patience: Duration) -> Result<Vec<MoveId>, StoreError> {
        let give_way = "SELECT shardgate_map.give_way($1, make_interval(secs => $2))";
        let row = self.change(sqlx::query(give_way).bind(format!("{GAVE_WAY}{change}")).bind(patience.as_secs_f64())).await?;
        Ok(read::<Vec<i32>>(&row, 0)?.into_iter().map(MoveId).collect())
    }

    /// By shard, where it has one: the url under which other servers reach it.
    pub async fn replication_urls(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.answered(
            sqlx::query_as("SELECT name, replication_url FROM shardgate_map.shard WHERE replication_url IS NOT NULL")
                .fetch_all(&self.pool()?),
        )
        .await
    }

    /// How these shards are reached: by clients' statements, and by each other where that differs.
    pub async fn addresses(&self, shards: &[ShardId]) -> Result<Vec<ShardAddresses>, StoreError> {
        let ids: Vec<i32> = shards.iter().map(|id| id.0).collect();
        let sql = "SELECT url, replication_url FROM shardgate_map.shard WHERE shard_id = ANY ($1) ORDER BY shard_id";
        self.answered(sqlx::query_as(sql).bind(ids).fetch_all(&self.pool()?)).await
    }

    /// The keys of these lookup partitions, as text.
    pub async fn keys_of_partitions(&self, partitions: &[PartitionId]) -> Result<Vec<String>, StoreError> {
        let ids: Vec<i32> = partitions.iter().map(|id| id.0).collect();
        self.answered(
            sqlx::query_scalar("SELECT key_text FROM shardgate_map.lookup_key WHERE partition_id = ANY ($1) ORDER BY key")
                .bind(ids)
                .fetch_all(&self.pool()?),
        )
        .await
    }

    async fn epoch_of<'q, Q>(&self, query: Q) -> Result<Epoch, StoreError>
    where
        Q: sqlx::Execute<'q, sqlx::Postgres> + 'q,
    {
        let row = self.change(query).await?;
        Ok(Epoch { incarnation: read(&row, 0)?, counter: read(&row, 1)? })
    }
}

fn move_of_row(row: &sqlx::postgres::PgRow) -> Result<Move, StoreError> {
    let options: Json<serde_json::Value> = read(row, 7)?;
    let asked: Option<String> = read(row, 6)?;
    Ok(Move {
        id: MoveId(read(row, 0)?),
        group: GroupId(read(row, 1)?),
        partitions: read::<Vec<i32>>(row, 2)?.into_iter().map(PartitionId).collect(),
        source: read(row, 3)?,
        target: read(row, 4)?,
        state: state_named(read(row, 5)?)?,
        asked: asked.as_deref().and_then(Asked::from_name),
        options: serde_json::from_value(options.0).map_err(|error| unreadable("options of a move", &error.to_string()))?,
        journal: read::<Json<serde_json::Value>>(row, 8)?.0,
        attempts: read(row, 9)?,
        rows_copied: read(row, 10)?,
        bytes_copied: read(row, 11)?,
        bytes_expected: read(row, 12)?,
        lag_bytes: read(row, 13)?,
        pause_ms: read(row, 14)?,
        error: read(row, 15)?,
        is_rollback: read(row, 16)?,
        can_roll_back: read(row, 17)?,
        finish_at: read(row, 18)?,
        is_due: read(row, 19)?,
        rests: read(row, 20)?,
        asked_by: read(row, 21)?,
    })
}

pub(super) fn state_named(name: &str) -> Result<MoveState, StoreError> {
    MoveState::from_name(name).ok_or_else(|| unreadable("state of a move", name))
}

/// A driver that is not heard of for so long is given up, by a command.
pub const DRIVER_LEASE: Duration = Duration::from_secs(4);
/// A move that waits out its grace period is looked at so often.
const REST: Duration = Duration::from_secs(5);
/// The same while statements are held, at most.
pub const CUTOVER_LEASE: Duration = Duration::from_secs(2);
