//! Limits: of one command, of one database; they hold, they are kept, and nobody widens them.

mod common;

use commands::testing::Client;
use common::with_table;

/// Numbers without end.
const FOREVER: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
/// Ten rows.
const TEN: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 10) \
     SELECT i FROM n";
/// A sort of 20 MB.
const SORT: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000) \
     SELECT length(s) FROM (SELECT hex(randomblob(500)) s FROM n ORDER BY 1) LIMIT 1";

const TIMED_OUT: &str = "-It was impossible to return the whole result";
const TOO_MUCH: &str = "-ERR the statement takes more memory than";

fn starts(client: &mut Client, words: &[&str], want: &str) {
    let reply = client.run_words(words);
    assert!(reply.starts_with(want), "{words:?}: {reply}");
}

#[test]
fn a_command_keeps_to_its_own() {
    let mut client = with_table();
    starts(&mut client, &["SQL.QUERY", "DB", FOREVER, "TIMEOUT", "30"], TIMED_OUT);
    let too_many = client.run_words(&["SQL.QUERY", "DB", TEN, "ROWS", "9"]);
    assert!(too_many.starts_with('-'), "{too_many}");
    starts(&mut client, &["SQL.QUERY", "DB", TEN, "rows", "10", "TIMEOUT", "9999"], "*10 ");
    let too_long = client.run_words(&["SQL.QUERY", "DB", TEN, "BYTES", "20"]);
    assert!(too_long.starts_with('-'), "{too_long}");
    starts(&mut client, &["SQL.QUERY", "DB", SORT, "MEMORY", "5000000"], TOO_MUCH);
    starts(&mut client, &["SQL.QUERY", "DB", SORT, "MEMORY", "100000000"], "*10 ");
    // The limit was the one command's: the next on this thread has none.
    starts(&mut client, &["SQL.QUERY", "DB", SORT], "*10 ");
    for bad in ["-1", "x", "1.5", "99999999999999999999"] {
        let words = ["SQL.EXEC", "DB", "select 1", "TIMEOUT", bad];
        starts(&mut client, &words, "-ERR a limit must be a whole number, 0 for none");
    }
    starts(&mut client, &["SQL.EXEC", "DB", "select 1", "TIMEOUT"], "-ERR a limit must be");
    starts(&mut client, &["SQL.EXEC", "DB", "select 1", "SIZE", "5"], "-ERR syntax error");
    starts(&mut client, &["SQL.EXEC", "DB", "select ?1", "ROWS", "5", "VALUES", "8"], "*10 ");
}

#[test]
fn what_ran_out_of_memory_has_changed_nothing() {
    let mut client = with_table();
    let insert = "INSERT INTO t SELECT a, hex(randomblob(1000000)) FROM t";
    starts(&mut client, &["SQL.EXEC", "DB", insert, "MEMORY", "1000000"], TOO_MUCH);
    let both = format!("INSERT INTO t VALUES(8, 'z'); {insert}");
    starts(&mut client, &["SQL.EXEC", "DB", &both, "MEMORY", "1000000"], TOO_MUCH);
    let batch = ["SQL.BATCH", "DB", "INSERT INTO t VALUES(?1, hex(randomblob(?2)))", "MEMORY"];
    let words = [&batch[..], &["1000000", "2", "5", "1", "6", "1000000"]].concat();
    starts(&mut client, &words, TOO_MUCH);
    client.check(&[("REDISQL.EXEC DB 'SELECT count(*) FROM t'", "*1 *1 :2")]);
    starts(&mut client, &["SQL.EXEC", "DB", insert], "*4 $7 changes :2 ");
    client.check(&[("REDISQL.EXEC DB 'PRAGMA integrity_check'", "*1 *1 $2 ok")]);
}

#[test]
fn a_database_keeps_its_limits() {
    let mut client = with_table();
    let none = "*10 $7 timeout :0 $4 rows :0 $5 bytes :0 $6 memory :0 $4 size :0";
    let some = "*10 $7 timeout :0 $4 rows :1 $5 bytes :0 $6 memory :0 $4 size :50000";
    client.check(&[
        ("SQL.LIMITS DB", none),
        ("SQL.LIMITS DB ROWS 1 SIZE 50000", some),
        ("SQL.LIMITS DB", some),
        ("SQL.LIMITS DB ROWS", "-ERR a limit must be a whole number, 0 for none"),
        ("SQL.LIMITS DB MANY 5", "-ERR syntax error"),
        ("SQL.LIMITS nowhere", "-ERR no such database"),
        ("REDISQL.EXEC DB 'SELECT a FROM t LIMIT 1'", "*1 *1 :1"),
        // No command may be wider than its database.
        ("SQL.LIMITS DB TIMEOUT 0", some),
    ]);
    for words in [
        &["REDISQL.EXEC", "DB", "SELECT a FROM t"][..],
        &["SQL.QUERY", "DB", "SELECT a FROM t", "ROWS", "5"],
    ] {
        let reply = client.run_words(words);
        assert!(reply.starts_with('-'), "{words:?}: {reply}");
    }
    let full = "-SQLITE_FULL database or disk is full";
    let big = "INSERT INTO t VALUES(9, hex(randomblob(100000)))";
    starts(&mut client, &["SQL.EXEC", "DB", big], full);
    // A copy has them, and what is undone never was.
    client.check(&[
        ("COPY DB other", ":1"),
        ("SQL.LIMITS other", some),
        ("REDISQL.CREATE_DB third", "+OK"),
        ("REDISQL.COPY DB third", "+OK"),
        ("SQL.LIMITS third", some),
        ("MULTI", "+OK"),
        ("SQL.LIMITS DB ROWS 0 SIZE 0", "+QUEUED"),
        ("EXEC", &format!("*1 {none}")),
        ("SQL.LIMITS DB", none),
    ]);
    starts(&mut client, &["SQL.EXEC", "DB", big], "*4 $7 changes :1 ");
}

#[test]
fn what_a_database_knows_of_itself_is_the_servers_to_write() {
    let mut client = with_table();
    client.run("SQL.LIMITS DB ROWS 1");
    for text in [
        "DELETE FROM RediSQLMetadata",
        "delete from main.redisqlmetadata",
        "UPDATE RediSQLMetadata SET value = 100",
        "INSERT INTO RediSQLMetadata VALUES('limit', 'ROWS', '100')",
        "DROP TABLE RediSQLMetadata",
        "ALTER TABLE RediSQLMetadata RENAME TO other",
        "CREATE TRIGGER x AFTER INSERT ON RediSQLMetadata BEGIN SELECT 1; END",
        "CREATE TEMP TRIGGER x AFTER INSERT ON RediSQLMetadata BEGIN SELECT 1; END",
        "CREATE TRIGGER y AFTER INSERT ON t BEGIN DELETE FROM RediSQLMetadata; END; \
         INSERT INTO t VALUES(5, 6)",
    ] {
        starts(&mut client, &["SQL.EXEC", "DB", text], "-SQLITE_AUTH not authorized");
    }
    client.check(&[
        ("REDISQL.EXEC DB 'VACUUM'", "*2 +DONE :0"),
        ("REDISQL.EXEC DB 'SELECT value FROM RediSQLMetadata'", "*1 *1 $1 1"),
        ("REDISQL.EXEC DB 'SELECT count(*) FROM t'", "*1 *1 :2"),
    ]);
}
