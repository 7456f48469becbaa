INSERT INTO t SELECT i, CASE i % 2 WHEN 0 THEN 'B' ELSE 'a' END || i % 3, chr(1040 + i % 32), CASE i % 2 WHEN 0 THEN 1.0 ELSE 1.00 END, decode(lpad(to_hex(i), 2, '0'), 'hex'), 0.1 + i * 1e-17, i % 5, timestamp '2024-01-01' + i * interval '7 h' FROM generate_series(1, 200) i;
INSERT INTO o SELECT i, i FROM generate_series(1, 200) i;
INSERT INTO ref SELECT i, i % 3, repeat('x', i % 7) FROM generate_series(1, 40) i;
