-- Ages are measured on one clock, and a cut-over is rehearsed without a client that could stand still in the middle.

-- Called on each new connection: a server that is not the one which gave the incarnation takes a new one. Its clock may differ from the one
-- before: who was heard of there is heard of now, and has a whole lease from here on. What is left of a grace period is counted from when a
-- proxy was heard of last.
CREATE OR REPLACE FUNCTION shardgate_map.adopt() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    server record;
    last_heard timestamptz;
BEGIN
    SELECT * INTO STRICT server FROM shardgate_map.server_identity();
    IF server.timeline IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '25006', MESSAGE = 'the map database is a standby',
            HINT = 'Let map.url name the primary, or all servers with target_session_attrs=read-write.';
    END IF;
    IF EXISTS (SELECT FROM shardgate_map.cluster c
               WHERE (c.system_identifier, c.timeline) = (server.system_identifier, server.timeline)) THEN
        RETURN;
    END IF;
    PERFORM shardgate_map.lock_map();
    IF EXISTS (SELECT FROM shardgate_map.cluster c
               WHERE (c.system_identifier, c.timeline) <> (server.system_identifier, server.timeline)) THEN
        PERFORM shardgate_map.begin_change('shardgate', 'adopt', jsonb_build_object('timeline', server.timeline));
        SELECT max(p.last_seen) INTO last_heard FROM shardgate_map.proxy p;
        UPDATE shardgate_map.move m SET finish_at = m.finish_at + (clock_timestamp() - last_heard)
        WHERE m.finish_at IS NOT NULL AND last_heard IS NOT NULL AND m.state NOT IN ('done', 'aborted');
        UPDATE shardgate_map.move m SET driver_seen = clock_timestamp() WHERE m.driver IS NOT NULL AND m.state NOT IN ('done', 'aborted');
        UPDATE shardgate_map.proxy p SET last_seen = clock_timestamp();
        UPDATE shardgate_map.fence f SET begun_at = clock_timestamp();
    END IF;
END $$;

-- A shard knows a higher term of the move than this driver's, which the map has given last: the map has failed over, and has forgotten
-- terms. The next one is higher than all of them, whatever the clock says.
CREATE FUNCTION shardgate_map.raise_term(move int, term bigint, known bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.require_term(move, term);
    UPDATE shardgate_map.move m SET term = greatest(m.term, known) WHERE m.move_id = raise_term.move;
END $$;

-- The driver lives. Gives what is asked of the move. Numbers that are null stay. What a move has ended with stays as well: a driver may tell
-- once more what it was doing.
CREATE OR REPLACE FUNCTION shardgate_map.keep_move(move int, term bigint, rows_copied bigint, bytes_copied bigint, lag_bytes bigint, error text)
RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept shardgate_map.move := shardgate_map.require_term(move, term);
BEGIN
    UPDATE shardgate_map.move m SET rows_copied = coalesce(keep_move.rows_copied, m.rows_copied),
        bytes_copied = coalesce(keep_move.bytes_copied, m.bytes_copied), lag_bytes = coalesce(keep_move.lag_bytes, m.lag_bytes),
        error = keep_move.error
    WHERE m.move_id = move AND m.state NOT IN ('done', 'aborted');
    RETURN kept.asked;
END $$;

-- All that a cut-over changes, and nothing of it stays: the server's process has done each once, and what would be refused is refused before
-- anybody waits. Others wait for the map's lock as long as for any change.
CREATE FUNCTION shardgate_map.rehearse_cut_over(actor text, move int, term bigint, source_system bigint, source_timeline int,
                                                target_system bigint, target_timeline int) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held record;
BEGIN
    SELECT h.* INTO STRICT held FROM shardgate_map.hold_move(actor, move, term) h;
    PERFORM shardgate_map.switch_move(actor, move, term, held.incarnation, source_system, source_timeline, target_system, target_timeline);
    PERFORM shardgate_map.open_move(actor, move, term, NULL::float8);
    RAISE EXCEPTION USING ERRCODE = 'SG005', MESSAGE = 'a cut-over was rehearsed';
EXCEPTION WHEN SQLSTATE 'SG005' THEN
    RETURN;
END $$;
