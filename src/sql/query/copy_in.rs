//! COPY FROM STDIN into a sharded or reference table: its rows are made as those of an INSERT are.
//!
//! The key of each row stands in its data. What a shard would compute for a row (defaults, the WHERE of COPY) must be the same
//! on every shard.

use pg_raw_parse::nodes;

use super::bind::Reader;
use super::expression::{Findings, Scope};
use super::insert::unknown_key;
use super::leaves::LeafKey;
use super::modify::{Target, TargetKind};
use super::relations::{Resolved, resolve};
use super::scope::Frame;
use crate::error::PgError;
use crate::sql::analysis::KeyCondition;
use crate::sql::copy_in::{CopyIn, CopyKey, is_listed, listed_columns};

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
        let target = self.target(name, &mut frame)?;
        let Some(relation) = target.relation else { return Ok(None) };
        let listed = listed_columns(copy);
        let columns: Vec<&str> = match listed.is_empty() {
            true => relation.columns.iter().filter(|column| !column.is_generated).map(|column| column.name.as_str()).collect(),
            false => listed,
        };
        self.check_made_rows(&target, &|column| columns.contains(&column));
        let scope = Scope { frame: &frame, ctes: &None, windows: None };
        let mut findings = Findings::default();
        self.filter(copy.where_clause(), &scope, &mut findings)?;
        let mut copy_in = CopyIn::read(copy, &relation.schema, &relation.name)?;
        copy_in.fires_per_statement = relation.triggers.iter().any(|trigger| !trigger.is_row && trigger.fires_on.insert);
        if let TargetKind::Sharded { group, key } = &target.kind {
            for key in key {
                let key = self.copied_key(copy, key, &target, &columns)?;
                copy_in.key.push(key);
            }
            let names: Vec<_> = key.iter().map(|key| key.column.clone()).collect();
            self.add_part(*group, KeyCondition::All, &relation.name, &names);
        }
        Ok(Some(copy_in))
    }

    fn copied_key(
        &mut self,
        copy: &nodes::CopyStmt,
        key: &LeafKey<'c>,
        target: &Target<'c>,
        columns: &[&str],
    ) -> Result<CopyKey, PgError> {
        let name = key.column.column.as_str();
        let column = target.relation.and_then(|relation| relation.column(name));
        let column = column.ok_or_else(|| unknown_key(name, "The column is not known."))?;
        let position = columns.iter().position(|listed| *listed == name);
        if position.is_none() && (column.default.is_some() || column.identity.is_some()) {
            self.notes.not_pushable(unknown_key(name, "Its value is the column's default, which the shard would compute."));
        }
        Ok(CopyKey {
            position,
            column_type: key.column.column_type,
            function: key.column.function.clone(),
            typmod: column.typmod,
            is_not_null: column.is_not_null,
            is_forced_not_null: is_listed(copy, "force_not_null", name),
            is_forced_null: is_listed(copy, "force_null", name),
        })
    }
}
