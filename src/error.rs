//! Errors in the form a PostgreSQL client reads: severity, SQLSTATE, message, detail, hint, position.
//!
//! Follows PostgreSQL's error style guide: the message is lower case without a full stop, detail and hint are sentences.
//! Never carries a key's value, a password or an address. Errors of a shard do not pass through here: their bytes are
//! forwarded.

use std::fmt;

/// A five-character SQLSTATE.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlState(pub [u8; 5]);

impl SqlState {
    pub const WARNING: Self = Self(*b"01000");
    pub const SUCCESSFUL_COMPLETION: Self = Self(*b"00000");
    pub const FEATURE_NOT_SUPPORTED: Self = Self(*b"0A000");
    pub const CONNECTION_FAILURE: Self = Self(*b"08006");
    pub const TRANSACTION_RESOLUTION_UNKNOWN: Self = Self(*b"08007");
    pub const PROTOCOL_VIOLATION: Self = Self(*b"08P01");
    pub const NUMERIC_VALUE_OUT_OF_RANGE: Self = Self(*b"22003");
    pub const INVALID_PARAMETER_VALUE: Self = Self(*b"22023");
    pub const SEQUENCE_LIMIT_EXCEEDED: Self = Self(*b"2200H");
    pub const INVALID_TEXT_REPRESENTATION: Self = Self(*b"22P02");
    pub const INVALID_BINARY_REPRESENTATION: Self = Self(*b"22P03");
    pub const CHARACTER_NOT_IN_REPERTOIRE: Self = Self(*b"22021");
    pub const CARDINALITY_VIOLATION: Self = Self(*b"21000");
    pub const BAD_COPY_FILE_FORMAT: Self = Self(*b"22P04");
    pub const ACTIVE_SQL_TRANSACTION: Self = Self(*b"25001");
    pub const READ_ONLY_SQL_TRANSACTION: Self = Self(*b"25006");
    pub const NO_ACTIVE_SQL_TRANSACTION: Self = Self(*b"25P01");
    pub const IN_FAILED_SQL_TRANSACTION: Self = Self(*b"25P02");
    pub const IDLE_IN_TRANSACTION_SESSION_TIMEOUT: Self = Self(*b"25P03");
    pub const INVALID_SQL_STATEMENT_NAME: Self = Self(*b"26000");
    pub const INVALID_AUTHORIZATION: Self = Self(*b"28000");
    pub const INVALID_PASSWORD: Self = Self(*b"28P01");
    pub const INVALID_CURSOR_NAME: Self = Self(*b"34000");
    pub const INVALID_CATALOG_NAME: Self = Self(*b"3D000");
    pub const INVALID_SAVEPOINT: Self = Self(*b"3B001");
    pub const SERIALIZATION_FAILURE: Self = Self(*b"40001");
    pub const DEADLOCK_DETECTED: Self = Self(*b"40P01");
    pub const INSUFFICIENT_PRIVILEGE: Self = Self(*b"42501");
    pub const SYNTAX_ERROR: Self = Self(*b"42601");
    pub const GENERATED_ALWAYS: Self = Self(*b"428C9");
    pub const UNDEFINED_COLUMN: Self = Self(*b"42703");
    pub const UNDEFINED_FUNCTION: Self = Self(*b"42883");
    pub const UNDEFINED_TABLE: Self = Self(*b"42P01");
    pub const UNDEFINED_OBJECT: Self = Self(*b"42704");
    pub const DUPLICATE_TABLE: Self = Self(*b"42P07");
    pub const DUPLICATE_COLUMN: Self = Self(*b"42701");
    pub const DUPLICATE_DATABASE: Self = Self(*b"42P04");
    pub const DUPLICATE_OBJECT: Self = Self(*b"42710");
    pub const DUPLICATE_CURSOR: Self = Self(*b"42P03");
    pub const DUPLICATE_PREPARED_STATEMENT: Self = Self(*b"42P05");
    pub const TOO_MANY_CONNECTIONS: Self = Self(*b"53300");
    pub const CONFIGURATION_LIMIT_EXCEEDED: Self = Self(*b"53400");
    pub const PROGRAM_LIMIT_EXCEEDED: Self = Self(*b"54000");
    pub const STATEMENT_TOO_COMPLEX: Self = Self(*b"54001");
    pub const OBJECT_NOT_IN_PREREQUISITE_STATE: Self = Self(*b"55000");
    pub const OBJECT_IN_USE: Self = Self(*b"55006");
    pub const LOCK_NOT_AVAILABLE: Self = Self(*b"55P03");
    pub const QUERY_CANCELED: Self = Self(*b"57014");
    pub const ADMIN_SHUTDOWN: Self = Self(*b"57P01");
    pub const CANNOT_CONNECT_NOW: Self = Self(*b"57P03");
    pub const INTERNAL_ERROR: Self = Self(*b"XX000");
    /// No shard for this key: a lookup without mapping and without default shard.
    pub const NO_SHARD_FOR_KEY: Self = Self(*b"SG001");
    /// The routing hint names no shard of this cluster.
    pub const NO_SUCH_SHARD: Self = Self(*b"SG002");

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("XX000")
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the client does next depends on it: after `Fatal` the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error,
    Fatal,
    Warning,
    Notice,
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
            Severity::Warning => "WARNING",
            Severity::Notice => "NOTICE",
        }
    }
}

/// One ErrorResponse or NoticeResponse that the proxy itself originates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgError {
    pub severity: Severity,
    pub code: SqlState,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
    /// 1-based, in characters of the client's own text.
    pub position: Option<u32>,
    pub context: Option<String>,
}

const CHANGED_PLAN: &str = "cached plan must not change result type";

impl PgError {
    pub fn new(code: SqlState, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, code, message: message.into(), detail: None, hint: None, position: None, context: None }
    }

    pub fn fatal(code: SqlState, message: impl Into<String>) -> Self {
        Self { severity: Severity::Fatal, ..Self::new(code, message) }
    }

    pub fn warning(code: SqlState, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::new(code, message) }
    }

    /// A refusal: the statement cannot mean the same over shards as on one PostgreSQL. Says what, where and what to write instead.
    pub fn unsupported(message: impl Into<String>, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_detail(detail).with_hint(hint)
    }

    /// A bug of ours, never the user's fault.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(SqlState::INTERNAL_ERROR, message)
    }

    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(sentence(detail.into()));
        self
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn with_position(mut self, position: Option<u32>) -> Self {
        self.position = position;
        self
    }

    #[must_use]
    pub fn with_context(mut self, context: impl Into<String>) -> Self {
        self.context = Some(context.into());
        self
    }

    /// In PostgreSQL's words: the columns that a prepared statement was described with are others now.
    pub fn changed_plan() -> Self {
        Self::new(SqlState::FEATURE_NOT_SUPPORTED, CHANGED_PLAN)
    }

    /// PostgreSQL's function that says the same, where drivers know an error by it.
    pub fn routine(&self) -> Option<&'static str> {
        (self.message == CHANGED_PLAN).then_some("RevalidateCachedQuery")
    }

    pub fn is_fatal(&self) -> bool {
        self.severity == Severity::Fatal
    }
}

/// Begins with a capital, unless it begins with a name rather than a word.
fn sentence(text: String) -> String {
    let word_end = text.find(|character: char| !character.is_ascii_lowercase()).unwrap_or(text.len());
    let is_word = word_end > 0 && text.get(word_end..).is_none_or(|rest| rest.is_empty() || rest.starts_with([' ', ',', ':']));
    let mut characters = text.chars();
    match characters.next().filter(|_| is_word) {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => text,
    }
}

impl fmt::Display for PgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({:?})", self.severity.as_str(), self.message, self.code)?;
        if let Some(detail) = &self.detail {
            write!(f, " DETAIL: {detail}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, " HINT: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for PgError {}

/// The text with its first letter as a sentence has it.
pub fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}
