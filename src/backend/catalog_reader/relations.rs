//! Tables, views, sequences: their columns, indexes and parentage.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::printed::{Kind, Printed};
use super::rows::Rows;
use super::{CatalogError, is_bytewise, letter, oid};
use crate::catalog::{COLUMN_ORDER, Catalog, Column, ObjectName, Oid, Relation, RelationKind, Unique, identity_in_default};

pub(super) const QUERIES: [(&str, &str); 4] =
    [("relations", RELATIONS), ("columns", COLUMNS), ("indexes", INDEXES), ("parents", PARENTS)];

/// `is_read`: the relation is among those whose rows these are.
pub(super) fn add(
    rows: &mut Rows,
    catalog: &mut Catalog,
    printed: &Printed,
    is_read: impl Fn(Oid) -> bool,
) -> Result<(), CatalogError> {
    add_relations(rows.take("relations")?, catalog, printed)?;
    add_columns(rows.take("columns")?, catalog, printed)?;
    add_indexes(rows.take("indexes")?, catalog, printed)?;
    add_parents(rows.take("parents")?, catalog, is_read)
}

/// `table public.books`: how the definitions of a relation's parts name their whole; `None` for members of extensions.
pub(super) fn whole(catalog: &Catalog, relation: Oid) -> Option<String> {
    let found = catalog.relations.get(&relation)?;
    let name = format!("{}.{}", found.schema, found.name);
    catalog.definitions.contains(&ObjectName::new(found.kind.word(), name)).then(|| found.whole())
}

#[derive(Deserialize)]
struct RelationRow {
    oid: i64,
    schema: String,
    name: String,
    kind: String,
    owner: String,
    has_row_security: bool,
    is_security_invoker: bool,
    definition: String,
    partition_columns: Option<Vec<String>>,
    is_extension_member: bool,
}

// Row security is part of the definition; storage parameters are not, but a view's options change what it shows. A partition's
// bounds are constants.
const RELATIONS: &str = "
SELECT c.oid::int8 AS oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind,
       pg_get_userbyid(c.relowner)::text AS owner, c.relrowsecurity AS has_row_security,
       EXISTS (SELECT FROM pg_options_to_table(c.reloptions) o WHERE o.option_name = 'security_invoker' AND o.option_value::bool)
           AS is_security_invoker,
       concat_ws(', ',
           CASE c.relkind WHEN 'p' THEN (
               SELECT 'partitioned by ' || CASE k.partstrat WHEN 'h' THEN 'HASH' WHEN 'l' THEN 'LIST' ELSE 'RANGE' END
                      || (SELECT format(' (%s)', string_agg(concat_ws(' ', quote_ident(a.attname),
                                     CASE WHEN co.oid <> a.attcollation THEN 'COLLATE ' || co.oid::regcollation END,
                                     CASE WHEN NOT (oc.opcdefault AND oc.opcnamespace = 'pg_catalog'::regnamespace)
                                          THEN concat_ws('.', nullif(oc.opcnamespace::regnamespace::text, 'pg_catalog'),
                                                    quote_ident(oc.opcname)) END), ', ' ORDER BY i))
                          FROM generate_series(0, k.partnatts - 1) i
                          JOIN pg_attribute a ON a.attrelid = k.partrelid AND a.attnum = k.partattrs[i]
                          JOIN pg_opclass oc ON oc.oid = k.partclass[i]
                          LEFT JOIN pg_collation co ON co.oid = k.partcollation[i])
               FROM pg_partitioned_table k WHERE k.partrelid = c.oid AND k.partexprs IS NULL)
               WHEN 'r' THEN 'ordinary' END,
           CASE WHEN c.relispartition THEN 'partition ' || pg_get_expr(c.relpartbound, 0) END,
           CASE WHEN c.relpersistence = 'u' THEN 'unlogged' END,
           CASE WHEN c.relrowsecurity THEN 'row level security' END,
           CASE WHEN c.relforcerowsecurity THEN 'forced row level security' END,
           CASE WHEN c.relkind = 'S' THEN (SELECT 'as ' || format_type(s.seqtypid, NULL) || CASE WHEN s.seqcycle THEN ' cycle' ELSE '' END
                                           FROM pg_sequence s WHERE s.seqrelid = c.oid) END,
           CASE WHEN c.relkind IN ('v', 'm') THEN array_to_string(c.reloptions, ' ') END) AS definition,
       (SELECT array_agg(a.attname::text) FROM pg_partitioned_table k
        JOIN pg_attribute a ON a.attrelid = k.partrelid AND a.attnum = ANY (k.partattrs)
        WHERE k.partrelid = c.oid AND k.partexprs IS NULL) AS partition_columns,
       EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
           AS is_extension_member
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND {relation c.oid}
  AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardgate')";

fn add_relations(rows: Vec<RelationRow>, catalog: &mut Catalog, printed: &Printed) -> Result<(), CatalogError> {
    for row in rows {
        let oid = oid(row.oid)?;
        let kind = match row.kind.as_str() {
            "r" => RelationKind::Table,
            "p" => RelationKind::PartitionedTable,
            "v" => RelationKind::View,
            "m" => RelationKind::MaterializedView,
            "f" => RelationKind::ForeignTable,
            "S" => RelationKind::Sequence,
            _ => return Err(CatalogError::Unexpected { what: "relkind", value: row.kind }),
        };
        let view_definition = printed.text(Kind::View, row.oid);
        if !row.is_extension_member {
            let object = ObjectName::new(kind.word(), format!("{}.{}", row.schema, row.name));
            let key = printed.text(Kind::PartitionKey, row.oid).map(|key| format!("partitioned by {key}"));
            let pieces = [Some(row.definition), key, view_definition.clone()];
            let definition: Vec<String> = pieces.into_iter().flatten().filter(|piece| !piece.is_empty()).collect();
            catalog.definitions.insert(object, definition.join(", "));
        }
        catalog.relation_names.insert((row.schema.clone(), row.name.clone()), oid);
        catalog.relations.insert(
            oid,
            Relation {
                owner: row.owner,
                view_definition,
                has_row_security: row.has_row_security,
                is_security_invoker: row.is_security_invoker,
                partition_columns: row.partition_columns.or((kind != RelationKind::PartitionedTable).then(Vec::new)),
                ..Relation::bare(oid, &row.schema, &row.name, kind)
            },
        );
    }
    Ok(())
}

#[derive(Deserialize)]
struct ColumnRow {
    relation: i64,
    name: String,
    attnum: i16,
    type_oid: i64,
    type_name: String,
    typmod: i32,
    is_not_null: bool,
    is_default_collation: bool,
    is_deterministic: bool,
    collation: Option<String>,
    collation_name: Option<String>,
    provider: Option<String>,
    collate: Option<String>,
    locale: Option<String>,
    default: Option<String>,
    generated_by: Option<i64>,
    /// Of its type, which counts where it has none of its own.
    type_default: Option<String>,
    generated: String,
    identity: String,
}

// A default names no column, unless it generates the values. NOT NULL may be NOT VALID since PostgreSQL 18.
const COLUMNS: &str = r#"
SELECT a.attrelid::int8 AS relation, a.attname::text AS name, a.attnum, a.atttypid::int8 AS type_oid,
       format_type(a.atttypid, a.atttypmod) AS type_name, a.atttypmod AS typmod,
       a.attnotnull AND NOT EXISTS (SELECT FROM pg_constraint con WHERE con.conrelid = a.attrelid AND con.contype = 'n'
                                      AND con.conkey[1] = a.attnum AND NOT con.convalidated) AS is_not_null,
       a.attcollation = 'pg_catalog."default"'::regcollation AS is_default_collation,
       coalesce(co.collisdeterministic, true) AS is_deterministic, co.collname::text AS collation,
       quote_ident(cn.nspname) || '.' || quote_ident(co.collname) AS collation_name,
       co.collprovider::text AS provider, co.collcollate AS collate, to_jsonb(co)->>'colllocale' AS locale,
       CASE WHEN a.attgenerated = '' THEN pg_get_expr(d.adbin, 0) END AS "default",
       CASE WHEN a.attgenerated <> '' THEN d.oid::int8 END AS generated_by,
       CASE WHEN a.attidentity = '' THEN coalesce(pg_get_expr(t.typdefaultbin, 0), quote_literal(t.typdefault)) END AS type_default,
       a.attgenerated::text AS generated, a.attidentity::text AS identity
FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_collation co ON co.oid = a.attcollation
LEFT JOIN pg_namespace cn ON cn.oid = co.collnamespace
WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND {relation a.attrelid}
  AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardgate')
ORDER BY a.attrelid, a.attnum"#;

fn add_columns(rows: Vec<ColumnRow>, catalog: &mut Catalog, printed: &Printed) -> Result<(), CatalogError> {
    let mut with_columns = BTreeSet::new();
    for mut row in rows {
        if let Some(generated_by) = row.generated_by {
            row.default = printed.text(Kind::Generated, generated_by);
        }
        let relation = oid(row.relation)?;
        if let Some(whole) = whole(catalog, relation) {
            catalog.definitions.insert(ObjectName::part_of(whole, "column", row.name.as_str()), row.definition());
        }
        let column = row.column(catalog.is_collation_c)?;
        with_columns.insert(relation);
        if let Some(relation) = catalog.relations.get_mut(&relation) {
            relation.columns.push(column);
        }
    }
    let orders: Vec<(String, String)> = with_columns
        .iter()
        .filter_map(|oid| catalog.relations.get(oid))
        .filter_map(|relation| {
            let names: Vec<&str> = relation.columns.iter().map(|column| column.name.as_str()).collect();
            Some((whole(catalog, relation.oid)?, names.join(", ")))
        })
        .collect();
    for (whole, order) in orders {
        catalog.definitions.insert(ObjectName::part_of(whole, COLUMN_ORDER, ""), order);
    }
    Ok(())
}

impl ColumnRow {
    fn definition(&self) -> String {
        let mut text = self.type_name.clone();
        if let (Some(collation), false) = (&self.collation, self.is_default_collation) {
            text.push_str(&format!(" collate {collation}"));
        }
        if self.is_not_null {
            text.push_str(" not null");
        }
        if let Some(default) = &self.default {
            let word = if self.generated.is_empty() { "default" } else { "generated always as" };
            text.push_str(&format!(" {word} {default}"));
        }
        match self.generated.as_str() {
            "" => {}
            "v" => text.push_str(" virtual"),
            _ => text.push_str(" stored"),
        }
        match self.identity.as_str() {
            "a" => text.push_str(" generated always as identity"),
            "d" => text.push_str(" generated by default as identity"),
            _ => {}
        }
        text
    }

    fn column(self, is_database_collation_c: bool) -> Result<Column, CatalogError> {
        let is_collation_c = match (self.is_default_collation, &self.provider) {
            (true, _) => is_database_collation_c,
            (false, Some(provider)) => is_bytewise(provider, self.collate.as_deref().unwrap_or_default(), self.locale.as_deref()),
            (false, None) => false,
        };
        let has_collation = self.collation.is_some();
        let identity = match self.identity.as_str() {
            "" => self.default.as_deref().and_then(identity_in_default),
            identity => Some(letter("attidentity", identity)?),
        };
        Ok(Column {
            attnum: self.attnum,
            type_oid: oid(self.type_oid)?,
            type_name: self.type_name,
            typmod: self.typmod,
            is_not_null: self.is_not_null,
            is_deterministic: self.is_deterministic,
            is_collation_c,
            collation: self.collation_name.filter(|_| has_collation),
            default: self.default.or(self.type_default),
            is_generated: !self.generated.is_empty(),
            identity,
            name: self.name,
        })
    }
}

#[derive(Deserialize)]
struct IndexRow {
    oid: i64,
    relation: i64,
    name: String,
    is_primary: bool,
    is_unique: bool,
    is_exclusion: bool,
    is_constraint: bool,
    is_partial: bool,
    columns: Vec<Option<String>>,
    plain_definition: String,
}

// A column counts as itself only where the index compares it as the type does: see Unique::columns. `plain_definition` is of an
// index that has neither expressions nor a predicate, as PostgreSQL would print it, but under its table's lock.
const INDEXES: &str = "
SELECT i.indexrelid::int8 AS oid, i.indrelid::int8 AS relation, ic.relname::text AS name, i.indisprimary AND i.indimmediate AS is_primary,
       i.indisunique AND i.indisvalid AS is_unique, i.indisexclusion AS is_exclusion, con.oid IS NOT NULL AS is_constraint,
       i.indpred IS NOT NULL AS is_partial,
       ARRAY(SELECT a.attname::text
             FROM generate_series(0, i.indnkeyatts - 1) k
             LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k] AND a.attnum > 0
                  AND NOT EXISTS (SELECT FROM pg_collation co WHERE co.oid = i.indcollation[k] AND NOT co.collisdeterministic)
                  AND (NOT i.indisexclusion
                       OR EXISTS (SELECT FROM pg_operator o WHERE o.oid = con.conexclop[k + 1] AND o.oprname = '='))
             ORDER BY k) AS columns,
       format('CREATE %sINDEX %I ON %s%I.%I USING %I %s', CASE WHEN i.indisunique THEN 'UNIQUE ' END, ic.relname,
              CASE ic.relkind WHEN 'I' THEN 'ONLY ' END, n.nspname, c.relname, am.amname,
              (SELECT concat_ws(' ',
                          '(' || string_agg(k.definition, ', ' ORDER BY k.place) FILTER (WHERE k.place < i.indnkeyatts) || ')',
                          'INCLUDE (' || string_agg(k.definition, ', ' ORDER BY k.place) FILTER (WHERE k.place >= i.indnkeyatts)
                                      || ')',
                          CASE WHEN i.indnullsnotdistinct THEN 'NULLS NOT DISTINCT' END,
                          'WITH (' || array_to_string(ic.reloptions, ', ') || ')')
               FROM (SELECT place, concat_ws(' ', quote_ident(a.attname),
                                CASE WHEN co.oid <> a.attcollation THEN 'COLLATE ' || co.oid::regcollation END,
                                CASE WHEN NOT (oc.opcdefault AND oc.opcnamespace = 'pg_catalog'::regnamespace)
                                     THEN concat_ws('.', nullif(oc.opcnamespace::regnamespace::text, 'pg_catalog'),
                                                    quote_ident(oc.opcname)) END,
                                '(' || array_to_string(ia.attoptions, ', ') || ')',
                                CASE WHEN i.indoption[place] & 1 = 1 THEN 'DESC' END,
                                CASE i.indoption[place] & 3 WHEN 1 THEN 'NULLS LAST' WHEN 2 THEN 'NULLS FIRST' END) AS definition
                     FROM generate_series(0, i.indnatts - 1) place
                     JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[place]
                     JOIN pg_attribute ia ON ia.attrelid = i.indexrelid AND ia.attnum = place + 1
                     LEFT JOIN pg_opclass oc ON oc.oid = i.indclass[place]
                     LEFT JOIN pg_collation co ON co.oid = i.indcollation[place]) k)) AS plain_definition
FROM pg_index i
JOIN pg_class ic ON ic.oid = i.indexrelid
JOIN pg_am am ON am.oid = ic.relam
JOIN pg_class c ON c.oid = i.indrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_constraint con ON con.conindid = i.indexrelid AND con.contype IN ('p', 'u', 'x')
WHERE n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardgate') AND c.relkind IN ('r', 'p', 'm') AND {relation i.indrelid}
ORDER BY i.indrelid, ic.relname";

fn add_indexes(rows: Vec<IndexRow>, catalog: &mut Catalog, printed: &Printed) -> Result<(), CatalogError> {
    for row in rows {
        // Those of constraints are told by the constraint.
        if !row.is_constraint
            && let Some(whole) = whole(catalog, oid(row.relation)?)
        {
            let object = ObjectName::part_of(whole, "index", row.name.as_str());
            catalog.definitions.insert(object, printed.text(Kind::Index, row.oid).unwrap_or(row.plain_definition));
        }
        if !row.is_unique && !row.is_exclusion {
            continue;
        }
        if let Some(relation) = catalog.relations.get_mut(&oid(row.relation)?) {
            relation.uniques.push(Unique {
                name: row.name,
                is_primary: row.is_primary,
                is_exclusion: row.is_exclusion,
                is_constraint: row.is_constraint,
                columns: row.columns,
                is_partial: row.is_partial,
            });
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct ParentRow {
    child: i64,
    parent: i64,
}

const PARENTS: &str = "
SELECT inhrelid::int8 AS child, inhparent::int8 AS parent FROM pg_inherits
WHERE {relation inhrelid} OR {relation inhparent} ORDER BY inhparent, inhrelid, inhseqno";

fn add_parents(rows: Vec<ParentRow>, catalog: &mut Catalog, is_read: impl Fn(Oid) -> bool) -> Result<(), CatalogError> {
    for row in rows {
        let (child, parent) = (oid(row.child)?, oid(row.parent)?);
        // Indexes of partitioned tables are in pg_inherits too.
        let Some(name) = catalog.relations.get(&parent).map(|parent| format!("{}.{}", parent.schema, parent.name)) else {
            continue;
        };
        if is_read(child) {
            if let Some(whole) = whole(catalog, child) {
                catalog.definitions.insert(ObjectName::part_of(whole, "parent", name), "");
            }
            if let Some(child) = catalog.relations.get_mut(&child) {
                child.parents.push(parent);
            }
        }
        if let (true, Some(parent)) = (is_read(parent), catalog.relations.get_mut(&parent)) {
            parent.children.push(child);
        }
    }
    Ok(())
}
