-- Declared tables, and columns of their keys, get other names: ALTER TABLE ... RENAME, SET SCHEMA, RENAME COLUMN.
--
-- The shards commit the change at once, and the map a moment later. Meanwhile the map has the table by both names, and all names of a
-- column, so that a statement with either is placed alike, whatever its proxy has seen of the shards. When the change has ended, what is not
-- on the shards is forgotten: by who has made it, or by who closes it.

DROP FUNCTION shardgate_map.rename_table(text, text, text, text, text);

ALTER TABLE shardgate_map.declared_table
    -- The change of the schema that gives the table other names: it may have a row for each of them until then.
    ADD COLUMN renamed_in bigint,
    -- The table's oid on the home shard, whatever its name.
    ADD COLUMN home_oid bigint,
    -- For each column of the key an array of the names that it may have. NULL: those of the key.
    ADD COLUMN key_names jsonb,
    ADD CHECK ((renamed_in IS NULL) = (home_oid IS NULL)),
    ADD CHECK (key_names IS NULL OR renamed_in IS NOT NULL);

-- Locks the map. The row of the table that this change may give another name.
CREATE FUNCTION shardgate_map.require_renamable(schema_change bigint, table_name jsonb) RETURNS shardgate_map.declared_table
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    renamed shardgate_map.declared_table;
BEGIN
    PERFORM shardgate_map.lock_map();
    PERFORM shardgate_map.require_open_change(schema_change);
    SELECT * INTO renamed FROM shardgate_map.declared_table t
    WHERE t.schema_name = require_renamable.table_name ->> 0 AND t.table_name = require_renamable.table_name ->> 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = format('table "%s" is not declared any more', require_renamable.table_name ->> 1),
            DETAIL = 'Nothing was changed.', HINT = 'Repeat the transaction.';
    END IF;
    IF renamed.renamed_in <> schema_change THEN
        RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = format('table "%s" is being renamed', require_renamable.table_name ->> 1),
            DETAIL = 'Another transaction does it.', HINT = 'Repeat the transaction when the other one has ended.';
    END IF;
    PERFORM shardgate_map.refuse_if_moving(array(
        SELECT p.partition_id FROM shardgate_map.partition p WHERE p.group_id = renamed.group_id));
    RETURN renamed;
END $$;

-- Where the table `named` is listed `added` is, too.
CREATE FUNCTION shardgate_map.with_table(tables jsonb, named jsonb, added jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN named IN (SELECT * FROM jsonb_array_elements(tables)) AND added NOT IN (SELECT * FROM jsonb_array_elements(tables))
           THEN tables || jsonb_build_array(added) ELSE tables END
$$;

CREATE FUNCTION shardgate_map.without_tables(tables jsonb, gone jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(jsonb_agg(t.value ORDER BY t.ordinality), '[]') FROM jsonb_array_elements(tables) WITH ORDINALITY t
    WHERE t.value NOT IN (SELECT * FROM jsonb_array_elements(gone))
$$;

-- Before the first shard gives the table the other name. Names are [schema, name].
CREATE FUNCTION shardgate_map.begin_rename(actor text, schema_change bigint, from_name jsonb, to_name jsonb, oid_at_home bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    renamed shardgate_map.declared_table := shardgate_map.require_renamable(schema_change, from_name);
    known shardgate_map.declared_table;
BEGIN
    SELECT * INTO known FROM shardgate_map.declared_table t WHERE t.schema_name = to_name ->> 0 AND t.table_name = to_name ->> 1;
    -- A savepoint may have taken back what has given it the name.
    IF FOUND AND NOT (known.renamed_in = schema_change AND known.home_oid = oid_at_home) IS TRUE THEN
        RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = format('the name of table "%s" is still in use', to_name ->> 1),
            DETAIL = 'The shard map knows another table by it.', HINT = 'Repeat the transaction.';
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'begin_rename', jsonb_build_object('table', from_name, 'to', to_name));
    UPDATE shardgate_map.declared_table t SET renamed_in = schema_change, home_oid = oid_at_home
    WHERE (t.schema_name, t.table_name) = (renamed.schema_name, renamed.table_name);
    INSERT INTO shardgate_map.declared_table AS t (schema_name, table_name, kind, group_id, key, key_text, renamed_in, home_oid, key_names)
    VALUES (to_name ->> 0, to_name ->> 1, renamed.kind, renamed.group_id, renamed.key, renamed.key_text, schema_change, oid_at_home,
            renamed.key_names)
    ON CONFLICT (schema_name, table_name) DO UPDATE SET key_names = coalesce(excluded.key_names, t.key_names);
    UPDATE shardgate_map.declared_function f
    SET reads = shardgate_map.with_table(f.reads, from_name, to_name), writes = shardgate_map.with_table(f.writes, from_name, to_name)
    WHERE from_name IN (SELECT * FROM jsonb_array_elements(f.reads || f.writes));
END $$;

-- Before the first shard gives the column of the key at this place, from 1 on, the other name.
CREATE FUNCTION shardgate_map.begin_key_rename(actor text, schema_change bigint, table_name jsonb, oid_at_home bigint, place int,
                                               to_name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    renamed shardgate_map.declared_table := shardgate_map.require_renamable(schema_change, begin_key_rename.table_name);
    names jsonb := coalesce(renamed.key_names, (
        SELECT jsonb_agg(jsonb_build_array(k.value -> 'column') ORDER BY k.ordinality) FROM jsonb_array_elements(renamed.key) WITH ORDINALITY k));
BEGIN
    IF NOT names -> (place - 1) @> to_jsonb(to_name) THEN
        names := jsonb_set(names, ARRAY[(place - 1)::text], (names -> (place - 1)) || to_jsonb(to_name));
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'begin_key_rename',
        jsonb_build_object('table', begin_key_rename.table_name, 'place', place, 'to', to_name));
    UPDATE shardgate_map.declared_table t SET renamed_in = schema_change, home_oid = oid_at_home, key_names = names
    WHERE (t.schema_name, t.table_name) = (renamed.schema_name, renamed.table_name);
END $$;

-- When these changes have ended. kept: of the names that they have given to tables those that are on the shards, with their keys, as
-- {"schema", "name", "key", "key_text"}. Returns whether there was anything to be done.
CREATE FUNCTION shardgate_map.settle_renames(actor text, changes bigint[], kept jsonb) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    forgotten record;
    gone jsonb := '[]';
BEGIN
    PERFORM shardgate_map.lock_map();
    IF NOT EXISTS (SELECT FROM shardgate_map.declared_table t WHERE t.renamed_in = ANY (changes)) THEN
        RETURN false;
    END IF;
    PERFORM shardgate_map.begin_change(actor, 'settle_renames', jsonb_build_object('schema_changes', to_jsonb(changes), 'tables', kept));
    UPDATE shardgate_map.declared_table t
    SET key = coalesce(nullif(k.value -> 'key', 'null'), t.key), key_text = coalesce(k.value ->> 'key_text', t.key_text),
        renamed_in = NULL, home_oid = NULL, key_names = NULL
    FROM jsonb_array_elements(kept) k
    WHERE t.renamed_in = ANY (changes) AND t.schema_name = k.value ->> 'schema' AND t.table_name = k.value ->> 'name';
    FOR forgotten IN SELECT t.schema_name, t.table_name FROM shardgate_map.declared_table t WHERE t.renamed_in = ANY (changes) LOOP
        gone := gone || jsonb_build_array(jsonb_build_array(forgotten.schema_name, forgotten.table_name));
        PERFORM shardgate_map.forget_table(forgotten.schema_name, forgotten.table_name);
    END LOOP;
    IF kept <> '[]' THEN
        UPDATE shardgate_map.declared_function f
        SET reads = shardgate_map.without_tables(f.reads, gone), writes = shardgate_map.without_tables(f.writes, gone)
        WHERE EXISTS (SELECT FROM jsonb_array_elements(f.reads || f.writes) t WHERE t.value IN (SELECT * FROM jsonb_array_elements(gone)));
    END IF;
    RETURN true;
END $$;

-- As before; false also when one of these changes has given a table another name since.
CREATE FUNCTION shardgate_map.close_schema_changes(actor text, changes bigint[], last_change bigint, incarnation bigint, counter bigint,
                                                   tables jsonb, sequences jsonb, renamed jsonb)
RETURNS bool LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate_map.lock_map();
    IF EXISTS (SELECT FROM shardgate_map.declared_table t
               WHERE t.renamed_in = ANY (changes) AND t.epoch > close_schema_changes.counter) THEN
        RETURN false;
    END IF;
    IF NOT shardgate_map.close_schema_changes(actor, changes, last_change, incarnation, counter, tables, sequences) THEN
        RETURN false;
    END IF;
    PERFORM shardgate_map.settle_renames(actor, changes, renamed);
    RETURN true;
END $$;
