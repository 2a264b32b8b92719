//! Any words as a command of the SQL families, on a database with a table, an index and a named
//! statement; and any bytes as the image of a database. A reply comes, nothing panics, and the
//! database is still one afterwards.
#![no_main]

use commands::testing::Client;
use libfuzzer_sys::fuzz_target;

const NAMES: &[&str] = &[
    "REDISQL.EXEC",
    "REDISQL.QUERY",
    "REDISQL.EXEC_STATEMENT",
    "REDISQL.CREATE_STATEMENT",
    "REDISQL.V2.EXEC",
    "REDISQL.V2.STATEMENT",
    "REDISQL.V2.CREATE_DB",
    "ZEESQL.EXEC",
    "ZEESQL.QUERY",
    "ZEESQL.INDEX",
    "ZEESQL.COPY",
    "SQL.EXEC",
    "SQL.QUERY",
    "SQL.CALL",
    "SQL.BATCH",
    "SQL.EXPLAIN",
    "SQL.STATS",
    "SQL.APPLY",
    "SQL.INDEX",
    "SQL.CURSOR",
    "SQL.FETCH",
    "SQL.BEGIN",
    "SQL.ROLLBACK",
];

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    // No file of this name is there: images that name files open none.
    let folder = std::env::temp_dir().join("forebay-fuzz-no-such-folder");
    sql::settings::settings().set_folder(&folder);
    if *first == 255 {
        // What RESTORE and files of data bring.
        let _ = sql::serve::load(rest);
        let _ = sql::serve::load(&[&b"FBSQL1"[..], rest].concat());
        return;
    }
    sql::settings::settings().set_timeouts_ms(50, 50);
    let mut client = Client::with(sql::FAMILIES);
    client.run("REDISQL.CREATE_DB DB");
    client.run("REDISQL.EXEC DB 'create table t(a integer, b text); insert into t values(1, 2)'");
    client.run("REDISQL.CREATE_STATEMENT DB get 'select b from t where a = ?1'");
    client.run("SQL.INDEX DB NEW TABLE h PREFIX h: SCHEMA f TEXT");
    client.run("HSET h:1 f v");
    client.run("REDISQL.EXEC DB \"create virtual table live using redis_hash('h:', f)\"");
    let name = NAMES[usize::from(*first) % NAMES.len()];
    let mut words: Vec<&[u8]> = vec![name.as_bytes(), b"DB"];
    words.extend(rest.split(|byte| *byte == 0xff));
    assert!(!client.reply(&words).is_empty(), "a reply comes");
    let alive = client.run("REDISQL.EXEC DB 'select 1'");
    assert_eq!(alive, "*1 *1 :1");
});
