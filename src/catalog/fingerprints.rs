//! What a function is, as one short text: its arguments' types, language, body and SET clauses.
//!
//! What is said of a function counts for as long as this stays the same. The body is compared, not read; tables that it names may be given
//! other names.

use sha2::{Digest, Sha256};

use super::{Catalog, Function, hex};

impl Catalog {
    /// SHA-256 in hexadecimal. Another one for each function of the same name.
    pub fn fingerprint(&self, function: &Function) -> String {
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
