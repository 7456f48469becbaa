//! The keys of a move's partitions, as one condition of SQL over a row's key.
//!
//! The same condition stands in the publication's filter, in the gates' triggers, in the comparison of both sides and in the
//! clean-up, so that what is copied, refused, compared and deleted is the same set of rows. A row whose key is NULL is in no set.
//!
//! Filters of a publication take PostgreSQL's own types and operators alone. So ranges of keys are written as comparisons, which an
//! index on the key serves too; text is compared bytewise and keys of several columns as rows, as the map compares them.

use crate::catalog::{quoted_identifier, quoted_literal};
use crate::shard_key::{Decimal, Key, KeyColumn, KeyDatum, KeyType};
use crate::shardmap::{Bound, Group, PartitionId, Store, StoreError, Strategy};
use crate::sql::residues::{array_element, bytewise, key_value, takes_null};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeySet {
    /// An `int8multirange` of hashes, as PostgreSQL reads it.
    Hashes(String),
    /// Lookup keys, as the map shows them.
    Keys(Vec<String>),
    /// All lookup keys but these: those of the default partition, and of others that move with it.
    OtherKeys(Vec<String>),
    Ranges(Vec<KeyRange>),
}

/// Half-open; `None`: from the beginning, to the end. A bound of the first columns only stands for the beginning of all keys that have
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyRange {
    low: Option<Key>,
    high: Option<Key>,
}

/// Why the keys cannot be told by a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NoCondition(pub(super) String);

impl KeySet {
    /// Of a lookup group: keys are neither added to a partition that moves nor taken from it.
    pub(super) async fn read(store: &Store, group: &Group, partitions: &[PartitionId]) -> Result<Self, StoreError> {
        Ok(match group.strategy {
            Strategy::Hash => KeySet::Hashes(format!("{{{}}}", hash_ranges(group, partitions).join(","))),
            Strategy::Range => KeySet::Ranges(key_ranges(group, partitions)?),
            Strategy::Lookup if group.default_partition.is_some_and(|default| partitions.contains(&default)) => {
                let ids = group.partitions.iter().map(|partition| partition.id);
                let others: Vec<PartitionId> = ids.filter(|id| !partitions.contains(id)).collect();
                KeySet::OtherKeys(store.keys_of_partitions(&others).await?)
            }
            Strategy::Lookup => KeySet::Keys(store.keys_of_partitions(partitions).await?),
        })
    }

    /// `row`: what stands before a column's name, as in `new.`.
    pub(super) fn condition(&self, key: &[KeyColumn], group: &Group, row: &str) -> Result<String, NoCondition> {
        let columns: Vec<String> = key.iter().map(|key| format!("{row}{}", quoted_identifier(&key.column))).collect();
        let values: Vec<String> = key.iter().zip(&columns).map(|(key, column)| key_value(key, column)).collect();
        let test = match self {
            KeySet::Hashes(ranges) => {
                let types = &group.key_types;
                let hash = values.iter().zip(types).fold("0".to_owned(), |seed, (value, key_type)| key_type.hash_sql(value, &seed));
                format!("{hash} OPERATOR(pg_catalog.<@) {}::pg_catalog.int8multirange", quoted_literal(ranges))
            }
            KeySet::Keys(keys) => among(&values, group, keys)?,
            KeySet::OtherKeys(keys) => format!("NOT {}", among(&values, group, keys)?),
            KeySet::Ranges(ranges) => {
                let within: Vec<String> = ranges.iter().map(|range| range.condition(&values, &group.key_types)).collect();
                if within.is_empty() { "false".to_owned() } else { format!("({})", within.join(" OR ")) }
            }
        };
        let is_whole =
            matches!(self, KeySet::Ranges(ranges) if ranges.iter().any(|range| range.low.is_none() && range.high.is_none()));
        let present = columns.iter().zip(&group.key_types).filter(|(_, key_type)| is_whole || takes_null(group, **key_type));
        let present: Vec<String> = present.map(|(column, _)| format!("{column} IS NOT NULL AND ")).collect();
        Ok(format!("({}{test})", present.concat()))
    }

    /// The values of the columns `hashes`, `keys`, `ranges` and `other_keys` of `shardgate.residue`.
    pub(super) fn residue_values(&self, key_types: &[KeyType]) -> String {
        match self {
            KeySet::Hashes(ranges) => format!("{}, NULL, NULL, NULL", quoted_literal(ranges)),
            KeySet::Keys(keys) => format!("NULL, {}, NULL, NULL", quoted_literal(&array(keys))),
            KeySet::OtherKeys(keys) => format!("NULL, NULL, NULL, {}", quoted_literal(&array(keys))),
            KeySet::Ranges(ranges) => {
                let ranges: Vec<String> = ranges.iter().map(|range| range.to_text(key_types)).collect();
                format!("NULL, NULL, {}, NULL", quoted_literal(&array(&ranges)))
            }
        }
    }
}

fn among(values: &[String], group: &Group, keys: &[String]) -> Result<String, NoCondition> {
    if let ([value], [key_type]) = (values, &group.key_types[..]) {
        let (keys, element) = (quoted_literal(&array(keys)), array_element(*key_type));
        return Ok(format!("({value} OPERATOR(pg_catalog.=) ANY ({keys}::pg_catalog.{element}[]))"));
    }
    let types = &group.key_types;
    let same = |text: &String| match Key::parse_text(types, text) {
        Ok(key) => Ok(compared(values, types, "=", &key)),
        Err(error) => Err(NoCondition(format!("a key of several columns cannot be read: {}", error.message))),
    };
    let same: Vec<String> = keys.iter().map(same).collect::<Result<_, _>>()?;
    Ok(if same.is_empty() { "false".to_owned() } else { format!("({})", same.join(" OR ")) })
}

impl KeyRange {
    fn condition(&self, values: &[String], types: &[KeyType]) -> String {
        let bounds = [(&self.low, ">="), (&self.high, "<")];
        let bounds = bounds.iter().filter_map(|(bound, operator)| Some(compared(values, types, operator, bound.as_ref()?)));
        let bounds: Vec<String> = bounds.collect();
        if bounds.is_empty() { "true".to_owned() } else { format!("({})", bounds.join(" AND ")) }
    }

    /// As an element of a multirange, of the types that `sql::residues` names. What a bound does not name is the least.
    fn to_text(&self, types: &[KeyType]) -> String {
        let text = |bound: &Option<Key>| {
            bound.as_ref().map(|bound| {
                let named = bound.data().iter().cloned();
                let least = types.iter().skip(bound.data().len()).map(|key_type| least(*key_type));
                quoted(&Key::new(named.chain(least).collect()).to_text(types))
            })
        };
        let opening = if self.low.is_some() { "[" } else { "(" };
        format!("{opening}{},{})", text(&self.low).unwrap_or_default(), text(&self.high).unwrap_or_default())
    }
}

/// By the columns that the bound names.
fn compared(values: &[String], types: &[KeyType], operator: &str, bound: &Key) -> String {
    let columns = || values.iter().zip(types).zip(bound.data());
    let left: Vec<String> = columns().map(|((value, key_type), _)| bytewise(value, *key_type)).collect();
    let right = columns().map(|((_, key_type), datum)| {
        format!("{}::pg_catalog.{}", quoted_literal(&datum.to_text(*key_type)), array_element(*key_type))
    });
    let row = |columns: Vec<String>| if columns.len() == 1 { columns.concat() } else { format!("ROW({})", columns.join(", ")) };
    format!("{} OPERATOR(pg_catalog.{operator}) {}", row(left), row(right.collect()))
}

/// What no key of this type is below.
fn least(key_type: KeyType) -> KeyDatum {
    match key_type {
        KeyType::Int2 => KeyDatum::Int(i16::MIN.into()),
        KeyType::Int4 => KeyDatum::Int(i32::MIN.into()),
        KeyType::Int8 => KeyDatum::Int(i64::MIN),
        KeyType::Text | KeyType::Bpchar => KeyDatum::Text("".into()),
        KeyType::Uuid => KeyDatum::Uuid([0; 16]),
        KeyType::Date => KeyDatum::Date(i32::MIN),
        KeyType::Timestamp | KeyType::Timestamptz => KeyDatum::Timestamp(i64::MIN),
        KeyType::Bool => KeyDatum::Bool(false),
        KeyType::Bytea => KeyDatum::Bytea([].into()),
        KeyType::Numeric => KeyDatum::Numeric(Decimal::least()),
    }
}

/// Neighbours joined, inclusive; the end of the key space is left open, since its number has no successor.
fn hash_ranges(group: &Group, partitions: &[PartitionId]) -> Vec<String> {
    let mut ranges: Vec<(i64, Option<i64>)> = Vec::new();
    for (at, partition) in group.partitions.iter().enumerate().filter(|(_, partition)| partitions.contains(&partition.id)) {
        let low = partition.low.as_ref().and_then(Bound::hash).unwrap_or(i64::MIN);
        let end = group.partitions.get(at + 1).and_then(|next| next.low.as_ref()?.hash());
        match ranges.last_mut() {
            Some((_, last_end)) if *last_end == Some(low) => *last_end = end,
            _ => ranges.push((low, end)),
        }
    }
    let written = |(low, end): (i64, Option<i64>)| match end {
        Some(end) => format!("[{low},{end})"),
        None => format!("[{low},)"),
    };
    ranges.into_iter().map(written).collect()
}

/// Neighbours joined.
fn key_ranges(group: &Group, partitions: &[PartitionId]) -> Result<Vec<KeyRange>, StoreError> {
    let no_key = |bytes: &[u8]| StoreError::Unreadable(format!("a partition of group {} begins at {bytes:02x?}", group.id.0));
    let key = |bound: Option<&Bound>| match bound {
        Some(Bound::Key(bytes)) => Key::from_ordered_bytes(&group.key_types, bytes).map(Some).ok_or_else(|| no_key(bytes)),
        Some(Bound::Hash(_)) | None => Ok(None),
    };
    let mut ranges: Vec<KeyRange> = Vec::new();
    let mut before = None;
    for (at, partition) in group.partitions.iter().enumerate().filter(|(_, partition)| partitions.contains(&partition.id)) {
        let high = key(group.partitions.get(at + 1).and_then(|next| next.low.as_ref()))?;
        match ranges.last_mut() {
            Some(last) if before.is_some_and(|before| before + 1 == at) => last.high = high,
            _ => ranges.push(KeyRange { low: key(partition.low.as_ref())?, high }),
        }
        before = Some(at);
    }
    Ok(ranges)
}

fn array(elements: &[String]) -> String {
    format!("{{{}}}", elements.iter().map(|element| quoted(element)).collect::<Vec<_>>().join(","))
}

/// As an element of an array or the bound of a range.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shardmap::{GroupId, Partition, PartitionState, ShardId};

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

    fn ids(ids: &[i32]) -> Vec<PartitionId> {
        ids.iter().copied().map(PartitionId).collect()
    }

    fn column(name: &str, column_type: KeyType) -> KeyColumn {
        KeyColumn { column: name.to_owned(), column_type, function: None }
    }

    #[test]
    fn neighbouring_hash_partitions_are_one_range() {
        let lows = [None, Some(Bound::Hash(-10)), Some(Bound::Hash(0)), Some(Bound::Hash(10))];
        let group = group(Strategy::Hash, &[KeyType::Int8], &lows);
        assert_eq!(hash_ranges(&group, &ids(&[1, 2])), ["[-9223372036854775808,0)"]);
        assert_eq!(hash_ranges(&group, &ids(&[4, 2])), ["[-10,0)", "[10,)"]);
        let set = KeySet::Hashes("{[10,)}".to_owned());
        let condition = set.condition(&[column("A b", KeyType::Int8)], &group, "new.").expect("a condition");
        assert_eq!(
            condition,
            "(pg_catalog.hashint8extended(new.\"A b\", 0) OPERATOR(pg_catalog.<@) '{[10,)}'::pg_catalog.int8multirange)"
        );
    }

    /// Condition, and what the shards exclude.
    fn of_ranges(key_types: &[KeyType], lows: &[&[KeyDatum]], moved: &[i32]) -> (String, String) {
        let bound = |data: &&[KeyDatum]| Some(Bound::Key(Key::new(data.to_vec()).ordered_bytes()));
        let lows: Vec<Option<Bound>> = [None].into_iter().chain(lows.iter().map(bound)).collect();
        let group = group(Strategy::Range, key_types, &lows);
        let set = KeySet::Ranges(key_ranges(&group, &ids(moved)).expect("keys"));
        let key: Vec<KeyColumn> = ["a", "b"].iter().zip(key_types).map(|(name, key_type)| column(name, *key_type)).collect();
        (set.condition(&key, &group, "").expect("a condition"), set.residue_values(key_types))
    }

    #[test]
    fn ranges_are_compared_as_the_map_compares_them() {
        let int = KeyDatum::Int;
        let text = |text: &str| KeyDatum::Text(text.into());
        let (condition, excluded) = of_ranges(&[KeyType::Int4], &[&[int(5)], &[int(9)]], &[2, 3]);
        assert_eq!(condition, r#"((("a" OPERATOR(pg_catalog.>=) '5'::pg_catalog.int4)))"#);
        assert_eq!(excluded, r#"NULL, NULL,  E'{"[\\"5\\",)"}', NULL"#);
        let (condition, _) = of_ranges(&[KeyType::Int4], &[&[int(5)], &[int(9)]], &[1, 3]);
        assert_eq!(
            condition,
            r#"((("a" OPERATOR(pg_catalog.<) '5'::pg_catalog.int4) OR ("a" OPERATOR(pg_catalog.>=) '9'::pg_catalog.int4)))"#
        );
        let (condition, excluded) = of_ranges(&[KeyType::Int4], &[], &[1]);
        assert_eq!((condition.as_str(), excluded.as_str()), (r#"("a" IS NOT NULL AND (true))"#, r#"NULL, NULL, '{"(,)"}', NULL"#));
        let (condition, _) = of_ranges(&[KeyType::Text], &[&[text("g'")], &[text("p")]], &[2]);
        assert_eq!(
            condition,
            r#"((("a" COLLATE pg_catalog."C" OPERATOR(pg_catalog.>=) 'g'''::pg_catalog.text AND "a" COLLATE pg_catalog."C" OPERATOR(pg_catalog.<) 'p'::pg_catalog.text)))"#
        );
        // A bound of the first column only is the beginning of all keys with it.
        let (condition, excluded) = of_ranges(&[KeyType::Text, KeyType::Int2], &[&[text("eu")], &[text("us"), int(3)]], &[2]);
        assert_eq!(
            condition,
            r#"("a" IS NOT NULL AND "b" IS NOT NULL AND (("a" COLLATE pg_catalog."C" OPERATOR(pg_catalog.>=) 'eu'::pg_catalog.text AND ROW("a" COLLATE pg_catalog."C", "b") OPERATOR(pg_catalog.<) ROW('us'::pg_catalog.text, '3'::pg_catalog.int2))))"#
        );
        assert_eq!(excluded, r#"NULL, NULL,  E'{"[\\"(eu,-32768)\\",\\"(us,3)\\")"}', NULL"#);
    }

    #[test]
    fn the_default_partition_has_all_keys_but_those_of_lists() {
        let group = group(Strategy::Lookup, &[KeyType::Text], &[None]);
        let set = KeySet::OtherKeys(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(
            set.condition(&[column("a", KeyType::Text)], &group, "old.").expect("a condition"),
            r#"(old."a" IS NOT NULL AND NOT (old."a" OPERATOR(pg_catalog.=) ANY ('{"a","b"}'::pg_catalog.text[])))"#
        );
        assert_eq!(set.residue_values(&[KeyType::Text]), r#"NULL, NULL, NULL, '{"a","b"}'"#);
        // Of several columns each is compared.
        let types = [KeyType::Text, KeyType::Int4];
        let pairs = self::group(Strategy::Lookup, &types, &[None]);
        let key = [column("a", KeyType::Text), column("b", KeyType::Int4)];
        let set = KeySet::Keys(vec!["(eu,1)".to_owned(), "(\"a, b\",2)".to_owned()]);
        assert_eq!(
            set.condition(&key, &pairs, "").expect("a condition"),
            r#"("a" IS NOT NULL AND "b" IS NOT NULL AND (ROW("a" COLLATE pg_catalog."C", "b") OPERATOR(pg_catalog.=) ROW('eu'::pg_catalog.text, '1'::pg_catalog.int4) OR ROW("a" COLLATE pg_catalog."C", "b") OPERATOR(pg_catalog.=) ROW('a, b'::pg_catalog.text, '2'::pg_catalog.int4)))"#
        );
        assert!(KeySet::Keys(vec!["(x)".to_owned()]).condition(&key, &pairs, "").is_err());
    }

    #[test]
    fn lookup_keys_are_quoted_as_elements() {
        assert_eq!(array(&["a".to_owned(), "b\"\\c,".to_owned()]), "{\"a\",\"b\\\"\\\\c,\"}");
    }
}
