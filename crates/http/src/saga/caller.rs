//! Calls to participants, over kept-alive connections, and the clock that wakes the coordinator.
//!
//! **Invariant:** a call ends: with an answer, an error, or after its time. No redirect is
//! followed. No more of an answer is read than `ANSWER_BYTES_MAX`.
//! **Invariant:** no connection goes to an address that the guard refuses, however its name was
//! resolved.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use hyper::body::Body;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use services::saga::coordinator::Coordinator;
use services::saga::local::Local;
use services::saga::machine::Answer;
use services::saga::outgoing::{Answered, Caller, Outgoing};
use services::saga::policy::Moment;
use services::saga::words::Verdict;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Connections that are kept per participant, and how long.
const IDLE_MAX: usize = 64;
const IDLE: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(3);
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

/// Which addresses may be called.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// Hosts, as they stand in the address: only these. Empty = all that are not refused.
    pub allowed: Vec<String>,
}

impl Guard {
    /// Whether an address may be connected to: not those where clouds keep credentials
    /// (link-local), none that mean nothing.
    fn allows_ip(ip: IpAddr) -> bool {
        match ip.to_canonical() {
            IpAddr::V4(ip) => !(ip.is_link_local() || ip.is_unspecified() || ip.is_multicast()),
            IpAddr::V6(ip) => {
                !(ip.is_unicast_link_local() || ip.is_unspecified() || ip.is_multicast())
            }
        }
    }

    fn check(&self, uri: &hyper::Uri) -> Result<(), String> {
        let host = uri.host().unwrap_or("");
        match uri.scheme_str() {
            Some("http") => {}
            Some(other) => return Err(format!("branches are called by http, not by {other}")),
            None => return Err("the address of a branch begins with http://".into()),
        }
        if !self.allowed.is_empty() && !self.allowed.iter().any(|allowed| allowed == host) {
            return Err(format!("{host} is not among the hosts that may be called"));
        }
        let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
        match ip.is_ok_and(|ip| !Guard::allows_ip(ip)) {
            true => Err(format!("{host} may not be called")),
            false => Ok(()),
        }
    }
}

/// Resolves names and leaves out what the guard refuses.
#[derive(Clone)]
struct Guarded(GaiResolver);

impl tower_service::Service<Name> for Guarded {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = std::io::Error;
    type Future =
        Pin<Box<dyn Future<Output = Result<Self::Response, std::io::Error>> + Send + 'static>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        tower_service::Service::poll_ready(&mut self.0, context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolving = tower_service::Service::call(&mut self.0, name);
        Box::pin(async move {
            let all: Vec<SocketAddr> = resolving.await?.collect();
            let allowed: Vec<_> =
                all.into_iter().filter(|address| Guard::allows_ip(address.ip())).collect();
            match allowed.is_empty() {
                true => Err(std::io::Error::other("none of its addresses may be called")),
                false => Ok(allowed.into_iter()),
            }
        })
    }
}

type Http = Client<HttpConnector<Guarded>, axum::body::Body>;

/// Runs the steps that the server runs itself.
pub trait Steps: Send + Sync {
    /// Runs one; `done` is called once, from another thread.
    fn run(&self, local: Local, done: Box<dyn FnOnce(Verdict, String) + Send>);
    /// Removes a transaction's barrier.
    fn forget(&self, gid: &str);
}

/// Makes the coordinator's calls in the runtime that it is attached to.
pub struct HttpCaller {
    clock: Arc<Clock>,
    guard: Guard,
    steps: Option<Arc<dyn Steps>>,
    inner: OnceLock<(Handle, Http)>,
    wake: Arc<Notify>,
}

impl HttpCaller {
    /// A caller that calls nobody before [`HttpCaller::attach`].
    pub fn new(clock: Arc<Clock>, guard: Guard, steps: Option<Arc<dyn Steps>>) -> HttpCaller {
        HttpCaller { clock, guard, steps, inner: OnceLock::new(), wake: Arc::default() }
    }

    /// Works in this runtime from now on, and wakes the coordinator there.
    pub fn attach(&self, handle: Handle, coordinator: Arc<Coordinator>) {
        let mut connector = HttpConnector::new_with_resolver(Guarded(GaiResolver::new()));
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT));
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_MAX)
            .pool_timer(TokioTimer::new())
            .build(connector);
        let (clock, wake) = (Arc::clone(&self.clock), Arc::clone(&self.wake));
        handle.spawn(drive(coordinator, clock, wake));
        let is_first = self.inner.set((handle, client)).is_ok();
        assert!(is_first, "a caller is attached once");
    }
}

/// Wakes the coordinator whenever something is due, and for retention.
async fn drive(coordinator: Arc<Coordinator>, clock: Arc<Clock>, wake: Arc<Notify>) {
    let compacting = Arc::default();
    let mut tidied = Instant::now();
    loop {
        let moment = clock.moment();
        let next_ms = coordinator.run_due(moment).map(|due| due.saturating_sub(moment.now_ms));
        if tidied.elapsed() >= TIDY_EVERY {
            coordinator.tidy(moment, &compacting);
            tidied = Instant::now();
        }
        let wait = next_ms.map_or(TIDY_EVERY, Duration::from_millis).min(TIDY_EVERY);
        if wait.is_zero() {
            tokio::task::yield_now().await;
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = wake.notified() => {}
        }
    }
}

impl Caller for HttpCaller {
    fn call(&self, outgoing: Outgoing, done: Answered) {
        let clock = Arc::clone(&self.clock);
        let began_ms = outgoing.began_ms;
        let lost = move |text: String| Answer {
            verdict: Verdict::Unknown,
            code: 0,
            text,
            began_ms,
            retry_after_ms: 0,
        };
        let Some((handle, client)) = self.inner.get() else {
            // The driver retries it: a call must not be answered from within.
            return drop(std::thread::spawn(move || {
                done(lost("not started yet".into()), clock.moment());
            }));
        };
        if let (Some(local), Some(steps)) = (&outgoing.local, &self.steps) {
            let answered = move |verdict, text| {
                let answer = Answer { verdict, code: 0, text, began_ms, retry_after_ms: 0 };
                done(answer, clock.moment());
            };
            return steps.run((**local).clone(), Box::new(answered));
        }
        let request = request(&outgoing, &self.guard);
        let client = client.clone();
        handle.spawn(async move {
            let answer = match request {
                Err(text) if outgoing.broken.is_some() => {
                    Answer { verdict: Verdict::Failure, ..lost(text) }
                }
                Err(text) => lost(text),
                Ok(request) => {
                    let timeout = Duration::from_millis(outgoing.timeout_ms);
                    match tokio::time::timeout(timeout, exchange(&client, request)).await {
                        Err(_) => lost(format!("no answer in {} ms", outgoing.timeout_ms)),
                        Ok(Err(text)) => lost(text),
                        Ok(Ok((code, retry_after_ms, body))) => Answer {
                            verdict: outgoing.verdict(code, &body),
                            code,
                            text: String::from_utf8_lossy(&body).into_owned(),
                            began_ms,
                            retry_after_ms,
                        },
                    }
                }
            };
            done(answer, clock.moment());
        });
    }

    fn forget(&self, gid: &str) {
        if let Some(steps) = &self.steps {
            steps.forget(gid);
        }
    }

    fn wake_at(&self, _: u64) {
        self.wake.notify_one();
    }
}

type Ready = hyper::Request<axum::body::Body>;

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
    builder.body(axum::body::Body::from(body)).map_err(|error| error.to_string())
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

/// Sends a request; gives status, the wait that was asked for in ms, and the body.
async fn exchange(client: &Http, request: Ready) -> Result<(u16, u64, Vec<u8>), String> {
    let answer = client.request(request).await.map_err(|error| {
        use std::error::Error;
        let source = error.source().map_or(String::new(), |source| format!(": {source}"));
        format!("{error}{source}")
    })?;
    let seconds = answer.headers().get("retry-after").and_then(|value| value.to_str().ok());
    let retry_after_ms = seconds.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let code = answer.status().as_u16();
    let mut incoming = answer.into_body();
    let mut body = Vec::new();
    loop {
        let frame = std::future::poll_fn(|context| Pin::new(&mut incoming).poll_frame(context));
        let Some(frame) = frame.await else { break };
        let frame = frame.map_err(|error| error.to_string())?;
        if let Ok(data) = frame.into_data() {
            let data: Bytes = data;
            body.extend_from_slice(&data);
        }
        if body.len() > ANSWER_BYTES_MAX {
            return Err(format!("the answer has more than {ANSWER_BYTES_MAX} bytes"));
        }
    }
    Ok((code, retry_after_ms.saturating_mul(1000), body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_may_not_be_called() {
        let open = Guard::default();
        for (uri, is_allowed) in [
            ("http://127.0.0.1:8080/x", true),
            ("http://10.0.0.7/x", true),
            ("http://service/x", true),
            ("http://169.254.169.254/latest", false),
            ("http://[fe80::1]/", false),
            ("http://[::ffff:169.254.169.254]/", false),
            ("http://0.0.0.0/", false),
            ("https://service/x", false),
            ("/x", false),
        ] {
            assert_eq!(open.check(&uri.parse().unwrap()).is_ok(), is_allowed, "{uri}");
        }
        let closed = Guard { allowed: vec!["service".into()] };
        assert!(closed.check(&"http://service/x".parse().unwrap()).is_ok());
        assert!(closed.check(&"http://other/x".parse().unwrap()).is_err());
    }

    #[test]
    fn values_are_encoded_as_go_does() {
        let mut url = String::new();
        encode(&mut url, "a b&c=ü~");
        assert_eq!(url, "a+b%26c%3D%C3%BC~");
    }
}
