//! The time of the transaction in a statement for one shard, where the transaction began on another one.
//!
//! ```text
//!   BEGIN ─► shard a: its own clock is the transaction's ─► shard b: a statement that reads the clock
//!                                                             ├─ what is a's now()? asked once
//!                                                             └─ the statement's text, with that in place of its clocks
//! ```
//! A transaction on one shard asks nobody, and neither does a statement without a clock. In the extended protocol the time is one more
//! parameter, so that a prepared statement stays one text.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::PgError;
use crate::routing::Reach;
use crate::session::gateway::MAP_DATABASE;
use crate::session::protocol::statement::Statement;
use crate::session::route::Route;
use crate::session::sequences::numbers::{with_more_parameters, with_position};
use crate::session::{Failure, Session, SessionEnd};
use crate::shard_key::oid;
use crate::shardmap::ShardId;
use crate::sql::analysis::{Analysis, Command, Effect, Scope, Splice};
use crate::sql::rewrite::blanks::behind_blanks;
use crate::sql::rewrite::clock::mentions_clock;
use crate::sql::rewrite::transaction_time::with_time;
use crate::wire;

/// A text that runs in place of the client's.
#[derive(Debug)]
pub(in crate::session) struct Timed {
    own: String,
    changed: String,
    /// What was put where, in the order of the text; none: it is found by comparing the two.
    splices: Vec<Splice>,
}

impl Timed {
    /// Of a text in which this was put in place of that. `before`: blanks that stand before both.
    pub fn by_splices(own: &str, before: usize, splices: &[Splice]) -> Self {
        let behind = |splice: &Splice| Splice { start: splice.start + before, end: splice.end + before, ..splice.clone() };
        let splices = splices.iter().map(behind).collect();
        Self { own: behind_blanks(before, own), changed: String::new(), splices }
    }

    fn position_by_splices(&self, position: usize) -> usize {
        let characters = |start: usize, end: usize| self.own.get(start..end).map_or(0, |text| text.chars().count());
        let (mut byte, mut own, mut changed) = (0, 0, 0);
        for splice in &self.splices {
            let kept = characters(byte, splice.start);
            if position <= changed + kept {
                break;
            }
            own += kept;
            changed += kept + splice.text.chars().count();
            if position <= changed {
                return own + 1;
            }
            own += characters(splice.start, splice.end);
            byte = splice.end;
        }
        (own + position).saturating_sub(changed)
    }

    /// Where a character of the changed text is in the client's; both count from 1. What was replaced is where the first of it was.
    fn own_position(&self, position: usize) -> usize {
        if !self.splices.is_empty() {
            return self.position_by_splices(position);
        }
        let same = |(one, other): &(char, char)| one == other;
        let before = self.own.chars().zip(self.changed.chars()).take_while(same).count();
        let after = self.own.chars().rev().zip(self.changed.chars().rev()).take_while(same).count();
        let (own, changed) = (self.own.chars().count(), self.changed.chars().count());
        let after = after.min(own.saturating_sub(before));
        match position {
            _ if position <= before => position,
            _ if position > changed.saturating_sub(after) => (own + position).saturating_sub(changed),
            _ => before + 1,
        }
    }
}

impl Session {
    /// Whose clock is the transaction's.
    pub(in crate::session) fn clock_shard(&self) -> Result<Option<ShardId>, PgError> {
        if self.has_common_snapshot() {
            return Ok(Some(self.home()?.id));
        }
        let is_begun = |shard: &ShardId| self.shards_begun().any(|begun| begun == *shard);
        if let Some(shard) = self.transaction.clock_shard.filter(is_begun) {
            return Ok(Some(shard));
        }
        let begun = self.transaction.participants.iter().find(|participant| participant.has_begun && !participant.is_spare);
        Ok(begun.map(|participant| participant.shard).filter(|shard| *shard != MAP_DATABASE))
    }

    /// The first statement of a transaction says whose clock is the transaction's. One whose clocks cannot be replaced is refused
    /// elsewhere.
    pub(in crate::session) fn settle_clock(&mut self, statement: &Analysis, text: &str, route: &Route) -> Result<(), PgError> {
        let Some(shard) = route.shard().filter(|shard| *shard != MAP_DATABASE) else { return Ok(()) };
        if self.reads_other_clock(statement, Some(shard))? {
            return with_time(statement.alone(text), &self.context, PARAMETER).map(drop);
        }
        if !matches!(statement.command, Command::Show(_)) {
            self.transaction.clock_shard.get_or_insert(shard);
        }
        Ok(())
    }

    /// A pipeline is one transaction, and has one time: here from the first statement that reads the clock elsewhere than where the
    /// pipeline began.
    pub(in crate::session) fn begin_for_clock(&mut self, statement: &Analysis, text: &str, route: &Route) {
        let first =
            self.transaction.participants.iter().find(|participant| participant.needs_sync).map(|participant| participant.shard);
        let is_elsewhere = first.is_some_and(|first| first != MAP_DATABASE && route.shard() != Some(first));
        if self.transaction.is_open() || !self.batch.is_open || !is_elsewhere || !has_clock_of_transaction(statement) {
            return;
        }
        let text = statement.alone(text);
        let may_read = statement.effect == Effect::Write || mentions_clock(text);
        if may_read && !matches!(with_time(text, &self.context, PARAMETER), Ok(None)) {
            self.begin_for_pipeline();
        }
    }

    /// Would the shard read its own clock, which is not the transaction's?
    #[inline]
    pub(in crate::session) fn reads_other_clock(&self, statement: &Analysis, shard: Option<ShardId>) -> Result<bool, PgError> {
        let Some(shard) = shard.filter(|_| self.transaction.is_open()) else { return Ok(false) };
        let is_read =
            shard != MAP_DATABASE && has_clock_of_transaction(statement) && self.clock_shard()?.is_some_and(|first| first != shard);
        Ok(is_read && self.hinted(statement)?.is_none())
    }

    async fn time_of_transaction(&mut self) -> Result<String, Failure> {
        match &self.transaction.instant {
            Some(known) => Ok(known.clone()),
            None => Ok(Box::pin(self.instant(&[])).await?.transaction),
        }
    }

    /// What runs in place of a text; `None`: it runs as it is.
    pub(in crate::session) async fn text_with_time(
        &mut self,
        reach: &Reach,
        statement: &Analysis,
        text: &str,
    ) -> Result<Option<String>, Failure> {
        self.transaction.timed = None;
        let changed = self.made_text_with_time(reach, statement, text).await?;
        self.transaction.timed =
            changed.as_ref().map(|changed| Timed { own: text.to_owned(), changed: changed.clone(), splices: Vec::new() });
        Ok(changed)
    }

    /// The same of a text that is not the client's, in which a place means nothing to it.
    pub(in crate::session) async fn made_text_with_time(
        &mut self,
        reach: &Reach,
        statement: &Analysis,
        text: &str,
    ) -> Result<Option<String>, Failure> {
        if !self.reads_other_clock(statement, reach.single())? || with_time(text, &self.context, PARAMETER)?.is_none() {
            return Ok(None);
        }
        // Digits, dashes, colons: nothing to quote.
        let time = format!("'{}'::pg_catalog.timestamptz", self.time_of_transaction().await?);
        Ok(with_time(text, &self.context, &time)?)
    }

    /// An error's message with its place in the client's own text.
    pub(in crate::session) fn with_untimed_position(&self, frame: Bytes) -> Bytes {
        match &self.transaction.timed {
            Some(timed) => with_position(frame, |position| timed.own_position(position)),
            None => frame,
        }
    }

    /// What is prepared in place of a statement, and the value of its last parameter, the time; `None`: it runs as it is.
    /// `parameter_count`: of the statement's own.
    pub(in crate::session) async fn statement_with_time(
        &mut self,
        reach: &Reach,
        statement: &Arc<Statement>,
        parameter_count: usize,
    ) -> Result<Option<(Arc<Statement>, String)>, Failure> {
        let Some(analysis) = statement.analysis() else { return Ok(None) };
        if !self.reads_other_clock(analysis, reach.single())? {
            return Ok(None);
        }
        let time = format!("${}::pg_catalog.timestamptz", parameter_count + 1);
        let Some(text) = with_time(statement.text(), &self.context, &time)? else { return Ok(None) };
        // What PostgreSQL has to say against the statement is about the client's own text.
        self.answer_parse().await?;
        self.describe(statement).await?;
        if let Some(index) = self.current_index() {
            self.drain_with_flush(index).await?;
        }
        let time = self.time_of_transaction().await?;
        self.batch.current = None;
        let mut types = statement.key.types.to_vec();
        if !types.is_empty() {
            types.resize(parameter_count, 0);
            types.push(oid::TIMESTAMPTZ);
        }
        Ok(Some((Arc::new(self.made_of(statement, Bytes::from(text), types.into())), time)))
    }

    /// A bound statement, with the time if it reads the clock. A parameter that is read as a time is one of another clock.
    pub(in crate::session) async fn bind_with_time(
        &mut self,
        reach: &Reach,
        statement: Arc<Statement>,
        bind: &wire::Bind<'_>,
        portal: Bytes,
    ) -> Result<(), Failure> {
        if bind.parameter_count > 0 {
            self.answer_parse().await?;
            let description = self.describe(&statement).await?;
            self.check_parameters(bind, &description.parameter_types)?;
        }
        match self.statement_with_time(reach, &statement, bind.parameter_count).await? {
            Some((changed, time)) => {
                let body = with_more_parameters(bind, &[time])?;
                let bind = wire::bind(&body).map_err(SessionEnd::from)?;
                self.bind_on_shard(reach, changed, &bind, portal).await
            }
            None => self.bind_on_shard(reach, statement, bind, portal).await,
        }
    }
}

/// What a server says of itself it says by its own.
fn has_clock_of_transaction(statement: &Analysis) -> bool {
    !matches!(statement.scope, Scope::System | Scope::Map | Scope::Proxy(_))
}

/// For a look at what would be replaced.
const PARAMETER: &str = "NULL::pg_catalog.timestamptz";

#[cfg(test)]
mod tests {
    use super::{Splice, Timed};

    #[test]
    fn a_place_is_told_in_the_clients_text() {
        let (own, changed) = ("SELECT now(), x FROM t".to_owned(), "SELECT (SELECT $1 AS now), x FROM t".to_owned());
        let timed = Timed { own, changed, splices: Vec::new() };
        let of = |word: &str| timed.own_position(timed.changed.find(word).expect("there") + 1);
        assert_eq!(of("SELECT"), 1);
        assert_eq!(of("x FROM"), timed.own.find("x FROM").expect("there") + 1);
        assert_eq!(of("$1"), 8);
    }
    #[test]
    fn between_two_clocks_too() {
        let (text, value) = ("ADD é DEFAULT now(), ADD x DEFAULT now() y", "('2026-01-01'::timestamptz)");
        let places = [text.find("now").expect("there"), text.rfind("now").expect("there")];
        let splices = places.map(|start| Splice { start, end: start + "now()".len(), text: value.to_owned() });
        let timed = Timed::by_splices(text, 3, &splices);
        let (own, changed) = (format!("   {text}"), format!("   {}", text.replace("now()", value)));
        let of = |word: &str| timed.own_position(changed.find(word).map_or(0, |at| changed[..at].chars().count() + 1));
        let wanted = |word: &str| own.find(word).map_or(0, |at| own[..at].chars().count() + 1);
        for word in ["ADD", "é", "x", "y", "DEFAULT"] {
            assert_eq!(of(word), wanted(word), "{word}");
        }
        assert_eq!(of("2026"), wanted("now"));
    }
}
