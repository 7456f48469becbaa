"""psycopg2: literals in the text, execute_values, COPY, cursors by name, cancel, transactions over shards."""

import decimal
import io
import threading

import psycopg2
import psycopg2.extras
from psycopg2 import errors

from common import TENANTS, URL, same, table, worked

connection = psycopg2.connect(URL)
same(connection.info.ssl_in_use, True)
connection.autocommit = True
cursor = connection.cursor()
for statement in table("by_psycopg2"):
    cursor.execute(statement)
worked("connect")

row = (decimal.Decimal("12.50"), {"a": [1, None]}, ["x", 'y"\\'], b"\x00\xff")
cursor.execute("INSERT INTO by_psycopg2 (tenant, n, amount, doc, tags, raw) VALUES (%s, %s, %s, %s, %s, %s)",
               (7, 1, row[0], psycopg2.extras.Json(row[1]), row[2], row[3]))
cursor.execute("SELECT amount, doc, tags, raw FROM by_psycopg2 ORDER BY tenant")
found = cursor.fetchone()
same(found[:3] + (bytes(found[3]),), row)
worked("types in text")

psycopg2.extras.execute_values(cursor, "INSERT INTO by_psycopg2 (tenant, n, amount) VALUES %s", [(t, 10, t) for t in TENANTS])
cursor.execute("SELECT sum(amount), count(*) FROM by_psycopg2 WHERE n = 10")
same(cursor.fetchone(), (sum(TENANTS), len(TENANTS)))
cursor.execute("SELECT tenant FROM by_psycopg2 WHERE n = 10 AND tenant IN %s ORDER BY 1", ((3, 17, 29),))
same(cursor.fetchall(), [(3,), (17,), (29,)])
worked("batches")

cursor.copy_expert("COPY by_psycopg2 (tenant, n) FROM STDIN", io.StringIO("".join(f"{t}\t20\n" for t in TENANTS)))
out = io.StringIO()
cursor.copy_expert("COPY by_psycopg2 (tenant, n) TO STDOUT", out)
same(len(out.getvalue().splitlines()), 1 + 2 * len(TENANTS))
worked("COPY")

connection.autocommit = False
with connection, connection.cursor(name="by_name") as named:
    named.itersize = 7
    named.execute("SELECT tenant FROM by_psycopg2 WHERE n = 10 ORDER BY tenant")
    same([tenant for (tenant,) in named], list(TENANTS))
worked("cursors")

with connection, connection.cursor() as cursor:
    cursor.execute("UPDATE by_psycopg2 SET amount = amount + 1 WHERE n = 10")
    cursor.execute("SAVEPOINT s")
    try:
        cursor.execute("INSERT INTO by_psycopg2 (tenant, n) VALUES (7, 1)")
        raise AssertionError("the same key twice")
    except errors.UniqueViolation:
        cursor.execute("ROLLBACK TO s")
with connection.cursor() as cursor:
    cursor.execute("DELETE FROM by_psycopg2")
    connection.rollback()
    cursor.execute("SELECT sum(amount), count(*) FROM by_psycopg2")
    same(cursor.fetchone(), (sum(TENANTS) + len(TENANTS) + row[0], 1 + 2 * len(TENANTS)))
connection.commit()
worked("transactions")

timer = threading.Timer(0.3, connection.cancel)
timer.start()
try:
    connection.cursor().execute("SELECT pg_sleep(30) FROM by_psycopg2 WHERE tenant = 7")
    raise AssertionError("it was not cancelled")
except errors.QueryCanceled:
    timer.join()
    connection.rollback()
worked("cancel")

try:
    connection.cursor().execute("SELECT pg_terminate_backend(pg_backend_pid())")
    raise AssertionError("it was not ended")
except (errors.AdminShutdown, psycopg2.OperationalError):
    same(connection.closed != 0, True)
with psycopg2.connect(URL) as connection, connection.cursor() as cursor:
    cursor.execute("SELECT count(DISTINCT tenant) FROM by_psycopg2")
    same(cursor.fetchone(), (len(TENANTS),))
worked("reconnect")
