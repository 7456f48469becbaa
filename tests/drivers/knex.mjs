// Knex over node-postgres: its migrations, with a lock and a transaction each, and its queries.
import knex from 'knex';
import { URL, TENANTS, same, worked, tls } from './common.mjs';

const db = knex({ client: 'pg', connection: { connectionString: URL, ssl: tls }, pool: { min: 0, max: 3 } });
const steps = [
  { name: 'first', up: (db) => db.schema.createTable('knex_tasks', (table) => {
    table.integer('tenant').notNullable();
    table.integer('n').notNullable();
    table.string('title');
    table.primary(['tenant', 'n']);
  }), down: (db) => db.schema.dropTable('knex_tasks') },
  { name: 'second', up: async (db) => {
    await db.schema.alterTable('knex_tasks', (table) => table.string('state').notNullable().defaultTo('new'));
    await db('knex_tasks').where('n', 1).update({ state: 'old' });
    same((await db('knex_tasks').where('state', 'new').count())[0].count, '30');
    await db.schema.alterTable('knex_tasks', (table) => table.index(['tenant', 'state']));
  }, down: (db) => db.schema.alterTable('knex_tasks', (table) => table.dropColumn('state')) },
];
const migrationSource = { getMigrations: async () => steps, getMigrationName: (step) => step.name, getMigration: async (step) => step };
await db.migrate.up({ migrationSource });
await db.raw(`SELECT shardgate.distribute_table('knex_tasks', 'tenant')`);
await db('knex_tasks').insert(TENANTS.flatMap((tenant) => [1, 2].map((n) => ({ tenant, n, title: `${tenant}.${n}` }))));
await db.migrate.latest({ migrationSource });
same((await db.migrate.list({ migrationSource }))[0].map((step) => step.name), ['first', 'second']);
worked('migrations');

same(await db('knex_tasks').where({ tenant: 7 }).orderBy('n').pluck('title'), ['7.1', '7.2']);
same(await db('knex_tasks').whereIn('tenant', [3, 17]).orderBy(['tenant', 'n']).limit(3).pluck('title'), ['3.1', '3.2', '17.1']);
same(await db('knex_tasks').select('state').count('* as c').groupBy('state').orderBy('state'), [{ state: 'new', c: '30' }, { state: 'old', c: '30' }]);
same(await db('knex_tasks').insert({ tenant: 7, n: 1, title: 'x' }).onConflict(['tenant', 'n']).merge(['title']).returning(['n', 'title']),
  [{ n: 1, title: 'x' }]);
worked('queries');

await db.transaction(async (db) => {
  await db('knex_tasks').update({ title: 'gone' });
  await db.transaction((db) => db('knex_tasks').where('n', 2).del());
  throw new Error('back');
}).catch((error) => same(error.message, 'back'));
same((await db('knex_tasks').where('title', 'gone').count())[0].count, '0');
await db.migrate.rollback({ migrationSource });
same(await db.schema.hasColumn('knex_tasks', 'state'), false);
await db.destroy();
worked('transactions');
