//! Named points in a commit over several shards, or in a move, at which a test may kill or hold the process.
//!
//! A point is armed by a file of its name in the directory that `SHARDGATE_FAILPOINTS` gives: with the text `abort` the process
//! ends there as if killed; with `panic` what has come there panics; with `hold` a file `<name>.reached` appears and the process
//! waits until the first one is gone. In a release build none of this exists.

#[cfg(debug_assertions)]
use std::path::PathBuf;

/// Where armed points are looked for.
pub struct Failpoints {
    #[cfg(debug_assertions)]
    directory: Option<PathBuf>,
}

impl Failpoints {
    #[cfg(debug_assertions)]
    pub fn from_environment() -> Self {
        Self { directory: std::env::var_os("SHARDGATE_FAILPOINTS").map(PathBuf::from) }
    }

    #[cfg(not(debug_assertions))]
    pub fn from_environment() -> Self {
        Self {}
    }

    /// The point of one participant.
    pub async fn reach_at(&self, name: &str, participant: usize) {
        if self.is_on() {
            self.reach(&format!("{name}.{participant}")).await;
        }
    }

    #[cfg(debug_assertions)]
    pub async fn reach(&self, name: &str) {
        let Some(directory) = &self.directory else { return };
        let armed = directory.join(name);
        let Ok(action) = std::fs::read_to_string(&armed) else { return };
        if action.trim() == "abort" {
            std::process::abort();
        }
        assert!(action.trim() != "panic", "a failpoint panics");
        if let Err(error) = std::fs::write(directory.join(format!("{name}.reached")), "") {
            tracing::error!(name, %error, "a failpoint could not say that it was reached");
        }
        while armed.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }

    #[cfg(not(debug_assertions))]
    #[expect(clippy::unused_async, reason = "the same signature as in a debug build")]
    pub async fn reach(&self, _name: &str) {}

    /// Is a planted mistake asked for?
    #[cfg(debug_assertions)]
    pub fn has_planted(&self, name: &str) -> bool {
        self.is_armed(&format!("planted.{name}"))
    }

    #[cfg(not(debug_assertions))]
    pub fn has_planted(&self, _name: &str) -> bool {
        false
    }

    #[cfg(debug_assertions)]
    pub fn is_armed(&self, name: &str) -> bool {
        self.directory.as_ref().is_some_and(|directory| directory.join(name).exists())
    }

    #[cfg(not(debug_assertions))]
    pub fn is_armed(&self, _name: &str) -> bool {
        false
    }

    #[cfg(debug_assertions)]
    fn is_on(&self) -> bool {
        self.directory.is_some()
    }

    #[cfg(not(debug_assertions))]
    fn is_on(&self) -> bool {
        false
    }
}
