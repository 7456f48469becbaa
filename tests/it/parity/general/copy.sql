-- COPY FROM STDIN into tables of several shards: each row to its shard.
COPY accounts (id, name) FROM STDIN;
500	x
501	y
502	z
503	a\tb\\c\nd
504	\x41\101
505	
\.
COPY accounts FROM STDIN;
600	full	12.50	1.5	t	2024-05-05 10:00:00+00	\N
601	full	\N	\N	\N	\N	note
602	full	-3	NaN	f	2024-05-05 10:00:00+02	\\N
\.
-- The key in another place than the first.
COPY accounts (name, balance, id) FROM STDIN;
one	1	700
two	2	701
th\	ree	3	702
\.
COPY accounts (name, id) FROM STDIN WITH (DELIMITER '|', NULL 'nil');
a|710
nil|711
b\|c|712
\.
COPY accounts (id, name) FROM STDIN (DELIMITER ',', NULL '');
720,a
721,b
\.
-- Nothing to copy.
COPY accounts FROM STDIN;
\.
COPY accounts (id, name) FROM STDIN (FORMAT csv);
\.
-- csv.
COPY accounts (id, name, note) FROM STDIN (FORMAT csv);
730,plain,
731,"with, comma","with ""quotes"""
732,"two
lines",x
"733",quoted key,""
734,a"b,c"d,e
\.
COPY accounts (name, id) FROM STDIN CSV;
"a,b",740
"a
b
c",741
c,742
\.
COPY accounts (id, name, note) FROM STDIN WITH (FORMAT csv, HEADER, DELIMITER ';', QUOTE '''', ESCAPE '\', NULL 'nil');
id;name;note
750;'a;b';nil
751;'it\'s';'nil'
752;'back\\slash';x
\.
COPY accounts (id, name, note) FROM STDIN WITH (FORMAT csv, HEADER match);
id,name,note
760,a,b
761,c,d
\.
COPY accounts (id, name, note) FROM STDIN WITH (FORMAT csv, HEADER match);
id,name,other
770,a,b
\.
COPY accounts (id, name) FROM STDIN WITH (HEADER);
id	name
780	a
781	b
\.
COPY accounts (id, name) FROM STDIN WITH (HEADER false);
782	a
\.
COPY accounts (id, name, note) FROM STDIN WITH (FORMAT csv, FORCE_NOT_NULL (note), FORCE_NULL (name), NULL 'x');
790,a,x
791,b,"x"
\.
COPY accounts (id, name, note) FROM STDIN WITH (FORMAT csv, FORCE_NULL (name));
792,"",x
\.
COPY accounts (id, name) FROM STDIN WITH CSV HEADER DELIMITER AS ';' QUOTE AS '"';
id;name
800;"a;b"
801;c
\.
-- Options are read as PostgreSQL reads them: words in any case, numbers as text.
COPY accounts (id, name) FROM STDIN (FORMAT csv, HEADER 'OFF');
830,a
831,b
\.
COPY accounts (id, name) FROM STDIN (FORMAT csv, HEADER 'False');
832,a
833,b
\.
COPY accounts (id, name) FROM STDIN (FORMAT csv, HEADER 0);
834,a
835,b
\.
COPY accounts (id, name) FROM STDIN (FORMAT csv, HEADER 1);
id,name
836,b
\.
COPY accounts (id, name) FROM STDIN (FORMAT csv, HEADER 'MATCH');
id,name
837,b
\.
COPY accounts (id, name) FROM STDIN (FORMAT csv, HEADER 2);
838,b
\.
COPY accounts (id, name) FROM STDIN (FORMAT csv, HEADER '0');
838,b
\.
COPY accounts (id, name) FROM STDIN (FORMAT csv, HEADER 'of');
838,b
\.
COPY accounts (id, name) FROM STDIN (FREEZE 'OFF');
839	a
840	b
\.
COPY accounts (id, name) FROM STDIN (FREEZE 0);
841	a
\.
COPY accounts (id, name, balance) FROM STDIN (NULL 0);
850	0	1
851	a	0
852	b	2
\.
COPY accounts (id, name, balance) FROM STDIN (NULL -1);
853	a	-1
854	b	2
-1	c	2
\.
COPY accounts (id, name, balance) FROM STDIN (FORMAT csv, NULL -1.50);
855,a,-1.50
856,b,-1.5
\.
COPY accounts (name, id, balance) FROM STDIN (DELIMITER 1);
a18571
b185813
\.
COPY accounts (id, name) FROM STDIN (FORMAT csv, QUOTE 9, DELIMITER 7);
8667 9with 7
and a line
end9
\.
COPY accounts (id, name) FROM STDIN (FORMAT csv, QUOTE 9, ESCAPE 1);
860,9a19b,c9
861,9d
e9
\.
COPY accounts (id, name) FROM STDIN (FORMAT csv, NULL true);
862,a
true,b
\.
COPY accounts (id, name) FROM STDIN (FORMAT csv, NULL (a, b));
863,a
864,a.b
\.
COPY accounts (id, name) FROM STDIN (DELIMITER *, NULL *);
865*a
\.
COPY accounts (id, name) FROM STDIN (DELIMITER *);
865*a
866*b
\.
COPY accounts (id, name) FROM STDIN (DELIMITER 12);
865	a
\.
COPY accounts (id, name) FROM STDIN (NULL);
865	a
\.
COPY accounts (id, name) FROM STDIN (FORMAT 1);
865	a
\.
COPY accounts (id, name) FROM STDIN (ENCODING 6);
865	a
\.
-- Conditions on the rows.
COPY accounts (id, name) FROM STDIN WHERE id % 2 = 0;
810	even
811	odd
812	even
813	odd
\.
COPY accounts (id, name) FROM STDIN WHERE name <> 'no' AND id > 0;
820	no
821	yes
\.
COPY accounts (id, name) FROM STDIN WHERE nothing > 1;
820	no
\.
-- Other kinds of keys.
COPY orders FROM STDIN;
2024-01-15	900	1	2.50
2024-03-15	901	2	3.50
2024-05-15	902	\N	\N
2024-12-31	903	4	0
infinity	904	4	0
2030-01-01	905	4	0
\.
COPY books (title, isbn) FROM STDIN;
Zero	0000000000
Ten	000000000X
Six	9999999996
\.
--! no shard
COPY books (isbn, title) FROM STDIN;
0000000001	mapped
000000000Q	not mapped
\.
COPY places FROM STDIN (FORMAT csv);
eu,7,1,a
us,7,1,b
"",9,1,c
"e u",10,1,d
é,11,1,e
\.
COPY places (k, v, tenant, region) FROM STDIN;
1	v	12	eu
2	v	12	ap
\.
COPY readings (sensor, at, value) FROM STDIN;
1	2024-06-01 00:30:00	1
4	-infinity	2
9	2025-01-01	3
\.
COPY kitchen (id, t, ia, ta, m, c, vc) FROM STDIN;
100	x	{1,2}	{a,"b\\"c"}	happy	c	vc
101	y	{}	{NULL}	sad	\N	\N
102	z	\N	\N	\N	abcde	1234567890
\.
COPY "Mixed Case" FROM STDIN;
100	x	1
101	y	2
\.
COPY sales.invoices FROM STDIN;
100	1	5
101	1	6
102	1	7
\.
COPY sales.accounts FROM STDIN;
100	x
101	y
\.
-- The key is not the client's to leave out.
COPY accounts (name) FROM STDIN;
nobody
\.
COPY accounts (id, name) FROM STDIN;
900	a
\N	b
\.
COPY accounts (id, name) FROM STDIN (FORMAT csv);
900,a
,b
\.
-- Errors name the client's line, whichever shard finds them.
COPY accounts (id, name) FROM STDIN;
900	a
901	b
x	c
903	d
\.
COPY accounts (id, name) FROM STDIN;
900	a
901	b
902	c
903	d
904	\N
905	d
\.
COPY accounts (id, name, balance) FROM STDIN;
900	a	1
901	b	1
902	c	1
903	d	1
904	e	1
905	f	-5000
906	g	1
\.
COPY accounts (id, name, balance) FROM STDIN;
900	a	1
901	b	one
\.
COPY accounts (id, name) FROM STDIN;
900	a
901	b
3	there already
902	c
\.
COPY accounts (id, name) FROM STDIN;
900	a
901	b	more
902	c
\.
COPY accounts (id, name) FROM STDIN;
900	a
901
902	c
\.
COPY accounts (name, id) FROM STDIN;
a	900
b
\.
COPY accounts (id, name) FROM STDIN;
900	a

902	c
\.
COPY accounts (id, name) FROM STDIN (FORMAT csv);
900,"a
b
c"
901,b
3,"there
already"
\.
COPY accounts (id, name) FROM STDIN (FORMAT csv, HEADER);
id,name
900,a
901,b,c
\.
COPY accounts (id, name) FROM STDIN (FORMAT csv);
900,a
901,"never ends
\.
COPY entries (account_id, n) FROM STDIN;
1	900
2	900
9999	900
\.
COPY accounts (id, name) FROM STDIN;
99999999999999999999	too large
\.
COPY kitchen (id, vc) FROM STDIN;
100	far too long for it
\.
-- Options are PostgreSQL's to check.
COPY accounts (id, name) FROM STDIN (FORMAT xml);
1	a
\.
COPY accounts (id, name) FROM STDIN (DELIMITER 'ab');
1	a
\.
COPY accounts (id, name) FROM STDIN (QUOTE '"');
1	a
\.
COPY accounts (id, name) FROM STDIN (FORCE_QUOTE (id), FORMAT csv);
1	a
\.
COPY accounts (id, name) FROM STDIN (DELIMITER ',', DELIMITER ';');
1	a
\.
COPY accounts (id, id) FROM STDIN;
1	a
\.
COPY accounts (id, nothing) FROM STDIN;
1	a
\.
COPY accounts (id, name) FROM STDIN (ENCODING 'nonsense');
1	a
\.
COPY accounts (id, name) FROM STDIN (FORMAT csv, ENCODING 'LATIN1');
910,a
911,b
\.
COPY accounts (id, name) FROM STDIN (ENCODING 'UTF8');
912	é
\.
-- What cannot mean the same on several shards.
--! refused
COPY accounts (id, name) FROM STDIN (FREEZE);
1	a
\.
--! refused
--! simple
COPY accounts (id, name) FROM STDIN (ENCODING 'SJIS');
1	a
\.
--! refused
--! simple
COPY accounts (id, name) FROM STDIN WHERE opened < now();
1	a
\.
--! refused
COPY orders FROM STDIN;
15 Jan 2024	900	1	2.50
\.
-- Reference tables have every row everywhere.
COPY languages FROM STDIN;
it	Italian
es	Spanish
\.
COPY languages FROM STDIN (FORMAT csv, HEADER);
code,name
pt,"Portu
guese"
\.
COPY languages FROM STDIN;
it	Italian
en	there already
\.
COPY languages FROM STDIN;
it	\N
\.
COPY languages (code) FROM STDIN;
it
\.
COPY kinds (kind, weight) FROM STDIN WHERE weight > 3;
a	1
b	4
\.
-- In a transaction.
--! script
BEGIN;
COPY accounts (id, name) FROM STDIN;
900	a
901	b
902	c
\.
SELECT count(*), sum(id) FROM accounts WHERE id >= 900;
UPDATE accounts SET note = 'copied' WHERE id >= 900;
COPY entries (account_id, n) FROM STDIN;
900	1
901	1
902	1
\.
COMMIT;
--! end
--! script
BEGIN;
COPY accounts (id, name) FROM STDIN;
900	a
901	b
\.
ROLLBACK;
SELECT count(*) FROM accounts WHERE id >= 900;
--! end
--! script
BEGIN;
INSERT INTO accounts (id, name) VALUES (900, 'a');
COPY accounts (id, name) FROM STDIN;
901	b
900	again
902	c
\.
SELECT 1;
COMMIT;
SELECT count(*) FROM accounts WHERE id >= 900;
--! end
--! script
BEGIN;
SAVEPOINT a;
COPY accounts (id, name) FROM STDIN;
900	a
901	b
x	c
\.
ROLLBACK TO a;
COPY accounts (id, name) FROM STDIN;
901	b
902	c
\.
COPY languages FROM STDIN;
it	Italian
\.
COMMIT;
SELECT id, name FROM accounts WHERE id >= 900 ORDER BY id;
--! end
--! script
BEGIN READ ONLY;
COPY accounts (id, name) FROM STDIN;
900	a
\.
ROLLBACK;
--! end
--! script
SET client_encoding = 'LATIN1';
COPY accounts (id, name) FROM STDIN;
900	a
901	b
\.
--! end
