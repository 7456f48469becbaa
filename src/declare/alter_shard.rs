//! `alter_shard`: where a shard is, what it can hold, how it is used.
//!
//! The map takes a url only with the identity that was read behind it just now, and only if it is the shard's: whoever swaps two
//! addresses hears so. A url behind which nothing answers is refused as well, since nobody could know whether it is right. Every
//! proxy follows within milliseconds: new connections by the new url, the others until their transactions end
//! (`crate::backend::Pool`, `crate::session`'s `shard_state`). The server behind the url becomes the shard's primary, also one with
//! another system identifier, which nobody takes for it otherwise. A former primary is passed over where the url names the server that
//! was promoted as well, and refused otherwise. Called again with the same it changes nothing.

use super::arguments::Arguments;
use super::shard_connection::{ShardConnection, UNABLE_TO_CONNECT};
use super::{Control, shards, support};
use crate::backend::identity::{self, Expected};
use crate::error::{PgError, SqlState};
use crate::shardmap::{AlteredShard, MapSnapshot, Primary, PrimaryServer, Shard};

pub(super) async fn alter(control: &Control, actor: &str, arguments: &Arguments) -> Result<(), PgError> {
    let mut altered = AlteredShard {
        name: arguments.text("name")?,
        url: arguments.optional_text("url")?,
        identity: None,
        server: None,
        region: arguments.optional_text("region")?,
        capacity: arguments.optional_float("capacity")?,
        replication_url: arguments.optional_text("replication_url")?,
        state: arguments.optional_text("state")?,
    };
    refuse_nothing(&altered)?;
    shards::check_urls(altered.name, altered.url, altered.replication_url.filter(|url| !url.is_empty()))?;
    let snapshot = control.fresh_snapshot().await?;
    let identity = match (snapshot.shard_by_name(altered.name), altered.url) {
        (Some(shard), Some(url)) => Some(identity_behind(control, &snapshot, shard, url).await?),
        // The map says that there is no such shard.
        (Some(_) | None, _) => None,
    };
    if let (Some(shard), Some(url)) = (snapshot.shard_by_name(altered.name), altered.replication_url.filter(|url| !url.is_empty()))
    {
        check_replication_url(&snapshot, shard, url).await?;
    }
    altered.identity = identity.as_ref().map(|(uuid, _)| uuid.as_str());
    altered.server = identity.as_ref().map(|(_, server)| *server);
    if control.map.store().alter_shard(actor, &altered).await? {
        control.reached().await?;
    }
    Ok(())
}

fn refuse_nothing(altered: &AlteredShard<'_>) -> Result<(), PgError> {
    let texts = [altered.url, altered.region, altered.replication_url, altered.state];
    if texts.iter().any(Option::is_some) || altered.capacity.is_some() {
        return Ok(());
    }
    Err(PgError::new(SqlState::INVALID_PARAMETER_VALUE, "nothing of the shard is to be changed")
        .with_hint("Give at least one of url, region, capacity, replication_url and state."))
}

/// The identity of the database behind this url, which is the shard's, and its server; or an error.
async fn identity_behind(
    control: &Control,
    snapshot: &MapSnapshot,
    shard: &Shard,
    url: &str,
) -> Result<(String, PrimaryServer), PgError> {
    let expected = match &shard.identity {
        Some(identity) => identity.to_string(),
        None => identity_before(control, shard).await?,
    };
    let opened = ShardConnection::open_successor(&shard.name, url, shard.primary.server()).await;
    let mut connection = opened.map_err(|error| not_reached(error, &shard.name))?;
    let uuid = support::identity(&mut connection).await;
    let anybody = Expected { uuid: None, primary: Primary::of(None) };
    let shown = identity::show(&mut connection.connection, &anybody).await.map_err(|error| connection.error(&error));
    connection.close().await;
    match uuid? {
        Some(uuid) if uuid == expected => {
            let shown = shown?.map_err(|misdirected| misdirected.into_error(&shard.name))?;
            Ok((uuid, shown.server))
        }
        uuid => Err(other_database(snapshot, shard, uuid.as_deref())),
    }
}

/// Other shards connect by it. This proxy need not be able to; where it is, it leads to the shard's database.
async fn check_replication_url(snapshot: &MapSnapshot, shard: &Shard, url: &str) -> Result<(), PgError> {
    let looking = async {
        let mut connection = ShardConnection::open_successor(&shard.name, url, shard.primary.server()).await.ok()?;
        let shown = support::identity(&mut connection).await.ok();
        connection.close().await;
        shown
    };
    let shown = tokio::time::timeout(REPLICATION_URL_ANSWERS_WITHIN, Box::pin(looking)).await.ok().flatten();
    match (shown, &shard.identity) {
        (Some(shown), Some(expected)) if shown.as_deref() != Some(&**expected) => {
            let error = other_database(snapshot, shard, shown.as_deref());
            Err(PgError { message: error.message.replacen("the url", "the replication_url", 1), ..error })
        }
        _ => Ok(()),
    }
}

const REPLICATION_URL_ANSWERS_WITHIN: std::time::Duration = std::time::Duration::from_secs(3);

/// Of a shard that an earlier version has registered: its database says so where it is now.
async fn identity_before(control: &Control, shard: &Shard) -> Result<String, PgError> {
    control.learn_identities().await.map_err(|error| {
        error.with_hint(format!(
            "Which database shard \"{}\" is has not been read yet: let it be reached once by its present url before that is changed.",
            shard.name
        ))
    })?;
    let known = control.fresh_snapshot().await?.shard_by_name(&shard.name).and_then(|shard| shard.identity.clone());
    known.map(|identity| identity.to_string()).ok_or_else(|| {
        PgError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, format!("shard \"{}\" is not online", shard.name))
            .with_hint("Call shardgate.add_shard() again to finish its preparation.")
    })
}

fn not_reached(error: PgError, name: &str) -> PgError {
    if error.code != UNABLE_TO_CONNECT {
        return error;
    }
    error.with_hint(format!(
        "Nothing was changed: the server has to let this proxy in by that url first, so that it can show that it is shard \"{name}\". \
         Meanwhile shardgate.alter_shard('{name}', state => 'maintenance') lets statements wait."
    ))
}

fn other_database(snapshot: &MapSnapshot, shard: &Shard, shown: Option<&str>) -> PgError {
    let name = &shard.name;
    let other = snapshot.shards.iter().find(|other| other.identity.as_deref() == shown && shown.is_some());
    let detail = match other {
        Some(other) => format!("The database there is shard \"{}\".", other.name),
        None if shown.is_some() => "The database there is a shard of another cluster, or was one.".to_owned(),
        None => "The database there has never been a shard.".to_owned(),
    };
    PgError::new(SqlState::INVALID_PARAMETER_VALUE, format!("the url of shard \"{name}\" leads to another database"))
        .with_detail(detail)
        .with_hint(
            "Give the url of the same database: moved with its files, by replication, or by a dump with its schema \"shardgate\". To use \
             another one, add it as a shard of its own and move the partitions there.",
        )
}
