//! The hash table under everything: keys of a shard, members of a set, fields of a hash, members
//! of a sorted set.
//!
//! It holds thin owning pointers ([`Item`]), eight bytes each, *sorted by hash*:
//!
//! ```text
//!  directory (extendible hashing)        segment (at most 16 KiB, one allocation)
//!  +----+----+----+----+                 +--------+------+------+---+------+------+---+
//!  | 00 | 01 | 10 | 11 |  top `depth`    | header | slot | slot | 0 | slot | slot | 0 |
//!  +-|--+-|--+-|--+-|--+  bits of hash   +--------+------+------+---+------+------+---+
//!    v    v    +--+-+                     slot = hash16 << 48 | pointer, 0 = empty
//! ```
//!
//! In a segment an item's home is `hash16 * homes / 2^16`, where `hash16` are the 16 bits that
//! follow the segment's own depth. Collisions probe to the right and keep the slots in `hash16`
//! order, so a search stops at the first larger one, growth is one ordered copy without touching
//! an item, and a scan cursor is simply the next hash to visit.
//!
//! Why not a SwissTable: it doubles, so a million keys in 1024 shards cost 19 bytes each at the
//! unlucky size, it moves all of a big table at once, and it has no stable scan order. Here a
//! slot costs 8 / load bytes with load between 0.70 and 0.87, and the most that ever moves in
//! one insertion is one segment.
//!
//! **Invariant:** the non-empty slots of a segment are ascending by `hash16`; no empty slot lies
//! between an item's home and its place.
//! **Invariant:** an insertion touches at most one segment of 2047 slots.
//! **Invariant:** a scan that goes from cursor to cursor visits every item that was present all
//! the time at least once, however the table grows or shrinks meanwhile.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use super::segment::{HEADER, POINTER_MASK, SIZES, Segment, larger, roomy};

/// How many slots past its home most searches look at.
const PROBED_SLOTS: usize = 5;
/// How much of an item is looked at in most searches: header and key.
const ITEM_BYTES: usize = 40;

/// A thin owning pointer that can live in a [`Table`]: eight bytes, below 2^48.
pub trait Item: Sized {
    /// Gives up ownership for the raw pointer.
    fn into_raw(self) -> NonNull<u8>;
    /// Takes ownership back.
    ///
    /// # Safety
    /// `raw` came from [`Item::into_raw`] of the same type and is owned by nobody else.
    unsafe fn from_raw(raw: NonNull<u8>) -> Self;
    /// The 64-bit hash that places the item: equal items have equal hashes, always.
    fn hash(&self) -> u64;
}

/// A segment deeper than this is not split any more (only equal hashes get there).
const DEPTH_MAX: u32 = 26;

/// How many of a scan cursor's lowest bits are always zero: what goes to a client is shifted right
/// by this many, so that it fits the integers of every client (below 2^53).
pub const CURSOR_SHIFT: u32 = 64 - 16 - DEPTH_MAX;

/// A table of `T`; see the module's own text.
pub struct Table<T: Item> {
    /// Depth 0: the only segment (0 = none yet). Else a boxed slice of 2^depth segments.
    root: u64,
    len: usize,
    depth: u32,
    items: PhantomData<T>,
}

// SAFETY: the table owns its items, as a Vec<T> would.
unsafe impl<T: Item + Send> Send for Table<T> {}
// SAFETY: shared access only reads.
unsafe impl<T: Item + Sync> Sync for Table<T> {}

/// Where an item is, until the table is changed: what a search found, to be come back to.
#[derive(Clone, Copy)]
pub struct Place {
    segment: Segment,
    index: usize,
    hash: u64,
}

/// A shared borrow of an item in a table.
pub struct Ref<'a, T: Item>(ManuallyDrop<T>, PhantomData<&'a T>);

impl<T: Item> Deref for Ref<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<'a, T: Item> Ref<'a, T> {
    fn new(slot: u64) -> Ref<'a, T> {
        let raw = NonNull::new((slot & POINTER_MASK) as *mut u8).expect("a slot in use");
        // SAFETY: the slot holds a pointer from `into_raw`; ManuallyDrop keeps the table its owner.
        Ref(ManuallyDrop::new(unsafe { T::from_raw(raw) }), PhantomData)
    }

    /// The item's address, valid as long as the table's borrow.
    pub fn as_raw(&self) -> NonNull<u8> {
        // SAFETY: read only; the copy is given up again at once by `into_raw`.
        unsafe { ptr::read(&*self.0) }.into_raw()
    }
}

/// An exclusive borrow of an item in a table. The item may move to another address meanwhile
/// (grow, say); its slot is set anew when the borrow ends. Its hash must stay the same.
pub struct RefMut<'a, T: Item> {
    slot: *mut u64,
    item: ManuallyDrop<T>,
    table: PhantomData<&'a mut T>,
}

impl<T: Item> Deref for RefMut<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.item
    }
}

impl<T: Item> DerefMut for RefMut<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.item
    }
}

impl<T: Item> Drop for RefMut<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the slot is valid while the table is borrowed; the item is moved into it.
        unsafe {
            let raw = ManuallyDrop::take(&mut self.item).into_raw();
            *self.slot = (*self.slot & !POINTER_MASK) | raw.as_ptr() as u64;
        }
    }
}

impl<T: Item> Default for Table<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Item> Table<T> {
    /// An empty table, which allocates nothing.
    pub const fn new() -> Self {
        Table { root: 0, len: 0, depth: 0, items: PhantomData }
    }

    /// Number of items.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn directory(&self) -> &[Segment] {
        if self.depth == 0 {
            if self.root == 0 {
                return &[];
            }
            // SAFETY: Segment is a transparent u64 in effect: one field, same size and alignment.
            return std::slice::from_ref(unsafe { &*ptr::from_ref(&self.root).cast() });
        }
        // SAFETY: at depth > 0 the root is the address of 2^depth segments.
        unsafe { std::slice::from_raw_parts(self.root as *const Segment, 1 << self.depth) }
    }

    fn directory_mut(&mut self) -> &mut [Segment] {
        if self.depth == 0 {
            // SAFETY: as in `directory`.
            return std::slice::from_mut(unsafe { &mut *ptr::from_mut(&mut self.root).cast() });
        }
        // SAFETY: as in `directory`, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.root as *mut Segment, 1 << self.depth) }
    }

    #[inline]
    fn directory_index(&self, hash: u64) -> usize {
        if self.depth == 0 { 0 } else { (hash >> (64 - self.depth)) as usize }
    }

    #[inline]
    fn segment(&self, hash: u64) -> Option<Segment> {
        if self.depth == 0 {
            return if self.root == 0 { None } else { Some(Segment(self.root)) };
        }
        Some(self.directory()[self.directory_index(hash)])
    }

    /// The 16 bits of `hash` that order items in a segment. While there is only one, its header
    /// need not be looked at for that: a miss of the cache less for each search.
    #[inline]
    fn hash16(&self, segment: Segment, hash: u64) -> u64 {
        if self.depth == 0 { hash >> 48 } else { segment.hash16(hash) }
    }

    /// The place of the item with this hash for which `same` holds.
    #[inline]
    pub fn place(&self, hash: u64, mut same: impl FnMut(&T) -> bool) -> Option<Place> {
        let segment = self.segment(hash)?;
        let hash16 = self.hash16(segment, hash);
        let capacity = segment.capacity();
        let mut index = segment.home(hash16);
        while index < capacity {
            let slot = segment.slot(index);
            let other = slot >> 48;
            if other == hash16 && slot != 0 {
                if same(&Ref::<T>::new(slot)) {
                    return Some(Place { segment, index, hash });
                }
            } else if slot == 0 || other > hash16 {
                return None;
            }
            index += 1;
        }
        None
    }

    /// The slot at a place.
    ///
    /// # Panics
    /// If the table was changed so much since the place was found that its segment or its item has
    /// gone.
    #[inline]
    fn slot_at(&self, place: Place) -> u64 {
        assert!(self.segment(place.hash) == Some(place.segment), "a place in this table");
        let slot = place.segment.slot(place.index);
        assert!(slot != 0, "a place that holds something");
        slot
    }

    /// The item at a place that was just found.
    ///
    /// # Panics
    /// May panic if the table has been changed since.
    #[inline]
    pub fn at(&self, place: Place) -> Ref<'_, T> {
        Ref::new(self.slot_at(place))
    }

    /// The item at a place that was just found, to be changed.
    ///
    /// # Panics
    /// May panic if the table has been changed since.
    #[inline]
    pub fn at_mut(&mut self, place: Place) -> RefMut<'_, T> {
        let Ref(item, _) = Ref::<T>::new(self.slot_at(place));
        // SAFETY: the segment is one of the table's, and the index is below its capacity.
        let slot = unsafe { place.segment.slots().add(place.index) };
        RefMut { slot, item, table: PhantomData }
    }

    /// The item with this hash for which `same` holds.
    #[inline]
    pub fn find(&self, hash: u64, same: impl FnMut(&T) -> bool) -> Option<Ref<'_, T>> {
        self.place(hash, same).map(|place| Ref::new(place.segment.slot(place.index)))
    }

    /// The item with this hash for which `same` holds, to be changed.
    #[inline]
    pub fn find_mut(&mut self, hash: u64, same: impl FnMut(&T) -> bool) -> Option<RefMut<'_, T>> {
        let place = self.place(hash, same)?;
        Some(self.at_mut(place))
    }

    /// Asks the processor to bring in the line in which a search for `hash` starts.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some(segment) = self.segment(hash) {
            // SAFETY: the home lies inside the segment.
            let home = unsafe { segment.slots().add(segment.home(self.hash16(segment, hash))) };
            prefetch(home.cast());
            // A search goes on for some slots, often into the next line.
            prefetch(home.wrapping_add(PROBED_SLOTS).cast());
        }
    }

    /// Asks the processor to bring in the item that `hash` most likely means.
    #[inline]
    pub fn prefetch_item(&self, hash: u64) {
        if let Some(Place { segment, index, .. }) = self.place(hash, |_| true) {
            let item = (segment.slot(index) & POINTER_MASK) as *const u8;
            prefetch(item);
            // What is compared may lie in the next line: small items are not aligned to lines.
            prefetch(item.wrapping_add(ITEM_BYTES - 1));
        }
    }

    /// Adds an item that is not there yet: the caller has looked.
    pub fn insert(&mut self, hash: u64, item: T) -> Place {
        let pointer = item.into_raw().as_ptr() as u64;
        debug_assert_eq!(pointer & !POINTER_MASK, 0);
        if self.depth == 0 && self.root == 0 {
            self.root = Segment::alloc(roomy(1), 0).0;
        }
        loop {
            let segment = self.directory()[self.directory_index(hash)];
            let full = segment.len() * 8 >= segment.capacity() * 7;
            if !full && let Some(index) = segment.insert(segment.hash16(hash) << 48 | pointer) {
                self.len += 1;
                return Place { segment, index, hash };
            }
            self.grow(hash, segment);
        }
    }

    /// Takes out and returns the item with this hash for which `same` holds.
    pub fn remove(&mut self, hash: u64, same: impl FnMut(&T) -> bool) -> Option<T> {
        let place = self.place(hash, same)?;
        Some(self.remove_at(place))
    }

    /// Takes out and returns the item at a place that was just found.
    ///
    /// # Panics
    /// May panic if the table has been changed since.
    pub fn remove_at(&mut self, place: Place) -> T {
        let Ref(item, _) = Ref::<T>::new(self.slot_at(place));
        let Place { segment, index, hash } = place;
        segment.remove(index);
        self.len -= 1;
        if segment.capacity() > 32 && segment.len() * 4 < segment.capacity() {
            self.shrink(hash, segment);
        }
        ManuallyDrop::into_inner(item)
    }

    /// Makes room in the segment of `hash`: a larger one, or two.
    fn grow(&mut self, hash: u64, segment: Segment) {
        let slots: Vec<u64> = segment.iter().collect();
        let depth = segment.depth();
        let capacity = larger(segment.capacity());
        if capacity * 8 <= SIZES[SIZES.len() - 1] || depth >= DEPTH_MAX {
            let new = Segment::build(capacity, depth, &slots);
            self.replace(hash, depth, new);
            segment.free();
            return;
        }
        // Split: the first ordering bit decides the side, and each item gives one more bit.
        let shift = |slot: &u64| {
            let hash16 = (Ref::<T>::new(*slot).hash() << (depth + 1)) >> 48;
            hash16 << 48 | (slot & POINTER_MASK)
        };
        for slot in &slots {
            prefetch((slot & POINTER_MASK) as *const u8);
        }
        let middle = slots.partition_point(|slot| slot >> 63 == 0);
        let (mut low, mut high): (Vec<u64>, Vec<u64>) = (
            slots[..middle].iter().map(shift).collect(),
            slots[middle..].iter().map(shift).collect(),
        );
        low.sort_unstable_by_key(|slot| slot >> 48);
        high.sort_unstable_by_key(|slot| slot >> 48);
        if depth == self.depth {
            self.double_directory();
        }
        let bit = 1u64 << (63 - depth);
        self.replace(hash & !bit, depth + 1, Segment::build(roomy(low.len()), depth + 1, &low));
        self.replace(hash | bit, depth + 1, Segment::build(roomy(high.len()), depth + 1, &high));
        segment.free();
    }

    /// Gives back room in the segment of `hash`, merging it with its other half where both are
    /// small.
    fn shrink(&mut self, hash: u64, segment: Segment) {
        let depth = segment.depth();
        let mut slots: Vec<u64> = segment.iter().collect();
        if depth > 0 {
            let bit = 1u64 << (64 - depth);
            let buddy = self.directory()[self.directory_index(hash ^ bit)];
            if buddy.depth() == depth && buddy.len() + slots.len() < 512 {
                slots.extend(buddy.iter());
                let high = if hash & bit == 0 { buddy } else { segment };
                let high_len = high.len();
                if hash & bit != 0 {
                    slots.rotate_right(buddy.len());
                }
                let low_len = slots.len() - high_len;
                for (index, slot) in slots.iter_mut().enumerate() {
                    let first = u64::from(index >= low_len) << 63;
                    *slot = first | ((*slot >> 49) << 48) | (*slot & POINTER_MASK);
                }
                let new = Segment::build(roomy(slots.len()), depth - 1, &slots);
                self.replace(hash, depth - 1, new);
                segment.free();
                buddy.free();
                return;
            }
        }
        let new = Segment::build(roomy(slots.len()), depth, &slots);
        self.replace(hash, depth, new);
        segment.free();
    }

    /// Makes every directory entry under the first `depth` bits of `hash` mean `segment`.
    fn replace(&mut self, hash: u64, depth: u32, segment: Segment) {
        let span = 1usize << (self.depth - depth);
        let first = self.directory_index(hash) & !(span - 1);
        self.directory_mut()[first..first + span].fill(segment);
    }

    fn double_directory(&mut self) {
        let doubled: Vec<Segment> =
            self.directory().iter().flat_map(|segment| [*segment, *segment]).collect();
        self.free_directory();
        self.depth += 1;
        self.root = Box::into_raw(doubled.into_boxed_slice()) as *mut Segment as u64;
    }

    fn free_directory(&mut self) {
        if self.depth > 0 {
            let slice = ptr::slice_from_raw_parts_mut(self.root as *mut Segment, 1 << self.depth);
            // SAFETY: boxed in `double_directory` with this length.
            drop(unsafe { Box::from_raw(slice) });
        }
    }

    /// Each segment once.
    fn segments(&self) -> impl Iterator<Item = Segment> {
        let directory = self.directory();
        let mut index = 0;
        std::iter::from_fn(move || {
            let segment = *directory.get(index)?;
            index += 1 << (self.depth - segment.depth());
            Some(segment)
        })
    }

    /// Every item, in hash order.
    pub fn iter(&self) -> impl Iterator<Item = Ref<'_, T>> {
        self.segments().flat_map(Segment::iter).map(Ref::new)
    }

    /// Visits items in hash order from `cursor` (a hash; 0 = the start) until at least `count` have
    /// been visited, and returns the cursor to go on from, or `None` at the end. Cursors have their
    /// lowest [`CURSOR_SHIFT`] bits zero.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(&T)) -> Option<u64> {
        let mut hash = cursor;
        let mut visited = 0;
        loop {
            let segment = self.segment(hash)?;
            let depth = segment.depth();
            let prefix = if depth == 0 { 0 } else { hash >> (64 - depth) };
            let from = segment.hash16(hash);
            let mut last = None;
            for index in segment.home(from)..segment.capacity() {
                let slot = segment.slot(index);
                if slot == 0 || slot >> 48 < from {
                    continue;
                }
                // Stop between two hashes only: items that share one are visited together.
                if visited >= count && last != Some(slot >> 48) {
                    let next = (slot >> 48) << (48 - depth);
                    return Some(next | if depth == 0 { 0 } else { prefix << (64 - depth) });
                }
                visit(&Ref::<T>::new(slot));
                visited += 1;
                last = Some(slot >> 48);
            }
            if prefix + 1 >= 1 << depth {
                return None;
            }
            hash = (prefix + 1) << (64 - depth);
            if visited >= count {
                return Some(hash);
            }
        }
    }

    /// A random item; `random` gives 64 random bits at each call. Every item is about equally
    /// likely (segments differ in load by a quarter at most).
    pub fn random(&self, mut random: impl FnMut() -> u64) -> Option<Ref<'_, T>> {
        if self.len == 0 {
            return None;
        }
        loop {
            let segment = self.segment(random())?;
            let bits = random();
            let index = (((bits >> 32) as usize) * segment.capacity()) >> 32;
            let slot = segment.slot(index);
            // A segment that stands in the directory twice is twice as likely: even that out.
            if slot != 0 && bits as u32 as u64 >> (32 - (self.depth - segment.depth())) == 0 {
                return Some(Ref::new(slot));
            }
        }
    }

    /// Drops every item and gives all memory back.
    pub fn clear(&mut self) {
        let segments: Vec<Segment> = self.segments().collect();
        self.free_directory();
        self.root = 0;
        self.depth = 0;
        self.len = 0;
        for segment in segments {
            for slot in segment.iter() {
                let Ref(mut item, _) = Ref::<T>::new(slot);
                // SAFETY: the table owned the item and forgets it here.
                unsafe { ManuallyDrop::drop(&mut item) };
            }
            segment.free();
        }
    }

    /// Bytes of the table itself: segments and directory, without the items.
    pub fn memory(&self) -> usize {
        let directory = if self.depth == 0 { 0 } else { 8 << self.depth };
        self.segments().map(|segment| HEADER + segment.capacity() * 8).sum::<usize>() + directory
    }

    /// Segments' count, slots in all and items, for DEBUG HTSTATS.
    pub fn shape(&self) -> (usize, usize, usize) {
        let (count, slots) =
            self.segments().fold((0, 0), |(n, slots), segment| (n + 1, slots + segment.capacity()));
        (count, slots, self.len)
    }
}

impl<T: Item> Drop for Table<T> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Asks the processor for the cache line at `address`, which need not be valid.
#[inline]
pub fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch(address.cast(), std::arch::x86_64::_MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    struct Number {
        n: Box<u64>,
    }

    fn mix(number: u64) -> u64 {
        number
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(31)
            .wrapping_mul(0xd6e8_feb8_6659_fd93)
    }

    impl Item for Number {
        fn into_raw(self) -> NonNull<u8> {
            NonNull::from(Box::leak(self.n)).cast()
        }
        unsafe fn from_raw(raw: NonNull<u8>) -> Self {
            // SAFETY: from `into_raw`.
            Number { n: unsafe { Box::from_raw(raw.as_ptr().cast()) } }
        }
        fn hash(&self) -> u64 {
            mix(*self.n)
        }
    }

    fn get(table: &Table<Number>, number: u64) -> Option<u64> {
        table.find(mix(number), |item| *item.n == number).map(|item| *item.n)
    }

    #[test]
    fn holds_what_a_set_holds() {
        let count = if cfg!(miri) { 300 } else { 50_000 };
        let mut table = Table::new();
        let mut model = BTreeSet::new();
        for step in 0..count * 4 {
            let number = mix(step) % count;
            if mix(step + 7).is_multiple_of(3) {
                let gone = table.remove(mix(number), |item: &Number| *item.n == number);
                assert_eq!(gone.is_some(), model.remove(&number));
            } else if get(&table, number).is_none() {
                table.insert(mix(number), Number { n: Box::new(number) });
                assert!(model.insert(number));
            }
            assert_eq!(table.len(), model.len());
        }
        for number in 0..count {
            assert_eq!(get(&table, number).is_some(), model.contains(&number));
        }
        assert_eq!(table.iter().map(|item| *item.n).collect::<BTreeSet<_>>(), model);
        for number in 0..count {
            let gone = table.remove(mix(number), |item| *item.n == number);
            assert_eq!(gone.is_some(), model.contains(&number));
        }
        assert!(table.is_empty());
    }

    #[test]
    fn scan_visits_all_that_stayed() {
        let count: u64 = if cfg!(miri) { 200 } else { 20_000 };
        let mut table = Table::new();
        for number in 0..count {
            table.insert(mix(number), Number { n: Box::new(number) });
        }
        let mut seen = BTreeSet::new();
        let mut cursor = 0;
        let mut fresh = count;
        let mut steps = 0;
        loop {
            let next = table.scan(cursor, 10, |item| {
                seen.insert(*item.n);
            });
            steps += 1;
            // First grow by far more than is there, then take the grown part away again.
            if steps % 2 == 0 && fresh < count * 4 {
                for _ in 0..50 {
                    table.insert(mix(fresh), Number { n: Box::new(fresh) });
                    fresh += 1;
                }
            } else if fresh > count {
                for _ in 0..20.min(fresh - count) {
                    fresh -= 1;
                    table.remove(mix(fresh), |item: &Number| *item.n == fresh);
                }
            }
            match next {
                Some(next) => {
                    assert!(next > cursor && next << (64 - CURSOR_SHIFT) == 0);
                    cursor = next;
                }
                None => break,
            }
        }
        assert!((0..count).all(|number| seen.contains(&number)));
    }

    #[test]
    fn load_stays_between_its_bounds() {
        let count = if cfg!(miri) { 500 } else { 300_000 };
        let mut table = Table::new();
        for number in 0..count {
            table.insert(mix(number), Number { n: Box::new(number) });
            if number > 10_000 && number % 5_000 == 0 {
                let bytes = table.memory() as f64 / table.len() as f64;
                assert!(bytes < 12.5, "{bytes} bytes an item at {number}");
            }
        }
    }

    #[test]
    fn random_is_about_even() {
        if cfg!(miri) {
            return;
        }
        let mut table = Table::new();
        let mut state = 1u64;
        for number in 0..5000 {
            table.insert(mix(number), Number { n: Box::new(number) });
        }
        let mut counts = vec![0u32; 5000];
        for _ in 0..500_000 {
            let item = table.random(|| {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                mix(state ^ (state >> 29))
            });
            counts[*item.expect("not empty").n as usize] += 1;
        }
        assert!(counts.iter().all(|count| (40..190).contains(count)));
    }
}
