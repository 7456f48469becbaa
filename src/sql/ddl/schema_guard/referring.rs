//! What to do where a table of the home shard is to refer to a sharded table: the statements, ready to be run.

use pg_raw_parse::nodes::ConstrType as Type;
use pg_raw_parse::{Node, nodes};

use super::{columns, referred};
use crate::catalog::{Relation, quoted_literal, shown_name, written_identifier};
use crate::shard_key::KeyColumn;

/// `None`: the foreign key lacks a part of the shard key, or has what is not written here.
pub(super) fn remedy(
    constraint: &nodes::Constraint,
    at: Option<&nodes::ColumnDef>,
    table: &nodes::RangeVar,
    (key, relation): (&[KeyColumn], &Relation),
) -> Option<String> {
    let (own, others) = (columns(constraint.fk_attrs(), at.and_then(|column| column.colname())), referred(constraint, relation));
    let is_written = constraint.pk_attrs().is_empty() || own.len() == others.len();
    let paired = |key: &KeyColumn| {
        let place = others.iter().position(|other| *other == key.column && key.function.is_none())?;
        own.get(place).map(|column| written_identifier(column))
    };
    let own_key: Vec<String> = key.iter().map(paired).collect::<Option<_>>().filter(|_| is_written)?;
    let name = written_identifier(table.relname()?);
    let table = table.schemaname().map_or(name.clone(), |schema| format!("{}.{name}", written_identifier(schema)));
    let other = shown_name(&relation.schema, &relation.name);
    let list = |names: &[&str]| names.iter().map(|name| written_identifier(name)).collect::<Vec<_>>().join(", ");
    Some(format!(
        "Add it when the table is distributed, too: SELECT shardgate.distribute_table({}, {}, colocate_with => {}); \
         ALTER TABLE {table} ADD {}FOREIGN KEY ({}) REFERENCES {other} ({}){};",
        quoted_literal(&table),
        quoted_literal(&own_key.join(", ")),
        quoted_literal(&other),
        constraint.conname().map(|name| format!("CONSTRAINT {} ", written_identifier(name))).unwrap_or_default(),
        list(&own),
        list(&others),
        options(constraint, at)?
    ))
}

/// Behind REFERENCES.
fn options(constraint: &nodes::Constraint, at: Option<&nodes::ColumnDef>) -> Option<String> {
    let action = |action: i8| {
        Some(match u8::try_from(action).ok()? {
            b'a' => "",
            b'r' => "RESTRICT",
            b'c' => "CASCADE",
            b'n' => "SET NULL",
            b'd' => "SET DEFAULT",
            _ => return None,
        })
    };
    let (on_delete, on_update) = (action(constraint.fk_del_action)?, action(constraint.fk_upd_action)?);
    let set: Vec<String> = constraint.fk_del_set_cols().iter().filter_map(Node::as_str).map(written_identifier).collect();
    let mut text = String::new();
    if u8::try_from(constraint.fk_matchtype) == Ok(b'f') {
        text.push_str(" MATCH FULL");
    }
    if !on_update.is_empty() {
        text.push_str(&format!(" ON UPDATE {on_update}"));
    }
    if !on_delete.is_empty() {
        text.push_str(&format!(" ON DELETE {on_delete}"));
    }
    if !set.is_empty() {
        text.push_str(&format!(" ({})", set.join(", ")));
    }
    // At a column these are constraints of their own behind it.
    let later = at.into_iter().flat_map(|column| column.constraints().iter()).filter_map(|sibling| match sibling {
        Node::Constraint(sibling) => Some(sibling),
        _ => None,
    });
    let attributes = later.skip_while(|sibling| sibling.location <= constraint.location).map(|sibling| sibling.contype);
    let attributes: Vec<Type::Type> = attributes.take_while(|kind| ATTRIBUTES.contains(kind)).collect();
    let is_deferred = constraint.initdeferred || attributes.contains(&Type::CONSTR_ATTR_DEFERRED);
    if constraint.deferrable || is_deferred || attributes.contains(&Type::CONSTR_ATTR_DEFERRABLE) {
        text.push_str(" DEFERRABLE");
    }
    if is_deferred {
        text.push_str(" INITIALLY DEFERRED");
    }
    Some(text)
}

const ATTRIBUTES: [Type::Type; 4] =
    [Type::CONSTR_ATTR_DEFERRABLE, Type::CONSTR_ATTR_NOT_DEFERRABLE, Type::CONSTR_ATTR_DEFERRED, Type::CONSTR_ATTR_IMMEDIATE];
