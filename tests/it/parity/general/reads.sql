-- No table at all.
SELECT 1;
SELECT 1 AS one, 'two' AS two, NULL AS three, 4.50 AS four, TRUE AS five;
SELECT;
VALUES (1, 'a'), (2, 'b');
SELECT 1 WHERE FALSE;
SELECT 'it''s' AS "Quoted Name", E'tab\t' AS tab, $$dollar$$ AS dollar;
SELECT generate_series(1, 3);
SELECT * FROM generate_series(1, 5) g WHERE g > 2 ORDER BY g DESC;
SELECT 7 / 2, 7 % 2, 7.0 / 2, -7 / 2, 2 ^ 10, 5 & 3, 1 << 4;
SELECT NULL = NULL, NULL IS NULL, 'NaN'::float8 = 'NaN'::float8;
SELECT '2024-02-29'::date + 365, timestamp '2024-01-31' + interval '1 month', age('2024-03-01'::timestamp, '2024-01-31');
SELECT current_setting('server_version_num')::int > 90000;
SELECT current_database() IS NOT NULL, current_schema(), current_schemas(FALSE);
SELECT pg_typeof(1), pg_typeof('x'), pg_typeof(1.5), pg_typeof(now());
SELECT array_agg(x ORDER BY x DESC) FROM unnest(ARRAY[3, 1, 2]) x;
SELECT json_build_object('a', 1, 'b', ARRAY[1, 2]), '{"b": 1, "a": 2}'::jsonb;
SELECT CASE WHEN 1 > 2 THEN 'a' ELSE 'b' END, coalesce(NULL, 5), nullif(3, 3), greatest(1, 9, 4);
--! 5 | 7
--! NULL | 7
--! -2147483648 | 1
SELECT $1::int + $2::int AS sum;
--! a'b | c\d
--! '' | NULL
SELECT $1::text || $2::text, length($1);
--! 1.50
--! NaN
--! 123456789012345678901234567890.0001
SELECT $1::numeric * 2, $1::numeric::text;
--! 1.5
--! Infinity
--! -0
SELECT $1::float8, $1::float8::real;
--! 2024-02-29
SELECT $1::date, $1::date + 1, extract(year FROM $1::date);
--! 2024-02-29 12:34:56.789+03
SELECT $1::timestamptz AT TIME ZONE 'UTC';
--! {1,2,NULL}
SELECT $1::int[], array_length($1::int[], 1);
--! true
SELECT NOT $1::bool;
--! \x00ff
SELECT $1::bytea, length($1::bytea);
--! 1 day 02:03:04
SELECT $1::interval * 2;
--! {"a": [1, 2]}
SELECT $1::jsonb -> 'a';
SELECT twice(21), shout('abc');
SELECT WHERE EXISTS (SELECT 1 WHERE FALSE);
SELECT count(*) FROM (VALUES (1), (2)) v;
(SELECT 1) UNION ALL (SELECT 2) ORDER BY 1;
SELECT 1; SELECT 2;
-- One key.
--! 1
--! 7
--! 40
--! -3
--! 0
--! 999
--! NULL
SELECT * FROM accounts WHERE id = $1;
--! 5
SELECT id, name, balance FROM public.accounts WHERE id = $1;
--! 5
SELECT a.id, a.name FROM public.accounts AS a WHERE a.id = $1;
--! 5
SELECT accounts.name FROM accounts WHERE accounts.id = $1;
--! 5
SELECT public.accounts.name FROM public.accounts WHERE public.accounts.id = $1;
--! 5
SELECT a FROM accounts a WHERE a.id = $1;
SELECT x.n FROM accounts AS x (i, n) WHERE x.i = 9;
SELECT "id", "name" FROM "accounts" WHERE "id" = 3;
SELECT ID, Name FROM ACCOUNTS WHERE Id = 3;
SELECT 'x' || name AS "Strange ""Name""" FROM accounts WHERE id = 3;
SELECT count(*), sum(balance), max(name), min(score), avg(balance) FROM accounts WHERE id = 4;
SELECT count(*) FROM accounts WHERE id = 4000;
SELECT sum(balance) FROM accounts WHERE id = 4000;
SELECT * FROM accounts WHERE id = 4 AND active AND name LIKE 'acc%';
SELECT * FROM accounts WHERE (id = 4 OR FALSE) AND balance IS NOT NULL;
SELECT * FROM accounts WHERE id = 4 LIMIT 1;
SELECT * FROM accounts WHERE id = 4 LIMIT 0;
SELECT * FROM accounts WHERE id = 4 OFFSET 1;
SELECT DISTINCT active FROM accounts WHERE id = 4;
SELECT name FROM accounts WHERE id = 4 FOR UPDATE;
SELECT name FROM accounts WHERE id = 4 FOR NO KEY UPDATE NOWAIT;
SELECT name FROM accounts WHERE id = 4 FOR SHARE SKIP LOCKED;
SELECT opened, opened AT TIME ZONE 'UTC', opened::date FROM accounts WHERE id = 4;
SELECT * FROM ONLY accounts WHERE id = 4;
TABLE languages;
-- Composite keys.
--! eu | 2
--! e u | 4
--! '' | 1
--! xx | 1
--! NULL | 1
SELECT * FROM places WHERE region = $1 AND tenant = $2 ORDER BY k;
SELECT * FROM places WHERE tenant = 2 AND region = 'eu' ORDER BY k;
SELECT * FROM places WHERE region = 'eu' ORDER BY tenant, k;
SELECT * FROM places WHERE (region, tenant) = ('us', 3) ORDER BY k;
SELECT * FROM places WHERE (region, tenant) IN (('us', 3), ('eu', 1), ('zz', 9)) ORDER BY region, tenant, k;
SELECT * FROM places WHERE region IN ('us', 'eu') AND tenant = 1 ORDER BY v COLLATE "C";
SELECT * FROM places WHERE region = 'us' AND tenant IN (1, 2) AND k = 1 ORDER BY tenant;
--! {us,ap} | 4
SELECT * FROM places WHERE region = ANY ($1) AND tenant = $2 ORDER BY v COLLATE "C";
SELECT p.v, x.n FROM places p JOIN visits x ON x.region = p.region AND x.tenant = p.tenant WHERE p.region = 'us' AND p.tenant = 3 ORDER BY p.k;
SELECT p.v, x.n FROM places p JOIN visits x USING (region, tenant) ORDER BY p.v COLLATE "C";
SELECT p.v, x.n FROM places p LEFT JOIN visits x USING (region, tenant) WHERE p.k = 1 ORDER BY p.v COLLATE "C";
-- An ON sees the two sides of its join; what else has such a name is of a level around, or of none.
SELECT q.n, (SELECT count(*) FROM entries q JOIN (accounts a JOIN entries b ON a.id = b.account_id AND a.id = q.n) ON true WHERE q.account_id = 2 AND q.n = 2) FROM entries q WHERE q.account_id = 2 ORDER BY q.n;
SELECT q.n, (SELECT count(*) FROM entries q, (accounts a JOIN entries b ON a.id = b.account_id AND a.id = q.n) WHERE q.account_id = 2 AND q.n = 2) FROM entries q WHERE q.account_id = 2 ORDER BY q.n;
SELECT q.n, (SELECT count(b.n) FROM entries q, (accounts a LEFT JOIN entries b ON a.id = b.account_id AND b.account_id = q.n) WHERE q.account_id = 2 AND q.n = 2 AND b.n = 2) FROM entries q WHERE q.account_id = 2 ORDER BY q.n;
SELECT q.n, (SELECT count(*) FROM entries, (accounts a JOIN accounts b ON a.id = b.id AND a.id = n) WHERE account_id = 2 AND n = 2) FROM entries q WHERE q.account_id = 2 ORDER BY q.n;
SELECT q.n, (SELECT count(*) FROM entries e JOIN entries f USING (account_id, n), accounts a JOIN accounts b ON a.id = b.id AND a.id = n WHERE account_id = 2 AND n = 2) FROM entries q WHERE q.account_id = 2 ORDER BY q.n;
SELECT q.n, (SELECT count(*) FROM entries q, accounts a JOIN accounts b ON a.id = b.id AND a.id IN (SELECT q.n) WHERE q.account_id = 2 AND q.n = 2) FROM entries q WHERE q.account_id = 2 ORDER BY q.n;
SELECT count(*) FROM entries q, accounts a JOIN LATERAL (SELECT e.n FROM entries e WHERE e.account_id = q.n AND a.id = q.account_id) l ON l.n > 1 WHERE q.account_id = 2 AND q.n = 2;
SELECT count(*) FROM entries q, accounts a JOIN generate_series(1, q.n) g ON g = a.id WHERE q.account_id = 2 AND q.n = 2;
SELECT count(*) FROM entries q, accounts a JOIN accounts b ON a.id = q.n AND a.id = b.id WHERE q.account_id = 2;
SELECT count(*) FROM entries, accounts a JOIN sales.accounts b ON a.id = b.id AND n = 2 WHERE account_id = 2;
SELECT count(*) FROM accounts a, entries e JOIN sales.invoices i ON n = i.id AND account_id = i.customer AND e.account_id = 3 WHERE a.id = 3;
SELECT count(*) FROM entries f, entries e JOIN sales.invoices i ON account_id = i.customer WHERE e.account_id = 3 AND f.account_id = 2 AND i.customer = 3;
SELECT region, tenant, count(*) FROM places GROUP BY region, tenant ORDER BY region COLLATE "C", tenant;
SELECT * FROM readings WHERE sensor = 4 AND at = '2024-06-01 03:00';
SELECT * FROM readings WHERE sensor = 4 ORDER BY at;
SELECT * FROM readings WHERE sensor = 7 AND at < '2024-06-01 04:00' ORDER BY at;
SELECT * FROM readings WHERE sensor BETWEEN 3 AND 5 ORDER BY sensor, at DESC;
SELECT * FROM readings WHERE (sensor, at) >= (7, '2024-06-01 03:00') ORDER BY sensor, at;
--! 8 | 2024-06-01 01:30:00
SELECT value FROM readings WHERE sensor = $1 AND at = $2;
-- Several shards: concatenation, ORDER BY, LIMIT.
SELECT * FROM accounts;
SELECT id FROM accounts ORDER BY id;
SELECT id, name FROM accounts ORDER BY id DESC;
SELECT id, name FROM accounts ORDER BY name;
SELECT id, name FROM accounts ORDER BY name DESC;
SELECT id, name FROM accounts ORDER BY 2, 1;
SELECT id, name AS n FROM accounts ORDER BY n DESC;
SELECT id, balance FROM accounts ORDER BY balance, id;
SELECT id, balance FROM accounts ORDER BY balance DESC, id;
SELECT id, balance FROM accounts ORDER BY balance NULLS FIRST, id;
SELECT id, balance FROM accounts ORDER BY balance DESC NULLS LAST, id DESC;
SELECT id, score FROM accounts ORDER BY score, id;
SELECT id, score FROM accounts ORDER BY score DESC, id;
SELECT id, score FROM accounts ORDER BY score NULLS FIRST, id;
SELECT id, active FROM accounts ORDER BY active, id;
SELECT id, active FROM accounts ORDER BY active DESC NULLS LAST, id;
SELECT id, opened FROM accounts ORDER BY opened DESC;
SELECT id FROM accounts ORDER BY opened;
SELECT name FROM accounts ORDER BY id;
SELECT name FROM accounts ORDER BY balance DESC NULLS LAST, id;
SELECT name FROM accounts ORDER BY balance + 1 DESC NULLS LAST, id;
SELECT id + 1 AS next FROM accounts ORDER BY id + 1;
SELECT id, -id FROM accounts ORDER BY -id;
SELECT id FROM accounts ORDER BY id % 3, id;
SELECT id, abs(id) FROM accounts ORDER BY abs(id), id;
SELECT id FROM accounts ORDER BY abs(id), id DESC;
SELECT id FROM accounts ORDER BY CASE WHEN active THEN 0 WHEN NOT active THEN 1 ELSE 2 END, id;
SELECT id FROM accounts ORDER BY active IS NULL, id;
SELECT id FROM accounts ORDER BY length(note) NULLS FIRST, id;
SELECT id FROM accounts ORDER BY lower(name);
SELECT id FROM accounts ORDER BY upper(name COLLATE "C") DESC;
SELECT id, note FROM accounts ORDER BY note COLLATE "C", id;
SELECT id, note FROM accounts ORDER BY note COLLATE "POSIX" DESC, id;
SELECT id FROM accounts ORDER BY id USING >;
SELECT * FROM accounts ORDER BY accounts.id;
SELECT * FROM accounts a ORDER BY a.name, a.id;
SELECT id, id AS same, name FROM accounts ORDER BY same;
SELECT id FROM accounts ORDER BY id LIMIT 5;
SELECT id FROM accounts ORDER BY id LIMIT 5 OFFSET 3;
SELECT id FROM accounts ORDER BY id OFFSET 38;
SELECT id FROM accounts ORDER BY id OFFSET 1000;
SELECT id FROM accounts ORDER BY id LIMIT 0;
SELECT id FROM accounts ORDER BY id LIMIT 1000;
SELECT id FROM accounts ORDER BY id LIMIT ALL;
SELECT id FROM accounts ORDER BY id LIMIT NULL OFFSET NULL;
SELECT id FROM accounts ORDER BY id LIMIT 9223372036854775807 OFFSET 40;
SELECT id FROM accounts ORDER BY id LIMIT 9223372036854775807 OFFSET 9223372036854775807;
SELECT id FROM accounts ORDER BY id FETCH FIRST 3 ROWS ONLY;
SELECT id FROM accounts ORDER BY id OFFSET 2 ROWS FETCH NEXT ROW ONLY;
SELECT id FROM accounts ORDER BY id OFFSET 3 LIMIT 5;
SELECT id FROM accounts ORDER BY id LIMIT 7 OFFSET 3;
SELECT id FROM accounts ORDER BY id LIMIT -1;
SELECT id FROM accounts ORDER BY id OFFSET -1;
SELECT id FROM accounts ORDER BY id LIMIT '3';
SELECT id FROM accounts ORDER BY id LIMIT 'three';
SELECT id FROM accounts ORDER BY id LIMIT 2.4;
SELECT id FROM accounts ORDER BY id LIMIT 1 + 1;
--! 3 | 2
--! 0 | 0
--! NULL | 5
--! 5 | NULL
--! NULL | NULL
--! 9223372036854775807 | 9
SELECT id FROM accounts ORDER BY id LIMIT $1 OFFSET $2;
--! extended
--! -1 | 0
--! 1 | -1
SELECT id FROM accounts ORDER BY id LIMIT $1 OFFSET $2;
--! 4
SELECT id FROM accounts ORDER BY id DESC LIMIT $1;
--! 4
SELECT id FROM accounts ORDER BY id LIMIT $1::int;
--! 36
SELECT id FROM accounts ORDER BY id OFFSET $1;
--! count only
SELECT id FROM accounts LIMIT 7;
--! count only
SELECT id FROM accounts LIMIT 7 OFFSET 40;
--! count only
SELECT id FROM accounts OFFSET 10;
SELECT id FROM accounts WHERE id > 10 ORDER BY id LIMIT 5;
SELECT id FROM accounts WHERE active ORDER BY id;
SELECT id FROM accounts WHERE name LIKE 'accb%' ORDER BY id;
SELECT id FROM accounts WHERE balance BETWEEN 0 AND 20 ORDER BY id;
SELECT id FROM accounts WHERE score = 'NaN' ORDER BY id;
SELECT id FROM accounts WHERE note IS NULL AND id <> 3 ORDER BY id;
SELECT id FROM accounts WHERE id IN (1, 2, 3, 4, 5) ORDER BY id;
SELECT id FROM accounts WHERE id IN (1, 2, 3, 4, 5);
--! {5,1,3,99,NULL}
--! {}
--! NULL
SELECT id, name FROM accounts WHERE id = ANY ($1) ORDER BY id;
--! {5,1,3}
SELECT id, name FROM accounts WHERE id = ANY ($1::bigint[]) ORDER BY name LIMIT 2;
SELECT id FROM accounts WHERE id = 1 OR id = 2 OR name = 'accd3' ORDER BY id;
SELECT id FROM accounts WHERE id NOT IN (1, 2, 3) AND id < 10 ORDER BY id;
SELECT id, name, id AS again FROM accounts WHERE id < 5 ORDER BY again DESC;
SELECT a.*, 1 AS one FROM accounts a WHERE id < 3 ORDER BY id;
SELECT a.* FROM accounts a WHERE id < 3 ORDER BY a.balance NULLS LAST, a.id;
SELECT a FROM accounts a WHERE a.id < 3 ORDER BY a.id;
SELECT row(id, name) FROM accounts WHERE id < 3 ORDER BY id;
SELECT day, id FROM orders ORDER BY day;
SELECT * FROM orders ORDER BY total DESC, day LIMIT 6;
SELECT * FROM orders WHERE day >= '2024-05-01' ORDER BY day LIMIT 4;
SELECT * FROM orders WHERE day >= '2024-02-01' AND day < '2024-04-01' ORDER BY day;
SELECT * FROM orders WHERE day = '2024-01-14';
SELECT * FROM orders WHERE day = '2024-01-14' AND id = 1;
SELECT count(*), sum(total) FROM orders WHERE day BETWEEN '2024-02-01' AND '2024-03-31';
SELECT * FROM orders WHERE day > '2024-12-20' ORDER BY id;
SELECT * FROM books WHERE isbn = (SELECT '000007919' || '1');
SELECT * FROM books WHERE isbn = '0000079191';
SELECT * FROM books WHERE right(isbn, 1) = 'X' ORDER BY isbn COLLATE "C";
SELECT * FROM books ORDER BY isbn COLLATE "C" LIMIT 7;
SELECT title, pages FROM books ORDER BY pages DESC NULLS LAST, title COLLATE "C" LIMIT 9;
--! {0000079191,0000158382}
SELECT b.title, l.reader FROM books b JOIN loans l ON l.isbn = b.isbn WHERE b.isbn = ANY ($1);
SELECT b.title, l.n FROM books b JOIN loans l ON l.isbn = b.isbn WHERE b.isbn = '0000158382' ORDER BY l.n;
-- Every type as a column, in order.
SELECT * FROM kitchen WHERE id = 5;
SELECT * FROM kitchen ORDER BY id;
SELECT id, i2 FROM kitchen ORDER BY i2 DESC NULLS LAST, id;
SELECT id, i8 FROM kitchen ORDER BY i8, id;
SELECT id, f4 FROM kitchen ORDER BY f4, id;
SELECT id, f4 FROM kitchen ORDER BY f4 DESC, id;
SELECT id, f8 FROM kitchen ORDER BY f8, id;
SELECT id, num FROM kitchen ORDER BY num, id;
SELECT id, num FROM kitchen ORDER BY num DESC NULLS LAST, id DESC;
SELECT id, t FROM kitchen ORDER BY t COLLATE "C", id;
SELECT id, vc FROM kitchen ORDER BY vc COLLATE "C" DESC, id;
SELECT id, c FROM kitchen ORDER BY c COLLATE "C", id;
SELECT id, d FROM kitchen ORDER BY d DESC, id;
SELECT id, ti FROM kitchen ORDER BY ti, id;
SELECT id, ts FROM kitchen ORDER BY ts, id;
SELECT id, tz FROM kitchen ORDER BY tz DESC NULLS LAST, id;
SELECT id, b FROM kitchen ORDER BY b, id;
SELECT id, "by" FROM kitchen ORDER BY "by", id;
SELECT id, u FROM kitchen ORDER BY u DESC, id;
SELECT id, nm FROM kitchen ORDER BY nm, id;
-- What the proxy does not put in order, also where NULLs come first.
SELECT id, m FROM kitchen ORDER BY m DESC, id;
SELECT id, jb FROM kitchen ORDER BY jb DESC, id;
SELECT id, ip FROM kitchen ORDER BY ip NULLS FIRST, id;
SELECT id, iv FROM kitchen ORDER BY iv DESC, id LIMIT 15;
SELECT id, ia FROM kitchen ORDER BY ia DESC, id;
SELECT id, j ->> 'i' FROM kitchen ORDER BY j ->> 'i' DESC, id;
SELECT DISTINCT m FROM kitchen ORDER BY m DESC;
SELECT m, count(*) FROM kitchen GROUP BY m ORDER BY m DESC;
SELECT id, m FROM kitchen WHERE id < 9 ORDER BY id;
SELECT id, j, jb, ia, ta FROM kitchen ORDER BY id;
SELECT id, ip, iv FROM kitchen ORDER BY id;
SELECT id, ia[1], ta[2], jb ->> 'i', j -> 'i' FROM kitchen ORDER BY id;
SELECT id FROM kitchen WHERE jb @> '{"i": 3}' ORDER BY id;
SELECT id FROM kitchen WHERE 4 = ANY (ia) ORDER BY id;
SELECT id FROM kitchen WHERE m = 'happy' ORDER BY id;
SELECT id FROM kitchen WHERE m > 'sad' ORDER BY id;
--! ok
SELECT id FROM kitchen WHERE m = $1::mood ORDER BY id;
--! 10.0.0.3
SELECT id FROM kitchen WHERE ip = $1 ORDER BY id;
-- Empty shards, a table without rows, a table with one.
SELECT * FROM empty_one;
SELECT * FROM empty_one ORDER BY id LIMIT 3;
SELECT * FROM empty_one WHERE id = 1;
SELECT count(*) FROM empty_one WHERE id = 1;
SELECT * FROM sparse;
SELECT * FROM sparse ORDER BY v COLLATE "C";
SELECT * FROM sparse WHERE id = 7;
SELECT * FROM sparse WHERE id IN (7, 8, 9) ORDER BY id;
SELECT * FROM sparse WHERE v = 'nobody' ORDER BY id;
-- Names that need quotes, schemas.
SELECT * FROM "Mixed Case" WHERE "Id" = 4;
SELECT "Select", "a""b" FROM "Mixed Case" ORDER BY "Id";
SELECT m."Id" AS "From" FROM public."Mixed Case" m WHERE m."Id" IN (1, 2) ORDER BY "From";
SELECT * FROM mixed_case;
SELECT * FROM "mixed case";
SELECT * FROM sales.invoices WHERE customer = 3 ORDER BY id;
SELECT * FROM sales.invoices i ORDER BY i.amount DESC LIMIT 4;
SELECT * FROM sales.accounts WHERE id = 3;
SELECT a.name, s.owner FROM public.accounts a, sales.accounts s WHERE a.id = 3 AND s.id = 3;
SELECT invoices.amount FROM sales.invoices WHERE invoices.customer = 2 AND invoices.id = 1;
SELECT * FROM invoices;
SELECT * FROM nowhere.accounts;
SELECT * FROM app.public.accounts WHERE id = 1;
-- Reference and home tables.
SELECT * FROM languages ORDER BY code;
SELECT name FROM languages WHERE code = 'de';
SELECT count(*) FROM languages;
SELECT kind, label FROM kinds ORDER BY weight NULLS FIRST;
SELECT l.name, k.label FROM languages l CROSS JOIN kinds k ORDER BY 1, 2;
SELECT * FROM language_names ORDER BY code;
SELECT language_of('fr');
SELECT * FROM audit ORDER BY id;
SELECT count(*), max(at) FROM audit WHERE id > 2;
SELECT * FROM audit_view ORDER BY id DESC;
SELECT o.name, o.value -> 'x' FROM options o ORDER BY o.name;
SELECT a.what, o.name FROM audit a JOIN options o ON a.id = 1 ORDER BY o.name;
SELECT a.what, l.name FROM audit a CROSS JOIN languages l WHERE a.id = 2 ORDER BY l.code;
WITH recent AS (SELECT * FROM audit ORDER BY id DESC LIMIT 2) SELECT count(*) FROM recent;
SELECT what, row_number() OVER (ORDER BY id DESC) FROM audit ORDER BY id;
-- Joins on the key.
--! 4
--! 77
--! NULL
SELECT a.name, e.n, e.amount FROM accounts a JOIN entries e ON e.account_id = a.id WHERE a.id = $1 ORDER BY e.n;
--! 4
SELECT a.name, e.n FROM accounts a, entries e WHERE e.account_id = a.id AND e.account_id = $1 ORDER BY e.n;
--! 4
SELECT a.name, e.n FROM accounts a LEFT JOIN entries e ON e.account_id = a.id WHERE a.id = $1 ORDER BY e.n;
SELECT a.name, e.n FROM accounts a LEFT JOIN entries e ON e.account_id = a.id AND e.n = 1 ORDER BY a.id;
SELECT a.name, e.n FROM accounts a LEFT JOIN entries e ON e.account_id = a.id AND a.id = 4 ORDER BY a.id, e.n;
SELECT a.name, e.n FROM entries e RIGHT JOIN accounts a ON e.account_id = a.id WHERE e.n IS NULL ORDER BY a.id;
SELECT a.id, e.account_id FROM accounts a FULL JOIN entries e ON e.account_id = a.id AND e.n = 2 ORDER BY a.id, e.account_id, e.n;
SELECT a.id, e.n FROM accounts a JOIN entries e ON e.account_id = a.id ORDER BY a.id, e.n;
SELECT a.id, e.n FROM accounts a JOIN entries e ON a.id = e.account_id ORDER BY e.amount DESC NULLS LAST, a.id, e.n LIMIT 10;
SELECT a.id, e.n, f.n FROM accounts a JOIN entries e ON e.account_id = a.id JOIN entries f ON f.account_id = e.account_id AND f.n > e.n ORDER BY 1, 2, 3;
SELECT a.id, e.n FROM accounts a CROSS JOIN LATERAL (SELECT n FROM entries e WHERE e.account_id = a.id ORDER BY n LIMIT 1) e ORDER BY a.id;
SELECT a.id, b.id FROM accounts a JOIN accounts b ON a.id = b.id WHERE a.id < 3 ORDER BY 1;
SELECT a.id FROM accounts a JOIN accounts b ON a.id = b.id + 0 WHERE a.id = 3 AND b.id = 3;
SELECT a.id, b.id FROM accounts a, accounts b WHERE a.id = 1 AND b.id = 1;
SELECT id, n FROM accounts JOIN entries ON id = account_id WHERE id = 8 ORDER BY n;
SELECT * FROM sales.invoices i JOIN sales.invoices j USING (customer) WHERE customer = 2 ORDER BY i.id, j.id;
SELECT * FROM sales.invoices i NATURAL JOIN sales.invoices j WHERE customer = 2 ORDER BY id;
-- Joins with reference tables.
SELECT e.account_id, e.n, k.label FROM entries e JOIN kinds k ON k.kind = e.kind WHERE e.account_id = 6 ORDER BY e.n;
SELECT e.account_id, e.n, k.label FROM entries e JOIN kinds k ON k.kind = e.kind ORDER BY e.account_id, e.n;
SELECT e.account_id, e.n, k.label FROM entries e LEFT JOIN kinds k ON k.kind = e.kind ORDER BY e.account_id, e.n;
SELECT e.account_id, e.n, k.label FROM entries e LEFT JOIN kinds k USING (kind) ORDER BY k.weight NULLS LAST, e.account_id, e.n LIMIT 8;
SELECT b.title, l.name FROM books b JOIN languages l ON l.code = b.language ORDER BY b.title COLLATE "C";
SELECT b.title, l.name FROM languages l RIGHT JOIN books b ON l.code = b.language ORDER BY b.title COLLATE "C";
SELECT b.title, l.name FROM books b, languages l WHERE l.code = b.language AND b.isbn = '0000079191';
SELECT a.id, l.code FROM accounts a CROSS JOIN languages l WHERE a.id < 3 ORDER BY a.id, l.code COLLATE "C";
-- Sub-selects and CTEs on the key.
SELECT id FROM accounts a WHERE EXISTS (SELECT 1 FROM entries e WHERE e.account_id = a.id AND e.kind = 'fee') ORDER BY id;
SELECT id FROM accounts a WHERE NOT EXISTS (SELECT 1 FROM entries e WHERE e.account_id = a.id) ORDER BY id;
SELECT id FROM accounts a WHERE id IN (SELECT account_id FROM entries WHERE amount > 20) ORDER BY id;
SELECT id, (SELECT count(*) FROM entries e WHERE e.account_id = a.id) AS entries FROM accounts a ORDER BY id;
SELECT id, (SELECT max(e.amount) FROM entries e WHERE e.account_id = a.id) AS top FROM accounts a WHERE a.id = 9;
SELECT id FROM accounts WHERE name IN (SELECT name FROM accounts WHERE id = 3) AND id = 3;
SELECT * FROM (SELECT id, name FROM accounts WHERE id < 6) s ORDER BY s.id;
SELECT s.id FROM (SELECT * FROM accounts) s WHERE s.id = 5;
SELECT count(*) FROM (SELECT * FROM accounts WHERE id = 5) s;
SELECT * FROM (SELECT id AS key, name FROM accounts) s WHERE s.key = 5;
SELECT id FROM accounts WHERE id = (SELECT 5);
WITH one AS (SELECT * FROM accounts WHERE id = 5) SELECT one.name, e.n FROM one JOIN entries e ON e.account_id = one.id ORDER BY e.n;
WITH a AS (SELECT * FROM accounts) SELECT name FROM a WHERE id = 6;
WITH a AS MATERIALIZED (SELECT * FROM accounts WHERE id = 6) SELECT name FROM a;
WITH a AS (SELECT id FROM accounts WHERE id < 5) SELECT id FROM a ORDER BY id;
WITH accounts AS (SELECT 1 AS id, 'mine' AS name) SELECT * FROM accounts;
WITH accounts AS (SELECT * FROM accounts WHERE id = 2) SELECT id, name FROM accounts;
WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 4) SELECT * FROM r ORDER BY n;
--! 7
WITH e AS (SELECT * FROM entries WHERE account_id = $1) SELECT count(*), sum(amount) FROM e;
SELECT id FROM accounts a WHERE balance > (SELECT avg(amount) FROM entries e WHERE e.account_id = a.id) ORDER BY id;
SELECT id FROM accounts WHERE name = ANY (SELECT label FROM kinds) ORDER BY id;
SELECT id FROM accounts a WHERE (SELECT weight FROM kinds k WHERE k.kind = 'fee') = 1 AND id = 2;
SELECT e.account_id FROM entries e WHERE e.kind IN (SELECT kind FROM kinds WHERE weight > 1) ORDER BY e.account_id, e.n;
SELECT e.account_id FROM entries e WHERE e.kind NOT IN (SELECT kind FROM kinds) ORDER BY e.account_id, e.n;
-- Grouped by the whole key.
SELECT account_id, count(*), sum(amount), avg(amount) FROM entries GROUP BY account_id ORDER BY account_id;
SELECT account_id, count(*) FROM entries GROUP BY account_id HAVING count(*) > 2 ORDER BY account_id;
SELECT account_id, n, count(*) FROM entries GROUP BY 1, 2 ORDER BY 1, 2 LIMIT 5;
SELECT account_id, array_agg(kind ORDER BY n) FROM entries GROUP BY account_id ORDER BY account_id;
SELECT account_id, string_agg(kind, ',' ORDER BY n) FILTER (WHERE kind <> 'fee') FROM entries GROUP BY account_id ORDER BY account_id;
SELECT a.id, a.name, count(e.n) FROM accounts a LEFT JOIN entries e ON e.account_id = a.id GROUP BY a.id ORDER BY a.id;
SELECT account_id, n, sum(amount) OVER (PARTITION BY account_id ORDER BY n) FROM entries ORDER BY account_id, n;
SELECT account_id, n, row_number() OVER (PARTITION BY account_id ORDER BY n DESC) FROM entries ORDER BY 1, 2;
SELECT DISTINCT account_id FROM entries ORDER BY account_id;
SELECT DISTINCT account_id, kind FROM entries ORDER BY account_id, kind;
SELECT DISTINCT ON (account_id) account_id, n, kind FROM entries ORDER BY account_id, n DESC;
SELECT count(*) FROM entries WHERE account_id = 3 GROUP BY kind ORDER BY 1;
SELECT kind, count(*) FROM entries WHERE account_id = 3 GROUP BY kind HAVING count(*) > 0 ORDER BY kind;
SELECT kind, count(*), grouping(kind) FROM entries WHERE account_id = 3 GROUP BY ROLLUP (kind) ORDER BY kind;
SELECT DISTINCT kind FROM entries WHERE account_id = 3 ORDER BY kind;
SELECT n, rank() OVER (ORDER BY amount) FROM entries WHERE account_id = 3 ORDER BY n;
-- Views.
SELECT * FROM active_accounts WHERE id = 4;
SELECT * FROM active_accounts ORDER BY id;
SELECT v.name FROM active_accounts v WHERE v.id IN (4, 6) ORDER BY v.id;
SELECT * FROM account_entries WHERE id = 3 ORDER BY n;
SELECT * FROM account_entries ORDER BY id, n LIMIT 12;
SELECT * FROM account_sums WHERE account_id = 3;
SELECT * FROM account_sums ORDER BY account_id;
SELECT * FROM labelled_entries WHERE account_id = 6 ORDER BY n;
SELECT * FROM labelled_entries ORDER BY account_id, n;
SELECT * FROM account_one;
SELECT v.name, e.n FROM active_accounts v JOIN entries e ON e.account_id = v.id WHERE v.id = 8 ORDER BY e.n;
--! 8
SELECT * FROM active_accounts WHERE id = $1;
-- Set operations.
SELECT id FROM accounts WHERE id = 1 UNION SELECT account_id FROM entries WHERE account_id = 1 ORDER BY 1;
SELECT id FROM accounts WHERE id = 1 UNION ALL SELECT account_id FROM entries WHERE account_id = 1 ORDER BY 1;
SELECT id FROM accounts WHERE id = 1 EXCEPT SELECT account_id FROM entries WHERE account_id = 1;
SELECT id FROM accounts WHERE id = 1 INTERSECT SELECT account_id FROM entries WHERE account_id = 1;
SELECT id FROM accounts WHERE id < 4 UNION ALL SELECT account_id FROM entries WHERE n = 2 ORDER BY 1;
SELECT code FROM languages UNION SELECT kind FROM kinds ORDER BY 1;
SELECT id FROM audit UNION ALL SELECT 100 ORDER BY id;
(SELECT id, name FROM accounts WHERE id = 3) UNION ALL (SELECT id, name FROM accounts WHERE id = 3) ORDER BY 1;
-- Functions of rows.
SELECT id, twice(id::int), shout(name) FROM accounts WHERE id = 5;
SELECT id, twice(id::int) AS t, shout(name) FROM accounts ORDER BY id LIMIT 4;
SELECT b.title, language_of(b.language) FROM books b ORDER BY b.title COLLATE "C" LIMIT 4;
SELECT id, name FROM accounts WHERE shout(name) = 'ACCB1!' ORDER BY id;
SELECT id, to_char(balance, '9990.00'), to_char(opened, 'YYYY-MM-DD') FROM accounts ORDER BY id LIMIT 5;
SELECT count(*) > 0, bool_and(x > 0) FROM (SELECT random() AS x FROM accounts WHERE id = 1) s;
-- The catalogue.
SELECT relname, relkind FROM pg_class WHERE relname IN ('accounts', 'audit', 'active_accounts') ORDER BY relname, relkind;
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'accounts'::regclass AND attnum > 0 ORDER BY attnum;
SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'entries' ORDER BY ordinal_position;
SELECT (information_schema._pg_expandarray(ARRAY['b', 'a'])).*;
SELECT a.attname, (i.keys).n FROM pg_catalog.pg_attribute a JOIN (SELECT indrelid, information_schema._pg_expandarray(indkey) AS keys FROM pg_catalog.pg_index WHERE indisprimary) i ON a.attnum = (i.keys).x AND a.attrelid = i.indrelid WHERE a.attrelid = 'entries'::regclass ORDER BY 2;
SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN ('public', 'sales') ORDER BY 1, 2;
SELECT typname, enumlabel FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid ORDER BY enumsortorder;
--! simple
SELECT 'accounts'::regclass, 'sales.accounts'::regclass, to_regclass('nothing');
SELECT n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = 'accounts' ORDER BY 1;
SELECT pg_get_viewdef('active_accounts'::regclass);
SELECT indexdef FROM pg_indexes WHERE tablename = 'accounts' ORDER BY indexname;
SELECT obj_description('accounts'::regclass);
SELECT name, setting FROM pg_settings WHERE name IN ('TimeZone', 'DateStyle') ORDER BY name;
-- EXPLAIN runs.
--! runs
EXPLAIN SELECT * FROM accounts WHERE id = 1;
--! runs
EXPLAIN ANALYZE SELECT * FROM accounts WHERE id = 1;
--! runs
EXPLAIN (COSTS OFF) SELECT 1;
--! runs
EXPLAIN (FORMAT JSON) SELECT * FROM languages;
--! runs
EXPLAIN (VERBOSE, COSTS OFF) SELECT * FROM audit;
-- Errors.
SELEC 1;
SELECT * FROM accounts WHERE;
SELECT * FROM accounts WHERE id = = 1;
SELECT 'unterminated;
SELECT * FROM nothing;
SELECT * FROM nothing WHERE id = 1;
SELECT nothing FROM accounts;
SELECT nothing FROM accounts WHERE id = 1;
SELECT nothing(1);
SELECT nothing(id) FROM accounts;
SELECT id FROM accounts WHERE name = 1;
SELECT id FROM accounts WHERE id = 'x';
SELECT id FROM accounts WHERE id = 1 AND balance = 'x';
SELECT 1 / 0;
SELECT id / 0 FROM accounts WHERE id = 1;
SELECT 1 / (id - 5) FROM accounts WHERE id = 5;
SELECT 1 / (id - 5) FROM accounts;
SELECT 1 / (id - 5) AS x FROM accounts ORDER BY x;
SELECT sqrt(balance - 1000) FROM accounts WHERE id = 2;
SELECT 'x'::int;
SELECT name::int FROM accounts WHERE id = 2;
SELECT 'x'::text::int + id FROM accounts;
SELECT id, sum(balance) FROM accounts WHERE id = 1;
SELECT id, sum(balance) FROM accounts;
SELECT id FROM accounts GROUP BY name;
SELECT id FROM accounts ORDER BY 7;
SELECT id FROM accounts ORDER BY nothing;
SELECT DISTINCT id FROM accounts ORDER BY name;
SELECT a.id FROM accounts;
SELECT id FROM accounts a JOIN entries e ON TRUE WHERE n = a.nothing;
SELECT id FROM accounts a, accounts b WHERE a.id = 1 AND b.id = 1;
SELECT * FROM accounts a JOIN accounts a ON TRUE;
SELECT * FROM accounts UNION SELECT 1;
SELECT id FROM accounts UNION SELECT name FROM accounts;
SELECT max(id, name) FROM accounts;
SELECT (SELECT id FROM accounts WHERE id IN (1, 2));
SELECT $1;
SELECT $1::int + $3::int;
SELECT id FROM accounts WHERE id = $1;
SELECT count(*) FROM accounts WHERE sum(id) > 1;
SELECT name FROM accounts WHERE id = 1 AND (SELECT n FROM entries WHERE account_id = 1) = 1;
SELECT lower(1, 2) FROM accounts WHERE id = 1;
SELECT * FROM accounts WHERE id = 1 LIMIT -1;
SELECT * FROM accounts WHERE id = 1 FOR UPDATE OF nothing;
SELECT ARRAY[1, 'x'];
SELECT '{1,2'::int[];
SELECT '2024-13-01'::date;
SELECT 99999999999::int;
SELECT "x;
SELECT 1 FROM;
SELECT * FROM (SELECT 1);
SELECT * FROM accounts WHERE id = 1 ORDER BY CASE WHEN TRUE THEN 1 ELSE 'x' END;
WITH a AS (SELECT 1) SELECT * FROM b;
SELECT pg_sleep('x');
-- What is not built yet must be refused, never guessed.
SELECT count(*) FROM accounts;
SELECT sum(balance) FROM accounts WHERE active;
SELECT kind, count(*) FROM entries GROUP BY kind ORDER BY kind;
SELECT DISTINCT kind FROM entries ORDER BY kind;
SELECT id FROM accounts UNION SELECT account_id FROM entries;
SELECT a.id FROM accounts a JOIN orders o ON o.account_id = a.id;
SELECT l.name, b.title FROM languages l LEFT JOIN books b ON b.language = l.code;
SELECT * FROM languages l WHERE NOT EXISTS (SELECT 1 FROM books b WHERE b.language = l.code);
SELECT * FROM kinds WHERE kind IN (SELECT kind FROM entries);
SELECT id, row_number() OVER (ORDER BY id) FROM accounts;
SELECT id FROM accounts WHERE balance > (SELECT avg(balance) FROM accounts);
SELECT a.what, b.title FROM audit a JOIN books b ON b.pages = a.id;
SELECT code FROM languages UNION ALL SELECT name FROM accounts;
SELECT id, iv FROM kitchen ORDER BY iv, id;
SELECT id, m FROM kitchen ORDER BY m, id;
SELECT id FROM accounts ORDER BY id FETCH FIRST 3 ROWS WITH TIES;
SELECT id FROM accounts ORDER BY id LIMIT (SELECT 3);
SELECT id FROM accounts FOR UPDATE;
--! refused
SELECT * FROM accounts TABLESAMPLE BERNOULLI (100);
--! refused
SELECT id, ctid FROM accounts;
-- The order of the only sub-select of FROM stays where the query around it has none.
--! total order
SELECT * FROM (SELECT id, name FROM accounts ORDER BY id DESC) x;
--! total order
WITH x AS (SELECT account_id, n FROM entries ORDER BY 1 DESC, 2) SELECT n, account_id FROM x;
--! total order
SELECT id + 1 FROM (SELECT id FROM accounts ORDER BY id DESC) x;
--! total order
SELECT name FROM (SELECT name FROM accounts ORDER BY balance, id) x;
--! total order
SELECT id FROM (SELECT id, score FROM accounts ORDER BY score DESC NULLS LAST, id) x LIMIT 5;
--! total order
SELECT id FROM (SELECT * FROM (SELECT id, opened FROM accounts ORDER BY id DESC) y WHERE id > 3) x OFFSET 2;
--! total order
SELECT row_to_json(x) FROM (SELECT id, name FROM accounts WHERE id < 10 ORDER BY id DESC) x;
--! total order
SELECT * FROM (SELECT account_id AS k FROM entries UNION SELECT id FROM accounts ORDER BY k DESC) x;
--! total order
SELECT DISTINCT ON (kind) kind, account_id, n FROM (SELECT * FROM entries WHERE kind IS NOT NULL ORDER BY kind, account_id DESC, n) x ORDER BY kind;
--! total order
SELECT account_id FROM (SELECT account_id, count(*) FROM entries GROUP BY account_id ORDER BY account_id DESC) x;
--! total order
SELECT w FROM (SELECT w, id FROM words ORDER BY w, id) x;
--! total order
SELECT id FROM (SELECT id, name FROM accounts ORDER BY name) x ORDER BY id DESC;
