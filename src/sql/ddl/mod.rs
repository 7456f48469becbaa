//! Schema changes: the command tag PostgreSQL answers with, and what the session must know of each.

pub mod ddl_locks;
pub(super) mod in_bodies;
pub(super) mod named_relations;
pub mod own_database;
pub mod redefined;
pub mod resumable;
pub mod role_defaults;
pub mod role_password;
pub mod same_index;
pub(super) mod schema_guard;
pub(super) mod truncate;

pub use schema_guard::key_change;

use pg_raw_parse::list::CastNodeList;
use pg_raw_parse::{Node, nodes};

use super::analysis::Command;
use super::context::Context;
use super::parse::tree;
use super::query::{is_temporary_schema, means_temporary};
use crate::error::PgError;
use crate::shardmap::TableName;
use crate::sql::ddl::named_relations::are_temporary;
use crate::sql::ddl::redefined::Redefined;

/// What a schema change is, as far as its kind says.
pub struct Ddl {
    pub tag: String,
    /// Name of a temporary relation.
    pub creates_temporary: Option<String>,
    /// PostgreSQL refuses it in a transaction block.
    pub outside_transaction: bool,
    pub redefines: Redefined,
    pub takes: Vec<TableName>,
    /// What it changes the databases of a server share.
    pub once_per_server: bool,
    pub gives_rows: bool,
    /// It is a DO block or a call, whose body makes the changes.
    pub by_body: bool,
}

impl Ddl {
    fn new(tag: impl Into<String>) -> Self {
        Self {
            tag: tag.into(),
            creates_temporary: None,
            outside_transaction: false,
            redefines: Redefined::Nothing,
            takes: Vec::new(),
            once_per_server: false,
            gives_rows: false,
            by_body: false,
        }
    }

    /// A DO block, or a call, that changes the schema. `gives_rows`: its answer has a row description.
    pub fn of_call(tag: &str, gives_rows: bool) -> Self {
        Self { gives_rows, by_body: true, ..Self::new(tag) }
    }

    fn temporary(mut self, relation: Option<&nodes::RangeVar>) -> Self {
        self.creates_temporary =
            relation.filter(|relation| is_temporary(relation)).and_then(|relation| relation.relname()).map(str::to_owned);
        self
    }

    fn alone(mut self, outside_transaction: bool) -> Self {
        self.outside_transaction = outside_transaction;
        self
    }

    /// As far as its kind says.
    pub fn into_command(self) -> Command {
        let Self { tag, creates_temporary, outside_transaction, redefines, takes, once_per_server, gives_rows, by_body } = self;
        Command::Ddl {
            tag,
            creates_temporary,
            outside_transaction,
            once_per_server,
            gives_rows,
            by_body,
            renames: None,
            table_as: None,
            numbered: None,
            timed: None,
            altered: None,
            locks: None,
            afterwards: [].into(),
            redefines,
            takes: takes.into(),
        }
    }
}

pub fn is_temporary(relation: &nodes::RangeVar) -> bool {
    relation.relpersistence as u8 == b't' || relation.schemaname().is_some_and(is_temporary_schema)
}

/// What concerns a server as a whole, or would make one shard unlike the others.
pub fn refusal(node: Node<'_>) -> Option<PgError> {
    let what = match node {
        Node::AlterDatabaseStmt(_) | Node::AlterDatabaseRefreshCollStmt(_) => "databases",
        Node::RenameStmt(rename) if rename.rename_type == nodes::ObjectType::OBJECT_DATABASE => "databases",
        Node::AlterDatabaseSetStmt(_) => "settings of databases",
        Node::CreateTableSpaceStmt(_)
        | Node::DropTableSpaceStmt(_)
        | Node::AlterTableSpaceOptionsStmt(_)
        | Node::AlterTableMoveAllStmt(_) => "tablespaces",
        Node::AlterSystemStmt(_) => "settings of servers",
        Node::CreateSubscriptionStmt(_) | Node::AlterSubscriptionStmt(_) | Node::DropSubscriptionStmt(_) => "subscriptions",
        Node::LoadStmt(_) => "libraries",
        _ => return None,
    };
    Some(PgError::unsupported(
        format!("changing {what} through the proxy is not supported"),
        "It concerns one server, and the proxy stands before several.",
        "Connect to the server itself.",
    ))
}

/// What is no relation, in the schema of the session's own: it would be on one connection, where a statement may not run.
pub fn temporary_refusal(node: Node<'_>, context: &Context) -> Option<PgError> {
    fn dotted(names: &CastNodeList<nodes::String>) -> Vec<&str> {
        names.iter().filter_map(nodes::String::sval).collect()
    }
    if inherits_from_lasting(node, context) {
        return Some(PgError::unsupported(
            "a temporary table that inherits from a lasting one is not supported",
            "Its rows would be rows of that table too, on one connection, and statements run on several.",
            "Create it with (LIKE …), and read both.",
        ));
    }
    let names = match node {
        Node::CreateFunctionStmt(s) => tree::names(s.funcname())?,
        Node::DefineStmt(s) => dotted(s.defnames()),
        Node::CreateEnumStmt(s) => dotted(s.type_name()),
        Node::CreateRangeStmt(s) => dotted(s.type_name()),
        Node::CreateDomainStmt(s) => dotted(s.domainname()),
        Node::CompositeTypeStmt(s) => {
            let relation = s.typevar()?;
            relation.schemaname().into_iter().chain(relation.relname()).collect()
        }
        _ => return None,
    };
    let schema = match names.as_slice() {
        [_] => context.search_path.first().map(String::as_str)?,
        [schema, _] => schema,
        _ => return None,
    };
    is_temporary_schema(schema).then(|| {
        PgError::unsupported(
            "temporary functions and types are not supported",
            "They would be on one connection to one shard, and statements run on several.",
            "Create it in another schema, and drop it when it is not needed any more.",
        )
    })
}

/// A temporary table becomes a part of a table that others see too. PostgreSQL itself refuses partitions.
fn inherits_from_lasting(node: Node<'_>, context: &Context) -> bool {
    let is_own = |relation: &nodes::RangeVar| is_own(relation, context);
    match node {
        Node::CreateStmt(create) if create.relation().is_some_and(is_temporary) && create.partbound().is_none() => {
            create.inh_relations().iter().any(|parent| matches!(parent, Node::RangeVar(parent) if !is_own(parent)))
        }
        Node::AlterTableStmt(alter) if alter.relation().is_some_and(is_own) => alter.cmds().iter().any(|command| {
            let Node::AlterTableCmd(command) = command else { return false };
            let is_inherit = command.subtype == nodes::AlterTableType::AT_AddInherit;
            is_inherit && matches!(command.def(), Node::RangeVar(parent) if !is_own(parent))
        }),
        _ => false,
    }
}

fn is_own(relation: &nodes::RangeVar, context: &Context) -> bool {
    means_temporary(context, relation.schemaname(), relation.relname().unwrap_or_default(), &context.search_path)
}

/// VACUUM and its kind, of temporary tables only: on the connection that has them, as a change of them.
pub fn maintenance_of_temporary(node: Node<'_>, context: &Context) -> Option<Ddl> {
    let tag = match node {
        Node::VacuumStmt(_) => "VACUUM",
        Node::ClusterStmt(_) => "CLUSTER",
        Node::ReindexStmt(_) => "REINDEX",
        _ => return None,
    };
    are_temporary(node, context).then(|| Ddl::new(tag))
}

/// `None`: not a schema change.
pub fn classify(node: Node<'_>) -> Option<Ddl> {
    let found = classify_kind(node)?;
    Some(Ddl { once_per_server: concerns_servers(node), ..found })
}

/// Roles and databases. Two databases of one server would wait for each other's change of a role for ever.
fn concerns_servers(node: Node<'_>) -> bool {
    use nodes::ObjectType::OBJECT_ROLE;
    match node {
        Node::CreatedbStmt(_) | Node::DropdbStmt(_) => true,
        Node::CreateRoleStmt(_) | Node::AlterRoleStmt(_) | Node::DropRoleStmt(_) | Node::GrantRoleStmt(_) => true,
        // Each database has its own.
        Node::AlterRoleSetStmt(alter) => alter.database().is_none(),
        Node::RenameStmt(rename) => rename.rename_type == OBJECT_ROLE,
        Node::CommentStmt(comment) => comment.objtype == OBJECT_ROLE,
        Node::SecLabelStmt(label) => label.objtype == OBJECT_ROLE,
        _ => false,
    }
}

fn classify_kind(node: Node<'_>) -> Option<Ddl> {
    let ddl = match node {
        Node::CreateStmt(s) => Ddl::new("CREATE TABLE").temporary(s.relation()),
        Node::CreateTableAsStmt(s) => {
            let is_view = s.objtype == nodes::ObjectType::OBJECT_MATVIEW;
            let tag = if is_view { "CREATE MATERIALIZED VIEW" } else { "CREATE TABLE AS" };
            Ddl::new(tag).temporary(s.into().and_then(|into| into.rel()))
        }
        Node::ViewStmt(s) => Ddl::new("CREATE VIEW").temporary(s.view()),
        Node::CreateSeqStmt(s) => Ddl::new("CREATE SEQUENCE").temporary(s.sequence()),
        Node::IndexStmt(s) => Ddl::new("CREATE INDEX").alone(s.concurrent),
        Node::DropStmt(s) => Ddl::new(format!("DROP {}", object_name(s.remove_type))).alone(s.concurrent),
        Node::AlterTableStmt(s) => Ddl::new(format!("ALTER {}", object_name(s.objtype))).alone(detaches_concurrently(s)),
        Node::RenameStmt(s) => Ddl::new(format!("ALTER {}", renamed_object_name(s))),
        Node::AlterObjectDependsStmt(s) => Ddl::new(format!("ALTER {}", object_name(s.object_type))),
        Node::AlterObjectSchemaStmt(s) => Ddl::new(format!("ALTER {}", object_name(s.object_type))),
        Node::AlterOwnerStmt(s) => Ddl::new(format!("ALTER {}", object_name(s.object_type))),
        Node::AlterEnumStmt(_) => Ddl::new("ALTER TYPE"),
        Node::CreatedbStmt(_) => Ddl::new("CREATE DATABASE").alone(true),
        Node::DropdbStmt(_) => Ddl::new("DROP DATABASE").alone(true),
        _ => return classify_other(node),
    };
    Some(ddl)
}

fn classify_other(node: Node<'_>) -> Option<Ddl> {
    let tag = match node {
        Node::CreateSchemaStmt(_) => "CREATE SCHEMA",
        Node::AlterCollationStmt(_) => "ALTER COLLATION",
        Node::AlterDomainStmt(_) => "ALTER DOMAIN",
        Node::GrantStmt(s) => {
            if s.is_grant {
                "GRANT"
            } else {
                "REVOKE"
            }
        }
        Node::GrantRoleStmt(s) => {
            if s.is_grant {
                "GRANT ROLE"
            } else {
                "REVOKE ROLE"
            }
        }
        Node::AlterDefaultPrivilegesStmt(_) => "ALTER DEFAULT PRIVILEGES",
        Node::CreateExtensionStmt(_) => "CREATE EXTENSION",
        Node::AlterExtensionStmt(_) | Node::AlterExtensionContentsStmt(_) => "ALTER EXTENSION",
        Node::CreateFdwStmt(_) => "CREATE FOREIGN DATA WRAPPER",
        Node::AlterFdwStmt(_) => "ALTER FOREIGN DATA WRAPPER",
        Node::CreateForeignServerStmt(_) => "CREATE SERVER",
        Node::AlterForeignServerStmt(_) => "ALTER SERVER",
        Node::CreateUserMappingStmt(_) => "CREATE USER MAPPING",
        Node::AlterUserMappingStmt(_) => "ALTER USER MAPPING",
        Node::DropUserMappingStmt(_) => "DROP USER MAPPING",
        Node::ImportForeignSchemaStmt(_) => "IMPORT FOREIGN SCHEMA",
        Node::CreatePolicyStmt(_) => "CREATE POLICY",
        Node::AlterPolicyStmt(_) => "ALTER POLICY",
        Node::CreateAmStmt(_) => "CREATE ACCESS METHOD",
        Node::CreateTrigStmt(_) => "CREATE TRIGGER",
        Node::CreateEventTrigStmt(_) => "CREATE EVENT TRIGGER",
        Node::AlterEventTrigStmt(_) => "ALTER EVENT TRIGGER",
        Node::CreatePLangStmt(_) => "CREATE LANGUAGE",
        Node::CreateRoleStmt(_) => "CREATE ROLE",
        Node::AlterRoleStmt(_) | Node::AlterRoleSetStmt(_) => "ALTER ROLE",
        Node::DropRoleStmt(_) => "DROP ROLE",
        Node::AlterSeqStmt(_) => "ALTER SEQUENCE",
        Node::DefineStmt(s) => define_tag(s.kind),
        Node::CreateDomainStmt(_) => "CREATE DOMAIN",
        Node::CreateOpClassStmt(_) => "CREATE OPERATOR CLASS",
        Node::CreateOpFamilyStmt(_) => "CREATE OPERATOR FAMILY",
        Node::AlterOpFamilyStmt(_) => "ALTER OPERATOR FAMILY",
        Node::CommentStmt(_) => "COMMENT",
        Node::SecLabelStmt(_) => "SECURITY LABEL",
        Node::CreateStatsStmt(_) => "CREATE STATISTICS",
        Node::AlterStatsStmt(_) => "ALTER STATISTICS",
        Node::CreateFunctionStmt(s) => {
            if s.is_procedure {
                "CREATE PROCEDURE"
            } else {
                "CREATE FUNCTION"
            }
        }
        Node::AlterFunctionStmt(s) => match s.objtype {
            nodes::ObjectType::OBJECT_PROCEDURE => "ALTER PROCEDURE",
            nodes::ObjectType::OBJECT_ROUTINE => "ALTER ROUTINE",
            _ => "ALTER FUNCTION",
        },
        Node::AlterOperatorStmt(_) => "ALTER OPERATOR",
        Node::AlterTypeStmt(_) => "ALTER TYPE",
        Node::RuleStmt(_) => "CREATE RULE",
        Node::CompositeTypeStmt(_) | Node::CreateEnumStmt(_) | Node::CreateRangeStmt(_) => "CREATE TYPE",
        Node::CreateConversionStmt(_) => "CREATE CONVERSION",
        Node::CreateCastStmt(_) => "CREATE CAST",
        Node::CreateTransformStmt(_) => "CREATE TRANSFORM",
        Node::DropOwnedStmt(_) => "DROP OWNED",
        Node::ReassignOwnedStmt(_) => "REASSIGN OWNED",
        Node::AlterTSDictionaryStmt(_) => "ALTER TEXT SEARCH DICTIONARY",
        Node::AlterTSConfigurationStmt(_) => "ALTER TEXT SEARCH CONFIGURATION",
        Node::CreatePublicationStmt(_) => "CREATE PUBLICATION",
        Node::AlterPublicationStmt(_) => "ALTER PUBLICATION",
        _ => return None,
    };
    Some(Ddl::new(tag))
}

/// `ALTER TABLE … DETACH PARTITION … CONCURRENTLY`.
fn detaches_concurrently(statement: &nodes::AlterTableStmt) -> bool {
    statement.cmds().iter().any(|command| match command {
        Node::AlterTableCmd(command) => matches!(command.def(), Node::PartitionCmd(partition) if partition.concurrent),
        _ => false,
    })
}

/// Renaming a column or a constraint alters the relation or type it belongs to.
fn renamed_object_name(statement: &nodes::RenameStmt) -> &'static str {
    use nodes::ObjectType;
    match statement.rename_type {
        ObjectType::OBJECT_COLUMN => object_name(statement.relation_type),
        ObjectType::OBJECT_ATTRIBUTE => "TYPE",
        ObjectType::OBJECT_TABCONSTRAINT => "TABLE",
        ObjectType::OBJECT_DOMCONSTRAINT => "DOMAIN",
        other => object_name(other),
    }
}

fn define_tag(kind: nodes::ObjectType::Type) -> &'static str {
    use nodes::ObjectType;
    match kind {
        ObjectType::OBJECT_AGGREGATE => "CREATE AGGREGATE",
        ObjectType::OBJECT_OPERATOR => "CREATE OPERATOR",
        ObjectType::OBJECT_TYPE => "CREATE TYPE",
        ObjectType::OBJECT_TSPARSER => "CREATE TEXT SEARCH PARSER",
        ObjectType::OBJECT_TSDICTIONARY => "CREATE TEXT SEARCH DICTIONARY",
        ObjectType::OBJECT_TSTEMPLATE => "CREATE TEXT SEARCH TEMPLATE",
        ObjectType::OBJECT_TSCONFIGURATION => "CREATE TEXT SEARCH CONFIGURATION",
        ObjectType::OBJECT_COLLATION => "CREATE COLLATION",
        ObjectType::OBJECT_ACCESS_METHOD => "CREATE ACCESS METHOD",
        _ => "CREATE",
    }
}

/// An object kind in the words of command tags.
fn object_name(kind: nodes::ObjectType::Type) -> &'static str {
    use nodes::ObjectType;
    match kind {
        ObjectType::OBJECT_ACCESS_METHOD => "ACCESS METHOD",
        ObjectType::OBJECT_AGGREGATE => "AGGREGATE",
        ObjectType::OBJECT_CAST => "CAST",
        ObjectType::OBJECT_COLLATION => "COLLATION",
        ObjectType::OBJECT_CONVERSION => "CONVERSION",
        ObjectType::OBJECT_DATABASE => "DATABASE",
        ObjectType::OBJECT_DOMAIN => "DOMAIN",
        ObjectType::OBJECT_EVENT_TRIGGER => "EVENT TRIGGER",
        ObjectType::OBJECT_EXTENSION => "EXTENSION",
        ObjectType::OBJECT_FDW => "FOREIGN DATA WRAPPER",
        ObjectType::OBJECT_FOREIGN_SERVER => "SERVER",
        ObjectType::OBJECT_FOREIGN_TABLE => "FOREIGN TABLE",
        ObjectType::OBJECT_FUNCTION => "FUNCTION",
        ObjectType::OBJECT_INDEX => "INDEX",
        ObjectType::OBJECT_LANGUAGE => "LANGUAGE",
        ObjectType::OBJECT_LARGEOBJECT => "LARGE OBJECT",
        ObjectType::OBJECT_MATVIEW => "MATERIALIZED VIEW",
        ObjectType::OBJECT_OPCLASS => "OPERATOR CLASS",
        ObjectType::OBJECT_OPERATOR => "OPERATOR",
        ObjectType::OBJECT_OPFAMILY => "OPERATOR FAMILY",
        ObjectType::OBJECT_POLICY => "POLICY",
        ObjectType::OBJECT_PROCEDURE => "PROCEDURE",
        ObjectType::OBJECT_PUBLICATION => "PUBLICATION",
        ObjectType::OBJECT_ROLE => "ROLE",
        ObjectType::OBJECT_ROUTINE => "ROUTINE",
        ObjectType::OBJECT_RULE => "RULE",
        ObjectType::OBJECT_SCHEMA => "SCHEMA",
        ObjectType::OBJECT_SEQUENCE => "SEQUENCE",
        ObjectType::OBJECT_STATISTIC_EXT => "STATISTICS",
        ObjectType::OBJECT_TRANSFORM => "TRANSFORM",
        ObjectType::OBJECT_TRIGGER => "TRIGGER",
        ObjectType::OBJECT_TSCONFIGURATION => "TEXT SEARCH CONFIGURATION",
        ObjectType::OBJECT_TSDICTIONARY => "TEXT SEARCH DICTIONARY",
        ObjectType::OBJECT_TSPARSER => "TEXT SEARCH PARSER",
        ObjectType::OBJECT_TSTEMPLATE => "TEXT SEARCH TEMPLATE",
        ObjectType::OBJECT_TYPE => "TYPE",
        ObjectType::OBJECT_VIEW => "VIEW",
        _ => "TABLE",
    }
}
