//! Cutting partitions: at a place, into equal slices of the hash space, and around one key. Changes of the map only; no row moves.
//!
//! What is cut is told by group and place, not by a partition's number: a place where a partition begins already needs no cut, so
//! that a command that was interrupted can be given again.

use super::changes::read;
use super::encoding::unreadable;
use super::error::StoreError;
use super::model::{Bound, Group, GroupId, MapSnapshot, PartitionId, Strategy, Table, TableKind};
use super::moves::{MoveId, MoveOptions};
use super::store::Store;
use crate::error::{PgError, SqlState};
use crate::shard_key::{Key, KeyDatum, KeyType};

impl Bound {
    /// As a person writes it. Hash: a hash; range: a key.
    pub fn parse(group: &Group, text: &str) -> Result<Self, PgError> {
        match group.strategy {
            Strategy::Hash => text.trim().parse().map(Bound::Hash).map_err(|_| {
                PgError::new(SqlState::INVALID_TEXT_REPRESENTATION, "a hash partition is split at a hash, which is a bigint")
                    .with_hint("SELECT low, high FROM shardgate.partitions shows the hashes where partitions begin.")
            }),
            Strategy::Range => Self::parse_key(&group.key_types, text),
            Strategy::Lookup => Err(no_place_in_a_list()),
        }
    }

    /// Of a range partition.
    pub fn parse_key(key_types: &[KeyType], text: &str) -> Result<Self, PgError> {
        Ok(Bound::Key(Key::parse_text(key_types, text)?.ordered_bytes()))
    }
}

fn no_place_in_a_list() -> PgError {
    PgError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "a lookup partition cannot be split at a key")
        .with_detail("A lookup partition is a list of keys, not a range.")
        .with_hint("Give a key a partition of its own with \"shard-rebalance isolate\".")
}

/// Where a hash partition is cut into this many pieces of the same size.
pub fn equal_pieces(group: &Group, partition: PartitionId, count: u32) -> Result<Vec<Bound>, PgError> {
    match group.strategy {
        Strategy::Hash => {}
        Strategy::Range => {
            return Err(PgError::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("range partition {} cannot be cut into equal pieces", partition.0),
            )
            .with_detail("Only the hash space has a middle: where half of a range's rows lie is not known.")
            .with_hint("Say where: split --at KEY."));
        }
        Strategy::Lookup => return Err(no_place_in_a_list()),
    }
    let offset = |bound: Option<&Bound>, else_at: u128| {
        bound.and_then(Bound::hash).map_or(else_at, |hash| u128::from(hash.cast_unsigned() ^ SIGN))
    };
    let low = offset(group.partition(partition).and_then(|partition| partition.low.as_ref()), 0);
    let width = offset(group.high(partition), 1 << 64) - low;
    if width < u128::from(count) {
        return Err(PgError::new(SqlState::INVALID_PARAMETER_VALUE, format!("partition {} has only {width} hashes", partition.0)));
    }
    let place = |piece: u32| {
        // Below 2^64: the last piece begins before the partition's end.
        let offset = u64::try_from(low + width * u128::from(piece) / u128::from(count)).unwrap_or(u64::MAX);
        Bound::Hash((offset ^ SIGN).cast_signed())
    };
    Ok((1..count).map(place).collect())
}

/// Where partitions have to begin so that one has this key alone; among them may be places where one begins already.
pub fn bounds_around(group: &Group, key: &Key) -> Result<Vec<Bound>, PgError> {
    match group.strategy {
        Strategy::Hash => {
            let hash = key.hash();
            let below = (hash != i64::MIN).then_some(hash);
            Ok(below.into_iter().chain(hash.checked_add(1)).map(Bound::Hash).collect())
        }
        Strategy::Range => {
            let next = next_key(&group.key_types, key).map(|next| next.ordered_bytes());
            Ok([key.ordered_bytes()].into_iter().chain(next).map(Bound::Key).collect())
        }
        Strategy::Lookup => Err(PgError::internal("a lookup key lies in a list, not between bounds")),
    }
}

/// The least key that is greater. Where the last columns have the greatest value it names the columns before them only: the beginning
/// of all keys with these. `None`: there is none.
fn next_key(types: &[KeyType], key: &Key) -> Option<Key> {
    let columns = types.iter().zip(key.data()).enumerate().rev();
    let mut next = columns.filter_map(|(at, (key_type, datum))| Some((at, successor(*key_type, datum)?)));
    let (at, successor) = next.next()?;
    Some(Key::new(key.data().iter().take(at).cloned().chain([successor]).collect()))
}

/// `None`: the key is the greatest of its type.
fn successor(key_type: KeyType, datum: &KeyDatum) -> Option<KeyDatum> {
    let greatest = match key_type {
        KeyType::Int2 => i64::from(i16::MAX),
        KeyType::Int4 => i64::from(i32::MAX),
        KeyType::Int8
        | KeyType::Date
        | KeyType::Timestamp
        | KeyType::Timestamptz
        | KeyType::Text
        | KeyType::Bpchar
        | KeyType::Uuid
        | KeyType::Bool
        | KeyType::Bytea
        | KeyType::Numeric => i64::MAX,
    };
    match datum {
        KeyDatum::Int(value) => (*value < greatest).then(|| KeyDatum::Int(value + 1)),
        KeyDatum::Timestamp(micros) => micros.checked_add(1).map(KeyDatum::Timestamp),
        KeyDatum::Date(days) => days.checked_add(1).map(KeyDatum::Date),
        KeyDatum::Uuid(bytes) => u128::from_be_bytes(*bytes).checked_add(1).map(|next| KeyDatum::Uuid(next.to_be_bytes())),
        KeyDatum::Bool(value) => (!value).then_some(KeyDatum::Bool(true)),
        // The least that may follow: text has no zero bytes.
        KeyDatum::Text(text) => Some(KeyDatum::Text(format!("{text}\u{1}").into())),
        KeyDatum::Bytea(bytes) => Some(KeyDatum::Bytea(bytes.iter().copied().chain([0]).collect())),
        // No number follows another one; there are no ranges of them.
        KeyDatum::Numeric(_) => None,
    }
}

/// A mapping of `'12'` where the key is `right(isbn, 1)` would never be used: most likely the user gave the column's value.
pub fn refuse_impossible_key(table: &Table, key: &Key) -> Result<(), PgError> {
    let columns = match &table.kind {
        TableKind::Sharded { key, .. } => key.as_slice(),
        TableKind::Reference => &[],
    };
    for (column, datum) in columns.iter().zip(key.data()) {
        if let Some(function) = column.function.as_ref().filter(|function| !function.can_give(datum)) {
            return Err(PgError::new(SqlState::INVALID_PARAMETER_VALUE, "the key cannot be a result of the key function")
                .with_detail(format!("The shard key of table \"{}\" is {}.", table.name, function.to_sql(&column.column)))
                .with_hint("Give the function's result, not the column's value."));
        }
    }
    Ok(())
}

/// One key that is to have a partition of its own, and where.
#[derive(Clone, Copy, Debug)]
pub struct Isolation<'a> {
    /// Schema and name.
    pub table: (&'a str, &'a str),
    /// As [`Key::parse_text`] reads it: after the key's functions.
    pub key: &'a str,
    pub shard: &'a str,
}

impl Store {
    /// Partitions of the group begin at these places; the pieces stay on their shard. All or none. Gives how many were cut off: fewer
    /// than there are places where some began there already.
    pub async fn split_group(&self, actor: &str, group: &Group, at: &[Bound]) -> Result<i32, StoreError> {
        // Partitions of lookup keys are never cut.
        if at.is_empty() {
            return Ok(0);
        }
        let lows: Vec<Vec<u8>> = at.iter().map(Bound::to_stored).collect();
        let texts: Vec<String> = at.iter().map(|bound| bound.to_text(&group.key_types)).collect();
        let query =
            sqlx::query("SELECT shardgate_map.split_group($1, $2, $3, $4)").bind(actor).bind(group.id.0).bind(lows).bind(texts);
        read(&self.change(query).await?, 0)
    }

    /// [`Store::split_group`] of one partition into pieces of the same size, which can be told by [`Store::was_split`].
    pub async fn split_into(&self, actor: &str, group: &Group, split: PartitionId, at: &[Bound]) -> Result<i32, StoreError> {
        let lows: Vec<Vec<u8>> = at.iter().map(Bound::to_stored).collect();
        let texts: Vec<String> = at.iter().map(|bound| bound.to_text(&group.key_types)).collect();
        let pieces = i32::try_from(at.len() + 1).unwrap_or(i32::MAX);
        let query = sqlx::query("SELECT shardgate_map.split_into($1, $2, $3, $4, $5, $6)");
        let query = query.bind(actor).bind(group.id.0).bind(split.0).bind(pieces).bind(lows).bind(texts);
        read(&self.change(query).await?, 0)
    }

    /// Where the partition was cut into as many pieces, of which it is the first one since. `None`: it was not, or is another one now.
    pub async fn was_split(&self, group: &Group, split: PartitionId, pieces: u32) -> Result<Option<Vec<Bound>>, StoreError> {
        let pieces = i32::try_from(pieces).unwrap_or(i32::MAX);
        let query = sqlx::query("SELECT shardgate_map.was_split($1, $2)").bind(split.0).bind(pieces);
        let at: Option<Vec<String>> = read(&self.change(query).await?, 0)?;
        let bounds = |at: Vec<String>| at.iter().map(|at| Bound::parse(group, at)).collect::<Result<Vec<Bound>, PgError>>();
        at.map(bounds).transpose().map_err(StoreError::Refused)
    }

    /// Whether `gone` was merged into `kept` before.
    pub async fn was_merged(&self, kept: PartitionId, gone: PartitionId) -> Result<bool, StoreError> {
        let query = sqlx::query("SELECT shardgate_map.was_merged($1, $2)").bind(kept.0).bind(gone.0);
        read(&self.change(query).await?, 0)
    }

    /// Gives the key a partition of its own and plans the move to the shard. A move that does just that and runs already is given
    /// again; `None`: the key is on that shard. `driver`: as for [`Store::plan_move`].
    pub async fn plan_isolation(
        &self,
        actor: &str,
        isolation: Isolation<'_>,
        options: &MoveOptions,
        driver: Option<i64>,
    ) -> Result<Option<MoveId>, StoreError> {
        let map = self.load().await?.snapshot;
        let target = map.shard_by_name(isolation.shard).filter(|shard| shard.state.takes_new_partitions());
        let target = target.map(|shard| shard.id).ok_or_else(|| no_target(isolation.shard))?;
        let partition = self.isolate(actor, &map, isolation).await?;
        let map = self.load().await?.snapshot;
        if map.partition(partition).is_some_and(|(_, partition)| partition.shard == target) {
            return Ok(None);
        }
        let running = self.running_moves().await?;
        let same = running.iter().find(|the_move| the_move.partitions == [partition] && the_move.target == isolation.shard);
        match same {
            Some(same) => Ok(Some(same.id)),
            None => self.plan_move(actor, &[partition], isolation.shard, options, driver).await.map(Some),
        }
    }

    async fn isolate(&self, actor: &str, map: &MapSnapshot, isolation: Isolation<'_>) -> Result<PartitionId, StoreError> {
        let (schema, name) = isolation.table;
        let (table, group) = sharded(map, schema, name)?;
        let key = Key::parse_text(&group.key_types, isolation.key).map_err(StoreError::Refused)?;
        refuse_impossible_key(table, &key).map_err(StoreError::Refused)?;
        if group.strategy == Strategy::Lookup {
            let query = sqlx::query("SELECT shardgate_map.isolate_lookup_key($1, $2, $3, $4, $5)")
                .bind(actor)
                .bind(schema)
                .bind(name)
                .bind(key.ordered_bytes().into_vec())
                .bind(key.to_text(&group.key_types));
            return Ok(PartitionId(read(&self.change(query).await?, 0)?));
        }
        let bounds = bounds_around(group, &key).map_err(StoreError::Refused)?;
        self.split_group(actor, group, &bounds).await?;
        let map = self.load().await?.snapshot;
        let group = map.group(group.id).ok_or_else(|| gone(group.id))?;
        let point = match group.strategy {
            Strategy::Hash => Bound::Hash(key.hash()),
            Strategy::Range | Strategy::Lookup => Bound::Key(key.ordered_bytes()),
        };
        Ok(group.partition_at(&point).id)
    }
}

fn sharded<'m>(map: &'m MapSnapshot, schema: &str, name: &str) -> Result<(&'m Table, &'m Group), StoreError> {
    let not_sharded = || {
        StoreError::Refused(
            PgError::new(SqlState::UNDEFINED_TABLE, format!("table \"{name}\" is not sharded"))
                .with_hint("SELECT * FROM shardgate.tables lists the tables."),
        )
    };
    let table = map.table(schema, name).ok_or_else(not_sharded)?;
    match &table.kind {
        TableKind::Sharded { group, .. } => Ok((table, map.group(*group).ok_or_else(|| gone(*group))?)),
        TableKind::Reference => Err(not_sharded()),
    }
}

fn no_target(shard: &str) -> StoreError {
    StoreError::Refused(
        PgError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, format!("there is no shard \"{shard}\" that takes partitions"))
            .with_hint("SELECT name, state FROM shardgate.shards lists the shards."),
    )
}

fn gone(group: GroupId) -> StoreError {
    unreadable("colocation group", &group.0.to_string())
}

const SIGN: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shardmap::{Partition, PartitionState, ShardId};

    fn group(strategy: Strategy, key_types: &[KeyType], lows: &[Option<Bound>]) -> Group {
        let partition = |(at, low): (usize, &Option<Bound>)| Partition {
            id: PartitionId(at as i32 + 1),
            shard: ShardId(1),
            state: PartitionState::Online,
            epoch: 0,
            low: low.clone(),
        };
        let partitions = lows.iter().enumerate().map(partition).collect();
        Group::new(GroupId(1), strategy, key_types.to_vec(), partitions, None).expect("a group")
    }

    #[test]
    fn a_hash_partition_is_cut_into_equal_pieces() {
        let group = group(Strategy::Hash, &[KeyType::Int8], &[None, Some(Bound::Hash(0)), Some(Bound::Hash(3))]);
        let pieces = |id: i32, count: u32| equal_pieces(&group, PartitionId(id), count);
        assert_eq!(pieces(1, 2), Ok(vec![Bound::Hash(-(1 << 62))]));
        assert_eq!(pieces(2, 3), Ok(vec![Bound::Hash(1), Bound::Hash(2)]));
        assert!(pieces(2, 4).is_err_and(|error| error.message.contains("only 3 hashes")));
        let last = pieces(3, 4).expect("pieces");
        assert!(last.len() == 3 && last.is_sorted() && last[0] > Bound::Hash(3), "{last:?}");
        assert_eq!(pieces(1, 1), Ok(Vec::new()));
    }

    #[test]
    fn other_partitions_have_no_equal_pieces() {
        let range = group(Strategy::Range, &[KeyType::Int4], &[None]);
        assert!(equal_pieces(&range, PartitionId(1), 2).is_err_and(|error| error.hint.is_some_and(|hint| hint.contains("--at"))));
        let lookup = group(Strategy::Lookup, &[KeyType::Int4], &[None]);
        assert!(
            equal_pieces(&lookup, PartitionId(1), 2).is_err_and(|error| error.hint.is_some_and(|hint| hint.contains("isolate")))
        );
        assert!(Bound::parse(&lookup, "1").is_err());
    }

    #[test]
    fn a_key_ends_where_its_successor_begins() {
        let around = |types: &[KeyType], text: &str| {
            let group = group(Strategy::Range, types, &[None]);
            let bounds = bounds_around(&group, &Key::parse_text(types, text).expect("a key")).expect("bounds");
            assert!(bounds.is_sorted(), "{bounds:?}");
            bounds.iter().map(|bound| bound.to_text(types)).collect::<Vec<_>>()
        };
        for (types, key, expected) in [
            (&[KeyType::Int4][..], "255", &["255", "256"][..]),
            (&[KeyType::Int4], "-1", &["-1", "0"]),
            (&[KeyType::Int4], "2147483647", &["2147483647"]),
            (&[KeyType::Int8], "9223372036854775807", &["9223372036854775807"]),
            (&[KeyType::Date], "2024-12-31", &["2024-12-31", "2025-01-01"]),
            (&[KeyType::Date], "infinity", &["infinity"]),
            (&[KeyType::Timestamp], "2024-12-31 23:59:59.999999", &["2024-12-31 23:59:59.999999", "2025-01-01 00:00:00"]),
            (&[KeyType::Text], "a", &["a", "a\u{1}"]),
            (&[KeyType::Bytea], "\\x00", &["\\x00", "\\x0000"]),
            (&[KeyType::Bool], "t", &["t"]),
            (
                &[KeyType::Uuid],
                "00000000-0000-0000-0000-0000000000ff",
                &["00000000-0000-0000-0000-0000000000ff", "00000000-0000-0000-0000-000000000100"],
            ),
            (&[KeyType::Text, KeyType::Int2], "(eu,3)", &["(eu,3)", "(eu,4)"]),
            (&[KeyType::Text, KeyType::Int2], "(eu,32767)", &["(eu,32767)", "(eu\u{1})"]),
            (&[KeyType::Bool, KeyType::Bool], "(t,t)", &["(t,t)"]),
        ] {
            assert_eq!(around(types, key), expected, "{key}");
        }
    }

    #[test]
    fn a_hashed_key_is_alone_with_its_hash() {
        let group = group(Strategy::Hash, &[KeyType::Int8], &[None]);
        let key = Key::new(vec![KeyDatum::Int(7)]);
        assert_eq!(bounds_around(&group, &key), Ok(vec![Bound::Hash(key.hash()), Bound::Hash(key.hash() + 1)]));
    }
}
