//! The coordinator over a store of keys instead of a log: one list of records under each
//! transaction's id, as a cluster of Redis servers would have it.

mod common;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use persist::journal::{Position, WhenSafe};
use proptest::prelude::*;
use services::saga::codec::{self, Reader, SNAPSHOT, TOPIC};
use services::saga::coordinator::{Coordinator, Settings};
use services::saga::machine::Answer;
use services::saga::outgoing::Caller;
use services::saga::policy::Moment;
use services::saga::state::State;
use services::saga::transaction::Transaction;
use services::saga::words::{Kind, Status, Verdict};

use common::Participants;

/// The keys; and a disk that can be away.
#[derive(Default)]
struct Keys {
    lists: Mutex<HashMap<String, Vec<Vec<u8>>>>,
    kept: Mutex<Position>,
    is_away: AtomicBool,
}

fn key_of(record: &[u8]) -> String {
    match record[0] {
        TOPIC => {
            let mut reader = Reader(&record[1..]);
            format!("topic:{}", reader.text().expect("it has a name"))
        }
        _ => format!("saga:{}", codec::id_of(record).expect("it has an id")),
    }
}

impl State for Keys {
    fn keep(&self, record: &[u8]) -> Position {
        let mut lists = self.lists.lock().expect("no test panics with it");
        let list = lists.entry(key_of(record)).or_default();
        if matches!(record[0], SNAPSHOT | TOPIC) {
            list.clear();
        }
        list.push(record.to_vec());
        let mut kept = self.kept.lock().expect("no test panics with it");
        *kept += 1;
        *kept
    }

    fn write(&self) -> io::Result<()> {
        match self.is_away.load(Ordering::Relaxed) {
            true => Err(io::Error::other("away")),
            false => Ok(()),
        }
    }

    fn when_safe(&self, _: Position, done: WhenSafe) {
        done(self.is_healthy());
    }

    fn is_healthy(&self) -> bool {
        !self.is_away.load(Ordering::Relaxed)
    }

    fn end(&self) -> Position {
        *self.kept.lock().expect("no test panics with it")
    }

    fn forget(&self, id: u64) {
        self.lists.lock().expect("no test panics with it").remove(&format!("saga:{id}"));
    }

    fn to_shorten(&self, _: u64) -> Option<Position> {
        None
    }

    fn remove_before(&self, _: Position) {
        unreachable!("nothing can be shortened");
    }
}

struct Bench {
    coordinator: Arc<Coordinator>,
    keys: Arc<Keys>,
    participants: Arc<Participants>,
    now_ms: u64,
}

impl Bench {
    /// A coordinator that goes on with what the keys hold.
    fn over(keys: Arc<Keys>, settings: Settings, now_ms: u64) -> Bench {
        let coordinator = Arc::new(Coordinator::new(settings));
        for record in keys.lists.lock().expect("no test panics with it").values().flatten() {
            coordinator.replay(0, record);
        }
        let participants = Arc::new(Participants::default());
        let caller: Arc<dyn Caller> = Arc::clone(&participants) as _;
        coordinator.start(Arc::clone(&keys) as _, caller, moment(now_ms));
        Bench { coordinator, keys, participants, now_ms }
    }

    fn submit(&self, gid: &str, steps: usize) {
        let mut t = Transaction::new(gid, Kind::Saga, Status::Submitted, self.now_ms);
        for _ in 0..steps {
            t.add_step("http://a/", "http://a/", b"{}");
        }
        self.coordinator.submit(t, false, moment(self.now_ms), Box::new(|_| ()));
    }

    /// Answers one of the calls; whether there was any.
    fn answer(&self, which: usize, verdict: Verdict) -> bool {
        let mut calls = self.participants.0.lock().expect("no test panics with it");
        if calls.is_empty() {
            return false;
        }
        let which = which % calls.len();
        let (_, done) = calls.remove(which);
        drop(calls);
        let text = "so".to_string();
        let answer = Answer { verdict, code: 200, text, began_ms: self.now_ms, retry_after_ms: 0 };
        done(answer, moment(self.now_ms));
        true
    }

    fn later(&mut self, ms: u64) {
        self.now_ms += ms;
        self.coordinator.run_due(moment(self.now_ms));
    }

    /// Everything succeeds from now on.
    fn finish(&mut self) {
        for _ in 0..100 {
            self.later(400_000);
            while self.answer(0, Verdict::Success) {}
        }
    }
}

fn moment(now_ms: u64) -> Moment {
    Moment { now_ms, random: 0 }
}

#[derive(Debug, Clone)]
enum Event {
    Submit(usize),
    Answer(usize, Verdict),
    Later(u64),
    Crash,
    Away(bool),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let verdict = proptest::sample::select(Verdict::ALL);
    let event = prop_oneof![
        2 => (0usize..4).prop_map(Event::Submit),
        8 => (any::<usize>(), verdict).prop_map(|(which, verdict)| Event::Answer(which, verdict)),
        2 => (1u64..60_000).prop_map(Event::Later),
        1 => Just(Event::Crash),
        1 => any::<bool>().prop_map(Event::Away),
    ];
    proptest::collection::vec(event, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn nothing_is_lost_over_a_store_of_keys(events in events()) {
        let mut settings = Settings::default();
        // Dead letters would wait for an operator.
        settings.rules.tries_max = 0;
        let mut bench = Bench::over(Arc::default(), settings.clone(), 1000);
        let mut gids = Vec::new();
        for event in events {
            match event {
                Event::Submit(steps) => {
                    let gid = format!("g{}", gids.len());
                    bench.submit(&gid, steps);
                    if bench.coordinator.get(&gid).is_some() {
                        gids.push(gid);
                    } else {
                        prop_assert!(!bench.keys.is_healthy(), "refused without a reason");
                    }
                }
                Event::Answer(which, verdict) => drop(bench.answer(which, verdict)),
                Event::Later(ms) => bench.later(ms),
                Event::Crash => {
                    let keys = Arc::clone(&bench.keys);
                    bench = Bench::over(keys, settings.clone(), bench.now_ms);
                }
                Event::Away(is_away) => bench.keys.is_away.store(is_away, Ordering::Relaxed),
            }
        }
        bench.keys.is_away.store(false, Ordering::Relaxed);
        bench.finish();
        let ends = |bench: &Bench| -> Vec<_> {
            gids.iter().map(|gid| bench.coordinator.get(gid).map(|t| t.status)).collect()
        };
        let seen = ends(&bench);
        prop_assert!(seen.iter().all(|status| status.is_some_and(Status::is_final)), "{seen:?}");
        prop_assert_eq!(bench.coordinator.unfinished_count(), 0);
        let again = Bench::over(Arc::clone(&bench.keys), settings, bench.now_ms);
        prop_assert_eq!(ends(&again), seen);
        // What is forgotten leaves no key behind.
        let late = moment(u64::MAX >> 20);
        again.coordinator.tidy(late, &Arc::default());
        prop_assert!(again.keys.lists.lock().expect("no test panics with it").is_empty());
    }
}

#[test]
fn topics_are_keys_too() {
    let bench = Bench::over(Arc::default(), Settings::default(), 1000);
    let topics = |bench: &Bench| bench.coordinator.topics().urls("t").len();
    bench
        .coordinator
        .change_topics(|topics| topics.subscribe("t", "http://a", ""))
        .expect("topics");
    bench
        .coordinator
        .change_topics(|topics| topics.subscribe("t", "http://b", ""))
        .expect("topics");
    let again = Bench::over(Arc::clone(&bench.keys), Settings::default(), 1000);
    assert_eq!((topics(&bench), topics(&again)), (2, 2));
    again.coordinator.change_topics(|topics| topics.remove("t")).expect("topics");
    let again = Bench::over(Arc::clone(&again.keys), Settings::default(), 1000);
    assert_eq!(topics(&again), 0);
}
