//! The coordinator over a log in memory and participants that the test plays.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use persist::journal::{Journal, MemoryLog};

use services::saga::coordinator::{Coordinator, Error, Report, Settings};
use services::saga::index::Filter;
use services::saga::machine::Answer;
use services::saga::outgoing::Caller;
use services::saga::policy::Moment;
use services::saga::state::Logged;
use services::saga::transaction::Transaction;
use services::saga::verbs::Verb;
use services::saga::words::{Hold, Kind, Status, Verdict};

use common::Participants;

struct Bench {
    coordinator: Arc<Coordinator>,
    log: Arc<MemoryLog>,
    participants: Arc<Participants>,
}

fn at(now_ms: u64) -> Moment {
    Moment { now_ms, random: 0 }
}

type Outcome = Receiver<Result<Report, Error>>;

impl Bench {
    fn new(settings: Settings, records: &[Vec<u8>]) -> Bench {
        let coordinator = Arc::new(Coordinator::new(settings));
        records.iter().for_each(|record| coordinator.replay(0, record));
        let (log, participants) =
            (Arc::new(MemoryLog::default()), Arc::new(Participants::default()));
        for record in records {
            log.append(record);
        }
        let caller: Arc<dyn Caller> = Arc::clone(&participants) as _;
        let state = Arc::new(Logged(Arc::clone(&log) as _));
        coordinator.start(state, caller, at(1000));
        Bench { coordinator, log, participants }
    }

    fn submit(&self, t: Transaction, wait: bool) -> Outcome {
        let (sender, receiver) = channel();
        let done = Box::new(move |outcome| sender.send(outcome).expect("awaited"));
        self.coordinator.submit(t, wait, at(1000), done);
        receiver
    }

    fn operate(&self, gid: &str, verb: Verb) -> Result<Report, Error> {
        let (sender, receiver) = channel();
        let done = Box::new(move |outcome| sender.send(outcome).expect("awaited"));
        self.coordinator.operate(gid, verb, None, "test", at(2000), done);
        receiver.recv().expect("answered")
    }

    /// Answers the oldest call; gives its operation and branch.
    fn answer(&self, verdict: Verdict) -> Option<String> {
        let mut calls = self.participants.0.lock().expect("no test panics with it");
        if calls.is_empty() {
            return None;
        }
        let (outgoing, done) = calls.remove(0);
        drop(calls);
        let text = "said so".to_string();
        let answer = Answer { verdict, code: 200, text, began_ms: 1000, retry_after_ms: 0 };
        done(answer, at(1001));
        Some(format!("{} {}", outgoing.parameters[3].1, outgoing.parameters[2].1))
    }
}

fn saga(gid: &str, url: &str) -> Transaction {
    let mut t = Transaction::new(gid, Kind::Saga, Status::Submitted, 1000);
    t.add_step(url, url, b"{}");
    t.add_step(url, url, b"{}");
    t
}

#[test]
fn an_empty_saga_is_done_with_one_record() {
    let bench = Bench::new(Settings::default(), &[]);
    let report = bench.submit(saga("g", ""), true).recv().unwrap().unwrap();
    assert_eq!(report.status, Status::Succeed);
    assert_eq!(bench.log.records().len(), 1);
    assert_eq!(bench.coordinator.get("g").unwrap().status, Status::Succeed);
    assert_eq!(bench.coordinator.unfinished_count(), 0);
    let again = bench.submit(saga("g", ""), true).recv().unwrap();
    assert!(matches!(again, Err(Error::Refused(_))), "{again:?}");
}

#[test]
fn a_refused_step_is_undone_backwards_and_the_waiter_hears_why() {
    let bench = Bench::new(Settings::default(), &[]);
    let outcome = bench.submit(saga("g", "http://a/"), true);
    assert_eq!(bench.answer(Verdict::Success).unwrap(), "action 01");
    assert_eq!(bench.answer(Verdict::Failure).unwrap(), "action 02");
    assert!(outcome.try_recv().is_err(), "still busy");
    assert_eq!(bench.answer(Verdict::Success).unwrap(), "compensate 02");
    assert_eq!(bench.answer(Verdict::Success).unwrap(), "compensate 01");
    let report = outcome.recv().unwrap().unwrap();
    assert_eq!(report.status, Status::Failed);
    assert_eq!(&*report.reason, "url:http://a/ return failed: said so FAILURE");
    assert_eq!(bench.coordinator.get("g").unwrap().attempts.len(), 4);
}

#[test]
fn after_a_crash_at_any_record_the_saga_is_finished() {
    let bench = Bench::new(Settings::default(), &[]);
    let _outcome = bench.submit(saga("g", "http://a/"), true);
    for verdict in [Verdict::Success, Verdict::Failure, Verdict::Unknown] {
        bench.answer(verdict).unwrap();
    }
    let records = bench.log.records();
    assert!(records.len() >= 4);
    for length in 1..=records.len() {
        let bench = Bench::new(Settings::default(), &records[..length]);
        assert_eq!(bench.coordinator.unfinished_count(), 1);
        let mut now_ms = 1000;
        for _ in 0..20 {
            now_ms += 20_000;
            bench.coordinator.run_due(at(now_ms));
            while bench.answer(Verdict::Success).is_some() {}
        }
        let t = bench.coordinator.get("g").unwrap();
        assert!(t.status.is_final(), "after {length} records: {t:?}");
        assert_eq!(bench.coordinator.unfinished_count(), 0);
        let again = Bench::new(Settings::default(), &bench.log.records());
        assert_eq!(again.coordinator.get("g").unwrap().status, t.status);
    }
}

#[test]
fn another_saga_under_the_same_gid_is_told_so() {
    let bench = Bench::new(Settings::default(), &[]);
    let _outcome = bench.submit(saga("g", "http://a/"), false);
    let other = bench.submit(saga("g", "http://b/"), false).recv().unwrap();
    assert_eq!(other, Err(Error::Different));
    assert_eq!(
        bench.submit(saga("g", "http://a/"), false).recv().unwrap().unwrap().reason,
        "".into()
    );
    assert_eq!(bench.coordinator.unfinished_count(), 1);
}

#[test]
fn a_dead_letter_waits_for_an_operator() {
    let mut settings = Settings::default();
    settings.rules.tries_max = 2;
    let bench = Bench::new(settings, &[]);
    let outcome = bench.submit(saga("g", "http://a/"), true);
    bench.answer(Verdict::Unknown).unwrap();
    let report = outcome.recv().unwrap().unwrap();
    assert_eq!(report.trouble.unwrap(), (Verdict::Unknown, "said so".into()));
    bench.coordinator.run_due(at(50_000));
    bench.answer(Verdict::Unknown).unwrap();
    let filter = Filter { hold: Some(Hold::Dead), ..Filter::default() };
    assert_eq!(bench.coordinator.list(&filter, 10).0.len(), 1);
    assert_eq!(bench.coordinator.run_due(at(1 << 40)), None);
    assert_eq!(bench.operate("g", Verb::Force).unwrap().hold, Hold::None);
    assert_eq!(bench.answer(Verdict::Success).unwrap(), "action 02");
    assert_eq!(bench.coordinator.get("g").unwrap().status, Status::Succeed);
    assert!(bench.operate("g", Verb::Retry).is_err());
    assert_eq!(bench.operate("none", Verb::Retry), Err(Error::NotFound));
}

#[test]
fn too_many_unfinished_are_refused() {
    let settings = Settings { unfinished_max: 1, ..Settings::default() };
    let bench = Bench::new(settings, &[]);
    let _outcome = bench.submit(saga("a", "http://a/"), false);
    let full = bench.submit(saga("b", "http://a/"), false).recv().unwrap();
    assert!(matches!(full, Err(Error::Full(_))), "{full:?}");
}

#[test]
fn finished_ones_are_forgotten_by_age_and_count_but_never_open_ones() {
    let settings = Settings { finished_max: 2, succeed_keep_ms: 5000, ..Settings::default() };
    let bench = Bench::new(settings, &[]);
    let _outcome = bench.submit(saga("open", "http://a/"), false);
    for gid in ["a", "b", "c"] {
        bench.submit(saga(gid, ""), true).recv().unwrap().unwrap();
    }
    let compacting = Arc::new(AtomicBool::new(false));
    bench.coordinator.tidy(at(1001), &compacting);
    assert!(bench.coordinator.get("a").is_none() && bench.coordinator.get("b").is_some());
    bench.coordinator.tidy(at(10_000), &compacting);
    assert_eq!(bench.coordinator.list(&Filter::default(), 10).0.len(), 1);
    assert!(bench.coordinator.get("open").is_some());
}

#[test]
fn compacting_writes_everything_alive_again() {
    let bench = Bench::new(Settings::default(), &[]);
    let _outcome = bench.submit(saga("open", "http://a/"), false);
    bench.submit(saga("done", ""), true).recv().unwrap().unwrap();
    bench.answer(Verdict::Success).unwrap();
    let before = bench.log.records().len();
    let compacting = Arc::new(AtomicBool::new(false));
    bench.coordinator.compact(u64::MAX - 1, &compacting);
    assert!(!compacting.load(Ordering::Relaxed));
    let again = Bench::new(Settings::default(), &bench.log.records()[before..]);
    for gid in ["open", "done"] {
        let (old, new) = (bench.coordinator.get(gid).unwrap(), again.coordinator.get(gid).unwrap());
        assert_eq!((old.status, old.branches.len()), (new.status, new.branches.len()));
        let statuses = |t: &Transaction| t.branches.iter().map(|b| b.status).collect::<Vec<_>>();
        assert_eq!(statuses(&old), statuses(&new));
    }
}
