//! The set family, through the engine.

mod common;
use common::Server;

const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn members() {
    let mut server = Server::new();
    server.check(&[
        ("SADD s a b a", ":2"),
        ("SADD s a c", ":1"),
        ("SADD s a", ":0"),
        ("SCARD s", ":3"),
        ("SISMEMBER s a", ":1"),
        ("SISMEMBER s x", ":0"),
        ("SISMEMBER none x", ":0"),
        ("SMISMEMBER s a x b", "*3 :1 :0 :1"),
        ("SMISMEMBER none a x", "*2 :0 :0"),
        ("SMEMBERS s", "*3 $1 a $1 b $1 c"),
        ("SMEMBERS none", "*0"),
        ("SREM s a x", ":1"),
        ("SREM none a", ":0"),
        ("SREM s b c d", ":2"),
        ("SCARD s", ":0"),
        ("SET k v", "+OK"),
        ("SADD k a", WRONG),
        ("SMISMEMBER k a", WRONG),
        ("SADD s", "-ERR wrong number of arguments for 'sadd' command"),
    ]);
    assert_eq!(server.events(), ["sadd s", "sadd s", "srem s", "srem s", "del s", "set k"]);
    server.check3(&[("SMEMBERS none", "~0"), ("SADD s 1", ":1"), ("SMEMBERS s", "~1 $1 1")]);
}

#[test]
fn moving() {
    let mut server = Server::new();
    server.check(&[
        ("SMOVE a b x", ":0"),
        ("SADD a x y", ":2"),
        ("SMOVE a b z", ":0"),
        ("SMOVE a a x", ":1"),
        ("SMOVE a a z", ":0"),
        ("SET s v", "+OK"),
        ("SMOVE a s x", WRONG),
        ("SMOVE s a x", WRONG),
        ("SMOVE none s x", ":0"),
    ]);
    server.events();
    server.check(&[("SMOVE a b x", ":1"), ("SADD b y", ":1"), ("SMOVE a b y", ":1")]);
    assert_eq!(server.events(), ["srem a", "sadd b", "sadd b", "srem a", "del a"]);
    assert_eq!(server.members("SMEMBERS b"), ["x", "y"]);
}

#[test]
fn popping() {
    let mut server = Server::new();
    server.check(&[
        ("SPOP s", "$-1"),
        ("SPOP s 2", "*0"),
        ("SPOP s -1", "-ERR value is out of range, must be positive"),
        ("SPOP s 1 2", "-ERR syntax error"),
        ("SADD s a", ":1"),
        ("SPOP s 0", "*0"),
        ("SPOP s", "$1 a"),
        ("SADD s a b", ":2"),
        ("SPOP s 5", "*2 $1 a $1 b"),
        ("SCARD s", ":0"),
    ]);
    assert_eq!(server.log(), ["SADD s a", "SREM s a", "SADD s a b", "DEL s"]);
    assert_eq!(server.events(), ["sadd s", "spop s", "del s", "sadd s", "spop s", "del s"]);
    server.run("SADD s 1 2 3 4 5 6 7");
    server.log();
    let popped = server.members("SPOP s 3");
    assert_eq!(popped.len(), 3);
    let mut logged: Vec<_> = server.log()[0].split(' ').skip(2).map(str::to_owned).collect();
    logged.sort();
    assert_eq!(logged, popped);
    let rest = server.members("SMEMBERS s");
    assert_eq!(rest.len(), 4);
    assert!(rest.iter().all(|member| !popped.contains(member)));
    server.check3(&[("SPOP none 1", "~0"), ("SPOP none", "_")]);
}

#[test]
fn many_are_popped_in_parts_of_the_log() {
    let mut server = Server::new();
    let words: Vec<String> = (0..3000).map(|number| format!("m{number}")).collect();
    server.run(&format!("SADD s {}", words.join(" ")));
    server.log();
    assert_eq!(server.members("SPOP s 2500").len(), 2500);
    let log = server.log();
    let [first, parts @ .., last] = &log[..] else { panic!("{log:?}") };
    assert_eq!((first.as_str(), last.as_str()), ("MULTI", "EXEC"));
    assert_eq!(parts.len(), 3);
    assert_eq!(parts.iter().map(|line| line.split(' ').count() - 2).sum::<usize>(), 2500);
    server.check(&[("SCARD s", ":500")]);
}

#[test]
fn random_members() {
    let mut server = Server::new();
    server.check(&[
        ("SRANDMEMBER s", "$-1"),
        ("SRANDMEMBER s 3", "*0"),
        ("SRANDMEMBER s 3 3", "-ERR syntax error"),
        ("SRANDMEMBER s x", "-ERR value is not an integer or out of range"),
        (
            "SRANDMEMBER s -9223372036854775808",
            "-ERR value is out of range, value must between \
             -9223372036854775807 and 9223372036854775807",
        ),
        ("SADD s a", ":1"),
        ("SRANDMEMBER s", "$1 a"),
        ("SRANDMEMBER s 0", "*0"),
        ("SRANDMEMBER s 9", "*1 $1 a"),
        ("SRANDMEMBER s -3", "*3 $1 a $1 a $1 a"),
        ("SRANDMEMBER s -9223372036854775807", "-ERR value is out of range"),
    ]);
    for kind in ["1 2 3 4 5 6 7 8", "a b c d e f g h", &"x".repeat(70)] {
        server.run("SPOP t 100");
        server.run(&format!("SADD t {kind} x1 x2 x3"));
        let all = server.members("SMEMBERS t");
        let mut some = server.members("SRANDMEMBER t 3");
        assert!(some.iter().all(|member| all.contains(member)));
        some.dedup();
        assert_eq!(some.len(), 3);
        assert_eq!(server.members("SRANDMEMBER t 100"), all);
    }
}

#[test]
fn algebra() {
    let mut server = Server::new();
    server.check(&[
        ("SADD a 1 2 3 x", ":4"),
        ("SADD b 2 3 4 x y", ":5"),
        ("SADD c 3 x", ":2"),
        ("SINTER a b c", "*2 $1 3 $1 x"),
        ("SINTER a none", "*0"),
        ("SINTER a a", "*4 $1 1 $1 2 $1 3 $1 x"),
        ("SINTERCARD 2 a b", ":3"),
        ("SINTERCARD 2 a b LIMIT 2", ":2"),
        ("SINTERCARD 2 a b LIMIT 0", ":3"),
        ("SINTERCARD 1 none", ":0"),
        ("SINTERCARD 0 a", "-ERR numkeys should be greater than 0"),
        ("SINTERCARD x a", "-ERR numkeys should be greater than 0"),
        ("SINTERCARD 3 a b", "-ERR Number of keys can't be greater than number of args"),
        ("SINTERCARD 2 a b LIMIT -1", "-ERR LIMIT can't be negative"),
        ("SINTERCARD 2 a b LIMIT", "-ERR syntax error"),
        ("SINTERCARD 2 a b FOO 1", "-ERR syntax error"),
        ("SDIFF a", "*4 $1 1 $1 2 $1 3 $1 x"),
        ("SDIFF a a", "*0"),
        ("SDIFF none a", "*0"),
        ("SUNION none", "*0"),
        ("SET s v", "+OK"),
        ("SINTER none s", WRONG),
        ("SUNION a s", WRONG),
        ("SDIFF a s", WRONG),
        ("SINTERCARD 2 none s", WRONG),
    ]);
    assert_eq!(server.members("SUNION a b none c"), ["1", "2", "3", "4", "x", "y"]);
    assert_eq!(server.members("SDIFF b c none"), ["2", "4", "y"]);
    assert_eq!(server.members("SDIFF b c a"), ["4", "y"]);
    server.check3(&[("SINTER a c", "~2 $1 3 $1 x"), ("SUNION none", "~0"), ("SDIFF none", "~0")]);
}

#[test]
fn stored_results() {
    let mut server = Server::new();
    server.check(&[
        ("SADD a 1 2 3 x", ":4"),
        ("SADD b 2 3 4 y", ":4"),
        ("SET d v", "+OK"),
        ("SINTERSTORE d a b", ":2"),
    ]);
    assert_eq!(server.encoding("d"), "intset");
    server.check(&[("SUNIONSTORE d a b", ":6"), ("SDIFFSTORE a a b", ":2")]);
    assert_eq!(server.encoding("d"), "listpack");
    assert_eq!(server.members("SMEMBERS a"), ["1", "x"]);
    server.events();
    server.check(&[
        ("SINTERSTORE d a none", ":0"),
        ("SCARD d", ":0"),
        ("SINTERSTORE d a none", ":0"),
        ("SDIFFSTORE a a a", ":0"),
        ("SUNIONSTORE e b", ":4"),
    ]);
    assert_eq!(server.events(), ["del d", "del a", "sunionstore e"]);
    server.check(&[("SET s v", "+OK"), ("SUNIONSTORE b s", WRONG), ("SCARD b", ":4")]);
}

#[test]
fn differences_are_the_same_both_ways() {
    let mut server = Server::new();
    // A large first set and many small others make taking away the cheaper way.
    let words: Vec<String> = (0..200).map(|number| format!("m{number}")).collect();
    server.run(&format!("SADD first {}", words.join(" ")));
    for other in 0..20 {
        server.run(&format!("SADD o{other} m{other} z{other}"));
    }
    let others: Vec<String> = (0..20).map(|other| format!("o{other}")).collect();
    let left = server.members(&format!("SDIFF first {}", others.join(" ")));
    let mut expected = words[20..].to_vec();
    expected.sort();
    assert_eq!(left, expected);
}

#[test]
fn scanning() {
    let mut server = Server::new();
    server.check(&[
        ("SSCAN none 0", "*2 $1 0 *0"),
        ("SSCAN s x", "-ERR invalid cursor"),
        ("SADD s a1 a2 b1 17", ":4"),
        ("SSCAN s 0 MATCH a* COUNT 1", "*2 $1 0 *2 $2 a1 $2 a2"),
        ("SSCAN s 0 MATCH 1?", "*2 $1 0 *1 $2 17"),
        ("SSCAN s 0 COUNT 0", "-ERR syntax error"),
        ("SSCAN s 0 TYPE set", "-ERR syntax error"),
        ("SSCAN s 0 NOVALUES", "-ERR NOVALUES option can only be used in HSCAN"),
        ("SSCAN s 0 FOO", "-ERR syntax error"),
    ]);
    let words: Vec<String> = (0..1000).map(|number| format!("m{number}")).collect();
    server.run(&format!("SADD large {}", words.join(" ")));
    let mut cursor = "0".to_owned();
    let mut seen = std::collections::BTreeSet::new();
    loop {
        let reply = server.run(&format!("SSCAN large {cursor} COUNT 50"));
        let mut words = reply.split(' ').filter(|word| !word.starts_with(['$', '*']));
        cursor = words.next().expect("a cursor").to_owned();
        let before = seen.len();
        seen.extend(words.map(str::to_owned));
        assert!(seen.len() - before < 100);
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen.len(), 1000);
}

#[test]
fn encodings() {
    let mut server = Server::new();
    server.run("SADD s 1 2 3");
    assert_eq!(server.encoding("s"), "intset");
    server.run("SADD s x");
    assert_eq!(server.encoding("s"), "listpack");
    server.run(&format!("SADD s {}", "x".repeat(65)));
    assert_eq!(server.encoding("s"), "hashtable");
    let numbers: Vec<String> = (0..513).map(|number| number.to_string()).collect();
    server.run(&format!("SADD n {}", numbers.join(" ")));
    assert_eq!(server.encoding("n"), "hashtable");
    server.run(&format!("SADD m {}", numbers[..512].join(" ")));
    assert_eq!(server.encoding("m"), "intset");
    server.run("SADD m 1000");
    assert_eq!(server.encoding("m"), "hashtable");
}
