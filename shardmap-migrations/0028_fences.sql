-- Proxies that have lost their lease and are shut out by the shards, so that moves go on without them.
ALTER TABLE shardgate_map.proxy
    -- Grows whenever this process registers after its row was gone. Null: a proxy of an earlier version, which no shard can shut out.
    ADD COLUMN generation bigint;

-- Lives until every shard has shut the process out. Whoever must not go on beside it looks at which shards have.
CREATE TABLE shardgate_map.fence (
    proxy_id bigint PRIMARY KEY,
    -- This one and all before it.
    generation bigint NOT NULL,
    address text NOT NULL,
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    shards int[] NOT NULL DEFAULT '{}'
);

CREATE FUNCTION shardgate_map.begin_fence(proxy_id bigint, generation bigint, address text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO shardgate_map.fence AS f (proxy_id, generation, address)
    VALUES (begin_fence.proxy_id, begin_fence.generation, begin_fence.address)
    ON CONFLICT ON CONSTRAINT fence_pkey
    DO UPDATE SET generation = excluded.generation, shards = '{}', begun_at = clock_timestamp() WHERE f.generation < excluded.generation
$$;

-- False: it has renewed its lease since, or is gone, or cannot be shut out.
CREATE FUNCTION shardgate_map.fence_proxy(proxy_id bigint, renewals bigint) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    silent record;
BEGIN
    DELETE FROM shardgate_map.proxy p
    WHERE p.proxy_id = fence_proxy.proxy_id AND p.renewals = fence_proxy.renewals AND p.generation IS NOT NULL
    RETURNING p.generation, p.address INTO silent;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM shardgate_map.begin_fence(proxy_id, silent.generation, silent.address);
    RETURN true;
END $$;

-- This shard has shut it out.
CREATE FUNCTION shardgate_map.fenced_on(proxy_id bigint, generation bigint, shard_id int) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE shardgate_map.fence f SET shards = f.shards || fenced_on.shard_id
    WHERE f.proxy_id = fenced_on.proxy_id AND f.generation = fenced_on.generation AND fenced_on.shard_id <> ALL (f.shards);
    DELETE FROM shardgate_map.fence f
    WHERE f.proxy_id = fenced_on.proxy_id AND f.generation = fenced_on.generation
      AND NOT EXISTS (SELECT FROM shardgate_map.shard s WHERE s.shard_id <> ALL (f.shards));
END $$;

-- A driver that is not heard of while statements are held, before the switch or after it, is given up sooner.
CREATE OR REPLACE FUNCTION shardgate_map.take_move(move int, driver bigint, lease interval, cutover_lease interval) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    taken shardgate_map.move := shardgate_map.require_move(move);
    is_held bool := EXISTS (
        SELECT FROM shardgate_map.move_partition m JOIN shardgate_map.partition p USING (partition_id)
        WHERE m.move_id = move AND p.state = 'held');
BEGIN
    IF taken.driver IS NOT NULL AND taken.driver <> take_move.driver
       AND taken.driver_seen > clock_timestamp() - (CASE WHEN is_held THEN cutover_lease ELSE lease END) THEN
        RETURN NULL;
    END IF;
    UPDATE shardgate_map.move m SET driver = take_move.driver, driver_seen = clock_timestamp(), term = taken.term + 1
    WHERE m.move_id = move;
    RETURN taken.term + 1;
END $$;
