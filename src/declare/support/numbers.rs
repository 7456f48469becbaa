//! What a shard needs to number rows by itself: blocks of numbers, given by the proxies, and the function that draws from them.
//!
//! ```text
//!   column default shardgate.next_id('s') ─► n of a local sequence ─► the block that holds n ─► its number
//!                                            (used up: waits for a block, then 55000; never a number twice)
//! ```
//! The user's own sequence stays, for its name and its owner, and is used up: `nextval` on one shard, by a function that no proxy
//! has read, is an error and no duplicate. Identity columns become columns with such a default, as PostgreSQL knows no other
//! source for them; which kind they were is the default's second argument, and the proxy keeps to it.

/// Idempotent; part of the support objects' transaction.
pub(super) const OBJECTS: &str = r#"
CREATE TABLE IF NOT EXISTS shardgate.number_sequences (sequence oid PRIMARY KEY);
-- Blocks of an earlier generation come too late.
ALTER TABLE shardgate.number_sequences ADD COLUMN IF NOT EXISTS generation bigint NOT NULL DEFAULT 0;
-- The transaction in which the shard has come to know it.
ALTER TABLE shardgate.number_sequences ADD COLUMN IF NOT EXISTS made_in xid8 DEFAULT pg_current_xact_id();
-- The change of the schema that has altered it last, its transaction, and what it has left: increment, minimum, maximum, the next
-- number, and what the sequence was set to.
ALTER TABLE shardgate.number_sequences ADD COLUMN IF NOT EXISTS altered_by bigint;
ALTER TABLE shardgate.number_sequences ADD COLUMN IF NOT EXISTS altered_in xid8;
ALTER TABLE shardgate.number_sequences ADD COLUMN IF NOT EXISTS altered_to numeric[];
CREATE TABLE IF NOT EXISTS shardgate.number_blocks (
    sequence oid NOT NULL,
    -- Positions of the local sequence, and what they stand for.
    first_n bigint NOT NULL,
    last_n bigint NOT NULL CHECK (last_n >= first_n),
    first_number bigint NOT NULL,
    increment bigint NOT NULL,
    PRIMARY KEY (sequence, first_n));
-- With the caller's own rights, which nextval() asks for and an identity column does not.
CREATE OR REPLACE FUNCTION shardgate.next_id(sequence regclass, identity "char" DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SECURITY INVOKER AS $$
BEGIN
    IF identity IS NULL AND NOT pg_catalog.has_sequence_privilege(sequence, 'USAGE, UPDATE') THEN
        RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = pg_catalog.format('permission denied for sequence %s',
            (SELECT c.relname FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) sequence::pg_catalog.oid));
    END IF;
    RETURN shardgate.draw_number(sequence);
END $$;
CREATE OR REPLACE FUNCTION shardgate.draw_number(sequence regclass) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    counter regclass := to_regclass('shardgate.numbers_' || sequence::oid);
    n bigint;
    block record;
    attempt int := 0;
BEGIN
    IF counter IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('sequence "%s" gives no numbers on this shard', sequence),
            HINT = 'Declare the table again with the functions of the schema "shardgate".';
    END IF;
    n := nextval(counter);
    LOOP
        SELECT b.last_n, b.first_number + (n - b.first_n) * b.increment AS number INTO block
        FROM shardgate.number_blocks b WHERE b.sequence = draw_number.sequence::oid AND b.first_n <= n
        ORDER BY b.first_n DESC LIMIT 1;
        IF block.last_n >= n THEN
            RETURN block.number;
        END IF;
        attempt := attempt + 1;
        IF attempt = 1 AND EXISTS (SELECT FROM shardgate.number_sequences k
                                   WHERE k.sequence = draw_number.sequence::oid AND k.made_in = pg_current_xact_id()) THEN
            RAISE EXCEPTION USING ERRCODE = '0A000',
                MESSAGE = format('rows cannot be numbered by sequence "%s" in the transaction that makes it', sequence),
                DETAIL = 'The proxies give numbers to the shards when the transaction is committed.',
                HINT = 'Commit first, and insert the rows then.';
        END IF;
        -- One snapshot for the whole transaction would never show the next block.
        IF attempt > 500 OR current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
            RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('sequence "%s" has no number left on this shard', sequence),
                DETAIL = 'The proxies give each shard its numbers in blocks, and none has come in time.',
                HINT = 'Repeat the transaction; let cross_shard.sequence_block be larger, or give the numbers by VALUES.';
        END IF;
        PERFORM pg_sleep(0.01);
        -- The sequence was set meanwhile: what was waited for does not come.
        IF EXISTS (SELECT FROM shardgate.number_blocks b WHERE b.sequence = draw_number.sequence::oid AND b.first_n > n) THEN
            n := nextval(counter);
        END IF;
    END LOOP;
END $$;
-- Whoever owns a sequence can do no harm with what asks for this but to his own.
CREATE OR REPLACE FUNCTION shardgate.check_owns_sequence(sequence regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Who calls is not the current user in the functions that ask.
    IF NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = sequence AND c.relkind = 'S' AND pg_has_role(
                   CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role')::name END,
                   c.relowner, 'USAGE')) THEN
        RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('must be owner of sequence %s', sequence);
    END IF;
END $$;
-- What a sequence needs here to be one of the whole cluster. Its owner may ask for it.
CREATE OR REPLACE FUNCTION shardgate.keep_numbers(sequence regclass) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM shardgate.check_owns_sequence(sequence);
    EXECUTE format('CREATE SEQUENCE IF NOT EXISTS shardgate.%I', 'numbers_' || sequence::oid);
    INSERT INTO shardgate.number_sequences AS k (sequence) VALUES (keep_numbers.sequence::oid) ON CONFLICT DO NOTHING;
END $$;
CREATE OR REPLACE FUNCTION shardgate.own_sequence(sequence regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    limits pg_sequence;
BEGIN
    SELECT * INTO STRICT limits FROM pg_sequence s WHERE s.seqrelid = sequence;
    PERFORM shardgate.keep_numbers(sequence);
    -- The restart makes the rest part of the transaction.
    EXECUTE format('ALTER SEQUENCE %s NO CYCLE RESTART', sequence);
    PERFORM setval(sequence, CASE WHEN limits.seqincrement > 0 THEN limits.seqmax ELSE limits.seqmin END);
END $$;
CREATE OR REPLACE FUNCTION shardgate.sequence_of(target regclass, column_name name) RETURNS regclass
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.oid::regclass FROM pg_attribute a
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    JOIN pg_depend p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid AND p.refclassid = 'pg_class'::regclass
         OR p.classid = 'pg_class'::regclass AND p.deptype = 'i' AND p.refclassid = 'pg_class'::regclass
            AND p.refobjid = a.attrelid AND p.refobjsubid = a.attnum
    JOIN pg_class c ON c.relkind = 'S' AND c.oid = CASE WHEN p.deptype = 'i' THEN p.objid ELSE p.refobjid END
    WHERE a.attrelid = target AND a.attname = column_name AND NOT a.attisdropped LIMIT 1
$$;
CREATE OR REPLACE FUNCTION shardgate.adopt_sequence(target regclass, column_name name, OUT schema_name text, OUT sequence_name text,
    OUT increment bigint, OUT minimum bigint, OUT maximum bigint, OUT next_number text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    identity "char";
    sequence regclass;
    limits pg_sequence;
    last record;
    owner text;
    rights aclitem[];
    granted record;
    other text;
BEGIN
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', target);
    SELECT a.attidentity, pg_get_userbyid(c.relowner) INTO STRICT identity, owner FROM pg_attribute a, pg_class c
    WHERE a.attrelid = target AND a.attname = column_name AND c.oid = target;
    sequence := shardgate.sequence_of(target, column_name);
    SELECT * INTO STRICT limits FROM pg_sequence s WHERE s.seqrelid = sequence;
    SELECT n.nspname, c.relname INTO STRICT schema_name, sequence_name
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = sequence;
    -- From here on nobody draws from it. What other sessions have cached lies below its last value.
    EXECUTE format('ALTER SEQUENCE %s NO CYCLE', sequence);
    EXECUTE format('SELECT last_value, is_called FROM %s', sequence) INTO STRICT last;
    increment := limits.seqincrement;
    minimum := limits.seqmin;
    maximum := limits.seqmax;
    next_number := last.last_value::numeric + CASE WHEN last.is_called THEN increment ELSE 0 END;
    IF identity <> '' THEN
        SELECT c.relacl INTO rights FROM pg_class c WHERE c.oid = sequence;
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', target, column_name);
        EXECUTE format('CREATE SEQUENCE %I.%I AS %s INCREMENT %s MINVALUE %s MAXVALUE %s START %s CACHE %s', schema_name, sequence_name,
            limits.seqtypid::regtype, increment, minimum, maximum, limits.seqstart, limits.seqcache);
        sequence := format('%I.%I', schema_name, sequence_name)::regclass;
        EXECUTE format('ALTER SEQUENCE %s OWNER TO %I', sequence, owner);
        EXECUTE format('ALTER SEQUENCE %s OWNED BY %s.%I', sequence, target, column_name);
        -- currval() and lastval() ask for the rights that the one before it had, which default privileges need not give.
        FOR granted IN SELECT a.grantee::regrole::text AS role FROM pg_class c, aclexplode(c.relacl) a
                       WHERE c.oid = sequence AND a.grantee NOT IN (0, c.relowner) GROUP BY 1
        LOOP
            EXECUTE format('REVOKE ALL ON SEQUENCE %s FROM %s', sequence, granted.role);
        END LOOP;
        EXECUTE format('REVOKE ALL ON SEQUENCE %s FROM PUBLIC', sequence);
        FOR granted IN SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS role, a.privilege_type,
                              CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END AS option
                       FROM aclexplode(rights) a
        LOOP
            EXECUTE format('GRANT %s ON SEQUENCE %s TO %s%s', granted.privilege_type, sequence, granted.role, granted.option);
        END LOOP;
    END IF;
    PERFORM shardgate.own_sequence(sequence);
    EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT shardgate.next_id(%L::regclass%s)', target, column_name, sequence,
        CASE WHEN identity <> '' THEN format(', %L::"char"', identity) ELSE '' END);
    SELECT format('%s.%I', d.adrelid::regclass, a.attname) INTO other
    FROM pg_depend p JOIN pg_attrdef d ON p.classid = 'pg_attrdef'::regclass AND d.oid = p.objid
    JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
    WHERE p.refclassid = 'pg_class'::regclass AND p.refobjid = sequence
      AND pg_get_expr(d.adbin, d.adrelid) !~ '^shardgate\.next_id\(' LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = format('sequence "%s" cannot become one of the whole cluster', sequence_name),
            DETAIL = format('Column %s takes its default from it too.', other),
            HINT = 'Give that column a sequence of its own.';
    END IF;
END $$;
-- After ADD COLUMN of one that numbers rows: its rows have the numbers from the sequence's start on. They get those from
-- `first_number` on instead, where that is given, and the rows to come are numbered by the cluster. With the caller's own rights, as
-- the table's expressions are evaluated. No name: the column was there before.
CREATE OR REPLACE FUNCTION shardgate.number_added_column(target regclass, column_name name, may_hold_rows bool, first_number text,
    OUT schema_name text, OUT sequence_name text, OUT increment bigint, OUT minimum bigint, OUT maximum bigint, OUT next_number text,
    OUT has_rows bool)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    added record;
    adopted record;
    distance numeric;
    last numeric;
BEGIN
    SELECT format_type(a.atttypid, a.atttypmod) AS type_name, pg_get_expr(d.adbin, d.adrelid) AS default_value, s.seqstart AS start
    INTO added FROM pg_attribute a
    JOIN pg_sequence s ON s.seqrelid = shardgate.sequence_of(target, column_name)
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = target AND a.attname = column_name AND NOT a.attisdropped;
    IF NOT FOUND OR added.default_value ~ '^shardgate\.next_id\(' THEN
        RETURN;
    END IF;
    SELECT * INTO STRICT adopted FROM shardgate.adopt_sequence(target, column_name);
    schema_name := adopted.schema_name;
    sequence_name := adopted.sequence_name;
    increment := adopted.increment;
    minimum := adopted.minimum;
    maximum := adopted.maximum;
    has_rows := adopted.next_number::numeric <> added.start;
    distance := coalesce(first_number::numeric - added.start, 0);
    last := adopted.next_number::numeric - increment + distance;
    IF has_rows AND NOT may_hold_rows THEN
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = format('a column that numbers rows cannot be added to reference table "%s"',
                             (SELECT c.relname FROM pg_class c WHERE c.oid = target)),
            DETAIL = 'It holds rows, and each of its copies would number them in an order of its own.',
            HINT = 'Add a plain column, give its values with UPDATE, or add the column while the table is empty.';
    ELSIF has_rows AND last NOT BETWEEN minimum AND maximum THEN
        RAISE EXCEPTION USING ERRCODE = '2200H',
            MESSAGE = CASE WHEN increment > 0 THEN format('nextval: reached maximum value of sequence "%s" (%s)', sequence_name, maximum)
                           ELSE format('nextval: reached minimum value of sequence "%s" (%s)', sequence_name, minimum) END;
    ELSIF has_rows AND distance <> 0 THEN
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I TYPE %s USING (%I::numeric + %s)::%s', target, column_name, added.type_name,
            column_name, distance, added.type_name);
    END IF;
    next_number := adopted.next_number::numeric + distance;
END $$;
-- TRUNCATE ... RESTART IDENTITY, which is the sequence's owner's to do, has set it back: it is used up again. Harmless to call.
CREATE OR REPLACE FUNCTION shardgate.use_up(sequence regclass) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    last bigint;
BEGIN
    SELECT CASE WHEN s.seqincrement > 0 THEN s.seqmax ELSE s.seqmin END INTO last
    FROM pg_sequence s JOIN shardgate.number_sequences k ON k.sequence = s.seqrelid WHERE s.seqrelid = use_up.sequence;
    IF FOUND THEN
        -- The restart makes the rest part of the transaction.
        EXECUTE format('ALTER SEQUENCE %s RESTART', sequence);
        PERFORM setval(sequence, last);
    END IF;
END $$;
-- Before ALTER SEQUENCE, in its transaction and with its rights: the sequence stands where the whole cluster's does, so that PostgreSQL
-- compares that with what is asked for. `set_to`: what it was last set to; NULL: its start.
CREATE OR REPLACE FUNCTION shardgate.show_numbers(sequence regclass, next_number numeric, set_to numeric) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    limits pg_sequence;
    last numeric;
BEGIN
    SELECT * INTO STRICT limits FROM pg_sequence s WHERE s.seqrelid = sequence;
    last := next_number - limits.seqincrement;
    -- The restart makes the rest part of the transaction.
    EXECUTE format('ALTER SEQUENCE %s RESTART', sequence);
    IF next_number BETWEEN limits.seqmin AND limits.seqmax
       AND (next_number = coalesce(set_to, limits.seqstart) OR last NOT BETWEEN limits.seqmin AND limits.seqmax) THEN
        PERFORM setval(sequence, next_number::bigint, false);
    ELSE
        PERFORM setval(sequence, greatest(limits.seqmin, least(limits.seqmax, last))::bigint, true);
    END IF;
END $$;
-- What a transaction that has altered a sequence leaves, to be read when it is committed. Its owner may say so, and that transaction.
CREATE OR REPLACE FUNCTION shardgate.note_alteration(sequence regclass, change bigint, state numeric[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM shardgate.number_sequences k
                   WHERE k.sequence = note_alteration.sequence::oid AND k.altered_in = pg_current_xact_id()) THEN
        PERFORM shardgate.check_owns_sequence(sequence);
    END IF;
    UPDATE shardgate.number_sequences k SET altered_by = change, altered_in = pg_current_xact_id(), altered_to = state
    WHERE k.sequence = note_alteration.sequence::oid;
END $$;
-- After it: what has become of the sequence. It is used up again.
CREATE OR REPLACE FUNCTION shardgate.hide_numbers(sequence regclass, change bigint) RETURNS text[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    limits pg_sequence;
    last record;
    state numeric[];
BEGIN
    SELECT * INTO STRICT limits FROM pg_sequence s WHERE s.seqrelid = sequence;
    EXECUTE format('SELECT last_value, is_called FROM %s', sequence) INTO STRICT last;
    state := ARRAY[limits.seqincrement, limits.seqmin, limits.seqmax,
                   last.last_value::numeric + CASE WHEN last.is_called THEN limits.seqincrement ELSE 0 END, last.last_value];
    PERFORM shardgate.note_alteration(sequence, change, state);
    PERFORM shardgate.use_up(sequence);
    RETURN state::text[];
END $$;
DROP FUNCTION IF EXISTS shardgate.add_numbers(regclass, bigint, bigint, bigint);
CREATE OR REPLACE FUNCTION shardgate.add_numbers(sequence regclass, first_number bigint, how_many bigint, increment bigint,
    generation bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('shardgate numbers', sequence::oid::bigint));
    IF EXISTS (SELECT FROM shardgate.number_sequences k
               WHERE k.sequence = add_numbers.sequence::oid AND k.generation > add_numbers.generation) THEN
        RETURN;
    END IF;
    DELETE FROM shardgate.number_blocks b WHERE b.sequence = add_numbers.sequence::oid AND b.first_n < (
        SELECT k.first_n FROM shardgate.number_blocks k WHERE k.sequence = add_numbers.sequence::oid
        ORDER BY k.first_n DESC OFFSET 32 LIMIT 1);
    SELECT coalesce(max(b.last_n), 0) INTO before FROM shardgate.number_blocks b WHERE b.sequence = add_numbers.sequence::oid;
    INSERT INTO shardgate.number_blocks AS b (sequence, first_n, last_n, first_number, increment)
    VALUES (add_numbers.sequence::oid, before + 1, before + how_many, add_numbers.first_number, add_numbers.increment);
END $$;
DROP FUNCTION IF EXISTS shardgate.void_numbers(regclass, bigint);
CREATE OR REPLACE FUNCTION shardgate.void_numbers(sequence regclass, number bigint, generation bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    position bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('shardgate numbers', sequence::oid::bigint));
    -- One that nobody else has: the blocks to come begin after it.
    position := nextval(('shardgate.numbers_' || sequence::oid)::regclass);
    UPDATE shardgate.number_sequences AS k SET generation = greatest(k.generation, void_numbers.generation)
    WHERE k.sequence = void_numbers.sequence::oid;
    DELETE FROM shardgate.number_blocks b WHERE b.sequence = void_numbers.sequence::oid;
    INSERT INTO shardgate.number_blocks AS b (sequence, first_n, last_n, first_number, increment)
    VALUES (void_numbers.sequence::oid, position, position, number, 1);
END $$;
CREATE OR REPLACE FUNCTION shardgate.numbers_left(OUT schema_name text, OUT sequence_name text, OUT how_many bigint)
RETURNS SETOF record LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known record;
BEGIN
    FOR known IN SELECT n.nspname, c.relname, s.sequence FROM shardgate.number_sequences s
                 JOIN pg_class c ON c.oid = s.sequence AND c.relkind = 'S' JOIN pg_namespace n ON n.oid = c.relnamespace
    LOOP
        schema_name := known.nspname;
        sequence_name := known.relname;
        how_many := 0;
        -- While blocks are given or made void, positions and blocks do not belong together: it would seem that somebody waits.
        IF pg_try_advisory_xact_lock_shared(hashtextextended('shardgate numbers', known.sequence::bigint)) THEN
            SELECT coalesce(max(b.last_n), 0) - coalesce(pg_sequence_last_value(to_regclass('shardgate.numbers_' || known.sequence)), 0)
            INTO how_many FROM shardgate.number_blocks b WHERE b.sequence = known.sequence;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;
-- Anybody may let a column of his own have that default, and this runs with the rights of the shard's user: no view, no policy and
-- no cast of users is evaluated.
CREATE OR REPLACE FUNCTION shardgate.numbers_used(sequence regclass) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
DECLARE
    is_ascending bool;
    used numeric;
    found numeric;
    place record;
BEGIN
    SELECT s.seqincrement > 0 INTO STRICT is_ascending FROM pg_sequence s WHERE s.seqrelid = sequence;
    SELECT CASE WHEN is_ascending THEN max(b.first_number + (b.last_n - b.first_n) * b.increment)
                ELSE min(b.first_number + (b.last_n - b.first_n) * b.increment) END
    INTO used FROM shardgate.number_blocks b WHERE b.sequence = numbers_used.sequence::oid;
    FOR place IN
        SELECT d.adrelid::regclass AS target, a.attname
        FROM pg_depend p JOIN pg_attrdef d ON p.classid = 'pg_attrdef'::regclass AND d.oid = p.objid
        JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
        JOIN pg_class c ON c.oid = d.adrelid AND c.relkind IN ('r', 'p')
        WHERE p.refclassid = 'pg_class'::regclass AND p.refobjid = sequence
    LOOP
        EXECUTE format('SELECT %s(nullif(format(''%%s'', %I), '''')::numeric) FROM %s',
            CASE WHEN is_ascending THEN 'max' ELSE 'min' END, place.attname, place.target)
        INTO found;
        used := CASE WHEN is_ascending THEN greatest(used, found) ELSE least(used, found) END;
    END LOOP;
    RETURN used;
END $$;
-- Its numbers the proxy puts into statements. Here it is a name and a type.
CREATE OR REPLACE FUNCTION shardgate.unique_id() RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'shardgate.unique_id() is not supported in this place',
        DETAIL = 'A shard has no such numbers: the proxy puts them into VALUES and COPY, and into SELECT without tables.',
        HINT = 'SELECT shardgate.unique_id() first, and use its result.';
END $$;
-- They do what their caller may do without them.
GRANT EXECUTE ON FUNCTION shardgate.own_sequence(regclass), shardgate.adopt_sequence(regclass, name) TO PUBLIC;
REVOKE EXECUTE ON FUNCTION shardgate.add_numbers(regclass, bigint, bigint, bigint, bigint), shardgate.void_numbers(regclass, bigint, bigint),
    shardgate.numbers_left(), shardgate.numbers_used(regclass) FROM PUBLIC;
"#;
