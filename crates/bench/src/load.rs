//! The load generator: threads that each drive their share of the connections with epoll.
//!
//! ```text
//!   main                       worker 1..n
//!    | spawn ------------------> connect its clients
//!    | <------------- Ready ----
//!    | Phase (warm-up) --------> send, receive, check ... until the phase's limit
//!    | <----------- Finished --- nothing is outstanding on any connection
//!    | CPU time before
//!    | Phase (measured) -------> ...
//!    | <----------- Finished --- histograms and counts
//!    | CPU time after
//! ```
//!
//! Two ways to pace the load:
//!
//! * **closed**: each connection sends a batch of `pipeline` requests when the last was answered.
//!   It finds the throughput, and stops asking while the server stalls: its latencies are those of
//!   a polite client.
//! * **open**: requests fall due at fixed times whatever the server does. Latency counts from the
//!   time a request was *due*; a second histogram counts from when it was sent, to show the
//!   difference. Requests that are still waiting for a free connection at the end are counted as
//!   `unsent`, and enter the first histogram with the time that they have waited until then.
//!
//! **Invariant:** between phases nothing is in flight, so each reply belongs to one phase, and the
//! CPU time between two phases to exactly the replies counted.
//!
//! **Invariant:** every reply is checked; what is not as expected is counted and the first few
//! are kept with their reasons.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::client::Error;
use crate::connection::{Connection, Filled, InFlight};
use crate::process;
use crate::random::Random;
use crate::sys::{self, Timer};
use crate::target::{Endpoint, Target};
use crate::traffic::{Traffic, Verdict};

/// How many wrong replies are kept with their text, per thread.
const EXAMPLES_MAX: usize = 5;

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// After so many requests.
    Requests(u64),
    /// After this time.
    Time(Duration),
}

/// How the load is paced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As fast as replies come.
    Closed,
    /// So many requests per second, all connections together.
    Open(f64),
}

/// One run against one server.
#[derive(Clone, Debug)]
pub struct Plan<'a, T> {
    /// The server.
    pub target: &'a Target,
    /// What to send.
    pub workload: &'a T,
    /// Connections.
    pub clients: usize,
    /// Threads that drive them.
    pub threads: usize,
    /// Requests in flight on a connection, at most.
    pub pipeline: usize,
    /// When it ends.
    pub limit: Limit,
    /// How it is paced.
    pub pace: Pace,
    /// How long to send before measuring.
    pub warmup: Duration,
    /// A server silent for so long has failed.
    pub timeout: Duration,
    /// Cores for the threads, in turn; none for wherever the system puts them.
    pub cores: &'a [usize],
    /// What the random keys come from.
    pub seed: u64,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Replies that were checked in the measured phase.
    pub replies: u64,
    /// Requests sent in both phases, for checks of what they left behind.
    pub sent_in_all: u64,
    /// Replies that were not as expected, in both phases.
    pub failures: u64,
    /// The first few of them.
    pub failure_examples: Vec<String>,
    /// Replies that said that there was nothing left to pop.
    pub empty: u64,
    /// Open loop: requests due that could not be sent before the end.
    pub unsent: u64,
    /// How long the measured phase took.
    pub elapsed: Duration,
    /// Latency in nanoseconds: from the due time (open) or the batch's sending (closed).
    pub latency: Histogram<u64>,
    /// Open loop: latency from the actual sending, which leaves the wait for the server out.
    pub from_send: Option<Histogram<u64>>,
    /// CPU time of the server in the measured phase.
    pub server_cpu_ns: Option<u64>,
    /// CPU time of the generator's threads.
    pub generator_cpu_ns: Option<u64>,
}

/// Runs a plan. `progress` is called a few times per second with the replies so far.
pub fn run<T: Traffic>(
    plan: &Plan<'_, T>,
    mut progress: impl FnMut(u64),
) -> Result<Outcome, Error> {
    let threads = plan.threads.clamp(1, plan.clients.max(1));
    let counters: Vec<Counter> = (0..threads).map(|_| Counter::default()).collect();
    thread::scope(|scope| {
        let (reports, inbox) = mpsc::channel();
        let mut crew = Crew { inbox, phases: Vec::new() };
        for (index, counter) in counters.iter().enumerate() {
            let (phases, orders) = mpsc::channel();
            crew.phases.push(phases);
            let reports = reports.clone();
            scope.spawn(move || {
                let result = work(plan, index, threads, counter, &orders, &reports);
                if let Err(error) = result {
                    // The main thread may have given up already.
                    let _ = reports.send(Err(error));
                }
            });
        }
        drop(reports);
        let mut tick = || progress(counters.iter().map(Counter::read).sum());
        crew.collect(&mut tick)?;
        let warm = match plan.warmup {
            Duration::ZERO => Vec::new(),
            warmup => crew.run_phase(Limit::Time(warmup), &mut tick)?,
        };
        let cpu = |plan: &Plan<'_, T>| plan.target.cpu.and_then(|cpu| cpu.cpu_ns());
        let cpu_before = cpu(plan);
        let measured = crew.run_phase(plan.limit, &mut tick)?;
        let cpu_after = cpu(plan);
        let mut outcome = merge(&warm, &measured, plan.pace)?;
        outcome.server_cpu_ns = cpu_before.zip(cpu_after).map(|(a, b)| b.saturating_sub(a));
        Ok(outcome)
    })
}

/// Replies of one thread so far; alone on its cache line so that counting costs nothing.
#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

impl Counter {
    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    fn write(&self, replies: u64) {
        self.0.store(replies, Ordering::Relaxed);
    }
}

/// An order to a worker.
#[derive(Clone, Copy)]
struct Phase {
    limit: Limit,
    start: Instant,
}

/// What a worker found in a phase.
struct Finished {
    replies: u64,
    sent: u64,
    failures: u64,
    failure_examples: Vec<String>,
    empty: u64,
    unsent: u64,
    last_reply: Duration,
    latency: Histogram<u64>,
    from_send: Histogram<u64>,
    cpu_ns: Option<u64>,
}

/// The main thread's end of the workers.
struct Crew {
    inbox: Receiver<Result<Finished, Error>>,
    phases: Vec<Sender<Phase>>,
}

impl Crew {
    fn run_phase(&self, limit: Limit, tick: &mut dyn FnMut()) -> Result<Vec<Finished>, Error> {
        let start = Instant::now();
        for phases in &self.phases {
            // A worker that is gone has sent its error, which `collect` returns.
            let _ = phases.send(Phase { limit, start });
        }
        self.collect(tick)
    }

    /// Waits for one message of each worker.
    fn collect(&self, tick: &mut dyn FnMut()) -> Result<Vec<Finished>, Error> {
        let mut reports = Vec::new();
        while reports.len() < self.phases.len() {
            match self.inbox.recv_timeout(Duration::from_millis(100)) {
                Ok(report) => reports.push(report?),
                // The workers watch for silence of the server themselves.
                Err(RecvTimeoutError::Timeout) => tick(),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::new("a generator thread ended early"));
                }
            }
        }
        tick();
        Ok(reports)
    }
}

fn merge(warm: &[Finished], measured: &[Finished], pace: Pace) -> Result<Outcome, Error> {
    let mut latency = new_histogram();
    let mut from_send = new_histogram();
    for part in measured {
        latency += &part.latency;
        from_send += &part.from_send;
    }
    let all = || warm.iter().chain(measured);
    let elapsed = measured.iter().map(|part| part.last_reply).max().unwrap_or_default();
    if elapsed.is_zero() {
        return Err(Error::new("no reply in the measured time"));
    }
    Ok(Outcome {
        replies: measured.iter().map(|part| part.replies).sum(),
        sent_in_all: all().map(|part| part.sent).sum(),
        failures: all().map(|part| part.failures).sum(),
        failure_examples: all()
            .flat_map(|part| part.failure_examples.iter().cloned())
            .take(EXAMPLES_MAX)
            .collect(),
        empty: measured.iter().map(|part| part.empty).sum(),
        unsent: measured.iter().map(|part| part.unsent).sum(),
        elapsed,
        latency,
        from_send: matches!(pace, Pace::Open(_)).then_some(from_send),
        server_cpu_ns: None,
        generator_cpu_ns: measured.iter().map(|part| part.cpu_ns).sum(),
    })
}

/// A histogram of nanoseconds up to ten minutes, exact to three digits.
pub fn new_histogram() -> Histogram<u64> {
    const HIGHEST_NS: u64 = 600_000_000_000;
    Histogram::new_with_bounds(1, HIGHEST_NS, 3).expect("the bounds are the library's own kind")
}

fn work<T: Traffic>(
    plan: &Plan<'_, T>,
    index: usize,
    threads: usize,
    counter: &Counter,
    orders: &Receiver<Phase>,
    reports: &Sender<Result<Finished, Error>>,
) -> Result<(), Error> {
    if !plan.cores.is_empty() {
        let core = plan.cores[index % plan.cores.len()];
        sys::pin_current_thread(core)
            .map_err(|error| Error::new(format!("cannot pin to core {core}: {error}")))?;
    }
    let mut worker = Worker::connect(plan, index, threads, counter)?;
    // `Finished` of nothing stands for Ready.
    let _ = reports.send(Ok(worker.finish(None)));
    while let Ok(phase) = orders.recv() {
        let cpu_before = process::own_thread_cpu_ns();
        worker.start = phase.start;
        match plan.pace {
            Pace::Closed => worker.run_closed(share(phase.limit, index, threads))?,
            Pace::Open(rate) => {
                worker.run_open(share(phase.limit, index, threads), rate / threads as f64)?;
            }
        }
        let cpu_ns = cpu_before.zip(process::own_thread_cpu_ns()).map(|(a, b)| b - a);
        let _ = reports.send(Ok(worker.finish(cpu_ns)));
    }
    Ok(())
}

/// A thread's part of the limit.
fn share(limit: Limit, index: usize, threads: usize) -> Limit {
    match limit {
        Limit::Time(time) => Limit::Time(time),
        Limit::Requests(requests) => {
            let (each, more) = (requests / threads as u64, requests % threads as u64);
            Limit::Requests(each + u64::from((index as u64) < more))
        }
    }
}

/// How many events are taken from the kernel at once.
const EVENTS_MAX: usize = 1024;

/// Open loop: a wait shorter than this is spent looking for events. To sleep and wake up again
/// takes longer than it is precise, and would be counted as the server's latency.
const SPIN_NS: u64 = 100_000;

/// The token of the timer; connections have those below.
const TIMER: Token = Token(usize::MAX - 1);

/// One thread's connections and what it has found in this phase.
struct Worker<'a, T: Traffic> {
    plan: &'a Plan<'a, T>,
    endpoint: Endpoint,
    counter: &'a Counter,
    poll: Poll,
    timer: Timer,
    connections: Vec<Connection<T>>,
    random: Random,
    start: Instant,
    /// Replies in all phases, for the progress bar.
    replies_shown: u64,
    tally: Tally,
}

struct Tally {
    replies: u64,
    sent: u64,
    failures: u64,
    failure_examples: Vec<String>,
    empty: u64,
    unsent: u64,
    last_reply_ns: u64,
    latency: Histogram<u64>,
    from_send: Histogram<u64>,
}

impl Tally {
    fn new() -> Self {
        Tally {
            replies: 0,
            sent: 0,
            failures: 0,
            failure_examples: Vec::new(),
            empty: 0,
            unsent: 0,
            last_reply_ns: 0,
            latency: new_histogram(),
            from_send: new_histogram(),
        }
    }

    #[cold]
    fn note_failure(&mut self, why: String) {
        self.failures += 1;
        if self.failure_examples.len() < EXAMPLES_MAX {
            self.failure_examples.push(why);
        }
    }
}

impl<'a, T: Traffic> Worker<'a, T> {
    fn connect(
        plan: &'a Plan<'a, T>,
        index: usize,
        threads: usize,
        counter: &'a Counter,
    ) -> Result<Self, Error> {
        let poll = Poll::new()?;
        let timer = Timer::new()?;
        poll.registry().register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)?;
        let Limit::Requests(clients) = share(Limit::Requests(plan.clients as u64), index, threads)
        else {
            return Err(Error::new("no clients"));
        };
        let mut connections = Vec::with_capacity(clients as usize);
        for number in 0..clients as usize {
            let socket = plan.workload.connect(plan.target, plan.timeout)?;
            connections.push(Connection::new(socket, &poll, Token(number), plan.pipeline)?);
        }
        Ok(Worker {
            plan,
            endpoint: plan.target.address.endpoint()?,
            counter,
            poll,
            timer,
            connections,
            random: Random::new(plan.seed.wrapping_add(index as u64)),
            start: Instant::now(),
            replies_shown: 0,
            tally: Tally::new(),
        })
    }

    fn finish(&mut self, cpu_ns: Option<u64>) -> Finished {
        let tally = std::mem::replace(&mut self.tally, Tally::new());
        Finished {
            replies: tally.replies,
            sent: tally.sent,
            failures: tally.failures,
            failure_examples: tally.failure_examples,
            empty: tally.empty,
            unsent: tally.unsent,
            last_reply: Duration::from_nanos(tally.last_reply_ns),
            latency: tally.latency,
            from_send: tally.from_send,
            cpu_ns,
        }
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn run_closed(&mut self, limit: Limit) -> Result<(), Error> {
        let (mut left, deadline_ns) = match limit {
            Limit::Requests(requests) => (requests, u64::MAX),
            Limit::Time(time) => (u64::MAX, time.as_nanos() as u64),
        };
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut busy = 0;
        for number in 0..self.connections.len() {
            busy += usize::from(self.send_batch(number, &mut left)?);
        }
        while busy > 0 {
            self.wait(&mut events)?;
            for event in &events {
                let number = event.token().0;
                let Some(connection) = self.connections.get_mut(number) else { continue };
                connection.is_closing |= event.is_read_closed();
                connection.flush()?;
                if event.is_readable() && self.receive(number)? {
                    let may_go_on = left > 0 && self.tally.last_reply_ns < deadline_ns;
                    if !(may_go_on && self.send_batch(number, &mut left)?) {
                        busy -= 1;
                    }
                }
            }
            self.show_progress();
        }
        Ok(())
    }

    /// Sends up to a pipeline of requests; whether there were any left to send.
    #[inline]
    fn send_batch(&mut self, number: usize, left: &mut u64) -> Result<bool, Error> {
        let count = (*left).min(self.plan.pipeline as u64);
        if count == 0 {
            return Ok(false);
        }
        *left -= count;
        self.tally.sent += count;
        let sent_ns = self.now_ns();
        let connection = &mut self.connections[number];
        connection.renew_if_ended(&self.poll, Token(number), &self.endpoint)?;
        for _ in 0..count {
            let sent = self.plan.workload.append_request(&mut self.random, &mut connection.out);
            connection.in_flight.push(InFlight { sent, due_ns: sent_ns, sent_ns });
        }
        connection.flush()?;
        Ok(true)
    }

    /// Reads and checks replies; whether the last outstanding reply of the connection came in.
    #[inline]
    fn receive(&mut self, number: usize) -> Result<bool, Error> {
        let had = self.connections[number].in_flight.count;
        loop {
            // Edge-triggered: a read that did not fill the buffer has taken all there was.
            let filled = self.connections[number].fill()?;
            let now_ns = self.now_ns();
            self.consume(number, filled, now_ns)?;
            let outstanding = self.connections[number].in_flight.count;
            if filled != Filled::More || outstanding == 0 {
                return Ok(had > 0 && outstanding == 0);
            }
        }
    }

    /// Checks the replies that are in the connection's buffer.
    fn consume(&mut self, number: usize, filled: Filled, now_ns: u64) -> Result<(), Error> {
        let Connection { input, start, end, in_flight, reader, is_ended, is_closing, .. } =
            &mut self.connections[number];
        *is_ended |= filled == Filled::Ended;
        let tally = &mut self.tally;
        let is_open = matches!(self.plan.pace, Pace::Open(_));
        let mut batch = (0, 0);
        let before = in_flight.count;
        while in_flight.count > 0 && (start < end || filled == Filled::Ended) {
            let request = in_flight.front();
            let bytes = &input[*start..*end];
            let mut verdict = self.plan.workload.check(request.sent, bytes, reader);
            if verdict == Verdict::Incomplete && filled == Filled::Ended {
                verdict = self.plan.workload.cut_off(request.sent, bytes, reader);
            }
            match verdict {
                Verdict::Good(bytes) => *start += bytes,
                Verdict::Empty(bytes) => {
                    *start += bytes;
                    tally.empty += 1;
                }
                Verdict::Push(bytes) => {
                    *start += bytes;
                    continue;
                }
                Verdict::Bad(bytes, why) => {
                    *start += bytes;
                    tally.note_failure(why);
                }
                Verdict::Incomplete => break,
            }
            in_flight.pop();
            *is_ended |= T::is_last(reader);
            if is_open {
                tally.latency.saturating_record(now_ns.saturating_sub(request.due_ns));
                tally.from_send.saturating_record(now_ns.saturating_sub(request.sent_ns));
            } else if batch.0 == request.sent_ns {
                batch.1 += 1;
            } else {
                record(&mut tally.latency, now_ns, batch);
                batch = (request.sent_ns, 1);
            }
        }
        record(&mut tally.latency, now_ns, batch);
        *is_ended |= *is_closing && in_flight.count == 0;
        let replies = (before - in_flight.count) as u64;
        if replies > 0 {
            tally.replies += replies;
            tally.last_reply_ns = now_ns;
        }
        if in_flight.count == 0 && start < end {
            return Err(Error::new("server sent more replies than there were requests"));
        }
        Ok(())
    }

    fn run_open(&mut self, limit: Limit, per_second: f64) -> Result<(), Error> {
        let interval_ns = 1e9 / per_second;
        // Due times of the threads and connections interleave by a random phase.
        let offset_ns = self.random.below(interval_ns.max(1.0) as u64) as f64;
        let (count, end_ns) = match limit {
            Limit::Requests(requests) => (requests, u64::MAX),
            Limit::Time(time) => {
                ((time.as_secs_f64() * per_second).round() as u64, time.as_nanos() as u64)
            }
        };
        let due_ns = |index: u64| (offset_ns + index as f64 * interval_ns) as u64;
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut next = 0;
        let mut outstanding = 0;
        let mut turn = 0;
        let mut is_over = false;
        loop {
            let now_ns = self.now_ns();
            if !is_over {
                // Once more at the end, for what fell due in the last moment.
                is_over = now_ns >= end_ns;
                let horizon_ns = now_ns.min(end_ns);
                outstanding += self.send_due(&mut next, count, horizon_ns, &mut turn, &due_ns)?;
            }
            if outstanding == 0 && (next == count || is_over) {
                break;
            }
            let has_room = outstanding < self.connections.len() * self.plan.pipeline;
            if next < count && has_room && !is_over {
                let wait_ns = due_ns(next).saturating_sub(self.now_ns());
                if wait_ns < SPIN_NS {
                    self.look(&mut events)?;
                    self.take_open_events(&events, &mut outstanding)?;
                    continue;
                }
                self.timer.set(Duration::from_nanos(wait_ns))?;
            }
            self.wait(&mut events)?;
            self.take_open_events(&events, &mut outstanding)?;
        }
        self.tally.unsent = count - next;
        for index in next..count {
            let waited_ns = end_ns.saturating_sub(due_ns(index));
            self.tally.latency.saturating_record(waited_ns);
        }
        Ok(())
    }

    fn take_open_events(&mut self, events: &Events, outstanding: &mut usize) -> Result<(), Error> {
        for event in events {
            let number = event.token().0;
            if event.token() == TIMER {
                self.timer.clear();
                continue;
            }
            self.connections[number].is_closing |= event.is_read_closed();
            self.connections[number].flush()?;
            if event.is_readable() {
                let before = self.tally.replies;
                self.receive(number)?;
                *outstanding -= (self.tally.replies - before) as usize;
            }
        }
        self.show_progress();
        Ok(())
    }

    /// Sends what has fallen due, as far as connections have room; how many requests that were.
    fn send_due(
        &mut self,
        next: &mut u64,
        count: u64,
        now_ns: u64,
        turn: &mut usize,
        due_ns: &impl Fn(u64) -> u64,
    ) -> Result<usize, Error> {
        let mut sent_count = 0;
        let mut without_room = 0;
        while *next < count && due_ns(*next) <= now_ns && without_room < self.connections.len() {
            let number = *turn % self.connections.len();
            *turn += 1;
            let connection = &mut self.connections[number];
            if connection.in_flight.count >= self.plan.pipeline {
                without_room += 1;
                continue;
            }
            without_room = 0;
            connection.renew_if_ended(&self.poll, Token(number), &self.endpoint)?;
            let sent = self.plan.workload.append_request(&mut self.random, &mut connection.out);
            let request = InFlight { sent, due_ns: due_ns(*next), sent_ns: now_ns };
            connection.in_flight.push(request);
            connection.flush()?;
            *next += 1;
            sent_count += 1;
        }
        self.tally.sent += sent_count as u64;
        Ok(sent_count)
    }

    /// Waits for events; an error when there are none for the plan's timeout.
    #[inline]
    fn wait(&mut self, events: &mut Events) -> Result<(), Error> {
        loop {
            match self.poll.poll(events, Some(self.plan.timeout)) {
                Ok(()) if events.is_empty() => {
                    let silence = self.plan.timeout;
                    return Err(Error::new(format!("server did not answer for {silence:?}")));
                }
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes the events that are there, without waiting.
    #[inline]
    fn look(&mut self, events: &mut Events) -> Result<(), Error> {
        match self.poll.poll(events, Some(Duration::ZERO)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error.into()),
            _ => Ok(()),
        }
    }

    #[inline]
    fn show_progress(&mut self) {
        self.counter.write(self.replies_shown + self.tally.replies);
    }
}

#[inline]
fn record(latency: &mut Histogram<u64>, now_ns: u64, (sent_ns, count): (u64, u64)) {
    if count > 0 {
        latency.saturating_record(now_ns.saturating_sub(sent_ns));
        if count > 1 {
            let _ = latency.record_n(now_ns.saturating_sub(sent_ns), count - 1);
        }
    }
}
