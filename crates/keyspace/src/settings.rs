//! What can be set at run time and the keyspace looks at: limits of encodings, eviction policy,
//! notification classes. Plain atomics, read without order: a new value holds from the next
//! command.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::effects::Freeing;
use crate::types::hash::HashLimits;
use crate::types::list::ListLimits;
use crate::types::set::SetLimits;
use crate::types::stream::StreamLimits;
use crate::types::zset::ZsetLimits;

/// The eviction policies of `maxmemory-policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Policy {
    /// Writes are refused.
    NoEviction,
    /// The least recently used of all keys.
    AllKeysLru,
    /// The least recently used of the keys that expire.
    VolatileLru,
    /// The least frequently used of all keys.
    AllKeysLfu,
    /// The least frequently used of the keys that expire.
    VolatileLfu,
    /// Any key.
    AllKeysRandom,
    /// Any key that expires.
    VolatileRandom,
    /// The key that expires next.
    VolatileTtl,
}

impl Policy {
    /// Every policy with its name.
    pub const ALL: [(Policy, &'static str); 8] = [
        (Policy::NoEviction, "noeviction"),
        (Policy::AllKeysLru, "allkeys-lru"),
        (Policy::VolatileLru, "volatile-lru"),
        (Policy::AllKeysLfu, "allkeys-lfu"),
        (Policy::VolatileLfu, "volatile-lfu"),
        (Policy::AllKeysRandom, "allkeys-random"),
        (Policy::VolatileRandom, "volatile-random"),
        (Policy::VolatileTtl, "volatile-ttl"),
    ];

    /// Whether access is counted (LFU) instead of dated (LRU).
    pub fn is_lfu(self) -> bool {
        matches!(self, Policy::AllKeysLfu | Policy::VolatileLfu)
    }

    /// Whether only keys that expire may go.
    pub fn is_volatile(self) -> bool {
        use Policy::{VolatileLfu, VolatileLru, VolatileRandom, VolatileTtl};
        matches!(self, VolatileLru | VolatileLfu | VolatileRandom | VolatileTtl)
    }
}

/// The run-time settings; each field is the option of the same name in redis.conf.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Settings {
    pub maxmemory: AtomicU64,
    policy: AtomicU32,
    pub maxmemory_samples: AtomicUsize,
    pub lfu_log_factor: AtomicU32,
    pub lfu_decay_time: AtomicU32,
    pub notify: AtomicU32,
    pub active_expire: AtomicBool,
    pub list_max_listpack_size: AtomicI64,
    pub hash_max_listpack_entries: AtomicUsize,
    pub hash_max_listpack_value: AtomicUsize,
    pub set_max_intset_entries: AtomicUsize,
    pub set_max_listpack_entries: AtomicUsize,
    pub set_max_listpack_value: AtomicUsize,
    pub zset_max_listpack_entries: AtomicUsize,
    pub zset_max_listpack_value: AtomicUsize,
    pub stream_node_max_bytes: AtomicUsize,
    pub stream_node_max_entries: AtomicUsize,
    pub hll_sparse_max_bytes: AtomicUsize,
    pub proto_max_bulk_len: AtomicU64,
    pub lazyfree_lazy_eviction: AtomicBool,
    pub lazyfree_lazy_expire: AtomicBool,
    pub lazyfree_lazy_server_del: AtomicBool,
    pub lazyfree_lazy_user_del: AtomicBool,
    pub lazyfree_lazy_user_flush: AtomicBool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            maxmemory: AtomicU64::new(0),
            policy: AtomicU32::new(Policy::NoEviction as u32),
            maxmemory_samples: AtomicUsize::new(5),
            lfu_log_factor: AtomicU32::new(10),
            lfu_decay_time: AtomicU32::new(1),
            notify: AtomicU32::new(0),
            active_expire: AtomicBool::new(true),
            list_max_listpack_size: AtomicI64::new(-2),
            hash_max_listpack_entries: AtomicUsize::new(512),
            hash_max_listpack_value: AtomicUsize::new(64),
            set_max_intset_entries: AtomicUsize::new(512),
            set_max_listpack_entries: AtomicUsize::new(128),
            set_max_listpack_value: AtomicUsize::new(64),
            zset_max_listpack_entries: AtomicUsize::new(128),
            zset_max_listpack_value: AtomicUsize::new(64),
            stream_node_max_bytes: AtomicUsize::new(4096),
            stream_node_max_entries: AtomicUsize::new(100),
            hll_sparse_max_bytes: AtomicUsize::new(3000),
            proto_max_bulk_len: AtomicU64::new(512 << 20),
            lazyfree_lazy_eviction: AtomicBool::new(false),
            lazyfree_lazy_expire: AtomicBool::new(false),
            lazyfree_lazy_server_del: AtomicBool::new(false),
            lazyfree_lazy_user_del: AtomicBool::new(false),
            lazyfree_lazy_user_flush: AtomicBool::new(false),
        }
    }
}

/// Who frees, as one of the `lazyfree-lazy-*` options says.
pub fn freeing(option: &AtomicBool) -> Freeing {
    if option.load(Ordering::Relaxed) { Freeing::Background } else { Freeing::Here }
}

impl Settings {
    /// The eviction policy.
    pub fn policy(&self) -> Policy {
        let number = self.policy.load(Ordering::Relaxed);
        let found = Policy::ALL.iter().find(|(policy, _)| *policy as u32 == number);
        found.map_or(Policy::NoEviction, |(policy, _)| *policy)
    }

    /// Sets the eviction policy.
    pub fn set_policy(&self, policy: Policy) {
        self.policy.store(policy as u32, Ordering::Relaxed);
    }

    /// Limits of a hash's small encoding.
    pub fn hash_limits(&self) -> HashLimits {
        HashLimits {
            listpack_entries: self.hash_max_listpack_entries.load(Ordering::Relaxed),
            listpack_value: self.hash_max_listpack_value.load(Ordering::Relaxed),
        }
    }

    /// Limits of a set's small encodings.
    pub fn set_limits(&self) -> SetLimits {
        SetLimits {
            intset_entries: self.set_max_intset_entries.load(Ordering::Relaxed),
            listpack_entries: self.set_max_listpack_entries.load(Ordering::Relaxed),
            listpack_value: self.set_max_listpack_value.load(Ordering::Relaxed),
        }
    }

    /// Limits of a sorted set's small encoding.
    pub fn zset_limits(&self) -> ZsetLimits {
        ZsetLimits {
            listpack_entries: self.zset_max_listpack_entries.load(Ordering::Relaxed),
            listpack_value: self.zset_max_listpack_value.load(Ordering::Relaxed),
        }
    }

    /// Limit of a list's node: bytes by class (-1 to -5) or entries (positive), as in Redis.
    pub fn list_limits(&self) -> ListLimits {
        ListLimits { listpack_size: self.list_max_listpack_size.load(Ordering::Relaxed) }
    }

    /// Limits of a stream's blocks; 0 = none.
    pub fn stream_limits(&self) -> StreamLimits {
        StreamLimits {
            node_bytes: self.stream_node_max_bytes.load(Ordering::Relaxed),
            node_entries: self.stream_node_max_entries.load(Ordering::Relaxed),
        }
    }
}
