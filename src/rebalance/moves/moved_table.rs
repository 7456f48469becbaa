//! The tables of the group that moves, and where their rows lie on a shard.
//!
//! A partitioned table has no rows of its own: its partitions do, and partitions of these. Each of them is gated, published, copied,
//! compared and cleaned by itself, as the map's other tables are: a primary key of the partition alone is enough, whatever the order
//! of its columns, and a copy that is interrupted begins again with one partition. The map names the partitioned table only.

use serde_json::{Value, json};
use sqlx::FromRow;

use super::key_set::{KeySet, NoCondition};
use super::site::{Site, SiteError};
use crate::catalog::{quoted_literal, quoted_name};
use crate::shard_key::KeyColumn;
use crate::shardmap::{Group, GroupId, MapSnapshot, TableKind};

#[derive(Clone, Debug)]
pub(super) struct MovedTable {
    pub(super) schema: String,
    pub(super) name: String,
    /// For SQL.
    pub(super) quoted: String,
    pub(super) key: Vec<KeyColumn>,
    /// True of the rows of the set; of a trigger's row before and after.
    pub(super) condition: String,
    pub(super) condition_old: String,
    pub(super) condition_new: String,
}

/// The columns that are compared, and the key by which rows are told apart; quoted.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub(super) struct Columns {
    pub(super) all: Vec<String>,
    pub(super) primary_key: Vec<String>,
}

/// So that the planner knows what has become of the tables: at the target before statements go there, at the source of what is left.
/// Where a lock is in the way the server does it by itself later.
pub(super) async fn analyze(tables: &[MovedTable], site: &mut Site) -> Result<(), SiteError> {
    for table in tables {
        match site.act(&format!("ANALYZE {}", table.quoted)).await {
            Ok(()) | Err(SiteError::Busy { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl MovedTable {
    /// The sharded tables of a group, by name.
    pub(super) fn of_group(map: &MapSnapshot, group: &Group, keys: &KeySet) -> Result<Vec<Self>, NoCondition> {
        let mut tables = map
            .tables_of(group.id)
            .map(|table| {
                let key = key_of(&table.kind, group.id).unwrap_or_default();
                Ok(Self {
                    schema: table.schema.clone(),
                    name: table.name.clone(),
                    quoted: quoted_name(&table.schema, &table.name),
                    condition: keys.condition(&key, group, "")?,
                    condition_old: keys.condition(&key, group, "old.")?,
                    condition_new: keys.condition(&key, group, "new.")?,
                    key,
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        tables.sort_by(|left, right| (&left.schema, &left.name).cmp(&(&right.schema, &right.name)));
        Ok(tables)
    }

    /// The tables that hold the rows of these on a shard: themselves, or the partitions that are not partitioned again.
    pub(super) async fn holding_rows_of(sharded: &[Self], site: &mut Site) -> Result<Vec<Self>, SiteError> {
        let sql = format!(
            "SELECT m.place, s.nspname::text, c.relname::text
             FROM ({}) m JOIN pg_class c ON c.oid = m.oid JOIN pg_namespace s ON s.oid = c.relnamespace
             WHERE c.relkind = 'r' ORDER BY 2, 3",
            members_sql(sharded)
        );
        let found = site.rows::<(i64, String, String)>(&sql).await?.into_iter();
        let holding = found.filter_map(|(place, schema, name)| {
            let sharded = usize::try_from(place).ok().and_then(|place| sharded.get(place.checked_sub(1)?))?;
            Some(Self { quoted: quoted_name(&schema, &name), schema, name, ..sharded.clone() })
        });
        Ok(holding.collect())
    }

    /// Which rows of it, for who deletes them when the move has ended long ago.
    pub(super) fn to_journal(&self) -> Value {
        json!({ "schema": self.schema, "name": self.name, "condition": self.condition })
    }

    /// `None`: it was not written so.
    pub(super) fn of_journal(value: &Value) -> Option<Self> {
        let text = |what: &str| value.get(what).and_then(Value::as_str).map(str::to_owned);
        let (schema, name) = (text("schema")?, text("name")?);
        Some(Self {
            quoted: quoted_name(&schema, &name),
            schema,
            name,
            key: Vec::new(),
            condition: text("condition")?,
            condition_old: String::new(),
            condition_new: String::new(),
        })
    }

    /// As a constant of type `regclass`.
    pub(super) fn regclass(&self) -> String {
        format!("{}::pg_catalog.regclass", quoted_literal(&self.quoted))
    }

    pub(super) async fn columns(&self, site: &mut Site) -> Result<Columns, SiteError> {
        let sql = format!(
            "SELECT array(SELECT quote_ident(a.attname) FROM pg_attribute a
                          WHERE a.attrelid = {table} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attname) AS all,
                    array(SELECT quote_ident(a.attname) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
                          WHERE i.indrelid = {table} AND i.indisprimary AND a.attnum = ANY (i.indkey)
                          ORDER BY array_position(i.indkey::int2[], a.attnum)) AS primary_key",
            table = self.regclass()
        );
        let mut columns = site.rows::<Columns>(&sql).await?;
        Ok(columns.pop().unwrap_or(Columns { all: Vec::new(), primary_key: Vec::new() }))
    }
}

/// Sharded tables and their partitions, partitions of partitions too: the sharded table's place in the list, from 1, and `oid`.
pub(super) fn members_sql(sharded: &[MovedTable]) -> String {
    let names: Vec<String> = sharded.iter().map(|table| quoted_literal(&table.quoted)).collect();
    format!(
        "WITH RECURSIVE member AS (
             SELECT n.place, c.oid FROM pg_catalog.unnest(ARRAY[{}]::pg_catalog.text[]) WITH ORDINALITY n (name, place)
             JOIN pg_catalog.pg_class c ON c.oid = pg_catalog.to_regclass(n.name)
             UNION ALL
             SELECT m.place, i.inhrelid FROM member m JOIN pg_catalog.pg_inherits i ON i.inhparent = m.oid)
         SELECT place, oid FROM member",
        names.join(", ")
    )
}

/// Bytes of the tables and their partitions, with indexes and TOAST; an expression.
pub(super) fn bytes_sql(sharded: &[MovedTable]) -> String {
    format!(
        "(SELECT coalesce(pg_catalog.sum(pg_catalog.pg_total_relation_size(m.oid)), 0)::pg_catalog.int8 FROM ({}) m)",
        members_sql(sharded)
    )
}

fn key_of(kind: &TableKind, id: GroupId) -> Option<Vec<KeyColumn>> {
    match kind {
        TableKind::Sharded { group, key } if *group == id => Some(key.clone()),
        TableKind::Sharded { .. } | TableKind::Reference => None,
    }
}
