//! The first packet of a connection: any bytes are a packet or a refusal, and a startup message always names a user.

#![no_main]

use libfuzzer_sys::fuzz_target;
use shardgate::net::StartupPacket;

const PACKET_BYTES_MAX: u32 = 10_000;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some(length)) = StartupPacket::length(bytes, PACKET_BYTES_MAX) {
        assert!((8..=10_000).contains(&length));
        if let Some(packet) = bytes.get(..length) {
            check(packet);
        }
    }
    // Also with a length that is right, which random bytes seldom have.
    if let (Some(body), Ok(length)) = (bytes.get(4..), u32::try_from(bytes.len())) {
        check(&[&length.to_be_bytes(), body].concat());
    }
});

fn check(packet: &[u8]) {
    if let Ok(StartupPacket::Startup(startup)) = StartupPacket::decode(packet) {
        assert!(startup.get("user").is_some_and(|user| !user.is_empty()));
        assert!(startup.parameters.iter().all(|(name, value)| !name.is_empty() && !value.contains('\0')));
    }
}
