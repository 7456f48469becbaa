//! The header of one message: tag and length.

use super::DecodeError;

/// Tag byte and length field.
pub const FRAME_HEADER_BYTES: usize = 5;

/// A header that has been read and checked; the body may not have arrived yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub tag: u8,
    /// Bytes of the whole frame, tag and length field included; at least [`FRAME_HEADER_BYTES`].
    pub total: usize,
}

impl FrameHeader {
    /// The header at the beginning of `buffer`; `None` while fewer than five bytes are there.
    ///
    /// A length below four or above `body_bytes_max` is an error: the stream cannot be trusted any more.
    #[inline]
    pub fn peek(buffer: &[u8], body_bytes_max: usize) -> Result<Option<Self>, DecodeError> {
        let Some(&[tag, a, b, c, d]) = buffer.first_chunk::<FRAME_HEADER_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length < 4 || length - 4 > body_bytes_max {
            return Err(DecodeError::FrameLength { tag, length });
        }
        Ok(Some(Self { tag, total: length + 1 }))
    }

    /// Bytes after the header.
    pub fn body_bytes(&self) -> usize {
        self.total - FRAME_HEADER_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_needs_five_bytes() {
        for length in 0..5 {
            assert_eq!(FrameHeader::peek(&b"Z\0\0\0\x05"[..length], 100), Ok(None));
        }
        assert_eq!(FrameHeader::peek(b"Z\0\0\0\x05I", 100), Ok(Some(FrameHeader { tag: b'Z', total: 6 })));
    }

    #[test]
    fn lengths_below_four_or_over_the_limit_are_errors() {
        for length in [0_u32, 3, 105, u32::MAX] {
            let mut bytes = vec![b'Q'];
            bytes.extend_from_slice(&length.to_be_bytes());
            assert!(FrameHeader::peek(&bytes, 100).is_err(), "{length}");
        }
    }
}
