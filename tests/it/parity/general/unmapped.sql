-- A key without a mapping holds no rows: only what would store one is an error.
SELECT * FROM books WHERE isbn = '000000000Q';
SELECT count(*), max(pages) FROM books WHERE isbn = '000000000Q';
SELECT title FROM books WHERE isbn IN ('0000079191', '000000000Q');
SELECT title FROM books WHERE isbn = ANY ('{0000079191,000000000Q,000000000R}') ORDER BY title;
SELECT b.title, l.n FROM books b LEFT JOIN loans l ON l.isbn = b.isbn WHERE b.isbn = '000000000Q';
SELECT b.title FROM books b JOIN accounts a ON a.id = b.pages WHERE b.isbn = '000000000Q';
SELECT id FROM accounts WHERE id < 4 AND NOT EXISTS (SELECT 1 FROM books WHERE isbn = '000000000Q') ORDER BY id;
SELECT id, (SELECT title FROM books WHERE isbn = '000000000Q') FROM accounts WHERE id < 4 ORDER BY id;
SELECT code FROM languages WHERE code IN (SELECT language FROM books WHERE isbn = '000000000Q');
SELECT title FROM books WHERE isbn = '000000000Q' UNION ALL SELECT title FROM books WHERE isbn = '0000079191';
--! 000000000Q
--! 0000079191
SELECT title FROM books WHERE isbn = $1;
SELECT * FROM books WHERE isbn = '000000000Q' FOR UPDATE;
UPDATE books SET pages = 1 WHERE isbn = '000000000Q' RETURNING isbn;
UPDATE books SET pages = 1 WHERE isbn IN ('000000000Q', '0000079191') RETURNING isbn;
UPDATE books SET isbn = '0000000009' WHERE isbn = '000000000Q';
DELETE FROM books WHERE isbn = '000000000Q';
DELETE FROM accounts WHERE id IN (SELECT pages FROM books WHERE isbn = '000000000Q');
DELETE FROM loans USING books b WHERE b.isbn = loans.isbn AND b.isbn = '000000000Q';
INSERT INTO books SELECT * FROM books WHERE isbn = '000000000Q';
INSERT INTO loans SELECT isbn, 9, 'nobody', NULL FROM books WHERE isbn = '000000000Q';
INSERT INTO options SELECT title, NULL FROM books WHERE isbn = '000000000Q';
MERGE INTO books b USING (SELECT '000000000Q' AS isbn) s ON b.isbn = s.isbn WHEN MATCHED THEN UPDATE SET pages = 0;
MERGE INTO books b USING (VALUES ('000000000Q'), ('0000079191')) s (isbn) ON b.isbn = s.isbn WHEN MATCHED THEN UPDATE SET pages = 0;
-- No row, no key.
INSERT INTO books SELECT '000000000Q', 'Nowhere' WHERE false;
INSERT INTO books SELECT '000000000Q', name FROM languages WHERE code = 'nowhere';
INSERT INTO books SELECT '000000000Q', name FROM languages WHERE code = 'nowhere' RETURNING isbn, title;
INSERT INTO books SELECT '000000000Q', title FROM books WHERE isbn = '000000000R' ON CONFLICT DO NOTHING;
INSERT INTO books SELECT '000000000Q', name FROM accounts WHERE id > 90000000 AND score > 1e30;
WITH w AS (SELECT name FROM accounts WHERE id > 90000000 AND score > 1e30) INSERT INTO books SELECT '000000000Q', name FROM w;
WITH gone AS (DELETE FROM loans WHERE isbn = '000000000R' RETURNING isbn) INSERT INTO books SELECT '000000000Q', isbn FROM gone;
INSERT INTO books SELECT '000000000Q', name FROM languages LIMIT 0;
--! 000000000Q
INSERT INTO books SELECT $1, name FROM languages WHERE code = 'nowhere';
--! script
PREPARE into_nowhere(text) AS INSERT INTO books SELECT $1, name FROM languages WHERE code = 'nowhere';
EXECUTE into_nowhere('000000000Q');
BEGIN;
INSERT INTO books SELECT '000000000Q', name FROM languages WHERE code = 'nowhere';
SELECT count(*) FROM books WHERE isbn = '0000079191';
COMMIT;
--! end
-- Nothing is merged into it.
MERGE INTO books b USING (SELECT name FROM languages WHERE code = 'nowhere') s ON b.isbn = '000000000Q' WHEN NOT MATCHED THEN INSERT VALUES ('000000000Q', s.name);
MERGE INTO books b USING (SELECT title FROM books WHERE pages < 0) s ON b.isbn = '000000000Q' WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES ('000000000Q', s.title);
MERGE INTO books b USING (SELECT 1 AS one WHERE false) s ON b.isbn = '000000000Q' WHEN NOT MATCHED THEN INSERT VALUES ('000000000Q', 'Nowhere');
MERGE INTO books b USING (VALUES ('000000000Q', 'Nowhere')) s (isbn, title) ON b.isbn = s.isbn WHEN NOT MATCHED AND s.title <> 'Nowhere' THEN INSERT VALUES (s.isbn, s.title);
MERGE INTO books b USING (VALUES ('000000000Q', 1), ('0000079191', 11), (NULL, 3), ('000000000R', 4)) s (isbn, pages) ON b.isbn = s.isbn WHEN MATCHED THEN UPDATE SET pages = s.pages WHEN NOT MATCHED AND s.pages > 4 THEN INSERT VALUES (s.isbn, 'Nowhere', s.pages);
--! 4
MERGE INTO books b USING (SELECT '000000000Q' AS isbn, name FROM languages) s ON b.isbn = s.isbn WHEN NOT MATCHED AND $1 < 4 THEN INSERT VALUES (s.isbn, s.name);
MERGE INTO books b USING languages s ON b.isbn = '000000000Q' WHEN MATCHED THEN UPDATE SET title = s.name;
MERGE INTO books b USING languages s ON b.isbn = '000000000Q' WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN DO NOTHING;
MERGE INTO books b USING (SELECT '000000000Q' AS isbn) s ON b.isbn = s.isbn WHEN MATCHED THEN DELETE;
MERGE INTO books b USING (VALUES ('000000000Q', 'x')) s (isbn, title) ON b.isbn = s.isbn WHEN MATCHED THEN UPDATE SET title = s.title WHEN NOT MATCHED THEN DO NOTHING;
MERGE INTO books b USING (SELECT title FROM books WHERE isbn = '0000079191') s ON b.isbn = '000000000Q' WHEN MATCHED THEN UPDATE SET title = s.title;
MERGE INTO books b USING languages s ON b.isbn = '000000000Q' WHEN NOT MATCHED AND s.code = 'nowhere' THEN INSERT VALUES ('000000000Q', s.name);
MERGE INTO books b USING (SELECT 1 AS n) s ON b.isbn = '000000000Q' AND s.n = 1 WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND s.n > 1 THEN INSERT VALUES ('000000000Q', 'Nowhere');
MERGE INTO books b USING (SELECT title FROM books WHERE pages > 0) s ON b.isbn = '000000000Q' WHEN NOT MATCHED AND s.title IS NULL THEN INSERT VALUES ('000000000Q', s.title);
MERGE INTO books b USING languages s ON b.isbn = '0000079191' WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED THEN INSERT VALUES ('000000000Q', s.name);
--! 000000000Q | nowhere
MERGE INTO books b USING languages s ON b.isbn = $1 WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND s.code = $2 THEN INSERT VALUES ($1, s.name);
--! script
BEGIN;
MERGE INTO books b USING languages s ON b.isbn = '000000000Q' WHEN NOT MATCHED AND s.code = 'nowhere' THEN INSERT VALUES ('000000000Q', s.name);
SELECT count(*) FROM books WHERE isbn = '0000079191';
COMMIT;
--! end
UPDATE books SET isbn = '000000000Q' WHERE isbn = '0000079191' AND pages < 0;
--! no shard
MERGE INTO books b USING languages s ON b.isbn = '000000000Q' WHEN NOT MATCHED AND s.code = (SELECT min(code) FROM languages) THEN INSERT VALUES ('000000000Q', s.name);
--! no shard
MERGE INTO books b USING (VALUES ('000000000Q', 1), ('0000079191', 11)) s (isbn, pages) ON b.isbn = s.isbn WHEN MATCHED THEN UPDATE SET pages = 12 WHEN NOT MATCHED AND s.pages < 4 THEN INSERT VALUES (s.isbn, 'Nowhere', s.pages);
SELECT pages FROM books WHERE isbn = '0000079191';
MERGE INTO books b USING languages s ON b.isbn = '000000000Q' WHEN NOT MATCHED THEN INSERT VALUES ('000000000Q', s.name);
--! no shard
INSERT INTO books VALUES ('000000000Q', 'Nowhere', 11, 'en');
--! no shard
INSERT INTO books VALUES ('0000000000', 'Zero', 11, 'en'), ('000000000Q', 'Nowhere', 11, 'en');
--! no shard
INSERT INTO books SELECT '000000000Q', name FROM languages;
--! no shard
MERGE INTO books b USING (SELECT '000000000Q' AS isbn) s ON b.isbn = s.isbn WHEN NOT MATCHED THEN INSERT VALUES (s.isbn, 'Nowhere');
--! no shard
MERGE INTO books b USING (VALUES ('000000000Q', 'Nowhere')) s (isbn, title) ON b.isbn = s.isbn WHEN NOT MATCHED THEN INSERT VALUES (s.isbn, s.title);
--! no shard
UPDATE books SET isbn = '000000000Q' WHERE isbn = '0000079191';
--! no shard
INSERT INTO books VALUES ('000000000Q', 'Nowhere') ON CONFLICT DO NOTHING;
-- A row that is to be stored is found out wherever the others are.
--! script
BEGIN;
SELECT * FROM books WHERE isbn = '000000000Q';
UPDATE books SET pages = 1 WHERE isbn = '000000000Q';
SELECT title FROM books WHERE isbn = '0000079191';
ROLLBACK;
--! end
