-- Names this cluster's prepared transactions on the shards. Not the incarnation: it outlives a fail-over of the map database.
ALTER TABLE shardgate_map.cluster
    ADD COLUMN cluster_id text NOT NULL DEFAULT left(replace(gen_random_uuid()::text, '-', ''), 16)
        CHECK (cluster_id ~ '^[0-9a-f]{16}$');

-- The shards themselves know what is prepared: the proxy that answers asks them and sets this to JSON before the statement runs.
CREATE OR REPLACE VIEW shardgate.transactions AS
SELECT t.gid, t.state, t.participants, make_interval(secs => t.age_seconds) AS age
FROM jsonb_to_recordset(coalesce(nullif(current_setting('shardgate_proxy.transactions', true), ''), '[]')::jsonb)
    AS t (gid text, state text, participants text[], age_seconds float8);
