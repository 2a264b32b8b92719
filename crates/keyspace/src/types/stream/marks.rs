//! A stream's counts and outermost ids, and what follows from them about how far a reader is.
//!
//! How many entries lie up to an id is told without looking at any, as in Redis (t_stream.c): a
//! group's own count goes on by one with each entry, as long as no deletion lies ahead, which
//! would make it wrong; where it was lost it is found again at the stream's ends.

use super::group::Group;
use super::id::StreamId;

/// See the module.
#[derive(Clone, Copy)]
pub struct Marks {
    pub last_id: StreamId,
    pub first_id: StreamId,
    pub max_deleted_id: StreamId,
    pub entries_added: u64,
    pub len: usize,
}

impl Marks {
    /// Whether a deletion may have left a gap at `from` or behind it.
    #[inline]
    pub fn has_gap_from(&self, from: StreamId) -> bool {
        let deleted = self.max_deleted_id;
        let any = self.len > 0 && deleted != StreamId::MIN;
        any && self.first_id <= deleted && from <= deleted
    }

    /// See [`super::Stream::entries_up_to`].
    pub fn entries_up_to(&self, id: StreamId) -> Option<u64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        if self.len == 0 && id <= self.last_id || id == self.last_id {
            return Some(self.entries_added);
        }
        let no_gap = self.max_deleted_id == StreamId::MIN || self.max_deleted_id < self.first_id;
        if id > self.last_id || !no_gap || id > self.first_id {
            return None;
        }
        let before = self.entries_added.saturating_sub(self.len as u64);
        Some(if id == self.first_id { before + 1 } else { before })
    }

    /// Moves a group on to `id`, the next entry behind the last one it got.
    #[inline]
    pub fn advance(&self, group: &mut Group, id: StreamId) {
        match &mut group.entries_read {
            Some(read) if !self.has_gap_from(id) => *read += 1,
            read if self.entries_added > 0 => *read = self.entries_up_to(id),
            _ => {}
        }
        group.last_id = id;
    }
}
