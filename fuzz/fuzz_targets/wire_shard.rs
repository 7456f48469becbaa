//! Messages from shards, as any bytes: decoded or refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use shardgate::wire;

fuzz_target!(|body: &[u8]| {
    if let Ok(fields) = wire::error_fields(body) {
        assert!(fields.iter().map(|(_, text)| text.len() + 2).sum::<usize>() < body.len());
    }
    if let Ok((name, value)) = wire::parameter_status(body) {
        assert!(name.len() + value.len() + 2 <= body.len());
    }
    if let Ok(fields) = wire::row_description(body) {
        assert!(fields.len() * 19 <= body.len());
    }
    for column in wire::data_row_columns(body) {
        if column.is_err() {
            break;
        }
    }
});
