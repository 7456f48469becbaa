-- Cursors over several shards, whose rows are merged.
--! also binary
--! script
BEGIN;
DECLARE c CURSOR FOR SELECT id, name, balance, opened, score FROM accounts ORDER BY id;
FETCH c;
FETCH 3 FROM c;
FETCH FORWARD 2 IN c;
FETCH NEXT FROM c;
MOVE 2 IN c;
FETCH RELATIVE 1 FROM c;
FETCH RELATIVE 3 FROM c;
MOVE RELATIVE 2 FROM c;
FETCH ABSOLUTE 18 FROM c;
MOVE ABSOLUTE 19 FROM c;
FETCH c;
MOVE FORWARD ALL IN c;
FETCH c;
FETCH ALL FROM c;
FETCH 0 FROM c;
CLOSE c;
COMMIT;
--! end
--! also binary
--! script
BEGIN;
DECLARE c NO SCROLL CURSOR FOR SELECT id, name FROM accounts WHERE balance > 10 ORDER BY balance DESC, id;
FETCH 2 FROM c;
FETCH ALL FROM c;
FETCH ALL FROM c;
COMMIT;
FETCH 1 FROM c;
--! end
-- Over one shard, whichever it is.
--! also binary
--! script
BEGIN;
DECLARE c CURSOR FOR SELECT id, name, balance, opened, score FROM accounts WHERE id = 1;
FETCH 10 FROM c;
MOVE BACKWARD ALL IN c;
CLOSE c;
DECLARE c CURSOR FOR SELECT n, kind, booked FROM entries WHERE account_id = 1 ORDER BY n;
FETCH 1 FROM c;
FETCH ALL FROM c;
COMMIT;
--! end
--! also binary
--! script
BEGIN;
DECLARE c CURSOR FOR SELECT id, name, balance, opened, score FROM accounts WHERE id = 2;
FETCH 10 FROM c;
MOVE BACKWARD ALL IN c;
CLOSE c;
DECLARE c CURSOR FOR SELECT n, kind, booked FROM entries WHERE account_id = 2 ORDER BY n;
FETCH 1 FROM c;
FETCH ALL FROM c;
COMMIT;
--! end
--! also binary
--! script
BEGIN;
DECLARE c CURSOR FOR SELECT id, name, balance, opened, score FROM accounts WHERE id = 3;
FETCH 10 FROM c;
MOVE BACKWARD ALL IN c;
CLOSE c;
DECLARE c CURSOR FOR SELECT n, kind, booked FROM entries WHERE account_id = 3 ORDER BY n;
FETCH 1 FROM c;
FETCH ALL FROM c;
COMMIT;
--! end
--! also binary
--! script
BEGIN;
DECLARE c CURSOR FOR SELECT id, name, balance, opened, score FROM accounts WHERE id = 4;
FETCH 10 FROM c;
MOVE BACKWARD ALL IN c;
CLOSE c;
DECLARE c CURSOR FOR SELECT n, kind, booked FROM entries WHERE account_id = 4 ORDER BY n;
FETCH 1 FROM c;
FETCH ALL FROM c;
COMMIT;
--! end
-- It ends with what it was declared in.
--! script
BEGIN;
DECLARE a CURSOR FOR SELECT id FROM accounts ORDER BY id;
SAVEPOINT s;
DECLARE b CURSOR FOR SELECT id FROM accounts ORDER BY id DESC;
FETCH 2 FROM a;
FETCH 2 FROM b;
ROLLBACK TO s;
FETCH 2 FROM a;
SAVEPOINT t;
DECLARE d CURSOR FOR SELECT id FROM entries, accounts WHERE account_id = id ORDER BY id, n;
RELEASE t;
FETCH 3 FROM d;
FETCH 2 FROM b;
ROLLBACK TO s;
FETCH 1 FROM a;
ROLLBACK TO s;
FETCH 2 FROM a;
FETCH 2 FROM d;
ROLLBACK;
--! end
--! script
BEGIN;
DECLARE a CURSOR FOR SELECT id FROM accounts ORDER BY id;
ROLLBACK;
FETCH 1 FROM a;
CLOSE a;
--! end
-- Errors that PostgreSQL has too.
--! script
DECLARE c CURSOR FOR SELECT id FROM accounts ORDER BY id;
DECLARE c CURSOR FOR SELECT nothing FROM accounts ORDER BY id;
BEGIN;
DECLARE c CURSOR FOR SELECT nothing FROM accounts ORDER BY id;
ROLLBACK;
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM accounts ORDER BY id;
DECLARE c CURSOR FOR SELECT id FROM accounts ORDER BY name;
ROLLBACK;
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM accounts ORDER BY id;
DECLARE c CURSOR FOR SELECT id FROM accounts WHERE id = 3;
ROLLBACK;
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM accounts WHERE id = 3;
DECLARE c CURSOR FOR SELECT id FROM accounts ORDER BY id;
ROLLBACK;
BEGIN;
DECLARE c NO SCROLL CURSOR FOR SELECT id FROM accounts ORDER BY id;
FETCH 3 FROM c;
FETCH PRIOR FROM c;
ROLLBACK;
BEGIN;
DECLARE c NO SCROLL CURSOR FOR SELECT id FROM accounts ORDER BY id;
FETCH ALL FROM c;
FETCH LAST FROM c;
ROLLBACK;
--! end
-- The value that cannot be computed is met when its row is.
--! script
BEGIN;
DECLARE c CURSOR FOR SELECT 1 / (balance * 0) FROM accounts WHERE balance IS NOT NULL ORDER BY id;
FETCH 1 FROM c;
FETCH 1 FROM c;
ROLLBACK;
--! end
--! script
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM accounts ORDER BY id;
FETCH 1 FROM c;
SAVEPOINT s;
SELECT 1 / 0;
FETCH 1 FROM c;
ROLLBACK TO s;
FETCH 1 FROM c;
COMMIT;
--! end
-- It does not see what is written after it was declared, and other statements go on between.
--! also binary
--! script
BEGIN;
DECLARE c CURSOR FOR SELECT id, note FROM accounts ORDER BY id;
DECLARE n CURSOR FOR SELECT count(*), sum(balance) FROM accounts;
UPDATE accounts SET note = 'later', balance = balance + 1 WHERE id < 12;
DELETE FROM accounts WHERE id = 18;
INSERT INTO accounts (id, name) VALUES (700, 'later'), (701, 'later'), (702, 'later');
FETCH 4 FROM c;
FETCH 1 FROM n;
SELECT count(*) FROM accounts;
FETCH ALL FROM c;
DECLARE d CURSOR FOR SELECT id, note FROM accounts ORDER BY id DESC;
FETCH 4 FROM d;
ROLLBACK;
--! end
-- Cuts, ties, distinct rows, groups.
--! also binary
--! script
BEGIN;
DECLARE a CURSOR FOR SELECT id FROM accounts ORDER BY id LIMIT 5 OFFSET 2;
FETCH 3 FROM a;
FETCH 3 FROM a;
FETCH 3 FROM a;
DECLARE b CURSOR FOR SELECT kind, account_id FROM entries ORDER BY kind FETCH FIRST 2 ROWS WITH TIES;
FETCH 0 FROM b;
MOVE ALL IN b;
DECLARE d CURSOR FOR SELECT DISTINCT kind FROM entries ORDER BY kind;
FETCH 2 FROM d;
FETCH ALL FROM d;
DECLARE e CURSOR FOR SELECT kind, count(*), sum(amount), min(booked) FROM entries GROUP BY kind ORDER BY kind NULLS FIRST;
FETCH 2 FROM e;
FETCH 1 FROM e;
FETCH ALL FROM e;
DECLARE f CURSOR FOR SELECT kind, round(avg(amount), 3) AS mean FROM entries GROUP BY kind HAVING count(*) > 1 ORDER BY 2 DESC, 1 LIMIT 3;
FETCH 2 FROM f;
FETCH ALL FROM f;
DECLARE g CURSOR FOR SELECT count(*) FROM accounts WHERE false;
FETCH 5 FROM g;
DECLARE h CURSOR FOR SELECT id FROM empty_one ORDER BY id;
FETCH 5 FROM h;
DECLARE i CURSOR FOR SELECT id FROM accounts WHERE balance > 50 UNION ALL SELECT account_id FROM entries WHERE n = 1;
MOVE 3 IN i;
MOVE ALL IN i;
CLOSE ALL;
FETCH 1 FROM a;
COMMIT;
--! end
-- Rows that are larger than a piece, and many.
--! script
BEGIN;
DECLARE c CURSOR FOR SELECT id, repeat(name, 30000) AS long FROM accounts ORDER BY id;
FETCH 2 FROM c;
FETCH ALL FROM c;
DECLARE d CURSOR FOR SELECT a.id, g FROM accounts a, generate_series(1, 1000) g ORDER BY a.id, g;
FETCH 1500 FROM d;
MOVE 9000 IN d;
FETCH 20 FROM d;
MOVE ALL IN d;
COMMIT;
--! end
-- By SQL's own binary cursors.
--! simple
--! script
BEGIN;
DECLARE c BINARY CURSOR FOR SELECT id, name, active FROM accounts ORDER BY id;
FETCH 3 FROM c;
DECLARE d BINARY CURSOR FOR SELECT sum(balance) FROM accounts;
FETCH ALL FROM d;
COMMIT;
BEGIN; DECLARE c CURSOR FOR SELECT id FROM accounts ORDER BY id; FETCH 2 FROM c; COMMIT; FETCH 1 FROM c;
DECLARE c CURSOR FOR SELECT id FROM accounts ORDER BY id; FETCH 2 FROM c; FETCH 2 FROM c; CLOSE c;
FETCH 1 FROM c;
--! end
-- With parameters, and the names of cursors as they are written.
--! extended
--! script
BEGIN;
--! 4 | 2
DECLARE "Of Them" CURSOR FOR SELECT id, name, $1::int AS given FROM accounts WHERE id > $1 ORDER BY id LIMIT $2;
FETCH 1 FROM "Of Them";
FETCH ALL FROM "Of Them";
--! a
DECLARE c CURSOR FOR SELECT count(*), $1::text FROM accounts;
FETCH c;
COMMIT;
--! end
-- On one shard, on another, on several.
--! script
BEGIN;
DECLARE a CURSOR FOR SELECT id, n FROM accounts, generate_series(1, 3) n WHERE id = 3 ORDER BY n;
DECLARE b CURSOR FOR SELECT id, n FROM accounts, generate_series(1, 3) n WHERE id = 4 ORDER BY n;
DECLARE c CURSOR FOR SELECT id, n FROM accounts, generate_series(1, 3) n WHERE id = 5 ORDER BY n;
FETCH 2 FROM a;
FETCH 2 FROM b;
FETCH 2 FROM c;
CLOSE ALL;
FETCH 2 FROM b;
ROLLBACK;
BEGIN;
DECLARE a CURSOR FOR SELECT id, n FROM accounts, generate_series(1, 3) n WHERE id = 3 ORDER BY n;
DECLARE b CURSOR FOR SELECT id FROM accounts ORDER BY id;
FETCH 2 FROM b;
CLOSE ALL;
FETCH a;
ROLLBACK;
--! end
-- Going back, for which rows are brought together.
--! also binary
--! script
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id, name FROM accounts ORDER BY id;
FETCH 3 FROM c;
FETCH PRIOR FROM c;
FETCH BACKWARD ALL FROM c;
FETCH LAST FROM c;
FETCH ABSOLUTE 4 FROM c;
FETCH RELATIVE -2 FROM c;
FETCH FIRST FROM c;
FETCH 0 FROM c;
MOVE BACKWARD 5 IN c;
FETCH ABSOLUTE -3 FROM c;
CLOSE c;
COMMIT;
--! end
-- Cursors that outlive their transaction: made outside of one, at once.
--! also binary
--! script
DECLARE held SCROLL CURSOR WITH HOLD FOR SELECT id, name, balance, opened, score FROM accounts ORDER BY id;
FETCH 3 FROM held;
UPDATE accounts SET name = 'later' WHERE id < 30;
FETCH 3 FROM held;
FETCH PRIOR FROM held;
DECLARE held CURSOR WITH HOLD FOR SELECT id FROM accounts ORDER BY id;
DECLARE held CURSOR WITH HOLD FOR SELECT id FROM accounts WHERE id = 3;
FETCH ABSOLUTE 5 FROM held;
BEGIN;
FETCH held;
UPDATE accounts SET note = 'none' WHERE id < 30;
MOVE 2 IN held;
ROLLBACK;
FETCH held;
BEGIN;
FETCH held;
SELECT 1 / 0;
FETCH held;
ROLLBACK;
FETCH held;
FETCH LAST FROM held;
FETCH held;
SET DateStyle = 'German, DMY';
FETCH FIRST FROM held;
RESET DateStyle;
FETCH FIRST FROM held;
CLOSE held;
FETCH held;
CLOSE held;
--! end
-- Made in a transaction: kept when it is committed, gone when it is not.
--! also binary
--! script
BEGIN;
DECLARE a CURSOR WITH HOLD FOR SELECT id, note FROM accounts ORDER BY id;
DECLARE b NO SCROLL CURSOR WITH HOLD FOR SELECT a.id, b.id AS other FROM accounts a JOIN accounts b ON b.id = a.id + 1 ORDER BY 1;
DECLARE short CURSOR FOR SELECT id FROM accounts ORDER BY id;
DECLARE one CURSOR WITH HOLD FOR SELECT id, g FROM accounts, generate_series(1, 5) g WHERE id = 3 ORDER BY g;
FETCH 2 FROM a;
FETCH 2 FROM b;
FETCH 2 FROM one;
UPDATE accounts SET note = 'held';
SAVEPOINT s;
DECLARE gone CURSOR WITH HOLD FOR SELECT id FROM accounts ORDER BY id;
FETCH gone;
ROLLBACK TO s;
FETCH gone;
ROLLBACK TO s;
DECLARE own CURSOR WITH HOLD FOR SELECT id, note FROM accounts ORDER BY id DESC;
RELEASE s;
COMMIT;
FETCH 2 FROM a;
FETCH 2 FROM b;
FETCH 2 FROM own;
FETCH 2 FROM one;
FETCH PRIOR FROM b;
FETCH NEXT FROM b;
FETCH short;
FETCH gone;
BEGIN;
INSERT INTO accounts (id, name) VALUES (700, 'later'), (701, 'later'), (702, 'later');
FETCH a;
COMMIT;
FETCH ALL FROM a;
DELETE FROM accounts WHERE id >= 700;
CLOSE ALL;
FETCH a;
FETCH own;
FETCH one;
--! end
--! script
BEGIN;
DECLARE a CURSOR WITH HOLD FOR SELECT id FROM accounts ORDER BY id;
DECLARE one CURSOR WITH HOLD FOR SELECT id FROM accounts WHERE id = 3;
ROLLBACK;
FETCH a;
FETCH one;
BEGIN;
DECLARE one CURSOR WITH HOLD FOR SELECT count(*) FROM accounts;
DECLARE a CURSOR WITH HOLD FOR SELECT id FROM accounts WHERE id = 4;
COMMIT;
FETCH one;
FETCH a;
BEGIN;
FETCH one;
SELECT 1 / 0;
COMMIT;
FETCH BACKWARD 2 FROM a;
DISCARD ALL;
FETCH one;
FETCH a;
BEGIN READ ONLY;
DECLARE a CURSOR WITH HOLD FOR SELECT name, id FROM accounts ORDER BY id;
FETCH 3 FROM a;
COMMIT;
FETCH 3 FROM a;
BEGIN;
CLOSE a;
ROLLBACK;
FETCH a;
--! end
-- What cannot be computed is met when the rest of the rows is made, at the end of the transaction.
--! script
DECLARE a CURSOR WITH HOLD FOR SELECT 1 / (balance * 0) FROM accounts WHERE balance IS NOT NULL ORDER BY id;
FETCH a;
BEGIN;
UPDATE accounts SET note = 'not kept';
DECLARE a CURSOR WITH HOLD FOR SELECT 1 / (balance * 0) FROM accounts WHERE balance IS NOT NULL ORDER BY id;
COMMIT;
FETCH a;
SELECT count(*) FROM accounts WHERE note = 'not kept';
--! end
--! script
DECLARE a CURSOR WITH HOLD FOR SELECT id FROM accounts FOR UPDATE;
DECLARE a CURSOR WITH HOLD FOR SELECT nothing FROM accounts ORDER BY id;
DECLARE a CURSOR WITH HOLD FOR SELECT id FROM no_such_table;
BEGIN;
DECLARE a SCROLL CURSOR FOR SELECT id FROM accounts FOR SHARE;
ROLLBACK;
--! end
--! simple
--! script
DECLARE a BINARY CURSOR WITH HOLD FOR SELECT id, name FROM accounts ORDER BY id;
FETCH 2 FROM a;
DECLARE b CURSOR WITH HOLD FOR SELECT id FROM accounts ORDER BY id; FETCH 2 FROM b; FETCH 2 FROM b;
FETCH 2 FROM b;
DECLARE c CURSOR WITH HOLD FOR SELECT id FROM accounts ORDER BY id; SELECT 1 / 0;
FETCH c;
BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT id FROM accounts ORDER BY id; COMMIT; FETCH 2 FROM c;
--! end
--! extended
--! script
--! 4 | 2
DECLARE a CURSOR WITH HOLD FOR SELECT id, name, $1::int AS given FROM accounts WHERE id > $1 ORDER BY id LIMIT $2;
FETCH 1 FROM a;
FETCH ALL FROM a;
--! end
-- What is refused.
--! script
BEGIN;
--! refused
DECLARE held CURSOR WITH HOLD FOR SELECT accounts FROM accounts;
ROLLBACK;
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM accounts ORDER BY id;
FETCH 2 FROM c;
--! refused
FETCH PRIOR FROM c;
ROLLBACK;
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM accounts ORDER BY id;
FETCH 2 FROM c;
--! refused
UPDATE accounts SET note = 'here' WHERE CURRENT OF c;
ROLLBACK;
--! end
