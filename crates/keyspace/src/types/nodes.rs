//! The row of nodes that a long list is.
//!
//! ```text
//!   | node | node | node |     a ring buffer of nodes, each a block of elements
//! ```
//!
//! A node takes elements up to `list-max-listpack-size`; what does not fit begins a new one, at
//! the end where it was pushed, or after a split where it was inserted. An element larger than
//! the limit has a node of its own.
//!
//! **Invariant:** as in [`super::list`]: no node is empty, `len` is the sum of the nodes' counts.

use std::collections::VecDeque;

use crate::raw::node::Node;
use crate::raw::packed::{Block, Element, Storage};

/// How large one node of a list becomes: `list-max-listpack-size`.
#[derive(Debug, Clone, Copy)]
pub struct ListLimits {
    /// From 1: elements in a node. Below 0: bytes, -1 = 4 KiB to -5 = 64 KiB.
    pub listpack_size: i64,
}

impl Default for ListLimits {
    fn default() -> Self {
        ListLimits { listpack_size: -2 }
    }
}

impl ListLimits {
    pub(super) fn bytes_max(self) -> usize {
        match self.listpack_size {
            0.. => NODE_BYTES_MAX,
            size => 4096 << (size.unsigned_abs() - 1).min(4),
        }
    }

    pub(super) fn count_max(self) -> usize {
        match self.listpack_size {
            0.. => self.listpack_size.max(1) as usize,
            _ => usize::MAX,
        }
    }

    pub(super) fn allow(self, bytes: usize, count: usize) -> bool {
        bytes <= self.bytes_max() && count <= self.count_max()
    }

    fn allow_one_more(self, node: &Node, value: &[u8]) -> bool {
        self.allow(node.bytes().len() + estimate(value), node.len() + 1)
    }
}

/// A node limited by its number of elements has no more bytes than this.
pub(super) const NODE_BYTES_MAX: usize = 8192;
/// What an element takes at most.
fn estimate(value: &[u8]) -> usize {
    value.len() + if value.len() < 64 { 2 } else { 10 }
}

/// An end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Where LPUSH pushes.
    Left,
    /// Where RPUSH pushes.
    Right,
}

/// Which side of the pivot LINSERT means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// In front of it.
    Before,
    /// Behind it.
    After,
}

/// The large form.
#[derive(Default, Clone)]
pub struct Nodes {
    pub(super) nodes: VecDeque<Node>,
    pub(super) len: usize,
    pub(super) quick: bool,
}

impl Nodes {
    /// Where the element with this index is: its node, and its offset there.
    pub(super) fn locate(&self, index: usize) -> Option<(usize, usize)> {
        if index >= self.len {
            return None;
        }
        let mut rest = index;
        if index <= self.len / 2 {
            for (number, node) in self.nodes.iter().enumerate() {
                if rest < node.len() {
                    return Some((number, node.offset(rest).expect("below the length")));
                }
                rest -= node.len();
            }
        } else {
            rest = self.len - index;
            for (number, node) in self.nodes.iter().enumerate().rev() {
                if rest <= node.len() {
                    let index = node.len() - rest;
                    return Some((number, node.offset(index).expect("below the length")));
                }
                rest -= node.len();
            }
        }
        None
    }

    #[inline]
    pub(super) fn push(&mut self, end: End, value: &[u8], limits: ListLimits) {
        self.len += 1;
        let quick = self.quick;
        let node = match end {
            End::Left => self.nodes.front_mut(),
            End::Right => self.nodes.back_mut(),
        };
        let node = match node {
            Some(node) if !quick || limits.allow_one_more(node, value) => node,
            full => {
                if let Some(full) = full {
                    full.seal();
                }
                self.add_node(end)
            }
        };
        match end {
            End::Left => node.push_front(value),
            End::Right => node.push_back(value),
        }
    }

    fn add_node(&mut self, end: End) -> &mut Node {
        match end {
            End::Left => self.nodes.push_front(Node::new()),
            End::Right => self.nodes.push_back(Node::new()),
        }
        let index = if end == End::Left { 0 } else { self.nodes.len() - 1 };
        &mut self.nodes[index]
    }

    #[inline]
    pub(super) fn remove_end(&mut self, end: End) {
        let node = match end {
            End::Left => self.nodes.front_mut(),
            End::Right => self.nodes.back_mut(),
        };
        let node = node.expect("an element was there");
        remove_end(node, end);
        self.len -= 1;
        if node.is_empty() {
            match end {
                End::Left => self.nodes.pop_front(),
                End::Right => self.nodes.pop_back(),
            };
        }
    }

    /// Puts `value` at an offset of a node, or near it where the node is full.
    pub(super) fn insert(&mut self, index: usize, offset: usize, value: &[u8], limits: ListLimits) {
        self.len += 1;
        let end = self.nodes[index].bytes().len();
        if !self.quick || limits.allow_one_more(&self.nodes[index], value) {
            self.nodes[index].insert(offset, value);
        } else if offset == 0 && index > 0 && limits.allow_one_more(&self.nodes[index - 1], value) {
            self.nodes[index - 1].push_back(value);
        } else if offset == end
            && self.nodes.get(index + 1).is_some_and(|next| limits.allow_one_more(next, value))
        {
            self.nodes[index + 1].push_front(value);
        } else {
            let mut node = Node::new();
            node.push_back(value);
            if offset == 0 {
                self.nodes.insert(index, node);
                return;
            }
            if offset < end {
                let rest = self.nodes[index].split_off(offset);
                self.nodes.insert(index + 1, rest);
            }
            self.nodes.insert(index + 1, node);
            // From the right, so that the indexes on the left stay what they are.
            for left in (index.saturating_sub(1)..index + 3).rev() {
                self.merge(left, limits);
            }
        }
    }

    /// Joins a node with the next one where both fit in one.
    fn merge(&mut self, index: usize, limits: ListLimits) {
        let next = self.nodes.get(index.wrapping_add(1));
        let (Some(node), Some(next)) = (self.nodes.get(index), next) else {
            return;
        };
        if limits.allow(node.bytes().len() + next.bytes().len(), node.len() + next.len()) {
            let next = self.nodes.remove(index + 1).expect("just seen");
            self.nodes[index].append(&next);
        }
    }

    pub(super) fn replace(
        &mut self,
        index: usize,
        offset: usize,
        value: &[u8],
        limits: ListLimits,
    ) {
        let node = &mut self.nodes[index];
        let old = node.after(offset) - offset;
        let bytes = node.bytes().len() - old + estimate(value);
        if !self.quick || node.len() == 1 || limits.allow(bytes, node.len()) {
            node.replace(offset, value);
            if node.len() == 1 {
                // It may have been alone for its size, and is small now.
                self.merge(index, limits);
                self.merge(index.wrapping_sub(1), limits);
            }
            return;
        }
        node.remove(offset, 1);
        self.len -= 1;
        self.insert(index, offset, value, limits);
    }

    pub(super) fn remove_equal(&mut self, value: &[u8], from: End, count: usize) -> usize {
        let mut removed = 0;
        for step in 0..self.nodes.len() {
            if removed == count {
                break;
            }
            let index = if from == End::Left { step } else { self.nodes.len() - 1 - step };
            removed += remove_equal(&mut self.nodes[index], value, from, count - removed);
        }
        if removed > 0 {
            self.nodes.retain(|node| !node.is_empty());
            self.len -= removed;
        }
        removed
    }

    /// Takes out `count` elements, which are there.
    pub(super) fn remove_range(&mut self, start: usize, count: usize) {
        let (mut index, offset) = self.locate(start).expect("below the length");
        self.len -= count;
        let mut rest = count;
        if offset > 0 {
            rest -= self.nodes[index].remove(offset, rest);
            index += 1;
        }
        let mut end = index;
        while let Some(node) = self.nodes.get(end).filter(|node| node.len() <= rest) {
            rest -= node.len();
            end += 1;
        }
        self.nodes.drain(index..end);
        if rest > 0 {
            self.nodes[index].remove(0, rest);
        }
    }
}

pub(super) fn beside<S: Storage>(block: &Block<S>, offset: usize, side: Side) -> usize {
    match side {
        Side::Before => offset,
        Side::After => block.after(offset),
    }
}

#[inline]
pub(super) fn remove_end<S: Storage>(block: &mut Block<S>, end: End) {
    let offset = match end {
        End::Left => 0,
        End::Right => block.before(block.bytes().len()).expect("an element is there"),
    };
    block.remove(offset, 1);
}

pub(super) fn remove_equal<S: Storage>(
    block: &mut Block<S>,
    value: &[u8],
    from: End,
    count: usize,
) -> usize {
    let mut removed = 0;
    if from == End::Left {
        let mut offset = 0;
        while removed < count {
            let Some(found) = block.find(value, offset, 1) else {
                break;
            };
            block.remove(found, 1);
            removed += 1;
            offset = found;
        }
        return removed;
    }
    let needle = Element::new(value);
    let mut offset = block.bytes().len();
    while removed < count {
        let Some(found) = block.before(offset) else {
            break;
        };
        if block.element(found) == needle {
            block.remove(found, 1);
            removed += 1;
        }
        offset = found;
    }
    removed
}
