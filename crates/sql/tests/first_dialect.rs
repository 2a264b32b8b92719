//! RediSQL's first dialect as its documents and the tests of release 1.1.2 have it: each command,
//! reply and error.

mod common;

use common::{client, with_table};

#[test]
fn the_published_transcript_works() {
    client().check(&[
        ("REDISQL.CREATE_DB A", "+OK"),
        (
            "REDISQL.EXEC A \"create table user(username text, password text, counter int);\"",
            "*2 +DONE :0",
        ),
        ("REDISQL.EXEC A \"insert into user values('foo', 'secret', 3);\"", "*2 +DONE :1"),
        ("REDISQL.EXEC A \"insert into user values('bar', 'verysecret', 5);\"", "*2 +DONE :1"),
        (
            "REDISQL.EXEC A \"select * from user where counter > 4;\"",
            "*1 *3 $3 bar $10 verysecret :5",
        ),
        (
            "REDISQL.EXEC A \"UPDATE user SET counter = counter + 1 WHERE username = 'foo'; \"",
            "*2 +DONE :1",
        ),
        (
            "REDISQL.EXEC A \"SELECT * from user;\"",
            "*2 *3 $3 foo $6 secret :4 *3 $3 bar $10 verysecret :5",
        ),
    ]);
}

#[test]
fn databases_are_made_once() {
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    client().check(&[
        ("REDISQL.CREATE_DB DB", "+OK"),
        ("TYPE DB", "+rediSQLDB"),
        ("REDISQL.CREATE_DB DB", wrong_type),
        ("SET s 1", "+OK"),
        ("REDISQL.CREATE_DB s", wrong_type),
        ("REDISQL.CREATE_DB a b c", "-Wrong number of arguments, it accepts 2 or 3"),
        ("REDISQL.V1.CREATE_DB E", "+OK"),
        ("REDISQL.CREATE_DB out ../x", "-ERR the path is outside of the folder for database files"),
        ("DEL DB", ":1"),
        ("REDISQL.CREATE_DB DB", "+OK"),
        ("GET DB", wrong_type),
        ("REDISQL.EXEC none 'select 1'", "-ERR - Error the key is empty"),
        ("REDISQL.EXEC s 'select 1'", wrong_type),
    ]);
}

#[test]
fn words_are_counted() {
    with_table().check(&[
        ("REDISQL.EXEC DB", "-Wrong number of arguments, it accepts 3, you provide 2"),
        ("REDISQL.EXEC DB a b", "-Wrong number of arguments, it accepts 3, you provide 4"),
        ("REDISQL.QUERY DB", "-Wrong number of arguments, it accepts 3, you provide 2"),
        ("REDISQL.QUERY.INTO s DB", "-Wrong number of arguments, it accepts 4, you provide 3"),
        ("REDISQL.CREATE_STATEMENT DB a", "-Wrong number of arguments, it accepts 4"),
        ("REDISQL.UPDATE_STATEMENT DB a", "-Wrong number of arguments, it accepts 4"),
        ("REDISQL.DELETE_STATEMENT DB", "-Wrong number of arguments, it accepts 3"),
        ("REDISQL.EXEC_STATEMENT DB", "-Wrong number of arguments, it needs at least 3"),
        (
            "REDISQL.EXEC_STATEMENT.NOW DB",
            "-Wrong number of arguments, it needs at least more than 2, you provide only 2",
        ),
        ("REDISQL.QUERY_STATEMENT.INTO s DB", "-Wrong number of arguments, it needs at least 4"),
        ("REDISQL.COPY DB", "-Wrong number of arguments, it accepts exactly 3"),
    ]);
}

#[test]
fn values_have_their_types() {
    with_table().check(&[
        (
            "REDISQL.EXEC DB \"select 1, 1.0, 4.5, 'x', NULL, -9223372036854775808\"",
            "*1 *6 :1 $1 1 $3 4.5 $1 x $-1 :-9223372036854775808",
        ),
        ("REDISQL.EXEC DB 'select * from t where a > 5'", "*2 +DONE :0"),
        ("REDISQL.EXEC DB \"select x'610062'\"", "*1 *1 $3 a\0b"),
        ("REDISQL.EXEC DB ''", "*2 +DONE :0"),
        ("REDISQL.EXEC DB '-- nothing'", "*2 +DONE :0"),
        ("REDISQL.EXEC DB 'select sqrt(16), json_array(1,2)'", "*1 *2 $1 4 $5 [1,2]"),
        ("REDISQL.EXEC DB 'insert into t values(9, 9) returning a, b'", "*1 *2 :9 $1 9"),
    ]);
}

#[test]
fn several_statements_answer_the_last_and_are_all_or_nothing() {
    with_table().check(&[
        ("REDISQL.EXEC DB \"insert into t values(3,'z'); select count(*) from t;\"", "*1 *1 :3"),
        ("REDISQL.EXEC DB \"insert into t values(4,'z'); update t set b = 'q'\"", "*2 +DONE :5"),
        ("REDISQL.EXEC DB \"delete from t; select nope\"", "-no such column: nope"),
        ("REDISQL.EXEC DB \"BEGIN; insert into t values(5,'w'); COMMIT;\"", "*2 +DONE :1"),
        (
            "REDISQL.EXEC DB \"insert into t values(6,'v'); BEGIN; delete from t; ROLLBACK\"",
            "*2 +DONE :7",
        ),
        ("REDISQL.EXEC DB 'select count(*) from t'", "*1 *1 :6"),
        ("REDISQL.EXEC DB COMMIT", "-cannot commit - no transaction is active"),
        ("REDISQL.EXEC DB ROLLBACK", "-cannot rollback - no transaction is active"),
        ("REDISQL.EXEC DB 'BEGIN; BEGIN'", "-cannot start a transaction within a transaction"),
        (
            "REDISQL.EXEC DB 'create table u(a); insert into u values(1); select * from u'",
            "*1 *1 :1",
        ),
    ]);
    let mut client = with_table();
    for line in ["REDISQL.EXEC DB BEGIN", "REDISQL.EXEC DB 'BEGIN; delete from t'"] {
        assert!(client.run(line).starts_with("-ERR a transaction must end"), "{line}");
    }
    client.check(&[("REDISQL.EXEC DB 'select count(*) from t'", "*1 *1 :2")]);
}

#[test]
fn what_fails_in_the_middle_leaves_nothing_even_if_sqlite_would() {
    let mut client = with_table();
    client.run("REDISQL.EXEC DB 'create table u(a integer unique)'");
    client.run("REDISQL.CREATE_STATEMENT DB s 'insert or fail into u values(?1), (?2)'");
    for _ in 0..3 {
        client.check(&[
            (
                "REDISQL.EXEC DB 'insert or fail into u values(1), (1)'",
                "-UNIQUE constraint failed: u.a",
            ),
            ("REDISQL.EXEC_STATEMENT DB s 2 2", "-UNIQUE constraint failed: u.a"),
            ("REDISQL.EXEC DB 'select count(*) from u'", "*1 *1 :0"),
        ]);
    }
    client.check(&[("REDISQL.EXEC_STATEMENT DB s 2 3", "*2 +DONE :2")]);
}

#[test]
fn queries_only_read() {
    let refused = "-Statement is not read only but it may modify the database, use \
                   `EXEC_STATEMENT` instead.";
    with_table().check(&[
        ("REDISQL.QUERY DB 'select a from t where a = 2'", "*1 *1 :2"),
        ("REDISQL.QUERY.NOW DB 'select a from t where a = 2'", "*1 *1 :2"),
        ("REDISQL.QUERY DB 'delete from t'", refused),
        ("REDISQL.QUERY DB 'select 1; delete from t'", refused),
        ("REDISQL.V1.QUERY DB 'delete from t'", refused),
        ("REDISQL.CREATE_STATEMENT DB del 'delete from t'", "+OK"),
        ("REDISQL.QUERY_STATEMENT DB del", refused),
        ("REDISQL.EXEC DB 'select count(*) from t'", "*1 *1 :2"),
    ]);
}

#[test]
fn statements_have_names() {
    with_table().check(&[
        ("REDISQL.CREATE_STATEMENT DB ins 'insert into t values(?1, ?2)'", "+OK"),
        (
            "REDISQL.CREATE_STATEMENT DB ins 'select 1'",
            "-The statement is already present in the database, try with UPDATE_STATEMENT",
        ),
        ("REDISQL.EXEC_STATEMENT DB ins 3 z", "*2 +DONE :1"),
        ("REDISQL.EXEC_STATEMENT.NOW DB ins 4 z", "*2 +DONE :1"),
        ("REDISQL.EXEC_STATEMENT DB nope", "-The statement is not present in the database"),
        ("REDISQL.QUERY_STATEMENT DB nope", "-The statement is not present in the database"),
        ("REDISQL.CREATE_STATEMENT DB get 'select b from t where a = ?1'", "+OK"),
        ("REDISQL.QUERY_STATEMENT DB get 3", "*1 *1 $1 z"),
        ("REDISQL.QUERY_STATEMENT.NOW DB get 99", "*2 +DONE :0"),
        ("REDISQL.UPDATE_STATEMENT DB get 'select a from t where b = ?1'", "+OK"),
        ("REDISQL.QUERY_STATEMENT DB get y", "*1 *1 :2"),
        (
            "REDISQL.UPDATE_STATEMENT DB nope 'select 1'",
            "-The statement is not present in the database, impossible to update it.",
        ),
        ("REDISQL.DELETE_STATEMENT DB get", "+OK"),
        (
            "REDISQL.DELETE_STATEMENT DB get",
            "-The statement is not present in the database, impossible to delete it.",
        ),
        ("REDISQL.CREATE_STATEMENT DB bad 'selec 1'", "-near \"selec\": syntax error"),
        (
            "REDISQL.EXEC_STATEMENT DB ins 1",
            "-RediSQL MISUSE, only parameters in the form `?NNN`, where `N` is a digit, are \
             supported, also no gap should be present.",
        ),
    ]);
}

#[test]
fn words_are_bound_by_their_looks() {
    let mut client = with_table();
    client.run("REDISQL.CREATE_STATEMENT DB type 'select typeof(?1), ?1'");
    client.check(&[
        ("REDISQL.QUERY_STATEMENT DB type 12", "*1 *2 $7 integer :12"),
        ("REDISQL.QUERY_STATEMENT DB type 007", "*1 *2 $4 text $3 007"),
        ("REDISQL.QUERY_STATEMENT DB type 4.5", "*1 *2 $4 real $3 4.5"),
        ("REDISQL.QUERY_STATEMENT DB type 4.50", "*1 *2 $4 text $4 4.50"),
        ("REDISQL.QUERY_STATEMENT DB type abc", "*1 *2 $4 text $3 abc"),
        ("REDISQL.QUERY_STATEMENT DB type \"a\\x00b\"", "*1 *2 $4 blob $3 a\0b"),
    ]);
    let words: [&[u8]; 4] = [b"REDISQL.QUERY_STATEMENT", b"DB", b"type", b"\xff\xfe"];
    assert_eq!(client.reply(&words), b"*1\r\n*2\r\n$4\r\nblob\r\n$2\r\n\xff\xfe\r\n");
    let words: [&[u8]; 3] = [b"REDISQL.EXEC", b"DB", b"select '\xff'"];
    assert_eq!(client.reply(&words), b"-Got a non-valid UTF8 string as input\r\n");
}

#[test]
fn rows_go_into_streams() {
    let mut client = with_table();
    let reply = client.run("REDISQL.QUERY.INTO out DB 'select a, b, NULL as n, 1.5 r from t'");
    assert!(reply.starts_with("*1 *4 $3 out $15 "), "{reply}");
    assert!(reply.ends_with(" :2"), "{reply}");
    let entries = client.run("XRANGE out - +");
    let first = "*8 $5 int:a $1 1 $6 text:b $1 x $6 null:n $6 (null) $6 real:r $3 1.5";
    assert!(entries.contains(first), "{entries}");
    client.check(&[
        ("XLEN out", ":2"),
        ("REDISQL.QUERY.INTO out DB 'select a from t where 0'", "*2 +DONE :0"),
        ("REDISQL.CREATE_STATEMENT DB one 'select a from t where a = ?1'", "+OK"),
        ("SET s x", "+OK"),
        (
            "REDISQL.QUERY.INTO s DB 'select 1'",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
    ]);
    let reply = client.run("REDISQL.QUERY_STATEMENT.INTO.NOW out DB one 2");
    assert!(reply.ends_with(" :1"), "{reply}");
    client.check(&[("XLEN out", ":3")]);
}

#[test]
fn databases_are_copied() {
    let mut client = with_table();
    client.check(&[
        ("REDISQL.CREATE_STATEMENT DB get 'select b from t where a = ?1'", "+OK"),
        ("REDISQL.CREATE_DB other", "+OK"),
        ("REDISQL.EXEC other 'create table gone(a)'", "*2 +DONE :0"),
        ("REDISQL.COPY DB other", "+OK"),
        ("REDISQL.QUERY_STATEMENT other get 2", "*1 *1 $1 y"),
        ("REDISQL.EXEC other 'select * from gone'", "-no such table: gone"),
        ("REDISQL.V1.EXEC other 'select count(*) from t'", "*1 *1 :2"),
        ("REDISQL.V1.QUERY.NOW other 'select count(*) from t'", "*1 *1 :2"),
        ("REDISQL.EXEC other 'delete from t where a = 1'", "*2 +DONE :1"),
        ("REDISQL.EXEC DB 'select count(*) from t'", "*1 *1 :2"),
        ("REDISQL.COPY none other", "-ERR - Error the key is empty"),
        ("REDISQL.COPY none neither", "-ERR - Error the key is empty"),
        ("REDISQL.COPY DB none", "-Error in opening the DESTINATION database"),
        ("REDISQL.V1.COPY.NOW DB none", "-Error in opening the DESTINATION database"),
        ("REDISQL.COPY.NOW none other", "-Error in opening the SOURCE database"),
        ("SET text x", "+OK"),
        ("REDISQL.COPY.NOW text other", "-Error in opening the SOURCE database"),
        ("REDISQL.COPY DB text", "-Error in opening the DESTINATION database"),
        (
            "REDISQL.COPY text other",
            "-WRONGTYPE Operation against a key holding the wrong kind of \
          value",
        ),
        ("REDISQL.COPY.NOW DB other", "+OK"),
        ("REDISQL.COPY other other", "+OK"),
        ("COPY DB third", ":1"),
        ("REDISQL.EXEC third 'delete from t'", "*2 +DONE :2"),
        ("REDISQL.EXEC DB 'select count(*) from t'", "*1 *1 :2"),
    ]);
}

#[test]
fn other_files_are_out_of_reach() {
    let mut client = with_table();
    for text in [
        "ATTACH 'x.db' AS x",
        "DETACH main",
        "VACUUM INTO 'x.db'",
        "PRAGMA journal_mode=DELETE",
        "PRAGMA writable_schema=1",
        "PRAGMA temp_store_directory='x'",
        "select load_extension('x')",
    ] {
        let reply = client.run_words(&["REDISQL.EXEC", "DB", text]);
        let is_refused = ["-not authorized", "-authorization denied", "-no such function"]
            .iter()
            .any(|text| reply.starts_with(text));
        assert!(is_refused, "{text}: {reply}");
    }
    client.check(&[("REDISQL.EXEC DB VACUUM", "*2 +DONE :0")]);
}

#[test]
fn statistics_count() {
    let mut client = with_table();
    let reply = client.run("REDISQL.STATISTICS");
    assert!(reply.starts_with("*33 *2 $9 CREATE_DB :"), "{reply}");
    assert!(reply.contains("*2 $12 CREATE_DB OK :"), "{reply}");
    assert!(client.run("REDISQL.VERSION").starts_with("$5 1.1.2"));
}

#[test]
fn what_is_done_is_logged_with_what_chance_and_time_were() {
    let mut client = with_table();
    let plain = client.logged("REDISQL.EXEC DB \"insert into t values(3,'z')\"");
    assert_eq!(plain, ["SQL.APPLY DB 3 0 0 REDISQL.EXEC DB insert into t values(3,'z')"]);
    assert!(client.logged("REDISQL.EXEC DB 'select * from t'").is_empty());
    assert!(client.logged("REDISQL.EXEC DB 'delete from t where a = 77'").is_empty());
    assert!(client.logged("REDISQL.EXEC DB 'insert into nope values(1)'").is_empty());
    let record = client.logged("REDISQL.EXEC DB 'insert into t values(random(), datetime())'");
    let stored = client.run("REDISQL.EXEC DB 'select a, b from t order by rowid desc limit 1'");
    assert!(stored.contains("2023-11-14 22:13:20"), "{stored}");
    // The same again, an hour later, elsewhere.
    let mut other = with_table();
    other.now_ms += 3_600_000;
    let words: Vec<&str> = record[0].splitn(8, ' ').collect();
    assert_eq!(other.run_words(&words), ":1");
    let text = "REDISQL.EXEC DB 'select a, b from t order by rowid desc limit 1'";
    assert_eq!(other.run(text), stored);
    assert_eq!(other.run_words(&words), ":0", "a record is done once");
}

#[test]
fn a_transaction_is_all_or_nothing() {
    let mut client = with_table();
    client.check(&[
        ("REDISQL.EXEC DB 'create unique index u on t(a)'", "*2 +DONE :0"),
        ("MULTI", "+OK"),
        ("SET k 1", "+QUEUED"),
        ("REDISQL.EXEC DB \"insert into t values(3,'z')\"", "+QUEUED"),
        ("EXEC", "*2 +OK *2 +DONE :1"),
        ("MULTI", "+OK"),
        ("SET k 2", "+QUEUED"),
        ("LPUSH l x", "+QUEUED"),
        ("REDISQL.EXEC DB \"insert into t values(4,'z')\"", "+QUEUED"),
        ("REDISQL.EXEC DB \"insert into t values(3,'z')\"", "+QUEUED"),
        ("EXEC", "-EXECABORT Transaction undone because of: UNIQUE constraint failed: t.a"),
        ("GET k", "$1 1"),
        ("EXISTS l", ":0"),
        ("REDISQL.EXEC DB 'select count(*) from t'", "*1 *1 :3"),
        ("MULTI", "+OK"),
        ("REDISQL.EXEC DB \"delete from t\"", "+QUEUED"),
        ("INCR l", "+QUEUED"),
        ("LPUSH l x", "+QUEUED"),
    ]);
    let reply = client.run("EXEC");
    assert!(reply.starts_with("-EXECABORT"), "{reply}");
    client.check(&[("REDISQL.EXEC DB 'select count(*) from t'", "*1 *1 :3")]);
    client.run("MULTI");
    client.run("SET k 5");
    client.run("REDISQL.EXEC DB 'delete from t where a = 3'");
    let unit = client.logged("EXEC");
    let want = [
        "MULTI",
        "SET k 5",
        "SQL.APPLY DB 5 0 0 REDISQL.EXEC DB delete from t where a = 3",
        "EXEC",
    ];
    assert_eq!(unit[0], want[0]);
    assert_eq!((unit.len(), unit[1].as_str(), unit[3].as_str()), (4, want[1], want[3]));
    assert!(unit[2].ends_with("REDISQL.EXEC DB delete from t where a = 3"), "{unit:?}");
}

#[test]
fn texts_that_differ_in_literals_only_do_what_they_say() {
    let mut client = with_table();
    for number in 10..20 {
        let text = format!("INSERT INTO t VALUES({number}, 'n {number}')");
        assert_eq!(client.run_words(&["REDISQL.EXEC", "DB", &text]), "*2 +DONE :1");
    }
    for number in 10..20 {
        let text = format!("SELECT b FROM t WHERE a = {number}");
        let want = format!("*1 *1 $4 n {number}");
        assert_eq!(client.run_words(&["REDISQL.EXEC", "DB", &text]), want);
        let text = format!("UPDATE t SET b = {number} WHERE a = {number}");
        assert_eq!(client.run_words(&["REDISQL.EXEC", "DB", &text]), "*2 +DONE :1");
    }
    client.check(&[
        ("REDISQL.EXEC DB 'SELECT count(*) FROM t WHERE b = a AND a > 9'", "*1 *1 :10"),
        ("REDISQL.EXEC DB 'DELETE FROM t WHERE a = 10'", "*2 +DONE :1"),
        ("REDISQL.EXEC DB 'DELETE FROM t WHERE a = 11'", "*2 +DONE :1"),
        ("REDISQL.EXEC DB 'DELETE FROM t WHERE a = 11'", "*2 +DONE :0"),
        (
            "REDISQL.QUERY DB 'DELETE FROM t WHERE a = 12'",
            "-Statement is not read only but it may \
             modify the database, use `EXEC_STATEMENT` instead.",
        ),
        (
            "REDISQL.EXEC DB 'INSERT INTO t VALUES(1)'",
            "-table t has 2 columns but 1 values were supplied",
        ),
        (
            "REDISQL.EXEC DB 'INSERT INTO t VALUES(2)'",
            "-table t has 2 columns but 1 values were supplied",
        ),
        ("REDISQL.EXEC DB 'CREATE UNIQUE INDEX u ON t(a)'", "*2 +DONE :0"),
        ("REDISQL.EXEC DB \"INSERT INTO t VALUES(15, 'x')\"", "-UNIQUE constraint failed: t.a"),
        ("REDISQL.EXEC DB \"INSERT INTO t VALUES(16, 'x')\"", "-UNIQUE constraint failed: t.a"),
    ]);
    client.check(&[("REDISQL.EXEC DB 'SELECT a FROM t WHERE a = 17'", "*1 *1 :17")]);
}

#[test]
fn values_of_one_run_are_not_there_in_the_next() {
    let mut client = with_table();
    client.check(&[
        ("REDISQL.CREATE_STATEMENT DB two 'SELECT ?1, ?2'", "+OK"),
        (
            "SQL.CALL DB two VALUES 1 2",
            "*10 $7 columns *2 $2 ?1 $2 ?2 $5 types *2 $-1 $-1 $4 rows \
             *1 *2 :1 :2 $7 changes :0 $10 last_rowid $-1",
        ),
        (
            "SQL.CALL DB two VALUES 3",
            "*10 $7 columns *2 $2 ?1 $2 ?2 $5 types *2 $-1 $-1 $4 rows \
             *1 *2 :3 $-1 $7 changes :0 $10 last_rowid $-1",
        ),
        (
            "SQL.CALL DB two VALUES a",
            "*10 $7 columns *2 $2 ?1 $2 ?2 $5 types *2 $-1 $-1 $4 rows \
             *1 *2 $1 a $-1 $7 changes :0 $10 last_rowid $-1",
        ),
        (
            "SQL.CALL DB two",
            "*10 $7 columns *2 $2 ?1 $2 ?2 $5 types *2 $-1 $-1 $4 rows \
             *1 *2 $-1 $-1 $7 changes :0 $10 last_rowid $-1",
        ),
    ]);
}

/// Every name of the table does something sensible with a database and plain words: none is there
/// by name alone.
#[test]
fn every_variant_of_a_command_does_the_same() {
    let mut client = with_table();
    let check =
        |client: &mut commands::testing::Client, names: &[&str], words: &str, want: &str| {
            for name in names {
                let reply = client.run(&format!("{name} {words}"));
                assert_eq!(reply, want, "{name} {words}");
            }
        };
    let rows = "*1 *2 :1 $1 x";
    let (exec, query) = ("DB 'select a, b from t where a = 1'", "DB 'select a, b from t limit 1'");
    let execs = [
        "REDISQL.EXEC",
        "REDISQL.EXEC.NOW",
        "REDISQL.V1.EXEC",
        "REDISQL.V1.EXEC.NOW",
        "ZEESQL.V1.EXEC",
    ];
    check(&mut client, &execs, exec, rows);
    let queries = [
        "REDISQL.QUERY",
        "REDISQL.QUERY.NOW",
        "REDISQL.V1.QUERY",
        "REDISQL.V1.QUERY.NOW",
        "ZEESQL.V1.QUERY",
    ];
    check(&mut client, &queries, query, rows);
    let of = |verb: &str| {
        ["REDISQL.", "REDISQL.V1.", "ZEESQL.V1."].map(|family| format!("{family}{verb}"))
    };
    let now = |verb: &str| ["REDISQL.", "REDISQL.V1."].map(|family| format!("{family}{verb}.NOW"));
    let all = |verb: &str| [&of(verb)[..], &now(verb)[..]].concat();
    for name in all("CREATE_STATEMENT") {
        assert_eq!(client.run(&format!("{name} DB s 'select 1'")), "+OK", "{name}");
        assert_eq!(client.run(&format!("{} DB s", name.replace("CREATE", "DELETE"))), "+OK");
    }
    client.run("REDISQL.CREATE_STATEMENT DB s 'select 1'");
    for name in all("UPDATE_STATEMENT") {
        let reply = client.run(&format!("{name} DB s 'select a, b from t where a = ?1'"));
        assert_eq!(reply, "+OK", "{name}");
    }
    for name in [all("EXEC_STATEMENT"), all("QUERY_STATEMENT")].concat() {
        assert_eq!(client.run(&format!("{name} DB s 1")), rows, "{name}");
    }
    for name in all("QUERY.INTO") {
        let reply = client.run(&format!("{name} out DB 'select a from t'"));
        assert!(reply.ends_with(" :2"), "{name}: {reply}");
    }
    for name in all("QUERY_STATEMENT.INTO") {
        let reply = client.run(&format!("{name} out DB s 1"));
        assert!(reply.ends_with(" :1"), "{name}: {reply}");
    }
}

#[test]
fn every_variant_of_a_later_command_does_the_same() {
    let mut client = with_table();
    for family in ["REDISQL.V2.", "ZEESQL.", "ZEESQL.V2."] {
        let want = "*4 *1 $6 RESULT *1 $1 a *1 $3 INT *1 :1";
        for verb in ["EXEC", "QUERY"] {
            let line = format!("{family}{verb} DB COMMAND 'select a from t limit 1' NOW");
            assert_eq!(client.run(&line), want, "{line}");
        }
        let made = client.run(&format!("{family}STATEMENT DB NEW {family}x 'select 1'"));
        assert_eq!(made, "*1 *1 $2 OK", "{family}");
        assert!(client.run(&format!("{family}VERSION")).starts_with('$'), "{family}");
        assert!(client.run(&format!("{family}STATISTICS")).starts_with("*33"), "{family}");
        let made = client.run(&format!("{family}CREATE_DB {family}db PATH :memory"));
        assert_eq!(made, "*1 *1 $2 OK", "{family}");
    }
}
