//! The routes over a real socket of this process.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_http::{Component, Status, open};

struct Fake(AtomicBool);

impl Status for Fake {
    fn is_ready(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn components(&self) -> Vec<Component> {
        vec![Component { name: "loops", is_ready: self.is_ready(), detail: "two \"loops\"".into() }]
    }

    fn metrics(&self) -> String {
        "redis_up 1\n".into()
    }
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the door is open");
    let request = format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it listens");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("it answers");
    reply
}

#[test]
fn every_route_answers() {
    let status = Arc::new(Fake(AtomicBool::new(true)));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let door = open(listener, Arc::clone(&status) as Arc<dyn Status>, None, None, None, 2)
        .expect("threads");
    let cases = [
        ("GET /livez", "200 OK", "ok\n"),
        ("GET /readyz", "200 OK", "ready\n"),
        ("GET /healthz", "200 OK", "ready\n"),
        ("GET /metrics", "200 OK", "redis_up 1\n"),
        ("GET /", "200 OK", "/metrics"),
        (
            "GET /readyz?verbose",
            "200 OK",
            r#"{"components":{"loops":{"detail":"two \"loops\"","ready":true}},"ready":true}"#,
        ),
        ("GET /nope", "404 Not Found", r#""status":404"#),
        ("POST /metrics", "405 Method Not Allowed", r#""status":405"#),
        ("HEAD /livez", "200 OK", ""),
    ];
    for (request, code, body) in cases {
        let reply = ask(door.address, request);
        assert!(reply.starts_with(&format!("HTTP/1.1 {code}")), "{request}: {reply}");
        let (head, rest) = reply.split_once("\r\n\r\n").expect("a head");
        assert!(rest.contains(body), "{request}: {rest}");
        let is_problem = head.contains("application/problem+json");
        assert_eq!(is_problem, code.starts_with('4'), "{request}");
    }
    assert!(ask(door.address, "DELETE /livez").to_ascii_lowercase().contains("allow: get, head"));
    status.0.store(false, Ordering::Relaxed);
    assert!(ask(door.address, "GET /readyz").starts_with("HTTP/1.1 503"));
    assert!(ask(door.address, "GET /livez").starts_with("HTTP/1.1 200"));
    let address = door.address;
    door.close();
    assert!(TcpStream::connect(address).is_err());
}
