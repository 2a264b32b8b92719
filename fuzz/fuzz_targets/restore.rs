//! Any bytes as a payload of RESTORE: refused, or a value that can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use persist::rdb::decode::Limits;
use persist::rdb::dump::{dump, restore};
use persist::rdb::encode::Compression;
use persist::rdb::reader::Checksum;

fuzz_target!(|bytes: &[u8]| {
    let payload = [bytes, &[12, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
    let Ok(value) = restore(&payload, Limits::default(), Checksum::Ignore) else { return };
    let again = dump(value.as_ref(), Compression::Lzf);
    assert!(restore(&again, Limits::default(), Checksum::Verify).is_ok());
});
