//! `declare_function` and `unique_id`.

use std::ops::Range;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::arguments::Arguments;
use super::shards::read_committed;
use super::{Caller, Control, names};
use crate::catalog::{Catalog, Closure, Function, Relation, RelationKind, SchemaEffect, shown_name};
use crate::error::{PgError, SqlState};
use crate::shardmap::{DeclaredFunction, MapSnapshot, ShardMap, TableName};
use crate::sql::body::SqlBodyReader;

pub(super) async fn declare(control: &Control, caller: &Caller, arguments: &Arguments) -> Result<(), PgError> {
    let snapshot = control.fresh_snapshot().await?;
    let home = snapshot.home().ok_or_else(no_shard)?;
    let catalog = read_committed(control, home).await?;
    let (schema, name) = names::find_function(&catalog, caller, arguments.text("function_name")?)?;
    let tables = |list: &[String]| -> Result<Vec<(String, String)>, PgError> {
        list.iter()
            .map(|table| {
                names::find_relation(&catalog, caller, table).map(|relation| (relation.schema.clone(), relation.name.clone()))
            })
            .collect()
    };
    check_changes_no_schema(&catalog, &schema, &name)?;
    let key_argument = match arguments.optional_integer("key_argument")? {
        None => None,
        Some(number) => Some(check_key_argument(&catalog, &schema, &name, number)?),
    };
    let (reads, writes) = (tables(arguments.texts("reads")?)?, tables(arguments.texts("writes")?)?);
    check_nothing_at_home(&catalog, &snapshot, (&schema, &name), &[reads.as_slice(), writes.as_slice()].concat())?;
    let declared =
        DeclaredFunction { reads, writes, declared_as: Some(catalog.fingerprints(&schema, &name)), schema, name, key_argument };
    control.map.store().declare_function(&caller.user, &declared).await?;
    control.reached().await
}

/// What it touches may be declared, but not that its changes of the schema are made on every shard.
fn check_changes_no_schema(catalog: &Catalog, schema: &str, name: &str) -> Result<(), PgError> {
    let overloads = catalog.function_names.get(name).into_iter().flatten().filter_map(|oid| catalog.functions.get(oid));
    let changes = |function: &&Function| {
        let effect = catalog.function_changes_schema(function.oid, &SqlBodyReader).map(|(effect, _)| effect);
        function.schema == schema && effect == Some(SchemaEffect::Changes)
    };
    match overloads.filter(changes).count() {
        0 => Ok(()),
        _ => Err(PgError::unsupported(
            format!("function \"{name}\" creates, alters or drops objects"),
            "A schema change has to be made on every shard, whatever tables the function is declared to touch.",
            "Send its schema changes as statements of their own.",
        )),
    }
}

/// What its body shows to be on the home shard alone cannot be declared away: on another shard it would be missing, or lost.
fn check_nothing_at_home(
    catalog: &Catalog,
    map: &MapSnapshot,
    (schema, name): (&str, &str),
    listed: &[TableName],
) -> Result<(), PgError> {
    let overloads = catalog.function_names.get(name).into_iter().flatten().filter_map(|oid| catalog.functions.get(oid));
    for function in overloads.filter(|function| function.schema == schema) {
        let Closure::Known(references) = &*catalog.closure_of_function(function.oid, &SqlBodyReader) else { continue };
        let touched = references.reads.iter().map(|oid| (oid, "reads")).chain(references.writes.iter().map(|oid| (oid, "writes")));
        for (oid, verb) in touched {
            let Some(relation) = catalog.relations.get(oid) else { continue };
            let is_listed = listed.iter().any(|(schema, name)| relation.schema == *schema && relation.name == *name);
            if is_listed || is_distributed(catalog, map, relation) {
                continue;
            }
            let (what, hint) = match relation.kind {
                RelationKind::Sequence => (
                    format!("It draws from sequence \"{}\", of which each shard has one of its own.", relation.name),
                    "Draw the number in the statement, or by the column's default.".to_owned(),
                ),
                _ => (
                    format!("It {verb} the home table \"{}\", whose rows are on the home shard alone.", relation.name),
                    format!(
                        "Distribute that table first, by the same key, or make it a reference table if it is only read. If the body means \
                         another table, give the table's schema there, or the function a search path of its own: \
                         ALTER FUNCTION {} SET search_path = ...",
                        shown_name(schema, name)
                    ),
                ),
            };
            return Err(PgError::unsupported(format!("function \"{name}\" cannot be declared"), what, hint));
        }
    }
    Ok(())
}

/// Itself, or with what it is a part of.
fn is_distributed(catalog: &Catalog, map: &MapSnapshot, relation: &Relation) -> bool {
    let mut parents = relation.parents.iter().filter_map(|parent| catalog.relations.get(parent));
    map.table(&relation.schema, &relation.name).is_some() || parents.any(|parent| is_distributed(catalog, map, parent))
}

fn check_key_argument(catalog: &crate::catalog::Catalog, schema: &str, name: &str, number: i32) -> Result<usize, PgError> {
    let overloads = catalog.function_names.get(name).into_iter().flatten().filter_map(|oid| catalog.functions.get(oid));
    let most = overloads.filter(|function| function.schema == schema).map(|function| function.argument_count).max().unwrap_or(0);
    usize::try_from(number).ok().filter(|number| (1..=most).contains(number)).ok_or_else(|| {
        PgError::new(SqlState::INVALID_PARAMETER_VALUE, format!("function \"{name}\" has no argument number {number}"))
            .with_detail(format!("It has {most} arguments; the first one is number 1."))
    })
}

/// Before the first shard there is nothing to look at.
pub(super) fn no_shard() -> PgError {
    PgError::new(SqlState::CANNOT_CONNECT_NOW, "this cluster has no shard yet")
        .with_hint("Add the first one: SELECT shardgate.add_shard('name', 'postgres://user:password@host:port/database').")
}

/// Ids of which a block is drawn from the map at a time.
#[derive(Default)]
pub(super) struct UniqueIds(Mutex<Block>);

#[derive(Default)]
struct Block {
    left: Range<i64>,
    /// When the map could not be asked last, and what was said of it.
    failed: Option<(Instant, PgError)>,
}

/// Few, since an id shows when its block was drawn: time-ordered to within what one block lasts.
const BLOCK: i32 = 32;

impl UniqueIds {
    /// Those who waited while the map could not be asked share that failure. Cancel safe: at worst a block is lost.
    pub(super) async fn next(&self, map: &ShardMap) -> Result<i64, PgError> {
        self.next_of(|| map.store().reserve_unique_ids(BLOCK)).await
    }

    async fn next_of<E, R>(&self, reserve: impl FnOnce() -> R) -> Result<i64, PgError>
    where
        PgError: From<E>,
        R: Future<Output = Result<Range<i64>, E>>,
    {
        let began_at = Instant::now();
        let mut block = self.0.lock().await;
        if let Some(id) = block.left.next() {
            return Ok(id);
        }
        if let Some((failed_at, error)) = &block.failed
            && *failed_at >= began_at
        {
            return Err(error.clone());
        }
        match reserve().await.map_err(PgError::from) {
            Ok(left) => *block = Block { left, failed: None },
            Err(error) => {
                block.failed = Some((Instant::now(), error.clone()));
                return Err(error);
            }
        }
        block.left.next().ok_or_else(|| PgError::internal("the map gave an empty block of ids"))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures::future::join_all;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn those_who_wait_for_a_map_that_is_away_share_its_failure() {
        let (ids, attempts) = (UniqueIds::default(), Cell::new(0));
        let away = || async {
            attempts.set(attempts.get() + 1);
            yield_now().await;
            Err::<Range<i64>, _>(PgError::new(SqlState::CANNOT_CONNECT_NOW, "away"))
        };
        let told = join_all((0..50).map(|_| ids.next_of(away))).await;
        assert!(told.iter().all(|told| told.as_ref().is_err_and(|error| error.message == "away")), "{told:?}");
        assert_eq!(attempts.get(), 1);
        let back = || async { Ok::<_, PgError>(5..7) };
        assert_eq!(ids.next_of(back).await.ok(), Some(5));
        assert_eq!(ids.next_of(away).await.ok(), Some(6), "of the block that is there");
    }
}
