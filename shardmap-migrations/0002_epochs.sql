-- Epochs: how a change of the map is numbered, recorded, announced, and refused when it is none of these.

-- The server that we are connected to. timeline is null on a standby. Not pg_control_checkpoint(): after a promotion it shows
-- the old timeline until the next checkpoint.
CREATE FUNCTION shardgate_map.server_identity(OUT system_identifier bigint, OUT timeline int)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.system_identifier,
           CASE WHEN NOT pg_is_in_recovery()
                THEN ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int END
    FROM pg_control_system() s
$$;

-- Waits for other changes and shuts them out until the end of the transaction. Checks made after it stay true.
CREATE FUNCTION shardgate_map.lock_map() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM shardgate_map.cluster FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'XX000', MESSAGE = 'the shard map has lost its cluster row';
    END IF;
END $$;

-- Takes the next epoch, writes the history, tells every proxy. Milliseconds as incarnation, so that two copies of a map that
-- were restored or promoted apart from each other, or a map made anew, do not use one incarnation for two contents.
CREATE FUNCTION shardgate_map.begin_change(actor text, change text, arguments jsonb) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    server record;
    now_ms bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    taken record;
BEGIN
    SELECT * INTO STRICT server FROM shardgate_map.server_identity();
    UPDATE shardgate_map.cluster c
    SET counter = c.counter + 1,
        incarnation = CASE WHEN (c.system_identifier, c.timeline) = (server.system_identifier, server.timeline)
                           THEN c.incarnation ELSE greatest(c.incarnation + 1, now_ms) END,
        system_identifier = server.system_identifier,
        timeline = server.timeline,
        changed_in = pg_current_xact_id()
    RETURNING c.incarnation, c.counter INTO STRICT taken;
    INSERT INTO shardgate_map.history (incarnation, counter, actor, change, arguments)
    VALUES (taken.incarnation, taken.counter, begin_change.actor, begin_change.change, begin_change.arguments);
    PERFORM pg_notify('shardgate_map', taken.incarnation || ':' || taken.counter);
    IF taken.counter % 1000 = 0 THEN
        PERFORM shardgate_map.forget_removals(taken.counter - 10000);
    END IF;
    RETURN taken.counter;
END $$;

-- Keeps the record of removals bounded: a proxy that is further behind loads the whole map.
CREATE FUNCTION shardgate_map.forget_removals(up_to bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF up_to > 0 THEN
        DELETE FROM shardgate_map.removed WHERE epoch <= up_to;
        UPDATE shardgate_map.cluster SET removed_floor = greatest(removed_floor, up_to);
    END IF;
END $$;

-- Called on each new connection: a server that is not the one which gave the incarnation takes a new one.
CREATE FUNCTION shardgate_map.adopt() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    server record;
BEGIN
    SELECT * INTO STRICT server FROM shardgate_map.server_identity();
    IF server.timeline IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '25006', MESSAGE = 'the map database is a standby',
            HINT = 'Let map.url name the primary, or all servers with target_session_attrs=read-write.';
    END IF;
    IF EXISTS (SELECT FROM shardgate_map.cluster c
               WHERE (c.system_identifier, c.timeline) = (server.system_identifier, server.timeline)) THEN
        RETURN;
    END IF;
    PERFORM shardgate_map.lock_map();
    IF EXISTS (SELECT FROM shardgate_map.cluster c
               WHERE (c.system_identifier, c.timeline) <> (server.system_identifier, server.timeline)) THEN
        PERFORM shardgate_map.begin_change('shardgate', 'adopt', jsonb_build_object('timeline', server.timeline));
    END IF;
END $$;

-- Puts the epoch into a changed row.
CREATE FUNCTION shardgate_map.stamp() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT c.counter INTO NEW.epoch FROM shardgate_map.cluster c
    WHERE c.changed_in OPERATOR(pg_catalog.=) pg_catalog.pg_current_xact_id_if_assigned();
    IF NOT FOUND THEN
        PERFORM shardgate_map.refuse_bare_change();
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION shardgate_map.refuse_bare_change() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '55000',
        MESSAGE = 'the shard map cannot be changed without taking an epoch',
        DETAIL = 'Proxies would not see the change and would go on with the old map.',
        HINT = 'Use the functions of the schema "shardgate" through the proxy.';
END $$;

-- Remembers a removed row. The keys and partitions of a group that is gone go with it, without a word each.
CREATE FUNCTION shardgate_map.bury() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_counter bigint;
    gone jsonb := to_jsonb(OLD);
BEGIN
    SELECT c.counter INTO now_counter FROM shardgate_map.cluster c WHERE c.changed_in = pg_current_xact_id_if_assigned();
    IF NOT FOUND THEN
        PERFORM shardgate_map.refuse_bare_change();
    END IF;
    IF TG_TABLE_NAME IN ('partition', 'lookup_key')
       AND NOT EXISTS (SELECT FROM shardgate_map.colocation_group g WHERE g.group_id = (gone ->> 'group_id')::int) THEN
        RETURN NULL;
    END IF;
    INSERT INTO shardgate_map.removed (epoch, kind, id, key, schema_name, name)
    VALUES (now_counter, TG_TABLE_NAME,
            CASE TG_TABLE_NAME WHEN 'shard' THEN gone ->> 'shard_id' WHEN 'partition' THEN gone ->> 'partition_id'
                               ELSE gone ->> 'group_id' END::int,
            CASE TG_TABLE_NAME WHEN 'lookup_key' THEN gone ->> 'key' END::bytea,
            gone ->> 'schema_name',
            coalesce(gone ->> 'table_name', gone ->> 'function_name'));
    RETURN NULL;
END $$;

CREATE FUNCTION shardgate_map.refuse_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM shardgate_map.refuse_bare_change();
    RETURN NULL;
END $$;

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['shard', 'colocation_group', 'partition', 'lookup_key', 'declared_table', 'declared_function'] LOOP
        EXECUTE format('CREATE TRIGGER stamp BEFORE INSERT OR UPDATE ON shardgate_map.%I
                        FOR EACH ROW EXECUTE FUNCTION shardgate_map.stamp()', name);
        EXECUTE format('CREATE TRIGGER bury AFTER DELETE ON shardgate_map.%I
                        FOR EACH ROW EXECUTE FUNCTION shardgate_map.bury()', name);
        EXECUTE format('CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON shardgate_map.%I
                        FOR EACH STATEMENT EXECUTE FUNCTION shardgate_map.refuse_truncate()', name);
    END LOOP;
END $$;

INSERT INTO shardgate_map.cluster (incarnation, counter, system_identifier, timeline)
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, 0, s.system_identifier, s.timeline
FROM shardgate_map.server_identity() s;
