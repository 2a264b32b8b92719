//! The gate between transactions and jobs: transactions go side by side, a job runs while none is
//! under way. A lock for readers and writers whose readers may go on in another thread.
//!
//! **Invariant:** whoever is to be alone waits for those inside only: nobody enters before it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct State {
    /// Transactions under way.
    inside: usize,
    /// Jobs that run or wait.
    jobs: usize,
    is_alone: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

/// A transaction is under way.
#[derive(Debug)]
pub struct Inside(Arc<Gate>);

/// A job runs.
#[derive(Debug)]
pub struct Alone<'g>(&'g Gate);

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while<'g>(
        &'g self,
        state: MutexGuard<'g, State>,
        is_shut: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'g, State> {
        self.changed.wait_while(state, is_shut).unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a transaction, after the jobs that are there.
    pub fn enter(self: &Arc<Self>) -> Inside {
        let mut state = self.wait_while(self.lock(), |state| state.jobs > 0);
        state.inside += 1;
        Inside(Arc::clone(self))
    }

    /// Begins a transaction if there is no job.
    pub fn try_enter(self: &Arc<Self>) -> Option<Inside> {
        let mut state = self.lock();
        if state.jobs > 0 {
            return None;
        }
        state.inside += 1;
        Some(Inside(Arc::clone(self)))
    }

    /// Begins a job, after the transactions that are under way.
    pub fn alone(&self) -> Alone<'_> {
        let mut state = self.lock();
        state.jobs += 1;
        let mut state = self.wait_while(state, |state| state.is_alone || state.inside > 0);
        state.is_alone = true;
        Alone(self)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.inside -= 1;
        if state.inside == 0 && state.jobs > 0 {
            self.0.changed.notify_all();
        }
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.jobs -= 1;
        state.is_alone = false;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_job_is_alone() {
        let gate = Arc::new(Gate::default());
        let first = gate.enter();
        let second = gate.try_enter().expect("they go side by side");
        let inside = AtomicUsize::new(2);
        thread::scope(|scope| {
            let job = scope.spawn(|| {
                let _alone = gate.alone();
                assert!(gate.try_enter().is_none());
                inside.load(Ordering::SeqCst)
            });
            // As soon as a job waits nobody enters.
            while let Some(another) = gate.try_enter() {
                drop(another);
                thread::yield_now();
            }
            let late = scope.spawn(|| {
                let _inside = gate.enter();
                inside.fetch_add(10, Ordering::SeqCst)
            });
            for guard in [first, second] {
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(guard);
            }
            assert_eq!(job.join().expect("no panic"), 0);
            assert_eq!(late.join().expect("no panic"), 0);
        });
        assert!(gate.try_enter().is_some());
    }
}
