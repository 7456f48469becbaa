-- Writes whose queries are answered first: sub-selects that reach other shards, rows that change their shard.
INSERT INTO accounts (id, name) SELECT id + 1000, name FROM accounts;
INSERT INTO accounts (id, name) SELECT id + 1000, what FROM audit;
INSERT INTO audit (id, what) SELECT id + 100, name FROM accounts;
INSERT INTO accounts (id, name, balance) SELECT 2000 + account_id, 'sum', sum(total) FROM orders WHERE account_id IS NOT NULL GROUP BY account_id;
INSERT INTO accounts (id, name) SELECT id + 1000, name FROM accounts ORDER BY id DESC LIMIT 5;
INSERT INTO accounts (id, name) SELECT id + 1000, name FROM accounts WHERE false;
INSERT INTO accounts (id, name) (SELECT 3000, 'a' UNION SELECT id + 3000, name FROM accounts WHERE id > 30);
INSERT INTO accounts (id, name) WITH w AS (SELECT id, name FROM accounts WHERE id < 5) SELECT id + 1000, name FROM w;
INSERT INTO entries SELECT account_id, n + 100, amount, kind, booked FROM entries WHERE n = 1;
INSERT INTO entries (n, account_id) SELECT e.n + 100, a.id FROM entries e JOIN accounts a ON a.id = e.account_id + 1;
INSERT INTO orders SELECT day + 3650, id, account_id, total FROM orders;
INSERT INTO places SELECT v, tenant, k, region FROM places;
--! any order
INSERT INTO accounts (id, name) SELECT id + 1000, name FROM accounts WHERE id < 10 RETURNING id, name, balance;
--! any order
INSERT INTO accounts AS a (id, name) SELECT id + 1000, name FROM accounts WHERE id < 0 RETURNING a.id * 2 AS twice, upper(a.name);
INSERT INTO accounts (id, name) SELECT id + 1000, name FROM accounts WHERE id > 10000 RETURNING id, name;
INSERT INTO accounts (id, name) SELECT id + 1, 'taken' FROM accounts ON CONFLICT DO NOTHING;
INSERT INTO accounts (id, name) SELECT id + 1, 'taken' FROM accounts ON CONFLICT (id) DO UPDATE SET note = excluded.name || accounts.id;
-- Values are assigned as INSERT assigns them.
INSERT INTO kitchen (id, i8, num, t, d, ts, m) SELECT id + 100, i2, f8, vc, ts, d, m FROM kitchen WHERE id < 5;
INSERT INTO kitchen (id, d, m, jb, iv, ia) SELECT id + 100, '2024-01-01', 'happy', '{"a": 1}', '1 day', '{1,2}' FROM accounts WHERE id BETWEEN 1 AND 5;
INSERT INTO kitchen (id, i2, c, vc, nm, f4) SELECT id + 100, f8, t, left(t, 5), t, num FROM kitchen WHERE id < 4;
INSERT INTO kitchen SELECT id + 100, i2, i8, f4, f8, num, t, vc, c, d, ti, ts, tz, iv, b, by, u, j, jb, ia, ta, m, ip, nm FROM kitchen;
INSERT INTO kitchen (id, t, vc, nm) SELECT id + 100, c, c, c FROM kitchen;
INSERT INTO kitchen (id, c, nm, t) SELECT id + 100, vc, vc, vc FROM kitchen WHERE length(vc) < 6;
INSERT INTO kitchen (id, t) SELECT id + 100, c || '.' || c FROM kitchen;
UPDATE kitchen SET id = id + 500, t = c, nm = c WHERE c IS NOT NULL;
UPDATE kitchen SET t = (SELECT max(c) FROM kitchen), vc = (SELECT min(c) FROM kitchen);
UPDATE kitchen SET vc = y.name FROM (SELECT 'far too long for it'::text AS name, max(id) + 1000000 AS id FROM accounts) AS y WHERE y.id = kitchen.id;
INSERT INTO kitchen (id, i2) SELECT id + 100, 70000 FROM accounts WHERE id = 3;
INSERT INTO kitchen (id, vc) SELECT id + 100, 'far too long for it' FROM accounts WHERE id = 3;
INSERT INTO kitchen (id, i2) SELECT id + 100, name FROM accounts;
INSERT INTO accounts (id, name) SELECT id - 3, NULL FROM accounts WHERE id = 3;
INSERT INTO accounts (id, name) SELECT id, nothing FROM accounts;
INSERT INTO accounts (id, name) SELECT 40 - id, name FROM accounts WHERE id = 37;
--! 5 | x
--! 30 | it's
INSERT INTO accounts (id, name) SELECT id + 1000 + $1 * 100, name || $2 FROM accounts WHERE id > $1 AND id < 1000;
-- Parameters of types whose binary form only PostgreSQL knows.
--! 2024-03-01 | 100.50
--! infinity | NaN
--! 2024-03-01 | NULL
DELETE FROM entries WHERE account_id IN (SELECT account_id FROM orders WHERE day <> $1 AND total < $2);
--! {1,3} | 2024-01-01 03:00:00+05:30
--! {} | -infinity
--! {NULL} | 0044-03-15 00:00:00+00 BC
DELETE FROM kitchen WHERE id IN (SELECT id + 1 FROM kitchen WHERE i2 = ANY ($1) OR tz > $2);
--! 1.500 | 1 mon -2 days 00:00:01.5 | {"a": [1, "x"]} | \x00ff27
UPDATE kitchen SET id = id + 500, num = $1, iv = $2, jb = $3, by = $4 WHERE d IS NOT NULL;
--! 0.1 | NaN | {1,NULL} | 12:00:00.5
INSERT INTO kitchen (id, f4, f8, ia, ti) SELECT id + 1000, $1, $2, $3, $4 FROM accounts;
-- Sub-selects.
DELETE FROM entries WHERE (account_id, n) IN (SELECT account_id, n FROM entries ORDER BY account_id, n LIMIT 7);
--! any order
DELETE FROM orders WHERE id IN (SELECT id FROM orders ORDER BY id LIMIT 5) RETURNING id, total;
DELETE FROM orders WHERE id NOT IN (SELECT id FROM orders ORDER BY id LIMIT 5);
DELETE FROM orders WHERE id IN (SELECT id FROM orders WHERE false);
-- More rows than one are an error when a row asks for them.
DELETE FROM orders WHERE id = 1234567 AND account_id = (SELECT id FROM accounts);
UPDATE orders SET total = CASE WHEN id < 0 THEN (SELECT balance FROM accounts) ELSE 1 END;
UPDATE orders SET (total, account_id) = (SELECT balance, id FROM accounts) WHERE id < 0;
UPDATE orders SET (total, account_id) = (SELECT balance, id FROM accounts);
UPDATE orders SET total = (SELECT balance FROM accounts);
-- A name that alone means a row is here a column of the target.
--! refused
DELETE FROM kitchen WHERE '2' IN (SELECT i2::text FROM (SELECT id FROM accounts) i2);
UPDATE kitchen SET t = (SELECT string_agg(x::text, ',' ORDER BY id) FROM (SELECT id FROM accounts) x);
DELETE FROM orders WHERE id NOT IN (SELECT id FROM orders WHERE false);
DELETE FROM orders WHERE account_id NOT IN (SELECT id FROM accounts WHERE active);
DELETE FROM orders WHERE account_id NOT IN (SELECT CASE WHEN id > 5 THEN id END FROM accounts);
DELETE FROM entries WHERE EXISTS (SELECT FROM orders WHERE total > 400);
DELETE FROM entries WHERE NOT EXISTS (SELECT FROM orders WHERE total > 40000) AND n = 2;
DELETE FROM orders WHERE total > ALL (SELECT amount FROM entries WHERE amount IS NOT NULL);
DELETE FROM orders WHERE account_id = ANY (SELECT account_id FROM entries WHERE kind = 'fee');
DELETE FROM orders WHERE id = ANY (ARRAY(SELECT n FROM entries WHERE account_id = 3));
DELETE FROM orders WHERE day < (SELECT min(booked) + 30 FROM entries) OR id = (SELECT count(*) FROM accounts);
DELETE FROM orders WHERE id IN (SELECT n FROM entries) AND account_id IN (SELECT id FROM accounts WHERE balance > 0);
DELETE FROM books WHERE title IN (SELECT title FROM books WHERE pages IS NULL ORDER BY title LIMIT 3);
DELETE FROM entries WHERE kind IN (SELECT kind FROM kinds) AND account_id IN (SELECT account_id FROM orders WHERE total < 100);
--! any order
UPDATE orders SET total = 0 WHERE id = (SELECT max(id) FROM orders) RETURNING *;
UPDATE accounts SET note = (SELECT what FROM audit WHERE id = 1) WHERE id = 6;
UPDATE accounts SET note = (SELECT what FROM audit WHERE id = 1);
UPDATE accounts SET note = (SELECT what FROM audit WHERE id = 100) WHERE id > 6;
UPDATE accounts SET balance = (SELECT avg(total) FROM orders), note = (SELECT name FROM languages WHERE code = 'en') WHERE id < 10;
UPDATE accounts SET (note, active) = (SELECT what, true FROM audit WHERE id = 2) WHERE id IN (1, 2, 3);
UPDATE accounts SET (note, active) = (SELECT what, true FROM audit WHERE false) WHERE id IN (1, 2, 3);
UPDATE accounts SET balance = balance + (SELECT count(*) FROM orders) * 2 WHERE id IN (SELECT account_id FROM orders WHERE total > 200);
UPDATE kitchen SET m = (SELECT max(m) FROM kitchen), ta = ARRAY(SELECT what FROM audit ORDER BY id), f8 = (SELECT max(f8) FROM kitchen WHERE id < 10), ts = (SELECT min(ts) FROM kitchen), tz = (SELECT max(tz) FROM kitchen), iv = (SELECT sum(iv) FROM kitchen), by = (SELECT by FROM kitchen WHERE id = 3), u = (SELECT u FROM kitchen WHERE id = 2), jb = (SELECT jsonb_agg(id ORDER BY id) FROM accounts) WHERE id < 4;
UPDATE accounts SET note = (SELECT what FROM audit) WHERE id = 6;
UPDATE accounts SET note = (SELECT nothing FROM audit) WHERE id = 6;
--! 3 | 2
--! 4 | 0
--! any order
DELETE FROM orders WHERE id IN (SELECT id FROM orders WHERE account_id = $1 ORDER BY id LIMIT $2::int) RETURNING id;
--! 3 | 20
UPDATE accounts SET balance = balance + (SELECT sum(total) FROM orders WHERE account_id = $1) WHERE id < $2;
-- Tables beside the target.
UPDATE accounts SET note = o.day::text FROM orders o WHERE o.account_id = accounts.id AND o.id < 12;
UPDATE accounts a SET balance = s.total FROM (SELECT account_id, sum(total) AS total FROM orders GROUP BY account_id) AS s WHERE s.account_id = a.id;
--! any order
UPDATE accounts a SET note = e.what FROM audit e WHERE e.id = a.id RETURNING a.id, e.what, e.at;
DELETE FROM entries e USING orders o WHERE o.account_id = e.account_id AND o.total > 100;
DELETE FROM entries USING orders JOIN audit ON audit.id = orders.id WHERE orders.account_id = entries.account_id;
DELETE FROM orders USING accounts a WHERE a.id = orders.account_id AND a.balance < 0;
DELETE FROM orders o USING accounts a WHERE a.id = o.account_id AND false;
UPDATE accounts SET balance = (SELECT sum(total) FROM orders o WHERE o.account_id = accounts.id);
-- Reference tables as targets.
DELETE FROM languages WHERE code IN (SELECT language FROM books);
INSERT INTO languages SELECT DISTINCT 'x' || id, name FROM accounts WHERE id IN (1, 2, 3);
UPDATE languages SET name = (SELECT max(name) FROM accounts) WHERE code = 'en';
-- In transactions: with what they have written.
--! script
BEGIN;
INSERT INTO orders VALUES ('2024-01-15', 900, 1, 999), ('2024-03-15', 901, 2, 998), ('2024-12-31', 902, 3, 997);
UPDATE accounts SET note = (SELECT max(total)::text FROM orders) WHERE id IN (1, 2, 3, 4);
DELETE FROM orders WHERE id IN (SELECT id FROM orders ORDER BY total DESC LIMIT 2);
INSERT INTO accounts (id, name) SELECT id + 5000, total::text FROM orders WHERE id >= 900;
SELECT id, name FROM accounts WHERE id > 5000 ORDER BY id;
COMMIT;
SELECT id, note FROM accounts WHERE note = '999.00' ORDER BY id;
--! end
--! script
BEGIN;
DELETE FROM orders WHERE id IN (SELECT id FROM orders WHERE account_id = 3);
UPDATE accounts SET note = (SELECT what FROM audit) WHERE id = 6;
COMMIT;
SELECT count(*) FROM orders;
--! end
--! simple
--! script
DELETE FROM orders WHERE id IN (SELECT max(id) FROM orders); DELETE FROM orders WHERE id IN (SELECT max(id) FROM orders);
SELECT max(id), count(*) FROM orders;
--! end
-- What RETURNING tells where ON CONFLICT leaves out rows.
--! any order
INSERT INTO accounts (id, name) VALUES (1, 'a'), (242, 'b'), (2, 'c'), (244, 'd') ON CONFLICT DO NOTHING RETURNING id, name;
--! any order
INSERT INTO accounts (id, name) VALUES (1, 'a'), (242, 'b'), (2, 'c'), (244, 'd') ON CONFLICT (id) DO UPDATE SET note = excluded.name RETURNING id, name, note;
--! any order
INSERT INTO accounts (id, name) VALUES (1, 'a'), (2, 'c'), (3, 'd') ON CONFLICT (id) DO UPDATE SET note = excluded.name WHERE accounts.id > 100 RETURNING id, name, note;
-- Expressions of VALUES are evaluated once.
INSERT INTO accounts (id, name, balance) VALUES (240 + 1, 'a' || 'b', 1.5 * 3), (abs(-242), upper('c'), DEFAULT), (243, NULLIF('d', 'x'), '7');
INSERT INTO accounts (id, name) VALUES (240 + 1, lower(NULL::text)), (242, 'x');
--! 5 | x
INSERT INTO accounts (id, name) VALUES ($1 + 1000, $2 || '!'), ($1 + 1001, $2), ($1 + 1002, 'y') RETURNING id, name;
--! refused
DELETE FROM orders WHERE ctid IN (SELECT ctid FROM orders LIMIT 3);
-- UPDATE of a shard key moves the row.
--! 3 | 2003
--! 4 | 2004
UPDATE readings SET sensor = $2 WHERE sensor = $1 AND value > 3.1;
UPDATE places SET region = 'moved', v = v || '!' WHERE region = 'eu' AND tenant = 2;
--! any order
UPDATE places p SET tenant = tenant + 100 WHERE p.region = 'us' RETURNING p.region, tenant, p.v, upper(v) AS u;
UPDATE sales.invoices SET customer = 99 WHERE customer = 3;
UPDATE sales.invoices SET customer = 99, amount = amount + id WHERE customer = 3 AND id = 1 RETURNING *;
UPDATE sales.invoices SET customer = 4, id = 50 WHERE customer = 3 AND id = 1;
UPDATE sales.invoices SET customer = 4 WHERE customer = 3 AND id = 1;
UPDATE sales.invoices SET customer = NULL WHERE customer = 3 AND id = 1;
UPDATE sales.invoices SET customer = 99 WHERE customer = 12345 RETURNING id;
UPDATE sales.invoices SET customer = customer WHERE customer = 3;
UPDATE "Mixed Case" SET "Id" = "Id" + 100 WHERE "Id" > 3;
UPDATE orders SET day = day + 400 WHERE id = 7 RETURNING day, id;
UPDATE orders SET day = '2024-12-24' WHERE account_id = 3;
UPDATE kitchen SET id = id + 1000;
UPDATE kitchen SET id = 2.6, t = t WHERE id = 7;
UPDATE kitchen SET id = 2.6::numeric + 3000 WHERE id = 7;
--! refused
UPDATE visits SET region = DEFAULT WHERE n = 1;
--! no shard
UPDATE books SET isbn = '000000000Q' WHERE title = 'Title 3';
UPDATE books SET isbn = '0000000009', pages = 1 WHERE title = 'Title 3';
--! refused
UPDATE sales.invoices SET customer = customer + 1;
--! refused
UPDATE accounts SET id = id + 1000 WHERE id = 3;
--! refused
UPDATE sales.invoices i SET customer = a.id FROM accounts a WHERE a.id = i.customer;
--! script
BEGIN;
UPDATE sales.invoices SET customer = 77 WHERE customer = 2;
SELECT customer, id FROM sales.invoices WHERE customer IN (2, 77) ORDER BY id;
SAVEPOINT a;
UPDATE sales.invoices SET customer = 78 WHERE customer = 77;
ROLLBACK TO a;
COMMIT;
SELECT customer, count(*) FROM sales.invoices GROUP BY customer ORDER BY customer;
--! end
-- Collations go along with constants.
DELETE FROM books WHERE title IN (SELECT name FROM accounts);
UPDATE accounts SET note = (SELECT max(title) FROM books), active = 'b' > ALL (SELECT name FROM accounts WHERE id > 3) WHERE id < 4;
UPDATE accounts SET note = upper((SELECT kind FROM kinds ORDER BY kind LIMIT 1) || name) WHERE (SELECT max(kind) FROM entries) > name;
-- EXECUTE of what writes on several shards.
--! also binary
--! script
PREPARE up(text, numeric) AS UPDATE accounts SET note = $1 WHERE balance > $2 RETURNING id, note;
--! any order
EXECUTE up('rich', 50);
EXECUTE up('none', 1e9);
PREPARE ins(int, text) AS INSERT INTO accounts (id, name) VALUES ($1, $2), ($1 + 1, $2), ($1 + 2, upper($2));
EXECUTE ins(900, 'x');
EXECUTE ins(900, 'x');
PREPARE del(int) AS DELETE FROM orders WHERE id IN (SELECT id FROM orders WHERE account_id = $1 ORDER BY id LIMIT 2);
EXECUTE del(3);
EXECUTE del(1 + 2);
SELECT count(*) FROM orders;
--! end
-- Defaults that are clocks are evaluated once.
INSERT INTO stamps (id, what) VALUES (1, 'a'), (2, 'b'), (3, 'c') RETURNING *;
INSERT INTO stamps VALUES (1, 'a', DEFAULT, true), (2, 'b', DEFAULT, DEFAULT), (3, 'c', NULL, false);
INSERT INTO stamps (id, what, at) VALUES (4, 'x', DEFAULT), (5, 'y' || 'z', false), (6, 'z', DEFAULT);
INSERT INTO stamps (id, what) SELECT id, what FROM audit;
INSERT INTO stamps (what, id) VALUES ('a', 1), ('b', 2) ON CONFLICT (id) DO NOTHING RETURNING id, at, day;
INSERT INTO tags (code) VALUES ('a');
INSERT INTO tags (code) VALUES ('a'), ('b');
COPY stamps (id, what) FROM STDIN;
1	a
2	b
\.
-- More rows than one statement takes.
INSERT INTO accounts (id, name) SELECT g, 'many' FROM generate_series(10000, 22000) g;
