//! What all sessions of one proxy share: the map, the catalogue, the analyser, the pools. Made once by `server`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;
use moka::sync::Cache;

use super::cancel::CancelRegistry;
use super::commands::clients::Clients;
use super::ddl::drift::Drift;
use super::ddl::schema::{CatalogMark, Unread};
use super::protocol::describe::Description;
use super::protocol::foreign_oids::KnownOids;
use super::protocol::greet::Greeting;
use super::sequences::sequence_rights::{Rights, RightsKey};
use super::settings::defaults::Defaults;
use super::transaction::exported_snapshot::ExportedSnapshots;
use crate::auth::BackendCredentials;
use crate::backend::{Pool, Pools, Settings, ShardAddress, StatementId, StatementRegistry};
use crate::catalog::Catalog;
use crate::config::{BackendUser, Config};
use crate::declare::{CommitSupport, Control};
use crate::error::{PgError, SqlState};
use crate::execute::barrier::Barrier;
use crate::execute::commit::{Places, Registry};
use crate::execute::deadlock::Waits;
use crate::execute::numbers::Numbers;
use crate::execute::recovery::Recovery;
use crate::shardmap::{MapSnapshot, Shard, ShardId, ShardMap, ShardState};
use crate::sql::{Analyzer, Context};
use crate::telemetry::Counters;

pub struct Gateway {
    pub config: Arc<Config>,
    pub map: Arc<ShardMap>,
    /// The map database as a place where statements run: SELECTs over the relations of the schema `shardgate`.
    pub(super) map_database: Arc<Shard>,
    /// The home shard's schema; replaced as a whole.
    pub catalog: ArcSwap<Catalog>,
    pub analyzer: Analyzer,
    pub pools: Pools,
    pub registry: StatementRegistry,
    pub cancels: CancelRegistry,
    pub control: Arc<Control>,
    pub clients: Clients,
    pub counters: Counters,
    /// Parameter types and row descriptions as the home shard gave them.
    pub(super) descriptions: Cache<StatementId, Arc<Description>>,
    /// The same as some shard said it first, by the home shard's oids of types.
    pub(super) told: Cache<StatementId, Arc<Description>>,
    /// By user and startup parameters.
    pub(super) greetings: Cache<GreetingKey, Arc<Greeting>>,
    /// What logins are given by the home shard.
    pub(super) defaults: ArcSwap<Defaults>,
    /// What clients have set, by itself.
    settings: Cache<Arc<Settings>, Arc<Settings>>,
    /// What names mean, shared by all sessions with the same settings.
    contexts: Cache<ContextKey, Arc<Context>>,
    pub(super) oids: KnownOids,
    /// Transactions over several shards that are under way here.
    pub(super) commits: Arc<Registry>,
    /// For what they prepare.
    pub(super) places: Places,
    pub recovery: Arc<Recovery>,
    pub(super) barrier: Arc<Barrier>,
    /// Held by every session that changes the shards' schema.
    pub(super) schema_changes: Arc<()>,
    pub numbers: Arc<Numbers>,
    /// Transactions over several shards, which may wait for each other.
    pub waits: Arc<Waits>,
    /// By a shard's identity and the user: what commits over several shards need is there.
    pub(super) commit_support: Cache<(String, String), Arc<CommitSupport>>,
    /// By the hash of a text that several shards run: whether keys of a reference table pay there.
    pub(super) keys_pay: Cache<u64, bool>,
    /// What roles may do with sequences of the whole cluster, and when a shard was asked.
    pub(super) rights: Cache<RightsKey, (Rights, Instant)>,
    pub(super) exported_snapshots: Arc<ExportedSnapshots>,
    next_login: AtomicU64,
    next_context: AtomicU64,
    next_temporary_version: AtomicU64,
    /// What the map said when the reading of `catalog` began.
    pub(super) catalog_mark: ArcSwap<CatalogMark>,
    /// Tables that differ between shards, as the last look has found.
    pub(super) drift: ArcSwap<Drift>,
    /// Set while the home shard's schema cannot be read.
    pub(super) schema_unread: parking_lot::Mutex<Option<Unread>>,
    /// Locked by sessions whose change of the schema ends, all at once, until the catalogue is known to show it.
    pub(super) own_ends: tokio::sync::RwLock<()>,
}

/// Never the id of a real shard: those begin at 1.
pub(super) const MAP_DATABASE: ShardId = ShardId(-1);

/// User and startup parameters.
pub(super) type GreetingKey = (String, Vec<(String, String)>);

/// What names in a statement mean depends on these.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ContextKey {
    pub catalog_version: u64,
    pub tables_version: i64,
    pub incarnation: i64,
    pub search_path: Vec<String>,
    pub temporary_tables: Vec<String>,
    pub user: String,
}

impl Gateway {
    /// `cluster`: what names the cluster in its prepared transactions.
    pub fn new(
        config: Arc<Config>,
        map: Arc<ShardMap>,
        pools: Pools,
        control: Arc<Control>,
        counters: Counters,
        cluster: String,
    ) -> Self {
        let commits = Arc::new(Registry::new(cluster, map.lease().proxy_id().0));
        let map_database = Shard {
            id: MAP_DATABASE,
            name: "map".to_owned(),
            url: config.map.url.reveal().to_owned(),
            region: None,
            capacity: 0.0,
            state: ShardState::Online,
            is_home: false,
            owes: false,
            identity: None,
            primary: map.store().primary(),
        };
        Self {
            map_database: Arc::new(map_database),
            registry: StatementRegistry::new(TEXTS_BYTES_MAX),
            analyzer: Analyzer::counting(counters.reading_disagreements()),
            cancels: CancelRegistry::default(),
            clients: Clients::default(),
            counters,
            descriptions: Cache::new(STATEMENTS_MAX),
            told: Cache::new(STATEMENTS_MAX),
            greetings: Cache::builder().max_capacity(GREETINGS_MAX).time_to_live(GREETING_LIFETIME).build(),
            defaults: ArcSwap::default(),
            settings: Cache::new(SETTINGS_MAX),
            contexts: Cache::new(CONTEXTS_MAX),
            oids: KnownOids::default(),
            recovery: Arc::new(Recovery::new(Arc::clone(&map), Arc::clone(&commits))),
            barrier: Arc::new(Barrier::new(Arc::clone(&commits))),
            waits: Arc::default(),
            schema_changes: Arc::default(),
            numbers: Arc::new(Numbers::new(Arc::clone(&map), config.cross_shard.sequence_block)),
            commits,
            places: Places::default(),
            commit_support: Cache::builder().max_capacity(COMMIT_SUPPORT_MAX).time_to_live(COMMIT_SUPPORT_LIFETIME).build(),
            keys_pay: Cache::builder().max_capacity(KEYS_PAY_MAX).time_to_live(KEYS_PAY_LIFETIME).build(),
            rights: Cache::new(RIGHTS_MAX),
            exported_snapshots: Arc::default(),
            next_login: AtomicU64::new(1),
            next_context: AtomicU64::new(1),
            next_temporary_version: AtomicU64::new(TEMPORARY_VERSIONS),
            catalog_mark: ArcSwap::default(),
            drift: ArcSwap::default(),
            schema_unread: parking_lot::Mutex::default(),
            own_ends: tokio::sync::RwLock::default(),
            config,
            map,
            catalog: ArcSwap::from_pointee(Catalog::default()),
            pools,
            control,
        }
    }

    /// How many prepared statements a session may have, and a shard's connection holds: `cross_shard.prepared_statements_max`.
    pub(super) fn prepared_max(&self) -> usize {
        self.config.cross_shard.prepared_statements_max as usize
    }

    /// Retires the pools of shards that are gone, or have another address or state.
    pub fn keep_pools_of(&self, snapshot: &MapSnapshot) {
        self.pools.retire_unless(|pool| {
            pool.shard == MAP_DATABASE || snapshot.shard(pool.shard).is_some_and(|shard| pool.address.is_of(shard))
        });
    }

    /// New sessions of these users are to log in to the shards with what they have now; those that run keep their pools.
    pub fn forget_pools_of<'a>(&self, users: impl Iterator<Item = &'a str>) {
        if self.config.auth.backend_user == BackendUser::Client {
            let users: Vec<&str> = users.collect();
            self.pools.retain(|pool| pool.shard == MAP_DATABASE || !users.contains(&pool.user()));
        }
    }

    /// A version of the schema that one session alone sees.
    pub(super) fn own_version(&self) -> u64 {
        self.next_temporary_version.fetch_add(1, Ordering::Relaxed)
    }

    /// What a session has before its first statement; never used for one.
    pub(super) fn no_context(&self, user: &str) -> Context {
        Context {
            catalog: self.catalog.load_full(),
            map: Arc::new(MapSnapshot::default()),
            search_path: Vec::new(),
            temporary_tables: Vec::new(),
            brought: BTreeMap::new(),
            id: 0,
            user: user.to_owned(),
        }
    }

    pub(super) fn context(&self, key: ContextKey, catalog: &Arc<Catalog>, map: &Arc<MapSnapshot>) -> Arc<Context> {
        self.contexts.get_with_by_ref(&key, || {
            Arc::new(Context {
                catalog: Arc::clone(catalog),
                map: map.as_named_in(catalog).map_or_else(|| Arc::clone(map), Arc::new),
                search_path: key.search_path.clone(),
                temporary_tables: key.temporary_tables.clone(),
                brought: BTreeMap::new(),
                id: self.next_context.fetch_add(1, Ordering::Relaxed),
                user: key.user.clone(),
            })
        })
    }

    /// For a session: grows with every login.
    pub(super) fn next_login(&self) -> u64 {
        self.next_login.fetch_add(1, Ordering::Relaxed)
    }

    /// The pool of a shard for this client's login, by the shard's present address.
    pub(super) fn pool(&self, shard: ShardId, client: &BackendCredentials, login: u64) -> Result<Arc<Pool>, PgError> {
        loop {
            let shard = self.shard(shard)?;
            let (address, own) = ShardAddress::of(&shard).map_err(|error| {
                PgError::internal(format!("the URL of shard \"{}\" cannot be used", shard.name)).with_detail(error.to_string())
            })?;
            let credentials = if self.logs_in_by_url(shard.id) { own } else { client.clone() };
            let pool = self.pools.pool(shard.id, address, credentials, login);
            // The map may have changed since it was read above: no older address replaces a newer one for long.
            if self.shard(shard.id).is_ok_and(|now| pool.address.is_of(&now)) {
                return Ok(pool);
            }
        }
    }

    /// As the user of the shard's URL, whoever the client is.
    pub(super) fn logs_in_by_url(&self, shard: ShardId) -> bool {
        shard == MAP_DATABASE || self.config.auth.backend_user == BackendUser::Shard
    }

    /// The one that all sessions and connections with these settings hold, so that comparing them takes no look inside.
    pub(super) fn shared(&self, settings: Arc<Settings>) -> Arc<Settings> {
        self.settings.entry_by_ref(&settings).or_insert_with(|| Arc::clone(&settings)).into_value()
    }

    pub(super) fn shard(&self, id: ShardId) -> Result<Arc<Shard>, PgError> {
        if id == MAP_DATABASE {
            return Ok(Arc::clone(&self.map_database));
        }
        self.map.snapshot().shard(id).cloned().ok_or_else(|| {
            PgError::new(SqlState::SERIALIZATION_FAILURE, "the shard of this key is no longer part of the cluster")
                .with_hint("Retry the transaction.")
        })
    }
}

/// Of texts that have a name on connections.
const TEXTS_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Texts whose descriptions are kept. A few hundred bytes each.
const STATEMENTS_MAX: u64 = 20_000;
/// Combinations of schema version, search path and user. Each holds a copy of the map's list of tables.
const CONTEXTS_MAX: u64 = 1_000;
/// Combinations of user and startup parameters.
const GREETINGS_MAX: u64 = 10_000;
/// Combinations of settings. One that is forgotten is compared by its values.
const SETTINGS_MAX: u64 = 10_000;
/// Shards and users of them.
const COMMIT_SUPPORT_MAX: u64 = 100_000;
/// A role may be taken away: then PREPARE fails, which undoes the transaction; this is for the better error.
const COMMIT_SUPPORT_LIFETIME: std::time::Duration = std::time::Duration::from_secs(60);
const KEYS_PAY_MAX: u64 = 10_000;
const RIGHTS_MAX: u64 = 10_000;
/// Tables grow.
const KEYS_PAY_LIFETIME: std::time::Duration = std::time::Duration::from_secs(60);
/// Defaults of roles and databases may change: learn them anew after this.
const GREETING_LIFETIME: std::time::Duration = std::time::Duration::from_secs(60);

/// Versions of the shared catalogue count from 1, those of single sessions from the middle.
const TEMPORARY_VERSIONS: u64 = 1 << 63;
