-- Aggregates over all rows.
SELECT count(*) FROM accounts;
SELECT count(*), count(balance), count(note), count(id) FROM accounts;
SELECT count(*) AS n, count(*) FROM accounts WHERE balance > 10;
SELECT count(*) FROM accounts WHERE id > 1000;
SELECT count(*), sum(balance), min(balance), max(balance), avg(balance) FROM accounts WHERE id > 1000;
SELECT count(*), sum(id), min(id), max(id), avg(id) FROM accounts;
SELECT sum(balance), avg(balance) FROM accounts WHERE active;
SELECT sum(n), avg(n), min(n), max(n) FROM entries;
SELECT sum(i2), avg(i2), min(i2), max(i2), sum(i8), avg(i8), min(i8), max(i8) FROM kitchen;
SELECT sum(num) FROM kitchen;
SELECT sum(num), avg(num), min(num), max(num) FROM kitchen WHERE id <> 13;
SELECT sum(num), avg(num) FROM kitchen WHERE id IN (14, 16, 17, 18);
SELECT avg(num) FROM kitchen WHERE id < 5;
SELECT avg(amount), sum(amount), avg(amount * 1.000), sum(amount::numeric(10,1)) FROM entries;
SELECT avg(amount / 3), sum(amount * 1000000000000) FROM entries;
SELECT min(f4), max(f4), min(f8), max(f8) FROM kitchen;
SELECT min(f8), max(f8) FROM kitchen WHERE id < 13;
SELECT min(d), max(d), min(ts), max(ts), min(tz), max(tz), min(ti), max(ti) FROM kitchen;
SELECT min(name), max(name), min(kind), max(kind) FROM accounts, kinds;
SELECT min(name COLLATE "C"), max(title COLLATE "C") FROM accounts, (SELECT 'x' AS title) x;
SELECT max(c), min(c), max(vc COLLATE "C"), max(t COLLATE "C") FROM kitchen;
SELECT bool_and(active), bool_or(active), every(active IS NULL) FROM accounts;
SELECT bool_and(b), bool_or(b), every(b) FROM kitchen WHERE id > 12;
SELECT bool_and(id > -10), bool_or(id > 39) FROM accounts;
SELECT count(*) FILTER (WHERE active), count(id) FILTER (WHERE balance IS NULL), sum(id) FILTER (WHERE id > 1000) FROM accounts;
SELECT avg(balance) FILTER (WHERE id % 2 = 0), avg(id) FILTER (WHERE FALSE), max(id) FILTER (WHERE NOT active) FROM accounts;
SELECT avg ( balance ) FILTER ( WHERE id > 3 ) AS mean , pg_catalog.avg(id) "Avg" FROM accounts;
SELECT sum(CASE WHEN active THEN 1 ELSE 0 END), sum(CASE WHEN active THEN balance END) FROM accounts;
SELECT count(DISTINCT id) FROM accounts WHERE id = 3;
SELECT count(DISTINCT id), sum(DISTINCT id), avg(DISTINCT id), count(*) FROM accounts;
SELECT count(DISTINCT account_id), count(DISTINCT account_id) FILTER (WHERE n = 1), max(n) FROM entries;
SELECT kind, count(DISTINCT account_id) FROM entries GROUP BY kind HAVING count(DISTINCT account_id) > 3 ORDER BY count(DISTINCT account_id) DESC, kind;
SELECT count(DISTINCT e.account_id), count(DISTINCT a.id) FROM accounts a LEFT JOIN entries e ON e.account_id = a.id;
SELECT count(DISTINCT id % 7), count(DISTINCT (id, active)) FROM accounts;
SELECT count(DISTINCT region), count(DISTINCT (region, tenant)) FROM places;
SELECT count(DISTINCT n) + count(DISTINCT account_id) FROM entries;
SELECT min(DISTINCT balance), max(DISTINCT id) FROM accounts;
SELECT count(a) FROM accounts a;
SELECT 'x' AS label, 1, count(*), NULL FROM accounts;
SELECT count(*), 'it''s, (not) a -- comment' AS "strange, (name)" FROM accounts -- FROM nothing
;
SELECT/* count(*) */count(*)FROM accounts;
SELECT count(*) FROM accounts ORDER BY 1;
SELECT count(*) FROM accounts LIMIT 1;
SELECT count(*) FROM accounts LIMIT 0;
SELECT count(*) FROM accounts OFFSET 1;
SELECT count(*) AS n FROM accounts ORDER BY n DESC LIMIT 3 OFFSET 0;
SELECT count(*) FROM accounts ORDER BY max(id);
--! 3
--! NULL
SELECT count(*), sum(balance) FROM accounts WHERE id > $1;
--! 2
SELECT sum(id * $1), avg(id + $1) FROM accounts;
--! x
SELECT $1::text, count(*) FROM accounts;
SELECT sum(2147483647::bigint * id) FROM accounts;
SELECT sum(id::int) FROM accounts;
SELECT sum(NULL::int), avg(NULL::numeric), count(NULL) FROM accounts;
SELECT count(*) FROM empty_one;
SELECT max(id), sum(id), avg(id) FROM empty_one;
SELECT count(*), max(v) FROM sparse;
SELECT count(*) FROM "Mixed Case" WHERE "a""b" = 1;
SELECT count(*) FROM sales.accounts;
SELECT count(*) FROM active_accounts;
SELECT count(*), sum(amount) FROM account_entries;
SELECT sum(total), sum(entries), count(*) FROM account_sums;
SELECT count(*) FROM labelled_entries;
SELECT count(*) FROM accounts a JOIN entries e ON e.account_id = a.id;
SELECT count(*), count(e.n) FROM accounts a LEFT JOIN entries e ON e.account_id = a.id;
SELECT count(*), count(k.label) FROM entries e LEFT JOIN kinds k ON k.kind = e.kind;
SELECT count(*) FROM accounts a WHERE EXISTS (SELECT 1 FROM entries e WHERE e.account_id = a.id AND e.kind = 'fee');
SELECT count(*) FROM accounts WHERE id NOT IN (SELECT weight FROM kinds WHERE weight IS NOT NULL);
SELECT count(*) FROM (SELECT id FROM accounts) s;
SELECT count(*) FROM (SELECT account_id, count(*) FROM entries GROUP BY account_id) s;
SELECT max(c), sum(c) FROM (SELECT account_id, count(*) AS c FROM entries GROUP BY account_id) s;
SELECT count(*) FROM accounts CROSS JOIN kinds;
WITH rich AS (SELECT * FROM accounts WHERE balance > 50) SELECT count(*), min(id) FROM rich;
WITH RECURSIVE one AS (SELECT 1) SELECT count(*) FROM accounts;
SELECT count(*) FROM places WHERE region = 'eu';
SELECT count(*) FROM readings;
SELECT count(*), min(at), max(at) FROM readings WHERE sensor BETWEEN 2 AND 6;
SELECT count(*) FROM books;
SELECT sum(pages), count(*), avg(pages) FROM books WHERE right(isbn, 1) IN ('1', '4', 'X');
SELECT count(*) FROM accounts WHERE id IN (1, 2, 3, 4, 5, 6);
SELECT count(*) FROM accounts WHERE id = 5;
SELECT avg(balance) FROM accounts WHERE id = 5;
-- GROUP BY.
SELECT kind, count(*) FROM entries GROUP BY kind;
SELECT kind, count(*) FROM entries GROUP BY kind ORDER BY kind;
SELECT kind, count(*) FROM entries GROUP BY kind ORDER BY kind DESC NULLS LAST;
SELECT kind, count(*) FROM entries GROUP BY kind ORDER BY count(*) DESC, kind;
SELECT kind, count(*) FROM entries GROUP BY kind ORDER BY 2, 1 DESC;
SELECT kind, count(*) AS n, sum(amount) FROM entries GROUP BY 1 ORDER BY n DESC, kind LIMIT 2;
SELECT kind, count(*) AS n FROM entries GROUP BY 1 ORDER BY n DESC, kind LIMIT 2 OFFSET 1;
SELECT kind, count(*) AS n FROM entries GROUP BY 1 ORDER BY n DESC, kind OFFSET 3;
--! 2 | 1
--! NULL | 0
--! 0 | 0
SELECT kind, count(*) AS n FROM entries GROUP BY 1 ORDER BY n DESC, kind LIMIT $1 OFFSET $2;
--! extended
--! -1 | 0
--! 1 | -1
SELECT kind, count(*) AS n FROM entries GROUP BY 1 ORDER BY n DESC, kind LIMIT $1 OFFSET $2;
SELECT kind AS k, avg(amount) FROM entries GROUP BY k ORDER BY k;
SELECT count(*), max(amount) FROM entries GROUP BY kind ORDER BY kind;
SELECT avg(amount) FROM entries GROUP BY kind ORDER BY kind NULLS FIRST;
SELECT kind FROM entries GROUP BY kind ORDER BY kind;
SELECT kind FROM entries GROUP BY kind ORDER BY max(amount) DESC NULLS LAST, kind;
SELECT kind FROM entries GROUP BY kind ORDER BY avg(amount) DESC NULLS LAST, kind;
SELECT kind, min(amount) FROM entries GROUP BY kind ORDER BY avg(amount), min(amount);
SELECT upper(kind), count(*) FROM entries GROUP BY kind ORDER BY kind;
SELECT upper(kind) AS u, count(*) FROM entries GROUP BY upper(kind) ORDER BY upper(kind) COLLATE "C";
SELECT upper(kind) || '!', count(*), length(kind) + 1 FROM entries GROUP BY kind ORDER BY kind;
SELECT n, count(*) FROM entries GROUP BY n ORDER BY n;
SELECT n % 2, count(*) FROM entries GROUP BY n % 2 ORDER BY n % 2;
SELECT n, kind, count(*), sum(amount), avg(amount) FROM entries GROUP BY n, kind ORDER BY n, kind;
SELECT n, kind, count(*) FROM entries GROUP BY (n, kind) ORDER BY n, kind;
SELECT e.n, e.kind, count(*) FROM entries e GROUP BY e.kind, e.n ORDER BY e.n DESC, e.kind;
SELECT active, count(*) FROM accounts GROUP BY active ORDER BY active;
SELECT note, count(*), sum(balance) FROM accounts GROUP BY note;
SELECT note, count(*) FROM accounts GROUP BY note HAVING note IS NOT NULL;
SELECT note, count(*) FROM accounts GROUP BY note HAVING note <> 'note 1' AND TRUE ORDER BY count(*) DESC, note COLLATE "C" LIMIT 2;
SELECT booked, count(*) FROM entries GROUP BY booked ORDER BY booked;
SELECT date_trunc('month', booked::timestamp), count(*) FROM entries GROUP BY 1 ORDER BY 1;
SELECT extract(month FROM booked) AS m, count(*), sum(amount) FROM entries GROUP BY m ORDER BY m;
SELECT to_char(booked, 'YYYY-MM') AS month, count(*) FROM entries GROUP BY to_char(booked, 'YYYY-MM') ORDER BY to_char(booked, 'YYYY-MM') COLLATE "C";
SELECT opened::date, count(*) FROM accounts GROUP BY opened::date ORDER BY opened::date;
SELECT opened, count(*) FROM accounts GROUP BY opened;
SELECT region, count(*) FROM places GROUP BY region;
SELECT tenant, count(*), min(v COLLATE "C") FROM places GROUP BY tenant ORDER BY tenant;
SELECT language, count(*), sum(pages), avg(pages)::numeric FROM books WHERE language = 'en' GROUP BY language;
SELECT l.name, count(*) FROM books b JOIN languages l ON l.code = b.language GROUP BY l.name;
SELECT l.code, l.name, count(*) FROM books b JOIN languages l ON l.code = b.language GROUP BY l.code;
SELECT k.label, k.kind, sum(e.amount), count(*) FROM entries e JOIN kinds k USING (kind) GROUP BY k.kind, k.label ORDER BY k.kind;
SELECT kind, count(*) FROM entries e JOIN kinds k USING (kind) GROUP BY kind ORDER BY kind;
SELECT m, count(*) FROM kitchen GROUP BY m;
SELECT b, count(*), sum(id) FROM kitchen GROUP BY b ORDER BY b NULLS FIRST;
SELECT c, count(*) FROM kitchen GROUP BY c ORDER BY c;
SELECT by, u, count(*) FROM kitchen GROUP BY by, u ORDER BY by, u;
SELECT d, ts, ti, nm, count(*) FROM kitchen GROUP BY d, ts, ti, nm ORDER BY d, ts, ti, nm;
SELECT num::int, count(*) FROM kitchen WHERE id < 13 OR id > 17 AND id < 19 GROUP BY num::int ORDER BY 1;
SELECT total, count(*) FROM orders GROUP BY total ORDER BY total;
SELECT account_id, count(*), sum(total), max(day) FROM orders GROUP BY account_id ORDER BY account_id;
SELECT account_id % 3 AS r, avg(total), count(*) FROM orders GROUP BY r ORDER BY avg(total) DESC, r;
SELECT account_id, count(*) FROM entries GROUP BY account_id HAVING count(*) > 2 ORDER BY account_id;
SELECT kind, count(*) FROM entries WHERE FALSE GROUP BY kind;
SELECT kind, count(*) FROM entries WHERE account_id = 3 GROUP BY kind ORDER BY kind;
SELECT 1 AS one, count(*) FROM entries GROUP BY ();
--! 2
SELECT n % $1::int AS r, count(*) FROM entries GROUP BY 1 ORDER BY 1;
--! fee
SELECT kind = $1 AS is_fee, count(*) FROM entries GROUP BY 1 ORDER BY 1;
--! month
SELECT date_trunc($1, booked::timestamp) AS at, sum(amount) FROM entries GROUP BY at ORDER BY at;
SELECT count(*) FROM entries GROUP BY n ORDER BY n FETCH FIRST 2 ROWS ONLY;
SELECT n, count(*) AS c FROM entries GROUP BY n ORDER BY c FETCH FIRST 1 ROWS WITH TIES;
SELECT account_id % 2 AS odd, n, count(*) AS c FROM entries GROUP BY 1, 2 ORDER BY n OFFSET 1 FETCH FIRST 1 ROW WITH TIES;
-- Errors are PostgreSQL's.
SELECT kind, count(*) FROM entries GROUP BY kind ORDER BY n;
SELECT kind, n, count(*) FROM entries GROUP BY kind;
SELECT kind, count(*) FROM entries GROUP BY 3;
SELECT kind, count(*) FROM entries GROUP BY kind ORDER BY 3;
SELECT kind, count(*) AS kind FROM entries GROUP BY 1 ORDER BY kind;
SELECT kind AS a, count(*) AS a FROM entries GROUP BY 1 ORDER BY a;
SELECT sum(name) FROM accounts;
SELECT count(*), nothing FROM accounts;
SELECT count(nothing) FROM accounts ORDER BY 1;
SELECT avg(balance), nothing FROM accounts;
SELECT avg(balance), avg(nothing) FROM accounts;
SELECT sum(1 / (id - 3)) FROM accounts;
SELECT sum(9223372036854775807) FROM accounts;
SELECT sum(2147483647::int * 4611686018427387::bigint) FROM accounts;
SELECT count(*) FROM accounts LIMIT 'x';
SELECT count(*) FROM accounts LIMIT TRUE;
SELECT count(*) FROM accounts LIMIT 1 + 0;
SELECT count(*) FROM accounts LIMIT -1;
SELECT count(*) FROM accounts OFFSET -1;
-- What the proxy does not make of parts by itself.
SELECT sum(score) FROM accounts;
SELECT avg(f8) FROM kitchen;
SELECT sum(iv) FROM kitchen;
SELECT max(note) FROM accounts;
SELECT max(m) FROM kitchen;
SELECT max(iv) FROM kitchen;
SELECT max(ia) FROM kitchen;
SELECT count(DISTINCT kind) FROM entries;
SELECT string_agg(kind, ',' ORDER BY kind) FROM entries;
SELECT array_agg(n ORDER BY n, account_id) FROM entries;
SELECT stddev(balance) FROM accounts;
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY id) FROM accounts;
SELECT mode() WITHIN GROUP (ORDER BY kind) FROM entries;
SELECT kind, count(*) FROM entries GROUP BY kind HAVING count(*) > 3;
SELECT sum(balance) / count(*) FROM accounts;
SELECT coalesce(sum(balance), 0) FROM accounts;
SELECT count(*)::int FROM accounts;
SELECT kind, count(*) FROM entries GROUP BY kind ORDER BY count(*) * 2, kind;
SELECT kind, rank() OVER (ORDER BY count(*)) FROM entries GROUP BY kind;
SELECT DISTINCT count(*) FROM entries GROUP BY kind;
SELECT ip, count(*) FROM kitchen GROUP BY ip;
SELECT jb, count(*) FROM kitchen GROUP BY jb;
SELECT iv, count(*) FROM kitchen GROUP BY iv;
SELECT note, count(*) FROM accounts GROUP BY note ORDER BY note;
SELECT kind, generate_series(1, 2), count(*) FROM entries GROUP BY kind;
SELECT kind, (SELECT count(*) FROM kinds k WHERE k.kind = e.kind) FROM entries e GROUP BY kind;
SELECT count(*), generate_series(1, 2) FROM entries;
SELECT count(*) FROM entries HAVING count(*) > 3;
SELECT count(*) FROM accounts FOR UPDATE;
-- What is left to do with whole groups: expressions, HAVING, windows, DISTINCT.
SELECT sum(balance) / count(balance), avg(balance) FROM accounts;
SELECT sum(balance) / nullif(count(*), 0) AS mean, count(*) + 1, -sum(id), (max(id) - min(id)) * 2 FROM accounts;
SELECT coalesce(sum(balance), 0), coalesce(max(id), -1), coalesce(avg(balance), 0.5) FROM accounts WHERE id > 1000;
SELECT count(*)::text || ' rows', round(avg(balance), 2), sum(id)::int, count(*) > 3 AND bool_or(active) FROM accounts;
SELECT CASE WHEN count(*) > 10 THEN 'many' ELSE 'few' END AS size, least(min(id), 0), greatest(max(balance), 1) FROM accounts;
SELECT 100.00 * sum(CASE WHEN active THEN balance ELSE 0 END) / sum(balance) AS share FROM accounts;
SELECT count(*) * 1.0 / count(DISTINCT id) FROM accounts WHERE id = 3;
SELECT pg_typeof(sum(id)), pg_typeof(avg(id)), pg_typeof(count(*)), pg_typeof(max(opened)) FROM accounts;
SELECT count(*)/count(*), count ( * ) FILTER (WHERE active) / 2 /* count(*) */ FROM accounts;
SELECT sum(balance)/sum(score::numeric) FROM accounts WHERE score < 1000 AND score > -1000;
SELECT max(opened) - min(opened), max(opened)::date FROM accounts;
SELECT count(*) / (count(*) - count(*)) FROM accounts;
SELECT count(*), sum(id) + 1 FROM accounts WHERE FALSE;
SELECT twice(count(*)::int), abs(min(id)) FROM accounts;
SELECT count(*) + 1 AS n FROM accounts ORDER BY n LIMIT 1;
SELECT count(*) + 1 AS n FROM accounts LIMIT 0;
SELECT count(*) FROM entries HAVING sum(amount) > 1000000;
SELECT 'found' FROM entries HAVING count(*) > 10;
SELECT 1 FROM entries HAVING FALSE;
SELECT kind, count(*) FROM entries GROUP BY kind HAVING count(*) > 11 ORDER BY kind;
SELECT kind, count(*) FROM entries GROUP BY kind HAVING max(amount) > 30 AND min(amount) < 5 ORDER BY kind DESC;
SELECT kind FROM entries GROUP BY kind HAVING avg(amount) BETWEEN 10 AND 20 OR sum(amount) > 250 ORDER BY 1;
SELECT n, count(*) FROM entries GROUP BY n HAVING n > 1 AND count(*) > 3 ORDER BY n;
SELECT e.n, count(*) FROM entries e GROUP BY e.n HAVING e.n * 2 > count(*) / 10 ORDER BY e.n;
SELECT n, n + count(*) AS s, e.n * 2 FROM entries e GROUP BY e.n ORDER BY s DESC, n;
SELECT n AS kind, count(*) * 2 FROM entries GROUP BY n ORDER BY kind;
SELECT "n", count(*) * 2 AS "Twice ""it""" FROM entries GROUP BY "n" ORDER BY "Twice ""it""", n;
SELECT kind, sum(amount) / count(*) AS mean FROM entries GROUP BY kind ORDER BY mean DESC NULLS LAST, kind LIMIT 3;
SELECT kind, sum(amount) / count(*) FROM entries GROUP BY kind ORDER BY sum(amount) / count(*), kind OFFSET 1;
SELECT kind, count(*) FROM entries GROUP BY kind ORDER BY count(*) * -1, kind;
SELECT kind, count(*), round(avg(amount), 1) FROM entries GROUP BY kind ORDER BY kind COLLATE "C" DESC;
SELECT upper(kind) AS u, count(*) + 0 FROM entries GROUP BY upper(kind) ORDER BY upper(kind) COLLATE "C";
SELECT kind, n, count(*) + 0 FROM entries GROUP BY kind, n ORDER BY n DESC, kind LIMIT 4 OFFSET 1;
SELECT n, count(*) + 0 FROM entries GROUP BY 1 ORDER BY 1;
SELECT n AS x, count(*) + x FROM entries, (SELECT 5 AS x) c GROUP BY n, x ORDER BY n;
SELECT booked, count(*) + 0 FROM entries GROUP BY booked HAVING booked > '2024-02-01' ORDER BY booked LIMIT 3;
SELECT extract(year FROM booked) + sum(n) AS y FROM entries GROUP BY booked ORDER BY y, booked LIMIT 3;
SELECT DISTINCT count(*) FROM entries GROUP BY kind ORDER BY 1;
SELECT DISTINCT n % 2, count(*) > 5 FROM entries GROUP BY n;
SELECT kind, count(*), rank() OVER (ORDER BY count(*) DESC, sum(amount)) FROM entries GROUP BY kind ORDER BY 3, 1;
SELECT n, count(*), sum(count(*)) OVER (ORDER BY n), sum(count(*)) OVER () FROM entries GROUP BY n ORDER BY n;
SELECT n, count(*), row_number() OVER w FROM entries GROUP BY n WINDOW w AS (ORDER BY max(amount) DESC) ORDER BY n;
SELECT n, lag(count(*)) OVER (PARTITION BY n % 2 ORDER BY n) FROM entries GROUP BY n ORDER BY n;
SELECT n, generate_series(1, count(*)::int / 8) AS g FROM entries GROUP BY n ORDER BY n, g;
SELECT n, count(*) + 0 AS c FROM entries GROUP BY n ORDER BY c FETCH FIRST 1 ROWS WITH TIES;
SELECT n, round(random()) * 0 + count(*) FROM entries GROUP BY n ORDER BY n;
--! 10
--! NULL
SELECT kind, count(*) FROM entries GROUP BY kind HAVING count(*) > $1 ORDER BY kind;
--! 2 | 5 | 2
SELECT n, count(*) * $1::int FROM entries WHERE account_id > $3 GROUP BY n HAVING count(*) > $2 ORDER BY n LIMIT $3;
--! 1.5
SELECT sum(balance) * $1 FROM accounts;
--! x
SELECT $1::text, count(*) + 1 FROM accounts;
SELECT kind || '!' || count(*) FROM entries GROUP BY kind ORDER BY kind;
SELECT coalesce(max(kind), 'none'), lower(max(kind)) FROM entries;
SELECT kind, count(*) FROM entries GROUP BY kind HAVING kind > 'd' AND count(*) > 1 ORDER BY kind;
SELECT c, count(*) + 1 FROM kitchen GROUP BY c ORDER BY c;
SELECT m, count(*) + 1 FROM kitchen GROUP BY m ORDER BY m;
SELECT b, u, by, d, ts, tz, ti, count(*) * 2 FROM kitchen GROUP BY b, u, by, d, ts, tz, ti ORDER BY d, u;
SELECT tz::date, max(tz) - min(ts)::timestamptz FROM kitchen GROUP BY tz::date ORDER BY tz::date;
SELECT num, count(*) + 1 FROM kitchen WHERE id < 6 GROUP BY num ORDER BY num;
SELECT nothing, count(*) + 1 FROM entries GROUP BY kind;
SELECT kind, count(*) + n FROM entries GROUP BY kind;
SELECT kind, count(*) + 1 FROM entries GROUP BY kind ORDER BY nothing;
SELECT kind, count(*) FROM entries GROUP BY kind HAVING count(*) > 'x';
SELECT kind, count(*) FROM entries GROUP BY kind HAVING sum(kind) > 1;
SELECT kind, count(*) / 0 FROM entries GROUP BY kind;
SELECT kind, count(*) + 1 FROM entries GROUP BY kind LIMIT -1;
-- DISTINCT, UNION.
SELECT DISTINCT kind FROM entries;
SELECT DISTINCT kind, n FROM entries ORDER BY n, kind;
SELECT DISTINCT kind, n FROM entries ORDER BY n DESC, kind LIMIT 5 OFFSET 2;
SELECT DISTINCT n FROM entries ORDER BY n FETCH FIRST 2 ROWS WITH TIES;
SELECT DISTINCT upper(kind) FROM entries;
SELECT DISTINCT balance FROM accounts ORDER BY balance;
SELECT DISTINCT active, note IS NULL FROM accounts;
SELECT DISTINCT e.kind, k.label FROM entries e LEFT JOIN kinds k USING (kind);
SELECT DISTINCT 1 FROM entries;
SELECT DISTINCT * FROM (SELECT n % 2, kind FROM entries) s;
SELECT DISTINCT num FROM kitchen WHERE id < 10 OR id > 16;
SELECT DISTINCT score > 0 FROM accounts;
SELECT DISTINCT score FROM accounts WHERE id < 3;
SELECT DISTINCT iv FROM kitchen;
SELECT DISTINCT m FROM kitchen;
--! 2
SELECT DISTINCT n FROM entries ORDER BY n LIMIT $1;
SELECT DISTINCT kind FROM entries ORDER BY n;
--! count only
SELECT DISTINCT kind FROM entries LIMIT 1 + 1 OFFSET 0;
SELECT DISTINCT ON (kind) kind, account_id, n FROM entries ORDER BY kind, account_id, n;
SELECT DISTINCT ON (kind) kind, account_id FROM entries ORDER BY kind DESC, account_id DESC, n;
SELECT DISTINCT ON (n, kind) amount FROM entries ORDER BY kind, n, account_id LIMIT 5;
SELECT DISTINCT ON (1) n, account_id FROM entries ORDER BY 1, 2 DESC;
SELECT DISTINCT ON (kind, kind) kind, account_id FROM entries ORDER BY kind, account_id, n;
SELECT DISTINCT ON (n) n FROM entries;
SELECT DISTINCT ON (kind) kind, account_id FROM entries ORDER BY account_id;
SELECT kind FROM entries UNION SELECT note FROM accounts;
SELECT kind FROM entries UNION SELECT kind FROM kinds ORDER BY 1;
SELECT kind FROM kinds UNION SELECT kind FROM entries ORDER BY kind DESC LIMIT 2;
SELECT n FROM entries UNION SELECT n FROM visits UNION SELECT 7 ORDER BY 1;
SELECT n FROM entries UNION ALL SELECT n FROM visits ORDER BY 1 LIMIT 20;
SELECT n, kind FROM entries UNION SELECT DISTINCT n, 'x' FROM visits ORDER BY 1, 2;
SELECT n::numeric FROM entries UNION SELECT 1.0;
SELECT n FROM entries EXCEPT SELECT 1;
SELECT n FROM entries INTERSECT SELECT n FROM visits;
(SELECT n FROM entries) UNION (SELECT n FROM visits) ORDER BY 1;
SELECT n FROM entries UNION SELECT n FROM visits LIMIT 1 + 1;
-- Orders.
SELECT id FROM accounts ORDER BY balance / 3 NULLS FIRST, id DESC LIMIT 7;
SELECT id, name n FROM accounts ORDER BY -id, n LIMIT 3 OFFSET 2;
SELECT a.id FROM accounts a ORDER BY a.balance IS NULL, a.id % 5 DESC, a.id LIMIT 9;
SELECT id FROM accounts ORDER BY coalesce(balance, 0), id OFFSET 30;
SELECT coalesce(balance, 0) FROM accounts ORDER BY coalesce DESC, id LIMIT 3;
SELECT CASE WHEN id > 3 THEN 1 END FROM accounts ORDER BY "case" NULLS FIRST, id LIMIT 3;
SELECT *, id % 2 FROM accounts ORDER BY id % 2, id LIMIT 3;
SELECT * FROM accounts ORDER BY id % 2, id LIMIT 3;
SELECT id, opened FROM accounts ORDER BY opened + interval '1 day' LIMIT 3;
SELECT id FROM accounts ORDER BY to_char(opened, 'YYYY-MM-DD HH24:MI') COLLATE "C" DESC LIMIT 3;
SELECT id FROM accounts ORDER BY (SELECT weight FROM kinds WHERE kind = 'fee'), id LIMIT 3;
SELECT id FROM accounts ORDER BY id LIMIT (SELECT 3) OFFSET (SELECT 1);
SELECT id FROM accounts ORDER BY id LIMIT 1 + 1 OFFSET 2 * 1;
SELECT id FROM accounts ORDER BY id LIMIT NULL::int OFFSET 40 - 4;
SELECT id FROM accounts ORDER BY id LIMIT 0 * 5 OFFSET 1;
SELECT id FROM accounts ORDER BY id LIMIT 1 - 2;
SELECT id FROM accounts ORDER BY id OFFSET 1 - 2;
SELECT id FROM accounts ORDER BY id LIMIT 1 - 2 OFFSET 1 - 3;
SELECT id FROM accounts ORDER BY id LIMIT 2.5;
SELECT id FROM accounts ORDER BY id LIMIT TRUE;
SELECT id FROM accounts ORDER BY id LIMIT 'x' OFFSET 1;
--! 2 | 1
--! NULL | 1
SELECT id FROM accounts ORDER BY id LIMIT $1::int + 1 OFFSET $2::numeric;
--! any order
SELECT active, id % 3 FROM accounts WHERE active IS NOT NULL ORDER BY active FETCH FIRST 5 ROWS WITH TIES;
--! count only
SELECT n, account_id FROM entries ORDER BY n OFFSET 3 ROWS FETCH FIRST 2 ROWS WITH TIES;
SELECT n FROM entries ORDER BY n DESC FETCH FIRST ROW WITH TIES;
SELECT n FROM entries ORDER BY n FETCH FIRST 0 ROWS WITH TIES;
SELECT 1 / (id - 20) FROM accounts ORDER BY id LIMIT 3;
SELECT 1 / (id - 2) FROM accounts ORDER BY id LIMIT 10;
-- Parentheses, blanks and comments around aggregates.
SELECT (count(*)), ((avg(balance))), (sum(balance) / (count(*) )) FROM accounts;
SELECT (avg(balance)) AS a, (  avg ( balance )  FILTER (WHERE id > 3) + 1) FROM accounts;
SELECT round((avg(balance)), (count(*) % 3)::int) FROM accounts;
SELECT kind, (count(*)) FROM entries GROUP BY (kind) HAVING ((count(*)) > (3)) ORDER BY (count(*)), (kind);
SELECT count(*) -- all of them
  + 1 AS /* more */ n FROM accounts -- and no more
  ORDER BY /* by */ n -- end
;
SELECT "pg_catalog"."count"(*) + "sum"(id) FROM accounts;
SELECT U&"c\006funt"(*) FROM accounts;
SELECT count(ALL id), sum(ALL n) + 1 FROM entries JOIN accounts ON id = account_id;

-- What only the last step mentions has its type there, too.
--! sad
SELECT avg(NULL::int4) FROM accounts HAVING min(NULL::mood) IS DISTINCT FROM $1::mood;
--! {sad,happy} | sad
SELECT count(*), cardinality($1::mood[]) FROM accounts HAVING min(NULL::mood) IS DISTINCT FROM $2::mood;
-- Text in an order that is not that of its bytes.
SELECT w, count(*) FROM words GROUP BY w ORDER BY w;
SELECT w, count(*), sum(n) FROM words GROUP BY 1 ORDER BY 1 DESC LIMIT 5;
SELECT count(*) FROM words GROUP BY w ORDER BY w;
SELECT v AS x, max(n) FROM words GROUP BY v ORDER BY x, max(n);
SELECT w, v, count(*) FROM words GROUP BY w, v ORDER BY v NULLS FIRST, w DESC OFFSET 1;
SELECT upper(w) AS u, count(*) FROM words GROUP BY w ORDER BY u, w;
SELECT w || '!' AS x, count(*) FROM words GROUP BY w ORDER BY w || '!';
SELECT w, count(*) > 4 OR w > 'm' AS late FROM words GROUP BY w ORDER BY w;
SELECT w, max(n) FROM words GROUP BY w HAVING max(n) > 1 AND w > 'B' ORDER BY w;
SELECT w, avg(n) FROM words GROUP BY w HAVING count(*) > 3 OR w < 'c' ORDER BY w;
SELECT w COLLATE "C", count(*) FROM words GROUP BY w ORDER BY w COLLATE "C";
SELECT w COLLATE "C" AS c, count(*) FROM words GROUP BY c ORDER BY c;
SELECT w COLLATE "C" AS c, count(*) FROM words GROUP BY w ORDER BY w;
SELECT w COLLATE "C" AS c, count(*) FROM words GROUP BY 1 ORDER BY 1;
SELECT w, rank() OVER (ORDER BY w) FROM words GROUP BY w ORDER BY w;
SELECT v, count(DISTINCT id) + 1 FROM words GROUP BY v ORDER BY v DESC NULLS LAST;
SELECT w.w, sum(a.balance) FROM words w JOIN sparse s ON s.id = w.id JOIN accounts a ON a.id = w.id GROUP BY w.w ORDER BY w.w;
SELECT max(w), min(w), v FROM words GROUP BY v ORDER BY v;
SELECT DISTINCT w FROM words ORDER BY w;
SELECT DISTINCT v, w FROM words ORDER BY w, v;
SELECT w FROM words ORDER BY w, id LIMIT 7;
--! 3
SELECT w, count(*) FROM words WHERE n < $1 GROUP BY w ORDER BY w LIMIT $1;
