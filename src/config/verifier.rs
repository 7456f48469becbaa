//! PostgreSQL's stored form of a SCRAM password: `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`.
//!
//! What `pg_authid.rolpassword` holds and what `[[auth.users]] verifier` takes. Parsing only; `auth` checks proofs with it.
//! Not printable: StoredKey lets one recognise a login, ServerKey lets one impersonate the server.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::secret::HIDDEN;

#[derive(Clone, PartialEq, Eq)]
pub struct ScramVerifier {
    pub iterations: u32,
    pub salt: Vec<u8>,
    pub stored_key: [u8; 32],
    pub server_key: [u8; 32],
}

impl ScramVerifier {
    /// None for anything that is not exactly of the form; no reason, since the reason would quote a secret.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("SCRAM-SHA-256$")?;
        let (parameters, keys) = rest.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let iterations = iterations.parse::<u32>().ok().filter(|count| (1..=ITERATIONS_MAX).contains(count))?;
        let salt = STANDARD.decode(salt).ok().filter(|salt| !salt.is_empty())?;
        let stored_key = STANDARD.decode(stored_key).ok()?.try_into().ok()?;
        let server_key = STANDARD.decode(server_key).ok()?.try_into().ok()?;
        Some(Self { iterations, salt, stored_key, server_key })
    }

    /// The form that [`ScramVerifier::parse`] reads. A secret.
    pub fn to_text(&self) -> String {
        let [salt, stored, server] = [&self.salt[..], &self.stored_key[..], &self.server_key[..]].map(|key| STANDARD.encode(key));
        format!("SCRAM-SHA-256${}:{salt}${stored}:{server}", self.iterations)
    }
}

impl fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for ScramVerifier {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

impl<'de> Deserialize<'de> for ScramVerifier {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            serde::de::Error::custom(
                "not a SCRAM verifier: expected 'SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>', as in \
                 pg_authid.rolpassword, with base64 parts and at most 100000 iterations",
            )
        })
    }
}

/// The client repeats the hash that many times at each login; more is refused by common drivers too.
const ITERATIONS_MAX: u32 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_postgresql_stores() {
        let text = postgres_protocol::password::scram_sha_256(b"secret");
        let verifier = ScramVerifier::parse(&text).expect("the form is PostgreSQL's");
        assert_eq!(verifier.iterations, 4096);
        assert_eq!(verifier.salt.len(), 16);
        assert_eq!(verifier.to_text(), text);
        assert_eq!(format!("{verifier:?}"), "***");
    }

    #[test]
    fn refuses_everything_else() {
        let good = postgres_protocol::password::scram_sha_256(b"secret");
        for (from, to) in
            [("SCRAM-SHA-256$", "md5"), ("$4096:", "$0:"), ("$4096:", "$-1:"), ("$4096:", "$4000000000:"), ("=:", "=")]
        {
            assert_eq!(ScramVerifier::parse(&good.replacen(from, to, 1)), None, "{from} as {to}");
        }
        for text in ["", "SCRAM-SHA-256$", "SCRAM-SHA-256$4096", "SCRAM-SHA-256$4096:$:", "SCRAM-SHA-256$4096:AAAA$AAAA:AAAA"] {
            assert_eq!(ScramVerifier::parse(text), None, "{text}");
        }
        assert_eq!(ScramVerifier::parse(&format!("{good}x")), None);
    }
}
