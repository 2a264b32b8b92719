//! Calls to participants as they go out, and what their answers mean (dtm,
//! `dtmsvr/trans_status.go` and `client/dtmcli/utils.go`).
//!
//! ```text
//!   METHOD url?gid=..&trans_type=..&branch_id=..&op=..     POST with a payload or for XA, else GET
//!   content-type: application/json, branch_headers, traceparent, idempotency-key: gid:branch:op
//!
//!   425, or "ONGOING" in the body    ongoing     (looked for first)
//!   409, or "FAILURE" in the body    failure
//!   200                              success
//!   anything else, or nothing        unknown
//! ```
//!
//! An address that does not begin with `http` is called by gRPC, where the protocol is not `http`.
//! What the span of a call is called is decided here (W3C, "Trace Context"): the trace and the
//! flags are the client's, the span is the call's own.

use std::sync::Arc;

use serde_json::{Value, json};

use super::local::{self, Local};
use super::machine::{Answer, Call};
use super::policy::{Moment, Rules};
use super::transaction::{QUERY, Transaction};
use super::words::{Kind, Verdict};

/// dtm's JSON-RPC codes.
const RPC_FAILURE: i64 = -32901;
const RPC_ONGOING: i64 = -32902;

/// A call, with everything that its sender needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// Where to.
    pub url: Box<str>,
    /// The query parameters, in order: gid, trans_type, branch_id, op.
    pub parameters: [(&'static str, Box<str>); 4],
    /// The body; for JSON-RPC, without its envelope.
    pub payload: Arc<[u8]>,
    /// Whether it is sent by POST.
    pub is_post: bool,
    /// Whether it is wrapped as JSON-RPC, with the method that the url's query names.
    pub is_rpc: bool,
    /// Whether it is called by gRPC.
    pub is_grpc: bool,
    /// The client's headers.
    pub headers: Vec<(Box<str>, Box<str>)>,
    /// The W3C trace context of this call; may be empty.
    pub trace_parent: Box<str>,
    /// How long to wait for the answer, in ms.
    pub timeout_ms: u64,
    /// When it was decided on, in ms since 1970.
    pub began_ms: u64,
    /// Ascends with every call of its transaction in this process.
    pub call: u64,
    /// A step that the server runs itself.
    pub local: Option<Box<Local>>,
    /// Why it cannot be sent: it refers to what is not there.
    pub broken: Option<String>,
}

/// The status of an answer that says that no call was made: it is to be made again after the
/// wait, and is no attempt.
pub const NOT_CALLED: u16 = 1;

/// Takes the answer and the time it came.
pub type Answered = Box<dyn FnOnce(Answer, Moment) + Send>;

/// Makes calls, and wakes the coordinator.
pub trait Caller: Send + Sync {
    /// Makes a call; `done` is called exactly once, from any thread, never before this returns
    /// on the same thread.
    fn call(&self, outgoing: Outgoing, done: Answered);
    /// A transaction has ended, or is a dead letter. Called under a lock: not to wait.
    fn finished(&self, _t: &Transaction) {}
    /// A transaction is forgotten: it may be kept elsewhere, and its barrier may go.
    fn forget(&self, _t: &Transaction) {}
    /// Something is due at this time, in ms since 1970, earlier than anything before.
    fn wake_at(&self, due_ms: u64);
}

impl Outgoing {
    /// A transaction's call as it goes out.
    pub fn of(t: &Transaction, call: Call, rules: &Rules, moment: Moment) -> Outgoing {
        let (branch_id, op, url, payload) = match t.branches.get(usize::from(call.branch)) {
            Some(branch) if call.branch != QUERY => {
                let op: Box<str> = branch.op_word().into();
                (branch.branch_id.clone(), op, branch.url.clone(), Arc::clone(&branch.payload))
            }
            _ => {
                let (op, data): (&str, &[u8]) = match t.kind {
                    Kind::Workflow => (&t.plan.workflow, &t.plan.workflow_data),
                    _ => ("msg", &[]),
                };
                ("00".into(), op.into(), t.query_prepared.clone(), data.into())
            }
        };
        let is_http = url.starts_with("http://") || url.starts_with("https://");
        let is_named = url.starts_with("grpc://") || url.starts_with("grpcs://");
        let is_grpc = !is_http && (is_named || &*t.protocol != "http");
        let is_rpc = !is_grpc && &*t.protocol == "json-rpc" && url.contains("method");
        let is_workflow = call.branch == QUERY && t.kind == Kind::Workflow;
        let payload = if is_grpc && is_workflow { workflow_data(&payload) } else { payload };
        Outgoing {
            parameters: [
                ("gid", t.gid.clone()),
                ("trans_type", t.kind.word().into()),
                ("branch_id", branch_id),
                ("op", op),
            ],
            is_post: is_rpc || !payload.is_empty() || t.kind == Kind::Xa,
            is_rpc,
            is_grpc,
            url,
            payload,
            headers: t.options.headers.clone(),
            trace_parent: own_span(&t.trace_parent, moment.random, call),
            timeout_ms: rules.request_timeout_ms(&t.options),
            began_ms: moment.now_ms,
            call: call.call,
            local: None,
            broken: None,
        }
        .with_outputs(t, call)
    }

    /// Puts in what later steps want of earlier ones' answers.
    fn with_outputs(mut self, t: &Transaction, call: Call) -> Outgoing {
        let branch = t.branches.get(usize::from(call.branch)).filter(|_| call.branch != QUERY);
        let Some(branch) = branch else { return self };
        self.local = Local::of(t, branch).map(Box::new);
        if self.local.is_none() && t.plan.outputs {
            let text = |value: Value| match value {
                Value::String(text) => text,
                other => other.to_string(),
            };
            let url = local::put_in(t, &branch.payload, &branch.url).map(text);
            let payload = match serde_json::from_slice(&branch.payload) {
                Ok(json) => {
                    local::put_in_all(t, &branch.payload, &json).map(|value| value.to_string())
                }
                // There is nothing to put into what is not JSON.
                Err(_) => Ok(String::new()),
            };
            match (url, payload) {
                (Ok(url), Ok(payload)) => {
                    self.url = url.into();
                    if !payload.is_empty() {
                        self.payload = payload.into_bytes().into();
                    }
                }
                (Err(text), _) | (_, Err(text)) => self.broken = Some(text),
            }
        }
        self
    }

    /// What tells a participant that a call is one it has had before.
    pub fn idempotency_key(&self) -> String {
        let [(_, gid), _, (_, branch_id), (_, op)] = &self.parameters;
        format!("{gid}:{branch_id}:{op}")
    }

    /// The body as it is sent. `method` = what the url's query says for JSON-RPC.
    ///
    /// # Errors
    /// A payload that cannot be wrapped: it is no JSON object.
    pub fn body(&self, method: &str) -> Result<Vec<u8>, String> {
        if !self.is_rpc {
            return Ok(self.payload.to_vec());
        }
        let params = match self.payload.is_empty() {
            true => Ok(json!({})),
            false => serde_json::from_slice(&self.payload),
        };
        let Ok(Value::Object(mut params)) = params else {
            return Err("the payload of a JSON-RPC branch has to be an object".into());
        };
        for (name, value) in &self.parameters {
            params.insert((*name).into(), value.to_string().into());
        }
        let id = self.idempotency_key();
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        Ok(call.to_string().into_bytes())
    }

    /// What an answer means.
    pub fn verdict(&self, code: u16, body: &[u8]) -> Verdict {
        let has = |word: &[u8]| body.windows(word.len()).any(|window| window == word);
        if code == 425 || has(b"ONGOING") {
            return Verdict::Ongoing;
        }
        if code == 409 || has(b"FAILURE") {
            return Verdict::Failure;
        }
        match code {
            200 if self.is_rpc => verdict_of_rpc(body),
            200 => Verdict::Success,
            _ => Verdict::Unknown,
        }
    }
}

/// What a status of gRPC means, with its message (dtm, `client/dtmgrpc/type.go`).
pub fn grpc_verdict(status: u16, message: &str) -> Verdict {
    match (status, message) {
        (0, _) => Verdict::Success,
        // Clients before dtm 1.10 say it in this way.
        (10, "ONGOING") | (9, _) => Verdict::Ongoing,
        (10, _) => Verdict::Failure,
        _ => Verdict::Unknown,
    }
}

/// A client's trace context with a span of its own for a call.
fn own_span(trace_parent: &str, random: u64, call: Call) -> Box<str> {
    // version, trace (32 digits), span (16), flags.
    match (trace_parent.get(..36), trace_parent.get(52..)) {
        (Some(trace), Some(flags)) => {
            let salt = u64::from(call.branch) << 48 | call.call;
            let bits = (random ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            // Zero would mean that there is none.
            let span = (bits ^ bits >> 32).max(1);
            format!("{trace}{span:016x}{flags}").into()
        }
        _ => trace_parent.into(),
    }
}

/// The message that a workflow's callback takes (dtm, `client/workflow/wfpb/wf.proto`): its data
/// as field 1.
fn workflow_data(data: &[u8]) -> Arc<[u8]> {
    if data.is_empty() {
        return Arc::new([]);
    }
    let mut message = vec![0x0a];
    let mut length = data.len();
    while length >= 0x80 {
        message.push(length as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.extend_from_slice(data);
    message.into()
}

fn verdict_of_rpc(body: &[u8]) -> Verdict {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else { return Verdict::Unknown };
    match &answer["error"] {
        Value::Null if answer.is_object() => Verdict::Success,
        error if error["code"] == RPC_FAILURE => Verdict::Failure,
        error if error["code"] == RPC_ONGOING => Verdict::Ongoing,
        _ => Verdict::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::Status;
    use super::*;

    fn outgoing(protocol: &str, url: &str, payload: &[u8]) -> Outgoing {
        let mut t = Transaction::new("g", Kind::Saga, Status::Submitted, 1);
        t.protocol = protocol.into();
        t.add_step(url, "", payload);
        let moment = Moment { now_ms: 7, random: 0 };
        Outgoing::of(&t, Call { branch: 1, call: 1 }, &Rules::default(), moment)
    }

    #[test]
    fn codes_and_words_in_the_body_decide() {
        let call = outgoing("http", "http://a", b"{}");
        assert!(call.is_post);
        assert!(!outgoing("http", "http://a", b"").is_post);
        for (code, body, verdict) in [
            (200, "", Verdict::Success),
            (200, "{\"dtm_result\":\"FAILURE\"}", Verdict::Failure),
            (200, "ONGOING and FAILURE", Verdict::Ongoing),
            (409, "", Verdict::Failure),
            (425, "FAILURE", Verdict::Ongoing),
            (500, "no FAILURE of mine", Verdict::Failure),
            (500, "", Verdict::Unknown),
            (201, "", Verdict::Unknown),
            (302, "", Verdict::Unknown),
            (0, "timed out", Verdict::Unknown),
        ] {
            assert_eq!(call.verdict(code, body.as_bytes()), verdict, "{code} {body}");
        }
    }

    #[test]
    fn addresses_decide_what_is_called_by_grpc() {
        for (protocol, url, is_grpc) in [
            ("grpc", "h:1/s/m", true),
            ("grpc", "http://h:1/x", false),
            ("grpc", "https://h:1/x", false),
            ("http", "h:1/x", false),
            ("http", "grpc://h:1/s/m", true),
            ("json-rpc", "h:1/s/method", true),
        ] {
            let call = outgoing(protocol, url, b"\xff");
            assert_eq!((call.is_grpc, call.is_rpc), (is_grpc, false), "{protocol} {url}");
            assert_eq!(&*call.payload, b"\xff");
        }
    }

    #[test]
    fn a_workflow_is_called_back_by_grpc_with_its_message() {
        let mut t = Transaction::new("g", Kind::Workflow, Status::Prepared, 1);
        t.protocol = "grpc".into();
        t.query_prepared = "h:1/workflow.Workflow/Execute".into();
        t.plan.workflow_data = vec![7; 300].into();
        let moment = Moment { now_ms: 7, random: 0 };
        let call = Call { branch: QUERY, call: 1 };
        let call = Outgoing::of(&t, call, &Rules::default(), moment);
        assert_eq!(&call.payload[..4], [0x0a, 0xac, 0x02, 7]);
        assert_eq!(call.payload.len(), 303);
        assert!(workflow_data(b"").is_empty());
    }

    #[test]
    fn every_call_has_a_span_of_its_own() {
        let given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let spans: Vec<_> =
            (0..100).map(|call| own_span(given, 7, Call { branch: 1, call })).collect();
        for (place, span) in spans.iter().enumerate() {
            assert_eq!(span.len(), given.len());
            assert_eq!((&span[..36], &span[52..]), (&given[..36], &given[52..]));
            assert!(!spans[..place].contains(span) && &**span != given);
        }
        assert_eq!(&*own_span("", 7, Call { branch: 1, call: 1 }), "");
    }

    #[test]
    fn json_rpc_has_its_own_envelope_and_codes() {
        let call = outgoing("json-rpc", "http://a/?method=out", br#"{"n":1}"#);
        let body: Value = serde_json::from_slice(&call.body("out").unwrap()).unwrap();
        assert_eq!(body["method"], "out");
        let wanted = json!({"n":1,"gid":"g","trans_type":"saga","branch_id":"01","op":"action"});
        assert_eq!(body["params"], wanted);
        for (body, verdict) in [
            (r#"{"result":1}"#, Verdict::Success),
            (r#"{"error":{"code":-32901}}"#, Verdict::Failure),
            (r#"{"error":{"code":-32902}}"#, Verdict::Ongoing),
            (r#"{"error":{"code":-1}}"#, Verdict::Unknown),
            ("nonsense", Verdict::Unknown),
        ] {
            assert_eq!(call.verdict(200, body.as_bytes()), verdict, "{body}");
        }
        assert!(outgoing("json-rpc", "http://a/?method=out", b"[1]").body("out").is_err());
    }
}
