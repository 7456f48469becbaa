//! What hangs on relations: constraints, triggers, policies, rules, and what their expressions depend on.

use serde::Deserialize;

use super::printed::{Kind, Printed};
use super::relations::whole;
use super::rows::Rows;
use super::{CatalogError, oid, oids};
use crate::catalog::{
    Catalog, Dependency, DependencyTarget, DependentKind, ForeignKey, ForeignKeyAction, NOT_NULL, ObjectName, Policy, Trigger,
    TriggerEvents,
};

pub(super) const QUERIES: [(&str, &str); 5] = [
    ("constraints", CONSTRAINTS),
    ("triggers", TRIGGERS),
    ("policies", POLICIES),
    ("rules", RULES),
    ("dependencies", DEPENDENCIES),
];

pub(super) fn add(rows: &mut Rows, catalog: &mut Catalog, printed: &Printed) -> Result<(), CatalogError> {
    add_constraints(rows.take("constraints")?, catalog, printed)?;
    add_triggers(rows.take("triggers")?, catalog, printed)?;
    add_policies(rows.take("policies")?, catalog, printed)?;
    add_rules(rows.take("rules")?, catalog, printed)?;
    add_dependencies(rows.take("dependencies")?, catalog)
}

#[derive(Deserialize)]
struct ConstraintRow {
    oid: i64,
    relation: i64,
    name: String,
    kind: String,
    columns: Vec<String>,
    referenced: i64,
    referenced_columns: Vec<String>,
    on_delete: String,
    on_update: String,
    columns_set_on_delete: Vec<String>,
    /// `None`: of those that are printed aside.
    definition: Option<String>,
}

// Not triggers, nor what PostgreSQL adds to a foreign key for each partition of the table that it refers to. Of NOT NULL, a constraint
// since PostgreSQL 18, what its column does not say. A name that PostgreSQL has chosen does not count, nor that of a partition's: pg_dump
// restores a partitioned table with other ones. What is too long PostgreSQL shortens.
const CONSTRAINTS: &str = "
SELECT con.oid::int8 AS oid, con.conrelid::int8 AS relation, con.conname::text AS name, con.contype::text AS kind,
       ARRAY(SELECT a.attname::text FROM unnest(con.conkey) WITH ORDINALITY k(attnum, n)
             JOIN pg_attribute a ON a.attrelid = con.conrelid AND a.attnum = k.attnum ORDER BY k.n) AS columns,
       con.confrelid::int8 AS referenced,
       ARRAY(SELECT a.attname::text FROM unnest(con.confkey) WITH ORDINALITY k(attnum, n)
             JOIN pg_attribute a ON a.attrelid = con.confrelid AND a.attnum = k.attnum ORDER BY k.n) AS referenced_columns,
       con.confdeltype::text AS on_delete, con.confupdtype::text AS on_update,
       ARRAY(SELECT a.attname::text FROM unnest(con.confdelsetcols) k
             JOIN pg_attribute a ON a.attrelid = con.conrelid AND a.attnum = k ORDER BY a.attnum) AS columns_set_on_delete,
       CASE WHEN con.contype = 'n' AND nn.is_named THEN format('CONSTRAINT %I %s', con.conname, pg_get_constraintdef(con.oid))
            WHEN con.contype NOT IN ('c', 'x') THEN pg_get_constraintdef(con.oid) END AS definition
FROM pg_constraint con
JOIN pg_class c ON c.oid = con.conrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN LATERAL (
    SELECT con.coninhcount = 0 AND NOT (
        con.conname ~ '_not_null[0-9]*$'
        AND (octet_length(c.relname) + octet_length(a.attname) > 50
             OR regexp_replace(con.conname, '_not_null[0-9]*$', '') = format('%s_%s', c.relname, a.attname))) AS is_named
    FROM pg_attribute a WHERE a.attrelid = con.conrelid AND a.attnum = con.conkey[1]) nn ON con.contype = 'n'
WHERE con.contype IN ('c', 'f', 'n', 'p', 'u', 'x') AND {relation con.conrelid} AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardgate')
  AND (con.contype <> 'n' OR con.connoinherit OR NOT con.convalidated OR nn.is_named)
  AND (con.contype <> 'f' OR NOT EXISTS (SELECT FROM pg_constraint p WHERE p.oid = con.conparentid AND p.conrelid = con.conrelid))
ORDER BY con.conrelid, con.conname";

fn add_constraints(rows: Vec<ConstraintRow>, catalog: &mut Catalog, printed: &Printed) -> Result<(), CatalogError> {
    for row in rows {
        let relation = oid(row.relation)?;
        let definition = match row.kind.as_str() {
            "c" => printed.text(Kind::Check, row.oid),
            "x" => printed.text(Kind::Exclusion, row.oid),
            _ => row.definition,
        };
        if let Some(whole) = whole(catalog, relation) {
            let object = match (row.kind.as_str(), row.columns.first()) {
                ("n", Some(column)) => ObjectName::part_of(whole, NOT_NULL, column),
                _ => ObjectName::part_of(whole, "constraint", row.name.as_str()),
            };
            catalog.definitions.insert(object, definition.unwrap_or_default());
        }
        if let (true, Some(relation)) = (row.kind == "f", catalog.relations.get_mut(&relation)) {
            relation.foreign_keys.push(ForeignKey {
                name: row.name,
                columns: row.columns,
                referenced: oid(row.referenced)?,
                referenced_columns: row.referenced_columns,
                on_delete: action(&row.on_delete),
                on_update: action(&row.on_update),
                columns_set_on_delete: row.columns_set_on_delete,
            });
        }
    }
    Ok(())
}

/// `pg_constraint.confdeltype` and its twin.
fn action(letter: &str) -> ForeignKeyAction {
    match letter {
        "c" => ForeignKeyAction::Cascades,
        "n" => ForeignKeyAction::SetsNull,
        "d" => ForeignKeyAction::SetsDefault,
        _ => ForeignKeyAction::Looks,
    }
}

#[derive(Deserialize)]
struct TriggerRow {
    oid: i64,
    relation: i64,
    name: String,
    function: i64,
    kind: i16,
    is_enabled: bool,
    enabled: String,
    has_transition_tables: bool,
    /// `None`: of those with a condition.
    definition: Option<String>,
}

// Not our own, which come and go.
const TRIGGERS: &str = "
SELECT t.oid::int8 AS oid, t.tgrelid::int8 AS relation, t.tgname::text AS name, t.tgfoid::int8 AS function, t.tgtype AS kind,
       t.tgenabled <> 'D' AS is_enabled, t.tgenabled::text AS enabled,
       t.tgoldtable IS NOT NULL OR t.tgnewtable IS NOT NULL AS has_transition_tables,
       CASE WHEN t.tgqual IS NULL THEN pg_get_triggerdef(t.oid) END AS definition
FROM pg_trigger t
JOIN pg_class c ON c.oid = t.tgrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_proc p ON p.oid = t.tgfoid
WHERE NOT t.tgisinternal AND {relation t.tgrelid} AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardgate')
  AND p.pronamespace NOT IN (SELECT s.oid FROM pg_namespace s WHERE s.nspname = 'shardgate')
ORDER BY t.tgrelid, t.tgname";

/// Bits of `pg_trigger.tgtype`, as in PostgreSQL's `catalog/pg_trigger.h`.
const TRIGGER_ROW: i16 = 1 << 0;
const TRIGGER_BEFORE: i16 = 1 << 1;
const TRIGGER_INSERT: i16 = 1 << 2;
const TRIGGER_DELETE: i16 = 1 << 3;
const TRIGGER_UPDATE: i16 = 1 << 4;
const TRIGGER_TRUNCATE: i16 = 1 << 5;
const TRIGGER_INSTEAD: i16 = 1 << 6;

fn add_triggers(rows: Vec<TriggerRow>, catalog: &mut Catalog, printed: &Printed) -> Result<(), CatalogError> {
    for row in rows {
        let relation = oid(row.relation)?;
        let definition = row.definition.or_else(|| printed.text(Kind::Trigger, row.oid)).unwrap_or_default();
        if let Some(whole) = whole(catalog, relation) {
            // O: fires as usual, which needs no word.
            let told = match row.enabled.as_str() {
                "O" => definition.clone(),
                other => format!("{definition} (enabled: {other})"),
            };
            catalog.definitions.insert(ObjectName::part_of(whole, "trigger", row.name.as_str()), told);
        }
        if let (true, Some(relation)) = (row.is_enabled, catalog.relations.get_mut(&relation)) {
            let has = |bit: i16| row.kind & bit != 0;
            relation.triggers.push(Trigger {
                function: oid(row.function)?,
                is_before: has(TRIGGER_BEFORE),
                is_row: has(TRIGGER_ROW),
                is_instead: has(TRIGGER_INSTEAD),
                fires_on: TriggerEvents {
                    insert: has(TRIGGER_INSERT),
                    update: has(TRIGGER_UPDATE),
                    delete: has(TRIGGER_DELETE),
                    truncate: has(TRIGGER_TRUNCATE),
                },
                has_transition_tables: row.has_transition_tables,
                definition,
                name: row.name,
            });
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct PolicyRow {
    oid: i64,
    relation: i64,
    name: String,
    relations: Vec<i64>,
    definition: String,
}

// A policy always depends on its own table; whether it also reads it in a sub-select only the expression tells.
const POLICIES: &str = "
SELECT p.oid::int8 AS oid, p.polrelid::int8 AS relation, p.polname::text AS name,
       ARRAY(SELECT DISTINCT d.refobjid::int8 FROM pg_depend d
             WHERE d.classid = 'pg_policy'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_class'::regclass
               AND d.refobjid <> p.polrelid ORDER BY 1) AS relations,
       format('for %s, permissive %s, to %s', p.polcmd, p.polpermissive,
              (SELECT string_agg(CASE r WHEN 0 THEN 'public' ELSE pg_get_userbyid(r)::text END, ' ') FROM unnest(p.polroles) r))
           AS definition
FROM pg_policy p
JOIN pg_class c ON c.oid = p.polrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE {relation p.polrelid} AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardgate')
ORDER BY p.polrelid, p.polname";

fn add_policies(rows: Vec<PolicyRow>, catalog: &mut Catalog, printed: &Printed) -> Result<(), CatalogError> {
    for row in rows {
        let relation = oid(row.relation)?;
        let (using, check) = (printed.text(Kind::PolicyUsing, row.oid), printed.text(Kind::PolicyCheck, row.oid));
        if let Some(whole) = whole(catalog, relation) {
            let told = |expression: &Option<String>| expression.clone().unwrap_or_default();
            let definition = format!("{}, using {}, with check {}", row.definition, told(&using), told(&check));
            catalog.definitions.insert(ObjectName::part_of(whole, "policy", row.name.as_str()), definition);
        }
        if let Some(relation) = catalog.relations.get_mut(&relation) {
            let expressions = using.into_iter().chain(check).collect();
            relation.policies.push(Policy { name: row.name, expressions, relations: oids(&row.relations)? });
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct RuleRow {
    relation: i64,
    name: String,
    rule: i64,
    enabled: String,
}

const RULES: &str = "
SELECT r.ev_class::int8 AS relation, r.rulename::text AS name, r.oid::int8 AS rule, r.ev_enabled::text AS enabled
FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE r.rulename <> '_RETURN' AND {relation r.ev_class} AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardgate')
ORDER BY r.ev_class, r.rulename";

fn add_rules(rows: Vec<RuleRow>, catalog: &mut Catalog, printed: &Printed) -> Result<(), CatalogError> {
    for RuleRow { relation, name, rule, enabled } in rows {
        let relation = oid(relation)?;
        if let Some(whole) = whole(catalog, relation) {
            let definition = printed.text(Kind::Rule, rule).unwrap_or_default();
            let definition = format!("{definition} (enabled: {enabled})");
            catalog.definitions.insert(ObjectName::part_of(whole, "rule", name.as_str()), definition);
        }
        if let (false, Some(relation)) = (enabled == "D", catalog.relations.get_mut(&relation)) {
            relation.rules.push(name);
        }
    }
    Ok(())
}

// Objects of pg_catalog are pinned and do not appear in pg_depend, which is what is wanted. Operators, operator classes and domains
// stand for the functions that they call.
const DEPENDENCIES: &str = "
SELECT owner.relation::int8 AS relation, owner.kind, owner.name, used.class = 'pg_proc'::regclass AS is_function, used.oid::int8 AS target
FROM (
    SELECT 'pg_rewrite'::regclass::oid AS class, oid, ev_class AS relation, rulename::text AS name,
           CASE rulename WHEN '_RETURN' THEN 'view' ELSE 'rule' END AS kind FROM pg_rewrite WHERE {relation ev_class}
    UNION ALL SELECT 'pg_policy'::regclass, oid, polrelid, polname::text, 'policy' FROM pg_policy WHERE {relation polrelid}
    UNION ALL SELECT 'pg_attrdef'::regclass, ad.oid, ad.adrelid, a.attname::text, 'default'
              FROM pg_attrdef ad JOIN pg_attribute a ON a.attrelid = ad.adrelid AND a.attnum = ad.adnum WHERE {relation ad.adrelid}
    UNION ALL SELECT 'pg_type'::regclass, a.atttypid, a.attrelid, a.attname::text, 'default'
              FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
              WHERE t.typtype = 'd' AND t.typdefaultbin IS NOT NULL AND a.attnum > 0 AND {relation a.attrelid}
    UNION ALL SELECT 'pg_constraint'::regclass, oid, conrelid, conname::text, 'check' FROM pg_constraint WHERE contype = 'c' AND conrelid <> 0 AND {relation conrelid}
    UNION ALL SELECT 'pg_constraint'::regclass, con.oid, a.attrelid, a.attname::text, 'check'
              FROM pg_constraint con JOIN pg_attribute a ON a.atttypid = con.contypid AND a.attnum > 0 WHERE con.contypid <> 0 AND {relation a.attrelid}
    UNION ALL SELECT 'pg_class'::regclass, i.indexrelid, i.indrelid, ic.relname::text, 'index'
              FROM pg_index i JOIN pg_class ic ON ic.oid = i.indexrelid
              WHERE {relation i.indrelid} AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL
                 OR EXISTS (SELECT FROM pg_depend od WHERE od.classid = 'pg_class'::regclass AND od.objid = i.indexrelid AND od.refclassid = 'pg_opclass'::regclass))
    UNION ALL SELECT 'pg_class'::regclass, partrelid, partrelid, 'partition key', 'partition' FROM pg_partitioned_table WHERE {relation partrelid}
    UNION ALL SELECT 'pg_trigger'::regclass, oid, tgrelid, tgname::text, 'trigger' FROM pg_trigger WHERE NOT tgisinternal AND tgqual IS NOT NULL AND {relation tgrelid}
) owner
JOIN pg_depend d ON d.classid = owner.class AND d.objid = owner.oid
JOIN pg_class c ON c.oid = owner.relation
JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (
    SELECT d.refclassid AS class, d.refobjid AS oid WHERE d.refclassid IN ('pg_class'::regclass, 'pg_proc'::regclass)
    UNION ALL SELECT 'pg_proc'::regclass, o.oprcode::oid FROM pg_operator o WHERE d.refclassid = 'pg_operator'::regclass AND o.oid = d.refobjid
    UNION ALL SELECT 'pg_proc'::regclass, ap.amproc::oid FROM pg_opclass oc JOIN pg_amproc ap ON ap.amprocfamily = oc.opcfamily
              WHERE d.refclassid = 'pg_opclass'::regclass AND oc.oid = d.refobjid
    UNION ALL SELECT 'pg_proc'::regclass, cd.refobjid FROM pg_constraint con
              JOIN pg_depend cd ON cd.classid = 'pg_constraint'::regclass AND cd.objid = con.oid AND cd.refclassid = 'pg_proc'::regclass
              WHERE d.refclassid = 'pg_type'::regclass AND con.contypid = d.refobjid
) used
WHERE (used.class = 'pg_proc'::regclass OR (used.oid <> owner.relation AND owner.kind <> 'partition'))
  AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardgate')
GROUP BY 1, 2, 3, 4, 5
ORDER BY 1, 2, 3, 4, 5";

#[derive(Deserialize)]
struct DependencyRow {
    relation: i64,
    kind: String,
    name: String,
    is_function: bool,
    target: i64,
}

fn add_dependencies(rows: Vec<DependencyRow>, catalog: &mut Catalog) -> Result<(), CatalogError> {
    for DependencyRow { relation, kind, name, is_function, target } in rows {
        let of = match kind.as_str() {
            "view" => DependentKind::View,
            "rule" => DependentKind::Rule,
            "policy" => DependentKind::Policy,
            "default" => DependentKind::Default,
            "check" => DependentKind::Check,
            // PostgreSQL keeps no object of its own for the key of a partitioned table.
            "index" | "partition" => DependentKind::Index,
            "trigger" => DependentKind::TriggerWhen,
            _ => return Err(CatalogError::Unexpected { what: "dependent", value: kind }),
        };
        let (relation, target) = (oid(relation)?, oid(target)?);
        // Indexes and composite types have columns, too.
        let Some(owner) = catalog.relations.get(&relation) else { continue };
        let on = if is_function { DependencyTarget::Function(target) } else { DependencyTarget::Relation(target) };
        // A trigger's function is in Relation::triggers, with or without a condition.
        let is_own_function = of == DependentKind::TriggerWhen
            && owner.triggers.iter().any(|trigger| trigger.name == name && on == DependencyTarget::Function(trigger.function));
        if !is_own_function {
            catalog.relation_dependencies.or_default(relation).push(Dependency { of, name, on });
        }
    }
    Ok(())
}
