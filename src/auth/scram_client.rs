//! SCRAM towards a shard: the client's side of the exchange. Pure.
//!
//! ```text
//! ClientFirst ── first_message() ─► server ── server-first ─► ClientFirst::answer ─► ClientFinal ── server-final ─► verify
//! ```
//! Starts from a password or from keys. Under TLS it binds the login to the server's certificate when the server can.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

use super::scram::{AuthMessage, BOUND_HEADER, ITERATIONS_MAX, Key, MECHANISM, MECHANISM_PLUS, ScramKeys, nonce};
use super::shard_login::BackendSecret;

/// Why the exchange cannot go on; nothing secret in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScramClientError {
    #[error("the server's SCRAM message is malformed: {0}")]
    Malformed(&'static str),
    #[error("the server asks for more than {ITERATIONS_MAX} SCRAM iterations")]
    TooManyIterations,
    /// The proxy knows the client's key for one salt only.
    #[error("the server's password verifier has another salt or iteration count than the proxy's")]
    OtherVerifier,
    #[error("the server does not know the password that it has accepted")]
    ServerSignature,
    #[error("no password is known for this user")]
    NoSecret,
}

/// Before the server has said anything.
pub(super) struct ClientFirst {
    mechanism: &'static str,
    /// The gs2 header and, when bound, the certificate's hash.
    header: &'static str,
    end_point: Vec<u8>,
    bare: String,
    nonce: String,
}

/// After the proof.
pub(super) struct ClientFinal {
    pub message: String,
    server_signature: Key,
}

impl ClientFirst {
    /// `offered` are the server's mechanisms; `end_point` the certificate's hash under TLS. None when no mechanism is shared.
    pub(super) fn new(offered: &[&str], end_point: Option<Vec<u8>>) -> Option<Self> {
        Self::with_nonce(offered, end_point, nonce())
    }

    fn with_nonce(offered: &[&str], end_point: Option<Vec<u8>>, nonce: String) -> Option<Self> {
        let (mechanism, header, end_point) = match end_point {
            Some(hash) if offered.contains(&MECHANISM_PLUS) => (MECHANISM_PLUS, BOUND_HEADER, hash),
            // "I could, but it seems that you cannot": a server that can will know that somebody meddled.
            Some(_) if offered.contains(&MECHANISM) => (MECHANISM, "y,,", Vec::new()),
            None if offered.contains(&MECHANISM) => (MECHANISM, "n,,", Vec::new()),
            Some(_) | None => return None,
        };
        // PostgreSQL takes the user from the startup packet and ignores this name.
        Some(Self { mechanism, header, end_point, bare: format!("n=,r={nonce}"), nonce })
    }

    pub(super) fn mechanism(&self) -> &'static str {
        self.mechanism
    }

    pub(super) fn first_message(&self) -> String {
        format!("{}{}", self.header, self.bare)
    }

    pub(super) fn answer(self, server_first: &[u8], secret: &BackendSecret) -> Result<ClientFinal, ScramClientError> {
        let server_first = std::str::from_utf8(server_first).map_err(|_| ScramClientError::Malformed("not UTF-8"))?;
        let mut parts = server_first.split(',');
        let nonce = attribute(parts.next(), "r=").ok_or(ScramClientError::Malformed("no nonce"))?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(ScramClientError::Malformed("not our nonce"));
        }
        let salt = attribute(parts.next(), "s=").and_then(|salt| STANDARD.decode(salt).ok());
        let salt = salt.ok_or(ScramClientError::Malformed("no salt"))?;
        let iterations = attribute(parts.next(), "i=").and_then(|count| count.parse::<NonZeroU32>().ok());
        let iterations = iterations.ok_or(ScramClientError::Malformed("no iteration count"))?;
        if iterations.get() > ITERATIONS_MAX {
            return Err(ScramClientError::TooManyIterations);
        }
        let (client_key, server_key) = keys(secret, &salt, iterations)?;
        let binding = STANDARD.encode([self.header.as_bytes(), &self.end_point].concat());
        let without_proof = format!("c={binding},r={nonce}");
        let message = AuthMessage { client_first_bare: &self.bare, server_first, client_final_without_proof: &without_proof };
        let proof = STANDARD.encode(message.proof(&client_key));
        Ok(ClientFinal { server_signature: message.sign(&server_key), message: format!("{without_proof},p={proof}") })
    }
}

impl ClientFinal {
    /// Checks that the server knows the password too.
    pub(super) fn verify(&self, server_final: &[u8]) -> Result<(), ScramClientError> {
        let signature = server_final.strip_prefix(b"v=").ok_or(ScramClientError::Malformed("no signature"))?;
        let signature = signature.split(|byte| *byte == b',').next().unwrap_or_default();
        let signature = STANDARD.decode(signature).map_err(|_| ScramClientError::Malformed("signature is not base64"))?;
        match bool::from(signature.ct_eq(&self.server_signature[..])) {
            true => Ok(()),
            false => Err(ScramClientError::ServerSignature),
        }
    }
}

fn keys(secret: &BackendSecret, salt: &[u8], iterations: NonZeroU32) -> Result<(Key, Key), ScramClientError> {
    match secret {
        BackendSecret::None | BackendSecret::OfUrl => Err(ScramClientError::NoSecret),
        BackendSecret::Password(password) => {
            let keys = ScramKeys::derive(password.reveal().as_bytes(), salt, iterations);
            Ok((keys.client_key, keys.server_key))
        }
        BackendSecret::Keys(keys) if keys.salt == salt && keys.iterations == iterations.get() => {
            Ok((keys.client_key, keys.server_key))
        }
        BackendSecret::Keys(_) => Err(ScramClientError::OtherVerifier),
    }
}

fn attribute<'a>(part: Option<&'a str>, name: &str) -> Option<&'a str> {
    part?.strip_prefix(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    /// The server's part of RFC 7677's example.
    const SERVER_FIRST: &[u8] = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    fn first() -> ClientFirst {
        ClientFirst::with_nonce(&[MECHANISM], None, NONCE.into()).expect("a shared mechanism")
    }

    #[test]
    fn the_mechanism_follows_tls_and_the_offer() {
        let choose = |offered: &[&str], end_point: Option<Vec<u8>>| {
            ClientFirst::with_nonce(offered, end_point, "x".into()).map(|first| (first.mechanism(), first.first_message()))
        };
        assert_eq!(choose(&[MECHANISM_PLUS, MECHANISM], None), Some((MECHANISM, "n,,n=,r=x".into())));
        assert_eq!(choose(&[MECHANISM], Some(vec![1])), Some((MECHANISM, "y,,n=,r=x".into())));
        let bound = Some((MECHANISM_PLUS, "p=tls-server-end-point,,n=,r=x".into()));
        assert_eq!(choose(&[MECHANISM_PLUS, MECHANISM], Some(vec![1])), bound);
        assert_eq!(choose(&["OAUTHBEARER"], None), None);
        assert_eq!(choose(&[MECHANISM_PLUS], None), None);
    }

    #[test]
    fn a_server_that_does_not_know_the_password_is_found_out() {
        let secret = BackendSecret::Password(Secret::new("pencil"));
        let last = first().answer(SERVER_FIRST, &secret).expect("answered");
        let wrong = STANDARD.encode([0; 32]);
        assert_eq!(last.verify(format!("v={wrong}").as_bytes()), Err(ScramClientError::ServerSignature));
        for text in [&b""[..], b"e=other-error", b"v", b"v=*"] {
            assert!(matches!(last.verify(text), Err(ScramClientError::Malformed(_))));
        }
    }

    #[test]
    fn keys_serve_their_own_salt_only() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("base64");
        let own = ScramKeys::derive(b"pencil", &salt, super::super::scram::ITERATIONS);
        assert!(first().answer(SERVER_FIRST, &BackendSecret::Keys(own.clone().into())).is_ok());
        let other = ScramKeys { salt: vec![1], ..own };
        let answer = first().answer(SERVER_FIRST, &BackendSecret::Keys(other.into()));
        assert_eq!(answer.err(), Some(ScramClientError::OtherVerifier));
        assert_eq!(first().answer(SERVER_FIRST, &BackendSecret::None).err(), Some(ScramClientError::NoSecret));
    }

    #[test]
    fn malformed_server_messages_are_refused() {
        let secret = BackendSecret::Password(Secret::new("pencil"));
        let text = std::str::from_utf8(SERVER_FIRST).expect("text");
        for (from, to) in
            [("r=r", "r=x"), ("%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", ""), ("s=", "t="), ("==", "*"), ("4096", "0"), ("i=", "")]
        {
            let changed = text.replacen(from, to, 1);
            let answer = first().answer(changed.as_bytes(), &secret);
            assert!(matches!(answer.err(), Some(ScramClientError::Malformed(_))), "{changed}");
        }
        let greedy = text.replace("4096", "100001");
        assert_eq!(first().answer(greedy.as_bytes(), &secret).err(), Some(ScramClientError::TooManyIterations));
        assert!(first().answer(b"\xff", &secret).is_err());
    }
}
