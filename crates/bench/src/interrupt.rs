//! Ctrl-C: the first finishes the round and writes what there is, the second ends at once.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// What a shell reports of a program that an interrupt ended.
const EXIT_INTERRUPTED: i32 = 130;

fn asked() -> &'static Arc<AtomicBool> {
    static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    ASKED.get_or_init(|| Arc::new(AtomicBool::new(false)))
}

/// Begins to listen for Ctrl-C.
pub fn install() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        // In this order: the second signal finds the flag that the first has set.
        flag::register_conditional_shutdown(signal, EXIT_INTERRUPTED, Arc::clone(asked()))?;
        flag::register(signal, Arc::clone(asked()))?;
    }
    Ok(())
}

/// Whether Ctrl-C was pressed.
pub fn is_requested() -> bool {
    asked().load(Ordering::Relaxed)
}
