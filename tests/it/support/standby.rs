//! A synchronous standby of a server, one shard's or the map's: without it no commit there is complete.

use std::time::{Duration, Instant};

use super::psql::client_program;
use shardgate::demo::servers::{Account, Server, ServerOptions, StopMode};

use super::cluster::server_options;
use super::{Cluster, connect};

pub struct Standby {
    server: Server,
    options: ServerOptions,
    /// The primary's own database.
    primary: String,
}

impl Standby {
    /// A copy of the shard's server that follows it; from now on commits of the primary wait for it.
    pub async fn start(cluster: &Cluster, shard: usize) -> Self {
        Self::of(cluster.shard_server(shard)).await
    }

    /// The same of any server.
    pub async fn of(primary: &Server) -> Self {
        let options = server_options(&[]);
        copy(primary, &options);
        let server = Server::start(&options).expect("start a standby");
        let standby = Self { server, options, primary: primary.url("postgres") };
        let client = connect(&standby.primary).await;
        // By its name: a subscription of logical replication is a synchronous standby to '*'.
        client.batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'walreceiver'").await.expect("set");
        client.batch_execute("SELECT pg_reload_conf()").await.expect("reloaded");
        standby.until_synchronous().await;
        standby
    }

    /// The primary's commits wait now.
    pub async fn stop(&mut self) {
        self.server.stop(StopMode::Immediate).expect("stopped");
        self.until(0).await;
    }

    pub async fn start_again(&mut self) {
        self.server.start_again().expect("started again");
        self.until_synchronous().await;
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Follows nobody any more, and begins no timeline: a mistake.
    pub async fn start_as_primary(&mut self) {
        self.server.stop(StopMode::Fast).expect("stopped");
        std::fs::remove_file(self.options.dir.join("data/standby.signal")).expect("it was a standby");
        self.server.start_again().expect("started again");
    }

    /// For good.
    pub fn stop_primary(&mut self) {
        self.server.stop(StopMode::Fast).expect("stopped");
    }

    /// Becomes a primary itself, where it is, whatever the one before does. It waits for no standby.
    pub async fn promote(self) -> Server {
        let client = connect(&self.server.url("postgres")).await;
        client.query_one("SELECT pg_promote()", &[]).await.expect("promoted");
        // Its copy of the settings names those of the primary.
        client.batch_execute("ALTER SYSTEM RESET synchronous_standby_names").await.expect("reset");
        client.batch_execute("SELECT pg_reload_conf()").await.expect("reloaded");
        self.server
    }

    /// The primary is gone: the standby becomes one itself and takes its port.
    pub async fn take_over(self, port: u16) -> Server {
        let Self { mut server, mut options, .. } = self;
        // With the next start, so that no client sees it as a standby: it ends what it follows.
        connect(&server.url("postgres")).await.query_one("SELECT pg_promote()", &[]).await.expect("promoted");
        server.stop(StopMode::Fast).expect("stopped");
        // The directory is the new one's now.
        std::mem::forget(server);
        options.port = Some(port);
        Server::start(&options).expect("start the new primary")
    }

    /// The primary is gone: a standby answers on its port.
    pub fn take_place(self, port: u16) -> Server {
        let Self { mut server, mut options, .. } = self;
        server.stop(StopMode::Fast).expect("stopped");
        // The directory is the new one's now.
        std::mem::forget(server);
        options.port = Some(port);
        Server::start(&options).expect("start the standby")
    }

    async fn until_synchronous(&self) {
        self.until(1).await;
    }

    /// Until the primary counts so many synchronous standbys.
    async fn until(&self, count: usize) {
        let client = connect(&self.primary).await;
        let deadline = Instant::now() + Duration::from_secs(20);
        while client.query("SELECT FROM pg_stat_replication WHERE sync_state = 'sync'", &[]).await.expect("rows").len() != count {
            assert!(Instant::now() < deadline, "not {count} synchronous standbys");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn copy(primary: &Server, options: &ServerOptions) {
    let account = Account::for_servers().expect("account for servers");
    account.create_directory(&options.dir).expect("a directory");
    let status = account
        .command(client_program("pg_basebackup"))
        .args(["--checkpoint=fast", "--wal-method=stream", "--no-sync", "--write-recovery-conf"])
        .arg("--dbname")
        .arg(primary.url("postgres"))
        .arg("--pgdata")
        .arg(options.dir.join("data"))
        .status()
        .expect("run pg_basebackup");
    assert!(status.success(), "pg_basebackup failed");
}

/// A copy of a server as it was once, which has heard of nothing since.
pub struct Backup(ServerOptions);

impl Backup {
    pub fn of(server: &Server) -> Self {
        let options = server_options(&[]);
        copy(server, &options);
        Self(options)
    }

    /// The server is gone: the copy takes its port, as a primary of another timeline.
    pub async fn take_over(self, port: u16) -> Server {
        let server = Server::start(&self.0).expect("start the copy");
        let primary = server.url("postgres");
        Standby { server, options: self.0, primary }.take_over(port).await
    }
}
