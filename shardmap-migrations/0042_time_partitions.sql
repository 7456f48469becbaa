-- Range tables by time whose next pieces are made ahead of now.

CREATE TABLE shardgate_map.time_partitions (
    group_id int PRIMARY KEY REFERENCES shardgate_map.colocation_group ON DELETE CASCADE,
    every interval NOT NULL,
    -- So many pieces begin later than now.
    ahead int NOT NULL CHECK (ahead BETWEEN 1 AND 1000),
    on_shards text NOT NULL,
    -- Pieces begin here and at multiples of "every" after it. UTC.
    anchor timestamp NOT NULL,
    -- How many pieces were made: whose turn it is.
    made int NOT NULL DEFAULT 0,
    -- A proxy works on it until then.
    busy_until timestamptz,
    -- Why the last piece is not on the shard whose turn it was.
    error text
);

CREATE VIEW shardgate.time_partitions AS
SELECT t.group_id AS colocation_group, t.every::text AS every, t.ahead, t.on_shards, t.made, t.error
FROM shardgate_map.time_partitions t;

-- Where the last piece begins, in UTC; NULL: there is only one.
CREATE FUNCTION shardgate_map.last_time_bound(group_id int) RETURNS timestamp
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS $$
DECLARE
    bound text;
BEGIN
    SELECT p.low_text INTO bound FROM shardgate_map.partition p
    WHERE p.group_id = last_time_bound.group_id AND p.low_text IS NOT NULL ORDER BY p.low DESC LIMIT 1;
    IF (SELECT g.key_types[1] FROM shardgate_map.colocation_group g WHERE g.group_id = last_time_bound.group_id) = 'timestamp with time zone' THEN
        RETURN bound::timestamptz AT TIME ZONE 'UTC';
    END IF;
    RETURN bound::timestamp;
END $$;

-- every NULL: no more. Called again, only the pieces to come are others.
CREATE FUNCTION shardgate_map.set_time_partitions(actor text, group_id int, every text, ahead int, on_shards text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' SET intervalstyle = 'postgres' AS $$
DECLARE
    found_group shardgate_map.colocation_group;
    step interval;
    unit text;
    first timestamp;
BEGIN
    PERFORM shardgate_map.lock_map();
    SELECT * INTO found_group FROM shardgate_map.colocation_group g WHERE g.group_id = set_time_partitions.group_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('colocation group %s does not exist any more', group_id);
    END IF;
    IF every IS NULL THEN
        PERFORM shardgate_map.begin_change(actor, 'time_partitions', jsonb_build_object('colocation_group', group_id));
        DELETE FROM shardgate_map.time_partitions t WHERE t.group_id = set_time_partitions.group_id;
        RETURN;
    END IF;
    BEGIN
        step := every::interval;
    EXCEPTION WHEN invalid_datetime_format OR datetime_field_overflow OR invalid_text_representation OR interval_field_overflow THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('invalid value for every: "%s"', every),
            HINT = 'Write a length of time, such as ''1 month'', ''1 week'' or ''6 hours''.';
    END;
    IF NOT (step >= interval '1 minute' AND step <= interval '100 years' AND now() + step > now()
            AND extract(month FROM step) >= 0 AND extract(day FROM step) >= 0) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'every must be between a minute and 100 years';
    END IF;
    IF found_group.key_types[1] = 'date' AND step <> date_trunc('day', step) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'every must be whole days where the key is a date';
    END IF;
    IF NOT (ahead BETWEEN 1 AND 1000) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'ahead must be between 1 and 1000 pieces';
    END IF;
    unit := CASE WHEN step >= interval '1 year' AND step = date_trunc('year', step) THEN 'year'
                 WHEN step >= interval '1 month' AND step = date_trunc('month', step) THEN 'month'
                 WHEN step >= interval '7 days' AND extract(day FROM step)::int % 7 = 0 THEN 'week'
                 WHEN step >= interval '1 day' THEN 'day'
                 WHEN step >= interval '1 hour' THEN 'hour' ELSE 'minute' END;
    first := shardgate_map.last_time_bound(group_id);
    IF first IS NOT NULL AND NOT isfinite(first) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'the last piece of the table begins at infinity',
            HINT = 'Merge it with the one before: shardgate.merge_partitions(a, b).';
    END IF;
    IF first IS NULL THEN
        first := CASE WHEN unit IN ('hour', 'minute') THEN date_trunc('day', now() AT TIME ZONE 'UTC')
                      ELSE date_trunc(unit, now() AT TIME ZONE 'UTC') END;
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'time_partitions', jsonb_build_object('colocation_group', group_id, 'every', every, 'ahead', ahead,
        'on_shards', on_shards));
    INSERT INTO shardgate_map.time_partitions AS t (group_id, every, ahead, on_shards, anchor)
    VALUES (set_time_partitions.group_id, step, set_time_partitions.ahead, set_time_partitions.on_shards, first)
    ON CONFLICT ON CONSTRAINT time_partitions_pkey DO UPDATE
        SET every = EXCLUDED.every, ahead = EXCLUDED.ahead, on_shards = EXCLUDED.on_shards, anchor = EXCLUDED.anchor, error = NULL;
END $$;

-- Where the next piece has to begin, as the key's type writes it; NULL: enough pieces begin later than now.
CREATE FUNCTION shardgate_map.next_time_bound(wanted shardgate_map.time_partitions) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS $$
DECLARE
    last timestamp := shardgate_map.last_time_bound(wanted.group_id);
    now_utc timestamp := now() AT TIME ZONE 'UTC';
    key_type text;
    -- The most that can begin later than now, of which each is made after the one before.
    latest timestamp;
    bound timestamp;
    n int;
    later int := 0;
BEGIN
    SELECT g.key_types[1] INTO key_type FROM shardgate_map.colocation_group g WHERE g.group_id = wanted.group_id;
    IF last IS NOT NULL AND NOT isfinite(last) THEN
        RETURN NULL;
    END IF;
    -- Months are counted from the anchor, so that the 31st does not become the 28th for ever. An interval's months have 30 days or
    -- more here, so that this begins before now.
    n := greatest(0, floor(extract(epoch FROM now_utc - wanted.anchor) / (extract(epoch FROM wanted.every) * 1.1))::int - 1);
    LOOP
        bound := wanted.anchor + n * wanted.every;
        n := n + 1;
        CONTINUE WHEN bound <= now_utc;
        later := later + 1;
        EXIT WHEN later > wanted.ahead;
        IF last IS NULL OR bound > last THEN
            RETURN CASE key_type WHEN 'date' THEN to_char(bound, 'YYYY-MM-DD')
                                 WHEN 'timestamp with time zone' THEN to_char(bound, 'YYYY-MM-DD HH24:MI:SS.US') || '+00'
                                 ELSE to_char(bound, 'YYYY-MM-DD HH24:MI:SS.US') END;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- One piece that is to be made now, by who asks, for two minutes. No row: there is none, or another proxy is at it.
CREATE FUNCTION shardgate_map.claim_time_partition(OUT group_id int, OUT bound text, OUT on_shards text, OUT turn int)
RETURNS SETOF record
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    candidate shardgate_map.time_partitions;
BEGIN
    FOR candidate IN
        SELECT * FROM shardgate_map.time_partitions t
        WHERE t.busy_until IS NULL OR t.busy_until < clock_timestamp()
        ORDER BY t.group_id FOR UPDATE SKIP LOCKED
    LOOP
        claim_time_partition.bound := shardgate_map.next_time_bound(candidate);
        CONTINUE WHEN claim_time_partition.bound IS NULL;
        UPDATE shardgate_map.time_partitions t SET busy_until = clock_timestamp() + interval '2 minutes' WHERE t.group_id = candidate.group_id;
        claim_time_partition.group_id := candidate.group_id;
        claim_time_partition.on_shards := candidate.on_shards;
        claim_time_partition.turn := candidate.made;
        RETURN NEXT;
        RETURN;
    END LOOP;
END $$;

CREATE FUNCTION shardgate_map.release_time_partition(released_group int, is_made bool, reason text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE shardgate_map.time_partitions t
    SET busy_until = CASE WHEN is_made THEN NULL ELSE clock_timestamp() + interval '20 s' END,
        made = t.made + is_made::int, error = reason
    WHERE t.group_id = released_group
$$;
