//! Where a statement goes: from its analysis and its values to one shard, several, or a refusal.
//!
//! The wait for the shard map is `routing`'s; the rules for transactions over several shards are `plan`'s. Here they are put
//! together for the session, with what it knows: its hints, its participants, its open transaction.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::Guard;

use super::copy::copy_out::has_ascii_inside;
use super::cursor::{self, HELD_CURSOR, Life, OnShard};
use super::transaction::common_snapshot::is_by_key;
use super::transaction::join::ADVISORY_LOCK;
use super::writes::write::{Writing, WritingKind};
use super::{Failure, Session};
use crate::catalog::Catalog;
use crate::error::{PgError, SqlState};
use crate::plan::{self, Gathering, Plan, TransactionScope};
use crate::routing::{Inputs, Reach};
use crate::session::commands::{map_database, permitted, relations, temporary};
use crate::session::cursor::whereabouts;
use crate::session::ddl::{drift, every_shard, held, own_catalog, schema};
use crate::session::gateway::{ContextKey, MAP_DATABASE};
use crate::session::sequences::numbers;
use crate::session::writes::staged;
use crate::shard_key::KeyType;
use crate::shardmap::{MapInUse, MapSnapshot, Shard, ShardId, ShardState, Strategy};
use crate::sql::analysis::{Analysis, Command, Effect, Isolation, Part, Scope, SessionCall};
use crate::sql::copies_locked::{CopiesLock, lock_before_write};
use crate::sql::rewrite::clock;
use crate::sql::rewrite::clock_literals::clock_literals;
use crate::sql::{Read, gather, is_access_share};
use crate::telemetry::RouteKind;

/// Where to send it.
#[derive(Debug)]
pub(super) enum Route {
    Shard(Reach),
    /// Several shards, each a fragment, the answers merged.
    Scatter(Reach),
    /// Several shards, each of which writes.
    Write(Arc<Writing>),
    /// Rows of several shards, over which PostgreSQL runs it.
    Gather(Arc<Gathering>),
}

impl Route {
    /// The only shard of the statement, where it is one that is routed to one.
    pub(super) fn shard(&self) -> Option<ShardId> {
        match self {
            Route::Shard(reach) => reach.single(),
            Route::Scatter(_) | Route::Write(_) | Route::Gather(_) => None,
        }
    }
}

impl Session {
    /// Reads what names mean anew when the schema, the map or the search path has changed.
    pub(super) async fn refresh_context(&mut self) -> Result<(), Failure> {
        if self.has_unread_settings() {
            Box::pin(self.read_back_settings()).await?;
        }
        self.portals_are_settled();
        temporary::refresh_temporary_tables(self).await?;
        let mut map = self.gateway.map.in_use();
        while map.home().is_some() && !self.gateway.serves_catalog(&map) {
            drop(map);
            Box::pin(schema::wait_for_catalog(self)).await?;
            map = self.gateway.map.in_use();
        }
        self.settle_on(map);
        Ok(())
    }

    /// By the schema that is known, if any, whatever has become of it: what the text means does not hang on it.
    pub(super) fn keep_known_context(&mut self) {
        self.settle_on(self.gateway.map.in_use());
    }

    fn settle_on(&mut self, map: Arc<MapInUse>) {
        self.keep_own_defaults();
        let catalog = match own_catalog::own_catalog(self) {
            Some(own) => Guard::from_inner(Arc::clone(own)),
            None => self.gateway.catalog.load(),
        };
        let has_other_users = self.learn_shard_users(&map);
        let is_current = !has_other_users
            && self.context_is_of(&catalog, &map)
            && self.context.temporary_tables == self.temporary_tables.names
            && self.reading.search_path_text == self.effective("search_path").unwrap_or(&self.login.greeting.search_path)
            && self.context.user == self.current_user();
        if is_current {
            self.transaction.pinned_map.pin(|| map);
            self.settle_context();
            return;
        }
        self.reading.settled = None;
        self.pools.clear();
        temporary::note_schema_around_temporary_tables(self);
        let search_path_text = self.effective("search_path").unwrap_or(&self.login.greeting.search_path).to_owned();
        let user = self.current_user().to_owned();
        let (search_path, has_user) = parse_search_path(&search_path_text, &user);
        self.reading.schema_of_one_user = has_user.then(|| self.find_schema_of_one_user(&catalog.schemas)).flatten();
        let key = ContextKey {
            catalog_version: catalog.version,
            tables_version: map.tables_version,
            incarnation: map.epoch.incarnation,
            search_path,
            temporary_tables: self.temporary_tables.names.clone(),
            user,
        };
        self.reading.search_path = key.search_path.join("\0").into();
        self.context = self.gateway.context(key, &catalog, map.snapshot());
        self.transaction.pinned_map.pin(|| map);
        self.reading.search_path_text = search_path_text;
    }

    /// Was the context made for this schema and these tables?
    #[inline]
    pub(super) fn context_is_of(&self, catalog: &Arc<Catalog>, map: &MapSnapshot) -> bool {
        Arc::ptr_eq(catalog, &self.context.catalog)
            && self.context.map.tables_version == map.tables_version
            && self.context.map.epoch.incarnation == map.epoch.incarnation
            && self.context.id != 0
    }

    /// The context is current: as long as the settings stay these it need not be compared with them.
    fn settle_context(&mut self) {
        let is_settled = self.reading.settled.as_ref().is_some_and(|settled| Arc::ptr_eq(settled, &self.settings));
        if !is_settled && !self.transaction.is_open() {
            let is_hinted = self.settings.get("shardgate.shard").is_some_and(|shard| !shard.is_empty());
            let is_plain = !is_hinted && self.reads_utf8() && self.check_user_schema().is_ok();
            self.reading.settled = is_plain.then(|| Arc::clone(&self.settings));
        }
    }

    /// What the client sends is what the shards store, byte by byte.
    pub(super) fn reads_utf8(&self) -> bool {
        self.effective("client_encoding").is_none_or(|encoding| {
            let plain: String = encoding.chars().filter(char::is_ascii_alphanumeric).collect();
            ["utf8", "unicode", "sqlascii"].iter().any(|name| plain.eq_ignore_ascii_case(name))
        })
    }

    /// Keys are compared as the shards store them, in UTF-8.
    fn check_keys_encoding(&self, parts: &[Part], inputs: &Inputs<'_>) -> Result<(), PgError> {
        if self.reads_utf8() || inputs.is_ascii() {
            return Ok(());
        }
        let map = self.gateway.map.snapshot();
        let is_text = |key: &KeyType| matches!(key, KeyType::Text | KeyType::Bpchar);
        let has_text_key = parts.iter().any(|part| match part {
            Part::Sharded { group, .. } => map.group(*group).is_none_or(|group| group.key_types.iter().any(is_text)),
            Part::Home => false,
        });
        if !has_text_key {
            return Ok(());
        }
        Err(PgError::unsupported(
            format!(
                "text beyond ASCII is not supported in the encoding \"{}\" beside a shard key of text",
                self.effective("client_encoding").unwrap_or_default()
            ),
            "The shard of a key is found by its bytes in UTF-8.",
            "SET client_encoding = 'UTF8'.",
        ))
    }

    /// In some encodings a byte that looks like a quote or a backslash may be half a character: the shards would read another
    /// statement than the one that is planned.
    fn check_quotes_are_ascii(&self) -> Result<(), PgError> {
        let encoding = self.effective("client_encoding").unwrap_or_default();
        if !has_ascii_inside(encoding) {
            return Ok(());
        }
        Err(PgError::unsupported(
            format!("text beyond ASCII is not supported in the encoding \"{encoding}\""),
            "Bytes of its characters may look like quotes and backslashes.",
            "SET client_encoding = 'UTF8', or pass such text as parameters.",
        ))
    }

    /// Reads a text in the session's context. A long one is read aside: reading it here would keep every other session of this
    /// core waiting.
    #[inline]
    pub(super) async fn read(&self, text: &str) -> Result<Read, Failure> {
        held::check_not_held(self, text)?;
        if !text.is_ascii() {
            self.check_quotes_are_ascii()?;
        }
        if is_read_here(text) {
            return Ok(self.gateway.analyzer.read(text, &self.context)?);
        }
        let (gateway, context, text) = (Arc::clone(&self.gateway), Arc::clone(&self.context), text.to_owned());
        Ok(aside(move || gateway.analyzer.read(&text, &context)).await??)
    }

    /// The route of a statement with these values. Waits for the map only when it must.
    #[inline]
    pub(super) async fn route(&mut self, statement: &Analysis, inputs: &Inputs<'_>) -> Result<Route, Failure> {
        // Of this statement alone, however its route is found.
        let may_declare = std::mem::take(&mut self.batch.may_declare);
        self.note_effects_of(statement, inputs)?;
        self.transaction.pinned_map.note_planned(statement.is_plain_read());
        if self.transaction.is_open() && statement.session_calls.contains(&SessionCall::SetsLocally) {
            self.check_sets_locally(statement)?;
        }
        if let Scope::Placed { parts, .. } = &statement.scope {
            self.check_keys_encoding(parts, inputs)?;
        }
        let found = self.find_route(statement, inputs, may_declare).await;
        if let Ok(route) = &found {
            self.begin_for_clock(statement, inputs.text(), route);
        }
        let found = match found {
            Ok(route) if self.transaction.is_open() => {
                self.settle_clock(statement, inputs.text(), &route).map(|()| route).map_err(Failure::from)
            }
            found => found,
        };
        let route = match found {
            Ok(route) => route,
            Err(refusal) if numbers::is_hinted(self, statement) => return Err(refusal),
            Err(refusal) => staged::route_staged(self, refusal, statement, inputs)?,
        };
        if route.shard() == Some(MAP_DATABASE) {
            map_database::check_text_for_map(self, inputs.text())?;
        }
        if self.transaction.has_spares {
            self.settle_spares(statement, &route).await?;
        }
        if self.transaction.has_own_numbers() {
            super::sequences::restarts::check_not_numbered_there(statement, &route, &self.transaction)?;
        }
        self.transaction.check_decider(statement, &route, &self.gateway, self.batch.is_open)?;
        self.check_settings_followed(statement, &route)?;
        self.check_effects(statement, &route)?;
        self.check_writable(statement, inputs.text(), &route)?;
        self.wait_for_shards_of(&route).await?;
        if self.has_snapshot() {
            self.transaction.note_snapshot(statement, &route);
        }
        Ok(route)
    }

    #[inline]
    async fn find_route(&mut self, statement: &Analysis, inputs: &Inputs<'_>, may_declare: bool) -> Result<Route, Failure> {
        let is_alone = !self.transaction.is_open() && !self.has_pipeline();
        let is_set = |call: &SessionCall| *call == SessionCall::SetConfig || (*call == SessionCall::SetTimeout && !is_alone);
        if statement.session_calls.iter().any(is_set) {
            return Err(super::settings::set_config::not_alone().into());
        }
        if let Some(reach) = self.hinted(statement)? {
            super::sequences::restarts::check_not_alone(&statement.command)?;
            return Box::pin(self.route_hinted(statement, reach, inputs)).await;
        }
        if cursor::concerns(&statement.command)
            && let Some(shard) = Box::pin(whereabouts::cursor_shard(self, &statement.command)).await?
        {
            if matches!(statement.command, Command::Fetch { .. }) {
                self.check_locks_are_right()?;
            }
            return Ok(Route::Shard(self.unsharded(statement, [shard])?));
        }
        if !matches!(statement.scope, Scope::Map | Scope::Proxy(_) | Scope::Refused(_) | Scope::Session) {
            self.check_user_schema()?;
        }
        let reach = match &statement.scope {
            Scope::Map => return Ok(Route::Shard(self.unsharded(statement, [MAP_DATABASE])?)),
            Scope::Proxy(rows) => {
                Box::pin(relations::publish_rows(self, statement, rows, inputs, may_declare)).await?;
                return Ok(Route::Shard(self.unsharded(statement, [MAP_DATABASE])?));
            }
            Scope::Refused(refusal) => return Err(refusal.clone().into()),
            Scope::Session | Scope::Tableless | Scope::System => {
                self.open_common_snapshot(statement, false).await?;
                if self.opens_snapshots(statement) {
                    Box::pin(self.open_snapshots()).await?;
                }
                let route = self.route_home(statement).await?;
                if let (Command::Show(_), Some(shard)) = (&statement.command, route.shard()) {
                    Box::pin(self.join_for_show(statement, shard)).await?;
                }
                return Ok(route);
            }
            Scope::Replicated => {
                self.open_common_snapshot(statement, false).await?;
                return self.route_anywhere(statement).await;
            }
            Scope::EveryShard => {
                self.open_common_snapshot(statement, true).await?;
                if matches!(statement.command, Command::Lock | Command::Truncate { .. }) {
                    Box::pin(self.claim_tables(statement, inputs.text())).await?;
                }
                Box::pin(self.claim_referring(statement, inputs)).await?;
                return Box::pin(self.route_to_copies(statement, inputs)).await;
            }
            Scope::Placed { parts, .. } => {
                let target = self.resolve(statement, parts, inputs).await?;
                let reach = Reach::of(&target, parts);
                let is_single = reach.single().is_some();
                if is_single && let Some(route) = staged::route_key_update(self, statement, parts, inputs)? {
                    return Ok(route);
                }
                let had_snapshot = self.has_common_snapshot();
                if self.transaction.is_open() && !(is_single && is_by_key(parts)) {
                    self.open_common_snapshot(statement, !is_single).await?;
                }
                // Where rows are in the snapshot says the map that goes with it.
                match self.has_common_snapshot() && !had_snapshot {
                    true => Reach::of(&self.resolve(statement, parts, inputs).await?, parts),
                    false => reach,
                }
            }
        };
        match reach.single() {
            Some(_) if statement.copy_in.is_none() => self.admit(statement, reach).await,
            _ if statement.copy_in.is_some() => Box::pin(self.route_copy(statement, reach)).await,
            _ => {
                if let Scope::Placed { parts, .. } = &statement.scope {
                    drift::check_drift(self, parts)?;
                }
                Box::pin(temporary::learn_temporary_tables(self, statement)).await?;
                let temporary = self.temporary_tables.shapes();
                let recipe = |home| gather::recipe(statement.alone(inputs.text()), &self.context, temporary, home);
                let plan = plan::plan(statement, &reach, &self.transaction_scope(), recipe)?;
                if matches!(plan, Plan::Split | Plan::Write) {
                    self.check_clocks(statement, inputs)?;
                }
                match plan {
                    Plan::SingleShard => self.admit(statement, reach).await,
                    Plan::Scatter => Ok(Route::Scatter(reach)),
                    Plan::Split => Box::pin(self.route_rows(statement, inputs)).await,
                    Plan::Write => Ok(Route::Write(Arc::new(Writing { reach: Some(reach), kind: WritingKind::Parts }))),
                    Plan::Gather(gathering) => Ok(Route::Gather(Arc::new(gathering))),
                }
            }
        }
    }

    #[inline]
    async fn open_common_snapshot(&mut self, statement: &Analysis, needs_several: bool) -> Result<(), Failure> {
        if self.transaction.is_open() && !self.has_common_snapshot() && self.has_snapshot() {
            Box::pin(self.take_common_snapshot(statement, needs_several)).await?;
        }
        Ok(())
    }

    /// The rows of a COPY FROM STDIN to their shards. Where one shard has them all they need not be looked at, unless a row
    /// could be one that belongs to no shard.
    pub(super) async fn route_copy(&mut self, statement: &Analysis, reach: Reach) -> Result<Route, Failure> {
        let (Scope::Placed { parts, pushdown }, Some(copy)) = (&statement.scope, &statement.copy_in) else {
            return Err(PgError::internal("COPY without a place").into());
        };
        drift::check_drift(self, parts)?;
        let group = parts.iter().find_map(|part| match part {
            Part::Sharded { group, .. } => Some(*group),
            Part::Home => None,
        });
        let group = group.ok_or_else(|| PgError::internal("COPY without a shard key"))?;
        let is_lookup = self.context.map.group(group).is_none_or(|group| group.strategy == Strategy::Lookup);
        let has_every_key = !is_lookup && copy.key.iter().all(|key| key.is_not_null);
        match reach.single() {
            // Numbers are drawn here, in the order of the rows.
            Some(_) if (has_every_key && copy.added.is_empty()) || pushdown.is_err() => {
                // What it writes is not looked at.
                if let Some(group) = reach.map().group(group) {
                    self.transaction.claims.add_group(group);
                }
                return self.admit(statement, reach).await;
            }
            Some(shard) => self.admit_on(statement, shard).await?,
            None => {
                pushdown.clone()?;
                plan::admit_several(reach.shards(), &self.transaction_scope())?;
            }
        }
        let kind = WritingKind::Streamed { copy: Arc::clone(copy), group: Some(group) };
        Ok(Route::Write(Arc::new(Writing { reach: Some(reach), kind })))
    }

    /// A write to a reference table: on every shard, the home shard first.
    async fn route_to_copies(&self, statement: &Analysis, inputs: &Inputs<'_>) -> Result<Route, Failure> {
        if matches!(statement.command, Command::Lock) {
            return self.route_lock(statement, is_access_share(statement.alone(inputs.text())));
        }
        if !matches!(statement.command, Command::Query(_) | Command::Truncate { .. }) && statement.copy_in.is_none() {
            return Err(every_shard_refusal().into());
        }
        let shards: Vec<ShardId> = every_shard::shards_home_first(self)?.iter().map(|shard| shard.id).collect();
        // A copy that is being made is made from the home shard, whose table is locked meanwhile.
        let snapshot = self.gateway.map.snapshot();
        let is_online = |shard: &ShardId| snapshot.shard(*shard).is_some_and(|shard| shard.state.is_ready());
        let shards: Vec<ShardId> = shards.into_iter().filter(is_online).collect();
        match *shards {
            // Its sequences are restarted here.
            [_] if matches!(&statement.command, Command::Truncate { restarts } if !restarts.is_empty()) => {}
            [home] => return Ok(Route::Shard(self.unsharded(statement, [home])?)),
            _ => {
                drift::check_drift_of_copies(self)?;
                plan::admit_several(&shards, &self.transaction_scope())?;
                Box::pin(self.await_lease()).await?;
            }
        }
        self.check_clocks(statement, inputs)?;
        let kind = match &statement.copy_in {
            Some(copy) => WritingKind::Streamed { copy: Arc::clone(copy), group: None },
            None => self.lock_before(statement, inputs)?.map_or(WritingKind::Copies, WritingKind::LockedCopies),
        };
        let reach = Some(self.unsharded(statement, shards)?);
        Ok(Route::Write(Arc::new(Writing { reach, kind })))
    }

    /// What a write of copies locks first, so that every shard finds the same rows.
    fn lock_before(&self, statement: &Analysis, inputs: &Inputs<'_>) -> Result<Option<CopiesLock>, PgError> {
        if permitted::is_read_only(self) {
            return Ok(None);
        }
        let parameter_type = |number| inputs.parameter_type(number);
        let lock = lock_before_write(statement.alone(inputs.text()), &self.context, &parameter_type);
        if lock.is_some() && self.has_snapshot() {
            return Err(chosen_by_snapshot());
        }
        Ok(lock)
    }

    /// LOCK TABLE on every shard. Outside of a transaction block PostgreSQL says what is wrong.
    fn route_lock(&self, statement: &Analysis, is_access_share: bool) -> Result<Route, Failure> {
        let shards: Vec<ShardId> = every_shard::shards_home_first(self)?.iter().map(|shard| shard.id).collect();
        match *shards {
            [home] => return Ok(Route::Shard(self.unsharded(statement, [home])?)),
            [home, ..] if !self.transaction.is_open() => return Ok(Route::Shard(self.unsharded(statement, [home])?)),
            _ => {}
        }
        let scope = self.transaction_scope();
        if let (true, Err(refusal)) = (is_access_share && scope.has_snapshot, plan::admit_locks(&shards, &scope)) {
            // Nobody may drop or change the tables, which begins on the home shard. The rows of others are not seen in this
            // transaction.
            let home = self.home()?.id;
            let is_at_home = scope.participants.iter().all(|participant| *participant == home);
            return if is_at_home { Ok(Route::Shard(self.unsharded(statement, [home])?)) } else { Err(refusal.into()) };
        }
        plan::admit_locks(&shards, &scope)?;
        if self.transaction.has_snapshots_open && shards.iter().any(|shard| !self.shards_begun().any(|begun| begun == *shard)) {
            return Err(plan::no_common_snapshot().into());
        }
        Ok(Route::Write(Arc::new(Writing { reach: Some(self.unsharded(statement, shards)?), kind: WritingKind::Locks })))
    }

    /// A write whose strings each shard would read by its own clock does not run as it is. In one that is made of such a write
    /// they are values.
    fn check_clocks(&self, statement: &Analysis, inputs: &Inputs<'_>) -> Result<(), PgError> {
        let alone = statement.alone(inputs.text());
        if self.staging.is_under_way || clock_literals(alone, &self.context)?.is_empty() {
            return Ok(());
        }
        Err(clock::not_replaced())
    }

    /// Counts a statement that is about to run by its route.
    #[inline]
    pub(super) fn counted(&mut self, route: Result<Route, Failure>) -> Result<Route, Failure> {
        match &route {
            Ok(Route::Shard(reach)) => self.count_statement(RouteKind::SingleShard, reach.shards().first().copied()),
            Ok(Route::Scatter(_) | Route::Write(_)) => self.count_statement(RouteKind::Scatter, None),
            Ok(Route::Gather(_)) => self.count_statement(RouteKind::Gather, None),
            Err(_) => {}
        }
        route
    }

    pub(super) fn count_refusal(&self, failure: &Failure) {
        if let Failure::Error(error) = failure
            && error.code == SqlState::FEATURE_NOT_SUPPORTED
        {
            self.gateway.counters.statement(RouteKind::Refused);
        }
    }

    /// A function that sets something for the transaction does so on the shard where it runs.
    fn check_sets_locally(&self, statement: &Analysis) -> Result<(), PgError> {
        if self.staging.is_under_way || self.gateway.map.load().shards.len() < 2 || self.hinted(statement)?.is_some() {
            return Ok(());
        }
        Err(PgError::unsupported(
            "SET LOCAL in a function is not supported in a transaction block",
            "The setting would count on one shard, and not for the transaction's statements on others.",
            "Call set_config(name, value, true) by itself, or, if only the function needs it, declare the function with shardgate.declare_function().",
        ))
    }

    async fn route_home(&mut self, statement: &Analysis) -> Result<Route, Failure> {
        let home = self.home()?;
        // Heard from every shard, it goes where the transaction can commit with it.
        let decider = self.transaction.decider.as_ref().map(|decider| decider.shard);
        if let (Command::Notify, Some(shard)) = (&statement.command, decider) {
            return self.admit(statement, self.unsharded(statement, [shard])?).await;
        }
        // A statement without any table means the same on a shard that takes part already. What a server says of itself, the home shard
        // says.
        let begun = self.shards_begun().next();
        let is_tableless = statement.effect == Effect::Read && matches!(statement.scope, Scope::Tableless);
        let is_anywhere = (is_tableless || matches!(statement.command, Command::Show(_)))
            && !statement.session_calls.contains(&SessionCall::OneServer);
        match begun {
            Some(shard) if is_anywhere && !self.has_common_snapshot() => Ok(Route::Shard(self.unsharded(statement, [shard])?)),
            // A function that is declared may take a lock: those of all sessions meet on the home shard.
            None if is_anywhere
                && !statement.session_calls.contains(&SessionCall::Server)
                && self.maintenance_of(&home).is_some() =>
            {
                let other = self.shards_beside(home.id).first().map_or(home.id, |other| other.id);
                self.admit(statement, self.unsharded(statement, [other])?).await
            }
            Some(_) | None => self.admit(statement, self.unsharded(statement, [home.id])?).await,
        }
    }

    /// Reference tables: a participant when there is one, else a shard by turns, so that reads spread.
    async fn route_anywhere(&mut self, statement: &Analysis) -> Result<Route, Failure> {
        let snapshot = self.gateway.map.snapshot();
        let taking_part =
            || self.transaction.participants().iter().map(|participant| participant.shard).filter(|shard| *shard != MAP_DATABASE);
        // Rows that the transaction has locked it has locked at home.
        let is_at_home = |shard: &ShardId| snapshot.home().is_some_and(|home| home.id == *shard);
        if let Some(shard) = taking_part().find(is_at_home).or_else(|| taking_part().next()) {
            return Ok(Route::Shard(self.unsharded(statement, [shard])?));
        }
        let is_usable = |shard: &&Arc<Shard>| shard.state.is_ready() && shard.state != ShardState::Maintenance;
        let online: Vec<&Arc<Shard>> = snapshot.shards.iter().filter(is_usable).collect();
        let turn = self.login.cancel_key.0.unsigned_abs() as usize % online.len().max(1);
        let (before, from) = online.split_at(turn);
        let mut in_turn = from.iter().chain(before);
        // Where all are down, the first one's error tells so.
        let first = in_turn.clone().next();
        match in_turn.find(|shard| self.pool(shard).is_ok_and(|pool| pool.is_up())).or(first) {
            Some(shard) => self.admit(statement, self.unsharded(statement, [shard.id])?).await,
            None => self.route_home(statement).await,
        }
    }

    /// The shards that take part in the transaction. The map database is none: only the cluster's relations are there.
    pub(super) fn shards_begun(&self) -> impl Iterator<Item = ShardId> {
        let begun = self.transaction.participants().iter().filter(|participant| participant.has_begun);
        begun.map(|participant| participant.shard).filter(|shard| *shard != MAP_DATABASE)
    }

    /// On these shards, where the statement reads no sharded table.
    pub(super) fn unsharded(&self, statement: &Analysis, shards: impl IntoIterator<Item = ShardId>) -> Result<Reach, PgError> {
        Reach::unsharded(&statement.scope, shards, self.gateway.map.load().snapshot())
            .ok_or_else(|| PgError::internal("a statement over sharded tables is routed as one over none"))
    }

    /// On these shards, where nothing is said of the text.
    pub(super) fn several(&self, shards: impl IntoIterator<Item = ShardId>) -> Result<Reach, PgError> {
        Reach::several(shards, self.gateway.map.load().snapshot()).ok_or_else(|| PgError::internal("no shard"))
    }

    /// May this shard join the transaction?
    pub(super) async fn admit(&mut self, statement: &Analysis, reach: Reach) -> Result<Route, Failure> {
        let shard = reach.single().ok_or_else(|| PgError::internal("several shards as one"))?;
        self.admit_on(statement, shard).await?;
        Ok(Route::Shard(reach))
    }

    async fn admit_on(&mut self, statement: &Analysis, shard: ShardId) -> Result<(), Failure> {
        if self.transaction.is_open() || self.has_pipeline() {
            let scope = self.transaction_scope();
            plan::admit(statement.effect, shard, &scope)?;
            if self.transaction.has_snapshots_open && !self.shards_begun().any(|begun| begun == shard) {
                return Err(plan::no_common_snapshot().into());
            }
            if statement.effect == Effect::Write {
                Box::pin(self.admit_writer(shard)).await?;
            }
        }
        Ok(())
    }

    /// Statements have run since the last Sync: outside a transaction block they are one transaction by themselves.
    pub(super) fn has_pipeline(&self) -> bool {
        self.transaction.participants().iter().any(|participant| participant.needs_sync)
    }

    /// REPEATABLE READ and above have one snapshot for the whole transaction, which several shards cannot share.
    pub(super) fn has_snapshot(&self) -> bool {
        matches!(self.isolation(), Isolation::RepeatableRead | Isolation::Serializable)
    }

    /// The level that the transaction has, by BEGIN or by the session's default when it began; or that one would have that begins now.
    pub(super) fn isolation(&self) -> Isolation {
        let default = || {
            let settings = self.transaction.settings_before().unwrap_or(&self.settings);
            settings.get("default_transaction_isolation").and_then(Isolation::of_name).unwrap_or(self.login.greeting.isolation)
        };
        self.transaction.modes.isolation.unwrap_or_else(default)
    }

    /// Its snapshot is waited for until it is a safe one.
    fn is_deferrable(&self) -> bool {
        let modes = &self.transaction.modes;
        let is_on = |name: &str| self.effective(name).is_some_and(|value| matches!(value, "on" | "true" | "yes" | "1"));
        self.isolation() == Isolation::Serializable
            && modes.is_read_only.unwrap_or_else(|| is_on("default_transaction_read_only"))
            && modes.is_deferrable.unwrap_or_else(|| is_on("default_transaction_deferrable"))
    }

    pub(super) fn transaction_scope(&self) -> TransactionScope {
        let home = self.home().map(|home| home.id).ok();
        let mut holders = self.transaction.participants().iter().filter(|participant| participant.is_own());
        TransactionScope {
            holds_any: holders.clone().next().is_some(),
            holds_home: holders.any(|participant| Some(participant.shard) == home),
            is_block: self.transaction.is_open(),
            is_open: self.transaction.is_open() || self.has_pipeline(),
            has_snapshot: self.has_snapshot(),
            has_common_snapshot: self.has_common_snapshot(),
            is_deferrable: self.is_deferrable(),
            isolation: self.gateway.config.cross_shard.isolation,
            fan_out_max: self.gateway.config.cross_shard.fan_out_max as usize,
            participants: self
                .transaction
                .participants()
                .iter()
                .filter(|participant| (participant.has_begun || participant.needs_sync) && !participant.is_spare)
                .map(|participant| participant.shard)
                .filter(|shard| *shard != MAP_DATABASE)
                .collect(),
            writes: self.gateway.config.cross_shard.writes,
            writer: self
                .transaction
                .participants()
                .iter()
                .find(|participant| participant.is_to_commit())
                .map(|participant| participant.shard),
            has_other_code: !own_catalog::has_shared_code(self),
        }
    }

    /// What cannot follow the session to another connection keeps this one.
    pub(super) fn pin_if_needed(&mut self, index: usize, statement: &Analysis) {
        numbers::note_drawn_there(self, index, statement);
        self.pin_for_effects(index);
        let reason = match &statement.command {
            Command::DeclareCursor { is_hold: true, .. } => Some(HELD_CURSOR),
            _ if statement.session_calls.contains(&SessionCall::AdvisoryLock) => Some(ADVISORY_LOCK),
            _ if statement.session_calls.contains(&SessionCall::SequenceValue) => Some("sequence value"),
            _ if statement.session_calls.contains(&SessionCall::Seed) => Some("seed"),
            _ => None,
        };
        if let (Command::DeclareCursor { name, is_hold, .. }, Some(participant)) =
            (&statement.command, self.transaction.participants().get(index))
        {
            let life = if *is_hold { Life::AtCommit } else { Life::Transaction };
            let cursor = OnShard { shard: participant.shard, life, savepoints: self.transaction.savepoints.len() };
            // Where the name is taken this DECLARE fails, and the cursor is the one that it was.
            self.cursors.entry(name.clone()).or_insert(cursor);
        }
        match &statement.command {
            Command::CloseCursor(Some(name)) => {
                self.cursors.remove(name);
                self.portals.remove(name.as_bytes());
            }
            Command::CloseCursor(None) => {
                self.cursors.clear();
                self.portals.keep_unnamed();
            }
            _ => {}
        }
        if let Some(participant) = self.transaction.participants_mut().get_mut(index) {
            participant.has_locked |= matches!(statement.command, Command::Lock);
            participant.has_unlocked |= statement.session_calls.contains(&SessionCall::AdvisoryUnlock);
        }
        if let (Some(reason), Some(participant)) = (reason, self.transaction.participants_mut().get_mut(index)) {
            participant.pin(reason);
        }
    }
}

/// What would have to be atomic over all shards, which is refused.
fn every_shard_refusal() -> PgError {
    PgError::unsupported(
        "this statement would write to every shard",
        "It changes a reference table, which has a copy on every shard.",
        "Change it before it is declared with shardgate.reference_table.",
    )
}

/// Work on a text that takes no longer than one trip to a shard: it is done where the session lives. What takes longer is done
/// [`aside`].
pub(super) fn is_read_here(text: &str) -> bool {
    text.len() <= READ_HERE_BYTES_MAX
}

/// On a thread of its own, so that the other sessions of this core do not wait.
pub(super) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, PgError> {
    Box::pin(tokio::task::spawn_blocking(work)).await.map_err(|_| PgError::internal("the statement could not be read"))
}

/// A text of this size is read in well under a millisecond.
pub(super) const READ_HERE_BYTES_MAX: usize = 32 * 1024;

/// Work of many small pieces, as routing the rows of an INSERT: between them the other sessions of this core have their turn.
pub(super) struct Turns {
    since: Instant,
}

impl Turns {
    pub fn begin() -> Self {
        Self { since: Instant::now() }
    }

    /// After each piece.
    #[inline]
    pub async fn piece_is_done(&mut self) {
        if self.since.elapsed() > TURN_MAX {
            tokio::task::yield_now().await;
            self.since = Instant::now();
        }
    }
}

/// Of work without a wait.
const TURN_MAX: Duration = Duration::from_micros(500);

/// `"$user", public` as a list of schemas, and whether `$user` is among them.
fn parse_search_path(text: &str, user: &str) -> (Vec<String>, bool) {
    let mut schemas = Vec::new();
    let mut has_user = false;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (schema, after) = match rest.strip_prefix('"') {
            Some(quoted) => take_quoted(quoted),
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest.get(..end).unwrap_or_default().trim().to_lowercase(), rest.get(end..).unwrap_or_default())
            }
        };
        let is_user = schema == "$user";
        has_user |= is_user;
        schemas.push(if is_user { user.to_owned() } else { schema });
        rest = after.trim_start().trim_start_matches(',').trim_start();
    }
    (schemas, has_user)
}

/// After the opening quote: the name, and what follows the closing one.
fn take_quoted(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('"') {
        name.push_str(before);
        match after.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => return (name, after),
        }
    }
    (name + rest, "")
}

/// Why a connection is kept: `DISCARD TEMP` asks.
pub(super) const TEMPORARY_TABLE: &str = "temporary table";
/// Each shard would look for the rows in a snapshot of its own, which the lock does not renew.
fn chosen_by_snapshot() -> PgError {
    PgError::unsupported(
        "a write of a reference table that may find several rows is not supported at this isolation level",
        "A row of another commit could be in the snapshot of one shard and not in that of another.",
        "Use READ COMMITTED, or name each row by its primary key.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_path_is_read_as_show_prints_it() {
        let schemas = |schemas: &[&str]| schemas.iter().map(|schema| (*schema).to_owned()).collect::<Vec<_>>();
        assert_eq!(parse_search_path(r#""$user", public"#, "ada"), (schemas(&["ada", "public"]), true));
        let quoted = parse_search_path(r#"app, "My ""Schema", pg_temp"#, "ada");
        assert_eq!(quoted, (schemas(&["app", "My \"Schema", "pg_temp"]), false));
        assert_eq!(parse_search_path("", "ada"), (Vec::new(), false));
    }
}
