//! Any bytes as a payload of RESTORE: refused, or a value that can be written and read again.
#![no_main]

use keyspace::value::{Value, ValueRef};
use libfuzzer_sys::fuzz_target;
use persist::rdb::decode::Limits;
use persist::rdb::dump::{dump, restore};
use persist::rdb::encode::Compression;
use persist::rdb::reader::Checksum;

fuzz_target!(|bytes: &[u8]| {
    let payload = [bytes, &[12, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
    let Ok(value) = restore(&payload, Limits::default(), Checksum::Ignore) else { return };
    let value = match &value {
        Value::Number(number) => ValueRef::Number(*number),
        Value::Bytes(bytes) => ValueRef::Shared(bytes),
        Value::List(list) => ValueRef::List(list),
        Value::Set(set) => ValueRef::Set(set),
        Value::Hash(hash) => ValueRef::Hash(hash),
        Value::Zset(zset) => ValueRef::Zset(zset),
        Value::Stream(stream) => ValueRef::Stream(stream),
        Value::Foreign(foreign) => ValueRef::Foreign(foreign),
    };
    let again = dump(value, Compression::Lzf);
    assert!(restore(&again, Limits::default(), Checksum::Verify).is_ok());
});
