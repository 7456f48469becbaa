//! The names of a transaction over several shards: its own, its participants', and the secret that lets it be decided.
//!
//! ```text
//!   sg:<cluster>:<decider's uuid>:<incarnation>:<n>:<sha256 of the secret>          the transaction (gtx)
//!   sg:<cluster>:<decider's uuid>:<incarnation>:<n>:<sha256 of the secret>:<i>      its i-th participant (gid)
//! ```
//! A gid is unique in a whole server, and two shards may share one: hence the participant's number. The decider is named by the
//! uuid that lies in its database, so that a restored copy under the same name is never asked. Everybody may read the gids of
//! a server; only who knows the secret may decide.

use std::fmt;

use rand::Rng;
use sha2::{Digest, Sha256};

use crate::catalog::hex;

/// A transaction over several shards. Only made by [`TransactionId::new`] and by reading a gid: what it holds fits into a
/// statement without quoting.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransactionId {
    text: String,
}

/// Proves to the decider's `shardgate.decide` whose transaction it is. Never logged.
pub struct Secret(String);

impl Secret {
    pub fn random() -> Self {
        Self(format!("{:032x}", rand::rng().random::<u128>()))
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl TransactionId {
    /// `incarnation` is random, one a process; `number` counts within it.
    pub fn new(cluster: &str, decider_uuid: &str, incarnation: i64, number: u64, secret: &Secret) -> Self {
        let digest = Sha256::digest(secret.reveal().as_bytes());
        let hash = hex(&digest);
        let text = format!("{PREFIX}{cluster}:{decider_uuid}:{incarnation:x}:{number}:{hash}");
        assert!(is_plain(&text), "a transaction's name is made of letters, digits, dashes and colons");
        Self { text }
    }

    /// The transaction and the number in a gid of this cluster; `None`: it is somebody else's.
    pub fn of_gid(gid: &str, cluster: &str) -> Option<(Self, u32)> {
        let (text, number) = gid.rsplit_once(':')?;
        let mut fields = text.strip_prefix(PREFIX)?.split(':');
        let is_ours = fields.next() == Some(cluster) && fields.clone().count() == 4 && is_plain(text);
        let incarnation_is_hexadecimal = fields.nth(1).is_some_and(|field| i64::from_str_radix(field, 16).is_ok());
        (is_ours && incarnation_is_hexadecimal).then_some(())?;
        Some((Self { text: text.to_owned() }, number.parse().ok()?))
    }

    /// The prefix of all gids of a cluster.
    pub fn prefix(cluster: &str) -> String {
        format!("{PREFIX}{cluster}:")
    }

    /// Of the shard whose commit decides.
    pub fn decider_uuid(&self) -> &str {
        self.field(2)
    }

    /// Of the process that runs it.
    pub fn incarnation(&self) -> i64 {
        i64::from_str_radix(self.field(3), 16).unwrap_or_default()
    }

    pub fn gid(&self, participant: usize) -> String {
        format!("{}:{participant}", self.text)
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn field(&self, index: usize) -> &str {
        self.text.split(':').nth(index).unwrap_or_default()
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Nothing in it could end a literal.
fn is_plain(text: &str) -> bool {
    text.len() < GID_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'-'))
}

const PREFIX: &str = "sg:";
/// PostgreSQL's limit, with room for the participant's number.
const GID_BYTES_MAX: usize = 190;

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0b9f7a4e-5a0e-4c61-8b4e-3a5e7f1d2c3b";

    #[test]
    fn a_gid_leads_back_to_its_transaction() {
        let transaction = TransactionId::new("0123456789abcdef", UUID, i64::MAX, u64::MAX, &Secret::random());
        let gid = transaction.gid(999);
        assert!(gid.len() < 200, "{gid}");
        let (read, number) = TransactionId::of_gid(&gid, "0123456789abcdef").expect("ours");
        assert_eq!((&read, number), (&transaction, 999));
        assert_eq!((read.decider_uuid(), read.incarnation()), (UUID, i64::MAX));
        assert!(TransactionId::of_gid(&gid, "another").is_none());
    }

    #[test]
    fn what_others_prepare_is_nobody_of_ours() {
        let quote = format!("sg:c:{UUID}:1:1:a'b:1");
        for gid in ["", "sg:", "sg:c", "mine", "sg:c:u:1:1:1", "sg:c:u:z:1:h:1", "sg:c:u:1:1:h:x", "sg:c:u:1:1:h:1:1", &quote] {
            assert!(TransactionId::of_gid(gid, "c").is_none(), "{gid}");
        }
    }
}
