//! Reads files of cases: SQL, with what is particular about a statement in lines that begin with `--!` before it.
//!
//! ```text
//! SELECT 1;                               a statement ends with a semicolon at the end of a line
//! --! 5 | NULL | abc                      values of $1, $2, $3; the statement runs once for each such line
//! SELECT * FROM t WHERE id = $1;
//! --! refused                             on the proxy: 0A000 with DETAIL and HINT
//! --! no shard                            on the proxy: SG001, for a key that is not mapped
//! --! any order | count only | total order    how rows are compared; by default total order for FETCH and where ORDER BY stands
//!                                         outside of parentheses
//! --! runs                                must work on both, answers not compared (EXPLAIN)
//! --! also binary                         a script that also runs in the extended protocol with binary results
//! --! simple                              in the simple protocol only; also: extended
//! --! script                              what follows, up to `--! end`, runs on one connection, statement by statement
//! COPY t FROM STDIN;                      followed by its data, up to a line `\.`
//! ```

use super::answer::RowOrder;

pub struct Case {
    /// Where it stands.
    pub place: String,
    pub steps: Vec<Step>,
    /// A new connection of its own for each run.
    pub is_script: bool,
    pub protocols: Protocols,
}

pub struct Step {
    pub text: String,
    /// At least one; most are empty.
    pub values: Vec<Vec<Option<String>>>,
    pub order: RowOrder,
    pub expected: Expected,
    pub copy: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Equal,
    Refused,
    NoShard,
    Runs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocols {
    All,
    Simple,
    Extended,
    AlsoBinary,
}

/// Directives that wait for their statement.
struct Pending {
    values: Vec<Vec<Option<String>>>,
    order: Option<RowOrder>,
    expected: Expected,
    protocols: Protocols,
}

impl Pending {
    fn new() -> Self {
        Self { values: Vec::new(), order: None, expected: Expected::Equal, protocols: Protocols::All }
    }

    fn directive(&mut self, text: &str) {
        match text {
            "refused" => self.expected = Expected::Refused,
            "no shard" => self.expected = Expected::NoShard,
            "runs" => self.expected = Expected::Runs,
            "any order" => self.order = Some(RowOrder::Free),
            "count only" => self.order = Some(RowOrder::CountOnly),
            "total order" => self.order = Some(RowOrder::Total),
            "simple" => self.protocols = Protocols::Simple,
            "extended" => self.protocols = Protocols::Extended,
            "also binary" => self.protocols = Protocols::AlsoBinary,
            values => {
                let value = |value: &str| match value.trim() {
                    "NULL" => None,
                    "''" => Some(String::new()),
                    value => Some(value.to_owned()),
                };
                self.values.push(values.split(" | ").map(value).collect());
            }
        }
    }

    fn step(&mut self, text: String, copy: Vec<u8>) -> Step {
        let order =
            self.order.unwrap_or(if has_order_by(&text) || text.starts_with("FETCH") { RowOrder::Total } else { RowOrder::Free });
        let mut values = std::mem::take(&mut self.values);
        if values.is_empty() {
            values.push(Vec::new());
        }
        Step { text, values, order, expected: self.expected, copy }
    }
}

pub fn cases(file: &str, text: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut pending = Pending::new();
    let mut script: Option<Case> = None;
    let mut statement = String::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let place = format!("{file}:{}", number + 1);
        if let Some(directive) = line.strip_prefix("--!") {
            match directive.trim() {
                "script" => {
                    script = Some(Case { place, steps: Vec::new(), is_script: true, protocols: pending.protocols });
                    pending = Pending::new();
                }
                "end" => cases.push(script.take().expect("a script to end")),
                directive => pending.directive(directive),
            }
            continue;
        }
        if statement.is_empty() && (line.trim().is_empty() || line.starts_with("-- ")) {
            continue;
        }
        statement.push_str(line);
        let Some(whole) = statement.strip_suffix(';') else {
            statement.push('\n');
            continue;
        };
        let takes_data = whole.to_ascii_uppercase().contains("FROM STDIN");
        let data: Vec<&str> =
            if takes_data { lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "\\.").collect() } else { Vec::new() };
        let copy = data.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
        let step = pending.step(whole.to_owned(), copy);
        match &mut script {
            Some(case) => case.steps.push(step),
            None => cases.push(Case { place, steps: vec![step], is_script: false, protocols: pending.protocols }),
        }
        statement.clear();
        pending = Pending::new();
    }
    assert!(script.is_none() && statement.is_empty(), "{file} ends in the middle of a case: {statement}");
    cases
}

/// ORDER BY outside of parentheses and quotes.
fn has_order_by(text: &str) -> bool {
    let mut depth = 0_i32;
    let mut is_quoted = false;
    let outside: String = text
        .chars()
        .filter(|character| {
            match character {
                '\'' => is_quoted = !is_quoted,
                '(' if !is_quoted => depth += 1,
                ')' if !is_quoted => depth -= 1,
                _ => {}
            }
            depth == 0 && !is_quoted
        })
        .collect();
    outside.to_ascii_uppercase().split_whitespace().collect::<Vec<_>>().join(" ").contains("ORDER BY")
}

/// The statement with literals in the places of its parameters, for the simple protocol.
pub fn with_literals(text: &str, values: &[Option<String>]) -> String {
    let mut out = String::new();
    let mut characters = text.char_indices().peekable();
    let mut is_quoted = false;
    while let Some((start, character)) = characters.next() {
        is_quoted ^= character == '\'';
        let rest = &text[start + character.len_utf8()..];
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if character != '$' || is_quoted || digits == 0 {
            out.push(character);
            continue;
        }
        let number: usize = text[start + 1..start + 1 + digits].parse().expect("a number");
        match values.get(number - 1) {
            // As drivers that put values into the text do.
            Some(Some(value)) if out.ends_with("LIMIT ") || out.ends_with("OFFSET ") => out.push_str(value),
            Some(Some(value)) => out.push_str(&format!("'{}'", value.replace('\'', "''"))),
            Some(None) => out.push_str("NULL"),
            None => out.push_str(&text[start..start + 1 + digits]),
        }
        for _ in 0..digits {
            characters.next();
        }
    }
    out
}
