//! Tables over live keys.

mod common;

use common::with_table;

#[test]
fn keys_are_rows() {
    let mut client = with_table();
    for line in [
        "HSET user:1 name ann age 30",
        "HSET user:2 name bob",
        "HSET other:1 name eve",
        "SET user:count 2",
        "RPUSH list:a x y",
        "SADD set:a m",
        "ZADD zset:a 1.5 m",
        "XADD stream:a 1-1 f v",
        "REDISQL.EXEC DB \"CREATE VIRTUAL TABLE users USING redis_hash('user:', name, age)\"",
        "REDISQL.EXEC DB \"CREATE VIRTUAL TABLE lists USING redis_list('list:')\"",
        "REDISQL.EXEC DB \"CREATE VIRTUAL TABLE texts USING redis_string('user:')\"",
        "REDISQL.EXEC DB \"CREATE VIRTUAL TABLE sets USING redis_set('')\"",
        "REDISQL.EXEC DB \"CREATE VIRTUAL TABLE zsets USING redis_zset('zset:')\"",
        "REDISQL.EXEC DB \"CREATE VIRTUAL TABLE streams USING redis_stream('stream:')\"",
        "REDISQL.EXEC DB \"CREATE VIRTUAL TABLE ks USING redis_keys('')\"",
        "REDISQL.EXEC DB \"CREATE VIRTUAL TABLE b USING REDISQL_TABLES_BRUTE_HASH(user, name)\"",
    ] {
        let reply = client.run(line);
        assert!(!reply.starts_with('-'), "{line}: {reply}");
    }
    client.check(&[
        (
            "REDISQL.EXEC DB 'select * from users'",
            "*2 *3 $6 user:1 $3 ann $2 30 *3 $6 user:2 $3 bob $-1",
        ),
        ("REDISQL.EXEC DB \"select name from users where key = 'user:2'\"", "*1 *1 $3 bob"),
        (
            "REDISQL.EXEC DB \"select t.b, u.name from t join users u on u.key = 'user:' || t.a\"",
            "*2 *2 $1 x $3 ann *2 $1 y $3 bob",
        ),
        ("REDISQL.EXEC DB 'select * from lists'", "*2 *3 $6 list:a :0 $1 x *3 $6 list:a :1 $1 y"),
        ("REDISQL.EXEC DB 'select * from texts'", "*1 *2 $10 user:count $1 2"),
        ("REDISQL.EXEC DB 'select * from sets'", "*1 *2 $5 set:a $1 m"),
        ("REDISQL.EXEC DB 'select * from zsets'", "*1 *3 $6 zset:a $1 m $3 1.5"),
        ("REDISQL.EXEC DB 'select * from streams'", "*1 *4 $8 stream:a $3 1-1 $1 f $1 v"),
        ("REDISQL.EXEC DB \"select type, ttl from ks where key = 'DB'\"", "*1 *2 $9 rediSQLDB $-1"),
        ("REDISQL.EXEC DB 'select * from b'", "*2 *2 $6 user:1 $3 ann *2 $6 user:2 $3 bob"),
        ("HSET user:2 name bea", ":0"),
        ("REDISQL.EXEC DB \"select name from users where key = 'user:2'\"", "*1 *1 $3 bea"),
        (
            "REDISQL.EXEC DB 'insert into t select 1, name from users'",
            "-a statement that writes cannot read live keys",
        ),
        ("REDISQL.EXEC DB 'select count(*) from t'", "*1 *1 :2"),
    ]);
}
