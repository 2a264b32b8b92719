//! Streams with several clients: who waits, who is woken, and by what.

mod common;
use common::Server;

const NO_GROUP: &str = "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP \
                        option";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn everybody_reads_what_was_added() {
    let mut server = Server::new();
    server.check(&[("XADD s 1 f v", "$3 1-0")]);
    assert_eq!(server.run_as(1, "XREAD BLOCK 0 STREAMS t s $ $"), "");
    assert_eq!(server.run_as(2, "XREAD BLOCK 1500 STREAMS s 1"), "");
    assert_eq!(server.timeout(2), ("*-1".to_owned(), Some(1500)));
    server.check(&[("XADD s 2 f v", "$3 2-0")]);
    let reply = "*1 *2 $1 s *1 *2 $3 2-0 *2 $1 f $1 v";
    assert_eq!(server.delivered(), [format!("1: {reply}"), format!("2: {reply}")]);
    assert_eq!(server.log(), ["XADD s 1 f v", "XADD s 2 f v"]);
}

#[test]
fn what_trims_away_wakes_nobody() {
    let mut server = Server::new();
    assert_eq!(server.run_as(1, "XREAD BLOCK 0 STREAMS s $"), "");
    server.check(&[("XADD s MAXLEN 0 1 f v", "$3 1-0"), ("DEL s", ":1"), ("RPUSH s x", ":1")]);
    assert!(server.delivered().is_empty() && server.is_blocked(1));
    server.check(&[("DEL s", ":1"), ("XADD s 1 f v", "$3 1-0")]);
    assert_eq!(server.delivered(), ["1: *1 *2 $1 s *1 *2 $3 1-0 *2 $1 f $1 v"]);
}

#[test]
fn one_of_a_group_reads_each_entry() {
    let mut server = Server::new();
    server.check(&[("XGROUP CREATE s g $ MKSTREAM", "+OK")]);
    assert_eq!(server.run_as(1, "XREADGROUP GROUP g a BLOCK 0 STREAMS s >"), "");
    assert_eq!(server.run_as(2, "XREADGROUP GROUP g b BLOCK 0 STREAMS s >"), "");
    assert_eq!(server.run_as(3, "XREAD BLOCK 0 STREAMS s $"), "");
    server.log();
    server.check(&[("XADD s 1 f v", "$3 1-0")]);
    let entry = "*1 *2 $3 1-0 *2 $1 f $1 v";
    assert_eq!(
        server.delivered(),
        [format!("1: *1 *2 $1 s {entry}"), format!("3: %1 $1 s {entry}")]
    );
    assert!(server.is_blocked(2));
    assert_eq!(
        server.log(),
        [
            "XADD s 1 f v",
            "MULTI",
            "XCLAIM s g a 0 1-0 TIME 1700000000000 RETRYCOUNT 1 FORCE JUSTID LASTID 1-0",
            "XGROUP SETID s g 1-0 ENTRIESREAD 1",
            "EXEC",
        ]
    );
}

/// What the client that waits for group `g` of `s` is told when this is run.
fn told_by(lines: &[&str]) -> Vec<String> {
    let mut server = Server::new();
    server.check(&[("XGROUP CREATE s g $ MKSTREAM", "+OK")]);
    assert_eq!(server.run_as(1, "XREADGROUP GROUP g a BLOCK 0 STREAMS s >"), "");
    lines.iter().for_each(|line| drop(server.run(line)));
    server.delivered()
}

#[test]
fn a_group_that_goes_ends_its_readers_wait() {
    let gone = [format!("1: {NO_GROUP}")];
    let other = [format!("1: {WRONG_TYPE}")];
    assert_eq!(told_by(&["DEL s"]), gone);
    assert_eq!(told_by(&["UNLINK s"]), gone);
    assert_eq!(told_by(&["RENAME s t"]), gone);
    assert_eq!(told_by(&["XGROUP DESTROY s g"]), gone);
    assert_eq!(told_by(&["FLUSHALL"]), gone);
    assert_eq!(told_by(&["FLUSHDB"]), gone);
    assert_eq!(told_by(&["SWAPDB 0 1"]), gone);
    assert_eq!(told_by(&["SET s v"]), other);
    assert_eq!(told_by(&["MULTI", "DEL s", "RPUSH s x", "EXEC"]), other);
    assert_eq!(told_by(&["XADD t 1 f v", "XDEL s 1", "XGROUP DESTROY s h"]), [""; 0]);
    // A stream in whose place another one comes at once still has the group.
    assert_eq!(told_by(&["MULTI", "DEL s", "XGROUP CREATE s g $ MKSTREAM", "EXEC"]), [""; 0]);
}

#[test]
fn a_stream_that_expires_ends_its_readers_wait() {
    let mut server = Server::new();
    server.check(&[("XGROUP CREATE s g $ MKSTREAM", "+OK"), ("PEXPIRE s 10", ":1")]);
    assert_eq!(server.run_as(1, "XREADGROUP GROUP g a BLOCK 0 STREAMS s >"), "");
    server.now_ms += 11;
    server.expire_due();
    assert_eq!(server.delivered(), [format!("1: {NO_GROUP}")]);
}
