//! Types of the generated tables, and values that have found mistakes before.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Int2,
    Int4,
    Int8,
    /// numeric(12, 2): every value has one spelling.
    Money,
    /// numeric of any scale; compared, summed, never computed with.
    Wide,
    Float,
    Text,
    /// text COLLATE "C"
    Code,
    Char,
    Bool,
    Date,
    Time,
    Interval,
    Mood,
    Uuid,
    Array,
    Json,
}

impl Kind {
    pub const ALL: [Kind; 17] = [
        Kind::Int4,
        Kind::Int2,
        Kind::Int8,
        Kind::Money,
        Kind::Wide,
        Kind::Float,
        Kind::Text,
        Kind::Code,
        Kind::Char,
        Kind::Bool,
        Kind::Date,
        Kind::Time,
        Kind::Interval,
        Kind::Mood,
        Kind::Uuid,
        Kind::Array,
        Kind::Json,
    ];
    pub const KEYS: [Kind; 6] = [Kind::Int4, Kind::Int8, Kind::Text, Kind::Uuid, Kind::Date, Kind::Int2];

    pub fn type_name(self) -> &'static str {
        match self {
            Kind::Int2 => "int2",
            Kind::Int4 => "int4",
            Kind::Int8 => "int8",
            Kind::Money => "numeric(12,2)",
            Kind::Wide => "numeric",
            Kind::Float => "float8",
            Kind::Text | Kind::Code => "text",
            Kind::Char => "char(3)",
            Kind::Bool => "bool",
            Kind::Date => "date",
            Kind::Time => "timestamptz",
            Kind::Interval => "interval",
            Kind::Mood => "mood",
            Kind::Uuid => "uuid",
            Kind::Array => "int4[]",
            Kind::Json => "jsonb",
        }
    }

    /// Name of a column of this type.
    pub fn column(self) -> &'static str {
        match self {
            Kind::Int2 => "h",
            Kind::Int4 => "i",
            Kind::Int8 => "j",
            Kind::Money => "p",
            Kind::Wide => "w",
            Kind::Float => "f",
            Kind::Text => "s",
            Kind::Code => "c",
            Kind::Char => "l",
            Kind::Bool => "b",
            Kind::Date => "d",
            Kind::Time => "z",
            Kind::Interval => "v",
            Kind::Mood => "m",
            Kind::Uuid => "u",
            Kind::Array => "a",
            Kind::Json => "q",
        }
    }

    pub fn is_plain_number(self) -> bool {
        matches!(self, Kind::Int4)
    }

    pub fn has_min(self) -> bool {
        !matches!(self, Kind::Bool | Kind::Uuid | Kind::Json)
    }

    fn values(self) -> &'static [&'static str] {
        match self {
            Kind::Int2 => &["0", "1", "2", "-1", "32767", "-32768"],
            Kind::Int4 => &["0", "1", "2", "3", "4", "5", "7", "12", "-1", "-3"],
            Kind::Int8 => &["0", "1", "2", "3", "9223372036854775807", "-9223372036854775808", "4294967296"],
            Kind::Money => &["0.00", "1.00", "2.50", "-0.75", "10.10", "99.99", "3.33"],
            Kind::Wide => &["0", "1", "2.5", "-0.75", "1e-30", "123456789012345678901234567890.5", "NaN", "0.1", "7"],
            Kind::Float => &["0", "1", "2.5", "-0.75", "NaN", "Infinity", "-Infinity", "1024"],
            Kind::Text => &["", "a", "A", "b", "ab", "B", "ä", "z%", " a", "a ", "o'k", "\u{10348}"],
            Kind::Code => &["", "a", "A", "b", "ab", "_", "ä", "a\\b", "Z"],
            Kind::Char => &["", "a", "A", "ab", "abc"],
            Kind::Bool => &["true", "false"],
            Kind::Date => &["2024-01-01", "2024-01-02", "2024-02-29", "1999-12-31", "infinity", "0044-03-15 BC"],
            Kind::Time => &["2024-01-01 00:00:00+00", "2024-01-01 12:30:00.5+00", "2024-02-29 23:59:59.999999+00", "-infinity"],
            Kind::Interval => &["1 day", "2 days", "-3 days", "01:30:00", "1 year"],
            Kind::Mood => &["sad", "fair", "glad"],
            Kind::Uuid => &[
                "00000000-0000-0000-0000-000000000001",
                "10000000-0000-0000-0000-000000000002",
                "a0000000-0000-0000-0000-000000000003",
                "f0000000-0000-0000-0000-000000000004",
            ],
            Kind::Array => &["{}", "{1}", "{1,2}", "{2,1}", "{NULL,3}"],
            Kind::Json => &["null", "1", "\"a\"", "[1, 2]", "{\"a\": 1}", "{\"a\": [1], \"b\": null}"],
        }
    }

    pub fn value(self, random: &mut StdRng) -> String {
        (*self.values().choose(random).expect("values")).to_owned()
    }

    /// Values that are unique enough for keys.
    pub fn key(self, random: &mut StdRng) -> String {
        match self {
            Kind::Int2 | Kind::Int4 | Kind::Int8 => random.random_range(-5..40).to_string(),
            Kind::Text => format!("{}{}", ["k", "K", "é", " "].choose(random).expect("prefixes"), random.random_range(0..20)),
            Kind::Uuid => format!("{:08x}-0000-4000-8000-000000000000", random.random_range(0..30_u32) * 0x0777_7777),
            Kind::Date => format!("2024-01-{:02}", random.random_range(1..=31)),
            _ => self.value(random),
        }
    }
}
