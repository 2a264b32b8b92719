//! Transactions as JSON: as dtm shows them (dtm, `dtmsvr/storage/trans.go`; empty fields are left
//! out, times are RFC 3339), and as our own API does, with the timeline.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::base64;
use super::machine;
use super::policy::Rules;
use super::topics::{Topic, Topics};
use super::transaction::{Branch, QUERY, Transaction};
use super::words::{BranchStatus, Hold, Kind, Op};

/// A time as RFC 3339; null for 0.
fn time(ms: u64) -> Value {
    let stamp = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    stamp.filter(|_| ms != 0).map_or(Value::Null, |stamp| stamp.to_string().into())
}

/// Puts a value in unless it is empty: null, 0, "" or an empty list.
fn put(object: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    let value = value.into();
    let is_empty = match &value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_u64() == Some(0),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(flag) => !flag,
    };
    if !is_empty {
        object.insert(name.into(), value);
    }
}

/// What the client chose, as dtm has it beside the rest and once more as a text.
fn options(t: &Transaction) -> Map<String, Value> {
    let mut fields = Map::new();
    put(&mut fields, "wait_result", t.options.wait_result);
    put(&mut fields, "timeout_to_fail", t.options.timeout_to_fail_s);
    put(&mut fields, "request_timeout", t.options.request_timeout_s);
    put(&mut fields, "retry_interval", t.options.retry_interval_s);
    let headers: Map<String, Value> = t
        .options
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), (**value).into()))
        .collect();
    put(&mut fields, "branch_headers", headers);
    fields.insert("concurrent".into(), t.options.concurrent.into());
    put(&mut fields, "retry_limit", t.options.retry_limit);
    put(&mut fields, "retry_count", t.retry_count);
    fields
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A transaction as dtm shows it.
pub fn transaction(t: &Transaction, rules: &Rules) -> Value {
    let mut object = Map::new();
    object.insert("id".into(), t.id.into());
    object.insert("create_time".into(), time(t.created_ms));
    object.insert("update_time".into(), time(t.updated_ms));
    put(&mut object, "gid", &*t.gid);
    put(&mut object, "trans_type", t.kind.word());
    let actions = t.branches.iter().filter(|branch| branch.op == Op::Action);
    let steps: Vec<Value> = match t.kind {
        Kind::Saga => {
            let pairs = t.branches.chunks_exact(2);
            pairs.map(|p| json!({ "action": &*p[1].url, "compensate": &*p[0].url })).collect()
        }
        _ => actions.clone().map(|branch| json!({ "action": &*branch.url })).collect(),
    };
    put(&mut object, "steps", steps);
    let payloads: Vec<Value> = actions.map(|branch| text(&branch.payload).into()).collect();
    put(&mut object, "payloads", payloads);
    put(&mut object, "status", t.status.word());
    put(&mut object, "query_prepared", &*t.query_prepared);
    put(&mut object, "protocol", &*t.protocol);
    let is_failed = !t.rollback_reason.is_empty() || t.status == super::words::Status::Failed;
    put(&mut object, if is_failed { "rollback_time" } else { "finish_time" }, time(t.finished_ms));
    put(&mut object, "result", &*t.result);
    put(&mut object, "rollback_reason", &*t.rollback_reason);
    let options = options(t);
    put(&mut object, "options", Value::Object(options.clone()).to_string());
    put(&mut object, "custom_data", &*t.custom_data);
    let wait_ms = t.branches.iter().map(|branch| branch.tries.wait_ms).chain([t.query.wait_ms]);
    let wait_ms = wait_ms.max().unwrap_or(0).max(rules.first_wait_ms(&t.options));
    put(&mut object, "next_cron_interval", wait_ms / 1000);
    put(&mut object, "next_cron_time", time(machine::due_ms(t, rules).unwrap_or(0)));
    object.extend(options);
    Value::Object(object)
}

/// A transaction's branches as dtm shows them.
pub fn branches(t: &Transaction) -> Value {
    t.branches.iter().enumerate().map(|(place, branch)| dtm_branch(t, place, branch)).collect()
}

fn dtm_branch(t: &Transaction, place: usize, branch: &Branch) -> Value {
    let mut object = Map::new();
    object.insert("id".into(), (place + 1).into());
    object.insert("create_time".into(), time(t.created_ms));
    object.insert("update_time".into(), time(branch.finished_ms.max(t.created_ms)));
    put(&mut object, "gid", &*t.gid);
    put(&mut object, "url", &*branch.url);
    put(&mut object, "bin_data", base64::encode(&branch.payload));
    put(&mut object, "branch_id", &*branch.branch_id);
    put(&mut object, "op", branch.op_word());
    put(&mut object, "status", branch.status.word());
    put(&mut object, "finish_time", time(branch.finished_ms));
    Value::Object(object)
}

/// A topic as dtm shows it: a value of the category `topics`.
pub fn topic(name: &str, topic: &Topic) -> Value {
    let subscribers = topic.subscribers.iter();
    let subscribers: Value =
        subscribers.map(|(url, remark)| json!({ "url": &**url, "remark": &**remark })).collect();
    json!({
        "id": 0, "create_time": null, "update_time": null, "cat": "topics", "k": name,
        "v": subscribers.to_string(), "version": topic.version,
    })
}

/// All topics from a position on, and the position after them; "" at the end.
pub fn topics(topics: &Topics, position: &str, limit: usize) -> (Vec<Value>, String) {
    let after = topics.0.range::<str, _>((
        if position.is_empty() {
            std::ops::Bound::Unbounded
        } else {
            std::ops::Bound::Excluded(position)
        },
        std::ops::Bound::Unbounded,
    ));
    let page: Vec<_> = after.take(limit).collect();
    let is_full = page.len() == limit;
    let last = page.last().filter(|_| is_full).map_or("", |(name, _)| name).to_string();
    (page.into_iter().map(|(name, known)| topic(name, known)).collect(), last)
}

/// A transaction for a list of our own API.
pub fn summary(t: &Transaction, rules: &Rules) -> Value {
    let mut object = Map::new();
    object.insert("gid".into(), (*t.gid).into());
    put(&mut object, "name", &*t.name);
    object.insert("kind".into(), t.kind.word().into());
    object.insert("status".into(), t.status.word().into());
    put(&mut object, "hold", t.hold.word());
    object.insert("durability".into(), t.durability.word().into());
    object.insert("created".into(), time(t.created_ms));
    object.insert("updated".into(), time(t.updated_ms));
    put(&mut object, "finished", time(t.finished_ms));
    put(&mut object, "reason", &*t.rollback_reason);
    put(&mut object, "next", time(machine::due_ms(t, rules).unwrap_or(0)));
    Value::Object(object)
}

/// What those are told who want to know when a transaction ends or is a dead letter.
pub fn ended(t: &Transaction) -> Value {
    json!({
        "gid": &*t.gid, "name": &*t.name, "kind": t.kind.word(), "status": t.status.word(),
        "hold": t.hold.word(), "reason": &*t.rollback_reason, "created": time(t.created_ms),
        "finished": time(t.finished_ms),
    })
}

/// A transaction for those who ask what happened: branches and attempts.
pub fn detail(t: &Transaction, rules: &Rules) -> Value {
    let mut object = summary(t, rules);
    object["branches"] = t.branches.iter().map(own_branch).collect();
    object["timeline"] = timeline(t);
    if t.attempts_dropped > 0 {
        object["timeline_dropped"] = t.attempts_dropped.into();
    }
    if t.hold == Hold::Dead {
        let dead = t.branches.iter().position(|b| rules.is_dead(&b.tries));
        object["dead_branch"] = dead.map_or(Value::Null, Value::from);
    }
    object
}

fn own_branch(branch: &Branch) -> Value {
    let mut object = Map::new();
    object.insert("branch".into(), (*branch.branch_id).into());
    object.insert("op".into(), branch.op_word().into());
    object.insert("status".into(), branch.status.word().into());
    put(&mut object, "url", &*branch.url);
    put(&mut object, "payload", text(&branch.payload));
    put(&mut object, "output", &*branch.output);
    put(&mut object, "tries", branch.tries.count);
    put(&mut object, "finished", time(branch.finished_ms));
    if branch.status == BranchStatus::Prepared && branch.tries.due_ms > 0 {
        put(&mut object, "next", time(branch.tries.due_ms));
    }
    Value::Object(object)
}

/// Every attempt that is kept.
pub fn timeline(t: &Transaction) -> Value {
    let attempts = t.attempts.iter().map(|attempt| {
        let mut object = Map::new();
        object.insert("at".into(), time(attempt.at_ms));
        if let Some(branch) = t.branches.get(usize::from(attempt.branch)) {
            object.insert("branch".into(), (*branch.branch_id).into());
            object.insert("op".into(), branch.op_word().into());
            put(&mut object, "url", &*branch.url);
        } else if attempt.branch == QUERY {
            put(&mut object, "url", &*t.query_prepared);
        }
        object.insert("outcome".into(), attempt.verdict.word().into());
        put(&mut object, "code", attempt.code);
        object.insert("took_ms".into(), attempt.took_ms.into());
        put(&mut object, "answer", &*attempt.note);
        Value::Object(object)
    });
    attempts.collect()
}

#[cfg(test)]
mod tests {
    use super::super::words::Status;
    use super::*;

    #[test]
    fn a_saga_as_dtm_shows_it() {
        let mut t = Transaction::new("g", Kind::Saga, Status::Submitted, 1_700_000_000_123);
        t.id = 5;
        t.add_step("http://a", "http://b", b"{}");
        t.options.wait_result = true;
        let shown = transaction(&t, &Rules::default());
        assert_eq!(shown["create_time"], "2023-11-14T22:13:20.123Z");
        assert_eq!(shown["status"], "submitted");
        assert_eq!(shown["steps"], json!([{"action":"http://a","compensate":"http://b"}]));
        assert_eq!(shown["payloads"], json!(["{}"]));
        assert_eq!(shown["options"], "{\"concurrent\":false,\"wait_result\":true}");
        assert_eq!(shown["wait_result"], true);
        assert_eq!(shown["next_cron_interval"], 10);
        assert!(shown.get("finish_time").is_none());
        let shown = branches(&t);
        assert_eq!(shown[0]["op"], "compensate");
        assert_eq!(shown[1]["bin_data"], "e30=");
        assert_eq!(shown[1]["branch_id"], "01");
    }

    #[test]
    fn topics_come_in_pages() {
        let mut all = Topics::default();
        for name in ["a", "b", "c"] {
            all.subscribe(name, "u", "r").unwrap();
        }
        let (page, next) = topics(&all, "", 2);
        assert_eq!((page.len(), next.as_str()), (2, "b"));
        let (page, next) = topics(&all, &next, 2);
        assert_eq!((page.len(), next.as_str()), (1, ""));
        assert_eq!(page[0]["v"], r#"[{"remark":"r","url":"u"}]"#);
    }
}
