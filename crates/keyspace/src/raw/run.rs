//! A run: a few dozen items of a sorted set in order, as the nodes of its tree hold them.
//!
//! ```text
//!  +-------+------+-----+----------------+-----------------+
//!  | score | skip | len | keys [u64; N]  | items [ptr; N]  |
//!  +-------+------+-----+----------------+-----------------+
//! ```
//!
//! What costs here is not comparing but fetching: a comparison of two members that follows their
//! pointers is a cache miss of 100 ns in a set of a million. So a run keeps eight bytes of each
//! item beside the pointers, chosen so that they tell the run's items apart:
//!
//! * *by score*: the score, its bits turned so that they sort as integers; or
//! * *by member*, where the whole run has one score: the eight bytes after the first `skip`, which
//!   all members of the run share. `element:000000123456` needs `skip` = 12, in every run of the
//!   tree, so the shared part is compared once at the root and then known to hold below.
//!
//! Only items whose keys are equal are compared through their pointers. [`Run::refine`] picks the
//! kind and `skip`; it reads every item of the run, so it runs only where a split or a merge left
//! equal keys side by side.
//!
//! **Invariant:** the items of a run ascend by (score, member), its keys do not descend.
//!
//! The code of this file is safe: it reads items by handles, whose makers answer for them.

use std::cmp::Ordering;

use super::scored::Handle;

/// `skip` of a run that is ordered by score.
const BY_SCORE: u32 = u32::MAX;
/// No more than this many shared bytes are skipped; more only means more comparisons.
const SKIP_MAX: usize = 1024;

/// The bits of a score as an integer that sorts as the score does; -0 and 0 are one.
#[inline]
fn score_bits(score: f64) -> u64 {
    let bits = (score + 0.0).to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// Eight bytes of `member` from `skip` on, as an integer that sorts as they do.
#[inline]
fn window(member: &[u8], skip: usize) -> u64 {
    match member.get(skip..skip + 8) {
        Some(bytes) => u64::from_be_bytes(bytes.try_into().expect("eight bytes")),
        None => {
            let mut bytes = [0; 8];
            let rest = member.get(skip..).unwrap_or(&[]);
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(bytes)
        }
    }
}

/// How many leading bytes two members share, up to `SKIP_MAX`.
fn shared(one: &[u8], other: &[u8]) -> usize {
    let both = one.iter().zip(other).take(SKIP_MAX);
    both.take_while(|(one, other)| one == other).count()
}

/// A place among the members of one score.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// Before every member.
    First,
    /// Where this member is or would be.
    At(&'a [u8]),
    /// After every member.
    Last,
}

/// A place in the order to look for.
#[derive(Clone, Copy)]
pub(super) struct Needle<'a> {
    bits: u64,
    place: Place<'a>,
    /// The item itself, where it is known: saves the comparison with itself.
    item: Option<Handle>,
}

impl<'a> Needle<'a> {
    /// The item's own place.
    pub(super) fn of(item: Handle) -> Needle<'a> {
        let place = Place::At(item.member());
        Needle { bits: score_bits(item.score()), place, item: Some(item) }
    }

    /// Where a member of this score is or would be.
    pub(super) fn at(score: f64, member: &'a [u8]) -> Needle<'a> {
        Needle { bits: score_bits(score), place: Place::At(member), item: None }
    }

    /// Before all members of this score.
    pub(super) fn before(score: f64) -> Needle<'a> {
        Needle { bits: score_bits(score), place: Place::First, item: None }
    }

    /// After all members of this score.
    pub(super) fn after(score: f64) -> Needle<'a> {
        Needle { bits: score_bits(score), place: Place::Last, item: None }
    }

    /// How the needle stands to an item of the same score.
    #[inline]
    fn compare_member(&self, item: Handle) -> Ordering {
        match self.place {
            Place::First => Ordering::Less,
            Place::Last => Ordering::Greater,
            Place::At(_) if self.item == Some(item) => Ordering::Equal,
            Place::At(member) => member.cmp(item.member()),
        }
    }

    pub(super) fn compare(&self, item: Handle) -> Ordering {
        self.bits.cmp(&score_bits(item.score())).then_with(|| self.compare_member(item))
    }
}

/// Up to `N` items in order, each with its key.
#[repr(C)]
pub(super) struct Run<const N: usize> {
    /// The score of all items as bits, where the run is ordered by member.
    score: u64,
    /// How many leading bytes all members share, or `BY_SCORE`.
    skip: u32,
    pub(super) len: u32,
    keys: [u64; N],
    pub(super) items: [Handle; N],
}

impl<const N: usize> Run<N> {
    pub(super) fn new() -> Self {
        Run { score: 0, skip: BY_SCORE, len: 0, keys: [0; N], items: [Handle::nothing(); N] }
    }

    /// A run of items that are in order.
    pub(super) fn build(items: &[Handle]) -> Self {
        let mut run = Self::new();
        run.len = items.len() as u32;
        run.items[..items.len()].copy_from_slice(items);
        for (key, item) in run.keys.iter_mut().zip(items) {
            *key = score_bits(item.score());
        }
        run.refine_ties();
        run
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        (self.len as usize).min(N)
    }

    #[inline]
    pub(super) fn items(&self) -> &[Handle] {
        &self.items[..self.len()]
    }

    #[inline]
    fn keys(&self) -> &[u64] {
        &self.keys[..self.len()]
    }

    pub(super) fn last(&self) -> Handle {
        self.items[self.len() - 1]
    }

    /// The needle's item, or where it would stand. `verified` is how many leading bytes of the
    /// needle are known to be those of the run's first item (of the same score), and becomes the
    /// same for each item of the run.
    #[inline]
    pub(super) fn search(&self, needle: &Needle<'_>, verified: &mut usize) -> Result<usize, usize> {
        let known = std::mem::replace(verified, 0);
        if self.skip == BY_SCORE {
            let low = self.keys().partition_point(|key| *key < needle.bits);
            return self.search_equal(low, needle.bits, needle);
        }
        match needle.bits.cmp(&self.score) {
            Ordering::Less => return Err(0),
            Ordering::Greater => return Err(self.len()),
            Ordering::Equal => {}
        }
        let member = match needle.place {
            Place::First => return Err(0),
            Place::Last => return Err(self.len()),
            Place::At(member) => member,
        };
        let skip = self.skip as usize;
        if known < skip {
            let head = &member[..skip.min(member.len())];
            match head.cmp(&self.items[0].member()[..skip]) {
                Ordering::Less => return Err(0),
                Ordering::Greater => return Err(self.len()),
                Ordering::Equal => {}
            }
        }
        *verified = skip;
        let key = window(member, skip);
        let low = self.keys().partition_point(|other| *other < key);
        self.search_equal(low, key, needle)
    }

    /// Searches among the items from `low` on whose key is `key`, by their members.
    #[inline]
    fn search_equal(&self, low: usize, key: u64, needle: &Needle<'_>) -> Result<usize, usize> {
        let equal = self.keys()[low..].iter().take_while(|other| **other == key).count();
        let equal = &self.items()[low..low + equal];
        if let Some(item) = needle.item
            && let Some(index) = equal.iter().position(|other| *other == item)
        {
            return Ok(low + index);
        }
        equal
            .binary_search_by(|item| needle.compare_member(*item).reverse())
            .map(|index| low + index)
            .map_err(|index| low + index)
    }

    /// Puts an item in at `index`; `verified` is what the search for it said.
    pub(super) fn insert(
        &mut self,
        index: usize,
        item: Handle,
        needle: &Needle<'_>,
        verified: usize,
    ) {
        let key = match needle.place {
            _ if self.skip == BY_SCORE => needle.bits,
            Place::At(member) if needle.bits == self.score && verified >= self.skip as usize => {
                window(member, self.skip as usize)
            }
            _ => {
                self.key_by_score();
                needle.bits
            }
        };
        let len = self.len();
        self.keys.copy_within(index..len, index + 1);
        self.items.copy_within(index..len, index + 1);
        self.keys[index] = key;
        self.items[index] = item;
        self.len += 1;
    }

    pub(super) fn remove(&mut self, index: usize) {
        let len = self.len();
        self.keys.copy_within(index + 1..len, index);
        self.items.copy_within(index + 1..len, index);
        self.len -= 1;
    }

    /// Puts `item`, which sorts between its neighbours, in the place of the item at `index`.
    pub(super) fn replace(&mut self, index: usize, item: Handle) {
        let bits = score_bits(item.score());
        let skip = self.skip as usize;
        let fits = self.skip == BY_SCORE || {
            let other = self.items[usize::from(index == 0)];
            let head = item.member().get(..skip);
            self.len > 1 && bits == self.score && head == other.member().get(..skip)
        };
        if !fits {
            self.key_by_score();
        }
        self.items[index] = item;
        self.keys[index] = if self.skip == BY_SCORE { bits } else { window(item.member(), skip) };
        if !fits {
            self.refine_ties();
        }
    }

    /// Whether items can move between the two runs with their keys.
    fn keyed_like(&self, other: &Self) -> bool {
        let skip = self.skip as usize;
        self.skip == other.skip
            && (self.skip == BY_SCORE
                || self.score == other.score
                    && self.items[0].member()[..skip] == other.items[0].member()[..skip])
    }

    /// Makes the scores the keys, which needs no look at an item.
    fn key_by_score(&mut self) {
        if self.skip != BY_SCORE {
            let len = self.len();
            self.keys[..len].fill(self.score);
            self.skip = BY_SCORE;
        }
    }

    /// Looks for better keys where neighbours have equal ones.
    pub(super) fn refine_ties(&mut self) {
        if self.keys().windows(2).any(|pair| pair[0] == pair[1]) {
            self.refine();
        }
    }

    /// Makes the bytes in which the members differ the keys, if they all have one score.
    #[cold]
    fn refine(&mut self) {
        let len = self.len();
        if self.skip == BY_SCORE {
            if self.keys[0] != self.keys[len - 1] {
                return;
            }
            self.score = self.keys[0];
        }
        self.items().iter().for_each(|item| item.prefetch());
        let common = shared(self.items[0].member(), self.items[len - 1].member());
        let differ = |pair: &[Handle]| shared(pair[0].member(), pair[1].member());
        let deepest = self.items().windows(2).map(differ).max().unwrap_or(common);
        // As little as will do, so that all runs of a tree are likely to skip the same.
        let skip = common.min((deepest + 1).saturating_sub(8));
        self.skip = skip as u32;
        for index in 0..len {
            self.keys[index] = window(self.items[index].member(), skip);
        }
    }

    /// Moves the items from `index` on to the start of `right`.
    pub(super) fn shift_right(&mut self, right: &mut Self, index: usize) {
        let moved = self.begin_shift(right, index);
        let right_len = right.len();
        right.keys.copy_within(..right_len, moved);
        right.items.copy_within(..right_len, moved);
        right.keys[..moved].copy_from_slice(&self.keys[index..index + moved]);
        right.items[..moved].copy_from_slice(&self.items[index..index + moved]);
        right.len += moved as u32;
        self.len -= moved as u32;
        self.refine_ties();
        right.refine_ties();
    }

    /// Moves the items before `index` of `right` to the end of `self`.
    pub(super) fn shift_left(&mut self, right: &mut Self, index: usize) {
        self.begin_shift(right, 0);
        let (len, right_len) = (self.len(), right.len());
        self.keys[len..len + index].copy_from_slice(&right.keys[..index]);
        self.items[len..len + index].copy_from_slice(&right.items[..index]);
        right.keys.copy_within(index..right_len, 0);
        right.items.copy_within(index..right_len, 0);
        self.len += index as u32;
        right.len -= index as u32;
        self.refine_ties();
        right.refine_ties();
    }

    /// Gives both runs keys of one kind; returns how many items stand at or after `index` here.
    fn begin_shift(&mut self, right: &mut Self, index: usize) -> usize {
        if right.len == 0 {
            (right.score, right.skip) = (self.score, self.skip);
        } else if !self.keyed_like(right) {
            self.key_by_score();
            right.key_by_score();
        }
        self.len() - index
    }

    /// Panics where an invariant does not hold.
    #[cfg(test)]
    pub(super) fn check(&self) {
        for (key, item) in self.keys().iter().zip(self.items()) {
            let bits = score_bits(item.score());
            if self.skip == BY_SCORE {
                assert_eq!(*key, bits);
            } else {
                let skip = self.skip as usize;
                assert_eq!(self.score, bits);
                assert_eq!(*key, window(item.member(), skip));
                assert_eq!(self.items[0].member()[..skip], item.member()[..skip]);
            }
        }
        for pair in self.items().windows(2) {
            assert_eq!(Needle::of(pair[0]).compare(pair[1]), Ordering::Less);
        }
    }
}
