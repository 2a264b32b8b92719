//! Any bytes as a record of a transaction: they are refused, or what is read is written as a record
//! that says the same, and its outline agrees with the whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use services::saga::codec::{apply_change, outline, read_snapshot, snapshot};

fuzz_target!(|bytes: &[u8]| {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    for record in [bytes, first] {
        let Some(mut read) = read_snapshot(record) else { continue };
        let seen = outline(record).expect("what can be read whole has an outline");
        assert_eq!((seen.id, seen.gid, seen.kind), (read.id, &*read.gid, read.kind));
        assert_eq!((seen.status, seen.hold), (read.status, read.hold));
        let written = snapshot(&read);
        let again = read_snapshot(&written).expect("what was written is read");
        assert_eq!(snapshot(&again), written);
        // A change of it, whatever that says, must not panic.
        let _ = apply_change(&mut read, second);
    }
});
