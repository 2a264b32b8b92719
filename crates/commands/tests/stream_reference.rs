//! Random stream commands side by side with redis-server, where one is installed.
//!
//! The reference is Debian's Redis 7.0. Ids and times are given, so that no reply depends on a
//! clock; idle times are hidden, and so is the count of nodes of a tree that we do not have. What
//! later versions changed on purpose is left out: the lag after deletions, XINFO CONSUMERS.

mod common;

use common::pair::Pair;
use keyspace::random::Random;
use std::sync::atomic::Ordering;

struct Draw(Random);

impl Draw {
    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.0.below(of.len())]
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.0.below(one_in) == 0
    }

    fn key(&mut self) -> String {
        match self.0.below(40) {
            0 => "text".to_string(),
            1 => "none".to_string(),
            _ => format!("s{}", self.0.below(3)),
        }
    }

    fn group(&mut self) -> &'static str {
        self.one(&["g", "g", "h"])
    }

    fn consumer(&mut self) -> &'static str {
        self.one(&["anna", "bert", "carl"])
    }

    /// An id among those that are in use.
    fn id(&mut self, top: u64) -> String {
        let ms = top.saturating_sub(self.0.below(60) as u64);
        match self.0.below(30) {
            0 => "x-1".to_string(),
            1 => "007-0".to_string(),
            2 => "1-2-3".to_string(),
            3..8 => format!("{ms}-{}", self.0.below(3)),
            _ => format!("{ms}-0"),
        }
    }

    fn edge(&mut self, top: u64) -> String {
        match self.0.below(8) {
            0 | 1 => self.one(&["-", "+"]).to_string(),
            2 => format!("({}", self.id(top)),
            3 => self.0.below(top as usize + 1).to_string(),
            _ => self.id(top),
        }
    }

    fn add(&mut self, words: &mut Vec<String>, top: &mut u64) {
        let key = self.key();
        push(words, &["XADD", &key]);
        if self.chance(10) {
            push(words, &["NOMKSTREAM"]);
        }
        if self.chance(6) {
            self.trim(words, *top);
        }
        match self.0.below(12) {
            0 => words.push(self.id(*top)),
            1 => words.push(format!("{top}-*")),
            _ => {
                *top += 1 + self.0.below(3) as u64;
                words.push(format!("{top}-{}", self.0.below(2)));
            }
        }
        let fields: &[&str] = match self.0.below(4) {
            0 => &["f", "1", "g", "two"],
            1 => &["g", ""],
            2 => &["f", "-70000", "f", "x"],
            _ => &["f", "value"],
        };
        push(words, fields);
        if self.chance(40) {
            words.pop();
        }
    }

    fn trim(&mut self, words: &mut Vec<String>, top: u64) {
        let count = self.one(&["0", "3", "12", "30", "-1", "x"]).to_string();
        let by_length = self.chance(2);
        words.push(self.one(if by_length { &["MAXLEN", "maxlen"] } else { &["MINID"] }).into());
        if self.chance(2) {
            words.push(self.one(&["~", "~", "="]).to_string());
        }
        words.push(if by_length { count } else { self.id(top.saturating_sub(20)) });
        if self.chance(6) {
            let limit = self.one(&["0", "5", "12", "-1"]).to_string();
            words.extend(["LIMIT".to_string(), limit]);
        }
    }

    fn read(&mut self, words: &mut Vec<String>, top: u64) {
        let key = self.key();
        match self.0.below(5) {
            0 | 1 => {
                let name = self.one(&["XRANGE", "XREVRANGE"]);
                push(words, &[name, &key, &self.edge(top), &self.edge(top)]);
                if self.chance(2) {
                    push(words, &["COUNT", self.one(&["0", "1", "5", "-1", "x"])]);
                }
            }
            2 => push(words, &["XLEN", &key]),
            3 => push(words, &["XINFO", "STREAM", &key]),
            _ => {
                let other = self.key();
                let id = if self.chance(8) { "$".to_string() } else { self.id(top) };
                push(words, &["XREAD", "COUNT", self.one(&["0", "1", "4"]), "STREAMS"]);
                push(words, &[&key, &other, &id, &self.id(top)]);
            }
        }
    }

    fn group_command(&mut self, words: &mut Vec<String>, top: u64) {
        let (key, group, consumer) = (self.key(), self.group(), self.consumer());
        match self.0.below(9) {
            0 => {
                let id = if self.chance(3) { "$".to_string() } else { self.id(top) };
                push(words, &["XGROUP", "CREATE", &key, group, &id]);
                if self.chance(3) {
                    push(words, &[self.one(&["MKSTREAM", "NOPE"])]);
                }
                if self.chance(5) {
                    push(words, &["ENTRIESREAD", self.one(&["3", "-1", "-2"])]);
                }
            }
            1 => push(words, &["XGROUP", "SETID", &key, group, &self.id(top)]),
            2 if self.chance(4) => push(words, &["XGROUP", "DESTROY", &key, group]),
            3 if self.chance(3) => {
                push(words, &["XGROUP", "DELCONSUMER", &key, group, consumer]);
            }
            4 => push(words, &["XGROUP", "CREATECONSUMER", &key, group, consumer]),
            _ => {
                push(words, &["XREADGROUP", "GROUP", group, consumer]);
                push(words, &["COUNT", self.one(&["1", "2", "5"])]);
                if self.chance(6) {
                    push(words, &["NOACK"]);
                }
                let id = if self.chance(3) { self.id(top) } else { ">".to_string() };
                if self.chance(4) {
                    push(words, &["STREAMS", &key, &self.key(), &id, ">"]);
                } else {
                    push(words, &["STREAMS", &key, &id]);
                }
            }
        }
    }

    fn pending_command(&mut self, words: &mut Vec<String>, top: u64) {
        let (key, group, consumer) = (self.key(), self.group(), self.consumer());
        match self.0.below(7) {
            0 => push(words, &["XACK", &key, group, &self.id(top), &self.id(top)]),
            1 => push(words, &["XPENDING", &key, group]),
            2 | 3 => {
                push(words, &["XPENDING", &key, group]);
                if self.chance(3) {
                    push(words, &["IDLE", self.one(&["0", "50000", "1000000000"])]);
                }
                push(words, &[&self.edge(top), &self.edge(top), self.one(&["0", "3", "100"])]);
                if self.chance(2) {
                    push(words, &[consumer]);
                }
            }
            4 | 5 => {
                let idle = self.one(&["0", "50000", "1000000000", "x"]);
                push(words, &["XCLAIM", &key, group, consumer, idle, &self.id(top), &self.id(top)]);
                let options: [&[&str]; 5] = [
                    &["FORCE"],
                    &["JUSTID"],
                    &["IDLE", "100000"],
                    &["RETRYCOUNT", "7"],
                    &["TIME", "1000"],
                ];
                for option in options {
                    if self.chance(4) {
                        push(words, option);
                    }
                }
            }
            _ => {
                let idle = self.one(&["0", "50000", "1000000000"]);
                push(words, &["XAUTOCLAIM", &key, group, consumer, idle, &self.edge(top)]);
                push(words, &["COUNT", self.one(&["1", "3", "0"])]);
                if self.chance(3) {
                    push(words, &["JUSTID"]);
                }
            }
        }
    }

    fn command(&mut self, top: &mut u64, deletes: bool) -> Vec<String> {
        let mut words = Vec::new();
        match self.0.below(20) {
            0..7 => self.add(&mut words, top),
            7..10 => self.read(&mut words, *top),
            10..14 => self.group_command(&mut words, *top),
            14..18 => self.pending_command(&mut words, *top),
            18 => {
                let key = self.key();
                push(&mut words, &["XTRIM", &key]);
                self.trim(&mut words, *top);
            }
            _ if deletes => {
                push(&mut words, &["XDEL", &self.key(), &self.id(*top), &self.id(*top)]);
            }
            _ => push(&mut words, &["XINFO", "GROUPS", &self.key()]),
        }
        words
    }
}

fn push(words: &mut Vec<String>, more: &[&str]) {
    words.extend(more.iter().map(|word| word.to_string()));
}

/// Hides the idle times of XPENDING and the number of the tree's nodes.
fn mask(reply: &str) -> String {
    let mut words: Vec<&str> = reply.split(' ').collect();
    for at in 0..words.len().saturating_sub(6) {
        let is_pending = words[at] == "*4" && words[at + 5].starts_with(':');
        if is_pending && words[at + 1].starts_with('$') {
            words[at + 5] = ":idle";
        }
        if words[at] == "radix-tree-nodes" {
            words[at + 1] = ":nodes";
        }
    }
    words.join(" ")
}

/// Later versions make a consumer even if there is nothing for it: has it made first.
fn make_consumers(pair: &mut Pair, words: &[String]) {
    let mut make = |key: &str, group: &str, consumer: &str| {
        pair.check(&["XGROUP", "CREATECONSUMER", key, group, consumer]);
    };
    match words[0].as_str() {
        "XCLAIM" | "XAUTOCLAIM" => make(&words[1], &words[2], &words[3]),
        "XREADGROUP" => {
            let streams = words.iter().position(|word| word == "STREAMS").expect("always there");
            let keys = &words[streams + 1..];
            keys[..keys.len() / 2].iter().for_each(|key| make(key, &words[2], &words[3]));
        }
        _ => {}
    }
}

#[test]
fn streams_answer_as_redis_does() {
    let runs = [("s1", false, 1, true), ("s2", true, 2, true), ("s3", false, 3, false)];
    for (name, resp3, seed, deletes) in runs {
        let Some(mut pair) = Pair::start(name, resp3) else { return };
        pair.reference.run(&["CONFIG", "SET", "stream-node-max-entries", "5"]);
        let settings = &pair.ours.core.space.settings;
        settings.stream_node_max_entries.store(5, Ordering::Relaxed);
        pair.check_line("SET text some-text");
        let mut draw = Draw(Random::new(seed));
        let mut top = 100;
        for _ in 0..20_000 {
            let words = draw.command(&mut top, deletes);
            make_consumers(&mut pair, &words);
            pair.check_but(&words, mask);
        }
    }
}
