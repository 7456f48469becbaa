//! Tables and types have other oids on each shard; clients know those of the home shard, where they look them up.
//!
//! Row descriptions of another shard are translated in place. What both shards number alike is not listed, and what is not
//! listed stays as it is: system types, and what only that shard has.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::prepared::IdHasher;

/// Oids by what they stand for, of one shard.
pub type OidNames = HashMap<Vec<u8>, u32>;

/// From one shard's oids to the home shard's.
#[derive(Debug, Default)]
pub struct ForeignOids {
    /// Of the catalogue that it was made for; 0: of none.
    pub version: u64,
    to_home: HashMap<u32, u32, BuildHasherDefault<IdHasher>>,
}

impl ForeignOids {
    pub fn between(version: u64, shard: &OidNames, home: &OidNames) -> Self {
        let pairs = shard.iter().filter_map(|(name, oid)| Some((*oid, *home.get(name)?)));
        Self { version, to_home: pairs.filter(|(oid, home)| oid != home).collect() }
    }

    #[inline]
    pub fn at_home(&self, oid: u32) -> u32 {
        self.to_home.get(&oid).copied().unwrap_or(oid)
    }

    /// The body of a RowDescription. One that cannot be read is left as it is.
    pub fn translate(&self, body: &mut [u8]) {
        if self.to_home.is_empty() {
            return;
        }
        let Some((count, mut rest)) = body.split_first_chunk_mut::<2>() else { return };
        for _ in 0..u16::from_be_bytes(*count) {
            let Some(name_end) = rest.iter().position(|&byte| byte == 0) else { return };
            let Some(fields) = rest.get_mut(name_end + 1..) else { return };
            let Some((fixed, after)) = fields.split_first_chunk_mut::<FIXED_BYTES>() else { return };
            let [t0, t1, t2, t3, _, _, y0, y1, y2, y3, ..] = fixed;
            for [a, b, c, d] in [[t0, t1, t2, t3], [y0, y1, y2, y3]] {
                [*a, *b, *c, *d] = self.at_home(u32::from_be_bytes([*a, *b, *c, *d])).to_be_bytes();
            }
            rest = after;
        }
    }
}

/// Table, column number, type, size, modifier, format.
const FIXED_BYTES: usize = 18;

/// What [`OidNames`] is read from: a name that is the same on every shard, and the oid.
pub const OID_NAMES_SQL: &str = "SELECT 'c' || pg_catalog.format('%I.%I', n.nspname, c.relname), c.oid \
     FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
     WHERE c.oid >= 16384 AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^pg_t' \
     UNION ALL SELECT 't' || pg_catalog.format('%I.%I', n.nspname, t.typname), t.oid \
     FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
     WHERE t.oid >= 16384 AND n.nspname !~ '^pg_t'";

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pairs: &[(&str, u32)]) -> OidNames {
        pairs.iter().map(|(name, oid)| (name.as_bytes().to_vec(), *oid)).collect()
    }

    fn field(name: &str, table: u32, type_oid: u32) -> Vec<u8> {
        [name.as_bytes(), b"\0", &table.to_be_bytes(), &[0, 1], &type_oid.to_be_bytes(), &[0, 4, 255, 255, 255, 255, 0, 0]].concat()
    }

    #[test]
    fn tables_and_types_get_the_home_shards_oids() {
        let home = names(&[("cpublic.t", 20001), ("tpublic.mood", 20002), ("tpublic.same", 20003)]);
        let shard = names(&[("cpublic.t", 30001), ("tpublic.mood", 20001), ("tpublic.same", 20003), ("tonly.here", 40000)]);
        let oids = ForeignOids::between(1, &shard, &home);
        let mut body = [&[0, 3][..], &field("a", 30001, 20001), &field("b", 0, 23), &field("", 40000, 20003)].concat();
        oids.translate(&mut body);
        assert_eq!(body, [&[0, 3][..], &field("a", 20001, 20002), &field("b", 0, 23), &field("", 40000, 20003)].concat());
    }

    #[test]
    fn what_is_cut_short_is_left_alone() {
        let oids = ForeignOids::between(1, &names(&[("cpublic.t", 2)]), &names(&[("cpublic.t", 1)]));
        let whole = [&[0, 1][..], &field("a", 2, 2)].concat();
        for end in 0..whole.len() {
            let mut body = whole[..end].to_vec();
            oids.translate(&mut body);
            assert_eq!(body, whole[..end]);
        }
    }
}
