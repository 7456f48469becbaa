-- The first rows.
SELECT name FROM people ORDER BY name LIMIT 7;
SELECT id, name FROM people ORDER BY name, id LIMIT 20;
SELECT id FROM people ORDER BY name DESC, id DESC LIMIT 9 OFFSET 5;
SELECT id, name FROM people ORDER BY name NULLS FIRST, n DESC, id LIMIT 12;
SELECT name, n FROM people ORDER BY n, name DESC NULLS LAST OFFSET 3 LIMIT 10;
SELECT id, x, m FROM people ORDER BY name, x DESC LIMIT 15;
SELECT * FROM people ORDER BY lower(name), id LIMIT 8;
SELECT id, upper(name) AS loud FROM people ORDER BY loud DESC, id LIMIT 8;
SELECT id FROM people ORDER BY name || town, id LIMIT 11;
SELECT id FROM people ORDER BY coalesce(name, 'ä'), id LIMIT 11;
SELECT id, CASE WHEN n > 1 THEN name ELSE town END AS label FROM people ORDER BY label, id LIMIT 13;
SELECT id FROM people ORDER BY n::text || name, id LIMIT 11;
SELECT town, id FROM people ORDER BY town, id LIMIT 9;
SELECT code, id FROM people ORDER BY code DESC, id LIMIT 9 OFFSET 30;
SELECT code, id FROM people ORDER BY code, town, name, id LIMIT 40;
SELECT name FROM people ORDER BY 1 LIMIT 5 OFFSET 80;
SELECT name FROM people ORDER BY 1 OFFSET 85 LIMIT 50;
SELECT name FROM people ORDER BY 1 LIMIT 0;
SELECT name FROM people WHERE n > 100 ORDER BY 1 LIMIT 3;
SELECT name FROM people WHERE name IS NULL ORDER BY 1 LIMIT 3;
SELECT id, name FROM people WHERE name > 'b' ORDER BY name, id LIMIT 10;
SELECT id, name FROM people WHERE name BETWEEN 'A' AND 'b' AND n IN (1, 2) ORDER BY name DESC, id LIMIT 10;
SELECT id, name FROM people WHERE name LIKE 'a%' ORDER BY name, id LIMIT 10;
SELECT id, name FROM people WHERE name ILIKE 'a_b' OR name ~ '^[A-Z]' ORDER BY name, id LIMIT 30;
--! 4 | 3
--! 0 | 0
--! NULL | 2
--! 1000 | 87
--! 5 | NULL
SELECT id, name FROM people ORDER BY name, id LIMIT $1 OFFSET $2;
--! 3 | b
SELECT id, name FROM people WHERE name >= $2 ORDER BY name, id LIMIT $1 + 1 OFFSET $1;
SELECT id FROM people ORDER BY name, id LIMIT 2 * 3 OFFSET 1 + 1;
SELECT id, name FROM people ORDER BY name, id LIMIT (SELECT 4);
--! -1
SELECT id FROM people ORDER BY name LIMIT $1;
-- Ties.
SELECT name FROM people ORDER BY name FETCH FIRST 6 ROWS WITH TIES;
SELECT lower(name) FROM people ORDER BY lower(name) OFFSET 4 FETCH FIRST 3 ROWS WITH TIES;
SELECT n, name FROM people ORDER BY n, name DESC OFFSET 2 ROWS FETCH FIRST 4 ROWS WITH TIES;
--! any order
SELECT id FROM people ORDER BY f FETCH FIRST 3 ROWS WITH TIES;
SELECT code FROM people ORDER BY code OFFSET 2 FETCH FIRST ROW WITH TIES;
--! any order
SELECT id, code FROM people ORDER BY code DESC FETCH FIRST 15 ROWS WITH TIES;
-- Other collations.
SELECT id, f FROM people ORDER BY f, id LIMIT 20;
SELECT id, f FROM people ORDER BY f DESC, id LIMIT 20 OFFSET 25;
SELECT id, g FROM people ORDER BY g, id LIMIT 25;
SELECT id, g, name FROM people ORDER BY g, name DESC, f, id LIMIT 25;
SELECT id, c FROM people ORDER BY c, name, id LIMIT 25;
SELECT id, s FROM people ORDER BY s, id LIMIT 45;
SELECT id, s FROM people ORDER BY s, g DESC, id LIMIT 45 OFFSET 11;
SELECT id, name FROM people ORDER BY name COLLATE "C", id LIMIT 22;
SELECT id, name FROM people ORDER BY name COLLATE "sv-x-icu", id LIMIT 22;
SELECT id, name FROM people ORDER BY name COLLATE folded, id LIMIT 22;
SELECT id, name FROM people ORDER BY name COLLATE public.german DESC, name COLLATE "C", id LIMIT 22;
SELECT id, g FROM people ORDER BY g COLLATE "default", id LIMIT 22;
SELECT id, upper(g) FROM people ORDER BY upper(g), id LIMIT 22;
SELECT id, upper(g COLLATE "sv-x-icu") FROM people ORDER BY 2, id LIMIT 22;
SELECT id FROM people ORDER BY g || name, id LIMIT 22;
SELECT id FROM people ORDER BY g || s, id LIMIT 22;
SELECT id FROM people ORDER BY g || s COLLATE "C", id LIMIT 22;
SELECT id FROM people ORDER BY CASE WHEN g = 'Zebra' THEN 'ö' ELSE 'z' END, id LIMIT 22;
SELECT id FROM people ORDER BY (g > 'b')::text, id LIMIT 22;
SELECT id FROM people ORDER BY length(g)::text, id LIMIT 22;
SELECT id FROM people ORDER BY s::text, id LIMIT 22;
SELECT id FROM people ORDER BY name::surname, id LIMIT 22;
SELECT id FROM people ORDER BY name::name, id LIMIT 22;
SELECT id FROM people ORDER BY name::name::text, id LIMIT 22;
SELECT id FROM people ORDER BY (n::text)::name::text || name, id LIMIT 22;
SELECT id FROM people ORDER BY name || current_user, id LIMIT 22;
SELECT id FROM people ORDER BY name COLLATE nonsense LIMIT 3;
SELECT id, m FROM people ORDER BY m, name, id LIMIT 22;
SELECT id FROM people ORDER BY m::text, id LIMIT 22;
SELECT id FROM people ORDER BY name USING >, id LIMIT 6;
-- All rows.
SELECT id, name FROM people ORDER BY name, id;
SELECT id, name FROM people WHERE n = 2 ORDER BY lower(name) DESC, id;
SELECT id, g FROM people ORDER BY g, id OFFSET 70;
SELECT name FROM people ORDER BY name LIMIT ALL;
-- Distinct rows.
SELECT DISTINCT name FROM people ORDER BY name;
SELECT DISTINCT name FROM people ORDER BY name DESC LIMIT 6 OFFSET 2;
SELECT DISTINCT name, town FROM people ORDER BY town, name DESC LIMIT 30;
SELECT DISTINCT g, n FROM people ORDER BY g, n LIMIT 7;
SELECT DISTINCT code FROM people ORDER BY code;
SELECT DISTINCT lower(name) FROM people ORDER BY lower(name) LIMIT 8;
--! count only
SELECT DISTINCT f FROM people ORDER BY f;
SELECT DISTINCT ON (name) name, id FROM people ORDER BY name, id;
SELECT DISTINCT ON (name) name, id FROM people ORDER BY name DESC, id DESC LIMIT 8 OFFSET 1;
SELECT DISTINCT ON (n) n, name, id FROM people ORDER BY n, name, id;
SELECT DISTINCT ON (town, n) town, n, name, id FROM people ORDER BY n, town, name DESC, id LIMIT 11;
SELECT DISTINCT ON (f) f, id FROM people ORDER BY f, id;
SELECT name FROM people UNION SELECT note FROM visits ORDER BY 1;
SELECT name FROM people UNION SELECT note FROM visits ORDER BY 1 LIMIT 9;
SELECT name FROM people UNION ALL SELECT note FROM visits ORDER BY 1 LIMIT 29;
SELECT name FROM people UNION ALL SELECT g FROM people ORDER BY 1 LIMIT 29;
SELECT name FROM people UNION ALL SELECT note FROM visits ORDER BY 1;
SELECT name FROM people UNION SELECT name FROM shops ORDER BY name DESC LIMIT 12;
SELECT name FROM people INTERSECT SELECT note FROM visits ORDER BY 1;
SELECT name FROM people EXCEPT SELECT note FROM visits ORDER BY 1 LIMIT 5;
-- The least and the greatest.
SELECT min(name), max(name) FROM people;
SELECT min(name), max(town), min(code), max(code), count(*) FROM people;
SELECT min(g), max(g), min(s), max(s), min(c), max(c) FROM people;
SELECT min(name COLLATE "sv-x-icu"), max(name COLLATE "C"), min(name COLLATE german) FROM people;
SELECT max(lower(name)), min(name || town), max(f COLLATE "C") FROM people;
SELECT min(name) FROM people WHERE n > 100;
SELECT min(name) FILTER (WHERE n = 2), max(name) FILTER (WHERE n = 3 AND name > 'b') FROM people;
SELECT n, min(name), max(name) FROM people GROUP BY n ORDER BY n;
SELECT n, min(name) AS least FROM people GROUP BY n ORDER BY least, n;
SELECT n, max(g) FROM people GROUP BY n HAVING max(g) > 'b' ORDER BY max(g) DESC, n;
SELECT town, min(name), max(name), avg(n) FROM people GROUP BY town ORDER BY town LIMIT 4;
SELECT town, max(code) FROM people GROUP BY town ORDER BY max(name) DESC, town;
SELECT min(name) || '!' || max(name) FROM people;
SELECT n, min(name) < max(town) AS early FROM people GROUP BY n ORDER BY n;
SELECT min(DISTINCT name), count(DISTINCT name) FROM people;
SELECT max(name) FROM people WHERE name LIKE 'a%';
SELECT max(p.name), min(v.note) FROM people p JOIN visits v ON v.person = p.id;
--! b
SELECT max(name), min(name) FROM people WHERE name > $1;
-- Groups, windows, joins, sub-selects.
SELECT name, count(*) FROM people GROUP BY name ORDER BY name;
SELECT lower(name) AS l, count(*) FROM people GROUP BY lower(name) ORDER BY l LIMIT 5;
SELECT lower(name) AS l, count(*) FROM people GROUP BY l ORDER BY count(*) DESC, l;
SELECT g, count(*) FROM people GROUP BY g, f ORDER BY g, count(*) DESC LIMIT 3;
SELECT count(*) FROM people GROUP BY f ORDER BY f;
SELECT id, rank() OVER (ORDER BY name), first_value(name) OVER (PARTITION BY n ORDER BY name DESC, id) FROM people ORDER BY id;
SELECT string_agg(name, ',' ORDER BY name, id) FROM people WHERE n = 1;
SELECT string_agg(DISTINCT g, ',' ORDER BY g) FROM people;
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY name) FROM people;
SELECT p.id, p.name, s.town FROM people p JOIN shops s ON s.name = p.name ORDER BY p.name, p.id LIMIT 9;
SELECT p.id, s.name FROM people p CROSS JOIN shops s ORDER BY s.name DESC, p.name, p.id LIMIT 14;
SELECT p.name, v.note FROM people p JOIN visits v ON v.person = p.id ORDER BY v.note, p.name LIMIT 10;
SELECT x.name FROM (SELECT name, id FROM people WHERE n < 3) x ORDER BY x.name, x.id LIMIT 6;
SELECT * FROM (SELECT name FROM people ORDER BY name LIMIT 5) x ORDER BY name DESC;
SELECT id FROM people WHERE name = (SELECT max(name) FROM people) ORDER BY id;
SELECT id FROM people WHERE name IN (SELECT name FROM people ORDER BY name LIMIT 4) ORDER BY id;
WITH firsts AS (SELECT name, id FROM people ORDER BY name, id LIMIT 5) SELECT * FROM firsts ORDER BY id;
SELECT id, loud FROM names ORDER BY loud, id LIMIT 5;
SELECT id, name, g FROM names ORDER BY g DESC, name, id LIMIT 5;
SELECT id FROM people WHERE f = 'RED' ORDER BY name, id LIMIT 5;
SELECT name FROM shops ORDER BY name;
SELECT name, (SELECT count(*) FROM shops s WHERE s.name < p.name) FROM people p WHERE id < 9 ORDER BY name LIMIT 5;
-- Names that mean something else.
SELECT id, g AS name FROM people ORDER BY name, id LIMIT 20;
SELECT id, name AS g FROM people ORDER BY g, people.g, id LIMIT 20;
SELECT id, n AS lower FROM people ORDER BY lower, lower(name), id LIMIT 20;
SELECT id, c AS name FROM people ORDER BY upper(name), name, id LIMIT 20;
SELECT * FROM people ORDER BY 2 DESC, 1 LIMIT 6;
SELECT p.* FROM people p ORDER BY p.s, p.id LIMIT 6;
SELECT y, id FROM people AS q (id, y) ORDER BY y, id LIMIT 6;
SELECT x.loud FROM (SELECT upper(name) AS loud, id FROM people) x ORDER BY loud, id LIMIT 12;
SELECT x.loud FROM (SELECT upper(g) AS loud, id FROM people) x ORDER BY loud, id LIMIT 12;
SELECT x.l FROM (SELECT g COLLATE "sv-x-icu" AS l, id FROM people) x ORDER BY l, id LIMIT 12;
WITH w AS (SELECT id, s || '' AS l FROM people) SELECT * FROM w ORDER BY l, id LIMIT 12;
SELECT a.name, b.name FROM people a JOIN people b USING (id) ORDER BY b.name, a.name DESC, id LIMIT 12;
SELECT name, id FROM people a JOIN (SELECT id, g FROM people) b USING (id) ORDER BY g, name, id LIMIT 12;
SELECT DISTINCT name::name FROM people ORDER BY 1;
SELECT name::name, count(*) FROM people GROUP BY name::name ORDER BY name::name;
SELECT DISTINCT ON (n, code) n, code, name, id FROM people ORDER BY n DESC, code, name DESC, id LIMIT 9;
SELECT g FROM people UNION SELECT s FROM people ORDER BY 1;
SELECT g FROM people UNION ALL SELECT g FROM people ORDER BY g DESC LIMIT 9;
SELECT id, row_number() OVER (PARTITION BY id ORDER BY name), name FROM people ORDER BY name DESC, id LIMIT 4;
SELECT id, sum(n) FROM people GROUP BY id, name ORDER BY name, id LIMIT 7;
SELECT id, max(name) FROM people GROUP BY id ORDER BY max(name), id LIMIT 7;
SELECT id, name FROM people GROUP BY id HAVING max(name) > 'b' ORDER BY name, id LIMIT 7;
SELECT p.id, count(*) FROM people p JOIN people q ON q.id = p.id GROUP BY p.id ORDER BY lower(max(q.name)), p.id LIMIT 7;
SELECT id FROM people ORDER BY concat(name, '''', E'\\', town), id LIMIT 12;
SELECT repeat(name, 3) AS r, id FROM people ORDER BY r DESC NULLS LAST, id LIMIT 12;
SELECT id FROM people ORDER BY greatest(name, town), id LIMIT 12;
SELECT id FROM people ORDER BY nullif(name, 'a'), id LIMIT 12;
SELECT id FROM people ORDER BY split_part(name, ' ', 1), name, id LIMIT 12;
SELECT id FROM people ORDER BY (SELECT name), id LIMIT 12;
SELECT id FROM people ORDER BY (ARRAY[name, town])[1], id LIMIT 12;
SELECT id, ARRAY[name] AS l FROM people ORDER BY l, id LIMIT 12;
SELECT id FROM people ORDER BY ROW(name, town), id LIMIT 12;
SELECT id FROM people ORDER BY to_jsonb(name), id LIMIT 12;
SELECT id FROM people ORDER BY name IS NULL, name > 'b', name, id LIMIT 12;
SELECT id FROM people ORDER BY name > town, id LIMIT 12;
SELECT id FROM people WHERE name > town ORDER BY id LIMIT 12;
SELECT max(name > 'b'::text COLLATE "C") FROM people;
SELECT min(upper(g)), max(s || 'x'), min(n::text), max(m::text), min(x::text) FROM people;
SELECT max(name), n FROM people GROUP BY n HAVING min(name) < 'a b' ORDER BY 1, 2;
SELECT max(name) FROM people GROUP BY f ORDER BY 1;
-- Keys that are text.
SELECT k FROM r_text ORDER BY k LIMIT 9;
SELECT k, v FROM r_text WHERE k > 'b' ORDER BY k;
SELECT k, v FROM r_text WHERE k BETWEEN 'A' AND 'h' ORDER BY k DESC LIMIT 6;
SELECT k FROM r_text WHERE k < 'G' ORDER BY k;
SELECT k FROM r_text WHERE k >= 'g' AND k < 'p' ORDER BY k LIMIT 4;
SELECT count(*), min(k), max(k) FROM r_text WHERE k <= 'Z';
SELECT k FROM r_text WHERE k LIKE 'a%' ORDER BY k;
SELECT k FROM r_text WHERE k = 'Ä';
SELECT v FROM r_text WHERE k IN ('a', 'A', 'z') ORDER BY k LIMIT 2;
SELECT label, town FROM streets WHERE town = 'Ulm' ORDER BY label, number LIMIT 3;
SELECT town, number FROM streets WHERE town > 'u' ORDER BY town, number LIMIT 12;
SELECT town, min(label), max(label) FROM streets GROUP BY town ORDER BY town;
SELECT DISTINCT town FROM streets ORDER BY town DESC;
--! any order
COPY (SELECT id, name FROM people ORDER BY name, id LIMIT 4) TO STDOUT;
--! runs
EXPLAIN (COSTS OFF) SELECT id FROM people ORDER BY name LIMIT 3;
-- Cursors and transactions.
--! script
BEGIN;
DECLARE c CURSOR FOR SELECT id, name FROM people ORDER BY name, id LIMIT 12;
FETCH 3 FROM c;
SELECT count(*) FROM visits;
FETCH 4 FROM c;
FETCH ALL FROM c;
FETCH 1 FROM c;
CLOSE c;
DECLARE d SCROLL CURSOR FOR SELECT name FROM people ORDER BY name;
FETCH 3 FROM d;
FETCH PRIOR FROM d;
CLOSE d;
DECLARE e CURSOR FOR SELECT n, min(name), max(g) FROM people GROUP BY n ORDER BY n;
FETCH 2 FROM e;
FETCH ALL FROM e;
DECLARE g CURSOR FOR SELECT DISTINCT name FROM people ORDER BY name DESC;
FETCH 5 FROM g;
UPDATE people SET name = 'Ähre' WHERE id IN (1, 2, 3);
SELECT id, name FROM people ORDER BY name, id LIMIT 15;
SELECT max(name) FROM people WHERE name < 'b';
INSERT INTO visits SELECT 100 + id, id, name FROM people ORDER BY name LIMIT 3;
SELECT note FROM visits ORDER BY note DESC NULLS LAST LIMIT 4;
ROLLBACK;
--! end
--! script
PREPARE p AS SELECT id, name FROM people WHERE n = $1 ORDER BY name, id LIMIT $2;
EXECUTE p(1, 5);
EXECUTE p(2, 3);
EXECUTE p(2, NULL);
--! end
--! script
SET client_encoding = 'LATIN1';
SELECT id, name FROM people WHERE name <> 'é' ORDER BY name, id LIMIT 5;
SELECT max(g), min(name) FROM people;
--! end
