//! DISTINCT, DISTINCT ON and UNION over several shards: each shard drops its own duplicates, the proxy those between shards.

use pg_raw_parse::list::NodeList;

use super::bind::Reader;
use super::merge::Assembly;
use super::placement::{Combined, CombinedBy};
use super::scope::{Frame, Resolution};
use super::{Bound, OrderBy, Output};
use crate::error::PgError;
use crate::sql::analysis::{Combine, DistinctRows, RowKeyColumn};
use crate::sql::parse::tree;
use pg_raw_parse::Node;

/// What tells rows apart, before hidden columns have their places.
pub enum Distinction {
    Rows(DistinctRows),
    On(Vec<OnItem>),
}

/// An item of DISTINCT ON.
#[derive(Clone, Debug, PartialEq)]
pub struct OnItem {
    pub by: OrderBy,
    pub is_deterministic: bool,
    pub is_enum: bool,
}

impl Reader<'_> {
    /// DISTINCT ON of the outermost query: names mean outputs first, as in ORDER BY.
    pub fn distinct_on(&mut self, clause: &NodeList, frame: &Frame<'_>, (outputs, is_complete): (&[Output], bool)) -> Vec<OnItem> {
        let mut items: Vec<OnItem> = Vec::new();
        for node in clause {
            let by = match node {
                Node::A_Const(_) | Node::ColumnRef(_) => self.order_by(node, Some(frame), (outputs, is_complete)).0,
                _ => OrderBy::Other,
            };
            let properties = match (&by, node) {
                (OrderBy::Output(index), _) => outputs.get(*index).map(|output| output.properties.clone()),
                (OrderBy::Hidden(_), Node::ColumnRef(column)) => {
                    let path = tree::names(column.fields()).unwrap_or_default();
                    match frame.resolve(&path, &self.leaves) {
                        Resolution::Column(column) => Some(self.properties(column)),
                        Resolution::Unknown => None,
                    }
                }
                _ => None,
            }
            .unwrap_or_default();
            let is_enum = self.is_enum(properties.type_oid);
            let item = OnItem { by, is_deterministic: properties.is_deterministic, is_enum };
            if !items.contains(&item) {
                items.push(item);
            }
        }
        items
    }

    pub fn distinct_rows(&mut self, bound: &Bound, combined: Combined) -> Result<Distinction, PgError> {
        if !bound.is_complete {
            return Err(combined.reason);
        }
        if combined.by != CombinedBy::DistinctOn {
            let properties = || bound.outputs.iter().map(|output| &output.properties);
            let is_deterministic = properties().map(|properties| properties.is_deterministic).collect();
            let is_enum = properties().map(|properties| self.is_enum(properties.type_oid)).collect();
            return Ok(Distinction::Rows(DistinctRows::Whole { is_deterministic, is_enum }));
        }
        let items = std::mem::take(&mut self.distinct_on_items);
        // PostgreSQL wants the items of DISTINCT ON first in ORDER BY; an order that is not understood so would choose other rows.
        let leading = bound.order.iter().take(items.len());
        let is_known = |by: &OrderBy| *by != OrderBy::Other;
        let are_first = leading.into_iter().all(|order| items.iter().any(|item| item.by == order.by));
        if items.is_empty() || !items.iter().all(|item| is_known(&item.by)) || !are_first {
            return Err(combined.reason);
        }
        Ok(Distinction::On(items))
    }

    pub fn hide_keys(&self, distinction: Distinction, assembly: &mut Assembly) -> Result<Combine, PgError> {
        let rows = match distinction {
            Distinction::Rows(rows) => rows,
            Distinction::On(items) => {
                let column = |item: OnItem| {
                    let column = match item.by {
                        OrderBy::Output(index) => index,
                        OrderBy::Hidden(sql) => assembly.hide(sql),
                        OrderBy::Other => return Err(super::merge::unknown_order()),
                    };
                    Ok(RowKeyColumn { column, is_deterministic: item.is_deterministic, is_enum: item.is_enum })
                };
                DistinctRows::On(items.into_iter().map(column).collect::<Result<_, _>>()?)
            }
        };
        Ok(Combine::Distinct(rows))
    }
}
