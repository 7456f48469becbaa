SELECT shardgate.distribute_table('facts', 'id', partitions => 12);
SELECT shardgate.distribute_table('dims', 'k', partitions => 7);
SELECT shardgate.distribute_table('odds', 'k');
SELECT shardgate.distribute_table('empties', 'k');
SELECT shardgate.reference_table('copies');
