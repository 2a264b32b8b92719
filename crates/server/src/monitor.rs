//! Who watches every command (MONITOR).

use std::sync::atomic::Ordering;

use crate::pubsub::Subscriber;
use crate::shared::Shared;

/// Adds a watcher.
pub fn join(shared: &Shared, who: Subscriber) {
    let mut monitors = shared.monitors.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !monitors.contains(&who) {
        monitors.push(who);
    }
    shared.monitor_count.store(monitors.len(), Ordering::Relaxed);
}

/// Takes a watcher out.
pub fn leave(shared: &Shared, who: Subscriber) {
    let mut monitors = shared.monitors.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    monitors.retain(|other| *other != who);
    shared.monitor_count.store(monitors.len(), Ordering::Relaxed);
}
