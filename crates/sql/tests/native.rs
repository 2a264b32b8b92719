//! Forebay's own commands: typed values, names, bulk rows, replies with names and types.

mod common;

use common::with_table;

#[test]
fn rows_come_under_names_and_types() {
    with_table().check(&[
        (
            "SQL.EXEC DB 'select a, b, 1.5 x from t where a = 1'",
            "*10 $7 columns *3 $1 a $1 b $1 x $5 types *3 $7 INTEGER $4 TEXT $-1 \
             $4 rows *1 *3 :1 $1 x $3 1.5 $7 changes :0 $10 last_rowid $-1",
        ),
        (
            "SQL.QUERY DB 'select a from t where 0'",
            "*10 $7 columns *1 $1 a $5 types *1 $7 INTEGER $4 rows *0 $7 changes :0 \
             $10 last_rowid $-1",
        ),
        ("SQL.EXEC DB 'insert into t values(7, 8)'", "*4 $7 changes :1 $10 last_rowid :3"),
        ("SQL.EXEC none 'select 1'", "-ERR no such database"),
        ("SQL.EXEC DB 'select nope'", "-SQLITE_ERROR no such column: nope"),
        ("SQL.EXEC DB 'create unique index u on t(a)'", "*4 $7 changes :0 $10 last_rowid $-1"),
        (
            "SQL.EXEC DB 'insert into t values(7, 8)'",
            "-SQLITE_CONSTRAINT_UNIQUE UNIQUE constraint failed: t.a",
        ),
        ("SQL.CREATE DB", "-BUSYKEY Target key name already exists."),
        ("SQL.CREATE new", "+OK"),
    ]);
    let mut client = with_table().resp3();
    let reply = client.run("SQL.EXEC DB 'select 1.5 x, NULL n'");
    assert!(reply.starts_with("%5 "), "{reply}");
    assert!(reply.contains("$4 rows *1 *2 ,1.5 _"), "{reply}");
}

#[test]
fn values_are_bound_by_type_and_name() {
    let mut client = with_table();
    let text = "select typeof(?1) || typeof(?2) || typeof(?3) || typeof(?4) || typeof(?5) v";
    let words = ["SQL.EXEC", "DB", text, "TYPED", "itrbn", "5", "6", "7", "8"];
    let reply = client.run_words(&words);
    assert!(reply.contains("integertextrealblobnull"), "{reply}");
    let reply = client.run("SQL.EXEC DB 'select :a + @b v' NAMED :a 2 b 3");
    assert!(reply.contains("*1 *1 :5"), "{reply}");
    let reply = client.run("SQL.EXEC DB 'select ?1, ?2' VALUES 9");
    assert!(reply.contains("*1 *2 :9 $-1"), "{reply}");
    for (line, want) in [
        ("SQL.EXEC DB 'select ?1' TYPED x 5", "-ERR types are letters"),
        ("SQL.EXEC DB 'select ?1' TYPED ii 5", "-ERR types are letters"),
        ("SQL.EXEC DB 'select ?1' TYPED i five", "-ERR a value is not of the type"),
        ("SQL.EXEC DB 'select :a' NAMED b 5", "-ERR no parameter is called b"),
        ("SQL.EXEC DB 'select ?1' VALUES 1 2", "-SQLITE_RANGE column index out of range"),
        ("SQL.EXEC DB 'select ?1' NAMED b", "-ERR syntax error"),
    ] {
        let reply = client.run(line);
        assert!(reply.starts_with(want), "{line}: {reply}");
    }
}

#[test]
fn rows_come_in_bulk() {
    let mut client = with_table();
    client.check(&[
        (
            "SQL.BATCH DB 'insert into t values(?1, ?2)' 2 5 a 6 b 7 c",
            "*4 $7 changes :3 $10 last_rowid :5",
        ),
        (
            "SQL.BATCH DB 'insert into t values(?1, ?2)' TYPED it 8 a 9 9",
            "*4 $7 changes :2 $10 last_rowid :7",
        ),
        (
            "SQL.BATCH DB 'insert into t values(?1, ?2)' 2 5 a 6",
            "-ERR the values are not a whole number of rows of the width given",
        ),
        ("REDISQL.EXEC DB 'create unique index u on t(a)'", "*2 +DONE :0"),
        (
            "SQL.BATCH DB 'insert into t values(?1, ?2)' 2 10 a 10 b",
            "-SQLITE_CONSTRAINT_UNIQUE UNIQUE constraint failed: t.a",
        ),
        ("REDISQL.EXEC DB 'select count(*), max(a) from t'", "*1 *2 :7 :9"),
    ]);
}

#[test]
fn statements_are_explained_and_counted() {
    let mut client = with_table();
    let plan = client.run("SQL.EXPLAIN DB 'select * from t where rowid = 1'");
    assert!(plan.contains("SEARCH t USING INTEGER PRIMARY KEY"), "{plan}");
    client.run("REDISQL.CREATE_STATEMENT DB get 'select 1'");
    client.run("SQL.CALL DB get");
    client.run("SQL.CALL DB get");
    let stats = client.run("SQL.STATS DB");
    assert!(stats.contains("$3 get $3 sql $8 select 1 $4 runs :2 $5 steps :"), "{stats}");
    client.check(&[("SQL.CANCEL DB", ":0")]);
}

#[test]
fn a_runaway_query_ends() {
    sql::settings::settings().set_timeouts_ms(200, 200);
    let mut client = with_table();
    let endless = "with recursive c(x) as (select 1 union all select x+1 from c) select max(x) \
                   from c";
    let started = std::time::Instant::now();
    let reply = client.run_words(&["REDISQL.EXEC", "DB", endless]);
    assert!(reply.starts_with("-It was impossible to return the whole result"), "{reply}");
    assert!(started.elapsed() < std::time::Duration::from_secs(5));
    let reply = client.run_words(&["REDISQL.EXEC", "DB", &format!("delete from t; {endless}")]);
    assert!(reply.starts_with("-It was impossible"), "{reply}");
    client.check(&[("REDISQL.EXEC DB 'select count(*) from t'", "*1 *1 :2")]);
}

#[test]
fn a_damaged_image_is_no_database() {
    let mut image = b"FBSQL1".to_vec();
    image.extend_from_slice(&7u64.to_le_bytes());
    image.extend_from_slice(&0u32.to_le_bytes());
    assert!(sql::serve::load(&image).is_ok(), "an empty one");
    image.extend_from_slice(b"not a database file at all, and rather longer than nothing");
    assert!(sql::serve::load(&image).is_err());
    assert!(sql::serve::load(b"FBSQL1").is_err());
    assert!(sql::serve::load(b"").is_err());
}

#[test]
fn a_trigger_that_fails_leaves_nothing_behind() {
    let trigger = "CREATE TRIGGER f BEFORE INSERT ON t WHEN NEW.a = 9 \
         BEGIN SELECT RAISE(FAIL, 'no nines'); END";
    let refused = "-SQLITE_CONSTRAINT_TRIGGER no nines";
    let mut client = with_table();
    assert!(client.run_words(&["SQL.EXEC", "DB", trigger]).starts_with("*4 "));
    client.check(&[
        ("REDISQL.CREATE_STATEMENT DB two 'insert into t values(?1, 0), (9, 0)'", "+OK"),
        ("REDISQL.CREATE_DB copy", "+OK"),
        ("REDISQL.COPY DB copy", "+OK"),
    ]);
    for key in ["DB", "copy"] {
        // Seen once, again, kept, alike, named.
        for text in ["5", "5", "5", "6", "7"] {
            let text = format!("insert into t values({text}, 0), (9, 0)");
            assert_eq!(client.run_words(&["SQL.EXEC", key, &text]), refused);
        }
        assert_eq!(client.run_words(&["SQL.CALL", key, "two", "VALUES", "8"]), refused);
        let batch = ["SQL.BATCH", key, "insert into t values(?1, 0)", "1", "8", "9"];
        assert_eq!(client.run_words(&batch), refused);
        let all = client.run_words(&["REDISQL.EXEC", key, "SELECT count(*) FROM t"]);
        assert_eq!(all, "*1 *1 :2", "{key}");
        // What is not about rows stands in no savepoint.
        assert_eq!(client.run_words(&["REDISQL.EXEC", key, "VACUUM"]), "*2 +DONE :0");
    }
}

#[test]
fn a_text_with_a_nul_is_refused_whole() {
    let mut client = with_table();
    let refused = "-SQLITE_ERROR unrecognized token: a NUL character";
    for text in ["\0", " ; \0", "insert into t values(3, 4)\0", "select 1;\0select 2", "--\0"] {
        for words in [["SQL.EXEC", "DB", text], ["SQL.QUERY", "DB", text]] {
            let reply = client.run_words(&words);
            assert!(reply.starts_with('-'), "{words:?}: {reply}");
        }
        let reply = client.run_words(&["REDISQL.CREATE_STATEMENT", "DB", "n", text]);
        assert!(reply.starts_with('-'), "{text:?}: {reply}");
    }
    assert_eq!(client.run_words(&["SQL.EXEC", "DB", "insert into t values(3, 4)\0"]), refused);
    client.check(&[("REDISQL.EXEC DB 'SELECT count(*) FROM t'", "*1 *1 :2")]);
}
