-- After a fail-over of the map its counter may be of any moment before: numbers of blocks that were handed out since may be in open
-- transactions, or with clients, and in no row. So the margin counts from the counter as well as from the rows.

-- Nothing up to `used_up_to` and nothing within `margin` (in the sequence's direction) of either is given away again, and what proxies
-- hold is void.
CREATE FUNCTION shardgate_map.confirm_sequence(
    actor text, schema_name text, sequence_name text, used_up_to numeric, margin numeric
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    declared shardgate_map.declared_sequence;
BEGIN
    PERFORM shardgate_map.lock_map();
    PERFORM FROM shardgate_map.sequence_counter k, shardgate_map.cluster c
    WHERE k.schema_name = confirm_sequence.schema_name AND k.sequence_name = confirm_sequence.sequence_name
      AND k.incarnation <> c.incarnation;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'confirm_sequence', jsonb_build_object(
        'sequence', jsonb_build_array(schema_name, sequence_name), 'used_up_to', used_up_to));
    UPDATE shardgate_map.declared_sequence d SET generation = d.generation + 1
    WHERE d.schema_name = confirm_sequence.schema_name AND d.sequence_name = confirm_sequence.sequence_name
    RETURNING d.* INTO STRICT declared;
    UPDATE shardgate_map.sequence_counter k
    SET next_number = margin + CASE
            WHEN declared.increment > 0 THEN greatest(k.next_number, used_up_to + declared.increment)
            ELSE least(k.next_number, used_up_to + declared.increment) END,
        incarnation = (SELECT c.incarnation FROM shardgate_map.cluster c)
    WHERE k.schema_name = confirm_sequence.schema_name AND k.sequence_name = confirm_sequence.sequence_name;
END $$;

-- For proxies of the version before, which add the margin to what the rows hold.
CREATE OR REPLACE FUNCTION shardgate_map.confirm_sequence(actor text, schema_name text, sequence_name text, used_up_to numeric) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT shardgate_map.confirm_sequence(actor, schema_name, sequence_name, used_up_to, 0::numeric)
$$;
