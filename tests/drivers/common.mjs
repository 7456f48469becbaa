// What the programs of this directory share; see common.py.
import assert from 'node:assert/strict';

export const URL = process.env.DRIVERS_URL.split('?')[0];
export const TENANTS = Array.from({ length: 30 }, (_, index) => index + 1);
export const SUM = TENANTS.reduce((sum, tenant) => sum + tenant, 0);
export const same = assert.deepEqual;
export const worked = (what) => console.log(what);
// An answer that is compared with plain PostgreSQL's, to which there is no TLS.
export const told = (name, what) => console.log(`= ${name}: ${JSON.stringify(what)}`);
export const tls = process.env.DRIVERS_URL.includes('sslmode=disable') ? false : { rejectUnauthorized: false };
export const table = (name) => [
  `CREATE TABLE ${name} (tenant int NOT NULL, n int NOT NULL, name text, amount numeric(10,2), at timestamptz, doc jsonb,
   tags text[], code uuid, raw bytea, PRIMARY KEY (tenant, n))`,
  `SELECT shardgate.distribute_table('${name}', 'tenant')`,
];
export const fails = async (promise, code) => {
  const error = await promise.then(() => null, (error) => error);
  same(error?.code, code, String(error?.message));
  return error;
};
