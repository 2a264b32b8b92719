//! A connection of the client: TCP, unix socket or TLS, logged in, one reply at a time.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use resp::reply::{self, Kind, Limits, Scanner, Value};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{self, CryptoProvider};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::CliArgs;

/// Where systems keep the certificates that they trust.
const SYSTEM_CERTIFICATES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a wait that can be interrupted looks whether it was.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Why there is no reply.
#[derive(Debug)]
pub enum Error {
    /// No connection could be made.
    Connect(String),
    /// The connection is gone.
    Closed(String),
    /// The wait was interrupted by Ctrl-C.
    Interrupted,
    /// Standard input or output failed.
    Output(io::Error),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Connect(text) | Error::Closed(text) => f.write_str(text),
            Error::Interrupted => f.write_str("interrupted"),
            Error::Output(error) => write!(f, "{error}"),
        }
    }
}

/// What ends the wait for a reply.
#[derive(Clone, Debug)]
pub enum Waiting {
    /// Only the reply.
    ForEver,
    /// Also this flag.
    Until(Arc<AtomicBool>),
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A connection to the server.
pub struct Connection {
    stream: Box<dyn Stream>,
    input: Vec<u8>,
    scanner: Scanner,
    waiting: Waiting,
}

impl Connection {
    /// Connects, logs in, and asks for the protocol and the database.
    pub fn open(args: &CliArgs, waiting: Waiting) -> Result<Connection, Error> {
        let place = match &args.socket {
            Some(path) => path.display().to_string(),
            None => format!("{}:{}", args.host, args.port),
        };
        let stream = open_stream(args, &waiting)
            .map_err(|error| Error::Connect(format!("cannot connect to {place}: {error}")))?;
        let mut connection =
            Connection { stream, input: Vec::new(), scanner: Scanner::default(), waiting };
        connection.log_in(args)?;
        Ok(connection)
    }

    fn log_in(&mut self, args: &CliArgs) -> Result<(), Error> {
        // AUTH first and by itself: its own error is clearer than HELLO's.
        if let Some(password) = &args.password {
            let user = args.user.iter().map(String::as_str);
            let words: Vec<&str> =
                ["AUTH"].into_iter().chain(user).chain([password.as_str()]).collect();
            self.setup(&words, "login failed")?;
        }
        if args.resp3 {
            self.setup(&["HELLO", "3"], "RESP3")?;
        } else if !args.resp2 {
            // A server that has no RESP3, or wants a login first, is spoken to in RESP2.
            self.request(&["HELLO", "3"])?;
        }
        if args.database != 0 {
            self.setup(&["SELECT", &args.database.to_string()], "no such database")?;
        }
        Ok(())
    }

    fn setup(&mut self, words: &[&str], what: &str) -> Result<(), Error> {
        match self.request(words)? {
            Value::Error(text) => {
                Err(Error::Connect(format!("{what}: {}", String::from_utf8_lossy(&text))))
            }
            _ => Ok(()),
        }
    }

    /// Sends a command and waits for its reply.
    pub fn request(&mut self, words: &[&str]) -> Result<Value, Error> {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.send(&words)?;
        self.receive_reply(&words, |_| Ok(()))
    }

    /// Sends a command.
    pub fn send(&mut self, words: &[Vec<u8>]) -> Result<(), Error> {
        let mut out = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            out.extend_from_slice(word);
            out.extend_from_slice(b"\r\n");
        }
        let mut rest = out.as_slice();
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(0) => return Err(closed("server closed the connection")),
                Ok(bytes) => rest = &rest[bytes..],
                Err(error) => self.wait_again(&error)?,
            }
        }
        self.stream.flush().map_err(closed)
    }

    /// The reply to a command; pushes that come before it are handed to `on_push`.
    pub fn receive_reply(
        &mut self,
        words: &[Vec<u8>],
        on_push: impl Fn(&Value) -> Result<(), Error>,
    ) -> Result<Value, Error> {
        loop {
            match self.receive()? {
                value @ Value::Push(_) if !is_answered_by_push(words) => on_push(&value)?,
                value => return Ok(value),
            }
        }
    }

    /// The next reply or push.
    pub fn receive(&mut self) -> Result<Value, Error> {
        let broken = |error: reply::Error| closed(format!("protocol error: {error}"));
        loop {
            if let Some(reply) = self.scanner.next(&self.input).map_err(broken)? {
                let parsed = reply::parse(&self.input[..reply.bytes], &Limits::default());
                let parsed = parsed.map_err(broken)?;
                self.input.drain(..reply.bytes);
                debug_assert!(reply.kind != Kind::Push || parsed.is_some());
                return parsed.map(|(value, _)| value).ok_or_else(|| closed("reply ended early"));
            }
            let filled = self.input.len();
            self.input.resize(filled + (64 << 10), 0);
            let received = self.stream.read(&mut self.input[filled..]);
            self.input.truncate(filled + *received.as_ref().unwrap_or(&0));
            match received {
                Ok(0) => return Err(closed("server closed the connection")),
                Ok(_) => {}
                Err(error) => self.wait_again(&error)?,
            }
        }
    }

    /// Whether an I/O error means only that there is nothing yet, and the wait goes on.
    fn wait_again(&self, error: &io::Error) -> Result<(), Error> {
        use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
        if !matches!(error.kind(), Interrupted | TimedOut | WouldBlock) {
            return Err(closed(error));
        }
        match &self.waiting {
            Waiting::Until(flag) if flag.load(Ordering::Relaxed) => Err(Error::Interrupted),
            _ => Ok(()),
        }
    }
}

fn closed(why: impl std::fmt::Display) -> Error {
    Error::Closed(why.to_string())
}

/// Whether a command is answered by messages without end.
pub fn is_stream(words: &[Vec<u8>]) -> bool {
    const STREAMS: [&[u8]; 4] = [b"SUBSCRIBE", b"PSUBSCRIBE", b"SSUBSCRIBE", b"MONITOR"];
    words.first().is_some_and(|word| STREAMS.iter().any(|name| word.eq_ignore_ascii_case(name)))
}

/// Whether RESP3 answers a command by a push.
fn is_answered_by_push(words: &[Vec<u8>]) -> bool {
    const NAMES: [&[u8]; 3] = [b"UNSUBSCRIBE", b"PUNSUBSCRIBE", b"SUNSUBSCRIBE"];
    words.first().is_some_and(|word| NAMES.iter().any(|name| word.eq_ignore_ascii_case(name)))
}

fn open_stream(args: &CliArgs, waiting: &Waiting) -> Result<Box<dyn Stream>, String> {
    let text = |error: io::Error| error.to_string();
    let read_timeout = matches!(waiting, Waiting::Until(_)).then_some(LOOK_INTERVAL);
    if let Some(path) = &args.socket {
        let stream = UnixStream::connect(path).map_err(text)?;
        stream.set_read_timeout(read_timeout).map_err(text)?;
        return Ok(Box::new(stream));
    }
    let addresses = (args.host.as_str(), args.port).to_socket_addrs().map_err(text)?;
    let mut result = Err("the host has no address".to_owned());
    for address in addresses {
        result = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(text);
        if result.is_ok() {
            break;
        }
    }
    let stream = result?;
    stream.set_nodelay(true).map_err(text)?;
    if !args.tls {
        stream.set_read_timeout(read_timeout).map_err(text)?;
        return Ok(Box::new(stream));
    }
    let name = args.sni.clone().unwrap_or_else(|| args.host.clone());
    let name = ServerName::try_from(name).map_err(|error| format!("server name: {error}"))?;
    let config = Arc::new(tls_config(args)?);
    let session = ClientConnection::new(config, name).map_err(|error| error.to_string())?;
    let mut stream = StreamOwned::new(session, stream);
    // Made here, so that a certificate that is not trusted is told as such.
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).map_err(|error| format!("TLS: {error}"))?;
    }
    stream.sock.set_read_timeout(read_timeout).map_err(text)?;
    Ok(Box::new(stream))
}

fn tls_config(args: &CliArgs) -> Result<ClientConfig, String> {
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = if args.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(TrustAnyone { provider }))
    } else {
        builder.with_root_certificates(trusted(args.cacert.as_deref())?)
    };
    match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => {
            let chain = certificates(cert)?;
            let pem = fs::read(key).map_err(|error| format!("{}: {error}", key.display()))?;
            let key = PrivateKeyDer::from_pem_slice(&pem)
                .map_err(|error| format!("{}: {error}", key.display()))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string())
        }
        _ => Ok(builder.with_no_client_auth()),
    }
}

fn trusted(file: Option<&Path>) -> Result<RootCertStore, String> {
    let system = || SYSTEM_CERTIFICATES.iter().map(Path::new).find(|path| path.exists());
    let file = file.or_else(system).ok_or("this system has no certificates: use --cacert")?;
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(certificates(file)?);
    if added == 0 {
        return Err(format!("{} holds no certificate to trust", file.display()));
    }
    Ok(store)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{}: {error}", file.display()))
}

/// `--insecure`: encrypts, but to whom is not asked. Signatures are still verified, so that the
/// peer at least has the key of the certificate it shows.
#[derive(Debug)]
struct TrustAnyone {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for TrustAnyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
