//! Runs cases on both sides and collects what differs.

use std::collections::HashMap;
use std::fmt::Write;

use super::answer::{Answer, RowOrder};
use super::case::{Case, Expected, Protocols, Step, with_literals};
use super::raw_client::{Format, Message, RawClient};
use super::world::World;

/// How a statement is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Simple,
    /// Unnamed, one round trip, types left to the server, text both ways.
    Text,
    /// Named, described first, types left to the server, binary both ways, executed twice when it only reads.
    Binary,
    /// As `Text`, but with binary results.
    BinaryResults,
    /// Unnamed, types declared, binary parameters and text results.
    Declared,
}

pub const ALL_MODES: &[Mode] = &[Mode::Simple, Mode::Text, Mode::Binary, Mode::BinaryResults, Mode::Declared];

#[derive(Default)]
pub struct Tally {
    pub statements: usize,
    pub refused: usize,
    pub checks: usize,
    pub differences: Vec<String>,
}

pub struct Runner<'a> {
    pub world: &'a mut World,
    pub tally: Tally,
    /// The ways that statements are sent in, of those that a case has.
    pub modes: &'static [Mode],
    /// In how many of them each case is sent; if not in all, the next case begins with the next way.
    pub ways_per_case: usize,
    /// What names the place of a case here is sent in every way.
    pub listed: &'static str,
    cases: usize,
    plain: RawClient,
    proxy: RawClient,
    binaries: HashMap<(u32, String), Option<Vec<u8>>>,
}

/// One side's connection and what it has answered in one step.
type Answers = Vec<Answer>;

impl<'a> Runner<'a> {
    pub async fn new(world: &'a mut World) -> Self {
        let (plain, proxy) = (world.connect_plain().await, world.connect_proxy().await);
        let (modes, ways_per_case) = (ALL_MODES, ALL_MODES.len());
        Self { world, tally: Tally::default(), modes, ways_per_case, listed: "", cases: 0, plain, proxy, binaries: HashMap::new() }
    }

    pub async fn run(&mut self, cases: &[Case]) {
        for case in cases {
            for step in &case.steps {
                self.tally.statements += step.values.len();
                self.tally.refused += if step.expected == Expected::Refused { step.values.len() } else { 0 };
            }
            let modes: &[Mode] = match (case.protocols, case.is_script) {
                (Protocols::Simple, _) => &[Mode::Simple],
                (Protocols::Extended, _) => &[Mode::Text, Mode::Binary, Mode::Declared],
                (Protocols::AlsoBinary, _) => &[Mode::Simple, Mode::Text, Mode::BinaryResults],
                (Protocols::All, true) => &[Mode::Simple, Mode::Text],
                (Protocols::All, false) => &[Mode::Simple, Mode::Text, Mode::Binary, Mode::Declared],
            };
            let mut wanted: Vec<Mode> = modes.iter().filter(|mode| self.modes.contains(mode)).copied().collect();
            if self.ways_per_case < wanted.len() {
                let first = self.cases % wanted.len();
                wanted.rotate_left(first);
            }
            self.cases += 1;
            let is_listed = self.listed.lines().any(|line| line.split(' ').nth(1) == Some(&*case.place));
            for mode in wanted.into_iter().take(if is_listed { ALL_MODES.len() } else { self.ways_per_case }) {
                self.run_in(case, mode).await;
            }
        }
    }

    /// What only reads and is answered, each statement in a transaction of its own that begins so. There it may be refused.
    pub async fn run_within(&mut self, begin: &str, cases: &[Case]) {
        let is_read =
            |step: &Step| step.expected == Expected::Equal && step.text.starts_with("SELECT") && !step.text.contains(" FOR ");
        let is_wanted = |case: &&Case| !case.is_script && case.protocols == Protocols::All && case.steps.iter().all(is_read);
        for case in cases.iter().filter(is_wanted) {
            for (step, mode) in case.steps.iter().flat_map(|step| [(step, Mode::Simple), (step, Mode::Text)]) {
                for values in &step.values {
                    self.run_step_within(begin, &case.place, (step, values, mode)).await;
                }
            }
            self.tally.statements += case.steps.len();
        }
    }

    async fn run_step_within(&mut self, begin: &str, place: &str, (step, values, mode): (&Step, &[Option<String>], Mode)) {
        self.tally.checks += 1;
        let mut difference = String::new();
        for _ in 0..ANSWERS_MAX {
            self.command(begin).await;
            let (plain, proxy) = self.answers(step, values, mode).await;
            self.command("ROLLBACK").await;
            if proxy.iter().any(|answer| answer.error().is_some_and(|told| told.is_refusal())) {
                self.tally.refused += 1;
                return;
            }
            let Err(reason) = judged(step, &plain, &proxy) else { return };
            difference = told(&format!("{place} [{mode:?}] {reason} after {begin}"), step, values, &plain, &proxy);
        }
        self.tally.differences.push(difference);
    }

    async fn command(&mut self, text: &str) {
        for client in [&mut self.plain, &mut self.proxy] {
            let answer = client.query(text, b"").await;
            assert!(answer.error().is_none(), "{text}: {answer}");
        }
    }

    async fn run_in(&mut self, case: &Case, mode: Mode) {
        if case.is_script {
            self.renew().await;
        }
        for step in &case.steps {
            for values in &step.values {
                let (plain, proxy) = self.answers(step, values, mode).await;
                self.tally.checks += 1;
                if let Err(reason) = judged(step, &plain, &proxy) {
                    let place = format!("{} [{mode:?}] {reason}", case.place);
                    self.tally.differences.push(told(&place, step, values, &plain, &proxy));
                }
                if plain.last().is_some_and(Answer::is_closed) || proxy.last().is_some_and(Answer::is_closed) {
                    self.renew().await;
                }
            }
        }
        if case.is_script {
            self.renew().await;
        }
        let may_write = case.is_script || case.steps.iter().any(|step| !step.text.to_ascii_uppercase().starts_with("SELECT"));
        let is_refused = case.steps.iter().all(|step| matches!(step.expected, Expected::Refused | Expected::NoShard));
        if may_write && let Some(difference) = self.world.check_and_restore(is_refused).await {
            self.tally.differences.push(format!("{} [{mode:?}] rows differ afterwards:\n{difference}", case.place));
        }
    }

    /// Scripts have connections of their own.
    pub async fn renew(&mut self) {
        self.plain = self.world.connect_plain().await;
        self.proxy = self.world.connect_proxy().await;
    }

    async fn answers(&mut self, step: &Step, values: &[Option<String>], mode: Mode) -> (Answers, Answers) {
        match mode {
            Mode::Simple => {
                let text = with_literals(&step.text, values);
                let plain = self.plain.query(&text, &step.copy).await;
                (vec![plain], vec![self.proxy.query(&text, &step.copy).await])
            }
            Mode::Text | Mode::BinaryResults => {
                let values = values.iter().map(|value| value.as_ref().map(|text| text.clone().into_bytes())).collect();
                let results = if mode == Mode::Text { Format::Text } else { Format::Binary };
                let messages = batch(&step.text, Vec::new(), Format::Text, values, results);
                (
                    vec![send_copy(&mut self.plain, &messages, &step.copy).await],
                    vec![send_copy(&mut self.proxy, &messages, &step.copy).await],
                )
            }
            Mode::Binary => self.named(step, values).await,
            Mode::Declared => {
                let types = declared(&mut self.plain, &step.text).await;
                let values = self.encoded(&types, values).await;
                let messages = batch(&step.text, types, Format::Binary, values.clone(), Format::Text);
                let plain = send_copy(&mut self.plain, &messages, &step.copy).await;
                // Types that users make have other oids there.
                let types = declared(&mut self.proxy, &step.text).await;
                let messages = batch(&step.text, types, Format::Binary, values, Format::Text);
                (vec![plain], vec![send_copy(&mut self.proxy, &messages, &step.copy).await])
            }
        }
    }

    /// Prepared by name, described, executed, closed: each a round trip.
    async fn named(&mut self, step: &Step, values: &[Option<String>]) -> (Answers, Answers) {
        let name = || "case".to_owned();
        let prepare =
            [Message::Parse { name: name(), text: step.text.clone(), types: Vec::new() }, Message::DescribeStatement(name())];
        let (plain, proxy) = (send(&mut self.plain, &prepare).await, send(&mut self.proxy, &prepare).await);
        let has_failed = plain.error().is_some() || proxy.error().is_some();
        let types = plain.parameters().unwrap_or_default().to_vec();
        let (mut all_plain, mut all_proxy) = (vec![plain], vec![proxy]);
        if !has_failed {
            let values = self.encoded(&types, values).await;
            let execute = [
                Message::Bind {
                    portal: String::new(),
                    statement: name(),
                    format: Format::Binary,
                    values,
                    results: vec![Format::Binary],
                },
                Message::DescribePortal(String::new()),
                Message::Execute { portal: String::new(), rows: 0 },
            ];
            let times = if step.text.to_ascii_uppercase().starts_with("SELECT") { 2 } else { 1 };
            for _ in 0..times {
                all_plain.push(send_copy(&mut self.plain, &execute, &step.copy).await);
                all_proxy.push(send_copy(&mut self.proxy, &execute, &step.copy).await);
            }
        }
        let close = [Message::CloseStatement(name())];
        all_plain.push(send(&mut self.plain, &close).await);
        all_proxy.push(send(&mut self.proxy, &close).await);
        (all_plain, all_proxy)
    }

    async fn encoded(&mut self, types: &[u32], values: &[Option<String>]) -> Vec<Option<Vec<u8>>> {
        let mut encoded = Vec::new();
        for (index, value) in values.iter().enumerate() {
            let Some(text) = value else {
                encoded.push(None);
                continue;
            };
            let key = (types.get(index).copied().unwrap_or(TEXT), text.clone());
            if !self.binaries.contains_key(&key) {
                let binary = self.world.binary(key.0, text).await;
                self.binaries.insert(key.clone(), binary);
            }
            // What is not a value of the type is sent as it is: both sides complain about the same bytes.
            encoded.push(Some(self.binaries[&key].clone().unwrap_or_else(|| text.clone().into_bytes())));
        }
        encoded
    }

    /// Back to the first rows, which both sides must have changed alike.
    pub async fn restore(&mut self, name: &str) {
        if let Some(difference) = self.world.check_and_restore(false).await {
            self.tally.differences.push(format!("{name}: answers differ\nrows afterwards:\n{difference}"));
        }
    }

    /// Messages and Flush: so many answers must come without a Sync.
    pub async fn flush(&mut self, name: &str, messages: &[Message], expected: usize) {
        self.tally.statements += 1;
        self.tally.checks += 1;
        for client in [&mut self.plain, &mut self.proxy] {
            messages.iter().for_each(|message| client.put(message));
        }
        let (plain, proxy) = (self.plain.flush(expected).await, self.proxy.flush(expected).await);
        if plain.lines(RowOrder::Total) != proxy.lines(RowOrder::Total) {
            let told = format!("{name}: answers differ\n    {messages:?}\n    PostgreSQL:\n{plain}    Shardgate:\n{proxy}");
            self.tally.differences.push(told);
        }
    }

    /// Messages that are spelt out, in one round trip.
    pub async fn exchange(&mut self, name: &str, messages: &[Message], order: RowOrder) {
        self.tally.statements += 1;
        self.tally.checks += 1;
        let plain = send(&mut self.plain, messages).await;
        let proxy = send(&mut self.proxy, messages).await;
        if plain.lines(order) != proxy.lines(order) {
            let told = format!("{name}: answers differ\n    {messages:?}\n    PostgreSQL:\n{plain}    Shardgate:\n{proxy}");
            self.tally.differences.push(told);
        }
    }
}

fn told(place: &str, step: &Step, values: &[Option<String>], plain: &Answers, proxy: &Answers) -> String {
    let mut told = format!("{place}\n    {}", step.text);
    if !values.is_empty() {
        write!(told, "\n    with {values:?}").expect("text");
    }
    for (side, answers) in [("PostgreSQL", plain), ("Shardgate", proxy)] {
        write!(told, "\n    {side}:\n").expect("text");
        answers.iter().for_each(|answer| write!(told, "{answer}").expect("text"));
    }
    told
}

fn judged(step: &Step, plain: &Answers, proxy: &Answers) -> Result<(), &'static str> {
    let error = |answers: &Answers| answers.iter().find_map(|answer| answer.error().cloned());
    match step.expected {
        Expected::Refused => {
            let Some(refusal) = error(proxy) else { return Err("is not refused") };
            if refusal.is_refusal() { Ok(()) } else { Err("is refused without 0A000, DETAIL and HINT") }
        }
        Expected::NoShard => match error(proxy) {
            Some(told) if told.get('C') == Some("SG001") => Ok(()),
            Some(_) | None => Err("has a shard"),
        },
        Expected::Runs => {
            let has_columns = |answers: &Answers| answers.iter().any(|answer| answer.rows().next().is_some());
            match (error(plain), error(proxy)) {
                (None, None) if has_columns(plain) == has_columns(proxy) => Ok(()),
                _ => Err("does not run on both"),
            }
        }
        Expected::Equal => {
            let lines = |answers: &Answers| answers.iter().map(|answer| answer.lines(step.order)).collect::<Vec<_>>();
            if lines(plain) == lines(proxy) { Ok(()) } else { Err("answers differ") }
        }
    }
}

/// Parameter types as the server infers them.
async fn declared(client: &mut RawClient, text: &str) -> Vec<u32> {
    let parse = Message::Parse { name: String::new(), text: text.to_owned(), types: Vec::new() };
    send(client, &[parse, Message::DescribeStatement(String::new())]).await.parameters().unwrap_or_default().to_vec()
}

async fn send(client: &mut RawClient, messages: &[Message]) -> Answer {
    send_copy(client, messages, b"").await
}

async fn send_copy(client: &mut RawClient, messages: &[Message], copy: &[u8]) -> Answer {
    messages.iter().for_each(|message| client.put(message));
    client.sync(copy).await
}

fn batch(text: &str, types: Vec<u32>, format: Format, values: Vec<Option<Vec<u8>>>, results: Format) -> Vec<Message> {
    vec![
        Message::Parse { name: String::new(), text: text.to_owned(), types },
        Message::Bind { portal: String::new(), statement: String::new(), format, values, results: vec![results] },
        Message::DescribePortal(String::new()),
        Message::Execute { portal: String::new(), rows: 0 },
    ]
}

impl Tally {
    /// The same, but for what is listed, `scene place reason` a line. What is listed must differ.
    pub fn finish_but_for(mut self, name: &str, scene: &str, listed: &str) {
        let lines = listed.lines().filter_map(|line| line.strip_prefix(scene)?.strip_prefix(' ')?.split(' ').next());
        let mut places: HashMap<&str, usize> = lines.map(|place| (place, 0)).collect();
        let place_of = |difference: &str| difference.split(' ').next().unwrap_or_default().to_owned();
        self.differences.retain(|difference| match places.get_mut(&*place_of(difference)) {
            Some(count) => {
                *count += 1;
                false
            }
            None => true,
        });
        let unused: Vec<&str> = places.iter().filter(|(_, count)| **count == 0).map(|(place, _)| *place).collect();
        self.finish(name);
        assert!(unused.is_empty(), "listed, and not different: {unused:?}");
    }

    /// Says what was done; panics with all differences.
    pub fn finish(self, name: &str) {
        let Tally { statements, refused, checks, differences } = self;
        println!("{name}: {statements} statements ({refused} refused), {checks} comparisons");
        if let Some(place) = std::env::var_os("SHARDGATE_PARITY_REPORT") {
            let path = std::path::Path::new(&place).join(format!("{name}.txt"));
            std::fs::write(path, differences.join("\n\n")).expect("a report");
        }
        assert!(differences.is_empty(), "{} of {checks} comparisons differ:\n\n{}", differences.len(), differences.join("\n\n"));
    }
}

const TEXT: u32 = 25;
/// Rows of several shards arrive in any order. What hangs on it (which of equal values stands for its group) is right as one of
/// so many answers.
const ANSWERS_MAX: usize = 20;
