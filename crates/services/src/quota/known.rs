//! What the database, or the journal before it, knows already of requests that say who they are:
//! events stored, answers given.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use super::answer::{Ack, Answer, Outcome, Refusal, Verdict, ingest_body, refuse};
use super::batch::{Batch, Kept};
use super::queue::{Idempotency, Work};
use super::service::lock;
use crate::database::{Database, DatabaseError, Value};
use crate::store::Store;

/// Names asked for in one query.
const NAMES_MAX: usize = 500;

/// An organisation and a name of its own.
pub type Name = (Arc<str>, String);
type Names<'n> = HashMap<Arc<str>, Vec<&'n str>>;

/// See the module.
#[derive(Debug, Default)]
pub struct Known {
    events: HashSet<Name>,
    answers: HashMap<Name, (String, u16, String)>,
    also: Option<Arc<Mutex<Known>>>,
}

impl Known {
    /// Knows what the other one knows, too.
    pub fn behind(also: Arc<Mutex<Known>>) -> Known {
        Known { also: Some(also), ..Known::default() }
    }

    /// Whether an event is stored.
    pub fn has_event(&self, org: &Arc<str>, key: &str) -> bool {
        let name = (Arc::clone(org), key.to_string());
        self.events.contains(&name)
            || self.also.as_ref().is_some_and(|also| lock(also).events.contains(&name))
    }

    fn answer(&self, name: &Name) -> Option<(String, u16, String)> {
        let own = self.answers.get(name).cloned();
        own.or_else(|| lock(self.also.as_ref()?).answers.get(name).cloned())
    }

    /// Whether there is an answer for an idempotency key.
    pub fn has_answer(&self, org: &Arc<str>, key: &str) -> bool {
        self.answer(&(Arc::clone(org), key.to_string())).is_some()
    }

    /// Asks a database about what a batch would store.
    pub fn ask_of(
        &mut self,
        database: &mut dyn Database,
        batch: &Batch,
    ) -> Result<(), DatabaseError> {
        let mut events: Names<'_> = HashMap::new();
        let mut keys: Names<'_> = HashMap::new();
        for record in &batch.records {
            let names = record.event_key.as_deref();
            events.entry(Arc::clone(&record.org)).or_default().extend(names);
        }
        for kept in &batch.kept {
            keys.entry(Arc::clone(&kept.org)).or_default().push(&kept.idempotency.key);
        }
        self.ask_names(database, events, keys)
    }

    /// Asks a database about these requests.
    pub fn ask(
        &mut self,
        database: &mut dyn Database,
        works: &[Work],
    ) -> Result<(), DatabaseError> {
        let mut events: Names<'_> = HashMap::new();
        let mut keys: Names<'_> = HashMap::new();
        for work in works {
            let org = &work.caller.org.id;
            let names = work.items.iter().filter_map(|item| item.key());
            let mut names = names.peekable();
            if names.peek().is_some() {
                events.entry(Arc::clone(org)).or_default().extend(names);
            }
            if let Some(idempotency) = &work.idempotency {
                keys.entry(Arc::clone(org)).or_default().push(&idempotency.key);
            }
        }
        self.ask_names(database, events, keys)
    }

    fn ask_names(
        &mut self,
        database: &mut dyn Database,
        events: Names<'_>,
        keys: Names<'_>,
    ) -> Result<(), DatabaseError> {
        for (org, names) in events {
            let sql = "SELECT event_key FROM quota_event WHERE org_id = ? AND event_key IN";
            for row in select_in(database, sql, &org, &names)? {
                self.events.insert((Arc::clone(&org), row[0].text().to_string()));
            }
        }
        for (org, names) in keys {
            let sql = "SELECT idempotency_key, fingerprint, status, answer \
                       FROM quota_idempotency WHERE org_id = ? AND idempotency_key IN";
            for row in select_in(database, sql, &org, &names)? {
                let text = |index: usize| row[index].text().to_string();
                let answer = (text(1), row[2].int() as u16, text(3));
                self.answers.insert((Arc::clone(&org), text(0)), answer);
            }
        }
        Ok(())
    }

    /// Notes what a batch will store.
    pub fn note(&mut self, batch: &Batch) {
        for record in &batch.records {
            if let Some(key) = &record.event_key {
                self.events.insert((Arc::clone(&record.org), key.clone()));
            }
        }
        for kept in &batch.kept {
            let Idempotency { key, fingerprint } = kept.idempotency.clone();
            let answer = (fingerprint, kept.status, kept.answer.clone());
            self.answers.insert((Arc::clone(&kept.org), key), answer);
        }
    }

    /// The names of what a batch stores: events, answers.
    pub fn names(batch: &Batch) -> [Vec<Name>; 2] {
        let events = batch
            .records
            .iter()
            .filter_map(|record| Some((Arc::clone(&record.org), record.event_key.clone()?)));
        let answers =
            batch.kept.iter().map(|kept| (Arc::clone(&kept.org), kept.idempotency.key.clone()));
        [events.collect(), answers.collect()]
    }

    /// Forgets what has these names.
    pub fn forget(&mut self, [events, answers]: &[Vec<Name>; 2]) {
        for name in events {
            self.events.remove(name);
        }
        for name in answers {
            self.answers.remove(name);
        }
    }

    /// Takes over what the one behind it knows of these requests now.
    pub fn recall(&mut self, works: &[Work]) {
        let Some(also) = self.also.clone() else { return };
        let also = lock(&also);
        for work in works.iter().filter(|work| work.needs_look()) {
            let name = |key: &str| (Arc::clone(&work.caller.org.id), key.to_string());
            let events = work.items.iter().filter_map(|item| item.key()).map(name);
            self.events.extend(events.filter(|name| also.events.contains(name)));
            let answer = work.idempotency.as_ref().map(|idempotency| name(&idempotency.key));
            if let Some((name, answer)) =
                answer.and_then(|name| also.answers.get(&name).map(|answer| (name, answer.clone())))
            {
                self.answers.insert(name, answer);
            }
        }
    }

    /// Decides a request: its outcome. If something of it is to be stored, it goes into `batch`,
    /// and the outcome is true once the batch is stored. What was reserved for nothing is released.
    pub fn decide(
        &mut self,
        work: &mut Work,
        store: &dyn Store,
        ack: Ack,
        now_ms: i64,
        batch: &mut Batch,
    ) -> Outcome {
        let org = Arc::clone(&work.caller.org.id);
        let name = |key: &str| (Arc::clone(&org), key.to_string());
        if let Some(idempotency) = &work.idempotency
            && let Some((fingerprint, status, body)) = self.answer(&name(&idempotency.key))
        {
            let is_same = fingerprint == idempotency.fingerprint;
            release(work, store, now_ms, |_| true);
            let usage = Some(work.usage.clone());
            let answer =
                Answer { status, body, accepted: 0, is_replay: true, usage: usage.clone() };
            return if is_same { Ok(answer) } else { refuse(Refusal::OtherContent, usage) };
        }
        for item in &mut work.items {
            let Some(key) = item.key().map(&name) else { continue };
            let is_undecided = matches!(item.verdict, Verdict::Accepted | Verdict::OverQuota);
            if is_undecided && self.has_event(&org, &key.1) {
                item.verdict = Verdict::Duplicate;
            } else if item.is_charged {
                self.events.insert(key);
            }
        }
        release(work, store, now_ms, |verdict| *verdict == Verdict::Duplicate);
        conclude(work, ack, batch)
    }
}

fn select_in(
    database: &mut dyn Database,
    sql: &str,
    org: &str,
    names: &[&str],
) -> Result<Vec<Vec<Value>>, DatabaseError> {
    let mut rows = Vec::new();
    for names in names.chunks(NAMES_MAX) {
        // Few lengths, so that prepared statements are found again.
        let count = names.len().next_power_of_two();
        let marks = vec!["?"; count].join(",");
        let mut values: Vec<Value> = vec![org.into()];
        values.extend(names.iter().map(|name| Value::from(*name)));
        values.resize(count + 1, Value::Null);
        rows.extend(database.query(&format!("{sql} ({marks})"), &values)?);
    }
    Ok(rows)
}

/// Gives back what was reserved for the records with these verdicts.
pub fn release(
    work: &mut Work,
    store: &dyn Store,
    now_ms: i64,
    is_void: impl Fn(&Verdict) -> bool,
) {
    for item in &mut work.items {
        if !item.is_charged || !is_void(&item.verdict) {
            continue;
        }
        item.is_charged = false;
        if work.usage.period.start_ms == item.period_ms {
            work.usage.standing.used -= item.cost;
        }
        let org = &work.caller.org;
        if let Err(error) = org.release(store, item.period_ms, item.cost, now_ms) {
            // The store counts too much until it loads the counter again.
            tracing::warn!("quota: {} of {} not given back: {error}", item.cost, org.id);
        }
    }
}

/// The outcome of a request whose verdicts are all known.
fn conclude(work: &mut Work, ack: Ack, batch: &mut Batch) -> Outcome {
    let verdicts: Vec<Verdict> = work.items.iter().map(|item| item.verdict.clone()).collect();
    let usage = work.usage.clone();
    let has = |want: Verdict| verdicts.contains(&want);
    let over = verdicts.iter().filter(|verdict| **verdict == Verdict::OverQuota).count();
    work.caller.org.deny(over as u64);
    if !has(Verdict::Accepted) && !has(Verdict::Duplicate) {
        return refuse(refusal(&verdicts, work), Some(usage));
    }
    let status = if ack == Ack::Journal { 202 } else { 200 };
    let body = ingest_body(&verdicts, &usage, ack);
    batch.add(work);
    if let Some(idempotency) = work.idempotency.clone() {
        let org = Arc::clone(&work.caller.org.id);
        let answer = body.clone();
        let at_ms = work.received_ms;
        batch.kept.push(Kept { org, idempotency, status, answer, at_ms });
    }
    let accepted = verdicts.iter().filter(|verdict| **verdict == Verdict::Accepted).count() as i64;
    Ok(Answer { status, body, accepted, is_replay: false, usage: Some(usage) })
}

fn refusal(verdicts: &[Verdict], work: &Work) -> Refusal {
    if verdicts.contains(&Verdict::OverQuota) {
        let policy = work.usage.planned.plan.period.name();
        return Refusal::Quota { policy, retry_after_s: work.usage.reset_after_s() };
    }
    match verdicts.first() {
        Some(Verdict::Malformed(why)) => Refusal::Malformed(why.clone()),
        Some(Verdict::OutOfTime) => {
            Refusal::Malformed("its time is more than 35 days back or 5 minutes ahead".into())
        }
        _ => Refusal::Malformed("there is no record in the body".into()),
    }
}
