//! TLS: long replies that go out in parts, limits, a proper end.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufReader, Read};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use common::{Client, Server, encode, eventually, free_port, line};
use forebay_server::shared::OutputLimits;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

type TlsClient = Client<StreamOwned<ClientConnection, TcpStream>>;

/// A folder with a certificate of a new authority and its key, for `localhost`.
struct Certificate(PathBuf);

impl Certificate {
    fn new(name: &str) -> Certificate {
        let dir = std::env::temp_dir().join(format!("forebay-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
            .args(["-nodes", "-days", "2", "-subj", "/CN=localhost"])
            .args(["-addext", "subjectAltName=DNS:localhost"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-keyout", "key.pem", "-out", "cert.pem"])
            .current_dir(&dir)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Certificate(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().into()
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(certificate: &Certificate, threads: usize, auth_clients: &str) -> (Server, u16) {
    let port = free_port();
    let (cert, key) = (certificate.path("cert.pem"), certificate.path("key.pem"));
    let server = Server::with(
        threads,
        &[
            ("tls-port", &port.to_string()),
            ("tls-cert-file", &cert),
            ("tls-key-file", &key),
            ("tls-ca-cert-file", &cert),
            ("tls-auth-clients", auth_clients),
        ],
    );
    (server, port)
}

fn connect(certificate: &Certificate, port: u16, shows_certificate: bool) -> TlsClient {
    let mut roots = RootCertStore::empty();
    let load = || CertificateDer::from_pem_file(Path::new(&certificate.path("cert.pem"))).unwrap();
    roots.add(load()).unwrap();
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let config = if shows_certificate {
        let key = PrivateKeyDer::from_pem_file(certificate.path("key.pem")).unwrap();
        builder.with_client_auth_cert(vec![load()], key).unwrap()
    } else {
        builder.with_no_client_auth()
    };
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    Client { stream: BufReader::new(StreamOwned::new(session, socket)) }
}

#[test]
fn long_values_and_pipelines_go_through_tls() {
    let certificate = Certificate::new("long");
    for threads in [1, 2] {
        let (server, port) = start(&certificate, threads, "no");
        let mut client = connect(&certificate, port, false);
        let value: String = (0..1_000_000).map(|at| (b'a' + (at % 23) as u8) as char).collect();
        let bytes = encode(&["SET", "big", &value]);
        bytes.chunks(7_001).for_each(|piece| client.send(piece));
        assert_eq!(client.reply(), "OK");
        // Many megabytes that are asked for before any is read: they go out in parts.
        client.send(&line("GET big").repeat(20));
        client.send(&line("PING"));
        std::thread::sleep(Duration::from_millis(100));
        let list = server.client().call("CLIENT LIST");
        let waits = |line: &str| line.contains(" events=rw ") && !line.contains(" omem=0 ");
        assert!(list.lines().any(waits), "{list}");
        for _ in 0..20 {
            assert!(client.reply() == value);
        }
        assert_eq!(client.reply(), "PONG");
        client.send(&line("INCR n").repeat(10_000));
        (1..=10_000).for_each(|number| assert_eq!(client.reply(), number.to_string()));
        // The end is said, not just made.
        assert_eq!(client.call("QUIT"), "OK");
        assert_eq!(client.stream.read(&mut [0; 8]).unwrap(), 0);
        eventually("it is gone", || server.shared().all_clients().is_empty());
    }
}

#[test]
fn output_limits_hold_for_tls_as_well() {
    let certificate = Certificate::new("limits");
    let (server, port) = start(&certificate, 2, "no");
    let limits = OutputLimits { hard_bytes: 4 << 20, soft_bytes: 0, soft_seconds: 0 };
    server.shared().set_output_limits(1, limits);
    let mut listens = connect(&certificate, port, false);
    assert_eq!(listens.call("SUBSCRIBE c"), "[subscribe c 1]");
    let mut sends = server.client();
    let value = "x".repeat(100_000);
    let mut count = 0;
    while sends.call(&format!("PUBLISH c {value}")) == "1" {
        count += 1;
        assert!(count < 1000);
    }
    assert_eq!(server.shared().all_clients().len(), 1);
}

#[test]
fn clients_show_a_certificate_if_they_must() {
    let certificate = Certificate::new("shows");
    let (server, port) = start(&certificate, 2, "yes");
    let mut known = connect(&certificate, port, true);
    assert_eq!(known.call("PING"), "PONG");
    let mut unknown = connect(&certificate, port, false);
    let mut sent = unknown.stream.get_mut();
    let _ = std::io::Write::write_all(&mut sent, b"PING\r\n");
    assert!(unknown.stream.read(&mut [0; 8]).is_err());
    // Plain text at the TLS door.
    let mut plain = Client::new(TcpStream::connect(("127.0.0.1", port)).unwrap());
    plain.send(b"PING\r\n");
    assert!(plain.is_closed());
    eventually("only one is left", || server.shared().all_clients().len() == 1);
    assert_eq!(known.call("PING"), "PONG");
}
