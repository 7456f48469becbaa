-- Many keys of a lookup group in one change.

-- As map_key() for each of them, all or none. Returns how many were not mapped before.
CREATE FUNCTION shardgate_map.map_keys(actor text, schema_name text, table_name text, keys bytea[], key_texts text[], shard_name text)
RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target_group shardgate_map.colocation_group;
    target_shard shardgate_map.shard;
    owner record;
    chosen int;
    mapped int;
BEGIN
    IF coalesce(cardinality(keys), 0) NOT BETWEEN 1 AND 100000 OR cardinality(keys) IS DISTINCT FROM cardinality(key_texts) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'the number of keys must be between 1 and 100000';
    END IF;
    PERFORM shardgate_map.lock_map();
    target_group := shardgate_map.require_lookup_table(schema_name, table_name);
    target_shard := shardgate_map.require_online(shard_name);
    SELECT count(*) AS others, min(s.name) AS name INTO owner
    FROM shardgate_map.lookup_key k
    JOIN shardgate_map.partition p USING (partition_id) JOIN shardgate_map.shard s USING (shard_id)
    WHERE k.group_id = target_group.group_id AND k.key = ANY (keys) AND s.shard_id <> target_shard.shard_id;
    IF owner.others > 0 THEN
        RAISE EXCEPTION USING ERRCODE = '55000',
            MESSAGE = format('%s of the keys are already mapped to other shards, one to shard "%s"', owner.others, owner.name),
            DETAIL = 'Their rows would be left behind there. No key was mapped.',
            HINT = format('SELECT * FROM shardgate.lookup_keys shows them. Move them: "shard-rebalance isolate --table %s --key KEY --to %s".',
                          table_name, shard_name);
    END IF;
    IF (SELECT count(*) FROM shardgate_map.lookup_key k WHERE k.group_id = target_group.group_id AND k.key = ANY (keys))
       = (SELECT count(DISTINCT key) FROM unnest(keys) key) THEN
        RETURN 0;
    END IF;
    -- Until now the keys belong to the default's shard, and may have rows there.
    SELECT p.partition_id, s.name INTO owner
    FROM shardgate_map.partition p JOIN shardgate_map.shard s USING (shard_id)
    WHERE p.partition_id = target_group.default_partition;
    IF FOUND THEN
        PERFORM shardgate_map.refuse_if_moving(ARRAY[owner.partition_id]);
        IF owner.name <> shard_name THEN
            RAISE EXCEPTION USING ERRCODE = '55000',
                MESSAGE = format('cannot map the keys to shard "%s" because their rows may be on the default shard "%s"',
                                 shard_name, owner.name),
                DETAIL = 'Keys without a mapping live on the default shard, so mapping them elsewhere would leave their rows behind.',
                HINT = format('Map them to shard "%s", then move them: "shard-rebalance isolate --table %s --key KEY --to %s".',
                              owner.name, table_name, shard_name);
        END IF;
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'map_keys', jsonb_build_object(
        'table', jsonb_build_array(schema_name, table_name), 'keys', cardinality(keys), 'shard', shard_name));
    chosen := shardgate_map.lookup_partition(target_group, target_shard);
    INSERT INTO shardgate_map.lookup_key (group_id, key, key_text, partition_id)
    SELECT DISTINCT ON (n.key) target_group.group_id, n.key, n.key_text, chosen
    FROM ROWS FROM (unnest(keys), unnest(key_texts)) n(key, key_text)
    WHERE NOT EXISTS (SELECT FROM shardgate_map.lookup_key k WHERE k.group_id = target_group.group_id AND k.key = n.key);
    GET DIAGNOSTICS mapped = ROW_COUNT;
    RETURN mapped;
END $$;
