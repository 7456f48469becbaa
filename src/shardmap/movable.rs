//! What the schema of a table says against moves of its rows: one question for the table with its partitions, and what follows from the
//! answer, each with the statement that mends it.
//!
//! The pre-flight of a move asks it of tables that are sharded; `plan_tables` asks it of those that are going to be, before anything is
//! declared. In a plan the keys do not hold the shard key yet, which the script puts into them.

use sqlx::FromRow;

use crate::catalog::{quoted_identifier, quoted_literal, quoted_name};

/// What is asked about one sharded table.
#[derive(Clone, Copy, Debug)]
pub struct MovedTableQuestion<'q> {
    /// A query that gives the `oid` of the table and of each of its partitions.
    pub members: &'q str,
    /// The columns of the shard key, by name.
    pub key: &'q [String],
    /// As whom the target asks for rows, where that is not the user of the shard's URL.
    pub copier: Option<&'q str>,
    /// The table is going to be sharded: every key will hold the shard key, whose columns it may lack yet.
    pub is_planned: bool,
}

/// Of a sharded table, or of one of its partitions.
#[derive(Clone, Debug, FromRow)]
pub struct MovedTableFacts {
    schema: String,
    name: String,
    pub holds_rows: bool,
    is_partition: bool,
    is_foreign: bool,
    is_unlogged: bool,
    has_row_security: bool,
    /// The primary key or replica identity tells rows apart and holds the shard key.
    pub covers_key: bool,
    has_generated_key: bool,
    /// There is a primary key that would do, were it the replica identity.
    has_primary_key: bool,
    has_any_primary_key: bool,
    /// A unique index that would do.
    identity_index: Option<String>,
    /// A name that no column of the table has.
    free_column: String,
    pub replica_triggers: Vec<String>,
    all_tables_publications: Vec<String>,
    /// Foreign keys to the table that follow changes, and the statements after which they do not. In a plan they are still to change.
    cascading: Vec<String>,
    not_cascading: Vec<String>,
    grantees_without_key: Vec<String>,
}

/// One thing in the way, and what to do.
pub type InTheWay = (String, String);

impl MovedTableQuestion<'_> {
    pub fn sql(&self) -> String {
        let copier = self.copier.map_or_else(|| "current_user".to_owned(), quoted_literal);
        let key: Vec<String> = self.key.iter().map(|column| quoted_literal(column)).collect();
        let key = format!("ARRAY[{}]::name[]", key.join(", "));
        // Those that are left say it of the foreign keys as they will be.
        let cascading = if self.is_planned { "false" } else { CASCADING };
        let holds_key = if self.is_planned {
            "true".to_owned()
        } else {
            format!(
                "{key} <@ ARRAY(SELECT a.attname FROM pg_attribute a WHERE a.attrelid = i.indrelid
                               AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]))"
            )
        };
        format!(
            "SELECT s.nspname::text AS schema, c.relname::text AS name, c.relkind = 'r' AS holds_rows, c.relkind = 'f' AS is_foreign,
                c.relispartition OR c.relkind = 'p' AS is_partition, c.relpersistence = 'u' AS is_unlogged,
                c.relrowsecurity AND c.relforcerowsecurity AND (row_security_active(c.oid) OR NOT {EXEMPT} r.rolname = {copier}))
                    AS has_row_security,
                EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND {holds_key}
                        AND i.indimmediate AND i.indisvalid AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END) AS covers_key,
                EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = ANY ({key}) AND a.attgenerated <> '')
                    AS has_generated_key,
                EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate AND {holds_key}) AS has_primary_key,
                EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) AS has_any_primary_key,
                (SELECT min(x.relname)::text FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
                 WHERE i.indrelid = c.oid AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
                   AND {holds_key}
                   AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND NOT a.attnotnull AND NOT ({is_planned} AND a.attname = ANY ({key}))
                                   AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]))) AS identity_index,
                (SELECT concat('row_id', nullif(n, 1)) FROM generate_series(1, 1600) n
                 WHERE NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = concat('row_id', nullif(n, 1)))
                 ORDER BY n LIMIT 1) AS free_column,
                array(SELECT t.tgname::text FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled IN ('A', 'R')
                        AND t.tgname !~ '^zz_shardgate_move_[0-9]+_') AS replica_triggers,
                array(SELECT p.pubname::text FROM pg_publication p WHERE p.puballtables) AS all_tables_publications,
                array(SELECT f.conname::text FROM pg_constraint f WHERE {cascading} ORDER BY f.conname, f.conrelid) AS cascading,
                array(SELECT format('ALTER TABLE %I.%I DROP CONSTRAINT %I, ADD CONSTRAINT %I %s;', fn.nspname, fc.relname, f.conname, f.conname,
                                    regexp_replace(pg_get_constraintdef(f.oid), ' ON UPDATE (CASCADE|SET NULL|SET DEFAULT)', ''))
                      FROM pg_constraint f JOIN pg_class fc ON fc.oid = f.conrelid JOIN pg_namespace fn ON fn.oid = fc.relnamespace
                      WHERE {cascading} ORDER BY f.conname, f.conrelid) AS not_cascading,
                array(SELECT DISTINCT r.rolname::text FROM pg_attribute a, aclexplode(a.attacl) g, pg_roles r
                      WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND g.privilege_type = 'SELECT' AND r.oid = g.grantee
                        AND EXISTS (SELECT FROM unnest({key}) k LEFT JOIN pg_attribute own ON own.attrelid = c.oid AND own.attname = k
                                    WHERE own.attnum IS NULL AND NOT has_table_privilege(r.oid, c.oid, 'SELECT')
                                       OR NOT has_column_privilege(r.oid, c.oid, own.attnum, 'SELECT'))) AS grantees_without_key
             FROM ({}) m JOIN pg_class c ON c.oid = m.oid JOIN pg_namespace s ON s.oid = c.relnamespace ORDER BY c.relispartition, 1, 2",
            self.members,
            is_planned = self.is_planned
        )
    }
}

/// What the facts say, in the order in which it would be mended. `key`: see [`MovedTableQuestion`].
pub fn in_the_way(members: &[MovedTableFacts], key: &[String]) -> Vec<InTheWay> {
    let mut found = Vec::new();
    let columns = key.iter().map(|column| quoted_identifier(column)).collect::<Vec<_>>().join(", ");
    let mut add = |is_so: &dyn Fn(&MovedTableFacts) -> bool, what: &dyn Fn(&str) -> String, remedy: String| {
        if let Some(names) = which(members, is_so) {
            found.push((what(&names), remedy));
        }
    };
    let each = |is_so: &dyn Fn(&MovedTableFacts) -> bool, statement: &dyn Fn(&MovedTableFacts, &str) -> Option<String>| {
        let of = |facts: &MovedTableFacts| statement(facts, &quoted_name(&facts.schema, &facts.name));
        listed(members.iter().filter(|facts| is_so(facts)).filter_map(of))
    };
    let is_foreign = |facts: &MovedTableFacts| facts.is_foreign;
    let foreign = "Make ordinary tables of them, or drop them".to_owned();
    add(&is_foreign, &|names| format!("the rows of foreign {names} are on another server"), foreign);
    let is_unlogged = |facts: &MovedTableFacts| facts.is_unlogged && facts.holds_rows;
    let logged = each(&is_unlogged, &|_, table| Some(format!("ALTER TABLE {table} SET LOGGED;")));
    add(&is_unlogged, &|names| format!("rows of unlogged {names} are not replicated"), logged);
    let lacks_key = |facts: &MovedTableFacts| facts.holds_rows && !facts.covers_key;
    let identified = each(&lacks_key, &|facts, table| identity_statement(facts, table, &columns));
    let usual =
        format!("ALTER TABLE … REPLICA IDENTITY USING INDEX … with a unique index of columns that are NOT NULL and hold {columns}");
    let identified = if identified.is_empty() { usual } else { identified };
    add(
        &lacks_key,
        &|names| format!("the primary key of {names}, or its replica identity, lacks the shard key, or is DEFERRABLE"),
        identified,
    );
    let is_generated = |facts: &MovedTableFacts| facts.has_generated_key;
    let given = each(&is_generated, &|_, table| {
        let drops: Vec<String> =
            key.iter().map(|column| format!("ALTER COLUMN {} DROP EXPRESSION IF EXISTS", quoted_identifier(column))).collect();
        Some(format!("ALTER TABLE {table} {};", drops.join(", ")))
    });
    let given = format!("Let INSERT give it: {given}");
    add(&is_generated, &|names| format!("the shard key of {names} is a generated column"), given);
    let is_secured = |facts: &MovedTableFacts| facts.has_row_security;
    let unforced = each(&is_secured, &|_, table| Some(format!("ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY;")));
    let unforced = format!("{unforced} for the time of the move, or ALTER ROLE … BYPASSRLS for the user of the shard's url");
    add(
        &is_secured,
        &|names| format!("row security is forced on the owner of {names}: rows could be hidden from the copy"),
        unforced,
    );
    found.extend(replica_triggers(members, ""));
    if let Some((_, publications)) = which_have(members, |facts| &facts.all_tables_publications) {
        let what = format!("publications FOR ALL TABLES would publish what the move copies and deletes: {publications}");
        found.push((what, "Publish the tables by name".to_owned()));
    }
    if let Some((names, users)) = which_have(members, |facts| &facts.grantees_without_key) {
        let grants = members.iter().filter(|facts| !facts.grantees_without_key.is_empty()).map(|facts| {
            let users: Vec<String> = facts.grantees_without_key.iter().map(|user| quoted_identifier(user)).collect();
            format!("GRANT SELECT ({columns}) ON {} TO {};", quoted_name(&facts.schema, &facts.name), users.join(", "))
        });
        let remedy = format!("{} Their statements over several shards leave out copies by the key", listed(grants));
        found.push((format!("users may read columns of {names}, but not its shard key: {users}"), remedy));
    }
    if let Some((names, keys)) = which_have(members, |facts| &facts.cascading) {
        let statements = members.iter().flat_map(|facts| facts.not_cascading.iter().cloned()).collect();
        found.push(cascading(&names, &keys, statements));
    }
    found
}

/// Foreign keys that follow changes of the key of these tables, and the statements after which they do not.
pub fn cascading(tables: &str, keys: &str, statements: Vec<String>) -> InTheWay {
    let statements = listed(statements.into_iter());
    let why = "Make them ON UPDATE NO ACTION: a changed key becomes a deletion and an insertion while it moves";
    let remedy = if statements.is_empty() { why.to_owned() } else { format!("{why}. {statements}") };
    (format!("foreign keys follow changes of the key of {tables}: {keys}"), remedy)
}

/// Triggers that would fire on what replication writes.
pub fn replica_triggers(members: &[MovedTableFacts], on_shard: &str) -> Option<InTheWay> {
    let (names, triggers) = which_have(members, |facts| &facts.replica_triggers)?;
    let statements = members.iter().filter(|facts| !facts.replica_triggers.is_empty()).map(|facts| {
        let parts: Vec<String> =
            facts.replica_triggers.iter().map(|trigger| format!("ENABLE TRIGGER {}", quoted_identifier(trigger))).collect();
        format!("ALTER TABLE {} {};", quoted_name(&facts.schema, &facts.name), parts.join(", "))
    });
    let remedy = format!("Make ordinary triggers of them: {}", listed(statements));
    Some((format!("triggers of {names}{on_shard} fire on replication too: {triggers}"), remedy))
}

/// The members of which this is so, named. `None`: of none.
pub fn which(members: &[MovedTableFacts], is_so: impl Fn(&MovedTableFacts) -> bool) -> Option<String> {
    named(members.iter().filter(|facts| is_so(facts)).map(|facts| quoted_name(&facts.schema, &facts.name)).collect())
}

/// The same with what each of them has of something, once.
fn which_have(members: &[MovedTableFacts], of: impl Fn(&MovedTableFacts) -> &Vec<String>) -> Option<(String, String)> {
    let names = which(members, |facts| !of(facts).is_empty())?;
    let mut all: Vec<&str> = members.iter().flat_map(|facts| of(facts).iter().map(String::as_str)).collect();
    all.sort_unstable();
    all.dedup();
    Some((names, all.join(", ")))
}

/// By what replication tells the rows of a table apart, where that can be said. A partition has the columns of its parent.
fn identity_statement(facts: &MovedTableFacts, table: &str, key: &str) -> Option<String> {
    if facts.has_primary_key {
        return Some(format!("ALTER TABLE {table} REPLICA IDENTITY DEFAULT;"));
    }
    if let Some(index) = &facts.identity_index {
        return Some(format!("ALTER TABLE {table} REPLICA IDENTITY USING INDEX {};", quoted_identifier(index)));
    }
    let column = quoted_identifier(&facts.free_column);
    (!facts.is_partition && !facts.has_any_primary_key).then(|| {
        format!("ALTER TABLE {table} ADD COLUMN {column} bigint GENERATED ALWAYS AS IDENTITY, ADD PRIMARY KEY ({column}, {key});")
    })
}

/// `table a`, `tables a, b, c and 7 more`.
pub fn named(names: Vec<String>) -> Option<String> {
    let more = names.len().saturating_sub(NAMED_MAX);
    match names.as_slice() {
        [] => None,
        [name] => Some(format!("table {name}")),
        _ if more == 0 => Some(format!("tables {}", names.join(", "))),
        _ => Some(format!("tables {} and {more} more", names.get(..NAMED_MAX).unwrap_or_default().join(", "))),
    }
}

/// Statements, ready to be run.
fn listed(statements: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = statements.collect();
    let more = all.len().saturating_sub(STATEMENTS_MAX);
    all.truncate(STATEMENTS_MAX);
    let all = all.join(" ");
    if more == 0 { all } else { format!("{all} And {more} more like these") }
}

/// Policies choose no rows for a superuser, nor for a role with BYPASSRLS.
const EXEMPT: &str = "EXISTS (SELECT FROM pg_roles r WHERE (r.rolsuper OR r.rolbypassrls) AND";

const CASCADING: &str = "f.contype = 'f' AND f.confrelid = c.oid AND f.conparentid = 0 AND f.confupdtype IN ('c', 'n', 'd')";

/// In one message.
const NAMED_MAX: usize = 3;
const STATEMENTS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_partitions_the_first_are_named() {
        let names = |count: usize| named((1..=count).map(|number| format!("t{number}")).collect());
        assert_eq!(names(0), None);
        assert_eq!(names(1).as_deref(), Some("table t1"));
        assert_eq!(names(3).as_deref(), Some("tables t1, t2, t3"));
        assert_eq!(names(5).as_deref(), Some("tables t1, t2, t3 and 2 more"));
    }
}
