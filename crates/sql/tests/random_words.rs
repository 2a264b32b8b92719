//! Any words as a command of the SQL families: a reply comes, nothing panics, and the database is
//! still one. The bounded form of fuzz/fuzz_targets/sql.rs.

mod common;

use common::with_table;
use proptest::prelude::*;

/// Words that mean something to one command or another.
const WORDS: &[&str] = &[
    "DB",
    "none",
    "h",
    "COMMAND",
    "STATEMENT",
    "select 1",
    "select * from t",
    "delete from t",
    "insert into t values(?1, ?2)",
    "VALUES",
    "TYPED",
    "itrbn",
    "NAMED",
    "ARGS",
    "READONLY",
    "NEW",
    "LIST",
    "DELETE",
    "TABLE",
    "PREFIX",
    "h:*",
    "SCHEMA",
    "f",
    "TEXT",
    "INTO",
    "s",
    "NO_HEADER",
    "JSON",
    "1",
    "-7",
    "2.5",
    "",
    "BEGIN",
    "COMMIT",
    "SQL.UNIT",
    "SQL.INDEXED",
    "SQL.INDEX.NEW",
    "99",
    "0",
    "w",
    "r",
    "+",
    "FROM",
    "TO",
    "PATH",
    "MUST_CREATE",
    "select '\u{fffd}'",
    "update live set f = f || 'x'",
    "insert into live values('h:2', 'y')",
    "delete from live where key like 'h%'",
    "select redis('XADD', 's', '*', 'f', ?1)",
    "select redis('SET', 'h', 1), redis(?1, ?2, ?3)",
    "savepoint a; select redis('INCR', 'w'); rollback to a; release a",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn any_words_are_answered(
        lines in proptest::collection::vec(
            (any::<u16>(), proptest::collection::vec(any::<u8>(), 0..10)),
            1..12,
        )
    ) {
        let mut client = with_table();
        client.run("SQL.INDEX DB NEW TABLE h PREFIX h: SCHEMA f TEXT");
        client.run("HSET h:1 f v");
        client.run("REDISQL.EXEC DB \"create virtual table live using redis_hash('h:', f)\"");
        let names: Vec<&str> = sql::FAMILIES
            .iter()
            .flat_map(|family| family.commands)
            .map(|command| command.name)
            // Files are not what is tried here.
            .filter(|name| !["SQL.SAVE", "SQL.LOAD", "SQL.ATTACH"].contains(name))
            .filter(|name| !name.ends_with("CREATE_DB") && *name != "SQL.CREATE")
            .collect();
        for (name, picks) in lines {
            let mut words = vec![names[usize::from(name) % names.len()], "DB"];
            words.extend(picks.iter().map(|pick| WORDS[usize::from(*pick) % WORDS.len()]));
            prop_assert!(!client.reply(&words).is_empty(), "{words:?}");
        }
        prop_assert_eq!(client.run("REDISQL.EXEC DB 'select 1'"), "*1 *1 :1");
    }
}
