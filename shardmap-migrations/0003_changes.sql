-- The changes of the shard map: one function each, each one transaction.
--
-- All alike: take the map's lock, check, take the epoch, change. The lock comes first, so that what was checked is still true
-- when it is changed. Their errors reach the user unchanged, so they follow PostgreSQL's style: message in lower case, detail
-- and hint as sentences. Each runs with the rights of its caller.

-- Rows that are looked up by almost every change, or the error that says they are missing.
CREATE FUNCTION shardgate_map.require_shard(shard_name text) RETURNS shardgate_map.shard
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_shard shardgate_map.shard;
BEGIN
    SELECT * INTO found_shard FROM shardgate_map.shard s WHERE s.name = shard_name;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('shard "%s" does not exist', shard_name),
            HINT = 'SELECT name FROM shardgate.shards lists the shards.';
    END IF;
    RETURN found_shard;
END $$;

CREATE FUNCTION shardgate_map.require_online(shard_name text) RETURNS shardgate_map.shard
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_shard shardgate_map.shard := shardgate_map.require_shard(shard_name);
BEGIN
    IF found_shard.state <> 'online' THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('shard "%s" is not online', shard_name),
            DETAIL = 'Its schema and reference tables are not complete yet.',
            HINT = 'Call shardgate.add_shard() again to finish its preparation.';
    END IF;
    RETURN found_shard;
END $$;

CREATE FUNCTION shardgate_map.require_partition(partition int) RETURNS shardgate_map.partition
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_partition shardgate_map.partition;
BEGIN
    SELECT * INTO found_partition FROM shardgate_map.partition p WHERE p.partition_id = partition;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('partition %s does not exist', partition),
            HINT = 'SELECT partition_id, low, high FROM shardgate.partitions lists the partitions.';
    END IF;
    RETURN found_partition;
END $$;

CREATE FUNCTION shardgate_map.require_lookup_table(schema_name text, table_name text) RETURNS shardgate_map.colocation_group
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_group shardgate_map.colocation_group;
BEGIN
    SELECT g.* INTO found_group
    FROM shardgate_map.declared_table t JOIN shardgate_map.colocation_group g USING (group_id)
    WHERE t.schema_name = require_lookup_table.schema_name AND t.table_name = require_lookup_table.table_name;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42P01', MESSAGE = format('table "%s" is not sharded', table_name),
            HINT = 'Call shardgate.distribute_table() with strategy ''lookup'' first.';
    END IF;
    IF found_group.strategy <> 'lookup' THEN
        RAISE EXCEPTION USING ERRCODE = '55000',
            MESSAGE = format('table "%s" is sharded by %s, not by lookup', table_name, found_group.strategy),
            HINT = 'Only keys of lookup tables are mapped one by one.';
    END IF;
    RETURN found_group;
END $$;

-- What a running move has fixed may not change under it: its filter and its gates are lists and ranges made when it began.
CREATE FUNCTION shardgate_map.refuse_if_moving(partitions int[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    running record;
BEGIN
    SELECT m.move_id, m.partition_id, m.state INTO running FROM shardgate_map.move m
    WHERE m.partition_id = ANY (partitions) AND m.state NOT IN ('done', 'aborted')
    ORDER BY m.move_id LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = format('partition %s is being moved', running.partition_id),
            DETAIL = format('Move %s is in state "%s". Keys, tables, splits and merges of its partition are locked until its source rows are gone.',
                            running.move_id, running.state),
            HINT = format('Wait until the move is done, or end it with "shard-rebalance abort %s" or "shard-rebalance finish %s".',
                          running.move_id, running.move_id);
    END IF;
END $$;

CREATE FUNCTION shardgate_map.refuse_if_declared(schema_name text, table_name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known_kind text;
BEGIN
    SELECT t.kind INTO known_kind FROM shardgate_map.declared_table t
    WHERE t.schema_name = refuse_if_declared.schema_name AND t.table_name = refuse_if_declared.table_name;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42710',
            MESSAGE = format(CASE known_kind WHEN 'sharded' THEN 'table "%s" is already sharded'
                                             ELSE 'table "%s" is already a reference table' END, table_name),
            HINT = 'SELECT * FROM shardgate.tables shows how.';
    END IF;
END $$;

-- Shards ---------------------------------------------------------------------------------------------------------------------

-- The first shard is the home shard and online at once; another one is to be prepared and then set online. Called again for a
-- shard that is still being prepared it changes nothing, so that an interrupted preparation can be taken up.
CREATE FUNCTION shardgate_map.add_shard(actor text, name text, url text, region text, capacity float8, replication_url text,
                                        OUT shard_id int, OUT is_home bool, OUT state text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    existing shardgate_map.shard;
BEGIN
    IF name IS NULL OR name !~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$' THEN
        RAISE EXCEPTION USING ERRCODE = '42602', MESSAGE = format('invalid shard name "%s"', name),
            DETAIL = 'A shard''s name has 1 to 63 letters, digits, "_", "." and "-" and begins with a letter, a digit or "_".';
    END IF;
    IF capacity IS NULL OR NOT (capacity > 0 AND capacity < 'infinity') THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'capacity must be a number greater than zero';
    END IF;
    IF url IS NULL OR url = '' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'url must not be empty',
            HINT = 'Give the database as postgres://user:password@host:port/database.';
    END IF;
    PERFORM shardgate_map.lock_map();
    SELECT * INTO existing FROM shardgate_map.shard s WHERE s.name = add_shard.name;
    IF FOUND THEN
        IF existing.state = 'preparing' AND existing.url = add_shard.url THEN
            shard_id := existing.shard_id; is_home := existing.is_home; state := existing.state;
            RETURN;
        END IF;
        RAISE EXCEPTION USING ERRCODE = '42710', MESSAGE = format('shard "%s" already exists', name);
    END IF;
    SELECT * INTO existing FROM shardgate_map.shard s WHERE s.url = add_shard.url;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42710', MESSAGE = format('shard "%s" already has this url', existing.name),
            DETAIL = 'Two shards cannot be the same database.';
    END IF;
    is_home := NOT EXISTS (SELECT FROM shardgate_map.shard);
    state := CASE WHEN is_home THEN 'online' ELSE 'preparing' END;
    PERFORM shardgate_map.begin_change(actor, 'add_shard',
        jsonb_build_object('name', name, 'region', region, 'capacity', capacity, 'is_home', is_home));
    INSERT INTO shardgate_map.shard AS s (name, url, replication_url, region, capacity, state, is_home)
    VALUES (add_shard.name, add_shard.url, add_shard.replication_url, add_shard.region, add_shard.capacity,
            add_shard.state, add_shard.is_home)
    RETURNING s.shard_id INTO add_shard.shard_id;
END $$;

CREATE FUNCTION shardgate_map.set_shard_state(actor text, name text, state text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target shardgate_map.shard;
BEGIN
    PERFORM shardgate_map.lock_map();
    target := shardgate_map.require_shard(name);
    IF target.state = set_shard_state.state THEN
        RETURN;
    END IF;
    IF set_shard_state.state = 'preparing' AND (target.is_home
        OR EXISTS (SELECT FROM shardgate_map.partition p WHERE p.shard_id = target.shard_id)) THEN
        RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = format('shard "%s" is in use', name);
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'set_shard_state', jsonb_build_object('name', name, 'state', set_shard_state.state));
    UPDATE shardgate_map.shard s SET state = set_shard_state.state WHERE s.shard_id = target.shard_id;
END $$;

CREATE FUNCTION shardgate_map.drop_shard(actor text, name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target shardgate_map.shard;
    held bigint;
    moving record;
BEGIN
    PERFORM shardgate_map.lock_map();
    target := shardgate_map.require_shard(name);
    IF target.is_home THEN
        RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = format('cannot drop shard "%s" because it is the home shard', name),
            DETAIL = 'Tables that are not distributed live there.';
    END IF;
    SELECT m.move_id, m.partition_id INTO moving FROM shardgate_map.move m
    WHERE drop_shard.name IN (m.source, m.target) AND m.state NOT IN ('done', 'aborted') LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = format('cannot drop shard "%s" because move %s uses it', name, moving.move_id),
            HINT = format('Wait until the move is done, or end it with "shard-rebalance abort %s".', moving.move_id);
    END IF;
    -- A lookup partition without keys that is nobody's default holds no rows.
    SELECT count(*) INTO held FROM shardgate_map.partition p
    WHERE p.shard_id = target.shard_id
      AND (p.strategy <> 'lookup'
           OR EXISTS (SELECT FROM shardgate_map.lookup_key k WHERE k.partition_id = p.partition_id)
           OR EXISTS (SELECT FROM shardgate_map.colocation_group g WHERE g.default_partition = p.partition_id));
    IF held > 0 THEN
        RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = format('cannot drop shard "%s" because it holds partitions', name),
            DETAIL = format(CASE held WHEN 1 THEN '%s partition lives there.' ELSE '%s partitions live there.' END, held),
            HINT = format('Move them away first: "shard-rebalance plan --drain %s".', name);
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'drop_shard', jsonb_build_object('name', name));
    DELETE FROM shardgate_map.partition p WHERE p.shard_id = target.shard_id;
    DELETE FROM shardgate_map.shard s WHERE s.shard_id = target.shard_id;
END $$;

-- Tables ---------------------------------------------------------------------------------------------------------------------

-- smallint, integer and bigint hash and sort alike, so that tables whose keys are different integers can be colocated.
CREATE FUNCTION shardgate_map.key_classes(key_types text[]) RETURNS text[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT array_agg(CASE WHEN t.name IN ('smallint', 'integer', 'bigint') THEN 'integer' ELSE t.name END ORDER BY t.place)
    FROM unnest(key_types) WITH ORDINALITY t(name, place)
$$;

-- Makes a table sharded: in the group colocate_with, or in a new one whose partitions the arrays list (low bounds, their
-- text, shards; one element a partition). For a lookup group lows and low_texts are null, and default_shard, when given, gets
-- a partition for the keys without a mapping: rows that are already there are reachable from the first moment.
CREATE FUNCTION shardgate_map.distribute_table(actor text, schema_name text, table_name text, key jsonb, key_text text,
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
            PERFORM shardgate_map.require_online(default_shard);
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

CREATE FUNCTION shardgate_map.require_colocatable(group_id int, key_types text[], strategy text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known shardgate_map.colocation_group;
BEGIN
    SELECT * INTO known FROM shardgate_map.colocation_group g WHERE g.group_id = require_colocatable.group_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('colocation group %s does not exist', group_id);
    END IF;
    IF known.strategy <> strategy THEN
        RAISE EXCEPTION USING ERRCODE = '42P17',
            MESSAGE = format('cannot colocate a table sharded by %s with tables sharded by %s', strategy, known.strategy),
            HINT = format('Use strategy ''%s'', or leave out colocate_with.', known.strategy);
    END IF;
    IF shardgate_map.key_classes(known.key_types) <> shardgate_map.key_classes(key_types) THEN
        RAISE EXCEPTION USING ERRCODE = '42P17', MESSAGE = 'cannot colocate tables whose shard keys have different types',
            DETAIL = format('The shard key has the types (%s), the colocation group''s (%s).',
                            array_to_string(key_types, ', '), array_to_string(known.key_types, ', ')),
            HINT = 'Give the columns the same types, or leave out colocate_with.';
    END IF;
    PERFORM shardgate_map.refuse_if_moving(array(
        SELECT p.partition_id FROM shardgate_map.partition p WHERE p.group_id = require_colocatable.group_id));
END $$;

CREATE FUNCTION shardgate_map.require_placement(strategy text, lows bytea[], low_texts text[], shard_names text[]) RETURNS void
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
    PERFORM shardgate_map.require_online(n.name) FROM (SELECT DISTINCT name FROM unnest(shard_names) name) n;
END $$;

CREATE FUNCTION shardgate_map.make_group(strategy text, key_types text[], lows bytea[], low_texts text[], shard_names text[])
RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    new_group int;
BEGIN
    INSERT INTO shardgate_map.colocation_group AS g (strategy, key_types, beginning)
    VALUES (make_group.strategy, make_group.key_types, CASE WHEN make_group.strategy <> 'lookup' THEN ''::bytea END)
    RETURNING g.group_id INTO new_group;
    INSERT INTO shardgate_map.partition (group_id, strategy, shard_id, low, low_text)
    SELECT new_group, make_group.strategy, s.shard_id, p.low, p.low_text
    FROM ROWS FROM (unnest(shard_names), unnest(lows), unnest(low_texts)) WITH ORDINALITY p(shard_name, low, low_text, place)
    JOIN shardgate_map.shard s ON s.name = p.shard_name
    ORDER BY p.place;
    RETURN new_group;
END $$;

CREATE FUNCTION shardgate_map.make_default_partition(of_group int, shard_name text) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made int;
BEGIN
    INSERT INTO shardgate_map.partition AS p (group_id, strategy, shard_id)
    SELECT of_group, 'lookup', s.shard_id FROM shardgate_map.shard s WHERE s.name = shard_name
    RETURNING p.partition_id INTO STRICT made;
    UPDATE shardgate_map.colocation_group g SET default_partition = made WHERE g.group_id = of_group;
    RETURN made;
END $$;

CREATE FUNCTION shardgate_map.reference_table(actor text, schema_name text, table_name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    PERFORM shardgate_map.refuse_if_declared(schema_name, table_name);
    PERFORM shardgate_map.begin_change(actor, 'reference_table',
        jsonb_build_object('table', jsonb_build_array(schema_name, table_name)));
    INSERT INTO shardgate_map.declared_table (schema_name, table_name, kind)
    VALUES (reference_table.schema_name, reference_table.table_name, 'reference');
    DELETE FROM shardgate_map.home_table h
    WHERE h.schema_name = reference_table.schema_name AND h.table_name = reference_table.table_name;
END $$;

-- After DROP TABLE. A group without tables goes with its last one. Returns whether the table was declared.
CREATE FUNCTION shardgate_map.drop_table(actor text, schema_name text, table_name text) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    dropped record;
BEGIN
    PERFORM shardgate_map.lock_map();
    SELECT t.group_id INTO dropped FROM shardgate_map.declared_table t
    WHERE t.schema_name = drop_table.schema_name AND t.table_name = drop_table.table_name;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM shardgate_map.refuse_if_moving(array(
        SELECT p.partition_id FROM shardgate_map.partition p WHERE p.group_id = dropped.group_id));
    PERFORM shardgate_map.begin_change(actor, 'drop_table',
        jsonb_build_object('table', jsonb_build_array(schema_name, table_name)));
    DELETE FROM shardgate_map.declared_table t
    WHERE t.schema_name = drop_table.schema_name AND t.table_name = drop_table.table_name;
    IF NOT EXISTS (SELECT FROM shardgate_map.declared_table t WHERE t.group_id = dropped.group_id) THEN
        -- The group first: its one record of removal stands for all that was in it.
        DELETE FROM shardgate_map.colocation_group g WHERE g.group_id = dropped.group_id;
        DELETE FROM shardgate_map.lookup_key k WHERE k.group_id = dropped.group_id;
        DELETE FROM shardgate_map.partition p WHERE p.group_id = dropped.group_id;
    END IF;
    RETURN true;
END $$;

-- After ALTER TABLE … RENAME or SET SCHEMA. Returns whether the table was declared.
CREATE FUNCTION shardgate_map.rename_table(actor text, schema_name text, table_name text, new_schema text, new_name text) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    renamed shardgate_map.declared_table;
BEGIN
    PERFORM shardgate_map.lock_map();
    SELECT * INTO renamed FROM shardgate_map.declared_table t
    WHERE t.schema_name = rename_table.schema_name AND t.table_name = rename_table.table_name;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM shardgate_map.refuse_if_declared(new_schema, new_name);
    PERFORM shardgate_map.refuse_if_moving(array(
        SELECT p.partition_id FROM shardgate_map.partition p WHERE p.group_id = renamed.group_id));
    PERFORM shardgate_map.begin_change(actor, 'rename_table', jsonb_build_object(
        'table', jsonb_build_array(schema_name, table_name), 'to', jsonb_build_array(new_schema, new_name)));
    -- Removal and insertion, so that who follows change by change forgets the old name.
    DELETE FROM shardgate_map.declared_table t
    WHERE t.schema_name = rename_table.schema_name AND t.table_name = rename_table.table_name;
    INSERT INTO shardgate_map.declared_table (schema_name, table_name, kind, group_id, key, key_text)
    VALUES (new_schema, new_name, renamed.kind, renamed.group_id, renamed.key, renamed.key_text);
    RETURN true;
END $$;

-- Lookup ---------------------------------------------------------------------------------------------------------------------

-- A partition of this lookup group on this shard that may take keys, or a new one. Never one that is moving, since the move
-- would neither copy nor fence the new key; never the default's, whose keys are those that no list names.
CREATE FUNCTION shardgate_map.lookup_partition(of_group shardgate_map.colocation_group, on_shard shardgate_map.shard) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    chosen int;
BEGIN
    SELECT p.partition_id INTO chosen FROM shardgate_map.partition p
    WHERE p.group_id = of_group.group_id AND p.shard_id = on_shard.shard_id AND p.state = 'online'
      AND p.partition_id IS DISTINCT FROM of_group.default_partition
      AND NOT EXISTS (SELECT FROM shardgate_map.move m
                      WHERE m.partition_id = p.partition_id AND m.state NOT IN ('done', 'aborted'))
    ORDER BY p.partition_id LIMIT 1;
    IF NOT FOUND THEN
        INSERT INTO shardgate_map.partition AS p (group_id, strategy, shard_id)
        VALUES (of_group.group_id, 'lookup', on_shard.shard_id)
        RETURNING p.partition_id INTO chosen;
    END IF;
    RETURN chosen;
END $$;

CREATE FUNCTION shardgate_map.map_key(actor text, schema_name text, table_name text, key bytea, key_text text, shard_name text)
RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target_group shardgate_map.colocation_group;
    target_shard shardgate_map.shard;
    owner record;
    chosen int;
BEGIN
    PERFORM shardgate_map.lock_map();
    target_group := shardgate_map.require_lookup_table(schema_name, table_name);
    target_shard := shardgate_map.require_online(shard_name);
    SELECT p.partition_id, s.name INTO owner
    FROM shardgate_map.lookup_key k
    JOIN shardgate_map.partition p USING (partition_id) JOIN shardgate_map.shard s USING (shard_id)
    WHERE k.group_id = target_group.group_id AND k.key = map_key.key;
    IF FOUND THEN
        IF owner.name = shard_name THEN
            RETURN owner.partition_id;
        END IF;
        RAISE EXCEPTION USING ERRCODE = '55000',
            MESSAGE = format('the key is already mapped to shard "%s"', owner.name),
            DETAIL = format('Its rows in partition %s would be left behind there.', owner.partition_id),
            HINT = format('Move it: "shard-rebalance isolate --table %s --key KEY --to %s".', table_name, shard_name);
    END IF;
    -- Until now the key belongs to the default's shard, and may have rows there.
    SELECT p.partition_id, s.name INTO owner
    FROM shardgate_map.partition p JOIN shardgate_map.shard s USING (shard_id)
    WHERE p.partition_id = target_group.default_partition;
    IF FOUND THEN
        PERFORM shardgate_map.refuse_if_moving(ARRAY[owner.partition_id]);
        IF owner.name <> shard_name THEN
            RAISE EXCEPTION USING ERRCODE = '55000',
                MESSAGE = format('cannot map the key to shard "%s" because its rows may be on the default shard "%s"',
                                 shard_name, owner.name),
                DETAIL = 'Keys without a mapping live on the default shard, so mapping this one elsewhere would leave its rows behind.',
                HINT = format('Map it to shard "%s", then move it: "shard-rebalance isolate --table %s --key KEY --to %s".',
                              owner.name, table_name, shard_name);
        END IF;
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'map_key', jsonb_build_object(
        'table', jsonb_build_array(schema_name, table_name), 'key', key_text, 'shard', shard_name));
    chosen := shardgate_map.lookup_partition(target_group, target_shard);
    INSERT INTO shardgate_map.lookup_key (group_id, key, key_text, partition_id)
    VALUES (target_group.group_id, map_key.key, map_key.key_text, chosen);
    RETURN chosen;
END $$;

CREATE FUNCTION shardgate_map.set_default_shard(actor text, schema_name text, table_name text, shard_name text) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target_group shardgate_map.colocation_group;
    owner record;
BEGIN
    PERFORM shardgate_map.lock_map();
    target_group := shardgate_map.require_lookup_table(schema_name, table_name);
    PERFORM shardgate_map.require_online(shard_name);
    SELECT p.partition_id, s.name INTO owner
    FROM shardgate_map.partition p JOIN shardgate_map.shard s USING (shard_id)
    WHERE p.partition_id = target_group.default_partition;
    IF FOUND THEN
        IF owner.name = shard_name THEN
            RETURN owner.partition_id;
        END IF;
        RAISE EXCEPTION USING ERRCODE = '55000',
            MESSAGE = format('the default shard of table "%s" is already "%s"', table_name, owner.name),
            DETAIL = format('Rows of keys without a mapping would be left behind in partition %s.', owner.partition_id),
            HINT = format('Move the default partition: "shard-rebalance move --partition %s --to %s".', owner.partition_id, shard_name);
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'set_default_shard', jsonb_build_object(
        'table', jsonb_build_array(schema_name, table_name), 'shard', shard_name));
    RETURN shardgate_map.make_default_partition(target_group.group_id, shard_name);
END $$;

-- Partitions -----------------------------------------------------------------------------------------------------------------

-- The lower piece keeps the number; the result is the number of the upper one, which begins at low.
CREATE FUNCTION shardgate_map.split_partition(actor text, partition int, low bytea, low_text text) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target shardgate_map.partition;
    next_low bytea;
    upper int;
BEGIN
    PERFORM shardgate_map.lock_map();
    target := shardgate_map.require_partition(partition);
    IF target.strategy = 'lookup' THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('cannot split lookup partition %s at a key', partition),
            DETAIL = 'A lookup partition is a list of keys, not a range.',
            HINT = 'Give a key a partition of its own with "shard-rebalance isolate".';
    END IF;
    PERFORM shardgate_map.refuse_if_moving(ARRAY[partition]);
    SELECT p.low INTO next_low FROM shardgate_map.partition p
    WHERE p.group_id = target.group_id AND p.low > target.low ORDER BY p.low LIMIT 1;
    IF low IS NULL OR low <= target.low OR low >= next_low
       OR (target.strategy = 'hash' AND low <= '\x0000000000000000') THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = format('cannot split partition %s at its edge or outside of it', partition),
            DETAIL = format('The partition reaches from %s to %s.', coalesce(target.low_text, 'the beginning'),
                coalesce((SELECT p.low_text FROM shardgate_map.partition p
                          WHERE p.group_id = target.group_id AND p.low = next_low), 'the end')),
            HINT = 'Give a place between these two.';
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'split_partition', jsonb_build_object('partition', partition, 'at', low_text));
    INSERT INTO shardgate_map.partition AS p (group_id, strategy, shard_id, low, low_text)
    VALUES (target.group_id, target.strategy, target.shard_id, split_partition.low, split_partition.low_text)
    RETURNING p.partition_id INTO upper;
    -- Its extent changed, though not its row.
    UPDATE shardgate_map.partition p SET epoch = 0 WHERE p.partition_id = partition;
    RETURN upper;
END $$;

-- Neighbours on one shard become one; the lower one's number stays. Lookup: any two on one shard, a's number stays.
CREATE FUNCTION shardgate_map.merge_partitions(actor text, a int, b int) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept shardgate_map.partition;
    gone shardgate_map.partition;
BEGIN
    PERFORM shardgate_map.lock_map();
    kept := shardgate_map.require_partition(a);
    gone := shardgate_map.require_partition(b);
    IF kept.low > gone.low THEN
        kept := shardgate_map.require_partition(b);
        gone := shardgate_map.require_partition(a);
    END IF;
    PERFORM shardgate_map.require_mergeable(kept, gone);
    PERFORM shardgate_map.refuse_if_moving(ARRAY[a, b]);
    PERFORM shardgate_map.begin_change(actor, 'merge_partitions',
        jsonb_build_object('kept', kept.partition_id, 'gone', gone.partition_id));
    UPDATE shardgate_map.lookup_key k SET partition_id = kept.partition_id WHERE k.partition_id = gone.partition_id;
    DELETE FROM shardgate_map.partition p WHERE p.partition_id = gone.partition_id;
    UPDATE shardgate_map.partition p SET epoch = 0 WHERE p.partition_id = kept.partition_id;
    RETURN kept.partition_id;
END $$;

CREATE FUNCTION shardgate_map.require_mergeable(lower shardgate_map.partition, upper shardgate_map.partition) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    pair text := format('partitions %s and %s', lower.partition_id, upper.partition_id);
BEGIN
    IF lower.partition_id = upper.partition_id THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('cannot merge partition %s with itself', lower.partition_id);
    END IF;
    IF lower.group_id <> upper.group_id THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'cannot merge ' || pair,
            DETAIL = 'They belong to different colocation groups.';
    END IF;
    IF lower.shard_id <> upper.shard_id THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'cannot merge ' || pair,
            DETAIL = 'They are on different shards.',
            HINT = 'Move one of them to the other''s shard first, with "shard-rebalance move".';
    END IF;
    IF EXISTS (SELECT FROM shardgate_map.colocation_group g
               WHERE g.default_partition IN (lower.partition_id, upper.partition_id)) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'cannot merge ' || pair,
            DETAIL = 'One of them is the default partition, whose keys no list names.';
    END IF;
    IF EXISTS (SELECT FROM shardgate_map.partition p
               WHERE p.group_id = lower.group_id AND p.low > lower.low AND p.low < upper.low) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'cannot merge ' || pair,
            DETAIL = 'They are not neighbours.',
            HINT = 'Merge what lies between them first.';
    END IF;
END $$;

-- Functions ------------------------------------------------------------------------------------------------------------------

CREATE FUNCTION shardgate_map.declare_function(actor text, schema_name text, function_name text, reads jsonb, writes jsonb,
                                               key_argument int) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF key_argument <= 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'key_argument must be greater than zero',
            DETAIL = 'The first argument is number 1.';
    END IF;
    PERFORM shardgate_map.lock_map();
    PERFORM shardgate_map.begin_change(actor, 'declare_function', jsonb_build_object(
        'function', jsonb_build_array(schema_name, function_name), 'reads', reads, 'writes', writes, 'key_argument', key_argument));
    INSERT INTO shardgate_map.declared_function AS f (schema_name, function_name, reads, writes, key_argument)
    VALUES (declare_function.schema_name, declare_function.function_name, declare_function.reads, declare_function.writes,
            declare_function.key_argument)
    ON CONFLICT ON CONSTRAINT declared_function_pkey
    DO UPDATE SET reads = excluded.reads, writes = excluded.writes, key_argument = excluded.key_argument;
END $$;

-- After DROP FUNCTION. Returns whether it was declared.
CREATE FUNCTION shardgate_map.drop_function(actor text, schema_name text, function_name text) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    IF NOT EXISTS (SELECT FROM shardgate_map.declared_function f
                   WHERE f.schema_name = drop_function.schema_name AND f.function_name = drop_function.function_name) THEN
        RETURN false;
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'drop_function',
        jsonb_build_object('function', jsonb_build_array(schema_name, function_name)));
    DELETE FROM shardgate_map.declared_function f
    WHERE f.schema_name = drop_function.schema_name AND f.function_name = drop_function.function_name;
    RETURN true;
END $$;

-- The shards' schema ---------------------------------------------------------------------------------------------------------

-- The intent, before the first shard is changed: until it is finished the shards may differ.
CREATE FUNCTION shardgate_map.begin_schema_change(actor text, command_tag text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    opened bigint;
    taken bigint;
BEGIN
    PERFORM shardgate_map.lock_map();
    INSERT INTO shardgate_map.schema_change AS c (actor, command_tag)
    VALUES (begin_schema_change.actor, begin_schema_change.command_tag)
    RETURNING c.schema_change_id INTO opened;
    taken := shardgate_map.begin_change(actor, 'begin_schema_change',
        jsonb_build_object('schema_change', opened, 'command_tag', command_tag));
    UPDATE shardgate_map.cluster SET schema_version = taken;
    RETURN opened;
END $$;

CREATE FUNCTION shardgate_map.finish_schema_change(actor text, schema_change bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    taken bigint;
BEGIN
    PERFORM shardgate_map.lock_map();
    UPDATE shardgate_map.schema_change c SET finished_at = clock_timestamp()
    WHERE c.schema_change_id = schema_change AND c.finished_at IS NULL;
    IF FOUND THEN
        taken := shardgate_map.begin_change(actor, 'finish_schema_change', jsonb_build_object('schema_change', schema_change));
        UPDATE shardgate_map.cluster SET schema_version = taken;
    END IF;
END $$;

-- Unique ids -----------------------------------------------------------------------------------------------------------------

-- Gives away the ids first_id … first_id + how_many - 1, for ever. The upper 41 bits are milliseconds since 2020, so that ids
-- grow with time, and also after a fail-over that forgot the last blocks.
CREATE FUNCTION shardgate_map.reserve_unique_ids(how_many int) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_id bigint := ((extract(epoch FROM clock_timestamp()) * 1000)::bigint - 1577836800000) << 22;
    last bigint;
BEGIN
    IF how_many NOT BETWEEN 1 AND 1000000 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'a block has between 1 and 1000000 unique ids';
    END IF;
    UPDATE shardgate_map.unique_id u SET last_id = greatest(u.last_id, now_id) + how_many
    RETURNING u.last_id INTO STRICT last;
    RETURN last - how_many + 1;
END $$;

-- Home tables ----------------------------------------------------------------------------------------------------------------

-- Only for the relation shardgate.tables: nothing is routed by it, so it takes no epoch.
CREATE FUNCTION shardgate_map.replace_home_tables(schemas text[], names text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    DELETE FROM shardgate_map.home_table h
    WHERE NOT EXISTS (SELECT FROM ROWS FROM (unnest(schemas), unnest(names)) n(schema_name, table_name)
                      WHERE n.schema_name = h.schema_name AND n.table_name = h.table_name);
    INSERT INTO shardgate_map.home_table (schema_name, table_name)
    SELECT n.schema_name, n.table_name FROM ROWS FROM (unnest(schemas), unnest(names)) n(schema_name, table_name)
    WHERE NOT EXISTS (SELECT FROM shardgate_map.declared_table t
                      WHERE t.schema_name = n.schema_name AND t.table_name = n.table_name)
    ON CONFLICT DO NOTHING;
END $$;
