// postgres.js: pipelined statements, cursors, COPY, cancel, transactions over shards.
import postgres from 'postgres';
import { pipeline } from 'node:stream/promises';
import { Readable } from 'node:stream';
import { URL, TENANTS, SUM, same, worked, tls, table, fails } from './common.mjs';

const sql = postgres(URL, { ssl: tls, max: 3, onnotice: () => {} });
for (const statement of table('by_postgres_js')) await sql.unsafe(statement);
worked('connect');

const row = { name: 'naïve', amount: '12.50', at: new Date(Date.UTC(2024, 1, 29, 12, 30)), doc: { a: [1, null] }, tags: ['x', 'y"'],
  code: 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', raw: Buffer.from([0, 255]) };
await sql`INSERT INTO by_postgres_js ${sql({ tenant: 7, n: 1, ...row })}`;
same([...await sql`SELECT name, amount, at, doc, tags, code, raw FROM by_postgres_js ORDER BY tenant`], [row]);
worked('types in text');

await sql`INSERT INTO by_postgres_js ${sql(TENANTS.map((tenant) => ({ tenant, n: 10, amount: tenant })))}`;
const amounts = await Promise.all(TENANTS.map((tenant) => sql`SELECT amount::int FROM by_postgres_js WHERE tenant = ${tenant} AND n = 10`));
same(amounts.map((rows) => rows[0].amount), TENANTS);
same([...await sql`SELECT sum(amount)::int AS s FROM by_postgres_js WHERE n = ${10} AND tenant IN ${sql(TENANTS)}`], [{ s: SUM }]);
worked('prepared statements, pipelined');

await pipeline(Readable.from(TENANTS.map((tenant) => `${tenant}\t20\n`)), await sql`COPY by_postgres_js (tenant, n) FROM STDIN`.writable());
let copied = '';
for await (const chunk of await sql`COPY (SELECT tenant FROM by_postgres_js WHERE n = 20 ORDER BY 1) TO STDOUT`.readable()) copied += chunk;
same(copied.trim().split('\n').map(Number), TENANTS);
worked('COPY');

const read = [];
for await (const rows of sql`SELECT tenant FROM by_postgres_js WHERE n = 10 ORDER BY tenant`.cursor(7)) read.push(...rows.map((row) => row.tenant));
same(read, TENANTS);
worked('cursors');

await sql.begin(async (sql) => {
  await sql`UPDATE by_postgres_js SET amount = amount + 1 WHERE n = 10`;
  await fails(sql.savepoint((sql) => sql`INSERT INTO by_postgres_js (tenant, n) VALUES (7, 1)`), '23505');
});
same([...await sql`SELECT sum(amount)::int AS s FROM by_postgres_js WHERE n = 10`], [{ s: SUM + 30 }]);
await fails(sql`SELECT nothing FROM by_postgres_js`, '42703');
worked('transactions, errors');

const sleeping = sql`SELECT pg_sleep(30) FROM by_postgres_js WHERE tenant = 7`;
const cancelled = fails(sleeping, '57014');
while ((await sql`SELECT FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep%'`).length === 0);
sleeping.cancel();
await cancelled;
worked('cancel');

const idle = await sql.reserve();
const [{ pid }] = await idle`SELECT pg_backend_pid() AS pid`;
await sql`SELECT pg_terminate_backend(${pid})`;
idle.release();
for (let rows = null; rows === null;) {
  // The driver may not have heard yet that this connection has ended.
  rows = await sql`SELECT count(DISTINCT tenant)::int AS c FROM by_postgres_js`.catch((error) => same(error.code, 'CONNECTION_CLOSED') ?? null);
  if (rows !== null) same([...rows], [{ c: 30 }]);
}
await sql.end();
worked('reconnect');
