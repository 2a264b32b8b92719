//! Any bytes as the beginning of an append-only file, and as a manifest: no panic, and what is
//! found lies within them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use persist::aof::manifest::Manifest;
use persist::aof::reader::{Step, step};

fuzz_target!(|input: &[u8]| {
    let mut rest = input;
    while let Step::Command { len, .. } | Step::Note { len, .. } = step(rest) {
        assert!(len > 0 && len <= rest.len());
        rest = &rest[len..];
    }
    // One of comments only names nothing, and is never written.
    if let Ok(manifest) = Manifest::parse(input)
        && !manifest.text().is_empty()
    {
        assert_eq!(Manifest::parse(&manifest.text()).as_ref(), Ok(&manifest));
    }
});
