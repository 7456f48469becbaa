-- Moves: sets of partitions of one group that change their shard while statements run.
--
-- What makes a move safe against two drivers, a driver that thaws and a map that is asked twice: every change is one function
-- here, it names the driver's term, and it says from which state to which it leads. A driver takes a higher term before anything
-- else; what comes with a lower one is refused. The switch is one compare-and-set on the partitions' owner.

DROP VIEW shardgate.moves;
DROP TABLE shardgate_map.move;

CREATE TABLE shardgate_map.move (
    move_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_id int NOT NULL,
    source text NOT NULL,
    target text NOT NULL CHECK (target <> source),
    state text NOT NULL DEFAULT 'planned' CHECK (state IN (
        'planned', 'preparing', 'copying', 'catching_up', 'verifying', 'cutting_over', 'switched', 'cleaning_up', 'done',
        'aborting', 'aborted', 'failed')),
    -- What a person, or a change of the schema, wants of it.
    asked text CHECK (asked IN ('abort', 'pause', 'cutover', 'finish')),
    asked_by text,
    -- {"max_pause_ms", "manual_cutover", "keep"}
    options jsonb NOT NULL DEFAULT '{}',
    -- What the driver has to remember across its death; each intent is stored before its act.
    journal jsonb NOT NULL DEFAULT '{}',
    -- Who drives it: at most one. driver_seen by this database's clock.
    driver bigint,
    term bigint NOT NULL DEFAULT 0,
    driver_seen timestamptz,
    rows_copied bigint NOT NULL DEFAULT 0,
    bytes_copied bigint NOT NULL DEFAULT 0,
    bytes_expected bigint,
    lag_bytes bigint,
    expected_pause_ms float8,
    pause_ms float8,
    -- Cut-overs that were begun.
    attempts int NOT NULL DEFAULT 0,
    started_at timestamptz NOT NULL DEFAULT now(),
    switched_at timestamptz,
    ended_at timestamptz,
    error text
);

-- A row for each partition of a move. No foreign key to the partition: the record of a move outlives a merge.
CREATE TABLE shardgate_map.move_partition (
    move_id int NOT NULL REFERENCES shardgate_map.move ON DELETE CASCADE,
    partition_id int NOT NULL,
    PRIMARY KEY (move_id, partition_id)
);
CREATE INDEX move_partition_partition ON shardgate_map.move_partition (partition_id);

CREATE VIEW shardgate.moves AS
SELECT m.move_id, p.partition_id, m.source, m.target, m.state, m.rows_copied, m.bytes_copied, m.lag_bytes, m.pause_ms,
       m.started_at, m.error, m.bytes_expected, m.expected_pause_ms, m.attempts, m.asked, m.switched_at, m.ended_at
FROM shardgate_map.move m JOIN shardgate_map.move_partition p USING (move_id);

-- The partitions of moves that have not ended: what a running move has fixed may not change under it.
CREATE FUNCTION shardgate_map.running_moves(OUT move_id int, OUT partition_id int, OUT group_id int, OUT source text, OUT target text,
                                            OUT state text)
RETURNS SETOF record LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT m.move_id, p.partition_id, m.group_id, m.source, m.target, m.state
    FROM shardgate_map.move m JOIN shardgate_map.move_partition p USING (move_id)
    WHERE m.state NOT IN ('done', 'aborted')
    ORDER BY m.move_id, p.partition_id
$$;

CREATE OR REPLACE FUNCTION shardgate_map.refuse_if_moving(partitions int[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    running record;
BEGIN
    SELECT * INTO running FROM shardgate_map.running_moves() m WHERE m.partition_id = ANY (partitions) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = format('partition %s is being moved', running.partition_id),
            DETAIL = format('Move %s is in state "%s". Keys, tables, splits and merges of its partition are locked until its source rows are gone.',
                            running.move_id, running.state),
            HINT = format(CASE WHEN running.state IN ('switched', 'cleaning_up')
                               THEN 'Wait until the move is done; "shard-rebalance show %s" says how far it is.'
                               ELSE 'Wait until the move is done, or end it with "shard-rebalance abort %s".' END, running.move_id);
    END IF;
END $$;

DO $replaced$
DECLARE
    definition text;
    replaced text[];
BEGIN
    FOREACH replaced SLICE 1 IN ARRAY ARRAY[
        ['shardgate_map.drop_shard(text, text)',
         $o$SELECT m.move_id, m.partition_id INTO moving FROM shardgate_map.move m
    WHERE drop_shard.name IN (m.source, m.target) AND m.state NOT IN ('done', 'aborted') LIMIT 1;$o$,
         $n$SELECT m.move_id, m.partition_id INTO moving FROM shardgate_map.running_moves() m
    WHERE drop_shard.name IN (m.source, m.target) LIMIT 1;$n$],
        ['shardgate_map.drop_shard(text, text)',
         $o$HINT = 'A shard can be dropped while it holds none; "shard-rebalance status --partitions" shows where they are.'$o$,
         $n$HINT = 'Move them away first, with "shard-rebalance move --partition ID,… --to SHARD"; "shard-rebalance status --partitions" shows where they are.'$n$],
        ['shardgate_map.lookup_partition(shardgate_map.colocation_group, shardgate_map.shard)',
         $o$AND NOT EXISTS (SELECT FROM shardgate_map.move m
                      WHERE m.partition_id = p.partition_id AND m.state NOT IN ('done', 'aborted'))$o$,
         $n$AND NOT EXISTS (SELECT FROM shardgate_map.running_moves() m WHERE m.partition_id = p.partition_id)$n$],
        ['shardgate_map.require_mergeable(shardgate_map.partition, shardgate_map.partition)',
         $o$HINT = 'Only neighbours on one shard can be merged; shardgate.partitions shows where each is.'$o$,
         $n$HINT = 'Move one of them to the other''s shard first, with "shard-rebalance move".'$n$]
    ]
    LOOP
        definition := pg_catalog.pg_get_functiondef(replaced[1]::regprocedure);
        IF pg_catalog.strpos(definition, replaced[2]) = 0 THEN
            RAISE EXCEPTION 'a part of % was not found', replaced[1];
        END IF;
        EXECUTE pg_catalog.replace(definition, replaced[2], replaced[3]);
    END LOOP;
END $replaced$;

-- A change of the shards' schema and a move shut each other out before any shard is touched. The moves that are in its way; those
-- before the switch are asked to give way.
CREATE FUNCTION shardgate_map.give_way(asked_by text) RETURNS int[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE shardgate_map.move m SET asked = 'abort', asked_by = give_way.asked_by
    WHERE m.state IN ('preparing', 'copying', 'catching_up', 'verifying', 'cutting_over') AND m.asked IS DISTINCT FROM 'abort';
    RETURN array(SELECT m.move_id FROM shardgate_map.move m WHERE m.state NOT IN ('planned', 'done', 'aborted') ORDER BY m.move_id);
END $$;

CREATE OR REPLACE FUNCTION shardgate_map.begin_schema_change(actor text, command_tag text, proxy_id bigint, incarnation bigint, counter bigint)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moving record;
BEGIN
    PERFORM shardgate_map.lock_map();
    IF shardgate_map.has_joined_since(incarnation, counter) THEN
        RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'shards or tables were declared since the statement was planned',
            DETAIL = 'Nothing was changed.', HINT = 'Repeat the transaction.';
    END IF;
    SELECT * INTO moving FROM shardgate_map.running_moves() m WHERE m.state <> 'planned' LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = format('the schema cannot be changed while move %s runs', moving.move_id),
            DETAIL = format('Its state is "%s". Nothing was changed.', moving.state),
            HINT = format('Repeat it when the move has ended; "shard-rebalance show %s" says how far it is.', moving.move_id);
    END IF;
    RETURN shardgate_map.begin_schema_change(actor, command_tag, proxy_id);
END $$;

-- Planning ---------------------------------------------------------------------------------------------------------------------

CREATE FUNCTION shardgate_map.plan_move(actor text, partitions int[], target text, options jsonb, driver bigint) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target_shard shardgate_map.shard;
    first_partition shardgate_map.partition;
    other record;
    planned int;
BEGIN
    PERFORM shardgate_map.lock_map();
    IF coalesce(cardinality(partitions), 0) = 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'a move needs at least one partition';
    END IF;
    target_shard := shardgate_map.require_online(target);
    first_partition := shardgate_map.require_partition(partitions[1]);
    PERFORM shardgate_map.require_partition(p) FROM unnest(partitions) p;
    PERFORM shardgate_map.refuse_if_moving(partitions);
    SELECT p.partition_id, p.group_id, s.name AS shard INTO other
    FROM shardgate_map.partition p JOIN shardgate_map.shard s USING (shard_id)
    WHERE p.partition_id = ANY (partitions)
      AND (p.group_id <> first_partition.group_id OR p.shard_id <> first_partition.shard_id) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'the partitions of a move belong to one colocation group and one shard',
            DETAIL = CASE WHEN other.group_id <> first_partition.group_id
                THEN format('Partition %s is of group %s, partition %s of group %s.', partitions[1], first_partition.group_id,
                            other.partition_id, other.group_id)
                ELSE format('Partition %s is on another shard than partition %s.', other.partition_id, partitions[1]) END,
            HINT = 'Make one move for each.';
    END IF;
    IF first_partition.shard_id = target_shard.shard_id THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('the partitions are on shard "%s" already', target);
    END IF;
    IF EXISTS (SELECT FROM shardgate_map.colocation_group g WHERE g.default_partition = ANY (partitions)) THEN
        RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'the default partition of a lookup group cannot be moved',
            DETAIL = 'Its keys are those that no list names.', HINT = 'Map the keys one by one with shardgate.map_key(), and move their partitions.';
    END IF;
    INSERT INTO shardgate_map.move AS m (group_id, source, target, options, driver, driver_seen)
    SELECT first_partition.group_id, s.name, plan_move.target, coalesce(plan_move.options, '{}'), plan_move.driver, clock_timestamp()
    FROM shardgate_map.shard s WHERE s.shard_id = first_partition.shard_id
    RETURNING m.move_id INTO planned;
    INSERT INTO shardgate_map.move_partition (move_id, partition_id) SELECT DISTINCT planned, p FROM unnest(partitions) p;
    PERFORM shardgate_map.begin_change(actor, 'plan_move', jsonb_build_object(
        'move', planned, 'partitions', to_jsonb(partitions), 'target', target));
    RETURN planned;
END $$;

CREATE FUNCTION shardgate_map.require_move(move int) RETURNS shardgate_map.move
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_move shardgate_map.move;
BEGIN
    SELECT * INTO found_move FROM shardgate_map.move m WHERE m.move_id = move FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('there is no move %s', move),
            HINT = 'SELECT * FROM shardgate.moves shows the moves.';
    END IF;
    RETURN found_move;
END $$;

-- What a person wants. Says what the move's state then is.
CREATE FUNCTION shardgate_map.ask_move(actor text, move int, what text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asked_move shardgate_map.move := shardgate_map.require_move(move);
BEGIN
    IF asked_move.state IN ('done', 'aborted') OR (what = 'abort' AND asked_move.state = 'aborting')
       OR (what = 'finish' AND asked_move.state = 'cleaning_up') THEN
        RETURN asked_move.state;
    END IF;
    IF what IN ('abort', 'pause', 'cutover') AND asked_move.state IN ('switched', 'cleaning_up') THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s has switched already', move),
            DETAIL = format('Its partitions are on shard "%s".', asked_move.target),
            HINT = format('Move them back with "shard-rebalance move" when move %s is done.', move);
    END IF;
    UPDATE shardgate_map.move m SET asked = nullif(what, 'resume'), asked_by = actor WHERE m.move_id = move;
    RETURN asked_move.state;
END $$;

-- Driving ----------------------------------------------------------------------------------------------------------------------

-- The term under which this driver may act; null: another one drives the move. During the cut-over a driver that is not heard of is
-- given up sooner.
CREATE FUNCTION shardgate_map.take_move(move int, driver bigint, lease interval, cutover_lease interval) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    taken shardgate_map.move := shardgate_map.require_move(move);
BEGIN
    IF taken.driver IS NOT NULL AND taken.driver <> take_move.driver
       AND taken.driver_seen > clock_timestamp() - (CASE taken.state WHEN 'cutting_over' THEN cutover_lease ELSE lease END) THEN
        RETURN NULL;
    END IF;
    UPDATE shardgate_map.move m SET driver = take_move.driver, driver_seen = clock_timestamp(), term = taken.term + 1
    WHERE m.move_id = move;
    RETURN taken.term + 1;
END $$;

-- With the move's row locked: this driver drives it still.
CREATE FUNCTION shardgate_map.require_term(move int, term bigint) RETURNS shardgate_map.move
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    driven shardgate_map.move := shardgate_map.require_move(move);
BEGIN
    IF driven.term <> require_term.term THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('another driver has taken over move %s', move);
    END IF;
    UPDATE shardgate_map.move m SET driver_seen = clock_timestamp() WHERE m.move_id = move;
    RETURN driven;
END $$;

-- Lets others take the move at once.
CREATE FUNCTION shardgate_map.leave_move(move int, term bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.require_term(move, term);
    UPDATE shardgate_map.move m SET driver = NULL WHERE m.move_id = move;
END $$;

-- The driver lives. Gives what is asked of the move. Numbers that are null stay.
CREATE FUNCTION shardgate_map.keep_move(move int, term bigint, rows_copied bigint, bytes_copied bigint, lag_bytes bigint, error text)
RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept shardgate_map.move := shardgate_map.require_term(move, term);
BEGIN
    UPDATE shardgate_map.move m SET rows_copied = coalesce(keep_move.rows_copied, m.rows_copied),
        bytes_copied = coalesce(keep_move.bytes_copied, m.bytes_copied), lag_bytes = coalesce(keep_move.lag_bytes, m.lag_bytes),
        error = keep_move.error
    WHERE m.move_id = move;
    RETURN kept.asked;
END $$;

-- From one state to another, with what is to be remembered. A move of another state: nothing is changed, and 55000.
CREATE FUNCTION shardgate_map.advance_move(move int, term bigint, from_state text, to_state text, remembered jsonb, error text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    driven shardgate_map.move := shardgate_map.require_term(move, term);
BEGIN
    IF driven.state <> from_state THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s is in state "%s", not "%s"', move, driven.state, from_state);
    END IF;
    UPDATE shardgate_map.move m SET state = to_state, journal = m.journal || coalesce(remembered, '{}'), error = advance_move.error,
        bytes_expected = coalesce((remembered ->> 'bytes_expected')::bigint, m.bytes_expected),
        expected_pause_ms = coalesce((remembered ->> 'expected_pause_ms')::float8, m.expected_pause_ms)
    WHERE m.move_id = move;
END $$;

CREATE FUNCTION shardgate_map.set_partitions_of(move int, new_state text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE shardgate_map.partition p SET state = new_state
    FROM shardgate_map.move_partition m WHERE m.move_id = move AND p.partition_id = m.partition_id
$$;

-- The epoch at which every proxy leaves out what lies on a shard that does not own it. Null: not yet, another move works on the group
-- at one of the two shards, or the schema is being changed.
CREATE FUNCTION shardgate_map.announce_move(actor text, move int, term bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    driven shardgate_map.move;
    taken bigint;
BEGIN
    PERFORM shardgate_map.lock_map();
    driven := shardgate_map.require_term(move, term);
    IF driven.state = 'preparing' THEN
        RETURN (SELECT c.counter FROM shardgate_map.cluster c);
    END IF;
    IF driven.state <> 'planned' THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s is in state "%s", not "planned"', move, driven.state);
    END IF;
    IF EXISTS (SELECT FROM shardgate_map.move m
               WHERE m.group_id = driven.group_id AND m.move_id <> move
                 AND ARRAY[m.source, m.target] && ARRAY[driven.source, driven.target]
                 AND m.state NOT IN ('planned', 'switched', 'done', 'aborted'))
       OR EXISTS (SELECT FROM shardgate_map.schema_change s WHERE s.finished_at IS NULL) THEN
        RETURN NULL;
    END IF;
    taken := shardgate_map.begin_change(actor, 'announce_move', jsonb_build_object('move', move));
    UPDATE shardgate_map.move m SET state = 'preparing' WHERE m.move_id = move;
    UPDATE shardgate_map.colocation_group g SET has_residues = true WHERE g.group_id = driven.group_id;
    PERFORM shardgate_map.set_partitions_of(move, 'moving');
    RETURN taken;
END $$;

-- Statements of the set wait from this epoch on.
CREATE FUNCTION shardgate_map.hold_move(actor text, move int, term bigint, OUT incarnation bigint, OUT counter bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    driven shardgate_map.move;
BEGIN
    PERFORM shardgate_map.lock_map();
    driven := shardgate_map.require_term(move, term);
    IF driven.state NOT IN ('catching_up', 'verifying') THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s is in state "%s" and cannot be cut over', move, driven.state);
    END IF;
    counter := shardgate_map.begin_change(actor, 'hold_move', jsonb_build_object('move', move, 'attempt', driven.attempts + 1));
    UPDATE shardgate_map.move m SET state = 'cutting_over', attempts = m.attempts + 1,
        journal = m.journal || jsonb_build_object('attempt', m.attempts + 1)
    WHERE m.move_id = move;
    PERFORM shardgate_map.set_partitions_of(move, 'held');
    SELECT c.incarnation INTO hold_move.incarnation FROM shardgate_map.cluster c;
END $$;

-- The hold ends without a switch: the source has them still.
CREATE FUNCTION shardgate_map.release_move(actor text, move int, term bigint, error text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    driven shardgate_map.move;
BEGIN
    PERFORM shardgate_map.lock_map();
    driven := shardgate_map.require_term(move, term);
    IF driven.state <> 'cutting_over' THEN
        RETURN;
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'release_move', jsonb_build_object('move', move));
    UPDATE shardgate_map.move m SET state = 'catching_up', error = release_move.error WHERE m.move_id = move;
    PERFORM shardgate_map.set_partitions_of(move, 'moving');
END $$;

-- The point of no return. Of a map that has failed over since the hold nothing is switched: what it knows may be older than what the
-- shards have done. The set stays held, under its new owner.
CREATE FUNCTION shardgate_map.switch_move(actor text, move int, term bigint, held_in bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    driven shardgate_map.move;
    changed bigint;
BEGIN
    PERFORM shardgate_map.lock_map();
    driven := shardgate_map.require_term(move, term);
    IF driven.state = 'switched' THEN
        RETURN;
    END IF;
    IF driven.state <> 'cutting_over' THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s is in state "%s", not "cutting_over"', move, driven.state);
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'switch_move', jsonb_build_object('move', move, 'source', driven.source, 'target', driven.target));
    IF held_in IS DISTINCT FROM (SELECT c.incarnation FROM shardgate_map.cluster c) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'the map database has failed over since the partitions were held';
    END IF;
    UPDATE shardgate_map.partition p SET shard_id = t.shard_id
    FROM shardgate_map.move_partition m, shardgate_map.shard s, shardgate_map.shard t
    WHERE m.move_id = move AND p.partition_id = m.partition_id AND s.name = driven.source AND t.name = driven.target
      AND p.shard_id = s.shard_id AND p.state = 'held';
    GET DIAGNOSTICS changed = ROW_COUNT;
    IF changed <> (SELECT count(*) FROM shardgate_map.move_partition m WHERE m.move_id = move) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('the partitions of move %s are not as it has left them', move);
    END IF;
    UPDATE shardgate_map.move m SET state = 'switched', switched_at = clock_timestamp(), error = NULL,
        asked = CASE WHEN m.asked = 'finish' THEN m.asked END
    WHERE m.move_id = move;
END $$;

-- Statements of the set go on, at the new owner. Gives the epoch by which they do.
CREATE FUNCTION shardgate_map.open_move(actor text, move int, term bigint, pause_ms float8, OUT incarnation bigint, OUT counter bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    IF (shardgate_map.require_term(move, term)).state <> 'switched' THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s has not switched', move);
    END IF;
    counter := shardgate_map.begin_change(actor, 'open_move', jsonb_build_object('move', move));
    PERFORM shardgate_map.set_partitions_of(move, 'online');
    UPDATE shardgate_map.move m SET pause_ms = coalesce(open_move.pause_ms, m.pause_ms),
        journal = m.journal || jsonb_build_object('opened', counter)
    WHERE m.move_id = move;
    SELECT c.incarnation INTO open_move.incarnation FROM shardgate_map.cluster c;
END $$;

-- Nothing of it is left on a shard.
CREATE FUNCTION shardgate_map.end_move(actor text, move int, term bigint, final_state text, error text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    driven shardgate_map.move;
BEGIN
    PERFORM shardgate_map.lock_map();
    driven := shardgate_map.require_term(move, term);
    IF driven.state IS DISTINCT FROM (CASE final_state WHEN 'done' THEN 'cleaning_up' ELSE 'aborting' END) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s is in state "%s" and cannot end', move, driven.state);
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'end_move', jsonb_build_object('move', move, 'state', final_state));
    PERFORM shardgate_map.set_partitions_of(move, 'online');
    UPDATE shardgate_map.move m SET state = final_state, ended_at = clock_timestamp(), error = end_move.error, driver = NULL, asked = NULL
    WHERE m.move_id = move;
    UPDATE shardgate_map.colocation_group g SET has_residues = false
    WHERE g.group_id = driven.group_id AND g.has_residues
      AND NOT EXISTS (SELECT FROM shardgate_map.move m
                      WHERE m.group_id = driven.group_id AND m.state NOT IN ('planned', 'done', 'aborted'));
END $$;

-- A move that was planned and has touched nothing ends at once.
CREATE FUNCTION shardgate_map.withdraw_move(actor text, move int, term bigint, error text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (shardgate_map.require_term(move, term)).state <> 'planned' THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s has begun', move);
    END IF;
    UPDATE shardgate_map.move m SET state = 'aborted', ended_at = clock_timestamp(), error = withdraw_move.error, driver = NULL
    WHERE m.move_id = move;
END $$;
