-- A change of the schema that meets a move waits for it only where the move ends soon. One that waits out its grace period, or waits for
-- a person, does not: the change is refused at once, and no other move gives way for nothing.

CREATE FUNCTION shardgate_map.refuse_schema_change(move int, state text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = format('the schema cannot be changed while move %s runs', move),
        DETAIL = format('Its state is "%s". Nothing was changed.', state), HINT = shardgate_map.way_out(move, state);
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
        PERFORM shardgate_map.refuse_schema_change(moving.move_id, moving.state);
    END IF;
    RETURN shardgate_map.begin_schema_change(actor, command_tag, proxy_id);
END $$;

-- patience: for how long the change would wait.
DROP FUNCTION shardgate_map.give_way(text);
CREATE FUNCTION shardgate_map.give_way(asked_by text, patience interval) RETURNS int[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    staying record;
BEGIN
    SELECT m.move_id, m.state INTO staying FROM shardgate_map.move m
    WHERE m.state = 'failed'
       OR m.state = 'switched' AND m.asked IS NULL AND (
           m.journal ? 'differs' OR coalesce((m.options ->> 'keep')::bool, false)
           OR coalesce(m.finish_at, clock_timestamp() + make_interval(secs => coalesce((m.options ->> 'grace_ms')::float8, 0) / 1000))
              > clock_timestamp() + patience)
    ORDER BY m.move_id LIMIT 1;
    IF FOUND THEN
        PERFORM shardgate_map.refuse_schema_change(staying.move_id, staying.state);
    END IF;
    UPDATE shardgate_map.move m SET asked = 'abort', asked_by = give_way.asked_by
    WHERE m.state IN ('preparing', 'copying', 'catching_up', 'verifying', 'cutting_over') AND NOT m.is_rollback
      AND m.asked IS DISTINCT FROM 'abort';
    RETURN array(SELECT m.move_id FROM shardgate_map.move m WHERE m.state NOT IN ('planned', 'done', 'aborted') ORDER BY m.move_id);
END $$;
