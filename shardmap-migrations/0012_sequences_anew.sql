-- Sequences that are made under a name that one of the whole cluster has had before: what proxies hold of that one is void.

-- A new sequence's first generation is the epoch in which it is declared. Each later one takes an epoch too, so that no generation
-- of a name ever comes again. Declared again, the counter never goes back: what was given away stays so.
CREATE OR REPLACE FUNCTION shardgate_map.declare_sequence(actor text, schema_name text, sequence_name text, increment bigint,
                                                          minimum bigint, maximum bigint, next_number numeric) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    taken bigint;
BEGIN
    PERFORM shardgate_map.lock_map();
    taken := shardgate_map.begin_change(actor, 'declare_sequence', jsonb_build_object(
        'sequence', jsonb_build_array(schema_name, sequence_name), 'increment', increment, 'next_number', next_number));
    INSERT INTO shardgate_map.declared_sequence AS d (schema_name, sequence_name, increment, minimum, maximum, generation)
    VALUES (declare_sequence.schema_name, declare_sequence.sequence_name, declare_sequence.increment, declare_sequence.minimum,
            declare_sequence.maximum, taken)
    ON CONFLICT ON CONSTRAINT declared_sequence_pkey
    DO UPDATE SET increment = excluded.increment, minimum = excluded.minimum, maximum = excluded.maximum;
    INSERT INTO shardgate_map.sequence_counter AS k (schema_name, sequence_name, next_number, incarnation)
    SELECT declare_sequence.schema_name, declare_sequence.sequence_name, declare_sequence.next_number, c.incarnation
    FROM shardgate_map.cluster c
    ON CONFLICT ON CONSTRAINT sequence_counter_pkey
    DO UPDATE SET next_number = CASE WHEN declare_sequence.increment > 0 THEN greatest(k.next_number, excluded.next_number)
                                     ELSE least(k.next_number, excluded.next_number) END;
END $$;
