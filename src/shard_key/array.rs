//! The elements of an array, for `key = ANY (array)`.
//!
//! One-dimensional arrays with the usual lower bound only; anything that PostgreSQL would reject, or reads in a way that
//! depends on a setting, is `None`.

use super::{Conversion, Format, KeyDatum, KeyType, Oid, oid};

impl KeyDatum {
    /// What each element of an array of type `array_oid` (0: an untyped literal) means when compared by `=` with a column of
    /// `key_type`. A NULL among them equals nothing. `None`: not proven, or more elements than `elements_max`.
    pub fn convert_array(
        key_type: KeyType,
        array_oid: Oid,
        format: Format,
        bytes: &[u8],
        elements_max: usize,
    ) -> Option<Vec<Conversion>> {
        let element = if oid::is_untyped(array_oid) { 0 } else { oid::array_element(array_oid)? };
        match format {
            Format::Text => TextArray { key_type, element, elements_max }.read(bytes),
            Format::Binary => read_binary(key_type, element, bytes, elements_max),
        }
    }
}

/// dimensions, flags, element type; each dimension's length and lower bound; each element's length and bytes.
fn read_binary(key_type: KeyType, element: Oid, bytes: &[u8], elements_max: usize) -> Option<Vec<Conversion>> {
    let (dimensions, rest) = int4(bytes)?;
    let (_has_nulls, rest) = int4(rest)?;
    let (sent_element, mut rest) = int4(rest)?;
    if sent_element.cast_unsigned() != element {
        return None;
    }
    if dimensions == 0 {
        return rest.is_empty().then(Vec::new);
    }
    let count;
    let lower_bound;
    (count, rest) = int4(rest)?;
    (lower_bound, rest) = int4(rest)?;
    let count = usize::try_from(count).ok()?;
    // Each element has at least its length word, so the count cannot make us reserve more than was sent.
    if dimensions != 1 || lower_bound != 1 || count > elements_max || count > rest.len() / 4 {
        return None;
    }
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, after) = int4(rest)?;
        if length == -1 {
            values.push(Conversion::NoValue);
            rest = after;
            continue;
        }
        let (value, after) = after.split_at_checked(usize::try_from(length).ok()?)?;
        values.push(KeyDatum::convert(key_type, element, Format::Binary, value));
        rest = after;
    }
    rest.is_empty().then_some(values)
}

fn int4(bytes: &[u8]) -> Option<(i32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<4>()?;
    Some((i32::from_be_bytes(*word), rest))
}

/// `{1,2,NULL,"a b"}`, as array_in reads it.
struct TextArray {
    key_type: KeyType,
    element: Oid,
    elements_max: usize,
}

impl TextArray {
    fn read(&self, bytes: &[u8]) -> Option<Vec<Conversion>> {
        let mut values = Vec::new();
        let mut rest = skip_blanks(skip_blanks(bytes).strip_prefix(b"{")?);
        if let Some(after) = rest.strip_prefix(b"}") {
            return skip_blanks(after).is_empty().then_some(values);
        }
        loop {
            let value;
            (value, rest) = self.element(skip_blanks(rest))?;
            values.push(value);
            if values.len() > self.elements_max {
                return None;
            }
            match skip_blanks(rest).split_first()? {
                (b',', after) => rest = after,
                (b'}', after) => return skip_blanks(after).is_empty().then_some(values),
                _ => return None,
            }
        }
    }

    fn element<'a>(&self, bytes: &'a [u8]) -> Option<(Conversion, &'a [u8])> {
        if let Some(quoted) = bytes.strip_prefix(b"\"") {
            let (value, rest) = unquote(quoted)?;
            return Some((KeyDatum::convert(self.key_type, self.element, Format::Text, &value), rest));
        }
        let end = bytes.iter().position(|byte| matches!(byte, b',' | b'}'))?;
        let (value, rest) = bytes.split_at_checked(end)?;
        let value = trim_end_blanks(value);
        if value.is_empty() || value.iter().any(|byte| matches!(byte, b'{' | b'"' | b'\\')) {
            return None;
        }
        if value.eq_ignore_ascii_case(b"null") {
            // With array_nulls = off it is a string, which only text could hold.
            return (!matches!(self.key_type, KeyType::Text | KeyType::Bpchar | KeyType::Bytea))
                .then_some((Conversion::NoValue, rest));
        }
        Some((KeyDatum::convert(self.key_type, self.element, Format::Text, value), rest))
    }
}

/// After the opening quote: the value and what follows the closing one.
fn unquote(bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut value = Vec::new();
    let mut rest = bytes;
    loop {
        match rest {
            [b'"', after @ ..] => return Some((value, after)),
            [b'\\', byte, after @ ..] => {
                value.push(*byte);
                rest = after;
            }
            [b'\\'] | [] => return None,
            [byte, after @ ..] => {
                value.push(*byte);
                rest = after;
            }
        }
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn skip_blanks(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|byte| !is_blank(*byte)).unwrap_or(bytes.len());
    bytes.get(start..).unwrap_or_default()
}

fn trim_end_blanks(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| !is_blank(*byte)).map_or(0, |last| last + 1);
    bytes.get(..end).unwrap_or_default()
}
