INSERT INTO m_r SELECT n, 'name ' || n FROM generate_series(0, 9) n;
INSERT INTO m_t SELECT n, n % 10, 'note ' || n FROM generate_series(1, 24) n;
INSERT INTO m_t SELECT n, 5, NULL FROM generate_series(5, 9) n;
INSERT INTO m_u SELECT n, n % 4, NULL FROM generate_series(3, 30) n;
INSERT INTO m_l SELECT chr(64 + n % 6 + 1), n FROM generate_series(1, 18) n;
INSERT INTO m_pair SELECT n % 3, n, n % 10 FROM generate_series(1, 20) n;
INSERT INTO m_days SELECT '2024-01-01'::date + n, n FROM generate_series(0, 29) n;
INSERT INTO m_kept SELECT n, 1000 + n % 3 FROM generate_series(1, 12) n;
