// node-postgres: pools, prepared statements by name, cursors, COPY streams, transactions over shards.
import pg from 'pg';
import Cursor from 'pg-cursor';
import { from as copyFrom, to as copyTo } from 'pg-copy-streams';
import { pipeline } from 'node:stream/promises';
import { Readable } from 'node:stream';
import { URL, TENANTS, SUM, same, worked, tls, table, fails } from './common.mjs';

const pool = new pg.Pool({ connectionString: URL, ssl: tls, max: 4 });
pool.on('error', () => {});
const client = await pool.connect();
for (const statement of table('by_pg')) await client.query(statement);
worked('connect');

const row = ['naïve', '12.50', new Date(Date.UTC(2024, 1, 29, 12, 30)), { a: [1, null] }, ['x', 'y"'],
  'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', Buffer.from([0, 255])];
await client.query('INSERT INTO by_pg VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)', [7, 1, ...row]);
const found = await client.query({ text: 'SELECT name, amount, at, doc, tags, code, raw FROM by_pg ORDER BY tenant', rowMode: 'array' });
same(found.rows, [row]);
worked('types in text');

for (const tenant of TENANTS) {
  await client.query({ name: 'put', text: 'INSERT INTO by_pg (tenant, n, amount) VALUES ($1, 10, $2)', values: [tenant, tenant] });
}
const amounts = await Promise.all(TENANTS.map((tenant) =>
  pool.query({ name: 'get', text: 'SELECT amount::int AS amount FROM by_pg WHERE tenant = $1 AND n = 10', values: [tenant] })));
same(amounts.map((answer) => answer.rows[0].amount), TENANTS);
worked('prepared statements');

const many = await client.query('SELECT 1 AS a; SELECT sum(amount)::int AS b FROM by_pg WHERE n = 10; SELECT count(*)::int AS c FROM by_pg');
same(many.map((answer) => answer.rows[0]), [{ a: 1 }, { b: SUM }, { c: 31 }]);
worked('batches');

await pipeline(Readable.from(TENANTS.map((tenant) => `${tenant}\t20\n`)), client.query(copyFrom('COPY by_pg (tenant, n) FROM STDIN')));
let copied = '';
for await (const chunk of client.query(copyTo('COPY (SELECT tenant FROM by_pg WHERE n = 20 ORDER BY 1) TO STDOUT'))) copied += chunk;
same(copied.trim().split('\n').map(Number), TENANTS);
worked('COPY');

const cursor = client.query(new Cursor('SELECT tenant FROM by_pg WHERE n = $1 ORDER BY tenant', [10]));
const read = [];
for (let rows = await cursor.read(7); rows.length > 0; rows = await cursor.read(7)) read.push(...rows.map((row) => row.tenant));
same(read, TENANTS);
await cursor.close();
worked('cursors');

await client.query('BEGIN');
await client.query('UPDATE by_pg SET amount = amount + 1 WHERE n = 10');
await client.query('SAVEPOINT s');
same((await fails(client.query('INSERT INTO by_pg (tenant, n) VALUES (7, 1)'), '23505')).constraint, 'by_pg_pkey');
await client.query('ROLLBACK TO s');
await client.query('COMMIT');
await client.query('BEGIN');
await client.query('DELETE FROM by_pg');
await client.query('ROLLBACK');
same((await client.query('SELECT sum(amount)::int AS s, count(*)::int AS c FROM by_pg WHERE n = 10')).rows, [{ s: SUM + 30, c: 30 }]);
worked('transactions');

await fails(client.query('SELECT nothing FROM by_pg'), '42703');
await fails(client.query('SELECT $1::int / 0', [1]), '22012');
worked('errors');

const { rows: [{ pid }] } = await client.query('SELECT pg_backend_pid() AS pid');
const sleeping = fails(client.query('SELECT pg_sleep(30) FROM by_pg WHERE tenant = 7'), '57014');
for (;;) {
  const running = await pool.query(`SELECT FROM pg_stat_activity WHERE pid = $1 AND state = 'active' AND query LIKE '%pg_sleep%'`, [pid]);
  if (running.rowCount > 0) break;
}
await pool.query('SELECT pg_cancel_backend($1)', [pid]);
await sleeping;
worked('cancel');

client.on('error', () => {});
await fails(client.query('SELECT pg_terminate_backend(pg_backend_pid())'), '57P01');
client.release(true);
same((await pool.query('SELECT count(DISTINCT tenant)::int AS c FROM by_pg')).rows, [{ c: 30 }]);
await pool.end();
worked('reconnect');
