//! Materialized views over rows of several shards.
//!
//! PostgreSQL fills a materialized view by its query, on one server, and nothing else can put rows into one. Here the rows come from
//! several shards, so two relations stand beside the view, with its owner:
//!
//! ```text
//!   totals_query  a view      the query as it was written: what it depends on, and what REFRESH asks the shards
//!   totals_rows   a table     the rows, from the answer until the end of the REFRESH; empty for everybody else
//!   totals        the view    SELECT … FROM totals_rows UNION ALL SELECT … FROM totals_query WHERE <this is no shard>
//! ```
//!
//! In a dump the view has its query. Where the schema `shardgate` is not, in a database that was copied from a shard, the view is filled
//! by its query, as any other. On a shard it never is: a REFRESH that the proxy knows nothing of, by a function or a connection of its
//! own, is an error there, and not a view of that shard's rows alone.

use pg_raw_parse::{Node, nodes};

use crate::catalog::{Catalog, ObjectName, Relation, RelationKind, quoted_identifier, quoted_literal, quoted_name};
use crate::shardmap::TableName;
use crate::sql::context::Context;
use crate::sql::parse::tokens::Tokens;
use crate::sql::parse::{self, tree};
use crate::sql::utility::table_as::TableAs;

/// The relations beside a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    pub rows: TableName,
    pub query: TableName,
}

/// REFRESH of such a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refresh {
    pub view: TableName,
    pub rows: TableName,
    /// As PostgreSQL prints it.
    pub query: String,
}

/// What CREATE MATERIALIZED VIEW says besides its query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewHead {
    /// Up to AS.
    pub text: String,
    /// The names that it gives to its columns; those of the query beyond them.
    pub columns: Vec<String>,
    pub is_filled: bool,
    /// All that it reads is on the home shard: it is filled there, by its query.
    pub is_of_home: bool,
}

/// Set in the transaction of a REFRESH that the proxy makes.
pub const MADE_BY_PROXY: &str =
    "SELECT pg_catalog.set_config('shardgate_proxy.refreshed_in', pg_catalog.pg_current_xact_id()::pg_catalog.text, true)";

/// A REFRESH that comes later in the transaction is not the proxy's.
pub const MADE: &str = "SELECT pg_catalog.set_config('shardgate_proxy.refreshed_in', '', true)";

/// The last part is an error, which says what to do.
const GUARD: &str = "CASE WHEN pg_catalog.to_regnamespace('shardgate') IS NULL THEN true \
                     WHEN pg_catalog.current_setting('shardgate_proxy.refreshed_in', true) = pg_catalog.pg_current_xact_id()::pg_catalog.text THEN false \
                     ELSE pg_catalog.concat('REFRESH it through Shardgate, by a statement of its own')::pg_catalog.bool END";
/// By materialized view: the relations beside it, in the catalogue of a shard.
pub const BESIDE: &str = "SELECT DISTINCT sg_k.oid AS view, sg_o.oid AS beside, sg_o.relkind FROM pg_catalog.pg_class sg_k \
     JOIN pg_catalog.pg_rewrite sg_r ON sg_r.ev_class = sg_k.oid \
     JOIN pg_catalog.pg_depend sg_d ON sg_d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND sg_d.objid = sg_r.oid \
          AND sg_d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND sg_d.refobjid <> sg_k.oid \
     JOIN pg_catalog.pg_class sg_o ON sg_o.oid = sg_d.refobjid \
     WHERE sg_k.relkind = 'm' AND pg_catalog.pg_get_viewdef(sg_k.oid) ~ 'shardgate_proxy[.]refreshed_in'";

const GUARDED_BY: &str = "shardgate_proxy.refreshed_in";
/// Of a name, in bytes.
const NAME_MAX: usize = 63;

impl Beside {
    /// Of the query and of the rows: names that no relation has, made of the view's.
    pub fn named(view: &str, catalog: &Catalog) -> (String, String) {
        let is_taken = |name: &str| catalog.relations.values().any(|relation| relation.name == name);
        let mut number = 0;
        loop {
            let end = if number == 0 { String::new() } else { number.to_string() };
            let (query, rows) = (with_end(view, &format!("_query{end}")), with_end(view, &format!("_rows{end}")));
            if !is_taken(&query) && !is_taken(&rows) {
                return (query, rows);
            }
            number += 1;
        }
    }

    /// `None`: it is filled by its own query.
    pub fn of(view: &Relation) -> Option<Self> {
        let definition = view
            .view_definition
            .as_deref()
            .filter(|text| view.kind == RelationKind::MaterializedView && text.contains(GUARDED_BY))?;
        let tree = parse::parse(definition).ok()?;
        let Some(Node::SelectStmt(both)) = tree.stmts().next() else { return None };
        let relation = |side: Option<&nodes::SelectStmt>| match side?.from_clause().first() {
            Some(Node::RangeVar(relation)) => Some((relation.schemaname()?.to_owned(), relation.relname()?.to_owned())),
            _ => None,
        };
        Some(Self { rows: relation(both.larg())?, query: relation(both.rarg())? })
    }
}

impl Refresh {
    pub fn of(view: &Relation, catalog: &Catalog) -> Option<Self> {
        let Beside { rows, query } = Beside::of(view)?;
        let query = catalog.resolve(Some(&query.0), &query.1, &[])?.view_definition.as_deref()?;
        let query = query.trim().trim_end_matches(';').to_owned();
        Some(Self { view: (view.schema.clone(), view.name.clone()), rows, query })
    }
}

/// What makes the view and the relations beside it, in this order. `schema`: quoted.
///
/// Privileges on all tables of a schema, and default ones, count for those beside a view too: they give no more than the user has anyway.
pub fn definitions(table: &TableAs, head: &ViewHead, schema: &str, (query, rows): (&str, &str)) -> [String; 6] {
    let view = format!("{schema}.{}", quoted_identifier(&table.name));
    let (query, rows) = (format!("{schema}.{}", quoted_identifier(query)), format!("{schema}.{}", quoted_identifier(rows)));
    let columns = head.columns.iter().map(|name| quoted_identifier(name)).collect::<Vec<_>>().join(", ");
    let columns = if columns.is_empty() { columns } else { format!(" ({columns})") };
    let about =
        |what: &str| quoted_literal(&format!("{what} of materialized view {view}, which Shardgate fills from several shards"));
    [
        format!("CREATE VIEW {query}{columns} WITH (security_invoker = true) AS {}", table.query),
        format!("CREATE UNLOGGED TABLE {rows} AS SELECT * FROM {query} WITH NO DATA"),
        format!("ALTER TABLE {rows} ENABLE ROW LEVEL SECURITY"),
        format!("{} SELECT * FROM {rows} UNION ALL SELECT * FROM {query} WHERE {GUARD} WITH NO DATA", head.text),
        format!("COMMENT ON VIEW {query} IS {}", about("The query")),
        format!("COMMENT ON TABLE {rows} IS {}", about("The rows, while it is refreshed,")),
    ]
}

/// What is done with the relations beside the views that the statement drops, perhaps, or gives to another owner.
pub fn with_those_beside(node: Node<'_>, context: &Context) -> Vec<String> {
    if drops_what_depends(node) {
        return context.catalog.relations.values().filter_map(|view| Some(without_view(view, &Beside::of(view)?))).collect();
    }
    let beside =
        |schema: Option<&str>, name: &str| context.catalog.resolve(schema, name, &context.search_path).and_then(Beside::of);
    match node {
        Node::DropStmt(drop) if drop.remove_type == nodes::ObjectType::OBJECT_MATVIEW => {
            let names = drop.objects().iter().filter_map(|object| tree::names(object.as_node_list()?));
            let dropped = names.filter_map(|names| match names.as_slice() {
                [name] => beside(None, name),
                [.., schema, name] => beside(Some(schema), name),
                [] => None,
            });
            dropped
                .flat_map(|Beside { rows, query }| {
                    [
                        format!("DROP VIEW IF EXISTS {}", quoted_name(&query.0, &query.1)),
                        format!("DROP TABLE IF EXISTS {}", quoted_name(&rows.0, &rows.1)),
                    ]
                })
                .collect()
        }
        // A dump has the columns' names from the query.
        Node::RenameStmt(rename) if rename.rename_type == nodes::ObjectType::OBJECT_COLUMN => {
            let view = rename.relation().and_then(|relation| beside(relation.schemaname(), relation.relname()?));
            let names = rename.subname().zip(rename.newname());
            let renamed = view.zip(names).map(|(Beside { query, .. }, (old, new))| {
                let (query, old, new) = (quoted_name(&query.0, &query.1), quoted_identifier(old), quoted_identifier(new));
                format!("ALTER VIEW {query} RENAME COLUMN {old} TO {new}")
            });
            renamed.into_iter().collect()
        }
        Node::AlterTableStmt(alter) => {
            let owner = alter.cmds().iter().find_map(|command| match command {
                Node::AlterTableCmd(command) if command.subtype == nodes::AlterTableType::AT_ChangeOwner => {
                    role(command.newowner()?)
                }
                _ => None,
            });
            let relation = alter.relation().and_then(|relation| beside(relation.schemaname(), relation.relname()?));
            match (owner, relation) {
                (Some(owner), Some(Beside { rows, query })) => vec![
                    format!("ALTER VIEW {} OWNER TO {owner}", quoted_name(&query.0, &query.1)),
                    format!("ALTER TABLE {} OWNER TO {owner}", quoted_name(&rows.0, &rows.1)),
                ],
                (_, _) => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}

fn drops_what_depends(node: Node<'_>) -> bool {
    let is_cascade = |behavior| behavior == nodes::DropBehavior::DROP_CASCADE;
    match node {
        Node::DropStmt(drop) => is_cascade(drop.behavior),
        Node::DropOwnedStmt(drop) => is_cascade(drop.behavior),
        Node::AlterTableStmt(alter) => {
            alter.cmds().iter().any(|command| matches!(command, Node::AlterTableCmd(command) if is_cascade(command.behavior)))
        }
        _ => false,
    }
}

/// Where the view has gone.
fn without_view(view: &Relation, beside: &Beside) -> String {
    let [view, query, rows] = [(&view.schema, &view.name), (&beside.query.0, &beside.query.1), (&beside.rows.0, &beside.rows.1)]
        .map(|(schema, name)| quoted_name(schema, name));
    let exists = |name: &str| format!("pg_catalog.to_regclass({}) IS NOT NULL", quoted_literal(name));
    format!(
        "DO $shardgate$ BEGIN IF NOT {} THEN IF {} THEN DROP VIEW {query}; END IF; IF {} THEN DROP TABLE {rows}; END IF; END IF; END $shardgate$",
        exists(&view),
        exists(&query),
        exists(&rows)
    )
}

fn role(role: &nodes::RoleSpec) -> Option<String> {
    match role.roletype {
        nodes::RoleSpecType::ROLESPEC_CSTRING => role.rolename().map(quoted_identifier),
        nodes::RoleSpecType::ROLESPEC_CURRENT_ROLE => Some("CURRENT_ROLE".to_owned()),
        nodes::RoleSpecType::ROLESPEC_CURRENT_USER => Some("CURRENT_USER".to_owned()),
        nodes::RoleSpecType::ROLESPEC_SESSION_USER => Some("SESSION_USER".to_owned()),
        _ => None,
    }
}

/// A materialized view that was made when its query's tables lay on one shard, made anew: statements to run. `user`: who runs them; the
/// view is filled with the rights of its owner.
pub fn made_anew(catalog: &Catalog, view: &Relation, query: &str, user: &str) -> (String, String) {
    let (drop, create) = made_anew_by_owner(catalog, view, query);
    if view.owner == user || view.owner.is_empty() {
        return (drop, create);
    }
    (drop, format!("SET ROLE {}; {create} RESET ROLE;", quoted_identifier(&view.owner)))
}

fn made_anew_by_owner(catalog: &Catalog, view: &Relation, query: &str) -> (String, String) {
    let parts = catalog.definitions.of(&view.whole());
    let indexes: String = parts.iter().filter(|(_, kind, _)| *kind == "index").map(|(.., text)| format!(" {text};")).collect();
    let options = options(catalog, view);
    let view = quoted_name(&view.schema, &view.name);
    (
        format!("DROP MATERIALIZED VIEW {view};"),
        format!("CREATE MATERIALIZED VIEW {view}{options} AS {};{indexes}", one_line(query.trim().trim_end_matches(';'))),
    )
}

/// Storage parameters stand before the query in what is known of a view.
fn options(catalog: &Catalog, view: &Relation) -> String {
    let object = ObjectName::new(view.kind.word(), format!("{}.{}", view.schema, view.name));
    let before = catalog.definitions.get(&object).zip(view.view_definition.as_deref());
    let before = before.and_then(|(all, query)| all.strip_suffix(query)?.strip_suffix(", "));
    let options: Vec<&str> = before.into_iter().flat_map(str::split_whitespace).collect();
    if options.is_empty() { String::new() } else { format!(" WITH ({})", options.join(", ")) }
}

/// PostgreSQL prints a query over several lines.
fn one_line(query: &str) -> String {
    let tokens = Tokens::of(query);
    let mut line = String::new();
    let mut end = None;
    for token in (0..tokens.count()).filter_map(|index| tokens.get(index)) {
        if end.is_some_and(|end| end < token.start) {
            line.push(' ');
        }
        line.push_str(query.get(token.start..token.end).unwrap_or_default());
        end = Some(token.end);
    }
    line
}

/// Not longer than a name may be.
fn with_end(name: &str, end: &str) -> String {
    let mut length = name.len().min(NAME_MAX - end.len());
    while !name.is_char_boundary(length) {
        length -= 1;
    }
    format!("{}{end}", name.get(..length).unwrap_or_default())
}
