-- Keys of what is loaded before restrict the side of an outer join that is extended by NULLs, never the one that is kept.
SELECT p.id, o.id, o.total FROM people p LEFT JOIN shop.orders o ON o.person_id = p.id WHERE p.age = 31 ORDER BY 1, 2;
SELECT p.id, o.id, o.total FROM shop.orders o RIGHT JOIN people p ON o.person_id = p.id WHERE p.age IN (17, 31) ORDER BY 1, 2;
SELECT p.id, o.id FROM people p LEFT JOIN shop.orders o ON o.person_id = p.id AND p.age = 31 ORDER BY 1, 2;
SELECT p.id, o.id FROM shop.orders o LEFT JOIN people p ON p.id = o.person_id AND p.age < 20 ORDER BY 2;
SELECT p.id, o.id FROM shop.orders o LEFT JOIN people p ON p.id = o.person_id WHERE p.age < 20 OR p.id IS NULL ORDER BY 2;
SELECT p.id FROM people p LEFT JOIN shop.orders o ON o.person_id = p.id AND o.total > 50 WHERE o.id IS NULL AND p.age > 30 ORDER BY 1;
SELECT p.id FROM people p LEFT JOIN shop.orders o ON o.person_id = p.id WHERE o.id IS NULL AND p.age = 31 ORDER BY 1;
SELECT p.id, o.id, i.n FROM people p LEFT JOIN (shop.orders o JOIN shop.items i ON i.order_id = o.id) ON o.person_id = p.id WHERE p.age > 55 ORDER BY 1, 2, 3;
SELECT p.id, o.id, i.n FROM people p LEFT JOIN (shop.orders o LEFT JOIN shop.items i ON i.order_id = o.person_id) ON i.amount = p.boss WHERE p.age > 55 ORDER BY 1, 2, 3;
SELECT p.id, s.id, o.id FROM people p LEFT JOIN shop.people s ON s.id = p.id AND s.nick = 'bob' LEFT JOIN shop.orders o ON o.person_id = s.id WHERE p.age > 30 ORDER BY 1, 2, 3;
SELECT p.id, s.id, o.id FROM people p LEFT JOIN shop.people s ON s.id = p.id JOIN shop.orders o ON o.person_id = s.id WHERE s.nick = 'bob' ORDER BY 1, 2, 3;
SELECT p.id, s.id, o.id FROM people p LEFT JOIN shop.people s ON s.id = p.id AND s.nick = 'bob' JOIN shop.orders o ON o.person_id = s.id ORDER BY 1, 2, 3;
SELECT s.sku, i.order_id, p.id FROM skus s LEFT JOIN shop.items i ON i.sku = s.sku LEFT JOIN people p ON p.id = i.order_id WHERE s.price < 3 ORDER BY 1, 2, 3;
SELECT p.id, q.n, o.id FROM people p LEFT JOIN posts q ON q.person_id = p.id JOIN shop.orders o ON o.id = p.boss WHERE p.age < 25 ORDER BY 1, 2, 3;
SELECT count(*), sum(o.id) FROM people p FULL JOIN shop.orders o ON o.person_id = p.id AND p.age = 31;
SELECT count(*), sum(o.id) FROM people p FULL JOIN shop.orders o ON o.person_id = p.id WHERE p.age = 31 OR p.id IS NULL;
SELECT count(*), count(s.id), sum(o.id) FROM (people p FULL JOIN shop.people s ON s.id = p.id) LEFT JOIN shop.orders o ON o.person_id = p.id AND p.age = 31;
-- Semi-joins; anti-joins, and sub-selects that have a row whatever they find.
SELECT o.id FROM shop.orders o WHERE EXISTS (SELECT 1 FROM people p WHERE p.id = o.person_id AND p.age = 31) ORDER BY 1;
SELECT o.id FROM shop.orders o WHERE EXISTS (SELECT * FROM people p WHERE o.person_id = p.id AND p.age IN (17, 31)) AND o.total > 10 ORDER BY 1;
SELECT o.id FROM shop.orders o WHERE NOT EXISTS (SELECT 1 FROM people p WHERE p.id = o.person_id AND p.age = 31) ORDER BY 1;
-- The q of an inner ON is not the table beside the join.
SELECT (SELECT count(*) FROM edges q JOIN (people a JOIN posts b ON a.boss = b.n AND a.boss = q.target) ON true WHERE q.source = 5) FROM (SELECT 2 AS target) q;
SELECT (SELECT count(*) FROM edges q, people a JOIN posts b ON a.boss = b.n AND a.boss = q.target WHERE q.source = 5) FROM (SELECT 2 AS target) q;
SELECT (SELECT count(*) FROM edges, people a JOIN posts b ON a.boss = b.n AND a.boss = target WHERE source = 5) FROM (SELECT 2 AS target) q;
SELECT (SELECT count(*) FROM (SELECT target FROM edges WHERE source = 5) q, people a JOIN posts b ON a.boss = b.n AND a.boss = q.target) FROM (SELECT 2 AS target) q;
SELECT q.source, (SELECT count(*) FROM edges q, people a JOIN posts b ON a.boss = b.n AND a.boss = q.target WHERE q.source = 5) FROM edges q WHERE q.target IN (2, 3) ORDER BY 1;
SELECT o.id FROM shop.orders o WHERE EXISTS (SELECT 1 FROM people p WHERE p.id = o.person_id AND p.age = 31) OR o.total < 20 ORDER BY 1;
SELECT o.id FROM shop.orders o WHERE EXISTS (SELECT 1 FROM people p WHERE p.id = o.person_id AND p.age = 31) IS NOT TRUE ORDER BY 1;
SELECT count(*) FROM shop.orders o WHERE EXISTS (SELECT count(*) FROM people p WHERE p.id = o.person_id AND p.age = 31);
SELECT count(*) FROM shop.orders o WHERE EXISTS (SELECT max(p.age) FROM people p WHERE p.id = o.person_id AND p.age = 31);
SELECT count(*) FROM shop.orders o WHERE EXISTS (SELECT 1 FROM people p WHERE p.id = o.person_id AND p.age = 31 LIMIT 0);
SELECT count(*) FROM shop.orders o WHERE EXISTS (SELECT 1 FROM people p WHERE p.id = o.person_id AND p.age = 31 UNION SELECT 2);
SELECT count(*) FROM shop.orders o WHERE EXISTS (SELECT 1 FROM shop.people s LEFT JOIN people p ON p.id = o.person_id AND p.age = 31 WHERE s.id < 25);
SELECT o.id FROM shop.orders o WHERE EXISTS (SELECT 1 FROM shop.people s JOIN people p ON p.id = o.person_id AND p.age = 31 WHERE s.id < 25) ORDER BY 1;
SELECT o.id FROM shop.orders o WHERE o.person_id IN (SELECT p.id FROM people p WHERE p.boss < o.id AND p.age = 31) ORDER BY 1;
SELECT o.id FROM shop.orders o WHERE o.total > ANY (SELECT p.worth FROM people p WHERE p.id = o.person_id AND p.age = 31) ORDER BY 1;
SELECT count(*) FROM shop.orders o WHERE o.total > ALL (SELECT p.worth FROM people p WHERE p.id = o.person_id AND p.age = 31);
SELECT count(*) FROM shop.orders o WHERE o.person_id NOT IN (SELECT p.id FROM people p WHERE p.age = 31);
SELECT count(*) FROM shop.orders o WHERE o.person_id NOT IN (SELECT p.boss FROM people p WHERE p.age < 20);
SELECT p.id, o.id FROM people p LEFT JOIN shop.orders o ON o.person_id = p.id AND EXISTS (SELECT 1 FROM shop.people s WHERE s.id = o.id AND s.nick = 'bob') ORDER BY 1, 2;
-- USING, also where it has merged columns of several tables.
SELECT person_id, o.n, s.id FROM posts o JOIN shop.orders s USING (person_id) WHERE o.words = 11 OR o.words = 31 ORDER BY 1, 2, 3;
SELECT person_id, o.n, s.id FROM posts o LEFT JOIN shop.orders s USING (person_id) WHERE o.words IN (11, 31, 22) ORDER BY 1, 2, 3;
SELECT person_id, o.n, s.id FROM posts o RIGHT JOIN shop.orders s USING (person_id) WHERE s.id IN (1, 2, 38) ORDER BY 3, 2;
SELECT id, p.age, s.nick, o.total FROM people p FULL JOIN shop.people s USING (id) JOIN shop.orders o USING (id) WHERE o.id IN (3, 24, 40) ORDER BY 1;
SELECT id, p.age, s.nick, o.total FROM people p LEFT JOIN shop.people s USING (id) JOIN shop.orders o USING (id) WHERE s.nick = 'bob' ORDER BY 1;
SELECT id, p.age, s.nick, o.total FROM people p JOIN shop.people s USING (id) JOIN shop.orders o USING (id) WHERE s.nick = 'bob' ORDER BY 1;
SELECT id, p.age, s.nick, o.total FROM people p RIGHT JOIN shop.people s USING (id) LEFT JOIN shop.orders o USING (id) WHERE s.id > 40 OR p.age = 31 ORDER BY 1;
SELECT count(*), sum(o.id) FROM people p NATURAL JOIN (SELECT id, nick FROM shop.people) s JOIN shop.orders o USING (id) WHERE nick = 'bob';
-- The alias of USING is a name of the join's own level.
SELECT (SELECT count(*) FROM posts p JOIN shop.items i USING (n) AS q WHERE q.n = i.amount) FROM posts q WHERE q.person_id = 2 AND q.n = 1;
SELECT (SELECT count(*) FROM posts p LEFT JOIN shop.items i USING (n) AS q WHERE q.n = p.person_id) FROM posts q WHERE q.person_id = 2 AND q.n = 1;
SELECT (SELECT count(*) FROM (posts p JOIN shop.items i USING (n) AS q) JOIN skus s ON q.n = i.amount AND s.sku = i.sku) FROM posts q WHERE q.person_id = 2 AND q.n = 1;
SELECT (SELECT count(*) FROM posts p JOIN shop.items i USING (n) AS q WHERE i.amount IN (SELECT q.n)) FROM posts q WHERE q.person_id = 2 AND q.n = 1;
SELECT count(*) FROM posts p JOIN shop.items i USING (n) AS q JOIN people o ON o.id = q.n AND o.age = 17;
SELECT x.id, (SELECT count(*) FROM posts o JOIN shop.orders s USING (person_id) WHERE person_id = o.n) FROM notes x WHERE x.person_id = 8;
SELECT x.id FROM notes x WHERE x.id = 2 AND EXISTS (SELECT 1 FROM posts o JOIN shop.orders s USING (person_id) WHERE person_id = o.n AND o.n = 3);
-- Tables of the home shard.
SELECT p.id, n.body FROM people p JOIN notes n ON n.person_id = p.id WHERE n.id IN (2, 3) ORDER BY 1;
SELECT o.id, p.id, n.id FROM shop.orders o, notes n, people p WHERE n.id < 4 AND p.id = n.person_id AND o.person_id = p.id ORDER BY 1, 2, 3;
SELECT o.id FROM shop.orders o WHERE o.person_id IN (SELECT person_id FROM notes WHERE id < 4) ORDER BY 1;
SELECT count(*) FROM shop.orders o WHERE o.person_id NOT IN (SELECT person_id FROM notes WHERE id < 4);
SELECT n.id, o.id FROM ONLY notes n LEFT JOIN shop.orders o ON o.person_id = n.person_id WHERE n.id BETWEEN 2 AND 4 ORDER BY 1, 2;
SELECT n.id, m.id, o.id FROM notes n JOIN shop.orders o ON o.person_id = n.person_id JOIN notes m ON m.id = o.id WHERE n.id < 9 AND m.id > 2 ORDER BY 1, 2, 3;
SELECT e.id, p.id FROM events e JOIN people p ON p.boss = e.id WHERE e.what = 'event 3' ORDER BY 1, 2;
SELECT e.id, o.id FROM events_old e JOIN shop.orders o ON o.person_id = e.id WHERE e.day < '2023-08-01' ORDER BY 1, 2;
SELECT p.id FROM people p, notes n WHERE p.id = n.person_id AND n.id = 77;
SELECT name, body FROM noted WHERE body = 'note 3';
SELECT o.id, b.body FROM shop.orders o JOIN note_bodies b ON b.id = o.person_id WHERE b.body = 'note 6' ORDER BY 1;
-- Sub-selects and WITH queries in FROM that hand on a column.
SELECT o.id, d.who FROM (SELECT id AS who, age FROM people WHERE age > 30 ORDER BY age DESC, id LIMIT 3) d JOIN shop.orders o ON o.person_id = d.who ORDER BY 1;
SELECT o.id, d.who FROM (SELECT id + 1 AS who, id FROM people WHERE age > 50) d JOIN shop.orders o ON o.person_id = d.who ORDER BY 1, 2;
SELECT o.id, d.w FROM (SELECT id, boss FROM people WHERE age > 50) d (w, id) JOIN shop.orders o ON o.person_id = d.id ORDER BY 1, 2;
SELECT o.id, d.id FROM (SELECT boss AS id FROM people WHERE age > 50) d JOIN shop.orders o ON o.person_id = d.id ORDER BY 1, 2;
SELECT o.id FROM (SELECT * FROM (SELECT * FROM people WHERE age = 31) e) d JOIN shop.orders o ON o.person_id = d.id ORDER BY 1;
SELECT o.id, d.id FROM shop.orders o LEFT JOIN (SELECT * FROM people WHERE age = 31) d ON o.person_id = d.id ORDER BY 1;
SELECT o.id, d.id FROM (SELECT * FROM people WHERE age > 50) d LEFT JOIN shop.orders o ON o.person_id = d.id ORDER BY 2, 1;
WITH d AS (SELECT * FROM people WHERE age = 31) SELECT o.id, d.id FROM shop.orders o JOIN d ON d.id = o.person_id ORDER BY 1;
WITH d AS (SELECT boss FROM people WHERE age > 55) SELECT o.id, (SELECT count(*) FROM d) FROM shop.orders o JOIN d ON d.boss = o.person_id ORDER BY 1;
WITH d AS (SELECT id FROM people WHERE age > 55), e AS (SELECT d.id FROM d) SELECT o.id FROM shop.orders o JOIN e x ON x.id = o.person_id ORDER BY 1;
WITH d AS (SELECT id FROM people WHERE age > 55 UNION SELECT 3) SELECT o.id FROM shop.orders o JOIN d ON d.id = o.person_id ORDER BY 1;
WITH d (x, id) AS (SELECT id, boss FROM people WHERE age > 55) SELECT o.id FROM shop.orders o JOIN d ON d.id = o.person_id ORDER BY 1;
WITH people AS (SELECT boss AS id FROM people WHERE age > 50) SELECT o.id FROM shop.orders o JOIN people ON people.id = o.person_id ORDER BY 1;
WITH RECURSIVE d AS (SELECT id, boss FROM people WHERE age = 31 UNION SELECT p.id, p.boss FROM people p JOIN d ON p.id = d.boss) SELECT o.id FROM shop.orders o JOIN d ON d.id = o.person_id ORDER BY 1;
SELECT o.id FROM shop.orders o WHERE o.person_id IN (SELECT d.id FROM (SELECT id FROM people WHERE age > 55 LIMIT 100) d) ORDER BY 1;
SELECT p.id, (SELECT count(*) FROM (SELECT boss AS id FROM people WHERE age > 50) d WHERE d.id = p.id) FROM people p ORDER BY 1;
-- Those that the shards compute.
SELECT o.id FROM shop.orders o WHERE o.person_id IN (SELECT p.id FROM people p JOIN posts q ON q.person_id = p.id WHERE q.words IN (11, 31, 52) GROUP BY p.id) ORDER BY 1;
SELECT o.id, d.who, d.n FROM shop.orders o JOIN (SELECT boss AS who, count(*) AS n FROM people WHERE age > 40 GROUP BY boss) d ON d.who = o.person_id ORDER BY 1;
SELECT o.id, d.who, d.n FROM shop.orders o LEFT JOIN (SELECT boss AS who, count(*) AS n FROM people WHERE age > 40 GROUP BY boss) d ON d.who = o.person_id ORDER BY 1;
SELECT d.who, d.n, o.id FROM (SELECT boss AS who, count(*) AS n FROM people WHERE age = 31 GROUP BY boss) d LEFT JOIN shop.orders o ON d.who = o.person_id ORDER BY 1, 3;
WITH d AS (SELECT DISTINCT boss FROM people WHERE age > 50) SELECT o.id, d.boss FROM shop.orders o JOIN d ON d.boss = o.person_id ORDER BY 1;
SELECT p.id FROM people p WHERE p.id NOT IN (SELECT q.person_id FROM posts q JOIN people r ON r.id = q.person_id WHERE r.age > 20 GROUP BY q.person_id) ORDER BY 1;
SELECT p.id FROM people p WHERE p.id IN (SELECT boss FROM people WHERE age = 31 GROUP BY boss) ORDER BY 1;
SELECT o.id, d.a, d.b FROM shop.orders o JOIN (SELECT r.id AS a, q.person_id AS b FROM people r JOIN posts q ON q.person_id = r.id WHERE r.age > 40 GROUP BY GROUPING SETS ((r.id), (q.person_id)) HAVING grouping(r.id) = 0) d ON d.a = o.person_id ORDER BY 1, 2;
-- The same table several times, each with conditions of its own.
SELECT a.id, b.id, o.id FROM people a JOIN people b ON b.id = a.boss JOIN shop.orders o ON o.person_id = b.id WHERE a.age = 31 ORDER BY 1, 2, 3;
SELECT a.id, o.id, q.id FROM people a JOIN shop.orders o ON o.person_id = a.id JOIN shop.orders q ON q.id = a.boss WHERE a.age > 50 ORDER BY 1, 2, 3;
SELECT a.id, o.id, q.id FROM people a JOIN shop.orders o ON o.person_id = a.id LEFT JOIN shop.orders q ON q.total > o.total AND q.total < 20 WHERE a.age > 60 ORDER BY 1, 2, 3;
-- Parameters, also that of a LIMIT.
--! 31 | 100
--! NULL | 100
--! 24 | 0
SELECT p.id, o.id FROM people p LEFT JOIN shop.orders o ON o.person_id = p.id WHERE p.age = $1 ORDER BY 1, 2 LIMIT $2;
--! 2
--! 77
--! NULL
SELECT o.id, n.id FROM shop.orders o JOIN notes n ON n.person_id = o.person_id WHERE n.id = $1 ORDER BY 1;
-- Values: texts of every kind, none, NULL, numbers of other types, days and times.
--! script
INSERT INTO nobody VALUES (1, 'p5@example.org'), (2, 'p7@example.org'), (3, NULL), (4, 'p7@example.org'), (5, E'a"b\\c,{}'), (6, 'NULL'), (7, ''), (8, repeat('ä', 300)), (9, 'shop 20'), (10, 'it''s'), (11, 'P5@example.org'), (12, 'shop 20 '), (13, repeat('ä', 128));
INSERT INTO shop.people VALUES (101, E'a"b\\c,{}', NULL), (102, 'NULL', NULL), (103, '', NULL), (104, repeat('ä', 300), NULL), (105, 'it''s', NULL), (106, NULL, NULL), (107, repeat('ä', 128), NULL), (108, repeat('ä', 129), NULL);
SELECT n.id, p.id FROM nobody n JOIN people p ON p.email = n.v WHERE n.id IN (1, 2, 3, 4, 11) ORDER BY 1, 2;
SELECT n.id, p.id FROM nobody n JOIN people p ON n.v = p.email WHERE p.id IN (5, 7, 8) ORDER BY 1, 2;
SELECT n.id, s.id FROM nobody n JOIN shop.people s ON s.name = n.v WHERE n.id IN (5, 6, 7, 9, 10, 12) ORDER BY 1, 2;
SELECT n.id, s.id FROM nobody n JOIN shop.people s ON s.name = n.v WHERE n.id IN (9, 13) ORDER BY 1, 2;
SELECT n.id, s.id FROM nobody n JOIN shop.people s ON s.name = n.v WHERE n.id IN (8, 9) ORDER BY 1, 2;
SELECT n.id, s.id FROM nobody n LEFT JOIN shop.people s ON s.name = n.v WHERE n.id IN (3, 12) ORDER BY 1, 2;
SELECT count(*) FROM nobody n JOIN shop.people s ON s.name = n.v WHERE n.id = 77;
SELECT count(*) FROM nobody n JOIN shop.people s ON s.name = n.v WHERE n.id = 3;
SELECT n.id, p.id FROM nobody n JOIN people p ON p.name = n.v WHERE n.id = 7;
DELETE FROM nobody;
DELETE FROM shop.people WHERE id > 100;
INSERT INTO shop.orders (id, total) VALUES (5000000000, 9.00), (-5, 18.00);
INSERT INTO people (id, worth, born) VALUES (200, 'NaN', '2023-06-21'), (201, 5000000000, 'infinity'), (202, 9.00, NULL);
SELECT p.id, o.id FROM people p JOIN shop.orders o ON o.id = p.worth WHERE p.id IN (8, 9, 16, 200, 201, 202) ORDER BY 1, 2;
SELECT p.id, o.id FROM people p JOIN shop.orders o ON o.id = p.worth WHERE o.id IN (9, 10, 18, 5000000000) ORDER BY 1, 2;
SELECT p.id, o.id FROM people p JOIN shop.orders o ON o.id = p.id WHERE o.id IN (5000000000, 7, 8) ORDER BY 1, 2;
SELECT p.id, o.id FROM people p JOIN shop.orders o ON o.total = p.worth WHERE o.id IN (5000000000, -5) ORDER BY 1, 2;
SELECT p.id, o.id FROM people p JOIN shop.orders o ON o.total = p.worth WHERE p.id IN (8, 16, 200, 202) ORDER BY 1, 2;
SELECT p.id, e.id FROM people p JOIN events e ON e.day = p.born WHERE e.id < 3 ORDER BY 1, 2;
SELECT p.id, q.id FROM people p JOIN shop.orders q ON q.id = p.score WHERE p.id IN (7, 14, 10, 11) ORDER BY 1, 2;
DELETE FROM people WHERE id >= 200;
DELETE FROM shop.orders WHERE id IN (5000000000, -5);
--! end
-- What the transaction has written itself, on a shard and on the home shard.
--! script
BEGIN;
UPDATE people SET age = 99 WHERE id IN (3, 8);
SELECT p.id, o.id FROM people p JOIN shop.orders o ON o.person_id = p.id WHERE p.age = 99 ORDER BY 1, 2;
SELECT p.id, o.id FROM people p LEFT JOIN shop.orders o ON o.person_id = p.id WHERE p.age = 99 ORDER BY 1, 2;
UPDATE shop.orders SET person_id = 8 WHERE id < 4;
SELECT p.id, o.id FROM people p JOIN shop.orders o ON o.person_id = p.id WHERE p.age = 99 ORDER BY 1, 2;
SELECT o.id, n.id FROM shop.orders o JOIN notes n ON n.person_id = o.person_id WHERE n.id = 2 ORDER BY 1;
UPDATE notes SET person_id = 3 WHERE id = 2;
SELECT o.id, n.id FROM shop.orders o JOIN notes n ON n.person_id = o.person_id WHERE n.id = 2 ORDER BY 1;
SELECT o.id FROM shop.orders o WHERE EXISTS (SELECT 1 FROM people p WHERE p.id = o.person_id AND p.age = 99) ORDER BY 1;
ROLLBACK;
SELECT count(*) FROM people p JOIN shop.orders o ON o.person_id = p.id WHERE p.age = 99;
--! end
-- A changed home table among those that wait for keys.
--! script
BEGIN;
UPDATE notes SET body = 'changed' WHERE id < 3;
SELECT p.id, n.id, n.body, o.id FROM people p JOIN notes n ON n.person_id = p.id JOIN shop.orders o ON o.person_id = p.id WHERE p.age > 15 ORDER BY 1, 2, 4;
ROLLBACK;
--! end
