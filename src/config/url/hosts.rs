//! The hosts of a URL: in its authority (`h1:p1,h2:p2`), or by the parameters `host` and `port`, as libpq reads them.

use std::fmt;
use std::net::Ipv6Addr;

use super::{HOSTS_MAX, UrlError, decode};

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// A name or an address, an IPv6 address without brackets.
    pub name: String,
    pub port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]:{}", self.name, self.port),
            false => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

/// What stands before the database's name, in parts; only the hosts are decoded.
pub(super) struct Authority<'u> {
    pub(super) user: &'u str,
    pub(super) password: Option<&'u str>,
    /// Without a port where none is written.
    hosts: Vec<(String, Option<u16>)>,
}

impl<'u> Authority<'u> {
    pub(super) fn read(text: &'u str) -> Result<Self, UrlError> {
        let (login, hosts) = match text.rsplit_once('@') {
            Some((login, hosts)) => (login, hosts),
            None => ("", text),
        };
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (login, None),
        };
        let hosts = match hosts {
            "" => Vec::new(),
            hosts => hosts.split(',').map(host).collect::<Result<_, _>>()?,
        };
        Ok(Self { user, password, hosts })
    }

    /// With those of the parameters.
    pub(super) fn hosts(self, names: Option<&str>, ports: Option<&str>) -> Result<Vec<Host>, UrlError> {
        let mut hosts = match names {
            None => self.hosts,
            Some(_) if !self.hosts.is_empty() => return Err(UrlError::Repeated { name: "host".to_owned() }),
            Some(names) => names.split(',').map(|name| Ok((checked(name.to_owned())?, None))).collect::<Result<_, UrlError>>()?,
        };
        if let Some(ports) = ports {
            if hosts.iter().any(|(_, port)| port.is_some()) {
                return Err(UrlError::Repeated { name: "port".to_owned() });
            }
            let ports = ports.split(',').map(port).collect::<Result<Vec<_>, _>>()?;
            match ports.as_slice() {
                [all] => hosts.iter_mut().for_each(|(_, port)| *port = *all),
                each if each.len() == hosts.len() => hosts.iter_mut().zip(each).for_each(|((_, port), given)| *port = *given),
                each => return Err(UrlError::Ports { ports: each.len(), hosts: hosts.len() }),
            }
        }
        match hosts.len() {
            0 => Err(UrlError::Missing("host")),
            1..=HOSTS_MAX => Ok(hosts.into_iter().map(|(name, port)| Host { name, port: port.unwrap_or(DEFAULT_PORT) }).collect()),
            _ => Err(UrlError::TooManyHosts),
        }
    }
}

/// `name`, `name:port`, `[::1]:port`.
fn host(text: &str) -> Result<(String, Option<u16>), UrlError> {
    if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or(UrlError::Malformed)?;
        let address: Ipv6Addr = address.parse().map_err(|_| UrlError::Malformed)?;
        let port = match rest.strip_prefix(':') {
            Some(text) => port(text)?,
            None if rest.is_empty() => None,
            None => return Err(UrlError::Malformed),
        };
        return Ok((address.to_string(), port));
    }
    let (name, port) = match text.split_once(':') {
        Some((name, text)) => (name, port(text)?),
        None => (text, None),
    };
    Ok((checked(decode("host", name)?)?, port))
}

fn checked(name: String) -> Result<String, UrlError> {
    if name.is_empty() {
        return Err(UrlError::Missing("host"));
    }
    if name.starts_with(['/', '@']) {
        return Err(UrlError::Socket(name));
    }
    // What resolvers take for a name, and IPv6 addresses with their zone.
    let is_known = |letter: char| letter.is_alphanumeric() || matches!(letter, '.' | '-' | '_' | ':' | '%');
    if name.chars().all(is_known) { Ok(name) } else { Err(UrlError::Malformed) }
}

/// Without a number it is the usual one.
fn port(text: &str) -> Result<Option<u16>, UrlError> {
    match text {
        "" => Ok(None),
        text if text.bytes().all(|byte| byte.is_ascii_digit()) => match text.parse() {
            Ok(0) | Err(_) => Err(UrlError::Port { port: text.to_owned() }),
            Ok(port) => Ok(Some(port)),
        },
        // It may be the rest of a password that is not written as a URL has it.
        _ => Err(UrlError::Malformed),
    }
}

const DEFAULT_PORT: u16 = 5432;
