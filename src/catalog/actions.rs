//! What foreign keys do to other rows when the rows that these refer to are deleted or changed.
//!
//! A statement names one table; ON DELETE CASCADE and its kind write others, whose own foreign keys go on from there, and whose
//! triggers fire. PostgreSQL does so on the server where the row is, as the owner of the table: policies do not look on.

use std::collections::BTreeSet;

use super::{BodyReader, Catalog, ForeignKey, Oid, Relation, RelationKind, TriggerEvents, quoted_literal};

/// ON DELETE or ON UPDATE of a foreign key. NO ACTION and RESTRICT only look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForeignKeyAction {
    #[default]
    Looks,
    Cascades,
    SetsNull,
    SetsDefault,
}

/// What happens to rows of a relation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowChange {
    Deleted,
    /// These columns may get other values.
    Updated(BTreeSet<String>),
}

/// One foreign key that changes rows of the relation it belongs to.
#[derive(Clone, Debug)]
pub struct ActionOn<'c> {
    pub relation: &'c Relation,
    pub foreign_key: &'c ForeignKey,
    pub action: ForeignKeyAction,
    pub change: RowChange,
}

impl ActionOn<'_> {
    /// Columns that the action itself sets.
    fn set(&self) -> &[String] {
        match (&self.change, self.action) {
            (RowChange::Updated(_), ForeignKeyAction::Cascades) => &self.foreign_key.columns,
            (RowChange::Updated(_), _) => self.foreign_key.set_columns(),
            (RowChange::Deleted, _) => &[],
        }
    }

    /// May the rows that it leaves have another value in the column? A column that cannot be NULL refuses to be set so.
    pub fn changes(&self, column: &str) -> bool {
        let RowChange::Updated(columns) = &self.change else { return false };
        let is_refused = self.action == ForeignKeyAction::SetsNull
            && self.set().iter().any(|set| set == column)
            && self.relation.column(column).is_some_and(|column| column.is_not_null);
        columns.contains(column) && !is_refused
    }
}

impl ForeignKey {
    /// What SET NULL and SET DEFAULT set.
    fn set_columns(&self) -> &[String] {
        if self.columns_set_on_delete.is_empty() { &self.columns } else { &self.columns_set_on_delete }
    }

    /// What it makes of its rows; `None`: it leaves them alone.
    fn answer(&self, change: &RowChange) -> Option<(ForeignKeyAction, RowChange)> {
        let set = |columns: &[String]| RowChange::Updated(columns.iter().cloned().collect());
        match (change, self.on_delete, self.on_update) {
            (RowChange::Deleted, ForeignKeyAction::Looks, _) | (RowChange::Updated(_), _, ForeignKeyAction::Looks) => None,
            (RowChange::Deleted, ForeignKeyAction::Cascades, _) => Some((ForeignKeyAction::Cascades, RowChange::Deleted)),
            (RowChange::Deleted, action, _) => Some((action, set(self.set_columns()))),
            (RowChange::Updated(changed), _, action) => {
                let pairs = self.columns.iter().zip(&self.referenced_columns);
                let changed: Vec<String> =
                    pairs.filter(|(_, referenced)| changed.contains(*referenced)).map(|(column, _)| column.clone()).collect();
                let columns = if action == ForeignKeyAction::Cascades { &changed } else { &self.columns };
                (!changed.is_empty()).then(|| (action, set(columns)))
            }
        }
    }
}

impl Catalog {
    /// All that foreign keys do when rows of the relation change so, however many tables away.
    pub fn actions_after<'c>(&'c self, relation: &'c Relation, change: RowChange, reader: &dyn BodyReader) -> Vec<ActionOn<'c>> {
        let mut found: Vec<ActionOn<'c>> = Vec::new();
        let mut waiting = vec![(relation, self.with_own_changes(relation, change, reader))];
        while let Some((relation, change)) = waiting.pop() {
            let holders = self.holders_of_rows(relation);
            let referring = self.relations.values().flat_map(|from| from.foreign_keys.iter().map(move |key| (from, key)));
            for (from, foreign_key) in referring.filter(|(_, key)| holders.contains(&key.referenced)) {
                let Some((action, change)) = foreign_key.answer(&change) else { continue };
                let change = self.with_own_changes(from, change, reader);
                let is_known = |known: &ActionOn<'_>| {
                    known.relation.oid == from.oid && known.foreign_key.name == foreign_key.name && known.change == change
                };
                if !found.iter().any(is_known) {
                    waiting.push((from, change.clone()));
                    found.push(ActionOn { relation: from, foreign_key, action, change });
                }
            }
        }
        found.sort_by(|a, b| {
            (a.relation.oid, &a.foreign_key.name, &a.change).cmp(&(b.relation.oid, &b.foreign_key.name, &b.change))
        });
        found
    }

    /// The same where it is not known which columns are changed, nor whether rows are deleted.
    pub fn actions_after_any<'c>(&'c self, relation: &'c Relation, reader: &dyn BodyReader) -> Vec<ActionOn<'c>> {
        let columns = relation.columns.iter().map(|column| column.name.clone()).collect();
        let mut found = self.actions_after(relation, RowChange::Deleted, reader);
        found.extend(self.actions_after(relation, RowChange::Updated(columns), reader));
        found
    }

    /// For which triggers an UPDATE that assigns these columns may fire. A row that gets to another partition is deleted from its own
    /// and inserted there.
    pub fn events_of_update(&self, relation: &Relation, columns: BTreeSet<String>, reader: &dyn BodyReader) -> TriggerEvents {
        let change = self.with_own_changes(relation, RowChange::Updated(columns), reader);
        let is_changed = |column: &String| matches!(&change, RowChange::Updated(columns) if columns.contains(column));
        let moves_rows =
            |member: &&Relation| member.partition_columns.as_ref().is_none_or(|columns| columns.iter().any(is_changed));
        match self.family(relation).iter().any(moves_rows) {
            true => TriggerEvents::MOVE,
            false => TriggerEvents::UPDATE,
        }
    }

    /// Whose foreign keys refer to the relation's rows.
    pub(super) fn referring_to(&self, relation: &Relation) -> impl Iterator<Item = &Relation> {
        let holders = self.holders_of_rows(relation);
        self.relations.values().filter(move |from| from.foreign_keys.iter().any(|key| holders.contains(&key.referenced)))
    }

    /// What triggers of the row set besides, and what is generated anew.
    pub(super) fn with_own_changes(&self, relation: &Relation, change: RowChange, reader: &dyn BodyReader) -> RowChange {
        let RowChange::Updated(mut columns) = change else { return change };
        for member in self.family(relation) {
            let before = member.triggers.iter().filter(|trigger| trigger.is_before && trigger.is_row && trigger.fires_on.update);
            // PostgreSQL's own change nothing that is referred to.
            for trigger in before {
                let Some(function) = self.functions.get(&trigger.function) else { continue };
                let all = relation.columns.iter().map(|column| column.name.clone());
                match self.assigned_new_columns(trigger.function, reader) {
                    // Those of extensions set what they are given: `moddatetime('updated_at')`.
                    None if function.is_extension_member => {
                        columns.extend(all.filter(|column| trigger.definition.contains(&quoted_literal(column))));
                    }
                    Some(assigned) => columns.extend(assigned),
                    None => columns.extend(all),
                }
            }
        }
        columns.extend(relation.columns.iter().filter(|column| column.is_generated).map(|column| column.name.clone()));
        RowChange::Updated(columns)
    }

    /// A foreign key may refer to the relation's rows by any of these.
    fn holders_of_rows(&self, relation: &Relation) -> BTreeSet<Oid> {
        let mut holders: BTreeSet<Oid> = self.family(relation).iter().map(|member| member.oid).collect();
        let mut partition = relation;
        let is_partitioned = |parent: &&Relation| parent.kind == RelationKind::PartitionedTable;
        while let Some(parent) = partition.parents.first().and_then(|parent| self.relations.get(parent)).filter(is_partitioned) {
            holders.insert(parent.oid);
            partition = parent;
        }
        holders
    }
}
