//! The functions of the schema `shardgate`: declaring shards, sharded tables and reference tables, in SQL, through the proxy.
//!
//! ```text
//! call ─► signature (does the function exist, may this user) ─► arguments ─► checks on the shards' schemas
//!      ─► what the shards need (support objects, schema, rows) ─► one stored change of the map ─► this proxy has seen it
//! ```
//! A declaration is checked completely before anything is changed and lists everything that stands in its way. Nothing moves
//! rows of sharded tables. What must not be written by an old plan is gated (`gate`). Declarations wait for each other (`turn`).
//!
//! The session calls [`call`] outside of its own transaction, on no backend of its own, and must not hold a snapshot of the map
//! meanwhile: a declaration waits until no statement planned under the old map is left, so it would wait for itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::backend::schema_reader::SchemaReaders;
use crate::catalog::Catalog;
use crate::config::ShardUrl;
use crate::error::{PgError, SqlState};
use crate::shard_key::{Oid, oid};
use crate::shardmap::{MapSnapshot, MoveOptions, Shard, ShardMap};
use crate::sql::analysis::{ArgumentValue, ShardgateCall};
use crate::sql::body::SqlBodyReader;

mod alter_shard;
mod arguments;
mod array;
pub mod check;
mod checks;
mod copies;
mod functions;
mod gate;
mod home_moves;
mod key;
mod keys;
mod moves;
mod names;
mod placement;
mod plan_tables;
mod reading;
mod references;
mod rows_copy;
mod schema_copy;
mod sequences;
mod shard_connection;
mod sharding;
mod shards;
mod signature;
mod spread;
mod support;
mod time_partitions;
mod turn;
mod undistribute;
mod wire_argument;

pub use arguments::arguments_in_from;
pub use moves::{By, Rebalancer, Rebalancing, Started};
pub use support::CommitSupport;
pub use wire_argument::argument_from_wire;

use arguments::Arguments;
use shard_connection::ShardConnection;
use signature::Function;

/// Who calls.
#[derive(Clone, Debug)]
pub struct Caller {
    pub user: String,
    pub is_admin: bool,
    /// The session's effective search path; `$user` may be in it.
    pub search_path: Vec<String>,
    /// As the session has it; empty: it is not known which relations there are.
    pub catalog: Arc<Catalog>,
    /// The client waits no longer for what goes on without it.
    pub stop: CancellationToken,
}

impl Caller {
    /// Before the next look at moves that the call waits for. Cancel safe.
    async fn wait(&self, interval: Duration) -> Result<(), PgError> {
        match self.stop.run_until_cancelled(tokio::time::sleep(interval)).await {
            Some(()) => Ok(()),
            None => Err(PgError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")
                .with_detail("The moves go on by themselves.")
                .with_hint("See shardgate.moves; the same call waits for them again.")),
        }
    }
}

/// One argument's value, in the form in which PostgreSQL prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    Null,
    Text(String),
    Array(Vec<Option<String>>),
}

/// A call, its parameters filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub function: String,
    /// Name (`name => value`) and value.
    pub arguments: Vec<(Option<String>, Argument)>,
}

/// Rows in text format; `None` is NULL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Name and type.
    pub columns: Vec<(String, Oid)>,
    pub rows: Vec<Vec<Option<String>>>,
}

/// What declaring needs. One a proxy.
pub struct Control {
    map: Arc<ShardMap>,
    /// Roles under which clients' sessions run on the shards, to be members of `shardgate_2pc`.
    client_roles: Vec<String>,
    /// From the switch of a move to its end.
    grace_ms: u64,
    rebalancer: Option<Rebalancer>,
    ids: functions::UniqueIds,
    /// A piece of a table by time may be due.
    time_partitions: Notify,
    schema_readers: SchemaReaders,
}

impl Control {
    /// `client_roles`: the configured users when shard connections are made as the client's user; else none.
    pub fn new(map: Arc<ShardMap>, client_roles: Vec<String>) -> Self {
        let grace_ms = MoveOptions::default().grace_ms;
        let (ids, time_partitions) = (functions::UniqueIds::default(), Notify::new());
        let schema_readers = SchemaReaders::default();
        Self { map, client_roles, grace_ms, rebalancer: None, ids, time_partitions, schema_readers }
    }

    /// Of moves that are started in SQL.
    pub fn with_grace_ms(self, grace_ms: u64) -> Self {
        Self { grace_ms, ..self }
    }

    /// Who plans `rebalance()`.
    pub fn with_rebalancer(self, rebalancer: Rebalancer) -> Self {
        Self { rebalancer: Some(rebalancer), ..self }
    }

    /// Of this proxy.
    pub fn schema_readers(&self) -> &SchemaReaders {
        &self.schema_readers
    }

    fn drives_moves(&self) -> bool {
        self.rebalancer.is_some()
    }

    fn move_options(&self) -> MoveOptions {
        MoveOptions { grace_ms: self.grace_ms, ..MoveOptions::default() }
    }

    /// `unique_id()`. Cancel safe: at worst an id is lost.
    pub async fn unique_id(&self) -> Result<i64, PgError> {
        self.ids.next(&self.map).await
    }

    /// The map as it is in its database now. A copy of its own: holding it keeps nobody from reaching a newer epoch.
    async fn fresh_snapshot(&self) -> Result<MapSnapshot, PgError> {
        self.map.refresh().await?;
        Ok(MapSnapshot::clone(&self.map.snapshot()))
    }

    /// This proxy sees the change that was just made, and the others do, if they can, before it is told.
    async fn reached(&self) -> Result<(), PgError> {
        let epoch = self.map.refresh().await?;
        if !self.map.seen_by_all(epoch, SEEN_PATIENCE).await? {
            tracing::warn!(%epoch, "a proxy has not followed a declaration in time");
        }
        Ok(())
    }

    async fn open(&self, shard: &Shard) -> Result<ShardConnection, PgError> {
        ShardConnection::open(shard).await
    }

    /// For a statement of a client. Where the server refuses the password, it waits for another one in the map: it is changed there first.
    /// Errors are those of connections that statements wait for.
    async fn open_by_newest_password(&self, shard: &Shard, patience: Duration) -> Result<ShardConnection, PgError> {
        let mut epochs = self.map.subscribe();
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let newest = self.map.snapshot().shard(shard.id).cloned();
            let failure = match ShardConnection::try_open(newest.as_deref().unwrap_or(shard)).await {
                Ok(connection) => return Ok(connection),
                Err(failure) => failure,
            };
            if !failure.is_wrong_password {
                return Err(failure.into_error_of_statement());
            }
            // A password file may change without a word.
            let has_file = ShardUrl::parse(&shard.url).is_ok_and(|url| url.has_password_file());
            let until = if has_file { deadline.min(tokio::time::Instant::now() + PASSWORD_FILE_EVERY) } else { deadline };
            match tokio::time::timeout_at(until, epochs.changed()).await {
                Ok(Ok(())) => {}
                Err(_) if has_file && tokio::time::Instant::now() < deadline => {}
                Ok(Err(_)) | Err(_) => return Err(failure.into_error_of_statement()),
            }
        }
    }

    /// Whether this user's transactions can be committed on this shard and another at once; makes what is missing for it. `patience`: with a
    /// password that the server refuses.
    pub async fn commit_support(&self, shard: &Shard, user: &str, patience: Duration) -> Result<CommitSupport, PgError> {
        let mut connection = self.open_by_newest_password(shard, patience).await?;
        let support = support::for_commits(&mut connection, &self.client_roles, user).await;
        connection.close().await;
        support
    }

    /// Makes the support objects that a shard lacks which an earlier version has registered. Cancel safe: it is one transaction.
    pub async fn complete_shard(&self, shard: &Shard) -> Result<(), PgError> {
        let mut connection = self.open(shard).await?;
        let completed = support::complete(&mut connection, &self.client_roles).await;
        connection.close().await;
        completed
    }

    /// Reads the identities that the map does not have, of shards that an earlier version has registered. Every user may read them
    /// there from then on.
    pub async fn learn_identities(&self) -> Result<(), PgError> {
        let unknown: Vec<Arc<Shard>> =
            self.map.snapshot().shards.iter().filter(|shard| shard.identity.is_none() && shard.state.is_ready()).cloned().collect();
        let mut learned = Ok(());
        for shard in unknown {
            // One that is away does not keep the others from being known.
            learned = learned.and(self.learn_identity(&shard).await);
        }
        learned
    }

    async fn learn_identity(&self, shard: &Shard) -> Result<(), PgError> {
        let mut connection = self.open(shard).await?;
        let identity = support::ensure(&mut connection, &self.client_roles).await;
        connection.close().await;
        Ok(self.map.store().note_identity("shardgate", &shard.name, &identity?).await?)
    }

    /// For the relation `shardgate.tables`.
    pub async fn publish_home_tables(&self, catalog: &Catalog) -> Result<(), PgError> {
        let tables: Vec<(String, String)> = catalog
            .relations
            .values()
            // A partition is a part of its table.
            .filter(|relation| relation.kind.word() == "table" && !relation.is_partition(catalog))
            .map(|relation| (relation.schema.clone(), relation.name.clone()))
            .collect();
        self.map.store().replace_home_tables(&tables).await?;
        Ok(())
    }
}

/// How often a password file is read while another password is waited for.
const PASSWORD_FILE_EVERY: Duration = Duration::from_millis(250);

/// A proxy that does not see a change of the map within this is stuck.
const SEEN_PATIENCE: Duration = Duration::from_secs(2);

/// Not cancel safe: a call that is dropped may have done its work or part of it. Every function can be called again.
pub async fn call(control: &Control, caller: &Caller, call: &Call) -> Result<Answer, PgError> {
    let function = Function::find(&call.function).ok_or_else(|| unknown_function(call))?;
    let arguments = Arguments::bind(function, call)?;
    if !caller.is_admin && changes_something(function, &arguments)? {
        let hint = "Only users with admin = true in [[auth.users]] may change the shard map.";
        let shown = "With dry_run => true it only shows the moves, to everybody.";
        let hint = if function.has_dry_run() { format!("{hint} {shown}") } else { hint.to_owned() };
        return Err(PgError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied for function {}", function.name()))
            .with_hint(hint));
    }
    let rows = Box::pin(run(control, caller, function, &arguments)).await?;
    let columns = function.result();
    assert!(rows.iter().all(|row| row.len() == columns.len()), "the result of {function} has its columns");
    Ok(Answer { columns, rows })
}

fn changes_something(function: Function, arguments: &Arguments) -> Result<bool, PgError> {
    let is_shown_only = function.has_dry_run() && arguments.boolean("dry_run")?;
    Ok(!function.only_reads() && !is_shown_only)
}

async fn run(
    control: &Control,
    caller: &Caller,
    function: Function,
    arguments: &Arguments,
) -> Result<Vec<Vec<Option<String>>>, PgError> {
    let user = caller.user.as_str();
    let one = |value: Option<String>| vec![vec![value]];
    // What PostgreSQL prints for void.
    let void = |()| one(Some(String::new()));
    let number = |number: i32| one(Some(number.to_string()));
    match function {
        Function::AddShard => Box::pin(shards::add(control, user, arguments)).await.map(void),
        Function::AlterShard => Box::pin(alter_shard::alter(control, user, arguments)).await.map(void),
        Function::DropShard => shards::drop(control, user, arguments).await.map(void),
        Function::DistributeTable => sharding::distribute(control, caller, arguments).await.map(void),
        Function::DistributeTables => sharding::distribute_several(control, caller, arguments).await.map(void),
        Function::CreateDistributedTable => sharding::create_distributed(control, caller, arguments).await.map(void),
        Function::ReferenceTable | Function::CreateReferenceTable => {
            Box::pin(references::declare(control, caller, arguments.text("table_name")?)).await.map(void)
        }
        Function::UndistributeTable => Box::pin(undistribute::undistribute(control, caller, arguments)).await,
        Function::MapKey => keys::map(control, caller, arguments).await.map(number),
        Function::MapKeys => keys::map_many(control, caller, arguments).await.map(number),
        Function::SetDefaultShard => keys::set_default(control, caller, arguments).await.map(number),
        Function::SplitPartition => keys::split(control, user, arguments).await.map(number),
        Function::MergePartitions => keys::merge(control, user, arguments).await.map(number),
        Function::TimePartitions => Box::pin(time_partitions::declare(control, caller, arguments)).await.map(void),
        Function::MovePartition => {
            moves::plan(control, user, &[arguments.integer("partition")?], arguments.text("to_shard")?).await.map(number)
        }
        Function::MovePartitions => {
            moves::plan(control, user, &arguments.integers("partitions")?, arguments.text("to_shard")?).await.map(number)
        }
        Function::IsolateKey => {
            Box::pin(moves::isolate(control, caller, arguments)).await.map(|planned| one(planned.map(|id| id.to_string())))
        }
        Function::Rebalance => Box::pin(moves::rebalance(control, caller, arguments)).await,
        Function::RedistributeTable => Box::pin(sharding::redistribute(control, caller, arguments)).await,
        Function::RebalanceTableShards => Box::pin(moves::rebalance_table(control, caller, arguments)).await.map(void),
        Function::CitusMoveShardPlacement => moves::move_placement(control, user, arguments).await.map(void),
        Function::Locate => keys::locate(control, caller, arguments).await.map(|row| vec![row]),
        Function::DeclareFunction => Box::pin(functions::declare(control, caller, arguments)).await.map(void),
        Function::PlanTables => Box::pin(plan_tables::call(control, caller, arguments)).await,
        Function::UniqueId => control.unique_id().await.map(|id| one(Some(id.to_string()))),
    }
}

fn unknown_function(call: &Call) -> PgError {
    let error = arguments::no_such_function(call, None);
    match names::nearest(&call.function, Function::ALL.into_iter(), |function| function.name()) {
        Some(meant) => error.with_hint(format!("Perhaps you meant {meant}.")),
        None => error,
    }
}

/// Names and types of the columns that a call will answer with; `None`: there is no such function.
pub fn describe(function: &str) -> Option<Vec<(String, Oid)>> {
    Function::find(function).map(Function::result)
}

/// What parameter `number` of a call is: of the argument that it stands for alone, or whose array it is in. `text` where the call
/// fits no function, so that the call's own error is heard.
pub fn parameter_type(call: &ShardgateCall, number: u16) -> Oid {
    let names: Vec<Option<&str>> = call.arguments.iter().map(|argument| argument.name.as_deref()).collect();
    let types = parameter_types(&call.function, &names).unwrap_or_default();
    let found = call.arguments.iter().zip(types).find(|(argument, _)| argument.value == ArgumentValue::Parameter(number));
    found.map_or(oid::TEXT, |(_, type_oid)| type_oid)
}

/// Types of a call's arguments, in their order, from their names (`None`: by position): what `$1` is where it stands alone as
/// an argument. `None`: there is no such function, or the arguments do not fit it.
pub fn parameter_types(function: &str, names: &[Option<&str>]) -> Option<Vec<Oid>> {
    arguments::types(Function::find(function)?, names)
}

/// How bodies of functions are read.
const BODY_READER: SqlBodyReader = SqlBodyReader;
