INSERT INTO t SELECT i, CASE i % 2 WHEN 0 THEN 'B' ELSE 'a' END || i % 3, chr(1040 + i % 32), CASE i % 2 WHEN 0 THEN 1.0 ELSE 1.00 END, decode(lpad(to_hex(i), 2, '0'), 'hex'), 0.1 + i * 1e-17, i % 5, timestamp '2024-01-01' + i * interval '7 h' FROM generate_series(1, 200) i;
INSERT INTO o SELECT i, i FROM generate_series(1, 200) i;
INSERT INTO ref SELECT i, i % 3, repeat('x', i % 7) FROM generate_series(1, 40) i;
INSERT INTO m SELECT i, i % 5, (ARRAY[1.0, 1.00, 2.5, 2.50, 0, 0.0])[1 + i % 6], (ARRAY['1 mon', '30 days', '720:00:00', '1 day'])[1 + i % 4]::interval, (ARRAY['{"n": 1.0}', '{"n": 1.00}', '[]'])[1 + i % 3]::jsonb, (ARRAY['0', '-0', '1'])[1 + i % 3]::float8, (ARRAY['ab', 'ab  ', 'c'])[1 + i % 3], (ARRAY['a', 'A', 'b'])[1 + i % 3] FROM generate_series(1, 60) i;
INSERT INTO h SELECT i, (ARRAY[1.0, 1.00, 2.5, 2.50])[1 + i % 4], (ARRAY['1 mon', '30 days'])[1 + i % 2]::interval FROM generate_series(1, 24) i;
INSERT INTO pairs SELECT i % 7, i, (ARRAY[1.0, 1.00, 2.5])[1 + i % 3] FROM generate_series(1, 42) i;
INSERT INTO home1 SELECT i, (ARRAY[1.0, 1.00, 2.5, 7])[1 + i % 4] FROM generate_series(1, 12) i;
