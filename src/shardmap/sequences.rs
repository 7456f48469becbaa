//! Sequences of the whole cluster: declared, drawn from in blocks, set, confirmed after a fail-over of the map.
//!
//! As in [`super::changes`], one method for each stored function. Drawing a block changes nothing that routes and takes no epoch;
//! a block that was drawn and then lost, with its proxy, is a gap.

use sqlx::Row;

use super::changes::read;
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
    /// At least 1.
    pub count: i64,
    /// Void when the sequence has another one by now.
    pub generation: i64,
}

impl Store {
    /// Declared again, the counter does not go back.
    pub async fn declare_sequence(&self, actor: &str, sequence: &NewSequence<'_>) -> Result<(), StoreError> {
        let query = sqlx::query("SELECT shardgate_map.declare_sequence($1, $2, $3, $4, $5, $6, $7::text::numeric)")
            .bind(actor)
            .bind(sequence.schema)
            .bind(sequence.name)
            .bind(sequence.increment)
            .bind(sequence.minimum)
            .bind(sequence.maximum)
            .bind(sequence.next_number.to_string());
        self.change(query).await.map(drop)
    }

    /// `None`: the map has failed over since the counter was last known to be right ([`Store::confirm_sequence`]).
    pub async fn reserve_numbers(&self, schema: &str, name: &str, wanted: i64) -> Result<Option<NumberBlock>, StoreError> {
        // One row in any case.
        let query = sqlx::query(
            "SELECT r.first_number, r.how_many, r.generation FROM (VALUES (1)) one(row)
             LEFT JOIN shardgate_map.reserve_numbers($1, $2, $3) r ON true",
        )
        .bind(schema)
        .bind(name)
        .bind(wanted);
        let row = self.change(query).await?;
        let first: Option<i64> = row.try_get(0).map_err(StoreError::reading)?;
        let Some(first) = first else { return Ok(None) };
        Ok(Some(NumberBlock { first, count: read(&row, 1)?, generation: read(&row, 2)? }))
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

    /// After a fail-over of the map. `used_up_to`: what the shards hold, and what may be on its way to them.
    pub async fn confirm_sequence(&self, actor: &str, schema: &str, name: &str, used_up_to: i128) -> Result<(), StoreError> {
        let query = sqlx::query("SELECT shardgate_map.confirm_sequence($1, $2, $3, $4::text::numeric)")
            .bind(actor)
            .bind(schema)
            .bind(name)
            .bind(used_up_to.to_string());
        self.change(query).await.map(drop)
    }

    /// `false`: it was not declared.
    pub async fn drop_sequence(&self, actor: &str, schema: &str, name: &str) -> Result<bool, StoreError> {
        let query = sqlx::query("SELECT shardgate_map.drop_sequence($1, $2, $3)").bind(actor).bind(schema).bind(name);
        read(&self.change(query).await?, 0)
    }
}
