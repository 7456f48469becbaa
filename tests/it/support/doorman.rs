//! The entrance of the proxy without the proxy: takes connections, reads openings, authenticates, greets.
//!
//! For tests of what comes before the first statement. A client that has been let in gets `CommandComplete` for every Query.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::{BufMut, BytesMut};
use shardgate::auth::{AuthError, Authenticator, Login};
use shardgate::config::Config;
use shardgate::net::{ClientStream, Listener, Opening, OpeningError, ServerTls, write_error};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

pub struct Doorman {
    address: SocketAddr,
    record: Arc<Mutex<Record>>,
    task: JoinHandle<()>,
}

/// What has come to the door.
#[derive(Default)]
pub struct Record {
    pub logins: Vec<Login>,
    pub cancels: Vec<Vec<u8>>,
    /// Connections that ended before login, by what they were.
    pub refused: usize,
    pub panicked: usize,
}

impl Doorman {
    /// Stands on a free port; `config` needs no map.
    pub async fn start(config: &Config) -> Self {
        let tls = ServerTls::load(&config.listen.tls).expect("certificates");
        let authenticator = Arc::new(Authenticator::new(&config.auth, &config.database.name));
        let bound = Listener::bind_first("127.0.0.1:0".parse().expect("an address"), 128).expect("bound");
        let listener = Listener::from_std(bound).expect("registered");
        let address = listener.local_address().expect("an address");
        let record = Arc::new(Mutex::new(Record::default()));
        let packet_bytes_max = config.listen.startup_packet_bytes_max;
        let seen = record.clone();
        let task = tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (tls, authenticator, seen) = (tls.clone(), authenticator.clone(), seen.clone());
                tokio::spawn(async move {
                    let record = seen.clone();
                    let visit = tokio::spawn(async move { receive(tcp, &tls, packet_bytes_max, &authenticator, &record).await });
                    if visit.await.is_err() {
                        seen.lock().expect("not poisoned").panicked += 1;
                    }
                });
            }
        });
        Self { address, record, task }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// For libpq and tokio-postgres.
    pub fn conninfo(&self, user: &str, rest: &str) -> String {
        format!("host=127.0.0.1 port={} user={user} dbname=app {rest}", self.address.port())
    }

    pub fn record<T>(&self, look: impl FnOnce(&Record) -> T) -> T {
        look(&self.record.lock().expect("not poisoned"))
    }
}

impl Drop for Doorman {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn receive(tcp: TcpStream, tls: &ServerTls, packet_bytes_max: u32, authenticator: &Authenticator, record: &Mutex<Record>) {
    let refused = || record.lock().expect("not poisoned").refused += 1;
    let mut startup = match Opening::read(tcp, tls, packet_bytes_max).await {
        Ok(Opening::Startup(startup)) => startup,
        Ok(Opening::Cancel { key, .. }) => return record.lock().expect("not poisoned").cancels.push(key.to_vec()),
        Err(
            OpeningError::Closed | OpeningError::Foreign(_) | OpeningError::Refused(_) | OpeningError::Tls(_) | OpeningError::Io(_),
        ) => return refused(),
    };
    let mut reply = BytesMut::new();
    let (stream, buffer) = (&mut startup.stream, &mut startup.buffer);
    match authenticator.authenticate(stream, buffer, &mut reply, &startup.parameters, startup.end_point.as_ref()).await {
        Ok(login) => {
            record.lock().expect("not poisoned").logins.push(login);
            // A client that leaves here ends its visit, not the test.
            drop(greet(stream, buffer, reply).await);
        }
        Err(AuthError::Refused(error)) => {
            refused();
            drop(write_error(stream, &error).await);
        }
        Err(AuthError::Closed | AuthError::Io(_)) => refused(),
    }
}

async fn greet(stream: &mut ClientStream, buffer: &mut BytesMut, mut reply: BytesMut) -> std::io::Result<()> {
    for (name, value) in [("server_version", "15.0"), ("client_encoding", "UTF8"), ("standard_conforming_strings", "on")] {
        let body = [name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat();
        put(&mut reply, b'S', &body);
    }
    put(&mut reply, b'K', &[0, 0, 0, 7, 1, 2, 3, 4]);
    put(&mut reply, b'Z', b"I");
    loop {
        stream.write_all(&reply).await?;
        stream.flush().await?;
        reply.clear();
        while reply.is_empty() {
            while let Some((tag, body)) = take(buffer) {
                match tag {
                    b'X' => return stream.shutdown().await,
                    b'Q' if body.len() <= 1 => put(&mut reply, b'I', b""),
                    b'Q' => put(&mut reply, b'C', b"SELECT 0\0"),
                    _ => continue,
                }
                put(&mut reply, b'Z', b"I");
            }
            if reply.is_empty() && stream.read_buf(buffer).await? == 0 {
                return Ok(());
            }
        }
    }
}

fn put(reply: &mut BytesMut, tag: u8, body: &[u8]) {
    reply.put_u8(tag);
    reply.put_u32(u32::try_from(body.len() + 4).expect("short"));
    reply.put_slice(body);
}

fn take(buffer: &mut BytesMut) -> Option<(u8, BytesMut)> {
    let (&[tag, a, b, c, d], _) = buffer.split_first_chunk::<5>()?;
    let length = u32::from_be_bytes([a, b, c, d]) as usize + 1;
    (buffer.len() >= length).then(|| {
        let frame = buffer.split_to(length);
        (tag, BytesMut::from(&frame[5..]))
    })
}
