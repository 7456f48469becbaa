-- ALTER SEQUENCE: from there to the end of its transaction nobody else is given numbers of the sequence, as with one PostgreSQL.

ALTER TABLE shardgate_map.sequence_counter
    -- Closed to all but this change of the schema, as long as that one is open.
    ADD COLUMN closed_by bigint,
    -- What the sequence was last set to. While that is the next number, it has not been called: under another increment it is the next
    -- one still. NULL: the sequence's start.
    ADD COLUMN set_to numeric;

-- Whoever finds it closed waits, and asks again.
CREATE FUNCTION shardgate_map.check_sequence_open(schema_name text, sequence_name text, change bigint DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM shardgate_map.sequence_counter k
               JOIN shardgate_map.schema_change c ON c.schema_change_id = k.closed_by AND c.finished_at IS NULL
               WHERE k.schema_name = check_sequence_open.schema_name AND k.sequence_name = check_sequence_open.sequence_name
                 AND c.schema_change_id IS DISTINCT FROM change) THEN
        RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = format('sequence "%s" is being altered', sequence_name),
            HINT = 'Repeat the statement when the transaction that alters it has ended.';
    END IF;
END $$;

DROP FUNCTION shardgate_map.reserve_numbers(text, text, bigint, bigint);

-- As before, with the increment that the block's numbers have; and an error while the sequence is closed.
CREATE FUNCTION shardgate_map.reserve_numbers(schema_name text, sequence_name text, wanted bigint, known bigint DEFAULT NULL,
                                              OUT first_number bigint, OUT how_many bigint, OUT generation bigint, OUT increment bigint)
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
    IF counter.closed_by IS NOT NULL THEN
        PERFORM shardgate_map.check_sequence_open(schema_name, sequence_name);
    END IF;
    SELECT * INTO STRICT declared FROM shardgate_map.declared_sequence d
    WHERE d.schema_name = reserve_numbers.schema_name AND d.sequence_name = reserve_numbers.sequence_name;
    IF counter.incarnation <> (SELECT c.incarnation FROM shardgate_map.cluster c) THEN
        RETURN;
    END IF;
    generation := declared.generation;
    increment := declared.increment;
    IF declared.generation <> known THEN
        first_number := 0;
        how_many := 0;
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
    PERFORM shardgate_map.check_sequence_open(schema_name, sequence_name);
    IF number NOT BETWEEN declared.minimum AND declared.maximum THEN
        RAISE EXCEPTION USING ERRCODE = '22003', MESSAGE = format('setval: value %s is out of bounds for sequence "%s" (%s..%s)',
            number, sequence_name, declared.minimum, declared.maximum);
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'set_sequence', jsonb_build_object(
        'sequence', jsonb_build_array(schema_name, sequence_name), 'number', number, 'is_called', is_called));
    UPDATE shardgate_map.sequence_counter k
    SET next_number = number::numeric + CASE WHEN is_called THEN declared.increment ELSE 0 END,
        set_to = number, skip_from = NULL, skip_to = NULL, settings = k.settings + 1,
        incarnation = (SELECT c.incarnation FROM shardgate_map.cluster c)
    WHERE k.schema_name = set_sequence.schema_name AND k.sequence_name = set_sequence.sequence_name;
    UPDATE shardgate_map.declared_sequence d SET generation = d.generation + 1
    WHERE d.schema_name = set_sequence.schema_name AND d.sequence_name = set_sequence.sequence_name;
END $$;

CREATE OR REPLACE FUNCTION shardgate_map.begin_restart(actor text, schema_name text, sequence_name text, start bigint,
                                                       unused_from numeric, unused_to numeric,
                                                       OUT next_number numeric, OUT settings bigint)
RETURNS SETOF record LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    declared shardgate_map.declared_sequence;
BEGIN
    PERFORM shardgate_map.lock_map();
    PERFORM shardgate_map.check_sequence_open(schema_name, sequence_name);
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

CREATE OR REPLACE FUNCTION shardgate_map.finish_restart(actor text, schema_name text, sequence_name text, next_number numeric,
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
    SET next_number = finish_restart.next_number, set_to = NULL, skip_from = finish_restart.skip_from, skip_to = k.next_number,
        settings = k.settings + 1
    WHERE k.schema_name = finish_restart.schema_name AND k.sequence_name = finish_restart.sequence_name;
    UPDATE shardgate_map.declared_sequence d SET generation = d.generation + 1
    WHERE d.schema_name = finish_restart.schema_name AND d.sequence_name = finish_restart.sequence_name;
    RETURN true;
END $$;

-- ALTER SEQUENCE in the transaction of this change of the schema: the sequence is closed to all others, and blocks that were given away
-- are void. Returns where it is. What is to be left out later on is left out now. `unused_from` to before `unused_to` is what the
-- caller's block has left: nobody has been given any of it. No row: the counter has to be confirmed.
CREATE FUNCTION shardgate_map.begin_alteration(actor text, schema_name text, sequence_name text, change bigint,
                                               unused_from numeric, unused_to numeric, OUT next_number numeric, OUT set_to numeric)
RETURNS SETOF record LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    declared shardgate_map.declared_sequence;
    counter shardgate_map.sequence_counter;
    step numeric;
BEGIN
    PERFORM shardgate_map.lock_map();
    PERFORM shardgate_map.check_sequence_open(schema_name, sequence_name, change);
    SELECT k.* INTO counter FROM shardgate_map.sequence_counter k, shardgate_map.cluster c
    WHERE k.schema_name = begin_alteration.schema_name AND k.sequence_name = begin_alteration.sequence_name
      AND k.incarnation = c.incarnation FOR UPDATE OF k;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'begin_alteration', jsonb_build_object(
        'sequence', jsonb_build_array(schema_name, sequence_name), 'schema_change', change));
    UPDATE shardgate_map.declared_sequence d SET generation = d.generation + 1
    WHERE d.schema_name = begin_alteration.schema_name AND d.sequence_name = begin_alteration.sequence_name
    RETURNING d.* INTO STRICT declared;
    next_number := CASE WHEN counter.next_number = unused_to THEN unused_from ELSE counter.next_number END;
    set_to := counter.set_to;
    step := declared.increment;
    IF (counter.skip_to - next_number) * step > 0 AND (counter.skip_to - counter.skip_from) * step > 0 THEN
        next_number := next_number + div(counter.skip_to - next_number + step - sign(step), step) * step;
    END IF;
    UPDATE shardgate_map.sequence_counter k
    SET closed_by = change, next_number = begin_alteration.next_number, skip_from = NULL, skip_to = NULL, settings = k.settings + 1
    WHERE k.schema_name = begin_alteration.schema_name AND k.sequence_name = begin_alteration.sequence_name;
    RETURN NEXT;
END $$;

-- The transaction is committed. False: the map has forgotten meanwhile that the sequence was closed, or somebody has done this before;
-- then its numbers do not go back.
CREATE FUNCTION shardgate_map.finish_alteration(actor text, schema_name text, sequence_name text, change bigint, increment bigint,
                                                minimum bigint, maximum bigint, next_number numeric, set_to numeric) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_closed bool;
BEGIN
    PERFORM shardgate_map.lock_map();
    SELECT k.closed_by IS NOT DISTINCT FROM change AND k.incarnation = c.incarnation INTO is_closed
    FROM shardgate_map.sequence_counter k, shardgate_map.cluster c
    WHERE k.schema_name = finish_alteration.schema_name AND k.sequence_name = finish_alteration.sequence_name FOR UPDATE OF k;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'alter_sequence', jsonb_build_object(
        'sequence', jsonb_build_array(schema_name, sequence_name), 'increment', increment, 'next_number', next_number));
    UPDATE shardgate_map.declared_sequence d
    SET generation = d.generation + 1, increment = finish_alteration.increment, minimum = finish_alteration.minimum,
        maximum = finish_alteration.maximum
    WHERE d.schema_name = finish_alteration.schema_name AND d.sequence_name = finish_alteration.sequence_name;
    UPDATE shardgate_map.sequence_counter k
    SET next_number = CASE WHEN is_closed THEN finish_alteration.next_number
                           WHEN finish_alteration.increment > 0 THEN greatest(k.next_number, finish_alteration.next_number)
                           ELSE least(k.next_number, finish_alteration.next_number) END,
        set_to = CASE WHEN is_closed THEN finish_alteration.set_to ELSE k.set_to END,
        closed_by = NULLIF(k.closed_by, change), settings = k.settings + 1
    WHERE k.schema_name = finish_alteration.schema_name AND k.sequence_name = finish_alteration.sequence_name;
    RETURN is_closed;
END $$;

-- The transaction has not altered it, or not any more.
CREATE FUNCTION shardgate_map.reopen_sequence(schema_name text, sequence_name text, change bigint) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE shardgate_map.sequence_counter k SET closed_by = NULL
    WHERE k.schema_name = reopen_sequence.schema_name AND k.sequence_name = reopen_sequence.sequence_name AND k.closed_by = change
$$;
