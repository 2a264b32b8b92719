//! Calls to participants, over kept-alive connections, and the clock that wakes the coordinator.
//!
//! **Invariant:** a call ends: with an answer, an error, or after its time.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http_body_util::Full;
use services::saga::coordinator::Coordinator;
use services::saga::local::Local;
use services::saga::machine::Answer;
use services::saga::outgoing::{Answered, Caller, NOT_CALLED, Outgoing};
use services::saga::policy::Moment;
use services::saga::transaction::Transaction;
use services::saga::view;
use services::saga::words::Verdict;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::client::{CONNECT, Caller as Client, Came, Guard, Ready, Trust, exchange};
use super::grpc_call;
use super::targets::{Limits, Targets, Turn};

/// Webhooks that may be under way, and the waits after attempts that failed.
const WEBHOOKS_MAX: usize = 10_000;
const WEBHOOK_WAITS: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(25)];
/// How long a call waits that comes before the first runtime.
const ATTACH_WAIT_MS: u64 = 50;
/// How often finished transactions are looked at for retention.
const TIDY_EVERY: Duration = Duration::from_secs(1);

/// Time and random numbers. The time never jumps while the process runs.
pub struct Clock {
    began: Instant,
    began_ms: u64,
    random: AtomicU64,
}

impl Clock {
    /// A clock set by the system's.
    pub fn new(seed: u64) -> Clock {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let random = AtomicU64::new(seed);
        Clock { began: Instant::now(), began_ms: now.as_millis() as u64, random }
    }

    /// Now.
    pub fn moment(&self) -> Moment {
        let now_ms = self.began_ms + self.began.elapsed().as_millis() as u64;
        let step = 0x9e37_79b9_7f4a_7c15;
        let mut bits = self.random.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Moment { now_ms, random: bits ^ (bits >> 31) }
    }
}

/// Runs the steps that the server runs itself.
pub trait Steps: Send + Sync {
    /// Runs one; `done` is called once, from another thread.
    fn run(&self, local: Local, done: Box<dyn FnOnce(Verdict, String) + Send>);
    /// A transaction has ended, or is a dead letter.
    fn finished(&self, t: &Transaction);
    /// A transaction is forgotten.
    fn forget(&self, t: &Transaction);
}

/// Makes the coordinator's calls in the runtime that it is attached to.
pub struct HttpCaller {
    clock: Arc<Clock>,
    guard: Guard,
    steps: Option<Arc<dyn Steps>>,
    trust: Trust,
    runtimes: RwLock<Vec<(Handle, Client)>>,
    next: AtomicUsize,
    targets: Targets<Waiting>,
    /// Who is told of ends; "" = nobody.
    webhook: String,
    /// Webhooks under way.
    telling: AtomicUsize,
    wake: Arc<Notify>,
}

thread_local! {
    /// Which of the runtimes is this thread's.
    static OWN: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A call that is to be made.
struct Waiting {
    outgoing: Outgoing,
    request: Ready,
    done: Answered,
}

impl HttpCaller {
    /// A caller that calls nobody before [`HttpCaller::attach`].
    pub fn new(
        clock: Arc<Clock>,
        guard: Guard,
        trust: Trust,
        limits: Limits,
        webhook: String,
        steps: Option<Arc<dyn Steps>>,
    ) -> HttpCaller {
        HttpCaller {
            clock,
            guard,
            trust,
            steps,
            runtimes: RwLock::default(),
            next: AtomicUsize::new(0),
            targets: Targets::new(limits),
            webhook,
            telling: AtomicUsize::new(0),
            wake: Arc::default(),
        }
    }

    /// Works in this thread's runtime as well from now on, and wakes the coordinator there.
    pub fn attach(self: &Arc<Self>, handle: Handle, coordinator: Arc<Coordinator>) {
        let client = Client::new(&self.guard, &self.trust);
        let mut runtimes = self.runtimes.write().unwrap_or_else(PoisonError::into_inner);
        OWN.set(Some(runtimes.len()));
        let (clock, wake) = (Arc::clone(&self.clock), Arc::clone(&self.wake));
        handle.spawn(drive(coordinator, clock, wake, runtimes.is_empty()));
        runtimes.push((handle, client));
    }

    /// The runtime for a call: the thread's own, or the next one.
    fn runtime(&self) -> Option<(Handle, Client)> {
        let runtimes = self.runtimes.read().unwrap_or_else(PoisonError::into_inner);
        let next = || self.next.fetch_add(1, Ordering::Relaxed) % runtimes.len().max(1);
        runtimes.get(OWN.get().unwrap_or_else(next)).cloned()
    }

    /// Does what is to be done with a call, and with those that wait behind it.
    fn take_turn(self: &Arc<Self>, name: &str, mut turn: Turn<Waiting>) {
        loop {
            match turn {
                Turn::None => return,
                Turn::Go(waiting) => self.send(name, waiting),
                Turn::Back(waiting, wait_ms) => self.give_back(waiting, wait_ms),
            }
            turn = self.targets.next(name, self.clock.moment().now_ms);
        }
    }

    fn give_back(&self, waiting: Waiting, wait_ms: u64) {
        let answer = Answer {
            verdict: Verdict::Unknown,
            code: NOT_CALLED,
            text: "it was not called: nobody was reached there before".into(),
            began_ms: waiting.outgoing.began_ms,
            retry_after_ms: wait_ms,
        };
        let clock = Arc::clone(&self.clock);
        let done = waiting.done;
        let answer = move || done(answer, clock.moment());
        // Never from within: the coordinator may hold what `done` needs.
        match self.runtime() {
            Some((handle, _)) => drop(handle.spawn(async move { answer() })),
            None => drop(std::thread::spawn(answer)),
        }
    }

    fn send(self: &Arc<Self>, name: &str, waiting: Waiting) {
        let Some((handle, client)) = self.runtime() else {
            self.targets.ended(name, true, 0);
            return self.give_back(waiting, ATTACH_WAIT_MS);
        };
        let (this, name): (_, Box<str>) = (Arc::clone(self), name.into());
        handle.spawn(async move {
            let Waiting { outgoing, request, done } = waiting;
            let timeout = Duration::from_millis(outgoing.timeout_ms);
            let began_ms = outgoing.began_ms;
            let answer = match tokio::time::timeout(timeout, exchange(&client, request)).await {
                Err(_) => lost(began_ms, format!("no answer in {} ms", outgoing.timeout_ms)),
                Ok(Err(text)) => lost(began_ms, text),
                Ok(Ok(came)) if outgoing.is_grpc => grpc_call::answer(&came, began_ms),
                Ok(Ok(came)) => Answer {
                    verdict: outgoing.verdict(came.status, &came.body),
                    code: came.status,
                    text: String::from_utf8_lossy(&came.body).into_owned(),
                    began_ms,
                    retry_after_ms: came.retry_after_ms(),
                },
            };
            let moment = this.clock.moment();
            this.targets.ended(&name, answer.code != 0, moment.now_ms);
            done(answer, moment);
            this.take_turn(&name, this.targets.next(&name, moment.now_ms));
        });
    }
}

/// An attempt that brought no answer.
fn lost(began_ms: u64, text: String) -> Answer {
    Answer { verdict: Verdict::Unknown, code: 0, text, began_ms, retry_after_ms: 0 }
}

/// Wakes the coordinator whenever something is due, and for retention.
async fn drive(coordinator: Arc<Coordinator>, clock: Arc<Clock>, wake: Arc<Notify>, tidies: bool) {
    let compacting = Arc::default();
    let mut tidied = Instant::now();
    loop {
        let moment = clock.moment();
        let next_ms = coordinator.run_due(moment).map(|due| due.saturating_sub(moment.now_ms));
        if tidies && tidied.elapsed() >= TIDY_EVERY {
            coordinator.tidy(moment, &compacting);
            tidied = Instant::now();
        }
        let wait = next_ms.map_or(TIDY_EVERY, Duration::from_millis).min(TIDY_EVERY);
        if wait.is_zero() {
            // There is more than one thread's worth.
            wake.notify_one();
            tokio::task::yield_now().await;
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = wake.notified() => {}
        }
    }
}

/// An [`HttpCaller`] as the coordinator wants it.
pub struct Calls(pub Arc<HttpCaller>);

impl HttpCaller {
    /// Tells the webhook that a transaction has ended or is a dead letter; tried a few times.
    fn tell(self: &Arc<Self>, t: &Transaction) {
        if self.webhook.is_empty() {
            return;
        }
        let Some((handle, client)) = self.runtime() else { return };
        let count = self.telling.fetch_add(1, Ordering::Relaxed);
        if count >= WEBHOOKS_MAX {
            self.telling.fetch_sub(1, Ordering::Relaxed);
            return tracing::warn!("sagas: too many webhooks wait: {} is not told", t.gid);
        }
        let body = view::ended(t).to_string();
        let this = Arc::clone(self);
        handle.spawn(async move {
            for wait in WEBHOOK_WAITS {
                let request = hyper::Request::post(this.webhook.as_str())
                    .header("content-type", "application/json")
                    .body(Full::from(body.clone()));
                let Ok(request) = request.map_err(|error| tracing::warn!(%error, "webhook")) else {
                    break;
                };
                if let Err(text) = this.guard.check(request.uri()) {
                    tracing::warn!("webhook: {text}");
                    break;
                }
                let told = tokio::time::timeout(CONNECT, exchange(&client, request)).await;
                if matches!(told, Ok(Ok(Came { status: 200..300, .. }))) {
                    break;
                }
                tokio::time::sleep(wait).await;
            }
            this.telling.fetch_sub(1, Ordering::Relaxed);
        });
    }

    fn call(self: &Arc<Self>, outgoing: Outgoing, done: Answered) {
        let (clock, began_ms) = (Arc::clone(&self.clock), outgoing.began_ms);
        if let (Some(local), Some(steps)) = (&outgoing.local, &self.steps) {
            let answered = move |verdict, text| {
                let answer = Answer { verdict, code: 0, text, began_ms, retry_after_ms: 0 };
                done(answer, clock.moment());
            };
            return steps.run((**local).clone(), Box::new(answered));
        }
        let request = match outgoing.is_grpc {
            true => grpc_call::request(&outgoing, &self.guard),
            false => request(&outgoing, &self.guard),
        };
        match request {
            Ok(request) => {
                let authority = request.uri().authority();
                let name = authority.map_or("", |name| name.as_str()).to_string();
                let waiting = Waiting { outgoing, request, done };
                let turn = self.targets.ask(&name, waiting, clock.moment().now_ms);
                self.take_turn(&name, turn);
            }
            Err(text) => {
                let mut answer = lost(began_ms, text);
                if outgoing.broken.is_some() {
                    answer.verdict = Verdict::Failure;
                }
                let done = move || done(answer, clock.moment());
                match self.runtime() {
                    Some((handle, _)) => drop(handle.spawn(async move { done() })),
                    None => drop(std::thread::spawn(done)),
                }
            }
        }
    }
}

impl Caller for Calls {
    fn call(&self, outgoing: Outgoing, done: Answered) {
        self.0.call(outgoing, done);
    }

    fn finished(&self, t: &Transaction) {
        if let Some(steps) = &self.0.steps {
            steps.finished(t);
        }
        self.0.tell(t);
    }

    fn forget(&self, t: &Transaction) {
        if let Some(steps) = &self.0.steps {
            steps.forget(t);
        }
    }

    fn wake_at(&self, _: u64) {
        self.0.wake.notify_one();
    }
}

fn request(outgoing: &Outgoing, guard: &Guard) -> Result<Ready, String> {
    if let Some(text) = &outgoing.broken {
        return Err(text.clone());
    }
    let joint = if outgoing.url.contains('?') { '&' } else { '?' };
    let mut url = outgoing.url.to_string();
    let mut method = "";
    if outgoing.is_rpc {
        let query = outgoing.url.split_once('?').map_or("", |(_, query)| query);
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        method = pairs.find(|(name, _)| *name == "method").map_or("", |(_, value)| value);
    } else {
        for (index, (name, value)) in outgoing.parameters.iter().enumerate() {
            url.push(if index == 0 { joint } else { '&' });
            url.push_str(name);
            url.push('=');
            encode(&mut url, value);
        }
    }
    let uri: hyper::Uri = url.parse().map_err(|error| format!("{}: {error}", outgoing.url))?;
    guard.check(&uri)?;
    let body = outgoing.body(method)?;
    let mut builder = hyper::Request::builder()
        .method(if outgoing.is_post { "POST" } else { "GET" })
        .uri(uri)
        .header("content-type", "application/json")
        .header("idempotency-key", outgoing.idempotency_key());
    if !outgoing.trace_parent.is_empty() {
        builder = builder.header("traceparent", &*outgoing.trace_parent);
    }
    for (name, value) in &outgoing.headers {
        builder = builder.header(&**name, &**value);
    }
    builder.body(Full::from(body)).map_err(|error| error.to_string())
}

/// Writes a value of a query as Go's `url.QueryEscape` does.
fn encode(url: &mut String, value: &str) {
    for &byte in value.as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                url.push(char::from(byte));
            }
            b' ' => url.push('+'),
            byte => url.push_str(&format!("%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded_as_go_does() {
        let mut url = String::new();
        encode(&mut url, "a b&c=ü~");
        assert_eq!(url, "a+b%26c%3D%C3%BC~");
    }
}
