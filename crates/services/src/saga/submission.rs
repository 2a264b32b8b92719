//! What clients send: dtm's `TransBase` as JSON (dtm, `client/dtmcli/dtmimp/trans_base.go` and
//! `dtmsvr/storage/trans.go`), and how a transaction comes of it.
//!
//! **Invariant:** whatever is sent, either a transaction comes of it that can be carried out, or a
//! text that says what is wrong.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::local;
use super::plan;
use super::topics::Topics;
use super::transaction::{BRANCHES_MAX, Branch, Options, Transaction};
use super::words::{BranchStatus, Kind, Op, Status};

/// Bytes a gid may have.
pub const GID_BYTES_MAX: usize = 256;
/// Seconds a client may ask for: a year.
const SECONDS_MAX: u32 = 366 * 24 * 3600;
/// How a step names a topic instead of an address.
const TOPIC_PREFIX: &str = "topic://";

/// A request as dtm's clients send it.
#[derive(Debug, Deserialize, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Request<'a> {
    #[serde(borrow)]
    pub gid: Cow<'a, str>,
    #[serde(borrow)]
    pub trans_type: Cow<'a, str>,
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    pub steps: Option<Vec<Step<'a>>>,
    #[serde(borrow)]
    pub payloads: Option<Vec<Cow<'a, str>>>,
    /// What gRPC's clients send in place of `payloads`: any bytes.
    #[serde(skip)]
    pub bin_payloads: Vec<&'a [u8]>,
    pub custom_data: Option<String>,
    pub query_prepared: Option<String>,
    pub protocol: Option<String>,
    pub rollback_reason: Option<String>,
    pub wait_result: bool,
    pub timeout_to_fail: i64,
    pub request_timeout: i64,
    pub retry_interval: i64,
    pub retry_limit: i64,
    pub concurrent: bool,
    pub branch_headers: Option<BTreeMap<String, String>>,
    pub req_extra: Option<BTreeMap<String, String>>,
}

/// A step of a saga or a message.
#[derive(Debug, Deserialize, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Step<'a> {
    #[serde(borrow)]
    pub action: Cow<'a, str>,
    #[serde(borrow)]
    pub compensate: Cow<'a, str>,
    /// Where old clients put the payload.
    #[serde(borrow)]
    pub data: Cow<'a, str>,
}

impl<'a> Request<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// It is not JSON of this form; the text says where.
    pub fn read(body: &'a [u8]) -> Result<Request<'a>, String> {
        serde_json::from_slice(body).map_err(|error| format!("the request: {error}"))
    }

    /// The gid without what dtm takes out of it.
    pub fn gid(&self) -> Cow<'_, str> {
        let is_taken = |character| matches!(character, '\n' | '\r' | ';');
        match self.gid.contains(is_taken) {
            true => Cow::Owned(self.gid.replace(is_taken, "")),
            false => Cow::Borrowed(&self.gid),
        }
    }

    /// What it is about.
    ///
    /// # Errors
    /// A word that is no kind.
    pub fn kind(&self) -> Result<Kind, String> {
        Kind::of_word(&self.trans_type)
            .ok_or_else(|| format!("unknown trans type: {}", self.trans_type))
    }

    /// The transaction that is asked for, with its branches.
    ///
    /// # Errors
    /// What cannot be carried out; the text says what.
    pub fn transaction(
        &self,
        status: Status,
        topics: &Topics,
        now_ms: u64,
    ) -> Result<Transaction, String> {
        let gid = self.gid();
        if gid.is_empty() || gid.len() > GID_BYTES_MAX {
            return Err(format!("a gid has 1 to {GID_BYTES_MAX} bytes"));
        }
        let kind = self.kind()?;
        let mut t = Transaction::new(&gid, kind, status, now_ms);
        let text = |text: &Option<String>| text.as_deref().unwrap_or("").into();
        t.name = self.name.as_ref().into();
        t.custom_data = text(&self.custom_data);
        t.query_prepared = text(&self.query_prepared);
        t.protocol = match self.protocol.as_deref() {
            None | Some("") => "http".into(),
            Some(protocol) => protocol.into(),
        };
        t.options = self.options()?;
        let steps = self.steps.as_deref().unwrap_or(&[]);
        self.add_branches(&mut t, steps, topics)?;
        t.plan = plan::plan(kind, &t.custom_data, steps.len())?;
        Ok(t)
    }

    fn options(&self) -> Result<Options, String> {
        let seconds = |name: &str, value: i64| match u32::try_from(value) {
            Ok(value) if value <= SECONDS_MAX => Ok(value),
            _ => Err(format!("{name}: {value} is not between 0 and {SECONDS_MAX}")),
        };
        let headers = self.branch_headers.iter().flatten();
        Ok(Options {
            wait_result: self.wait_result,
            timeout_to_fail_s: seconds("timeout_to_fail", self.timeout_to_fail)?,
            request_timeout_s: seconds("request_timeout", self.request_timeout)?,
            retry_interval_s: seconds("retry_interval", self.retry_interval)?,
            retry_limit: seconds("retry_limit", self.retry_limit)?,
            concurrent: self.concurrent,
            headers: headers.map(|(n, v)| (n.as_str().into(), v.as_str().into())).collect(),
        })
    }

    fn add_branches(
        &self,
        t: &mut Transaction,
        steps: &[Step],
        topics: &Topics,
    ) -> Result<(), String> {
        if !matches!(t.kind, Kind::Saga | Kind::Msg) {
            return Ok(());
        }
        let old = steps.iter().map(|step| &step.data).filter(|data| !data.is_empty());
        let texts = self.payloads.iter().flatten().chain(old).map(|text| text.as_bytes());
        let payloads: Vec<&[u8]> = texts.chain(self.bin_payloads.iter().copied()).collect();
        if payloads.len() < steps.len() {
            return Err(format!("payloads: {} for {} steps", payloads.len(), steps.len()));
        }
        for (index, (step, payload)) in steps.iter().zip(payloads).enumerate() {
            for url in [&step.action, &step.compensate] {
                if local::is_local(url) {
                    local::parse(url)?;
                }
            }
            if t.kind == Kind::Saga {
                t.add_step(&step.action, &step.compensate, payload);
            } else {
                add_message(t, index, &step.action, payload, topics)?;
            }
            if t.branches.len() > BRANCHES_MAX {
                return Err(format!("more than {BRANCHES_MAX} branches"));
            }
        }
        Ok(())
    }

    /// How a workflow's client says it ended.
    ///
    /// # Errors
    /// A word that is no end.
    pub fn workflow_end(&self) -> Result<(Status, &str, &str), String> {
        let extra = |name: &str| {
            self.req_extra.as_ref().and_then(|extra| extra.get(name)).map_or("", String::as_str)
        };
        match Status::of_word(extra("status")) {
            Some(status) if status.is_final() => {
                Ok((status, extra("rollback_reason"), extra("result")))
            }
            _ => Err(format!("req_extra: '{}' is no end of a workflow", extra("status"))),
        }
    }
}

/// A message's step: one branch, or one for each subscriber of a topic.
fn add_message(
    t: &mut Transaction,
    index: usize,
    action: &str,
    payload: &[u8],
    topics: &Topics,
) -> Result<(), String> {
    let payload: Arc<[u8]> = payload.into();
    let urls: Vec<&str> = match action.strip_prefix(TOPIC_PREFIX) {
        None => vec![action],
        Some(topic) => topics.urls(topic),
    };
    if urls.is_empty() {
        return Err("topic not found".into());
    }
    for (place, url) in urls.iter().enumerate() {
        let id = match urls.len() {
            1 => format!("{:02}", index + 1),
            _ => format!("{:02}-{:02}", index + 1, place + 1),
        };
        t.branches.push(Branch::new(&id, Op::Action, url, Arc::clone(&payload)));
    }
    Ok(())
}

/// The branches that a participant registers (dtm's `registerBranch`), from its flat map. The
/// payload is `data` of that map, where there is no other.
///
/// # Errors
/// A kind that has none; a status or operation that is none.
pub fn registered(
    fields: &BTreeMap<String, String>,
    payload: Option<&[u8]>,
) -> Result<Vec<Branch>, String> {
    let field = |name: &str| fields.get(name).map_or("", String::as_str);
    let payload: Arc<[u8]> = payload.unwrap_or(field("data").as_bytes()).into();
    let branch = |op: Op, url: &str| Branch::new(field("branch_id"), op, url, Arc::clone(&payload));
    match Kind::of_word(field("trans_type")) {
        Some(Kind::Tcc) => {
            Ok(vec![branch(Op::Cancel, field("cancel")), branch(Op::Confirm, field("confirm"))])
        }
        Some(Kind::Xa) => {
            Ok(vec![branch(Op::Rollback, field("url")), branch(Op::Commit, field("url"))])
        }
        Some(Kind::Workflow) => {
            let mut recorded = branch(Op::Try, "");
            recorded.own_op = field("op").into();
            recorded.status = match field("status") {
                "" => BranchStatus::Succeed,
                word => BranchStatus::of_word(word).ok_or(format!("unknown status: {word}"))?,
            };
            Ok(vec![recorded])
        }
        _ => Err(format!("unknow trans type: {}", field("trans_type"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(json: &str) -> Result<Transaction, String> {
        let mut topics = Topics::default();
        topics.subscribe("two", "http://a", "").unwrap();
        topics.subscribe("two", "http://b", "").unwrap();
        topics.subscribe("one", "http://c", "").unwrap();
        Request::read(json.as_bytes())?.transaction(Status::Submitted, &topics, 1)
    }

    #[test]
    fn a_saga_as_the_go_client_sends_it() {
        let t = built(
            r#"{"gid":"g;1\n","trans_type":"saga","wait_result":true,"concurrent":false,
                "steps":[{"action":"http://a","compensate":"http://b"},
                         {"action":"http://c","compensate":""}],
                "payloads":["{\"n\":1}","2"],"protocol":"","branch_headers":{"x":"y"}}"#,
        )
        .unwrap();
        assert_eq!(&*t.gid, "g1");
        let seen: Vec<_> =
            t.branches.iter().map(|b| (&*b.branch_id, b.op_word(), &*b.url)).collect();
        assert_eq!(seen[0], ("01", "compensate", "http://b"));
        assert_eq!(seen[1], ("01", "action", "http://a"));
        assert_eq!(seen[3], ("02", "action", "http://c"));
        assert_eq!(&*t.branches[2].payload, b"2");
        assert_eq!(&*t.protocol, "http");
        assert!(t.options.wait_result);
    }

    #[test]
    fn old_clients_put_the_payload_into_the_step() {
        let t = built(r#"{"gid":"g","trans_type":"saga","steps":[{"action":"a","data":"old"}]}"#);
        assert_eq!(&*t.unwrap().branches[1].payload, b"old");
    }

    #[test]
    fn topics_fan_out() {
        let t = built(
            r#"{"gid":"g","trans_type":"msg","payloads":["1","2","3"],"steps":[
                {"action":"topic://two"},{"action":"topic://one"},{"action":"http://d"}]}"#,
        )
        .unwrap();
        let seen: Vec<_> = t.branches.iter().map(|b| (&*b.branch_id, &*b.url)).collect();
        let wanted =
            [("01-01", "http://a"), ("01-02", "http://b"), ("02", "http://c"), ("03", "http://d")];
        assert_eq!(seen, wanted);
    }

    #[test]
    fn what_cannot_be_carried_out_is_refused() {
        for (json, what) in [
            ("{", "the request"),
            ("3", "the request"),
            (r#"{"gid":"","trans_type":"saga"}"#, "a gid has"),
            (r#"{"gid":"g","trans_type":"sage"}"#, "unknown trans type: sage"),
            (r#"{"gid":"g","trans_type":"saga","steps":[{}]}"#, "payloads: 0 for 1"),
            (r#"{"gid":"g","trans_type":"saga","retry_limit":-1}"#, "retry_limit: -1"),
            (
                r#"{"gid":"g","trans_type":"msg","payloads":["1"],
                    "steps":[{"action":"topic://none"}]}"#,
                "topic not found",
            ),
        ] {
            let error = built(json).unwrap_err();
            assert!(error.contains(what), "{json}: {error}");
        }
        let steps = vec!["{}"; BRANCHES_MAX].join(",");
        let payloads = vec!["\"\""; BRANCHES_MAX].join(",");
        let many = format!(
            r#"{{"gid":"g","trans_type":"saga","steps":[{steps}],"payloads":[{payloads}]}}"#
        );
        assert!(built(&many).unwrap_err().contains("more than"));
    }

    #[test]
    fn participants_register_branches() {
        let fields = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|&(name, value)| (name.to_string(), value.to_string())).collect()
        };
        let tcc = registered(
            &fields(&[
                ("trans_type", "tcc"),
                ("branch_id", "01"),
                ("confirm", "c"),
                ("cancel", "x"),
                ("data", "d"),
            ]),
            None,
        );
        let tcc = tcc.unwrap();
        assert_eq!((tcc[0].op, &*tcc[0].url), (Op::Cancel, "x"));
        assert_eq!((tcc[1].op, &*tcc[1].url, &*tcc[1].payload), (Op::Confirm, "c", &b"d"[..]));
        let xa = registered(&fields(&[("trans_type", "xa"), ("url", "u")]), None).unwrap();
        assert_eq!((xa[0].op, xa[1].op, &*xa[1].url), (Op::Rollback, Op::Commit, "u"));
        let flow = [("trans_type", "workflow"), ("op", "mine"), ("status", "failed")];
        let flow = registered(&fields(&flow), Some(b"\xff")).unwrap();
        assert_eq!(&*flow[0].payload, b"\xff");
        assert_eq!((flow[0].op_word(), flow[0].status), ("mine", BranchStatus::Failed));
        let error = registered(&fields(&[("trans_type", "saga")]), None).unwrap_err();
        assert_eq!(error, "unknow trans type: saga");
    }
}
