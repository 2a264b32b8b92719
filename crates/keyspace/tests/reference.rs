//! The same bytes and numbers as redis-server, where one is installed: HyperLogLog strings,
//! geohashes, distances and searches. Without one the tests pass and say so.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use forebay_keyspace::random::Random;
use forebay_keyspace::types::geo::{Extent, LATITUDE_MAX, Position, Shape};
use forebay_keyspace::types::hyperloglog;
use forebay_keyspace::types::zset::{Edge, Zset, ZsetLimits};

/// A redis-server of our own on a socket in a temporary folder.
struct Reference {
    server: Child,
    stream: BufReader<UnixStream>,
    folder: PathBuf,
}

#[derive(Debug, PartialEq)]
enum Reply {
    Nil,
    Number(i64),
    Text(Vec<u8>),
    List(Vec<Reply>),
}

impl Reference {
    fn start(name: &str) -> Option<Reference> {
        let folder = std::env::temp_dir().join(format!("forebay-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).ok()?;
        let socket = folder.join("socket");
        let started = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(&folder)
            .stdout(Stdio::null())
            .spawn();
        let Ok(server) = started else {
            println!("skipped: no redis-server here");
            return None;
        };
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(_) => std::thread::yield_now(),
            }
        };
        Some(Reference { server, stream: BufReader::new(stream), folder })
    }

    fn call(&mut self, words: &[&[u8]]) -> Reply {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request).expect("the server takes requests");
        self.read()
    }

    fn read(&mut self) -> Reply {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("the server replies");
        let (kind, rest) = line.trim_end().split_at(1);
        match kind {
            ":" => Reply::Number(rest.parse().expect("a number")),
            "+" => Reply::Text(rest.as_bytes().to_vec()),
            "$" if rest == "-1" => Reply::Nil,
            "$" => {
                let len: usize = rest.parse().expect("a length");
                let mut bytes = vec![0; len + 2];
                self.stream.read_exact(&mut bytes).expect("the whole string");
                bytes.truncate(len);
                Reply::Text(bytes)
            }
            "*" => {
                let len = rest.parse().expect("a length");
                Reply::List((0..len).map(|_| self.read()).collect())
            }
            _ => panic!("{line}"),
        }
    }

    fn text(&mut self, words: &[&[u8]]) -> Vec<u8> {
        match self.call(words) {
            Reply::Text(text) => text,
            reply => panic!("{reply:?}"),
        }
    }

    fn number(&mut self, words: &[&[u8]]) -> i64 {
        match self.call(words) {
            Reply::Number(number) => number,
            reply => panic!("{reply:?}"),
        }
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn pfadd(hll: &mut Vec<u8>, elements: &[Vec<u8>]) -> bool {
    let mut changed = false;
    for element in elements {
        changed |= hyperloglog::add(hll, element, 3000).expect("sound");
    }
    if changed {
        hyperloglog::invalidate(hll);
    }
    changed
}

fn pfcount(hll: &mut [u8]) -> u64 {
    hyperloglog::cached_count(hll).unwrap_or_else(|| {
        let count = hyperloglog::count(hll).expect("sound");
        hyperloglog::cache_count(hll, count);
        count
    })
}

#[test]
fn hyperloglogs_have_the_same_bytes() {
    let Some(mut redis) = Reference::start("hll") else { return };
    let mut random = Random::new(11);
    let mut strings = Vec::new();
    for round in 0..6u32 {
        let key = format!("hll{round}").into_bytes();
        let mut hll = hyperloglog::new();
        assert_eq!(redis.number(&[b"PFADD", &key]), 1);
        // Redis counts the making of the key as a change.
        hyperloglog::invalidate(&mut hll);
        assert_eq!(redis.text(&[b"GET", &key]), hll);
        let steps = [10, 300, 1500, 3000, 200, 40][round as usize];
        for step in 0..steps {
            let count = 1 + random.below(4);
            let elements: Vec<Vec<u8>> = (0..count)
                .map(|_| (0..random.below(20)).map(|_| random.bits() as u8).collect())
                .collect();
            let mut words: Vec<&[u8]> = vec![b"PFADD", &key];
            words.extend(elements.iter().map(Vec::as_slice));
            let changed = pfadd(&mut hll, &elements);
            assert_eq!(redis.number(&words), i64::from(changed));
            if step % 7 == 0 || step + 1 == steps {
                assert_eq!(redis.text(&[b"GET", &key]), hll, "round {round} step {step}");
            }
            if step % 50 == 0 || step + 1 == steps {
                assert_eq!(redis.number(&[b"PFCOUNT", &key]) as u64, pfcount(&mut hll));
                assert_eq!(redis.text(&[b"GET", &key]), hll);
            }
        }
        if let Some(words) = hyperloglog::decode(&hll) {
            assert_eq!(redis.text(&[b"PFDEBUG", b"DECODE", &key]), words.into_bytes());
        }
        strings.push((key, hll));
    }
    for (one, other) in [(0, 1), (1, 4), (4, 3), (2, 3), (5, 0)] {
        let mut registers = [0; hyperloglog::REGISTERS];
        for index in [one, other] {
            hyperloglog::merge(&mut registers, &strings[index].1).expect("sound");
        }
        let keys = [&strings[one].0[..], &strings[other].0[..]];
        let count = redis.number(&[b"PFCOUNT", keys[0], keys[1]]);
        assert_eq!(count as u64, hyperloglog::count_registers(&registers));
        redis.call(&[b"DEL", b"merged"]);
        redis.call(&[b"PFMERGE", b"merged", keys[0], keys[1]]);
        let mut merged = hyperloglog::new();
        let dense =
            |index: usize| hyperloglog::encoding(&strings[index].1) == hyperloglog::Encoding::Dense;
        if dense(one) || dense(other) {
            hyperloglog::make_dense(&mut merged).expect("sound");
        }
        for (index, value) in registers.iter().enumerate().filter(|(_, value)| **value > 0) {
            hyperloglog::raise(&mut merged, index, *value, 3000).expect("sound");
        }
        hyperloglog::invalidate(&mut merged);
        assert_eq!(redis.text(&[b"GET", b"merged"]), merged);
        let Reply::List(list) = redis.call(&[b"PFDEBUG", b"GETREG", b"merged"]) else {
            panic!("not a list")
        };
        let wanted: Vec<Reply> =
            registers.iter().map(|value| Reply::Number(i64::from(*value))).collect();
        assert_eq!(list, wanted);
    }
}

fn random_position(random: &mut Random, latitude_max: f64) -> Position {
    let mut part = |max: f64| (random.bits() as f64 / u64::MAX as f64 * 2.0 - 1.0) * max;
    Position { longitude: part(180.0), latitude: part(latitude_max) }
}

fn number(text: &Reply) -> f64 {
    match text {
        Reply::Text(text) => std::str::from_utf8(text).expect("text").parse().expect("a number"),
        reply => panic!("{reply:?}"),
    }
}

#[test]
fn positions_and_searches_are_the_same() {
    let Some(mut redis) = Reference::start("geo") else { return };
    let mut random = Random::new(23);
    let mut set = Zset::default();
    let limits = ZsetLimits::default();
    for index in 0..3000 {
        let position = random_position(&mut random, LATITUDE_MAX);
        let name = format!("p{index}").into_bytes();
        let (longitude, latitude) = (position.longitude.to_string(), position.latitude.to_string());
        redis.call(&[b"GEOADD", b"geo", longitude.as_bytes(), latitude.as_bytes(), &name]);
        let score = redis.text(&[b"ZSCORE", b"geo", &name]);
        assert_eq!(score, position.score().to_string().into_bytes());
        set.set(&name, position.score() as f64, limits);
    }
    for index in 0..2000 {
        let names = [index, (index * 17 + 5) % 3000].map(|n: usize| format!("p{n}").into_bytes());
        let [one, other] =
            [&names[0], &names[1]].map(|name| Position::of_score(set.score(name).expect("added")));
        let Reply::List(hash) = redis.call(&[b"GEOHASH", b"geo", &names[0]]) else { panic!() };
        assert_eq!(hash, [Reply::Text(one.geohash().to_vec())]);
        let Reply::List(list) = redis.call(&[b"GEOPOS", b"geo", &names[0]]) else { panic!() };
        let Reply::List(pair) = &list[0] else { panic!() };
        assert!((number(&pair[0]) - one.longitude).abs() < 1e-15 * 360.0);
        assert!((number(&pair[1]) - one.latitude).abs() < 1e-15 * 360.0);
        let distance = redis.text(&[b"GEODIST", b"geo", &names[0], &names[1]]);
        assert_eq!(distance, format!("{:.4}", one.distance_m(other)).into_bytes());
    }
    for round in 0..600 {
        let center = random_position(&mut random, [60.0, LATITUDE_MAX][round % 2]);
        let size = |random: &mut Random| {
            let exponent = 2.0 + random.below(6000) as f64 / 1000.0;
            10f64.powf(exponent).round() / 1000.0
        };
        let extent = match round % 3 {
            0 => Extent::Box { width: size(&mut random), height: size(&mut random) },
            _ => Extent::Radius(size(&mut random)),
        };
        let (unit, unit_m) =
            [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)][random.below(4)];
        let shape = Shape { center, extent, unit_m };
        let mut words: Vec<String> = ["GEOSEARCH", "geo", "FROMLONLAT"].map(String::from).to_vec();
        words.extend([center.longitude.to_string(), center.latitude.to_string()]);
        match extent {
            Extent::Radius(radius) => words.extend(["BYRADIUS".to_owned(), radius.to_string()]),
            Extent::Box { width, height } => {
                words.extend(["BYBOX".to_owned(), width.to_string(), height.to_string()]);
            }
        }
        words.extend([unit.to_owned(), "WITHDIST".to_owned()]);
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        let Reply::List(list) = redis.call(&words) else { panic!() };
        let mut found = Vec::new();
        for (from, to) in shape.score_ranges() {
            let ranks = set.score_range(Edge::Before(from as f64), Edge::Before(to as f64));
            for (name, score) in set.range(ranks) {
                if let Some(distance) = shape.distance_to(Position::of_score(score)) {
                    found.push((name.to_vec(), format!("{:.4}", distance / unit_m).into_bytes()));
                }
            }
        }
        let wanted: Vec<_> = list
            .into_iter()
            .map(|item| match item {
                Reply::List(pair) => match <[Reply; 2]>::try_from(pair) {
                    Ok([Reply::Text(name), Reply::Text(distance)]) => (name, distance),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, wanted, "{shape:?}");
    }
}
