-- Statements of the set wait from this epoch on. A move that has switched is held to be rolled back: while that is asked for, or where the
-- source is known to own the set already.
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
    IF goes_back AND driven.asked IS DISTINCT FROM 'rollback' AND NOT driven.journal ? 'decided_elsewhere' THEN
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
