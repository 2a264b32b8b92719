//! Every write, sync and cut of the log fails once in turn, in every way: nothing that was told to
//! be safe may be missing from the file, nothing may be there twice, and the log says that it
//! failed until it has recovered.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use keyspace::commit::LogBatch;
use persist::aof::files::Files;
use persist::aof::log::{Listener, Log, Policy};
use persist::disk::{Call, FailingDisk, Fault, Plan};

const BATCHES: usize = 6;
const ENOSPC: i32 = 28;
const EIO: i32 = 5;

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("forebay-faults-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a temporary folder");
    path
}

fn batch(number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let text = number.to_string();
    resp::write_request(&mut bytes, [&b"RPUSH"[..], b"list", text.as_bytes()].into_iter());
    bytes
}

#[derive(Default)]
struct Asked(Arc<AtomicUsize>);

impl Listener for Asked {
    fn durable(&self) {}
    fn took(&self, _: &'static str, _: u64) {}
    fn must_rewrite(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what} takes too long");
        std::thread::yield_now();
    }
}

/// Appends batches while a fault lies ahead; what is in the file at the end, and how many calls
/// failed.
fn run(policy: Policy, plan: Plan) -> (u64, usize) {
    let (dir, disk) = (folder(&format!("{policy:?}")), FailingDisk::default());
    let files = Files::open(Arc::new(disk.clone()), &dir, "d", "a.aof");
    let mut files = files.expect("there is nothing to read");
    let target = files.open_at_start("aof", Vec::new).expect("nothing fails yet");
    let log = Arc::new(Log::default());
    let rewrites = Arc::new(AtomicUsize::new(0));
    log.set_listener(Box::new(Asked(Arc::clone(&rewrites))));
    log.set_policy(policy);
    let thread = log.start().expect("a thread");
    log.switch(target);
    log.flush().expect("nothing fails yet");
    disk.set(Some(plan));
    let mut expected = Vec::new();
    resp::write_request(&mut expected, [&b"SELECT"[..], b"0"].into_iter());
    for number in 0..BATCHES {
        let bytes = batch(number);
        let position = log.append(LogBatch { first_db: 0, last_db: 0, bytes: &bytes });
        expected.extend_from_slice(&bytes);
        log.end_turn();
        if policy == Policy::Always {
            wait("a write", || log.durable() >= position);
            let file = std::fs::read(dir.join("d/a.aof.1.incr.aof")).expect("it is there");
            assert!(file.starts_with(&expected), "what is durable is in the file: {plan:?}");
        } else if number % 3 == 2 {
            log.ask_sync();
            wait("a turn", || log.pending_bytes() == 0 && !log.is_failing());
        }
    }
    wait("recovery", || !log.is_failing());
    log.stop();
    thread.join().expect("the log's thread does not panic");
    let failed = disk.counts().1;
    let file = std::fs::read(dir.join("d/a.aof.1.incr.aof")).expect("it is there");
    assert_eq!(file.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{plan:?}");
    std::fs::remove_dir_all(&dir).expect("it is ours");
    (failed, rewrites.load(Ordering::SeqCst))
}

fn every_fault(policy: Policy) -> (u64, usize) {
    let faults = [Fault::Error(ENOSPC), Fault::Error(EIO), Fault::Short, Fault::Torn(ENOSPC)];
    let (mut failed, mut rewrites) = (0, 0);
    for call in [Call::Write, Call::Sync, Call::Truncate] {
        for fault in faults {
            for first in 0..BATCHES as u64 {
                // Twice in a row as well: the retry may fail, too.
                for count in [1, 2] {
                    let (more, asked) = run(policy, Plan { call: Some(call), first, count, fault });
                    failed += more;
                    rewrites += asked;
                }
            }
        }
    }
    (failed, rewrites)
}

#[test]
fn always_keeps_what_it_acknowledged() {
    let (failed, rewrites) = every_fault(Policy::Always);
    assert!(failed > 50, "only {failed} calls failed");
    assert_eq!(rewrites, 0, "what is not safe is still in hand");
}

#[test]
fn every_second_keeps_all_and_asks_for_a_rewrite() {
    let (failed, rewrites) = every_fault(Policy::EverySecond);
    assert!(failed > 10, "only {failed} calls failed");
    assert!(rewrites > 0, "a failed sync may have lost what was written before");
}
