-- Functions of the schema "shardgate" in FROM, beside its relations. The proxy evaluates them before the statement runs here, and sets
-- the rows of each call with its arguments, as JSON.

CREATE FUNCTION shardgate_map.rows_of_call(function_name text, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    given jsonb := coalesce(nullif(current_setting('shardgate_proxy.' || function_name, true), ''), '[]');
    found jsonb;
BEGIN
    SELECT c -> 'rows' INTO found FROM jsonb_array_elements(given) c WHERE c -> 'arguments' = rows_of_call.arguments;
    IF found IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = format('shardgate.%s() is not evaluated in this place', function_name),
            DETAIL = 'The proxy evaluates it before the statement runs, by arguments that are constants or parameters.',
            HINT = format('Run SELECT * FROM shardgate.%s(...) first and use its result.', function_name);
    END IF;
    RETURN found;
END $$;

CREATE FUNCTION shardgate.locate(table_name text, VARIADIC key text[], OUT partition_id int, OUT shard text, OUT epoch bigint)
RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.partition_id, r.shard, r.epoch
    FROM jsonb_to_recordset(shardgate_map.rows_of_call('locate', jsonb_build_array(table_name, to_jsonb(key))))
        AS r (partition_id int, shard text, epoch bigint)
$$;
