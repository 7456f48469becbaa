//! What a server has answered, and what must be equal of two answers.
//!
//! Equal means: the same messages in the same order; names, types and formats of columns; every byte of every value; command
//! tags; every field of errors and notices that tells the user something. Oids that a database gives out
//! itself (tables, user-made types) are compared by what they stand for. Not compared: places in PostgreSQL's own source, and the line of CONTEXT that names a shard.

use std::collections::HashMap;
use std::fmt;

use shardgate::wire::{Reader, data_row_columns, error_fields, parameter_status, row_description};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    pub parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Columns(Vec<Column>),
    Row(Vec<Option<Vec<u8>>>),
    Complete(String),
    Error(Told),
    Notice(Told),
    Parameters(Vec<u32>),
    Setting(String, String),
    CopyIn(Vec<u8>),
    CopyOut(Vec<u8>),
    CopyData(Vec<u8>),
    /// A message without a body, by its tag.
    Bare(char),
    Ready(char),
    Closed,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub name: String,
    pub type_oid: u32,
    /// Of a type or table that users have made: its name, as the client finds it in the catalogue.
    pub user_type: Option<String>,
    pub user_table: Option<String>,
    pub type_size: i16,
    pub typmod: i32,
    pub attnum: i16,
    pub format: i16,
}

/// What oids of tables and types stand for, in one database.
pub type Names = HashMap<u32, String>;

/// Fields of an error or a notice, by their letters.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    fields: Vec<(char, String)>,
}

/// What the rows of a statement are compared as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// ORDER BY says it all.
    Total,
    Free,
    /// LIMIT without a total order: any rows, but so many.
    CountOnly,
}

impl Told {
    pub fn get(&self, letter: char) -> Option<&str> {
        self.fields.iter().find(|(field, _)| *field == letter).map(|(_, value)| value.as_str())
    }

    /// Not supported, and told why and what to do.
    pub fn is_refusal(&self) -> bool {
        matches!((self.get('C'), self.get('D'), self.get('H')), (Some("0A000"), Some(_), Some(_)))
    }

    fn line(&self) -> String {
        let mut line = String::new();
        // How deep a recursion was is of no account, and PostgreSQL 18 has a position where the grammar of 17 has none.
        let is_deep = self.get('C') == Some("54001");
        let is_without_place = self.get('M').is_some_and(|text| text.ends_with("options cannot be used together"));
        let is_untold = |letter| (is_deep && letter == 'W') || (is_without_place && letter == 'P');
        for (letter, value) in self.fields.iter().filter(|(letter, _)| !UNTOLD.contains(letter) && !is_untold(*letter)) {
            let value = match letter {
                'W' => value.lines().filter(|line| !line.starts_with("shard \"")).collect::<Vec<_>>().join(" / "),
                _ => value.clone(),
            };
            if !value.is_empty() {
                line.push_str(&format!(" {letter}={value}"));
            }
        }
        line
    }
}

impl Part {
    /// `None`: said once for a connection, and different on each.
    pub fn read(tag: u8, body: &[u8], names: &Names) -> Option<Part> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(match tag {
            b'T' => Part::Columns(columns(body, names)),
            b'D' => {
                let values = data_row_columns(body).map(|value| value.expect("a value").map(<[u8]>::to_vec));
                Part::Row(values.collect())
            }
            b'C' => Part::Complete(text(body.strip_suffix(b"\0").expect("a string"))),
            b'E' => Part::Error(told(body)),
            b'N' => Part::Notice(told(body)),
            b't' => Part::Parameters(body.get(2..).expect("types").chunks(4).map(oid).collect()),
            b'S' => {
                let (name, value) = parameter_status(body).expect("a setting");
                Part::Setting(text(name), text(value))
            }
            b'G' => Part::CopyIn(body.to_vec()),
            b'H' => Part::CopyOut(body.to_vec()),
            b'd' => Part::CopyData(body.to_vec()),
            b'Z' => Part::Ready(char::from(body[0])),
            b'K' | b'R' => return None,
            _ => Part::Bare(char::from(tag)),
        })
    }
}

impl Answer {
    pub fn error(&self) -> Option<&Told> {
        self.parts.iter().find_map(|part| match part {
            Part::Error(told) => Some(told),
            _ => None,
        })
    }

    pub fn parameters(&self) -> Option<&[u32]> {
        self.parts.iter().find_map(|part| match part {
            Part::Parameters(types) => Some(types.as_slice()),
            _ => None,
        })
    }

    pub fn text_rows(&self) -> Vec<Vec<Option<String>>> {
        let text = |value: &Option<Vec<u8>>| value.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        self.rows().map(|row| row.iter().map(text).collect()).collect()
    }

    pub fn rows(&self) -> impl Iterator<Item = &Vec<Option<Vec<u8>>>> {
        self.parts.iter().filter_map(|part| match part {
            Part::Row(row) => Some(row),
            _ => None,
        })
    }

    pub fn is_closed(&self) -> bool {
        self.parts.last() == Some(&Part::Closed)
    }

    /// One line a message, equal when two answers mean the same. Of an answer that ends in an error, what came before it does
    /// not count: where several shards take part, an error in a bound value is found when the portal is executed.
    pub fn lines(&self, order: RowOrder) -> Vec<String> {
        // A changed setting may be told before the statement's end or after it.
        let (settings, others): (Vec<Part>, Vec<Part>) =
            self.parts.iter().cloned().partition(|part| matches!(part, Part::Setting(..)));
        let mut lines = Self::lines_without_settings(&others, order);
        let mut settings: Vec<String> = settings.iter().map(|setting| setting.line(&[])).collect();
        settings.sort();
        lines.extend(settings);
        lines
    }

    /// The same of rows in their order, where those that are equal but for the scale of numbers may stand in any order. `is_cut`: of
    /// the first and the last of these, some may have been left out for others.
    pub fn lines_of_ties(&self, is_cut: bool) -> Vec<String> {
        let mut columns: &[Column] = &[];
        let mut rows: Vec<(String, String)> = Vec::new();
        let mut lines = Vec::new();
        for part in &self.parts {
            if let Part::Columns(described) = part {
                columns = described;
            }
            match part {
                Part::Row(row) => rows.push((Part::Row(without_scales(row, columns)).line(columns), part.line(columns))),
                Part::Setting(..) => {}
                // How many rows came before it, and of which kind it is.
                part => lines.push(format!("{} {}", rows.len(), part.line(columns))),
            }
        }
        let (first, last) = (rows.first().map(|row| row.0.clone()), rows.last().map(|row| row.0.clone()));
        for ties in rows.chunk_by(|one, other| one.0 == other.0) {
            let is_open =
                is_cut && ties.first().is_some_and(|(alike, _)| [&first, &last].iter().any(|end| end.as_ref() == Some(alike)));
            let mut ties: Vec<String> = ties.iter().map(|(alike, row)| if is_open { alike.clone() } else { row.clone() }).collect();
            ties.sort();
            lines.extend(ties);
        }
        lines
    }

    fn lines_without_settings(parts: &[Part], order: RowOrder) -> Vec<String> {
        let failed_at = parts.iter().position(|part| matches!(part, Part::Error(_)));
        Self::lines_of(parts.get(failed_at.unwrap_or(0)..).unwrap_or_default(), order)
    }

    fn lines_of(parts: &[Part], order: RowOrder) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let mut run = 0;
        let mut columns: &[Column] = &[];
        for part in parts {
            if let Part::Columns(described) = part {
                columns = described;
            }
            match part {
                Part::Row(_) | Part::CopyData(_) => {}
                _ => {
                    if order != RowOrder::Total {
                        lines[run..].sort();
                    }
                    run = lines.len() + 1;
                }
            }
            lines.push(match part {
                Part::Row(_) if order == RowOrder::CountOnly => "row".to_owned(),
                part => part.line(columns),
            });
        }
        lines
    }
}

impl Part {
    fn line(&self, described: &[Column]) -> String {
        match self {
            Part::Columns(columns) => {
                let columns = columns.iter().map(|column| {
                    let Column { name, type_size, typmod, attnum, format, .. } = column;
                    let table = column.user_table.as_deref().unwrap_or_default();
                    let user_type = column.user_type.as_deref().unwrap_or_default();
                    format!("{name}:{}{user_type}/{type_size}/{typmod}/@{table}.{attnum}/f{format}", builtin(column.type_oid))
                });
                format!("columns {}", columns.collect::<Vec<_>>().join(", "))
            }
            Part::Row(row) => {
                let value = |(index, value): (usize, &Option<Vec<u8>>)| match (value, described.get(index)) {
                    (None, _) => "NULL".to_owned(),
                    (Some(bytes), Some(column)) if is_nan(column.type_oid, bytes) => "NaN".to_owned(),
                    (Some(bytes), Some(column)) if column.format == 1 => hex(bytes),
                    (Some(bytes), _) => String::from_utf8(bytes.clone()).unwrap_or_else(|_| hex(bytes)),
                };
                format!("row {}", row.iter().enumerate().map(value).collect::<Vec<_>>().join(" | "))
            }
            Part::Complete(tag) => format!("complete {tag}"),
            Part::Error(told) => format!("error{}", told.line()),
            Part::Notice(told) => format!("notice{}", told.line()),
            Part::Parameters(types) => {
                format!("parameters {}", types.iter().map(|oid| builtin(*oid)).collect::<Vec<_>>().join(", "))
            }
            Part::Setting(name, value) => format!("setting {name} = {value}"),
            Part::CopyIn(body) => format!("copy in {}", hex(body)),
            Part::CopyOut(body) => format!("copy out {}", hex(body)),
            Part::CopyData(data) => format!("data {}", String::from_utf8_lossy(data)),
            Part::Bare(tag) => format!("message {tag}"),
            Part::Ready(status) => format!("ready {status}"),
            Part::Closed => "connection closed".to_owned(),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = Self::lines_of(&self.parts, RowOrder::Total);
        for line in lines.iter().take(LINES_SHOWN) {
            writeln!(f, "      {line}")?;
        }
        match lines.len().checked_sub(LINES_SHOWN) {
            Some(more) if more > 0 => writeln!(f, "      … and {more} more"),
            _ => Ok(()),
        }
    }
}

fn columns(body: &[u8], names: &Names) -> Vec<Column> {
    let column = |field: shardgate::wire::FieldDescription| Column {
        name: String::from_utf8(field.name).expect("UTF-8"),
        type_oid: field.type_oid,
        user_type: names.get(&field.type_oid).cloned(),
        user_table: names.get(&field.table_oid).cloned(),
        type_size: field.type_size,
        typmod: field.typmod,
        attnum: field.attnum,
        format: field.format,
    };
    row_description(body).expect("a row description").into_iter().map(column).collect()
}

fn told(body: &[u8]) -> Told {
    let fields = error_fields(body).expect("error fields");
    let mut fields: Vec<_> =
        fields.iter().map(|(code, value)| (char::from(code), String::from_utf8_lossy(value).into_owned())).collect();
    fields.sort();
    Told { fields }
}

fn oid(bytes: &[u8]) -> u32 {
    Reader::new(bytes).u32().expect("an oid")
}

/// Types that users make have other oids in each database.
fn builtin(oid: u32) -> String {
    if oid < FIRST_USER_OID { oid.to_string() } else { "user".to_owned() }
}

/// In binary form. It has many forms, of which a sum gets one by the order of what is added.
fn is_nan(type_oid: u32, bytes: &[u8]) -> bool {
    match type_oid {
        700 => bytes.try_into().is_ok_and(|bytes| f32::from_be_bytes(bytes).is_nan()),
        701 => bytes.try_into().is_ok_and(|bytes| f64::from_be_bytes(bytes).is_nan()),
        _ => false,
    }
}

/// Numbers are equal whatever their scale.
fn without_scales(row: &[Option<Vec<u8>>], columns: &[Column]) -> Vec<Option<Vec<u8>>> {
    let value = |(index, value): (usize, &Option<Vec<u8>>)| {
        let mut value = value.clone()?;
        match columns.get(index) {
            // Digits stand after four numbers of two bytes, the last of which is the scale.
            Some(column) if column.type_oid == NUMERIC && column.format == 1 => {
                value.iter_mut().skip(6).take(2).for_each(|byte| *byte = 0);
            }
            Some(column) if column.type_oid == NUMERIC && value.contains(&b'.') => {
                let kept = value.iter().rposition(|digit| *digit != b'0').unwrap_or_default();
                value.truncate(if value[kept] == b'.' { kept } else { kept + 1 });
            }
            Some(_) | None => {}
        }
        Some(value)
    };
    row.iter().enumerate().map(value).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// File, line and routine in PostgreSQL's source.
const UNTOLD: [char; 3] = ['F', 'L', 'R'];
const FIRST_USER_OID: u32 = 16384;
const NUMERIC: u32 = 1700;
const LINES_SHOWN: usize = 12;
