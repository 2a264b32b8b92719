//! The TLS configuration, from the `tls-*` options.

use std::fs::File;
use std::io::{self, BufReader};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

/// Files and wishes of the `tls-*` options.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct TlsOptions {
    pub cert_file: String,
    pub key_file: String,
    pub ca_cert_file: String,
    /// `no`, `yes` or `optional`.
    pub auth_clients: String,
}

fn in_file(path: &str, error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{path}: {error}"))
}

fn certificates(path: &str) -> io::Result<Vec<CertificateDer<'static>>> {
    let mut reader = BufReader::new(File::open(path).map_err(|error| in_file(path, error))?);
    let read: Result<Vec<_>, _> = CertificateDer::pem_reader_iter(&mut reader).collect();
    let read = read.map_err(|error| in_file(path, error))?;
    if read.is_empty() {
        return Err(in_file(path, "no certificate in it"));
    }
    Ok(read)
}

/// Reads the files and makes a server's configuration of them.
pub fn config(options: &TlsOptions) -> io::Result<Arc<rustls::ServerConfig>> {
    let chain = certificates(&options.cert_file)?;
    let key = PrivateKeyDer::from_pem_file(&options.key_file)
        .map_err(|error| in_file(&options.key_file, error))?;
    let builder = rustls::ServerConfig::builder();
    let builder = if options.auth_clients == "no" {
        builder.with_no_client_auth()
    } else {
        if options.ca_cert_file.is_empty() {
            let text = "tls-auth-clients needs tls-ca-cert-file (or set tls-auth-clients no)";
            return Err(io::Error::other(text));
        }
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&options.ca_cert_file)? {
            roots.add(certificate).map_err(|error| in_file(&options.ca_cert_file, error))?;
        }
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots));
        let verifier = if options.auth_clients == "optional" {
            verifier.allow_unauthenticated()
        } else {
            verifier
        };
        builder.with_client_cert_verifier(verifier.build().map_err(io::Error::other)?)
    };
    let config =
        builder.with_single_cert(chain, key).map_err(|error| in_file(&options.cert_file, error))?;
    Ok(Arc::new(config))
}
