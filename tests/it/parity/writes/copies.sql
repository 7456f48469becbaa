-- Reference tables written from other tables: these are read first, and every copy gets the same.
UPDATE holidays SET note = v FROM source WHERE source.id = holidays.id AND source.tenant < 5;
UPDATE holidays AS h SET note = s.v || h.id, day = s.at FROM source s WHERE s.id = h.id RETURNING h.id, h.note, s.tenant;
UPDATE holidays SET note = k.name FROM kinds k WHERE k.id = holidays.id;
UPDATE holidays SET note = d.n FROM (SELECT other AS id, sum(n) AS n FROM deliveries GROUP BY other) d WHERE holidays.id = d.id;
UPDATE holidays SET note = c.note FROM (VALUES (1, 'one'), (2, 'two'), (50, 'fifty')) AS c (id, note) WHERE c.id = holidays.id RETURNING *;
UPDATE kinds SET name = c.column2 FROM (VALUES ('a', 'x'), ('b', 'y')) c WHERE kinds.name = c.column1;
UPDATE holidays SET note = (SELECT max(v) FROM source), day = (SELECT min(at) FROM source) WHERE id IN (SELECT tenant FROM source);
WITH s AS (SELECT id, v FROM source WHERE tenant = 3) UPDATE holidays SET note = s.v FROM s WHERE s.id = holidays.id;
DELETE FROM holidays USING source WHERE source.tenant = holidays.id;
DELETE FROM holidays h USING kinds k, deliveries d WHERE h.id = d.id AND d.line = k.id RETURNING h.id;
DELETE FROM holidays WHERE EXISTS (SELECT FROM deliveries WHERE n > 80) AND id > (SELECT min(id) FROM deliveries);
INSERT INTO holidays (id, note) SELECT 100 + id, v FROM source WHERE tenant = 2;
INSERT INTO holidays (id, note) SELECT tenant, max(v) FROM source GROUP BY tenant ON CONFLICT (id) DO UPDATE SET note = excluded.note || holidays.note RETURNING id, note;
INSERT INTO holidays SELECT 200 + h.id, h.at, h.day, k.name FROM holidays h JOIN kinds k ON k.id = h.id;
--! 5 | x
--! 1 | NULL
UPDATE holidays SET note = s.v || $2 FROM source s WHERE s.id = holidays.id AND s.tenant = $1;
--! script
BEGIN;
UPDATE holidays SET note = source.v FROM source WHERE source.id = holidays.id;
DELETE FROM holidays USING source WHERE source.id = holidays.id AND source.tenant = 1;
SELECT id, note FROM holidays ORDER BY id;
COMMIT;
--! end
-- A row that meets several takes one of them, which is found once for all copies.
UPDATE holidays SET note = 'of ' || s.tenant FROM source s WHERE s.tenant = holidays.id;
UPDATE holidays SET note = c.note FROM (VALUES (1, 'one'), (1, 'one')) AS c (id, note) WHERE c.id = holidays.id;
UPDATE holidays SET note = 'after' FROM (VALUES (1, 'one'), (2, 'two')) AS c (id, note) WHERE c.id < holidays.id RETURNING id, note;
UPDATE holidays SET note = source.v FROM source, kinds WHERE source.id = holidays.id AND kinds.id = holidays.id;
UPDATE holidays SET note = c.note || (random() < 2) FROM (VALUES (1, 'one'), (1, 'one')) AS c (id, note) WHERE c.id = holidays.id;
-- Which row a query finds first may differ too.
UPDATE holidays SET note = (SELECT v FROM source WHERE source.tenant = holidays.id ORDER BY v LIMIT 1);
-- MERGE: every copy gets the same source rows.
MERGE INTO holidays USING source ON source.id = holidays.id WHEN MATCHED THEN UPDATE SET note = source.v;
MERGE INTO holidays h USING source s ON s.id = h.id + 5 WHEN MATCHED AND s.tenant = 3 THEN DELETE WHEN MATCHED THEN UPDATE SET note = s.v, day = s.at WHEN NOT MATCHED AND s.id > 35 THEN INSERT (id, note) VALUES (s.id, s.v);
MERGE INTO holidays h USING kinds k ON k.id = h.id WHEN MATCHED THEN UPDATE SET note = k.name WHEN NOT MATCHED THEN INSERT VALUES (k.id, NULL, NULL, k.name);
MERGE INTO kinds USING (VALUES (1, 'x'), (9, 'y'), (10, NULL)) v (id, name) ON kinds.id = v.id WHEN MATCHED THEN UPDATE SET name = v.name WHEN NOT MATCHED AND v.name IS NOT NULL THEN INSERT (id, name) VALUES (v.id, v.name);
MERGE INTO holidays USING (SELECT what, length(what) AS n FROM ledger WHERE what = 'a') l ON holidays.id = l.n WHEN MATCHED THEN UPDATE SET note = l.what;
MERGE INTO holidays USING (SELECT NULL::int AS id, tenant FROM source WHERE id < 3 UNION ALL SELECT 1, 1) s ON s.id = holidays.id WHEN NOT MATCHED THEN INSERT (id, note) VALUES (100 + s.tenant, 'new') WHEN MATCHED AND holidays.note = 'day 1' THEN UPDATE SET note = 'old' WHEN MATCHED THEN DO NOTHING;
MERGE INTO holidays USING unnest(ARRAY[1, 50]) AS u (id) ON u.id = holidays.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, note) VALUES (u.id, (SELECT max(v) FROM source));
MERGE INTO holidays USING source s JOIN deliveries d ON d.id = s.id ON s.id = holidays.id + 10 WHEN MATCHED THEN UPDATE SET note = s.v || d.n;
WITH s AS (SELECT tenant AS id, count(*) AS n FROM source GROUP BY tenant) MERGE INTO holidays USING s ON s.id = holidays.id WHEN MATCHED THEN UPDATE SET note = s.n WHEN NOT MATCHED THEN INSERT (id, note) VALUES (s.id, s.n);
--! 5 | x
--! 500 | NULL
MERGE INTO holidays USING (SELECT id, v FROM source WHERE id >= $1) s ON s.id = holidays.id WHEN MATCHED THEN UPDATE SET note = $2 || v WHEN NOT MATCHED THEN INSERT (id, note) VALUES (s.id, $2);
--! 1 | one
--! 77 | NULL
MERGE INTO kinds USING (VALUES ($1::int, $2::text)) v (id, name) ON kinds.id = v.id WHEN MATCHED THEN UPDATE SET name = v.name WHEN NOT MATCHED THEN INSERT (id, name, is_late) VALUES (v.id, v.name, false);
--! script
BEGIN;
MERGE INTO holidays USING source s ON s.id = holidays.id WHEN MATCHED THEN UPDATE SET at = now(), day = current_date WHEN NOT MATCHED THEN INSERT (id, at) VALUES (s.id, now());
SELECT count(*), count(DISTINCT at), bool_and(at = now()), bool_and(day = current_date) FROM holidays;
MERGE INTO holidays USING (SELECT id + 50 AS id FROM holidays) h ON h.id = holidays.id WHEN NOT MATCHED THEN INSERT (id, note) VALUES (h.id, 'again') WHEN MATCHED THEN DELETE;
SELECT id, note FROM holidays ORDER BY id;
ROLLBACK;
--! end
-- PostgreSQL's own errors: no copy is changed.
MERGE INTO holidays USING source ON source.tenant = holidays.id WHEN MATCHED THEN UPDATE SET note = source.v;
MERGE INTO holidays USING (SELECT 50 AS id FROM source) s ON s.id = holidays.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id);
MERGE INTO kinds USING source s ON s.id = kinds.id WHEN NOT MATCHED AND s.id > 38 THEN INSERT (id, name) VALUES (s.id, NULLIF(s.v, 'v40'));
-- What each copy would make of it for itself.
--! refused
MERGE INTO kinds USING source s ON s.id = kinds.id WHEN NOT MATCHED AND s.id < 0 THEN INSERT (name) VALUES (s.v);
--! refused
MERGE INTO holidays USING source s ON s.id = holidays.id WHEN MATCHED THEN UPDATE SET note = random();
--! refused
MERGE INTO holidays USING source s ON s.id = holidays.id WHEN MATCHED THEN UPDATE SET note = (SELECT v FROM source WHERE source.tenant = holidays.id LIMIT 1);
