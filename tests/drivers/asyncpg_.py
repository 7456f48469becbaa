"""asyncpg: everything binary, prepared statements, executemany, COPY of records, cursors, time-outs that cancel, pools."""

import asyncio
import datetime
import decimal
import ssl
import uuid

import asyncpg

from common import TENANTS, URL, same, table, worked


async def main():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    url = URL.split("?")[0]
    connection = await asyncpg.connect(url, ssl=context)
    for statement in table("by_asyncpg"):
        await connection.execute(statement)
    worked("connect")

    moment = datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.timezone.utc)
    code = uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")
    row = (7, 1, "naïve", decimal.Decimal("12.50"), moment, '{"a": [1, null]}', ["x", 'y"'], code, b"\x00\xff")
    await connection.execute("INSERT INTO by_asyncpg VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)", *row)
    same(tuple(await connection.fetchrow("SELECT * FROM by_asyncpg WHERE tenant = $1", 7)), row)
    same([tuple(found) for found in await connection.fetch("SELECT * FROM by_asyncpg ORDER BY tenant")], [row])
    worked("types in binary")

    await connection.executemany("INSERT INTO by_asyncpg (tenant, n, amount) VALUES ($1, 10, $2)",
                                 [(t, decimal.Decimal(t)) for t in TENANTS])
    same(await connection.fetchval("SELECT sum(amount) FROM by_asyncpg WHERE n = 10"), sum(TENANTS))
    worked("batches")

    statement = await connection.prepare("SELECT amount FROM by_asyncpg WHERE tenant = $1 AND n = 10")
    same([await statement.fetchval(t) for t in TENANTS], list(TENANTS))
    over_shards = await connection.prepare("SELECT count(*) FROM by_asyncpg WHERE tenant = ANY($1) AND n = 10")
    same([await over_shards.fetchval(list(range(1, t))) for t in (1, 2, 20)], [0, 1, 19])
    worked("prepared statements")

    rows = [(t, 20, f"copied {t}") for t in TENANTS]
    same(await connection.copy_records_to_table("by_asyncpg", records=rows, columns=["tenant", "n", "name"]), f"COPY {len(rows)}")
    lines = bytearray()

    async def keep(data):
        lines.extend(data)

    await connection.copy_from_query("SELECT tenant FROM by_asyncpg WHERE n = 20 ORDER BY 1", output=keep)
    same([int(line) for line in lines.split()], list(TENANTS))
    worked("COPY")

    async with connection.transaction():
        found = [record["tenant"] async for record in
                 connection.cursor("SELECT tenant FROM by_asyncpg WHERE n = 10 ORDER BY tenant", prefetch=7)]
        same(found, list(TENANTS))
    worked("cursors")

    async with connection.transaction():
        await connection.execute("UPDATE by_asyncpg SET amount = amount + 1 WHERE n = 10")
        try:
            async with connection.transaction():
                await connection.execute("INSERT INTO by_asyncpg (tenant, n) VALUES (7, 1)")
            raise AssertionError("the same key twice")
        except asyncpg.UniqueViolationError as error:
            same(error.constraint_name, "by_asyncpg_pkey")
    same(await connection.fetchval("SELECT sum(amount) FROM by_asyncpg WHERE n = 10"), sum(TENANTS) + len(TENANTS))
    worked("transactions")

    try:
        await connection.fetchval("SELECT pg_sleep(30) FROM by_asyncpg WHERE tenant = 7", timeout=0.3)
        raise AssertionError("it was not cancelled")
    except asyncio.TimeoutError:
        same(await connection.fetchval("SELECT 1"), 1)
    worked("cancel")

    pool = await asyncpg.create_pool(url, ssl=context, min_size=2, max_size=4)
    found = await asyncio.gather(*(pool.fetchval("SELECT amount FROM by_asyncpg WHERE tenant = $1 AND n = 10", t) for t in TENANTS))
    same(found, [t + 1 for t in TENANTS])
    try:
        await pool.fetchval("SELECT pg_terminate_backend(pg_backend_pid())")
        raise AssertionError("it was not ended")
    except (asyncpg.AdminShutdownError, asyncpg.ConnectionDoesNotExistError):
        pass
    same(await pool.fetchval("SELECT count(DISTINCT tenant) FROM by_asyncpg"), len(TENANTS))
    await pool.close()
    worked("reconnect")


asyncio.run(main())
