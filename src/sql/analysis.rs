//! What reading one statement yields: the vocabulary between `sql`, `routing`, `plan` and `session`.
//!
//! Made once per text (or per template, see [`super::parse::lexer`]) and shared; holds no value of a parameter or literal, only where
//! to find it, so that one analysis serves every execution.

use std::ops::Range;
use std::sync::Arc;

use super::ddl::ddl_locks::TableLocks;
use super::ddl::redefined::Redefined;
pub use super::ddl::schema_guard::{AlteredSequences, NumberedColumns, TimedColumns};
use super::utility::copy_in::CopyIn;
use super::utility::materialized::Refresh;
use super::utility::table_as::TableAs;
use crate::catalog::SessionEffects;
use crate::error::PgError;
use crate::shard_key::{KeyColumn, KeyFunction, KeyType, Oid};
use crate::shardmap::{GroupId, TableName};

/// One statement of a query string.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// Byte offsets of the statement in the text, without the semicolon.
    pub start: usize,
    pub end: usize,
    pub command: Command,
    pub scope: Scope,
    pub effect: Effect,
    /// How the answers of several shards become one; the error says why they cannot.
    pub merge: Result<Arc<Merge>, PgError>,
    /// Highest `$n` used; 0 for none.
    pub parameter_count: u16,
    /// For `EXPLAIN (SHARDS)`: which condition pinned the shard, or why it is not narrowed. [`Fact::sentence`] makes words of it.
    pub why: Vec<Fact>,
    /// A comment `/* shardgate: shard=name */`: the statement goes to that shard unchanged.
    pub shard_hint: Option<String>,
    /// The route does not depend on any literal other than by its ordinal, so texts of the same shape share it. Then `start`
    /// and `end` are those of the first such text: the whole text is the statement.
    pub is_template: bool,
    /// Calls that concern the session rather than data.
    pub session_calls: Vec<SessionCall>,
    /// It names a relation or function that the catalogue does not have: made a moment ago, or an error for PostgreSQL to tell.
    pub has_unknown_names: bool,
    /// INSERT of several rows whose keys are known: the key of each, in the order of VALUES, so that each can go to its shard.
    pub split_rows: Option<Arc<[KeyCondition]>>,
    /// Whether rows are numbered by sequences, and who draws.
    pub numbers: Numbers,
    /// COPY FROM STDIN into a sharded or reference table.
    pub copy_in: Option<Arc<CopyIn>>,
    /// What the second reading said; `None` where it was not asked, since no condition restricts the shards.
    pub opinion: Option<Opinion>,
    /// What of it sends notifications, or may: `trigger "tell" of table "orders"`. A shard that sends any cannot be prepared.
    pub notifies: Option<String>,
    /// What it may leave in its session without being seen; `None`: proven to leave nothing.
    pub effects: Option<Arc<SessionEffects>>,
    /// Where it is not known what its functions run: what its words tell of that, without its constants.
    pub words: Option<Arc<SessionEffects>>,
    /// A query whose rows show one of several values that are equal and do not look alike: a condition that tells these apart is
    /// PostgreSQL's to evaluate in it.
    pub shows_one_of_equals: bool,
}

impl Analysis {
    /// The statement alone, in the text that it was read from or in another of its shape.
    pub fn alone<'t>(&self, text: &'t str) -> &'t str {
        text.get(self.start..self.end.min(text.len())).unwrap_or(text)
    }

    /// All that it reads it reads in one snapshot on each shard: once a row has come from there, or its end, that is taken.
    #[inline]
    pub fn is_plain_read(&self) -> bool {
        self.effect == Effect::Read
            && self.session_calls.is_empty()
            && matches!(self.command, Command::Query(QueryKind::Select) | Command::Copy(_))
    }

    /// What it does with sequences is known when its parameters are.
    #[inline]
    pub fn asks_sequences_by_parameters(&self) -> bool {
        self.session_calls.contains(&SessionCall::SequenceOfParameter)
            || self.parameter_count > 0 && matches!(self.command, Command::SetSequence)
    }
}

/// Numbers that a statement draws from sequences: the last one counts that applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Numbers {
    #[default]
    None,
    /// From sequences of the home shard, on its connection.
    AtHome,
    /// From cluster-wide sequences, by the shards: the proxy does not see which.
    Unseen,
    /// From cluster-wide sequences, by the proxy, which puts them into the text first ([`super::rewrite::drawing`]).
    Drawn,
}

/// What a second, independent reading makes of the first one's claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opinion {
    /// Every sharded table's condition follows from what it finds.
    Agrees,
    /// The same tables, if it could tell; of the conditions it cannot say.
    Unsure,
    /// Why: the statement is not narrowed.
    Differs(&'static str),
}

/// One thing that decided where a statement goes.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A whole sentence.
    Sentence(String),
    /// How the key of a sharded table's rows is restricted.
    Restriction { table: String, condition: KeyCondition, key: Vec<KeyColumn> },
}

/// A call of a function whose effect outlives the statement without being data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionCall {
    /// `set_config(…)`: a SET in disguise.
    SetConfig,
    /// The same of a limit of time, for the transaction only.
    SetTimeout,
    /// `setseed(…)`: what `random()` gives from then on.
    Seed,
    /// SET LOCAL, or set_config(…, true), in a function or a trigger.
    SetsLocally,
    /// The same in what the statement calls, with names that are known: followed where it runs on one shard.
    SetsNamedLocally,
    /// What the statement calls changes settings of the session whose names are known: it runs on one shard.
    Sets,
    /// A session-level advisory lock: the connection is the client's until it is released.
    AdvisoryLock,
    /// Releases session-level advisory locks.
    AdvisoryUnlock,
    /// `currval`, `lastval`: what this session drew from a sequence.
    SequenceValue,
    /// A sequence function whose arguments have parameters: which sequence it is about, or what it sets, is not in the text.
    SequenceOfParameter,
    /// What a server says of itself or of its transaction: its clock, a transaction id, its address. Or might, by a function
    /// that is not immutable.
    Server,
    /// Of a statement without tables: the former, but for the transaction and its clock. In a transaction the home shard says it too.
    OneServer,
    /// It may name sessions, their locks and statements, or the bytes of relations: the proxy writes what the cluster says into the text
    /// ([`super::utility::cluster_state`]).
    ClusterState,
}

/// What running the statement does to data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Proven: reads only.
    Read,
    /// A read that takes row or table locks (`FOR UPDATE`, `LOCK`), which count until the transaction's end.
    ReadLocking,
    /// Writes, or might: functions that are not proven.
    Write,
}

/// Where the rows that a statement touches live.
#[derive(Clone, Debug)]
pub enum Scope {
    /// The proxy answers by itself, or the command concerns only the session.
    Session,
    /// Relations of the schema `shardgate`: sent to the map database.
    Map,
    /// `shardgate.pools` and `shardgate.clients`, by name: known only to the proxy that answers.
    Proxy(ProxyRows),
    /// No relation at all: any shard would do; the home shard unless the transaction is on another already.
    Tableless,
    /// Catalogue relations, whose oids differ between shards: the home shard.
    System,
    /// Only reference tables are read: any shard.
    Replicated,
    /// Sharded and home tables, each a part; runs on one shard when every part lies there. Otherwise `pushdown` says whether
    /// running the statement on each shard of any part, and merging the answers, is exactly right.
    Placed { parts: Vec<Part>, pushdown: Result<(), PgError> },
    /// Schema changes, writes to reference tables.
    EveryShard,
    /// Refused whatever the keys are.
    Refused(PgError),
}

/// One relation, or several joined on the whole key, that must be on the shard where the statement runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Home,
    Sharded {
        group: GroupId,
        condition: KeyCondition,
        /// Rows are stored with these keys. A key without a mapping is an error then; otherwise no row has it.
        stores: bool,
    },
}

/// What a statement says about the keys of the rows it touches. `All` is the safe answer.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyCondition {
    /// Nothing proven.
    All,
    /// A contradiction: no row. Still runs, on one shard.
    Nothing,
    Test(KeyTest),
    And(Vec<KeyCondition>),
    Or(Vec<KeyCondition>),
}

/// A comparison of one key column with values known at execution.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyTest {
    /// Index in the group's key.
    pub column: usize,
    /// Type of the side that is compared: the table's column, or the key function's result when `is_on_function`.
    pub column_type: KeyType,
    /// Applied to the value to get the group's key; `None` when the comparison is with the key itself.
    pub function: Option<KeyFunction>,
    pub test: Test,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    Equals(KeyValue),
    /// Any of these; a NULL among them matches nothing.
    In(Vec<KeyValue>),
    /// `= ANY(array)`, the array a parameter or a string literal.
    AnyOf(KeyValue),
    /// Range strategy only, and never through a key function.
    Compare(Comparison, KeyValue),
    /// INSERT: what the column will hold. Assigned, not compared: PostgreSQL rounds and truncates here, so a value that is not
    /// exactly one of the key type's has an unknown home and the statement is refused, never sent anywhere.
    Stored(StoredValue),
}

/// The value that an INSERT gives to a key column.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredValue {
    pub value: KeyValue,
    /// `atttypmod` of the column: -1, or the length that longer values are cut to or refused for.
    pub typmod: i32,
    /// A NULL is refused by the shard itself, whichever it is.
    pub is_not_null: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyValue {
    /// `$n`, 1-based. `cast`: the type it was cast to in the text, by oid.
    Parameter {
        number: u16,
        cast: Option<Oid>,
    },
    /// The n-th literal of the text, 0-based, as [`super::parse::lexer`] counts them.
    Literal {
        ordinal: u32,
        negative: bool,
        cast: Option<Oid>,
    },
    Null,
    /// TRUE and FALSE are keywords, not literals.
    Bool(bool),
    /// A constant of a view's definition: its text form and the type of the constant (0: unknown) or of its cast.
    Constant {
        text: String,
        oid: Oid,
    },
}

/// How rows of several shards become the answer of one statement.
#[derive(Clone, Debug, Default)]
pub struct Merge {
    /// What each shard runs, where it differs from the client's own text.
    pub fragment: Option<Fragment>,
    /// Empty: the order is free, rows are concatenated.
    pub order_by: Vec<SortKey>,
    pub limit: Option<Count>,
    pub offset: Option<Count>,
    /// FETCH FIRST … WITH TIES.
    pub has_ties: bool,
    /// Columns at the end of each row that were added for the merge and are not the client's.
    pub hidden_columns: usize,
    /// Rows of several shards become one.
    pub combine: Option<Combine>,
    /// The rows are locked where they are.
    pub locking: Option<Locking>,
}

/// FOR UPDATE and its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locking {
    pub wait: LockWait,
    /// The clauses, byte offsets into the whole text.
    pub clauses: Vec<Range<usize>>,
    /// LIMIT and OFFSET where they are computed of constants and parameters: the expressions.
    pub limit: Option<String>,
    pub offset: Option<String>,
}

/// What happens at a row that somebody else has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWait {
    Wait,
    /// NOWAIT
    Error,
    /// SKIP LOCKED
    Skip,
}

/// How equal rows, or parts of one group, become one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Combine {
    /// GROUP BY and aggregates: each shard computes its part of every group.
    Groups(Groups),
    /// DISTINCT, UNION: of the rows with equal keys the first one counts.
    Distinct(DistinctRows),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// Empty: all rows are one group, and each shard answers with exactly one row.
    pub keys: Vec<RowKeyColumn>,
    /// For each column of the fragment's rows.
    pub columns: Vec<Combination>,
    /// It is right only if no value that an aggregate with DISTINCT counts is on two shards.
    pub counts_distinct: bool,
    /// HAVING leaves out some of the groups when they are whole: the shards compute for these too.
    pub is_filtered: bool,
    /// What is left to do with the whole groups, where it is more than to sort and cut them.
    pub last_step: Option<LastStep>,
}

/// A query over the whole groups, for PostgreSQL to run: `before`, the groups as rows, `after`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastStep {
    pub before: String,
    pub after: String,
    /// What is done with each column of the groups.
    pub uses: Vec<ColumnUse>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnUse {
    /// In an expression: if it is text, under its own collation, which the query does not have.
    pub is_computed: bool,
    /// To sort by.
    pub is_sorted: bool,
    /// Text, if it is text, sorts bytewise.
    pub is_bytewise: bool,
    /// Of the table's column that it is, as SQL names it.
    pub collation: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DistinctRows {
    /// Equal in all visible columns, of which text may be compared bytewise where this says so.
    Whole { is_deterministic: Vec<bool>, is_enum: Vec<bool> },
    /// DISTINCT ON.
    On(Vec<RowKeyColumn>),
}

/// A column by which rows are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowKeyColumn {
    /// 0-based column of the fragment's rows.
    pub column: usize,
    /// Equal text is the same bytes: no nondeterministic collation.
    pub is_deterministic: bool,
    /// Of an enum type, whose values are told apart by their labels.
    pub is_enum: bool,
}

/// How values sort, if they are text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextOrder {
    pub is_bytewise: bool,
    /// Otherwise the collation, as SQL names it: PostgreSQL can be asked for their order. `None`: not known.
    pub collation: Option<String>,
}

impl TextOrder {
    /// Whether text can be put in order at all: by the proxy, or with what PostgreSQL says.
    pub fn is_known(&self) -> bool {
        self.is_bytewise || self.collation.is_some()
    }

    /// The collation that PostgreSQL must be asked for.
    pub fn asked(&self) -> Option<&str> {
        self.collation.as_deref().filter(|_| !self.is_bytewise)
    }
}

/// How one column of a group comes of the shards' parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Combination {
    /// The same in every part, or any of them.
    First,
    /// The sum of counts.
    Count,
    Sum,
    /// Of text, if it is text, in this order.
    Minimum(TextOrder),
    Maximum(TextOrder),
    All,
    Any,
    /// The column has the sums, this other one the counts.
    Average {
        counts: usize,
    },
}

/// The client's text with pieces replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// In ascending order, not overlapping; byte offsets into the whole text.
    pub splices: Vec<Splice>,
}

impl Fragment {
    /// The statement that stands there in the text, with its pieces replaced.
    pub fn of(&self, text: &str, statement: Range<usize>) -> String {
        let mut out = String::with_capacity(statement.len() + 32);
        let mut position = statement.start;
        for splice in &self.splices {
            out.push_str(text.get(position..splice.start).unwrap_or_default());
            out.push_str(&splice.text);
            position = splice.end;
        }
        out.push_str(text.get(position..statement.end).unwrap_or_default());
        out
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splice {
    pub start: usize,
    pub end: usize,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// 0-based column of the fragment's rows.
    pub column: usize,
    pub is_descending: bool,
    pub is_nulls_first: bool,
    /// Of text columns.
    pub text: TextOrder,
}

/// Value of LIMIT or OFFSET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Count {
    Constant(u64),
    Parameter(u16),
    /// The n-th literal of the text, an integer.
    Literal(u32),
    /// An expression, whose value each row of the fragment has in this column.
    Column(usize),
}

/// What kind of statement it is, with what the session needs to act on it.
#[derive(Clone, Debug)]
pub enum Command {
    /// SELECT, VALUES, TABLE, INSERT, UPDATE, DELETE, MERGE.
    Query(QueryKind),
    Begin(TransactionModes),
    Commit {
        chain: bool,
    },
    Rollback {
        chain: bool,
    },
    Savepoint(String),
    Release(String),
    RollbackTo(String),
    /// SET TRANSACTION.
    SetTransaction(TransactionModes),
    /// SET TRANSACTION SNAPSHOT.
    ImportSnapshot(String),
    /// SET SESSION CHARACTERISTICS AS TRANSACTION.
    SetSessionCharacteristics(TransactionModes),
    /// PREPARE TRANSACTION, COMMIT PREPARED, ROLLBACK PREPARED.
    TwoPhase,
    /// SET name, SET LOCAL name; `value` is SQL that may follow `SET name TO`, `None` for DEFAULT. TIME ZONE, ROLE, NAMES and
    /// SESSION AUTHORIZATION are names too (`timezone`, `role`, `client_encoding`, `session_authorization`).
    Set {
        name: String,
        value: Option<String>,
        is_local: bool,
    },
    /// `SELECT set_config(…), …`: nothing but such calls.
    SetConfig(Vec<SetConfig>),
    /// `setval` of a cluster-wide sequence to what has to be computed.
    SetSequence,
    Reset(String),
    ResetAll,
    /// SET CONSTRAINTS: counts for the transaction, on every shard that takes part.
    SetConstraints,
    Discard(Discard),
    Show(String),
    /// SQL-level PREPARE; `start..end` is the inner statement's range.
    Prepare {
        name: String,
        start: usize,
        end: usize,
    },
    /// SQL-level EXECUTE.
    Execute {
        name: String,
        /// Where the text goes on after the name.
        after_name: usize,
        /// Constants; `None`: an expression that touches no table, whose value is not known.
        arguments: Vec<Option<KeyValue>>,
        /// No argument reads a clock or a random number: evaluated again they are the same.
        is_repeatable: bool,
    },
    /// `None`: ALL.
    Deallocate(Option<String>),
    DeclareCursor {
        name: String,
        is_hold: bool,
        is_binary: bool,
        scroll: Scroll,
        /// Where its query begins in the text.
        start: usize,
    },
    /// FETCH and MOVE.
    Fetch {
        name: String,
        motion: Motion,
        is_move: bool,
    },
    /// `None`: ALL.
    CloseCursor(Option<String>),
    Listen(String),
    /// `None`: all.
    Unlisten(Option<String>),
    Notify,
    Copy(CopyDirection),
    /// `shards`: EXPLAIN (SHARDS), for which no shard is asked. The inner statement's range is its own.
    Explain {
        shards: bool,
        analyze: bool,
        format: ExplainFormat,
        inner: Box<Analysis>,
    },
    /// CREATE, ALTER, DROP, GRANT, COMMENT …: changes the schema on every shard.
    Ddl {
        tag: String,
        creates_temporary: Option<String>,
        outside_transaction: bool,
        /// It is about what all databases of a server share: roles.
        once_per_server: bool,
        /// It is a call, whose answer has a row description.
        gives_rows: bool,
        /// It is a DO block or a call: its body makes the changes, which may differ from shard to shard.
        by_body: bool,
        /// The map has to know of the other name before the shards do.
        renames: Option<Arc<DistributedRename>>,
        /// It makes a table of rows that are not all on the home shard, or perhaps not.
        table_as: Option<Arc<TableAs>>,
        /// It adds columns that number the rows of a distributed table, those that are there among them.
        numbered: Option<Arc<NumberedColumns>>,
        /// It adds columns to a distributed table whose rows get the time of the transaction.
        timed: Option<Arc<TimedColumns>>,
        /// It alters sequences of the whole cluster.
        altered: Option<Arc<AlteredSequences>>,
        /// Taken on all shards before it begins.
        locks: Option<Arc<TableLocks>>,
        /// What is run after it, on each shard: about relations that the client has not named.
        afterwards: Arc<[String]>,
        /// Of what statements by others may be about.
        redefines: Redefined,
        /// Sharded and reference tables whose names it gives to something new.
        takes: Arc<[TableName]>,
    },
    Truncate {
        /// Tables of the home shard whose columns are numbered by the whole cluster, and begin anew.
        restarts: Vec<Oid>,
    },
    Lock,
    /// VACUUM, ANALYZE, REINDEX, CLUSTER, CHECKPOINT.
    Maintenance,
    /// REFRESH of a materialized view, on the home shard; with what it takes where its rows come from several shards.
    Refresh(Option<Arc<Refresh>>),
    Call,
    Do,
    /// `SELECT shardgate.f(…)`, `SELECT * FROM shardgate.f(…)`: the statement is one call of a function of this schema.
    Shardgate(ShardgateCall),
    /// An empty statement.
    Empty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryKind {
    Select,
    Insert,
    Update,
    Delete,
    Merge,
}

/// Whether a cursor may go backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scroll {
    Yes,
    No,
    /// PostgreSQL allows it where it costs nothing.
    Unsaid,
}

/// Where FETCH and MOVE go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    /// So many rows on; negative: back.
    Forward(i64),
    /// `ALL`.
    ForwardAll,
    BackwardAll,
    /// To the row of this number, of which one row is fetched; negative: from the end.
    Absolute(i64),
    Relative(i64),
}

/// What EXPLAIN (FORMAT …) asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExplainFormat {
    #[default]
    Text,
    Json,
    Xml,
    Yaml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDirection {
    FromStdin,
    ToStdout,
    /// A file or program on the server.
    Server,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    All,
    Plans,
    Sequences,
    Temporary,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionModes {
    pub isolation: Option<Isolation>,
    pub is_read_only: Option<bool>,
    pub is_deferrable: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    ReadUncommitted,
    #[default]
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Isolation {
    /// As PostgreSQL prints it.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::ReadUncommitted => "read uncommitted",
            Isolation::ReadCommitted => "read committed",
            Isolation::RepeatableRead => "repeatable read",
            Isolation::Serializable => "serializable",
        }
    }

    pub fn of_name(name: &str) -> Option<Self> {
        [Self::ReadUncommitted, Self::ReadCommitted, Self::RepeatableRead, Self::Serializable]
            .into_iter()
            .find(|level| level.name() == name)
    }
}

/// A sharded or reference table gets another name. Of the table, schema and name as the catalogue has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DistributedRename {
    /// Or another schema.
    Table { from: TableName, to: TableName },
    /// A column of its key, by its place there.
    KeyColumn { table: TableName, place: usize, to: String },
    /// Nothing that the map knows: another table gets another schema. But sequences of the whole cluster number its rows, and may move
    /// with it.
    Numbered { table: TableName },
}

/// What a statement reads that the proxy has to give to the map database before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProxyRows {
    /// Names of relations of the schema `shardgate`.
    pub relations: Vec<String>,
    /// Functions of the schema in FROM.
    pub calls: Vec<ShardgateCall>,
}

impl ProxyRows {
    pub fn is_empty(&self) -> bool {
        self.relations.is_empty() && self.calls.is_empty()
    }
}

/// One call of a function of the schema `shardgate`.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardgateCall {
    pub function: String,
    pub arguments: Vec<CallArgument>,
    /// `SELECT undistribute_table(…)`, as Citus users write it: they are answered with `void`, as by Citus.
    pub is_void: bool,
    /// Name of the output column when `SELECT shardgate.f(…) AS x`.
    pub alias: Option<String>,
}

/// A call of `set_config`, or of `current_setting` beside one.
#[derive(Clone, Debug, PartialEq)]
pub struct SetConfig {
    pub name: ArgumentValue,
    pub what: ConfigCall,
    /// Name of the output column.
    pub column: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ConfigCall {
    Set {
        value: ArgumentValue,
        is_local: ArgumentValue,
    },
    /// No row where there is no such setting.
    SetWhereItExists {
        value: ArgumentValue,
        is_local: ArgumentValue,
    },
    Read {
        missing_ok: ArgumentValue,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct CallArgument {
    /// `name => value`.
    pub name: Option<String>,
    pub value: ArgumentValue,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ArgumentValue {
    Null,
    /// A literal, as PostgreSQL would print it.
    Text(String),
    Parameter(u16),
    /// `ARRAY['a', 'b']`.
    Array(Vec<ArgumentValue>),
}
