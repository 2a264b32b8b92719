//! Connections: what arrives in pieces or all at once, half-closed ones, limits, ends.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use common::{Server, encode, eventually, line};
use forebay_server::shared::OutputLimits;

#[test]
fn a_client_that_shuts_down_its_side_still_gets_its_replies() {
    for threads in [1, 2] {
        let server = Server::new(threads);
        for _ in 0..20 {
            let mut client = server.client();
            client.send(b"PING\r\nECHO hello\r\n");
            client.shutdown_write();
            let mut all = String::new();
            client.stream.read_to_string(&mut all).unwrap();
            assert_eq!(all, "+PONG\r\n$5\r\nhello\r\n");
        }
        let mut client = server.client();
        let value = "x".repeat(100_000);
        assert_eq!(client.call(&format!("SET k {value}")), "OK");
        client.send(&line("GET k").repeat(300));
        client.shutdown_write();
        std::thread::sleep(std::time::Duration::from_millis(50));
        for _ in 0..300 {
            assert!(client.reply() == value);
        }
        assert!(client.is_closed());
        eventually("all are closed", || server.shared().all_clients().is_empty());
    }
}

/// Large values are not copied into the reply: it has more pieces here than one write takes, and
/// the socket has room for all of them, so no event would tell to go on.
#[test]
fn a_reply_of_many_pieces_is_sent_to_its_end() {
    let server = Server::new(1);
    let mut client = server.client();
    for bytes in [16_384, 20_000, 40_000, 100_000] {
        let value = "x".repeat(bytes);
        assert_eq!(client.call(&format!("SET k {value}")), "OK");
        client.send(&line("GET k").repeat(100));
        for _ in 0..100 {
            assert!(client.reply() == value);
        }
    }
}

#[test]
fn a_long_pipeline_is_answered_in_order() {
    const COMMANDS: usize = 100_000;
    for threads in [1, 2] {
        let server = Server::new(threads);
        let mut client = server.client();
        let mut writer = client.writer();
        let sender = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            for index in 0..COMMANDS {
                bytes.extend(match index % 4 {
                    0 => line(&format!("SET key:{index} {index}")),
                    1 => line(&format!("GET key:{}", index - 1)),
                    2 => line("INCR counter"),
                    _ => line(&format!("ECHO {index}")),
                });
            }
            writer.write_all(&bytes).unwrap();
        });
        for index in 0..COMMANDS {
            let want = match index % 4 {
                0 => "OK".into(),
                1 => (index - 1).to_string(),
                2 => (index / 4 + 1).to_string(),
                _ => index.to_string(),
            };
            assert_eq!(client.reply(), want);
        }
        sender.join().unwrap();
    }
}

#[test]
fn long_values_arrive_in_small_pieces() {
    let server = Server::new(2);
    let value: String = (0..1_000_000).map(|at| (b'a' + (at % 23) as u8) as char).collect();
    for piece in [1000, 3333, 40_000, 70_001] {
        let mut client = server.client();
        let mut bytes = encode(&["SET", "big", &value]);
        bytes.extend(encode(&["APPEND", "big", &value[..50_000]]));
        bytes.extend(line("STRLEN big"));
        bytes.extend(line("PING"));
        bytes.chunks(piece).for_each(|piece| client.send(piece));
        let replies: Vec<String> = (0..4).map(|_| client.reply()).collect();
        assert_eq!(replies, ["OK", "1050000", "1050000", "PONG"]);
        let got = client.call("GETRANGE big 0 999999");
        assert!(got == value);
    }
}

#[test]
fn input_waits_behind_a_command_that_waits() {
    let value = "v".repeat(300_000);
    for threads in [1, 2] {
        let server = Server::new(threads);
        let [mut waits, mut feeds] = server.clients();
        for piece in [usize::MAX, 50_000, 1000] {
            let mut bytes = line("BLPOP list 0");
            bytes.extend(line("SET small 1").repeat(20));
            bytes.extend(encode(&["SET", "big", &value]));
            bytes.extend(line("BLPOP list 0"));
            bytes.extend(line("STRLEN big"));
            // One part comes before the wait has ended, the other one after it.
            let (first, second) = bytes.split_at(bytes.len() - 150_000);
            first.chunks(piece.min(first.len())).for_each(|piece| waits.send(piece));
            let blocked =
                || server.shared().total(|c| c.blocked.load(Ordering::Relaxed) as u64) == 1;
            eventually("it waits", blocked);
            assert_eq!(feeds.call("RPUSH list a"), "1");
            assert_eq!(waits.reply(), "[list a]");
            (0..20).for_each(|_| assert_eq!(waits.reply(), "OK"));
            second.chunks(piece.min(second.len())).for_each(|piece| waits.send(piece));
            assert_eq!(waits.reply(), "OK");
            eventually("it waits again", blocked);
            assert_eq!(feeds.call("RPUSH list b"), "1");
            assert_eq!(waits.reply(), "[list b]");
            assert_eq!(waits.reply(), "300000");
        }
    }
}

#[test]
fn nonsense_behind_a_command_that_waits_is_refused_after_it() {
    let server = Server::new(2);
    let [mut waits, mut feeds] = server.clients();
    waits.send(&line("BLPOP list 0"));
    waits.send(b"*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n!");
    assert!(waits.is_silent());
    assert_eq!(feeds.call("RPUSH list a"), "1");
    assert_eq!(waits.reply(), "[list a]");
    assert_eq!(waits.reply(), "PONG");
    assert_eq!(waits.reply(), "-ERR Protocol error: expected '$', got '!'");
    assert!(waits.is_closed());

    // The same in one piece.
    let [mut waits] = server.clients();
    waits.send(b"BLPOP list 0\r\nPING\r\n*2\r\n$4\r\nECHO\r\n!");
    assert!(waits.is_silent());
    assert_eq!(feeds.call("RPUSH list a"), "1");
    assert_eq!(waits.reply(), "[list a]");
    assert_eq!(waits.reply(), "PONG");
    assert_eq!(waits.reply(), "-ERR Protocol error: expected '$', got '!'");
    assert!(waits.is_closed());
}

#[test]
fn what_follows_quit_is_not_run() {
    let server = Server::new(1);
    let [mut client, mut other] = server.clients();
    let mut bytes = line("SET a 1");
    bytes.extend(line("QUIT"));
    bytes.extend(line("SET a 2").repeat(20_000));
    client.send(&bytes);
    assert_eq!(client.reply(), "OK");
    assert_eq!(client.reply(), "OK");
    assert!(client.is_closed());
    assert_eq!(other.call("GET a"), "1");
}

#[test]
fn clients_that_read_too_slowly_are_closed() {
    for threads in [1, 2] {
        let server = Server::new(threads);
        let limits = OutputLimits { hard_bytes: 1 << 20, soft_bytes: 0, soft_seconds: 0 };
        server.shared().set_output_limits(0, limits);
        server.shared().set_output_limits(1, limits);
        let [mut slow, mut listens, mut other] = server.clients();
        let value = "x".repeat(100_000);
        assert_eq!(other.call(&format!("SET k {value}")), "OK");
        let id = slow.id();
        slow.send(&line("GET k").repeat(1000));
        let gone = |id| server.shared().all_clients().iter().all(|client| client.id != id);
        eventually("the one that asks too much is closed", || gone(id));
        let id = listens.id();
        assert_eq!(listens.call("SUBSCRIBE c"), "[subscribe c 1]");
        let mut sent = 0;
        while !gone(id) {
            other.call(&format!("PUBLISH c {value}"));
            sent += 1;
            assert!(sent < 1000);
        }
        assert_eq!(other.call("PUBSUB NUMSUB c"), "[c 0]");
        assert_eq!(other.call("PING"), "PONG");
    }
}

#[test]
fn unauthenticated_clients_may_send_little() {
    let server = Server::with(2, &[("requirepass", "secret")]);
    let value = "x".repeat(20_000);
    let mut client = server.client();
    client.send(&line(&format!("SET k {value}")));
    assert_eq!(client.reply(), "-ERR Protocol error: unauthenticated bulk length");
    assert!(client.is_closed());
    let mut client = server.client();
    client.check(&[
        ("GET k", "-NOAUTH Authentication required."),
        ("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("PING", "-NOAUTH Authentication required."),
    ]);
    // In one piece: what comes after AUTH has the usual limits.
    let mut bytes = line("AUTH secret");
    bytes.extend(line(&format!("SET k {value}")));
    bytes.extend(line("STRLEN k"));
    client.send(&bytes);
    assert_eq!([client.reply(), client.reply(), client.reply()], ["OK", "OK", "20000"]);
    client.check(&[
        ("RESET", "RESET"),
        ("GET k", "-NOAUTH Authentication required."),
        ("AUTH default secret", "OK"),
        ("STRLEN k", "20000"),
    ]);
    let mut client = server.client();
    let hello = client.call("HELLO 3 AUTH default secret SETNAME me");
    assert!(hello.starts_with("{server redis version "), "{hello}");
    assert!(hello.contains(" proto 3 id "), "{hello}");
    client.check(&[("CLIENT GETNAME", "me"), ("GET none", "nil")]);
}

#[test]
fn too_much_input_ends_a_client() {
    let server = Server::with(2, &[("client-query-buffer-limit", "1mb")]);
    let [mut waits, mut queues] = server.clients();
    let (waits_id, queues_id) = (waits.id(), queues.id());
    let gone = |id| server.shared().all_clients().iter().all(|client| client.id != id);
    waits.send(&line("BLPOP list 0"));
    let mut writer = waits.writer();
    for _ in 0..100 {
        let _ = writer.write_all(&encode(&["SET", "k", &"x".repeat(20_000)]));
    }
    eventually("the one that waits is closed", || gone(waits_id));
    assert_eq!(queues.call("MULTI"), "OK");
    let mut writer = queues.writer();
    for _ in 0..100 {
        let _ = writer.write_all(&encode(&["SET", "k", &"x".repeat(20_000)]));
    }
    eventually("the one that queues is closed", || gone(queues_id));
}
