-- Rows of a temporary table written to tables of several shards.
--! script
CREATE TEMP TABLE ids (id int, note text);
COPY ids FROM STDIN;
101	a
102	b
103	c
104	\N
105	e
\.
INSERT INTO people (id, name, age) SELECT id, note, id - 80 FROM ids;
INSERT INTO posts (person_id, n, tag, words) SELECT i.id, g, 'tag', p.age FROM ids i JOIN people p USING (id) CROSS JOIN generate_series(1, 2) g RETURNING person_id, n, doubled;
INSERT INTO people (id, name) SELECT id, note FROM ids ON CONFLICT (id) DO UPDATE SET name = 'again ' || excluded.name;
INSERT INTO people (id, name) SELECT id, note FROM ids ON CONFLICT DO NOTHING;
INSERT INTO people (id, name) SELECT id, note FROM ids;
SELECT id, name, age FROM people WHERE id > 100 ORDER BY id;
UPDATE people p SET name = i.note FROM ids i WHERE i.id = p.id RETURNING p.id, p.name, i.note;
UPDATE people SET age = age + 1 WHERE id IN (SELECT id FROM ids WHERE note > 'a');
UPDATE people p SET email = (SELECT max(note) FROM ids i WHERE i.id <= p.id) WHERE id > 90;
SELECT id, name, age, email FROM people WHERE id > 100 ORDER BY id;
DELETE FROM posts USING ids WHERE ids.id = posts.person_id AND posts.n = 1;
DELETE FROM posts WHERE person_id IN (SELECT id FROM ids) RETURNING person_id, n;
DELETE FROM people p WHERE EXISTS (SELECT FROM ids i WHERE i.id = p.id AND i.note IS NOT NULL);
DELETE FROM people WHERE id > 100 AND id NOT IN (SELECT id FROM ids WHERE id < 104);
SELECT count(*), max(id) FROM people;
SELECT count(*) FROM posts;
--! end
-- Rows of several shards written to a temporary table.
--! script
CREATE TEMP TABLE found (id int, n bigint);
INSERT INTO found SELECT person_id, count(*) FROM posts GROUP BY person_id;
SELECT count(*), sum(n) FROM found;
INSERT INTO found SELECT p.id, 0 FROM people p LEFT JOIN found f USING (id) WHERE f.id IS NULL RETURNING id;
UPDATE found SET n = -1 WHERE id IN (SELECT id FROM people WHERE age > 40);
UPDATE found f SET n = p.age FROM people p WHERE p.id = f.id AND p.age < 20;
DELETE FROM found USING people p WHERE p.id = found.id AND p.level = 'low';
DELETE FROM found WHERE id NOT IN (SELECT id FROM people);
SELECT id, n FROM found ORDER BY id;
BEGIN;
UPDATE people SET age = 50 WHERE id < 9;
INSERT INTO found SELECT id, age FROM people WHERE age = 50;
SELECT f.id, p.age FROM found f JOIN people p USING (id) WHERE f.n = 50 ORDER BY 1;
ROLLBACK;
SELECT count(*) FROM found;
--! end
-- In a transaction, with what it has not committed.
--! script
CREATE TEMP TABLE ids (id int, note text);
BEGIN;
INSERT INTO ids SELECT g, 'n' || g FROM generate_series(201, 209) g;
INSERT INTO people (id, name) SELECT id, note FROM ids;
SELECT p.id, p.name FROM people p JOIN ids USING (id) ORDER BY 1;
SAVEPOINT a;
UPDATE people p SET name = 'x' FROM ids i WHERE i.id = p.id;
SELECT count(*) FROM people WHERE name = 'x';
ROLLBACK TO a;
DELETE FROM people p USING ids i WHERE i.id = p.id AND i.id > 205;
COMMIT;
SELECT p.id, p.name FROM people p JOIN ids USING (id) ORDER BY 1;
DELETE FROM people WHERE id IN (SELECT id FROM ids);
SELECT count(*) FROM people;
MERGE INTO people p USING ids i ON p.id = i.id WHEN MATCHED THEN UPDATE SET name = i.note WHEN NOT MATCHED THEN INSERT (id, name) VALUES (i.id, i.note);
SELECT p.id, p.name FROM people p JOIN ids USING (id) ORDER BY 1;
CREATE TEMP TABLE gone_ids (id int, why text);
BEGIN;
--! refused
WITH gone AS (DELETE FROM people WHERE id IN (SELECT id FROM ids) RETURNING id) INSERT INTO gone_ids SELECT id, 'gone' FROM gone;
ROLLBACK;
WITH gone AS (DELETE FROM people WHERE id IN (SELECT id FROM ids) RETURNING id, name) INSERT INTO shop.people SELECT id, name FROM gone;
SELECT s.id, s.name, i.note FROM shop.people s JOIN ids i USING (id) ORDER BY 1;
DELETE FROM shop.people s USING ids i WHERE i.id = s.id RETURNING s.id, i.note;
SELECT count(*) FROM people;
--! end
-- NULLs, a table of the name of what is written, collations, types of users, and rows that several statements are needed for.
--! script
CREATE TEMP TABLE ids (id int, word text COLLATE "en-x-icu", level level, home place, "Odd ""T" text);
INSERT INTO ids VALUES (1, 'ada', 'high', ROW('x, "y"', 1), 'a'), (NULL, 'Zoë', NULL, NULL, NULL), (30, 'bob', 'low', ROW(NULL, 2), '');
BEGIN;
DELETE FROM people WHERE id NOT IN (SELECT id FROM ids);
DELETE FROM people WHERE id NOT IN (SELECT id FROM ids WHERE id IS NOT NULL) AND id < 5;
UPDATE people p SET level = i.level, home = i.home, email = i."Odd ""T" FROM ids i WHERE i.id = p.id;
SELECT id, level, home, email FROM people WHERE id IN (1, 30) ORDER BY id;
UPDATE people SET age = 1 WHERE name IN (SELECT word FROM ids);
UPDATE people SET age = 2 WHERE name < ALL (SELECT word FROM ids WHERE id IS NOT NULL);
SELECT id, name, age FROM people WHERE age < 3 ORDER BY id;
UPDATE posts o SET title = (SELECT max(word) FROM ids WHERE id >= o.n) WHERE person_id IN (SELECT id FROM ids);
SELECT person_id, n, title FROM posts WHERE person_id = 1 ORDER BY n;
CREATE TEMP TABLE people (id int, name text);
INSERT INTO people SELECT id, name FROM public.people WHERE age < 3;
UPDATE people p SET name = q.name || '!' FROM public.people q WHERE q.id = p.id AND q.id > 3;
INSERT INTO public.people (id, name) SELECT id + 500, name FROM people;
DELETE FROM people WHERE id IN (SELECT id FROM public.people WHERE id > 20);
SELECT * FROM people ORDER BY id;
SELECT id, name FROM public.people WHERE id > 500 ORDER BY id;
ROLLBACK;
CREATE TEMP TABLE many AS SELECT 1000 + g AS id, repeat('w', g % 50) AS name FROM generate_series(1, 3000) g;
INSERT INTO people (id, name) SELECT id, name FROM many;
SELECT count(*), sum(length(p.name)), count(p.name = m.name OR NULL) FROM people p JOIN many m USING (id);
DELETE FROM people USING many WHERE many.id = people.id;
SELECT count(*) FROM people;
INSERT INTO notes SELECT p.id + 1000, p.id, m.name FROM people p JOIN many m ON m.id = p.id + 1000;
DELETE FROM notes n USING many m WHERE m.id = n.id RETURNING n.person_id;
--! end
