INSERT INTO tenants SELECT i, 'tenant ' || i FROM generate_series(1, 20) i;
INSERT INTO events (tenant, at, id, n, note) SELECT i % 20 + 1, date '2020-01-01' + (i * 7) % 60, i, nullif(i % 11, 5), 'note ' || i % 13 FROM generate_series(1, 300) i;
INSERT INTO marks SELECT tenant, at, id, id % 4 FROM events WHERE id % 3 = 0;
INSERT INTO slices SELECT chr(97 + i % 5), i % 9, i * 1.5 FROM generate_series(1, 45) i;
INSERT INTO calendar SELECT date '2020-01-01' + i, i % 6 = 0 FROM generate_series(0, 59) i;
