//! dtm's gRPC service (dtm, `client/dtmgrpc/dtmgpb/dtmgimp.proto` for the messages,
//! `dtmsvr/api_grpc.go` and `client/dtmgrpc/type.go` for the statuses). Behind it is what is
//! behind dtm's HTTP API.
//!
//! ```text
//!   success   OK                   FAILURE   ABORTED
//!   ONGOING   FAILED_PRECONDITION  others    UNKNOWN, or INTERNAL for a transaction that cannot be
//!                                            carried out, as dtm has it
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;

use http::request::Parts;
use services::saga::coordinator::Error;
use services::saga::submission::{Request, Step};
use services::saga::transaction::Transaction;
use services::saga::words::Status;

use super::Saga;
use super::dtm::{Outcome, trace_parent, with_word};
use super::grpc::{Answer, Code};
use super::protobuf::{Fields, Malformed, Message};

/// The service's name, between slashes.
pub(super) const SERVICE: &str = "/dtmgimp.Dtm/";

impl From<Malformed> for (Code, String) {
    fn from(_: Malformed) -> (Code, String) {
        (Code::Internal, "the message is malformed".into())
    }
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Answer {
        match outcome {
            // What has a value is not asked for in this way.
            Outcome::Success | Outcome::Value(_) => Ok(Vec::new()),
            Outcome::Failure(text) => Err((Code::Aborted, with_word(&text, "FAILURE"))),
            Outcome::Ongoing(text) => Err((Code::FailedPrecondition, with_word(&text, "ONGOING"))),
            Outcome::Wrong(text) => Err((Code::Unknown, text)),
        }
    }
}

impl Saga {
    pub(super) async fn grpc_call(&self, parts: &Parts, message: &[u8]) -> Answer {
        let path = parts.uri.path();
        let unknown = || (Code::Unimplemented, format!("there is no method {path}"));
        let method = path.strip_prefix(SERVICE).ok_or_else(unknown)?;
        match method {
            "NewGid" => {
                let mut reply = Message::default();
                reply.bytes(1, self.new_gid().as_bytes());
                Ok(reply.0)
            }
            "Submit" | "Prepare" | "Abort" => {
                let name = method.to_ascii_lowercase();
                let request = request(message)?;
                internal(self.requested(&name, &request, trace_parent(parts)).await.into())
            }
            "PrepareWorkflow" => {
                let request = request(message)?;
                match self.known_workflow(&request, trace_parent(parts)).await {
                    Ok(t) => Ok(progresses(&t)),
                    Err(outcome) => internal(outcome.into()),
                }
            }
            "RegisterBranch" => {
                let (fields, payload) = branch(message)?;
                self.register(&fields, payload).await.into()
            }
            "Subscribe" | "Unsubscribe" | "DeleteTopic" => {
                let (topic, url, remark) = topic(message)?;
                let outcome = match method {
                    "Subscribe" => self.topics(|topics| topics.subscribe(topic, url, remark)),
                    "Unsubscribe" => self.topics(|topics| topics.unsubscribe(topic, url)),
                    _ => self.topics(|topics| topics.remove(topic)),
                };
                outcome.into()
            }
            _ => Err(unknown()),
        }
    }

    /// The transaction of a workflow, which is made if it is new.
    pub(super) async fn known_workflow(
        &self,
        request: &Request<'_>,
        trace: &str,
    ) -> Result<Transaction, Outcome> {
        if let Some(t) = self.coordinator.get(&request.gid()) {
            return Ok(t);
        }
        let taken = self.take_on(request, Status::Prepared, trace).await;
        // Another one may have come first: then its progress is what counts.
        match (taken, self.coordinator.get(&request.gid())) {
            (_, Some(t)) => Ok(t),
            (Outcome::Success, None) => Err(Outcome::Wrong(Error::NotFound.text())),
            (outcome, None) => Err(outcome),
        }
    }
}

/// What is unknown as what it is in dtm for these methods.
fn internal(answer: Answer) -> Answer {
    answer.map_err(|(code, text)| match code {
        Code::Unknown => (Code::Internal, text),
        code => (code, text),
    })
}

/// Reads a `DtmRequest`.
fn request(message: &[u8]) -> Result<Request<'_>, (Code, String)> {
    let mut request = Request { protocol: Some("grpc".into()), ..Request::default() };
    let mut extra = BTreeMap::new();
    for field in Fields(message) {
        match field? {
            (1, value) => request.gid = Cow::Borrowed(value.text()?),
            (2, value) => request.trans_type = Cow::Borrowed(value.text()?),
            (3, value) => options(value.bytes()?, &mut request)?,
            (4, value) => request.custom_data = Some(value.text()?.into()),
            (5, value) => request.bin_payloads.push(value.bytes()?),
            (6, value) => request.query_prepared = Some(value.text()?.into()),
            (7, value) => request.steps = steps(value.text()?)?,
            (8, value) => {
                let (name, value) = value.pair()?;
                extra.insert(name.to_string(), value.to_string());
            }
            (9, value) => request.rollback_reason = Some(value.text()?.into()),
            // What newer clients add is left out, as everywhere in protobuf.
            _ => {}
        }
    }
    request.req_extra = Some(extra);
    Ok(request)
}

/// Reads `DtmTransOptions`.
fn options(message: &[u8], request: &mut Request) -> Result<(), Malformed> {
    for field in Fields(message) {
        match field? {
            (1, value) => request.wait_result = value.number()? != 0,
            (2, value) => request.timeout_to_fail = value.number()? as i64,
            (3, value) => request.retry_interval = value.number()? as i64,
            (5, value) => {
                let (name, value) = value.pair()?;
                let headers = request.branch_headers.get_or_insert_default();
                headers.insert(name.to_string(), value.to_string());
            }
            (6, value) => request.request_timeout = value.number()? as i64,
            (7, value) => request.retry_limit = value.number()? as i64,
            _ => {}
        }
    }
    Ok(())
}

fn steps(text: &str) -> Result<Option<Vec<Step<'_>>>, (Code, String)> {
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_str(text).map_err(|error| (Code::Internal, format!("steps: {error}")))
}

/// What a branch is registered with: the fields and the payload.
type Registered<'a> = (BTreeMap<String, String>, Option<&'a [u8]>);

/// Reads a `DtmBranchRequest`: the fields as the HTTP API has them, and the payload.
fn branch(message: &[u8]) -> Result<Registered<'_>, Malformed> {
    let mut fields = BTreeMap::new();
    let mut payload = &b""[..];
    let mut named = BTreeMap::new();
    for field in Fields(message) {
        let name = match field? {
            (1, value) => ("gid", value),
            (2, value) => ("trans_type", value),
            (3, value) => ("branch_id", value),
            (4, value) => ("op", value),
            (5, value) => {
                let (name, value) = value.pair()?;
                named.insert(name.to_string(), value.to_string());
                continue;
            }
            (6, value) => {
                payload = value.bytes()?;
                continue;
            }
            _ => continue,
        };
        fields.insert(name.0.to_string(), name.1.text()?.to_string());
    }
    // What the message itself says counts, where it says anything; then the map.
    fields.retain(|_, text: &mut String| !text.is_empty());
    named.extend(fields);
    Ok((named, Some(payload)))
}

/// Reads a `DtmTopicRequest`: topic, address, remark.
fn topic(message: &[u8]) -> Result<(&str, &str, &str), Malformed> {
    let (mut topic, mut url, mut remark) = ("", "", "");
    for field in Fields(message) {
        match field? {
            (1, value) => topic = value.text()?,
            (2, value) => url = value.text()?,
            (3, value) => remark = value.text()?,
            _ => {}
        }
    }
    Ok((topic, url, remark))
}

/// Writes a `DtmProgressesReply`.
fn progresses(t: &Transaction) -> Vec<u8> {
    let mut shown = Message::default();
    shown.bytes(1, t.gid.as_bytes());
    shown.bytes(2, t.status.word().as_bytes());
    shown.bytes(3, t.rollback_reason.as_bytes());
    shown.bytes(4, t.result.as_bytes());
    let mut reply = Message::default();
    reply.message(1, &shown.0);
    for branch in &t.branches {
        let mut progress = Message::default();
        progress.bytes(1, branch.status.word().as_bytes());
        progress.bytes(2, &branch.payload);
        progress.bytes(3, branch.branch_id.as_bytes());
        progress.bytes(4, branch.op_word().as_bytes());
        reply.message(2, &progress.0);
    }
    reply.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read() {
        let mut options = Message::default();
        options.number(1, 1);
        options.number(2, 7);
        options.message(5, b"\x0a\x01a\x12\x01b");
        options.number(7, u64::MAX);
        let mut message = Message::default();
        message.bytes(1, b"g");
        message.bytes(2, b"saga");
        message.message(3, &options.0);
        message.message(5, b"\xff\x00");
        message.message(5, b"");
        message.bytes(7, br#"[{"action":"h:1/s/m","compensate":""},{"action":""}]"#);
        message.message(8, b"\x0a\x06status\x12\x07succeed");
        message.bytes(99, b"new");
        let request = request(&message.0).unwrap();
        assert_eq!((&*request.gid, &*request.trans_type), ("g", "saga"));
        assert_eq!(request.bin_payloads, [&b"\xff\x00"[..], b""]);
        assert_eq!(request.steps.as_ref().unwrap()[0].action, "h:1/s/m");
        assert!(request.wait_result);
        assert_eq!((request.timeout_to_fail, request.retry_limit), (7, -1));
        assert_eq!(request.branch_headers.unwrap()["a"], "b");
        assert_eq!(request.req_extra.unwrap()["status"], "succeed");
    }

    #[test]
    fn what_is_no_request_has_a_status() {
        assert_eq!(request(b"\x08\x01").unwrap_err().0, Code::Internal);
        assert_eq!(request(b"\x0a\x01\xff").unwrap_err().0, Code::Internal);
        assert_eq!(request(b"\x3a\x01{").unwrap_err().0, Code::Internal);
        assert!(request(b"\x3a\x04null").unwrap().steps.is_none());
        assert!(branch(b"\x2a\x05\x0a\x04url").is_err());
    }

    #[test]
    fn a_branch_is_read() {
        let mut message = Message::default();
        message.bytes(1, b"g");
        message.bytes(3, b"01");
        message.message(5, b"\x0a\x03url\x12\x01u");
        message.message(5, b"\x0a\x03gid\x12\x01x");
        message.bytes(6, b"\x80");
        let (fields, payload) = branch(&message.0).unwrap();
        assert_eq!((&*fields["gid"], &*fields["url"], &*fields["branch_id"]), ("g", "u", "01"));
        assert_eq!(payload, Some(&b"\x80"[..]));
    }
}
