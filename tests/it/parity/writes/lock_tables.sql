-- LOCK TABLE: on every shard, in the client's transaction.
LOCK TABLE stock;
LOCK TABLE ONLY kinds IN SHARE MODE NOWAIT;
LOCK TABLE nothing;
--! script
BEGIN;
LOCK TABLE stock IN SHARE ROW EXCLUSIVE MODE;
LOCK stock, kinds, ledger IN ACCESS SHARE MODE NOWAIT;
LOCK TABLE ONLY kinds;
UPDATE stock SET n = n + 1;
SELECT count(*), sum(n) FROM stock;
SELECT s.id, d.n FROM stock s JOIN deliveries d ON d.other = s.id ORDER BY 1, 2;
COMMIT;
SELECT sum(n) FROM stock;
--! end
-- What is locked is read by the transaction that has locked it.
--! script
BEGIN;
LOCK TABLE ledger IN ACCESS EXCLUSIVE MODE;
SELECT l.what, s.n FROM ledger l, stock s WHERE s.n < 40 ORDER BY 1, 2;
SELECT count(*) FROM ledger;
SELECT s.n, (SELECT max(what) FROM ledger) FROM stock s WHERE s.n < (SELECT avg(n) FROM stock) ORDER BY 1;
ROLLBACK;
BEGIN;
LOCK TABLE stock;
SELECT s.n, d.n FROM stock s FULL JOIN deliveries d ON d.other = s.n ORDER BY 1, 2;
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY n) FROM stock;
COMMIT;
BEGIN;
LOCK TABLE kinds;
SELECT k.name, count(*) FROM kinds k LEFT JOIN stock s ON s.n = k.id * 10 GROUP BY 1 ORDER BY 1;
UPDATE kinds SET name = name || '!' WHERE id = 1;
SELECT k.name, s.n FROM kinds k JOIN stock s ON s.n = k.id * 10 ORDER BY 1, 2;
ROLLBACK;
--! end
--! script
BEGIN;
SAVEPOINT a;
LOCK TABLE stock, nothing;
ROLLBACK TO a;
LOCK TABLE stock IN EXCLUSIVE MODE;
ROLLBACK TO a;
INSERT INTO stock VALUES (77, 1, 'after');
COMMIT;
BEGIN READ ONLY;
LOCK TABLE stock IN ACCESS SHARE MODE;
SELECT count(*) FROM stock;
LOCK TABLE stock IN SHARE MODE;
ROLLBACK;
--! end
