//! What would be another thing each time: random() and the time, the same again when a command is
//! run once more from the log.
//!
//! **Invariant:** all that a command's SQL sees of chance follows from one seed, drawn when it
//! first asks. A command that asked for neither chance nor time is logged as it came.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

use rusqlite::functions::FunctionFlags;

use crate::error::SqlError;
use crate::raw::clock;

thread_local! {
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
    static STATE: Cell<u64> = const { Cell::new(0) };
}

/// What a command saw that the next run would not see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The time, in milliseconds since 1970.
    pub now_ms: i64,
    /// The seed of chance; 0 if there was none.
    pub seed: u64,
}

/// Begins a command: time stands still, chance starts from `seed` or from nowhere.
pub fn begin(now_ms: i64, seed: Option<u64>) {
    clock::freeze(now_ms);
    SEED.set(seed);
    STATE.set(seed.unwrap_or(0));
}

/// What the command saw since [`begin`], if it asked for any of it.
pub fn seen() -> Option<Seen> {
    let seed = SEED.get();
    (clock::was_asked() || seed.is_some())
        .then(|| Seen { now_ms: clock::now_ms(), seed: seed.unwrap_or(0) })
}

/// The next random number: splitmix64.
pub fn random() -> u64 {
    if SEED.get().is_none() {
        let seed = (RandomState::new().hash_one(clock::now_ms()) >> 1).max(1);
        SEED.set(Some(seed));
        STATE.set(seed);
    }
    let state = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(state);
    let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The longest blob of chance, in bytes.
const BLOB_MAX: i64 = 1 << 20;

/// Gives a connection its random functions.
///
/// # Errors
/// SQLite's.
pub fn install(connection: &rusqlite::Connection) -> Result<(), SqlError> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function("random", 0, flags, |_| Ok(random() as i64))?;
    connection.create_scalar_function("randomblob", 1, flags, |context| {
        let len = context.get::<i64>(0)?.clamp(1, BLOB_MAX) as usize;
        let bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| random().to_le_bytes()).collect();
        Ok(bytes[..len].to_vec())
    })?;
    Ok(())
}
