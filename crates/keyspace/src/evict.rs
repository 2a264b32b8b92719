//! Which key goes when memory is short: Redis's approximated LRU and LFU (a pool of the best
//! candidates of small samples), random keys, and the exact next to expire for `volatile-ttl`.

use std::sync::atomic::Ordering;

use crate::access;
use crate::keyspace::{Keyspace, ShardData};
use crate::random::Random;
use crate::raw::entry::Entry;
use crate::raw::shards::SHARDS;
use crate::settings::Policy;

const POOL: usize = 16;

struct Candidate {
    /// The larger, the better to evict.
    score: u64,
    db: usize,
    key: Vec<u8>,
}

/// Keeps the pool between evictions; one per thread.
#[derive(Default)]
pub struct Evictor {
    pool: Vec<Candidate>,
}

impl Evictor {
    /// The database and key that should go next, `None` if the policy finds none.
    pub fn pick(
        &mut self,
        space: &Keyspace,
        now_ms: i64,
        r: &mut Random,
    ) -> Option<(usize, Vec<u8>)> {
        match space.settings.policy() {
            Policy::NoEviction => None,
            Policy::AllKeysRandom | Policy::VolatileRandom => {
                sample(space, now_ms, r).map(|found| (found.db, found.key))
            }
            Policy::VolatileTtl => next_to_expire(space),
            _ => self.pick_best(space, now_ms, r),
        }
    }

    fn pick_best(
        &mut self,
        space: &Keyspace,
        now_ms: i64,
        r: &mut Random,
    ) -> Option<(usize, Vec<u8>)> {
        let samples = space.settings.maxmemory_samples.load(Ordering::Relaxed).max(1);
        for _ in 0..samples {
            let Some(found) = sample(space, now_ms, r) else { break };
            if !self.pool.iter().any(|other| other.db == found.db && other.key == found.key) {
                self.pool.push(found);
            }
        }
        self.pool.sort_by_key(|candidate| candidate.score);
        let surplus = self.pool.len().saturating_sub(POOL);
        self.pool.drain(..surplus);
        self.pool.pop().map(|best| (best.db, best.key))
    }
}

/// Shards to look at before giving up: with very few keys most are empty.
const TRIES: usize = SHARDS * 2;

fn sample(space: &Keyspace, now_ms: i64, r: &mut Random) -> Option<Candidate> {
    let volatile = space.settings.policy().is_volatile();
    let start = r.below(SHARDS);
    for step in 0..TRIES {
        let shard = if step < 64 { r.below(SHARDS) } else { (start + step) % SHARDS };
        let held = space.lock_one(shard);
        let data = held.shard(shard);
        let score = |entry: &Entry| score(space, entry, now_ms);
        let found = if volatile { any_volatile(data, r, score) } else { any(data, r, score) };
        if found.is_some() {
            return found;
        }
    }
    None
}

fn any(data: &ShardData, r: &mut Random, score: impl Fn(&Entry) -> u64) -> Option<Candidate> {
    let db = r.below(data.databases());
    let entry = data.table(db)?.random(|| r.bits())?;
    Some(Candidate { score: score(&entry), db, key: entry.key().to_vec() })
}

fn any_volatile(
    data: &ShardData,
    r: &mut Random,
    score: impl Fn(&Entry) -> u64,
) -> Option<Candidate> {
    let item = data.due.any(r.below(data.due.len()))?;
    let matches = |entry: &Entry| entry.expire_at() == Some(item.at_ms);
    let entry = data.table(item.db())?.find(item.table_hash(), matches)?;
    Some(Candidate { score: score(&entry), db: item.db(), key: entry.key().to_vec() })
}

fn score(space: &Keyspace, entry: &Entry, now_ms: i64) -> u64 {
    if space.settings.policy().is_lfu() {
        return u64::from(255 - access::frequency(&space.settings, entry.access(), now_ms));
    }
    u64::from(access::idle_seconds(entry.access(), now_ms))
}

fn next_to_expire(space: &Keyspace) -> Option<(usize, Vec<u8>)> {
    for _ in 0..TRIES {
        let shard = space.next_due_shard()?;
        let mut held = space.lock_one(shard);
        let data = held.shard_mut(shard);
        let Some(item) = data.due.peek() else { continue };
        let found = data.table(item.db()).and_then(|table| {
            let matches = |entry: &Entry| entry.expire_at() == Some(item.at_ms);
            table.find(item.table_hash(), matches).map(|entry| entry.key().to_vec())
        });
        if let Some(key) = found {
            return Some((item.db(), key));
        }
        // A leftover of a key that is gone: forget it and look again.
        data.due.pop_due(i64::MAX);
        space.set_next_due_ms(shard, data.due.next_ms());
    }
    None
}
