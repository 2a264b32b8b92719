//! A client inside the process: services run commands on the keyspace without a socket, under the
//! same locks, log and memory accounting as everybody else.
//!
//! **Invariant:** its commands are logged and wake blocked clients like any others. Keyspace events
//! of its own changes are not published.

use std::sync::{Arc, Mutex};

use commands::context::{Host, Session};
use commands::engine::Turn;
use keyspace::effects::Effects;
use keyspace::random::Random;
use resp::{OwnedArgs, Writer};

use crate::persistence::LOADERS;
use crate::shared::Shared;

/// Such clients at most: each has its own counts in the keyspace.
pub const INNER_CLIENTS: usize = 2;
/// The place of metered ingest's.
pub const QUOTA: usize = 0;
/// The place of cached tables'.
pub const TABLES: usize = 1;

/// See the module.
pub struct Inner {
    shared: Arc<Shared>,
    place: usize,
    state: Mutex<State>,
}

struct State {
    session: Session,
    random: Random,
    args: OwnedArgs,
    out: Writer,
    host: InnerHost,
}

struct InnerHost(Arc<Shared>);

impl Host for InnerHost {
    fn settle(&mut self, _: &mut Session, _: &mut Writer, mut effects: Effects) {
        if !effects.background.is_empty() {
            self.0.free_later(std::mem::take(&mut effects.background));
        }
    }
}

impl Inner {
    /// An inner client of a server; there is only one at a place.
    pub fn new(shared: Arc<Shared>, place: usize, seed: u64) -> Inner {
        assert!(place < INNER_CLIENTS);
        let session = Session::new(shared.next_client_id());
        let (random, args, out) = (Random::new(seed), OwnedArgs::default(), Writer::new(false));
        let host = InnerHost(Arc::clone(&shared));
        let state = State { session, random, args, out, host };
        Inner { shared, place, state: Mutex::new(state) }
    }

    /// Runs one command and shows its reply in RESP2.
    pub fn run<T>(&self, words: &[&[u8]], now_ms: i64, read: impl FnOnce(&[u8]) -> T) -> T {
        if self.shared.persistence.is_loading() {
            return read(b"-LOADING the data is being loaded\r\n");
        }
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let State { session, random, args, out, host } = &mut *state;
        args.clear();
        words.iter().for_each(|word| args.push(word));
        out.clear();
        let thread = self.shared.threads() + LOADERS + self.place;
        let core = &self.shared.core;
        let mut turn = Turn { core, thread, now_ms, random, host };
        turn.run(session, out, args.args());
        read(out.bytes())
    }
}
