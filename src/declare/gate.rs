//! Keeps writers that were planned before a declaration from writing after it.
//!
//! ```text
//! home:   BEGIN · LOCK TABLE t (writers wait) · look, copy · CREATE TRIGGER gate · COMMIT      (those who waited: 40001)
//! map:                                                                             change
//! proxies:                                                                                 reached the epoch
//! home:                                                                                                      DROP TRIGGER
//! ```
//! Without it a writer that waits for our lock goes on when we let go of it, by its old plan: it would write a row to the
//! home shard that another shard owns from now on, or change a reference table in one copy only. A lock alone cannot refuse;
//! a trigger can. The gate is there before the map changes, so that a crash in between leaves writers refused, not rows
//! misplaced.
//!
//! It is opened only when that is certain to be right: no proxy has a statement of an older plan, or the map was not changed and will
//! not be. In any other case it stays closed, and calling the function again ends that ([`open_leftovers`]).
//!
//! Only what a declaration places elsewhere needs it: a table whose rows all stay at home, wherever their keys are, does not.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Control;
use super::shard_connection::ShardConnection;
use super::turn::Unmade;
use crate::catalog::{Relation, quoted_identifier, quoted_literal, quoted_name};
use crate::error::{PgError, SqlState, capitalised};
use crate::shardmap::{DECLARING_TRIGGER as TRIGGER, ProxyBehind, Silent, StoreError};

/// How often dropping the trigger is tried, each time within the connection's `lock_timeout`.
const DROP_ATTEMPTS: usize = 6;

/// Longest wait for statements that were planned under the old map.
const PROXIES_PATIENCE: Duration = Duration::from_secs(30);

const SILENT_PATIENCE: Duration = Duration::from_secs(2);
const SILENT_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The home shard's table, locked against writers until the transaction ends.
#[must_use = "a locked table keeps writers waiting"]
pub(super) struct LockedTables<'a> {
    home: &'a mut ShardConnection,
    tables: Vec<String>,
}

/// The tables with their gates closed.
#[must_use = "a closed gate refuses writers until it is opened"]
pub(super) struct ClosedGates {
    tables: Vec<String>,
}

/// As the functions here take them.
pub(super) fn names(relations: &[&Relation]) -> Vec<String> {
    relations.iter().map(|relation| quoted_name(&relation.schema, &relation.name)).collect()
}

impl<'a> LockedTables<'a> {
    /// Begins a transaction and waits for the writers that are in. `tables`: quoted names.
    pub(super) async fn lock(home: &'a mut ShardConnection, mut tables: Vec<String>) -> Result<Self, PgError> {
        // Always in one order, as everybody who locks several does best.
        tables.sort_unstable();
        home.run("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        for table in &tables {
            if let Err(error) = home.run(&format!("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")).await {
                home.run("ROLLBACK").await?;
                return Err(explain_lock(error));
            }
        }
        Ok(Self { home, tables })
    }

    /// The connection whose transaction holds the locks.
    pub(super) fn connection(&mut self) -> &mut ShardConnection {
        self.home
    }

    /// Who waited, and who comes, is refused from now on.
    pub(super) async fn close_gates(self) -> Result<ClosedGates, PgError> {
        for table in &self.tables {
            self.home
                .run(&format!(
                    "CREATE TRIGGER {TRIGGER} BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table}
                     FOR EACH STATEMENT EXECUTE FUNCTION shardgate.refuse_while_declaring()"
                ))
                .await?;
        }
        self.home.run("COMMIT").await?;
        Ok(ClosedGates { tables: self.tables })
    }

    /// Nothing happened: who waited goes on.
    pub(super) async fn release(self) -> Result<(), PgError> {
        self.home.run("ROLLBACK").await
    }
}

impl ClosedGates {
    /// After the change of the map: waits until no statement planned before it is left, then lets writers in.
    pub(super) async fn open_when_reached(
        self,
        control: &Control,
        home: &mut ShardConnection,
        silent: Silent,
    ) -> Result<(), PgError> {
        if self.tables.is_empty() {
            return control.reached().await;
        }
        reached_by_all(control, silent, "the declaration is made").await?;
        self.open(home).await
    }

    /// The map did not take the change: lets writers in when that is certain.
    pub(super) async fn open_unless_made(self, error: StoreError, home: &mut ShardConnection) -> Unmade {
        if !error.is_unchanged() && !self.tables.is_empty() {
            return PgError::from(error)
                .with_detail("The map database did not say whether the declaration is made. Writes to the table are refused until that is known.")
                .with_hint("Call the function again.")
                .into();
        }
        match self.open(home).await {
            Ok(()) => error.into(),
            Err(error) => error.into(),
        }
    }

    /// The map was not asked to change.
    pub(super) async fn open(self, home: &mut ShardConnection) -> Result<(), PgError> {
        for table in &self.tables {
            drop_trigger(home, table).await?;
        }
        Ok(())
    }
}

/// Are there gates that a declaration has left closed, or is making now?
pub(super) async fn has_closed(home: &mut ShardConnection, tables: &[String]) -> Result<bool, PgError> {
    Ok(!closed(home, tables).await?.is_empty())
}

/// Opens the gates that a declaration which ended half-way has left closed, when no proxy works by an older map than the one that
/// is valid now; whether there were any. For who has the turn: no earlier declaration can change the map any more.
pub(super) async fn open_leftovers(control: &Control, home: &mut ShardConnection, tables: &[String]) -> Result<bool, PgError> {
    let tables = closed(home, tables).await?;
    let had_any = !tables.is_empty();
    if had_any {
        reached_by_all(control, Silent::Awaited, "an earlier declaration ended half-way").await?;
        ClosedGates { tables }.open(home).await?;
    }
    Ok(had_any)
}

async fn closed(home: &mut ShardConnection, tables: &[String]) -> Result<Vec<String>, PgError> {
    let mut closed = Vec::new();
    for table in tables {
        let name = quoted_literal(table);
        let is_closed =
            format!("SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass({name}) AND tgname = '{TRIGGER}')");
        if home.value(&is_closed).await? {
            closed.push(table.clone());
        }
    }
    Ok(closed)
}

/// Before anything is changed: a proxy that says nothing could go on by what it knows, and only a closed gate would keep it from that.
pub(super) async fn refuse_silent_proxies(control: &Control) -> Result<(), PgError> {
    let deadline = Instant::now() + SILENT_PATIENCE;
    let silent = loop {
        let silent = control.map.silent_proxies().await?;
        if silent.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            break silent;
        }
        // After an outage of the map each one is heard of again within a second.
        sleep(SILENT_POLL_INTERVAL).await;
    };
    Err(PgError::new(SqlState::OBJECT_IN_USE, "a proxy does not follow the shard map")
        .with_detail(format!("{} It may still write by the map that it knows. Nothing was changed.", list(&silent)))
        .with_hint(what_to_do(&silent)))
}

/// No proxy works by an older map any more. `what`: why the gates are closed.
async fn reached_by_all(control: &Control, silent: Silent, what: &str) -> Result<(), PgError> {
    let behind = async {
        let epoch = control.map.refresh().await?;
        control.map.reached_by_all(epoch, None, silent, PROXIES_PATIENCE).await
    };
    let behind = behind.await.map_err(|error| {
        PgError::from(error)
            .with_detail(format!(
                "{}, but which proxies follow it is not known. Writes to the table are refused until then.",
                capitalised(what)
            ))
            .with_hint("Call the function again when the map database is back.")
    })?;
    if behind.is_empty() {
        return Ok(());
    }
    // Writers are still refused by the gate; opening it anyway would let old plans through.
    Err(PgError::new(SqlState::OBJECT_IN_USE, format!("{what}, but statements planned before it still run"))
        .with_detail(format!("{} Writes to the table are refused until they have ended.", list(&behind)))
        .with_hint(what_to_do(&behind)))
}

fn list(behind: &[ProxyBehind]) -> String {
    let one = |proxy: &ProxyBehind| match proxy.silent_for {
        Some(silent) => {
            format!("Proxy {} ({}) has not been heard of for {} s.", proxy.id, proxy.address, silent.as_secs())
        }
        None => format!("Proxy {} ({}) works by an older map.", proxy.id, proxy.address),
    };
    behind.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn what_to_do(behind: &[ProxyBehind]) -> String {
    let again = "Call the function again when it has followed; SELECT * FROM shardgate.proxies shows all.";
    match behind.iter().find(|proxy| proxy.silent_for.is_some()) {
        Some(silent) => format!(
            "{again} One whose process has ended is forgotten at once by a proxy on its machine, by others after an hour or by DELETE FROM shardgate_map.proxy WHERE \
             proxy_id = {} in the map database.",
            silent.id
        ),
        None => again.to_owned(),
    }
}

async fn drop_trigger(home: &mut ShardConnection, table: &str) -> Result<(), PgError> {
    let mut attempt = 1;
    loop {
        match home.run(&format!("DROP TRIGGER IF EXISTS {TRIGGER} ON {table}")).await {
            Ok(()) => return Ok(()),
            Err(error) if error.code == SqlState::LOCK_NOT_AVAILABLE && attempt < DROP_ATTEMPTS => attempt += 1,
            Err(error) => {
                tracing::error!(table, error = %error, "gate left closed");
                return Err(PgError::new(SqlState::OBJECT_IN_USE, format!("writes to table {table} are still refused"))
                    .with_detail(format!("The trigger {} could not be dropped: {}.", quoted_identifier(TRIGGER), error.message))
                    .with_hint("Call the function again when no long transaction uses the table."));
            }
        }
    }
}

fn explain_lock(error: PgError) -> PgError {
    if error.code != SqlState::LOCK_NOT_AVAILABLE {
        return error;
    }
    error
        .with_detail("A transaction that has written to the table is still open, perhaps this session's own.")
        .with_hint("End it and call the function again, outside of a transaction.")
}
