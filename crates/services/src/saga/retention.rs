//! What is forgotten, and how the log is kept short.
//!
//! Finished transactions are forgotten by age (succeeded and failed ones each by their own), then
//! by count and bytes, oldest end first. The log's oldest segment is removed once it is mostly
//! waste: what is still known of it is written again at the end, made safe, and then the file goes.
//!
//! **Invariant:** a segment is removed only after everything alive in it is on the disk elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::codec;
use super::coordinator::{Coordinator, Slot, held};
use super::policy::Moment;
use super::words::Status;

/// Transactions that are forgotten, or written again, at one go.
const AT_ONCE: usize = 20_000;
/// What an unfinished transaction is taken to need in the log, in bytes.
const UNFINISHED_BYTES: u64 = 1000;

impl Coordinator {
    /// Forgets what is to be forgotten and begins to shorten the log. To be called every second.
    pub fn tidy(self: &Arc<Self>, moment: Moment, compacting: &Arc<AtomicBool>) {
        for _ in 0..AT_ONCE {
            let Some(id) = self.next_forgotten(moment) else { break };
            self.forget(id);
        }
        if let Some(state) = self.state.get() {
            let alive = self.index().finished_bytes + self.unfinished_count() * UNFINISHED_BYTES;
            if let Some(before) = state.to_shorten(alive) {
                self.compact(before, compacting);
            }
        }
    }

    fn next_forgotten(&self, moment: Moment) -> Option<u64> {
        let settings = &self.settings;
        let mut index = held(&self.index);
        let is_too_much = index.finished_count() > settings.finished_max
            || index.finished_bytes > settings.finished_bytes_max;
        let before = |keep_ms: u64| moment.now_ms.saturating_sub(keep_ms);
        let (succeed, failed) = (before(settings.succeed_keep_ms), before(settings.failed_keep_ms));
        let taken = index
            .take_finished(Status::Succeed, succeed, is_too_much)
            .or_else(|| index.take_finished(Status::Failed, failed, is_too_much));
        taken.map(|finished| finished.id)
    }

    /// Writes what is alive before a place again, then removes the segments before it.
    pub fn compact(self: &Arc<Self>, before: u64, compacting: &Arc<AtomicBool>) {
        let Some(state) = self.state.get() else { return };
        if compacting.swap(true, Ordering::AcqRel) {
            return;
        }
        for record in self.topics().records() {
            state.keep(&record);
        }
        for _ in 0..AT_ONCE {
            let Some((_, id)) = held(&self.index).take_based_before(before) else { break };
            let shard = self.shard_of_id(id);
            let record = match shard.slots.get(&id) {
                None => continue,
                Some(Slot::Done(bytes)) => bytes.to_vec(),
                Some(Slot::Live(live)) => codec::snapshot(&live.t),
            };
            // Under the shard's lock: no change of it can be recorded in between.
            let position = state.keep(&record);
            held(&self.index).based(position - 1, id);
        }
        let is_all = held(&self.index).is_based_from(before);
        let (state, compacting) = (Arc::clone(state), Arc::clone(compacting));
        let end = state.end();
        let remove = Arc::clone(&state);
        state.when_safe(
            end,
            Box::new(move |is_safe| {
                if is_safe && is_all {
                    remove.remove_before(before);
                }
                compacting.store(false, Ordering::Release);
            }),
        );
    }
}
