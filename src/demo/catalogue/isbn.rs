//! ISBN-10: nine digits and a check character.
//!
//! The check character is `0` to `9` or `X` (ten), chosen so that the digits weighted 10, 9, …, 1 sum to a multiple of
//! eleven. It spreads evenly whatever the nine digits are, which is why the demo shards by it.

/// The check characters, in the order in which the demo maps them to shards.
pub const CHECK_CHARACTERS: [char; 11] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'X'];

/// The ISBN whose first nine digits are `body`, which is taken modulo 10⁹.
pub fn isbn10(body: u32) -> String {
    let digits = format!("{:09}", body % 1_000_000_000);
    format!("{digits}{}", check_character(&digits))
}

/// For nine digits.
fn check_character(digits: &str) -> char {
    let sum: u32 =
        digits.chars().filter_map(|digit| digit.to_digit(10)).zip((2..=10).rev()).map(|(digit, weight)| digit * weight).sum();
    match (11 - sum % 11) % 11 {
        10 => 'X',
        check => char::from_digit(check, 10).unwrap_or('X'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_characters_are_those_of_real_books() {
        // The C Programming Language; The Mythical Man-Month; A Discipline of Programming.
        assert_eq!(isbn10(13_110_362), "0131103628");
        assert_eq!(isbn10(20_183_595), "0201835959");
        assert_eq!(isbn10(13_215_871), "013215871X");
    }

    #[test]
    fn weighted_digits_sum_to_a_multiple_of_eleven() {
        for body in (0..1_000_000_000).step_by(9_999_991) {
            let isbn = isbn10(body);
            let value = |character| CHECK_CHARACTERS.iter().position(|known| *known == character).unwrap();
            let sum: usize = isbn.chars().zip((1..=10).rev()).map(|(character, weight)| value(character) * weight).sum();
            assert_eq!((isbn.len(), sum % 11), (10, 0), "{isbn}");
        }
    }
}
