SELECT shardgate.distribute_table('people', 'id');
SELECT shardgate.distribute_table('visits', 'id');
SELECT shardgate.distribute_table('r_text', 'k', 'range');
SELECT shardgate.distribute_table('streets', 'town, number');
SELECT shardgate.reference_table('shops');
