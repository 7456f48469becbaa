//! A client whose messages are written down, and what was answered.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::stage::Words;
use crate::support::{Message, WireClient};

pub struct Speaker {
    client: WireClient,
    name: String,
    words: Words,
    /// What was sent, for a person to send again.
    pub sent: Vec<String>,
    /// What was answered, a line for each ReadyForQuery that was waited for.
    pub told: Vec<String>,
    /// Errors 0A000 that were answered.
    pub refusals: Vec<Message>,
    is_idle: bool,
}

impl Speaker {
    pub fn new(name: &str, client: WireClient, words: Words) -> Self {
        let (sent, told, refusals) = (vec![format!("-- {name} connects")], Vec::new(), Vec::new());
        Self { client, name: name.to_owned(), words, sent, told, refusals, is_idle: true }
    }

    pub async fn query(&mut self, text: &str) {
        let sql = self.words.fill_in(text);
        self.note(&sql);
        self.client.query(&sql);
        self.hear("").await;
    }

    /// Long queries, each written down under its name and answered by itself; all leave together.
    pub async fn queries_as(&mut self, queries: &[(&str, &str)]) {
        for (name, sql) in queries {
            self.note(name);
            self.client.query(sql);
        }
        for _ in queries {
            self.hear("").await;
        }
    }

    /// Each by Parse, Bind and Execute, and one Sync.
    pub async fn pipeline(&mut self, texts: &[&str]) {
        let texts: Vec<String> = texts.iter().map(|text| self.words.fill_in(text)).collect();
        self.note(&format!("(extended) {}", texts.join(" | ")));
        for text in &texts {
            self.client.unnamed(text, &[]);
        }
        self.client.sync();
        self.hear("").await;
    }

    /// A named statement, executed twice, with its description.
    pub async fn named(&mut self, text: &str) {
        let sql = self.words.fill_in(text);
        self.note(&format!("(named, twice) {sql}"));
        self.client.parse("named", &sql).describe(b'S', "named").sync();
        self.hear("").await;
        for _ in 0..2 {
            self.client.bind("", "named", &[]).execute("", 0).sync();
            self.hear("").await;
        }
    }

    pub async fn copy_in(&mut self, text: &str, rows: Bytes) {
        let sql = self.words.fill_in(text);
        let rows = self.words.fill_in(&String::from_utf8_lossy(&rows));
        self.note(&format!("{sql} <- {rows:?}"));
        self.client.query(&sql).put(b'd', rows.as_bytes()).put(b'c', b"");
        self.hear("").await;
    }

    /// Plans are not looked at.
    pub async fn explain(&mut self, text: &str) {
        let sql = self.words.fill_in(text);
        self.note(&sql);
        self.client.query(&sql);
        self.hear("TD").await;
    }

    pub async fn end_block(&mut self) {
        if !self.is_idle {
            self.query("ROLLBACK").await;
        }
    }

    /// The last answer, asked for again until it is this one, for at most so long: what another connection lets go takes its time.
    pub async fn query_until(&mut self, text: &str, wanted: Option<&str>, patience: Duration) {
        let deadline = Instant::now() + patience;
        loop {
            self.query(text).await;
            let told = self.told.last().map(String::as_str);
            let is_error = told.is_some_and(|told| told.contains("E("));
            if wanted.is_none() || told == wanted || is_error || Instant::now() > deadline {
                return;
            }
            self.told.pop();
            self.sent.pop();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// What a driver believes of the session.
    pub fn parameters(&self) -> String {
        let mut known: Vec<String> = self.client.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
        known.sort();
        known.join(" ")
    }

    /// Of a server without a proxy: the process.
    pub fn process_id(&self) -> i32 {
        let key: [u8; 4] = self.client.cancel_key[..4].try_into().expect("four bytes");
        i32::from_be_bytes(key)
    }

    fn note(&mut self, text: &str) {
        self.sent.push(format!("{}: {text}", self.name));
    }

    async fn hear(&mut self, unheard: &str) {
        let answers = self.client.answers().await;
        self.is_idle = answers.last().is_some_and(|last| last.tag == b'Z' && *last.body == *b"I");
        let is_heard = |message: &&Message| message.tag != b'S' && !unheard.contains(char::from(message.tag));
        let told: Vec<String> = answers.iter().filter(is_heard).map(Message::describe).collect();
        self.told.push(told.join(" "));
        self.refusals.extend(answers.into_iter().filter(|message| message.tag == b'E' && message.field(b'C') == "0A000"));
    }
}
