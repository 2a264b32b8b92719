//! Any text as a script, and any bytes as its argument: one reply, no crash. Texts with loops are
//! left out, as nobody ends them here.
#![no_main]

use commands::testing::Client;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (String, Vec<u8>)| {
    let (script, argument) = input;
    let loops = ["while", "repeat", "for", "goto"].iter().any(|word| script.contains(word));
    if !loops {
        let mut client = Client::with(script::FAMILIES);
        client.run_words(&[b"EVAL".as_slice(), script.as_bytes(), b"0", &argument]);
    }
    let mut client = Client::with(script::FAMILIES);
    let script = "return {pcall(cjson.decode, ARGV[1]), pcall(cmsgpack.unpack, ARGV[1]),
        pcall(struct.unpack, ARGV[1], ARGV[1])}";
    client.run_words(&[b"EVAL".as_slice(), script.as_bytes(), b"0", &argument]);
});
