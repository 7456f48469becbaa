-- Pieces by time that were made and not carried to the shard whose turn it was: they are carried later, and the reason stays until then.

CREATE TABLE shardgate_map.time_piece (
    partition_id int PRIMARY KEY REFERENCES shardgate_map.partition ON DELETE CASCADE,
    -- Where it was made. Once it is somewhere else, it is nobody's trouble any more.
    made_on int NOT NULL,
    shard text NOT NULL,
    error text NOT NULL,
    again_at timestamptz NOT NULL
);

CREATE VIEW shardgate_map.time_piece_astray AS
SELECT p.group_id, p.partition_id, p.low, p.low_text, p.state, c.shard, c.error, c.again_at,
       format('partition %s, from %s, is not on shard "%s": %s', p.partition_id, p.low_text, c.shard, c.error) AS told
FROM shardgate_map.time_piece c JOIN shardgate_map.partition p USING (partition_id)
WHERE p.shard_id = c.made_on;

CREATE OR REPLACE VIEW shardgate.time_partitions AS
SELECT t.group_id AS colocation_group, t.every::text AS every, t.ahead, t.on_shards, t.made,
       nullif(concat_ws(E'\n', t.error,
           (SELECT string_agg(a.told, E'\n' ORDER BY a.low) FROM shardgate_map.time_piece_astray a WHERE a.group_id = t.group_id)), '') AS error
FROM shardgate_map.time_partitions t;

CREATE FUNCTION shardgate_map.time_piece_not_carried(partition int, shard text, reason text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO shardgate_map.time_piece (partition_id, made_on, shard, error, again_at)
    SELECT p.partition_id, p.shard_id, time_piece_not_carried.shard, reason, clock_timestamp() + interval '2 minutes'
    FROM shardgate_map.partition p WHERE p.partition_id = partition
    ON CONFLICT (partition_id) DO UPDATE
        SET made_on = EXCLUDED.made_on, shard = EXCLUDED.shard, error = EXCLUDED.error, again_at = EXCLUDED.again_at
$$;

-- One that is to be carried now, by who asks: nobody else gets it for two minutes. One that has begun may have rows, and stays.
CREATE FUNCTION shardgate_map.claim_time_piece(OUT partition_id int, OUT shard text) RETURNS SETOF record
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS $$
BEGIN
    DELETE FROM shardgate_map.time_piece c
    WHERE NOT EXISTS (SELECT FROM shardgate_map.time_piece_astray a WHERE a.partition_id = c.partition_id);
    RETURN QUERY
    UPDATE shardgate_map.time_piece c SET again_at = clock_timestamp() + interval '2 minutes'
    WHERE c.partition_id = (
        SELECT a.partition_id
        FROM shardgate_map.time_piece_astray a
        JOIN shardgate_map.time_piece waiting ON waiting.partition_id = a.partition_id
        JOIN shardgate_map.colocation_group g ON g.group_id = a.group_id
        WHERE a.again_at < clock_timestamp() AND a.state = 'online'
          AND EXISTS (SELECT FROM shardgate_map.time_partitions t WHERE t.group_id = a.group_id)
          AND CASE WHEN g.key_types[1] = 'timestamp with time zone' THEN a.low_text::timestamptz > now()
                   ELSE a.low_text::timestamp > now() AT TIME ZONE 'UTC' END
        ORDER BY a.partition_id LIMIT 1 FOR UPDATE OF waiting SKIP LOCKED)
    RETURNING c.partition_id, c.shard;
END $$;

-- A call that is made again, which begins to count at the last piece, made one more each time: what begins later than now counts,
-- whoever has made it.
CREATE OR REPLACE FUNCTION shardgate_map.next_time_bound(wanted shardgate_map.time_partitions) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS $$
DECLARE
    last timestamp := shardgate_map.last_time_bound(wanted.group_id);
    now_utc timestamp := now() AT TIME ZONE 'UTC';
    key_type text;
    -- The next piece begins after this.
    after timestamp;
    bound timestamp;
    n int;
BEGIN
    SELECT g.key_types[1] INTO key_type FROM shardgate_map.colocation_group g WHERE g.group_id = wanted.group_id;
    IF last IS NOT NULL AND NOT isfinite(last) THEN
        RETURN NULL;
    END IF;
    IF wanted.ahead <= (
        SELECT count(*) FROM shardgate_map.partition p
        WHERE p.group_id = wanted.group_id AND p.low_text IS NOT NULL
          AND CASE WHEN key_type = 'timestamp with time zone' THEN p.low_text::timestamptz > now() ELSE p.low_text::timestamp > now_utc END
    ) THEN
        RETURN NULL;
    END IF;
    after := greatest(now_utc, last);
    -- Months are counted from the anchor, so that the 31st does not become the 28th for ever. An interval's months have 30 days or
    -- more here, so that this begins before.
    n := greatest(0, floor(extract(epoch FROM after - wanted.anchor) / (extract(epoch FROM wanted.every) * 1.1))::int - 1);
    LOOP
        bound := wanted.anchor + n * wanted.every;
        EXIT WHEN bound > after;
        n := n + 1;
    END LOOP;
    RETURN CASE key_type WHEN 'date' THEN to_char(bound, 'YYYY-MM-DD')
                         WHEN 'timestamp with time zone' THEN to_char(bound, 'YYYY-MM-DD HH24:MI:SS.US') || '+00'
                         ELSE to_char(bound, 'YYYY-MM-DD HH24:MI:SS.US') END;
END $$;
