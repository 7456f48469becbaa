//! What Shardgate keeps on each shard, in the schema `shardgate`: who the shard is, and what commits over several shards need.
//!
//! * `identity`: one row with a uuid made here; the same database reached under two urls, or a restored copy, shows by it.
//! * `decisions`, `applied`, `decide`, `hold_decisions`, `joined`, `resolve` and the role `shardgate_2pc`: the decision of a transaction over
//!   several shards is a row on one of them, prepared transactions are owned by a role without rights so that any proxy may
//!   finish them, and only who knows a transaction's secret may decide it. `decide` holds an advisory lock until its commit is
//!   over, by which `hold_decisions` keeps decisions away for a moment (`crate::execute::barrier`).
//! * `next_id` and its blocks: numbers of sequences of the whole cluster ([`numbers`]).
//! * `residue` and its functions: which rows lie here and are not owned ([`residues`]).
//! * `backend` and `shut_out`: whose connections there are, and which proxies get none ([`backends`]).
//! * `shards`, `tables` and the other relations that clients read: their columns, for the catalogue ([`relations`]).
//! * `refuse_while_declaring`: the gate's trigger function ([`super::gate`]).
//!
//! Idempotent. The tables and functions are needed and their failure is an error; the role needs CREATEROLE, which a managed
//! service may not give: without it everything but writes over several shards works, and `shardgate check` says so.

mod backends;
mod numbers;
mod relations;
mod residues;

use super::shard_connection::ShardConnection;
use crate::catalog::{quoted_identifier, quoted_literal};
use crate::error::{PgError, SqlState};

/// Makes what is missing and returns the shard's uuid.
pub(super) async fn ensure(shard: &mut ShardConnection, client_roles: &[String]) -> Result<String, PgError> {
    shard
        .run(&format!("{OBJECTS}{}{}{}{}{COMMIT}", numbers::OBJECTS, residues::OBJECTS, backends::OBJECTS, relations::OBJECTS))
        .await
        .map_err(|error| explain(&shard.name, error))?;
    ensure_role(shard, client_roles).await?;
    shard.value("SELECT shard::text FROM shardgate.identity").await
}

/// The uuid that an earlier [`ensure`] gave; `None`: it never ran here.
pub(super) async fn identity(shard: &mut ShardConnection) -> Result<Option<String>, PgError> {
    let has_table: bool = shard.value("SELECT to_regclass('shardgate.identity') IS NOT NULL").await?;
    if !has_table {
        return Ok(None);
    }
    shard.value::<Option<String>>("SELECT (SELECT shard::text FROM shardgate.identity)").await
}

/// Makes what a shard lacks that was registered by an earlier version.
pub(super) async fn complete(shard: &mut ShardConnection, client_roles: &[String]) -> Result<(), PgError> {
    match shard.value::<bool>(IS_COMPLETE).await? {
        true => Ok(()),
        false => ensure(shard, client_roles).await.map(drop),
    }
}

/// What a transaction that writes here and elsewhere depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitSupport {
    /// The shard's uuid.
    pub uuid: String,
    pub max_prepared_transactions: i64,
    /// The same for all databases of a server, which share what it can prepare.
    pub server: String,
    /// The user may take the role that owns prepared transactions.
    pub has_role: bool,
}

/// Makes what is missing, for a shard that was registered by an earlier version, and says what `user` can do there.
pub(super) async fn for_commits(
    shard: &mut ShardConnection,
    client_roles: &[String],
    user: &str,
) -> Result<CommitSupport, PgError> {
    if !shard.value::<bool>(IS_COMPLETE).await? {
        ensure(shard, client_roles).await?;
        // Whoever decides by an earlier version of the function right now takes no part in a snapshot barrier.
        shard.run("BEGIN; LOCK TABLE shardgate.decisions IN SHARE MODE; COMMIT").await?;
    }
    // A member without the option to SET it (PostgreSQL 16) would be refused at PREPARE.
    let privilege = if shard.server_version >= 160_000 { "SET" } else { "MEMBER" };
    let has_role = format!(
        "SELECT coalesce((SELECT pg_has_role(u.oid, r.oid, '{privilege}') FROM pg_roles u, pg_roles r
                          WHERE u.rolname = {} AND r.rolname = 'shardgate_2pc'), false)",
        quoted_literal(user)
    );
    let uuid = shard.value("SELECT shard::text FROM shardgate.identity").await?;
    let prepared = "SELECT current_setting('max_prepared_transactions')::bigint";
    Ok(CommitSupport {
        uuid,
        max_prepared_transactions: shard.value(prepared).await?,
        server: shard.value(SERVER).await?,
        has_role: shard.value(&has_role).await?,
    })
}

/// No two servers of one port have been started in the same microsecond.
const SERVER: &str = "SELECT extract(epoch FROM pg_postmaster_start_time())::text || ' ' || current_setting('port')";

const IS_COMPLETE: &str = "SELECT to_regclass('shardgate.identity') IS NOT NULL AND to_regclass('shardgate.decisions') IS NOT NULL
     AND to_regclass('shardgate.applied') IS NOT NULL AND to_regprocedure('shardgate.decide(text, text)') IS NOT NULL
     AND to_regprocedure('shardgate.joined(text, text)') IS NOT NULL AND to_regprocedure('shardgate.resolve(text, uuid)') IS NOT NULL
     AND to_regprocedure('shardgate.hold_decisions()') IS NOT NULL
     AND EXISTS (SELECT FROM pg_catalog.pg_proc WHERE oid = to_regprocedure('shardgate.decide(text, text)')
         AND strpos(prosrc, 'pg_advisory_xact_lock_shared') > 0)
     AND to_regprocedure('shardgate.use_up(regclass)') IS NOT NULL AND to_regprocedure('shardgate.unique_id()') IS NOT NULL
     AND to_regprocedure('shardgate.number_added_column(regclass, name, bool, text)') IS NOT NULL
     AND to_regprocedure('shardgate.draw_number(regclass)') IS NOT NULL
     AND to_regprocedure('shardgate.hide_numbers(regclass, bigint)') IS NOT NULL
     AND to_regprocedure('shardgate.residue_hashes(int)') IS NOT NULL AND to_regprocedure('shardgate.residue_keys(int)') IS NOT NULL
     AND to_regprocedure('shardgate.residue_ranges(int)') IS NOT NULL AND to_regprocedure('shardgate.residue_other_keys(int)') IS NOT NULL
     AND to_regprocedure('shardgate.is_shut_out(bigint, bigint)') IS NOT NULL AND to_regclass('shardgate.clients') IS NOT NULL
     AND EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = to_regclass('shardgate.proxies') AND attname = 'version')
     AND EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'shardgate_2pc')";

fn explain(name: &str, error: PgError) -> PgError {
    if error.code != SqlState::INSUFFICIENT_PRIVILEGE {
        return error;
    }
    PgError::new(
        SqlState::INSUFFICIENT_PRIVILEGE,
        format!("the user of shard \"{name}\" may not create the schema \"shardgate\" there"),
    )
    .with_detail(format!("The shard says: {}.", error.message))
    .with_hint("GRANT CREATE ON DATABASE … TO that user, or give the url of the database's owner.")
}

// One transaction, one at a time. gtx = sg:<cluster>:<decider's uuid>:<incarnation>:<n>:<sha256 of the secret, hexadecimal>.
const OBJECTS: &str = r#"
BEGIN;
SELECT pg_advisory_xact_lock(hashtextextended('shardgate support objects', 0));
CREATE SCHEMA IF NOT EXISTS shardgate;
CREATE TABLE IF NOT EXISTS shardgate.identity (
    one bool PRIMARY KEY DEFAULT true CHECK (one),
    shard uuid NOT NULL DEFAULT gen_random_uuid());
INSERT INTO shardgate.identity DEFAULT VALUES ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS shardgate.decisions (
    gtx text COLLATE "C" PRIMARY KEY,
    outcome text NOT NULL CHECK (outcome IN ('committed', 'aborted')),
    at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE IF NOT EXISTS shardgate.applied (
    gtx text COLLATE "C" PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX IF NOT EXISTS decisions_at ON shardgate.decisions (at);
CREATE INDEX IF NOT EXISTS applied_at ON shardgate.applied (at);
CREATE OR REPLACE FUNCTION shardgate.require_secret(gtx text, secret text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF secret IS NULL OR encode(sha256(convert_to(secret, 'UTF8')), 'hex') IS DISTINCT FROM split_part(gtx, ':', 6) THEN
        RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'not your transaction';
    END IF;
END $$;
CREATE OR REPLACE FUNCTION shardgate.decide(gtx text, secret text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = 0 AS $$
BEGIN
    PERFORM shardgate.require_secret(gtx, secret);
    -- Until the commit is over. hold_decisions() takes it alone, for a moment; the client's lock_timeout is not meant for that.
    -- The key: "shrd" and "barr" as numbers.
    PERFORM pg_advisory_xact_lock_shared(1936224868, 1650553458);
    -- A plain INSERT: any error is an abort.
    INSERT INTO shardgate.decisions (gtx, outcome) VALUES (decide.gtx, 'committed');
END $$;
-- No decision until the transaction ends, and none is in progress. False: another version of decide() is here, which does not wait.
CREATE OR REPLACE FUNCTION shardgate.hold_decisions() RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1936224868, 1650553458);
    RETURN EXISTS (SELECT FROM pg_proc WHERE oid = to_regprocedure('shardgate.decide(text, text)')
                   AND strpos(prosrc, 'pg_advisory_xact_lock_shared') > 0);
END $$;
REVOKE EXECUTE ON FUNCTION shardgate.hold_decisions() FROM PUBLIC;
CREATE OR REPLACE FUNCTION shardgate.joined(gtx text, secret text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate.require_secret(gtx, secret);
    INSERT INTO shardgate.applied (gtx) VALUES (joined.gtx);
END $$;
CREATE OR REPLACE FUNCTION shardgate.resolve(g text, me uuid) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    stored text;
BEGIN
    IF pg_is_in_recovery() OR NOT EXISTS (SELECT FROM shardgate.identity WHERE shard = me) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'wrong shard';
    END IF;
    -- Waits for a decider in progress.
    INSERT INTO shardgate.decisions (gtx, outcome) VALUES (g, 'aborted') ON CONFLICT DO NOTHING;
    -- A replicated write on the same row, so that an old decision is confirmed too.
    UPDATE shardgate.decisions SET at = clock_timestamp() WHERE gtx = g RETURNING outcome INTO STRICT stored;
    RETURN stored;
END $$;
REVOKE EXECUTE ON FUNCTION shardgate.resolve(text, uuid) FROM PUBLIC;
CREATE OR REPLACE FUNCTION shardgate.refuse_while_declaring() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = format('table "%s" is being declared to the shard map', TG_TABLE_NAME),
        DETAIL = 'The statement was planned before the declaration. Nothing was changed.',
        HINT = 'Repeat the transaction.';
END $$;
-- Shown by every connection before it is used, whoever is logged in.
GRANT SELECT ON shardgate.identity TO PUBLIC;
GRANT USAGE ON SCHEMA shardgate TO PUBLIC;"#;
const COMMIT: &str = "COMMIT;";

/// Membership lets a session take the role for PREPARE TRANSACTION and for finishing what another session prepared.
async fn ensure_role(shard: &mut ShardConnection, client_roles: &[String]) -> Result<(), PgError> {
    if let Err(error) = shard.run(ROLE).await {
        // Roles belong to the server: another database of it may be getting the role at this moment.
        let is_made_elsewhere = matches!(&error.code.0, b"42710" | b"23505");
        if !is_made_elsewhere {
            return tolerate(&shard.name, "shardgate_2pc", error);
        }
    }
    let with_set = if shard.server_version >= 160_000 { " WITH INHERIT FALSE, SET TRUE" } else { "" };
    let mut grantees = vec!["CURRENT_USER".to_owned()];
    for role in client_roles {
        let exists = format!("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = {})", quoted_literal(role));
        if shard.value(&exists).await? {
            grantees.push(quoted_identifier(role));
        }
    }
    for grantee in grantees {
        // A superuser needs no membership, and granting a role to a bootstrap superuser is harmless.
        if let Err(error) = shard.run(&format!("GRANT shardgate_2pc TO {grantee}{with_set}")).await {
            tolerate(&shard.name, &grantee, error)?;
        }
    }
    Ok(())
}

const ROLE: &str = "DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'shardgate_2pc') THEN CREATE ROLE shardgate_2pc NOLOGIN; END IF;
END $$";

/// Missing rights are told, not fatal; everything else is.
fn tolerate(shard: &str, role: &str, error: PgError) -> Result<(), PgError> {
    if error.code != SqlState::INSUFFICIENT_PRIVILEGE {
        return Err(error);
    }
    tracing::warn!(shard, role, reason = %error.message, "role for transactions over several shards not set up");
    Ok(())
}
