//! A server for tests without threads and sockets: one hub, one client, commands as text.

use std::sync::{Arc, mpsc};

use commands::context::Session;
use commands::engine::{Core, Turn};
use commands::registry::Registry;
use keyspace::keyspace::Keyspace;
use keyspace::random::Random;
use resp::{OwnedArgs, Writer};

use crate::client::Client;
use crate::connection::Peer;
use crate::hub::Hub;
use crate::options::Options;
use crate::shared::{Parts, Shared};

/// See the module.
pub struct Server {
    pub shared: Arc<Shared>,
    pub session: Session,
    hub: Hub,
}

impl Server {
    /// A server with its default options, but for those given.
    pub fn new(set: &[(&str, &str)]) -> Server {
        let options = Options::default();
        for (name, value) in set {
            options.set(name, &value.split(' ').collect::<Vec<_>>()).expect(name);
        }
        let families = [commands::FAMILIES, &crate::families()].concat();
        let (free_later, _) = mpsc::channel();
        let shared = Arc::new(Shared::new(Parts {
            core: Core {
                space: Keyspace::new(16, 1 + crate::persistence::LOADERS),
                registry: Registry::new(&families),
            },
            options,
            threads: 1,
            now_ms: 1_700_000_000_000,
            seed: [1, 2, 3],
            config_file: String::new(),
            free_later,
            freeing: Arc::default(),
            disk: Arc::new(persist::disk::RealDisk),
        }));
        crate::apply::apply_all(&shared).expect("the defaults are possible");
        let mut hub = Hub::new(Arc::clone(&shared), 0, 1);
        hub.now_ms = shared.started_ms + 5000;
        let client = Client { id: 1, addr: "127.0.0.1:5000".into(), ..Client::default() };
        hub.peer = Some(Box::new(Peer::new(Arc::new(client), true)));
        Server { shared, session: Session::new(1), hub }
    }

    /// Runs a command given as one line and returns the reply's bytes as text, `\r\n` written as a
    /// space.
    pub fn run(&mut self, line: &str) -> String {
        let words = resp::request::split_line(line.as_bytes()).expect("quotes close");
        let args = OwnedArgs::new(&words);
        let mut out = Writer::new(self.session.resp3);
        let mut turn = Turn {
            core: &self.shared.core,
            thread: 0,
            now_ms: self.hub.now_ms,
            random: &mut Random::new(7),
            host: &mut self.hub,
        };
        turn.run(&mut self.session, &mut out, args.args());
        let text = String::from_utf8_lossy(&out.to_vec()).replace("\r\n", " ");
        text.strip_suffix(' ').unwrap_or(&text).to_string()
    }

    /// Runs lines in order and checks each reply.
    pub fn check(&mut self, cases: &[(&str, &str)]) {
        for (line, want) in cases {
            assert_eq!(self.run(line), *want, "{line}");
        }
    }
}
