//! What `shardgate check` asks one shard.

use std::sync::Arc;
use std::time::Duration;

use super::super::shard_connection::ShardConnection;
use super::super::shards::read_catalog;
use super::super::support;
use super::{Facts, Finding, Needs, rows};
use crate::backend;
use crate::catalog::quoted_literal;
use crate::error::PgError;
use crate::shardmap::Shard;

/// Of one server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Settings, rights and leftovers. `roles`: the users whose sessions run on the shard under their own name.
pub(super) async fn settings(
    shard: &mut ShardConnection,
    subject: &str,
    (roles, needs): (&[&str], Needs),
    found: &mut Vec<Finding>,
) -> Result<(), PgError> {
    server(shard, subject, needs, found).await?;
    rights(shard, subject, (roles, needs), found).await?;
    listed(shard, subject, found).await
}

/// Where its url names several servers: at most one of them is a primary of the newest timeline.
pub(super) async fn two_primaries(shard: &Shard, subject: &str) -> Option<Finding> {
    let (one, other) = backend::two_primaries(shard, ANSWER_TIMEOUT).await?;
    Some(Finding::new(
        subject,
        format!("{one} and {other} are primaries of the same timeline at once, and proxies that see it use none of them"),
        "Stop the one that was not meant to be a primary, and take it out of the url: each may have rows that the other one has not.",
    ))
}

async fn server(shard: &mut ShardConnection, subject: &str, needs: Needs, found: &mut Vec<Finding>) -> Result<(), PgError> {
    let mut add = |finding: &str, remedy: &str| found.push(Finding::new(subject, finding, remedy));
    let wal_level: String = shard.value("SHOW wal_level").await?;
    if needs.several_shards && wal_level != "logical" {
        add(
            &format!("wal_level is {wal_level}, so that partitions cannot be moved from or to it"),
            "Set wal_level = logical and restart the server.",
        );
    }
    let prepared: String = shard.value("SHOW max_prepared_transactions").await?;
    if needs.two_phase && prepared == "0" {
        add(
            "max_prepared_transactions is 0, so that transactions cannot write here and on another shard",
            "Set it to the number of connections that proxies may have, and restart the server.",
        );
    }
    let is_collation_current: bool = shard
        .value(
            "SELECT datcollversion IS NOT DISTINCT FROM pg_database_collation_actual_version(oid) \
             FROM pg_database WHERE datname = current_database()",
        )
        .await?;
    if !is_collation_current {
        add(
            "its collation's version is not the one that its indexes were made with",
            "REINDEX DATABASE, then ALTER DATABASE … REFRESH COLLATION VERSION.",
        );
    }
    let has_support: bool = shard.value("SELECT to_regprocedure('shardgate.resolve(text, uuid)') IS NOT NULL").await?;
    if !has_support {
        add("the objects of schema \"shardgate\" are missing", "Call shardgate.add_shard() again with its name and url.");
    }
    Ok(())
}

async fn rights(
    shard: &mut ShardConnection,
    subject: &str,
    (roles, needs): (&[&str], Needs),
    found: &mut Vec<Finding>,
) -> Result<(), PgError> {
    let mut add = |finding: String, remedy: &str| found.push(Finding::new(subject, finding, remedy));
    let user: String = shard.value("SELECT current_user::text").await?;
    let can_replicate: bool = shard.value("SELECT rolsuper OR rolreplication FROM pg_roles WHERE rolname = current_user").await?;
    if needs.several_shards && !can_replicate {
        add(
            format!("user \"{user}\" may not replicate, so that partitions cannot be moved from it"),
            "Name a role that may, which moves alone use: SELECT shardgate.alter_shard('name', replication_url => 'postgres://…').",
        );
    }
    // The owner of a table is not kept from its rows, unless that is forced.
    let hidden = "SELECT EXISTS (SELECT FROM pg_class WHERE relkind IN ('r', 'p') AND relrowsecurity AND row_security_active(oid))";
    let is_kept_from_rows: bool = shard.value(hidden).await?;
    if needs.several_shards && is_kept_from_rows {
        add(
            format!("user \"{user}\" does not see all rows of tables with row level security, so that copies would lack some"),
            "Let the shard's url name the owner of these tables, and applications log in with roles of their own (auth.backend_user = \"client\").",
        );
    }
    let may_create: bool = shard.value("SELECT has_database_privilege(current_database(), 'CREATE')").await?;
    if !may_create {
        add(format!("user \"{user}\" may not create schemas and publications"), "GRANT CREATE ON DATABASE … TO that user.");
    }
    let has_role: bool = shard.value("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = 'shardgate_2pc')").await?;
    if needs.two_phase && !has_role {
        add(
            "role \"shardgate_2pc\" is missing, so that transactions cannot write here and on another shard".to_owned(),
            "CREATE ROLE shardgate_2pc NOLOGIN, and grant it to the user of the shard's url and to every client role.",
        );
        return Ok(());
    }
    for role in std::iter::once(user.as_str()).chain(roles.iter().copied()) {
        role_rights(shard, subject, (role, needs), found).await?;
    }
    Ok(())
}

async fn role_rights(
    shard: &mut ShardConnection,
    subject: &str,
    (role, needs): (&str, Needs),
    found: &mut Vec<Finding>,
) -> Result<(), PgError> {
    let name = quoted_literal(role);
    // One row in any case: of no role, null. Whether the role is a member counts where there is something to be a member of.
    let membership = match needs.two_phase {
        true => "pg_has_role(oid, 'shardgate_2pc', 'MEMBER')",
        false => "true",
    };
    let is_member: Option<bool> =
        shard.value(&format!("SELECT (SELECT {membership} FROM pg_roles WHERE rolname = {name})")).await?;
    match is_member {
        Some(true) => {}
        Some(false) => found.push(Finding::new(
            subject,
            format!(
                "role \"{role}\" is no member of \"shardgate_2pc\", so that its transactions cannot write here and on another shard"
            ),
            "GRANT shardgate_2pc TO that role; from PostgreSQL 16 on WITH SET TRUE.",
        )),
        None => found.push(Finding::new(
            subject,
            format!("user \"{role}\" of [[auth.users]] has no role there"),
            "Create the role, or set auth.backend_user = \"shard\".",
        )),
    }
    let may_use_temporary: Option<bool> = shard
        .value(&format!(
            "SELECT (SELECT has_database_privilege(oid, current_database(), 'TEMP') FROM pg_roles WHERE rolname = {name})"
        ))
        .await?;
    if needs.several_shards && may_use_temporary == Some(false) {
        found.push(Finding::new(
            subject,
            format!("role \"{role}\" may not create temporary tables"),
            "GRANT TEMPORARY ON DATABASE … TO that role.",
        ));
    }
    Ok(())
}

/// Queries whose rows are findings each: finding, remedy.
async fn listed(shard: &mut ShardConnection, subject: &str, found: &mut Vec<Finding>) -> Result<(), PgError> {
    for sql in LISTED {
        let listed = rows(&mut shard.connection, sql).await.map_err(|error| shard.error(&error))?;
        found.extend(listed.into_iter().map(|(finding, remedy)| Finding::new(subject, finding, remedy)));
    }
    Ok(())
}

const LISTED: [&str; 4] = [
    // Their subscribers would get, and fail on, tables of the schema shardgate.
    "SELECT format('publication \"%s\" is for all tables, those of schema \"shardgate\" included', pubname),
            'Let it list its tables or schemas.' FROM pg_publication WHERE puballtables ORDER BY pubname",
    // The proxy reads SQL with these at their defaults.
    "SELECT format('%s has %s, under which statements mean something else than the proxy reads in them',
                   CASE WHEN s.setrole = 0 THEN 'the database' ELSE format('role \"%s\"', pg_get_userbyid(s.setrole)) END, setting),
            'ALTER ROLE or DATABASE … RESET it.'
     FROM pg_db_role_setting s, unnest(s.setconfig) setting
     WHERE s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
       AND setting IN ('standard_conforming_strings=off', 'transform_null_equals=on') ORDER BY 1",
    "SELECT format('%s is %s here, under which statements mean something else than the proxy reads in them', name, reset_val),
            'Set it to its default.' FROM pg_settings
     WHERE (name, reset_val) IN (('standard_conforming_strings', 'off'), ('transform_null_equals', 'on')) ORDER BY 1",
    "SELECT format('writes to table %s are refused by a declaration that did not end', tgrelid::regclass),
            format('Call the function again, or: DROP TRIGGER %I ON %s.', tgname, tgrelid::regclass)
     FROM pg_trigger WHERE tgname = 'shardgate_declaring' ORDER BY 1",
];

pub(super) async fn facts(shard: &mut ShardConnection) -> Result<Facts, PgError> {
    let identity = support::identity(shard).await?;
    let database: String = shard
        .value(
            "SELECT concat_ws(', ', pg_encoding_to_char(encoding), datcollate, datctype,
                    coalesce(to_jsonb(d)->>'datlocale', to_jsonb(d)->>'daticulocale'), 'collation version ' || pg_database_collation_actual_version(oid))
             FROM pg_database d WHERE datname = current_database()",
        )
        .await?;
    Ok(Facts { catalog: Arc::new(read_catalog(shard).await?), identity, database, server_version: shard.server_version })
}
