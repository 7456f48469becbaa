-- Columns that number rows, added to tables that are distributed already: their sequences are declared before they are committed.

-- A sequence that the caller's transaction has made on the shards, so that nobody has a number of it: whatever is left under its
-- name goes. Returns its generation.
CREATE FUNCTION shardgate_map.declare_new_sequence(actor text, schema_name text, sequence_name text, increment bigint, minimum bigint,
                                                   maximum bigint, next_number numeric) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    taken bigint;
BEGIN
    PERFORM shardgate_map.lock_map();
    taken := shardgate_map.begin_change(actor, 'declare_new_sequence', jsonb_build_object(
        'sequence', jsonb_build_array(schema_name, sequence_name), 'increment', increment, 'next_number', next_number));
    DELETE FROM shardgate_map.declared_sequence d
    WHERE d.schema_name = declare_new_sequence.schema_name AND d.sequence_name = declare_new_sequence.sequence_name;
    INSERT INTO shardgate_map.declared_sequence (schema_name, sequence_name, increment, minimum, maximum, generation)
    VALUES (declare_new_sequence.schema_name, declare_new_sequence.sequence_name, declare_new_sequence.increment,
            declare_new_sequence.minimum, declare_new_sequence.maximum, taken);
    INSERT INTO shardgate_map.sequence_counter (schema_name, sequence_name, next_number, incarnation)
    SELECT declare_new_sequence.schema_name, declare_new_sequence.sequence_name, declare_new_sequence.next_number, c.incarnation
    FROM shardgate_map.cluster c;
    RETURN taken;
END $$;

DROP FUNCTION shardgate_map.drop_sequence(text, text, text);

-- As before, and not when it was set or made anew since the generation that the caller knows. Returns whether it was dropped.
CREATE FUNCTION shardgate_map.drop_sequence(actor text, schema_name text, sequence_name text, known bigint DEFAULT NULL) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    IF NOT EXISTS (SELECT FROM shardgate_map.declared_sequence d
                   WHERE d.schema_name = drop_sequence.schema_name AND d.sequence_name = drop_sequence.sequence_name
                     AND d.generation = coalesce(known, d.generation)) THEN
        RETURN false;
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'drop_sequence',
        jsonb_build_object('sequence', jsonb_build_array(schema_name, sequence_name)));
    DELETE FROM shardgate_map.declared_sequence d
    WHERE d.schema_name = drop_sequence.schema_name AND d.sequence_name = drop_sequence.sequence_name;
    RETURN true;
END $$;
