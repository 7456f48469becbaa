-- Cutting partitions of a group wherever they lie, and a partition of its own for one key.

-- Partitions of the group begin at these places; what is cut stays on its shard. A place where one begins already is left alone, so
-- that the call can be repeated. All or none. Gives how many were cut off.
CREATE FUNCTION shardgate_map.split_group(actor text, of_group int, lows bytea[], low_texts text[]) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target_group shardgate_map.colocation_group;
    cut int[];
    made int;
BEGIN
    PERFORM shardgate_map.lock_map();
    SELECT * INTO target_group FROM shardgate_map.colocation_group g WHERE g.group_id = of_group;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('colocation group %s does not exist', of_group);
    END IF;
    IF target_group.strategy = 'lookup' THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'a lookup partition cannot be split at a key',
            DETAIL = 'A lookup partition is a list of keys, not a range.',
            HINT = 'Give a key a partition of its own with "shard-rebalance isolate".';
    END IF;
    IF cardinality(lows) IS DISTINCT FROM cardinality(low_texts) OR EXISTS (
        SELECT FROM unnest(lows) n(low)
        WHERE n.low IS NULL OR n.low = '' OR (target_group.strategy = 'hash' AND (octet_length(n.low) <> 8 OR n.low = '\x0000000000000000'))) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'a partition cannot be split at the beginning of the key space';
    END IF;
    SELECT array_agg(DISTINCT owner.partition_id) INTO cut
    FROM unnest(lows) n(low)
    CROSS JOIN LATERAL (SELECT p.partition_id, p.low FROM shardgate_map.partition p
                        WHERE p.group_id = of_group AND p.low <= n.low ORDER BY p.low DESC LIMIT 1) owner
    WHERE owner.low <> n.low;
    IF cut IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM shardgate_map.refuse_if_moving(cut);
    PERFORM shardgate_map.begin_change(actor, 'split_group', jsonb_build_object(
        'group', of_group, 'partitions', to_jsonb(cut), 'at', to_jsonb(low_texts)));
    INSERT INTO shardgate_map.partition AS p (group_id, strategy, shard_id, low, low_text)
    SELECT DISTINCT ON (n.low) of_group, target_group.strategy, owner.shard_id, n.low, n.low_text
    FROM ROWS FROM (unnest(lows), unnest(low_texts)) n(low, low_text)
    CROSS JOIN LATERAL (SELECT p.shard_id, p.low FROM shardgate_map.partition p
                        WHERE p.group_id = of_group AND p.low <= n.low ORDER BY p.low DESC LIMIT 1) owner
    WHERE owner.low <> n.low;
    GET DIAGNOSTICS made = ROW_COUNT;
    -- Their extent changed, though not their rows.
    UPDATE shardgate_map.partition p SET epoch = 0 WHERE p.partition_id = ANY (cut);
    RETURN made;
END $$;

-- Lookup: a partition of the key's own, on the shard where the key lies. A key that is alone in its partition keeps it. A key without
-- a mapping lies on the default shard, and is mapped there. Gives the partition.
CREATE FUNCTION shardgate_map.isolate_lookup_key(actor text, schema_name text, table_name text, key bytea, key_text text) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target_group shardgate_map.colocation_group;
    mapped int;
    owner shardgate_map.partition;
    own int;
BEGIN
    PERFORM shardgate_map.lock_map();
    target_group := shardgate_map.require_lookup_table(schema_name, table_name);
    SELECT k.partition_id INTO mapped FROM shardgate_map.lookup_key k
    WHERE k.group_id = target_group.group_id AND k.key = isolate_lookup_key.key;
    IF mapped IS NULL AND target_group.default_partition IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('no shard for this key of table "%s"', table_name),
            DETAIL = 'The key has no mapping, and the table no default shard.',
            HINT = 'Map it with shardgate.map_key().';
    END IF;
    owner := shardgate_map.require_partition(coalesce(mapped, target_group.default_partition));
    IF mapped IS NOT NULL AND mapped IS DISTINCT FROM target_group.default_partition AND NOT EXISTS (
        SELECT FROM shardgate_map.lookup_key k WHERE k.partition_id = mapped AND k.key <> isolate_lookup_key.key) THEN
        RETURN mapped;
    END IF;
    PERFORM shardgate_map.refuse_if_moving(ARRAY[owner.partition_id]);
    PERFORM shardgate_map.begin_change(actor, 'isolate_lookup_key', jsonb_build_object(
        'table', jsonb_build_array(schema_name, table_name), 'key', key_text, 'from', owner.partition_id));
    INSERT INTO shardgate_map.partition AS p (group_id, strategy, shard_id)
    VALUES (target_group.group_id, 'lookup', owner.shard_id)
    RETURNING p.partition_id INTO own;
    IF mapped IS NULL THEN
        INSERT INTO shardgate_map.lookup_key (group_id, key, key_text, partition_id)
        VALUES (target_group.group_id, isolate_lookup_key.key, isolate_lookup_key.key_text, own);
    ELSE
        UPDATE shardgate_map.lookup_key k SET partition_id = own
        WHERE k.group_id = target_group.group_id AND k.key = isolate_lookup_key.key;
    END IF;
    RETURN own;
END $$;

-- Whether the second was merged into the first. Numbers of partitions are never used again.
CREATE FUNCTION shardgate_map.was_merged(kept int, gone int) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM shardgate_map.partition p WHERE p.partition_id = kept)
       AND NOT EXISTS (SELECT FROM shardgate_map.partition p WHERE p.partition_id = gone)
       AND EXISTS (SELECT FROM shardgate_map.history h
                   WHERE h.change = 'merge_partitions' AND h.arguments = jsonb_build_object('kept', kept, 'gone', gone))
$$;
