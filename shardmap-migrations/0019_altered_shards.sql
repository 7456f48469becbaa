-- Shards that change: where they are, how they are used, and which database they must be.

ALTER TABLE shardgate_map.shard
    -- The uuid in the database's own table shardgate.identity; no connection is used that does not show it. NULL: of an earlier
    -- version, not read yet.
    ADD COLUMN identity uuid UNIQUE,
    DROP CONSTRAINT shard_state_check,
    ADD CONSTRAINT shard_state_check CHECK (state IN ('preparing', 'online', 'read_only', 'draining', 'maintenance')),
    -- The home shard is ready from the beginning.
    DROP CONSTRAINT shard_check,
    ADD CONSTRAINT shard_home_is_ready CHECK (state <> 'preparing' OR NOT is_home);

-- For new partitions, keys and default shards.
CREATE OR REPLACE FUNCTION shardgate_map.require_online(shard_name text) RETURNS shardgate_map.shard
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_shard shardgate_map.shard := shardgate_map.require_shard(shard_name);
BEGIN
    IF found_shard.state = 'online' THEN
        RETURN found_shard;
    END IF;
    IF found_shard.state = 'preparing' THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('shard "%s" is not online', shard_name),
            DETAIL = 'Its schema and reference tables are not complete yet.',
            HINT = 'Call shardgate.add_shard() again to finish its preparation.';
    END IF;
    RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('shard "%s" takes no new partitions', shard_name),
        DETAIL = format('Its state is "%s".', found_shard.state),
        HINT = format('Choose another shard, or first SELECT shardgate.alter_shard(''%s'', state => ''online'').', shard_name);
END $$;

-- Rows that a table has already lie on the home shard, which may be draining: its partitions begin there.
CREATE FUNCTION shardgate_map.require_place(shard_name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_shard shardgate_map.shard := shardgate_map.require_shard(shard_name);
BEGIN
    IF NOT (found_shard.is_home AND found_shard.state = 'draining') THEN
        PERFORM shardgate_map.require_online(shard_name);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION shardgate_map.require_placement(strategy text, lows bytea[], low_texts text[], shard_names text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF coalesce(cardinality(shard_names), 0) NOT BETWEEN 1 AND 1000000 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'the number of partitions must be between 1 and 1000000';
    END IF;
    IF strategy <> 'lookup' THEN
        IF cardinality(lows) IS DISTINCT FROM cardinality(shard_names)
           OR cardinality(low_texts) IS DISTINCT FROM cardinality(shard_names) THEN
            RAISE EXCEPTION USING ERRCODE = 'XX000', MESSAGE = 'a placement needs one bound a partition';
        END IF;
        IF (SELECT count(DISTINCT l) < count(*) FROM unnest(lows) l) THEN
            RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'partitions must not overlap',
                DETAIL = 'Two partitions begin at the same place.';
        END IF;
        IF NOT EXISTS (SELECT FROM unnest(lows) l WHERE l = '') THEN
            RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'partitions must not leave a gap',
                DETAIL = 'No partition begins at the beginning of the key space.';
        END IF;
    END IF;
    PERFORM shardgate_map.require_place(n.name) FROM (SELECT DISTINCT name FROM unnest(shard_names) name) n;
END $$;

CREATE OR REPLACE FUNCTION shardgate_map.distribute_table(actor text, schema_name text, table_name text, key jsonb, key_text text,
                                               key_types text[], strategy text, colocate_with int,
                                               lows bytea[], low_texts text[], shard_names text[],
                                               default_shard text) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target_group int;
BEGIN
    PERFORM shardgate_map.lock_map();
    PERFORM shardgate_map.refuse_if_declared(schema_name, table_name);
    IF colocate_with IS NOT NULL THEN
        PERFORM shardgate_map.require_colocatable(colocate_with, key_types, strategy);
    ELSE
        PERFORM shardgate_map.require_placement(strategy, lows, low_texts, shard_names);
        IF strategy = 'lookup' AND default_shard IS NOT NULL THEN
            PERFORM shardgate_map.require_place(default_shard);
        END IF;
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'distribute_table', jsonb_build_object(
        'table', jsonb_build_array(schema_name, table_name), 'key', key_text, 'strategy', strategy,
        'colocate_with', colocate_with, 'partitions', cardinality(shard_names), 'default_shard', default_shard));
    target_group := colocate_with;
    IF target_group IS NULL THEN
        target_group := shardgate_map.make_group(strategy, key_types, lows, low_texts, shard_names);
        IF strategy = 'lookup' AND default_shard IS NOT NULL THEN
            PERFORM shardgate_map.make_default_partition(target_group, default_shard);
        END IF;
    END IF;
    INSERT INTO shardgate_map.declared_table (schema_name, table_name, kind, group_id, key, key_text)
    VALUES (distribute_table.schema_name, distribute_table.table_name, 'sharded', target_group,
            distribute_table.key, distribute_table.key_text);
    DELETE FROM shardgate_map.home_table h
    WHERE h.schema_name = distribute_table.schema_name AND h.table_name = distribute_table.table_name;
    RETURN target_group;
END $$;

-- As before, with the identity of the database.
CREATE FUNCTION shardgate_map.add_shard(planned jsonb, actor text, name text, url text, region text, capacity float8, replication_url text,
                                        identity uuid, OUT shard_id int, OUT is_home bool, OUT state text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    SELECT a.shard_id, a.is_home, a.state INTO add_shard.shard_id, add_shard.is_home, add_shard.state
    FROM shardgate_map.add_shard(planned, actor, name, url, region, capacity, replication_url) a;
    PERFORM shardgate_map.note_identity(actor, name, identity);
END $$;

-- Of a shard whose identity the map does not know. Where it does, nothing is changed.
CREATE FUNCTION shardgate_map.note_identity(actor text, name text, identity uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    other text;
BEGIN
    PERFORM shardgate_map.lock_map();
    IF NOT EXISTS (SELECT FROM shardgate_map.shard s WHERE s.name = note_identity.name AND s.identity IS NULL) THEN
        RETURN;
    END IF;
    SELECT s.name INTO other FROM shardgate_map.shard s WHERE s.identity = note_identity.identity;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42710', MESSAGE = format('the database is already shard "%s"', other),
            DETAIL = 'Two shards cannot be the same database.';
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'note_identity', jsonb_build_object('name', name, 'identity', identity));
    UPDATE shardgate_map.shard s SET identity = note_identity.identity WHERE s.name = note_identity.name;
END $$;

-- Changes what is not NULL; an empty region or replication_url takes it away. Whoever calls this with a url has read this identity there.
-- Returns whether anything was changed.
CREATE FUNCTION shardgate_map.alter_shard(actor text, name text, url text, identity uuid, region text, capacity float8,
                                          replication_url text, state text) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known shardgate_map.shard;
    wanted shardgate_map.shard;
    other text;
BEGIN
    PERFORM shardgate_map.lock_map();
    known := shardgate_map.require_shard(name);
    IF known.state = 'preparing' THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('shard "%s" is not online', name),
            DETAIL = 'Its schema and reference tables are not complete yet.',
            HINT = 'Call shardgate.add_shard() again to finish its preparation, or shardgate.drop_shard() to begin anew.';
    END IF;
    IF state IS NOT NULL AND state NOT IN ('online', 'read_only', 'draining', 'maintenance') THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('invalid shard state "%s"', state),
            HINT = 'The states are online, read_only, draining and maintenance.';
    END IF;
    IF capacity IS NOT NULL AND NOT (capacity > 0 AND capacity < 'infinity') THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'capacity must be a number greater than zero';
    END IF;
    IF url IS NOT NULL AND known.identity IS DISTINCT FROM alter_shard.identity THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('the url of shard "%s" leads to another database', name),
            HINT = 'Give the url of the same database. To use another one, add it as a shard of its own and move the partitions there.';
    END IF;
    SELECT s.name INTO other FROM shardgate_map.shard s WHERE s.url = alter_shard.url AND s.shard_id <> known.shard_id;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42710', MESSAGE = format('shard "%s" already has this url', other),
            DETAIL = 'Two shards cannot be the same database.';
    END IF;
    wanted := known;
    wanted.url := coalesce(url, known.url);
    wanted.region := CASE WHEN region IS NULL THEN known.region ELSE nullif(region, '') END;
    wanted.capacity := coalesce(capacity, known.capacity);
    wanted.replication_url := CASE WHEN replication_url IS NULL THEN known.replication_url ELSE nullif(replication_url, '') END;
    wanted.state := coalesce(state, known.state);
    IF wanted IS NOT DISTINCT FROM known THEN
        RETURN false;
    END IF;
    -- Urls hold passwords: only that they have changed is kept.
    PERFORM shardgate_map.begin_change(actor, 'alter_shard', jsonb_build_object('name', name) || jsonb_strip_nulls(jsonb_build_object(
        'url', CASE WHEN wanted.url <> known.url THEN 'changed' END,
        'region', CASE WHEN wanted.region IS DISTINCT FROM known.region THEN coalesce(wanted.region, '') END,
        'capacity', CASE WHEN wanted.capacity <> known.capacity THEN wanted.capacity END,
        'replication_url', CASE WHEN wanted.replication_url IS DISTINCT FROM known.replication_url THEN 'changed' END,
        'state', CASE WHEN wanted.state <> known.state THEN wanted.state END)));
    UPDATE shardgate_map.shard s
    SET url = wanted.url, region = wanted.region, capacity = wanted.capacity, replication_url = wanted.replication_url,
        state = wanted.state
    WHERE s.shard_id = known.shard_id;
    RETURN true;
END $$;
