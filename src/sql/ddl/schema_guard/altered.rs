//! ALTER SEQUENCE of sequences of the whole cluster, and what ALTER TABLE does to those of identity columns.
//!
//! ```text
//! ALTER SEQUENCE s …                               runs as it is, on every shard
//! ALTER TABLE t ALTER c TYPE bigint                ALTER SEQUENCE s AS bigint before it, as PostgreSQL does
//! ALTER TABLE t ALTER c RESTART SET INCREMENT 5    ALTER SEQUENCE s RESTART INCREMENT BY 5 instead: on the shards it is a column
//! ALTER TABLE t ALTER c SET GENERATED ALWAYS       another default instead                       with a default
//! ALTER TABLE t ALTER c DROP IDENTITY              no default instead, and no sequence
//! ```
//! What stands instead of the client's text says nothing else, so that such an ALTER TABLE does nothing beside it.

use pg_raw_parse::list::NodeList;
use pg_raw_parse::{Node, nodes};

use super::numbered::{commands, distributed};
use super::numbers::declared;
use crate::catalog::{Column, Relation, SequenceName, quoted_identifier, quoted_literal, quoted_name};
use crate::error::{PgError, SqlState};
use crate::sql::context::Context;

/// Of one schema change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlteredSequences {
    /// With the statements that alter each; none: the client's own does.
    pub sequences: Vec<(SequenceName, Vec<String>)>,
    /// Before all else: PostgreSQL's own look at whether the table may be altered.
    pub check: Option<String>,
    /// Instead of the client's text.
    pub instead: Option<String>,
    /// Dropped after it.
    pub dropped: Vec<SequenceName>,
    /// An identity column is of the other kind then.
    pub sets_generated: bool,
}

/// `None`: the client's text runs as it is, and alters no sequence of the whole cluster.
pub fn altered_sequences(node: Node<'_>, context: &Context) -> Option<AlteredSequences> {
    match node {
        Node::AlterSeqStmt(alter) => {
            let sequence = alter.sequence().and_then(|name| declared(name, context))?;
            let options = alter.options().iter().filter_map(option);
            // Whom it belongs to is no matter of its numbers.
            let is_altered = options.into_iter().any(|option| option.defname() != Some("owned_by"));
            is_altered.then(|| AlteredSequences { sequences: vec![(sequence, Vec::new())], ..AlteredSequences::default() })
        }
        Node::AlterTableStmt(alter) => of_table(alter, context),
        _ => None,
    }
}

fn of_table(alter: &nodes::AlterTableStmt, context: &Context) -> Option<AlteredSequences> {
    let name = alter.relation()?;
    let (relation, _) = distributed(name, context)?;
    let table = format!("{}{}", if name.inh { "" } else { "ONLY " }, quoted_name(&relation.schema, &relation.name));
    let mut altered = AlteredSequences::default();
    let mut instead = Vec::new();
    for (command, column, sequence) in of_identities(alter, relation) {
        let (name, of_sequence) = (quoted_identifier(&column.name), quoted_name(&sequence.0, &sequence.1));
        match command.subtype {
            nodes::AlterTableType::AT_AlterColumnType => {
                let Some(kind) = integer(command) else { continue };
                altered.note(sequence, format!("ALTER SEQUENCE {of_sequence} AS {kind}"));
            }
            nodes::AlterTableType::AT_SetIdentity => {
                let options = command.def().as_node_list()?;
                let words: Vec<String> = options.iter().filter_map(option).filter_map(words).collect();
                if !words.is_empty() {
                    altered.note(sequence, format!("ALTER SEQUENCE {of_sequence} {}", words.join(" ")));
                }
                instead.push(match options.iter().filter_map(option).find_map(generated) {
                    Some(kind) => {
                        altered.sets_generated = true;
                        let named = quoted_literal(&of_sequence);
                        let default = format!("shardgate.next_id({named}::pg_catalog.regclass, '{kind}'::\"char\")");
                        format!("ALTER COLUMN {name} SET DEFAULT {default}")
                    }
                    // It is that already.
                    None => format!("ALTER COLUMN {name} SET NOT NULL"),
                });
            }
            nodes::AlterTableType::AT_DropIdentity => {
                instead.push(format!("ALTER COLUMN {name} DROP DEFAULT"));
                altered.dropped.push(sequence);
            }
            _ => continue,
        }
        altered.check = Some(format!("ALTER TABLE {table} ALTER COLUMN {name} SET NOT NULL"));
    }
    altered.instead = (!instead.is_empty()).then(|| format!("ALTER TABLE {table} {}", instead.join(", ")));
    altered.check.is_some().then_some(altered)
}

impl AlteredSequences {
    fn note(&mut self, sequence: SequenceName, statement: String) {
        match self.sequences.iter_mut().find(|(known, _)| *known == sequence) {
            Some((_, statements)) => statements.push(statement),
            None => self.sequences.push((sequence, vec![statement])),
        }
    }
}

/// Refuses what cannot be, with PostgreSQL's words where it would refuse too.
pub(super) fn guard_sequence(alter: &nodes::AlterSeqStmt, context: &Context) -> Result<(), PgError> {
    let Some(sequence) = alter.sequence().and_then(|name| declared(name, context)) else { return Ok(()) };
    check_no_cycle(alter.options(), &sequence.1)?;
    let is_moved = alter.options().iter().filter_map(option).any(|option| option.defname() == Some("owned_by"));
    let is_of = |column: &Column| column.identity.is_some() && column.cluster_sequence().as_ref() == Some(&sequence);
    let mut relations = context.catalog.relations.values();
    match relations.find(|relation| relation.columns.iter().any(is_of)).filter(|_| is_moved) {
        Some(relation) => Err(PgError::new(SqlState::FEATURE_NOT_SUPPORTED, "cannot change ownership of identity sequence")
            .with_detail(format!("Sequence \"{}\" is linked to table \"{}\".", sequence.1, relation.name))),
        None => Ok(()),
    }
}

/// Of a distributed table.
pub(super) fn guard_table(alter: &nodes::AlterTableStmt, relation: &Relation) -> Result<(), PgError> {
    let of_identities: Vec<_> = of_identities(alter, relation).collect();
    for (command, column, sequence) in &of_identities {
        match command.subtype {
            nodes::AlterTableType::AT_AlterColumnType if integer(command).is_none() => {
                let message = "identity column type must be smallint, integer, or bigint";
                return Err(PgError::new(SqlState::INVALID_PARAMETER_VALUE, message));
            }
            nodes::AlterTableType::AT_AddIdentity => {
                let message = format!("column \"{}\" of relation \"{}\" is already an identity column", column.name, relation.name);
                return Err(PgError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
            }
            nodes::AlterTableType::AT_SetIdentity => {
                command.def().as_node_list().map_or(Ok(()), |options| check_no_cycle(options, &sequence.1))?;
            }
            _ => {}
        }
    }
    let is_replaced = |command: &nodes::AlterTableCmd| {
        matches!(command.subtype, nodes::AlterTableType::AT_SetIdentity | nodes::AlterTableType::AT_DropIdentity)
    };
    let replaced = of_identities.iter().filter(|(command, ..)| is_replaced(command)).count();
    if replaced > 0 && replaced < alter.cmds().iter().count() {
        return Err(PgError::unsupported(
            format!("this change of identity columns of distributed table \"{}\" is not supported", relation.name),
            "It is made together with other changes of the table, and the shards have no identity columns.",
            "Make it by an ALTER TABLE of its own.",
        ));
    }
    Ok(())
}

/// The commands about identity columns that the whole cluster numbers, with their sequences.
fn of_identities<'s>(
    alter: &'s nodes::AlterTableStmt,
    relation: &'s Relation,
) -> impl Iterator<Item = (&'s nodes::AlterTableCmd, &'s Column, SequenceName)> {
    commands(alter).filter_map(|command| {
        let column = relation.columns.iter().find(|column| Some(column.name.as_str()) == command.name())?;
        column.identity?;
        Some((command, column, column.cluster_sequence()?))
    })
}

/// The type that a column gets. `None`: none that an identity column may have.
fn integer(command: &nodes::AlterTableCmd) -> Option<&'static str> {
    let Node::ColumnDef(column) = command.def() else { return None };
    let kind = column.type_name()?;
    let names: Vec<&str> = kind.names().iter().filter_map(|part| part.sval()).collect();
    let is_plain = kind.array_bounds().is_empty() && !kind.setof;
    match names.as_slice() {
        ["int2"] | ["pg_catalog", "int2"] if is_plain => Some("pg_catalog.int2"),
        ["int4"] | ["pg_catalog", "int4"] if is_plain => Some("pg_catalog.int4"),
        ["int8"] | ["pg_catalog", "int8"] if is_plain => Some("pg_catalog.int8"),
        _ => None,
    }
}

fn option(node: Node<'_>) -> Option<&nodes::DefElem> {
    match node {
        Node::DefElem(option) => Some(option),
        _ => None,
    }
}

/// SET GENERATED: `a`lways or by `d`efault.
fn generated(option: &nodes::DefElem) -> Option<char> {
    match (option.defname(), option.arg()) {
        (Some("generated"), Node::Integer(kind)) => u8::try_from(kind.ival).ok().map(char::from),
        _ => None,
    }
}

/// An option of a sequence, as it is written.
fn words(option: &nodes::DefElem) -> Option<String> {
    let number = match option.arg() {
        Node::Integer(number) => Some(number.ival.to_string()),
        Node::Float(number) => number.fval().map(str::to_owned),
        _ => None,
    };
    let limit = |word: &str| number.as_ref().map_or_else(|| format!("NO {word}"), |number| format!("{word} {number}"));
    Some(match option.defname()? {
        "increment" => format!("INCREMENT BY {}", number?),
        "start" => format!("START WITH {}", number?),
        "cache" => format!("CACHE {}", number?),
        "restart" => number.map_or_else(|| "RESTART".to_owned(), |number| format!("RESTART WITH {number}")),
        "minvalue" => limit("MINVALUE"),
        "maxvalue" => limit("MAXVALUE"),
        "cycle" => "NO CYCLE".to_owned(),
        _ => return None,
    })
}

fn check_no_cycle(options: &NodeList, sequence: &str) -> Result<(), PgError> {
    let cycles = |option: &nodes::DefElem| {
        option.defname() == Some("cycle") && !matches!(option.arg(), Node::Boolean(value) if !value.boolval)
    };
    if !options.iter().filter_map(option).any(cycles) {
        return Ok(());
    }
    Err(PgError::unsupported(
        format!("sequence \"{sequence}\" of the whole cluster cannot cycle"),
        "Its numbers are given in blocks, each number once.",
        "Let it begin anew when it has ended: ALTER SEQUENCE ... RESTART.",
    ))
}
