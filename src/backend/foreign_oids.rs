//! Tables and types have other oids on each shard; clients know those of the home shard, where they look them up.
//!
//! Row descriptions of another shard are translated in place, and so are values in binary form that name types: arrays name the
//! type of their elements, composite values that of each field. Parameters of these kinds are translated the other way. What
//! both shards number alike is not listed, and what is not listed stays as it is: system types, and what only that shard has.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use super::prepared::IdHasher;
use crate::catalog::FIRST_USER_OID;
use crate::shard_key::Format;
use crate::wire::{Bind, FieldDescription, bind, for_each_column, row_description};

/// What one shard calls a table or a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OidName {
    pub oid: u32,
    /// Where a value of it names types.
    pub nesting: Option<Nesting>,
}

/// Oids by what they stand for, of one shard.
pub type OidNames = HashMap<Vec<u8>, OidName>;

/// Where a value in binary form names types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nesting {
    /// Once, before its elements.
    Array,
    /// Before each field.
    Composite,
}

impl Nesting {
    /// By the letter of [`OID_NAMES_SQL`].
    pub fn from_letter(letter: &[u8]) -> Option<Self> {
        match letter {
            b"a" => Some(Nesting::Array),
            b"c" => Some(Nesting::Composite),
            _ => None,
        }
    }
}

type ByOid<T> = HashMap<u32, T, BuildHasherDefault<IdHasher>>;

/// From the oids of one shard to another one's.
#[derive(Debug, Default)]
struct Translation {
    oids: ByOid<u32>,
    nestings: ByOid<Nesting>,
}

/// Between one shard's oids and the home shard's.
#[derive(Debug, Default)]
pub struct ForeignOids {
    /// Of the catalogue that it was made for; 0: of none.
    pub version: u64,
    /// Of another shard than the home shard.
    is_foreign: bool,
    to_home: Translation,
    from_home: Translation,
    /// Types of users, by the home shard's oids.
    types: ByOid<u32>,
}

/// Columns, or parameters, whose values in binary form name types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NestedValues(SmallVec<[(usize, Nesting); 2]>);

impl ForeignOids {
    pub fn between(version: u64, shard: &OidNames, home: &OidNames) -> Self {
        let pairs = shard.iter().filter_map(|(name, there)| Some((*there, *home.get(name)?)));
        let pairs: Vec<(OidName, OidName)> = pairs.collect();
        let reversed = pairs.iter().map(|(there, home)| (*home, *there));
        let types = home.iter().filter(|(name, _)| name.starts_with(TYPE));
        Self {
            version,
            is_foreign: true,
            to_home: Translation::of(pairs.iter().copied()),
            from_home: Translation::of(reversed),
            types: types.filter_map(|(name, home)| Some((home.oid, shard.get(name)?.oid))).collect(),
        }
    }

    /// Of a shard whose oids are not known.
    pub fn unknown() -> Self {
        Self { is_foreign: true, ..Self::default() }
    }

    /// These types, as a Parse declares them, there; 0, which leaves it to the shard, where that is not known.
    pub fn types_there<'t>(&self, types: &'t [u32]) -> Cow<'t, [u32]> {
        if !self.is_foreign || !types.iter().any(|oid| is_user_type(*oid)) {
            return Cow::Borrowed(types);
        }
        let there = |oid: &u32| if is_user_type(*oid) { self.types.get(oid).copied().unwrap_or(0) } else { *oid };
        types.iter().map(there).collect()
    }

    #[inline]
    pub fn at_home(&self, oid: u32) -> u32 {
        self.to_home.at(oid)
    }

    /// The body of a RowDescription. One that cannot be read is left as it is.
    pub fn translate(&self, body: &mut [u8]) {
        if self.to_home.oids.is_empty() {
            return;
        }
        let translated = for_each_column(body, |[t0, t1, t2, t3, _, _, y0, y1, y2, y3, ..]| {
            for [a, b, c, d] in [[t0, t1, t2, t3], [y0, y1, y2, y3]] {
                [*a, *b, *c, *d] = self.at_home(u32::from_be_bytes([*a, *b, *c, *d])).to_be_bytes();
            }
        });
        if let Err(error) = translated {
            tracing::debug!(%error, "a row description that cannot be read");
        }
    }

    /// The same, read. Returns the columns whose values have to be translated by [`ForeignOids::translate_row`].
    pub fn translate_columns(&self, columns: &mut [FieldDescription]) -> NestedValues {
        let mut nested = NestedValues::default();
        for (index, column) in columns.iter_mut().enumerate() {
            if column.format != 0
                && let Some(nesting) = self.to_home.nesting(column.type_oid)
            {
                nested.0.push((index, nesting));
            }
            column.type_oid = self.at_home(column.type_oid);
            column.table_oid = self.at_home(column.table_oid);
        }
        nested
    }

    /// The columns whose values have to be translated, by the home shard's RowDescription and the formats that Bind asks for.
    pub fn nested_columns(&self, description: &[u8], bind: &Bind<'_>) -> NestedValues {
        let Ok(columns) = row_description(description) else { return NestedValues::default() };
        let nested = columns.iter().enumerate().filter(|(index, _)| bind.result_format(*index) == Format::Binary);
        NestedValues(nested.filter_map(|(index, column)| Some((index, self.from_home.nesting(column.type_oid)?))).collect())
    }

    /// The body of a DataRow. One that cannot be read is left as it is from there on.
    pub fn translate_row(&self, nested: &NestedValues, body: &mut [u8]) {
        if nested.is_empty() || self.to_home.oids.is_empty() {
            return;
        }
        let Some((_, values)) = body.split_first_chunk_mut::<2>() else { return };
        self.to_home.translate_values(nested, values);
    }

    /// The same of a row that is kept.
    pub fn row_at_home(&self, nested: &NestedValues, body: Bytes) -> Bytes {
        if nested.is_empty() || self.to_home.oids.is_empty() {
            return body;
        }
        let mut row = BytesMut::from(body);
        self.translate_row(nested, &mut row);
        row.freeze()
    }

    /// `after_names`, the part of this Bind after the names, for this shard; `None`: as it is. Its result formats may be others.
    /// `types`: the parameters', as the home shard has them.
    pub fn parameters_there(&self, types: &[u32], bind: &Bind<'_>, after_names: &[u8]) -> Option<Vec<u8>> {
        if self.from_home.oids.is_empty() {
            return None;
        }
        let formats = bind.parameters().map(|(format, _)| format).zip(types).enumerate();
        let nested = formats.filter(|(_, (format, _))| *format == Format::Binary);
        let nested = NestedValues(nested.filter_map(|(index, (_, oid))| Some((index, self.from_home.nesting(*oid)?))).collect());
        if nested.is_empty() {
            return None;
        }
        let mut there = after_names.to_vec();
        let values = there.get_mut(bind.values_start()..)?;
        self.from_home.translate_values(&nested, values);
        Some(there)
    }
}

impl ForeignOids {
    /// The part of a Bind after the names, for this shard. `types`: the parameters', as the home shard has them.
    pub fn bind_there<'b>(&self, types: &[u32], after_names: &'b [u8]) -> Cow<'b, [u8]> {
        if self.from_home.oids.is_empty() {
            return Cow::Borrowed(after_names);
        }
        let body = [&NO_NAMES[..], after_names].concat();
        let there = bind(&body).ok().and_then(|bind| self.parameters_there(types, &bind, after_names));
        there.map_or(Cow::Borrowed(after_names), Cow::Owned)
    }
}

impl NestedValues {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Translation {
    fn of(pairs: impl Iterator<Item = (OidName, OidName)>) -> Self {
        let mut translation = Self::default();
        for (from, to) in pairs {
            if from.oid != to.oid {
                translation.oids.insert(from.oid, to.oid);
            }
            if let Some(nesting) = from.nesting {
                translation.nestings.insert(from.oid, nesting);
            }
        }
        translation
    }

    #[inline]
    fn at(&self, oid: u32) -> u32 {
        self.oids.get(&oid).copied().unwrap_or(oid)
    }

    /// Records of no declared type may hold values of any.
    fn nesting(&self, oid: u32) -> Option<Nesting> {
        match oid {
            RECORD => Some(Nesting::Composite),
            RECORD_ARRAY => Some(Nesting::Array),
            _ => self.nestings.get(&oid).copied(),
        }
    }

    /// Values one after another, each after its length.
    fn translate_values(&self, nested: &NestedValues, mut rest: &mut [u8]) {
        let last = nested.0.last().map_or(0, |(index, _)| index + 1);
        for index in 0..last {
            let Some((value, after)) = split_value(rest) else { return };
            if let (Some(value), Some((_, nesting))) = (value, nested.0.iter().find(|(column, _)| *column == index)) {
                self.translate_value(*nesting, value, 0);
            }
            rest = after;
        }
    }

    /// `None`: it cannot be read any further.
    fn translate_value(&self, nesting: Nesting, value: &mut [u8], depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        let (count, rest) = value.split_first_chunk_mut::<4>()?;
        let count = i32::from_be_bytes(*count);
        match nesting {
            Nesting::Array => {
                let (_, rest) = rest.split_first_chunk_mut::<4>()?;
                let (oid, rest) = rest.split_first_chunk_mut::<4>()?;
                let Some(element) = self.nesting(self.exchange(oid)) else { return Some(()) };
                let mut rest = rest.get_mut(usize::try_from(count).ok()?.checked_mul(8)?..)?;
                while !rest.is_empty() {
                    rest = self.translate_next(Some(element), rest, depth)?;
                }
            }
            Nesting::Composite => {
                let mut rest = rest;
                for _ in 0..count {
                    let (oid, after) = rest.split_first_chunk_mut::<4>()?;
                    rest = self.translate_next(self.nesting(self.exchange(oid)), after, depth)?;
                }
            }
        }
        Some(())
    }

    /// The value at the front; what follows it.
    fn translate_next<'v>(&self, nesting: Option<Nesting>, rest: &'v mut [u8], depth: usize) -> Option<&'v mut [u8]> {
        let (value, after) = split_value(rest)?;
        if let (Some(value), Some(nesting)) = (value, nesting) {
            self.translate_value(nesting, value, depth + 1)?;
        }
        Some(after)
    }

    /// Puts the other shard's oid. Returns the one that was there.
    fn exchange(&self, bytes: &mut [u8; 4]) -> u32 {
        let oid = u32::from_be_bytes(*bytes);
        *bytes = self.at(oid).to_be_bytes();
        oid
    }
}

/// A value behind its length (the inner `None`: NULL), and what follows it.
fn split_value(rest: &mut [u8]) -> Option<(Option<&mut [u8]>, &mut [u8])> {
    let (length, rest) = rest.split_first_chunk_mut::<4>()?;
    match usize::try_from(i32::from_be_bytes(*length)) {
        Ok(length) => rest.split_at_mut_checked(length).map(|(value, after)| (Some(value), after)),
        Err(_) => Some((None, rest)),
    }
}

/// A record of no declared type, or an array of such: may hold values of any type.
pub fn is_record(oid: u32) -> bool {
    matches!(oid, RECORD | RECORD_ARRAY)
}

/// Made by users: other types have the same oids on every shard.
pub fn is_user_type(oid: u32) -> bool {
    oid >= FIRST_USER_OID
}

const RECORD: u32 = 2249;
const RECORD_ARRAY: u32 = 2287;
/// PostgreSQL's own stack ends before.
const DEPTH_MAX: usize = 100;

/// Of a portal and of a statement.
const NO_NAMES: [u8; 2] = [0, 0];
/// How the names of types begin.
const TYPE: &[u8] = b"t";
/// What [`OidNames`] is read from: a name that is the same on every shard, the oid, and the letter of [`Nesting`].
pub const OID_NAMES_SQL: &str = "SELECT 'c' || pg_catalog.format('%I.%I', n.nspname, c.relname), c.oid, '' \
     FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
     WHERE c.oid >= 16384 AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^pg_t' \
     UNION ALL SELECT 't' || pg_catalog.format('%I.%I', n.nspname, t.typname), t.oid, \
     CASE WHEN t.typcategory = 'A' THEN 'a' WHEN t.typtype = 'c' THEN 'c' ELSE '' END \
     FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
     WHERE t.oid >= 16384 AND n.nspname !~ '^pg_t'";

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pairs: &[(&str, u32)]) -> OidNames {
        let nesting =
            |name: &str| name.starts_with("t_").then_some(Nesting::Array).or(name.ends_with("_pair").then_some(Nesting::Composite));
        pairs.iter().map(|(name, oid)| (name.as_bytes().to_vec(), OidName { oid: *oid, nesting: nesting(name) })).collect()
    }

    fn field(name: &str, table: u32, type_oid: u32) -> Vec<u8> {
        [name.as_bytes(), b"\0", &table.to_be_bytes(), &[0, 1], &type_oid.to_be_bytes(), &[0, 4, 255, 255, 255, 255, 0, 0]].concat()
    }

    #[test]
    fn tables_and_types_get_the_home_shards_oids() {
        let home = names(&[("cpublic.t", 20001), ("tpublic.mood", 20002), ("tpublic.same", 20003)]);
        let shard = names(&[("cpublic.t", 30001), ("tpublic.mood", 20001), ("tpublic.same", 20003), ("tonly.here", 40000)]);
        let oids = ForeignOids::between(1, &shard, &home);
        assert_eq!(*oids.types_there(&[23, 20002, 20003, 50000]), [23, 20001, 20003, 0]);
        assert_eq!(*ForeignOids::unknown().types_there(&[23, 20002]), [23, 0]);
        assert_eq!(*ForeignOids::default().types_there(&[23, 20002]), [23, 20002], "at home");
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

    fn value(bytes: &[u8]) -> Vec<u8> {
        [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
    }

    fn array(element: u32, values: &[Vec<u8>]) -> Vec<u8> {
        let header: [u32; 5] = [1, 0, element, u32::try_from(values.len()).unwrap(), 1];
        [header.map(u32::to_be_bytes).concat(), values.concat()].concat()
    }

    fn composite(fields: &[(u32, Vec<u8>)]) -> Vec<u8> {
        let count = u32::try_from(fields.len()).unwrap().to_be_bytes().to_vec();
        fields.iter().fold(count, |bytes, (oid, value)| [&bytes[..], &oid.to_be_bytes(), value].concat())
    }

    /// A value of every nesting, by the oids of mood, its array, and a pair.
    fn values([mood, moods, pair]: [u32; 3]) -> Vec<Vec<u8>> {
        let null = (-1_i32).to_be_bytes().to_vec();
        let (ok, many) = (value(b"ok"), array(mood, &[value(b"ok"), null.clone()]));
        let pairs = composite(&[(mood, ok.clone()), (23, value(&[0; 4])), (moods, value(&many)), (mood, null)]);
        vec![
            many,
            pairs.clone(),
            array(pair, &[value(&pairs), value(&pairs)]),
            composite(&[(2249, value(&composite(&[(mood, ok)])))]),
        ]
    }

    #[test]
    fn values_that_name_types_are_translated_to_and_fro() {
        let home = names(&[("tmood", 1), ("t_mood", 2), ("ta_pair", 3), ("t_pairs", 4)]);
        let shard = names(&[("tmood", 11), ("t_mood", 12), ("ta_pair", 13), ("t_pairs", 14)]);
        let oids = ForeignOids::between(1, &shard, &home);
        let column = |type_oid| FieldDescription {
            name: Vec::new(),
            table_oid: 0,
            attnum: 0,
            type_oid,
            type_size: -1,
            typmod: -1,
            format: 1,
        };
        let mut columns = [12, 13, 14, 2249, 23].map(column);
        let nested = oids.translate_columns(&mut columns);
        assert_eq!(columns.map(|column| column.type_oid), [2, 3, 4, 2249, 23]);
        assert_eq!(nested.0.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 1, 2, 3]);
        let row = |values: Vec<Vec<u8>>| values.iter().fold(vec![0, 5], |row, bytes| [row, value(bytes)].concat());
        let (there, here) = (row(values([11, 12, 13])), row(values([1, 2, 3])));
        let mut body = there.clone();
        oids.translate_row(&nested, &mut body);
        assert_eq!(body, here);
        let mut parameters = here[2..].to_vec();
        oids.from_home.translate_values(&nested, &mut parameters);
        assert_eq!(parameters, there[2..]);
        for end in 0..there.len() {
            // What is cut short or is no such value does no harm.
            let mut cut = there[..end].to_vec();
            oids.translate_row(&nested, &mut cut);
            assert_eq!(cut.len(), end);
        }
    }
}
