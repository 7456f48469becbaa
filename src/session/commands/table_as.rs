//! CREATE TABLE AS and SELECT INTO of rows of several shards.
//!
//! ```text
//!   the query, by the ladder ─► rows, kept ─► the definition, WITH NO DATA, on every shard ─► the rows, on the home shard
//! ```
//! The table is one of the home shard, and every shard has its definition, as of any other. All in one transaction: the client's,
//! or one of its own. Where the table exists already, what PostgreSQL says of that comes before any row is read.

use std::pin::pin;
use std::sync::Arc;

use tokio::time::Instant;

use crate::backend::{Own, Stored};
use crate::catalog::{quoted_identifier, quoted_literal};
use crate::error::PgError;
use crate::session::protocol::diversion::StoredRows;
use crate::session::writes::batches::{BATCH_BYTES_MAX, BATCH_VALUES_MAX, Watch};
use crate::session::{Failure, Session};
use crate::shardmap::Shard;
use crate::sql::analysis::{Analysis, Command, TransactionModes};
use crate::sql::utility::table_as::TableAs;
use crate::wire::originate;

impl Session {
    /// The shards that get its definition have been told apart by who calls: all, or the one with the session's temporary tables.
    pub(in crate::session) async fn create_table_as(
        &mut self,
        table: &TableAs,
        statement: &Analysis,
        text: &str,
    ) -> Result<(), Failure> {
        if statement.parameter_count > 0 {
            return Err(with_parameters().into());
        }
        if let Command::Ddl { takes, creates_temporary: None, .. } = &statement.command {
            self.check_not_dropped(takes, None).await?;
        }
        // What is wrong with the client's text is PostgreSQL's to say.
        self.described_rows(statement, text).await?;
        self.keep_pipeline();
        let begins_here = !self.transaction.is_open();
        if begins_here {
            self.transaction.begin(TransactionModes::default(), &self.settings);
        }
        let run = Box::pin(self.fill_table_as(table, statement, text)).await;
        if let Some(tag) = self.end_one_statement(begins_here, run).await? {
            originate::command_complete(&mut self.client.output, &tag);
        }
        Ok(())
    }

    /// The tag; none where the client has one already.
    async fn fill_table_as(&mut self, table: &TableAs, statement: &Analysis, text: &str) -> Result<Option<String>, Failure> {
        let began_at = Instant::now();
        let home = self.home()?;
        let shards = if table.is_temporary { vec![Arc::clone(&home)] } else { self.shards_home_first()? };
        let (schema, exists) = self.place_of(table, &home).await?;
        if exists {
            // An error, or with IF NOT EXISTS a notice and a tag.
            self.announce_schema_change(CREATE_TABLE_AS).await?;
            return self.run_on_each(&shards, &table.definition).await.map(|()| None);
        }
        let mut rows = match self.answer_rows(&table.query).await {
            Err(Failure::Shard(frame)) => return Err(self.told_of_the_text(frame, statement, text).await),
            answered => answered?,
        };
        if table.is_temporary {
            self.keep_temporary(&home).await?;
        } else {
            self.announce_schema_change(CREATE_TABLE_AS).await?;
            self.await_lease().await?;
            self.transaction.is_everywhere = true;
            if shards.len() > 1 && self.may_write_on_several() {
                let ids: Vec<_> = shards.iter().map(|shard| shard.id).collect();
                self.check_commit_support(&ids).await?;
            }
        }
        for shard in &shards {
            self.run_on_one(shard, &Stored::SchemaChange.text(&table.definition), false).await?;
        }
        let target = format!("{schema}.{}", quoted_identifier(&table.name));
        let count = self.insert_rows(&home, &target, &mut rows, began_at).await?;
        rows.end().await?;
        for participant in self.transaction.participants_mut().iter_mut().filter(|participant| participant.has_begun) {
            participant.has_written |= shards.iter().any(|shard| shard.id == participant.shard);
        }
        Ok(Some(format!("SELECT {count}")))
    }

    /// The rows into the table, in statements of a bounded size. How many they were.
    async fn insert_rows(
        &mut self,
        home: &Arc<Shard>,
        target: &str,
        rows: &mut StoredRows,
        began_at: Instant,
    ) -> Result<usize, Failure> {
        let cancel = Arc::clone(&self.cancel);
        let cancelled = pin!(cancel.cancelled());
        let mut watch = Watch::new(self, cancelled, began_at);
        let mut count = 0;
        loop {
            let batch = rows.next(BATCH_VALUES_MAX, BATCH_BYTES_MAX).await?;
            if batch.rows.is_empty() {
                return Ok(count);
            }
            let insert = format!("INSERT INTO {target}{}", batch.inserted(&self.context.catalog)?);
            self.run_on_one(home, &Own::Constants.text(&insert), false).await?;
            count += batch.rows.len();
            self.check_goes_on(&mut watch).await?;
        }
    }

    /// The schema in which the table would be, as SQL, and whether there is something of its name.
    async fn place_of(&mut self, table: &TableAs, home: &Arc<Shard>) -> Result<(String, bool), Failure> {
        if table.is_temporary {
            let exists = self.temporary_tables.names.contains(&table.name);
            return Ok(("pg_temp".to_owned(), exists));
        }
        let index = self.join(home.id).await?;
        self.drain_with_flush(index).await?;
        self.sync(index).await?;
        let participant = self.transaction.at(index)?;
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
}

fn with_parameters() -> PgError {
    PgError::unsupported(
        "CREATE TABLE AS with parameters is not supported over rows of several shards",
        "The definition of the table goes to every shard, by a text that takes no parameters.",
        "Create the table first and fill it with INSERT ... SELECT.",
    )
}

const CREATE_TABLE_AS: &str = "CREATE TABLE AS";
