-- DDL through one proxy is followed by the others before its client hears that it is done.

-- The newest epoch that the proxy has loaded: its next statement is planned by that one or a later one, even while older
-- statements keep it from having reached it.
ALTER TABLE shardgate_map.proxy
    ADD COLUMN seen_incarnation bigint NOT NULL DEFAULT 0,
    ADD COLUMN seen_counter bigint NOT NULL DEFAULT 0;

-- cluster.schema_version is the epoch of the last change that is done. One that has only begun changes nothing that a committed
-- catalogue shows, and its locks may keep readers of the catalogue waiting: it is known by its open row alone.
CREATE OR REPLACE FUNCTION shardgate_map.begin_schema_change(actor text, command_tag text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    opened bigint;
BEGIN
    PERFORM shardgate_map.lock_map();
    INSERT INTO shardgate_map.schema_change AS c (actor, command_tag)
    VALUES (begin_schema_change.actor, begin_schema_change.command_tag)
    RETURNING c.schema_change_id INTO opened;
    PERFORM shardgate_map.begin_change(actor, 'begin_schema_change',
        jsonb_build_object('schema_change', opened, 'command_tag', command_tag));
    RETURN opened;
END $$;
