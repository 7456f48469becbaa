-- Tables that are sharded become tables of the home shard again. Their rows are there already: this changes the map alone.

CREATE FUNCTION shardgate_map.forget_table(schema_name text, table_name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    forgotten int;
BEGIN
    DELETE FROM shardgate_map.declared_table t
    WHERE t.schema_name = forget_table.schema_name AND t.table_name = forget_table.table_name
    RETURNING t.group_id INTO forgotten;
    IF NOT EXISTS (SELECT FROM shardgate_map.declared_table t WHERE t.group_id = forgotten) THEN
        -- The group first: its one record of removal stands for all that was in it.
        DELETE FROM shardgate_map.colocation_group g WHERE g.group_id = forgotten;
        DELETE FROM shardgate_map.lookup_key k WHERE k.group_id = forgotten;
        DELETE FROM shardgate_map.partition p WHERE p.group_id = forgotten;
    END IF;
END $$;

-- After DROP TABLE. A group without tables goes with its last one. Returns whether the table was declared.
CREATE OR REPLACE FUNCTION shardgate_map.drop_table(actor text, schema_name text, table_name text) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    dropped record;
BEGIN
    PERFORM shardgate_map.lock_map();
    SELECT t.group_id INTO dropped FROM shardgate_map.declared_table t
    WHERE t.schema_name = drop_table.schema_name AND t.table_name = drop_table.table_name;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM shardgate_map.refuse_if_moving(array(
        SELECT p.partition_id FROM shardgate_map.partition p WHERE p.group_id = dropped.group_id));
    PERFORM shardgate_map.begin_change(actor, 'drop_table',
        jsonb_build_object('table', jsonb_build_array(schema_name, table_name)));
    PERFORM shardgate_map.forget_table(schema_name, table_name);
    RETURN true;
END $$;

-- Refused where a partition is not on the home shard, or moves.
CREATE FUNCTION shardgate_map.undistribute_tables(planned jsonb, actor text, schema_names text[], table_names text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    leaving record;
BEGIN
    PERFORM shardgate_map.lock_map();
    PERFORM shardgate_map.require_plan(planned);
    PERFORM shardgate_map.begin_change(actor, 'undistribute_tables', jsonb_build_object('tables', array_to_json(array(
        SELECT jsonb_build_array(n.schema_name, n.table_name) FROM unnest(schema_names, table_names) n (schema_name, table_name)))));
    FOR leaving IN
        SELECT t.schema_name, t.table_name, t.group_id
        FROM unnest(schema_names, table_names) n (schema_name, table_name) JOIN shardgate_map.declared_table t USING (schema_name, table_name)
    LOOP
        PERFORM shardgate_map.refuse_if_moving(array(
            SELECT p.partition_id FROM shardgate_map.partition p WHERE p.group_id = leaving.group_id));
        IF EXISTS (SELECT FROM shardgate_map.partition p JOIN shardgate_map.shard s USING (shard_id)
                   WHERE p.group_id = leaving.group_id AND NOT s.is_home) THEN
            RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'the partitions of the table were changed meanwhile',
                DETAIL = 'The map was not changed.', HINT = 'Call the function again.';
        END IF;
        PERFORM shardgate_map.forget_table(leaving.schema_name, leaving.table_name);
        INSERT INTO shardgate_map.home_table (schema_name, table_name) VALUES (leaving.schema_name, leaving.table_name)
        ON CONFLICT DO NOTHING;
    END LOOP;
END $$;
