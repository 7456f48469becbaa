-- Several tables become sharded by one change, so that none of them is ever sharded without the others.

DROP FUNCTION shardgate_map.distribute_table(jsonb, text, text, text, jsonb, text, text[], text, int, bytea[], text[], text[], text);

-- All in the group colocate_with, or in a new one. tables: [{"schema", "name", "key", "key_text"}]; the rest as distribute_table() takes it.
CREATE FUNCTION shardgate_map.distribute_tables(planned jsonb, actor text, tables jsonb, key_types text[], strategy text, colocate_with int,
                                                lows bytea[], low_texts text[], shard_names text[], default_shard text) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    new_table jsonb;
    target_group int := colocate_with;
BEGIN
    PERFORM shardgate_map.lock_map();
    PERFORM shardgate_map.require_plan(planned);
    -- Whether the tables are empty enough for the group was judged by these.
    IF EXISTS (SELECT FROM shardgate_map.partition p
               WHERE p.group_id = colocate_with AND p.epoch > (planned ->> 'counter')::bigint) THEN
        RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'the partitions of the colocation group were changed meanwhile',
            DETAIL = 'The map was not changed.', HINT = 'Call the function again.';
    END IF;
    FOR new_table IN SELECT t.value FROM jsonb_array_elements(tables) WITH ORDINALITY t ORDER BY t.ordinality LOOP
        IF target_group IS NULL THEN
            target_group := shardgate_map.distribute_table(actor, new_table ->> 'schema', new_table ->> 'name', new_table -> 'key',
                new_table ->> 'key_text', key_types, strategy, NULL, lows, low_texts, shard_names, default_shard);
        ELSE
            PERFORM shardgate_map.distribute_table(actor, new_table ->> 'schema', new_table ->> 'name', new_table -> 'key',
                new_table ->> 'key_text', key_types, strategy, target_group, NULL, NULL, NULL, NULL);
        END IF;
    END LOOP;
    RETURN target_group;
END $$;
