//! What a plan needs to know of the home shard beside its schema: how indexes are stored, what hangs on constraints, how large tables are.

use std::collections::BTreeMap;

use sqlx::AssertSqlSafe;

use crate::catalog::Oid;
use crate::declare::shard_connection::{ShardConnection, on_primary};
use crate::error::PgError;

/// By table and name.
type Named<T> = BTreeMap<(Oid, String), T>;

#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) storage: Named<Storage>,
    /// Views and functions that cannot be without a constraint.
    pub(super) users: Named<Vec<User>>,
    /// Of views that have any: `security_barrier=true`.
    pub(super) view_options: BTreeMap<Oid, String>,
    /// Of constraints.
    pub(super) comments: Named<String>,
    pub(super) sizes: BTreeMap<Oid, Size>,
}

/// What needs a constraint.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) kind: UserKind,
    pub(super) oid: Oid,
    /// `view v`, `function f(integer)`.
    pub(super) name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UserKind {
    View,
    MaterializedView,
    /// A function, or a rule.
    Other,
}

/// What a definition does not say of a unique index.
#[derive(Clone, Debug, Default)]
pub(super) struct Storage {
    /// `fillfactor=70`; empty: the defaults.
    pub(super) options: String,
    /// Quoted; empty: the default.
    pub(super) tablespace: String,
    pub(super) is_replica_identity: bool,
    pub(super) is_clustered: bool,
    pub(super) comment: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Size {
    /// As of the last ANALYZE; `None`: there was none.
    pub(super) rows: Option<f64>,
    pub(super) bytes: i64,
}

impl Facts {
    pub(super) async fn read(home: &mut ShardConnection) -> Result<Self, PgError> {
        let mut facts = Self::default();
        for (relation, name, options, tablespace, is_replica_identity, is_clustered, comment) in
            rows::<StorageRow>(home, STORAGE).await?
        {
            let storage = Storage { options, tablespace, is_replica_identity, is_clustered, comment };
            facts.storage.insert((oid(relation), name), storage);
        }
        for (view, options) in rows::<(i64, String)>(home, VIEW_OPTIONS).await? {
            facts.view_options.insert(oid(view), options);
        }
        for (relation, constraint, kind, user, name) in rows::<UserRow>(home, USERS).await? {
            let kind = match kind.as_str() {
                "v" => UserKind::View,
                "m" => UserKind::MaterializedView,
                _ => UserKind::Other,
            };
            let user = User { kind, oid: oid(user), name };
            facts.users.entry((oid(relation), constraint)).or_default().push(user);
        }
        for (relation, name, comment) in rows::<(i64, String, String)>(home, COMMENTS).await? {
            facts.comments.insert((oid(relation), name), comment);
        }
        for (relation, rows, bytes) in rows::<(i64, f64, i64)>(home, SIZES).await? {
            facts.sizes.insert(oid(relation), Size { rows: (rows >= 0.0).then_some(rows), bytes });
        }
        Ok(facts)
    }

    /// What cannot be without this constraint.
    pub(super) fn users_of(&self, relation: Oid, constraint: &str) -> &[User] {
        self.users.get(&(relation, constraint.to_owned())).map(Vec::as_slice).unwrap_or_default()
    }
}

type UserRow = (i64, String, String, i64, String);
type StorageRow = (i64, String, String, String, bool, bool, Option<String>);

/// Rows of one query of ours.
pub(super) async fn rows<R>(home: &mut ShardConnection, sql: &str) -> Result<Vec<R>, PgError>
where
    R: Send + Unpin + for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow>,
{
    let asking = sqlx::query_as(AssertSqlSafe(sql.to_owned())).fetch_all(&mut home.connection);
    on_primary(home.pledge.as_ref(), &home.name, asking).await?.map_err(|error| home.error(&error))
}

/// It was an oid when it was asked for.
pub(super) fn oid(number: i64) -> Oid {
    Oid::try_from(number).unwrap_or_default()
}

const STORAGE: &str = "
SELECT i.indrelid::int8, ic.relname::text, coalesce(array_to_string(ic.reloptions, ', '), ''), coalesce(quote_ident(ts.spcname), ''),
       i.indisreplident, i.indisclustered, obj_description(ic.oid, 'pg_class')
FROM pg_index i JOIN pg_class ic ON ic.oid = i.indexrelid JOIN pg_class c ON c.oid = i.indrelid
LEFT JOIN pg_tablespace ts ON ts.oid = ic.reltablespace
WHERE (i.indisunique OR i.indisexclusion) AND c.relkind IN ('r', 'p')";

const USERS: &str = "
SELECT con.conrelid::int8, con.conname::text, CASE WHEN r.rulename = '_RETURN' THEN v.relkind::text ELSE '' END,
       coalesce(v.oid, p.oid)::int8,
       CASE WHEN v.relkind = 'm' THEN format('materialized view %s', v.oid::regclass)
            WHEN v.relkind = 'v' THEN format('view %s', v.oid::regclass)
            WHEN v.oid IS NOT NULL THEN format('a rule of table %s', v.oid::regclass)
            ELSE format('function %s', p.oid::regprocedure) END
FROM pg_constraint con
JOIN pg_depend d ON d.refclassid = 'pg_constraint'::regclass AND d.refobjid = con.oid AND d.classid IN ('pg_rewrite'::regclass, 'pg_proc'::regclass)
LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
LEFT JOIN pg_class v ON v.oid = r.ev_class
LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
WHERE con.contype IN ('p', 'u') GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 5";

const VIEW_OPTIONS: &str =
    "SELECT oid::int8, array_to_string(reloptions, ', ') FROM pg_class WHERE relkind = 'v' AND reloptions IS NOT NULL";

const COMMENTS: &str = "
SELECT con.conrelid::int8, con.conname::text, d.description
FROM pg_constraint con JOIN pg_description d ON d.classoid = 'pg_constraint'::regclass AND d.objoid = con.oid AND d.objsubid = 0
WHERE con.contype IN ('p', 'u', 'x', 'f')";

// Of a partitioned table: those of its partitions together.
const SIZES: &str = "
SELECT c.oid::int8,
       coalesce((SELECT CASE WHEN bool_and(m.reltuples >= 0) THEN sum(m.reltuples) WHEN count(*) > 0 THEN -1 END
                 FROM pg_partition_tree(c.oid) t JOIN pg_class m ON m.oid = t.relid WHERE t.isleaf), c.reltuples)::float8,
       coalesce((SELECT sum(pg_table_size(t.relid)) FROM pg_partition_tree(c.oid) t WHERE t.isleaf), pg_table_size(c.oid))::int8
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'shardgate')";
