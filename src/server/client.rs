//! From an accepted socket to a session: limits before login, TLS, login.
//!
//! Everything up to the first ReadyForQuery has one deadline, TLS included, so that a slow stranger holds a socket and no more.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::BytesMut;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;

use crate::auth::{AuthError, Authenticator};
use crate::config::Config;
use crate::error::{PgError, SqlState};
use crate::net::{Opening, OpeningError, ServerTls, Startup, descriptors, write_error};
use crate::session::{Connected, Gateway, Identity, Session};
use crate::telemetry::ConnectionOutcome;

use super::auth_query::AuthQuery;

/// Lets clients in.
pub(super) struct Doorkeeper {
    gateway: Arc<Gateway>,
    entrance: ArcSwap<Entrance>,
    /// `listen.max_clients` of them.
    seats: Places,
    /// For connections that find all seats taken: they may bring a cancel request, or hear that there is no room. Where these are taken
    /// as well nothing is said: a stranger who opens connections and is silent must not use up the process's files.
    standing: Places,
    login_timeout: Duration,
    startup_packet_bytes_max: u32,
}

/// What new settings can replace while the proxy runs.
struct Entrance {
    authenticator: Authenticator,
    tls: ServerTls,
}

impl Entrance {
    fn new(config: &Config, gateway: &Arc<Gateway>) -> anyhow::Result<Self> {
        let listed = Authenticator::new(&config.auth, &config.database.name);
        let asking = |query: &String| AuthQuery::new(Arc::clone(gateway), query.clone(), Handle::current());
        Ok(Self {
            authenticator: match &config.auth.query {
                Some(query) => listed.with_unlisted(Arc::new(asking(query))),
                None => listed,
            },
            tls: ServerTls::load(&config.listen.tls)?,
        })
    }
}

/// So many, and how many are taken.
struct Places {
    taken: AtomicUsize,
    max: usize,
}

impl Places {
    fn take(&self) -> Option<Place<'_>> {
        let place = Place(&self.taken);
        (self.taken.fetch_add(1, Ordering::Relaxed) < self.max).then_some(place)
    }
}

/// One of them, given back when it is dropped.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Doorkeeper {
    pub fn new(config: &Config, gateway: Arc<Gateway>) -> anyhow::Result<Self> {
        Ok(Self {
            entrance: ArcSwap::from_pointee(Entrance::new(config, &gateway)?),
            gateway,
            seats: Places { taken: AtomicUsize::new(0), max: config.listen.max_clients as usize },
            standing: Places { taken: AtomicUsize::new(0), max: descriptors::STANDING_MAX },
            login_timeout: config.listen.login_timeout(),
            startup_packet_bytes_max: config.listen.startup_packet_bytes_max,
        })
    }

    /// Takes over users and certificates for the clients to come; sessions go on with what they logged in with.
    pub fn reload(&self, config: &Config) -> anyhow::Result<()> {
        self.entrance.store(Arc::new(Entrance::new(config, &self.gateway)?));
        Ok(())
    }

    /// Serves one connection to its end.
    /// `stop`: no transaction is begun any more; `abort`: it ends, whatever it does.
    pub async fn serve(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        runtime: usize,
        (stop, abort): (CancellationToken, CancellationToken),
    ) {
        let accepted_at = Instant::now();
        let login_deadline = tokio::time::Instant::from_std(accepted_at) + self.login_timeout;
        let place = self.seats.take();
        let standing = if place.is_none() { self.standing.take() } else { None };
        if place.is_none() && standing.is_none() {
            self.gateway.counters.connection(ConnectionOutcome::Limit);
            return;
        }
        let login = timeout_at(login_deadline, Box::pin(self.login(stream, address, place.is_some())));
        let login = tokio::select! {
            login = login => login,
            () = abort.cancelled() => Ok(Err(ConnectionOutcome::Closed)),
        };
        match login {
            Ok(Ok((startup, identity, reply))) => {
                let Startup { stream, buffer, .. } = startup;
                let connected = Connected { stream, input: buffer, reply, address, accepted_at, login_deadline, runtime };
                let session = Session::new(Arc::clone(&self.gateway), identity, connected);
                Box::pin(session.run(&stop)).await;
            }
            Ok(Err(outcome)) => self.gateway.counters.connection(outcome),
            Err(_) => {
                self.gateway.counters.connection(ConnectionOutcome::Timeout);
                tracing::debug!(%address, "login not complete within listen.login_timeout_ms");
            }
        }
        drop((place, standing));
    }

    /// Every session is to end, whatever it does.
    pub fn abort_sessions(&self) {
        self.gateway.cancels.abort_all();
    }

    /// An error: there is no session, and the client has been told why where that is possible.
    async fn login(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        has_place: bool,
    ) -> Result<(Startup, Identity, BytesMut), ConnectionOutcome> {
        let entrance = self.entrance.load_full();
        let mut startup = match Opening::read(stream, &entrance.tls, self.startup_packet_bytes_max).await {
            Ok(Opening::Startup(startup)) => startup,
            Ok(Opening::Cancel { key, mut stream }) => {
                self.cancel(&key).await;
                // Closed only now: the client waits for the end of the stream.
                stream.end().await;
                return Err(ConnectionOutcome::Cancel);
            }
            Err(error) => {
                log_opening(&error);
                return Err(ConnectionOutcome::Closed);
            }
        };
        if !has_place {
            self.refuse(&mut startup, address, &too_many_clients(self.seats.max)).await;
            return Err(ConnectionOutcome::Limit);
        }
        let mut reply = BytesMut::new();
        let Startup { stream, buffer, parameters, end_point } = &mut startup;
        let checked = entrance.authenticator.authenticate(stream, buffer, &mut reply, parameters, end_point.as_ref()).await;
        match checked {
            Ok(login) => {
                let not_settings = ["user", "database", "replication"];
                let settings = parameters.parameters.iter().filter(|(name, _)| !not_settings.contains(&name.as_str()));
                let identity = Identity {
                    user: login.user.to_string(),
                    is_admin: login.is_admin,
                    credentials: login.backend_credentials,
                    parameters: settings.cloned().collect(),
                };
                Ok((startup, identity, reply))
            }
            Err(AuthError::Refused(error)) => {
                self.refuse(&mut startup, address, &error).await;
                Err(ConnectionOutcome::Refused)
            }
            Err(error @ (AuthError::Closed | AuthError::Io(_))) => {
                tracing::debug!(%error, "login given up");
                Err(ConnectionOutcome::Closed)
            }
        }
    }

    async fn refuse(&self, startup: &mut Startup, address: SocketAddr, error: &PgError) {
        let given = &startup.parameters.parameters;
        let user = given.iter().find(|(name, _)| name == "user").map_or("", |(_, user)| user.as_str());
        tracing::warn!(%address, user, code = error.code.as_str(), reason = %error.message, "login refused");
        if let Err(error) = write_error(&mut startup.stream, error).await {
            tracing::debug!(%error, "client gone before it heard why");
        }
    }

    async fn cancel(&self, key: &[u8]) {
        let key: Option<[u8; 8]> = key.try_into().ok();
        if let Some([a, b, c, d, e, f, g, h]) = key {
            let outcome = self.gateway.cancels.cancel((i32::from_be_bytes([a, b, c, d]), i32::from_be_bytes([e, f, g, h]))).await;
            self.gateway.counters.cancel(outcome);
        }
    }
}

fn too_many_clients(clients_max: usize) -> PgError {
    PgError::fatal(SqlState::TOO_MANY_CONNECTIONS, "sorry, too many clients already")
        .with_detail(format!("{clients_max} clients are connected (listen.max_clients)."))
        .with_hint("Retry later, or raise listen.max_clients.")
}

fn log_opening(error: &OpeningError) {
    match error {
        OpeningError::Closed => tracing::trace!("connection without a word"),
        other => tracing::debug!(error = %other, "connection refused before login"),
    }
}
