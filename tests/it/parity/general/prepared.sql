-- PREPARE, EXECUTE and DEALLOCATE in SQL: every script runs on connections of its own, in both protocols.
--! script
PREPARE one (bigint) AS SELECT name, note FROM accounts WHERE id = $1;
EXECUTE one(1);
EXECUTE one(2);
EXECUTE one('3');
EXECUTE one(-4);
EXECUTE one(NULL);
EXECUTE one(5::bigint);
EXECUTE one(CAST('6' AS bigint));
EXECUTE one(1 + 1);
EXECUTE one(length('abc'));
DEALLOCATE one;
EXECUTE one(1);
--! end
-- Types are inferred as PostgreSQL does.
--! script
PREPARE inferred AS SELECT name FROM accounts WHERE id = $1 AND name <> $2;
EXECUTE inferred(1, 'x');
EXECUTE inferred('7', 'x');
EXECUTE inferred(7, NULL);
PREPARE listed (text) AS SELECT title FROM books WHERE isbn = $1;
EXECUTE listed('nothing5');
EXECUTE listed('nothing');
PREPARE day (date, int) AS SELECT total FROM orders WHERE day = $1 AND id = $2;
EXECUTE day('2024-01-01', 1);
EXECUTE day(date '2024-01-01', 1);
PREPARE "Mixed Name" (text, int) AS SELECT v FROM places WHERE region = $1 AND tenant = $2 ORDER BY k;
EXECUTE "Mixed Name" ('eu', 1);
EXECUTE "Mixed Name"('us', 2) ;
EXECUTE mixed;
DEALLOCATE PREPARE "Mixed Name";
EXECUTE "Mixed Name"('us', 2);
--! end
-- Errors, with their positions.
--! script
PREPARE one (bigint) AS SELECT name FROM accounts WHERE id = $1;
PREPARE one AS SELECT 1;
PREPARE two AS SELECT nothing FROM accounts;
PREPARE two (no_such_type) AS SELECT $1;
PREPARE two AS SELECT 1 FROM nothing;
EXECUTE two;
EXECUTE one;
EXECUTE one(1, 2);
EXECUTE one('abc');
EXECUTE one(true);
EXECUTE one(nothing);
EXECUTE  one ( 1, 'x' );
EXECUTE one((SELECT 1));
EXECUTE one(count(*));
EXECUTE one($1);
EXECUTE one(1 / 0);
EXECUTE one(99999999999999999999);
DEALLOCATE nothing;
EXECUTE one(1);
--! end
-- Over several shards.
--! script
PREPARE every AS SELECT id, name FROM accounts ORDER BY id;
EXECUTE every;
PREPARE page (int, int) AS SELECT id FROM accounts ORDER BY id LIMIT $1 OFFSET $2;
EXECUTE page(3, 2);
EXECUTE page('2', NULL);
EXECUTE page(NULL, 5);
EXECUTE page(-1, 0);
PREPARE some (text) AS SELECT id, name FROM accounts WHERE name > $1 ORDER BY name, id;
EXECUTE some('a');
EXECUTE some('c' || 'd');
PREPARE counted AS SELECT kind, count(*), avg(amount) FROM entries GROUP BY kind ORDER BY 2, 1;
EXECUTE counted;
PREPARE grouped (int, text) AS SELECT n, sum(amount) * $1 FROM entries WHERE kind <> $2 GROUP BY n HAVING count(*) > $1 ORDER BY n;
EXECUTE grouped(2, 'fee');
EXECUTE grouped(1 + 1, NULL);
EXECUTE grouped(NULL, 'x');
EXECUTE grouped('3', 'fee' || '');
EXECUTE grouped('x', 'fee');
--! end
-- Writes and their tags; the transaction that they are in.
--! script
PREPARE make (bigint, text) AS INSERT INTO accounts (id, name) VALUES ($1, $2);
EXECUTE make(900, 'made');
EXECUTE make(900, 'made again');
BEGIN;
EXECUTE make(901, 'made');
ROLLBACK;
PREPARE change (bigint, numeric) AS UPDATE accounts SET balance = $2 WHERE id = $1 RETURNING id, balance;
EXECUTE change(900, 1.50);
EXECUTE change(900, 2);
EXECUTE change(901, 2);
PREPARE remove (bigint) AS DELETE FROM accounts WHERE id = $1;
BEGIN;
EXECUTE remove(900);
EXECUTE change(900, 3);
COMMIT;
SELECT id FROM accounts WHERE id >= 900;
--! end
-- Names are not part of a transaction; an error in one is.
--! script
BEGIN;
PREPARE kept AS SELECT 1 AS one;
ROLLBACK;
EXECUTE kept;
BEGIN;
PREPARE broken AS SELECT nothing;
SELECT 1;
COMMIT;
EXECUTE kept;
DEALLOCATE ALL;
EXECUTE kept;
PREPARE again AS SELECT 2 AS two;
DISCARD ALL;
EXECUTE again;
--! end
-- Home and reference tables, and no table; clocks; what is not a query.
--! script
PREPARE note (text) AS INSERT INTO options (name, value) VALUES ($1, '{}') RETURNING name;
EXECUTE note('by name');
PREPARE language (text) AS SELECT name FROM languages WHERE code = $1;
EXECUTE language('en');
PREPARE sum (int, int) AS SELECT $1 + $2 AS sum;
EXECUTE sum(1, 2);
EXECUTE sum(1.6, '2');
PREPARE moment (timestamptz) AS SELECT $1 = now() AS is_now;
BEGIN;
EXECUTE moment(now());
EXECUTE moment(CURRENT_TIMESTAMP);
COMMIT;
PREPARE enumerated (mood) AS SELECT id FROM kitchen WHERE id = 1 AND m = $1;
EXECUTE enumerated('happy');
EXECUTE enumerated('nothing');
PREPARE listing (bigint[]) AS SELECT id, name FROM accounts WHERE id = ANY ($1) ORDER BY id;
EXECUTE listing('{1,2,3}');
EXECUTE listing(ARRAY[1, 2]);
EXECUTE listing(NULL);
PREPARE nested AS EXECUTE sum(1, 2);
PREPARE ddl AS CREATE TABLE nothing (a int);
--! end
-- Arguments that cannot be proven to mean the same on a shard.
--! script
PREPARE one (bigint) AS SELECT name FROM accounts WHERE id = $1;
--! refused
EXECUTE one(lastval());
--! refused
EXECUTE one(pg_advisory_lock(1)::text::bigint);
--! end
-- A temporary table from a query with parameters.
--! extended
--! script
--! 1
CREATE TEMP TABLE mine AS SELECT id, what FROM audit WHERE id >= $1;
SELECT id, what FROM mine ORDER BY id;
--! 3 | x
CREATE TEMP TABLE other AS SELECT $1::int AS n, $2 AS t;
SELECT n, t FROM other;
--! 1
CREATE TEMP TABLE other AS SELECT $1::int AS n;
--! nothing
CREATE TEMP TABLE failing AS SELECT id FROM audit WHERE id = $1;
--! end

-- What turns out not to be merged is gathered.
--! script
PREPARE places (int) AS SELECT id, ip FROM kitchen WHERE id <> $1 ORDER BY ip, id;
EXECUTE places(2);
EXECUTE places(1 + 1);
PREPARE kinds AS SELECT DISTINCT ip FROM kitchen ORDER BY ip;
EXECUTE kinds;
--! end
