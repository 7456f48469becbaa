//! Which relations are loaded, and by which statements.

use std::collections::BTreeSet;

use super::computed::{self, Computed};
use super::filters::{self, Condition, Piece, Writer};
use super::groups;
use super::key_tables::{KeyTable, has_keys, key_inputs};
use super::keys::ANY_VALUE;
use super::semijoins::{KeySource, Known, Place, semijoins};
use super::splicing::TEMPORARY_SCHEMA;
use super::steps::handed_on;
use super::survey::{ColumnUse, RelationUse, Survey};
use super::{HomeTables, Input, Origin, Source, refusals};
use crate::catalog::{
    Access, Catalog, Closure, Column, Oid, Relation, RelationKind, quoted_identifier, quoted_name, type_anywhere,
};
use crate::error::PgError;
use crate::shard_key::oid;
use crate::shardmap::TableKind;
use crate::sql::body::SqlBodyReader;
use crate::sql::context::Context;
use crate::sql::parse::tokens::{Tokens, identifier};
use crate::sql::query::{Resolved, means_temporary, placed, resolve_name};

/// What becomes of a relation in FROM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Stays: the statement runs where it is.
    InPlace,
    /// Index in the list of inputs.
    Input(usize),
    /// A view whose query takes its place.
    Opened(Oid),
    /// Read by the shards, in a sub-select that they compute.
    Computed,
}

pub struct Inputs<'c> {
    context: &'c Context,
    /// The session's own tables, as far as they can be read.
    temporary: &'c [Relation],
    home: HomeTables,
    list: Vec<Wanted<'c>>,
    /// Every column of every input is loaded.
    uses_all: bool,
    computed: Vec<Input>,
    key_tables: Vec<KeyTable<'c>>,
    /// Relations whose conditions have been noted.
    noted: usize,
}

struct Wanted<'c> {
    relation: &'c Relation,
    with_children: bool,
    source: Source,
    /// Of each place where it is read, what must be true of the rows that are needed there.
    uses: Vec<Vec<Vec<Piece>>>,
    /// How often a row occurs matters somewhere.
    counts_rows: bool,
    /// Columns by which sub-selects look for its rows.
    lookups: BTreeSet<Vec<String>>,
    /// A star stands for every column.
    is_starred: bool,
}

impl<'c> Inputs<'c> {
    pub fn new(context: &'c Context, temporary: &'c [Relation], home: HomeTables) -> Self {
        Self { context, temporary, home, list: Vec::new(), uses_all: false, computed: Vec::new(), key_tables: Vec::new(), noted: 0 }
    }

    /// What names mean from here on; yields those of before.
    pub fn set_temporary(&mut self, temporary: &'c [Relation]) -> &'c [Relation] {
        std::mem::replace(&mut self.temporary, temporary)
    }

    pub fn name(&self, input: usize) -> String {
        format!("{INPUT_PREFIX}{}", input + 1)
    }

    pub fn class(&mut self, used: &RelationUse, search_path: &[String]) -> Result<Class, PgError> {
        let context = self.context;
        let schema = used.schema.as_deref();
        if let Some(temporary) = self.temporary(used, search_path) {
            let relation = temporary.ok_or_else(|| refusals::temporary_table(&used.name))?;
            return Ok(self.input(relation, used.with_children, Source::Temporary));
        }
        match resolve_name(context, schema, &used.name, search_path, used.with_children) {
            Resolved::Sharded { relation, .. } => {
                self.check_policies(relation)?;
                Ok(self.input(relation, used.with_children, Source::Shards))
            }
            Resolved::Reference(_) if self.home == HomeTables::Brought => Ok(Class::InPlace),
            Resolved::Reference(relation) | Resolved::Home(Some(relation)) => self.home_table(relation, used.with_children),
            Resolved::Home(None) => Err(refusals::unknown_table(&used.name)),
            Resolved::View(view) => self.view(view),
            Resolved::System if is_of_session(&used.name) => Err(refusals::relation(
                &used.name,
                "It shows one server or session, and the statement runs in a session of its own.",
            )),
            Resolved::System if self.home == HomeTables::OfSnapshot => {
                Err(refusals::relation(&used.name, "The catalogue would be read under another snapshot than the transaction's."))
            }
            Resolved::System => Ok(Class::InPlace),
            Resolved::Map(name) | Resolved::Proxy(name) => {
                Err(refusals::relation(&name, "The shard map is in a database of its own."))
            }
            Resolved::Mixed(detail) => Err(refusals::relation(&used.name, detail)),
        }
    }

    /// The temporary table that a name means, `Some(None)` where it is none that can be read; `None`: it means something else.
    fn temporary(&self, used: &RelationUse, search_path: &[String]) -> Option<Option<&'c Relation>> {
        let is_readable = match used.schema.as_deref() {
            Some(TEMPORARY_SCHEMA) => true,
            // By the number of a session, which may be another one.
            Some(schema) if schema.starts_with(TEMPORARY_SCHEMA) => false,
            Some(_) => return None,
            // Where the path names pg_temp, those of the catalogue come before.
            None if means_temporary(self.context, None, &used.name, search_path) => !used.name.starts_with("pg_"),
            None => return None,
        };
        Some(self.temporary.iter().find(|relation| is_readable && relation.name == used.name))
    }

    fn home_table(&mut self, relation: &'c Relation, with_children: bool) -> Result<Class, PgError> {
        match (self.home, relation.kind) {
            (HomeTables::InPlace, _) => Ok(Class::InPlace),
            (HomeTables::Brought, _) => Ok(self.input(relation, with_children, Source::Scratch)),
            (HomeTables::Shipped | HomeTables::OfSnapshot, RelationKind::Sequence) => {
                Err(refusals::relation(&relation.name, "The transaction may have changed the sequence."))
            }
            (
                HomeTables::Shipped | HomeTables::OfSnapshot,
                RelationKind::Table
                | RelationKind::PartitionedTable
                | RelationKind::View
                | RelationKind::MaterializedView
                | RelationKind::ForeignTable,
            ) => Ok(self.input(relation, with_children, Source::Home)),
        }
    }

    fn view(&mut self, view: &'c Relation) -> Result<Class, PgError> {
        match self.context.catalog.closure_of_relation(view.oid, Access::Read, &SqlBodyReader).as_ref() {
            Closure::Unknown(reason) => Err(refusals::relation(&view.name, super::sentence(reason))),
            Closure::Known(references) if !references.reads.iter().any(|oid| self.is_sharded(*oid)) => self.home_table(view, true),
            Closure::Known(_) if self.is_union_of_shards(view) => Ok(self.input(view, true, Source::Shards)),
            Closure::Known(references) => {
                let has_policies = |oid: &Oid| self.context.catalog.relations.get(oid).is_some_and(|found| found.has_row_security);
                if !view.is_security_invoker && references.reads.iter().any(has_policies) {
                    return Err(refusals::relation(&view.name, "Row security below it would be that of the view's owner."));
                }
                Ok(Class::Opened(view.oid))
            }
        }
    }

    fn is_sharded(&self, oid: Oid) -> bool {
        let relation = self.context.catalog.relations.get(&oid);
        relation.is_none_or(|relation| match placed(self.context, relation, true) {
            Resolved::Sharded { .. } | Resolved::Mixed(_) => true,
            Resolved::Reference(_)
            | Resolved::Home(_)
            | Resolved::View(_)
            | Resolved::System
            | Resolved::Map(_)
            | Resolved::Proxy(_) => false,
        })
    }

    /// The view's rows are those that each shard's own view has.
    fn is_union_of_shards(&self, view: &Relation) -> bool {
        let text = format!("SELECT * FROM {}", qualified(view));
        computed::merge(&text, self.context).is_some_and(|merge| merge.fragment.is_none())
    }

    /// A policy of a sharded table is evaluated on each shard: what it reads must be there.
    fn check_policies(&self, relation: &Relation) -> Result<(), PgError> {
        match self.context.catalog.closure_of_relation(relation.oid, Access::Read, &SqlBodyReader).as_ref() {
            Closure::Known(references) => {
                let is_everywhere = |oid: &Oid| {
                    let found = self.context.catalog.relations.get(oid).map(|found| placed(self.context, found, true));
                    matches!(found, Some(Resolved::Reference(_)))
                };
                match references.reads.iter().find(|oid| !is_everywhere(oid)) {
                    None => Ok(()),
                    Some(_) => {
                        Err(refusals::relation(&relation.name, "Its policies read tables that not every shard has in full."))
                    }
                }
            }
            Closure::Unknown(reason) => Err(refusals::relation(&relation.name, super::sentence(reason))),
        }
    }

    fn input(&mut self, relation: &'c Relation, with_children: bool, source: Source) -> Class {
        // Without children, ONLY says nothing.
        let with_children = with_children || relation.children.is_empty();
        let known = |wanted: &Wanted<'_>| wanted.relation.oid == relation.oid && wanted.with_children == with_children;
        let index = self.list.iter().position(known).unwrap_or_else(|| {
            self.list.push(Wanted {
                relation,
                with_children,
                source,
                uses: Vec::new(),
                counts_rows: false,
                lookups: BTreeSet::new(),
                is_starred: false,
            });
            self.list.len() - 1
        });
        if let Some(wanted) = self.list.get_mut(index) {
            wanted.uses.push(Vec::new());
        }
        Class::Input(index)
    }

    /// The place of an input that was classed last.
    pub fn newest_use(&self, class: Class) -> usize {
        match class {
            Class::Input(input) => self.list.get(input).map_or(0, |wanted| wanted.uses.len().saturating_sub(1)),
            Class::InPlace | Class::Opened(_) | Class::Computed => 0,
        }
    }

    /// What the conditions say about the inputs' rows. Of each relation, its class and which of the input's places it is.
    pub fn note_filters(
        &mut self,
        survey: &Survey,
        (classes, uses): (&[Class], &[usize]),
        computed: &[Computed],
        search_path: &[String],
    ) {
        if !self.context.has_plain_operators(search_path) {
            return;
        }
        let known: Vec<Option<Known<'c>>> = survey.relations.iter().map(|used| self.known(used, search_path)).collect();
        let mut own = self.conditions(survey, &known, search_path);
        for level in &survey.levels {
            if let Some((index, condition)) = groups::condition(survey, level, &known, (self.context, search_path))
                && let Some(own) = own.get_mut(index)
            {
                own.push(condition);
            }
        }
        let source = |(index, class): (usize, &Class)| self.key_source(survey, &known, (index, *class), computed);
        let sources: Vec<Option<KeySource>> = classes.iter().enumerate().map(source).collect();
        self.noted += classes.len();
        let is_pinned = self.pinned(survey, &known, search_path);
        let needed = semijoins(survey, &known, (own, &is_pinned), &sources);
        for (index, (class, conditions)) in classes.iter().zip(needed).enumerate() {
            match class {
                Class::Input(input) => {
                    let place = uses.get(index).copied().unwrap_or_default();
                    let of_place = self.list.get_mut(*input).and_then(|wanted| wanted.uses.get_mut(place));
                    of_place.into_iter().for_each(|of_place| of_place.extend(conditions.clone()));
                }
                Class::InPlace => {
                    let known = known.get(index).copied().flatten().zip(sources.get(index).and_then(Option::as_ref));
                    self.key_tables.extend(known.map(|(known, source)| {
                        let Known { relation, with_children, .. } = known;
                        KeyTable { name: source.input.clone(), relation, with_children, predicates: conditions }
                    }));
                }
                Class::Opened(_) | Class::Computed => {}
            }
        }
    }

    /// Where the keys of a relation are when they have been loaded.
    fn key_source(
        &self,
        survey: &Survey,
        known: &[Option<Known<'c>>],
        (index, class): (usize, Class),
        computed: &[Computed],
    ) -> Option<KeySource> {
        let own = known.get(index).copied().flatten()?;
        let relation = format!("{}.{}", own.relation.schema, own.relation.name);
        match class {
            Class::Input(input) => Some(KeySource { input: self.name(input), relation, computed: None }),
            // Another one for each place.
            Class::InPlace => {
                let input = format!("{INPUT_PREFIX}k{}", self.noted + index + 1);
                has_keys(&own, &self.context.catalog).then_some(KeySource { input, relation, computed: None })
            }
            Class::Computed => {
                let computed = computed.iter().find(|computed| computed.inner.relations.contains(&index))?;
                let columns = handed_on(survey, known, computed.inner.level);
                let columns = columns.into_iter().map(|((relation, column), name)| (relation, column.attnum, name)).collect();
                let Input { name, relation, .. } = &computed.input;
                Some(KeySource { input: name.clone(), relation: relation.clone(), computed: Some(columns) })
            }
            Class::Opened(_) => None,
        }
    }

    /// What must be true of a row that is needed, by the statement's conditions on its own columns; by relation of the survey.
    pub fn conditions(&self, survey: &Survey, known: &[Option<Known<'c>>], search_path: &[String]) -> Vec<Vec<Vec<Piece>>> {
        self.by_relation(survey, (known, search_path), &|writer, condition, own: &mut Vec<Vec<Piece>>| {
            own.extend(writer.implied(condition))
        })
    }

    /// Whether these have an equality with constants.
    fn pinned(&self, survey: &Survey, known: &[Option<Known<'c>>], search_path: &[String]) -> Vec<bool> {
        self.by_relation(survey, (known, search_path), &|writer, condition, is_pinned| *is_pinned |= writer.pins(condition))
    }

    /// Puts together what each of the conditions says about each of the relations that it filters.
    fn by_relation<T: Clone + Default>(
        &self,
        survey: &Survey,
        (known, search_path): (&[Option<Known<'c>>], &[String]),
        note: &dyn Fn(&Writer<'_>, &Condition, &mut T),
    ) -> Vec<T> {
        let mut types = self.context.catalog.types.values();
        let has_plain_types = !types.any(|known| known.schema != "pg_catalog" && PLAIN_TYPES.contains(&known.name.as_str()));
        let mut own = vec![T::default(); survey.relations.len()];
        for filter in &survey.filters {
            for index in &filter.relations {
                let (Some(used), Some(Some(known))) = (survey.relations.get(*index), known.get(*index)) else { continue };
                let writer = Writer {
                    relation: known.relation,
                    name: used.effective_name(),
                    unqualified: &filter.unqualified,
                    has_plain_types,
                    catalog: &self.context.catalog,
                    search_path,
                };
                if let Some(own) = own.get_mut(*index).filter(|_| !used.has_column_aliases) {
                    note(&writer, &filter.condition, own);
                }
            }
        }
        own
    }

    /// A table or view of the catalogue, and where its rows are.
    pub fn known(&self, used: &RelationUse, search_path: &[String]) -> Option<Known<'c>> {
        let with = |relation: &'c Relation, place| {
            // Without children, ONLY says nothing.
            Some(Known { relation, place, with_children: used.with_children || relation.children.is_empty() })
        };
        if let Some(temporary) = self.temporary(used, search_path) {
            return temporary.and_then(|relation| with(relation, Place::Temporary));
        }
        match resolve_name(self.context, used.schema.as_deref(), &used.name, search_path, used.with_children) {
            Resolved::Sharded { table, relation, .. } => match &table.kind {
                TableKind::Sharded { group, key } => match key.as_slice() {
                    [only] if only.function.is_none() => with(relation, Place::Sharded { group: *group, key: &only.column }),
                    _ => with(relation, Place::Elsewhere),
                },
                TableKind::Reference => with(relation, Place::Elsewhere),
            },
            // In a transaction that has changed it, it is read where the change is.
            Resolved::Reference(relation) if matches!(self.home, HomeTables::InPlace | HomeTables::Brought) => {
                with(relation, Place::Reference)
            }
            Resolved::Reference(relation) | Resolved::Home(Some(relation)) | Resolved::View(relation) => {
                with(relation, Place::Elsewhere)
            }
            Resolved::Home(None) | Resolved::System | Resolved::Map(_) | Resolved::Proxy(_) | Resolved::Mixed(_) => None,
        }
    }

    /// Where only whether there is such a row matters, one of each kind is enough.
    pub fn note_memberships(&mut self, survey: &Survey, classes: &[Class]) {
        for (index, class) in classes.iter().enumerate() {
            let Class::Input(input) = class else { continue };
            let is_membership = survey.levels.iter().any(|level| level.is_membership && level.relations.contains(&index));
            if let Some(wanted) = self.list.get_mut(*input) {
                wanted.counts_rows |= !is_membership;
            }
        }
    }

    /// By which columns sub-selects look for an input's rows.
    pub fn note_lookups(&mut self, survey: &Survey, classes: &[Class]) {
        for lookup in &survey.lookups {
            for index in &lookup.relations {
                let Some(Class::Input(input)) = classes.get(*index) else { continue };
                let list = &self.list;
                let known = |index: usize| match classes.get(index)? {
                    Class::Input(input) => list.get(*input).map(|wanted| wanted.relation),
                    Class::InPlace | Class::Opened(_) | Class::Computed => None,
                };
                let columns = lookup.columns(survey, *index, &known);
                if let Some(wanted) = self.list.get_mut(*input).filter(|_| !columns.is_empty()) {
                    wanted.lookups.insert(columns);
                }
            }
        }
    }

    /// Whole rows: harmless as the argument of some functions, refused elsewhere; either way all columns count.
    pub fn note_columns(&mut self, survey: &Survey, classes: &[Class], computed: &[Computed]) -> Result<(), PgError> {
        let columns = survey.columns.iter().enumerate();
        let columns = columns.filter(|(index, _)| !computed.iter().any(|computed| computed.inner.columns.contains(index)));
        let columns: Vec<&ColumnUse> = columns.map(|(_, column)| column).collect();
        self.uses_all |= survey.uses_all_columns;
        for star in columns.iter().filter(|column| column.is_star && !column.is_ignored) {
            match survey.starred(star) {
                None => self.uses_all = true,
                Some(relations) => {
                    for class in relations.iter().filter_map(|index| classes.get(*index)) {
                        if let Class::Input(input) = class
                            && let Some(wanted) = self.list.get_mut(*input)
                        {
                            wanted.is_starred = true;
                        }
                    }
                }
            }
        }
        for (index, (used, class)) in survey.relations.iter().zip(classes).enumerate() {
            let relation = match class {
                Class::InPlace | Class::Computed => continue,
                Class::Input(input) => self.list.get(*input).map(|wanted| wanted.relation),
                Class::Opened(view) => self.context.catalog.relations.get(view),
            };
            self.uses_all |= used.has_column_aliases;
            let name = used.effective_name();
            // A column wins over a row of the same name.
            let has_column = relation.is_some_and(|relation| relation.column(name).is_some());
            for column in columns.iter().filter(|column| !column.is_star && survey.may_be_named(index, column)) {
                match column.path.as_slice() {
                    [single] if single == name && !has_column => {
                        self.uses_all = true;
                        let takes_any_row = |function: &String| takes_any_row(function, &self.context.catalog);
                        if !column.argument_of.as_ref().is_some_and(takes_any_row) {
                            return Err(refusals::whole_row(name));
                        }
                    }
                    // A function of the row, written as a column.
                    [.., table, field]
                        if table == name
                            && !used.has_column_aliases
                            && relation.is_none_or(|known| known.column(field).is_none()) =>
                    {
                        return Err(refusals::whole_row(name));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    pub fn note_computed(&mut self, computed: Vec<Computed>) {
        self.computed.extend(computed.into_iter().map(|computed| computed.input));
    }

    /// The statements. `text`: the whole query, in which the names of columns are looked for.
    pub fn finish(self, surveys: &[Survey], text: &str) -> Result<Vec<Input>, PgError> {
        let words: BTreeSet<String> = Tokens::of(text).iter().filter_map(|(kind, piece)| identifier(kind, piece)).collect();
        // U&"…" may spell any name.
        let uses_all = self.uses_all || text.to_ascii_lowercase().contains("u&\"");
        let grouped = |name: &String| surveys.iter().any(|survey| survey.group_names.contains(name));
        let has_ordinal = surveys.iter().any(|survey| survey.has_group_ordinal);
        let has_groups = has_ordinal || surveys.iter().any(|survey| !survey.group_names.is_empty());
        let catalog = &self.context.catalog;
        let inputs = self.list.iter().enumerate().map(|(index, wanted)| {
            let (relation, uses_all) = (wanted.relation, uses_all || wanted.is_starred);
            if relation.columns.is_empty() {
                return Err(refusals::relation(&relation.name, "It has no columns."));
            }
            let primary = relation.uniques.iter().find(|unique| unique.is_primary).map(|unique| unique.columns.as_slice());
            let key = primary.filter(|_| has_groups && wanted.with_children).and_then(|columns| {
                let names: Option<Vec<&String>> = columns.iter().map(Option::as_ref).collect();
                // By position too, only a column that is named somewhere can be grouped by.
                let is_grouped = |name: &&&String| grouped(name) || (has_ordinal && (uses_all || words.contains(**name)));
                names.filter(|names| names.iter().filter(is_grouped).count() == names.len())
            });
            let is_needed = |column: &&Column| uses_all || words.contains(&column.name);
            let mut needed: Vec<String> =
                relation.columns.iter().filter(is_needed).map(|column| quoted_identifier(&column.name)).collect();
            if needed.is_empty() {
                needed.extend(relation.columns.first().map(|column| quoted_identifier(&column.name)));
            }
            let has_primary = relation.uniques.iter().any(|unique| {
                unique.is_primary && unique.columns.iter().flatten().all(|name| needed.contains(&quoted_identifier(name)))
            });
            let is_exact = |column: &Column| EXACT.contains(&column.type_oid) && column.is_deterministic;
            let is_of_one_kind =
                relation.columns.iter().filter(|column| needed.contains(&quoted_identifier(&column.name))).all(is_exact);
            let distinct = if wanted.counts_rows || has_primary || !is_of_one_kind { "" } else { "DISTINCT " };
            let columns = needed;
            let through = relation.columns.iter().filter(|column| columns.contains(&quoted_identifier(&column.name)));
            let through: Vec<Through> = through.map(|column| sent_through(catalog, column)).collect();
            let cast = |to: fn(&Through) -> &'static str| -> Vec<String> {
                columns.iter().zip(&through).map(|(name, through)| format!("{name}{}", to(through))).collect()
            };
            let name = format!("{INPUT_PREFIX}{}", index + 1);
            let only = if wanted.with_children { "" } else { "ONLY " };
            Ok(Input {
                source: wanted.source,
                create: create(&name, relation, key.as_deref(), &|column| match type_under_domain(catalog, column)
                    .filter(|_| !is_needed(&column))
                {
                    Some(under) => format!("{} {under}", quoted_identifier(&column.name)),
                    None => column_definition(column),
                }),
                predicates: wanted.predicates(),
                round: 0,
                fragment: format!(
                    "SELECT {distinct}{} FROM {only}{}",
                    cast(|through| through.sent_as).join(", "),
                    qualified(relation)
                ),
                inserted: through.iter().any(|through| *through != OWN_TYPE).then(|| cast(|through| through.own)),
                relation: format!("{}.{}", relation.schema, relation.name),
                columns,
                indexes: wanted.lookups.iter().map(|columns| index_on(&name, columns)).collect(),
                loaded: name.clone(),
                name,
                combine: None,
                origin: Some(Origin { relation: relation.oid, with_children: wanted.with_children }),
                brought: Vec::new(),
            })
        });
        let mut inputs: Vec<Input> = inputs.collect::<Result<_, _>>()?;
        inputs.extend(self.computed);
        inputs.extend(key_inputs(&self.key_tables, &inputs));
        set_rounds(&mut inputs);
        inputs.sort_by_key(|input| input.round);
        Ok(inputs)
    }
}

/// Only these of the inputs, in rounds of their own: what waits for keys of another one does without.
pub fn only(inputs: &[Input], is_kept: impl Fn(&Input) -> bool) -> Vec<Input> {
    let mut kept: Vec<Input> = inputs.iter().filter(|input| is_kept(input)).cloned().collect();
    let names: BTreeSet<String> = kept.iter().map(|input| input.name.clone()).collect();
    for piece in kept.iter_mut().flat_map(|input| input.predicates.iter_mut().flatten()) {
        if matches!(piece, Piece::Keys(keys) if !names.contains(&keys.input)) {
            *piece = Piece::Sql(ANY_VALUE.to_owned());
        }
    }
    set_rounds(&mut kept);
    kept.sort_by_key(|input| input.round);
    kept
}

/// Inputs whose keys others wait for come before these. Where they wait for each other, one comes first without keys.
fn set_rounds(inputs: &mut [Input]) {
    let mut waiting: Vec<usize> = (0..inputs.len()).collect();
    let mut loaded: BTreeSet<String> = BTreeSet::new();
    for round in 0.. {
        let is_ready = |input: &usize| {
            let mut keys = inputs.get(*input).into_iter().flat_map(Input::keys);
            keys.all(|keys| loaded.contains(&keys.input))
        };
        let mut ready: Vec<usize> = waiting.iter().copied().filter(is_ready).collect();
        if round == ROUNDS_MAX {
            ready.clone_from(&waiting);
        } else if ready.is_empty() {
            ready.extend(waiting.first());
        }
        if ready.is_empty() {
            return;
        }
        waiting.retain(|input| !ready.contains(input));
        for index in &ready {
            let Some(input) = inputs.get_mut(*index) else { continue };
            input.round = round;
            for piece in input.predicates.iter_mut().flatten() {
                if matches!(piece, Piece::Keys(keys) if !loaded.contains(&keys.input)) {
                    *piece = Piece::Sql(ANY_VALUE.to_owned());
                }
            }
        }
        loaded.extend(ready.iter().filter_map(|input| inputs.get(*input)).map(|input| input.name.clone()));
    }
}

impl Wanted<'_> {
    /// What must be true of a row that is needed anywhere.
    fn predicates(&self) -> Vec<Vec<Piece>> {
        match self.uses.as_slice() {
            [only] => only.clone(),
            several => filters::any_of(several),
        }
    }
}

/// Every column in order, without constraints; a primary key where the statement groups by it, since other columns may then
/// stand beside the groups.
fn create(name: &str, relation: &Relation, key: Option<&[&String]>, definition: &dyn Fn(&Column) -> String) -> String {
    let columns = relation.columns.iter().map(definition);
    let key =
        key.map(|key| format!("PRIMARY KEY ({})", key.iter().map(|name| quoted_identifier(name)).collect::<Vec<_>>().join(", ")));
    let items: Vec<String> = columns.chain(key).collect();
    format!("CREATE TEMPORARY TABLE {TEMPORARY_SCHEMA}.{} ({}) ON COMMIT DROP", quoted_identifier(name), items.join(", "))
}

pub fn column_definition(column: &Column) -> String {
    let collation = column.collation.as_ref().map(|collation| format!(" COLLATE {collation}")).unwrap_or_default();
    format!("{} {}{collation}", quoted_identifier(&column.name), type_anywhere(&column.type_name))
}

fn index_on(name: &str, columns: &[String]) -> String {
    let columns: Vec<String> = columns.iter().map(|column| quoted_identifier(column)).collect();
    format!("CREATE INDEX ON {TEMPORARY_SCHEMA}.{} ({})", quoted_identifier(name), columns.join(", "))
}

/// Casts of a column whose values travel as another type: to that one, and back.
#[derive(PartialEq, Eq)]
struct Through {
    sent_as: &'static str,
    own: &'static str,
}

const OWN_TYPE: Through = Through { sent_as: "", own: "" };

/// What is printed of an xml value lacks its declaration; its text has all.
fn sent_through(catalog: &Catalog, column: &Column) -> Through {
    let domain = catalog.types.get(&column.type_oid).filter(|found| found.kind == 'd');
    match domain.map_or(column.type_oid, |domain| domain.base) {
        oid::XML => Through { sent_as: "::pg_catalog.text", own: "::pg_catalog.xml" },
        oid::XML_ARRAY => Through { sent_as: "::pg_catalog.text[]", own: "::pg_catalog.xml[]" },
        _ => OWN_TYPE,
    }
}

/// Of a column that is not loaded: a domain may refuse the NULL that it has, the type under it does not. `None`: it is no domain.
pub fn type_under_domain(catalog: &Catalog, column: &Column) -> Option<String> {
    let under = catalog.types.get(&catalog.under_domains(column.type_oid))?;
    (under.oid != column.type_oid).then(|| quoted_name(&under.schema, &under.name))
}

/// Catalogue relations that show what a server or a session does rather than what there is.
fn is_of_session(name: &str) -> bool {
    const NAMES: [&str; 6] =
        ["pg_backend_memory_contexts", "pg_cursors", "pg_locks", "pg_prepared_statements", "pg_prepared_xacts", "pg_settings"];
    NAMES.contains(&name) || name.starts_with("pg_stat")
}

pub fn qualified(relation: &Relation) -> String {
    quoted_name(&relation.schema, &relation.name)
}

/// Values that are equal are the same.
const EXACT: [Oid; 10] =
    [oid::BOOL, oid::INT2, oid::INT4, oid::INT8, oid::TEXT, oid::VARCHAR, oid::UUID, oid::DATE, oid::TIMESTAMP, oid::TIMESTAMPTZ];
/// Each is a trip to every shard.
const ROUNDS_MAX: usize = 4;
/// By these, constants are written.
const PLAIN_TYPES: [&str; 3] = ["date", "timestamp", "interval"];
const INPUT_PREFIX: &str = "shardgate_input_";

/// It looks at the columns of a row that it gets, not at its type.
pub fn takes_any_row(function: &str, catalog: &Catalog) -> bool {
    let named = catalog.function_names.get(function).into_iter().flatten().filter_map(|oid| catalog.functions.get(oid));
    ROW_FUNCTIONS.contains(&function) && !named.into_iter().any(|function| function.takes_row)
}

const ROW_FUNCTIONS: [&str; 6] = ["count", "json_agg", "jsonb_agg", "row_to_json", "to_json", "to_jsonb"];
