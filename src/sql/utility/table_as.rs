//! CREATE TABLE AS, SELECT INTO and CREATE MATERIALIZED VIEW, taken apart: the definition, and the query that fills it.
//!
//! The definition goes to every shard, the rows to one. Works on tokens around the place where the parser has seen the table's
//! name; what does not read back as a definition without rows and one query is not taken apart.

use pg_raw_parse::{Node, nodes};

use crate::sql::parse;
use crate::sql::parse::tokens::Tokens;
use crate::sql::utility::materialized::ViewHead;

/// A table that is made of a query's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableAs {
    pub schema: Option<String>,
    pub name: String,
    pub is_temporary: bool,
    /// CREATE … WITH NO DATA.
    pub definition: String,
    pub query: String,
    /// It is a materialized view.
    pub view: Option<ViewHead>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Table,
    SelectInto,
    View,
}

/// `text` is the statement alone, `start` where it begins in the text that was parsed.
pub fn table_as(text: &str, start: usize, into: &nodes::IntoClause, is_temporary: bool, kind: Kind) -> Option<TableAs> {
    let relation = into.rel()?;
    let pieces = Pieces { text, tokens: Tokens::of(text) };
    let location = usize::try_from(relation.location).ok()?.checked_sub(start)?;
    let first = pieces.tokens.at(location)?;
    let last = pieces.tokens.name_end(first);
    let (definition, query) = match kind {
        Kind::SelectInto => pieces.select_into(first, last, relation.relpersistence as u8, is_temporary)?,
        Kind::Table | Kind::View => pieces.create_as(last)?,
    };
    let view = match kind {
        Kind::View => Some(pieces.head(last, into)?),
        Kind::Table | Kind::SelectInto => None,
    };
    let name = relation.relname()?.to_owned();
    let found = TableAs { schema: relation.schemaname().map(str::to_owned), name, is_temporary, definition, query, view };
    found.is_proven().then_some(found)
}

impl TableAs {
    fn is_proven(&self) -> bool {
        let (Ok(definition), Ok(query)) = (parse::parse(&self.definition), parse::parse(&self.query)) else { return false };
        let (mut definitions, mut queries) = (definition.stmts(), query.stmts());
        let is_definition = match (definitions.next(), definitions.next()) {
            (Some(Node::CreateTableAsStmt(create)), None) => create.into().is_some_and(|into| {
                let relation = into.rel();
                into.skip_data
                    && relation.and_then(|relation| relation.relname()) == Some(self.name.as_str())
                    && relation.and_then(|relation| relation.schemaname()) == self.schema.as_deref()
            }),
            (_, _) => false,
        };
        let is_query = match (queries.next(), queries.next()) {
            (Some(Node::SelectStmt(select)), None) => select.into_clause().is_none(),
            (_, _) => false,
        };
        is_definition && is_query
    }
}

struct Pieces<'t> {
    text: &'t str,
    tokens: Tokens<'t>,
}

impl Pieces<'_> {
    /// `CREATE … name (…) … AS query [WITH [NO] DATA]`. `last`: of the name.
    fn create_as(&self, last: usize) -> Option<(String, String)> {
        let tokens = &self.tokens;
        let before = tokens.word_at_top(last + 1, &["as"])?;
        let count = tokens.count();
        let ends_with = |words: &[&str]| {
            let from = count.checked_sub(words.len());
            from.filter(|from| words.iter().enumerate().all(|(place, word)| tokens.is_word(from + place, word)))
        };
        let with_data = ends_with(&["with", "no", "data"]).or_else(|| ends_with(&["with", "data"]));
        let end = match with_data {
            Some(with) => tokens.get(with)?.start,
            None => tokens.get(count.checked_sub(1)?)?.end,
        };
        let query = self.text.get(tokens.get(before)?.end..end)?;
        Some((without_rows(self.text.get(..end)?), query.to_owned()))
    }

    /// Of a materialized view.
    fn head(&self, last: usize, into: &nodes::IntoClause) -> Option<ViewHead> {
        let before = self.tokens.word_at_top(last + 1, &["as"])?;
        let text = self.text.get(..self.tokens.get(before)?.end)?.to_owned();
        let columns = into.col_names().iter().filter_map(Node::as_str).map(str::to_owned).collect();
        Some(ViewHead { text, columns, is_filled: !into.skip_data, is_of_home: false })
    }

    /// `SELECT … INTO [TEMPORARY] [TABLE] name FROM …`. `first`, `last`: of the name.
    fn select_into(&self, first: usize, last: usize, persistence: u8, is_temporary: bool) -> Option<(String, String)> {
        let words = ["global", "local", "table", "temp", "temporary", "unlogged"];
        let mut into = first.checked_sub(1)?;
        while self.tokens.is_one_of(into, &words) {
            into = into.checked_sub(1)?;
        }
        if !self.tokens.is_word(into, "into") {
            return None;
        }
        let name = self.tokens.range(first, last)?;
        let query = format!("{} {}", self.text.get(..self.tokens.get(into)?.start)?, self.text.get(name.end..)?);
        let kind = match (is_temporary, persistence) {
            (true, _) => "TEMPORARY ",
            (false, b'u') => "UNLOGGED ",
            (false, _) => "",
        };
        let name = self.text.get(name)?;
        Some((without_rows(&format!("CREATE {kind}TABLE {name} AS {query}")), query))
    }
}

/// The query may end in a comment.
fn without_rows(text: &str) -> String {
    format!("{text}\nWITH NO DATA")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str) -> Option<TableAs> {
        let tree = parse::parse(text).expect("parses");
        match tree.stmts().next()? {
            Node::CreateTableAsStmt(create) => {
                let is_view = create.objtype == nodes::ObjectType::OBJECT_MATVIEW;
                table_as(text, 0, create.into()?, false, if is_view { Kind::View } else { Kind::Table })
            }
            Node::SelectStmt(select) => table_as(text, 0, select.into_clause()?, false, Kind::SelectInto),
            _ => None,
        }
    }

    #[test]
    fn a_table_as_is_a_definition_and_a_query() {
        for (text, definition, query) in [
            ("CREATE TABLE a AS SELECT 1 AS x", "CREATE TABLE a AS SELECT 1 AS x\nWITH NO DATA", " SELECT 1 AS x"),
            (
                "create table if not exists s.\"A b\" (x, \"as\") with (fillfactor = 70) as (table t) -- all\n with data",
                "create table if not exists s.\"A b\" (x, \"as\") with (fillfactor = 70) as (table t) -- all\n \nWITH NO DATA",
                " (table t) -- all\n ",
            ),
            (
                "WITH w AS (SELECT 1) SELECT * INTO UNLOGGED TABLE a.b FROM w",
                "CREATE UNLOGGED TABLE a.b AS WITH w AS (SELECT 1) SELECT *   FROM w\nWITH NO DATA",
                "WITH w AS (SELECT 1) SELECT *   FROM w",
            ),
        ] {
            let found = taken(text).expect(text);
            assert_eq!((found.definition.as_str(), found.query.as_str()), (definition, query), "{text}");
        }
    }

    #[test]
    fn a_materialized_view_has_a_head() {
        for (text, head, columns, query, is_filled) in [
            ("CREATE MATERIALIZED VIEW m AS SELECT 1 AS x", "CREATE MATERIALIZED VIEW m AS", &[][..], " SELECT 1 AS x", true),
            (
                "create materialized view if not exists s.m (a, \"B\") with (fillfactor = 70) as select 1, 2 with no data",
                "create materialized view if not exists s.m (a, \"B\") with (fillfactor = 70) as",
                &["a", "B"],
                " select 1, 2 ",
                false,
            ),
        ] {
            let found = taken(text).expect(text);
            let columns = columns.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(found.view, Some(ViewHead { text: head.to_owned(), columns, is_filled, is_of_home: false }), "{text}");
            assert_eq!(found.query, query, "{text}");
        }
    }

    #[test]
    fn what_runs_a_prepared_statement_is_not_taken_apart() {
        assert_eq!(taken("CREATE TABLE a AS EXECUTE p"), None);
    }
}
