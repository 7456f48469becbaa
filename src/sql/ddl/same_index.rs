//! Whether the index that is there is the one that `CREATE INDEX` would make.
//!
//! PostgreSQL prints what it has: another text, with the schema, the method and casts in it. So columns and options are compared one by
//! one, and of expressions and the predicate each word of the statement has to be in what is printed. What cannot be told is another index.

use std::collections::BTreeSet;

use pg_raw_parse::{Node, nodes};

use crate::sql::parse;
use crate::sql::parse::lexer::{self, TokenKind};

/// `printed`: by pg_get_indexdef. Both are of tables of the same schema, as far as the statement names one.
pub fn is_same_index(text: &str, printed: &str) -> bool {
    let (Ok(wanted_tree), Ok(found_tree)) = (parse::parse(text), parse::parse(printed)) else { return false };
    let (Some(Node::IndexStmt(wanted)), Some(Node::IndexStmt(found))) = (wanted_tree.stmts().next(), found_tree.stmts().next())
    else {
        return false;
    };
    let table = |index: &nodes::IndexStmt| index.relation().and_then(|table| table.relname()).map(str::to_owned);
    let schema = |index: &nodes::IndexStmt| index.relation().and_then(|table| table.schemaname()).map(str::to_owned);
    let is_alike = wanted.unique == found.unique
        && wanted.nulls_not_distinct == found.nulls_not_distinct
        && wanted.access_method().unwrap_or("btree") == found.access_method().unwrap_or("btree")
        && table(wanted) == table(found)
        && schema(wanted).is_none_or(|named| Some(named) == schema(found))
        && is_nothing(wanted.where_clause()) == is_nothing(found.where_clause());
    is_alike && columns(wanted) == columns(found) && words(text).is_subset(&words(printed))
}

/// Those of the key, and those that are included.
fn columns(index: &nodes::IndexStmt) -> [Vec<Column<'_>>; 2] {
    let included = index.index_including_params().iter().filter_map(|column| match column {
        Node::IndexElem(column) => Some(column),
        _ => None,
    });
    [index.index_params().iter().map(Column::of).collect(), included.map(Column::of).collect()]
}

/// What does not show among the words, since it is printed where it differs from the default.
#[derive(PartialEq, Eq)]
struct Column<'n> {
    /// `None`: an expression.
    name: Option<&'n str>,
    is_descending: bool,
    has_nulls_first: bool,
    has_collation: bool,
    has_operator_class: bool,
}

impl<'n> Column<'n> {
    fn of(column: &'n nodes::IndexElem) -> Self {
        let is_descending = column.ordering == nodes::SortByDir::SORTBY_DESC;
        Self {
            name: column.name(),
            is_descending,
            has_nulls_first: match column.nulls_ordering {
                nodes::SortByNulls::SORTBY_NULLS_FIRST => true,
                nodes::SortByNulls::SORTBY_NULLS_LAST => false,
                _ => is_descending,
            },
            has_collation: !column.collation().is_empty(),
            has_operator_class: !column.opclass().is_empty(),
        }
    }
}

fn is_nothing(node: Node<'_>) -> bool {
    matches!(node, Node::None)
}

/// Of what stands behind the table's name.
fn words(text: &str) -> BTreeSet<String> {
    let kept = lexer::tokens(text).filter(|token| token.kind != TokenKind::Comment);
    let words = kept.filter_map(|token| text.get(token.start..token.end));
    let behind = words.skip_while(|word| *word != "(").map(|word| match word.strip_prefix('"') {
        Some(quoted) => quoted.trim_end_matches('"').to_owned(),
        None if word.starts_with('\'') => word.to_owned(),
        None => word.to_lowercase(),
    });
    behind.filter(|word| !matches!(word.as_str(), "asc" | "nulls" | "first" | "last" | ";")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_told_from_others_of_its_name() {
        let printed = "CREATE INDEX i ON public.t USING btree (v)";
        assert!(is_same_index("create index concurrently if not exists i on t (V asc nulls last);", printed));
        for other in [
            "CREATE UNIQUE INDEX CONCURRENTLY i ON t (v)",
            "CREATE INDEX CONCURRENTLY i ON t (v, w)",
            "CREATE INDEX CONCURRENTLY i ON t (w)",
            "CREATE INDEX CONCURRENTLY i ON t (v DESC)",
            "CREATE INDEX CONCURRENTLY i ON t USING hash (v)",
            "CREATE INDEX CONCURRENTLY i ON u (v)",
            "CREATE INDEX CONCURRENTLY i ON app.t (v)",
            "CREATE INDEX CONCURRENTLY i ON t (v) INCLUDE (w)",
            "CREATE INDEX CONCURRENTLY i ON t (v) WHERE v > 1",
            "CREATE INDEX CONCURRENTLY i ON t ((v + 1))",
            "CREATE INDEX CONCURRENTLY i ON t (v COLLATE \"C\")",
        ] {
            assert!(!is_same_index(other, printed), "{other}");
        }
        let printed = "CREATE INDEX i ON public.t USING btree (lower((name)::text)) WHERE ((v > 1) AND (name <> 'A'::text))";
        assert!(is_same_index("CREATE INDEX CONCURRENTLY i ON t (lower(name)) WHERE v > 1 AND name <> 'A'", printed));
        for other in [
            "CREATE INDEX CONCURRENTLY i ON t (upper(name)) WHERE v > 1 AND name <> 'A'",
            "CREATE INDEX CONCURRENTLY i ON t (lower(name)) WHERE v > 2 AND name <> 'A'",
            "CREATE INDEX CONCURRENTLY i ON t (lower(name)) WHERE v < 1 AND name <> 'a'",
        ] {
            assert!(!is_same_index(other, printed), "{other}");
        }
    }
}
