-- Views, functions and the like that an open change of the schema gives another meaning: statements that may use them wait for its end.

ALTER TABLE shardgate_map.schema_change
    -- NULL: none. An array of names, without their schemas; true: whatever there is.
    ADD COLUMN redefines jsonb;

-- To be called before the first shard runs what redefines them. Adds to what was said of the change before.
CREATE FUNCTION shardgate_map.redefine(actor text, schema_change bigint, redefines jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    UPDATE shardgate_map.schema_change c
    SET redefines = CASE
        WHEN jsonb_typeof(c.redefines) = 'boolean' OR jsonb_typeof(redefine.redefines) = 'boolean' THEN 'true'::jsonb
        ELSE coalesce(c.redefines, '[]') || redefine.redefines
    END
    WHERE c.schema_change_id = schema_change;
    PERFORM shardgate_map.begin_change(actor, 'redefine',
        jsonb_build_object('schema_change', schema_change, 'redefines', redefine.redefines));
END $$;
