//! A list of byte strings: one listpack, then a row of nodes.
//!
//! ```text
//!   up to 1 KiB     Packed                        "listpack"
//!   up to 8 KiB     Nodes: one node               "listpack"
//!   more            Nodes: | node | node | node | "quicklist"
//! ```
//!
//! What OBJECT ENCODING says follows Redis 7.2's rules, with hysteresis: a list becomes a quicklist
//! when it would outgrow one node of `list-max-listpack-size`, and a listpack again when all of it
//! fits in half of one. How it is held is our own business: from 1 KiB on in nodes that have room
//! at both ends ([`crate::raw::node`]), so that a push or a pop at either end of a list of any
//! length moves nothing.
//!
//! **Invariant:** no node is empty, `len` is the sum of the nodes' counts, and a list that is not
//! `quick` has at most one node.

use std::collections::vec_deque;
use std::fmt;

pub use super::nodes::{End, ListLimits, Side};
use super::nodes::{NODE_BYTES_MAX, Nodes, beside, remove_end, remove_equal};
use crate::raw::compact::{Compact, View, ViewMut};
use crate::raw::node::Node;
use crate::raw::packed::{self, Element, Packed};

/// Elements' bytes from which on a list is held in nodes.
const PACKED_BYTES_MAX: usize = 1024;
/// Elements' bytes from which down it is packed again.
const PACKED_BYTES_AGAIN: usize = 512;
/// Header and end mark of Redis's listpack: they count where Redis compares sizes.
const LISTPACK_OVERHEAD: usize = 7;

/// A list; see the module's own text.
#[repr(transparent)]
#[derive(Default, Clone)]
pub struct List(Compact<Nodes>);

/// The form a list has, for those who write it out.
pub enum ListView<'a> {
    /// A block of elements.
    Packed(&'a Packed),
    /// Nodes in order.
    Nodes(vec_deque::Iter<'a, Node>),
}

impl List {
    /// The form it has.
    pub fn view(&self) -> ListView<'_> {
        match self.0.view() {
            View::Small(packed) => ListView::Packed(packed),
            View::Large(nodes) => ListView::Nodes(nodes.nodes.iter()),
        }
    }

    /// What OBJECT ENCODING says.
    pub fn encoding(&self) -> &'static str {
        match self.0.view() {
            View::Large(nodes) if nodes.quick => "quicklist",
            _ => "listpack",
        }
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        match self.0.view() {
            View::Small(packed) => packed.len(),
            View::Large(nodes) => nodes.len,
        }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes on the heap, summed over the nodes.
    pub fn memory(&self) -> usize {
        match self.0.view() {
            View::Small(packed) => packed.memory(),
            View::Large(nodes) => {
                size_of::<Nodes>()
                    + nodes.nodes.capacity() * size_of::<Node>()
                    + nodes.nodes.iter().map(Node::memory).sum::<usize>()
            }
        }
    }

    /// How many allocations it takes to free it.
    pub fn free_effort(&self) -> usize {
        match self.0.view() {
            View::Small(_) => 1,
            View::Large(nodes) => nodes.nodes.len() + 2,
        }
    }

    /// Pushes `values` one after the other.
    #[inline]
    pub fn push<'v, I>(&mut self, end: End, values: I, limits: ListLimits)
    where
        I: ExactSizeIterator<Item = &'v [u8]> + Clone,
    {
        if !self.is_quick() {
            let bytes = values.clone().map(<[u8]>::len).sum();
            self.grow(bytes, values.len(), limits);
        }
        match self.0.view_mut() {
            ViewMut::Large(nodes) => values.for_each(|value| nodes.push(end, value, limits)),
            ViewMut::Small(packed) => values.for_each(|value| match end {
                End::Left => packed.push_front(value),
                End::Right => packed.push_back(value),
            }),
        }
    }

    /// The element at an end.
    pub fn end(&self, end: End) -> Option<Element<'_>> {
        match end {
            End::Left => self.iter().next(),
            End::Right => self.iter_back(0).next(),
        }
    }

    /// Takes the element at an end out and shows it to `visit`.
    #[inline]
    pub fn pop<R>(
        &mut self,
        end: End,
        limits: ListLimits,
        visit: impl FnOnce(Element) -> R,
    ) -> Option<R> {
        let result = visit(self.end(end)?);
        match self.0.view_mut() {
            ViewMut::Small(packed) => remove_end(packed, end),
            ViewMut::Large(nodes) => nodes.remove_end(end),
        }
        self.shrink(limits);
        Some(result)
    }

    /// The element with this index.
    pub fn get(&self, index: usize) -> Option<Element<'_>> {
        self.iter_from(index).next()
    }

    /// Every element in order.
    pub fn iter(&self) -> Iter<'_> {
        self.iter_from(0)
    }

    /// The elements from `index` on; none if that is past the end.
    pub fn iter_from(&self, index: usize) -> Iter<'_> {
        match self.0.view() {
            View::Small(packed) => {
                let offset = packed.offset(index).unwrap_or(packed.bytes().len());
                Iter { current: packed.iter_from(offset), rest: Default::default() }
            }
            View::Large(nodes) => match nodes.locate(index) {
                Some((node, offset)) => Iter {
                    current: nodes.nodes[node].iter_from(offset),
                    rest: nodes.nodes.range(node + 1..),
                },
                None => Iter { current: Default::default(), rest: Default::default() },
            },
        }
    }

    /// The elements from the last to the first, without the last `skip`.
    pub fn iter_back(&self, skip: usize) -> IterBack<'_> {
        let Some(count) = self.len().checked_sub(skip) else {
            return IterBack { current: Default::default(), rest: Default::default() };
        };
        match self.0.view() {
            View::Small(packed) => {
                let offset = packed.offset(count).expect("at most the length");
                IterBack { current: packed.iter_to(offset), rest: Default::default() }
            }
            View::Large(nodes) => match nodes.locate(count) {
                Some((node, offset)) => IterBack {
                    current: nodes.nodes[node].iter_to(offset),
                    rest: nodes.nodes.range(..node),
                },
                None => IterBack { current: Default::default(), rest: nodes.nodes.iter() },
            },
        }
    }

    /// Puts `value` in the place of the element with this index; returns false past the end.
    pub fn set(&mut self, index: usize, value: &[u8], limits: ListLimits) -> bool {
        self.grow(value.len(), 1, limits);
        if index >= self.len() {
            return false;
        }
        match self.0.view_mut() {
            ViewMut::Small(packed) => {
                packed.replace(packed.offset(index).expect("below the length"), value);
            }
            ViewMut::Large(nodes) => {
                let (node, offset) = nodes.locate(index).expect("below the length");
                nodes.replace(node, offset, value, limits);
            }
        }
        self.shrink(limits);
        true
    }

    /// Puts `value` beside the first element equal to `pivot`; returns false if there is none.
    pub fn insert(&mut self, pivot: &[u8], value: &[u8], side: Side, limits: ListLimits) -> bool {
        self.grow(value.len(), 1, limits);
        match self.0.view_mut() {
            ViewMut::Small(packed) => {
                let Some(offset) = packed.find(pivot, 0, 1) else {
                    return false;
                };
                packed.insert(beside(packed, offset, side), value);
            }
            ViewMut::Large(nodes) => {
                let found = nodes.nodes.iter().enumerate().find_map(|(index, node)| {
                    node.find(pivot, 0, 1).map(|offset| (index, beside(node, offset, side)))
                });
                let Some((node, offset)) = found else {
                    return false;
                };
                nodes.insert(node, offset, value, limits);
            }
        }
        true
    }

    /// Takes out up to `count` elements equal to `value`, beginning at an end; returns how many.
    pub fn remove_equal(
        &mut self,
        value: &[u8],
        from: End,
        count: usize,
        limits: ListLimits,
    ) -> usize {
        let removed = match self.0.view_mut() {
            ViewMut::Small(packed) => remove_equal(packed, value, from, count),
            ViewMut::Large(nodes) => nodes.remove_equal(value, from, count),
        };
        if removed > 0 {
            self.shrink(limits);
        }
        removed
    }

    /// Takes out the elements from `start` on, `count` of them or what there is.
    pub fn remove_range(&mut self, start: usize, count: usize, limits: ListLimits) {
        let count = count.min(self.len().saturating_sub(start));
        if count == 0 {
            return;
        }
        match self.0.view_mut() {
            ViewMut::Small(packed) => {
                packed.remove(packed.offset(start).expect("below the length"), count);
            }
            ViewMut::Large(nodes) => nodes.remove_range(start, count),
        }
        self.shrink(limits);
    }

    /// Adds a whole block as a node of its own, as a file has it; [`List::settle`] comes last.
    pub fn push_node(&mut self, packed: &Packed) {
        if !packed.is_empty() {
            let nodes = self.make_large();
            nodes.quick = true;
            let mut node = Node::new();
            node.append(packed);
            node.seal();
            nodes.len += node.len();
            nodes.nodes.push_back(node);
        }
    }

    /// The list of one block, as a file has it.
    pub fn from_packed(packed: Packed, limits: ListLimits) -> List {
        let fits = limits.allow(packed.bytes().len() + LISTPACK_OVERHEAD, packed.len());
        if fits && packed.bytes().len() <= PACKED_BYTES_MAX {
            return List(Compact::small(packed));
        }
        let mut list = List::default();
        list.push_node(&packed);
        list.settle(limits);
        list
    }

    /// Takes the encoding that a list with these elements has once it was built.
    pub fn settle(&mut self, limits: ListLimits) {
        if self.is_quick() {
            self.unquicken(limits.bytes_max(), limits.count_max());
        } else {
            self.grow(0, 0, limits);
        }
    }

    #[inline]
    fn is_quick(&self) -> bool {
        matches!(self.0.view(), View::Large(nodes) if nodes.quick)
    }

    /// Becomes a quicklist where `count` more elements of `bytes` in all might not fit in one node.
    fn grow(&mut self, bytes: usize, count: usize, limits: ListLimits) {
        let (used, len) = match self.0.view() {
            View::Small(packed) => (packed.bytes().len(), packed.len()),
            View::Large(nodes) if nodes.quick => return,
            View::Large(nodes) => (nodes.nodes.iter().map(|n| n.bytes().len()).sum(), nodes.len),
        };
        if !limits.allow(used + LISTPACK_OVERHEAD + bytes, len + count) {
            self.make_large().quick = true;
        } else if used + bytes > PACKED_BYTES_MAX {
            self.make_large();
        }
    }

    /// Becomes a listpack where everything fits in half a node, and packed if it is small.
    #[inline]
    fn shrink(&mut self, limits: ListLimits) {
        match self.0.view() {
            View::Large(nodes) if nodes.nodes.len() <= 1 => (),
            _ => return,
        }
        if self.is_quick() {
            let bytes_max = match limits.listpack_size {
                0.. => NODE_BYTES_MAX,
                _ => limits.bytes_max() / 2,
            };
            self.unquicken(bytes_max, limits.count_max() / 2);
        }
        if let View::Large(nodes) = self.0.view()
            && !nodes.quick
            && nodes.nodes.iter().all(|node| node.bytes().len() <= PACKED_BYTES_AGAIN)
        {
            let mut packed = Packed::new();
            nodes.nodes.iter().for_each(|node| packed.append(node));
            self.0.set_small(packed);
        }
    }

    fn unquicken(&mut self, bytes_max: usize, count_max: usize) {
        if let ViewMut::Large(nodes) = self.0.view_mut()
            && nodes.nodes.len() == 1
            && nodes.nodes[0].bytes().len() + LISTPACK_OVERHEAD <= bytes_max
            && nodes.len <= count_max
        {
            nodes.quick = false;
        }
    }

    fn make_large(&mut self) -> &mut Nodes {
        if let View::Small(packed) = self.0.view() {
            let mut nodes = Nodes { len: packed.len(), ..Nodes::default() };
            if nodes.len > 0 {
                let mut node = Node::new();
                node.append(packed);
                nodes.nodes.push_back(node);
            }
            self.0.set_large(nodes);
        }
        match self.0.view_mut() {
            ViewMut::Large(nodes) => nodes,
            ViewMut::Small(_) => unreachable!("just made large"),
        }
    }
}

/// The elements of a list in order.
#[derive(Clone)]
pub struct Iter<'a> {
    current: packed::Iter<'a>,
    rest: vec_deque::Iter<'a, Node>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        loop {
            if let Some(element) = self.current.next() {
                return Some(element);
            }
            self.current = self.rest.next()?.iter();
        }
    }
}

/// The elements of a list from the last to the first.
#[derive(Clone)]
pub struct IterBack<'a> {
    current: packed::Iter<'a>,
    rest: vec_deque::Iter<'a, Node>,
}

impl<'a> Iterator for IterBack<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        loop {
            if let Some(element) = self.current.next_back() {
                return Some(element);
            }
            self.current = self.rest.next_back()?.iter();
        }
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::packed::tests::value;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Push(End, Vec<Vec<u8>>),
        Pop(End),
        Set(usize, Vec<u8>),
        Insert(usize, Vec<u8>, Side),
        RemoveEqual(usize, End, usize),
        RemoveRange(usize, usize),
    }

    fn end() -> impl Strategy<Value = End> {
        prop::sample::select(vec![End::Left, End::Right])
    }

    fn short() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![3 => (0..9u8).prop_map(|n| vec![b'0' + n]), 2 => value()]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (end(), proptest::collection::vec(short(), 1..12))
                .prop_map(|(end, values)| Step::Push(end, values)),
            3 => end().prop_map(Step::Pop),
            2 => (any::<usize>(), short()).prop_map(|(at, value)| Step::Set(at, value)),
            4 => (any::<usize>(), short(), any::<bool>()).prop_map(|(at, value, before)| {
                Step::Insert(at, value, if before { Side::Before } else { Side::After })
            }),
            1 => (any::<usize>(), end(), 1usize..4)
                .prop_map(|(at, end, count)| Step::RemoveEqual(at, end, count)),
            1 => (any::<usize>(), 0usize..60)
                .prop_map(|(at, count)| Step::RemoveRange(at, count)),
        ]
    }

    fn apply(list: &mut List, model: &mut Vec<Vec<u8>>, step: Step, limits: ListLimits) {
        match step {
            Step::Push(end, values) => {
                list.push(end, values.iter().map(Vec::as_slice), limits);
                for value in values {
                    model.insert(if end == End::Left { 0 } else { model.len() }, value);
                }
            }
            Step::Pop(end) => {
                let popped = list.pop(end, limits, |element| element.to_vec());
                let expected = match end {
                    _ if model.is_empty() => None,
                    End::Left => Some(model.remove(0)),
                    End::Right => model.pop(),
                };
                assert_eq!(popped, expected);
            }
            Step::Set(at, value) => {
                let at = at % (model.len() + 1);
                assert_eq!(list.set(at, &value, limits), at < model.len());
                if let Some(old) = model.get_mut(at) {
                    *old = value;
                }
            }
            Step::Insert(at, value, side) => {
                let pivot = model.get(at % (model.len() + 1)).cloned().unwrap_or(vec![0; 99]);
                let found = model.iter().position(|other| *other == pivot);
                assert_eq!(list.insert(&pivot, &value, side, limits), found.is_some());
                if let Some(at) = found {
                    model.insert(at + usize::from(side == Side::After), value);
                }
            }
            Step::RemoveEqual(at, from, count) => {
                let value = model.get(at % (model.len() + 1)).cloned().unwrap_or_default();
                let mut indexes: Vec<usize> = (0..model.len()).collect();
                if from == End::Right {
                    indexes.reverse();
                }
                indexes.retain(|index| model[*index] == value);
                indexes.truncate(count);
                assert_eq!(list.remove_equal(&value, from, count, limits), indexes.len());
                let mut index = 0;
                model.retain(|_| {
                    index += 1;
                    !indexes.contains(&(index - 1))
                });
            }
            Step::RemoveRange(at, count) => {
                let at = at % (model.len() + 1);
                list.remove_range(at, count, limits);
                model.drain(at..model.len().min(at + count));
            }
        }
    }

    /// What a node's elements take at least. A listpack becomes a quicklist's first node as it is,
    /// and was allowed, as in Redis, by the bytes of the last elements pushed without their
    /// headers: whole with headers it may be above the limit.
    fn least_bytes(node: &Node) -> usize {
        let least = |element: Element| match element {
            // Nineteen digits take ten bytes, the shortest number two.
            Element::Int(_) => element.to_vec().len() / 2,
            Element::Str(bytes) => bytes.len(),
        };
        node.iter().map(least).sum()
    }

    fn check(list: &List, model: &[Vec<u8>], limits: ListLimits) {
        assert_eq!(list.len(), model.len());
        assert!(list.iter().map(Element::to_vec).eq(model.iter().cloned()));
        assert!(list.iter_back(0).map(Element::to_vec).eq(model.iter().rev().cloned()));
        for index in (0..model.len()).step_by(7) {
            assert!(list.get(index).is_some_and(|element| element.is(&model[index])));
            let back = list.iter_back(index).next().map(Element::to_vec);
            assert_eq!(back.as_ref(), model.get(model.len() - 1 - index));
        }
        assert_eq!(list.get(model.len()), None);
        if let View::Large(nodes) = list.0.view() {
            assert!(nodes.nodes.iter().all(|node| !node.is_empty()));
            assert!(nodes.quick || nodes.nodes.len() <= 1);
            let fits = |node: &Node| {
                node.len() == 1
                    || limits.allow(least_bytes(node), node.len())
                    || nodes.nodes.len() == 1
            };
            assert!(nodes.nodes.iter().all(fits));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 300 }))]
        #[test]
        fn holds_what_a_vec_holds(
            steps in proptest::collection::vec(step(), 0..80),
            size in prop::sample::select(vec![-2, -1, 0, 1, 3, 20, 1000])
        ) {
            let limits = ListLimits { listpack_size: size };
            let mut list = List::default();
            let mut model = Vec::new();
            for step in steps {
                apply(&mut list, &mut model, step, limits);
                check(&list, &model, limits);
            }
            let copy = list.clone();
            prop_assert_eq!(copy.encoding(), list.encoding());
            check(&copy, &model, limits);
            let mut again = List::default();
            match list.view() {
                ListView::Packed(packed) => again.push_node(packed),
                ListView::Nodes(nodes) => {
                    for node in nodes {
                        let packed = Packed::from_listpack(&node.to_listpack()).expect("our own");
                        again.push_node(&packed);
                    }
                }
            }
            again.settle(limits);
            check(&again, &model, limits);
        }
    }

    #[test]
    fn encodings_change_as_in_redis() {
        let limits = ListLimits { listpack_size: 4 };
        let mut list = List::default();
        let push = |list: &mut List, count: usize| {
            list.push(End::Right, vec![b"x".as_slice(); count].into_iter(), limits);
        };
        push(&mut list, 4);
        assert_eq!(list.encoding(), "listpack");
        push(&mut list, 1);
        assert_eq!(list.encoding(), "quicklist");
        list.remove_range(0, 1, limits);
        assert_eq!(list.encoding(), "quicklist", "two nodes");
        list.pop(End::Right, limits, |_| ());
        assert_eq!(list.encoding(), "quicklist", "more than half a node");
        list.pop(End::Right, limits, |_| ());
        assert_eq!(list.encoding(), "listpack");
        // One long element makes a quicklist of one node; putting a short one there undoes it.
        let limits = ListLimits::default();
        list.set(0, &[b'x'; 9000], limits);
        assert_eq!(list.encoding(), "quicklist");
        list.set(0, b"x", limits);
        assert_eq!(list.encoding(), "listpack");
    }

    #[test]
    fn a_million_short_elements_take_35_bytes_each() {
        let count = if cfg!(miri) { 2000 } else { 1_000_000 };
        for end in [End::Left, End::Right] {
            let mut list = List::default();
            for _ in 0..count {
                list.push(end, [[b'x'; 32].as_slice()].into_iter(), ListLimits::default());
            }
            let each = list.memory() as f64 / count as f64;
            assert!(cfg!(miri) || each < 34.5, "{each} bytes");
        }
    }
}
