//! The stream commands: replies, errors, waiting, events, what the log gets.

use crate::testing::Client;

/// The client's clock, as the first part of the ids it makes.
const NOW: &str = "1700000000000";

#[test]
fn ids_are_made_and_refused() {
    let mut client = Client::new();
    client.check(&[
        ("XADD s NOMKSTREAM * f v", "$-1"),
        ("XADD s 0-0 f v", "-ERR The ID specified in XADD must be greater than 0-0"),
        ("EXISTS s", ":0"),
        ("XADD s 0-* f v", "$3 0-1"),
        ("XADD s 5 f v", "$3 5-0"),
        ("XADD s 5-* f v", "$3 5-1"),
        ("XADD s 5-1 f v", TOO_SMALL),
        ("XADD s 4-* f v", TOO_SMALL),
        ("XADD s x f v", BAD_ID),
        ("XADD s - f v", BAD_ID),
        ("XADD s 1-2-3 f v", BAD_ID),
        ("XADD s * f", "-ERR wrong number of arguments for 'xadd' command"),
        ("XADD s * f v g", "-ERR wrong number of arguments for 'xadd' command"),
    ]);
    assert_eq!(client.run("XADD s * f v"), format!("$15 {NOW}-0"));
    assert_eq!(client.run("XADD s * f v"), format!("$15 {NOW}-1"));
    client.check(&[
        ("XADD s 18446744073709551615-18446744073709551615 f v", MAX_ID),
        (
            "XADD s * f v",
            "-ERR The stream has exhausted the last possible ID, unable to add more items",
        ),
        ("XLEN s", ":6"),
        ("TYPE s", "+stream"),
        ("OBJECT ENCODING s", "$6 stream"),
        ("SET k v", "+OK"),
        ("XADD k * f v", WRONG_TYPE),
        ("XLEN k", WRONG_TYPE),
        ("LPUSH s x", WRONG_TYPE),
    ]);
}

const TOO_SMALL: &str =
    "-ERR The ID specified in XADD is equal or smaller than the target stream top item";
const BAD_ID: &str = "-ERR Invalid stream ID specified as stream command argument";
const MAX_ID: &str = "$41 18446744073709551615-18446744073709551615";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

fn filled(count: usize) -> Client {
    let mut client = Client::new();
    for ms in 1..=count {
        client.run(&format!("XADD s {ms} f {ms}"));
    }
    client
}

#[test]
fn ranges_and_deletion() {
    let mut client = filled(4);
    client.check(&[
        ("XRANGE s 2 3", "*2 *2 $3 2-0 *2 $1 f $1 2 *2 $3 3-0 *2 $1 f $1 3"),
        ("XRANGE s (2 (4-0", "*1 *2 $3 3-0 *2 $1 f $1 3"),
        ("XREVRANGE s + - COUNT 1", "*1 *2 $3 4-0 *2 $1 f $1 4"),
        ("XRANGE s - + COUNT 0", "*-1"),
        ("XRANGE none - +", "*0"),
        ("XRANGE s (+ +", BAD_ID),
        ("XRANGE s - (0", "*0"),
        ("XRANGE s - (0-0", "-ERR invalid end ID for the interval"),
        ("XRANGE s - + LIMIT 1", "-ERR syntax error"),
        ("XDEL s 2 9 2", ":1"),
        ("XDEL s 3 x", BAD_ID),
        ("XLEN s", ":3"),
        ("XDEL s 1 3 4", ":3"),
        ("EXISTS s", ":1"),
        ("XREVRANGE s + -", "*0"),
        ("XDEL none 1", ":0"),
    ]);
}

#[test]
fn trimming_is_logged_as_what_came_of_it() {
    let mut client = Client::new();
    client
        .core
        .space
        .settings
        .stream_node_max_entries
        .store(10, std::sync::atomic::Ordering::Relaxed);
    for ms in 1..=35 {
        client.run(&format!("XADD s {ms} f v"));
    }
    assert_eq!(
        client.logged("XADD s MAXLEN ~ 12 LIMIT 25 36-* f v"),
        ["XADD s MAXLEN = 16 36-0 f v"]
    );
    assert_eq!(client.logged("XADD s * f v"), [format!("XADD s {NOW}-0 f v")]);
    assert_eq!(
        client.logged(&format!("XADD s MAXLEN 20 {NOW}-1 f v")),
        [format!("XADD s MAXLEN 20 {NOW}-1 f v")]
    );
    assert_eq!(client.logged("XTRIM s MINID ~ 34"), ["XTRIM s MINID = 31-0"; 1]);
    assert_eq!(client.logged("XTRIM s MINID ~ 34"), [""; 0]);
    client.check(&[
        ("XTRIM s MAXLEN = 2", ":6"),
        ("XTRIM s NOPE 1", "-ERR syntax error"),
        ("XTRIM s MAXLEN -1", "-ERR The MAXLEN argument must be >= 0."),
        (
            "XTRIM s MAXLEN 1 LIMIT 2",
            "-ERR syntax error, LIMIT cannot be used without the special ~ option",
        ),
        (
            "XTRIM s MAXLEN 1 MINID 2",
            "-ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
        ),
        (
            "XADD s LIMIT 1 * f v",
            "-ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
        ),
        ("XTRIM none MAXLEN 0", ":0"),
    ]);
}

#[test]
fn groups_read_once_and_acknowledge() {
    let mut client = filled(3);
    client.check(&[
        (
            "XGROUP CREATE none g 0",
            "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may \
             want to use the MKSTREAM option to create an empty stream automatically.",
        ),
        ("XGROUP CREATE s g 0", "+OK"),
        ("XGROUP CREATE s g 0", "-BUSYGROUP Consumer Group name already exists"),
        (
            "XGROUP CREATE s g 0 NOPE",
            "-ERR unknown subcommand or wrong number of arguments for 'CREATE'. Try XGROUP HELP.",
        ),
        (
            "XREADGROUP GROUP g a COUNT 2 STREAMS s >",
            "*1 *2 $1 s *2 *2 $3 1-0 *2 $1 f $1 1 *2 $3 2-0 *2 $1 f $1 2",
        ),
        ("XREADGROUP GROUP g b STREAMS s >", "*1 *2 $1 s *1 *2 $3 3-0 *2 $1 f $1 3"),
        ("XREADGROUP GROUP g b STREAMS s >", "*-1"),
        ("XDEL s 1", ":1"),
        ("XREADGROUP GROUP g a STREAMS s 0", "*1 *2 $1 s *2 *2 $3 1-0 *-1 *2 $3 2-0 *2 $1 f $1 2"),
        ("XREADGROUP GROUP g c STREAMS s 0", "*1 *2 $1 s *0"),
        ("XPENDING s g", "*4 :3 $3 1-0 $3 3-0 *2 *2 $1 a $1 2 *2 $1 b $1 1"),
        ("XPENDING s g - + 10 a", "*2 *4 $3 1-0 $1 a :0 :1 *4 $3 2-0 $1 a :0 :2"),
        ("XPENDING s g IDLE 1 - + 10", "*0"),
        ("XACK s g 1 2 2", ":2"),
        ("XACK s nope 1", ":0"),
        ("XACK s g x", BAD_ID),
        ("XPENDING s g", "*4 :1 $3 3-0 $3 3-0 *1 *2 $1 b $1 1"),
        ("XPENDING s h", "-NOGROUP No such key 's' or consumer group 'h'"),
        (
            "XREADGROUP GROUP h a STREAMS s >",
            "-NOGROUP No such key 's' or consumer group 'h' in XREADGROUP with GROUP option",
        ),
        ("XGROUP CREATECONSUMER s g d", ":1"),
        ("XGROUP CREATECONSUMER s g d", ":0"),
        ("XGROUP DELCONSUMER s g b", ":1"),
        ("XGROUP SETID s g 0", "+OK"),
        ("XREADGROUP GROUP g a NOACK COUNT 1 STREAMS s >", "*1 *2 $1 s *1 *2 $3 2-0 *2 $1 f $1 2"),
        ("XPENDING s g", "*4 :0 $-1 $-1 *-1"),
        ("XGROUP DESTROY s g", ":1"),
        ("XGROUP DESTROY s g", ":0"),
    ]);
}

#[test]
fn what_groups_do_is_logged_so_that_it_can_be_done_again() {
    let mut client = filled(3);
    client.run("XGROUP CREATE s g 0");
    let claim = |id: u32, consumer: &str, count: u32, last: u32| {
        format!(
            "XCLAIM s g {consumer} 0 {id}-0 TIME {NOW} RETRYCOUNT {count} FORCE JUSTID \
             LASTID {last}-0"
        )
    };
    assert_eq!(
        client.logged("XREADGROUP GROUP g a COUNT 2 STREAMS s >"),
        [
            "MULTI".to_string(),
            "XGROUP CREATECONSUMER s g a".to_string(),
            claim(1, "a", 1, 2),
            claim(2, "a", 1, 2),
            "XGROUP SETID s g 2-0 ENTRIESREAD 2".to_string(),
            "EXEC".to_string(),
        ]
    );
    assert_eq!(
        client.logged("XREADGROUP GROUP g a NOACK STREAMS s >"),
        ["XGROUP SETID s g 3-0 ENTRIESREAD 3"]
    );
    assert_eq!(client.logged("XREADGROUP GROUP g a STREAMS s 0"), [""; 0]);
    assert_eq!(client.logged("XCLAIM s g a 0 1 RETRYCOUNT 9"), [claim(1, "a", 9, 3)]);
    assert_eq!(client.logged("XDEL s 2"), ["XDEL s 2"]);
    assert_eq!(
        client.logged("XAUTOCLAIM s g b 0 0 COUNT 5 JUSTID"),
        [
            "MULTI".to_string(),
            "XGROUP CREATECONSUMER s g b".to_string(),
            "XACK s g 2-0".to_string(),
            claim(1, "b", 9, 3),
            "EXEC".to_string(),
        ]
    );
}

#[test]
fn claiming() {
    let mut client = filled(3);
    client.run("XGROUP CREATE s g 0");
    client.run("XREADGROUP GROUP g a STREAMS s >");
    client.now_ms += 100;
    client.check(&[
        ("XCLAIM s g b 200 1", "*0"),
        ("XCLAIM s g b 50 1 9", "*1 *2 $3 1-0 *2 $1 f $1 1"),
        ("XCLAIM s g b 0 2 JUSTID IDLE 30", "*1 $3 2-0"),
        ("XPENDING s g - + 9 b", "*2 *4 $3 1-0 $1 b :0 :2 *4 $3 2-0 $1 b :30 :1"),
        ("XACK s g 3", ":1"),
        ("XCLAIM s g b 0 3", "*0"),
        ("XCLAIM s g b 0 3 FORCE JUSTID RETRYCOUNT 7", "*1 $3 3-0"),
        ("XPENDING s g 3 3 1", "*1 *4 $3 3-0 $1 b :0 :7"),
        ("XCLAIM s g b 0 1 NOPE", "-ERR Unrecognized XCLAIM option 'NOPE'"),
        ("XCLAIM s g b x 1", "-ERR Invalid min-idle-time argument for XCLAIM"),
        ("XCLAIM s h b 0 1", "-NOGROUP No such key 's' or consumer group 'h'"),
        ("XDEL s 1", ":1"),
        ("XAUTOCLAIM s g c 0 - COUNT 2", "*3 $3 3-0 *1 *2 $3 2-0 *2 $1 f $1 2 *1 $3 1-0"),
        ("XAUTOCLAIM s g c 0 3 JUSTID", "*3 $3 0-0 *1 $3 3-0 *0"),
        ("XAUTOCLAIM s g c 0 - COUNT 0", "-ERR COUNT must be > 0"),
    ]);
}

#[test]
fn readers_wait_and_all_of_them_read() {
    let mut client = filled(1);
    client.check(&[
        ("XREAD STREAMS s 0", "*1 *2 $1 s *1 *2 $3 1-0 *2 $1 f $1 1"),
        ("XREAD STREAMS s +", "*1 *2 $1 s *1 *2 $3 1-0 *2 $1 f $1 1"),
        ("XREAD STREAMS s $", "*-1"),
        (
            "XREAD STREAMS s none 0",
            "-ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be \
             specified.",
        ),
        (
            "XREAD STREAMS s >",
            "-ERR The > ID can be specified only when calling XREADGROUP using the GROUP \
             <group> <consumer> option.",
        ),
        ("XREAD BLOCK -1 STREAMS s $", "-ERR timeout is negative"),
        ("XREAD BLOCK x STREAMS s $", "-ERR timeout is not an integer or out of range"),
        (
            "XREAD GROUP g a STREAMS s 0",
            "-ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
        ),
        ("XREAD COUNT 1 STREAMS", "-ERR syntax error"),
        ("XREAD BLOCK 0 STREAMS s none $ $", ""),
    ]);
    assert_eq!(client.time_out().as_deref(), Some(&b"*-1\r\n"[..]));
    let mut client = client.resp3();
    client.check(&[("XREAD STREAMS s 0", "%1 $1 s *1 *2 $3 1-0 *2 $1 f $1 1")]);
}

#[test]
fn what_is_known_of_a_stream() {
    let mut client = filled(3);
    client.run("XGROUP CREATE s g 1 ENTRIESREAD 1");
    client.run("XREADGROUP GROUP g a COUNT 1 STREAMS s >");
    client.now_ms += 5;
    let entry = |n: u32| format!("*2 $3 {n}-0 *2 $1 f $1 {n}");
    let head = "$6 length :3 $15 radix-tree-keys :1 $16 radix-tree-nodes :2 \
                $17 last-generated-id $3 3-0 $20 max-deleted-entry-id $3 0-0 $13 entries-added :3 \
                $23 recorded-first-entry-id $3 1-0";
    assert_eq!(
        client.run("XINFO STREAM s"),
        format!("*20 {head} $6 groups :1 $11 first-entry {} $10 last-entry {}", entry(1), entry(3))
    );
    assert_eq!(
        client.run("XINFO STREAM s FULL COUNT 1"),
        format!(
            "*18 {head} $7 entries *1 {} $6 groups *1 *14 $4 name $1 g $17 last-delivered-id \
             $3 2-0 \
             $12 entries-read :2 $3 lag :1 $9 pel-count :1 $7 pending *1 *4 $3 2-0 $1 a :{NOW} :1 \
             $9 consumers *1 *10 $4 name $1 a $9 seen-time :{NOW} $11 active-time :{NOW} \
             $9 pel-count :1 $7 pending *1 *3 $3 2-0 :{NOW} :1",
            entry(1)
        )
    );
    client.check(&[
        (
            "XINFO GROUPS s",
            "*1 *12 $4 name $1 g $9 consumers :1 $7 pending :1 $17 last-delivered-id $3 2-0 $12 \
             entries-read :2 $3 lag :1",
        ),
        ("XINFO CONSUMERS s g", "*1 *8 $4 name $1 a $7 pending :1 $4 idle :5 $8 inactive :5"),
        ("XINFO CONSUMERS s h", "-NOGROUP No such consumer group 'h' for key name 's'"),
        ("XINFO STREAM none", "-ERR no such key"),
        (
            "XINFO STREAM s FULL COUNT",
            "-ERR unknown subcommand or wrong number of arguments for 'STREAM'. Try XINFO HELP.",
        ),
        (
            "XSETID s 2",
            "-ERR The ID specified in XSETID is smaller than the target stream top item",
        ),
        (
            "XSETID s 9 ENTRIESADDED 2 MAXDELETEDID 0",
            "-ERR The entries_added specified in XSETID is smaller than the target stream length",
        ),
        ("XSETID s 9 ENTRIESADDED 20 MAXDELETEDID 8", "+OK"),
        (
            "XSETID s 7",
            "-ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        ),
        ("XSETID none 7", "-ERR no such key"),
    ]);
}

#[test]
fn events() {
    let mut client = Client::new();
    client.core.space.settings.notify.store(u32::MAX, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(client.events("XADD s MAXLEN 0 1 f v"), ["0:new:s", "0:xadd:s", "0:xtrim:s"]);
    assert_eq!(client.events("XADD s 2 f v"), ["0:xadd:s"]);
    assert_eq!(client.events("XGROUP CREATE s g 0"), ["0:xgroup-create:s"]);
    assert_eq!(client.events("XREADGROUP GROUP g a STREAMS s >"), ["0:xgroup-createconsumer:s"]);
    assert_eq!(client.events("XGROUP DELCONSUMER s g a"), ["0:xgroup-delconsumer:s"]);
    assert_eq!(client.events("XGROUP SETID s g $"), ["0:xgroup-setid:s"]);
    assert_eq!(client.events("XDEL s 2"), ["0:xdel:s"]);
    assert_eq!(client.events("XSETID s 9"), ["0:xsetid:s"]);
    assert_eq!(client.events("XGROUP DESTROY s g"), ["0:xgroup-destroy:s"]);
    assert_eq!(client.events("XTRIM s MAXLEN 0"), [""; 0]);
}

#[test]
fn a_copy_is_another_stream() {
    let mut client = filled(2);
    client.check(&[
        ("XGROUP CREATE s g 0", "+OK"),
        ("XREADGROUP GROUP g a COUNT 1 STREAMS s >", "*1 *2 $1 s *1 *2 $3 1-0 *2 $1 f $1 1"),
        ("COPY s t", ":1"),
        ("XACK s g 1", ":1"),
        ("XPENDING t g", "*4 :1 $3 1-0 $3 1-0 *1 *2 $1 a $1 1"),
        ("XADD t 3 f 3", "$3 3-0"),
        ("XLEN s", ":2"),
        ("SCAN 0 TYPE stream COUNT 100", "*2 $1 0 *2 $1 s $1 t"),
    ]);
}
