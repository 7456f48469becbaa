-- COPY of a table.
COPY accounts TO STDOUT;
COPY accounts (name, id, balance) TO STDOUT (FORMAT csv);
COPY entries TO STDOUT WITH CSV HEADER;
COPY public.accounts (id) TO STDOUT (HEADER);
COPY kitchen TO STDOUT;
COPY kitchen TO STDOUT (FORMAT csv, NULL 'none', FORCE_QUOTE *);
COPY "Mixed Case" ("Select", "a""b") TO STDOUT (FORMAT csv, HEADER);
COPY sales.invoices TO STDOUT (DELIMITER '|', NULL '');
COPY empty_one TO STDOUT;
COPY empty_one TO STDOUT (FORMAT csv, HEADER);
COPY empty_one TO STDOUT (FORMAT binary);
COPY books TO STDOUT CSV;
COPY places TO STDOUT (FORMAT csv, DELIMITER ';', QUOTE '''', ESCAPE '\', FORCE_QUOTE (region, v));
-- Numbers stand for their text.
COPY accounts (id, name, balance) TO STDOUT (NULL 0, DELIMITER 7);
COPY accounts (id, name, note) TO STDOUT (FORMAT csv, NULL -1, QUOTE 2, ESCAPE 3, HEADER 'OFF');
COPY accounts (id, name, note) TO STDOUT (FORMAT csv, HEADER 'ON', DELIMITER *, NULL (a, b));
-- COPY of a query.
--! total order
COPY (SELECT id, name, balance, score, active, opened, note FROM accounts ORDER BY id) TO STDOUT;
--! total order
COPY (SELECT id, name, note FROM accounts ORDER BY balance DESC NULLS LAST, id) TO STDOUT (FORMAT csv, HEADER);
--! total order
COPY (SELECT id, name, balance, opened FROM accounts ORDER BY id LIMIT 7 OFFSET 2) TO STDOUT (FORMAT binary);
--! total order
COPY (SELECT kind, count(*), sum(amount) FROM entries GROUP BY kind ORDER BY kind) TO STDOUT;
--! total order
COPY (SELECT kind, round(avg(amount), 4) AS mean FROM entries GROUP BY kind ORDER BY kind) TO STDOUT (FORMAT csv, HEADER);
COPY (SELECT DISTINCT kind FROM entries) TO STDOUT (FORMAT csv, NULL 'x');
COPY (SELECT count(*) FROM accounts) TO STDOUT;
--! total order
COPY (SELECT a.id, a.name, e.n FROM accounts a JOIN entries e ON e.account_id = a.id -- all of them
 ORDER BY a.id, e.n) TO STDOUT (FORMAT csv, FORCE_QUOTE (name));
COPY (SELECT id, E'a\tb\\c\nd\re\x01' || name AS odd, '\.' AS dot FROM accounts) TO STDOUT;
COPY (SELECT E'"q",\n' || name FROM accounts) TO STDOUT (FORMAT csv);
COPY (SELECT '\.' FROM accounts) TO STDOUT (FORMAT csv);
COPY (SELECT E'a\bb' FROM accounts) TO STDOUT (DELIMITER E'\b');
COPY (SELECT ''::text, NULL::text, id FROM accounts) TO STDOUT (FORMAT csv);
COPY (SELECT ''::text, NULL::text, id FROM accounts) TO STDOUT (FORMAT csv, NULL 'N', FORCE_QUOTE *);
COPY (SELECT FROM accounts) TO STDOUT;
COPY (TABLE entries) TO STDOUT;
COPY (SELECT id FROM accounts WHERE false) TO STDOUT (HEADER);
COPY (SELECT a.id FROM accounts a JOIN orders o ON o.account_id = a.id) TO STDOUT;
COPY (SELECT id FROM accounts UNION ALL SELECT id FROM audit) TO STDOUT (FORMAT csv);
-- What PostgreSQL refuses.
COPY accounts (nothing) TO STDOUT;
COPY accounts (id, id) TO STDOUT;
COPY active_accounts TO STDOUT;
COPY accounts TO STDOUT (FORMAT xml);
COPY accounts TO STDOUT (DELIMITER 'ab');
COPY accounts TO STDOUT (FORMAT csv, QUOTE 'ab');
COPY accounts TO STDOUT (FORMAT binary, DELIMITER ',');
COPY accounts TO STDOUT (FORCE_NOT_NULL (id));
COPY accounts TO STDOUT (nonsense);
COPY accounts TO STDOUT (FORMAT csv, FORCE_QUOTE (nothing));
COPY accounts TO STDOUT (HEADER match);
COPY accounts TO STDOUT (ENCODING 'nowhere');
COPY (SELECT nothing FROM accounts) TO STDOUT;
COPY (SELECT id FROM accounts ORDER BY nothing) TO STDOUT (FORMAT csv);
COPY (SELECT 1 / (id - id) FROM accounts) TO STDOUT;
-- In a transaction, and among other statements.
--! script
BEGIN;
UPDATE accounts SET note = 'copied' WHERE id < 9;
--! total order
COPY (SELECT id, note FROM accounts WHERE id < 12 ORDER BY id) TO STDOUT;
COPY (SELECT count(*) FROM accounts a JOIN accounts b ON a.note = b.note) TO STDOUT;
COPY accounts TO STDOUT (FORMAT xml);
COPY accounts TO STDOUT;
ROLLBACK;
--! end
--! simple
--! script
SELECT 1; COPY (SELECT id FROM accounts WHERE id < 5 ORDER BY id) TO STDOUT; SELECT 2;
SELECT 1; COPY (SELECT nothing FROM accounts) TO STDOUT; SELECT 2;
SET datestyle = 'SQL, DMY';
--! total order
COPY (SELECT id, opened FROM accounts ORDER BY id) TO STDOUT;
SET client_encoding = 'LATIN1';
COPY accounts TO STDOUT (ENCODING 'latin-1');
--! end
--! refused
COPY accounts TO STDOUT (ENCODING 'LATIN1');
--! refused
COPY accounts TO STDOUT USING DELIMITERS ',';
