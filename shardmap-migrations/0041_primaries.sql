-- Which server is a shard's primary: a primary of an older timeline serves nobody who knows this.

CREATE TABLE shardgate_map.shard_primary (
    shard_id int PRIMARY KEY REFERENCES shardgate_map.shard ON DELETE CASCADE,
    system_identifier bigint NOT NULL,
    timeline int NOT NULL,
    -- Of the change by which it became another one; 0: it is the first that was seen, which is no change for anybody.
    epoch bigint NOT NULL DEFAULT 0
);

-- By a proxy that has seen it there. The first one is taken down, a newer timeline is a change of the map; nothing else changes anything.
CREATE FUNCTION shardgate_map.note_primary(actor text, shard_id int, system_identifier bigint, timeline int) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known shardgate_map.shard_primary;
    found_shard shardgate_map.shard;
    now_counter bigint;
BEGIN
    PERFORM shardgate_map.lock_map();
    SELECT * INTO found_shard FROM shardgate_map.shard s WHERE s.shard_id = note_primary.shard_id;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT * INTO known FROM shardgate_map.shard_primary p WHERE p.shard_id = note_primary.shard_id;
    IF NOT FOUND THEN
        INSERT INTO shardgate_map.shard_primary (shard_id, system_identifier, timeline)
        VALUES (note_primary.shard_id, note_primary.system_identifier, note_primary.timeline);
        RETURN;
    END IF;
    IF known.system_identifier <> note_primary.system_identifier OR known.timeline >= note_primary.timeline THEN
        RETURN;
    END IF;
    now_counter := shardgate_map.begin_change(actor, 'note_primary', jsonb_build_object('name', found_shard.name, 'timeline', note_primary.timeline));
    UPDATE shardgate_map.shard_primary p SET timeline = note_primary.timeline, epoch = now_counter
    WHERE p.shard_id = note_primary.shard_id;
END $$;

-- As before. Whoever calls this with a url has also seen this server there, which is the shard's primary from now on, unless it has an
-- older timeline.
CREATE FUNCTION shardgate_map.alter_shard(actor text, name text, url text, identity uuid, region text, capacity float8,
                                          replication_url text, state text, system_identifier bigint, timeline int) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known shardgate_map.shard_primary;
    changed bool;
    now_counter bigint;
BEGIN
    PERFORM shardgate_map.lock_map();
    SELECT p.* INTO known FROM shardgate_map.shard_primary p JOIN shardgate_map.shard s USING (shard_id) WHERE s.name = alter_shard.name;
    IF url IS NOT NULL AND known.system_identifier = alter_shard.system_identifier AND known.timeline > alter_shard.timeline THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('the url of shard "%s" leads to a former primary server', name),
            DETAIL = format('Its timeline is %s, and the shard has been on timeline %s.', alter_shard.timeline, known.timeline),
            HINT = 'Give the url of the server that was promoted, or of all servers: postgres://user@host1,host2/database.';
    END IF;
    changed := shardgate_map.alter_shard(actor, name, url, identity, region, capacity, replication_url, state);
    IF url IS NULL OR known IS NULL
       OR (known.system_identifier, known.timeline) = (alter_shard.system_identifier, alter_shard.timeline) THEN
        RETURN changed;
    END IF;
    IF changed THEN
        SELECT c.counter INTO STRICT now_counter FROM shardgate_map.cluster c;
    ELSE
        now_counter := shardgate_map.begin_change(actor, 'alter_shard', jsonb_build_object('name', name, 'server', 'changed'));
    END IF;
    UPDATE shardgate_map.shard_primary p
    SET system_identifier = alter_shard.system_identifier, timeline = alter_shard.timeline, epoch = now_counter
    WHERE p.shard_id = known.shard_id;
    RETURN true;
END $$;

CREATE OR REPLACE VIEW shardgate.shards AS
SELECT s.name, s.region, s.capacity, s.state, s.is_home,
       (SELECT count(*) FROM shardgate_map.partition p WHERE p.shard_id = s.shard_id) AS partitions,
       (SELECT p.timeline FROM shardgate_map.shard_primary p WHERE p.shard_id = s.shard_id) AS timeline
FROM shardgate_map.shard s;
