//! Any bytes in pieces of any size into the request parser: no panic, and nothing is read twice.
#![no_main]

use libfuzzer_sys::fuzz_target;
use resp::request::{Limits, Stop};
use resp::{Parser, Requests};

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (piece, stream) = input;
    let mut parser = Parser::default();
    let mut kept: Vec<u8> = Vec::new();
    for chunk in stream.chunks(usize::from(piece) + 1) {
        let mut chunk = chunk;
        if let Some((block, missing)) = parser.block_to_fill() {
            let taken = missing.min(chunk.len());
            block.extend_from_slice(&chunk[..taken]);
            chunk = &chunk[taken..];
        }
        kept.extend_from_slice(chunk);
        let mut requests = Requests::default();
        let (used, stop) = parser.parse(&kept, Limits::default(), usize::MAX, &mut requests);
        for index in 0..requests.len() {
            assert!(requests.command(index, &kept).len() > 0);
        }
        if matches!(stop, Stop::Error(_)) {
            return;
        }
        kept.truncate(kept.len() - parser.moved());
        kept.drain(..used);
    }
});
