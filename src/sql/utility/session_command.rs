//! Commands that concern the session or its transaction and touch no table: BEGIN, SET, DECLARE, LISTEN and their kind.

use pg_raw_parse::list::{CastNodeList, NodeList};
use pg_raw_parse::{ConstValue, Node, nodes};

use crate::catalog::quoted_literal;
use crate::error::PgError;
use crate::sql::analysis::{Command, Discard, ExplainFormat, Isolation, Motion, TransactionModes};
use crate::sql::parse::tree;

/// `None`: not one of these. An error: refused.
pub fn classify(node: Node<'_>) -> Option<Result<Command, PgError>> {
    let command = match node {
        Node::TransactionStmt(s) => return Some(transaction(s)),
        Node::VariableSetStmt(s) => return Some(set(s)),
        Node::VariableShowStmt(s) => Command::Show(s.name().unwrap_or_default().to_owned()),
        Node::ConstraintsSetStmt(_) => Command::SetConstraints,
        Node::DiscardStmt(s) => Command::Discard(match s.target {
            nodes::DiscardMode::DISCARD_PLANS => Discard::Plans,
            nodes::DiscardMode::DISCARD_SEQUENCES => Discard::Sequences,
            nodes::DiscardMode::DISCARD_TEMP => Discard::Temporary,
            _ => Discard::All,
        }),
        Node::DeallocateStmt(s) => Command::Deallocate(if s.isall { None } else { s.name().map(str::to_owned) }),
        Node::FetchStmt(s) => {
            Command::Fetch { name: s.portalname().unwrap_or_default().to_owned(), motion: motion(s), is_move: s.ismove }
        }
        Node::ClosePortalStmt(s) => Command::CloseCursor(s.portalname().map(str::to_owned)),
        Node::ListenStmt(s) => Command::Listen(s.conditionname().unwrap_or_default().to_owned()),
        Node::UnlistenStmt(s) => Command::Unlisten(s.conditionname().map(str::to_owned)),
        _ => return None,
    };
    Some(Ok(command))
}

/// `ALL` is the largest number.
fn motion(fetch: &nodes::FetchStmt) -> Motion {
    use nodes::FetchDirection as Direction;
    let count = fetch.how_many;
    match fetch.direction {
        Direction::FETCH_FORWARD if count == i64::MAX => Motion::ForwardAll,
        Direction::FETCH_FORWARD => Motion::Forward(count),
        Direction::FETCH_BACKWARD if count == i64::MAX => Motion::BackwardAll,
        Direction::FETCH_BACKWARD => Motion::Forward(count.saturating_neg()),
        Direction::FETCH_ABSOLUTE => Motion::Absolute(count),
        _ => Motion::Relative(count),
    }
}

fn transaction(statement: &nodes::TransactionStmt) -> Result<Command, PgError> {
    use nodes::TransactionStmtKind as Kind;
    let savepoint = || statement.savepoint_name().unwrap_or_default().to_owned();
    Ok(match statement.kind {
        Kind::TRANS_STMT_BEGIN | Kind::TRANS_STMT_START => Command::Begin(modes(statement.options())?),
        Kind::TRANS_STMT_COMMIT => Command::Commit { chain: statement.chain },
        Kind::TRANS_STMT_ROLLBACK => Command::Rollback { chain: statement.chain },
        Kind::TRANS_STMT_SAVEPOINT => Command::Savepoint(savepoint()),
        Kind::TRANS_STMT_RELEASE => Command::Release(savepoint()),
        Kind::TRANS_STMT_ROLLBACK_TO => Command::RollbackTo(savepoint()),
        _ => Command::TwoPhase,
    })
}

/// `ISOLATION LEVEL …`, `READ ONLY`, `DEFERRABLE`.
fn modes(options: &NodeList) -> Result<TransactionModes, PgError> {
    let mut modes = TransactionModes::default();
    for option in options {
        let Node::DefElem(option) = option else {
            continue;
        };
        match option.defname() {
            Some("transaction_isolation") => modes.isolation = Some(isolation(option.arg())?),
            Some("transaction_read_only") => modes.is_read_only = Some(is_true(option.arg())),
            Some("transaction_deferrable") => modes.is_deferrable = Some(is_true(option.arg())),
            _ => return Err(unknown("transaction mode")),
        }
    }
    Ok(modes)
}

fn isolation(argument: Node<'_>) -> Result<Isolation, PgError> {
    match tree::constant_text(argument).as_deref() {
        Some("read uncommitted") => Ok(Isolation::ReadUncommitted),
        Some("read committed") => Ok(Isolation::ReadCommitted),
        Some("repeatable read") => Ok(Isolation::RepeatableRead),
        Some("serializable") => Ok(Isolation::Serializable),
        _ => Err(unknown("isolation level")),
    }
}

fn is_true(argument: Node<'_>) -> bool {
    matches!(tree::constant_text(argument).as_deref(), Some("1" | "true"))
}

fn set(statement: &nodes::VariableSetStmt) -> Result<Command, PgError> {
    use nodes::VariableSetKind as Kind;
    let name = statement.name().unwrap_or_default().to_ascii_lowercase();
    let is_local = statement.is_local;
    match statement.kind {
        Kind::VAR_SET_VALUE => {
            let value = Some(values(statement.args())?);
            refuse_grammar_settings(&name, value.as_deref())?;
            Ok(Command::Set { name, value, is_local })
        }
        Kind::VAR_SET_DEFAULT => Ok(Command::Set { name, value: None, is_local }),
        Kind::VAR_SET_MULTI => match name.as_str() {
            "transaction" => Ok(Command::SetTransaction(modes(statement.args())?)),
            "session characteristics" => Ok(Command::SetSessionCharacteristics(modes(statement.args())?)),
            _ => match statement.args().first().and_then(tree::constant_text) {
                Some(name) => Ok(Command::ImportSnapshot(name)),
                None => Err(unknown("SET TRANSACTION SNAPSHOT")),
            },
        },
        Kind::VAR_RESET => Ok(Command::Reset(name)),
        Kind::VAR_RESET_ALL => Ok(Command::ResetAll),
        _ => Err(unknown("SET command")),
    }
}

/// What may follow `SET name TO`.
fn values(arguments: &NodeList) -> Result<String, PgError> {
    let rendered: Result<Vec<String>, PgError> = arguments.iter().map(value).collect();
    Ok(rendered?.join(", "))
}

fn value(argument: Node<'_>) -> Result<String, PgError> {
    let constant = match argument {
        Node::A_Const(constant) => constant,
        // SET TIME ZONE INTERVAL '…' HOUR TO MINUTE. What comes of it is what PostgreSQL reports of the setting.
        Node::TypeCast(cast) => return value(cast.arg()).map(|interval| format!("INTERVAL {interval}")),
        _ => return Err(unknown("SET value")),
    };
    match constant.val() {
        Some(ConstValue::String(text)) => Ok(quoted_literal(text)),
        Some(other) => Ok(other.to_string()),
        None => Err(unknown("SET value")),
    }
}

/// The statements' meaning must not depend on what a session sets: the grammar that reads them does not know.
fn refuse_grammar_settings(name: &str, value: Option<&str>) -> Result<(), PgError> {
    let value = value.unwrap_or_default().trim_matches('\'').to_ascii_lowercase();
    let is_on = matches!(value.as_str(), "on" | "true" | "yes" | "1" | "t" | "y" | "tr" | "tru" | "ye");
    let is_refused = match name {
        "standard_conforming_strings" => !is_on,
        "transform_null_equals" => is_on,
        _ => false,
    };
    if !is_refused {
        return Ok(());
    }
    Err(PgError::unsupported(
        format!("cannot set parameter \"{name}\" to \"{value}\""),
        "It changes how statements are read, and with it which shard they belong to.",
        "Leave it at its default.",
    ))
}

fn unknown(what: &str) -> PgError {
    PgError::unsupported(
        format!("{what} is not known"),
        "This grammar of a newer PostgreSQL is not supported yet.",
        "Write the command in the form of PostgreSQL 15.",
    )
}

/// One option of a list such as `EXPLAIN (…)`: present, and not switched off. The last one counts. What is neither on nor off,
/// as `defGetBoolean` reads it, is PostgreSQL's to refuse.
pub fn option_is_on(options: &CastNodeList<nodes::DefElem>, name: &str) -> bool {
    let is_off = |word: &str| ["off", "false"].iter().any(|off| word.eq_ignore_ascii_case(off));
    options.iter().rfind(|option| option.defname() == Some(name)).is_some_and(|option| match option.arg() {
        Node::String(value) => !value.sval().is_some_and(is_off),
        Node::Integer(value) => value.ival != 0,
        Node::Boolean(value) => value.boolval,
        _ => true,
    })
}

/// The last FORMAT counts. One that PostgreSQL does not know is its error to tell.
pub fn explain_format(options: &CastNodeList<nodes::DefElem>) -> ExplainFormat {
    let last = options.iter().rfind(|option| option.defname() == Some("format"));
    match last.map(nodes::DefElem::arg) {
        Some(Node::String(value)) => match value.sval() {
            Some("json") => ExplainFormat::Json,
            Some("xml") => ExplainFormat::Xml,
            Some("yaml") => ExplainFormat::Yaml,
            _ => ExplainFormat::Text,
        },
        _ => ExplainFormat::Text,
    }
}
