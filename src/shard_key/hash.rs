//! PostgreSQL's own hash of a key, so that a shard can evaluate it without us.
//!
//! A port of `hash_bytes_extended` and `hash_bytes_uint32_extended` (src/common/hashfn.c, Bob Jenkins' lookup3), as the second
//! support function of each type's default hash operator class uses them:
//!
//! | key type | PostgreSQL's function |
//! |---|---|
//! | int2, int4, int8 | `hashint8extended` (the halves are folded, so that the three agree) |
//! | text, varchar | `hashtextextended` under a deterministic collation: the bytes |
//! | char(n) | `hashbpcharextended`: the bytes without trailing blanks |
//! | uuid | `uuid_hash_extended` |
//! | date | `hashint4extended` of the day number |
//! | timestamp, timestamptz | `timestamp_hash_extended`, the same as `hashint8extended` of the microseconds |
//! | boolean | `hashcharextended`, the same as `hashint4extended` of 0 or 1 |
//! | bytea | `hashvarlenaextended`: the bytes |
//! | numeric | `hash_numeric_extended`: digits of base 10,000 without zeros at either end, xor their weight; no sign |
//!
//! Several columns chain the seed: `h(b, h(a, 0))`. [`KeyType::hash_sql`] is the same as an SQL expression. Golden vectors from
//! a real server pin all of it (tests/it/shard_key). Little-endian servers only: on the few big-endian ones PostgreSQL
//! hashes bytes differently.

use smallvec::SmallVec;

use super::{DatumRef, Decimal, Key, KeyDatum, KeyType};

impl Key {
    /// `h(last, … h(second, h(first, 0)))`: the point of the hash space where this key lies.
    pub fn hash(&self) -> i64 {
        to_signed(self.data().iter().fold(0, |seed, datum| datum.hash_with_seed(seed)))
    }
}

impl KeyDatum {
    /// The hash of one column; `seed` is 0 for the first column and the hash of the columns before for the others.
    pub fn hash_with_seed(&self, seed: u64) -> u64 {
        self.as_ref().hash_with_seed(seed)
    }
}

impl DatumRef<'_> {
    /// The hash of a key that has only this column.
    pub fn hash(&self) -> i64 {
        to_signed(self.hash_with_seed(0))
    }

    /// See [`KeyDatum::hash_with_seed`].
    pub fn hash_with_seed(&self, seed: u64) -> u64 {
        match self {
            DatumRef::Int(value) | DatumRef::Timestamp(value) => hash_int8(*value, seed),
            DatumRef::Text(text) => hash_bytes(text.as_bytes(), seed),
            DatumRef::Uuid(bytes) => hash_bytes(bytes, seed),
            DatumRef::Date(days) => hash_uint32(days.cast_unsigned(), seed),
            DatumRef::Bool(value) => hash_uint32(u32::from(*value), seed),
            DatumRef::Bytea(bytes) => hash_bytes(bytes, seed),
            DatumRef::Numeric(decimal) => hash_numeric(decimal, seed),
        }
    }
}

impl KeyType {
    /// The same hash as an SQL expression over `column` (quoted already) with the seed expression `seed`. Immutable built-in
    /// functions only, so that it is accepted in a publication's row filter, a trigger's WHEN and an index. A record of one
    /// column hashes as that column; it serves the types whose hash function cannot be called by name.
    pub fn hash_sql(self, column: &str, seed: &str) -> String {
        match self {
            KeyType::Int2 | KeyType::Int4 | KeyType::Int8 => format!("pg_catalog.hashint8extended({column}, {seed})"),
            KeyType::Text => format!("pg_catalog.hashtextextended({column}, {seed})"),
            KeyType::Bpchar => format!("pg_catalog.hashbpcharextended({column}, {seed})"),
            KeyType::Uuid => format!("pg_catalog.uuid_hash_extended({column}, {seed})"),
            KeyType::Timestamp => format!("pg_catalog.timestamp_hash_extended({column}, {seed})"),
            KeyType::Numeric => format!("pg_catalog.hash_numeric_extended({column}, {seed})"),
            KeyType::Date | KeyType::Timestamptz | KeyType::Bool | KeyType::Bytea => {
                format!("pg_catalog.hash_record_extended(ROW({column}), {seed})")
            }
        }
    }
}

/// The hash space is int8, as PostgreSQL's functions return it.
fn to_signed(hash: u64) -> i64 {
    hash.cast_signed()
}

/// `hashint8extended`. Folding the halves makes equal int2, int4 and int8 hash alike.
#[inline]
fn hash_int8(value: i64, seed: u64) -> u64 {
    let bits = value.cast_unsigned();
    let (low, high) = (low_half(bits), high_half(bits));
    hash_uint32(low ^ if value >= 0 { high } else { !high }, seed)
}

/// `hash_numeric_extended`.
fn hash_numeric(decimal: &Decimal, seed: u64) -> u64 {
    let Some(groups) = decimal.groups() else {
        return if decimal.is_zero() { seed.wrapping_sub(1) } else { seed };
    };
    let bytes: SmallVec<[u8; 32]> = groups.digits.iter().flat_map(|digit| digit.to_le_bytes()).collect();
    hash_bytes(&bytes, seed) ^ i64::from(groups.weight).cast_unsigned()
}

/// `hash_bytes_uint32_extended`.
#[inline]
fn hash_uint32(value: u32, seed: u64) -> u64 {
    let mut state = State::new(4, seed);
    state.a = state.a.wrapping_add(value);
    state.finish()
}

/// `hash_bytes_extended`.
fn hash_bytes(bytes: &[u8], seed: u64) -> u64 {
    // PostgreSQL's lengths are int: a value has less than 1 GB.
    let mut state = State::new(low_half(bytes.len() as u64), seed);
    let (chunks, tail) = bytes.as_chunks::<12>();
    for [a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3] in chunks {
        state.a = state.a.wrapping_add(u32::from_le_bytes([*a0, *a1, *a2, *a3]));
        state.b = state.b.wrapping_add(u32::from_le_bytes([*b0, *b1, *b2, *b3]));
        state.c = state.c.wrapping_add(u32::from_le_bytes([*c0, *c1, *c2, *c3]));
        state.mix();
    }
    for (position, byte) in tail.iter().enumerate() {
        let byte = u32::from(*byte);
        match position {
            0..4 => state.a = state.a.wrapping_add(byte << (8 * position)),
            4..8 => state.b = state.b.wrapping_add(byte << (8 * (position - 4))),
            // The lowest byte of c is reserved for the length.
            _ => state.c = state.c.wrapping_add(byte << (8 * (position - 7))),
        }
    }
    state.finish()
}

/// The three words of lookup3.
struct State {
    a: u32,
    b: u32,
    c: u32,
}

impl State {
    #[inline]
    fn new(length: u32, seed: u64) -> Self {
        let start = 0x9e37_79b9_u32.wrapping_add(length).wrapping_add(3_923_095);
        let mut state = Self { a: start, b: start, c: start };
        if seed != 0 {
            state.a = state.a.wrapping_add(high_half(seed));
            state.b = state.b.wrapping_add(low_half(seed));
            state.mix();
        }
        state
    }

    #[inline]
    fn mix(&mut self) {
        let Self { a, b, c } = self;
        mix_step(a, b, c, 4);
        mix_step(b, c, a, 6);
        mix_step(c, a, b, 8);
        mix_step(a, b, c, 16);
        mix_step(b, c, a, 19);
        mix_step(c, a, b, 4);
    }

    #[inline]
    fn finish(self) -> u64 {
        let Self { mut a, mut b, mut c } = self;
        final_step(&mut c, b, 14);
        final_step(&mut a, c, 11);
        final_step(&mut b, a, 25);
        final_step(&mut c, b, 16);
        final_step(&mut a, c, 4);
        final_step(&mut b, a, 14);
        final_step(&mut c, b, 24);
        (u64::from(b) << 32) | u64::from(c)
    }
}

/// `x -= z; x ^= rot(z, bits); z += y`
#[inline]
fn mix_step(x: &mut u32, y: &mut u32, z: &mut u32, bits: u32) {
    *x = x.wrapping_sub(*z) ^ z.rotate_left(bits);
    *z = z.wrapping_add(*y);
}

/// `x ^= y; x -= rot(y, bits)`
#[inline]
fn final_step(x: &mut u32, y: u32, bits: u32) {
    *x = (*x ^ y).wrapping_sub(y.rotate_left(bits));
}

#[inline]
fn low_half(bits: u64) -> u32 {
    (bits & 0xffff_ffff) as u32
}

#[inline]
fn high_half(bits: u64) -> u32 {
    (bits >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_that_postgresql_computed() {
        for line in include_str!("../../tests/golden/shard_key_hash.txt").lines().filter(|line| !line.starts_with('#')) {
            let [type_name, seed, text, hash] = line.split('\t').collect::<Vec<_>>().try_into().expect("four fields");
            let datum = KeyDatum::parse(KeyType::from_name(type_name).expect("a key type"), text).expect("a value");
            let seed: i64 = seed.parse().expect("a seed");
            assert_eq!(datum.hash_with_seed(seed.cast_unsigned()).cast_signed().to_string(), hash, "{line}");
        }
    }

    #[test]
    fn integers_of_every_width_hash_alike_and_other_types_do_not() {
        let hash = |datum: KeyDatum| Key::new(vec![datum]).hash();
        assert_eq!(hash(KeyDatum::Int(1)), hash(KeyDatum::Bool(true)));
        assert_eq!(hash(KeyDatum::Int(-1)), hash(KeyDatum::Date(-1)));
        assert_ne!(hash(KeyDatum::Int(1 << 32)), hash(KeyDatum::Int(0)));
        assert_ne!(hash(KeyDatum::Text("1".into())), hash(KeyDatum::Int(1)));
    }

    #[test]
    fn columns_chain_in_order() {
        let (one, two) = (KeyDatum::Int(1), KeyDatum::Int(2));
        let chained = two.hash_with_seed(one.hash_with_seed(0)).cast_signed();
        assert_eq!(Key::new(vec![one.clone(), two.clone()]).hash(), chained);
        assert_ne!(Key::new(vec![two, one]).hash(), chained);
    }
}
