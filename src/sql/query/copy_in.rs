//! COPY FROM STDIN into a sharded or reference table: its rows are made as those of an INSERT are.
//!
//! The key of each row stands in its data, or is numbered by a cluster-wide sequence. What a shard would compute for a row
//! (defaults, the WHERE of COPY) must be the same on every shard: numbers and clocks are given to it.

use pg_raw_parse::nodes;

use super::bind::Reader;
use super::expression::{Findings, Scope};
use super::insert::unknown_key;
use super::leaves::LeafKey;
use super::modify::{Target, TargetKind};
use super::relations::{Resolved, resolve};
use super::scope::Frame;
use crate::catalog::{Column, Relation, TriggerEvents};
use crate::error::PgError;
use crate::shard_key::oid;
use crate::sql::analysis::{KeyCondition, Numbers, Part};
use crate::sql::rewrite::staging::clock_default;
use crate::sql::utility::copy_in::{AddedColumn, AddedValue, CopyIn, CopyKey, KeySource, is_listed, listed_columns};

impl<'c> Reader<'c> {
    /// `None`: a table of another kind.
    pub fn copy_in(&mut self, copy: &nodes::CopyStmt, name: &nodes::RangeVar) -> Result<Option<CopyIn>, PgError> {
        match resolve(self.context, name, &self.search_path) {
            Resolved::Sharded { .. } | Resolved::Reference(_) => {}
            Resolved::Home(_)
            | Resolved::View(_)
            | Resolved::System
            | Resolved::Map(_)
            | Resolved::Proxy(_)
            | Resolved::Mixed(_) => return Ok(None),
        }
        self.notes.writes();
        let mut frame = Frame::default();
        let target = self.target(name, &mut frame, TriggerEvents::INSERT)?;
        self.note_notifying(&target, TriggerEvents::INSERT);
        let Some(relation) = target.relation else { return Ok(None) };
        let listed = listed_columns(copy);
        let columns: Vec<&str> = match listed.is_empty() {
            true => relation.columns.iter().filter(|column| !column.is_generated).map(|column| column.name.as_str()).collect(),
            false => listed,
        };
        let may_draw = |column: &Column| match &target.kind {
            TargetKind::Sharded { key, .. } => key.iter().any(|key| key.column.column == column.name),
            TargetKind::Replicated => true,
            TargetKind::Home => false,
        };
        let added = match copy.attlist().is_empty() {
            true => Vec::new(),
            false => self.added_columns(copy, relation, &columns, &may_draw),
        };
        let scope = Scope { frame: &frame, ctes: &None, windows: None };
        let mut findings = Findings::default();
        self.filter(copy.where_clause(), &scope, &mut findings)?;
        let mut copy_in = CopyIn::read(copy, &relation.schema, &relation.name)?;
        copy_in.column_count = columns.len();
        copy_in.added = added;
        copy_in.fires_per_statement = relation.triggers.iter().any(|trigger| !trigger.is_row && trigger.fires_on.insert);
        if let TargetKind::Sharded { group, key } = &target.kind {
            for key in key {
                let key = self.copied_key(copy, key, &target, (&columns, &copy_in.added))?;
                copy_in.key.push(key);
            }
            let names: Vec<_> = key.iter().map(|key| key.column.clone()).collect();
            let part = Part::Sharded { group: *group, condition: KeyCondition::All, stores: true };
            self.add_part(part, &relation.name, &names);
        }
        let added = &copy_in.added;
        self.check_made_rows(&target, &|column| columns.contains(&column) || added.iter().any(|added| added.name == column));
        Ok(Some(copy_in))
    }

    /// Into a table of the home shard, or through a view: as an INSERT there. False: another table, or none that is known.
    pub fn copy_in_at_home(&mut self, copy: &nodes::CopyStmt, name: &nodes::RangeVar) -> Result<bool, PgError> {
        let resolved = resolve(self.context, name, &self.search_path);
        if !matches!(resolved, Resolved::Home(Some(_)) | Resolved::View(_)) {
            return Ok(false);
        }
        self.notes.writes();
        let mut frame = Frame::default();
        let target = self.target(name, &mut frame, TriggerEvents::INSERT)?;
        self.note_notifying(&target, TriggerEvents::INSERT);
        let scope = Scope { frame: &frame, ctes: &None, windows: None };
        self.filter(copy.where_clause(), &scope, &mut Findings::default())?;
        let listed = listed_columns(copy);
        self.check_made_rows(&target, &|column| listed.is_empty() || listed.contains(&column));
        self.parts.push(Part::Home);
        Ok(true)
    }

    /// From a table that one server has whole, under policies. False: another one, which has its rows' policies where they are.
    pub fn copy_out_of_one_server(&mut self, name: &nodes::RangeVar) -> bool {
        let relation = match resolve(self.context, name, &self.search_path) {
            Resolved::Home(Some(relation)) => {
                self.parts.push(Part::Home);
                relation
            }
            Resolved::Reference(relation) => {
                self.notes.reads_replicated();
                relation
            }
            Resolved::Home(None)
            | Resolved::Sharded { .. }
            | Resolved::View(_)
            | Resolved::System
            | Resolved::Map(_)
            | Resolved::Proxy(_)
            | Resolved::Mixed(_) => return false,
        };
        self.notes.touches(relation.oid);
        relation.has_row_security
    }

    /// What the shards would number or date, each for itself. `may_draw`: each row gets a value of its own before it has a shard.
    fn added_columns(
        &mut self,
        copy: &nodes::CopyStmt,
        relation: &Relation,
        columns: &[&str],
        may_draw: &dyn Fn(&Column) -> bool,
    ) -> Vec<AddedColumn> {
        // One that an option names is PostgreSQL's to refuse: it is not copied.
        let is_forced = |name: &str| ["force_not_null", "force_null"].iter().any(|option| is_listed(copy, option, name));
        let is_left_out =
            |column: &&Column| !column.is_generated && !columns.contains(&column.name.as_str()) && !is_forced(&column.name);
        let added = relation.columns.iter().filter(is_left_out).filter_map(|column| {
            let value = match column.cluster_sequence() {
                Some(sequence) if column.identity.is_some() => AddedValue::Identity(sequence),
                Some(sequence) => AddedValue::Number(sequence),
                None if column.is_unique_id() => AddedValue::UniqueId,
                None if is_uuid(column) && may_draw(column) => AddedValue::Uuid,
                None => AddedValue::Constant(clock_default(column, self.context)?.to_owned()),
            };
            Some(AddedColumn { name: column.name.clone(), type_oid: column.type_oid, value })
        });
        let added: Vec<AddedColumn> = added.collect();
        let is_drawn = |value: &AddedValue| matches!(value, AddedValue::Number(_) | AddedValue::Identity(_) | AddedValue::UniqueId);
        if added.iter().any(|added| is_drawn(&added.value)) {
            self.note_numbers(Numbers::Drawn);
        }
        added
    }

    fn copied_key(
        &mut self,
        copy: &nodes::CopyStmt,
        key: &LeafKey<'c>,
        target: &Target<'c>,
        (columns, added): (&[&str], &[AddedColumn]),
    ) -> Result<CopyKey, PgError> {
        let name = key.column.column.as_str();
        let column = target.relation.and_then(|relation| relation.column(name));
        let column = column.ok_or_else(|| unknown_key(name, "The column is not known."))?;
        let in_row = columns.iter().position(|listed| *listed == name).map(KeySource::Row);
        let source = in_row.or_else(|| added.iter().position(|added| added.name == name).map(KeySource::Added));
        if source.is_none() && (column.default.is_some() || column.identity.is_some()) {
            self.notes.not_pushable(unknown_key(name, "Its value is the column's default, which the shard would compute."));
        }
        Ok(CopyKey {
            source: source.unwrap_or(KeySource::Null),
            column_type: key.column.column_type,
            function: key.column.function.clone(),
            typmod: column.typmod,
            is_not_null: column.is_not_null,
            is_forced_not_null: is_listed(copy, "force_not_null", name),
            is_forced_null: is_listed(copy, "force_null", name),
        })
    }
}

/// Its default is drawn as the proxy draws it.
fn is_uuid(column: &Column) -> bool {
    column.type_oid == oid::UUID && !column.is_generated && column.default.as_deref() == Some("gen_random_uuid()")
}
