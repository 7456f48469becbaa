//! Where a statement names databases: the one that the client is in has another name on every shard.
//!
//! GRANT and REVOKE ON DATABASE, COMMENT and SECURITY LABEL ON DATABASE, ALTER DATABASE … OWNER TO, ALTER ROLE … IN DATABASE,
//! REINDEX DATABASE.

use std::ops::Range;

use pg_raw_parse::{Node, nodes};

use crate::sql::parse;
use crate::sql::parse::tokens::Tokens;

/// The names of databases in the first statement of a text, as PostgreSQL folds them, and their places.
pub fn databases(text: &str) -> Vec<(Range<usize>, String)> {
    if !parse::parse(text).is_ok_and(|tree| tree.stmts().next().is_some_and(is_about_databases)) {
        return Vec::new();
    }
    let tokens = Tokens::of(text);
    let Some(word) = tokens.word_at_top(0, &["database", "system"]) else { return Vec::new() };
    let mut found = Vec::new();
    let mut index = word + 1 + usize::from(tokens.is_word(0, "reindex") && tokens.is_word(word + 1, "concurrently"));
    while let (Some(place), Some(name)) = (tokens.range(index, index), tokens.identifier(index)) {
        found.push((place, name));
        if tokens.piece(index + 1) != "," {
            break;
        }
        index += 2;
    }
    found
}

fn is_about_databases(node: Node<'_>) -> bool {
    let kind = match node {
        Node::GrantStmt(grant) => grant.objtype,
        Node::CommentStmt(comment) => comment.objtype,
        Node::SecLabelStmt(label) => label.objtype,
        Node::AlterOwnerStmt(alter) => alter.object_type,
        Node::AlterRoleSetStmt(alter) => return alter.database().is_some(),
        Node::ReindexStmt(reindex) => {
            use nodes::ReindexObjectType::{REINDEX_OBJECT_DATABASE, REINDEX_OBJECT_SYSTEM};
            return matches!(reindex.kind, REINDEX_OBJECT_DATABASE | REINDEX_OBJECT_SYSTEM);
        }
        _ => return false,
    };
    kind == nodes::ObjectType::OBJECT_DATABASE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_found_where_they_are_named() {
        for (text, names) in [
            ("GRANT CONNECT, TEMPORARY ON DATABASE App, \"O\"\"ther\" TO PUBLIC", &["app", "O\"ther"][..]),
            ("/* database x */ REVOKE ALL ON DATABASE app FROM database", &["app"]),
            ("COMMENT ON DATABASE app IS 'database other'", &["app"]),
            ("ALTER DATABASE app OWNER TO me", &["app"]),
            ("REINDEX DATABASE app", &["app"]),
            ("ALTER ROLE ada IN DATABASE app SET work_mem = '1MB'", &["app"]),
            ("ALTER ROLE ada SET work_mem = '1MB'", &[]),
            ("REINDEX (VERBOSE) SYSTEM CONCURRENTLY app", &["app"]),
            ("REINDEX TABLE database", &[]),
            ("GRANT SELECT ON database TO me", &[]),
            ("COMMENT ON TABLE database IS 'x'", &[]),
        ] {
            let found: Vec<String> = databases(text).into_iter().map(|(_, name)| name).collect();
            assert_eq!(found, names, "{text}");
        }
        let (place, _) = databases("COMMENT ON DATABASE app IS NULL").remove(0);
        assert_eq!(place, 20..23);
    }
}
