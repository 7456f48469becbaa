//! Primary keys, unique and exclusion constraints and unique indexes that get the shard key, and what each of them says no longer.

use super::definitions::{exclusion_with, stored, unique_with};
use super::facts::{Facts, Storage};
use super::foreign_keys::{definition, shown, unreadable};
use super::members::{Member, Members, is_of_keys};
use crate::catalog::{Catalog, ObjectName, Relation, Unique, quoted_identifier, quoted_literal, quoted_name};
use crate::declare::checks::Obstacle;

/// Statements for one unique index.
#[derive(Debug, Default)]
pub(super) struct Rekeyed {
    /// Parts of the table's ALTER TABLE.
    pub(super) alter: Vec<String>,
    /// Statements of their own, and parts of an ALTER TABLE behind them.
    pub(super) indexes: Vec<String>,
    pub(super) alter_behind: Vec<String>,
    pub(super) comments: Vec<String>,
    pub(super) warning: Option<String>,
}

impl Rekeyed {
    pub(super) fn extend(&mut self, other: Rekeyed) {
        self.alter.extend(other.alter);
        self.indexes.extend(other.indexes);
        self.alter_behind.extend(other.alter_behind);
        self.comments.extend(other.comments);
    }
}

/// Columns of the key that a unique index does not have.
pub(super) fn missing<'m>(unique: &Unique, member: &'m Member<'_>) -> Vec<&'m str> {
    let has = |column: &str| unique.columns.iter().flatten().any(|name| name == column);
    member.key.iter().map(|item| item.column.as_str()).filter(|column| !has(column)).collect()
}

/// It has it from the table that it is a partition of.
pub(super) fn is_inherited(catalog: &Catalog, relation: &Relation, unique: &Unique) -> bool {
    let is_same = |other: &Unique| {
        other.columns == unique.columns
            && other.is_constraint == unique.is_constraint
            && other.is_partial == unique.is_partial
            && other.is_exclusion == unique.is_exclusion
    };
    let mut parents = relation.parents.iter().filter_map(|parent| catalog.relations.get(parent));
    relation.is_partition(catalog) && parents.any(|parent| parent.uniques.iter().any(is_same))
}

/// `relation`: the member's own or a partition of it.
pub(super) fn rekeyed(
    catalog: &Catalog,
    facts: &Facts,
    (members, member): (&Members<'_>, &Member<'_>),
    relation: &Relation,
    unique: &Unique,
) -> Result<Rekeyed, Obstacle> {
    let key = missing(unique, member);
    let at = (relation.oid, unique.name.clone());
    if let Some(users) = facts.users.get(&at) {
        return Err(Obstacle {
            what: format!("{} of table {} is needed by {}.", what(unique), shown(relation), users.join(", ")),
            remedy: "Drop these first, and create them again at the end.".to_owned(),
        });
    }
    let storage = facts.storage.get(&at).cloned().unwrap_or_default();
    let name = quoted_identifier(&unique.name);
    let is_of_parent = members.is_within_parent(member, unique);
    let mut found = Rekeyed { warning: warning(member, relation, unique).filter(|_| !is_of_parent), ..Rekeyed::default() };
    if unique.is_constraint {
        let printed = definition(catalog, relation, &unique.name);
        if unique.is_exclusion {
            require_operators(catalog, relation, unique, printed.unwrap_or_default())?;
        }
        let with = if unique.is_exclusion { exclusion_with } else { unique_with };
        let text = printed.and_then(|printed| with(printed, &key)).map(|text| stored(&text, &storage.text(unique)));
        let text = text.ok_or_else(|| unreadable(what_kind(unique), &unique.name, relation))?;
        found.alter = vec![format!("DROP CONSTRAINT {name}"), format!("ADD CONSTRAINT {name} {text}")];
        let table = quoted_name(&relation.schema, &relation.name);
        let comment = facts.comments.get(&at);
        found.comments.extend(comment.map(|text| format!("COMMENT ON CONSTRAINT {name} ON {table} IS {};", quoted_literal(text))));
    } else {
        let object = ObjectName::part_of(relation.whole(), "index", unique.name.as_str());
        let printed = catalog.definitions.get(&object);
        let text = printed.and_then(|printed| unique_with(printed, &key)).map(|text| stored(&text, &storage.text(unique)));
        let text = text.ok_or_else(|| unreadable(what_kind(unique), &unique.name, relation))?;
        found.indexes = vec![format!("DROP INDEX {};", quoted_name(&relation.schema, &unique.name)), format!("{text};")];
    }
    let marks = [(storage.is_replica_identity, "REPLICA IDENTITY USING INDEX"), (storage.is_clustered, "CLUSTER ON")];
    let marks = marks.iter().filter(|(is_set, _)| *is_set).map(|(_, mark)| format!("{mark} {name}"));
    if unique.is_constraint {
        found.alter.extend(marks)
    } else {
        found.alter_behind.extend(marks)
    }
    let index = quoted_name(&relation.schema, &unique.name);
    found.comments.extend(storage.comment.map(|text| format!("COMMENT ON INDEX {index} IS {};", quoted_literal(&text))));
    Ok(found)
}

/// An exclusion constraint needs an operator class of the key's type: of btree always, of gist by an extension.
fn require_operators(catalog: &Catalog, relation: &Relation, unique: &Unique, printed: &str) -> Result<(), Obstacle> {
    let is_ready = printed.starts_with("EXCLUDE USING btree")
        || printed.starts_with("EXCLUDE USING gist") && catalog.definitions.contains(&ObjectName::new("extension", "btree_gist"));
    if is_ready {
        return Ok(());
    }
    Err(Obstacle {
        what: format!("Exclusion constraint \"{}\" of table {} cannot get the shard key.", unique.name, shown(relation)),
        remedy: "CREATE EXTENSION btree_gist first, which compares the key by = in gist indexes; or drop the constraint."
            .to_owned(),
    })
}

impl Storage {
    /// What the definition does not say. The options of an exclusion constraint and of an index are printed with it.
    fn text(&self, unique: &Unique) -> String {
        let is_printed = unique.is_exclusion || !unique.is_constraint || self.options.is_empty();
        let options = if is_printed { String::new() } else { format!(" WITH ({})", self.options) };
        let using = if unique.is_constraint { " USING INDEX" } else { "" };
        let tablespace = if self.tablespace.is_empty() { String::new() } else { format!("{using} TABLESPACE {}", self.tablespace) };
        format!("{options}{tablespace}")
    }
}

fn what_kind(unique: &Unique) -> &'static str {
    match (unique.is_primary, unique.is_exclusion, unique.is_constraint) {
        (true, _, _) => "Primary key",
        (false, true, _) => "Exclusion constraint",
        (false, false, true) => "Unique constraint",
        (false, false, false) => "Unique index",
    }
}

fn what(unique: &Unique) -> String {
    format!("{} \"{}\"", what_kind(unique), unique.name)
}

/// Two rows with different shard keys may agree from now on.
fn warning(member: &Member<'_>, relation: &Relation, unique: &Unique) -> Option<String> {
    let key: Vec<String> = member.key.iter().map(|item| format!("\"{}\"", item.column)).collect();
    let key = key.join(", ");
    let plain: Option<Vec<&str>> = unique.columns.iter().map(Option::as_deref).collect();
    let columns = match &plain {
        Some(columns) => columns.iter().map(|column| format!("\"{column}\"")).collect::<Vec<_>>().join(", "),
        None => format!("what index \"{}\" compares", unique.name),
    };
    if unique.is_exclusion {
        return Some(format!("{} excludes rows of the same {key} only.", what(unique)));
    }
    if is_of_keys(member) {
        return Some(format!(
            "{} refuses nothing any more: {key} is unique by itself, and two rows may have the same {columns}.",
            what(unique)
        ));
    }
    let is_given_out = |name: &str| {
        relation.column(name).is_some_and(|column| column.is_drawn_by_proxy() || column.numbering().is_some() || is_random(column))
    };
    // Values that the database makes itself differ in the whole table as before.
    if unique.is_primary && plain.is_some_and(|columns| columns.iter().any(|column| is_given_out(column))) {
        return None;
    }
    Some(format!(
        "{columns} is unique within the same {key} only, not in the whole table any more; ON CONFLICT has to name the key, too."
    ))
}

fn is_random(column: &crate::catalog::Column) -> bool {
    column.default.as_deref().is_some_and(|default| {
        default.contains("gen_random_uuid()") || default.contains("uuid_generate_v") || default.contains("uuidv")
    })
}
