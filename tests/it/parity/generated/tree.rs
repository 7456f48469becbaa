//! A statement as a tree of what may be left out or made simpler, so that one that fails can be shrunk.

use super::values::Kind;

#[derive(Clone, Debug)]
pub enum Tree {
    Text(String),
    Constant(Constant),
    All(Vec<Tree>),
    /// May be left out.
    Optional(Box<Tree>),
    /// Items may be left out, but for one.
    Items(Vec<Tree>, &'static str),
    /// May be replaced by something inside of it that is of the same sort, or by this simpler text.
    Of(Sort, Box<Tree>, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Expression(Kind),
    Source,
    Query,
}

/// A literal, or a parameter.
#[derive(Clone, Debug)]
pub struct Constant {
    pub value: Option<String>,
    pub kind: Kind,
    /// Where the same expression stands twice, parameters would make two of it.
    pub is_literal: bool,
}

/// SQL with the values of its parameters.
#[derive(Clone, Debug, Default)]
pub struct Written {
    pub text: String,
    pub values: Vec<Option<String>>,
}

impl From<&str> for Tree {
    fn from(text: &str) -> Self {
        Tree::Text(text.to_owned())
    }
}

impl From<String> for Tree {
    fn from(text: String) -> Self {
        Tree::Text(text)
    }
}

/// Pieces one after the other.
macro_rules! all {
    ($($piece:expr),+ $(,)?) => { $crate::parity::generated::tree::Tree::All(vec![$($crate::parity::generated::tree::Tree::from($piece)),+]) };
}
pub(super) use all;

impl Tree {
    pub fn optional(self) -> Tree {
        Tree::Optional(Box::new(self))
    }

    /// An expression of this kind.
    pub fn of(self, kind: Kind) -> Tree {
        Tree::Of(Sort::Expression(kind), Box::new(self), format!("NULL::{}", kind.type_name()))
    }

    pub fn write(&self, with_parameters: bool) -> Written {
        let mut out = Written::default();
        self.put(with_parameters, &mut out);
        out
    }

    fn put(&self, with_parameters: bool, out: &mut Written) {
        match self {
            Tree::Text(text) => out.text.push_str(text),
            Tree::Constant(constant) if with_parameters && !constant.is_literal => {
                out.values.push(constant.value.clone());
                out.text.push_str(&format!("${}::{}", out.values.len(), constant.kind.type_name()));
            }
            Tree::Constant(constant) => out.text.push_str(&constant.literal()),
            Tree::All(parts) => parts.iter().for_each(|part| part.put(with_parameters, out)),
            Tree::Optional(tree) | Tree::Of(_, tree, _) => tree.put(with_parameters, out),
            Tree::Items(items, separator) => {
                for (index, item) in items.iter().enumerate() {
                    out.text.push_str(if index > 0 { separator } else { "" });
                    item.put(with_parameters, out);
                }
            }
        }
    }

    /// The same text in both protocols.
    pub fn fixed(mut self) -> Tree {
        self.visit(&mut |tree| {
            if let Tree::Constant(constant) = tree {
                constant.is_literal = true;
            }
        });
        self
    }

    fn visit(&mut self, change: &mut dyn FnMut(&mut Tree)) {
        change(self);
        match self {
            Tree::Text(_) | Tree::Constant(_) => {}
            Tree::All(parts) | Tree::Items(parts, _) => parts.iter_mut().for_each(|part| part.visit(change)),
            Tree::Optional(tree) | Tree::Of(_, tree, _) => tree.visit(change),
        }
    }

    /// Trees with one thing less, those that lack most first.
    pub fn simpler(&self) -> Vec<Tree> {
        let mut found = Vec::new();
        let nothing = || Tree::Text(String::new());
        match self {
            Tree::Text(_) | Tree::Constant(_) => {}
            Tree::All(parts) => {
                for (index, part) in parts.iter().enumerate() {
                    found.extend(part.simpler().into_iter().map(|part| Tree::All(replaced(parts, index, part))));
                }
            }
            Tree::Optional(tree) => {
                found.push(nothing());
                found.extend(tree.simpler().into_iter().map(Tree::optional));
            }
            Tree::Items(items, separator) => {
                for (index, item) in items.iter().enumerate() {
                    if items.len() > 1 {
                        let mut fewer = items.clone();
                        fewer.remove(index);
                        found.push(Tree::Items(fewer, separator));
                    }
                    found.extend(item.simpler().into_iter().map(|item| Tree::Items(replaced(items, index, item), separator)));
                }
            }
            Tree::Of(sort, tree, simple) => {
                if !simple.is_empty() {
                    found.push(Tree::Text(simple.clone()));
                }
                let mut inner = Vec::new();
                tree.collect(*sort, &mut inner);
                found.extend(inner.into_iter().cloned());
                found.extend(tree.simpler().into_iter().map(|tree| Tree::Of(*sort, Box::new(tree), simple.clone())));
            }
        }
        found
    }

    /// The outermost ones of this sort inside.
    fn collect<'t>(&'t self, sort: Sort, found: &mut Vec<&'t Tree>) {
        match self {
            Tree::Text(_) | Tree::Constant(_) => {}
            Tree::All(parts) | Tree::Items(parts, _) => parts.iter().for_each(|part| part.collect(sort, found)),
            Tree::Of(own, ..) if *own == sort => found.push(self),
            Tree::Optional(tree) | Tree::Of(_, tree, _) => tree.collect(sort, found),
        }
    }
}

fn replaced(parts: &[Tree], index: usize, part: Tree) -> Vec<Tree> {
    let mut parts = parts.to_vec();
    parts[index] = part;
    parts
}

impl Constant {
    fn literal(&self) -> String {
        match &self.value {
            None => format!("NULL::{}", self.kind.type_name()),
            Some(value) if self.kind.is_plain_number() && !value.starts_with('-') => value.clone(),
            Some(value) => format!("'{}'::{}", value.replace('\'', "''"), self.kind.type_name()),
        }
    }
}
