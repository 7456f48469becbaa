//! The statements that make and fill the book catalogue, as text. Pure.
//!
//! The rows are written as literals, a few hundred to a statement, since the point of the demo is what a user would type;
//! every statement's rows belong to one key.

use super::records::{Book, ORDERS_YEAR, Order};

pub const SCHEMA: &str = include_str!("../../../config/demo/schema.sql");
pub const LANGUAGES: &str = include_str!("../../../config/demo/languages.sql");
pub const DECLARE: &str = include_str!("../../../config/demo/declare.sql");

const ROWS_PER_STATEMENT: usize = 500;

/// The statements of a script whose statements end with `;` at the end of a line and whose comments have lines of their own.
pub fn split_script(script: &str) -> Vec<String> {
    let mut statements = Vec::new();
    let mut statement = String::new();
    for line in script.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("--")) {
        statement.push_str(line);
        statement.push('\n');
        if line.ends_with(';') {
            statements.push(std::mem::take(&mut statement));
        }
    }
    statements
}

pub fn insert_books(books: &[Book]) -> Vec<String> {
    inserts("books (isbn, title, author, year, language, pages, price)", books, |book| {
        format!(
            "({}, {}, {}, {}, {}, {}, {})",
            literal(&book.isbn),
            literal(&book.title),
            literal(&book.author),
            book.year,
            literal(book.language),
            book.pages,
            money(book.price_cents)
        )
    })
}

pub fn insert_catalog(books: &[Book]) -> Vec<String> {
    inserts("library_of_congress_catalog (isbn, lccn, class, subject)", books, |book| {
        format!("({}, {}, {}, {})", literal(&book.isbn), literal(&book.lccn), literal(book.class), literal(book.subject))
    })
}

pub fn insert_orders(orders: &[Order]) -> Vec<String> {
    inserts("orders (ordered_on, id, reader_id, isbn, quantity, amount)", orders, |order| {
        format!(
            "({}, {}, {}, {}, {}, {})",
            literal(&order.ordered_on),
            order.id,
            order.reader_id,
            literal(&order.isbn),
            order.quantity,
            money(order.amount_cents)
        )
    })
}

/// The first of each month at which the orders are split, January excepted: it stays with what was before.
pub fn month_bounds() -> impl Iterator<Item = String> {
    (2..=12).map(|month| format!("{ORDERS_YEAR}-{month:02}-01"))
}

/// Rows that are there already stay as they are, so that an interrupted load can be taken up.
fn inserts<T>(target: &str, rows: &[T], tuple: impl Fn(&T) -> String) -> Vec<String> {
    let insert = |rows: &[T]| {
        let tuples: Vec<String> = rows.iter().map(&tuple).collect();
        format!("INSERT INTO {target} VALUES\n{}\nON CONFLICT DO NOTHING", tuples.join(",\n"))
    };
    rows.chunks(ROWS_PER_STATEMENT).map(insert).collect()
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn money(cents: u32) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

#[cfg(test)]
mod tests {
    use super::super::records::{self, BOOKS_PER_CHECK_CHARACTER};
    use super::*;

    #[test]
    fn scripts_split_at_their_statements() {
        let script = "-- a comment; with a semicolon;\nSELECT 1;\n\nSELECT\n    2;\n";
        assert_eq!(split_script(script), ["SELECT 1;\n", "SELECT\n    2;\n"]);
        assert_eq!(split_script(SCHEMA).len(), 7);
        assert_eq!(split_script(LANGUAGES).len(), 1);
        assert_eq!(split_script(DECLARE).iter().filter(|statement| statement.contains("map_key")).count(), 11);
    }

    #[test]
    fn every_language_of_a_book_is_in_the_table() {
        for book in records::books().iter().flatten() {
            assert!(LANGUAGES.contains(&format!("('{}', ", book.language)), "{}", book.language);
        }
    }

    #[test]
    fn rows_are_split_into_statements_and_quotes_are_doubled() {
        let books = records::books();
        let statements = insert_books(&books[0]);
        assert_eq!(statements.len(), BOOKS_PER_CHECK_CHARACTER.div_ceil(ROWS_PER_STATEMENT));
        assert!(statements.iter().any(|statement| statement.contains("O''Brien")));
        assert_eq!(money(1205), "12.05");
        assert_eq!(month_bounds().last().as_deref(), Some("2026-12-01"));
    }
}
