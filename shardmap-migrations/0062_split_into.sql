-- The history says into how many pieces a partition was cut, so that the same command given again is known as such, and cuts no piece of it.
CREATE FUNCTION shardgate_map.split_into(actor text, of_group int, split int, pieces int, lows bytea[], low_texts text[]) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    begins text;
    made int;
BEGIN
    PERFORM shardgate_map.lock_map();
    SELECT p.low_text INTO begins FROM shardgate_map.partition p WHERE p.partition_id = split;
    made := shardgate_map.split_group(actor, of_group, lows, low_texts);
    IF made > 0 THEN
        UPDATE shardgate_map.history h SET arguments = h.arguments || jsonb_build_object('into', pieces, 'from', begins)
        FROM shardgate_map.cluster c WHERE h.incarnation = c.incarnation AND h.counter = c.counter;
    END IF;
    RETURN made;
END $$;

-- Where the partition was cut into as many pieces, if it is the first of these now; NULL: it is not, or another one since.
CREATE FUNCTION shardgate_map.was_split(split int, pieces int) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY(SELECT jsonb_array_elements_text(h.arguments -> 'at'))
    FROM shardgate_map.partition p
    CROSS JOIN LATERAL (SELECT n.low_text FROM shardgate_map.partition n
                        WHERE n.group_id = p.group_id AND n.low > p.low ORDER BY n.low LIMIT 1) above
    JOIN shardgate_map.history h ON h.change = 'split_group' AND h.arguments -> 'partitions' = to_jsonb(ARRAY[split])
                                AND h.arguments -> 'into' = to_jsonb(pieces)
                                AND h.arguments ->> 'from' IS NOT DISTINCT FROM p.low_text
                                AND h.arguments -> 'at' ->> 0 = above.low_text
    WHERE p.partition_id = split
    ORDER BY h.incarnation DESC, h.counter DESC
    LIMIT 1
$$;
