//! The door to the keyspace for commands: typed access to the keys of the shards that are held.
//!
//! Reading takes `&self`, so several keys can be looked at together; what reading changes (last
//! use, hit counts) lies in cells. A key past its time is never seen, whether or not it has been
//! removed yet.
//!
//! **Invariant:** every change of a value ends in [`Keys::changed`] (or a method that calls it):
//! that is what wakes blocked clients, breaks WATCH and counts as dirty. Only what readers do to a
//! stream's groups ends in [`Keys::changed_within`].

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use crate::access;
use crate::due::DueKey;
use crate::effects::{Effects, Event, Freeing, Garbage, Gone, class};
use crate::hasher::hash;
use crate::keyspace::{Keyspace, ShardData, Tally, add, shard_of, table_hash};
use crate::random::Random;
use crate::raw::entry::{Entry, NewValue};
use crate::raw::shards::Held;
use crate::raw::table::{Place, Ref, RefMut, Table};
use crate::settings::freeing;
use crate::types::hash::Hash;
use crate::types::list::List;
use crate::types::set::Set;
use crate::types::stream::Stream;
use crate::types::zset::Zset;
use crate::undo::Undo;
use crate::value::{Kind, Value, ValueMut, ValueRef};
use crate::waiting::{Waiter, Waiting, Watched};

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

/// Values whose freeing takes more steps than this are freed after the locks are given back.
const FREE_INLINE_MAX: usize = 64;

/// See the module.
pub struct Keys<'a> {
    pub(crate) space: &'a Keyspace,
    pub(crate) held: Held<'a, ShardData>,
    pub(crate) tally: &'a Tally,
    pub(crate) db: usize,
    pub(crate) now_ms: i64,
    /// Keys whose time has come by then are past it: now, or never while a log is replayed.
    pub(crate) due_ms: i64,
    /// What has been done so far.
    pub effects: Effects,
    pub(crate) undo: Option<Box<Undo>>,
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
            let new = || NewValue::Value(Value::$kind($Type::default()));
            match self.entry_or_new(key, new).into_value_mut() {
                ValueMut::$kind(value) => Ok(value),
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
        let mut keys = Keys {
            space,
            held,
            tally,
            db: 0,
            now_ms,
            due_ms: if space.keeps_expired.load(Ordering::Relaxed) { i64::MIN } else { now_ms },
            effects: Effects::default(),
            undo: None,
            random: RefCell::new(random),
            touch: true,
        };
        keys.after_locking();
        keys
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

    /// Whether a key that expires `at`, in milliseconds since 1970, is past its time.
    pub fn is_past(&self, at: i64) -> bool {
        at <= self.due_ms
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

    /// Gives the locks back: from now on no key may be looked at.
    #[inline]
    pub fn unlock(&mut self) {
        self.held.give();
    }

    // Looking up.

    #[inline]
    fn find(&self, key: &[u8]) -> Option<Ref<'_, Entry>> {
        let hash = hash(key);
        let table = self.held.shard(shard_of(hash)).table(self.db)?;
        let entry = table.find(table_hash(hash), |entry| entry.key() == key)?;
        let gone = entry.expire_at().is_some_and(|at| at <= self.due_ms);
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

    /// Where the entry of `key` is; one past its time is removed instead.
    #[inline]
    pub(crate) fn locate(&mut self, key: &[u8], hash: u64) -> Option<Place> {
        let table = self.held.shard(shard_of(hash)).table(self.db)?;
        let place = table.place(table_hash(hash), |entry| entry.key() == key)?;
        if table.at(place).expire_at().is_some_and(|at| at <= self.due_ms) {
            self.remove_expired(key, hash, place);
            return None;
        }
        Some(place)
    }

    /// The entry at a place that was just found: counts as a use of it.
    #[inline]
    fn entry_at(&mut self, hash: u64, place: Place) -> RefMut<'_, Entry> {
        self.before_change(hash, place);
        let table = self.held.shard_mut(shard_of(hash)).table_mut(self.db);
        let entry = table.at_mut(place);
        let random = &mut self.random.borrow_mut();
        let settings = &self.space.settings;
        entry.set_access(access::touched(settings, entry.access(), self.now_ms, random));
        entry
    }

    #[inline]
    fn entry_mut(&mut self, key: &[u8]) -> Option<RefMut<'_, Entry>> {
        let hash = hash(key);
        let place = self.locate(key, hash)?;
        Some(self.entry_at(hash, place))
    }

    /// The entry of `key`, made without [`Keys::changed`] if there is none.
    #[inline]
    fn entry_or_new<'v>(
        &mut self,
        key: &[u8],
        new: impl FnOnce() -> NewValue<'v>,
    ) -> RefMut<'_, Entry> {
        let hash = hash(key);
        let place = match self.locate(key, hash) {
            Some(place) => place,
            None => self.insert(key, hash, new(), None),
        };
        self.entry_at(hash, place)
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
        let fields_expire_at = value.fields_expire_at();
        match self.locate(key, hash) {
            Some(place) => self.overwrite(hash, place, value, expire),
            None => {
                let at = if let Expire::At(at) = expire { Some(at) } else { None };
                self.insert(key, hash, value, at);
            }
        }
        if let Some(at) = fields_expire_at {
            self.note_fields_due(hash, at);
        }
        self.changed_at(key, hash);
    }

    /// Replaces the value of a key that is there.
    fn overwrite(&mut self, hash: u64, place: Place, value: NewValue<'_>, expire: Expire) {
        let fresh = access::fresh(&self.space.settings, self.now_ms);
        let mut entry = self.entry_at(hash, place);
        let had = entry.expire_at();
        let at = match expire {
            Expire::Keep => had,
            Expire::Never => None,
            Expire::At(at) => Some(at),
        };
        let old = if entry.kind() == Kind::String {
            entry.replace(value, at);
            None
        } else {
            Some(entry.remake(value, at, fresh).into_value().0)
        };
        drop(entry);
        if let Some(old) = old {
            self.discard(old, freeing(&self.space.settings.lazyfree_lazy_server_del));
        }
        self.expiry_changed(hash, had, at);
    }

    /// Adds to a key that holds a number, in place: `None` if it does not, `Some(None)` if the sum
    /// would run over. A write: see [`Keys::changed`].
    pub fn add_number(&mut self, key: &[u8], more: i64) -> Option<Option<i64>> {
        let hash = hash(key);
        let place = self.locate(key, hash)?;
        let mut entry = self.entry_at(hash, place);
        let ValueRef::Number(old) = entry.value() else { return None };
        let Some(new) = old.checked_add(more) else { return Some(None) };
        let expire_at = entry.expire_at();
        entry.replace(NewValue::Value(Value::Number(new)), expire_at);
        drop(entry);
        self.changed_at(key, hash);
        Some(Some(new))
    }

    /// Adds a key that is not there, without [`Keys::changed`].
    fn insert(&mut self, key: &[u8], hash: u64, value: NewValue<'_>, at: Option<i64>) -> Place {
        if let Some(undo) = &mut self.undo {
            undo.keep(self.db, key, None);
        }
        let entry = Entry::new(key, value, at, access::fresh(&self.space.settings, self.now_ms));
        let data = self.held.shard_mut(shard_of(hash));
        if let Some(image) = &mut data.image {
            image.before_making(self.db, table_hash(hash), &entry);
        }
        let place = data.table_mut(self.db).insert(table_hash(hash), entry);
        self.tally.keys(self.db, 1);
        if at.is_some() {
            self.expiry_changed(hash, None, at);
        }
        self.notify(class::NEW, "new", key);
        place
    }

    /// Puts a whole value at a key that may be there: RENAME, COPY, RESTORE and the STORE forms.
    pub fn put(&mut self, key: &[u8], value: Value, expire_at: Option<i64>) {
        let expire = expire_at.map_or(Expire::Never, Expire::At);
        self.set(key, NewValue::Value(value), expire);
    }

    /// Takes a key out and returns its value and when it would have expired.
    pub fn take(&mut self, key: &[u8]) -> Option<(Value, Option<i64>)> {
        let hash = hash(key);
        let place = self.locate(key, hash)?;
        let taken = self.remove_at(hash, place).into_value();
        self.changed(key);
        Some(taken)
    }

    /// Removes a key that a command puts nothing in the place of.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        self.delete(key, freeing(&self.space.settings.lazyfree_lazy_server_del))
    }

    /// Removes a key; a large value is freed after the locks are given back.
    pub fn delete(&mut self, key: &[u8], freeing: Freeing) -> bool {
        let hash = hash(key);
        let Some(place) = self.locate(key, hash) else { return false };
        let entry = self.remove_at(hash, place);
        if entry.kind() == Kind::String {
            drop(entry);
        } else {
            self.discard(entry.into_value().0, freeing);
        }
        self.changed_at(key, hash);
        true
    }

    /// Removes a key whose collection has become empty, with its `del` event. A stream stays: it
    /// is more than its entries.
    pub fn remove_if_empty(&mut self, key: &[u8]) -> bool {
        let hash = hash(key);
        let Some(place) = self.locate(key, hash) else { return false };
        let empty = match self.held.shard(shard_of(hash)).table(self.db) {
            Some(table) => {
                let entry = table.at(place);
                entry.kind() != Kind::Stream && entry.value().is_empty()
            }
            None => false,
        };
        if empty {
            self.remove_at(hash, place);
            self.notify(class::GENERIC, "del", key);
        }
        empty
    }

    pub(crate) fn remove_at(&mut self, hash: u64, place: Place) -> Entry {
        self.before_change(hash, place);
        let entry = self.held.shard_mut(shard_of(hash)).table_mut(self.db).remove_at(place);
        self.tally.keys(self.db, -1);
        self.expiry_changed(hash, entry.expire_at(), None);
        entry
    }

    fn discard(&mut self, value: Value, freeing: Freeing) {
        let effort = match &value {
            Value::List(list) => list.free_effort(),
            Value::Set(set) => set.free_effort(),
            Value::Hash(hash) => hash.free_effort(),
            Value::Zset(zset) => zset.free_effort(),
            Value::Stream(stream) => stream.free_effort(),
            Value::Foreign(value) => value.free_effort(),
            Value::Number(_) | Value::Bytes(_) => 1,
        };
        if effort > FREE_INLINE_MAX {
            self.effects.free(Garbage::Value(value), freeing);
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
        let entry = self.entry_or_new(key, || NewValue::Bytes(&[]));
        if entry.kind() == Kind::String { Ok(entry.into_string_bytes(len)) } else { Err(WrongType) }
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
        let more = i64::from(at.is_some()) - i64::from(had.is_some());
        data.due.live = data.due.live.wrapping_add_signed(more as isize);
        let seconds = |at: Option<i64>| at.map_or(0, |at| at / 1000);
        self.tally.volatile(db, more, seconds(at) - seconds(had));
        if let Some(at) = at {
            data.due.push(DueKey::new(at, table_hash(hash), db));
            if data.due.wants_rebuild() {
                rebuild_due(data);
            }
            self.space.set_next_due_ms(shard, data.due.next_ms());
        }
    }

    // Expiry.

    fn remove_expired(&mut self, key: &[u8], hash: u64, place: Place) {
        let entry = self.remove_at(hash, place);
        if let Some(at) = entry.expire_at() {
            let lag = (self.now_ms - at).max(0) as u64;
            add(&self.tally.expire_lag_sum_ms, lag);
            let max = &self.tally.expire_lag_max_ms;
            add(max, lag.saturating_sub(max.load(Ordering::Relaxed)));
        }
        add(&self.tally.expired, 1);
        self.discard(entry.into_value().0, freeing(&self.space.settings.lazyfree_lazy_expire));
        self.gone(class::EXPIRED, "expired", key);
    }

    /// What follows when a key goes without a command: event, log record, watchers.
    fn gone(&mut self, class: u32, event: &'static str, key: &[u8]) {
        self.notify(class, event, key);
        self.log_gone(key, Vec::new());
        self.signal(key);
    }

    pub(crate) fn log_gone(&mut self, key: &[u8], fields: Vec<Vec<u8>>) {
        if self.space.is_logging() {
            self.effects.expired.push(Gone { db: self.db, key: key.to_vec(), fields });
        }
    }

    /// Removes the keys of a held shard that are due, at most `max`, and the fields that are; true
    /// if more may be due.
    pub fn expire_due(&mut self, shard: usize, max: usize) -> bool {
        let db = self.db;
        let mut left = max;
        while left > 0 {
            let data = self.held.shard_mut(shard);
            let Some(item) = data.due.pop_due(self.due_ms) else { break };
            let found = data.table(item.db()).and_then(|table| {
                let due = |entry: &Entry| entry.expire_at().is_some_and(|at| at <= self.due_ms);
                table.find(item.table_hash(), due).map(|entry| entry.key().to_vec())
            });
            if let Some(key) = found {
                self.db = item.db();
                self.expire_if_due(&key);
            }
            left -= 1;
        }
        self.db = db;
        self.space.set_next_due_ms(shard, self.held.shard(shard).due.next_ms());
        self.expire_fields(shard);
        left == 0
    }

    /// Removes a key by the eviction policy's decision; false if it is gone already.
    pub fn evict(&mut self, key: &[u8]) -> bool {
        let hash = hash(key);
        let Some(place) = self.locate(key, hash) else { return false };
        let entry = self.remove_at(hash, place);
        add(&self.tally.evicted, 1);
        self.discard(entry.into_value().0, freeing(&self.space.settings.lazyfree_lazy_eviction));
        self.gone(class::EVICTED, "evicted", key);
        true
    }

    // What a write causes.

    /// Keeps an entry that is about to change or go, for whoever wants it as it was.
    #[inline]
    pub(crate) fn before_change(&mut self, hash: u64, place: Place) {
        let data = self.held.shard_mut(shard_of(hash));
        if data.image.is_some() {
            data.hand_over(self.db, table_hash(hash), place);
        }
        if let Some(undo) = &mut self.undo
            && let Some(table) = data.table(self.db)
        {
            let entry = table.at(place);
            undo.keep(self.db, entry.key(), Some(&entry));
        }
    }

    /// Keeps a value that is about to change inside, which the keyspace does not see (a foreign
    /// one), for whoever takes an image of the keys as they are now.
    pub fn before_inner_change(&mut self, key: &[u8]) {
        let hash = hash(key);
        if self.held.shard(shard_of(hash)).image.is_none() {
            return;
        }
        let Some(place) = self.locate(key, hash) else { return };
        self.held.shard_mut(shard_of(hash)).hand_over(self.db, table_hash(hash), place);
    }

    /// Says that a key's value was changed: one more for the log, WATCH breaks, waiters wake.
    #[inline]
    pub fn changed(&mut self, key: &[u8]) {
        self.changed_at(key, hash(key));
    }

    #[inline]
    fn changed_at(&mut self, key: &[u8], hash: u64) {
        self.effects.dirty += 1;
        self.signal_at(key, hash);
    }

    /// Counts a change of a key that breaks no WATCH and wakes no waiter: what reading a stream
    /// does to its groups.
    #[inline]
    pub fn changed_within(&mut self, count: usize) {
        self.effects.dirty += count as u64;
    }

    /// Breaks WATCH and wakes waiters of a key, without counting a change.
    #[inline]
    pub fn signal(&mut self, key: &[u8]) {
        self.signal_at(key, hash(key));
    }

    #[inline]
    fn signal_at(&mut self, key: &[u8], hash: u64) {
        let db = self.db;
        if self.space.is_observed.load(Ordering::Relaxed) {
            self.note_touched(key);
        }
        let data = self.held.shard_mut(shard_of(hash));
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
        let wanted = self.space.settings.notify.load(Ordering::Relaxed);
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

    // Waiting and watching.

    /// Puts a waiter in a key's line.
    pub fn wait_for(&mut self, key: &[u8], waiter: std::sync::Arc<Waiter>) {
        let db = self.db;
        let data = self.held.shard_mut(shard_of(hash(key)));
        data.waiting.get_or_insert_default().add(db, key, waiter);
    }

    /// The key's line of waiters, first come first.
    pub fn waiters(&mut self, key: &[u8]) -> Vec<std::sync::Arc<Waiter>> {
        let db = self.db;
        let data = self.held.shard_mut(shard_of(hash(key)));
        data.waiting.as_mut().map_or_else(Vec::new, |waiting| waiting.line(db, key))
    }

    /// Whether anybody waits for the key.
    pub fn has_waiters(&self, key: &[u8]) -> bool {
        let waiting: &Option<Box<Waiting>> = &self.held.shard(shard_of(hash(key))).waiting;
        waiting.as_ref().is_some_and(|waiting| waiting.has(self.db, key))
    }

    /// Takes waiters that have ended out of a key's line.
    pub fn tidy_waiters(&mut self, key: &[u8]) {
        let db = self.db;
        let waiting = &mut self.held.shard_mut(shard_of(hash(key))).waiting;
        if let Some(line) = waiting {
            line.tidy(db, key);
            if line.is_empty() {
                *waiting = None;
            }
        }
    }

    /// Watches a key: `flag` is raised at its next change. A key past its time is removed first,
    /// so that its removal later does not count as a change.
    pub fn watch(&mut self, key: &[u8], flag: &std::sync::Arc<std::sync::atomic::AtomicBool>) {
        self.expire_if_due(key);
        let db = self.db;
        let data = self.held.shard_mut(shard_of(hash(key)));
        data.watched.get_or_insert_default().add(db, key, flag);
    }

    /// Removes the key if it is past its time, which raises its watchers' flags.
    pub fn expire_if_due(&mut self, key: &[u8]) {
        self.locate(key, hash(key));
    }

    /// Forgets the watches on a key whose flags nobody holds any more.
    pub fn tidy_watches(&mut self, key: &[u8]) {
        let db = self.db;
        let watched = &mut self.held.shard_mut(shard_of(hash(key))).watched;
        if let Some(all) = watched {
            all.tidy(db, key);
            if all.is_empty() {
                *watched = None;
            }
        }
    }
}

pub(crate) fn raise(watched: &mut Option<Box<Watched>>, db: usize, key: &[u8]) {
    if let Some(all) = watched {
        all.raise(db, key);
        if all.is_empty() {
            *watched = None;
        }
    }
}

pub(crate) fn rebuild_due(data: &mut ShardData) {
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
