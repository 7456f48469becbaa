INSERT INTO t SELECT g, g % 5, 'v' || g % 3 FROM generate_series(1, 12) g;
INSERT INTO w SELECT g, n, (g + n) % 4 FROM generate_series(1, 12) g, generate_series(1, 2) n;
INSERT INTO s (k, m) SELECT g, g + 1 FROM generate_series(1, 12) g;
INSERT INTO h SELECT g, g % 5 FROM generate_series(1, 4) g;
INSERT INTO r SELECT g, 'name ' || g FROM generate_series(1, 4) g;
INSERT INTO guarded SELECT g, g FROM generate_series(1, 12) g;
INSERT INTO guarded_copies SELECT g, g FROM generate_series(1, 12) g;
INSERT INTO parents VALUES (1, 5, 'one');
INSERT INTO children VALUES (1, 5);
