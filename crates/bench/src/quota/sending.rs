//! The sending of a run's records: by a thread for each client of the account, or over the
//! connections of a load generator that one thread drives.
//!
//! **Invariant:** each record was accepted, or the run is an error.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::Load;
use super::arms::{Clients, Recorder};
use crate::http_message::HttpTraffic;
use crate::load::{self, Limit, Pace, Plan, new_histogram};
use crate::process;
use crate::sys;
use crate::target::Target;

/// A server that is silent for so long has failed.
const SILENCE: Duration = Duration::from_secs(30);

/// What is to be sent.
pub struct Course<'a> {
    /// Who sends for whom.
    pub load: Load,
    /// Records of all clients.
    pub records: u32,
    /// Cores for the clients, in turn; none for any.
    pub cores: &'a [usize],
    /// What chance comes from.
    pub seed: u64,
}

/// What the sending came to.
pub struct Sent {
    /// From the first request to the last answer.
    pub whole: Duration,
    /// Of requests, in nanoseconds.
    pub latencies: Histogram<u64>,
    /// What a client waited in all, in nanoseconds.
    pub stored_ns: u64,
    /// What the clients' threads worked.
    pub client_cpu_ns: Option<u64>,
}

/// Lets all clients send their share, `each` records a request.
pub fn send(
    clients: Clients<'_>,
    course: &Course<'_>,
    each: u32,
    live: &mut dyn FnMut(u64),
) -> Result<Sent, String> {
    let mut sent = match clients {
        Clients::Threads(recorders) => by_threads(recorders, course)?,
        Clients::Http(target, traffic) => by_http(target, &traffic, course, each, live)?,
    };
    live(u64::from(course.records));
    let steps = sent.latencies.iter_recorded();
    let waited = steps.map(|step| step.value_iterated_to() * step.count_at_value()).sum::<u64>();
    sent.stored_ns = waited / u64::from(course.load.clients);
    Ok(sent)
}

fn by_http(
    target: &Target,
    traffic: &HttpTraffic,
    course: &Course<'_>,
    each: u32,
    live: &mut dyn FnMut(u64),
) -> Result<Sent, String> {
    let requests = u64::from(course.records / each);
    let plan = Plan {
        target,
        workload: traffic,
        clients: course.load.clients as usize,
        threads: 1,
        pipeline: 1,
        limit: Limit::Requests(requests),
        pace: Pace::Closed,
        warmup: Duration::ZERO,
        timeout: SILENCE,
        cores: course.cores,
        seed: course.seed,
    };
    let progress = |replies: u64| live(replies * u64::from(each));
    let outcome = load::run(&plan, progress).map_err(|error| error.to_string())?;
    if outcome.failures > 0 || outcome.replies != requests {
        let (failures, replies) = (outcome.failures, outcome.replies);
        let example = outcome.failure_examples.first().map_or("", String::as_str);
        return Err(format!("{failures} of {replies} answers are wrong: {example}"));
    }
    Ok(Sent {
        whole: outcome.elapsed,
        latencies: outcome.latency,
        stored_ns: 0,
        client_cpu_ns: outcome.generator_cpu_ns,
    })
}

/// One client's latencies and what its thread worked.
type Own = (Histogram<u64>, Option<u64>);

fn by_threads(recorders: Vec<Box<dyn Recorder>>, course: &Course<'_>) -> Result<Sent, String> {
    let began = Instant::now();
    let results = std::thread::scope(|scope| {
        let one = |(client, recorder): (usize, Box<dyn Recorder>)| {
            scope.spawn(move || one_client(recorder, client, course))
        };
        let threads: Vec<_> = recorders.into_iter().enumerate().map(one).collect();
        let joined = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err("a client's thread failed".to_string()))
        });
        joined.collect::<Result<Vec<_>, _>>()
    })?;
    let whole = began.elapsed();
    let mut latencies = new_histogram();
    let mut client_cpu_ns = Some(0);
    for (own, cpu_ns) in results {
        latencies += own;
        client_cpu_ns = client_cpu_ns.zip(cpu_ns).map(|(sum, own)| sum + own);
    }
    Ok(Sent { whole, latencies, stored_ns: 0, client_cpu_ns })
}

fn one_client(
    mut recorder: Box<dyn Recorder>,
    client: usize,
    course: &Course<'_>,
) -> Result<Own, String> {
    if let Some(core) = course.cores.get(client % course.cores.len().max(1)) {
        sys::pin_current_thread(*core).map_err(|error| error.to_string())?;
    }
    let Load { clients, orgs } = course.load;
    let mut latencies = new_histogram();
    for index in (client as u32..course.records).step_by(clients as usize) {
        let sent = Instant::now();
        recorder.record(index, index / clients % orgs)?;
        latencies.saturating_record(sent.elapsed().as_nanos() as u64);
    }
    Ok((latencies, process::own_thread_cpu_ns()))
}
