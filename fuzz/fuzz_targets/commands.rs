//! Any words as commands, one after another on one keyspace: no panic, one reply each.
#![no_main]

use commands::testing::Client;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|commands: Vec<Vec<Vec<u8>>>| {
    let mut client = Client::new();
    for words in commands.iter().filter(|words| !words.is_empty()) {
        client.run_words(words);
    }
});
