//! Any commands of the table with any words, one after another on one keyspace: no panic, and one
//! reply each. Names come from the table, keys are few and options those of the command's own
//! usage line, so that commands get past their first check and meet each other's values.
#![no_main]

use std::sync::atomic::Ordering;

use commands::testing::Client;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

/// Strings may grow to this many bytes, so that one SETRANGE does not fill the memory.
const STRING_BYTES_MAX: u64 = 1 << 20;

#[derive(Arbitrary, Debug)]
enum Word {
    Key(u8),
    Small(i8),
    Number(i64),
    Score(f64),
    /// A word in upper case of the usage line.
    Option(u8),
    Bytes(Vec<u8>),
}

#[derive(Arbitrary, Debug)]
struct Command {
    entry: u16,
    words: Vec<Word>,
}

fuzz_target!(|commands: Vec<Command>| {
    let mut client = Client::new();
    client.core.space.settings.proto_max_bulk_len.store(STRING_BYTES_MAX, Ordering::Relaxed);
    for command in &commands {
        let entries = client.core.registry.entries();
        let entry = &entries[usize::from(command.entry) % entries.len()];
        if entry.full_name == "pfselftest" {
            continue;
        }
        let is_option = |word: &&str| word.starts_with(|c: char| c.is_ascii_uppercase());
        let usage = entry.command.usage.split([' ', '[', ']', '<', '>', '|']);
        let options: Vec<&str> = usage.filter(is_option).collect();
        let mut words: Vec<Vec<u8>> = entry.full_name.split('|').map(Into::into).collect();
        words.extend(command.words.iter().map(|word| match word {
            Word::Key(number) => format!("k{}", number % 8).into_bytes(),
            Word::Small(number) => number.to_string().into_bytes(),
            Word::Number(number) => number.to_string().into_bytes(),
            Word::Score(score) => score.to_string().into_bytes(),
            Word::Option(index) => match options.len() {
                0 => Vec::new(),
                count => options[usize::from(*index) % count].into(),
            },
            Word::Bytes(bytes) => bytes.clone(),
        }));
        let reply = client.reply(&words);
        if client.session.blocked.is_some() {
            assert!(reply.is_empty(), "a blocked client got a reply");
            client.time_out();
        } else {
            assert!(!reply.is_empty(), "no reply");
        }
        client.now_ms += 1;
    }
});
