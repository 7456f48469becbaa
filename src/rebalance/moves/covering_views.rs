//! Covering views of a move: on every shard, from before the first statement that may name them until after the last one.
//!
//! ```text
//! map: excludes ──────────────────┬────────────── … ──┬─ ends ─┬───────────────► statements name the views themselves
//! each shard: covering views made ┘    the move       residues └ all proxies have reached it ─► covering views dropped
//! ```
//! `sql::residues` says what they are. Here they are made, with the owner, the rights and the options that the view has on that shard,
//! and dropped. A covering view serves all moves of all groups that its view reads: each shard counts the moves that use it. It is
//! never altered, since a move shuts changes of the schema out, and one that another move uses has to be the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::moving::Moving;
use super::objects;
use super::preflight::Finding;
use super::site::{Site, SiteError};
use super::stop::Stop;
use crate::catalog::{Catalog, quoted_literal, quoted_name};
use crate::shardmap::{GroupId, MapSnapshot, Move, MoveId, MoveState, Shard};
use crate::sql::Context;
use crate::sql::residues::{covering_name, covering_query, key_types, reading_besides_views, uncovered, views_to_cover};

/// The views of a group that need one, by the home shard's schema.
struct Views {
    context: Context,
    /// What makes the types that conditions name, in any covered text; in a transaction.
    types: String,
    /// Quoted, and the covering view's name; each after those that it reads.
    list: Vec<(String, String)>,
    shards: Vec<Shard>,
}

impl Views {
    async fn of(moving: &Moving) -> Result<Self, Stop> {
        let map = moving.store.load().await?.snapshot;
        let shards: Vec<Shard> = with_statements(&map).map(Shard::clone).collect();
        let home = shards.iter().find(|shard| shard.is_home);
        let home = home.ok_or_else(|| Stop::Again("the home shard is not ready".to_owned()))?;
        let mut site = open(home, moving).await?;
        let catalog = Box::pin(site.catalog()).await?;
        let context = context(catalog, map);
        let list = named(&context, moving.group.id);
        let types = key_types(context.map.groups.values().map(Arc::as_ref));
        Ok(Self { context, types, list, shards })
    }

    /// What makes each of them on a shard, by the queries that its views have.
    async fn made_on(&self, site: &mut Site, id: MoveId) -> Result<Vec<Result<String, Finding>>, SiteError> {
        let mut made = Vec::with_capacity(self.list.len());
        for (view, covering) in &self.list {
            let query = query_of(view, site, &self.context).await?;
            made.push(query.map(|query| make_sql(id, view, covering, &query)));
        }
        Ok(made)
    }
}

/// Of the covering view, by the query that the view has on that shard.
async fn query_of(view: &str, site: &mut Site, context: &Context) -> Result<Result<String, Finding>, SiteError> {
    let definition = format!("SELECT pg_catalog.pg_get_viewdef(pg_catalog.to_regclass({}))", quoted_literal(view));
    Ok(match site.value::<Option<String>>(&definition).await? {
        Some(definition) => covering_query(&definition, context).map_err(|error| {
            let (what, remedy) = uncovered(view, &error);
            Finding { what, remedy }
        }),
        None => Err(Finding {
            what: format!("view {view} is not on shard \"{}\"", site.name),
            remedy: "shardgate check shows the differences; make the schemas alike".to_owned(),
        }),
    })
}

/// By which the queries of views are read: every name in them is qualified.
fn context(catalog: Catalog, map: MapSnapshot) -> Context {
    Context {
        catalog: Arc::new(catalog),
        map: Arc::new(map),
        search_path: Vec::new(),
        temporary_tables: Vec::new(),
        brought: BTreeMap::new(),
        id: 0,
        user: String::new(),
    }
}

fn named(context: &Context, group: GroupId) -> Vec<(String, String)> {
    let views = views_to_cover(context, group).into_iter();
    views.map(|view| (quoted_name(&view.schema, &view.name), covering_name(&view.schema, &view.name))).collect()
}

fn besides_views(context: &Context, group: GroupId) -> Vec<Finding> {
    let readers = reading_besides_views(context, group).into_iter();
    readers.map(|(what, remedy)| Finding { what, remedy }).collect()
}

/// What the home shard's schema says against moves of the group.
pub(super) async fn of_schema(home: &mut Site, map: &MapSnapshot, group: GroupId) -> Result<Vec<Finding>, Stop> {
    let catalog = Box::pin(home.catalog()).await?;
    let context = context(catalog, map.clone());
    let mut found = besides_views(&context, group);
    for (view, _) in named(&context, group) {
        let query = query_of(&view, home, &context).await?;
        found.extend(query.err());
    }
    Ok(found)
}

/// Whether a move of the group makes something on every shard.
pub(super) async fn are_needed(home: &mut Site, map: &MapSnapshot, group: GroupId) -> Result<bool, Stop> {
    let context = context(Box::pin(home.catalog()).await?, map.clone());
    Ok(!named(&context, group).is_empty() || !key_types(context.map.groups.values().map(Arc::as_ref)).is_empty())
}

/// What is in the way, found by making them in transactions that are rolled back.
pub(super) async fn findings(moving: &Moving) -> Result<Vec<Finding>, Stop> {
    let views = Views::of(moving).await?;
    let mut found = besides_views(&views.context, moving.group.id);
    if views.list.is_empty() {
        return Ok(found);
    }
    for shard in &views.shards {
        let mut site = open(shard, moving).await?;
        site.send(&format!("BEGIN; SET LOCAL lock_timeout = '2s'; {OBJECTS}{}", views.types)).await?;
        for ((view, _), sql) in views.list.iter().zip(views.made_on(&mut site, moving.the_move.id).await?) {
            let finding = match sql {
                Ok(sql) => match site.send(&sql).await {
                    Ok(()) => continue,
                    Err(SiteError::Refused { reason, .. }) => Finding {
                        what: format!("view {view} cannot be made without copies on shard \"{}\": {reason}", shard.name),
                        remedy: "Drop the view for the time of the move, or remove what is in the way".to_owned(),
                    },
                    Err(error) => return Err(error.into()),
                },
                Err(finding) => finding,
            };
            if !found.contains(&finding) {
                found.push(finding);
            }
            // Others may read it.
            break;
        }
        site.send("ROLLBACK").await?;
    }
    Ok(found)
}

/// On every shard, with the types that covered texts name. Remembered before the first one is made; can be repeated.
pub(super) async fn make(moving: &mut Moving) -> Result<(), Stop> {
    let views = Views::of(moving).await?;
    if !views.types.is_empty() {
        for shard in &views.shards {
            open(shard, moving).await?.send(&format!("BEGIN; {LOCK} {} COMMIT", views.types)).await?;
        }
    }
    if views.list.is_empty() {
        return Ok(());
    }
    moving.advance(MoveState::Preparing, json!({ REMEMBERED: true })).await?;
    for shard in &views.shards {
        let mut site = begun_on(shard, moving).await?;
        for sql in views.made_on(&mut site, moving.the_move.id).await? {
            let sql = sql.map_err(|finding| Stop::Abort(finding.to_string()))?;
            site.act_patiently(&sql).await?;
        }
        moving.reach("view_covered").await;
    }
    Ok(())
}

/// From every shard, when no text names them any more. Can be repeated.
pub(super) async fn remove(moving: &mut Moving) -> Result<(), Stop> {
    if !are_made(&moving.the_move) {
        return Ok(());
    }
    let id = moving.the_move.id;
    let ended = moving.store.end_exclusion(&moving.actor, id, moving.term).await?;
    moving.reach("exclusion_ended").await;
    moving.all_reached(ended).await?;
    let map = moving.store.load().await?.snapshot;
    for shard in with_statements(&map) {
        let mut site = begun_on(shard, moving).await?;
        remove_from(&mut site, &moving.the_move).await?;
        moving.reach("view_uncovered").await;
    }
    Ok(())
}

/// Shards to which statements go. One that owes the clean-up of a move that was given up takes none before the moves that run now have ended.
pub(super) fn with_statements(map: &MapSnapshot) -> impl Iterator<Item = &Shard> {
    map.shards.iter().map(AsRef::as_ref).filter(|shard| shard.state.is_ready() && !shard.owes)
}

/// Or may be, on some shards.
pub(in crate::rebalance) fn are_made(the_move: &Move) -> bool {
    the_move.remembers(REMEMBERED)
}

/// From one shard, under the driver's term there.
pub(super) async fn remove_from(site: &mut Site, the_move: &Move) -> Result<(), Stop> {
    let id = the_move.id;
    site.act_patiently(&remove_sql(id)).await?;
    // Of source and target it is needed to the end.
    if ![&the_move.source, &the_move.target].contains(&&site.name) {
        site.act(&format!("DELETE FROM shardgate.term WHERE move_id = {}", id.0)).await?;
    }
    Ok(())
}

async fn open(shard: &Shard, moving: &Moving) -> Result<Site, Stop> {
    let opened = Box::pin(Site::open(shard, moving.the_move.id, moving.term)).await;
    opened.map_err(|error| match Stop::from(error) {
        Stop::Again(reason) => Stop::Again(format!("needs every shard, for views of its tables: {reason}")),
        stop => stop,
    })
}

/// With the driver's term.
async fn begun_on(shard: &Shard, moving: &Moving) -> Result<Site, Stop> {
    let mut site = open(shard, moving).await?;
    begin(&mut site).await?;
    moving.confirm_term().await?;
    Ok(site)
}

/// What makes and removes them, and the driver's term.
pub(super) async fn begin(site: &mut Site) -> Result<(), SiteError> {
    site.send(objects::SHARED).await?;
    site.send(&format!("BEGIN; {OBJECTS} COMMIT")).await?;
    site.take_term().await.map(drop)
}

/// `view`: quoted. `query`: see [`covering_query`].
pub fn make_sql(id: MoveId, view: &str, covering: &str, query: &str) -> String {
    let [view, covering, query] = [view, covering, query].map(quoted_literal);
    format!("SELECT shardgate.make_covering_view({}, {view}, {covering}, {query});", id.0)
}

pub(in crate::rebalance) fn remove_sql(id: MoveId) -> String {
    format!("SELECT shardgate.remove_covering_views({});", id.0)
}

/// In the move's journal.
const REMEMBERED: &str = "covering_views";

/// Of what is made on a shard, one after the other.
const LOCK: &str = "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('shardgate support objects', 0));";

/// On a shard, in a transaction: which moves use which covering views, and what makes and removes them.
pub const OBJECTS: &str = r#"
SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('shardgate support objects', 0));
CREATE TABLE IF NOT EXISTS shardgate.covering_view (
    move_id int NOT NULL, name name NOT NULL, query text NOT NULL, PRIMARY KEY (move_id, name));
CREATE OR REPLACE FUNCTION shardgate.make_covering_view(of_move int, view_name text, covering name, covering_query text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    original regclass := view_name::regclass;
    made text := format('shardgate.%I', covering);
    of_owner name;
    may_create bool;
    granted record;
BEGIN
    LOCK TABLE shardgate.covering_view IN EXCLUSIVE MODE;
    IF EXISTS (SELECT FROM shardgate.covering_view c WHERE c.name = covering AND c.query <> covering_query) THEN
        RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = format('another move uses view %s as it was', view_name);
    END IF;
    IF NOT EXISTS (SELECT FROM shardgate.covering_view c WHERE c.name = covering) THEN
        EXECUTE format('DROP VIEW IF EXISTS %s CASCADE', made);
        EXECUTE format('CREATE VIEW %s %s AS %s', made,
            (SELECT 'WITH (' || array_to_string(c.reloptions, ', ') || ')' FROM pg_class c WHERE c.oid = original), covering_query);
        IF (SELECT string_agg(format('%s %s %s %s %s', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attcollation), ',' ORDER BY a.attnum)
            FROM pg_attribute a WHERE a.attrelid = original AND a.attnum > 0) IS DISTINCT FROM
           (SELECT string_agg(format('%s %s %s %s %s', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attcollation), ',' ORDER BY a.attnum)
            FROM pg_attribute a WHERE a.attrelid = made::regclass AND a.attnum > 0) THEN
            RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = format('its query does not give the columns of view %s', view_name);
        END IF;
        SELECT r.rolname INTO of_owner FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner WHERE c.oid = original;
        IF of_owner <> current_user THEN
            may_create := has_schema_privilege(of_owner, 'shardgate', 'CREATE');
            IF NOT may_create THEN
                EXECUTE format('GRANT CREATE ON SCHEMA shardgate TO %I', of_owner);
            END IF;
            EXECUTE format('ALTER VIEW %s OWNER TO %I', made, of_owner);
            IF NOT may_create THEN
                EXECUTE format('REVOKE CREATE ON SCHEMA shardgate FROM %I', of_owner);
            END IF;
        END IF;
        -- Default privileges may have given more.
        FOR granted IN
            SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee
            FROM pg_class c, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a WHERE c.oid = made::regclass
        LOOP
            EXECUTE format('REVOKE ALL ON TABLE %s FROM %s', made, granted.grantee);
        END LOOP;
        FOR granted IN
            SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee,
                   a.privilege_type || coalesce(' (' || quote_ident(o.attname) || ')', '') AS privilege
            FROM (SELECT coalesce(c.relacl, acldefault('r', c.relowner)) AS acl, NULL::name AS attname FROM pg_class c WHERE c.oid = original
                  UNION ALL SELECT t.attacl, t.attname FROM pg_attribute t WHERE t.attrelid = original AND t.attacl IS NOT NULL) o,
                 aclexplode(o.acl) a
            WHERE a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
        LOOP
            EXECUTE format('GRANT %s ON TABLE %s TO %s', granted.privilege, made, granted.grantee);
        END LOOP;
    END IF;
    INSERT INTO shardgate.covering_view (move_id, name, query) VALUES (of_move, covering, covering_query) ON CONFLICT DO NOTHING;
END $$;
CREATE OR REPLACE FUNCTION shardgate.remove_covering_views(of_move int) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    unused text;
BEGIN
    LOCK TABLE shardgate.covering_view IN EXCLUSIVE MODE;
    SELECT string_agg(format('shardgate.%I', c.name), ', ') INTO unused FROM shardgate.covering_view c
    WHERE c.move_id = of_move
      AND NOT EXISTS (SELECT FROM shardgate.covering_view other WHERE other.name = c.name AND other.move_id <> of_move);
    IF unused IS NOT NULL THEN
        EXECUTE 'DROP VIEW IF EXISTS ' || unused;
    END IF;
    DELETE FROM shardgate.covering_view c WHERE c.move_id = of_move;
END $$;
REVOKE ALL ON TABLE shardgate.covering_view FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION shardgate.make_covering_view(int, text, name, text), shardgate.remove_covering_views(int) FROM PUBLIC;
"#;
