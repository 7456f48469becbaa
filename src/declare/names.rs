//! Names that users write in arguments: tables and functions, quoted and qualified as in SQL, and what they mean.

use super::Caller;
use crate::catalog::{Catalog, Relation, RelationKind, shown_name, written_identifier};
use crate::error::{PgError, SqlState};

/// A possibly qualified name, folded as PostgreSQL folds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) schema: Option<String>,
    pub(super) name: String,
}

const INVALID_NAME: SqlState = SqlState(*b"42602");
const WRONG_OBJECT_TYPE: SqlState = SqlState(*b"42809");

/// Bytes that PostgreSQL keeps of an identifier.
const NAME_BYTES_MAX: usize = 63;

impl Name {
    /// `orders`, `sales.orders`, `"Sales"."Orders"`.
    pub(super) fn parse(text: &str) -> Result<Self, PgError> {
        let mut parts = split_identifiers(text).ok_or_else(|| {
            PgError::new(INVALID_NAME, format!("invalid name syntax: \"{text}\""))
                .with_hint("Write it as in SQL: name, schema.name, or with double quotes around names with capitals.")
        })?;
        match (parts.pop(), parts.pop(), parts.is_empty()) {
            (Some(name), schema, true) => Ok(Self { schema, name }),
            (_, _, _) => Err(PgError::new(INVALID_NAME, format!("improper qualified name (too many dotted names): \"{text}\""))),
        }
    }

    fn display(&self) -> String {
        self.schema.as_ref().map_or_else(|| self.name.clone(), |schema| format!("{schema}.{}", self.name))
    }
}

/// `None`: not identifiers between dots.
fn split_identifiers(text: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut characters = text.trim().chars().peekable();
    loop {
        let mut part = String::new();
        if characters.next_if_eq(&'"').is_some() {
            loop {
                match characters.next()? {
                    '"' if characters.next_if_eq(&'"').is_some() => part.push('"'),
                    '"' => break,
                    '\0' => return None,
                    other => part.push(other),
                }
            }
        } else {
            while let Some(character) = characters.next_if(|c| c.is_alphanumeric() || matches!(c, '_' | '$')) {
                // PostgreSQL folds ASCII only, in multi-byte encodings.
                part.push(character.to_ascii_lowercase());
            }
            if part.starts_with(|c: char| c.is_ascii_digit() || c == '$') {
                return None;
            }
        }
        if part.is_empty() {
            return None;
        }
        let mut end = part.len().min(NAME_BYTES_MAX);
        while !part.is_char_boundary(end) {
            end -= 1;
        }
        part.truncate(end);
        parts.push(part);
        match characters.next() {
            None => return Some(parts),
            Some('.') => {}
            Some(_) => return None,
        }
    }
}

/// The caller's search path with `$user` put in.
fn search_path(caller: &Caller) -> Vec<String> {
    caller.search_path.iter().map(|schema| if schema == "$user" { caller.user.clone() } else { schema.clone() }).collect()
}

/// The table that an argument names, or why it cannot be declared. A partitioned table stands for all of its partitions, which
/// are placed like it and are not in the map themselves.
pub(super) fn find_table<'a>(catalog: &'a Catalog, caller: &Caller, text: &str) -> Result<&'a Relation, PgError> {
    let relation = find_relation(catalog, caller, text)?;
    let what = match relation.kind {
        RelationKind::Table | RelationKind::PartitionedTable => return refuse_inheritance(catalog, relation).map(|()| relation),
        RelationKind::View => "a view",
        RelationKind::MaterializedView => "a materialized view",
        RelationKind::ForeignTable => "a foreign table",
        RelationKind::Sequence => "a sequence",
    };
    Err(PgError::new(WRONG_OBJECT_TYPE, format!("\"{}\" is {what}", relation.name))
        .with_detail("Only tables are distributed.")
        .with_hint("Distribute the tables that it reads; views are then answered from the shards."))
}

/// Why its place among its parents and children keeps a table from being declared.
pub(super) fn inheritance(catalog: &Catalog, relation: &Relation) -> Option<PgError> {
    refuse_inheritance(catalog, relation).err()
}

fn refuse_inheritance(catalog: &Catalog, relation: &Relation) -> Result<(), PgError> {
    if relation.is_partition(catalog) {
        return Err(PgError::unsupported(
            format!("cannot distribute table \"{}\" because it is a partition", relation.name),
            "Its rows are those of the table that it belongs to.",
            "Distribute the partitioned table: its partitions are placed like it.",
        ));
    }
    let (what, remedy) = match relation.kind {
        RelationKind::PartitionedTable => {
            let foreign = catalog.family(relation).into_iter().find(|member| member.kind == RelationKind::ForeignTable);
            match foreign {
                Some(_) => {
                    ("One of its partitions is a foreign table, whose rows are elsewhere.", "Detach the foreign table first.")
                }
                None => return Ok(()),
            }
        }
        _ if !relation.parents.is_empty() => ("It inherits from another table, whose rows include its own.", NO_INHERIT),
        _ if !relation.children.is_empty() => ("Other tables inherit from it, and its rows include theirs.", NO_INHERIT),
        _ => return Ok(()),
    };
    Err(PgError::unsupported(format!("cannot distribute table \"{}\" because of inheritance", relation.name), what, remedy))
}

const NO_INHERIT: &str = "Remove the inheritance with ALTER TABLE … NO INHERIT first.";

/// As it has to be written: what has quotes of its own is not quoted once more.
pub(super) fn perhaps(written: &str) -> String {
    if written.contains('"') { format!("Perhaps you meant {written}.") } else { format!("Perhaps you meant \"{written}\".") }
}

pub(super) fn find_relation<'a>(catalog: &'a Catalog, caller: &Caller, text: &str) -> Result<&'a Relation, PgError> {
    let name = Name::parse(text)?;
    catalog.resolve(name.schema.as_deref(), &name.name, &search_path(caller)).ok_or_else(|| {
        let error = PgError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{}\" does not exist", name.display()));
        let known = catalog
            .relations
            .values()
            .filter(|relation| matches!(relation.kind, RelationKind::Table | RelationKind::PartitionedTable));
        // The same name in a schema that is not searched comes first.
        let elsewhere = known.clone().find(|relation| relation.name == name.name);
        match elsewhere.or_else(|| nearest(&name.name, known, |relation| &relation.name)) {
            Some(meant) => error.with_hint(perhaps(&shown_name(&meant.schema, &meant.name))),
            None => error,
        }
    })
}

/// Schema and name of a function, found like a call would find it. Which of several overloads does not matter: a declaration
/// holds for all of them.
pub(super) fn find_function(catalog: &Catalog, caller: &Caller, text: &str) -> Result<(String, String), PgError> {
    // Users may write the parentheses.
    let bare = text.trim().strip_suffix("()").unwrap_or(text);
    let name = Name::parse(bare)?;
    let overloads = catalog.function_names.get(&name.name).map(Vec::as_slice).unwrap_or_default();
    let schemas: Vec<&String> =
        overloads.iter().filter_map(|oid| catalog.functions.get(oid)).map(|function| &function.schema).collect();
    let path = search_path(caller);
    let found = match &name.schema {
        Some(schema) => schemas.iter().find(|candidate| **candidate == schema),
        None => path.iter().find_map(|schema| schemas.iter().find(|candidate| **candidate == schema)),
    };
    match found {
        Some(schema) => Ok(((*schema).clone(), name.name)),
        None => {
            let error = PgError::new(SqlState::UNDEFINED_FUNCTION, format!("function \"{}\" does not exist", name.display()));
            let names = catalog.function_names.keys();
            Err(match nearest(&name.name, names, |name| name) {
                Some(meant) => error.with_hint(perhaps(&written_identifier(meant))),
                None => error,
            })
        }
    }
}

/// The candidate whose name is most like this one, when it is like it at all.
pub(super) fn nearest<T>(name: &str, candidates: impl Iterator<Item = T>, name_of: impl Fn(&T) -> &str) -> Option<T> {
    let distance_max = (name.chars().count() / 3).max(1);
    candidates
        .map(|candidate| (edit_distance(name, name_of(&candidate)), candidate))
        .filter(|(distance, _)| *distance <= distance_max)
        // Ties by name, so that the same mistake gets the same hint.
        .min_by(|(a, x), (b, y)| a.cmp(b).then_with(|| name_of(x).cmp(name_of(y))))
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's. Names are at most 63 bytes long.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (y, above) in b.iter().zip(row.iter().skip(1)) {
            let cost = (diagonal + usize::from(x != *y)).min(left + 1).min(above + 1);
            diagonal = *above;
            left = cost;
            next.push(cost);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(schema: Option<&str>, name: &str) -> Name {
        Name { schema: schema.map(str::to_owned), name: name.to_owned() }
    }

    #[test]
    fn names_are_folded_quoted_and_qualified_as_in_sql() {
        assert_eq!(Name::parse("Orders").unwrap(), name(None, "orders"));
        assert_eq!(Name::parse(" sales.Orders ").unwrap(), name(Some("sales"), "orders"));
        assert_eq!(Name::parse("\"Sales.x\".\"Or\"\"ders\"").unwrap(), name(Some("Sales.x"), "Or\"ders"));
        assert_eq!(Name::parse(&"ä".repeat(40)).unwrap().name, "ä".repeat(31));
        for text in ["", ".", "a.", ".a", "a b", "a;b", "\"a", "1a", "a.b.c", "a-b"] {
            assert!(Name::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_nearest_name_is_found_only_when_it_is_near() {
        let names = ["orders", "order_lines", "customers"];
        let find = |name| nearest(name, names.iter(), |name| name).copied();
        assert_eq!(find("oders"), Some("orders"));
        assert_eq!(find("ordrs"), Some("orders"));
        assert_eq!(find("costumers"), Some("customers"));
        assert_eq!(find("invoices"), None);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
    }
}
