//! Lists that outlive changes. What is said of a row without asking is what the database finds, for
//! hostile rows and columns; what is served through changes is what is there, on SQLite and on the
//! databases that FOREBAY_MYSQL and FOREBAY_POSTGRES name.

mod common;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use common::{Dice, filter, percent_encoded};
use forebay_backends::address::open;
use forebay_backends::compress::compress;
use services::database::{Connect, Database, Dialect, Row, Statement, Value};
use services::tables::ask::{Answer, Ask, Change, Changed, Control, Filled, From, Verb};
use services::tables::matching::Matcher;
use services::tables::odata::possible::Truth;
use services::tables::odata::sql::{date_value, quoted};
use services::tables::query::{Query, Shape, Target, one_sql};
use services::tables::schema::{Column, Declarations, Kind, Table};
use services::tables::service::{Look, Parts, Settings, Tables};
use services::tables::setup;
use services::tables::testing::MemoryShelf;
use services::tables::trust::Trust;

const COLUMNS: [(&str, Kind); 7] = [
    ("id", Kind::Text),
    ("text", Kind::Text),
    ("note", Kind::Text),
    ("rank", Kind::Int),
    ("price", Kind::Real),
    ("done", Kind::Bool),
    ("due", Kind::Date),
];
const FILTERS: u64 = 3000;
const ROWS: usize = 60;

/// The tests have the same tables in those databases: one after the other.
static TURN: Mutex<()> = Mutex::new(());

/// Every database there is, and a folder for SQLite's.
fn databases(name: &str, run: impl Fn(Arc<dyn Connect>)) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = std::env::temp_dir().join(format!("forebay-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut addresses = vec![format!("sqlite:{name}.db")];
    for variable in ["FOREBAY_MYSQL", "FOREBAY_POSTGRES"] {
        match std::env::var(variable) {
            Ok(address) => addresses.push(address),
            Err(_) => eprintln!("{variable} is not set: that database is not asked"),
        }
    }
    for address in addresses {
        run(open(&address, &folder).expect("an address"));
    }
    let _ = std::fs::remove_dir_all(folder);
}

fn run(database: &mut dyn Database, sql: impl Into<String>) {
    database.transact(&[Statement::run(sql, Vec::new())]).expect("it is done");
}

// ---- Rows nobody should have -----------------------------------------------------------------

/// A table as nobody would declare it, of the same columns.
fn odd(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => {
            "CREATE TABLE hostile (id TEXT PRIMARY KEY, text STRING, note TEXT COLLATE NOCASE, \
             rank TEXT, price NUMERIC, done, due DATETIME)"
        }
        Dialect::Mysql => {
            "CREATE TABLE hostile (id VARCHAR(50) PRIMARY KEY, \
             text VARCHAR(50) CHARACTER SET latin1, \
             note VARCHAR(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, \
             `rank` BIGINT UNSIGNED, price DECIMAL(40,20), done INT, due DATETIME(6))"
        }
        Dialect::Postgres => {
            "CREATE TABLE hostile (id text PRIMARY KEY, text character(10), \
             note varchar(50) COLLATE \"C\", rank numeric, price real, done boolean, due date)"
        }
    }
}

fn hostile_value(dice: &mut Dice, kind: Kind, dialect: Dialect) -> Value {
    let is_strange = dice.roll(8) == 0;
    let word = |dice: &mut Dice, words: &[&str]| Value::from(dice.pick(words));
    match (kind, is_strange) {
        _ if dice.roll(7) == 0 => Value::Null,
        (Kind::Text, false) => Value::from(dice.word()),
        (Kind::Text, true) => match dice.roll(4) {
            0 => Value::Int(1),
            1 => Value::real(1.0),
            2 => Value::from("a\0b"),
            _ => Value::from("\u{fffd}"),
        },
        (Kind::Int, false) => Value::Int(dice.whole()),
        (Kind::Int, true) => word(dice, &["1", "1.0", "abc", "", "1e0", "9007199254740993.5"]),
        (Kind::Real, false) => Value::real(dice.real()),
        (Kind::Real, true) => word(dice, &["NaN", "Infinity", "-Infinity", "1", "", "1e400"]),
        (Kind::Bool, false) => Value::Bool(dice.roll(2) == 0),
        (Kind::Bool, true) => Value::Int(dice.roll(3) as i64),
        (Kind::Date, false) => date_value(dialect, dice.moment()),
        (Kind::Date, true) => word(
            dice,
            &["2026-01-01", "2026-01-01 00:00:00.0001", "soon", "2026", "2026-01-01T00:00:00Z"],
        ),
    }
}

/// Fills the table with what the database takes of what nobody should give it.
fn fill_hostile(database: &mut dyn Database, dice: &mut Dice) -> Vec<String> {
    let dialect = database.dialect();
    let names: Vec<String> = COLUMNS.iter().map(|(name, _)| quoted(dialect, name)).collect();
    let sql = format!("INSERT INTO hostile ({}) VALUES (?, ?, ?, ?, ?, ?, ?)", names.join(", "));
    let mut ids = Vec::new();
    for number in 0..ROWS * 20 {
        let id = format!("r{number}");
        let mut values = vec![Value::from(id.as_str())];
        values.extend(COLUMNS[1..].iter().map(|(_, kind)| hostile_value(dice, *kind, dialect)));
        if database.transact(&[Statement::run(sql.as_str(), values)]).is_ok() {
            ids.push(id);
        }
        if ids.len() == ROWS {
            break;
        }
    }
    assert!(ids.len() > ROWS / 2, "only {} rows", ids.len());
    ids
}

/// What was said of rows: how often anything certain, how often that they do not match.
#[derive(Default, Debug)]
struct Said {
    asked: usize,
    certain: usize,
    spared: usize,
    failed: u64,
}

fn compare(database: &mut dyn Database, table: &Table, trust: &Trust, ids: &[String]) -> Said {
    let dialect = database.dialect();
    let read = |id: &String| {
        let sql = one_sql(table, dialect, &id.as_str().into(), None, true);
        let mut rows = database.query(&sql.text, &sql.values).expect("a row");
        (id.clone(), rows.remove(0))
    };
    let rows: Vec<(String, Row)> = ids.iter().map(read).collect();
    let mut said = Said::default();
    for number in 0..FILTERS {
        let mut dice = Dice::new(11 ^ (number << 20));
        let depth = dice.roll(3);
        let text = filter(&mut dice, depth);
        let address = format!("$filter={}&$select=id&$top=1000", percent_encoded(&text));
        let query = Query::read(&address, table, Shape::Zumo2)
            .unwrap_or_else(|bad| panic!("{number}: {text}: {bad:?}"));
        let sql = query.sql(table, dialect, None);
        let Ok(found) = database.query(&sql.text, &sql.values) else {
            // Some refuse what runs over.
            said.failed += 1;
            continue;
        };
        let found: HashSet<&str> = found.iter().map(|row| row[0].text()).collect();
        for (id, row) in &rows {
            let truth = Matcher::new(&query, table, trust, None).truth(row);
            let is_found = found.contains(id.as_str());
            let about = || format!("{number}: {text}\n{row:?}\n{}", sql.text);
            assert!(truth.may_be_true() || !is_found, "it is found: {}", about());
            assert!(truth != Truth::TRUE || is_found, "it is not found: {}", about());
            said.asked += 1;
            said.certain += usize::from(truth == Truth::TRUE || !truth.may_be_true());
            said.spared += usize::from(!truth.may_be_true());
        }
    }
    said
}

#[test]
fn what_is_certain_is_what_the_database_finds() {
    databases("hostile", |connect| {
        let mut database = connect.connect().expect("a connection");
        let dialect = connect.dialect();
        let column = |(name, kind): (&str, Kind)| Column { name: name.into(), kind };
        let mut table = Table::new("hostile", COLUMNS.map(column).into()).expect("a table");
        (table.page_size, table.top_max) = (1000, 1000);
        let ours = setup::create(&table, dialect);
        for (sql, spared_min) in [(ours.as_str(), 35), (odd(dialect), 0)] {
            run(&mut *database, "DROP TABLE IF EXISTS hostile");
            run(&mut *database, sql);
            let trust = Trust::ask(&mut *database, &table).expect("it says");
            let ids = fill_hostile(&mut *database, &mut Dice::new(5));
            let said = compare(&mut *database, &table, &trust, &ids);
            eprintln!("{dialect:?}: {said:?}");
            assert!(said.spared * 100 >= said.asked * spared_min, "{said:?}");
            assert!(said.failed * 5 < FILTERS, "{said:?}");
        }
        run(&mut *database, "DROP TABLE IF EXISTS hostile");
    });
}

#[test]
fn columns_are_what_the_database_says() {
    databases("trusted", |connect| {
        let mut database = connect.connect().expect("a connection");
        let dialect = connect.dialect();
        let column = |(name, kind): (&str, Kind)| Column { name: name.into(), kind };
        let table = Table::new("hostile", COLUMNS.map(column).into()).expect("a table");
        let ask = |database: &mut dyn Database| {
            let trust = Trust::ask(database, &table).expect("it says");
            (0..COLUMNS.len()).map(|place| trust.has(place)).collect::<Vec<bool>>()
        };
        run(&mut *database, "DROP TABLE IF EXISTS hostile");
        assert_eq!(ask(&mut *database), [false; 7], "there is no such table");
        run(&mut *database, setup::create(&table, dialect));
        assert_eq!(ask(&mut *database), [true; 7]);
        run(&mut *database, "DROP TABLE hostile");
        run(&mut *database, odd(dialect));
        let want = match dialect {
            // A collation anywhere makes all text doubtful; a value says itself what it is.
            Dialect::Sqlite => [false, false, false, true, true, true, false],
            Dialect::Mysql => [true, false, true, false, false, true, false],
            Dialect::Postgres => [true, false, false, false, false, true, false],
        };
        assert_eq!(ask(&mut *database), want);
        run(&mut *database, "DROP TABLE hostile");
        if dialect == Dialect::Postgres {
            run(&mut *database, setup::create(&table, dialect));
            run(&mut *database, "ALTER TABLE hostile ENABLE ROW LEVEL SECURITY");
            assert_eq!(ask(&mut *database), [false; 7], "rows decide who sees others");
            run(&mut *database, "ALTER TABLE hostile RENAME TO hostile_base");
            run(&mut *database, "CREATE VIEW hostile AS SELECT * FROM hostile_base");
            assert_eq!(ask(&mut *database), [false; 7], "a view");
            run(&mut *database, "DROP VIEW hostile");
            run(&mut *database, "DROP TABLE hostile_base");
        }
        if dialect == Dialect::Mysql {
            let tree = "CREATE TABLE hostile (id BIGINT PRIMARY KEY, up BIGINT, \
                        FOREIGN KEY (up) REFERENCES hostile (id) ON DELETE CASCADE)";
            run(&mut *database, tree);
            assert_eq!(ask(&mut *database), [false; 7], "rows go without a trigger");
            run(&mut *database, "DROP TABLE hostile");
        }
    });
}

// ---- A service through changes ---------------------------------------------------------------

const NAME: &str = "listed";
const USERS: [&str; 2] = ["ann", "bob"];
const CHANGES: usize = 500;
const ASKED_AFTER_EACH: usize = 6;

/// The declaration; kept for so long, in milliseconds.
fn declared(ttl_ms: u64) -> Declarations {
    let text = format!(
        "{{\"tables\": {{\"{NAME}\": {{\"columns\": {{\"text\": \"text\", \"note\": \"text\", \
         \"rank\": \"int\", \"price\": \"real\", \"done\": \"bool\", \"due\": \"date\"}}, \
         \"softDelete\": true, \"perUser\": \"owner\", \
         \"cache\": {{\"ttlMs\": {ttl_ms}, \"negativeMs\": {ttl_ms}, \"refreshBeta\": 0}}}}}}}}"
    );
    Declarations::read(&text).expect("it is sound")
}

fn start(connect: &Arc<dyn Connect>, ttl_ms: u64, shelf: &Arc<MemoryShelf>) -> Arc<Tables> {
    let mut database = connect.connect().expect("a connection");
    let served = setup::prepare(&mut *database, declared(ttl_ms), 50).expect("tables");
    let settings = Settings {
        readers: 2,
        writers: 1,
        queue_max: 1000,
        wait_ms: 60_000,
        hot_bytes: 1 << 24,
        probe_ms: 50,
        sample_one_in: 3,
    };
    let parts = Parts {
        connect: Arc::clone(connect),
        shelf: Arc::clone(shelf) as _,
        clock: Arc::new(|| 1_700_000_000_000),
        compress,
        seed: 7,
        settings,
    };
    Tables::start(served, parts).expect("threads")
}

/// The table, empty, and the service that keeps answers of it.
fn fresh(connect: &Arc<dyn Connect>) -> Arc<Tables> {
    let mut database = connect.connect().expect("a connection");
    run(&mut *database, format!("DROP TABLE IF EXISTS {NAME}"));
    let gone = format!("DELETE FROM forebay_table WHERE name = '{NAME}'");
    let _ = database.transact(&[Statement::run(gone, Vec::new())]);
    start(connect, 60_000, &Arc::default())
}

fn ask(tables: &Tables, query: &str, user: &str) -> Arc<Ask> {
    let served = tables.find(NAME).expect("a table");
    let query = Query::read(query, &served.table, Shape::Zumo2)
        .unwrap_or_else(|bad| panic!("{query}: {bad:?}"));
    let user = Some(Arc::from(user));
    Arc::new(Ask::new(&served, Target::List(Box::new(query)), Shape::Zumo2, user.as_ref()))
}

fn get(tables: &Tables, ask: &Arc<Ask>) -> Answer {
    let fetch = match tables.look(ask, &Control::default()) {
        Look::Answer(answer) => return answer,
        Look::Fault(fault) => panic!("{fault:?}"),
        Look::Fetch(fetch) => fetch,
    };
    let (sender, receiver) = mpsc::channel();
    let done = move |filled| sender.send(filled).expect("it is waited for");
    let is_shared = tables.fetch(ask, &fetch, Box::new(done));
    let filled: Filled = receiver.recv().expect("it is answered").expect("the database answers");
    tables.answer(&fetch, filled, is_shared)
}

fn change(
    tables: &Arc<Tables>,
    verb: Verb,
    id: &str,
    user: &str,
    sets: &[(&str, Value)],
) -> Changed {
    let served = tables.find(NAME).expect("a table");
    let place = |name: &str| served.table.find(name).expect("a column");
    let sets = sets.iter().map(|(name, value)| (place(name), value.clone())).collect();
    let owner = Some(Arc::from(user));
    let change = Change { served, verb, id: id.into(), sets, owner, condition: None };
    let (sender, receiver) = mpsc::channel();
    tables.change(change, Box::new(move |done| sender.send(done).expect("it is waited for")));
    receiver.recv().expect("it is answered").expect("the database does it")
}

fn value(dice: &mut Dice, kind: Kind, dialect: Dialect) -> Value {
    match kind {
        _ if dice.roll(8) == 0 => Value::Null,
        Kind::Text => dice.word().into(),
        Kind::Int => Value::Int(dice.whole()),
        // Of the sizes that all products read back as they were.
        Kind::Real => Value::real((dice.roll(81) as f64 - 40.0) / 4.0),
        Kind::Bool => Value::Bool(dice.roll(2) == 0),
        Kind::Date => date_value(dialect, dice.moment()),
    }
}

/// A change by somebody: through the service, or behind its back and then noticed.
fn any_change(dice: &mut Dice, tables: &Arc<Tables>, foreign: &mut dyn Database) {
    let (dialect, user) = (tables.dialect(), USERS[dice.roll(2)]);
    let id = format!("r{}", dice.roll(40));
    if dice.roll(40) == 0 {
        let column = quoted(dialect, "rank");
        let sql = format!("UPDATE {NAME} SET {column} = ? WHERE id = ?");
        let update = Statement::run(sql, vec![Value::Int(dice.whole()), id.into()]);
        foreign.transact(&[update]).expect("it is changed");
        return tables.probe(foreign, &mut None).expect("it is looked for");
    }
    let mut sets = Vec::new();
    for (name, kind) in &COLUMNS[1..] {
        if dice.roll(3) == 0 {
            sets.push((*name, value(dice, *kind, dialect)));
        }
    }
    let verb = match dice.roll(10) {
        0..=4 => Verb::Insert,
        5..=7 => Verb::Update,
        8 => Verb::Delete,
        _ => Verb::Undelete,
    };
    if !matches!(verb, Verb::Insert | Verb::Update) {
        sets.clear();
    }
    change(tables, verb, &id, user, &sets);
}

fn any_address(dice: &mut Dice) -> String {
    let depth = dice.roll(3);
    let mut condition = filter(dice, depth);
    if dice.roll(2) == 0 {
        // As most lists are: of a small part of the rows.
        condition = format!("{condition} and text eq '{}'", dice.pick(&["a", "ab", "é", "1"]));
    }
    let mut parts = vec![format!("$filter={}", percent_encoded(&condition))];
    let mut maybe = |one_in: usize, part: &str, dice: &mut Dice| {
        if dice.roll(one_in) == 0 {
            parts.push(part.to_string());
        }
    };
    maybe(2, "$orderby=rank%20desc,text", dice);
    maybe(3, "$top=5", dice);
    maybe(4, "$skip=2", dice);
    maybe(4, "$inlinecount=allpages", dice);
    maybe(5, "__includeDeleted=true", dice);
    maybe(5, "$select=id,text", dice);
    parts.join("&")
}

#[test]
fn what_outlives_changes_is_what_is_there() {
    databases("outlived", |connect| {
        let cached = fresh(&connect);
        let direct = start(&connect, 0, &Arc::default());
        let mut foreign = connect.connect().expect("a connection");
        let mut dice = Dice::new(3);
        let addresses: Vec<String> = (0..30).map(|_| any_address(&mut dice)).collect();
        let mut hits = 0;
        for number in 0..CHANGES {
            any_change(&mut dice, &cached, &mut *foreign);
            for _ in 0..ASKED_AFTER_EACH {
                let (address, user) = (&addresses[dice.roll(30)], USERS[dice.roll(2)]);
                let answer = get(&cached, &ask(&cached, address, user));
                let right = get(&direct, &ask(&direct, address, user));
                let shown =
                    |answer: &Answer| String::from_utf8_lossy(answer.page.plain()).into_owned();
                let (shown_now, want) = (shown(&answer), shown(&right));
                assert_eq!(shown_now, want, "{number}: {address} for {user}: {:?}", answer.from);
                assert!(answer.page.right_at() >= right.page.version);
                hits += usize::from(answer.from == From::Hit);
            }
        }
        let asked = CHANGES * ASKED_AFTER_EACH;
        let (outlived, dialect) = (cached.stats.outlived.get() as usize, connect.dialect());
        eprintln!("{dialect:?}: {asked} asked, {hits} hits, {outlived} outlived");
        assert!(outlived * 4 > asked, "{outlived} of {asked}");
        assert_eq!(cached.stats.mismatches.get(), 0);
        run(&mut *foreign, format!("DROP TABLE {NAME}"));
    });
}

#[test]
fn dates_that_postgres_alone_has_make_lists_old() {
    databases("dates", |connect| {
        if connect.dialect() != Dialect::Postgres {
            return;
        }
        let tables = fresh(&connect);
        let mut foreign = connect.connect().expect("a connection");
        for due in ["infinity", "-infinity", "0044-03-15 12:00:00+00 BC"] {
            let insert =
                format!("INSERT INTO {NAME} (id, due, owner) VALUES ('x', '{due}', 'ann')");
            run(&mut *foreign, insert);
            tables.probe(&mut *foreign, &mut None).expect("it is looked for");
            for op in ["gt", "lt", "eq"] {
                let filter = format!("due {op} datetime'0044-03-15T12:00:00Z' or rank eq -77");
                let list = ask(&tables, &format!("$filter={}", percent_encoded(&filter)), "ann");
                get(&tables, &list);
                change(&tables, Verb::Update, "x", "ann", &[("note", "y".into())]);
                assert_ne!(get(&tables, &list).from, From::Hit, "{due} {op}");
            }
            run(&mut *foreign, format!("DELETE FROM {NAME}"));
        }
        run(&mut *foreign, format!("DROP TABLE {NAME}"));
    });
}

// ---- The rules, one by one -------------------------------------------------------------------

/// A service over a file of its own.
struct Bench {
    folder: PathBuf,
    connect: Arc<dyn Connect>,
    shelf: Arc<MemoryShelf>,
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
        std::fs::create_dir_all(&folder).expect("a folder");
        let connect = open("sqlite:rules.db", &folder).expect("an address");
        let shelf = Arc::default();
        let tables = start(&connect, 60_000, &shelf);
        Bench { folder, connect, shelf, tables }
    }

    fn change(&self, verb: Verb, id: &str, rank: i64) -> i64 {
        let set = [("rank", Value::Int(rank))];
        let sets = if matches!(verb, Verb::Insert | Verb::Update) { &set[..] } else { &[] };
        match change(&self.tables, verb, id, "ann", sets) {
            Changed::Done { version, .. } => version,
            other => panic!("{other:?}"),
        }
    }

    fn list(&self, query: &str) -> Answer {
        get(&self.tables, &ask(&self.tables, query, "ann"))
    }
}

const HIGH: &str = "$filter=rank%20gt%2010&$orderby=rank&$top=2&$inlinecount=allpages";

#[test]
fn a_list_outlives_changes_of_rows_that_are_not_of_it() {
    let bench = Bench::new("rules");
    bench.change(Verb::Insert, "a", 20);
    let first = bench.list(HIGH);
    let is_kept = |label: i64| {
        let answer = bench.list(HIGH);
        assert_eq!(answer.page.etag, first.page.etag);
        (answer.from, answer.page.right_at()) == (From::Hit, label)
    };
    for (verb, rank) in [(Verb::Insert, 1), (Verb::Update, 10)] {
        assert!(is_kept(bench.change(verb, "b", rank)));
    }
    assert!(is_kept(bench.change(Verb::Delete, "b", 0)));
    assert!(is_kept(bench.change(Verb::Undelete, "b", 0)));
    change(&bench.tables, Verb::Insert, "c", "bob", &[("rank", Value::Int(99))]);
    assert_eq!(bench.list(HIGH).from, From::Hit, "somebody else's row");
    assert_eq!(bench.tables.stats.outlived.get(), 5);
    // Into it, within it, out of it; marked rows of it, and one that comes back.
    bench.change(Verb::Update, "b", 30);
    assert_ne!(bench.list(HIGH).from, From::Hit);
    bench.change(Verb::Update, "b", 31);
    assert_ne!(bench.list(HIGH).from, From::Hit);
    bench.change(Verb::Update, "b", 5);
    assert_ne!(bench.list(HIGH).from, From::Hit);
    bench.change(Verb::Delete, "a", 0);
    assert_ne!(bench.list(HIGH).from, From::Hit);
    bench.change(Verb::Undelete, "a", 0);
    assert_ne!(bench.list(HIGH).from, From::Hit);
    assert_eq!(bench.tables.stats.outlived.get(), 5);
}

#[test]
fn what_is_not_known_makes_lists_old() {
    let bench = Bench::new("unknown");
    bench.change(Verb::Insert, "a", 20);
    bench.change(Verb::Insert, "b", 1);
    // A change by somebody else, noticed or between two of ours.
    let mut foreign = bench.connect.connect().expect("a connection");
    for is_noticed in [true, false] {
        bench.list(HIGH);
        run(&mut *foreign, format!("UPDATE {NAME} SET rank = 2 WHERE id = 'b'"));
        match is_noticed {
            true => bench.tables.probe(&mut *foreign, &mut None).expect("it is looked for"),
            false => drop(bench.change(Verb::Update, "b", 3)),
        }
        assert_ne!(bench.list(HIGH).from, From::Hit);
    }
    // A filter that is not worked out here, and a row that has no value for it.
    for (query, is_hit) in [("round(price)%20eq%201", false), ("price%20lt%201", true)] {
        let query = format!("$filter={query}");
        bench.list(&query);
        bench.change(Verb::Update, "b", 4);
        assert_eq!(bench.list(&query).from == From::Hit, is_hit, "{query}");
    }
    // A trigger that changes more than the row.
    bench.list(HIGH);
    run(
        &mut *foreign,
        format!(
            "CREATE TRIGGER more AFTER INSERT ON {NAME} \
             BEGIN UPDATE {NAME} SET rank = 40 WHERE id = 'b'; END"
        ),
    );
    bench.change(Verb::Insert, "d", 1);
    let answer = bench.list(HIGH);
    assert_ne!(answer.from, From::Hit);
    assert_eq!(answer.page.rows, 2);
}

#[test]
fn nothing_is_known_of_what_was_before_a_restart() {
    let mut bench = Bench::new("again");
    bench.change(Verb::Insert, "a", 20);
    let label = bench.list(HIGH).page.version;
    let now = bench.change(Verb::Insert, "b", 1);
    assert_eq!((bench.list(HIGH).from, bench.list(HIGH).page.right_at()), (From::Hit, now));
    bench.tables = start(&bench.connect, 60_000, &bench.shelf);
    // What lies in the keyspace has the label that it was read with.
    let answer = bench.list(HIGH);
    assert_ne!(answer.from, From::Hit, "{label} is not {now}, and nobody knows what was between");
    bench.change(Verb::Update, "b", 2);
    assert_eq!(bench.list(HIGH).from, From::Hit);
}

#[test]
fn a_newer_version_that_a_client_knows_of_is_met() {
    let bench = Bench::new("token");
    bench.change(Verb::Insert, "a", 20);
    let question = ask(&bench.tables, HIGH, "ann");
    get(&bench.tables, &question);
    let version = bench.change(Verb::Insert, "b", 1);
    let look = |at_least| bench.tables.look(&question, &Control { at_least, ..Control::default() });
    assert!(matches!(look(version), Look::Answer(answer) if answer.page.right_at() == version));
    assert!(matches!(look(version + 1), Look::Fetch(_)));
}
