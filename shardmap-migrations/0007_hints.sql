-- Hints name what can be done: this version moves no rows.

DO $hints$
DECLARE
    function oid;
    definition text;
    hint text[];
BEGIN
    FOR function IN
        SELECT p.oid FROM pg_catalog.pg_proc p
        WHERE p.pronamespace = 'shardgate_map'::pg_catalog.regnamespace AND p.prosrc LIKE '%"shard-rebalance %'
    LOOP
        definition := pg_catalog.pg_get_functiondef(function);
        FOREACH hint SLICE 1 IN ARRAY ARRAY[
            [$h$HINT = format('Wait until the move is done, or end it with "shard-rebalance abort %s" or "shard-rebalance finish %s".',
                          running.move_id, running.move_id)$h$,
             $h$HINT = 'Wait until the move is done; shardgate.moves shows its state.'$h$],
            [$h$HINT = format('Wait until the move is done, or end it with "shard-rebalance abort %s".', moving.move_id)$h$,
             $h$HINT = 'Wait until the move is done; shardgate.moves shows its state.'$h$],
            [$h$HINT = format('Move them away first: "shard-rebalance plan --drain %s".', name)$h$,
             $h$HINT = 'A shard can be dropped while it holds none; "shard-rebalance status --partitions" shows where they are.'$h$],
            [$h$HINT = format('Move it: "shard-rebalance isolate --table %s --key KEY --to %s".', table_name, shard_name)$h$,
             $h$HINT = format('Leave the key on shard "%s".', owner.name)$h$],
            [$h$HINT = format('Map it to shard "%s", then move it: "shard-rebalance isolate --table %s --key KEY --to %s".',
                              owner.name, table_name, shard_name)$h$,
             $h$HINT = format('Map it to shard "%s".', owner.name)$h$],
            [$h$HINT = format('Move the default partition: "shard-rebalance move --partition %s --to %s".', owner.partition_id, shard_name)$h$,
             $h$HINT = format('Leave the default on shard "%s", and map single keys with shardgate.map_key.', owner.name)$h$],
            [$h$HINT = 'Give a key a partition of its own with "shard-rebalance isolate".'$h$,
             $h$HINT = 'Only partitions of the strategies hash and range can be split.'$h$],
            [$h$HINT = 'Move one of them to the other''s shard first, with "shard-rebalance move".'$h$,
             $h$HINT = 'Only neighbours on one shard can be merged; shardgate.partitions shows where each is.'$h$]
        ]
        LOOP
            definition := pg_catalog.replace(definition, hint[1], hint[2]);
        END LOOP;
        IF definition LIKE '%"shard-rebalance abort%' OR definition LIKE '%"shard-rebalance isolate%'
            OR definition LIKE '%"shard-rebalance move%' OR definition LIKE '%"shard-rebalance plan%' THEN
            RAISE EXCEPTION 'a hint of function % was not replaced', function::pg_catalog.regprocedure;
        END IF;
        EXECUTE definition;
    END LOOP;
END $hints$;
