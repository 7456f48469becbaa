//! The arguments of a call of the schema `shardgate`: constants, and parameters as the client has bound them.

use crate::declare::{self, Argument};
use crate::error::{PgError, SqlState};
use crate::shard_key::{Format, oid};
use crate::sql::analysis::{ArgumentValue, CallArgument, ShardgateCall};
use crate::wire;

pub(super) fn argument_value(
    call: &ShardgateCall,
    argument: &CallArgument,
    bind: Option<&wire::Bind<'_>>,
) -> Result<Argument, PgError> {
    match &argument.value {
        ArgumentValue::Null => Ok(Argument::Null),
        ArgumentValue::Text(text) => Ok(Argument::Text(text.clone())),
        ArgumentValue::Array(elements) => {
            let elements = elements.iter().map(|element| match element {
                ArgumentValue::Null => Ok(None),
                ArgumentValue::Text(text) => Ok(Some(text.clone())),
                ArgumentValue::Parameter(number) => bound_text(*number, bind),
                ArgumentValue::Array(_) => {
                    Err(PgError::new(SqlState::INVALID_PARAMETER_VALUE, "nested arrays are not accepted here"))
                }
            });
            Ok(Argument::Array(elements.collect::<Result<_, _>>()?))
        }
        ArgumentValue::Parameter(number) => bound_argument(call, *number, bind),
    }
}

/// Of the type that the function has there. A text may be bound as a number, as drivers do that know the key as one.
fn bound_argument(call: &ShardgateCall, number: u16, bind: Option<&wire::Bind<'_>>) -> Result<Argument, PgError> {
    let bound = usize::from(number).checked_sub(1).and_then(|index| bind?.parameter(index));
    let expected = declare::parameter_type(call, number);
    match bound {
        Some((format @ Format::Binary, Some(bytes))) if expected != oid::TEXT => {
            let type_oid = if expected == oid::INT4 && bytes.len() == size_of::<i64>() { oid::INT8 } else { expected };
            declare::argument_from_wire(type_oid, format, Some(bytes))
        }
        _ => Ok(bound_text(number, bind)?.map_or(Argument::Null, Argument::Text)),
    }
}

/// A parameter as text; binary integers and booleans are told by their length.
pub(in crate::session) fn bound_text(number: u16, bind: Option<&wire::Bind<'_>>) -> Result<Option<String>, PgError> {
    let missing = || PgError::new(SqlState::UNDEFINED_OBJECT, format!("there is no parameter ${number}"));
    let index = usize::from(number).checked_sub(1).ok_or_else(missing)?;
    let (format, value) = bind.and_then(|bind| bind.parameter(index)).ok_or_else(missing)?;
    let Some(bytes) = value else { return Ok(None) };
    if format == Format::Binary {
        if let Ok(bytes) = <[u8; 4]>::try_from(bytes)
            && bytes.iter().any(|&byte| byte < b' ')
        {
            return Ok(Some(i32::from_be_bytes(bytes).to_string()));
        }
        if let Ok(bytes) = <[u8; 8]>::try_from(bytes)
            && bytes.iter().any(|&byte| byte < b' ')
        {
            return Ok(Some(i64::from_be_bytes(bytes).to_string()));
        }
    }
    String::from_utf8(bytes.to_vec())
        .map(Some)
        .map_err(|_| PgError::new(SqlState::INVALID_PARAMETER_VALUE, format!("parameter ${number} is not text")))
}
