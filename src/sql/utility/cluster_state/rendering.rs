//! The client's text with the cluster's answers in it.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Asked, Naming, Place, Places};
use crate::catalog::quoted_literal;

/// What the proxy and the shards say, as JSON of ASCII characters alone.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// The process id that the client was given.
    pub own_process: i32,
    /// That the transaction has exported.
    pub snapshot: String,
    /// What the database is called on the home shard.
    pub home_database: String,
    /// Sessions: `user`, and the columns of `pg_stat_activity` that this user may see (`row`). What is hidden is not in it: a text is
    /// shown in many places.
    pub activity: String,
    /// Rows of `pg_locks`; `relation_name` and `is_own` say what `relation` and `database` are here.
    pub locks: String,
    /// Rows of `pg_prepared_statements`.
    pub prepared: String,
    /// By process id: an array, as text.
    pub blocking: String,
    /// By function: what the other shards have, by oid of the home shard and, for `pg_relation_size`, the fork: `16390/main`.
    pub sizes: BTreeMap<&'static str, String>,
    /// What the database is called here, its oid among it, and the bytes that the other shards have.
    pub database: (Vec<String>, i64),
    /// Process ids that were found.
    pub signalled: Vec<i32>,
}

/// A text made of the client's.
#[derive(Clone, Debug, Default)]
pub struct Rewritten {
    pub text: String,
    /// Of the parameters after the client's own.
    pub values: Vec<String>,
    /// How many parameters are the client's; `None`: what is answered stands in the text.
    parameters_before: Option<usize>,
    /// What is the client's own: where it begins here, and where it was. Byte offsets, in order.
    kept: Vec<(usize, Range<usize>)>,
}

impl Rewritten {
    fn keep(&mut self, text: &str, range: Range<usize>) {
        self.kept.push((self.text.len(), range.clone()));
        self.text.push_str(text.get(range).unwrap_or_default());
    }

    /// A value of type `text`, as an expression.
    fn value(&mut self, value: &str) -> String {
        let Some(before) = self.parameters_before else { return quoted_literal(value) };
        self.values.push(value.to_owned());
        format!("${}::pg_catalog.text", before + self.values.len())
    }

    /// JSON without anything in it is `empty`.
    fn json(&mut self, json: &str, empty: &str) -> String {
        let value = self.value(if json.is_empty() { empty } else { json });
        format!("({value})::pg_catalog.jsonb")
    }

    /// Of a place in it, the place in the client's text; both count characters from 1.
    pub fn original_position(&self, own: &str, position: usize) -> usize {
        let offset = self.text.char_indices().nth(position.saturating_sub(1)).map_or(self.text.len(), |(offset, _)| offset);
        let before = self.kept.iter().rev().find(|(start, _)| *start <= offset);
        let offset = before.map_or(0, |(start, range)| (range.start + offset - start).min(range.end));
        own.get(..offset).unwrap_or_default().chars().count() + 1
    }
}

impl Places {
    /// The text to run in place of the client's.
    pub fn rewritten(&self, text: &str, answers: &Answers) -> Rewritten {
        self.rewritten_with(text, answers, None)
    }

    /// The same with the answers as parameters, after so many of the client's: one text for all executions.
    pub fn rewritten_with(&self, text: &str, answers: &Answers, parameters_before: Option<usize>) -> Rewritten {
        let mut out = Rewritten { parameters_before, ..Rewritten::default() };
        self.render(text, 0..text.len(), answers, &mut out);
        out
    }

    /// The same, to learn which sessions are meant: the last columns are, for each call, the process id and how long to wait.
    pub fn collecting(&self, text: &str, answers: &Answers) -> Option<Rewritten> {
        let signals = self.signals.as_ref()?;
        let mut out = Rewritten::default();
        self.render(text, 0..signals.list.start, answers, &mut out);
        if signals.is_list_kept {
            // What the calls give does not matter here.
            self.render(text, signals.list.clone(), answers, &mut out);
            out.text.push_str(", ");
        }
        for (index, place) in self.list.iter().filter(|place| place.is_signal()).enumerate() {
            out.text.push_str(if index == 0 { "(" } else { ", (" });
            self.render_argument(text, place, 0, answers, &mut out);
            out.text.push_str(")::pg_catalog.int4, (");
            match place.arguments.len() {
                1 => out.text.push('0'),
                _ => self.render_argument(text, place, 1, answers, &mut out),
            }
            out.text.push_str(")::pg_catalog.int8");
        }
        out.text.push(' ');
        self.render(text, signals.list.end..text.len(), answers, &mut out);
        Some(out)
    }

    fn render(&self, text: &str, range: Range<usize>, answers: &Answers, out: &mut Rewritten) {
        let mut position = range.start;
        for place in self.list.iter().filter(|place| range.start <= place.range.start && place.range.end <= range.end) {
            // Among the arguments of the one before.
            if place.range.start < position {
                continue;
            }
            out.keep(text, position..place.range.start);
            self.render_place(text, place, answers, out);
            position = place.range.end;
        }
        out.keep(text, position..range.end);
    }

    fn render_place(&self, text: &str, place: &Place, answers: &Answers, out: &mut Rewritten) {
        match place.naming {
            Naming::Within => out.text.push_str("(SELECT "),
            Naming::Table => out.text.push_str("SELECT * FROM "),
            Naming::Nothing | Naming::Column | Naming::Relation => {}
        }
        match place.asked {
            Asked::Activity => {
                let rows = out.json(&answers.activity, "[]");
                out.text.push_str(&activity(&rows, &answers.home_database));
            }
            Asked::Locks => {
                let rows = out.json(&answers.locks, "[]");
                out.text.push_str(&locks(&rows, &answers.home_database));
            }
            Asked::Prepared => {
                let rows = out.json(&answers.prepared, "[]");
                out.text.push_str(&prepared(&rows, &answers.home_database));
            }
            Asked::OwnProcess => out.text.push_str(&format!("({}::pg_catalog.int4)", answers.own_process)),
            Asked::Snapshot => {
                let snapshot = out.value(&answers.snapshot);
                out.text.push_str(&format!("(({snapshot})::pg_catalog.text)"));
            }
            Asked::Blocking => self.render_blocking(text, place, answers, out),
            Asked::Cancel | Asked::Terminate => self.render_signal(text, place, answers, out),
            Asked::Size(function) => self.render_size(text, place, function, answers, out),
            Asked::DatabaseSize => self.render_database_size(text, place, answers, out),
            Asked::Default => {
                out.text.push_str("(pg_catalog.regexp_replace(pg_catalog.pg_get_expr(");
                for index in 0..place.arguments.len() {
                    out.text.push_str(if index == 0 { "" } else { ", " });
                    self.render_argument(text, place, index, answers, out);
                }
                out.text.push_str(&format!("), {NUMBERED}))"));
            }
            Asked::Columns => out.text.push_str(&columns()),
        }
        match place.naming {
            Naming::Nothing => {}
            // What follows may stand close to it.
            Naming::Column | Naming::Relation | Naming::Table => out.text.push_str(&format!(" AS {} ", place.name)),
            Naming::Within => out.text.push_str(&format!(" AS {})", place.name)),
        }
    }

    fn render_argument(&self, text: &str, place: &Place, index: usize, answers: &Answers, out: &mut Rewritten) {
        self.render(text, place.arguments.get(index).cloned().unwrap_or_default(), answers, out);
    }

    fn render_blocking(&self, text: &str, place: &Place, answers: &Answers, out: &mut Rewritten) {
        out.text.push_str("(CASE WHEN (");
        self.render_argument(text, place, 0, answers, out);
        let blocking = out.json(&answers.blocking, "{}");
        out.text.push_str(&format!(") IS NOT NULL THEN coalesce(({blocking} OPERATOR(pg_catalog.->>) (("));
        self.render_argument(text, place, 0, answers, out);
        out.text.push_str(")::pg_catalog.int4::pg_catalog.text))::pg_catalog.int4[], '{}'::pg_catalog.int4[]) END)");
    }

    fn render_signal(&self, text: &str, place: &Place, answers: &Answers, out: &mut Rewritten) {
        let signalled: Vec<String> = answers.signalled.iter().map(ToString::to_string).collect();
        out.text.push_str("(CASE WHEN (");
        self.render_argument(text, place, 0, answers, out);
        if place.arguments.len() > 1 {
            out.text.push_str(") IS NOT NULL AND (");
            self.render_argument(text, place, 1, answers, out);
        }
        out.text.push_str(") IS NOT NULL THEN (");
        self.render_argument(text, place, 0, answers, out);
        out.text.push_str(&format!(
            ")::pg_catalog.int4 OPERATOR(pg_catalog.=) ANY ('{{{}}}'::pg_catalog.int4[]) END)",
            signalled.join(",")
        ));
    }

    fn render_size(&self, text: &str, place: &Place, function: &'static str, answers: &Answers, out: &mut Rewritten) {
        out.text.push_str(&format!("(pg_catalog.{function}("));
        for index in 0..place.arguments.len() {
            out.text.push_str(if index == 0 { "" } else { ", " });
            self.render_argument(text, place, index, answers, out);
        }
        let others = out.json(answers.sizes.get(function).map_or("", String::as_str), "{}");
        out.text.push_str(&format!(") OPERATOR(pg_catalog.+) coalesce(({others} OPERATOR(pg_catalog.->>) (("));
        self.render_argument(text, place, 0, answers, out);
        out.text.push_str(")::pg_catalog.regclass::pg_catalog.oid::pg_catalog.text");
        if function == "pg_relation_size" {
            out.text.push_str(" OPERATOR(pg_catalog.||) '/' OPERATOR(pg_catalog.||) (");
            match place.arguments.len() {
                1 => out.text.push_str("'main'"),
                _ => self.render_argument(text, place, 1, answers, out),
            }
            out.text.push_str(")::pg_catalog.text");
        }
        out.text.push_str("))::pg_catalog.int8, 0))");
    }

    fn render_database_size(&self, text: &str, place: &Place, answers: &Answers, out: &mut Rewritten) {
        let (names, bytes) = &answers.database;
        let names: Vec<String> = names.iter().map(|name| quoted_literal(name)).collect();
        out.text.push_str("(pg_catalog.pg_database_size(");
        self.render_argument(text, place, 0, answers, out);
        out.text.push_str(") OPERATOR(pg_catalog.+) CASE WHEN (");
        self.render_argument(text, place, 0, answers, out);
        let bytes = out.value(&bytes.to_string());
        out.text.push_str(&format!(
            ")::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY[{}]::pg_catalog.text[]) THEN ({bytes})::pg_catalog.int8 ELSE 0 END)",
            names.join(", ")
        ));
    }
}

/// The relation of databases keeps the statement on the home shard, whose oids these are.
fn activity(sessions: &str, home: &str) -> String {
    format!(
        "(SELECT sg_row.* FROM pg_catalog.pg_database sg_database \
         CROSS JOIN pg_catalog.jsonb_array_elements({}) AS sg_session (said) \
         LEFT JOIN pg_catalog.pg_roles sg_role ON sg_role.rolname OPERATOR(pg_catalog.=) (sg_session.said OPERATOR(pg_catalog.->>) 'user') \
         CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::pg_catalog.pg_stat_activity, \
         (sg_session.said OPERATOR(pg_catalog.->) 'row') \
         OPERATOR(pg_catalog.||) pg_catalog.jsonb_build_object('datid', sg_database.oid, 'datname', sg_database.datname, \
         'usesysid', sg_role.oid)) AS sg_row \
         WHERE sg_database.datname OPERATOR(pg_catalog.=) {})",
        sessions,
        quoted_literal(home)
    )
}

fn locks(locks: &str, home: &str) -> String {
    format!(
        "(SELECT sg_row.* FROM pg_catalog.pg_database sg_database \
         CROSS JOIN pg_catalog.jsonb_array_elements({}) AS sg_lock (said) \
         CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::pg_catalog.pg_locks, \
         sg_lock.said OPERATOR(pg_catalog.||) CASE WHEN (sg_lock.said OPERATOR(pg_catalog.->>) 'is_own')::pg_catalog.bool \
         THEN pg_catalog.jsonb_build_object('database', sg_database.oid) ELSE '{{}}'::pg_catalog.jsonb END \
         OPERATOR(pg_catalog.||) CASE WHEN sg_lock.said OPERATOR(pg_catalog.->>) 'relation_name' IS NOT NULL \
         THEN pg_catalog.jsonb_build_object('relation', \
         pg_catalog.to_regclass(sg_lock.said OPERATOR(pg_catalog.->>) 'relation_name')::pg_catalog.oid) \
         ELSE '{{}}'::pg_catalog.jsonb END) AS sg_row \
         WHERE sg_database.datname OPERATOR(pg_catalog.=) {})",
        locks,
        quoted_literal(home)
    )
}

fn prepared(statements: &str, home: &str) -> String {
    format!(
        "(SELECT sg_row.* FROM pg_catalog.pg_database sg_database \
         CROSS JOIN LATERAL pg_catalog.jsonb_populate_recordset(NULL::pg_catalog.pg_prepared_statements, {}) AS sg_row \
         WHERE sg_database.datname OPERATOR(pg_catalog.=) {} \
         UNION ALL SELECT * FROM pg_catalog.pg_prepared_statements WHERE from_sql)",
        statements,
        quoted_literal(home)
    )
}

/// Conditions on the names are PostgreSQL's own to use.
fn columns() -> String {
    let column = |name: &&str| match *name {
        "column_default" => {
            format!("pg_catalog.regexp_replace(column_default, {NUMBERED})::information_schema.character_data AS column_default")
        }
        name => name.to_owned(),
    };
    format!("(SELECT {} FROM information_schema.columns)", COLUMNS.iter().map(column).collect::<Vec<_>>().join(", "))
}

/// What `regexp_replace` makes of a default that draws numbers of the whole cluster: the one that the column was declared with, as of a
/// serial column.
const NUMBERED: &str = r#"E'^shardgate\\.next_id\\((.*?)(, ''.''::"char")?\\)$', E'nextval(\\1)'"#;

/// Of `information_schema.columns`, since PostgreSQL 10.
const COLUMNS: [&str; 44] = [
    "table_catalog",
    "table_schema",
    "table_name",
    "column_name",
    "ordinal_position",
    "column_default",
    "is_nullable",
    "data_type",
    "character_maximum_length",
    "character_octet_length",
    "numeric_precision",
    "numeric_precision_radix",
    "numeric_scale",
    "datetime_precision",
    "interval_type",
    "interval_precision",
    "character_set_catalog",
    "character_set_schema",
    "character_set_name",
    "collation_catalog",
    "collation_schema",
    "collation_name",
    "domain_catalog",
    "domain_schema",
    "domain_name",
    "udt_catalog",
    "udt_schema",
    "udt_name",
    "scope_catalog",
    "scope_schema",
    "scope_name",
    "maximum_cardinality",
    "dtd_identifier",
    "is_self_referencing",
    "is_identity",
    "identity_generation",
    "identity_start",
    "identity_increment",
    "identity_maximum",
    "identity_minimum",
    "identity_cycle",
    "is_generated",
    "generation_expression",
    "is_updatable",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::parse;
    use crate::sql::testing::Fixture;

    fn places(text: &str) -> Places {
        Places::of(text, &Fixture::default().context(&["public"], &[])).expect(text).expect(text)
    }

    fn rewritten(text: &str) -> String {
        let sizes = [("pg_table_size", "{\"16390\":8192}".to_owned())].into();
        let answers = Answers { own_process: 77, sizes, signalled: vec![5], ..Answers::default() };
        let rewritten = places(text).rewritten(text, &answers).text;
        parse::parse(&rewritten).expect(&rewritten);
        rewritten
    }

    #[test]
    fn columns_keep_their_names() {
        for (text, expected) in [
            ("SELECT pg_backend_pid()", "SELECT (77::pg_catalog.int4) AS pg_backend_pid "),
            ("SELECT pg_backend_pid()FROM t", "SELECT (77::pg_catalog.int4) AS pg_backend_pid FROM t"),
            ("SELECT pg_catalog.pg_backend_pid ( ) AS p", "SELECT (77::pg_catalog.int4) AS p"),
            ("SELECT pg_backend_pid()::text, 1", "SELECT (SELECT (77::pg_catalog.int4) AS pg_backend_pid)::text, 1"),
            ("SELECT (SELECT pg_backend_pid())", "SELECT (SELECT (77::pg_catalog.int4) AS pg_backend_pid )"),
            (
                "SELECT 1 + pg_backend_pid() WHERE pg_backend_pid() > 1",
                "SELECT 1 + (77::pg_catalog.int4) WHERE (77::pg_catalog.int4) > 1",
            ),
            // A number by itself would be that of a column.
            ("SELECT a FROM t ORDER BY pg_backend_pid()", "SELECT a FROM t ORDER BY (77::pg_catalog.int4)"),
            ("SELECT DISTINCT ON (pg_backend_pid()) a FROM t", "SELECT DISTINCT ON ((77::pg_catalog.int4)) a FROM t"),
            ("INSERT INTO t VALUES (pg_backend_pid())", "INSERT INTO t VALUES ((77::pg_catalog.int4))"),
            (
                "SELECT pg_cancel_backend(pg_backend_pid())",
                "SELECT (CASE WHEN ((77::pg_catalog.int4)) IS NOT NULL THEN ((77::pg_catalog.int4))::pg_catalog.int4 \
                 OPERATOR(pg_catalog.=) ANY ('{5}'::pg_catalog.int4[]) END) AS pg_cancel_backend ",
            ),
        ] {
            assert_eq!(rewritten(text), expected, "{text}");
        }
        let default = rewritten("SELECT pg_get_expr(d.adbin, d.adrelid), 1 FROM pg_attrdef d");
        assert!(
            default.starts_with("SELECT (pg_catalog.regexp_replace(pg_catalog.pg_get_expr(d.adbin, d.adrelid), E'"),
            "{default}"
        );
        assert!(default.ends_with(r"E'nextval(\\1)')) AS pg_get_expr , 1 FROM pg_attrdef d"), "{default}");
        let size = rewritten("SELECT pg_size_pretty(pg_table_size('t'))");
        assert!(size.starts_with("SELECT pg_size_pretty((pg_catalog.pg_table_size('t') ") && size.ends_with("0)))"), "{size}");
    }

    #[test]
    fn relations_are_replaced_where_they_are_read() {
        for (text, begins, ends) in [
            ("TABLE pg_locks", "SELECT * FROM (SELECT", ") AS pg_locks "),
            ("SELECT * FROM pg_catalog.pg_stat_activity a", "SELECT * FROM (SELECT", ") a"),
            ("SELECT 1 FROM ONLY pg_prepared_statements", "SELECT 1 FROM (SELECT", ") AS pg_prepared_statements "),
            ("COPY (SELECT * FROM pg_locks l) TO STDOUT", "COPY (SELECT * FROM (SELECT", ") l) TO STDOUT"),
            ("SELECT * FROM information_schema.columns", "SELECT * FROM (SELECT table_catalog, ", ") AS columns "),
        ] {
            let made = rewritten(text);
            assert!(made.starts_with(begins) && made.ends_with(ends), "{made}");
        }
    }

    #[test]
    fn names_of_others_are_left() {
        let mut fixture = Fixture::default();
        fixture.function("pg_backend_pid", 'i', "sql", "SELECT 1");
        let context = fixture.context(&["public", "pg_catalog"], &["pg_prepared_statements"]);
        for text in [
            "WITH pg_locks AS (SELECT 1) SELECT * FROM pg_locks",
            "WITH RECURSIVE a AS (SELECT 1 FROM pg_locks), pg_locks AS (SELECT 1) SELECT 1",
            "INSERT INTO t WITH pg_locks AS (SELECT 1) SELECT (SELECT count(*) FROM pg_locks)",
            "SELECT pg_backend_pid()",
            "SELECT * FROM pg_prepared_statements",
            "SELECT 'pg_locks' FROM public.pg_locks",
            "CREATE VIEW v AS SELECT * FROM pg_locks",
            "COPY pg_locks TO STDOUT",
            "COPY t (pg_locks) FROM STDIN",
            "TRUNCATE t",
            "SELECT pg_backend_pid(1)",
            "SELECT information_schema.columns.column_name FROM information_schema.columns",
            "SELECT 1 FROM information_schema.columns WHERE \"information_schema\".\"columns\".table_name = 't'",
        ] {
            assert!(Places::of(text, &context).expect(text).is_none(), "{text}");
        }
        for text in ["SELECT pg_catalog.pg_backend_pid()", "SELECT * FROM pg_catalog.pg_prepared_statements", "TABLE pg_locks"] {
            assert!(Places::of(text, &context).expect(text).is_some(), "{text}");
        }
    }

    #[test]
    fn a_function_of_users_counts_by_where_its_schema_is_searched() {
        let fixture = || {
            let mut fixture = Fixture::default();
            fixture.function("pg_backend_pid", 'i', "sql", "SELECT 1");
            fixture.function("pg_table_size", 'i', "sql", "SELECT 1");
            fixture
        };
        let own = "SELECT pg_backend_pid()";
        assert!(Places::of(own, &fixture().context(&["public"], &[])).expect(own).is_some());
        assert!(Places::of(own, &fixture().context(&["pg_catalog", "public"], &[])).expect(own).is_some());
        assert!(Places::of(own, &fixture().context(&["public", "pg_catalog"], &[])).expect(own).is_none());
        // By the types of the arguments it could be either.
        let size = "SELECT pg_table_size('a')";
        assert!(Places::of(size, &fixture().context(&["public"], &[])).is_err_and(|refusal| refusal.hint.is_some()));
        assert!(Places::of("SELECT pg_catalog.pg_table_size('a')", &fixture().context(&["public"], &[])).expect(size).is_some());
        assert!(Places::of(size, &fixture().context(&["elsewhere"], &[])).expect(size).is_some());
    }

    #[test]
    fn a_with_query_counts_where_it_is_seen() {
        for (text, count) in [
            ("SELECT (WITH pg_locks AS (SELECT 1) SELECT count(*) FROM pg_locks) FROM pg_locks", 1),
            ("WITH pg_locks AS (SELECT * FROM pg_locks) SELECT * FROM pg_locks", 1),
            ("WITH a AS (SELECT * FROM pg_locks), pg_locks AS (SELECT 1) SELECT * FROM pg_locks, a", 1),
            ("SELECT * FROM pg_locks a, pg_catalog.pg_locks b", 2),
        ] {
            assert_eq!(rewritten(text).matches("sg_lock.said OPERATOR(pg_catalog.||)").count(), count, "{text}");
        }
    }

    #[test]
    fn only_names_in_the_tree_ask() {
        for (text, asks) in [
            ("SELECT 'pg_locks' -- pg_stat_activity", false),
            ("SELECT pg_locks FROM t", false),
            ("SELECT 1 FROM elsewhere.pg_locks", false),
            ("SELECT 1 FROM pg_locks", true),
            ("SELECT 1 FROM information_schema.columns", true),
            ("SELECT 1 FROM columns", false),
            ("SELECT information_schema.columns.table_name FROM information_schema.columns", false),
            ("SELECT 1 FROM t WHERE a = (SELECT pg_catalog.pg_backend_pid())", true),
            ("EXPLAIN SELECT pg_table_size('t')", true),
            ("SELECT 1 FROM U&\"pg\\005flocks\"", true),
        ] {
            let tree = parse::parse(text).expect(text);
            let statement = tree.stmts().next().expect(text);
            assert_eq!(crate::sql::utility::cluster_state::may_ask(statement, text), asks, "{text}");
        }
    }

    #[test]
    fn answers_may_be_parameters() {
        let text = "SELECT $1, pid FROM pg_locks WHERE pid = pg_backend_pid()";
        let answers = Answers { own_process: 77, locks: "[{}]".to_owned(), ..Answers::default() };
        let made = places(text).rewritten_with(text, &answers, Some(1));
        assert!(made.text.contains("jsonb_array_elements(($2::pg_catalog.text)::pg_catalog.jsonb)"), "{}", made.text);
        assert_eq!(made.values, ["[{}]"]);
        parse::parse(&made.text).expect(&made.text);
    }

    #[test]
    fn what_is_to_be_ended_is_asked_first() {
        let collecting = |text: &str| places(text).collecting(text, &Answers::default()).expect(text).text;
        for (text, ends) in [
            (
                "SELECT a, pg_terminate_backend(pid, 5) FROM s WHERE b",
                "AS pg_terminate_backend , (pid)::pg_catalog.int4, (5)::pg_catalog.int8  FROM s WHERE b",
            ),
            (
                "SELECT pg_cancel_backend(pid) FROM s ORDER BY b LIMIT 1;",
                "AS pg_cancel_backend , (pid)::pg_catalog.int4, (0)::pg_catalog.int8  FROM s ORDER BY b LIMIT 1;",
            ),
            (
                "SELECT a AS b, pg_cancel_backend(pid)::text FROM s ORDER BY 1 LIMIT 1",
                ", (pid)::pg_catalog.int4, (0)::pg_catalog.int8  FROM s ORDER BY 1 LIMIT 1",
            ),
        ] {
            let made = collecting(text);
            assert!(made.starts_with("SELECT ") && made.ends_with(ends), "{made}");
        }
        for text in [
            "count(pg_cancel_backend(pid))",
            "bool_and(pg_cancel_backend(pid)), count(*)",
            "count(pg_cancel_backend(pid)::text)::text",
        ] {
            assert_eq!(
                collecting(&format!("WITH s AS (SELECT 1 AS pid) SELECT {text} FROM s WHERE c")),
                "WITH s AS (SELECT 1 AS pid) SELECT (pid)::pg_catalog.int4, (0)::pg_catalog.int8  FROM s WHERE c"
            );
        }
    }

    #[test]
    fn what_may_not_be_called_for_a_row_is_refused() {
        for text in [
            "SELECT 1 FROM s WHERE pg_terminate_backend(pid)",
            "SELECT DISTINCT pg_terminate_backend(pid) FROM s",
            "SELECT (SELECT pg_terminate_backend(pid)) FROM s",
            "SELECT count(pg_terminate_backend(pid)) FROM s LIMIT 1",
            "SELECT pg_terminate_backend(pid) FROM s UNION SELECT true",
            "EXPLAIN ANALYZE SELECT pg_terminate_backend(pid) FROM s",
            "INSERT INTO t SELECT pg_terminate_backend(pid) FROM s",
            "SELECT * FROM pg_terminate_backend(5)",
            "SELECT CASE WHEN state = 'idle' THEN pg_terminate_backend(pid) END FROM s",
            "SELECT count(pg_terminate_backend(pid)) FILTER (WHERE state = 'idle') FROM s",
            "SELECT count(DISTINCT pg_terminate_backend(pid)) FROM s",
            "SELECT array_agg(pg_terminate_backend(pid) ORDER BY a) FROM s",
            "SELECT count(pg_terminate_backend(pid)) OVER () FROM s",
            "SELECT pid <> 5 AND pg_terminate_backend(pid) FROM s",
            "SELECT coalesce(a, pg_terminate_backend(pid)) FROM s",
            "SELECT NOT pg_terminate_backend(pid) FROM s",
            "SELECT pg_terminate_backend(pid), count(pg_terminate_backend(pid)) FROM s",
            "SELECT pg_terminate_backend(pid) FROM s GROUP BY pid",
            "SELECT count(pg_terminate_backend(pid)) FROM s HAVING count(*) > 1",
            "SELECT pg_terminate_backend(pid) FROM s OFFSET 1",
            "SELECT pg_terminate_backend(pid) FROM s ORDER BY a FETCH FIRST 1 ROW WITH TIES",
            "SELECT pg_terminate_backend(pid) FROM s ORDER BY 1 LIMIT 1",
            "SELECT pg_terminate_backend(pid) AS ended FROM s ORDER BY ended LIMIT 1",
            "SELECT pg_terminate_backend(pid) FROM s ORDER BY pg_terminate_backend LIMIT 1",
        ] {
            let refusal = Places::of(text, &Fixture::default().context(&["public"], &[])).err();
            assert!(refusal.is_some_and(|refusal| refusal.hint.is_some()), "{text}");
        }
    }

    #[test]
    fn errors_are_where_the_client_has_written() {
        let text = "SELECT 'é', pg_backend_pid(), wrong FROM t";
        let made = places(text).rewritten(text, &Answers { own_process: 1_234_567, ..Answers::default() });
        let place = |text: &str| text.char_indices().position(|(at, _)| text[at..].starts_with("wrong")).expect("there") + 1;
        assert_eq!(made.original_position(text, place(&made.text)), place(text));
    }
}
