//! `shardgate.pools`, `shardgate.clients` and `shardgate.transactions`: what only the proxy that answers knows, or asks the shards; and
//! functions of the schema in FROM.
//!
//! In the map database these are views over settings that hold JSON, and functions that find their rows there by their arguments; the
//! proxy sets them on the connection before the statement runs there. So they work in any SELECT, joined with the other relations.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::arguments::declared_call;
use super::{command, map_database};
use crate::backend::Own;
use crate::catalog::quoted_literal;
use crate::declare::{self, Caller};
use crate::error::{PgError, SqlState};
use crate::execute::recovery::InDoubt;
use crate::routing::{Inputs, Parameter};
use crate::session::ddl::redefined::patience_without_locks;
use crate::session::gateway::MAP_DATABASE;
use crate::session::protocol::printed;
use crate::session::{Failure, Session};
use crate::shard_key::{Format, oid};
use crate::sql::analysis::{Analysis, ProxyRows, Scope, ShardgateCall};
use crate::sql::rewrite::blanks::in_its_place;
use crate::sql::utility::shardgate_call::{UNIQUE_ID, declaration_among, not_alone};
use crate::wire::{Bind, FieldDescription};

/// What is routed next is what the client runs, and no part of it. A named portal may be executed later, or never, and the call is made
/// when it is bound.
pub(in crate::session) fn allow_declaration(session: &mut Session, scope: &Scope, portal: &[u8]) -> Result<(), PgError> {
    let Scope::Proxy(rows) = scope else { return Ok(()) };
    if let (Some(call), false) = (declaration_among(rows), portal.is_empty()) {
        return Err(not_alone(&call.function));
    }
    session.batch.may_declare = true;
    Ok(())
}

/// Gives the map database's connection what the statement reads of this proxy. Calls that it selects from are made now.
pub(in crate::session) async fn publish_rows(
    session: &mut Session,
    statement: &Analysis,
    wanted: &ProxyRows,
    inputs: &Inputs<'_>,
    may_declare: bool,
) -> Result<(), Failure> {
    let declaration = declaration_among(wanted);
    if let Some(call) = declaration {
        if !may_declare {
            return Err(not_alone(&call.function).into());
        }
        check_declaration(session, statement, call, inputs).await?;
    }
    let mut settings = Box::pin(answers_of(session, &wanted.calls, inputs)).await?;
    if declaration.is_some() {
        session.gateway.refresh_catalog().await?;
    }
    for relation in &wanted.relations {
        let rows = match relation.as_str() {
            "pools" => session.gateway.pool_rows(),
            "clients" => session.gateway.clients.rows(),
            "transactions" => session.gateway.transaction_rows().await,
            _ => continue,
        };
        settings.insert(relation.clone(), rows);
    }
    let mut sql = String::new();
    for (name, rows) in settings {
        sql.push_str("SELECT pg_catalog.set_config(");
        sql.push_str(&quoted_literal(&format!("shardgate_proxy.{name}")));
        sql.push(',');
        sql.push_str(&quoted_literal(&in_ascii(&Value::Array(rows).to_string())));
        sql.push_str(",false);");
    }
    let index = session.join(MAP_DATABASE).await?;
    session.sync(index).await?;
    if let Some(participant) = session.transaction.participants_mut().get_mut(index) {
        participant
            .connection
            .simple(&Own::Setting.text(&sql))
            .await
            .map_err(|error| crate::session::settings::setting::refused("map", error))?;
    }
    Ok(())
}

/// A statement that selects from a call that changes the map: whatever else may be wrong with it is heard before the call is made.
async fn check_declaration(
    session: &mut Session,
    statement: &Analysis,
    call: &ShardgateCall,
    inputs: &Inputs<'_>,
) -> Result<(), Failure> {
    let text = inputs.text();
    map_database::check_text_for_map(session, text)?;
    let alone = in_its_place(text, statement.start, statement.alone(text));
    let prepared = session.prepare(alone.as_bytes(), inputs.parameter_types()).await?;
    let described = Box::pin(session.describe(&prepared)).await?;
    check_values(session, &described.parameter_types, inputs).await?;
    command::leave_transaction(session, &call.function).await
}

/// Bind reads the values of the statement's parameters, and would refuse one after the call.
async fn check_values(session: &mut Session, types: &[u32], inputs: &Inputs<'_>) -> Result<(), Failure> {
    let value = |(number, oid): (u16, &u32)| inputs.parameter(number).map(|value| Parameter { oid: *oid, ..value });
    let values: Vec<Parameter<'_>> = (1..).zip(types).filter_map(value).collect();
    if values.is_empty() {
        return Ok(());
    }
    let map = Arc::clone(&session.gateway.map_database);
    let mut connection = session.checkout_any(&map, &session.settings_now()).await?;
    let read = Box::pin(printed::print(&mut connection, &values)).await;
    connection.release();
    read.map(drop)
}

/// The client's cancel request and `statement_timeout` end its waits.
pub(super) async fn call_declared(session: &mut Session, call: declare::Call) -> Result<declare::Answer, PgError> {
    let caller = Caller {
        user: session.login.identity.user.clone(),
        is_admin: session.login.identity.is_admin,
        search_path: session.context.search_path.clone(),
        catalog: Arc::clone(&session.context.catalog),
        stop: CancellationToken::new(),
    };
    let (control, cancel) = (Arc::clone(&session.gateway.control), Arc::clone(&session.cancel));
    let patience = patience_without_locks(session);
    // What has been begun is not dropped: it is told, and ends by itself where it may.
    let mut calling = Box::pin(declare::call(&control, &caller, &call));
    let ended = tokio::select! {
        biased;
        answer = &mut calling => return answer,
        ended = patience.ends(&cancel) => ended,
    };
    caller.stop.cancel();
    calling.await.map_err(|error| match error.code == SqlState::QUERY_CANCELED {
        true => PgError { message: ended.message, ..error },
        false => error,
    })
}

/// By the function: the rows of each of its calls, with the arguments by which the map database finds them.
async fn answers_of(
    session: &mut Session,
    calls: &[ShardgateCall],
    inputs: &Inputs<'_>,
) -> Result<BTreeMap<String, Vec<Value>>, Failure> {
    let mut answers = BTreeMap::<String, Vec<Value>>::new();
    for call in calls {
        let asked = declared_call(call, inputs)?;
        let key = declare::arguments_in_from(&asked)?;
        // The map database finds a call's rows by its arguments: the two would have one number.
        if call.function == UNIQUE_ID && answers.contains_key(&call.function) {
            return Err(PgError::unsupported(
                "shardgate.unique_id() is not supported twice in FROM",
                "Each of its calls there would give the same number.",
                "Call it once for each statement, or in the select list: SELECT shardgate.unique_id(), shardgate.unique_id().",
            )
            .into());
        }
        let answer = Box::pin(call_declared(session, asked)).await?;
        let row = |row: &Vec<Option<String>>| {
            let columns = answer.columns.iter().map(|(name, _)| name.clone());
            Value::Object(columns.zip(row.iter().map(|value| json!(value))).collect())
        };
        let rows: Vec<Value> = answer.rows.iter().map(row).collect();
        answers.entry(call.function.clone()).or_default().push(json!({ "arguments": key, "rows": rows }));
    }
    Ok(answers)
}

/// A row of a function's answer in the formats that the client has asked for.
pub(super) fn values_of(row: &[Option<String>], columns: &[FieldDescription], bind: Option<&Bind<'_>>) -> Vec<Option<Vec<u8>>> {
    let value = |(index, (text, column)): (usize, (&Option<String>, &FieldDescription))| {
        let is_binary = bind.is_some_and(|bind| bind.result_format(index) == Format::Binary);
        let in_binary = |text: &str| match column.type_oid {
            oid::INT4 => text.parse::<i32>().ok().map(|number| number.to_be_bytes().to_vec()),
            oid::INT8 => text.parse::<i64>().ok().map(|number| number.to_be_bytes().to_vec()),
            oid::FLOAT8 => text.parse::<f64>().ok().map(|number| number.to_be_bytes().to_vec()),
            // Of text and void it is the text.
            _ => None,
        };
        text.as_ref().map(|text| in_binary(text).filter(|_| is_binary).unwrap_or_else(|| text.clone().into_bytes()))
    };
    row.iter().zip(columns).enumerate().map(value).collect()
}

impl crate::session::Gateway {
    /// What is prepared on the shards, as they tell now.
    async fn transaction_rows(&self) -> Vec<Value> {
        let state = |is_committed: Option<bool>| match is_committed {
            None => "in doubt",
            Some(true) => "committed",
            Some(false) => "aborted",
        };
        let row = |transaction: &InDoubt| {
            json!({
                "gid": transaction.id.as_str(),
                "state": state(transaction.is_committed),
                "participants": transaction.shards,
                "age_seconds": transaction.age.as_secs_f64(),
            })
        };
        self.recovery.in_doubt().await.iter().map(row).collect()
    }

    fn pool_rows(&self) -> Vec<Value> {
        let mut pools: Vec<_> =
            self.pools.all().iter().filter(|pool| pool.shard != MAP_DATABASE).map(|pool| pool.describe()).collect();
        pools.sort_by(|a, b| (&a.shard, &a.user).cmp(&(&b.shard, &b.user)));
        pools
            .into_iter()
            .map(|pool| json!({"shard": pool.shard, "user": pool.user, "active": pool.active, "idle": pool.idle, "waiting": pool.waiting}))
            .collect()
    }
}

/// The same JSON in characters that mean the same in every encoding: a client's, which the connection has, may take a backslash for
/// the second byte of another one, and a string, with a user's name in it, would end elsewhere.
pub(super) fn in_ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_ascii() {
            text.push(character);
        } else {
            let mut units = [0; 2];
            character.encode_utf16(&mut units).iter().for_each(|unit| text.push_str(&format!("\\u{unit:04x}")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_the_formats_that_were_asked_for() {
        let columns = [oid::INT4, oid::INT8, oid::FLOAT8, oid::TEXT]
            .map(|type_oid| FieldDescription { type_oid, ..crate::session::commands::command::text_field("c") });
        let row = ["7", "8", "1.5", "x"].map(|text| Some(text.to_owned()));
        let body: &[u8] = b"\0\0\0\0\0\0\0\x01\0\x01";
        let bind = crate::wire::bind(body).expect("a message");
        let values = values_of(&row, &columns, Some(&bind));
        let expected = [7_i32.to_be_bytes().to_vec(), 8_i64.to_be_bytes().to_vec(), 1.5_f64.to_be_bytes().to_vec(), b"x".to_vec()];
        assert_eq!(values, expected.map(Some));
        assert_eq!(values_of(&row[..3], &columns[..3], None), ["7", "8", "1.5"].map(|text| Some(text.as_bytes().to_vec())));
    }

    #[test]
    fn what_is_published_is_ascii_and_reads_back() {
        let rows = json!([{"user": "\u{103}\\\u{1f600}'"}]);
        let text = in_ascii(&rows.to_string());
        assert!(text.is_ascii(), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(rows));
    }
}
