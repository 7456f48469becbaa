//! A schema as a list of named definitions without oids, so that two databases can be compared and their differences told.
//!
//! Two servers number their objects differently and may list them in another order; the names and the definitions that
//! PostgreSQL prints (with an empty search path) are what both share. Holds no row, no sequence position, no privilege.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use sha2::{Digest, Sha256};

/// What a definition belongs to, in the order in which differences are listed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    /// The table or view that the object is part of; a difference of the whole hides those of its parts.
    parent: Option<String>,
    /// "table", "column", "function": PostgreSQL's word.
    kind: &'static str,
    name: String,
}

impl ObjectName {
    /// An object of its own: `ObjectName::new("table", "public.books")`.
    pub fn new(kind: &'static str, name: impl Into<String>) -> Self {
        Self { parent: None, kind, name: name.into() }
    }

    /// A part of a relation: `ObjectName::part_of("table public.books", "column", "isbn")`.
    pub fn part_of(parent: impl Into<String>, kind: &'static str, name: impl Into<String>) -> Self {
        Self { parent: Some(parent.into()), kind, name: name.into() }
    }

    /// How a part names this object as its parent.
    fn as_parent(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => f.write_str(self.kind)?,
            name => write!(f, "{} \"{name}\"", self.kind)?,
        }
        match &self.parent {
            Some(parent) => match parent.split_once(' ') {
                Some((kind, name)) => write!(f, " of {kind} \"{name}\""),
                None => write!(f, " of {parent}"),
            },
            None => Ok(()),
        }
    }
}

/// Object → definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definitions(BTreeMap<ObjectName, String>);

impl Definitions {
    pub fn insert(&mut self, object: ObjectName, definition: impl Into<String>) {
        self.0.insert(object, definition.into());
    }

    pub fn extend(&mut self, others: Definitions) {
        self.0.extend(others.0);
    }

    pub fn contains(&self, object: &ObjectName) -> bool {
        self.0.contains_key(object)
    }

    pub fn get(&self, object: &ObjectName) -> Option<&str> {
        self.0.get(object).map(String::as_str)
    }

    /// Each with the whole that it is a part of, or is, and its kind.
    pub fn iter(&self) -> impl Iterator<Item = (String, &'static str, &str)> {
        let whole = |object: &ObjectName| object.parent.clone().unwrap_or_else(|| object.as_parent());
        self.0.iter().map(move |(object, definition)| (whole(object), object.kind, definition.as_str()))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// SHA-256 over all names and definitions, in hexadecimal.
    pub fn digest(&self) -> String {
        let mut digest = Sha256::new();
        for (object, definition) in &self.0 {
            let parent = object.parent.as_deref().unwrap_or_default();
            for piece in [parent, object.kind, object.name.as_str(), definition.as_str()] {
                // The length first, so that no two lists of pieces run together into the same bytes.
                digest.update((piece.len() as u64).to_be_bytes());
                digest.update(piece.as_bytes());
            }
        }
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether any object of these kinds is there.
    pub fn has_kind(&self, kinds: &[&str]) -> bool {
        self.0.keys().any(|object| kinds.contains(&object.kind))
    }

    /// What stands outside of relations is defined alike: functions, types, operators, schemas and the like.
    pub fn agree_outside_relations(&self, other: &Definitions) -> bool {
        let outside = |(object, _): &(&ObjectName, &String)| object.parent.is_none() && !RELATIONS.contains(&object.kind);
        self.0.iter().filter(outside).eq(other.0.iter().filter(outside))
    }

    /// One relation and its parts: `definitions.of("table public.books")`.
    pub fn of(&self, whole: &str) -> Definitions {
        let belongs = |object: &ObjectName| match &object.parent {
            Some(parent) => parent == whole,
            None => object.as_parent() == whole,
        };
        Self(self.0.iter().filter(|(object, _)| belongs(object)).map(|(object, text)| (object.clone(), text.clone())).collect())
    }

    /// One sentence a difference; `here` is `self`. An extension that only the other has is none: statements do not know it.
    pub fn differences(&self, there: &Definitions) -> Vec<String> {
        let mut found = Vec::new();
        let (wholes_here, wholes_there) = (self.wholes(), there.wholes());
        let is_part_of_missing =
            |object: &ObjectName, wholes: &HashSet<String>| object.parent.as_ref().is_some_and(|parent| !wholes.contains(parent));
        for (object, definition) in &self.0 {
            match there.0.get(object) {
                None if is_part_of_missing(object, &wholes_there) => {}
                None => found.push(format!("{object} exists here and is missing there")),
                Some(other) if other == definition => {}
                Some(other) => found.extend(describe(object, definition, other)),
            }
        }
        for object in there.0.keys() {
            let is_harmless = object.kind == EXTENSION || is_part_of_missing(object, &wholes_here);
            if !self.0.contains_key(object) && !is_harmless {
                found.push(format!("{object} is missing here and exists there"));
            }
        }
        found
    }

    /// The objects that can have parts, as parts name them.
    fn wholes(&self) -> HashSet<String> {
        self.0.keys().filter(|object| object.parent.is_none()).map(ObjectName::as_parent).collect()
    }
}

const EXTENSION: &str = "extension";
/// `RelationKind::word`.
const RELATIONS: [&str; 5] = ["table", "view", "materialized view", "foreign table", "sequence"];

/// Definitions that are too long to be read side by side are only said to differ.
const SHOWN_CHARACTERS_MAX: usize = 200;

/// Kind of the part that holds a table's column names in order: `SELECT *` and `INSERT` without a column list depend on it.
pub const COLUMN_ORDER: &str = "order of columns";

fn describe(object: &ObjectName, here: &str, there: &str) -> Option<String> {
    if object.kind == COLUMN_ORDER {
        // Columns that exist on one side only are told by themselves.
        return has_same_columns(here, there).then(|| format!("{object} is ({here}) here and ({there}) there"));
    }
    if here.chars().count() + there.chars().count() > SHOWN_CHARACTERS_MAX || here.is_empty() || there.is_empty() {
        return Some(format!("{object} is defined differently here and there"));
    }
    Some(format!("{object} is {here} here and {there} there"))
}

fn has_same_columns(here: &str, there: &str) -> bool {
    let sorted = |list: &str| {
        let mut columns: Vec<String> = list.split(", ").map(str::to_owned).collect();
        columns.sort_unstable();
        columns
    };
    sorted(here) == sorted(there)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn books() -> Definitions {
        let mut definitions = Definitions::default();
        definitions.insert(ObjectName::new("table", "public.books"), "ordinary");
        definitions.insert(ObjectName::part_of("table public.books", "column", "isbn"), "text not null");
        definitions.insert(ObjectName::part_of("table public.books", "column", "year"), "integer");
        definitions
    }

    #[test]
    fn equal_schemas_have_no_differences_and_one_digest() {
        assert_eq!(books().differences(&books()), Vec::<String>::new());
        assert_eq!(books().digest(), books().digest());
    }

    #[test]
    fn a_column_of_another_type_is_named_with_both_types() {
        let mut other = books();
        other.insert(ObjectName::part_of("table public.books", "column", "year"), "bigint");
        assert_eq!(books().differences(&other), [r#"column "year" of table "public.books" is integer here and bigint there"#]);
        assert_ne!(books().digest(), other.digest());
    }

    #[test]
    fn a_missing_table_is_one_difference_not_one_a_column() {
        let empty = Definitions::default();
        assert_eq!(books().differences(&empty), [r#"table "public.books" exists here and is missing there"#]);
        assert_eq!(empty.differences(&books()), [r#"table "public.books" is missing here and exists there"#]);
    }

    #[test]
    fn another_order_of_the_same_columns_is_told() {
        let mut here = books();
        here.insert(ObjectName::part_of("table public.books", COLUMN_ORDER, ""), "isbn, year");
        let mut there = books();
        there.insert(ObjectName::part_of("table public.books", COLUMN_ORDER, ""), "year, isbn");
        assert_eq!(
            here.differences(&there),
            [r#"order of columns of table "public.books" is (isbn, year) here and (year, isbn) there"#]
        );
    }

    #[test]
    fn names_that_run_together_do_not_share_a_digest() {
        let mut one = Definitions::default();
        one.insert(ObjectName::new("table", "ab"), "c");
        let mut other = Definitions::default();
        other.insert(ObjectName::new("table", "a"), "bc");
        assert_ne!(one.digest(), other.digest());
    }
}
