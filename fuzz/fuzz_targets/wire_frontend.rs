//! Messages from clients, as any bytes: decoded or refused, and what is decoded lies within the message.

#![no_main]

use libfuzzer_sys::fuzz_target;
use shardgate::wire::{self, FrameHeader, client_tag};

const BODY_BYTES_MAX: usize = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Some(header)) = FrameHeader::peek(rest, BODY_BYTES_MAX) {
        let Some((frame, after)) = rest.split_at_checked(header.total) else { break };
        decode(header.tag, &frame[frame.len() - header.body_bytes()..]);
        rest = after;
    }
    // Each decoder on the whole input too: random bytes seldom have a right length.
    if let Some((tag, body)) = bytes.split_first() {
        decode(*tag, body);
    }
});

fn decode(tag: u8, body: &[u8]) {
    match tag {
        client_tag::QUERY => drop(wire::query(body)),
        client_tag::PARSE => {
            if let Ok(parse) = wire::parse(body) {
                assert!(parse.types().count() * 4 <= body.len());
            }
        }
        client_tag::BIND => {
            if let Ok(bind) = wire::bind(body) {
                assert_eq!(bind.parameters().count(), bind.parameter_count);
                for (index, parameter) in bind.parameters().enumerate() {
                    assert_eq!(bind.parameter(index), Some(parameter));
                }
                assert_eq!(bind.parameter(bind.parameter_count), None);
            }
        }
        client_tag::EXECUTE => drop(wire::execute(body)),
        client_tag::DESCRIBE => drop(wire::describe(body)),
        _ => drop(wire::close(body)),
    }
}
