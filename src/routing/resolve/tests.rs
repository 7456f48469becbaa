//! Where statements go, and what they wait for.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::routing::testing::{
    FakeMap, GROUP, constant, equals, hash_group, int, key, lookup_group, number, range_group, stored, test, text, with_state,
};
use crate::routing::{PlacedRows, Reach, Why};
use crate::shard_key::KeyType;
use crate::sql::analysis::{Comparison, KeyCondition, Test};

fn no_inputs() -> Inputs<'static> {
    Inputs::literals("", &[])
}

fn part(condition: KeyCondition) -> Part {
    Part::Sharded { group: GROUP, condition, stores: false }
}

/// With more time than any test takes.
const IN_TIME: Duration = Duration::from_secs(60);
/// For waits that must come to their end.
const SOON: Duration = Duration::from_millis(20);

fn within(time: Duration) -> Resolution<'static> {
    Resolution { claims: Box::leak(Box::default()), by: None, preferred: None, deadline: Instant::now() + time }
}

/// Where nothing is held.
async fn placed(map: &FakeMap, parts: &[Part], resolution: &Resolution<'_>) -> Result<Target, PgError> {
    match resolve(map, parts, &no_inputs(), resolution).await? {
        Resolved::Placed(target) => Ok(target),
        Resolved::Held(epoch) => panic!("held at {epoch}"),
    }
}

/// Must not wait.
async fn resolved(map: &FakeMap, parts: &[Part]) -> Result<Target, PgError> {
    let resolution = within(IN_TIME);
    let resolving = pin!(placed(map, parts, &resolution));
    match resolving.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(target) => target,
        Poll::Pending => panic!("it waits"),
    }
}

fn shards(target: &Target) -> Vec<i32> {
    target.shards.iter().map(|shard| shard.0).collect()
}

fn partitions(target: &Target) -> Vec<i32> {
    target.touched.partitions.iter().map(|(_, partition)| partition.0).collect()
}

/// On the char(1) key of a lookup group.
fn letter(value: &str) -> KeyCondition {
    test(0, KeyType::Text, Test::Equals(constant(0, value)))
}

fn letters(values: &[&str]) -> KeyCondition {
    test(0, KeyType::Text, Test::In(values.iter().map(|value| constant(0, value)).collect()))
}

#[tokio::test]
async fn a_hash_key_goes_to_the_partition_that_holds_its_hash() {
    let map = FakeMap::new(hash_group(&[KeyType::Int8]));
    for value in 0..50 {
        let hash = key(&[int(value)]).hash();
        let slice = if hash < i64::MIN / 3 {
            0
        } else if hash < i64::MAX / 3 {
            1
        } else {
            2
        };
        let target = resolved(&map, &[part(equals(0, value))]).await.unwrap();
        assert_eq!((shards(&target), partitions(&target)), (vec![slice], vec![10 + slice]), "key {value}");
        assert!(target.touched.groups.is_empty());
    }
}

#[tokio::test]
async fn an_unknown_key_is_every_shard_of_the_group_and_touches_all_of_it() {
    let map = FakeMap::new(hash_group(&[KeyType::Int8]));
    let target = resolved(&map, &[part(KeyCondition::All)]).await.unwrap();
    assert_eq!(shards(&target), [0, 1, 2]);
    assert_eq!((partitions(&target), target.touched.groups.as_slice()), (vec![], [GROUP].as_slice()));
}

#[tokio::test]
async fn a_range_touches_the_partitions_that_it_overlaps() {
    let splits = [10, 20, 30].map(|value| key(&[int(value)]));
    let map = FakeMap::new(range_group(&[KeyType::Int8], &splits));
    let compare = |comparison, value| test(0, KeyType::Int8, Test::Compare(comparison, number(value)));
    let target = async |condition| partitions(&resolved(&map, &[part(condition)]).await.unwrap());
    assert_eq!(target(compare(Comparison::Less, 10)).await, [20]);
    assert_eq!(target(compare(Comparison::LessOrEqual, 10)).await, [20, 21]);
    assert_eq!(target(compare(Comparison::Greater, 29)).await, [23]);
    assert_eq!(target(compare(Comparison::GreaterOrEqual, 29)).await, [22, 23]);
    assert_eq!(target(equals(0, 20)).await, [22]);
    assert_eq!(target(KeyCondition::Or(vec![equals(0, 5), compare(Comparison::Greater, 40)])).await, [20, 23]);
}

#[tokio::test]
async fn parts_are_united_and_a_contradiction_still_runs_somewhere() {
    let map = FakeMap::new(hash_group(&[KeyType::Int8]));
    let elsewhere = (0..).find(|value| key(&[int(*value)]).hash() > i64::MAX / 3).unwrap();
    let both = resolved(&map, &[Part::Home, part(equals(0, elsewhere))]).await.unwrap();
    assert_eq!(shards(&both), [0, 2]);
    let nothing = resolved(&map, &[part(KeyCondition::Nothing)]).await.unwrap();
    assert_eq!(shards(&nothing), [0], "the home shard");
    assert!(nothing.touched.is_empty());
    let resolution = Resolution { preferred: Some(ShardId(2)), ..within(IN_TIME) };
    let nothing = placed(&map, &[part(KeyCondition::Nothing)], &resolution).await.unwrap();
    assert_eq!(shards(&nothing), [2], "where the transaction is already");
}

#[tokio::test]
async fn a_cached_lookup_key_does_not_wait_and_a_missing_one_is_asked_for_once() {
    let mut map = FakeMap::new(lookup_group(&[KeyType::Text], None));
    map.cached.insert(key(&[text("a")]), Some(PartitionId(31)));
    map.stored = Some(HashMap::from([(key(&[text("b")]), PartitionId(32)), (key(&[text("c")]), PartitionId(30))]));
    assert_eq!(shards(&resolved(&map, &[part(letter("a"))]).await.unwrap()), [1]);
    assert!(map.requests.lock().unwrap().is_empty());
    let target = placed(&map, &[part(letters(&["a", "b", "c"]))], &within(IN_TIME)).await.unwrap();
    assert_eq!((shards(&target), partitions(&target)), (vec![0, 1, 2], vec![30, 31, 32]));
    assert_eq!(*map.requests.lock().unwrap(), [vec![key(&[text("b")]), key(&[text("c")])]], "one request for both");
}

#[tokio::test]
async fn a_key_without_mapping_is_an_error_where_a_row_is_stored_unless_there_is_a_default() {
    let map = FakeMap::new(lookup_group(&[KeyType::Text], None));
    let stored = |value| Part::Sharded { group: GROUP, condition: letter(value), stores: true };
    let error = placed(&map, &[stored("z")], &within(IN_TIME)).await.unwrap_err();
    assert_eq!(error.code, SqlState::NO_SHARD_FOR_KEY);
    assert!(!error.to_string().contains('z') || !error.to_string().contains("\"z\""), "the key is not shown");
    let map = FakeMap::new(lookup_group(&[KeyType::Text], Some(31)));
    assert_eq!(shards(&placed(&map, &[stored("z")], &within(IN_TIME)).await.unwrap()), [1]);
}

#[tokio::test]
async fn no_row_has_a_key_without_mapping_as_far_as_the_map_itself_says() {
    let mut map = FakeMap::new(lookup_group(&[KeyType::Text], None));
    map.cached.insert(key(&[text("a")]), Some(PartitionId(31)));
    map.cached.insert(key(&[text("y")]), None);
    map.stored = Some(HashMap::from([(key(&[text("y")]), PartitionId(32))]));
    let nothing = resolved(&map, &[part(letter("z"))]).await.unwrap();
    assert_eq!((shards(&nothing), partitions(&nothing)), (vec![0], vec![]), "it runs at home");
    let found = resolved(&map, &[part(letters(&["a", "z"]))]).await.unwrap();
    assert_eq!(partitions(&found), [31]);
    let mapped_meanwhile = resolved(&map, &[part(letter("y"))]).await.unwrap();
    assert_eq!(partitions(&mapped_meanwhile), [32], "what is known of it here is not believed");
    let stored = Part::Sharded { group: GROUP, condition: letter("y"), stores: true };
    assert_eq!(resolved(&map, &[stored]).await.unwrap_err().code, SqlState::NO_SHARD_FOR_KEY);
}

#[tokio::test]
async fn a_map_that_does_not_answer_is_waited_for_until_the_deadline() {
    let mut map = FakeMap::new(lookup_group(&[KeyType::Text], None));
    map.stored = None;
    let begun = Instant::now();
    let error = placed(&map, &[part(letter("z"))], &within(SOON)).await.unwrap_err();
    assert_eq!(error.code, SqlState::CANNOT_CONNECT_NOW);
    assert!(begun.elapsed() >= SOON);
}

#[tokio::test]
async fn that_a_partition_is_held_is_told_with_the_version_that_says_so() {
    let group = lookup_group(&[KeyType::Text], None);
    let mut map = FakeMap::new(with_state(&group, 31, PartitionState::Held));
    map.cached = HashMap::from([(key(&[text("a")]), Some(PartitionId(31))), (key(&[text("b")]), Some(PartitionId(30)))]);
    assert_eq!(shards(&resolved(&map, &[part(letter("b"))]).await.unwrap()), [0], "another partition does not wait");
    for condition in [letter("a"), letters(&["a", "b"]), KeyCondition::All] {
        let held = resolve(&map, &[part(condition)], &no_inputs(), &within(IN_TIME)).await.unwrap();
        assert!(matches!(held, Resolved::Held(epoch) if epoch.counter == 1), "{held:?}");
    }
    let mut moved = group.partitions.clone();
    moved[1].shard = ShardId(3);
    map.publish(2, Group::new(GROUP, Strategy::Lookup, group.key_types.clone(), moved, None).unwrap());
    let target = resolved(&map, &[part(letter("a"))]).await.unwrap();
    assert_eq!((shards(&target), target.map.epoch.counter), (vec![3], 2));
}

#[tokio::test]
async fn a_transaction_goes_on_with_what_it_has_claimed_unless_it_has_moved() {
    let group = hash_group(&[KeyType::Int8]);
    let map = FakeMap::new(group.clone());
    let here = (0..).find(|value| key(&[int(*value)]).hash() < i64::MIN / 3).unwrap();
    let mut claims = Claims::default();
    let target = resolved(&map, &[part(equals(0, here))]).await.unwrap();
    claims.add(&target.map, &target.touched);
    let resolution = Resolution { claims: &claims, ..within(IN_TIME) };
    map.publish(2, with_state(&group, 10, PartitionState::Held));
    for condition in [equals(0, here), KeyCondition::All] {
        assert!(placed(&map, &[part(condition)], &resolution).await.unwrap().shards.contains(ShardId(0)));
    }
    let mut moved = group.partitions.clone();
    moved[0].shard = ShardId(3);
    map.publish(3, Group::new(GROUP, Strategy::Hash, group.key_types.clone(), moved, None).unwrap());
    for condition in [equals(0, here), KeyCondition::All] {
        let error = placed(&map, &[part(condition.clone())], &resolution).await.unwrap_err();
        assert_eq!((error.code, error), (SqlState::SERIALIZATION_FAILURE, partition_has_moved()));
        assert!(resolved(&map, &[part(condition)]).await.unwrap().shards.contains(ShardId(3)));
    }
}

#[tokio::test]
async fn a_reach_says_why_a_text_may_run_as_it_is() {
    let why = async |group: Group, parts: &[Part]| {
        let target = resolved(&FakeMap::new(group), parts).await.unwrap();
        Reach::of(&target, parts)
    };
    let several = || hash_group(&[KeyType::Int8]);
    let one_key = [part(equals(0, 5))];
    assert!(matches!(why(several(), &one_key).await.why(), Why::Pinned(_)));
    assert!(matches!(why(several(), &[Part::Home]).await.why(), Why::Unsharded(_)));
    assert!(matches!(why(several(), &[part(KeyCondition::Nothing)]).await.why(), Why::Pinned(_)), "it sees no row");
    let all = why(several(), &[part(KeyCondition::All)]).await;
    assert_eq!((all.why(), all.proof(), all.single()), (Why::Several, None, None));
    let mut one_owner = several();
    one_owner.partitions.iter_mut().for_each(|partition| partition.shard = ShardId(1));
    let one_owner =
        Group::new(GROUP, Strategy::Hash, one_owner.key_types.clone(), one_owner.partitions.clone(), None).expect("valid");
    let unpinned = why(one_owner, &[part(KeyCondition::All)]).await;
    assert!(matches!(unpinned.why(), Why::OneOwner(_)) && unpinned.single() == Some(ShardId(1)));
}

#[tokio::test]
async fn keys_of_two_shards_pin_no_text_that_both_run() {
    let map = FakeMap::new(hash_group(&[KeyType::Int8]));
    let elsewhere = (0..).find(|value| key(&[int(*value)]).hash() > i64::MAX / 3).unwrap();
    let here = (0..).find(|value| key(&[int(*value)]).hash() < i64::MIN / 3).unwrap();
    let both = [part(KeyCondition::Or(vec![equals(0, here), equals(0, elsewhere)]))];
    let target = resolved(&map, &both).await.unwrap();
    assert_eq!((target.shards.count(), Reach::of(&target, &both).why()), (2, Why::Several));
    let mut rows = PlacedRows::default();
    for row in [here, elsewhere, here] {
        rows.push(&resolved(&map, &[part(equals(0, row))]).await.unwrap()).expect("on one shard");
    }
    let (reach, shard_of_row) = rows.into_parts();
    let reach = reach.expect("rows");
    assert!(reach.shards().len() == 2 && reach.proof().is_some(), "each shard gets its own rows");
    assert_eq!(shard_of_row, [0, 1, 0]);
}

#[tokio::test]
async fn a_mapping_newer_than_the_snapshot_waits_for_the_snapshot() {
    let group = lookup_group(&[KeyType::Text], None);
    let mut map = FakeMap::new(group.clone());
    map.cached.insert(key(&[text("a")]), Some(PartitionId(99)));
    let error = placed(&map, &[part(letter("a"))], &within(SOON)).await.unwrap_err();
    assert_eq!(error.code, SqlState::CANNOT_CONNECT_NOW);

    let parts = [part(letter("a"))];
    let resolution = within(IN_TIME);
    let mut waiting = pin!(placed(&map, &parts, &resolution));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let mut partitions = group.partitions.clone();
    partitions.push(crate::routing::testing::partition(99, 3, None));
    map.publish(2, Group::new(GROUP, Strategy::Lookup, group.key_types.clone(), partitions, None).unwrap());
    assert_eq!(shards(&waiting.await.unwrap()), [3]);
}

#[tokio::test]
async fn an_insert_of_an_unproven_key_and_an_unknown_group_are_errors() {
    let map = FakeMap::new(hash_group(&[KeyType::Int8]));
    let insert = stored(0, KeyType::Int8, constant(701, "1"), true);
    assert_eq!(resolved(&map, &[part(insert)]).await.unwrap_err().code, SqlState::FEATURE_NOT_SUPPORTED);
    let gone = Part::Sharded { group: crate::shardmap::GroupId(8), condition: KeyCondition::All, stores: false };
    assert_eq!(resolved(&map, &[gone]).await.unwrap_err().code, SqlState::SERIALIZATION_FAILURE);
}
