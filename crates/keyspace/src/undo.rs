//! Undoing what a script has done, so that it can be run again with more locks.
//!
//! **Invariant:** while changes are recorded, each key that is changed, made or removed is kept as
//! it was before the first change; undoing restores those and forgets the effects since. What
//! cannot be taken back is a raised WATCH: its client's EXEC fails without need.

use std::collections::HashSet;
use std::sync::Arc;

use crate::effects::Effects;
use crate::keys::{Expire, Keys};
use crate::raw::entry::{Entry, NewValue};
use crate::raw::shards::{ShardSet, Widener};
use crate::value::{Value, ValueRef};

/// Collections and strings up to this many elements or bytes are kept whole.
const UNDO_ELEMENTS_MAX: usize = 128;
const UNDO_BYTES_MAX: usize = 4096;
/// Up to so many kept keys are looked through one by one.
const FEW: usize = 16;

/// What a key was before a change.
struct Before {
    db: usize,
    key: Vec<u8>,
    value: Option<(Value, Option<i64>, u32)>,
}

/// How far the effects had come when recording began.
struct Mark {
    dirty: u64,
    ready: usize,
    events: usize,
    expired: usize,
    touched: usize,
}

/// What was recorded before a part began.
pub struct Outer(Option<Box<Undo>>);

/// The keys as they were, in the order in which they were changed.
pub(crate) struct Undo {
    mark: Mark,
    before: Vec<Before>,
    seen: HashSet<(usize, Vec<u8>)>,
}

impl Undo {
    fn new(effects: &Effects) -> Undo {
        let mark = Mark {
            dirty: effects.dirty,
            ready: effects.ready.len(),
            events: effects.events.len(),
            expired: effects.expired.len(),
            touched: effects.touched.len(),
        };
        Undo { mark, before: Vec::new(), seen: HashSet::new() }
    }

    /// Whether a key is not kept yet. Few are looked through, many are found by their hash.
    fn is_new(&mut self, db: usize, key: &[u8]) -> bool {
        if self.before.len() < FEW {
            return !self.before.iter().any(|before| before.db == db && before.key == key);
        }
        if self.seen.is_empty() {
            self.seen = self.before.iter().map(|before| (before.db, before.key.clone())).collect();
        }
        self.seen.insert((db, key.to_vec()))
    }

    /// Keeps a key as it is, unless it is kept already.
    pub(crate) fn keep(&mut self, db: usize, key: &[u8], entry: Option<&Entry>) {
        if self.is_new(db, key) {
            let value =
                entry.map(|entry| (entry.value().to_value(), entry.expire_at(), entry.access()));
            self.before.push(Before { db, key: key.to_vec(), value });
        }
    }
}

impl ValueRef<'_> {
    /// A copy that stands alone; long strings and foreign values are shared.
    pub fn to_value(&self) -> Value {
        match *self {
            ValueRef::Number(number) => Value::Number(number),
            ValueRef::Bytes(bytes) => Value::Bytes(Arc::new(bytes.to_vec())),
            ValueRef::Shared(block) => Value::Bytes(Arc::clone(block)),
            ValueRef::List(list) => Value::List(list.clone()),
            ValueRef::Set(set) => Value::Set(set.clone()),
            ValueRef::Hash(hash) => Value::Hash(hash.clone()),
            ValueRef::Zset(zset) => Value::Zset(zset.clone()),
            ValueRef::Stream(stream) => Value::Stream(stream.clone()),
            ValueRef::Foreign(value) => Value::Foreign(value.clone()),
        }
    }

    /// Whether a copy for undoing costs little.
    fn is_small(&self) -> bool {
        match self {
            ValueRef::Number(_) => true,
            ValueRef::Bytes(bytes) => bytes.len() <= UNDO_BYTES_MAX,
            ValueRef::Shared(bytes) => bytes.len() <= UNDO_BYTES_MAX,
            // What changes inside it is not seen from here.
            ValueRef::Foreign(_) => false,
            other => other.len() <= UNDO_ELEMENTS_MAX,
        }
    }
}

impl<'a> Keys<'a> {
    /// Records changes from now on.
    pub fn record(&mut self) {
        self.undo = Some(Box::new(Undo::new(&self.effects)));
    }

    /// Records no longer: what was done stays.
    pub fn keep_changes(&mut self) {
        self.undo = None;
    }

    /// Records the changes of a part of what is recorded, or of nothing larger, from now on;
    /// [`Keys::end_part`] ends it.
    pub fn record_part(&mut self) -> Outer {
        Outer(self.undo.replace(Box::new(Undo::new(&self.effects))))
    }

    /// Ends a part: what it did stays, as a part of the larger whole, or is taken back.
    pub fn end_part(&mut self, outer: Outer, keep: bool) {
        if !keep {
            self.undo();
        }
        let part = self.undo.take();
        self.undo = outer.0;
        if let (Some(outer), Some(part)) = (&mut self.undo, part) {
            for before in part.before {
                if outer.is_new(before.db, &before.key) {
                    outer.before.push(before);
                }
            }
        }
    }

    /// Whether a change of the key could be recorded at little cost.
    pub fn is_undoable(&self, key: &[u8]) -> bool {
        self.peek(key).is_none_or(|value| value.is_small())
    }

    /// Takes back everything since [`Keys::record`], and stops recording.
    pub fn undo(&mut self) {
        let Some(undo) = self.undo.take() else { return };
        let db = self.db;
        for Before { db, key, value } in undo.before.into_iter().rev() {
            self.select(db);
            match value {
                None => drop(self.remove(&key)),
                Some((value, expire_at, access)) => {
                    let expire = expire_at.map_or(Expire::Never, Expire::At);
                    self.set(&key, NewValue::Value(value), expire);
                    self.set_access(&key, access);
                }
            }
        }
        self.select(db);
        let effects = &mut self.effects;
        effects.dirty = undo.mark.dirty;
        effects.ready.truncate(undo.mark.ready);
        effects.events.truncate(undo.mark.events);
        effects.expired.truncate(undo.mark.expired);
        effects.touched.truncate(undo.mark.touched);
        effects.rewrites = None;
    }

    /// The one right to wait for locks while holding others, if nobody has it.
    pub fn try_widener(&self) -> Option<Widener<'a>> {
        self.space.shards.try_widener()
    }

    /// Gives all locks back, waits for the widener if `wait`, and takes the locks of `set`.
    pub fn relock(&mut self, set: &ShardSet, wait: bool) -> Option<Widener<'a>> {
        debug_assert!(self.undo.is_none(), "what was done must be undone first");
        self.held.exchange(&ShardSet::default());
        let widener = wait.then(|| self.space.shards.widener());
        self.held.exchange(set);
        self.after_locking();
        widener
    }
}
