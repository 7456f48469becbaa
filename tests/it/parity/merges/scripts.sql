--! script
SET bytea_output = 'escape';
SELECT k FROM t ORDER BY b, k LIMIT 120;
SELECT k FROM t ORDER BY b DESC;
SELECT g, count(*) FROM t GROUP BY g ORDER BY g;
SELECT DISTINCT ON (g) g, k FROM t ORDER BY g, b DESC;
--! end
--! script
SET extra_float_digits = 0;
SELECT g, max(f) FROM t GROUP BY g ORDER BY max(f), g LIMIT 1;
SELECT k FROM t ORDER BY f DESC, k LIMIT 7;
--! end
--! script
SET client_encoding = 'KOI8R';
SELECT k FROM t ORDER BY c, k LIMIT 50;
SELECT k FROM t ORDER BY c DESC, k;
SELECT g, count(*) FROM t GROUP BY g, c ORDER BY c, g;
SELECT k FROM t WHERE c = (SELECT max(c) FROM t) ORDER BY k;
SELECT length(max(c)), ascii(min(c)) FROM t;
SELECT count(*) FROM t GROUP BY g ORDER BY max(c), g;
--! end
