-- Joins on other columns than the key, of every kind.
SELECT p.id, o.id FROM people p JOIN shop.orders o ON o.person_id = p.id ORDER BY 1, 2;
SELECT p.id, o.id FROM people p LEFT JOIN shop.orders o ON o.person_id = p.id AND o.total > 100 ORDER BY 1, 2;
SELECT p.id, o.id FROM people p RIGHT JOIN shop.orders o ON o.person_id = p.id ORDER BY 2, 1;
SELECT p.id, o.id, o.total FROM people p FULL JOIN shop.orders o ON o.person_id = p.id ORDER BY 1, 2;
SELECT count(*) FROM people p FULL JOIN shop.people s ON s.name = p.name;
SELECT a.id, b.id FROM people a JOIN people b ON b.id = a.boss ORDER BY 1;
SELECT a.id, b.id FROM people a LEFT JOIN people b ON b.id = a.boss WHERE b.level IS DISTINCT FROM 'low' ORDER BY 1;
SELECT count(*) FROM people, shop.orders;
SELECT count(*) FROM people CROSS JOIN posts CROSS JOIN ranks;
--! refused
SELECT name, count(*) FROM people NATURAL JOIN shop.people GROUP BY name ORDER BY name;
SELECT id, people.name, nick FROM people JOIN shop.people USING (id) WHERE nick IS NOT NULL AND public.people.age > 0 ORDER BY id;
SELECT name, count(*) FROM people p NATURAL JOIN shop.people s GROUP BY name ORDER BY name;
-- The statement that is explained begins with a parenthesis.
--! runs
EXPLAIN ANALYZE (SELECT id FROM people ORDER BY age LIMIT 3) UNION ALL (SELECT id FROM shop.people ORDER BY nick LIMIT 2);
--! runs
EXPLAIN ANALYZE VERBOSE (SELECT count(*) FROM people p JOIN shop.orders o ON o.person_id = p.id);
--! runs
EXPLAIN (ANALYZE, COSTS OFF) (SELECT id FROM people LIMIT 3) UNION ALL (SELECT id FROM shop.people LIMIT 2);
--! runs
EXPLAIN VERBOSE (SELECT id FROM people WHERE id = 1);
--! runs
EXPLAIN (SELECT id FROM people WHERE id = 1) UNION ALL (SELECT id FROM people WHERE id = 1);
-- One name for two tables, where each is not visible to the other's columns.
WITH w AS (SELECT q.target FROM edges q WHERE q.source = 3) SELECT count(q.age), max(w.target) FROM people q, w;
SELECT count(q.age), (SELECT max(q.total) FROM shop.orders q) FROM people q;
SELECT (SELECT count(q.total) FROM shop.orders q), (SELECT max(q.age) FROM people q);
SELECT max(age) FROM people q UNION ALL SELECT max(q.target) FROM edges q ORDER BY 1;
SELECT id, age, nick FROM people p NATURAL JOIN (SELECT id, nick FROM shop.people) s ORDER BY id;
SELECT id, x.name FROM people JOIN shop.people x USING (id) ORDER BY x.name DESC LIMIT 4;
SELECT j.id FROM (people p JOIN shop.orders o ON o.person_id = p.id) AS j (id, b, c) WHERE b IS NOT NULL ORDER BY 1 LIMIT 7;
SELECT x.id, (SELECT count(*) FROM (people x JOIN posts o ON o.person_id = x.id) AS j WHERE x.id = 8) FROM notes AS x ORDER BY x.id;
SELECT p.id, l.id, l.total FROM people p, LATERAL (SELECT id, total FROM shop.orders o WHERE o.person_id = p.id ORDER BY total DESC LIMIT 1) l ORDER BY p.id;
SELECT p.id, l.n FROM people p LEFT JOIN LATERAL (SELECT count(*) AS n FROM shop.orders o WHERE o.person_id = p.id) l ON TRUE ORDER BY p.id;
SELECT r.level, p.id FROM ranks r LEFT JOIN people p USING (level) ORDER BY r.level, p.id;
SELECT r.level FROM ranks r WHERE NOT EXISTS (SELECT 1 FROM people p WHERE p.level = r.level AND p.age > 50) ORDER BY 1;
SELECT s.sku, count(i.order_id) FROM skus s LEFT JOIN shop.items i ON i.sku = s.sku GROUP BY s.sku ORDER BY s.sku;
SELECT s.*, count(i.order_id) FROM skus s LEFT JOIN shop.items i ON i.sku = s.sku GROUP BY s.sku ORDER BY s.sku;
SELECT g, count(p.id) FROM generate_series(10, 70, 10) g LEFT JOIN people p ON p.age BETWEEN g AND g + 9 GROUP BY g ORDER BY g;
SELECT v.a, v.b, p.id FROM (VALUES (1, 'ada'), (2, 'bob'), (3, NULL)) v (a, b) LEFT JOIN people p ON p.name = v.b ORDER BY 1, 3;
-- Tables of the home shard beside sharded ones.
SELECT p.name, n.body FROM people p JOIN notes n ON n.person_id = p.id ORDER BY n.id;
SELECT n.id, p.id FROM notes n LEFT JOIN people p ON p.id = n.person_id ORDER BY n.id;
SELECT (SELECT body FROM notes WHERE person_id = p.id) FROM people p WHERE p.id % 8 = 0 ORDER BY p.id;
SELECT count(*) FROM notes, people, ranks, shop.settings WHERE settings.name = 'limit' AND people.age > settings.value::int AND ranks.level = people.level;
SELECT shop.settings.value, count(public.people.id) FROM shop.settings, public.people GROUP BY shop.settings.value ORDER BY 1;
SELECT id FROM people WHERE id IN (SELECT person_id FROM notes) ORDER BY id;
SELECT name FROM people UNION ALL SELECT body FROM notes ORDER BY 1;
-- Sub-selects anywhere.
SELECT id FROM people WHERE age > (SELECT avg(age) FROM people) ORDER BY id;
SELECT id FROM people WHERE id NOT IN (SELECT person_id FROM shop.orders) ORDER BY id;
SELECT id FROM people WHERE id NOT IN (SELECT boss FROM people) ORDER BY id;
SELECT id FROM people WHERE age >= ALL (SELECT age FROM people WHERE age IS NOT NULL) ORDER BY id;
SELECT id FROM people WHERE age = ANY (SELECT stars + 40 FROM posts) ORDER BY id;
SELECT id, (SELECT max(total) FROM shop.orders), (SELECT count(*) FROM posts o WHERE o.stars = p.id % 11) FROM people p ORDER BY id LIMIT 9;
SELECT id FROM people ORDER BY (SELECT count(*) FROM shop.orders o WHERE o.person_id = people.id) DESC, id LIMIT 5;
SELECT id FROM people ORDER BY id LIMIT (SELECT count(*) / 10 FROM people);
SELECT id FROM people ORDER BY id OFFSET (SELECT max(id) - 3 FROM people);
SELECT CASE WHEN EXISTS (SELECT 1 FROM posts WHERE stars = 10) THEN (SELECT max(id) FROM people) END;
--! simple
SELECT ARRAY(SELECT id FROM people WHERE level = 'high' ORDER BY id), ARRAY(SELECT DISTINCT level FROM people ORDER BY 1);
SELECT * FROM (SELECT * FROM people ORDER BY id LIMIT 5) x JOIN (SELECT person_id, sum(words) FROM posts GROUP BY person_id) y ON y.person_id = x.boss ORDER BY x.id;
SELECT level, (SELECT string_agg(q.id::text, ',' ORDER BY q.id) FROM people q WHERE q.level = p.level) FROM people p GROUP BY level ORDER BY level;
SELECT EXISTS (SELECT 1 FROM people WHERE name = 'ada'), EXISTS (SELECT 1 FROM nobody);
SELECT (SELECT status FROM (SELECT 1 AS x) i) FROM (SELECT 'outer' AS status FROM people LIMIT 2) o;
SELECT (SELECT title FROM notes WHERE notes.id = o.n LIMIT 1) FROM posts o WHERE person_id < 3 AND title IS NOT NULL ORDER BY words + 0;
-- Aggregates of every kind.
SELECT round(sum(score)::numeric, 9), round(avg(score)::numeric, 9), stddev(worth), variance(age), round(corr(age, id)::numeric, 9) FROM people WHERE id % 10 <> 0 AND id % 11 <> 0;
SELECT count(*), count(age), count(DISTINCT level), sum(age), min(name), max(name), avg(worth) FROM people;
SELECT level, count(*) FILTER (WHERE age > 30), bool_and(age > 11), bit_or(age) FROM people GROUP BY level ORDER BY level;
--! simple
SELECT string_agg(name, '|' ORDER BY id), array_agg(DISTINCT age % 5 ORDER BY age % 5), array_agg(level ORDER BY id) FROM people;
SELECT json_agg(name ORDER BY id), jsonb_object_agg(id, age) FROM people WHERE id < 5 OR id = 20;
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY age), percentile_disc(ARRAY[0.1, 0.9]) WITHIN GROUP (ORDER BY name), mode() WITHIN GROUP (ORDER BY level), rank(30) WITHIN GROUP (ORDER BY age) FROM people;
SELECT longest(title), longest(DISTINCT tag) FROM posts;
SELECT level, age % 2, count(*), grouping(level, age % 2) FROM people GROUP BY GROUPING SETS ((level, age % 2), (level), ()) ORDER BY 4, 1, 2;
SELECT level, paid, count(*) FROM people p JOIN shop.orders o ON o.person_id = p.id GROUP BY CUBE (level, paid) ORDER BY grouping(level, paid), level, paid;
SELECT state, note, sum(total) FROM shop.orders GROUP BY ROLLUP (state, note) ORDER BY 1, 2, 3;
SELECT age / 10, round(avg(score)::numeric, 9) FROM people WHERE id % 10 <> 0 AND id % 11 <> 0 GROUP BY 1 HAVING count(*) > 2 ORDER BY 1;
SELECT p.*, count(o.id) FROM people p LEFT JOIN shop.orders o ON o.person_id = p.id GROUP BY p.id ORDER BY p.id;
SELECT p.name, p.email, count(*) FROM people p JOIN shop.orders o ON o.person_id = p.id GROUP BY p.id ORDER BY p.id;
SELECT people.email, max(total) FROM people JOIN shop.orders ON person_id = people.id GROUP BY people.id, paid ORDER BY 1, 2;
SELECT name, email, count(*) FROM people GROUP BY 1 ORDER BY 1;
SELECT email, count(*) FROM people GROUP BY age ORDER BY 1;
SELECT count(*) FROM nobody;
SELECT sum(id), max(v), array_agg(v) FROM nobody;
SELECT v, count(*) FROM nobody GROUP BY v;
SELECT n.id FROM nobody n RIGHT JOIN people p ON p.id = n.id ORDER BY p.id LIMIT 3;
SELECT sum(span), max(span), avg(span) FROM posts;
SELECT sum(price), max(raw::text), min(ref::text), max(ip), count(DISTINCT during) FROM shop.orders;
SELECT range_agg(during), max(state), min(note) FROM shop.orders;
-- Windows.
SELECT id, row_number() OVER (ORDER BY age DESC NULLS LAST, id), count(*) OVER () FROM people ORDER BY id;
SELECT id, rank() OVER w, sum(age) OVER (w ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM people WINDOW w AS (PARTITION BY level ORDER BY age, id) ORDER BY id;
SELECT id, lag(name) OVER (ORDER BY id), ntile(4) OVER (ORDER BY id), first_value(id) OVER (PARTITION BY level ORDER BY worth) FROM people ORDER BY id;
SELECT level, sum(count(*)) OVER (ORDER BY level) FROM people GROUP BY level ORDER BY level;
SELECT * FROM (SELECT id, rank() OVER (PARTITION BY level ORDER BY age DESC NULLS LAST, id) AS r FROM people) x WHERE r <= 2 ORDER BY id;
-- DISTINCT, set operations.
SELECT DISTINCT level FROM people ORDER BY level;
SELECT DISTINCT name FROM people ORDER BY name;
SELECT DISTINCT ON (level) level, id, name FROM people ORDER BY level, age DESC NULLS LAST, id;
SELECT DISTINCT span FROM posts ORDER BY span;
SELECT name FROM people UNION SELECT name FROM shop.people ORDER BY 1;
SELECT id FROM people INTERSECT SELECT id FROM shop.people ORDER BY 1;
SELECT name FROM people EXCEPT SELECT nick FROM shop.people ORDER BY 1;
SELECT id FROM people EXCEPT ALL SELECT person_id FROM shop.orders ORDER BY 1;
SELECT level FROM people UNION ALL SELECT level FROM ranks ORDER BY 1;
(SELECT id FROM people ORDER BY id LIMIT 2) UNION ALL (SELECT id FROM shop.people ORDER BY id DESC LIMIT 2) ORDER BY 1;
SELECT count(*) FROM (SELECT 1 FROM people UNION ALL SELECT 2 FROM posts UNION ALL VALUES (1), (2)) x;
-- Recursion.
WITH RECURSIVE r (id, depth) AS (SELECT id, 0 FROM people WHERE boss IS NULL UNION ALL SELECT p.id, depth + 1 FROM people p JOIN r ON p.boss = r.id) SELECT depth, count(*), max(id) FROM r GROUP BY depth ORDER BY depth;
WITH RECURSIVE reach AS (SELECT target FROM edges WHERE source = 1 UNION SELECT e.target FROM edges e JOIN reach ON e.source = reach.target) SELECT * FROM reach ORDER BY 1;
WITH RECURSIVE walk AS (SELECT source, target FROM edges WHERE source = 5 UNION ALL SELECT e.source, e.target FROM edges e JOIN walk w ON w.target = e.source) CYCLE target SET is_cycle USING path SELECT target, is_cycle FROM walk ORDER BY 1;
-- WITH queries that hide tables, or do not.
WITH people AS (SELECT * FROM people WHERE id < 10) SELECT count(*), max(boss) FROM people;
WITH a AS (SELECT count(*) AS n FROM people), b AS (SELECT n FROM a) SELECT n, (SELECT count(*) FROM posts) FROM b;
WITH a AS MATERIALIZED (SELECT id, age FROM people) SELECT x.id FROM a x JOIN a y ON y.age = x.age AND y.id <> x.id ORDER BY 1;
SELECT (WITH posts AS (SELECT 7 AS n) SELECT max(n) FROM posts), max(words) FROM posts;
-- Names in every form.
SELECT max(public.people.id) FROM public.people;
SELECT public.people.level, count(public.people.*) FROM public.people GROUP BY public.people.level ORDER BY 1;
SELECT max("people"."Weird ""Name") FROM "public"."people" WHERE"id">3;
SELECT count(*) FROM public.people a JOIN shop.people b ON b.id = a.id;
SELECT count(*) FROM ONLY people;
SELECT count(*) FROM people *;
SELECT count(*) FROM (TABLE people) x;
SELECT max(x), max(y) FROM people AS q (x, y);
SELECT q.c, count(*) FROM shop.orders q (a, b, c) GROUP BY q.c ORDER BY q.c DESC LIMIT 3;
SELECT count(*) /* FROM nobody */ FROM people -- of posts
;
SELECT 'FROM people' || count(*) FROM people;
-- Types.
--! simple
SELECT level, moods, during, price, raw, ip, ref, state, note FROM shop.orders o JOIN people p ON p.id = o.person_id WHERE o.id < 6 ORDER BY o.id;
SELECT tags, doc, home, score, worth, born, seen FROM people WHERE age > (SELECT min(age) FROM people) ORDER BY id;
SELECT (home).street, count(*), max((home).number) FROM people GROUP BY (home).street ORDER BY 1;
SELECT stars, tag, doubled, at, span, title FROM posts WHERE stars = (SELECT max(stars) FROM posts) ORDER BY person_id, n;
SELECT max(stars), min(tag), sum(doubled) FROM posts;
SELECT DISTINCT home FROM people WHERE id < 8 ORDER BY home;
SELECT doc -> 'k', count(*) FROM people GROUP BY 1 ORDER BY 1;
SELECT note || '|', count(*) FROM shop.orders GROUP BY note ORDER BY 1;
--! simple
SELECT pg_typeof(max(stars)), pg_typeof(max(level)) FROM posts, ranks;
SELECT NULL::people IS NULL, count(*) FROM people;
SELECT (jsonb_populate_record(NULL::people, '{"id": 5}')).id, count(*) FROM people;
--! simple
SELECT 'people'::regclass, count(*) FROM people;
-- Views.
SELECT count(*), max(name) FROM adults;
SELECT a.id, b.id FROM adults a JOIN adults b ON b.age = a.age AND a.id < b.id ORDER BY 1, 2;
SELECT who, count(*) FROM person_posts GROUP BY who ORDER BY who;
SELECT max(best), sum(posts) FROM post_counts;
SELECT p.id, c.posts FROM people p LEFT JOIN post_counts c ON c.person_id = p.boss ORDER BY p.id;
SELECT * FROM by_level ORDER BY level;
SELECT * FROM above ORDER BY level;
SELECT * FROM noted ORDER BY body;
SELECT * FROM newest ORDER BY person_id, n;
SELECT name FROM all_names ORDER BY name;
SELECT x.n FROM by_level x JOIN above y USING (level, n) ORDER BY 1;
SELECT count(*) FROM note_bodies b, people p WHERE p.id = b.id;
-- Partitions.
SELECT what, count(*), min(day) FROM events GROUP BY what ORDER BY what;
SELECT count(*) FROM events_old o JOIN events_new n ON n.what = o.what;
SELECT count(*) FROM ONLY events;
-- Functions.
SELECT level, bonus_of(level), initials(max(name)) FROM people GROUP BY level ORDER BY level;
SELECT count(*), note_count() FROM people;
--! refused
SELECT people_count(), count(*) FROM posts;
SELECT count(*) FROM people WHERE random() >= 0;
SELECT count(DISTINCT gen_random_uuid()) FROM people;
SELECT count(*), now() = CURRENT_TIMESTAMP, now() - statement_timestamp() < interval '1 minute' FROM people;
SELECT count(*) FROM people WHERE seen < now() AND born < CURRENT_DATE AND seen < 'now'::timestamptz;
SELECT current_user, current_schema(), current_setting('search_path'), count(*) FROM people;
-- Whole rows.
SELECT row_to_json(p), count(p) OVER () FROM people p WHERE id < 3;
SELECT count(o) FROM people p LEFT JOIN shop.orders o ON o.person_id = p.id AND o.paid;
SELECT json_agg(s ORDER BY s.id) FROM shop.people s WHERE id < 23;
SELECT x FROM (SELECT id, boss FROM people) x WHERE x.boss = (SELECT max(boss) FROM people) ORDER BY 1;
-- Order in collations that the proxy does not know.
SELECT id, name FROM people ORDER BY name, id;
SELECT id, name FROM people ORDER BY name DESC NULLS LAST, id LIMIT 5;
SELECT id, name FROM people ORDER BY name, id LIMIT 5 OFFSET 7;
SELECT id, level FROM people ORDER BY level, id;
SELECT id, span FROM posts JOIN people ON id = person_id ORDER BY span, id, n;
SELECT id FROM shop.orders ORDER BY ip, id;
SELECT id FROM people ORDER BY name COLLATE "C", id;
SELECT id FROM people ORDER BY lower(name), id FETCH FIRST 3 ROWS WITH TIES;
-- Parameters.
--! 30 | ada
--! NULL | ada
--! 12 | NULL
SELECT count(*) FROM people p JOIN shop.orders o ON o.person_id = p.id WHERE p.age > $1 AND p.name = $2;
--! high
SELECT count(*), max(age) FROM people WHERE level = $1;
--! {low,high}
SELECT count(*) FROM people WHERE level = ANY ($1::level[]);
--! 3 | 2
SELECT id, $1 + $2 FROM people ORDER BY (SELECT $1 * id) DESC LIMIT $2;
--! 7
SELECT $1::int, count(*) FROM people HAVING count(*) > $1;
--! x
SELECT count(*) FROM people WHERE age = $1;
--! 5
SELECT id, email FROM people WHERE id = $1 AND age < (SELECT max(age) FROM people);
-- Errors.
SELECT count(*), nothing FROM people;
SELECT count(*) FROM people WHERE nothing = 1;
SELECT count(*) FROM people p JOIN posts o ON o.nothing = p.id;
SELECT max(people.id) FROM people p;
SELECT count(*) FROM nowhere, people;
SELECT sum(name) FROM people;
SELECT 1 / (count(*) - 36) FROM people;
SELECT sum(1 / (age - age)) FROM people;
SELECT max(name::int) FROM people;
SELECT (SELECT id FROM people) FROM shop.orders;
SELECT age, count(*) FROM people;
SELECT id FROM people UNION SELECT name FROM people;
SELECT count(*) FROM people GROUP BY count(*);
SELECT count(*) FROM people LIMIT -1;
SELECT max(level) FROM people WHERE level > 'huge';
SELECT max(name COLLATE "nowhere") FROM people;
-- What stays refused.
--! refused
SELECT max(ctid) FROM people;
--! refused
SELECT count(*), min(tableoid) FROM people;
--! refused
SELECT count(*) FROM people TABLESAMPLE SYSTEM (100);
SELECT count(*), pg_backend_pid() > 0 FROM people;
--! refused
SELECT count(*), txid_current() > 0 FROM people;
--! refused
SELECT max(title_of(p)) FROM people p;
--! refused
SELECT count(*), pg_total_relation_size('people') > 0 FROM people;
--! refused
SELECT count(*), query_to_xml('SELECT count(*) FROM people', true, false, '') FROM posts;
--! refused
SELECT p FROM people p ORDER BY (SELECT count(*) FROM posts);
--! refused
SELECT count(*), pg_advisory_lock(1) FROM people;
--! refused
SELECT count(*), setseed(0.5) FROM people;
-- Sub-selects that the shards compute: by the whole key, joined on it, in parts.
SELECT p.id, c.n, c.s FROM people p JOIN (SELECT person_id, count(*) AS n, sum(words) AS s FROM posts GROUP BY person_id) c ON c.person_id = p.boss ORDER BY 1;
SELECT p.id, c.* FROM people p LEFT JOIN (SELECT person_id, avg(words) FROM posts WHERE stars > 2 GROUP BY person_id) c (who, mean) ON c.who = p.boss ORDER BY 1;
SELECT x.tag, x.n, x.a, x.m, x.l, x.b, p.id FROM (SELECT tag, count(*) AS n, avg(words) AS a, min(stars) AS m, max(at) AS l, bool_and(words > 50) AS b FROM posts GROUP BY tag) x LEFT JOIN people p ON p.id = x.n ORDER BY 1;
SELECT x.*, r.bonus FROM (SELECT level, count(age), sum(worth), avg(worth), min(born), every(age > 11), bool_or(age > 60) FROM people GROUP BY level) x LEFT JOIN ranks r ON r.level = x.level LEFT JOIN shop.orders o ON o.id = x.count ORDER BY 1;
WITH c AS (SELECT person_id AS who, sum(total) AS total FROM shop.orders WHERE paid GROUP BY person_id) SELECT p.id, p.name, c.total FROM people p JOIN c ON c.who = p.id WHERE c.total >= (SELECT avg(total) FROM c) ORDER BY 1;
WITH c (tag, n) AS MATERIALIZED (SELECT tag, count(*) FROM posts GROUP BY tag) SELECT a.tag, b.tag, p.id FROM c a JOIN c b ON b.n > a.n JOIN people p ON p.id = a.n ORDER BY 1, 2;
SELECT x.who, count(*), sum(x.total) FROM (SELECT p.name AS who, o.total FROM shop.orders o JOIN shop.items i ON i.order_id = o.id JOIN people p ON p.id = 1 AND i.n = 1) x GROUP BY x.who ORDER BY 1;
SELECT x.name, count(*), max(o.id) FROM (SELECT p.name, w.words FROM people p, posts w WHERE w.person_id = p.id AND w.words > 30) x JOIN shop.orders o ON o.id = x.words / 10 GROUP BY x.name ORDER BY x.name;
SELECT s.sku, x.n FROM skus s LEFT JOIN (SELECT i.sku, count(*) AS n FROM shop.items i JOIN shop.orders o ON o.id = i.order_id WHERE o.paid GROUP BY i.sku) x USING (sku) ORDER BY 1;
SELECT x.level, x.top, x.low, x.name FROM (SELECT level, max(score) AS top, min(worth) AS low, min(name) AS name FROM people GROUP BY level) x JOIN posts o ON o.words = 33 ORDER BY 1;
SELECT x.sum IS NULL, x.level FROM (SELECT level, sum(score) FROM people GROUP BY level) x JOIN posts o ON o.words = 33 ORDER BY 2;
SELECT p.id FROM people p WHERE p.id IN (SELECT DISTINCT person_id FROM shop.orders WHERE total > 50) ORDER BY 1;
SELECT p.id FROM people p WHERE p.id NOT IN (SELECT DISTINCT boss FROM people) ORDER BY 1;
SELECT x.span, count(*) FROM (SELECT DISTINCT span, tag FROM posts) x JOIN people p ON p.id < 4 GROUP BY 1 ORDER BY 1;
SELECT p.id FROM people p WHERE EXISTS (SELECT 1 FROM shop.orders o JOIN shop.items i ON i.order_id = o.id WHERE i.amount = 4 AND o.total > 160) AND p.id > (SELECT count(*) FROM posts WHERE stars = 5) ORDER BY 1;
SELECT p.id, (SELECT sum(total) FROM shop.orders), (SELECT avg(words) FROM posts WHERE stars > 100), (SELECT count(stars) FROM posts WHERE stars > 100) FROM people p WHERE p.boss = (SELECT max(person_id) - 30 FROM posts) ORDER BY 1;
SELECT p.id, x.count, x.max FROM (SELECT count(*), max(v) FROM nobody) x, people p WHERE p.age > (SELECT min(age) + 50 FROM people) ORDER BY 1;
SELECT x.tags, x.n FROM (SELECT tags, count(*) AS n FROM people GROUP BY tags) x JOIN posts o ON o.words = x.n + 10 ORDER BY 1;
SELECT x.home, x.n FROM (SELECT (home).street AS home, count(*) AS n FROM people GROUP BY (home).street) x JOIN posts o ON o.person_id = 1 AND o.n = 1 ORDER BY 1;
SELECT y.level, y.n, z.id FROM (SELECT level, sum(n) AS n FROM (SELECT level, boss, count(*) AS n FROM people GROUP BY level, boss) w GROUP BY level) y LEFT JOIN notes z ON z.id = y.n ORDER BY 1, 3;
--! 30
--! 1000
--! NULL
SELECT p.id, x.n FROM (SELECT tag, count(*) AS n FROM posts WHERE words > $1 GROUP BY tag) x JOIN people p ON p.id = x.n ORDER BY 1, 2;
-- Of no use to a table, or wrong over other rows: the tables' rows are gathered.
SELECT * FROM (SELECT person_id, count(*), count(*) FROM posts GROUP BY person_id) x (who, a, b) JOIN people p ON p.boss = x.who ORDER BY p.id LIMIT 3;
SELECT p.id FROM people p WHERE (p.id, 3) IN (SELECT person_id, count(*) FROM posts GROUP BY 1) ORDER BY 1;
SELECT x.who, x.s FROM (SELECT person_id AS who, sum(100 / (words - 11)) AS s FROM posts GROUP BY person_id) x JOIN shop.orders o ON o.person_id = x.who WHERE x.who <> 1 ORDER BY 1, 2;
SELECT x.who, x.s FROM (SELECT person_id AS who, sum(100 / (words - 11)) AS s FROM posts GROUP BY person_id) x JOIN shop.orders o ON o.id = x.s ORDER BY 1, 2;
SELECT p.id, x.t FROM people p, LATERAL (SELECT max(o.total) AS t FROM shop.orders o WHERE o.person_id = p.boss) x ORDER BY 1;
SELECT p.id, (SELECT count(*) FROM posts WHERE words > age) FROM people p ORDER BY 1 LIMIT 5;
SELECT p.id, (SELECT count(DISTINCT q.level) FROM people q WHERE q.age < p.age) FROM people p ORDER BY 1 LIMIT 5;
SELECT id, (SELECT count(*) FROM (SELECT id FROM shop.orders) age WHERE age::text = '(1)') FROM people ORDER BY id;
SELECT id FROM people WHERE 2 IN (SELECT DISTINCT length(age::text) FROM (SELECT id FROM shop.orders WHERE id > 9) age) ORDER BY id;
SELECT x.names FROM (SELECT string_agg(name, ',' ORDER BY id) AS names FROM people) x JOIN posts o ON o.words = 11;
SELECT array_agg(x.id) FROM (SELECT DISTINCT id FROM people ORDER BY id DESC) x JOIN nobody n ON true;
SELECT x.price, x.n FROM (SELECT price::text AS price, count(*) AS n FROM shop.orders GROUP BY price) x JOIN people p ON p.id = x.n + 35 ORDER BY 1;
SELECT p.id, x.d FROM (SELECT boss AS d, count(*) AS n FROM people WHERE seen > 'epoch' GROUP BY boss) x JOIN people p ON p.id = x.n ORDER BY 1, 2;
--! simple
SELECT x, p.id FROM (SELECT level, count(*) FROM people GROUP BY level) x JOIN people p ON p.id = x.count ORDER BY 1, 2;
SELECT row_to_json(x), p.id FROM (SELECT level, count(*) FROM people GROUP BY level) x JOIN people p ON p.id = x.count ORDER BY p.id, x.level;
-- Keys of what is loaded before, of what lies beside it, and one of equal rows where only their being there matters.
SELECT p.id, o.id, i.n FROM people p, shop.orders o, shop.items i WHERE p.age > 60 AND o.person_id = p.id AND i.order_id = o.id AND i.amount > 1 ORDER BY 1, 2, 3;
SELECT p.id, o.id, i.n FROM people p JOIN shop.orders o ON o.person_id = p.id LEFT JOIN shop.items i ON i.order_id = o.id AND i.amount > 1 WHERE p.age > 60 ORDER BY 1, 2, 3;
SELECT p.name, o.id FROM people p, shop.orders o WHERE (o.person_id = p.id AND p.age < 20 AND o.total > 100) OR (p.age > 60 AND o.person_id = p.id AND o.total < 20) ORDER BY 2;
SELECT p.name, o.id FROM people p, shop.orders o WHERE (o.person_id = p.id AND p.age < 20 AND o.total > 100) OR (p.age > 60 AND o.person_id = p.boss AND o.total < 20) ORDER BY 2, 1;
SELECT s.id, s.nick, p.boss FROM shop.people s JOIN people p ON p.boss = s.id WHERE p.age < 30 ORDER BY 1, 3;
SELECT a.id, b.id, c.id FROM people a JOIN people b ON b.id = a.boss JOIN shop.people c ON c.id = b.id WHERE a.age > 30 ORDER BY 1;
SELECT p.id FROM people p WHERE NOT EXISTS (SELECT * FROM shop.orders o WHERE o.person_id = p.id) ORDER BY 1;
SELECT level FROM ranks WHERE EXISTS (SELECT DISTINCT * FROM posts OFFSET 45) ORDER BY 1;
SELECT p.id FROM people p WHERE p.name IN (SELECT s.nick FROM shop.people s) AND p.age > ANY (SELECT words FROM posts) ORDER BY 1;
SELECT p.id FROM people p WHERE p.id IN (SELECT count(*) FROM shop.orders GROUP BY paid) OR p.id IN (SELECT person_id FROM shop.orders ORDER BY total LIMIT 3) ORDER BY 1;
SELECT p.id, (SELECT count(*) FROM shop.orders o WHERE o.person_id = p.boss) FROM people p WHERE p.boss IN (SELECT person_id FROM shop.orders) ORDER BY 1;
SELECT p.id FROM people p WHERE EXISTS (SELECT 1 FROM shop.items i, skus s WHERE s.sku = i.sku AND i.amount = p.boss AND s.price > 5) ORDER BY 1;
--! 60
--! NULL
SELECT p.id, o.id FROM people p, shop.orders o WHERE p.age > $1 AND o.person_id = p.id ORDER BY 1, 2;
