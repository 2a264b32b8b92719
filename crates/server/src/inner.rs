//! A client inside the process: services run commands on the keyspace without a socket, under the
//! same locks, log and memory accounting as everybody else.
//!
//! **Invariant:** its commands are logged and wake blocked clients like any others. Keyspace events
//! of its own changes are not published.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use commands::context::{Host, Session};
use commands::engine::Turn;
use keyspace::effects::Effects;
use keyspace::random::Random;
use persist::aof::log::Policy;
use resp::{OwnedArgs, Writer};

use crate::persistence::LOADERS;
use crate::shared::Shared;

/// Such clients at most: each has its own counts in the keyspace.
pub const INNER_CLIENTS: usize = 3;
/// The number of metered ingest's.
pub const QUOTA: usize = 0;
/// The number of the sagas' steps'.
pub const SAGA: usize = 1;
/// The number of cached tables'.
pub const TABLES: usize = 2;

/// How long the log may take.
const LOG_WAIT: Duration = Duration::from_secs(5);
const LOG_POLL: Duration = Duration::from_micros(50);

/// See the module.
pub struct Inner {
    shared: Arc<Shared>,
    number: usize,
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
    /// An inner client of a server. Each has its own number below [`INNER_CLIENTS`].
    pub fn new(shared: Arc<Shared>, number: usize, seed: u64) -> Inner {
        assert!(number < INNER_CLIENTS, "an inner client's number");
        let session = Session::new(shared.next_client_id());
        let (random, args, out) = (Random::new(seed), OwnedArgs::default(), Writer::new(false));
        let host = InnerHost(Arc::clone(&shared));
        let state = State { session, random, args, out, host };
        Inner { shared, number, state: Mutex::new(state) }
    }

    /// Waits until the log has what has been done, as its policy says: written out, or synced.
    /// False if that cannot be.
    pub fn wait_for_log(&self) -> bool {
        let aof = &self.shared.aof;
        if !aof.is_on() {
            return true;
        }
        let position = aof.log.appended();
        if aof.log.policy() != Policy::Always {
            return aof.log.flush().is_ok();
        }
        let until = Instant::now() + LOG_WAIT;
        while aof.log.durable() < position {
            if Instant::now() > until {
                return false;
            }
            aof.log.end_turn();
            std::thread::sleep(LOG_POLL);
        }
        true
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
        let thread = self.shared.threads() + LOADERS + self.number;
        let core = &self.shared.core;
        let mut turn = Turn { core, thread, now_ms, random, host };
        turn.run(session, out, args.args());
        read(out.bytes())
    }
}
