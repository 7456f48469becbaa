//! The sessions of this proxy as others see them: in `shardgate.clients` and in `pg_stat_activity`.
//!
//! A session tells of each statement twice, when it begins and when the client has its answers, and takes no lock for it but its own.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::backend::StatementText;
use crate::shard_key::timestamp_text;

/// By the process id that the client was given.
#[derive(Default)]
pub struct Clients {
    sessions: Mutex<HashMap<i32, Arc<ClientRow>>>,
}

/// One client, as it was at login, and what it does now.
pub struct ClientRow {
    address: SocketAddr,
    pub user: String,
    pub is_admin: bool,
    connected_at: Micros,
    /// The byte of the last ReadyForQuery; `A` while a statement runs.
    state: AtomicU8,
    changed_at: AtomicI64,
    /// 0: none has run.
    statement_began_at: AtomicI64,
    /// 0: there is no transaction.
    transaction_began_at: AtomicI64,
    shown: Mutex<Shown>,
}

/// Since 1970, by the proxy's clock.
type Micros = i64;

#[derive(Default)]
struct Shown {
    application_name: String,
    query: ShownQuery,
    held: Held,
}

/// What the client has run last.
enum ShownQuery {
    /// The beginning of a text.
    Text(String),
    Prepared(Arc<StatementText>),
}

impl Default for ShownQuery {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

/// What the client holds beyond a statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub shards: Vec<String>,
    pub pinned_by: Option<&'static str>,
    pub backends: Vec<Backend>,
}

/// A process of a shard's server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Backend {
    pub host: String,
    pub port: u16,
    pub process: i32,
}

impl ClientRow {
    pub fn new(address: SocketAddr, user: &str, is_admin: bool) -> Self {
        let now = now();
        Self {
            address,
            user: user.to_owned(),
            is_admin,
            connected_at: now,
            state: AtomicU8::new(b'A'),
            changed_at: AtomicI64::new(now),
            statement_began_at: AtomicI64::new(0),
            transaction_began_at: AtomicI64::new(0),
            shown: Mutex::default(),
        }
    }

    /// A message of the client's is handled.
    #[inline]
    pub fn begin(&self) {
        let before = self.state.swap(b'A', Ordering::Relaxed);
        if before == b'A' && self.statement_began_at.load(Ordering::Relaxed) != 0 {
            return;
        }
        let now = now();
        self.changed_at.store(now, Ordering::Relaxed);
        self.statement_began_at.store(now, Ordering::Relaxed);
        if self.transaction_began_at.load(Ordering::Relaxed) == 0 {
            self.transaction_began_at.store(now, Ordering::Relaxed);
        }
    }

    /// The client may go on.
    #[inline]
    pub fn end(&self, state: u8) {
        self.state.store(state, Ordering::Relaxed);
        self.changed_at.store(now(), Ordering::Relaxed);
        if state == b'I' {
            self.transaction_began_at.store(0, Ordering::Relaxed);
        }
    }

    #[inline]
    pub fn show_text(&self, query: &str) {
        let query = query.get(..query.floor_char_boundary(QUERY_BYTES_MAX)).unwrap_or_default();
        match &mut self.shown.lock().query {
            ShownQuery::Text(text) => {
                text.clear();
                text.push_str(query);
            }
            shown @ ShownQuery::Prepared(_) => *shown = ShownQuery::Text(query.to_owned()),
        }
    }

    #[inline]
    pub fn show_prepared(&self, query: &Arc<StatementText>) {
        match &mut self.shown.lock().query {
            ShownQuery::Prepared(known) if Arc::ptr_eq(known, query) => {}
            shown => *shown = ShownQuery::Prepared(Arc::clone(query)),
        }
    }

    pub fn set_application_name(&self, name: &str) {
        name.clone_into(&mut self.shown.lock().application_name);
    }

    pub fn set_held(&self, held: Held) {
        self.shown.lock().held = held;
    }

    pub fn held_backends(&self) -> Vec<Backend> {
        self.shown.lock().held.backends.clone()
    }

    fn state_name(&self) -> &'static str {
        match self.state.load(Ordering::Relaxed) {
            b'I' => "idle",
            b'T' => "idle in transaction",
            b'E' => "idle in transaction (aborted)",
            _ => "active",
        }
    }

    /// For `shardgate.clients`.
    fn to_json(&self) -> Value {
        let held = self.shown.lock().held.clone();
        json!({
            "client": self.address.to_string(),
            "user": self.user,
            "state": self.state_name(),
            "shards": held.shards,
            "pinned_by": held.pinned_by,
        })
    }

    /// For `pg_stat_activity`, as `sql::utility::cluster_state` reads it.
    fn activity(&self, process: i32, is_visible: bool) -> Value {
        let of_all = |application_name: &str, query: &str| {
            json!({
                "user": self.user,
                "row": { "pid": process, "usename": self.user, "application_name": application_name, "query": query },
            })
        };
        if !is_visible {
            return of_all(&self.shown.lock().application_name, "<insufficient privilege>");
        }
        let (application_name, query) = {
            let shown = self.shown.lock();
            let query = match &shown.query {
                ShownQuery::Text(text) => text.clone(),
                ShownQuery::Prepared(statement) => {
                    let text = String::from_utf8_lossy(&statement.text);
                    text.get(..text.floor_char_boundary(QUERY_BYTES_MAX)).unwrap_or_default().to_owned()
                }
            };
            (shown.application_name.clone(), query)
        };
        let time = |micros: &AtomicI64| match micros.load(Ordering::Relaxed) {
            0 => None,
            micros => Some(timestamp_text(micros)),
        };
        let state = self.state_name();
        let waits = (state != "active").then_some(("Client", "ClientRead"));
        let mut activity = of_all(&application_name, &query);
        let own = json!({
            "client_addr": self.address.ip().to_canonical().to_string(),
            "client_port": self.address.port(),
            "backend_start": timestamp_text(self.connected_at),
            "xact_start": time(&self.transaction_began_at),
            "query_start": time(&self.statement_began_at),
            "state_change": time(&self.changed_at),
            "wait_event_type": waits.map(|(kind, _)| kind),
            "wait_event": waits.map(|(_, event)| event),
            "state": state,
            "backend_type": "client backend",
        });
        if let (Some(Value::Object(row)), Value::Object(own)) = (activity.get_mut("row"), own) {
            row.extend(own);
        }
        activity
    }
}

impl Clients {
    pub fn insert(&self, id: i32, row: Arc<ClientRow>) {
        self.sessions.lock().insert(id, row);
    }

    pub fn remove(&self, id: i32) {
        self.sessions.lock().remove(&id);
    }

    pub fn len(&self) -> usize {
        self.sessions.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.lock().is_empty()
    }

    pub fn find(&self, id: i32) -> Option<Arc<ClientRow>> {
        self.sessions.lock().get(&id).cloned()
    }

    pub fn all(&self) -> Vec<(i32, Arc<ClientRow>)> {
        self.sessions.lock().iter().map(|(id, row)| (*id, Arc::clone(row))).collect()
    }

    pub fn rows(&self) -> Vec<Value> {
        self.all().iter().map(|(_, row)| row.to_json()).collect()
    }

    /// `is_visible`: whether all of a session is shown.
    pub fn activity(&self, is_visible: impl Fn(&ClientRow) -> bool) -> Vec<Value> {
        let mut sessions = self.all();
        sessions.sort_by_key(|(process, _)| *process);
        sessions.iter().map(|(process, row)| row.activity(*process, is_visible(row))).collect()
    }
}

pub fn now() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Micros::try_from(since.as_micros()).unwrap_or(Micros::MAX)
}

/// As PostgreSQL's `track_activity_query_size`, without its terminating zero.
const QUERY_BYTES_MAX: usize = 1023;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_shows_its_last_query_and_since_when() {
        let row = ClientRow::new(([127, 0, 0, 1], 5).into(), "ada", false);
        row.end(b'I');
        let shown = row.activity(7, true);
        assert_eq!((&shown["row"]["state"], &shown["row"]["query_start"]), (&json!("idle"), &Value::Null));
        row.begin();
        row.show_text(&"é".repeat(600));
        let first = row.activity(7, true);
        assert_eq!(first["row"]["query"], json!("é".repeat(511)));
        assert_eq!(first["row"]["state"], json!("active"));
        row.end(b'T');
        row.begin();
        let second = row.activity(7, true);
        assert_eq!(first["row"]["xact_start"], second["row"]["xact_start"]);
        row.end(b'I');
        assert_eq!(row.activity(7, true)["row"]["xact_start"], Value::Null);
    }

    #[test]
    fn a_hidden_session_tells_its_user_and_application_alone() {
        let row = ClientRow::new(([127, 0, 0, 1], 5).into(), "ada", false);
        row.show_text("SELECT 'secret'");
        row.set_application_name("painter");
        let hidden = json!({
            "user": "ada",
            "row": { "pid": 7, "usename": "ada", "application_name": "painter", "query": "<insufficient privilege>" },
        });
        assert_eq!(row.activity(7, false), hidden);
    }
}
