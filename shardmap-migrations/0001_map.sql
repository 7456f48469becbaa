-- The shard map's tables.
--
-- What the constraints alone make impossible, whoever writes and however many at once:
--   * two owners of a key: a partition has one shard, a lookup key one partition;
--   * an overlap: a hash or range partition stores only where it begins; it ends where the next one of its group begins, and
--     no two of a group begin at the same place;
--   * a gap: the group itself refers to the partition that begins at the beginning of the key space ('' sorts before every
--     key), so there always is one;
--   * a change without an epoch: every row carries the counter of the epoch that changed it; a trigger puts it there and
--     refuses the change when the transaction has not taken an epoch (0002).
-- Foreign keys are checked at commit, so that a group and its partitions, which refer to each other, can be made and dropped.

CREATE SCHEMA IF NOT EXISTS shardgate_map;
CREATE SCHEMA IF NOT EXISTS shardgate;

-- One row: the epoch. Its lock orders all changes of the map; a sequence would not.
CREATE TABLE shardgate_map.cluster (
    is_singleton bool PRIMARY KEY DEFAULT true CHECK (is_singleton),
    incarnation bigint NOT NULL CHECK (incarnation > 0),
    counter bigint NOT NULL CHECK (counter >= 0),
    -- Of the server that gave the incarnation; another one (restored, promoted) takes a new incarnation.
    system_identifier bigint NOT NULL,
    timeline int NOT NULL,
    -- The transaction that took the current counter.
    changed_in xid8,
    -- Removals up to this counter are no longer known one by one: who knows less reloads everything.
    removed_floor bigint NOT NULL DEFAULT 0,
    -- Counter of the last change of the shards' schema (DDL).
    schema_version bigint NOT NULL DEFAULT 0
);

CREATE TABLE shardgate_map.shard (
    shard_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK (name ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$'),
    url text NOT NULL UNIQUE CHECK (url <> ''),
    replication_url text,
    region text,
    capacity float8 NOT NULL CHECK (capacity > 0 AND capacity < 'infinity'),
    state text NOT NULL CHECK (state IN ('preparing', 'online')),
    is_home bool NOT NULL,
    epoch bigint NOT NULL,
    CHECK (state = 'online' OR NOT is_home)
);
CREATE UNIQUE INDEX shard_one_home ON shardgate_map.shard (is_home) WHERE is_home;

CREATE TABLE shardgate_map.colocation_group (
    group_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    strategy text NOT NULL CHECK (strategy IN ('hash', 'range', 'lookup')),
    -- As format_type() prints them, one a key column.
    key_types text[] NOT NULL CHECK (cardinality(key_types) > 0),
    beginning bytea CHECK (beginning = ''),
    default_partition int CHECK (default_partition IS NULL OR strategy = 'lookup'),
    epoch bigint NOT NULL,
    UNIQUE (group_id, strategy),
    CHECK ((strategy = 'lookup') = (beginning IS NULL))
);

CREATE TABLE shardgate_map.partition (
    partition_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_id int NOT NULL,
    strategy text NOT NULL,
    shard_id int NOT NULL REFERENCES shardgate_map.shard DEFERRABLE INITIALLY DEFERRED,
    state text NOT NULL DEFAULT 'online' CHECK (state IN ('online', 'moving', 'held')),
    -- Inclusive. hash: the hash as eight bytes, most significant first, sign bit flipped; range: the key's order-preserving
    -- bytes; '' the beginning of the key space; lookup: null.
    low bytea,
    -- The same for people to read.
    low_text text,
    epoch bigint NOT NULL,
    UNIQUE (group_id, low),
    UNIQUE (partition_id, group_id, strategy),
    FOREIGN KEY (group_id, strategy) REFERENCES shardgate_map.colocation_group (group_id, strategy) DEFERRABLE INITIALLY DEFERRED,
    CHECK ((strategy = 'lookup') = (low IS NULL)),
    CHECK ((low IS NULL OR low = '') = (low_text IS NULL)),
    CHECK (strategy <> 'hash' OR octet_length(low) IN (0, 8)),
    -- The smallest hash is the beginning: it would leave the first partition empty.
    CHECK (strategy <> 'hash' OR low <> '\x0000000000000000')
);
CREATE INDEX partition_epoch ON shardgate_map.partition (epoch);
CREATE INDEX partition_shard ON shardgate_map.partition (shard_id);

ALTER TABLE shardgate_map.colocation_group
    ADD CONSTRAINT colocation_group_beginning FOREIGN KEY (group_id, beginning)
        REFERENCES shardgate_map.partition (group_id, low) DEFERRABLE INITIALLY DEFERRED,
    ADD CONSTRAINT colocation_group_default FOREIGN KEY (default_partition, group_id, strategy)
        REFERENCES shardgate_map.partition (partition_id, group_id, strategy) DEFERRABLE INITIALLY DEFERRED;

CREATE TABLE shardgate_map.lookup_key (
    group_id int NOT NULL,
    -- The key's order-preserving bytes.
    key bytea NOT NULL,
    key_text text NOT NULL,
    partition_id int NOT NULL,
    strategy text NOT NULL DEFAULT 'lookup' CHECK (strategy = 'lookup'),
    epoch bigint NOT NULL,
    PRIMARY KEY (group_id, key),
    FOREIGN KEY (partition_id, group_id, strategy)
        REFERENCES shardgate_map.partition (partition_id, group_id, strategy) DEFERRABLE INITIALLY DEFERRED
);
CREATE INDEX lookup_key_epoch ON shardgate_map.lookup_key (epoch);
CREATE INDEX lookup_key_partition ON shardgate_map.lookup_key (partition_id);

-- The tables that are not home tables.
CREATE TABLE shardgate_map.declared_table (
    schema_name text NOT NULL,
    table_name text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('sharded', 'reference')),
    group_id int REFERENCES shardgate_map.colocation_group DEFERRABLE INITIALLY DEFERRED,
    -- [{"column": …, "type": …, "function": {"name": …, "arguments": […]}}]
    key jsonb,
    key_text text,
    epoch bigint NOT NULL,
    PRIMARY KEY (schema_name, table_name),
    CHECK ((kind = 'sharded') = (group_id IS NOT NULL)),
    CHECK ((kind = 'sharded') = (key IS NOT NULL)),
    CHECK ((kind = 'sharded') = (key_text IS NOT NULL))
);
CREATE INDEX declared_table_group ON shardgate_map.declared_table (group_id);

-- The tables that a proxy saw on the home shard and that are not declared; only for the relation shardgate.tables.
CREATE TABLE shardgate_map.home_table (
    schema_name text NOT NULL,
    table_name text NOT NULL,
    PRIMARY KEY (schema_name, table_name)
);

CREATE TABLE shardgate_map.declared_function (
    schema_name text NOT NULL,
    function_name text NOT NULL,
    -- [[schema, table], …]
    reads jsonb NOT NULL,
    writes jsonb NOT NULL,
    key_argument int CHECK (key_argument > 0),
    epoch bigint NOT NULL,
    PRIMARY KEY (schema_name, function_name)
);

CREATE TABLE shardgate_map.move (
    move_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- No foreign key: the record of a move outlives a merge.
    partition_id int NOT NULL,
    source text NOT NULL,
    target text NOT NULL CHECK (target <> source),
    state text NOT NULL DEFAULT 'planned' CHECK (state IN (
        'planned', 'preparing', 'copying', 'catching_up', 'verifying', 'cutting_over', 'switched', 'cleaning_up', 'done',
        'aborting', 'aborted', 'failed')),
    rows_copied bigint NOT NULL DEFAULT 0,
    bytes_copied bigint NOT NULL DEFAULT 0,
    lag_bytes bigint,
    pause_ms float8,
    started_at timestamptz NOT NULL DEFAULT now(),
    error text
);
-- One move of a partition at a time, until its source rows are gone.
CREATE UNIQUE INDEX move_one_a_partition ON shardgate_map.move (partition_id) WHERE state NOT IN ('done', 'aborted');

-- The leases. A mover judges one by whether its row changes, never by comparing clocks.
CREATE TABLE shardgate_map.proxy (
    proxy_id bigint PRIMARY KEY,
    address text NOT NULL,
    -- The epoch reached: no statement planned under an older one is unsent or running. (0, 0): has not loaded the map yet.
    incarnation bigint NOT NULL DEFAULT 0,
    counter bigint NOT NULL DEFAULT 0,
    renewals bigint NOT NULL DEFAULT 0,
    last_seen timestamptz NOT NULL DEFAULT clock_timestamp(),
    clients bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Changes of the shards' schema. One that is not finished: the shards may differ, read the home shard's catalogue again.
CREATE TABLE shardgate_map.schema_change (
    schema_change_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    actor text NOT NULL,
    command_tag text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz
);
CREATE INDEX schema_change_open ON shardgate_map.schema_change (schema_change_id) WHERE finished_at IS NULL;

-- One row: the end of the last block of unique ids that was given away.
CREATE TABLE shardgate_map.unique_id (
    is_singleton bool PRIMARY KEY DEFAULT true CHECK (is_singleton),
    last_id bigint NOT NULL CHECK (last_id >= 0)
);
INSERT INTO shardgate_map.unique_id (last_id) VALUES (0);

-- Every change: who, when, what. Never holds a url.
CREATE TABLE shardgate_map.history (
    incarnation bigint NOT NULL,
    counter bigint NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor text NOT NULL,
    change text NOT NULL,
    arguments jsonb NOT NULL,
    PRIMARY KEY (incarnation, counter)
);

-- What was removed, for proxies that follow change by change.
CREATE TABLE shardgate_map.removed (
    removed_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    epoch bigint NOT NULL,
    kind text NOT NULL CHECK (kind IN ('shard', 'colocation_group', 'partition', 'lookup_key', 'declared_table', 'declared_function')),
    -- shard, group, partition; of a lookup key its group.
    id int,
    key bytea,
    schema_name text,
    name text
);
CREATE INDEX removed_epoch ON shardgate_map.removed (epoch);
