//! Any bytes as a listpack, as RESTORE would take them: refused or read, no panic.
#![no_main]

use keyspace::raw::packed::Packed;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(packed) = Packed::from_listpack(bytes) {
        assert_eq!(packed.iter().count(), packed.len());
    }
});
