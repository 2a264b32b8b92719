//! Sorted sets: what `reference.rs` cannot compare with Redis 7.0 (random replies, WITHSCORE,
//! events, log, waiting), and a few lines of everything else.

mod common;

use common::Server;

#[test]
fn adding_with_every_option() {
    Server::new().check(&[
        ("ZADD z 1 a 2 b", ":2"),
        ("ZADD z 3 a 4 c", ":1"),
        ("ZADD z CH 5 a 4 c 1 d", ":2"),
        ("ZADD z NX 9 a", ":0"),
        ("ZADD z XX 9 none", ":0"),
        ("ZADD z XX CH GT 4 a 3 b", ":1"),
        ("ZADD z INCR 2.5 a", "$3 7.5"),
        ("ZADD z INCR NX 2.5 a", "$-1"),
        ("ZADD z LT INCR 1 a", "$-1"),
        ("ZADD nokey XX 1 a", ":0"),
        ("ZADD nokey XX INCR 1 a", "$-1"),
        ("ZCARD nokey", ":0"),
        ("ZADD z inf a", ":0"),
        ("ZINCRBY z -inf a", "-ERR resulting score is not a number (NaN)"),
        ("ZSCORE z a", "$3 inf"),
        ("ZADD z NX XX 1 a", "-ERR XX and NX options at the same time are not compatible"),
        ("ZADD z GT LT 1 a", "-ERR GT, LT, and/or NX options at the same time are not compatible"),
        ("ZADD z INCR 1 a 2 b", "-ERR INCR option supports a single increment-element pair"),
        ("ZADD z 1 x 2 y 3q w", "-ERR value is not a valid float"),
        ("ZSCORE z x", "$-1"),
        ("ZADD z 1 a 2", "-ERR syntax error"),
        ("ZADD z NX CH", "-ERR syntax error"),
    ]);
}

#[test]
fn resp3_has_doubles_and_pairs() {
    Server::new().check3(&[
        ("ZADD z 1 a 2.5 b inf c", ":3"),
        ("ZSCORE z b", ",2.5"),
        ("ZSCORE z none", "_"),
        ("ZMSCORE z a none c", "*3 ,1 _ ,inf"),
        ("ZRANGE z 0 -1 WITHSCORES", "*3 *2 $1 a ,1 *2 $1 b ,2.5 *2 $1 c ,inf"),
        ("ZRANGE z 0 0", "*1 $1 a"),
        ("ZUNION 1 z WITHSCORES", "*3 *2 $1 a ,1 *2 $1 b ,2.5 *2 $1 c ,inf"),
        ("ZINCRBY z 1 a", ",2"),
        ("ZADD z XX INCR 1 none", "_"),
        ("ZPOPMIN z", "*2 $1 a ,2"),
        ("ZPOPMIN z 1", "*1 *2 $1 b ,2.5"),
        ("ZMPOP 2 none z MAX", "*2 $1 z *1 *2 $1 c ,inf"),
        ("ZMPOP 1 z MAX", "_"),
        ("ZPOPMAX z 5", "*0"),
    ]);
}

#[test]
fn ranks_with_scores() {
    Server::new().check(&[
        ("ZADD z 1 a 2 b 3 c", ":3"),
        ("ZRANK z b", ":1"),
        ("ZRANK z c WITHSCORE", "*2 :2 $1 3"),
        ("ZREVRANK z c withscore", "*2 :0 $1 3"),
        ("ZRANK z none WITHSCORE", "*-1"),
        ("ZRANK none a WITHSCORE", "*-1"),
        ("ZRANK none a", "$-1"),
        ("ZRANK z a SCORES", "-ERR syntax error"),
        ("ZRANK z a WITHSCORE x", "-ERR wrong number of arguments for 'zrank' command"),
    ]);
}

#[test]
fn ranges_with_limits() {
    Server::new().check(&[
        ("ZADD z 1 a 2 b 3 c 4 d", ":4"),
        ("ZRANGE z (1 3 BYSCORE", "*2 $1 b $1 c"),
        ("ZRANGE z 3 (1 BYSCORE REV LIMIT 1 5", "*1 $1 b"),
        ("ZREVRANGEBYSCORE z +inf -inf LIMIT 0 2", "*2 $1 d $1 c"),
        (
            "ZRANGE z 0 -1 LIMIT 0 1",
            "-ERR syntax error, LIMIT is only supported in combination \
          with either BYSCORE or BYLEX",
        ),
        (
            "ZRANGE z - + BYLEX WITHSCORES",
            "-ERR syntax error, WITHSCORES not supported in \
          combination with BYLEX",
        ),
        ("ZRANGESTORE out z 1 2", ":2"),
        ("ZRANGE out 0 -1 WITHSCORES", "*4 $1 b $1 2 $1 c $1 3"),
        ("ZRANGESTORE out z 7 9", ":0"),
        ("ZRANGE out 0 -1", "*0"),
        ("ZREMRANGEBYRANK z 0 -1", ":4"),
        ("ZCARD z", ":0"),
    ]);
}

#[test]
fn random_members_are_members() {
    let mut server = Server::new();
    for number in 0..300 {
        server.run(&format!("ZADD z {number} m{number}"));
    }
    server.check(&[
        ("ZRANDMEMBER none", "$-1"),
        ("ZRANDMEMBER none 5", "*0"),
        ("ZRANDMEMBER z 0", "*0"),
        ("ZRANDMEMBER z 5 SCORES", "-ERR syntax error"),
        ("ZRANDMEMBER z x", "-ERR value is not an integer or out of range"),
    ]);
    let words = |reply: String| reply.split(' ').map(str::to_string).collect::<Vec<_>>();
    assert!(server.run("ZRANDMEMBER z").starts_with('$'));
    for (line, len) in [("ZRANDMEMBER z 7", 7), ("ZRANDMEMBER z -7", 7), ("ZRANDMEMBER z 400", 300)]
    {
        let reply = words(server.run(line));
        assert_eq!(reply[0], format!("*{len}"));
        for member in reply[1..].chunks(2) {
            assert!(server.run(&format!("ZSCORE z {}", member[1])).starts_with('$'));
        }
    }
    let reply = words(server.run("ZRANDMEMBER z 20 WITHSCORES"));
    assert_eq!(reply[0], "*40");
    for pair in reply[1..].chunks(4) {
        assert_eq!(pair[1], format!("m{}", pair[3]));
    }
    let refused = server.run("ZRANDMEMBER z -9223372036854775807 WITHSCORES");
    assert_eq!(refused, "-ERR value is out of range");
}

#[test]
fn scanning_sees_every_member() {
    let mut server = Server::new();
    server.check(&[
        ("ZADD small 1 a 2.5 b", ":2"),
        ("ZSCAN small 0", "*2 $1 0 *4 $1 a $1 1 $1 b $3 2.5"),
        ("ZSCAN small 0 MATCH b*", "*2 $1 0 *2 $1 b $3 2.5"),
        ("ZSCAN none 0", "*2 $1 0 *0"),
        ("ZSCAN small x", "-ERR invalid cursor"),
        ("ZSCAN small 0 COUNT 0", "-ERR syntax error"),
    ]);
    for number in 0..1000 {
        server.run(&format!("ZADD z {number} m{number}"));
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut cursor = "0".to_string();
    loop {
        let reply = server.run(&format!("ZSCAN z {cursor} COUNT 20"));
        let words: Vec<&str> = reply.split(' ').collect();
        seen.extend(words[4..].chunks(4).map(|pair| pair[1].to_string()));
        cursor = words[2].to_string();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen.len(), 1000);
}

#[test]
fn wrong_types_change_nothing() {
    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    let mut server = Server::new();
    server.run("SET s x");
    server.run("ZADD z 1 a");
    for line in [
        "ZADD s 1 a",
        "ZINCRBY s 1 a",
        "ZREM s a",
        "ZCARD s",
        "ZSCORE s a",
        "ZMSCORE s a",
        "ZRANK s a",
        "ZRANGE s 0 -1",
        "ZRANGESTORE z s 0 -1",
        "ZCOUNT s 0 1",
        "ZLEXCOUNT s - +",
        "ZREMRANGEBYSCORE s 0 1",
        "ZUNION 2 z s",
        "ZUNIONSTORE z 2 z s",
        "ZPOPMIN s",
        "ZPOPMIN s 0",
        "ZMPOP 2 s z MIN",
        "BZPOPMIN s z 0",
        "ZRANDMEMBER s",
        "ZSCAN s 0",
        "GEOADD s 1 1 a",
        "GEOPOS s a",
    ] {
        assert_eq!(server.run(line), WRONG, "{line}");
    }
    server.check(&[("GET s", "$1 x"), ("ZRANGE z 0 -1 WITHSCORES", "*2 $1 a $1 1")]);
}

#[test]
fn encodings() {
    let mut server = Server::new();
    for number in 0..128 {
        server.run(&format!("ZADD z {number} m{number}"));
    }
    assert_eq!(server.encoding("z"), "listpack");
    server.run("ZADD z 1 one-more");
    assert_eq!(server.encoding("z"), "skiplist");
    server.check(&[("ZRANGESTORE part z 0 9", ":10"), ("ZUNIONSTORE same 1 z", ":129")]);
    assert_eq!(server.encoding("part"), "listpack");
    assert_eq!(server.encoding("same"), "skiplist");
    // A first member that is too long, and too many at once, make a large set from the start.
    server.run(&format!("ZADD long 1 {}", "x".repeat(65)));
    assert_eq!(server.encoding("long"), "skiplist");
    server.run(&format!("ZADD many {}", "1 m ".repeat(129).trim_end()));
    assert_eq!(server.encoding("many"), "skiplist");
}

#[test]
fn events_and_log() {
    let mut server = Server::new();
    server.check(&[
        ("ZADD z 1 a 2 b 3 c 4 d 5 e 6 f", ":6"),
        ("ZADD z 1 a", ":0"),
        ("ZADD z INCR 1 a", "$1 2"),
        ("ZINCRBY z 1 a", "$1 3"),
        ("ZREM z a none", ":1"),
        ("ZREM z none", ":0"),
        ("ZREMRANGEBYRANK z 0 0", ":1"),
        ("ZREMRANGEBYSCORE z 3 3", ":1"),
        ("ZREMRANGEBYLEX z [d (e", ":1"),
        ("ZPOPMIN z", "*2 $1 e $1 5"),
        ("ZPOPMAX z 10", "*2 $1 f $1 6"),
    ]);
    let events = [
        "zadd z",
        "zincr z",
        "zincr z",
        "zrem z",
        "zremrangebyrank z",
        "zremrangebyscore z",
        "zremrangebylex z",
        "zpopmin z",
        "zpopmax z",
        "del z",
    ];
    assert_eq!(server.events(), events);
    let log = [
        "ZADD z 1 a 2 b 3 c 4 d 5 e 6 f",
        "ZADD z INCR 1 a",
        "ZINCRBY z 1 a",
        "ZREM z a none",
        "ZREMRANGEBYRANK z 0 0",
        "ZREMRANGEBYSCORE z 3 3",
        "ZREMRANGEBYLEX z [d (e",
        "ZPOPMIN z",
        "ZPOPMAX z 10",
    ];
    assert_eq!(server.log(), log);
}

#[test]
fn events_and_log_of_results() {
    let mut server = Server::new();
    server.check(&[
        ("ZADD z 1 a 2 b", ":2"),
        ("ZRANGESTORE out z 0 -1", ":2"),
        ("ZRANGESTORE out z 5 9", ":0"),
        ("ZRANGESTORE out z 5 9", ":0"),
        ("ZUNIONSTORE out 1 z", ":2"),
        ("ZINTERSTORE out 2 z none", ":0"),
        ("ZINTERSTORE out 2 z z", ":2"),
        ("ZDIFFSTORE out 1 z", ":2"),
        ("ZMPOP 2 none z MIN COUNT 5", "*2 $1 z *2 *2 $1 a $1 1 *2 $1 b $1 2"),
    ]);
    let events = [
        "zadd z",
        "zrangestore out",
        "del out",
        "zunionstore out",
        "del out",
        "zinterstore out",
        "zdiffstore out",
        "zpopmin z",
        "del z",
    ];
    assert_eq!(server.events(), events);
    assert_eq!(server.log().last().map(String::as_str), Some("ZPOPMIN z 2"));
    server.check(&[
        ("GEOADD g 13.361389 38.115556 p", ":1"),
        ("GEOSEARCHSTORE out g FROMMEMBER p BYRADIUS 1 m", ":1"),
        ("GEORADIUS g 13 38 500 km STORE out", ":1"),
        ("PFADD h a", ":1"),
        ("PFADD h a", ":0"),
        ("PFCOUNT h", ":1"),
        ("PFCOUNT h", ":1"),
        ("PFMERGE h", "+OK"),
    ]);
    let events = ["zadd g", "geosearchstore out", "georadiusstore out", "pfadd h", "pfadd h"];
    assert_eq!(server.events(), events);
    let log = [
        "ZADD g 3479099956230698 p",
        "GEOSEARCHSTORE out g FROMMEMBER p BYRADIUS 1 m",
        "GEORADIUS g 13 38 500 km STORE out",
        "PFADD h a",
        "PFCOUNT h",
        "PFMERGE h",
    ];
    assert_eq!(server.log(), log);
}

#[test]
fn waiting_for_a_member() {
    let mut server = Server::new();
    assert_eq!(server.run_as(1, "BZPOPMIN a b 1.5"), "");
    assert_eq!(server.run_as(2, "BZPOPMAX b 0"), "");
    assert_eq!(server.run_as(3, "BZMPOP 0 2 a b MAX COUNT 2"), "");
    assert_eq!(server.timeout(1), ("*-1".to_owned(), Some(1500)));
    assert_eq!(server.timeout(3), ("_".to_owned(), None));
    // A key of another type wakes nobody.
    server.check(&[("RPUSH a x", ":1"), ("LPOP a", "$1 x")]);
    assert!(server.delivered().is_empty());
    // First come, first served, after the whole transaction.
    server.check(&[
        ("MULTI", "+OK"),
        ("ZADD b 1 x 2 y 3 z", "+QUEUED"),
        ("ZADD b 4 w 5 v", "+QUEUED"),
        ("EXEC", "*2 :3 :2"),
    ]);
    let delivered =
        ["1: *3 $1 b $1 x $1 1", "2: *3 $1 b $1 v $1 5", "3: *2 $1 b *2 *2 $1 w ,4 *2 $1 z ,3"];
    assert_eq!(server.delivered(), delivered);
    server.check(&[("ZRANGE b 0 -1", "*1 $1 y"), ("BZPOPMIN b 0", "*3 $1 b $1 y $1 2")]);
    let log = server.log();
    assert_eq!(log[log.len() - 4..], ["ZPOPMIN b", "ZPOPMAX b", "ZPOPMAX b 2", "ZPOPMIN b"]);
    // What a STORE form makes wakes as well.
    assert_eq!(server.run_as(1, "BZPOPMIN out 0"), "");
    server.check(&[("ZADD z 1 a", ":1"), ("ZUNIONSTORE out 1 z", ":1")]);
    assert_eq!(server.delivered(), ["1: *3 $3 out $1 a $1 1"]);
    server.check(&[("ZCARD out", ":0")]);
}
