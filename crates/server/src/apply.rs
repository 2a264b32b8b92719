//! Carries options over to the places that read them on the hot path.

use std::sync::atomic::{AtomicUsize, Ordering};

use keyspace::settings::Policy;

use crate::option_words::{event_mask, limits_of};
use crate::options::{Value, index_of};
use crate::shared::Shared;
use crate::sys;

/// Files that the server needs for itself: doors, polls, logs.
pub const OWN_FILES: u64 = 64;

/// Carries over what concerns families of other crates, of which this one does not know.
pub static ALSO: std::sync::OnceLock<fn(&crate::options::Options)> = std::sync::OnceLock::new();

/// Carries all options over. `Err` names the option that the system refuses, and why; those before
/// it have been carried over then.
pub fn apply_all(shared: &Shared) -> Result<(), (&'static str, String)> {
    let settings = &shared.core.space.settings;
    let options = &shared.options;
    let number = |index| options.number(index).max(0) as u64;
    let size = |cell: &AtomicUsize, index| cell.store(number(index) as usize, Ordering::Relaxed);
    settings.maxmemory.store(number(const { index_of("maxmemory") }), Ordering::Relaxed);
    let policy = Policy::ALL[number(const { index_of("maxmemory-policy") }) as usize].0;
    settings.set_policy(policy);
    size(&settings.maxmemory_samples, const { index_of("maxmemory-samples") });
    let small = |index| number(index) as u32;
    let factor = small(const { index_of("lfu-log-factor") });
    settings.lfu_log_factor.store(factor, Ordering::Relaxed);
    let decay = small(const { index_of("lfu-decay-time") });
    settings.lfu_decay_time.store(decay, Ordering::Relaxed);
    let events = options.text(const { index_of("notify-keyspace-events") });
    settings.notify.store(event_mask(&events).unwrap_or(0), Ordering::Relaxed);

    let list = options.number(const { index_of("list-max-listpack-size") });
    settings.list_max_listpack_size.store(list, Ordering::Relaxed);
    size(&settings.hash_max_listpack_entries, const { index_of("hash-max-listpack-entries") });
    size(&settings.hash_max_listpack_value, const { index_of("hash-max-listpack-value") });
    size(&settings.set_max_intset_entries, const { index_of("set-max-intset-entries") });
    size(&settings.set_max_listpack_entries, const { index_of("set-max-listpack-entries") });
    size(&settings.set_max_listpack_value, const { index_of("set-max-listpack-value") });
    size(&settings.zset_max_listpack_entries, const { index_of("zset-max-listpack-entries") });
    size(&settings.zset_max_listpack_value, const { index_of("zset-max-listpack-value") });
    size(&settings.hll_sparse_max_bytes, const { index_of("hll-sparse-max-bytes") });
    size(&settings.stream_node_max_bytes, const { index_of("stream-node-max-bytes") });
    size(&settings.stream_node_max_entries, const { index_of("stream-node-max-entries") });

    let bulk = number(const { index_of("proto-max-bulk-len") });
    settings.proto_max_bulk_len.store(bulk, Ordering::Relaxed);
    apply_freeing(shared);
    crate::crash::set_enabled(options.is_on(const { index_of("crash-log-enabled") }));
    let limits = limits_of(&options.text(const { index_of("client-output-buffer-limit") }));
    shared.set_output_limits(0, limits[0]);
    shared.set_output_limits(1, limits[2]);
    if let Some(set) = shared.set_log_level.get() {
        set(&options.text(const { index_of("loglevel") }));
    }
    apply_to_system(shared)?;
    if let Some(also) = ALSO.get() {
        also(&shared.options);
    }
    shared.aof.apply(options);
    Ok(())
}

fn apply_freeing(shared: &Shared) {
    let settings = &shared.core.space.settings;
    for (cell, index) in [
        (&settings.lazyfree_lazy_eviction, const { index_of("lazyfree-lazy-eviction") }),
        (&settings.lazyfree_lazy_expire, const { index_of("lazyfree-lazy-expire") }),
        (&settings.lazyfree_lazy_server_del, const { index_of("lazyfree-lazy-server-del") }),
        (&settings.lazyfree_lazy_user_del, const { index_of("lazyfree-lazy-user-del") }),
        (&settings.lazyfree_lazy_user_flush, const { index_of("lazyfree-lazy-user-flush") }),
    ] {
        cell.store(shared.options.is_on(index), Ordering::Relaxed);
    }
}

fn apply_to_system(shared: &Shared) -> Result<(), (&'static str, String)> {
    let dir = shared.options.value(const { index_of("dir") });
    let there = std::env::set_current_dir(&dir.text).and_then(|()| std::env::current_dir());
    let there = there.map_err(|error| ("dir", sys::error_text(&error)))?;
    let text = there.to_string_lossy().into_owned();
    if text != dir.text {
        shared.options.put(const { index_of("dir") }, Value { text, ..dir });
    }
    let wanted = shared.options.number(const { index_of("maxclients") }) as u64 + OWN_FILES;
    let got = sys::raise_open_files(wanted);
    if got < wanted {
        let most = got.saturating_sub(OWN_FILES);
        let text = format!(
            "The operating system is not able to handle the specified number of clients, try with \
             {most}"
        );
        return Err(("maxclients", text));
    }
    Ok(())
}
