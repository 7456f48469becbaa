//! The rows of a query as constants that stand in its place.
//!
//! Each value is a literal of its column's type, so that operators, casts and assignments are those that PostgreSQL chose for the
//! query. Where a query inserts, a value of text stays untyped: it may come of a literal whose type the target decided. One of
//! char(n) has its type there too: its blanks are not part of the text that it becomes.

use std::ops::Range;

use super::{Stage, StageKind};
use crate::catalog::{Catalog, Oid, quoted_identifier, quoted_literal, quoted_name};
use crate::error::PgError;
use crate::shard_key::oid;
use crate::sql::rewrite::returned::{STAR, Star};

/// What a query has answered, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub columns: Vec<AnswerColumn>,
    pub rows: Vec<Vec<Option<String>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerColumn {
    pub name: String,
    /// On the home shard.
    pub type_oid: Oid,
    /// Of text, where it is another than the database's: as SQL names it.
    pub collation: Option<String>,
}

impl Answer {
    /// Each row with the values of another answer's after its own: the next row's, or those of its only one.
    pub fn extend(&mut self, other: &Answer) {
        self.columns.extend(other.columns.iter().cloned());
        for (row, values) in self.rows.iter_mut().zip(other.rows.iter().cycle()) {
            row.extend(values.iter().cloned());
        }
    }

    /// Its columns from this one on.
    pub fn split_off(&mut self, at: usize) -> Self {
        let columns = self.columns.split_off(at.min(self.columns.len()));
        let rows = self.rows.iter_mut().map(|row| row.split_off(at.min(row.len()))).collect();
        Self { columns, rows }
    }

    /// Takes out what is not wanted of the columns of stars, which stand last. Where those of each star are then.
    pub fn keep_stars(&mut self, stars: &[Star]) -> Vec<Range<usize>> {
        let marks: Vec<usize> = (0..self.columns.len()).filter(|place| self.columns.get(*place).is_some_and(is_mark)).collect();
        let ends = marks.iter().skip(1).copied().chain([self.columns.len()]);
        let mut kept: Vec<usize> = (0..marks.first().copied().unwrap_or(self.columns.len())).collect();
        let mut ranges = Vec::new();
        for ((mark, end), star) in marks.iter().zip(ends).zip(stars) {
            let start = kept.len();
            kept.extend(mark + 1 + star.own..end);
            ranges.push(start..kept.len());
        }
        let columns = std::mem::take(&mut self.columns);
        self.columns = kept.iter().filter_map(|place| columns.get(*place).cloned()).collect();
        for row in &mut self.rows {
            *row = kept.iter().map(|place| row.get_mut(*place).and_then(Option::take)).collect();
        }
        ranges
    }

    /// Its rows as constants.
    pub fn constants(&self, catalog: &Catalog) -> Result<Vec<Vec<String>>, PgError> {
        let types: Vec<String> = self.columns.iter().map(|column| type_name(column.type_oid, catalog)).collect::<Result<_, _>>()?;
        let values = Values { answer: self, types: &types };
        Ok(self.rows.iter().map(|row| values.typed(row)).collect())
    }

    /// VALUES, to be inserted; there is a row.
    pub fn inserted(&self, catalog: &Catalog) -> Result<String, PgError> {
        let types: Vec<String> = self.columns.iter().map(|column| type_name(column.type_oid, catalog)).collect::<Result<_, _>>()?;
        Ok(Values { answer: self, types: &types }.inserted())
    }
}

impl Stage {
    /// SQL that stands for the answer; `None`: an INSERT without rows, which is nothing to run.
    pub fn constant(&self, answer: &Answer, catalog: &Catalog) -> Result<Option<String>, PgError> {
        let types: Vec<String> = answer.columns.iter().map(|column| type_of(column, catalog)).collect::<Result<_, _>>()?;
        let values = Values { answer, types: &types };
        Ok(Some(match &self.kind {
            StageKind::Source if answer.rows.is_empty() => return Ok(None),
            StageKind::Source => values.inserted(),
            StageKind::In { is_not } => values.listed(*is_not),
            StageKind::List => values.array()?,
            StageKind::Array => format!(" (SELECT {}) ", values.as_array()),
            StageKind::Exists => format!(" ({}) ", !answer.rows.is_empty()),
            StageKind::Value if answer.rows.len() != 1 => return Err(rows_of_value()),
            StageKind::Scalar | StageKind::Compared | StageKind::Row if answer.rows.len() > 1 => values.too_many(),
            StageKind::Compared | StageKind::Value => format!(" ({}) ", values.only_row().join(", ")),
            // Planned, a sub-select is no constant: what is computed of it is computed for the rows that need it, as in PostgreSQL.
            StageKind::Scalar => format!(" (SELECT {}) ", values.only_row().join(", ")),
            StageKind::Row => {
                let row: Vec<String> = values.only_row().into_iter().map(|value| format!("(SELECT {value})")).collect();
                format!(" ROW({}) ", row.join(", "))
            }
            // A write that returns nothing: nobody can name its rows.
            StageKind::Cte if answer.columns.is_empty() => "SELECT WHERE false".to_owned(),
            StageKind::Cte => values.query(),
            StageKind::From { alias } => values.table(alias.as_deref()),
        }))
    }
}

fn is_mark(column: &AnswerColumn) -> bool {
    column.name == STAR && column.type_oid == oid::BOOL
}

struct Values<'a> {
    answer: &'a Answer,
    /// Of each column, as SQL.
    types: &'a [String],
}

impl Values<'_> {
    fn typed(&self, row: &[Option<String>]) -> Vec<String> {
        row.iter().zip(self.types).map(|(value, name)| typed(value.as_deref(), name)).collect()
    }

    fn nulls(&self) -> Vec<String> {
        self.types.iter().map(|name| typed(None, name)).collect()
    }

    fn inserted(&self) -> String {
        let row = |row: &Vec<Option<String>>| {
            let values = row.iter().zip(self.types).zip(&self.answer.columns).map(|((value, name), column)| match value {
                None => "NULL".to_owned(),
                Some(value) if column.type_oid == oid::TEXT => quoted_literal(value),
                Some(value) => typed(Some(value), name),
            });
            format!("({})", values.collect::<Vec<_>>().join(", "))
        };
        format!(" VALUES {} ", self.answer.rows.iter().map(row).collect::<Vec<_>>().join(", "))
    }

    fn listed(&self, is_not: bool) -> String {
        let not = if is_not { "NOT " } else { "" };
        if self.answer.rows.is_empty() {
            return format!(" {not}IN (SELECT {} WHERE false) ", self.nulls().join(", "));
        }
        if self.types.len() == 1 && self.answer.rows.len() > LISTED_MAX {
            let operator = if is_not { "<> ALL" } else { "= ANY" };
            return format!(" {operator} ({}) ", self.as_array());
        }
        let row = |row: &Vec<Option<String>>| {
            let values = self.typed(row);
            if values.len() == 1 { values.concat() } else { format!("({})", values.join(", ")) }
        };
        format!(" {not}IN ({}) ", self.answer.rows.iter().map(row).collect::<Vec<_>>().join(", "))
    }

    fn array(&self) -> Result<String, PgError> {
        match self.types {
            [_] => Ok(format!(" ({}) ", self.as_array())),
            _ => Err(PgError::unsupported(
                "a comparison of rows with ANY or ALL is not supported across shards",
                "The rows would have to be compared one by one.",
                "Use IN, or compare one column.",
            )),
        }
    }

    /// An array of the first column.
    fn as_array(&self) -> String {
        let whole = self.types.first().map(String::as_str).unwrap_or_default();
        let (name, collation) = whole.split_once(" COLLATE ").unwrap_or((whole, ""));
        let collation = if collation.is_empty() { String::new() } else { format!(" COLLATE {collation}") };
        let values: Vec<String> = self.answer.rows.iter().map(|row| typed(row.first().and_then(Option::as_deref), name)).collect();
        format!("ARRAY[{}]::{name}[]{collation}", values.join(", "))
    }

    fn only_row(&self) -> Vec<String> {
        self.answer.rows.first().map_or_else(|| self.nulls(), |row| self.typed(row))
    }

    /// Where one row is wanted, two are an error, but only if they are asked for.
    fn too_many(&self) -> String {
        let row = format!("({})", self.nulls().join(", "));
        format!(" (VALUES {row}, {row}) ")
    }

    fn table(&self, alias: Option<&str>) -> String {
        let alias = alias.map(|alias| format!("AS {} ", quoted_identifier(alias))).unwrap_or_default();
        format!(" ({}) {alias}", self.query())
    }

    fn query(&self) -> String {
        let names: Vec<String> = self.answer.columns.iter().map(|column| quoted_identifier(&column.name)).collect();
        let rows = match self.answer.rows.split_first() {
            None => format!("SELECT {} WHERE false", self.nulls().join(", ")),
            Some((first, rest)) => {
                let plain = |row: &Vec<Option<String>>| {
                    let values = row.iter().map(|value| value.as_deref().map_or("NULL".to_owned(), quoted_literal));
                    format!("({})", values.collect::<Vec<_>>().join(", "))
                };
                let first = format!("({})", self.typed(first).join(", "));
                format!("VALUES {}", std::iter::once(first).chain(rest.iter().map(plain)).collect::<Vec<_>>().join(", "))
            }
        };
        // The planner would compute what stands over a single row of constants, and fail where no row of the target meets it. So it
        // would over the NULLs of no row.
        let fence = if self.answer.rows.len() <= 1 { " OFFSET 0" } else { "" };
        format!("SELECT * FROM ({rows}) AS shardgate_rows ({}){fence}", names.join(", "))
    }
}

fn typed(value: Option<&str>, name: &str) -> String {
    match value {
        Some(value) => format!("{}::{name}", quoted_literal(value)),
        None => format!("NULL::{name}"),
    }
}

fn rows_of_value() -> PgError {
    PgError::unsupported(
        "a function that returns rows is not supported in VALUES across shards",
        "It would make several rows of one, whose shards are not known.",
        "INSERT ... SELECT from the function.",
    )
}

/// A type, with its collation.
fn type_of(column: &AnswerColumn, catalog: &Catalog) -> Result<String, PgError> {
    let name = type_name(column.type_oid, catalog)?;
    Ok(match &column.collation {
        Some(collation) => format!("{name} COLLATE {collation}"),
        None => name,
    })
}

/// As SQL may name it anywhere.
pub fn type_name(type_oid: Oid, catalog: &Catalog) -> Result<String, PgError> {
    match catalog.types.get(&type_oid) {
        Some(found) if found.schema == "pg_catalog" && found.kind != 'p' => {
            Ok(format!("pg_catalog.{}", quoted_identifier(&found.name)))
        }
        Some(found) if found.kind != 'p' => Ok(quoted_name(&found.schema, &found.name)),
        Some(_) | None => Err(PgError::unsupported(
            "a sub-select of this type is not supported across shards",
            "Its value cannot be written as a constant.",
            "Select the columns one by one.",
        )),
    }
}

/// Keys in a list are each looked up.
const LISTED_MAX: usize = 1000;
