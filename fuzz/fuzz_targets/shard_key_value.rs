//! Key values from clients, as any bytes under any type: converted or not, the same way twice, and never a panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use shardgate::shard_key::{Format, KeyDatum, KeyType};

const KEY_TYPES: [KeyType; 11] = [
    KeyType::Int2,
    KeyType::Int4,
    KeyType::Int8,
    KeyType::Text,
    KeyType::Bpchar,
    KeyType::Uuid,
    KeyType::Date,
    KeyType::Timestamp,
    KeyType::Timestamptz,
    KeyType::Bool,
    KeyType::Bytea,
];
/// Of untyped literals, the key types, and types that compare with them.
const OIDS: [u32; 18] = [0, 16, 17, 18, 19, 20, 21, 23, 25, 26, 700, 701, 705, 1042, 1043, 1082, 1114, 1700];

fuzz_target!(|input: (u8, u8, bool, i32, &[u8])| {
    let (key_type, oid, is_text, typmod, bytes) = input;
    let key_type = KEY_TYPES[usize::from(key_type) % KEY_TYPES.len()];
    let oid = OIDS[usize::from(oid) % OIDS.len()];
    let format = if is_text { Format::Text } else { Format::Binary };
    let compared = KeyDatum::convert(key_type, oid, format, bytes);
    assert_eq!(format!("{compared:?}"), format!("{:?}", KeyDatum::convert(key_type, oid, format, bytes)));
    drop(KeyDatum::assign(key_type, typmod, oid, format, bytes));
});
