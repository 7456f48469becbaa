INSERT INTO events (tenant, at, id) VALUES (1, '2020-01-05', 5000), (2, '2020-02-05', 5001), (17, '2020-02-06', 5002);
--! any order
INSERT INTO events (tenant, at, note) VALUES (1, '2020-01-05', 'a'), (2, '2020-02-05', 'b'), (17, '2020-02-06', 'c') RETURNING *;
--! any order
INSERT INTO events_jan (tenant, at, note) VALUES (1, '2020-01-05', 'a'), (2, '2020-01-06', 'b') RETURNING *;
-- No partition for it, and a row that is another partition's.
INSERT INTO events (tenant, at, id) VALUES (1, '2021-01-05', 5000);
INSERT INTO events (tenant, at, id) VALUES (1, '2020-01-05', 5000), (2, '2021-01-05', 5000);
INSERT INTO events_jan (tenant, at, id) VALUES (1, '2020-02-05', 5000);
INSERT INTO events_feb_few (tenant, at, id) VALUES (9, '2020-02-05', 5000);
-- A key that is there, by its own partition's constraint.
INSERT INTO events (tenant, at, id) VALUES (8, '2020-01-29', 7), (8, '2020-01-29', 5000);
INSERT INTO events (tenant, at, id, n) SELECT tenant, at, id, n FROM events WHERE n = 1 ON CONFLICT DO NOTHING;
--! any order
INSERT INTO events (tenant, at, id, n) VALUES (8, '2020-01-29', 7, 100), (3, '2020-02-02', 5000, 1) ON CONFLICT (tenant, at, id) DO UPDATE SET n = excluded.n + 1 RETURNING *;
INSERT INTO events SELECT tenant, at + 1, id + 5000, n, note FROM events_jan WHERE at < '2020-01-20';
INSERT INTO events SELECT tenant + 1, at, id + 5000, n, note FROM events_feb;
UPDATE events SET note = 'x' WHERE at < '2020-01-10';
UPDATE events_feb SET n = n + 1 WHERE tenant IN (1, 2, 15);
--! any order
UPDATE events SET n = 0 WHERE id % 10 = 1 RETURNING tenant, id, n;
-- Rows that go to another partition of their shard, or to none.
UPDATE events SET at = at + 25 WHERE at BETWEEN '2020-01-10' AND '2020-01-15' AND id % 3 <> 0;
UPDATE events SET at = at + 100 WHERE id = 1;
UPDATE events_jan SET at = at + 25 WHERE at = '2020-01-29';
UPDATE events e SET note = t.name FROM tenants t WHERE t.id = e.tenant AND t.id < 4;
UPDATE events e SET n = s.v FROM slices s WHERE s.tenant = e.n AND s.region = 'a';
UPDATE events SET n = (SELECT max(n) FROM events_feb) WHERE id < 10;
DELETE FROM events WHERE at = '2020-01-08';
DELETE FROM events_feb_rest WHERE n IN (SELECT v::int FROM slices WHERE region = 'b');
DELETE FROM events WHERE id IN (SELECT id FROM events ORDER BY at, id LIMIT 10);
--! any order
DELETE FROM events_jan USING tenants t WHERE t.id = tenant AND t.name LIKE '%1' RETURNING id, name;
-- Parts of a statement that write partitioned tables.
WITH gone AS (DELETE FROM events_jan WHERE tenant < 6 RETURNING *) INSERT INTO archive SELECT * FROM gone;
WITH gone AS (DELETE FROM events WHERE note IS NOT NULL AND at < '2020-02-10' RETURNING *) INSERT INTO archive SELECT * FROM gone;
--! any order
WITH gone AS (DELETE FROM events WHERE id < 12 RETURNING tenant, at, id, n) INSERT INTO marks SELECT tenant, at, id + 50000, n FROM gone RETURNING tenant, event, mark;
WITH gone AS (DELETE FROM marks RETURNING *) INSERT INTO events (tenant, at, id, n, note) SELECT tenant, '2020-01-15', event + 70000, mark, 'back' FROM gone;
WITH up AS (UPDATE events SET n = n + 1 WHERE id < 20 RETURNING id) INSERT INTO events (tenant, at, id, note) SELECT 5, '2020-02-20', 80000 + id, 'twice' FROM up;
--! any order
WITH gone AS (DELETE FROM events_feb WHERE n > 3 RETURNING *) SELECT tenant, count(*), max(id) FROM gone GROUP BY tenant;
--! refused
WITH gone AS (DELETE FROM events_jan WHERE tenant < 6 RETURNING *) INSERT INTO events SELECT tenant, '2020-02-11', id, n, note FROM gone;
--! refused
WITH gone AS (DELETE FROM events_jan WHERE tenant < 6 RETURNING *) INSERT INTO archive SELECT g.tenant, g.at, g.id, e.n FROM gone g JOIN events e ON e.n = g.n;
--! refused
WITH gone AS (DELETE FROM events WHERE tenant < 6 RETURNING *) INSERT INTO marks SELECT g.tenant, g.at, g.id, f.n FROM gone g JOIN events_feb_few f ON f.n = g.n;
MERGE INTO events USING (VALUES (8, date '2020-01-29', 7), (2, '2020-02-05', 8)) v (t, a, i) ON tenant = t AND at = a AND id = i WHEN MATCHED THEN UPDATE SET n = -1 WHEN NOT MATCHED THEN INSERT (tenant, at, id, note) VALUES (t, a, i, 'merged');
TRUNCATE events_jan CASCADE;
TRUNCATE marks;
TRUNCATE events, marks;
TRUNCATE slices_0;
COPY events (tenant, at, note) FROM STDIN;
1	2020-01-05	one
2	2020-02-05	two
17	2020-02-06	three
\.
COPY events_feb (tenant, at, id) FROM STDIN;
1	2020-02-05	6000
17	2020-02-06	6001
\.
COPY events (tenant, at, id) FROM STDIN;
1	2020-02-05	6000
17	2021-02-06	6001
\.
INSERT INTO slices VALUES ('a', 100, 1), ('b', 101, 2), ('c', 102, 3);
UPDATE slices SET region = 'z' WHERE tenant < 4 AND region = 'a';
--! refused
UPDATE events SET tenant = tenant + 1 WHERE n = 4;
-- Partitions come and go.
--! script
CREATE TABLE events_mar PARTITION OF events FOR VALUES FROM ('2020-03-01') TO ('2020-04-01');
INSERT INTO events (tenant, at, id) SELECT i, '2020-03-05', 7000 + i FROM generate_series(1, 20) i;
SELECT count(*) FROM events_mar;
SELECT count(*) FROM events;
CREATE INDEX ON events (note);
ALTER TABLE events ADD COLUMN extra int NOT NULL DEFAULT 3;
SELECT sum(extra) FROM events_mar;
ALTER TABLE events_mar RENAME TO events_third;
SELECT sum(extra) FROM events_third;
ALTER TABLE events_third ADD CHECK (n > 6);
INSERT INTO events (tenant, at, id, n) VALUES (3, '2020-03-05', 7999, 1);
DROP TABLE events_third;
SELECT count(*) FROM events;
ALTER TABLE events DROP COLUMN extra;
--! end
-- Keys that refer to a partitioned table, also to the partitions that come later.
--! script
ALTER TABLE marks ADD CONSTRAINT marks_event FOREIGN KEY (tenant, at, event) REFERENCES events ON DELETE CASCADE;
INSERT INTO marks VALUES (1, '2020-01-05', 999999, 1);
DELETE FROM events WHERE id % 6 = 0;
SELECT count(*), sum(mark) FROM marks;
CREATE TABLE events_apr PARTITION OF events FOR VALUES FROM ('2020-04-01') TO ('2020-05-01');
INSERT INTO events (tenant, at, id) VALUES (3, '2020-04-05', 8000), (4, '2020-04-05', 8000);
INSERT INTO marks VALUES (3, '2020-04-05', 8000, 1), (4, '2020-04-05', 8000, 1);
INSERT INTO marks VALUES (5, '2020-04-05', 8000, 1);
TRUNCATE events_jan;
TRUNCATE events_jan CASCADE;
SELECT count(*) FROM marks;
ALTER TABLE marks DROP CONSTRAINT marks_event;
DROP TABLE events_apr;
--! end
