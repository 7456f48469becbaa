//! By which messages the statements of a session are sent.

use bytes::Bytes;

use super::ends::End;
use super::speaker::Speaker;
use super::ways::Form;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Simple,
    Extended,
    /// Everything up to the end of the transaction before one Sync.
    Pipelined,
    /// A named statement, executed twice.
    Named,
    /// PREPARE and EXECUTE, the statements.
    Prepare,
    Cursor,
    CopyOut,
    CopyIn,
    Explain,
}

pub const PROTOCOLS: &[Protocol] = &[
    Protocol::Simple,
    Protocol::Extended,
    Protocol::Pipelined,
    Protocol::Named,
    Protocol::Prepare,
    Protocol::Cursor,
    Protocol::CopyOut,
    Protocol::CopyIn,
    Protocol::Explain,
];

impl Protocol {
    /// Why a statement of this form is not sent so.
    pub fn cannot_send(self, form: Form) -> Option<&'static str> {
        match self {
            Self::Simple | Self::Extended | Self::Pipelined | Self::Named => None,
            Self::Prepare | Self::Explain => (form == Form::Utility).then_some("PREPARE and EXPLAIN take no utility statement"),
            Self::Cursor | Self::CopyOut => (form != Form::Query).then_some("DECLARE and COPY ... TO take queries"),
            Self::CopyIn => {
                (!matches!(form, Form::Insert { row: Some(_) })).then_some("COPY ... FROM inserts a row, and looks at no rules")
            }
        }
    }

    /// Why a transaction with it does not end so.
    pub fn cannot_end(self, end: End) -> Option<&'static str> {
        match end {
            End::ErrorInMessage => (!matches!(self, Self::Simple | Self::Pipelined)).then_some("nothing else is in its message"),
            End::Alone => (self == Self::Cursor).then_some("a cursor needs a transaction block"),
            _ => None,
        }
    }

    /// Sends a transaction: what comes before, the statement that sets, what comes after.
    pub async fn send(self, speaker: &mut Speaker, end: End, sql: &str, row: Option<(&str, &str)>) {
        match self {
            Self::Pipelined => {
                // What comes beside it in a transaction of its own.
                let beside: &[&str] = if end.is_block() { &[] } else { &["SELECT 'beside'"] };
                let all = [beside, end.before(), &[sql], end.after()].concat();
                return speaker.pipeline(&all).await;
            }
            Self::Simple if end == End::ErrorInMessage => return speaker.query(&[&[sql], end.after()].concat().join("; ")).await,
            _ => {}
        }
        for text in end.before() {
            speaker.query(text).await;
        }
        self.send_one(speaker, sql, row).await;
        for text in end.after() {
            speaker.query(text).await;
        }
    }

    async fn send_one(self, speaker: &mut Speaker, sql: &str, row: Option<(&str, &str)>) {
        match self {
            Self::Simple => speaker.query(sql).await,
            Self::Extended | Self::Pipelined => speaker.pipeline(&[sql]).await,
            Self::Named => speaker.named(sql).await,
            Self::Prepare => {
                speaker.query(&format!("PREPARE sender AS {sql}")).await;
                speaker.query("EXECUTE sender").await;
            }
            Self::Cursor => {
                speaker.query(&format!("DECLARE sender CURSOR FOR {sql}")).await;
                speaker.query("FETCH ALL FROM sender").await;
            }
            Self::CopyOut => speaker.query(&format!("COPY ({sql}) TO STDOUT")).await,
            Self::CopyIn => {
                let (columns, row) = row.expect("it has a row");
                speaker.copy_in(&format!("COPY {{inbox}} ({columns}) FROM STDIN"), Bytes::from(format!("{row}\n"))).await;
            }
            Self::Explain => speaker.explain(&format!("EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) {sql}")).await,
        }
    }
}
