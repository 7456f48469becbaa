//! The select list and what refers to it: outputs, `*`, ORDER BY, GROUP BY, DISTINCT.

use pg_raw_parse::list::NodeList;
use pg_raw_parse::{ConstValue, Node, nodes};

use super::bind::Reader;
use super::column_name::column_name;
use super::expression::{Findings, Place, Scope};
use super::predicate::{Operand, is_star};
use super::scope::{Frame, Resolution, Visible, VisibleColumns};
use super::{Column, ColumnProperties, Distinct, Grouping, ItemOrder, OrderBy, OrderItem, Output, Term};
use crate::catalog::quoted_identifier;
use crate::error::PgError;
use crate::shard_key::oid;
use crate::sql::analysis::TextOrder;
use crate::sql::parse::tree;

impl<'c> Reader<'c> {
    pub fn targets<'n>(
        &mut self,
        targets: impl Iterator<Item = &'n nodes::ResTarget>,
        scope: &Scope<'_, 'n>,
        findings: &mut Findings,
    ) -> Result<(Vec<Output>, bool), PgError> {
        let mut outputs = Vec::new();
        let mut is_complete = true;
        for target in targets {
            self.scan(target.val(), scope, Place::Output, findings)?;
            match target.val() {
                Node::ColumnRef(column) if matches!(column.fields().iter().next_back(), Some(Node::A_Star(_))) => {
                    is_complete &= self.star(column, scope.frame, &mut outputs);
                }
                value => {
                    // `(value).*` is as many columns as its type has; it stands here as one.
                    is_complete &= !is_star(value);
                    let (origin, properties) = self.origin(value, scope.frame);
                    let name = target.name().map(str::to_owned).unwrap_or_else(|| column_name(value));
                    outputs.push(Output { name, origin, properties });
                }
            }
        }
        Ok((outputs, is_complete))
    }

    fn origin(&mut self, value: Node<'_>, frame: &Frame<'_>) -> (Option<Term>, ColumnProperties) {
        if let Node::ColumnRef(column) = value {
            let path = tree::names(column.fields()).unwrap_or_default();
            return match frame.resolve(&path, &self.leaves) {
                Resolution::Column(column) => (Some(column.into()), self.properties(column)),
                Resolution::Unknown => (None, ColumnProperties::default()),
            };
        }
        match self.operand(value, frame) {
            Operand::Term(term, term_type) => {
                let base = self.properties(term.column);
                let has_equal_image = self.output_has_equal_image(value, frame);
                let properties = ColumnProperties { type_oid: term_type.oid(), typmod: -1, has_equal_image, ..base };
                (Some(term), properties)
            }
            Operand::Value(_) | Operand::Other => {
                let is_collation_c = self.sorts_bytewise(value, frame);
                let is_deterministic = self.compares_bytewise(value, frame);
                let collation = self.collation_of_value(value, frame);
                let has_equal_image = self.output_has_equal_image(value, frame);
                let unknown = ColumnProperties::default();
                (None, ColumnProperties { is_collation_c, is_deterministic, collation, has_equal_image, ..unknown })
            }
        }
    }

    /// ORDER BY, as far as the proxy could follow it.
    pub fn order(
        &mut self,
        select: &nodes::SelectStmt,
        frame: Option<&Frame<'_>>,
        (outputs, is_complete): (&[Output], bool),
    ) -> Vec<OrderItem> {
        let mut items = Vec::new();
        for (index, sort) in select.sort_clause().iter().enumerate() {
            let is_descending = sort.sortby_dir == nodes::SortByDir::SORTBY_DESC;
            let is_nulls_first = match sort.sortby_nulls {
                nodes::SortByNulls::SORTBY_NULLS_FIRST => true,
                nodes::SortByNulls::SORTBY_NULLS_LAST => false,
                _ => is_descending,
            };
            let (by, order) = if sort.sortby_dir == nodes::SortByDir::SORTBY_USING {
                (OrderBy::Other, ItemOrder::default())
            } else {
                match self.order_by(sort.node(), frame, (outputs, is_complete)) {
                    (OrderBy::Other, _) => self.order_expression(sort.node(), index, frame),
                    found => found,
                }
            };
            items.push(OrderItem { by, is_descending, is_nulls_first, order });
        }
        items
    }

    /// The n-th output, an output's name, or a column. `is_complete`: all outputs are known.
    pub fn order_by(
        &mut self,
        node: Node<'_>,
        frame: Option<&Frame<'_>>,
        (outputs, is_complete): (&[Output], bool),
    ) -> (OrderBy, ItemOrder) {
        let unknown = || (OrderBy::Other, ItemOrder::default());
        let of_output = |index: usize| outputs.get(index).map(|output| item_order(&output.properties)).unwrap_or_default();
        match node {
            Node::A_Const(constant) => match constant.val() {
                Some(ConstValue::Integer(number)) => {
                    self.fix_literal(constant.location);
                    let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
                    index.map_or_else(unknown, |index| (OrderBy::Output(index), of_output(index)))
                }
                _ => unknown(),
            },
            Node::CollateClause(collate) => {
                let names = tree::names(collate.collname()).unwrap_or_default();
                if !matches!(names.last(), Some(&("C" | "POSIX"))) {
                    return unknown();
                }
                match (collate.arg(), frame) {
                    (Node::ColumnRef(column), Some(frame)) => match self.order_column(column, frame, outputs) {
                        (OrderBy::Output(index), _) => (OrderBy::Output(index), bytewise()),
                        _ => unknown(),
                    },
                    _ => unknown(),
                }
            }
            Node::ColumnRef(column) => {
                if let Some(name) = tree::single_name(column.fields()) {
                    let named = outputs.iter().position(|output| output.name == name);
                    if let Some(index) = named {
                        return (OrderBy::Output(index), of_output(index));
                    }
                    if !is_complete {
                        // Perhaps one that is not known has the name.
                        return unknown();
                    }
                }
                match frame {
                    Some(frame) => self.order_column(column, frame, outputs),
                    None => unknown(),
                }
            }
            _ => unknown(),
        }
    }

    /// Any other expression is computed by the shards as one more column. Names in it are those of FROM.
    fn order_expression(&self, node: Node<'_>, index: usize, frame: Option<&Frame<'_>>) -> (OrderBy, ItemOrder) {
        let range = self.outline.as_ref().filter(|_| self.depth == 1).and_then(|outline| outline.order_items.get(index));
        let text = range.and_then(|range| self.text.get(range.clone()));
        // A constant sorts nothing, or is a mistake. A bare name may be that of an output which is not known.
        let is_expression = match node {
            Node::A_Const(_) => false,
            // One row as a whole here, many columns in a select list.
            node if is_star(node) => false,
            Node::ColumnRef(column) => column.fields().len() > 1,
            _ => true,
        };
        match (text, frame) {
            (Some(text), Some(frame)) if is_expression => (OrderBy::Hidden(text.to_owned()), self.order_of_value(node, frame)),
            _ => (OrderBy::Other, ItemOrder::default()),
        }
    }

    /// A column of FROM: one that is selected, or one that has to be.
    fn order_column(&mut self, column: &nodes::ColumnRef, frame: &Frame<'_>, outputs: &[Output]) -> (OrderBy, ItemOrder) {
        let path = tree::names(column.fields()).unwrap_or_default();
        let Resolution::Column(found) = frame.resolve(&path, &self.leaves) else {
            return (OrderBy::Other, ItemOrder::default());
        };
        let text = item_order(&self.properties(found));
        match outputs.iter().position(|output| output.origin == Some(found.into())) {
            Some(index) => (OrderBy::Output(index), text),
            None => (OrderBy::Hidden(quoted_path(&path)), text),
        }
    }

    /// Expands `*` or `t.*`; `false` when the columns are not known.
    fn star(&mut self, column: &nodes::ColumnRef, frame: &Frame<'_>, outputs: &mut Vec<Output>) -> bool {
        let qualifier: Vec<&str> = column.fields().iter().filter_map(Node::as_str).collect();
        let (schema, table) = match qualifier.as_slice() {
            [] => (None, None),
            [table] => (None, Some(*table)),
            [schema, table] => (Some(*schema), Some(*table)),
            _ => return false,
        };
        if table.is_none() && (!frame.merged.is_empty() || frame.has_unknown_merge) {
            return false;
        }
        let mut is_complete = true;
        let mut is_found = false;
        for item in frame.items.iter().filter(|item| table.is_none_or(|table| item.is_called(schema, table))) {
            is_found = true;
            is_complete &= self.star_of(item, outputs);
        }
        is_found && is_complete
    }

    pub fn star_of(&self, item: &Visible, outputs: &mut Vec<Output>) -> bool {
        match &item.columns {
            VisibleColumns::Leaf(leaf_index) => {
                let Some(leaf) = self.leaves.get(*leaf_index) else {
                    return false;
                };
                let Some(count) = leaf.column_count() else {
                    return false;
                };
                for index in 0..count {
                    let column = Column { leaf: *leaf_index, index };
                    outputs.push(Output {
                        name: leaf.column_name(index).unwrap_or_default().to_owned(),
                        origin: Some(column.into()),
                        properties: self.properties(column),
                    });
                }
                true
            }
            VisibleColumns::Join { columns, is_complete } => {
                for (name, column) in columns {
                    let properties = column.map(|column| self.properties(column)).unwrap_or_default();
                    outputs.push(Output { name: name.clone(), origin: column.map(Term::from), properties });
                }
                *is_complete
            }
        }
    }

    pub fn grouping<'n>(
        &mut self,
        select: &'n nodes::SelectStmt,
        scope: &Scope<'_, 'n>,
        outputs: (&[Output], bool),
        findings: &mut Findings,
    ) -> Result<Grouping, PgError> {
        let mut terms = Vec::new();
        let mut has_sets = false;
        for item in select.group_clause() {
            self.scan(item, scope, Place::Inside, findings)?;
            has_sets |= matches!(item, Node::GroupingSet(_));
            terms.extend(self.named_or_numbered(item, scope.frame, outputs, true));
        }
        self.scan(select.having_clause(), scope, Place::Inside, findings)?;
        Ok(match (select.group_clause().is_empty(), has_sets) {
            (true, _) if matches!(select.having_clause(), Node::None) => Grouping::None,
            (true, _) => Grouping::Whole,
            (false, true) => Grouping::Sets,
            (false, false) => Grouping::By(terms),
        })
    }

    pub fn distinct<'n>(
        &mut self,
        clause: &'n NodeList,
        scope: &Scope<'_, 'n>,
        outputs: (&[Output], bool),
        findings: &mut Findings,
    ) -> Result<Distinct, PgError> {
        match clause.first() {
            None => Ok(Distinct::None),
            Some(Node::None) => Ok(Distinct::Rows),
            Some(_) => {
                let mut terms = Vec::new();
                for item in clause {
                    self.scan(item, scope, Place::Inside, findings)?;
                    terms.extend(self.named_or_numbered(item, scope.frame, outputs, false));
                }
                Ok(Distinct::On(terms))
            }
        }
    }

    /// An item of GROUP BY or DISTINCT ON: the n-th output, an output's name, or an expression. GROUP BY takes a name for a column of FROM
    /// where there is one, DISTINCT ON for an output. `is_complete`: all outputs are known.
    fn named_or_numbered(
        &mut self,
        item: Node<'_>,
        frame: &Frame<'_>,
        (outputs, is_complete): (&[Output], bool),
        inputs_first: bool,
    ) -> Option<Term> {
        if let Node::A_Const(constant) = item {
            let Some(ConstValue::Integer(number)) = constant.val() else {
                return None;
            };
            self.fix_literal(constant.location);
            let index = usize::try_from(number).ok()?.checked_sub(1)?;
            return outputs.get(index).filter(|_| is_complete)?.origin.clone();
        }
        let name = match item {
            Node::ColumnRef(column) => tree::single_name(column.fields()),
            _ => None,
        };
        let output = name.and_then(|name| outputs.iter().find(|output| output.name == name));
        if !inputs_first && (output.is_some() || (name.is_some() && !is_complete)) {
            return output.filter(|_| is_complete)?.origin.clone();
        }
        let input = match self.operand(item, frame) {
            Operand::Term(term, _) => Some(term),
            Operand::Value(_) | Operand::Other => None,
        };
        input.or_else(|| output.filter(|_| is_complete)?.origin.clone())
    }
}

/// How a column sorts.
pub fn item_order(properties: &ColumnProperties) -> ItemOrder {
    ItemOrder {
        text: TextOrder { is_bytewise: properties.is_collation_c, collation: properties.collation.clone() },
        is_text: matches!(properties.type_oid, oid::TEXT | oid::VARCHAR | oid::BPCHAR),
    }
}

fn bytewise() -> ItemOrder {
    ItemOrder { text: TextOrder { is_bytewise: true, collation: None }, is_text: false }
}

/// The n-th output, from 0, when an item names it by its number.
pub fn ordinal(item: Node<'_>) -> Option<usize> {
    let Node::A_Const(constant) = item else { return None };
    match constant.val()? {
        ConstValue::Integer(number) => usize::try_from(number).ok()?.checked_sub(1),
        _ => None,
    }
}

/// A column reference as SQL.
pub fn quoted_path(path: &[&str]) -> String {
    let quoted: Vec<String> = path.iter().map(|name| quoted_identifier(name)).collect();
    quoted.join(".")
}
