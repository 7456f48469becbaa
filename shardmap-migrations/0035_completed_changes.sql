-- A proxy that has read the schema after its own change knows it all, unless another change has ended meanwhile: it is told which
-- change was the last one before its own.

CREATE FUNCTION shardgate_map.complete_schema_change(actor text, schema_change bigint, OUT before bigint, OUT after bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    SELECT c.schema_version INTO STRICT before FROM shardgate_map.cluster c;
    PERFORM shardgate_map.finish_schema_change(actor, schema_change);
    SELECT c.schema_version INTO STRICT after FROM shardgate_map.cluster c;
END $$;
