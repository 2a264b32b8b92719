//! The lock of a shard: one word, free or taken.
//!
//! Taking a free lock is one compare-and-swap and giving it back one plain store, about half of a
//! mutex that must know whether somebody sleeps. That is why a waiter does not sleep in the kernel
//! at first: it spins for as long as most commands hold a shard, then yields, then naps for a
//! growing time of at most `NAP_MAX`: long holders (a sort, a big transaction) cost no core.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const SPINS: u32 = 200;
const YIELDS: u32 = 20;
const NAP_MAX: Duration = Duration::from_micros(200);

/// One lock word.
#[derive(Default)]
pub struct Lock(AtomicU32);

impl Lock {
    /// Takes the lock if it is free.
    #[inline]
    pub fn try_take(&self) -> bool {
        self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock, waiting as long as it needs.
    #[inline]
    pub fn take(&self) {
        if !self.try_take() {
            self.wait(|| false);
        }
    }

    /// Waits for the lock and takes it, unless `stop` says so before: then false.
    #[cold]
    pub fn wait(&self, stop: impl Fn() -> bool) -> bool {
        loop {
            nap(|| self.0.load(Ordering::Relaxed) == 0 || stop());
            if self.try_take() {
                return true;
            }
            if stop() {
                return false;
            }
        }
    }

    /// Gives the lock back. Only its taker may call this.
    #[inline]
    pub fn give(&self) {
        debug_assert_eq!(self.0.load(Ordering::Relaxed), 1);
        self.0.store(0, Ordering::Release);
    }
}

/// Waits until `ready`: spins, then yields, then sleeps for growing times.
#[cold]
pub fn nap(ready: impl Fn() -> bool) {
    let mut tries = 0u32;
    let mut nap = Duration::from_micros(5);
    while !ready() {
        tries += 1;
        if tries < SPINS {
            std::hint::spin_loop();
        } else if tries < SPINS + YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(nap);
            nap = (nap * 2).min(NAP_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    struct Shared(Lock, UnsafeCell<u64>);
    // SAFETY: the cell is only touched under the lock.
    unsafe impl Sync for Shared {}

    #[test]
    fn one_at_a_time() {
        let shared = Shared(Lock::default(), UnsafeCell::new(0));
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let shared = &shared;
                scope.spawn(move || {
                    for _ in 0..rounds {
                        shared.0.take();
                        // SAFETY: under the lock.
                        unsafe { *shared.1.get() += 1 };
                        shared.0.give();
                    }
                });
            }
        });
        assert_eq!(shared.1.into_inner(), 4 * rounds);
    }
}
