//! Tells a client why it is not let in: one ErrorResponse, then the end of the stream.
//!
//! For connections before and during login; a session has its own way to report errors. Best effort: a client that does not
//! read loses only the words.

use std::io;

use bytes::BytesMut;
use pgwire::messages::Message;
use pgwire::messages::response::ErrorResponse;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::error::PgError;

/// Writes the error and closes the writing half. Not cancel safe: after it the stream is only good for closing.
pub async fn write_error(stream: &mut (impl AsyncWrite + Unpin), error: &PgError) -> io::Result<()> {
    let mut bytes = BytesMut::with_capacity(256);
    encode(error, &mut bytes).map_err(io::Error::other)?;
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    stream.shutdown().await
}

fn encode(error: &PgError, bytes: &mut BytesMut) -> pgwire::error::PgWireResult<()> {
    let severity = error.severity.as_str();
    let mut fields = vec![
        (b'S', severity.to_owned()),
        (b'V', severity.to_owned()),
        (b'C', error.code.as_str().to_owned()),
        (b'M', without_nul(&error.message)),
    ];
    for (tag, text) in [(b'D', &error.detail), (b'H', &error.hint), (b'W', &error.context)] {
        fields.extend(text.as_ref().map(|text| (tag, without_nul(text))));
    }
    fields.extend(error.position.map(|position| (b'P', position.to_string())));
    ErrorResponse::new(fields).encode(bytes)
}

/// A NUL would end the field early.
fn without_nul(text: &str) -> String {
    text.replace('\0', "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::SqlState;

    #[tokio::test]
    async fn all_fields_are_written_and_the_stream_ends() {
        let error = PgError::fatal(SqlState::PROTOCOL_VIOLATION, "a\0b").with_detail("D.").with_hint("H.");
        let (mut ours, mut theirs) = tokio::io::duplex(1024);
        write_error(&mut ours, &error).await.expect("written");
        let mut bytes = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut theirs, &mut bytes).await.expect("read");
        let body = b"SFATAL\0VFATAL\0C08P01\0Mab\0DD.\0HH.\0\0";
        let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
        assert_eq!(bytes, [b"E", &length[..], body].concat());
    }
}
