//! Primary keys, unique and exclusion constraints and unique indexes that get the shard key, and what each of them says no longer.

use super::definitions::{exclusion_with, stored, unique_with};
use super::facts::{Facts, Storage};
use super::foreign_keys::{definition, shown, unreadable};
use super::members::{Member, Members, is_of_keys};
use crate::catalog::{Catalog, Column, Numbering, ObjectName, Relation, Unique, quoted_identifier, quoted_literal, quoted_name};
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
    /// Two rows with different shard keys may agree from now on, and might not before.
    pub(super) is_weaker: bool,
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
    let storage = facts.storage.get(&at).cloned().unwrap_or_default();
    let name = quoted_identifier(&unique.name);
    let loss = Some(loss(member, relation, unique)).filter(|_| !members.is_within_parent(member, unique));
    let mut found = Rekeyed { is_weaker: loss.is_some(), warning: warning(loss.as_deref(), member, unique), ..Rekeyed::default() };
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

pub(super) fn what(unique: &Unique) -> String {
    format!("{} \"{}\"", what_kind(unique), unique.name)
}

/// In what two rows with different shard keys may agree from now on.
fn loss(member: &Member<'_>, relation: &Relation, unique: &Unique) -> String {
    let (key, columns) = (key_names(member), compared(unique));
    if unique.is_exclusion {
        return format!("{} excludes rows of the same {key} only", what(unique));
    }
    if is_of_keys(member) {
        return format!(
            "{} refuses nothing any more: {key} is unique by itself, and two rows may have the same {columns}",
            what(unique)
        );
    }
    // Values that the database makes itself differ in the whole table as before. A client may give others, of identity columns too:
    // by OVERRIDING SYSTEM VALUE and by COPY.
    let is_made = |name: &String| relation.column(name).is_some_and(is_made_by_database);
    if unique.columns.iter().flatten().any(is_made) {
        return format!(
            "{columns} is unique within the same {key} only where a client gives it, and in the whole table where the database makes it"
        );
    }
    format!("{columns} is unique within the same {key} only, not in the whole table any more")
}

fn warning(loss: Option<&str>, member: &Member<'_>, unique: &Unique) -> Option<String> {
    match loss {
        // ON CONFLICT knows it by its name.
        Some(loss) if unique.is_exclusion => Some(format!("{loss}.")),
        None if unique.is_exclusion => None,
        Some(loss) => Some(format!("{loss}; ON CONFLICT has to name {}, too.", key_names(member))),
        None => Some(format!("{} is as unique as before; ON CONFLICT has to name {}, too.", compared(unique), key_names(member))),
    }
}

fn key_names(member: &Member<'_>) -> String {
    member.key.iter().map(|item| format!("\"{}\"", item.column)).collect::<Vec<_>>().join(", ")
}

fn compared(unique: &Unique) -> String {
    let columns: Option<Vec<String>> = unique.columns.iter().map(|column| Some(format!("\"{}\"", column.as_ref()?))).collect();
    columns.map_or_else(|| format!("what index \"{}\" compares", unique.name), |columns| columns.join(", "))
}

/// Each row that is given none gets another value.
fn is_made_by_database(column: &Column) -> bool {
    let is_numbered = match column.numbering() {
        Some(Numbering::Local(_) | Numbering::Identity | Numbering::Cluster(_)) => true,
        // It may be anything that is computed of the number.
        Some(Numbering::Computed) | None => false,
    };
    is_numbered || column.is_unique_id() || is_random(column)
}

/// Of the functions that make a uuid some make the same one of the same arguments.
fn is_random(column: &Column) -> bool {
    let default = column.default.as_deref().unwrap_or_default();
    let call = default.strip_prefix('(').and_then(|rest| rest.strip_suffix(")::text")).unwrap_or(default);
    let function = call.strip_suffix("()").and_then(|name| name.rsplit('.').next());
    function.is_some_and(|name| RANDOM.contains(&name))
}

const RANDOM: [&str; 6] = ["gen_random_uuid", "uuid_generate_v1", "uuid_generate_v1mc", "uuid_generate_v4", "uuidv4", "uuidv7"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_says_whether_the_database_makes_the_value() {
        for (default, identity, expected) in [
            ("", None, false),
            ("", Some('a'), true),
            ("", Some('d'), true),
            ("nextval('public.t_id_seq'::regclass)", None, true),
            ("shardgate.next_id('public.s'::regclass)", None, true),
            ("shardgate.unique_id()", None, true),
            ("(nextval('public.s'::regclass) % 10)", None, false),
            ("gen_random_uuid()", None, true),
            ("(gen_random_uuid())::text", None, true),
            ("extensions.uuid_generate_v4()", None, true),
            ("uuidv7()", None, true),
            ("uuid_generate_v5(uuid_ns_dns(), 'a'::text)", None, false),
            ("\"left\"((gen_random_uuid())::text, 2)", None, false),
            ("now()", None, false),
        ] {
            let column = Column {
                name: "id".to_owned(),
                attnum: 1,
                type_oid: 20,
                type_name: "bigint".to_owned(),
                typmod: -1,
                is_not_null: true,
                is_deterministic: true,
                is_collation_c: false,
                collation: None,
                default: (!default.is_empty()).then(|| default.to_owned()),
                is_generated: false,
                identity,
            };
            assert_eq!(is_made_by_database(&column), expected, "{default}");
        }
    }
}
