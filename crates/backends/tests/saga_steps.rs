//! Sagas' steps on every `Database`: SQLite, and those that FOREBAY_MYSQL and FOREBAY_POSTGRES name
//! (`tests/harness/databases.py`). What is done once stays done once, alone and in groups.

use std::path::Path;
use std::sync::Mutex;

use forebay_backends::address::open;
use services::database::{Database, Statement, Value};
use services::saga::local::{self, FORGET, Local};
use services::saga::transaction::Transaction;
use services::saga::words::{Kind, Op, Status, Verdict};

/// Runs a test on every database there is, with an empty table of accounts `name`.
fn on_each(name: &str, test: impl Fn(&mut dyn Database, &str)) {
    let mut addresses = vec!["sqlite:steps.db".to_string()];
    for variable in ["FOREBAY_MYSQL", "FOREBAY_POSTGRES"] {
        match std::env::var(variable) {
            Ok(address) => addresses.push(address),
            Err(_) => eprintln!("{variable} is not set: that database is not tested"),
        }
    }
    let folder = std::env::temp_dir().join(format!("forebay-steps-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    // PostgreSQL's IF NOT EXISTS does not hold for two at the same time.
    static MAKING: Mutex<()> = Mutex::new(());
    for address in &addresses {
        let connect = open(address, Path::new(&folder)).expect("an address");
        let mut database = connect.connect().expect("a connection");
        let columns = "id varchar(40) PRIMARY KEY, amount bigint NOT NULL CHECK (amount >= 0)";
        let making = MAKING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for sql in [
            local::table(database.dialect()),
            format!("DROP TABLE IF EXISTS {name}"),
            format!("CREATE TABLE {name} ({columns})"),
        ] {
            database.transact(&[Statement::run(sql, Vec::new())]).expect("made");
        }
        drop(making);
        test(&mut *database, name);
    }
    let _ = std::fs::remove_dir_all(&folder);
}

fn rows(database: &mut dyn Database, sql: &str) -> Vec<(String, i64)> {
    let rows = database.query(sql, &[]).expect("rows");
    rows.into_iter().map(|row| (row[0].text().to_string(), row[1].int())).collect()
}

/// A step of a saga of its own: adds `amount` to an account that has to be there.
fn step(table: &str, gid: &str, id: &str, amount: i64, op: Op) -> Local {
    let mut t = Transaction::new(gid, Kind::Saga, Status::Submitted, 1);
    let url = |amount: i64| {
        let sql = format!("UPDATE {table} SET amount = amount + ? WHERE id = ?");
        let step = serde_json::json!({ "sql": sql, "args": [amount, id], "rows": 1 });
        format!("sql:{step}")
    };
    t.add_step(&url(amount), &url(-amount), b"");
    let branch = t.branches.iter().find(|branch| branch.op == op).expect("it has both");
    Local::of(&t, branch).expect("it is local")
}

fn fill(database: &mut dyn Database, table: &str, accounts: &[(&str, i64)]) {
    for (id, amount) in accounts {
        let sql = format!("INSERT INTO {table} (id, amount) VALUES (?, ?)");
        let statement = Statement::run(sql, vec![Value::from(*id), Value::from(*amount)]);
        database.transact(&[statement]).expect("filled");
    }
}

/// A gid that no other test, and no run before on the same database, has.
fn unique(name: &str) -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    format!("{name}-{}-{}", std::process::id(), since.expect("after 1970").as_nanos())
}

#[test]
fn a_step_is_done_once_and_undone_once() {
    on_each("steps_once", |database, table| {
        fill(database, table, &[("a", 100)]);
        let gid = unique("once");
        let action = step(table, &gid, "a", -30, Op::Action);
        let undo = step(table, &gid, "a", -30, Op::Compensate);
        let all = format!("SELECT id, amount FROM {table}");
        for _ in 0..3 {
            let (verdict, output) = action.run_sql(database);
            assert_eq!(verdict, Verdict::Success, "{output}");
            assert!(output.contains("\"changed\":1"), "{output}");
            assert_eq!(rows(database, &all), [("a".to_string(), 70)]);
        }
        for _ in 0..3 {
            assert_eq!(undo.run_sql(database).0, Verdict::Success);
            assert_eq!(rows(database, &all), [("a".to_string(), 100)]);
        }
        let gone = database.transact(&[Statement::run(FORGET, vec![gid.as_str().into()])]);
        assert_eq!(gone, Ok(vec![2]));
    });
}

#[test]
fn gids_are_told_apart_byte_by_byte() {
    on_each("steps_bytes", |database, table| {
        fill(database, table, &[("a", 100)]);
        let gid = unique("bytes");
        for gid in [gid.to_uppercase(), gid.clone(), format!("{gid} "), format!("{gid}é")] {
            let (verdict, output) = step(table, &gid, "a", 1, Op::Action).run_sql(database);
            assert_eq!(verdict, Verdict::Success, "{output}");
        }
        let all = format!("SELECT id, amount FROM {table}");
        assert_eq!(rows(database, &all), [("a".to_string(), 104)]);
    });
}

#[test]
fn an_undoing_without_its_action_bars_it() {
    on_each("steps_barred", |database, table| {
        fill(database, table, &[("a", 100)]);
        let gid = unique("barred");
        assert_eq!(step(table, &gid, "a", 5, Op::Compensate).run_sql(database).0, Verdict::Success);
        assert_eq!(step(table, &gid, "a", 5, Op::Action).run_sql(database).0, Verdict::Success);
        let all = format!("SELECT id, amount FROM {table}");
        assert_eq!(rows(database, &all), [("a".to_string(), 100)]);
    });
}

#[test]
fn in_a_group_each_step_stands_for_itself() {
    on_each("steps_group", |database, table| {
        fill(database, table, &[("a", 100), ("b", 100)]);
        let gids: Vec<String> = (0..6).map(|_| unique("group")).collect();
        let steps = [
            step(table, &gids[0], "a", -30, Op::Action),
            // Below zero: the database refuses it.
            step(table, &gids[1], "b", -500, Op::Action),
            step(table, &gids[2], "b", 30, Op::Action),
            // Nobody has this account.
            step(table, &gids[3], "c", 1, Op::Action),
            // The same step once more, in the same group.
            step(table, &gids[0], "a", -30, Op::Action),
            step(table, &gids[4], "a", -1, Op::Compensate),
            step(table, &gids[5], "b", 7, Op::Action),
        ];
        let steps: Vec<&Local> = steps.iter().collect();
        let wanted: Vec<Verdict> = [true, false, true, false, true, true, true]
            .map(|is_done| if is_done { Verdict::Success } else { Verdict::Failure })
            .into();
        let all = format!("SELECT id, amount FROM {table} ORDER BY id");
        for _ in 0..2 {
            let outcomes = Local::run_sql_together(&steps, database);
            let verdicts: Vec<Verdict> = outcomes.iter().map(|(verdict, _)| *verdict).collect();
            assert_eq!(verdicts, wanted, "{outcomes:?}");
            assert!(outcomes[3].1.contains("0 rows instead of 1"), "{outcomes:?}");
            let amounts = rows(database, &all);
            assert_eq!(amounts, [("a".to_string(), 70), ("b".to_string(), 137)]);
        }
    });
}

#[test]
fn groups_at_the_same_time_conserve_the_total() {
    on_each("steps_many", |database, table| {
        fill(database, table, &[("a", 1000), ("b", 1000)]);
        let total = format!("SELECT 'all', CAST(SUM(amount) AS {}) FROM {table}", number(database));
        for round in 0..20 {
            let gid = unique("many");
            let pairs: Vec<Local> = (0..8)
                .flat_map(|index| {
                    let (gid, amount) = (format!("{gid}-{index}"), (round * index % 5) + 1);
                    let out = step(table, &format!("{gid}-out"), "a", -amount, Op::Action);
                    [out, step(table, &format!("{gid}-in"), "b", amount, Op::Action)]
                })
                .collect();
            let steps: Vec<&Local> = pairs.iter().collect();
            let outcomes = Local::run_sql_together(&steps, database);
            assert!(outcomes.iter().all(|(verdict, _)| *verdict == Verdict::Success));
            assert_eq!(rows(database, &total), [("all".to_string(), 2000)]);
        }
    });
}

fn number(database: &dyn Database) -> &'static str {
    match database.dialect() {
        services::database::Dialect::Mysql => "SIGNED",
        _ => "BIGINT",
    }
}
