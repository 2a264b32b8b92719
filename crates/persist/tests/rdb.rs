//! The RDB codec against a model: every type and encoding there and back, and every kind of damage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64};

use keyspace::keyspace::Keyspace;
use keyspace::load::{Loaded, OnDuplicate};
use keyspace::raw::entry::NewValue;
use keyspace::raw::packed::Element;
use keyspace::types::hash::Hash;
use keyspace::types::list::{End, List};
use keyspace::types::set::Set;
use keyspace::types::stream::{Group, Pending, Stream, StreamId};
use keyspace::types::zset::Zset;
use keyspace::value::{Value, ValueRef};
use persist::rdb::NoLibraries;
use persist::rdb::check::check;
use persist::rdb::decode::{Limits, number_of};
use persist::rdb::dump::{dump, restore};
use persist::rdb::encode::Compression;
use persist::rdb::load::{Loading, Progress, load};
use persist::rdb::reader::{Checksum, Item, Reader, Use};
use persist::rdb::snapshot::{Snapshot, Uses};
use persist::rdb::writer::{Header, Options, Writer};
use proptest::prelude::*;

type Words = Vec<Vec<u8>>;

/// A group's name, and its pending entries with the number of their consumer.
type GroupModel = (Vec<u8>, Vec<(u64, usize)>);

/// A value as anybody would describe it.
#[derive(Debug, Clone, PartialEq)]
enum Model {
    String(Vec<u8>),
    List(Words),
    Set(BTreeSet<Vec<u8>>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    Zset(BTreeMap<Vec<u8>, f64>),
    /// Entries, each so many milliseconds after the one before; groups with what is pending.
    Stream(Vec<(u64, Words)>, Vec<GroupModel>),
}

fn word() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        3 => (-200i64..70_000).prop_map(|number| number.to_string().into_bytes()),
        3 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => (0usize..6000, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
    ]
}

fn words() -> impl Strategy<Value = Words> {
    let some = |max| proptest::collection::vec(word(), 1..max);
    prop_oneof![4 => some(12), 1 => some(300)]
}

fn score() -> impl Strategy<Value = f64> {
    prop_oneof![
        (-100i32..100).prop_map(f64::from),
        any::<f64>().prop_filter("a score", |score| !score.is_nan()).prop_map(|score| score + 0.0),
        prop::sample::select(vec![f64::INFINITY, f64::NEG_INFINITY, 1e17, 0.1, 5e-324]),
    ]
}

fn model() -> impl Strategy<Value = Model> {
    let number = |number: &i64| number.to_string().into_bytes();
    let pair = |pair: &[Vec<u8>]| (pair[0].clone(), pair[pair.len() - 1].clone());
    let entry = (0u64..5, proptest::collection::vec(word(), 1..4));
    let pending = proptest::collection::vec((0u64..200, 0usize..3), 0..6);
    let groups = proptest::collection::vec((word(), pending), 0..3);
    prop_oneof![
        word().prop_map(Model::String),
        words().prop_map(Model::List),
        words().prop_map(|words| Model::Set(words.into_iter().collect())),
        proptest::collection::vec(-300i64..300, 1..700)
            .prop_map(move |numbers| Model::Set(numbers.iter().map(number).collect())),
        words().prop_map(move |words| Model::Hash(words.chunks(2).map(pair).collect())),
        (words(), proptest::collection::vec(score(), 300))
            .prop_map(|(words, scores)| Model::Zset(words.into_iter().zip(scores).collect())),
        (proptest::collection::vec(entry, 0..150), groups)
            .prop_map(|(entries, groups)| Model::Stream(entries, groups)),
    ]
}

fn build_stream(entries: &[(u64, Words)], groups: &[GroupModel]) -> Stream {
    let mut stream = Stream::default();
    let mut ms = 0;
    for (step, words) in entries {
        ms += step + 1;
        let fields: Vec<(&[u8], &[u8])> = words.iter().map(|word| (&b"f"[..], &word[..])).collect();
        let added = stream.add(StreamId::new(ms, 3), fields.into_iter(), Default::default());
        assert!(added.is_ok());
    }
    for (name, pending) in groups {
        let mut group = Group::new(StreamId::new(ms / 2, 3), Some(entries.len() as u64 / 2));
        let numbers = [b"a", b"b", b"c"].map(|name| group.add_consumer(name, 77).expect("new"));
        for (ms, consumer) in pending {
            let pending = Pending { delivered_ms: 5, count: 2, consumer: numbers[*consumer] };
            group.give(StreamId::new(*ms, 3), pending);
        }
        stream.add_group(name, group);
    }
    stream
}

fn build(model: &Model, limits: Limits) -> Value {
    match model {
        Model::String(bytes) => match number_of(bytes) {
            Some(number) => Value::Number(number),
            None => Value::Bytes(bytes.clone().into()),
        },
        Model::List(words) => {
            let mut list = List::default();
            list.push(End::Right, words.iter().map(Vec::as_slice), limits.list);
            Value::List(list)
        }
        Model::Set(words) => {
            let mut set = Set::default();
            words.iter().for_each(|word| assert!(set.insert(word, limits.set)));
            Value::Set(set)
        }
        Model::Hash(fields) => {
            let mut hash = Hash::default();
            fields.iter().for_each(|(name, value)| assert!(hash.set(name, value, limits.hash)));
            Value::Hash(hash)
        }
        Model::Zset(members) => {
            let mut zset = Zset::default();
            for (member, score) in members {
                zset.set(member, *score, limits.zset);
            }
            Value::Zset(zset)
        }
        Model::Stream(entries, groups) => Value::Stream(build_stream(entries, groups)),
    }
}

fn text(element: Element<'_>) -> String {
    element.to_vec().escape_ascii().to_string()
}

/// Everything that can be read of a value: equal for equal values in any encoding.
fn describe(value: ValueRef<'_>) -> Vec<String> {
    let mut told: Vec<String> = match value {
        ValueRef::Number(number) => return vec![format!("string {number}")],
        ValueRef::Bytes(bytes) => return vec![format!("string {}", bytes.escape_ascii())],
        ValueRef::Shared(bytes) => return vec![format!("string {}", bytes.escape_ascii())],
        ValueRef::List(list) => return list.iter().map(text).collect(),
        ValueRef::Set(set) => set.iter().map(text).collect(),
        ValueRef::Hash(hash) => hash.iter().map(|(f, v)| text(f) + "=" + &text(v)).collect(),
        ValueRef::Zset(zset) => {
            return zset.iter().map(|(m, score)| format!("{}={score:?}", text(m))).collect();
        }
        ValueRef::Stream(stream) => return describe_stream(stream),
        ValueRef::Foreign(value) => {
            return vec![format!("{} {:?}", value.type_name(), value.image())];
        }
    };
    told.sort();
    told
}

fn describe_stream(stream: &Stream) -> Vec<String> {
    let (last, gone) = (stream.last_id(), stream.max_deleted_id());
    let mut told = vec![format!("{last} {gone} {} {}", stream.entries_added(), stream.len())];
    for entry in stream.range(StreamId::MIN, StreamId::MAX) {
        let fields = entry.fields().map(|(name, value)| text(name) + "=" + &text(value));
        told.push(format!("{} {}", entry.id, fields.collect::<Vec<_>>().join(",")));
    }
    for (name, group) in stream.groups() {
        let (name, consumers) = (name.escape_ascii(), group.consumers().len());
        told.push(format!("{name} {} {:?} {consumers}", group.last_id, group.entries_read));
        for (id, one) in group.pending_range(StreamId::MIN, StreamId::MAX) {
            let consumer = group.consumer(one.consumer).name.escape_ascii();
            told.push(format!("{id} {} {} {consumer}", one.delivered_ms, one.count));
        }
    }
    told
}

/// The defaults, or so low that nearly everything is large.
fn limits(are_low: bool) -> Limits {
    let mut limits = Limits::default();
    if are_low {
        limits.hash.listpack_entries = 3;
        limits.set.listpack_entries = 3;
        limits.set.intset_entries = 3;
        limits.zset.listpack_entries = 3;
        limits.list.listpack_size = 3;
    }
    limits
}

fn written(models: &[Model]) -> Vec<u8> {
    let header = Header { redis_version: "7.0.15", ..Header::default() };
    let mut writer = Writer::new(Vec::new(), Options::default(), &header).expect("a Vec");
    writer.function(b"#!lua name=lib").expect("a Vec");
    for (index, model) in models.iter().enumerate() {
        let value = build(model, limits(false));
        let last_use = [Use::Unknown, Use::IdleSeconds(9), Use::Frequency(7)][index % 3];
        let at = (index % 2 == 1).then_some(1_000_000 + index as i64);
        let key = format!("key {index}");
        writer.entry(index % 4, key.as_bytes(), value.as_ref(), at, last_use).expect("a Vec");
    }
    writer.finish().expect("a Vec")
}

fn load_into(space: &Keyspace, file: &[u8], checksum: Checksum) -> Result<u64, String> {
    let loading = Loading {
        space,
        tallies: &[space.tally(0), space.tally(1)],
        now_ms: 5,
        skips_expired: true,
        duplicate: OnDuplicate::Refuse,
        checksum,
        libraries: &NoLibraries,
        progress: &Progress::default(),
        key_delay: &|| 0,
    };
    let loaded = load(file, Some(file.len() as u64), &loading);
    loaded.map(|(summary, ..)| summary.keys).map_err(|error| error.to_string())
}

type Damage = Vec<(prop::sample::Index, u8)>;

fn damage() -> impl Strategy<Value = Damage> {
    proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)
}

fn apply(damage: &Damage, bytes: &mut [u8]) {
    for (at, byte) in damage {
        bytes[at.index(bytes.len())] = *byte;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn payloads_come_back(model in model(), wrote: bool, reads: bool, packs: bool) {
        let compression = if packs { Compression::Lzf } else { Compression::Off };
        let value = build(&model, limits(wrote));
        let payload = dump(value.as_ref(), compression);
        let back = restore(&payload, limits(reads), Checksum::Verify).expect("our own");
        prop_assert_eq!(describe(back.as_ref()), describe(value.as_ref()));
    }

    #[test]
    fn damaged_payloads_give_an_error_or_a_sound_value(
        model in model(),
        damage in damage(),
        cut in proptest::option::of(any::<prop::sample::Index>())
    ) {
        let mut payload = dump(build(&model, limits(false)).as_ref(), Compression::Off);
        apply(&damage, &mut payload);
        if let Some(cut) = cut {
            payload.truncate(cut.index(payload.len()));
        }
        if let Ok(back) = restore(&payload, limits(false), Checksum::Ignore) {
            // What was taken is sound: it can be written and read again.
            let again = dump(back.as_ref(), Compression::Off);
            let again = restore(&again, limits(true), Checksum::Verify).expect("our own");
            prop_assert_eq!(describe(again.as_ref()), describe(back.as_ref()));
        }
    }

    #[test]
    fn any_bytes_are_taken_or_refused(
        kind in 0u8..27,
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        version in prop::sample::select(vec![1u8, 9, 10, 11, 12, 14, 80])
    ) {
        bytes.insert(0, kind);
        bytes.extend_from_slice(&[version, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let _ = restore(&bytes, limits(false), Checksum::Ignore);
        let file = [b"REDIS0012", &bytes[..]].concat();
        if let Ok(mut reader) = Reader::new(&file[..], None, Checksum::Ignore, limits(false)) {
            while let Ok(Some(_)) = reader.next() {}
        }
    }

    #[test]
    fn damaged_files_give_an_error_where_a_check_finds_one(
        models in proptest::collection::vec(model(), 1..6), damage in damage()
    ) {
        let mut file = written(&models);
        apply(&damage, &mut file);
        let report = check(&file[..], file.len() as u64, 5);
        let loaded = load_into(&Keyspace::new(16, 2), &file, Checksum::Verify);
        prop_assert_eq!(loaded.is_ok(), report.damages.is_empty() && report.foreign == 0);
    }
}

#[test]
fn a_keyspace_is_saved_and_loaded_by_two_threads() {
    const COUNT: u64 = 20_000;
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let space = Keyspace::new(16, 2);
    for number in 0..COUNT {
        let key = format!("key {number}");
        let loaded = Loaded {
            db: number as usize % 3,
            key: key.as_bytes(),
            hash: keyspace::hasher::hash(key.as_bytes()),
            value: NewValue::Bytes(key.as_bytes()),
            expire_at: (number % 5 == 0).then_some(number as i64 + 1),
            access: 0,
        };
        assert!(space.load(space.tally(0), loaded, OnDuplicate::Refuse));
    }
    let snapshot = Snapshot {
        space: &space,
        options: Options::default(),
        header: Header { redis_version: "7.0.15", ..Header::default() },
        now_ms: 5,
        uses: Uses::Idle,
        libraries: &NoLibraries,
        key_delay: &|| 0,
        pending_bytes_max: 1 << 20,
        keys_done: &done,
        stop: &stop,
    };
    let file = snapshot.write(Vec::new(), || {}).expect("a Vec");
    let other = Keyspace::new(16, 2);
    assert_eq!(load_into(&other, &file, Checksum::Verify), Ok(COUNT - 1), "key 0 has expired");
    for db in 0..16 {
        let gone = usize::from(db == 0);
        assert_eq!(other.key_count(db), space.key_count(db) - gone);
        assert_eq!(other.volatile_count(db), space.volatile_count(db) - gone);
    }
    let error = load_into(&other, &file, Checksum::Verify).expect_err("all are there already");
    assert!(error.contains("RDB has duplicated key 'key "), "{error}");
}

#[test]
fn lies_about_lengths_are_refused_at_once() {
    let far = [0x81, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    let near = [0x80, 0x7f, 0xff, 0xff, 0xff];
    for kind in (0..26u8).filter(|kind| *kind != 7) {
        for length in [&far[..], &near[..]] {
            let file = [b"REDIS0012", &[kind, 1, b'k'][..], length, &[0; 64]].concat();
            let loaded = load_into(&Keyspace::new(1, 2), &file, Checksum::Ignore);
            assert!(loaded.is_err(), "type {kind}");
            let footer = [12, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            let payload = [&[kind][..], length, &[0; 64], &footer].concat();
            assert!(restore(&payload, limits(false), Checksum::Ignore).is_err(), "type {kind}");
        }
    }
}

#[test]
fn a_reader_finds_what_a_writer_wrote() {
    let models = [Model::String(b"1".to_vec()), Model::List(vec![b"a".to_vec(), b"b".to_vec()])];
    let file = written(&models);
    let mut reader = Reader::new(&file[..], None, Checksum::Verify, limits(false)).expect("sound");
    let (mut keys, mut notes) = (Vec::new(), 0);
    while let Some(item) = reader.next().expect("sound") {
        match item {
            Item::Entry(entry) => {
                let value = entry.value.expect("not empty");
                keys.push((entry.db, describe(value.as_ref()), entry.expire_at, entry.last_use));
            }
            Item::Note(_) => notes += 1,
        }
    }
    assert_eq!(notes, 6, "five fields and a library");
    let first = (0, vec!["string 1".to_string()], None, Use::Unknown);
    let second = vec!["a".to_string(), "b".to_string()];
    assert_eq!(keys, [first, (1, second, Some(1_000_001), Use::IdleSeconds(9))]);
}
