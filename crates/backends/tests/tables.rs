//! Cached tables over SQLite: what is served from memory is never older than what anybody has been
//! told, whatever runs at the same time.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use forebay_backends::compress::compress;
use forebay_backends::sqlite::Sqlite;
use services::database::{
    Connect, Database, DatabaseError, Dialect, Row, Statement, Step, Stepped, Value,
};
use services::tables::ask::{
    Answer, Ask, Change, Changed, Control, Fault, Filled, Forward, From, Verb,
};
use services::tables::page::Coding;
use services::tables::query::{Query, Shape, Target};
use services::tables::schema::Declarations;
use services::tables::service::{Look, Parts, Settings, Tables};
use services::tables::setup;
use services::tables::testing::MemoryShelf;

/// What a database does to whoever reads.
#[derive(Default)]
struct Trouble {
    reads: AtomicU64,
    delay_ms: AtomicU64,
    is_down: AtomicBool,
}

struct Watched {
    connect: Sqlite,
    trouble: Arc<Trouble>,
}

struct WatchedConnection(Box<dyn Database>, Arc<Trouble>);

impl Connect for Watched {
    fn dialect(&self) -> Dialect {
        self.connect.dialect()
    }

    fn connect(&self) -> Result<Box<dyn Database>, DatabaseError> {
        let trouble = Arc::clone(&self.trouble);
        Ok(Box::new(WatchedConnection(self.connect.connect()?, trouble)))
    }

    fn connect_impatient(&self) -> Result<Option<Box<dyn Database>>, DatabaseError> {
        let opened = self.connect.connect_impatient()?;
        let watch = |opened| Box::new(WatchedConnection(opened, Arc::clone(&self.trouble))) as _;
        Ok(opened.map(watch))
    }
}

impl Database for WatchedConnection {
    fn dialect(&self) -> Dialect {
        self.0.dialect()
    }

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DatabaseError> {
        self.0.query(sql, values)
    }

    fn transact(&mut self, statements: &[Statement]) -> Result<Vec<u64>, DatabaseError> {
        self.0.transact(statements)
    }

    fn unit(&mut self, steps: &[Step]) -> Result<Vec<Stepped>, DatabaseError> {
        if self.1.is_down.load(Ordering::Acquire) {
            return Err(DatabaseError::Lost("it is down".into()));
        }
        let done = self.0.unit(steps);
        if steps.iter().all(|step| matches!(step, Step::Read { .. })) {
            self.1.reads.fetch_add(1, Ordering::AcqRel);
            thread::sleep(Duration::from_millis(self.1.delay_ms.load(Ordering::Acquire)));
        }
        done
    }

    fn foreign_mark(&mut self) -> Result<Option<i64>, DatabaseError> {
        self.0.foreign_mark()
    }
}

const FILE: &str = r#"{"tables": {
    "todo": {"columns": {"text": "text", "rank": "int"}, "softDelete": true,
             "cache": {"ttlMs": 60000, "staleMs": 0, "refreshBeta": 0}},
    "lazy": {"columns": {"rank": "int"}, "cache": {"ttlMs": 1000, "staleMs": 5000}},
    "storm": {"columns": {"rank": "int"},
              "cache": {"ttlMs": 4, "staleMs": 2, "negativeMs": 3, "refreshBeta": 2}},
    "mine": {"columns": {"text": "text"}, "perUser": "owner"}}}"#;

struct Bench {
    folder: PathBuf,
    trouble: Arc<Trouble>,
    shelf: Arc<MemoryShelf>,
    clock: Arc<AtomicI64>,
    tables: Arc<Tables>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Bench {
    fn new(name: &str) -> Bench {
        let folder = std::env::temp_dir().join(format!("forebay-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let (trouble, shelf) = (Arc::default(), Arc::default());
        let clock = Arc::new(AtomicI64::new(1_700_000_000_000));
        let tables = Bench::start(&folder, &trouble, &shelf, &clock);
        Bench { folder, trouble, shelf, clock, tables }
    }

    fn start(
        folder: &std::path::Path,
        trouble: &Arc<Trouble>,
        shelf: &Arc<MemoryShelf>,
        clock: &Arc<AtomicI64>,
    ) -> Arc<Tables> {
        let connect = Sqlite::new(folder.join("tables.db"));
        let connect = Watched { connect, trouble: Arc::clone(trouble) };
        let declarations = Declarations::read(FILE).expect("it is sound");
        let mut connection = connect.connect().expect("a connection");
        let served = setup::prepare(&mut *connection, declarations, 50).expect("tables");
        let clock = Arc::clone(clock);
        let settings = Settings {
            readers: 4,
            writers: 1,
            queue_max: 1000,
            wait_ms: 5000,
            hot_bytes: 1 << 20,
            probe_ms: 50,
            sample_one_in: 3,
        };
        let parts = Parts {
            connect: Arc::new(connect),
            shelf: Arc::clone(shelf) as _,
            clock: Arc::new(move || clock.load(Ordering::Acquire)),
            compress,
            seed: 7,
            settings,
        };
        Tables::start(served, parts).expect("threads")
    }

    /// Ends the service; its connections are closed when it is gone.
    fn stop(&mut self) {
        let gone = Arc::downgrade(&self.tables);
        let empty = std::env::temp_dir().join(format!("forebay-none-{}", std::process::id()));
        std::fs::create_dir_all(&empty).expect("a folder");
        self.tables = Bench::start(&empty, &self.trouble, &Arc::default(), &self.clock);
        while gone.strong_count() > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let _ = std::fs::remove_dir_all(&empty);
    }

    fn begin(&mut self) {
        self.tables = Bench::start(&self.folder, &self.trouble, &self.shelf, &self.clock);
    }

    fn ask(&self, table: &str, query: &str) -> Arc<Ask> {
        ask(&self.tables, table, query, None)
    }

    fn reads(&self) -> u64 {
        self.trouble.reads.load(Ordering::Acquire)
    }

    fn later(&self, ms: i64) {
        self.clock.fetch_add(ms, Ordering::AcqRel);
    }

    fn foreign(&self) -> Box<dyn Database> {
        Sqlite::new(self.folder.join("tables.db")).connect().expect("a connection")
    }
}

fn ask(tables: &Tables, table: &str, query: &str, user: Option<&str>) -> Arc<Ask> {
    let served = tables.find(table).expect("a table");
    let query = Query::read(query, &served.table, Shape::Zumo2).expect("a query");
    let user = user.map(Arc::from);
    Arc::new(Ask::new(&served, Target::List(Box::new(query)), Shape::Zumo2, user.as_ref()))
}

fn one(tables: &Tables, table: &str, id: &str) -> Arc<Ask> {
    let served = tables.find(table).expect("a table");
    let target = Target::One { id: id.into(), includes_deleted: false };
    Arc::new(Ask::new(&served, target, Shape::Zumo2, None))
}

/// Asks as a door does.
fn get(tables: &Tables, ask: &Arc<Ask>) -> Result<Answer, Fault> {
    let fetch = match tables.look(ask, &Control::default()) {
        Look::Answer(answer) => return Ok(answer),
        Look::Fault(fault) => return Err(fault),
        Look::Fetch(fetch) => fetch,
    };
    let (sender, receiver) = mpsc::channel();
    let done = move |filled: Result<Filled, Fault>| {
        sender.send(filled).expect("it is waited for");
    };
    let is_shared = tables.fetch(ask, &fetch, Box::new(done));
    match receiver.recv().expect("every fetch is answered") {
        Ok(filled) => Ok(tables.answer(&fetch, filled, is_shared)),
        Err(fault) => tables.rescue(ask, &fetch).ok_or(fault),
    }
}

fn plan(tables: &Tables, table: &str, verb: Verb, id: &str, rank: i64) -> Change {
    let served = tables.find(table).expect("a table");
    let place = served.table.find("rank").expect("a column");
    let sets = vec![(place, Value::Int(rank))];
    let (owner, condition) = (None, None);
    Change { served, verb, id: id.into(), sets, owner, condition }
}

fn change(tables: &Arc<Tables>, table: &str, verb: Verb, id: &str, rank: i64) -> Changed {
    handed(tables, plan(tables, table, verb, id, rank))
}

/// Has a change made by the writer.
fn handed(tables: &Arc<Tables>, change: Change) -> Changed {
    let (sender, receiver) = mpsc::channel();
    let done = move |changed| sender.send(changed).expect("it is waited for");
    tables.change(change, Box::new(done));
    receiver.recv().expect("every change is answered").expect("the database does it")
}

fn body(answer: &Answer) -> String {
    String::from_utf8(answer.page.plain().to_vec()).expect("JSON is UTF-8")
}

fn rank(answer: &Answer) -> i64 {
    let json: serde_json::Value = serde_json::from_slice(answer.page.plain()).expect("JSON");
    json.get(0).unwrap_or(&json)["rank"].as_i64().expect("a row with a rank")
}

fn why(answer: &Answer) -> Option<Forward> {
    if let From::New { why, .. } = answer.from { Some(why) } else { None }
}

#[test]
fn an_expiry_under_a_hundred_clients_is_one_query() {
    let bench = Bench::new("expiry");
    change(&bench.tables, "todo", Verb::Insert, "a", 1);
    let question = bench.ask("todo", "");
    get(&bench.tables, &question).expect("an answer");
    assert_eq!(bench.reads(), 1);
    bench.later(60_000);
    bench.trouble.delay_ms.store(100, Ordering::Release);
    let barrier = Barrier::new(100);
    let answers: Vec<Answer> = thread::scope(|scope| {
        let client = || {
            barrier.wait();
            get(&bench.tables, &question).expect("an answer")
        };
        let clients: Vec<_> = (0..100).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    });
    assert_eq!(bench.reads(), 2, "an expiry is one query");
    assert!(answers.iter().all(|answer| rank(answer) == 1));
    let shared = answers
        .iter()
        .filter(|answer| matches!(answer.from, From::New { is_shared: true, .. } | From::Hit));
    assert_eq!(shared.count(), 99);
}

#[test]
fn who_comes_just_after_a_query_is_served_by_it() {
    let bench = Bench::new("just-after");
    let (tables, control) = (&bench.tables, Control::default());
    change(tables, "todo", Verb::Insert, "a", 1);
    let question = bench.ask("todo", "");
    for queries in 1..=2 {
        // Looked while there was nothing, or nothing good; the query of others ends; asks for one.
        let Look::Fetch(fetch) = tables.look(&question, &control) else { panic!("not kept") };
        get(tables, &question).expect("an answer");
        let (sender, receiver) = mpsc::channel();
        let done = move |filled: Result<Filled, Fault>| sender.send(filled).expect("waited for");
        assert!(tables.fetch(&question, &fetch, Box::new(done)), "it is shared");
        let filled = receiver.try_recv().expect("it is answered at once").expect("well");
        assert_eq!(rank(&tables.answer(&fetch, filled, true)), 1);
        assert_eq!(bench.reads(), queries);
        bench.later(60_000);
    }
    // What changed meanwhile is not served by it.
    let Look::Fetch(fetch) = tables.look(&question, &control) else { panic!("expired") };
    get(tables, &question).expect("an answer");
    change(tables, "todo", Verb::Update, "a", 2);
    let (sender, receiver) = mpsc::channel();
    let done = move |filled: Result<Filled, Fault>| sender.send(filled).expect("waited for");
    assert!(!tables.fetch(&question, &fetch, Box::new(done)));
    let filled = receiver.recv().expect("an answer").expect("well");
    assert_eq!(rank(&tables.answer(&fetch, filled, false)), 2);
}

#[test]
fn what_is_past_its_time_is_served_while_it_is_renewed_once() {
    let bench = Bench::new("stale");
    change(&bench.tables, "lazy", Verb::Insert, "a", 1);
    let question = bench.ask("lazy", "");
    get(&bench.tables, &question).expect("an answer");
    bench.later(2000);
    bench.trouble.delay_ms.store(1000, Ordering::Release);
    for _ in 0..20 {
        assert_eq!(get(&bench.tables, &question).expect("an answer").from, From::Stale);
    }
    let until = Instant::now() + Duration::from_secs(60);
    while get(&bench.tables, &question).expect("an answer").from != From::Hit {
        assert!(Instant::now() < until, "it is renewed");
        thread::yield_now();
    }
    // Hits are compared with the database beside that.
    assert_eq!(bench.tables.stats.fills.get(), 2);
    bench.later(6001);
    let answer = get(&bench.tables, &question).expect("an answer");
    assert_eq!(why(&answer), Some(Forward::Expired));
}

#[test]
fn a_change_is_seen_at_once_and_leaves_other_rows_kept() {
    let bench = Bench::new("change");
    let tables = &bench.tables;
    change(tables, "todo", Verb::Insert, "a", 1);
    change(tables, "todo", Verb::Insert, "b", 1);
    let (list, a, b) = (bench.ask("todo", ""), one(tables, "todo", "a"), one(tables, "todo", "b"));
    for question in [&list, &a, &b] {
        get(tables, question).expect("an answer");
        assert_eq!(get(tables, question).expect("an answer").from, From::Hit);
    }
    change(tables, "todo", Verb::Update, "a", 2);
    assert_eq!(get(tables, &b).expect("an answer").from, From::Hit);
    for question in [&list, &a] {
        let answer = get(tables, question).expect("an answer");
        assert_eq!((why(&answer), rank(&answer)), (Some(Forward::Changed), 2));
    }
    change(tables, "todo", Verb::Delete, "a", 0);
    assert_eq!(get(tables, &a).expect("an answer").page.status, 404);
    assert_eq!(get(tables, &a).expect("an answer").from, From::Hit);
    bench.later(5_000);
    assert_eq!(why(&get(tables, &a).expect("an answer")), Some(Forward::Expired));
}

#[test]
fn changes_by_others_are_seen_at_the_next_probe() {
    let bench = Bench::new("foreign");
    let tables = &bench.tables;
    change(tables, "todo", Verb::Insert, "a", 1);
    let (list, a) = (bench.ask("todo", ""), one(tables, "todo", "a"));
    let other = bench.ask("lazy", "");
    let mut foreign = bench.foreign();
    let mut prober = bench.foreign();
    let mut mark = None;
    tables.probe(&mut *prober, &mut mark).expect("it answers");
    for question in [&list, &a, &other] {
        get(tables, question).expect("an answer");
    }
    let update = Statement::run("UPDATE todo SET rank = 7 WHERE id = 'a'", Vec::new());
    foreign.transact(&[update]).expect("a change");
    tables.probe(&mut *prober, &mut mark).expect("it answers");
    assert_eq!(rank(&get(tables, &list).expect("an answer")), 7);
    assert_eq!(rank(&get(tables, &a).expect("an answer")), 7);
    // Another table of the same file is not touched by it.
    assert_eq!(get(tables, &other).expect("an answer").from, From::Hit);
    assert_eq!(tables.stats.foreign_changes.get(), 1);
}

#[test]
fn a_query_that_a_change_outruns_is_not_kept_and_done_again() {
    let bench = Bench::new("outrun");
    let tables = &bench.tables;
    change(tables, "todo", Verb::Insert, "a", 1);
    bench.trouble.delay_ms.store(200, Ordering::Release);
    let question = bench.ask("todo", "");
    thread::scope(|scope| {
        let first = scope.spawn(|| get(tables, &question).expect("an answer"));
        while bench.reads() == 0 {
            thread::yield_now();
        }
        // The snapshot is taken, its answer not out yet.
        change(tables, "todo", Verb::Update, "a", 2);
        let second = get(tables, &question).expect("an answer");
        assert_eq!(rank(&second), 2, "who asks after the change sees it");
        assert_eq!(rank(&first.join().expect("a client")), 1);
    });
    assert_eq!(rank(&get(tables, &question).expect("an answer")), 2);
    assert_eq!(tables.stats.outrun.get(), 1);
}

#[test]
fn an_old_answer_is_better_than_none() {
    let bench = Bench::new("down");
    let tables = &bench.tables;
    change(tables, "todo", Verb::Insert, "a", 1);
    let question = bench.ask("todo", "");
    get(tables, &question).expect("an answer");
    bench.trouble.is_down.store(true, Ordering::Release);
    assert_eq!(get(tables, &question).expect("an answer").from, From::Hit);
    bench.later(61_000);
    let answer = get(tables, &question).expect("an answer");
    assert_eq!((answer.from, answer.fresh_ms), (From::StaleIfError, -1000));
    let cold = get(tables, &bench.ask("todo", "$top=1")).expect_err("nothing is kept");
    assert!(matches!(cold, Fault::Database(DatabaseError::Lost(_))));
    bench.later(86_400_000);
    assert!(get(tables, &question).is_err(), "it is too old for that, too");
    bench.trouble.is_down.store(false, Ordering::Release);
    assert_eq!(rank(&get(tables, &question).expect("an answer")), 1);
}

#[test]
fn a_broken_keyspace_costs_speed_and_nothing_else() {
    let bench = Bench::new("broken");
    let tables = &bench.tables;
    change(tables, "todo", Verb::Insert, "a", 1);
    let question = bench.ask("todo", "");
    get(tables, &question).expect("an answer");
    bench.shelf.is_broken.store(true, Ordering::Release);
    for rank_now in 2..5 {
        change(tables, "todo", Verb::Update, "a", rank_now);
        assert_eq!(rank(&get(tables, &question).expect("an answer")), rank_now);
    }
    bench.shelf.is_broken.store(false, Ordering::Release);
    get(tables, &question).expect("an answer");
    assert_eq!(get(tables, &question).expect("an answer").from, From::Hit);
}

#[test]
fn what_is_removed_in_the_keyspace_is_not_served() {
    let bench = Bench::new("purge");
    let question = bench.ask("todo", "");
    get(&bench.tables, &question).expect("an answer");
    assert_eq!(get(&bench.tables, &question).expect("an answer").from, From::Hit);
    bench.shelf.remove(&question.key);
    assert_eq!(why(&get(&bench.tables, &question).expect("one")), Some(Forward::UriMiss));
    assert_eq!(bench.tables.purge("todo"), 1);
    assert_eq!(why(&get(&bench.tables, &question).expect("one")), Some(Forward::UriMiss));
}

#[test]
fn kept_answers_outlive_a_restart_if_nothing_changed() {
    let mut bench = Bench::new("restart");
    change(&bench.tables, "todo", Verb::Insert, "a", 1);
    let question = bench.ask("todo", "");
    get(&bench.tables, &question).expect("an answer");
    let again = |bench: &mut Bench| {
        bench.tables = Bench::start(&bench.folder, &bench.trouble, &bench.shelf, &bench.clock);
    };
    again(&mut bench);
    let question = bench.ask("todo", "");
    assert_eq!(get(&bench.tables, &question).expect("an answer").from, From::Hit);
    let update = Statement::run("UPDATE todo SET rank = 7 WHERE id = 'a'", Vec::new());
    bench.foreign().transact(&[update]).expect("a change");
    again(&mut bench);
    let question = bench.ask("todo", "");
    let answer = get(&bench.tables, &question).expect("an answer");
    assert_eq!((why(&answer), rank(&answer)), (Some(Forward::Changed), 7));
}

#[test]
fn a_restore_while_nobody_looks_removes_what_was_kept() {
    let mut bench = Bench::new("restore");
    change(&bench.tables, "todo", Verb::Insert, "a", 1);
    let saved = bench.foreign().query("SELECT version FROM forebay_table", &[]).expect("rows");
    assert!(!saved.is_empty());
    let backup = bench.folder.join("backup.db");
    let copy = format!("VACUUM INTO '{}'", backup.display());
    bench.foreign().query(&copy, &[]).expect("a copy");
    // Three changes that will be undone, the last answer kept; then three others.
    for rank in 2..5 {
        change(&bench.tables, "todo", Verb::Update, "a", rank);
    }
    let question = bench.ask("todo", "");
    assert_eq!(rank(&get(&bench.tables, &question).expect("an answer")), 4);
    assert_eq!(get(&bench.tables, &question).expect("an answer").from, From::Hit);
    for lost in [0, 3] {
        bench.stop();
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(bench.folder.join(format!("tables.db{end}")));
        }
        std::fs::copy(&backup, bench.folder.join("tables.db")).expect("a restore");
        for rank in 0..lost {
            let sql = format!("UPDATE todo SET rank = {} WHERE id = 'a'", 70 + rank);
            bench.foreign().transact(&[Statement::run(sql, Vec::new())]).expect("a change");
        }
        bench.begin();
        let question = bench.ask("todo", "");
        let answer = get(&bench.tables, &question).expect("an answer");
        let want = if lost == 0 { 1 } else { 72 };
        assert_eq!((why(&answer), rank(&answer)), (Some(Forward::UriMiss), want));
        // So that the next round finds an answer of a version that the restored one comes to.
        for rank in [5, 6, 7].into_iter().take(3 * usize::from(lost == 0)) {
            change(&bench.tables, "todo", Verb::Update, "a", rank);
        }
        get(&bench.tables, &bench.ask("todo", "")).expect("an answer");
    }
}

#[test]
fn rows_are_kept_apart_by_their_owners() {
    let bench = Bench::new("owners");
    let insert = |id: &str, owner: &str| {
        let sql = "INSERT INTO mine (id, text, owner) VALUES (?, ?, ?)";
        let values = vec![id.into(), owner.into(), owner.into()];
        bench.foreign().transact(&[Statement::run(sql, values)]).expect("a row");
    };
    insert("1", "ann");
    insert("2", "bob");
    for _ in 0..2 {
        for user in ["ann", "bob", "a%nn"] {
            let question = ask(&bench.tables, "mine", "$select=owner", Some(user));
            let answer = get(&bench.tables, &question).expect("an answer");
            let want = match user {
                "a%nn" => "[]".to_string(),
                user => format!("[{{\"owner\":\"{user}\"}}]"),
            };
            assert_eq!(body(&answer), want);
        }
    }
    let names = bench.shelf.names();
    assert_eq!(names.iter().filter(|name| name.starts_with("cache:")).count(), 3);
}

#[test]
fn comparing_hits_with_the_database_never_takes_the_room_of_a_question() {
    let bench = Bench::new("samples");
    change(&bench.tables, "todo", Verb::Insert, "a", 1);
    let kept = bench.ask("todo", "");
    get(&bench.tables, &kept).expect("an answer");
    bench.trouble.delay_ms.store(20, Ordering::Release);
    // One in three is compared, and far more than the queue holds come while four are under way.
    for _ in 0..20_000 {
        assert_eq!(get(&bench.tables, &kept).expect("an answer").from, From::Hit);
    }
    let new = bench.ask("todo", "$top=1");
    assert_eq!(why(&get(&bench.tables, &new).expect("room for it")), Some(Forward::UriMiss));
    assert!(bench.reads() < 2000, "{} reads", bench.reads());
    assert_eq!(bench.tables.stats.overloaded.get(), 0);
}

/// Makes a change in this thread, as soon as nobody is in the way, however slow the machine is.
fn change_here(tables: &Arc<Tables>, plan: impl Fn() -> Change) -> Changed {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let plan = plan();
        plan.served.paces.change.set_us(0);
        if let Ok(made) = tables.change_here(plan) {
            return made.expect("the database does it");
        }
        assert!(Instant::now() < until, "changes are quick, and none is made here");
        thread::yield_now();
    }
}

#[test]
fn a_short_change_is_made_in_the_callers_thread_and_known_at_once() {
    let bench = Bench::new("here");
    let tables = &bench.tables;
    change(tables, "todo", Verb::Insert, "a", 1);
    let (list, a) = (bench.ask("todo", ""), one(tables, "todo", "a"));
    for rank_now in 2..200 {
        let made = change_here(tables, || plan(tables, "todo", Verb::Update, "a", rank_now));
        assert!(matches!(made, Changed::Done { .. }), "{made:?}");
        for question in [&list, &a] {
            assert_eq!(rank(&get(tables, question).expect("an answer")), rank_now);
        }
    }
    // What is wrong with one is told as by the writer.
    let made = change_here(tables, || Change {
        condition: Some("x".into()),
        ..plan(tables, "todo", Verb::Update, "a", 7)
    });
    assert!(matches!(made, Changed::Mismatch(_)), "{made:?}");
}

#[test]
fn a_change_that_would_wait_is_given_back_at_once() {
    let bench = Bench::new("locked");
    let tables = &bench.tables;
    change(tables, "todo", Verb::Insert, "a", 1);
    change_here(tables, || plan(tables, "todo", Verb::Update, "a", 2));
    let mut foreign = bench.foreign();
    foreign.query("BEGIN IMMEDIATE", &[]).expect("a lock");
    let plan = plan(tables, "todo", Verb::Update, "a", 3);
    plan.served.paces.change.set_us(0);
    let given_back = tables.change_here(plan);
    let given_back = given_back.expect_err("somebody else writes");
    foreign.query("ROLLBACK", &[]).expect("no lock");
    assert!(matches!(handed(tables, given_back), Changed::Done { .. }));
    assert_eq!(rank(&get(tables, &bench.ask("todo", "")).expect("an answer")), 3);
    assert_eq!(tables.stats.write_errors.get(), 0);
    // It does not wait for a lock, and leaves moving the log into the database to the writer.
    let mut here = Sqlite::new(bench.folder.join("tables.db")).connect_impatient();
    let here = here.as_mut().expect("a connection").as_mut().expect("SQLite has it");
    for pragma in ["PRAGMA busy_timeout", "PRAGMA wal_autocheckpoint"] {
        assert_eq!(here.query(pragma, &[]), Ok(vec![vec![Value::Int(0)]]), "{pragma}");
    }
}

#[test]
fn changes_that_have_been_slow_are_handed_over() {
    let bench = Bench::new("slow");
    let tables = &bench.tables;
    change(tables, "todo", Verb::Insert, "a", 1);
    change_here(tables, || plan(tables, "todo", Verb::Update, "a", 2));
    let paces = Arc::clone(&tables.find("todo").expect("a table").paces);
    paces.change.took(Duration::from_millis(50));
    let change = tables.change_here(plan(tables, "todo", Verb::Update, "a", 3));
    assert!(matches!(handed(tables, change.expect_err("slow")), Changed::Done { .. }));
    assert_eq!(rank(&get(tables, &one(tables, "todo", "a")).expect("an answer")), 3);
}

#[test]
fn one_row_is_read_in_the_callers_thread() {
    let bench = Bench::new("row-here");
    let tables = &bench.tables;
    change(tables, "todo", Verb::Insert, "a", 1);
    let question = one(tables, "todo", "a");
    let control = Control { no_cache: true, ..Control::default() };
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        question.served.paces.row.set_us(0);
        let Look::Fetch(fetch) = tables.look(&question, &control) else { panic!("no-cache") };
        let (sender, receiver) = mpsc::channel();
        let done = move |filled: Result<Filled, Fault>| sender.send(filled).expect("waited for");
        tables.fetch_here(&question, &fetch, Box::new(done));
        let is_here = receiver.try_recv();
        let filled = is_here.clone().or_else(|_| receiver.recv()).expect("an answer");
        assert_eq!(rank(&tables.answer(&fetch, filled.expect("a row"), false)), 1);
        if is_here.is_ok() {
            break;
        }
        assert!(Instant::now() < until, "rows are quick, and none is read here");
    }
    assert_eq!(get(tables, &question).expect("an answer").from, From::Hit);
}

#[test]
fn bodies_are_packed_once_somebody_asks_for_it() {
    let bench = Bench::new("packed");
    let tables = &bench.tables;
    for number in 0..20 {
        change(tables, "todo", Verb::Insert, &format!("row {number}"), 1);
    }
    let question = bench.ask("todo", "");
    get(tables, &question).expect("an answer");
    let page = || get(tables, &question).expect("an answer").page;
    let packed = |coding: Coding| {
        let until = Instant::now() + Duration::from_secs(30);
        while page().bodies[coding as usize].is_empty() {
            tables.pack(&question, &page(), coding);
            assert!(Instant::now() < until, "{coding:?} is made");
            thread::yield_now();
        }
    };
    packed(Coding::Gzip);
    assert!(page().bodies[Coding::Br as usize].is_empty(), "nobody asked for that one");
    packed(Coding::Zstd);
    assert!(!page().bodies[Coding::Gzip as usize].is_empty(), "what was there stays");
    assert!(!page().is_first_to_ask(Coding::Gzip));
}

/// Lets time pass, and removes what is kept now and then.
fn expire_and_purge(bench: &Bench, until: Instant) {
    while Instant::now() < until {
        bench.clock.fetch_add(1, Ordering::AcqRel);
        thread::sleep(Duration::from_millis(1));
        if bench.clock.load(Ordering::Acquire) % 97 == 0 {
            bench.tables.purge("storm");
        }
    }
}

/// Writers raise the ranks of some rows; readers, by id and by list, must never see a rank below
/// one that was acknowledged before they asked, through expiries, renewals and purges.
#[test]
fn nobody_reads_what_is_older_than_what_was_acknowledged() {
    const ROWS: usize = 4;
    let bench = Bench::new("checker");
    let tables = &bench.tables;
    let names: Vec<String> = (0..ROWS).map(|row| format!("r{row}")).collect();
    names.iter().for_each(|name| drop(change(tables, "storm", Verb::Insert, name, 0)));
    let acknowledged: Vec<AtomicI64> = (0..ROWS).map(|_| AtomicI64::new(0)).collect();
    let until = Instant::now() + Duration::from_secs(4);
    let hits = AtomicU64::new(0);
    thread::scope(|scope| {
        for (row, name) in names.iter().enumerate() {
            let acknowledged = &acknowledged[row];
            scope.spawn(move || {
                for rank in 1.. {
                    // As a door does: here, or else by the writer.
                    let plan = plan(tables, "storm", Verb::Update, name, rank);
                    match tables.change_here(plan) {
                        Ok(made) => assert!(matches!(made, Ok(Changed::Done { .. }))),
                        Err(plan) => drop(handed(tables, plan)),
                    }
                    acknowledged.store(rank, Ordering::Release);
                    thread::sleep(Duration::from_millis(rank as u64 % 7));
                    if Instant::now() > until {
                        break;
                    }
                }
            });
        }
        scope.spawn(|| expire_and_purge(&bench, until));
        for reader in 0..6 {
            let (names, acknowledged, hits) = (&names, &acknowledged, &hits);
            scope.spawn(move || {
                for turn in reader.. {
                    let row = turn % ROWS;
                    let question = match turn % 3 {
                        0 => one(tables, "storm", &names[row]),
                        _ => ask(tables, "storm", &format!("$filter=id eq '{}'", names[row]), None),
                    };
                    let least = acknowledged[row].load(Ordering::Acquire);
                    let answer = get(tables, &question).expect("an answer");
                    hits.fetch_add(u64::from(answer.from == From::Hit), Ordering::Relaxed);
                    let seen = rank(&answer);
                    assert!(seen >= least, "{seen} after {least}: {:?}", answer.from);
                    if Instant::now() > until {
                        break;
                    }
                }
            });
        }
    });
    assert!(hits.load(Ordering::Relaxed) > 100, "there were hits to look at");
    assert!(acknowledged.iter().all(|rank| rank.load(Ordering::Relaxed) > 20), "and changes");
    assert_eq!(tables.stats.mismatches.get(), 0);
    assert!(tables.stats.samples.get() > 0);
}
