//! A database as the keyspace holds it: one writing connection that is lent to whoever runs SQL, a
//! thread of its own for what takes long, and what must still be logged.
//!
//! ```text
//! command arrives, key locked --try--> Lease: runs here, logs under the key's lock
//!                            --busy, long, on file--> queue --> the database's thread: Lease,
//!                                 runs, leaves its records in `unlogged`, ends the lease, takes
//!                                 the key's lock, logs
//! MULTI, Lua, key locked     --wait a little--> Lease until the end of the transaction
//! SQL.BEGIN                  --> Lease that reserves: other commands wait until it is dropped
//! image, key locked          --> whoever has the lease for long undoes, lends it, does it again
//! ```
//!
//! **Invariant:** who holds a lease never waits for a key's lock; so who holds keys' locks may wait
//! for a lease.
//! **Invariant:** what was done is logged in the order in which it was done: whoever gets a lease
//! under the key's lock logs first what others left in `unlogged`.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use keyspace::types::foreign::{Foreign, ForeignValue};

use crate::budget::Budget;
use crate::connection::Connection;
use crate::error::SqlError;
use crate::image;
use crate::index::Indexes;
use crate::queue::Job;
use crate::readers::Readers;

/// The name that TYPE answers: RediSQL's.
pub const TYPE_NAME: &str = "rediSQLDB";

/// A record for the commit log: the words after `SQL.APPLY key`.
pub type Record = Vec<Vec<u8>>;

/// See the module.
pub struct Database {
    /// Its file, if it has one.
    pub path: Option<PathBuf>,
    slot: Mutex<Slot>,
    free: Condvar,
    /// How long what runs now may run.
    pub budget: Arc<Budget>,
    /// Commands that wait for the database's thread.
    pub(crate) queue: Mutex<Queue>,
    pub(crate) wake: Condvar,
    /// Commands waiting or running there.
    pub(crate) queued: AtomicUsize,
    /// What was done and is not logged yet, in order.
    pub(crate) unlogged: Mutex<Vec<Record>>,
    pub(crate) has_unlogged: AtomicBool,
    /// The number of the last record.
    pub(crate) sequence: AtomicU64,
    bytes: AtomicUsize,
    /// Who reads beside the writer.
    pub(crate) readers: Readers,
    /// Its tables that are kept in step with hashes.
    pub indexes: Indexes,
}

/// Where the writing connection lies while nobody uses it.
#[derive(Default)]
struct Slot {
    connection: Option<Box<Connection>>,
    /// The thread that took it last.
    holder: Option<ThreadId>,
    /// A client's transaction is open: the connection is for it, and for images.
    is_reserved: bool,
    /// Wakes the transaction's thread so that it makes way.
    make_way: Option<Box<dyn Fn() + Send>>,
}

/// What a lease is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    /// A command.
    Command,
    /// A transaction with keys: it holds them, and with them what an open transaction needs to end.
    Unit,
    /// The open transaction itself, which made way.
    Transaction,
    /// An image: who runs for long makes way.
    Image,
}

/// What waits for a database's thread.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) jobs: VecDeque<Job>,
    pub(crate) has_thread: bool,
    pub(crate) is_closed: bool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Database {
    /// Opens a database in memory, or on file.
    ///
    /// # Errors
    /// SQLite's.
    pub fn open(path: Option<&Path>) -> Result<Arc<Database>, SqlError> {
        let mut connection = Connection::open(path)?;
        image::prepare(&mut connection, path)?;
        let sequence = image::sequence(&connection)?;
        let budget = Arc::clone(&connection.budget);
        let bytes = connection.handle.memory();
        let indexes = Indexes::default();
        indexes.reload(&connection);
        connection.indexes_changed = false;
        Ok(Arc::new(Database {
            path: path.map(Path::to_path_buf),
            slot: Mutex::new(Slot { connection: Some(Box::new(connection)), ..Slot::default() }),
            free: Condvar::new(),
            budget,
            queue: Mutex::default(),
            wake: Condvar::new(),
            queued: AtomicUsize::new(0),
            unlogged: Mutex::default(),
            has_unlogged: AtomicBool::new(false),
            sequence: AtomicU64::new(sequence),
            bytes: AtomicUsize::new(bytes),
            readers: Readers::default(),
            indexes,
        }))
    }

    /// The writing connection, if nobody uses it or waits for it.
    pub fn try_lease(self: &Arc<Self>) -> Option<Lease> {
        if self.queued.load(Ordering::Acquire) > 0 {
            return None;
        }
        self.take(&mut lock(&self.slot), Want::Command)
    }

    fn take(self: &Arc<Self>, slot: &mut Slot, want: Want) -> Option<Lease> {
        let waits = match want {
            Want::Command | Want::Unit => slot.is_reserved || self.budget.is_urgent(),
            Want::Transaction => self.budget.is_urgent(),
            Want::Image => false,
        };
        let connection = if waits { None } else { slot.connection.take() }?;
        slot.holder = Some(thread::current().id());
        Some(Lease { database: Arc::clone(self), connection: Some(connection), reserves: false })
    }

    fn wait(self: &Arc<Self>, want: Want, until: Option<Instant>) -> Option<Lease> {
        let mut slot = lock(&self.slot);
        loop {
            if let Some(lease) = self.take(&mut slot, want) {
                return Some(lease);
            }
            if want == Want::Unit && slot.is_reserved {
                return None;
            }
            slot = match until {
                None => self.free.wait(slot).unwrap_or_else(|poisoned| poisoned.into_inner()),
                Some(until) => {
                    let left = until.checked_duration_since(Instant::now())?;
                    let waited = self.free.wait_timeout(slot, left);
                    waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0
                }
            };
        }
    }

    /// The writing connection, as soon as nobody uses it.
    pub fn lease(self: &Arc<Self>) -> Lease {
        self.wait(Want::Command, None).expect("there is no end to the wait")
    }

    /// The same, unless it takes longer than so many milliseconds.
    pub fn lease_within(self: &Arc<Self>, ms: u64) -> Option<Lease> {
        self.wait(Want::Command, Some(Instant::now() + Duration::from_millis(ms)))
    }

    /// The same for who holds keys: at once no if a client's transaction is open, which could not
    /// go on.
    pub fn lease_for_unit(self: &Arc<Self>, ms: u64) -> Option<Lease> {
        self.wait(Want::Unit, Some(Instant::now() + Duration::from_millis(ms)))
    }

    /// The writing connection with nothing but what was committed in it, for an image: whoever uses
    /// it for long makes way, and does again afterwards what it did. `None` inside a transaction
    /// with keys that has changed the database: it holds the connection itself.
    pub fn urgent_lease(self: &Arc<Self>) -> Option<Lease> {
        let slot = lock(&self.slot);
        if slot.connection.is_none() && slot.holder == Some(thread::current().id()) {
            return None;
        }
        self.budget.add_urgent(1);
        if let Some(make_way) = &slot.make_way {
            make_way();
        }
        drop(slot);
        let lease = self.wait(Want::Image, None);
        self.budget.add_urgent(-1);
        lease
    }

    /// Whether the open transaction of a client keeps others from the writing connection.
    pub fn is_reserved(&self) -> bool {
        lock(&self.slot).is_reserved
    }

    /// Whether its key has let go of it.
    pub fn is_gone(&self) -> bool {
        lock(&self.queue).is_closed
    }

    /// Whether somebody uses the writing connection.
    pub fn is_busy(&self) -> bool {
        lock(&self.slot).connection.is_none()
    }

    /// Whether it is kept in a file.
    pub fn is_on_file(&self) -> bool {
        self.path.is_some()
    }

    /// Bytes that it takes, as of the last use.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Leaves a record that its writer cannot log, since it does not hold the key.
    pub(crate) fn leave(&self, record: Record) {
        lock(&self.unlogged).push(record);
        self.has_unlogged.store(true, Ordering::Release);
    }

    /// Takes what was left to be logged.
    pub(crate) fn take_unlogged(&self) -> Vec<Record> {
        if !self.has_unlogged.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut unlogged = lock(&self.unlogged);
        self.has_unlogged.store(false, Ordering::Release);
        std::mem::take(&mut *unlogged)
    }
}

/// The writing connection, until it is dropped.
pub struct Lease {
    /// Whose it is.
    pub database: Arc<Database>,
    connection: Option<Box<Connection>>,
    /// It is a transaction's: others wait until it is dropped.
    reserves: bool,
}

impl Deref for Lease {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("there until the lease is dropped")
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("there until the lease is dropped")
    }
}

impl Lease {
    /// Gives the connection back now; only dropping or replacing may follow.
    pub(crate) fn end(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        if connection.in_group {
            connection.rollback_group();
        }
        if std::mem::take(&mut connection.indexes_changed) {
            self.database.indexes.reload(&connection);
        }
        connection.reload_limits();
        self.database.bytes.store(connection.bytes(), Ordering::Relaxed);
        lock(&self.database.slot).connection = Some(connection);
        self.database.free.notify_all();
    }

    /// Keeps the connection for a client's transaction until the lease is dropped. `make_way` is
    /// called when somebody needs an image meanwhile; [`Lease::make_way`] has to follow.
    pub(crate) fn reserve(&mut self, make_way: Box<dyn Fn() + Send>) {
        let mut slot = lock(&self.database.slot);
        (slot.is_reserved, slot.make_way) = (true, Some(make_way));
        self.reserves = true;
    }

    /// Undoes what is not committed, lets those take an image who wait for one, and comes back.
    /// Nobody else has written meanwhile if the lease reserves.
    pub(crate) fn make_way(&mut self) {
        self.end();
        self.come_back();
    }

    /// Takes the connection again after [`Lease::end`].
    pub(crate) fn come_back(&mut self) {
        let want = if self.reserves { Want::Transaction } else { Want::Command };
        let back = self.database.wait(want, None);
        self.connection = back.and_then(|mut lease| lease.connection.take());
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.reserves {
            let mut slot = lock(&self.database.slot);
            (slot.is_reserved, slot.make_way) = (false, None);
        }
        self.end();
    }
}

/// The share of a database that its key holds: when the last goes, the thread ends.
pub struct Held(pub Arc<Database>);

impl Drop for Held {
    fn drop(&mut self) {
        lock(&self.0.queue).is_closed = true;
        self.0.wake.notify_all();
    }
}

impl ForeignValue for Held {
    fn type_name(&self) -> &'static str {
        TYPE_NAME
    }

    fn encoding(&self) -> &'static str {
        if self.0.is_on_file() { "file" } else { "memory" }
    }

    fn memory(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }

    fn free_effort(&self) -> usize {
        1 + self.memory() / 4096
    }

    fn image(&self) -> Result<Vec<u8>, String> {
        let lease = self.0.urgent_lease();
        let mut lease = lease.ok_or("a transaction that is not committed has the database")?;
        image::write(&self.0, &mut lease).map_err(|error| error.message)
    }

    fn duplicate(&self) -> Result<Foreign, String> {
        // One on file becomes one in memory: two may not share a file.
        let lease = self.0.urgent_lease();
        let lease = lease.ok_or("a transaction that is not committed has the database")?;
        let file = lease.handle.serialize().map_err(|error| error.message)?;
        drop(lease);
        image::of_file(&file).map(|database| Foreign::new(Held(database)))
    }
}
