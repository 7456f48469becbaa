-- A table that was dropped on the shards leaves the map also where moves of its group are planned. These have fixed nothing: they move
-- the tables that are left, and end with the last one.

CREATE OR REPLACE FUNCTION shardgate_map.drop_table(actor text, schema_name text, table_name text) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    dropped record;
    moving record;
BEGIN
    PERFORM shardgate_map.lock_map();
    SELECT t.group_id INTO dropped FROM shardgate_map.declared_table t
    WHERE t.schema_name = drop_table.schema_name AND t.table_name = drop_table.table_name;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT * INTO moving FROM shardgate_map.running_moves() m WHERE m.group_id = dropped.group_id AND m.state <> 'planned' LIMIT 1;
    IF FOUND THEN
        PERFORM shardgate_map.refuse_if_moving(array[moving.partition_id]);
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'drop_table',
        jsonb_build_object('table', jsonb_build_array(schema_name, table_name)));
    PERFORM shardgate_map.forget_table(schema_name, table_name);
    UPDATE shardgate_map.move m SET state = 'aborted', ended_at = clock_timestamp(), driver = NULL, asked = NULL,
        error = format('the last of its tables, %I.%I, was dropped', schema_name, table_name)
    WHERE m.group_id = dropped.group_id AND m.state = 'planned'
      AND NOT EXISTS (SELECT FROM shardgate_map.declared_table t WHERE t.group_id = dropped.group_id);
    RETURN true;
END $$;
