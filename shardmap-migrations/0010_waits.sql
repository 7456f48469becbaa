-- Transactions over several shards that wait, as each proxy tells of its own: who waits for whom across proxies shows only here.
-- Nothing in it outlives a crash or matters after a few seconds.
CREATE UNLOGGED TABLE shardgate_map.waiting (
    proxy_id bigint PRIMARY KEY,
    -- What `waiters` is, only the proxies know.
    waiters jsonb NOT NULL,
    told_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Tells of one proxy's waiters and gives those of the others.
CREATE FUNCTION shardgate_map.tell_waiters(proxy_id bigint, waiters jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM shardgate_map.waiting w WHERE w.told_at < clock_timestamp() - interval '1 minute';
    INSERT INTO shardgate_map.waiting AS w (proxy_id, waiters) VALUES (tell_waiters.proxy_id, tell_waiters.waiters)
    ON CONFLICT ON CONSTRAINT waiting_pkey DO UPDATE SET waiters = excluded.waiters, told_at = clock_timestamp();
    RETURN (SELECT coalesce(jsonb_agg(e.waiter), '[]') FROM shardgate_map.waiting w, jsonb_array_elements(w.waiters) e(waiter)
            WHERE w.proxy_id <> tell_waiters.proxy_id AND w.told_at > clock_timestamp() - interval '2 seconds');
END $$;
