//! Scripts that declare no keys, on several threads: nothing torn, nothing lost, nobody waits for
//! ever. The "script" is a command of the test's own that runs others, as Lua's do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_commands::FAMILIES;
use forebay_commands::command::{Command, Family, Group, SCRIPT, WRITE};
use forebay_commands::context::{Context, Host, Session};
use forebay_commands::engine::{Core, Turn};
use forebay_commands::error::Error;
use forebay_commands::registry::Registry;
use forebay_commands::widen::Again;
use keyspace::keyspace::Keyspace;
use keyspace::random::Random;
use resp::{Args, OwnedArgs, Writer};

const MOVE: Family = Family {
    group: Group::Generic,
    commands: &[Command {
        name: "TEST.MOVE",
        usage: "from to list",
        summary: "Moves one from a counter to another, and notes it in a list.",
        flags: WRITE.with(SCRIPT),
        run: move_one,
        ..Command::DEFAULT
    }],
};

/// Runs that were undone.
static AGAIN: AtomicU64 = AtomicU64::new(0);

fn move_one(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    cx.begin_script();
    while attempt(cx, args).is_err() {
        AGAIN.fetch_add(1, Ordering::Relaxed);
        cx.again();
    }
    cx.end_script();
    cx.out.ok();
    Ok(())
}

fn attempt(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Again> {
    let word = |index: usize| args.word(index).to_vec();
    let commands: [Vec<Vec<u8>>; 4] = [
        vec![b"DECR".to_vec(), word(1)],
        vec![b"RPUSH".to_vec(), word(3), word(1)],
        vec![b"APPEND".to_vec(), [b"note:", args.word(2)].concat(), b"x".to_vec()],
        vec![b"INCR".to_vec(), word(2)],
    ];
    for words in commands {
        let owned = OwnedArgs::new(words);
        let entry = cx.core.registry.named(owned.args()).expect("a command of ours");
        cx.prepare(entry, owned.args())?;
        let mut out = Writer::new(false);
        assert!(!cx.run_in_script(entry, owned.args(), &mut out));
    }
    Ok(())
}

struct Quiet;
impl Host for Quiet {}

fn run(core: &Core, thread: usize, random: &mut Random, line: &str) -> String {
    let args = OwnedArgs::new(line.split(' '));
    let mut out = Writer::new(false);
    let mut host = Quiet;
    let mut turn = Turn { core, thread, now_ms: 1, random, host: &mut host };
    turn.run(&mut Session::new(1), &mut out, args.args());
    String::from_utf8_lossy(&out.to_vec()).trim_end().to_owned()
}

const THREADS: usize = 4;
const MOVES: usize = 3000;

#[test]
fn scripts_on_undeclared_keys_are_whole() {
    let families: Vec<Family> = FAMILIES.iter().copied().chain([MOVE]).collect();
    let core =
        Arc::new(Core { space: Keyspace::new(1, THREADS), registry: Registry::new(&families) });
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let core = &core;
            scope.spawn(move || {
                let mut random = Random::new(thread as u64);
                for _ in 0..MOVES {
                    let [from, to, list] = [6, 6, 3].map(|count| random.below(count));
                    let line = format!("TEST.MOVE c{from} c{to} l{list}");
                    assert_eq!(run(core, thread, &mut random, &line), "+OK");
                    let line = format!("MSET a{from} 1 a{to} 2 a{list} 3");
                    assert_eq!(run(core, thread, &mut random, &line), "+OK");
                }
            });
        }
    });
    let mut random = Random::new(99);
    let number = |line: &str, random: &mut Random| {
        let reply = run(&core, 0, random, line);
        let text = reply.rsplit(['\n', ':']).next().unwrap_or_default();
        text.trim().parse::<i64>().unwrap_or_default()
    };
    let sum: i64 = (0..6).map(|at| number(&format!("GET c{at}"), &mut random)).sum();
    assert_eq!(sum, 0, "what left one counter came to another");
    let noted: i64 = (0..3).map(|at| number(&format!("LLEN l{at}"), &mut random)).sum();
    assert_eq!(noted, (THREADS * MOVES) as i64, "each move is noted once");
    let notes: i64 = (0..6).map(|at| number(&format!("STRLEN note:c{at}"), &mut random)).sum();
    assert_eq!(notes, (THREADS * MOVES) as i64);
    assert!(AGAIN.load(Ordering::Relaxed) > 0, "no script ever had to run again");
}
