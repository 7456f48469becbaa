//! What a body's writes do to the rows of a relation, and what fires because of it.
//!
//! A write counts as what it is. Triggers and rules take part only on their events, triggers `UPDATE OF` columns only where one of these
//! may be set, and a foreign key acts on its rows only after a DELETE or an UPDATE of columns that it refers to. MERGE and ON CONFLICT are
//! the union of what they may do. Where it is not known, it is everything.

use std::collections::BTreeSet;

use super::{Access, Walk};
use crate::catalog::{Catalog, ObjectName, Relation, RowChange, Trigger, TriggerEvents};

/// What is done with rows of a relation; by default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowWrites {
    pub inserts: bool,
    pub deletes: bool,
    pub truncates: bool,
    pub updates: UpdatedColumns,
}

/// Columns that an UPDATE sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UpdatedColumns {
    /// Nothing is updated.
    #[default]
    None,
    These(BTreeSet<String>),
    /// It is not known which.
    Any,
}

impl RowWrites {
    pub const ALL: Self = Self { inserts: true, deletes: true, truncates: true, updates: UpdatedColumns::Any };
    pub const INSERT: Self = Self { inserts: true, ..Self::NONE };
    pub const DELETE: Self = Self { deletes: true, ..Self::NONE };
    pub const TRUNCATE: Self = Self { truncates: true, ..Self::NONE };
    pub const NONE: Self = Self { inserts: false, deletes: false, truncates: false, updates: UpdatedColumns::None };

    pub fn update(columns: BTreeSet<String>) -> Self {
        Self { updates: UpdatedColumns::These(columns), ..Self::NONE }
    }

    pub fn add(&mut self, other: &Self) {
        self.inserts |= other.inserts;
        self.deletes |= other.deletes;
        self.truncates |= other.truncates;
        match (&mut self.updates, &other.updates) {
            (_, UpdatedColumns::None) | (UpdatedColumns::Any, _) => {}
            (UpdatedColumns::These(columns), UpdatedColumns::These(more)) => columns.extend(more.iter().cloned()),
            (updates, more) => *updates = more.clone(),
        }
    }

    /// Rows get new values, which are checked and indexed.
    pub(super) fn stores(&self) -> bool {
        self.inserts || self.updates != UpdatedColumns::None
    }

    pub(super) fn events(&self) -> TriggerEvents {
        TriggerEvents {
            insert: self.inserts,
            update: self.updates != UpdatedColumns::None,
            delete: self.deletes,
            truncate: self.truncates,
        }
    }

    fn of_change(change: &RowChange) -> Self {
        match change {
            RowChange::Deleted => Self::DELETE,
            RowChange::Updated(columns) => Self::update(columns.clone()),
        }
    }

    /// What a write to a view does to a table under it, whose columns may have other names: all but what INSTEAD OF triggers do.
    pub(super) fn through_view(&self, view: &Relation) -> Self {
        let instead = view.triggers.iter().filter(|trigger| trigger.is_instead);
        let instead = instead.fold(TriggerEvents::NONE, |events, trigger| events.with(trigger.fires_on));
        Self {
            inserts: self.inserts && !instead.insert,
            deletes: self.deletes && !instead.delete,
            truncates: false,
            updates: match self.updates {
                UpdatedColumns::These(_) | UpdatedColumns::Any if !instead.update => UpdatedColumns::Any,
                UpdatedColumns::None | UpdatedColumns::These(_) | UpdatedColumns::Any => UpdatedColumns::None,
            },
        }
    }
}

impl Trigger {
    /// May it fire on such a write? The columns are those that may be other ones afterwards.
    fn fires_for(&self, writes: &RowWrites) -> bool {
        let besides = TriggerEvents { update: false, ..self.fires_on };
        let is_updated = || match &writes.updates {
            UpdatedColumns::None => false,
            UpdatedColumns::These(columns) => {
                self.updated_columns().is_none_or(|of| of.iter().any(|column| columns.contains(column)))
            }
            UpdatedColumns::Any => true,
        };
        besides.meets(writes.events()) || self.fires_on.update && is_updated()
    }

    /// The columns of `UPDATE OF`, as the definition names them. `None`: it fires on any UPDATE, or that is not known.
    pub fn updated_columns(&self) -> Option<Vec<String>> {
        let words = words_of(&self.definition)?;
        let of = words.windows(2).position(|pair| matches!(pair, [Word::Plain("UPDATE"), Word::Plain("OF")]))?;
        let mut columns = Vec::new();
        for word in words.get(of + 2..)? {
            match word {
                Word::Plain("OR" | "ON") => return Some(columns),
                Word::Plain(name) => columns.push((*name).to_owned()),
                Word::Quoted(name) => columns.push(name.clone()),
                Word::Other => {}
            }
        }
        None
    }
}

impl Catalog {
    /// On what a rule of the relation rewrites a statement. What is not known is any event.
    pub(super) fn events_of_rule(&self, relation: &Relation, rule: &str) -> TriggerEvents {
        let definition = self.definitions.get(&ObjectName::part_of(relation.whole(), "rule", rule));
        // CREATE RULE name AS ON event TO …
        let words = definition.and_then(words_of).unwrap_or_default();
        match words.as_slice() {
            [Word::Plain("CREATE"), Word::Plain("RULE"), _, Word::Plain("AS"), Word::Plain("ON"), Word::Plain(event), ..] => {
                match *event {
                    "INSERT" => TriggerEvents::INSERT,
                    "UPDATE" => TriggerEvents::UPDATE,
                    "DELETE" => TriggerEvents::DELETE,
                    _ => TriggerEvents::ALL,
                }
            }
            _ => TriggerEvents::ALL,
        }
    }

    /// With what triggers set besides, and with the rows that go from one partition to another.
    fn all_changes(&self, relation: &Relation, writes: &RowWrites, reader: &dyn super::BodyReader) -> RowWrites {
        let mut all = writes.clone();
        let columns = match &writes.updates {
            UpdatedColumns::None => return all,
            UpdatedColumns::These(columns) => columns.clone(),
            UpdatedColumns::Any => relation.columns.iter().map(|column| column.name.clone()).collect(),
        };
        if self.events_of_update(relation, columns.clone(), reader) != TriggerEvents::UPDATE {
            (all.inserts, all.deletes) = (true, true);
        }
        if let (UpdatedColumns::These(_), RowChange::Updated(columns)) =
            (&writes.updates, self.with_own_changes(relation, RowChange::Updated(columns), reader))
        {
            all.updates = UpdatedColumns::These(columns);
        }
        all
    }
}

impl Walk<'_> {
    /// Visits the relation for what was not done with it yet.
    pub(super) fn relation_written(&mut self, oid: super::Oid, access: Access, writes: &RowWrites) {
        let Some(relation) = self.catalog.relations.get(&oid) else { return };
        let mut all = self.catalog.all_changes(relation, writes, self.reader);
        if let Some(known) = self.relations.get(&(oid, access)) {
            all.add(known);
            if all == *known {
                return;
            }
        }
        self.relations.insert((oid, access), all.clone());
        self.effects_of_parts(relation);
        if access != Access::Action {
            self.policies(relation, None);
        }
        self.dependencies(relation, access, &all, None);
        if access != Access::Read {
            if all.stores() {
                self.assigned(relation);
            }
            self.written(relation, &all);
        }
    }

    fn written(&mut self, relation: &Relation, writes: &RowWrites) {
        for trigger in relation.triggers.iter().filter(|trigger| trigger.fires_for(writes)) {
            self.function(trigger.function);
        }
        for rule in relation.rules.iter().filter(|rule| self.catalog.events_of_rule(relation, rule).meets(writes.events())) {
            self.rule(relation, rule);
        }
        // Rows of a parent may go to any child.
        for child in &relation.children {
            self.relation_written(*child, Access::Action, writes);
        }
        let catalog = self.catalog;
        let updated = match &writes.updates {
            UpdatedColumns::None => None,
            UpdatedColumns::These(columns) => Some(columns.clone()),
            UpdatedColumns::Any => Some(relation.columns.iter().map(|column| column.name.clone()).collect()),
        };
        let changes = [writes.deletes.then_some(RowChange::Deleted), updated.map(RowChange::Updated)];
        for change in changes.into_iter().flatten() {
            for reached in catalog.actions_after(relation, change, self.reader) {
                self.writes.insert(reached.relation.oid);
                self.relation_written(reached.relation.oid, Access::Action, &RowWrites::of_change(&reached.change));
            }
        }
        // With CASCADE; without it PostgreSQL refuses, whether there are such rows or not.
        if writes.truncates {
            for referring in catalog.referring_to(relation) {
                self.writes.insert(referring.oid);
                self.relation_written(referring.oid, Access::Action, &RowWrites::TRUNCATE);
            }
        }
    }

    /// A part that takes part in some writes only does so in these.
    pub(super) fn takes_part(&self, relation: &Relation, part: &super::super::Dependency, writes: &RowWrites) -> bool {
        use super::DependentKind as Kind;
        match part.of {
            Kind::View | Kind::Policy => true,
            Kind::Rule => self.catalog.events_of_rule(relation, &part.name).meets(writes.events()),
            Kind::Default | Kind::Check | Kind::Index => writes.stores(),
            Kind::TriggerWhen => {
                // A disabled one is not among them.
                let trigger = relation.triggers.iter().find(|trigger| trigger.name == part.name);
                trigger.is_some_and(|trigger| trigger.fires_for(writes))
            }
        }
    }
}

/// A word of what PostgreSQL prints.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Word<'a> {
    Plain(&'a str),
    Quoted(String),
    Other,
}

/// The words of a definition up to its first parenthesis or string. `None`: a quoted one has no end.
fn words_of(definition: &str) -> Option<Vec<Word<'_>>> {
    let mut words = Vec::new();
    let mut rest = definition;
    while let Some(first) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut name = String::new();
            let mut letters = quoted.char_indices().peekable();
            let end = loop {
                match letters.next()? {
                    (_, '"') if letters.peek().is_some_and(|(_, next)| *next == '"') => {
                        letters.next();
                        name.push('"');
                    }
                    (end, '"') => break end + 1,
                    (_, letter) => name.push(letter),
                }
            };
            words.push(Word::Quoted(name));
            rest = quoted.get(end..)?;
        } else if first == '(' || first == '\'' {
            break;
        } else if first.is_whitespace() {
            rest = rest.trim_start();
        } else {
            let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$';
            let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
            match end {
                0 => {
                    words.push(Word::Other);
                    rest = rest.get(first.len_utf8()..)?;
                }
                _ => {
                    words.push(Word::Plain(rest.get(..end)?));
                    rest = rest.get(end..)?;
                }
            }
        }
    }
    Some(words)
}
