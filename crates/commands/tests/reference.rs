//! The same replies, byte for byte, as redis-server's, where one is installed: random commands run
//! side by side. Without one the tests pass and say so.
//!
//! The reference is Debian's Redis 7.0, which prints doubles with seventeen digits: scores here are
//! such that every version prints them alike.

mod common;

use common::pair::Pair;
use keyspace::random::Random;

/// Draws words for commands.
struct Draw(Random);

impl Draw {
    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.0.below(of.len())]
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.0.below(one_in) == 0
    }

    fn zset(&mut self) -> String {
        if self.chance(40) {
            return self.one(&["text", "plain", "none"]).to_string();
        }
        format!("z{}", self.0.below(4))
    }

    /// A set of one score: by string Redis promises nothing for others.
    fn lex_set(&mut self) -> String {
        format!("lex{}", self.0.below(2))
    }

    fn member(&mut self) -> String {
        match self.0.below(8) {
            0 => self.0.below(30).to_string(),
            1 => format!("a-long-member-{}", self.0.below(10)),
            _ => format!("m{}", self.0.below(25)),
        }
    }

    fn score(&mut self) -> String {
        match self.0.below(40) {
            0 => self.one(&["inf", "-inf", "+inf", "1e3", "0x10", "-0"]).to_string(),
            1 => self.one(&["nan", "abc", "", "1e400", "1 "]).to_string(),
            _ => ((self.0.below(80) as f64 - 40.0) / 4.0).to_string(),
        }
    }

    fn edge(&mut self) -> String {
        let open = if self.chance(3) { "(" } else { "" };
        format!("{open}{}", self.score())
    }

    fn lex_edge(&mut self) -> String {
        match self.0.below(8) {
            0 => "-".to_string(),
            1 => "+".to_string(),
            2 => self.member(),
            3 => format!("({}", self.member()),
            _ => format!("[{}", self.member()),
        }
    }

    fn index(&mut self) -> String {
        (self.0.below(30) as i64 - 12).to_string()
    }

    fn limit(&mut self, words: &mut Vec<String>) {
        if self.chance(2) {
            let count = self.one(&["-1", "0", "1", "3", "100", "-2"]).to_string();
            let offset = self.one(&["0", "0", "1", "2", "5", "-1", "50"]).to_string();
            words.extend(["LIMIT".to_string(), offset, count]);
        }
    }

    fn maybe(&mut self, words: &mut Vec<String>, one_in: usize, option: &str) {
        if self.chance(one_in) {
            words.push(option.to_string());
        }
    }

    /// A command of the sorted set family; whatever reads at random or blocks is left out.
    fn zset_command(&mut self) -> Vec<String> {
        match self.0.below(32) {
            0..12 => self.add_command(),
            12..16 => self.member_command(),
            16..22 => self.range_command(),
            22..24 => self.span_command(),
            24..28 => self.algebra_command(),
            28..31 => self.pop_command(),
            _ => {
                let key = self.zset();
                match self.0.below(3) {
                    // Sets are listpacks only since Redis 7.2.
                    0 if key != "plain" => words(&["OBJECT", "ENCODING", &key]),
                    1 => words(&["DEL", &key]),
                    _ => words(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]),
                }
            }
        }
    }

    fn add_command(&mut self) -> Vec<String> {
        if self.chance(5) {
            let mut words = words(&["ZADD", &self.lex_set()]);
            for _ in 0..1 + self.0.below(3) {
                words.extend(["0".to_string(), self.member()]);
            }
            return words;
        }
        let mut words = words(&["ZADD", &self.zset()]);
        let options = [("NX", 12), ("XX", 12), ("GT", 12), ("LT", 12), ("CH", 6), ("INCR", 12)];
        for (option, one_in) in options {
            self.maybe(&mut words, one_in, option);
        }
        for _ in 0..1 + self.0.below(3) {
            words.extend([self.score(), self.member()]);
        }
        words
    }

    fn member_command(&mut self) -> Vec<String> {
        let (key, member, score) = (self.zset(), self.member(), self.score());
        match self.0.below(7) {
            0 => words(&["ZINCRBY", &key, &score, &member]),
            1 | 2 => words(&["ZREM", &key, &member, &self.member()]),
            3 => words(&["ZCARD", &key]),
            4 => words(&["ZSCORE", &key, &member]),
            5 => words(&["ZMSCORE", &key, &member, &self.member()]),
            _ => words(&[self.one(&["ZRANK", "ZREVRANK"]), &key, &member]),
        }
    }

    fn range_command(&mut self) -> Vec<String> {
        let key = self.zset();
        let mut words = match self.0.below(6) {
            0 => {
                let mut words = words(&["ZRANGESTORE", &self.zset(), &key]);
                self.range(&mut words, 2);
                self.maybe(&mut words, 3, "rev");
                words
            }
            1 => words(&["ZREVRANGE", &key, &self.index(), &self.index()]),
            2 => {
                let name = self.one(&["ZRANGEBYSCORE", "ZREVRANGEBYSCORE"]);
                words(&[name, &key, &self.edge(), &self.edge()])
            }
            3 => {
                let name = self.one(&["ZRANGEBYLEX", "ZREVRANGEBYLEX"]);
                words(&[name, &self.lex_set(), &self.lex_edge(), &self.lex_edge()])
            }
            _ => {
                let mut words = words(&["ZRANGE", &key]);
                self.range(&mut words, 1);
                self.maybe(&mut words, 3, "REV");
                words
            }
        };
        self.maybe(&mut words, 3, "WITHSCORES");
        self.limit(&mut words);
        words
    }

    /// A range is removed or counted.
    fn span_command(&mut self) -> Vec<String> {
        let key = self.zset();
        match self.0.below(5) {
            0 => words(&["ZREMRANGEBYRANK", &key, &self.index(), &self.index()]),
            1 => words(&["ZREMRANGEBYSCORE", &key, &self.edge(), &self.edge()]),
            2 => words(&["ZCOUNT", &key, &self.edge(), &self.edge()]),
            3 => words(&["ZREMRANGEBYLEX", &self.lex_set(), &self.lex_edge(), &self.lex_edge()]),
            _ => words(&["ZLEXCOUNT", &self.lex_set(), &self.lex_edge(), &self.lex_edge()]),
        }
    }

    fn pop_command(&mut self) -> Vec<String> {
        let key = self.zset();
        if self.chance(2) {
            let mut words = words(&[self.one(&["ZPOPMIN", "ZPOPMAX"]), &key]);
            if self.chance(2) {
                words.push(self.one(&["0", "1", "2", "5", "-1", "x"]).to_string());
            }
            return words;
        }
        let count = 1 + self.0.below(2);
        let mut words = words(&["ZMPOP", &count.to_string(), &key]);
        if count == 2 {
            words.push(self.zset());
        }
        words.push(self.one(&["MIN", "max", "MAX", "min", "mid"]).to_string());
        if self.chance(2) {
            words.push("COUNT".to_string());
            words.push(self.one(&["1", "3", "0", "x"]).to_string());
        }
        words
    }

    /// Minimum, maximum and kind of a range of the set that is the word at `key`.
    fn range(&mut self, words: &mut Vec<String>, key: usize) {
        match self.0.below(3) {
            0 => words.extend([self.index(), self.index()]),
            1 => words.extend([self.edge(), self.edge(), "BYSCORE".to_string()]),
            _ => {
                words[key] = self.lex_set();
                words.extend([self.lex_edge(), self.lex_edge(), "bylex".to_string()]);
            }
        }
    }

    fn algebra_command(&mut self) -> Vec<String> {
        let name = self.one(&["ZUNION", "ZINTER", "ZDIFF", "ZINTERCARD"]);
        let is_store = name != "ZINTERCARD" && self.chance(2);
        let mut words = vec![if is_store { format!("{name}STORE") } else { name.to_string() }];
        if is_store {
            words.push(self.zset());
        }
        let count = self.0.below(4);
        words.push(count.to_string());
        for _ in 0..count {
            let key = if self.chance(5) { "plain".to_string() } else { self.zset() };
            words.push(key);
        }
        if self.chance(3) {
            words.push("WEIGHTS".to_string());
            for _ in 0..count {
                words.push(self.one(&["1", "2", "0.5", "-1", "inf", "0", "x"]).to_string());
            }
        }
        if self.chance(3) {
            words.push("AGGREGATE".to_string());
            words.push(self.one(&["SUM", "min", "MAX", "avg"]).to_string());
        }
        self.maybe(&mut words, 3, "WITHSCORES");
        if self.chance(4) {
            words.extend(["LIMIT".to_string(), self.one(&["0", "1", "3", "-1"]).to_string()]);
        }
        words
    }
}

fn words(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| part.to_string()).collect()
}

/// Whether our reply says that this command belongs to a family that is not there.
fn is_unknown(reply: &str) -> bool {
    reply.starts_with("-ERR unknown command")
}

#[test]
fn sorted_sets_answer_as_redis_does() {
    for (name, resp3, seed) in [("zset2", false, 1), ("zset3", true, 2)] {
        let Some(mut pair) = Pair::start(name, resp3) else { return };
        for (option, value) in
            [("zset-max-listpack-entries", "8"), ("zset-max-listpack-value", "12")]
        {
            pair.reference.run(&["CONFIG", "SET", option, value]);
        }
        let settings = &pair.ours.core.space.settings;
        settings.zset_max_listpack_entries.store(8, std::sync::atomic::Ordering::Relaxed);
        settings.zset_max_listpack_value.store(12, std::sync::atomic::Ordering::Relaxed);
        pair.check_line("SET text some-text");
        let has_sets = !is_unknown(&pair.ours.run("SADD plain m1 m2 m3 7 8"));
        if has_sets {
            pair.reference.run(&["SADD", "plain", "m1", "m2", "m3", "7", "8"]);
        }
        let known =
            ["DEL none", "OBJECT ENCODING text"].map(|line| !is_unknown(&pair.ours.run(line)));
        let mut draw = Draw(Random::new(seed));
        for _ in 0..20_000 {
            let words = draw.zset_command();
            let skipped = match words[0].as_str() {
                "DEL" => !known[0],
                // Redis 7.0 has no listpacks of set members yet.
                "OBJECT" => !known[1] || words[2] == "plain",
                _ => false,
            };
            if !skipped {
                pair.check(&words);
            }
        }
    }
}

#[test]
fn blocking_pops_in_transactions_answer_as_redis_does() {
    let Some(mut pair) = Pair::start("zblock", false) else { return };
    for line in [
        "ZADD z 1 a 2 b 3 c 4 d",
        "SET text x",
        "MULTI",
        "BZPOPMIN none z 0",
        "BZPOPMAX z none 0",
        "BZMPOP 0 2 none z MIN COUNT 1",
        "BZPOPMIN none 0",
        "BZMPOP 0 1 none MAX",
        "BZPOPMIN text 0",
        "EXEC",
        "BZPOPMIN z 0",
        "BZPOPMIN z x",
        "BZPOPMIN z -1",
        "BZMPOP 0 0 z MIN",
        "BZMPOP 0 1 z",
        "BZMPOP 0 1 z MID",
        "BZMPOP 0 1 z MIN COUNT 0",
        "BZMPOP x 1 z MIN",
        "BZPOPMAX text 0",
    ] {
        pair.check_line(line);
    }
}

#[test]
fn hyperloglogs_have_the_same_bytes() {
    let Some(mut pair) = Pair::start("hll", false) else { return };
    let mut random = Random::new(11);
    for (round, steps) in [10, 300, 1500, 3000, 200, 40].into_iter().enumerate() {
        let key = format!("hll{round}");
        pair.check(&["PFADD", &key]);
        for step in 0..steps {
            let mut words = vec![b"PFADD".to_vec(), key.clone().into_bytes()];
            for _ in 0..1 + random.below(4) {
                words.push((0..random.below(20)).map(|_| random.bits() as u8).collect());
            }
            pair.check(&words);
            if step % 7 == 0 || step + 1 == steps {
                pair.check(&["GET", &key]);
            }
            if step % 50 == 0 || step + 1 == steps {
                pair.check(&["PFCOUNT", &key]);
                pair.check(&["GET", &key]);
            }
        }
        pair.check(&["PFDEBUG", "ENCODING", &key]);
        pair.check(&["PFDEBUG", "DECODE", &key]);
    }
    for (one, other) in [(0, 1), (1, 4), (4, 3), (2, 3), (5, 0)] {
        let [one, other] = [one, other].map(|number| format!("hll{number}"));
        let merged = format!("{one}{other}");
        pair.check(&["PFCOUNT", &one, &other, "none"]);
        pair.check(&["PFMERGE", &merged, &one, &other]);
        pair.check(&["GET", &merged]);
        pair.check(&["PFCOUNT", &merged]);
        pair.check(&["PFDEBUG", "GETREG", &merged]);
        pair.check(&["PFDEBUG", "TODENSE", &merged]);
    }
    for line in [
        "SET text x",
        "PFADD text a",
        "PFCOUNT text",
        "PFMERGE hll0 text",
        "SET number 5",
        "PFADD number a",
        "ZADD z 1 a",
        "PFADD z a",
        "PFCOUNT hll0 z",
        "PFDEBUG GETREG none",
        "PFDEBUG NOSUCH hll0",
        "PFMERGE fresh",
        "GET fresh",
        "APPEND hll0 xx",
        "PFCOUNT hll0 hll1",
        "PFADD hll0 element another",
        "PFDEBUG DECODE hll1",
    ] {
        pair.check_line(line);
    }
}

/// A coordinate of up to `max` degrees.
fn degrees(random: &mut Random, max: f64) -> String {
    ((random.bits() as f64 / u64::MAX as f64 * 2.0 - 1.0) * max).to_string()
}

#[test]
fn positions_and_searches_are_the_same() {
    const LATITUDE_MAX: f64 = 85.05112878;
    for (name, resp3) in [("geo2", false), ("geo3", true)] {
        let Some(mut pair) = Pair::start(name, resp3) else { return };
        let mut random = Random::new(23);
        for index in 0..2000 {
            let member = format!("p{index}");
            let (longitude, latitude) =
                (degrees(&mut random, 180.0), degrees(&mut random, LATITUDE_MAX));
            pair.check(&["GEOADD", "geo", &longitude, &latitude, &member]);
        }
        for index in 0..1000 {
            let [one, other] = [index, (index * 17 + 5) % 2100].map(|n| format!("p{n}"));
            pair.check(&["GEOHASH", "geo", &one, &other]);
            pair.check(&["GEOPOS", "geo", &one, &other]);
            pair.check(&["GEODIST", "geo", &one, &other, ["m", "km", "FT", "mi"][index % 4]]);
        }
        for round in 0..600 {
            let words = search_words(&mut random, round);
            pair.check(&words);
        }
        for line in GEO_LINES {
            pair.check_line(line);
        }
    }
}

fn search_words(random: &mut Random, round: usize) -> Vec<String> {
    let size = |random: &mut Random| {
        let exponent = 2.0 + random.below(6000) as f64 / 1000.0;
        (10f64.powf(exponent).round() / 1000.0).to_string()
    };
    let mut words: Vec<String> = Vec::new();
    let say = |words: &mut Vec<String>, parts: &[&str]| {
        words.extend(parts.iter().map(|part| part.to_string()));
    };
    let store = round.is_multiple_of(7);
    say(
        &mut words,
        if store { &["GEOSEARCHSTORE", "found", "geo"] } else { &["GEOSEARCH", "geo"] },
    );
    if round.is_multiple_of(5) {
        say(&mut words, &["FROMMEMBER", &format!("p{}", random.below(2000))]);
    } else {
        let latitude_max = [60.0, 85.05112878][round % 2];
        let longitude = degrees(random, 180.0);
        say(&mut words, &["FROMLONLAT", &longitude, &degrees(random, latitude_max)]);
    }
    if round.is_multiple_of(3) {
        let width = size(random);
        say(&mut words, &["BYBOX", &width, &size(random)]);
    } else {
        say(&mut words, &["BYRADIUS", &size(random)]);
    }
    say(&mut words, &[["m", "km", "ft", "mi"][random.below(4)]]);
    if !store {
        say(&mut words, &["WITHDIST", "WITHCOORD", "WITHHASH"][..random.below(4)]);
    }
    match random.below(4) {
        0 => say(&mut words, &["ASC"]),
        1 => say(&mut words, &["DESC", "COUNT", "5"]),
        2 => say(&mut words, &["COUNT", "3", "ANY"]),
        _ => {}
    }
    words
}

const GEO_LINES: &[&str] = &[
    "ZRANGE found 0 -1 WITHSCORES",
    "SET text x",
    "GEOADD geo 200 10 x",
    "GEOADD geo 10 100 x",
    "GEOADD geo a 100 x",
    "GEOADD geo NX XX 10 10 x",
    "GEOADD geo NX 10 10",
    "GEOADD geo CH 10 10 x 11 11 y",
    "GEOADD geo CH XX 10.5 10 x 11 11 y 12 12 z",
    "GEOADD geo NX 10 10 x 13 13 w",
    "GEOADD text 10 10 x",
    "GEODIST geo x y",
    "GEODIST geo x nosuch",
    "GEODIST none x y",
    "GEODIST geo x y parsec",
    "GEODIST geo x y km more",
    "GEOHASH none a b",
    "GEOPOS none a b",
    "GEOPOS geo",
    "GEOHASH text a",
    "GEORADIUS geo 10 10 200 km",
    "GEORADIUS geo 10 10 200 km ASC WITHDIST WITHHASH WITHCOORD COUNT 2",
    "GEORADIUS geo 10 10 200 km STORE out",
    "ZRANGE out 0 -1 WITHSCORES",
    "GEORADIUS geo 10 10 0 km STORE out",
    "ZRANGE out 0 -1",
    "GEORADIUS geo 10 10 200 km STORE out WITHDIST",
    "GEORADIUS geo 10 10 x km",
    "GEORADIUS geo 10 10 -1 km",
    "GEORADIUS geo 10 10 1 parsec",
    "GEORADIUS geo 10 10 200 km COUNT 0",
    "GEORADIUS geo 10 10 200 km COUNT",
    "GEORADIUS geo 10 10 200 km ANY",
    "GEORADIUS none 10 10 200 km",
    "GEORADIUS none 10 10 200 km STORE out",
    "GEORADIUS none x 10 200 km",
    "GEORADIUS text 10 10 200 km",
    "GEORADIUS_RO geo 10 10 200 km STORE out",
    "GEORADIUS_RO geo 10 10 200 km DESC",
    "GEORADIUSBYMEMBER geo x 200 km ASC",
    "GEORADIUSBYMEMBER geo nosuch 200 km",
    "GEORADIUSBYMEMBER none nosuch x y",
    "GEORADIUSBYMEMBER none nosuch x y STORE out",
    "GEORADIUSBYMEMBER_RO geo x 200 km DESC WITHDIST",
    "GEOSEARCH geo FROMMEMBER x BYRADIUS 200 km ASC",
    "GEOSEARCH geo FROMMEMBER nosuch BYRADIUS 200 km ASC",
    "GEOSEARCH none FROMMEMBER nosuch BYRADIUS 200 km ASC",
    "GEOSEARCH geo FROMMEMBER x FROMLONLAT 1 1 BYRADIUS 200 km",
    "GEOSEARCH geo FROMLONLAT 1 1 BYRADIUS 200 km BYBOX 1 1 km",
    "GEOSEARCH geo FROMLONLAT 1 1 ASC DESC WITHDIST",
    "GEOSEARCH geo BYRADIUS 1 km ASC DESC WITHDIST",
    "GEOSEARCH geo FROMLONLAT 1 1 BYBOX -1 1 km",
    "GEOSEARCH geo FROMLONLAT 1 1 BYBOX x 1 km",
    "GEOSEARCH geo FROMLONLAT 1 1 BYBOX 1 x km",
    "GEOSEARCH geo FROMLONLAT 1 1 BYRADIUS 200 km STOREDIST",
    "GEOSEARCHSTORE out geo FROMLONLAT 10 10 BYRADIUS 200 km WITHDIST",
    "GEOSEARCHSTORE out geo FROMLONLAT 10 10 BYRADIUS 200 km ASC",
    "ZRANGE out 0 -1 WITHSCORES",
    "GEOSEARCHSTORE out none FROMLONLAT 10 10 BYRADIUS 200 km",
    "ZRANGE out 0 -1",
];
