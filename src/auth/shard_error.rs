//! An ErrorResponse of a shard, kept as it came, so that it can be passed on field by field.

use std::fmt;

use bytes::Bytes;

/// The body of the message and the fields in it.
#[derive(Clone, PartialEq, Eq)]
pub struct ShardError {
    body: Bytes,
}

impl ShardError {
    pub(super) fn new(body: Bytes) -> Self {
        Self { body }
    }

    /// As it came from the shard, without type and length.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The fields in their order: type byte and text, in whatever encoding the shard uses. Ends where the message is malformed.
    pub fn fields(&self) -> impl Iterator<Item = (u8, &[u8])> {
        self.body.split(|byte| *byte == 0).map_while(|field| field.split_first()).map(|(tag, text)| (*tag, text))
    }

    pub fn field(&self, tag: u8) -> Option<&[u8]> {
        self.fields().find(|(found, _)| *found == tag).map(|(_, text)| text)
    }

    /// The SQLSTATE, if the shard gave one of the right form.
    pub fn code(&self) -> Option<crate::error::SqlState> {
        self.field(b'C')?.try_into().ok().map(crate::error::SqlState)
    }

    /// The primary message, readable whatever its encoding.
    pub fn message(&self) -> String {
        String::from_utf8_lossy(self.field(b'M').unwrap_or_default()).into_owned()
    }
}

impl fmt::Debug for ShardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardError").field("code", &self.code()).field("message", &self.message()).finish()
    }
}

impl fmt::Display for ShardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())?;
        match self.code() {
            Some(code) => write!(f, " ({})", code.as_str()),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ShardError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::SqlState;

    #[test]
    fn fields_are_found_and_rubbish_is_survived() {
        let error = ShardError::new(Bytes::from_static(b"SFATAL\0C28P01\0Mno \xff way\0\0"));
        assert_eq!(error.code(), Some(SqlState::INVALID_PASSWORD));
        assert_eq!(error.message(), "no \u{fffd} way");
        assert_eq!(error.fields().count(), 3);
        assert_eq!(error.field(b'D'), None);
        for body in [&b""[..], b"\0", b"M", b"C1\0", b"Mx"] {
            assert_eq!(ShardError::new(Bytes::copy_from_slice(body)).code(), None);
        }
    }
}
