//! Which tables are locked on every shard before a reference table is written.
//!
//! Each shard chooses the rows of a write by a snapshot of its own. While commits over several shards are under way, one may be on
//! the first shard and not yet on the next, and another the other way round: the shards choose different rows, and where they are
//! as many nobody notices. SHARE ROW EXCLUSIVE waits for all who write the table, to the last COMMIT PREPARED of each, and keeps new
//! ones out.
//!
//! ```text
//!   UPDATE, DELETE, MERGE           the table, and the reference tables that its policies read
//!   those by a whole unique key     nothing: it is one row or none, which the counts tell
//!   INSERT, COPY, ON CONFLICT       nothing
//!   ON DELETE CASCADE and its kind  nothing
//! ```
//! INSERT chooses no rows. ON CONFLICT asks the index, not a snapshot, and waits for whoever makes or removes the key. What it has
//! made or found to update on the home shard it holds there, so that the next shard finds the same. What DO NOTHING has left alone may
//! be removed before the next shard is asked, which then makes more rows, never others: the counts tell.
//!
//! Foreign keys choose by snapshots, too. But who refers to a row anew holds its key on each shard, and the DELETE waits for him
//! before it looks for those that refer to it; who refers to it no longer holds his own row, which is looked at once more when he has
//! ended. Triggers that write reference tables are refused.
//!
//! PostgreSQL lets nobody lock a table who may write some of its columns only: such a user writes one row at a time. What he may not
//! lock beside the table that he writes is left out.
//!
//! Pure; what the user may lock says [`CopiesLock::rights`].

use pg_raw_parse::{Node, nodes};

use super::body::SqlBodyReader;
use super::context::Context;
use super::parse;
use super::parse::lexer::{self, TokenKind};
use super::parse::tree;
use super::query::{Resolved, placed, resolve};
use crate::catalog::{Access, Closure, Column, Oid, Relation, RelationKind, quoted_literal, quoted_name};
use crate::error::PgError;
use crate::shard_key::oid;

/// Tables to lock, in the one order for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiesLock {
    /// Schema and name.
    tables: Vec<(String, String)>,
    /// The place of the table whose rows are written: who may not lock it may not write several.
    target: Option<usize>,
}

impl CopiesLock {
    /// `None`: there are none.
    pub fn of(mut relations: Vec<&Relation>) -> Option<Self> {
        relations.sort_by_key(|relation| relation.oid);
        relations.dedup_by_key(|relation| relation.oid);
        let tables: Vec<_> = relations.into_iter().map(|relation| (relation.schema.clone(), relation.name.clone())).collect();
        (!tables.is_empty()).then_some(Self { tables, target: None })
    }

    /// A query for the places of those that the user may lock: who may write some columns only may not, nor may who has no rights
    /// on what a policy reads. Beside each, whether it can be locked: of those that cannot, the ones with such columns.
    pub fn rights(&self) -> String {
        let rows = self.tables.iter().enumerate().map(|(place, (schema, name))| {
            format!("({place}, {}::pg_catalog.text, {}::pg_catalog.text)", quoted_literal(schema), quoted_literal(name))
        });
        format!(
            "SELECT t.place, pg_catalog.has_table_privilege(c.oid, 'UPDATE, DELETE, TRUNCATE') \
             FROM (VALUES {}) t (place, schema, name) \
             JOIN pg_catalog.pg_namespace n ON n.nspname OPERATOR(pg_catalog.=) t.schema \
             JOIN pg_catalog.pg_class c ON c.relnamespace OPERATOR(pg_catalog.=) n.oid AND c.relname OPERATOR(pg_catalog.=) t.name \
             WHERE pg_catalog.has_schema_privilege(n.oid, 'USAGE') \
             AND (pg_catalog.has_table_privilege(c.oid, 'UPDATE, DELETE, TRUNCATE') \
             OR pg_catalog.has_any_column_privilege(c.oid, 'UPDATE'))",
            rows.collect::<Vec<_>>().join(", ")
        )
    }

    /// `place`: of a table of which the user may write some columns, and which he may not lock.
    pub fn check_columns(&self, place: usize) -> Result<(), PgError> {
        match self.tables.get(place) {
            Some((_, name)) if self.target == Some(place) => Err(PgError::unsupported(
                format!(
                    "writing several rows of reference table \"{name}\" with a privilege on some of its columns is not supported"
                ),
                "The table is locked before, so that every shard finds the same rows, and who may write some columns only may not lock it.",
                "Write one row at a time, by a condition on all columns of a unique key, or have UPDATE granted on the table.",
            )),
            _ => Ok(()),
        }
    }

    /// Whoever may not lock the table may write it.
    pub fn for_any_user(self) -> Self {
        Self { target: None, ..self }
    }

    /// Locks those at these places. `None`: there are none.
    pub fn statement(&self, places: &[usize]) -> Option<String> {
        let tables = self.tables.iter().enumerate().filter(|(place, _)| places.contains(place));
        let names: Vec<String> = tables.map(|(_, (schema, name))| quoted_name(schema, name)).collect();
        (!names.is_empty()).then(|| format!("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", names.join(", ")))
    }
}

/// `text`: one write of a reference table, alone. `parameter_type`: as PostgreSQL has found it.
pub fn lock_before_write(text: &str, context: &Context, parameter_type: &dyn Fn(u16) -> Option<Oid>) -> Option<CopiesLock> {
    let parsed = parse::parse(text).ok()?;
    let statement = parsed.stmts().next()?;
    let is_delete = matches!(statement, Node::DeleteStmt(_));
    let (name, condition) = match statement {
        Node::UpdateStmt(update) => (update.relation()?, Some(update.where_clause()).filter(|_| update.from_clause().is_empty())),
        Node::DeleteStmt(delete) => (delete.relation()?, Some(delete.where_clause()).filter(|_| delete.using_clause().is_empty())),
        Node::MergeStmt(merge) => (merge.relation()?, None),
        _ => return None,
    };
    let target = match resolve(context, name, &context.search_path) {
        Resolved::Reference(relation) | Resolved::View(relation) => relation,
        _ => return None,
    };
    if condition.is_some_and(|condition| has_whole_key(text, condition, (name, target), context, parameter_type)) {
        return None;
    }
    let mut locked = read_with(target, context);
    locked.push(target);
    let lock = CopiesLock::of(locked)?;
    let is_target = |(schema, name): &(String, String)| *schema == target.schema && *name == target.name;
    // Who may delete may lock.
    let place = lock.tables.iter().position(is_target).filter(|_| !is_delete);
    Some(CopiesLock { target: place, ..lock })
}

/// What policies read, and the tables under a view.
fn read_with<'c>(target: &Relation, context: &'c Context) -> Vec<&'c Relation> {
    match context.catalog.closure_of_relation(target.oid, Access::Read, &SqlBodyReader).as_ref() {
        Closure::Known(found) => found.reads.iter().filter_map(|oid| reference(*oid, context)).collect(),
        Closure::Unknown(_) => Vec::new(),
    }
}

fn reference(oid: Oid, context: &Context) -> Option<&Relation> {
    let relation = context.catalog.relations.get(&oid)?;
    matches!(placed(context, relation, true), Resolved::Reference(_)).then_some(relation)
}

/// All columns of a unique index are said to be equal to constants or parameters: a second row cannot be. A NULL is equal to nothing.
fn has_whole_key(
    text: &str,
    condition: Node<'_>,
    (name, relation): (&nodes::RangeVar, &Relation),
    context: &Context,
    parameter_type: &dyn Fn(u16) -> Option<Oid>,
) -> bool {
    let is_plain = relation.kind == RelationKind::Table && relation.children.is_empty() && relation.rules.is_empty();
    if !is_plain || !context.has_plain_operators(&context.search_path) || context.search_path.iter().any(|it| it == "pg_catalog") {
        return false;
    }
    let called = name.alias().and_then(|alias| alias.aliasname()).or(name.relname());
    let target = Target { called, relation, text, parameter_type };
    let given: Vec<&str> = tree::conjuncts(condition).into_iter().filter_map(|condition| target.fixed_column(condition)).collect();
    let is_given = |column: &Option<String>| column.as_deref().is_some_and(|column| given.contains(&column));
    let mut keys = relation.uniques.iter().filter(|unique| !unique.is_exclusion && !unique.is_partial);
    keys.any(|unique| !unique.columns.is_empty() && unique.columns.iter().all(is_given))
}

struct Target<'a> {
    called: Option<&'a str>,
    relation: &'a Relation,
    text: &'a str,
    parameter_type: &'a dyn Fn(u16) -> Option<Oid>,
}

impl<'a> Target<'a> {
    /// The column that the condition says to be equal to a constant, by the equality of its own type.
    fn fixed_column(&self, condition: Node<'_>) -> Option<&'a str> {
        let Node::A_Expr(equality) = condition else { return None };
        let is_equality = equality.kind == nodes::A_Expr_Kind::AEXPR_OP
            && matches!(tree::names(equality.name()).as_deref(), Some(["="] | ["pg_catalog", "="]));
        let sides = [(equality.lexpr(), equality.rexpr()), (equality.rexpr(), equality.lexpr())];
        sides.into_iter().filter(|_| is_equality).find_map(|(own, other)| {
            let column = self.column(own)?;
            self.is_constant(other, column).then_some(column.name.as_str())
        })
    }

    fn column(&self, node: Node<'_>) -> Option<&'a Column> {
        let Node::ColumnRef(column) = node else { return None };
        match tree::names(column.fields())?.as_slice() {
            [table, name] if Some(*table) == self.called => self.relation.column(name),
            [name] => self.relation.column(name),
            _ => None,
        }
    }

    fn is_named_once(&self, number: i32) -> bool {
        let name = format!("${number}");
        let parameters = lexer::tokens(self.text).filter(|token| token.kind == TokenKind::Parameter);
        parameters.filter(|token| self.text.get(token.start..token.end) == Some(&name)).count() == 1
    }

    /// Of a type whose values are equal to one value of the column at most: `float8` is equal to several of `int8`.
    fn is_constant(&self, node: Node<'_>, column: &Column) -> bool {
        let found = match node {
            Node::A_Const(_) => return true,
            Node::ParamRef(parameter) => match u16::try_from(parameter.number).ok().and_then(self.parameter_type) {
                // It gets the column's type, unless another place has given it one.
                None => return self.is_named_once(parameter.number),
                known => known,
            },
            Node::TypeCast(cast) if matches!(cast.arg(), Node::A_Const(_) | Node::ParamRef(_)) => {
                cast.type_name().filter(|name| name.array_bounds().is_empty()).and_then(type_named)
            }
            _ => None,
        };
        let is_of = |family: &[Oid]| family.contains(&column.type_oid) && found.is_some_and(|found| family.contains(&found));
        found == Some(column.type_oid) || is_of(&[oid::INT2, oid::INT4, oid::INT8]) || is_of(&[oid::TEXT, oid::VARCHAR])
    }
}

fn type_named(name: &nodes::TypeName) -> Option<Oid> {
    let name = match name.names().iter().filter_map(|name| name.sval()).collect::<Vec<_>>().as_slice() {
        ["pg_catalog", name] | [name] => *name,
        _ => return None,
    };
    Some(match name {
        "int2" => oid::INT2,
        "int4" => oid::INT4,
        "int8" => oid::INT8,
        "text" => oid::TEXT,
        "varchar" => oid::VARCHAR,
        "uuid" => oid::UUID,
        "date" => oid::DATE,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Unique;
    use crate::sql::testing;

    fn context() -> Context {
        let mut fixture = testing::library();
        let found = fixture.table("found", "id int8, code varchar, part int4, name text");
        for columns in [vec!["id"], vec!["code", "part"]] {
            let columns = columns.into_iter().map(|name| Some(name.to_owned())).collect();
            let unique = Unique {
                name: String::new(),
                is_primary: false,
                is_exclusion: false,
                is_constraint: true,
                columns,
                is_partial: false,
            };
            fixture.catalog.relations.get_mut(&found).unwrap().uniques.push(unique);
        }
        let partial = Unique {
            name: String::new(),
            is_primary: false,
            is_exclusion: false,
            is_constraint: false,
            columns: vec![Some("name".to_owned())],
            is_partial: true,
        };
        fixture.catalog.relations.get_mut(&found).unwrap().uniques.push(partial);
        fixture.replicate("found");
        let reference = fixture.catalog.resolve(Some("public"), "ref", &[]).unwrap().oid;
        let guarded = fixture.table("guarded_ref", "id int8");
        fixture.replicate("guarded_ref");
        fixture.policy(guarded, "EXISTS (SELECT 1 FROM public.ref)", vec![reference]);
        fixture.context(&["public"], &[])
    }

    fn locked(text: &str, types: &[Oid]) -> String {
        let context = context();
        let parameter_type = |number: u16| types.get(usize::from(number) - 1).copied();
        let lock = lock_before_write(text, &context, &parameter_type);
        let names = lock.map(|lock| lock.tables.into_iter().map(|(_, name)| name).collect::<Vec<_>>());
        names.unwrap_or_default().join(" ")
    }

    #[test]
    fn one_row_by_its_key_needs_no_lock() {
        for text in [
            "UPDATE found SET name = 'x' WHERE id = 5",
            "UPDATE found f SET name = 'x' WHERE name > 'a' AND 5 = f.id",
            "DELETE FROM ONLY found WHERE id = '5'::bigint",
            "DELETE FROM found WHERE code = 'a' AND (part = 1 AND name = 'b')",
            "INSERT INTO found VALUES (1, 'a', 1)",
            "INSERT INTO found VALUES (1, 'a', 1) ON CONFLICT (id) DO UPDATE SET name = 'x'",
        ] {
            assert_eq!(locked(text, &[]), "", "{text}");
        }
        assert_eq!(locked("DELETE FROM found WHERE id = $1", &[oid::INT4]), "");
        assert_eq!(locked("UPDATE found SET part = $10 WHERE id = $1", &[]), "");
        assert_eq!(locked("DELETE FROM found WHERE code = $1 AND part = $2", &[oid::TEXT, oid::INT4]), "");
    }

    #[test]
    fn what_may_be_several_rows_is_locked() {
        for text in [
            "UPDATE found SET name = 'x'",
            "DELETE FROM found WHERE id IN (1, 2)",
            "DELETE FROM found WHERE id = 1 OR id = 2",
            "DELETE FROM found WHERE NOT id = 1",
            "DELETE FROM found WHERE id > 1 AND code = 'a'",
            "DELETE FROM found WHERE id = part",
            "DELETE FROM found WHERE id = 1::float8",
            "DELETE FROM found WHERE code = 'a'::bpchar AND part = 1",
            "DELETE FROM found WHERE name = 'partial'",
            "DELETE FROM found WHERE id OPERATOR(ops.=) 5",
            "UPDATE found SET name = 'x' FROM (VALUES (1)) v (id) WHERE found.id = 1",
            "MERGE INTO found USING (VALUES (1)) v (n) ON id = 1 WHEN MATCHED THEN DELETE",
        ] {
            assert_eq!(locked(text, &[]), "found", "{text}");
        }
        assert_eq!(locked("DELETE FROM found WHERE id = $1", &[701]), "found", "float8");
        assert_eq!(locked("DELETE FROM found WHERE part::float8 > $1 AND id = $1", &[]), "found", "perhaps float8");
        assert_eq!(locked("DELETE FROM found WHERE code = $1 AND part = 1", &[oid::BPCHAR]), "found");
        assert_eq!(locked("DELETE FROM t", &[]), "");
        assert_eq!(locked("DELETE FROM guarded_ref", &[]), "ref guarded_ref", "which rows it finds its policy says");
    }

    #[test]
    fn only_those_that_the_user_may_lock_are_locked() {
        let lock = lock_before_write("UPDATE guarded_ref SET id = 1", &context(), &|_| None).unwrap();
        assert!(lock.rights().contains("(0, 'public'::pg_catalog.text, 'ref'::pg_catalog.text), (1, 'public'"));
        assert_eq!(lock.statement(&[1]).unwrap(), r#"LOCK TABLE "public"."guarded_ref" IN SHARE ROW EXCLUSIVE MODE"#);
        assert_eq!(lock.statement(&[]), None);
        assert!(lock.check_columns(0).is_ok() && lock.check_columns(1).is_err());
        assert!(lock.for_any_user().check_columns(1).is_ok());
    }
}
