//! Who uses what: the way back from a view or function to all that a statement may name to reach it.
//!
//! By names, without their schemas, and generously: a function uses what its body mentions. Too many names cost a wait, a missing
//! one an answer.

use std::collections::BTreeSet;

use super::{Catalog, DependencyTarget, Function, Oid, Relation};

/// Definitions that could not be read, since another transaction holds what they are printed from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Held {
    #[default]
    Nothing,
    /// What statements with these names mean is not known: what lacks its definition, and what uses that. No name: only definitions
    /// that no statement is planned by are missing from [`Catalog::definitions`].
    These(BTreeSet<String>),
    /// It is not known which.
    Anything,
}

impl Held {
    /// It is not known what the statement means.
    #[inline]
    pub fn may_concern(&self, text: &str) -> bool {
        match self {
            Held::Nothing => false,
            Held::These(names) => mentions(text, names),
            Held::Anything => true,
        }
    }
}

impl Catalog {
    /// These names, and those of relations and functions that use one of them, directly or not. `None`: an operator does, which
    /// has no name that could be looked for.
    pub fn names_that_use(&self, names: &[String]) -> Option<BTreeSet<String>> {
        let mut found: BTreeSet<String> = names.iter().cloned().collect();
        loop {
            let relations = self.relations.values().filter(|relation| self.relation_uses(relation, &found));
            let functions = self.functions.values().filter(|function| self.function_uses(function, &found));
            let names = relations.map(|relation| &relation.name).chain(functions.map(|function| &function.name));
            let more: Vec<String> = names.filter(|name| !found.contains(*name)).cloned().collect();
            if more.is_empty() {
                break;
            }
            found.extend(more);
        }
        let is_behind_operator = self.operator_functions.values().flatten().any(|function| self.is_function_in(*function, &found));
        (!is_behind_operator).then_some(found)
    }

    fn relation_uses(&self, relation: &Relation, names: &BTreeSet<String>) -> bool {
        let dependencies = self.relation_dependencies.get(&relation.oid).into_iter().flatten();
        let depends = |target: DependencyTarget| match target {
            DependencyTarget::Relation(oid) => self.is_relation_in(oid, names),
            DependencyTarget::Function(oid) => self.is_function_in(oid, names),
        };
        // A view uses its tables; a table in whose policies or triggers another one is read uses that too. Rows of a partitioned
        // table are those of its partitions.
        dependencies.into_iter().any(|dependency| depends(dependency.on))
            || relation.triggers.iter().any(|trigger| self.is_function_in(trigger.function, names))
            || relation.policies.iter().any(|policy| {
                policy.relations.iter().any(|oid| self.is_relation_in(*oid, names))
                    || policy.expressions.iter().any(|expression| mentions(expression, names))
            })
            || relation.parents.iter().chain(&relation.children).any(|oid| self.is_relation_in(*oid, names))
    }

    fn function_uses(&self, function: &Function, names: &BTreeSet<String>) -> bool {
        if function.is_extension_member {
            return false;
        }
        mentions(&function.body, names)
            || function.relations.iter().any(|oid| self.is_relation_in(*oid, names))
            || self.function_dependencies.get(&function.oid).into_iter().flatten().any(|oid| self.is_function_in(*oid, names))
    }

    fn is_relation_in(&self, oid: Oid, names: &BTreeSet<String>) -> bool {
        self.relations.get(&oid).is_some_and(|relation| names.contains(&relation.name))
    }

    fn is_function_in(&self, oid: Oid, names: &BTreeSet<String>) -> bool {
        self.functions.get(&oid).is_some_and(|function| names.contains(&function.name))
    }
}

/// One of the names stands in the text, in any case of its letters: as a word, or, where it is more than one, anywhere.
pub fn mentions(text: &str, names: &BTreeSet<String>) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$';
    let text = text.to_lowercase();
    let words: BTreeSet<&str> = text.split(|letter| !is_part(letter)).collect();
    // U&"…" may spell a name in another way.
    text.contains("u&\"")
        || names.iter().any(|name| {
            let name = name.to_lowercase();
            if name.chars().all(is_part) { words.contains(name.as_str()) } else { text.contains(&name.replace('"', "\"\"")) }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, names: &[&str]) -> bool {
        mentions(text, &names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn names_are_found_as_words() {
        assert!(found("SELECT * FROM public.V", &["v"]));
        assert!(found("SELECT * FROM \"V\"", &["V"]));
        assert!(found("SELECT f(x)", &["g", "f"]));
        assert!(!found("SELECT * FROM vv", &["v"]));
        assert!(found("SELECT * FROM \"my view\"", &["my view"]));
        assert!(found("SELECT * FROM \"a\"\"b\"", &["a\"b"]));
        assert!(found("SELECT * FROM U&\"\\0076\"", &["v"]));
    }
}
