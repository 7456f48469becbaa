-- A rollback whose source has failed over since, and may lack rows that only the target still has, waits for a person, who says so when the
-- target's rows can go: it alone is let go on by this.

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
    IF what = 'rollback_unverified' AND NOT (asked_move.is_rollback AND asked_move.state = 'aborted') THEN
        -- Only of what has failed is there anything to look at.
        IF NOT asked_move.is_rollback OR asked_move.state <> 'failed' THEN
            RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s does not wait for "rollback --unverified"', move),
                DETAIL = format('Its state is "%s".', asked_move.state), HINT = format('"shard-rebalance show %s" says how it stands.', move);
        END IF;
        UPDATE shardgate_map.move m SET journal = m.journal || '{"rolled_back_unverified": true}' WHERE m.move_id = ask_move.move;
        what := 'resume';
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
