-- What only the proxy that answers knows: it sets these two settings to JSON before the statement runs.

CREATE VIEW shardgate.pools AS
SELECT p.shard, p."user", p.active, p.idle, p.waiting
FROM jsonb_to_recordset(coalesce(nullif(current_setting('shardgate_proxy.pools', true), ''), '[]')::jsonb)
    AS p (shard text, "user" text, active bigint, idle bigint, waiting bigint);

CREATE VIEW shardgate.clients AS
SELECT c.client, c."user", c.state, c.shards, c.pinned_by
FROM jsonb_to_recordset(coalesce(nullif(current_setting('shardgate_proxy.clients', true), ''), '[]')::jsonb)
    AS c (client text, "user" text, state text, shards text[], pinned_by text);

-- A table that is declared is not a home table, whichever of the two was written first.
CREATE OR REPLACE VIEW shardgate.tables AS
SELECT CASE WHEN t.schema_name = 'public' THEN t.table_name ELSE t.schema_name || '.' || t.table_name END AS table_name,
       t.kind, g.strategy, t.key_text AS key, t.group_id AS colocation_group, t.schema_name
FROM shardgate_map.declared_table t LEFT JOIN shardgate_map.colocation_group g USING (group_id)
UNION ALL
SELECT CASE WHEN h.schema_name = 'public' THEN h.table_name ELSE h.schema_name || '.' || h.table_name END,
       'home', NULL, NULL, NULL, h.schema_name
FROM shardgate_map.home_table h
WHERE NOT EXISTS (SELECT FROM shardgate_map.declared_table t
                  WHERE t.schema_name = h.schema_name AND t.table_name = h.table_name);
