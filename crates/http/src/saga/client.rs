//! The client that participants and webhooks are called with: HTTP/1.1 and, for gRPC, HTTP/2,
//! over kept-alive connections, in the clear or over TLS.
//!
//! **Invariant:** no connection goes to an address that the guard refuses, however its name was
//! resolved. No redirect is followed. No more of an answer is read than `ANSWER_BYTES_MAX`.
//! **Invariant:** a connection for `https://` or `grpcs://` is used only if its certificate is
//! valid for the host's name, by the roots that were given.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::Full;
use hyper::body::Body;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Connections that are kept per participant, and how long.
const IDLE_MAX: usize = 64;
const IDLE: Duration = Duration::from_secs(60);
/// How long connecting may take.
pub(crate) const CONNECT: Duration = Duration::from_secs(3);

/// Which addresses may be called.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// Hosts, as they stand in the address: only these, where not empty; but see below.
    pub allowed: Vec<String>,
    /// Addresses of private networks are refused, except those of `allowed`; all others may be
    /// called.
    pub refuses_private: bool,
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

    /// The same for one that a host has.
    fn allows(&self, host: &str, ip: IpAddr) -> bool {
        let is_named = || self.allowed.iter().any(|allowed| allowed == host);
        Guard::allows_ip(ip) && (!self.refuses_private || is_public(ip) || is_named())
    }

    /// Whether an address may be called, as far as it is known before its name is resolved.
    pub(crate) fn check(&self, uri: &hyper::Uri) -> Result<(), String> {
        let host = uri.host().unwrap_or("");
        match uri.scheme_str() {
            Some("http" | "https") => {}
            Some(other) => return Err(format!("branches are not called by {other}")),
            None => return Err("the address of a branch begins with http://".into()),
        }
        let is_closed = !self.allowed.is_empty() && !self.refuses_private;
        if is_closed && !self.allowed.iter().any(|allowed| allowed == host) {
            return Err(format!("{host} is not among the hosts that may be called"));
        }
        let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
        match ip.is_ok_and(|ip| !self.allows(host, ip)) {
            true => Err(format!("{host} may not be called")),
            false => Ok(()),
        }
    }
}

/// Whether an address is one of the Internet: none of this machine or of a private network (the
/// registries of RFC 6890).
fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let [a, b, c, _] = ip.octets();
            let is_shared = a == 100 && (64..128).contains(&b);
            let is_reserved = a == 0 || a >= 240 || (a, b, c) == (192, 0, 0);
            let is_benchmark = a == 198 && (b == 18 || b == 19);
            !(ip.is_loopback()
                || ip.is_private()
                || is_shared
                || is_reserved
                || is_benchmark
                || ip.is_documentation())
        }
        IpAddr::V6(ip) => {
            // Global addresses are in 2000::/3; 64:ff9b::/96, which stands for IPv4, is not.
            let first = ip.segments()[0];
            first & 0xe000 == 0x2000 && first != 0x2002
        }
    }
}

/// Resolves names and leaves out what the guard refuses.
#[derive(Clone)]
struct Guarded(GaiResolver, Arc<Guard>);

impl tower_service::Service<Name> for Guarded {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = std::io::Error;
    type Future =
        Pin<Box<dyn Future<Output = Result<Self::Response, std::io::Error>> + Send + 'static>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        tower_service::Service::poll_ready(&mut self.0, context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (guard, host) = (Arc::clone(&self.1), name.as_str().to_owned());
        let resolving = tower_service::Service::call(&mut self.0, name);
        Box::pin(async move {
            let all: Vec<SocketAddr> = resolving.await?.collect();
            let allowed: Vec<_> =
                all.into_iter().filter(|address| guard.allows(&host, address.ip())).collect();
            match allowed.is_empty() {
                true => Err(std::io::Error::other("none of its addresses may be called")),
                false => Ok(allowed.into_iter()),
            }
        })
    }
}

/// Whose certificates are believed.
#[derive(Clone)]
pub struct Trust(Arc<ClientConfig>);

impl Trust {
    /// The roots of the system; with none, no certificate is valid.
    pub fn of_system() -> Trust {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!("the system's certificates: {error}");
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        Trust::new(roots)
    }

    /// The certificates of a PEM file, and no others.
    ///
    /// # Errors
    /// It cannot be read, or holds none.
    pub fn of_file(path: &str) -> Result<Trust, String> {
        let wrong = |error: &dyn std::fmt::Display| format!("{path}: {error}");
        let mut roots = RootCertStore::empty();
        let read = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?;
        for certificate in read {
            let certificate = certificate.map_err(|error| wrong(&error))?;
            roots.add(certificate).map_err(|error| wrong(&error))?;
        }
        match roots.is_empty() {
            true => Err(wrong(&"no certificate in it")),
            false => Ok(Trust::new(roots)),
        }
    }

    fn new(roots: RootCertStore) -> Trust {
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Trust(Arc::new(config))
    }
}

type Http = Client<HttpsConnector<HttpConnector<Guarded>>, Full<Bytes>>;

/// A client that connects to nothing but what a guard allows. To clone it is cheap.
#[derive(Clone)]
pub(crate) struct Caller {
    http1: Http,
    http2: Http,
}

impl Caller {
    /// A client without connections.
    pub(crate) fn new(guard: &Guard, trust: &Trust) -> Caller {
        let guard = Arc::new(guard.clone());
        let connector = || {
            let guarded = Guarded(GaiResolver::new(), Arc::clone(&guard));
            let mut connector = HttpConnector::new_with_resolver(guarded);
            connector.set_nodelay(true);
            connector.set_connect_timeout(Some(CONNECT));
            // The guard has looked at the scheme.
            connector.enforce_http(false);
            connector
        };
        let tls = || HttpsConnectorBuilder::new().with_tls_config((*trust.0).clone());
        let client = |connector, is_http2| {
            Client::builder(TokioExecutor::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(IDLE_MAX)
                .pool_timer(TokioTimer::new())
                .http2_only(is_http2)
                .build(connector)
        };
        Caller {
            http1: client(tls().https_or_http().enable_http1().wrap_connector(connector()), false),
            http2: client(tls().https_or_http().enable_http2().wrap_connector(connector()), true),
        }
    }
}

pub(crate) type Ready = hyper::Request<Full<Bytes>>;

/// What came back.
pub(crate) struct Came {
    pub(crate) status: u16,
    /// The headers; over HTTP/2, with the trailers.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Came {
    /// The text of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The wait that was asked for, in ms; 0 = none.
    pub(crate) fn retry_after_ms(&self) -> u64 {
        let seconds = self.header("retry-after").and_then(|text| text.parse::<u64>().ok());
        seconds.unwrap_or(0).saturating_mul(1000)
    }
}

/// Sends a request; by HTTP/2 if it says so.
///
/// # Errors
/// Nobody was reached, or what came was no answer, or too long a one.
pub(crate) async fn exchange(client: &Caller, request: Ready) -> Result<Came, String> {
    let is_http2 = request.version() == http::Version::HTTP_2;
    let client = if is_http2 { &client.http2 } else { &client.http1 };
    let answer = client.request(request).await.map_err(|error| {
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(error) = source {
            text.push_str(&format!(": {error}"));
            source = error.source();
        }
        text
    })?;
    let (parts, mut incoming) = answer.into_parts();
    let mut came = Came { status: parts.status.as_u16(), headers: parts.headers, body: Vec::new() };
    loop {
        let frame = std::future::poll_fn(|context| Pin::new(&mut incoming).poll_frame(context));
        let Some(frame) = frame.await else { break };
        match frame.map_err(|error| error.to_string())?.into_data() {
            Ok(data) => {
                let data: Bytes = data;
                came.body.extend_from_slice(&data);
            }
            Err(frame) => came.headers.extend(frame.into_trailers().unwrap_or_default()),
        }
        if came.body.len() > ANSWER_BYTES_MAX {
            return Err(format!("the answer has more than {ANSWER_BYTES_MAX} bytes"));
        }
    }
    Ok(came)
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
            ("https://service/x", true),
            ("https://169.254.169.254/latest", false),
            ("ftp://service/x", false),
            ("/x", false),
        ] {
            assert_eq!(open.check(&uri.parse().unwrap()).is_ok(), is_allowed, "{uri}");
        }
        let closed = Guard { allowed: vec!["service".into()], ..Guard::default() };
        assert!(closed.check(&"http://service/x".parse().unwrap()).is_ok());
        assert!(closed.check(&"http://other/x".parse().unwrap()).is_err());
    }

    #[test]
    fn private_networks_may_be_refused() {
        let allowed = vec!["inside".to_owned(), "10.0.0.7".to_owned()];
        let guard = Guard { allowed, refuses_private: true };
        for (uri, is_allowed) in [
            ("http://example.org/", true),
            ("http://93.184.216.34/", true),
            ("http://[2606:2800:220:1::1]/", true),
            ("http://10.0.0.7/", true),
            ("http://10.0.0.8/", false),
            ("http://127.0.0.1:80/", false),
            ("http://100.64.0.1/", false),
            ("http://192.168.1.1/", false),
            ("http://172.31.0.1/", false),
            ("http://0.1.2.3/", false),
            ("http://[::1]/", false),
            ("http://[fd00::1]/", false),
            ("http://[::ffff:127.0.0.1]/", false),
            ("http://[64:ff9b::7f00:1]/", false),
            ("http://169.254.169.254/", false),
        ] {
            assert_eq!(guard.check(&uri.parse().unwrap()).is_ok(), is_allowed, "{uri}");
        }
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        assert!(guard.allows("inside", here) && !guard.allows("outside", here));
        let cloud: IpAddr = "169.254.169.254".parse().unwrap();
        assert!(!guard.allows("inside", cloud));
    }
}
