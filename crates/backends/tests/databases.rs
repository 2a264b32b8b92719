//! What every `Database` must do, over SQLite and over those that FOREBAY_MYSQL and
//! FOREBAY_POSTGRES name (`tests/harness/databases.py` starts them; without one it is passed over,
//! and the test says so).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_backends::address::open;
use proptest::prelude::*;
use services::database::{Connect, Database, DatabaseError, Dialect, Real, Statement, Value};

struct Place {
    connect: Arc<dyn Connect>,
    folder: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Place {
    fn open(&self) -> Box<dyn Database> {
        self.connect.connect().expect("a connection")
    }
}

/// The databases there are, each with an empty table `name`.
fn places(name: &str) -> Vec<Place> {
    let mut addresses = vec!["sqlite:contract.db".to_string()];
    for variable in ["FOREBAY_MYSQL", "FOREBAY_POSTGRES"] {
        match std::env::var(variable) {
            Ok(address) => addresses.push(address),
            Err(_) => eprintln!("{variable} is not set: that database is not tested"),
        }
    }
    let folder = std::env::temp_dir().join(format!("forebay-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let made = |address: &String| {
        let connect = open(address, Path::new(&folder)).expect("an address");
        let place = Place { connect, folder: folder.clone() };
        let mut database = place.open();
        let (text, bytes) = match database.dialect() {
            Dialect::Sqlite => ("TEXT", "BLOB"),
            Dialect::Mysql => ("LONGTEXT COLLATE utf8mb4_bin", "LONGBLOB"),
            Dialect::Postgres => ("TEXT", "BYTEA"),
        };
        run(&mut *database, &format!("DROP TABLE IF EXISTS {name}")).expect("dropped");
        let columns =
            format!("id BIGINT NOT NULL PRIMARY KEY, word {text}, many BIGINT, raw {bytes}");
        run(&mut *database, &format!("CREATE TABLE {name} ({columns})")).expect("made");
        place
    };
    addresses.iter().map(made).collect()
}

fn run(database: &mut dyn Database, sql: &str) -> Result<Vec<u64>, DatabaseError> {
    database.transact(&[Statement::run(sql, Vec::new())])
}

fn count(database: &mut dyn Database, table: &str) -> i64 {
    database.query(&format!("SELECT COUNT(*) FROM {table}"), &[]).expect("rows")[0][0].int()
}

fn insert(into: &'static str, columns: usize, values: Vec<Value>, tail: String) -> Statement {
    Statement::Insert { into, columns, values, tail }
}

#[test]
fn what_goes_in_comes_out() {
    for place in places("roundtrip") {
        let mut database = place.open();
        let text = Value::Text("it's \"?\" \\ \\' \n\r\t é 漢 🦀 ; -- /* %s $1 {x,NULL}".into());
        let row = vec![1.into(), text, i64::MIN.into(), Value::Bytes(vec![0, 255, 39, 92, 63])];
        let nulls = vec![2.into(), Value::Null, Value::Null, Value::Null];
        let all = [row.clone(), nulls.clone()].concat();
        let done =
            database.transact(&[insert("roundtrip (id, word, many, raw)", 4, all, String::new())]);
        assert_eq!(done, Ok(vec![2]));
        let sql = "SELECT id, word, many, raw FROM roundtrip WHERE id <= ? ORDER BY id";
        assert_eq!(database.query(sql, &[9.into()]), Ok(vec![row.clone(), nulls]));
        // As single values of any statement, too.
        let same = "SELECT id FROM roundtrip WHERE word = ? AND many = ? AND raw = ?";
        assert_eq!(database.query(same, &row[1..]), Ok(vec![vec![1.into()]]));
        let update = "UPDATE roundtrip SET word = ?, raw = ?, many = ? WHERE id = 2";
        let values = vec![row[1].clone(), row[3].clone(), Value::Int(-1)];
        assert_eq!(database.transact(&[Statement::run(update, values)]), Ok(vec![1]));
        let rows = database.query(sql, &[9.into()]).expect("rows");
        assert_eq!((&rows[1][1], &rows[1][3]), (&row[1], &row[3]));
    }
}

#[test]
fn numbers_and_moments_have_one_form() {
    for place in places("forms") {
        let mut database = place.open();
        let mut ask = |sql: &str| database.query(sql, &[]).expect("a row").remove(0);
        match place.connect.dialect() {
            Dialect::Sqlite => {
                let row = ask("SELECT 1.5, 7, x'00ff', 'a', NULL");
                let bytes = Value::Bytes(vec![0, 255]);
                let real = Value::Real(Real(1.5));
                assert_eq!(row, [real, 7.into(), bytes, "a".into(), Value::Null]);
            }
            Dialect::Mysql => {
                let sql = "SELECT CAST(12.5 AS DECIMAL(10,2)), CAST(0.5 AS DOUBLE), \
                           CAST('2026-11-20 01:02:03.5' AS DATETIME(6)), \
                           CAST('2026-11-20' AS DATE), CAST('-26:00:01' AS TIME), \
                           18446744073709551615, x'00ff'";
                let words = [
                    "2026-11-20 01:02:03.500000",
                    "2026-11-20",
                    "-26:00:01",
                    "18446744073709551615",
                ]
                .map(Value::from);
                let [moment, day, time, large] = words;
                let (decimal, real) = (Value::from("12.50"), Value::Real(Real(0.5)));
                let bytes = Value::Bytes(vec![0, 255]);
                assert_eq!(ask(sql), [decimal, real, moment, day, time, large, bytes]);
            }
            Dialect::Postgres => {
                let sql = "SELECT 12.50::numeric(10,2), 0.5::float8, true, \
                           '2026-11-20 01:02:03.5+00'::timestamptz, '2026-11-20'::date, \
                           '\\x00ff'::bytea, '{\"a\": 1}'::jsonb, 3::int2, \
                           'c0ffee00-0000-0000-0000-000000000001'::uuid, -0.0001::numeric, \
                           123456789012.000::numeric";
                let row = ask(sql);
                let texts = [
                    (0, "12.50"),
                    (3, "2026-11-20 01:02:03.500000"),
                    (4, "2026-11-20"),
                    (6, "{\"a\": 1}"),
                    (8, "c0ffee00-0000-0000-0000-000000000001"),
                    (9, "-0.0001"),
                    (10, "123456789012.000"),
                ];
                texts.iter().for_each(|(index, text)| assert_eq!(row[*index], Value::from(*text)));
                assert_eq!((&row[1], &row[2]), (&Value::Real(Real(0.5)), &Value::Bool(true)));
                assert_eq!((&row[5], &row[7]), (&Value::Bytes(vec![0, 255]), &Value::Int(3)));
            }
        }
    }
}

#[test]
fn a_transaction_is_whole_or_nothing() {
    for place in places("whole") {
        let mut database = place.open();
        let rows = |ids: std::ops::Range<i64>| {
            let values = ids.flat_map(|id| [Value::Int(id), Value::Int(1)]).collect();
            insert("whole (id, many)", 2, values, String::new())
        };
        assert_eq!(database.transact(&[rows(0..10), rows(10..11)]), Ok(vec![10, 1]));
        for statements in [
            vec![rows(20..30), rows(5..6)],
            vec![rows(5..6), rows(20..30)],
            vec![rows(20..21), rows(30..40), rows(0..1), rows(50..51)],
        ] {
            let failed = database.transact(&statements);
            assert!(matches!(failed, Err(DatabaseError::Duplicate(_))), "{failed:?}");
            assert_eq!(count(&mut *database, "whole"), 11);
        }
        let nonsense = [rows(60..61), Statement::run("UPDATE no_such_table SET a = 1", vec![])];
        let refused = database.transact(&nonsense);
        assert!(matches!(refused, Err(DatabaseError::Refused(_))), "{refused:?}");
        let few = Statement::run("UPDATE whole SET many = ? WHERE id = ?", vec![1.into()]);
        let refused = database.transact(&[rows(61..62), few]);
        assert!(matches!(refused, Err(DatabaseError::Refused(_))), "{refused:?}");
        assert_eq!(count(&mut *database, "whole"), 11);
        // What a statement makes can be used by the next one.
        run(&mut *database, "DROP TABLE IF EXISTS whole_more").expect("dropped");
        let made = database.transact(&[
            Statement::run("CREATE TABLE whole_more (id BIGINT NOT NULL PRIMARY KEY)", vec![]),
            Statement::run("INSERT INTO whole_more (id) VALUES (?)", vec![7.into()]),
        ]);
        assert_eq!(made.map(|counts| counts[1]), Ok(1));
        let again = run(&mut *database, "CREATE TABLE whole_more (id BIGINT)");
        if database.dialect() != Dialect::Sqlite {
            assert!(matches!(again, Err(DatabaseError::Duplicate(_))), "{again:?}");
        }
        run(&mut *database, "DROP TABLE whole_more").expect("dropped");
    }
}

#[test]
fn counters_add_up_whoever_adds() {
    for place in places("adds") {
        let mut database = place.open();
        let dialect = database.dialect();
        let add = |from: i64| {
            let values = (from..from + 300).flat_map(|id| [id, id]).map(Value::Int).collect();
            insert("adds (id, many)", 2, values, dialect.or_add("adds", "id", &["many"]))
        };
        for _ in 0..3 {
            database.transact(&[add(0), add(1)]).expect("added");
        }
        let rows = database.query("SELECT many FROM adds WHERE id = 7", &[]).expect("rows");
        assert_eq!(rows[0][0].int(), 7 * 6);
        let ignore = |id: i64| {
            let tail = dialect.or_ignore("id");
            insert("adds (id, many)", 2, vec![id.into(), 1.into()], tail)
        };
        assert!(database.transact(&[ignore(7), ignore(1000)]).is_ok());
        let rows = database.query("SELECT many FROM adds WHERE id = 7", &[]).expect("rows");
        assert_eq!(rows[0][0].int(), 7 * 6);
        assert_eq!(count(&mut *database, "adds"), 302);
    }
}

#[test]
fn rows_of_many_megabytes_fit() {
    for place in places("large") {
        let mut database = place.open();
        let word = "x'\"\\".repeat(1 << 18);
        let values = (0..24).flat_map(|id| [Value::Int(id), Value::from(word.as_str())]).collect();
        let small = (100..140).map(Value::Int).collect();
        let statements = [
            insert("large (id, word)", 2, values, String::new()),
            insert("large (id)", 1, small, String::new()),
        ];
        assert_eq!(database.transact(&statements), Ok(vec![24, 40]));
        let rows = database.query("SELECT word FROM large WHERE id = 23", &[]).expect("rows");
        assert_eq!(rows[0][0].text(), word);
    }
}

#[test]
fn a_connection_that_ends_is_lost_and_a_new_one_is_there() {
    for place in places("ends") {
        let (mut first, mut second) = (place.open(), place.open());
        let (own, kill) = match place.connect.dialect() {
            // A file has no connection to be cut.
            Dialect::Sqlite => continue,
            Dialect::Mysql => ("SELECT CONNECTION_ID()", "KILL "),
            Dialect::Postgres => ("SELECT pg_backend_pid()", "SELECT pg_terminate_backend("),
        };
        let number = first.query(own, &[]).expect("a row")[0][0].int();
        let end = if kill.ends_with('(') { ")" } else { "" };
        let kill = format!("{kill}{number}{end}");
        match place.connect.dialect() {
            Dialect::Postgres => drop(second.query(&kill, &[]).expect("killed")),
            _ => drop(run(&mut *second, &kill).expect("killed")),
        }
        std::thread::sleep(Duration::from_millis(50));
        let write = Statement::run("INSERT INTO ends (id) VALUES (?)", vec![1.into()]);
        let lost = first.transact(&[write.clone(), write.clone()]);
        assert!(matches!(lost, Err(DatabaseError::Lost(_))), "{lost:?}");
        let lost = first.query("SELECT 1", &[]);
        assert!(matches!(lost, Err(DatabaseError::Lost(_))), "{lost:?}");
        drop(first);
        assert_eq!(place.open().transact(&[write]), Ok(vec![1]));
    }
}

#[test]
fn two_who_lock_each_other_are_told_to_try_again() {
    for place in places("locks") {
        if place.connect.dialect() == Dialect::Sqlite {
            // It has one lock: nobody can hold a half of what another one needs.
            continue;
        }
        let values = (0..400).flat_map(|id| [id, 0]).map(Value::Int).collect();
        let rows = insert("locks (id, many)", 2, values, String::new());
        place.open().transact(&[rows]).expect("rows");
        let add = |ids: Vec<i64>| -> Vec<Statement> {
            let sql = "UPDATE locks SET many = many + 1 WHERE id = ?";
            ids.into_iter().map(|id| Statement::run(sql, vec![id.into()])).collect()
        };
        let busy = std::thread::scope(|scope| {
            let work = |ids: Vec<i64>| {
                let (place, statements) = (&place, add(ids));
                scope.spawn(move || {
                    let (mut database, mut busy) = (place.open(), 0);
                    for _ in 0..20 {
                        loop {
                            match database.transact(&statements) {
                                Ok(_) => break,
                                Err(DatabaseError::Busy(_)) => busy += 1,
                                Err(error) => panic!("{error}"),
                            }
                        }
                    }
                    busy
                })
            };
            let threads = [work((0..400).collect()), work((0..400).rev().collect())];
            threads.map(|thread| thread.join().expect("no panic"))
        });
        let sum = place.open().query("SELECT MIN(many), MAX(many) FROM locks", &[]);
        assert_eq!(sum.expect("a row")[0], [40.into(), 40.into()], "{busy:?}");
    }
}

#[test]
fn a_transaction_looks_at_what_it_did() {
    for place in places("looks") {
        let mut database = place.open();
        for (is_kept, expected) in [(false, 0), (true, 1)] {
            let done = database.within(&mut |within| {
                let ran = within
                    .run("INSERT INTO looks (id, many) VALUES (?, ?)", &[1.into(), 2.into()])?;
                assert_eq!((ran.changed, ran.rows.len()), (1, 0));
                let ran = within.run("SELECT many FROM looks WHERE id = ?", &[1.into()])?;
                assert_eq!(ran.rows, [[Value::Int(2)]]);
                Ok(is_kept)
            });
            assert_eq!(done, Ok(()));
            assert_eq!(count(&mut *database, "looks"), expected);
        }
        let failed = database.within(&mut |within| {
            within.run("UPDATE looks SET many = 3", &[])?;
            within.run("INSERT INTO looks (id) VALUES (?)", &[1.into()]).map(|_| true)
        });
        assert!(matches!(failed, Err(DatabaseError::Duplicate(_))), "{failed:?}");
        let rows = database.query("SELECT many FROM looks", &[]).expect("rows");
        assert_eq!(rows, [[Value::Int(2)]]);
    }
}

#[test]
fn whoever_listens_hears_of_a_change_where_the_product_can() {
    for place in places("told") {
        let (mut listener, mut other) = (place.open(), place.open());
        let short = Duration::from_millis(1);
        let heard = listener.listen("a channel", short).expect("it listens");
        if other.dialect() != Dialect::Postgres {
            assert_eq!(heard, None);
            continue;
        }
        assert_eq!(heard, Some(false));
        let notify = "SELECT CAST(pg_notify('a channel', 'x') AS text)";
        other.query(notify, &[]).expect("a notification");
        let long = Duration::from_secs(60);
        assert_eq!(listener.listen("a channel", long), Ok(Some(true)));
        // It is good for questions as well.
        assert!(listener.query("SELECT 1", &[]).is_ok());
        assert_eq!(listener.listen("a channel", short), Ok(Some(false)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_text_comes_back(words in prop::collection::vec("[^\0]{0,40}", 1..20)) {
        for place in places("anything") {
            let mut database = place.open();
            let rows = words.iter().enumerate();
            let values = rows.flat_map(|(id, word)| [Value::Int(id as i64), word.as_str().into()]);
            let values: Vec<Value> = values.collect();
            let statement = insert("anything (id, word)", 2, values, String::new());
            // Beside another one, so that it is a transaction of several.
            let other = Statement::run("DELETE FROM anything", vec![]);
            prop_assert!(database.transact(&[other, statement]).is_ok());
            let rows = database.query("SELECT word FROM anything ORDER BY id", &[]).expect("rows");
            let got: Vec<&str> = rows.iter().map(|row| row[0].text()).collect();
            prop_assert_eq!(&got, &words);
        }
    }
}
