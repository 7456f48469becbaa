//! What a reading leaves, so that the next one reads only what has changed.
//!
//! ```text
//!  whole ─► Base ─► what has changed since? ─► units are read, the rest is the base's ─► catalogue, next Base
//!    ▲               │                          ▲          │
//!    └── in doubt ───┘                          └─ a name has changed, or something has gone: more units
//! ```
//! In doubt: another server or database, a fail-over or a crash in between (the lock of the reader's session has gone), a change of
//! what is no unit, too many changes, or too long ago. Each change counts for two readings: PostgreSQL prints by its caches, which may
//! follow a snapshot by a moment, so what was printed in that moment is printed once more.
//!
//! Only what is committed becomes a base: a transaction that reads its own changes compares with the base of others, and may take its
//! changes back.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::changes::{
    self, Class, CountRow, MarkRow, Object, ObjectRow, SEEN_MAX, Since, StateRow, TRANSACTIONS_MAX, UNITS_MAX, Unit, UnitKind,
    UnitRow,
};
use super::functions::FunctionNotes;
use super::printed::{Printed, Wanted};
use super::rows::{CatalogSource, Rows, run};
use super::{CatalogError, Snapshot, expressions, functions, relations};
use crate::catalog::{Catalog, Held, Oid, Relation, Type};

#[derive(Clone, Debug)]
pub(super) struct Base {
    /// Of the advisory lock that the reader's session holds.
    token: i64,
    catalog: Catalog,
    notes: FunctionNotes,
    /// Every object that is counted, and what it belongs to.
    objects: HashMap<Object, Unit>,
    marks: Vec<MarkRow>,
    /// Of the snapshot before, and of the last one: the oldest transaction that was running.
    bound: i64,
    oldest: i64,
    /// Their definitions could not be printed.
    unfinished: BTreeSet<Unit>,
}

/// What one reading has found so far, over its rounds.
#[derive(Default)]
pub(super) struct Search {
    /// To be read whether their rows have changed or not.
    also: BTreeSet<Unit>,
    gone: HashSet<Object>,
    rounds: usize,
}

/// What has come of a round.
pub(super) enum Step {
    Snapshot(Snapshot),
    /// More has to be read.
    Again,
    /// All has to be read.
    InDoubt,
}

/// What a connection has: a lock, and the statement that reads what has changed.
pub(super) async fn prepare<S: CatalogSource>(source: &mut S) -> Result<i64, CatalogError> {
    // Its halves are oids in pg_locks.
    let token = rand::random::<i64>() & i64::MAX;
    let since = Since::prepared(token);
    run(source, "schema", "", &since.prepare(&Rows::changes_query(&since))).await?;
    source.run(format!("SELECT pg_catalog.pg_advisory_lock_shared({token})")).await.map_err(|error| error.of("schema"))?;
    Ok(token)
}

/// Before a reading of everything: the oldest transaction that is running.
pub(super) async fn oldest<S: CatalogSource>(source: &mut S) -> Result<i64, CatalogError> {
    let text = "SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())".to_owned();
    let rows = source.run(text).await.map_err(|error| error.of("schema"))?;
    let oldest = rows.last().and_then(|row| std::str::from_utf8(row).ok()?.parse().ok());
    oldest.ok_or_else(|| CatalogError::Unexpected { what: "snapshot", value: format!("{rows:?}") })
}

impl Base {
    /// Of rows of everything.
    pub fn of_whole(
        rows: &mut Rows,
        catalog: &Catalog,
        notes: FunctionNotes,
        missing: &[Wanted],
        (token, bound): (i64, i64),
    ) -> Result<Self, CatalogError> {
        let mut objects = HashMap::new();
        for row in rows.take::<ObjectRow>("objects")? {
            for found in row.objects() {
                let (object, unit) = found?;
                objects.insert(object, unit);
            }
        }
        let state = rows.one::<StateRow>("state")?;
        Ok(Self {
            token,
            catalog: catalog.clone(),
            notes,
            objects,
            marks: rows.take("marks")?,
            bound,
            oldest: state.oldest,
            unfinished: units_of(missing)?,
        })
    }

    /// One round: all by one statement.
    pub async fn read_changes<S: CatalogSource>(
        self: &Arc<Self>,
        source: &mut S,
        printed: &mut Printed,
        search: &mut Search,
        leaves_out: bool,
    ) -> Result<Step, CatalogError> {
        search.rounds += 1;
        search.also.extend(&self.unfinished);
        if search.also.len() > UNITS_MAX || search.rounds > ROUNDS_MAX {
            return Ok(Step::InDoubt);
        }
        let has_conversions = !self.catalog.conversions.is_empty() || !self.catalog.type_functions.is_empty();
        let since = Since::new(self.bound, self.token, has_conversions, &search.also);
        let mut rows = Rows::read_changes(source, &since).await?;
        let state = rows.one::<StateRow>("state")?;
        let is_near =
            state.next.saturating_sub(self.bound) < TRANSACTIONS_MAX && state.oldest >= self.bound && state.seen <= SEEN_MAX;
        if !state.is_same_server || state.is_in_recovery || !is_near || self.has_other_marks(rows.take("marks")?) {
            return Ok(Step::InDoubt);
        }
        let mut units: BTreeSet<Unit> = search.also.clone();
        for UnitRow { kind, oid } in rows.take("units")? {
            units.insert((kind, super::oid(oid)?));
        }
        if units.len() > UNITS_MAX {
            return Ok(Step::InDoubt);
        }
        let objects = self.objects_now(&mut rows, search)?;
        if !self.find_gone(source, &objects, rows.take("counts")?, search).await? {
            return Ok(Step::Again);
        }
        let missing = printed.missing(rows.take("wanted")?, Some(&units))?;
        if !missing.is_empty() && !leaves_out {
            return Ok(Step::Snapshot(Snapshot::Lacks(missing)));
        }
        let (catalog, notes) = self.with_units(&mut rows, printed, &units)?;
        match self.find_dependents(source, (&catalog, &objects), &units, search).await? {
            Dependents::Read => {}
            Dependents::More => return Ok(Step::Again),
            Dependents::NoUnits => return Ok(Step::InDoubt),
        }
        let base = S::SEES_COMMITTED.then(|| {
            let unfinished = units_of(&missing)?;
            let (marks, catalog) = (self.marks.clone(), catalog.clone());
            Ok(Self { token: self.token, catalog, notes, objects, marks, bound: self.oldest, oldest: state.oldest, unfinished })
        });
        Ok(Step::Snapshot(Snapshot::Read { catalog: Box::new(catalog), held: missing, base: base.transpose()?.map(Box::new) }))
    }

    /// Something that may be in any definition has changed.
    fn has_other_marks(&self, now: Vec<MarkRow>) -> bool {
        now.len() != self.marks.len()
            || now.into_iter().any(|mark| {
                let Some(known) = self.marks.iter().find(|known| known.class == mark.class) else { return true };
                let is_known = |version: &String| known.recent.as_ref().is_some_and(|seen| seen.contains(version));
                known.state != mark.state || !mark.recent.iter().flatten().all(is_known)
            })
    }

    fn objects_now(&self, rows: &mut Rows, search: &Search) -> Result<HashMap<Object, Unit>, CatalogError> {
        let mut objects = self.objects.clone();
        for row in rows.take::<ObjectRow>("objects")? {
            for found in row.objects() {
                let (object, unit) = found?;
                objects.insert(object, unit);
            }
        }
        objects.retain(|object, _| !search.gone.contains(object));
        Ok(objects)
    }

    /// `false`: some objects have gone since, and what they belonged to is read in the next round.
    async fn find_gone<S: CatalogSource>(
        &self,
        source: &mut S,
        objects: &HashMap<Object, Unit>,
        counts: Vec<CountRow>,
        search: &mut Search,
    ) -> Result<bool, CatalogError> {
        let mut known: HashMap<Class, usize> = HashMap::new();
        for (class, _) in objects.keys() {
            *known.entry(*class).or_default() += 1;
        }
        let mut is_complete = true;
        for CountRow { class, n } in counts {
            if known.get(&class).copied().unwrap_or_default() == n {
                continue;
            }
            is_complete = false;
            let lists = run(source, "schema", "SET LOCAL lock_timeout = 0", changes::left(class)).await?;
            let list = lists.first().map(|list| String::from_utf8_lossy(list).into_owned()).unwrap_or_default();
            let left: HashSet<i64> = list.split(' ').filter_map(|id| id.parse().ok()).collect();
            // One that has come back meanwhile, since a transaction has taken its DROP back, is there.
            search.gone.retain(|object| object.0 != class);
            for (object, unit) in self.objects.iter().chain(objects).filter(|(object, _)| object.0 == class) {
                if !left.contains(&object.1) {
                    search.gone.insert(*object);
                    search.also.extend(units_with(*object, *unit));
                }
            }
        }
        Ok(is_complete)
    }

    /// The base's catalogue with these units as the rows show them.
    fn with_units(
        &self,
        rows: &mut Rows,
        printed: &Printed,
        units: &BTreeSet<Unit>,
    ) -> Result<(Catalog, FunctionNotes), CatalogError> {
        let (mut catalog, mut notes) = (self.catalog.clone(), self.notes.clone());
        catalog.held = Held::Nothing;
        for unit in units {
            remove(&mut catalog, &mut notes, *unit);
        }
        let converts = units.iter().any(|unit| unit.0 != UnitKind::Relation);
        if converts || !catalog.conversions.is_empty() || !catalog.type_functions.is_empty() {
            catalog.conversions.clear();
            catalog.type_functions.clear();
        }
        relations::add(rows, &mut catalog, printed, |oid| units.contains(&(UnitKind::Relation, oid)))?;
        expressions::add(rows, &mut catalog, printed)?;
        functions::add(rows, &mut catalog, printed, &mut notes)?;
        catalog.digest = catalog.definitions.digest();
        Ok((catalog, notes))
    }

    /// Whose definitions name what has another name now? What has not been read is read in the next round.
    async fn find_dependents<S: CatalogSource>(
        &self,
        source: &mut S,
        (now, objects): (&Catalog, &HashMap<Object, Unit>),
        units: &BTreeSet<Unit>,
        search: &mut Search,
    ) -> Result<Dependents, CatalogError> {
        let (mut renamed, mut widened) = (Vec::new(), Vec::new());
        for unit in units {
            match self.difference((now, objects), *unit) {
                Difference::Inside => {}
                Difference::Widened => widened.push(*unit),
                Difference::Renamed => renamed.push(*unit),
            }
        }
        if renamed.is_empty() && widened.is_empty() {
            return Ok(Dependents::Read);
        }
        let rows = run(source, "schema", "SET LOCAL lock_timeout = 0", &changes::dependents(&renamed, &widened)).await?;
        let found: Option<BTreeSet<Unit>> = rows.iter().map(|row| changes::dependent(row)).collect::<Result<_, _>>()?;
        let Some(found) = found else { return Ok(Dependents::NoUnits) };
        let is_known = |unit: &Unit| units.contains(unit) || !is_in(now, *unit);
        let is_more = !found.iter().all(is_known);
        search.also.extend(found);
        Ok(if is_more { Dependents::More } else { Dependents::Read })
    }

    fn difference(&self, (now, objects): (&Catalog, &HashMap<Object, Unit>), unit: Unit) -> Difference {
        let (kind, oid) = unit;
        // It has come into the catalogue, or has left it, and was there before and is there now: from another schema, or finished.
        let is_in_both = || [&self.objects, objects].iter().all(|objects| objects.values().any(|known| *known == unit));
        let is_renamed = match kind {
            UnitKind::Relation => match (self.catalog.relations.get(&oid), now.relations.get(&oid)) {
                (Some(before), Some(now)) => return difference_of_relations(before, now),
                // What refers to it has changed itself; or it is new to everybody.
                (None, None) => false,
                _ => is_in_both(),
            },
            UnitKind::Function => match (self.catalog.functions.get(&oid), now.functions.get(&oid)) {
                (Some(before), Some(now)) => (&before.schema, &before.name) != (&now.schema, &now.name),
                (None, None) => false,
                _ => is_in_both(),
            },
            UnitKind::Type => match (self.catalog.types.get(&oid), now.types.get(&oid)) {
                // Not all that a type is shows in what is kept of it: a domain's default names a function by more than its text.
                (Some(_), Some(_)) => true,
                (None, None) => false,
                _ => is_in_both(),
            },
        };
        if is_renamed { Difference::Renamed } else { Difference::Inside }
    }
}

/// Rounds in which more is found; then all is read.
const ROUNDS_MAX: usize = 12;

/// Of what has another name now.
enum Dependents {
    Read,
    More,
    /// Casts, operators and the like.
    NoUnits,
}

/// How an object differs for others, whose definitions may name it.
enum Difference {
    Inside,
    /// It has more columns.
    Widened,
    Renamed,
}

fn difference_of_relations(before: &Relation, now: &Relation) -> Difference {
    let is_kept = now.columns.iter().zip(&before.columns).all(|(now, before)| {
        (now.attnum, &now.name, now.type_oid, &now.type_name) == (before.attnum, &before.name, before.type_oid, &before.type_name)
    });
    if (&before.schema, &before.name, before.kind) != (&now.schema, &now.name, now.kind)
        || !is_kept
        || now.columns.len() < before.columns.len()
    {
        return Difference::Renamed;
    }
    if now.columns.len() > before.columns.len() { Difference::Widened } else { Difference::Inside }
}

/// Not what is left out of every reading, such as parts of temporary tables.
fn is_in(catalog: &Catalog, (kind, oid): Unit) -> bool {
    match kind {
        UnitKind::Relation => catalog.relations.contains_key(&oid),
        UnitKind::Function => catalog.functions.contains_key(&oid),
        UnitKind::Type => catalog.types.contains_key(&oid),
    }
}

fn whole_type(of: &Type) -> String {
    format!("type {}.{}", of.schema, of.name)
}

fn remove(catalog: &mut Catalog, notes: &mut FunctionNotes, (kind, oid): Unit) {
    match kind {
        UnitKind::Relation => remove_relation(catalog, oid),
        UnitKind::Function => {
            if let Some(function) = catalog.functions.remove(&oid)
                && let Some(overloads) = catalog.function_names.get_mut(&function.name)
            {
                overloads.retain(|other| *other != oid);
                if overloads.is_empty() {
                    catalog.function_names.remove(&function.name);
                }
            }
            if let Some(object) = notes.signatures.remove(&oid) {
                catalog.definitions.remove(&object.as_parent());
            }
            notes.calls.remove(&oid);
        }
        UnitKind::Type => {
            if let Some(known) = catalog.types.remove(&oid) {
                catalog.definitions.remove(&whole_type(&known));
            }
        }
    }
}

fn remove_relation(catalog: &mut Catalog, oid: Oid) {
    let Some(relation) = catalog.relations.remove(&oid) else { return };
    catalog.definitions.remove(&relation.whole());
    catalog.relation_names.remove(&(relation.schema, relation.name));
    catalog.relation_dependencies.remove(&oid);
}

fn units_of(wanted: &[Wanted]) -> Result<BTreeSet<Unit>, CatalogError> {
    wanted.iter().map(Wanted::unit).collect()
}

/// What the object is read with.
fn units_with(object: Object, unit: Unit) -> Vec<Unit> {
    let (class, id) = object;
    if class != Class::Inheritance {
        return vec![unit];
    }
    let parent = Oid::try_from(id & 0xffff_ffff).unwrap_or_default();
    vec![unit, (UnitKind::Relation, parent)]
}
