-- Every function that answers with a value or with rows may be selected from, as locate() and plan_tables(): the proxy calls it before
-- the statement runs here. Parameters and defaults are those of the proxy's functions.

CREATE FUNCTION shardgate_map.value_of_call(function_name text, arguments jsonb) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT shardgate_map.rows_of_call(function_name, arguments) -> 0 ->> function_name
$$;

CREATE FUNCTION shardgate_map.moves_of_call(function_name text, arguments jsonb)
RETURNS TABLE (move_id int, source text, target text, partitions int, bytes bigint, expected_seconds float8)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.move_id, r.source, r.target, r.partitions, r.bytes, r.expected_seconds
    FROM jsonb_to_recordset(shardgate_map.rows_of_call(function_name, arguments))
        AS r (move_id int, source text, target text, partitions int, bytes bigint, expected_seconds float8)
$$;

CREATE FUNCTION shardgate.rebalance(table_name text DEFAULT NULL, by text DEFAULT 'bytes', threshold float8 DEFAULT 0.1,
                                    drain text DEFAULT NULL, dry_run bool DEFAULT false)
RETURNS TABLE (move_id int, source text, target text, partitions int, bytes bigint, expected_seconds float8)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM shardgate_map.moves_of_call('rebalance', jsonb_build_array(table_name, by, threshold, drain, dry_run))
$$;

CREATE FUNCTION shardgate.redistribute_table(table_name text, dry_run bool DEFAULT false, key text DEFAULT NULL, strategy text DEFAULT NULL,
                                             colocate_with text DEFAULT NULL, planned_shards int DEFAULT NULL,
                                             with_colocated bool DEFAULT false)
RETURNS TABLE (move_id int, source text, target text, partitions int, bytes bigint, expected_seconds float8)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM shardgate_map.moves_of_call('redistribute_table',
        jsonb_build_array(table_name, dry_run, key, strategy, colocate_with, planned_shards, with_colocated))
$$;

CREATE FUNCTION shardgate.undistribute_table(table_name text, cascade_via_foreign_keys bool DEFAULT false, dry_run bool DEFAULT false,
                                             with_colocated bool DEFAULT false)
RETURNS TABLE (move_id int, source text, target text, partitions int, bytes bigint, expected_seconds float8)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM shardgate_map.moves_of_call('undistribute_table',
        jsonb_build_array(table_name, cascade_via_foreign_keys, dry_run, with_colocated))
$$;

CREATE FUNCTION shardgate.map_key(table_name text, key text, shard text) RETURNS int
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT shardgate_map.value_of_call('map_key', jsonb_build_array(table_name, key, shard))::int
$$;

CREATE FUNCTION shardgate.map_keys(table_name text, keys text[], shard text) RETURNS int
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT shardgate_map.value_of_call('map_keys', jsonb_build_array(table_name, to_jsonb(keys), shard))::int
$$;

CREATE FUNCTION shardgate.set_default_shard(table_name text, shard text) RETURNS int
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT shardgate_map.value_of_call('set_default_shard', jsonb_build_array(table_name, shard))::int
$$;

CREATE FUNCTION shardgate.split_partition(partition int, at text, shard text DEFAULT NULL) RETURNS int
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT shardgate_map.value_of_call('split_partition', jsonb_build_array(partition, at, shard))::int
$$;

CREATE FUNCTION shardgate.merge_partitions(a int, b int) RETURNS int
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT shardgate_map.value_of_call('merge_partitions', jsonb_build_array(a, b))::int
$$;

CREATE FUNCTION shardgate.move_partition(partition int, to_shard text) RETURNS int
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT shardgate_map.value_of_call('move_partition', jsonb_build_array(partition, to_shard))::int
$$;

CREATE FUNCTION shardgate.move_partitions(partitions int[], to_shard text) RETURNS int
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- The proxy gives the elements as texts.
    SELECT shardgate_map.value_of_call('move_partitions', jsonb_build_array(to_jsonb(partitions::text[]), to_shard))::int
$$;

CREATE FUNCTION shardgate.isolate_key(table_name text, key text, shard text) RETURNS int
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT shardgate_map.value_of_call('isolate_key', jsonb_build_array(table_name, key, shard))::int
$$;

CREATE FUNCTION shardgate.unique_id() RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT shardgate_map.value_of_call('unique_id', '[]')::bigint
$$;
