//! Definitions that PostgreSQL prints under a lock: printed once, and kept.
//!
//! Who prints a view, an expression over columns or a body of SQL opens the relations that are named in it, and waits for whoever
//! holds one of them alone: an open transaction with ALTER TABLE, for as long as that takes. Reading the schema must not. So each
//! text is kept with a key that says all that it hangs on: the tree that is stored, and the names of what that refers to. What an
//! open transaction has changed is nowhere yet for others; as long as the snapshot has the same key, the text is the same.
//!
//! ```text
//! snapshot: keys ─► all known ─► the rest of the schema is read, in this snapshot
//!              └──► some new  ─► these are printed ─► next snapshot: keys; were they printed by what it shows? ─► kept
//! ```
//! PostgreSQL prints by what is committed at that moment, not by a snapshot. Hence the next one: a text counts only when no row
//! that it hangs on has changed around it, as these rows' xmin tell, so that one that changed and changed back is seen as well.
//! What is new, or has changed, while somebody holds its table cannot be printed: it is waited for, or left out.

use std::collections::{BTreeSet, HashMap};

use serde::Deserialize;
use tokio::time::Instant;

use super::CatalogError;
use super::changes::{Unit, UnitKind};
use super::rows::{CatalogSource, run};
use crate::catalog::{Catalog, Oid};

/// Texts of one server's schema, from one reading to the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Printed {
    kept: HashMap<Id, Kept>,
    /// Since the last snapshot, and by which state of it.
    fresh: HashMap<Id, (Wanted, Option<String>)>,
}

#[derive(Clone, Debug)]
struct Kept {
    /// As in [`Wanted`].
    relation: i64,
    key: String,
    text: Option<String>,
}

type Id = (Kind, i64);

/// What is printed, and of which oid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// Of the relation.
    View,
    Rule,
    PolicyUsing,
    PolicyCheck,
    /// A generated column's, by the oid of pg_attrdef. Other defaults name no column, and need no lock.
    Generated,
    Check,
    Exclusion,
    /// With expressions or a predicate.
    Index,
    /// With a condition.
    Trigger,
    /// BEGIN ATOMIC.
    Body,
    Function,
    /// With expressions.
    PartitionKey,
}

const KINDS: [(&str, Kind); 12] = [
    ("view", Kind::View),
    ("rule", Kind::Rule),
    ("policy using", Kind::PolicyUsing),
    ("policy check", Kind::PolicyCheck),
    ("generated", Kind::Generated),
    ("check", Kind::Check),
    ("exclusion", Kind::Exclusion),
    ("index", Kind::Index),
    ("trigger", Kind::Trigger),
    ("body", Kind::Body),
    ("function", Kind::Function),
    ("partition key", Kind::PartitionKey),
];

/// A text that the snapshot needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    kind: &'static str,
    id: Id,
    /// Whose it is; 0: the function's that `id` names.
    relation: i64,
    /// Of all that the text hangs on.
    key: String,
    /// Of the rows that say so.
    stamp: String,
}

impl Wanted {
    pub(super) fn unit(&self) -> Result<Unit, CatalogError> {
        unit(self.id, self.relation)
    }

    /// The relation or function whose statements are planned by this text; `None`: it is there to be compared.
    pub(super) fn planned_by<'c>(&self, catalog: &'c Catalog) -> Option<&'c str> {
        let relation = || catalog.relations.get(&Oid::try_from(self.relation).ok()?).map(|relation| relation.name.as_str());
        let function = || catalog.functions.get(&Oid::try_from(self.id.1).ok()?).map(|function| function.name.as_str());
        match self.id.0 {
            Kind::View | Kind::PolicyUsing | Kind::PolicyCheck | Kind::Generated => relation(),
            Kind::Body => function(),
            Kind::Rule | Kind::Check | Kind::Exclusion | Kind::Index | Kind::Trigger | Kind::Function | Kind::PartitionKey => None,
        }
    }

    /// The definition of a relation or of its part that it belongs to: its whole and its kind. Those of functions are told where they
    /// are read.
    pub(super) fn definition(&self, catalog: &Catalog) -> Option<(String, &'static str)> {
        let relation = catalog.relations.get(&Oid::try_from(self.relation).ok()?)?;
        let kind = match self.id.0 {
            Kind::View | Kind::PartitionKey => relation.kind.word(),
            Kind::Rule => "rule",
            Kind::PolicyUsing | Kind::PolicyCheck => "policy",
            Kind::Generated => "column",
            Kind::Check | Kind::Exclusion => "constraint",
            Kind::Index => "index",
            Kind::Trigger => "trigger",
            Kind::Body | Kind::Function => return None,
        };
        Some((relation.whole(), kind))
    }
}

/// What the text is read with.
fn unit((_, oid): Id, relation: i64) -> Result<Unit, CatalogError> {
    Ok(match relation {
        0 => (UnitKind::Function, super::oid(oid)?),
        relation => (UnitKind::Relation, super::oid(relation)?),
    })
}

impl Printed {
    /// By oid; `None`: there is no such expression, or it is held.
    pub(super) fn text(&self, kind: Kind, oid: i64) -> Option<String> {
        self.kept.get(&(kind, oid)).and_then(|kept| kept.text.clone())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.fresh.is_empty()
    }

    /// `rows`: of a snapshot; of these units alone, if any are named. Returns what has to be printed first; nothing: every text of
    /// the snapshot is known.
    pub(super) fn missing(&mut self, rows: Vec<WantedRow>, of: Option<&BTreeSet<Unit>>) -> Result<Vec<Wanted>, CatalogError> {
        let wanted: Vec<Wanted> = rows.into_iter().map(wanted).collect::<Result<_, _>>()?;
        let is_asked = |id: Id, kept: &Kept| of.is_none_or(|units| unit(id, kept.relation).is_ok_and(|unit| units.contains(&unit)));
        let mut known: HashMap<Id, Kept> = self.kept.extract_if(|id, kept| is_asked(*id, kept)).collect();
        let mut fresh = std::mem::take(&mut self.fresh);
        let mut missing = Vec::new();
        for wanted in wanted {
            let kept = known.remove(&wanted.id).filter(|kept| kept.key == wanted.key);
            let printed = fresh.remove(&wanted.id).filter(|(by, _)| *by == wanted);
            match kept.or_else(|| printed.map(|(by, text)| Kept { relation: by.relation, key: by.key, text })) {
                Some(kept) => {
                    self.kept.insert(wanted.id, kept);
                }
                None => missing.push(wanted),
            }
        }
        Ok(missing)
    }

    /// Outside of the snapshot. Returns why some could not be printed: somebody holds a table, or it has just been dropped.
    pub(super) async fn print<S: CatalogSource>(
        &mut self,
        source: &mut S,
        missing: &[Wanted],
        deadline: Instant,
    ) -> Result<Option<CatalogError>, CatalogError> {
        let first = match self.print_at_once(source, missing, LOCK_TIMEOUT).await {
            Ok(()) => return Ok(None),
            Err(error) if error.is_the_servers() => error,
            Err(error) => return Err(error),
        };
        if missing.len() == 1 {
            return Ok(Some(first));
        }
        let mut refused: Option<CatalogError> = None;
        for one in missing {
            if Instant::now() >= deadline {
                return Ok(refused.or(Some(first)));
            }
            match self.print_at_once(source, std::slice::from_ref(one), LOCK_TIMEOUT_OF_ONE).await {
                Ok(()) => {}
                Err(error) if !error.is_the_servers() => return Err(error),
                Err(error) if refused.as_ref().is_some_and(CatalogError::is_locked) => {
                    tracing::debug!(%error, kind = one.kind, "a definition is not printed");
                }
                Err(error) => refused = Some(error),
            }
        }
        Ok(refused)
    }

    /// Locks are held while one waits for others; who waits for what this holds, and holds what this waits for, is no deadlock of
    /// his: this gives up first.
    async fn print_at_once<S: CatalogSource>(
        &mut self,
        source: &mut S,
        missing: &[Wanted],
        lock_timeout: &'static str,
    ) -> Result<(), CatalogError> {
        let places: Vec<String> = missing
            .iter()
            .enumerate()
            .map(|(place, wanted)| format!("('{}', {}::int8, {place})", wanted.kind, wanted.id.1))
            .collect();
        let query = PRINT.replace("{places}", &places.join(", "));
        let texts = run(source, "definitions", lock_timeout, &query).await?;
        for (wanted, text) in missing.iter().zip(texts) {
            let text = serde_json::from_slice(&text)
                .map_err(|_| CatalogError::Unexpected { what: wanted.kind, value: String::from_utf8_lossy(&text).into_owned() })?;
            self.fresh.insert(wanted.id, (wanted.clone(), text));
        }
        Ok(())
    }
}

/// For a lock, where everything is printed; the table may be held for a moment only.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '500ms'";
/// When it is known that something is held.
const LOCK_TIMEOUT_OF_ONE: &str = "SET LOCAL lock_timeout = '20ms'";

#[derive(Deserialize)]
pub(super) struct WantedRow {
    kind: String,
    oid: i64,
    relation: i64,
    key: String,
    stamp: String,
}

fn wanted(row: WantedRow) -> Result<Wanted, CatalogError> {
    let known = KINDS.iter().find(|(word, _)| *word == row.kind);
    let &(kind, of) = known.ok_or_else(|| CatalogError::Unexpected { what: "kind of definition", value: row.kind })?;
    Ok(Wanted { kind, id: (of, row.oid), relation: row.relation, key: row.key, stamp: row.stamp })
}

const PRINT: &str = "
SELECT coalesce(to_json(CASE o.kind
    WHEN 'view' THEN pg_get_viewdef(o.oid::oid)
    WHEN 'rule' THEN pg_get_ruledef(o.oid::oid)
    WHEN 'policy using' THEN (SELECT pg_get_expr(p.polqual, p.polrelid) FROM pg_policy p WHERE p.oid = o.oid::oid)
    WHEN 'policy check' THEN (SELECT pg_get_expr(p.polwithcheck, p.polrelid) FROM pg_policy p WHERE p.oid = o.oid::oid)
    WHEN 'generated' THEN (SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d WHERE d.oid = o.oid::oid)
    WHEN 'check' THEN pg_get_constraintdef(o.oid::oid)
    WHEN 'exclusion' THEN pg_get_constraintdef(o.oid::oid)
    WHEN 'index' THEN pg_get_indexdef(o.oid::oid)
    WHEN 'trigger' THEN pg_get_triggerdef(o.oid::oid)
    WHEN 'body' THEN pg_get_function_sqlbody(o.oid::oid)
    WHEN 'function' THEN pg_get_functiondef(o.oid::oid)
    WHEN 'partition key' THEN pg_get_partkeydef(o.oid::oid)
    END)::text, 'null')
FROM (VALUES {places}) o(kind, oid, place) ORDER BY o.place";

// Takes no lock: all from pg_catalog's rows. `printed`: what there is, its own row, and under which object pg_depend has what it
// refers to; `edge`: what that is, of relations with all columns, since a view's text may hang on any of them. An expression of one
// table names the columns that it uses and no others, so that a new column does not count there; a trigger that a partition has of its
// parent names none. Types are followed to the enums in them, whose labels stand in constants; functions to the columns that they
// return. Names of pg_catalog do not change.
pub(super) const WANTED: &str = "
WITH RECURSIVE owner (oid) AS MATERIALIZED (
    SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND {relation c.oid} AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardgate')
), indexed (class, oid, relation, own, stamp, is_plain) AS MATERIALIZED (
    SELECT 'pg_class'::regclass::oid, i.indexrelid, i.indrelid,
           ROW(i, ic.relname, ic.relam, ic.reloptions,
               ARRAY(SELECT a.attoptions::text FROM pg_attribute a WHERE a.attrelid = i.indexrelid ORDER BY a.attnum))::text,
           concat_ws(' ', i.xmin, ic.xmin), i.indexprs IS NULL AND i.indpred IS NULL
    FROM pg_index i JOIN pg_class ic ON ic.oid = i.indexrelid JOIN owner ON owner.oid = i.indrelid
), printed (kind, oid, class, source, relation, own, stamp) AS MATERIALIZED (
    SELECT CASE r.rulename WHEN '_RETURN' THEN 'view' ELSE 'rule' END, CASE r.rulename WHEN '_RETURN' THEN r.ev_class ELSE r.oid END,
           'pg_rewrite'::regclass::oid, r.oid, r.ev_class, r::text, r.xmin::text
    FROM pg_rewrite r JOIN owner ON owner.oid = r.ev_class
    UNION ALL SELECT 'policy using', p.oid, 'pg_policy'::regclass, p.oid, p.polrelid, p::text, p.xmin::text
    FROM pg_policy p JOIN owner ON owner.oid = p.polrelid WHERE p.polqual IS NOT NULL
    UNION ALL SELECT 'policy check', p.oid, 'pg_policy'::regclass, p.oid, p.polrelid, p::text, p.xmin::text
    FROM pg_policy p JOIN owner ON owner.oid = p.polrelid WHERE p.polwithcheck IS NOT NULL
    UNION ALL SELECT 'generated', d.oid, 'pg_attrdef'::regclass, d.oid, d.adrelid, d::text, d.xmin::text
    FROM pg_attrdef d JOIN owner ON owner.oid = d.adrelid
    JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum AND a.attgenerated <> ''
    UNION ALL SELECT CASE con.contype WHEN 'c' THEN 'check' ELSE 'exclusion' END, con.oid, 'pg_constraint'::regclass, con.oid,
                     con.conrelid, con::text, con.xmin::text
    FROM pg_constraint con JOIN owner ON owner.oid = con.conrelid WHERE con.contype IN ('c', 'x')
    UNION ALL SELECT 'exclusion', con.oid, i.class, i.oid, i.relation, i.own, i.stamp
    FROM pg_constraint con JOIN indexed i ON i.oid = con.conindid WHERE con.contype = 'x'
    UNION ALL SELECT 'index', i.oid, i.class, i.oid, i.relation, i.own, i.stamp
    FROM indexed i WHERE NOT i.is_plain
    UNION ALL SELECT 'trigger', t.oid, 'pg_trigger'::regclass, t.oid, t.tgrelid, t::text, t.xmin::text
    FROM pg_trigger t JOIN owner ON owner.oid = t.tgrelid WHERE t.tgqual IS NOT NULL AND NOT t.tgisinternal
    UNION ALL SELECT k.kind, p.oid, 'pg_proc'::regclass, p.oid, 0, p::text, p.xmin::text
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace CROSS JOIN (VALUES ('body'), ('function')) k(kind)
    WHERE p.prosqlbody IS NOT NULL AND {function p.oid} AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardgate')
    UNION ALL SELECT 'partition key', p.partrelid, 'pg_class'::regclass, p.partrelid, p.partrelid, p::text, p.xmin::text
    FROM pg_partitioned_table p JOIN owner ON owner.oid = p.partrelid WHERE p.partexprs IS NOT NULL
), edge (kind, oid, class, target, part) AS MATERIALIZED (
    SELECT p.kind, p.oid, d.refclassid, d.refobjid,
           CASE WHEN d.refclassid = 'pg_class'::regclass AND d.refobjid = p.relation AND p.kind IN ('check', 'index', 'trigger')
                THEN d.refobjsubid ELSE -1 END
    FROM printed p JOIN pg_depend d ON d.classid = p.class AND d.objid = p.source
    UNION SELECT p.kind, p.oid, 'pg_class'::regclass, p.relation,
                 CASE WHEN p.kind IN ('check', 'index')
                           OR p.kind = 'trigger' AND EXISTS (SELECT FROM pg_trigger t WHERE t.oid = p.oid AND t.tgparentid = 0)
                      THEN 0 ELSE -1 END
    FROM printed p WHERE p.relation <> 0
    UNION SELECT p.kind, p.oid, p.class, p.source, 0 FROM printed p WHERE p.class = 'pg_proc'::regclass
), target AS MATERIALIZED (
    SELECT DISTINCT class, target AS oid, part FROM edge
), inner_type (type, part) AS (
    SELECT t.oid, t.oid FROM target t WHERE t.class = 'pg_type'::regclass
    UNION
    SELECT i.type, next.oid
    FROM inner_type i JOIN pg_type t ON t.oid = i.part
    CROSS JOIN LATERAL (SELECT t.typelem AS oid UNION ALL SELECT t.typbasetype
                        UNION ALL SELECT a.atttypid FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0
                        UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)) next
    WHERE next.oid <> 0
), labels AS MATERIALIZED (
    SELECT i.type, string_agg(format('%s %L', e.oid, e.enumlabel), ' ' ORDER BY e.oid) AS names,
           string_agg(e.xmin::text, ' ' ORDER BY e.oid) AS stamp
    FROM inner_type i JOIN pg_enum e ON e.enumtypid = i.part GROUP BY i.type
), named AS MATERIALIZED (
    SELECT t.class, t.oid, t.part, n.nspname, coalesce(c.oid, ty.typrelid, rt.typrelid) AS relation,
           coalesce(c.relname, p.proname, ty.typname, o.oprname, co.collname, oc.opcname, tc.cfgname, td.dictname) AS name,
           concat_ws(' ', n.xmin, c.xmin, p.xmin, ty.xmin, o.xmin, co.xmin, oc.xmin, tc.xmin, td.xmin) AS stamp
    FROM target t
    LEFT JOIN pg_class c ON t.class = 'pg_class'::regclass AND c.oid = t.oid
    LEFT JOIN pg_proc p ON t.class = 'pg_proc'::regclass AND p.oid = t.oid
    LEFT JOIN pg_type rt ON rt.oid = p.prorettype
    LEFT JOIN pg_type ty ON t.class = 'pg_type'::regclass AND ty.oid = t.oid
    LEFT JOIN pg_operator o ON t.class = 'pg_operator'::regclass AND o.oid = t.oid
    LEFT JOIN pg_collation co ON t.class = 'pg_collation'::regclass AND co.oid = t.oid
    LEFT JOIN pg_opclass oc ON t.class = 'pg_opclass'::regclass AND oc.oid = t.oid
    LEFT JOIN pg_ts_config tc ON t.class = 'pg_ts_config'::regclass AND tc.oid = t.oid
    LEFT JOIN pg_ts_dict td ON t.class = 'pg_ts_dict'::regclass AND td.oid = t.oid
    LEFT JOIN pg_namespace n
      ON n.oid = coalesce(c.relnamespace, p.pronamespace, ty.typnamespace, o.oprnamespace, co.collnamespace, oc.opcnamespace,
                          tc.cfgnamespace, td.dictnamespace, CASE WHEN t.class = 'pg_namespace'::regclass THEN t.oid END)
), members AS MATERIALIZED (
    SELECT n.class, n.oid, n.part, string_agg(format('%s %I', a.attnum, a.attname), ' ' ORDER BY a.attnum) AS names,
           string_agg(a.xmin::text, ' ' ORDER BY a.attnum) AS stamp
    FROM named n JOIN pg_attribute a ON a.attrelid = n.relation AND a.attnum > 0
         AND (n.class <> 'pg_class'::regclass OR n.part IN (-1, a.attnum))
    GROUP BY 1, 2, 3
), told AS MATERIALIZED (
    SELECT n.class, n.oid, n.part,
           format('%s %s %s.%s (%s) %s', n.class, n.oid, quote_ident(n.nspname), quote_ident(n.name), m.names, l.names) AS name,
           concat_ws(' ', n.stamp, m.stamp, l.stamp) AS stamp
    FROM named n LEFT JOIN members m ON (m.class, m.oid, m.part) = (n.class, n.oid, n.part)
    LEFT JOIN labels l ON n.class = 'pg_type'::regclass AND l.type = n.oid
), referred AS MATERIALIZED (
    SELECT e.kind, e.oid, string_agg(t.name, E'\\n' ORDER BY t.class, t.oid, t.part) AS names,
           string_agg(t.stamp, ' ' ORDER BY t.class, t.oid, t.part) AS stamp
    FROM edge e JOIN told t ON (t.class, t.oid, t.part) = (e.class, e.target, e.part) GROUP BY e.kind, e.oid
), itself AS MATERIALIZED (
    SELECT p.kind, p.oid, max(p.relation) AS relation, string_agg(p.own, E'\\n' ORDER BY p.class) AS own, string_agg(p.stamp, ' ' ORDER BY p.class) AS stamp
    FROM printed p GROUP BY p.kind, p.oid
)
SELECT i.kind, i.oid::int8 AS oid, i.relation::int8 AS relation,
       encode(sha256(convert_to(concat_ws(E'\\n', current_setting('server_version_num'), i.own, r.names), getdatabaseencoding())), 'hex')
           AS key,
       encode(sha256(convert_to(concat_ws(' ', i.stamp, r.stamp), 'UTF8')), 'hex') AS stamp
FROM itself i LEFT JOIN referred r ON (r.kind, r.oid) = (i.kind, i.oid)";
