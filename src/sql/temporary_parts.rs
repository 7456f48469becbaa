//! What temporary tables and views call: they are on the home shard's connection alone, and there it finds that shard's rows.
//!
//! Once they are there the proxy does not know what belongs to them. So a view of sharded tables, and a default, a check, a trigger or the
//! like that reads or writes them, is refused when it is made.

use pg_raw_parse::{Node, nodes};

use super::analysis::{Command, Merge, Part, QueryKind, Scope};
use super::context::Context;
use super::placing;
use super::query::Reader;
use super::statement::Source;
use crate::error::PgError;

/// A view that is made.
pub fn check_view(view: &nodes::ViewStmt, source: Source<'_>, context: &Context) -> Result<(), PgError> {
    let Node::SelectStmt(select) = view.query() else { return Ok(()) };
    let mut reader = Reader::new(context, source.text, source.literals);
    reader.outermost(select)?.ok();
    let placement = placing::finish(reader, Command::Query(QueryKind::Select), Ok(Merge::default()));
    if is_at_home(&placement.scope) { Ok(()) } else { Err(of_sharded("a temporary view of sharded tables is not supported")) }
}

/// A change of a temporary table.
pub fn check(node: Node<'_>, source: Source<'_>, context: &Context) -> Result<(), PgError> {
    if context.map.tables.is_empty() {
        return Ok(());
    }
    match node {
        Node::RuleStmt(rule) if !rule.actions().is_empty() => {
            return Err(of_sharded("a rule of a temporary table is not supported beside distributed tables"));
        }
        Node::CreateStmt(_)
        | Node::AlterTableStmt(_)
        | Node::CreateTrigStmt(_)
        | Node::IndexStmt(_)
        | Node::CreatePolicyStmt(_)
        | Node::AlterPolicyStmt(_) => {}
        _ => return Ok(()),
    }
    let mut reader = Reader::new(context, source.text, source.literals);
    let own = match node {
        Node::CreateStmt(create) => create.relation().and_then(|relation| relation.relname()),
        _ => None,
    };
    let mut names = calls(source.alone()).peekable();
    // CREATE TABLE name (
    names.next_if(|name| own == Some(name));
    for name in names {
        for function in context.catalog.function_names.get(&name).into_iter().flatten() {
            if let Some(function) = context.catalog.functions.get(function) {
                reader.note_part(function);
            }
        }
    }
    const MESSAGE: &str = "a temporary table that calls this function is not supported";
    match placing::finish(reader, Command::Query(QueryKind::Select), Ok(Merge::default())).scope {
        scope if is_at_home(&scope) => Ok(()),
        // It may be that it reads nothing of the kind, if only it is declared.
        Scope::Refused(PgError { detail: Some(detail), hint: Some(hint), .. }) => Err(PgError::unsupported(MESSAGE, detail, hint)),
        _ => Err(of_sharded(MESSAGE)),
    }
}

fn is_at_home(scope: &Scope) -> bool {
    match scope {
        Scope::Placed { parts, .. } => parts.iter().all(|part| matches!(part, Part::Home)),
        Scope::Replicated | Scope::Tableless | Scope::System => true,
        _ => false,
    }
}

/// Names before a parenthesis, in lower case. The grammar's walk does not reach into schema changes.
fn calls(text: &str) -> impl Iterator<Item = String> {
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '$');
    text.match_indices('(').filter_map(move |(at, _)| {
        let before = text.get(..at)?.trim_end().trim_end_matches('"');
        let name = before.rsplit(|letter: char| !is_part(letter)).next()?;
        (!name.is_empty()).then(|| name.to_ascii_lowercase())
    })
}

fn of_sharded(message: &str) -> PgError {
    PgError::unsupported(
        message,
        "It would be on one connection to the home shard, which does not have the rows of others.",
        "Create it in another schema, and drop it when it is not needed any more.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_before_a_parenthesis_are_calls() {
        let found = |text: &str| calls(text).collect::<Vec<_>>();
        assert_eq!(found("CREATE TEMP TABLE t (a int DEFAULT S.total (1), b int)"), ["t", "total"]);
        assert_eq!(found("EXECUTE FUNCTION \"Fill\"()"), ["fill"]);
        assert_eq!(found("CHECK ((a > 1))"), ["check"]);
    }
}
