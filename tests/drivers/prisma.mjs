// What Prisma sends, by node-postgres, as its engines are not in npm's packages: `migrate deploy` (a table of migrations, a lock of the session,
// each migration as one text of several statements), `db pull` (questions of the catalogue), and its client's queries, prepared and in
// transactions. It runs on one plain PostgreSQL too, where the functions that distribute tables do nothing: what it prints must be the same.
import pg from 'pg';
import { randomUUID } from 'node:crypto';
import { URL, TENANTS, SUM, same, worked, told, tls, fails } from './common.mjs';

const client = new pg.Client({ connectionString: URL, ssl: tls });
client.on('error', () => {});
await client.connect();
const all = async (text, values = []) => (await client.query({ text, values, rowMode: 'array' })).rows;

same((await client.query(`SELECT EXISTS(SELECT 1 FROM pg_namespace WHERE nspname = $1), version() LIKE 'PostgreSQL%' AS v,
  current_setting('server_version_num')::integer > 100000 AS n;`, ['public'])).rows, [{ exists: true, v: true, n: true }]);
await client.query('SET search_path = "public"');
await client.query('SELECT pg_advisory_lock(72707369)');
const second = new pg.Client({ connectionString: URL, ssl: tls });
await second.connect();
await second.query(`SET statement_timeout = 300`);
await fails(second.query('SELECT pg_advisory_lock(72707369)'), '57014');
await fails(client.query('SELECT "id", "checksum" FROM "_prisma_migrations" ORDER BY "started_at" ASC'), '42P01');
await client.query(`CREATE TABLE _prisma_migrations (id VARCHAR(36) PRIMARY KEY NOT NULL, checksum VARCHAR(64) NOT NULL, finished_at TIMESTAMPTZ,
  migration_name VARCHAR(255) NOT NULL, logs TEXT, rolled_back_at TIMESTAMPTZ, started_at TIMESTAMPTZ NOT NULL DEFAULT now(), applied_steps_count INTEGER NOT NULL DEFAULT 0);`);
worked('lock and table of migrations');

// The script goes as it is, in one simple query: one transaction, unless it says otherwise.
const apply = async (name, script) => {
  const id = randomUUID();
  await client.query('INSERT INTO "_prisma_migrations" ("id", "checksum", "started_at", "migration_name") VALUES ($1, $2, $3, $4)', [id, 'f00d', new Date(), name]);
  try {
    await client.query(script);
  } catch (error) {
    await client.query('UPDATE "_prisma_migrations" SET "logs" = $1 WHERE "id" = $2', [error.message, id]);
    throw error;
  }
  await client.query('UPDATE "_prisma_migrations" SET "applied_steps_count" = "applied_steps_count" + $1 WHERE "id" = $2', [1, id]);
  await client.query('UPDATE "_prisma_migrations" SET "finished_at" = $1 WHERE "id" = $2', [new Date(), id]);
};
await apply('1_init', `-- CreateSchema
CREATE SCHEMA IF NOT EXISTS "public";

-- CreateEnum
CREATE TYPE "PrismaRole" AS ENUM ('USER', 'ADMIN');

-- CreateTable
CREATE TABLE "PrismaUser" (
    "id" SERIAL NOT NULL,
    "email" TEXT NOT NULL,
    "role" "PrismaRole" NOT NULL DEFAULT 'USER',
    "createdAt" TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "PrismaUser_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "PrismaPost" (
    "userId" INTEGER NOT NULL,
    "n" INTEGER NOT NULL,
    "title" VARCHAR(255) NOT NULL,
    "views" BIGINT NOT NULL DEFAULT 0,
    "tags" TEXT[],

    CONSTRAINT "PrismaPost_pkey" PRIMARY KEY ("userId","n")
);

-- CreateIndex
CREATE INDEX "PrismaPost_userId_title_idx" ON "PrismaPost"("userId", "title" DESC);

-- AddForeignKey
ALTER TABLE "PrismaPost" ADD CONSTRAINT "PrismaPost_userId_fkey" FOREIGN KEY ("userId") REFERENCES "PrismaUser"("id") ON DELETE RESTRICT ON UPDATE CASCADE;
`);
await client.query(`SELECT shardgate.distribute_tables('{"\\"PrismaUser\\"": "id", "\\"PrismaPost\\"": "\\"userId\\""}')`);
await client.query('INSERT INTO "PrismaUser" (email) SELECT $1 || g FROM generate_series(1, 30) g', ['u']);
await client.query('INSERT INTO "PrismaPost" SELECT u, n, u || $1 || n FROM generate_series(1, 30) u, generate_series(1, 2) n', ['.']);
await apply('2_change', `-- AlterEnum
-- This migration adds more than one value to an enum.
ALTER TYPE "PrismaRole" RENAME TO "PrismaRole_old";
CREATE TYPE "PrismaRole" AS ENUM ('USER', 'ADMIN', 'GUEST');
ALTER TABLE "PrismaUser" ALTER COLUMN "role" DROP DEFAULT;
ALTER TABLE "PrismaUser" ALTER COLUMN "role" TYPE "PrismaRole" USING ("role"::text::"PrismaRole");
DROP TYPE "PrismaRole_old";
ALTER TABLE "PrismaUser" ALTER COLUMN "role" SET DEFAULT 'GUEST';

-- DropForeignKey
ALTER TABLE "PrismaPost" DROP CONSTRAINT "PrismaPost_userId_fkey";

-- AlterTable
ALTER TABLE "PrismaPost" ADD COLUMN     "published" BOOLEAN NOT NULL DEFAULT false,
ADD COLUMN     "slug" TEXT;

-- by hand
UPDATE "PrismaPost" SET "slug" = lower("title"), "published" = "n" = 1;
ALTER TABLE "PrismaPost" ALTER COLUMN "slug" SET NOT NULL,
ALTER COLUMN "title" SET DATA TYPE TEXT;
ALTER TABLE "PrismaPost" RENAME COLUMN "views" TO "seen";

-- RenameIndex
ALTER INDEX "PrismaPost_userId_title_idx" RENAME TO "PrismaPost_titles";

-- CreateIndex
CREATE UNIQUE INDEX "PrismaPost_userId_slug_key" ON "PrismaPost"("userId", "slug");

-- AddForeignKey
ALTER TABLE "PrismaPost" ADD CONSTRAINT "PrismaPost_userId_fkey" FOREIGN KEY ("userId") REFERENCES "PrismaUser"("id") ON DELETE CASCADE ON UPDATE CASCADE;
`);
await apply('3_begin', `BEGIN;
CREATE TABLE "PrismaTag" (name text PRIMARY KEY);
INSERT INTO "PrismaTag" VALUES ('x'), ('y');
COMMIT;`);
await apply('4_redefine', `/*
  Warnings:
  - the data in that column will be lost.
*/
BEGIN;
ALTER TABLE "PrismaTag" RENAME TO "_PrismaTag_old";
CREATE TABLE "PrismaTag" ("id" TEXT NOT NULL, "name" TEXT NOT NULL, CONSTRAINT "PrismaTag_key" PRIMARY KEY ("id"));
INSERT INTO "PrismaTag" SELECT md5("name"), "name" FROM "_PrismaTag_old";
DROP TABLE "_PrismaTag_old";
COMMIT;`);
await fails(apply('5_fails', `ALTER TABLE "PrismaPost" ADD COLUMN "never" INTEGER;
UPDATE "PrismaPost" SET "never" = 1 / ("userId" - 17);`), '22012');
await fails(apply('6_fails', 'ALTER TABLE "PrismaPost" ADD COLUMN "never" INTEGER NOT NULL;'), '23502');
const told_of = await fails(apply('7_fails', 'SELECT 1;\nSELECT nothing FROM "PrismaPost";'), '42703');
told('position', told_of.position);
await apply('8_concurrently', 'CREATE INDEX CONCURRENTLY "PrismaPost_seen" ON "PrismaPost"("userId", "seen")');
told('migrations', await all('SELECT migration_name, applied_steps_count, logs, finished_at IS NULL, rolled_back_at FROM "_prisma_migrations" ORDER BY started_at'));
told('posts', await all('SELECT published, count(*)::int, min(slug), max(title) FROM "PrismaPost" GROUP BY 1 ORDER BY 1'));
await client.query('SELECT pg_advisory_unlock(72707369)');
await second.query('SELECT pg_advisory_lock(72707369)');
await second.end();
worked('migrations, a text of several statements each');

const own = ['public'];
told('tables', await all(`SELECT c.relname, n.nspname, c.relispartition, c.relhassubclass, c.relrowsecurity, c.reloptions, obj_description(c.oid, 'pg_class')
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = ANY ($1) WHERE c.relkind IN ('r', 'p') AND c.relname LIKE 'Prisma%' ORDER BY 2, 1`, [own]));
told('columns', await all(`SELECT info.table_name, info.column_name, format_type(att.atttypid, att.atttypmod), info.numeric_precision, info.data_type, info.udt_name,
  CASE WHEN pg_get_expr(attdef.adbin, attdef.adrelid) ~ 'nextval|next_id' THEN 'a number' ELSE pg_get_expr(attdef.adbin, attdef.adrelid) END, info.is_nullable, info.is_identity,
  info.character_maximum_length, col_description(att.attrelid, ordinal_position) FROM information_schema.columns info JOIN pg_attribute att ON att.attname = info.column_name
  JOIN (SELECT pg_class.oid, relname, nspname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace AND nspname = ANY ($1) WHERE reltype > 0) AS o
    ON o.oid = att.attrelid AND relname = info.table_name AND nspname = info.table_schema
  LEFT JOIN pg_attrdef attdef ON attdef.adrelid = att.attrelid AND attdef.adnum = att.attnum WHERE table_schema = ANY ($1) AND table_name LIKE 'Prisma%'
  ORDER BY nspname, table_name, ordinal_position`, [own]));
told('indexes', await all(`WITH raw AS (SELECT indrelid, indexrelid, indisunique, indisprimary, unnest(indkey) AS key, generate_subscripts(indkey, 1) AS at, unnest(indclass) AS class,
  unnest(indoption) AS option FROM pg_index WHERE indpred IS NULL AND NOT indisexclusion)
  SELECT i.relname, t.relname, a.attname, raw.indisunique, raw.indisprimary, raw.at, o.opcname, am.amname, raw.option & 1, pc.condeferrable FROM raw
  JOIN pg_class t ON t.oid = indrelid JOIN pg_class i ON i.oid = indexrelid JOIN pg_namespace n ON n.oid = t.relnamespace
  LEFT JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = raw.key JOIN pg_am am ON am.oid = i.relam LEFT JOIN pg_opclass o ON o.oid = raw.class
  LEFT JOIN pg_constraint pc ON raw.indexrelid = pc.conindid AND pc.contype <> 'f' WHERE n.nspname = ANY ($1) AND t.relname LIKE 'Prisma%' ORDER BY 2, 1, 6`, [own]));
told('foreign keys', await all(`SELECT con.conname, con.conrelid::regclass, con.confrelid::regclass, con.confdeltype, con.confupdtype, a.attname, b.attname FROM
  (SELECT unnest(conkey) AS child, unnest(confkey) AS parent, generate_subscripts(conkey, 1) AS at, * FROM pg_constraint WHERE contype = 'f') con
  JOIN pg_attribute a ON a.attrelid = con.conrelid AND a.attnum = con.child JOIN pg_attribute b ON b.attrelid = con.confrelid AND b.attnum = con.parent
  JOIN pg_class c ON c.oid = con.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ANY ($1) AND c.relname LIKE 'Prisma%' ORDER BY 1, at`, [own]));
told('enums', await all(`SELECT t.typname, e.enumlabel FROM pg_type t JOIN pg_enum e ON t.oid = e.enumtypid JOIN pg_namespace n ON n.oid = t.typnamespace
  WHERE n.nspname = ANY ($1) ORDER BY t.typname, e.enumsortorder`, [own]));
told('extensions', await all(`SELECT extname, nspname FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'plpgsql'`));
worked('the catalogue');

// As its client: prepared statements by name, columns with their tables' names, lists as IN ($1, …), relations in queries of their own.
const named = new Map();
const run = async (text, values) => {
  if (!named.has(text)) named.set(text, `s${named.size}`);
  return (await client.query({ name: named.get(text), text, values, rowMode: 'array' })).rows;
};
const U = '"public"."PrismaUser"', P = '"public"."PrismaPost"';
const ids = [];
for (const t of TENANTS) {
  ids.push((await run(`INSERT INTO ${U} ("email","role","createdAt") VALUES ($1,CAST($2::text AS "public"."PrismaRole"),$3) RETURNING ${U}."id"`, [`new${t}`, t % 2 ? 'ADMIN' : 'USER', new Date(0)]))[0][0]);
}
same(new Set(ids).size, 30);
for (const id of ids) {
  same((await run(`SELECT ${U}."email", ${U}."role"::text FROM ${U} WHERE (${U}."id" = $1 AND 1=1) LIMIT $2 OFFSET $3`, [id, 1, 0])).length, 1);
  await run(`INSERT INTO ${P} ("userId","n","title","slug","seen","tags") VALUES ($1,$2,$3,$4,$5,$6), ($7,$8,$9,$10,$11,$12)`, [id, 1, 'a', 'a', id, ['x', 'y"'], id, 2, 'b', 'b', 1, []]);
}
const holes = (count, from = 1) => Array.from({ length: count }, (_, at) => `$${at + from}`).join(',');
const posts = await run(`SELECT ${P}."n", ${P}."userId" FROM ${P} WHERE ${P}."userId" IN (${holes(30)}) OFFSET $31`, [...ids, 0]);
same(posts.length, 60);
told('pages', await run(`SELECT ${P}."title", ${P}."slug" FROM ${P} WHERE (${P}."published" = $1 AND ${P}."title" ILIKE $2) ORDER BY ${P}."title" ASC, ${P}."n" DESC LIMIT $3 OFFSET $4`, [true, '%1%', 5, 3]));
told('aggregate', await run(`SELECT COUNT(*), COALESCE(SUM("n"), 0), AVG("n"), MAX("title") FROM (SELECT ${P}."n", ${P}."title" FROM ${P} WHERE 1=1 OFFSET $1) AS "sub"`, [0]));
told('groups', await run(`SELECT COUNT(*), ${U}."role"::text FROM ${U} WHERE 1=1 GROUP BY ${U}."role" HAVING COUNT(*) > $1 ORDER BY ${U}."role" DESC OFFSET $2`, [2, 0]));
told('some', await run(`SELECT COUNT(*) FROM ${U} WHERE (${U}."id") IN (SELECT "t1"."userId" FROM ${P} AS "t1" WHERE ("t1"."seen" > $1 AND "t1"."userId" IS NOT NULL))`, [1]));
told('none', await run(`SELECT COUNT(*) FROM ${U} LEFT JOIN ${P} AS "j" ON ("j"."userId") = (${U}."id") WHERE "j"."n" IS NULL`, []));
told('joined', await run(`SELECT "t1"."email", "posts"."__prisma_data__" AS "posts" FROM ${U} AS "t1" LEFT JOIN LATERAL (SELECT COALESCE(JSONB_AGG("__prisma_data__"), '[]') AS "__prisma_data__"
  FROM (SELECT "t3"."__prisma_data__" FROM (SELECT JSONB_BUILD_OBJECT('n', "t2"."n", 'title', "t2"."title") AS "__prisma_data__", "t2"."n" FROM ${P} AS "t2"
  WHERE "t1"."id" = "t2"."userId" /* root select */) AS "t3" ORDER BY "t3"."n" ASC) AS "t4") AS "posts" ON TRUE WHERE "t1"."email" LIKE $1 ORDER BY "t1"."email" LIMIT $2`, ['new1%', 3]));
same((await run(`INSERT INTO ${P} ("userId","n","title","slug") VALUES ($1,$2,$3,$4) ON CONFLICT ("userId","n") DO UPDATE SET "title" = $5 WHERE (${P}."userId" = $6 AND 1=1)
  RETURNING ${P}."title"`, [ids[0], 1, 'x', 'x', 'upserted', ids[0]])), [['upserted']]);
worked('queries of its client');

await client.query('BEGIN');
same((await run(`UPDATE ${P} SET "seen" = (${P}."seen" + $1) WHERE (${P}."userId" IN (${holes(30, 2)}) AND 1=1) RETURNING "n"`, [1, ...ids])).length, 60);
await client.query('SAVEPOINT "prisma_1"');
same((await fails(run(`INSERT INTO ${P} ("userId","n","title","slug") VALUES ($1,$2,$3,$4)`, [ids[0], 1, 'x', 'x']), '23505')).constraint, 'PrismaPost_pkey');
await client.query('ROLLBACK TO "prisma_1"');
await client.query('COMMIT');
await client.query('BEGIN');
await client.query('SET TRANSACTION ISOLATION LEVEL READ COMMITTED');
await run(`DELETE FROM ${U} WHERE (${U}."id" IN (${holes(30)}) AND 1=1)`, ids);
told('deleted with their user', await all(`SELECT count(*)::int FROM ${P}`));
await client.query('ROLLBACK');
told('kept', await all(`SELECT count(*)::int, sum(n)::int, sum(seen)::int - $1 FROM ${P} WHERE "userId" > 30`, [ids.reduce((a, b) => a + b)]));
same(SUM, 465);
await client.end();
worked('transactions');
