//! Columns that number rows, of tables that become sharded or reference tables: their sequences become sequences of the whole cluster.
//!
//! ```text
//! home:    LOCK TABLE t · numbers end here · default shardgate.next_id ─┐ one transaction
//! map:                                        counter above them     ───┘ (before it commits: a counter that is too high is a gap)
//! others:  the same default, no numbers of their own; proxies give all of them blocks
//! ```
//! A crash at any point leaves the column numbered by one of the two, never by both: until the home shard has committed, the
//! proxies take the sequence for its own; afterwards its own is used up. Called again it goes on where it was.

use super::checks::Obstacle;
use super::shard_connection::ShardConnection;
use super::{Caller, Control, support};
use crate::catalog::{Column, Numbering, Relation, SequenceName, quoted_identifier, quoted_literal, quoted_name};
use crate::error::{PgError, SqlState};
use crate::shardmap::{MapSnapshot, NewSequence};

/// Columns that number rows in ways that cannot be carried over.
pub(super) fn obstacles(relation: &Relation) -> Vec<Obstacle> {
    let is_computed = |column: &&Column| column.numbering() == Some(Numbering::Computed);
    let table = quoted_name(&relation.schema, &relation.name);
    let obstacle = |column: &Column| Obstacle {
        what: format!("The default of column \"{}\" computes with nextval().", column.name),
        remedy: format!(
            "ALTER TABLE {table} ALTER COLUMN {} SET DEFAULT nextval('…') without more, or DROP DEFAULT.",
            quoted_identifier(&column.name)
        ),
    };
    relation.columns.iter().filter(is_computed).map(obstacle).collect()
}

/// Sequences that begin anew when they have ended: of the whole cluster a number is given once.
pub(super) async fn cycling(home: &mut ShardConnection, relation: &Relation) -> Result<Vec<Obstacle>, PgError> {
    let mut found = Vec::new();
    for column in relation.columns.iter().filter(|column| column.is_numbered_by_shard()) {
        if home.value(&cycles_sql(relation, column)).await? {
            found.push(cycle_obstacle(relation, column));
        }
    }
    Ok(found)
}

/// One boolean.
pub(super) fn cycles_sql(relation: &Relation, column: &Column) -> String {
    format!(
        "SELECT EXISTS (SELECT FROM pg_attribute a
                        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
                        JOIN pg_depend p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid AND p.refclassid = 'pg_class'::regclass
                             OR p.classid = 'pg_class'::regclass AND p.deptype = 'i' AND p.refclassid = 'pg_class'::regclass
                                AND p.refobjid = a.attrelid AND p.refobjsubid = a.attnum
                        JOIN pg_sequence s ON s.seqcycle AND s.seqrelid = CASE WHEN p.deptype = 'i' THEN p.objid ELSE p.refobjid END
                        WHERE a.attrelid = to_regclass({}) AND a.attname = {})",
        quoted_literal(&quoted_name(&relation.schema, &relation.name)),
        quoted_literal(&column.name)
    )
}

pub(super) fn cycle_obstacle(relation: &Relation, column: &Column) -> Obstacle {
    let remedy = match column.numbering() {
        Some(Numbering::Local((schema, name))) => format!("ALTER SEQUENCE {} NO CYCLE", quoted_name(&schema, &name)),
        Some(Numbering::Identity | Numbering::Cluster(_) | Numbering::Computed) | None => format!(
            "ALTER TABLE {} ALTER COLUMN {} SET NO CYCLE",
            quoted_name(&relation.schema, &relation.name),
            quoted_identifier(&column.name)
        ),
    };
    Obstacle {
        what: format!("The sequence of column \"{}\" has CYCLE, and of the whole cluster a number is given once.", column.name),
        remedy: format!("{remedy}; when its numbers have ended, ALTER SEQUENCE … RESTART lets it begin anew."),
    }
}

/// A partition numbers its rows otherwise than its parent: by a sequence of each shard's own, where it is written by its name.
pub(super) fn obstacles_of_partition(parent: &Relation, partition: &Relation) -> Vec<Obstacle> {
    let differs = |column: &&Column| {
        column.is_numbered_by_shard() && parent.column(&column.name).is_none_or(|of_parent| of_parent.default != column.default)
    };
    let table = quoted_name(&partition.schema, &partition.name);
    let obstacle = |column: &Column| Obstacle {
        what: format!("Column \"{}\" of partition \"{}\" has another default than its parent.", column.name, partition.name),
        remedy: format!("ALTER TABLE {table} ALTER COLUMN {} DROP DEFAULT.", quoted_identifier(&column.name)),
    };
    if parent.oid == partition.oid { Vec::new() } else { partition.columns.iter().filter(differs).map(obstacle).collect() }
}

/// Gives the table's columns sequences of the whole cluster. `true`: the home shard's schema has changed.
pub(super) async fn adopt(
    control: &Control,
    caller: &Caller,
    snapshot: &MapSnapshot,
    home: &mut ShardConnection,
    relation: &Relation,
) -> Result<bool, PgError> {
    let own: Vec<&str> = numbered_by_shard(relation);
    let of_cluster = cluster_sequences(relation);
    if own.is_empty() && of_cluster.is_empty() {
        return Ok(false);
    }
    support::ensure(home, &control.client_roles).await?;
    for sequence in of_cluster.iter().filter(|sequence| !snapshot.sequences.contains_key(*sequence)) {
        declare_again(control, caller, home, sequence).await?;
    }
    for column in &own {
        home.run("BEGIN").await?;
        let adopted = adopt_at_home(control, caller, home, relation, column).await;
        finish(home, adopted).await?;
    }
    if !own.is_empty() {
        control.reached().await?;
    }
    Ok(!own.is_empty())
}

async fn adopt_at_home(
    control: &Control,
    caller: &Caller,
    home: &mut ShardConnection,
    relation: &Relation,
    column: &str,
) -> Result<(), PgError> {
    let found = adopt_column(home, relation, column).await?;
    let sequence = NewSequence {
        schema: &found.name.0,
        name: &found.name.1,
        increment: found.increment,
        minimum: found.minimum,
        maximum: found.maximum,
        next_number: found.next_number,
    };
    home.check_primary()?;
    control.map.store().declare_sequence(&caller.user, &sequence).await?;
    Ok(())
}

/// The table on another shard: the same defaults, where it is there already.
pub(super) async fn adopt_elsewhere(control: &Control, shard: &mut ShardConnection, relation: &Relation) -> Result<(), PgError> {
    if cluster_sequences(relation).is_empty() {
        return Ok(());
    }
    support::ensure(shard, &control.client_roles).await?;
    let table = quoted_literal(&quoted_name(&relation.schema, &relation.name));
    for column in relation.columns.iter().filter(|column| column.cluster_sequence().is_some()) {
        let is_own = format!(
            "SELECT EXISTS (SELECT FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
                            WHERE a.attrelid = to_regclass({table}) AND a.attname = {}
                              AND (a.attidentity <> '' OR pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%'))",
            quoted_literal(&column.name)
        );
        if shard.value(&is_own).await? {
            shard.run("BEGIN").await?;
            let adopted = adopt_column(shard, relation, &column.name).await.map(drop);
            finish(shard, adopted).await?;
        }
    }
    Ok(())
}

/// Sequences that came with the schema give no numbers of their own on this shard.
pub(super) async fn own(shard: &mut ShardConnection, sequences: &[SequenceName]) -> Result<(), PgError> {
    for (schema, name) in sequences {
        let sequence = quoted_literal(&quoted_name(schema, name));
        let is_missing = format!(
            "SELECT to_regclass({sequence}) IS NOT NULL
                    AND NOT EXISTS (SELECT FROM shardgate.number_sequences WHERE sequence = to_regclass({sequence}))"
        );
        if shard.value(&is_missing).await? {
            shard.run(&format!("SELECT shardgate.own_sequence({sequence}::regclass)")).await?;
        }
    }
    Ok(())
}

pub(super) fn cluster_sequences(relation: &Relation) -> Vec<SequenceName> {
    relation.columns.iter().filter_map(Column::cluster_sequence).collect()
}

fn numbered_by_shard(relation: &Relation) -> Vec<&str> {
    let columns = relation.columns.iter().filter(|column| column.is_numbered_by_shard());
    columns.map(|column| column.name.as_str()).collect()
}

/// What a column's sequence was.
struct Adopted {
    name: SequenceName,
    increment: i64,
    minimum: i64,
    maximum: i64,
    next_number: i128,
}

async fn adopt_column(shard: &mut ShardConnection, relation: &Relation, column: &str) -> Result<Adopted, PgError> {
    let table = quoted_literal(&quoted_name(&relation.schema, &relation.name));
    let sql = format!(
        "SELECT ARRAY[schema_name, sequence_name, increment::text, minimum::text, maximum::text, next_number]
         FROM shardgate.adopt_sequence({table}::regclass, {})",
        quoted_literal(column)
    );
    let found: Vec<String> = shard.value(&sql).await.map_err(explain_lock)?;
    let number = |index: usize| found.get(index).and_then(|text| text.parse::<i128>().ok());
    let small = |index: usize| number(index).and_then(|number| i64::try_from(number).ok());
    match (found.as_slice(), small(2), small(3), small(4), number(5)) {
        ([schema, name, ..], Some(increment), Some(minimum), Some(maximum), Some(next_number)) => {
            Ok(Adopted { name: (schema.clone(), name.clone()), increment, minimum, maximum, next_number })
        }
        _ => Err(PgError::internal(format!("unexpected answer of shard \"{}\"", shard.name))),
    }
}

/// The shards know the sequence, and the map does not: it was made anew, or restored. Above everything that is used.
async fn declare_again(control: &Control, caller: &Caller, home: &mut ShardConnection, name: &SequenceName) -> Result<(), PgError> {
    let sequence = quoted_literal(&quoted_name(&name.0, &name.1));
    let limits: Vec<i64> = home
        .value(&format!(
            "SELECT ARRAY[s.seqincrement, s.seqmin, s.seqmax] FROM pg_sequence s WHERE s.seqrelid = {sequence}::regclass"
        ))
        .await?;
    let [increment, minimum, maximum] = <[i64; 3]>::try_from(limits).map_err(|_| PgError::internal("a sequence has no limits"))?;
    let mut used = if increment > 0 { i128::from(minimum) } else { i128::from(maximum) };
    for shard in control.fresh_snapshot().await?.shards {
        let mut connection = control.open(&shard).await?;
        support::ensure(&mut connection, &control.client_roles).await?;
        let sql =
            format!("SELECT CASE WHEN to_regclass({sequence}) IS NOT NULL THEN shardgate.numbers_used({sequence}::regclass) END");
        let found: Option<String> = connection.value(&sql).await?;
        connection.close().await;
        if let Some(found) = found.and_then(|found| found.parse::<i128>().ok()) {
            used = if increment > 0 { used.max(found) } else { used.min(found) };
        }
    }
    let next_number = used.saturating_add(i128::from(increment) * UNSEEN_NUMBERS);
    let declared = NewSequence { schema: &name.0, name: &name.1, increment, minimum, maximum, next_number };
    home.check_primary()?;
    control.map.store().declare_sequence(&caller.user, &declared).await?;
    Ok(())
}

/// Numbers that proxies may have drawn before, and that are in no row yet.
const UNSEEN_NUMBERS: i128 = 100_000;

async fn finish(shard: &mut ShardConnection, outcome: Result<(), PgError>) -> Result<(), PgError> {
    match outcome {
        Ok(()) => shard.run("COMMIT").await,
        Err(error) => {
            shard.run("ROLLBACK").await?;
            Err(error)
        }
    }
}

fn explain_lock(error: PgError) -> PgError {
    if error.code != SqlState::LOCK_NOT_AVAILABLE {
        return error;
    }
    error
        .with_detail("A transaction that uses the table or its sequence is still open, perhaps this session's own.")
        .with_hint("End it and call the function again, outside of a transaction.")
}
