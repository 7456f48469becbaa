//! How far moves are, while they are followed: a bar each on a terminal; elsewhere a line for each change, and now and then.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

use super::{RebalanceError, units};
use crate::shardmap::{Move, MoveState};

/// Of all moves that one command follows. On standard error, so that what is printed at the end can be kept.
#[derive(Clone)]
pub(super) enum ProgressDisplay {
    Bars(MultiProgress),
    Lines,
    /// For machines there is the end alone.
    Silent,
    /// The same of several moves, whose ends make one list.
    Collected(Arc<Mutex<Vec<serde_json::Value>>>),
}

/// Of one move. The bar vanishes with it.
pub(super) struct MoveProgress {
    display: ProgressDisplay,
    bar: Option<ProgressBar>,
    last: Option<(MoveState, Option<String>, Instant)>,
}

impl ProgressDisplay {
    pub fn new(is_json: bool) -> Self {
        match (is_json, io::stderr().is_terminal()) {
            (true, _) => Self::Silent,
            (false, true) => Self::Bars(MultiProgress::new()),
            (false, false) => Self::Lines,
        }
    }

    /// Of a command that follows several moves.
    pub fn of_several(is_json: bool) -> Self {
        if is_json { Self::Collected(Arc::default()) } else { Self::new(false) }
    }

    /// What a move has come to.
    pub fn end(&self, json: serde_json::Value, text: &str) -> Result<(), RebalanceError> {
        let text = match self {
            Self::Collected(ends) => {
                ends.lock().push(json);
                return Ok(());
            }
            Self::Silent => serde_json::to_string_pretty(&json)? + "\n",
            Self::Bars(_) | Self::Lines => text.to_owned(),
        };
        write(&text)
    }

    /// The list, where one is made.
    pub fn close(&self) -> Result<(), RebalanceError> {
        match self {
            Self::Collected(ends) => write(&(serde_json::to_string_pretty(&*ends.lock())? + "\n")),
            Self::Bars(_) | Self::Lines | Self::Silent => Ok(()),
        }
    }

    pub fn of_move(&self) -> MoveProgress {
        MoveProgress { display: self.clone(), bar: None, last: None }
    }
}

impl MoveProgress {
    pub fn show(&mut self, now: &Move) -> io::Result<()> {
        match &self.display {
            ProgressDisplay::Silent | ProgressDisplay::Collected(_) => Ok(()),
            ProgressDisplay::Lines => self.print_line(now),
            ProgressDisplay::Bars(all) => {
                let unseen = || ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
                let bar = self.bar.get_or_insert_with(|| all.add(unseen()));
                bar.set_style(style(now));
                bar.set_prefix(format!("move {} {} -> {}: {}", now.id.0, now.source, now.target, now.state.name()));
                bar.set_message(what_delays(now));
                bar.set_length(of_map(now.bytes_expected.unwrap_or_default()).max(of_map(now.bytes_copied)));
                bar.set_position(of_map(now.bytes_copied));
                bar.tick();
                Ok(())
            }
        }
    }

    fn print_line(&mut self, now: &Move) -> io::Result<()> {
        let is_news = self.last.as_ref().is_none_or(|(state, error, printed_at)| {
            *state != now.state || *error != now.error || printed_at.elapsed() >= LINE_INTERVAL
        });
        if !is_news {
            return Ok(());
        }
        self.last = Some((now.state, now.error.clone(), Instant::now()));
        let copied = units::bytes(of_map(now.bytes_copied));
        let expected = units::bytes(of_map(now.bytes_expected.unwrap_or_default()));
        let delays = what_delays(now);
        writeln!(io::stdout().lock(), "move {} {}, {copied} of about {expected}{delays}", now.id.0, now.state.name())
    }
}

fn write(text: &str) -> Result<(), RebalanceError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

impl Drop for MoveProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Rate and time left count while the copy runs. Before, it is not known how much there is.
fn style(now: &Move) -> ProgressStyle {
    let template = match now.state {
        MoveState::Planned | MoveState::Preparing => "{prefix}{wide_msg}",
        MoveState::Copying => "{prefix} [{bar:20}] {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left{wide_msg}",
        _ => "{prefix} [{bar:20}] {bytes} of {total_bytes}{wide_msg}",
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// `, 3 MiB behind: waits for …`, or nothing.
fn what_delays(now: &Move) -> String {
    let lag = now.lag_bytes.filter(|lag| *lag > 0 && !now.state.has_switched());
    let lag = lag.map(|lag| format!(", {} behind", units::bytes(of_map(lag)))).unwrap_or_default();
    let reason = now.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
    format!("{lag}{reason}")
}

fn of_map(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default()
}

/// From one line to the next while nothing but the numbers changes.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
