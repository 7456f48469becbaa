//! Materialized views over rows of several shards: made, and filled.
//!
//! ```text
//!   REFRESH ─► others that refresh it wait ─► the query, by the ladder ─► rows, kept ─► the table beside the view
//!                                                          the view, by PostgreSQL's REFRESH ◄─┘ ─► the table is empty again
//! ```
//! All on the home shard, in one transaction: the client's, or one of its own. So nobody sees the table's rows, and an error leaves the
//! view as it was. What stands beside a view is told in `sql::utility::materialized`.

use std::sync::Arc;

use tokio::time::Instant;

use super::{permitted, table_as};
use crate::backend::{Own, Stored};
use crate::catalog::{quoted_identifier, quoted_literal, quoted_name};
use crate::error::{PgError, SqlState};
use crate::session::ddl::{every_shard, outside};
use crate::session::writes::staged;
use crate::session::{Failure, Session};
use crate::shardmap::Shard;
use crate::sql::analysis::{Analysis, TransactionModes};
use crate::sql::utility::materialized::{Beside, MADE, MADE_BY_PROXY, Refresh, ViewHead, definitions};
use crate::sql::utility::table_as::TableAs;
use crate::wire::originate;

/// The view and what stands beside it, without rows, on every shard. The table that its rows go through, as SQL.
pub(super) async fn make(
    session: &mut Session,
    table: &TableAs,
    head: &ViewHead,
    schema: &str,
    shards: &[Arc<Shard>],
) -> Result<String, Failure> {
    let (query, rows) = Beside::named(&table.name, &session.context.catalog);
    let definitions = definitions(table, head, schema, (&query, &rows));
    for shard in shards {
        for definition in &definitions {
            every_shard::run_on_one(session, shard, &Stored::SchemaChange.text(definition), false).await?;
        }
    }
    Ok(format!("{schema}.{}", quoted_identifier(&rows)))
}

/// `refresh`: where its rows come from several shards. `text`: the statement alone.
pub(in crate::session) async fn refresh(
    session: &mut Session,
    refresh: Option<&Refresh>,
    statement: &Analysis,
    text: &str,
) -> Result<(), Failure> {
    check_for_all(session, statement, REFRESH)?;
    if permitted::is_read_only(session) {
        let message = format!("cannot execute {REFRESH} in a read-only transaction");
        return Err(PgError::new(SqlState::READ_ONLY_SQL_TRANSACTION, message).into());
    }
    let home = session.home()?;
    session.wait_for_shards(&[home.id]).await?;
    session.check_all_writable(REFRESH, &[home.id])?;
    session.keep_pipeline();
    let begins_here = !session.transaction.is_open();
    if begins_here {
        session.transaction.begin(TransactionModes::default(), &session.settings);
    }
    let run = match refresh {
        Some(refresh) => Box::pin(read_and_fill(session, &home, refresh, text)).await,
        None => every_shard::run_on_one(session, &home, &Own::OwnTables.text(text), false).await,
    };
    if let Some(index) = session.transaction.index_of(home.id) {
        session.transaction.at(index)?.has_written = true;
    }
    session.end_one_statement(begins_here, run).await?;
    originate::command_complete(&mut session.client.output, REFRESH);
    Ok(())
}

/// A routing hint would make one shard's rows those of the view, for everybody.
pub(super) fn check_for_all(session: &Session, statement: &Analysis, what: &str) -> Result<(), PgError> {
    match session.hinted(statement)? {
        None => Ok(()),
        Some(_) => Err(PgError::unsupported(
            format!("{what} on one shard is not supported"),
            "A materialized view has the rows of all shards, and is stored on the home shard.",
            "Send it without a routing hint; RESET shardgate.shard ends that of the session.",
        )),
    }
}

async fn read_and_fill(session: &mut Session, home: &Arc<Shard>, refresh: &Refresh, text: &str) -> Result<(), Failure> {
    let began_at = Instant::now();
    check_owner(session, home, refresh).await?;
    check_search_path(session)?;
    let table = quoted_name(&refresh.rows.0, &refresh.rows.1);
    let lock = format!("LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE");
    every_shard::run_on_one(session, home, &Own::Lock.text(&lock), false).await?;
    let rows = staged::answer_rows(session, &refresh.query).await?;
    Box::pin(table_as::insert_rows(session, home, &table, rows, began_at)).await?;
    fill(session, home, &table, text).await
}

/// The view, by the rows that are in the table. `refresh`: the statement.
pub(super) async fn fill(session: &mut Session, home: &Arc<Shard>, table: &str, refresh: &str) -> Result<(), Failure> {
    outside::ask_shard(session, home, &Own::Setting.text(MADE_BY_PROXY)).await?;
    every_shard::run_on_one(session, home, &Own::OwnTables.text(refresh), false).await?;
    every_shard::run_on_one(session, home, &Own::OwnTables.text(&format!("DELETE FROM {table}")), false).await?;
    outside::ask_shard(session, home, &Own::Setting.text(MADE)).await.map(drop)
}

/// PostgreSQL reads the query's tables with the rights of the view's owner; here they are read with the user's.
async fn check_owner(session: &mut Session, home: &Arc<Shard>, refresh: &Refresh) -> Result<(), Failure> {
    let view = quoted_name(&refresh.view.0, &refresh.view.1);
    let sql = format!(
        "SELECT pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(c.relowner)), \
                pg_catalog.pg_get_userbyid(c.relowner) OPERATOR(pg_catalog.=) CURRENT_USER, pg_catalog.pg_has_role(c.relowner, 'USAGE') \
         FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) {}::pg_catalog.regclass",
        quoted_literal(&view)
    );
    let rows = outside::ask_shard(session, home, &Own::Catalog.text(&sql)).await?;
    let row = rows.into_iter().next().unwrap_or_default();
    let text = |place: usize| row.get(place).and_then(Option::as_ref).map(|value| String::from_utf8_lossy(value).into_owned());
    let is_true = |place: usize| text(place).as_deref() == Some("t");
    if is_true(1) {
        return Ok(());
    }
    if !is_true(2) {
        let message = format!("must be owner of materialized view {}", refresh.view.1);
        return Err(PgError::new(SqlState::INSUFFICIENT_PRIVILEGE, message).into());
    }
    let owner = text(0).unwrap_or_default();
    Err(PgError::unsupported(
        format!("REFRESH of materialized view \"{}\" by another user than its owner is not supported", refresh.view.1),
        "Its query is run over several shards with the rights of the user.",
        format!("Run it as its owner: SET ROLE {owner}; {REFRESH} {view}; RESET ROLE;"),
    )
    .into())
}

/// In the query's text names of pg_catalog stand without their schema.
fn check_search_path(session: &Session) -> Result<(), PgError> {
    match session.context.search_path.iter().position(|schema| schema == "pg_catalog") {
        Some(0) | None => Ok(()),
        Some(_) => Err(PgError::unsupported(
            format!("{REFRESH} is not supported while another schema is searched before pg_catalog"),
            "The query's functions would mean others of that schema.",
            "Leave pg_catalog out of search_path, or name it first.",
        )),
    }
}

const REFRESH: &str = "REFRESH MATERIALIZED VIEW";
