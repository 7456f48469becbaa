//! A piece of a client's text that is sent by itself, at the place that it has in the text.
//!
//! PostgreSQL gives the place of an error as a number of characters from the beginning of the text that it was sent. Blanks in place
//! of what comes before the piece keep that number the client's own.

/// `piece`, behind as many blanks as `text` has characters before `start`.
pub fn in_its_place(text: &str, start: usize, piece: &str) -> String {
    behind_blanks(text.get(..start).unwrap_or_default().chars().count(), piece)
}

/// `piece`, behind this many blanks. Not by the width of a format, which is limited to 16 bits and panics beyond them.
pub fn behind_blanks(count: usize, piece: &str) -> String {
    let mut padded = String::with_capacity(count + piece.len());
    padded.extend(std::iter::repeat_n(' ', count));
    padded.push_str(piece);
    padded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_as_many_characters_from_the_beginning_as_in_its_text() {
        assert_eq!(in_its_place("select 1; select 2", 10, "select 2"), "          select 2");
        assert_eq!(in_its_place("/* é */ x", 9, "x"), "        x", "characters are counted, not bytes");
        assert_eq!(behind_blanks(0, "x"), "x");
        assert_eq!(behind_blanks(70_000, "x").len(), 70_001);
    }
}
