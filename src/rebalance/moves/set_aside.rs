//! The functions of a shard by which copies of rows are set aside while a key that they refer to is changed: see
//! [`super::references`].
//!
//! Two advisory locks for each table of a move, which whoever sets copies of it aside takes shared: against the rows that replication
//! writes, and against the end of the first copy. The setting `shardgate.unfollowed` says whose rows are not followed: those of a
//! first copy (`copy`), those that are set aside and put back, and those of a clean-up (`on`).

/// As the rows' owners may not look on, and no trigger of the application's: as the mover, who owns the tables, and as replication does.
pub(super) const FUNCTIONS: &str = r#"
SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('shardgate support objects', 0));
CREATE TABLE IF NOT EXISTS shardgate.set_aside (transaction xid8 NOT NULL, relation regclass NOT NULL, contents text NOT NULL);
CREATE INDEX IF NOT EXISTS set_aside_transaction ON shardgate.set_aside (transaction);
CREATE OR REPLACE FUNCTION shardgate.set_copies_aside() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET session_replication_role = replica
SET DateStyle = 'ISO, YMD' SET IntervalStyle = postgres SET TimeZone = 'UTC' SET extra_float_digits = 3 SET bytea_output = hex
SET array_nulls = on SET xmloption = content
SET shardgate.unfollowed = on AS $$
DECLARE
    of_move int := TG_ARGV[0];
    copies text := format('%s AS x WHERE %s AND %s', TG_ARGV[1], TG_ARGV[2], TG_ARGV[3]);
    -- Replication waits for this transaction already, perhaps with rows that it has written.
    is_waited_for bool := coalesce(current_setting('shardgate.holds_back_' || TG_ARGV[0], true), '') <> '';
    is_own bool;
    found_copies bigint;
    gives_up_at timestamptz := clock_timestamp() + interval '10 s';
BEGIN
    IF NOT EXISTS (SELECT FROM shardgate.residue r WHERE r.move_id = of_move) THEN
        -- Locked to the end of the transaction: the set keeps its owner until then.
        EXECUTE format('SELECT EXISTS (SELECT FROM shardgate.gate_%s)', of_move) INTO is_own;
        IF NOT is_own THEN
            EXECUTE 'SELECT count(*) FROM (SELECT FROM ' || copies || ' LIMIT 1) c' INTO found_copies USING OLD;
            IF found_copies > 0 THEN
                PERFORM shardgate.refuse_key_change('shardgate_gate');
            END IF;
        END IF;
        RETURN NULL;
    END IF;
    LOOP
        -- All of them or none, so that nobody waits crosswise: what a block has locked that fails is unlocked again.
        BEGIN
            IF NOT (SELECT coalesce(bool_and(pg_try_advisory_xact_lock_shared(hashint8extended(t.tgrelid::int8, of_move))
                                             AND pg_try_advisory_xact_lock_shared(hashint8extended(t.tgrelid::int8, -of_move))), true)
                    FROM pg_trigger t WHERE t.tgname = 'zz_shardgate_move_' || of_move || '_follow') THEN
                RAISE SQLSTATE 'SG004';
            END IF;
            EXECUTE 'SELECT FROM ' || copies || ' ORDER BY x.tableoid, x.ctid FOR UPDATE NOWAIT' USING OLD;
            GET DIAGNOSTICS found_copies = ROW_COUNT;
            EXIT;
        EXCEPTION WHEN SQLSTATE 'SG004' OR lock_not_available THEN
            IF is_waited_for OR clock_timestamp() > gives_up_at THEN
                PERFORM shardgate.refuse_key_change('shardgate_copies');
            END IF;
        END;
        PERFORM pg_sleep(0.002);
    END LOOP;
    PERFORM set_config('shardgate.holds_back_' || TG_ARGV[0], 'on', true);
    IF found_copies = 0 THEN
        RETURN NULL;
    END IF;
    WHILE EXISTS (SELECT FROM pg_publication p WHERE p.pubname = TG_ARGV[4])
          AND (TG_ARGV[5] = 'source' OR EXISTS (SELECT FROM shardgate.switched s WHERE s.move_id = of_move)) LOOP
        IF clock_timestamp() > gives_up_at OR current_setting('transaction_isolation') <> 'read committed' THEN
            PERFORM shardgate.refuse_key_change('shardgate_copies');
        END IF;
        PERFORM pg_sleep(0.01);
    END LOOP;
    EXECUTE format('WITH gone AS (DELETE FROM %s RETURNING (x.*)::text AS contents)
                    INSERT INTO shardgate.set_aside SELECT pg_current_xact_id(), %L::regclass, contents FROM gone', copies, TG_ARGV[1])
        USING OLD;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION shardgate.refuse_key_change(constraint_name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'rows that refer to this key are being moved',
        DETAIL = 'Another shard owns them, or is about to. Nothing was changed.', HINT = 'Retry the transaction.',
        CONSTRAINT = constraint_name;
END $$;
CREATE OR REPLACE FUNCTION shardgate.put_copies_back() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET session_replication_role = replica
SET DateStyle = 'ISO, YMD' SET IntervalStyle = postgres SET TimeZone = 'UTC' SET extra_float_digits = 3 SET bytea_output = hex
SET array_nulls = on SET xmloption = content
SET shardgate.unfollowed = on AS $$
DECLARE
    of_table regclass;
BEGIN
    FOR of_table IN SELECT DISTINCT s.relation FROM shardgate.set_aside s WHERE s.transaction = pg_current_xact_id() LOOP
        EXECUTE (
            SELECT format('WITH kept AS (DELETE FROM shardgate.set_aside s
                                         WHERE s.transaction = pg_current_xact_id() AND s.relation = %s::oid RETURNING s.contents::%s AS copy)
                           INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM kept',
                          of_table::oid, of_table, of_table, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum),
                          string_agg(format('(kept.copy).%I', a.attname), ', ' ORDER BY a.attnum))
            FROM pg_attribute a WHERE a.attrelid = of_table AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '');
    END LOOP;
    RETURN NULL;
END $$;
-- Before the first row of a statement: what SET CONSTRAINTS has said of all constraints is not for ours.
CREATE OR REPLACE FUNCTION shardgate.defer_again() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ours text;
BEGIN
    SELECT string_agg(DISTINCT format('%I.%I', n.nspname, t.tgname), ', ') INTO ours
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE (t.tgrelid = TG_RELID OR t.tgrelid IN (SELECT p.relid FROM pg_partition_tree(TG_RELID) p))
      AND t.tgdeferrable AND t.tgname ~ ('^(00|zz)_shardgate_move_' || TG_ARGV[0] || '_');
    IF ours IS NOT NULL THEN
        EXECUTE 'SET CONSTRAINTS ' || ours || ' DEFERRED';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION shardgate.follow_later() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashint8extended(TG_RELID::int8, TG_ARGV[0]::int8));
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION shardgate.copy_begins() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF coalesce(current_setting('shardgate.unfollowed', true), '') = '' THEN
        PERFORM set_config('shardgate.unfollowed', 'copy', true);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION shardgate.copy_ends() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashint8extended(TG_RELID::int8, -TG_ARGV[0]::int8));
    PERFORM set_config('shardgate.unfollowed', '', true);
    RETURN NULL;
END $$;
REVOKE ALL ON TABLE shardgate.set_aside FROM PUBLIC;
-- Whoever may call one may make a trigger of it with arguments of his own. To fire one needs no right.
REVOKE ALL ON FUNCTION shardgate.set_copies_aside(), shardgate.refuse_key_change(text), shardgate.put_copies_back(), shardgate.defer_again(),
    shardgate.follow_later(), shardgate.copy_begins(), shardgate.copy_ends() FROM PUBLIC
"#;
