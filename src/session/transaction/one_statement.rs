//! The transaction of one statement: what works on several shards outside of a transaction block begins one for itself, and ends it.

use crate::session::{Failure, Session};
use crate::sql::analysis::TransactionModes;

impl Session {
    /// What has run in the pipeline before is part of it.
    pub(in crate::session) fn begin_one_statement(&mut self) {
        self.transaction.begin(TransactionModes::default(), &self.settings);
        self.adopt_pipeline();
    }

    /// Commits what the statement has done, or rolls it back where it has failed. `begins_here`: the transaction is the statement's
    /// own; otherwise it goes on.
    pub(in crate::session) async fn end_one_statement<T>(
        &mut self,
        begins_here: bool,
        run: Result<T, Failure>,
    ) -> Result<T, Failure> {
        if !begins_here || !self.transaction.is_open() {
            return run;
        }
        match run {
            Ok(done) => self.commit_everywhere().await.map(|()| done),
            // The session's connections end with it, and what was begun on them.
            Err(Failure::End(end)) => Err(end.into()),
            Err(failure) => {
                self.rollback_everywhere().await?;
                Err(failure)
            }
        }
    }
}
