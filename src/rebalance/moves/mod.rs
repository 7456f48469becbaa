//! Online moves: a set of partitions of one group goes from one shard to another while statements run.
//!
//! ```text
//! planned ─► preparing ─► copying ─► catching_up ◄──────┐
//!    │           │           │        │   ▲  │          │ verified
//!    │           │           │        │   │  └► verifying
//!    │           │           │        ▼   │ released
//!    │           └───────────┴─────► aborting ─► aborted        cutting_over ◄─ catching_up
//!    └─ a finding: aborted                                          │ the switch
//!                                                                   ▼
//!                                        rollback: cutting_over ◄─► switched ─► cleaning_up ─► done
//!                                                  │ the switch back
//!                                                  ▼
//!                                              aborting ─► aborted
//! ```
//! PostgreSQL's logical replication copies and follows. What keeps the answers right meanwhile is not here: proxies leave out rows
//! that a shard does not own (`sql::residues`), wait while a set is held, and tell when no statement of an older map runs. What is
//! here makes sure of the order: the residue is known before the first row is copied; the gates in the shards refuse writers of
//! an older map; a marker proves that everything has arrived, and a commit at the target that it is durable; the switch is one
//! compare-and-set in the map; the source's rows are deleted when nobody can see them and nothing publishes it.
//!
//! After the switch the source's copies follow the target (`reverse`), so that the set can go back by the same steps with source and
//! target exchanged, until the move is finished.
//!
//! Where one of both shards is lost for good a person gives the move up: it ends without it, if the other one owns the set (`given_up`).
//!
//! A crash before a switch leads back, after it forward, in both cases without a person: [`drive`] begins where the map says
//! the move stands. Every act on a shard is one message that proves its driver's term (`site`).

pub mod background;
pub(super) mod comparison;
pub mod covering_views;
pub mod drive;
pub(super) mod fencing;
pub mod preflight;
pub(super) mod replication;

mod copy_slots;
mod deletion;
mod direction;
mod estimate;
mod gates;
pub(super) mod given_up;
mod key_set;
mod liveness;
mod marker;
mod moved_table;
mod moving;
mod objects;
mod one_sided;
mod patience;
mod pause;
mod references;
mod reverse;
mod servers;
mod set_aside;
pub(super) mod site;
mod states;
mod stop;
mod terms;
mod verify;
