SELECT shardgate.distribute_table('orders', 'o_orderkey', partitions => 12);
SELECT shardgate.distribute_table('lineitem', 'l_orderkey', colocate_with => 'orders');
SELECT shardgate.distribute_table('part', 'p_partkey', partitions => 12);
SELECT shardgate.distribute_table('partsupp', 'ps_partkey', colocate_with => 'part');
SELECT shardgate.distribute_table('customer', 'c_custkey', partitions => 12);
SELECT shardgate.distribute_table('supplier', 's_suppkey', partitions => 12);
SELECT shardgate.reference_table('nation');
SELECT shardgate.reference_table('region');
