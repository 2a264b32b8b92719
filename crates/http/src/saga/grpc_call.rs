//! Calls to participants over gRPC (dtm, `dtmsvr/trans_status.go`, `client/dtmgrpc/type.go` and
//! `dtmgimp/utils.go`): the payload is the message as it was given, what dtm's parameters are is
//! in the metadata, and the status is the result.
//!
//! ```text
//!   host:port/package.Service/Method    also with grpc:// before it; grpcs:// for TLS
//!   dtm-gid, dtm-trans_type, dtm-branch_id, dtm-op, dtm-dtm: "", branch_headers, traceparent
//!
//!   OK                    success
//!   ABORTED               failure; with the message "ONGOING": ongoing (clients before 1.10)
//!   FAILED_PRECONDITION   ongoing
//!   anything else         unknown
//! ```

use http_body_util::Full;
use services::saga::machine::Answer;
use services::saga::outgoing::{Outgoing, grpc_verdict};

use super::client::{Came, Guard, Ready};
use super::grpc::framed;

/// What is added to a status of gRPC, so that it is told apart from one of HTTP.
const CODE: u16 = 1000;
/// gRPC's UNKNOWN, for an answer that has no status.
const UNKNOWN: u16 = 2;

/// The request of a call.
///
/// # Errors
/// What is wrong with its address or its headers.
pub(super) fn request(outgoing: &Outgoing, guard: &Guard) -> Result<Ready, String> {
    if let Some(text) = &outgoing.broken {
        return Err(text.clone());
    }
    let (scheme, rest) = match outgoing.url.split_once("://") {
        None => ("http", &*outgoing.url),
        Some(("grpc", rest)) => ("http", rest),
        Some(("grpcs", rest)) => ("https", rest),
        Some((other, _)) => return Err(format!("branches are not called by {other}")),
    };
    if !rest.contains('/') {
        return Err(format!("{}: no method", outgoing.url));
    }
    let uri: hyper::Uri = format!("{scheme}://{rest}")
        .parse()
        .map_err(|error| format!("{}: {error}", outgoing.url))?;
    guard.check(&uri)?;
    let mut builder = hyper::Request::post(uri)
        .version(http::Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", format!("{}m", outgoing.timeout_ms.min(99_999_999)))
        .header("idempotency-key", outgoing.idempotency_key())
        .header("dtm-dtm", "");
    for (name, value) in &outgoing.parameters {
        builder = builder.header(format!("dtm-{name}"), &**value);
    }
    if !outgoing.trace_parent.is_empty() {
        builder = builder.header("traceparent", &*outgoing.trace_parent);
    }
    for (name, value) in &outgoing.headers {
        builder = builder.header(&**name, &**value);
    }
    let body = Full::from(framed(&outgoing.payload));
    builder.body(body).map_err(|error| error.to_string())
}

/// What came back, for the coordinator.
pub(super) fn answer(came: &Came, began_ms: u64) -> Answer {
    let status = came.header("grpc-status").and_then(|text| text.parse().ok());
    let text = match (came.header("grpc-message"), status) {
        (Some(text), _) => decoded(text),
        (None, Some(_)) => String::new(),
        (None, None) => format!("no grpc-status, and HTTP's is {}", came.status),
    };
    let status: u16 = status.unwrap_or(UNKNOWN);
    Answer {
        verdict: grpc_verdict(status, &text),
        code: CODE.saturating_add(status),
        text,
        began_ms,
        retry_after_ms: came.retry_after_ms(),
    }
}

/// The text that a `grpc-message` stands for.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut place = 0;
    while place < bytes.len() {
        let digits = text.get(place + 1..place + 3).filter(|_| bytes[place] == b'%');
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(byte.unwrap_or(bytes[place]));
        place += if byte.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use services::saga::words::Verdict;

    use super::super::grpc::encoded;
    use super::*;

    fn came(headers: &[(&'static str, &'static str)]) -> Came {
        let headers = headers
            .iter()
            .map(|&(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")));
        Came { status: 200, headers: headers.collect(), body: Vec::new() }
    }

    #[test]
    fn statuses_are_results() {
        for (status, message, verdict) in [
            ("0", "", Verdict::Success),
            ("10", "no money", Verdict::Failure),
            ("10", "ONGOING", Verdict::Ongoing),
            ("9", "wait", Verdict::Ongoing),
            ("2", "FAILURE", Verdict::Unknown),
            ("14", "", Verdict::Unknown),
            ("nonsense", "", Verdict::Unknown),
            ("65535", "", Verdict::Unknown),
        ] {
            let answer = answer(&came(&[("grpc-status", status), ("grpc-message", message)]), 1);
            assert_eq!(answer.verdict, verdict, "{status} {message}");
            assert!(answer.code >= CODE);
        }
        assert_eq!(answer(&came(&[]), 1).verdict, Verdict::Unknown);
    }

    proptest! {
        #[test]
        fn messages_are_decoded(text in ".*") {
            prop_assert_eq!(decoded(&encoded(&text)), text);
        }

        #[test]
        fn any_message_is_taken(text in "[%0-9a-fA-Fü]*") {
            decoded(&text);
        }
    }
}
