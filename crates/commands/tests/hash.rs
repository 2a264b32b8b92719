//! The hash family, through the engine.

mod common;
use common::Server;

const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn fields() {
    let mut server = Server::new();
    server.check(&[
        ("HSET h a 1 b 2", ":2"),
        ("HSET h a x c 3", ":1"),
        ("HSET h a", "-ERR wrong number of arguments for 'hset' command"),
        ("HSET h a 1 b", "-ERR wrong number of arguments for 'hset' command"),
        ("HMSET h d 4", "+OK"),
        ("HMSET h d 4 e", "-ERR wrong number of arguments for 'hmset' command"),
        ("HSETNX h a y", ":0"),
        ("HSETNX h e 5", ":1"),
        ("HGET h a", "$1 x"),
        ("HGET h z", "$-1"),
        ("HGET none z", "$-1"),
        ("HMGET h a z e", "*3 $1 x $-1 $1 5"),
        ("HMGET none a z", "*2 $-1 $-1"),
        ("HGETALL h", "*10 $1 a $1 x $1 b $1 2 $1 c $1 3 $1 d $1 4 $1 e $1 5"),
        ("HKEYS h", "*5 $1 a $1 b $1 c $1 d $1 e"),
        ("HVALS h", "*5 $1 x $1 2 $1 3 $1 4 $1 5"),
        ("HGETALL none", "*0"),
        ("HKEYS none", "*0"),
        ("HLEN h", ":5"),
        ("HLEN none", ":0"),
        ("HEXISTS h a", ":1"),
        ("HEXISTS h z", ":0"),
        ("HSTRLEN h a", ":1"),
        ("HSTRLEN h z", ":0"),
        ("HDEL h a z b", ":2"),
        ("HDEL h c d e f", ":3"),
        ("HDEL h c", ":0"),
        ("HLEN h", ":0"),
        ("SET s v", "+OK"),
        ("HSET s a 1", WRONG),
        ("HGET s a", WRONG),
        ("HMGET s a", WRONG),
        ("HINCRBY s a 1", WRONG),
    ]);
    let events = ["hset h", "hset h", "hset h", "hset h", "hdel h", "hdel h", "del h", "set s"];
    assert_eq!(server.events(), events);
    server.check3(&[
        ("HGETALL none", "%0"),
        ("HSET h a 1", ":1"),
        ("HGETALL h", "%1 $1 a $1 1"),
        ("HGET h b", "_"),
        ("HKEYS h", "*1 $1 a"),
    ]);
}

#[test]
fn counters() {
    let mut server = Server::new();
    server.check(&[
        ("HINCRBY h n 5", ":5"),
        ("HINCRBY h n -7", ":-2"),
        ("HINCRBY h n x", "-ERR value is not an integer or out of range"),
        ("HSET h s abc m 9223372036854775807 t \" 1\"", ":3"),
        ("HINCRBY h s 1", "-ERR hash value is not an integer"),
        ("HINCRBY h t 1", "-ERR hash value is not an integer"),
        ("HINCRBY h m 1", "-ERR increment or decrement would overflow"),
        ("HSTRLEN h n", ":2"),
        ("HINCRBYFLOAT h f 10.5", "$4 10.5"),
        ("HINCRBYFLOAT h f 0.1", "$4 10.6"),
        ("HINCRBYFLOAT h f -5.0e3", "$23 -4989.39999999999999991"),
        ("HINCRBYFLOAT h n 1.5", "$4 -0.5"),
        ("HINCRBYFLOAT h s 1", "-ERR hash value is not a float"),
        ("HINCRBYFLOAT h f x", "-ERR value is not a valid float"),
        ("HINCRBYFLOAT h f inf", "-ERR value is NaN or Infinity"),
        ("HSET h big 1.7e308", ":1"),
        ("HINCRBYFLOAT none f 0", "$1 0"),
    ]);
    let log = server.log();
    assert_eq!(log[..2], ["HINCRBY h n 5", "HINCRBY h n -7"]);
    assert_eq!(log[3..5], ["HSET h f 10.5", "HSET h f 10.6"]);
    assert!(server.events().contains(&"hincrbyfloat h".to_owned()));
}

#[test]
fn failed_counters_leave_no_key() {
    Server::new().check(&[
        ("HINCRBY none f x", "-ERR value is not an integer or out of range"),
        ("HINCRBYFLOAT none f inf", "-ERR value is NaN or Infinity"),
        ("HLEN none", ":0"),
        ("SETNX none v", ":1"),
    ]);
}

#[test]
fn random_fields() {
    let mut server = Server::new();
    server.check(&[
        ("HRANDFIELD h", "$-1"),
        ("HRANDFIELD h 2", "*0"),
        ("HRANDFIELD h 2 FOO", "-ERR syntax error"),
        ("HRANDFIELD h 2 WITHVALUES x", "-ERR syntax error"),
        ("HRANDFIELD h x", "-ERR value is not an integer or out of range"),
        ("HSET h a 1", ":1"),
        ("HRANDFIELD h", "$1 a"),
        ("HRANDFIELD h 0", "*0"),
        ("HRANDFIELD h 5", "*1 $1 a"),
        ("HRANDFIELD h 5 withvalues", "*2 $1 a $1 1"),
        ("HRANDFIELD h -2 WITHVALUES", "*4 $1 a $1 1 $1 a $1 1"),
        ("HRANDFIELD h 9223372036854775807 WITHVALUES", "-ERR value is out of range"),
        ("HRANDFIELD h -9223372036854770000 WITHVALUES", "-ERR value is out of range"),
    ]);
    server.check3(&[
        ("HRANDFIELD h -2 WITHVALUES", "*2 *2 $1 a $1 1 *2 $1 a $1 1"),
        ("HRANDFIELD h 1", "*1 $1 a"),
    ]);
    let words: Vec<String> = (0..1000).map(|number| format!("f{number} {number}")).collect();
    server.run(&format!("HSET large {}", words.join(" ")));
    for count in [1, 10, 200, 600, 1000] {
        let mut some = server.members(&format!("HRANDFIELD large {count}"));
        some.dedup();
        assert_eq!(some.len(), count);
    }
}

#[test]
fn scanning() {
    let mut server = Server::new();
    server.check(&[
        ("HSCAN none 0", "*2 $1 0 *0"),
        ("HSET h a1 x a2 y b 12", ":3"),
        ("HSCAN h 0", "*2 $1 0 *6 $2 a1 $1 x $2 a2 $1 y $1 b $2 12"),
        ("HSCAN h 0 MATCH a*", "*2 $1 0 *4 $2 a1 $1 x $2 a2 $1 y"),
        ("HSCAN h 0 NOVALUES MATCH a*", "*2 $1 0 *2 $2 a1 $2 a2"),
        ("HSCAN h 0 TYPE hash", "-ERR syntax error"),
        ("HSCAN h a", "-ERR invalid cursor"),
    ]);
}

#[test]
fn encodings() {
    let mut server = Server::new();
    server.run("HSET h a 1");
    assert_eq!(server.encoding("h"), "listpack");
    server.run(&format!("HSET h b {}", "x".repeat(65)));
    assert_eq!(server.encoding("h"), "hashtable");
    let words: Vec<String> = (0..512).map(|number| format!("f{number} v")).collect();
    server.run(&format!("HSET m {}", words.join(" ")));
    assert_eq!(server.encoding("m"), "listpack");
    server.run("HSET m one more");
    assert_eq!(server.encoding("m"), "hashtable");
}
