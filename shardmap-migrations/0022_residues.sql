-- Rows that lie on a shard and are not owned by it, while a partition moves. True: they may exist for some table of the group, and every
-- text that may see them excludes them. A proxy of an earlier version does not know the column: groups are false until a move begins.
ALTER TABLE shardgate_map.colocation_group ADD COLUMN has_residues bool NOT NULL DEFAULT false;
