//! SCRAM towards a client: the server's side of the exchange. Pure.
//!
//! ```text
//! client-first ─► ServerFirst::answer ── server_first ─► client ── client-final ─► ServerFirst::finish ─► Proven
//! ```
//! The same answers as PostgreSQL's, word by word, so that drivers behave as they do there. Input is a stranger's: parsed
//! without indexing, names ignored (the startup packet decides). Whether a user exists cannot be seen: one that does not is
//! given an exchange that always fails, over a salt that stays the same for that name.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

use super::scram::{AuthMessage, BOUND_HEADER, Key, ScramKeys, nonce};
use crate::config::ScramVerifier;
use crate::error::{PgError, SqlState};

/// What the client chose in its SASLInitialResponse, and what it could have chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// SCRAM-SHA-256 where -PLUS was not offered.
    NotOffered,
    /// SCRAM-SHA-256 although -PLUS was offered.
    Declined,
    /// SCRAM-SHA-256-PLUS, with the hash of our certificate.
    Bound(Arc<[u8]>),
}

/// The verifier of the user, or of nobody.
pub(super) enum Subject {
    Known(ScramVerifier),
    /// Goes through all the motions and fails.
    Nobody(ScramVerifier),
}

/// The server has sent its nonce and salt and waits for the proof.
pub(super) struct ServerFirst {
    subject: Subject,
    binding: Binding,
    /// `n,,`, `y,,` or `p=tls-server-end-point,,`.
    header: &'static str,
    client_first_bare: String,
    pub message: String,
    nonce: String,
}

/// A client that knows its password.
#[derive(Debug)]
pub(super) struct Proven {
    pub server_final: String,
    /// What logs in to shards whose verifier is the same.
    pub keys: ScramKeys,
}

pub(super) enum ScramFailure {
    /// Not a password's fault: says what is wrong.
    Refused(PgError),
    WrongPassword,
}

impl ServerFirst {
    pub(super) fn answer(client_first: &[u8], subject: Subject, binding: Binding) -> Result<Self, ScramFailure> {
        Self::answer_with_nonce(client_first, subject, binding, nonce())
    }

    fn answer_with_nonce(
        client_first: &[u8],
        subject: Subject,
        binding: Binding,
        server_nonce: String,
    ) -> Result<Self, ScramFailure> {
        let text = text(client_first)?;
        let (header, client_first_bare) = split_header(text, &binding)?;
        let mut parts = client_first_bare.split(',');
        let name = parts.next().unwrap_or("");
        if name.starts_with("m=") {
            return refuse(SqlState::FEATURE_NOT_SUPPORTED, "client requires an unsupported SCRAM extension", None);
        }
        if !name.starts_with("n=") {
            return malformed("The message does not name a user.");
        }
        let Some(client_nonce) = parts.next().and_then(|part| part.strip_prefix("r=")) else {
            return malformed("The message has no nonce.");
        };
        if client_nonce.is_empty() || !client_nonce.bytes().all(|byte| matches!(byte, 0x21..=0x7e)) {
            return refuse(SqlState::PROTOCOL_VIOLATION, "non-printable characters in SCRAM nonce", None);
        }
        let nonce = format!("{client_nonce}{server_nonce}");
        let (Subject::Known(verifier) | Subject::Nobody(verifier)) = &subject;
        let message = format!("r={nonce},s={},i={}", STANDARD.encode(&verifier.salt), verifier.iterations);
        Ok(Self { header, client_first_bare: client_first_bare.to_owned(), message, nonce, subject, binding })
    }

    pub(super) fn finish(self, client_final: &[u8]) -> Result<Proven, ScramFailure> {
        let text = text(client_final)?;
        let Some((without_proof, proof)) = text.rsplit_once(",p=") else {
            return malformed("The message has no proof.");
        };
        let mut parts = without_proof.split(',');
        let Some(channel) = parts.next().and_then(|part| part.strip_prefix("c=")) else {
            return malformed("The message has no channel-binding attribute.");
        };
        let Some(nonce) = parts.next().and_then(|part| part.strip_prefix("r=")) else {
            return malformed("The message has no nonce.");
        };
        self.check_channel(channel)?;
        if nonce != self.nonce {
            return refuse(SqlState::PROTOCOL_VIOLATION, "invalid SCRAM response", Some("Nonce does not match."));
        }
        let Some(proof) = STANDARD.decode(proof).ok().and_then(|proof| Key::try_from(proof).ok()) else {
            return malformed("Malformed proof in client-final-message.");
        };
        let message = AuthMessage {
            client_first_bare: &self.client_first_bare,
            server_first: &self.message,
            client_final_without_proof: without_proof,
        };
        let (Subject::Known(verifier) | Subject::Nobody(verifier)) = &self.subject;
        match (message.client_key(verifier, &proof), &self.subject) {
            (Some(client_key), Subject::Known(verifier)) => Ok(Proven {
                server_final: format!("v={}", STANDARD.encode(message.sign(&verifier.server_key))),
                keys: ScramKeys {
                    salt: verifier.salt.clone(),
                    iterations: verifier.iterations,
                    client_key,
                    server_key: verifier.server_key,
                },
            }),
            (None, Subject::Known(_)) | (_, Subject::Nobody(_)) => Err(ScramFailure::WrongPassword),
        }
    }

    /// The client repeats the header that it began with and, when bound, the hash of the certificate that it saw.
    fn check_channel(&self, channel: &str) -> Result<(), ScramFailure> {
        match &self.binding {
            Binding::NotOffered | Binding::Declined => match channel == STANDARD.encode(self.header) {
                true => Ok(()),
                false => {
                    refuse(SqlState::PROTOCOL_VIOLATION, "unexpected SCRAM channel-binding attribute in client-final-message", None)
                }
            },
            Binding::Bound(end_point) => {
                let expected = STANDARD.encode([self.header.as_bytes(), end_point].concat());
                match bool::from(channel.as_bytes().ct_eq(expected.as_bytes())) {
                    true => Ok(()),
                    false => refuse(SqlState::INVALID_AUTHORIZATION, "SCRAM channel binding check failed", None),
                }
            }
        }
    }
}

/// Takes the gs2 header off, which says what the client thinks of channel binding.
fn split_header<'a>(text: &'a str, binding: &Binding) -> Result<(&'static str, &'a str), ScramFailure> {
    let Some((flag, rest)) = text.split_once(',') else { return malformed("The message ends within its header.") };
    let Some((identity, bare)) = rest.split_once(',') else { return malformed("The message ends within its header.") };
    let header = match (flag, binding) {
        ("n", Binding::NotOffered | Binding::Declined) => "n,,",
        ("y", Binding::NotOffered) => "y,,",
        ("y", Binding::Declined) => {
            return refuse(
                SqlState::INVALID_AUTHORIZATION,
                "SCRAM channel binding negotiation error",
                Some(
                    "The client supports SCRAM channel binding but thinks the server does not.  However, this server does \
                     support channel binding.",
                ),
            );
        }
        ("n" | "y", Binding::Bound(_)) => {
            return malformed(
                "The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include channel binding data.",
            );
        }
        (flag, binding) => match (flag.strip_prefix("p="), binding) {
            (Some("tls-server-end-point"), Binding::Bound(_)) => BOUND_HEADER,
            (Some(_), Binding::Bound(_)) => {
                return refuse(SqlState::PROTOCOL_VIOLATION, "unsupported SCRAM channel-binding type", None);
            }
            (Some(_), Binding::NotOffered | Binding::Declined) => {
                return malformed(
                    "The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message includes channel \
                     binding data.",
                );
            }
            (None, _) => return malformed("Unexpected channel-binding flag."),
        },
    };
    match identity {
        "" => Ok((header, bare)),
        _ => refuse(SqlState::FEATURE_NOT_SUPPORTED, "client uses authorization identity, but it is not supported", None),
    }
}

fn text(bytes: &[u8]) -> Result<&str, ScramFailure> {
    match std::str::from_utf8(bytes) {
        Ok("") => malformed("The message is empty."),
        Ok(text) if text.contains('\0') => malformed("Message length does not match input length."),
        Ok(text) => Ok(text),
        Err(_) => malformed("The message is not UTF-8."),
    }
}

fn malformed<T>(detail: &str) -> Result<T, ScramFailure> {
    refuse(SqlState::PROTOCOL_VIOLATION, "malformed SCRAM message", Some(detail))
}

fn refuse<T>(code: SqlState, message: &str, detail: Option<&str>) -> Result<T, ScramFailure> {
    let error = PgError::fatal(code, message);
    Err(ScramFailure::Refused(match detail {
        Some(detail) => error.with_detail(detail),
        None => error,
    }))
}

#[cfg(test)]
mod tests;
