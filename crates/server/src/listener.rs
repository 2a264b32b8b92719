//! Where connections come in: TCP, TLS and unix sockets; who is turned away at the door.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Poll, Token};

use crate::connection::{Socket, Stream};
use crate::message::Arrived;
use crate::options::index_of;
use crate::shared::Shared;
use crate::sys;
use crate::worker::LISTENERS;

enum Door {
    Tcp(TcpListener),
    Tls(TcpListener),
    Unix(UnixListener, String),
}

/// All doors.
#[derive(Default)]
pub struct Listeners {
    doors: Vec<Door>,
    tls: Option<Arc<rustls::ServerConfig>>,
}

impl Listeners {
    /// Opens a TCP door on each address; `Err` names the one that failed. An address that begins
    /// with `-` may fail.
    pub fn open_tcp(&mut self, bind: &str, port: u16, is_tls: bool) -> io::Result<Vec<SocketAddr>> {
        let mut bound = Vec::new();
        for word in bind.split_whitespace() {
            let (name, may_fail) =
                word.strip_prefix('-').map_or((word, false), |name| (name, true));
            let name = match name {
                "*" => "0.0.0.0",
                "::*" => "::",
                name => name,
            };
            match bind_one(name, port) {
                Ok(listener) => {
                    bound.push(listener.local_addr()?);
                    self.doors.push(if is_tls { Door::Tls(listener) } else { Door::Tcp(listener) });
                }
                Err(_) if may_fail => {}
                Err(error) => {
                    let why = sys::error_text(&error);
                    let text = format!("Failed listening on port {port} ({name}:{port}: {why})");
                    return Err(io::Error::new(error.kind(), text));
                }
            }
        }
        Ok(bound)
    }

    /// Opens a unix socket; a leftover one at the path is replaced.
    pub fn open_unix(&mut self, path: &str, permissions: Option<u32>) -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path)?;
        if let Some(mode) = permissions {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        }
        self.doors.push(Door::Unix(listener, path.to_string()));
        Ok(())
    }

    /// The configuration of the TLS doors.
    pub fn set_tls(&mut self, config: Arc<rustls::ServerConfig>) {
        self.tls = Some(config);
    }

    /// Sets how many connections may wait at each door.
    pub fn set_backlog(&self, count: i64) {
        for door in &self.doors {
            match door {
                Door::Tcp(listener) | Door::Tls(listener) => sys::set_backlog(listener, count),
                Door::Unix(listener, _) => sys::set_backlog(listener, count),
            }
        }
    }

    /// Watches all doors by `poll`.
    pub fn register(&mut self, poll: &Poll) -> io::Result<()> {
        for (index, door) in self.doors.iter_mut().enumerate() {
            let (token, interest) = (Token(LISTENERS + index), Interest::READABLE);
            match door {
                Door::Tcp(listener) | Door::Tls(listener) => {
                    poll.registry().register(listener, token, interest)?;
                }
                Door::Unix(listener, _) => poll.registry().register(listener, token, interest)?,
            }
        }
        Ok(())
    }

    /// Lets in all who wait at a door.
    pub fn accept(&mut self, door: usize, shared: &Shared, mut enter: impl FnMut(Stream, Arrived)) {
        loop {
            match self.accept_one(door, shared) {
                Ok(Some((stream, arrived))) => enter(stream, arrived),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    return;
                }
            }
        }
    }

    fn accept_one(
        &mut self,
        door: usize,
        shared: &Shared,
    ) -> io::Result<Option<(Stream, Arrived)>> {
        let (mut stream, arrived, peer) = match &self.doors[door] {
            Door::Tcp(listener) | Door::Tls(listener) => {
                let (socket, peer) = listener.accept()?;
                let _ = socket.set_nodelay(true);
                let seconds = shared.options.number(const { index_of("tcp-keepalive") });
                sys::keep_alive(&socket, seconds as u32);
                let laddr = socket.local_addr().map_or_else(|_| String::new(), |a| a.to_string());
                let is_tls = matches!(self.doors[door], Door::Tls(_));
                let addr = peer.to_string();
                let arrived = Arrived { addr, laddr, is_unix: false, is_tls };
                (Stream { socket: Socket::Tcp(socket), tls: None }, arrived, Some(peer))
            }
            Door::Unix(listener, path) => {
                let (socket, _) = listener.accept()?;
                let addr = format!("{path}:0");
                let arrived = Arrived { laddr: addr.clone(), addr, is_unix: true, is_tls: false };
                (Stream { socket: Socket::Unix(socket), tls: None }, arrived, None)
            }
        };
        if let Some(refusal) = refusal(shared, peer) {
            let _ = stream.socket.write(refusal);
            shared.rejected_connections.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        }
        if arrived.is_tls {
            let config =
                self.tls.as_ref().ok_or_else(|| io::Error::other("no TLS configuration"))?;
            let session =
                rustls::ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
            let mut session = Box::new(session);
            session.set_buffer_limit(None);
            stream.tls = Some(session);
        }
        Ok(Some((stream, arrived)))
    }
}

fn refusal(shared: &Shared, peer: Option<SocketAddr>) -> Option<&'static [u8]> {
    let clients: usize =
        shared.counts.iter().map(|counts| counts.clients.load(Ordering::Relaxed)).sum();
    if clients as i64 >= shared.options.number(const { index_of("maxclients") }) {
        return Some(b"-ERR max number of clients reached\r\n");
    }
    let protected = shared.options.is_on(const { index_of("protected-mode") })
        && shared.options.text(const { index_of("requirepass") }).is_empty();
    if protected && peer.is_some_and(|peer| !peer.ip().to_canonical().is_loopback()) {
        return Some(
            b"-DENIED Forebay is running in protected mode: no password is set, so that only \
              loopback clients are served. Set requirepass, or turn protected-mode off if every \
              client that can reach this server may use it.\r\n",
        );
    }
    None
}

fn bind_one(name: &str, port: u16) -> io::Result<TcpListener> {
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "no such address");
    for addr in (name, port).to_socket_addrs()? {
        match TcpListener::bind(addr) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}
