CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN posint AS int NOT NULL CHECK (value > 0);
CREATE DOMAIN code AS char(4);
CREATE DOMAIN numbers AS int[];
CREATE TABLE facts (id bigint PRIMARY KEY, k int, k2 numeric, c char(5), d date, m mood, t text, a int, f float8, u uuid);
CREATE TABLE dims (
    k int PRIMARY KEY, k2 numeric(8,3), c char(5), m mood, p pair, dp posint, dc code, j jsonb, js json, f float8, r float4,
    ts timestamptz, i interval, b bytea, arr int[], ta text[], rng int4range, bits bit(3), vb varbit, nm name, ci text COLLATE "C",
    u uuid, bx box, ip inet, tm time, x "char", td timestamp(3), mn text, va varchar(3)
);
-- Some of its values mean something on one server only, or cannot be told from their text.
CREATE TABLE odds (k int PRIMARY KEY, cost money, kind regtype, doc xml, list numbers);
CREATE TABLE empties (k int PRIMARY KEY, v text);
CREATE TABLE homes (k int, label text, v int);
CREATE TABLE copies (k int PRIMARY KEY, word text);
CREATE VIEW labels AS SELECT k, max(label) AS label FROM homes GROUP BY k;
CREATE VIEW merry AS SELECT * FROM dims WHERE m = 'happy';
CREATE VIEW both_of_them AS SELECT f.id, d.m FROM facts f JOIN dims d ON d.k = f.k;
