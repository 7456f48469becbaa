//! The shard of one row, by the bytes of its key.

use smallvec::SmallVec;

use super::Target;
use crate::error::{PgError, SqlState};
use crate::execute::copy_in::{AddedCell, Value, values};
use crate::routing::StoredPlace;
use crate::sql::utility::copy_in::{CopyFormat, CopyIn};

impl StoredPlace {
    /// The place of its shard among these. One that has its first partition of the table only now is not.
    pub(super) fn place_among(self, targets: &[Target], copy: &CopyIn) -> Result<usize, PgError> {
        match self {
            Self::On(shard, _) => {
                targets.iter().position(|target| target.shard == shard).ok_or_else(crate::routing::sharding_has_changed)
            }
            // Whichever shard has it leaves it out.
            Self::NoValue if copy.skips_bad_rows => Ok(0),
            Self::NoValue => Err(crate::routing::unproven_key()),
            Self::Refused(error) => Err(error),
            Self::Unknown(_) => Err(PgError::internal("a lookup key was not looked up")),
        }
    }
}

/// The shard of one row, by its values and those that are put before them.
pub(super) fn place_of(
    copy: &CopyIn,
    row: &[u8],
    added: &[AddedCell],
    is_other_encoding: bool,
    place: impl FnOnce(&[Option<&[u8]>]) -> StoredPlace,
) -> StoredPlace {
    let values = values(copy, row, added);
    let mut known: SmallVec<[Option<&[u8]>; 2]> = SmallVec::with_capacity(values.len());
    for value in &values {
        match value {
            Value::Null => known.push(None),
            Value::Missing => return StoredPlace::Refused(missing()),
            Value::Bytes(bytes) if is_other_encoding && !bytes.is_ascii() => {
                return StoredPlace::Refused(PgError::unsupported(
                    "cannot determine the shard of a row to be copied",
                    "Its shard key has characters beyond ASCII, and the data is not in UTF-8.",
                    "Copy with ENCODING 'UTF8'.",
                ));
            }
            Value::Bytes(bytes) => known.push(Some(bytes)),
        }
    }
    place(&known)
}

/// Does ASCII alone mean the same in this encoding as in UTF-8? Errors: not even that.
pub(super) fn is_other_encoding(encoding: &str, copy: &CopyIn) -> Result<bool, PgError> {
    let name: String = encoding.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect();
    let has_plain_null = match &copy.format {
        CopyFormat::Text { null, .. } | CopyFormat::Csv { null, .. } => null.is_ascii(),
        CopyFormat::Binary => true,
    };
    match name.as_str() {
        // Without a conversion.
        "utf8" | "unicode" | "sqlascii" => Ok(false),
        // Bytes of these may look like ones of ASCII in the middle of a character, or are not known at all.
        _ if has_plain_null && ASCII_SAFE.iter().any(|safe| name.starts_with(safe)) => Ok(true),
        _ => Err(PgError::unsupported(
            format!("COPY in the encoding \"{encoding}\" is not supported across shards"),
            "Rows and columns could not be told apart without converting the data.",
            "Copy with ENCODING 'UTF8'.",
        )),
    }
}

fn missing() -> PgError {
    PgError::new(SqlState::BAD_COPY_FILE_FORMAT, "missing data for a column of the shard key")
}

/// Beginnings of the names of encodings whose characters beyond ASCII have no byte of ASCII.
const ASCII_SAFE: [&str; 7] = ["latin", "iso8859", "win", "koi8", "euc", "mule", "alt"];
