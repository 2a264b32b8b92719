//! Is a history of one key linearizable? That is: can its operations be put in one order that a
//! single-threaded server would have answered likewise, and in which an operation that ended
//! before another began also comes before it?
//!
//! The search is Wing and Gong's, with the memory that Lowe added: walk the calls and returns in
//! the order of time; take any operation that is open and whose reply fits the state as the next
//! one, strike it out and begin again; at a return of an operation not yet taken, go back. A pair
//! of (operations taken, state) that was reached before leads nowhere new.
//!
//! **Invariant:** the answer is exact. The cost grows with how many operations overlap, not with
//! the history's length.

use std::collections::HashSet;

/// What one client asked of the key, with what it was answered. `None` is a missing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Get { found: Option<i64> },
    Set { value: i64 },
    GetSet { value: i64, found: Option<i64> },
    Incr { result: i64 },
    Delete { existed: bool },
}

/// An action with the times just before it was sent and just after its reply was read.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub action: Action,
    pub called_ns: u64,
    pub returned_ns: u64,
}

/// The state after an action, or `None` where its reply cannot have come from this state.
fn step(state: Option<i64>, action: Action) -> Option<Option<i64>> {
    match action {
        Action::Get { found } => (found == state).then_some(state),
        Action::Set { value } => Some(Some(value)),
        Action::GetSet { value, found } => (found == state).then_some(Some(value)),
        Action::Incr { result } => {
            let next = state.unwrap_or(0).wrapping_add(1);
            (result == next).then_some(Some(next))
        }
        Action::Delete { existed } => (existed == state.is_some()).then_some(None),
    }
}

/// One call or return, as a link of a doubly linked list in the order of time.
#[derive(Clone, Copy)]
struct Event {
    operation: usize,
    is_call: bool,
    next: usize,
    previous: usize,
}

/// The events of a history. Link 0 stands before the first; the list is empty when it has no next.
struct Timeline {
    events: Vec<Event>,
    call_of: Vec<usize>,
    return_of: Vec<usize>,
}

const HEAD: usize = 0;
const NONE: usize = usize::MAX;

impl Timeline {
    fn new(history: &[Operation]) -> Timeline {
        let mut moments: Vec<(u64, bool, usize)> = Vec::with_capacity(history.len() * 2);
        for (index, operation) in history.iter().enumerate() {
            assert!(operation.called_ns <= operation.returned_ns, "time runs backwards");
            moments.push((operation.called_ns, false, index));
            moments.push((operation.returned_ns, true, index));
        }
        // At one and the same time calls come first: the two then overlap, which rules out less.
        moments.sort_unstable();
        let mut timeline = Timeline {
            events: vec![Event { operation: NONE, is_call: false, next: NONE, previous: NONE }],
            call_of: vec![NONE; history.len()],
            return_of: vec![NONE; history.len()],
        };
        for (_, is_return, operation) in moments {
            let here = timeline.events.len();
            timeline.events[here - 1].next = here;
            let link = Event { operation, is_call: !is_return, next: NONE, previous: here - 1 };
            timeline.events.push(link);
            let place = if is_return { &mut timeline.return_of } else { &mut timeline.call_of };
            place[operation] = here;
        }
        timeline
    }

    fn first(&self) -> usize {
        self.events[HEAD].next
    }

    /// Takes an operation's call and return out of the list.
    fn strike(&mut self, operation: usize) {
        for link in [self.call_of[operation], self.return_of[operation]] {
            let Event { next, previous, .. } = self.events[link];
            self.events[previous].next = next;
            if next != NONE {
                self.events[next].previous = previous;
            }
        }
    }

    /// Puts them back; only in the opposite order of striking.
    fn restore(&mut self, operation: usize) {
        for link in [self.return_of[operation], self.call_of[operation]] {
            let Event { next, previous, .. } = self.events[link];
            self.events[previous].next = link;
            if next != NONE {
                self.events[next].previous = link;
            }
        }
    }
}

/// Whether some order explains the whole history of a key that held `initial` at first.
pub fn is_linearizable(initial: Option<i64>, history: &[Operation]) -> bool {
    let mut timeline = Timeline::new(history);
    let mut state = initial;
    let mut taken = vec![0_u64; history.len().div_ceil(64)];
    let mut path: Vec<(usize, Option<i64>)> = Vec::new();
    let mut reached: HashSet<(Vec<u64>, Option<i64>)> = HashSet::new();
    let mut here = timeline.first();
    while timeline.first() != NONE {
        let event = timeline.events[here];
        if event.is_call {
            if let Some(next) = step(state, history[event.operation].action) {
                flip(&mut taken, event.operation);
                if reached.insert((taken.clone(), next)) {
                    path.push((event.operation, state));
                    state = next;
                    timeline.strike(event.operation);
                    here = timeline.first();
                    continue;
                }
                flip(&mut taken, event.operation);
            }
            here = event.next;
        } else {
            let Some((operation, before)) = path.pop() else { return false };
            state = before;
            flip(&mut taken, operation);
            timeline.restore(operation);
            here = timeline.events[timeline.call_of[operation]].next;
        }
    }
    true
}

fn flip(bits: &mut [u64], index: usize) {
    bits[index / 64] ^= 1 << (index % 64);
}

#[cfg(test)]
mod tests {
    use super::Action::*;
    use super::*;
    use crate::random::Random;

    fn history(of: &[(Action, u64, u64)]) -> Vec<Operation> {
        let operation =
            |&(action, called_ns, returned_ns)| Operation { action, called_ns, returned_ns };
        of.iter().map(operation).collect()
    }

    #[test]
    fn overlapping_operations_may_go_either_way() {
        for found in [None, Some(1)] {
            let both = history(&[(Set { value: 1 }, 0, 10), (Get { found }, 5, 6)]);
            assert!(is_linearizable(None, &both));
        }
    }

    #[test]
    fn a_stale_read_is_found() {
        let stale = history(&[
            (Set { value: 1 }, 0, 1),
            (Set { value: 2 }, 2, 3),
            (Get { found: Some(1) }, 4, 5),
        ]);
        assert!(!is_linearizable(None, &stale));
    }

    #[test]
    fn two_reads_may_not_see_an_overlapping_write_in_opposite_order() {
        let back = history(&[
            (Set { value: 2 }, 0, 100),
            (Get { found: Some(2) }, 10, 20),
            (Get { found: Some(1) }, 30, 40),
        ]);
        assert!(!is_linearizable(Some(1), &back));
    }

    #[test]
    fn a_lost_increment_is_found() {
        let twice = history(&[(Incr { result: 1 }, 0, 10), (Incr { result: 1 }, 0, 10)]);
        assert!(!is_linearizable(None, &twice));
        let once = history(&[(Incr { result: 2 }, 0, 10), (Incr { result: 1 }, 0, 10)]);
        assert!(is_linearizable(None, &once));
    }

    #[test]
    fn getset_and_delete_hand_over_what_was_there() {
        let chain = history(&[
            (GetSet { value: 5, found: None }, 0, 10),
            (GetSet { value: 6, found: Some(5) }, 0, 10),
            (Delete { existed: true }, 11, 12),
            (Delete { existed: false }, 13, 14),
            (Incr { result: 1 }, 15, 16),
        ]);
        assert!(is_linearizable(None, &chain));
        let same_twice = history(&[
            (GetSet { value: 6, found: Some(5) }, 0, 10),
            (GetSet { value: 7, found: Some(5) }, 0, 10),
        ]);
        assert!(!is_linearizable(Some(5), &same_twice));
    }

    /// Draws a history that some order explains: each operation takes effect at a moment between
    /// its call and its return.
    fn drawn_history(random: &mut Random, length: usize) -> Vec<Operation> {
        let mut state = None;
        let mut found = Vec::new();
        for moment in 0..length as u64 {
            let value = random.draw() as i64;
            let action = match random.below(4) {
                0 => Get { found: state },
                1 => Set { value },
                2 => GetSet { value, found: state },
                _ => Incr { result: state.unwrap_or(0).wrapping_add(1) },
            };
            state = step(state, action).expect("drawn to fit");
            let called_ns = (moment * 10).saturating_sub(random.below(40) as u64);
            let returned_ns = moment * 10 + 1 + random.below(40) as u64;
            found.push(Operation { action, called_ns, returned_ns });
        }
        found
    }

    #[test]
    fn drawn_histories_hold_and_fail_once_a_reply_is_changed() {
        for seed in 0..200 {
            let mut random = Random::new(seed, 0);
            let mut history = drawn_history(&mut random, 300);
            assert!(is_linearizable(None, &history), "seed {seed}");
            let reads = |o: &Operation| matches!(o.action, Get { .. } | GetSet { .. });
            let index = (0..300).find(|&i| i > 150 && reads(&history[i])).expect("some read");
            // A value that nobody wrote.
            history[index].action = Get { found: Some(-7) };
            assert!(!is_linearizable(None, &history), "seed {seed}");
        }
    }
}
