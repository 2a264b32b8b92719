//! Any bytes into the reply parser of `forebay cli` and `forebay bench`: no panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use resp::reply::{Limits, parse};

fuzz_target!(|input: &[u8]| {
    if let Ok(Some((_, used))) = parse(input, &Limits::default()) {
        assert!(used <= input.len());
    }
});
