//! The load generator against servers of this test: counts are exact, wrong replies are found, a
//! stall is seen by the open loop, and a server that goes away ends the run.

// The lint's leave for tests does not reach the functions that tests share.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use forebay_bench::load::{self, Limit, Pace, Plan};
use forebay_bench::null_server::NullServer;
use forebay_bench::target::Target;
use forebay_bench::workload::{Workload, test_named};

fn workload(names: &[&str]) -> Workload {
    let tests: Vec<_> = names.iter().map(|name| test_named(name).unwrap()).collect();
    Workload::new(&tests, 1000, 16)
}

fn plan<'a>(target: &'a Target, workload: &'a Workload) -> Plan<'a, Workload> {
    Plan {
        target,
        workload,
        clients: 7,
        threads: 2,
        pipeline: 5,
        limit: Limit::Requests(10_001),
        pace: Pace::Closed,
        warmup: Duration::ZERO,
        timeout: Duration::from_secs(5),
        cores: &[],
        seed: 1,
    }
}

/// Serves one connection after another with `answer`, which is told how many bytes came in.
fn server(mut answer: impl FnMut(usize, &mut TcpStream) + Send + 'static) -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let mut buffer = [0; 4096];
        while let Ok(bytes) = stream.read(&mut buffer) {
            if bytes == 0 {
                return;
            }
            answer(bytes, &mut stream);
        }
    });
    format!("test=127.0.0.1:{port}").parse().unwrap()
}

#[test]
fn closed_loop_sends_and_counts_exactly_what_was_asked() {
    let server = NullServer::start().unwrap();
    let target = server.target();
    let load = workload(&["set", "get", "mset"]).for_null_server();
    let mut last_progress = 0;
    let outcome = load::run(&plan(&target, &load), |replies| last_progress = replies).unwrap();
    assert_eq!((outcome.replies, outcome.sent_in_all), (10_001, 10_001));
    assert_eq!((outcome.failures, outcome.unsent, outcome.latency.len()), (0, 0, 10_001));
    assert_eq!(last_progress, 10_001);
    assert!(outcome.server_cpu_ns.unwrap() > 0);
    assert!(outcome.from_send.is_none());
}

#[test]
fn warm_up_is_counted_apart() {
    let server = NullServer::start().unwrap();
    let target = server.target();
    let load = workload(&["ping"]).for_null_server();
    let mut plan = plan(&target, &load);
    plan.warmup = Duration::from_millis(20);
    let outcome = load::run(&plan, |_| ()).unwrap();
    assert_eq!(outcome.replies, 10_001);
    assert!(outcome.sent_in_all > 10_001);
}

#[test]
fn every_wrong_reply_is_found() {
    let server = NullServer::start().unwrap();
    let target = server.target();
    // The null server's +OK is right for SET and wrong for GET.
    let load = workload(&["get"]);
    let outcome = load::run(&plan(&target, &load), |_| ()).unwrap();
    assert_eq!(outcome.failures, 10_001);
    assert!(outcome.failure_examples[0].contains("got +OK"), "{:?}", outcome.failure_examples);
    let load = workload(&["set"]);
    assert_eq!(load::run(&plan(&target, &load), |_| ()).unwrap().failures, 0);
}

#[test]
fn open_loop_keeps_to_its_rate() {
    let server = NullServer::start().unwrap();
    let target = server.target();
    let load = workload(&["set"]).for_null_server();
    let mut plan = plan(&target, &load);
    plan.pace = Pace::Open(2000.0);
    plan.limit = Limit::Time(Duration::from_millis(500));
    let outcome = load::run(&plan, |_| ()).unwrap();
    assert_eq!(outcome.replies + outcome.unsent, 1000);
    assert_eq!(outcome.latency.len(), 1000);
    assert_eq!(outcome.from_send.unwrap().len(), outcome.replies);
}

#[test]
fn a_stall_is_in_the_latency_from_the_due_time_only() {
    const STALL: Duration = Duration::from_millis(200);
    let mut requests = 0;
    let target = server(move |_, stream| {
        requests += 1;
        if requests == 100 {
            thread::sleep(STALL);
        }
        let _ = stream.write_all(b"+PONG\r\n");
    });
    let load = workload(&["ping"]);
    let mut plan = plan(&target, &load);
    (plan.clients, plan.threads, plan.pipeline) = (1, 1, 1);
    plan.pace = Pace::Open(1000.0);
    plan.limit = Limit::Requests(500);
    let outcome = load::run(&plan, |_| ()).unwrap();
    assert_eq!((outcome.replies, outcome.failures), (500, 0));
    // 200 requests fell due while the server stalled; but only one was on its way.
    let due_p80_ms = outcome.latency.value_at_percentile(80.0) / 1_000_000;
    let sent_p80_ms = outcome.from_send.unwrap().value_at_percentile(80.0) / 1_000_000;
    assert!(due_p80_ms >= 50, "{due_p80_ms} ms");
    assert!(sent_p80_ms < 50, "{sent_p80_ms} ms");
}

#[test]
fn a_server_that_closes_or_falls_silent_fails_the_run() {
    let load = workload(&["ping"]);
    let closing = server(|_, stream| {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    });
    let mut first = plan(&closing, &load);
    (first.clients, first.threads) = (1, 1);
    let error = load::run(&first, |_| ()).unwrap_err().to_string();
    assert!(error.contains("closed"), "{error}");

    let silent = server(|_, _| ());
    let mut second = plan(&silent, &load);
    (second.clients, second.threads) = (1, 1);
    second.timeout = Duration::from_millis(100);
    let began = Instant::now();
    let error = load::run(&second, |_| ()).unwrap_err().to_string();
    assert!(error.contains("did not answer"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(4));
}

#[test]
fn replies_nobody_asked_for_fail_the_run() {
    let chatty = server(|_, stream| {
        let _ = stream.write_all(&b"+PONG\r\n".repeat(50));
    });
    let load = workload(&["ping"]);
    let mut plan = plan(&chatty, &load);
    (plan.clients, plan.threads) = (1, 1);
    let error = load::run(&plan, |_| ()).unwrap_err().to_string();
    assert!(error.contains("more replies"), "{error}");
}

#[test]
fn a_rate_that_cannot_be_kept_ends_in_time_and_is_told() {
    let target = server(|_, stream| {
        thread::sleep(Duration::from_millis(5));
        let _ = stream.write_all(b"+PONG\r\n");
    });
    let load = workload(&["ping"]);
    let mut plan = plan(&target, &load);
    (plan.clients, plan.threads, plan.pipeline) = (1, 1, 1);
    plan.pace = Pace::Open(10_000.0);
    plan.limit = Limit::Time(Duration::from_millis(200));
    let began = Instant::now();
    let outcome = load::run(&plan, |_| ()).unwrap();
    assert!(began.elapsed() < Duration::from_secs(2));
    assert_eq!(outcome.replies + outcome.unsent, 2000);
    assert!(outcome.unsent > 1500, "{}", outcome.unsent);
    // Those that were never sent count, with the time that they waited.
    assert_eq!(outcome.latency.len(), 2000);
    assert!(outcome.latency.value_at_percentile(50.0) > 50_000_000);
}
