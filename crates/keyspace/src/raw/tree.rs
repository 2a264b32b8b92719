//! The order of a large sorted set: a B+tree of handles with counts, so that a rank is found, and
//! a place by rank, in one descent.
//!
//! ```text
//!  Inner: run of separators         16 + 56 * 16     each child's smallest item, as a run
//!         counts                    56 * 4           items below each child
//!         children                  56 * 16
//!
//!  Leaf:  one run                   16 + 63 * 16 = 1024 bytes
//! ```
//!
//! A full leaf gives to a neighbour before it is split, and items that come in order leave full
//! leaves behind: the tree takes about 20 bytes an item, filled at random, 17 in order.
//!
//! **Invariant:** a separator *is* the first item of its child, so no handle outlives its item.
//! **Invariant:** no node but an empty tree's root is empty; all leaves are at one depth.
//!
//! The code of this file is safe: it reads items by handles, whose makers answer for them.

use std::ops::Range;

use super::run::{Needle, Run};
use super::scored::Handle;
use super::table::prefetch;

/// Items in a leaf at most: the leaf fills 1024 bytes.
const LEAF: usize = 63;
/// Children of an inner node at most: the node fills 2048 bytes.
const INNER: usize = 56;
/// A neighbour takes items of a full leaf when it has room for this many.
const ROOM_MIN: usize = 8;
type Leaf = Run<LEAF>;

enum Node {
    Leaf(Box<Leaf>),
    Inner(Box<Inner>),
}

struct Inner {
    run: Run<INNER>,
    counts: [u32; INNER],
    children: [Option<Node>; INNER],
}

impl Node {
    fn first(&self) -> Handle {
        match self {
            Node::Leaf(leaf) => leaf.items[0],
            Node::Inner(inner) => inner.run.items[0],
        }
    }

    fn last(&self) -> Handle {
        match self {
            Node::Leaf(leaf) => leaf.last(),
            Node::Inner(inner) => inner.run.last(),
        }
    }

    fn count(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len(),
            Node::Inner(inner) => inner.counts().iter().map(|count| *count as usize).sum(),
        }
    }

    fn is_full(&self) -> bool {
        match self {
            Node::Leaf(leaf) => leaf.len() == LEAF,
            Node::Inner(inner) => inner.len() == INNER,
        }
    }

    /// Moves the upper part to a new node. Where the needle goes past the end, only the last item
    /// goes over, so that items that come in order leave full nodes behind.
    fn split(&mut self, needle: &Needle<'_>) -> Node {
        let append = needle.compare(self.last()).is_gt();
        match self {
            Node::Leaf(leaf) => {
                let mut right = Box::new(Leaf::new());
                leaf.shift_right(&mut right, if append { LEAF - 1 } else { LEAF / 2 });
                Node::Leaf(right)
            }
            Node::Inner(inner) => {
                let mut right = Box::new(Inner::new());
                inner.shift_right(&mut right, if append { INNER - 1 } else { INNER / 2 });
                Node::Inner(right)
            }
        }
    }

    /// Adds an item that is not there yet; the node is not full.
    fn insert(&mut self, needle: &Needle<'_>, mut verified: usize, item: Handle) {
        match self {
            Node::Inner(inner) => inner.insert(needle, verified, item),
            Node::Leaf(leaf) => {
                leaf.fetch();
                let (Ok(index) | Err(index)) = leaf.search(needle, &mut verified);
                leaf.insert(index, item, needle, verified);
            }
        }
    }

    /// Takes the needle's item out, which is there; says whether it was the first.
    fn remove(&mut self, needle: &Needle<'_>, mut verified: usize) -> bool {
        match self {
            Node::Inner(inner) => inner.remove(needle, verified),
            Node::Leaf(leaf) => {
                leaf.fetch();
                let index = leaf.search(needle, &mut verified).expect("the item is in the tree");
                leaf.remove(index);
                index == 0
            }
        }
    }
}

impl Leaf {
    /// Asks the processor for the whole leaf at once, so that the search waits once, not at
    /// every step.
    #[inline]
    fn fetch(&self) {
        let start = std::ptr::from_ref(self).cast::<u8>();
        for line in 0..size_of::<Leaf>() / 64 {
            prefetch(start.wrapping_add(line * 64));
        }
    }
}

impl Inner {
    fn new() -> Inner {
        Inner { run: Run::new(), counts: [0; INNER], children: [const { None }; INNER] }
    }

    /// A node of nodes that are in order.
    fn build(nodes: Vec<Node>) -> Inner {
        let firsts: Vec<Handle> = nodes.iter().map(Node::first).collect();
        let mut inner = Inner::new();
        inner.run = Run::build(&firsts);
        for (index, node) in nodes.into_iter().enumerate() {
            inner.counts[index] = node.count() as u32;
            inner.children[index] = Some(node);
        }
        inner
    }

    fn len(&self) -> usize {
        self.run.len()
    }

    fn counts(&self) -> &[u32] {
        &self.counts[..self.len()]
    }

    fn child(&self, index: usize) -> &Node {
        self.children[index].as_ref().expect("each separator has its child")
    }

    fn child_mut(&mut self, index: usize) -> &mut Node {
        self.children[index].as_mut().expect("each separator has its child")
    }

    /// The child where the needle is or would be.
    fn search(&self, needle: &Needle<'_>, verified: &mut usize) -> usize {
        match self.run.search(needle, verified) {
            Ok(index) => index,
            Err(index) => index.saturating_sub(1),
        }
    }

    fn insert(&mut self, needle: &Needle<'_>, verified: usize, item: Handle) {
        let mut below = verified;
        let mut index = self.search(needle, &mut below);
        if self.child(index).is_full() {
            self.make_room(index, needle);
            below = verified;
            index = self.search(needle, &mut below);
        }
        self.counts[index] += 1;
        self.child_mut(index).insert(needle, below, item);
        if index == 0 && self.child(0).first() == item {
            self.run.replace(0, item);
        }
    }

    /// Makes room in the full child at `index` or beside it: a leaf gives to a neighbour if that
    /// has room, else the child is split.
    fn make_room(&mut self, index: usize, needle: &Needle<'_>) {
        let last = self.len() - 1;
        let append = index == last && needle.compare(self.child(index).last()).is_gt();
        if !append && matches!(self.child(index), Node::Leaf(_)) {
            let room = |index: usize| LEAF - self.counts[index] as usize;
            if index > 0 && room(index - 1) >= ROOM_MIN {
                return self.even_out(index - 1);
            }
            if index < last && room(index + 1) >= ROOM_MIN {
                return self.even_out(index);
            }
        }
        let right = self.child_mut(index).split(needle);
        self.counts[index] = self.child(index).count() as u32;
        self.insert_child(index + 1, right);
    }

    fn insert_child(&mut self, index: usize, node: Node) {
        let first = node.first();
        let needle = Needle::of(first);
        let mut verified = 0;
        // The search says how many bytes the newcomer shares with the run; its place is known.
        let _ = self.run.search(&needle, &mut verified);
        let len = self.len();
        self.counts.copy_within(index..len, index + 1);
        self.children[index..=len].rotate_right(1);
        self.counts[index] = node.count() as u32;
        self.children[index] = Some(node);
        self.run.insert(index, first, &needle, verified);
        self.run.refine_ties();
    }

    fn remove_child(&mut self, index: usize) -> Node {
        let len = self.len();
        self.counts.copy_within(index + 1..len, index);
        self.children[index..len].rotate_left(1);
        self.run.remove(index);
        self.children[len - 1].take().expect("each separator has its child")
    }

    /// The two neighbours from `index` on, mutably.
    fn pair(&mut self, index: usize) -> (&mut Node, &mut Node) {
        let [left, right] = &mut self.children[index..index + 2] else {
            unreachable!("a slice of two")
        };
        (left.as_mut().expect("a child"), right.as_mut().expect("a child"))
    }

    /// Gives the leaves at `index` and `index + 1` equally many items.
    fn even_out(&mut self, index: usize) {
        let (Node::Leaf(left), Node::Leaf(right)) = self.pair(index) else { return };
        let half = (left.len() + right.len()) / 2;
        if left.len() > half {
            left.shift_right(right, half);
        } else {
            let count = half - left.len();
            left.shift_left(right, count);
        }
        let (counts, first) = ([left.len, right.len], right.items[0]);
        self.counts[index..index + 2].copy_from_slice(&counts);
        self.run.replace(index + 1, first);
    }

    fn remove(&mut self, needle: &Needle<'_>, verified: usize) -> bool {
        let mut below = verified;
        let index = self.search(needle, &mut below);
        self.counts[index] -= 1;
        let first = self.child_mut(index).remove(needle, below);
        if self.counts[index] == 0 {
            self.remove_child(index);
            return index == 0;
        }
        if first {
            let first = self.child(index).first();
            self.run.replace(index, first);
        }
        self.merge(index);
        first && index == 0
    }

    /// Joins the child at `index` with a neighbour if it is less than half full and both fit one
    /// node with room to spare; a leaf that is nearly empty takes half of a neighbour's items.
    fn merge(&mut self, index: usize) {
        let (size, fits, starved) = match self.child(index) {
            Node::Leaf(_) => (self.counts[index] as usize, LEAF - ROOM_MIN, LEAF / 4),
            Node::Inner(inner) => (inner.len(), INNER - ROOM_MIN, 0),
        };
        if size > fits / 2 || self.len() == 1 {
            return;
        }
        let left = if index + 1 < self.len() { index } else { index - 1 };
        let before = (left > 0).then(|| left - 1).filter(|_| left == index);
        for left in [Some(left), before].into_iter().flatten() {
            if self.joined(left) <= fits {
                return self.join(left);
            }
        }
        if size < starved {
            self.even_out(left);
        }
    }

    /// How many items or children the two nodes from `index` on have.
    fn joined(&self, index: usize) -> usize {
        let size = |index: usize| match self.child(index) {
            Node::Leaf(_) => self.counts[index] as usize,
            Node::Inner(inner) => inner.len(),
        };
        size(index) + size(index + 1)
    }

    fn join(&mut self, index: usize) {
        match self.pair(index) {
            (Node::Leaf(left), Node::Leaf(right)) => {
                let count = right.len();
                left.shift_left(right, count);
            }
            (Node::Inner(left), Node::Inner(right)) => left.take_all(right),
            _ => unreachable!("all leaves are at one depth"),
        }
        self.counts[index] += self.counts[index + 1];
        self.remove_child(index + 1);
    }

    /// Moves the children from `index` on to the empty node `right`.
    fn shift_right(&mut self, right: &mut Inner, index: usize) {
        let len = self.len();
        right.counts[..len - index].copy_from_slice(&self.counts[index..len]);
        right.children[..len - index].swap_with_slice(&mut self.children[index..len]);
        self.run.shift_right(&mut right.run, index);
    }

    /// Moves all children of `right` to the end.
    fn take_all(&mut self, right: &mut Inner) {
        let (len, count) = (self.len(), right.len());
        self.counts[len..len + count].copy_from_slice(&right.counts[..count]);
        self.children[len..len + count].swap_with_slice(&mut right.children[..count]);
        self.run.shift_left(&mut right.run, count);
    }
}

/// The tree; see the module's own text.
#[derive(Default)]
pub(super) struct Tree {
    root: Option<Node>,
    len: usize,
}

impl Tree {
    /// A tree of items that are in order, its leaves nearly full.
    pub(super) fn build(items: &[Handle]) -> Tree {
        let leaf = |items: &[Handle]| Node::Leaf(Box::new(Run::build(items)));
        let mut nodes: Vec<Node> = items.chunks(LEAF - 3).map(leaf).collect();
        while nodes.len() > 1 {
            let mut above = Vec::with_capacity(nodes.len() / (INNER - 4) + 1);
            let mut rest = nodes.into_iter();
            loop {
                let group: Vec<Node> = rest.by_ref().take(INNER - 4).collect();
                if group.is_empty() {
                    break;
                }
                above.push(Node::Inner(Box::new(Inner::build(group))));
            }
            nodes = above;
        }
        Tree { root: nodes.pop(), len: items.len() }
    }

    /// Number of items.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds an item that is not there yet.
    pub(super) fn insert(&mut self, item: Handle) {
        let needle = Needle::of(item);
        let root = self.root.get_or_insert_with(|| Node::Leaf(Box::new(Leaf::new())));
        if root.is_full() {
            let right = root.split(&needle);
            let left = self.root.take().expect("just split");
            self.root = Some(Node::Inner(Box::new(Inner::build(vec![left, right]))));
        }
        self.root.as_mut().expect("just made").insert(&needle, 0, item);
        self.len += 1;
    }

    /// Takes out an item that is there.
    pub(super) fn remove(&mut self, item: Handle) {
        let Some(root) = &mut self.root else { return };
        root.remove(&Needle::of(item), 0);
        self.len -= 1;
        if self.len == 0 {
            self.root = None;
        }
        while let Some(Node::Inner(inner)) = &mut self.root
            && inner.len() == 1
        {
            self.root = Some(inner.remove_child(0));
        }
    }

    /// Asks the processor for the leaf where the needle is or would be.
    pub(super) fn fetch(&self, needle: &Needle<'_>) {
        let mut verified = 0;
        let mut next = self.root.as_ref();
        while let Some(node) = next {
            next = match node {
                Node::Inner(inner) => Some(inner.child(inner.search(needle, &mut verified))),
                Node::Leaf(leaf) => {
                    leaf.fetch();
                    None
                }
            };
        }
    }

    /// How many items stand before the needle.
    pub(super) fn rank(&self, needle: &Needle<'_>) -> usize {
        let mut rank = 0;
        let mut verified = 0;
        let mut next = self.root.as_ref();
        while let Some(node) = next {
            match node {
                Node::Inner(inner) => {
                    let index = inner.search(needle, &mut verified);
                    rank +=
                        inner.counts[..index].iter().map(|count| *count as usize).sum::<usize>();
                    next = Some(inner.child(index));
                }
                Node::Leaf(leaf) => {
                    leaf.fetch();
                    let (Ok(index) | Err(index)) = leaf.search(needle, &mut verified);
                    return rank + index;
                }
            }
        }
        rank
    }

    /// How many items stand before the first for which `before` is false; it must be true for a
    /// first part of the items and false for the rest.
    pub(super) fn partition_point(&self, mut before: impl FnMut(Handle) -> bool) -> usize {
        let mut rank = 0;
        let mut next = self.root.as_ref();
        while let Some(node) = next {
            match node {
                Node::Inner(inner) => {
                    let index = inner.run.items().partition_point(|item| before(*item));
                    let index = index.saturating_sub(1);
                    rank +=
                        inner.counts[..index].iter().map(|count| *count as usize).sum::<usize>();
                    next = Some(inner.child(index));
                }
                Node::Leaf(leaf) => {
                    return rank + leaf.items().partition_point(|item| before(*item));
                }
            }
        }
        rank
    }

    /// The leaf that holds the item of this rank, and the rank of its first item.
    fn leaf(&self, rank: usize) -> (&[Handle], usize) {
        let mut left = rank;
        let mut next = self.root.as_ref();
        while let Some(node) = next {
            match node {
                Node::Inner(inner) => {
                    let mut index = 0;
                    while index + 1 < inner.len() && left >= inner.counts[index] as usize {
                        left -= inner.counts[index] as usize;
                        index += 1;
                    }
                    next = Some(inner.child(index));
                }
                Node::Leaf(leaf) => return (leaf.items(), rank - left),
            }
        }
        (&[], 0)
    }

    /// The item of this rank.
    pub(super) fn get(&self, rank: usize) -> Option<Handle> {
        let (items, start) = self.leaf(rank);
        items.get(rank - start).copied()
    }

    /// The items of these ranks, in order; `rev` gives them from the other end.
    pub(super) fn range(&self, ranks: Range<usize>) -> Walk<'_> {
        let end = ranks.end.min(self.len);
        let ranks = ranks.start.min(end)..end;
        Walk { tree: self, ranks, front: (&[], 0), back: (&[], 0) }
    }

    /// Bytes of the nodes.
    pub(super) fn memory(&self) -> usize {
        fn nodes(node: &Node) -> usize {
            match node {
                Node::Leaf(_) => size_of::<Leaf>(),
                Node::Inner(inner) if matches!(inner.child(0), Node::Leaf(_)) => {
                    size_of::<Inner>() + inner.len() * size_of::<Leaf>()
                }
                Node::Inner(inner) => {
                    let below = (0..inner.len()).map(|index| nodes(inner.child(index)));
                    size_of::<Inner>() + below.sum::<usize>()
                }
            }
        }
        self.root.as_ref().map_or(0, nodes)
    }

    /// Panics where an invariant does not hold.
    #[cfg(test)]
    pub(super) fn check(&self) {
        fn check_node(node: &Node, is_root: bool) -> (usize, usize) {
            match node {
                Node::Leaf(leaf) => {
                    assert!(leaf.len() > 0);
                    leaf.check();
                    (leaf.len(), 1)
                }
                Node::Inner(inner) => {
                    assert!(inner.len() > usize::from(is_root));
                    inner.run.check();
                    let mut depth = 0;
                    for index in 0..inner.len() {
                        let child = inner.child(index);
                        assert_eq!(child.first(), inner.run.items[index]);
                        let (count, below) = check_node(child, false);
                        assert_eq!(inner.counts[index] as usize, count);
                        assert!(index == 0 || below == depth);
                        depth = below;
                    }
                    (node.count(), depth + 1)
                }
            }
        }
        let count = self.root.as_ref().map_or(0, |root| check_node(root, true).0);
        assert_eq!(count, self.len);
    }
}

/// Items of a range of ranks, from both ends.
#[derive(Clone)]
pub(super) struct Walk<'a> {
    tree: &'a Tree,
    ranks: Range<usize>,
    /// The leaf at each end and the rank of its first item.
    front: (&'a [Handle], usize),
    back: (&'a [Handle], usize),
}

/// How many items ahead are asked for.
const AHEAD: usize = 8;

impl Iterator for Walk<'_> {
    type Item = Handle;

    fn next(&mut self) -> Option<Handle> {
        let rank = self.ranks.next()?;
        if rank >= self.front.1 + self.front.0.len() || rank < self.front.1 {
            self.front = self.tree.leaf(rank);
            let start = rank - self.front.1;
            self.front.0.iter().skip(start).take(AHEAD).for_each(|item| item.prefetch());
        }
        let (items, start) = self.front;
        if let Some(item) = items.get(rank - start + AHEAD) {
            item.prefetch();
        }
        items.get(rank - start).copied()
    }

    fn nth(&mut self, count: usize) -> Option<Handle> {
        self.ranks.start = self.ranks.start.saturating_add(count).min(self.ranks.end);
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.ranks.size_hint()
    }
}

impl DoubleEndedIterator for Walk<'_> {
    fn next_back(&mut self) -> Option<Handle> {
        let rank = self.ranks.next_back()?;
        if rank >= self.back.1 + self.back.0.len() || rank < self.back.1 {
            self.back = self.tree.leaf(rank);
            let end = rank - self.back.1 + 1;
            self.back.0[..end].iter().rev().take(AHEAD).for_each(|item| item.prefetch());
        }
        let (items, start) = self.back;
        if let Some(item) = (rank - start).checked_sub(AHEAD).and_then(|index| items.get(index)) {
            item.prefetch();
        }
        items.get(rank - start).copied()
    }

    fn nth_back(&mut self, count: usize) -> Option<Handle> {
        self.ranks.end = self.ranks.end.saturating_sub(count).max(self.ranks.start);
        self.next_back()
    }
}

impl ExactSizeIterator for Walk<'_> {}
