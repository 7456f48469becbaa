-- k_int2
--! 1
--! -32768
--! 32767
--! 5
--! NULL
SELECT * FROM k_int2 WHERE k = $1;
--! 1
--! -32768
--! 32767
--! 5
--! NULL
SELECT v FROM k_int2 AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM k_int2 WHERE k = '1';
SELECT * FROM k_int2 WHERE k = '-32768';
SELECT * FROM k_int2 WHERE k = '32767';
SELECT count(v) FROM k_int2 WHERE k = smallint '1';
--! -32768
SELECT * FROM k_int2 WHERE k = $1::smallint;
--! 1 | 100
--! 5 | NULL
SELECT * FROM k_int2 WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
SELECT * FROM k_int2 WHERE k IN ('1', '-32768', NULL) OR k = '100';
--! {"1","-32768","32767"}
--! {"1",NULL}
--! {}
--! NULL
SELECT * FROM k_int2 WHERE k = ANY($1);
SELECT v FROM k_int2 WHERE k = ANY(ARRAY['1', '100']::smallint[]);
SELECT v FROM k_int2 WHERE k = ANY('{"1","100"}');
--! 1
SELECT v FROM k_int2 WHERE k <> $1;
--! 1 | 100
SELECT v FROM k_int2 WHERE k BETWEEN $1 AND $2;
--! 100
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM k_int2 WHERE k = $1) s;
--! 100
SELECT v FROM k_int2 WHERE k < $1;
--! 100
SELECT v FROM k_int2 WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM k_int2 WHERE k IS NULL;
--! 1
--! NULL
SELECT v FROM k_int2 WHERE k IS NOT DISTINCT FROM $1;
--! 1 | 100
SELECT v FROM k_int2 WHERE k = $1 AND k = $2;
--! 1 | changed
--! NULL | changed
UPDATE k_int2 SET v = $2 WHERE k = $1 RETURNING *;
--! 1
DELETE FROM k_int2 WHERE k = $1;
--! 77 | new
INSERT INTO k_int2 (k, v) VALUES ($1, $2);
INSERT INTO k_int2 (v, k) VALUES ('new', '77') RETURNING k, v;
--! 1 | twice
INSERT INTO k_int2 VALUES ($1, $2);
SELECT k, v FROM k_int2 ORDER BY k DESC;

-- k_int4
--! 1
--! -2147483648
--! 70000
--! 6
--! NULL
SELECT * FROM k_int4 WHERE k = $1;
--! 1
--! -2147483648
--! 70000
--! 6
--! NULL
SELECT v FROM k_int4 AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM k_int4 WHERE k = '1';
SELECT * FROM k_int4 WHERE k = '-2147483648';
SELECT * FROM k_int4 WHERE k = '70000';
SELECT count(v) FROM k_int4 WHERE k = integer '1';
--! -2147483648
SELECT * FROM k_int4 WHERE k = $1::integer;
--! 1 | 2147483647
--! 6 | NULL
SELECT * FROM k_int4 WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
SELECT * FROM k_int4 WHERE k IN ('1', '-2147483648', NULL) OR k = '2147483647';
--! {"1","-2147483648","70000"}
--! {"1",NULL}
--! {}
--! NULL
SELECT * FROM k_int4 WHERE k = ANY($1);
SELECT v FROM k_int4 WHERE k = ANY(ARRAY['1', '2147483647']::integer[]);
SELECT v FROM k_int4 WHERE k = ANY('{"1","2147483647"}');
--! 1
SELECT v FROM k_int4 WHERE k <> $1;
--! 1 | 2147483647
SELECT v FROM k_int4 WHERE k BETWEEN $1 AND $2;
--! 2147483647
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM k_int4 WHERE k = $1) s;
--! 2147483647
SELECT v FROM k_int4 WHERE k < $1;
--! 2147483647
SELECT v FROM k_int4 WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM k_int4 WHERE k IS NULL;
--! 1
--! NULL
SELECT v FROM k_int4 WHERE k IS NOT DISTINCT FROM $1;
--! 1 | 2147483647
SELECT v FROM k_int4 WHERE k = $1 AND k = $2;
--! 1 | changed
--! NULL | changed
UPDATE k_int4 SET v = $2 WHERE k = $1 RETURNING *;
--! 1
DELETE FROM k_int4 WHERE k = $1;
--! 123456 | new
INSERT INTO k_int4 (k, v) VALUES ($1, $2);
INSERT INTO k_int4 (v, k) VALUES ('new', '123456') RETURNING k, v;
--! 1 | twice
INSERT INTO k_int4 VALUES ($1, $2);
SELECT k, v FROM k_int4 ORDER BY k DESC;

-- k_int8
--! 1
--! -9223372036854775808
--! 9007199254740993
--! 7
--! NULL
SELECT * FROM k_int8 WHERE k = $1;
--! 1
--! -9223372036854775808
--! 9007199254740993
--! 7
--! NULL
SELECT v FROM k_int8 AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM k_int8 WHERE k = '1';
SELECT * FROM k_int8 WHERE k = '-9223372036854775808';
SELECT * FROM k_int8 WHERE k = '9007199254740993';
SELECT count(v) FROM k_int8 WHERE k = bigint '1';
--! -9223372036854775808
SELECT * FROM k_int8 WHERE k = $1::bigint;
--! 1 | 5000000000
--! 7 | NULL
SELECT * FROM k_int8 WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
SELECT * FROM k_int8 WHERE k IN ('1', '-9223372036854775808', NULL) OR k = '5000000000';
--! {"1","-9223372036854775808","9007199254740993"}
--! {"1",NULL}
--! {}
--! NULL
SELECT * FROM k_int8 WHERE k = ANY($1);
SELECT v FROM k_int8 WHERE k = ANY(ARRAY['1', '5000000000']::bigint[]);
SELECT v FROM k_int8 WHERE k = ANY('{"1","5000000000"}');
--! 1
SELECT v FROM k_int8 WHERE k <> $1;
--! 1 | 5000000000
SELECT v FROM k_int8 WHERE k BETWEEN $1 AND $2;
--! 5000000000
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM k_int8 WHERE k = $1) s;
--! 5000000000
SELECT v FROM k_int8 WHERE k < $1;
--! 5000000000
SELECT v FROM k_int8 WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM k_int8 WHERE k IS NULL;
--! 1
--! NULL
SELECT v FROM k_int8 WHERE k IS NOT DISTINCT FROM $1;
--! 1 | 5000000000
SELECT v FROM k_int8 WHERE k = $1 AND k = $2;
--! 1 | changed
--! NULL | changed
UPDATE k_int8 SET v = $2 WHERE k = $1 RETURNING *;
--! 1
DELETE FROM k_int8 WHERE k = $1;
--! 123456789012 | new
INSERT INTO k_int8 (k, v) VALUES ($1, $2);
INSERT INTO k_int8 (v, k) VALUES ('new', '123456789012') RETURNING k, v;
--! 1 | twice
INSERT INTO k_int8 VALUES ($1, $2);
SELECT k, v FROM k_int8 ORDER BY k DESC;

-- k_text
--! a
--! A
--! ''
--! ä
--! O'Brien
--! back\slash
--! null
--! 日本
--! nothing
--! NULL
SELECT * FROM k_text WHERE k = $1;
--! a
--! A
--! ''
--! ä
--! O'Brien
--! back\slash
--! null
--! 日本
--! nothing
--! NULL
SELECT v FROM k_text AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM k_text WHERE k = 'a';
SELECT * FROM k_text WHERE k = 'A';
SELECT * FROM k_text WHERE k = '';
SELECT count(v) FROM k_text WHERE k = text 'a';
--! A
SELECT * FROM k_text WHERE k = $1::text;
--! a | b
--! nothing | NULL
SELECT * FROM k_text WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
SELECT * FROM k_text WHERE k IN ('a', 'A', NULL) OR k = 'b';
--! {"a","A",""}
--! {"a",NULL}
--! {}
--! NULL
SELECT * FROM k_text WHERE k = ANY($1);
SELECT v FROM k_text WHERE k = ANY(ARRAY['a', 'b']::text[]);
SELECT v FROM k_text WHERE k = ANY('{"a","b"}');
--! a
SELECT v FROM k_text WHERE k <> $1;
--! a | b
SELECT v FROM k_text WHERE k BETWEEN $1 AND $2;
--! b
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM k_text WHERE k = $1) s;
--! b
SELECT v FROM k_text WHERE k < $1;
--! b
SELECT v FROM k_text WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM k_text WHERE k IS NULL;
--! a
--! NULL
SELECT v FROM k_text WHERE k IS NOT DISTINCT FROM $1;
--! a | b
SELECT v FROM k_text WHERE k = $1 AND k = $2;
--! a | changed
--! NULL | changed
UPDATE k_text SET v = $2 WHERE k = $1 RETURNING *;
--! a
DELETE FROM k_text WHERE k = $1;
--! brand new | new
INSERT INTO k_text (k, v) VALUES ($1, $2);
INSERT INTO k_text (v, k) VALUES ('new', 'brand new') RETURNING k, v;
--! a | twice
INSERT INTO k_text VALUES ($1, $2);
SELECT k, v FROM k_text ORDER BY k COLLATE "C" DESC;

-- k_varchar
--! a
--! abc
--! ''
--! twenty characters ok
--! nothing
--! NULL
SELECT * FROM k_varchar WHERE k = $1;
--! a
--! abc
--! ''
--! twenty characters ok
--! nothing
--! NULL
SELECT v FROM k_varchar AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM k_varchar WHERE k = 'a';
SELECT * FROM k_varchar WHERE k = 'abc';
SELECT * FROM k_varchar WHERE k = '';
SELECT count(v) FROM k_varchar WHERE k = varchar 'a';
--! abc
SELECT * FROM k_varchar WHERE k = $1::varchar;
--! a | ab
--! nothing | NULL
SELECT * FROM k_varchar WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
SELECT * FROM k_varchar WHERE k IN ('a', 'abc', NULL) OR k = 'ab';
SELECT * FROM k_varchar WHERE k = 'a '::bpchar ORDER BY v COLLATE "C";
SELECT * FROM k_varchar WHERE k IN ('a '::bpchar, 'x') ORDER BY v COLLATE "C";
SELECT * FROM k_varchar WHERE k IN ('a '::text, 'x');
--! {"a","abc",""}
--! {"a",NULL}
--! {}
--! NULL
SELECT * FROM k_varchar WHERE k = ANY($1);
SELECT v FROM k_varchar WHERE k = ANY(ARRAY['a', 'ab']::varchar[]);
SELECT v FROM k_varchar WHERE k = ANY('{"a","ab"}');
--! a
SELECT v FROM k_varchar WHERE k <> $1;
--! a | ab
SELECT v FROM k_varchar WHERE k BETWEEN $1 AND $2;
--! ab
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM k_varchar WHERE k = $1) s;
--! ab
SELECT v FROM k_varchar WHERE k < $1;
--! ab
SELECT v FROM k_varchar WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM k_varchar WHERE k IS NULL;
--! a
--! NULL
SELECT v FROM k_varchar WHERE k IS NOT DISTINCT FROM $1;
--! a | ab
SELECT v FROM k_varchar WHERE k = $1 AND k = $2;
--! a | changed
--! NULL | changed
UPDATE k_varchar SET v = $2 WHERE k = $1 RETURNING *;
--! a
DELETE FROM k_varchar WHERE k = $1;
--! brand new | new
INSERT INTO k_varchar (k, v) VALUES ($1, $2);
INSERT INTO k_varchar (v, k) VALUES ('new', 'brand new') RETURNING k, v;
--! a | twice
INSERT INTO k_varchar VALUES ($1, $2);
SELECT k, v FROM k_varchar ORDER BY k COLLATE "C" DESC;

-- k_char
--! a
--! abc
--! ''
--! abcde
--! x
--! NULL
SELECT * FROM k_char WHERE k = $1;
--! a
--! abc
--! ''
--! abcde
--! x
--! NULL
SELECT v FROM k_char AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM k_char WHERE k = 'a';
SELECT * FROM k_char WHERE k = 'abc';
SELECT * FROM k_char WHERE k = '';
SELECT count(v) FROM k_char WHERE k = 'a'::char(5);
--! abc
SELECT * FROM k_char WHERE k = $1::char(5);
--! a | ab
--! x | NULL
SELECT * FROM k_char WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
SELECT * FROM k_char WHERE k IN ('a', 'abc', NULL) OR k = 'ab';
-- Among several values, text is compared as the column's type; by itself, as text. In an array the first one says.
SELECT * FROM k_char WHERE k IN ('a '::text, 'x');
SELECT * FROM k_char WHERE k IN ('a '::text);
SELECT * FROM k_char WHERE k IN ('a '::text, NULL);
SELECT * FROM k_char WHERE k IN ('a '::varchar, 'x');
SELECT * FROM k_char WHERE k IN ('x', 'ab  '::text, 'a '::text) ORDER BY v COLLATE "C";
SELECT * FROM k_char WHERE k = 'a '::text OR k = 'x';
--! x
SELECT * FROM k_char WHERE k IN ('a '::text, $1::text);
SELECT c.k, d.k FROM k_char c JOIN k_char d ON c.k IN (d.k, 'a '::text, 'x') WHERE d.k = 'ab' ORDER BY c.v COLLATE "C";
SELECT c.k, d.k FROM k_char c JOIN k_char d ON c.k = ANY (ARRAY[d.k, 'a '::text]) WHERE d.k = 'ab' ORDER BY c.v COLLATE "C";
SELECT * FROM k_char WHERE k = ANY (ARRAY['a '::text, 'x']);
SELECT * FROM k_char WHERE k = ANY (ARRAY['x'::bpchar, 'a '::text]);
SELECT * FROM k_char WHERE k = ANY (ARRAY['a ', 'x']::text[]);
DELETE FROM k_char WHERE k IN ('1 '::text, 'x') RETURNING k;
--! {"a","abc",""}
--! {"a",NULL}
--! {}
--! NULL
SELECT * FROM k_char WHERE k = ANY($1);
SELECT v FROM k_char WHERE k = ANY(ARRAY['a', 'ab']::char(5)[]);
SELECT v FROM k_char WHERE k = ANY('{"a","ab"}');
--! a
SELECT v FROM k_char WHERE k <> $1;
--! a | ab
SELECT v FROM k_char WHERE k BETWEEN $1 AND $2;
--! ab
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM k_char WHERE k = $1) s;
--! ab
SELECT v FROM k_char WHERE k < $1;
--! ab
SELECT v FROM k_char WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM k_char WHERE k IS NULL;
--! a
--! NULL
SELECT v FROM k_char WHERE k IS NOT DISTINCT FROM $1;
--! a | ab
SELECT v FROM k_char WHERE k = $1 AND k = $2;
--! a | changed
--! NULL | changed
UPDATE k_char SET v = $2 WHERE k = $1 RETURNING *;
--! a
DELETE FROM k_char WHERE k = $1;
--! bran | new
INSERT INTO k_char (k, v) VALUES ($1, $2);
INSERT INTO k_char (v, k) VALUES ('new', 'bran') RETURNING k, v;
--! a | twice
INSERT INTO k_char VALUES ($1, $2);
SELECT k, v FROM k_char ORDER BY k COLLATE "C" DESC;

-- k_uuid
--! 00000000-0000-0000-0000-000000000000
--! A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11
--! {a0eebc999c0b4ef8bb6d6bb9bd380a11}
--! 11111111-1111-1111-1111-111111111111
--! NULL
SELECT * FROM k_uuid WHERE k = $1;
--! 00000000-0000-0000-0000-000000000000
--! A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11
--! {a0eebc999c0b4ef8bb6d6bb9bd380a11}
--! 11111111-1111-1111-1111-111111111111
--! NULL
SELECT v FROM k_uuid AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM k_uuid WHERE k = '00000000-0000-0000-0000-000000000000';
SELECT * FROM k_uuid WHERE k = 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11';
SELECT * FROM k_uuid WHERE k = '{a0eebc999c0b4ef8bb6d6bb9bd380a11}';
SELECT count(v) FROM k_uuid WHERE k = uuid '00000000-0000-0000-0000-000000000000';
--! A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11
SELECT * FROM k_uuid WHERE k = $1::uuid;
--! 00000000-0000-0000-0000-000000000000 | ffffffff-ffff-ffff-ffff-ffffffffffff
--! 11111111-1111-1111-1111-111111111111 | NULL
SELECT * FROM k_uuid WHERE k IN ($1, $2) ORDER BY k;
SELECT * FROM k_uuid WHERE k IN ('00000000-0000-0000-0000-000000000000', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', NULL) OR k = 'ffffffff-ffff-ffff-ffff-ffffffffffff';
--! {"00000000-0000-0000-0000-000000000000","A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11","{a0eebc999c0b4ef8bb6d6bb9bd380a11}"}
--! {"00000000-0000-0000-0000-000000000000",NULL}
--! {}
--! NULL
SELECT * FROM k_uuid WHERE k = ANY($1);
SELECT v FROM k_uuid WHERE k = ANY(ARRAY['00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff']::uuid[]);
SELECT v FROM k_uuid WHERE k = ANY('{"00000000-0000-0000-0000-000000000000","ffffffff-ffff-ffff-ffff-ffffffffffff"}');
--! 00000000-0000-0000-0000-000000000000
SELECT v FROM k_uuid WHERE k <> $1;
--! 00000000-0000-0000-0000-000000000000 | ffffffff-ffff-ffff-ffff-ffffffffffff
SELECT v FROM k_uuid WHERE k BETWEEN $1 AND $2;
--! ffffffff-ffff-ffff-ffff-ffffffffffff
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM k_uuid WHERE k = $1) s;
--! ffffffff-ffff-ffff-ffff-ffffffffffff
SELECT v FROM k_uuid WHERE k < $1;
--! ffffffff-ffff-ffff-ffff-ffffffffffff
SELECT v FROM k_uuid WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM k_uuid WHERE k IS NULL;
--! 00000000-0000-0000-0000-000000000000
--! NULL
SELECT v FROM k_uuid WHERE k IS NOT DISTINCT FROM $1;
--! 00000000-0000-0000-0000-000000000000 | ffffffff-ffff-ffff-ffff-ffffffffffff
SELECT v FROM k_uuid WHERE k = $1 AND k = $2;
--! 00000000-0000-0000-0000-000000000000 | changed
--! NULL | changed
UPDATE k_uuid SET v = $2 WHERE k = $1 RETURNING *;
--! 00000000-0000-0000-0000-000000000000
DELETE FROM k_uuid WHERE k = $1;
--! 99999999-9999-4999-8999-999999999999 | new
INSERT INTO k_uuid (k, v) VALUES ($1, $2);
INSERT INTO k_uuid (v, k) VALUES ('new', '99999999-9999-4999-8999-999999999999') RETURNING k, v;
--! 00000000-0000-0000-0000-000000000000 | twice
INSERT INTO k_uuid VALUES ($1, $2);
SELECT k, v FROM k_uuid ORDER BY k DESC;

-- k_date
--! 2024-01-01
--! 1900-01-01
--! infinity
--! -infinity
--! 2001-09-09
--! NULL
SELECT * FROM k_date WHERE k = $1;
--! 2024-01-01
--! 1900-01-01
--! infinity
--! -infinity
--! 2001-09-09
--! NULL
SELECT v FROM k_date AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM k_date WHERE k = '2024-01-01';
SELECT * FROM k_date WHERE k = '1900-01-01';
SELECT * FROM k_date WHERE k = 'infinity';
SELECT count(v) FROM k_date WHERE k = date '2024-01-01';
--! 1900-01-01
SELECT * FROM k_date WHERE k = $1::date;
--! 2024-01-01 | 2024-02-29
--! 2001-09-09 | NULL
SELECT * FROM k_date WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
SELECT * FROM k_date WHERE k IN ('2024-01-01', '1900-01-01', NULL) OR k = '2024-02-29';
--! {"2024-01-01","1900-01-01","infinity"}
--! {"2024-01-01",NULL}
--! {}
--! NULL
SELECT * FROM k_date WHERE k = ANY($1);
SELECT v FROM k_date WHERE k = ANY(ARRAY['2024-01-01', '2024-02-29']::date[]);
SELECT v FROM k_date WHERE k = ANY('{"2024-01-01","2024-02-29"}');
--! 2024-01-01
SELECT v FROM k_date WHERE k <> $1;
--! 2024-01-01 | 2024-02-29
SELECT v FROM k_date WHERE k BETWEEN $1 AND $2;
--! 2024-02-29
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM k_date WHERE k = $1) s;
--! 2024-02-29
SELECT v FROM k_date WHERE k < $1;
--! 2024-02-29
SELECT v FROM k_date WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM k_date WHERE k IS NULL;
--! 2024-01-01
--! NULL
SELECT v FROM k_date WHERE k IS NOT DISTINCT FROM $1;
--! 2024-01-01 | 2024-02-29
SELECT v FROM k_date WHERE k = $1 AND k = $2;
--! 2024-01-01 | changed
--! NULL | changed
UPDATE k_date SET v = $2 WHERE k = $1 RETURNING *;
--! 2024-01-01
DELETE FROM k_date WHERE k = $1;
--! 2024-05-05 | new
INSERT INTO k_date (k, v) VALUES ($1, $2);
INSERT INTO k_date (v, k) VALUES ('new', '2024-05-05') RETURNING k, v;
--! 2024-01-01 | twice
INSERT INTO k_date VALUES ($1, $2);
SELECT k, v FROM k_date ORDER BY k DESC;

-- k_timestamp
--! 2024-01-01 00:00:00
--! 2024-01-01 12:34:56.789012
--! infinity
--! 2001-09-09 00:00:00
--! NULL
SELECT * FROM k_timestamp WHERE k = $1;
--! 2024-01-01 00:00:00
--! 2024-01-01 12:34:56.789012
--! infinity
--! 2001-09-09 00:00:00
--! NULL
SELECT v FROM k_timestamp AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM k_timestamp WHERE k = '2024-01-01 00:00:00';
SELECT * FROM k_timestamp WHERE k = '2024-01-01 12:34:56.789012';
SELECT * FROM k_timestamp WHERE k = 'infinity';
SELECT count(v) FROM k_timestamp WHERE k = timestamp '2024-01-01 00:00:00';
--! 2024-01-01 12:34:56.789012
SELECT * FROM k_timestamp WHERE k = $1::timestamp;
--! 2024-01-01 00:00:00 | 1970-01-01 00:00:00
--! 2001-09-09 00:00:00 | NULL
SELECT * FROM k_timestamp WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
SELECT * FROM k_timestamp WHERE k IN ('2024-01-01 00:00:00', '2024-01-01 12:34:56.789012', NULL) OR k = '1970-01-01 00:00:00';
--! {"2024-01-01 00:00:00","2024-01-01 12:34:56.789012","infinity"}
--! {"2024-01-01 00:00:00",NULL}
--! {}
--! NULL
SELECT * FROM k_timestamp WHERE k = ANY($1);
SELECT v FROM k_timestamp WHERE k = ANY(ARRAY['2024-01-01 00:00:00', '1970-01-01 00:00:00']::timestamp[]);
SELECT v FROM k_timestamp WHERE k = ANY('{"2024-01-01 00:00:00","1970-01-01 00:00:00"}');
--! 2024-01-01 00:00:00
SELECT v FROM k_timestamp WHERE k <> $1;
--! 2024-01-01 00:00:00 | 1970-01-01 00:00:00
SELECT v FROM k_timestamp WHERE k BETWEEN $1 AND $2;
--! 1970-01-01 00:00:00
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM k_timestamp WHERE k = $1) s;
--! 1970-01-01 00:00:00
SELECT v FROM k_timestamp WHERE k < $1;
--! 1970-01-01 00:00:00
SELECT v FROM k_timestamp WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM k_timestamp WHERE k IS NULL;
--! 2024-01-01 00:00:00
--! NULL
SELECT v FROM k_timestamp WHERE k IS NOT DISTINCT FROM $1;
--! 2024-01-01 00:00:00 | 1970-01-01 00:00:00
SELECT v FROM k_timestamp WHERE k = $1 AND k = $2;
--! 2024-01-01 00:00:00 | changed
--! NULL | changed
UPDATE k_timestamp SET v = $2 WHERE k = $1 RETURNING *;
--! 2024-01-01 00:00:00
DELETE FROM k_timestamp WHERE k = $1;
--! 2024-05-05 05:05:05.5 | new
INSERT INTO k_timestamp (k, v) VALUES ($1, $2);
INSERT INTO k_timestamp (v, k) VALUES ('new', '2024-05-05 05:05:05.5') RETURNING k, v;
--! 2024-01-01 00:00:00 | twice
INSERT INTO k_timestamp VALUES ($1, $2);
SELECT k, v FROM k_timestamp ORDER BY k DESC;

-- k_timestamptz
--! 2024-01-01 00:00:00+00
--! 2024-01-01 02:00:00+02
--! -infinity
--! 2001-09-09 00:00:00+00
--! NULL
SELECT * FROM k_timestamptz WHERE k = $1;
--! 2024-01-01 00:00:00+00
--! 2024-01-01 02:00:00+02
--! -infinity
--! 2001-09-09 00:00:00+00
--! NULL
SELECT v FROM k_timestamptz AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM k_timestamptz WHERE k = '2024-01-01 00:00:00+00';
SELECT * FROM k_timestamptz WHERE k = '2024-01-01 02:00:00+02';
SELECT * FROM k_timestamptz WHERE k = '-infinity';
SELECT count(v) FROM k_timestamptz WHERE k = timestamptz '2024-01-01 00:00:00+00';
--! 2024-01-01 02:00:00+02
SELECT * FROM k_timestamptz WHERE k = $1::timestamptz;
--! 2024-01-01 00:00:00+00 | 1970-01-01 00:00:00+00
--! 2001-09-09 00:00:00+00 | NULL
SELECT * FROM k_timestamptz WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
SELECT * FROM k_timestamptz WHERE k IN ('2024-01-01 00:00:00+00', '2024-01-01 02:00:00+02', NULL) OR k = '1970-01-01 00:00:00+00';
--! {"2024-01-01 00:00:00+00","2024-01-01 02:00:00+02","-infinity"}
--! {"2024-01-01 00:00:00+00",NULL}
--! {}
--! NULL
SELECT * FROM k_timestamptz WHERE k = ANY($1);
SELECT v FROM k_timestamptz WHERE k = ANY(ARRAY['2024-01-01 00:00:00+00', '1970-01-01 00:00:00+00']::timestamptz[]);
SELECT v FROM k_timestamptz WHERE k = ANY('{"2024-01-01 00:00:00+00","1970-01-01 00:00:00+00"}');
--! 2024-01-01 00:00:00+00
SELECT v FROM k_timestamptz WHERE k <> $1;
--! 2024-01-01 00:00:00+00 | 1970-01-01 00:00:00+00
SELECT v FROM k_timestamptz WHERE k BETWEEN $1 AND $2;
--! 1970-01-01 00:00:00+00
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM k_timestamptz WHERE k = $1) s;
--! 1970-01-01 00:00:00+00
SELECT v FROM k_timestamptz WHERE k < $1;
--! 1970-01-01 00:00:00+00
SELECT v FROM k_timestamptz WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM k_timestamptz WHERE k IS NULL;
--! 2024-01-01 00:00:00+00
--! NULL
SELECT v FROM k_timestamptz WHERE k IS NOT DISTINCT FROM $1;
--! 2024-01-01 00:00:00+00 | 1970-01-01 00:00:00+00
SELECT v FROM k_timestamptz WHERE k = $1 AND k = $2;
--! 2024-01-01 00:00:00+00 | changed
--! NULL | changed
UPDATE k_timestamptz SET v = $2 WHERE k = $1 RETURNING *;
--! 2024-01-01 00:00:00+00
DELETE FROM k_timestamptz WHERE k = $1;
--! 2024-05-05 05:05:05.5+05 | new
INSERT INTO k_timestamptz (k, v) VALUES ($1, $2);
INSERT INTO k_timestamptz (v, k) VALUES ('new', '2024-05-05 05:05:05.5+05') RETURNING k, v;
--! 2024-01-01 00:00:00+00 | twice
INSERT INTO k_timestamptz VALUES ($1, $2);
SELECT k, v FROM k_timestamptz ORDER BY k DESC;

-- k_bytea
--! \x
--! \x00
--! \xdeadbeef
--! \xabcdef
--! NULL
SELECT * FROM k_bytea WHERE k = $1;
--! \x
--! \x00
--! \xdeadbeef
--! \xabcdef
--! NULL
SELECT v FROM k_bytea AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM k_bytea WHERE k = '\x';
SELECT * FROM k_bytea WHERE k = '\x00';
SELECT * FROM k_bytea WHERE k = '\xdeadbeef';
SELECT count(v) FROM k_bytea WHERE k = bytea '\x';
--! \x00
SELECT * FROM k_bytea WHERE k = $1::bytea;
--! \x | \xff
--! \xabcdef | NULL
SELECT * FROM k_bytea WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
SELECT * FROM k_bytea WHERE k IN ('\x', '\x00', NULL) OR k = '\xff';
--! {"\\x","\\x00","\\xdeadbeef"}
--! {"\\x",NULL}
--! {}
--! NULL
SELECT * FROM k_bytea WHERE k = ANY($1);
SELECT v FROM k_bytea WHERE k = ANY(ARRAY['\x', '\xff']::bytea[]);
SELECT v FROM k_bytea WHERE k = ANY('{"\\x","\\xff"}');
--! \x
SELECT v FROM k_bytea WHERE k <> $1;
--! \x | \xff
SELECT v FROM k_bytea WHERE k BETWEEN $1 AND $2;
--! \xff
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM k_bytea WHERE k = $1) s;
--! \xff
SELECT v FROM k_bytea WHERE k < $1;
--! \xff
SELECT v FROM k_bytea WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM k_bytea WHERE k IS NULL;
--! \x
--! NULL
SELECT v FROM k_bytea WHERE k IS NOT DISTINCT FROM $1;
--! \x | \xff
SELECT v FROM k_bytea WHERE k = $1 AND k = $2;
--! \x | changed
--! NULL | changed
UPDATE k_bytea SET v = $2 WHERE k = $1 RETURNING *;
--! \x
DELETE FROM k_bytea WHERE k = $1;
--! \x0badcafe | new
INSERT INTO k_bytea (k, v) VALUES ($1, $2);
INSERT INTO k_bytea (v, k) VALUES ('new', '\x0badcafe') RETURNING k, v;
--! \x | twice
INSERT INTO k_bytea VALUES ($1, $2);
SELECT k, v FROM k_bytea ORDER BY k DESC;

-- r_int2
--! 1
--! -32768
--! 100
--! 99
--! 7
--! NULL
SELECT * FROM r_int2 WHERE k = $1;
--! 1
--! -32768
--! 100
--! 99
--! 7
--! NULL
SELECT v FROM r_int2 AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM r_int2 WHERE k = '1';
SELECT * FROM r_int2 WHERE k = '-32768';
SELECT * FROM r_int2 WHERE k = '100';
SELECT count(v) FROM r_int2 WHERE k = smallint '1';
--! -32768
SELECT * FROM r_int2 WHERE k = $1::smallint;
--! 1 | 101
--! 7 | NULL
SELECT * FROM r_int2 WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
SELECT * FROM r_int2 WHERE k IN ('1', '-32768', NULL) OR k = '101';
--! {"1","-32768","100"}
--! {"1",NULL}
--! {}
--! NULL
SELECT * FROM r_int2 WHERE k = ANY($1);
SELECT v FROM r_int2 WHERE k = ANY(ARRAY['1', '101']::smallint[]);
SELECT v FROM r_int2 WHERE k = ANY('{"1","101"}');
--! 1
SELECT v FROM r_int2 WHERE k <> $1;
--! 1 | 101
SELECT v FROM r_int2 WHERE k BETWEEN $1 AND $2;
--! 101
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM r_int2 WHERE k = $1) s;
--! 101
SELECT v FROM r_int2 WHERE k < $1;
--! 101
SELECT v FROM r_int2 WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM r_int2 WHERE k IS NULL;
--! 1
--! NULL
SELECT v FROM r_int2 WHERE k IS NOT DISTINCT FROM $1;
--! 1 | 101
SELECT v FROM r_int2 WHERE k = $1 AND k = $2;
--! 1 | changed
--! NULL | changed
UPDATE r_int2 SET v = $2 WHERE k = $1 RETURNING *;
--! 1
DELETE FROM r_int2 WHERE k = $1;
--! 77 | new
INSERT INTO r_int2 (k, v) VALUES ($1, $2);
INSERT INTO r_int2 (v, k) VALUES ('new', '77') RETURNING k, v;
--! 1 | twice
INSERT INTO r_int2 VALUES ($1, $2);
SELECT k, v FROM r_int2 ORDER BY k DESC;

-- r_int4
--! -50
--! 0
--! 100
--! 350
--! 1
--! NULL
SELECT * FROM r_int4 WHERE k = $1;
--! -50
--! 0
--! 100
--! 350
--! 1
--! NULL
SELECT v FROM r_int4 AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM r_int4 WHERE k = '-50';
SELECT * FROM r_int4 WHERE k = '0';
SELECT * FROM r_int4 WHERE k = '100';
SELECT count(v) FROM r_int4 WHERE k = integer '-50';
--! 0
SELECT * FROM r_int4 WHERE k = $1::integer;
--! -50 | 200
--! 1 | NULL
SELECT * FROM r_int4 WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
SELECT * FROM r_int4 WHERE k IN ('-50', '0', NULL) OR k = '200';
--! {"-50","0","100"}
--! {"-50",NULL}
--! {}
--! NULL
SELECT * FROM r_int4 WHERE k = ANY($1);
SELECT v FROM r_int4 WHERE k = ANY(ARRAY['-50', '200']::integer[]);
SELECT v FROM r_int4 WHERE k = ANY('{"-50","200"}');
--! -50
SELECT v FROM r_int4 WHERE k <> $1;
--! -50 | 200
SELECT v FROM r_int4 WHERE k BETWEEN $1 AND $2;
--! 200
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM r_int4 WHERE k = $1) s;
--! 200
SELECT v FROM r_int4 WHERE k < $1;
--! 200
SELECT v FROM r_int4 WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM r_int4 WHERE k IS NULL;
--! -50
--! NULL
SELECT v FROM r_int4 WHERE k IS NOT DISTINCT FROM $1;
--! -50 | 200
SELECT v FROM r_int4 WHERE k = $1 AND k = $2;
--! -50 | changed
--! NULL | changed
UPDATE r_int4 SET v = $2 WHERE k = $1 RETURNING *;
--! -50
DELETE FROM r_int4 WHERE k = $1;
--! 123456 | new
INSERT INTO r_int4 (k, v) VALUES ($1, $2);
INSERT INTO r_int4 (v, k) VALUES ('new', '123456') RETURNING k, v;
--! -50 | twice
INSERT INTO r_int4 VALUES ($1, $2);
SELECT k, v FROM r_int4 ORDER BY k DESC;

-- r_int8
--! 1
--! -9223372036854775808
--! 5000000000
--! 4999999999
--! 7
--! NULL
SELECT * FROM r_int8 WHERE k = $1;
--! 1
--! -9223372036854775808
--! 5000000000
--! 4999999999
--! 7
--! NULL
SELECT v FROM r_int8 AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM r_int8 WHERE k = '1';
SELECT * FROM r_int8 WHERE k = '-9223372036854775808';
SELECT * FROM r_int8 WHERE k = '5000000000';
SELECT count(v) FROM r_int8 WHERE k = bigint '1';
--! -9223372036854775808
SELECT * FROM r_int8 WHERE k = $1::bigint;
--! 1 | 1000
--! 7 | NULL
SELECT * FROM r_int8 WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
SELECT * FROM r_int8 WHERE k IN ('1', '-9223372036854775808', NULL) OR k = '1000';
--! {"1","-9223372036854775808","5000000000"}
--! {"1",NULL}
--! {}
--! NULL
SELECT * FROM r_int8 WHERE k = ANY($1);
SELECT v FROM r_int8 WHERE k = ANY(ARRAY['1', '1000']::bigint[]);
SELECT v FROM r_int8 WHERE k = ANY('{"1","1000"}');
--! 1
SELECT v FROM r_int8 WHERE k <> $1;
--! 1 | 1000
SELECT v FROM r_int8 WHERE k BETWEEN $1 AND $2;
--! 1000
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM r_int8 WHERE k = $1) s;
--! 1000
SELECT v FROM r_int8 WHERE k < $1;
--! 1000
SELECT v FROM r_int8 WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM r_int8 WHERE k IS NULL;
--! 1
--! NULL
SELECT v FROM r_int8 WHERE k IS NOT DISTINCT FROM $1;
--! 1 | 1000
SELECT v FROM r_int8 WHERE k = $1 AND k = $2;
--! 1 | changed
--! NULL | changed
UPDATE r_int8 SET v = $2 WHERE k = $1 RETURNING *;
--! 1
DELETE FROM r_int8 WHERE k = $1;
--! 123456789012 | new
INSERT INTO r_int8 (k, v) VALUES ($1, $2);
INSERT INTO r_int8 (v, k) VALUES ('new', '123456789012') RETURNING k, v;
--! 1 | twice
INSERT INTO r_int8 VALUES ($1, $2);
SELECT k, v FROM r_int8 ORDER BY k DESC;

-- r_text
--! a
--! G
--! g
--! ''
--! ä
--! nothing
--! NULL
SELECT * FROM r_text WHERE k = $1;
--! a
--! G
--! g
--! ''
--! ä
--! nothing
--! NULL
SELECT v FROM r_text AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM r_text WHERE k = 'a';
SELECT * FROM r_text WHERE k = 'G';
SELECT * FROM r_text WHERE k = 'g';
SELECT count(v) FROM r_text WHERE k = text 'a';
--! G
SELECT * FROM r_text WHERE k = $1::text;
--! a | p
--! nothing | NULL
SELECT * FROM r_text WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
SELECT * FROM r_text WHERE k IN ('a', 'G', NULL) OR k = 'p';
--! {"a","G","g"}
--! {"a",NULL}
--! {}
--! NULL
SELECT * FROM r_text WHERE k = ANY($1);
SELECT v FROM r_text WHERE k = ANY(ARRAY['a', 'p']::text[]);
SELECT v FROM r_text WHERE k = ANY('{"a","p"}');
--! a
SELECT v FROM r_text WHERE k <> $1;
--! a | p
SELECT v FROM r_text WHERE k BETWEEN $1 AND $2;
--! p
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM r_text WHERE k = $1) s;
--! p
SELECT v FROM r_text WHERE k < $1;
--! p
SELECT v FROM r_text WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM r_text WHERE k IS NULL;
--! a
--! NULL
SELECT v FROM r_text WHERE k IS NOT DISTINCT FROM $1;
--! a | p
SELECT v FROM r_text WHERE k = $1 AND k = $2;
--! a | changed
--! NULL | changed
UPDATE r_text SET v = $2 WHERE k = $1 RETURNING *;
--! a
DELETE FROM r_text WHERE k = $1;
--! brand new | new
INSERT INTO r_text (k, v) VALUES ($1, $2);
INSERT INTO r_text (v, k) VALUES ('new', 'brand new') RETURNING k, v;
--! a | twice
INSERT INTO r_text VALUES ($1, $2);
SELECT k, v FROM r_text ORDER BY k COLLATE "C" DESC;

-- r_uuid
--! 00000000-0000-0000-0000-000000000000
--! 40000000-0000-0000-0000-000000000000
--! 3fffffff-ffff-ffff-ffff-ffffffffffff
--! 11111111-1111-1111-1111-111111111111
--! NULL
SELECT * FROM r_uuid WHERE k = $1;
--! 00000000-0000-0000-0000-000000000000
--! 40000000-0000-0000-0000-000000000000
--! 3fffffff-ffff-ffff-ffff-ffffffffffff
--! 11111111-1111-1111-1111-111111111111
--! NULL
SELECT v FROM r_uuid AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM r_uuid WHERE k = '00000000-0000-0000-0000-000000000000';
SELECT * FROM r_uuid WHERE k = '40000000-0000-0000-0000-000000000000';
SELECT * FROM r_uuid WHERE k = '3fffffff-ffff-ffff-ffff-ffffffffffff';
SELECT count(v) FROM r_uuid WHERE k = uuid '00000000-0000-0000-0000-000000000000';
--! 40000000-0000-0000-0000-000000000000
SELECT * FROM r_uuid WHERE k = $1::uuid;
--! 00000000-0000-0000-0000-000000000000 | ffffffff-ffff-ffff-ffff-ffffffffffff
--! 11111111-1111-1111-1111-111111111111 | NULL
SELECT * FROM r_uuid WHERE k IN ($1, $2) ORDER BY k;
SELECT * FROM r_uuid WHERE k IN ('00000000-0000-0000-0000-000000000000', '40000000-0000-0000-0000-000000000000', NULL) OR k = 'ffffffff-ffff-ffff-ffff-ffffffffffff';
--! {"00000000-0000-0000-0000-000000000000","40000000-0000-0000-0000-000000000000","3fffffff-ffff-ffff-ffff-ffffffffffff"}
--! {"00000000-0000-0000-0000-000000000000",NULL}
--! {}
--! NULL
SELECT * FROM r_uuid WHERE k = ANY($1);
SELECT v FROM r_uuid WHERE k = ANY(ARRAY['00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff']::uuid[]);
SELECT v FROM r_uuid WHERE k = ANY('{"00000000-0000-0000-0000-000000000000","ffffffff-ffff-ffff-ffff-ffffffffffff"}');
--! 00000000-0000-0000-0000-000000000000
SELECT v FROM r_uuid WHERE k <> $1;
--! 00000000-0000-0000-0000-000000000000 | ffffffff-ffff-ffff-ffff-ffffffffffff
SELECT v FROM r_uuid WHERE k BETWEEN $1 AND $2;
--! ffffffff-ffff-ffff-ffff-ffffffffffff
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM r_uuid WHERE k = $1) s;
--! ffffffff-ffff-ffff-ffff-ffffffffffff
SELECT v FROM r_uuid WHERE k < $1;
--! ffffffff-ffff-ffff-ffff-ffffffffffff
SELECT v FROM r_uuid WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM r_uuid WHERE k IS NULL;
--! 00000000-0000-0000-0000-000000000000
--! NULL
SELECT v FROM r_uuid WHERE k IS NOT DISTINCT FROM $1;
--! 00000000-0000-0000-0000-000000000000 | ffffffff-ffff-ffff-ffff-ffffffffffff
SELECT v FROM r_uuid WHERE k = $1 AND k = $2;
--! 00000000-0000-0000-0000-000000000000 | changed
--! NULL | changed
UPDATE r_uuid SET v = $2 WHERE k = $1 RETURNING *;
--! 00000000-0000-0000-0000-000000000000
DELETE FROM r_uuid WHERE k = $1;
--! 99999999-9999-4999-8999-999999999999 | new
INSERT INTO r_uuid (k, v) VALUES ($1, $2);
INSERT INTO r_uuid (v, k) VALUES ('new', '99999999-9999-4999-8999-999999999999') RETURNING k, v;
--! 00000000-0000-0000-0000-000000000000 | twice
INSERT INTO r_uuid VALUES ($1, $2);
SELECT k, v FROM r_uuid ORDER BY k DESC;

-- r_date
--! 2023-12-25
--! 2024-01-14
--! 2024-03-15
--! infinity
--! -infinity
--! 2001-09-09
--! NULL
SELECT * FROM r_date WHERE k = $1;
--! 2023-12-25
--! 2024-01-14
--! 2024-03-15
--! infinity
--! -infinity
--! 2001-09-09
--! NULL
SELECT v FROM r_date AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM r_date WHERE k = '2023-12-25';
SELECT * FROM r_date WHERE k = '2024-01-14';
SELECT * FROM r_date WHERE k = '2024-03-15';
SELECT count(v) FROM r_date WHERE k = date '2023-12-25';
--! 2024-01-14
SELECT * FROM r_date WHERE k = $1::date;
--! 2023-12-25 | 2024-02-13
--! 2001-09-09 | NULL
SELECT * FROM r_date WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
SELECT * FROM r_date WHERE k IN ('2023-12-25', '2024-01-14', NULL) OR k = '2024-02-13';
--! {"2023-12-25","2024-01-14","2024-03-15"}
--! {"2023-12-25",NULL}
--! {}
--! NULL
SELECT * FROM r_date WHERE k = ANY($1);
SELECT v FROM r_date WHERE k = ANY(ARRAY['2023-12-25', '2024-02-13']::date[]);
SELECT v FROM r_date WHERE k = ANY('{"2023-12-25","2024-02-13"}');
--! 2023-12-25
SELECT v FROM r_date WHERE k <> $1;
--! 2023-12-25 | 2024-02-13
SELECT v FROM r_date WHERE k BETWEEN $1 AND $2;
--! 2024-02-13
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM r_date WHERE k = $1) s;
--! 2024-02-13
SELECT v FROM r_date WHERE k < $1;
--! 2024-02-13
SELECT v FROM r_date WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM r_date WHERE k IS NULL;
--! 2023-12-25
--! NULL
SELECT v FROM r_date WHERE k IS NOT DISTINCT FROM $1;
--! 2023-12-25 | 2024-02-13
SELECT v FROM r_date WHERE k = $1 AND k = $2;
--! 2023-12-25 | changed
--! NULL | changed
UPDATE r_date SET v = $2 WHERE k = $1 RETURNING *;
--! 2023-12-25
DELETE FROM r_date WHERE k = $1;
--! 2024-05-05 | new
INSERT INTO r_date (k, v) VALUES ($1, $2);
INSERT INTO r_date (v, k) VALUES ('new', '2024-05-05') RETURNING k, v;
--! 2023-12-25 | twice
INSERT INTO r_date VALUES ($1, $2);
SELECT k, v FROM r_date ORDER BY k DESC;

-- r_timestamp
--! 2024-01-01 00:00:00
--! 2024-01-01 09:30:00
--! 2024-01-06 00:00:00
--! 2001-09-09 00:00:00
--! NULL
SELECT * FROM r_timestamp WHERE k = $1;
--! 2024-01-01 00:00:00
--! 2024-01-01 09:30:00
--! 2024-01-06 00:00:00
--! 2001-09-09 00:00:00
--! NULL
SELECT v FROM r_timestamp AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM r_timestamp WHERE k = '2024-01-01 00:00:00';
SELECT * FROM r_timestamp WHERE k = '2024-01-01 09:30:00';
SELECT * FROM r_timestamp WHERE k = '2024-01-06 00:00:00';
SELECT count(v) FROM r_timestamp WHERE k = timestamp '2024-01-01 00:00:00';
--! 2024-01-01 09:30:00
SELECT * FROM r_timestamp WHERE k = $1::timestamp;
--! 2024-01-01 00:00:00 | 2024-01-02 14:00:00
--! 2001-09-09 00:00:00 | NULL
SELECT * FROM r_timestamp WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
SELECT * FROM r_timestamp WHERE k IN ('2024-01-01 00:00:00', '2024-01-01 09:30:00', NULL) OR k = '2024-01-02 14:00:00';
--! {"2024-01-01 00:00:00","2024-01-01 09:30:00","2024-01-06 00:00:00"}
--! {"2024-01-01 00:00:00",NULL}
--! {}
--! NULL
SELECT * FROM r_timestamp WHERE k = ANY($1);
SELECT v FROM r_timestamp WHERE k = ANY(ARRAY['2024-01-01 00:00:00', '2024-01-02 14:00:00']::timestamp[]);
SELECT v FROM r_timestamp WHERE k = ANY('{"2024-01-01 00:00:00","2024-01-02 14:00:00"}');
--! 2024-01-01 00:00:00
SELECT v FROM r_timestamp WHERE k <> $1;
--! 2024-01-01 00:00:00 | 2024-01-02 14:00:00
SELECT v FROM r_timestamp WHERE k BETWEEN $1 AND $2;
--! 2024-01-02 14:00:00
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM r_timestamp WHERE k = $1) s;
--! 2024-01-02 14:00:00
SELECT v FROM r_timestamp WHERE k < $1;
--! 2024-01-02 14:00:00
SELECT v FROM r_timestamp WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM r_timestamp WHERE k IS NULL;
--! 2024-01-01 00:00:00
--! NULL
SELECT v FROM r_timestamp WHERE k IS NOT DISTINCT FROM $1;
--! 2024-01-01 00:00:00 | 2024-01-02 14:00:00
SELECT v FROM r_timestamp WHERE k = $1 AND k = $2;
--! 2024-01-01 00:00:00 | changed
--! NULL | changed
UPDATE r_timestamp SET v = $2 WHERE k = $1 RETURNING *;
--! 2024-01-01 00:00:00
DELETE FROM r_timestamp WHERE k = $1;
--! 2024-05-05 05:05:05.5 | new
INSERT INTO r_timestamp (k, v) VALUES ($1, $2);
INSERT INTO r_timestamp (v, k) VALUES ('new', '2024-05-05 05:05:05.5') RETURNING k, v;
--! 2024-01-01 00:00:00 | twice
INSERT INTO r_timestamp VALUES ($1, $2);
SELECT k, v FROM r_timestamp ORDER BY k DESC;

-- r_timestamptz
--! 2024-01-01 00:00:00+00
--! 2024-01-01 11:30:00+02
--! 2001-09-09 00:00:00+00
--! NULL
SELECT * FROM r_timestamptz WHERE k = $1;
--! 2024-01-01 00:00:00+00
--! 2024-01-01 11:30:00+02
--! 2001-09-09 00:00:00+00
--! NULL
SELECT v FROM r_timestamptz AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM r_timestamptz WHERE k = '2024-01-01 00:00:00+00';
SELECT * FROM r_timestamptz WHERE k = '2024-01-01 11:30:00+02';
SELECT * FROM r_timestamptz WHERE k = '2001-09-09 00:00:00+00';
SELECT count(v) FROM r_timestamptz WHERE k = timestamptz '2024-01-01 00:00:00+00';
--! 2024-01-01 11:30:00+02
SELECT * FROM r_timestamptz WHERE k = $1::timestamptz;
--! 2024-01-01 00:00:00+00 | 2024-01-02 14:00:00+00
--! 2001-09-09 00:00:00+00 | NULL
SELECT * FROM r_timestamptz WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
SELECT * FROM r_timestamptz WHERE k IN ('2024-01-01 00:00:00+00', '2024-01-01 11:30:00+02', NULL) OR k = '2024-01-02 14:00:00+00';
--! {"2024-01-01 00:00:00+00","2024-01-01 11:30:00+02","2001-09-09 00:00:00+00"}
--! {"2024-01-01 00:00:00+00",NULL}
--! {}
--! NULL
SELECT * FROM r_timestamptz WHERE k = ANY($1);
SELECT v FROM r_timestamptz WHERE k = ANY(ARRAY['2024-01-01 00:00:00+00', '2024-01-02 14:00:00+00']::timestamptz[]);
SELECT v FROM r_timestamptz WHERE k = ANY('{"2024-01-01 00:00:00+00","2024-01-02 14:00:00+00"}');
--! 2024-01-01 00:00:00+00
SELECT v FROM r_timestamptz WHERE k <> $1;
--! 2024-01-01 00:00:00+00 | 2024-01-02 14:00:00+00
SELECT v FROM r_timestamptz WHERE k BETWEEN $1 AND $2;
--! 2024-01-02 14:00:00+00
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM r_timestamptz WHERE k = $1) s;
--! 2024-01-02 14:00:00+00
SELECT v FROM r_timestamptz WHERE k < $1;
--! 2024-01-02 14:00:00+00
SELECT v FROM r_timestamptz WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM r_timestamptz WHERE k IS NULL;
--! 2024-01-01 00:00:00+00
--! NULL
SELECT v FROM r_timestamptz WHERE k IS NOT DISTINCT FROM $1;
--! 2024-01-01 00:00:00+00 | 2024-01-02 14:00:00+00
SELECT v FROM r_timestamptz WHERE k = $1 AND k = $2;
--! 2024-01-01 00:00:00+00 | changed
--! NULL | changed
UPDATE r_timestamptz SET v = $2 WHERE k = $1 RETURNING *;
--! 2024-01-01 00:00:00+00
DELETE FROM r_timestamptz WHERE k = $1;
--! 2024-05-05 05:05:05.5+05 | new
INSERT INTO r_timestamptz (k, v) VALUES ($1, $2);
INSERT INTO r_timestamptz (v, k) VALUES ('new', '2024-05-05 05:05:05.5+05') RETURNING k, v;
--! 2024-01-01 00:00:00+00 | twice
INSERT INTO r_timestamptz VALUES ($1, $2);
SELECT k, v FROM r_timestamptz ORDER BY k DESC;

-- r_bytea
--! \x
--! \x00
--! \x40
--! \xffff
--! \xabcdef
--! NULL
SELECT * FROM r_bytea WHERE k = $1;
--! \x
--! \x00
--! \x40
--! \xffff
--! \xabcdef
--! NULL
SELECT v FROM r_bytea AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM r_bytea WHERE k = '\x';
SELECT * FROM r_bytea WHERE k = '\x00';
SELECT * FROM r_bytea WHERE k = '\x40';
SELECT count(v) FROM r_bytea WHERE k = bytea '\x';
--! \x00
SELECT * FROM r_bytea WHERE k = $1::bytea;
--! \x | \x80
--! \xabcdef | NULL
SELECT * FROM r_bytea WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
SELECT * FROM r_bytea WHERE k IN ('\x', '\x00', NULL) OR k = '\x80';
--! {"\\x","\\x00","\\x40"}
--! {"\\x",NULL}
--! {}
--! NULL
SELECT * FROM r_bytea WHERE k = ANY($1);
SELECT v FROM r_bytea WHERE k = ANY(ARRAY['\x', '\x80']::bytea[]);
SELECT v FROM r_bytea WHERE k = ANY('{"\\x","\\x80"}');
--! \x
SELECT v FROM r_bytea WHERE k <> $1;
--! \x | \x80
SELECT v FROM r_bytea WHERE k BETWEEN $1 AND $2;
--! \x80
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM r_bytea WHERE k = $1) s;
--! \x80
SELECT v FROM r_bytea WHERE k < $1;
--! \x80
SELECT v FROM r_bytea WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM r_bytea WHERE k IS NULL;
--! \x
--! NULL
SELECT v FROM r_bytea WHERE k IS NOT DISTINCT FROM $1;
--! \x | \x80
SELECT v FROM r_bytea WHERE k = $1 AND k = $2;
--! \x | changed
--! NULL | changed
UPDATE r_bytea SET v = $2 WHERE k = $1 RETURNING *;
--! \x
DELETE FROM r_bytea WHERE k = $1;
--! \x0badcafe | new
INSERT INTO r_bytea (k, v) VALUES ($1, $2);
INSERT INTO r_bytea (v, k) VALUES ('new', '\x0badcafe') RETURNING k, v;
--! \x | twice
INSERT INTO r_bytea VALUES ($1, $2);
SELECT k, v FROM r_bytea ORDER BY k DESC;

-- l_int4
--! 1
--! 2
--! 3
--! 8
--! 12
--! 99
--! NULL
SELECT * FROM l_int4 WHERE k = $1;
--! 1
--! 2
--! 3
--! 8
--! 12
--! 99
--! NULL
SELECT v FROM l_int4 AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM l_int4 WHERE k = '1';
SELECT * FROM l_int4 WHERE k = '2';
SELECT * FROM l_int4 WHERE k = '3';
SELECT count(v) FROM l_int4 WHERE k = integer '1';
--! 2
SELECT * FROM l_int4 WHERE k = $1::integer;
--! 1 | 5
--! 99 | NULL
SELECT * FROM l_int4 WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
SELECT * FROM l_int4 WHERE k IN ('1', '2', NULL) OR k = '5';
--! {"1","2","3"}
--! {"1",NULL}
--! {}
--! NULL
SELECT * FROM l_int4 WHERE k = ANY($1);
SELECT v FROM l_int4 WHERE k = ANY(ARRAY['1', '5']::integer[]);
SELECT v FROM l_int4 WHERE k = ANY('{"1","5"}');
--! 1
SELECT v FROM l_int4 WHERE k <> $1;
--! 1 | 5
SELECT v FROM l_int4 WHERE k BETWEEN $1 AND $2;
--! 5
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM l_int4 WHERE k = $1) s;
--! 5
SELECT v FROM l_int4 WHERE k < $1;
--! 5
SELECT v FROM l_int4 WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM l_int4 WHERE k IS NULL;
--! 1
--! NULL
SELECT v FROM l_int4 WHERE k IS NOT DISTINCT FROM $1;
--! 1 | 5
SELECT v FROM l_int4 WHERE k = $1 AND k = $2;
--! 1 | changed
--! NULL | changed
UPDATE l_int4 SET v = $2 WHERE k = $1 RETURNING *;
--! 1
DELETE FROM l_int4 WHERE k = $1;
--! 13
INSERT INTO l_int4 VALUES ($1, 'new') RETURNING *;
INSERT INTO l_int4 VALUES (14, 'new');
--! 1 | twice
INSERT INTO l_int4 VALUES ($1, $2);
SELECT k, v FROM l_int4 ORDER BY k DESC;

-- l_date
--! 2024-01-01
--! 2024-12-25
--! infinity
--! NULL
SELECT * FROM l_date WHERE k = $1;
--! 2024-01-01
--! 2024-12-25
--! infinity
--! NULL
SELECT v FROM l_date AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM l_date WHERE k = '2024-01-01';
SELECT * FROM l_date WHERE k = '2024-12-25';
SELECT * FROM l_date WHERE k = 'infinity';
SELECT count(v) FROM l_date WHERE k = date '2024-01-01';
--! 2024-12-25
SELECT * FROM l_date WHERE k = $1::date;
--! 2024-01-01 | 2024-12-25
--! infinity | NULL
SELECT * FROM l_date WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
SELECT * FROM l_date WHERE k IN ('2024-01-01', '2024-12-25', NULL) OR k = '2024-12-25';
--! {"2024-01-01","2024-12-25","infinity"}
--! {"2024-01-01",NULL}
--! {}
--! NULL
SELECT * FROM l_date WHERE k = ANY($1);
SELECT v FROM l_date WHERE k = ANY(ARRAY['2024-01-01', '2024-12-25']::date[]);
SELECT v FROM l_date WHERE k = ANY('{"2024-01-01","2024-12-25"}');
--! 2024-01-01
SELECT v FROM l_date WHERE k <> $1;
--! 2024-01-01 | 2024-12-25
SELECT v FROM l_date WHERE k BETWEEN $1 AND $2;
--! 2024-12-25
SELECT count(*), min(v COLLATE "C") FROM (SELECT v FROM l_date WHERE k = $1) s;
--! 2024-12-25
SELECT v FROM l_date WHERE k < $1;
--! 2024-12-25
SELECT v FROM l_date WHERE k >= $1 AND k IS NOT NULL;
SELECT * FROM l_date WHERE k IS NULL;
--! 2024-01-01
--! NULL
SELECT v FROM l_date WHERE k IS NOT DISTINCT FROM $1;
--! 2024-01-01 | 2024-12-25
SELECT v FROM l_date WHERE k = $1 AND k = $2;
--! 2024-01-01 | changed
--! NULL | changed
UPDATE l_date SET v = $2 WHERE k = $1 RETURNING *;
--! 2024-01-01
DELETE FROM l_date WHERE k = $1;
DELETE FROM l_date WHERE k = '2024-12-25' RETURNING v;
INSERT INTO l_date VALUES ('2024-12-25', 'again') ON CONFLICT (k) DO UPDATE SET v = excluded.v RETURNING *;
--! 2024-01-01 | twice
INSERT INTO l_date VALUES ($1, $2);
SELECT k, v FROM l_date ORDER BY k DESC;

-- Comparisons with values of other types.
--! 1
SELECT * FROM k_int2 WHERE k = $1::integer;
--! 70000
SELECT * FROM k_int2 WHERE k = $1::integer;
SELECT * FROM k_int2 WHERE k = 70000;
SELECT * FROM k_int2 WHERE k = 32767;
SELECT * FROM k_int2 WHERE k = 1::bigint;
SELECT * FROM k_int2 WHERE k = '1';
SELECT * FROM k_int2 WHERE k = 1.0;
SELECT * FROM k_int2 WHERE k = 1.5;
SELECT * FROM k_int4 WHERE k = 1.0;
SELECT * FROM k_int4 WHERE k = 1e0;
SELECT * FROM k_int4 WHERE k = 3000000000;
SELECT * FROM k_int4 WHERE k = -1;
SELECT * FROM k_int4 WHERE k = - 1;
SELECT * FROM k_int4 WHERE k = +1;
SELECT * FROM k_int4 WHERE k = -(-1);
SELECT * FROM k_int4 WHERE k = 1 + 1;
SELECT * FROM k_int4 WHERE -k = 1;
SELECT * FROM k_int4 WHERE k + 0 = 1;
SELECT * FROM k_int4 WHERE k % 2 = 1;
SELECT * FROM k_int4 WHERE k = 1 AND v = 'v1';
SELECT * FROM k_int4 WHERE k = 1 AND v = 'v2';
SELECT * FROM k_int4 WHERE k = 1 OR v = 'v2';
SELECT * FROM k_int4 WHERE NOT k = 1;
SELECT * FROM k_int4 WHERE NOT (k <> 1);
SELECT * FROM k_int4 WHERE (k = 1) IS TRUE;
SELECT * FROM k_int4 WHERE (k, v) = (1, 'v1');
SELECT * FROM k_int4 WHERE (k, v) IN ((1, 'v1'), (2, 'v2'), (3, 'x'));
SELECT * FROM k_int4 WHERE (k, v) > (1, 'v1');
SELECT * FROM k_int4 WHERE k = (1);
SELECT * FROM k_int4 WHERE k = ((((1))));
SELECT * FROM k_int4 WHERE k = '0x1';
SELECT * FROM k_int4 WHERE k = ' 1 ';
SELECT * FROM k_int4 WHERE k = '1.5';
SELECT * FROM k_int4 WHERE k = 'abc';
SELECT * FROM k_int4 WHERE k = '99999999999999';
SELECT * FROM k_int4 WHERE k = TRUE;
SELECT * FROM k_int4 WHERE k = '2024-01-01'::date;
SELECT * FROM k_int4 WHERE k = NULL;
SELECT * FROM k_int4 WHERE k IN (NULL);
SELECT * FROM k_int4 WHERE k IN (1, 2) AND k IN (2, 3);
SELECT * FROM k_int4 WHERE k = 1 AND k = 2;
SELECT count(*) FROM k_int4 WHERE k = 1 AND k = 2;
SELECT * FROM k_int4 WHERE FALSE;
SELECT count(*) FROM k_int4 WHERE k = NULL;
SELECT * FROM k_int4 WHERE CASE WHEN k = 1 THEN TRUE ELSE k = 2 END;
SELECT * FROM k_int4 WHERE k = ANY (ARRAY[1, 2, 3]);
SELECT * FROM k_int4 WHERE k = ANY (ARRAY[1, NULL]);
SELECT * FROM k_int4 WHERE k = ANY ('{1,2,3}'::int[]);
SELECT * FROM k_int4 WHERE k = ANY ('{1,2,3}'::bigint[]);
SELECT * FROM k_int4 WHERE k = SOME (ARRAY[1, 2]);
SELECT * FROM k_int4 WHERE k <> ALL (ARRAY[1, 2]);
SELECT * FROM k_int4 WHERE k = ALL (ARRAY[1, 1]);
SELECT * FROM k_int4 WHERE k <> ANY (ARRAY[1]);
SELECT * FROM k_int4 WHERE k NOT IN (1, 2);
--! {1,70000}
SELECT * FROM k_int4 WHERE k = ANY ($1::int[]);
--! {1,70000,3000000000}
SELECT * FROM k_int4 WHERE k = ANY ($1::bigint[]);
--! {1,70000}
SELECT * FROM k_int4 WHERE k = ANY ($1::text[]::int[]);
--! 1
SELECT * FROM k_int4 WHERE k = $1::smallint;
--! 1
SELECT * FROM k_int4 WHERE k = $1::numeric;
--! 1.5
SELECT * FROM k_int4 WHERE k = $1::numeric;
--! 1
SELECT * FROM k_int4 WHERE k = $1::float8;
--! 9007199254740992
SELECT * FROM k_int8 WHERE k = $1::float8;
--! 9007199254740993
SELECT * FROM k_int8 WHERE k = $1::numeric;
SELECT * FROM k_int8 WHERE k = 9007199254740993.0;
SELECT * FROM k_int8 WHERE k = 9223372036854775807;
SELECT * FROM k_int8 WHERE k = -9223372036854775808;
SELECT * FROM k_int8 WHERE k = 9223372036854775808;
SELECT * FROM k_int8 WHERE k = 70000::integer;
--! abc
SELECT * FROM k_int4 WHERE k = $1;
--! 1 | 2
SELECT * FROM k_int4 WHERE k = $1 + $2;
--! 1
SELECT * FROM k_int4 WHERE k = abs($1);
--! 3
SELECT * FROM k_int4 WHERE k = least($1, 5);
-- Text and its relatives.
SELECT * FROM k_text WHERE k = 'a'::varchar;
SELECT * FROM k_text WHERE k = 'a '::char(5);
SELECT * FROM k_text WHERE k = 'a'::char(5);
SELECT * FROM k_text WHERE k = 'a'::name;
SELECT * FROM k_text WHERE k = 'a' COLLATE "C";
SELECT * FROM k_text WHERE k = U&'\00e4';
SELECT * FROM k_text WHERE k = E'line\nfeed';
SELECT * FROM k_text WHERE k = $$O'Brien$$;
SELECT * FROM k_text WHERE k = $q$"quoted"$q$;
SELECT * FROM k_text WHERE k = '$1';
SELECT * FROM k_text WHERE k = 'back\slash';
SELECT * FROM k_text WHERE k = E'back\\slash';
SELECT * FROM k_text WHERE k = 'O''Brien';
SELECT * FROM k_text WHERE k = 'li' 'st';
SELECT * FROM k_text WHERE k = 1;
SELECT * FROM k_text WHERE k = 1::text;
SELECT * FROM k_text WHERE k = 'a' || '';
SELECT * FROM k_text WHERE k LIKE 'a';
SELECT * FROM k_text WHERE k LIKE 'a%' ORDER BY k COLLATE "C";
SELECT * FROM k_text WHERE k ~ '^a$';
SELECT * FROM k_text WHERE lower(k) = 'a' ORDER BY k COLLATE "C";
SELECT * FROM k_text WHERE k = lower('A');
SELECT * FROM k_text WHERE k = upper('a');
SELECT * FROM k_text WHERE k = current_user;
SELECT * FROM k_text WHERE k > 'a' ORDER BY v COLLATE "C";
SELECT * FROM k_varchar WHERE k = 'a'::text;
SELECT * FROM k_varchar WHERE k = 'a '::text;
SELECT * FROM k_varchar WHERE k = 'a'::char(3);
SELECT * FROM k_varchar WHERE k = 'a'::varchar(1);
SELECT * FROM k_varchar WHERE k = 'abc'::varchar(2);
SELECT * FROM k_char WHERE k = 'a   ';
SELECT * FROM k_char WHERE k = 'a'::text;
SELECT * FROM k_char WHERE k = 'a  '::text;
SELECT * FROM k_char WHERE k = 'a'::varchar;
SELECT * FROM k_char WHERE k = 'abcdef';
SELECT * FROM k_char WHERE k = 'abcdef'::char(5);
SELECT * FROM k_char WHERE k = 'ab'::char(20);
--! a
SELECT * FROM k_char WHERE k = $1::text;
--! a
SELECT * FROM k_char WHERE k = $1::varchar;
-- The conversion of a literal may depend on settings.
SELECT * FROM k_date WHERE k = '2024-01-01'::timestamp;
SELECT * FROM k_date WHERE k = '2024-01-01 12:00'::timestamp;
SELECT * FROM k_date WHERE k = '2024-01-01 00:00+00'::timestamptz;
SELECT * FROM k_date WHERE k = '01/01/2024';
SELECT * FROM k_date WHERE k = 'January 1, 2024';
SELECT * FROM k_date WHERE k = '20240101';
SELECT * FROM k_date WHERE k = 'epoch';
SELECT count(*) FROM k_date WHERE k = CURRENT_DATE;
SELECT * FROM k_date WHERE k = date '2024-02-28' + 1;
SELECT * FROM k_date WHERE k = '2024-02-30';
SELECT * FROM k_date WHERE k = make_date(2024, 1, 1);
SELECT * FROM k_timestamp WHERE k = '2024-01-01'::date;
SELECT * FROM k_timestamp WHERE k = '2024-01-01T00:00:00';
SELECT * FROM k_timestamp WHERE k = '2024-01-01 00:00:00+05';
SELECT * FROM k_timestamp WHERE k = '2024-01-01 00:00'::timestamptz;
SELECT * FROM k_timestamp WHERE k = 'epoch';
SELECT * FROM k_timestamptz WHERE k = '2024-01-01 00:00:00';
SELECT * FROM k_timestamptz WHERE k = '2024-01-01'::date;
SELECT * FROM k_timestamptz WHERE k = '2024-01-01 00:00:00Z';
SELECT * FROM k_timestamptz WHERE k = '2024-01-01 00:00:00'::timestamp;
SELECT * FROM k_timestamptz WHERE k = '2024-06-01 12:00 Europe/Berlin';
SELECT count(*) FROM k_timestamptz WHERE k = now();
SELECT * FROM k_uuid WHERE k = 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid;
SELECT * FROM k_uuid WHERE k = 'not a uuid';
SELECT * FROM k_uuid WHERE k::text = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11';
SELECT * FROM k_bytea WHERE k = 'ab';
SELECT * FROM k_bytea WHERE k = '\134';
SELECT * FROM k_bytea WHERE k = E'\\xDEADBEEF';
SELECT * FROM k_bytea WHERE k = '\xzz';
SELECT * FROM k_bytea WHERE k = decode('deadbeef', 'hex');
-- Booleans.
--! true
--! f
--! NULL
SELECT * FROM k_bool WHERE k = $1 ORDER BY n;
SELECT * FROM k_bool WHERE k ORDER BY n;
SELECT * FROM k_bool WHERE NOT k ORDER BY n;
SELECT * FROM k_bool WHERE k = TRUE AND n = 2;
SELECT * FROM k_bool WHERE k IS TRUE ORDER BY n;
SELECT * FROM k_bool WHERE k IS NOT TRUE ORDER BY n;
SELECT * FROM k_bool WHERE k IS FALSE ORDER BY n;
SELECT * FROM k_bool WHERE k = 'yes' ORDER BY n;
SELECT * FROM k_bool WHERE k = 't'::bool ORDER BY n;
SELECT * FROM k_bool WHERE k IN (TRUE, FALSE) ORDER BY k, n;
SELECT * FROM k_bool WHERE k <> FALSE ORDER BY n;
SELECT * FROM k_bool ORDER BY k DESC, n;
--! true | 9
INSERT INTO k_bool VALUES ($1, $2, 'new') RETURNING *;
INSERT INTO k_bool VALUES (FALSE, 9, NULL);
UPDATE k_bool SET v = 'all' WHERE k;
DELETE FROM k_bool WHERE k = FALSE AND n > 1;
--! t
--! off
SELECT * FROM l_bool WHERE k = $1 ORDER BY n;
SELECT * FROM l_bool ORDER BY k, n;
INSERT INTO l_bool VALUES (TRUE, 4), (TRUE, 5) RETURNING n;
-- Key functions: the column, and the function of it.
SELECT * FROM f_left WHERE code = 'AA1';
SELECT * FROM f_left WHERE left(code, 1) = 'A' ORDER BY v, code COLLATE "C";
SELECT * FROM f_left WHERE left(code, 1) = 'ä' ORDER BY v;
SELECT * FROM f_left WHERE left(code, 2) = 'AA' ORDER BY v;
SELECT * FROM f_left WHERE code IN ('AA1', 'Z2', 'nope');
SELECT * FROM f_left WHERE left(code, 1) IN ('A', 'Z');
SELECT * FROM f_left WHERE code LIKE 'A%';
--! BA3
--! NULL
SELECT * FROM f_left WHERE code = $1;
--! {AA1,Z1}
SELECT * FROM f_left WHERE code = ANY ($1);
--! Z
SELECT * FROM f_left WHERE left(code, 1) = $1 ORDER BY v;
INSERT INTO f_left VALUES ('Q1', 1);
UPDATE f_left SET v = v + 1 WHERE code = 'AA1';
DELETE FROM f_left WHERE left(code, 1) = 'Z';
SELECT * FROM f_substr WHERE code = 'xred1';
SELECT * FROM f_substr WHERE substr(code, 2, 3) = 'red' ORDER BY v;
SELECT * FROM f_substr WHERE substring(code, 2, 3) = 'red' ORDER BY v;
SELECT * FROM f_substr WHERE substring(code from 2 for 3) = 'gre' ORDER BY v;
SELECT * FROM f_substr WHERE substr(code, 2) = 'red1';
--! xy2
SELECT * FROM f_substr WHERE code = $1;
INSERT INTO f_substr VALUES ('xwhite', 9) RETURNING code;
SELECT * FROM f_modulo WHERE id = 2;
SELECT * FROM f_modulo WHERE id = -10;
SELECT * FROM f_modulo WHERE id % 7 = 2 ORDER BY id;
SELECT * FROM f_modulo WHERE id % 7 = -3 ORDER BY id;
SELECT * FROM f_modulo WHERE mod(id, 7) = 2 ORDER BY id;
SELECT * FROM f_modulo WHERE id % 10 = 3 ORDER BY id;
SELECT * FROM f_modulo WHERE id BETWEEN 0 AND 10 ORDER BY id;
--! 5
--! -7
SELECT * FROM f_modulo WHERE id = $1;
--! {2,5,-10}
SELECT * FROM f_modulo WHERE id = ANY ($1) ORDER BY id;
--! 31
INSERT INTO f_modulo VALUES ($1, 0);
UPDATE f_modulo SET v = 0 WHERE id = 2 RETURNING *;
SELECT * FROM f_month WHERE at = '2024-01-22 10:00';
SELECT * FROM f_month WHERE date_trunc('month', at) = '2024-02-01' ORDER BY at;
SELECT * FROM f_month WHERE date_trunc('month', at) = '2024-02-02' ORDER BY at;
SELECT * FROM f_month WHERE date_trunc('year', at) = '2024-01-01' ORDER BY at;
SELECT * FROM f_month WHERE at >= '2024-02-01' AND at < '2024-03-01' ORDER BY at;
--! 2024-01-22 10:00:00
SELECT * FROM f_month WHERE at = $1;
--! 2024-03-01 00:00:00
SELECT count(*) FROM f_month WHERE date_trunc('month', at) = $1;
INSERT INTO f_month VALUES ('2030-01-01', 1);
-- Ranges.
SELECT * FROM r_int4 WHERE k > 0 AND k < 100 ORDER BY k;
SELECT * FROM r_int4 WHERE k >= 0 AND k <= 100 ORDER BY k;
SELECT * FROM r_int4 WHERE k BETWEEN 25 AND 75 ORDER BY k;
SELECT * FROM r_int4 WHERE k BETWEEN 75 AND 25 ORDER BY k;
SELECT * FROM r_int4 WHERE k BETWEEN SYMMETRIC 75 AND 25 ORDER BY k;
SELECT * FROM r_int4 WHERE k NOT BETWEEN 0 AND 250 ORDER BY k;
SELECT * FROM r_int4 WHERE 100 > k ORDER BY k;
SELECT * FROM r_int4 WHERE k > 24.5 AND k < 25.5;
SELECT * FROM r_int4 WHERE k > 3000000000;
SELECT * FROM r_int4 WHERE k < 3000000000 ORDER BY k;
SELECT * FROM r_int4 WHERE k < 0 OR k > 300 ORDER BY k;
SELECT * FROM r_int4 WHERE k > 100 AND k < 50;
SELECT * FROM r_int4 WHERE k > NULL;
SELECT count(*) FROM r_int4 WHERE k >= 25 AND k < 50;
SELECT max(k), min(k), count(*) FROM r_int4 WHERE k BETWEEN 0 AND 75;
SELECT sum(k) FROM r_int4 WHERE k BETWEEN 100 AND 199;
--! 0 | 100
--! 50 | 60
--! NULL | 60
SELECT * FROM r_int4 WHERE k >= $1 AND k < $2 ORDER BY k;
--! 0 | 100
SELECT * FROM r_int4 WHERE k BETWEEN $1 AND $2 ORDER BY k DESC LIMIT 3;
SELECT * FROM r_date WHERE k >= '2024-02-01' AND k < '2024-03-01' ORDER BY k;
SELECT * FROM r_date WHERE k > '2024-03-20' ORDER BY k;
SELECT * FROM r_date WHERE k < 'infinity' AND k > '-infinity' ORDER BY k LIMIT 4;
SELECT * FROM r_date WHERE k >= '2024-02-01'::timestamp AND k < '2024-02-20' ORDER BY k;
SELECT * FROM r_date WHERE k >= '2024-02-01'::date - 7 AND k < '2024-02-20' ORDER BY k;
SELECT * FROM r_date WHERE k >= '2024-02-01'::date - interval '7 days' AND k < '2024-02-20' ORDER BY k;
--! 2024-01-10 | 2024-02-10
SELECT * FROM r_date WHERE k BETWEEN $1 AND $2 ORDER BY k;
SELECT * FROM r_text WHERE k >= 'g' AND k < 'h' ORDER BY k;
SELECT * FROM r_text WHERE k < 'A' ORDER BY k;
SELECT * FROM r_text WHERE k > 'p' ORDER BY k;
SELECT * FROM r_text WHERE k >= 'g' COLLATE "C" AND k < 'p' ORDER BY k;
SELECT * FROM r_text WHERE k LIKE 'g%' ORDER BY k;
SELECT * FROM r_timestamptz WHERE k >= '2024-01-03 12:00+00' ORDER BY k LIMIT 5;
SELECT * FROM r_timestamptz WHERE k >= '2024-01-03 12:00+02' AND k < '2024-01-04 12:00+02' ORDER BY k;
SELECT * FROM r_timestamp WHERE k::date = '2024-01-03' ORDER BY k;
SELECT * FROM r_uuid WHERE k < '40000000-0000-0000-0000-000000000000' ORDER BY k;
SELECT * FROM r_bytea WHERE k < '\x40' ORDER BY k;
SELECT * FROM r_bytea WHERE k >= '\x4000' ORDER BY k;
DELETE FROM r_int4 WHERE k > 0 AND k < 100;
DELETE FROM r_int4 WHERE k BETWEEN 25 AND 75 RETURNING k;
UPDATE r_int4 SET v = 'x' WHERE k BETWEEN 110 AND 190;
-- Values that a column changes when they are stored.
INSERT INTO k_int4 VALUES ('42', 'text');
INSERT INTO k_int4 VALUES (42.0, 'numeric');
INSERT INTO k_int4 VALUES (42.5, 'rounded');
INSERT INTO k_int4 VALUES (3000000000, 'out of range');
INSERT INTO k_int4 VALUES (-42.5, 'rounded');
INSERT INTO k_int4 VALUES (42.4, 'rounded');
INSERT INTO k_int4 VALUES (2147483646.4, 'rounded');
INSERT INTO k_int4 VALUES (2147483647.5, 'out of range');
INSERT INTO k_int4 VALUES (43, 'whole'), (3000000000, 'out of range');
INSERT INTO k_int4 VALUES ('3000000000', 'out of range');
INSERT INTO k_int4 VALUES ('42.5', 'no integer');
INSERT INTO k_int8 VALUES (9223372036854775807.5, 'out of range');
INSERT INTO k_int4 VALUES ('NaN'::numeric, 'no number');
--! 42.5
--! 3000000000
INSERT INTO k_int4 VALUES ($1::numeric, 'numeric');
--! 3000000000
--! 42.5
INSERT INTO k_int4 VALUES ($1, 'parameter');
INSERT INTO k_int4 VALUES ('abc', 'wrong');
INSERT INTO k_int4 VALUES (NULL, 'null');
INSERT INTO k_int4 (v) VALUES ('no key');
INSERT INTO k_int4 VALUES (40 + 2, 'sum');
INSERT INTO k_int2 VALUES (40000, 'out of range');
INSERT INTO k_varchar VALUES ('this text is longer than the column', 'too long');
INSERT INTO k_varchar VALUES ('blanks beyond twenty      ', 'cut');
INSERT INTO k_char VALUES ('xy     ', 'padded');
INSERT INTO k_char VALUES ('sixsix', 'too long');
INSERT INTO k_text VALUES ('text'::varchar(3), 'cut by the cast');
INSERT INTO k_text VALUES ('blank ', 'kept');
INSERT INTO k_uuid VALUES ('{12345678123456781234567812345679}', 'form');
INSERT INTO k_date VALUES ('2024-07-07 10:00', 'time');
--! refused
INSERT INTO k_timestamp VALUES ('2024-07-07T10:00:00.1234567', 'rounded');
INSERT INTO k_bytea VALUES ('\x0A0b', 'hex');
INSERT INTO k_bytea VALUES ('abc', 'escape');
UPDATE k_int4 SET k = 5 WHERE k = 1;
UPDATE k_int4 SET k = 1, v = 'same' WHERE k = 1;
UPDATE k_int4 SET k = k WHERE k = 1;
-- Keys without a shard: only lookup has them.
SELECT * FROM l_int4 WHERE k IN (1, 2, 100) ORDER BY k;
INSERT INTO l_int4 VALUES (1, 'again') ON CONFLICT DO NOTHING;
INSERT INTO l_int4 VALUES (1, 'again') ON CONFLICT (k) DO UPDATE SET v = excluded.v || l_int4.v RETURNING v;
SELECT count(*), min(v), max(v), sum(b) FROM l_pair;
SELECT a, count(*) FROM l_pair GROUP BY a ORDER BY a;
SELECT * FROM l_pair WHERE a = 'eu' AND b = 2;
SELECT * FROM l_pair WHERE a = 'us' AND b = 5;
SELECT * FROM l_pair p LEFT JOIN l_int4 i ON i.k = p.b ORDER BY p.a, p.b;
UPDATE l_pair SET v = v || 'x' WHERE b > 3;
DELETE FROM l_pair WHERE v LIKE 'e%';

-- Numbers are the same however many zeros they end with, and compared with integers as numbers.
--! 1
--! 1.000
--! 0.1
--! 2.50
--! 100e-2
--! NaN
--! Infinity
--! 5
--! NULL
SELECT * FROM k_numeric WHERE k = $1;
--! 2.5
--! 100
SELECT v FROM k_numeric AS x WHERE $1 = x.k AND v IS NOT NULL;
SELECT * FROM k_numeric WHERE k = 2.50;
SELECT * FROM k_numeric WHERE k = 2;
SELECT * FROM k_numeric WHERE k = '2.0000';
SELECT * FROM k_numeric WHERE k = -1.5 OR k = 1e2;
SELECT * FROM k_numeric WHERE k = 9007199254740993;
SELECT * FROM k_numeric WHERE k = 9007199254740993::float8;
SELECT * FROM k_numeric WHERE k = 12345678901234567890.1230;
SELECT * FROM k_numeric WHERE k = 'NaN' OR k = 'inf'::numeric;
SELECT v FROM k_numeric WHERE k IN (1, 2.5, '100', NULL) ORDER BY v COLLATE "C";
SELECT v FROM k_numeric WHERE k IN (1::smallint, 2.5::float8) ORDER BY v COLLATE "C";
--! 2 | 0.10
--! 5 | NULL
SELECT * FROM k_numeric WHERE k IN ($1, $2) ORDER BY v COLLATE "C";
--! {"1","2.50","NaN"}
--! {"1.0",NULL}
--! {}
--! NULL
SELECT * FROM k_numeric WHERE k = ANY($1);
SELECT v FROM k_numeric WHERE k = ANY(ARRAY['1', 2.5]::numeric[]);
SELECT v FROM k_numeric WHERE k = ANY('{"1.00","100"}');
SELECT v FROM k_numeric WHERE k BETWEEN 0 AND 2.5 ORDER BY k;
SELECT k, v FROM k_numeric ORDER BY k DESC LIMIT 5;
SELECT max(k), min(k), count(*) FROM k_numeric WHERE k < 'Infinity';
SELECT a.v FROM k_numeric a JOIN (VALUES (1.0), (2.50)) b (k) ON a.k = b.k ORDER BY 1;
SELECT a.v FROM k_numeric a JOIN (VALUES (1), (2)) b (k) ON a.k = b.k ORDER BY 1;
SELECT a.v, b.v FROM k_numeric a JOIN k_scaled b ON a.k = b.k ORDER BY 1;
SELECT a.k FROM k_numeric a JOIN k_numeric b USING (k) WHERE b.k = 0.1;
SELECT k, count(*) FROM l_numeric GROUP BY k ORDER BY k;
SELECT DISTINCT k FROM l_numeric ORDER BY k DESC;
SELECT count(*) FROM l_numeric WHERE k = 1.500;
SELECT v FROM l_numeric WHERE k = 2 ORDER BY n;
--! NaN | 2
--! 7.0 | 1
SELECT v FROM l_numeric WHERE k = $1 AND n = $2;
--! 1.00 | changed
UPDATE k_numeric SET v = $2 WHERE k = $1 RETURNING *;
--! 2.50
DELETE FROM k_numeric WHERE k = $1;
--! 77.70 | new
INSERT INTO k_numeric (k, v) VALUES ($1, $2);
--! 1.00 | twice
INSERT INTO k_numeric VALUES ($1, $2);
--! script
INSERT INTO k_numeric VALUES (8.80, 'a'), ('8.9', 'b'), (9, 'c') RETURNING k, v;
SELECT v FROM k_numeric WHERE k = 8.8;
SELECT v FROM k_numeric WHERE k = 9.0;
INSERT INTO k_numeric VALUES (1.0, 'd') ON CONFLICT (k) DO UPDATE SET v = excluded.v || k_numeric.k RETURNING k, v;
INSERT INTO k_numeric VALUES ('abc', 'x');
UPDATE k_numeric SET k = k + 1000 WHERE k = 100 RETURNING k;
SELECT v FROM k_numeric WHERE k = 1100.0;
--! end
-- A column rounds what it stores, half away from zero.
--! script
INSERT INTO k_scaled VALUES (50.005, 'up'), (-50.005, 'down'), (50.0149, 'cut'), ('60.1', 'text'), (61, 'whole') RETURNING k, v;
SELECT v FROM k_scaled WHERE k = 50.01 ORDER BY v;
SELECT v FROM k_scaled WHERE k = 50.005;
SELECT v FROM k_scaled WHERE k IN (-50.01, 60.1, 61);
INSERT INTO k_scaled VALUES (999999.995, 'too large');
INSERT INTO k_scaled VALUES ('Infinity', 'too large');
COPY k_scaled FROM STDIN;
70.004	copied
70.015	copied
-0.0049	zero
\.
SELECT k, v FROM k_scaled WHERE v IN ('copied', 'zero') ORDER BY k;
SELECT v FROM k_scaled WHERE k = 70.02;
--! end
