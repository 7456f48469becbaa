//! What a function is, as one short text: its arguments' types, language, body and SET clauses, and those of the functions that it calls.
//!
//! What is said of a function counts for as long as this stays the same. The body is compared, not read; tables that it names may be given
//! other names.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::{Catalog, Function, Oid, hex};

impl Catalog {
    /// SHA-256 in hexadecimal. Another one for each function of the same name. Of the functions that its body may call, and theirs, too:
    /// what a function does is also what these do.
    pub fn fingerprint(&self, function: &Function) -> String {
        let mut called = self.named_in_bodies(function);
        if called.is_empty() {
            return self.own_fingerprint(function);
        }
        called.insert(function.oid);
        let mut of_each: Vec<String> =
            called.iter().filter_map(|oid| self.functions.get(oid)).map(|function| self.own_fingerprint(function)).collect();
        of_each.sort_unstable();
        of_each.push(self.own_fingerprint(function));
        hex(&Sha256::digest(of_each.join(" ")))
    }

    /// Functions of users that the body may call; not the function itself.
    fn named_in_bodies(&self, function: &Function) -> BTreeSet<Oid> {
        let (mut found, mut unread) = (BTreeSet::new(), vec![function]);
        while let Some(reader) = unread.pop() {
            for called in self.functions_named_in(&reader.body).into_iter().filter(|called| called.oid != function.oid) {
                if found.insert(called.oid) {
                    unread.push(called);
                }
            }
        }
        found
    }

    /// Functions of users that the text may call, in any schema: their names stand in it before a parenthesis.
    pub fn functions_named_in(&self, text: &str) -> Vec<&Function> {
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$';
        let mut names = BTreeSet::new();
        for (open, _) in text.match_indices('(') {
            let before = text.get(..open).unwrap_or_default().trim_end().trim_end_matches('"');
            let name = before.rsplit(|letter| !is_part(letter)).next().unwrap_or_default();
            names.extend([name.to_owned(), name.to_lowercase()]);
        }
        let named = names.iter().filter_map(|name| self.function_names.get(name)).flatten();
        named.filter_map(|oid| self.functions.get(oid)).filter(|function| !function.is_extension_member).collect()
    }

    fn own_fingerprint(&self, function: &Function) -> String {
        let types = function.argument_types.iter().map(|oid| match self.types.get(oid) {
            Some(known) => format!("{}.{}", known.schema, known.name),
            None => oid.to_string(),
        });
        let body = function.tree_digest.as_ref().unwrap_or(&function.body);
        let mut pieces = vec![function.argument_count.to_string(), function.language.clone(), body.clone()];
        for list in [types.collect(), function.argument_names.clone(), function.result_names.clone(), function.settings.clone()] {
            pieces.push(list.len().to_string());
            pieces.extend(list);
        }
        let mut digest = Sha256::new();
        for piece in pieces {
            // The length first, so that no two lists of pieces run together into the same bytes.
            digest.update((piece.len() as u64).to_be_bytes());
            digest.update(piece.as_bytes());
        }
        hex(&digest.finalize())
    }

    /// Of all functions of that name, in one order.
    pub fn fingerprints(&self, schema: &str, name: &str) -> Vec<String> {
        let named = self.function_names.get(name).into_iter().flatten().filter_map(|oid| self.functions.get(oid));
        let mut found: Vec<String> =
            named.filter(|function| function.schema == schema).map(|function| self.fingerprint(function)).collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}
