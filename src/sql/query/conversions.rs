//! What a statement calls without naming it: implicit casts, and the functions of operator classes.
//!
//! The readers of statements ask for it last, when the relations are known: [`Reader::note_hidden`].

use super::bind::Reader;
use super::expression::Place;
use crate::catalog::{Called, Closure, DependencyTarget, DependentKind, Function, Oid, References};
use crate::sql::body::SqlBodyReader;

impl Reader<'_> {
    /// What the statement touches by nothing that its text names: policies of the relations, conversions of values.
    pub fn note_hidden(&mut self) {
        self.note_policies();
        self.note_conversions();
    }

    /// Casts that nobody asks for, checks of domains, and what values are compared with. Casts that are written are noted where they
    /// are.
    fn note_conversions(&mut self) {
        let catalog = &self.context.catalog;
        for conversion in &catalog.conversions {
            let is_assigned = conversion.called != Called::Asked && self.notes.assigned.contains(&conversion.function);
            let Some(function) = catalog.functions.get(&conversion.function) else { continue };
            let is_here_or_in_view =
                || self.has_view_with(function.oid) || catalog.may_convert(conversion, self.text, &self.notes.relations);
            let may_be_called = match conversion.called {
                _ if is_assigned || conversion.called == Called::Anywhere => is_here_or_in_view(),
                Called::Checked => catalog.may_convert(conversion, self.text, []),
                Called::Asked => self
                    .texts_with_views()
                    .any(|text| conversion.may_make_json(text) && catalog.may_convert(conversion, text, &self.notes.relations)),
                Called::Assigned | Called::Anywhere => false,
            };
            if may_be_called && is_assigned {
                self.note_user_function(function, Place::Stored);
            } else if may_be_called && !self.only_computes(function) {
                self.note_user_function(function, Place::Inside);
            }
        }
    }

    fn only_computes(&self, function: &Function) -> bool {
        let catalog = &self.context.catalog;
        *catalog.closure_of_function(function.oid, &SqlBodyReader) == Closure::Known(References::default())
            && !catalog.function_notifies(function.oid, &SqlBodyReader)
            && !catalog.function_sets_local(function.oid, &SqlBodyReader)
    }

    /// The statement's, and those of the views that it reads.
    fn texts_with_views(&self) -> impl Iterator<Item = &str> {
        let relations = self.notes.relations.iter().filter_map(|oid| self.context.catalog.relations.get(oid));
        std::iter::once(self.text).chain(relations.filter_map(|relation| relation.view_definition.as_deref()))
    }

    /// The text of a view does not show it either.
    fn has_view_with(&self, function: Oid) -> bool {
        let catalog = &self.context.catalog;
        let dependencies = self.notes.relations.iter().filter_map(|oid| catalog.relation_dependencies.get(oid)).flatten();
        let on = DependencyTarget::Function(function);
        dependencies.into_iter().any(|dependency| dependency.of == DependentKind::View && dependency.on == on)
    }
}
