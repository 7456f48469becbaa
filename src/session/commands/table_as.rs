//! CREATE TABLE AS, SELECT INTO and CREATE MATERIALIZED VIEW of rows of several shards.
//!
//! ```text
//!   the query, by the ladder ─► rows, kept ─► the definition, WITH NO DATA, on every shard ─► the rows, on the home shard
//! ```
//! The table is one of the home shard, and every shard has its definition, as of any other. All in one transaction: the client's,
//! or one of its own. Where the table exists already, what PostgreSQL says of that comes before any row is read.

use std::pin::pin;
use std::sync::Arc;

use tokio::time::Instant;

use super::{materialized, temporary};
use crate::backend::{Own, Stored};
use crate::catalog::{quoted_identifier, quoted_literal};
use crate::error::PgError;
use crate::session::ddl::{every_shard, redefined, schema};
use crate::session::protocol::diversion::StoredRows;
use crate::session::reads::scatter;
use crate::session::writes::batches::{BATCH_BYTES_MAX, BATCH_VALUES_MAX, Watch};
use crate::session::writes::{batches, staged};
use crate::session::{Failure, Session};
use crate::shardmap::Shard;
use crate::sql::analysis::{Analysis, Command, TransactionModes};
use crate::sql::utility::table_as::TableAs;
use crate::wire::originate;

/// The shards that get its definition have been told apart by who calls: all, or the one with the session's temporary tables.
pub(in crate::session) async fn create_table_as(
    session: &mut Session,
    table: &TableAs,
    statement: &Analysis,
    text: &str,
) -> Result<(), Failure> {
    if table.view.is_some() {
        materialized::check_for_all(session, statement, "CREATE MATERIALIZED VIEW")?;
    }
    if statement.parameter_count > 0 {
        return Err(with_parameters().into());
    }
    if let Command::Ddl { takes, creates_temporary: None, .. } = &statement.command {
        redefined::check_not_dropped(session, takes, None).await?;
    }
    // What is wrong with the client's text is PostgreSQL's to say.
    staged::described_rows(session, statement, text).await?;
    session.keep_pipeline();
    let begins_here = !session.transaction.is_open();
    if begins_here {
        session.transaction.begin(TransactionModes::default(), &session.settings);
    }
    let run = Box::pin(fill_table_as(session, table, statement, text)).await;
    if let Some(tag) = session.end_one_statement(begins_here, run).await? {
        originate::command_complete(&mut session.client.output, &tag);
    }
    Ok(())
}

/// The tag; none where the client has one already.
async fn fill_table_as(
    session: &mut Session,
    table: &TableAs,
    statement: &Analysis,
    text: &str,
) -> Result<Option<String>, Failure> {
    let began_at = Instant::now();
    let home = session.home()?;
    let shards = if table.is_temporary { vec![Arc::clone(&home)] } else { every_shard::shards_home_first(session)? };
    let (schema, exists) = place_of(session, table, &home).await?;
    if exists {
        // An error, or with IF NOT EXISTS a notice and a tag.
        schema::announce_schema_change(session, CREATE_TABLE_AS).await?;
        return every_shard::run_on_each(session, &shards, &table.definition).await.map(|()| None);
    }
    let rows = match &table.view {
        Some(view) if !view.is_filled || view.is_of_home => None,
        Some(_) | None => match staged::answer_rows(session, &table.query).await {
            Err(Failure::Shard(frame)) => return Err(scatter::told_of_the_text(session, frame, statement, text).await),
            Ok(rows) if rows.columns.is_empty() => return Err(without_columns().into()),
            answered => Some(answered?),
        },
    };
    if table.is_temporary {
        temporary::keep_temporary(session, &home).await?;
    } else {
        schema::announce_schema_change(session, CREATE_TABLE_AS).await?;
        session.await_lease().await?;
        session.transaction.is_everywhere = true;
        if shards.len() > 1 && session.may_write_on_several() {
            let ids: Vec<_> = shards.iter().map(|shard| shard.id).collect();
            session.check_commit_support(&ids).await?;
        }
    }
    let made = match &table.view {
        Some(view) if view.is_of_home => {
            for shard in &shards {
                let is_filled = view.is_filled && shard.is_home;
                let definition = if is_filled { statement.alone(text) } else { &table.definition };
                every_shard::run_part(session, shard, definition, shard.is_home).await?;
            }
            note_written(session, &shards);
            return Ok(None);
        }
        Some(view) => materialized::make(session, table, view, &schema, &shards).await?,
        None => {
            for shard in &shards {
                every_shard::run_on_one(session, shard, &Stored::SchemaChange.text(&table.definition), false).await?;
            }
            format!("{schema}.{}", quoted_identifier(&table.name))
        }
    };
    let tag = match rows {
        Some(rows) => {
            let count = Box::pin(insert_rows(session, &home, &made, rows, began_at)).await?;
            if table.view.is_some() {
                let view = format!("{schema}.{}", quoted_identifier(&table.name));
                materialized::fill(session, &home, &made, &format!("REFRESH MATERIALIZED VIEW {view}")).await?;
            }
            format!("SELECT {count}")
        }
        None => "CREATE MATERIALIZED VIEW".to_owned(),
    };
    note_written(session, &shards);
    Ok(Some(tag))
}

fn note_written(session: &mut Session, shards: &[Arc<Shard>]) {
    for participant in session.transaction.participants_mut().iter_mut().filter(|participant| participant.has_begun) {
        participant.has_written |= shards.iter().any(|shard| shard.id == participant.shard);
    }
}

/// The rows into the table, in statements of a bounded size. How many they were.
pub(super) async fn insert_rows(
    session: &mut Session,
    home: &Arc<Shard>,
    target: &str,
    mut rows: StoredRows,
    began_at: Instant,
) -> Result<usize, Failure> {
    let cancel = Arc::clone(&session.cancel);
    let cancelled = pin!(cancel.cancelled());
    let mut watch = Watch::new(session, cancelled, began_at);
    let mut count = 0;
    loop {
        let batch = rows.next(BATCH_VALUES_MAX, BATCH_BYTES_MAX).await?;
        if batch.rows.is_empty() {
            rows.end().await?;
            return Ok(count);
        }
        let insert = format!("INSERT INTO {target}{}", batch.inserted(&session.context.catalog)?);
        every_shard::run_on_one(session, home, &Own::Constants.text(&insert), false).await?;
        count += batch.rows.len();
        batches::check_goes_on(&mut watch).await?;
    }
}

/// The schema in which the table would be, as SQL, and whether there is something of its name.
async fn place_of(session: &mut Session, table: &TableAs, home: &Arc<Shard>) -> Result<(String, bool), Failure> {
    if table.is_temporary {
        let exists = session.temporary_tables.names.contains(&table.name);
        return Ok(("pg_temp".to_owned(), exists));
    }
    let index = session.join(home.id).await?;
    session.drain_with_flush(index).await?;
    session.sync(index).await?;
    let participant = session.transaction.at(index)?;
    let schema = table.schema.as_deref().map_or_else(|| "pg_catalog.current_schema()".to_owned(), quoted_literal);
    let sql = format!(
        "SELECT pg_catalog.quote_ident(s.schema), EXISTS (SELECT FROM pg_catalog.pg_class c \
             JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
             WHERE n.nspname OPERATOR(pg_catalog.=) s.schema AND c.relname OPERATOR(pg_catalog.=) {}::pg_catalog.name) \
             FROM (SELECT {schema}::pg_catalog.name AS schema) s",
        quoted_literal(&table.name)
    );
    let rows = participant
        .connection
        .simple(&Own::Catalog.text(&sql))
        .await
        .map_err(|error| crate::session::settings::setting::refused("home", error))?;
    let row = rows.into_iter().next().unwrap_or_default();
    let text = |place: usize| row.get(place).and_then(Option::as_ref).map(|value| String::from_utf8_lossy(value).into_owned());
    match (text(0), text(1)) {
        (Some(schema), exists) => Ok((schema, exists.as_deref() == Some("t"))),
        // No schema to create it in: the definition fails.
        (None, _) => Ok((String::new(), true)),
    }
}

fn without_columns() -> PgError {
    PgError::unsupported(
        "a table of rows without columns is not supported over rows of several shards",
        "The rows of the query are stored by their values, of which they have none.",
        "Select a value for one column.",
    )
}

fn with_parameters() -> PgError {
    PgError::unsupported(
        "CREATE TABLE AS with parameters is not supported over rows of several shards",
        "The definition of the table goes to every shard, by a text that takes no parameters.",
        "Create the table first and fill it with INSERT ... SELECT.",
    )
}

const CREATE_TABLE_AS: &str = "CREATE TABLE AS";
