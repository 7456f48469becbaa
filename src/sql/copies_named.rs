//! The reference tables that a statement names.

use super::context::Context;
use super::copies_locked::CopiesLock;
use super::parse;
use super::parse::tree;
use super::query::{Resolved, placed, resolve};
use crate::catalog::Relation;

/// Those in the text; all that there are where it names none, since views and functions may hide them.
pub fn tables<'c>(text: &str, context: &'c Context) -> Vec<&'c Relation> {
    let is_reference = |relation: &&Relation| matches!(placed(context, relation, true), Resolved::Reference(_));
    named(text, context).unwrap_or_else(|| context.catalog.relations.values().filter(is_reference).collect())
}

/// Keeps other writers out of them. `None`: it names none, or a view that may hide others.
pub fn lock(text: &str, context: &Context) -> Option<CopiesLock> {
    CopiesLock::of(named(text, context)?)
}

fn named<'c>(text: &str, context: &'c Context) -> Option<Vec<&'c Relation>> {
    let parsed = parse::parse(text).ok()?;
    let mut named: Vec<&Relation> = Vec::new();
    for relation in parsed.stmts().flat_map(tree::relations_within) {
        match resolve(context, relation, &context.search_path) {
            Resolved::Reference(relation) => named.push(relation),
            Resolved::View(_) => return None,
            _ => {}
        }
    }
    named.sort_by_key(|relation| relation.oid);
    named.dedup_by_key(|relation| relation.oid);
    Some(named).filter(|named| !named.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::testing;

    #[test]
    fn every_reference_table_is_found_where_it_stands() {
        let mut fixture = testing::library();
        fixture.table("ref2", "id int8, name text");
        fixture.replicate("ref2");
        let context = fixture.context(&["public"], &[]);
        let names = |text: &str| -> Vec<&str> {
            let mut names: Vec<&str> = tables(text, &context).iter().map(|relation| relation.name.as_str()).collect();
            names.sort_unstable();
            names.retain(|name| name.starts_with("ref"));
            names
        };
        assert_eq!(names("UPDATE ref SET g = 1"), ["ref"]);
        assert_eq!(names("DELETE FROM ref USING t WHERE g = (SELECT max(id) FROM public.ref2)"), ["ref", "ref2"]);
        assert_eq!(names("WITH w AS (DELETE FROM ref2 RETURNING id) SELECT * FROM w"), ["ref2"]);
        assert_eq!(names("SELECT 1"), ["ref", "ref2"], "hidden in a function, perhaps");
        let locked = lock("UPDATE ref SET g = 1 FROM ref2", &context).and_then(|lock| lock.statement(&[0, 1])).unwrap();
        assert_eq!(locked, r#"LOCK TABLE "public"."ref", "public"."ref2" IN SHARE ROW EXCLUSIVE MODE"#);
        assert_eq!(lock("DELETE FROM t", &context), None);
    }
}
