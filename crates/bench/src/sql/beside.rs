//! How long a GET takes while another connection's query runs, and without it.

use std::thread;
use std::time::Duration;

use crate::client::Client;
use crate::harness::{Sample, Turn};
use crate::load::{self, Limit, Pace, Plan};
use crate::measured;
use crate::sql::{GET_KEYS, Ladder, set_up};
use crate::target::Target;
use crate::workload::{self, Workload};

/// GETs that fall due each second.
const RATE: f64 = 2000.0;
/// Connections that send them.
const CLIENTS: usize = 10;
/// How long a query is given to begin.
const BEGIN: Duration = Duration::from_millis(50);

impl Ladder {
    /// Measures GETs, then GETs while `query` runs, which is cancelled afterwards.
    pub(super) fn beside(
        &self,
        turn: Turn,
        target: &Target,
        query: &str,
        live: &mut dyn FnMut(u64),
    ) -> Result<Sample, String> {
        let rung = self.rungs[turn.cell];
        let mut client = self.connect(target)?;
        set_up(&mut client, rung)?;
        let prepared = workload::prepare(&mut client, rung.test, GET_KEYS, 3, None);
        prepared.map_err(|error| error.to_string())?;
        let load = Workload::new(&[rung.test], GET_KEYS, 3);
        let pace = Pace::Open(RATE);
        let plan = Plan { clients: CLIENTS, pace, ..self.plan(target, &load, turn) };
        let limit = |time| Limit::Time(time);
        let mut run = |time| {
            let plan = Plan { limit: limit(time), ..plan.clone() };
            let outcome = load::run(&plan, &mut *live).map_err(|error| error.to_string())?;
            Ok::<Sample, String>(measured::sample_of(&outcome, &plan))
        };
        let idle = run(self.times.idle)?;
        let running = self.connect(target)?;
        let (mut sample, reply) = thread::scope(|scope| {
            let asking = scope.spawn(|| ask(running, rung.db, query));
            thread::sleep(BEGIN);
            let sample = run(self.times.beside);
            let cancelled = client.command(&["SQL.CANCEL", rung.db]);
            let reply = asking.join().map_err(|_| "the query's thread panicked".to_string())?;
            cancelled.map_err(|error| error.to_string())?;
            Ok::<_, String>((sample?, reply))
        })?;
        sample.checked += idle.checked + 1;
        if let Some(reply) = reply {
            sample.failures += 1;
            let text = format!("the query ended by itself, before GETs did: {reply}");
            sample.failure_examples.push(text);
        }
        compare(&mut sample, &idle);
        Ok(sample)
    }
}

/// Sends a query that never ends; its reply if it was not an error.
fn ask(mut client: Client, db: &str, query: &str) -> Option<String> {
    let reply = client.command(&["REDISQL.EXEC", db, query]);
    reply.ok().map(|value| format!("{value:?}"))
}

/// Adds what the idle server did.
fn compare(sample: &mut Sample, idle: &Sample) {
    let p99 = |of: &Sample| of.values.get("p99_us").copied();
    if let (Some(before), Some(during)) = (p99(idle), p99(sample)) {
        sample.values.insert("idle_p99_us", before);
        sample.values.insert("idle_ratio", during / before.max(0.001));
    }
    sample.failures += idle.failures;
    sample.failure_examples.extend(idle.failure_examples.iter().cloned());
    // The server's time is the query's.
    sample.values.remove("server_cpu_us");
}
