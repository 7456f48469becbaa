SELECT 1;
SELECT * FROM accounts WHERE id = 1;
--! 1
--! 7
--! NULL
--! 100
SELECT * FROM accounts WHERE id = $1;
SELECT id FROM accounts ORDER BY id;
SELECT * FROM languages ORDER BY code;
SELECT * FROM audit ORDER BY id;
