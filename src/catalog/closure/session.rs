//! What a statement may leave in the session, by all that it calls and touches.
//!
//! Unlike the closure of tables, the answer counts wherever the tables are: also while nothing is distributed, and for functions
//! whose tables are declared. Names are resolved generously, as everywhere in a closure.

use std::collections::HashMap;

use super::{Access, BodyName, BodyReader, BodyReferences, CacheKey, Walk};
use crate::catalog::effects::CONVERTS_BY_ARGUMENT;
use crate::catalog::{Catalog, Function, Kept, Oid, Relation, RelationKind, SessionEffects};

/// Whose definitions call something of PostgreSQL's own that leaves something behind; pg_depend does not list it.
#[derive(Default)]
pub(super) struct LeavingParts {
    /// By their names as wholes (`table public.t`), and by the words of their definitions.
    relations: HashMap<String, SessionEffects>,
    /// By the beginnings of their signatures: defaults of parameters, and what aggregates are made of.
    functions: Vec<String>,
    /// Checks and defaults of domains, casts, operators.
    anywhere: SessionEffects,
}

impl Catalog {
    /// What a statement of this text, which refers to these, may leave in its session.
    pub fn session_effects(&self, found: &BodyReferences, text: &str, reader: &dyn BodyReader) -> SessionEffects {
        let mut effects = self.likely_session_effects(found, text, reader);
        let of_types = self.cached(CacheKey::Anywhere, reader, |walk| walk.types()).effects;
        effects.add(&SessionEffects::clone(&of_types).of_anything());
        effects
    }

    /// The same without what any statement might do: casts and checks of domains count where a value of their types may be.
    pub fn likely_session_effects(&self, found: &BodyReferences, text: &str, reader: &dyn BodyReader) -> SessionEffects {
        let mut effects = found.effects.clone();
        let relations: Vec<Oid> =
            found.reads.iter().chain(found.writes.keys()).flat_map(|name| self.relations_named(name)).collect();
        for conversion in &self.conversions {
            if self.may_convert(conversion, text, &relations) {
                effects.add(&self.walked_function(conversion.function, reader).effects);
            }
        }
        for name in &found.functions {
            self.add_effects_of_call(name, reader, &mut effects);
        }
        let by_field = found.fields.iter().filter_map(|field| self.function_names.get(field));
        let by_operator = found.operators.iter().filter_map(|operator| self.operator_functions.get(operator));
        for function in by_field.chain(by_operator).flatten() {
            effects.add(&self.walked_function(*function, reader).effects);
        }
        let named = found.reads.iter().map(|name| (name, Access::Read));
        for (name, access) in named.chain(found.writes.keys().map(|name| (name, Access::Write))) {
            for oid in self.relations_named(name) {
                let of_relation = self.cached(CacheKey::Relation(oid, access), reader, |walk| walk.relation(oid, access)).effects;
                effects.add(&SessionEffects::clone(&of_relation).without_transaction());
            }
        }
        effects
    }

    fn add_effects_of_call(&self, name: &BodyName, reader: &dyn BodyReader, effects: &mut SessionEffects) {
        let candidates = self.function_names.get(&name.name).map(Vec::as_slice).unwrap_or_default();
        let is_meant = |oid: &&Oid| match (&name.schema, self.functions.get(oid)) {
            (Some(schema), Some(function)) => *schema == function.schema,
            (None, found) => found.is_some(),
            (Some(_), None) => false,
        };
        // One of pg_catalog may be meant beside those of users, unless the schema says which.
        if name.schema.as_deref().is_none_or(|schema| schema == "pg_catalog") {
            effects.add(&SessionEffects::of_function(&name.name));
            if CONVERTS_BY_ARGUMENT.contains(&name.name.as_str()) {
                effects.add(&self.cached(CacheKey::Anywhere, reader, |walk| walk.types()).effects);
            }
        }
        // Those of a session are not in the catalogue.
        effects.is_unproven |= name.schema.as_deref() == Some("pg_temp");
        for oid in candidates.iter().filter(is_meant) {
            effects.add(&self.walked_function(*oid, reader).effects);
        }
    }

    fn relations_named(&self, name: &BodyName) -> Vec<Oid> {
        let in_schema = |schema: &String| self.relation_names.get(&(schema.clone(), name.name.clone())).copied();
        match &name.schema {
            Some(schema) => in_schema(schema).into_iter().collect(),
            None => self.schemas.iter().filter_map(in_schema).collect(),
        }
    }

    fn leaving_parts(&self) -> &LeavingParts {
        self.closures.leaving.get_or_init(|| {
            let mut parts = LeavingParts::default();
            for (whole, kind, definition) in self.definitions.iter() {
                let is_function = kind == "function";
                // The body of a function is read.
                let told = if is_function { definition.split("\nAS ").next().unwrap_or_default() } else { definition };
                if !SessionEffects::is_mentioned(told) {
                    continue;
                }
                match kind {
                    "function" => parts.functions.extend(whole.split('(').next().map(str::to_owned)),
                    "type" | "cast" | "operator" => parts.anywhere.add(&of_definition(told)),
                    _ => parts.relations.entry(whole.to_owned()).or_default().add(&of_definition(told)),
                }
            }
            parts
        })
    }
}

impl Walk<'_> {
    /// Casts may be implicit, and a domain's checks run wherever a value becomes one.
    pub(super) fn types(&mut self) {
        self.effects.add(&self.catalog.leaving_parts().anywhere);
        let conversions = self.catalog.conversions.iter().map(|conversion| conversion.function);
        for function in self.catalog.type_functions.values().flatten().copied().chain(conversions) {
            self.function(function);
        }
    }

    /// Of the function itself, besides its body.
    pub(super) fn effects_of_signature(&mut self, function: &Function) {
        let is_leaving = |name: &String| *name == format!("function {}.{}", function.schema, function.name);
        // What it is called is another matter than what it does.
        let is_of_server = function.language == "internal" && function.kind != 'a' && function.volatility == 'v';
        if is_of_server || self.catalog.leaving_parts().functions.iter().any(is_leaving) {
            self.effects.may_do_anything();
        }
    }

    /// Of a member of an extension, whose tables do not matter.
    pub(super) fn effects_of_member(&mut self, function: &Function) {
        match function.language.as_str() {
            "internal" => {}
            "sql" | "plpgsql" => {
                let found = self.reader.references(&function.language, &function.body);
                self.effects.add(&found.effects);
            }
            "c" => self.effects.add(&SessionEffects::of_c_function(&function.name, function.volatility)),
            other => self.effects.add(&SessionEffects::of_other_language(other, &function.body)),
        }
    }

    /// Of the relation's own kind, and of the expressions that belong to it.
    pub(super) fn effects_of_parts(&mut self, relation: &Relation) {
        if self.catalog.family(relation).iter().any(|part| part.kind == RelationKind::ForeignTable) {
            self.effects.keeps(Kept::RemoteConnection);
        }
        if let Some(effects) = self.catalog.leaving_parts().relations.get(&relation.whole()) {
            self.effects.add(effects);
        }
    }
}

/// Settings that stand in it by their names are the session's afterwards.
fn of_definition(definition: &str) -> SessionEffects {
    let mut effects = SessionEffects::of_unread(definition);
    effects.may_do_anything();
    effects
}
