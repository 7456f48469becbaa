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
//! misplaced: the next declaration of the table, or dropping the trigger, ends that.
//!
//! Only what a declaration places elsewhere needs it: a table whose partitions all stay at home does not.

use super::Control;
use super::shard_connection::ShardConnection;
use crate::catalog::{Relation, quoted_identifier, quoted_literal, quoted_name};
use crate::error::{PgError, SqlState};

/// Name of the trigger; the catalogue leaves out triggers whose function is ours.
const TRIGGER: &str = "shardgate_declaring";

/// How often dropping the trigger is tried, each time within the connection's `lock_timeout`.
const DROP_ATTEMPTS: usize = 6;

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

impl<'a> LockedTables<'a> {
    /// Begins a transaction and waits for the writers that are in.
    pub(super) async fn lock(home: &'a mut ShardConnection, relations: &[&Relation]) -> Result<Self, PgError> {
        // Always in one order, so that two declarations do not wait for each other.
        let mut tables: Vec<String> = relations.iter().map(|relation| quoted_name(&relation.schema, &relation.name)).collect();
        tables.sort_unstable();
        // What an interrupted declaration left behind goes first: that needs a stronger lock.
        Self::open_leftovers(home, relations).await?;
        home.run("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        for table in &tables {
            if let Err(error) = home.run(&format!("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")).await {
                home.run("ROLLBACK").await?;
                return Err(explain_lock(error));
            }
        }
        Ok(Self { home, tables })
    }

    /// Opens the gates that a declaration that ended half-way has left closed; whether there were any.
    pub(super) async fn open_leftovers(home: &mut ShardConnection, relations: &[&Relation]) -> Result<bool, PgError> {
        let mut had_any = false;
        for relation in relations {
            let table = quoted_name(&relation.schema, &relation.name);
            let is_closed = format!(
                "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = {}::regclass AND tgname = '{TRIGGER}')",
                quoted_literal(&table)
            );
            if home.value(&is_closed).await? {
                drop_trigger(home, &table).await?;
                had_any = true;
            }
        }
        Ok(had_any)
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
    pub(super) async fn open_when_reached(self, control: &Control, home: &mut ShardConnection) -> Result<(), PgError> {
        if self.tables.is_empty() {
            return control.reached().await;
        }
        control.reached_by_all().await?;
        self.open(home).await
    }

    /// The map was not changed after all: lets writers in.
    pub(super) async fn open(self, home: &mut ShardConnection) -> Result<(), PgError> {
        for table in &self.tables {
            drop_trigger(home, table).await?;
        }
        Ok(())
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
                return Err(PgError::new(
                    SqlState::OBJECT_IN_USE,
                    format!("the declaration is made, but writes to table {table} are still refused"),
                )
                .with_detail(format!("The trigger \"{TRIGGER}\" could not be dropped: {}.", error.message))
                .with_hint(format!(
                    "When no long transaction uses the table: DROP TRIGGER {} ON {table}, on the home shard.",
                    quoted_identifier(TRIGGER)
                )));
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
