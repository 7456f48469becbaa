//! The map database as a place where statements of clients run: those over the relations of the schema `shardgate`.
//!
//! The proxy is logged in there as the owner of the shard map, whoever its client is. So such a connection gets of the client's
//! settings only what gives values another look or ends a statement, reads names in a search path of its own, and writes nothing;
//! what may stand in a statement [`crate::sql`] has checked. The roles of the shards need not exist there.
//!
//! A statement must mean there what it meant when it was read, in UTF-8. In other encodings of a client a character's last byte may
//! be a backslash, which the server takes with the byte before it: beyond ASCII a string would end elsewhere.

use std::sync::Arc;

use crate::backend::Settings;
use crate::error::PgError;
use crate::session::Session;
use crate::session::gateway::MAP_DATABASE;
use crate::session::transaction::LocalSetting;
use crate::shardmap::ShardId;

/// May this text be sent there? One without literals (`""`) may, whatever its names are.
pub(in crate::session) fn check_text_for_map(session: &Session, text: &str) -> Result<(), PgError> {
    if !text.is_ascii() && !session.reads_utf8() {
        return Err(PgError::unsupported(
            format!(
                "text beyond ASCII is not supported in the encoding \"{}\" beside relations of the schema shardgate",
                session.effective("client_encoding").unwrap_or_default()
            ),
            "The proxy has read the statement in UTF-8.",
            "SET client_encoding = 'UTF8'.",
        ));
    }
    match PASSED_ON.iter().find(|name| session.effective(name).is_some_and(|value| !value.is_ascii())) {
        None => Ok(()),
        Some(name) => Err(PgError::unsupported(
            format!("this value of \"{name}\" is not supported beside relations of the schema shardgate"),
            "It has characters beyond ASCII.",
            format!("RESET {name}."),
        )),
    }
}

/// What a connection to the map database is given for a session with these settings.
pub(in crate::session) fn settings_there(settings: &Settings) -> Arc<Settings> {
    let passed_on = settings.iter().filter(|(name, value)| is_passed_on(name, value));
    let with_own = OWN.iter().fold(Settings::default(), |settings, (name, value)| settings.with(name, value));
    Arc::new(passed_on.fold(with_own, |settings, (name, value)| settings.with(name, value)))
}

/// Is this shard, or the map database, told of the setting?
pub(in crate::session) fn is_told(shard: ShardId, set: &LocalSetting) -> bool {
    shard != MAP_DATABASE || is_passed_on(&set.name, set.value.as_deref().unwrap_or_default())
}

fn is_passed_on(name: &str, value: &str) -> bool {
    PASSED_ON.contains(&name) && value.is_ascii()
}

/// They decide how values look, how long a statement may take, and which snapshot a transaction has.
const PASSED_ON: [&str; 11] = [
    "array_nulls",
    "bytea_output",
    "client_encoding",
    "datestyle",
    "default_transaction_isolation",
    "extra_float_digits",
    "idle_in_transaction_session_timeout",
    "intervalstyle",
    "lock_timeout",
    "statement_timeout",
    "timezone",
];

/// No function of the map, which are in another schema, is found by its name; nor would it write.
const OWN: [(&str, &str); 2] = [("search_path", "pg_catalog, shardgate, pg_temp"), ("default_transaction_read_only", "on")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_database_gets_what_formats_and_nothing_else() {
        let settings = Settings::default()
            .with("TimeZone", "UTC")
            .with("role", "ada")
            .with("search_path", "shardgate_map")
            .with("default_transaction_read_only", "off")
            .with("app.tenant", "t1")
            .with("datestyle", "\u{103}");
        let there = settings_there(&settings);
        let there: Vec<(&str, &str)> = there.iter().collect();
        assert_eq!(
            there,
            [("default_transaction_read_only", "on"), ("search_path", "pg_catalog, shardgate, pg_temp"), ("timezone", "UTC"),]
        );
        let set = |name: &str| LocalSetting { name: name.to_owned(), value: None, is_local: true, by: None };
        assert!(
            is_told(MAP_DATABASE, &set("timezone")) && !is_told(MAP_DATABASE, &set("role")) && is_told(ShardId(1), &set("role"))
        );
    }
}
