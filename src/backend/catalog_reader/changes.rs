//! Which relations, functions and types have changed since another reading, as PostgreSQL's own row versions tell.
//!
//! A row that the earlier snapshot did not show was written by a transaction that had not ended then: its xmin is at or after the
//! oldest that was running. Nobody can look for xmin by an index, so the rows of pg_catalog are passed over once, which costs a
//! fraction of a microsecond a row. A row that has gone leaves no xmin; it shows in the number of rows, and then in the list of those
//! that are left. All is counted and read by one statement, and so by one snapshot.
//!
//! ```text
//! seen ─► rows with a new version ─► object: with the unit that each belongs to ─► unit: what is read again
//! ```
//! Who changes what an object depends on (pg_depend) writes a row of the object too, but for an extension's members, which are
//! counted. What is rare and may be in any definition (operators, casts, collations, schemas, extensions, roles and the like) is no
//! unit: when it has changed, all is read. In-place updates of PostgreSQL's statistics have no version and are not read here.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::CatalogError;
use crate::catalog::Oid;

/// What is read again as a whole when a part of it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub(super) enum UnitKind {
    #[serde(rename = "r")]
    Relation,
    #[serde(rename = "f")]
    Function,
    #[serde(rename = "t")]
    Type,
}

pub(super) type Unit = (UnitKind, Oid);

impl UnitKind {
    pub fn letter(self) -> char {
        match self {
            UnitKind::Relation => 'r',
            UnitKind::Function => 'f',
            UnitKind::Type => 't',
        }
    }
}

/// Whose rows are counted, since an object of it may go without a trace elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Class {
    Relation,
    Constraint,
    Trigger,
    Policy,
    Rule,
    Function,
    Type,
    /// By the oids of child and parent.
    Inheritance,
}

/// Its oid, or both.
pub(super) type Object = (Class, i64);

/// Which snapshot a reading is compared with, and what is read in any case: as SQL.
#[derive(Clone, Debug)]
pub(super) struct Since {
    /// The oldest transaction that was running then.
    bound: String,
    /// An advisory lock that only lives on the server that was read.
    token: i64,
    /// There are conversions, which may be of any type.
    has_conversions: String,
    /// Arrays of the oids of relations, functions and types.
    also: [String; 3],
}

impl Since {
    pub fn new(bound: i64, token: i64, has_conversions: bool, also: &BTreeSet<Unit>) -> Self {
        let oids = |kind: UnitKind| {
            let oids: Vec<String> = also.iter().filter(|unit| unit.0 == kind).map(|unit| unit.1.to_string()).collect();
            format!("'{{{}}}'", oids.join(","))
        };
        Self { bound: transaction(bound), token, has_conversions: has_conversions.to_string(), also: UNIT_KINDS.map(oids) }
    }

    /// Of a statement that is planned once, with these as its parameters.
    pub fn prepared(token: i64) -> Self {
        let also = ["$2", "$3", "$4"].map(str::to_owned);
        Self { bound: "$1".to_owned(), token, has_conversions: "$5".to_owned(), also }
    }

    /// Prepares what reads what has changed; planning it takes longer than running it.
    pub fn prepare(&self, query: &str) -> String {
        format!("PREPARE {} (xid, oid[], oid[], oid[], bool) AS {query}", self.statement())
    }

    pub fn execute(&self) -> String {
        let Self { bound, has_conversions, also: [relations, functions, types], .. } = self;
        format!("EXECUTE {} ({bound}, {relations}, {functions}, {types}, {has_conversions})", self.statement())
    }

    fn statement(&self) -> String {
        format!("shardgate_changes_{}", self.token)
    }
}

const UNIT_KINDS: [UnitKind; 3] = [UnitKind::Relation, UnitKind::Function, UnitKind::Type];

/// More transactions than these in between: all is read. Far from the two thousand million after which numbers come again.
pub(super) const TRANSACTIONS_MAX: i64 = 100_000_000;
/// More units than these, or more objects of any kind: all is read.
pub(super) const UNITS_MAX: usize = 256;
pub(super) const SEEN_MAX: i64 = 5000;

/// The common table expressions of a statement that reads everything.
pub(super) fn whole() -> String {
    format!("WITH {}", filled(OBJECTS, true, &|_, _| "true".to_owned()))
}

/// Of one that reads what has changed since then, and these.
pub(super) fn since(since: &Since) -> String {
    let ids = |(kind, oids): (UnitKind, &String)| format!("SELECT '{}'::text, unnest({oids}::oid[])", kind.letter());
    let also = UNIT_KINDS.into_iter().zip(&since.also).map(ids).collect::<Vec<_>>().join("\n    UNION ALL ");
    let objects = filled(OBJECTS, false, &|class, id| format!("{id} IN (SELECT id::oid FROM seen WHERE class = '{class}')"));
    let ctes = format!("WITH {SEEN}, {objects}, {}", UNITS.replace("{also}", &also));
    ctes.replace("{recent}", &recent(&since.bound))
}

/// In a query of one table whose name for its rows' xmin is not hidden. Rows that are older than half of all numbers seem to be of
/// the future, and so do those of the transaction's own subtransactions, which count.
fn recent(bound: &str) -> String {
    format!("age(xmin) <= (SELECT age({bound}::xid)) AND age(xmin) >= -{TRANSACTIONS_MAX}")
}

/// As rows name it.
fn transaction(number: i64) -> String {
    // 0 to 2 are no transactions.
    format!("'{}'", (number & 0xffff_ffff).max(3))
}

/// A query of the schema, for the units that are read.
pub(super) fn of_units(query: &str, since: Option<&Since>) -> String {
    let Some(since) = since else { return filled(query, true, &|_, _| "true".to_owned()) };
    let converts = format!("({} OR (SELECT EXISTS (SELECT FROM unit WHERE kind IN ('f', 't'))))", since.has_conversions);
    filled(query, false, &|kind, id| {
        format!("{id} IN (SELECT oid FROM unit WHERE kind = '{}')", kind.chars().next().unwrap_or(' '))
    })
    .replace("{converts}", &converts)
}

/// `{relation c.oid}` and the like by what stands for them.
fn filled(query: &str, is_whole: bool, place: &dyn Fn(&str, &str) -> String) -> String {
    let mut text = String::with_capacity(query.len());
    let mut rest = query;
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        let Some((name, after)) = after.split_once('}') else { break };
        match name.split_once(' ') {
            Some((kind, id)) => text.push_str(&place(kind, id)),
            None if is_whole && !name.is_empty() => text.push_str("true"),
            None => text.push_str(&format!("{{{name}}}")),
        }
        rest = after;
    }
    text.push_str(rest);
    text
}

const SEEN: &str = "
counted (class, n, found) AS MATERIALIZED (
    SELECT 'relation', count(*), array_agg(oid::int8) FILTER (WHERE {recent}) FROM pg_class
    UNION ALL SELECT 'constraint', count(*), array_agg(oid::int8) FILTER (WHERE {recent}) FROM pg_constraint
    UNION ALL SELECT 'trigger', count(*), array_agg(oid::int8) FILTER (WHERE {recent}) FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT 'policy', count(*), array_agg(oid::int8) FILTER (WHERE {recent}) FROM pg_policy
    UNION ALL SELECT 'rule', count(*), array_agg(oid::int8) FILTER (WHERE {recent}) FROM pg_rewrite
    UNION ALL SELECT 'function', count(*), array_agg(oid::int8) FILTER (WHERE {recent}) FROM pg_proc
    UNION ALL SELECT 'type', count(*), array_agg(oid::int8) FILTER (WHERE {recent}) FROM pg_type
    UNION ALL SELECT 'inheritance', count(*), array_agg(inhrelid::int8 << 32 | inhparent::int8) FILTER (WHERE {recent}) FROM pg_inherits
), seen (class, id) AS MATERIALIZED (
    SELECT DISTINCT class, id FROM (
        SELECT class, unnest(found) FROM counted
        UNION ALL SELECT 'relation', attrelid::int8 FROM pg_attribute WHERE attnum > 0 AND {recent}
        UNION ALL SELECT 'relation', indexrelid::int8 FROM pg_index WHERE {recent}
        UNION ALL SELECT 'relation', adrelid::int8 FROM pg_attrdef WHERE {recent}
        UNION ALL SELECT 'relation', seqrelid::int8 FROM pg_sequence WHERE {recent}
        UNION ALL SELECT 'relation', partrelid::int8 FROM pg_partitioned_table WHERE {recent}
        UNION ALL SELECT 'type', enumtypid::int8 FROM pg_enum WHERE {recent}
        UNION ALL SELECT 'type', rngtypid::int8 FROM pg_range WHERE {recent}
        UNION ALL SELECT 'function', aggfnoid::int8 FROM pg_aggregate WHERE {recent}
    ) s(class, id) LIMIT 5001
)";

// A table's row type, and the array of it, belong to the table; a composite type's relation belongs to the type.
const OBJECTS: &str = "
object (class, id, kind, unit) AS MATERIALIZED (
    SELECT 'relation', c.oid::int8, CASE WHEN c.relkind = 'c' THEN 't' ELSE 'r' END,
           CASE WHEN c.relkind = 'c' THEN c.reltype ELSE coalesce(i.indrelid, c.oid) END
    FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid WHERE {relation c.oid}
    UNION ALL SELECT 'constraint', oid::int8, CASE WHEN contypid <> 0 THEN 't' ELSE 'r' END,
                     CASE WHEN contypid <> 0 THEN contypid ELSE conrelid END
    FROM pg_constraint WHERE {constraint oid}
    UNION ALL SELECT 'trigger', oid::int8, 'r', tgrelid FROM pg_trigger WHERE NOT tgisinternal AND {trigger oid}
    UNION ALL SELECT 'policy', oid::int8, 'r', polrelid FROM pg_policy WHERE {policy oid}
    UNION ALL SELECT 'rule', oid::int8, 'r', ev_class FROM pg_rewrite WHERE {rule oid}
    UNION ALL SELECT 'function', oid::int8, 'f', oid FROM pg_proc WHERE {function oid}
    UNION ALL SELECT 'type', t.oid::int8, CASE WHEN c.oid IS NULL THEN 't' ELSE 'r' END, coalesce(c.oid, t.oid)
    FROM pg_type t LEFT JOIN pg_type el ON el.oid = t.typelem AND t.typcategory = 'A'
    LEFT JOIN pg_class c ON c.oid = coalesce(nullif(t.typrelid, 0), el.typrelid) AND c.relkind <> 'c' WHERE {type t.oid}
)";

// Not temporary tables, which come and go.
const UNITS: &str = "
heir (id) AS MATERIALIZED (SELECT id FROM seen WHERE class = 'inheritance'),
unit (kind, oid) AS MATERIALIZED (
    SELECT DISTINCT kind, unit FROM (
        SELECT kind, unit FROM object
        UNION ALL SELECT 'r', (id >> 32)::oid FROM heir UNION ALL SELECT 'r', (id & 4294967295)::oid FROM heir
        UNION ALL {also}
    ) u(kind, unit)
    WHERE NOT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                      WHERE u.kind = 'r' AND c.oid = u.unit AND n.nspname ~ '^pg_(temp|toast)')
    LIMIT 257
)";

/// Of inheritance, which has no row in `object`.
const HEIRS: &str =
    "SELECT 'inheritance', inhrelid::int8 << 32 | inhparent::int8, 'r', inhrelid FROM pg_inherits WHERE {inheritance}";

const OBJECT_LISTS: &str = "
SELECT class, array_agg(id) AS ids, string_agg(kind, '') AS kinds, array_agg(unit::int8) AS units
FROM (SELECT class, id, kind, unit FROM object UNION ALL {heirs}) o GROUP BY class";

/// All objects, or those of which a row has changed.
pub(super) fn object_lists(since: Option<&Since>) -> String {
    let heirs = match since {
        None => HEIRS.replace("{inheritance}", "true"),
        Some(_) => "SELECT 'inheritance', id, 'r', (id >> 32)::oid FROM heir".to_owned(),
    };
    OBJECT_LISTS.replace("{heirs}", &heirs)
}

#[derive(Deserialize)]
pub(super) struct ObjectRow {
    class: Class,
    ids: Vec<i64>,
    kinds: String,
    units: Vec<i64>,
}

impl ObjectRow {
    pub fn objects(self) -> impl Iterator<Item = Result<(Object, Unit), CatalogError>> {
        let Self { class, ids, kinds, units } = self;
        let kind = |letter: char| match letter {
            'f' => UnitKind::Function,
            't' => UnitKind::Type,
            _ => UnitKind::Relation,
        };
        let kinds: Vec<UnitKind> = kinds.chars().map(kind).collect();
        ids.into_iter().zip(kinds).zip(units).map(move |((id, kind), unit)| Ok(((class, id), (kind, super::oid(unit)?))))
    }
}

pub(super) const COUNTS: &str = "SELECT class, n FROM counted";

#[derive(Deserialize)]
pub(super) struct CountRow {
    pub class: Class,
    pub n: usize,
}

pub(super) const UNIT_LIST: &str = "SELECT kind, oid::int8 AS oid FROM unit";

#[derive(Deserialize)]
pub(super) struct UnitRow {
    pub kind: UnitKind,
    pub oid: i64,
}

/// What is left of one class.
pub(super) fn left(class: Class) -> &'static str {
    match class {
        Class::Relation => "SELECT string_agg(oid::text, ' ') FROM pg_class",
        Class::Constraint => "SELECT string_agg(oid::text, ' ') FROM pg_constraint",
        Class::Trigger => "SELECT string_agg(oid::text, ' ') FROM pg_trigger WHERE NOT tgisinternal",
        Class::Policy => "SELECT string_agg(oid::text, ' ') FROM pg_policy",
        Class::Rule => "SELECT string_agg(oid::text, ' ') FROM pg_rewrite",
        Class::Function => "SELECT string_agg(oid::text, ' ') FROM pg_proc",
        Class::Type => "SELECT string_agg(oid::text, ' ') FROM pg_type",
        Class::Inheritance => "SELECT string_agg((inhrelid::int8 << 32 | inhparent::int8)::text, ' ') FROM pg_inherits",
    }
}

/// Snapshot and server: the lock proves that it is the one that was read.
pub(super) fn state(since: Option<&Since>) -> String {
    let is_same = since.map_or("true".to_owned(), |Since { token, .. }| {
        format!(
            "EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
                     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                     AND classid = ({token}::int8 >> 32)::oid AND objid = ({token}::int8 & 4294967295)::oid)"
        )
    });
    let seen = since.map_or("0", |_| "(SELECT count(*) FROM seen)");
    format!(
        "SELECT {is_same} AS is_same_server, pg_is_in_recovery() AS is_in_recovery,
                pg_snapshot_xmin(pg_current_snapshot())::text::int8 AS oldest, pg_snapshot_xmax(pg_current_snapshot())::text::int8 AS next,
                {seen} AS seen"
    )
}

#[derive(Deserialize)]
pub(super) struct StateRow {
    pub is_same_server: bool,
    pub is_in_recovery: bool,
    pub oldest: i64,
    pub next: i64,
    /// Objects that have changed.
    pub seen: i64,
}

/// What is read as a whole or not at all.
const MARKED: [&str; 13] = [
    "pg_am",
    "pg_amop",
    "pg_amproc",
    "pg_cast",
    "pg_collation",
    "pg_event_trigger",
    "pg_extension",
    "pg_language",
    "pg_operator",
    "pg_opclass",
    "pg_opfamily",
    "pg_ts_config",
    "pg_ts_dict",
];

const OTHER_MARKS: &str = "
SELECT 'pg_namespace' AS class, count(*)::text AS state, array_agg(concat_ws(' ', oid, xmin, ctid)) FILTER (WHERE {recent}) AS recent
FROM pg_namespace WHERE nspname !~ '^pg_'
UNION ALL SELECT 'members', count(*)::text, array_agg(concat_ws(' ', objid, xmin, ctid)) FILTER (WHERE {recent})
FROM pg_depend WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
UNION ALL SELECT 'roles', md5(string_agg(concat_ws(' ', oid, rolname), ',' ORDER BY oid)), NULL FROM pg_roles
UNION ALL SELECT 'database', xmin::text, NULL FROM pg_database WHERE datname = current_database()";

/// `bound`: of a reading of everything.
pub(super) fn marks(since: Option<&Since>, bound: i64) -> String {
    let mut query = OTHER_MARKS.to_owned();
    for table in MARKED {
        query.push_str(&format!(
            "\nUNION ALL SELECT '{table}', count(*)::text, array_agg(concat_ws(' ', oid, xmin, ctid)) FILTER (WHERE {{recent}}) FROM {table}"
        ));
    }
    let bound = since.map_or_else(|| transaction(bound), |since| since.bound.clone());
    query.replace("{recent}", &recent(&bound))
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct MarkRow {
    pub class: String,
    pub state: String,
    pub recent: Option<Vec<String>>,
}

/// What depends on these, and on that, and so on: its definition may name them. `widened`: relations that have new columns and
/// nothing else; a foreign key does not name them.
pub(super) fn dependents(renamed: &[Unit], widened: &[Unit]) -> String {
    let rows = |units: &[Unit], is_widened: bool| {
        let row = move |unit: &Unit| {
            let class = match unit.0 {
                UnitKind::Relation => "pg_class",
                UnitKind::Function => "pg_proc",
                UnitKind::Type => "pg_type",
            };
            format!("('{class}'::regclass::oid, {}::oid, {is_widened})", unit.1)
        };
        units.iter().map(row).collect::<Vec<_>>()
    };
    let rows = [rows(renamed, false), rows(widened, true)].concat().join(", ");
    DEPENDENTS.replace("{rows}", &rows)
}

const DEPENDENTS: &str = "
WITH RECURSIVE dependent (class, oid, is_widened) AS (
    SELECT * FROM (VALUES {rows}) v
    UNION
    SELECT d.classid, d.objid, false FROM dependent x JOIN pg_depend d ON d.refclassid = x.class AND d.refobjid = x.oid
    WHERE NOT (x.is_widened AND d.classid = 'pg_constraint'::regclass
               AND EXISTS (SELECT FROM pg_constraint con WHERE con.oid = d.objid AND con.contype = 'f' AND con.conrelid <> x.oid))
), named (class, oid) AS MATERIALIZED (SELECT DISTINCT class, oid FROM dependent),
unit (kind, oid) AS (
    SELECT CASE WHEN c.relkind = 'c' THEN 't' ELSE 'r' END, CASE WHEN c.relkind = 'c' THEN c.reltype ELSE coalesce(i.indrelid, c.oid) END
    FROM named d JOIN pg_class c ON c.oid = d.oid LEFT JOIN pg_index i ON i.indexrelid = c.oid WHERE d.class = 'pg_class'::regclass
    UNION SELECT 'r', o.adrelid FROM named d JOIN pg_attrdef o ON o.oid = d.oid WHERE d.class = 'pg_attrdef'::regclass
    UNION SELECT CASE WHEN o.contypid <> 0 THEN 't' ELSE 'r' END, CASE WHEN o.contypid <> 0 THEN o.contypid ELSE o.conrelid END
    FROM named d JOIN pg_constraint o ON o.oid = d.oid WHERE d.class = 'pg_constraint'::regclass
    UNION SELECT 'r', o.tgrelid FROM named d JOIN pg_trigger o ON o.oid = d.oid WHERE d.class = 'pg_trigger'::regclass AND NOT o.tgisinternal
    UNION SELECT 'r', o.polrelid FROM named d JOIN pg_policy o ON o.oid = d.oid WHERE d.class = 'pg_policy'::regclass
    UNION SELECT 'r', o.ev_class FROM named d JOIN pg_rewrite o ON o.oid = d.oid WHERE d.class = 'pg_rewrite'::regclass
    UNION SELECT 'f', d.oid FROM named d WHERE d.class = 'pg_proc'::regclass
    UNION SELECT 't', t.oid FROM named d JOIN pg_type t ON t.oid = d.oid
    LEFT JOIN pg_type el ON el.oid = t.typelem AND t.typcategory = 'A'
    LEFT JOIN pg_class c ON c.oid = coalesce(nullif(t.typrelid, 0), el.typrelid) AND c.relkind <> 'c'
    WHERE d.class = 'pg_type'::regclass AND c.oid IS NULL
    UNION SELECT '-', 0 FROM named d
    WHERE d.class NOT IN ('pg_class'::regclass, 'pg_attrdef'::regclass, 'pg_constraint'::regclass, 'pg_trigger'::regclass, 'pg_policy'::regclass,
                          'pg_rewrite'::regclass, 'pg_proc'::regclass, 'pg_type'::regclass, 'pg_statistic_ext'::regclass)
)
SELECT kind || ' ' || oid FROM unit LIMIT 257";

/// A row of [`dependents`]; `None`: it is no unit, such as a cast.
pub(super) fn dependent(row: &[u8]) -> Result<Option<Unit>, CatalogError> {
    let text = String::from_utf8_lossy(row);
    let unexpected = || CatalogError::Unexpected { what: "dependent", value: text.to_string() };
    let (kind, oid) = text.split_once(' ').ok_or_else(unexpected)?;
    let kind = match kind {
        "-" => return Ok(None),
        "r" => UnitKind::Relation,
        "f" => UnitKind::Function,
        "t" => UnitKind::Type,
        _ => return Err(unexpected()),
    };
    Ok(Some((kind, oid.parse().map_err(|_| unexpected())?)))
}
