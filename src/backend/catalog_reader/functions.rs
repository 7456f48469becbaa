//! Functions, operators and types.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Deserialize;

use super::printed::{Kind, Printed};
use super::rows::Rows;
use super::{CatalogError, NamedRow, insert_named, letter, oid, oids};
use crate::catalog::{Called, Catalog, Conversion, Function, ObjectName, Oid, Type};

pub(super) const QUERIES: [(&str, &str); 8] = [
    ("functions", FUNCTIONS),
    ("operators", OPERATORS),
    ("types", TYPES),
    ("type_functions", TYPE_FUNCTIONS),
    ("type_parts", TYPE_PARTS),
    ("conversions", CONVERSIONS),
    ("equalities", EQUALITIES),
    ("implicit_casts", IMPLICIT_CASTS),
];

/// What the catalogue does not say of functions.
#[derive(Clone, Debug, Default)]
pub(super) struct FunctionNotes {
    /// How the definitions name it.
    pub signatures: HashMap<Oid, ObjectName>,
    /// What it calls, as pg_depend says; without conversions of its arguments.
    pub calls: HashMap<Oid, Vec<Oid>>,
}

pub(super) fn add(
    rows: &mut Rows,
    catalog: &mut Catalog,
    printed: &Printed,
    notes: &mut FunctionNotes,
) -> Result<(), CatalogError> {
    add_functions(rows.take("functions")?, catalog, printed, notes)?;
    catalog.function_names.values_mut().for_each(|oids| oids.sort_unstable());
    add_operators(rows.take("operators")?, catalog)?;
    add_types(rows.take("types")?, catalog)?;
    let wholes = wholes(rows.take("type_parts")?)?;
    add_type_functions(rows.take("type_functions")?, catalog, &wholes)?;
    add_conversions(rows.take("conversions")?, catalog, &wholes)?;
    add_equalities(rows.take("equalities")?, catalog)?;
    add_implicit_casts(rows.take("implicit_casts")?, catalog)?;
    catalog.function_dependencies.clone_from(&notes.calls);
    add_functions_of_arguments(catalog);
    Ok(())
}

#[derive(Deserialize)]
struct FunctionRow {
    oid: i64,
    schema: String,
    name: String,
    signature: String,
    argument_count: i16,
    argument_types: Vec<i64>,
    argument_names: Vec<String>,
    result_names: Vec<String>,
    default_count: i16,
    is_variadic: bool,
    built_in: Vec<Vec<i64>>,
    takes_row: bool,
    returns_set: bool,
    language: String,
    volatility: String,
    kind: String,
    /// `None`: of those of BEGIN ATOMIC, as their definition.
    body: Option<String>,
    is_extension_member: bool,
    search_path: Option<String>,
    custom_settings: Vec<String>,
    settings: Vec<String>,
    tree_digest: Option<String>,
    relations: Vec<i64>,
    functions: Vec<i64>,
    types: Vec<i64>,
    definition: Option<String>,
}

// A body of BEGIN ATOMIC is printed from its tree; other bodies are text. Of an aggregate, what it is made of is compared.
const FUNCTIONS: &str = "
SELECT p.oid::int8 AS oid, n.nspname::text AS schema, p.proname::text AS name,
       format('%s.%s(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)) AS signature,
       p.pronargs AS argument_count,
       ARRAY(SELECT a.type::int8 FROM unnest(p.proargtypes) WITH ORDINALITY a (type, place)
             WHERE p.prokind <> 'p' OR coalesce(array_to_string(p.proargmodes, ''), '') !~ 'o[ibv]' ORDER BY a.place) AS argument_types,
       ARRAY(SELECT coalesce(a.name, '') FROM unnest(p.proargnames, p.proargmodes::text[]) WITH ORDINALITY a (name, mode, place)
             WHERE coalesce(a.mode, 'i') IN ('i', 'b', 'v') ORDER BY a.place) AS argument_names,
       ARRAY(SELECT coalesce(a.name, '') FROM unnest(p.proargnames, p.proargmodes::text[]) WITH ORDINALITY a (name, mode, place)
             WHERE a.mode IN ('o', 'b', 't') ORDER BY a.place) AS result_names,
       p.pronargdefaults AS default_count, p.provariadic <> 0 AS is_variadic,
       coalesce((SELECT jsonb_agg(to_jsonb(ARRAY(SELECT a.type::int8 FROM unnest(b.proargtypes) WITH ORDINALITY a (type, place) ORDER BY a.place)))
                 FROM pg_proc b WHERE b.proname = p.proname AND b.pronamespace = 'pg_catalog'::regnamespace AND b.provariadic = 0),
                '[]') AS built_in,
       EXISTS (SELECT FROM pg_type t WHERE t.oid = p.proargtypes[0] AND t.typtype IN ('c', 'd', 'p')) AS takes_row, p.proretset AS returns_set, l.lanname::text AS language, p.provolatile::text AS volatility, p.prokind::text AS kind,
       CASE WHEN p.prosqlbody IS NULL THEN p.prosrc END AS body,
       e.is_member AS is_extension_member,
       (SELECT substr(setting, length('search_path=') + 1) FROM unnest(p.proconfig) setting WHERE setting LIKE 'search_path=%')
           AS search_path,
       ARRAY(SELECT lower(split_part(setting, '=', 1)) FROM unnest(p.proconfig) setting
             WHERE split_part(setting, '=', 1) LIKE '%.%' ORDER BY 1) AS custom_settings,
       coalesce(p.proconfig, '{}') AS settings,
       encode(sha256(convert_to(p.prosqlbody::text, 'UTF8')), 'hex') AS tree_digest,
       ARRAY(SELECT DISTINCT d.refobjid::int8 FROM pg_depend d
             WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_class'::regclass ORDER BY 1) AS relations,
       ARRAY(SELECT DISTINCT d.refobjid::int8 FROM pg_depend d
             WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_proc'::regclass
             UNION SELECT o.oprcode::oid::int8 FROM pg_depend d JOIN pg_operator o ON o.oid = d.refobjid
             WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_operator'::regclass ORDER BY 1) AS functions,
       ARRAY(SELECT DISTINCT d.refobjid::int8 FROM pg_depend d
             WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_type'::regclass ORDER BY 1) AS types,
       CASE WHEN e.is_member THEN NULL
            WHEN p.prokind = 'a' THEN (SELECT to_jsonb(a) - 'aggfnoid' - 'aggtranstype' - 'aggmtranstype' - 'aggsortop' FROM pg_aggregate a WHERE a.aggfnoid = p.oid)::text
            WHEN p.prosqlbody IS NULL THEN pg_get_functiondef(p.oid) END AS definition
FROM pg_proc p
JOIN pg_namespace n ON n.oid = p.pronamespace
JOIN pg_language l ON l.oid = p.prolang
CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
                    AS is_member) e
WHERE {function p.oid} AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardgate')
ORDER BY p.oid";

fn add_functions(
    rows: Vec<FunctionRow>,
    catalog: &mut Catalog,
    printed: &Printed,
    notes: &mut FunctionNotes,
) -> Result<(), CatalogError> {
    for row in rows {
        let is_printed = row.body.is_none();
        let (definition, body) = match row.body {
            Some(body) => (row.definition, body),
            None => (printed.text(Kind::Function, row.oid), printed.text(Kind::Body, row.oid).unwrap_or_default()),
        };
        let oid = oid(row.oid)?;
        if !row.is_extension_member && (is_printed || definition.is_some()) {
            let object = ObjectName::new("function", row.signature);
            notes.signatures.insert(oid, object.clone());
            if definition.is_none() {
                catalog.definitions.hold(object.as_parent(), "function");
            }
            catalog.definitions.insert(object, definition.unwrap_or_default());
        }
        catalog.function_names.entry(row.name.clone()).or_default().push(oid);
        let functions = oids(&row.functions)?;
        if !functions.is_empty() {
            notes.calls.insert(oid, functions);
        }
        catalog.functions.insert(
            oid,
            Function {
                oid,
                schema: row.schema,
                name: row.name,
                argument_count: usize::try_from(row.argument_count).unwrap_or(0),
                argument_types: oids(&row.argument_types)?,
                argument_names: row.argument_names,
                result_names: row.result_names,
                default_count: usize::try_from(row.default_count).unwrap_or(0),
                is_variadic: row.is_variadic,
                built_in: row.built_in.iter().map(|types| oids(types)).collect::<Result<_, _>>()?,
                takes_row: row.takes_row,
                returns_set: row.returns_set,
                language: row.language,
                volatility: letter("provolatile", &row.volatility)?,
                kind: letter("prokind", &row.kind)?,
                body,
                is_extension_member: row.is_extension_member,
                relations: oids(&row.relations)?,
                types: oids(&row.types)?,
                search_path: row.search_path.as_deref().and_then(own_search_path),
                custom_settings: row.custom_settings,
                settings: row.settings,
                tree_digest: row.tree_digest,
            },
        );
    }
    Ok(())
}

/// Where names in a function are looked for; `None`: that is also for its caller to say.
fn own_search_path(setting: &str) -> Option<Vec<String>> {
    let schemas = split_search_path(setting);
    (!schemas.iter().any(|schema| schema == "$user")).then_some(schemas)
}

/// The schemas of a `search_path` setting as pg_proc stores it: identifiers, quoted where needed, between commas.
fn split_search_path(setting: &str) -> Vec<String> {
    let mut schemas = Vec::new();
    let mut current = String::new();
    let mut characters = setting.chars().peekable();
    let mut is_quoted = false;
    while let Some(character) = characters.next() {
        match (is_quoted, character) {
            (true, '"') if characters.peek() == Some(&'"') => {
                characters.next();
                current.push('"');
            }
            (_, '"') => is_quoted = !is_quoted,
            (false, ',') => schemas.push(std::mem::take(&mut current)),
            (false, character) if character.is_whitespace() => {}
            (false, character) => current.extend(character.to_lowercase()),
            (true, character) => current.push(character),
        }
    }
    schemas.push(current);
    schemas.retain(|schema| !schema.is_empty());
    schemas
}

#[derive(Deserialize)]
struct OperatorRow {
    schema: String,
    name: String,
    operands: String,
    function: i64,
    function_name: String,
    has_builtin_operands: bool,
    is_extension_member: bool,
}

// What a user (not pg_catalog) may have made of =, <> and the like; and the functions that operators in bodies call.
const OPERATORS: &str = "
SELECT n.nspname::text AS schema, o.oprname::text AS name,
       format('%s, %s', format_type(nullif(o.oprleft, 0), NULL), format_type(nullif(o.oprright, 0), NULL)) AS operands,
       o.oprcode::oid::int8 AS function, o.oprcode::regprocedure::text AS function_name,
       NOT EXISTS (SELECT FROM pg_type t JOIN pg_namespace tn ON tn.oid = t.typnamespace
                   WHERE t.oid IN (o.oprleft, o.oprright) AND tn.nspname <> 'pg_catalog') AS has_builtin_operands,
       EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_operator'::regclass AND d.objid = o.oid AND d.deptype = 'e')
           AS is_extension_member
FROM pg_operator o JOIN pg_namespace n ON n.oid = o.oprnamespace
WHERE n.nspname <> 'pg_catalog' AND n.nspname NOT IN ('information_schema', 'shardgate')
ORDER BY o.oid";

fn add_operators(rows: Vec<OperatorRow>, catalog: &mut Catalog) -> Result<(), CatalogError> {
    for row in rows {
        let is_comparison = matches!(row.name.as_str(), "=" | "<>" | "<" | "<=" | ">" | ">=");
        if is_comparison && row.has_builtin_operands && !catalog.operator_schemas.contains(&row.schema) {
            catalog.operator_schemas.push(row.schema.clone());
        }
        if !row.is_extension_member {
            catalog.operator_functions.entry(row.name.clone()).or_default().push(oid(row.function)?);
            let name = format!("{}.{}({})", row.schema, row.name, row.operands);
            insert_named(
                &mut catalog.definitions,
                NamedRow { kind: "operator".to_owned(), name, definition: format!("function {}", row.function_name) },
            )?;
        }
    }
    catalog.operator_schemas.sort_unstable();
    Ok(())
}

#[derive(Deserialize)]
struct TypeRow {
    oid: i64,
    schema: String,
    name: String,
    kind: String,
    base: i64,
    default: Option<String>,
    definition: Option<String>,
}

// Row types of tables are left out; arrays are there for their element, not to be compared.
const TYPES: &str = r#"
SELECT t.oid::int8 AS oid, n.nspname::text AS schema, t.typname::text AS name, t.typtype::text AS kind,
       CASE WHEN t.typtype = 'd' THEN t.typbasetype::int8 WHEN t.typcategory = 'A' THEN t.typelem::int8 ELSE 0 END AS base,
       pg_get_expr(t.typdefaultbin, 0) AS "default",
       CASE WHEN n.nspname IN ('pg_catalog', 'information_schema') OR t.typcategory = 'A'
                 OR EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e')
            THEN NULL
            ELSE concat_ws(', ',
                CASE t.typtype WHEN 'e' THEN 'enum' WHEN 'd' THEN 'domain' WHEN 'c' THEN 'composite' WHEN 'r' THEN 'range'
                               WHEN 'm' THEN 'multirange' ELSE 'base' END,
                (SELECT '(' || string_agg(quote_literal(e.enumlabel), ', ' ORDER BY e.enumsortorder) || ')' FROM pg_enum e WHERE e.enumtypid = t.oid),
                CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod) END,
                CASE WHEN t.typnotnull THEN 'not null' END,
                'default ' || t.typdefault,
                (SELECT string_agg(pg_get_constraintdef(con.oid), ', ' ORDER BY con.conname) FROM pg_constraint con
                 WHERE con.contypid = t.oid AND con.contype = 'c'),
                (SELECT '(' || string_agg(format('%s %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum) || ')'
                 FROM pg_attribute a WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped),
                (SELECT 'of ' || format_type(r.rngsubtype, NULL) FROM pg_range r WHERE r.rngtypid = t.oid))
       END AS definition
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE {type t.oid} AND n.nspname !~ '^pg_(toast|temp)' AND n.nspname <> 'shardgate' AND t.typisdefined
  AND (t.typrelid = 0 OR EXISTS (SELECT FROM pg_class c WHERE c.oid = t.typrelid AND c.relkind = 'c'))
  AND NOT EXISTS (SELECT FROM pg_type el JOIN pg_class c ON c.oid = el.typrelid
                  WHERE el.oid = t.typelem AND t.typcategory = 'A' AND c.relkind <> 'c')"#;

fn add_types(rows: Vec<TypeRow>, catalog: &mut Catalog) -> Result<(), CatalogError> {
    for row in rows {
        if let Some(definition) = row.definition {
            catalog.definitions.insert(ObjectName::new("type", format!("{}.{}", row.schema, row.name)), definition);
        }
        let oid = oid(row.oid)?;
        let kind = letter("typtype", &row.kind)?;
        let base = super::oid(row.base)?;
        catalog.types.insert(oid, Type { oid, schema: row.schema, name: row.name, kind, base, default: row.default });
    }
    Ok(())
}

const TYPE_FUNCTIONS: &str = "
SELECT t.oid::int8 AS of, t.typname::text AS name, ca.castfunc::oid::int8 AS function
FROM pg_cast ca JOIN pg_type t ON t.oid = ca.casttarget JOIN pg_proc p ON p.oid = ca.castfunc
WHERE {converts} AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_cast'::regclass AND d.objid = ca.oid AND d.deptype = 'e')
  AND p.pronamespace <> 'pg_catalog'::regnamespace
UNION
SELECT t.oid::int8, t.typname::text, d.refobjid::int8
FROM pg_constraint con JOIN pg_type t ON t.oid = con.contypid
JOIN pg_depend d ON d.classid = 'pg_constraint'::regclass AND d.objid = con.oid AND d.refclassid = 'pg_proc'::regclass
WHERE {converts}
ORDER BY 1, 3";

#[derive(Deserialize)]
struct TypeFunctionRow {
    of: i64,
    name: String,
    function: i64,
}

fn add_type_functions(rows: Vec<TypeFunctionRow>, catalog: &mut Catalog, wholes: &Wholes) -> Result<(), CatalogError> {
    let mut known = BTreeSet::new();
    for row in rows {
        let function = oid(row.function)?;
        for (_, name) in wholes_of(wholes, oid(row.of)?, &row.name) {
            if known.insert((name.clone(), function)) {
                catalog.type_functions.entry(name).or_default().push(function);
            }
        }
    }
    Ok(())
}

/// Types by their parts: domains, arrays, ranges and composites over them.
type Wholes = BTreeMap<Oid, Vec<(Oid, String)>>;

const TYPE_PARTS: &str = "
SELECT p.part::int8 AS part, t.oid::int8 AS whole, t.typname::text AS name
FROM (SELECT typbasetype AS part, oid AS whole FROM pg_type WHERE typtype = 'd'
      UNION ALL SELECT typelem, oid FROM pg_type WHERE typcategory = 'A'
      UNION ALL SELECT rngsubtype, rngtypid FROM pg_range
      UNION ALL SELECT rngtypid, rngmultitypid FROM pg_range
      UNION ALL SELECT a.atttypid, c.reltype FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                WHERE a.attnum > 0 AND NOT a.attisdropped AND c.reltype <> 0) p
JOIN pg_type t ON t.oid = p.whole JOIN pg_type part ON part.oid = p.part
WHERE {converts} AND part.typnamespace <> 'pg_catalog'::regnamespace AND t.typnamespace <> 'information_schema'::regnamespace
ORDER BY 1, 2";

#[derive(Deserialize)]
struct TypePartRow {
    part: i64,
    whole: i64,
    name: String,
}

fn wholes(rows: Vec<TypePartRow>) -> Result<Wholes, CatalogError> {
    let mut wholes = Wholes::new();
    for row in rows {
        wholes.entry(oid(row.part)?).or_default().push((oid(row.whole)?, row.name));
    }
    Ok(wholes)
}

/// A value of a domain is one of the type below it, and an array's elements are of theirs: what is called for these is called for it.
fn wholes_of(wholes: &Wholes, part: Oid, name: &str) -> Vec<(Oid, String)> {
    let mut found = vec![(part, name.to_owned())];
    let mut next = 0;
    while let Some((part, _)) = found.get(next) {
        for whole in wholes.get(part).into_iter().flatten() {
            if !found.iter().any(|(known, _)| *known == whole.0) {
                found.push(whole.clone());
            }
        }
        next += 1;
    }
    found
}

#[derive(Deserialize)]
struct ConversionRow {
    function: i64,
    called: String,
    types: Vec<i64>,
    names: Vec<String>,
}

// Casts, checks of domains, and what operator classes and ranges call: those that users made, and not with an extension.
const CONVERSIONS: &str = "
SELECT c.function::int8 AS function, c.called, coalesce(array_agg(t.oid::int8 ORDER BY t.oid) FILTER (WHERE t.oid IS NOT NULL), '{}') AS types,
       coalesce(array_agg(t.typname::text ORDER BY t.oid) FILTER (WHERE t.oid IS NOT NULL), '{}') AS names
FROM (SELECT castfunc::oid AS function, castcontext::text AS called, castsource AS one, casttarget AS other FROM pg_cast
      UNION ALL
      SELECT d.refobjid, 'd', con.contypid, con.contypid FROM pg_constraint con
      JOIN pg_depend d ON d.classid = 'pg_constraint'::regclass AND d.objid = con.oid AND d.refclassid = 'pg_proc'::regclass
      WHERE con.contypid <> 0
      UNION ALL SELECT amproc::oid, 'i', amproclefttype, amprocrighttype FROM pg_amproc
      UNION ALL SELECT f.oid, 'i', r.rngtypid, r.rngtypid FROM pg_range r
                CROSS JOIN LATERAL (VALUES (r.rngsubdiff::oid), (r.rngcanonical::oid)) f (oid)
      UNION ALL SELECT o.oprcode::oid, 'i', ao.amoplefttype, ao.amoprighttype FROM pg_amop ao JOIN pg_operator o ON o.oid = ao.amopopr) c
JOIN pg_proc p ON p.oid = c.function
LEFT JOIN pg_type t ON t.oid IN (c.one, c.other) AND t.typnamespace <> 'pg_catalog'::regnamespace
WHERE {converts} AND p.pronamespace <> 'pg_catalog'::regnamespace
  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
GROUP BY c.function, c.called, c.one, c.other
ORDER BY 1, 2, 3";

fn add_conversions(rows: Vec<ConversionRow>, catalog: &mut Catalog, wholes: &Wholes) -> Result<(), CatalogError> {
    for row in rows {
        let called = match row.called.as_str() {
            "a" => Called::Assigned,
            "d" => Called::Checked,
            "e" => Called::Asked,
            _ => Called::Anywhere,
        };
        let mut conversion = Conversion { function: oid(row.function)?, called, ..Conversion::default() };
        for (part, name) in row.types.iter().zip(&row.names) {
            for (whole, name) in wholes_of(wholes, oid(*part)?, name) {
                conversion.types.insert(whole);
                conversion.type_names.insert(name);
            }
        }
        if !catalog.conversions.contains(&conversion) {
            catalog.conversions.push(conversion);
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct EqualityRow {
    of: i64,
    schema: String,
}

const EQUALITIES: &str = "
SELECT o.oprleft::int8 AS of, n.nspname::text AS schema
FROM pg_operator o JOIN pg_namespace n ON n.oid = o.oprnamespace JOIN pg_proc p ON p.oid = o.oprcode
JOIN pg_type t ON t.oid = o.oprleft JOIN pg_proc i ON i.oid = t.typinput
WHERE o.oprname = '=' AND o.oprright = o.oprleft AND o.oprleft >= 16384 AND o.oprresult = 'bool'::regtype
  AND t.typtype = 'b' AND t.typcategory <> 'A' AND p.provolatile = 'i' AND i.provolatile = 'i'
  AND EXISTS (SELECT FROM pg_operator x WHERE x.oprname = '<>' AND x.oprnamespace = o.oprnamespace
              AND x.oprleft = o.oprleft AND x.oprright = o.oprright)
  AND EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_operator'::regclass AND d.objid = o.oid AND d.deptype = 'e')
ORDER BY 1";

fn add_equalities(rows: Vec<EqualityRow>, catalog: &mut Catalog) -> Result<(), CatalogError> {
    for row in rows {
        catalog.extension_equalities.insert(oid(row.of)?, row.schema);
    }
    Ok(())
}

#[derive(Deserialize)]
struct ImplicitCastRow {
    source: i64,
    target: i64,
}

const IMPLICIT_CASTS: &str = "
SELECT castsource::int8 AS source, casttarget::int8 AS target FROM pg_cast WHERE castcontext = 'i' AND oid >= 16384 ORDER BY 1, 2";

fn add_implicit_casts(rows: Vec<ImplicitCastRow>, catalog: &mut Catalog) -> Result<(), CatalogError> {
    for row in rows {
        catalog.implicit_casts.push((oid(row.source)?, oid(row.target)?));
    }
    Ok(())
}

/// Values become those of the function's arguments and results.
fn add_functions_of_arguments(catalog: &mut Catalog) {
    for function in catalog.functions.values().filter(|function| !function.is_extension_member) {
        let called = catalog.conversions.iter().filter(|conversion| function.types.iter().any(|of| conversion.types.contains(of)));
        let called: Vec<Oid> = called.map(|conversion| conversion.function).filter(|called| *called != function.oid).collect();
        if !called.is_empty() {
            catalog.function_dependencies.entry(function.oid).or_default().extend(called);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_path_settings_are_split_as_identifiers() {
        assert_eq!(split_search_path("public, pg_temp"), ["public", "pg_temp"]);
        assert_eq!(split_search_path(r#""My Schema", "a""b", Public"#), ["My Schema", "a\"b", "public"]);
        assert_eq!(split_search_path(r#""""#), Vec::<String>::new());
        assert_eq!(own_search_path("a, public"), Some(vec!["a".to_owned(), "public".to_owned()]));
        assert_eq!(own_search_path(r#""$user", public"#), None);
    }
}
