//! The keyspace: every database's keys, cut into lock shards by hash.
//!
//! ```text
//! hash of a key: | 10 bits: shard | 42 bits: place in the shard's table | 12 bits unused |
//! ```
//!
//! **Invariant:** all databases share the shards, so MOVE and SWAPDB need no second kind of lock.
//! **Invariant:** numbers of keys are counted per thread and summed on demand: no thread writes
//! a line that another one writes.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::commit::{CommitLog, LogBatch};
use crate::due::{DATABASES_MAX, Due};
use crate::image::ShardImage;
use crate::observe::Observer;
use crate::raw::entry::Entry;
use crate::raw::shards::{Held, SHARDS, ShardSet, Shards};
use crate::raw::table::{CURSOR_SHIFT, Place, Table};
use crate::settings::Settings;
use crate::waiting::{Waiting, Watched};

/// The part of a key's hash that its shard's table orders by.
#[inline]
pub fn table_hash(hash: u64) -> u64 {
    hash << SHARDS.trailing_zeros()
}

/// The shard of a key with this hash.
#[inline]
pub fn shard_of(hash: u64) -> usize {
    (hash >> (64 - SHARDS.trailing_zeros())) as usize
}

/// One shard's contents.
#[derive(Default)]
pub struct ShardData {
    first: Table<Entry>,
    others: Vec<Table<Entry>>,
    /// Which keys expire when.
    pub due: Due,
    /// Which hashes have fields that expire, and from when on.
    pub fields_due: Due,
    /// Who waits for which keys to be written.
    pub waiting: Option<Box<Waiting>>,
    /// Who watches which keys.
    pub watched: Option<Box<Watched>>,
    /// The image being taken, until it has passed this shard.
    pub image: Option<Box<ShardImage>>,
}

impl ShardData {
    /// A database's part of the shard, if it ever had a key.
    #[inline]
    pub fn table(&self, db: usize) -> Option<&Table<Entry>> {
        if db == 0 { Some(&self.first) } else { self.others.get(db - 1) }
    }

    /// A database's part of the shard.
    #[inline]
    pub fn table_mut(&mut self, db: usize) -> &mut Table<Entry> {
        if db == 0 {
            return &mut self.first;
        }
        if self.others.len() < db {
            self.others.resize_with(db, Table::new);
        }
        &mut self.others[db - 1]
    }

    /// Hands an entry that is about to change to the image being taken.
    #[cold]
    pub(crate) fn hand_over(&mut self, db: usize, table_hash: u64, place: Place) {
        let Some(mut image) = self.image.take() else { return };
        if let Some(table) = self.table(db) {
            image.before_change(db, table_hash, &table.at(place));
        }
        self.image = Some(image);
    }

    /// Databases that may have keys here.
    pub fn databases(&self) -> usize {
        1 + self.others.len()
    }
}

/// One thread's counts. Written by that thread only, read by all.
#[repr(align(128))]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Tally {
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub expired: AtomicU64,
    /// Fields of hashes that expired.
    pub expired_fields: AtomicU64,
    pub evicted: AtomicU64,
    /// Changes that commands made.
    pub changes: AtomicU64,
    /// Longest and summed lag between a key's due time and its removal, in milliseconds.
    pub expire_lag_max_ms: AtomicU64,
    pub expire_lag_sum_ms: AtomicU64,
    keys: Box<[AtomicI64]>,
    volatile: Box<[AtomicI64]>,
    /// Sums of the times at which those expire, in seconds since 1970.
    expire_seconds: Box<[AtomicI64]>,
}

/// Adds to a counter that no other thread writes: no locked instruction.
#[inline]
pub fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

impl Tally {
    fn new(databases: usize) -> Tally {
        let zeros = || (0..databases).map(|_| AtomicI64::new(0)).collect();
        Tally {
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            expired_fields: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            expire_lag_max_ms: AtomicU64::new(0),
            expire_lag_sum_ms: AtomicU64::new(0),
            keys: zeros(),
            volatile: zeros(),
            expire_seconds: zeros(),
        }
    }

    #[inline]
    pub(crate) fn keys(&self, db: usize, more: i64) {
        let cell = &self.keys[db];
        cell.store(cell.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn volatile(&self, db: usize, more: i64, seconds: i64) {
        for (cells, more) in [(&self.volatile, more), (&self.expire_seconds, seconds)] {
            let sum = cells[db].load(Ordering::Relaxed).wrapping_add(more);
            cells[db].store(sum, Ordering::Relaxed);
        }
    }
}

/// Counts the changes of what expires first in any shard; on a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct DueVersion(AtomicU64);

/// What one thread has seen of when the first key of all expires.
#[derive(Debug, Clone, Copy)]
pub struct DueSeen {
    version: u64,
    next_due_ms: i64,
}

impl Default for DueSeen {
    fn default() -> Self {
        DueSeen { version: 0, next_due_ms: i64::MAX }
    }
}

/// The keyspace; see the module.
pub struct Keyspace {
    pub(crate) shards: Shards<ShardData>,
    next_due_ms: Box<[AtomicI64]>,
    /// The same for fields of hashes.
    next_fields_due_ms: Box<[AtomicI64]>,
    runners: usize,
    due_version: DueVersion,
    tallies: Box<[Tally]>,
    /// For threads that are no event loops: one at a time.
    background: Tally,
    databases: usize,
    /// What can be set at run time.
    pub settings: Settings,
    is_logging: AtomicBool,
    /// No key expires: a log is replayed, which says itself what went when.
    pub keeps_expired: AtomicBool,
    /// A field of a hash was given a time at some time since the start.
    pub(crate) has_field_times: AtomicBool,
    pub(crate) image_taken: AtomicBool,
    log: OnceLock<Box<dyn CommitLog>>,
    pub(crate) observer: OnceLock<Arc<dyn Observer>>,
    pub(crate) is_observed: AtomicBool,
}

impl Keyspace {
    /// An empty keyspace of `databases` databases for up to `threads` threads, each of which
    /// brings its own number to [`Keyspace::tally`].
    ///
    /// # Panics
    /// With no database or more than [`DATABASES_MAX`].
    pub fn new(databases: usize, threads: usize) -> Keyspace {
        assert!((1..=DATABASES_MAX).contains(&databases), "databases: 1 to {DATABASES_MAX}");
        Keyspace {
            shards: Shards::default(),
            next_due_ms: (0..SHARDS).map(|_| AtomicI64::new(i64::MAX)).collect(),
            next_fields_due_ms: (0..SHARDS).map(|_| AtomicI64::new(i64::MAX)).collect(),
            runners: threads,
            due_version: DueVersion::default(),
            tallies: (0..threads).map(|_| Tally::new(databases)).collect(),
            background: Tally::new(databases),
            databases,
            settings: Settings::default(),
            is_logging: AtomicBool::new(false),
            keeps_expired: AtomicBool::new(false),
            has_field_times: AtomicBool::new(false),
            image_taken: AtomicBool::new(false),
            log: OnceLock::new(),
            observer: OnceLock::new(),
            is_observed: AtomicBool::new(false),
        }
    }

    /// With numbers for so many more threads, which only load files.
    pub fn with_loaders(mut self, loaders: usize) -> Keyspace {
        let all = 0..self.runners + loaders;
        self.tallies = all.map(|_| Tally::new(self.databases)).collect();
        self
    }

    /// Threads that run commands.
    #[inline]
    pub fn runners(&self) -> usize {
        self.runners
    }

    /// Number of databases.
    pub fn databases(&self) -> usize {
        self.databases
    }

    /// A thread's counts.
    pub fn tally(&self, thread: usize) -> &Tally {
        &self.tallies[thread]
    }

    /// The counts of the threads that are no event loops, which write them one at a time.
    pub fn background_tally(&self) -> &Tally {
        &self.background
    }

    fn all_tallies(&self) -> impl Iterator<Item = &Tally> {
        self.tallies.iter().chain([&self.background])
    }

    /// Every event loop's counts.
    pub fn tallies(&self) -> &[Tally] {
        &self.tallies
    }

    /// The sum of one count over all threads.
    pub fn total(&self, count: impl Fn(&Tally) -> &AtomicU64) -> u64 {
        self.all_tallies().map(|tally| count(tally).load(Ordering::Relaxed)).sum()
    }

    /// Number of keys in a database.
    pub fn key_count(&self, db: usize) -> usize {
        let sum: i64 = self.all_tallies().map(|t| t.keys[db].load(Ordering::Relaxed)).sum();
        sum.max(0) as usize
    }

    /// Number of keys with a time to live in a database.
    pub fn volatile_count(&self, db: usize) -> usize {
        let sum: i64 = self.all_tallies().map(|t| t.volatile[db].load(Ordering::Relaxed)).sum();
        sum.max(0) as usize
    }

    /// The sum of the times at which the keys of a database expire, in seconds since 1970.
    pub(crate) fn expire_seconds(&self, db: usize) -> i64 {
        let sums = self.all_tallies().map(|t| t.expire_seconds[db].load(Ordering::Relaxed));
        sums.fold(0, i64::wrapping_add)
    }

    /// How long the keys with a time to live have left on average, in milliseconds, to a second.
    pub fn average_ttl_ms(&self, db: usize, now_ms: i64) -> i64 {
        let count = self.volatile_count(db) as i128;
        if count == 0 {
            return 0;
        }
        let left = i128::from(self.expire_seconds(db)) * 1000 / count - i128::from(now_ms);
        left.max(0) as i64
    }

    /// Attaches the commit log, once, and turns it on.
    pub fn attach_log(&self, log: Box<dyn CommitLog>) -> Result<(), Box<dyn CommitLog>> {
        self.log.set(log)?;
        self.set_logging(true);
        Ok(())
    }

    /// Turns the attached log on or off. What is being run goes by what it saw first: hold all
    /// shards where the log must start at one instant.
    pub fn set_logging(&self, is_logging: bool) {
        self.is_logging.store(is_logging && self.log.get().is_some(), Ordering::Relaxed);
    }

    /// Whether somebody takes the commit log.
    #[inline]
    pub fn is_logging(&self) -> bool {
        self.is_logging.load(Ordering::Relaxed)
    }

    /// Hands records to the log, and returns its position after them. The caller holds the shards
    /// that they are about.
    pub fn commit(&self, batch: LogBatch<'_>) -> u64 {
        self.log.get().map_or(0, |log| log.append(batch))
    }

    /// Takes the locks of `set`, unless they are held by somebody who has said that it takes long
    /// ([`Keyspace::begin_long_hold`]).
    #[inline]
    pub fn lock_or_busy(&self, set: &ShardSet) -> Option<Held<'_, ShardData>> {
        self.shards.lock_unless_long(set)
    }

    /// As [`Keyspace::lock_or_busy`], for one key's shard.
    #[inline]
    pub fn lock_one_or_busy(&self, shard: usize) -> Option<Held<'_, ShardData>> {
        self.shards.lock_one_unless_long(shard)
    }

    /// Says that locks will be held for long: who waits for them and can give up does.
    pub fn begin_long_hold(&self) {
        self.shards.begin_long_hold();
    }

    /// Takes that back.
    pub fn end_long_hold(&self) {
        self.shards.end_long_hold();
    }

    /// Takes the locks of `set`.
    pub fn lock(&self, set: &ShardSet) -> Held<'_, ShardData> {
        self.shards.lock(set)
    }

    /// Asks the processor to bring in a shard's lock.
    #[inline]
    pub fn prefetch_lock(&self, shard: usize) {
        self.shards.prefetch(shard);
    }

    /// Takes one shard's lock if it is free.
    pub fn try_lock_one(&self, shard: usize) -> Option<Held<'_, ShardData>> {
        self.shards.try_lock_one(shard)
    }

    /// Takes the lock of one key's shard.
    #[inline]
    pub fn lock_one(&self, shard: usize) -> Held<'_, ShardData> {
        self.shards.lock_one(shard)
    }

    /// When the first key or field of all expires, `i64::MAX` for never; 2048 loads at most.
    pub fn next_due_ms(&self) -> i64 {
        let first = |all: &[AtomicI64]| all.iter().map(|at| at.load(Ordering::Relaxed)).min();
        let fields = if self.has_field_times() { first(&self.next_fields_due_ms) } else { None };
        first(&self.next_due_ms).into_iter().chain(fields).min().unwrap_or(i64::MAX)
    }

    /// Whether a field of a hash may expire.
    #[inline]
    pub fn has_field_times(&self) -> bool {
        self.has_field_times.load(Ordering::Relaxed)
    }

    /// The same, by one load as long as nothing has changed since `seen` was filled in.
    #[inline]
    pub fn next_due_ms_since(&self, seen: &mut DueSeen) -> i64 {
        let version = self.due_version.0.load(Ordering::Acquire);
        if seen.version != version {
            *seen = DueSeen { version, next_due_ms: self.next_due_ms() };
        }
        seen.next_due_ms
    }

    /// The shard whose first key expires next.
    pub fn next_due_shard(&self) -> Option<usize> {
        let all = self.next_due_ms.iter().map(|at| at.load(Ordering::Relaxed)).enumerate();
        all.filter(|(_, at)| *at != i64::MAX).min_by_key(|(_, at)| *at).map(|(shard, _)| shard)
    }

    /// The shards that have a key or a field due at `now_ms`.
    pub fn due_shards(&self, now_ms: i64) -> impl Iterator<Item = usize> + '_ {
        let is_due = move |at: &AtomicI64| at.load(Ordering::Relaxed) <= now_ms;
        let all = self.next_due_ms.iter().zip(&self.next_fields_due_ms).enumerate();
        all.filter(move |(_, (keys, fields))| is_due(keys) || is_due(fields))
            .map(|(shard, _)| shard)
    }

    /// Publishes when a shard's first key expires; its lock is held.
    pub(crate) fn set_next_due_ms(&self, shard: usize, at_ms: i64) {
        self.publish_due(&self.next_due_ms[shard], at_ms);
    }

    /// Publishes when a shard's first field of a hash expires; its lock is held.
    pub(crate) fn set_next_fields_due_ms(&self, shard: usize, at_ms: i64) {
        self.publish_due(&self.next_fields_due_ms[shard], at_ms);
    }

    fn publish_due(&self, cell: &AtomicI64, at_ms: i64) {
        if cell.load(Ordering::Relaxed) != at_ms {
            cell.store(at_ms, Ordering::Relaxed);
            self.due_version.0.fetch_add(1, Ordering::Release);
        }
    }

    /// What a client sees as the cursor of a place in the scan order: at most 52 bits.
    pub(crate) fn cursor(shard: usize, table_cursor: u64) -> u64 {
        (shard as u64) << (64 - CURSOR_SHIFT) | table_cursor >> CURSOR_SHIFT
    }

    /// The inverse of `cursor`.
    pub(crate) fn place(cursor: u64) -> (usize, u64) {
        let shard = (cursor >> (64 - CURSOR_SHIFT)) as usize;
        (shard.min(SHARDS), cursor << CURSOR_SHIFT)
    }

    /// Asks the processor to bring in where a key's search starts (its shard must be held).
    #[inline]
    pub fn prefetch(held: &Held<'_, ShardData>, hash: u64, db: usize) {
        if let Some(table) = held.shard(shard_of(hash)).table(db) {
            table.prefetch(table_hash(hash));
        }
    }

    /// Asks the processor to bring in a key's entry (its shard must be held).
    #[inline]
    pub fn prefetch_entry(held: &Held<'_, ShardData>, hash: u64, db: usize) {
        if let Some(table) = held.shard(shard_of(hash)).table(db) {
            table.prefetch_item(table_hash(hash));
        }
    }
}
