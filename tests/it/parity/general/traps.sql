-- Texts of one shape whose literals mean different things.
SELECT id, name FROM accounts ORDER BY 1 LIMIT 4;
SELECT id, name FROM accounts ORDER BY 2 LIMIT 4;
SELECT id, name FROM accounts ORDER BY 1 DESC LIMIT 5;
SELECT id, balance FROM accounts WHERE id IN (1, 2) ORDER BY 1;
SELECT id, balance FROM accounts WHERE id IN (3, 30) ORDER BY 1;
SELECT id, balance FROM accounts WHERE id IN (3, 3) ORDER BY 1;
SELECT id FROM accounts WHERE id = 1 OR id = 2 ORDER BY id;
SELECT id FROM accounts WHERE id = 8 OR id = 9 ORDER BY id;
SELECT id FROM accounts WHERE id = 3;
SELECT id FROM accounts WHERE id = 3000000000;
SELECT id FROM accounts WHERE id = 30000000000000000000;
SELECT id FROM accounts WHERE id = '3';
SELECT id FROM accounts WHERE id = 3.0;
SELECT id FROM accounts WHERE id = 3.5;
SELECT id FROM accounts WHERE id = -3;
SELECT id FROM accounts WHERE id = -2;
SELECT account_id, n FROM entries GROUP BY 1, 2 ORDER BY 2, 1 LIMIT 3;
SELECT account_id, n FROM entries GROUP BY 2, 1 ORDER BY 1, 2 LIMIT 3;
SELECT id, 'literal', 5 FROM accounts WHERE id = 5;
SELECT id, 'other', 6 FROM accounts WHERE id = 6;
SELECT 3 AS id, name FROM accounts WHERE id = 4;
SELECT B'101', X'1F', U&'d\0061t', E'a\tb', N'n';
SELECT id FROM accounts ORDER BY id LIMIT 2;
SELECT id FROM accounts ORDER BY id LIMIT 3;
SELECT id FROM accounts ORDER BY id LIMIT 3 OFFSET 1;
SELECT id FROM accounts ORDER BY id LIMIT 2 OFFSET 2;
SELECT * FROM books WHERE right(isbn, 1) = '1' ORDER BY isbn;
SELECT * FROM books WHERE right(isbn, 2) = '11' ORDER BY isbn;
--! no shard
SELECT * FROM books WHERE right(isbn, 1) = '11' ORDER BY isbn;
SELECT * FROM books WHERE right(isbn, -1) = '000007919' ORDER BY isbn;
SELECT * FROM books WHERE left(isbn, 1) = '0' AND right(isbn, 1) = 'X' ORDER BY isbn;
-- Columns that are called like the key and are not the key.
SELECT * FROM (SELECT n AS account_id, account_id AS n FROM entries) e WHERE account_id = 3 ORDER BY n;
SELECT * FROM (SELECT n AS account_id, account_id AS n FROM entries) e WHERE n = 3 ORDER BY account_id;
SELECT e.x FROM entries AS e (x, account_id) WHERE e.account_id = 3 ORDER BY x;
SELECT e.account_id FROM entries AS e (x, account_id) WHERE e.x = 3 ORDER BY 1;
SELECT * FROM (SELECT id + 1 AS id FROM accounts) s WHERE id = 5;
SELECT * FROM (SELECT -id AS id, name FROM accounts) s WHERE id = -5;
SELECT * FROM (SELECT id, name FROM accounts UNION ALL SELECT id, owner FROM sales.accounts) u WHERE id = 3 ORDER BY name;
WITH accounts AS (SELECT account_id AS id, n FROM entries) SELECT n FROM accounts WHERE id = 3 ORDER BY n;
WITH a (x, id) AS (SELECT id, balance FROM accounts) SELECT x FROM a WHERE x = 3;
WITH a (x, id) AS (SELECT id, n FROM accounts JOIN entries ON account_id = id) SELECT x FROM a WHERE id = 3 ORDER BY x;
SELECT a.id FROM accounts a WHERE a.id = 3 AND EXISTS (SELECT 1 FROM entries a WHERE a.account_id = 3);
SELECT a.id FROM accounts a WHERE EXISTS (SELECT 1 FROM entries e WHERE e.account_id = 3 AND a.id = 3);
SELECT id FROM accounts WHERE EXISTS (SELECT 1 FROM entries WHERE account_id = id AND id = 3);
SELECT (SELECT name FROM accounts WHERE id = n) FROM entries WHERE account_id = 3 ORDER BY n;
SELECT (SELECT name FROM accounts WHERE id = account_id) FROM entries WHERE account_id = 3 ORDER BY n;
-- Conditions that look as if they pinned the key.
SELECT id FROM accounts WHERE NOT (id <> 3) ORDER BY id;
SELECT id FROM accounts WHERE (id = 3) IS NOT FALSE ORDER BY id;
SELECT id FROM accounts WHERE (id = 3) IS NOT TRUE ORDER BY id LIMIT 3;
SELECT id FROM accounts WHERE (id = 3) = (id = 4) ORDER BY id LIMIT 3;
SELECT id FROM accounts WHERE (id = 3) <> (id = 4) ORDER BY id;
SELECT id FROM accounts WHERE coalesce(id = 3, TRUE) ORDER BY id;
SELECT id FROM accounts WHERE CASE WHEN id = 3 THEN FALSE ELSE id < 3 END ORDER BY id;
SELECT id FROM accounts WHERE id = 3 OR TRUE ORDER BY id LIMIT 3;
SELECT id FROM accounts WHERE id = 3 OR NULL ORDER BY id;
SELECT id FROM accounts WHERE id = 3 AND NULL ORDER BY id;
SELECT id FROM accounts WHERE id = 3 AND (id = 3 OR id = 4) ORDER BY id;
SELECT id FROM accounts WHERE id IN (1, 2, 3) AND id > 1 ORDER BY id;
SELECT id FROM accounts WHERE id BETWEEN 3 AND 3;
SELECT id FROM accounts WHERE id >= 3 AND id <= 3;
SELECT id FROM accounts WHERE id + 0 = 3;
SELECT id FROM accounts WHERE 3 = id;
SELECT id FROM accounts WHERE id::text = '3';
SELECT id FROM accounts WHERE id::int = 3;
SELECT id FROM accounts WHERE id = 3::smallint;
SELECT id FROM accounts WHERE id = '3'::bigint;
SELECT id FROM accounts WHERE id = '3'::text::bigint;
SELECT id FROM accounts WHERE id = abs(-3);
SELECT id FROM accounts WHERE id = (SELECT count(*) FROM kinds WHERE kind <> 'gift');
SELECT id FROM accounts WHERE id = (SELECT max(id) FROM audit) - 1;
SELECT id FROM accounts WHERE (id, name) = (3, 'accd3');
SELECT id FROM accounts WHERE ROW(id, name) = ROW(3, 'accd3');
SELECT id FROM accounts WHERE (id, balance) IS NOT DISTINCT FROM (3, 7.75);
SELECT id FROM accounts WHERE (id, name) < (2, 'x') ORDER BY id;
SELECT id FROM accounts WHERE id = ANY (ARRAY[3, 4]) AND id = ANY (ARRAY[4, 5]);
SELECT id FROM accounts WHERE id = ALL (ARRAY[3, 3]);
SELECT id FROM accounts WHERE id = ALL (ARRAY[]::int[]) ORDER BY id LIMIT 2;
SELECT id FROM accounts WHERE id = ANY (SELECT 3);
SELECT id FROM accounts WHERE id IN (VALUES (3), (4)) ORDER BY id;
SELECT id FROM accounts WHERE id IN (SELECT generate_series(3, 4)) ORDER BY id;
SELECT id FROM accounts WHERE id OPERATOR(pg_catalog.=) 3;
SELECT id FROM accounts GROUP BY id HAVING id = 3;
SELECT id FROM accounts WHERE name = 'accd3' AND id::numeric = 3.0;
SELECT place.v FROM places place WHERE place.region = 'us' AND place.tenant = place.k AND place.k = 1;
SELECT v FROM places WHERE region = 'us' OR tenant = 1 ORDER BY v;
SELECT v FROM places WHERE (region = 'us' AND tenant = 1) OR (region = 'eu' AND tenant = 2) ORDER BY v;
SELECT v FROM places WHERE (region = 'us' OR region = 'eu') AND (tenant = 1 OR tenant = 2) AND k = 1 ORDER BY v;
SELECT v FROM places WHERE region || '' = 'us' AND tenant = 1 ORDER BY v;
-- Outer joins: what a condition on the nullable side says.
SELECT a.id, e.n FROM accounts a LEFT JOIN entries e ON a.id = e.account_id WHERE e.account_id = 3 ORDER BY e.n;
SELECT a.id, e.n FROM accounts a LEFT JOIN entries e ON a.id = e.account_id AND e.account_id = 3 ORDER BY a.id, e.n;
SELECT a.id, e.n FROM accounts a LEFT JOIN entries e ON a.id = e.account_id AND a.id = 3 WHERE a.id < 6 ORDER BY a.id, e.n;
SELECT a.id, e.n FROM accounts a RIGHT JOIN entries e ON a.id = e.account_id WHERE a.id = 3 ORDER BY e.n;
SELECT a.id, e.n FROM accounts a FULL JOIN entries e ON a.id = e.account_id AND e.n = 1 WHERE a.id = 3 ORDER BY e.n;
SELECT a.id, e.n FROM accounts a FULL JOIN entries e ON a.id = e.account_id WHERE a.id = 3 OR e.account_id = 4 ORDER BY a.id, e.n;
SELECT a.id, e.n FROM accounts a LEFT JOIN entries e ON a.id = e.account_id WHERE e.account_id IS NULL ORDER BY a.id;
SELECT a.id, k.kind FROM accounts a LEFT JOIN kinds k ON k.weight = a.id ORDER BY a.id LIMIT 6;
SELECT a.id, k.kind FROM kinds k LEFT JOIN accounts a ON k.weight = a.id AND a.id = 3 ORDER BY k.kind;
SELECT a.id, k.kind FROM kinds k LEFT JOIN accounts a ON k.weight = a.id ORDER BY k.kind;
SELECT a.id, k.kind FROM kinds k JOIN accounts a ON k.weight = a.id ORDER BY k.kind;
SELECT g, a.name FROM generate_series(1, 3) g JOIN accounts a ON a.id = g ORDER BY g;
SELECT g, a.name FROM generate_series(1, 3) g LEFT JOIN accounts a ON a.id = g ORDER BY g;
SELECT v.x, a.name FROM (VALUES (1), (100)) v (x) LEFT JOIN accounts a ON a.id = v.x ORDER BY v.x;
SELECT v.x, a.name FROM (VALUES (1), (100)) v (x) JOIN accounts a ON a.id = v.x ORDER BY v.x;
SELECT a.id, l.code FROM accounts a LEFT JOIN LATERAL (SELECT code FROM languages WHERE length(code) = a.id) l ON TRUE WHERE a.id < 4 AND a.id > 0 ORDER BY a.id, l.code;
SELECT l.code, c.n FROM languages l, LATERAL (SELECT count(*) AS n FROM books b WHERE b.language = l.code) c ORDER BY l.code;
SELECT a.id, c.n FROM accounts a, LATERAL (SELECT count(*) AS n FROM entries e WHERE e.account_id = a.id) c ORDER BY a.id;
SELECT id, n FROM accounts JOIN entries ON (account_id = id) FULL JOIN visits v ON v.n = 100 AND FALSE WHERE id = 3 ORDER BY n;
-- What a shard cannot know alone.
SELECT account_id, count(*) FROM entries GROUP BY GROUPING SETS ((account_id), ()) ORDER BY account_id;
SELECT account_id, count(*) FROM entries GROUP BY ROLLUP (account_id) ORDER BY account_id;
--! any order
SELECT account_id, kind, count(*) FROM entries GROUP BY CUBE (account_id, kind) ORDER BY 1, 2;
SELECT count(*) OVER () FROM accounts;
SELECT id, rank() OVER (ORDER BY balance) FROM accounts ORDER BY id;
SELECT account_id, rank() OVER (PARTITION BY kind ORDER BY n) FROM entries ORDER BY 1, 2;
SELECT account_id, lag(n) OVER (PARTITION BY account_id ORDER BY n) FROM entries ORDER BY 1, 2 NULLS FIRST;
SELECT * FROM (SELECT id FROM accounts ORDER BY id LIMIT 3) s ORDER BY id;
SELECT * FROM (SELECT id FROM accounts ORDER BY id LIMIT 3) s WHERE id = 1;
WITH a AS (SELECT id FROM accounts ORDER BY id LIMIT 2) SELECT * FROM a ORDER BY id;
SELECT id FROM accounts WHERE id IN (SELECT account_id FROM entries ORDER BY amount DESC NULLS LAST LIMIT 1);
SELECT id FROM accounts a WHERE id IN (SELECT account_id FROM entries e WHERE e.account_id = a.id ORDER BY n LIMIT 1) ORDER BY id;
SELECT id FROM accounts WHERE EXISTS (SELECT 1 FROM entries WHERE kind = 'gift') ORDER BY id;
SELECT id FROM accounts WHERE EXISTS (SELECT 1 FROM audit WHERE id = 3) ORDER BY id;
SELECT id FROM accounts WHERE EXISTS (SELECT 1 FROM kinds WHERE kind = 'fee') ORDER BY id LIMIT 3;
SELECT id FROM accounts WHERE id NOT IN (SELECT account_id FROM entries) ORDER BY id;
SELECT id FROM accounts WHERE id > ALL (SELECT account_id FROM entries) ORDER BY id;
SELECT id FROM accounts WHERE balance > ANY (SELECT weight FROM kinds) ORDER BY id;
SELECT (SELECT count(*) FROM accounts);
SELECT EXISTS (SELECT 1 FROM accounts WHERE id = 99);
SELECT EXISTS (SELECT 1 FROM accounts WHERE name = 'accd3');
SELECT ARRAY(SELECT id FROM accounts ORDER BY id);
SELECT ARRAY(SELECT n FROM entries WHERE account_id = 3 ORDER BY n);
SELECT coalesce((SELECT name FROM accounts WHERE id = 99), 'none');
SELECT (SELECT name FROM accounts WHERE id = 1), (SELECT name FROM accounts WHERE id = 2);
SELECT name FROM accounts WHERE id = 1 UNION ALL SELECT name FROM accounts WHERE id = 2 ORDER BY name;
SELECT name FROM accounts WHERE id = 1 UNION SELECT name FROM accounts WHERE id = 2 ORDER BY name;
SELECT id FROM accounts EXCEPT SELECT account_id FROM entries ORDER BY 1;
SELECT id FROM accounts INTERSECT SELECT account_id FROM entries ORDER BY 1;
SELECT name FROM accounts INTERSECT SELECT name FROM accounts ORDER BY 1;
SELECT id FROM accounts UNION ALL SELECT account_id FROM entries WHERE n = 1 ORDER BY 1 LIMIT 5;
SELECT id FROM accounts UNION ALL SELECT 1000 ORDER BY 1;
SELECT DISTINCT ON (kind) kind, account_id FROM entries ORDER BY kind, account_id, n;
SELECT DISTINCT active FROM accounts ORDER BY active;
SELECT DISTINCT id, active FROM accounts ORDER BY active, id;
SELECT max(id) FROM accounts;
SELECT count(DISTINCT kind) FROM entries;
SELECT sum(total) FROM account_sums;
SELECT count(*) FROM account_sums;
SELECT * FROM account_sums WHERE total > 30 ORDER BY total, account_id;
SELECT s.account_id, a.name FROM account_sums s JOIN accounts a ON a.id = s.account_id ORDER BY 1;
SELECT * FROM account_one WHERE id = 2;
SELECT a.name FROM account_one o JOIN accounts a ON a.id = o.id;
SELECT id, generate_series(1, 2) FROM accounts WHERE id < 3 AND id > 0 ORDER BY 1, 2;
SELECT unnest(ia) AS x, id FROM kitchen WHERE id < 4 ORDER BY id, x;
SELECT id, x FROM kitchen, unnest(ia) x WHERE id < 4 ORDER BY id, x;
SELECT id, x FROM kitchen, jsonb_each_text(jb) x WHERE id = 4 ORDER BY x;
SELECT id, now() = now() FROM accounts WHERE id = 3;
SELECT id, now() IS NULL FROM accounts ORDER BY id;
SELECT count(*) FROM accounts WHERE id = 3 AND opened < now();
SELECT id FROM accounts WHERE random() >= 0 ORDER BY id;
SELECT id FROM accounts WHERE id = floor(random() + 3)::int;
-- Oids are told apart in text only.
--! simple
SELECT tableoid::regclass, id FROM accounts WHERE id = 3;
--! refused
SELECT tableoid::regclass, id FROM accounts ORDER BY id LIMIT 2;
--! refused
SELECT pg_relation_size('accounts') >= 0;
SELECT relname, reltuples IS NULL FROM pg_class WHERE relname = 'accounts' AND relnamespace = 'public'::regnamespace;
SELECT a.id, c.relname FROM accounts a JOIN pg_class c ON c.relname = 'accounts' AND c.relnamespace = 'public'::regnamespace WHERE a.id = 3;
SELECT a.id, c.relname FROM accounts a JOIN pg_class c ON c.relname = 'accounts' AND c.relnamespace = 'public'::regnamespace ORDER BY a.id;
-- Whole rows, records, user types.
SELECT a FROM accounts a ORDER BY a.id LIMIT 2;
SELECT (a).name FROM accounts a WHERE (a).id = 3;
SELECT (a).name FROM accounts a WHERE a.id = 3;
SELECT a IS NULL, a.* FROM accounts a WHERE a.id = 3;
SELECT count(a) FROM accounts a WHERE a.id = 3;
SELECT row_to_json(a) FROM accounts a WHERE id = 3;
SELECT to_jsonb(e) ->> 'n' FROM entries e WHERE account_id = 3 ORDER BY n;
SELECT m, m::text FROM kitchen WHERE id = 3;
-- In binary, arrays name their element's type by its oid.
--! simple
SELECT m, m::text, ARRAY[m], enum_range(m) FROM kitchen WHERE id = 3;
SELECT id, m FROM kitchen ORDER BY id;
--! simple
SELECT id, m, ARRAY[m] FROM kitchen WHERE id < 9 ORDER BY id;
SELECT m, count(*) FROM kitchen WHERE id = 3 GROUP BY m;
--! happy
SELECT id FROM kitchen WHERE id = 2 AND m = $1;
--! {happy,ok}
SELECT id FROM kitchen WHERE m = ANY ($1::mood[]) ORDER BY id;
--! 3 | happy
UPDATE kitchen SET m = $2 WHERE id = $1 RETURNING m;
-- Order: what ties, what sorts by nothing.
SELECT id, 1 AS one FROM accounts ORDER BY one, id;
SELECT id FROM accounts ORDER BY NULL, id;
SELECT id FROM accounts ORDER BY 'x'::text, id;
SELECT id, name FROM accounts ORDER BY name COLLATE "C" DESC, id LIMIT 3;
SELECT id, name AS id2 FROM accounts ORDER BY accounts.id DESC LIMIT 3;
SELECT name AS id FROM accounts ORDER BY id LIMIT 3;
SELECT -id AS id FROM accounts ORDER BY id LIMIT 3;
SELECT -id AS id FROM accounts ORDER BY accounts.id LIMIT 3;
SELECT id AS a, balance AS b FROM accounts ORDER BY b DESC NULLS FIRST, a DESC LIMIT 5;
SELECT *, id * 2 AS double FROM accounts ORDER BY double LIMIT 3;
SELECT id FROM accounts ORDER BY balance::text COLLATE "C", id LIMIT 5;
SELECT id FROM accounts ORDER BY (balance, id) LIMIT 5;
SELECT id, note FROM accounts ORDER BY note NULLS FIRST, id LIMIT 15;
SELECT id, note FROM accounts ORDER BY note DESC, id LIMIT 15;
SELECT e.account_id, e.n FROM entries e ORDER BY e.kind, e.account_id, e.n LIMIT 12;
SELECT id FROM kitchen ORDER BY ia, id;
SELECT id FROM kitchen ORDER BY jb, id;
SELECT id FROM kitchen ORDER BY ip, id;
SELECT id FROM kitchen ORDER BY j ->> 'i', id;
SELECT id, f8 FROM kitchen ORDER BY f8 DESC NULLS LAST, id;
SELECT id, f8 FROM kitchen ORDER BY abs(f8), id;
SELECT id, num FROM kitchen ORDER BY num NULLS FIRST, id;
SELECT id, c FROM kitchen ORDER BY c DESC, id;
SELECT id, ti FROM kitchen ORDER BY ti DESC NULLS LAST, id;
SELECT id FROM accounts ORDER BY id FOR UPDATE;
SELECT id FROM accounts WHERE id = 3 ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1;
-- Writes that reach further than they look.
INSERT INTO entries SELECT id, 50, 1 FROM accounts WHERE id = 3;
INSERT INTO entries SELECT a.id, 51, k.weight FROM accounts a, kinds k WHERE a.id = 3 AND k.kind = 'fee' RETURNING n, amount;
INSERT INTO entries (account_id, n) SELECT 3, g FROM generate_series(60, 62) g RETURNING n;
--! refused
INSERT INTO entries (account_id, n) SELECT g, 60 FROM generate_series(1, 3) g;
--! refused
INSERT INTO entries (account_id, n) VALUES ((SELECT 3), 70);
INSERT INTO entries (account_id, n) VALUES (3, (SELECT max(n) + 1 FROM entries WHERE account_id = 3)) RETURNING n;
--! refused
INSERT INTO entries (account_id, n) VALUES (3, (SELECT count(*) FROM entries));
INSERT INTO entries (account_id, n) TABLE visits;
--! refused
UPDATE entries SET account_id = 3 WHERE account_id = 3 AND n = 1;
UPDATE entries e SET amount = a.balance FROM accounts a WHERE a.id = e.account_id;
UPDATE entries e SET amount = 1 FROM accounts a WHERE a.id = 3 AND e.account_id = 3 AND e.n = 1 RETURNING e.n, a.id;
--! refused
UPDATE entries e SET amount = 1 FROM accounts a WHERE a.id = 3 AND e.n = 1;
UPDATE accounts SET balance = (SELECT sum(amount) FROM entries WHERE account_id = accounts.id) WHERE id = 3 RETURNING balance;
--! refused
UPDATE accounts SET balance = (SELECT sum(amount) FROM entries) WHERE id = 3;
UPDATE accounts SET note = (SELECT label FROM kinds WHERE kind = 'debit') WHERE id = 3 RETURNING note;
--! refused
UPDATE accounts SET note = 'x' WHERE id = (SELECT account_id FROM entries WHERE account_id = 3 AND n = 1);
--! refused
UPDATE accounts SET note = 'x' WHERE id IN (SELECT id FROM accounts ORDER BY id LIMIT 1);
DELETE FROM entries WHERE account_id IN (SELECT id FROM accounts WHERE id = 3);
DELETE FROM entries WHERE account_id = 3 AND n = (SELECT max(n) FROM entries WHERE account_id = 3) RETURNING n;
DELETE FROM entries e USING kinds k WHERE k.kind = e.kind AND e.account_id = 3 RETURNING e.n;
--! refused
DELETE FROM entries WHERE ctid IN (SELECT ctid FROM entries WHERE account_id = 3 LIMIT 1);
--! simple
DELETE FROM accounts WHERE id = 26 RETURNING tableoid::regclass;
--! refused
WITH x AS (INSERT INTO accounts (id, name) VALUES (900, 'x') RETURNING id) INSERT INTO entries (account_id, n) SELECT id, 1 FROM x;
WITH x AS (SELECT id FROM accounts WHERE id = 3) UPDATE entries SET kind = 'fee' FROM x WHERE x.id = account_id AND account_id = 3 RETURNING n;
WITH x AS (SELECT 3 AS id) DELETE FROM entries USING x WHERE x.id = account_id;
SELECT * INTO TEMP scratch FROM audit;
