SELECT shardgate.distribute_table('t', 'k', partitions => 12);
SELECT shardgate.distribute_table('o', 'k', colocate_with => 't');
SELECT shardgate.reference_table('ref');
SELECT shardgate.distribute_table('m', 'a', partitions => 12);
SELECT shardgate.distribute_table('h', 'a', partitions => 6);
SELECT shardgate.distribute_table('pairs', 'k', partitions => 6);
