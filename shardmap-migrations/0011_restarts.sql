-- TRUNCATE ... RESTART IDENTITY: a sequence begins anew, and leaves out the numbers that others may have been given meanwhile.

ALTER TABLE shardgate_map.sequence_counter
    -- Numbers from the first to before the second are not given: they were, shortly before the restart.
    ADD COLUMN skip_from numeric,
    ADD COLUMN skip_to numeric,
    -- How often it was set or restarted.
    ADD COLUMN settings bigint NOT NULL DEFAULT 0;

DROP FUNCTION shardgate_map.reserve_numbers(text, text, bigint);

-- As before, and none (0 of them) when the sequence was set since the generation that the caller knows.
CREATE FUNCTION shardgate_map.reserve_numbers(schema_name text, sequence_name text, wanted bigint, known bigint DEFAULT NULL,
                                              OUT first_number bigint, OUT how_many bigint, OUT generation bigint)
RETURNS SETOF record LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    declared shardgate_map.declared_sequence;
    counter shardgate_map.sequence_counter;
    next numeric;
    step numeric;
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
    IF declared.generation <> known THEN
        first_number := 0;
        how_many := 0;
        generation := declared.generation;
        RETURN NEXT;
        RETURN;
    END IF;
    -- Distances are counted in steps of the increment, so that both directions are alike: div() of one rounds towards nothing.
    next := counter.next_number;
    step := declared.increment;
    IF (next - counter.skip_from) * step >= 0 AND (counter.skip_to - next) * step > 0 THEN
        next := next + div(counter.skip_to - next + step - sign(step), step) * step;
    END IF;
    IF declared.increment > 0 AND next > declared.maximum THEN
        RAISE EXCEPTION USING ERRCODE = '2200H',
            MESSAGE = format('nextval: reached maximum value of sequence "%s" (%s)', sequence_name, declared.maximum);
    ELSIF declared.increment < 0 AND next < declared.minimum THEN
        RAISE EXCEPTION USING ERRCODE = '2200H',
            MESSAGE = format('nextval: reached minimum value of sequence "%s" (%s)', sequence_name, declared.minimum);
    END IF;
    available := div(CASE WHEN step > 0 THEN declared.maximum ELSE declared.minimum END - next, step) + 1;
    -- A block ends before what is left out.
    IF (counter.skip_from - next) * step > 0 AND (counter.skip_to - counter.skip_from) * step > 0 THEN
        available := least(available, div(counter.skip_from - next + step - sign(step), step));
    END IF;
    first_number := next;
    how_many := least(available, wanted);
    generation := declared.generation;
    UPDATE shardgate_map.sequence_counter k SET next_number = next + how_many::numeric * declared.increment
    WHERE k.schema_name = reserve_numbers.schema_name AND k.sequence_name = reserve_numbers.sequence_name;
    RETURN NEXT;
END $$;

CREATE OR REPLACE FUNCTION shardgate_map.set_sequence(actor text, schema_name text, sequence_name text, number bigint, is_called bool)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
        skip_from = NULL, skip_to = NULL, settings = k.settings + 1,
        incarnation = (SELECT c.incarnation FROM shardgate_map.cluster c)
    WHERE k.schema_name = set_sequence.schema_name AND k.sequence_name = set_sequence.sequence_name;
    UPDATE shardgate_map.declared_sequence d SET generation = d.generation + 1
    WHERE d.schema_name = set_sequence.schema_name AND d.sequence_name = set_sequence.sequence_name;
END $$;

-- Before a restart: blocks that were given away are void, and the numbers to come begin with `next_number`, which is never
-- before the sequence's start: numbers from there to `next_number` are free once the table is empty. `unused_from` to before
-- `unused_to` is what the caller's block has left; where nobody has drawn since, it is given again and there is no gap. No row:
-- the counter has to be confirmed.
CREATE FUNCTION shardgate_map.begin_restart(actor text, schema_name text, sequence_name text, start bigint,
                                            unused_from numeric, unused_to numeric,
                                            OUT next_number numeric, OUT settings bigint)
RETURNS SETOF record LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    declared shardgate_map.declared_sequence;
BEGIN
    PERFORM shardgate_map.lock_map();
    PERFORM FROM shardgate_map.sequence_counter k, shardgate_map.cluster c
    WHERE k.schema_name = begin_restart.schema_name AND k.sequence_name = begin_restart.sequence_name
      AND k.incarnation = c.incarnation;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'begin_restart', jsonb_build_object(
        'sequence', jsonb_build_array(schema_name, sequence_name)));
    UPDATE shardgate_map.declared_sequence d SET generation = d.generation + 1
    WHERE d.schema_name = begin_restart.schema_name AND d.sequence_name = begin_restart.sequence_name
    RETURNING d.* INTO STRICT declared;
    UPDATE shardgate_map.sequence_counter k
    SET next_number = CASE WHEN k.next_number = unused_to THEN unused_from ELSE k.next_number END
    WHERE k.schema_name = begin_restart.schema_name AND k.sequence_name = begin_restart.sequence_name;
    UPDATE shardgate_map.sequence_counter k
    SET next_number = CASE WHEN declared.increment > 0 THEN greatest(k.next_number, start) ELSE least(k.next_number, start) END
    WHERE k.schema_name = begin_restart.schema_name AND k.sequence_name = begin_restart.sequence_name
    RETURNING k.next_number, k.settings INTO STRICT begin_restart.next_number, begin_restart.settings;
    RETURN NEXT;
END $$;

-- The table is empty, and that is committed. Numbers from `skip_from` up to those given by now are left out. False: the sequence
-- was set meanwhile, and stays so.
CREATE FUNCTION shardgate_map.finish_restart(actor text, schema_name text, sequence_name text, next_number numeric,
                                             skip_from numeric, settings bigint) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    PERFORM FROM shardgate_map.sequence_counter k, shardgate_map.cluster c
    WHERE k.schema_name = finish_restart.schema_name AND k.sequence_name = finish_restart.sequence_name
      AND k.incarnation = c.incarnation AND k.settings = finish_restart.settings FOR UPDATE OF k;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'restart_sequence', jsonb_build_object(
        'sequence', jsonb_build_array(schema_name, sequence_name), 'next_number', next_number));
    UPDATE shardgate_map.sequence_counter k
    SET next_number = finish_restart.next_number, skip_from = finish_restart.skip_from, skip_to = k.next_number,
        settings = k.settings + 1
    WHERE k.schema_name = finish_restart.schema_name AND k.sequence_name = finish_restart.sequence_name;
    UPDATE shardgate_map.declared_sequence d SET generation = d.generation + 1
    WHERE d.schema_name = finish_restart.schema_name AND d.sequence_name = finish_restart.sequence_name;
    RETURN true;
END $$;
