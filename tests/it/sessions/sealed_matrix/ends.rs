//! How the transaction ends in which something is set.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The statement is a transaction of its own.
    Alone,
    Commit,
    Rollback,
    RollbackToSavepoint,
    /// A later statement of the block fails.
    ErrorInBlock,
    /// A later statement of the same message, or of the same pipeline, fails.
    ErrorInMessage,
    /// The client leaves in the middle of its transaction.
    Left,
}

pub const ENDS: &[End] =
    &[End::Alone, End::Commit, End::Rollback, End::RollbackToSavepoint, End::ErrorInBlock, End::ErrorInMessage, End::Left];

const FAILING: &str = "SELECT 1/0";

impl End {
    /// Statements before the one that sets.
    pub fn before(self) -> &'static [&'static str] {
        match self {
            Self::Alone | Self::ErrorInMessage => &[],
            Self::Commit | Self::Rollback | Self::ErrorInBlock | Self::Left => &["BEGIN"],
            Self::RollbackToSavepoint => &["BEGIN", "SAVEPOINT s"],
        }
    }

    /// Statements after it.
    pub fn after(self) -> &'static [&'static str] {
        match self {
            Self::Alone | Self::Left => &[],
            Self::Commit => &["COMMIT"],
            Self::Rollback => &["ROLLBACK"],
            Self::RollbackToSavepoint => &["ROLLBACK TO s", "COMMIT"],
            Self::ErrorInBlock => &[FAILING, "COMMIT"],
            Self::ErrorInMessage => &[FAILING],
        }
    }

    pub fn is_block(self) -> bool {
        !matches!(self, Self::Alone | Self::ErrorInMessage)
    }
}
