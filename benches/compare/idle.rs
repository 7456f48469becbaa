//! Thousands of clients that have logged in and do nothing: what each costs the proxy in memory.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::report::memory_kib;

pub struct Idle {
    pub before_kib: f64,
    pub after_kib: f64,
}

/// Opens the clients one after the other, looks at the proxy's memory before and after, and closes them.
pub fn measure(port: u16, database: &str, pid: i32, clients: usize) -> io::Result<Idle> {
    let before_kib = memory_kib(pid, "VmRSS")?;
    let sessions: Vec<TcpStream> = (0..clients).map(|_| log_in(port, database)).collect::<io::Result<_>>()?;
    let after_kib = memory_kib(pid, "VmRSS")?;
    drop(sessions);
    Ok(Idle { before_kib, after_kib })
}

/// As many open files as the system allows, for this process and the proxies that it starts.
pub fn raise_open_files_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        println!("the limit of open files stays as it is: {error}");
    }
}

/// A startup packet without a password, then whatever comes up to ReadyForQuery.
fn log_in(port: u16, database: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let parameters = format!("user\0postgres\0database\0{database}\0\0");
    let length = u32::try_from(8 + parameters.len()).map_err(io::Error::other)?;
    let packet = [&length.to_be_bytes()[..], &196_608_u32.to_be_bytes(), parameters.as_bytes()].concat();
    stream.write_all(&packet)?;
    loop {
        let mut header = [0; 5];
        stream.read_exact(&mut header)?;
        let [tag, length @ ..] = header;
        let mut body = vec![0; (u32::from_be_bytes(length) as usize).saturating_sub(4)];
        stream.read_exact(&mut body)?;
        match tag {
            b'Z' => return Ok(stream),
            b'E' => return Err(io::Error::other(String::from_utf8_lossy(&body).replace('\0', " "))),
            _ => {}
        }
    }
}
