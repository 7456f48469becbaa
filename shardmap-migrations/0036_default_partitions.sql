-- The default partition of a lookup group moves as others do: its keys are those that no list names, and while it moves no key is mapped
-- (refuse_if_moving).
CREATE OR REPLACE FUNCTION shardgate_map.plan_move(actor text, partitions int[], target text, options jsonb, driver bigint) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target_shard shardgate_map.shard;
    first_partition shardgate_map.partition;
    other record;
    planned int;
BEGIN
    PERFORM shardgate_map.lock_map();
    IF coalesce(cardinality(partitions), 0) = 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'a move needs at least one partition';
    END IF;
    target_shard := shardgate_map.require_online(target);
    first_partition := shardgate_map.require_partition(partitions[1]);
    PERFORM shardgate_map.require_partition(p) FROM unnest(partitions) p;
    PERFORM shardgate_map.refuse_if_moving(partitions);
    SELECT p.partition_id, p.group_id, s.name AS shard INTO other
    FROM shardgate_map.partition p JOIN shardgate_map.shard s USING (shard_id)
    WHERE p.partition_id = ANY (partitions)
      AND (p.group_id <> first_partition.group_id OR p.shard_id <> first_partition.shard_id) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'the partitions of a move belong to one colocation group and one shard',
            DETAIL = CASE WHEN other.group_id <> first_partition.group_id
                THEN format('Partition %s is of group %s, partition %s of group %s.', partitions[1], first_partition.group_id,
                            other.partition_id, other.group_id)
                ELSE format('Partition %s is on another shard than partition %s.', other.partition_id, partitions[1]) END,
            HINT = 'Make one move for each.';
    END IF;
    IF first_partition.shard_id = target_shard.shard_id THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('the partitions are on shard "%s" already', target);
    END IF;
    INSERT INTO shardgate_map.move AS m (group_id, source, target, options, driver, driver_seen)
    SELECT first_partition.group_id, s.name, plan_move.target, coalesce(plan_move.options, '{}'), plan_move.driver, clock_timestamp()
    FROM shardgate_map.shard s WHERE s.shard_id = first_partition.shard_id
    RETURNING m.move_id INTO planned;
    INSERT INTO shardgate_map.move_partition (move_id, partition_id) SELECT DISTINCT planned, p FROM unnest(partitions) p;
    PERFORM shardgate_map.begin_change(actor, 'plan_move', jsonb_build_object(
        'move', planned, 'partitions', to_jsonb(partitions), 'target', target));
    RETURN planned;
END $$;
