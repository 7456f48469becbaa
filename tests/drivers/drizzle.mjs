// Drizzle over node-postgres: its migrator, and its queries.
import { drizzle } from 'drizzle-orm/node-postgres';
import { migrate } from 'drizzle-orm/node-postgres/migrator';
import { and, asc, count, eq, inArray } from 'drizzle-orm';
import { integer, pgTable, primaryKey, text } from 'drizzle-orm/pg-core';
import pg from 'pg';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { tmpdir } from 'node:os';
import { URL, TENANTS, same, worked, tls } from './common.mjs';

const tasks = pgTable('drizzle_tasks', {
  tenant: integer().notNull(), n: integer().notNull(), title: text(), state: text().notNull(),
}, (table) => [primaryKey({ columns: [table.tenant, table.n] })]);
const folder = mkdtempSync(join(tmpdir(), 'drizzle-'));
mkdirSync(join(folder, 'meta'));
const steps = [
  'CREATE TABLE "drizzle_tasks" ("tenant" integer NOT NULL, "n" integer NOT NULL, "title" text, PRIMARY KEY ("tenant", "n"))',
  `ALTER TABLE "drizzle_tasks" ADD COLUMN "state" text DEFAULT 'new' NOT NULL;--> statement-breakpoint
UPDATE "drizzle_tasks" SET "state" = 'old' WHERE "n" = 1;--> statement-breakpoint
CREATE INDEX "drizzle_tasks_state" ON "drizzle_tasks" USING btree ("tenant", "state")`,
];
const pool = new pg.Pool({ connectionString: URL, ssl: tls, max: 3 });
const db = drizzle(pool);
const upTo = async (last) => {
  const entries = steps.slice(0, last).map((_, idx) => ({ idx, version: '7', when: 1700000000000 + idx, tag: `000${idx}`, breakpoints: true }));
  steps.forEach((step, index) => writeFileSync(join(folder, `000${index}.sql`), step));
  writeFileSync(join(folder, 'meta', '_journal.json'), JSON.stringify({ version: '7', dialect: 'postgresql', entries }));
  await migrate(db, { migrationsFolder: folder });
};
await upTo(1);
await pool.query(`SELECT shardgate.distribute_table('drizzle_tasks', 'tenant')`);
await pool.query('INSERT INTO drizzle_tasks SELECT t, n, t || $1 || n FROM generate_series(1, 30) t, generate_series(1, 2) n', ['.']);
await upTo(2);
worked('migrations');

same(await db.select({ state: tasks.state, c: count() }).from(tasks).groupBy(tasks.state).orderBy(tasks.state),
  [{ state: 'new', c: 30 }, { state: 'old', c: 30 }]);
same(await db.select({ title: tasks.title }).from(tasks).where(and(eq(tasks.tenant, 7), eq(tasks.n, 2))), [{ title: '7.2' }]);
same(await db.select({ tenant: tasks.tenant }).from(tasks).where(inArray(tasks.tenant, [3, 17])).orderBy(asc(tasks.tenant), asc(tasks.n)).limit(3),
  [{ tenant: 3 }, { tenant: 3 }, { tenant: 17 }]);
const added = await db.insert(tasks).values(TENANTS.map((tenant) => ({ tenant, n: 1, title: 'x', state: 'new' })))
  .onConflictDoUpdate({ target: [tasks.tenant, tasks.n], set: { title: 'again' } }).returning({ title: tasks.title });
same(added.length, TENANTS.length);
same(added.every((row) => row.title === 'again'), true);
worked('queries');

await db.transaction(async (tx) => {
  await tx.delete(tasks);
  await tx.transaction(async (inner) => { await inner.insert(tasks).values({ tenant: 7, n: 1, title: 'y', state: 'z' }); });
  tx.rollback();
}).catch((error) => same(error.constructor.name, 'TransactionRollbackError'));
same((await db.select({ c: count() }).from(tasks))[0].c, 60);
await pool.end();
worked('transactions');
