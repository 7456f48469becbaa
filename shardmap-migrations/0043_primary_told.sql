-- As before, and tells the primary as it is known here now, which the proxy that was late did not know; NULL: the shard is gone.
DROP FUNCTION shardgate_map.note_primary(text, int, bigint, int);

CREATE FUNCTION shardgate_map.note_primary(actor text, shard_id int, system_identifier bigint, timeline int)
RETURNS shardgate_map.shard_primary
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known shardgate_map.shard_primary;
    found_shard shardgate_map.shard;
    now_counter bigint;
BEGIN
    PERFORM shardgate_map.lock_map();
    SELECT * INTO found_shard FROM shardgate_map.shard s WHERE s.shard_id = note_primary.shard_id;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT * INTO known FROM shardgate_map.shard_primary p WHERE p.shard_id = note_primary.shard_id;
    IF NOT FOUND THEN
        INSERT INTO shardgate_map.shard_primary AS p (shard_id, system_identifier, timeline)
        VALUES (note_primary.shard_id, note_primary.system_identifier, note_primary.timeline)
        RETURNING p.* INTO known;
        RETURN known;
    END IF;
    IF known.system_identifier <> note_primary.system_identifier OR known.timeline >= note_primary.timeline THEN
        RETURN known;
    END IF;
    now_counter := shardgate_map.begin_change(actor, 'note_primary', jsonb_build_object('name', found_shard.name, 'timeline', note_primary.timeline));
    UPDATE shardgate_map.shard_primary p SET timeline = note_primary.timeline, epoch = now_counter
    WHERE p.shard_id = note_primary.shard_id RETURNING p.* INTO known;
    RETURN known;
END $$;
