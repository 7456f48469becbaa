//! The kinds of session state: how a statement sets each, and what shows that it is set.

/// One kind of state.
#[derive(Debug)]
pub struct Kind {
    pub name: &'static str,
    /// Direct statements of the session, before.
    pub prelude: &'static [&'static str],
    pub act: Act,
    /// A query whose answer tells whether the state is there, beside what every observer looks at.
    pub effect: &'static str,
    /// The setting and a value, for the SET clause of a function that sets it in its body.
    pub clause: (&'static str, &'static str),
}

impl Kind {
    /// A setting by which statements are read.
    pub fn is_read_by(&self) -> bool {
        matches!(self.name, "standard_conforming_strings" | "transform_null_equals")
    }
}

/// What sets the state.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// A call, `SELECT` of which is the statement.
    Expression(&'static str),
    Statement(&'static str),
    /// A statement that PL/pgSQL takes only through EXECUTE.
    Dynamic(&'static str),
}

impl Act {
    /// As a statement of its own.
    pub fn sql(self) -> String {
        match self {
            Self::Expression(call) => format!("SELECT {call}"),
            Self::Statement(sql) | Self::Dynamic(sql) => sql.to_owned(),
        }
    }

    /// As a statement of a PL/pgSQL body.
    pub fn in_plpgsql(self) -> String {
        match self {
            Self::Expression(call) => format!("PERFORM {call};"),
            Self::Statement(sql) => format!("{sql};"),
            Self::Dynamic(sql) => format!("EXECUTE $e${sql}$e$;"),
        }
    }

    /// As a statement of a PL/pgSQL body whose text does not say what it does.
    pub fn made_in_plpgsql(self) -> String {
        let sql = self.sql();
        let (first, rest) = sql.split_once(' ').unwrap_or((&sql, ""));
        format!("EXECUTE concat('{first}', ' ', $e${rest}$e$);")
    }
}

/// Of kinds that every observer sees anyway.
pub const NOTHING_MORE: &str = "SELECT 'nothing more'";
const OTHER_CLAUSE: (&str, &str) = ("work_mem", "'5MB'");

const fn setting(name: &'static str, act: Act, clause: (&'static str, &'static str)) -> Kind {
    Kind { name, prelude: &[], act, effect: NOTHING_MORE, clause }
}

const fn object(name: &'static str, act: Act, effect: &'static str) -> Kind {
    Kind { name, prelude: &[], act, effect, clause: OTHER_CLAUSE }
}

use Act::{Dynamic, Expression, Statement};

/// `{port}`, `{seeded}`: filled in, see [`super::stage::Stage::fill_in`].
pub const KINDS: &[Kind] = &[
    setting("custom name", Expression("set_config('app.tenant', '5', false)"), ("app.tenant", "'6'")),
    setting("custom name that is made", Expression("set_config(concat('app', '.tenant'), '5', false)"), ("app.tenant", "'6'")),
    setting("custom name by SET", Statement("SET app.other = 'x'"), ("app.other", "'y'")),
    setting("work_mem", Statement("SET work_mem = '9MB'"), ("work_mem", "'5MB'")),
    setting("DateStyle", Expression("set_config('DateStyle', 'SQL, DMY', false)"), ("DateStyle", "'German'")),
    setting("TimeZone", Statement("SET TimeZone = 'Asia/Kolkata'"), ("TimeZone", "'Asia/Tokyo'")),
    setting(
        "standard_conforming_strings",
        Expression("set_config('standard_conforming_strings', 'off', false)"),
        ("standard_conforming_strings", "off"),
    ),
    setting("transform_null_equals", Statement("SET transform_null_equals = on"), ("transform_null_equals", "on")),
    setting("session_replication_role", Statement("SET session_replication_role = replica"), OTHER_CLAUSE),
    setting("statement_timeout", Statement("SET statement_timeout = '59s'"), ("statement_timeout", "'58s'")),
    setting("role", Expression("set_config('role', 'writer', false)"), ("role", "reader")),
    setting("role by SET", Statement("SET ROLE writer"), OTHER_CLAUSE),
    setting("session authorization", Statement("SET SESSION AUTHORIZATION writer"), OTHER_CLAUSE),
    setting("SET LOCAL", Statement("SET LOCAL work_mem = '13MB'"), ("work_mem", "'5MB'")),
    setting("custom name by SET LOCAL", Statement("SET LOCAL app.other = 'x'"), ("app.other", "'y'")),
    setting("pg_settings", Statement("UPDATE pg_settings SET setting = '11264' WHERE name = 'work_mem'"), OTHER_CLAUSE),
    Kind {
        name: "search_path",
        prelude: &[],
        act: Statement("SET search_path = other_place, public"),
        effect: "SELECT place FROM which_place",
        clause: ("search_path", "public"),
    },
    Kind {
        name: "RESET ROLE",
        prelude: &["SET ROLE reader"],
        act: Statement("RESET ROLE"),
        effect: NOTHING_MORE,
        clause: OTHER_CLAUSE,
    },
    Kind {
        name: "RESET ALL",
        prelude: &["SET work_mem = '7MB'", "SET app.tenant = '9'"],
        act: Statement("RESET ALL"),
        effect: NOTHING_MORE,
        clause: OTHER_CLAUSE,
    },
    Kind {
        name: "another value than the session's",
        prelude: &["SET work_mem = '7MB'", "SET app.tenant = '9'"],
        act: Expression("set_config('app.tenant', '5', false)"),
        effect: NOTHING_MORE,
        clause: ("app.tenant", "'6'"),
    },
    object("temporary table", Statement("CREATE TEMP TABLE m_table AS SELECT 1 AS n"), "SELECT n FROM m_table"),
    object("hiding temporary table", Statement("CREATE TEMP TABLE lasting (n int)"), "SELECT count(*) FROM lasting"),
    object("temporary view", Statement("CREATE TEMP VIEW m_view AS SELECT 2 AS n"), "SELECT n FROM m_view"),
    object("temporary sequence", Statement("CREATE TEMP SEQUENCE m_sequence"), "SELECT nextval('m_sequence')"),
    object(
        "temporary function",
        Statement("CREATE FUNCTION pg_temp.m_function() RETURNS int LANGUAGE sql AS 'SELECT 3'"),
        "SELECT pg_temp.m_function()",
    ),
    object("advisory lock", Expression("pg_advisory_lock(4711)"), "SELECT pg_try_advisory_xact_lock_shared(4711)"),
    object("LISTEN", Statement("LISTEN m_news"), NOTHING_MORE),
    object("WITH HOLD cursor", Dynamic("DECLARE m_cursor CURSOR WITH HOLD FOR SELECT 4"), "FETCH m_cursor"),
    object("PREPARE", Statement("PREPARE m_statement AS SELECT 5"), "EXECUTE m_statement"),
    Kind {
        name: "DEALLOCATE ALL",
        prelude: &["PREPARE m_statement AS SELECT 5"],
        act: Statement("DEALLOCATE ALL"),
        effect: "EXECUTE m_statement",
        clause: OTHER_CLAUSE,
    },
    object("setseed", Expression("setseed(0.5)"), "SELECT random()::text = '{seeded}'"),
    object("SET seed", Statement("SET seed = 0.5"), "SELECT random()::text = '{seeded}'"),
    object("set_limit", Expression("set_limit(0.7)"), "SELECT show_limit()"),
    object("LOAD", Statement("LOAD 'auto_explain'"), "SELECT count(*) FROM pg_settings WHERE name = 'auto_explain.log_timing'"),
    object(
        "dblink",
        Expression("dblink_connect('m_link', 'host=127.0.0.1 port={port} user=postgres dbname=postgres')"),
        "SELECT dblink_get_connections()",
    ),
    object(
        "replication origin",
        Expression("pg_replication_origin_session_setup('m_origin')"),
        "SELECT pg_replication_origin_session_is_setup()",
    ),
    object(
        "temporary slot",
        Expression("pg_create_physical_replication_slot('m_slot', false, true)"),
        "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'm_slot'",
    ),
];

/// Settings that every observer looks at.
pub const LOOKED_AT: &[&str] = &[
    "role",
    "session_authorization",
    "is_superuser",
    "app.tenant",
    "app.other",
    "work_mem",
    "search_path",
    "DateStyle",
    "TimeZone",
    "standard_conforming_strings",
    "transform_null_equals",
    "session_replication_role",
    "statement_timeout",
    "row_security",
];
