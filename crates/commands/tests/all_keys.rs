//! Commands over the whole keyspace beside others on several threads: none waits for another for
//! ever, and what a transaction sees of the keyspace is one moment.

use forebay_commands::FAMILIES;
use forebay_commands::context::{Host, Session};
use forebay_commands::engine::{Core, Turn};
use forebay_commands::registry::Registry;
use keyspace::keyspace::Keyspace;
use keyspace::random::Random;
use resp::{OwnedArgs, Writer};

struct NoServer;
impl Host for NoServer {}

const THREADS: usize = 4;
const ROUNDS: usize = 200;

fn run(
    core: &Core,
    thread: usize,
    session: &mut Session,
    random: &mut Random,
    line: &str,
) -> String {
    let args = OwnedArgs::new(line.split(' '));
    let mut out = Writer::new(false);
    let mut turn = Turn { core, thread, now_ms: 1_700_000_000_000, random, host: &mut NoServer };
    turn.run(session, &mut out, args.args());
    String::from_utf8_lossy(&out.to_vec()).into_owned()
}

#[test]
fn transactions_visit_all_keys_beside_others() {
    let core = Core { space: Keyspace::new(16, THREADS), registry: Registry::new(FAMILIES) };
    let core = &core;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let mut session = Session::new(thread as u64);
                let mut random = Random::new(thread as u64 + 1);
                let mut run = |line: &str| run(core, thread, &mut session, &mut random, line);
                for round in 0..ROUNDS {
                    let (one, other) = (format!("a{thread}:{round}"), format!("b{thread}:{round}"));
                    // Both or none: always an even number of keys.
                    run(&format!("MSET {one} 1 {other} 2"));
                    for line in ["MULTI", "SET x 1", "KEYS [ab]*", "SCAN 0 COUNT 100000"] {
                        run(line);
                    }
                    run("RANDOMKEY");
                    run("DEL x");
                    let seen = run("EXEC");
                    let keys: usize = header(seen.lines().nth(2).unwrap_or_default());
                    assert!(keys.is_multiple_of(2), "{keys} keys seen at one moment");
                    match round % 4 {
                        0 => run("SWAPDB 0 1"),
                        1 => run("KEYS a*"),
                        2 => run(&format!("SORT none BY {one}* GET {other}*")),
                        _ => run("FLUSHALL"),
                    };
                }
            });
        }
    });
}

/// The number in an array's header.
fn header(line: &str) -> usize {
    line.trim_start_matches('*').parse().unwrap_or_else(|_| panic!("no array: {line}"))
}
