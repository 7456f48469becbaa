//! Functions of users that read reference tables: whether what they give hangs on which rows they find first.
//!
//! The queries of a body are read like sub-selects ([`super::found_first`]). Of those whose rows become one value, which are all but
//! the rows that a function in SQL returns as a set, the first row counts. A name that is no column is a parameter or a variable,
//! and has one value. What cannot be read counts as hanging on it.

use std::collections::HashSet;

use pg_raw_parse::Node;

use super::bind::Reader;
use super::found_first::{Asked, found_first};
use super::relations::{self, Resolved};
use crate::catalog::{BodyReader, Function, Oid, References};
use crate::sql::body::{SqlBodyReader, queries};
use crate::sql::parse;

impl Reader<'_> {
    /// `references`: what the function touches.
    pub fn note_copies_read(&mut self, function: &Function, references: &References) {
        let is_copied = |oid: &u32| {
            let relation = self.context.catalog.relations.get(oid);
            relation.is_some_and(|found| matches!(relations::placed(self.context, found, true), Resolved::Reference(_)))
        };
        // What a body calls is looked at with it.
        if self.is_body || !references.reads.iter().any(is_copied) || !self.body_finds_first(function, &mut HashSet::new()) {
            return;
        }
        let name = &function.name;
        self.notes.of_one_copy.get_or_insert_with(|| format!("{name}(), which reads a reference table"));
        self.notes.not_pushable(found_first(&format!("function {name}()")));
    }

    fn body_finds_first(&self, function: &Function, seen: &mut HashSet<Oid>) -> bool {
        if function.is_extension_member || !seen.insert(function.oid) {
            return false;
        }
        let Some(queries) = queries(&function.language, &function.body) else { return true };
        let catalog = &self.context.catalog;
        let called = SqlBodyReader.references(&function.language, &function.body).functions;
        let others = called.iter().filter_map(|called| catalog.function_names.get(&called.name)).flatten();
        queries.iter().any(|text| self.query_finds_first(text, function))
            || others.filter_map(|oid| catalog.functions.get(oid)).any(|other| self.body_finds_first(other, seen))
    }

    fn query_finds_first(&self, text: &str, function: &Function) -> bool {
        let Ok(tree) = parse::parse(text) else { return true };
        let is_set = function.returns_set && function.language == "sql";
        tree.stmts().any(|statement| {
            let Node::SelectStmt(_) = statement else { return true };
            let mut reader = Reader::new(self.context, text, &[]);
            reader.is_body = true;
            reader.asked = if is_set { Asked::Rows } else { Asked::First };
            if let Some(path) = &function.search_path {
                reader.search_path.clone_from(path);
            }
            reader.query(statement, None, &None).is_err() || reader.notes.finds_first
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::sql::Analyzer;
    use crate::sql::analysis::Scope;
    use crate::sql::testing;

    /// Whether a statement with a function of such a body may run on several shards, and may write copies.
    fn is_determined(language: &str, body: &str, returns_set: bool) -> bool {
        let mut fixture = testing::library();
        fixture.primary_key("ref", "id");
        fixture.function("looks_up", 's', "sql", "SELECT name FROM public.ref WHERE id = $1");
        fixture.function("finds", 's', "sql", "SELECT name FROM public.ref WHERE g = $1");
        let oid = fixture.function("f", 's', language, body);
        fixture.catalog.functions.get_mut(&oid).unwrap().returns_set = returns_set;
        let context = fixture.context(&["public"], &[]);
        let read = Analyzer::new().analyze("SELECT f(k) FROM t", &context).unwrap();
        let is_pushed = matches!(&read.statements[0].scope, Scope::Placed { pushdown: Ok(_), .. });
        let written = Analyzer::new().analyze("UPDATE ref SET name = f(1)", &context).unwrap();
        assert_eq!(is_pushed, matches!(written.statements[0].scope, Scope::EveryShard), "{body}");
        is_pushed
    }

    #[test]
    fn what_a_body_finds_first_is_found() {
        for body in [
            "SELECT name FROM public.ref LIMIT 1",
            "SELECT name FROM public.ref WHERE g = $1",
            "SELECT string_agg(name, ',') FROM public.ref",
            "SELECT finds($1)",
            "SELECT name FROM public.ref ORDER BY g",
        ] {
            assert!(!is_determined("sql", body, false), "{body}");
        }
        for body in [
            "BEGIN RETURN (SELECT name FROM public.ref LIMIT 1); END",
            "DECLARE v text; BEGIN SELECT name INTO v FROM public.ref WHERE g = a; RETURN v; END",
            "DECLARE r record; v text; BEGIN FOR r IN SELECT name FROM public.ref LOOP v := v || r.name; END LOOP; RETURN v; END",
            "BEGIN RETURN finds(a); END",
        ] {
            assert!(!is_determined("plpgsql", body, false), "{body}");
        }
        assert!(!is_determined("sql", "SELECT name FROM public.ref LIMIT 1", true));
    }

    #[test]
    fn what_a_body_looks_up_is_the_same_everywhere() {
        for body in [
            "SELECT name FROM public.ref WHERE id = $1",
            "SELECT name FROM public.ref WHERE id = a_parameter",
            "SELECT count(*) FROM public.ref",
            "SELECT max(name) FROM public.ref WHERE g = $1",
            "SELECT EXISTS (SELECT FROM public.ref WHERE g = $1)",
            "SELECT 1 FROM public.ref WHERE g = $1",
            "SELECT looks_up($1)",
        ] {
            assert!(is_determined("sql", body, false), "{body}");
        }
        for body in [
            "BEGIN RETURN (SELECT name FROM public.ref WHERE id = a); END",
            "DECLARE v text; BEGIN SELECT name INTO v FROM public.ref WHERE id = a; RETURN v; END",
            "BEGIN PERFORM 1 FROM public.ref WHERE g = a; RETURN FOUND; END",
            "DECLARE r record; v text; BEGIN FOR r IN SELECT name FROM public.ref ORDER BY id LOOP v := v || r.name; END LOOP; RETURN v; END",
        ] {
            assert!(is_determined("plpgsql", body, false), "{body}");
        }
        assert!(is_determined("sql", "SELECT name FROM public.ref WHERE g = $1", true));
    }
}
