"""psycopg 3: text and binary, prepared statements, pipelines, COPY, cursors by name, cancel, transactions over shards."""

import datetime
import decimal
import threading
import uuid

import psycopg
from psycopg import errors
from psycopg.types.json import Jsonb

from common import TENANTS, URL, same, table, worked

connection = psycopg.connect(URL, autocommit=True)
same(connection.pgconn.ssl_in_use, True)
for statement in table("by_psycopg3"):
    connection.execute(statement)
worked("connect")

moment = datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.timezone.utc)
code = uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")
row = ("naïve", decimal.Decimal("12.50"), moment, {"a": [1, None]}, ["x", 'y"'], code, b"\x00\xff")
given = row[:3] + (Jsonb(row[3]),) + row[4:]
for n, binary in ((1, False), (2, True)):
    cursor = connection.cursor(binary=binary)
    cursor.execute("INSERT INTO by_psycopg3 VALUES (%b, %b, %s, %s, %s, %s, %s, %s, %b)" if binary else
                   "INSERT INTO by_psycopg3 VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)", (7, n) + given)
    cursor.execute("SELECT name, amount, at, doc, tags, code, raw FROM by_psycopg3 WHERE tenant = %s AND n = %s", (7, n))
    same(cursor.fetchone(), row)
    cursor.execute("SELECT name, amount, at, doc, tags, code, raw FROM by_psycopg3 ORDER BY tenant, n")
    same(cursor.fetchall(), [row] * n)
worked("types in text and binary")

cursor = connection.cursor()
cursor.executemany("INSERT INTO by_psycopg3 (tenant, n, amount) VALUES (%s, %s, %s)", [(t, 10, t) for t in TENANTS])
for t in TENANTS:
    same(connection.execute("SELECT amount FROM by_psycopg3 WHERE tenant = %s AND n = 10", (t,), prepare=True).fetchone(), (t,))
worked("prepared statements")

with connection.pipeline():
    answers = [connection.execute("SELECT sum(amount), %s::int FROM by_psycopg3 WHERE n = 10", (t,)) for t in TENANTS]
    same([answer.fetchone() for answer in answers], [(sum(TENANTS), t) for t in TENANTS])
worked("batches")

with connection.cursor().copy("COPY by_psycopg3 (tenant, n, name) FROM STDIN") as copy:
    for t in TENANTS:
        copy.write_row((t, 20, f"copied {t}"))
with connection.cursor().copy("COPY (SELECT tenant FROM by_psycopg3 WHERE n = 20 ORDER BY 1) TO STDOUT") as copy:
    same([int(line[0]) for line in copy.rows()], list(TENANTS))
worked("COPY")

with connection.transaction():
    with connection.cursor(name="by_name", scrollable=True) as cursor:
        cursor.execute("SELECT tenant FROM by_psycopg3 WHERE n = 10 ORDER BY tenant")
        same(cursor.fetchmany(3), [(1,), (2,), (3,)])
        cursor.scroll(-1)
        same(cursor.fetchone(), (3,))
        same(len(cursor.fetchall()), len(TENANTS) - 3)
worked("cursors")

with connection.transaction():
    connection.execute("UPDATE by_psycopg3 SET amount = amount + 1 WHERE n = 10")
    try:
        with connection.transaction():
            connection.execute("INSERT INTO by_psycopg3 (tenant, n) VALUES (7, 1)")
    except errors.UniqueViolation as error:
        same(error.diag.constraint_name, "by_psycopg3_pkey")
same(connection.execute("SELECT sum(amount) FROM by_psycopg3 WHERE n = 10").fetchone(), (sum(TENANTS) + len(TENANTS),))
try:
    with connection.transaction():
        connection.execute("DELETE FROM by_psycopg3")
        raise psycopg.Rollback
except psycopg.Rollback:
    pass
same(connection.execute("SELECT count(*) FROM by_psycopg3").fetchone(), (2 + 2 * len(TENANTS),))
worked("transactions")

for statement, wanted in (("SELECT nothing FROM by_psycopg3", errors.UndefinedColumn), ("SELECT 1/0", errors.DivisionByZero)):
    try:
        connection.execute(statement)
        raise AssertionError(statement)
    except wanted:
        pass
worked("errors")

timer = threading.Timer(0.3, connection.cancel_safe)
timer.start()
try:
    connection.execute("SELECT count(*), pg_sleep(30) FROM by_psycopg3 WHERE tenant = 7 GROUP BY tenant")
    raise AssertionError("it was not cancelled")
except errors.QueryCanceled:
    timer.join()
same(connection.execute("SELECT 1").fetchone(), (1,))
worked("cancel")

try:
    connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    raise AssertionError("it was not ended")
except psycopg.OperationalError as error:
    same(error.sqlstate, "57P01")
same(psycopg.connect(URL).execute("SELECT count(DISTINCT tenant) FROM by_psycopg3").fetchone(), (len(TENANTS),))
worked("reconnect")
