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
--! refused
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
--! refused
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
-- What the proxy does not make of parts.
--! refused
SELECT sum(score) FROM accounts;
--! refused
SELECT avg(f8) FROM kitchen;
--! refused
SELECT sum(iv) FROM kitchen;
SELECT max(note) FROM accounts;
--! refused
SELECT max(m) FROM kitchen;
--! refused
SELECT max(iv) FROM kitchen;
--! refused
SELECT max(ia) FROM kitchen;
--! refused
SELECT count(DISTINCT kind) FROM entries;
--! refused
SELECT string_agg(kind, ',' ORDER BY kind) FROM entries;
--! refused
SELECT array_agg(n) FROM entries;
--! refused
SELECT stddev(balance) FROM accounts;
--! refused
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY id) FROM accounts;
--! refused
SELECT mode() WITHIN GROUP (ORDER BY kind) FROM entries;
--! refused
SELECT kind, count(*) FROM entries GROUP BY kind HAVING count(*) > 3;
--! refused
SELECT sum(balance) / count(*) FROM accounts;
--! refused
SELECT coalesce(sum(balance), 0) FROM accounts;
--! refused
SELECT count(*)::int FROM accounts;
--! refused
SELECT kind, count(*) FROM entries GROUP BY kind ORDER BY count(*) * 2;
--! refused
SELECT kind, rank() OVER (ORDER BY count(*)) FROM entries GROUP BY kind;
--! refused
SELECT DISTINCT count(*) FROM entries GROUP BY kind;
--! refused
SELECT ip, count(*) FROM kitchen GROUP BY ip;
--! refused
SELECT jb, count(*) FROM kitchen GROUP BY jb;
--! refused
SELECT iv, count(*) FROM kitchen GROUP BY iv;
SELECT note, count(*) FROM accounts GROUP BY note ORDER BY note;
--! refused
SELECT kind, generate_series(1, 2), count(*) FROM entries GROUP BY kind;
--! refused
SELECT kind, (SELECT count(*) FROM kinds k WHERE k.kind = e.kind) FROM entries e GROUP BY kind;
--! refused
SELECT count(*), generate_series(1, 2) FROM entries;
--! refused
SELECT count(*) FROM entries HAVING count(*) > 3;
SELECT count(*) FROM accounts FOR UPDATE;
