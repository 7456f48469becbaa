//! The ways in which a statement comes to set something: what is created for each, and the statement that goes that way.

use super::kinds::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Direct,
    SqlFunction,
    PlpgsqlFunction,
    DynamicExecute,
    TableFunction,
    EveryShard,
    Procedure,
    ProcedureWithCommit,
    DoBlock,
    TriggerFunction,
    TriggerWhen,
    DeferredTrigger,
    Rule,
    View,
    ColumnDefault,
    CheckConstraint,
    IndexExpression,
    GeneratedColumn,
    Policy,
    DomainCheck,
    Operator,
    ExplicitCast,
    ImplicitCast,
    AssignmentCast,
    Aggregate,
    WindowFunction,
    DefaultArgument,
    BeginAtomic,
    SecurityDefiner,
    NestedCall,
    SetClause,
    CreateTableAs,
    AddedConstraint,
}

pub const WAYS: &[Way] = &[
    Way::Direct,
    Way::SqlFunction,
    Way::PlpgsqlFunction,
    Way::DynamicExecute,
    Way::TableFunction,
    Way::EveryShard,
    Way::Procedure,
    Way::ProcedureWithCommit,
    Way::DoBlock,
    Way::TriggerFunction,
    Way::TriggerWhen,
    Way::DeferredTrigger,
    Way::Rule,
    Way::View,
    Way::ColumnDefault,
    Way::CheckConstraint,
    Way::IndexExpression,
    Way::GeneratedColumn,
    Way::Policy,
    Way::DomainCheck,
    Way::Operator,
    Way::ExplicitCast,
    Way::ImplicitCast,
    Way::AssignmentCast,
    Way::Aggregate,
    Way::WindowFunction,
    Way::DefaultArgument,
    Way::BeginAtomic,
    Way::SecurityDefiner,
    Way::NestedCall,
    Way::SetClause,
    Way::CreateTableAs,
    Way::AddedConstraint,
];

/// What a statement may be sent as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Query,
    /// `row`: what COPY FROM STDIN sends instead.
    Insert {
        row: Option<(&'static str, &'static str)>,
    },
    Utility,
}

const INSERTED: Form = Form::Insert { row: Some(("id, n", "{z}\t1")) };

impl Way {
    /// DDL, in the schema `cell`, on `{carrier}` (which has rows) and on `{inbox}` (which is empty).
    pub fn objects(self, kind: &Kind) -> String {
        let act = kind.act.in_plpgsql();
        let f = function("cell.f(a int)", "int", &act, "a");
        let g = function("cell.g(a int, b int)", "int", &act, "a + b");
        let immutable = function("cell.i(a int)", "int", "PERFORM cell.f(a);", "a").replace("AS $f$", "IMMUTABLE AS $f$");
        let c = "CREATE TYPE cell.m_kept AS (n int);";
        let to_c = format!("{c}{}", function("cell.to_c(a int)", "cell.m_kept", &act, "ROW(a)::cell.m_kept"));
        match self {
            Self::Direct | Self::DoBlock => String::new(),
            Self::SqlFunction => {
                format!("CREATE FUNCTION cell.f(a int) RETURNS int LANGUAGE sql AS $f$ {}; SELECT a $f$;", kind.act.sql())
            }
            Self::PlpgsqlFunction | Self::TableFunction | Self::EveryShard | Self::CreateTableAs | Self::AddedConstraint => f,
            Self::DynamicExecute => function("cell.f(a int)", "int", &kind.act.made_in_plpgsql(), "a"),
            Self::Procedure => format!("CREATE PROCEDURE cell.p() LANGUAGE plpgsql AS $f$ BEGIN {act} END $f$;"),
            Self::ProcedureWithCommit => {
                format!("CREATE PROCEDURE cell.p() LANGUAGE plpgsql AS $f$ BEGIN {act} COMMIT; PERFORM 1; END $f$;")
            }
            Self::TriggerFunction => format!(
                "{}CREATE TRIGGER m_trigger BEFORE INSERT ON {{inbox}} FOR EACH ROW EXECUTE FUNCTION cell.t();",
                function("cell.t()", "trigger", &act, "NEW")
            ),
            Self::TriggerWhen => format!(
                "{f}{}CREATE TRIGGER m_trigger BEFORE INSERT ON {{inbox}} FOR EACH ROW WHEN (cell.f(NEW.n) > 0) EXECUTE FUNCTION cell.t();",
                function("cell.t()", "trigger", "", "NEW")
            ),
            Self::DeferredTrigger => format!(
                "{}CREATE CONSTRAINT TRIGGER m_trigger AFTER INSERT ON {{inbox}} DEFERRABLE INITIALLY DEFERRED \
                 FOR EACH ROW EXECUTE FUNCTION cell.t();",
                function("cell.t()", "trigger", &act, "NEW")
            ),
            Self::Rule => format!(
                "{f}CREATE RULE m_rule AS ON INSERT TO {{inbox}} DO ALSO UPDATE {{carrier}} SET n = cell.f(n) WHERE id = {{z}};"
            ),
            Self::View => format!("{f}CREATE VIEW cell.v AS SELECT id, cell.f(n) AS x FROM {{carrier}};"),
            Self::ColumnDefault => format!("{f}ALTER TABLE {{inbox}} ALTER n SET DEFAULT cell.f(1);"),
            Self::CheckConstraint => format!("{f}ALTER TABLE {{inbox}} ADD CONSTRAINT m_check CHECK (cell.f(n) > 0);"),
            Self::IndexExpression => format!("{f}{immutable}CREATE INDEX ON {{inbox}} (cell.i(n));"),
            Self::GeneratedColumn => {
                format!("{f}{immutable}ALTER TABLE {{inbox}} ADD COLUMN g int GENERATED ALWAYS AS (cell.i(n)) STORED;")
            }
            Self::Policy => format!(
                "{f}ALTER TABLE {{carrier}} ENABLE ROW LEVEL SECURITY; CREATE POLICY m_policy ON {{carrier}} USING (cell.f(n) > 0);"
            ),
            Self::DomainCheck => format!("{f}CREATE DOMAIN cell.d AS int CHECK (cell.f(VALUE) > 0);"),
            Self::Operator => format!("{g}CREATE OPERATOR cell.{{operator}} (LEFTARG = int, RIGHTARG = int, FUNCTION = cell.g);"),
            Self::ExplicitCast => format!("{to_c}CREATE CAST (int AS cell.m_kept) WITH FUNCTION cell.to_c(int);"),
            Self::ImplicitCast => format!(
                "{to_c}CREATE CAST (int AS cell.m_kept) WITH FUNCTION cell.to_c(int) AS IMPLICIT;\
                 CREATE FUNCTION cell.takes(v cell.m_kept) RETURNS int LANGUAGE sql AS $f$ SELECT (v).n $f$;"
            ),
            Self::AssignmentCast => {
                format!(
                    "{to_c}CREATE CAST (int AS cell.m_kept) WITH FUNCTION cell.to_c(int) AS ASSIGNMENT; CREATE TABLE cell.holder (v cell.m_kept);"
                )
            }
            Self::Aggregate | Self::WindowFunction => {
                format!("{g}CREATE AGGREGATE cell.gathered(int) (SFUNC = cell.g, STYPE = int, INITCOND = '0');")
            }
            Self::DefaultArgument => {
                format!(
                    "{f}CREATE FUNCTION cell.h(a int, b int DEFAULT cell.f(1)) RETURNS int LANGUAGE sql AS $f$ SELECT a + b $f$;"
                )
            }
            Self::BeginAtomic => {
                format!("{f}CREATE FUNCTION cell.b(a int) RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT cell.f(a); END;")
            }
            Self::SecurityDefiner => f.replace("AS $f$", "SECURITY DEFINER AS $f$"),
            Self::NestedCall => format!(
                "{f}{}{}",
                function("cell.f2(a int)", "int", "PERFORM cell.f(a);", "a"),
                function("cell.f3(a int)", "int", "a := cell.f2(a);", "a")
            ),
            Self::SetClause => f.replace("AS $f$", &format!("SET {} = {} AS $f$", kind.clause.0, kind.clause.1)),
        }
    }

    /// The statement that sets, and how it may be sent.
    pub fn call(self, kind: &Kind) -> (String, Form) {
        const INSERT: &str = "INSERT INTO {inbox} (id, n) VALUES ({z}, 1)";
        let (text, form) = match self {
            Self::Direct => return (kind.act.sql(), Form::Utility),
            Self::DoBlock => return (format!("DO $f$ BEGIN {} END $f$", kind.act.in_plpgsql()), Form::Utility),
            Self::SqlFunction | Self::PlpgsqlFunction | Self::DynamicExecute | Self::SecurityDefiner | Self::SetClause => {
                ("SELECT cell.f(n) FROM {carrier} WHERE id = {z}", Form::Query)
            }
            Self::TableFunction => ("SELECT x FROM {carrier}, cell.f(n) x WHERE id = {z}", Form::Query),
            Self::EveryShard => ("SELECT count(cell.f(n)) FROM {carrier}", Form::Query),
            Self::Procedure | Self::ProcedureWithCommit => ("CALL cell.p()", Form::Utility),
            Self::ColumnDefault => ("INSERT INTO {inbox} (id) VALUES ({z})", Form::Insert { row: Some(("id", "{z}")) }),
            // COPY does not look at rules.
            Self::Rule => (INSERT, Form::Insert { row: None }),
            Self::TriggerFunction
            | Self::TriggerWhen
            | Self::DeferredTrigger
            | Self::CheckConstraint
            | Self::IndexExpression
            | Self::GeneratedColumn => (INSERT, INSERTED),
            Self::View => ("SELECT x FROM cell.v WHERE id = {z}", Form::Query),
            Self::Policy => ("SELECT n FROM {carrier} WHERE id = {z}", Form::Query),
            Self::DomainCheck => ("SELECT n::cell.d FROM {carrier} WHERE id = {z}", Form::Query),
            Self::Operator => ("SELECT n OPERATOR(cell.{operator}) 1 FROM {carrier} WHERE id = {z}", Form::Query),
            Self::ExplicitCast => ("SELECT (n::cell.m_kept).n FROM {carrier} WHERE id = {z}", Form::Query),
            Self::ImplicitCast => ("SELECT cell.takes(n) FROM {carrier} WHERE id = {z}", Form::Query),
            Self::AssignmentCast => ("INSERT INTO cell.holder VALUES (1)", Form::Insert { row: None }),
            Self::Aggregate => ("SELECT cell.gathered(n) FROM {carrier} WHERE id = {z}", Form::Query),
            Self::WindowFunction => ("SELECT cell.gathered(n) OVER () FROM {carrier} WHERE id = {z}", Form::Query),
            Self::DefaultArgument => ("SELECT cell.h(n) FROM {carrier} WHERE id = {z}", Form::Query),
            Self::BeginAtomic => ("SELECT cell.b(n) FROM {carrier} WHERE id = {z}", Form::Query),
            Self::NestedCall => ("SELECT cell.f3(n) FROM {carrier} WHERE id = {z}", Form::Query),
            Self::CreateTableAs => ("CREATE TABLE cell.made AS SELECT cell.f(1) AS x", Form::Utility),
            Self::AddedConstraint => ("ALTER TABLE {carrier} ADD CONSTRAINT m_added CHECK (cell.f(n) > 0)", Form::Utility),
        };
        (text.to_owned(), form)
    }

    /// Direct statements of the session, before.
    pub fn prelude(self) -> &'static [&'static str] {
        // A superuser is not asked.
        if self == Self::Policy { &["SET ROLE reader"] } else { &[] }
    }

    /// What goes beside the schema `cell`, whose end takes its functions and what depends on them.
    pub fn clean_up(self) -> &'static str {
        match self {
            Self::Policy => "; ALTER TABLE {carrier} DISABLE ROW LEVEL SECURITY",
            Self::GeneratedColumn => "; ALTER TABLE {inbox} DROP COLUMN IF EXISTS g",
            _ => "",
        }
    }

    /// What it creates may count for every statement, also of other cells: PostgreSQL calls it where no text names it.
    pub fn concerns_others(self) -> bool {
        matches!(self, Self::DomainCheck | Self::ExplicitCast | Self::ImplicitCast | Self::AssignmentCast)
    }

    /// The functions that are declared where the closure cannot tell: those that set.
    pub fn declared(self) -> &'static [&'static str] {
        match self {
            Self::Direct | Self::DoBlock => &[],
            Self::Procedure | Self::ProcedureWithCommit => &["cell.p"],
            Self::TriggerFunction | Self::DeferredTrigger => &["cell.t"],
            Self::Operator | Self::Aggregate | Self::WindowFunction => &["cell.g"],
            Self::ExplicitCast | Self::ImplicitCast | Self::AssignmentCast => &["cell.to_c"],
            _ => &["cell.f"],
        }
    }
}

fn function(signature: &str, result: &str, act: &str, returned: &str) -> String {
    format!("CREATE FUNCTION {signature} RETURNS {result} LANGUAGE plpgsql AS $f$ BEGIN {act} RETURN {returned}; END $f$;")
}
