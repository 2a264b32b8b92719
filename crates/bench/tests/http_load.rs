//! The load generator over HTTP against servers of this test: counts are exact with connections
//! kept, closed by either side and cut off, and wrong answers are found.

// The lint's leave for tests does not reach the functions that tests share.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use forebay_bench::http_message::{Ask, HttpTraffic, Wanted};
use forebay_bench::load::{self, Limit, Outcome, Pace, Plan};
use forebay_bench::target::Target;

/// What a server did.
#[derive(Default)]
struct Seen {
    connections: AtomicU64,
    requests: AtomicU64,
}

/// Reads one request; its body, or none at the end.
fn request(stream: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let (mut line, mut length) = (String::new(), 0);
    loop {
        line.clear();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(body)
}

/// A server that answers the n-th request of all with `answer(n)`, and closes a connection after
/// `each` requests.
fn server(each: usize, answer: fn(u64) -> &'static str) -> (Target, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::new(Seen::default());
    let counts = Arc::clone(&seen);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, counts) = (stream.unwrap(), Arc::clone(&counts));
            counts.connections.fetch_add(1, Ordering::Relaxed);
            thread::spawn(move || {
                stream.set_nodelay(true).unwrap();
                let mut stream = BufReader::new(stream);
                for _ in 0..each {
                    if request(&mut stream).is_none() {
                        return;
                    }
                    let number = counts.requests.fetch_add(1, Ordering::Relaxed);
                    // The generator may have gone away: its test tells.
                    let answer = answer(number);
                    let _ = stream.get_mut().write_all(answer.as_bytes());
                    if answer == CUT {
                        return;
                    }
                }
            });
        }
    });
    (format!("test=127.0.0.1:{port}").parse().unwrap(), seen)
}

fn run(target: &Target, is_kept: bool, pace: Pace) -> Outcome {
    let ask = Ask {
        method: "POST".into(),
        path: "/".into(),
        body: Some(b"{seq}".to_vec()),
        is_kept,
        ..Ask::default()
    };
    let text = Some(b"yes".to_vec());
    let wanted = Wanted { statuses: vec![(200, 299)], text, body: None };
    let traffic = HttpTraffic::new(&[ask], "test", 0.0, 1, wanted);
    let plan = Plan {
        target,
        workload: &traffic,
        clients: 5,
        threads: 2,
        pipeline: 1,
        limit: Limit::Requests(1001),
        pace,
        warmup: Duration::ZERO,
        timeout: Duration::from_secs(5),
        cores: &[],
        seed: 1,
    };
    load::run(&plan, |_| ()).unwrap()
}

const YES: &str = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nyes";
const CUT: &str = "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nyes";
const LAST: &str = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\nyes";

#[test]
fn kept_connections_are_five() {
    let (target, seen) = server(usize::MAX, |_| YES);
    let outcome = run(&target, true, Pace::Closed);
    assert_eq!((outcome.replies, outcome.failures), (1001, 0), "{:?}", outcome.failure_examples);
    assert_eq!(seen.requests.load(Ordering::Relaxed), 1001);
    assert_eq!(seen.connections.load(Ordering::Relaxed), 5);
}

#[test]
fn each_request_has_its_connection() {
    for pace in [Pace::Closed, Pace::Open(5000.0)] {
        let (target, seen) = server(1, |_| LAST);
        let outcome = run(&target, false, pace);
        let examples = &outcome.failure_examples;
        assert_eq!((outcome.replies, outcome.failures), (1001, 0), "{examples:?}");
        assert_eq!(seen.requests.load(Ordering::Relaxed), 1001);
        assert_eq!(seen.connections.load(Ordering::Relaxed), 1001);
    }
}

#[test]
fn wrong_answers_are_failures() {
    let (target, _) = server(usize::MAX, |number| match number % 10 {
        0 => "HTTP/1.1 503 Busy\r\ncontent-length: 3\r\n\r\nyes",
        1 => "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno",
        2 => "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nyes\r\n0\r\n\r\n",
        _ => YES,
    });
    let outcome = run(&target, true, Pace::Closed);
    assert_eq!((outcome.replies, outcome.failures), (1001, 201));
    assert!(outcome.failure_examples.iter().all(|why| why.contains("HTTP/1.1")));
}

#[test]
fn answers_that_are_cut_off_are_failures_and_the_run_goes_on() {
    // Connections end in an answer, and without a word after seven.
    let (target, seen) = server(7, |number| match number % 100 {
        99 => CUT,
        _ => YES,
    });
    let outcome = run(&target, true, Pace::Closed);
    assert_eq!(outcome.replies, 1001);
    // What is sent just as the server closes is lost too; it is told, not hidden.
    assert!(outcome.failures >= 10, "{}", outcome.failures);
    assert!(seen.connections.load(Ordering::Relaxed) >= 1001 / 7);
}
