//! `SELECT currval($1)`, `setval('t_id_seq', $1)`, `setval($1, (SELECT max(id) FROM t))`: which sequence is meant, and to what it is
//! set, is known when the parameters are.
//!
//! The home shard describes the client's text. With the values in the places of its parameters it is read once more: where that
//! concerns a sequence of the whole cluster, it runs in the place of the statement like any other text; else the statement itself does.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use super::numbers;
use crate::error::PgError;
use crate::session::commands::command;
use crate::session::ddl::schema;
use crate::session::protocol::statement::Statement;
use crate::session::writes::staged;
use crate::session::writes::staged::Asked;
use crate::session::{Failure, Session, SessionEnd};
use crate::sql::analysis::{Analysis, Command, Numbers, Scope};
use crate::wire;

/// Bind of such a statement.
pub(in crate::session) async fn bind_sequence_call(
    session: &mut Session,
    statement: Arc<Statement>,
    body: &[u8],
) -> Result<(), Failure> {
    let bind = wire::bind(body).map_err(SessionEnd::from)?;
    let Some(analysis) = statement.analysis() else { return Err(PgError::internal("no statement").into()) };
    command::check_not_failed(session, &analysis.command)?;
    session.answer_parse().await?;
    Session::check_parameter_count(&statement, &bind)?;
    let description = session.describe(&statement).await?;
    let asked = Asked::Bound { bind: &bind, description: &description };
    let text = staged::with_values_of(session, &asked, &[statement.text()]).await?.concat();
    let changed = session.prepare(text.as_bytes(), Box::default()).await?;
    if changed.analysis().is_some_and(|changed| concerns_cluster(session, changed)) {
        return Box::pin(session.bind_numbered(changed, &without_parameters(&bind))).await;
    }
    match analysis.numbers {
        Numbers::None => session.bind_statement(Arc::clone(&statement), &bind, body).await,
        Numbers::AtHome | Numbers::Unseen | Numbers::Drawn => Box::pin(session.bind_numbered(Arc::clone(&statement), body)).await,
    }
}

/// EXECUTE of such a statement, its text with the values: with the numbers in it. `None`: it concerns no sequence of the cluster.
pub(in crate::session) async fn draw_if_of_cluster(session: &mut Session, text: &str) -> Result<Option<String>, Failure> {
    let read = schema::read_anew(session, text).await?;
    let Some(changed) = read.analyzed.statements.first().filter(|changed| concerns_cluster(session, changed)) else {
        return Ok(None);
    };
    if !numbers::draws(session, changed) {
        return Ok(Some(text.to_owned()));
    }
    let numbered = Box::pin(numbers::draw(session, text)).await?;
    Ok(Some(numbered.map_or_else(|| text.to_owned(), |numbered| numbered.text())))
}

/// A text with its values: does the proxy give its numbers, or set them, or refuse it?
pub(in crate::session) fn concerns_cluster(session: &Session, statement: &Analysis) -> bool {
    numbers::draws(session, statement)
        || matches!(statement.command, Command::SetSequence)
        || matches!(statement.scope, Scope::Refused(_))
}

/// The body of a Bind without its values.
fn without_parameters(bind: &wire::Bind<'_>) -> Bytes {
    let mut body = BytesMut::new();
    for name in [bind.portal, bind.statement] {
        body.put_slice(name);
        body.put_u8(0);
    }
    body.put_u16(0);
    body.put_u16(0);
    body.put_u16(u16::try_from(bind.result_formats.len() / 2).unwrap_or(u16::MAX));
    body.put_slice(bind.result_formats);
    body.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_formats_of_results_are_kept() {
        let body = b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x0242\xff\xff\xff\xff\0\x01\0\x01";
        let without = without_parameters(&wire::bind(body).unwrap());
        let bind = wire::bind(&without).unwrap();
        assert_eq!((bind.portal, bind.statement, bind.parameter_count), (&b"p"[..], &b"s"[..], 0));
        assert_eq!(bind.result_formats, [0, 1]);
    }
}
