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
-- A row that meets several takes one of them, and on each copy it might be another.
--! refused
UPDATE holidays SET note = s.v FROM source s WHERE s.tenant = holidays.id;
--! refused
UPDATE holidays SET note = c.note FROM (VALUES (1, 'one'), (1, 'two')) AS c (id, note) WHERE c.id = holidays.id;
--! refused
UPDATE holidays SET note = c.note FROM (VALUES (1, 'one'), (2, 'two')) AS c (id, note) WHERE c.id < holidays.id;
--! refused
UPDATE holidays SET note = source.v FROM source, kinds WHERE source.id = holidays.id AND kinds.id = holidays.id;
-- Which row a query finds first may differ too.
UPDATE holidays SET note = (SELECT v FROM source WHERE source.tenant = holidays.id ORDER BY v LIMIT 1);
--! refused
MERGE INTO holidays USING source ON source.id = holidays.id WHEN MATCHED THEN UPDATE SET note = source.v;
