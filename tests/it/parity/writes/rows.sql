INSERT INTO source SELECT g, g % 7, 'v' || g, date '2024-01-01' + g FROM generate_series(1, 40) g;
INSERT INTO kinds (id, name) VALUES (1, 'a'), (2, 'b');
INSERT INTO lines (tenant, id, v) SELECT g, 1, 'line ' || g FROM generate_series(1, 10) g;
INSERT INTO stock SELECT g, g * 10, 'stock ' || g FROM generate_series(1, 20) g;
INSERT INTO deliveries SELECT g, 1, g * 3, g + 1 FROM generate_series(11, 30) g;
INSERT INTO deliveries VALUES (40, 1, 4, 41), (40, 2, 5, 41);
INSERT INTO ledger VALUES ('a'), ('b');
INSERT INTO stamped (id, note) SELECT g, CASE g % 3 WHEN 0 THEN 'today' ELSE 'later' END FROM generate_series(1, 30) g;
INSERT INTO holidays (id, day, note) SELECT g, date '2024-01-01' + g, 'day ' || g FROM generate_series(1, 12) g;
