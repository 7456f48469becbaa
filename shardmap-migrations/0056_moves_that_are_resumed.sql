-- A move that has failed, and is to go on, is asked to until it goes on or fails again: what its driver remembers meanwhile, a shard that is slow to
-- answer for one, changes nothing of that.

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
                     WHEN remembered ? 'differs' AND m.asked IN ('finish', 'rollback') THEN NULL
                     WHEN m.asked = 'resume' AND (to_state <> from_state OR remembered ? 'failed_in') THEN NULL
                     ELSE m.asked END,
        bytes_expected = coalesce((remembered ->> 'bytes_expected')::bigint, m.bytes_expected),
        expected_pause_ms = coalesce((remembered ->> 'expected_pause_ms')::float8, m.expected_pause_ms)
    WHERE m.move_id = move;
END $$;
