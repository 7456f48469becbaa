-- The pause of a move whose driver was lost in the middle of it: since the set was held, as the history has it. What was opened before has
-- its pause already.

CREATE OR REPLACE FUNCTION shardgate_map.open_move(actor text, move int, term bigint, pause_ms float8, OUT incarnation bigint, OUT counter bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    driven shardgate_map.move;
    held_for float8;
BEGIN
    PERFORM shardgate_map.lock_map();
    driven := shardgate_map.require_term(move, term);
    IF driven.state <> (CASE WHEN driven.is_rollback THEN 'aborting' ELSE 'switched' END) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s has not switched', move);
    END IF;
    IF EXISTS (SELECT FROM shardgate_map.partition p JOIN shardgate_map.move_partition mp USING (partition_id)
               WHERE mp.move_id = move AND p.state = 'held') THEN
        SELECT extract(epoch FROM clock_timestamp() - h.changed_at) * 1000 INTO held_for
        FROM shardgate_map.history h
        WHERE h.change = 'hold_move' AND h.arguments @> jsonb_build_object('move', move)
        ORDER BY h.incarnation DESC, h.counter DESC LIMIT 1;
    END IF;
    counter := shardgate_map.begin_change(actor, 'open_move', jsonb_build_object('move', move));
    PERFORM shardgate_map.set_partitions_of(move, 'online');
    UPDATE shardgate_map.move m SET pause_ms = coalesce(open_move.pause_ms, held_for, m.pause_ms),
        finish_at = CASE WHEN driven.is_rollback OR coalesce((m.options ->> 'keep')::bool, false) THEN NULL
            ELSE clock_timestamp() + make_interval(secs => coalesce((m.options ->> 'grace_ms')::float8, 0) / 1000) END,
        journal = m.journal || jsonb_build_object(CASE WHEN driven.is_rollback THEN 'reopened' ELSE 'opened' END, counter)
    WHERE m.move_id = move;
    SELECT c.incarnation INTO open_move.incarnation FROM shardgate_map.cluster c;
END $$;
