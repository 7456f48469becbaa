//! Names of users that are the same as PostgreSQL's own: what a name without a schema means by the search path.

use crate::catalog::Function;
use crate::error::PgError;
use crate::sql::context::Context;
use crate::sql::query::means_temporary;

/// A temporary table, which is found first, or a relation in a schema that the path names before `pg_catalog`.
pub(super) fn is_relation_of_users(name: &str, context: &Context) -> bool {
    let place = |schema: &str| context.search_path.iter().position(|named| named == schema);
    // PostgreSQL's own come before the path where it does not name them, but behind temporary tables where it does not name those.
    let is_searched_first = place("pg_temp").is_none_or(|temporary| place("pg_catalog").is_some_and(|catalog| temporary < catalog));
    let is_temporary = is_searched_first && means_temporary(context, None, name, &context.search_path);
    let exists = |schema: &String| context.catalog.relation_names.contains_key(&(schema.clone(), name.to_owned()));
    is_temporary || before_catalog(context).iter().any(exists)
}

/// Of a call without a schema. Where PostgreSQL chooses by the types of the arguments, it is refused.
pub(super) fn is_function_of_users(name: &str, argument_count: usize, context: &Context) -> Result<bool, PgError> {
    let named = context.catalog.function_names.get(name).into_iter().flatten();
    let mut visible: Vec<&Function> = named.filter_map(|oid| context.catalog.functions.get(oid)).collect();
    visible.retain(|function| context.search_path.contains(&function.schema));
    if argument_count == 0 {
        visible.retain(|function| before_catalog(context).contains(&function.schema));
    }
    match visible.as_slice() {
        [] => Ok(false),
        functions if argument_count == 0 && functions.iter().any(|function| function.argument_count == 0) => Ok(true),
        [function, ..] => Err(PgError::unsupported(
            format!("{name}() is not supported where a function of that name is in schema \"{}\"", function.schema),
            "PostgreSQL chooses between the two by the types of the arguments, which the proxy does not know.",
            format!("Write pg_catalog.{name}(), or {}.{name}().", function.schema),
        )),
    }
}

/// Schemas that are searched before `pg_catalog`, which comes first where the path does not name it.
fn before_catalog(context: &Context) -> &[String] {
    let catalog = context.search_path.iter().position(|schema| schema == "pg_catalog");
    context.search_path.get(..catalog.unwrap_or_default()).unwrap_or_default()
}
