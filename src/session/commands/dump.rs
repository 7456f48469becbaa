//! A session of `pg_dump`: its questions about the catalogue, and where sequences of the whole cluster stand.

use crate::error::{PgError, SqlState};
use crate::session::sequences::sequence_rights::Right;
use crate::session::{Failure, Session};
use crate::sql::utility::dump::{APPLICATION, QUESTION, as_one_database, asked_sequence};

impl Session {
    /// It may have to be asked otherwise.
    #[inline]
    pub(in crate::session) fn may_be_asked_by_dump(&self, text: &str) -> bool {
        text.starts_with(QUESTION) || self.effective("application_name").is_some_and(|name| name == APPLICATION)
    }

    /// The text to run in place of this one; `None`: as it is.
    pub(in crate::session) async fn asked_by_dump(&mut self, text: &str) -> Result<Option<String>, Failure> {
        if let Some(sequence) = asked_sequence(text, &self.context) {
            self.check_right(&sequence, Right::Read).await?;
            let (schema, name) = (sequence.0.as_str(), sequence.1.as_str());
            let place = self.gateway.map.store().next_number(schema, name).await.map_err(PgError::from)?;
            let (last_value, is_called) = place.ok_or_else(|| not_known(name))?;
            return Ok(Some(format!("SELECT {last_value}::pg_catalog.int8 AS last_value, {is_called} AS is_called")));
        }
        Ok(as_one_database(text))
    }
}

fn not_known(sequence: &str) -> PgError {
    PgError::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("it is not known which numbers of sequence \"{sequence}\" are given"),
    )
    .with_detail("The map database has failed over, and the sequence has not been used since.")
    .with_hint("Draw a number with nextval(), then repeat this.")
}
