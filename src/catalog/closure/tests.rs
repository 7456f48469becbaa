//! The walk over a small catalogue, with a reader that knows a few bodies by heart.

use std::collections::HashMap;

use super::*;
use crate::catalog::{Called, Conversion, Dependency, ForeignKey, ForeignKeyAction, ObjectName, Policy, Trigger, TriggerEvents};

const T: Oid = 1;
const AUDIT: Oid = 2;
const VIEW: Oid = 3;
const SEQUENCE: Oid = 4;
const OTHER_AUDIT: Oid = 5;

struct Bodies(HashMap<&'static str, BodyReferences>);

impl BodyReader for Bodies {
    fn references(&self, _language: &str, body: &str) -> BodyReferences {
        self.0.get(body).cloned().unwrap_or_default()
    }

    fn schema_effect(&self, _language: &str, body: &str) -> Option<SchemaEffect> {
        match body {
            "create" => Some(SchemaEffect::Changes),
            "execute" => Some(SchemaEffect::RunsAnything),
            _ => None,
        }
    }
}

fn name(name: &str) -> BodyName {
    BodyName { schema: None, name: name.to_owned() }
}

fn writes(table: &str, writes: RowWrites) -> BodyReferences {
    BodyReferences { writes: BTreeMap::from([(name(table), writes)]), ..Default::default() }
}

fn updates(columns: &[&str]) -> RowWrites {
    RowWrites::update(columns.iter().map(|column| (*column).to_owned()).collect())
}

fn reader() -> Bodies {
    Bodies(HashMap::from([
        ("count audit", BodyReferences { reads: vec![name("audit")], ..Default::default() }),
        ("insert audit", writes("audit", RowWrites::INSERT)),
        ("delete audit", writes("audit", RowWrites::DELETE)),
        ("truncate audit", writes("audit", RowWrites::TRUNCATE)),
        ("update audit", writes("audit", updates(&["note"]))),
        ("update audit key", writes("audit", updates(&["note", "id"]))),
        ("insert view", writes("v", RowWrites::INSERT)),
        ("delete view", writes("v", RowWrites::DELETE)),
        ("count far", BodyReferences { reads: vec![name("far")], ..Default::default() }),
        ("stamp", BodyReferences { assigned_new: Some(vec!["id".to_owned()]), ..Default::default() }),
        ("call log", BodyReferences { functions: vec![name("log"), name("caller")], ..Default::default() }),
        ("execute", BodyReferences { unknown: Some("runs SQL that it makes itself".into()), ..Default::default() }),
        ("use operator", BodyReferences { operators: vec!["===".into()], ..Default::default() }),
        ("SELECT exists audit", BodyReferences { reads: vec![name("audit")], ..Default::default() }),
        ("notify", BodyReferences { notifies: true, ..Default::default() }),
        ("set", BodyReferences { sets_session: true, ..Default::default() }),
        ("xml", BodyReferences { functions: vec![name("query_to_xml")], ..Default::default() }),
    ]))
}

fn relation(oid: Oid, schema: &str, name: &str, kind: RelationKind) -> Relation {
    Relation::bare(oid, schema, name, kind)
}

fn function(oid: Oid, name: &str, language: &str, body: &str) -> Function {
    Function {
        oid,
        schema: "public".into(),
        name: name.into(),
        argument_count: 0,
        argument_types: Vec::new(),
        argument_names: Vec::new(),
        result_names: Vec::new(),
        default_count: 0,
        is_variadic: false,
        built_in: Vec::new(),
        takes_row: false,
        returns_set: false,
        language: language.into(),
        volatility: 'v',
        kind: 'f',
        body: body.into(),
        is_extension_member: false,
        relations: Vec::new(),
        types: Vec::new(),
        search_path: None,
        custom_settings: Vec::new(),
        settings: Vec::new(),
        tree_digest: None,
    }
}

fn trigger(function: Oid) -> Trigger {
    Trigger {
        name: "tr".into(),
        function,
        is_before: false,
        is_row: true,
        is_instead: false,
        fires_on: TriggerEvents { insert: true, ..Default::default() },
        has_transition_tables: false,
        definition: String::new(),
    }
}

fn catalog(functions: Vec<Function>) -> Catalog {
    let mut catalog = Catalog { schemas: vec!["public".into(), "s".into()], ..Default::default() };
    for relation in [
        relation(T, "public", "t", RelationKind::Table),
        relation(AUDIT, "public", "audit", RelationKind::Table),
        relation(VIEW, "public", "v", RelationKind::View),
        relation(SEQUENCE, "public", "seq", RelationKind::Sequence),
    ] {
        catalog.relation_names.insert((relation.schema.clone(), relation.name.clone()), relation.oid);
        catalog.relations.insert(relation.oid, relation);
    }
    for function in functions {
        catalog.function_names.entry(function.name.clone()).or_default().push(function.oid);
        catalog.functions.insert(function.oid, function);
    }
    catalog
}

fn known(reads: &[Oid], writes: &[Oid]) -> Closure {
    Closure::Known(References { reads: reads.to_vec(), writes: writes.to_vec(), sequences: Vec::new() })
}

#[test]
fn calls_are_followed_and_recursion_ends() {
    let catalog = catalog(vec![
        function(10, "log", "plpgsql", "insert audit"),
        function(11, "caller", "sql", "call log"),
        function(12, "pure", "sql", "select 1"),
    ]);
    assert_eq!(*catalog.closure_of_function(11, &reader()), known(&[], &[AUDIT]));
    assert_eq!(*catalog.closure_of_function(12, &reader()), known(&[], &[]));
}

#[test]
fn what_cannot_be_read_is_unknown_and_says_why() {
    let catalog = catalog(vec![
        function(10, "dynamic", "plpgsql", "execute"),
        function(11, "perl", "plperl", "…"),
        function(12, "xml", "sql", "xml"),
        function(13, "builtin", "internal", "int4eq"),
    ]);
    let closure = |oid| (*catalog.closure_of_function(oid, &reader())).clone();
    assert_eq!(closure(10), Closure::Unknown("function \"dynamic\" runs SQL that it makes itself".into()));
    assert_eq!(closure(11), Closure::Unknown("function \"perl\" is written in plperl".into()));
    assert!(matches!(closure(12), Closure::Unknown(why) if why.contains("query_to_xml")), "{:?}", closure(12));
    assert_eq!(closure(13), known(&[], &[]));
}

#[test]
fn members_of_extensions_are_transparent() {
    let member = Function { is_extension_member: true, ..function(10, "f", "c", "…") };
    assert_eq!(*catalog(vec![member]).closure_of_function(10, &reader()), known(&[], &[]));
    let runner = Function { is_extension_member: true, ..function(10, "crosstab", "c", "…") };
    let closure = (*catalog(vec![runner]).closure_of_function(10, &reader())).clone();
    assert_eq!(closure, Closure::Unknown("function \"crosstab\" runs a query that is given to it as text".into()));
}

#[test]
fn triggers_count_for_writes_only() {
    let mut catalog = catalog(vec![function(10, "log", "plpgsql", "insert audit")]);
    catalog.relations.get_mut(&T).unwrap().triggers.push(trigger(10));
    assert_eq!(*catalog.closure_of_relation(T, Access::Read, &reader()), known(&[], &[]));
    assert_eq!(*catalog.closure_of_relation(T, Access::Write, &reader()), known(&[], &[AUDIT]));
    let parts = catalog.closures_by_part(T, Access::Write, &reader());
    assert_eq!(parts.len(), 1);
    assert_eq!((parts[0].name.as_str(), parts[0].function), ("trigger \"tr\"", Some(10)));
}

#[test]
fn what_notifies_is_known_even_where_nothing_else_is() {
    let dynamic = Function { body: "execute 'Notify x'".into(), ..function(12, "dynamic", "plperl", "") };
    let tcn = Function { is_extension_member: true, ..function(14, "triggered_change_notification", "c", "…") };
    let mut catalog = catalog(vec![
        function(10, "log", "plpgsql", "notify"),
        function(11, "caller", "sql", "call log"),
        dynamic,
        function(13, "quiet", "plpgsql", "insert audit"),
        tcn,
    ]);
    let notifies = [10, 11, 12, 13, 14].map(|oid| catalog.function_notifies(oid, &reader()));
    assert_eq!(notifies, [true, true, true, false, true]);
    catalog.closures = ClosureCache::default();
    catalog.relations.get_mut(&T).unwrap().triggers.push(trigger(11));
    let parts = catalog.closures_by_part(T, Access::Write, &reader());
    assert_eq!(parts.len(), 1, "it touches nothing, and counts");
    assert!(parts[0].notifies && parts[0].fires_on.meets(TriggerEvents::INSERT));
    assert!(!parts[0].fires_on.meets(TriggerEvents::UPDATE));
    // By what a trigger of another table does.
    catalog.relations.get_mut(&AUDIT).unwrap().triggers.push(trigger(10));
    assert!(catalog.function_notifies(13, &reader()));
}

/// Only who calls it by its name can follow what it sets.
#[test]
fn a_setting_is_known_to_who_calls_the_function() {
    let mut catalog = catalog(vec![
        function(10, "log", "plpgsql", "set"),
        function(11, "caller", "sql", "call log"),
        function(12, "dynamic", "plpgsql", "execute"),
        function(13, "quiet", "plpgsql", "insert audit"),
    ]);
    let call = |catalog: &Catalog, oid| {
        let call = catalog.call_of_function(oid, &reader());
        ((*call.closure).clone(), call.sets)
    };
    let unknown = Closure::Unknown("function \"log\" changes a setting of the session".to_owned());
    for setting in [10, 11] {
        assert_eq!(*catalog.closure_of_function(setting, &reader()), unknown);
        assert_eq!(call(&catalog, setting), (known(&[], &[]), CallSets::Session));
    }
    assert!(matches!(call(&catalog, 12), (Closure::Unknown(_), CallSets::Nothing)));
    assert_eq!(call(&catalog, 13), (known(&[], &[AUDIT]), CallSets::Nothing));
    catalog.closures = ClosureCache::default();
    catalog.relations.get_mut(&AUDIT).unwrap().triggers.push(trigger(10));
    assert_eq!(call(&catalog, 13), (known(&[], &[AUDIT]), CallSets::Session));
    assert_eq!(catalog.closures_by_part(AUDIT, Access::Write, &reader())[0].closure, unknown);
}

#[test]
fn what_changes_the_schema_is_known_through_what_calls_it() {
    let member = |oid, body| Function { is_extension_member: true, ..function(oid, "member", "plpgsql", body) };
    let mut catalog = catalog(vec![
        function(10, "log", "plpgsql", "create"),
        function(11, "caller", "sql", "call log"),
        function(12, "runs", "plpgsql", "execute"),
        function(13, "quiet", "plpgsql", "insert audit"),
        member(14, "create"),
        member(15, "execute"),
    ]);
    let found = [10, 11, 12, 13, 14, 15].map(|oid| catalog.function_changes_schema(oid, &reader()));
    let changes = |oid| Some((SchemaEffect::Changes, oid));
    assert_eq!(found, [changes(10), changes(10), Some((SchemaEffect::RunsAnything, 12)), None, changes(14), None]);
    catalog.closures = ClosureCache::default();
    catalog.relations.get_mut(&AUDIT).unwrap().triggers.push(trigger(10));
    assert_eq!(catalog.function_changes_schema(13, &reader()), changes(10), "by a trigger of what it writes");
}

#[test]
fn conversions_count_where_a_value_of_their_type_may_be() {
    let mut catalog = catalog(vec![
        function(10, "to_int", "sql", "count audit"),
        function(11, "plain", "sql", "select 1"),
        function(12, "names", "sql", "select x::box1"),
        Function { types: vec![700], ..function(13, "takes", "sql", "select 2") },
    ]);
    let type_names = BTreeSet::from(["box1".to_owned()]);
    catalog.conversions.push(Conversion { function: 10, types: BTreeSet::from([700]), type_names, called: Called::Anywhere });
    assert_eq!(*catalog.closure_of_function(11, &reader()), known(&[], &[]));
    assert_eq!(*catalog.closure_of_function(12, &reader()), known(&[AUDIT], &[]));
    assert_eq!(*catalog.closure_of_function(13, &reader()), known(&[AUDIT], &[]));
}

#[test]
fn a_policy_counts_for_reads_once_row_security_is_on() {
    let mut catalog = catalog(vec![]);
    let table = catalog.relations.get_mut(&T).unwrap();
    table.policies.push(Policy { name: "p".into(), expressions: vec!["exists audit".into()], relations: vec![] });
    assert_eq!(*catalog.closure_of_relation(T, Access::Read, &reader()), known(&[], &[]));
    // A changed catalogue is a new one; the old one's walks are not its own.
    catalog.closures = ClosureCache::default();
    catalog.relations.get_mut(&T).unwrap().has_row_security = true;
    assert_eq!(*catalog.closure_of_relation(T, Access::Read, &reader()), known(&[AUDIT], &[]));
}

#[test]
fn a_view_stands_for_what_its_query_reads() {
    let mut catalog = catalog(vec![function(10, "counter", "sql", "count audit")]);
    let dependency = |on| super::super::Dependency { of: DependentKind::View, name: "_RETURN".into(), on };
    catalog
        .relation_dependencies
        .insert(VIEW, vec![dependency(DependencyTarget::Relation(T)), dependency(DependencyTarget::Function(10))]);
    assert_eq!(*catalog.closure_of_relation(VIEW, Access::Read, &reader()), known(&[T, AUDIT], &[]));
    assert_eq!(*catalog.closure_of_relation(VIEW, Access::Write, &reader()), known(&[T, AUDIT], &[T]));
}

#[test]
fn a_default_that_draws_from_a_sequence_is_no_write() {
    let mut catalog = catalog(vec![]);
    let dependency =
        super::super::Dependency { of: DependentKind::Default, name: "id".into(), on: DependencyTarget::Relation(SEQUENCE) };
    catalog.relation_dependencies.insert(T, vec![dependency]);
    let expected = Closure::Known(References { sequences: vec![SEQUENCE], ..Default::default() });
    assert_eq!(*catalog.closure_of_relation(T, Access::Write, &reader()), expected);
    assert_eq!(catalog.closures_by_part(T, Access::Write, &reader()), vec![]);
}

#[test]
fn names_are_resolved_generously_unless_the_function_has_a_path() {
    let mut catalog = catalog(vec![
        function(10, "open", "sql", "count audit"),
        Function { search_path: Some(vec!["s".into()]), ..function(11, "pathed", "sql", "count audit") },
    ]);
    let other = relation(OTHER_AUDIT, "s", "audit", RelationKind::Table);
    catalog.relation_names.insert(("s".into(), "audit".into()), OTHER_AUDIT);
    catalog.relations.insert(OTHER_AUDIT, other);
    assert_eq!(*catalog.closure_of_function(10, &reader()), known(&[AUDIT, OTHER_AUDIT], &[]));
    assert_eq!(*catalog.closure_of_function(11, &reader()), known(&[OTHER_AUDIT], &[]));
}

#[test]
fn functions_behind_users_operators_are_followed() {
    let mut catalog = catalog(vec![function(10, "eq", "sql", "count audit"), function(11, "f", "sql", "use operator")]);
    catalog.operator_functions.insert("===".into(), vec![10]);
    assert_eq!(*catalog.closure_of_function(11, &reader()), known(&[AUDIT], &[]));
}

#[test]
fn a_rule_makes_writes_unknown() {
    let mut catalog = catalog(vec![]);
    catalog.relations.get_mut(&T).unwrap().rules.push("r".into());
    assert_eq!(*catalog.closure_of_relation(T, Access::Read, &reader()), known(&[], &[]));
    assert!(matches!(&*catalog.closure_of_relation(T, Access::Write, &reader()), Closure::Unknown(_)));
}

#[test]
fn who_uses_a_name_is_found_over_several_steps() {
    let mut catalog = Catalog::default();
    let mut guarded = relation(T, "public", "guarded", RelationKind::Table);
    guarded.triggers.push(trigger(10));
    let mut allowed = relation(AUDIT, "public", "allowed", RelationKind::Table);
    allowed.policies.push(Policy { name: "p".into(), expressions: vec!["(k > f(k))".into()], relations: Vec::new() });
    for relation in
        [guarded, allowed, relation(VIEW, "public", "v", RelationKind::View), relation(4, "public", "bare", RelationKind::Table)]
    {
        catalog.relations.insert(relation.oid, relation);
    }
    let on = DependencyTarget::Relation(T);
    catalog.relation_dependencies.insert(VIEW, vec![Dependency { of: DependentKind::View, name: "v".into(), on }]);
    for function in [function(10, "log", "plpgsql", "BEGIN PERFORM f(1); END"), function(11, "f", "sql", "SELECT 1")] {
        catalog.function_names.insert(function.name.clone(), vec![function.oid]);
        catalog.functions.insert(function.oid, function);
    }
    let using = |catalog: &Catalog, name: &str| {
        catalog.names_that_use(&[name.to_owned()]).map(|names| names.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(using(&catalog, "f").expect("named"), ["allowed", "f", "guarded", "log", "v"]);
    assert_eq!(using(&catalog, "bare").expect("named"), ["bare"]);
    catalog.operator_functions.insert("===".into(), vec![11]);
    assert_eq!(using(&catalog, "f"), None, "an operator has no name to look for");
}

const CHILD: Oid = 6;
const FAR: Oid = 7;

/// `audit (id, note)`, `child` that refers to it by these actions, and a function for each way to write to `audit`.
fn with_child(on_delete: ForeignKeyAction, on_update: ForeignKeyAction) -> Catalog {
    let mut catalog = catalog(vec![
        function(10, "inserts", "sql", "insert audit"),
        function(11, "deletes", "sql", "delete audit"),
        function(12, "updates", "sql", "update audit"),
        function(13, "updates_key", "sql", "update audit key"),
        function(14, "truncates", "sql", "truncate audit"),
        function(15, "inserts_view", "sql", "insert view"),
        function(16, "deletes_view", "sql", "delete view"),
        function(20, "far", "sql", "count far"),
        function(21, "stamps", "plpgsql", "stamp"),
    ]);
    let mut child = relation(CHILD, "public", "child", RelationKind::Table);
    child.foreign_keys.push(ForeignKey {
        name: "fk".into(),
        columns: vec!["audit_id".into()],
        referenced: AUDIT,
        referenced_columns: vec!["id".into()],
        on_delete,
        on_update,
        columns_set_on_delete: Vec::new(),
    });
    for relation in [child, relation(FAR, "public", "far", RelationKind::Table)] {
        catalog.relation_names.insert((relation.schema.clone(), relation.name.clone()), relation.oid);
        catalog.relations.insert(relation.oid, relation);
    }
    catalog
}

fn written(catalog: &Catalog, function: Oid) -> Vec<Oid> {
    match &*catalog.closure_of_function(function, &reader()) {
        Closure::Known(found) => found.reads.iter().chain(&found.writes).copied().filter(|oid| *oid != AUDIT).collect(),
        Closure::Unknown(why) => panic!("{why}"),
    }
}

/// What a function writes through foreign keys, by what it does to the rows that they refer to.
#[test]
fn a_foreign_key_acts_after_a_delete_or_a_change_of_what_it_refers_to() {
    use ForeignKeyAction::{Cascades, Looks};
    let all = |catalog: &Catalog| [10, 11, 12, 13, 14].map(|function| written(catalog, function));
    let child = || vec![CHILD];
    assert_eq!(all(&with_child(Cascades, Looks)), [vec![], child(), vec![], vec![], child()]);
    assert_eq!(all(&with_child(Looks, Cascades)), [vec![], vec![], vec![], child(), child()]);
    assert_eq!(all(&with_child(Looks, Looks)), [vec![], vec![], vec![], vec![], child()], "TRUNCATE … CASCADE");
    // A trigger that sets the column which the key refers to.
    let mut catalog = with_child(Looks, Cascades);
    let stamp = Trigger { is_before: true, fires_on: TriggerEvents::UPDATE, ..trigger(21) };
    catalog.relations.get_mut(&AUDIT).unwrap().triggers.push(stamp);
    assert_eq!(all(&catalog), [vec![], vec![], child(), child(), child()]);
}

#[test]
fn a_trigger_counts_on_its_events_and_columns() {
    let far = || vec![FAR];
    let with_trigger = |on: Oid, fires_on: TriggerEvents, definition: &str| {
        let mut catalog = with_child(ForeignKeyAction::Cascades, ForeignKeyAction::Cascades);
        let fires = Trigger { fires_on, definition: definition.to_owned(), ..trigger(20) };
        catalog.relations.get_mut(&on).unwrap().triggers.push(fires);
        [10, 11, 12, 13, 14].map(|function| written(&catalog, function).into_iter().filter(|oid| *oid == FAR).collect::<Vec<_>>())
    };
    let none = Vec::new;
    assert_eq!(with_trigger(AUDIT, TriggerEvents::INSERT, ""), [far(), none(), none(), none(), none()]);
    assert_eq!(with_trigger(AUDIT, TriggerEvents::UPDATE, ""), [none(), none(), far(), far(), none()]);
    let of = |columns: &str| {
        format!("CREATE TRIGGER \"x UPDATE OF y\" AFTER UPDATE OF {columns} ON public.audit FOR EACH ROW EXECUTE FUNCTION far()")
    };
    assert_eq!(with_trigger(AUDIT, TriggerEvents::UPDATE, &of("id, \"on\"")), [none(), none(), none(), far(), none()]);
    assert_eq!(with_trigger(AUDIT, TriggerEvents::UPDATE, &of("other")), [none(), none(), none(), none(), none()]);
    let truncate = TriggerEvents { truncate: true, ..TriggerEvents::NONE };
    assert_eq!(with_trigger(AUDIT, truncate, ""), [none(), none(), none(), none(), far()]);
    // Of the child, by what the foreign key does to it.
    assert_eq!(with_trigger(CHILD, TriggerEvents::INSERT, ""), [none(), none(), none(), none(), none()]);
    assert_eq!(with_trigger(CHILD, TriggerEvents::DELETE, ""), [none(), far(), none(), none(), none()]);
    assert_eq!(with_trigger(CHILD, TriggerEvents::UPDATE, &of("audit_id")), [none(), none(), none(), far(), none()]);
    assert_eq!(with_trigger(CHILD, truncate, ""), [none(), none(), none(), none(), far()]);
}

/// Rows that go from one partition to another are deleted in one and inserted into the other.
#[test]
fn an_update_of_a_partition_s_column_is_a_move() {
    let fires = |definition_of: &str, partitioned_by: Option<Vec<String>>| {
        let mut catalog = with_child(ForeignKeyAction::Looks, ForeignKeyAction::Looks);
        let mut part = relation(8, "public", "part", RelationKind::Table);
        part.parents.push(AUDIT);
        part.triggers.push(Trigger { fires_on: TriggerEvents::INSERT, definition: definition_of.to_owned(), ..trigger(20) });
        catalog.relations.insert(8, part);
        let parent = catalog.relations.get_mut(&AUDIT).unwrap();
        (parent.kind, parent.partition_columns) = (RelationKind::PartitionedTable, partitioned_by);
        parent.children.push(8);
        [11, 12, 13].map(|function| written(&catalog, function) == [FAR])
    };
    assert_eq!(fires("", Some(vec!["id".into()])), [false, false, true]);
    assert_eq!(fires("", None), [false, true, true]);
}

#[test]
fn a_rule_counts_on_its_event() {
    let unknown = |definition: Option<&str>| {
        let mut catalog = with_child(ForeignKeyAction::Looks, ForeignKeyAction::Looks);
        catalog.relations.get_mut(&AUDIT).unwrap().rules.push("r".into());
        if let Some(definition) = definition {
            catalog.definitions.insert(ObjectName::part_of("table public.audit", "rule", "r"), definition);
        }
        let is_unknown = |function| matches!(&*catalog.closure_of_function(function, &reader()), Closure::Unknown(_));
        let fires_on = catalog.closures_by_part(AUDIT, Access::Write, &reader()).first().map(|part| part.fires_on);
        ([10, 11, 12].map(is_unknown), fires_on)
    };
    let all = ([true, true, true], Some(TriggerEvents::ALL));
    assert_eq!(unknown(None), all);
    let on = |event: &str| format!("CREATE RULE r AS\n    ON {event} TO public.audit DO INSTEAD NOTHING; (enabled: O)");
    assert_eq!(unknown(Some(&on("INSERT"))), ([true, false, false], Some(TriggerEvents::INSERT)));
    assert_eq!(unknown(Some(&on("DELETE"))), ([false, true, false], Some(TriggerEvents::DELETE)));
    assert_eq!(unknown(Some(&on("UPDATE"))), ([false, false, true], Some(TriggerEvents::UPDATE)));
    assert_eq!(unknown(Some("CREATE RULE \"a AS ON INSERT")), all);
}

/// A write through a view changes the tables under it, where no INSTEAD OF trigger does it in its place.
#[test]
fn a_write_through_a_view_is_what_it_is() {
    let through = |instead: TriggerEvents| {
        let mut catalog = with_child(ForeignKeyAction::Cascades, ForeignKeyAction::Looks);
        let dependency = Dependency { of: DependentKind::View, name: "_RETURN".into(), on: DependencyTarget::Relation(AUDIT) };
        catalog.relation_dependencies.insert(VIEW, vec![dependency]);
        if instead != TriggerEvents::NONE {
            let trigger = Trigger { is_instead: true, fires_on: instead, ..trigger(20) };
            catalog.relations.get_mut(&VIEW).unwrap().triggers.push(trigger);
        }
        [15, 16].map(|function| written(&catalog, function))
    };
    assert_eq!(through(TriggerEvents::NONE), [vec![], vec![CHILD]]);
    assert_eq!(through(TriggerEvents::INSERT), [vec![FAR], vec![CHILD]]);
    assert_eq!(through(TriggerEvents::DELETE), [vec![], vec![FAR]]);
}
