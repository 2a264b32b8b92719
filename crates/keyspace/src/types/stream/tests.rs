//! A stream against a plain vector of entries, whole and after every step.

use super::*;
use proptest::prelude::*;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn add(stream: &mut Stream, id: StreamId, pairs: &Pairs, limits: StreamLimits) -> bool {
    let fields = pairs.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
    stream.add(id, fields, limits).is_ok()
}

fn pairs_of(entry: &Entry<'_>) -> Pairs {
    entry.fields().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

fn all(stream: &Stream) -> Vec<(StreamId, Pairs)> {
    let entries = stream.range(StreamId::MIN, StreamId::MAX);
    entries.map(|entry| (entry.id, pairs_of(&entry))).collect()
}

fn one(value: &str) -> Pairs {
    vec![(b"f".to_vec(), value.as_bytes().to_vec())]
}

#[test]
fn a_block_is_that_of_redis() {
    let mut stream = Stream::default();
    assert!(add(&mut stream, StreamId::new(5, 1), &one("v"), StreamLimits::default()));
    assert!(add(&mut stream, StreamId::new(5, 3), &one("12"), StreamLimits::default()));
    let other = vec![(b"g".to_vec(), b"".to_vec())];
    assert!(add(&mut stream, StreamId::new(7, 0), &other, StreamLimits::default()));
    let blocks: Vec<_> = stream.blocks().collect();
    assert_eq!(blocks.len(), 1);
    let (first, bytes) = blocks[0];
    assert_eq!(first, StreamId::new(5, 1));
    let elements = &bytes[6..bytes.len() - 1];
    let want: &[u8] = &[
        3, 1, 0, 1, 1, 1, 0x81, b'f', 2, 0, 1, // count, deleted, fields, name, 0
        2, 1, 0, 1, 0, 1, 0x81, b'v', 2, 4, 1, // same fields
        2, 1, 0, 1, 2, 1, 12, 1, 4, 1, //
        0, 1, 2, 1, 0xdf, 0xff, 2, 1, 1, 0x81, b'g', 2, 0x80, 1, 6, 1, // its own field
    ];
    assert_eq!(elements, want);
    assert_eq!(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]), bytes.len() as u32);
    assert_eq!(bytes[4..6], [5 + 5 + 5 + 7, 0]);
}

#[test]
fn ids_only_ascend() {
    let mut stream = Stream::default();
    let limits = StreamLimits::default();
    assert!(!add(&mut stream, StreamId::MIN, &one("v"), limits));
    assert!(add(&mut stream, StreamId::new(1, 1), &one("v"), limits));
    assert!(!add(&mut stream, StreamId::new(1, 1), &one("v"), limits));
    assert!(stream.delete(StreamId::new(1, 1)));
    assert!(stream.is_empty() && stream.block_count() == 0);
    assert!(!add(&mut stream, StreamId::new(1, 1), &one("v"), limits));
    assert_eq!((stream.entries_added(), stream.max_deleted_id()), (1, StreamId::new(1, 1)));
}

#[test]
fn whole_blocks_go_when_trimmed_about() {
    let mut stream = Stream::default();
    let limits = StreamLimits { node_bytes: 0, node_entries: 10 };
    for ms in 1..=95 {
        assert!(add(&mut stream, StreamId::new(ms, 0), &one("v"), limits));
    }
    assert_eq!(stream.block_count(), 10);
    assert_eq!(stream.trim(Keep::Last(48), Cut::Blocks(25)), 20);
    assert_eq!(stream.trim(Keep::Last(48), Cut::Blocks(0)), 20);
    assert_eq!((stream.len(), stream.first_id()), (55, StreamId::new(41, 0)));
    assert_eq!(stream.trim(Keep::From(StreamId::new(60, 0)), Cut::Blocks(0)), 10);
    assert_eq!(stream.trim(Keep::From(StreamId::new(60, 0)), Cut::Exact), 9);
    assert_eq!((stream.len(), stream.first_id()), (36, StreamId::new(60, 0)));
    assert_eq!(stream.trim(Keep::Last(0), Cut::Blocks(0)), 36);
    assert_eq!((stream.first_id(), stream.last_id()), (StreamId::MIN, StreamId::new(95, 0)));
}

#[test]
fn the_lag_is_told_where_it_can_be() {
    let mut stream = Stream::default();
    let limits = StreamLimits::default();
    let mut group = Group::new(StreamId::MIN, None);
    let consumer = group.add_consumer(b"c", 0).expect("new");
    stream.add_group(b"g", group);
    for ms in 1..=5 {
        assert!(add(&mut stream, StreamId::new(ms, 0), &one("v"), limits));
    }
    let delivery = Delivery { consumer, count: 1, now_ms: 7, keeping: Keeping::UntilAcknowledged };
    let read = |stream: &mut Stream| {
        let mut ids = Vec::new();
        assert_eq!(stream.read_new(b"g", delivery, |entry| ids.push(entry.id.ms)), ids.len());
        let group = stream.group(b"g").expect("added");
        (ids, group.entries_read, stream.lag(group))
    };
    let lag = |stream: &Stream| stream.lag(stream.group(b"g").expect("added"));
    assert_eq!(lag(&stream), Some(5));
    assert_eq!(read(&mut stream), (vec![1], Some(1), Some(4)));
    assert!(stream.delete(StreamId::new(3, 0)));
    assert_eq!(lag(&stream), None);
    assert_eq!(read(&mut stream), (vec![2], None, None));
    assert_eq!(read(&mut stream), (vec![4], None, None));
    assert_eq!(read(&mut stream), (vec![5], Some(5), Some(0)));
    assert_eq!(read(&mut stream), (vec![], Some(5), Some(0)));
    assert!(stream.delete(StreamId::new(2, 0)));
    let mut seen = Vec::new();
    stream.read_again(b"g", StreamId::new(1, 1), delivery, |id, entry| {
        seen.push((id.ms, entry.is_some()));
    });
    assert_eq!(seen, [(2, false)]);
    let group = stream.group(b"g").expect("added");
    assert_eq!((group.pending_count(), group.consumer(consumer).active_ms), (4, Some(7)));
    group.check();
}

#[test]
fn consumers_own_what_is_pending() {
    let mut group = Group::new(StreamId::MIN, Some(0));
    let anna = group.add_consumer(b"anna", 1).expect("new");
    let bert = group.add_consumer(b"bert", 2).expect("new");
    assert_eq!(group.add_consumer(b"anna", 3), None);
    for ms in 1..=4 {
        let consumer = if ms % 2 == 0 { anna } else { bert };
        group.give(StreamId::new(ms, 0), Pending { delivered_ms: 5, count: 1, consumer });
    }
    group.give(StreamId::new(1, 0), Pending { delivered_ms: 6, count: 2, consumer: anna });
    group.check();
    assert_eq!(group.consumer(anna).pending_count(), 3);
    assert!(group.acknowledge(StreamId::new(2, 0)) && !group.acknowledge(StreamId::new(2, 0)));
    assert_eq!(group.delete_consumer(b"anna"), Some(2));
    assert_eq!(group.pending_count(), 1);
    let carl = group.add_consumer(b"carl", 7).expect("new");
    assert_eq!((carl, group.find(b"anna")), (anna, None));
    let pending = Pending { delivered_ms: 1, count: 1, consumer: carl };
    assert_eq!(group.restore_pending(StreamId::new(3, 0), pending), Err(Malformed));
    assert_eq!(group.restore_pending(StreamId::new(9, 0), pending), Ok(()));
    group.check();
}

#[derive(Debug, Clone)]
enum Step {
    Add(u64, u64, Pairs),
    Delete(usize),
    Trim(usize, bool, bool),
}

fn pairs() -> impl Strategy<Value = Pairs> {
    let name = prop_oneof![Just(b"a".to_vec()), Just(b"b".to_vec()), Just(b"17".to_vec())];
    let value = prop_oneof![
        (-70_000i64..70_000).prop_map(|number| number.to_string().into_bytes()),
        proptest::collection::vec(any::<u8>(), 0..100),
    ];
    proptest::collection::vec((name, value), 1..4)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u64..3, 0u64..300, pairs()).prop_map(|(ms, seq, pairs)| Step::Add(ms, seq, pairs)),
        3 => (0usize..200).prop_map(Step::Delete),
        1 => (0usize..60, any::<bool>(), any::<bool>()).prop_map(|(n, a, b)| Step::Trim(n, a, b)),
    ]
}

fn apply(
    stream: &mut Stream,
    model: &mut Vec<(StreamId, Pairs)>,
    step: Step,
    limits: StreamLimits,
) {
    match step {
        Step::Add(ms, seq, pairs) => {
            let last = stream.last_id();
            let id = StreamId::new(last.ms + ms, if ms == 0 { last.seq + seq } else { seq });
            assert_eq!(add(stream, id, &pairs, limits), id > last);
            if id > last {
                model.push((id, pairs));
            }
        }
        Step::Delete(at) if at < model.len() => {
            let (id, _) = model.remove(at);
            assert!(stream.delete(id) && !stream.delete(id));
        }
        Step::Delete(at) => assert!(!stream.delete(StreamId::new(at as u64, 12_345))),
        Step::Trim(count, by_id, exact) => {
            let keep = match model.get(count) {
                Some((id, _)) if by_id => Keep::From(*id),
                _ => Keep::Last(count),
            };
            let wanted = match keep {
                Keep::From(_) => count,
                Keep::Last(count) => model.len().saturating_sub(count),
            };
            let cut = if exact { Cut::Exact } else { Cut::Blocks(0) };
            let gone = stream.trim(keep, cut);
            assert!(if exact { gone == wanted } else { gone <= wanted }, "{gone} of {wanted}");
            model.drain(..gone);
        }
    }
}

fn check_whole(stream: &Stream, model: &[(StreamId, Pairs)]) {
    assert_eq!(all(stream), model);
    assert_eq!(stream.len(), model.len());
    assert_eq!(stream.first_id(), model.first().map_or(StreamId::MIN, |(id, _)| *id));
    let back = stream.range_back(StreamId::MIN, StreamId::MAX).map(|entry| entry.id);
    assert!(back.eq(model.iter().rev().map(|(id, _)| *id)));
    let mut copy = Stream::default();
    for (first, listpack) in stream.blocks() {
        copy.push_block(first, listpack).expect("our own block");
    }
    assert_eq!(all(&copy), model);
    for (at, (id, pairs)) in model.iter().enumerate() {
        assert!(stream.get(*id).is_some_and(|entry| pairs_of(&entry) == *pairs));
        let high = model[(at + 7).min(model.len() - 1)].0;
        let ids = |entry: Entry<'_>| entry.id;
        let want: Vec<_> = model[at..model.len().min(at + 8)].iter().map(|(id, _)| *id).collect();
        assert_eq!(stream.range(*id, high).map(ids).collect::<Vec<_>>(), want);
        let back: Vec<_> = stream.range_back(*id, high).map(ids).collect();
        assert!(back.iter().rev().eq(want.iter()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn a_stream_holds_what_a_vec_holds(
        steps in proptest::collection::vec(step(), 0..200),
        node_entries in 1usize..12,
        node_bytes in prop_oneof![Just(0usize), 100usize..500],
    ) {
        let limits = StreamLimits { node_bytes, node_entries };
        let (mut stream, mut model) = (Stream::default(), Vec::new());
        for step in steps {
            apply(&mut stream, &mut model, step, limits);
        }
        check_whole(&stream, &model);
    }

    #[test]
    fn damaged_blocks_never_panic(
        steps in proptest::collection::vec(step(), 1..20),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let (mut stream, mut model) = (Stream::default(), Vec::new());
        for step in steps {
            apply(&mut stream, &mut model, step, StreamLimits::default());
        }
        let Some((first, listpack)) = stream.blocks().next() else { return Ok(()) };
        let mut listpack = listpack.to_vec();
        for (at, byte) in damage {
            let at = at.index(listpack.len());
            listpack[at] = byte;
        }
        let mut other = Stream::default();
        if other.push_block(first, &listpack).is_ok() {
            let model = all(&other);
            check_whole(&other, &model);
        }
    }
}
