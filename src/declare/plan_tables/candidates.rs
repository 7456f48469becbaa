//! Keys that are proposed where none is given, with what is known of each. What is not known is said to be unknown.
//!
//! A candidate is a table that others refer to, by its key of one column, or a column that several tables have by name and that refers
//! to none. Each is planned like keys that are given; tables that would stand in the way because they are referred to become reference
//! tables. The order: what share of tables and bytes has the key, columns that would have to be added counting half; less where there
//! are few keys, or one has a large share of the rows; less where statements are known to need several shards.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::facts::{oid, rows};
use super::foreign_keys::shown;
use super::members::{Members, Wishes, in_order, key_text, root};
use super::script::{Kind, Row};
use super::statements::{Shares, Workload};
use super::{Losses, Planned, Schema};
use crate::catalog::{Catalog, Oid, Relation, RelationKind, quoted_literal};
use crate::declare::array::text_array;
use crate::declare::key::KeyItem;
use crate::declare::shard_connection::ShardConnection;
use crate::declare::{Caller, reading};
use crate::error::PgError;
use crate::shard_key::KeyType;
use crate::shardmap::{MapSnapshot, Strategy};

/// One row for each candidate, the best first: the call that gives its script, and what is known of it.
pub(super) async fn propose(
    home: &mut ShardConnection,
    snapshot: &MapSnapshot,
    caller: &Caller,
    references: &[String],
) -> Result<Vec<Proposal>, PgError> {
    let schema = Schema::read(home, snapshot, caller).await?;
    let columns = column_statistics(home).await?;
    let workload = Workload::read(home).await?;
    let references = super::references_named(&schema.catalog, caller, references)?;
    super::aside(move || {
        let judge = Judge { schema: &schema, columns: &columns, workload: workload.as_ref() };
        judge.best(&candidates(&schema.catalog, &schema.map, &references))
    })
    .await
}

/// What is shown: the others are worse.
const CANDIDATES_MAX: usize = 10;

/// A candidate.
pub(super) struct Proposal {
    score: f64,
    pub(super) row: Row,
    /// With the reference tables that it needs.
    pub(super) wishes: Wishes,
}

/// `pg_stats` of one column.
#[derive(Clone, Copy, Debug, Default)]
struct ColumnStatistics {
    /// How many values; negative: their share of the rows.
    distinct: f64,
    /// Of all rows: those with the most common value.
    most_common: Option<f64>,
    /// Of the order of the rows and of the values.
    correlation: Option<f64>,
}

async fn column_statistics(home: &mut ShardConnection) -> Result<BTreeMap<(Oid, String), ColumnStatistics>, PgError> {
    type Found = (i64, String, f64, Option<f64>, Option<f64>);
    let found: Vec<Found> = rows(home, COLUMN_STATISTICS).await?;
    let column = |(relation, name, distinct, most_common, correlation): Found| {
        ((oid(relation), name), ColumnStatistics { distinct, most_common, correlation })
    };
    Ok(found.into_iter().map(column).collect())
}

// Of partitioned tables those of the whole.
const COLUMN_STATISTICS: &str = "
SELECT c.oid::int8, s.attname::text, s.n_distinct::float8, s.most_common_freqs[1]::float8, s.correlation::float8
FROM pg_stats s JOIN pg_namespace n ON n.nspname = s.schemaname JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = s.tablename
WHERE s.inherited = (c.relkind = 'p') AND c.relkind IN ('r', 'p')";

/// What each would be asked for by.
fn candidates(catalog: &Catalog, map: &MapSnapshot, references: &BTreeSet<Oid>) -> Vec<Wishes> {
    let is_free = |relation: &Relation| {
        matches!(relation.kind, RelationKind::Table | RelationKind::PartitionedTable)
            && !relation.is_partition(catalog)
            && !references.contains(&relation.oid)
            && map.table(&relation.schema, &relation.name).is_none()
    };
    let free: Vec<&Relation> = in_order(catalog).into_iter().filter(|relation| is_free(relation)).collect();
    let mut found: Vec<(usize, Wishes)> = Vec::new();
    let mut explained: BTreeSet<&str> = BTreeSet::new();
    for relation in &free {
        let Some(key) = single_key(relation) else { continue };
        let mut referring = 0;
        for other in free.iter().filter(|other| other.oid != relation.oid) {
            for foreign_key in other.foreign_keys.iter().filter(|foreign_key| foreign_key.referenced == relation.oid) {
                referring += 1;
                explained.extend(foreign_key.columns.iter().map(String::as_str));
            }
        }
        if referring > 0 {
            found.push((referring, wish([(relation.oid, key)], references)));
        }
    }
    let mut by_name: BTreeMap<&str, Vec<&Relation>> = BTreeMap::new();
    for relation in &free {
        for column in relation.columns.iter().filter(|column| KeyType::of_column(column.type_oid).is_some()) {
            by_name.entry(&column.name).or_default().push(relation);
        }
    }
    // A name that many tables have says that their rows belong to something; `id` and `created_at` do not.
    for (name, tables) in by_name {
        let is_of_something = name.ends_with("id") && name != "id" && !explained.contains(name) && tables.len() >= 3;
        let is_one_type =
            tables.iter().filter_map(|table| table.column(name)).map(|column| column.type_oid).collect::<BTreeSet<_>>().len() == 1;
        if is_of_something && is_one_type {
            found.push((tables.len(), wish(tables.iter().map(|table| (table.oid, name)), references)));
        }
    }
    found.sort_by_key(|(referring, _)| std::cmp::Reverse(*referring));
    found.truncate(JUDGED_MAX);
    found.into_iter().map(|(_, wishes)| wishes).collect()
}

/// Those to which most others refer. Each is planned.
const JUDGED_MAX: usize = 50;

fn wish<'n>(keys: impl IntoIterator<Item = (Oid, &'n str)>, references: &BTreeSet<Oid>) -> Wishes {
    let item = |column: &str| Some(vec![KeyItem { column: column.to_owned(), function: None }]);
    Wishes { keys: keys.into_iter().map(|(oid, column)| (oid, item(column))).collect(), references: references.clone() }
}

/// A primary key of one column that rows can be placed by.
fn single_key(relation: &Relation) -> Option<&str> {
    let primary = relation.uniques.iter().find(|unique| unique.is_primary)?;
    let [Some(column)] = primary.columns.as_slice() else { return None };
    let column = relation.column(column)?;
    KeyType::of_column(column.type_oid).filter(|key_type| *key_type != KeyType::Bool).map(|_| column.name.as_str())
}

struct Judge<'c> {
    schema: &'c Schema,
    columns: &'c BTreeMap<(Oid, String), ColumnStatistics>,
    workload: Option<&'c Workload>,
}

/// What is known of a candidate.
struct Known {
    tables: usize,
    all_tables: usize,
    bytes: i64,
    all_bytes: i64,
    added: usize,
    losses: Losses,
    keys: Option<f64>,
    largest: Option<(f64, String)>,
    correlation: Option<(f64, String)>,
    shares: Option<Shares>,
    obstacles: usize,
    first_obstacle: Option<String>,
}

impl Judge<'_> {
    fn best(&self, candidates: &[Wishes]) -> Vec<Proposal> {
        let mut judged: Vec<Proposal> = candidates.iter().filter_map(|wishes| self.judge(wishes)).collect();
        judged.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.row.table_name.cmp(&b.row.table_name)));
        judged.truncate(CANDIDATES_MAX);
        judged
    }

    /// `None`: it is the key of its own table only.
    fn judge(&self, asked: &Wishes) -> Option<Proposal> {
        let wishes = self.with_references(asked)?;
        let planned = self.schema.plan(&wishes);
        let new = planned.members.list.iter().filter(|member| !member.is_declared).count();
        if new < 2 {
            return None;
        }
        let known = self.known(&planned);
        let first = planned.members.list.first()?;
        let row = Row::statement(
            Kind::Candidate,
            Some(format!("{} ({})", shown(first.relation), key_text(&first.key))),
            self.call(asked, &wishes),
            known.sentence(&self.large_references(&wishes)),
        );
        let row = Row { warning: known.warning(), ..row };
        drop(planned);
        Some(Proposal { score: known.score(), row, wishes })
    }

    /// Tables that are referred to and have no key, and those that these refer to, as long as any are found.
    fn with_references(&self, asked: &Wishes) -> Option<Wishes> {
        let catalog: &Catalog = &self.schema.catalog;
        let mut wishes = asked.clone();
        for _ in 0..=catalog.relations.len() {
            let members = Members::find(catalog, &self.schema.map, &wishes);
            members.get(*asked.keys.keys().next()?)?;
            let refers = |relation: &&Relation| {
                let from = root(catalog, relation);
                members.get(from.oid).is_some() || wishes.references.contains(&from.oid)
            };
            let targets = catalog.relations.values().filter(refers).flat_map(|relation| &relation.foreign_keys);
            let targets = targets.filter_map(|key| catalog.relations.get(&key.referenced)).map(|to| root(catalog, to));
            let new: BTreeSet<Oid> = targets
                .filter(|to| {
                    members.get(to.oid).is_none()
                        && !wishes.references.contains(&to.oid)
                        && self.schema.map.table(&to.schema, &to.name).is_none()
                })
                .map(|to| to.oid)
                .collect();
            if new.is_empty() {
                break;
            }
            wishes.references.extend(new);
        }
        Some(wishes)
    }

    fn call(&self, asked: &Wishes, wishes: &Wishes) -> String {
        let catalog = &self.schema.catalog;
        let named = asked.keys.iter().filter_map(|(oid, key)| Some((catalog.relations.get(oid)?, key.as_ref()?)));
        let mut pairs: Vec<String> =
            named.map(|(relation, key)| format!("{}: {}", Value::from(shown(relation)), Value::from(key_text(key)))).collect();
        pairs.sort();
        let keys = quoted_literal(&format!("{{{}}}", pairs.join(", ")));
        let mut references: Vec<String> =
            wishes.references.iter().filter_map(|oid| catalog.relations.get(oid)).map(shown).collect();
        references.sort();
        let references = match references.as_slice() {
            [] => String::new(),
            names => format!(", {}", quoted_literal(&text_array(names)).trim_start()),
        };
        format!("SELECT * FROM shardgate.plan_tables({}{references});", keys.trim_start())
    }

    fn known(&self, planned: &Planned<'_>) -> Known {
        let Schema { catalog, facts, .. } = self.schema;
        let size = |oid: Oid| facts.sizes.get(&oid).copied().unwrap_or_default();
        let members: Vec<_> = planned.members.list.iter().filter(|member| !member.is_declared).collect();
        let tables: Vec<&Relation> = in_order(catalog)
            .into_iter()
            .filter(|relation| {
                matches!(relation.kind, RelationKind::Table | RelationKind::PartitionedTable) && !relation.is_partition(catalog)
            })
            .collect();
        let own = members.iter().filter(|member| member.filled.is_none());
        let statistics = own.clone().filter_map(|member| {
            let column = &member.key.first()?.column;
            let found = self.columns.get(&(member.relation.oid, column.clone()))?;
            Some((member.relation, *found))
        });
        let keys = statistics.clone().filter_map(|(relation, found)| distinct(found.distinct, size(relation.oid).rows));
        // One value among few rows says nothing.
        let large = statistics.filter(|(relation, _)| size(relation.oid).rows.is_some_and(|rows| rows >= ROWS_THAT_COUNT));
        let largest = large.clone().filter_map(|(relation, found)| Some((found.most_common?, shown(relation))));
        let correlation =
            large.filter_map(|(relation, found)| Some((size(relation.oid).rows?, found.correlation?, shown(relation))));
        Known {
            tables: members.len(),
            all_tables: tables.len(),
            bytes: members.iter().map(|member| size(member.relation.oid).bytes).sum(),
            all_bytes: tables.iter().map(|relation| size(relation.oid).bytes).sum(),
            added: members.iter().filter(|member| member.filled.is_some()).count(),
            losses: planned.losses,
            keys: keys.reduce(f64::max),
            largest: largest.reduce(|a, b| if b.0 > a.0 { b } else { a }),
            correlation: correlation.reduce(|a, b| if b.0 > a.0 { b } else { a }).map(|(_, found, table)| (found, table)),
            shares: self.workload.map(|workload| self.shares(workload, planned)),
            obstacles: planned.obstacles.len(),
            first_obstacle: planned.obstacles.first().map(|obstacle| obstacle.what.clone()),
        }
    }

    fn shares(&self, workload: &Workload, planned: &Planned<'_>) -> Shares {
        let Schema { map, path, .. } = self.schema;
        let (members, later) = (&planned.members, &planned.later);
        let keyed: Vec<_> = planned
            .members
            .list
            .iter()
            .filter_map(|member| {
                let relation = later.relations.get(&member.relation.oid)?;
                let key = crate::declare::key::TableKey::resolve(&key_text(&member.key), later, relation, Strategy::Hash).ok()?;
                Some((relation, key))
            })
            .collect();
        let tables: Vec<_> = keyed.iter().map(|(relation, key)| (*relation, key.columns.as_slice())).collect();
        let Some((_, first)) = keyed.first() else { return Shares::default() };
        let map = reading::with_tables(map, &tables, members.group, (Strategy::Hash, &first.types));
        workload.shares(&reading::under(later, map, path), members)
    }

    /// Reference tables that are not small.
    fn large_references(&self, wishes: &Wishes) -> Vec<String> {
        let large = wishes.references.iter().filter(|oid| {
            self.schema.facts.sizes.get(oid).is_some_and(|size| size.rows.is_some_and(|rows| rows > REFERENCE_ROWS_MAX))
        });
        large.filter_map(|oid| self.schema.catalog.relations.get(oid)).map(shown).collect()
    }
}

const ROWS_THAT_COUNT: f64 = 1000.0;
/// A table of more rows is rather not copied to every shard.
const REFERENCE_ROWS_MAX: f64 = 100_000.0;

fn distinct(distinct: f64, rows: Option<f64>) -> Option<f64> {
    if distinct >= 0.0 { Some(distinct) } else { rows.map(|rows| -distinct * rows) }
}

impl Known {
    fn score(&self) -> f64 {
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let tables = share(self.tables as f64 - self.added as f64 / 2.0, self.all_tables as f64);
        let bytes = share(self.bytes as f64, self.all_bytes as f64);
        let spread = self.keys.map_or(1.0, |keys| (keys.max(1.0).log10() / 2.0).clamp(0.1, 1.0));
        let even = self.largest.as_ref().map_or(1.0, |(share, _)| 1.0 - share);
        let local = self
            .shares
            .filter(|shares| shares.all > 0)
            .map_or(1.0, |shares| share(shares.on_one_shard as f64, shares.all as f64) / 2.0 + 0.5);
        (tables + bytes) / 2.0 * spread * even * local
    }

    fn sentence(&self, large_references: &[String]) -> String {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let bytes = if self.all_bytes > 0 { percent(self.bytes as f64 / self.all_bytes as f64) } else { "unknown".to_owned() };
        let keys = self.keys.map_or("unknown".to_owned(), |keys| format!("about {keys:.0}"));
        let largest =
            self.largest.as_ref().map_or("unknown".to_owned(), |(share, table)| format!("{} of {table}", percent(*share)));
        let order = match &self.correlation {
            Some((found, table)) if found.abs() > 0.9 => format!("rows of {table} come in the order of the keys, so not by range"),
            Some(_) => "not appended in order".to_owned(),
            None => "order of new keys unknown".to_owned(),
        };
        let statements = match self.shares {
            None => "statements on one shard: unknown, as are updates of the key (pg_stat_statements is not installed)".to_owned(),
            Some(Shares { all: 0, .. }) => "statements on one shard: unknown (none of these tables was counted)".to_owned(),
            Some(shares) => format!(
                "statements on one shard: {} of {} calls; updates of the key: {} calls",
                percent(shares.on_one_shard as f64 / shares.all as f64),
                shares.all,
                shares.key_updates
            ),
        };
        let references = match large_references {
            [] => String::new(),
            large => format!(" Large for a reference table: {}.", large.join(", ")),
        };
        format!(
            "{} of {} tables, {bytes} of the bytes; columns to add: {}; keys: {keys}; largest share of one key: {largest}; {order}; {statements}; \
             transactions on one shard: unknown.{references}",
            self.tables, self.all_tables, self.added
        )
    }

    fn warning(&self) -> Option<String> {
        let mut parts = Vec::new();
        if self.losses.foreign_keys > 0 {
            parts.push(format!("Foreign keys lost: {}.", self.losses.foreign_keys));
        }
        if self.losses.uniques > 0 {
            parts.push(format!("Keys that are unique within the shard key only: {}.", self.losses.uniques));
        }
        if let Some(first) = &self.first_obstacle {
            parts.push(format!("In the way: {}, {first}", self.obstacles));
        }
        (!parts.is_empty()).then(|| parts.join(" "))
    }
}
