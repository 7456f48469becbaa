-- Moves while servers of shards, or of the map, fail over.

-- A server that was asked, and is not the primary as the map knows it, may have been told what the primary does not know. NULL: the mover
-- has not asked which it is.
CREATE FUNCTION shardgate_map.require_primary(shard text, system_identifier bigint, timeline int) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM shardgate_map.shard_primary p JOIN shardgate_map.shard s USING (shard_id)
               WHERE s.name = require_primary.shard
                 AND (p.system_identifier, p.timeline) <> (require_primary.system_identifier, require_primary.timeline)) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('shard "%s" has another primary server since', shard);
    END IF;
END $$;

-- The point of no return. Of a map that has failed over since the hold nothing is switched: what it knows may be older than what the
-- shards have done. Nor where one of the servers that were cut over is not its shard's primary any more: what was written at the primary
-- since has not come over. The set stays held, under its new owner: the target, or the source again.
DROP FUNCTION shardgate_map.switch_move(text, int, bigint, bigint);
CREATE FUNCTION shardgate_map.switch_move(actor text, move int, term bigint, held_in bigint, source_system bigint, source_timeline int,
                                          target_system bigint, target_timeline int) RETURNS void
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
    PERFORM shardgate_map.require_primary(driven.source, source_system, source_timeline);
    PERFORM shardgate_map.require_primary(driven.target, target_system, target_timeline);
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

-- From one state to another, with what is to be remembered. A move of another state: nothing is changed, and 55000. What has become
-- impossible is not asked for any more; a move that is to be rolled back is not finished. One that had failed goes on.
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
                     WHEN remembered ? 'differs' AND m.asked IN ('finish', 'rollback') THEN NULL
                     WHEN m.asked = 'resume' THEN NULL
                     ELSE m.asked END,
        bytes_expected = coalesce((remembered ->> 'bytes_expected')::bigint, m.bytes_expected),
        expected_pause_ms = coalesce((remembered ->> 'expected_pause_ms')::float8, m.expected_pause_ms)
    WHERE m.move_id = move;
END $$;

-- Statements of the set wait from this epoch on. A move that has switched is held to be rolled back: while that is asked for, or where the
-- source is known to own the set already. Where the target is known to own it, a move of any state before its end is held to go on.
CREATE OR REPLACE FUNCTION shardgate_map.hold_move(actor text, move int, term bigint, OUT incarnation bigint, OUT counter bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    driven shardgate_map.move;
    goes_back bool;
    is_decided bool;
BEGIN
    PERFORM shardgate_map.lock_map();
    driven := shardgate_map.require_term(move, term);
    goes_back := driven.state = 'switched';
    is_decided := driven.journal ? 'decided_elsewhere';
    IF driven.state NOT IN ('catching_up', 'verifying', 'switched')
       AND NOT (is_decided AND driven.state IN ('preparing', 'copying', 'aborting') AND NOT driven.is_rollback) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s is in state "%s" and cannot be cut over', move, driven.state);
    END IF;
    IF goes_back AND driven.asked IS DISTINCT FROM 'rollback' AND NOT is_decided THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s is not to be rolled back any more', move);
    END IF;
    counter := shardgate_map.begin_change(actor, 'hold_move', jsonb_build_object('move', move, 'attempt', driven.attempts + 1));
    UPDATE shardgate_map.move m SET state = 'cutting_over', is_rollback = goes_back, attempts = m.attempts + 1,
        journal = m.journal || jsonb_build_object('attempt', m.attempts + 1) || CASE WHEN goes_back
            THEN jsonb_build_object('rollback_attempts', coalesce((m.journal ->> 'rollback_attempts')::int, 0) + 1) ELSE '{}' END
    WHERE m.move_id = move;
    PERFORM shardgate_map.set_partitions_of(move, 'held');
    SELECT c.incarnation INTO hold_move.incarnation FROM shardgate_map.cluster c;
END $$;

-- A move that has failed goes on when a person says so.
ALTER TABLE shardgate_map.move
    DROP CONSTRAINT move_asked_check,
    ADD CONSTRAINT move_asked_check CHECK (asked IN ('abort', 'pause', 'cutover', 'finish', 'finish_unverified', 'rollback', 'resume'));

CREATE OR REPLACE FUNCTION shardgate_map.way_out(move int, state text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN state = 'switched' THEN format('End it with "shard-rebalance finish %s", or move its partitions back with "shard-rebalance rollback %s".', move, move)
        WHEN state = 'failed' THEN format('"shard-rebalance show %s" says why it has failed; "shard-rebalance resume %s" lets it go on.', move, move)
        WHEN state IN ('cleaning_up', 'aborting') THEN format('Repeat it when the move has ended; "shard-rebalance show %s" says how far it is.', move)
        ELSE format('Repeat it when the move has ended, or end it with "shard-rebalance abort %s".', move) END
$$;

-- What a person wants. Gives the state of the move. driver: drives a move that nobody drives now.
CREATE OR REPLACE FUNCTION shardgate_map.ask_move(actor text, move int, what text, driver bigint) RETURNS text
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
    IF asked_move.state = 'failed' AND what <> 'resume' THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s has failed', move),
            DETAIL = coalesce(asked_move.error, 'Why is not on record.'), HINT = shardgate_map.way_out(move, asked_move.state);
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
    UPDATE shardgate_map.move m SET asked = CASE WHEN m.state = 'failed' THEN 'resume' ELSE nullif(what, 'resume') END, asked_by = actor,
        driver = coalesce(m.driver, ask_move.driver),
        driver_seen = CASE WHEN m.driver IS NULL AND ask_move.driver IS NOT NULL THEN clock_timestamp() ELSE m.driver_seen END
    WHERE m.move_id = move;
    RETURN asked_move.state;
END $$;
