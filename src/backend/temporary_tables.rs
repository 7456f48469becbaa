//! What the temporary tables of a session look like, as the catalogue says on the one connection that has them.
//!
//! Only those whose rows can be had on another connection: plain and partitioned tables, without row security, whose columns are
//! of types that outlive the session.

use bytes::Bytes;

use super::catalog_reader::is_bytewise;
use crate::catalog::{Column, Oid, Relation, RelationKind, Unique};

/// What was read does not have the expected form.
#[derive(Debug, thiserror::Error)]
#[error("unexpected description of temporary tables in column {column}")]
pub struct UnexpectedRow {
    column: usize,
}

/// For [`read`]; some settings of the transaction are others after it. Types are printed with their schemas. The names of
/// relations are qualified: a temporary table comes before those of pg_catalog.
pub const QUERY: &str = "SET LOCAL search_path = pg_catalog, pg_temp;SET LOCAL client_encoding = 'UTF8';\
SELECT c.oid, c.relname, c.relkind, ch.list, a.attname, a.attnum, a.atttypid, pg_catalog.format_type(a.atttypid, a.atttypmod), \
       a.atttypmod, \
       a.attnotnull AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint n WHERE n.conrelid = c.oid AND n.contype = 'n' \
                                      AND n.conkey[1] = a.attnum AND NOT n.convalidated), \
       a.attgenerated <> '', coalesce(co.collisdeterministic, true), \
       co.oid = 'pg_catalog.\"default\"'::pg_catalog.regcollation, co.collprovider, co.collcollate, \
       pg_catalog.to_jsonb(co)->>'colllocale', \
       pg_catalog.quote_ident(cn.nspname) || '.' || pg_catalog.quote_ident(co.collname), \
       EXISTS (SELECT FROM pg_catalog.generate_series(0, i.indnkeyatts - 1) k WHERE i.indkey[k] = a.attnum) \
FROM pg_catalog.pg_class c \
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
LEFT JOIN pg_catalog.pg_collation co ON co.oid = a.attcollation \
LEFT JOIN pg_catalog.pg_namespace cn ON cn.oid = co.collnamespace \
LEFT JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisprimary AND i.indimmediate \
CROSS JOIN LATERAL (SELECT pg_catalog.string_agg(inhrelid::pg_catalog.text, ',') AS list \
                    FROM pg_catalog.pg_inherits WHERE inhparent = c.oid) ch \
WHERE c.relnamespace = pg_catalog.pg_my_temp_schema() AND c.relkind IN ('r', 'p') AND NOT c.relrowsecurity \
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute o JOIN pg_catalog.pg_type t ON t.oid = o.atttypid \
                  WHERE o.attrelid = c.oid AND o.attnum > 0 AND t.typnamespace = pg_catalog.pg_my_temp_schema()) \
ORDER BY c.oid, a.attnum";

/// One row of the answer to [`QUERY`] is one column.
pub fn read(rows: &[Vec<Option<Bytes>>], is_database_collation_c: bool) -> Result<Vec<Relation>, UnexpectedRow> {
    let mut tables: Vec<Relation> = Vec::new();
    for row in rows {
        let row = Row(row);
        let oid: Oid = row.number(0)?;
        if tables.last().is_none_or(|table| table.oid != oid) {
            tables.push(table(&row, oid)?);
        }
        let Some(table) = tables.last_mut() else { continue };
        let column = column(&row, is_database_collation_c)?;
        if row.is_true(17) {
            add_to_key(table, &column);
        }
        table.columns.push(column);
    }
    Ok(tables)
}

fn table(row: &Row<'_>, oid: Oid) -> Result<Relation, UnexpectedRow> {
    let children = row.text(3).unwrap_or_default();
    let children: Result<Vec<Oid>, _> = children.split(',').filter(|child| !child.is_empty()).map(str::parse).collect();
    let kind = if row.text(2) == Some("p") { RelationKind::PartitionedTable } else { RelationKind::Table };
    Ok(Relation {
        children: children.map_err(|_| UnexpectedRow { column: 3 })?,
        ..Relation::bare(oid, "pg_temp", row.needed(1)?, kind)
    })
}

fn column(row: &Row<'_>, is_database_collation_c: bool) -> Result<Column, UnexpectedRow> {
    let is_collation_c = match (row.is_true(12), row.text(13)) {
        (true, _) => is_database_collation_c,
        (false, Some(provider)) => is_bytewise(provider, row.text(14).unwrap_or_default(), row.text(15)),
        (false, None) => false,
    };
    Ok(Column {
        name: row.needed(4)?.to_owned(),
        attnum: row.number(5)?,
        type_oid: row.number(6)?,
        type_name: row.needed(7)?.to_owned(),
        typmod: row.number(8)?,
        is_not_null: row.is_true(9),
        is_generated: row.is_true(10),
        is_deterministic: row.is_true(11),
        is_collation_c,
        collation: row.text(16).map(str::to_owned),
        default: None,
        identity: None,
    })
}

/// The column is one of the primary key's. It counts as itself only where the key compares it as its type does.
fn add_to_key(table: &mut Relation, column: &Column) {
    let column = Some(column.name.clone()).filter(|_| column.is_deterministic);
    match table.uniques.first_mut() {
        Some(key) => key.columns.push(column),
        None => table.uniques.push(Unique {
            name: String::new(),
            is_primary: true,
            is_exclusion: false,
            is_constraint: true,
            columns: vec![column],
            is_partial: false,
        }),
    }
}

struct Row<'r>(&'r [Option<Bytes>]);

impl<'r> Row<'r> {
    fn text(&self, column: usize) -> Option<&'r str> {
        self.0.get(column)?.as_deref().and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    fn needed(&self, column: usize) -> Result<&'r str, UnexpectedRow> {
        self.text(column).ok_or(UnexpectedRow { column })
    }

    fn number<T: std::str::FromStr>(&self, column: usize) -> Result<T, UnexpectedRow> {
        self.needed(column)?.parse().map_err(|_| UnexpectedRow { column })
    }

    fn is_true(&self, column: usize) -> bool {
        self.text(column) == Some("t")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &str) -> Vec<Option<Bytes>> {
        let value = |value: &str| (value != "-").then(|| Bytes::copy_from_slice(value.as_bytes()));
        values.split(' ').map(value).collect()
    }

    #[test]
    fn columns_and_the_key_are_read_as_they_are_told() {
        let rows = [
            row("7 ids r - id 1 23 integer -1 t f t - - - - - t"),
            row("7 ids r - note 3 25 text -1 f f t t d - - pg_catalog.\"default\" f"),
            row("9 parted p 10,11 n 1 1043 varchar(4) 8 f t t f c C - pg_catalog.\"C\" f"),
        ];
        let tables = read(&rows, true).expect("read");
        let [ids, parted] = tables.as_slice() else { panic!("{tables:?}") };
        assert_eq!((ids.schema.as_str(), ids.name.as_str(), ids.kind), ("pg_temp", "ids", RelationKind::Table));
        assert_eq!(ids.uniques.first().map(|key| key.columns.as_slice()), Some(&[Some("id".to_owned())][..]));
        let note = ids.column("note").expect("told");
        assert_eq!((note.attnum, note.type_oid, note.is_collation_c), (3, 25, true));
        assert_eq!(note.collation.as_deref(), Some("pg_catalog.\"default\""));
        assert_eq!((parted.kind, parted.children.as_slice()), (RelationKind::PartitionedTable, &[10, 11][..]));
        let n = parted.column("n").expect("told");
        assert_eq!((n.type_name.as_str(), n.typmod, n.is_generated, n.is_collation_c), ("varchar(4)", 8, true, true));
    }

    #[test]
    fn a_key_that_compares_otherwise_than_its_type_has_no_such_column() {
        let tables = read(&[row("7 t r - a 1 25 text -1 t f f f i - und s.ci t")], false).expect("read");
        assert_eq!(tables[0].uniques[0].columns, [None]);
    }

    #[test]
    fn what_is_cut_short_or_no_number_is_an_error() {
        let whole = "7 ids r - id 1 23 integer -1 t f t - - - - - t";
        let mut cut = row(whole);
        cut.truncate(8);
        for rows in [[cut], [row(&whole.replace("23", "x"))], [row("- ids")], [Vec::new()]] {
            assert!(read(&rows, true).is_err(), "{rows:?}");
        }
    }
}
