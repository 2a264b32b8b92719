//! Any bytes as an RDB file: read whole, checked, loaded; the three agree.
#![no_main]

use keyspace::keyspace::Keyspace;
use keyspace::load::OnDuplicate;
use libfuzzer_sys::fuzz_target;
use persist::rdb::NoLibraries;
use persist::rdb::check::check;
use persist::rdb::load::{Loading, Progress, load};
use persist::rdb::reader::Checksum;

fuzz_target!(|bytes: &[u8]| {
    let file = [b"REDIS0010", bytes].concat();
    let report = check(&file[..], file.len() as u64, 5);
    let space = Keyspace::new(16, 1);
    let loading = Loading {
        space: &space,
        tallies: &[space.tally(0)],
        now_ms: 5,
        skips_expired: true,
        duplicate: OnDuplicate::Replace,
        checksum: Checksum::Ignore,
        libraries: &NoLibraries,
        progress: &Progress::default(),
        key_delay: &|| 0,
    };
    let loaded = load(&file[..], Some(file.len() as u64), &loading);
    assert!(loaded.is_ok() || !report.damages.is_empty() || report.foreign > 0);
});
