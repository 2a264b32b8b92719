//! A server in this process and clients that speak to it in raw RESP.
#![allow(dead_code, clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use forebay_server::conf_file::Configuration;
use forebay_server::start::{Running, start};

/// A server that ends with the test.
pub struct Server {
    pub port: u16,
    pub running: Option<Running>,
}

/// A port that is free just now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Server {
    pub fn new(threads: usize) -> Server {
        Server::with(threads, &[])
    }

    /// A server with more options, as name and value.
    pub fn with(threads: usize, more: &[(&str, &str)]) -> Server {
        Server::on_disk(std::sync::Arc::new(persist::disk::RealDisk), threads, more)
    }

    /// A server on a disk of the test's own.
    pub fn on_disk(
        disk: std::sync::Arc<dyn persist::disk::Disk>,
        threads: usize,
        more: &[(&str, &str)],
    ) -> Server {
        let configuration = Configuration::default();
        let options = &configuration.options;
        let port = free_port();
        let (threads, text) = (threads.to_string(), port.to_string());
        let own = [("threads", threads.as_str()), ("port", &text), ("bind", "127.0.0.1")];
        for (name, value) in own.iter().chain(more) {
            options.set(name, &[value]).unwrap();
        }
        let families = [commands::FAMILIES, &forebay_server::families()].concat();
        // All servers of the process share the hash's seed.
        let running = start(configuration, &families, disk, || 0x1234_5678_9abc_def0).unwrap();
        Server { port, running: Some(running) }
    }

    pub fn shared(&self) -> &forebay_server::shared::Shared {
        &self.running.as_ref().unwrap().shared
    }

    pub fn client(&self) -> Client {
        Client::new(TcpStream::connect(("127.0.0.1", self.port)).unwrap())
    }

    /// Two clients, served by two threads where there are two.
    pub fn clients<const N: usize>(&self) -> [Client; N] {
        std::array::from_fn(|_| {
            let mut client = self.client();
            // Connections go to the thread with the fewest: one that has answered is counted.
            eventually("all is loaded", || !client.call("GET none").starts_with("-LOADING"));
            assert_eq!(client.call("PING"), "PONG");
            client
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let running = self.running.take().unwrap();
        running.shared.stop();
        running.join();
    }
}

/// A connection.
pub struct Client<S: Read + Write = TcpStream> {
    pub stream: BufReader<S>,
}

impl Client {
    pub fn new(stream: TcpStream) -> Client {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client { stream: BufReader::with_capacity(64 * 1024, stream) }
    }

    pub fn shutdown_write(&mut self) {
        self.stream.get_ref().shutdown(Shutdown::Write).unwrap();
    }

    /// Another handle of the same connection, to write from another thread.
    pub fn writer(&self) -> TcpStream {
        self.stream.get_ref().try_clone().unwrap()
    }

    /// Whether nothing comes for a while.
    pub fn is_silent(&mut self) -> bool {
        if !self.stream.buffer().is_empty() {
            return false;
        }
        let stream = self.stream.get_ref();
        stream.set_read_timeout(Some(Duration::from_millis(60))).unwrap();
        let silent = self.stream.fill_buf().is_err();
        let stream = self.stream.get_ref();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        silent
    }

    /// Whether the server has closed the connection.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// A command in RESP.
pub fn encode<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A command in RESP, from words with a space between them.
pub fn line(text: &str) -> Vec<u8> {
    encode(&text.split(' ').collect::<Vec<_>>())
}

impl<S: Read + Write> Client<S> {
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
        self.stream.get_mut().flush().unwrap();
    }

    /// Sends a command and reads its reply.
    pub fn call(&mut self, text: &str) -> String {
        self.send(&line(text));
        self.reply()
    }

    /// Sends commands and reads as many replies.
    pub fn check(&mut self, cases: &[(&str, &str)]) {
        for (text, want) in cases {
            assert_eq!(self.call(text), *want, "{text}");
        }
    }

    fn line(&mut self) -> String {
        let mut bytes = Vec::new();
        self.stream.read_until(b'\n', &mut bytes).unwrap();
        assert!(bytes.ends_with(b"\r\n"), "the connection ended: {bytes:?}");
        String::from_utf8_lossy(&bytes[..bytes.len() - 2]).into_owned()
    }

    fn some(&mut self, count: usize) -> String {
        let all: Vec<String> = (0..count).map(|_| self.reply()).collect();
        all.join(" ")
    }

    /// A reply as text: strings as they are, `[a b]`, `>[a b]`, `{a b}`, `nil`.
    pub fn reply(&mut self) -> String {
        let line = self.line();
        let (kind, rest) = line.split_at(1);
        let count = || rest.parse::<i64>().unwrap();
        match kind {
            "+" | ":" | "," | "#" => rest.into(),
            "-" => line.clone(),
            "_" => "nil".into(),
            "$" | "=" if count() < 0 => "nil".into(),
            "$" | "=" => {
                let mut bytes = vec![0; count() as usize + 2];
                self.stream.read_exact(&mut bytes).unwrap();
                String::from_utf8_lossy(&bytes[..bytes.len() - 2]).into_owned()
            }
            "*" if count() < 0 => "nil".into(),
            "*" | "~" => format!("[{}]", self.some(count() as usize)),
            ">" => format!(">[{}]", self.some(count() as usize)),
            "%" => format!("{{{}}}", self.some(count() as usize * 2)),
            _ => panic!("what is {line:?}?"),
        }
    }

    pub fn id(&mut self) -> u64 {
        self.call("CLIENT ID").parse().unwrap()
    }
}

/// Waits until something is so.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
