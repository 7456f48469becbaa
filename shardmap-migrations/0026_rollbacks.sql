-- After its switch a move waits out a grace period, in which the copies at the source follow what is written at the target, so that it
-- can be rolled back: the same cut-over with source and target exchanged. It ends in the state aborted.

ALTER TABLE shardgate_map.move
    -- The set goes back to the source, or has gone back.
    ADD COLUMN is_rollback bool NOT NULL DEFAULT false,
    -- When the source's rows are deleted; null: not before it is asked for.
    ADD COLUMN finish_at timestamptz,
    DROP CONSTRAINT move_asked_check,
    ADD CONSTRAINT move_asked_check CHECK (asked IN ('abort', 'pause', 'cutover', 'finish', 'finish_unverified', 'rollback'));

-- The source follows the target.
CREATE FUNCTION shardgate_map.can_roll_back(m shardgate_map.move) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT m.state = 'switched' AND m.journal ? 'reverse_began' AND NOT m.journal ?| ARRAY['reverse_lost', 'finishing']
$$;

CREATE OR REPLACE VIEW shardgate.moves AS
SELECT m.move_id, p.partition_id, m.source, m.target, m.state, m.rows_copied, m.bytes_copied, m.lag_bytes, m.pause_ms,
       m.started_at, m.error, m.bytes_expected, m.expected_pause_ms, m.attempts, m.asked, m.switched_at, m.ended_at,
       m.finish_at, shardgate_map.can_roll_back(m) AS can_roll_back
FROM shardgate_map.move m JOIN shardgate_map.move_partition p USING (move_id);

-- What ends a move that is in the way.
CREATE FUNCTION shardgate_map.way_out(move int, state text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN state = 'switched' THEN format('End it with "shard-rebalance finish %s", or move its partitions back with "shard-rebalance rollback %s".', move, move)
        WHEN state IN ('cleaning_up', 'aborting', 'failed') THEN format('Repeat it when the move has ended; "shard-rebalance show %s" says how far it is.', move)
        ELSE format('Repeat it when the move has ended, or end it with "shard-rebalance abort %s".', move) END
$$;

CREATE OR REPLACE FUNCTION shardgate_map.refuse_if_moving(partitions int[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    running record;
BEGIN
    SELECT * INTO running FROM shardgate_map.running_moves() m WHERE m.partition_id = ANY (partitions) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = format('partition %s is being moved', running.partition_id),
            DETAIL = format('Move %s is in state "%s". Keys, tables, splits, merges and other moves of its partition are locked until one of its two copies is gone.',
                            running.move_id, running.state),
            HINT = shardgate_map.way_out(running.move_id, running.state);
    END IF;
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
            HINT = shardgate_map.way_out(moving.move_id, moving.state);
    END IF;
    RETURN shardgate_map.begin_schema_change(actor, command_tag, proxy_id);
END $$;

CREATE OR REPLACE FUNCTION shardgate_map.give_way(asked_by text) RETURNS int[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE shardgate_map.move m SET asked = 'abort', asked_by = give_way.asked_by
    WHERE m.state IN ('preparing', 'copying', 'catching_up', 'verifying', 'cutting_over') AND NOT m.is_rollback
      AND m.asked IS DISTINCT FROM 'abort';
    RETURN array(SELECT m.move_id FROM shardgate_map.move m WHERE m.state NOT IN ('planned', 'done', 'aborted') ORDER BY m.move_id);
END $$;

CREATE FUNCTION shardgate_map.refuse_rollback(m shardgate_map.move) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF m.is_rollback OR shardgate_map.can_roll_back(m) THEN
        RETURN;
    END IF;
    RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s cannot be rolled back', m.move_id),
        DETAIL = CASE
            WHEN m.state IN ('cleaning_up', 'done') THEN format('The rows at shard "%s" are deleted.', m.source)
            WHEN m.state = 'aborted' THEN 'It was aborted before its switch.'
            WHEN m.state = 'failed' THEN 'It waits for a person.'
            WHEN m.state <> 'switched' THEN format('Its state is "%s": it has not switched.', m.state)
            WHEN m.journal ? 'reverse_lost' THEN format('The copies at shard "%s" do not follow any more: %s.', m.source, m.journal ->> 'reverse_lost')
            WHEN m.journal ? 'finishing' THEN 'It is being finished.'
            ELSE format('The copies at shard "%s" do not follow what is written at shard "%s".', m.source, m.target) END,
        HINT = CASE
            WHEN m.state IN ('switched', 'cleaning_up', 'done')
                THEN format('Move the partitions back with "shard-rebalance move" when move %s is done.', m.move_id)
            WHEN m.state IN ('aborting', 'aborted', 'failed') THEN format('"shard-rebalance show %s" says how it stands.', m.move_id)
            ELSE format('"shard-rebalance abort %s" ends a move before its switch.', m.move_id) END;
END $$;

-- What a person wants. Gives the state of the move. driver: drives a move that nobody drives now.
DROP FUNCTION shardgate_map.ask_move(text, int, text);
CREATE FUNCTION shardgate_map.ask_move(actor text, move int, what text, driver bigint) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asked_move shardgate_map.move := shardgate_map.require_move(move);
BEGIN
    IF what = 'rollback' THEN
        PERFORM shardgate_map.refuse_rollback(asked_move);
        IF asked_move.state IN ('aborting', 'aborted') THEN
            RETURN asked_move.state;
        END IF;
    END IF;
    IF asked_move.state IN ('done', 'aborted') OR (what = 'abort' AND asked_move.state = 'aborting')
       OR (what IN ('finish', 'finish_unverified') AND asked_move.state = 'cleaning_up') THEN
        RETURN asked_move.state;
    END IF;
    IF what = 'abort' AND asked_move.asked = 'rollback' THEN
        -- The target owns the set, as before.
        what := 'resume';
    ELSIF what IN ('abort', 'pause', 'cutover') AND (asked_move.state IN ('switched', 'cleaning_up') OR asked_move.is_rollback) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s has switched already', move),
            DETAIL = format('Its partitions are on shard "%s".', asked_move.target),
            HINT = CASE WHEN shardgate_map.can_roll_back(asked_move)
                THEN format('Move them back with "shard-rebalance rollback %s".', move)
                ELSE format('Move them back with "shard-rebalance move" when move %s is done.', move) END;
    END IF;
    UPDATE shardgate_map.move m SET asked = nullif(what, 'resume'), asked_by = actor,
        driver = coalesce(m.driver, ask_move.driver),
        driver_seen = CASE WHEN m.driver IS NULL AND ask_move.driver IS NOT NULL THEN clock_timestamp() ELSE m.driver_seen END
    WHERE m.move_id = move;
    RETURN asked_move.state;
END $$;

-- From one state to another, with what is to be remembered. A move of another state: nothing is changed, and 55000. What has become
-- impossible is not asked for any more; a move that is to be rolled back is not finished.
CREATE OR REPLACE FUNCTION shardgate_map.advance_move(move int, term bigint, from_state text, to_state text, remembered jsonb, error text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    driven shardgate_map.move := shardgate_map.require_term(move, term);
BEGIN
    IF driven.state <> from_state THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s is in state "%s", not "%s"', move, driven.state, from_state);
    END IF;
    IF remembered ? 'finishing' AND driven.asked = 'rollback' THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s is to be rolled back', move);
    END IF;
    UPDATE shardgate_map.move m SET state = to_state, journal = m.journal || coalesce(remembered, '{}'), error = advance_move.error,
        asked = CASE WHEN remembered ? 'reverse_lost' AND m.asked = 'rollback' THEN NULL
                     WHEN remembered ? 'differs' AND m.asked = 'finish' THEN NULL
                     ELSE m.asked END,
        bytes_expected = coalesce((remembered ->> 'bytes_expected')::bigint, m.bytes_expected),
        expected_pause_ms = coalesce((remembered ->> 'expected_pause_ms')::float8, m.expected_pause_ms)
    WHERE m.move_id = move;
END $$;

-- Statements of the set wait from this epoch on. Of a move that has switched: it is to be rolled back.
CREATE OR REPLACE FUNCTION shardgate_map.hold_move(actor text, move int, term bigint, OUT incarnation bigint, OUT counter bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    driven shardgate_map.move;
    goes_back bool;
BEGIN
    PERFORM shardgate_map.lock_map();
    driven := shardgate_map.require_term(move, term);
    goes_back := driven.state = 'switched';
    IF driven.state NOT IN ('catching_up', 'verifying', 'switched') THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s is in state "%s" and cannot be cut over', move, driven.state);
    END IF;
    counter := shardgate_map.begin_change(actor, 'hold_move', jsonb_build_object('move', move, 'attempt', driven.attempts + 1));
    UPDATE shardgate_map.move m SET state = 'cutting_over', is_rollback = goes_back, attempts = m.attempts + 1,
        journal = m.journal || jsonb_build_object('attempt', m.attempts + 1) || CASE WHEN goes_back
            THEN jsonb_build_object('rollback_attempts', coalesce((m.journal ->> 'rollback_attempts')::int, 0) + 1) ELSE '{}' END
    WHERE m.move_id = move;
    PERFORM shardgate_map.set_partitions_of(move, 'held');
    SELECT c.incarnation INTO hold_move.incarnation FROM shardgate_map.cluster c;
END $$;

-- The hold ends without a switch: the owner has them still.
CREATE OR REPLACE FUNCTION shardgate_map.release_move(actor text, move int, term bigint, error text) RETURNS void
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
    UPDATE shardgate_map.move m SET state = CASE WHEN driven.is_rollback THEN 'switched' ELSE 'catching_up' END, is_rollback = false,
        error = release_move.error
    WHERE m.move_id = move;
    PERFORM shardgate_map.set_partitions_of(move, CASE WHEN driven.is_rollback THEN 'online' ELSE 'moving' END);
END $$;

-- The point of no return. Of a map that has failed over since the hold nothing is switched: what it knows may be older than what the
-- shards have done. The set stays held, under its new owner: the target, or the source again.
CREATE OR REPLACE FUNCTION shardgate_map.switch_move(actor text, move int, term bigint, held_in bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    driven shardgate_map.move;
    old_owner text;
    new_owner text;
    changed bigint;
BEGIN
    PERFORM shardgate_map.lock_map();
    driven := shardgate_map.require_term(move, term);
    IF driven.state = (CASE WHEN driven.is_rollback THEN 'aborting' ELSE 'switched' END) THEN
        RETURN;
    END IF;
    IF driven.state <> 'cutting_over' THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s is in state "%s", not "cutting_over"', move, driven.state);
    END IF;
    old_owner := CASE WHEN driven.is_rollback THEN driven.target ELSE driven.source END;
    new_owner := CASE WHEN driven.is_rollback THEN driven.source ELSE driven.target END;
    PERFORM shardgate_map.begin_change(actor, 'switch_move', jsonb_build_object('move', move, 'source', old_owner, 'target', new_owner));
    IF held_in IS DISTINCT FROM (SELECT c.incarnation FROM shardgate_map.cluster c) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'the map database has failed over since the partitions were held';
    END IF;
    UPDATE shardgate_map.partition p SET shard_id = t.shard_id
    FROM shardgate_map.move_partition m, shardgate_map.shard s, shardgate_map.shard t
    WHERE m.move_id = move AND p.partition_id = m.partition_id AND s.name = old_owner AND t.name = new_owner
      AND p.shard_id = s.shard_id AND p.state = 'held';
    GET DIAGNOSTICS changed = ROW_COUNT;
    IF changed <> (SELECT count(*) FROM shardgate_map.move_partition m WHERE m.move_id = move) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('the partitions of move %s are not as it has left them', move);
    END IF;
    UPDATE shardgate_map.move m SET state = CASE WHEN driven.is_rollback THEN 'aborting' ELSE 'switched' END,
        switched_at = coalesce(m.switched_at, clock_timestamp()), error = NULL,
        asked = CASE WHEN m.asked IN ('finish', 'finish_unverified') AND NOT driven.is_rollback THEN m.asked END
    WHERE m.move_id = move;
END $$;

-- Statements of the set go on, at the new owner. Gives the epoch by which they do.
CREATE OR REPLACE FUNCTION shardgate_map.open_move(actor text, move int, term bigint, pause_ms float8, OUT incarnation bigint, OUT counter bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    driven shardgate_map.move;
BEGIN
    PERFORM shardgate_map.lock_map();
    driven := shardgate_map.require_term(move, term);
    IF driven.state <> (CASE WHEN driven.is_rollback THEN 'aborting' ELSE 'switched' END) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s has not switched', move);
    END IF;
    counter := shardgate_map.begin_change(actor, 'open_move', jsonb_build_object('move', move));
    PERFORM shardgate_map.set_partitions_of(move, 'online');
    UPDATE shardgate_map.move m SET pause_ms = coalesce(open_move.pause_ms, m.pause_ms),
        finish_at = CASE WHEN driven.is_rollback OR coalesce((m.options ->> 'keep')::bool, false) THEN NULL
            ELSE clock_timestamp() + make_interval(secs => coalesce((m.options ->> 'grace_ms')::float8, 0) / 1000) END,
        journal = m.journal || jsonb_build_object(CASE WHEN driven.is_rollback THEN 'reopened' ELSE 'opened' END, counter)
    WHERE m.move_id = move;
    SELECT c.incarnation INTO open_move.incarnation FROM shardgate_map.cluster c;
END $$;
