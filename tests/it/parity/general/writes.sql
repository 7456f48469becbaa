-- INSERT.
INSERT INTO accounts (id, name) VALUES (100, 'new');
INSERT INTO accounts (id, name, balance, active) VALUES (101, 'new', 5.5, TRUE) RETURNING *;
INSERT INTO accounts VALUES (102, 'all', 1, 2, FALSE, '2024-05-05 00:00+00', 'note') RETURNING id, name AS called, balance * 2;
--! 103 | by parameter | 7.25
--! 104 | NULL | 1
--! -5 | negative | NULL
INSERT INTO accounts (id, name, balance) VALUES ($1, $2, $3) RETURNING id, balance;
--! extended
--! x | y
INSERT INTO accounts (id, name) VALUES ($1, $2);
--! 1 | x | y
INSERT INTO accounts (id, name, balance) VALUES ($1, $2, $3);
INSERT INTO accounts (name, id) VALUES ('other order', 105);
INSERT INTO accounts (id, name) VALUES (1, 'there already');
INSERT INTO accounts (id, name) VALUES (106, NULL);
INSERT INTO accounts (id, name, balance) VALUES (106, 'too low', -5000);
INSERT INTO accounts (id, name, balance) VALUES (106, 'too high', 99999999999999);
INSERT INTO accounts (id, nothing) VALUES (106, 1);
INSERT INTO accounts (id, id) VALUES (106, 1);
INSERT INTO accounts (id, name) VALUES (106);
INSERT INTO accounts (id) VALUES (106, 'x');
INSERT INTO nothing VALUES (1);
INSERT INTO accounts AS a (id, name) VALUES (1, 'conflict') ON CONFLICT DO NOTHING;
INSERT INTO accounts AS a (id, name) VALUES (1, 'conflict') ON CONFLICT (id) DO NOTHING RETURNING *;
INSERT INTO accounts AS a (id, name) VALUES (1, 'conflict') ON CONFLICT (id) DO UPDATE SET name = excluded.name || a.name RETURNING id, name;
INSERT INTO accounts (id, name) VALUES (107, 'no conflict') ON CONFLICT (id) DO UPDATE SET name = 'x' RETURNING id, name;
INSERT INTO accounts (id, name) VALUES (1, 'where') ON CONFLICT (id) DO UPDATE SET name = 'x' WHERE accounts.balance > 100000;
INSERT INTO accounts (id, name) VALUES (1, 'c') ON CONFLICT ON CONSTRAINT accounts_pkey DO UPDATE SET note = 'upserted' RETURNING note;
INSERT INTO accounts (id, name) VALUES (1, 'c') ON CONFLICT (name) DO NOTHING;
INSERT INTO accounts (id, name, note) VALUES (108, upper('computed'), lower('X' || 'Y')) RETURNING name, note;
INSERT INTO accounts (id, name, opened) VALUES (109, 'time', DEFAULT) RETURNING opened IS NULL;
INSERT INTO accounts DEFAULT VALUES;
INSERT INTO entries VALUES (3, 10, 5, 'fee', '2024-01-01') RETURNING account_id, n;
INSERT INTO entries VALUES (3, 10, 5, 'fee', '2024-01-01'), (3, 11, 6, 'fee', NULL), (3, 12, NULL, NULL, NULL);
INSERT INTO entries VALUES (3, 13), (3, 14), (3, 15) RETURNING n;
INSERT INTO entries (n, account_id) VALUES (20, 3), (21, 3) RETURNING *;
INSERT INTO entries VALUES (3, 30), (3, 31), (3, 30);
INSERT INTO entries VALUES (12345, 1);
--! 3 | 40 | 41
INSERT INTO entries (account_id, n) VALUES ($1, $2), ($1, $3) RETURNING n;
--! 3 | 3 | 50
INSERT INTO entries (account_id, n) VALUES ($1, $3), ($2, $3 + 1) RETURNING n;
INSERT INTO entries SELECT account_id, n + 100, amount FROM entries WHERE account_id = 3 RETURNING n;
INSERT INTO entries (account_id, n) SELECT 3, 60;
INSERT INTO places VALUES ('eu', 1, 9, 'new') RETURNING *;
INSERT INTO places VALUES ('eu', 1, 9, 'new'), ('eu', 1, 10, 'newer');
-- The q of the inner ON is the row that is deleted, not the one beside the join.
DELETE FROM entries q WHERE q.account_id = 2 AND NOT EXISTS (SELECT 1 FROM entries q JOIN (accounts a JOIN entries b ON a.id = b.account_id AND a.id = q.n) ON true WHERE q.account_id = 2 AND q.n = 2) RETURNING q.n;
UPDATE entries q SET kind = 'lost' WHERE q.account_id = 2 AND NOT EXISTS (SELECT 1 FROM entries q, (accounts a JOIN entries b ON a.id = b.account_id AND a.id = q.n) WHERE q.account_id = 2 AND q.n = 2) RETURNING q.n;
--! us | 77 | 1
--! '' | 0 | 1
INSERT INTO places (region, tenant, k) VALUES ($1, $2, $3) RETURNING region, tenant;
INSERT INTO places VALUES ('eu', NULL, 9, 'new');
INSERT INTO orders VALUES ('2024-03-03', 900, 1, 10.005) RETURNING *;
--! 2024-11-11 | 901
--! infinity | 902
--! 2024-11-11 | x
INSERT INTO orders (day, id) VALUES ($1, $2) RETURNING day;
INSERT INTO books VALUES ('9999999990', 'New', 10, 'en') RETURNING *;
--! 888888888X | lookup
INSERT INTO books (isbn, title) VALUES ($1, $2) RETURNING isbn;
INSERT INTO loans (isbn, n, reader) VALUES ('0000079191', 7, 'x'), ('0000000001', 8, 'y') RETURNING n;
INSERT INTO readings VALUES (5, '2024-07-01 00:00:00', 1.5) RETURNING *;
INSERT INTO kitchen (id, m, ia, jb, by, u) VALUES (100, 'happy', '{1,2}', '{"a": 1}', '\x0102', '11111111-1111-1111-1111-111111111111') RETURNING id, m, ia, jb, by, u;
--! 101 | sad | {1,NULL} | {"x": [1]} | 1.50 | NaN
INSERT INTO kitchen (id, m, ia, jb, num, f8) VALUES ($1, $2, $3, $4, $5, $6) RETURNING *;
--! 102 | angry
INSERT INTO kitchen (id, m) VALUES ($1, $2);
INSERT INTO "Mixed Case" ("Id", "Select") VALUES (50, 'quoted') RETURNING "Id", "Select" AS "Out";
INSERT INTO sales.invoices VALUES (3, 50, 1), (3, 51, 2) RETURNING id;
INSERT INTO empty_one VALUES (1, 'first') RETURNING *;
INSERT INTO sparse VALUES (8, 'second');
-- Home tables.
INSERT INTO audit (id, what) VALUES (100, 'home') RETURNING *;
INSERT INTO audit (id, what) VALUES (101, 'a'), (102, 'b') RETURNING id;
INSERT INTO audit (id, what) SELECT id + 1000, what FROM audit RETURNING id;
--! 103 | p
INSERT INTO audit (id, what) VALUES ($1, $2);
INSERT INTO audit (id, what) VALUES (1, 'again');
INSERT INTO options VALUES ('z', '{"k": [1, 2]}') RETURNING value -> 'k' -> 1;
UPDATE audit SET what = what || '!' WHERE id < 3 RETURNING id, what;
DELETE FROM audit WHERE id > 4;
DELETE FROM audit USING options WHERE options.name = 'a' AND audit.id = 1 RETURNING audit.id;
WITH gone AS (DELETE FROM audit WHERE id = 2 RETURNING *) SELECT what FROM gone;
WITH gone AS (DELETE FROM audit WHERE id = 2 RETURNING what) INSERT INTO options SELECT what, NULL FROM gone RETURNING name;
TRUNCATE options;
MERGE INTO audit USING (VALUES (1, 'merged'), (500, 'made')) v (id, w) ON audit.id = v.id WHEN MATCHED THEN UPDATE SET what = w WHEN NOT MATCHED THEN INSERT (id, what) VALUES (v.id, v.w);
-- UPDATE.
UPDATE accounts SET name = 'changed' WHERE id = 5;
UPDATE accounts SET name = 'changed', balance = balance + 1, note = NULL WHERE id = 5 RETURNING *;
UPDATE accounts a SET name = a.name || a.id WHERE a.id = 5 RETURNING a.name;
UPDATE public.accounts SET name = 'q' WHERE public.accounts.id = 5;
--! 5 | given
--! 4000 | given
--! NULL | given
--! 5 | NULL
UPDATE accounts SET name = $2 WHERE id = $1 RETURNING id, name;
--! {5}
UPDATE accounts SET note = 'any' WHERE id = ANY ($1);
UPDATE accounts SET (name, note) = ('a', 'b') WHERE id = 5 RETURNING name, note;
UPDATE accounts SET (name, note) = (SELECT 'a', kind FROM entries e WHERE e.account_id = 5 AND e.n = 2) WHERE id = 5 RETURNING note;
UPDATE accounts SET balance = -5000 WHERE id = 5;
UPDATE accounts SET balance = balance / 0 WHERE id = 5;
UPDATE accounts SET nothing = 1 WHERE id = 5;
UPDATE accounts SET balance = 'x' WHERE id = 5;
UPDATE accounts SET name = 'nobody' WHERE id = 5 AND FALSE;
UPDATE accounts SET name = 'nobody' WHERE id = 5 AND name = 'other';
UPDATE accounts SET name = 'x' WHERE id = 5 AND id = 6;
UPDATE accounts SET name = DEFAULT WHERE id = 5;
UPDATE accounts SET note = DEFAULT WHERE id = 5 RETURNING note;
UPDATE accounts a SET balance = s.total FROM account_sums s WHERE s.account_id = a.id AND a.id = 6 RETURNING a.balance;
UPDATE accounts a SET note = e.kind FROM entries e WHERE e.account_id = a.id AND e.n = 2 AND a.id = 5 RETURNING a.id, e.n;
UPDATE entries e SET kind = k.label FROM kinds k WHERE k.kind = e.kind AND e.account_id = 6 RETURNING e.n, e.kind;
UPDATE entries SET n = n + 100 WHERE account_id = 6 RETURNING n;
UPDATE entries SET n = 2 WHERE account_id = 6;
UPDATE places SET v = 'u' WHERE region = 'us' AND tenant = 2 RETURNING k;
UPDATE places SET k = k + 10 WHERE (region, tenant) = ('us', 2) RETURNING k;
UPDATE orders SET total = 0 WHERE day = '2024-01-14' RETURNING *;
UPDATE books SET title = upper(title) WHERE isbn = '0000079191' RETURNING title;
UPDATE books SET pages = 0 WHERE right(isbn, 1) = '1';
UPDATE active_accounts SET name = 'through the view' WHERE id = 4 RETURNING *;
UPDATE "Mixed Case" SET "Select" = 'x' WHERE "Id" = 3;
UPDATE kitchen SET m = 'sad', jb = jb || '{"n": 1}', ia = ia || 9 WHERE id = 3 RETURNING m, jb, ia;
-- DELETE.
DELETE FROM entries WHERE account_id = 7;
DELETE FROM entries WHERE account_id = 7 AND n = 2 RETURNING *;
--! 7
--! 777
DELETE FROM entries WHERE account_id = $1 RETURNING n;
DELETE FROM accounts WHERE id = 7;
DELETE FROM accounts WHERE id = 40 RETURNING name;
DELETE FROM entries e USING accounts a WHERE a.id = e.account_id AND e.account_id = 7 AND a.name LIKE 'acc%';
DELETE FROM places WHERE region = 'eu' AND tenant = 1;
DELETE FROM orders WHERE day = '2024-01-14' AND id = 1;
DELETE FROM orders WHERE day >= '2024-02-02' AND day < '2024-02-20' RETURNING id;
DELETE FROM books WHERE isbn = 'nothing1';
DELETE FROM active_accounts WHERE id = 40 RETURNING id;
DELETE FROM accounts WHERE id = 'x';
DELETE FROM accounts WHERE nothing = 1;
WITH gone AS (DELETE FROM entries WHERE account_id = 8 RETURNING *) SELECT count(*), sum(amount) FROM gone;
WITH gone AS (DELETE FROM entries WHERE account_id = 8 RETURNING *) INSERT INTO entries SELECT account_id, n + 50, amount FROM gone RETURNING n;
--! refused
WITH up AS (UPDATE accounts SET note = 'w' WHERE id = 8 RETURNING id) SELECT e.n FROM entries e JOIN up ON up.id = e.account_id ORDER BY e.n;
MERGE INTO entries e USING (VALUES (8, 2, 1.5), (8, 99, 2.5)) v (a, n, x) ON e.account_id = 8 AND e.account_id = v.a AND e.n = v.n WHEN MATCHED THEN UPDATE SET amount = v.x WHEN NOT MATCHED THEN INSERT (account_id, n, amount) VALUES (8, v.n, v.x);
-- EXPLAIN of writes; ANALYZE runs them.
--! runs
EXPLAIN INSERT INTO accounts (id, name) VALUES (200, 'x');
--! runs
EXPLAIN ANALYZE UPDATE accounts SET note = 'explained' WHERE id = 9;
--! runs
EXPLAIN DELETE FROM accounts WHERE id = 9;
-- COPY.
COPY languages TO STDOUT;
COPY audit (id, what) TO STDOUT WITH (FORMAT csv, HEADER);
COPY (SELECT id, name FROM accounts WHERE id = 3) TO STDOUT;
COPY (SELECT id, name FROM audit ORDER BY id) TO STDOUT (DELIMITER ';');
COPY (SELECT account_id, n FROM entries WHERE account_id = 4 ORDER BY n) TO STDOUT;
COPY nothing TO STDOUT;
COPY audit (id, what) FROM STDIN;
200	first
201	second
\.
COPY audit (id, what) FROM STDIN WITH (FORMAT csv);
300,"quoted, text"
301,
\.
COPY audit (id, what) FROM STDIN;
1	there already
\.
COPY audit (id, what) FROM STDIN;
x	not a number
\.
COPY audit (nothing) FROM STDIN;
1
\.
-- Several shards: not built yet.
INSERT INTO accounts (id, name) VALUES (100, 'a'), (101, 'b'), (102, 'c'), (103, 'd');
UPDATE accounts SET note = 'all';
UPDATE accounts SET note = 'some' WHERE id IN (1, 2, 3, 4, 5, 6);
--! refused
UPDATE accounts SET id = 500 WHERE id = 5;
DELETE FROM entries;
DELETE FROM entries WHERE kind = 'fee';
UPDATE orders SET total = 0 WHERE day > '2024-01-14';
INSERT INTO languages VALUES ('it', 'Italian');
UPDATE languages SET name = 'x' WHERE code = 'de';
DELETE FROM languages;
-- Writes whose rows lie on several shards.
--! any order
UPDATE accounts SET note = 'rich', balance = balance + 1 WHERE balance > 0 RETURNING id, name, balance;
--! 5 | b
--! 1000000 | c
--! any order
UPDATE accounts SET note = $2 WHERE balance > $1 RETURNING id, note;
UPDATE accounts SET note = 'nobody' WHERE balance > 1e9;
UPDATE accounts SET balance = CASE WHEN id = 3 THEN -5000 ELSE balance END WHERE id < 1000;
UPDATE accounts SET name = nullif(name, 'nobody') WHERE score > 0;
UPDATE accounts SET balance = 1 / (balance - balance);
UPDATE accounts SET nothing = 1;
UPDATE accounts a SET note = e.kind FROM entries e WHERE e.account_id = a.id AND e.n = 1;
UPDATE accounts SET note = (SELECT label FROM kinds WHERE kind = 'fee') WHERE balance < 0;
--! any order
DELETE FROM entries e USING accounts a WHERE a.id = e.account_id AND a.balance < 0 RETURNING e.account_id, e.n;
DELETE FROM accounts WHERE id = 15 OR note = 'nobody has this';
--! 2024-01-10
DELETE FROM orders WHERE day < $1;
DELETE FROM visits WHERE region LIKE 'e%';
UPDATE books SET pages = pages + 1 WHERE title > 'C';
UPDATE accounts SET note = (now() > '2020-01-01')::text, active = current_date > '2020-01-01';
--! refused
UPDATE accounts SET note = 'x' WHERE random() < 2;
-- Every shard has the same reference tables.
INSERT INTO languages (code, name) VALUES ('sw', 'Swahili'), ('yo', 'Yoruba') RETURNING code, upper(name);
--! xx | Ex
--! yy | NULL
INSERT INTO languages VALUES ($1, $2) RETURNING *;
INSERT INTO languages VALUES ('de', 'again');
INSERT INTO languages VALUES ('de', 'again') ON CONFLICT (code) DO UPDATE SET name = excluded.name || '!' RETURNING *;
INSERT INTO languages VALUES ('de', 'again'), ('ew', 'new') ON CONFLICT DO NOTHING;
--! any order
UPDATE kinds SET weight = coalesce(weight, 0) + 1 RETURNING kind, weight;
DELETE FROM kinds WHERE weight IS NULL;
INSERT INTO kinds (kind, label) VALUES ('now', (now() > '2020-01-01')::text);
--! refused
UPDATE kinds SET weight = random() * 10;
INSERT INTO kinds (kind) SELECT code FROM languages ORDER BY code LIMIT 1;
DELETE FROM kinds WHERE kind IN (SELECT code FROM languages ORDER BY code LIMIT 1);
-- Rows of one INSERT for several shards.
INSERT INTO accounts (id, name, balance) VALUES (201, 'a', 1), (202, 'b', 2), (203, 'c', 3), (204, 'd', 4), (205, 'e', 5) RETURNING id, name, balance * 2 AS twice;
--! 211 | 212 | x
--! 212 | 211 | NULL
--! 213 | 213 | x
INSERT INTO accounts (id, name, note) VALUES ($1, 'first', $3), ($2, 'second', upper($3)), (214, 'third', DEFAULT), (215, $3 || '!', NULL) RETURNING *;
INSERT INTO accounts (id, name) VALUES (221, 'new'), (222, 'new'), (1, 'there already'), (223, 'new');
INSERT INTO accounts (id, name) VALUES (221, 'new'), (222, NULL), (223, 'new');
INSERT INTO accounts (id, name) VALUES (221, 'new'), (222), (223, 'new');
INSERT INTO accounts (id, name) VALUES (221, 'new'), (222, 'x', 3), (223, 'new');
INSERT INTO accounts (id, name, balance) VALUES (221, 'new', 1), (222, 'new', 'not a number'), (223, 'new', 3);
INSERT INTO accounts AS a (id, name) VALUES (1, 'one'), (2, 'two'), (3, 'three'), (231, 'new'), (232, 'new') ON CONFLICT (id) DO UPDATE SET name = excluded.name || a.name, note = 'upserted';
INSERT INTO accounts (id, name) VALUES (1, 'one'), (2, 'two'), (231, 'new'), (232, 'new') ON CONFLICT DO NOTHING;
INSERT INTO entries VALUES (1, 50, 1, 'fee', NULL), (2, 50, 2.5, NULL, '2024-05-05'), (3, 50, NULL, 'x', NULL), (4, 50, 1, 'y', NULL) RETURNING *;
INSERT INTO entries VALUES (1, 50), (2, 50), (99999, 50);
INSERT INTO places VALUES ('eu', 1, 90, 'a'), ('us', 2, 90, 'b'), ('asia', 3, 90, 'c') RETURNING v, region;
INSERT INTO orders VALUES ('2024-03-03', 901, 1, 10.005), ('2030-01-01', 902, 2, 1), ('1990-01-01', 903, 3, 2) RETURNING day, id, total;
INSERT INTO books VALUES ('9999999990', 'New', 10, 'en'), ('9999999993', 'Newer', 11, 'en'), ('9999999996', 'Newest', 12, NULL) RETURNING isbn;
INSERT INTO kitchen (id, m, ia, jb) VALUES (301, 'happy', '{1,2}', '{"a": (1)}'), (302, 'sad', ARRAY[(3), 4], NULL), (303, NULL, NULL, '[]');
INSERT INTO kitchen (id, m, ia, jb) VALUES (301, 'happy', '{1,2}', '{"a": "(1)"}'), (302, 'sad', ARRAY[(3), 4], NULL), (303, NULL, NULL, '[]') RETURNING id, m, ia, jb;
--! extended
--! happy | sad | 7
--! ok | NULL | NULL
INSERT INTO kitchen (id, m, i8) VALUES (311, $1, $3), (312, $2, NULL), (313, $1, 9), (314, NULL, $3) RETURNING id, m, i8;
INSERT INTO "Mixed Case" ("Id", "Select") VALUES (51, 'a'), (52, 'b'), (53, 'c'), (54, 'd') RETURNING "Select" AS "Out";
INSERT INTO accounts (id, name, active) VALUES (241, 'a', now() > '2020-01-01'), (242, 'b', now() < '2020-01-01'), (243, 'c', localtimestamp > 'infinity'), (244, 'd', NULL);
INSERT INTO accounts (id, name) VALUES (241, 'a'), (242, 'b'), (243, 'c'), (244, 'd') ON CONFLICT DO NOTHING RETURNING id;
INSERT INTO accounts (id, name) VALUES (241, 'a'), (242, (SELECT what FROM audit ORDER BY id LIMIT 1)), (243, 'c'), (244, 'd');
-- Rows that are made where those they are made of are.
INSERT INTO entries (account_id, n, amount) SELECT account_id, n + 500, amount FROM entries WHERE amount > 10;
--! any order
INSERT INTO entries (account_id, n, kind) SELECT id, 600, 'fee' FROM accounts RETURNING account_id, n, kind;
