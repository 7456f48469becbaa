//! Triggers while a column is filled: those that would fire are disabled before, and are afterwards what they were.
//!
//! `ALTER TABLE` of a partitioned table changes its row triggers on its partitions, too, where they may have been enabled otherwise;
//! partitions may also have triggers of their own. Triggers of statements fire on the table that the statement names only.

use std::collections::BTreeMap;

use crate::catalog::{Catalog, ObjectName, Oid, Relation, quoted_identifier};

/// Parts of `ALTER TABLE`, by table, before and after. Parents come before their partitions.
#[derive(Debug, Default)]
pub(super) struct Silenced<'c> {
    pub(super) off: Vec<(&'c Relation, Vec<String>)>,
    pub(super) on: Vec<(&'c Relation, Vec<String>)>,
}

/// `pg_trigger.tgenabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Firing {
    Usually,
    Always,
    InReplicas,
    Never,
}

impl<'c> Silenced<'c> {
    pub(super) fn find(catalog: &'c Catalog, root: &'c Relation) -> Self {
        let mut silenced = Self::default();
        // By table: row triggers that the statements above silence on it, and what the same statements make of them afterwards.
        let mut reached: BTreeMap<Oid, BTreeMap<&str, Firing>> = BTreeMap::new();
        for relation in catalog.family(root) {
            let mut known: BTreeMap<&str, Firing> = relation
                .parents
                .iter()
                .filter_map(|parent| reached.get(parent))
                .flatten()
                .map(|(name, firing)| (*name, *firing))
                .collect();
            let (mut off, mut on) = (Vec::new(), Vec::new());
            for (name, firing) in &mut known {
                // Servers that do not list them on partitions have them there as on the parent.
                let own = printed_firing(catalog, relation, name).unwrap_or(*firing);
                if own != *firing {
                    on.push(own.command(name));
                    *firing = own;
                }
            }
            for trigger in relation.triggers.iter().filter(|trigger| trigger.fires_on.update) {
                let firing = printed_firing(catalog, relation, &trigger.name).unwrap_or(Firing::Usually);
                let fires = firing != Firing::InReplicas && (trigger.is_row || relation.oid == root.oid);
                if !fires || known.contains_key(trigger.name.as_str()) {
                    continue;
                }
                off.push(Firing::Never.command(&trigger.name));
                on.push(firing.command(&trigger.name));
                if trigger.is_row {
                    known.insert(&trigger.name, firing);
                }
            }
            silenced.off.extend((!off.is_empty()).then_some((relation, off)));
            silenced.on.extend((!on.is_empty()).then_some((relation, on)));
            reached.insert(relation.oid, known);
        }
        silenced
    }
}

impl Firing {
    fn command(self, name: &str) -> String {
        let command = match self {
            Firing::Usually => "ENABLE TRIGGER",
            Firing::Always => "ENABLE ALWAYS TRIGGER",
            Firing::InReplicas => "ENABLE REPLICA TRIGGER",
            Firing::Never => "DISABLE TRIGGER",
        };
        format!("{command} {}", quoted_identifier(name))
    }
}

/// As its definition says it, which disabled triggers have as well.
fn printed_firing(catalog: &Catalog, relation: &Relation, name: &str) -> Option<Firing> {
    let definition = catalog.definitions.get(&ObjectName::part_of(relation.whole(), "trigger", name))?;
    let endings = [("(enabled: A)", Firing::Always), ("(enabled: R)", Firing::InReplicas), ("(enabled: D)", Firing::Never)];
    let firing = endings.iter().find(|(ending, _)| definition.ends_with(ending)).map(|(_, firing)| *firing);
    Some(firing.unwrap_or(Firing::Usually))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{RelationKind, Trigger, TriggerEvents};

    /// `triggers`: name, whether for each row, how it fires (`O`, `A`, `R` or `D`, as PostgreSQL has it).
    fn relation(catalog: &mut Catalog, (oid, name): (Oid, &str), parent: Option<Oid>, triggers: &[(&str, bool, char)]) {
        let kind = if name.contains('_') { RelationKind::Table } else { RelationKind::PartitionedTable };
        let mut relation = Relation { parents: parent.into_iter().collect(), ..Relation::bare(oid, "public", name, kind) };
        for (trigger, is_row, firing) in triggers {
            let definition = match firing {
                'O' => "CREATE TRIGGER".to_owned(),
                other => format!("CREATE TRIGGER (enabled: {other})"),
            };
            catalog.definitions.insert(ObjectName::part_of(relation.whole(), "trigger", *trigger), definition);
            if *firing != 'D' {
                relation.triggers.push(Trigger {
                    name: (*trigger).to_owned(),
                    function: 1,
                    is_before: false,
                    is_row: *is_row,
                    is_instead: false,
                    fires_on: TriggerEvents::UPDATE,
                    has_transition_tables: false,
                    definition: "CREATE TRIGGER".to_owned(),
                });
            }
        }
        if let Some(parent) = parent.and_then(|parent| catalog.relations.get_mut(&parent)) {
            parent.children.push(oid);
        }
        catalog.relations.insert(oid, relation);
    }

    fn shown(by_relation: &[(&Relation, Vec<String>)]) -> Vec<String> {
        by_relation.iter().map(|(relation, parts)| format!("{}: {}", relation.name, parts.join(", "))).collect()
    }

    #[test]
    fn triggers_of_partitions_are_silenced_and_end_as_they_were() {
        let mut catalog = Catalog::default();
        relation(&mut catalog, (1, "t"), None, &[("Touch", true, 'A'), ("each", false, 'O'), ("copied", true, 'R')]);
        // The parent's, and nothing else.
        relation(&mut catalog, (2, "t_1"), Some(1), &[("Touch", true, 'A'), ("copied", true, 'R')]);
        // The parent's is disabled; others are its own, and one of them is of statements.
        relation(
            &mut catalog,
            (3, "t_2"),
            Some(1),
            &[("Touch", true, 'D'), ("copied", true, 'R'), ("own", true, 'O'), ("of", false, 'O')],
        );
        // A server that does not list the parent's here.
        relation(&mut catalog, (4, "t_3"), Some(1), &[]);
        let root = catalog.relations.get(&1).expect("made");
        let silenced = Silenced::find(&catalog, root);
        assert_eq!(
            shown(&silenced.off),
            ["t: DISABLE TRIGGER \"Touch\", DISABLE TRIGGER \"each\"", "t_2: DISABLE TRIGGER \"own\""]
        );
        assert_eq!(
            shown(&silenced.on),
            [
                "t: ENABLE ALWAYS TRIGGER \"Touch\", ENABLE TRIGGER \"each\"",
                "t_2: DISABLE TRIGGER \"Touch\", ENABLE TRIGGER \"own\""
            ]
        );
        let partition = catalog.relations.get(&2).expect("made");
        assert_eq!(shown(&Silenced::find(&catalog, partition).off), ["t_1: DISABLE TRIGGER \"Touch\""]);
    }
}
