//! A client's side of a login, as any bytes: nobody gets in without the password, and nothing panics.

#![no_main]

use std::cell::OnceCell;
use std::sync::Arc;

use bytes::BytesMut;
use futures::executor::block_on;
use libfuzzer_sys::fuzz_target;
use shardgate::auth::Authenticator;
use shardgate::config::{AuthConfig, Secret, UserConfig};
use shardgate::net::StartupParameters;

thread_local! {
    static AUTHENTICATOR: OnceCell<Authenticator> = const { OnceCell::new() };
}

fn authenticator() -> Authenticator {
    let user = UserConfig { name: "app".into(), password: Some(Secret::new("secret")), ..UserConfig::default() };
    Authenticator::new(&AuthConfig { users: vec![user], ..AuthConfig::default() }, "app")
}

fuzz_target!(|input: (bool, bool, Option<(bool, &[u8])>, &[u8])| {
    let (is_tls, is_known, framed, rest) = input;
    let bytes = match framed {
        // Well-formed messages around any SCRAM: raw bytes seldom come that far.
        Some((is_plus, client_first)) => {
            let mechanism: &[u8] = if is_plus { b"SCRAM-SHA-256-PLUS\0" } else { b"SCRAM-SHA-256\0" };
            let initial = [mechanism, &length(client_first.len()), client_first].concat();
            [message(&initial), message(rest)].concat()
        }
        None => rest.to_vec(),
    };
    let end_point: Option<Arc<[u8]>> = is_tls.then(|| [7; 32].into());
    let user = if is_known { "app" } else { "ghost" };
    let startup = StartupParameters { parameters: vec![("user".into(), user.into())], ..StartupParameters::default() };
    let mut stream = tokio::io::join(bytes.as_slice(), tokio::io::sink());
    let (mut buffer, mut reply) = (BytesMut::new(), BytesMut::new());
    AUTHENTICATOR.with(|cell| {
        let authenticator = cell.get_or_init(authenticator);
        let login = authenticator.authenticate(&mut stream, &mut buffer, &mut reply, &startup, end_point.as_ref());
        assert!(block_on(login).is_err());
        assert!(reply.is_empty());
    });
});

fn message(body: &[u8]) -> Vec<u8> {
    [b"p", &length(body.len() + 4)[..], body].concat()
}

fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}
