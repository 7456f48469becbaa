//! What a value means for a key column, held against a real server under several settings.
//!
//! * Literals: whatever is read here is read by the server as the same value, under every TimeZone and DateStyle.
//! * Comparisons: every pair of a column type and a value type, every value in text and binary: the rows that the server finds
//!   with `=`, `<` and `>` are those that the conversion says.
//! * Storing: what INSERT leaves in the column is what the assignment says.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use shardgate::shard_key::{Conversion, Format, KeyDatum, KeyType, Position};
use tokio_postgres::Client;

use crate::support::Cluster;

/// What could make the server read a literal differently.
const SETTINGS: [&str; 3] = [
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, MDY'",
    "SET TimeZone = 'Asia/Kolkata'; SET DateStyle = 'SQL, DMY'",
    "SET TimeZone = 'America/St_Johns'; SET DateStyle = 'German, YMD'",
];

/// `try_text`: what the server reads, as it prints it under neutral settings; NULL for an error.
const FUNCTIONS: &str = "
    CREATE FUNCTION neutral(v anyelement) RETURNS text LANGUAGE sql SET TimeZone = 'UTC' SET DateStyle = 'ISO'
        AS 'SELECT v::text';
    CREATE FUNCTION try_text(literal text, type_name text) RETURNS text LANGUAGE plpgsql AS $$
    DECLARE result text;
    BEGIN
        EXECUTE format('SELECT neutral(%L::%s)', literal, type_name) INTO result;
        RETURN result;
    EXCEPTION WHEN OTHERS THEN RETURN NULL;
    END $$;
    CREATE FUNCTION try_rows(query text) RETURNS int[] LANGUAGE plpgsql AS $$
    DECLARE result int[];
    BEGIN
        EXECUTE query INTO result;
        RETURN coalesce(result, '{}');
    EXCEPTION WHEN OTHERS THEN RETURN NULL;
    END $$;
    CREATE FUNCTION try_store(expression text, type_name text) RETURNS text LANGUAGE plpgsql AS $$
    DECLARE result text;
    BEGIN
        EXECUTE format('CREATE TEMP TABLE stored (k %s)', type_name);
        EXECUTE format('INSERT INTO stored VALUES (%s) RETURNING neutral(k)', expression) INTO result;
        DROP TABLE stored;
        RETURN result;
    EXCEPTION WHEN OTHERS THEN RETURN NULL;
    END $$;";

#[tokio::test]
async fn literals_are_read_as_the_server_reads_them_whatever_the_settings() {
    let cluster = Cluster::start(1).await;
    let client = cluster.connect_shard(0).await;
    client.batch_execute(FUNCTIONS).await.unwrap();
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for key_type in KeyType::ALL {
        let literals: Vec<String> = (0..1_500).map(|_| random_literal(key_type, &mut random)).collect();
        let mut read = 0;
        for settings in SETTINGS {
            client.batch_execute(settings).await.unwrap();
            let sql = "SELECT try_text(t, $2) FROM unnest($1::text[]) WITH ORDINALITY AS u (t, i) ORDER BY i";
            let rows = client.query(sql, &[&literals, &cast_name(key_type)]).await.unwrap();
            for (literal, row) in literals.iter().zip(rows) {
                let server: Option<String> = row.get(0);
                match KeyDatum::convert(key_type, 0, Format::Text, literal.as_bytes()) {
                    Conversion::Exactly(datum) => {
                        let expected = neutral_text(&datum, key_type);
                        let server = server.as_deref().map(|text| without_zeros(text, key_type));
                        assert_eq!(server, Some(&*expected), "{key_type:?} {literal:?} under {settings}");
                        read += 1;
                    }
                    Conversion::NoValue => panic!("{key_type:?} {literal:?}: a literal is of the column's type"),
                    Conversion::Unknown => {}
                }
            }
        }
        println!("{key_type:?}: {read} of {} read", 3 * literals.len());
        assert!(read > 150, "{key_type:?}: only {read} literals were read at all");
    }
}

#[tokio::test]
async fn comparisons_find_the_rows_that_the_conversion_says() {
    let cluster = Cluster::start(1).await;
    let client = cluster.connect_shard(0).await;
    client.batch_execute(FUNCTIONS).await.unwrap();
    let mut narrowed = 0;
    for settings in &SETTINGS[..2] {
        client.batch_execute(settings).await.unwrap();
        for column in COLUMNS {
            let rows = create_column(&client, column).await;
            for value_type in VALUES {
                narrowed += compare(&client, column, &rows, value_type).await;
            }
            client.batch_execute("DROP TABLE c").await.unwrap();
        }
    }
    assert!(narrowed > 500, "only {narrowed} comparisons were narrowed");
}

#[tokio::test]
async fn stored_values_are_what_the_assignment_says() {
    let cluster = Cluster::start(1).await;
    let client = cluster.connect_shard(0).await;
    client.batch_execute(FUNCTIONS).await.unwrap();
    let mut proven = 0;
    for settings in &SETTINGS[..2] {
        client.batch_execute(settings).await.unwrap();
        for column in COLUMNS {
            for value_type in VALUES {
                for value in read_values(&client, value_type).await {
                    proven += store(&client, column, value_type, &value).await;
                }
            }
        }
    }
    assert!(proven > 300, "only {proven} assignments were proven");
}

/// A column's declaration, its key type and what it holds.
struct Column {
    declaration: &'static str,
    key_type: KeyType,
    /// `atttypmod`.
    typmod: i32,
    rows: &'static [&'static str],
}

const INTEGERS: &[&str] = &["-32768", "-2", "-1", "0", "1", "2", "3", "32767"];
const BIG_INTEGERS: &[&str] =
    &["-9223372036854775808", "-2", "0", "1", "2", "9007199254740992", "9007199254740993", "9223372036854775807"];
const WORDS: &[&str] = &["", " ", "a", "a ", "a  ", "A", "abc", "abc ", "b", "é"];
const DATES: &[&str] = &["-infinity", "1999-12-31", "2000-01-01", "2000-01-02", "300000-01-01", "infinity"];
const TIMESTAMPS: &[&str] =
    &["-infinity", "1999-12-31 18:30:00", "2000-01-01 00:00:00", "2000-01-01 00:00:00.000001", "2000-01-02 00:00:00", "infinity"];
/// With fractions, to be rounded.
const INSTANTS: &[&str] = &[
    "2000-01-01 00:00:00.5+00",
    "2000-01-01 00:00:00.499999+00",
    "1999-12-31 23:59:58.5+00",
    "2024-06-15 12:34:56.7895+00",
    "1969-06-15 12:34:56.1235+00",
];
const TIMESTAMPTZS: &[&str] =
    &["-infinity", "1999-12-31 18:30:00+00", "2000-01-01 00:00:00+00", "2000-01-01 05:30:00+05:30", "infinity"];
const UUIDS: &[&str] = &["00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"];
const DECIMALS: &[&str] = &[
    "-Infinity",
    "-1e30",
    "-70000",
    "-1.5",
    "0",
    "0.00001",
    "1.0",
    "1.50",
    "2",
    "32767",
    "9007199254740993",
    "1e30",
    "Infinity",
    "NaN",
];
const BYTEAS: &[&str] = &["\\x", "\\x00", "\\x0001", "\\x6162"];

const COLUMNS: &[Column] = &[
    Column { declaration: "int2", key_type: KeyType::Int2, typmod: -1, rows: INTEGERS },
    Column { declaration: "int4", key_type: KeyType::Int4, typmod: -1, rows: INTEGERS },
    Column { declaration: "int8", key_type: KeyType::Int8, typmod: -1, rows: BIG_INTEGERS },
    Column { declaration: "text COLLATE \"C\"", key_type: KeyType::Text, typmod: -1, rows: WORDS },
    Column { declaration: "varchar(5) COLLATE \"C\"", key_type: KeyType::Text, typmod: 9, rows: WORDS },
    Column { declaration: "char(5) COLLATE \"C\"", key_type: KeyType::Bpchar, typmod: 9, rows: WORDS },
    Column { declaration: "uuid", key_type: KeyType::Uuid, typmod: -1, rows: UUIDS },
    Column { declaration: "date", key_type: KeyType::Date, typmod: -1, rows: DATES },
    Column { declaration: "timestamp", key_type: KeyType::Timestamp, typmod: -1, rows: TIMESTAMPS },
    Column { declaration: "timestamptz", key_type: KeyType::Timestamptz, typmod: -1, rows: TIMESTAMPTZS },
    Column { declaration: "boolean", key_type: KeyType::Bool, typmod: -1, rows: &["f", "t"] },
    Column { declaration: "varchar(1) COLLATE \"C\"", key_type: KeyType::Text, typmod: 5, rows: &["", " ", "a", "é"] },
    Column { declaration: "timestamp(0)", key_type: KeyType::Timestamp, typmod: 0, rows: TIMESTAMPS },
    Column { declaration: "timestamptz(3)", key_type: KeyType::Timestamptz, typmod: 3, rows: TIMESTAMPTZS },
    Column { declaration: "numeric", key_type: KeyType::Numeric, typmod: -1, rows: DECIMALS },
    Column {
        declaration: "numeric(8,2)",
        key_type: KeyType::Numeric,
        typmod: ((8 << 16) | 2) + 4,
        rows: &["-1.5", "0", "1", "2.50", "NaN"],
    },
    Column {
        declaration: "numeric(5,-2)",
        key_type: KeyType::Numeric,
        typmod: ((5 << 16) | 0x7fe) + 4,
        rows: &["0", "100", "NaN"],
    },
    Column { declaration: "bytea", key_type: KeyType::Bytea, typmod: -1, rows: BYTEAS },
];

/// A type of values, its oid, the function that gives its binary form, and literals.
struct ValueType {
    name: &'static str,
    oid: u32,
    send: &'static str,
    literals: &'static [&'static str],
}

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "-1",
    "1.5",
    "-1.5",
    "2.0",
    "2.50",
    "70000",
    "-70000",
    "32767",
    "32767.5",
    "1e10",
    "9007199254740993.0",
    "1e30",
    "-1e30",
    "NaN",
    "Infinity",
    "-Infinity",
    "0.00001",
    "120000",
    "9223372036854775807",
    "9223372036854775807.9",
    "-32768.5",
];

const VALUES: &[ValueType] = &[
    ValueType { name: "int2", oid: 21, send: "int2send", literals: INTEGERS },
    ValueType { name: "int4", oid: 23, send: "int4send", literals: &["0", "1", "-2", "32767", "32768", "-2147483648"] },
    ValueType { name: "int8", oid: 20, send: "int8send", literals: BIG_INTEGERS },
    ValueType { name: "numeric", oid: 1700, send: "numeric_send", literals: NUMBERS },
    ValueType { name: "float8", oid: 701, send: "float8send", literals: &["0", "1", "1.5", "9007199254740992"] },
    ValueType { name: "text", oid: 25, send: "textsend", literals: WORDS },
    ValueType { name: "varchar", oid: 1043, send: "varcharsend", literals: WORDS },
    ValueType { name: "char(4)", oid: 1042, send: "bpcharsend", literals: WORDS },
    ValueType { name: "name", oid: 19, send: "namesend", literals: WORDS },
    ValueType { name: "uuid", oid: 2950, send: "uuid_send", literals: UUIDS },
    ValueType { name: "date", oid: 1082, send: "date_send", literals: DATES },
    ValueType { name: "timestamp", oid: 1114, send: "timestamp_send", literals: TIMESTAMPS },
    ValueType { name: "timestamptz", oid: 1184, send: "timestamptz_send", literals: TIMESTAMPTZS },
    ValueType { name: "timestamptz", oid: 1184, send: "timestamptz_send", literals: INSTANTS },
    ValueType { name: "boolean", oid: 16, send: "boolsend", literals: &["f", "t"] },
    ValueType { name: "bytea", oid: 17, send: "byteasend", literals: BYTEAS },
];

/// One value: the literal, its text and its binary form as the server would send them under the settings of the session.
struct Value {
    literal: String,
    text: String,
    binary: Vec<u8>,
}

async fn read_values(client: &Client, value_type: &ValueType) -> Vec<Value> {
    let mut values = Vec::new();
    for literal in value_type.literals {
        let sql = format!("SELECT '{literal}'::{0}::text, {1}('{literal}'::{0})", value_type.name, value_type.send);
        let row = client.query_one(&sql, &[]).await.unwrap();
        // Casting char(n) to text strips; the wire form is padded, as the binary one.
        let binary: Vec<u8> = row.get(1);
        let text = if value_type.name == "char(4)" { String::from_utf8(binary.clone()).unwrap() } else { row.get(0) };
        values.push(Value { literal: (*literal).to_owned(), text, binary });
    }
    values
}

/// Table `c (i, k)`; the keys by `i`.
async fn create_column(client: &Client, column: &Column) -> Vec<KeyDatum> {
    client.batch_execute(&format!("CREATE TABLE c (i int, k {})", column.declaration)).await.unwrap();
    let mut keys = Vec::new();
    for (index, row) in column.rows.iter().enumerate() {
        if column.key_type == KeyType::Timestamp && row.starts_with('3') {
            continue;
        }
        client.batch_execute(&format!("INSERT INTO c VALUES ({index}, '{row}')")).await.unwrap();
        // By the binary form, since years beyond 9999 are not read as text.
        let send = VALUES.iter().find(|value_type| value_type.oid == column.key_type.oid()).unwrap().send;
        let binary: Vec<u8> = client.query_one(&format!("SELECT {send}(k) FROM c WHERE i = {index}"), &[]).await.unwrap().get(0);
        match KeyDatum::convert(column.key_type, column.key_type.oid(), Format::Binary, &binary) {
            Conversion::Exactly(datum) => keys.push(datum),
            other => panic!("{}: {row:?}: {other:?}", column.declaration),
        }
    }
    keys
}

/// How many comparisons of this pair of types were narrowed, all of them rightly.
async fn compare(client: &Client, column: &Column, rows: &[KeyDatum], value_type: &ValueType) -> usize {
    let mut narrowed = 0;
    for value in read_values(client, value_type).await {
        for (operator, matches) in
            [("=", is_equal as fn(&KeyDatum, &Position<'_>) -> Option<bool>), ("<", is_below), (">", is_above)]
        {
            let query =
                format!("SELECT array_agg(i ORDER BY i) FROM c WHERE k {operator} '{}'::{}", value.literal, value_type.name);
            let found: Option<Vec<i32>> = client.query_one("SELECT try_rows($1)", &[&query]).await.unwrap().get(0);
            for (format, bytes) in [(Format::Text, value.text.as_bytes()), (Format::Binary, &value.binary)] {
                let position = KeyDatum::position(column.key_type, value_type.oid, format, bytes);
                let said: Option<Vec<i32>> = rows
                    .iter()
                    .map(|row| matches(row, &position))
                    .collect::<Option<Vec<bool>>>()
                    .map(|rows| (0..).zip(rows).filter(|(_, is_match)| *is_match).map(|(index, _)| index).collect());
                if let Some(said) = said {
                    let context = format!(
                        "{} {operator} '{}'::{} {format:?}: {position:?}",
                        column.declaration, value.literal, value_type.name
                    );
                    assert_eq!(Some(said), found, "{context}");
                    narrowed += 1;
                }
            }
        }
    }
    narrowed
}

fn is_equal(row: &KeyDatum, position: &Position<'_>) -> Option<bool> {
    match position {
        Position::At(datum) => Some(*row == datum.to_datum()),
        Position::JustBelow(_) | Position::AboveAll | Position::BelowAll | Position::Elsewhere => Some(false),
        Position::Unknown => None,
    }
}

fn is_below(row: &KeyDatum, position: &Position<'_>) -> Option<bool> {
    match position {
        Position::At(datum) | Position::JustBelow(datum) => Some(*row < datum.to_datum()),
        Position::AboveAll => Some(true),
        Position::BelowAll => Some(false),
        Position::Elsewhere | Position::Unknown => None,
    }
}

fn is_above(row: &KeyDatum, position: &Position<'_>) -> Option<bool> {
    match position {
        Position::At(datum) => Some(*row > datum.to_datum()),
        Position::JustBelow(datum) => Some(*row >= datum.to_datum()),
        Position::AboveAll => Some(false),
        Position::BelowAll => Some(true),
        Position::Elsewhere | Position::Unknown => None,
    }
}

/// How many of the two formats were proven, rightly.
async fn store(client: &Client, column: &Column, value_type: &ValueType, value: &Value) -> usize {
    let expression = format!("'{}'::{}", value.literal, value_type.name);
    let stored: Option<String> =
        client.query_one("SELECT try_store($1, $2)", &[&expression, &column.declaration]).await.unwrap().get(0);
    let mut proven = 0;
    for (format, bytes) in [(Format::Text, value.text.as_bytes()), (Format::Binary, &value.binary)] {
        // Where the server raises an error, the shard that would own the row may raise it.
        let (Conversion::Exactly(datum), Some(stored)) =
            (KeyDatum::assign(column.key_type, column.typmod, value_type.oid, format, bytes), &stored)
        else {
            continue;
        };
        let stored = without_zeros(stored, column.key_type);
        assert_eq!(neutral_text(&datum, column.key_type), stored, "{} := {expression} {format:?}", column.declaration);
        proven += 1;
    }
    proven
}

/// As `boolean::text` prints it, which is not as boolout does.
fn neutral_text(datum: &KeyDatum, key_type: KeyType) -> String {
    match datum {
        KeyDatum::Bool(value) => value.to_string(),
        _ => datum.to_text(key_type),
    }
}

/// Which zeros a numeric ends with makes no difference for its equality.
fn without_zeros(text: &str, key_type: KeyType) -> &str {
    match key_type {
        KeyType::Bpchar => text.trim_end_matches(' '),
        KeyType::Numeric if text.contains('.') => text.trim_end_matches('0').trim_end_matches('.'),
        _ => text,
    }
}

/// A cast to "character" alone would cut to one character.
fn cast_name(key_type: KeyType) -> &'static str {
    if key_type == KeyType::Bpchar { "bpchar" } else { key_type.name() }
}

/// Often right, sometimes nearly.
fn random_literal(key_type: KeyType, random: &mut StdRng) -> String {
    let mut pick = |choices: &[&str]| choices[random.random_range(0..choices.len())].to_owned();
    let date = pick(&[
        "2024-02-29",
        "2023-02-29",
        "1999-12-31",
        "2000-1-1",
        "0001-01-01",
        "9999-12-31",
        "01/02/2003",
        "2020-06-15",
        "today",
    ]);
    let time =
        pick(&["00:00", "00:00:00", "23:59:59.999999", "12:34:56.5", "24:00:00", "12:34:60", "1:2:3", "12:34:56.1234567", "23:59"]);
    let zone = pick(&["", "Z", "+00", "+05:30", "-0330", "-15:59:59", "+16", " +02", "-00", "+05:3", " UTC", "+5"]);
    let separator = pick(&[" ", "T", "  ", "t", ""]);
    let literal = match key_type {
        KeyType::Int2 | KeyType::Int4 | KeyType::Int8 => {
            let number =
                pick(&["0", "7", "-7", "+32767", "32768", "-32768", "2147483648", "9223372036854775807", "99999999999999999999"]);
            format!("{}{number}{}", pick(&["", "", " ", "0", "\t", "-", "x"]), pick(&["", "", "", " ", ".0", "e0", "_1"]))
        }
        KeyType::Text | KeyType::Bpchar => {
            pick(&["", " ", "a", "ab  ", "é ", "'", "\\", "NULL", "漢字", "a\tb"]) + &pick(&["", "x", " "])
        }
        KeyType::Uuid => {
            let hex = pick(&[
                "a0eebc999c0b4ef8bb6d6bb9bd380a11",
                "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
                "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
            ]);
            format!("{}{hex}{}", pick(&["", "", "{", " "]), pick(&["", "", "}", "-", "0"]))
        }
        KeyType::Date => pick(&["", "", "", " "]) + &date + &pick(&["", "", "", " ", " BC", "T"]),
        KeyType::Timestamp => format!("{date}{separator}{time}"),
        KeyType::Timestamptz => format!("{date}{separator}{time}{zone}"),
        KeyType::Bool => {
            pick(&["", "", " "])
                + &pick(&["t", "TRUE", "tr", "f", "fals", "y", "no", "on", "of", "o", "1", "0", "2", "10", "yess"])
                + &pick(&["", "", " ", "x"])
        }
        KeyType::Numeric => {
            let number = pick(&[
                "0",
                "7",
                "-7.50",
                "+.5",
                "5.",
                "00012.3400",
                "99999999999999999999.000000000000000000001",
                "1e5",
                "-25E-3",
                "nan",
                "inf",
            ]);
            format!("{}{number}{}", pick(&["", "", " ", "\t", "-", "x"]), pick(&["", "", "", " ", "0", "e2", "_1"]))
        }
        KeyType::Bytea => {
            pick(&["\\x", "\\x", "", "\\"])
                + &pick(&["00", "dead", "DE AD", "d", "0g", "\\\\", "001", "ab", "\\377", "\\400", "é"])
                + &pick(&["", " ", "61"])
        }
    };
    // The infinities, and what a slip of the finger does.
    match random.random_range(0..20) {
        0 if matches!(key_type, KeyType::Date | KeyType::Timestamp | KeyType::Timestamptz) => {
            ["infinity", "-infinity", "-Infinity", "+infinity", "inf"][random.random_range(0..5)].to_owned()
        }
        1 => literal.chars().rev().collect(),
        _ => literal,
    }
}
