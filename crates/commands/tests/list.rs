//! The list family, through the engine.

mod common;
use common::Server;

const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const NO_INTEGER: &str = "-ERR value is not an integer or out of range";

#[test]
fn pushes_and_pops() {
    Server::new().check(&[
        ("LPUSHX l a", ":0"),
        ("LPUSH l b a", ":2"),
        ("RPUSH l c 12", ":4"),
        ("RPUSHX l e", ":5"),
        ("LRANGE l 0 -1", "*5 $1 a $1 b $1 c $2 12 $1 e"),
        ("LLEN l", ":5"),
        ("LPOP l", "$1 a"),
        ("RPOP l 2", "*2 $1 e $2 12"),
        ("LPOP l 0", "*0"),
        ("LPOP l 10", "*2 $1 b $1 c"),
        ("EXISTS l", ":0"),
        ("LLEN l", ":0"),
        ("LPOP l", "$-1"),
        ("LPOP l 3", "*-1"),
        ("LPOP l -1", "-ERR value is out of range, must be positive"),
        ("LPOP l 1 2", "-ERR wrong number of arguments for 'lpop' command"),
        ("LPUSH l", "-ERR wrong number of arguments for 'lpush' command"),
        ("SET s v", "+OK"),
        ("LPUSH s a", WRONG),
        ("LPUSHX s a", WRONG),
        ("LPOP s", WRONG),
        ("LLEN s", WRONG),
        ("LRANGE s 0 1", WRONG),
    ]);
}

#[test]
fn indexes() {
    Server::new().check(&[
        ("LINDEX l x", "$-1"),
        ("LSET l 0 v", "-ERR no such key"),
        ("RPUSH l a b c", ":3"),
        ("LINDEX l -1", "$1 c"),
        ("LINDEX l 3", "$-1"),
        ("LINDEX l -4", "$-1"),
        ("LINDEX l -9223372036854775808", "$-1"),
        ("LINDEX l x", NO_INTEGER),
        ("LSET l -2 B", "+OK"),
        ("LSET l 3 x", "-ERR index out of range"),
        ("LSET l -4 x", "-ERR index out of range"),
        ("LSET l x x", NO_INTEGER),
        ("LRANGE l -100 100", "*3 $1 a $1 B $1 c"),
        ("LRANGE l 1 0", "*0"),
        ("LRANGE l 3 5", "*0"),
        ("LRANGE l 0 x", NO_INTEGER),
        ("LRANGE none 0 1", "*0"),
        ("LINSERT l BEFORE B x", ":4"),
        ("LINSERT l after B y", ":5"),
        ("LINSERT l AFTER z y", ":-1"),
        ("LINSERT l AROUND B y", "-ERR syntax error"),
        ("LINSERT none AFTER B y", ":0"),
        ("LRANGE l 0 -1", "*5 $1 a $1 x $1 B $1 y $1 c"),
        ("LTRIM l 1 -2", "+OK"),
        ("LRANGE l 0 -1", "*3 $1 x $1 B $1 y"),
        ("LTRIM l 5 1", "+OK"),
        ("LLEN l", ":0"),
        ("LTRIM l 0 1", "+OK"),
    ]);
}

#[test]
fn by_value() {
    Server::new().check(&[
        ("RPUSH l a 1 a b a 1 a", ":7"),
        ("LREM l 0 x", ":0"),
        ("LREM l -2 a", ":2"),
        ("LRANGE l 0 -1", "*5 $1 a $1 1 $1 a $1 b $1 1"),
        ("LREM l 1 a", ":1"),
        ("LREM l 0 1", ":2"),
        ("LREM none 0 1", ":0"),
        ("LREM l x 1", NO_INTEGER),
        (
            "LREM l -9223372036854775808 1",
            "-ERR value is out of range, value must between \
             -9223372036854775807 and 9223372036854775807",
        ),
        ("LRANGE l 0 -1", "*2 $1 a $1 b"),
        ("LREM l 0 a", ":1"),
        ("LREM l 0 b", ":1"),
        ("LLEN l", ":0"),
    ]);
}

#[test]
fn positions() {
    Server::new().check(&[
        ("RPUSH l a b c 1 2 3 c c", ":8"),
        ("LPOS l a", ":0"),
        ("LPOS l c", ":2"),
        ("LPOS l c RANK 2", ":6"),
        ("LPOS l c RANK 4", "$-1"),
        ("LPOS l c RANK -1", ":7"),
        ("LPOS l c RANK -2 COUNT 2", "*2 :6 :2"),
        ("LPOS l c COUNT 0", "*3 :2 :6 :7"),
        ("LPOS l c COUNT 0 MAXLEN 7", "*2 :2 :6"),
        ("LPOS l c COUNT 0 MAXLEN 2 RANK -1", "*2 :7 :6"),
        ("LPOS l x", "$-1"),
        ("LPOS l x COUNT 2", "*0"),
        ("LPOS none x", "$-1"),
        ("LPOS none x COUNT 2", "*0"),
        ("LPOS l c COUNT", "-ERR syntax error"),
        ("LPOS l c COUNT -1", "-ERR COUNT can't be negative"),
        ("LPOS l c MAXLEN -1", "-ERR MAXLEN can't be negative"),
        (
            "LPOS l c RANK 0",
            "-ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
             or use negative to start from the end of the list",
        ),
    ]);
}

#[test]
fn from_list_to_list() {
    let mut server = Server::new();
    server.check(&[
        ("LMOVE l m LEFT RIGHT", "$-1"),
        ("RPUSH l a b c", ":3"),
        ("LMOVE l m LEFT RIGHT", "$1 a"),
        ("LMOVE l m right left", "$1 c"),
        ("LRANGE m 0 -1", "*2 $1 c $1 a"),
        ("LMOVE m m LEFT RIGHT", "$1 c"),
        ("LRANGE m 0 -1", "*2 $1 a $1 c"),
        ("LMOVE l m UP LEFT", "-ERR syntax error"),
        ("SET s v", "+OK"),
        ("LMOVE l s LEFT LEFT", WRONG),
        ("RPOPLPUSH s l", WRONG),
        ("LLEN l", ":1"),
        ("RPOPLPUSH l m", "$1 b"),
        ("RPOPLPUSH l m", "$-1"),
        ("LRANGE m 0 -1", "*3 $1 b $1 a $1 c"),
    ]);
    server.events();
    server.check(&[("RPUSH one x", ":1"), ("LMOVE one one LEFT LEFT", "$1 x")]);
    assert_eq!(server.events(), ["rpush one", "lpush one", "lpop one"]);
    server.check(&[("LMOVE one two LEFT LEFT", "$1 x")]);
    assert_eq!(server.events(), ["lpush two", "lpop one", "del one"]);
}

#[test]
fn several_keys_at_once() {
    let mut server = Server::new();
    server.check(&[
        ("LMPOP 2 k l LEFT", "*-1"),
        ("RPUSH l a b c d", ":4"),
        ("LMPOP 2 k l LEFT", "*2 $1 l *1 $1 a"),
        ("LMPOP 1 l RIGHT COUNT 2", "*2 $1 l *2 $1 d $1 c"),
        ("LMPOP 1 l RIGHT COUNT 20", "*2 $1 l *1 $1 b"),
        ("LMPOP 0 l RIGHT", "-ERR numkeys should be greater than 0"),
        ("LMPOP a l RIGHT", "-ERR numkeys should be greater than 0"),
        ("LMPOP 2 l RIGHT", "-ERR syntax error"),
        ("LMPOP 9 l RIGHT", "-ERR syntax error"),
        ("LMPOP 1 l UP", "-ERR syntax error"),
        ("LMPOP 1 l LEFT COUNT 0", "-ERR count should be greater than 0"),
        ("LMPOP 1 l LEFT COUNT x", "-ERR count should be greater than 0"),
        ("LMPOP 1 l LEFT COUNT", "-ERR syntax error"),
        ("LMPOP 1 l LEFT COUNT 1 COUNT 2", "-ERR syntax error"),
        ("SET s v", "+OK"),
        ("LMPOP 2 s l LEFT", WRONG),
    ]);
    server.check3(&[("LMPOP 1 k LEFT", "_"), ("LPOP k", "_"), ("LPOP k 1", "_")]);
    let log = server.log();
    assert_eq!(log[1..4], ["LPOP l 1", "RPOP l 2", "RPOP l 1"]);
}

#[test]
fn events_and_log() {
    let mut server = Server::new();
    server.check(&[("RPUSH l a b c d", ":4"), ("LPOP l 2", "*2 $1 a $1 b"), ("RPOP l", "$1 d")]);
    server.check(&[("LSET l 0 x", "+OK"), ("LREM l 0 x", ":1"), ("LREM l 0 x", ":0")]);
    assert_eq!(server.events(), ["rpush l", "lpop l", "rpop l", "lset l", "lrem l", "del l"]);
    let log = ["RPUSH l a b c d", "LPOP l 2", "RPOP l", "LSET l 0 x", "LREM l 0 x"];
    assert_eq!(server.log(), log);
    server.check(&[("RPUSH l a b", ":2"), ("LTRIM l 0 -1", "+OK"), ("LTRIM l 1 0", "+OK")]);
    assert_eq!(server.events(), ["rpush l", "ltrim l", "ltrim l", "del l"]);
    assert_eq!(server.log(), ["RPUSH l a b", "LTRIM l 1 0"]);
}

#[test]
fn encodings() {
    let mut server = Server::new();
    let long = "x".repeat(8200);
    server.run("RPUSH l a");
    assert_eq!(server.encoding("l"), "listpack");
    server.run(&format!("LPUSH l {long}"));
    assert_eq!(server.encoding("l"), "quicklist");
    server.run("LPOP l");
    assert_eq!(server.encoding("l"), "listpack");
}

#[test]
fn waiting_for_an_element() {
    let mut server = Server::new();
    assert_eq!(server.run_as(1, "BLPOP a b 1.5"), "");
    assert_eq!(server.run_as(2, "BRPOP b 0"), "");
    assert!(server.is_blocked(1) && server.is_blocked(2));
    assert_eq!(server.timeout(1), ("*-1".to_owned(), Some(1500)));
    assert_eq!(server.timeout(2), ("*-1".to_owned(), None));
    // One push of three: first come, first served, and what is left stays.
    server.check(&[("RPUSH b x y z", ":3")]);
    assert_eq!(server.delivered(), ["1: *2 $1 b $1 x", "2: *2 $1 b $1 z"]);
    server.check(&[("LRANGE b 0 -1", "*1 $1 y")]);
    assert_eq!(server.log(), ["RPUSH b x y z", "LPOP b", "RPOP b"]);
    assert_eq!(server.run_as(1, "BLPOP a b 0"), "*2 $1 b $1 y");
    assert_eq!(server.log(), ["LPOP b"]);
}

#[test]
fn waiting_ends_with_the_transaction() {
    let mut server = Server::new();
    assert_eq!(server.run_as(1, "BLPOP k 0"), "");
    server.check(&[
        ("MULTI", "+OK"),
        ("RPUSH k a", "+QUEUED"),
        ("LPOP k", "+QUEUED"),
        ("EXEC", "*2 :1 $1 a"),
    ]);
    assert!(server.delivered().is_empty());
    server.check(&[
        ("MULTI", "+OK"),
        ("BLPOP none 0", "+QUEUED"),
        ("BLMOVE none m LEFT LEFT 0", "+QUEUED"),
        ("BLMPOP 0 1 none LEFT", "+QUEUED"),
        ("LPUSH k 1 2", "+QUEUED"),
        ("EXEC", "*4 *-1 $-1 *-1 :2"),
    ]);
    assert_eq!(server.delivered(), ["1: *2 $1 k $1 2"]);
}

#[test]
fn waiting_to_move() {
    let mut server = Server::new();
    assert_eq!(server.run_as(1, "BLMOVE a b LEFT RIGHT 0"), "");
    assert_eq!(server.run_as(2, "BLPOP b 0"), "");
    assert_eq!(server.run_as(3, "BRPOPLPUSH a c 2"), "");
    assert_eq!(server.timeout(3), ("_".to_owned(), Some(2000)));
    // The element goes on to whoever waits for where it went.
    server.check(&[("RPUSH a x y", ":2")]);
    assert_eq!(server.delivered(), ["1: $1 x", "3: $1 y", "2: *2 $1 b $1 x"]);
    assert_eq!(server.log(), ["RPUSH a x y", "LMOVE a b LEFT RIGHT", "RPOPLPUSH a c", "LPOP b"]);
    server.check(&[
        ("LRANGE c 0 -1", "*1 $1 y"),
        ("SET s v", "+OK"),
        ("BLMOVE s b LEFT LEFT 0", WRONG),
        ("BRPOPLPUSH c s 0", WRONG),
        ("BLMOVE c b LEFT LEFT x", "-ERR timeout is not a float or out of range"),
        ("BLMOVE c b UP LEFT 0", "-ERR syntax error"),
        ("BLPOP c -1", "-ERR timeout is negative"),
        ("BLMOVE c d LEFT LEFT 0", "$1 y"),
    ]);
    // A destination of another type is the waiter's own error.
    assert_eq!(server.run_as(1, "BLMOVE q s LEFT LEFT 0"), "");
    server.check(&[("LPUSH q 1", ":1")]);
    assert_eq!(server.delivered(), [format!("1: {WRONG}")]);
    server.check(&[("LLEN q", ":1")]);
}

#[test]
fn waiting_for_several() {
    let mut server = Server::new();
    assert_eq!(server.run_as(1, "BLMPOP 0 2 a b RIGHT COUNT 2"), "");
    server.check(&[("RPUSH b 1 2 3", ":3")]);
    assert_eq!(server.delivered(), ["1: *2 $1 b *2 $1 3 $1 2"]);
    assert_eq!(server.log(), ["RPUSH b 1 2 3", "RPOP b 2"]);
    server.check(&[
        ("BLMPOP 0 1 b LEFT", "*2 $1 b *1 $1 1"),
        ("BLMPOP x 1 b LEFT", "-ERR timeout is not a float or out of range"),
        ("BLMPOP 0 0 b LEFT", "-ERR numkeys should be greater than 0"),
        ("BLMPOP -1 1 b LEFT", "-ERR timeout is negative"),
        ("BLMPOP 0 1 b LEFT COUNT 0", "-ERR count should be greater than 0"),
    ]);
}
