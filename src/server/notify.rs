//! Tells the service manager how the proxy is: systemd's notification protocol, datagrams to the socket that `NOTIFY_SOCKET` names.
//!
//! * `READY=1` when clients are accepted, and after each reload that `RELOADING=1` has announced
//! * `STOPPING=1` when the drain begins
//! * `WATCHDOG=1` twice in the time that `WATCHDOG_USEC` gives, as long as every thread that serves clients turns: a thread that is stuck
//!   lets the manager restart the proxy
//!
//! Without a manager nothing is said. What cannot be said is logged and changes nothing.

#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio_util::sync::CancellationToken;

#[derive(Clone, Debug)]
pub(super) struct Notifier {
    socket: Option<Arc<(UnixDatagram, SocketAddr)>>,
    /// How often the manager wants to hear of the watchdog.
    watchdog: Option<Duration>,
}

impl Notifier {
    pub(super) fn from_environment() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        Self::new(variable("NOTIFY_SOCKET").as_deref(), variable("WATCHDOG_USEC").as_deref(), variable("WATCHDOG_PID").as_deref())
    }

    fn new(socket: Option<&str>, watchdog_usec: Option<&str>, watchdog_pid: Option<&str>) -> Self {
        let socket = socket.and_then(|path| match open(path) {
            Ok(socket) => Some(Arc::new(socket)),
            Err(error) => {
                tracing::warn!(%error, "the service manager's socket (NOTIFY_SOCKET) cannot be used");
                None
            }
        });
        // Meant for another process: the manager's variables are inherited.
        let is_meant = watchdog_pid.is_none_or(|pid| pid.parse() == Ok(std::process::id()));
        let microseconds = watchdog_usec.filter(|_| is_meant).and_then(|text| text.parse::<u64>().ok());
        let watchdog = microseconds.filter(|microseconds| *microseconds > 0).map(Duration::from_micros);
        Self { socket, watchdog }
    }

    pub(super) fn ready(&self) {
        self.say("READY=1");
    }

    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1000));
    }

    pub(super) fn stopping(&self) {
        self.say("STOPPING=1");
    }

    fn say(&self, state: &str) {
        let Some((socket, address)) = self.socket.as_deref() else { return };
        if let Err(error) = socket.send_to_addr(state.as_bytes(), address) {
            tracing::debug!(%error, state, "the service manager was not told");
        }
    }

    /// Until `end`: while all pulses beat.
    pub(super) async fn keep_watchdog(self, pulses: Vec<Arc<Pulse>>, end: CancellationToken) {
        let Some(interval) = self.watchdog.filter(|_| self.socket.is_some()) else { return };
        let mut was_beating = true;
        loop {
            let is_beating = pulses.iter().all(|pulse| pulse.beats_within(interval));
            if is_beating {
                self.say("WATCHDOG=1");
            } else if was_beating {
                tracing::error!(
                    "a thread that serves clients does not turn: the service manager's watchdog is not told that all is well"
                );
            }
            was_beating = is_beating;
            tokio::select! {
                () = end.cancelled() => return,
                () = tokio::time::sleep(interval / 2) => {}
            }
        }
    }
}

/// Of one thread: when its runtime has turned last.
#[derive(Debug)]
pub(super) struct Pulse {
    began_at: Instant,
    beaten_at_ms: AtomicU64,
}

impl Pulse {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { began_at: Instant::now(), beaten_at_ms: AtomicU64::new(0) })
    }

    pub(super) async fn beat(&self) {
        loop {
            let now = u64::try_from(self.began_at.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.beaten_at_ms.store(now, Ordering::Relaxed);
            tokio::time::sleep(BEAT_EVERY).await;
        }
    }

    /// Far more than one beat is left out before it counts.
    fn beats_within(&self, interval: Duration) -> bool {
        let beaten_at = Duration::from_millis(self.beaten_at_ms.load(Ordering::Relaxed));
        self.began_at.elapsed().saturating_sub(beaten_at) < interval.max(BEAT_EVERY * 10)
    }
}

/// A path, or a name behind `@` that is in no directory.
fn open(path: &str) -> std::io::Result<(UnixDatagram, SocketAddr)> {
    let address = match path.strip_prefix('@') {
        #[cfg(target_os = "linux")]
        Some(name) => SocketAddr::from_abstract_name(name)?,
        #[cfg(not(target_os = "linux"))]
        Some(_) => return Err(std::io::ErrorKind::Unsupported.into()),
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

const BEAT_EVERY: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_said_to_the_socket() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("bound");
        let notifier = Notifier::new(path.to_str(), Some("3000000"), Some(&std::process::id().to_string()));
        assert_eq!(notifier.watchdog, Some(Duration::from_secs(3)));
        let said = || {
            let mut bytes = [0; 128];
            let length = manager.recv(&mut bytes).expect("a state");
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        notifier.ready();
        assert_eq!(said(), "READY=1");
        notifier.reloading();
        let reloading = said();
        assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC=") && reloading.len() > 29, "{reloading}");
        notifier.stopping();
        assert_eq!(said(), "STOPPING=1");
    }

    #[test]
    fn without_a_manager_or_for_another_process_nothing_is_said() {
        assert!(Notifier::new(None, None, None).socket.is_none());
        assert_eq!(Notifier::new(None, Some("1000000"), Some("1")).watchdog, None);
        assert_eq!(Notifier::new(None, Some("0"), None).watchdog, None);
        assert!(Notifier::new(Some("/nowhere/notify"), None, None).socket.is_some(), "it may come");
        Notifier::new(Some("/nowhere/notify"), None, None).ready();
    }

    #[test]
    fn a_pulse_that_stops_is_noticed() {
        let pulse = Pulse::new();
        assert!(pulse.beats_within(Duration::from_secs(10)));
        let stopped = Pulse { began_at: Instant::now() - Duration::from_secs(60), beaten_at_ms: AtomicU64::new(20_000) };
        assert!(!stopped.beats_within(Duration::from_secs(10)) && stopped.beats_within(Duration::from_secs(100)));
    }
}
