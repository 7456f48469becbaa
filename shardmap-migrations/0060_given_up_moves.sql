-- A move one of whose shards is lost for good is given up: it ends without that shard. What the lost server has of it is owed: should the
-- server come back, its rows must not be read before they are deleted. So the shard is in maintenance as long as it owes something.

CREATE TABLE shardgate_map.owed (
    move_id int PRIMARY KEY REFERENCES shardgate_map.move ON DELETE CASCADE,
    shard_id int NOT NULL REFERENCES shardgate_map.shard ON DELETE CASCADE,
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX owed_shard ON shardgate_map.owed (shard_id);

-- what: which verb asks, abort or finish. lost: source or target. Gives the state of the move. Whoever gives it up drives it: one who waits for
-- the lost shard may be of a version that knows no other end.
CREATE FUNCTION shardgate_map.give_up_move(actor text, move int, what text, lost text, driver bigint) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    given_up shardgate_map.move;
    lost_shard text;
    kept_shard text;
    owners text[];
BEGIN
    PERFORM shardgate_map.lock_map();
    given_up := shardgate_map.require_move(move);
    IF given_up.state IN ('done', 'aborted') THEN
        RETURN given_up.state;
    END IF;
    IF given_up.state = 'planned' THEN
        -- It has touched nothing.
        RETURN shardgate_map.ask_move(actor, move, 'abort', driver);
    END IF;
    lost_shard := CASE lost WHEN 'source' THEN given_up.source ELSE given_up.target END;
    kept_shard := CASE lost WHEN 'source' THEN given_up.target ELSE given_up.source END;
    SELECT array_agg(DISTINCT s.name) INTO owners
    FROM shardgate_map.move_partition m JOIN shardgate_map.partition p USING (partition_id) JOIN shardgate_map.shard s USING (shard_id)
    WHERE m.move_id = move;
    IF owners IS DISTINCT FROM ARRAY[kept_shard] THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s cannot be given up without shard "%s"', move, lost_shard),
            DETAIL = CASE
                WHEN owners IS DISTINCT FROM ARRAY[lost_shard] THEN 'Neither of both shards owns all of the partitions.'
                WHEN lost = 'target' THEN
                    format('It owns the partitions: what was written there since the switch shard "%s" does not have, or not for certain.', kept_shard)
                ELSE format('It owns the partitions: what shard "%s" has of them is a copy, which may be all that is left.', kept_shard) END,
            HINT = format('Promote a standby or restore a backup, and let shardgate.alter_shard(''%s'', url => …) name it: the move goes on by itself.',
                          lost_shard);
    END IF;
    IF what <> (CASE lost WHEN 'source' THEN 'finish' ELSE 'abort' END) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('shard "%s" owns the partitions of move %s', kept_shard, move),
            HINT = format('Use "shard-rebalance %s %s --lost %s".', CASE lost WHEN 'source' THEN 'finish' ELSE 'abort' END, move, lost);
    END IF;
    IF given_up.journal ->> 'lost' IS DISTINCT FROM lost THEN
        PERFORM shardgate_map.begin_change(actor, 'give_up_move', jsonb_build_object('move', move, 'lost', lost_shard));
        INSERT INTO shardgate_map.owed (move_id, shard_id)
        SELECT move, s.shard_id FROM shardgate_map.shard s WHERE s.name = lost_shard;
        UPDATE shardgate_map.shard s SET state = 'maintenance' WHERE s.name = lost_shard;
    END IF;
    UPDATE shardgate_map.move m SET journal = m.journal || jsonb_build_object('lost', lost), asked_by = actor,
        asked = CASE WHEN m.state = 'failed' THEN 'resume' WHEN lost = 'target' THEN 'abort' ELSE 'finish_unverified' END,
        driver = coalesce(give_up_move.driver, m.driver), driver_seen = clock_timestamp()
    WHERE m.move_id = move;
    RETURN given_up.state;
END $$;

-- Nothing of the move is on the shard any more. Moves that have begun meanwhile have made no covering views there.
CREATE FUNCTION shardgate_map.settle_owed(actor text, move int) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    settled shardgate_map.owed;
    running int;
BEGIN
    PERFORM shardgate_map.lock_map();
    SELECT min(m.move_id) INTO running FROM shardgate_map.move m WHERE m.state NOT IN ('planned', 'done', 'aborted');
    IF running IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = format('move %s runs', running),
            HINT = 'Run "shard-rebalance doctor --fix" again when no move runs.';
    END IF;
    DELETE FROM shardgate_map.owed o WHERE o.move_id = move RETURNING * INTO settled;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'settle_owed', jsonb_build_object('move', move));
    -- So that proxies read it again.
    UPDATE shardgate_map.shard s SET state = s.state WHERE s.shard_id = settled.shard_id;
END $$;

-- The side that was lost has been found, or another server in its place: the move goes on with both.
CREATE FUNCTION shardgate_map.is_back(actor text, m shardgate_map.move) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    PERFORM shardgate_map.begin_change(actor, 'take_up_move', jsonb_build_object('move', m.move_id));
    DELETE FROM shardgate_map.owed o WHERE o.move_id = m.move_id;
    UPDATE shardgate_map.shard s SET state = s.state WHERE s.name = (CASE m.journal ->> 'lost' WHEN 'source' THEN m.source ELSE m.target END);
    UPDATE shardgate_map.move SET journal = journal - 'lost' WHERE move_id = m.move_id;
END $$;

-- A move that is given up goes nowhere else, whoever drives it, and whatever is asked of it.
CREATE FUNCTION shardgate_map.refuse_given_up(m shardgate_map.move) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF m.journal ? 'lost' THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s is given up', m.move_id),
            DETAIL = format('It ends without shard "%s".', CASE m.journal ->> 'lost' WHEN 'source' THEN m.source ELSE m.target END),
            HINT = format('"shard-rebalance show %s" says how far it is.', m.move_id);
    END IF;
END $$;

DO $replaced$
DECLARE
    definition text;
    replaced text[];
BEGIN
    FOREACH replaced SLICE 1 IN ARRAY ARRAY[
        ['shardgate_map.hold_move(text, int, bigint)',
         $o$driven := shardgate_map.require_term(move, term);$o$,
         $n$driven := shardgate_map.require_term(move, term);
    PERFORM shardgate_map.refuse_given_up(driven);$n$],
        ['shardgate_map.switch_move(text, int, bigint, bigint, bigint, int, bigint, int)',
         $o$IF driven.state <> 'cutting_over' THEN$o$,
         $n$PERFORM shardgate_map.refuse_given_up(driven);
    IF driven.state <> 'cutting_over' THEN$n$],
        ['shardgate_map.ask_move(text, int, text, bigint)',
         $o$IF asked_move.state = 'failed' AND what <> 'resume' THEN$o$,
         $n$IF what <> 'resume' THEN
        PERFORM shardgate_map.refuse_given_up(asked_move);
    ELSIF asked_move.state = 'failed' AND asked_move.journal ? 'lost' THEN
        PERFORM shardgate_map.is_back(actor, asked_move);
    END IF;
    IF asked_move.state = 'failed' AND what <> 'resume' THEN$n$],
        ['shardgate_map.alter_shard(text, text, text, uuid, text, float8, text, text)',
         $o$IF wanted IS NOT DISTINCT FROM known THEN$o$,
         $n$IF wanted.state <> 'maintenance' AND EXISTS (SELECT FROM shardgate_map.owed o WHERE o.shard_id = known.shard_id) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('shard "%s" may have rows that it does not own', name),
            DETAIL = format('Move %s was given up while it was away.',
                            (SELECT min(o.move_id) FROM shardgate_map.owed o WHERE o.shard_id = known.shard_id)),
            HINT = '"shard-rebalance doctor --fix" deletes them; then the shard can be set online.';
    END IF;
    IF wanted IS NOT DISTINCT FROM known THEN$n$],
        ['shardgate_map.can_roll_back(shardgate_map.move)',
         $o$ARRAY['reverse_lost', 'finishing']$o$,
         $n$ARRAY['reverse_lost', 'finishing', 'lost']$n$]
    ]
    LOOP
        definition := pg_catalog.pg_get_functiondef(replaced[1]::regprocedure);
        IF pg_catalog.strpos(definition, replaced[2]) = 0 THEN
            RAISE EXCEPTION 'a part of % was not found', replaced[1];
        END IF;
        EXECUTE pg_catalog.replace(definition, replaced[2], replaced[3]);
    END LOOP;
END $replaced$;
