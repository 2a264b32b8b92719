//! Participants that tests play: they keep what a coordinator calls until the test answers it.

use std::sync::Mutex;

use services::saga::outgoing::{Answered, Caller, Outgoing};

/// Calls that were made and are not answered yet, the oldest first, each with its way to answer.
#[derive(Default)]
pub struct Participants(pub Mutex<Vec<(Outgoing, Answered)>>);

impl Caller for Participants {
    fn call(&self, outgoing: Outgoing, done: Answered) {
        self.0.lock().expect("no test panics with it").push((outgoing, done));
    }

    fn wake_at(&self, _: u64) {}
}
