//! Commits on several shards at once: the steps of [`super::rules`] in order, on connections that the session lends.
//!
//! Nobody looks at the client meanwhile: once it has asked for COMMIT, the commit ends by itself. What cannot be finished here
//! is left to recovery, which finds it by the gids. A participant that was lost is in [`Report::lost`]; its connection is of no
//! more use.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use tokio::time::Instant;

use super::answer::{Answer, ask, ask_one};
use super::registry::Active;
use super::rules::{self, Decision, Finish, Preparation};
use super::transaction_id::TransactionId;
use crate::backend::Connection;
use crate::error::{PgError, SqlState};
use crate::shardmap::ShardId;

/// A shard on which the transaction has written.
pub struct Writer<'c> {
    pub shard: ShardId,
    pub name: String,
    pub connection: &'c mut Connection,
    /// The role that the session has there after its transaction.
    pub role: Option<String>,
}

/// What a commit needs of the world outside its connections.
pub trait Fallback {
    /// Reads the decision, or makes it an abort, until the deadline. `None`: it could not be read.
    fn resolve(&self, active: &Active, deadline: Instant) -> impl Future<Output = Option<bool>> + Send;
    /// Finishes a participant over another connection until the deadline.
    fn finish(
        &self,
        shard: ShardId,
        active: &Active,
        participant: usize,
        is_committed: bool,
        deadline: Instant,
    ) -> impl Future<Output = Finished> + Send;
    /// From here on nobody may cancel what the session's backends do.
    fn shield(&self);
}

/// What became of a participant that the commit itself could not finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    Done,
    /// The shard has lost what it had prepared: restored, or failed over to a standby that did not have it.
    PartLost,
    /// Recovery goes on.
    NotYet,
}

/// How the transaction ended.
#[derive(Debug)]
pub enum Outcome {
    Committed,
    /// Rolled back everywhere, or about to be. The shard's own error, its body, and the shard's name.
    RefusedBy(String, Bytes),
    Aborted(PgError),
    Unknown,
}

/// The outcome and what the session has to know besides.
#[derive(Debug)]
pub struct Report {
    pub outcome: Outcome,
    /// Participants whose connection broke.
    pub lost: Vec<ShardId>,
    /// Were prepared, whatever came of it: what the transaction had SET has stayed on these connections.
    pub prepared: Vec<ShardId>,
    /// Committed there too, but not yet.
    pub undelivered: Vec<(ShardId, String)>,
    /// Bodies of notices for the client.
    pub notices: Vec<Bytes>,
}

/// Limits of one commit.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of the first phase, and of what is tried again after it, each.
    pub patience: Duration,
}

/// The first writer decides.
pub async fn commit(mut writers: Vec<Writer<'_>>, active: &Active, fallback: &impl Fallback, limits: Limits) -> Report {
    let mut report =
        Report { outcome: Outcome::Unknown, lost: Vec::new(), prepared: Vec::new(), undelivered: Vec::new(), notices: Vec::new() };
    active.failpoints().reach("before_prepare").await;
    let answers = prepare_all(&mut writers, active, limits).await;
    active.failpoints().reach("after_prepare").await;
    report.note(&writers, &answers);
    let states: Vec<Preparation> = answers.iter().enumerate().map(|(index, answer)| state_of(index, answer, active)).collect();
    let prepared = |state: &Preparation| matches!(state, Preparation::Ready | Preparation::Unreplicated);
    report.prepared =
        writers.iter().zip(&states).skip(1).filter(|(_, state)| prepared(state)).map(|(writer, _)| writer.shard).collect();
    if let Some(failed) = states.iter().position(|state| *state != Preparation::Ready) {
        report.outcome = refusal(&writers, &answers, failed);
        roll_back_decider(&mut writers, &mut report, limits).await;
        finish_all(&mut writers, active, fallback, false, limits, &mut report).await;
        return report;
    }
    fallback.shield();
    let is_committed = match decide(&mut writers, active, fallback, limits, &mut report).await {
        Some(is_committed) => is_committed,
        None => return report,
    };
    active.failpoints().reach("after_decision").await;
    finish_all(&mut writers, active, fallback, is_committed, limits, &mut report).await;
    active.failpoints().reach("before_answer").await;
    report
}

/// The decider's packet is written first. Its answer comes first too.
async fn prepare_all(writers: &mut [Writer<'_>], active: &Active, limits: Limits) -> Vec<Answer> {
    // Past its own patience the decider's server gives up, so that the row cannot come after others have given up.
    let idle_max_ms = limits.patience.as_millis() + DECIDER_GRACE_MS;
    let asked = writers.iter_mut().enumerate().map(|(index, writer)| async move {
        let text = planted(
            active,
            match index {
                0 => rules::ready_decider(idle_max_ms),
                _ => rules::prepare(&active.id, &active.secret, index),
            },
        );
        if index == 1 && active.failpoints().has_planted("lost_transaction") {
            ask_one(writer.connection, "ROLLBACK".to_owned(), limits.patience).await;
        }
        active.failpoints().reach_at("before_prepare", index).await;
        let answer = ask_one(writer.connection, text, limits.patience).await;
        active.failpoints().reach_at("after_prepare", index).await;
        answer
    });
    join_all(asked).await
}

/// The mistakes that tests plant into what the shards are told.
fn planted(active: &Active, text: String) -> String {
    let failpoints = active.failpoints();
    if failpoints.has_planted("gid_without_participant") {
        return text.replace(&active.id.gid(2), &active.id.gid(1));
    }
    if failpoints.has_planted("role_not_taken") {
        return text.replace("SET LOCAL ROLE shardgate_2pc;", "");
    }
    if failpoints.has_planted("commit_not_secured") {
        return text.replace("THEN 'on'", "THEN 'off'");
    }
    text
}

fn state_of(index: usize, answer: &Answer, active: &Active) -> Preparation {
    if active.failpoints().has_planted("decided_before_all_are_prepared") {
        return Preparation::Ready;
    }
    if active.failpoints().has_planted("tags_ignored") && answer.error.is_none() {
        return Preparation::Ready;
    }
    if index == 0 { rules::decider_preparation(answer) } else { rules::preparation(answer) }
}

/// Why the first phase has failed, in the words of the shard that did.
fn refusal(writers: &[Writer<'_>], answers: &[Answer], failed: usize) -> Outcome {
    // Of several failures an error tells more than a lost connection.
    let told = answers.iter().position(|answer| answer.error.is_some()).unwrap_or(failed);
    let name = writers.get(told).map_or("", |writer| &writer.name);
    let Some(answer) = answers.get(told) else { return Outcome::Unknown };
    if let Some(explained) = rules::explained(answer, name) {
        return Outcome::Aborted(explained);
    }
    match &answer.error {
        Some(body) => Outcome::RefusedBy(name.to_owned(), body.clone()),
        None if answer.is_lost() => {
            Outcome::Aborted(rolled_back(format!("Shard \"{name}\" was lost, or late, before the decision.")))
        }
        None => Outcome::Aborted(rolled_back(format!("Shard \"{name}\" could not promise to commit."))),
    }
}

fn rolled_back(detail: String) -> PgError {
    PgError::new(SqlState::SERIALIZATION_FAILURE, "the transaction was rolled back on all shards at its commit")
        .with_detail(detail)
        .with_hint("Retry the transaction.")
}

/// Before anything else is undone: then nobody can decide any more.
async fn roll_back_decider(writers: &mut [Writer<'_>], report: &mut Report, limits: Limits) {
    let Some(decider) = writers.first_mut() else { return };
    if report.lost.contains(&decider.shard) || decider.connection.status == b'I' {
        return;
    }
    let answer = ask_one(decider.connection, "ROLLBACK".to_owned(), limits.patience).await;
    if answer.is_lost() {
        report.lost.push(decider.shard);
    }
}

/// `None`: the outcome is not known.
async fn decide(
    writers: &mut [Writer<'_>],
    active: &Active,
    fallback: &impl Fallback,
    limits: Limits,
    report: &mut Report,
) -> Option<bool> {
    let decider = writers.first_mut()?;
    active.failpoints().reach("before_decision").await;
    let answer = ask_one(decider.connection, rules::decide(&active.id, &active.secret), limits.patience).await;
    report.notices.extend_from_slice(&answer.notices);
    if answer.is_lost() {
        report.lost.push(decider.shard);
    }
    match rules::decision(&answer) {
        Decision::Committed => {
            report.outcome = Outcome::Committed;
            Some(true)
        }
        Decision::Aborted => {
            report.outcome = match &answer.error {
                Some(body) if !is_decided_by_recovery(&answer) => Outcome::RefusedBy(decider.name.clone(), body.clone()),
                Some(_) | None => Outcome::Aborted(rolled_back("It took so long that it was given up by recovery.".to_owned())),
            };
            let name = decider.name.clone();
            roll_back_decider(writers, report, limits).await;
            tracing::debug!(gid = %active.id, shard = name, "commit over several shards was refused at the decision");
            Some(false)
        }
        Decision::Unknown => {
            let name = decider.name.clone();
            tracing::warn!(gid = %active.id, shard = name, "outcome of a commit over several shards is not known yet");
            let resolved = fallback.resolve(active, Instant::now() + limits.patience).await;
            report.outcome = match resolved {
                Some(true) => Outcome::Committed,
                Some(false) => Outcome::Aborted(rolled_back(format!("Shard \"{name}\" was lost before it had committed."))),
                None => Outcome::Unknown,
            };
            resolved
        }
    }
}

/// Recovery has written the decision row first.
fn is_decided_by_recovery(answer: &Answer) -> bool {
    answer.sqlstate() == Some(*b"23505") && answer.message().contains("decisions_pkey")
}

/// COMMIT PREPARED or ROLLBACK PREPARED on every participant that may be prepared.
async fn finish_all(
    writers: &mut [Writer<'_>],
    active: &Active,
    fallback: &impl Fallback,
    is_committed: bool,
    limits: Limits,
    report: &mut Report,
) {
    let deadline = Instant::now() + limits.patience;
    let (lost, prepared) = (&report.lost, &report.prepared);
    let finishing = writers.iter_mut().enumerate().skip(1).map(|(index, writer)| {
        let (is_lost, is_prepared) = (lost.contains(&writer.shard), prepared.contains(&writer.shard));
        async move {
            // Prepared or not, nobody knows: recovery will look.
            if !is_prepared {
                return (Finished::Done, false);
            }
            active.failpoints().reach_at("before_finish", index).await;
            let finished = match is_lost {
                true => (fallback.finish(writer.shard, active, index, is_committed, deadline).await, false),
                false => finish_one(writer, active, fallback, index, is_committed, deadline).await,
            };
            active.failpoints().reach_at("after_finish", index).await;
            finished
        }
    });
    let finished = join_all(finishing).await;
    for (writer, (finished, is_lost)) in writers.iter().skip(1).zip(finished) {
        if is_lost {
            report.lost.push(writer.shard);
        }
        match finished {
            Finished::Done => {}
            Finished::NotYet => report.undelivered.push((writer.shard, writer.name.clone())),
            Finished::PartLost if is_committed => {
                report_lost_part(&active.id, &writer.name);
                report.outcome = Outcome::Aborted(part_lost(&writer.name, active));
            }
            Finished::PartLost => {}
        }
    }
}

/// The flag: the connection was lost.
async fn finish_one(
    writer: &mut Writer<'_>,
    active: &Active,
    fallback: &impl Fallback,
    index: usize,
    is_committed: bool,
    deadline: Instant,
) -> (Finished, bool) {
    let texts = rules::finish(&active.id.gid(index), is_committed, writer.role.as_deref());
    loop {
        let patience = deadline.saturating_duration_since(Instant::now()).max(PATIENCE_MIN);
        let answers = ask(writer.connection, &texts, patience).await;
        let is_lost = !rules::is_usable(&answers);
        match rules::finished(&answers, is_committed) {
            Finish::Done => return (Finished::Done, is_lost),
            // Somebody else was quicker, or it was lost with its shard: the other connection can tell.
            Finish::Gone | Finish::Lost => {
                return (fallback.finish(writer.shard, active, index, is_committed, deadline).await, is_lost);
            }
            Finish::Busy if is_lost || Instant::now() >= deadline => return (Finished::NotYet, is_lost),
            Finish::Busy => tokio::time::sleep(BUSY_PAUSE).await,
        }
    }
}

/// Somebody must look.
pub fn report_lost_part(id: &TransactionId, shard: &str) {
    tracing::error!(gid = %id, shard, "a shard has lost its part of a committed transaction");
}

fn part_lost(shard: &str, active: &Active) -> PgError {
    PgError::new(
        SqlState::TRANSACTION_RESOLUTION_UNKNOWN,
        format!("shard \"{shard}\" has lost its part of a committed transaction"),
    )
    .with_detail(format!("The transaction is \"{}\"; it is committed on the other shards.", active.id))
    .with_hint("The shard was restored, or failed over to a standby that was not synchronous. Repair its rows by hand.")
}

impl Report {
    fn note(&mut self, writers: &[Writer<'_>], answers: &[Answer]) {
        for (writer, answer) in writers.iter().zip(answers) {
            self.notices.extend_from_slice(&answer.notices);
            if answer.is_lost() {
                self.lost.push(writer.shard);
            }
        }
    }
}

/// What the decider's server gives its proxy beyond the first phase.
const DECIDER_GRACE_MS: u128 = 1_000;
/// Even at the deadline a shard gets this long to answer.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
/// Another backend holds the prepared transaction for as long as it takes to finish it.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
