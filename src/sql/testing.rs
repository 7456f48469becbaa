//! A schema and a shard map made by hand, for the tests of this folder.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::context::Context;
use crate::catalog::{
    Catalog, Column, Dependency, DependencyTarget, DependentKind, Function, Policy, Relation, RelationKind, Trigger, TriggerEvents,
    Type, Unique,
};
use crate::shard_key::{KeyColumn, KeyFunction, KeyType, Oid, oid};
use crate::shardmap::{
    Bound, Epoch, Group, GroupId, MapSnapshot, Partition, PartitionId, PartitionState, Shard, ShardId, ShardState, Strategy, Table,
    TableKind,
};

const DOMAIN: Oid = 90_001;
const FIRST_RELATION: Oid = 10_000;
const FIRST_FUNCTION: Oid = 20_000;

/// A catalogue and a map that grow by what is declared.
#[derive(Default)]
pub(super) struct Fixture {
    pub(super) catalog: Catalog,
    pub(super) map: MapSnapshot,
}

impl Fixture {
    /// `columns`: `"k int8, name text/ci"`; `/ci`: of a nondeterministic collation, `/c`: sorts bytewise; `=x`: has that default.
    pub(super) fn table(&mut self, name: &str, columns: &str) -> Oid {
        let columns = columns.split(',').enumerate().map(|(index, column)| parsed_column(index, column.trim())).collect();
        self.relation(name, RelationKind::Table, columns, None)
    }

    /// It depends on every relation whose whole name its definition has.
    pub(super) fn view(&mut self, name: &str, columns: &str, definition: &str) -> Oid {
        let columns = columns.split(',').enumerate().map(|(index, column)| parsed_column(index, column.trim())).collect();
        let words: Vec<&str> = definition.split(|c: char| !(c.is_alphanumeric() || "._".contains(c))).collect();
        let is_named = |relation: &&Relation| words.contains(&format!("{}.{}", relation.schema, relation.name).as_str());
        let named = self.catalog.relations.values().filter(is_named).map(|relation| Dependency {
            of: DependentKind::View,
            name: name.to_owned(),
            on: DependencyTarget::Relation(relation.oid),
        });
        let dependencies = named.collect();
        let oid = self.relation(name, RelationKind::View, columns, Some(definition.to_owned()));
        self.catalog.relation_dependencies.insert(oid, dependencies);
        oid
    }

    fn relation(&mut self, name: &str, kind: RelationKind, columns: Vec<Column>, view_definition: Option<String>) -> Oid {
        let (schema, name) = name.split_once('.').unwrap_or(("public", name));
        let oid = FIRST_RELATION + Oid::try_from(self.catalog.relations.len()).expect("few relations");
        let relation = Relation { columns, view_definition, ..Relation::bare(oid, schema, name, kind) };
        self.catalog.relation_names.insert((schema.to_owned(), name.to_owned()), oid);
        self.catalog.relations.insert(oid, relation);
        oid
    }

    /// A function in SQL or another language, of any arguments.
    pub(super) fn function(&mut self, name: &str, volatility: char, language: &str, body: &str) -> Oid {
        let (schema, name) = name.split_once('.').unwrap_or(("public", name));
        let oid = FIRST_FUNCTION + Oid::try_from(self.catalog.functions.len()).expect("few functions");
        let function = Function {
            oid,
            schema: schema.to_owned(),
            name: name.to_owned(),
            argument_count: 0,
            argument_types: Vec::new(),
            argument_names: Vec::new(),
            result_names: Vec::new(),
            default_count: 0,
            is_variadic: true,
            built_in: Vec::new(),
            takes_row: false,
            returns_set: false,
            language: language.to_owned(),
            volatility,
            kind: 'f',
            body: body.to_owned(),
            is_extension_member: false,
            relations: Vec::new(),
            types: Vec::new(),
            search_path: None,
            custom_settings: Vec::new(),
            settings: Vec::new(),
            tree_digest: None,
        };
        self.catalog.functions.insert(oid, function);
        self.catalog.function_names.entry(name.to_owned()).or_default().push(oid);
        oid
    }

    pub(super) fn trigger(&mut self, table: Oid, name: &str, function: Oid, is_before: bool) {
        let trigger = Trigger {
            name: name.to_owned(),
            function,
            is_before,
            is_row: true,
            is_instead: false,
            fires_on: TriggerEvents { insert: true, update: true, delete: true, truncate: false },
            has_transition_tables: false,
            definition: String::new(),
        };
        self.catalog.relations.get_mut(&table).expect("declared").triggers.push(trigger);
    }

    pub(super) fn policy(&mut self, table: Oid, expression: &str, relations: Vec<Oid>) {
        let relation = self.catalog.relations.get_mut(&table).expect("declared");
        relation.has_row_security = true;
        relation.policies.push(Policy { name: "p".to_owned(), expressions: vec![expression.to_owned()], relations });
    }

    /// Makes this column of a table in the schema `public` its primary key.
    pub(super) fn primary_key(&mut self, table: &str, column: &str) {
        let is_it = |relation: &&mut Relation| relation.schema == "public" && relation.name == table;
        self.catalog.relations.values_mut().find(is_it).expect("declared").uniques.push(Unique {
            name: "pkey".to_owned(),
            is_primary: true,
            is_exclusion: false,
            is_constraint: true,
            columns: vec![Some(column.to_owned())],
            is_partial: false,
        });
    }

    /// A colocation group of four partitions, two on each of two shards.
    pub(super) fn group(&mut self, id: i32, strategy: Strategy, types: &[KeyType]) {
        let partition = |index: i32, low: Option<Bound>| Partition {
            id: PartitionId(id * 10 + index),
            shard: ShardId(index % 2 + 1),
            state: PartitionState::Online,
            epoch: 1,
            low,
        };
        let low = |index: i32| match strategy {
            Strategy::Hash => (index > 0).then(|| Bound::Hash(i64::from(index) << 60)),
            Strategy::Range => (index > 0).then(|| Bound::Key(Box::from([u8::try_from(index * 40).expect("small")]))),
            Strategy::Lookup => None,
        };
        let partitions = (0..4).map(|index| partition(index, low(index))).collect();
        let group = Group::new(GroupId(id), strategy, types.to_vec(), partitions, None).expect("valid");
        self.map.groups.insert(GroupId(id), Arc::new(group));
    }

    /// `key`: columns, each perhaps with a function.
    pub(super) fn shard_by(&mut self, name: &str, group: i32, key: &[(&str, Option<KeyFunction>)]) {
        let (schema, table) = name.split_once('.').unwrap_or(("public", name));
        let relation = self.catalog.resolve(Some(schema), table, &[]).expect("declared");
        let key = key
            .iter()
            .map(|(column, function)| KeyColumn {
                column: (*column).to_owned(),
                column_type: KeyType::of_column(relation.column(column).expect("declared").type_oid).expect("a key type"),
                function: function.clone(),
            })
            .collect();
        self.distribute(schema, table, TableKind::Sharded { group: GroupId(group), key });
    }

    pub(super) fn replicate(&mut self, name: &str) {
        self.distribute("public", name, TableKind::Reference);
    }

    fn distribute(&mut self, schema: &str, name: &str, kind: TableKind) {
        let table = Table { schema: schema.to_owned(), name: name.to_owned(), kind, renamed: None };
        self.map.tables.insert((schema.to_owned(), name.to_owned()), Arc::new(table));
    }

    pub(super) fn context(self, search_path: &[&str], temporary_tables: &[&str]) -> Context {
        Context {
            catalog: Arc::new(self.catalog),
            map: Arc::new(self.map),
            search_path: search_path.iter().map(|schema| (*schema).to_owned()).collect(),
            temporary_tables: temporary_tables.iter().map(|table| (*table).to_owned()).collect(),
            brought: BTreeMap::new(),
            id: 1,
            user: "ada".to_owned(),
        }
    }
}

fn parsed_column(index: usize, text: &str) -> Column {
    let (text, default) = text.split_once('=').map_or((text, None), |(text, default)| (text, Some(default.to_owned())));
    let (name, type_name) = text.split_once(' ').expect("a name and a type");
    let (type_name, collation) = type_name.split_once('/').unwrap_or((type_name, ""));
    let (type_oid, typmod) = match type_name {
        "char5" => (oid::BPCHAR, 9),
        "numeric10_2" => (oid::NUMERIC, (10 << 16 | 2) + 4),
        "varchar3" => (oid::VARCHAR, 7),
        "timestamp0" => (oid::TIMESTAMP, 0),
        other => (type_oid(other), -1),
    };
    Column {
        name: name.to_owned(),
        attnum: i16::try_from(index + 1).expect("few columns"),
        type_oid,
        type_name: type_name.to_owned(),
        typmod,
        is_not_null: true,
        is_deterministic: collation != "ci",
        is_collation_c: collation == "c",
        collation: None,
        default,
        is_generated: false,
        identity: None,
    }
}

fn type_oid(name: &str) -> Oid {
    match name {
        "float8" => oid::FLOAT8,
        "numeric" => oid::NUMERIC,
        "varchar" => oid::VARCHAR,
        "int2" => oid::INT2,
        "int4" => oid::INT4,
        "int8" => oid::INT8,
        "bool" => oid::BOOL,
        "bpchar" => oid::BPCHAR,
        "timestamp" => oid::TIMESTAMP,
        "timestamptz" => oid::TIMESTAMPTZ,
        "d8" => DOMAIN,
        "jsonb" => 3802,
        other => KeyType::from_name(other).expect("a type of the fixture").oid(),
    }
}

/// The schema of the corpus.
pub(super) fn library() -> Fixture {
    let mut fixture = Fixture::default();
    let shard = |id: i32| Shard {
        id: ShardId(id),
        name: format!("s{id}"),
        url: String::new(),
        region: None,
        capacity: 1.0,
        state: ShardState::Online,
        is_home: id == 1,
        owes: false,
        identity: None,
        primary: Arc::default(),
    };
    fixture.map.epoch = Epoch { incarnation: 1, counter: 1 };
    fixture.map.shards = (1..=2).map(|id| Arc::new(shard(id))).collect();
    fixture.catalog.schemas = ["public", "app", "ops", "shadow"].map(str::to_owned).to_vec();
    let domain =
        Type { oid: DOMAIN, schema: "public".to_owned(), name: "d8".to_owned(), kind: 'd', base: oid::INT8, default: None };
    fixture.catalog.types.insert(DOMAIN, domain);
    for name in [
        "bool",
        "int2",
        "int4",
        "int8",
        "numeric",
        "float8",
        "text",
        "varchar",
        "bpchar",
        "date",
        "timestamp",
        "timestamptz",
        "uuid",
    ] {
        let (oid, schema) = (type_oid(name), "pg_catalog".to_owned());
        fixture.catalog.types.insert(oid, Type { oid, schema, name: name.to_owned(), kind: 'b', base: 0, default: None });
    }
    tables(&mut fixture);
    views(&mut fixture);
    functions(&mut fixture);
    fixture.catalog.operator_schemas = vec!["ops".to_owned()];
    fixture
}

fn tables(fixture: &mut Fixture) {
    fixture.group(1, Strategy::Hash, &[KeyType::Int8]);
    fixture.group(2, Strategy::Hash, &[KeyType::Text, KeyType::Int4]);
    fixture.group(3, Strategy::Lookup, &[KeyType::Text]);
    fixture.group(4, Strategy::Range, &[KeyType::Date]);
    fixture.group(5, Strategy::Hash, &[KeyType::Uuid]);
    fixture.group(6, Strategy::Range, &[KeyType::Bpchar]);
    fixture.group(7, Strategy::Range, &[KeyType::Text]);
    fixture.group(8, Strategy::Lookup, &[KeyType::Bool]);
    fixture.group(9, Strategy::Hash, &[KeyType::Int8]);
    fixture.group(10, Strategy::Range, &[KeyType::Int8, KeyType::Int4]);
    fixture.group(11, Strategy::Hash, &[KeyType::Timestamp]);
    let k = |name: &'static str| [(name, None)];
    for (name, columns, group, key) in [
        ("t", "k int8, x int4, name text, ci text/ci, f float8", 1, "k"),
        ("u", "k int8, t_k int8, y int4, name text", 1, "k"),
        ("small", "k int2, z int4", 1, "k"),
        ("app.orders", "id int8, total numeric", 1, "id"),
        ("Mixed Case", "Key int8, v text", 1, "Key"),
        ("serial", "k int8=nextval('serial_k_seq'::regclass), v text", 1, "k"),
        ("codes_v", "name varchar3, v text", 7, "name"),
        ("events", "day date, n int4", 4, "day"),
        ("docs", "id uuid, body jsonb", 5, "id"),
        ("codes", "code char5, v text", 6, "code"),
        ("names", "name text, v text", 7, "name"),
        ("names_c", "name text/c, v text", 7, "name"),
        ("flags", "on_ bool, v text", 8, "on_"),
        ("stamps", "at timestamp, v text", 11, "at"),
        ("stamps0", "at timestamp0, v text", 11, "at"),
    ] {
        fixture.table(name, columns);
        fixture.shard_by(name, group, &k(key));
    }
    fixture.table("pair", "region text, tenant int4, v text");
    fixture.shard_by("pair", 2, &[("region", None), ("tenant", None)]);
    fixture.table("pair_log", "tenant int4, region text, entry text");
    fixture.shard_by("pair_log", 2, &[("region", None), ("tenant", None)]);
    fixture.table("span", "a int8, b int4, v text");
    fixture.shard_by("span", 10, &[("a", None), ("b", None)]);
    for name in ["books", "library"] {
        fixture.table(name, "isbn text, title text, pages int4");
        fixture.shard_by(name, 3, &[("isbn", Some(KeyFunction::Right(1)))]);
    }
    fixture.table("buckets", "k int8, v text");
    fixture.shard_by("buckets", 9, &[("k", Some(KeyFunction::Modulo(10)))]);
    fixture.table("ref", "id int8, g int4, name text");
    fixture.replicate("ref");
    fixture.table("home", "id int8, k int8, name text, f float8, ci text/ci, d d8");
    fixture.table("app.t", "k int8, local text");
    let guarded = fixture.table("guarded", "k int8, v text");
    fixture.shard_by("guarded", 1, &k("k"));
    let membership = fixture.table("membership", "member text");
    fixture.policy(guarded, "EXISTS (SELECT 1 FROM public.membership)", vec![membership]);
}

fn views(fixture: &mut Fixture) {
    for (name, columns, definition) in [
        ("v_t", "k int8, x int4, name text", "SELECT t.k, t.x, t.name FROM public.t"),
        ("v_renamed", "a int4, b int8", "SELECT t.x AS a, t.k AS b FROM public.t"),
        ("v_five", "k int8, x int4", "SELECT t.k, t.x FROM public.t WHERE (t.k = 5)"),
        ("v_big", "k int8", "SELECT t.k FROM public.t WHERE (t.k = '5000000000'::bigint)"),
        ("v_limited", "k int8, x int4", "SELECT t.k, t.x FROM public.t ORDER BY t.x LIMIT 10"),
        ("v_sum", "k int8, n int8", "SELECT t.k, count(*) AS n FROM public.t GROUP BY t.k"),
        ("v_total", "n int8, k int8", "SELECT count(*) AS n, max(t.k) AS k FROM public.t"),
        ("v_joined", "k int8, y int4", "SELECT t.k, u.y FROM (public.t JOIN public.u ON ((t.k = u.k)))"),
        ("v_union", "k int8", "SELECT t.k FROM public.t UNION ALL SELECT u.k FROM public.u"),
        ("v_dates", "at timestamp", "SELECT events.day AS at FROM public.events UNION ALL SELECT stamps.at FROM public.stamps"),
        ("app.v_home", "k int8", "SELECT t.k FROM app.t"),
        ("v_ref", "id int8", "SELECT ref.id FROM public.ref"),
        ("v_nested", "b int8", "SELECT v_renamed.b FROM public.v_renamed"),
    ] {
        fixture.view(name, columns, definition);
    }
}

fn functions(fixture: &mut Fixture) {
    fixture.function("f_pure", 'i', "sql", "SELECT $1 + 1");
    fixture.function("f_counts", 's', "sql", "SELECT count(*) FROM public.t");
    fixture.function("f_home", 's', "sql", "SELECT count(*) FROM public.home");
    fixture.function("f_ref", 's', "sql", "SELECT count(*) FROM public.ref");
    fixture.function("f_dynamic", 'v', "plpgsql", "BEGIN EXECUTE 'x'; END");
    fixture.function("f_other", 'v', "plperl", "...");
    fixture.function("shadow.right", 'i', "sql", "SELECT $1");
    let audit = fixture.function("audit", 'v', "plpgsql", "BEGIN INSERT INTO public.home(id) VALUES (1); RETURN NEW; END");
    let sets_key = fixture.function("sets_key", 'v', "plpgsql", "BEGIN NEW.k := 7; RETURN NEW; END");
    let audited = fixture.table("audited", "k int8, v text");
    fixture.shard_by("audited", 1, &[("k", None)]);
    fixture.trigger(audited, "audit", audit, false);
    let rekeyed = fixture.table("rekeyed", "k int8, v text");
    fixture.shard_by("rekeyed", 1, &[("k", None)]);
    fixture.trigger(rekeyed, "sets_key", sets_key, true);
    fixture.catalog.operator_functions = HashMap::new();
}
