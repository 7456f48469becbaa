-- How the book catalogue is sharded. Run it through the proxy after schema.sql and languages.sql.

-- A copy on every shard: joins with it never leave the shard.
SELECT shardgate.reference_table('languages');

-- By the ISBN's check character, in eleven keys that a table maps to shards; both tables together, so that a join on isbn
-- stays on one shard.
SELECT shardgate.distribute_table('books', 'right(isbn, 1)', 'lookup');
SELECT shardgate.distribute_table('library_of_congress_catalog', 'right(isbn, 1)', 'lookup', colocate_with => 'books');

SELECT shardgate.map_key('books', '0', 'bookdbshard0');
SELECT shardgate.map_key('books', '1', 'bookdbshard0');
SELECT shardgate.map_key('books', '2', 'bookdbshard0');
SELECT shardgate.map_key('books', '3', 'bookdbshard1');
SELECT shardgate.map_key('books', '4', 'bookdbshard1');
SELECT shardgate.map_key('books', '5', 'bookdbshard1');
SELECT shardgate.map_key('books', '6', 'bookdbshard2');
SELECT shardgate.map_key('books', '7', 'bookdbshard2');
SELECT shardgate.map_key('books', '8', 'bookdbshard2');
SELECT shardgate.map_key('books', '9', 'bookdbshard0');
SELECT shardgate.map_key('books', 'X', 'bookdbshard1');

-- By ranges of the day. It begins as one partition, which is then split at the first of each month:
--   SELECT partition_id FROM shardgate.locate('orders', '2026-02-01');
--   SELECT shardgate.split_partition(<that partition>, '2026-02-01');
SELECT shardgate.distribute_table('orders', 'ordered_on', 'range', on_shards => 'bookdbshard1');

-- By hash, in twelve partitions over all shards.
SELECT shardgate.distribute_table('readers', 'id', 'hash', partitions => 12);
