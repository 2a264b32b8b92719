//! Telling systemd that the server is ready, or ends: a datagram to the socket that it names.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use server::options::{Options, index_of};

/// Who is told, if anybody.
#[derive(Debug, Clone, Default)]
pub struct Supervisor {
    socket: Option<String>,
}

impl Supervisor {
    /// As the option `supervised` and the environment say.
    pub fn find(options: &Options) -> Supervisor {
        let asked = options.text(const { index_of("supervised") });
        let socket = std::env::var("NOTIFY_SOCKET").ok().filter(|path| !path.is_empty());
        match asked.as_str() {
            "systemd" | "auto" => {
                if socket.is_none() && asked == "systemd" {
                    tracing::warn!("supervised is systemd, but there is no $NOTIFY_SOCKET");
                }
                Supervisor { socket }
            }
            _ => Supervisor::default(),
        }
    }

    /// Sends a state such as `READY=1`.
    pub fn tell(&self, state: &str) {
        let Some(path) = &self.socket else { return };
        let address = match path.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(path),
        };
        let sent = address
            .and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
        if let Err(error) = sent {
            tracing::warn!(%error, "cannot tell systemd");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_arrives() {
        let path = std::env::temp_dir().join(format!("forebay-notify-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).expect("a socket in the temporary folder");
        let supervisor = Supervisor { socket: Some(path.to_string_lossy().into_owned()) };
        supervisor.tell("READY=1");
        let mut buffer = [0; 32];
        let count = socket.recv(&mut buffer).expect("it arrives");
        assert_eq!(&buffer[..count], b"READY=1");
        let _ = std::fs::remove_file(&path);
    }
}
