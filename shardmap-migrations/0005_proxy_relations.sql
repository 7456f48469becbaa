-- What only the proxy that answers knows: it sets these two settings to JSON before the statement runs.

CREATE VIEW shardgate.pools AS
SELECT p.shard, p."user", p.active, p.idle, p.waiting
FROM jsonb_to_recordset(coalesce(nullif(current_setting('shardgate_proxy.pools', true), ''), '[]')::jsonb)
    AS p (shard text, "user" text, active bigint, idle bigint, waiting bigint);

CREATE VIEW shardgate.clients AS
SELECT c.client, c."user", c.state, c.shards, c.pinned_by
FROM jsonb_to_recordset(coalesce(nullif(current_setting('shardgate_proxy.clients', true), ''), '[]')::jsonb)
    AS c (client text, "user" text, state text, shards text[], pinned_by text);
