-- EXECUTE of writes over several shards, in the extended protocol too.
--! also binary
--! script
PREPARE up(int, text) AS UPDATE stock SET n = n + $1, note = $2 WHERE id < 9 RETURNING id, n, note;
--! any order
EXECUTE up(5, 'more');
--! any order
EXECUTE up(2 + 3, upper('x'));
EXECUTE up(-25, 'less');
EXECUTE up('a', 'b');
PREPARE ins(int, text) AS INSERT INTO items (tenant, v) VALUES ($1, $2), ($1 + 1, $2), ($1, upper($2)) RETURNING id, tenant, v, day;
EXECUTE ins(1, 'x');
EXECUTE ins(1, 'x');
SELECT lastval(), currval('items_id_seq');
PREPARE one AS INSERT INTO lines (tenant, v) VALUES ($1, $2) RETURNING tenant, id;
EXECUTE one(77, 'seven');
SELECT lastval();
PREPARE sel AS INSERT INTO lines (tenant, v) SELECT id, v FROM source WHERE id < $1 ORDER BY id RETURNING tenant, id, is_late;
EXECUTE sel(4);
PREPARE mrg(int) AS MERGE INTO stock USING deliveries d ON stock.id = d.id WHEN MATCHED THEN UPDATE SET n = $1 WHEN NOT MATCHED AND d.line = 1 THEN INSERT VALUES (d.id, $1);
EXECUTE mrg(3);
PREPARE nxt AS SELECT nextval('items_id_seq') + $1 AS n;
EXECUTE nxt(0);
PREPARE ref(text) AS INSERT INTO kinds (name) VALUES ($1) RETURNING id, name;
EXECUTE ref('k');
SELECT count(*), sum(n) FROM stock;
--! end
--! script
BEGIN;
PREPARE up(int) AS UPDATE stock SET n = n + $1;
EXECUTE up(1);
SAVEPOINT s;
EXECUTE up(-15);
ROLLBACK TO s;
EXECUTE up(1);
COMMIT;
SELECT sum(n) FROM stock;
--! end
