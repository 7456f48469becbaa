//! What PostgreSQL's input functions for uuid, boolean and bytea read. `None`: PostgreSQL would raise an error.

use std::borrow::Cow;

use super::number::trim_blanks;

/// `uuid_in`: 32 hex digits of any case, a hyphen allowed after each group of four, braces around allowed, no blanks.
pub(super) fn uuid_from_text(bytes: &[u8]) -> Option<[u8; 16]> {
    let mut rest = match bytes.split_first()? {
        (b'{', rest) => rest.strip_suffix(b"}")?,
        _ => bytes,
    };
    let mut uuid = [0; 16];
    for (index, byte) in uuid.iter_mut().enumerate() {
        let (pair, after) = rest.split_first_chunk::<2>()?;
        *byte = hex_pair(*pair)?;
        rest = match after.split_first() {
            Some((b'-', after)) if index % 2 == 1 && index < 15 => after,
            _ => after,
        };
    }
    rest.is_empty().then_some(uuid)
}

/// `boolin`: the beginnings of true, false, yes, no; on and off as far as they differ; 1 and 0. Any case, blanks around.
pub(super) fn bool_from_text(bytes: &[u8]) -> Option<bool> {
    let text = trim_blanks(bytes);
    let begins = |word: &[u8], at_least: usize| {
        text.len() >= at_least && word.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text))
    };
    if begins(b"true", 1) || begins(b"yes", 1) || begins(b"on", 2) || text == b"1" {
        Some(true)
    } else if begins(b"false", 1) || begins(b"no", 1) || begins(b"off", 2) || text == b"0" {
        Some(false)
    } else {
        None
    }
}

/// `byteain`: hex after `\x`, blanks between the pairs allowed; else escapes `\\` and `\ooo`. Bytes above ASCII stand for
/// themselves in the server's encoding, which may be another than the client's, so they are not read.
pub(super) fn bytea_from_text(bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
    if let Some(hex) = bytes.strip_prefix(b"\\x") {
        return bytea_from_hex(hex).map(Cow::Owned);
    }
    if !bytes.is_ascii() {
        return None;
    }
    if !bytes.contains(&b'\\') {
        return Some(Cow::Borrowed(bytes));
    }
    bytea_from_escapes(bytes).map(Cow::Owned)
}

fn bytea_from_hex(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(rest.len() / 2);
    loop {
        match rest {
            [] => return Some(decoded),
            [b' ' | b'\n' | b'\t' | b'\r', after @ ..] => rest = after,
            [high, low, after @ ..] => {
                decoded.push(hex_pair([*high, *low])?);
                rest = after;
            }
            [_] => return None,
        }
    }
}

fn bytea_from_escapes(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(rest.len());
    loop {
        match rest {
            [] => return Some(decoded),
            [b'\\', b'\\', after @ ..] => {
                decoded.push(b'\\');
                rest = after;
            }
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                decoded.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = after;
            }
            [b'\\', ..] => return None,
            [byte, after @ ..] => {
                decoded.push(*byte);
                rest = after;
            }
        }
    }
}

fn hex_pair([high, low]: [u8; 2]) -> Option<u8> {
    Some(hex_digit(high)? * 16 + hex_digit(low)?)
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn uuids_are_read_in_every_spelling() {
        let expected = Some([0xa0, 0xee, 0xbc, 0x99, 0x9c, 0x0b, 0x4e, 0xf8, 0xbb, 0x6d, 0x6b, 0xb9, 0xbd, 0x38, 0x0a, 0x11]);
        for text in [
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
            "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
            "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
        ] {
            assert_eq!(uuid_from_text(text.as_bytes()), expected, "{text}");
        }
        for text in [
            "",
            "{}",
            "{",
            " a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a111",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11-",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
            "a0-eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "g0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ] {
            assert_eq!(uuid_from_text(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn booleans_are_read_in_every_spelling() {
        for text in ["t", "tr", "TRUE", " yes ", "y", "on", "1", "On\n"] {
            assert_eq!(bool_from_text(text.as_bytes()), Some(true), "{text:?}");
        }
        for text in ["f", "False", "n", "no", "of", "OFF", "0"] {
            assert_eq!(bool_from_text(text.as_bytes()), Some(false), "{text:?}");
        }
        for text in ["", " ", "o", "truer", "yess", "2", "01", "t f", "\u{a0}t"] {
            assert_eq!(bool_from_text(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn bytea_is_read_as_hex_and_as_escapes() {
        assert_eq!(bytea_from_text(b"\\xDEad").as_deref(), Some(&[0xde, 0xad][..]));
        assert_eq!(bytea_from_text(b"\\x de\tad ").as_deref(), Some(&[0xde, 0xad][..]));
        assert_eq!(bytea_from_text(b"\\x").as_deref(), Some(&[][..]));
        assert_eq!(bytea_from_text(b"a\\\\b\\001\\377").as_deref(), Some(&b"a\\b\x01\xff"[..]));
        assert_eq!(bytea_from_text(b"").as_deref(), Some(&[][..]));
        for rejected in [&b"\\xd"[..], b"\\xdg", b"\\xd e", b"\\", b"\\400", b"\\12", b"a\\", "é".as_bytes()] {
            assert_eq!(bytea_from_text(rejected), None, "{rejected:?}");
        }
    }

    proptest! {
        #[test]
        fn anything_is_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            let _ = (uuid_from_text(&bytes), bool_from_text(&bytes), bytea_from_text(&bytes));
        }
    }
}
