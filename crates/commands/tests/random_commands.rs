//! Random commands with random words, all rows of the table: nothing may panic or hang, and each
//! command is answered by exactly one reply of the protocol version in use.
//!
//! Half of the commands follow their usage line, so that they get past their first check; the
//! rest are noise. A failure prints the commands that led to it.

mod common;

use std::sync::atomic::Ordering;

use forebay_commands::testing::Client;
use keyspace::random::Random;

use common::random_words::{Trace, command};

const COMMANDS: usize = 20_000;
/// Strings may grow to this many bytes, so that one SETRANGE does not fill the memory.
const STRING_BYTES_MAX: u64 = 1 << 20;

/// Reads one reply; what follows it.
fn read_reply(bytes: &[u8], resp3: bool) -> Result<&[u8], String> {
    let line_end = bytes.windows(2).position(|two| two == b"\r\n").ok_or("no line")?;
    let (line, rest) = (&bytes[1..line_end], &bytes[line_end + 2..]);
    let text = std::str::from_utf8(line).map_err(|_| "a header that is no text")?;
    let kind = bytes[0];
    let length = || text.parse::<i64>().map_err(|_| format!("a length of {text}"));
    let many = |rest, count: i64| (0..count).try_fold(rest, |rest, _| read_reply(rest, resp3));
    match kind {
        b'+' | b'-' => Ok(rest),
        b':' => length().map(|_| rest),
        b'$' | b'=' if resp3 || kind == b'$' => match length()? {
            -1 if !resp3 => Ok(rest),
            len => {
                let len = usize::try_from(len).map_err(|_| "a negative length")?;
                let after = rest.get(len..).ok_or("too short a string")?;
                after.strip_prefix(b"\r\n").ok_or_else(|| "a string without its end".into())
            }
        },
        b'*' => match length()? {
            -1 if !resp3 => Ok(rest),
            len => many(rest, len),
        },
        b'~' | b'>' if resp3 => many(rest, length()?),
        b'%' if resp3 => many(rest, length()? * 2),
        b'_' if resp3 && text.is_empty() => Ok(rest),
        b'#' if resp3 && (text == "t" || text == "f") => Ok(rest),
        b',' if resp3 => Ok(rest),
        b'(' if resp3 => Ok(rest),
        other => Err(format!("a reply of kind {:?}", char::from(other))),
    }
}

fn run(seed: u64, resp3: bool) {
    let mut random = Random::new(seed);
    let mut client = if resp3 { Client::new().resp3() } else { Client::new() };
    client.core.space.settings.proto_max_bulk_len.store(STRING_BYTES_MAX, Ordering::Relaxed);
    client.core.space.settings.notify.store(u32::MAX, Ordering::Relaxed);
    let mut trace = Trace::default();
    let mut answers = 0;
    for _ in 0..COMMANDS {
        // Transactions are kept short: one bad word spoils them whole.
        let ends = client.session.multi.is_some() && random.below(4) == 0;
        let words = match ends {
            true => vec![b"EXEC".to_vec()],
            false => command(&mut random, client.core.registry.entries()),
        };
        trace.add(&words);
        let mut reply = client.reply(&words);
        if client.session.blocked.is_some() {
            assert!(reply.is_empty(), "a blocked client got a reply");
            reply = client.time_out().expect("nobody serves it");
        }
        answers += usize::from(reply[0] != b'-');
        match read_reply(&reply, resp3) {
            Ok(b"") => {}
            Ok(_) => panic!("more than one reply: {}", reply.escape_ascii()),
            Err(error) => panic!("{error}: {}", reply.escape_ascii()),
        }
        client.now_ms += random.below(3) as i64;
    }
    // Else the test would try nothing but error texts.
    assert!(answers > COMMANDS / 4, "only {answers} of {COMMANDS} commands were not refused");
}

#[test]
fn random_commands_in_resp2() {
    run(1, false);
}

#[test]
fn random_commands_in_resp3() {
    run(2, true);
}
