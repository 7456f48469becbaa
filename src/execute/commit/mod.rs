//! Commits a transaction that has written on several shards: on all of them, or on none, whoever dies when.
//!
//! Last-resource commit: all writers but one PREPARE TRANSACTION; the last one, the *decider*, writes a row with the
//! transaction's name and commits in one Query: that local commit is the decision. Then COMMIT PREPARED on the others. The row is
//! what every proxy reads to finish what another has left ([`super::recovery`]), so nothing depends on a proxy's disk.
//!
//! * [`rules`]: what is said and what the answers mean, pure · [`commit`]: the steps, on connections that the session lends
//! * [`TransactionId`], [`Secret`]: names · [`Registry`]: what is under way in this process ·
//!   [`Places`]: how much may be
//!
//! One writing shard needs none of this and never comes here.

mod answer;
mod places;
mod registry;
pub mod rules;
mod run;
mod transaction_id;

pub use answer::{Answer, End, ask, ask_one};
pub use places::{Places, TakenPlaces, Wanted};
pub use registry::{Active, Registry};
pub use run::{Fallback, Finished, Limits, Outcome, Report, Writer, commit, report_lost_part};
pub use transaction_id::{Secret, TransactionId};
