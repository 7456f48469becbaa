-- A server that takes over may lack the last blocks of unique ids, and its clock may lag behind: ids that it would give away by that
-- clock may have been given already. So the ids of each incarnation of the map begin a minute after those of the one before. They
-- follow the clock again when that minute is over.
ALTER TABLE shardgate_map.unique_id ADD COLUMN incarnation bigint;
UPDATE shardgate_map.unique_id SET incarnation = (SELECT c.incarnation FROM shardgate_map.cluster c);
ALTER TABLE shardgate_map.unique_id ALTER COLUMN incarnation SET NOT NULL;

-- The upper 41 bits are milliseconds since 2020.
CREATE OR REPLACE FUNCTION shardgate_map.reserve_unique_ids(how_many int) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_id bigint := ((extract(epoch FROM clock_timestamp()) * 1000)::bigint - 1577836800000) << 22;
    minute CONSTANT bigint := 60000::bigint << 22;
    last bigint;
BEGIN
    IF how_many NOT BETWEEN 1 AND 1000000 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'a block has between 1 and 1000000 unique ids';
    END IF;
    UPDATE shardgate_map.unique_id u
    SET last_id = greatest(u.last_id, now_id) + how_many + CASE WHEN u.incarnation = c.incarnation THEN 0 ELSE minute END,
        incarnation = c.incarnation
    FROM shardgate_map.cluster c
    RETURNING u.last_id INTO STRICT last;
    RETURN last - how_many + 1;
END $$;
