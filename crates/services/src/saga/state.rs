//! Where transactions are kept beyond this process: a log on this machine now, a store that several
//! machines share later.
//!
//! ```text
//!   keep       a record, whole or what changed; each belongs to one transaction or one topic
//!   write      out of this process's hands      when_safe   durable
//!   forget     a transaction's records may go
//!   to_shorten where old records could be cut off, once what is alive among them is kept again
//! ```
//!
//! A store of keys needs no more than one key for each operation: records of a transaction are one
//! list under its id (a whole one replaces the list), and there is nothing to shorten. What was
//! kept is given back by [`Coordinator::replay`], the records of each transaction in their order;
//! those of different ones in any.
//!
//! **Invariant:** what was safe at the time of a crash is given back; of what was kept after that,
//! each transaction's records up to some point of theirs.
//!
//! [`Coordinator::replay`]: super::coordinator::Coordinator::replay

use std::io;
use std::sync::Arc;

use persist::journal::{Journal, Position, WhenSafe};

/// The log may be this many times as large as what is alive in it, and `LOG_BYTES_SPARE` more.
const LOG_WASTE: u64 = 3;
const LOG_BYTES_SPARE: u64 = 256 << 20;

/// See the module.
pub trait State: Send + Sync {
    /// Keeps a record; gives a position after it, which ascends. It is taken even while the store
    /// fails: who can refuse new work asks [`State::is_healthy`] before.
    fn keep(&self, record: &[u8]) -> Position;

    /// Sees to it that everything kept outlives this process.
    ///
    /// # Errors
    /// The store does not take it now; it will be tried again.
    fn write(&self) -> io::Result<()>;

    /// Calls `done` when everything before a position is as safe as it gets, from any thread.
    fn when_safe(&self, position: Position, done: WhenSafe);

    /// Whether the store takes what it is given, and not too much waits for it.
    fn is_healthy(&self) -> bool;

    /// The position after the last record.
    fn end(&self) -> Position;

    /// A transaction is forgotten.
    fn forget(&self, id: u64);

    /// Where the records could be cut off, if `alive` bytes are so few of them that it is worth
    /// while.
    fn to_shorten(&self, alive: u64) -> Option<Position>;

    /// Nothing before a position is needed any more.
    fn remove_before(&self, position: Position);
}

/// The state in a log.
pub struct Logged(pub Arc<dyn Journal>);

impl State for Logged {
    fn keep(&self, record: &[u8]) -> Position {
        self.0.append(record)
    }

    fn write(&self) -> io::Result<()> {
        self.0.write()
    }

    fn when_safe(&self, position: Position, done: WhenSafe) {
        self.0.when_safe(position, done);
    }

    fn is_healthy(&self) -> bool {
        self.0.is_healthy()
    }

    fn end(&self) -> Position {
        self.0.end()
    }

    /// Its records go with their segment.
    fn forget(&self, _: u64) {}

    fn to_shorten(&self, alive: u64) -> Option<Position> {
        let segments = self.0.segments();
        let length = self.0.end() - segments.first().copied().unwrap_or(0);
        let is_worth_it = length > LOG_WASTE * alive + LOG_BYTES_SPARE;
        segments.get(1).copied().filter(|_| is_worth_it)
    }

    fn remove_before(&self, position: Position) {
        self.0.remove_before(position);
    }
}
