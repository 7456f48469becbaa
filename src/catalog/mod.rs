//! A database's schema as data: relations, columns, constraints, functions, types, as read from the home shard.
//!
//! Immutable; a new version replaces the old one as a whole. Pure: reading it from a server is `backend::catalog_reader`'s
//! work. Names are as in pg_catalog: folded and unquoted. Says nothing about sharding: which tables are distributed is the
//! shard map's knowledge.

use std::collections::HashMap;

mod actions;
mod by_oid;
mod closure;
mod conversions;
mod definitions;
mod dependents;
mod effects;
mod fingerprints;
mod numbering;
mod printed_views;
mod quote;

pub use actions::{ActionOn, ForeignKeyAction, RowChange};
pub use by_oid::ByOid;
pub use closure::{
    Access, BlockCall, BodyName, BodyReader, BodyReferences, Call, CallSets, Closure, ClosureCache, PartClosure, References,
    RowWrites, SchemaEffect, UpdatedColumns,
};
pub use conversions::{Called, Conversion};
pub use definitions::{COLUMN_ORDER, Definitions, NOT_NULL, ObjectName};
pub use dependents::{Held, mentions};
pub use effects::{ChangedSettings, Kept, SessionEffects, UnnamedLeft, is_custom_name};
pub use numbering::{Numbering, SequenceName, identity_in_default, qualified_name};
pub use quote::{hex, quoted_identifier, quoted_literal, quoted_name, shown_name, type_anywhere, written_identifier};

pub type Oid = u32;

/// FirstNormalObjectId: what has a lesser oid came with PostgreSQL, and is the same on every server of a version.
pub const FIRST_USER_OID: Oid = 16_384;

/// Everything known of one database's schema.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Grows with every reload that found a difference; part of the key of every plan cache.
    pub version: u64,
    /// Digest of what was read, for comparing shards and noticing direct DDL.
    pub digest: String,
    pub relations: ByOid<Relation>,
    /// (schema, name) → oid.
    pub relation_names: HashMap<(String, String), Oid>,
    pub functions: ByOid<Function>,
    /// name → every function of that name outside pg_catalog and information_schema.
    pub function_names: HashMap<String, Vec<Oid>>,
    pub types: ByOid<Type>,
    /// Operators named `=`, `<`, `<=`, `>`, `>=` or `<>` between two types of pg_catalog exist outside pg_catalog in these
    /// schemas: a condition is not proven when the search path has one of them. An operator that takes a user's type does not
    /// count: it cannot win over the built-in one for two operands of built-in types.
    pub operator_schemas: Vec<String>,
    pub schemas: Vec<String>,
    /// The database's default collation sorts bytewise (C, POSIX, builtin C.UTF-8).
    pub is_collation_c: bool,
    /// Every object's definition, free of oids: what `digest` digests and [`Catalog::diff`] compares.
    pub definitions: Definitions,
    /// What the expressions that belong to a relation (defaults, policies, checks, view, index, trigger WHEN) depend on.
    pub relation_dependencies: ByOid<Vec<Dependency>>,
    /// Functions that a `BEGIN ATOMIC` body or a parameter's default of this function calls, as pg_depend names them.
    pub function_dependencies: HashMap<Oid, Vec<Oid>>,
    /// Functions behind operators that users made, by operator name. Not those of pg_catalog or of an extension.
    pub operator_functions: HashMap<String, Vec<Oid>>,
    /// Functions of users behind casts to a type and checks of a domain, by the type's name. Not those of an extension.
    pub type_functions: HashMap<String, Vec<Oid>>,
    /// Functions of users that are called where nothing in the text names them. Not those of an extension.
    pub conversions: Vec<Conversion>,
    /// Types of extensions whose equality and input depend on nothing else: the schema of their operators `=` and `<>`.
    pub extension_equalities: HashMap<Oid, String>,
    /// From type to type: the casts that an argument of a function may get without being written. Not PostgreSQL's own.
    pub implicit_casts: Vec<(Oid, Oid)>,
    /// What is not known, as long as others hold it.
    pub held: Held,
    /// Kept by the closure walks; empty at first.
    pub closures: ClosureCache,
}

/// One edge of pg_depend from something that belongs to a relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    pub of: DependentKind,
    /// Name of the policy, constraint, column, index or trigger.
    pub name: String,
    pub on: DependencyTarget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependentKind {
    /// A view's query.
    View,
    Rule,
    Policy,
    /// DEFAULT or GENERATED of a column.
    Default,
    Check,
    Index,
    /// WHEN of a trigger; the trigger's own function is in [`Relation::triggers`].
    TriggerWhen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependencyTarget {
    Relation(Oid),
    Function(Oid),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelationKind {
    Table,
    PartitionedTable,
    View,
    MaterializedView,
    ForeignTable,
    Sequence,
}

impl RelationKind {
    /// PostgreSQL's word for it; a partitioned table is a table.
    pub fn word(self) -> &'static str {
        match self {
            RelationKind::Table | RelationKind::PartitionedTable => "table",
            RelationKind::View => "view",
            RelationKind::MaterializedView => "materialized view",
            RelationKind::ForeignTable => "foreign table",
            RelationKind::Sequence => "sequence",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    pub oid: Oid,
    pub schema: String,
    pub name: String,
    pub kind: RelationKind,
    pub owner: String,
    /// Not dropped, in attnum order.
    pub columns: Vec<Column>,
    /// Unique indexes: primary keys, unique constraints, CREATE UNIQUE INDEX, and exclusion constraints.
    pub uniques: Vec<Unique>,
    pub foreign_keys: Vec<ForeignKey>,
    pub triggers: Vec<Trigger>,
    pub policies: Vec<Policy>,
    /// `pg_get_viewdef` of a view or materialised view.
    pub view_definition: Option<String>,
    /// Rules other than a view's `_RETURN`: their names.
    pub rules: Vec<String>,
    pub has_row_security: bool,
    /// Of a view: what it reads is read with the rights of who reads it, row security among them, not with its owner's.
    pub is_security_invoker: bool,
    /// Parents (inheritance or partitioning) and children, by oid.
    pub parents: Vec<Oid>,
    pub children: Vec<Oid>,
    /// Of a partitioned table, the columns by which a row belongs to a partition; `None` where they are not known: its key has
    /// expressions.
    pub partition_columns: Option<Vec<String>>,
}

impl Relation {
    /// One of this name, of nobody and with nothing in it: for the rest of what is known to be put in.
    pub fn bare(oid: Oid, schema: &str, name: &str, kind: RelationKind) -> Self {
        Self {
            oid,
            schema: schema.to_owned(),
            name: name.to_owned(),
            kind,
            owner: String::new(),
            columns: Vec::new(),
            uniques: Vec::new(),
            foreign_keys: Vec::new(),
            triggers: Vec::new(),
            policies: Vec::new(),
            view_definition: None,
            rules: Vec::new(),
            has_row_security: false,
            is_security_invoker: false,
            parents: Vec::new(),
            children: Vec::new(),
            partition_columns: (kind != RelationKind::PartitionedTable).then(Vec::new),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub attnum: i16,
    pub type_oid: Oid,
    /// As `format_type` prints it where `search_path` is `pg_catalog`: `text`, `character varying(9)`, `shop.level[]`.
    pub type_name: String,
    pub typmod: i32,
    /// No row has NULL there. Not by a constraint that is NOT VALID, which says nothing of the rows before it.
    pub is_not_null: bool,
    /// `true` unless the collation is nondeterministic (an ICU option). Equality is then bytewise.
    pub is_deterministic: bool,
    /// The column's collation sorts bytewise.
    pub is_collation_c: bool,
    /// The column's collation as SQL may name it, quoted and with its schema; `None` for types without one.
    pub collation: Option<String>,
    /// `pg_get_expr` of the default, its own or else that of its type (a domain); also of a generated column.
    pub default: Option<String>,
    pub is_generated: bool,
    /// `a`lways or by `d`efault.
    pub identity: Option<char>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unique {
    pub name: String,
    /// Not a deferrable one: within a transaction two rows may have the same values.
    pub is_primary: bool,
    /// An exclusion constraint.
    pub is_exclusion: bool,
    /// A constraint, not only an index.
    pub is_constraint: bool,
    /// Plain columns of the index, compared by the type's own equality; `None` stands for an expression, and for a column that
    /// is compared otherwise: under a nondeterministic collation, or by another operator than `=` in an exclusion constraint.
    pub columns: Vec<Option<String>>,
    pub is_partial: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignKey {
    pub name: String,
    pub columns: Vec<String>,
    pub referenced: Oid,
    pub referenced_columns: Vec<String>,
    pub on_delete: ForeignKeyAction,
    pub on_update: ForeignKeyAction,
    /// `ON DELETE SET NULL (columns)`; empty: all.
    pub columns_set_on_delete: Vec<String>,
}

/// A trigger that is enabled; disabled ones are only in [`Catalog::definitions`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    pub name: String,
    pub function: Oid,
    pub is_before: bool,
    pub is_row: bool,
    /// INSTEAD OF, on a view.
    pub is_instead: bool,
    pub fires_on: TriggerEvents,
    pub has_transition_tables: bool,
    /// `pg_get_triggerdef`.
    pub definition: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TriggerEvents {
    pub insert: bool,
    pub update: bool,
    pub delete: bool,
    pub truncate: bool,
}

impl TriggerEvents {
    pub const ALL: Self = Self { insert: true, update: true, delete: true, truncate: true };
    pub const INSERT: Self = Self { insert: true, ..Self::NONE };
    pub const UPDATE: Self = Self { update: true, ..Self::NONE };
    pub const DELETE: Self = Self { delete: true, ..Self::NONE };
    /// Of a row that is deleted from one partition or shard and inserted into another.
    pub const MOVE: Self = Self { truncate: false, ..Self::ALL };
    pub const NONE: Self = Self { insert: false, update: false, delete: false, truncate: false };

    pub fn with(self, other: Self) -> Self {
        Self {
            insert: self.insert || other.insert,
            update: self.update || other.update,
            delete: self.delete || other.delete,
            truncate: self.truncate || other.truncate,
        }
    }

    /// Is one of these among them?
    pub fn meets(self, other: Self) -> bool {
        (self.insert && other.insert)
            || (self.update && other.update)
            || (self.delete && other.delete)
            || (self.truncate && other.truncate)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub name: String,
    /// USING and WITH CHECK expressions as text.
    pub expressions: Vec<String>,
    /// Relations that pg_depend names.
    pub relations: Vec<Oid>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    pub oid: Oid,
    pub schema: String,
    pub name: String,
    pub argument_count: usize,
    /// Of those that a call gives by their places; empty where these are not those of the declaration (OUT arguments of
    /// procedures before others).
    pub argument_types: Vec<Oid>,
    /// Of those that a call gives; an empty one has none. No list: none of them has one.
    pub argument_names: Vec<String>,
    /// Of those that it gives back (OUT, INOUT, columns of TABLE), which are variables of its body.
    pub result_names: Vec<String>,
    /// Arguments at the end that a call may leave out.
    pub default_count: usize,
    /// Its last argument stands for any number of them.
    pub is_variadic: bool,
    /// The argument types of the functions of pg_catalog that have its name.
    pub built_in: Vec<Vec<Oid>>,
    /// Its first argument is a row, or may be: `row.f` calls it.
    pub takes_row: bool,
    pub returns_set: bool,
    pub language: String,
    /// `i`mmutable, `s`table, `v`olatile.
    pub volatility: char,
    /// `f`unction, `p`rocedure, `a`ggregate, `w`indow.
    pub kind: char,
    pub body: String,
    /// Member of an extension: treated as transparent, like pg_catalog.
    pub is_extension_member: bool,
    /// Relations that pg_depend names (`BEGIN ATOMIC` bodies).
    pub relations: Vec<Oid>,
    /// Types of users among its arguments and results, or that its default arguments and BEGIN ATOMIC body name.
    pub types: Vec<Oid>,
    /// `SET search_path` of the function, if any.
    pub search_path: Option<Vec<String>>,
    /// Custom settings of its SET clauses, in lower case: a call leaves their names on the connection.
    pub custom_settings: Vec<String>,
    /// Its SET clauses, `name=value`.
    pub settings: Vec<String>,
    /// Of a BEGIN ATOMIC body as it is stored, where tables do not stand by their names.
    pub tree_digest: Option<String>,
}

impl Function {
    /// A function of an extension that runs a query which is given to it as text (tablefunc, xml2, pgrouting).
    pub fn runs_queries(&self) -> bool {
        self.is_extension_member && QUERY_RUNNERS.iter().any(|prefix| self.name.starts_with(prefix))
    }
}

const QUERY_RUNNERS: [&str; 4] = ["connectby", "crosstab", "pgr_", "xpath_table"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    pub oid: Oid,
    pub schema: String,
    pub name: String,
    /// `b`ase, `c`omposite, `d`omain, `e`num, `r`ange, `m`ultirange, `p`seudo.
    pub kind: char,
    /// Base type of a domain; element of an array; 0 otherwise.
    pub base: Oid,
    /// What columns of a domain get that have no default of their own.
    pub default: Option<String>,
}

impl Catalog {
    /// Nothing that a statement could be planned by differs. The version does not count.
    pub fn shows_same_as(&self, other: &Catalog) -> bool {
        let Catalog { version: _, closures: _, digest, relations, relation_names, functions, function_names, types, .. } = self;
        let Catalog { operator_schemas, schemas, is_collation_c, definitions, relation_dependencies, .. } = self;
        let Catalog { function_dependencies, operator_functions, type_functions, conversions, .. } = self;
        let Catalog { extension_equalities, implicit_casts, held, .. } = self;
        *digest == other.digest
            && *relations == other.relations
            && *relation_names == other.relation_names
            && *functions == other.functions
            && *function_names == other.function_names
            && *types == other.types
            && *operator_schemas == other.operator_schemas
            && *schemas == other.schemas
            && *is_collation_c == other.is_collation_c
            && *definitions == other.definitions
            && *relation_dependencies == other.relation_dependencies
            && *function_dependencies == other.function_dependencies
            && *operator_functions == other.operator_functions
            && *type_functions == other.type_functions
            && *conversions == other.conversions
            && *extension_equalities == other.extension_equalities
            && *implicit_casts == other.implicit_casts
            && *held == other.held
    }

    /// The type under a domain, which compares and hashes like it; of another type, itself.
    pub fn under_domains(&self, mut type_oid: Oid) -> Oid {
        const DEPTH_MAX: usize = 64;
        for _ in 0..DEPTH_MAX {
            match self.types.get(&type_oid) {
                Some(domain) if domain.kind == 'd' => type_oid = domain.base,
                _ => break,
            }
        }
        type_oid
    }

    /// A function of users makes the column's values of text: a string that is assigned to it is another value than the same text.
    pub fn has_cast_from_text(&self, column: &Column) -> bool {
        let cast = ObjectName::new("cast", format!("text as {}", column.type_name));
        let is_assignment = |cast: &str| cast.ends_with("method f") && !cast.contains(", context e,");
        self.definitions.get(&cast).is_some_and(is_assignment)
    }

    /// One sentence a difference, `here` being this catalogue and `there` the other; empty when the schemas are alike.
    /// Owners, privileges, storage parameters and sequence positions do not count.
    pub fn diff(&self, other: &Catalog) -> Vec<String> {
        self.definitions.differences(&other.definitions)
    }

    /// The relation and those that hold a part of its rows, partitions of partitions too; parents before their children.
    pub fn family<'c>(&'c self, relation: &'c Relation) -> Vec<&'c Relation> {
        let mut found = vec![relation];
        let mut next = 0;
        while let Some(member) = found.get(next) {
            for child in member.children.iter().filter_map(|child| self.relations.get(child)) {
                if !found.iter().any(|known| known.oid == child.oid) {
                    found.push(child);
                }
            }
            next += 1;
        }
        found
    }

    /// Definitions of the relation and of those that hold a part of its rows.
    pub fn definitions_of_family(&self, relation: &Relation) -> Definitions {
        self.family(relation).into_iter().fold(Definitions::of_server(self.definitions.server_major()), |mut all, member| {
            all.extend(self.definitions.of(&member.whole()));
            all
        })
    }

    /// The relation that an unqualified or qualified name means under this search path. Does not know temporary tables.
    pub fn resolve(&self, schema: Option<&str>, name: &str, search_path: &[String]) -> Option<&Relation> {
        let find = |schema: &str| {
            let oid = self.relation_names.get(&(schema.to_owned(), name.to_owned()))?;
            self.relations.get(oid)
        };
        match schema {
            Some(schema) => find(schema),
            None => search_path.iter().find_map(|schema| find(schema)),
        }
    }
}

impl Relation {
    /// Writing its rows is all that happens: no trigger, rule or policy looks on, and no other table holds a part of them.
    pub fn stands_alone(&self) -> bool {
        self.kind == RelationKind::Table
            && self.triggers.is_empty()
            && self.rules.is_empty()
            && !self.has_row_security
            && self.parents.is_empty()
            && self.children.is_empty()
    }

    /// It belongs to a declaratively partitioned table.
    pub fn is_partition(&self, catalog: &Catalog) -> bool {
        self.parents
            .iter()
            .any(|parent| catalog.relations.get(parent).is_some_and(|parent| parent.kind == RelationKind::PartitionedTable))
    }

    /// How the definitions name it: `table public.books`.
    pub fn whole(&self) -> String {
        format!("{} {}.{}", self.kind.word(), self.schema, self.name)
    }

    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }
}
