//! Connections to shards: opening them, pooling them, proving them clean, and what is known of a shard's health.
//!
//! A connection is owned by one session at a time, which reads and writes its socket itself: there is no task and no channel
//! between a client and a shard. A connection goes back to its pool only when it is proven clean ([`Connection::is_clean`]);
//! anything else closes it. Nothing here knows SQL beyond the few statements that reset a connection. What a shard runs comes as a
//! [`ShardText`], which says why it may run there.

mod apply;
pub mod catalog_reader;
mod connection;
mod foreign_oids;
mod health;
pub mod identity;
mod open;
mod output;
mod pending;
mod pool;
mod prepared;
mod registration;
mod reset;
pub mod schema_reader;
mod settings;
mod shard_text;
mod target;
pub mod temporary_tables;
mod two_primaries;

pub use connection::{CANCEL_TIMEOUT, CancelHandle, Connection, ConnectionError, ConnectionLimits, Frame};
pub use foreign_oids::{ForeignOids, NestedValues, Nesting, OID_NAMES_SQL, OidName, OidNames, is_record, is_user_type};
pub use health::{Backoff, Health};
pub use open::{OpenError, open};
pub use output::{Output, StatementName};
pub use pending::{Pending, Reply};
pub use pool::{Checkout, CheckoutError, Pool, PoolLimits, PoolState, Pooled, Pools};
pub use prepared::{ColumnsDigest, PreparedStatements, StatementId, StatementRegistry, StatementText};
use settings::Setter;
pub use settings::{CustomNames, STATEMENT_TIMEOUT, Settings};
pub use shard_text::{Own, ShardText, Stored};
pub use target::{AddressError, ShardAddress};
pub use two_primaries::two_primaries;
