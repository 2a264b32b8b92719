//! The door to the keyspace for commands: typed access to the keys of the shards that are held.
//!
//! Reading takes `&self`, so several keys can be looked at together; what reading changes (last
//! use, hit counts) lies in cells. A key past its time is never seen, whether or not it has been
//! removed yet.
//!
//! **Invariant:** every change of a value ends in [`Keys::changed`] (or a method that calls it):
//! that is what wakes blocked clients, breaks WATCH and counts as dirty.

use std::cell::RefCell;

use crate::access;
use crate::due::DueKey;
use crate::effects::{Effects, Event, Garbage, class};
use crate::hasher::hash;
use crate::keyspace::{Keyspace, ShardData, Tally, add, shard_of, table_hash};
use crate::random::Random;
use crate::raw::entry::{Entry, NewValue};
use crate::raw::shards::{Held, SHARDS};
use crate::raw::table::{Ref, RefMut, Table};
use crate::types::hash::Hash;
use crate::types::list::List;
use crate::types::set::Set;
use crate::types::stream::Stream;
use crate::types::zset::Zset;
use crate::value::{Kind, Value, ValueMut, ValueRef};
use crate::waiting::Watched;

mod waiting;

/// The key holds another type than the command works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongType;

/// What becomes of a key's time to live when its value is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expire {
    /// It stays as it was.
    Keep,
    /// There is none any more.
    Never,
    /// It expires at this time, in milliseconds since 1970.
    At(i64),
}

/// What overwriting a value has changed.
struct Overwritten {
    expired_at: Option<i64>,
    expires_at: Option<i64>,
    /// What it held, if that was a collection.
    old: Option<Value>,
}

/// Values whose freeing takes more steps than this are freed after the locks are given back.
const FREE_INLINE_MAX: usize = 64;

/// See the module.
pub struct Keys<'a> {
    space: &'a Keyspace,
    held: Held<'a, ShardData>,
    tally: &'a Tally,
    db: usize,
    now_ms: i64,
    /// What has been done so far.
    pub effects: Effects,
    /// This thread's random numbers.
    pub random: RefCell<Random>,
    /// Whether reading counts as use (CLIENT NO-TOUCH turns it off).
    pub touch: bool,
}

macro_rules! typed {
    ($Type:ident, $kind:ident, $get:ident, $get_mut:ident, $or_new:ident, $what:literal) => {
        #[doc = concat!("The ", $what, " at `key`, to be read.")]
        pub fn $get(&self, key: &[u8]) -> Result<Option<&$Type>, WrongType> {
            match self.get(key) {
                None => Ok(None),
                Some(ValueRef::$kind(value)) => Ok(Some(value)),
                Some(_) => Err(WrongType),
            }
        }

        #[doc = concat!("The ", $what, " at `key`, to be changed; call `changed` after.")]
        pub fn $get_mut(&mut self, key: &[u8]) -> Result<Option<&mut $Type>, WrongType> {
            match self.entry_mut(key).map(RefMut::into_value_mut) {
                None => Ok(None),
                Some(ValueMut::$kind(value)) => Ok(Some(value)),
                Some(_) => Err(WrongType),
            }
        }

        #[doc = concat!("The ", $what, " at `key`, made if there is none; call `changed` after.")]
        pub fn $or_new(&mut self, key: &[u8]) -> Result<&mut $Type, WrongType> {
            if !self.exists(key) {
                self.insert(key, NewValue::Value(Value::$kind($Type::default())), None);
            }
            match self.entry_mut(key).map(RefMut::into_value_mut) {
                Some(ValueMut::$kind(value)) => Ok(value),
                _ => Err(WrongType),
            }
        }
    };
}

impl<'a> Keys<'a> {
    /// Access to the shards of `held`, in database 0, by the thread that owns `tally`.
    #[inline]
    pub fn new(
        space: &'a Keyspace,
        held: Held<'a, ShardData>,
        tally: &'a Tally,
        now_ms: i64,
        random: Random,
    ) -> Keys<'a> {
        Keys {
            space,
            held,
            tally,
            db: 0,
            now_ms,
            effects: Effects::default(),
            random: RefCell::new(random),
            touch: true,
        }
    }

    /// The whole keyspace, for settings and counts.
    pub fn space(&self) -> &'a Keyspace {
        self.space
    }

    /// The locks.
    pub fn held(&mut self) -> &mut Held<'a, ShardData> {
        &mut self.held
    }

    /// Now, in milliseconds since 1970: the same for all of a command or transaction.
    #[inline]
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// The database that keys are looked up in.
    pub fn db(&self) -> usize {
        self.db
    }

    /// Looks keys up in another database from now on.
    #[inline]
    pub fn select(&mut self, db: usize) {
        debug_assert!(db < self.space.databases());
        self.db = db;
    }

    /// Number of keys in the current database.
    pub fn key_count(&self) -> usize {
        self.space.key_count(self.db)
    }

    /// Adds the changes made to the thread's tally.
    #[inline]
    pub fn count_changes(&self) {
        if self.effects.dirty != 0 {
            add(&self.tally.changes, self.effects.dirty);
        }
    }

    // Looking up.

    #[inline]
    fn find(&self, key: &[u8]) -> Option<Ref<'_, Entry>> {
        let hash = hash(key);
        let table = self.held.shard(shard_of(hash)).table(self.db)?;
        let entry = table.find(table_hash(hash), |entry| entry.key() == key)?;
        let gone = entry.expire_at().is_some_and(|at| at <= self.now_ms);
        if gone { None } else { Some(entry) }
    }

    /// The value at `key`, to be read: counts as a use of it, and as a hit or a miss.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<ValueRef<'_>> {
        let Some(entry) = self.find(key) else {
            add(&self.tally.misses, 1);
            return None;
        };
        add(&self.tally.hits, 1);
        if self.touch {
            self.touch_entry(&entry);
        }
        Some(entry.into_value())
    }

    #[inline]
    fn touch_entry(&self, entry: &Entry) {
        let settings = &self.space.settings;
        let random = &mut self.random.borrow_mut();
        entry.set_access(access::touched(settings, entry.access(), self.now_ms, random));
    }

    /// Publishes a `keymiss` event when a read found nothing, if anybody asked for those.
    pub fn notify_miss(&mut self, key: &[u8]) {
        self.notify(class::MISS, "keymiss", key);
    }

    /// The value at `key` without counting as a use.
    pub fn peek(&self, key: &[u8]) -> Option<ValueRef<'_>> {
        self.find(key).map(Ref::into_value)
    }

    /// Looks at the whole entry without counting as a use.
    pub fn inspect<T>(&self, key: &[u8], look: impl FnOnce(&Entry) -> T) -> Option<T> {
        self.find(key).map(|entry| look(&entry))
    }

    /// Whether the key is there; no use, no hit.
    pub fn exists(&self, key: &[u8]) -> bool {
        self.find(key).is_some()
    }

    /// The key's type; no use, no hit.
    pub fn kind(&self, key: &[u8]) -> Option<Kind> {
        self.find(key).map(|entry| entry.kind())
    }

    /// The key's type, counting as a hit or a miss but not as a use (EXISTS, TYPE, TTL).
    pub fn look_up(&self, key: &[u8]) -> Option<Kind> {
        let kind = self.kind(key);
        add(if kind.is_some() { &self.tally.hits } else { &self.tally.misses }, 1);
        kind
    }

    /// Counts as a use (TOUCH); false if there is no such key.
    pub fn use_key(&self, key: &[u8]) -> bool {
        self.find(key).map(|entry| self.touch_entry(&entry)).is_some()
    }

    /// When the key expires: `None` = no such key, `Some(None)` = never.
    pub fn expire_at(&self, key: &[u8]) -> Option<Option<i64>> {
        self.find(key).map(|entry| entry.expire_at())
    }

    fn entry_mut(&mut self, key: &[u8]) -> Option<RefMut<'_, Entry>> {
        let hash = hash(key);
        let now_ms = self.now_ms;
        self.drop_if_expired(key, hash);
        let table = self.held.shard_mut(shard_of(hash)).table_mut(self.db);
        let entry = table.find_mut(table_hash(hash), |entry| entry.key() == key)?;
        entry.set_access(access::touched(
            &self.space.settings,
            entry.access(),
            now_ms,
            &mut self.random.borrow_mut(),
        ));
        Some(entry)
    }

    typed!(List, List, list, list_mut, list_or_new, "list");
    typed!(Set, Set, set_at, set_mut, set_or_new, "set");
    typed!(Hash, Hash, hash, hash_mut, hash_or_new, "hash");
    typed!(Zset, Zset, zset, zset_mut, zset_or_new, "sorted set");
    typed!(Stream, Stream, stream, stream_mut, stream_or_new, "stream");

    // Writing.

    /// Sets a key's value, whatever it had. A write: see [`Keys::changed`].
    pub fn set(&mut self, key: &[u8], value: NewValue<'_>, expire: Expire) {
        let hash = hash(key);
        self.drop_if_expired(key, hash);
        match self.overwrite(key, hash, value, expire) {
            Ok(Overwritten { expired_at, expires_at, old }) => {
                if let Some(old) = old {
                    self.discard(old);
                }
                self.expiry_changed(hash, expired_at, expires_at);
            }
            Err(value) => {
                let at = if let Expire::At(at) = expire { Some(at) } else { None };
                self.insert_hashed(key, hash, value, at);
            }
        }
        self.changed(key);
    }

    /// Replaces the value of a key that is there. Gives the value back if there is no such key.
    fn overwrite<'v>(
        &mut self,
        key: &[u8],
        hash: u64,
        value: NewValue<'v>,
        expire: Expire,
    ) -> Result<Overwritten, NewValue<'v>> {
        let settings = &self.space.settings;
        let table = self.held.shard_mut(shard_of(hash)).table_mut(self.db);
        let found = table.find_mut(table_hash(hash), |entry| entry.key() == key);
        let Some(mut entry) = found else { return Err(value) };
        let had = entry.expire_at();
        let at = match expire {
            Expire::Keep => had,
            Expire::Never => None,
            Expire::At(at) => Some(at),
        };
        if entry.kind() != Kind::String {
            let access = access::fresh(settings, self.now_ms);
            let old = std::mem::replace(&mut *entry, Entry::new(key, value, at, access));
            let old = Some(old.into_value().0);
            return Ok(Overwritten { expired_at: had, expires_at: at, old });
        }
        entry.replace(value, at);
        let random = &mut self.random.borrow_mut();
        entry.set_access(access::touched(settings, entry.access(), self.now_ms, random));
        Ok(Overwritten { expired_at: had, expires_at: at, old: None })
    }

    /// Adds to a key that holds a number, in place: `None` if it does not, `Some(None)` if the sum
    /// would run over. A write: see [`Keys::changed`].
    pub fn add_number(&mut self, key: &[u8], more: i64) -> Option<Option<i64>> {
        let mut entry = self.entry_mut(key)?;
        let ValueRef::Number(old) = entry.value() else { return None };
        let Some(new) = old.checked_add(more) else { return Some(None) };
        let expire_at = entry.expire_at();
        entry.replace(NewValue::Value(Value::Number(new)), expire_at);
        drop(entry);
        self.changed(key);
        Some(Some(new))
    }

    /// Adds a key that is not there, without [`Keys::changed`].
    fn insert(&mut self, key: &[u8], value: NewValue<'_>, expire_at: Option<i64>) {
        let hash = hash(key);
        self.drop_if_expired(key, hash);
        self.insert_hashed(key, hash, value, expire_at);
    }

    fn insert_hashed(&mut self, key: &[u8], hash: u64, value: NewValue<'_>, at: Option<i64>) {
        let entry = Entry::new(key, value, at, access::fresh(&self.space.settings, self.now_ms));
        self.held.shard_mut(shard_of(hash)).table_mut(self.db).insert(table_hash(hash), entry);
        self.tally.keys(self.db, 1);
        if at.is_some() {
            self.expiry_changed(hash, None, at);
        }
        self.notify(class::NEW, "new", key);
    }

    /// Puts a whole value at a key that may be there: RENAME, COPY, RESTORE and the STORE forms.
    pub fn put(&mut self, key: &[u8], value: Value, expire_at: Option<i64>) {
        let expire = expire_at.map_or(Expire::Never, Expire::At);
        self.set(key, NewValue::Value(value), expire);
    }

    /// Takes a key out and returns its value and when it would have expired.
    pub fn take(&mut self, key: &[u8]) -> Option<(Value, Option<i64>)> {
        let hash = hash(key);
        self.drop_if_expired(key, hash);
        let taken = self.remove_entry(key, hash)?.into_value();
        self.changed(key);
        Some(taken)
    }

    /// Removes a key; a large value is freed after the locks are given back.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let hash = hash(key);
        self.drop_if_expired(key, hash);
        let Some(entry) = self.remove_entry(key, hash) else { return false };
        if entry.kind() == Kind::String {
            drop(entry);
        } else {
            self.discard(entry.into_value().0);
        }
        self.changed(key);
        true
    }

    /// Removes a key whose collection has become empty, with its `del` event. A stream stays: it
    /// is more than its entries.
    pub fn remove_if_empty(&mut self, key: &[u8]) -> bool {
        let empty = match self.peek(key) {
            Some(ValueRef::List(list)) => list.is_empty(),
            Some(ValueRef::Set(set)) => set.is_empty(),
            Some(ValueRef::Hash(hash)) => hash.is_empty(),
            Some(ValueRef::Zset(zset)) => zset.is_empty(),
            _ => false,
        };
        if empty {
            self.remove_entry(key, hash(key));
            self.notify(class::GENERIC, "del", key);
        }
        empty
    }

    fn remove_entry(&mut self, key: &[u8], hash: u64) -> Option<Entry> {
        let table = self.held.shard_mut(shard_of(hash)).table_mut(self.db);
        let entry = table.remove(table_hash(hash), |entry| entry.key() == key)?;
        self.tally.keys(self.db, -1);
        self.expiry_changed(hash, entry.expire_at(), None);
        Some(entry)
    }

    fn discard(&mut self, value: Value) {
        let effort = match &value {
            Value::List(list) => list.free_effort(),
            Value::Set(set) => set.free_effort(),
            Value::Hash(hash) => hash.free_effort(),
            Value::Zset(zset) => zset.free_effort(),
            Value::Stream(stream) => stream.free_effort(),
            Value::Number(_) | Value::Bytes(_) => 1,
        };
        if effort > FREE_INLINE_MAX {
            self.effects.garbage.push(Garbage::Value(value));
        }
    }

    /// Sets or clears a key's time to live; false if there is no such key. Call `changed` after.
    pub fn set_expire_at(&mut self, key: &[u8], at: Option<i64>) -> bool {
        let Some(mut entry) = self.entry_mut(key) else { return false };
        let had = entry.expire_at();
        entry.set_expire_at(at);
        drop(entry);
        self.expiry_changed(hash(key), had, at);
        true
    }

    /// A string's bytes, at exactly `len` of them (cut, or filled up with zeros); the key is made
    /// if it is not there. Call `changed` after.
    pub fn string_bytes(&mut self, key: &[u8], len: usize) -> Result<&mut [u8], WrongType> {
        match self.kind(key) {
            None => self.insert(key, NewValue::Bytes(&[]), None),
            Some(Kind::String) => {}
            Some(_) => return Err(WrongType),
        }
        let entry = self.entry_mut(key).expect("just looked up or made");
        Ok(entry.into_string_bytes(len))
    }

    /// Sets the access bits of a key (RESTORE, OBJECT tests).
    pub fn set_access(&mut self, key: &[u8], access: u32) {
        if let Some(entry) = self.find(key) {
            entry.set_access(access);
        }
    }

    fn expiry_changed(&mut self, hash: u64, had: Option<i64>, at: Option<i64>) {
        if had == at {
            return;
        }
        let (shard, db) = (shard_of(hash), self.db);
        let data = self.held.shard_mut(shard);
        match (had.is_some(), at.is_some()) {
            (false, true) => {
                data.due.live += 1;
                self.tally.volatile(db, 1);
            }
            (true, false) => {
                data.due.live -= 1;
                self.tally.volatile(db, -1);
            }
            _ => {}
        }
        if let Some(at) = at {
            data.due.push(DueKey::new(at, table_hash(hash), db));
            if data.due.wants_rebuild() {
                rebuild_due(data);
            }
            self.space.set_next_due_ms(shard, data.due.next_ms());
        }
    }

    // Expiry.

    fn drop_if_expired(&mut self, key: &[u8], hash: u64) {
        if self.held.shard(shard_of(hash)).due.is_empty() {
            return;
        }
        let expired = self.held.shard(shard_of(hash)).table(self.db).is_some_and(|table| {
            let entry = table.find(table_hash(hash), |entry| entry.key() == key);
            entry.and_then(|entry| entry.expire_at()).is_some_and(|at| at <= self.now_ms)
        });
        if expired {
            self.remove_expired(key, hash);
        }
    }

    fn remove_expired(&mut self, key: &[u8], hash: u64) {
        let Some(entry) = self.remove_entry(key, hash) else { return };
        if let Some(at) = entry.expire_at() {
            let lag = (self.now_ms - at).max(0) as u64;
            add(&self.tally.expire_lag_sum_ms, lag);
            let max = &self.tally.expire_lag_max_ms;
            add(max, lag.saturating_sub(max.load(std::sync::atomic::Ordering::Relaxed)));
        }
        add(&self.tally.expired, 1);
        self.discard(entry.into_value().0);
        self.gone(class::EXPIRED, "expired", key);
    }

    /// What follows when a key goes without a command: event, log record, watchers.
    fn gone(&mut self, class: u32, event: &'static str, key: &[u8]) {
        self.notify(class, event, key);
        if self.space.is_logging() {
            self.effects.expired.push((self.db, key.to_vec()));
        }
        self.signal(key);
    }

    /// Removes the keys of a held shard that are due, at most `max`; true if more may be due.
    pub fn expire_due(&mut self, shard: usize, max: usize) -> bool {
        let db = self.db;
        let mut left = max;
        while left > 0 {
            let data = self.held.shard_mut(shard);
            let Some(item) = data.due.pop_due(self.now_ms) else { break };
            let found = data.table(item.db()).and_then(|table| {
                let due = |entry: &Entry| entry.expire_at().is_some_and(|at| at <= self.now_ms);
                table.find(item.table_hash(), due).map(|entry| entry.key().to_vec())
            });
            if let Some(key) = found {
                self.db = item.db();
                self.remove_expired(&key, hash(&key));
            }
            left -= 1;
        }
        self.db = db;
        self.space.set_next_due_ms(shard, self.held.shard(shard).due.next_ms());
        left == 0
    }

    /// Removes a key by the eviction policy's decision; false if it is gone already.
    pub fn evict(&mut self, key: &[u8]) -> bool {
        let Some(entry) = self.remove_entry(key, hash(key)) else { return false };
        add(&self.tally.evicted, 1);
        self.discard(entry.into_value().0);
        self.gone(class::EVICTED, "evicted", key);
        true
    }

    // What a write causes.

    /// Says that a key's value was changed: one more for the log, WATCH breaks, waiters wake.
    #[inline]
    pub fn changed(&mut self, key: &[u8]) {
        self.effects.dirty += 1;
        self.signal(key);
    }

    /// Breaks WATCH and wakes waiters of a key, without counting a change.
    #[inline]
    pub fn signal(&mut self, key: &[u8]) {
        let db = self.db;
        let data = self.held.shard_mut(shard_of(hash(key)));
        if data.watched.is_some() {
            raise(&mut data.watched, db, key);
        }
        if let Some(waiting) = &data.waiting
            && waiting.has(db, key)
        {
            self.effects.ready.push((db, key.to_vec()));
        }
    }

    /// Records a keyspace event if anybody asked for its class.
    #[inline]
    pub fn notify(&mut self, class: u32, name: &'static str, key: &[u8]) {
        let wanted = self.space.settings.notify.load(std::sync::atomic::Ordering::Relaxed);
        if wanted & class != 0 && wanted & (class::KEYSPACE | class::KEYEVENT) != 0 {
            let event = Event { class, name, db: self.db, key: key.to_vec() };
            self.effects.events.push(event);
        }
    }

    /// Writes these words to the commit log instead of the command itself; call again for more
    /// than one command. Nothing is logged for a command that changed nothing.
    pub fn rewrite(&mut self, words: &[&[u8]]) {
        if self.space.is_logging() {
            let owned = words.iter().map(|word| word.to_vec()).collect();
            self.effects.rewrites.get_or_insert_default().push(owned);
        }
    }

    /// Writes nothing of this command to the commit log.
    pub fn rewrite_to_nothing(&mut self) {
        self.effects.rewrites.get_or_insert_default();
    }

    // The whole database.

    /// Looks at one shard's part of the current database. In a transaction that holds all shards
    /// it is simply there; else its lock is taken for the moment, and no other may be held.
    pub fn with_table<T>(&self, shard: usize, look: impl FnOnce(Option<&Table<Entry>>) -> T) -> T {
        if self.held.has(shard) {
            return look(self.held.shard(shard).table(self.db));
        }
        let held = self.space.lock_one(shard);
        look(held.shard(shard).table(self.db))
    }

    /// Visits keys of the current database from `cursor` on until about `count` were visited;
    /// returns the cursor to go on from, 0 at the end. Keys past their time are left out.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(&Entry)) -> u64 {
        let (mut shard, mut place) = Keyspace::place(cursor);
        let mut seen = 0;
        while shard < SHARDS {
            let next = self.with_table(shard, |table| {
                table?.scan(place, count - seen, |entry| {
                    seen += 1;
                    if entry.expire_at().is_none_or(|at| at > self.now_ms) {
                        visit(entry);
                    }
                })
            });
            (shard, place) = next.map_or((shard + 1, 0), |next| (shard, next));
            if seen >= count {
                break;
            }
        }
        if shard < SHARDS { Keyspace::cursor(shard, place) } else { 0 }
    }

    /// Visits every key of the current database.
    pub fn for_each(&self, mut visit: impl FnMut(&Entry)) {
        for shard in 0..SHARDS {
            self.with_table(shard, |table| {
                let entries = table.into_iter().flat_map(Table::iter);
                let live = |e: &Ref<'_, Entry>| e.expire_at().is_none_or(|at| at > self.now_ms);
                entries.filter(live).for_each(|entry| visit(&entry));
            });
        }
    }

    /// A random key of the current database.
    pub fn random_key(&self) -> Option<Vec<u8>> {
        const DRAWS_MAX: usize = 200;
        if self.key_count() == 0 {
            return None;
        }
        let live = |entry: &Ref<'_, Entry>| entry.expire_at().is_none_or(|at| at > self.now_ms);
        let random = &mut self.random.borrow_mut();
        for _ in 0..DRAWS_MAX {
            let key = self.with_table(random.below(SHARDS), |table| {
                let entry = table?.random(|| random.bits())?;
                live(&entry).then(|| entry.key().to_vec())
            });
            if key.is_some() {
                return key;
            }
        }
        // Few keys in many shards, or many past their time: the first one from somewhere on.
        let start = random.below(SHARDS);
        let mut shards = (start..SHARDS).chain(0..start);
        shards.find_map(|shard| {
            self.with_table(shard, |table| {
                let found = table?.iter().find(|entry| live(entry));
                found.map(|entry| entry.key().to_vec())
            })
        })
    }

    /// Removes every key of a database; all shards must be held.
    pub fn flush(&mut self, db: usize) -> usize {
        let was = self.db;
        self.db = db;
        let mut removed = 0;
        for shard in 0..SHARDS {
            self.signal_all(shard, [db, db]);
            let data = self.held.shard_mut(shard);
            if data.table(db).is_none_or(Table::is_empty) {
                continue;
            }
            let table = std::mem::take(data.table_mut(db));
            removed += table.len();
            self.effects.garbage.push(Garbage::Table(table));
            rebuild_due(data);
            self.space.set_next_due_ms(shard, data.due.next_ms());
        }
        self.tally.keys(db, -(self.space.key_count(db) as i64));
        self.tally.volatile(db, -(self.space.volatile_count(db) as i64));
        self.db = was;
        removed
    }

    /// Exchanges two databases; all shards must be held.
    pub fn swap(&mut self, one: usize, other: usize) {
        let was = self.db;
        for shard in 0..SHARDS {
            let data = self.held.shard_mut(shard);
            let table = std::mem::take(data.table_mut(one));
            let table = std::mem::replace(data.table_mut(other), table);
            *data.table_mut(one) = table;
            rebuild_due(data);
            self.space.set_next_due_ms(shard, data.due.next_ms());
            for db in [one, other] {
                self.db = db;
                self.signal_all(shard, [one, other]);
            }
        }
        let space = self.space;
        let keys = space.key_count(other) as i64 - space.key_count(one) as i64;
        let volatile = space.volatile_count(other) as i64 - space.volatile_count(one) as i64;
        self.tally.keys(one, keys);
        self.tally.keys(other, -keys);
        self.tally.volatile(one, volatile);
        self.tally.volatile(other, -volatile);
        self.db = was;
    }

    /// Breaks every WATCH on keys of the current database in a shard that are in one of
    /// `databases`, and wakes the waiters of all keys.
    fn signal_all(&mut self, shard: usize, databases: [usize; 2]) {
        let db = self.db;
        let data = self.held.shard_mut(shard);
        let mut keys = data.watched.as_ref().map_or_else(Vec::new, |watched| watched.keys(db));
        keys.retain(|key| {
            let is_in = |db: &usize| {
                let table = data.table(*db);
                let same = |entry: &Entry| entry.key() == key;
                table.is_some_and(|table| table.find(table_hash(hash(key)), same).is_some())
            };
            databases.iter().any(is_in)
        });
        keys.iter().for_each(|key| raise(&mut data.watched, db, key));
        let Some(waiting) = &data.waiting else { return };
        let keys: Vec<Vec<u8>> = waiting.keys(db).cloned().collect();
        self.effects.ready.extend(keys.into_iter().map(|key| (db, key)));
    }
}

fn raise(watched: &mut Option<Box<Watched>>, db: usize, key: &[u8]) {
    if let Some(all) = watched {
        all.raise(db, key);
        if all.is_empty() {
            *watched = None;
        }
    }
}

fn rebuild_due(data: &mut ShardData) {
    let mut items = Vec::new();
    for db in 0..data.databases() {
        for entry in data.table(db).into_iter().flat_map(Table::iter) {
            if let Some(at) = entry.expire_at() {
                items.push(DueKey::new(at, table_hash(hash(entry.key())), db));
            }
        }
    }
    data.due.rebuild(items);
}
