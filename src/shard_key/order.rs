//! A form of a key whose bytes sort as PostgreSQL's btree operators sort the key, column by column.
//!
//! Range partitions are bounded by these bytes, in the shard map's database and in memory. Prefix-free per column: the bytes
//! of `(a)` are a prefix of those of every `(a, b)` and of nothing else, so that a key of the first columns only stands for
//! the beginning of all keys with these columns, and [`after_prefix`] for their end. Text sorts bytewise, as under the C
//! collation. Decodable, given the types.
//!
//! | datum | bytes |
//! |---|---|
//! | integers, timestamps | 8, big-endian, sign bit flipped |
//! | date | 4, likewise; the infinities are the ends of the range, as in PostgreSQL |
//! | uuid | 16 |
//! | boolean | 1 |
//! | text, char(n), bytea | the bytes, `00` as `00 ff`, ended by `00 00` |

use super::{DatumRef, Key, KeyDatum, KeyType};

impl Key {
    /// See the module.
    pub fn ordered_bytes(&self) -> Box<[u8]> {
        let mut out = Vec::with_capacity(16 * self.data().len());
        self.data().iter().for_each(|datum| datum.as_ref().write_ordered(&mut out));
        out.into_boxed_slice()
    }

    /// The key of these bytes: as many columns as they hold, at least one. `None`: they are no such bytes.
    pub fn from_ordered_bytes(types: &[KeyType], bytes: &[u8]) -> Option<Self> {
        let mut data = Vec::with_capacity(types.len());
        let mut rest = bytes;
        for key_type in types {
            if rest.is_empty() && !data.is_empty() {
                break;
            }
            let (datum, after) = read_ordered(*key_type, rest)?;
            data.push(datum);
            rest = after;
        }
        (rest.is_empty() && !data.is_empty()).then(|| Self::new(data))
    }
}

impl DatumRef<'_> {
    pub fn write_ordered(&self, out: &mut Vec<u8>) {
        match self {
            DatumRef::Int(value) | DatumRef::Timestamp(value) => {
                out.extend_from_slice(&(value.cast_unsigned() ^ SIGN_64).to_be_bytes());
            }
            DatumRef::Date(days) => out.extend_from_slice(&(days.cast_unsigned() ^ SIGN_32).to_be_bytes()),
            DatumRef::Uuid(bytes) => out.extend_from_slice(bytes),
            DatumRef::Bool(value) => out.push(u8::from(*value)),
            DatumRef::Text(text) => write_terminated(text.as_bytes(), out),
            DatumRef::Bytea(bytes) => write_terminated(bytes, out),
        }
    }
}

/// The smallest bytes that are greater than everything that begins with `prefix`; `None`: there are none.
pub fn after_prefix(prefix: &[u8]) -> Option<Box<[u8]>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut after = prefix.get(..=last)?.to_vec();
    *after.last_mut()? += 1;
    Some(after.into_boxed_slice())
}

fn write_terminated(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        out.push(*byte);
        if *byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

fn read_ordered(key_type: KeyType, bytes: &[u8]) -> Option<(KeyDatum, &[u8])> {
    match key_type {
        KeyType::Int2 => read_int(bytes, i64::from(i16::MIN), i64::from(i16::MAX)),
        KeyType::Int4 => read_int(bytes, i64::from(i32::MIN), i64::from(i32::MAX)),
        KeyType::Int8 => read_int(bytes, i64::MIN, i64::MAX),
        KeyType::Timestamp | KeyType::Timestamptz => {
            let (value, rest) = read_int8(bytes)?;
            Some((KeyDatum::Timestamp(value), rest))
        }
        KeyType::Date => {
            let (word, rest) = bytes.split_first_chunk::<4>()?;
            Some((KeyDatum::Date((u32::from_be_bytes(*word) ^ SIGN_32).cast_signed()), rest))
        }
        KeyType::Uuid => {
            let (uuid, rest) = bytes.split_first_chunk::<16>()?;
            Some((KeyDatum::Uuid(*uuid), rest))
        }
        KeyType::Bool => match bytes.split_first()? {
            (0, rest) => Some((KeyDatum::Bool(false), rest)),
            (1, rest) => Some((KeyDatum::Bool(true), rest)),
            _ => None,
        },
        KeyType::Text | KeyType::Bpchar => {
            let (text, rest) = read_terminated(bytes)?;
            let text = String::from_utf8(text).ok()?;
            let is_stripped = key_type == KeyType::Text || !text.ends_with(' ');
            (is_stripped && !text.contains('\0')).then(|| (KeyDatum::Text(text.into_boxed_str()), rest))
        }
        KeyType::Bytea => {
            let (value, rest) = read_terminated(bytes)?;
            Some((KeyDatum::Bytea(value.into_boxed_slice()), rest))
        }
    }
}

fn read_int(bytes: &[u8], min: i64, max: i64) -> Option<(KeyDatum, &[u8])> {
    let (value, rest) = read_int8(bytes)?;
    (min..=max).contains(&value).then_some((KeyDatum::Int(value), rest))
}

fn read_int8(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<8>()?;
    Some(((u64::from_be_bytes(*word) ^ SIGN_64).cast_signed(), rest))
}

fn read_terminated(bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut value = Vec::new();
    let mut rest = bytes;
    loop {
        match rest {
            [0, 0, after @ ..] => return Some((value, after)),
            [0, 0xff, after @ ..] => {
                value.push(0);
                rest = after;
            }
            [0, ..] | [] => return None,
            [byte, after @ ..] => {
                value.push(*byte);
                rest = after;
            }
        }
    }
}

const SIGN_64: u64 = 1 << 63;
const SIGN_32: u32 = 1 << 31;
