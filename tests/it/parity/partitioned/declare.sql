SELECT shardgate.distribute_table('events', 'tenant', partitions => 12);
SELECT shardgate.distribute_table('tenants', 'id', colocate_with => 'events');
SELECT shardgate.distribute_table('marks', 'tenant', colocate_with => 'events');
SELECT shardgate.distribute_table('slices', 'tenant', partitions => 6);
SELECT shardgate.reference_table('calendar');
SELECT setval('events_id_seq', 1000);
