-- Rows that are locked on several shards.
SELECT id, name, balance FROM accounts ORDER BY id FOR UPDATE;
SELECT id, name FROM accounts WHERE balance > 10 ORDER BY balance DESC, id FOR NO KEY UPDATE;
SELECT * FROM accounts WHERE id > 3 ORDER BY id LIMIT 4 FOR UPDATE;
SELECT id FROM accounts ORDER BY id LIMIT 3 OFFSET 2 FOR UPDATE;
SELECT id, score FROM accounts ORDER BY id DESC FETCH FIRST 2 ROWS ONLY FOR SHARE;
SELECT id FROM accounts ORDER BY name COLLATE "C", id FOR KEY SHARE LIMIT 5;
SELECT id FROM accounts ORDER BY id LIMIT 3 FOR UPDATE NOWAIT;
SELECT id, note FROM accounts ORDER BY id LIMIT 3 FOR UPDATE SKIP LOCKED;
SELECT id FROM accounts ORDER BY balance NULLS FIRST, id LIMIT 300 OFFSET 1 FOR UPDATE SKIP LOCKED;
SELECT id FROM accounts ORDER BY id FOR UPDATE SKIP LOCKED;
SELECT id FROM accounts ORDER BY id LIMIT 0 FOR UPDATE;
SELECT id FROM accounts ORDER BY id LIMIT NULL FOR UPDATE SKIP LOCKED;
SELECT id FROM accounts FOR UPDATE;
--! count only
SELECT id FROM accounts LIMIT 3 FOR UPDATE;
--! count only
SELECT id FROM accounts LIMIT 3 FOR UPDATE SKIP LOCKED;
SELECT id FROM empty_one FOR UPDATE;
SELECT id FROM empty_one ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED;
SELECT a.id, e.n, e.amount FROM accounts a JOIN entries e ON e.account_id = a.id ORDER BY a.id, e.n FOR UPDATE;
SELECT a.id, e.n FROM accounts a JOIN entries e ON e.account_id = a.id ORDER BY a.id, e.n LIMIT 4 FOR UPDATE OF e NOWAIT;
SELECT e.account_id, e.n, k.label FROM entries e JOIN kinds k ON k.kind = e.kind ORDER BY 1, 2 LIMIT 5 FOR UPDATE OF e;
SELECT e.account_id, e.n, k.label FROM entries e LEFT JOIN kinds k ON k.kind = e.kind ORDER BY 1, 2 FOR SHARE OF e SKIP LOCKED;
--! 3 | 2
--! 0 | 1
--! 100 | 5
--! 2 | NULL
SELECT id, name FROM accounts WHERE id > $1 ORDER BY id LIMIT $2 FOR UPDATE;
--! 3 | 2
SELECT id, name FROM accounts WHERE id > $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED;
-- Numbers of rows that are computed.
--! 3 | 2
--! 0 | 1
--! 0 | 0
--! 2 | NULL
--! 2 | -1
SELECT id, name FROM accounts WHERE id > $1 ORDER BY id LIMIT $2::integer FOR UPDATE SKIP LOCKED;
--! 3 | 2 | 1
--! 0 | 4 | 0
--! 0 | 300 | 3
--! 2 | NULL | 2
--! 2 | 3 | NULL
--! 2 | -1 | -1
SELECT id, name FROM accounts WHERE id > $1::bigint ORDER BY id LIMIT $2::integer OFFSET $3::bigint FOR UPDATE SKIP LOCKED;
--! 3 | 2 | 1
--! 0 | 4 | NULL
--! 2 | 3 | -1
SELECT id, name FROM accounts WHERE id > $1 ORDER BY id LIMIT $2::smallint + 1 OFFSET $3 FOR UPDATE;
--! 5
SELECT id FROM accounts ORDER BY id LIMIT coalesce($1::int, 3) FOR UPDATE NOWAIT;
SELECT id FROM accounts ORDER BY id LIMIT 1 + 2 FOR UPDATE;
SELECT id FROM accounts ORDER BY id LIMIT '2'::bigint OFFSET 1 + 1 FOR NO KEY UPDATE SKIP LOCKED;
SELECT id FROM accounts ORDER BY id LIMIT 1 / 0 FOR UPDATE;
SELECT id FROM accounts ORDER BY id LIMIT -1 FOR UPDATE;
--! count only
SELECT id FROM accounts LIMIT 2 + 1 FOR UPDATE SKIP LOCKED;
-- Sub-selects over other shards are answered first.
SELECT id, name FROM accounts WHERE id IN (SELECT account_id FROM orders WHERE total > 20) ORDER BY id FOR UPDATE;
SELECT id FROM accounts WHERE balance > (SELECT avg(balance) FROM accounts) ORDER BY id LIMIT 3 FOR UPDATE SKIP LOCKED;
SELECT id, (SELECT max(total) FROM orders), balance FROM accounts ORDER BY id FOR SHARE;
SELECT id, (SELECT count(*) FROM orders) AS n, name FROM accounts WHERE id NOT IN (SELECT account_id FROM orders WHERE account_id IS NOT NULL) ORDER BY name COLLATE "C", id FOR NO KEY UPDATE NOWAIT;
WITH w AS (SELECT max(total) AS m FROM orders) SELECT id, m FROM accounts, w WHERE balance < w.m ORDER BY id FOR UPDATE OF accounts;
--! refused
WITH w AS (SELECT max(total) AS m FROM orders) SELECT id, m FROM accounts, w WHERE balance < w.m ORDER BY id FOR UPDATE;
SELECT a.id, e.n FROM accounts a JOIN entries e ON e.account_id = a.id WHERE e.amount > ALL (SELECT total FROM orders WHERE total < 10) ORDER BY a.id, e.n FOR UPDATE OF e;
SELECT id FROM accounts WHERE name = ANY (ARRAY(SELECT name FROM accounts ORDER BY id LIMIT 4)) ORDER BY id FOR KEY SHARE;
--! 20.5 | 3
--! 0 | NULL
--! 100000 | 1
SELECT id, name FROM accounts WHERE id IN (SELECT account_id FROM orders WHERE total > $1) ORDER BY id LIMIT $2 FOR UPDATE;
SELECT id FROM accounts WHERE id IN (SELECT nothing FROM orders) FOR UPDATE;
SELECT id FROM accounts WHERE id = (SELECT account_id FROM orders) FOR UPDATE;
-- What PostgreSQL refuses.
SELECT DISTINCT id FROM accounts FOR UPDATE;
SELECT count(*) FROM accounts FOR UPDATE;
SELECT id FROM accounts FOR UPDATE OF nothing;
SELECT nothing FROM accounts ORDER BY id LIMIT 1 FOR UPDATE;
SELECT id FROM accounts ORDER BY id FETCH FIRST 2 ROWS WITH TIES FOR UPDATE SKIP LOCKED;
SELECT 1 / (id - id) FROM accounts FOR UPDATE;
-- In a transaction.
--! also binary
--! script
BEGIN;
UPDATE accounts SET note = 'mine' WHERE id < 5;
SELECT id, note, balance, opened FROM accounts ORDER BY id LIMIT 6 FOR UPDATE;
UPDATE accounts SET note = 'locked' WHERE id = 3;
SAVEPOINT s;
SELECT id, note FROM accounts ORDER BY id LIMIT 4 FOR UPDATE SKIP LOCKED;
ROLLBACK TO s;
SELECT id, note FROM accounts ORDER BY id LIMIT 4 FOR UPDATE SKIP LOCKED;
RELEASE s;
SELECT id, note FROM accounts ORDER BY id FOR SHARE;
COMMIT;
SELECT id, note FROM accounts ORDER BY id LIMIT 4;
--! end
--! script
BEGIN READ ONLY;
SELECT id FROM accounts ORDER BY id LIMIT 2 FOR UPDATE;
ROLLBACK;
--! end
--! script
PREPARE next(int) AS SELECT id, name FROM accounts WHERE id > 2 ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED;
EXECUTE next(3);
BEGIN;
EXECUTE next(2);
EXECUTE next(1 + 1);
COMMIT;
--! end
--! simple
SELECT 1; SELECT id FROM accounts ORDER BY id LIMIT 2 FOR UPDATE; SELECT 2;
--! simple
SELECT 1; SELECT nothing FROM accounts ORDER BY id LIMIT 2 FOR UPDATE; SELECT 2;
--! total order
COPY (SELECT id, name FROM accounts ORDER BY id LIMIT 4 FOR UPDATE) TO STDOUT;
-- What is refused.
--! refused
SELECT id FROM accounts ORDER BY id LIMIT (SELECT 1) FOR UPDATE;
--! refused
SELECT e.n, k.label FROM entries e LEFT JOIN kinds k ON k.kind = e.kind FOR UPDATE;
--! refused
SELECT e.account_id, e.n, k.label FROM entries e JOIN kinds k ON k.kind = e.kind ORDER BY 1, 2 FOR UPDATE;
--! refused
SELECT a.id FROM accounts a JOIN books b ON b.pages = a.id FOR UPDATE;
--! refused
SELECT id FROM active_accounts ORDER BY id FOR UPDATE;
--! refused
SELECT id FROM (SELECT * FROM accounts FOR UPDATE) a ORDER BY id;
--! refused
SELECT id FROM accounts ORDER BY name COLLATE "en-x-icu" FOR UPDATE;
--! refused
SELECT id FROM accounts ORDER BY id FETCH FIRST 2 ROWS WITH TIES FOR UPDATE;
--! refused
SELECT id FROM accounts ORDER BY id LIMIT (SELECT 2) FOR UPDATE;
UPDATE accounts SET note = 'next' WHERE id = (SELECT id FROM accounts ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED);
--! refused
EXPLAIN ANALYZE SELECT id FROM accounts ORDER BY id LIMIT 1 FOR UPDATE;
--! script
BEGIN;
--! refused
DECLARE c CURSOR FOR SELECT id FROM accounts ORDER BY id FOR UPDATE;
ROLLBACK;
--! end
--! script
BEGIN;
SELECT id FROM accounts WHERE id IN (SELECT account_id FROM orders WHERE total > 20) ORDER BY id LIMIT 2 FOR UPDATE;
UPDATE accounts SET note = 'taken' WHERE id = 1;
SELECT id, note FROM accounts WHERE note IN (SELECT note FROM accounts WHERE note = 'taken') ORDER BY id FOR UPDATE SKIP LOCKED;
COMMIT;
BEGIN READ ONLY;
SELECT id FROM accounts WHERE id IN (SELECT account_id FROM orders WHERE total > 20) ORDER BY id FOR UPDATE;
ROLLBACK;
--! end
