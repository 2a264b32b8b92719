//! Commands that SQL calls, and tables over live keys that are written: with the SQL or not at all.

mod common;

use commands::testing::Client;
use common::with_table;

fn with_triggers() -> Client {
    let mut client = with_table();
    for line in [
        "REDISQL.EXEC DB \"CREATE TRIGGER added AFTER INSERT ON t BEGIN SELECT redis('XADD', \
         'log', '*', 'a', NEW.a, 'b', NEW.b); SELECT redis('INCR', 'count'); END\"",
        "REDISQL.EXEC DB \"CREATE VIRTUAL TABLE users USING redis_hash('user:', name, age)\"",
        "REDISQL.EXEC DB \"CREATE VIRTUAL TABLE texts USING redis_string('text:')\"",
    ] {
        let reply = client.run(line);
        assert!(!reply.starts_with('-'), "{line}: {reply}");
    }
    client
}

#[test]
fn a_trigger_calls_commands() {
    let mut client = with_triggers();
    client.check(&[
        ("REDISQL.EXEC DB \"INSERT INTO t VALUES(3,'z'),(4,NULL)\"", "-redis() takes no NULL"),
        ("EXISTS log count", ":0"),
        ("REDISQL.EXEC DB \"INSERT INTO t VALUES(3,'z'),(4,'w')\"", "*2 +DONE :2"),
        ("XLEN log", ":2"),
        ("GET count", "$1 2"),
        ("REDISQL.EXEC DB 'SELECT count(*) FROM t'", "*1 *1 :4"),
        ("REDISQL.EXEC DB \"SELECT redis('SET', 'k', 7)\"", "*1 *1 $6 QUEUED"),
        ("GET k", "$1 7"),
    ]);
}

#[test]
fn what_fails_leaves_nothing() {
    let mut client = with_triggers();
    client.check(&[
        ("SET count word", "+OK"),
        // The second call fails: neither the first nor the row stays.
        (
            "REDISQL.EXEC DB \"INSERT INTO t VALUES(3,'z')\"",
            "-ERR value is not an integer or out of range",
        ),
        ("EXISTS log", ":0"),
        ("REDISQL.EXEC DB 'SELECT count(*) FROM t'", "*1 *1 :2"),
        ("DEL count", ":1"),
        // The second statement fails.
        (
            "REDISQL.EXEC DB \"INSERT INTO t VALUES(3,'z'); INSERT INTO nowhere VALUES(1)\"",
            "-no such table: nowhere",
        ),
        ("EXISTS log count", ":0"),
        // A savepoint, and BEGIN, inside of one command.
        (
            "REDISQL.EXEC DB \"SAVEPOINT one; INSERT INTO t VALUES(5,'v'); ROLLBACK TO one; \
             INSERT INTO t VALUES(6,'u'); RELEASE one\"",
            "*2 +DONE :2",
        ),
        ("GET count", "$1 1"),
        ("REDISQL.EXEC DB \"BEGIN; INSERT INTO t VALUES(7,'t'); ROLLBACK\"", "*2 +DONE :1"),
        ("GET count", "$1 1"),
        ("REDISQL.EXEC DB 'SELECT max(a) FROM t'", "*1 *1 :6"),
    ]);
}

#[test]
fn not_every_command_may_be_called() {
    let mut client = with_triggers();
    for call in [
        "'BLPOP', 'l', 0",
        "'FLUSHALL'",
        "'MULTI'",
        "'GET', 'k'",
        "'EVAL', 'return 1', 0",
        "'REDISQL.EXEC', 'DB', 'select 1'",
        "'NOSUCH'",
        "'DEL', 'DB'",
        "'SET', 'k'",
        "'XREAD', 'BLOCK', 0, 'STREAMS', 's', '$'",
    ] {
        let reply = client.run(&format!("REDISQL.EXEC DB \"SELECT redis({call})\""));
        assert!(reply.starts_with('-'), "{call}: {reply}");
    }
    let reply = client.run("REDISQL.QUERY DB \"SELECT redis('SET', 'k', 1)\"");
    assert!(reply.contains("only reads"), "{reply}");
    let reply = client.run("REDISQL.EXEC DB \"CREATE INDEX i ON t(redis('INCR', a))\"");
    assert!(reply.contains("prohibited"), "{reply}");
    client.check(&[("EXISTS k l", ":0"), ("EXISTS DB", ":1")]);
}

#[test]
fn multi_is_whole() {
    let mut client = with_triggers();
    client.check(&[
        ("MULTI", "+OK"),
        ("REDISQL.EXEC DB \"INSERT INTO t VALUES(3,'z')\"", "+QUEUED"),
        ("INCR count", "+QUEUED"),
        ("EXEC", "*2 *2 +DONE :1 :2"),
        ("MULTI", "+OK"),
        ("REDISQL.EXEC DB \"INSERT INTO t VALUES(4,'y')\"", "+QUEUED"),
        ("LPUSH count x", "+QUEUED"),
    ]);
    let reply = client.run("EXEC");
    assert!(reply.starts_with("-EXECABORT"), "{reply}");
    client.check(&[
        ("GET count", "$1 2"),
        ("XLEN log", ":1"),
        ("REDISQL.EXEC DB 'SELECT count(*) FROM t'", "*1 *1 :3"),
    ]);
}

#[test]
fn live_keys_are_written() {
    let mut client = with_triggers();
    client.check(&[
        ("HSET user:1 name ann age 30 other x", ":3"),
        ("HSET user:2 name bob age 40", ":2"),
        ("EXPIRE user:2 1000", ":1"),
        ("REDISQL.EXEC DB \"UPDATE users SET age = age + 1 WHERE key = 'user:1'\"", "*2 +DONE :1"),
        ("HMGET user:1 name age other", "*3 $3 ann $2 31 $1 x"),
        ("REDISQL.EXEC DB \"UPDATE users SET age = NULL WHERE name LIKE 'b%'\"", "*2 +DONE :1"),
        ("HGETALL user:2", "*2 $4 name $3 bob"),
        ("TTL user:2", ":1000"),
        ("REDISQL.EXEC DB \"INSERT INTO users(key, age) VALUES('user:3', 5)\"", "*2 +DONE :1"),
        ("HGETALL user:3", "*2 $3 age $1 5"),
        ("REDISQL.EXEC DB \"INSERT INTO users SELECT 'user:1' || a, b, a FROM t\"", "*2 +DONE :2"),
        ("HMGET user:12 name age", "*2 $1 y $1 2"),
        (
            "REDISQL.EXEC DB \"DELETE FROM users WHERE key > 'user:1' AND key < 'user:2'\"",
            "*2 +DONE :2",
        ),
        ("EXISTS user:1 user:11 user:12 user:2 user:3", ":3"),
        (
            "REDISQL.EXEC DB \"INSERT INTO users(key, age) VALUES('other', 5)\"",
            "-the key does not begin as the table's keys do",
        ),
        (
            "REDISQL.EXEC DB \"UPDATE users SET key = 'user:9' WHERE key = 'user:1'\"",
            "-a key cannot be changed: insert and delete",
        ),
        ("REDISQL.EXEC DB \"INSERT INTO texts VALUES('text:a', 'x')\"", "*2 +DONE :1"),
        ("EXPIRE text:a 1000", ":1"),
        ("REDISQL.EXEC DB \"UPDATE texts SET value = value || 'y'\"", "*2 +DONE :1"),
        ("GET text:a", "$2 xy"),
        ("TTL text:a", ":1000"),
        ("REDISQL.EXEC DB \"DELETE FROM texts\"", "*2 +DONE :1"),
        ("EXISTS text:a", ":0"),
        (
            "REDISQL.EXEC DB \"INSERT INTO t VALUES(9,'q'); UPDATE users SET age = 1\"",
            "-ERR a command writes tables or live keys, not both: see MULTI",
        ),
        ("HGET user:3 age", "$1 5"),
        (
            "REDISQL.EXEC DB \"DELETE FROM users WHERE key = 'user:3'; SELECT * FROM users\"",
            "-live keys cannot be read after they were written: see MULTI",
        ),
        ("HGET user:3 age", "$1 5"),
        ("RPUSH user:list x", ":1"),
        ("REDISQL.EXEC DB \"UPDATE users SET age = 2 WHERE key = 'user:list'\"", "*2 +DONE :0"),
    ]);
}

#[test]
fn a_search_says_which_keys() {
    let mut client = with_triggers();
    for key in ["user:a", "user:A", "user:ab", "user:b", "user:%", "other:a"] {
        client.run(&format!("HSET {key} name x"));
    }
    let all = "SELECT group_concat(key, ' ') FROM (SELECT key FROM users WHERE";
    for (search, found) in [
        ("key = 'user:a'", "user:a"),
        ("key = 'user:A' COLLATE NOCASE", "user:A user:a"),
        ("key LIKE 'user:a%'", "user:A user:a user:ab"),
        ("key LIKE 'user:!%' ESCAPE '!'", "user:%"),
        ("key GLOB 'user:a*'", "user:a user:ab"),
        ("key GLOB 'user:[ab]'", "user:a user:b"),
        ("key > 'user:a'", "user:ab user:b"),
        ("key BETWEEN 'user:A' AND 'user:a'", "user:A user:a"),
        ("key IN ('user:b', 'user:a', 'other:a')", "user:a user:b"),
        ("key = 'user:a' OR key LIKE 'user:a%'", "user:A user:a user:ab"),
        ("key = 'user:a' OR key = 'user:b' OR name = 'y'", "user:a user:b"),
        ("key >= 'user:ab' AND key GLOB '*b' AND name = 'x'", "user:ab user:b"),
    ] {
        let reply = client.run(&format!("REDISQL.EXEC DB \"{all} {search} ORDER BY key)\""));
        assert!(reply.ends_with(&format!(" {found}")), "{search}: {reply}");
    }
    client.check(&[
        ("REDISQL.EXEC DB 'SELECT count(*) FROM users WHERE key = NULL'", "*1 *1 :0"),
        (
            "REDISQL.EXEC DB \"WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n \
             WHERE i < 40) SELECT count(u.name) FROM n LEFT JOIN users u ON u.key = 'user:' || \
             char(96 + i)\"",
            "*1 *1 :2",
        ),
    ]);
}

#[test]
fn the_log_has_one_unit() {
    let mut client = with_triggers();
    for (line, logged) in [
        (
            "REDISQL.EXEC DB \"INSERT INTO t VALUES(3,'z')\"",
            &["MULTI", "SQL.APPLY", "XADD", "INCR", "EXEC"][..],
        ),
        ("REDISQL.EXEC DB \"INSERT INTO users(key, age) VALUES('user:3', 5)\"", &["HSET"]),
        ("REDISQL.EXEC DB \"UPDATE users SET age = age * 2\"", &["HSET"]),
        ("REDISQL.EXEC DB \"INSERT INTO t VALUES(3,NULL)\"", &[]),
    ] {
        let lines = client.logged(line);
        let names: Vec<&str> = lines.iter().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(names, logged, "{lines:?}");
    }
    // What the log says of SQL calls nothing when it is done again.
    client.check(&[
        ("GET count", "$1 1"),
        ("SQL.APPLY DB 1000 0 0 REDISQL.EXEC DB \"INSERT INTO t VALUES(4,'z')\"", ":1"),
        ("GET count", "$1 1"),
        ("REDISQL.EXEC DB 'SELECT count(*) FROM t'", "*1 *1 :4"),
    ]);
}
