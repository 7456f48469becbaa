//! What a shard keeps of the rows that lie on it and are not owned by it: which keys they have, and who may ask.
//!
//! ```text
//!   a mover ─► residue: one row a move ─► residue_hashes(group), residue_keys(group), … ─► a covered text
//! ```
//! A covered text (`crate::sql::residues`) reads the keys in its own statement's snapshot: a snapshot that sees rows of a copy sees
//! the row that excludes them too, as that was committed before. So the functions are STABLE, and they are never NULL: where
//! nothing is excluded, a row is kept. Every client's statement calls them; the table is the mover's.

/// Idempotent; part of the support objects' transaction.
pub(super) const OBJECTS: &str = r#"
CREATE TABLE IF NOT EXISTS shardgate.residue (
    group_id int NOT NULL,
    move_id int NOT NULL,
    -- Of a hash group: hashes of keys; of a lookup group: keys; of a range group: ranges of keys. As PostgreSQL prints them.
    hashes int8multirange,
    keys text[],
    ranges text[],
    PRIMARY KEY (group_id, move_id));
-- Of a lookup group whose default partition moves: the keys that are not excluded.
ALTER TABLE shardgate.residue ADD COLUMN IF NOT EXISTS other_keys text[];
CREATE OR REPLACE FUNCTION shardgate.residue_hashes(of_group int) RETURNS int8multirange
LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN coalesce((SELECT range_agg(r.hashes) FROM shardgate.residue r WHERE r.group_id = of_group), '{}');
END $$;
CREATE OR REPLACE FUNCTION shardgate.residue_keys(of_group int) RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN coalesce((SELECT array_agg(k.key) FROM shardgate.residue r, unnest(r.keys) k(key) WHERE r.group_id = of_group), '{}');
END $$;
-- A group has one default partition. Where it is not excluded nothing is known of other keys.
CREATE OR REPLACE FUNCTION shardgate.residue_other_keys(of_group int) RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN coalesce((SELECT r.other_keys FROM shardgate.residue r WHERE r.group_id = of_group AND r.other_keys IS NOT NULL), '{NULL}');
END $$;
CREATE OR REPLACE FUNCTION shardgate.residue_ranges(of_group int) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN '{' || coalesce((SELECT string_agg(k.range, ',') FROM shardgate.residue r, unnest(r.ranges) k(range)
                            WHERE r.group_id = of_group), '') || '}';
END $$;
REVOKE ALL ON TABLE shardgate.residue FROM PUBLIC;
GRANT EXECUTE ON FUNCTION shardgate.residue_hashes(int), shardgate.residue_keys(int), shardgate.residue_other_keys(int),
    shardgate.residue_ranges(int) TO PUBLIC;
"#;
