//! Schema changes that would make the shard map or a constraint wrong, refused before they reach a shard.
//!
//! The map knows a distributed table by its name and its key by the columns' names and types; a constraint is enforced by each
//! shard for itself. So a key column stays as it is, a unique or exclusion constraint holds the whole key, a foreign key stays
//! on one shard, and a table neither joins nor leaves a distributed family. The rules are those of `distribute_table`. What is
//! only a name (an unknown table) is PostgreSQL's to refuse.

mod altered;
mod evaluated;
mod filled;
mod numbered;
mod numbers;
mod own_calls;
mod own_schema;
mod parts;
mod referring;
mod replaced;
mod stops;
mod triggers;

use pg_raw_parse::list::NodeList;
use pg_raw_parse::{Node, nodes};

use crate::catalog::{Relation, quoted_identifier};
use crate::error::PgError;
use crate::shard_key::KeyColumn;
use crate::shardmap::{GroupId, Table, TableKind};
use crate::sql::analysis::DistributedRename;
use crate::sql::context::Context;
use crate::sql::parse::tree;
use crate::sql::query::{Resolved, resolve};
use crate::sql::utility::shardgate_call;

pub use altered::{AlteredSequences, altered_sequences};
pub use filled::{TimedColumns, timed_columns};
pub use numbered::{NumberedColumns, numbered_columns};
pub use own_calls::guard_block;

/// Refuses what would leave the shard map or the shards wrong. `text`: of the statement alone.
pub fn guard(node: Node<'_>, text: &str, context: &Context) -> Result<(), PgError> {
    numbers::guard(node, context)?;
    own_schema::guard(node)?;
    own_calls::guard(node, text)?;
    evaluated::guard(node, text, context)?;
    match node {
        Node::AlterTableStmt(alter) => {
            filled::guard(node, alter, text, context)?;
            alter_table(alter, text, context)
        }
        Node::IndexStmt(index) => create_index(index, context),
        Node::CreateStmt(create) => create_table(create, context),
        Node::RenameStmt(rename) => renamed(rename, context),
        Node::CreateTrigStmt(s) => {
            own_schema::relation(s.relation())?;
            triggers::guard(s, text, context)
        }
        Node::AlterObjectSchemaStmt(s) => moved(s, context),
        Node::AlterSeqStmt(s) => own_schema::relation(s.sequence()),
        Node::CreatePolicyStmt(s) => {
            own_schema::relation(s.table())?;
            parts::guard_policy(s, text, context)
        }
        Node::AlterPolicyStmt(s) => parts::guard_altered_policy(s, text, context),
        Node::CreateFunctionStmt(s) => replaced::guard(s, context),
        Node::RuleStmt(s) => {
            own_schema::relation(s.relation())?;
            triggers::guard_rule(s, context)
        }
        Node::ViewStmt(s) => own_schema::relation(s.view()),
        // Its other elements are about what it makes itself.
        Node::CreateSchemaStmt(s) => s.schema_elts().iter().try_for_each(|element| match element {
            Node::CreateStmt(_) => guard(element, text, context),
            _ => Ok(()),
        }),
        _ => Ok(()),
    }
}

/// A distributed table, or a column of its key, gets another name. The map does not know partitions by name: they are placed by their
/// parent's.
pub fn distributed_rename(node: Node<'_>, context: &Context) -> Option<DistributedRename> {
    use nodes::ObjectType;
    let declared = |relation: Option<&nodes::RangeVar>| {
        let table = resolve(context, relation?, &context.search_path).table()?;
        context.map.table(&table.schema, &table.name)
    };
    let full_name = |table: &Table| (table.schema.clone(), table.name.clone());
    match node {
        // PostgreSQL renames a table by ALTER INDEX, too.
        Node::RenameStmt(s) if matches!(s.rename_type, ObjectType::OBJECT_TABLE | ObjectType::OBJECT_INDEX) => {
            let table = declared(s.relation())?;
            let to = (table.schema.clone(), s.newname()?.to_owned());
            Some(DistributedRename::Table { from: full_name(table), to })
        }
        Node::RenameStmt(s) if s.rename_type == ObjectType::OBJECT_COLUMN => {
            let table = declared(s.relation())?;
            let column = s.subname()?;
            let place = table.key_names().iter().position(|names| names.contains(&column))?;
            Some(DistributedRename::KeyColumn { table: full_name(table), place, to: s.newname()?.to_owned() })
        }
        Node::AlterObjectSchemaStmt(s) if s.object_type == ObjectType::OBJECT_TABLE => {
            let relation = resolve(context, s.relation()?, &context.search_path).table()?;
            let (schema, name) = (relation.schema.clone(), relation.name.clone());
            if s.newschema() == Some(schema.as_str()) {
                // To PostgreSQL it is no change.
                return None;
            }
            let is_numbered = || relation.columns.iter().any(|column| column.cluster_sequence().is_some());
            match context.map.table(&schema, &name) {
                Some(_) => Some(DistributedRename::Table { to: (s.newschema()?.to_owned(), name.clone()), from: (schema, name) }),
                None => is_numbered().then_some(DistributedRename::Numbered { table: (schema, name) }),
            }
        }
        _ => None,
    }
}

/// Where a table's rows are.
enum Place<'c> {
    Sharded {
        table: &'c Table,
        group: GroupId,
        key: &'c [KeyColumn],
        relation: &'c Relation,
    },
    Reference,
    Home,
    /// Not a table that is known.
    Unknown,
}

impl<'c> Place<'c> {
    fn of(name: &nodes::RangeVar, context: &'c Context) -> Self {
        match resolve(context, name, &context.search_path) {
            Resolved::Sharded { table, relation, .. } => Self::sharded(table, relation),
            Resolved::Reference(_) => Place::Reference,
            Resolved::Home(Some(_)) => Place::Home,
            Resolved::Home(None)
            | Resolved::View(_)
            | Resolved::System
            | Resolved::Map(_)
            | Resolved::Proxy(_)
            | Resolved::Mixed(_) => Place::Unknown,
        }
    }

    fn sharded(table: &'c Table, relation: &'c Relation) -> Self {
        match &table.kind {
            TableKind::Sharded { group, key } => Place::Sharded { table, group: *group, key, relation },
            TableKind::Reference => Place::Reference,
        }
    }

    fn is_distributed(&self) -> bool {
        match self {
            Place::Sharded { .. } | Place::Reference => true,
            Place::Home | Place::Unknown => false,
        }
    }
}

fn alter_table(alter: &nodes::AlterTableStmt, text: &str, context: &Context) -> Result<(), PgError> {
    own_schema::relation(alter.relation())?;
    let Some(name) = alter.relation() else {
        return Ok(());
    };
    let place = Place::of(name, context);
    for command in alter.cmds() {
        if let Node::AlterTableCmd(command) = command {
            alter_command(command, name, &place, context)?;
            alter_part(command, name, text, context)?;
        }
    }
    Ok(())
}

/// What a definition calls, and what that touches.
fn alter_part(command: &nodes::AlterTableCmd, table: &nodes::RangeVar, text: &str, context: &Context) -> Result<(), PgError> {
    use nodes::AlterTableType as Type;
    match (command.subtype, command.def()) {
        (Type::AT_AddConstraint, Node::Constraint(check)) if check.contype == nodes::ConstrType::CONSTR_CHECK => {
            parts::guard_check(check, table, text, context)
        }
        (Type::AT_AddColumn, Node::ColumnDef(column)) => column.constraints().iter().try_for_each(|constraint| match constraint {
            Node::Constraint(check) if check.contype == nodes::ConstrType::CONSTR_CHECK => {
                parts::guard_check(check, table, text, context)
            }
            _ => Ok(()),
        }),
        (Type::AT_ColumnDefault, default) => {
            parts::guard_default(command.name().unwrap_or_default(), default, table, text, context)
        }
        (_, _) => Ok(()),
    }
}

fn alter_command(
    command: &nodes::AlterTableCmd,
    table: &nodes::RangeVar,
    place: &Place<'_>,
    context: &Context,
) -> Result<(), PgError> {
    use nodes::AlterTableType as Type;
    match command.subtype {
        Type::AT_DropColumn | Type::AT_AlterColumnType => match place.is_key_column(command.name()) {
            true => Err(key_change(command.name().unwrap_or_default())),
            false => Ok(()),
        },
        Type::AT_AddConstraint => match command.def() {
            Node::Constraint(constraint) => check_constraint(constraint, None, table, place, context),
            _ => Ok(()),
        },
        Type::AT_AddColumn => match command.def() {
            Node::ColumnDef(column) => {
                check_not_key_name(place, column.colname())?;
                check_column(column, table, place, context)
            }
            _ => Ok(()),
        },
        Type::AT_AttachPartition | Type::AT_DetachPartition | Type::AT_DetachPartitionFinalize => {
            let other = match command.def() {
                Node::PartitionCmd(partition) => partition.name(),
                _ => None,
            };
            check_family(place, other, context)
        }
        Type::AT_AddInherit | Type::AT_DropInherit => {
            let other = match command.def() {
                Node::RangeVar(parent) => Some(parent),
                _ => None,
            };
            check_family(place, other, context)
        }
        _ => Ok(()),
    }
}

/// A table that joins or leaves a distributed one brings rows to where they do not belong, or takes them along.
fn check_family(place: &Place<'_>, other: Option<&nodes::RangeVar>, context: &Context) -> Result<(), PgError> {
    let is_distributed = place.is_distributed() || other.is_some_and(|other| Place::of(other, context).is_distributed());
    if !is_distributed {
        return Ok(());
    }
    Err(PgError::unsupported(
        "attaching or detaching a partition of a distributed table is not supported",
        "Its rows would be on other shards than the shard map says.",
        "Make partitions with CREATE TABLE ... PARTITION OF, and drop them with DROP TABLE.",
    ))
}

fn create_index(index: &nodes::IndexStmt, context: &Context) -> Result<(), PgError> {
    own_schema::relation(index.relation())?;
    let (true, Some(table)) = (index.unique, index.relation()) else {
        return Ok(());
    };
    let is_plain = |element: &&nodes::IndexElem| element.collation().is_empty() && element.opclass().is_empty();
    let columns: Vec<&str> = index.index_params().iter().filter(is_plain).filter_map(|element| element.name()).collect();
    require_key(&Place::of(table, context), &columns, "unique index")
}

fn create_table(create: &nodes::CreateStmt, context: &Context) -> Result<(), PgError> {
    own_schema::relation(create.relation())?;
    let Some(table) = create.relation() else {
        return Ok(());
    };
    // A partition or child of a sharded table is sharded like it; any other new table lives on the home shard.
    let parent = create.inh_relations().iter().find_map(|parent| match parent {
        Node::RangeVar(parent) => Some(Place::of(parent, context)).filter(Place::is_distributed),
        _ => None,
    });
    let place = parent.unwrap_or(Place::Home);
    for element in create.table_elts() {
        match element {
            Node::Constraint(constraint) => check_constraint(constraint, None, table, &place, context)?,
            Node::ColumnDef(column) => check_column(column, table, &place, context)?,
            Node::TableLikeClause(like) => numbered::guard_like(like, context)?,
            _ => {}
        }
    }
    create.constraints().iter().try_for_each(|constraint| check_constraint(constraint, None, table, &place, context))
}

fn renamed(rename: &nodes::RenameStmt, context: &Context) -> Result<(), PgError> {
    own_schema::relation(rename.relation())?;
    match (rename.rename_type, rename.relation()) {
        (nodes::ObjectType::OBJECT_SCHEMA, _) => {
            let mut known = context.map.tables.keys().chain(context.map.sequences.keys());
            match known.any(|(schema, _)| Some(schema.as_str()) == rename.subname()) {
                true => Err(PgError::unsupported(
                    format!("schema \"{}\" cannot be renamed", rename.subname().unwrap_or_default()),
                    "It has sharded or reference tables, or sequences of the whole cluster, and the shard map knows these by their schema.",
                    "Create the other schema, and move the tables there one by one: ALTER TABLE ... SET SCHEMA.",
                )),
                false => Ok(()),
            }
        }
        (nodes::ObjectType::OBJECT_COLUMN, Some(name)) => rename_column(rename, &Place::of(name, context)),
        (_, _) => Ok(()),
    }
}

fn rename_column(rename: &nodes::RenameStmt, place: &Place<'_>) -> Result<(), PgError> {
    let place_in_key = |name: Option<&str>| match place {
        Place::Sharded { table, .. } => table.key_names().iter().position(|names| name.is_some_and(|name| names.contains(&name))),
        _ => None,
    };
    match (place_in_key(rename.subname()), place_in_key(rename.newname())) {
        // Back, or to one of its own names again.
        (Some(from), Some(to)) if from == to => Ok(()),
        // Another column of the key has been called that: which of the two the name means would depend on who reads it.
        _ => check_not_key_name(place, rename.newname()),
    }
}

/// The schema of a table, or of something else.
fn moved(moved: &nodes::AlterObjectSchemaStmt, context: &Context) -> Result<(), PgError> {
    own_schema::relation(moved.relation())?;
    let table = moved.relation().and_then(|name| resolve(context, name, &context.search_path).table());
    let is_declared = table.is_some_and(|table| context.map.table(&table.schema, &table.name).is_some());
    let schema = moved.newschema().unwrap_or_default();
    let is_systems = schema == "information_schema" || schema.starts_with("pg_") || schema == shardgate_call::SCHEMA;
    match table {
        Some(table) if is_declared && is_systems => Err(PgError::unsupported(
            format!("table \"{}\" cannot be moved to schema \"{schema}\"", table.name),
            "Sharded and reference tables are looked for in the schemas of users.",
            "Use another schema.",
        )),
        _ => Ok(()),
    }
}

impl Place<'_> {
    /// By any name that the column may have.
    fn is_key_column(&self, name: Option<&str>) -> bool {
        let Place::Sharded { table, key, .. } = self else { return false };
        let is_one = |name: &str| key.iter().any(|key| key.column == name) || table.key_names().concat().contains(&name);
        name.is_some_and(is_one)
    }
}

/// In the transaction that renames a column of the key its names stand for it.
fn check_not_key_name(place: &Place<'_>, name: Option<&str>) -> Result<(), PgError> {
    match place {
        Place::Sharded { table, .. } if table.renamed.is_some() && place.is_key_column(name) => Err(PgError::unsupported(
            format!("the name of column \"{}\" cannot be used anew in the transaction that renames it", name.unwrap_or_default()),
            "It is a column of the shard key, by which the shard map places the rows until that is committed.",
            "Commit first, then give the name to another column.",
        )),
        _ => Ok(()),
    }
}

pub fn key_change(column: &str) -> PgError {
    PgError::unsupported(
        format!("cannot drop or retype shard key column \"{column}\""),
        "The shard map places the rows by this column.",
        "Make a new table with the column as it should be, distribute it, and copy the rows.",
    )
}

fn check_column(column: &nodes::ColumnDef, table: &nodes::RangeVar, place: &Place<'_>, context: &Context) -> Result<(), PgError> {
    column.constraints().iter().try_for_each(|constraint| match constraint {
        Node::Constraint(constraint) => check_constraint(constraint, Some(column), table, place, context),
        _ => Ok(()),
    })
}

/// `at`: the column that the constraint stands at, when it is not the table's.
fn check_constraint(
    constraint: &nodes::Constraint,
    at: Option<&nodes::ColumnDef>,
    table: &nodes::RangeVar,
    place: &Place<'_>,
    context: &Context,
) -> Result<(), PgError> {
    use nodes::ConstrType as Type;
    let column = at.and_then(|column| column.colname());
    match constraint.contype {
        // An index that is there was looked at when it was made.
        Type::CONSTR_PRIMARY | Type::CONSTR_UNIQUE if constraint.indexname().is_some() => Ok(()),
        Type::CONSTR_PRIMARY => require_key(place, &columns(constraint.keys(), column), "primary key"),
        Type::CONSTR_UNIQUE => require_key(place, &columns(constraint.keys(), column), "unique constraint"),
        Type::CONSTR_EXCLUSION => require_key(place, &equal_columns(constraint.exclusions()), "exclusion constraint"),
        Type::CONSTR_FOREIGN => {
            check_foreign_key(constraint, at, table, place, context)?;
            check_set_columns(constraint, column, place)
        }
        _ => Ok(()),
    }
}

fn columns<'n>(listed: &'n NodeList, column: Option<&'n str>) -> Vec<&'n str> {
    if listed.is_empty() { column.into_iter().collect() } else { listed.iter().filter_map(Node::as_str).collect() }
}

/// Columns of an exclusion constraint that are compared by PostgreSQL's own equality.
fn equal_columns(exclusions: &NodeList) -> Vec<&str> {
    exclusions
        .iter()
        .filter_map(|exclusion| {
            let exclusion = exclusion.as_node_list()?;
            let (Some(Node::IndexElem(element)), Some(operator)) = (exclusion.get(0), exclusion.get(1)) else {
                return None;
            };
            let operator = operator.as_node_list().and_then(tree::names)?;
            let is_equality = matches!(operator.as_slice(), ["="] | ["pg_catalog", "="]);
            let is_plain = element.collation().is_empty() && element.opclass().is_empty();
            element.name().filter(|_| is_equality && is_plain)
        })
        .collect()
}

/// Each shard knows its own rows only: two that are on different shards are compared by nobody.
fn require_key(place: &Place<'_>, columns: &[&str], what: &str) -> Result<(), PgError> {
    let Place::Sharded { key, relation, .. } = place else {
        return Ok(());
    };
    match key.iter().find(|key| !columns.contains(&key.column.as_str())) {
        None => Ok(()),
        Some(missing) => Err(PgError::unsupported(
            format!("a {what} of sharded table \"{}\" must contain its shard key", relation.name),
            format!("Column \"{}\" is not among its columns, and each shard can compare only the rows it has.", missing.column),
            "Add the shard key's columns to it, or use an index that is not unique.",
        )),
    }
}

fn check_foreign_key(
    constraint: &nodes::Constraint,
    at: Option<&nodes::ColumnDef>,
    table: &nodes::RangeVar,
    place: &Place<'_>,
    context: &Context,
) -> Result<(), PgError> {
    let column = at.and_then(|column| column.colname());
    let Some(target) = constraint.pktable() else {
        return Ok(());
    };
    let is_itself = target.relname() == table.relname() && target.schemaname() == table.schemaname();
    // A table that is not known is one that this transaction has made, or none.
    let made = |name: &nodes::RangeVar, place: &Place<'_>| {
        matches!(place, Place::Unknown) && resolve(context, name, &context.search_path).table().is_none()
    };
    let to = &Place::of(target, context);
    let reason = match (place, to) {
        (Place::Unknown, Place::Sharded { .. }) if made(table, place) => "The table's own rows are on the home shard only.",
        (Place::Sharded { .. } | Place::Reference, Place::Unknown) if made(target, to) && !is_itself => {
            "That table does not exist before this transaction, and where its rows will be is not known."
        }
        (Place::Unknown, _) | (_, Place::Unknown | Place::Reference) | (Place::Home, Place::Home) => return Ok(()),
        (Place::Reference, _) if is_itself => return Ok(()),
        (Place::Reference, Place::Sharded { .. } | Place::Home) => {
            "A reference table is on every shard, and the rows it would refer to are not."
        }
        (Place::Sharded { .. }, Place::Home) => "The rows that it would refer to are on the home shard only.",
        (Place::Home, Place::Sharded { .. }) => "The table's own rows are on the home shard only.",
        (Place::Sharded { group, key, .. }, Place::Sharded { group: other_group, key: other_key, relation, .. }) => {
            if group != other_group {
                "The two tables are not colocated."
            } else if is_on_key(key, other_key, &columns(constraint.fk_attrs(), column), &referred(constraint, relation)) {
                return Ok(());
            } else {
                "It does not contain the whole shard key of both tables."
            }
        }
    };
    Err(PgError::unsupported(
        format!("a foreign key to table \"{}\" is not supported here", target.relname().unwrap_or_default()),
        reason,
        match (place, to) {
            (Place::Unknown | Place::Home, Place::Sharded { key, relation, .. }) => {
                referring::remedy(constraint, at, table, (key, relation)).unwrap_or_else(|| TOGETHER.to_owned())
            }
            _ => TOGETHER.to_owned(),
        },
    ))
}

const TOGETHER: &str = "Distribute both tables by the same key with colocate_with and add the foreign key then, on the whole key; or make \
                        the other table a reference table.";

/// Deleting what is referred to must not take the key from rows, which only their shard would know of.
fn check_set_columns(constraint: &nodes::Constraint, column: Option<&str>, place: &Place<'_>) -> Result<(), PgError> {
    let Place::Sharded { key, relation, .. } = place else { return Ok(()) };
    let action = match u8::try_from(constraint.fk_del_action) {
        Ok(b'n') => "SET NULL",
        Ok(b'd') => "SET DEFAULT",
        Ok(_) | Err(_) => return Ok(()),
    };
    let own = columns(constraint.fk_attrs(), column);
    let named: Vec<&str> = constraint.fk_del_set_cols().iter().filter_map(Node::as_str).collect();
    let set = if named.is_empty() { own.clone() } else { named };
    // A column that cannot be NULL refuses to be set so, as in PostgreSQL.
    let is_set = |column: &&KeyColumn| {
        let is_not_null = relation.column(&column.column).is_some_and(|column| column.is_not_null);
        set.contains(&column.column.as_str()) && (action == "SET DEFAULT" || !is_not_null)
    };
    let Some(changed) = key.iter().find(is_set) else { return Ok(()) };
    let is_key = |column: &&str| key.iter().any(|key| key.column == **column);
    let rest: Vec<String> = set.iter().filter(|column| !is_key(column)).map(|column| quoted_identifier(column)).collect();
    Err(PgError::unsupported(
        format!("ON DELETE {action} of this foreign key would change shard key column \"{}\"", changed.column),
        format!("Rows of table \"{}\" are found by it.", relation.name),
        match rest.as_slice() {
            [] => "Use another action, ON DELETE CASCADE for example.".to_owned(),
            rest => format!("Name the columns that it is to change: ON DELETE {action} ({}).", rest.join(", ")),
        },
    ))
}

/// The columns that are referred to: named, or those of the primary key.
fn referred<'n>(constraint: &'n nodes::Constraint, relation: &'n Relation) -> Vec<&'n str> {
    let named: Vec<&str> = constraint.pk_attrs().iter().filter_map(Node::as_str).collect();
    if !named.is_empty() {
        return named;
    }
    let primary = relation.uniques.iter().find(|unique| unique.is_primary);
    primary.map(|primary| primary.columns.iter().filter_map(|column| column.as_deref()).collect()).unwrap_or_default()
}

/// The foreign key pairs each key column of one table with that of the other.
fn is_on_key(key: &[KeyColumn], other_key: &[KeyColumn], columns: &[&str], referred: &[&str]) -> bool {
    let is_pair = |(from, to): (&KeyColumn, &KeyColumn)| {
        from.function == to.function
            && columns.iter().zip(referred).any(|(column, other)| *column == from.column && *other == to.column)
    };
    key.len() == other_key.len() && columns.len() == referred.len() && key.iter().zip(other_key).all(is_pair)
}

#[cfg(test)]
mod tests;
