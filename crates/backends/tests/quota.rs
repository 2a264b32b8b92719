//! Metered ingest over a real SQLite file, with a clock and faults of the test's own: whatever the
//! database does, accepted = rows = counter, and never above the limit.

mod faulty;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use faulty::{Fault, Faults, Faulty};
use forebay_backends::address::open;
use forebay_backends::journal::FileJournal;
use services::database::{Connect, Database, DatabaseError, Dialect, Statement, Value};
use services::quota::answer::{Ack, Answer, Outcome, Refusal};
use services::quota::caller::Caller;
use services::quota::event::{Format, parse};
use services::quota::ingest::Ingest;
use services::quota::journal::{Journal, recover};
use services::quota::lead::{Lead, Led};
use services::quota::manage::{Adjustment, NewKey};
use services::quota::queue::Idempotency;
use services::quota::schema::{migrate, migrate_to};
use services::quota::secret::digest;
use services::quota::service::{Parts, Service, Settings};
use services::quota::verify::Report;
use services::quota::writer::Counts;
use services::testing::MemoryStore;

fn journal(folder: &Path) -> Box<dyn Journal> {
    Box::new(FileJournal::open(&folder.join("journal")).expect("a file"))
}

/// The database of a test: that of FOREBAY_TEST_SQL, emptied, or a file.
fn database(folder: &Path) -> Arc<dyn Connect> {
    let address = std::env::var("FOREBAY_TEST_SQL").unwrap_or_else(|_| "sqlite:q.db".into());
    let connect = open(&address, folder).expect("an address");
    let mut database = connect.connect().expect("a connection");
    let tables =
        "schema org key counter record event batch idempotency audit webhook threshold delivery";
    for table in tables.split(' ') {
        let drop = format!("DROP TABLE IF EXISTS quota_{table}");
        database.transact(&[Statement::run(drop, Vec::new())]).expect("it is dropped");
    }
    connect
}

/// A database server is shared: then one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

struct World {
    folder: PathBuf,
    connect: Arc<dyn Connect>,
    _alone: MutexGuard<'static, ()>,
    service: Arc<Service>,
    store: Arc<MemoryStore>,
    faults: Faults,
    clock: Arc<AtomicI64>,
    caller: Arc<Caller>,
}

const START: i64 = 1_795_132_800_000; // 2026-11-20T00:00:00Z

impl World {
    fn new(name: &str, plan: &str, change: impl FnOnce(&mut Settings)) -> World {
        World::with(name, plan, change, journal, false)
    }

    /// The same with a journal that is made so, and lanes if it has some.
    fn with(
        name: &str,
        plan: &str,
        change: impl FnOnce(&mut Settings),
        journal: impl FnOnce(&Path) -> Box<dyn Journal>,
        has_lanes: bool,
    ) -> World {
        let folder = std::env::temp_dir().join(format!("forebay-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let connect = database(&folder);
        let faults = Faults::default();
        let clock = Arc::new(AtomicI64::new(START));
        let now = Arc::clone(&clock);
        let faulty = Faulty { inner: Arc::clone(&connect), faults: Arc::clone(&faults), has_lanes };
        let (store, bits) = (Arc::new(MemoryStore::default()), AtomicU64::new(1));
        let mut settings = Settings::default();
        change(&mut settings);
        let service = Service::start(Parts {
            store: Arc::clone(&store) as _,
            connect: Arc::new(faulty),
            clock: Arc::new(move || now.load(Ordering::SeqCst)),
            random: Box::new(move || bits.fetch_add(1, Ordering::SeqCst).wrapping_mul(0x9E37_79B9)),
            journal: (settings.grouping.ack == Ack::Journal).then(|| journal(&folder)),
            settings,
        });
        let service = service.expect("it starts");
        let plan = serde_json::from_str(plan).expect("a plan");
        let (sender, receiver) = mpsc::channel();
        service.desk(
            move |service, database| {
                service.put_plan(database, "acme", plan, "test")?;
                service.make_key(database, "acme", NewKey::default(), "test")
            },
            move |key| sender.send(key).expect("the test waits"),
        );
        let key = receiver.recv().expect("an answer").expect("a key");
        let (sender, receiver) = mpsc::channel();
        service.look_up(digest(key.secret.as_bytes()), move |found| {
            sender.send(found).expect("the test waits");
        });
        let caller = receiver.recv().expect("an answer").expect("it is found").expect("it is");
        World { folder, connect, _alone: alone, service, store, faults, clock, caller }
    }

    fn send(&self, body: &str, key: Option<&str>) -> mpsc::Receiver<Outcome> {
        let (request, receiver) = self.request(body, key);
        self.service.ingest(request);
        receiver
    }

    fn request(&self, body: &str, key: Option<&str>) -> (Ingest, mpsc::Receiver<Outcome>) {
        let (sender, receiver) = mpsc::channel();
        let fingerprint = digest(body.as_bytes());
        let request = Ingest {
            caller: Arc::clone(&self.caller),
            records: parse(body, Format::Lines),
            cost: None,
            idempotency: key.map(|key| Idempotency { key: key.into(), fingerprint }),
            now_ms: self.clock.load(Ordering::SeqCst),
            done: Box::new(move |outcome| drop(sender.send(outcome))),
        };
        (request, receiver)
    }

    fn ingest(&self, body: &str, key: Option<&str>) -> Result<Answer, Refusal> {
        let outcome = self.send(body, key).recv().expect("every request is answered");
        outcome.map_err(|refused| refused.refusal)
    }

    /// Rows, what the counters hold, and what the store holds of this month; all must agree.
    fn check(&self, accepted: i64) {
        let mut database = self.connect.connect().expect("a connection");
        let mut one = |sql: &str| database.query(sql, &[]).expect("rows")[0][0].int();
        assert_eq!(one("SELECT COUNT(*) FROM quota_record"), accepted, "rows");
        let records = one("SELECT COALESCE(SUM(records), 0) FROM quota_counter");
        assert_eq!(records, accepted, "records counted");
        let cost = one("SELECT COALESCE(SUM(cost), 0) FROM quota_record");
        assert_eq!(one("SELECT COALESCE(SUM(used), 0) FROM quota_counter"), cost, "used");
    }

    /// What `forebay quota verify` says, memory included.
    fn verified(&self) -> Report {
        let (sender, receiver) = mpsc::channel();
        self.service.between_transactions(
            |service, database| service.verify(database),
            move |report| sender.send(report).expect("the test waits"),
        );
        receiver.recv().expect("an answer").expect("a report")
    }

    fn usage(&self) -> i64 {
        let (sender, receiver) = mpsc::channel();
        let now_ms = self.clock.load(Ordering::SeqCst);
        self.service.usage_of(Arc::clone(&self.caller.org), now_ms, move |usage| {
            sender.send(usage).expect("the test waits");
        });
        receiver.recv().expect("an answer").expect("a usage").standing.used
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.service.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn cloud(id: usize) -> String {
    format!(r#"{{"specversion":"1.0","id":"{id}","source":"/t","type":"t"}}"#)
}

#[test]
fn racing_clients_admit_the_limit_and_no_more() {
    for ack in [Ack::Sync, Ack::Group] {
        let name = format!("race-{}", ack.name());
        let world = World::new(&name, r#"{"limit": 500}"#, |settings| settings.grouping.ack = ack);
        let accepted: usize = std::thread::scope(|scope| {
            let race = || (0..100).filter(|_| world.ingest("{}", None).is_ok()).count();
            let racers: Vec<_> = (0..8).map(|_| scope.spawn(race)).collect();
            racers.into_iter().map(|racer| racer.join().expect("no panic")).sum()
        });
        assert_eq!(accepted, 500);
        world.check(500);
        let report = world.verified();
        assert_eq!((report.records, report.compared, report.differences), (500, 1, Vec::new()));
        let refusal = world.ingest("{}", None).expect_err("the month is used up");
        assert_eq!(refusal, Refusal::Quota { policy: "month", retry_after_s: 950_400 });
        world.clock.fetch_add(11 * 86_400_000, Ordering::SeqCst);
        assert!(world.ingest("{}", None).is_ok(), "a new month");
    }
}

#[test]
fn a_group_shares_its_commit() {
    let world = World::new("group", r#"{"limit": 10000}"#, |_| {});
    let waiting: Vec<_> = (0..400).map(|_| world.send("{}", None)).collect();
    assert!(waiting.iter().all(|answer| answer.recv().expect("an answer").is_ok()));
    let commits = world.service.counts.commits.load(Ordering::Relaxed);
    assert!(commits <= 100, "{commits} commits for 400 records");
    world.check(400);
}

#[test]
fn a_transaction_of_unknown_end_happens_once() {
    let world = World::new("faults", r#"{"limit": 1000}"#, |_| {});
    let mut accepted = 0;
    let copy = cloud(1);
    assert!(world.ingest(&copy, None).is_ok());
    accepted += 1;
    for fault in [Fault::LostBefore, Fault::LostAfter, Fault::Busy, Fault::None] {
        // The second stores an answer and no record.
        for (body, records) in [("{}\n{}", 2), (copy.as_str(), 0)] {
            world.faults.lock().expect("unpoisoned").extend([fault, Fault::LostBefore, fault]);
            let key = format!("{fault:?} {records}");
            let answer = world.ingest(body, Some(&key)).expect("it is stored");
            assert_eq!(answer.accepted, records, "{key}");
            accepted += records;
            world.check(accepted);
            world.faults.lock().expect("unpoisoned").clear();
            assert!(world.ingest(body, Some(&key)).expect("replayed").is_replay, "{key}");
        }
    }
    // A refusal after that is none of what was stored.
    let faults = [Fault::LostAfter, Fault::Refused];
    world.faults.lock().expect("unpoisoned").extend(faults);
    assert!(world.ingest("{}", None).is_ok(), "it is there");
    accepted += 1;
    world.check(accepted);
    assert_eq!(world.usage(), accepted);
}

#[test]
fn a_database_of_an_earlier_program_is_brought_up_to_date() {
    let folder = std::env::temp_dir().join(format!("forebay-steps-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut database = database(&folder).connect().expect("a connection");
    migrate_to(&mut *database, 3).expect("the third step");
    let columns = "org_id, key_id, period_ms, received_ms, event_ms, cost, data";
    let change = |database: &mut dyn Database, sql: String| {
        database.transact(&[Statement::run(sql, Vec::new())]).map(drop)
    };
    for sql in [
        format!("INSERT INTO quota_record ({columns}) VALUES ('a', 'k', 1, 2, 3, 4, 'plain')"),
        format!(
            "INSERT INTO quota_record ({columns}, event_key) \
             VALUES ('a', 'k', 1, 2, 3, 4, 'told', 'e')"
        ),
    ] {
        change(&mut *database, sql).expect("a row");
    }
    // Once more, as by a start that ended before the step was written down.
    for _ in 0..2 {
        migrate(&mut *database).expect("the last step");
        let sql = "SELECT record_id, event_key, data FROM quota_record ORDER BY record_id";
        let rows = database.query(sql, &[]).expect("rows");
        let told: Vec<_> = rows.iter().map(|row| (row[1].text(), row[2].text())).collect();
        assert_eq!(told, [("", "plain"), ("e", "told")]);
        assert!(rows[0][0].int() < rows[1][0].int());
        let events =
            database.query("SELECT org_id, event_key FROM quota_event", &[]).expect("rows");
        assert_eq!(events, [vec![Value::from("a"), Value::from("e")]]);
        let twice = change(&mut *database, "INSERT INTO quota_event VALUES ('a', 'e')".into());
        assert!(matches!(twice, Err(DatabaseError::Duplicate(_))), "{twice:?}");
        if database.dialect() == Dialect::Mysql {
            change(&mut *database, "DELETE FROM quota_schema WHERE step = 4".into())
                .expect("it is");
        }
    }
    drop(database);
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn what_the_database_refuses_is_not_counted() {
    let world = World::new("refused", r#"{"limit": 3}"#, |_| {});
    world.faults.lock().expect("unpoisoned").push_back(Fault::Refused);
    let refusal = world.ingest("{}\n{}\n{}", None).expect_err("it is refused");
    assert!(matches!(refusal, Refusal::Busy { .. }), "{refusal:?}");
    world.check(0);
    assert_eq!(world.usage(), 0);
    assert_eq!(world.ingest("{}\n{}\n{}\n{}", None).expect("there is room").accepted, 3);
    world.check(3);
}

#[test]
fn a_request_that_comes_again_changes_nothing() {
    let world = World::new("replay", r#"{"limit": 2}"#, |_| {});
    let first = world.ingest("{\"a\":1}", Some("k")).expect("accepted");
    let again = world.ingest("{\"a\":1}", Some("k")).expect("replayed");
    assert_eq!((again.body, again.is_replay, first.is_replay), (first.body, true, false));
    assert_eq!(world.ingest("{\"a\":2}", Some("k")).expect_err("other"), Refusal::OtherContent);
    assert!(world.ingest("{}", None).is_ok());
    // At the limit, too.
    assert!(world.ingest("{\"a\":1}", Some("k")).expect("replayed").is_replay);
    assert!(world.ingest("{}", Some("new")).is_err());
    world.check(2);
    assert_eq!(world.usage(), 2);
}

#[test]
fn copies_of_an_event_count_once() {
    let world = World::new("copies", r#"{"limit": 5}"#, |_| {});
    let body: Vec<String> = [1, 2, 1, 3].map(cloud).into();
    let answer = world.ingest(&body.join("\n"), None).expect("accepted");
    assert!(answer.body.starts_with(r#"{"accepted":3,"duplicate":1"#), "{}", answer.body);
    let waiting: Vec<_> = (0..20).map(|index| world.send(&cloud(index % 7), None)).collect();
    for answer in waiting {
        let _ = answer.recv().expect("an answer");
    }
    // Copies hold room for as long as it takes to find that they are: those that were refused
    // meanwhile may come again.
    (0..7).for_each(|id| drop(world.ingest(&cloud(id), None)));
    world.check(5);
    assert_eq!(world.usage(), 5);
    let answer = world.ingest(&cloud(1), None).expect("a copy is no new record");
    assert!(answer.body.starts_with(r#"{"accepted":0,"duplicate":1"#), "{}", answer.body);
}

#[test]
fn a_full_backlog_is_said_and_not_counted() {
    let world = World::new("backlog", r#"{"limit": 100}"#, |settings| {
        settings.backlog_rows = 4;
        settings.wait = Duration::from_millis(30);
    });
    assert!(world.ingest("{}", None).is_ok());
    // Writers are busy with requests that cannot be stored yet; others wait, then are refused.
    world.faults.lock().expect("unpoisoned").extend([Fault::LostBefore; 7]);
    let waiting: Vec<_> = (0..20).map(|_| world.send("{}", None)).collect();
    let answers: Vec<Outcome> = waiting.iter().map(|one| one.recv().expect("answered")).collect();
    let accepted = answers.iter().filter(|answer| answer.is_ok()).count() as i64;
    let busy = |answer: &&Outcome| {
        answer.as_ref().is_err_and(|refused| matches!(refused.refusal, Refusal::Busy { .. }))
    };
    assert_eq!(answers.iter().filter(busy).count() as i64, 20 - accepted);
    // Two writers have taken four at most, and four more wait.
    assert!((1..=12).contains(&accepted), "{accepted}");
    world.check(accepted + 1);
    assert_eq!(world.usage(), accepted + 1);
}

#[test]
fn a_store_that_forgets_grants_nothing_twice() {
    let world = World::new("forget", r#"{"limit": 50}"#, |_| {});
    let mut accepted = 0;
    for round in 0..12 {
        let waiting: Vec<_> = (0..5).map(|_| world.send("{}", None)).collect();
        if round % 2 == 0 {
            world.store.clear();
        }
        let answers = waiting.iter().map(|one| one.recv().expect("answered"));
        accepted += answers.filter(Result::is_ok).count() as i64;
    }
    assert_eq!(accepted, 50);
    world.check(50);
}

#[test]
fn adjustments_are_made_once() {
    let world = World::new("adjust", r#"{"limit": 10}"#, |_| {});
    let adjust = |delta: i64, key: &str| {
        let (sender, receiver) = mpsc::channel();
        let (reason, idempotency_key) = ("a test".to_string(), key.to_string());
        let adjustment = Adjustment { delta, reason, idempotency_key };
        world.service.between_transactions(
            move |service, database| service.adjust(database, "acme", &adjustment, "test"),
            move |result| sender.send(result).expect("the test waits"),
        );
        receiver.recv().expect("an answer")
    };
    assert_eq!(adjust(7, "a"), Ok(false));
    assert_eq!(adjust(7, "a"), Ok(true));
    assert_eq!(adjust(8, "a"), Err(Refusal::OtherContent));
    assert_eq!(world.usage(), 7);
    assert_eq!(world.ingest("{}\n{}\n{}\n{}", None).expect("some fit").accepted, 3);
    assert_eq!(adjust(-2, "b"), Ok(false));
    assert_eq!(world.ingest("{}\n{}\n{}\n{}", None).expect("some fit").accepted, 2);
    world.check(5);
}

#[test]
fn late_events_are_charged_to_their_own_period() {
    let world = World::new("late", r#"{"limit": 1}"#, |_| {});
    let at = |id: usize, time: &str| {
        cloud(id).replace("\"type\"", &format!("\"time\":\"{time}\",\"type\""))
    };
    assert!(world.ingest("{}", None).is_ok());
    assert!(world.ingest(&at(1, "2026-10-31T23:59:59Z"), None).is_ok());
    assert!(world.ingest(&at(2, "2026-10-30T00:00:00Z"), None).is_err(), "October is used up");
    let refusal = world.ingest(&at(3, "2026-10-01T00:00:00Z"), None).expect_err("too late");
    assert!(matches!(refusal, Refusal::Malformed(_)), "{refusal:?}");
    let refusal = world.ingest(&at(4, "2026-11-20T00:06:00Z"), None).expect_err("too early");
    assert!(matches!(refusal, Refusal::Malformed(_)), "{refusal:?}");
    world.check(2);
}

fn with_journal(settings: &mut Settings) {
    settings.grouping.ack = Ack::Journal;
}

/// Waits until the database has what the journal had.
fn settled(world: &World, records: u64) {
    while world.service.counts.records.load(Ordering::Relaxed) < records {
        std::thread::yield_now();
    }
}

#[test]
fn the_journal_answers_and_the_database_follows() {
    let world = World::new("journal", r#"{"limit": 10}"#, with_journal);
    world.faults.lock().expect("unpoisoned").extend([Fault::LostAfter, Fault::Refused]);
    let answers: Vec<_> = (0..14).map(|_| world.ingest("{}", None)).collect();
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 10);
    assert!(answers[0].as_ref().is_ok_and(|answer| answer.status == 202));
    settled(&world, 10);
    world.check(10);
    assert_eq!(world.usage(), 10);
}

#[test]
fn the_journal_knows_what_the_database_does_not_know_yet() {
    let world = World::new("journal-known", r#"{"limit": 10}"#, with_journal);
    // The first transaction is not done for a while.
    world.faults.lock().expect("unpoisoned").extend([Fault::LostBefore; 5]);
    assert_eq!(world.ingest(&cloud(1), Some("k")).expect("accepted").accepted, 1);
    assert!(world.ingest(&cloud(1), Some("k")).expect("replayed").is_replay);
    let copy = world.ingest(&cloud(1), None).expect("a copy");
    assert!(copy.body.starts_with(r#"{"accepted":0,"duplicate":1"#), "{}", copy.body);
    settled(&world, 1);
    world.check(1);
    assert_eq!(world.usage(), 1);
}

/// A journal on a disk that takes no time.
#[derive(Default)]
struct Quick {
    name: String,
    bytes: u64,
}

impl Journal for Quick {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn lines(&mut self) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    fn append(&mut self, line: &str) -> Result<(), String> {
        self.bytes += line.len() as u64;
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn clear(&mut self, name: &str) -> Result<(), String> {
        (self.name, self.bytes) = (name.to_string(), 0);
        Ok(())
    }
}

/// Sends requests one by one until one may be acknowledged by the thread that sends it.
fn until_it_leads(world: &World, accepted: &mut i64) -> (Lead, mpsc::Receiver<Outcome>) {
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing is quick enough");
        *accepted += 1;
        let (request, answer) = world.request("{}", None);
        if let Some(lead) = world.service.ingest_and_lead(request) {
            return (lead, answer);
        }
        assert!(answer.recv().expect("an answer").is_ok());
    }
}

#[test]
fn a_lone_request_is_acknowledged_by_its_own_thread() {
    let quick = |_: &Path| Box::new(Quick::default()) as Box<dyn Journal>;
    let world = World::with("lead", r#"{"limit": 1000000}"#, with_journal, quick, false);
    let mut accepted = 0;
    loop {
        let (mut lead, answer) = until_it_leads(&world, &mut accepted);
        if matches!(lead.go(), Led::Here) {
            let answer = answer.try_recv().expect("it is answered already").expect("accepted");
            assert_eq!(answer.status, 202);
            break;
        }
        assert!(answer.recv().expect("an answer").is_ok(), "somebody was busy");
    }
    // Who gives up has it acknowledged by another thread.
    let (lead, answer) = until_it_leads(&world, &mut accepted);
    assert!(answer.try_recv().is_err());
    drop(lead);
    assert!(answer.recv().expect("an answer").is_ok());
    // Two are none that is alone.
    let (mut lead, first) = until_it_leads(&world, &mut accepted);
    let (request, second) = world.request("{}", None);
    accepted += 1;
    let other = world.service.ingest_and_lead(request);
    assert!(matches!(lead.go(), Led::Elsewhere));
    assert!(first.recv().expect("an answer").is_ok());
    drop(other);
    assert!(second.recv().expect("an answer").is_ok());
    settled(&world, accepted as u64);
    world.check(accepted);
    assert_eq!(world.usage(), accepted);
}

#[test]
fn a_lone_request_is_stored_over_the_lane_of_its_thread() {
    let world = World::with("lane", r#"{"limit": 1000}"#, |_| {}, journal, true);
    let event_loop = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let event_loop = event_loop.expect("an event loop");
    let mut accepted = 0;
    // The first time, and after a connection broke, this opens one; a writer stores the request.
    let mut lead_once = |faults: &[Fault]| loop {
        let (mut lead, answer) = until_it_leads(&world, &mut accepted);
        let before = world.service.counts.commits.load(Ordering::Relaxed);
        world.faults.lock().expect("unpoisoned").extend(faults);
        let led = lead.go();
        if let Led::Task(task) = led {
            event_loop.block_on(task);
            break (answer.recv().expect("an answer"), before, accepted);
        }
        // A thread was not yet done with the one before.
        if answer.recv().expect("an answer").is_err() {
            accepted -= 1;
        }
    };
    let commits = || world.service.counts.commits.load(Ordering::Relaxed);
    for fault in [Fault::None, Fault::Busy, Fault::LostBefore, Fault::LostAfter, Fault::None] {
        assert!(lead_once(&[]).0.is_ok());
        let (answer, before, accepted) = lead_once(&[fault]);
        let answer = answer.expect("it is stored");
        assert_eq!((answer.status, answer.accepted), (200, 1), "{fault:?}");
        assert_eq!(commits(), before + 1, "{fault:?}");
        world.check(accepted);
        assert_eq!(world.verified().differences, Vec::<String>::new(), "{fault:?}");
        assert_eq!(world.usage(), accepted);
    }
    // What the database refuses is given back.
    let (answer, _, sent) = lead_once(&[Fault::Refused, Fault::Refused]);
    let refused = answer.expect_err("there is no room");
    assert!(matches!(refused.refusal, Refusal::Busy { .. }));
    world.check(sent - 1);
    assert_eq!(world.usage(), sent - 1);
}

#[test]
fn what_was_left_in_the_journal_is_applied_once() {
    let world = World::new("journal-left", r#"{"limit": 10}"#, with_journal);
    (0..3).for_each(|_| drop(world.ingest("{}", None).expect("accepted")));
    settled(&world, 3);
    let file = std::fs::read(world.folder.join("journal")).expect("a journal");
    world.service.stop();
    // As after a crash: the journal as it was, and the beginning of a line that was not finished;
    // once with all of it in the database, once with nothing of it.
    for is_lost in [false, true] {
        let torn = b"0123456789abcdef 4 {\"records\":[";
        let old = [file.as_slice(), torn.as_slice()].concat();
        std::fs::write(world.folder.join("journal"), old).expect("a file");
        let connect = Arc::clone(&world.connect);
        if is_lost {
            let delete = |table| Statement::run(format!("DELETE FROM quota_{table}"), Vec::new());
            let all = ["record", "counter", "batch"].map(delete);
            connect.connect().expect("a file").transact(&all).expect("they are deleted");
        }
        let counts = Arc::new(Counts::default());
        let left = recover(&mut *journal(&world.folder), connect, counts, "next", START);
        assert_eq!(left, Ok(if is_lost { 3 } else { 0 }), "what the database has is passed over");
        world.check(3);
    }
    // Damage inside is not passed over.
    let mut damaged = file.clone();
    damaged[60] ^= 1;
    std::fs::write(world.folder.join("journal"), damaged).expect("a file");
    assert!(journal(&world.folder).lines().is_err());
}

#[test]
fn a_difference_of_one_is_found() {
    let world = World::new("verify", r#"{"limit": 10}"#, |_| {});
    assert_eq!(world.ingest("{}\n{}", None).expect("accepted").accepted, 2);
    world.check(2);
    let mut database = world.connect.connect().expect("a connection");
    let mut change = |sql: &str| {
        database.transact(&[Statement::run(sql, Vec::new())]).expect("it is changed");
    };
    change("UPDATE quota_counter SET used = used + 1");
    // The counter itself, and the one in memory.
    assert_eq!(world.verified().differences.len(), 2);
    change("UPDATE quota_counter SET used = used - 1");
    assert!(world.verified().differences.is_empty());
    change(
        "DELETE FROM quota_record WHERE record_id = (SELECT * FROM (SELECT MIN(record_id) \
            FROM quota_record) AS first)",
    );
    assert_eq!(world.verified().differences.len(), 1);
    change("DELETE FROM quota_counter");
    assert_eq!(world.verified().differences.len(), 2);
}

#[test]
fn answers_are_kept_for_a_time_and_no_longer() {
    let world = World::new("expiry", r#"{"limit": 10}"#, |settings| settings.kept_ms = 1000);
    let kept = || {
        let mut database = world.connect.connect().expect("a connection");
        database.query("SELECT COUNT(*) FROM quota_idempotency", &[]).expect("rows")[0][0].int()
    };
    let tidy = |later_ms: i64| {
        world.service.tidy(world.clock.fetch_add(later_ms, Ordering::SeqCst) + later_ms);
    };
    assert!(world.ingest("{}", Some("old")).is_ok());
    world.clock.fetch_add(900, Ordering::SeqCst);
    assert!(world.ingest("{}", Some("new")).is_ok());
    tidy(0);
    assert_eq!(kept(), 2);
    assert!(world.ingest("{}", Some("old")).expect("replayed").is_replay);
    tidy(60_000);
    // It happens at the desk, soon.
    let began = Instant::now();
    while kept() > 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "old answers are kept");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!world.ingest("{}", Some("old")).expect("a new one").is_replay);
    world.check(3);
}

#[test]
fn many_writers_side_by_side_count_right() {
    let world = World::new("writers", r#"{"limit": 300}"#, |settings| {
        settings.grouping.ack = Ack::Sync;
        settings.writers = 8;
    });
    let accepted: usize = std::thread::scope(|scope| {
        let race = |client: usize| {
            let world = &world;
            move || {
                let event = |index: usize| cloud(client % 4 * 1000 + index);
                (0..80).filter(|index| world.ingest(&event(*index), None).is_ok()).count()
            }
        };
        // Each event comes from two clients at about the same time.
        let racers: Vec<_> = (0..8).map(|client| scope.spawn(race(client))).collect();
        // Meanwhile the store forgets, and counters are loaded.
        for _ in 0..20 {
            world.store.clear();
            std::thread::sleep(Duration::from_millis(3));
        }
        racers.into_iter().map(|racer| racer.join().expect("no panic")).sum()
    });
    let report = world.verified();
    assert!(report.differences.is_empty(), "{report:?}");
    assert!(report.records <= 300 && accepted as i64 >= report.records, "{report:?}");
    world.check(report.records);
}

#[test]
fn a_start_waits_for_the_connections_that_still_store() {
    let world = World::new("fence", r#"{"limit": 10}"#, |_| {});
    assert!(world.ingest("{}", None).is_ok());
    if world.connect.dialect() == Dialect::Sqlite {
        // What is killed takes its transactions along.
        return;
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            is_over.store(true, Ordering::SeqCst);
            // Its connections end.
            world.service.stop();
        });
        let next = Service::start(Parts {
            store: Arc::new(MemoryStore::default()),
            connect: Arc::clone(&world.connect),
            clock: Arc::new(|| START),
            random: Box::new(|| 7),
            journal: None,
            settings: Settings::default(),
        });
        assert!(is_over.load(Ordering::SeqCst), "it did not wait");
        next.expect("it starts").stop();
    });
}
