//! The image of the keyspace at one instant, taken while it goes on changing: no fork, no copy.
//!
//! An image begins with all shards locked for a moment. From then on a walker visits shard after
//! shard in hash order, a few keys under the lock at a time, and hands each to the sink. Whoever is
//! about to change a key that the walker has not come to hands it over first, as it was.
//!
//! ```text
//! shard:   0 1 2 ... walked ... | s: keys below `place` walked | ... not yet begun ...
//! change of a key:  nothing to do | once: hand over, mark        | once: hand over, mark
//! ```
//!
//! **Invariant:** each key that was there at the instant reaches the sink once, with the value it
//! had then; no other key does. An entry ahead of the walker is settled, which is one bit of it,
//! when it is handed over early or made after the instant; the walker takes the bit back as it
//! passes. A key that is deleted leaves nothing behind: there is nothing to hand over twice.
//!
//! **Invariant:** an entry is settled only while an image is taken, and ahead of its walker; who
//! gives an image up walks on to take the bits back.
//!
//! **Bound:** nothing is remembered a key; what is handed over early is the sink's, which may let
//! the caller wait until there is room. The walker therefore never waits for a lock: it tries.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::due::DATABASES_MAX;
use crate::keyspace::{Keyspace, ShardData};
use crate::raw::entry::Entry;
use crate::raw::shards::{SHARDS, ShardSet};
use crate::raw::table::Table;

/// Takes the entries of an image: an RDB writer, a replica's stream.
pub trait ImageSink: Send + Sync {
    /// One entry as it was at the instant, in the database it was in then. Called with its shard
    /// locked, by the walker or by a thread that is about to change it; may wait for room, but for
    /// nothing that needs a shard. Returns roughly how many bytes it took.
    fn entry(&self, db: usize, entry: &Entry) -> usize;
}

/// Entries of an image given up that are looked at while one lock is held.
const UNSETTLED_AT_ONCE: usize = 256;

/// An image is being taken already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy;

/// What one shard knows of the image being taken; gone once the walker has passed it.
pub struct ShardImage {
    /// `None` once the image was given up.
    sink: Option<Arc<dyn ImageSink>>,
    /// By database as it was numbered at the instant.
    tables: Vec<Walk>,
    /// Whether an entry was settled here.
    has_settled: bool,
}

/// How far one database's part of a shard has been walked.
struct Walk {
    /// The number of the database now (SWAPDB), `None` if it was emptied since.
    now: Option<usize>,
    /// Keys with hashes below this have been handed over.
    place: u64,
    /// All of it has been.
    done: bool,
    /// The table itself, if the database was emptied since.
    flushed: Option<Table<Entry>>,
}

impl ShardImage {
    fn new(sink: Arc<dyn ImageSink>, databases: usize) -> ShardImage {
        let walk = |db| Walk { now: Some(db), place: 0, done: false, flushed: None };
        let tables = (0..databases).map(walk).collect();
        ShardImage { sink: Some(sink), tables, has_settled: false }
    }

    /// Notes that an entry of database `db`, at `table_hash`, is about to change or go.
    pub(crate) fn before_change(&mut self, db: usize, table_hash: u64, entry: &Entry) {
        if !entry.is_settled()
            && let Some((sink, then)) = self.settle(db, table_hash, entry)
        {
            sink.entry(then, entry);
        }
    }

    /// Notes that an entry is made of a key that was not there.
    pub(crate) fn before_making(&mut self, db: usize, table_hash: u64, entry: &Entry) {
        self.settle(db, table_hash, entry);
    }

    /// Settles an entry that the walker has not come to; `Some` with the sink and the number that
    /// the database had at the instant if it has not.
    fn settle(
        &mut self,
        db: usize,
        table_hash: u64,
        entry: &Entry,
    ) -> Option<(&dyn ImageSink, usize)> {
        let sink = self.sink.as_deref()?;
        let then = self.tables.iter().position(|walk| walk.now == Some(db) && !walk.done)?;
        if table_hash < self.tables[then].place {
            return None;
        }
        entry.set_settled(true);
        self.has_settled = true;
        Some((sink, then))
    }

    /// Leaves only what taking the bits back needs; returns the rest.
    fn give_up(&mut self) -> Option<ShardImage> {
        let tables = self.tables.iter_mut().map(|walk| {
            let flushed = walk.flushed.take();
            Walk { now: walk.now, place: walk.place, done: walk.done, flushed }
        });
        let tables = tables.collect();
        Some(ShardImage { sink: self.sink.take(), tables, has_settled: false })
    }

    /// Takes over the keys of a database that is being emptied, if it has not walked them; else
    /// gives them back.
    pub(crate) fn before_flush(&mut self, db: usize, table: Table<Entry>) -> Option<Table<Entry>> {
        if self.sink.is_none() {
            return Some(table);
        }
        let ahead = self.tables.iter_mut().find(|walk| walk.now == Some(db) && !walk.done);
        let Some(walk) = ahead else { return Some(table) };
        walk.now = None;
        walk.flushed = Some(table);
        None
    }

    /// Notes that two databases change places.
    pub(crate) fn swap(&mut self, one: usize, other: usize) {
        for walk in &mut self.tables {
            walk.now = match walk.now {
                Some(db) if db == one => Some(other),
                Some(db) if db == other => Some(one),
                same => same,
            };
        }
    }
}

impl Keyspace {
    /// Begins an image at one instant: `at_instant` runs then, with every shard locked, so what it
    /// notes (the position of the commit log) belongs to exactly this image.
    pub fn begin_image(
        &self,
        sink: Arc<dyn ImageSink>,
        at_instant: impl FnOnce(),
    ) -> Result<(), Busy> {
        if self.image_taken.swap(true, Ordering::Acquire) {
            return Err(Busy);
        }
        let mut held = self.lock(&ShardSet::ALL);
        for shard in 0..SHARDS {
            let data = held.shard_mut(shard);
            let databases = data.databases().min(DATABASES_MAX);
            let empty = (0..databases).all(|db| data.table(db).is_none_or(Table::is_empty));
            if !empty {
                data.image = Some(Box::new(ShardImage::new(Arc::clone(&sink), databases)));
            }
        }
        at_instant();
        Ok(())
    }

    /// Hands over keys of one shard, about `entries_max` or `bytes_max`, if its lock is free.
    /// `None` if it was not, else whether the shard is finished.
    pub fn walk_image(&self, shard: usize, entries_max: usize, bytes_max: usize) -> Option<bool> {
        let mut held = self.try_lock_one(shard)?;
        let data = held.shard_mut(shard);
        let Some(mut image) = data.image.take() else { return Some(true) };
        let mut room = (entries_max, bytes_max);
        let finished = (0..image.tables.len()).all(|then| image.walk(data, then, &mut room));
        if !finished {
            data.image = Some(image);
            return Some(false);
        }
        // What it held on to is freed after the lock is given back.
        drop(held);
        drop(image);
        Some(true)
    }

    /// Ends the image: to be called after the last shard is finished, or to give it up.
    pub fn end_image(&self) {
        for shard in 0..SHARDS {
            let mut held = self.lock_one(shard);
            let image = &mut held.shard_mut(shard).image;
            let given_up = match image {
                Some(image) if image.has_settled => image.give_up(),
                image => image.take().map(|image| *image),
            };
            // What it held on to is freed after the lock is given back.
            drop(held);
            drop(given_up);
        }
        for shard in 0..SHARDS {
            while self.walk_image(shard, UNSETTLED_AT_ONCE, usize::MAX) != Some(true) {
                std::thread::yield_now();
            }
        }
        self.image_taken.store(false, Ordering::Release);
    }

    /// Whether an image is being taken.
    pub fn has_image(&self) -> bool {
        self.image_taken.load(Ordering::Relaxed)
    }
}

impl ShardImage {
    /// Walks one database's part on, as far as there is room; true once it is done.
    fn walk(&mut self, data: &ShardData, then: usize, room: &mut (usize, usize)) -> bool {
        const STEP: usize = 8;
        let sink = self.sink.as_deref();
        let walk = &mut self.tables[then];
        while !walk.done && room.0 > 0 && room.1 > 0 {
            let table = walk.flushed.as_ref().or_else(|| data.table(walk.now?));
            let next = table.and_then(|table| {
                table.scan(walk.place, STEP.min(room.0), |entry| {
                    room.0 = room.0.saturating_sub(1);
                    if entry.is_settled() {
                        entry.set_settled(false);
                    } else if let Some(sink) = sink {
                        room.1 = room.1.saturating_sub(sink.entry(then, entry));
                    }
                })
            });
            match next {
                Some(place) => walk.place = place,
                None => {
                    walk.done = true;
                    walk.flushed = None;
                }
            }
        }
        walk.done
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::*;
    use crate::effects::Freeing;
    use crate::keys::{Expire, Keys};
    use crate::random::Random;
    use crate::raw::entry::NewValue;
    use crate::value::{Value, ValueRef};

    type Contents = BTreeMap<(usize, Vec<u8>), (String, Option<i64>)>;

    /// Keeps what it is given, and fails at the second entry of a key.
    #[derive(Default)]
    struct Kept(Mutex<Contents>);

    fn describe(entry: &Entry) -> (String, Option<i64>) {
        let text = match entry.value() {
            ValueRef::Number(number) => format!("number {number}"),
            ValueRef::Bytes(bytes) => format!("bytes {}", bytes.len()),
            ValueRef::Set(set) => format!("set of {}", set.len()),
            other => format!("{} elements", other.len()),
        };
        (text, entry.expire_at())
    }

    impl ImageSink for Kept {
        fn entry(&self, db: usize, entry: &Entry) -> usize {
            let mut kept = self.0.lock().expect("no test panics while it keeps");
            let before = kept.insert((db, entry.key().to_vec()), describe(entry));
            assert!(before.is_none(), "{db} {:?} came twice", entry.key());
            100
        }
    }

    const DATABASES: usize = 3;
    const NOW_MS: i64 = 1_000;

    fn keys(space: &Keyspace) -> Keys<'_> {
        let held = space.lock(&ShardSet::ALL);
        Keys::new(space, held, space.tally(0), NOW_MS, Random::new(5))
    }

    fn contents(space: &Keyspace) -> Contents {
        let mut keys = keys(space);
        let mut all = Contents::new();
        for db in 0..DATABASES {
            keys.select(db);
            keys.for_each(|entry| {
                all.insert((db, entry.key().to_vec()), describe(entry));
            });
        }
        all
    }

    /// One random change of one of a few hundred keys, or now and then of a whole database.
    fn change(space: &Keyspace, random: &mut Random) {
        let mut keys = keys(space);
        keys.select(random.below(DATABASES));
        let key = format!("key {}", random.below(300)).into_bytes();
        match random.below(200) {
            0 => drop(keys.flush(random.below(DATABASES), Freeing::Here)),
            1 => keys.swap(random.below(2), 2),
            2..20 => drop(keys.remove(&key)),
            20..40 => drop(keys.set_expire_at(&key, Some(NOW_MS + 1 + random.below(50) as i64))),
            40..80 => {
                let member = random.below(1000).to_string();
                if let Ok(set) = keys.set_or_new(&key) {
                    set.insert(member.as_bytes(), space.settings.set_limits());
                    keys.changed(&key);
                }
            }
            80..120 => drop(keys.add_number(&key, 1)),
            _ => {
                let value = NewValue::Value(Value::Number(random.below(1000) as i64));
                keys.set(&key, value, Expire::Never);
            }
        }
    }

    #[test]
    fn an_image_is_what_was_there_at_the_instant() {
        let mut random = Random::new(7);
        for round in 0..if cfg!(miri) { 1 } else { 60 } {
            let space = Keyspace::new(DATABASES, 1);
            for _ in 0..400 {
                change(&space, &mut random);
            }
            let kept = Arc::new(Kept::default());
            let mut at_instant = None;
            let sink = Arc::clone(&kept) as Arc<dyn ImageSink>;
            assert!(space.begin_image(sink, || at_instant = Some(())).is_ok());
            let want = contents(&space);
            assert_eq!(space.begin_image(kept.clone(), || {}), Err(Busy), "one at a time");
            for shard in 0..SHARDS {
                while space.walk_image(shard, 1, 1 << 20) != Some(true) {
                    change(&space, &mut random);
                }
                if random.below(3) == 0 {
                    change(&space, &mut random);
                }
            }
            space.end_image();
            assert!(at_instant.is_some());
            let got = std::mem::take(&mut *kept.0.lock().expect("as above"));
            assert!(got == want, "round {round}");
            assert!(!space.has_image());
        }
    }

    #[test]
    fn an_image_given_up_leaves_nothing_behind() {
        let space = Keyspace::new(DATABASES, 1);
        let mut random = Random::new(3);
        for _ in 0..if cfg!(miri) { 1 } else { 20 } {
            (0..100).for_each(|_| change(&space, &mut random));
            let kept = Arc::new(Kept::default());
            assert!(space.begin_image(kept.clone(), || {}).is_ok());
            for shard in 0..random.below(SHARDS) {
                space.walk_image(shard, 1, 1 << 20);
                if shard % 8 == 0 {
                    change(&space, &mut random);
                }
            }
            (0..200).for_each(|_| change(&space, &mut random));
            space.end_image();
            assert_eq!(Arc::strong_count(&kept), 1);
            // The next one misses none of what was settled then.
            let want = contents(&space);
            let kept = Arc::new(Kept::default());
            assert!(space.begin_image(kept.clone(), || {}).is_ok());
            for shard in 0..SHARDS {
                while space.walk_image(shard, 1, 1 << 20) != Some(true) {}
            }
            space.end_image();
            let got = std::mem::take(&mut *kept.0.lock().expect("no test panics"));
            assert!(got == want);
        }
    }
}
