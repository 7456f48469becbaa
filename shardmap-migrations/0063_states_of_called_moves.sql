-- The moves that a function starts also say how far they are.

DROP FUNCTION shardgate.rebalance, shardgate.redistribute_table, shardgate.undistribute_table, shardgate_map.moves_of_call;

CREATE FUNCTION shardgate_map.moves_of_call(function_name text, arguments jsonb)
RETURNS TABLE (move_id int, source text, target text, partitions int, rows bigint, bytes bigint, expected_seconds float8, state text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.move_id, r.source, r.target, r.partitions, r.rows, r.bytes, r.expected_seconds, r.state
    FROM jsonb_to_recordset(shardgate_map.rows_of_call(function_name, arguments))
        AS r (move_id int, source text, target text, partitions int, rows bigint, bytes bigint, expected_seconds float8, state text)
$$;

CREATE FUNCTION shardgate.rebalance(table_name text DEFAULT NULL, by text DEFAULT 'bytes', threshold float8 DEFAULT 0.1,
                                    drain text DEFAULT NULL, dry_run bool DEFAULT false)
RETURNS TABLE (move_id int, source text, target text, partitions int, rows bigint, bytes bigint, expected_seconds float8, state text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM shardgate_map.moves_of_call('rebalance', jsonb_build_array(table_name, by, threshold, drain, dry_run))
$$;

CREATE FUNCTION shardgate.redistribute_table(table_name text, dry_run bool DEFAULT false, key text DEFAULT NULL, strategy text DEFAULT NULL,
                                             colocate_with text DEFAULT NULL, planned_shards int DEFAULT NULL,
                                             with_colocated bool DEFAULT false)
RETURNS TABLE (move_id int, source text, target text, partitions int, rows bigint, bytes bigint, expected_seconds float8, state text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM shardgate_map.moves_of_call('redistribute_table',
        jsonb_build_array(table_name, dry_run, key, strategy, colocate_with, planned_shards, with_colocated))
$$;

CREATE FUNCTION shardgate.undistribute_table(table_name text, cascade_via_foreign_keys bool DEFAULT false, dry_run bool DEFAULT false,
                                             with_colocated bool DEFAULT false)
RETURNS TABLE (move_id int, source text, target text, partitions int, rows bigint, bytes bigint, expected_seconds float8, state text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM shardgate_map.moves_of_call('undistribute_table',
        jsonb_build_array(table_name, cascade_via_foreign_keys, dry_run, with_colocated))
$$;
