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
        let t = codec::read_snapshot(record)?;
        let id = t.id;
        self.last_id.fetch_max(id, Ordering::Relaxed);
        let number = id as usize % SHARDS_COUNT;
        let mut shard = held(&self.shards[number]);
        shard.by_gid.insert(t.gid.clone(), id);
        let before = shard.slots.get(&id).map(|slot| match slot {
            Slot::Live(live) => live.entry.clone(),
            Slot::Done(_) => Entry::of(&t),
        });
        let is_new = before.is_none();
        let entry = Entry::of(&t);
        let mut index = held(&self.index);
        index.update(id, before.as_ref(), Some(&entry));
        index.based(position, id);
        if t.status.is_final() {
            if is_new {
                let bytes = record.len() as u32;
                index.finish(t.status, Finished { id, at_ms: t.finished_ms, bytes });
            }
            shard.slots.insert(id, Slot::Done(record.into()));
        } else {
            let mut live = Live::new(t, entry);
            live.recorded_branches = live.t.branches.len();
            shard.slots.insert(id, Slot::Live(Box::new(live)));
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
