//! Which connections to a shard are a proxy's, and which proxies the shard shuts out.
//!
//! Every connection of a proxy's pools registers itself, whoever is logged in, and then asks whether the proxy is shut out
//! (`crate::backend`). Whoever has to go on without a proxy shuts it out and ends the connections that are registered
//! (`crate::rebalance::moves::fencing`). A client could register its own connection as another proxy's: that one may be ended then.
//! Rows of connections that have ended are swept out now and then; a crash empties the table, as it ends all connections.

/// Idempotent; part of the support objects' transaction.
pub(super) const OBJECTS: &str = r#"
CREATE UNLOGGED TABLE IF NOT EXISTS shardgate.backend (
    pid int NOT NULL,
    started timestamptz NOT NULL,
    proxy_id bigint NOT NULL,
    generation bigint NOT NULL,
    PRIMARY KEY (pid, started));
CREATE TABLE IF NOT EXISTS shardgate.shut_out (
    proxy_id bigint PRIMARY KEY,
    -- This one and all before it.
    generation bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE OR REPLACE FUNCTION shardgate.register_backend(proxy bigint, generation bigint, started timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = 0 AS $$
BEGIN
    INSERT INTO shardgate.backend (pid, started, proxy_id, generation)
    VALUES (pg_backend_pid(), register_backend.started, proxy, register_backend.generation)
    ON CONFLICT DO NOTHING;
    IF random() < 0.01 THEN
        DELETE FROM shardgate.backend b WHERE NOT EXISTS (SELECT FROM pg_stat_get_activity(NULL) a WHERE a.pid = b.pid);
    END IF;
END $$;
CREATE OR REPLACE FUNCTION shardgate.is_shut_out(proxy bigint, generation bigint) RETURNS bool
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM shardgate.shut_out s WHERE s.proxy_id = proxy AND s.generation >= is_shut_out.generation)
$$;
REVOKE ALL ON TABLE shardgate.backend, shardgate.shut_out FROM PUBLIC;
GRANT EXECUTE ON FUNCTION shardgate.register_backend(bigint, bigint, timestamptz), shardgate.is_shut_out(bigint, bigint) TO PUBLIC;
"#;
