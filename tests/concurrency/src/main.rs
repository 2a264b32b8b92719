//! Proves, from outside, that commands and transactions are strictly serializable: many clients on
//! many threads work against one server, and what must always hold is checked while they do.
//!
//! ```text
//!   cases.rs     the list of cases, and what they share: threads, deadlines, transactions
//!   money.rs     transfers by WATCH and by MULTI; snapshots by MSET and MGET
//!   moves.rs     SMOVE, LMOVE and RENAME keep what they move
//!   queues.rs    BLPOP and BLMOVE deliver each item once, in order, first come first served
//!   registers.rs histories on single keys, checked by linear.rs
//!   linear.rs    the linearizability checker (Wing and Gong's search, with memory)
//!   client.rs    a small RESP2 client, on purpose not the server's own code
//! ```
//!
//! With `--mutant` the clients cheat: transactions and multi-key writes are sent as single
//! commands. Every case that can cheat must then fail, which shows that the checks can see.
//!
//! **Invariant:** a run sends to one address only, and ends by itself after `--seconds`.

mod cases;
mod client;
mod linear;
mod money;
mod moves;
mod queues;
mod random;
mod registers;

use cases::{CASES, Case, Conduct, Options};
use std::time::Instant;

const USAGE: &str = "\
forebay-concurrency: proves that nothing is torn, lost or out of order

  --address HOST:PORT  the server (default: FOREBAY_ADDRESS, else 127.0.0.1:6379); it is emptied
  --seconds N          how long to run altogether (default 10)
  --clients N          clients that write at once in each case (default 8)
  --seed N             which random choices are made (default 1)
  --case WORDS         only the cases whose name contains this
  --mutant             cheat, and pass only where every cheat is found out
";

fn main() {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}\n\n{USAGE}");
            std::process::exit(2);
        }
    };
    let cases: Vec<&Case> = CASES
        .iter()
        .filter(|case| case.name.contains(&options.case_filter))
        .filter(|case| case.can_cheat || options.conduct == Conduct::Honest)
        .collect();
    let mut failed = 0;
    for case in &cases {
        failed += usize::from(!run(case, &options, cases.len()));
    }
    println!("{} passed, {failed} failed", cases.len() - failed);
    std::process::exit(i32::from(failed > 0 || cases.is_empty()));
}

/// Runs one case for its share of the time and says whether it went as it must.
fn run(case: &Case, options: &Options, cases_count: usize) -> bool {
    let started = Instant::now();
    let outcome = case.run_for(options, options.duration / cases_count as u32);
    let seconds = started.elapsed().as_secs_f64();
    match (outcome, options.conduct) {
        (Ok(done), Conduct::Honest) => {
            println!("ok      {:<44} {done}, {seconds:.1} s", case.name);
            true
        }
        (Err(message), Conduct::Honest) => {
            println!("FAILED  {:<44} {message}", case.name);
            false
        }
        (Ok(done), Conduct::Cheating) => {
            println!("MISSED  {:<44} nothing was noticed in {done}", case.name);
            false
        }
        (Err(message), Conduct::Cheating) => {
            println!("found   {:<44} {message}", case.name);
            true
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--address" => options.address = value()?,
            "--seconds" => options.duration = std::time::Duration::from_secs(number(&value()?)?),
            "--clients" => options.clients_count = number(&value()?)?.max(2) as usize,
            "--seed" => options.seed = number(&value()?)?,
            "--case" => options.case_filter = value()?,
            "--mutant" => options.conduct = Conduct::Cheating,
            _ => return Err(format!("unknown option {word}")),
        }
    }
    Ok(options)
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("'{word}' is not a whole number"))
}
