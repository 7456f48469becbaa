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
//! | numeric | as [`Decimal`] has it |

use super::{DatumRef, Decimal, Key, KeyDatum, KeyType};

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
    /// Appends the datum's part of [`Key::ordered_bytes`].
    pub fn write_ordered(&self, out: &mut impl Extend<u8>) {
        match self {
            DatumRef::Int(value) | DatumRef::Timestamp(value) => {
                out.extend((value.cast_unsigned() ^ SIGN_64).to_be_bytes());
            }
            DatumRef::Date(days) => out.extend((days.cast_unsigned() ^ SIGN_32).to_be_bytes()),
            DatumRef::Uuid(bytes) => out.extend(*bytes),
            DatumRef::Bool(value) => out.extend([u8::from(*value)]),
            DatumRef::Text(text) => write_terminated(text.as_bytes(), out),
            DatumRef::Bytea(bytes) => write_terminated(bytes, out),
            DatumRef::Numeric(decimal) => out.extend(decimal.as_bytes().iter().copied()),
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

fn write_terminated(bytes: &[u8], out: &mut impl Extend<u8>) {
    let escaped = bytes.iter().flat_map(|byte| std::iter::once(*byte).chain((*byte == 0).then_some(0xff)));
    out.extend(escaped.chain([0, 0]));
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
        KeyType::Numeric => Decimal::from_ordered(bytes).map(|(decimal, rest)| (KeyDatum::Numeric(decimal), rest)),
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::shard_key::strategies::{any_datum, any_key_type};

    #[test]
    fn infinities_are_the_ends() {
        let bytes = |datum: KeyDatum| Key::new(vec![datum]).ordered_bytes();
        assert!(bytes(KeyDatum::Date(i32::MIN)) < bytes(KeyDatum::Date(-2_451_545)));
        assert!(bytes(KeyDatum::Timestamp(i64::MAX)) > bytes(KeyDatum::Timestamp(0)));
    }

    #[test]
    fn a_key_of_the_first_columns_stands_for_the_beginning_of_all_with_them() {
        let types = [KeyType::Text, KeyType::Int4];
        let eu = Key::new(vec![KeyDatum::Text("eu".into())]);
        let eu_lowest = Key::new(vec![KeyDatum::Text("eu".into()), KeyDatum::Int(i64::from(i32::MIN))]);
        let eu_longer = Key::new(vec![KeyDatum::Text("eu1".into()), KeyDatum::Int(0)]);
        let end = after_prefix(&eu.ordered_bytes()).unwrap();
        assert!(eu.ordered_bytes() < eu_lowest.ordered_bytes());
        assert!(eu_lowest.ordered_bytes() < end);
        assert!(end <= eu_longer.ordered_bytes());
        assert_eq!(Key::from_ordered_bytes(&types, &eu.ordered_bytes()), Some(eu));
    }

    #[test]
    fn rubbish_is_no_key() {
        let bytes = |types: &[KeyType], bytes: &[u8]| Key::from_ordered_bytes(types, bytes);
        assert_eq!(bytes(&[KeyType::Int4], &[]), None);
        assert_eq!(bytes(&[KeyType::Int4], &[0; 7]), None);
        assert_eq!(bytes(&[KeyType::Int4], &[0; 8]), None, "out of range");
        assert_eq!(bytes(&[KeyType::Int8], &[0; 9]), None, "too long");
        assert_eq!(bytes(&[KeyType::Bool], &[2]), None);
        assert_eq!(bytes(&[KeyType::Text], b"abc"), None, "not ended");
        assert_eq!(bytes(&[KeyType::Text], b"a\0\xffb\0\0"), None, "text holds no NUL");
        assert_eq!(bytes(&[KeyType::Text], b"\xff\0\0"), None, "not UTF-8");
        assert_eq!(bytes(&[KeyType::Bpchar], b"a \0\0"), None, "trailing blanks");
        assert_eq!(bytes(&[], b""), None);
        assert_eq!(after_prefix(&[0xff, 0xff]), None);
        assert_eq!(after_prefix(&[1, 0xff]).as_deref(), Some(&[2][..]));
    }

    fn any_pair() -> impl Strategy<Value = (Vec<KeyType>, Key, Key)> {
        proptest::collection::vec(any_key_type(), 1..4).prop_flat_map(|types| {
            let key = || types.iter().map(|key_type| any_datum(*key_type)).collect::<Vec<_>>().prop_map(Key::new);
            (Just(types.clone()), key(), key())
        })
    }

    proptest! {
        #[test]
        fn bytes_sort_as_keys_do_and_lead_back((types, a, b) in any_pair()) {
            prop_assert_eq!(a.ordered_bytes().cmp(&b.ordered_bytes()), a.cmp(&b));
            prop_assert_eq!(Key::from_ordered_bytes(&types, &a.ordered_bytes()), Some(a));
        }

        #[test]
        fn no_other_key_begins_with_a_keys_bytes((_, a, b) in any_pair()) {
            prop_assert!(a == b || !b.ordered_bytes().starts_with(&a.ordered_bytes()));
        }

        #[test]
        fn anything_is_read_without_panic(
            types in proptest::collection::vec(any_key_type(), 0..4),
            bytes in proptest::collection::vec(prop_oneof![Just(0), Just(0xff), any::<u8>()], 0..40),
        ) {
            if let Some(key) = Key::from_ordered_bytes(&types, &bytes) {
                prop_assert_eq!(&*key.ordered_bytes(), &bytes[..]);
            }
        }
    }
}
