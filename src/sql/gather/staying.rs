//! The biggest input stays where it is: the rows of the others are brought to the shards instead of its rows to the home shard.
//!
//! `SELECT p.kind, sum(l.amount) FROM lines l JOIN parts p ON l.part = p.id GROUP BY p.kind`, where the parts of a line lie on any
//! shard: a few thousand parts against millions of lines. The parts are loaded like any input. Then each shard runs the client's
//! statement over its own lines, with the parts as constants in the place of their table, and PostgreSQL makes the answer of what
//! the shards say.
//!
//! Whether that is the same answer is not decided here: the statement is read once more, with the tables that are brought taken for
//! tables of which every shard has a copy, since that is what their constants are. What would be merged over such tables is right.
//! So an outer join whose other side stays, a set operation or a sub-select that would count once per shard have no such recipe.
//!
//! * The constants have the columns of the table, in order, of their types and collations; those that were not loaded, since the
//!   text does not name them, are NULL as in the temporary table. What is no relation any more (a key that other columns depend on,
//!   rows of its type) the shards refuse, and the statement runs as it does without all this.
//! * All is read in the snapshots that the shards took at the beginning, as in any gathering with rounds.
//! * Expressions are computed on the shards under the settings of transport, as in [`super::computed`], and may fail over rows that
//!   the statement would not come to: then it runs over the rows of the tables.
//!
//! Which inputs are brought is for who knows their sizes; a wrong guess costs time.

use std::borrow::Cow;
use std::collections::BTreeMap;

use pg_raw_parse::Node;

use super::computed::{MONEY, certain_merge, columns_of_whole, exactness};
use super::inputs::{Inputs, only, qualified, type_under_domain};
use super::splicing::{TEMPORARY_SCHEMA, apply};
use super::{HomeTables, Input, Recipe, Source, cooked};
use crate::catalog::{Catalog, Column, Relation, quoted_identifier, quoted_literal, type_anywhere};
use crate::shard_key::oid;
use crate::sql::analysis::{Combination, Combine, Count, DistinctRows, Groups, Merge, Splice};
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::parse::lexer;
use crate::sql::parse::tokens::Tokens;
use crate::sql::rewrite::clock_literals::mentions_time;

/// A statement of which some inputs may stay where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Over temporary tables in the places of all inputs.
    text: String,
    inputs: Vec<Input>,
}

/// The rows of an input, as they stand in what the shards run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brought {
    /// Name of the input.
    pub input: String,
    /// As messages name it.
    pub relation: String,
    /// Yields how many they are, and themselves as SQL; no row when they are too many.
    pub query: String,
}

impl Choice {
    /// For a statement that can be gathered. `None`: there is nothing to choose from.
    pub fn of(text: &str, context: &Context) -> Option<Self> {
        if !context.has_plain_operators(&context.search_path) {
            return None;
        }
        let (recipe, _) = cooked(text, context, Inputs::new(context, &[], HomeTables::Brought), false).ok()?;
        let Recipe { text, inputs, has_clock, .. } = recipe;
        let names_money = Tokens::of(&text).iter().any(|(_, piece)| piece.to_ascii_lowercase().contains("money"));
        if has_clock || names_money || mentions_time(&text) || !(2..=INPUTS_MAX).contains(&inputs.len()) {
            return None;
        }
        let choice = Self { text, inputs };
        let may_stay =
            |input: &Input| input.source == Source::Shards && choice.recipe(context, &|other| other != input.name).is_some();
        choice.inputs.iter().any(may_stay).then_some(choice)
    }

    /// What would be loaded if nothing stayed.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The recipe by which these inputs are brought to the shards and the others stay there, where that gives the same answer.
    pub fn recipe(&self, context: &Context, is_brought: &dyn Fn(&str) -> bool) -> Option<Recipe> {
        let catalog = &context.catalog;
        let relation = |input: &Input| catalog.relations.get(&input.origin?.relation);
        let mut inputs = only(&self.inputs, |input| is_brought(&input.name));
        let mut names = BTreeMap::new();
        let mut brought = Vec::with_capacity(inputs.len());
        for input in &inputs {
            let relation = relation(input)?;
            names.insert(input.name.clone(), relation.oid);
            brought.push(of_input(input, relation, catalog)?);
        }
        let mut stays = BTreeMap::new();
        for input in self.inputs.iter().filter(|input| !is_brought(&input.name)) {
            let relation = relation(input).filter(|relation| input.source == Source::Shards && !has_money(relation))?;
            let only = if input.origin?.with_children { "" } else { "ONLY " };
            stays.insert(input.name.clone(), format!("{only}{}", qualified(relation)));
        }
        if brought.is_empty() || stays.is_empty() {
            return None;
        }
        let text = with_rows(&self.text, &|name| stays.get(name).cloned());
        let merge = certain_merge(&text, &Context { brought: names, ..context.clone() })?;
        let Made { create, fragment, loaded, combine, answer } = made(&text, &merge)?;
        let round = inputs.iter().map(|input| input.round + 1).max()?;
        inputs.push(Input {
            source: Source::Shards,
            name: WHOLE.to_owned(),
            loaded: loaded.to_owned(),
            relation: "the statement".to_owned(),
            create,
            columns: Vec::new(),
            fragment,
            inserted: None,
            predicates: Vec::new(),
            indexes: Vec::new(),
            round,
            combine,
            origin: None,
            brought,
        });
        let splices = vec![Splice { start: 0, end: self.text.len(), text: answer.clone() }];
        Some(Recipe { text: answer, splices, inputs, has_clock: false, is_renamed: true, plain: None })
    }
}

/// The statement of the shards, and what becomes of their rows.
struct Made {
    create: String,
    fragment: String,
    loaded: &'static str,
    combine: Option<String>,
    /// What runs over the whole.
    answer: String,
}

fn made(text: &str, merge: &Merge) -> Option<Made> {
    if merge.has_ties {
        return None;
    }
    let fragment = merge.fragment.as_ref().map_or_else(|| text.to_owned(), |fragment| fragment.of(text, 0..text.len()));
    let (whole, parts) = (temporary(WHOLE), temporary(PARTS));
    let table = |name: &str, columns: &str, query: &str| {
        format!("CREATE TEMPORARY TABLE {name}{columns} ON COMMIT DROP AS {query}\nWITH NO DATA")
    };
    match &merge.combine {
        Some(Combine::Groups(groups)) => {
            let count = groups.columns.len();
            let named = format!(" ({})", names(count).join(", "));
            let made_of = columns_of_whole(groups, count, &parts, &|column| is_unused(groups, column))?;
            let create = [
                table(&parts, &named, &fragment),
                table(&whole, &named, &format!("SELECT {} FROM {parts}", types_of_whole(groups).join(", "))),
                exactness(groups, &parts),
            ];
            let visible = count.checked_sub(merge.hidden_columns)?;
            let answer = match &groups.last_step {
                Some(step) => format!("{}SELECT {} FROM {whole}{}", step.before, names(count).join(", "), step.after),
                None => answer(text, merge, Some(visible), &whole)?,
            };
            let combine = Some(format!("INSERT INTO {whole} {made_of}"));
            Some(Made { create: create.join(";"), fragment, loaded: PARTS, combine, answer })
        }
        Some(Combine::Distinct(DistinctRows::Whole { .. })) if merge.hidden_columns == 0 => {
            let create =
                [table(&parts, "", &fragment), table(&whole, "", &format!("SELECT * FROM {parts}")), sorts_alike(merge, &parts)];
            let combine = Some(format!("INSERT INTO {whole} SELECT DISTINCT * FROM {parts}"));
            let answer = answer(text, merge, None, &whole)?;
            Some(Made { create: create.join(";"), fragment, loaded: PARTS, combine, answer })
        }
        None => {
            let visible = visible_columns(text);
            let named = match visible {
                Some(visible) => format!(" ({})", names(visible + merge.hidden_columns).join(", ")),
                None if merge.hidden_columns == 0 => String::new(),
                None => return None,
            };
            let create = [table(&whole, &named, &fragment), sorts_alike(merge, &whole)].join(";");
            Some(Made { create, fragment, loaded: WHOLE, combine: None, answer: answer(text, merge, visible, &whole)? })
        }
        Some(Combine::Distinct(_)) => None,
    }
}

/// How many columns the client selects; `None`: there is a star among them.
fn visible_columns(text: &str) -> Option<usize> {
    let tree = parse::parse(text).ok()?;
    let Some(Node::SelectStmt(select)) = tree.stmts().next() else { return None };
    let is_star = |node: Node<'_>| match node {
        Node::ColumnRef(column) => matches!(column.fields().iter().next_back(), Some(Node::A_Star(_))),
        Node::A_Indirection(_) => true,
        _ => false,
    };
    let targets = select.target_list();
    (!targets.is_empty() && !targets.iter().any(|target| is_star(target.val()))).then(|| targets.len())
}

/// The whole, in the client's order, and cut. `visible`: the number of its columns, where it has others too.
fn answer(text: &str, merge: &Merge, visible: Option<usize>, whole: &str) -> Option<String> {
    // An order by another collation than that of the column.
    let has_collation = Tokens::of(text).iter().any(|(_, piece)| piece.eq_ignore_ascii_case("collate"));
    if has_collation && !merge.order_by.is_empty() {
        return None;
    }
    let columns = visible.map_or_else(|| "*".to_owned(), |visible| names(visible).join(", "));
    let mut answer = format!("SELECT {columns} FROM {whole}");
    let keys = merge.order_by.iter().map(|key| {
        let column = match visible {
            Some(_) => format!("c{}", key.column + 1),
            None => (key.column + 1).to_string(),
        };
        let direction = if key.is_descending { "DESC" } else { "ASC" };
        format!("{column} {direction} NULLS {}", if key.is_nulls_first { "FIRST" } else { "LAST" })
    });
    let keys: Vec<String> = keys.collect();
    if !keys.is_empty() {
        answer.push_str(&format!(" ORDER BY {}", keys.join(", ")));
    }
    for (word, count) in [("LIMIT", &merge.limit), ("OFFSET", &merge.offset)] {
        if let Some(count) = count {
            answer.push_str(&format!(" {word} {}", number(text, count)?));
        }
    }
    Some(answer)
}

fn number(text: &str, count: &Count) -> Option<String> {
    match count {
        Count::Constant(value) => Some(value.to_string()),
        Count::Parameter(number) => Some(format!("${number}")),
        Count::Literal(ordinal) => {
            let scanned = lexer::scan(text);
            let literal = scanned.literals.get(*ordinal as usize)?;
            text.get(usize::try_from(literal.start).ok()?..usize::try_from(literal.end).ok()?).map(str::to_owned)
        }
        Count::Column(_) => None,
    }
}

/// The types of the whole groups' columns: those of the parts, but for averages, whose parts are sums.
fn types_of_whole(groups: &Groups) -> Vec<String> {
    let column = |(index, combination): (usize, &Combination)| match combination {
        Combination::Average { .. } => format!("NULL::pg_catalog.numeric AS c{}", index + 1),
        Combination::First
        | Combination::Count
        | Combination::Sum
        | Combination::Minimum(_)
        | Combination::Maximum(_)
        | Combination::All
        | Combination::Any => format!("c{}", index + 1),
    };
    groups.columns.iter().enumerate().map(column).collect()
}

/// The last step computes the column itself: the shards have nothing to say to it.
fn is_unused(groups: &Groups, column: usize) -> bool {
    let name = format!("c{}", column + 1);
    let mentions = |text: &str| {
        let tokens = Tokens::of(text);
        (0..tokens.count()).filter_map(|index| tokens.identifier(index)).any(|word| word == name)
    };
    groups.last_step.as_ref().is_some_and(|step| {
        // The names of all columns stand after the groups.
        let after = step.after.split_once(')').and_then(|(_, rest)| rest.split_once(')')).map(|(_, rest)| rest);
        !mentions(&step.before) && after.is_some_and(|after| !mentions(after))
    })
}

/// Fails when the shards may have cut rows in another order than PostgreSQL sorts here: by text in a linguistic one.
fn sorts_alike(merge: &Merge, table: &str) -> String {
    let is_cut = merge.limit.is_some() || merge.offset.is_some();
    let keys = merge.order_by.iter().filter(|key| is_cut && !key.text.is_bytewise);
    let keys: Vec<String> = keys.map(|key| (key.column + 1).to_string()).collect();
    format!(
        "SELECT pg_catalog.concat('inexact ', attname)::pg_catalog.int4 FROM pg_catalog.pg_attribute \
         WHERE attrelid OPERATOR(pg_catalog.=) '{table}'::pg_catalog.regclass \
         AND attnum OPERATOR(pg_catalog.=) ANY ('{{{}}}'::pg_catalog.int2[]) \
         AND NOT attcollation OPERATOR(pg_catalog.=) ANY ('{BYTEWISE}'::pg_catalog.oid[])",
        keys.join(",")
    )
}

/// `None`: its rows cannot be constants of the same types.
fn of_input(input: &Input, relation: &Relation, catalog: &Catalog) -> Option<Brought> {
    if input.inserted.is_some() || has_money(relation) {
        return None;
    }
    let (mut list, mut columns, mut arrays) = (Vec::new(), Vec::new(), Vec::new());
    for column in &relation.columns {
        let (name, own_type) = (quoted_identifier(&column.name), type_anywhere(&column.type_name));
        if !input.columns.contains(&name) {
            let own_type = type_under_domain(catalog, column).map_or(own_type, Cow::Owned);
            list.push(format!("NULL::{own_type} AS {name}"));
            continue;
        }
        let number = arrays.len() + 1;
        let collation = column.collation.as_ref().map(|collation| format!(" COLLATE {collation}")).unwrap_or_default();
        let (element, sent, value) = match carriage(column, catalog)? {
            Carriage::Itself => (&*own_type, format!("x.{name}"), format!("r.c{number}")),
            Carriage::Text => ("pg_catalog.text", format!("x.{name}::pg_catalog.text"), format!("r.c{number}::{own_type}")),
        };
        list.push(format!("{value}{collation} AS {name}"));
        columns.push(format!("pg_catalog.pg_column_size(x.{name})"));
        let array = format!("pg_catalog.quote_nullable(pg_catalog.array_agg({sent})::pg_catalog.text)");
        arrays.push(format!("'pg_catalog.unnest(', {array}, {}", quoted_literal(&format!("::{element}[])"))));
    }
    if arrays.is_empty() {
        return None;
    }
    let head = quoted_literal(&format!("(SELECT {} FROM ROWS FROM (", list.join(", ")));
    let end = quoted_literal(&format!(") AS r ({}))", names(arrays.len()).join(", ")));
    let query = format!(
        "SELECT pg_catalog.count(*), pg_catalog.concat({head}, {}, {end}) \
         FROM (SELECT * FROM {} LIMIT {}) x HAVING pg_catalog.count(*) <= {BROUGHT_ROWS_MAX} \
         AND coalesce(pg_catalog.sum(coalesce({}, 0)), 0) <= {BROUGHT_BYTES_MAX}",
        arrays.join(", ', ', "),
        temporary(&input.name),
        BROUGHT_ROWS_MAX + 1,
        columns.join(", 0) + coalesce("),
    );
    Some(Brought { input: input.name.clone(), relation: input.relation.clone(), query })
}

/// How the values of a column become elements of an array.
enum Carriage {
    Itself,
    /// Arrays in an array would lose their bounds.
    Text,
}

fn carriage(column: &Column, catalog: &Catalog) -> Option<Carriage> {
    let domain = catalog.types.get(&column.type_oid).filter(|found| found.kind == 'd');
    match domain {
        Some(domain) => PLAIN.contains(&domain.base).then_some(Carriage::Itself),
        None if OF_ONE_SERVER.contains(&column.type_oid) => None,
        None if column.type_name.ends_with("[]") => Some(Carriage::Text),
        None => Some(Carriage::Itself),
    }
}

fn has_money(relation: &Relation) -> bool {
    relation.columns.iter().any(|column| MONEY.contains(&column.type_oid))
}

fn names(count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("c{number}")).collect()
}

fn temporary(name: &str) -> String {
    format!("{TEMPORARY_SCHEMA}.{}", quoted_identifier(name))
}

/// The text with something in the places of temporary tables, by their names.
pub fn with_rows(text: &str, rows: &dyn Fn(&str) -> Option<String>) -> String {
    let tokens = Tokens::of(text);
    let mut splices = Vec::new();
    for index in 0..tokens.count() {
        let is_name = tokens.is_word(index, TEMPORARY_SCHEMA) && tokens.piece(index + 1) == ".";
        let found = tokens.identifier(index + 2).filter(|_| is_name).and_then(|name| rows(&name));
        if let Some((text, range)) = found.zip(tokens.range(index, index + 2)) {
            splices.push(Splice { start: range.start, end: range.end, text });
        }
    }
    apply(text, &mut splices).unwrap_or_else(|_| text.to_owned())
}

const WHOLE: &str = "shardgate_input_whole";
const PARTS: &str = "shardgate_input_whole_parts";
/// Each one that might stay is tried.
const INPUTS_MAX: usize = 8;
/// Constants for every shard: more are as well loaded at one place.
pub const BROUGHT_ROWS_MAX: usize = 20_000;
pub const BROUGHT_BYTES_MAX: u64 = 1024 * 1024;
/// Columns without a collation, those of "C" and of "POSIX".
const BYTEWISE: &str = "{0,950,951}";
/// What domains may be of.
const PLAIN: [u32; 14] = [
    oid::BOOL,
    oid::INT2,
    oid::INT4,
    oid::INT8,
    oid::NUMERIC,
    oid::TEXT,
    oid::VARCHAR,
    oid::BPCHAR,
    oid::UUID,
    oid::DATE,
    oid::TIMESTAMP,
    oid::TIMESTAMPTZ,
    oid::FLOAT4,
    oid::FLOAT8,
];
/// Object, row and transaction identifiers, snapshots and access rights.
const OF_ONE_SERVER: [u32; 16] = [24, 26, 27, 28, 29, 1033, 2202, 2203, 2204, 2205, 2206, 2970, 3734, 4089, 4096, 5069];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::testing::library;

    fn context() -> Context {
        library().context(&["public"], &[])
    }

    /// With `t` in its place and the others brought to it.
    fn recipe(text: &str) -> Option<Recipe> {
        let context = context();
        let choice = Choice::of(text, &context)?;
        let stays = choice.inputs().iter().find(|input| input.relation == "public.t").expect("t is read");
        choice.recipe(&context, &|name| name != stays.name)
    }

    fn shown(text: &str) -> (String, String) {
        let recipe = recipe(text).unwrap_or_else(|| panic!("{text}: nothing stays"));
        let whole = recipe.inputs.last().expect("the statement");
        let short =
            |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ").replace("pg_temp.\"shardgate_input_whole\"", "#");
        (short(whole.shown()), short(recipe.text))
    }

    #[test]
    fn the_shards_run_the_statement_over_the_rows_of_the_others() {
        for (text, fragment, answer) in [
            (
                "SELECT t.x, u.y FROM t JOIN u ON u.y = t.x",
                "SELECT t.x, u.y FROM \"public\".\"t\" AS \"t\" JOIN (rows of public.u) AS \"u\" ON u.y = t.x",
                "SELECT c1, c2 FROM #",
            ),
            (
                "SELECT h.name, count(*), avg(t.x) FROM t, home h WHERE h.k = t.x GROUP BY h.name ORDER BY 2 DESC LIMIT 3",
                "SELECT h.name, count(*), pg_catalog.sum(t.x) AS \"avg\", pg_catalog.count(t.x) AS shardgate_hidden \
                 FROM \"public\".\"t\" AS \"t\" , (rows of public.home) h WHERE h.k = t.x GROUP BY h.name",
                "SELECT c1, c2, c3 FROM # ORDER BY c2 DESC NULLS FIRST LIMIT 3",
            ),
            (
                "SELECT a.x FROM ONLY t a WHERE a.x IN (SELECT y FROM u) ORDER BY a.k LIMIT 2 OFFSET 1",
                "SELECT a.x, \"a\".\"k\" AS shardgate_hidden FROM \"public\".\"t\" a WHERE a.x IN (SELECT y FROM (rows of public.u) AS \"u\" ) \
                 ORDER BY a.k LIMIT 3 OFFSET 0",
                "SELECT c1 FROM # ORDER BY c2 ASC NULLS LAST LIMIT 2 OFFSET 1",
            ),
            (
                "SELECT r.name, sum(u.y) FROM t JOIN u ON u.y = t.x JOIN ref r ON r.g = t.x GROUP BY 1",
                "SELECT r.name, sum(u.y) FROM \"public\".\"t\" AS \"t\" JOIN (rows of public.u) AS \"u\" ON u.y = t.x JOIN ref r ON r.g = t.x \
                 GROUP BY 1",
                "SELECT c1, c2 FROM #",
            ),
        ] {
            let (found, text_of_whole) = shown(text);
            assert_eq!(text_of_whole, answer, "{text}");
            assert_eq!(found, fragment, "{text}");
        }
    }

    #[test]
    fn groups_get_their_own_types_before_the_last_step() {
        let recipe =
            recipe("SELECT h.name, sum(t.x) * 2 FROM t JOIN home h ON h.k = t.x GROUP BY h.name HAVING avg(t.x) > 1").unwrap();
        let whole = recipe.inputs.last().unwrap();
        assert!(whole.create.contains("NULL::pg_catalog.numeric AS c"), "{}", whole.create);
        assert!(whole.combine.as_deref().is_some_and(|combine| combine.contains("OPERATOR(pg_catalog./)")), "{:?}", whole.combine);
        assert!(recipe.text.contains("* 2") && recipe.text.contains("FROM pg_temp.\"shardgate_input_whole\")"), "{}", recipe.text);
    }

    #[test]
    fn what_would_count_once_on_each_shard_is_gathered() {
        for text in [
            // The kept side, or both sides, of an outer join would be there on every shard.
            "SELECT t.x, u.y FROM u LEFT JOIN t ON u.y = t.x WHERE t.x IS NULL OR u.y > 1",
            "SELECT t.x, h.id FROM t FULL JOIN home h ON h.k = t.x",
            "SELECT h.id FROM home h WHERE NOT EXISTS (SELECT FROM t WHERE t.x = h.k)",
            "SELECT h.id, (SELECT count(*) FROM t WHERE t.x = h.k) FROM home h",
            "SELECT x FROM t UNION ALL SELECT k FROM home",
            "SELECT x FROM t EXCEPT SELECT y FROM u",
            "SELECT count(*) FROM t, LATERAL (SELECT t.x FROM u ORDER BY u.y LIMIT 1) l WHERE random() < 1",
            // Made of parts it would be another value, or one that hangs on the time or the server.
            "SELECT h.name, array_agg(t.x) FROM t JOIN home h ON h.k = t.x GROUP BY h.name",
            "SELECT t.x FROM t JOIN home h ON h.k = t.x WHERE now() > '2020-01-01'",
            "SELECT t.x, f_home() FROM t JOIN home h ON h.k = t.x",
            // A column that hangs on another one, which is no key any more.
            "SELECT upper(h.name), count(*) FROM t JOIN home h ON h.k = t.x GROUP BY upper(h.name)",
            // What policies read is not there.
            "SELECT t.x FROM t JOIN guarded g ON g.k = t.x",
        ] {
            let made = recipe(text);
            assert!(made.is_none(), "{text}: {made:?}");
        }
        // One that has nothing to choose from.
        assert!(Choice::of("SELECT max(x), array_agg(x) FROM t", &context()).is_none());
    }

    #[test]
    fn rows_have_all_columns_in_order() {
        let recipe = recipe("SELECT t.x, h.name FROM t JOIN home h ON h.k = t.x").unwrap();
        let [brought] = recipe.inputs.last().unwrap().brought.as_slice() else { panic!("{recipe:?}") };
        for part in [
            // A domain may refuse NULL.
            "(SELECT NULL::pg_catalog.int8 AS \"id\", r.c1 AS \"k\", r.c2 AS \"name\", NULL::pg_catalog.float8 AS \"f\", NULL::pg_catalog.text AS \"ci\", NULL::\"pg_catalog\".\"int8\" AS \"d\" FROM ROWS FROM (",
            "'pg_catalog.unnest(', pg_catalog.quote_nullable(pg_catalog.array_agg(x.\"k\")::pg_catalog.text), '::pg_catalog.int8[])'",
            "') AS r (c1, c2))'",
            "FROM (SELECT * FROM pg_temp.\"shardgate_input_2\" LIMIT 20001) x HAVING",
        ] {
            assert!(brought.query.contains(part), "{part}: {}", brought.query);
        }
    }

    #[test]
    fn names_in_constants_are_none() {
        let text = "SELECT 'pg_temp.\"a\"', x.b FROM pg_temp.\"a\" AS x, pg_temp.\"ab\"";
        let found = with_rows(text, &|name| (name == "a").then(|| "(…)".to_owned()));
        assert_eq!(found, "SELECT 'pg_temp.\"a\"', x.b FROM (…) AS x, pg_temp.\"ab\"");
    }
}
