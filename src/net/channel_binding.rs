//! The `tls-server-end-point` channel binding (RFC 5929): a hash of the server's certificate.
//!
//! SCRAM-SHA-256-PLUS ties a login to it, so that a man in the middle with another certificate cannot pass the login on. The
//! hash is the one of the certificate's signature, MD5 and SHA-1 replaced by SHA-256. Algorithms without a single hash
//! (Ed25519, RSA-PSS) define no binding: then -PLUS is not offered.
//!
//! Reads just enough DER to find the algorithm; the certificate is the operator's own.

use ring::digest::{self, Algorithm, SHA256, SHA384, SHA512};

/// None when the certificate has no such hash, or is not one.
pub(super) fn end_point_hash(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = signature_hash(certificate)?;
    Some(digest::digest(algorithm, certificate).as_ref().to_vec())
}

/// Certificate ::= SEQUENCE { tbsCertificate SEQUENCE, signatureAlgorithm SEQUENCE { OBJECT IDENTIFIER … } … }
fn signature_hash(certificate: &[u8]) -> Option<&'static Algorithm> {
    let (certificate, _) = element(SEQUENCE, certificate)?;
    let (_to_be_signed, rest) = element(SEQUENCE, certificate)?;
    let (algorithm, _) = element(SEQUENCE, rest)?;
    let (identifier, _) = element(OBJECT_IDENTIFIER, algorithm)?;
    HASHES.iter().find(|(known, _)| *known == identifier).map(|(_, hash)| *hash)
}

/// The content of the element that begins here, and what follows it.
fn element(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    if found != tag {
        return None;
    }
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let count = usize::from(first & 0x7f);
        if !(1..=4).contains(&count) {
            return None;
        }
        let (digits, rest) = rest.split_at_checked(count)?;
        (digits.iter().fold(0_usize, |length, digit| (length << 8) | usize::from(*digit)), rest)
    };
    rest.split_at_checked(length)
}

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;

/// Encoded object identifiers of signature algorithms, and the hash that RFC 5929 takes for each.
static HASHES: [(&[u8], &Algorithm); 9] = [
    // md5, sha1, sha256, sha384, sha512 WithRSAEncryption: 1.2.840.113549.1.1.{4, 5, 11, 12, 13}
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x04], &SHA256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05], &SHA256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b], &SHA256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c], &SHA384),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d], &SHA512),
    // ecdsa-with-SHA1: 1.2.840.10045.4.1; -SHA256, -SHA384, -SHA512: 1.2.840.10045.4.3.{2, 3, 4}
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01], &SHA256),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02], &SHA256),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03], &SHA384),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04], &SHA512),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(identifier: &[u8]) -> Vec<u8> {
        let identifier = [&[OBJECT_IDENTIFIER, u8::try_from(identifier.len()).expect("short")], identifier].concat();
        let algorithm = [&[SEQUENCE, u8::try_from(identifier.len()).expect("short")], &identifier[..]].concat();
        let body = [&[SEQUENCE, 0x81, 0x80][..], &[7; 0x80], &algorithm].concat();
        let length = u16::try_from(body.len()).expect("short").to_be_bytes();
        [&[SEQUENCE, 0x82][..], &length, &body].concat()
    }

    #[test]
    fn the_hash_is_the_signature_s() {
        let lengths = HASHES.iter().map(|(identifier, _)| end_point_hash(&certificate(identifier)).map(|hash| hash.len()));
        let expected = [32, 32, 32, 48, 64, 32, 32, 48, 64].map(Some);
        assert_eq!(lengths.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn other_algorithms_and_rubbish_have_none() {
        let ed25519 = certificate(&[0x2b, 0x65, 0x70]);
        assert_eq!(end_point_hash(&ed25519), None);
        let whole = certificate(HASHES[2].0);
        for end in 0..whole.len() {
            assert_eq!(end_point_hash(&whole[..end]), None);
        }
        assert_eq!(end_point_hash(&[SEQUENCE, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(end_point_hash(&[SEQUENCE, 0x80]), None);
    }
}
