//! What a function is, as one short text: its arguments' types, language, body and SET clauses, and those of the functions that it calls.
//!
//! What is said of a function counts for as long as this stays the same. The body is compared, not read; tables that it names may be given
//! other names.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::{Catalog, Function, Oid, hex};

impl Catalog {
    /// SHA-256 in hexadecimal. Another one for each function of the same name. Of the functions whose names stand in its body, and in
    /// theirs, too: what a function does is also what these do.
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
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$';
        let (mut found, mut unread) = (BTreeSet::new(), vec![function]);
        while let Some(reader) = unread.pop() {
            let body = reader.body.to_lowercase();
            for word in body.split(|letter| !is_part(letter)).filter(|word| !word.is_empty()) {
                let named = self.function_names.get(word).into_iter().flatten().filter_map(|oid| self.functions.get(oid));
                for called in named.filter(|called| called.oid != function.oid && !called.is_extension_member) {
                    if found.insert(called.oid) {
                        unread.push(called);
                    }
                }
            }
        }
        found
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
