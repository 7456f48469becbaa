//! What the text of a function's body names: the [`BodyReader`] of the catalogue's closures.

use crate::catalog::{BodyReader, BodyReferences};

/// Reads bodies in SQL and PL/pgSQL.
#[derive(Clone, Copy, Debug)]
pub struct Bodies;

impl BodyReader for Bodies {
    fn references(&self, language: &str, _body: &str) -> BodyReferences {
        BodyReferences { unknown: Some(format!("is written in {language}")), ..BodyReferences::default() }
    }
}
