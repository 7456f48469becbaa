//! The book catalogue: its tables, how they are sharded, and its rows, made through the proxy as a user would.
//!
//! Everything goes through the proxy, so loading it is also a first check of the whole. Each step looks first at what is
//! there, or does nothing when repeated; a load that was cut short is taken up where it stopped.
//!
//! `config/demo/*.sql` holds what a person can read and run by hand; only the rows are generated.

mod isbn;
mod records;
mod statements;

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, Row};

use self::isbn::CHECK_CHARACTERS;
pub use self::records::SAMPLE_ISBN;

/// A shard for the catalogue to spread over.
#[derive(Clone, Debug)]
pub struct ShardAddress {
    pub name: String,
    pub url: String,
}

#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    #[error("could not connect to the proxy")]
    Connect(#[source] sqlx::Error),
    #[error("statement failed: {statement}")]
    Statement {
        /// Its first line.
        statement: String,
        #[source]
        source: sqlx::Error,
    },
    #[error("no partition of table \"orders\" holds {bound}")]
    NoPartition { bound: String },
}

/// What is in the catalogue when it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogueSize {
    pub books: usize,
    pub orders: usize,
    pub readers: usize,
}

/// Makes the catalogue, or what is missing of it, through the proxy at `proxy_url`. `progress` is told each step before it
/// begins.
pub async fn load(
    proxy_url: &str,
    shards: &[ShardAddress],
    progress: impl Fn(&str) + Send + Sync,
) -> Result<CatalogueSize, CatalogueError> {
    let options: PgConnectOptions = proxy_url.parse().map_err(CatalogueError::Connect)?;
    let connection = Box::pin(options.log_slow_statements(tracing::log::LevelFilter::Off, Duration::ZERO).connect()).await;
    let mut loader = Loader { connection: connection.map_err(CatalogueError::Connect)? };
    progress("adding the shards");
    loader.add_shards(shards).await?;
    progress("creating and declaring the tables");
    loader.declare(shards.len()).await?;
    loader.split_orders().await?;
    progress("loading the rows");
    let size = loader.load_rows().await?;
    loader.connection.close().await.map_err(CatalogueError::Connect)?;
    Ok(size)
}

struct Loader {
    connection: PgConnection,
}

impl Loader {
    async fn add_shards(&mut self, shards: &[ShardAddress]) -> Result<(), CatalogueError> {
        for ShardAddress { name, url } in shards {
            self.declare_once(&format!("SELECT shardgate.add_shard('{}', '{}')", doubled(name), doubled(url))).await?;
        }
        Ok(())
    }

    async fn declare(&mut self, shard_count: usize) -> Result<(), CatalogueError> {
        // Beside a move that waits out its grace period no schema changes, not even to what it is already.
        self.load_unless(LAST_OF_SCHEMA, &statements::split_script(statements::SCHEMA)).await?;
        if !self.is_declared("languages").await? {
            for statement in statements::split_script(statements::LANGUAGES) {
                self.run(&statement).await?;
            }
        }
        for statement in statements::split_script(statements::DECLARE) {
            if !self.is_mapped(&statement).await? {
                self.declare_once(&on_present_shards(&statement, shard_count)).await?;
            }
        }
        Ok(())
    }

    /// It maps a key that is mapped already, perhaps to another shard: it may have moved.
    async fn is_mapped(&mut self, statement: &str) -> Result<bool, CatalogueError> {
        let Some(key) = statement.strip_prefix(MAP_KEY).and_then(|rest| rest.split('\'').next()) else { return Ok(false) };
        let query = format!(
            "SELECT k.key FROM shardgate.lookup_keys k JOIN shardgate.tables t USING (colocation_group) \
             WHERE t.table_name = 'books' AND k.key = '{key}'"
        );
        Ok(!self.rows(&query).await?.is_empty())
    }

    async fn is_declared(&mut self, table: &str) -> Result<bool, CatalogueError> {
        let query = format!("SELECT kind FROM shardgate.tables WHERE table_name = '{table}' AND kind <> 'home'");
        Ok(!self.rows(&query).await?.is_empty())
    }

    /// Splits the partition that holds the first of each month there, unless one begins there already.
    async fn split_orders(&mut self) -> Result<(), CatalogueError> {
        let query = "SELECT p.partition_id, p.low, p.high FROM shardgate.partitions p \
                     JOIN shardgate.tables t ON t.colocation_group = p.colocation_group WHERE t.table_name = 'orders'";
        for bound in statements::month_bounds() {
            let mut holder = None;
            for row in self.rows(query).await? {
                let piece = Piece::read(&row).map_err(|source| failed(query, source))?;
                // Dates in ISO form sort as text.
                if piece.low.as_deref().is_none_or(|low| *low <= *bound) && piece.high.as_deref().is_none_or(|high| *bound < *high)
                {
                    holder = Some(piece);
                }
            }
            match holder {
                None => return Err(CatalogueError::NoPartition { bound }),
                Some(piece) if piece.low.as_deref() == Some(bound.as_str()) => {}
                Some(piece) => self.run(&format!("SELECT shardgate.split_partition({}, '{bound}')", piece.partition_id)).await?,
            }
        }
        Ok(())
    }

    async fn load_rows(&mut self) -> Result<CatalogueSize, CatalogueError> {
        let books = records::books();
        for (character, group) in CHECK_CHARACTERS.iter().zip(&books) {
            let inserts = [statements::insert_books(group), statements::insert_catalog(group)].concat();
            let last = group.last().map(|book| book.isbn.as_str()).unwrap_or_default();
            let is_loaded =
                format!("SELECT isbn FROM library_of_congress_catalog WHERE isbn = '{last}' AND right(isbn, 1) = '{character}'");
            self.load_unless(&is_loaded, &inserts).await?;
        }
        let orders = records::orders(&books);
        for group in &orders {
            let Some(last) = group.last() else { continue };
            let is_loaded = format!("SELECT id FROM orders WHERE ordered_on = '{}' AND id = {}", last.ordered_on, last.id);
            self.load_unless(&is_loaded, &statements::insert_orders(group)).await?;
        }
        let readers = records::readers();
        self.load_readers(&readers).await?;
        Ok(CatalogueSize {
            books: books.iter().map(Vec::len).sum(),
            orders: orders.iter().map(Vec::len).sum(),
            readers: readers.len(),
        })
    }

    /// The statements of a group in order, unless the row that the last of them writes is there.
    async fn load_unless(&mut self, is_loaded: &str, inserts: &[String]) -> Result<(), CatalogueError> {
        if self.rows(is_loaded).await?.is_empty() {
            for insert in inserts {
                self.run(insert).await?;
            }
        }
        Ok(())
    }

    /// One at a time, by a prepared statement: the rows of neighbouring readers lie on different shards.
    async fn load_readers(&mut self, readers: &[records::Reader]) -> Result<(), CatalogueError> {
        let Some(last) = readers.last() else { return Ok(()) };
        if !self.rows(&format!("SELECT id FROM readers WHERE id = {}", last.id)).await?.is_empty() {
            return Ok(());
        }
        let insert = "INSERT INTO readers (id, name, joined_on) VALUES ($1, $2, $3::text::date) ON CONFLICT DO NOTHING";
        for reader in readers {
            let query = sqlx::query(insert).bind(i64::from(reader.id)).bind(&reader.name).bind(&reader.joined_on);
            query.execute(&mut self.connection).await.map_err(|source| failed(insert, source))?;
        }
        Ok(())
    }

    /// Declaring what is declared already is no failure here.
    async fn declare_once(&mut self, statement: &str) -> Result<(), CatalogueError> {
        match self.run(statement).await {
            Err(CatalogueError::Statement { source: sqlx::Error::Database(error), .. })
                if error.code().as_deref() == Some(DUPLICATE_OBJECT) =>
            {
                Ok(())
            }
            outcome => outcome,
        }
    }

    async fn run(&mut self, statement: &str) -> Result<(), CatalogueError> {
        self.rows(statement).await.map(|_| ())
    }

    async fn rows(&mut self, statement: &str) -> Result<Vec<PgRow>, CatalogueError> {
        let query = sqlx::raw_sql(AssertSqlSafe(statement.to_owned()));
        query.fetch_all(&mut self.connection).await.map_err(|source| failed(statement, source))
    }
}

struct Piece {
    partition_id: i32,
    low: Option<String>,
    high: Option<String>,
}

impl Piece {
    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Piece { partition_id: row.try_get(0)?, low: row.try_get(1)?, high: row.try_get(2)? })
    }
}

fn failed(statement: &str, source: sqlx::Error) -> CatalogueError {
    CatalogueError::Statement { statement: statement.lines().next().unwrap_or_default().to_owned(), source }
}

/// The scripts name three shards; with fewer, the third one's part goes to the first, and so on.
fn on_present_shards(statement: &str, shard_count: usize) -> String {
    (shard_count.max(1)..SCRIPTED_SHARDS).fold(statement.to_owned(), |statement, missing| {
        statement.replace(&shard_name(missing), &shard_name(missing % shard_count.max(1)))
    })
}

/// `bookdbshard0` and on.
pub fn shard_name(shard: usize) -> String {
    format!("bookdbshard{shard}")
}

fn doubled(text: &str) -> String {
    text.replace('\'', "''")
}

const SCRIPTED_SHARDS: usize = 3;
/// How a key is mapped in `declare.sql`, up to the key.
const MAP_KEY: &str = "SELECT shardgate.map_key('books', '";
/// What `schema.sql` makes last.
const LAST_OF_SCHEMA: &str =
    "SELECT indexname FROM pg_catalog.pg_indexes WHERE schemaname = 'public' AND indexname = 'orders_isbn_idx'";
/// SQLSTATE duplicate_object.
const DUPLICATE_OBJECT: &str = "42710";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_knows_by_its_last_object_that_the_schema_is_there() {
        let last = statements::split_script(statements::SCHEMA).pop().unwrap_or_default();
        assert!(last.contains("orders_isbn_idx") && LAST_OF_SCHEMA.contains("'orders_isbn_idx'"), "{last}");
        let maps = |statement: &&String| statement.starts_with(MAP_KEY);
        assert_eq!(statements::split_script(statements::DECLARE).iter().filter(maps).count(), CHECK_CHARACTERS.len());
    }

    #[test]
    fn with_fewer_shards_the_scripts_use_those_that_are_there() {
        let statement = "SELECT shardgate.map_key('books', '6', 'bookdbshard2')";
        assert_eq!(on_present_shards(statement, 3), statement);
        assert_eq!(on_present_shards(statement, 2), "SELECT shardgate.map_key('books', '6', 'bookdbshard0')");
        assert_eq!(on_present_shards(statement, 1), "SELECT shardgate.map_key('books', '6', 'bookdbshard0')");
    }
}
