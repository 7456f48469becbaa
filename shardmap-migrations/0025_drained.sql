-- A cut-over waits until the transactions that have written or locked rows of its tables since before the hold have ended: they pass
-- the hold, and their next statement could otherwise read both shards while the owner changes.
ALTER TABLE shardgate_map.proxy
    -- Counter of the epoch by which no such transaction is left for any group that is held at it; 0: there is one.
    ADD COLUMN drained bigint NOT NULL DEFAULT 0;
