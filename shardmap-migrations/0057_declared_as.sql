-- What is declared of a function counts for the function that was there then: not for another one of its name, nor for one that has
-- replaced it.

-- A fingerprint of each function of that name, as the proxy has computed it. NULL: declared by an earlier version, for any.
ALTER TABLE shardgate_map.declared_function ADD COLUMN declared_as jsonb;

CREATE FUNCTION shardgate_map.declare_function(actor text, schema_name text, function_name text, reads jsonb, writes jsonb,
                                               key_argument int, declared_as jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF key_argument <= 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'key_argument must be greater than zero',
            DETAIL = 'The first argument is number 1.';
    END IF;
    PERFORM shardgate_map.lock_map();
    PERFORM shardgate_map.begin_change(actor, 'declare_function', jsonb_build_object(
        'function', jsonb_build_array(schema_name, function_name), 'reads', reads, 'writes', writes, 'key_argument', key_argument));
    INSERT INTO shardgate_map.declared_function AS f (schema_name, function_name, reads, writes, key_argument, declared_as)
    VALUES (declare_function.schema_name, declare_function.function_name, declare_function.reads, declare_function.writes,
            declare_function.key_argument, declare_function.declared_as)
    ON CONFLICT ON CONSTRAINT declared_function_pkey
    DO UPDATE SET reads = excluded.reads, writes = excluded.writes, key_argument = excluded.key_argument,
                  declared_as = excluded.declared_as;
END $$;

-- As an earlier version declares it.
CREATE OR REPLACE FUNCTION shardgate_map.declare_function(actor text, schema_name text, function_name text, reads jsonb, writes jsonb,
                                                          key_argument int) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT shardgate_map.declare_function(actor, schema_name, function_name, reads, writes, key_argument, NULL)
$$;
