-- From when to when statements leave out the residues of a move: begun by a change of its own, after the announcement, when each shard
-- has what their texts name; ended by a change of its own, before the shards lose it.

-- A driver of before must not go on by what announce_move() did.
DROP FUNCTION shardgate_map.announce_move(text, int, bigint);

UPDATE shardgate_map.move m SET journal = m.journal || '{"excludes": true}'
WHERE m.state NOT IN ('planned', 'done', 'aborted');

-- From here on changes of the schema are shut out. Null: not yet, another move works on the group at one of the two shards, or the
-- schema is being changed.
CREATE FUNCTION shardgate_map.begin_move(actor text, move int, term bigint) RETURNS bigint
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
    PERFORM shardgate_map.set_partitions_of(move, 'moving');
    RETURN taken;
END $$;

-- Every proxy leaves out residues of the group from the epoch of this change on.
CREATE FUNCTION shardgate_map.begin_exclusion(actor text, move int, term bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    driven shardgate_map.move;
BEGIN
    PERFORM shardgate_map.lock_map();
    driven := shardgate_map.require_term(move, term);
    IF driven.state <> 'preparing' THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s is in state "%s", not "preparing"', move, driven.state);
    END IF;
    IF driven.journal @> '{"excludes": true}' THEN
        RETURN;
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'begin_exclusion', jsonb_build_object('move', move));
    UPDATE shardgate_map.move m SET journal = m.journal || '{"excludes": true}' WHERE m.move_id = move;
    UPDATE shardgate_map.colocation_group g SET has_residues = true WHERE g.group_id = driven.group_id;
END $$;

CREATE FUNCTION shardgate_map.exclude_for_others(move int) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE shardgate_map.colocation_group g SET has_residues = false
    FROM shardgate_map.move m WHERE m.move_id = exclude_for_others.move AND g.group_id = m.group_id AND g.has_residues
      AND NOT EXISTS (SELECT FROM shardgate_map.move other
                      WHERE other.group_id = m.group_id AND other.move_id <> m.move_id
                        AND other.state NOT IN ('planned', 'done', 'aborted') AND other.journal @> '{"excludes": true}')
$$;

-- The move has no residues any more. The epoch from which on no proxy leaves them out, unless another move of the group has some.
CREATE FUNCTION shardgate_map.end_exclusion(actor text, move int, term bigint, OUT incarnation bigint, OUT counter bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    driven shardgate_map.move;
BEGIN
    PERFORM shardgate_map.lock_map();
    driven := shardgate_map.require_term(move, term);
    IF driven.state NOT IN ('aborting', 'cleaning_up') THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('move %s is in state "%s" and may have residues', move, driven.state);
    END IF;
    counter := (driven.journal ->> 'exclusion_ended')::bigint;
    IF counter IS NULL THEN
        counter := shardgate_map.begin_change(actor, 'end_exclusion', jsonb_build_object('move', move));
        UPDATE shardgate_map.move m SET journal = m.journal || jsonb_build_object('excludes', false, 'exclusion_ended', counter)
        WHERE m.move_id = move;
        PERFORM shardgate_map.exclude_for_others(move);
    END IF;
    SELECT c.incarnation INTO end_exclusion.incarnation FROM shardgate_map.cluster c;
END $$;

-- Nothing of it is left on a shard.
CREATE OR REPLACE FUNCTION shardgate_map.end_move(actor text, move int, term bigint, final_state text, error text) RETURNS void
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
    PERFORM shardgate_map.exclude_for_others(move);
END $$;
