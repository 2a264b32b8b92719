//! Messages and keyspace events: who gets them, in which order.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Client, Server, line};
use keyspace::effects::class;

#[test]
fn subscriptions_are_confirmed_with_their_count() {
    for threads in [1, 2] {
        let server = Server::new(threads);
        let [mut listens, mut sends] = server.clients();
        listens.send(&line("SUBSCRIBE a b a"));
        assert_eq!(listens.reply(), "[subscribe a 1]");
        assert_eq!(listens.reply(), "[subscribe b 2]");
        assert_eq!(listens.reply(), "[subscribe a 2]");
        listens.check(&[
            ("PSUBSCRIBE a*", "[psubscribe a* 3]"),
            ("SSUBSCRIBE s", "[ssubscribe s 1]"),
            ("PING", "[pong ]"),
            ("PING x", "[pong x]"),
            (
                "GET k",
                "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
                 RESET are allowed in this context",
            ),
        ]);
        sends.check(&[
            ("PUBLISH a 1", "2"),
            ("PUBLISH b 2", "1"),
            ("PUBLISH c 3", "0"),
            ("SPUBLISH s 4", "1"),
            ("PUBSUB NUMSUB a b c", "[a 1 b 1 c 0]"),
            ("PUBSUB NUMPAT", "1"),
            ("PUBSUB CHANNELS a*", "[a]"),
            ("PUBSUB SHARDCHANNELS", "[s]"),
            ("PUBSUB SHARDNUMSUB s t", "[s 1 t 0]"),
        ]);
        let want = ["[message a 1]", "[pmessage a* a 1]", "[message b 2]", "[smessage s 4]"];
        want.iter().for_each(|want| assert_eq!(listens.reply(), *want));
        listens.check(&[("UNSUBSCRIBE b", "[unsubscribe b 2]"), ("RESET", "RESET")]);
        listens.check(&[
            ("UNSUBSCRIBE", "[unsubscribe nil 0]"),
            ("PUNSUBSCRIBE x", "[punsubscribe x 0]"),
            ("GET k", "nil"),
        ]);
        sends.check(&[("PUBLISH a 1", "0"), ("SPUBLISH s 1", "0"), ("PUBSUB CHANNELS", "[]")]);
        // RESP3: everything is allowed, own messages follow the reply.
        listens.call("HELLO 3");
        listens.check(&[("SUBSCRIBE a", ">[subscribe a 1]"), ("GET k", "nil")]);
        listens.check(&[("PUBLISH a x", "1"), ("PING", ">[message a x]")]);
        assert_eq!(listens.reply(), "PONG");
        listens.check(&[("MULTI", "OK"), ("PUBLISH a y", "QUEUED"), ("PING", "QUEUED")]);
        listens.check(&[("EXEC", "[1 PONG]"), ("PING", ">[message a y]")]);
        assert_eq!(listens.reply(), "PONG");
    }
}

#[test]
fn all_listeners_see_all_messages_in_one_order() {
    const MESSAGES: usize = 2000;
    let server = Server::new(2);
    let mut listeners: [Client; 4] = server.clients();
    for (index, listener) in listeners.iter_mut().enumerate() {
        // Half of them by pattern.
        listener.call(if index % 2 == 0 { "SUBSCRIBE c1 c2" } else { "PSUBSCRIBE c[12]" });
        if index % 2 == 0 {
            listener.reply();
        }
    }
    let senders: [Client; 3] = server.clients();
    std::thread::scope(|scope| {
        for (number, mut sender) in senders.into_iter().enumerate() {
            scope.spawn(move || {
                for index in 0..MESSAGES {
                    sender.send(&line(&format!("PUBLISH c{} {number}:{index}", index % 2 + 1)));
                    if index % 100 == 99 {
                        (0..100).for_each(|_| assert_eq!(sender.reply(), "4"));
                    }
                }
            });
        }
        let mut seen: Vec<Vec<String>> = Vec::new();
        for listener in &mut listeners {
            let text = |reply: String| reply.rsplit(' ').next().unwrap().to_string();
            seen.push((0..3 * MESSAGES).map(|_| text(listener.reply())).collect());
        }
        assert!(seen.iter().all(|other| *other == seen[0]));
    });
}

#[test]
fn nothing_comes_after_the_last_unsubscription_is_confirmed() {
    for threads in [1, 2] {
        let server = Server::new(threads);
        let [mut listens, mut sends] = server.clients();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    sends.send(&line("PUBLISH c x").repeat(20));
                    (0..20).for_each(|_| drop(sends.reply()));
                }
            });
            for _ in 0..300 {
                listens.send(&line("SUBSCRIBE c"));
                assert_eq!(listens.reply(), "[subscribe c 1]");
                listens.send(&line("UNSUBSCRIBE c"));
                listens.send(&line("PING"));
                loop {
                    match listens.reply().as_str() {
                        "[message c x]" => {}
                        "[unsubscribe c 0]" => break,
                        other => panic!("{other}"),
                    }
                }
                assert_eq!(listens.reply(), "PONG");
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn events_of_a_key_come_in_the_order_of_its_changes() {
    const CHANGES: usize = 1500;
    let server = Server::new(2);
    let notify = &server.shared().core.space.settings.notify;
    notify.store(class::KEYSPACE | class::ALL, Ordering::Relaxed);
    let mut listeners: [Client; 2] = server.clients();
    for listener in &mut listeners {
        assert_eq!(listener.call("PSUBSCRIBE __keyspace@0__:*"), "[psubscribe __keyspace@0__:* 1]");
    }
    let writers: [Client; 2] = server.clients();
    let mut events = 0;
    std::thread::scope(|scope| {
        let threads: Vec<_> = writers
            .into_iter()
            .map(|mut writer| {
                scope.spawn(move || {
                    let mut done = 0;
                    for index in 0..CHANGES {
                        // SET NX and DEL of the same keys by both: they take turns.
                        let key = index % 3;
                        writer.send(&line(&format!("SET k{key} v NX")));
                        writer.send(&line(&format!("DEL k{key}")));
                        done += usize::from(writer.reply() == "OK");
                        done += usize::from(writer.reply() == "1");
                    }
                    done
                })
            })
            .collect();
        events = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    });
    let mut all = Vec::new();
    for listener in &mut listeners {
        let mut last: HashMap<String, String> = HashMap::new();
        let mut seen = Vec::new();
        for _ in 0..events {
            let reply = listener.reply();
            let words: Vec<&str> = reply.trim_matches(['[', ']']).split(' ').collect();
            let (key, event) = (words[2].to_string(), words[3].to_string());
            let before = last.insert(key.clone(), event.clone());
            assert_ne!(before.unwrap_or_else(|| "del".into()), event, "{key}");
            seen.push(reply);
        }
        assert!(listener.is_silent());
        all.push(seen);
    }
    assert_eq!(all[0], all[1]);
}

#[test]
fn expired_keys_tell_listeners_of_all_threads() {
    let server = Server::new(2);
    let notify = &server.shared().core.space.settings.notify;
    notify.store(class::KEYEVENT | class::ALL, Ordering::Relaxed);
    let mut clients: [Client; 4] = server.clients();
    for client in &mut clients[..3] {
        client.call("SUBSCRIBE __keyevent@0__:expired");
    }
    for index in 0..20 {
        assert_eq!(clients[3].call(&format!("SET k{index} v PX 20")), "OK");
    }
    for client in &mut clients[..3] {
        let mut keys: Vec<String> = (0..20).map(|_| client.reply()).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 20);
    }
}
