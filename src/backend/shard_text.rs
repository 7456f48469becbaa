//! What a shard is sent: a text together with the reason why it may run there.
//!
//! A shard may hold rows that it does not own. So no text reaches a connection without saying why it cannot see them, or why it
//! may: [`ShardText`] is built from a reason, and [`super::Output`] takes nothing else. A reason of routing is made by routing
//! alone, a covered text by `sql::residues` alone.
//!
//! ```compile_fail
//! use shardgate::backend::ShardText;
//! let text = ShardText { sql: b"SELECT * FROM orders" };
//! ```
//!
//! ```compile_fail
//! use shardgate::backend::Connection;
//! fn send(connection: &mut Connection) {
//!     connection.output.query("SELECT * FROM orders");
//! }
//! ```
//!
//! ```compile_fail
//! use shardgate::routing::{Pinned, Proof};
//! let proof = Proof::Pinned(Pinned(()));
//! ```
//!
//! ```
//! use shardgate::backend::{Connection, Own};
//! fn send(connection: &mut Connection) {
//!     connection.output.query(&Own::Transaction.text("BEGIN"));
//! }
//! ```

use bytes::Bytes;

use crate::error::PgError;
use crate::routing::{Proof, Reach};
use crate::sql::Context;
use crate::sql::residues::{Covered, cover};

/// A text that may run on the shard that it is sent to.
#[derive(Clone, Debug)]
pub struct ShardText<'a> {
    sql: Sql<'a>,
}

#[derive(Clone, Debug)]
enum Sql<'a> {
    Borrowed(&'a [u8]),
    Covered(Covered),
}

impl<'a> ShardText<'a> {
    /// Routing has proven it of this text.
    #[inline]
    pub fn proven(sql: &'a [u8], _proof: Proof) -> Self {
        Self::as_it_is(sql)
    }

    #[inline]
    fn as_it_is(sql: &'a [u8]) -> Self {
        Self { sql: Sql::Borrowed(sql) }
    }

    /// Rows that are not owned are excluded.
    pub fn covered(covered: &Covered) -> Self {
        Self { sql: Sql::Covered(covered.clone()) }
    }

    /// As routing says: as it is where that is proven, covered where it is not. `context`: by which its names are read.
    #[inline]
    pub fn of(reach: &Reach, sql: &'a [u8], context: &Context) -> Result<Self, PgError> {
        match reach.proof() {
            Some(proof) => Ok(Self::proven(sql, proof)),
            None => Ok(Self::covered(&cover(Bytes::copy_from_slice(sql), context, reach.map())?)),
        }
    }

    /// `None`: it is as it was.
    pub fn covering(&self) -> Option<&Covered> {
        match &self.sql {
            Sql::Borrowed(_) => None,
            Sql::Covered(covered) => Some(covered),
        }
    }

    /// Empty where it is not in UTF-8.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        match &self.sql {
            Sql::Borrowed(sql) => sql,
            Sql::Covered(covered) => covered.text(),
        }
    }
}

/// What a text of the proxy's own does. None of them reads rows of a table of the users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// Begins and ends transactions and savepoints, prepares them, and finishes what is prepared.
    Transaction,
    /// Sets or shows settings, or asks for a role.
    Setting,
    /// Reads the system catalogues, or asks the server about itself.
    Catalog,
    /// Computes from constants and parameters alone.
    Constants,
    /// Plans or prepares a text, without running it.
    Plan,
    /// Works on tables that the proxy makes for itself: temporary ones, and those of the schema `shardgate`.
    OwnTables,
    /// Draws from sequences, or sets them.
    Sequence,
    /// LISTEN and UNLISTEN.
    Listen,
    /// Says something of a cursor or a prepared statement, whose own text was sealed when it was sent.
    Cursor,
    /// Locks tables, whatever their rows are.
    Lock,
}

impl Own {
    #[inline]
    pub fn text<T: AsRef<[u8]> + ?Sized>(self, sql: &T) -> ShardText<'_> {
        ShardText::as_it_is(sql.as_ref())
    }
}

/// Why a text is to see rows as they are stored, owned or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// A change of the schema concerns the whole table of each shard.
    SchemaChange,
}

impl Stored {
    pub fn text<T: AsRef<[u8]> + ?Sized>(self, sql: &T) -> ShardText<'_> {
        ShardText::as_it_is(sql.as_ref())
    }
}
