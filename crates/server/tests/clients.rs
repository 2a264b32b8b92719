//! CLIENT, MONITOR and blocked clients, across threads.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::{Client, Server, eventually, line};

fn blocked_count(server: &Server) -> u64 {
    server.shared().total(|counts| counts.blocked.load(Ordering::Relaxed) as u64)
}

fn field(list: &str, id: u64, name: &str) -> String {
    let line = list.lines().find(|line| line.starts_with(&format!("id={id} "))).unwrap_or("");
    let mut fields = line.split(' ').filter_map(|field| field.split_once('='));
    fields.find(|(key, _)| *key == name).map_or_else(String::new, |(_, value)| value.into())
}

#[test]
fn client_list_tells_the_state_of_every_thread_s_clients() {
    for threads in [1, 2] {
        let server = Server::new(threads);
        let [mut looks, mut waits, mut multi, mut listens, mut watches] = server.clients();
        let ids = [looks.id(), waits.id(), multi.id(), listens.id(), watches.id()];
        waits.send(&line("BLPOP list 0"));
        multi.check(&[("SELECT 3", "OK"), ("WATCH k", "OK"), ("MULTI", "OK"), ("GET k", "QUEUED")]);
        listens.check(&[
            ("CLIENT SETNAME ear", "OK"),
            ("CLIENT SETINFO LIB-NAME lib", "OK"),
            ("SUBSCRIBE a", "[subscribe a 1]"),
            ("PSUBSCRIBE b*", "[psubscribe b* 2]"),
            ("SSUBSCRIBE c", "[ssubscribe c 1]"),
        ]);
        watches.check(&[("WATCH w", "OK"), ("CLIENT NO-TOUCH on", "OK")]);
        looks.check(&[("SET w 1", "OK")]);
        eventually("one waits", || blocked_count(&server) == 1);
        let list = looks.call("CLIENT LIST");
        assert_eq!(list.lines().count(), 5);
        let of = |index: usize, name: &str| field(&list, ids[index], name);
        let flags: Vec<String> = (0..5).map(|index| of(index, "flags")).collect();
        assert_eq!(flags, ["N", "b", "x", "P", "dT"]);
        assert_eq!([of(0, "cmd"), of(1, "cmd")], ["client|list", "blpop"]);
        assert_eq!([of(2, "db"), of(2, "multi"), of(2, "watch")], ["3", "1", "1"]);
        assert_eq!([of(3, "sub"), of(3, "psub"), of(3, "ssub")], ["1", "1", "1"]);
        assert_eq!([of(3, "name"), of(3, "lib-name")], ["ear", "lib"]);
        assert_eq!([of(0, "qbuf"), of(0, "argv-mem"), of(0, "resp")], ["26", "10", "2"]);
        let names: Vec<&str> = list.lines().next().unwrap().split(' ').collect();
        let names: Vec<&str> = names.iter().map(|field| field.split('=').next().unwrap()).collect();
        let want = "id addr laddr fd name age idle flags db sub psub ssub multi watch qbuf \
                    qbuf-free argv-mem multi-mem rbs rbp obl oll omem tot-mem events cmd user \
                    redir resp lib-name lib-ver";
        assert_eq!(names.join(" "), want);
        let pubsub = looks.call("CLIENT LIST TYPE pubsub");
        assert!(pubsub.starts_with(&format!("id={} ", ids[3])) && pubsub.lines().count() == 1);
        let chosen = looks.call(&format!("CLIENT LIST ID {} {} 999", ids[2], ids[0]));
        assert!(chosen.starts_with(&format!("id={} ", ids[2])) && chosen.lines().count() == 2);
    }
}

#[test]
fn a_client_that_is_killed_takes_nothing() {
    for threads in [1, 2] {
        let server = Server::new(threads);
        let [mut kills, mut one, mut other] = server.clients();
        let victims: [Client; 4] = server.clients();
        for mut victim in victims {
            let id = victim.id();
            victim.send(&line("BLPOP list other 0"));
            eventually("it waits", || blocked_count(&server) == 1);
            assert_eq!(kills.call(&format!("CLIENT KILL ID {id}")), "1");
            assert!(!kills.call("CLIENT LIST").contains(&format!("id={id} ")));
            assert!(victim.is_closed());
            eventually("nobody waits", || blocked_count(&server) == 0);
            assert_eq!(one.call("RPUSH list a"), "1");
            assert_eq!(other.call("LPOP list"), "a");
        }
        // The same when it goes by itself.
        let mut victim = server.client();
        victim.send(&line("BLPOP list 0"));
        eventually("it waits", || blocked_count(&server) == 1);
        drop(victim);
        eventually("nobody waits", || blocked_count(&server) == 0);
        assert_eq!(one.call("RPUSH list a"), "1");
        // Oneself: after the reply.
        let id = one.id();
        assert_eq!(one.call(&format!("CLIENT KILL ID {id} SKIPME no")), "1");
        assert!(one.is_closed());
        assert_eq!(other.call(&format!("CLIENT KILL ID {id}")), "0");
        assert_eq!(other.call("CLIENT KILL 1.2.3.4:5"), "-ERR No such client");
    }
}

#[test]
fn waits_can_be_ended_from_outside() {
    for threads in [1, 2] {
        let server = Server::new(threads);
        let [mut waits, mut ends] = server.clients();
        let id = waits.id();
        assert_eq!(ends.call(&format!("CLIENT UNBLOCK {id}")), "0");
        for (reason, want) in [
            ("", "nil"),
            (" TIMEOUT", "nil"),
            (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK"),
        ] {
            waits.send(&line("BLPOP list 0"));
            waits.send(&line("PING"));
            eventually("it waits", || blocked_count(&server) == 1);
            assert_eq!(ends.call(&format!("CLIENT UNBLOCK {id}{reason}")), "1");
            assert_eq!(ends.call(&format!("CLIENT UNBLOCK {id}{reason}")), "0");
            assert_eq!(waits.reply(), want);
            assert_eq!(waits.reply(), "PONG");
        }
        assert_eq!(waits.call("BLPOP list 0.05"), "nil");
        assert_eq!(ends.call("RPUSH list a"), "1");
        assert_eq!(waits.call("BLPOP list 0"), "[list a]");
    }
}

#[test]
fn served_and_unblocked_at_once_ends_one_way() {
    let server = Server::new(2);
    let [mut waits, mut feeds, mut ends] = server.clients();
    let id = waits.id();
    for round in 0..300 {
        waits.send(&line("BLPOP list 0"));
        eventually("it waits", || blocked_count(&server) == 1);
        feeds.send(&line("RPUSH list a"));
        ends.send(&line(&format!("CLIENT UNBLOCK {id}")));
        assert_eq!(feeds.reply(), "1");
        let unblocked = ends.reply() == "1";
        let got = waits.reply();
        assert_eq!(got == "nil", unblocked, "round {round}: {got}");
        assert_eq!(feeds.call("LLEN list"), if unblocked { "1" } else { "0" });
        feeds.call("DEL list");
        eventually("nobody waits", || blocked_count(&server) == 0);
    }
}

#[test]
fn a_pause_holds_writes_back() {
    for threads in [1, 2] {
        let server = Server::new(threads);
        let [mut pauses, mut writes, mut reads] = server.clients();
        let id = writes.id();
        pauses.check(&[("SET k 0", "OK"), ("CLIENT PAUSE 100000 WRITE", "OK")]);
        let mut bytes = line("GET k");
        bytes.extend(line("INCR k"));
        bytes.extend(line("GET k"));
        writes.send(&bytes);
        assert_eq!(writes.reply(), "0");
        assert!(writes.is_silent());
        reads.check(&[("GET k", "0"), ("PUBSUB NUMPAT", "0")]);
        let list = reads.call("CLIENT LIST");
        assert_eq!([field(&list, id, "flags"), blocked_count(&server).to_string()], ["b", "1"]);
        // Behind it, others queue; a closed one is forgotten.
        let mut gone = server.client();
        gone.send(&line("SET k 9"));
        eventually("two wait", || blocked_count(&server) == 2);
        drop(gone);
        eventually("one waits", || blocked_count(&server) == 1);
        reads.check(&[("CLIENT PAUSE 1 WRITE", "OK"), ("GET k", "0")]);
        assert!(writes.is_silent());
        pauses.check(&[("CLIENT UNPAUSE", "OK")]);
        assert_eq!([writes.reply(), writes.reply()], ["1", "1"]);
        assert_eq!(blocked_count(&server), 0);
        // A pause of everything that ends by itself, over a transaction.
        writes.check(&[("MULTI", "OK"), ("INCR k", "QUEUED")]);
        let start = Instant::now();
        pauses.check(&[("CLIENT PAUSE 150", "OK")]);
        reads.send(&line("GET k"));
        writes.send(&line("EXEC"));
        assert_eq!(writes.reply(), "[2]");
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(145), "{took:?}");
        assert!(took < Duration::from_millis(1000), "{took:?}");
        assert!(["1", "2"].contains(&reads.reply().as_str()));
    }
}

#[test]
fn replies_can_be_switched_off() {
    let server = Server::new(2);
    let [mut client, mut other] = server.clients();
    let silent = ["CLIENT REPLY SKIP", "PING"];
    let cases: &[(&[&str], &[&str])] = &[
        (&["CLIENT REPLY SKIP", "PING", "ECHO a", "ECHO b"], &["a", "b"]),
        (&["CLIENT REPLY SKIP", "CLIENT REPLY SKIP", "PING", "ECHO a"], &["a"]),
        (&["CLIENT REPLY OFF", "PING", "CLIENT REPLY SKIP", "PING", "CLIENT REPLY ON"], &["OK"]),
        (&["CLIENT REPLY SKIP", "CLIENT REPLY ON", "PING"], &["OK", "PONG"]),
        (
            &["CLIENT REPLY OFF", "SUBSCRIBE c", "UNSUBSCRIBE c", "CLIENT REPLY ON"],
            &["[subscribe c 1]", "[unsubscribe c 0]", "OK"],
        ),
        (
            &["CLIENT REPLY SKIP", "SUBSCRIBE c", "UNSUBSCRIBE c"],
            &["[subscribe c 1]", "[unsubscribe c 0]"],
        ),
        (&["CLIENT REPLY OFF", "SET k v", "GET k", "CLIENT REPLY ON", "GET k"], &["OK", "v"]),
    ];
    for (commands, replies) in cases {
        commands.iter().for_each(|command| client.send(&line(command)));
        replies.iter().for_each(|want| assert_eq!(client.reply(), *want, "{commands:?}"));
        let all: Vec<u8> = commands.iter().flat_map(|command| line(command)).collect();
        client.send(&all);
        replies.iter().for_each(|want| assert_eq!(client.reply(), *want, "{commands:?}"));
    }
    silent.iter().for_each(|command| client.send(&line(command)));
    // A wait whose reply is not wanted.
    client.send(&line("CLIENT REPLY SKIP"));
    client.send(&line("BLPOP list 0"));
    client.send(&line("ECHO after"));
    eventually("it waits", || blocked_count(&server) == 1);
    assert_eq!(other.call("RPUSH list a"), "1");
    assert_eq!(client.reply(), "after");
    assert_eq!(client.call("PING"), "PONG");
}

#[test]
fn monitors_see_every_thread_s_commands_but_no_passwords() {
    for threads in [1, 2] {
        let server = Server::new(threads);
        let [mut monitor, mut one, mut other] = server.clients();
        assert_eq!(monitor.call("MONITOR"), "OK");
        one.call("SELECT 2");
        one.call("SET k \"\n");
        other.call("AUTH default secret");
        other.call("HELLO 3 AUTH default secret");
        one.call("CLIENT LIST");
        other.check(&[("MULTI", "OK"), ("GET k", "QUEUED"), ("EXEC", "[nil]")]);
        let want = [
            "\"SELECT\" \"2\"",
            "\"SET\" \"k\" \"\\\"\\n\"",
            "\"AUTH\" \"(redacted)\" \"(redacted)\"",
            "\"HELLO\" \"3\" \"AUTH\" \"(redacted)\" \"(redacted)\"",
            "\"MULTI\"",
        ];
        for want in want {
            let line = monitor.reply();
            assert!(line.ends_with(want), "{line} is not {want}");
        }
        monitor.reply();
        monitor.reply();
        assert_eq!(monitor.call("GET k"), "-ERR Replica can't interact with the keyspace");
        assert_eq!(monitor.call("RESET"), "RESET");
        one.call("PING");
        assert_eq!(monitor.call("GET k"), "nil");
    }
}

#[test]
fn many_waits_leave_nothing_behind() {
    let server = Server::new(2);
    let [mut waits, mut feeds] = server.clients();
    for index in 0..2000 {
        waits.send(&line("BLPOP list other 3600"));
        feeds.call("RPUSH list a");
        assert_eq!(waits.reply(), "[list a]", "{index}");
    }
    let space = &server.shared().core.space;
    for shard in 0..keyspace::raw::shards::SHARDS {
        let held = space.lock_one(shard);
        assert!(held.shard(shard).waiting.as_ref().is_none_or(|waiting| waiting.is_empty()));
    }
}

#[test]
fn the_largest_clients_go_when_all_take_too_much() {
    for threads in [1, 2] {
        let server = Server::with(threads, &[("maxmemory-clients", "300kb")]);
        let [mut looks, mut exempt, mut large, mut small] = server.clients();
        exempt.check(&[("CLIENT NO-EVICT on", "OK")]);
        let half = |bytes: usize| {
            format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n{}", "v".repeat(bytes))
        };
        let input = |client: &mut Client, id, bytes| {
            let taken = || field(&client.call("CLIENT LIST"), id, "qbuf").parse::<usize>();
            let mut taken = taken;
            eventually("it has arrived", || taken().is_ok_and(|taken| taken >= bytes));
        };
        let (exempt_id, small_id) = (exempt.id(), small.id());
        exempt.send(half(200_000).as_bytes());
        input(&mut looks, exempt_id, 200_000);
        small.send(half(20_000).as_bytes());
        input(&mut looks, small_id, 20_000);
        large.send(half(100_000).as_bytes());
        assert!(large.is_closed());
        let info = looks.call("INFO");
        assert!(info.contains("evicted_clients:1\r\n"), "{info}");
        assert_eq!(looks.call("CLIENT LIST").lines().count(), 3);
    }
}

#[test]
fn a_large_transaction_counts_as_a_client_s_memory() {
    let server = Server::with(1, &[("maxmemory-clients", "100kb")]);
    let [mut looks, mut queues] = server.clients();
    queues.check(&[("MULTI", "OK")]);
    let value = "v".repeat(2000);
    let commands = line(&format!("SET k {value}")).repeat(100);
    // The server may close the connection before all of it has gone.
    let _ = queues.writer().write_all(&commands);
    eventually("it is closed", || looks.call("INFO stats").contains("evicted_clients:1\r\n"));
    looks.check(&[("CONFIG RESETSTAT", "OK"), ("EXISTS k", "0")]);
    assert!(looks.call("INFO stats").contains("evicted_clients:0\r\n"));
}

#[test]
fn large_values_are_freed_in_the_background_where_an_option_says_so() {
    let server = Server::new(1);
    let [mut client] = server.clients();
    let members: Vec<String> = (0..1000).map(|number| format!("m{number}")).collect();
    let add = format!("SADD s {}", members.join(" "));
    let mut freed = 0;
    for (option, end) in [
        ("lazyfree-lazy-user-del", "DEL s"),
        ("lazyfree-lazy-server-del", "SET s v"),
        ("lazyfree-lazy-expire", "PEXPIREAT s 1"),
    ] {
        for (value, more) in [("no", 0), ("yes", 1)] {
            client.check(&[(&format!("CONFIG SET {option} {value}"), "OK"), (&add, "1000")]);
            client.call(end);
            client.call("DEL s");
            freed += more;
            let want = format!("lazyfreed_objects:{freed}\r\n");
            eventually(option, || client.call("INFO memory").contains(&want));
        }
    }
    client.check(&[(&add, "1000"), ("UNLINK s", "1")]);
    let want = format!("lazyfreed_objects:{}\r\n", freed + 1);
    eventually("UNLINK", || client.call("INFO memory").contains(&want));
}
