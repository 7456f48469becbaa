-- COPY of what PostgreSQL computes over gathered rows.
--! total order
COPY (SELECT p.id, p.name, o.total, o.moods FROM people p JOIN shop.orders o ON o.person_id = p.id ORDER BY p.id, o.id) TO STDOUT;
--! total order
COPY (SELECT level, count(*), string_agg(name, ',' ORDER BY id) AS names FROM people GROUP BY ROLLUP (level) ORDER BY level) TO STDOUT (FORMAT csv, HEADER);
--! total order
COPY (SELECT a.id, b.id AS other, a.score FROM people a JOIN people b ON a.age = b.age ORDER BY a.id, b.id) TO STDOUT (FORMAT binary);
--! total order
COPY (SELECT name FROM people ORDER BY name, id) TO STDOUT;
COPY posts TO STDOUT (FORMAT csv, HEADER);
COPY people TO STDOUT;
COPY posts TO STDIN WITH DELIMITER E';' NULL AS E'\\N';
COPY posts (doubled) TO STDOUT;
COPY events TO STDOUT;
COPY secrets TO STDOUT;
COPY (SELECT doubled FROM posts) TO STDOUT;
COPY (SELECT sum(nothing) OVER () FROM people) TO STDOUT;
--! script
--! runs
SET ROLE parity_reader;
COPY people (id, name) TO STDOUT;
COPY people TO STDOUT;
COPY shop.orders TO STDOUT;
COPY (SELECT count(*), max(level) FROM people) TO STDOUT;
--! end
