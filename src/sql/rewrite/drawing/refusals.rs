//! Numbers that cannot be put into a statement, in the words for the client.

use crate::catalog::{DependencyTarget, Relation, shown_name};
use crate::error::PgError;
use crate::sql::context::Context;

pub(super) fn not_constant(sequence: &str) -> PgError {
    PgError::unsupported(
        format!("setval() of sequence \"{sequence}\" needs constants"),
        "It is a sequence of the whole cluster, whose numbers the proxy gives.",
        "Read the value first, then: SELECT setval('name', 123).",
    )
}

/// The home shard would set what nobody draws from.
pub fn not_named() -> PgError {
    PgError::unsupported(
        "setval() of a sequence whose name is computed is not supported",
        "It may be a sequence of the whole cluster, whose numbers the proxy gives.",
        "Write the sequence's name, or pg_get_serial_sequence('table', 'column').",
    )
}

/// A call in a place where the proxy cannot put a number.
pub fn not_here(function: &str, sequence: &str) -> PgError {
    PgError::unsupported(
        format!("{function}() of sequence \"{sequence}\" is not supported in this place"),
        "It is a sequence of the whole cluster, whose numbers the proxy gives.",
        format!("SELECT {function}(…) without tables, or give the number in VALUES."),
    )
}

/// The columns of a view may have other names and another order.
pub(super) fn through_view(view: &Relation, context: &Context) -> PgError {
    let dependencies = context.catalog.relation_dependencies.get(&view.oid).into_iter().flatten();
    let mut tables = dependencies.filter_map(|dependency| match dependency.on {
        DependencyTarget::Relation(oid) => context.catalog.relations.get(&oid),
        DependencyTarget::Function(_) => None,
    });
    let instead = match (tables.next(), tables.next()) {
        (Some(table), None) => format!("table {}", shown_name(&table.schema, &table.name)),
        _ => "the table under it".to_owned(),
    };
    PgError::unsupported(
        format!("INSERT through view \"{}\" into a numbered table is not supported", view.name),
        "The numbers of the whole cluster are put into rows of the table itself.",
        format!("Insert into {instead}, or give the numbers."),
    )
}

pub(super) fn unreadable() -> PgError {
    PgError::unsupported(
        "the numbers of this statement cannot be drawn",
        "The places of its values were not found in the text.",
        "Name the columns, and give each row of VALUES by itself.",
    )
}
