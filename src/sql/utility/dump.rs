//! What `pg_dump` asks, so that it is answered as by one PostgreSQL: a dump restores where no proxy has been.
//!
//! The home shard's catalogue shows what the proxy has put there: the schema `shardgate`, triggers and publications of moves, and
//! columns whose default is `shardgate.next_id(…)`, which were serial or identity columns. In a session of `pg_dump` the relations of
//! the catalogue that show these are replaced by queries that do not:
//!
//! * the schema has a name like those of PostgreSQL itself (`pg_…`), in which `pg_dump` looks for nothing;
//! * such a default is `nextval(…)`, or the column is an identity column and its sequence belongs to it as one does;
//! * a materialized view over several shards has its query, and what stands beside it is not there;
//! * a sequence of the whole cluster stands where the map has it. `pg_dump` asks sequence by sequence, from version 18 on for all of
//!   them at once.
//!
//! A session is one of `pg_dump` when it says so, as `pg_dump` does: `application_name = 'pg_dump'`.

use pg_raw_parse::{Node, nodes};

use crate::catalog::{Catalog, RelationKind, SequenceName, quoted_literal};
use crate::sql::analysis::Splice;
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::parse::tokens::Tokens;
use crate::sql::parse::tree;
use crate::sql::rewrite::staging::spliced;
use crate::sql::utility::materialized::{BESIDE, Beside};

/// By this the session says what it is.
pub const APPLICATION: &str = "pg_dump";

/// The sequence of the whole cluster whose state is asked for: `SELECT last_value, is_called FROM seq`.
pub fn asked_sequence(text: &str, context: &Context) -> Option<SequenceName> {
    if !text.starts_with(QUESTION) {
        return None;
    }
    let tree = parse::parse(text).ok()?;
    let mut statements = tree.stmts();
    let (Some(Node::SelectStmt(select)), None) = (statements.next(), statements.next()) else { return None };
    let (Some(Node::RangeVar(from)), 1) = (select.from_clause().first(), select.from_clause().len()) else { return None };
    let relation = context.catalog.resolve(from.schemaname(), from.relname()?, &context.search_path)?;
    let name = (relation.schema.clone(), relation.name.clone());
    let is_asked = relation.kind == RelationKind::Sequence && context.map.sequences.contains_key(&name);
    is_asked.then_some(name)
}

/// As `pg_dump` begins it.
pub const QUESTION: &str = "SELECT last_value, is_called FROM ";

/// The function that gives the state of a sequence, which `pg_dump` 18 calls for each sequence of the database.
const STATE: &str = "pg_get_sequence_data";

/// Whether the state of every sequence of the database is asked for.
pub fn asks_every_sequence(text: &str) -> bool {
    text.contains(STATE)
}

/// That question, with where the sequences of the whole cluster stand: `last_value` and `is_called` of each. What the role may not read
/// stays NULL. `None`: the function is called with anything but a column, and its answer has no alias.
pub fn with_sequences(text: &str, places: &[(SequenceName, (i64, bool))]) -> Option<String> {
    let tokens = Tokens::of(text);
    let call = (0..tokens.count()).find(|index| tokens.is_word(*index, STATE) && tokens.piece(index + 1) == "(")?;
    let close = tokens.closing(call + 1)?;
    let sequence = tokens.text().get(tokens.range(call + 2, close - 1)?)?;
    let range = tokens.range(call, close)?;
    let rows: Vec<String> = places
        .iter()
        .map(|((schema, name), (last_value, is_called))| {
            let (schema, name) = (quoted_literal(schema), quoted_literal(name));
            format!("({schema}::pg_catalog.name, {name}::pg_catalog.name, {last_value}::pg_catalog.int8, {is_called})")
        })
        .collect();
    if rows.is_empty() {
        return Some(text.to_owned());
    }
    let text = format!(
        "LATERAL (SELECT CASE WHEN sg_s.last_value IS NOT NULL THEN coalesce(sg_c.last_value, sg_s.last_value) END AS last_value, \
         coalesce(sg_c.is_called, sg_s.is_called) AS is_called FROM pg_catalog.{STATE}({sequence}) sg_s \
         LEFT JOIN (pg_catalog.pg_class sg_k JOIN pg_catalog.pg_namespace sg_n ON sg_n.oid OPERATOR(pg_catalog.=) sg_k.relnamespace \
         JOIN (VALUES {}) sg_c (schema, name, last_value, is_called) ON sg_c.schema OPERATOR(pg_catalog.=) sg_n.nspname \
         AND sg_c.name OPERATOR(pg_catalog.=) sg_k.relname) ON sg_k.oid OPERATOR(pg_catalog.=) {sequence}) sg_p",
        rows.join(", ")
    );
    Some(spliced(tokens.text(), &[Splice { start: range.start, end: range.end, text }]))
}

/// The question as `pg_dump` means it; `None`: as it stands.
pub fn as_one_database(text: &str, catalog: &Catalog) -> Option<String> {
    let mut others: Vec<(&str, String)> = SHOWN_OTHERWISE.iter().map(|(name, query)| (*name, (*query).to_owned())).collect();
    let has_views = catalog.relations.values().any(|relation| Beside::of(relation).is_some());
    if has_views {
        others.extend(VIEWS_SHOWN_OTHERWISE.iter().map(|(name, query)| (*name, query.replace("{beside}", BESIDE))));
    }
    let is_of_view = has_views && text.contains(VIEW_DEFINITION);
    if !others.iter().any(|(name, _)| text.contains(name)) && !text.contains("attidentity") && !is_of_view {
        return None;
    }
    let tree = parse::parse(text).ok()?;
    let mut statements = tree.stmts();
    let (Some(select @ Node::SelectStmt(_)), None) = (statements.next(), statements.next()) else { return None };
    let tokens = Tokens::of(text);
    let mut splices: Vec<Splice> =
        tree::relations_within(select).into_iter().filter_map(|from| shown(from, &tokens, &others)).collect();
    splices.extend((0..tokens.count()).filter_map(|index| default_at(&tokens, index)));
    splices.extend((0..tokens.count()).filter_map(|index| identity_at(&tokens, index)));
    if is_of_view {
        splices.extend((0..tokens.count()).filter_map(|index| view_at(&tokens, index)));
    }
    (!splices.is_empty()).then(|| spliced(text, &splices))
}

const VIEW_DEFINITION: &str = "pg_get_viewdef";

/// Where there are materialized views over several shards. The rule of such a view is that of the view with its query.
const VIEWS_SHOWN_OTHERWISE: [(&str, &str); 2] = [
    (
        "pg_class",
        "SELECT sg_c.tableoid, sg_c.* FROM pg_catalog.pg_class sg_c WHERE sg_c.oid NOT IN (SELECT sg_b.beside FROM ({beside}) sg_b)",
    ),
    (
        "pg_rewrite",
        "SELECT sg_w.tableoid, sg_w.oid, sg_w.rulename, coalesce(sg_v.view, sg_w.ev_class) AS ev_class, sg_w.ev_type, sg_w.ev_enabled, \
         sg_w.is_instead, sg_w.ev_qual, sg_w.ev_action FROM pg_catalog.pg_rewrite sg_w LEFT JOIN ({beside}) sg_v ON sg_v.beside = sg_w.ev_class \
         WHERE sg_w.ev_class NOT IN (SELECT sg_b.view FROM ({beside}) sg_b)",
    ),
];

/// `pg_get_viewdef(view)`: the query of a materialized view.
fn view_at(tokens: &Tokens<'_>, index: usize) -> Option<Splice> {
    if !tokens.is_word(index, VIEW_DEFINITION) || tokens.piece(index + 1) != "(" {
        return None;
    }
    let close = tokens.closing(index + 1)?;
    let range = tokens.range(index + 2, close.checked_sub(1)?)?;
    let view = tokens.text().get(range.clone()).filter(|view| !view.contains(','))?;
    let text =
        format!("coalesce((SELECT sg_b.beside FROM ({BESIDE}) sg_b WHERE sg_b.relkind = 'v' AND sg_b.view = {view}), {view})");
    Some(Splice { start: range.start, end: range.end, text })
}

/// Names of the catalogue, and what stands for them.
const SHOWN_OTHERWISE: [(&str, &str); 6] = [
    (
        "pg_namespace",
        "SELECT tableoid, oid, CASE nspname WHEN 'shardgate' THEN 'pg_shardgate' ELSE nspname END AS nspname, nspowner, nspacl \
         FROM pg_catalog.pg_namespace",
    ),
    (
        "pg_attrdef",
        "SELECT tableoid, oid, adrelid, adnum, adbin FROM pg_catalog.pg_attrdef \
         WHERE pg_catalog.pg_get_expr(adbin, adrelid) !~ '^shardgate\\.next_id\\(.*, ''.''::\"char\"\\)$'",
    ),
    (
        "pg_depend",
        "SELECT classid, objid, objsubid, refclassid, refobjid, refobjsubid, \
         CASE WHEN deptype = 'a' AND classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND refobjsubid > 0 \
                   AND EXISTS (SELECT FROM pg_catalog.pg_class sg_s WHERE sg_s.oid = objid AND sg_s.relkind = 'S') \
                   AND EXISTS (SELECT FROM pg_catalog.pg_attrdef sg_d WHERE sg_d.adrelid = refobjid AND sg_d.adnum = refobjsubid \
                        AND pg_catalog.pg_get_expr(sg_d.adbin, sg_d.adrelid) ~ '^shardgate\\.next_id\\(.*, ''.''::\"char\"\\)$') \
              THEN 'i' ELSE deptype END AS deptype \
         FROM pg_catalog.pg_depend",
    ),
    (
        "pg_trigger",
        "SELECT sg_t.tableoid, sg_t.* FROM pg_catalog.pg_trigger sg_t WHERE sg_t.tgfoid NOT IN (SELECT sg_p.oid FROM pg_catalog.pg_proc sg_p \
         JOIN pg_catalog.pg_namespace sg_n ON sg_n.oid = sg_p.pronamespace WHERE sg_n.nspname = 'shardgate')",
    ),
    ("pg_publication", "SELECT sg_p.tableoid, sg_p.* FROM pg_catalog.pg_publication sg_p WHERE sg_p.pubname !~ '^shardgate_move_'"),
    (
        "pg_subscription",
        "SELECT sg_s.tableoid, sg_s.* FROM pg_catalog.pg_subscription sg_s WHERE sg_s.subname !~ '^shardgate_move_'",
    ),
];

fn shown(from: &nodes::RangeVar, tokens: &Tokens<'_>, others: &[(&str, String)]) -> Option<Splice> {
    let is_system = from.schemaname().is_none_or(|schema| schema == "pg_catalog");
    let (name, query) = others.iter().find(|(name, _)| is_system && from.relname() == Some(name))?;
    // Only a superuser may read all of it, and nobody else asks for more than their number.
    if *name == "pg_subscription" && tokens.text().contains("count(*)") {
        return None;
    }
    let first = tokens.at_location(from.location)?;
    let range = tokens.range(first, tokens.name_end(first))?;
    let alias = if from.alias().is_some() { String::new() } else { format!(" AS {name}") };
    Some(Splice { start: range.start, end: range.end, text: format!("({query}){alias}") })
}

/// `pg_get_expr(adbin, …)`: what `shardgate.next_id` numbers, `nextval` does.
fn default_at(tokens: &Tokens<'_>, index: usize) -> Option<Splice> {
    let is_call = tokens.is_word(index, "pg_get_expr") && tokens.piece(index + 1) == "(";
    let argument = tokens.name_end(index + 2);
    if !is_call || !tokens.is_word(argument, "adbin") {
        return None;
    }
    let is_qualified = index >= 2 && tokens.piece(index - 1) == "." && tokens.is_word(index - 2, "pg_catalog");
    let range = tokens.range(if is_qualified { index - 2 } else { index }, tokens.closing(index + 1)?)?;
    let call = tokens.text().get(range.clone())?;
    let text = format!("pg_catalog.regexp_replace({call}, '^shardgate\\.next_id\\(', 'nextval(')");
    Some(Splice { start: range.start, end: range.end, text })
}

/// `a.attidentity` by itself among the columns of an answer.
fn identity_at(tokens: &Tokens<'_>, index: usize) -> Option<Splice> {
    let is_item = tokens.is_word(index, "attidentity")
        && index >= 3
        && tokens.piece(index - 1) == "."
        && tokens.piece(index - 3) == ","
        && tokens.piece(index + 1) == ",";
    if !is_item {
        return None;
    }
    let range = tokens.range(index - 2, index)?;
    let of = tokens.piece(index - 2);
    let text = format!(
        "coalesce((SELECT pg_catalog.substring(pg_catalog.pg_get_expr(sg_d.adbin, sg_d.adrelid), \
         '^shardgate\\.next_id\\(.*, ''(.)''::\"char\"\\)$') FROM pg_catalog.pg_attrdef sg_d \
         WHERE {of}.atthasdef AND sg_d.adrelid = {of}.attrelid AND sg_d.adnum = {of}.attnum), {of}.attidentity::pg_catalog.text) \
         AS attidentity"
    );
    Some(Splice { start: range.start, end: range.end, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_stands_where_the_map_has_it() {
        let text =
            "SELECT seqrelid, last_value, is_called FROM pg_catalog.pg_sequence, pg_get_sequence_data(seqrelid) ORDER BY seqrelid;";
        assert!(asks_every_sequence(text));
        assert_eq!(with_sequences(text, &[]).as_deref(), Some(text));
        let places = [(("public".to_owned(), "It's".to_owned()), (7, true))];
        let asked = with_sequences(text, &places).unwrap_or_default();
        assert!(asked.contains("('public'::pg_catalog.name, 'It''s'::pg_catalog.name, 7::pg_catalog.int8, true)"), "{asked}");
        assert!(asked.contains("FROM pg_catalog.pg_sequence, LATERAL (SELECT CASE"), "{asked}");
        assert!(asked.ends_with("OPERATOR(pg_catalog.=) seqrelid) sg_p ORDER BY seqrelid;"), "{asked}");
        assert!(parse::parse(&asked).is_ok());
    }

    #[test]
    fn questions_of_a_dump_are_asked_otherwise() {
        let none = Catalog::default();
        let asked = |text: &str| as_one_database(text, &none).unwrap_or_default();
        assert!(asked("SELECT n.tableoid, n.oid, n.nspname FROM pg_namespace n").ends_with("FROM pg_catalog.pg_namespace) n"));
        assert!(asked("SELECT 1 FROM pg_depend WHERE deptype = 'i'").contains(") AS pg_depend WHERE"));
        let defaults =
            asked("SELECT a.oid, pg_catalog.pg_get_expr(adbin, adrelid) AS adsrc FROM t JOIN pg_catalog.pg_attrdef a ON (true)");
        assert!(
            defaults.contains("SELECT a.oid, pg_catalog.regexp_replace(pg_catalog.pg_get_expr(adbin, adrelid), '"),
            "{defaults}"
        );
        assert!(defaults.contains(") a ON (true)"), "{defaults}");
        let columns = asked("SELECT a.attnum, a.attidentity, a.attname FROM pg_catalog.pg_attribute a");
        assert!(columns.contains("a.attidentity::pg_catalog.text) AS attidentity, a.attname FROM"), "{columns}");
        for text in ["SELECT 1", "SELECT * FROM pg_class", "LOCK TABLE pg_namespace", "SELECT nspname FROM other.pg_namespace"] {
            assert_eq!(as_one_database(text, &none), None, "{text}");
        }
    }
}
