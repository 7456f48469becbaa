//! The relations that sqlparser's tree names, without those that are WITH queries.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use sqlparser::ast::{ObjectName, ObjectNamePart, Query, Statement, TableFactor, TableObject, Visit, Visitor};

use super::{Name, folded};

#[derive(Debug, Default)]
pub struct Names {
    /// Everything in FROM and every target, WITH queries included: how often.
    relations: BTreeMap<Name, usize>,
    /// WITH queries, with what they name themselves.
    with_queries: BTreeMap<String, BTreeMap<Name, usize>>,
    pub query_count: usize,
    /// Something that PostgreSQL has not, or reads otherwise.
    pub is_odd: bool,
}

pub fn of(statement: &Statement) -> Names {
    let mut names = Names::default();
    // Never breaks off.
    let ControlFlow::Continue(()) = statement.visit(&mut names) else {
        names.is_odd = true;
        return names;
    };
    names
}

impl Names {
    /// The same relations as the first reading's. A WITH query that nothing refers to is not read by the first.
    pub fn agree(&self, first: &BTreeSet<Name>) -> bool {
        let unused = self.unused();
        let is_with_query = |name: &Name| name.0.is_none() && self.with_queries.contains_key(&name.1);
        let is_unused = |name: &Name| unused.iter().filter_map(|query| self.with_queries.get(*query)).any(|q| q.contains_key(name));
        let is_found = |name: &Name| first.contains(name) || is_with_query(name) || is_unused(name);
        self.relations.keys().all(is_found) && first.iter().all(|name| self.relations.contains_key(name))
    }

    /// WITH queries that nothing refers to, or only others like them.
    fn unused(&self) -> BTreeSet<&str> {
        let mut unused: BTreeSet<&str> = BTreeSet::new();
        loop {
            let references = |query: &String| {
                let name = (None, query.clone());
                let among = |names: &BTreeMap<Name, usize>| names.get(&name).copied().unwrap_or(0);
                let dead = unused.iter().filter_map(|dead| self.with_queries.get(*dead)).map(among).sum();
                among(&self.relations).saturating_sub(dead)
            };
            let more: Vec<&str> = self
                .with_queries
                .keys()
                .filter(|query| !unused.contains(query.as_str()) && references(query) == 0)
                .map(String::as_str)
                .collect();
            if more.is_empty() {
                return unused;
            }
            unused.extend(more);
        }
    }

    fn add(&mut self, name: &ObjectName) {
        match relation_name(name) {
            Some(name) => {
                *self.relations.entry(name).or_default() += 1;
            }
            None => self.is_odd = true,
        }
    }
}

impl Visitor for Names {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.query_count += 1;
        for with_query in query.with.iter().flat_map(|with| &with.cte_tables) {
            let mut inner = Names::default();
            let is_read = with_query.query.visit(&mut inner).is_continue();
            self.is_odd |= !is_read || inner.is_odd;
            let named = self.with_queries.entry(folded(&with_query.alias.name)).or_default();
            for (name, count) in inner.relations {
                *named.entry(name).or_default() += count;
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<()> {
        match statement {
            Statement::Insert(insert) => match &insert.table {
                TableObject::TableName(name) => self.add(name),
                TableObject::TableFunction(_) | TableObject::TableQuery(_) => self.is_odd = true,
            },
            Statement::Delete(delete) => self.is_odd |= !delete.tables.is_empty(),
            Statement::Query(_) | Statement::Update(_) | Statement::Merge(_) => {}
            _ => self.is_odd = true,
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match factor {
            // With arguments it is a function.
            TableFactor::Table { args: Some(_), .. } => {}
            TableFactor::Table { name, .. } => self.add(name),
            TableFactor::Derived { .. }
            | TableFactor::Function { .. }
            | TableFactor::UNNEST { .. }
            | TableFactor::NestedJoin { .. }
            | TableFactor::XmlTable { .. } => {}
            _ => self.is_odd = true,
        }
        ControlFlow::Continue(())
    }
}

/// Schema and name; a database's name before them says nothing.
pub fn relation_name(name: &ObjectName) -> Option<Name> {
    let parts: Option<Vec<String>> = name
        .0
        .iter()
        .map(|part| match part {
            ObjectNamePart::Identifier(identifier) => Some(folded(identifier)),
            ObjectNamePart::Function(_) => None,
        })
        .collect();
    match parts?.as_slice() {
        [name] => Some((None, name.clone())),
        [schema, name] | [_, schema, name] => Some((Some(schema.clone()), name.clone())),
        _ => None,
    }
}
