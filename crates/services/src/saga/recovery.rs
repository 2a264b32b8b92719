//! Reading the log back: each record is made to be what it was when it was written.
//!
//! **Invariant:** records of transactions whose beginning has gone are passed over: they were
//! forgotten, or their snapshot comes later in the log.

use std::sync::atomic::Ordering;

use persist::journal::Position;

use super::codec;
use super::coordinator::{Coordinator, Live, SHARDS_COUNT, Slot, held};
use super::index::{Entry, Finished};

impl Coordinator {
    /// Takes a record of the log, with a position within or before it.
    pub fn replay(&self, position: Position, record: &[u8]) {
        let is_good = match record.first() {
            Some(&codec::TOPIC) => {
                let mut topics = self.topics.write().unwrap_or_else(|p| p.into_inner());
                topics.replay(record).is_some()
            }
            Some(&codec::SNAPSHOT) => self.replay_snapshot(position, record).is_some(),
            Some(&codec::CHANGE) => self.replay_change(record).is_some(),
            _ => false,
        };
        if !is_good {
            tracing::error!("sagas: a record at {position} is of no known form: passed over");
        }
    }

    fn replay_snapshot(&self, position: Position, record: &[u8]) -> Option<()> {
        // Most are finished: those are not made whole.
        let seen = codec::outline(record)?;
        let id = seen.id;
        let is_final = seen.status.is_final();
        let entry = Entry::of_outline(&seen);
        let slot = match is_final {
            true => Slot::Done(record.into()),
            false => {
                let mut live = Live::new(codec::read_snapshot(record)?, entry.clone());
                live.recorded_branches = live.t.branches.len();
                Slot::Live(Box::new(live))
            }
        };
        self.last_id.fetch_max(id, Ordering::Relaxed);
        let mut shard = held(&self.shards[id as usize % SHARDS_COUNT]);
        let before = shard.slots.insert(id, slot);
        if before.is_none() {
            shard.by_gid.insert(seen.gid.into(), id);
        }
        let mut index = held(&self.index);
        match &before {
            Some(Slot::Live(live)) => index.update(id, Some(&live.entry), Some(&entry)),
            // A finished one does not change.
            Some(Slot::Done(_)) => {}
            None => index.update(id, None, Some(&entry)),
        }
        index.based(position, id);
        if is_final && !matches!(before, Some(Slot::Done(_))) {
            let finished = Finished { id, at_ms: seen.finished_ms, bytes: record.len() as u32 };
            index.finish(seen.status, finished);
        }
        Some(())
    }

    fn replay_change(&self, record: &[u8]) -> Option<()> {
        let id = codec::id_of(record)?;
        let mut shard = self.shard_of_id(id);
        // Without its beginning it was forgotten, or its snapshot comes later.
        let Some(slot) = shard.slots.get_mut(&id) else { return Some(()) };
        let Slot::Live(live) = slot else { return Some(()) };
        codec::apply_change(&mut live.t, record)?;
        live.recorded_branches = live.t.branches.len();
        let entry = Entry::of(&live.t);
        let mut index = held(&self.index);
        index.update(id, Some(&live.entry), Some(&entry));
        live.entry = entry;
        if live.t.status.is_final() {
            let bytes = codec::snapshot(&live.t);
            let length = bytes.len() as u32;
            let finished = Finished { id, at_ms: live.t.finished_ms, bytes: length };
            index.finish(live.t.status, finished);
            *slot = Slot::Done(bytes.into());
        }
        Some(())
    }
}
