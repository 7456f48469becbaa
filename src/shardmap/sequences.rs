//! Sequences of the whole cluster: declared, drawn from in blocks, set, restarted, altered, confirmed after a fail-over of the map.
//!
//! As in [`super::changes`], one method for each stored function. Drawing a block changes nothing that routes and takes no epoch;
//! a block that was drawn and then lost, with its proxy, is a gap.

use std::ops::Range;

use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{Postgres, Row};

use super::changes::{SchemaChangeId, read};
use super::error::StoreError;
use super::store::Store;

/// A sequence that is to be one of the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSequence<'a> {
    pub schema: &'a str,
    pub name: &'a str,
    pub increment: i64,
    pub minimum: i64,
    pub maximum: i64,
    /// Nobody has had this number, nor one that comes after it. May lie beyond the last one.
    pub next_number: i128,
}

/// Numbers that are given to nobody else: `first`, `first + increment`, … `count` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberBlock {
    pub first: i64,
    /// At least 1, but for one of another generation than was wanted: 0.
    pub count: i64,
    /// Void when the sequence has another one by now.
    pub generation: i64,
    /// That the sequence had when they were given.
    pub increment: i64,
}

/// What a transaction with ALTER SEQUENCE leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceState {
    pub increment: i64,
    pub minimum: i64,
    pub maximum: i64,
    pub place: SequencePlace,
}

/// How far a sequence has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequencePlace {
    /// May lie beyond the last one.
    pub next: i128,
    /// What it was last set to; while that is the next number, it has not been called. `None`: its start.
    pub set_to: Option<i128>,
}

impl Store {
    /// Declared again, the counter does not go back.
    pub async fn declare_sequence(&self, actor: &str, sequence: &NewSequence<'_>) -> Result<(), StoreError> {
        let sql = "SELECT shardgate_map.declare_sequence($1, $2, $3, $4, $5, $6, $7::text::numeric)";
        self.change(declaration(sql, actor, sequence)).await.map(drop)
    }

    /// As [`Store::declare_sequence`], one that the caller's transaction has made on the shards, in this change of the schema. Returns
    /// its generation.
    pub async fn declare_new_sequence(
        &self,
        actor: &str,
        change: SchemaChangeId,
        sequence: &NewSequence<'_>,
    ) -> Result<i64, StoreError> {
        let sql = "SELECT shardgate_map.declare_new_sequence($1, $8, $2, $3, $4, $5, $6, $7::text::numeric)";
        read(&self.change(declaration(sql, actor, sequence).bind(change.0)).await?, 0)
    }

    /// One that the shards have and the map has not. Where it is has to be confirmed ([`Store::confirm_sequence`]).
    pub async fn declare_forgotten_sequence(&self, actor: &str, sequence: &NewSequence<'_>) -> Result<(), StoreError> {
        let sql = "SELECT shardgate_map.declare_forgotten_sequence($1, $2, $3, $4, $5, $6, $7::text::numeric)";
        self.change(declaration(sql, actor, sequence)).await.map(drop)
    }

    /// `None`: the map has failed over since the counter was last known to be right ([`Store::confirm_sequence`]).
    /// `known`: of this generation only.
    pub async fn reserve_numbers(
        &self,
        schema: &str,
        name: &str,
        wanted: i64,
        known: Option<i64>,
    ) -> Result<Option<NumberBlock>, StoreError> {
        // One row in any case.
        let query = sqlx::query(
            "SELECT r.first_number, r.how_many, r.generation, r.increment FROM (VALUES (1)) one(row)
             LEFT JOIN shardgate_map.reserve_numbers($1, $2, $3, $4) r ON true",
        )
        .bind(schema)
        .bind(name)
        .bind(wanted)
        .bind(known);
        let row = self.change(query).await?;
        let first: Option<i64> = row.try_get(0).map_err(StoreError::reading)?;
        let Some(first) = first else { return Ok(None) };
        Ok(Some(NumberBlock { first, count: read(&row, 1)?, generation: read(&row, 2)?, increment: read(&row, 3)? }))
    }

    /// What was given away before is void.
    pub async fn set_sequence(
        &self,
        actor: &str,
        schema: &str,
        name: &str,
        number: i64,
        is_called: bool,
    ) -> Result<(), StoreError> {
        let query = sqlx::query("SELECT shardgate_map.set_sequence($1, $2, $3, $4, $5)")
            .bind(actor)
            .bind(schema)
            .bind(name)
            .bind(number)
            .bind(is_called);
        self.change(query).await.map(drop)
    }

    /// Blocks that were given away are void, and those to come begin with what is returned: (number, how often it was set).
    /// `unused`: what the caller has left of its block. `None`: as with [`Store::reserve_numbers`].
    pub async fn begin_restart(
        &self,
        actor: &str,
        (schema, name): (&str, &str),
        start: i64,
        unused: Option<Range<i128>>,
    ) -> Result<Option<(i128, i64)>, StoreError> {
        // One row in any case.
        let query = sqlx::query(
            "SELECT r.next_number::text, r.settings FROM (VALUES (1)) one(row)
             LEFT JOIN shardgate_map.begin_restart($1, $2, $3, $4, $5::text::numeric, $6::text::numeric) r ON true",
        )
        .bind(actor)
        .bind(schema)
        .bind(name)
        .bind(start)
        .bind(unused.as_ref().map(|unused| unused.start.to_string()))
        .bind(unused.map(|unused| unused.end.to_string()));
        let row = self.change(query).await?;
        let next: Option<String> = row.try_get(0).map_err(StoreError::reading)?;
        let Some(next) = next.and_then(|next| next.parse().ok()) else { return Ok(None) };
        Ok(Some((next, read(&row, 1)?)))
    }

    /// Has it been set or restarted since [`Store::begin_restart`]?
    pub async fn is_set_since(&self, schema: &str, name: &str, settings: i64) -> Result<bool, StoreError> {
        let query = sqlx::query(
            "SELECT NOT EXISTS (SELECT FROM shardgate_map.sequence_counter k
                                WHERE k.schema_name = $1 AND k.sequence_name = $2 AND k.settings = $3)",
        )
        .bind(schema)
        .bind(name)
        .bind(settings);
        read(&self.change(query).await?, 0)
    }

    /// The next number is this one; those from `skip_from` to what was given by now are left out. `false`: it was set meanwhile.
    pub async fn finish_restart(
        &self,
        actor: &str,
        (schema, name): (&str, &str),
        next_number: i128,
        skip_from: i128,
        settings: i64,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query("SELECT shardgate_map.finish_restart($1, $2, $3, $4::text::numeric, $5::text::numeric, $6)")
            .bind(actor)
            .bind(schema)
            .bind(name)
            .bind(next_number.to_string())
            .bind(skip_from.to_string())
            .bind(settings);
        read(&self.change(query).await?, 0)
    }

    /// Nobody else is given numbers of the sequence as long as this change of the schema is open, and blocks that were given away
    /// are void. `unused`: what the caller has left of its block. `None`: as with [`Store::reserve_numbers`].
    pub async fn begin_alteration(
        &self,
        actor: &str,
        (schema, name): (&str, &str),
        change: SchemaChangeId,
        unused: Option<Range<i128>>,
    ) -> Result<Option<SequencePlace>, StoreError> {
        // One row in any case.
        let query = sqlx::query(
            "SELECT r.next_number::text, r.set_to::text FROM (VALUES (1)) one(row)
             LEFT JOIN shardgate_map.close_sequence($1, $2, $3, $4, $5::text::numeric, $6::text::numeric) r ON true",
        )
        .bind(actor)
        .bind(schema)
        .bind(name)
        .bind(change.0)
        .bind(unused.as_ref().map(|unused| unused.start.to_string()))
        .bind(unused.map(|unused| unused.end.to_string()));
        let row = self.change(query).await?;
        let number = |text: Option<String>| text.and_then(|text| text.parse::<i128>().ok());
        let place = |next| Ok(SequencePlace { next, set_to: number(read(&row, 1)?) });
        number(read(&row, 0)?).map(place).transpose()
    }

    /// It has been committed. `false`: the map has forgotten that the sequence was closed; its numbers have not gone back.
    pub async fn finish_alteration(
        &self,
        actor: &str,
        (schema, name): (&str, &str),
        change: SchemaChangeId,
        state: &SequenceState,
    ) -> Result<bool, StoreError> {
        let sql = "SELECT shardgate_map.finish_alteration($1, $2, $3, $4, $5, $6, $7, $8::text::numeric, $9::text::numeric)";
        let query = sqlx::query(sql)
            .bind(actor)
            .bind(schema)
            .bind(name)
            .bind(change.0)
            .bind(state.increment)
            .bind(state.minimum)
            .bind(state.maximum)
            .bind(state.place.next.to_string())
            .bind(state.place.set_to.map(|set_to| set_to.to_string()));
        read(&self.change(query).await?, 0)
    }

    /// It has not been committed.
    pub async fn reopen_sequence(&self, (schema, name): (&str, &str), change: SchemaChangeId) -> Result<(), StoreError> {
        let query = sqlx::query("SELECT shardgate_map.reopen_sequence($1, $2, $3)").bind(schema).bind(name).bind(change.0);
        self.change(query).await.map(drop)
    }

    /// As `last_value` and `is_called` of a sequence say it: no number that comes then has been given. `None`: the map has failed
    /// over since the counter was last known to be right.
    pub async fn next_number(&self, schema: &str, name: &str) -> Result<Option<(i64, bool)>, StoreError> {
        sqlx::query_as(
            "SELECT (CASE WHEN place.is_left THEN k.next_number ELSE k.next_number - d.increment END)::int8, NOT place.is_left
             FROM shardgate_map.sequence_counter k
             JOIN shardgate_map.declared_sequence d USING (schema_name, sequence_name)
             JOIN shardgate_map.cluster c ON c.incarnation = k.incarnation
             CROSS JOIN LATERAL (SELECT k.next_number BETWEEN d.minimum AND d.maximum AS is_left) place
             WHERE k.schema_name = $1 AND k.sequence_name = $2",
        )
        .bind(schema)
        .bind(name)
        .fetch_optional(&self.pool()?)
        .await
        .map_err(StoreError::reading)
    }

    /// Sequences that these changes of the schema have closed, each (schema, name).
    pub async fn closed_sequences(
        &self,
        changes: &[SchemaChangeId],
    ) -> Result<Vec<((String, String), SchemaChangeId)>, StoreError> {
        let ids: Vec<i64> = changes.iter().map(|change| change.0).collect();
        let rows: Vec<(String, String, i64)> = sqlx::query_as(
            "SELECT schema_name, sequence_name, closed_by FROM shardgate_map.sequence_counter WHERE closed_by = ANY ($1) ORDER BY 1, 2",
        )
        .bind(ids)
        .fetch_all(&self.pool()?)
        .await
        .map_err(StoreError::reading)?;
        Ok(rows.into_iter().map(|(schema, name, change)| ((schema, name), SchemaChangeId(change))).collect())
    }

    /// After a fail-over of the map. `used_up_to`: what the shards hold, if they hold any. `margin`: what may be on its way to them, in the
    /// sequence's direction.
    pub async fn confirm_sequence(
        &self,
        actor: &str,
        (schema, name): (&str, &str),
        used_up_to: Option<i128>,
        margin: i128,
    ) -> Result<(), StoreError> {
        let query = sqlx::query("SELECT shardgate_map.confirm_sequence($1, $2, $3, $4::text::numeric, $5::text::numeric)")
            .bind(actor)
            .bind(schema)
            .bind(name)
            .bind(used_up_to.map(|number| number.to_string()))
            .bind(margin.to_string());
        self.change(query).await.map(drop)
    }

    /// `false`: it was not declared, or it was set or made anew since this generation.
    pub async fn drop_sequence(&self, actor: &str, schema: &str, name: &str, generation: i64) -> Result<bool, StoreError> {
        let query =
            sqlx::query("SELECT shardgate_map.drop_sequence($1, $2, $3, $4)").bind(actor).bind(schema).bind(name).bind(generation);
        read(&self.change(query).await?, 0)
    }
}

fn declaration<'q>(sql: &'static str, actor: &'q str, sequence: &NewSequence<'q>) -> Query<'q, Postgres, PgArguments> {
    sqlx::query(sql)
        .bind(actor)
        .bind(sequence.schema)
        .bind(sequence.name)
        .bind(sequence.increment)
        .bind(sequence.minimum)
        .bind(sequence.maximum)
        .bind(sequence.next_number.to_string())
}
