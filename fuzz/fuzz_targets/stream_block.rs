//! Any bytes as a block of a stream, as RDB files hold it: refused or read from both ends, no
//! panic, and what is changed in it stays sound.
#![no_main]

use keyspace::types::stream::{Cut, Keep, Stream, StreamId};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, u64, &[u8])| {
    let (ms, seq, listpack) = input;
    let mut stream = Stream::default();
    if stream.push_block(StreamId { ms, seq }, listpack).is_err() {
        return;
    }
    let ids: Vec<StreamId> =
        stream.range(StreamId::MIN, StreamId::MAX).map(|entry| entry.id).collect();
    let back = stream.range_back(StreamId::MIN, StreamId::MAX).map(|entry| entry.id);
    assert!(back.eq(ids.iter().rev().copied()));
    assert_eq!(ids.len(), stream.len());
    if let Some(id) = ids.get(ids.len() / 2) {
        assert!(stream.delete(*id));
        stream.trim(Keep::Last(ids.len() / 3), Cut::Exact);
        let mut copy = Stream::default();
        for (first, listpack) in stream.blocks() {
            assert!(copy.push_block(first, listpack).is_ok());
        }
        assert_eq!(copy.len(), stream.len());
    }
});
