//! A client that speaks the protocol by itself: any order of messages, any bytes, and everything that comes back.
//!
//! Drivers hide what these tests are about: which messages leave together, what is answered to each, and what is not answered.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A logged-in connection to the proxy, or to a server without a password.
pub struct WireClient {
    stream: TcpStream,
    address: SocketAddr,
    input: BytesMut,
    /// Requests that have not been sent.
    pub output: BytesMut,
    /// Process id and secret, as a cancel request carries them.
    pub cancel_key: Bytes,
    /// ParameterStatus values as last told.
    pub parameters: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub tag: u8,
    pub body: Bytes,
}

impl WireClient {
    pub async fn connect(address: SocketAddr) -> Self {
        Self::connect_with(address, &[("user", "postgres"), ("database", "app")]).await
    }

    /// With these startup parameters. Panics when it is not let in.
    pub async fn connect_with(address: SocketAddr, parameters: &[(&str, &str)]) -> Self {
        match Self::try_connect(address, parameters).await {
            Ok(client) => client,
            Err(refusal) => panic!("not let in: {}", refusal.describe()),
        }
    }

    /// Errors: the message that refused the login; a tag of 0 when the connection ended without a word, or was not taken.
    pub async fn try_connect(address: SocketAddr, parameters: &[(&str, &str)]) -> Result<Self, Message> {
        let Ok(stream) = TcpStream::connect(address).await else { return Err(Message { tag: 0, body: Bytes::new() }) };
        stream.set_nodelay(true).expect("nodelay");
        let (input, output) = (BytesMut::new(), BytesMut::new());
        let mut client = Self { stream, address, input, output, cancel_key: Bytes::new(), parameters: Vec::new() };
        let body: Vec<u8> =
            parameters.iter().flat_map(|(name, value)| [name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat()).collect();
        client.output.put_u32(length(body.len() + 5));
        client.output.put_u32(3 << 16);
        client.output.put_slice(&body);
        client.output.put_u8(0);
        client.flush().await;
        loop {
            let message = client.next().await.unwrap_or(Message { tag: 0, body: Bytes::new() });
            match message.tag {
                b'K' => client.cancel_key = message.body,
                b'S' => client.note_parameter(&message),
                b'Z' => return Ok(client),
                b'R' | b'N' => {}
                _ => return Err(message),
            }
        }
    }

    /// That the client was given.
    pub fn process_id(&self) -> i32 {
        (&self.cancel_key[..]).get_i32()
    }

    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn note_parameter(&mut self, message: &Message) {
        let texts = message.texts();
        let [name, value] = texts.as_slice() else { panic!("ParameterStatus {texts:?}") };
        self.parameters.retain(|(known, _)| known != name);
        self.parameters.push((name.clone(), value.clone()));
    }

    // ---- requests; they leave with `flush` ----

    pub fn put(&mut self, tag: u8, body: &[u8]) -> &mut Self {
        self.output.put_u8(tag);
        self.output.put_u32(length(body.len()));
        self.output.put_slice(body);
        self
    }

    pub fn query(&mut self, sql: &str) -> &mut Self {
        self.put(b'Q', &[sql.as_bytes(), b"\0"].concat())
    }

    pub fn parse(&mut self, name: &str, sql: &str) -> &mut Self {
        self.put(b'P', &[name.as_bytes(), b"\0", sql.as_bytes(), b"\0\0\0"].concat())
    }

    /// Parameters and results as text.
    pub fn bind(&mut self, portal: &str, statement: &str, parameters: &[&str]) -> &mut Self {
        let mut body = [portal.as_bytes(), b"\0", statement.as_bytes(), b"\0\0\0"].concat();
        body.put_u16(u16::try_from(parameters.len()).expect("few"));
        for parameter in parameters {
            body.put_u32(u32::try_from(parameter.len()).expect("short"));
            body.put_slice(parameter.as_bytes());
        }
        body.put_u16(0);
        self.put(b'B', &body)
    }

    /// `S`: a statement, `P`: a portal.
    pub fn describe(&mut self, kind: u8, name: &str) -> &mut Self {
        self.put(b'D', &[&[kind], name.as_bytes(), b"\0"].concat())
    }

    pub fn close(&mut self, kind: u8, name: &str) -> &mut Self {
        self.put(b'C', &[&[kind], name.as_bytes(), b"\0"].concat())
    }

    pub fn execute(&mut self, portal: &str, row_limit: u32) -> &mut Self {
        self.put(b'E', &[portal.as_bytes(), b"\0", &row_limit.to_be_bytes()].concat())
    }

    /// Parse, Bind, Execute of the unnamed statement.
    pub fn unnamed(&mut self, sql: &str, parameters: &[&str]) -> &mut Self {
        self.parse("", sql).bind("", "", parameters).execute("", 0)
    }

    pub fn sync(&mut self) -> &mut Self {
        self.put(b'S', b"")
    }

    pub fn flush_message(&mut self) -> &mut Self {
        self.put(b'H', b"")
    }

    /// Sends what has been put. A peer that has gone is noticed when reading.
    pub async fn flush(&mut self) {
        let requests = self.output.split();
        drop(self.stream.write_all(&requests).await);
    }

    // ---- answers ----

    /// The next message; `None` at the end of the connection; [`NOTHING`] when nothing comes for a long time.
    pub async fn next(&mut self) -> Option<Message> {
        let silence = Message { tag: NOTHING, body: Bytes::new() };
        tokio::time::timeout(PATIENCE, self.next_without_limit()).await.unwrap_or(Some(silence))
    }

    /// The next message within this time; `None` at the end of the connection, or when none comes.
    pub async fn next_within(&mut self, patience: Duration) -> Option<Message> {
        tokio::time::timeout(patience, self.next_without_limit()).await.unwrap_or(None)
    }

    async fn next_without_limit(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = self.take() {
                return Some(message);
            }
            match self.stream.read_buf(&mut self.input).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    fn take(&mut self) -> Option<Message> {
        let mut head = self.input.get(..5)?;
        let (tag, total) = (head.get_u8(), head.get_u32() as usize + 1);
        (self.input.len() >= total).then(|| {
            let mut frame = self.input.split_to(total).freeze();
            frame.advance(5);
            Message { tag, body: frame }
        })
    }

    /// Sends what has been put and collects everything up to the next ReadyForQuery, or the end of the connection.
    pub async fn answers(&mut self) -> Vec<Message> {
        self.flush().await;
        let mut answers = Vec::new();
        while let Some(message) = self.next().await {
            let is_last = matches!(message.tag, b'Z' | NOTHING);
            if message.tag == b'S' {
                self.note_parameter(&message);
            }
            answers.push(message);
            if is_last {
                return answers;
            }
        }
        answers.push(Message { tag: 0, body: Bytes::new() });
        answers
    }

    /// As [`WireClient::answers`], in one line: see [`Message::describe`]. Without ParameterStatus.
    pub async fn transcript(&mut self) -> String {
        let answers = self.answers().await;
        let told: Vec<String> = answers.iter().filter(|message| message.tag != b'S').map(Message::describe).collect();
        told.join(" ")
    }

    /// The transcript of one Query.
    pub async fn ask(&mut self, sql: &str) -> String {
        self.query(sql);
        self.transcript().await
    }

    /// The first column of the only row. Panics on anything else.
    pub async fn value(&mut self, sql: &str) -> String {
        self.row(sql).await.swap_remove(0)
    }

    /// The only row. Panics on anything else.
    pub async fn row(&mut self, sql: &str) -> Vec<String> {
        self.query(sql);
        let answers = self.answers().await;
        let mut rows = answers.iter().filter(|message| message.tag == b'D');
        match (rows.next().map(Message::columns), rows.next()) {
            (Some(columns), None) => columns.into_iter().map(|column| column.unwrap_or_else(|| "NULL".to_owned())).collect(),
            _ => panic!("{sql}: {}", answers.iter().map(Message::describe).collect::<Vec<_>>().join(" ")),
        }
    }

    /// The next so many messages, in one line, without waiting for ReadyForQuery.
    pub async fn some(&mut self, count: usize) -> String {
        self.flush().await;
        let mut told = Vec::with_capacity(count);
        for _ in 0..count {
            told.push(self.next().await.map_or_else(|| "end".to_owned(), |message| message.describe()));
        }
        told.join(" ")
    }

    /// Everything up to the end of the connection.
    pub async fn rest(&mut self) -> Vec<Message> {
        self.flush().await;
        let mut rest = Vec::new();
        while let Some(message) = self.next().await {
            assert_ne!(message.tag, NOTHING, "the connection does not end");
            rest.push(message);
        }
        rest
    }

    /// Sends a cancel request with this client's key, and waits until the other side has closed.
    pub fn cancel(&self) -> impl Future<Output = ()> + Send + use<> {
        let (address, key) = (self.address, self.cancel_key.clone());
        async move { cancel(address, &key).await }
    }

    /// No more requests; answers can still be read.
    pub async fn half_close(&mut self) {
        self.stream.shutdown().await.expect("half-closed");
    }

    /// Closes by a reset: what was on its way is lost.
    pub fn reset(self) {
        self.stream.set_zero_linger().expect("no lingering");
    }
}

pub async fn cancel(address: SocketAddr, key: &[u8]) {
    let mut stream = TcpStream::connect(address).await.expect("connect");
    let request = [&length(key.len() + 4).to_be_bytes()[..], &[0x04, 0xd2, 0x16, 0x2e], key].concat();
    stream.write_all(&request).await.expect("written");
    let mut nothing = Vec::new();
    let closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut nothing)).await;
    assert!(closed.is_ok(), "the cancel request is not answered by the end of the connection");
}

impl Message {
    /// `T(a,b)`, `D(1,x)`, `C(SELECT 1)`, `E(42P01 …)`, `Z(T)`, `end`; else the tag alone.
    pub fn describe(&self) -> String {
        let mut text = String::from(char::from(self.tag));
        match self.tag {
            0 => return "end".to_owned(),
            NOTHING => return "nothing".to_owned(),
            b'T' => write!(text, "({})", self.column_names().join(",")),
            b'D' => {
                let columns: Vec<String> =
                    self.columns().into_iter().map(|column| column.unwrap_or_else(|| "NULL".to_owned())).collect();
                write!(text, "({})", columns.join(","))
            }
            b'C' => write!(text, "({})", self.texts().join(",")),
            b'E' | b'N' => write!(text, "({} {})", self.field(b'C'), self.field(b'M')),
            b'Z' => write!(text, "({})", String::from_utf8_lossy(&self.body)),
            b't' => write!(text, "({} parameters)", self.body.len().saturating_sub(2) / 4),
            b'S' => write!(text, "({})", self.texts().join("=")),
            _ => Ok(()),
        }
        .expect("written to a string");
        text
    }

    /// A field of an error or notice; empty when it is not there.
    pub fn field(&self, code: u8) -> String {
        let field = self.body.split(|byte| *byte == 0).find(|field| field.first() == Some(&code));
        String::from_utf8_lossy(field.and_then(|field| field.get(1..)).unwrap_or_default()).into_owned()
    }

    /// The columns of a row, as text.
    pub fn columns(&self) -> Vec<Option<String>> {
        let mut body = self.body.clone();
        let count = body.get_u16();
        let column = |body: &mut Bytes| {
            let length = usize::try_from(body.get_i32()).ok()?;
            Some(String::from_utf8_lossy(&body.split_to(length)).into_owned())
        };
        (0..count).map(|_| column(&mut body)).collect()
    }

    fn column_names(&self) -> Vec<String> {
        let mut body = self.body.clone();
        let count = body.get_u16();
        let name = |body: &mut Bytes| {
            let length = body.iter().position(|byte| *byte == 0).expect("a zero");
            let name = body.split_to(length);
            body.advance(19);
            String::from_utf8_lossy(&name).into_owned()
        };
        (0..count).map(|_| name(&mut body)).collect()
    }

    fn texts(&self) -> Vec<String> {
        let body = self.body.strip_suffix(b"\0").unwrap_or(&self.body);
        body.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    }
}

fn length(body: usize) -> u32 {
    u32::try_from(body + 4).expect("short")
}

/// Nothing that is waited for takes longer, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(60);
/// In place of a tag: silence.
const NOTHING: u8 = b'!';
