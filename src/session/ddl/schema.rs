//! The shards' schema as this proxy knows it: read from the home shard, kept as one immutable [`Catalog`].
//!
//! A schema change through a proxy is announced in the map database before the first shard is touched and finished after the
//! last, so an interrupted change is seen. Each proxy plans a statement only by a catalogue that was read after the last change
//! that its map knows of; who makes a change answers its client when every proxy's map knows of it. A table that was dropped leaves
//! the map; renaming a distributed one is refused. Reading waits for nobody's locks: definitions that others hold are left out, and
//! who needs one of them waits (see `held`). What was changed behind the proxy's back is found by a slow look.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{own_catalog, redefined};
use crate::backend::schema_reader::{OPENS_SOON, OPENS_WITHIN, ReadersTurn};
use crate::catalog::{ByOid, Catalog, SequenceName};
use crate::error::{PgError, SqlState};
use crate::session::ddl::own_catalog::OwnCatalog;
use crate::session::gateway::Gateway;
use crate::session::sequences::altered;
use crate::session::sequences::numbered::Numbered;
use crate::session::{Failure, Session};
use crate::shardmap::{EndedSchemaChange, Epoch, MapSnapshot, ProxyId, SchemaChangeId};
use crate::sql::{Analyzed, Read};

/// A proxy that does not see a change of the map within this is stuck, or its connection to the map is.
pub(in crate::session) const FOLLOWED_WITHIN: Duration = Duration::from_secs(2);

/// What was announced, and was there before.
pub(in crate::session) struct SchemaChange {
    pub id: SchemaChangeId,
    /// As long as somebody holds this, the change is not abandoned.
    _under_way: Arc<()>,
    catalog: Arc<Catalog>,
    /// Sequences of the whole cluster and their generations: those of that catalogue, and those that the transaction has declared.
    sequences: HashMap<SequenceName, i64>,
    /// Of these, what the transaction has declared.
    declared: Vec<Numbered>,
    /// Whether the home shard shows it is not known: it is closed when recovery has ended what is left of it.
    is_left_open: bool,
    /// It has closed sequences of the whole cluster to others.
    pub closes_sequences: bool,
    /// It has given other names to what the map knows, or may have.
    pub renames: bool,
    /// Stands for the schema as the transaction sees it now; no other state of any session has the same.
    pub version: u64,
    /// The last change by anybody that was done when this one was announced.
    pub schema_version: i64,
    /// The schema as the transaction has changed it, since it was asked for.
    pub own: Option<OwnCatalog>,
}

impl SchemaChange {
    pub fn id(&self) -> SchemaChangeId {
        self.id
    }

    /// Dropped from the map when it is not on the home shard after the transaction.
    pub fn has_declared(&mut self, numbered: Numbered, generation: i64) {
        self.sequences.insert(numbered.sequence.clone(), generation);
        self.declared.push(numbered);
    }

    /// By this transaction, which may still go back to before that.
    pub fn is_declared(&self, sequence: &SequenceName) -> bool {
        self.declared.iter().any(|declared| declared.sequence == *sequence)
    }

    /// The commit has failed, and what it has made may still appear.
    pub fn keep_declared(&mut self) {
        for declared in &self.declared {
            self.sequences.remove(&declared.sequence);
        }
    }

    /// The home shard may commit it later.
    pub fn leave_open(&mut self) {
        self.is_left_open = true;
    }
}

/// Which changes a catalogue is known to show: those that the map knew before it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CatalogMark {
    incarnation: i64,
    schema_version: i64,
    declarations_version: i64,
}

impl CatalogMark {
    fn of(map: &MapSnapshot) -> Self {
        let MapSnapshot { epoch, schema_version, declarations_version, .. } = map;
        Self { incarnation: epoch.incarnation, schema_version: *schema_version, declarations_version: *declarations_version }
    }
}

/// The last reading of the home shard's schema has failed.
pub struct Unread {
    /// What the map said when it began.
    mark: CatalogMark,
    at: Instant,
    error: PgError,
}

impl Gateway {
    /// Does the catalogue show all changes that this map knows of? The map may be older than the catalogue, and often is not.
    #[inline]
    pub(in crate::session) fn has_catalog_for(&self, map: &MapSnapshot) -> bool {
        **self.catalog_mark.load() == CatalogMark::of(map)
    }

    /// May statements be planned by the catalogue that is known? While the home shard does not answer it serves on, unless the shards'
    /// schema itself has changed.
    #[inline]
    pub(in crate::session) fn serves_catalog(&self, map: &MapSnapshot) -> bool {
        self.has_catalog_for(map) || self.serves_known_catalog(map)
    }

    /// A failed reading counts for as long as the schema watch needs for the next one.
    fn serves_known_catalog(&self, map: &MapSnapshot) -> bool {
        let is_unread = |unread: &Unread| unread.mark == CatalogMark::of(map) && unread.at.elapsed() < UNREAD_FOR;
        self.is_of_known_schema(map) && self.schema_unread.lock().as_ref().is_some_and(is_unread)
    }

    fn is_of_known_schema(&self, map: &MapSnapshot) -> bool {
        let (known, wanted) = (**self.catalog_mark.load(), CatalogMark::of(map));
        (known.incarnation, known.schema_version) == (wanted.incarnation, wanted.schema_version)
    }

    /// Reads the schema anew, unless somebody has done so since the map changed. Cancel safe.
    pub async fn follow_schema(&self) -> Result<(), PgError> {
        // The map may tell of a change of this proxy's before who has made it knows that it has ended.
        drop(self.own_ends.write().await);
        if self.has_catalog_for(&self.map.load()) {
            return Ok(());
        }
        let reader = self.schema_reader_since(Instant::now()).await?;
        if self.has_catalog_for(&self.map.load()) {
            return Ok(());
        }
        Box::pin(self.read_catalog(reader, OPENS_SOON)).await
    }

    /// Reads the home shard's schema; replaces the catalogue when it differs. One reader at a time. Cancel safe.
    pub async fn refresh_catalog(&self) -> Result<(), PgError> {
        let reader = self.schema_reader_since(Instant::now()).await?;
        Box::pin(self.read_catalog(reader, OPENS_WITHIN)).await
    }

    /// Those who waited while a reading failed share its failure: each would wait for all before it otherwise.
    async fn schema_reader_since(&self, asked_at: Instant) -> Result<ReadersTurn, PgError> {
        let reader = self.control.schema_readers().home().await;
        match &*self.schema_unread.lock() {
            Some(unread) if unread.at >= asked_at => Err(unread.error.clone()),
            Some(_) | None => Ok(reader),
        }
    }

    /// `opens_within`: how long the home shard may take to let the reader in.
    pub(in crate::session) async fn read_catalog(&self, mut reader: ReadersTurn, opens_within: Duration) -> Result<(), PgError> {
        let mark = CatalogMark::of(&self.map.load());
        let Some(home) = self.map.snapshot().shards.iter().find(|shard| shard.is_home).cloned() else { return Ok(()) };
        let mut catalog = match reader.read(&home, opens_within).await {
            Ok(catalog) => catalog,
            Err(error) => {
                *self.schema_unread.lock() = Some(Unread { mark, at: Instant::now(), error: error.clone() });
                return Err(error);
            }
        };
        *self.schema_unread.lock() = None;
        self.counters.schema_reading(reader.known().was_full());
        let has_other_defaults = self.follow_defaults(reader.defaults());
        let known = self.catalog.load_full();
        // Another version, too, where sessions have to look what they go by.
        if !has_other_defaults && catalog.shows_same_as(&known) {
            self.catalog_mark.store(Arc::new(mark));
            return Ok(());
        }
        catalog.version = known.version + 1;
        let catalog = Arc::new(catalog);
        // The home shard may be away when they are needed for the first time, for a statement at another shard.
        if let Some(names) = reader.oid_names().await {
            self.oids.keep_home(catalog.version, names);
        }
        self.catalog.store(Arc::clone(&catalog));
        // After the catalogue: who finds this mark finds that catalogue, or a later one.
        self.catalog_mark.store(Arc::new(mark));
        // A relation for operators: it may be behind.
        if let Err(error) = self.control.publish_home_tables(&catalog).await {
            tracing::debug!(%error, "shardgate.tables could not be brought up to date");
        }
        Ok(())
    }

    /// A change of this proxy's has ended, and the catalogue was read after it: nothing else is new, unless another one has ended.
    fn note_own_end(&self, ended: EndedSchemaChange) {
        self.catalog_mark.rcu(|mark| {
            let schema_version = if mark.schema_version == ended.before { ended.after } else { mark.schema_version };
            Arc::new(CatalogMark { schema_version, ..**mark })
        });
    }

    /// Tables that were dropped on the shards leave the map.
    async fn follow_tables(&self, actor: &str, change: &SchemaChange) -> Result<(), PgError> {
        let before = &change.catalog;
        let after = self.catalog.load_full();
        let map = self.map.snapshot();
        let store = self.map.store();
        let mut has_changed = false;
        for relation in before.relations.values().filter(|relation| map.table(&relation.schema, &relation.name).is_some()) {
            let old = (relation.schema.as_str(), relation.name.as_str());
            let is_there = after.relations.contains_key(&relation.oid) || after.resolve(Some(old.0), old.1, &[]).is_some();
            if !is_there {
                has_changed |= store.drop_table(actor, old.0, old.1).await?;
            }
        }
        for (name, generation) in &change.sequences {
            if !after.relation_names.contains_key(name) {
                has_changed |= store.drop_sequence(actor, &name.0, &name.1, *generation).await?;
            }
        }
        drop(map);
        if has_changed {
            self.map.refresh().await?;
        }
        self.declare_forgotten(actor, change, &after).await
    }

    /// What the transaction has made and the map does not know any more, since it was restored meanwhile: no row could be numbered.
    async fn declare_forgotten(&self, actor: &str, change: &SchemaChange, after: &Catalog) -> Result<(), PgError> {
        let made: Vec<_> =
            change.declared.iter().filter(|declared| after.relation_names.contains_key(&declared.sequence)).collect();
        if made.is_empty() {
            return Ok(());
        }
        self.map.refresh().await?;
        let map = self.map.snapshot();
        for declared in made.into_iter().filter(|declared| !map.sequences.contains_key(&declared.sequence)) {
            tracing::warn!(sequence = declared.sequence.1, "the map has forgotten a new sequence, which is declared again");
            self.map.store().declare_forgotten_sequence(actor, &declared.declaration()).await?;
        }
        Ok(())
    }
}

/// The schema is read anew before a statement. Moves wait for those who use an older map, so none may be held meanwhile.
pub(in crate::session) async fn wait_for_catalog(session: &Session) -> Result<(), Failure> {
    match while_patient(session, session.gateway.follow_schema()).await? {
        Err(error) if !session.gateway.is_of_known_schema(&session.gateway.map.load()) => Err(error.into()),
        Err(error) => {
            tracing::debug!(%error, "the home shard's schema could not be read; the one that is known is used");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// The client may cancel, and its own limits count.
async fn while_patient<T>(session: &Session, reading: impl Future<Output = T>) -> Result<T, Failure> {
    let patience = redefined::patience(session);
    tokio::select! {
        biased;
        read = reading => Ok(read),
        failure = patience.ends(&session.cancel) => Err(failure.into()),
    }
}

/// Says in the map database that the shards' schema is about to change. Once a transaction.
pub(in crate::session) async fn announce_schema_change(session: &mut Session, tag: &str) -> Result<(), Failure> {
    if session.transaction.schema_change.is_none() {
        let (catalog, map) = (session.gateway.catalog.load_full(), session.gateway.map.snapshot());
        let known = map.sequences.iter().filter(|(name, _)| catalog.relation_names.contains_key(*name));
        let sequences = known.map(|(name, sequence)| (name.clone(), sequence.generation)).collect();
        let (under_way, proxy) = (Arc::clone(&session.gateway.schema_changes), session.gateway.map.lease().proxy_id());
        let (planned, schema_version) = (session.context.map.epoch, map.schema_version);
        let id = begin_schema_change(session, tag, proxy, planned).await?;
        session.transaction.schema_change = Some(SchemaChange {
            id,
            _under_way: under_way,
            catalog,
            sequences,
            declared: Vec::new(),
            is_left_open: false,
            closes_sequences: false,
            renames: false,
            version: 0,
            schema_version,
            own: None,
        });
        // So that this session's own change is not taken for somebody else's.
        session.gateway.map.refresh().await.map_err(PgError::from)?;
    }
    note_own_change(session);
    Ok(())
}

/// Moves before their switch give way; those that end by themselves are waited for, for a while. They wait for statements that were planned before
/// their end, of which this is none: what it says of tables and shards is checked when it begins.
async fn begin_schema_change(session: &mut Session, tag: &str, proxy: ProxyId, planned: Epoch) -> Result<SchemaChangeId, Failure> {
    let deadline = Instant::now() + MOVES_PATIENCE;
    let mut waits = false;
    loop {
        let store = session.gateway.map.store();
        let begun = store.begin_schema_change(&session.login.identity.user, tag, proxy, planned).await.map_err(PgError::from);
        match begun {
            Err(error) if error.code == SqlState::OBJECT_IN_USE && Instant::now() < deadline => {
                store
                    .give_way(&format!("{tag} of {}", session.login.identity.user), MOVES_PATIENCE)
                    .await
                    .map_err(PgError::from)?;
                if !waits {
                    session.drain_current().await?;
                    session.unpin_answered();
                    waits = true;
                }
                sleep(MOVES_POLL_INTERVAL).await;
            }
            begun => {
                if waits {
                    session.transaction.pinned_map.pin(|| session.gateway.map.in_use());
                }
                return Ok(begun?);
            }
        }
    }
}

/// The open transaction's schema becomes another one, if it is its own.
pub(in crate::session) fn note_own_change(session: &mut Session) {
    if let Some(change) = &mut session.transaction.schema_change {
        change.version = session.gateway.own_version();
    }
}

/// The catalogue is read anew, here and by the other proxies, before the client hears that the change is done. After a
/// rollback too: nobody has to know which it was. One that the home shard may still commit stays open
/// ([`Gateway::close_abandoned_changes`]).
pub(in crate::session) async fn finish_schema_change(session: &mut Session) -> Result<(), PgError> {
    let Some(change) = session.transaction.schema_change.take().filter(|change| !change.is_left_open) else { return Ok(()) };
    if change.closes_sequences {
        altered::settle_alterations(session, change.id).await?;
    }
    session.gateway.refresh_catalog().await?;
    session.gateway.follow_tables(&session.login.identity.user, &change).await?;
    if change.renames {
        session.gateway.settle_renames(&session.login.identity.user, change.id).await?;
    }
    {
        let _ending = session.gateway.own_ends.read().await;
        let ended = session.gateway.map.store().finish_schema_change(&session.login.identity.user, change.id).await?;
        session.gateway.note_own_end(ended);
    }
    let epoch = session.gateway.map.refresh().await?;
    session.gateway.follow_schema().await?;
    if !session.gateway.map.seen_by_all(epoch, FOLLOWED_WITHIN).await? {
        tracing::warn!(%epoch, "a proxy has not followed a schema change in time");
    }
    Ok(())
}

/// Reads a text that was just received: by what its own transaction has changed. A name that is not known while somebody else
/// changes the schema may be in the home shard's catalogue by now.
pub(in crate::session) async fn read_anew(session: &mut Session, text: &str) -> Result<Read, Failure> {
    let read = session.read(text).await?;
    if own_catalog::lacks_own_catalog(session, &read.analyzed) {
        Box::pin(own_catalog::read_own_catalog(session)).await?;
        Box::pin(redefined::refresh_context_for(session, text)).await?;
        return session.read(text).await;
    }
    if !is_in_doubt(session, &read.analyzed) {
        return Ok(read);
    }
    while_patient(session, session.gateway.refresh_catalog()).await??;
    Box::pin(redefined::refresh_context_for(session, text)).await?;
    session.read(text).await
}

/// It names something that is not known, and the schema is being changed by somebody else.
pub(in crate::session) fn is_in_doubt(session: &Session, analyzed: &Analyzed) -> bool {
    analyzed.statements.iter().any(|statement| statement.has_unknown_names)
        && session.gateway.map.load().open_schema_changes > usize::from(session.transaction.schema_change.is_some())
}

/// The digest is of definitions: a table that was made anew alike has another oid.
pub(super) fn same_oids(one: &Catalog, other: &Catalog) -> bool {
    fn same<V>(one: &ByOid<V>, other: &ByOid<V>) -> bool {
        one.len() == other.len() && one.keys().all(|oid| other.contains_key(oid))
    }
    same(&one.relations, &other.relations) && same(&one.functions, &other.functions) && same(&one.types, &other.types)
}

/// The schema watch tries again after every failure, each time for a few seconds.
const UNREAD_FOR: Duration = Duration::from_secs(15);
/// How long a change of the schema waits for moves to end.
const MOVES_PATIENCE: Duration = Duration::from_secs(20);
const MOVES_POLL_INTERVAL: Duration = Duration::from_millis(50);
