-- A change of the schema that was closed, as its proxy was taken for gone, makes and alters no sequence any more; and it is not closed
-- while it may.

CREATE FUNCTION shardgate_map.require_open_change(schema_change bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM shardgate_map.schema_change c
                   WHERE c.schema_change_id = require_open_change.schema_change AND c.finished_at IS NULL) THEN
        RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'the change of the schema was closed meanwhile',
            DETAIL = 'The proxy was frozen, or cut off from the map database, for so long that it was taken for gone.',
            HINT = 'Repeat the transaction.';
    END IF;
END $$;

-- As before, in this change of the schema, whose transaction on the home shard keeps it from being closed.
CREATE FUNCTION shardgate_map.declare_new_sequence(actor text, schema_change bigint, schema_name text, sequence_name text,
                                                   increment bigint, minimum bigint, maximum bigint, next_number numeric) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    PERFORM shardgate_map.require_open_change(schema_change);
    RETURN shardgate_map.declare_new_sequence(actor, schema_name, sequence_name, increment, minimum, maximum, next_number);
END $$;

-- begin_alteration() likewise.
CREATE FUNCTION shardgate_map.close_sequence(actor text, schema_name text, sequence_name text, change bigint, unused_from numeric,
                                             unused_to numeric, OUT next_number numeric, OUT set_to numeric)
RETURNS SETOF record LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    PERFORM shardgate_map.require_open_change(change);
    RETURN QUERY SELECT a.next_number, a.set_to
        FROM shardgate_map.begin_alteration(actor, schema_name, sequence_name, change, unused_from, unused_to) a;
END $$;

-- As before; of one that was closed nobody would know.
CREATE OR REPLACE FUNCTION shardgate_map.redefine(actor text, schema_change bigint, redefines jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    PERFORM shardgate_map.require_open_change(schema_change);
    UPDATE shardgate_map.schema_change c
    SET redefines = CASE
        WHEN jsonb_typeof(c.redefines) = 'boolean' OR jsonb_typeof(redefine.redefines) = 'boolean' THEN 'true'::jsonb
        ELSE coalesce(c.redefines, '[]') || redefine.redefines
    END
    WHERE c.schema_change_id = schema_change;
    PERFORM shardgate_map.begin_change(actor, 'redefine',
        jsonb_build_object('schema_change', schema_change, 'redefines', redefine.redefines));
END $$;

-- As before, by a map of this epoch: false also when a sequence was declared since, or one of these changes has closed one, since whose
-- transaction is not known to have ended.
CREATE FUNCTION shardgate_map.close_schema_changes(actor text, changes bigint[], last_change bigint, incarnation bigint, counter bigint,
                                                   tables jsonb, sequences jsonb)
RETURNS bool LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    IF incarnation <> (SELECT c.incarnation FROM shardgate_map.cluster c)
       OR EXISTS (SELECT FROM shardgate_map.declared_sequence d WHERE d.epoch > counter)
       OR EXISTS (SELECT FROM shardgate_map.sequence_counter k WHERE k.closed_by = ANY (changes)) THEN
        RETURN false;
    END IF;
    RETURN shardgate_map.close_schema_changes(actor, changes, last_change, tables, sequences);
END $$;

-- A sequence that the shards have, and the map has not: it was restored, say, after the sequence was declared. Where it is has to be
-- confirmed.
CREATE FUNCTION shardgate_map.declare_forgotten_sequence(actor text, schema_name text, sequence_name text, increment bigint,
                                                         minimum bigint, maximum bigint, next_number numeric) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    IF EXISTS (SELECT FROM shardgate_map.declared_sequence d
               WHERE d.schema_name = declare_forgotten_sequence.schema_name
                 AND d.sequence_name = declare_forgotten_sequence.sequence_name) THEN
        RETURN;
    END IF;
    PERFORM shardgate_map.declare_sequence(actor, schema_name, sequence_name, increment, minimum, maximum, next_number);
    UPDATE shardgate_map.sequence_counter k SET incarnation = -1
    WHERE k.schema_name = declare_forgotten_sequence.schema_name AND k.sequence_name = declare_forgotten_sequence.sequence_name;
END $$;
