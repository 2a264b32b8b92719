//! What `tests/reference.rs` cannot compare with Redis 7.0: random replies, WITHSCORE, limits; and
//! a few lines of everything else.

use crate::testing::Client;

#[test]
fn adding_with_every_option() {
    Client::new().check(&[
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
    Client::new().resp3().check(&[
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
    Client::new().check(&[
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
    Client::new().check(&[
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
    let mut client = Client::new();
    for number in 0..300 {
        client.run(&format!("ZADD z {number} m{number}"));
    }
    client.check(&[
        ("ZRANDMEMBER none", "$-1"),
        ("ZRANDMEMBER none 5", "*0"),
        ("ZRANDMEMBER z 0", "*0"),
        ("ZRANDMEMBER z 5 SCORES", "-ERR syntax error"),
        ("ZRANDMEMBER z x", "-ERR value is not an integer or out of range"),
    ]);
    let words = |reply: String| reply.split(' ').map(str::to_string).collect::<Vec<_>>();
    assert!(client.run("ZRANDMEMBER z").starts_with('$'));
    for (line, len) in [("ZRANDMEMBER z 7", 7), ("ZRANDMEMBER z -7", 7), ("ZRANDMEMBER z 400", 300)]
    {
        let reply = words(client.run(line));
        assert_eq!(reply[0], format!("*{len}"));
        for member in reply[1..].chunks(2) {
            assert!(client.run(&format!("ZSCORE z {}", member[1])).starts_with('$'));
        }
    }
    let reply = words(client.run("ZRANDMEMBER z 20 WITHSCORES"));
    assert_eq!(reply[0], "*40");
    for pair in reply[1..].chunks(4) {
        assert_eq!(pair[1], format!("m{}", pair[3]));
    }
    let refused = client.run("ZRANDMEMBER z -9223372036854775807 WITHSCORES");
    assert_eq!(refused, "-ERR value is out of range");
}

#[test]
fn scanning_sees_every_member() {
    let mut client = Client::new();
    client.check(&[
        ("ZADD small 1 a 2.5 b", ":2"),
        ("ZSCAN small 0", "*2 $1 0 *4 $1 a $1 1 $1 b $3 2.5"),
        ("ZSCAN small 0 MATCH b*", "*2 $1 0 *2 $1 b $3 2.5"),
        ("ZSCAN none 0", "*2 $1 0 *0"),
        ("ZSCAN small x", "-ERR invalid cursor"),
        ("ZSCAN small 0 COUNT 0", "-ERR syntax error"),
    ]);
    for number in 0..1000 {
        client.run(&format!("ZADD z {number} m{number}"));
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut cursor = "0".to_string();
    loop {
        let reply = client.run(&format!("ZSCAN z {cursor} COUNT 20"));
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
    let mut client = Client::new();
    client.run("SET s x");
    client.run("ZADD z 1 a");
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
        assert_eq!(client.run(line), WRONG, "{line}");
    }
    client.check(&[("GET s", "$1 x"), ("ZRANGE z 0 -1 WITHSCORES", "*2 $1 a $1 1")]);
}
