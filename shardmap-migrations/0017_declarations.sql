-- Declarations one at a time, and each by what the map was when it was planned.

ALTER TABLE shardgate_map.cluster
    -- The declaration that has begun last. Of an earlier one, which may be on its way still, nothing is taken any more.
    ADD COLUMN declaration bigint NOT NULL DEFAULT 0;

ALTER TABLE shardgate_map.proxy
    -- By which a proxy on the same machine sees that it has ended.
    ADD COLUMN process text;

-- Who calls this has seen the end of every other declaration, or its connection's. What the map says from now on stays so, but for
-- what require_plan() finds. open_changes: of the shards' schema; not those of an earlier version, which nobody closes.
CREATE FUNCTION shardgate_map.begin_declaration(OUT declaration bigint, OUT incarnation bigint, OUT counter bigint, OUT open_changes bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE shardgate_map.cluster c SET declaration = c.declaration + 1
    RETURNING c.declaration, c.incarnation, c.counter
    INTO STRICT begin_declaration.declaration, begin_declaration.incarnation, begin_declaration.counter;
    SELECT count(*) INTO open_changes FROM shardgate_map.schema_change s WHERE s.finished_at IS NULL AND s.proxy_id IS NOT NULL;
END $$;

-- Has a shard or a table joined since this epoch?
CREATE FUNCTION shardgate_map.has_joined_since(incarnation bigint, counter bigint) RETURNS bool
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.incarnation <> has_joined_since.incarnation
        OR EXISTS (SELECT FROM shardgate_map.shard s WHERE s.epoch > has_joined_since.counter)
        OR EXISTS (SELECT FROM shardgate_map.declared_table t WHERE t.epoch > has_joined_since.counter)
    FROM shardgate_map.cluster c
$$;

-- With the map's lock: the plan of a declaration still holds. planned: {"declaration", "incarnation", "counter"}, the first of them null
-- where there is no home shard yet. NULL: by a proxy of an earlier version, which does not say.
CREATE FUNCTION shardgate_map.require_plan(planned jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known bigint := (planned ->> 'counter')::bigint;
    cluster shardgate_map.cluster;
BEGIN
    IF planned IS NULL THEN
        RETURN;
    END IF;
    SELECT * INTO STRICT cluster FROM shardgate_map.cluster;
    IF cluster.declaration <> (planned ->> 'declaration')::bigint THEN
        RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'another declaration has begun since this one',
            DETAIL = 'This one''s connection to the home shard was lost, or it was frozen. The map was not changed.',
            HINT = 'Call the function again.';
    END IF;
    IF shardgate_map.has_joined_since((planned ->> 'incarnation')::bigint, known)
       OR cluster.schema_version > known OR cluster.removed_floor > known
       OR EXISTS (SELECT FROM shardgate_map.declared_function f WHERE f.epoch > known)
       OR EXISTS (SELECT FROM shardgate_map.removed r
                  WHERE r.epoch > known AND r.kind IN ('shard', 'colocation_group', 'declared_table', 'declared_function')) THEN
        RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'shards, tables or their schema were changed since the declaration was planned',
            DETAIL = 'The map was not changed.', HINT = 'Call the function again.';
    END IF;
    IF EXISTS (SELECT FROM shardgate_map.schema_change s WHERE s.finished_at IS NULL AND s.proxy_id IS NOT NULL) THEN
        RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'the schema of the shards is being changed',
            DETAIL = 'The map was not changed.', HINT = 'Call the function again when the transaction that changes it has ended.';
    END IF;
END $$;

-- The changes that declarations make, by a plan.

CREATE FUNCTION shardgate_map.add_shard(planned jsonb, actor text, name text, url text, region text, capacity float8, replication_url text,
                                        OUT shard_id int, OUT is_home bool, OUT state text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    PERFORM shardgate_map.require_plan(planned);
    SELECT a.shard_id, a.is_home, a.state INTO add_shard.shard_id, add_shard.is_home, add_shard.state
    FROM shardgate_map.add_shard(actor, name, url, region, capacity, replication_url) a;
END $$;

CREATE FUNCTION shardgate_map.set_shard_state(planned jsonb, actor text, name text, state text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    PERFORM shardgate_map.require_plan(planned);
    PERFORM shardgate_map.set_shard_state(actor, name, state);
END $$;

CREATE FUNCTION shardgate_map.distribute_table(planned jsonb, actor text, schema_name text, table_name text, key jsonb, key_text text,
                                               key_types text[], strategy text, colocate_with int,
                                               lows bytea[], low_texts text[], shard_names text[], default_shard text) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    PERFORM shardgate_map.require_plan(planned);
    -- Whether the table is empty enough for the group was judged by these.
    IF EXISTS (SELECT FROM shardgate_map.partition p
               WHERE p.group_id = colocate_with AND p.epoch > (planned ->> 'counter')::bigint) THEN
        RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'the partitions of the colocation group were changed meanwhile',
            DETAIL = 'The map was not changed.', HINT = 'Call the function again.';
    END IF;
    RETURN shardgate_map.distribute_table(actor, schema_name, table_name, key, key_text, key_types, strategy, colocate_with,
                                          lows, low_texts, shard_names, default_shard);
END $$;

CREATE FUNCTION shardgate_map.reference_table(planned jsonb, actor text, schema_name text, table_name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    PERFORM shardgate_map.require_plan(planned);
    PERFORM shardgate_map.reference_table(actor, schema_name, table_name);
END $$;

-- As before, and only while the shards and tables are those by which the statement was planned: it would miss a shard that has joined,
-- and what is allowed on a home table may not be on a sharded one.
CREATE FUNCTION shardgate_map.begin_schema_change(actor text, command_tag text, proxy_id bigint, incarnation bigint, counter bigint)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    IF shardgate_map.has_joined_since(incarnation, counter) THEN
        RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'shards or tables were declared since the statement was planned',
            DETAIL = 'Nothing was changed.', HINT = 'Repeat the transaction.';
    END IF;
    RETURN shardgate_map.begin_schema_change(actor, command_tag, proxy_id);
END $$;
