//! Reads one message during login: type, length, body; each length checked before it is believed.
//!
//! Login is a dialogue of small messages, so unlike the relay this copies nothing clever and wants whole messages.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

#[derive(Debug)]
pub(super) struct Frame {
    pub tag: u8,
    pub body: Bytes,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    #[error("the connection failed")]
    Io(#[from] io::Error),
    #[error("the connection was closed")]
    Closed,
    /// Negative, too short to count itself, or beyond the limit.
    #[error("invalid message length")]
    Length,
}

/// The next message; what follows it stays in the buffer. Cancel safe: what was read stays in the buffer.
pub(super) async fn read_frame(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
    body_bytes_max: usize,
) -> Result<Frame, FrameError> {
    loop {
        let wanted = match buffer.split_first_chunk::<HEADER>() {
            None => HEADER,
            Some((&[_, a, b, c, d], _)) => {
                let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).map_err(|_| FrameError::Length)?;
                if !(4..=body_bytes_max + 4).contains(&length) {
                    return Err(FrameError::Length);
                }
                length + 1
            }
        };
        if buffer.len() >= HEADER && buffer.len() >= wanted {
            let mut frame = buffer.split_to(wanted).freeze();
            let tag = frame.get_u8();
            frame.advance(4);
            return Ok(Frame { tag, body: frame });
        }
        buffer.reserve((wanted - buffer.len()).max(READ_BYTES));
        if stream.read_buf(buffer).await? == 0 {
            return Err(FrameError::Closed);
        }
    }
}

/// Type and length.
const HEADER: usize = 5;
/// Room for a whole greeting, so that it does not take a read a message.
const READ_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8]) -> (Result<Frame, FrameError>, BytesMut) {
        let mut buffer = BytesMut::new();
        let frame = read_frame(&mut &bytes[..], &mut buffer, 8).await;
        (frame, buffer)
    }

    #[tokio::test]
    async fn whole_messages_come_out_and_the_rest_stays() {
        let (frame, rest) = read(b"p\0\0\0\x06abR\0").await;
        let frame = frame.expect("whole");
        assert_eq!((frame.tag, &frame.body[..], &rest[..]), (b'p', &b"ab"[..], &b"R\0"[..]));
        let (frame, _) = read(b"S\0\0\0\x04").await;
        assert!(frame.expect("whole").body.is_empty());
    }

    #[tokio::test]
    async fn lengths_are_not_believed() {
        for bytes in [&b"p\0\0\0\x03"[..], b"p\0\0\0\0", b"p\xff\xff\xff\xff", b"p\x80\0\0\0", b"p\0\0\0\x0d", b"p\x7f\xff\xff\xff"]
        {
            assert!(matches!(read(bytes).await.0, Err(FrameError::Length)), "{bytes:?}");
        }
        for bytes in [&b""[..], b"p", b"p\0\0\0", b"p\0\0\0\x05"] {
            assert!(matches!(read(bytes).await.0, Err(FrameError::Closed)), "{bytes:?}");
        }
    }
}
