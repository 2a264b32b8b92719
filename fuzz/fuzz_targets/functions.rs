//! Any bytes as FUNCTION RESTORE's payload, with a right footer so that what is inside is read: an
//! error or OK, no crash.
#![no_main]

use commands::testing::Client;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|payload: Vec<u8>| {
    let mut client = Client::with(script::FAMILIES);
    client.run_words(&[b"FUNCTION".as_slice(), b"RESTORE", &payload]);
    let sealed = script::dump::sealed(payload);
    client.run_words(&[b"FUNCTION".as_slice(), b"RESTORE", &sealed]);
});
