//! Functions of users that PostgreSQL calls where the text of a statement names none: casts, checks of domains, and what operator
//! classes compare and hash with.
//!
//! Which of them a statement calls depends on the types of its values, which are not known here. So each counts for every statement
//! that may have a value of one of its types: by a column of a table, by the name of the type, or by a function or operator that takes
//! or gives one. Too many cost a statement its way over several shards, a missing one an answer.

use std::collections::BTreeSet;

use super::{Catalog, Function, Oid, mentions};

/// One such function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversion {
    pub function: Oid,
    /// Types of users that it takes or gives, and those that have them as a part. Empty: it is between types of PostgreSQL.
    pub types: BTreeSet<Oid>,
    pub type_names: BTreeSet<String>,
    pub called: Called,
}

impl Conversion {
    /// Whatever makes JSON of a value looks for a cast of its type to JSON.
    pub fn may_make_json(&self, text: &str) -> bool {
        !self.types.is_empty() && text.to_lowercase().contains("json")
    }
}

/// Where PostgreSQL calls a [`Conversion`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Called {
    /// Wherever a value is: implicit casts, functions of operator classes and ranges.
    #[default]
    Anywhere,
    /// Where a value is stored: casts in assignments.
    Assigned,
    /// Where a value is stored, and where the type is named: checks of domains.
    Checked,
    /// Where a cast is written, and where JSON is made: all other casts.
    Asked,
}

impl Catalog {
    /// May this text call it, which uses these relations?
    pub fn may_convert<'r>(&self, conversion: &Conversion, text: &str, relations: impl IntoIterator<Item = &'r Oid>) -> bool {
        if conversion.called == Called::Asked && !asks_for_casts(text) && !conversion.may_make_json(text) {
            return false;
        }
        let columns = relations.into_iter().filter_map(|oid| self.relations.get(oid)).flat_map(|relation| &relation.columns);
        conversion.types.is_empty()
            || mentions(text, &conversion.type_names)
            || columns.into_iter().any(|column| conversion.types.contains(&column.type_oid))
            || self.has_call_of_types(conversion, text)
    }

    fn has_call_of_types(&self, conversion: &Conversion, text: &str) -> bool {
        let of_types = |function: &&Function| function.types.iter().any(|of| conversion.types.contains(of));
        let functions: Vec<&Function> = self.functions.values().filter(of_types).collect();
        let names: BTreeSet<String> = functions.iter().map(|function| function.name.clone()).collect();
        let is_operator = |function: &&Function| self.operator_functions.values().flatten().any(|oid| *oid == function.oid);
        mentions(text, &names) || functions.iter().any(is_operator)
    }
}

/// A cast is written in it, or the type of a JSON value is.
fn asks_for_casts(text: &str) -> bool {
    let has = |words: &[&str]| mentions(text, &words.iter().map(|word| (*word).to_owned()).collect());
    text.contains("::") || has(&["cast", "json_table"]) || (has(&["returning"]) && text.to_lowercase().contains("json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_that_are_to_be_written_count_where_one_is() {
        let catalog = Catalog::default();
        let conversion = |called: Called| Conversion { function: 1, called, ..Conversion::default() };
        for (text, is_asked) in [
            ("SELECT a::int", true),
            ("SELECT Cast(a AS int)", true),
            ("SELECT json_value(a, '$' RETURNING int)", true),
            ("INSERT INTO t VALUES (1) RETURNING a", false),
            ("SELECT broadcast", false),
        ] {
            assert_eq!(catalog.may_convert(&conversion(Called::Asked), text, []), is_asked, "{text}");
            assert!(catalog.may_convert(&conversion(Called::Anywhere), text, []));
        }
    }
}
