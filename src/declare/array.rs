//! One-dimensional text arrays in PostgreSQL's own notation, `{a,"b c",NULL}`.

use crate::error::{PgError, SqlState};

/// The elements; a NULL is `None`. More dimensions and explicit bounds are refused.
pub(super) fn parse_text_array(text: &str) -> Result<Vec<Option<String>>, PgError> {
    let malformed = || {
        PgError::new(SqlState::INVALID_TEXT_REPRESENTATION, "malformed array literal")
            .with_hint("Write it as '{first,second}' or as ARRAY['first', 'second'].")
    };
    let inner = text.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(malformed)?;
    if inner.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut elements = Vec::new();
    let mut characters = inner.chars().peekable();
    loop {
        let element = read_element(&mut characters).ok_or_else(malformed)?;
        elements.push(element);
        match characters.next() {
            None => return Ok(elements),
            Some(',') => {}
            Some(_) => return Err(malformed()),
        }
    }
}

/// The same, of elements that are not null.
pub(super) fn text_array(elements: &[String]) -> String {
    let quoted = |element: &String| format!("\"{}\"", element.replace('\\', "\\\\").replace('"', "\\\""));
    format!("{{{}}}", elements.iter().map(quoted).collect::<Vec<_>>().join(","))
}

/// Up to the comma or the end. `None`: malformed.
fn read_element(characters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<Option<String>> {
    while characters.next_if(|c| c.is_ascii_whitespace()).is_some() {}
    let mut element = String::new();
    if characters.next_if_eq(&'"').is_some() {
        loop {
            match characters.next()? {
                '"' => break,
                '\\' => element.push(characters.next()?),
                other => element.push(other),
            }
        }
        while characters.next_if(|c| c.is_ascii_whitespace()).is_some() {}
        return Some(Some(element));
    }
    let mut is_escaped = false;
    while let Some(character) = characters.next_if(|c| *c != ',') {
        match character {
            '{' | '}' | '"' => return None,
            '\\' => {
                is_escaped = true;
                element.push(characters.next()?);
            }
            other => element.push(other),
        }
    }
    if is_escaped {
        return Some(Some(element));
    }
    match element.trim_end() {
        "" => None,
        word if word.eq_ignore_ascii_case("null") => Some(None),
        word => Some(Some(word.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_as_postgresql_writes_them() {
        let some = |texts: &[&str]| texts.iter().map(|text| Some((*text).to_owned())).collect::<Vec<_>>();
        assert_eq!(parse_text_array("{}").unwrap(), vec![]);
        assert_eq!(parse_text_array("{a,b c , \"d,\\\"e\" }").unwrap(), some(&["a", "b c", "d,\"e"]));
        assert_eq!(parse_text_array("{NULL,\"NULL\",nul\\l}").unwrap(), vec![None, Some("NULL".into()), Some("null".into())]);
        assert_eq!(parse_text_array("{\"\"}").unwrap(), some(&[""]));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["", "a", "{a", "{a,}", "{,a}", "{{a}}", "{\"a}", "{\"a\"b}", "[1:1]={a}", "{a\\"] {
            assert!(parse_text_array(text).is_err(), "{text}");
        }
    }
}
