-- Sharded tables get another key or another group by one change. Their rows are all on the home shard, by the old partitions and by the
-- new ones. tables and the rest as distribute_tables() takes it.

CREATE FUNCTION shardgate_map.redistribute_tables(planned jsonb, actor text, tables jsonb, key_types text[], strategy text, colocate_with int,
                                                  lows bytea[], low_texts text[], shard_names text[], default_shard text) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    leaving record;
BEGIN
    PERFORM shardgate_map.lock_map();
    PERFORM shardgate_map.require_plan(planned);
    IF EXISTS (SELECT FROM shardgate_map.partition p
               WHERE p.group_id = colocate_with AND p.epoch > (planned ->> 'counter')::bigint) THEN
        RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'the partitions of the colocation group were changed meanwhile',
            DETAIL = 'The map was not changed.', HINT = 'Call the function again.';
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'redistribute_tables', jsonb_build_object('tables', array_to_json(array(
        SELECT jsonb_build_array(n.value ->> 'schema', n.value ->> 'name') FROM jsonb_array_elements(tables) n))));
    FOR leaving IN
        SELECT t.schema_name, t.table_name, t.group_id
        FROM jsonb_array_elements(tables) n
        JOIN shardgate_map.declared_table t ON t.schema_name = n.value ->> 'schema' AND t.table_name = n.value ->> 'name'
    LOOP
        PERFORM shardgate_map.refuse_if_moving(array(
            SELECT p.partition_id FROM shardgate_map.partition p WHERE p.group_id = leaving.group_id));
        IF EXISTS (SELECT FROM shardgate_map.partition p JOIN shardgate_map.shard s USING (shard_id)
                   WHERE p.group_id = leaving.group_id AND NOT s.is_home) THEN
            RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'the partitions of the table were changed meanwhile',
                DETAIL = 'The map was not changed.', HINT = 'Call the function again.';
        END IF;
        PERFORM shardgate_map.forget_table(leaving.schema_name, leaving.table_name);
    END LOOP;
    -- The plan was looked at; what has changed since is this.
    RETURN shardgate_map.distribute_tables(NULL, actor, tables, key_types, strategy, colocate_with, lows, low_texts, shard_names, default_shard);
END $$;
