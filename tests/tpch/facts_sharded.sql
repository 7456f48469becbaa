SELECT shardgate.distribute_table('orders', 'o_orderkey', partitions => 12);
SELECT shardgate.distribute_table('lineitem', 'l_orderkey', colocate_with => 'orders');
SELECT shardgate.reference_table('part');
SELECT shardgate.reference_table('partsupp');
SELECT shardgate.reference_table('customer');
SELECT shardgate.reference_table('supplier');
SELECT shardgate.reference_table('nation');
SELECT shardgate.reference_table('region');
