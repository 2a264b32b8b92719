//! What is measured: a server's name, its address, and how to log in.
//!
//! ```text
//! --target redis=127.0.0.1:6379
//! --target ours=secret@127.0.0.1:7001        password
//! --target acl=alice:secret@[::1]:7001       user and password
//! --target local=/run/redis.sock             unix socket
//! ```
//!
//! **Invariant:** a password is never shown: [`Target`]'s `Debug` and `Display` leave it out.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use crate::process::{self, CpuSource};

/// Where a server listens.
#[derive(Clone, PartialEq, Eq)]
pub enum Address {
    /// Host name or number, and port.
    Tcp(String, u16),
    /// A unix socket.
    Unix(PathBuf),
}

/// An address whose host name is resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Address {
    /// Where to connect to; an error where the host name has no address.
    pub fn endpoint(&self) -> io::Result<Endpoint> {
        match self {
            Address::Unix(path) => Ok(Endpoint::Unix(path.clone())),
            Address::Tcp(..) => {
                let address = self.resolve()?;
                Ok(Endpoint::Tcp(address.ok_or_else(|| io::Error::other("no address"))?))
            }
        }
    }

    /// The first socket address that the host name stands for.
    pub fn resolve(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            Address::Unix(_) => Ok(None),
            Address::Tcp(host, port) => {
                let mut found = (host.as_str(), *port).to_socket_addrs()?;
                found.next().map(Some).ok_or_else(|| io::Error::other("host has no address"))
            }
        }
    }
}

/// What kind of server it is, for what may be expected of its replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// A server that runs commands.
    Server,
    /// A null server, which answers `+OK` to everything.
    Null,
}

/// A server to measure.
#[derive(Clone)]
pub struct Target {
    /// What tables and charts call it.
    pub name: String,
    /// Where it listens.
    pub address: Address,
    /// User to log in as.
    pub user: Option<String>,
    /// Password to log in with.
    pub password: Option<String>,
    /// Whether it is a null server.
    pub kind: TargetKind,
    /// Whose CPU time it uses, as far as that is known.
    pub cpu: Option<CpuSource>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.address)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) =
            text.split_once('=').ok_or("want name=address, as in redis=127.0.0.1:6379")?;
        if name.is_empty() || name.len() > 40 {
            return Err("a target's name is 1 to 40 letters long".into());
        }
        // The last @ ends the login: passwords may hold one, addresses do not.
        let (login, address) = match rest.rsplit_once('@') {
            Some((login, address)) => (Some(login), address),
            None => (None, rest),
        };
        let (user, password) = match login {
            None => (None, None),
            Some(login) => match login.split_once(':') {
                Some((user, password)) => (Some(user.to_owned()), Some(password.to_owned())),
                None => (None, Some(login.to_owned())),
            },
        };
        Ok(Target {
            name: name.to_owned(),
            address: address.parse()?,
            user: user.filter(|user| !user.is_empty()),
            password,
            kind: TargetKind::Server,
            cpu: None,
        })
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix("http://").map_or(text, |rest| rest.trim_end_matches('/'));
        if text.contains('/') {
            return Ok(Address::Unix(PathBuf::from(text)));
        }
        let (host, port) = text.rsplit_once(':').ok_or("want host:port or a unix socket's path")?;
        let port = port.parse().ok().filter(|&port| port > 0).ok_or("port is not 1 to 65535")?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err("host is missing".into());
        }
        Ok(Address::Tcp(host.to_owned(), port))
    }
}

impl Target {
    /// The process whose CPU time is counted, if it is one.
    pub fn pid(&self) -> Option<u32> {
        match self.cpu {
            Some(CpuSource::Process(pid)) => Some(pid),
            _ => None,
        }
    }

    /// Finds the process that serves the target, where that is on this machine.
    pub fn find_process(&self) -> Option<CpuSource> {
        let pid = match &self.address {
            Address::Unix(path) => process::pid_listening_on_path(path)?,
            Address::Tcp(..) => {
                let remote = self.address.resolve().ok()??;
                let local = std::net::TcpStream::connect(remote).ok()?.local_addr().ok()?;
                // A connection from this machine to itself has one address at both ends.
                if local.ip() != remote.ip() {
                    return None;
                }
                process::pid_listening_on(remote)?
            }
        };
        Some(CpuSource::Process(pid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_addresses_and_logins() {
        let plain: Target = "redis=127.0.0.1:6379".parse().unwrap();
        assert_eq!(plain.name, "redis");
        assert!(plain.address == Address::Tcp("127.0.0.1".into(), 6379));
        assert_eq!(plain.password, None);

        let login: Target = "x=alice:p@ss:word@[::1]:7001".parse().unwrap();
        assert_eq!(login.user.as_deref(), Some("alice"));
        assert_eq!(login.password.as_deref(), Some("p@ss:word"));
        assert!(login.address == Address::Tcp("::1".into(), 7001));
        assert_eq!(login.to_string(), "x=[::1]:7001");
        assert!(!format!("{login:?}").contains("word"));

        let unix: Target = "u=pw@/run/r.sock".parse().unwrap();
        assert!(unix.address == Address::Unix("/run/r.sock".into()));
        assert_eq!(unix.user, None);
    }

    #[test]
    fn refuses_what_is_no_target() {
        for text in ["", "redis", "=1.2.3.4:5", "a=b", "a=b:0", "a=b:70000", "a=:6379"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
