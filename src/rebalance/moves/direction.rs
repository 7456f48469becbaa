//! Which way rows follow: from the source to the target until the switch, and back after it, so that the move can be rolled back.
//!
//! The owner of the set publishes, the other side subscribes. Both directions never run at the same time: forward replication has
//! ended before the reverse subscription is made.

use super::moving::Moving;
use super::site::Site;
use crate::shardmap::{Move, MoveId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Back,
}

impl Direction {
    /// Of a cut-over.
    pub(super) fn of(the_move: &Move) -> Self {
        if the_move.is_rollback { Direction::Back } else { Direction::Forward }
    }

    /// Of publication, slot and subscription.
    pub(super) fn name(self, id: MoveId) -> String {
        match self {
            Direction::Forward => format!("shardgate_move_{}", id.0),
            Direction::Back => format!("shardgate_move_{}_back", id.0),
        }
    }

    /// The markers that are sent this way. They have different signs, so that none is sent back.
    pub(super) fn marker_condition(self, id: MoveId) -> String {
        match self {
            Direction::Forward => format!("move_id = {} AND number > 0", id.0),
            Direction::Back => format!("move_id = {} AND number < 0", id.0),
        }
    }

    /// For messages.
    pub(super) fn purpose(self) -> &'static str {
        match self {
            Direction::Forward => "copy",
            Direction::Back => "way back",
        }
    }

    pub(super) fn publisher(self, the_move: &Move) -> &str {
        match self {
            Direction::Forward => &the_move.source,
            Direction::Back => &the_move.target,
        }
    }
}

impl Moving {
    pub(super) fn publisher(&mut self, direction: Direction) -> &mut Site {
        match direction {
            Direction::Forward => &mut self.source,
            Direction::Back => &mut self.target,
        }
    }

    pub(super) fn subscriber(&mut self, direction: Direction) -> &mut Site {
        match direction {
            Direction::Forward => &mut self.target,
            Direction::Back => &mut self.source,
        }
    }

    /// The publisher and the subscriber.
    pub(super) fn sides(&mut self, direction: Direction) -> (&mut Site, &mut Site) {
        match direction {
            Direction::Forward => (&mut self.source, &mut self.target),
            Direction::Back => (&mut self.target, &mut self.source),
        }
    }

    /// How the subscriber reaches the publisher, as libpq takes it. Holds a password: never logged.
    pub(super) fn connection(&self, direction: Direction) -> &str {
        match direction {
            Direction::Forward => &self.to_source,
            Direction::Back => &self.to_target,
        }
    }
}
