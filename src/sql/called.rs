//! Which functions of users a call without a schema may mean, as PostgreSQL chooses among all of one name.
//!
//! PostgreSQL takes the function whose argument types are exactly those of the call; where there is none, one to whose types they can
//! be coerced. So an overload for a type of its own (`min(citext)`) is not what `min` of a column of integers calls. A function is left
//! out only where this is certain: what is not known of a call counts as whatever leads to the function.

use pg_raw_parse::{Node, nodes};

use super::context::Context;
use crate::catalog::{Catalog, Function, Oid};
use crate::shard_key::oid;
use crate::sql::parse::{self, tree};

/// A type, as far as it is known, of the argument of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgumentType {
    /// Of a domain, the type under it; neither of a row nor of anything.
    pub oid: Oid,
    /// It may be a domain over this one, or `varchar` for `text`: as much can be coerced, and nothing matches exactly.
    pub is_exact: bool,
}

impl ArgumentType {
    pub fn exactly(oid: Oid) -> Self {
        Self { oid, is_exact: true }
    }
}

/// What is known of a call's arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// One of each place; `None`: a string, a parameter, or what is not known.
    InPlaces(Vec<Option<ArgumentType>>),
    /// Some have names, or one stands for several.
    Otherwise,
}

impl Given {
    pub fn of(call: &nodes::FuncCall, type_of: impl FnMut(Node<'_>) -> Option<ArgumentType>) -> Self {
        let has_names = call.args().iter().any(|argument| matches!(argument, Node::NamedArgExpr(_)));
        if call.func_variadic || call.agg_within_group || has_names {
            return Self::Otherwise;
        }
        Self::InPlaces(call.args().iter().map(type_of).collect())
    }
}

/// Functions in the schemas of the search path that PostgreSQL may choose for a call of this name; `given` is asked for where there are
/// some of the name.
pub fn functions_of_users<'c>(
    context: &'c Context,
    search_path: &[String],
    name: &str,
    given: impl FnOnce() -> Given,
) -> Vec<&'c Function> {
    let catalog = &context.catalog;
    let named = catalog.function_names.get(name).into_iter().flatten().filter_map(|oid| catalog.functions.get(oid));
    let mut found: Vec<&Function> = named.filter(|function| search_path.contains(&function.schema)).collect();
    if !found.is_empty() {
        let given = given();
        found.retain(|function| may_be_chosen(function, &given, search_path, catalog));
    }
    found
}

/// A view's query as PostgreSQL prints it, where names without a schema are those of `pg_catalog`, with that schema before the names
/// that users have given to functions of theirs. `None`: it cannot be read.
pub fn with_own_functions_named(definition: &str, catalog: &Catalog) -> Option<String> {
    let tree = parse::parse(definition).ok()?;
    let is_shared =
        |call: &&nodes::FuncCall| tree::single_name(call.funcname()).is_some_and(|name| catalog.function_names.contains_key(name));
    let calls = tree.stmts().flat_map(tree::calls_within).filter(is_shared);
    let mut places: Vec<usize> = calls.map(|call| usize::try_from(call.location).ok()).collect::<Option<_>>()?;
    places.sort_unstable();
    places.dedup();
    let mut text = definition.to_owned();
    for place in places.into_iter().rev() {
        if !text.is_char_boundary(place) {
            return None;
        }
        text.insert_str(place, "pg_catalog.");
    }
    Some(text)
}

fn may_be_chosen(function: &Function, given: &Given, search_path: &[String], catalog: &Catalog) -> bool {
    let Given::InPlaces(types) = given else { return true };
    // Those of a procedure are not all in the catalogue.
    if function.kind == 'p' || function.argument_types.len() != function.argument_count {
        return true;
    }
    let needed = function.argument_count.saturating_sub(function.default_count).saturating_sub(usize::from(function.is_variadic));
    if types.len() < needed || (types.len() > function.argument_count && !function.is_variadic) {
        return false;
    }
    if function.is_variadic {
        return true;
    }
    let is_coerced = types
        .iter()
        .zip(&function.argument_types)
        .all(|(given, wanted)| given.is_none_or(|given| may_coerce(given, *wanted, catalog)));
    is_coerced && !hides(function, types, search_path)
}

/// A function of PostgreSQL's own has exactly these argument types, and this one has others or is found after it.
fn hides(function: &Function, types: &[Option<ArgumentType>], search_path: &[String]) -> bool {
    let exact = |given: &Option<ArgumentType>| given.filter(|given| given.is_exact).map(|given| given.oid);
    let Some(types) = types.iter().map(exact).collect::<Option<Vec<Oid>>>() else { return false };
    // What the path does not name is searched first.
    let catalog = search_path.iter().position(|schema| schema == "pg_catalog");
    let own = search_path.iter().position(|schema| *schema == function.schema);
    let is_before = catalog.is_some() && own < catalog;
    let is_alike = function.argument_types.starts_with(&types);
    function.built_in.contains(&types) && !(is_alike && is_before)
}

/// Whether PostgreSQL coerces a value of this type to that one without being told to, or may.
fn may_coerce(given: ArgumentType, wanted: Oid, catalog: &Catalog) -> bool {
    let wanted = catalog.under_domains(wanted);
    let is_cast = |source: Oid| catalog.implicit_casts.contains(&(source, wanted));
    if given.oid == wanted || is_cast(given.oid) || (given.oid == oid::TEXT && !given.is_exact && is_cast(oid::VARCHAR)) {
        return true;
    }
    let Some(known) = catalog.types.get(&wanted) else { return true };
    match known.kind {
        // Of PostgreSQL's own types, which are coerced to each other is not looked at; polymorphic ones take anything.
        _ if known.schema == "pg_catalog" => true,
        // An array is coerced by its elements.
        'b' if known.base != 0 => !is_scalar(given.oid, catalog),
        'b' | 'e' | 'r' | 'm' | 'c' => false,
        _ => true,
    }
}

fn is_scalar(type_oid: Oid, catalog: &Catalog) -> bool {
    catalog.types.get(&type_oid).is_some_and(|known| matches!(known.kind, 'b' | 'e') && known.base == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Type;
    use crate::sql::testing::Fixture;

    const CITEXT: Oid = 70_001;
    const CITEXT_ARRAY: Oid = 70_002;
    const EMAIL: Oid = 70_003;
    const DOMAIN_OF_TEXT: Oid = 70_004;

    /// A function of users beside those of PostgreSQL's own that have these argument types, called by values of such types.
    #[derive(Clone, Copy)]
    struct Case<'a> {
        takes: &'a [Oid],
        built_in: &'a [&'a [Oid]],
        given: &'a [Option<Oid>],
    }

    fn fixture() -> Fixture {
        let mut fixture = Fixture::default();
        let own = [oid::INT4, oid::INT8, oid::TEXT, oid::VARCHAR, oid::NUMERIC, oid::FLOAT8, oid::DATE];
        let of_postgresql = own.map(|oid| (oid, "pg_catalog", 'b', 0));
        let array = [(oid::TEXT_ARRAY, "pg_catalog", 'b', oid::TEXT), (2283, "pg_catalog", 'p', 0)];
        let of_users = [
            (CITEXT, "public", 'b', 0),
            (CITEXT_ARRAY, "public", 'b', CITEXT),
            (EMAIL, "public", 'd', CITEXT),
            (DOMAIN_OF_TEXT, "public", 'd', oid::TEXT),
        ];
        for (oid, schema, kind, base) in of_postgresql.into_iter().chain(array).chain(of_users) {
            let name = format!("t{oid}");
            fixture.catalog.types.insert(oid, Type { oid, schema: schema.to_owned(), name, kind, base, default: None });
        }
        fixture.catalog.implicit_casts = vec![(CITEXT, oid::TEXT)];
        fixture
    }

    fn may_be_meant(case: &Case<'_>, search_path: &[&str]) -> bool {
        let mut fixture = fixture();
        let function = fixture.function("f", 'i', "internal", "");
        let function = fixture.catalog.functions.get_mut(&function).expect("made");
        (function.argument_count, function.is_variadic) = (case.takes.len(), false);
        function.argument_types = case.takes.to_vec();
        function.built_in = case.built_in.iter().map(|types| types.to_vec()).collect();
        let context = fixture.context(search_path, &[]);
        let given = || Given::InPlaces(case.given.iter().map(|given| given.map(ArgumentType::exactly)).collect());
        !functions_of_users(&context, &context.search_path, "f", given).is_empty()
    }

    #[test]
    fn a_function_of_another_type_is_not_meant() {
        for (takes, given) in
            [(CITEXT, oid::INT4), (CITEXT, oid::TEXT), (EMAIL, oid::VARCHAR), (CITEXT_ARRAY, oid::TEXT), (CITEXT_ARRAY, CITEXT)]
        {
            let case = Case { takes: &[takes], built_in: &[], given: &[Some(given)] };
            assert!(!may_be_meant(&case, &["public"]), "{takes} {given}");
        }
    }

    #[test]
    fn what_may_be_coerced_may_be_meant() {
        for (takes, given) in [
            (CITEXT, Some(CITEXT)),
            (CITEXT, None),
            (EMAIL, Some(CITEXT)),
            (DOMAIN_OF_TEXT, Some(oid::TEXT)),
            (oid::TEXT, Some(CITEXT)),
            (CITEXT_ARRAY, Some(oid::TEXT_ARRAY)),
            (2283, Some(oid::INT4)),
            (99_999, Some(oid::INT4)),
        ] {
            let case = Case { takes: &[takes], built_in: &[], given: &[given] };
            assert!(may_be_meant(&case, &["public"]), "{takes} {given:?}");
        }
    }

    #[test]
    fn an_exact_match_of_postgresqls_own_comes_first() {
        let round = Case {
            takes: &[oid::FLOAT8, oid::INT4],
            built_in: &[&[oid::FLOAT8], &[oid::NUMERIC, oid::INT4]],
            given: &[Some(oid::NUMERIC), Some(oid::INT4)],
        };
        assert!(!may_be_meant(&round, &["public"]));
        assert!(!may_be_meant(&round, &["public", "pg_catalog"]), "types that match are searched for in all schemas");
        assert!(may_be_meant(&Case { given: &[Some(oid::FLOAT8), Some(oid::INT4)], ..round }, &["public"]));
        assert!(may_be_meant(&Case { given: &[Some(oid::NUMERIC), None], ..round }, &["public"]));
        assert!(!may_be_meant(&Case { given: &[Some(oid::FLOAT8)], ..round }, &["public"]), "of one argument");
    }

    #[test]
    fn the_same_types_are_told_apart_by_the_search_path() {
        let length = Case { takes: &[oid::TEXT], built_in: &[&[oid::TEXT]], given: &[Some(oid::TEXT)] };
        assert!(!may_be_meant(&length, &["public"]));
        assert!(!may_be_meant(&length, &["pg_catalog", "public"]));
        assert!(may_be_meant(&length, &["public", "pg_catalog"]));
        assert!(!may_be_meant(&length, &["app"]));
        let now = Case { takes: &[], built_in: &[&[]], given: &[] };
        assert!(!may_be_meant(&now, &["public"]));
        assert!(may_be_meant(&now, &["public", "pg_catalog"]));
    }

    #[test]
    fn a_views_query_calls_what_it_was_defined_with() {
        let mut fixture = fixture();
        fixture.function("shadow.min", 'i', "internal", "");
        fixture.function("left", 'i', "internal", "");
        let catalog = fixture.catalog;
        let named = |text: &str| with_own_functions_named(text, &catalog);
        assert_eq!(
            named("SELECT min(t.é) AS min, max(t.k) FROM t WHERE (EXISTS ( SELECT \"left\"(u.a, 1) FROM u))").as_deref(),
            Some("SELECT pg_catalog.min(t.é) AS min, max(t.k) FROM t WHERE (EXISTS ( SELECT pg_catalog.\"left\"(u.a, 1) FROM u))")
        );
        assert_eq!(named("SELECT public.min(t.k) FROM t").as_deref(), Some("SELECT public.min(t.k) FROM t"));
        assert_eq!(named("SELECT FROM WHERE"), None);
    }

    #[test]
    fn domains_and_arguments_with_names_match_nothing_exactly() {
        let inexact = Given::InPlaces(vec![Some(ArgumentType { oid: oid::TEXT, is_exact: false })]);
        for given in [inexact, Given::Otherwise] {
            let mut fixture = fixture();
            let function = fixture.function("f", 'i', "internal", "");
            let function = fixture.catalog.functions.get_mut(&function).expect("made");
            (function.argument_count, function.argument_types, function.is_variadic) = (1, vec![oid::TEXT], false);
            function.built_in = vec![vec![oid::TEXT]];
            let context = fixture.context(&["public"], &[]);
            assert_eq!(functions_of_users(&context, &context.search_path, "f", || given).len(), 1);
        }
    }
}
