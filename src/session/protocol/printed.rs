//! Values of bound parameters as constants in texts that take no parameters.
//!
//! The proxy itself reads the binary form of a few types. Of all others PostgreSQL knows it: when a text needs such a value, the
//! home shard prints it, in one round trip, under the session's settings, by which it is read again.

use super::describe::error_frame;
use super::parameter;
use crate::backend::{Connection, Own, StatementName};
use crate::routing::Parameter;
use crate::session::reads::gather::bind_body;
use crate::session::writes::exact;
use crate::session::{Failure, Session, lost};
use crate::shard_key::Format;
use crate::sql::rewrite::staging::with_parameters;
use crate::wire::{self, shard_tag};

impl Session {
    /// The texts, with these values in the places of their parameters. `None`: one of them is of a type without a name.
    pub(in crate::session) async fn with_values(
        &mut self,
        texts: &[&str],
        bind: &wire::Bind<'_>,
        types: &[u32],
    ) -> Result<Option<Vec<String>>, Failure> {
        let values = types.iter().zip(bind.parameters()).map(|(oid, (format, value))| Parameter { oid: *oid, format, value });
        let values: Vec<Parameter<'_>> = values.collect();
        if let Some(written) = self.written(texts, &values) {
            return Ok(Some(written));
        }
        for value in values.iter().filter(|value| value.format == Format::Binary) {
            exact::check_style_of(self, value.oid)?;
        }
        let home = self.home()?;
        let mut connection = self.checkout_any(&home, &self.settings_now()).await?;
        let printed = print(&mut connection, &values).await;
        connection.release();
        let printed = printed?;
        let as_text = |(value, text): (&Parameter<'_>, &Option<Vec<u8>>)| match value.format {
            Format::Text => self.constant(value),
            Format::Binary => self.constant(&Parameter { oid: value.oid, format: Format::Text, value: text.as_deref() }),
        };
        let constants: Vec<Option<String>> = values.iter().zip(&printed).map(as_text).collect();
        let constant = |number: u16| constants.get(usize::from(number).checked_sub(1)?)?.clone();
        Ok(texts.iter().map(|text| with_parameters(text, &constant)).collect())
    }

    fn written(&self, texts: &[&str], values: &[Parameter<'_>]) -> Option<Vec<String>> {
        let constant = |number: u16| self.constant(values.get(usize::from(number).checked_sub(1)?)?);
        texts.iter().map(|text| with_parameters(text, &constant)).collect()
    }

    fn constant(&self, value: &Parameter<'_>) -> Option<String> {
        parameter::as_constant(value.oid, value.format, value.value, &self.context.catalog)
    }
}

/// The values as text, by a statement of their own, which says of one that is not of its type what every statement would.
pub(in crate::session) async fn print(
    connection: &mut Connection,
    values: &[Parameter<'_>],
) -> Result<Vec<Option<Vec<u8>>>, Failure> {
    let places: Vec<String> = (1..=values.len()).map(|number| format!("${number}")).collect();
    let types: Vec<u32> = values.iter().map(|value| value.oid).collect();
    let body = bind_body(values, &[]);
    let bind = wire::bind(&body).map_err(crate::session::SessionEnd::from)?;
    connection.unnamed = None;
    let text = format!("SELECT {}", places.join(", "));
    let text = Own::Constants.text(&text);
    connection.output.parse(StatementName::Unnamed, &text, &types);
    connection.output.bind(b"", StatementName::Unnamed, &text, bind.after_names);
    connection.output.execute(b"", 0);
    connection.output.sync();
    let mut printed = Vec::new();
    let mut refusal = None;
    loop {
        let (tag, body) = connection.next_frame().await.map_err(|error| Failure::Error(lost("home", &error)))?;
        match tag {
            shard_tag::DATA_ROW => {
                let columns: Result<Vec<_>, _> = wire::data_row_columns(&body).collect();
                let columns = columns.map_err(crate::session::SessionEnd::from)?;
                printed = columns.into_iter().map(|column| column.map(<[u8]>::to_vec)).collect();
            }
            shard_tag::ERROR => refusal = Some(error_frame(&body)),
            shard_tag::READY => {
                connection.note_ready(body.first().copied().unwrap_or(b'E'));
                return refusal.map_or(Ok(printed), |frame| Err(Failure::Shard(frame)));
            }
            _ => {}
        }
    }
}
