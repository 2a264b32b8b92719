//! Carries options over to the places that read them on the hot path.

use std::sync::atomic::Ordering;

use keyspace::settings::Policy;

use crate::options::index_of;
use crate::shared::Shared;

/// Carries all options over.
pub fn apply_all(shared: &Shared) {
    let settings = &shared.core.space.settings;
    let options = &shared.options;
    let number = |index| options.number(index).max(0) as u64;
    settings.maxmemory.store(number(const { index_of("maxmemory") }), Ordering::Relaxed);
    settings.set_policy(Policy::ALL[number(const { index_of("maxmemory-policy") }) as usize].0);
    let bulk = number(const { index_of("proto-max-bulk-len") });
    settings.proto_max_bulk_len.store(bulk, Ordering::Relaxed);
}
