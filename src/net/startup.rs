//! Decodes the first packet of a connection. Pure: bytes in, a packet or a reason out.
//!
//! The first packet has no type byte: a length, a code, a body. PostgreSQL closes without a word when the length is absurd (the
//! peer is likely no client at all) and answers with an error when a startup packet is malformed; so does this. Works on
//! borrowed bytes, copies only the parameters, never indexes.

use crate::error::{PgError, SqlState};

/// What a client may open with.
#[derive(Debug, PartialEq, Eq)]
pub enum StartupPacket {
    SslRequest,
    GssEncRequest,
    /// The key as the proxy gave it out in BackendKeyData: process id and secret, undivided.
    Cancel {
        key: Vec<u8>,
    },
    Startup(StartupParameters),
}

/// A StartupMessage of protocol 3.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StartupParameters {
    /// In the order given, `user` and `database` included, protocol options not.
    pub parameters: Vec<(String, String)>,
    /// The 3.x that the client asked for.
    pub protocol_minor: u16,
    /// Names beginning with `_pq_.`: none is known, all are reported back.
    pub protocol_options: Vec<String>,
}

impl StartupParameters {
    /// The last value of a parameter: where one is given twice PostgreSQL takes the later.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().rev().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// Whether the client must be told that it gets less than it asked for.
    pub fn needs_negotiation(&self) -> bool {
        self.protocol_minor > 0 || !self.protocol_options.is_empty()
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum StartupError {
    /// Not PostgreSQL's protocol: close without a word.
    Foreign(&'static str),
    /// A client that can read an error.
    Refused(PgError),
}

impl StartupPacket {
    /// How many bytes the packet that begins here has in all, once its length is there; checked against the limit.
    pub fn length(bytes: &[u8], bytes_max: u32) -> Result<Option<usize>, StartupError> {
        let Some((length, _)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        // A negative length is, read unsigned, beyond any limit.
        let length = u32::from_be_bytes(*length);
        if length < LENGTH_MIN || length > bytes_max {
            return Err(StartupError::Foreign("invalid length of startup packet"));
        }
        usize::try_from(length).map(Some).map_err(|_| StartupError::Foreign("invalid length of startup packet"))
    }

    /// `packet` is one whole packet with its length, as [`StartupPacket::length`] says.
    pub fn decode(packet: &[u8]) -> Result<Self, StartupError> {
        let short = StartupError::Foreign("incomplete startup packet");
        let Some((length, rest)) = packet.split_first_chunk::<4>() else { return Err(short) };
        if usize::try_from(u32::from_be_bytes(*length)) != Ok(packet.len()) {
            return Err(short);
        }
        let Some((code, body)) = rest.split_first_chunk::<4>() else { return Err(short) };
        match u32::from_be_bytes(*code) {
            SSL_REQUEST | GSS_ENC_REQUEST if !body.is_empty() => Err(StartupError::Foreign("invalid length of encryption request")),
            SSL_REQUEST => Ok(Self::SslRequest),
            GSS_ENC_REQUEST => Ok(Self::GssEncRequest),
            CANCEL_REQUEST if (CANCEL_KEY_MIN..=CANCEL_KEY_MAX).contains(&body.len()) => Ok(Self::Cancel { key: body.to_vec() }),
            CANCEL_REQUEST => Err(StartupError::Foreign("invalid length of cancel request")),
            code => startup(code, body).map(Self::Startup),
        }
    }
}

fn startup(code: u32, body: &[u8]) -> Result<StartupParameters, StartupError> {
    let [major_high, major_low, minor_high, minor_low] = code.to_be_bytes();
    let (major, minor) = (u16::from_be_bytes([major_high, major_low]), u16::from_be_bytes([minor_high, minor_low]));
    if major != 3 {
        return refuse(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0"),
        );
    }
    let mut startup = StartupParameters { protocol_minor: minor, ..Default::default() };
    let mut rest = body;
    loop {
        let Some((name, after)) = c_string(rest)? else { return refuse_layout() };
        if name.is_empty() {
            if !after.is_empty() {
                return refuse_layout();
            }
            break;
        }
        let Some((value, after)) = c_string(after)? else { return refuse_layout() };
        if name.starts_with("_pq_.") {
            startup.protocol_options.push(name.to_owned());
        } else {
            startup.parameters.push((name.to_owned(), value.to_owned()));
        }
        rest = after;
    }
    if startup.get("user").unwrap_or("").is_empty() {
        return refuse(SqlState::INVALID_AUTHORIZATION, "no PostgreSQL user name specified in startup packet".into());
    }
    Ok(startup)
}

/// The text before the next NUL and what follows it; none without a NUL.
fn c_string(bytes: &[u8]) -> Result<Option<(&str, &[u8])>, StartupError> {
    let Some(end) = bytes.iter().position(|byte| *byte == 0) else { return Ok(None) };
    let (text, rest) = bytes.split_at(end);
    let rest = rest.get(1..).unwrap_or_default();
    match std::str::from_utf8(text) {
        Ok(text) => Ok(Some((text, rest))),
        Err(_) => {
            refuse(SqlState::CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding \"UTF8\" in startup packet".into())
        }
    }
}

fn refuse_layout<T>() -> Result<T, StartupError> {
    let message = "invalid startup packet layout: expected terminator as last byte";
    refuse(SqlState::PROTOCOL_VIOLATION, message.into())
}

fn refuse<T>(code: SqlState, message: String) -> Result<T, StartupError> {
    Err(StartupError::Refused(PgError::fatal(code, message)))
}

/// Length and code.
const LENGTH_MIN: u32 = 8;
const SSL_REQUEST: u32 = (1234 << 16) | 5679;
const GSS_ENC_REQUEST: u32 = (1234 << 16) | 5680;
const CANCEL_REQUEST: u32 = (1234 << 16) | 5678;
/// A process id and a secret of at least 4 bytes, at most 256 from protocol 3.2 on.
const CANCEL_KEY_MIN: usize = 8;
const CANCEL_KEY_MAX: usize = 4 + 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(code: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 8).expect("short");
        [&length.to_be_bytes()[..], &code.to_be_bytes(), body].concat()
    }

    fn refusal(body: &[u8]) -> PgError {
        match StartupPacket::decode(&packet(3 << 16, body)) {
            Err(StartupError::Refused(error)) => error,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_kind_is_told_apart() {
        assert_eq!(StartupPacket::decode(&packet(SSL_REQUEST, b"")), Ok(StartupPacket::SslRequest));
        assert_eq!(StartupPacket::decode(&packet(GSS_ENC_REQUEST, b"")), Ok(StartupPacket::GssEncRequest));
        let key = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(StartupPacket::decode(&packet(CANCEL_REQUEST, &key)), Ok(StartupPacket::Cancel { key: key.to_vec() }));
        let Ok(StartupPacket::Startup(startup)) = StartupPacket::decode(&packet(3 << 16, b"user\0a\0database\0b\0user\0c\0\0"))
        else {
            panic!("a startup message")
        };
        assert_eq!((startup.get("user"), startup.get("database"), startup.get("options")), (Some("c"), Some("b"), None));
        assert!(!startup.needs_negotiation());
    }

    #[test]
    fn newer_protocols_and_their_options_are_noted() {
        let bytes = packet((3 << 16) | 2, b"user\0a\0_pq_.x\0on\0\0");
        let Ok(StartupPacket::Startup(startup)) = StartupPacket::decode(&bytes) else { panic!("a startup message") };
        assert_eq!((startup.protocol_minor, startup.protocol_options.as_slice()), (2, &["_pq_.x".to_owned()][..]));
        assert_eq!(startup.get("_pq_.x"), None);
        assert!(startup.needs_negotiation());
    }

    #[test]
    fn malformed_startup_packets_get_postgresql_s_words() {
        for body in [&b""[..], b"user", b"user\0", b"user\0a", b"user\0a\0", b"user\0a\0\0x", b"user\0a\0\0\0", b"\0\0"] {
            let error = refusal(body);
            assert_eq!(error.code, SqlState::PROTOCOL_VIOLATION, "{body:?}");
            assert_eq!(error.message, "invalid startup packet layout: expected terminator as last byte");
        }
        for body in [&b"\0"[..], b"database\0a\0\0", b"user\0\0\0"] {
            assert_eq!(refusal(body).message, "no PostgreSQL user name specified in startup packet", "{body:?}");
        }
        assert_eq!(refusal(b"user\0\xff\0\0").code, SqlState::CHARACTER_NOT_IN_REPERTOIRE);
    }

    #[test]
    fn other_protocols_are_refused_by_version() {
        for (code, version) in [(2 << 16, "2.0"), ((4 << 16) | 1, "4.1"), (0, "0.0"), (SSL_REQUEST + 2, "1234.5681")] {
            let Err(StartupError::Refused(error)) = StartupPacket::decode(&packet(code, b"")) else { panic!("{version}") };
            assert_eq!(error.code, SqlState::FEATURE_NOT_SUPPORTED);
            assert_eq!(error.message, format!("unsupported frontend protocol {version}: server supports 3.0 to 3.0"));
        }
    }

    #[test]
    fn absurd_lengths_close_without_a_word() {
        for length in [i32::MIN, -1, 0, 4, 7, 10_001, i32::MAX] {
            let bytes = length.to_be_bytes();
            assert!(matches!(StartupPacket::length(&bytes, 10_000), Err(StartupError::Foreign(_))), "{length}");
        }
        assert_eq!(StartupPacket::length(&[0, 0, 0], 10_000), Ok(None));
        assert_eq!(StartupPacket::length(&10_000_u32.to_be_bytes(), 10_000), Ok(Some(10_000)));
        let foreign = |bytes: &[u8]| matches!(StartupPacket::decode(bytes), Err(StartupError::Foreign(_)));
        assert!(foreign(&packet(CANCEL_REQUEST, &[0; 7])) && foreign(&packet(CANCEL_REQUEST, &[0; 261])));
        assert!(
            foreign(&packet(SSL_REQUEST, b"x")) && foreign(b"") && foreign(&[0, 0, 0, 8]) && foreign(&[0, 0, 0, 9, 0, 3, 0, 0])
        );
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), fix in proptest::prelude::any::<bool>()) {
            let mut bytes = bytes;
            if fix && bytes.len() >= 8 {
                let length = u32::try_from(bytes.len()).expect("short");
                bytes.splice(0..6, [&length.to_be_bytes()[..], &[0, 3]].concat());
            }
            if let Ok(StartupPacket::Startup(startup)) = StartupPacket::decode(&bytes) {
                assert!(startup.get("user").is_some_and(|user| !user.is_empty()));
            }
        }
    }
}
