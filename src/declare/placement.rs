//! On which shards the partitions of a new table begin.

use crate::error::{PgError, SqlState};
use crate::shardmap::{MapSnapshot, Shard};

use super::names::nearest;

/// `all`, or names between commas. Only shards that take new partitions.
pub(super) fn parse_shards<'a>(snapshot: &'a MapSnapshot, text: &str) -> Result<Vec<&'a Shard>, PgError> {
    if text.trim() == "all" && snapshot.shard_by_name("all").is_none() {
        return Ok(snapshot.shards.iter().map(AsRef::as_ref).filter(|shard| shard.state.takes_new_partitions()).collect());
    }
    let mut chosen: Vec<&Shard> = Vec::new();
    for name in text.split(',').map(str::trim) {
        let shard = snapshot.shard_by_name(name).ok_or_else(|| unknown_shard(snapshot, name))?;
        if !shard.state.takes_new_partitions() {
            return Err(no_new_partitions(shard));
        }
        if !chosen.iter().any(|other| other.id == shard.id) {
            chosen.push(shard);
        }
    }
    Ok(chosen)
}

/// Which shard has which of so many pieces, where as many names are given, and the same name as often as it is meant. `None`: another
/// number of names is given.
pub(super) fn parse_pieces(snapshot: &MapSnapshot, text: &str, pieces: usize) -> Result<Option<Vec<String>>, PgError> {
    let names: Vec<&str> = text.split(',').map(str::trim).collect();
    if pieces < 2 || names.len() != pieces {
        return Ok(None);
    }
    // Each of them has to take new partitions.
    parse_shards(snapshot, text)?;
    Ok(Some(names.into_iter().map(str::to_owned).collect()))
}

pub(super) fn no_shard_takes_partitions() -> PgError {
    PgError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "no shard takes new partitions")
        .with_hint("SELECT name, state FROM shardgate.shards shows why; shardgate.alter_shard(name, state => 'online') changes it.")
}

/// As the map says it.
fn no_new_partitions(shard: &Shard) -> PgError {
    let name = &shard.name;
    if !shard.state.is_ready() {
        return PgError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, format!("shard \"{name}\" is not online"))
            .with_hint("Call shardgate.add_shard() again to finish its preparation.");
    }
    PgError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, format!("shard \"{name}\" takes no new partitions"))
        .with_detail(format!("Its state is \"{}\".", shard.state.name()))
        .with_hint(format!("Choose another shard, or first SELECT shardgate.alter_shard('{name}', state => 'online')."))
}

fn unknown_shard(snapshot: &MapSnapshot, name: &str) -> PgError {
    let error = PgError::new(SqlState::UNDEFINED_OBJECT, format!("shard \"{name}\" does not exist"));
    match nearest(name, snapshot.shards.iter(), |shard| &shard.name) {
        Some(meant) => error.with_hint(format!("Perhaps you meant \"{}\".", meant.name)),
        None => error.with_hint("SELECT name FROM shardgate.shards lists the shards."),
    }
}

/// So many partitions by hash, at least, that the largest of up to so many equal shards has at most a tenth more than the mean: with ten
/// or more for each shard one more is no more than that. A multiple, so that all have the same in the end.
pub(super) fn even_partitions(partitions: u32, shards: u32) -> u32 {
    partitions.max(shards * PARTITIONS_PER_PLANNED_SHARD).next_multiple_of(shards)
}

pub(super) const PARTITIONS_PER_PLANNED_SHARD: u32 = 10;

/// Which shard's turn it is, `count` times: in proportion to their capacities, as evenly mixed as that allows.
pub(super) fn turns(shards: &[&Shard], count: usize) -> Vec<String> {
    let total: f64 = shards.iter().map(|shard| shard.capacity).sum();
    let mut credits: Vec<f64> = vec![0.0; shards.len()];
    let mut turns = Vec::with_capacity(count);
    for _ in 0..count {
        // Smooth weighted round robin: everybody earns its capacity, the richest goes and pays for all.
        for (credit, shard) in credits.iter_mut().zip(shards) {
            *credit += shard.capacity;
        }
        let mut richest = 0;
        for (index, credit) in credits.iter().enumerate() {
            if credits.get(richest).is_some_and(|most| credit > most) {
                richest = index;
            }
        }
        if let (Some(credit), Some(shard)) = (credits.get_mut(richest), shards.get(richest)) {
            *credit -= total;
            turns.push(shard.name.clone());
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::shardmap::{ShardId, ShardState};

    fn snapshot(shards: &[(&str, f64, ShardState)]) -> MapSnapshot {
        let shards = shards.iter().enumerate().map(|(index, (name, capacity, state))| {
            Arc::new(Shard {
                id: ShardId(i32::try_from(index).unwrap()),
                name: (*name).to_owned(),
                url: String::new(),
                region: None,
                capacity: *capacity,
                state: *state,
                is_home: index == 0,
                owes: false,
                identity: None,
                primary: Arc::default(),
            })
        });
        MapSnapshot { shards: shards.collect(), ..Default::default() }
    }

    #[test]
    fn each_piece_has_its_shard_where_as_many_are_named() {
        let snapshot =
            snapshot(&[("a", 1.0, ShardState::Online), ("b", 9.0, ShardState::Online), ("c", 1.0, ShardState::Draining)]);
        let pieces = |text, count| parse_pieces(&snapshot, text, count).map(|pieces| pieces.map(|names| names.join(" ")));
        assert_eq!(pieces("b, a,a", 3).unwrap().as_deref(), Some("b a a"));
        assert_eq!(pieces("b, a", 3).unwrap(), None);
        assert_eq!(pieces("all", 1).unwrap(), None);
        assert!(pieces("a,c", 2).is_err() && pieces("a,x", 2).is_err());
    }

    #[test]
    fn partitions_stay_even_up_to_the_shards_that_are_planned() {
        for planned in 1..=100_u32 {
            let partitions = even_partitions(64, planned);
            assert!(partitions >= 64 && partitions.is_multiple_of(planned));
            for shards in 1..=planned {
                let largest = f64::from(partitions.div_ceil(shards));
                assert!(largest <= 1.1 * f64::from(partitions) / f64::from(shards), "{partitions} on {shards}");
            }
        }
        assert_eq!((even_partitions(64, 4), even_partitions(64, 12)), (64, 120));
    }

    #[test]
    fn equal_shards_take_turns() {
        let snapshot = snapshot(&[("a", 1.0, ShardState::Online), ("b", 1.0, ShardState::Online)]);
        let shards = parse_shards(&snapshot, "all").unwrap();
        assert_eq!(turns(&shards, 4), ["a", "b", "a", "b"]);
        assert_eq!(turns(&[], 4), Vec::<String>::new());
    }

    #[test]
    fn a_larger_shard_has_more_turns_evenly_mixed() {
        let snapshot = snapshot(&[("a", 3.0, ShardState::Online), ("b", 1.0, ShardState::Online)]);
        let shards = parse_shards(&snapshot, "b, a, b").unwrap();
        assert_eq!(turns(&shards, 8).iter().filter(|name| *name == "a").count(), 6);
        assert!(!turns(&shards, 8).windows(4).any(|four| four.iter().all(|name| name == "a")));
    }

    #[test]
    fn unknown_and_unprepared_shards_are_refused() {
        let snapshot = snapshot(&[("shard0", 1.0, ShardState::Online), ("shard1", 1.0, ShardState::Preparing)]);
        assert_eq!(parse_shards(&snapshot, "all").unwrap().len(), 1);
        assert!(parse_shards(&snapshot, "shard1").is_err());
        let error = parse_shards(&snapshot, "shard0,shrd1").unwrap_err();
        assert_eq!(error.hint.as_deref(), Some("Perhaps you meant \"shard1\"."));
        assert!(parse_shards(&snapshot, "").is_err());
    }
}
