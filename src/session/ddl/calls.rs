//! Calls whose functions change the schema: what a client may ask of their answer.

use std::sync::Arc;

use crate::error::PgError;
use crate::session::protocol::statement::Statement;
use crate::session::{Failure, Session, SessionEnd};
use crate::shard_key::{Format, oid};
use crate::wire::{self, FieldDescription};

impl Session {
    /// The shards run the text of a call that changes the schema, and answer as to a simple query: in text.
    pub(in crate::session) async fn check_formats_of_call(
        &mut self,
        statement: &Arc<Statement>,
        bind: &wire::Bind<'_>,
    ) -> Result<(), Failure> {
        let description = self.describe(statement).await?;
        let rows = description.rows.as_deref().map(wire::row_description).transpose().map_err(SessionEnd::from)?;
        let is_alike = |field: &FieldDescription| ALIKE_IN_BOTH_FORMATS.contains(&field.type_oid);
        let mut fields = rows.iter().flatten().enumerate();
        match fields.find(|(index, field)| bind.result_format(*index) == Format::Binary && !is_alike(field)) {
            None => Ok(()),
            Some((_, field)) => Err(PgError::unsupported(
                format!("column \"{}\" of this call is not supported in the binary format", String::from_utf8_lossy(&field.name)),
                "The call changes the schema on every shard, which answer it in text.",
                "Send it by the simple query protocol, or cast the column to text.",
            )
            .into()),
        }
    }
}

/// Types whose values are the same bytes as text and in binary.
const ALIKE_IN_BOTH_FORMATS: [u32; 6] = [oid::TEXT, oid::VARCHAR, oid::BPCHAR, oid::NAME, oid::UNKNOWN, oid::VOID];
