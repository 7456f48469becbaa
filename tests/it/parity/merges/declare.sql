SELECT shardgate.distribute_table('t', 'k', partitions => 12);
SELECT shardgate.distribute_table('o', 'k', colocate_with => 't');
SELECT shardgate.reference_table('ref');
