//! `SELECT setval('t_id_seq', (SELECT max(id) FROM t))`: the query is answered like any other, then the sequence is set.

use super::numbers;
use crate::error::PgError;
use crate::session::writes::staged;
use crate::session::{Failure, Session};
use crate::shard_key::oid::INT8;
use crate::sql::rewrite::staging::StageKind;
use crate::sql::utility::set_sequence::{self, SetSequence};
use crate::wire::{self, FieldDescription, originate};

/// `text`: the statement alone.
pub(in crate::session) async fn set_sequence(
    session: &mut Session,
    text: &str,
    bind: Option<&wire::Bind<'_>>,
) -> Result<(), Failure> {
    let set = read_set_sequence(session, text).ok_or_else(with_parameters)?;
    numbers::check_not_restarted(session, &set.sequence)?;
    let answer = staged::answer_query(session, &set.query, &StageKind::Source).await?;
    originate::row_description(&mut session.client.output, &[column_of(&set)]);
    for row in &answer.rows {
        let value = |place: usize| row.get(place).and_then(Option::as_deref);
        let is_called = if answer.columns.len() > 1 { value(1).map(|text| text == "t") } else { Some(true) };
        let number = value(0).map(|text| text.parse::<i64>().map_err(|error| PgError::internal(error.to_string()))).transpose()?;
        // NULL sets nothing.
        let told = number.zip(is_called);
        if let Some((number, is_called)) = told {
            Box::pin(numbers::set_number(session, &set.sequence, number, is_called)).await?;
        }
        let told = told.map(|(number, _)| match bind.is_some_and(wire::Bind::has_binary_results) {
            true => number.to_be_bytes().to_vec(),
            false => number.to_string().into_bytes(),
        });
        originate::data_row(&mut session.client.output, &[told.as_deref()]);
    }
    originate::command_complete(&mut session.client.output, &format!("SELECT {}", answer.rows.len()));
    Ok(())
}

/// The column of its answer; `None`: it cannot be run.
pub(in crate::session) fn set_sequence_column(session: &Session, text: &str) -> Option<FieldDescription> {
    read_set_sequence(session, text).map(|set| column_of(&set))
}

fn read_set_sequence(session: &Session, text: &str) -> Option<SetSequence> {
    set_sequence::read(text, &session.context)
}

fn column_of(set: &SetSequence) -> FieldDescription {
    FieldDescription { type_oid: INT8, type_size: 8, ..crate::session::commands::command::text_field(&set.column) }
}

fn with_parameters() -> PgError {
    PgError::unsupported(
        "setval() of a cluster-wide sequence with parameters is not supported",
        "Its numbers are the proxy's, which reads the values out of the statement.",
        "Write the values into the statement, as constants or as a query.",
    )
}
