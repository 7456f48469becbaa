-- Changes of the shards' schema whose proxy was lost, or lost the map, in the middle: another proxy closes them.

ALTER TABLE shardgate_map.schema_change
    -- The proxy that makes the change. NULL: one of an earlier version, which nobody else closes.
    ADD COLUMN proxy_id bigint;

CREATE FUNCTION shardgate_map.begin_schema_change(actor text, command_tag text, proxy_id bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    opened bigint := shardgate_map.begin_schema_change(actor, command_tag);
BEGIN
    UPDATE shardgate_map.schema_change c SET proxy_id = begin_schema_change.proxy_id WHERE c.schema_change_id = opened;
    RETURN opened;
END $$;

-- Every proxy reads the schema again, also when the change was closed by another one before: who was frozen may have committed
-- since.
CREATE OR REPLACE FUNCTION shardgate_map.finish_schema_change(actor text, schema_change bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    taken bigint;
BEGIN
    PERFORM shardgate_map.lock_map();
    UPDATE shardgate_map.schema_change c SET finished_at = clock_timestamp()
    WHERE c.schema_change_id = schema_change AND c.finished_at IS NULL;
    taken := shardgate_map.begin_change(actor, 'finish_schema_change', jsonb_build_object('schema_change', schema_change));
    UPDATE shardgate_map.cluster SET schema_version = taken;
END $$;

-- Closes these changes, which nobody works on, and drops from the map what is on the shards no more: tables and sequences as
-- pairs of schema and name. Does nothing and returns false when one of them is closed already, another change is open, or one has
-- begun after `last_change`: the caller's picture of the shards may be too old.
CREATE FUNCTION shardgate_map.close_schema_changes(actor text, changes bigint[], last_change bigint, tables jsonb, sequences jsonb)
RETURNS bool LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    open_changes bigint[];
    gone jsonb;
    taken bigint;
BEGIN
    PERFORM shardgate_map.lock_map();
    open_changes := array(SELECT c.schema_change_id FROM shardgate_map.schema_change c WHERE c.finished_at IS NULL);
    IF NOT (open_changes @> changes AND open_changes <@ changes)
       OR EXISTS (SELECT FROM shardgate_map.schema_change c WHERE c.schema_change_id > last_change) THEN
        RETURN false;
    END IF;
    FOR gone IN SELECT * FROM jsonb_array_elements(tables) LOOP
        PERFORM shardgate_map.drop_table(actor, gone ->> 0, gone ->> 1);
    END LOOP;
    FOR gone IN SELECT * FROM jsonb_array_elements(sequences) LOOP
        PERFORM shardgate_map.drop_sequence(actor, gone ->> 0, gone ->> 1);
    END LOOP;
    UPDATE shardgate_map.schema_change c SET finished_at = clock_timestamp() WHERE c.schema_change_id = ANY (changes);
    taken := shardgate_map.begin_change(actor, 'close_schema_changes', jsonb_build_object('schema_changes', to_jsonb(changes)));
    UPDATE shardgate_map.cluster SET schema_version = taken;
    RETURN true;
END $$;
