//! A client that sees every message as it came: drivers hide formats, tags, positions and the order of answers.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use postgres_protocol::IsNull;
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::answer::{Answer, Names, Part};

pub struct RawClient {
    stream: TcpStream,
    input: BytesMut,
    output: BytesMut,
    /// What was sent last.
    asked: Vec<u8>,
    names: Arc<Names>,
}

/// A parameter or result as the client wants it on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text = 0,
    Binary = 1,
}

/// One message from the client, for exchanges that are spelt out.
#[derive(Clone, Debug)]
pub enum Message {
    Parse { name: String, text: String, types: Vec<u32> },
    Bind { portal: String, statement: String, format: Format, values: Vec<Option<Vec<u8>>>, results: Vec<Format> },
    DescribeStatement(String),
    DescribePortal(String),
    Execute { portal: String, rows: i32 },
    CloseStatement(String),
    ClosePortal(String),
    Flush,
    Sync,
}

impl RawClient {
    pub async fn connect(port: u16, database: &str, settings: &[(&str, &str)]) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        let mut client = Self { stream, input: BytesMut::new(), output: BytesMut::new(), asked: Vec::new(), names: Arc::default() };
        let parameters = [("user", "postgres"), ("database", database)].into_iter().chain(settings.iter().copied());
        frontend::startup_message(parameters, &mut client.output).expect("startup");
        let greeting = client.exchange(b"", false).await;
        assert!(greeting.error().is_none(), "login: {greeting}");
        client
    }

    /// Oids in answers are told by these names from now on.
    pub fn knowing(mut self, names: &Arc<Names>) -> Self {
        self.names = Arc::clone(names);
        self
    }

    /// The simple protocol. `copy`: what a COPY FROM STDIN gets.
    pub async fn query(&mut self, text: &str, copy: &[u8]) -> Answer {
        frontend::query(text, &mut self.output).expect("query");
        self.exchange(copy, false).await
    }

    /// For statements of the harness itself: the rows as text.
    pub async fn rows(&mut self, text: &str) -> Vec<Vec<Option<String>>> {
        let answer = self.query(text, b"").await;
        if let Some(error) = answer.error() {
            panic!("{text}: {error:?}");
        }
        answer.text_rows()
    }

    pub fn put(&mut self, message: &Message) {
        let output = &mut self.output;
        match message {
            Message::Parse { name, text, types } => frontend::parse(name, text, types.iter().copied(), output),
            Message::Bind { portal, statement, format, values, results } => {
                let put_value = |value: &Option<Vec<u8>>, out: &mut BytesMut| match value {
                    Some(bytes) => {
                        out.extend_from_slice(bytes);
                        Ok(IsNull::No)
                    }
                    None => Ok(IsNull::Yes),
                };
                let formats = [*format as i16];
                let results = results.iter().map(|format| *format as i16);
                assert!(frontend::bind(portal, statement, formats, values, put_value, results, output).is_ok(), "a Bind message");
                Ok(())
            }
            Message::DescribeStatement(name) => frontend::describe(b'S', name, output),
            Message::DescribePortal(name) => frontend::describe(b'P', name, output),
            Message::Execute { portal, rows } => frontend::execute(portal, *rows, output),
            Message::CloseStatement(name) => frontend::close(b'S', name, output),
            Message::ClosePortal(name) => frontend::close(b'P', name, output),
            Message::Flush => {
                output.extend_from_slice(b"H\0\0\0\x04");
                Ok(())
            }
            Message::Sync => {
                frontend::sync(output);
                Ok(())
            }
        }
        .expect("a message");
    }

    /// Sends what has been put, and Sync, and reads up to ReadyForQuery. `copy` as for [`RawClient::query`].
    pub async fn sync(&mut self, copy: &[u8]) -> Answer {
        self.put(&Message::Sync);
        self.exchange(copy, true).await
    }

    /// Sends what has been put and reads until as many parts have come as are expected.
    pub async fn flush(&mut self, expected: usize) -> Answer {
        self.put(&Message::Flush);
        self.send().await;
        let mut parts = Vec::new();
        while parts.len() < expected {
            parts.push(self.part().await);
            if matches!(parts.last(), Some(Part::Error(_) | Part::Closed)) {
                break;
            }
        }
        Answer { parts }
    }

    /// `is_extended`: COPY swallows the Sync that came with it, so another one follows the data.
    async fn exchange(&mut self, copy: &[u8], is_extended: bool) -> Answer {
        self.send().await;
        let mut parts = Vec::new();
        loop {
            let part = self.part().await;
            if matches!(part, Part::CopyIn(_)) {
                if !copy.is_empty() {
                    frontend::CopyData::new(copy).expect("data").write(&mut self.output);
                }
                frontend::copy_done(&mut self.output);
                if is_extended {
                    frontend::sync(&mut self.output);
                }
                self.send().await;
            }
            let is_last = matches!(part, Part::Ready(_) | Part::Closed);
            parts.push(part);
            if is_last {
                return Answer { parts };
            }
        }
    }

    async fn send(&mut self) {
        self.asked = self.output.to_vec();
        let sent = timeout(PATIENCE, self.stream.write_all_buf(&mut self.output)).await.expect("sent in time");
        if let Err(error) = sent {
            eprintln!("connection lost: {error}");
        }
        self.output.clear();
    }

    async fn part(&mut self) -> Part {
        loop {
            if let Some((&[tag, a, b, c, d], _)) = self.input.split_first_chunk::<5>() {
                let length = u32::from_be_bytes([a, b, c, d]) as usize;
                if self.input.len() > length {
                    let mut frame = self.input.split_to(length + 1);
                    frame.advance(5);
                    match Part::read(tag, &frame, &self.names) {
                        Some(part) => return part,
                        None => continue,
                    }
                }
            }
            match timeout(PATIENCE, self.stream.read_buf(&mut self.input)).await {
                Ok(Ok(count)) if count > 0 => {}
                Ok(Ok(_) | Err(_)) => return Part::Closed,
                // What comes later would be taken for the answer to the next statement.
                Err(_) => panic!("no answer in {PATIENCE:?}: {}", String::from_utf8_lossy(&self.asked)),
            }
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(60);
