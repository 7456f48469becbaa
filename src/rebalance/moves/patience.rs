//! How long a driver waits for answers that ought to come soon: for a side to be opened, and for all that is done while statements are held.
//!
//! What does not come in time is given up with its connections, and the next turn asks by new ones under a higher term: what is under way
//! comes before it, or too late. A system that is only slow would never get through that way, so each repetition has twice the time of the one
//! before, up to a limit. How often a state was too slow stands in the move's journal, and what is allowed next in its report.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::timeout;

use super::stop::Stop;
use crate::shardmap::{Move, MoveState};

/// Of one state of one cut-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience {
    /// How often it was not enough.
    times: u32,
}

/// In the journal.
#[derive(Debug, Serialize, Deserialize)]
struct Slow {
    state: String,
    attempt: i32,
    times: u32,
}

impl Patience {
    pub(super) fn of(the_move: &Move) -> Self {
        Self::known(&the_move.journal, (the_move.state, the_move.attempts))
    }

    fn known(journal: &serde_json::Value, (state, attempt): (MoveState, i32)) -> Self {
        let slow = journal.get(SLOW).and_then(|slow| Slow::deserialize(slow).ok());
        Self { times: slow.filter(|slow| slow.state == state.name() && slow.attempt == attempt).map_or(0, |slow| slow.times) }
    }

    /// While statements are held.
    pub(super) fn if_held(the_move: &Move) -> Option<Self> {
        the_move.holds().then(|| Self::of(the_move))
    }

    /// For opening a side.
    pub(super) fn opening(self) -> Duration {
        OPENING_MAX * self.factor()
    }

    /// For a turn while statements are held.
    fn held(self) -> Duration {
        HELD_TURN_MAX * self.factor()
    }

    fn factor(self) -> u32 {
        1 << self.times.min(DOUBLED_MAX)
    }

    fn longer(self) -> Self {
        Self { times: self.times.saturating_add(1) }
    }

    /// What the next turn of the move has to know; it is in this state now.
    pub(super) fn to_remember(self, (state, attempts): (MoveState, i32)) -> serde_json::Value {
        json!({ SLOW: Slow { state: state.name().to_owned(), attempt: attempts, times: self.longer().times } })
    }

    fn too_slow_while_held(self) -> Stop {
        let (waited, next) = (self.held().as_secs(), self.longer().held().as_secs());
        Stop::Slow(format!("no answer came within {waited} s while statements were held; the next time may take {next} s"))
    }

    pub(super) fn too_slow(self, what: &str) -> Stop {
        let next = self.longer().opening().as_secs();
        Stop::Slow(format!("{what} within {} s; the next time may take {next} s", self.opening().as_secs()))
    }
}

/// `None`: statements are not held, and it may take as long as it likes.
pub(super) async fn bounded_if_held<T>(patience: Option<Patience>, work: impl Future<Output = Result<T, Stop>>) -> Result<T, Stop> {
    let Some(patience) = patience else { return work.await };
    timeout(patience.held(), work).await.unwrap_or_else(|_| Err(patience.too_slow_while_held()))
}

const SLOW: &str = "slow";
const OPENING_MAX: Duration = Duration::from_secs(5);
const HELD_TURN_MAX: Duration = Duration::from_secs(10);
/// To 40 and 80 seconds.
const DOUBLED_MAX: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_repetition_has_twice_the_time_up_to_a_limit() {
        let now = (MoveState::CuttingOver, 3);
        let mut journal = json!({});
        let mut allowed = Vec::new();
        for _ in 0..6 {
            let patience = Patience::known(&journal, now);
            allowed.push((patience.opening().as_secs(), patience.held().as_secs()));
            journal = patience.to_remember(now);
        }
        assert_eq!(allowed, [(5, 10), (10, 20), (20, 40), (40, 80), (40, 80), (40, 80)]);
        assert_eq!(Patience::known(&json!({ "slow": "?" }), now), Patience { times: 0 });
    }

    #[test]
    fn another_state_and_another_attempt_begin_again() {
        let journal = Patience { times: 1 }.to_remember((MoveState::CuttingOver, 3));
        assert_eq!(Patience::known(&journal, (MoveState::CuttingOver, 3)), Patience { times: 2 });
        assert_eq!(Patience::known(&journal, (MoveState::CuttingOver, 4)), Patience { times: 0 });
        assert_eq!(Patience::known(&journal, (MoveState::Switched, 3)), Patience { times: 0 });
    }

    #[test]
    fn what_is_too_slow_says_what_is_allowed_next() {
        let told = Patience { times: 1 }.too_slow_while_held();
        let expected = "no answer came within 20 s while statements were held; the next time may take 40 s";
        assert_eq!(told, Stop::Slow(expected.to_owned()));
        let told = Patience { times: 0 }.too_slow("shard \"b\" does not answer");
        assert_eq!(told, Stop::Slow("shard \"b\" does not answer within 5 s; the next time may take 10 s".to_owned()));
    }
}
