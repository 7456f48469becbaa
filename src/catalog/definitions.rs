//! A schema as a list of named definitions without oids, so that two databases can be compared and their differences told.
//!
//! Two servers number their objects differently and may list them in another order; the names and the definitions that
//! PostgreSQL prints (with an empty search path) are what both share. Where major versions print, or have, something otherwise, what
//! it means is compared. Holds no row, no sequence position, no privilege.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};

use super::{printed_views, quote::hex};

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

    /// The object of its own that it is, or is part of.
    fn whole(&self) -> String {
        self.parent.clone().unwrap_or_else(|| self.as_parent())
    }

    /// An index that is there for speed alone, defined like this.
    pub fn is_plain_index(&self, definition: Option<&str>) -> bool {
        self.kind == "index" && !definition.is_some_and(|definition| definition.starts_with("CREATE UNIQUE "))
    }

    pub fn is_extension(&self) -> bool {
        self.kind == EXTENSION
    }

    /// How a part names this object as its parent.
    pub fn as_parent(&self) -> String {
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

/// Object → definition. What two versions of a schema have in common is shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definitions {
    /// The major version of the server that has printed them; 0: of no server.
    server_major: u32,
    /// By the name by which parts know it.
    wholes: BTreeMap<String, Arc<Whole>>,
    /// By whole and kind: objects of which only this much is known that they are there, since others hold what the rest is printed from.
    held: BTreeSet<(String, &'static str)>,
}

/// An object of its own with its parts.
#[derive(Clone, Debug, Default)]
struct Whole {
    /// `None`: only parts of it are known.
    own: Option<(ObjectName, String)>,
    parts: BTreeMap<ObjectName, String>,
    /// Of all that, once asked for.
    digest: OnceLock<[u8; 32]>,
}

impl PartialEq for Whole {
    fn eq(&self, other: &Self) -> bool {
        self.own == other.own && self.parts == other.parts
    }
}

impl Eq for Whole {}

impl Whole {
    fn iter(&self) -> impl Iterator<Item = (&ObjectName, &String)> {
        self.own.iter().map(|(object, definition)| (object, definition)).chain(&self.parts)
    }

    fn digest(&self) -> &[u8; 32] {
        self.digest.get_or_init(|| {
            let mut digest = Sha256::new();
            for (object, definition) in self.iter() {
                let parent = object.parent.as_deref().unwrap_or_default();
                for piece in [parent, object.kind, object.name.as_str(), definition.as_str()] {
                    // The length first, so that no two lists of pieces run together into the same bytes.
                    digest.update((piece.len() as u64).to_be_bytes());
                    digest.update(piece.as_bytes());
                }
            }
            digest.finalize().into()
        })
    }
}

impl Definitions {
    /// None yet, of a server of this major version.
    pub fn of_server(server_major: u32) -> Self {
        Self { server_major, ..Self::default() }
    }

    pub fn server_major(&self) -> u32 {
        self.server_major
    }

    pub fn insert(&mut self, object: ObjectName, definition: impl Into<String>) {
        let whole = object.whole();
        let whole = Arc::make_mut(self.wholes.entry(whole).or_default());
        whole.digest = OnceLock::new();
        match object.parent {
            None => whole.own = Some((object, definition.into())),
            Some(_) => {
                whole.parts.insert(object, definition.into());
            }
        }
    }

    /// Definitions of this kind in this whole are not known.
    pub fn hold(&mut self, whole: impl Into<String>, kind: &'static str) {
        self.held.insert((whole.into(), kind));
    }

    fn is_held(&self, object: &ObjectName) -> bool {
        !self.held.is_empty() && self.held.contains(&(object.whole(), object.kind))
    }

    pub fn extend(&mut self, others: Definitions) {
        self.held.extend(others.held);
        for (name, whole) in others.wholes {
            match self.wholes.entry(name) {
                Entry::Vacant(free) => {
                    free.insert(whole);
                }
                Entry::Occupied(mut known) => {
                    let known = Arc::make_mut(known.get_mut());
                    known.digest = OnceLock::new();
                    known.parts.extend(whole.parts.clone());
                    known.own = whole.own.clone().or_else(|| known.own.take());
                }
            }
        }
    }

    /// An object of its own, with its parts: `definitions.remove("table public.books")`.
    pub fn remove(&mut self, whole: &str) {
        self.wholes.remove(whole);
        self.held.retain(|(held, _)| held != whole);
    }

    pub fn contains(&self, object: &ObjectName) -> bool {
        self.get(object).is_some()
    }

    pub fn get(&self, object: &ObjectName) -> Option<&str> {
        match &object.parent {
            Some(parent) => self.wholes.get(parent)?.parts.get(object).map(String::as_str),
            None => self.wholes.get(&object.as_parent())?.own.as_ref().map(|(_, definition)| definition.as_str()),
        }
    }

    /// Each with the whole that it is a part of, or is, and its kind.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'static str, &str)> {
        self.wholes.iter().flat_map(|(name, whole)| whole.iter().map(|(object, text)| (name.as_str(), object.kind, text.as_str())))
    }

    pub fn len(&self) -> usize {
        self.wholes.values().map(|whole| whole.iter().count()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.wholes.is_empty()
    }

    /// SHA-256 over all names and definitions, in hexadecimal.
    pub fn digest(&self) -> String {
        let mut digest = Sha256::new();
        for whole in self.wholes.values() {
            digest.update(whole.digest());
        }
        hex(&digest.finalize())
    }

    /// Whether any object of these kinds is there.
    pub fn has_kind(&self, kinds: &[&str]) -> bool {
        self.wholes.values().flat_map(|whole| whole.iter()).any(|(object, _)| kinds.contains(&object.kind))
    }

    /// What stands outside of relations is defined alike: functions, types, operators, schemas and the like.
    pub fn agree_outside_relations(&self, other: &Definitions) -> bool {
        let outside = |(object, _): &(&ObjectName, &String)| !RELATIONS.contains(&object.kind);
        self.owns().filter(outside).eq(other.owns().filter(outside))
    }

    /// One relation and its parts: `definitions.of("table public.books")`.
    pub fn of(&self, whole: &str) -> Definitions {
        let found = self.wholes.get(whole).map(|found| (whole.to_owned(), Arc::clone(found)));
        let held = self.held.iter().filter(|(held, _)| held == whole).cloned().collect();
        Self { server_major: self.server_major, wholes: found.into_iter().collect(), held }
    }

    /// Of what can have parts.
    fn owns(&self) -> impl Iterator<Item = (&ObjectName, &String)> {
        self.wholes.values().filter_map(|whole| whole.own.as_ref()).map(|(object, definition)| (object, definition))
    }

    /// Wholes first.
    fn in_order(&self) -> impl Iterator<Item = (&ObjectName, &String)> {
        self.owns().chain(self.wholes.values().flat_map(|whole| &whole.parts))
    }

    fn has_whole(&self, name: &str) -> bool {
        self.wholes.get(name).is_some_and(|whole| whole.own.is_some())
    }

    /// One sentence a difference; `here` is `self`.
    pub fn differences(&self, there: &Definitions) -> Vec<String> {
        self.differing(there).into_iter().map(|(_, sentence)| sentence).collect()
    }

    /// What differs, and a sentence that says how. An extension that only the other has is no difference: statements do not know it.
    /// A definition that is not known is none either.
    pub fn differing(&self, there: &Definitions) -> Vec<(ObjectName, String)> {
        let mut found = Vec::new();
        let majors = (self.server_major, there.server_major);
        let is_part_of_missing =
            |object: &ObjectName, of: &Definitions| object.parent.as_ref().is_some_and(|parent| !of.has_whole(parent));
        for (object, definition) in self.in_order().filter(|(object, _)| is_comparable(object, majors)) {
            match there.get(object) {
                None if is_part_of_missing(object, there) => {}
                None => found.push((object.clone(), format!("{object} exists here and is missing there"))),
                Some(_) if self.is_held(object) || there.is_held(object) => {}
                Some(other) if is_same(object, (majors.0, definition), (majors.1, other)) => {}
                Some(other) => found.extend(describe(object, definition, other).map(|sentence| (object.clone(), sentence))),
            }
        }
        for (object, _) in there.in_order().filter(|(object, _)| is_comparable(object, majors)) {
            let is_harmless = object.kind == EXTENSION || is_part_of_missing(object, self);
            if !self.contains(object) && !is_harmless {
                found.push((object.clone(), format!("{object} is missing here and exists there")));
            }
        }
        found
    }
}

/// Do servers of both major versions have such objects? `NOT NULL` is a constraint since PostgreSQL 18, and before that the column's
/// alone, which says so by itself.
fn is_comparable(object: &ObjectName, (here, there): (u32, u32)) -> bool {
    object.kind != NOT_NULL || here.min(there) >= NAMES_NOT_NULL_SINCE
}

/// Each definition with the major version of its server. A server's extensions are of versions that go with its own.
fn is_same(object: &ObjectName, here: (u32, &str), there: (u32, &str)) -> bool {
    match object.kind {
        _ if here.1 == there.1 => true,
        EXTENSION => here.0 != there.0,
        "view" | "materialized view" => printed_views::are_alike(here, there),
        _ => false,
    }
}

/// Kind of the part that has what a `NOT NULL` constraint says beside `NOT NULL`, in PostgreSQL 18 and newer; by the column's name.
pub const NOT_NULL: &str = "constraint of column";
const NAMES_NOT_NULL_SINCE: u32 = 18;

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
    fn a_definition_that_is_not_known_is_no_difference() {
        let mut other = books();
        other.insert(ObjectName::part_of("table public.books", "column", "year"), "");
        other.hold("table public.books", "column");
        assert_eq!((books().differences(&other), other.differences(&books())), (Vec::new(), Vec::new()));
        other.insert(ObjectName::new("table", "public.books"), "foreign");
        assert_eq!(books().differences(&other).len(), 1);
        other.remove("table public.books");
        other.extend(books());
        other.insert(ObjectName::part_of("table public.books", "column", "year"), "bigint");
        assert_eq!(books().differences(&other).len(), 1);
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
    fn what_major_versions_have_otherwise_is_no_difference() {
        let of = |server_major: u32| {
            let mut definitions = Definitions::of_server(server_major);
            definitions.extend(books());
            definitions.insert(ObjectName::new("extension", "pgcrypto"), format!("version 1.{server_major}"));
            let qualifier = if server_major < 16 { "books." } else { "" };
            definitions.insert(ObjectName::new("view", "public.v"), format!("SELECT {qualifier}isbn FROM public.books"));
            definitions
        };
        let mut of_18 = of(18);
        of_18.insert(ObjectName::part_of("table public.books", NOT_NULL, "isbn"), "CONSTRAINT n NOT NULL isbn");
        for other in [of(15), of(16)] {
            assert_eq!(other.differences(&of_18), Vec::<String>::new());
            assert_eq!(of_18.differences(&other), Vec::<String>::new());
        }
        let found = of(18).differences(&of_18);
        assert_eq!(found, [r#"constraint of column "isbn" of table "public.books" is missing here and exists there"#]);
        let mut other = of(18);
        other.insert(ObjectName::new("extension", "pgcrypto"), "version 1");
        assert_eq!(of(18).differences(&other), [r#"extension "pgcrypto" is version 1.18 here and version 1 there"#]);
        assert_eq!(of_18.of("table public.books").differences(&of(15).of("table public.books")), Vec::<String>::new());
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
