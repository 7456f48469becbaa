//! Messages from a shard in any order, between any requests: passed or refused, and never more answers than were asked for.

#![no_main]

use libfuzzer_sys::fuzz_target;
use shardgate::wire::ShardProtocol;

/// Requests: Parse, Bind, Describe of both kinds, Execute, Close, Sync, Query, the data of a COPY and its ends, Flush.
const REQUESTS: &[(u8, u8)] =
    &[(b'P', 0), (b'B', 0), (b'D', b'S'), (b'D', b'P'), (b'E', 0), (b'C', b'S'), (b'S', 0), (b'Q', 0), (b'd', 0), (b'c', 0), (b'f', 0), (b'H', 0)];
const ANSWERS: &[u8] = b"123CDEGHINSTZcdnstAVW";

fuzz_target!(|events: &[u8]| {
    let mut protocol = ShardProtocol::default();
    let (mut asked, mut ready) = (0_u32, 0_u32);
    for event in events {
        let which = usize::from(*event >> 1);
        if event & 1 == 0 {
            let (tag, first) = REQUESTS[which % REQUESTS.len()];
            asked += u32::from(matches!(tag, b'S' | b'Q'));
            protocol.asked(tag, Some(first));
            continue;
        }
        let tag = ANSWERS[which % ANSWERS.len()];
        // The header comes in two pieces.
        let message = [tag, 0, 0, 0, 5, b'I'];
        let (one, other) = message.split_at(which % message.len());
        if protocol.received(one, 1000).and_then(|()| protocol.received(other, 1000)).is_err() {
            return;
        }
        ready += u32::from(tag == b'Z');
        assert!(ready <= asked, "more than was asked for");
    }
});
