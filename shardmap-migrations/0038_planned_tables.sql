-- plan_tables() in FROM, as locate(): the proxy plans, before the statement runs here.
CREATE FUNCTION shardgate.plan_tables(keys jsonb DEFAULT NULL, reference_tables text[] DEFAULT '{}', OUT step int, OUT kind text,
                                      OUT table_name text, OUT statement text, OUT reason text, OUT warning text)
RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.step, r.kind, r.table_name, r.statement, r.reason, r.warning
    FROM jsonb_to_recordset(shardgate_map.rows_of_call('plan_tables', jsonb_build_array(keys, to_jsonb(reference_tables))))
        AS r (step int, kind text, table_name text, statement text, reason text, warning text)
$$;
