-- A map that fails over to a server which has not heard of the last terms must not give one of them again: a driver of the map before
-- could not be told from one of the map now. So terms are at least the time in milliseconds, as a map's incarnations are.
CREATE OR REPLACE FUNCTION shardgate_map.take_move(move int, driver bigint, lease interval, cutover_lease interval) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    taken shardgate_map.move := shardgate_map.require_move(move);
    next_term bigint := greatest(taken.term + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    is_held bool := EXISTS (
        SELECT FROM shardgate_map.move_partition m JOIN shardgate_map.partition p USING (partition_id)
        WHERE m.move_id = move AND p.state = 'held');
BEGIN
    IF taken.driver IS NOT NULL AND taken.driver <> take_move.driver
       AND taken.driver_seen > clock_timestamp() - (CASE WHEN is_held THEN cutover_lease ELSE lease END) THEN
        RETURN NULL;
    END IF;
    UPDATE shardgate_map.move m SET driver = take_move.driver, driver_seen = clock_timestamp(), term = next_term
    WHERE m.move_id = move;
    RETURN next_term;
END $$;
