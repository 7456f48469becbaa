INSERT INTO source SELECT g, g % 7, 'v' || g, date '2024-01-01' + g FROM generate_series(1, 40) g;
INSERT INTO kinds (id, name) VALUES (1, 'a'), (2, 'b');
INSERT INTO lines (tenant, id, v) SELECT g, 1, 'line ' || g FROM generate_series(1, 10) g;
