//! SCAN: every key of the database, some at a time.
//!
//! **Invariant:** a key that is there from the first call to the one that answers cursor 0 is
//! returned at least once. Keys are visited in the order of their hashes and a cursor is a place
//! in that order, so neither growth nor removals move a key across it.

use keyspace::value::Kind;
use resp::{Args, Writer};

use crate::command::{Command, READONLY, VISITS_ALL};
use crate::context::Context;
use crate::error::Error;
use crate::pattern;
use crate::words::{Scanned, cursor, is, scan_options};

/// The row.
pub const ROW: Command = Command {
    name: "SCAN",
    run: scan,
    flags: READONLY.with(VISITS_ALL),
    usage: "cursor [MATCH pattern] [COUNT count] [TYPE type]",
    summary: "Returns some keys and the cursor to go on from, 0 at the end.",
    complexity: "O(1) for each call, O(N) for all of them, N = keys of the database",
    since: "2.8.0",
    tips: &["nondeterministic_output", "request_policy:special", "response_policy:special"],
    ..Command::DEFAULT
};

fn scan(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let cursor = cursor(args.word(1))?;
    let options = scan_options(args, 2, Scanned::Keys)?;
    let fits = |kind: Kind| options.kind.is_none_or(|wanted| is(wanted, kind.name()));
    let mut keys = Writer::new(cx.out.is_resp3());
    let mut found = 0;
    let next = cx.keys.scan(cursor, options.count, |entry| {
        let key = entry.key();
        if fits(entry.kind()) && options.pattern.is_none_or(|glob| pattern::matches(glob, key)) {
            keys.bulk(key);
            found += 1;
        }
    });
    cx.out.array(2);
    cx.out.text(&next.to_string());
    cx.out.array(found);
    cx.out.append(&keys);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Client;

    /// Keys in the reply, and its cursor.
    fn step(client: &mut Client, line: &str) -> (String, Vec<String>) {
        let reply = client.run(line);
        let words: Vec<&str> = reply.split(' ').collect();
        assert_eq!((words[0], &words[3][..1]), ("*2", "*"), "{reply}");
        let keys = words[4..].iter().skip(1).step_by(2).map(ToString::to_string).collect();
        (words[2].to_string(), keys)
    }

    fn all(
        client: &mut Client,
        options: &str,
        mut between: impl FnMut(&mut Client),
    ) -> Vec<String> {
        let (mut cursor, mut found) = ("0".to_string(), Vec::new());
        loop {
            let (next, keys) = step(client, &format!("SCAN {cursor} {options}"));
            found.extend(keys);
            assert!(next.parse::<u64>().expect("a number") < 1 << 53);
            if next == "0" {
                break;
            }
            cursor = next;
            between(client);
        }
        found.sort();
        found.dedup();
        found
    }

    #[test]
    fn every_key_is_found() {
        let mut client = Client::new();
        assert_eq!(client.run("SCAN 0"), "*2 $1 0 *0");
        for key in 0..3000 {
            client.run(&format!("SET key:{key} v"));
        }
        for options in ["", "COUNT 1", "COUNT 100000", "TYPE string", "MATCH key:*"] {
            assert_eq!(all(&mut client, options, |_| {}).len(), 3000, "{options}");
        }
        assert_eq!(all(&mut client, "MATCH key:29?? COUNT 500", |_| {}).len(), 100);
        assert_eq!(all(&mut client, "TYPE list COUNT 500", |_| {}).len(), 0);
    }

    #[test]
    fn what_stays_is_found_whatever_comes_and_goes() {
        let mut client = Client::new();
        for key in 0..500 {
            client.run(&format!("SET stays:{key} v"));
        }
        let mut fresh = 0;
        let found = all(&mut client, "COUNT 7 MATCH stays:*", |client| {
            for _ in 0..40 {
                fresh += 1;
                client.run(&format!("SET fresh:{fresh} v"));
                client.run(&format!("DEL fresh:{}", fresh / 2));
            }
        });
        assert_eq!(found.len(), 500);
    }

    #[test]
    fn bad_words() {
        Client::new().check(&[
            ("SCAN x", "-ERR invalid cursor"),
            ("SCAN 18446744073709551616", "-ERR invalid cursor"),
            ("SCAN 18446744073709551615", "*2 $1 0 *0"),
            ("SCAN 0 COUNT 0", "-ERR syntax error"),
            ("SCAN 0 COUNT x", "-ERR value is not an integer or out of range"),
            ("SCAN 0 COUNT", "-ERR syntax error"),
            ("SCAN 0 NOVALUES", "-ERR NOVALUES option can only be used in HSCAN"),
        ]);
    }
}
