//! The way of an outcome from the thread that stores to the one that was asked.
//!
//! For each task that another thread wakes tokio makes a system call; an answered group of 64
//! records would take 64. Here outcomes lie in one list a thread, and one task is woken for all.
//!
//! **Invariant:** where something lies in the list its task is awake, or about to be.

use std::cell::OnceCell;
use std::sync::{Arc, Mutex, MutexGuard};

use services::quota::answer::Outcome;
use services::quota::queue::Done;
use tokio::sync::{Notify, oneshot};

thread_local! {
    static HERE: OnceCell<Arc<Relay>> = const { OnceCell::new() };
}

/// What has been told to a thread and not been read there. No longer than what waits to be stored.
type Told = Vec<(oneshot::Sender<Outcome>, Outcome)>;

#[derive(Default)]
struct Relay {
    told: Mutex<Told>,
    wake: Notify,
}

/// What takes an outcome in whatever thread, and what waits for it in this one. To be called in a
/// runtime that is this thread's only one.
pub(super) fn channel() -> (Done, oneshot::Receiver<Outcome>) {
    let relay = HERE.with(|here| Arc::clone(here.get_or_init(Relay::begin)));
    let (sender, receiver) = oneshot::channel();
    (Box::new(move |outcome| relay.tell(sender, outcome)), receiver)
}

impl Relay {
    fn begin() -> Arc<Relay> {
        let relay = Arc::new(Relay::default());
        tokio::spawn(Arc::clone(&relay).run());
        relay
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn is_here(&self) -> bool {
        HERE.with(|here| here.get().is_some_and(|relay| std::ptr::eq(&**relay, self)))
    }

    fn tell(&self, sender: oneshot::Sender<Outcome>, outcome: Outcome) {
        if self.is_here() {
            // If nobody waits any more, the client has gone; the same below.
            let _ = sender.send(outcome);
            return;
        }
        let mut told = self.lock();
        told.push((sender, outcome));
        let is_first = told.len() == 1;
        drop(told);
        if is_first {
            self.wake.notify_one();
        }
    }

    async fn run(self: Arc<Self>) {
        let mut told = Vec::new();
        loop {
            self.wake.notified().await;
            std::mem::swap(&mut told, &mut *self.lock());
            for (sender, outcome) in told.drain(..) {
                let _ = sender.send(outcome);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use services::quota::answer::Answer;

    use super::*;

    fn answer(accepted: i64) -> Outcome {
        Ok(Answer { accepted, ..Answer::default() })
    }

    async fn accepted(receiver: oneshot::Receiver<Outcome>) -> i64 {
        receiver.await.expect("it is told").expect("it is good").accepted
    }

    #[test]
    fn each_hears_its_own_from_whatever_thread() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            for _ in 0..3 {
                let (dones, receivers): (Vec<_>, Vec<_>) = (0..5).map(|_| channel()).unzip();
                let mut dones = dones.into_iter().zip(0..);
                let (here, number) = dones.next().expect("there are five");
                here(answer(number));
                std::thread::spawn(|| dones.for_each(|(done, number)| done(answer(number))));
                for (receiver, number) in receivers.into_iter().zip(0..) {
                    assert_eq!(accepted(receiver).await, number);
                }
            }
            let (dropped, receiver) = channel();
            drop(dropped);
            assert!(receiver.await.is_err());
        });
    }
}
