-- TRUNCATE empties every shard's part, in one transaction.
TRUNCATE entries;
TRUNCATE TABLE orders, readings;
TRUNCATE accounts;
TRUNCATE accounts CASCADE;
TRUNCATE accounts, entries;
TRUNCATE ONLY entries CONTINUE IDENTITY;
TRUNCATE entries RESTART IDENTITY;
TRUNCATE sales.invoices, "Mixed Case";
TRUNCATE languages;
TRUNCATE languages, kinds, places;
-- Beside tables of the home shard.
TRUNCATE options, entries;
TRUNCATE audit, languages RESTART IDENTITY;
TRUNCATE audit RESTART IDENTITY CASCADE;
-- Errors.
TRUNCATE entries, nothing;
TRUNCATE active_accounts;
TRUNCATE entries, active_accounts;
--! script
BEGIN;
TRUNCATE entries;
SELECT count(*) FROM entries;
INSERT INTO entries (account_id, n) VALUES (1, 1), (2, 1), (3, 1);
SELECT count(*), sum(account_id) FROM entries;
COMMIT;
SELECT count(*), sum(account_id) FROM entries;
--! end
--! script
BEGIN;
UPDATE accounts SET note = 'before' WHERE id = 3;
SAVEPOINT a;
TRUNCATE accounts CASCADE;
ROLLBACK TO a;
SELECT count(*) FROM entries;
COMMIT;
SELECT id FROM accounts WHERE note = 'before';
--! end
--! script
BEGIN;
TRUNCATE entries;
ROLLBACK;
SELECT count(*) FROM entries;
--! end
--! simple
--! script
TRUNCATE entries; INSERT INTO entries (account_id, n) VALUES (5, 1), (6, 1);
--! end
