//! A session of `pg_dump`: its questions about the catalogue, and where sequences of the whole cluster stand.

use crate::error::{PgError, SqlState};
use crate::session::sequences::sequence_rights;
use crate::session::sequences::sequence_rights::Right;
use crate::session::{Failure, Session};
use crate::sql::utility::dump::{APPLICATION, QUESTION, as_one_database, asked_sequence, asks_every_sequence, with_sequences};

/// It may have to be asked otherwise.
#[inline]
pub(in crate::session) fn may_be_asked_by_dump(session: &Session, text: &str) -> bool {
    text.starts_with(QUESTION) || session.effective("application_name").is_some_and(|name| name == APPLICATION)
}

/// The text to run in place of this one; `None`: as it is.
pub(in crate::session) async fn asked_by_dump(session: &mut Session, text: &str) -> Result<Option<String>, Failure> {
    if let Some(sequence) = asked_sequence(text, &session.context) {
        sequence_rights::check_right(session, &sequence, Right::Read).await?;
        let (schema, name) = (sequence.0.as_str(), sequence.1.as_str());
        let (last_value, is_called) = place_of_sequence(session, schema, name).await?;
        return Ok(Some(format!("SELECT {last_value}::pg_catalog.int8 AS last_value, {is_called} AS is_called")));
    }
    if asks_every_sequence(text) {
        return with_places_of_sequences(session, text).await;
    }
    Ok(as_one_database(text, &session.context.catalog))
}

async fn with_places_of_sequences(session: &Session, text: &str) -> Result<Option<String>, Failure> {
    let mut places = Vec::new();
    for (schema, name) in session.context.map.sequences.keys() {
        places.push(((schema.clone(), name.clone()), place_of_sequence(session, schema, name).await?));
    }
    Ok(with_sequences(text, &places))
}

/// `last_value` and `is_called` of a sequence of the whole cluster.
async fn place_of_sequence(session: &Session, schema: &str, name: &str) -> Result<(i64, bool), PgError> {
    let place = session.gateway.map.store().next_number(schema, name).await.map_err(PgError::from)?;
    place.ok_or_else(|| not_known(name))
}

fn not_known(sequence: &str) -> PgError {
    PgError::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("it is not known which numbers of sequence \"{sequence}\" are given"),
    )
    .with_detail("The map database has failed over, and the sequence has not been used since.")
    .with_hint("Draw a number with nextval(), then repeat this.")
}
