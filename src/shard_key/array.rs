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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(key_type: KeyType, array_oid: Oid, array: &str) -> Option<Vec<Conversion>> {
        KeyDatum::convert_array(key_type, array_oid, Format::Text, array.as_bytes(), 10)
    }

    fn int(value: i64) -> Conversion {
        Conversion::Exactly(KeyDatum::Int(value))
    }

    fn string(value: &str) -> Conversion {
        Conversion::Exactly(KeyDatum::Text(value.into()))
    }

    fn binary(dimensions: &[(i32, i32)], element: Oid, values: &[Option<&[u8]>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(i32::try_from(dimensions.len()).unwrap().to_be_bytes());
        bytes.extend(0_i32.to_be_bytes());
        bytes.extend(element.to_be_bytes());
        for (length, lower_bound) in dimensions {
            bytes.extend(length.to_be_bytes());
            bytes.extend(lower_bound.to_be_bytes());
        }
        for value in values {
            match value {
                Some(value) => {
                    bytes.extend(i32::try_from(value.len()).unwrap().to_be_bytes());
                    bytes.extend(*value);
                }
                None => bytes.extend((-1_i32).to_be_bytes()),
            }
        }
        bytes
    }

    fn int4_array(bytes: &[u8]) -> Option<Vec<Conversion>> {
        KeyDatum::convert_array(KeyType::Int8, 1007, Format::Binary, bytes, 10)
    }

    #[test]
    fn text_arrays_are_read_as_array_in_reads_them() {
        assert_eq!(text(KeyType::Int8, 1016, " { 1 ,2,\tNULL, \"3\" } "), Some(vec![int(1), int(2), Conversion::NoValue, int(3)]));
        assert_eq!(text(KeyType::Int8, 0, "{}"), Some(vec![]));
        assert_eq!(text(KeyType::Int2, 1016, "{70000}"), Some(vec![Conversion::NoValue]));
        assert_eq!(text(KeyType::Int8, 1231, "{1.5,2.0}"), Some(vec![Conversion::NoValue, int(2)]));
        assert_eq!(text(KeyType::Int4, 1007, "{x}"), Some(vec![Conversion::Unknown]));
        let words = text(KeyType::Text, 1009, r#"{a b,"c,d","e\"f\\","","null"}"#).unwrap();
        assert_eq!(words, [string("a b"), string("c,d"), string("e\"f\\"), string(""), string("null")]);
    }

    #[test]
    fn text_arrays_of_other_shapes_are_not_proven() {
        for array in [
            "",
            "{",
            "}",
            "{1",
            "{1,",
            "{1,}",
            "{,1}",
            "{1,,2}",
            "{1}x",
            "{{1}}",
            "[0:1]={1,2}",
            "{\"1}",
            "{\"1\"2}",
            "{1\"2\"}",
            "{\\1}",
            "1",
            "{\"1\\",
        ] {
            assert_eq!(text(KeyType::Int8, 1016, array), None, "{array:?}");
        }
        assert_eq!(text(KeyType::Text, 1009, "{NULL}"), None, "a string where array_nulls is off");
        assert_eq!(text(KeyType::Int8, 1022, "{1}"), None, "float8[]");
        assert_eq!(text(KeyType::Int8, 20, "{1}"), None, "int8 is no array");
        assert_eq!(text(KeyType::Int8, 1016, "{1,2,3,4,5,6,7,8,9,10,11}"), None, "too many");
    }

    #[test]
    fn binary_arrays_are_read() {
        let array = binary(&[(3, 1)], oid::INT4, &[Some(&[0, 0, 0, 1]), None, Some(&[0xff; 4])]);
        assert_eq!(int4_array(&array), Some(vec![int(1), Conversion::NoValue, int(-1)]));
        assert_eq!(int4_array(&binary(&[], oid::INT4, &[])), Some(vec![]));
        for length in 0..array.len() {
            assert_eq!(int4_array(&array[..length]), None, "cut at {length}");
        }
        assert_eq!(int4_array(&[&array[..], &[0]].concat()), None, "too long");
    }

    #[test]
    fn binary_arrays_of_other_shapes_are_not_proven() {
        let one: &[Option<&[u8]>] = &[Some(&[0, 0, 0, 1])];
        assert_eq!(int4_array(&binary(&[(1, 0)], oid::INT4, one)), None, "lower bound");
        assert_eq!(int4_array(&binary(&[(1, 1), (1, 1)], oid::INT4, one)), None, "two dimensions");
        assert_eq!(int4_array(&binary(&[(1, 1)], oid::INT8, one)), None, "other element type");
        assert_eq!(int4_array(&binary(&[(-1, 1)], oid::INT4, one)), None, "negative count");
        assert_eq!(int4_array(&binary(&[(i32::MAX, 1)], oid::INT4, one)), None, "more than was sent");
        assert_eq!(int4_array(&binary(&[(11, 1)], oid::INT4, &[None; 11])), None, "too many");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = int4_array(&bytes);
            let _ = KeyDatum::convert_array(KeyType::Text, 1009, Format::Text, &bytes, 10);
        }

        #[test]
        fn any_text_is_read_without_panic(array in "[{}\",\\\\ 1aN]{0,20}") {
            let _ = text(KeyType::Text, 1009, &array);
            let _ = text(KeyType::Int8, 0, &array);
        }
    }
}
