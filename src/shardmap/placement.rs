//! Where the partitions of a new colocation group begin, and on which shards they lie.
//!
//! Pure: the caller decides which shards and how many partitions.

use super::model::Bound;

/// One partition of a group that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct NewPartition {
    /// Inclusive; `None`: from the beginning of the key space.
    pub low: Option<Bound>,
    /// Name of the shard.
    pub shard: String,
}

/// Which shards give away what they have of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Emptied {
    /// This one.
    Shard(String),
    /// All others: everything goes to this one.
    AllBut(String),
}

/// The bounds of `count` slices of the hash space that differ by at most one in size. `count` of 0 gives none.
pub fn hash_slices(count: u32) -> Vec<Option<Bound>> {
    let low = |slice: u32| {
        let offset = (u128::from(slice) << 64) / u128::from(count);
        // At most 2^64 - 1, since slice < count.
        let offset = u64::try_from(offset).unwrap_or(u64::MAX);
        Bound::Hash((offset ^ (1 << 63)).cast_signed())
    };
    (0..count).map(|slice| (slice > 0).then(|| low(slice))).collect()
}

/// The bounds dealt out over the shards in turn. With no shard: no partition.
pub fn spread(lows: Vec<Option<Bound>>, shards: &[String]) -> Vec<NewPartition> {
    lows.into_iter().zip(shards.iter().cycle()).map(|(low, shard)| NewPartition { low, shard: shard.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: u32) -> Vec<Option<i64>> {
        let number = |bound: Option<Bound>| match bound {
            None => None,
            Some(Bound::Hash(hash)) => Some(hash),
            Some(Bound::Key(_)) => panic!("a key among hashes"),
        };
        hash_slices(count).into_iter().map(number).collect()
    }

    #[test]
    fn slices_are_equal_and_begin_at_the_beginning() {
        assert_eq!(numbers(0), []);
        assert_eq!(numbers(1), [None]);
        assert_eq!(numbers(2), [None, Some(0)]);
        assert_eq!(numbers(4), [None, Some(-(1 << 62)), Some(0), Some(1 << 62)]);
        let many = numbers(100_000);
        let lows: Vec<i128> = many.iter().map(|low| i128::from(low.unwrap_or(i64::MIN))).collect();
        let sizes: Vec<i128> = lows.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(sizes.iter().all(|size| (1_i128 << 64) / 100_000 <= *size && *size <= (1_i128 << 64) / 100_000 + 1));
    }

    #[test]
    fn partitions_are_dealt_out_in_turn() {
        let shards = ["a".to_owned(), "b".to_owned()];
        let names: Vec<_> = spread(hash_slices(3), &shards).into_iter().map(|partition| partition.shard).collect();
        assert_eq!(names, ["a", "b", "a"]);
        assert_eq!(spread(hash_slices(3), &[]), []);
    }
}
