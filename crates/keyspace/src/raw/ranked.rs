//! The large form of a sorted set: a hash table that owns the members with their scores, and a
//! tree of pointers to them that keeps their order.
//!
//! ```text
//!   table: member -> Scored (owner)        tree: rank <-> Handle (pointer to the same item)
//! ```
//!
//! **Invariant:** the tree holds exactly one handle to each item of the table, and is told to
//! forget an item before the table lets it go; so every handle it uses points to a live item.
//! **Invariant:** an item never moves, and its score changes only while the tree does not hold it.

use std::ops::Range;

use super::run::Needle;
use super::scored::{Handle, Scored};
use super::table::{Item, Ref, Table};
use super::tree::{Tree, Walk};
use crate::hasher;

/// What setting a member's score did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome {
    /// The member was not there before.
    Added,
    /// The member had this other score.
    Updated(f64),
    /// The member had this score already.
    Same,
}

/// A place in the order of scores, between the members of two neighbouring scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Edge {
    /// Before all members that have this score or a larger one.
    Before(f64),
    /// After all members that have this score or a smaller one.
    After(f64),
}

/// Members in the order of (score, member), found by member, by score and by rank.
#[derive(Default)]
pub struct Ranked {
    table: Table<Scored>,
    tree: Tree,
    item_bytes: usize,
}

fn handle(item: &Ref<'_, Scored>) -> Handle {
    // SAFETY: made for the tree of the table that owns the item, or used before it is borrowed
    // mutably again; see the module's invariants.
    unsafe { Handle::new(item.as_raw()) }
}

impl Ranked {
    /// A set of these members, which need no order; where one comes twice, the last score holds.
    pub fn build<'a>(members: impl IntoIterator<Item = (&'a [u8], f64)>) -> Ranked {
        let mut set = Ranked::default();
        for (member, score) in members {
            let hash = hasher::hash(member);
            match set.table.find(hash, |item| item.member() == member).map(|item| handle(&item)) {
                // SAFETY: the set is not shared, and the tree does not hold the item yet.
                Some(item) => unsafe { item.set_score(score) },
                None => {
                    let item = Scored::new(score, member);
                    set.item_bytes += item.memory();
                    set.table.insert(hash, item);
                }
            }
        }
        let mut items: Vec<Handle> = set.table.iter().map(|item| handle(&item)).collect();
        if !items.is_sorted_by(|one, other| Needle::of(*one).compare(*other).is_lt()) {
            items.sort_unstable_by(|one, other| Needle::of(*one).compare(*other));
        }
        set.tree = Tree::build(&items);
        set
    }

    /// Number of members.
    #[inline]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    #[inline]
    fn find(&self, member: &[u8]) -> Option<Handle> {
        let found = self.table.find(hasher::hash(member), |item| item.member() == member);
        found.map(|item| handle(&item))
    }

    /// Asks the processor for the line where the search for a member with this hash starts.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.table.prefetch(hash);
    }

    /// Asks the processor for the member that this hash most likely means.
    #[inline]
    pub fn prefetch_member(&self, hash: u64) {
        self.table.prefetch_item(hash);
    }

    /// The member's score.
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        self.find(member).map(|item| item.score())
    }

    /// Gives the member this score, adding it if it is not there.
    pub fn set(&mut self, member: &[u8], score: f64) -> Outcome {
        let hash = hasher::hash(member);
        // Both ways to memory at once: the table's line comes while the tree is descended.
        self.table.prefetch(hash);
        self.tree.fetch(&Needle::at(score, member));
        let found = self.table.find(hash, |item| item.member() == member).map(|item| handle(&item));
        if let Some(item) = found {
            let old = item.score();
            if old == score {
                return Outcome::Same;
            }
            self.tree.remove(item);
            // SAFETY: the set is borrowed mutably, and the tree does not hold the item now.
            unsafe { item.set_score(score) };
            self.tree.insert(item);
            return Outcome::Updated(old);
        }
        let item = Scored::new(score, member);
        self.item_bytes += item.memory();
        let raw = item.into_raw();
        // SAFETY: the item goes into the table at once, which keeps it in its place.
        let (item, handle) = unsafe { (Scored::from_raw(raw), Handle::new(raw)) };
        self.table.insert(hash, item);
        self.tree.insert(handle);
        Outcome::Added
    }

    /// Takes a member out; returns the score it had.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let item = self.find(member)?;
        self.tree.remove(item);
        let gone = self.table.remove(hasher::hash(member), |other| other.member() == member)?;
        self.item_bytes -= gone.memory();
        Some(gone.score())
    }

    /// Takes out the members of these ranks.
    pub fn remove_range(&mut self, ranks: Range<usize>) {
        let items: Vec<Handle> = self.tree.range(ranks).collect();
        if items.len() == self.len() {
            *self = Ranked::default();
            return;
        }
        for item in items {
            self.remove(item.member());
        }
    }

    /// How many members stand before this one, and its score.
    pub fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        let item = self.find(member)?;
        Some((self.tree.rank(&Needle::of(item)), item.score()))
    }

    /// How many members stand before the edge.
    pub fn rank_of_edge(&self, edge: Edge) -> usize {
        self.tree.rank(&match edge {
            Edge::Before(score) => Needle::before(score),
            Edge::After(score) => Needle::after(score),
        })
    }

    /// How many members stand before `member`, were all of one score. (With more than one score
    /// the order by member alone is not the set's, and Redis promises nothing either.)
    pub fn rank_of_member(&self, member: &[u8]) -> usize {
        match (self.get(0), self.get(self.len().saturating_sub(1))) {
            (Some((_, low)), Some((_, high))) if low == high => {
                self.tree.rank(&Needle::at(low, member))
            }
            _ => self.tree.partition_point(|item| item.member() < member),
        }
    }

    /// The member of this rank and its score.
    pub fn get(&self, rank: usize) -> Option<(&[u8], f64)> {
        self.tree.get(rank).map(|item| (item.member(), item.score()))
    }

    /// The members of these ranks, in order.
    pub fn range(&self, ranks: Range<usize>) -> Members<'_> {
        Members(self.tree.range(ranks))
    }

    /// A random member with its score; every member is about equally likely.
    pub fn random(&self, random: impl FnMut() -> u64) -> Option<(&[u8], f64)> {
        let item = handle(&self.table.random(random)?);
        Some((item.member(), item.score()))
    }

    /// The table of the members, in no particular order: to scan, or to go through a whole large
    /// set more cheaply than by [`Ranked::range`].
    pub fn table(&self) -> &Table<Scored> {
        &self.table
    }

    /// Bytes of everything but the value itself.
    pub fn memory(&self) -> usize {
        self.item_bytes + self.table.memory() + self.tree.memory()
    }

    /// Panics where an invariant does not hold.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.tree.check();
        assert_eq!(self.tree.len(), self.table.len());
        let bytes: usize = self.table.iter().map(|item| item.memory()).sum();
        assert_eq!(bytes, self.item_bytes);
    }
}

impl Clone for Ranked {
    fn clone(&self) -> Self {
        Ranked::build(self.range(0..self.len()))
    }
}

/// Members with their scores, from both ends.
#[derive(Clone)]
pub struct Members<'a>(Walk<'a>);

impl<'a> Iterator for Members<'a> {
    type Item = (&'a [u8], f64);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|item| (item.member(), item.score()))
    }

    fn nth(&mut self, count: usize) -> Option<Self::Item> {
        self.0.nth(count).map(|item| (item.member(), item.score()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl DoubleEndedIterator for Members<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(|item| (item.member(), item.score()))
    }

    fn nth_back(&mut self, count: usize) -> Option<Self::Item> {
        self.0.nth_back(count).map(|item| (item.member(), item.score()))
    }
}

impl ExactSizeIterator for Members<'_> {}
