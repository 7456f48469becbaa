//! Where the tuples of the binary format end: a count of fields, then each field's length and bytes.
//!
//! What PostgreSQL would refuse is not told apart any further: the shards refuse it, in their own words.

/// Reads the parts of one COPY, in order.
#[derive(Debug, Default)]
pub struct Tuples {
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Header,
    Tuples,
    /// After the trailer, or what is no header: all of it goes everywhere.
    Rest,
}

/// What the data begins with, and how many bytes it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundTuple {
    More,
    Everywhere(usize),
    Row(usize),
    Broken(usize),
}

impl Tuples {
    /// `data` is not empty. `is_complete`: nothing follows it.
    pub fn find(&mut self, data: &[u8], is_complete: bool) -> FoundTuple {
        match self.state {
            State::Header => match header(data) {
                Some(Ok(length)) if length <= data.len() => {
                    self.state = State::Tuples;
                    FoundTuple::Everywhere(length)
                }
                Some(Ok(_)) | None if !is_complete => FoundTuple::More,
                Some(Ok(_) | Err(NoHeader)) | None => {
                    self.state = State::Rest;
                    FoundTuple::Everywhere(data.len())
                }
            },
            State::Tuples => match tuple(data) {
                FoundTuple::More if is_complete => FoundTuple::Broken(data.len()),
                FoundTuple::Everywhere(length) => {
                    self.state = State::Rest;
                    FoundTuple::Everywhere(length)
                }
                found @ (FoundTuple::More | FoundTuple::Row(_) | FoundTuple::Broken(_)) => found,
            },
            State::Rest => FoundTuple::Everywhere(data.len()),
        }
    }
}

struct NoHeader;

/// Its length; `None`: more bytes are needed to know.
fn header(data: &[u8]) -> Option<Result<usize, NoHeader>> {
    let known = data.len().min(SIGNATURE.len());
    if data.get(..known) != SIGNATURE.get(..known) {
        return Some(Err(NoHeader));
    }
    let extension = int4(data, SIGNATURE.len() + 4)?;
    Some(usize::try_from(extension).map(|extension| SIGNATURE.len() + 8 + extension).map_err(|_| NoHeader))
}

fn tuple(data: &[u8]) -> FoundTuple {
    let Some(count) = data.first_chunk::<2>().map(|bytes| i16::from_be_bytes(*bytes)) else { return FoundTuple::More };
    if count == -1 {
        return FoundTuple::Everywhere(2);
    }
    let mut at = 2;
    for _ in 0..count {
        let Some(length) = int4(data, at) else { return FoundTuple::More };
        at += 4;
        match usize::try_from(length) {
            Ok(length) => at += length,
            Err(_) if length == -1 => {}
            Err(_) => return FoundTuple::Broken(data.len()),
        }
    }
    match (count < 0, at <= data.len()) {
        (true, _) => FoundTuple::Broken(data.len()),
        (false, true) => FoundTuple::Row(at),
        (false, false) => FoundTuple::More,
    }
}

/// A field of a whole tuple; the inner `None`: it is NULL.
pub fn field(tuple: &[u8], position: usize) -> Option<Option<&[u8]>> {
    let count = tuple.first_chunk::<2>().map(|bytes| i16::from_be_bytes(*bytes))?;
    if position >= usize::try_from(count).ok()? {
        return None;
    }
    let mut at = 2;
    for _ in 0..position {
        at += 4 + usize::try_from(int4(tuple, at)?).unwrap_or(0);
    }
    match usize::try_from(int4(tuple, at)?) {
        Ok(length) => tuple.get(at + 4..at + 4 + length).map(Some),
        Err(_) => Some(None),
    }
}

fn int4(data: &[u8], at: usize) -> Option<i32> {
    data.get(at..).and_then(|rest| rest.first_chunk::<4>()).map(|bytes| i32::from_be_bytes(*bytes))
}

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
