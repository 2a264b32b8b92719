//! The list of cases, and what they share: client threads with a deadline, and transactions that
//! can be told to cheat.

use crate::client::{Client, Outcome, Reply};
use crate::random::Random;
use crate::{money, moves, queues, registers};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Whether transactions are sent as such, or taken apart so that the checks have something to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduct {
    Honest,
    Cheating,
}

#[derive(Clone)]
pub struct Options {
    pub address: String,
    pub duration: Duration,
    pub clients_count: usize,
    pub seed: u64,
    pub case_filter: String,
    pub conduct: Conduct,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            address: std::env::var("FOREBAY_ADDRESS")
                .unwrap_or_else(|_| "127.0.0.1:6379".to_owned()),
            duration: Duration::from_secs(10),
            clients_count: 8,
            seed: 1,
            case_filter: String::new(),
            conduct: Conduct::Honest,
        }
    }
}

/// One thing that must hold. `run` returns what was done, in words, or what did not hold.
pub struct Case {
    pub name: &'static str,
    pub run: fn(&Run) -> Outcome<String>,
    /// Whether taking transactions apart breaks what this case checks.
    pub can_cheat: bool,
}

pub const CASES: &[Case] = &[
    Case { name: "transfers by WATCH, MULTI, EXEC", run: money::watched, can_cheat: true },
    Case { name: "transfers by MULTI, EXEC", run: money::blind, can_cheat: true },
    Case { name: "snapshots by MSET and MGET", run: money::snapshots, can_cheat: true },
    Case { name: "members moved by SMOVE", run: moves::set_members, can_cheat: true },
    Case {
        name: "elements moved by LMOVE and RPOPLPUSH",
        run: moves::list_elements,
        can_cheat: true,
    },
    Case { name: "one value moved by RENAME", run: moves::renamed_key, can_cheat: false },
    Case { name: "jobs delivered once by BLPOP and BLMOVE", run: queues::jobs, can_cheat: false },
    Case { name: "blocked clients served in their order", run: queues::fairness, can_cheat: false },
    Case { name: "woken only after the whole transaction", run: queues::hidden, can_cheat: true },
    Case {
        name: "every INCR answered with its own number",
        run: registers::tickets,
        can_cheat: false,
    },
    Case { name: "single keys are linearizable", run: registers::histories, can_cheat: false },
];

impl Case {
    /// Empties the server and runs the case for about that long.
    pub fn run_for(&self, options: &Options, duration: Duration) -> Outcome<String> {
        let run = Run {
            options: options.clone(),
            deadline: Instant::now() + duration,
            is_over: AtomicBool::new(false),
        };
        run.connect()?.call(&["FLUSHALL"])?;
        (self.run)(&run)
    }
}

/// One case under way.
pub struct Run {
    pub options: Options,
    pub deadline: Instant,
    is_over: AtomicBool,
}

impl Run {
    pub fn connect(&self) -> Outcome<Client> {
        Client::connect(&self.options.address)
    }

    /// Whether clients go on: the time is not up and none has found a fault.
    pub fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed) && Instant::now() < self.deadline
    }

    /// Runs `work` on `count` threads, each with a connection and random numbers of its own;
    /// the first fault ends them all.
    pub fn on_threads<T: Send>(
        &self,
        count: usize,
        work: impl Fn(usize, &mut Client, &mut Random) -> Outcome<T> + Sync,
    ) -> Outcome<Vec<T>> {
        let one = |index: usize| {
            let mut random = Random::new(self.options.seed, index);
            let done = self.connect().and_then(|mut client| work(index, &mut client, &mut random));
            if done.is_err() {
                self.is_over.store(true, Ordering::Relaxed);
            }
            done
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..count).map(|index| scope.spawn(move || one(index))).collect();
            let joined = threads.into_iter().map(|t| t.join().expect("no thread panics"));
            // All are waited for before the first fault is told.
            joined.collect::<Vec<_>>().into_iter().collect()
        })
    }

    /// Runs commands as one transaction; `None` where a WATCH stopped it. A cheating run sends
    /// them one by one instead.
    pub fn transaction(
        &self,
        client: &mut Client,
        commands: &[Vec<String>],
    ) -> Outcome<Option<Vec<Reply>>> {
        if self.options.conduct == Conduct::Cheating {
            let replies = commands.iter().map(|command| client.call(command));
            let replies = replies.collect::<Outcome<_>>()?;
            client.call(&["UNWATCH"])?;
            return Ok(Some(replies));
        }
        transaction(client, commands)
    }
}

/// MULTI, the commands, EXEC, in one go.
pub fn transaction(client: &mut Client, commands: &[Vec<String>]) -> Outcome<Option<Vec<Reply>>> {
    client.queue(&["MULTI"]);
    for command in commands {
        client.queue(command);
    }
    client.queue(&["EXEC"]);
    client.flush()?;
    for _ in 0..=commands.len() {
        if let Reply::Error(text) = client.receive()? {
            return Err(format!("while queueing: {text}"));
        }
    }
    match client.receive()? {
        Reply::Nil => Ok(None),
        Reply::Array(replies) => match replies.iter().find(|r| matches!(r, Reply::Error(_))) {
            Some(error) => Err(format!("inside a transaction: {error}")),
            None => Ok(Some(replies)),
        },
        other => Err(format!("EXEC answered {other}")),
    }
}

/// The words of a command, as cases write them.
pub fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}
