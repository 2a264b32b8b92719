//! The one hash function of the keyspace: foldhash with a seed chosen when the process starts, so
//! that nobody outside can aim at one bucket. Never written to disk: see `slot` functions for that.

use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

use foldhash::fast::FixedState;

static STATE: OnceLock<FixedState> = OnceLock::new();

/// Sets the seed, once, before the first key is hashed; later calls change nothing.
pub fn seed(seed: u64) {
    let _ = STATE.set(FixedState::with_seed(seed));
}

/// The hash of `bytes`: 64 well-mixed bits, the same for the life of the process.
#[inline]
pub fn hash(bytes: &[u8]) -> u64 {
    let state = STATE.get_or_init(|| FixedState::with_seed(0));
    let mut hasher = state.build_hasher();
    hasher.write(bytes);
    hasher.finish()
}
