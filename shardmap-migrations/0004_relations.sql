-- The relations of the schema "shardgate" that users read. No url, no password.

CREATE VIEW shardgate.shards AS
SELECT s.name, s.region, s.capacity, s.state, s.is_home,
       (SELECT count(*) FROM shardgate_map.partition p WHERE p.shard_id = s.shard_id) AS partitions
FROM shardgate_map.shard s;

CREATE VIEW shardgate.tables AS
SELECT CASE WHEN t.schema_name = 'public' THEN t.table_name ELSE t.schema_name || '.' || t.table_name END AS table_name,
       t.kind, g.strategy, t.key_text AS key, t.group_id AS colocation_group, t.schema_name
FROM shardgate_map.declared_table t LEFT JOIN shardgate_map.colocation_group g USING (group_id)
UNION ALL
SELECT CASE WHEN h.schema_name = 'public' THEN h.table_name ELSE h.schema_name || '.' || h.table_name END,
       'home', NULL, NULL, NULL, h.schema_name
FROM shardgate_map.home_table h;

CREATE VIEW shardgate.partitions AS
SELECT p.partition_id, p.group_id AS colocation_group, p.strategy, p.low_text AS low,
       CASE WHEN p.strategy <> 'lookup' THEN
           (SELECT n.low_text FROM shardgate_map.partition n
            WHERE n.group_id = p.group_id AND n.low > p.low ORDER BY n.low LIMIT 1) END AS high,
       s.name AS shard, p.state, p.epoch
FROM shardgate_map.partition p JOIN shardgate_map.shard s USING (shard_id);

CREATE VIEW shardgate.lookup_keys AS
SELECT k.group_id AS colocation_group, k.key_text AS key, k.partition_id
FROM shardgate_map.lookup_key k;

CREATE VIEW shardgate.moves AS
SELECT m.move_id, m.partition_id, m.source, m.target, m.state, m.rows_copied, m.bytes_copied, m.lag_bytes, m.pause_ms,
       m.started_at, m.error
FROM shardgate_map.move m;

CREATE VIEW shardgate.proxies AS
SELECT p.proxy_id, p.address, p.counter AS epoch, p.last_seen, p.clients
FROM shardgate_map.proxy p;

-- Transactions that write on several shards are refused so far, so there is none to show.
CREATE VIEW shardgate.transactions AS
SELECT NULL::text AS gid, NULL::text AS state, NULL::text[] AS participants, NULL::interval AS age
WHERE false;

CREATE VIEW shardgate.history AS
SELECT h.counter AS epoch, h.changed_at, h.actor, h.change, h.arguments
FROM shardgate_map.history h;
