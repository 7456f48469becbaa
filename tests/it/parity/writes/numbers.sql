-- INSERT ... SELECT: rows are numbered in their order, and get one time.
INSERT INTO items (tenant, v) SELECT tenant, v FROM source ORDER BY id;
INSERT INTO items (v) SELECT v FROM source WHERE id < 8 ORDER BY id DESC;
--! any order
INSERT INTO items (tenant, v) SELECT tenant, v FROM source WHERE id < 8 ORDER BY id DESC RETURNING id, tenant, v, day, year;
INSERT INTO items (v, tenant) SELECT v, tenant FROM source WHERE false;
INSERT INTO items (tenant) SELECT count(*) FROM source GROUP BY tenant ORDER BY tenant;
INSERT INTO lines (tenant, v) SELECT id, v FROM source ORDER BY id;
INSERT INTO lines (v, tenant) SELECT 'n', g FROM generate_series(100, 130) g;
INSERT INTO lines (tenant, v, is_late) SELECT id, v, true FROM source ORDER BY id;
INSERT INTO lines (tenant, v) (SELECT 500, 'a' UNION ALL SELECT 501, 'b') ORDER BY 1 DESC;
INSERT INTO lines (tenant, v) WITH s AS (SELECT id, v FROM source WHERE id < 5) SELECT id, v FROM s ORDER BY id;
INSERT INTO lines (tenant, v) SELECT id, v FROM source WHERE id < 6 ORDER BY id ON CONFLICT DO NOTHING;
INSERT INTO strict (tenant, v) VALUES (1, 'a');
INSERT INTO strict (tenant, v) VALUES (1, 'a'), (2, 'b');
INSERT INTO strict VALUES (1, DEFAULT, 'a'), (2, DEFAULT, 'b');
INSERT INTO strict (tenant, v) SELECT tenant, 'x' || tenant FROM lines ORDER BY tenant;
INSERT INTO kinds (name) SELECT v FROM source WHERE id < 4 ORDER BY id;
--! any order
INSERT INTO kinds (name) SELECT 'y' RETURNING id, name, is_late;
INSERT INTO days (tenant) SELECT id FROM source;
INSERT INTO days SELECT id FROM source;
INSERT INTO days SELECT id, 'given' FROM source WHERE id < 5 UNION SELECT 70, 'more';
INSERT INTO days (n, tenant) SELECT id, id + 100 FROM source;
--! 3 | abc
--! 9 | NULL
INSERT INTO items (tenant, v) SELECT tenant, $2 FROM source WHERE id < $1 ORDER BY id;
-- VALUES beside it.
INSERT INTO items (tenant, v) VALUES (1, 'a'), (2, 'b'), (3, 'c') RETURNING id, v, day;
INSERT INTO items VALUES (DEFAULT, 1, 'a', DEFAULT), (nextval('items_id_seq'), 2, 'b', '2024-01-01');
INSERT INTO days VALUES (1), (2), (3);
INSERT INTO days VALUES (1, 'x'), (2, DEFAULT), (3, NULL);
INSERT INTO days OVERRIDING SYSTEM VALUE VALUES (1, 'x');
--! 1 | 2
--! 5 | 700
INSERT INTO days (tenant, n) VALUES ($1, 1), ($2, 2), ($1 + 1000, 3) RETURNING tenant, n;
--! 1 | 2
INSERT INTO days (tenant, n) VALUES ($1, 1), ($2, 2);
-- What the session knows afterwards.
--! script
INSERT INTO lines (tenant, v) VALUES (1, 'a');
INSERT INTO items (tenant, v) SELECT tenant, v FROM source WHERE id < 5 ORDER BY id;
SELECT lastval(), currval('items_id_seq'), currval('lines_id_seq');
SELECT currval(pg_get_serial_sequence('items', 'id')), pg_catalog.currval(pg_get_serial_sequence('public.items', 'id')::regclass);
INSERT INTO items (tenant, v) SELECT tenant, v FROM source WHERE id > 500;
SELECT lastval();
INSERT INTO lines (tenant, v) SELECT id, v FROM source ORDER BY id DESC LIMIT 3;
SELECT lastval(), currval('items_id_seq');
COPY items (v, tenant) FROM STDIN;
a	1
b	2
c	3
\.
SELECT lastval(), currval('items_id_seq'), currval('lines_id_seq');
SELECT id, v, tenant FROM items ORDER BY id;
--! end
--! script
BEGIN;
INSERT INTO items (tenant, v) SELECT tenant, v FROM source WHERE id < 5 ORDER BY id;
INSERT INTO items (v) VALUES ('between');
COPY items (v) FROM STDIN;
copied
copied too
\.
INSERT INTO items (v) SELECT v || '!' FROM items ORDER BY id;
SELECT id, v, day FROM items ORDER BY id;
ROLLBACK;
SELECT count(*) FROM items;
INSERT INTO items (v) SELECT 'after';
SELECT id, v FROM items;
--! end
-- COPY.
COPY items (tenant, v) FROM STDIN;
1	a
2	b
\N	\N
3	tab\tand \\ and \x41more
\.
COPY items (tenant, v) FROM STDIN;
1	a
2	b
3	c
4	d
5	
\.
COPY items (v) FROM STDIN;

x

\.
COPY items (tenant) FROM STDIN;
\.
COPY items (v, tenant) FROM STDIN (FORMAT csv);
"a,b",1
"with ""quotes""
and lines",2
,3
"",4
\.
COPY items (v, tenant) FROM STDIN (FORMAT csv, HEADER match, DELIMITER ';', NULL '1002');
v;tenant
a;1
1002;2
\.
COPY items (v, tenant) FROM STDIN (HEADER match);
v	tenant
a	1
\.
COPY items (v, tenant) FROM STDIN (DELIMITER '-', NULL '');
a-1
-2
\.
COPY lines (tenant, v) FROM STDIN;
1	a
2	b
3	c
4	d
\.
COPY lines (v, tenant) FROM STDIN WHERE tenant > 2;
a	1
b	2
c	3
d	4
\.
COPY strict (v, tenant) FROM STDIN;
a	1
b	2
\.
COPY days (tenant) FROM STDIN;
1
2
3
\.
COPY days (n, tenant) FROM STDIN (FORMAT csv, QUOTE '1', DELIMITER '7');
5723
671321
\.
COPY kinds (name) FROM STDIN;
a
b
\.
COPY kinds FROM STDIN;
500	a	t
501	b	f
\.
COPY items FROM STDIN;
500	1	a	2024-01-01	2024-01-01 00:00:00+00
501	2	b	2024-01-01	2024-01-01 00:00:00+00
\.
-- What PostgreSQL has to say against a row. Rows that fail use up numbers, here and there another count.
--! script
COPY items (tenant, v) FROM STDIN;
1	a
2
\.
SELECT setval('items_id_seq', 2000);
COPY items (tenant, v) FROM STDIN;
1	a
2	b	c
\.
SELECT setval('items_id_seq', 2000);
COPY items (tenant, v) FROM STDIN;
1	a
x	b
\.
SELECT setval('items_id_seq', 2000);
COPY items (v, tenant) FROM STDIN (FORMAT csv);
"a"
\.
SELECT setval('items_id_seq', 2000);
COPY items (v, tenant) FROM STDIN (FORMAT csv);
"a,1
\.
SELECT setval('items_id_seq', 2000);
COPY items (v, tenant) FROM STDIN (FORMAT csv, HEADER match);
tenant,v
1,a
\.
COPY items (v, tenant) FROM STDIN (HEADER match);
v
a	1
\.
SELECT setval('items_id_seq', 2000);
COPY items (v, nothing) FROM STDIN;
\.
COPY items (v, tenant) FROM STDIN (FORMAT csv, DELIMITER 'ab');
\.
--! refused
COPY items (v, tenant) FROM STDIN (FORMAT csv, FORCE_NULL (id));
\.
SELECT count(*) FROM items;
--! end
--! script
COPY lines (tenant, v) FROM STDIN;
1	a
\N	b
\.
SELECT setval('lines_id_seq', 2000);
COPY lines (tenant, v) FROM STDIN;
1	a
2	\N
\.
SELECT setval('lines_id_seq', 2000);
COPY strict (tenant, v) FROM STDIN;
1	a
2	b
3	c
2	b
\.
SELECT setval('strict_id_seq', 2000);
COPY strict (tenant, v) FROM STDIN;
1	a
2	longer than five
\.
SELECT setval('strict_id_seq', 2000);
--! end
--! script
INSERT INTO strict (tenant, v) SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (1, 'a')) AS s (a, b);
SELECT setval('strict_id_seq', 2000);
INSERT INTO lines (tenant, v) SELECT NULL, v FROM source WHERE id < 3;
SELECT setval('lines_id_seq', 2000);
INSERT INTO lines (tenant, v) SELECT id, NULLIF(v, 'v3') FROM source ORDER BY id;
SELECT setval('lines_id_seq', 2000);
INSERT INTO items (tenant, v) SELECT v, tenant FROM source;
INSERT INTO strict (tenant, id, v) SELECT 1, 2, 'x';
SELECT count(*) FROM strict;
SELECT count(*) FROM lines;
--! end
-- nextval() in expressions.
--! script
SELECT nextval('items_id_seq') + 1;
SELECT nextval('items_id_seq')::text, 'N-' || nextval('items_id_seq'), lpad(nextval('items_id_seq')::text, 8, '0') AS padded, 7 AS n;
SELECT currval('items_id_seq'), lastval();
INSERT INTO items (id, tenant, v) VALUES (nextval('items_id_seq') * 10, 1, 'N' || nextval('lines_id_seq')), (nextval('items_id_seq')::int, 2, upper('n') || nextval('lines_id_seq')) RETURNING id, v;
INSERT INTO items (tenant, v) VALUES (nextval('lines_id_seq') / 2, '5');
INSERT INTO lines (tenant, id, v) VALUES (-nextval('strict_id_seq'), 1, 'x');
SELECT currval('items_id_seq'), currval('lines_id_seq'), currval('strict_id_seq'), lastval();
SELECT id, tenant, v FROM items ORDER BY id;
SELECT ARRAY[nextval('items_id_seq'), 5], greatest(nextval('items_id_seq'), 1);
--! end
--! refused
SELECT CASE WHEN true THEN 1 ELSE nextval('items_id_seq') END;
--! refused
SELECT coalesce(5, nextval('items_id_seq'));
--! refused
SELECT nextval('items_id_seq') FROM source;
--! refused
SELECT generate_series(1, 3), nextval('items_id_seq');
--! refused
UPDATE source SET v = 'x' || nextval('items_id_seq') WHERE id < 4;
--! refused
INSERT INTO items (tenant) VALUES (generate_series(1, 3));
--! refused
INSERT INTO lines (tenant, v) SELECT 1, nextval('lines_id_seq')::text FROM source;
-- The columns beyond those of a star are left to their defaults.
--! refused
INSERT INTO dated SELECT * FROM (SELECT id + 1000, tenant FROM source) AS s (a, b);
INSERT INTO dated SELECT *, true FROM loose WHERE id > 1000000;

-- What the client says of an identity column does not count.
INSERT INTO strict (tenant, id, v) OVERRIDING USER VALUE VALUES (1, 70, 'a'), (2, DEFAULT, 'b'), (3, NULL, 'c') RETURNING id, v;
INSERT INTO strict (id, v, tenant) overriding /* whose */ user value VALUES (70, 'd', 1), (71, 'e', 2);
INSERT INTO strict OVERRIDING USER VALUE VALUES (4, 70), (5, 71) RETURNING tenant, id, v;
SELECT setval('lines_id_seq', 3000);
INSERT INTO lines (tenant, id, v) OVERRIDING USER VALUE VALUES (81, 70, 'user value (1)'), (82, 71, 'overriding') RETURNING tenant, id;
INSERT INTO lines (tenant, id, v) OVERRIDING USER VALUE VALUES (81, 1, 'x') ON CONFLICT (tenant, id) DO UPDATE SET v = 'again' RETURNING tenant, id, v;
--! 83 | 'abc'
--! 84 | ''
INSERT INTO lines (tenant, id, v) OVERRIDING USER VALUE VALUES ($1, '70', $2) RETURNING tenant, id, v;
INSERT INTO strict (tenant, id, v) OVERRIDING USER VALUE SELECT 1, 99, 'q' RETURNING tenant, id, v;
INSERT INTO strict (tenant, id, v) OVERRIDING USER VALUE SELECT id, id, 'q' FROM source ORDER BY id;
INSERT INTO lines (tenant, id, v) OVERRIDING USER VALUE SELECT id, 4, v FROM source WHERE id < 9 ORDER BY id;
-- Set to what has to be computed, as after rows were loaded with their numbers.
--! also binary
--! script
INSERT INTO items (id, tenant, v) VALUES (1500, 1, 'loaded'), (1700, 2, 'loaded');
SELECT setval('items_id_seq', (SELECT max(id) FROM items));
INSERT INTO items (tenant, v) VALUES (1, 'next') RETURNING id;
SELECT currval('items_id_seq');
SELECT setval(pg_get_serial_sequence('items', 'id'), coalesce(max(id), 1), max(id) IS NOT NULL) FROM items;
INSERT INTO items (tenant, v) VALUES (1, 'next') RETURNING id;
SELECT pg_catalog.setval('items_id_seq'::regclass, max(id) + 100, false) AS "Set" FROM items WHERE v = 'next';
INSERT INTO items (tenant, v) VALUES (1, 'next') RETURNING id;
SELECT setval('items_id_seq', (SELECT max(id) FROM items WHERE id > 100000));
SELECT setval('items_id_seq', max(id)) FROM items HAVING count(*) > 100000;
SELECT setval('items_id_seq', 1 / (SELECT count(*) FROM items WHERE id > 100000));
SELECT setval('items_id_seq', (SELECT 0 * max(id) FROM items));
BEGIN;
INSERT INTO items (id, tenant, v) VALUES (3000, 1, 'loaded');
SELECT setval('items_id_seq', (SELECT max(id) FROM items), (SELECT true));
INSERT INTO items (tenant, v) VALUES (1, 'next') RETURNING id;
ROLLBACK;
INSERT INTO items (tenant, v) VALUES (1, 'next') RETURNING id;
--! end
-- Who may set a sequence, and when.
--! script
BEGIN READ ONLY;
SELECT setval('items_id_seq', 5000);
ROLLBACK;
BEGIN READ ONLY;
SELECT setval('items_id_seq', (SELECT max(id) FROM items WHERE v IS NOT NULL));
SELECT setval('items_id_seq', (SELECT count(*) + 1 FROM items));
ROLLBACK;
--! runs
SET ROLE pg_monitor;
SELECT setval('items_id_seq', 5000);
--! runs
RESET ROLE;
--! end
-- Who may draw from a sequence, and look at what was drawn. An identity column's asks for nothing.
--! also binary
--! script
--! runs
SET ROLE parity_writer;
INSERT INTO items (tenant, v) VALUES (1, 'no right');
INSERT INTO items VALUES (DEFAULT, 1, 'no right');
INSERT INTO items (id, tenant, v) VALUES (nextval('items_id_seq'), 1, 'no right');
INSERT INTO items (id, tenant, v) VALUES (5000, 1, 'given');
INSERT INTO items (tenant, v) SELECT tenant, v FROM source WHERE id < 4 ORDER BY id;
INSERT INTO items (tenant, v) SELECT tenant, v FROM source WHERE id < 0;
COPY items (tenant, v) FROM STDIN;
\.
COPY items (tenant, v) FROM STDIN;
1	no right
2	no right
\.
COPY lines (tenant, v) FROM STDIN;
901	identity
\.
INSERT INTO kinds (name) VALUES ('no right');
--! 1 | bound
INSERT INTO items (tenant, v) VALUES ($1, $2);
SELECT nextval('items_id_seq');
SELECT currval('items_id_seq');
SELECT lastval();
SELECT setval('items_id_seq', 5000);
INSERT INTO lines (tenant, v) VALUES (900, 'identity') RETURNING tenant, v;
SELECT currval('lines_id_seq');
SELECT lastval();
SELECT nextval('lines_id_seq');
-- The table's rights come first.
INSERT INTO days (tenant) VALUES (1);
INSERT INTO parents (tenant, v) SELECT tenant, v FROM source WHERE id < 3;
INSERT INTO strict (tenant, v) VALUES (1, 'a');
INSERT INTO holidays (id) VALUES (nextval('items_id_seq'));
BEGIN READ ONLY;
INSERT INTO items (tenant, v) VALUES (1, 'read only');
ROLLBACK;
--! runs
RESET ROLE;
--! runs
GRANT USAGE ON SEQUENCE items_id_seq TO parity_writer;
--! runs
SET ROLE parity_writer;
INSERT INTO items (tenant, v) VALUES (1, 'may') RETURNING v;
SELECT lastval(), currval('items_id_seq');
SELECT setval('items_id_seq', 5000);
--! runs
RESET ROLE;
--! runs
REVOKE USAGE ON SEQUENCE items_id_seq FROM parity_writer;
--! runs
GRANT UPDATE ON SEQUENCE items_id_seq TO parity_writer;
--! runs
SET ROLE parity_writer;
INSERT INTO items (tenant, v) VALUES (1, 'may') RETURNING v;
SELECT currval('items_id_seq');
SELECT lastval();
SELECT setval('items_id_seq', 7000);
--! runs
RESET ROLE;
--! runs
REVOKE UPDATE ON SEQUENCE items_id_seq FROM parity_writer;
BEGIN;
--! runs
GRANT SELECT, USAGE ON SEQUENCE items_id_seq TO parity_writer;
--! runs
SET LOCAL ROLE parity_writer;
--! runs
INSERT INTO items (tenant, v) VALUES (1, 'in the transaction') RETURNING id;
SELECT currval('items_id_seq');
--! runs
ROLLBACK;
--! runs
SET ROLE parity_writer;
INSERT INTO items (tenant, v) VALUES (1, 'not any more');
--! runs
RESET ROLE;
--! end
--! script
BEGIN READ ONLY;
SELECT nextval('items_id_seq');
ROLLBACK;
BEGIN READ ONLY;
INSERT INTO items (tenant) VALUES (1);
ROLLBACK;
--! end
-- Sequences, and what they are set to, as parameters.
--! also binary
--! script
--! 5000
SELECT setval('items_id_seq', $1);
INSERT INTO items (tenant, v) VALUES (1, 'next') RETURNING id;
--! items_id_seq | 6000
--! "items_id_seq" | 6100
--! public.items_id_seq | 6200
SELECT setval($1, $2);
--! items_id_seq | 7000 | f
SELECT setval($1::regclass, $2::bigint, $3) AS told;
--! items_id_seq
SELECT nextval($1);
--! items_id_seq
SELECT currval($1), lastval();
--! items | id | 8000
SELECT setval(pg_get_serial_sequence($1, $2), $3);
--! items | id
SELECT nextval(pg_get_serial_sequence($1, $2)), currval(pg_get_serial_sequence($1, $2));
--! 3
SELECT setval('items_id_seq', (SELECT max(id) + $1 FROM items));
--! 4000
SELECT setval(pg_get_serial_sequence('items', 'id'), coalesce(max(id), $1), max(id) IS NOT NULL) FROM items;
--! items_id_seq | NULL
--! NULL | 5
--! nothing_seq | 5
--! items_id_seq | 0
SELECT setval($1, $2);
--! items_id_seq
SELECT nextval($1) + 1 AS more, 'N' || nextval($1);
--! items_id_seq | by parameter
INSERT INTO items (id, tenant, v) VALUES (nextval($1), 1, $2) RETURNING id, v;
--! lines_id_seq
SELECT currval($1);
--! NULL
SELECT nextval($1);
--! end
--! 9000
SELECT setval('items_id_seq', $1);
--! refused
SELECT setval('items' || '_id_seq', 5);
-- Statements of one form about a sequence of the home shard and then about one of the cluster.
--! also binary
--! script
SELECT setval('parents_id_seq', 50);
SELECT setval('items_id_seq', 1200);
SELECT nextval('parents_id_seq');
SELECT nextval('items_id_seq');
SELECT currval('items_id_seq');
SELECT nextval(pg_get_serial_sequence('parents', 'id')), 2;
SELECT nextval(pg_get_serial_sequence('items', 'id')), 2;
INSERT INTO items (tenant, v) VALUES (1, 'after') RETURNING id;
INSERT INTO parents (id, v) VALUES (nextval('parents_id_seq'), 'by the home shard');
INSERT INTO parents (id, v) VALUES (nextval('items_id_seq'), 'by the cluster');
--! parents_id_seq
--! items_id_seq
SELECT nextval($1);
--! end
