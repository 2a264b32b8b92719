//! Steps that the server runs itself: a statement on the configured SQL database, a command or a
//! Lua script on the keyspace; and the outputs of branches, for the steps after them.
//!
//! ```text
//!   redis:["INCRBY", "k", 5]                               a command
//!   redis:{"lua": "...", "keys": ["k"], "args": [5]}       a script; an error reply refuses
//!   sql:{"sql": "UPDATE ...", "args": [5], "rows": 1}      a statement; other than so many rows
//!                                                          changed (or answered) refuses
//!
//!   ${02.rows.0.1}    within any argument: of the output of branch 02's action
//!   ${payload.from}   of the step's own payload       ${gid}    the transaction's gid
//! ```
//!
//! An argument that is nothing but a reference becomes the value; within a longer text it is put
//! in as text.
//!
//! **Invariant:** a step and its barrier row (or field) are one transaction: what was done is
//! known, whatever crashes. An action that comes after its compensation does nothing, nor does a
//! compensation without its action; what comes twice gets the first one's output.

use serde_json::Value as Json;

use super::transaction::Transaction;
use super::words::{Op, Verdict};
use crate::database::{Database, DatabaseError, Dialect, Value, Within};

/// Bytes of an output that are kept; of a larger one nothing is.
pub const OUTPUT_BYTES_MAX: usize = 4096;
/// What a barrier holds for an action that must not run any more, and for a compensation that had
/// nothing to undo.
const BARRED: &str = "-";

/// What makes the barrier's table; when the server starts. Keys are compared byte by byte: MySQL's
/// texts would be the same in capitals, or with spaces behind them.
pub fn table(dialect: Dialect) -> String {
    let word = if dialect == Dialect::Mysql { "varbinary" } else { "varchar" };
    format!(
        "CREATE TABLE IF NOT EXISTS saga_barrier (\
        gid {word}(256) NOT NULL, branch_id {word}(64) NOT NULL, op {word}(45) NOT NULL, \
        output text NOT NULL, PRIMARY KEY (gid, branch_id, op))"
    )
}

/// A step as it is written, its references not looked up yet.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A command: its words.
    Command(Vec<Json>),
    /// A script with its keys and arguments.
    Lua(String, Vec<Json>, Vec<Json>),
    /// A statement, its arguments, and how many rows it has to change or answer.
    Sql(String, Vec<Json>, Option<u64>),
}

/// A step as it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ready {
    /// A command: its words.
    Command(Vec<String>),
    /// A script with its keys and arguments.
    Lua(String, Vec<String>, Vec<String>),
    /// See [`Step::Sql`].
    Sql(String, Vec<Value>, Option<u64>),
}

/// A step with what its barrier needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// The transaction.
    pub gid: Box<str>,
    /// The branch.
    pub branch_id: Box<str>,
    /// What is asked.
    pub op: &'static str,
    /// What it undoes; "" = nothing.
    pub origin: &'static str,
    /// Whether it is for the SQL database.
    pub is_sql: bool,
    /// What is to run, or why it cannot.
    pub ready: Result<Ready, String>,
}

/// Whether the server runs a branch with this address itself.
pub fn is_local(url: &str) -> bool {
    url.starts_with("redis:") && !url.starts_with("redis://") || url.starts_with("sql:")
}

/// Reads the address of a local step.
///
/// # Errors
/// It is of none of the forms above; the text says why.
pub fn parse(url: &str) -> Result<Step, String> {
    let (kind, text) = url.split_once(':').unwrap_or((url, ""));
    let json: Json = serde_json::from_str(text).map_err(|error| format!("{kind} step: {error}"))?;
    let list = |value: &Json| match value {
        Json::Null => Some(Vec::new()),
        Json::Array(items) if items.iter().all(is_plain) => Some(items.clone()),
        _ => None,
    };
    let text = |value: &Json| value.as_str().filter(|text| !text.is_empty()).map(str::to_string);
    let step = match (kind, &json) {
        ("redis", Json::Array(words)) if !words.is_empty() => list(&json).map(Step::Command),
        ("redis", Json::Object(_)) => match (text(&json["lua"]), list(&json["keys"])) {
            (Some(lua), Some(keys)) => list(&json["args"]).map(|args| Step::Lua(lua, keys, args)),
            _ => None,
        },
        ("sql", Json::Object(_)) => match (text(&json["sql"]), list(&json["args"])) {
            (Some(sql), Some(args)) if is_one_statement(&sql) => {
                Some(Step::Sql(sql, args, json["rows"].as_u64()))
            }
            _ => None,
        },
        _ => None,
    };
    step.ok_or_else(|| format!("{kind} step: it is not of the form that docs/saga.md has"))
}

/// Whether it can stand within the transaction of its barrier.
fn is_one_statement(sql: &str) -> bool {
    let first = sql.trim_start().split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or("");
    let allowed = ["INSERT", "UPDATE", "DELETE", "SELECT", "WITH", "REPLACE"];
    allowed.iter().any(|word| first.eq_ignore_ascii_case(word))
}

fn is_plain(value: &Json) -> bool {
    !value.is_array() && !value.is_object()
}

/// The value that a reference names.
fn look_up(t: &Transaction, payload: &[u8], reference: &str) -> Result<Json, String> {
    let mut path = reference.split('.');
    let missing = || format!("there is no ${{{reference}}}");
    let parsed = |bytes: &[u8]| {
        let whole = serde_json::from_slice(bytes);
        whole.unwrap_or_else(|_| Json::String(String::from_utf8_lossy(bytes).into_owned()))
    };
    let mut value = match path.next().unwrap_or("") {
        "gid" => Json::String(t.gid.to_string()),
        "payload" => parsed(payload),
        branch_id => {
            let mut actions = t.branches.iter().filter(|b| b.op == Op::Action);
            let action = actions.find(|b| *b.branch_id == *branch_id).ok_or_else(missing)?;
            if action.output.is_empty() {
                return Err(missing());
            }
            parsed(action.output.as_bytes())
        }
    };
    for name in path {
        let inner = match name.parse::<usize>() {
            Ok(index) if value.is_array() => value.get_mut(index),
            _ => value.get_mut(name),
        };
        value = inner.ok_or_else(missing)?.take();
    }
    Ok(value)
}

fn plain_text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Null => String::new(),
        other => other.to_string(),
    }
}

/// A text with its references put in; alone, a reference becomes its value.
///
/// # Errors
/// A reference to what is not there.
pub fn put_in(t: &Transaction, payload: &[u8], text: &str) -> Result<Json, String> {
    let whole = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    if let Some(reference) = whole.filter(|reference| !reference.contains('$')) {
        return look_up(t, payload, reference);
    }
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        let Some((reference, after)) = after.split_once('}') else { break };
        out.push_str(before);
        out.push_str(&plain_text(&look_up(t, payload, reference)?));
        rest = after;
    }
    out.push_str(rest);
    Ok(Json::String(out))
}

/// Every text within a JSON value, with its references put in.
///
/// # Errors
/// A reference to what is not there.
pub fn put_in_all(t: &Transaction, payload: &[u8], value: &Json) -> Result<Json, String> {
    Ok(match value {
        Json::String(text) => put_in(t, payload, text)?,
        Json::Array(items) => {
            items.iter().map(|item| put_in_all(t, payload, item)).collect::<Result<_, _>>()?
        }
        Json::Object(fields) => {
            let inner = fields.iter().map(|(name, value)| {
                put_in_all(t, payload, value).map(|value| (name.clone(), value))
            });
            Json::Object(inner.collect::<Result<_, _>>()?)
        }
        other => other.clone(),
    })
}

fn sql_value(value: Json) -> Value {
    match value {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Int(i64::from(flag)),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Value::Int(number),
            None => Value::Text(number.to_string()),
        },
        other => Value::Text(plain_text(&other)),
    }
}

fn json_value(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Int(number) => (*number).into(),
        Value::Bool(flag) => (*flag).into(),
        Value::Real(number) => number.0.into(),
        Value::Text(text) => text.as_str().into(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into(),
    }
}

impl Local {
    /// A branch's step, if the server runs it itself.
    pub fn of(t: &Transaction, branch: &super::transaction::Branch) -> Option<Local> {
        if !is_local(&branch.url) {
            return None;
        }
        let origin = match branch.op {
            Op::Compensate | Op::Rollback => Op::Action.word(),
            Op::Cancel => Op::Try.word(),
            _ => "",
        };
        let values = |list: &[Json]| -> Result<Vec<Json>, String> {
            list.iter().map(|value| put_in_all(t, &branch.payload, value)).collect()
        };
        let texts = |list: &[Json]| -> Result<Vec<String>, String> {
            Ok(values(list)?.iter().map(plain_text).collect())
        };
        let ready = parse(&branch.url).and_then(|step| {
            Ok(match step {
                Step::Command(words) => Ready::Command(texts(&words)?),
                Step::Lua(lua, keys, args) => Ready::Lua(lua, texts(&keys)?, texts(&args)?),
                Step::Sql(sql, args, rows) => {
                    Ready::Sql(sql, values(&args)?.into_iter().map(sql_value).collect(), rows)
                }
            })
        });
        let (gid, branch_id) = (t.gid.clone(), branch.branch_id.clone());
        let is_sql = branch.url.starts_with("sql:");
        Some(Local { gid, branch_id, op: branch.op.word(), origin, is_sql, ready })
    }

    /// Runs it on a SQL database; what came of it, and the output or the reason.
    pub fn run_sql(&self, database: &mut dyn Database) -> (Verdict, String) {
        let mut outcome = (Verdict::Unknown, String::new());
        let ran = database.within(&mut |tx| {
            let (keep, said) = self.in_transaction(tx)?;
            outcome = said;
            Ok(keep)
        });
        match ran {
            Ok(()) => outcome,
            Err(error @ (DatabaseError::Busy(_) | DatabaseError::Lost(_))) => {
                (Verdict::Unknown, error.to_string())
            }
            Err(error) => (Verdict::Failure, error.to_string()),
        }
    }

    /// Runs several, of any sagas, in one transaction, each within a savepoint of its own: what
    /// one refuses does not touch the others, and they share one commit. Where the whole is
    /// undone, each is run by itself.
    pub fn run_sql_together(
        steps: &[&Local],
        database: &mut dyn Database,
    ) -> Vec<(Verdict, String)> {
        let mut outcomes = Vec::with_capacity(steps.len());
        let ran = match steps {
            [] => Ok(()),
            [alone] => return vec![alone.run_sql(database)],
            _ => database.within(&mut |tx| {
                for step in steps {
                    outcomes.push(step.in_savepoint(tx)?);
                }
                Ok(true)
            }),
        };
        match ran {
            Ok(()) => outcomes,
            // It happened or it did not: the barrier will tell.
            Err(error @ DatabaseError::Lost(_)) => {
                vec![(Verdict::Unknown, error.to_string()); steps.len()]
            }
            Err(_) => steps.iter().map(|step| step.run_sql(database)).collect(),
        }
    }

    /// An error says that the whole transaction cannot go on.
    fn in_savepoint(&self, tx: &mut dyn Within) -> Result<(Verdict, String), DatabaseError> {
        tx.plain("SAVEPOINT saga_step")?;
        let (keep, said) = match self.in_transaction(tx) {
            Ok(done) => done,
            Err(error @ (DatabaseError::Busy(_) | DatabaseError::Lost(_))) => return Err(error),
            Err(error) => (false, (Verdict::Failure, error.to_string())),
        };
        if !keep {
            tx.plain("ROLLBACK TO SAVEPOINT saga_step")?;
        }
        tx.plain("RELEASE SAVEPOINT saga_step")?;
        Ok(said)
    }

    fn in_transaction(
        &self,
        tx: &mut dyn Within,
    ) -> Result<(bool, (Verdict, String)), DatabaseError> {
        let done = |text: String| Ok((true, (Verdict::Success, text)));
        if !self.origin.is_empty() && self.is_first(tx, self.origin, BARRED)? {
            self.is_first(tx, self.op, BARRED)?;
            return done(String::new());
        }
        if !self.is_first(tx, self.op, "")? {
            let sql = "SELECT output FROM saga_barrier WHERE gid = ? AND branch_id = ? AND op = ?";
            let rows = tx.run(sql, &self.row(self.op, "")[..3])?.rows;
            let output = rows.first().and_then(|row| row.first()).map_or("", Value::text);
            return done(if output == BARRED { String::new() } else { output.to_string() });
        }
        let refused = |text: String| Ok((false, (Verdict::Failure, text)));
        let (sql, values, wanted) = match &self.ready {
            Ok(Ready::Sql(sql, values, rows)) => (sql, values, rows),
            Ok(_) => return refused("it is no SQL step".into()),
            Err(text) => return refused(text.clone()),
        };
        let ran = tx.run(sql, values)?;
        let count = if ran.rows.is_empty() { ran.changed } else { ran.rows.len() as u64 };
        if wanted.is_some_and(|wanted| wanted != count) {
            return refused(format!("{count} rows instead of {}", wanted.unwrap_or(0)));
        }
        let rows: Vec<Vec<Json>> =
            ran.rows.iter().map(|row| row.iter().map(json_value).collect()).collect();
        let output = serde_json::json!({ "changed": ran.changed, "rows": rows }).to_string();
        if output.len() <= OUTPUT_BYTES_MAX {
            let sql = "UPDATE saga_barrier SET output = ? \
                       WHERE gid = ? AND branch_id = ? AND op = ?";
            let values: Vec<Value> = std::iter::once(output.as_str().into())
                .chain(self.row(self.op, ""))
                .take(4)
                .collect();
            tx.run(sql, &values)?;
        }
        done(output)
    }

    fn row(&self, op: &str, output: &str) -> Vec<Value> {
        vec![(*self.gid).into(), (*self.branch_id).into(), op.into(), output.into()]
    }

    /// Puts an operation into the barrier; whether it was not there.
    fn is_first(&self, tx: &mut dyn Within, op: &str, output: &str) -> Result<bool, DatabaseError> {
        let dialect = tx.dialect();
        // MySQL counts a row that ON DUPLICATE KEY UPDATE found and left as it was like a new one
        // (connections count rows that are found); but there an error undoes no more than its
        // statement.
        let tail = match dialect {
            Dialect::Mysql => String::new(),
            dialect => dialect.or_ignore("gid, branch_id, op"),
        };
        let insert = format!(
            "INSERT INTO saga_barrier (gid, branch_id, op, output) VALUES (?, ?, ?, ?) {tail}"
        );
        match tx.run(&insert, &self.row(op, output)) {
            Ok(ran) => Ok(ran.changed > 0),
            Err(DatabaseError::Duplicate(_)) if dialect == Dialect::Mysql => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The words of the script that runs it on the keyspace. Its reply is one text: `+` and the
    /// output, or `-` and why it was refused.
    pub fn redis_words(&self) -> Vec<String> {
        let (body, keys, args): (&str, &[String], Vec<String>) = match &self.ready {
            Ok(Ready::Command(words)) => ("return redis.call(unpack(ARGV))", &[], words.clone()),
            Ok(Ready::Lua(lua, keys, args)) => (lua, keys, args.clone()),
            Ok(Ready::Sql(..)) => (NOT_HERE, &[], Vec::new()),
            Err(text) => ("return redis.error_reply(ARGV[1])", &[], vec![text.clone()]),
        };
        let script = format!("local function step(KEYS, ARGV)\n{body}\nend\n{AROUND}");
        let mut words = vec!["EVAL".into(), script, (keys.len() + 1).to_string()];
        words.push(barrier_key(&self.gid));
        words.extend_from_slice(keys);
        let origin = match self.origin {
            "" => String::new(),
            origin => format!("{}:{origin}", self.branch_id),
        };
        words.extend([format!("{}:{}", self.branch_id, self.op), origin]);
        words.extend(args);
        words
    }
}

/// The key of a transaction's barrier.
pub fn barrier_key(gid: &str) -> String {
    format!("saga:barrier:{gid}")
}

/// What removes a transaction's barrier rows.
pub const FORGET: &str = "DELETE FROM saga_barrier WHERE gid = ?";

const NOT_HERE: &str = "return redis.error_reply('it is no step for the keyspace')";

/// The barrier around a step: nothing is written before the step has been done, but where it
/// must not be done any more.
const AROUND: &str = r#"
local barrier, own, origin = KEYS[1], ARGV[1], ARGV[2]
if origin ~= '' and redis.call('HSETNX', barrier, origin, '-') == 1 then
  redis.call('HSET', barrier, own, '-')
  return '+'
end
local known = redis.call('HGET', barrier, own)
if known == '-' then return '+' end
if known then return known end
local keys, args = {}, {}
for index = 2, #KEYS do keys[index - 1] = KEYS[index] end
for index = 3, #ARGV do args[index - 2] = ARGV[index] end
local fine, reply = pcall(step, keys, args)
if not fine then
  return '-' .. (type(reply) == 'table' and reply.err or tostring(reply))
end
if type(reply) == 'table' and reply.err then return '-' .. reply.err end
if type(reply) == 'table' and reply.ok then reply = reply.ok end
local text = '+' .. cjson.encode(reply)
if #text > 4096 then text = '+' end
redis.call('HSET', barrier, own, text)
return text
"#;

/// What the reply of [`Local::redis_words`] means.
pub fn redis_verdict(reply: &str) -> (Verdict, String) {
    // These say nothing of the step: it is to be tried again.
    const PASSING: &[&str] = &["LOADING", "BUSY", "OOM", "MISCONF", "READONLY", "TRYAGAIN"];
    match reply.split_at_checked(1) {
        Some(("+", output)) => (Verdict::Success, output.to_string()),
        Some(("-", text)) if PASSING.iter().any(|word| text.starts_with(word)) => {
            (Verdict::Unknown, text.to_string())
        }
        Some(("-", text)) => (Verdict::Failure, text.to_string()),
        _ => (Verdict::Unknown, format!("a strange reply: {reply}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::{Kind, Status};
    use super::*;

    fn transaction() -> Transaction {
        let mut t = Transaction::new("g", Kind::Saga, Status::Submitted, 1);
        t.add_step("http://a", "", br#"{"from":7,"deep":{"list":[1,"two"]}}"#);
        t.branches[1].output = r#"{"rows":[[5,"x"]]}"#.into();
        t
    }

    #[test]
    fn addresses_of_local_steps() {
        assert!(is_local("redis:[]") && is_local("sql:{}"));
        assert!(!is_local("redis://host") && !is_local("http://sql:1"));
        let command = parse(r#"redis:["INCRBY","k",5]"#).unwrap();
        assert_eq!(command, Step::Command(vec!["INCRBY".into(), "k".into(), 5.into()]));
        let sql = parse(r#"sql:{"sql":"DELETE","args":[1],"rows":1}"#).unwrap();
        assert_eq!(sql, Step::Sql("DELETE".into(), vec![1.into()], Some(1)));
        let commit = r#"sql:{"sql":"COMMIT"}"#;
        for wrong in ["redis:", "redis:[]", "redis:[[1]]", "redis:{}", "sql:[1]", "sql:{}", commit]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn references_are_put_in() {
        let t = transaction();
        let payload = &t.branches[1].payload;
        for (text, value) in [
            ("${01.rows.0.0}", Json::from(5)),
            ("a ${01.rows.0.1} ${payload.from} b", "a x 7 b".into()),
            ("${payload.deep.list.1}", "two".into()),
            ("${gid}", "g".into()),
            ("$ {x} ${open", "$ {x} ${open".into()),
        ] {
            assert_eq!(put_in(&t, payload, text), Ok(value), "{text}");
        }
        for text in ["${02}", "${01.rows.1}", "${payload.no}", "${}", "x${01.none}"] {
            assert!(put_in(&t, payload, text).is_err(), "{text}");
        }
    }

    #[test]
    fn replies_of_the_keyspace() {
        assert_eq!(redis_verdict("+5"), (Verdict::Success, "5".into()));
        assert_eq!(redis_verdict("-WRONGTYPE x").0, Verdict::Failure);
        assert_eq!(redis_verdict("-LOADING x").0, Verdict::Unknown);
        assert_eq!(redis_verdict("").0, Verdict::Unknown);
    }
}
