//! The arguments of calls that the proxy answers itself: constants, and parameters as the client has bound them.

use crate::declare::{self, Argument};
use crate::error::{PgError, SqlState};
use crate::routing::Inputs;
use crate::shard_key::{Oid, oid};
use crate::sql::analysis::{ArgumentValue, ShardgateCall};

/// A call of the schema `shardgate` with its values. The types of the inputs' parameters are those that the client was told, or has
/// declared, as far as they are known.
pub(super) fn declared_call(call: &ShardgateCall, inputs: &Inputs<'_>) -> Result<declare::Call, PgError> {
    let expected = |number: u16| declare::parameter_type(call, number);
    let value = |value: &ArgumentValue| argument_value(value, inputs, &expected);
    let arguments = call.arguments.iter().map(|argument| Ok((argument.name.clone(), value(&argument.value)?)));
    Ok(declare::Call { function: call.function.clone(), arguments: arguments.collect::<Result<_, PgError>>()? })
}

/// `expected`: the type of a parameter of which nobody has said it.
pub(in crate::session) fn argument_value(
    value: &ArgumentValue,
    inputs: &Inputs<'_>,
    expected: &dyn Fn(u16) -> Oid,
) -> Result<Argument, PgError> {
    match value {
        ArgumentValue::Null => Ok(Argument::Null),
        ArgumentValue::Text(text) => Ok(Argument::Text(text.clone())),
        ArgumentValue::Parameter(number) => {
            let parameter = inputs.parameter(*number);
            let parameter =
                parameter.ok_or_else(|| PgError::new(SqlState::UNDEFINED_OBJECT, format!("there is no parameter ${number}")))?;
            let type_oid = if oid::is_untyped(parameter.oid) { expected(*number) } else { parameter.oid };
            declare::argument_from_wire(type_oid, parameter.format, parameter.value)
        }
        ArgumentValue::Array(elements) => {
            let element = |element: &ArgumentValue| match argument_value(element, inputs, expected)? {
                Argument::Null => Ok(None),
                Argument::Text(text) => Ok(Some(text)),
                Argument::Array(_) => Err(PgError::new(SqlState::INVALID_PARAMETER_VALUE, "nested arrays are not accepted here")),
            };
            Ok(Argument::Array(elements.iter().map(element).collect::<Result<_, PgError>>()?))
        }
    }
}
