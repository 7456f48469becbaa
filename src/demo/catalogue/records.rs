//! The rows of the book catalogue: generated, the same at every run.
//!
//! Pure. Titles, names and prices are made up from short word lists by a small generator with a fixed seed; only the ISBNs
//! follow real rules. Every check character gets the same number of books.

use super::isbn::{CHECK_CHARACTERS, isbn10};

pub struct Book {
    pub isbn: String,
    pub title: String,
    pub author: String,
    pub year: u32,
    pub language: &'static str,
    pub pages: u32,
    pub price_cents: u32,
    /// As the Library of Congress files it: its own number, the class, what the class stands for.
    pub lccn: String,
    pub class: &'static str,
    pub subject: &'static str,
}

pub struct Reader {
    pub id: u32,
    pub name: String,
    pub joined_on: String,
}

pub struct Order {
    pub ordered_on: String,
    pub id: u32,
    pub reader_id: u32,
    pub isbn: String,
    pub quantity: u32,
    pub amount_cents: u32,
}

pub const BOOKS_PER_CHECK_CHARACTER: usize = 1_000;
pub const READERS: u32 = 600;
pub const ORDERS_PER_MONTH: u32 = 250;
/// One of the books, to show.
pub const SAMPLE_ISBN: &str = "0200002090";
/// The year that the orders are of; `config/demo/declare.sql` splits it by month.
pub const ORDERS_YEAR: u32 = 2026;

/// All books, grouped by check character in the order of [`CHECK_CHARACTERS`].
pub fn books() -> Vec<Vec<Book>> {
    let mut dice = Dice(0x5EED_B00C);
    let mut groups: Vec<Vec<Book>> = CHECK_CHARACTERS.iter().map(|_| Vec::with_capacity(BOOKS_PER_CHECK_CHARACTER)).collect();
    let mut body: u32 = 20_000_000;
    while groups.iter().any(|group| group.len() < BOOKS_PER_CHECK_CHARACTER) {
        // Steps of more than one, as publishers' numbers have gaps.
        body += 1 + dice.below(37);
        let isbn = isbn10(body);
        let group = CHECK_CHARACTERS.iter().position(|character| isbn.ends_with(*character)).and_then(|at| groups.get_mut(at));
        if let Some(group) = group.filter(|group| group.len() < BOOKS_PER_CHECK_CHARACTER) {
            group.push(book(isbn, body, &mut dice));
        }
    }
    groups
}

pub fn readers() -> Vec<Reader> {
    let mut dice = Dice(0x5EED_4EAD);
    (1..=READERS)
        .map(|id| Reader {
            id,
            name: person(&mut dice),
            joined_on: format!("{}-{:02}-{:02}", 2015 + dice.below(11), 1 + dice.below(12), 1 + dice.below(28)),
        })
        .collect()
}

/// Orders of these books, month by month.
pub fn orders(books: &[Vec<Book>]) -> Vec<Vec<Order>> {
    let mut dice = Dice(0x5EED_04DE);
    let all: Vec<&Book> = books.iter().flatten().collect();
    let mut id = 0;
    (1..=12)
        .map(|month| {
            let draw = |_| {
                id += 1;
                order(id, month, dice.pick(&all), &mut dice)
            };
            (0..ORDERS_PER_MONTH).map(draw).collect()
        })
        .collect()
}

fn book(isbn: String, body: u32, dice: &mut Dice) -> Book {
    let (class, subject) = dice.pick(CLASSES);
    let (topic, place) = (dice.pick(TOPICS), dice.pick(PLACES));
    let title = match dice.below(5) {
        0 => format!("The {} {topic}", dice.pick(ADJECTIVES)),
        1 => format!("{topic} of {place}"),
        2 => format!("{} {topic} in {place}", dice.pick(ADJECTIVES)),
        3 => format!("A Short History of {topic}"),
        _ => format!("{place}: {topic} and {}", dice.pick(TOPICS)),
    };
    let year = 1925 + dice.below(100);
    Book {
        isbn,
        title,
        author: person(dice),
        year,
        language: dice.pick(LANGUAGES),
        pages: 64 + dice.below(900),
        price_cents: 495 + 50 * dice.below(150),
        lccn: format!("{:02}{:06}", year % 100, body % 1_000_000),
        class,
        subject,
    }
}

fn order(id: u32, month: u32, book: &Book, dice: &mut Dice) -> Order {
    let quantity = 1 + dice.below(4);
    Order {
        ordered_on: format!("{ORDERS_YEAR}-{month:02}-{:02}", 1 + dice.below(28)),
        id,
        reader_id: 1 + dice.below(READERS),
        isbn: book.isbn.clone(),
        quantity,
        amount_cents: quantity * book.price_cents,
    }
}

fn person(dice: &mut Dice) -> String {
    format!("{} {}", dice.pick(GIVEN_NAMES), dice.pick(FAMILY_NAMES))
}

/// SplitMix64: a few lines, and the same numbers for ever.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// 0 to `bound` - 1. The bias of the remainder does not matter here.
    fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.next() % u64::from(bound)).unwrap_or(0)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.next() % from.len() as u64).unwrap_or(0)]
    }
}

/// Codes of `languages`, in `config/demo/schema.sql`; English more often than the others.
const LANGUAGES: &[&str] = &["eng", "eng", "eng", "eng", "fre", "ger", "spa", "ita", "por", "jpn", "chi", "rus", "ara", "hin"];
const CLASSES: &[(&str, &str)] = &[
    ("B", "Philosophy"),
    ("BF", "Psychology"),
    ("D", "World history"),
    ("E", "History of the Americas"),
    ("G", "Geography"),
    ("HB", "Economic theory"),
    ("K", "Law"),
    ("ML", "Literature on music"),
    ("ND", "Painting"),
    ("PN", "Literature"),
    ("PR", "English literature"),
    ("QA", "Mathematics"),
    ("QB", "Astronomy"),
    ("QH", "Natural history"),
    ("R", "Medicine"),
    ("TK", "Electrical engineering"),
    ("TX", "Home economics"),
    ("Z", "Libraries"),
];
const ADJECTIVES: &[&str] = &[
    "Quiet",
    "Broken",
    "Invisible",
    "Ancient",
    "Hidden",
    "Northern",
    "Silent",
    "Golden",
    "Practical",
    "Modern",
    "Forgotten",
    "Wild",
    "Patient",
    "Unfinished",
    "Essential",
    "Distant",
];
const TOPICS: &[&str] = &[
    "Gardens",
    "Bridges",
    "Rivers",
    "Clocks",
    "Maps",
    "Numbers",
    "Letters",
    "Machines",
    "Birds",
    "Winters",
    "Harbours",
    "Lighthouses",
    "Kitchens",
    "Islands",
    "Stars",
    "Railways",
    "Orchards",
    "Markets",
    "Windows",
    "Archives",
    "Glaciers",
    "Proofs",
];
const PLACES: &[&str] = &[
    "Lisbon",
    "Kyoto",
    "Oslo",
    "Cairo",
    "Vienna",
    "Quito",
    "Dublin",
    "Samarkand",
    "Bergen",
    "Naples",
    "Havana",
    "Riga",
    "Tunis",
    "Cork",
    "Trieste",
    "Valparaíso",
];
const GIVEN_NAMES: &[&str] = &[
    "Ada", "Bruno", "Clara", "Dmitri", "Elif", "Farid", "Greta", "Hiro", "Ines", "João", "Karin", "Leo", "Mira", "Nils", "Olga",
    "Pablo", "Rosa", "Sanjay", "Teresa", "Umar", "Vera", "Wen", "Yara", "Zoë",
];
const FAMILY_NAMES: &[&str] = &[
    "Almeida",
    "Berg",
    "Castillo",
    "Dvořák",
    "Eriksen",
    "Fontaine",
    "García",
    "Haddad",
    "Ito",
    "Jansen",
    "Kowalski",
    "Lindqvist",
    "Moreau",
    "Nakamura",
    "O'Brien",
    "Petrov",
    "Quinn",
    "Rossi",
    "Schäfer",
    "Tanaka",
    "Ueda",
    "Varga",
    "Weber",
    "Zhang",
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_check_character_has_its_books_and_no_isbn_comes_twice() {
        let groups = books();
        assert_eq!(groups.len(), CHECK_CHARACTERS.len());
        for (character, group) in CHECK_CHARACTERS.iter().zip(&groups) {
            assert_eq!(group.len(), BOOKS_PER_CHECK_CHARACTER);
            assert!(group.iter().all(|book| book.isbn.len() == 10 && book.isbn.ends_with(*character)));
        }
        let isbns: HashSet<&str> = groups.iter().flatten().map(|book| book.isbn.as_str()).collect();
        assert_eq!(isbns.len(), 11 * BOOKS_PER_CHECK_CHARACTER);
    }

    #[test]
    fn the_catalogue_is_the_same_at_every_run() {
        let fingerprint =
            |books: &[Vec<Book>]| books.iter().flatten().map(|book| format!("{} {}", book.isbn, book.title)).collect::<Vec<_>>();
        assert_eq!(fingerprint(&books()), fingerprint(&books()));
        let first = &books()[0][0];
        assert_eq!(first.isbn, SAMPLE_ISBN);
        assert_eq!((first.title.as_str(), first.author.as_str()), ("A Short History of Kitchens", "Bruno Berg"));
    }

    #[test]
    fn orders_lie_in_their_month_and_name_books_and_readers_that_exist() {
        let books = books();
        let isbns: HashSet<&str> = books.iter().flatten().map(|book| book.isbn.as_str()).collect();
        for (month, orders) in (1..).zip(orders(&books)) {
            assert_eq!(orders.len(), ORDERS_PER_MONTH as usize);
            for order in orders {
                assert!(order.ordered_on.starts_with(&format!("{ORDERS_YEAR}-{month:02}-")));
                assert!(isbns.contains(order.isbn.as_str()) && (1..=READERS).contains(&order.reader_id));
            }
        }
        assert_eq!(readers().len(), READERS as usize);
    }
}
