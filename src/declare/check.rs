//! `shardgate check`: looks at the configuration, the map database and every shard, and says what to do.
//!
//! Changes nothing. Each finding is one line with its remedy; with none the cluster is as the proxy needs it. Everything is
//! looked at even when something is found, and the shards at once. What works and could be safer is a warning, which fails nothing.

use std::fmt;
use std::sync::Arc;

use futures::future::join_all;
use serde::Serialize;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::catalog::Catalog;
use crate::config::{AuthMethod, BackendUser, Config, CrossShardWrites, ShardUrl, TlsMode};
use crate::error::{PgError, SqlState};
use crate::net::descriptors;
use crate::shardmap::{MapSnapshot, Shard, ShardState, Store, TableKind};

use super::checks::{Candidate, CandidateKind};
use super::functions::no_shard;
use super::reading;
use super::shard_connection::ShardConnection;
use super::{BODY_READER, Caller, plan_tables};

mod map;
mod shard;
mod unseen;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Error,
    /// It works, and could be safer.
    Warning,
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: Level,
    /// `configuration`, `map`, `shard "x"`, `table "public.t"`.
    pub subject: String,
    /// A sentence without its full stop.
    pub finding: String,
    /// What to do; a sentence.
    pub remedy: String,
}

impl Finding {
    fn new(subject: impl Into<String>, finding: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Error, subject: subject.into(), finding: finding.into(), remedy: remedy.into() }
    }

    fn warning(self) -> Self {
        Self { level: Level::Warning, ..self }
    }

    fn of_error(subject: impl Into<String>, error: &PgError) -> Self {
        let detail = error.detail.as_ref().map(|detail| format!(" ({})", detail.trim_end_matches('.'))).unwrap_or_default();
        Self::new(subject, format!("{}{detail}", error.message), error.hint.clone().unwrap_or_default())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line, whatever the parts are.
        let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let level = if self.level == Level::Warning { "warning: " } else { "" };
        write!(f, "{level}{}: {}. {}", self.subject, line(&self.finding), line(&self.remedy))
    }
}

/// Prints what was found. The exit code: 0 nothing but warnings, 1 findings.
pub async fn run(config: &Config, is_json: bool) -> anyhow::Result<i32> {
    let findings = Box::pin(findings(config)).await;
    if is_json {
        print_json(&findings)?;
    } else if findings.is_empty() {
        println!("no findings");
    } else {
        for finding in &findings {
            println!("{finding}");
        }
    }
    Ok(i32::from(findings.iter().any(|finding| finding.level == Level::Error)))
}

/// Of `shardgate check --plan-tables`.
pub struct PlanAsked {
    /// JSON; empty: the best of those that are proposed.
    pub keys: String,
    pub reference_tables: Vec<String>,
}

/// Prints the script that declares the tables. The exit code: 0 there is one or nothing to do, 1 something is in the way.
pub async fn plan(config: &Config, asked: &PlanAsked, is_json: bool) -> anyhow::Result<i32> {
    let rows = match Box::pin(planned(config, asked)).await {
        Ok(rows) => rows,
        Err(error) if is_json => {
            print_json(&[Finding::of_error("plan", &error)])?;
            return Ok(1);
        }
        Err(error) => anyhow::bail!("{}", Finding::of_error("plan", &error)),
    };
    match is_json {
        true => println!("{}", serde_json::to_string_pretty(&serde_json::json!({ "plan": rows }))?),
        false => print!("{}", plan_tables::text(&rows)),
    }
    Ok(i32::from(rows.iter().any(|row| row.statement.is_none())))
}

async fn planned(config: &Config, asked: &PlanAsked) -> Result<Vec<plan_tables::Row>, PgError> {
    let store = Store::new(config.map.url.reveal())?;
    let loaded = match store.check().await {
        Ok(()) => store.load().await,
        Err(error) => Err(error),
    };
    store.close().await;
    let snapshot = loaded?.snapshot;
    let mut home = ShardConnection::open(snapshot.home().ok_or_else(no_shard)?).await?;
    let caller = Caller {
        user: String::new(),
        is_admin: true,
        search_path: vec!["public".to_owned()],
        catalog: Arc::default(),
        stop: Default::default(),
    };
    let references = &asked.reference_tables;
    let rows = match asked.keys.as_str() {
        "" => plan_tables::plan_best(&mut home, &snapshot, &caller, references).await,
        keys => match serde_json::from_str(keys) {
            Ok(keys) => plan_tables::plan(&mut home, &snapshot, &caller, &keys, references).await,
            Err(error) => Err(PgError::new(SqlState::INVALID_TEXT_REPRESENTATION, "the keys are not valid JSON")
                .with_detail(format!("{error}."))
                .with_hint("For example: --plan-tables '{\"customers\": \"id\", \"invoices\": \"customer_id\"}'.")),
        },
    };
    home.close().await;
    rows
}

/// Settings that cannot be read, as JSON: who reads the findings by a program gets that one too.
pub fn report_bad_settings(error: &anyhow::Error) -> anyhow::Result<i32> {
    let remedy = "Correct the settings; config/shardgate.toml explains each.";
    print_json(&[Finding::new("configuration", format!("{error:#}"), remedy)])?;
    Ok(1)
}

fn print_json(findings: &[Finding]) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(&serde_json::json!({ "findings": findings }))?);
    Ok(())
}

/// Everything that is not as it should be.
pub async fn findings(config: &Config) -> Vec<Finding> {
    let mut found = configuration(config);
    let snapshot = match map(config, &mut found).await {
        Some(snapshot) => snapshot,
        None => return found,
    };
    found.extend(descriptors_finding(descriptors::limit(), descriptors::needed(config, snapshot.shards.len())));
    if snapshot.shards.is_empty() {
        found.push(Finding::new(
            "map",
            "there is no shard yet",
            "Add the first one: SELECT shardgate.add_shard('name', 'postgres://…').",
        ));
        return found;
    }
    let needs = Needs::of(config, &snapshot);
    let looked_at = join_all(snapshot.shards.iter().map(|shard| look_at(shard, config, needs, &snapshot))).await;
    let mut seen = Vec::new();
    for (shard, (findings, facts)) in snapshot.shards.iter().zip(looked_at) {
        found.extend(findings);
        seen.extend(facts.map(|facts| (shard.as_ref(), facts)));
    }
    compare(&seen, &mut found);
    if let Some((_, home)) = seen.iter().find(|(shard, _)| shard.is_home) {
        tables(&home.catalog, &snapshot, &mut found);
    }
    found
}

fn configuration(config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    let subject = "configuration";
    if config.listen.tls.mode != TlsMode::Off {
        for (name, path) in [("listen.tls.cert", &config.listen.tls.cert), ("listen.tls.key", &config.listen.tls.key)] {
            let Some(path) = path else { continue };
            if let Err(error) = std::fs::File::open(path) {
                let remedy = format!("Give a file in {name} that this user may read.");
                found.push(Finding::new(subject, format!("{name} cannot be read: {}", error.kind()), remedy));
            }
        }
    }
    if config.auth.method == AuthMethod::ScramSha256 && config.auth.users.is_empty() {
        found.push(Finding::new(subject, "nobody can log in", "List users in [[auth.users]]."));
    }
    if !config.auth.users.iter().any(|user| user.admin) {
        found.push(Finding::new(subject, "nobody may change the cluster", "Give one of [[auth.users]] admin = true."));
    }
    found
}

/// As seen from where the check runs.
fn descriptors_finding(limit: u64, needed: u64) -> Option<Finding> {
    (needed > limit).then(|| {
        Finding::new(
            "configuration",
            format!("clients and pools may need {needed} open files, and a process that is started here may have {limit}"),
            "Raise the hard limit (LimitNOFILE= of systemd, ulimits of a container), or lower listen.max_clients or \
             pool.size_per_shard.",
        )
    })
}

/// `None`: there is no map to go on with.
async fn map(config: &Config, found: &mut Vec<Finding>) -> Option<MapSnapshot> {
    let subject = "map";
    let store = match Store::new(config.map.url.reveal()) {
        Ok(store) => store,
        Err(error) => {
            found.push(Finding::of_error(subject, &error.into()));
            return None;
        }
    };
    match map_settings(config).await {
        Ok(findings) => found.extend(findings),
        Err(error) => {
            found.push(Finding::of_error(subject, &error));
            return None;
        }
    }
    let loaded = match store.check().await {
        Ok(()) => store.load().await,
        Err(error) => Err(error),
    };
    let seen = if loaded.is_ok() { map::findings(&store).await } else { Ok(Vec::new()) };
    store.close().await;
    match seen {
        Ok(findings) => found.extend(findings),
        Err(error) => found.push(Finding::of_error(subject, &error.into())),
    }
    match loaded {
        Ok(change) => Some(change.snapshot),
        Err(error) => {
            found.push(Finding::of_error(subject, &error.into()));
            None
        }
    }
}

async fn map_settings(config: &Config) -> Result<Vec<Finding>, PgError> {
    let mut connection = ShardConnection::open_new("map", config.map.url.reveal())
        .await
        .map_err(|error| PgError { message: error.message.replace("shard \"map\"", "the map database"), ..error })?;
    let synchronous_commit: String = connection.value("SHOW synchronous_commit").await?;
    connection.close().await;
    let mut found = Vec::new();
    if synchronous_commit == "off" {
        found.push(Finding::new(
            "map",
            "synchronous_commit is off there, so that a crash may forget a change of the map that proxies already follow",
            "Set it to on for the map database.",
        ));
    }
    Ok(found)
}

/// What the cluster uses, and so needs of its servers and roles.
#[derive(Clone, Copy)]
struct Needs {
    /// There are shards that partitions can be moved between, and that rows can be gathered from.
    several_shards: bool,
    /// Transactions that write on more than one of them.
    two_phase: bool,
}

impl Needs {
    fn of(config: &Config, snapshot: &MapSnapshot) -> Self {
        let several_shards = snapshot.shards.len() > 1;
        Self { several_shards, two_phase: several_shards && config.cross_shard.writes == CrossShardWrites::TwoPhaseCommit }
    }
}

/// What two shards are compared by.
struct Facts {
    catalog: Arc<Catalog>,
    identity: Option<String>,
    /// Encoding and locale of the database, with the collation's version.
    database: String,
    server_version: i32,
}

async fn look_at(shard: &Shard, config: &Config, needs: Needs, snapshot: &MapSnapshot) -> (Vec<Finding>, Option<Facts>) {
    let subject = format!("shard \"{}\"", shard.name);
    let mut found = Vec::new();
    if ShardUrl::parse(&shard.url).is_ok_and(|url| url.password.is_some()) {
        let remedy = format!(
            "Put it into a file on each proxy's machine: SELECT shardgate.alter_shard('{}', url => 'postgres://…?passfile=…').",
            shard.name
        );
        let what = "its password stands in the map, where whoever may read the map database, or a dump of it, can read it";
        found.push(Finding::new(&subject, what, remedy).warning());
    }
    let meaning = match shard.state {
        ShardState::ReadOnly => Some("it is read-only: writes there are refused"),
        ShardState::Maintenance if shard.owes => Some(
            "no statement reaches it: a move was given up while it was away, and \"shard-rebalance doctor --fix\" has not cleaned it",
        ),
        ShardState::Maintenance => Some("it is in maintenance: its statements wait, and are refused in the end"),
        ShardState::Draining => Some("it is draining: it gets no new partitions, and plans empty it"),
        ShardState::Preparing | ShardState::Online => None,
    };
    if let Some(meaning) = meaning {
        let remedy = format!("When that is over: SELECT shardgate.alter_shard('{}', state => 'online').", shard.name);
        found.push(Finding::new(&subject, meaning, remedy).warning());
    }
    if !shard.state.is_ready() {
        found.push(Finding::new(&subject, "it is not online yet", "Call shardgate.add_shard() again to finish its preparation."));
    }
    found.extend(shard::two_primaries(shard, &subject).await);
    let mut connection = match ShardConnection::open(shard).await {
        Ok(connection) => connection,
        Err(error) => {
            found.push(Finding::of_error(&subject, &error));
            return (found, None);
        }
    };
    let roles: Vec<&str> = match config.auth.backend_user {
        BackendUser::Client => config.auth.users.iter().map(|user| user.name.as_str()).collect(),
        BackendUser::Shard => Vec::new(),
    };
    if let Err(error) = shard::settings(&mut connection, &subject, (&roles, needs), &mut found).await {
        found.push(Finding::of_error(&subject, &error));
    }
    let facts = shard::facts(&mut connection).await;
    if let Ok(facts) = &facts
        && !shard.is_home
    {
        match unseen::find(&mut connection, &subject, &facts.catalog, snapshot).await {
            Ok(findings) => found.extend(findings),
            Err(error) => found.push(Finding::of_error(&subject, &error)),
        }
    }
    connection.close().await;
    match facts {
        Ok(facts) => (found, Some(facts)),
        Err(error) => {
            found.push(Finding::of_error(&subject, &error));
            (found, None)
        }
    }
}

/// Differences between shards: each against the home shard.
fn compare(seen: &[(&Shard, Facts)], found: &mut Vec<Finding>) {
    let Some((home, home_facts)) = seen.iter().find(|(shard, _)| shard.is_home) else { return };
    for (index, (shard, facts)) in seen.iter().enumerate() {
        let subject = format!("shard \"{}\"", shard.name);
        let twin = seen.iter().take(index).find(|(_, other)| facts.identity.is_some() && other.identity == facts.identity);
        if let Some((twin, _)) = twin {
            let finding = format!("it is the same database as shard \"{}\", or a copy of its files", twin.name);
            found.push(Finding::new(&subject, finding, "Drop one of them."));
        }
        if shard.is_home {
            continue;
        }
        if facts.database != home_facts.database {
            let finding = format!(
                "text may sort or compare differently here ({}) than on home shard \"{}\" ({})",
                facts.database, home.name, home_facts.database
            );
            found.push(Finding::new(
                &subject,
                finding,
                "Use the same encoding, locale and operating system version for all shards.",
            ));
        }
        if facts.server_version / 10_000 != home_facts.server_version / 10_000 {
            let finding = format!(
                "its server has version {}, the home shard's {}",
                facts.server_version / 10_000,
                home_facts.server_version / 10_000
            );
            let remedy = "Functions and plans may differ between versions; move all shards to one in time.";
            found.push(Finding::new(&subject, finding, remedy).warning());
        }
        for difference in home_facts.catalog.diff(&facts.catalog) {
            let finding = format!("{difference} (here: home shard \"{}\")", home.name);
            found.push(Finding::new(&subject, finding, "Make the schemas alike; run schema changes through the proxy."));
        }
    }
}

/// What has come to stand in the way of declared tables since they were declared.
fn tables(catalog: &Arc<Catalog>, snapshot: &MapSnapshot, found: &mut Vec<Finding>) {
    let declared = reading::under(catalog, snapshot.clone(), &catalog.schemas);
    let mut names: Vec<_> = snapshot.tables.keys().collect();
    names.sort_unstable();
    for name in names {
        let Some(table) = snapshot.tables.get(name) else { continue };
        let subject = format!("table \"{}.{}\"", name.0, name.1);
        let Some(relation) = catalog.relation_names.get(name).and_then(|oid| catalog.relations.get(oid)) else {
            found.push(Finding::new(
                &subject,
                "it is declared and does not exist on the home shard",
                "Create it again, through the proxy. If it has another name on the shards, see \"What a map forgets\" in \
                 docs/failing-over.md.",
            ));
            continue;
        };
        let kind = match &table.kind {
            TableKind::Sharded { group, key } => CandidateKind::Sharded { key, group: Some(*group), together_with: &[] },
            TableKind::Reference => CandidateKind::Reference,
        };
        let candidate = Candidate { catalog, map: snapshot, relation, kind, reader: &BODY_READER, declared: &declared };
        found.extend(
            candidate
                .obstacles()
                .into_iter()
                .map(|obstacle| Finding::new(&subject, obstacle.what.trim_end_matches('.'), obstacle.remedy)),
        );
    }
}

/// Rows of one query on a shard.
async fn rows(connection: &mut PgConnection, sql: &str) -> Result<Vec<(String, String)>, sqlx::Error> {
    connection.ping().await?;
    sqlx::query_as(AssertSqlSafe(sql.to_owned())).fetch_all(connection).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_open_files_are_a_finding() {
        assert_eq!(descriptors_finding(20_000, 20_000), None);
        let told = descriptors_finding(1024, 10_612).map(|finding| finding.to_string()).unwrap_or_default();
        assert!(told.contains("may need 10612 open files") && told.contains("may have 1024. Raise the hard limit"), "{told}");
    }
}
