//! Turns bound keys into shards.
//!
//! [`bind`] puts an execution's parameters and literals into what the analysis says of the key (pure); [`resolve`] finds the
//! shards, and [`Reach`] is the answer as it travels: shards, version of the map, and why. It waits for the shard map only for lookup keys that
//! are not cached; that a partition is held at the cut-over of a move it tells, and the session waits. [`SingleKey`] is its short way for the commonest statements: one key of one column, no
//! wait, no allocation. [`place_stored`] places rows that stream by, one by one. Nothing here picks a default: what is not proven is every shard of the group, and a key without a
//! shard is an error.

mod bind;
mod boxes;
mod claims;
mod inputs;
mod owners;
mod reach;
mod resolve;
mod shard_set;
mod single_key;
mod source;
mod stored_key;
#[cfg(test)]
mod testing;

pub use bind::{BoundCondition, KEYS_MAX, KeyRange, bind, unproven_key};
pub use claims::Claims;
pub use inputs::{Inputs, Parameter};
pub use owners::{has_moved, has_other_owner, is_held};
pub use reach::{Named, OneOwner, Pinned, PlacedRows, Proof, Reach, Unsharded, Why, unsharded};
pub use resolve::{
    Resolution, Resolved, Target, held_too_long, is_of_move, partition_has_moved, resolve, sharding_has_changed, was_shut_out,
};
pub use shard_set::{ShardSet, Touched};
pub use single_key::{Place, SingleKey};
pub use source::MapSource;
pub use stored_key::{StoredColumn, StoredPlace, place_stored};

use crate::sql::analysis::{Analysis, KeyCondition, KeyValue, Part, Scope, Test};

/// Does the route depend on a parameter's value? Then the types of the parameters must be those that PostgreSQL inferred.
pub fn uses_parameters(analysis: &Analysis) -> bool {
    match &analysis.scope {
        Scope::Placed { parts, .. } => parts.iter().any(|part| match part {
            Part::Home => false,
            Part::Sharded { condition, .. } => has_parameter(condition),
        }),
        Scope::Session
        | Scope::Map
        | Scope::Proxy(_)
        | Scope::Tableless
        | Scope::System
        | Scope::Replicated
        | Scope::EveryShard
        | Scope::Refused(_) => false,
    }
}

fn has_parameter(condition: &KeyCondition) -> bool {
    let is_parameter = |value: &KeyValue| matches!(value, KeyValue::Parameter { .. });
    match condition {
        KeyCondition::All | KeyCondition::Nothing => false,
        KeyCondition::And(conditions) | KeyCondition::Or(conditions) => conditions.iter().any(has_parameter),
        KeyCondition::Test(test) => match &test.test {
            Test::Equals(value) | Test::AnyOf(value) | Test::Compare(_, value) => is_parameter(value),
            Test::In(values) => values.iter().any(is_parameter),
            Test::Stored(stored) => is_parameter(&stored.value),
        },
    }
}
