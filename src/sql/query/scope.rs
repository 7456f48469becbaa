//! Names in scope at one level of a query, and the levels around it.

use super::Column;
use super::leaves::Leaf;

/// What a FROM clause makes visible.
#[derive(Debug, Default)]
pub struct Frame<'f> {
    pub items: Vec<Visible>,
    /// Columns merged by USING and NATURAL, which an unqualified name means, inner joins first; `None`: of both sides (FULL JOIN).
    pub merged: Vec<(String, Option<Column>)>,
    /// A NATURAL join whose common columns are not known: unqualified names and `*` are not resolved.
    pub has_unknown_merge: bool,
    pub outer: Option<&'f Frame<'f>>,
}

/// How much of a level was visible at one place of its FROM.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    pub items: usize,
    pub merged: usize,
}

/// One table alias.
#[derive(Debug)]
pub struct Visible {
    pub name: Option<String>,
    pub schema: Option<String>,
    pub columns: VisibleColumns,
}

#[derive(Debug)]
pub enum VisibleColumns {
    Leaf(usize),
    /// `(a JOIN b …) AS j`: names and what they are; nothing else is visible of the two.
    Join {
        columns: Vec<(String, Option<Column>)>,
        is_complete: bool,
    },
}

/// What a column reference means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    Column(Column),
    /// Not a column that is known: nothing may be concluded.
    Unknown,
}

/// Of which level a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Of this one, or perhaps of this one and of none around it that is known.
    Here,
    /// Of one around it.
    Around,
    Nowhere,
    /// Of this one or of one around it.
    Either,
}

impl<'f> Frame<'f> {
    pub fn inside(outer: Option<&'f Frame<'f>>) -> Self {
        Self { outer, ..Self::default() }
    }

    pub fn mark(&self) -> Mark {
        Mark { items: self.items.len(), merged: self.merged.len() }
    }

    /// Takes out what has become visible since then: what the ON of a join sees of its level. Other items of the level that have
    /// such names are not meant there, but those of levels around are.
    pub fn split_off(&mut self, mark: Mark) -> Frame<'f> {
        Self {
            items: self.items.split_off(mark.items.min(self.items.len())),
            merged: self.merged.split_off(mark.merged.min(self.merged.len())),
            has_unknown_merge: self.has_unknown_merge,
            outer: self.outer,
        }
    }

    /// Puts back what was taken out.
    pub fn append(&mut self, inner: Frame<'f>) {
        self.items.extend(inner.items);
        self.merged.extend(inner.merged);
    }

    /// What a merged column of this name stands for: of several, that of the outermost join.
    pub fn merged_as(&self, name: &str) -> Option<Option<Column>> {
        merged_as(&self.merged, name)
    }

    /// `[column]`, `[table, column]` or `[schema, table, column]`.
    pub fn resolve(&self, path: &[&str], leaves: &[Leaf<'_>]) -> Resolution {
        let mut frame = Some(self);
        while let Some(current) = frame {
            match current.find(path, leaves) {
                Found::Column(column) => return Resolution::Column(column),
                Found::Unknown => return Resolution::Unknown,
                Found::Nothing => frame = current.outer,
            }
        }
        Resolution::Unknown
    }

    /// Of which level a column is, or, by the alias of its table alone, a whole row.
    pub fn level(&self, path: &[&str], leaves: &[Leaf<'_>]) -> Level {
        let here = self.find(path, leaves);
        let is_here = matches!(here, Found::Column(_)) || self.has_alias(path) || self.has_row(path);
        let mut around = std::iter::successors(self.outer, |frame| frame.outer);
        let is_around = |frame: &Frame<'_>| {
            matches!(frame.find(path, leaves), Found::Column(_)) || frame.has_alias(path) || frame.has_row(path)
        };
        match here {
            _ if is_here => Level::Here,
            Found::Nothing if around.any(is_around) => Level::Around,
            Found::Nothing => Level::Nowhere,
            Found::Column(_) | Found::Unknown if around.any(is_around) => Level::Either,
            Found::Column(_) | Found::Unknown => Level::Here,
        }
    }

    /// The path means, or may mean, a column of this level.
    pub fn resolves_here(&self, path: &[&str], leaves: &[Leaf<'_>]) -> bool {
        !matches!(self.find(path, leaves), Found::Nothing)
    }

    fn find(&self, path: &[&str], leaves: &[Leaf<'_>]) -> Found {
        match path {
            [column] => self.unqualified(column, leaves),
            [table, column] => self.qualified(None, table, column, leaves),
            [schema, table, column] => self.qualified(Some(schema), table, column, leaves),
            _ => Found::Unknown,
        }
    }

    /// The column's table is one of these.
    fn has_alias(&self, path: &[&str]) -> bool {
        match path {
            [table, _] => self.items.iter().any(|item| item.is_called(None, table)),
            [schema, table, _] => self.items.iter().any(|item| item.is_called(Some(schema), table)),
            _ => false,
        }
    }

    /// The path is a table's.
    fn has_row(&self, path: &[&str]) -> bool {
        match path {
            [table] => self.items.iter().any(|item| item.is_called(None, table)),
            [schema, table] => self.items.iter().any(|item| item.is_called(Some(schema), table)),
            _ => false,
        }
    }

    /// How many levels there are, from this one outwards.
    pub fn height(frame: Option<&Frame<'_>>) -> usize {
        std::iter::successors(frame, |frame| frame.outer).count()
    }

    /// The level from which on there are so many, outwards from this one.
    pub fn at_height<'g>(frame: Option<&'g Frame<'g>>, height: usize) -> Option<&'g Frame<'g>> {
        std::iter::successors(frame, |frame| frame.outer).find(|frame| Frame::height(Some(frame)) <= height)
    }

    fn unqualified(&self, name: &str, leaves: &[Leaf<'_>]) -> Found {
        if let Some(column) = self.merged_as(name) {
            return column.map_or(Found::Unknown, Found::Column);
        }
        let mut found = if self.has_unknown_merge { Found::Unknown } else { Found::Nothing };
        for item in &self.items {
            found = match (found, item.find(name, leaves)) {
                (found, Found::Nothing) => found,
                // A column that is certain wins over one that may be there: were both, PostgreSQL would call it ambiguous.
                (Found::Nothing, other) => other,
                (Found::Unknown, Found::Column(column)) if !self.has_unknown_merge => Found::Column(column),
                (Found::Column(column), Found::Unknown) => Found::Column(column),
                _ => return Found::Unknown,
            };
        }
        found
    }

    fn qualified(&self, schema: Option<&str>, table: &str, column: &str, leaves: &[Leaf<'_>]) -> Found {
        let mut matching = self.items.iter().filter(|item| item.is_called(schema, table));
        match (matching.next(), matching.next()) {
            (None, _) => Found::Nothing,
            (Some(item), None) => match item.find(column, leaves) {
                Found::Nothing => Found::Unknown,
                found => found,
            },
            (Some(_), Some(_)) => Found::Unknown,
        }
    }
}

pub fn merged_as(merged: &[(String, Option<Column>)], name: &str) -> Option<Option<Column>> {
    merged.iter().rev().find(|(known, _)| known == name).map(|(_, column)| *column)
}

impl Visible {
    /// Whether `schema.table` in a column reference means this item.
    pub fn is_called(&self, schema: Option<&str>, table: &str) -> bool {
        self.name.as_deref() == Some(table) && (schema.is_none() || self.schema.as_deref() == schema)
    }

    fn find(&self, name: &str, leaves: &[Leaf<'_>]) -> Found {
        match &self.columns {
            VisibleColumns::Leaf(leaf) => match leaves.get(*leaf).and_then(|known| known.find(name)) {
                Some(Some(index)) => Found::Column(Column { leaf: *leaf, index }),
                Some(None) => Found::Nothing,
                None => Found::Unknown,
            },
            VisibleColumns::Join { columns, is_complete } => match columns.iter().find(|(column, _)| column == name) {
                Some((_, Some(column))) => Found::Column(*column),
                Some((_, None)) => Found::Unknown,
                None if *is_complete => Found::Nothing,
                None => Found::Unknown,
            },
        }
    }
}

enum Found {
    Column(Column),
    /// It may be here.
    Unknown,
    Nothing,
}
