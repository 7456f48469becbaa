-- A fence lives until every shard has shut the process out: a shard that is dropped is no longer waited for.
CREATE FUNCTION shardgate_map.forget_fences() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM shardgate_map.fence f WHERE NOT EXISTS (SELECT FROM shardgate_map.shard s WHERE s.shard_id <> ALL (f.shards));
    RETURN NULL;
END $$;

CREATE TRIGGER forget_fences AFTER DELETE ON shardgate_map.shard FOR EACH STATEMENT EXECUTE FUNCTION shardgate_map.forget_fences();
