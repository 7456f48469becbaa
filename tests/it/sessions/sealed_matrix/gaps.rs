//! Cells in which the session itself is known to see something else than in PostgreSQL. What another client sees is no gap, but for
//! a slot, which is everybody's, and for statements that are refused.

use super::cells::{Cell, PoolMode};
use super::ends::End;
use super::kinds::NOTHING_MORE;
use super::ways::Way;

pub struct Gap {
    /// What is wrong there.
    pub what: &'static str,
    pub is_of: fn(&Cell) -> bool,
    /// Who sees it, as the failure says.
    pub who: &'static str,
}

const ITSELF: &str = "the session";

pub const GAPS: &[Gap] = &[
    Gap {
        what: "what a function sets while a schema change evaluates it is gone with the connection",
        is_of: |cell| {
            matches!(cell.way, Way::AddedConstraint | Way::CreateTableAs) && cell.configuration.mode == PoolMode::Transaction
        },
        who: ITSELF,
    },
    Gap {
        what: "DEALLOCATE ALL in a function that a schema change evaluates does not drop the client's own",
        is_of: |cell| cell.way == Way::AddedConstraint && cell.kind.name == "DEALLOCATE ALL",
        who: ITSELF,
    },
    Gap {
        what: "a custom name that only a rolled back statement has set is NULL again, and not the empty text",
        is_of: |cell| cell.kind.name.starts_with("custom name") && !matches!(cell.end, End::Alone | End::Commit),
        who: ITSELF,
    },
    Gap {
        what: "what lives on one connection and is made by a cast or the check of a domain ends with the statement",
        is_of: |cell| is_made_by_type(cell) && cell.kind.effect != NOTHING_MORE,
        who: ITSELF,
    },
    Gap {
        what: "the same, of a replication slot, which every client sees as long as it is there",
        is_of: |cell| cell.kind.name == "temporary slot" && is_made_by_type(cell),
        who: "the client beside",
    },
    Gap { what: REFUSED, is_of: is_implicit_beside_sharded, who: "the client beside" },
    Gap { what: REFUSED, is_of: is_implicit_beside_sharded, who: "the next client" },
];

/// Nothing but refusals may differ there.
pub const REFUSED: &str =
    "beside sharded tables every statement that an implicit cast may take part in is refused while its function sets something";

fn is_implicit_beside_sharded(cell: &Cell) -> bool {
    cell.way == Way::ImplicitCast && cell.configuration.is_distributed
}

fn is_made_by_type(cell: &Cell) -> bool {
    matches!(cell.way, Way::DomainCheck | Way::ExplicitCast | Way::ImplicitCast | Way::AssignmentCast)
}
