-- Proxies tell their version, so that `shardgate check` and people see what a rolling upgrade mixes.

-- NULL: a version that does not tell it.
ALTER TABLE shardgate_map.proxy ADD COLUMN version text;

CREATE OR REPLACE VIEW shardgate.proxies AS
SELECT p.proxy_id, p.address, p.counter AS epoch, p.last_seen, p.clients, p.version
FROM shardgate_map.proxy p;
