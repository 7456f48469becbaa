-- Sequences of the whole cluster: a number is given away once, in blocks, to a proxy or to a shard.
--
-- The counter is a row apart from the declaration: drawing from it is no change of the map and takes no epoch. It carries the
-- incarnation under which it was last known to be right: a map that failed over, or was restored, may have forgotten blocks that
-- are in use, so nothing is drawn until it has been confirmed against what the shards hold.

CREATE TABLE shardgate_map.declared_sequence (
    schema_name text NOT NULL,
    sequence_name text NOT NULL,
    increment bigint NOT NULL CHECK (increment <> 0),
    minimum bigint NOT NULL,
    maximum bigint NOT NULL CHECK (maximum > minimum),
    -- Another one after setval: blocks that were given away before are void.
    generation bigint NOT NULL DEFAULT 0,
    epoch bigint NOT NULL,
    PRIMARY KEY (schema_name, sequence_name)
);

CREATE TABLE shardgate_map.sequence_counter (
    schema_name text NOT NULL,
    sequence_name text NOT NULL,
    -- What the next block begins with; may lie beyond the last number.
    next_number numeric NOT NULL,
    incarnation bigint NOT NULL,
    PRIMARY KEY (schema_name, sequence_name),
    FOREIGN KEY (schema_name, sequence_name) REFERENCES shardgate_map.declared_sequence ON DELETE CASCADE
);

ALTER TABLE shardgate_map.removed DROP CONSTRAINT removed_kind_check, ADD CONSTRAINT removed_kind_check CHECK (kind IN (
    'shard', 'colocation_group', 'partition', 'lookup_key', 'declared_table', 'declared_function', 'declared_sequence'));

CREATE OR REPLACE FUNCTION shardgate_map.bury() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_counter bigint;
    gone jsonb := to_jsonb(OLD);
BEGIN
    SELECT c.counter INTO now_counter FROM shardgate_map.cluster c WHERE c.changed_in = pg_current_xact_id_if_assigned();
    IF NOT FOUND THEN
        PERFORM shardgate_map.refuse_bare_change();
    END IF;
    IF TG_TABLE_NAME IN ('partition', 'lookup_key')
       AND NOT EXISTS (SELECT FROM shardgate_map.colocation_group g WHERE g.group_id = (gone ->> 'group_id')::int) THEN
        RETURN NULL;
    END IF;
    INSERT INTO shardgate_map.removed (epoch, kind, id, key, schema_name, name)
    VALUES (now_counter, TG_TABLE_NAME,
            CASE TG_TABLE_NAME WHEN 'shard' THEN gone ->> 'shard_id' WHEN 'partition' THEN gone ->> 'partition_id'
                               ELSE gone ->> 'group_id' END::int,
            CASE TG_TABLE_NAME WHEN 'lookup_key' THEN gone ->> 'key' END::bytea,
            gone ->> 'schema_name',
            coalesce(gone ->> 'table_name', gone ->> 'function_name', gone ->> 'sequence_name'));
    RETURN NULL;
END $$;

CREATE TRIGGER stamp BEFORE INSERT OR UPDATE ON shardgate_map.declared_sequence
    FOR EACH ROW EXECUTE FUNCTION shardgate_map.stamp();
CREATE TRIGGER bury AFTER DELETE ON shardgate_map.declared_sequence
    FOR EACH ROW EXECUTE FUNCTION shardgate_map.bury();
CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON shardgate_map.declared_sequence
    FOR EACH STATEMENT EXECUTE FUNCTION shardgate_map.refuse_truncate();

-- Declared again, the counter never goes back: what was given away stays so.
CREATE FUNCTION shardgate_map.declare_sequence(actor text, schema_name text, sequence_name text, increment bigint, minimum bigint,
                                               maximum bigint, next_number numeric) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    PERFORM shardgate_map.begin_change(actor, 'declare_sequence', jsonb_build_object(
        'sequence', jsonb_build_array(schema_name, sequence_name), 'increment', increment, 'next_number', next_number));
    INSERT INTO shardgate_map.declared_sequence AS d (schema_name, sequence_name, increment, minimum, maximum)
    VALUES (declare_sequence.schema_name, declare_sequence.sequence_name, declare_sequence.increment, declare_sequence.minimum,
            declare_sequence.maximum)
    ON CONFLICT ON CONSTRAINT declared_sequence_pkey
    DO UPDATE SET increment = excluded.increment, minimum = excluded.minimum, maximum = excluded.maximum;
    INSERT INTO shardgate_map.sequence_counter AS k (schema_name, sequence_name, next_number, incarnation)
    SELECT declare_sequence.schema_name, declare_sequence.sequence_name, declare_sequence.next_number, c.incarnation
    FROM shardgate_map.cluster c
    ON CONFLICT ON CONSTRAINT sequence_counter_pkey
    DO UPDATE SET next_number = CASE WHEN declare_sequence.increment > 0 THEN greatest(k.next_number, excluded.next_number)
                                     ELSE least(k.next_number, excluded.next_number) END;
END $$;

-- A block: its first number, how many there are, and the generation it belongs to. No row: the counter has to be confirmed.
CREATE FUNCTION shardgate_map.reserve_numbers(schema_name text, sequence_name text, wanted bigint,
                                              OUT first_number bigint, OUT how_many bigint, OUT generation bigint)
RETURNS SETOF record LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    declared shardgate_map.declared_sequence;
    counter shardgate_map.sequence_counter;
    available numeric;
BEGIN
    -- The counter's lock first: what is read after it is what a setval has left.
    SELECT * INTO counter FROM shardgate_map.sequence_counter k
    WHERE k.schema_name = reserve_numbers.schema_name AND k.sequence_name = reserve_numbers.sequence_name FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('sequence "%s" is not one of the whole cluster', sequence_name);
    END IF;
    SELECT * INTO STRICT declared FROM shardgate_map.declared_sequence d
    WHERE d.schema_name = reserve_numbers.schema_name AND d.sequence_name = reserve_numbers.sequence_name;
    IF counter.incarnation <> (SELECT c.incarnation FROM shardgate_map.cluster c) THEN
        RETURN;
    END IF;
    available := CASE WHEN declared.increment > 0 THEN div(declared.maximum - counter.next_number, declared.increment) + 1
                      ELSE div(counter.next_number - declared.minimum, -declared.increment::numeric) + 1 END;
    IF declared.increment > 0 AND counter.next_number > declared.maximum THEN
        RAISE EXCEPTION USING ERRCODE = '2200H',
            MESSAGE = format('nextval: reached maximum value of sequence "%s" (%s)', sequence_name, declared.maximum);
    ELSIF declared.increment < 0 AND counter.next_number < declared.minimum THEN
        RAISE EXCEPTION USING ERRCODE = '2200H',
            MESSAGE = format('nextval: reached minimum value of sequence "%s" (%s)', sequence_name, declared.minimum);
    END IF;
    first_number := counter.next_number;
    how_many := least(available, wanted);
    generation := declared.generation;
    UPDATE shardgate_map.sequence_counter k SET next_number = k.next_number + how_many::numeric * declared.increment
    WHERE k.schema_name = reserve_numbers.schema_name AND k.sequence_name = reserve_numbers.sequence_name;
    RETURN NEXT;
END $$;

-- setval(). Every block that was given away is void from now on.
CREATE FUNCTION shardgate_map.set_sequence(actor text, schema_name text, sequence_name text, number bigint, is_called bool) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    declared shardgate_map.declared_sequence;
BEGIN
    PERFORM shardgate_map.lock_map();
    SELECT * INTO declared FROM shardgate_map.declared_sequence d
    WHERE d.schema_name = set_sequence.schema_name AND d.sequence_name = set_sequence.sequence_name;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('sequence "%s" is not one of the whole cluster', sequence_name);
    END IF;
    IF number NOT BETWEEN declared.minimum AND declared.maximum THEN
        RAISE EXCEPTION USING ERRCODE = '22003', MESSAGE = format('setval: value %s is out of bounds for sequence "%s" (%s..%s)',
            number, sequence_name, declared.minimum, declared.maximum);
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'set_sequence', jsonb_build_object(
        'sequence', jsonb_build_array(schema_name, sequence_name), 'number', number, 'is_called', is_called));
    UPDATE shardgate_map.sequence_counter k
    SET next_number = number::numeric + CASE WHEN is_called THEN declared.increment ELSE 0 END,
        incarnation = (SELECT c.incarnation FROM shardgate_map.cluster c)
    WHERE k.schema_name = set_sequence.schema_name AND k.sequence_name = set_sequence.sequence_name;
    UPDATE shardgate_map.declared_sequence d SET generation = d.generation + 1
    WHERE d.schema_name = set_sequence.schema_name AND d.sequence_name = set_sequence.sequence_name;
END $$;

-- After a fail-over of the map: nothing up to this number is given away again, and what proxies hold is void.
CREATE FUNCTION shardgate_map.confirm_sequence(actor text, schema_name text, sequence_name text, used_up_to numeric) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
    SET next_number = CASE WHEN declared.increment > 0 THEN greatest(k.next_number, used_up_to + declared.increment)
                           ELSE least(k.next_number, used_up_to + declared.increment) END,
        incarnation = (SELECT c.incarnation FROM shardgate_map.cluster c)
    WHERE k.schema_name = confirm_sequence.schema_name AND k.sequence_name = confirm_sequence.sequence_name;
END $$;

-- After DROP SEQUENCE, or DROP of what owned it. Returns whether it was declared.
CREATE FUNCTION shardgate_map.drop_sequence(actor text, schema_name text, sequence_name text) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    IF NOT EXISTS (SELECT FROM shardgate_map.declared_sequence d
                   WHERE d.schema_name = drop_sequence.schema_name AND d.sequence_name = drop_sequence.sequence_name) THEN
        RETURN false;
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'drop_sequence',
        jsonb_build_object('sequence', jsonb_build_array(schema_name, sequence_name)));
    DELETE FROM shardgate_map.declared_sequence d
    WHERE d.schema_name = drop_sequence.schema_name AND d.sequence_name = drop_sequence.sequence_name;
    RETURN true;
END $$;
