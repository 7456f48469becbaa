//! Who looks at what a session has set, and at what: the next client, a client beside it, the session itself.
//!
//! The next clients hold as many transactions as the pool has connections, so that one of them has the connection that was used.

use std::time::Duration;

use super::kinds::{Kind, LOOKED_AT};
use super::speaker::Speaker;
use super::stage::Side;

/// Who looks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observer {
    /// The session has ended.
    Next,
    Beside,
    Itself,
}

pub const OBSERVERS: &[Observer] = &[Observer::Next, Observer::Beside, Observer::Itself];

/// What one observer saw.
#[derive(Debug)]
pub struct Sight {
    pub who: String,
    pub sent: Vec<String>,
    pub told: Vec<String>,
    /// A refusal is an answer that the session itself may get.
    pub is_itself: bool,
}

/// What comes late at most.
const PATIENCE: Duration = Duration::from_secs(3);

/// All of them look; `expected`: the answers of plain PostgreSQL.
pub async fn observe(side: &Side<'_>, first: Observer, kind: &Kind, mut session: Speaker, expected: &[Sight]) -> Vec<Sight> {
    let mut sights = Vec::new();
    let seen_before = session.told.len();
    match first {
        Observer::Next => {}
        Observer::Beside => {
            sights.push(beside(side, kind).await);
            look(&mut session, kind, None, None).await;
        }
        Observer::Itself => {
            look(&mut session, kind, None, None).await;
            sights.push(beside(side, kind).await);
        }
    }
    let told = session.told.split_off(seen_before);
    sights.push(Sight { who: "the session itself".to_owned(), sent: Vec::new(), told, is_itself: true });
    side.until_gone(session).await;
    let next_told = expected.iter().find(|sight| sight.who.starts_with("the next")).map(|sight| sight.told.as_slice());
    let mut held = Vec::new();
    for number in 1..=side.connections() {
        let mut next = side.speaker(&format!("next client {number}")).await;
        next.query("BEGIN").await;
        look(&mut next, kind, Some(PREPARED), next_told).await;
        held.push(next);
    }
    for mut next in held {
        next.end_block().await;
        let (sent, told) = (std::mem::take(&mut next.sent), std::mem::take(&mut next.told));
        sights.push(Sight { who: "the next client".to_owned(), sent, told, is_itself: false });
        side.until_gone(next).await;
    }
    sights
}

async fn beside(side: &Side<'_>, kind: &Kind) -> Sight {
    let mut other = side.speaker("client beside").await;
    look(&mut other, kind, Some(PREPARED), None).await;
    let (sent, told) = (std::mem::take(&mut other.sent), std::mem::take(&mut other.told));
    side.until_gone(other).await;
    Sight { who: "the client beside".to_owned(), sent, told, is_itself: false }
}

/// `expected`: answers of which the last but one, that to the effect's query, is waited for.
async fn look(speaker: &mut Speaker, kind: &Kind, more: Option<&str>, expected: Option<&[String]>) {
    let settings: Vec<String> =
        LOOKED_AT.iter().map(|name| format!("'{name}=' || coalesce(current_setting('{name}', true), 'NULL')")).collect();
    let settings = format!("concat_ws(', ', current_user, session_user, make_date(2026, 3, 6), {})", settings.join(", "));
    // As the server sees the connection.
    let here = format!("/* shardgate: shard=shard0 */ SELECT {settings}, {OBJECTS}, {}", more.unwrap_or("0"));
    let everywhere = format!("SELECT id, {settings} FROM spread ORDER BY id");
    let named = [("SELECT all settings and objects", &*here), ("SELECT id, all settings FROM spread ORDER BY id", &*everywhere)];
    speaker.queries_as(&named).await;
    speaker.pipeline(&["SELECT place FROM which_place", "SELECT n FROM spread WHERE id = 1"]).await;
    let parameters = speaker.parameters();
    speaker.told.push(format!("parameters: {parameters}"));
    let wanted = expected.and_then(|told| told.get(EFFECT)).map(String::as_str);
    speaker.query_until(kind.effect, wanted, PATIENCE).await;
}

/// The place of the answer to the effect's query of a next client: after BEGIN and four more.
const EFFECT: usize = 5;

/// Statements that a body has prepared. The proxy keeps what its client has prepared to itself.
const PREPARED: &str = "(SELECT count(*) FROM pg_prepared_statements WHERE name = 'm_statement') AS prepared";

/// Those of this connection, apart from the proxy's own.
const OBJECTS: &str = "(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objid = 4711) AS locks, \
     (SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_class WHERE relnamespace = pg_my_temp_schema() \
      AND (relname LIKE 'm\\_%' OR relname = 'lasting')) AS temporary, \
     (SELECT string_agg(name, ',' ORDER BY name) FROM pg_cursors WHERE is_holdable) AS cursors, \
     (SELECT string_agg(c, ',') FROM pg_listening_channels() c) AS channels";
