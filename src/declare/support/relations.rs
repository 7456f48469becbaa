//! What the catalogue of a shard says of the relations of the schema `shardgate` that clients read.
//!
//! Their rows are in the map database and in the proxies, which answer statements that name them. Programs that ask the catalogue for
//! their columns (psql's `\d shardgate.shards`, an editor, `to_regclass()`) ask the home shard, which has views of the same columns. A
//! statement that reaches one is an error: it has no rows to show.

/// Idempotent; part of the support objects' transaction. Where the map database is the shard's own, the views are the map's.
pub(super) const OBJECTS: &str = r#"
CREATE OR REPLACE FUNCTION shardgate.ask_a_proxy(relation text) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = format('relation "shardgate.%s" has no rows on a shard', relation),
        HINT = 'Read it through a proxy, by a statement that names it.';
END $$;
DO $views$ BEGIN IF to_regnamespace('shardgate_map') IS NULL THEN
    CREATE OR REPLACE VIEW shardgate.shards AS
        SELECT NULL::text AS name, NULL::text AS region, NULL::float8 AS capacity, NULL::text AS state, NULL::bool AS is_home,
               NULL::bigint AS partitions, NULL::int AS timeline WHERE shardgate.ask_a_proxy('shards');
    CREATE OR REPLACE VIEW shardgate.tables AS
        SELECT NULL::text AS table_name, NULL::text AS kind, NULL::text AS strategy, NULL::text AS key, NULL::int AS colocation_group,
               NULL::text AS schema_name WHERE shardgate.ask_a_proxy('tables');
    CREATE OR REPLACE VIEW shardgate.partitions AS
        SELECT NULL::int AS partition_id, NULL::int AS colocation_group, NULL::text AS strategy, NULL::text AS low, NULL::text AS high,
               NULL::text AS shard, NULL::text AS state, NULL::bigint AS epoch WHERE shardgate.ask_a_proxy('partitions');
    CREATE OR REPLACE VIEW shardgate.lookup_keys AS
        SELECT NULL::int AS colocation_group, NULL::text AS key, NULL::int AS partition_id WHERE shardgate.ask_a_proxy('lookup_keys');
    CREATE OR REPLACE VIEW shardgate.moves AS
        SELECT NULL::int AS move_id, NULL::int AS partition_id, NULL::text AS source, NULL::text AS target, NULL::text AS state,
               NULL::bigint AS rows_copied, NULL::bigint AS bytes_copied, NULL::bigint AS lag_bytes, NULL::float8 AS pause_ms,
               NULL::timestamptz AS started_at, NULL::text AS error, NULL::bigint AS bytes_expected, NULL::float8 AS expected_pause_ms,
               NULL::int AS attempts, NULL::text AS asked, NULL::timestamptz AS switched_at, NULL::timestamptz AS ended_at,
               NULL::timestamptz AS finish_at, NULL::bool AS can_roll_back WHERE shardgate.ask_a_proxy('moves');
    CREATE OR REPLACE VIEW shardgate.proxies AS
        SELECT NULL::bigint AS proxy_id, NULL::text AS address, NULL::bigint AS epoch, NULL::timestamptz AS last_seen,
               NULL::bigint AS clients, NULL::text AS version WHERE shardgate.ask_a_proxy('proxies');
    CREATE OR REPLACE VIEW shardgate.transactions AS
        SELECT NULL::text AS gid, NULL::text AS state, NULL::text[] AS participants, NULL::interval AS age
        WHERE shardgate.ask_a_proxy('transactions');
    CREATE OR REPLACE VIEW shardgate.history AS
        SELECT NULL::bigint AS epoch, NULL::timestamptz AS changed_at, NULL::text AS actor, NULL::text AS change,
               NULL::jsonb AS arguments WHERE shardgate.ask_a_proxy('history');
    CREATE OR REPLACE VIEW shardgate.time_partitions AS
        SELECT NULL::int AS colocation_group, NULL::text AS every, NULL::int AS ahead, NULL::text AS on_shards, NULL::int AS made,
               NULL::text AS error WHERE shardgate.ask_a_proxy('time_partitions');
    CREATE OR REPLACE VIEW shardgate.pools AS
        SELECT NULL::text AS shard, NULL::text AS "user", NULL::bigint AS active, NULL::bigint AS idle, NULL::bigint AS waiting
        WHERE shardgate.ask_a_proxy('pools');
    CREATE OR REPLACE VIEW shardgate.clients AS
        SELECT NULL::text AS client, NULL::text AS "user", NULL::text AS state, NULL::text[] AS shards, NULL::text AS pinned_by
        WHERE shardgate.ask_a_proxy('clients');
    GRANT SELECT ON shardgate.shards, shardgate.tables, shardgate.partitions, shardgate.lookup_keys, shardgate.moves, shardgate.proxies,
        shardgate.transactions, shardgate.history, shardgate.time_partitions, shardgate.pools, shardgate.clients TO PUBLIC;
END IF; END $views$;
"#;
