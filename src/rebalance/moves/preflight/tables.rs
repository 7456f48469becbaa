//! What is in the way at one sharded table, with its partitions: partitions of one table that have the same in the way are named
//! together.

use sqlx::FromRow;

use super::super::moved_table::{MovedTable, members_sql};
use super::super::moving::Moving;
use super::super::site::{Site, SiteError};
use super::{Findings, WITHOUT_A_WAY_BACK};
use crate::catalog::{quoted_literal, quoted_name};

/// `copier`: as whom the target asks the source for rows, where that is not the user of the shard's url.
pub(super) async fn look(
    moving: &mut Moving,
    table: &MovedTable,
    copier: Option<&str>,
    found: &mut Findings,
) -> Result<(), SiteError> {
    let is_there = on_target(moving, table, found).await?;
    on_source(&mut moving.source, table, copier, found).await?;
    if is_there && moving.the_move.options.can_go_back() {
        on_way_back(&mut moving.target, table, found).await?;
    }
    if is_there && found.0.is_empty() {
        residue(moving, table, found).await?;
    }
    Ok(())
}

/// Of a sharded table, or of one of its partitions.
#[derive(FromRow)]
struct Facts {
    schema: String,
    name: String,
    holds_rows: bool,
    is_foreign: bool,
    is_unlogged: bool,
    has_row_security: bool,
    covers_key: bool,
    has_generated_key: bool,
    replica_triggers: Vec<String>,
    all_tables_publications: Vec<String>,
    cascading: Vec<String>,
    grantees_without_key: Vec<String>,
}

fn facts_sql(table: &MovedTable, copier: Option<&str>) -> String {
    let copier = copier.map_or_else(|| "current_user".to_owned(), quoted_literal);
    let key: Vec<String> = table.key.iter().map(|key| quoted_literal(&key.column)).collect();
    let key = format!("ARRAY[{}]::name[]", key.join(", "));
    format!(
        "SELECT s.nspname::text AS schema, c.relname::text AS name, c.relkind = 'r' AS holds_rows, c.relkind = 'f' AS is_foreign,
            c.relpersistence = 'u' AS is_unlogged, c.relrowsecurity AND c.relforcerowsecurity AND (row_security_active(c.oid) OR NOT {EXEMPT} r.rolname = {copier}))
                AS has_row_security,
            coalesce((SELECT array_agg(a.attname) @> {key}
                      FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
                      WHERE i.indrelid = c.oid AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END),
                     false) AS covers_key,
            EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = ANY ({key}) AND a.attgenerated <> '') AS has_generated_key,
            array(SELECT t.tgname::text FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled IN ('A', 'R')
                    AND t.tgname !~ '^zz_shardgate_move_[0-9]+_') AS replica_triggers,
            array(SELECT p.pubname::text FROM pg_publication p WHERE p.puballtables) AS all_tables_publications,
            array(SELECT f.conname::text FROM pg_constraint f WHERE f.contype = 'f' AND f.confrelid = c.oid AND f.conparentid = 0
                    AND f.confupdtype IN ('c', 'n', 'd')) AS cascading,
            array(SELECT DISTINCT r.rolname::text FROM pg_attribute a, aclexplode(a.attacl) g, pg_roles r
                  WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND g.privilege_type = 'SELECT' AND r.oid = g.grantee
                    AND EXISTS (SELECT FROM unnest({key}) k WHERE NOT has_column_privilege(r.oid, c.oid, k::text, 'SELECT'))) AS grantees_without_key
         FROM ({}) m JOIN pg_class c ON c.oid = m.oid JOIN pg_namespace s ON s.oid = c.relnamespace ORDER BY c.relispartition, 1, 2",
        members_sql(std::slice::from_ref(table))
    )
}

/// Policies choose no rows for a superuser, nor for a role with BYPASSRLS.
const EXEMPT: &str = "EXISTS (SELECT FROM pg_roles r WHERE (r.rolsuper OR r.rolbypassrls) AND";

/// The table and its partitions, on one shard.
struct Members(Vec<Facts>);

impl Members {
    async fn read(site: &mut Site, table: &MovedTable, copier: Option<&str>) -> Result<Self, SiteError> {
        Ok(Self(site.rows::<Facts>(&facts_sql(table, copier)).await?))
    }

    /// Those of which this is so, named. `None`: of none.
    fn which(&self, is_so: impl Fn(&Facts) -> bool) -> Option<String> {
        let names = self.0.iter().filter(|facts| is_so(facts)).map(|facts| quoted_name(&facts.schema, &facts.name));
        named(names.collect())
    }

    /// The same with what each of them has of something, once.
    fn which_have(&self, of: impl Fn(&Facts) -> &Vec<String>) -> Option<(String, String)> {
        let names = self.which(|facts| !of(facts).is_empty())?;
        let mut all: Vec<&str> = self.0.iter().flat_map(|facts| of(facts).iter().map(String::as_str)).collect();
        all.sort_unstable();
        all.dedup();
        Some((names, all.join(", ")))
    }
}

/// `table a`, `tables a, b, c and 7 more`.
fn named(names: Vec<String>) -> Option<String> {
    let more = names.len().saturating_sub(NAMED_MAX);
    match names.as_slice() {
        [] => None,
        [name] => Some(format!("table {name}")),
        _ if more == 0 => Some(format!("tables {}", names.join(", "))),
        _ => Some(format!("tables {} and {more} more", names.get(..NAMED_MAX).unwrap_or_default().join(", "))),
    }
}

/// What the schema of the source says against the move.
pub(super) async fn on_source(
    source: &mut Site,
    table: &MovedTable,
    copier: Option<&str>,
    found: &mut Findings,
) -> Result<(), SiteError> {
    let members = Members::read(source, table, copier).await?;
    let key = table.key_columns().join(", ");
    if let Some(names) = members.which(|facts| facts.is_foreign) {
        found.add(format!("the rows of foreign {names} are on another server"), "Make ordinary tables of them, or drop them");
    }
    if let Some(names) = members.which(|facts| facts.is_unlogged) {
        found.add(format!("rows of unlogged {names} are not replicated"), "ALTER TABLE … SET LOGGED");
    }
    if let Some(names) = members.which(|facts| facts.holds_rows && !facts.covers_key) {
        found.add(
            format!("the primary key of {names}, or its replica identity, lacks the shard key"),
            format!("ALTER TABLE … REPLICA IDENTITY USING INDEX … with a unique index of columns that are NOT NULL and hold {key}"),
        );
    }
    if let Some(names) = members.which(|facts| facts.has_generated_key) {
        found.add(format!("the shard key of {names} is a generated column"), "Such a table cannot be moved");
    }
    if let Some(names) = members.which(|facts| facts.has_row_security) {
        found.add(
            format!("row security is forced on the owner of {names}: rows could be hidden from the copy"),
            "ALTER TABLE … NO FORCE ROW LEVEL SECURITY for the time of the move, or ALTER ROLE … BYPASSRLS for the user of the shard's url",
        );
    }
    replica_triggers(&members, "", found);
    if let Some((_, publications)) = members.which_have(|facts| &facts.all_tables_publications)
        && found.0.iter().all(|finding| !finding.what.starts_with("publications"))
    {
        found.add(
            format!("publications FOR ALL TABLES would publish what the move copies and deletes: {publications}"),
            "Publish the tables by name",
        );
    }
    if let Some((names, users)) = members.which_have(|facts| &facts.grantees_without_key) {
        found.add(
            format!("users may read columns of {names}, but not its shard key: {users}"),
            format!("GRANT SELECT ({key}) ON it to them: their statements over several shards leave out copies by the key"),
        );
    }
    if let Some((names, keys)) = members.which_have(|facts| &facts.cascading) {
        found.add(
            format!("foreign keys follow changes of the key of {names}: {keys}"),
            "Make them ON UPDATE NO ACTION: a changed key becomes a deletion and an insertion while it moves",
        );
    }
    Ok(())
}

fn replica_triggers(members: &Members, on_shard: &str, found: &mut Findings) {
    if let Some((names, triggers)) = members.which_have(|facts| &facts.replica_triggers) {
        found.add(
            format!("triggers of {names}{on_shard} fire on replication too: {triggers}"),
            "ALTER TABLE … ENABLE TRIGGER … makes ordinary triggers of them",
        );
    }
}

/// What the target publishes for a rollback. Without the key in the replica identity the application's own UPDATE would fail there.
async fn on_way_back(target: &mut Site, table: &MovedTable, found: &mut Findings) -> Result<(), SiteError> {
    let members = Members::read(target, table, None).await?;
    let on_shard = format!(" on shard \"{}\"", target.name);
    if let Some(names) = members.which(|facts| facts.holds_rows && !facts.covers_key) {
        found.add(
            format!("the primary key of {names}{on_shard}, or its replica identity, lacks the shard key"),
            format!("Make it as it is on the source; {WITHOUT_A_WAY_BACK}"),
        );
    }
    replica_triggers(&members, &on_shard, found);
    Ok(())
}

/// Schema, name, columns and how it is partitioned, of the table and each of its partitions.
type Shape = (String, String, String);

async fn on_target(moving: &mut Moving, table: &MovedTable, found: &mut Findings) -> Result<bool, SiteError> {
    let sql = format!(
        "SELECT s.nspname::text, c.relname::text,
                concat_ws(' ', (SELECT string_agg(quote_ident(a.attname) || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attname)
                                FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
                          (SELECT i.inhparent::regclass::text FROM pg_inherits i WHERE i.inhrelid = c.oid),
                          pg_get_expr(c.relpartbound, c.oid), pg_get_partkeydef(c.oid))
         FROM ({}) m JOIN pg_class c ON c.oid = m.oid JOIN pg_namespace s ON s.oid = c.relnamespace ORDER BY c.relispartition, 1, 2",
        members_sql(std::slice::from_ref(table))
    );
    let (source, target) = (moving.source.rows::<Shape>(&sql).await?, moving.target.rows::<Shape>(&sql).await?);
    if source == target {
        return Ok(true);
    }
    let same_name = |one: &Shape, other: &Shape| one.0 == other.0 && one.1 == other.1;
    let lacks = |there: &[Shape], shape: &&Shape| !there.iter().any(|other| same_name(shape, other));
    let names = |shapes: Vec<&Shape>| named(shapes.into_iter().map(|shape| quoted_name(&shape.0, &shape.1)).collect());
    let differs = |shape: &&Shape| !lacks(&target, shape) && !target.contains(shape);
    let (from, to) = (&moving.source.name, &moving.target.name);
    let remedy = "shardgate check shows the differences; make the tables alike";
    if let Some(names) = names(source.iter().filter(|shape| lacks(&target, shape)).collect()) {
        found.add(format!("shard \"{to}\" lacks {names}"), remedy);
    }
    if let Some(names) = names(target.iter().filter(|shape| lacks(&source, shape)).collect()) {
        found.add(format!("shard \"{from}\" lacks {names}, and shard \"{to}\" does not"), remedy);
    }
    if let Some(names) = names(source.iter().filter(differs).collect()) {
        found.add(format!("columns or partition bounds of {names} differ on shard \"{to}\""), remedy);
    }
    Ok(false)
}

/// Rows of the set that lie on the target already would be doubled, or stop the copy.
async fn residue(moving: &mut Moving, table: &MovedTable, found: &mut Findings) -> Result<(), SiteError> {
    let sql = format!("SELECT EXISTS (SELECT FROM {} WHERE {})", table.quoted, table.condition);
    if moving.target.value::<bool>(&sql).await? {
        found.add(
            format!(
                "table {} has rows of these partitions on shard \"{}\", which does not own them",
                table.quoted, moving.target.name
            ),
            "They are left from something else: look at them with the routing hint, and delete them",
        );
    }
    Ok(())
}

/// In one message.
const NAMED_MAX: usize = 3;

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
