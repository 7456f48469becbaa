//! The arithmetic of SCRAM-SHA-256 (RFC 5802, 7677), shared by both directions.
//!
//! ```text
//! SaltedPassword = PBKDF2(password, salt, iterations)
//! ClientKey = HMAC(SaltedPassword, "Client Key")     StoredKey = SHA256(ClientKey)
//! ServerKey = HMAC(SaltedPassword, "Server Key")     proof = ClientKey XOR HMAC(StoredKey, AuthMessage)
//! ```
//! A server needs StoredKey and ServerKey (the verifier); a client needs ClientKey, and ServerKey to check the server. From a
//! proof and StoredKey follows ClientKey: that is how a login passes through the proxy.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;

use ring::{digest, hmac, pbkdf2};
use subtle::ConstantTimeEq;

use crate::config::ScramVerifier;

/// One hash.
pub(super) type Key = [u8; 32];

/// What logging in as a user takes, for one salt and iteration count. Not printable.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramKeys {
    pub(super) salt: Vec<u8>,
    pub(super) iterations: u32,
    pub(super) client_key: Key,
    pub(super) server_key: Key,
}

impl fmt::Debug for ScramKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScramKeys(***)")
    }
}

impl ScramKeys {
    /// Takes the hash that many times: about a millisecond for PostgreSQL's 4096.
    pub(super) fn derive(password: &[u8], salt: &[u8], iterations: NonZeroU32) -> Self {
        let mut salted = [0; 32];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, salt, &prepared(password), &mut salted);
        Self {
            salt: salt.to_vec(),
            iterations: iterations.get(),
            client_key: hmac(&salted, &[b"Client Key"]),
            server_key: hmac(&salted, &[b"Server Key"]),
        }
    }

    pub(super) fn verifier(&self) -> ScramVerifier {
        ScramVerifier {
            iterations: self.iterations,
            salt: self.salt.clone(),
            stored_key: hash(&self.client_key),
            server_key: self.server_key,
        }
    }
}

/// What a server stores of a password, with a salt that nobody has had yet. A secret.
pub fn stored_password(password: &str) -> String {
    let salt: [u8; 16] = rand::random();
    ScramKeys::derive(password.as_bytes(), &salt, ITERATIONS).verifier().to_text()
}

/// The three parts of AuthMessage, which both sides sign.
pub(super) struct AuthMessage<'a> {
    pub client_first_bare: &'a str,
    pub server_first: &'a str,
    pub client_final_without_proof: &'a str,
}

impl AuthMessage<'_> {
    pub(super) fn sign(&self, key: &Key) -> Key {
        let parts = [self.client_first_bare, ",", self.server_first, ",", self.client_final_without_proof];
        hmac(key, &parts.map(str::as_bytes))
    }

    /// The client's side: what proves that it has the ClientKey.
    pub(super) fn proof(&self, client_key: &Key) -> Key {
        xor(client_key, &self.sign(&hash(client_key)))
    }

    /// The server's side: the ClientKey, if the proof proves it. Takes the same time whatever the proof.
    pub(super) fn client_key(&self, verifier: &ScramVerifier, proof: &Key) -> Option<Key> {
        let client_key = xor(proof, &self.sign(&verifier.stored_key));
        bool::from(hash(&client_key).ct_eq(&verifier.stored_key)).then_some(client_key)
    }
}

/// The password as SASLprep has it, or its own bytes where that does not apply, as PostgreSQL does on both sides.
fn prepared(password: &[u8]) -> Cow<'_, [u8]> {
    match std::str::from_utf8(password).map(stringprep::saslprep) {
        Ok(Ok(text)) => Cow::Owned(text.into_owned().into_bytes()),
        Ok(Err(_)) | Err(_) => Cow::Borrowed(password),
    }
}

pub(super) fn hmac(key: &[u8], parts: &[&[u8]]) -> Key {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    for part in parts {
        context.update(part);
    }
    to_key(context.sign().as_ref())
}

fn hash(bytes: &[u8]) -> Key {
    to_key(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn xor(left: &Key, right: &Key) -> Key {
    std::array::from_fn(|at| left[at] ^ right[at])
}

fn to_key(bytes: &[u8]) -> Key {
    let mut key = [0; 32];
    key.copy_from_slice(bytes);
    key
}

/// 18 random bytes in base64, as PostgreSQL's nonces.
pub(super) fn nonce() -> String {
    use base64::Engine;
    let bytes: [u8; 18] = rand::random();
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// PostgreSQL's default for new passwords.
pub(super) const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).unwrap();
/// What a server may ask of us: the limit of common drivers, against servers that want to keep us busy.
pub(super) const ITERATIONS_MAX: u32 = 100_000;
pub(super) const MECHANISM: &str = "SCRAM-SHA-256";
pub(super) const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";
/// The header of a message that is bound to the certificate.
pub(super) const BOUND_HEADER: &str = "p=tls-server-end-point,,";

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    /// RFC 7677, section 3.
    #[test]
    fn the_rfc_s_example_comes_out() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("base64");
        let keys = ScramKeys::derive(b"pencil", &salt, ITERATIONS);
        let message = AuthMessage {
            client_first_bare: "n=user,r=rOprNGfwEbeRWgbNEkqO",
            server_first: "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            client_final_without_proof: "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        };
        let proof = message.proof(&keys.client_key);
        assert_eq!(STANDARD.encode(proof), "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
        assert_eq!(STANDARD.encode(message.sign(&keys.server_key)), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        assert_eq!(message.client_key(&keys.verifier(), &proof), Some(keys.client_key));
        let mut forged = proof;
        forged[31] ^= 1;
        assert_eq!(message.client_key(&keys.verifier(), &forged), None);
    }

    #[test]
    fn the_verifier_is_the_one_that_postgresql_would_store() {
        for password in ["secret", "I\u{ad}X", "\u{2168}", "a\u{7}b", ""] {
            let text = postgres_protocol::password::scram_sha_256(password.as_bytes());
            let verifier = ScramVerifier::parse(&text).expect("a verifier");
            assert_eq!(ScramKeys::derive(password.as_bytes(), &verifier.salt, ITERATIONS).verifier(), verifier, "{password:?}");
        }
    }
}
