//! A cursor over one message's body that never reads past it.

use thiserror::Error;

/// What was wrong with bytes from outside.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    #[error("invalid message length {length} for message type 0x{tag:02x}")]
    FrameLength { tag: u8, length: usize },
    #[error("insufficient data left in message")]
    Truncated,
    #[error("invalid string in message")]
    MissingTerminator,
    #[error("invalid message format")]
    TrailingBytes,
    #[error("invalid count or code {0} in message")]
    Invalid(i64),
    #[error("unsupported format code: {0}")]
    FormatCode(i16),
    #[error("bind message has {formats} parameter formats but {parameters} parameters")]
    FormatCount { formats: usize, parameters: usize },
    #[error("invalid {message} message subtype {subtype}")]
    Subtype { message: &'static str, subtype: u8 },
    #[error("message type 0x{tag:02x} out of order")]
    OutOfOrder { tag: u8 },
}

/// Reads integers, strings and slices from a body, front to back.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    #[inline]
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        let (&first, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(first)
    }

    #[inline]
    pub fn i16(&mut self) -> Result<i16, DecodeError> {
        let (chunk, rest) = self.rest.split_first_chunk::<2>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(i16::from_be_bytes(*chunk))
    }

    #[inline]
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        let (chunk, rest) = self.rest.split_first_chunk::<4>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(i32::from_be_bytes(*chunk))
    }

    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(self.i32()?.cast_unsigned())
    }

    /// A count field: not negative.
    #[inline]
    pub fn count(&mut self) -> Result<usize, DecodeError> {
        let count = self.i16()?.cast_unsigned();
        Ok(usize::from(count))
    }

    /// A string without its terminating zero byte.
    #[inline]
    pub fn cstr(&mut self) -> Result<&'a [u8], DecodeError> {
        let end = memchr::memchr(0, self.rest).ok_or(DecodeError::MissingTerminator)?;
        let (string, rest) = self.rest.split_at(end);
        self.rest = rest.get(1..).unwrap_or_default();
        Ok(string)
    }

    /// A length-prefixed value; -1 is NULL.
    #[inline]
    pub fn value(&mut self) -> Result<Option<&'a [u8]>, DecodeError> {
        match self.i32()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| DecodeError::Invalid(i64::from(length)))?;
                self.bytes(length).map(Some)
            }
        }
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The body must end here.
    #[inline]
    pub fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::TrailingBytes) }
    }
}
