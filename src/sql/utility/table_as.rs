//! CREATE TABLE AS and SELECT INTO, taken apart: the definition of the table, and the query that fills it.
//!
//! The definition goes to every shard, the rows to one. Works on tokens around the place where the parser has seen the table's
//! name; what does not read back as a definition without rows and one query is not taken apart.

use pg_raw_parse::{Node, nodes};

use crate::sql::parse;
use crate::sql::parse::tokens::Tokens;

/// A table that is made of a query's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableAs {
    pub schema: Option<String>,
    pub name: String,
    pub is_temporary: bool,
    /// CREATE TABLE … WITH NO DATA.
    pub definition: String,
    pub query: String,
}

/// `text` is the statement alone, `start` where it begins in the text that was parsed.
pub fn table_as(text: &str, start: usize, into: &nodes::IntoClause, is_temporary: bool, is_select: bool) -> Option<TableAs> {
    let relation = into.rel()?;
    let pieces = Pieces { text, tokens: Tokens::of(text) };
    let location = usize::try_from(relation.location).ok()?.checked_sub(start)?;
    let first = pieces.tokens.at(location)?;
    let last = pieces.tokens.name_end(first);
    let (definition, query) = match is_select {
        true => pieces.select_into(first, last, relation.relpersistence as u8, is_temporary)?,
        false => pieces.create_as(last)?,
    };
    let name = relation.relname()?.to_owned();
    let found = TableAs { schema: relation.schemaname().map(str::to_owned), name, is_temporary, definition, query };
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
    /// `CREATE TABLE name (…) … AS query [WITH DATA]`. `last`: of the name.
    fn create_as(&self, last: usize) -> Option<(String, String)> {
        let tokens = &self.tokens;
        let before = tokens.word_at_top(last + 1, &["as"])?;
        let count = tokens.count();
        let has_data = count > 2 && tokens.is_word(count - 2, "with") && tokens.is_word(count - 1, "data");
        let end = if has_data { tokens.get(count - 2)?.start } else { tokens.get(count.checked_sub(1)?)?.end };
        let query = self.text.get(tokens.get(before)?.end..end)?;
        Some((without_rows(self.text.get(..end)?), query.to_owned()))
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
            Node::CreateTableAsStmt(create) => table_as(text, 0, create.into()?, false, false),
            Node::SelectStmt(select) => table_as(text, 0, select.into_clause()?, false, true),
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
    fn what_runs_a_prepared_statement_is_not_taken_apart() {
        assert_eq!(taken("CREATE TABLE a AS EXECUTE p"), None);
    }
}
