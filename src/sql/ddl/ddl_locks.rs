//! The locks that a schema change takes on distributed tables, as far as its text says.
//!
//! The session takes them on all shards before the change does anything on one: a change that has its lock on one shard and waits on
//! another would hold up everybody on the first. What is not named here is waited for shard by shard.

use pg_raw_parse::{Node, nodes};

use crate::catalog::{Relation, quoted_name};
use crate::sql::context::Context;
use crate::sql::parse::tree;
use crate::sql::query::{Resolved, resolve, resolve_name};

/// Tables of one statement, and the mode that PostgreSQL locks them in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableLocks {
    /// As LOCK TABLE takes them.
    tables: Vec<String>,
    mode: Mode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    /// Below SHARE: nobody who reads or writes rows waits for it.
    Weak,
    Share,
    ShareRowExclusive,
    AccessExclusive,
}

impl TableLocks {
    pub fn statement(&self) -> String {
        let mode = match self.mode {
            Mode::Weak => "SHARE UPDATE EXCLUSIVE",
            Mode::Share => "SHARE",
            Mode::ShareRowExclusive => "SHARE ROW EXCLUSIVE",
            Mode::AccessExclusive => "ACCESS EXCLUSIVE",
        };
        format!("LOCK TABLE {} IN {mode} MODE", self.tables.join(", "))
    }

    /// A new foreign key locks the table that it refers to as well.
    fn with_referenced(mut self, alter: &nodes::AlterTableStmt, context: &Context) -> Self {
        if self.mode != Mode::ShareRowExclusive {
            return self;
        }
        for command in alter.cmds() {
            if let Node::AlterTableCmd(command) = command
                && let Node::Constraint(constraint) = command.def()
                && let Some(referenced) = constraint.pktable()
                && let Some(relation) = distributed(resolve(context, referenced, &context.search_path))
            {
                self.tables.push(name_of(relation));
            }
        }
        self
    }
}

/// `None`: there is nothing that others would wait for on the shards.
pub fn table_locks(node: Node<'_>, context: &Context) -> Option<TableLocks> {
    let one = |relation: Option<&nodes::RangeVar>, mode| {
        let relation = relation?;
        let only = if relation.inh { "" } else { "ONLY " };
        let name = name_of(distributed(resolve(context, relation, &context.search_path))?);
        Some(TableLocks { tables: vec![format!("{only}{name}")], mode })
    };
    // Not what inherits from it.
    let alone = |relation: Option<&nodes::RangeVar>| {
        let name = name_of(distributed(resolve(context, relation?, &context.search_path))?);
        Some(TableLocks { tables: vec![format!("ONLY {name}")], mode: Mode::AccessExclusive })
    };
    let locks = match node {
        Node::AlterTableStmt(alter) => one(alter.relation(), mode_of(alter)).map(|locks| locks.with_referenced(alter, context)),
        Node::IndexStmt(index) if !index.concurrent => one(index.relation(), Mode::Share),
        Node::CreateTrigStmt(trigger) => one(trigger.relation(), Mode::ShareRowExclusive),
        Node::RenameStmt(rename) => match rename.rename_type {
            nodes::ObjectType::OBJECT_COLUMN => one(rename.relation(), Mode::AccessExclusive),
            nodes::ObjectType::OBJECT_TABLE | nodes::ObjectType::OBJECT_INDEX => alone(rename.relation()),
            _ => None,
        },
        Node::AlterObjectSchemaStmt(moved) => alone(moved.relation()),
        Node::CreateStmt(create) if create.partbound().is_some() => parent_of(create, context),
        Node::DropStmt(drop) if drop.remove_type == nodes::ObjectType::OBJECT_TABLE => dropped(drop, context),
        _ => None,
    };
    locks.filter(|locks| locks.mode > Mode::Weak)
}

fn dropped(drop: &nodes::DropStmt, context: &Context) -> Option<TableLocks> {
    let names = drop.objects().iter().filter_map(|object| object.as_node_list().and_then(tree::names));
    let relations = names.filter_map(|name| {
        let (schema, table) = match name.as_slice() {
            [table] => (None, *table),
            [schema, table] => (Some(*schema), *table),
            _ => return None,
        };
        distributed(resolve_name(context, schema, table, &context.search_path, true))
    });
    // Of a partition its table first, as PostgreSQL does, and as those lock them who read the table.
    let tables: Vec<String> = relations
        .flat_map(|relation| {
            let parents = relation.parents.iter().filter_map(|parent| context.catalog.relations.get(parent));
            parents.map(|parent| format!("ONLY {}", name_of(parent))).chain([name_of(relation)])
        })
        .collect();
    (!tables.is_empty()).then_some(TableLocks { tables, mode: Mode::AccessExclusive })
}

/// A new partition locks the table that it belongs to.
fn parent_of(create: &nodes::CreateStmt, context: &Context) -> Option<TableLocks> {
    let parent = create.inh_relations().iter().find_map(|parent| match parent {
        Node::RangeVar(parent) => distributed(resolve(context, parent, &context.search_path)),
        _ => None,
    })?;
    Some(TableLocks { tables: vec![format!("ONLY {}", name_of(parent))], mode: Mode::AccessExclusive })
}

fn distributed(found: Resolved<'_>) -> Option<&Relation> {
    match found {
        Resolved::Sharded { relation, .. } | Resolved::Reference(relation) => Some(relation),
        _ => None,
    }
}

fn name_of(relation: &Relation) -> String {
    quoted_name(&relation.schema, &relation.name)
}

/// The strongest lock of its parts, as PostgreSQL's `AlterTableGetLockLevel` has it.
fn mode_of(alter: &nodes::AlterTableStmt) -> Mode {
    use nodes::AlterTableType as Kind;
    let modes = alter.cmds().iter().map(|command| match command {
        Node::AlterTableCmd(command) => match command.subtype {
            Kind::AT_ValidateConstraint
            | Kind::AT_SetStatistics
            | Kind::AT_SetOptions
            | Kind::AT_ResetOptions
            | Kind::AT_SetRelOptions
            | Kind::AT_ResetRelOptions
            | Kind::AT_ReplaceRelOptions
            | Kind::AT_ClusterOn
            | Kind::AT_DropCluster
            | Kind::AT_AttachPartition
            | Kind::AT_DetachPartition
            | Kind::AT_DetachPartitionFinalize => Mode::Weak,
            Kind::AT_EnableTrig
            | Kind::AT_EnableAlwaysTrig
            | Kind::AT_EnableReplicaTrig
            | Kind::AT_EnableTrigAll
            | Kind::AT_EnableTrigUser
            | Kind::AT_DisableTrig
            | Kind::AT_DisableTrigAll
            | Kind::AT_DisableTrigUser => Mode::ShareRowExclusive,
            Kind::AT_AddConstraint if is_foreign_key(command.def()) => Mode::ShareRowExclusive,
            _ => Mode::AccessExclusive,
        },
        _ => Mode::AccessExclusive,
    });
    modes.max().unwrap_or(Mode::Weak)
}

fn is_foreign_key(definition: Node<'_>) -> bool {
    matches!(definition, Node::Constraint(constraint) if constraint.contype == nodes::ConstrType::CONSTR_FOREIGN)
}

#[cfg(test)]
mod tests {
    use crate::sql::analysis::Command;
    use crate::sql::{Analyzer, testing};

    fn locks(text: &str) -> Option<String> {
        let mut fixture = testing::library();
        let (table, partition) =
            (fixture.catalog.relation_names[&("public".to_owned(), "t".to_owned())], fixture.table("t_1", "k int8"));
        fixture.catalog.relations.get_mut(&partition).expect("declared").parents.push(table);
        let context = fixture.context(&["public"], &[]);
        let read = Analyzer::new().read(text, &context).expect(text);
        let statement = read.analyzed.statements.first().expect("a statement");
        let Command::Ddl { locks, .. } = &statement.command else { panic!("{text}: {:?}", statement.command) };
        locks.as_ref().map(|locks| locks.statement())
    }

    #[test]
    fn what_others_would_wait_for_is_locked_before() {
        for (text, expected) in [
            ("ALTER TABLE t ADD COLUMN n int", r#"LOCK TABLE "public"."t" IN ACCESS EXCLUSIVE MODE"#),
            ("ALTER TABLE ONLY t DISABLE TRIGGER ALL", r#"LOCK TABLE ONLY "public"."t" IN SHARE ROW EXCLUSIVE MODE"#),
            ("ALTER TABLE t VALIDATE CONSTRAINT c, ALTER x SET NOT NULL", r#"LOCK TABLE "public"."t" IN ACCESS EXCLUSIVE MODE"#),
            (
                "ALTER TABLE u ADD FOREIGN KEY (k) REFERENCES t (k)",
                r#"LOCK TABLE "public"."u", "public"."t" IN SHARE ROW EXCLUSIVE MODE"#,
            ),
            ("ALTER TABLE t RENAME COLUMN x TO xx", r#"LOCK TABLE "public"."t" IN ACCESS EXCLUSIVE MODE"#),
            ("CREATE INDEX ON t (x)", r#"LOCK TABLE "public"."t" IN SHARE MODE"#),
            ("DROP TABLE nobody, t, public.u", r#"LOCK TABLE "public"."t", "public"."u" IN ACCESS EXCLUSIVE MODE"#),
            ("DROP TABLE t_1", r#"LOCK TABLE ONLY "public"."t", "public"."t_1" IN ACCESS EXCLUSIVE MODE"#),
            ("CREATE TABLE t_2 PARTITION OF t DEFAULT", r#"LOCK TABLE ONLY "public"."t" IN ACCESS EXCLUSIVE MODE"#),
        ] {
            assert_eq!(locks(text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "ALTER TABLE t VALIDATE CONSTRAINT c",
            "CREATE INDEX CONCURRENTLY i ON t (x)",
            "DROP VIEW t",
            "DROP TABLE nobody",
            "ALTER TABLE nobody ADD COLUMN n int",
            "CREATE TABLE other (n int)",
        ] {
            assert_eq!(locks(text), None, "{text}");
        }
    }
}
