//! The shards behind their locks, and the proof of holding some of them.
//!
//! **Invariant:** a shard's contents are reached only through [`Held`], which has that shard's
//! lock; asking for a shard that is not held is a bug of a command's key table and panics.
//! **Invariant:** locks that must be waited for are taken in ascending order, so no two threads
//! ever wait for each other; [`Held::try_extend`] never waits. The one exception is the holder of
//! the only [`Widener`], who may wait for any lock while holding others: until it has it, whoever
//! waits while holding locks (and has done nothing under them yet) gives them back and waits
//! without.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::lock::{Lock, nap};

/// Number of shards. A power of two; the top bits of a key's hash choose its shard.
pub const SHARDS: usize = 1024;
const WORDS: usize = SHARDS / 64;

/// A set of shards, as bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ShardSet([u64; WORDS]);

impl Default for ShardSet {
    fn default() -> Self {
        ShardSet([0; WORDS])
    }
}

impl ShardSet {
    /// Every shard.
    pub const ALL: ShardSet = ShardSet([u64::MAX; WORDS]);

    /// Adds one shard.
    #[inline]
    pub fn add(&mut self, shard: usize) {
        self.0[shard / 64] |= 1 << (shard % 64);
    }

    /// Whether `shard` is in the set.
    #[inline]
    pub fn has(&self, shard: usize) -> bool {
        self.0[shard / 64] >> (shard % 64) & 1 != 0
    }

    /// Whether every shard of `other` is in this set.
    #[inline]
    pub fn covers(&self, other: &ShardSet) -> bool {
        self.0.iter().zip(&other.0).all(|(word, other)| other & !word == 0)
    }

    /// Adds every shard of `other`.
    pub fn union(&mut self, other: &ShardSet) {
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    /// The one shard in the set, if it is one.
    #[inline]
    pub fn only(&self) -> Option<usize> {
        let ones: u32 = self.0.iter().map(|word| word.count_ones()).sum();
        if ones == 1 { self.iter().next() } else { None }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The shards in ascending order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            let mut word = *word;
            std::iter::from_fn(move || {
                if word == 0 {
                    return None;
                }
                let bit = word.trailing_zeros() as usize;
                word &= word - 1;
                Some(index * 64 + bit)
            })
        })
    }
}

#[repr(align(128))]
struct Shard<T> {
    lock: Lock,
    contents: UnsafeCell<T>,
}

/// All the shards.
pub struct Shards<T> {
    all: Box<[Shard<T>]>,
    /// Somebody holds the widener.
    widener: AtomicBool,
    /// Its holder waits for a lock.
    widening: AtomicBool,
    /// So many hold locks for long.
    long_holds: AtomicUsize,
}

// SAFETY: contents are reached under their lock only.
unsafe impl<T: Send> Sync for Shards<T> {}

impl<T: Default> Default for Shards<T> {
    fn default() -> Self {
        let shard = || Shard { lock: Lock::default(), contents: UnsafeCell::new(T::default()) };
        Shards {
            all: (0..SHARDS).map(|_| shard()).collect(),
            widener: AtomicBool::new(false),
            widening: AtomicBool::new(false),
            long_holds: AtomicUsize::new(0),
        }
    }
}

/// Not boxed: a batch of commands takes a set each time, and 128 bytes on the stack are cheaper.
#[allow(clippy::large_enum_variant)]
enum Which {
    None,
    One(usize),
    Many(ShardSet),
}

/// Some shards' locks, given back when dropped.
pub struct Held<'a, T> {
    shards: &'a Shards<T>,
    which: Which,
}

impl<T> Shards<T> {
    /// Takes one shard's lock.
    #[inline]
    pub fn lock_one(&self, shard: usize) -> Held<'_, T> {
        self.all[shard].lock.take();
        Held { shards: self, which: Which::One(shard) }
    }

    /// Asks the processor to bring in a shard's lock and what lies beside it.
    #[inline]
    pub fn prefetch(&self, shard: usize) {
        super::table::prefetch((&raw const self.all[shard]).cast());
    }

    /// Takes one shard's lock if it is free.
    pub fn try_lock_one(&self, shard: usize) -> Option<Held<'_, T>> {
        let taken = self.all[shard].lock.try_take();
        // Lazily: one that is made is given back when dropped.
        taken.then(|| Held { shards: self, which: Which::One(shard) })
    }

    /// Takes the locks of all shards of `set`.
    #[inline]
    pub fn lock(&self, set: &ShardSet) -> Held<'_, T> {
        for shard in set.iter() {
            if !self.all[shard].lock.try_take() {
                self.wait_for(set, shard);
            }
        }
        Held { shards: self, which: Which::Many(*set) }
    }

    /// As [`Shards::lock_one`]; nothing if somebody holds it who has said that it takes long.
    #[inline]
    pub fn lock_one_unless_long(&self, shard: usize) -> Option<Held<'_, T>> {
        let lock = &self.all[shard].lock;
        let taken = lock.try_take() || lock.wait(|| self.has_long_hold());
        taken.then_some(Held { shards: self, which: Which::One(shard) })
    }

    /// As [`Shards::lock`]; nothing if somebody holds any of them who has said that it takes long.
    #[inline]
    pub fn lock_unless_long(&self, set: &ShardSet) -> Option<Held<'_, T>> {
        for shard in set.iter() {
            if !self.all[shard].lock.try_take() && !self.wait_unless_long(set, shard) {
                return None;
            }
        }
        Some(Held { shards: self, which: Which::Many(*set) })
    }

    /// As `wait_for`; false, and nothing held, if it may take long.
    #[cold]
    fn wait_unless_long(&self, set: &ShardSet, shard: usize) -> bool {
        let makes_way = || self.widening.load(Ordering::Acquire);
        let below = || set.iter().take_while(|other| *other < shard);
        while !self.all[shard].lock.wait(|| makes_way() || self.has_long_hold()) {
            below().for_each(|held| self.all[held].lock.give());
            nap(|| !makes_way() || self.has_long_hold());
            if self.has_long_hold() {
                return false;
            }
            for held in below() {
                if !self.all[held].lock.try_take() && !self.wait_unless_long(set, held) {
                    return false;
                }
            }
        }
        true
    }

    #[inline]
    fn has_long_hold(&self) -> bool {
        self.long_holds.load(Ordering::Relaxed) > 0
    }

    /// Says that locks will be held for long.
    pub fn begin_long_hold(&self) {
        self.long_holds.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes that back.
    pub fn end_long_hold(&self) {
        self.long_holds.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits for one shard of a set whose shards below it are held, and makes way for the holder
    /// of the widener meanwhile.
    #[cold]
    fn wait_for(&self, set: &ShardSet, shard: usize) {
        let makes_way = || self.widening.load(Ordering::Acquire);
        let below = || set.iter().take_while(|other| *other < shard);
        while !self.all[shard].lock.wait(makes_way) {
            below().for_each(|held| self.all[held].lock.give());
            nap(|| !makes_way());
            // Others of the set may have to be waited for now, in the same way.
            for held in below() {
                if !self.all[held].lock.try_take() {
                    self.wait_for(set, held);
                }
            }
        }
    }

    /// Takes the one widener if nobody has it.
    pub fn try_widener(&self) -> Option<Widener<'_>> {
        let free = !self.widener.swap(true, Ordering::Acquire);
        // Lazily: one that is made is given back when dropped.
        free.then(|| Widener { taken: &self.widener })
    }

    /// Waits for the widener. The caller must hold no lock.
    pub fn widener(&self) -> Widener<'_> {
        loop {
            nap(|| !self.widener.load(Ordering::Relaxed));
            if let Some(widener) = self.try_widener() {
                return widener;
            }
        }
    }
}

/// The right to wait for locks while holding others; given back when dropped.
pub struct Widener<'a> {
    taken: &'a AtomicBool,
}

impl Drop for Widener<'_> {
    fn drop(&mut self) {
        self.taken.store(false, Ordering::Release);
    }
}

impl<'a, T> Held<'a, T> {
    /// Whether this shard is held.
    #[inline]
    pub fn has(&self, shard: usize) -> bool {
        match &self.which {
            Which::None => false,
            Which::One(one) => *one == shard,
            Which::Many(set) => set.has(shard),
        }
    }

    /// A held shard's contents.
    #[inline]
    pub fn shard(&self, shard: usize) -> &T {
        assert!(self.has(shard), "a command touched a key that its table does not declare");
        // SAFETY: the shard's lock is held, and `self` is borrowed.
        unsafe { &*self.shards.all[shard].contents.get() }
    }

    /// A held shard's contents, to be changed.
    #[inline]
    pub fn shard_mut(&mut self, shard: usize) -> &mut T {
        assert!(self.has(shard), "a command touched a key that its table does not declare");
        // SAFETY: the shard's lock is held, and `self` is borrowed mutably: no other reference.
        unsafe { &mut *self.shards.all[shard].contents.get() }
    }

    /// The shards that are held, ascending.
    pub fn indices(&self) -> Vec<usize> {
        match &self.which {
            Which::None => Vec::new(),
            Which::One(one) => vec![*one],
            Which::Many(set) => set.iter().collect(),
        }
    }

    /// Whether every shard of `set` is held.
    pub fn has_all(&self, set: &ShardSet) -> bool {
        match &self.which {
            Which::None => set.is_empty(),
            Which::One(one) => set.iter().all(|shard| shard == *one),
            Which::Many(held) => held.covers(set),
        }
    }

    /// The shards that are held, as a set.
    pub fn set(&self) -> ShardSet {
        match &self.which {
            Which::None => ShardSet::default(),
            Which::One(one) => {
                let mut set = ShardSet::default();
                set.add(*one);
                set
            }
            Which::Many(set) => *set,
        }
    }

    /// Takes the locks of `set` as well, waiting for them: others make way.
    pub fn extend(&mut self, set: &ShardSet, _widener: &Widener<'_>) {
        let mut all = self.set();
        self.shards.widening.store(true, Ordering::Release);
        for shard in set.iter().filter(|shard| !all.has(*shard)).collect::<Vec<_>>() {
            self.shards.all[shard].lock.take();
            all.add(shard);
        }
        self.shards.widening.store(false, Ordering::Release);
        self.which = Which::Many(all);
    }

    /// Gives all locks back and takes those of `set` instead: what was seen under the old ones
    /// says nothing any more.
    pub fn exchange(&mut self, set: &ShardSet) {
        let shards = self.shards;
        self.give();
        *self = shards.lock(set);
    }

    /// Gives all locks back, before the end of what holds them.
    #[inline]
    pub fn give(&mut self) {
        self.give_all();
        self.which = Which::None;
    }

    #[inline]
    fn give_all(&self) {
        match &self.which {
            Which::None => {}
            Which::One(one) => self.shards.all[*one].lock.give(),
            Which::Many(set) => set.iter().for_each(|shard| self.shards.all[shard].lock.give()),
        }
    }

    /// Takes the locks of `set` as well, if that needs no waiting; else changes nothing.
    pub fn try_extend(&mut self, set: &ShardSet) -> bool {
        let missing: Vec<usize> = set.iter().filter(|shard| !self.has(*shard)).collect();
        for (done, shard) in missing.iter().enumerate() {
            if !self.shards.all[*shard].lock.try_take() {
                for taken in &missing[..done] {
                    self.shards.all[*taken].lock.give();
                }
                return false;
            }
        }
        if !missing.is_empty() {
            let mut all = ShardSet::default();
            self.indices().into_iter().chain(missing).for_each(|shard| all.add(shard));
            self.which = Which::Many(all);
        }
        true
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.give_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_conserved_between_shards() {
        let shards: Shards<i64> = Shards::default();
        let rounds = if cfg!(miri) { 20 } else { 5000 };
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let shards = &shards;
                scope.spawn(move || {
                    for round in 0..rounds {
                        let (from, to) = ((round * 7 + thread) % 16, (round * 3 + 5) % 16);
                        let mut set = ShardSet::default();
                        set.add(from);
                        set.add(to);
                        let mut held = shards.lock(&set);
                        *held.shard_mut(from) -= 1;
                        *held.shard_mut(to) += 1;
                    }
                });
            }
        });
        let held = shards.lock(&ShardSet::ALL);
        assert_eq!((0..SHARDS).map(|shard| *held.shard(shard)).sum::<i64>(), 0);
    }

    #[test]
    fn extending_never_waits() {
        let shards: Shards<u8> = Shards::default();
        let other = shards.lock_one(9);
        let mut held = shards.lock_one(3);
        let mut set = ShardSet::default();
        set.add(9);
        set.add(4);
        assert!(!held.try_extend(&set));
        assert!(!held.has(4) && held.has(3));
        drop(other);
        assert!(held.try_extend(&set));
        assert_eq!(held.indices(), [3, 4, 9]);
        drop(held);
        assert!(shards.try_lock_one(4).is_some());
    }

    #[test]
    fn a_lock_that_is_tried_in_vain_stays_taken() {
        let shards: Shards<u8> = Shards::default();
        let held = shards.lock_one(7);
        assert!(shards.try_lock_one(7).is_none());
        assert!(shards.try_lock_one(7).is_none(), "the first try gave nothing back");
        drop(held);
        assert!(shards.try_lock_one(7).is_some());
    }

    #[test]
    #[should_panic(expected = "does not declare")]
    fn a_shard_that_is_not_held_is_out_of_reach() {
        let shards: Shards<u8> = Shards::default();
        shards.lock_one(3).shard(4);
    }
}
