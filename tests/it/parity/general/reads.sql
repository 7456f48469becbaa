SELECT 1;
SELECT * FROM accounts WHERE id = 1;
