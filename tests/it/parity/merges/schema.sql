CREATE TABLE t (k int PRIMARY KEY, name text, c text COLLATE "C", n numeric, b bytea, f float8, g int, at timestamp);
CREATE TABLE o (k int PRIMARY KEY, x int);
CREATE TABLE ref (id int PRIMARY KEY, prio int NOT NULL, pad text);
