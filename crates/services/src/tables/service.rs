//! The cache: what is kept is served while it is right, what is not is read once for all who wait.
//!
//! ```text
//!            look                                fetch
//!   request ------> kept, label good, fresh -> hit          (maybe renewed early)
//!              |--> kept, label good, stale -> stale hit    + renewed
//!              `--> else ------------------------> flight of its key: the first one queues a
//!                                                  query, later ones wait for the same
//!   query: one snapshot gives the table's version and the rows
//!          version = newest known: kept, served to all who came before the query began
//!          version < what a waiter knows of: the query is done again for those
//! ```
//!
//! A label below the newest version is as good if all that has changed since then is known not to
//! touch the answer (matching.rs): then the answer is labelled anew, once for all who ask.
//!
//! **Invariant:** an answer labelled below the newest version known is served only as
//! [`From::StaleIfError`], and says so.
//! **Invariant:** of each key one query at most is under way.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use super::ask::{Answer, Ask, Control, Done, Fault, Filled, Forward, From, Served, Watch, prefix};
use super::fill;
use super::page::{Coding, Page};
use super::pool::{Health, Pool};
use super::query::Target;
use super::setup;
use super::shelf::{Hot, Shelf};
use super::stats::Stats;
use crate::database::{Connect, Database, DatabaseError};

/// A query is done again so often for those who know of a newer version.
const REFILLS_MAX: u32 = 3;
/// Keys that were asked for once, at most; then all are forgotten.
const ONCE_MAX: usize = 100_000;
/// The version of the newest kept answer is remembered for so long, in milliseconds: ten years.
const NEWEST_MS: i64 = 10 * 365 * 86_400_000;
/// Queries that have cost more are handed over to the readers, in microseconds: so long the
/// caller's thread can do without.
const READ_HERE_US: u32 = 200;
/// Comparing hits takes one part in so many of the time, at most.
const SAMPLE_SHARE: u64 = 100;

/// Times and limits of the service.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Connections that read.
    pub readers: usize,
    /// Connections that write.
    pub writers: usize,
    /// Queries that may wait.
    pub queue_max: usize,
    /// How long a request waits for the database, in milliseconds.
    pub wait_ms: u64,
    /// Bytes of answers as they are sent.
    pub hot_bytes: usize,
    /// How often changes by others are looked for, in milliseconds; 0 = never.
    pub probe_ms: u64,
    /// Of how many hits one is compared with the database; 0 = none.
    pub sample_one_in: u64,
}

/// What the service stands on.
pub struct Parts {
    /// The database.
    pub connect: Arc<dyn Connect>,
    /// Where answers lie.
    pub shelf: Arc<dyn Shelf>,
    /// Milliseconds since 1970.
    pub clock: Arc<dyn Fn() -> i64 + Send + Sync>,
    /// Makes bodies smaller.
    pub compress: fn(Coding, &[u8]) -> Vec<u8>,
    /// Random bits to begin with.
    pub seed: u64,
    /// See there.
    pub settings: Settings,
}

struct Waiter {
    need: i64,
    /// Queries that were begun for it and came too old.
    tries: u32,
    done: Done,
}

#[derive(Default)]
struct Flight {
    waiters: Vec<Waiter>,
    is_stored: bool,
    tries: u32,
}

/// See the module.
pub struct Tables {
    served: RwLock<HashMap<String, Arc<Served>>>,
    /// Columns are made one at a time.
    pub(super) widening: Mutex<()>,
    pub(super) parts: Parts,
    hot: Hot,
    pub(super) readers: Pool,
    pub(super) writers: Pool,
    flights: Mutex<HashMap<Arc<str>, Flight>>,
    once: Mutex<HashSet<u64>>,
    random: AtomicU64,
    begun: Instant,
    /// No hit is compared before this time, in microseconds since the service began.
    sample_after_us: AtomicU64,
    /// What has happened.
    pub stats: Stats,
    pub(super) this: Weak<Tables>,
}

/// What a look came to.
pub enum Look {
    /// An answer.
    Answer(Answer),
    /// The database has to be asked.
    Fetch(Fetch),
    /// Nothing can be answered.
    Fault(Fault),
}

/// Why the database has to be asked.
#[derive(Debug, Clone)]
pub struct Fetch {
    /// Why.
    pub why: Forward,
    /// What may be served if it does not answer.
    pub stale: Option<Arc<Page>>,
    need: i64,
    at_least: i64,
    is_stored: bool,
}

/// Where the version of a table's newest kept answer lies.
fn newest_key(table: &str) -> String {
    format!("cache-newest:{table}")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Tables {
    /// Serves these tables, which [`setup`] has prepared.
    pub fn start(served: Vec<Served>, parts: Parts) -> std::io::Result<Arc<Tables>> {
        let Settings { readers, writers, queue_max, hot_bytes, .. } = parts.settings;
        let connect = Arc::clone(&parts.connect);
        let readers = Pool::start("tables-read", readers.max(1), queue_max, &connect)?;
        let writers = Pool::start("tables-write", writers.max(1), queue_max, &connect)?;
        let named = |served: Served| (served.table.name.clone(), Arc::new(served));
        let random = AtomicU64::new(parts.seed | 1);
        Ok(Arc::new_cyclic(|this| Tables {
            served: RwLock::new(served.into_iter().map(named).collect()),
            widening: Mutex::default(),
            parts,
            hot: Hot::new(hot_bytes),
            readers,
            writers,
            flights: Mutex::default(),
            once: Mutex::default(),
            random,
            begun: Instant::now(),
            sample_after_us: AtomicU64::new(0),
            stats: Stats::default(),
            this: this.clone(),
        }))
    }

    /// A table.
    pub fn find(&self, name: &str) -> Option<Arc<Served>> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        served.get(name).map(Arc::clone)
    }

    /// Serves a table from now on.
    pub(super) fn serve(&self, table: Served) {
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        served.insert(table.table.name.clone(), Arc::new(table));
    }

    /// The names of all tables, sorted.
    pub fn names(&self) -> Vec<String> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<String> = served.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// The time.
    pub fn now_ms(&self) -> i64 {
        (self.parts.clock)()
    }

    /// How long a request waits, in milliseconds.
    pub fn wait_ms(&self) -> u64 {
        self.parts.settings.wait_ms
    }

    /// Hot answers, and their bytes.
    pub fn hot_size(&self) -> (usize, usize) {
        self.hot.size()
    }

    /// Random bits (xorshift; good enough to spread renewals and to tell fillings apart).
    fn random(&self) -> u64 {
        let mut bits = self.random.load(Ordering::Relaxed);
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        self.random.store(bits, Ordering::Relaxed);
        bits
    }

    /// Whether kept answers are of this database's past. They are not if it was put back to an
    /// earlier state while nobody looked: then it has a lower version than the newest answer kept,
    /// or the same one by another change. They are removed.
    fn has_compared(&self, served: &Served, now_ms: i64) -> bool {
        if served.is_compared.load(Ordering::Acquire) {
            return true;
        }
        let name = &served.table.name;
        let Ok(found) = self.parts.shelf.get(&newest_key(name), now_ms) else {
            self.stats.shelf_errors.add();
            return false;
        };
        let text = found.and_then(|value| String::from_utf8(value).ok()).unwrap_or_default();
        let newest = text.split_once(' ').and_then(|(version, changed)| {
            Some((version.parse::<i64>().ok()?, changed.parse::<i64>().ok()?))
        });
        let (version, changed_us) = served.begun;
        if newest.is_some_and(|(kept, at)| kept > version || (kept == version && at != changed_us))
        {
            tracing::warn!("table {name}: the database was put back; kept answers are removed");
            self.purge(name);
        }
        served.is_compared.store(true, Ordering::Release);
        true
    }

    /// A kept answer, if its key still holds it.
    fn kept(&self, ask: &Ask, now_ms: i64) -> Option<Arc<Page>> {
        let (key, shelf) = (&ask.key, &self.parts.shelf);
        if !self.has_compared(&ask.served, now_ms) {
            return None;
        }
        if let Some(page) = self.hot.get(key) {
            match shelf.begins(key, &page.start(), now_ms) {
                Ok(true) => return Some(page),
                Ok(false) => self.hot.remove(key),
                Err(_) => {
                    self.stats.shelf_errors.add();
                    return None;
                }
            }
        }
        let value = shelf.get(key, now_ms).unwrap_or_else(|_| {
            self.stats.shelf_errors.add();
            None
        });
        let page = Arc::new(Page::decode(&value?)?);
        self.hot.put(key, &page);
        Some(page)
    }

    /// Answers from memory, or says why not.
    pub fn look(&self, ask: &Arc<Ask>, control: &Control) -> Look {
        let caching = &ask.served.table.caching;
        let need = ask.served.versions.current().max(control.at_least);
        let is_stored = caching.ttl_ms > 0 && !control.no_store;
        let fetch = |why, stale| {
            Look::Fetch(Fetch { why, stale, need, at_least: control.at_least, is_stored })
        };
        if !is_stored {
            return fetch(Forward::Bypass, None);
        }
        let now_ms = self.now_ms();
        let Some(page) = self.kept(ask, now_ms) else {
            if control.only_if_cached {
                return Look::Fault(Fault::NotKept);
            }
            return fetch(Forward::UriMiss, None);
        };
        let age_ms = (now_ms - page.filled_ms).max(0);
        let fresh_ms = i64::from(page.fresh_ms) - age_ms;
        let why = if !self.is_right(ask, &page) || page.right_at() < control.at_least {
            Forward::Changed
        } else if !allows(control, age_ms, fresh_ms) {
            Forward::Request
        } else if fresh_ms <= -(caching.stale_ms as i64) {
            Forward::Expired
        } else {
            return Look::Answer(self.hit(ask, page, age_ms, fresh_ms));
        };
        if control.only_if_cached {
            return Look::Fault(Fault::NotKept);
        }
        fetch(why, Some(page))
    }

    /// Whether an answer is right at the newest version known; labels it so where that is new.
    fn is_right(&self, ask: &Ask, page: &Page) -> bool {
        let label = page.right_at();
        if ask.is_good(label) {
            return true;
        }
        let current = ask.served.versions.current();
        if current <= label || !ask.outlives(label, current) {
            return false;
        }
        page.outlive(current);
        self.stats.outlived.add();
        true
    }

    fn hit(&self, ask: &Arc<Ask>, page: Arc<Page>, age_ms: i64, fresh_ms: i64) -> Answer {
        let from = if fresh_ms > 0 {
            self.stats.hits.add();
            if self.is_due_early(ask, &page, fresh_ms) {
                self.stats.early_refreshes.add();
                self.renew(ask, &page);
            } else if self.is_sample(&page) {
                self.sample(ask, &page);
            }
            From::Hit
        } else {
            self.stats.stale_hits.add();
            self.renew(ask, &page);
            From::Stale
        };
        Answer { page, from, age_ms, fresh_ms }
    }

    /// XFetch: the nearer the end and the dearer the query, the likelier one of many readers renews
    /// the answer before it runs out for all of them.
    fn is_due_early(&self, ask: &Ask, page: &Page, fresh_ms: i64) -> bool {
        let beta = ask.served.table.caching.refresh_beta;
        let scale_ms = f64::from(page.cost_us) / 1000.0 * beta;
        // Beyond 40 times its mean the chance is below 1 in 10^17.
        if fresh_ms as f64 > 40.0 * scale_ms {
            return false;
        }
        let uniform = ((self.random() >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        -scale_ms * uniform.ln() >= fresh_ms as f64
    }

    /// Whether a hit is to be compared: some are, and however many there are, queries for that take
    /// a hundredth of the time at most.
    fn is_sample(&self, page: &Page) -> bool {
        let one_in = self.parts.settings.sample_one_in;
        if one_in == 0 || !self.random().is_multiple_of(one_in) {
            return false;
        }
        let now_us = self.begun.elapsed().as_micros() as u64;
        let rest_us = u64::from(page.cost_us) * SAMPLE_SHARE;
        let due = |after: u64| (now_us >= after).then_some(now_us + rest_us);
        self.sample_after_us.fetch_update(Ordering::AcqRel, Ordering::Acquire, due).is_ok()
    }

    /// What may be served though the database does not answer.
    pub fn rescue(&self, ask: &Ask, fetch: &Fetch) -> Option<Answer> {
        let page = fetch.stale.as_ref()?;
        let age_ms = (self.now_ms() - page.filled_ms).max(0);
        let fresh_ms = i64::from(page.fresh_ms) - age_ms;
        let most = ask.served.table.caching.stale_if_error_ms as i64;
        // Who knows of a newer version has said that it will not do.
        if -fresh_ms > most || page.right_at() < fetch.at_least {
            return None;
        }
        self.stats.error_hits.add();
        let page = Arc::clone(page);
        Some(Answer { page, from: From::StaleIfError, age_ms, fresh_ms })
    }

    /// What to answer with something new.
    pub fn answer(&self, fetch: &Fetch, filled: Filled, is_shared: bool) -> Answer {
        let Filled { page, is_kept } = filled;
        let fresh_ms = i64::from(page.fresh_ms);
        let from = From::New { why: fetch.why, is_kept, is_shared };
        Answer { page, from, age_ms: 0, fresh_ms }
    }

    /// Reads from the database, once for all who wait for the same; whether another had begun.
    pub fn fetch(&self, ask: &Arc<Ask>, fetch: &Fetch, done: Done) -> bool {
        self.stats.misses.add();
        let waiter = Waiter { need: fetch.need, tries: 0, done };
        self.board(ask, Some(waiter), fetch.is_stored, false, fetch.stale.as_ref())
    }

    /// The same; in the caller's thread if that is short work and nobody else waits.
    pub fn fetch_here(&self, ask: &Arc<Ask>, fetch: &Fetch, done: Done) -> bool {
        self.stats.misses.add();
        let waiter = Waiter { need: fetch.need, tries: 0, done };
        let cost_us = match (&ask.target, &fetch.stale) {
            (Target::One { .. }, _) => ask.served.paces.row.cost_us(),
            (Target::List(_), Some(page)) => page.cost_us,
            (Target::List(_), None) => u32::MAX,
        };
        let is_short = cost_us <= READ_HERE_US;
        self.board(ask, Some(waiter), fetch.is_stored, is_short, fetch.stale.as_ref())
    }

    /// Answers in one of the service's threads, for callers that must not wait or look themselves.
    pub fn answer_later(
        &self,
        ask: &Arc<Ask>,
        control: Control,
        done: impl FnOnce(Result<Answer, Fault>) + Send + 'static,
    ) {
        let Some(this) = self.this.upgrade() else { return };
        let ask = Arc::clone(ask);
        let done = Box::new(done);
        // Dropped with the work if there is no room: the caller's own time limit tells it.
        let _ = self.readers.push(Box::new(move |_| {
            match this.look(&ask, &control) {
                Look::Answer(answer) => done(Ok(answer)),
                Look::Fault(fault) => done(Err(fault)),
                Look::Fetch(fetch) => {
                    let (tables, asked, why) = (Arc::clone(&this), Arc::clone(&ask), fetch.clone());
                    let filled = Box::new(move |filled: Result<Filled, Fault>| {
                        done(match filled {
                            Ok(filled) => Ok(tables.answer(&why, filled, false)),
                            Err(fault) => tables.rescue(&asked, &why).ok_or(fault),
                        });
                    });
                    this.fetch(&ask, &fetch, filled);
                }
            }
            Health::Good
        }));
    }

    /// Removes all kept answers of a table, in one of the service's threads.
    pub fn purge_later(&self, table: String, done: impl FnOnce(u64) + Send + 'static) {
        let Some(this) = self.this.upgrade() else { return };
        let _ = self.readers.push(Box::new(move |_| {
            done(this.purge(&table));
            Health::Good
        }));
    }

    /// Reads it anew for those who come later.
    fn renew(&self, ask: &Arc<Ask>, page: &Arc<Page>) {
        self.board(ask, None, true, false, Some(page));
    }

    /// An answer that came to be kept after `seen` was looked at, if it will do.
    fn came_since(
        &self,
        ask: &Ask,
        waiter: Option<&Waiter>,
        seen: Option<&Arc<Page>>,
    ) -> Option<Arc<Page>> {
        let now_ms = self.now_ms();
        let page = self.kept(ask, now_ms)?;
        let is_new = seen.is_none_or(|seen| !page.is_of_filling(seen));
        let is_fresh = page.filled_ms + i64::from(page.fresh_ms) > now_ms;
        let will_do = is_new && is_fresh && self.is_right(ask, &page);
        (will_do && waiter.is_none_or(|waiter| waiter.need <= page.right_at())).then_some(page)
    }

    /// Joins the flight for an answer, or begins one; whether somebody else's query serves.
    /// `seen` is the answer that was found to be too old.
    fn board(
        &self,
        ask: &Arc<Ask>,
        waiter: Option<Waiter>,
        is_stored: bool,
        is_short: bool,
        seen: Option<&Arc<Page>>,
    ) -> bool {
        let mut flights = lock(&self.flights);
        let is_under_way = flights.contains_key(&ask.key);
        // A flight may have ended between the look and now: its answer was kept before it ended.
        if !is_under_way
            && is_stored
            && let Some(page) = self.came_since(ask, waiter.as_ref(), seen)
        {
            drop(flights);
            if let Some(waiter) = waiter {
                self.stats.collapsed.add();
                (waiter.done)(Ok(Filled { page, is_kept: true }));
            }
            return true;
        }
        let flight = flights.entry(Arc::clone(&ask.key)).or_default();
        flight.is_stored |= is_stored;
        if is_under_way {
            self.stats.collapsed.more(u64::from(waiter.is_some()));
            flight.waiters.extend(waiter);
            return true;
        }
        flight.waiters.extend(waiter);
        drop(flights);
        if !(is_short && self.land_here(ask)) {
            self.take_off(Arc::clone(ask));
        }
        false
    }

    /// Runs the query of a flight in the caller's thread; whether that could be done.
    fn land_here(&self, ask: &Arc<Ask>) -> bool {
        let read = |database: &mut dyn Database| {
            fill::read(ask, database, &*self.parts.clock, self.random())
        };
        // After an error a thread tries it again.
        let Some(Ok(page)) = self.readers.try_here(read) else { return false };
        self.stats.fills.add();
        self.deliver(ask, Arc::new(page));
        true
    }

    /// Queues the query of a flight.
    fn take_off(&self, ask: Arc<Ask>) {
        let Some(this) = self.this.upgrade() else { return };
        let key = Arc::clone(&ask.key);
        let pushed = self.readers.push(Box::new(move |database| this.land(&ask, database)));
        if pushed.is_err() {
            self.stats.overloaded.add();
            self.fail(&key, &Fault::Busy("too many queries wait for the database"));
        }
    }

    fn fail(&self, key: &Arc<str>, fault: &Fault) {
        let flight = lock(&self.flights).remove(key);
        for waiter in flight.into_iter().flat_map(|flight| flight.waiters) {
            (waiter.done)(Err(fault.clone()));
        }
    }

    /// Runs the query of a flight and serves those who wait.
    fn land(&self, ask: &Arc<Ask>, database: Result<&mut dyn Database, DatabaseError>) -> Health {
        self.stats.fills.add();
        let read = match database {
            Ok(database) => {
                let read = fill::read(ask, database, &*self.parts.clock, self.random());
                if matches!(read, Err(DatabaseError::Lost(_))) {
                    // The connection may be an old one that broke long ago: a new one, once.
                    self.retry_or_fail(ask, read);
                    return Health::Broken;
                }
                read
            }
            Err(error) => Err(error),
        };
        match read {
            Ok(page) => self.deliver(ask, Arc::new(page)),
            Err(error) => {
                self.stats.fill_errors.add();
                self.fail(&ask.key, &Fault::Database(error));
            }
        }
        Health::Good
    }

    fn retry_or_fail(&self, ask: &Arc<Ask>, read: Result<Page, DatabaseError>) {
        let mut flights = lock(&self.flights);
        let may_retry = flights.get_mut(&ask.key).is_some_and(|flight| {
            flight.tries += 1;
            flight.tries == 1
        });
        drop(flights);
        if may_retry {
            return self.take_off(Arc::clone(ask));
        }
        self.stats.fill_errors.add();
        if let Err(error) = read {
            self.fail(&ask.key, &Fault::Database(error));
        }
    }

    fn deliver(&self, ask: &Arc<Ask>, page: Arc<Page>) {
        if matches!(ask.target, Target::One { .. }) {
            ask.served.paces.row.took(Duration::from_micros(page.cost_us.into()));
        }
        let versions = &ask.served.versions;
        if versions.saw(page.version) {
            tracing::debug!(table = ask.served.table.name, version = page.version, "changed");
        }
        // Whoever knows of a change that cannot touch the answer needs no other one.
        self.is_right(ask, &page);
        let is_stored = lock(&self.flights).get(&ask.key).is_some_and(|flight| flight.is_stored);
        let is_kept = is_stored && self.keep(ask, &page);
        let mut flights = lock(&self.flights);
        let Some(mut flight) = flights.remove(&ask.key) else { return };
        let waiters = std::mem::take(&mut flight.waiters);
        let (good, early): (Vec<Waiter>, Vec<Waiter>) =
            waiters.into_iter().partition(|waiter| waiter.need <= page.right_at());
        // Who came after the query had begun may need another one; who has seen several begin and
        // come too old knows more than the database does.
        let (lost, early): (Vec<Waiter>, Vec<Waiter>) =
            early.into_iter().partition(|waiter| waiter.tries >= REFILLS_MAX);
        let is_again = !early.is_empty();
        if is_again {
            let again = |waiter: Waiter| Waiter { tries: waiter.tries + 1, ..waiter };
            flight.waiters = early.into_iter().map(again).collect();
            flights.insert(Arc::clone(&ask.key), flight);
        }
        drop(flights);
        for waiter in good {
            (waiter.done)(Ok(Filled { page: Arc::clone(&page), is_kept }));
        }
        self.behind(ask, &page, lost);
        if is_again {
            self.stats.refills.add();
            self.take_off(Arc::clone(ask));
        }
    }

    /// For those who know of a version that the database does not have, after some tries.
    fn behind(&self, ask: &Arc<Ask>, page: &Arc<Page>, waiters: Vec<Waiter>) {
        let versions = &ask.served.versions;
        let current = versions.current();
        if waiters.iter().any(|waiter| waiter.need <= current) {
            let table = &ask.served.table.name;
            tracing::warn!(
                "table {table}: the database has gone back from version {current} to {}",
                page.version
            );
            versions.reset(page.version);
            self.purge(table);
        }
        for waiter in waiters {
            let is_told = waiter.need > current;
            let filled = Filled { page: Arc::clone(page), is_kept: false };
            (waiter.done)(if is_told { Err(Fault::Behind) } else { Ok(filled) });
        }
    }

    /// Whether an answer is worth its room.
    fn is_admitted(&self, ask: &Ask, page: &Page) -> bool {
        let caching = &ask.served.table.caching;
        if page.plain().len() as u64 > caching.body_bytes_max {
            self.stats.too_large.add();
            return false;
        }
        if u64::from(page.cost_us) >= caching.admit_us {
            return true;
        }
        use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&ask.key);
        let mut once = lock(&self.once);
        if once.remove(&hash) {
            return true;
        }
        if once.len() >= ONCE_MAX {
            once.clear();
        }
        once.insert(hash);
        self.stats.not_admitted.add();
        false
    }

    fn keep(&self, ask: &Ask, page: &Arc<Page>) -> bool {
        if page.right_at() != ask.served.versions.current() {
            self.stats.outrun.add();
            return false;
        }
        if !self.is_admitted(ask, page) {
            return false;
        }
        let is_kept = self.put(ask, page);
        self.stats.kept.more(u64::from(is_kept));
        is_kept
    }

    pub(super) fn put(&self, ask: &Ask, page: &Arc<Page>) -> bool {
        let caching = &ask.served.table.caching;
        let past_ms = caching.stale_ms.max(caching.stale_if_error_ms) as i64;
        let until_ms = page.filled_ms + i64::from(page.fresh_ms) + past_ms;
        let (shelf, now_ms) = (&self.parts.shelf, self.now_ms());
        if !self.has_compared(&ask.served, now_ms) {
            return false;
        }
        // First what tells whether the answer may be used after a restart.
        let newest = format!("{} {}", page.version, page.changed_us);
        let key = newest_key(&ask.served.table.name);
        let put = shelf.put(&key, newest.as_bytes(), now_ms + NEWEST_MS, now_ms);
        let put = put.and_then(|()| shelf.put(&ask.key, &page.encode(), until_ms, now_ms));
        match put {
            Ok(()) => self.hot.put(&ask.key, page),
            Err(_) => self.stats.shelf_errors.add(),
        }
        put.is_ok()
    }

    /// Compares a kept answer with the database.
    fn sample(&self, ask: &Arc<Ask>, page: &Arc<Page>) {
        let Some(this) = self.this.upgrade() else { return };
        let (ask, page) = (Arc::clone(ask), Arc::clone(page));
        self.readers.push_spare(Box::new(move |database| {
            let Ok(database) = database else { return Health::Good };
            let read = fill::read(&ask, database, &*this.parts.clock, 0);
            let health = Health::after(&read);
            let Ok(new) = read else { return health };
            ask.served.versions.saw(new.version);
            // It was right at all versions between.
            if (page.version..=page.right_at()).contains(&new.version) {
                this.stats.samples.add();
                if new.etag != page.etag {
                    this.stats.mismatches.add();
                    tracing::error!(key = &*ask.key, "a kept answer differs from the database");
                }
            }
            health
        }));
    }

    /// Removes all kept answers of a table; how many there were.
    pub fn purge(&self, table: &str) -> u64 {
        let prefix = prefix(table);
        self.hot.purge(&prefix);
        let purged = self.parts.shelf.purge(&prefix, self.now_ms()).unwrap_or_else(|_| {
            self.stats.shelf_errors.add();
            0
        });
        self.stats.purged.more(purged);
        purged
    }

    /// Looks for changes by others; `mark` is what [`Database::foreign_mark`] said before. An error
    /// says that the connection is of no more use.
    pub fn probe(
        &self,
        database: &mut dyn Database,
        mark: &mut Option<i64>,
    ) -> Result<(), DatabaseError> {
        let new_mark = database.foreign_mark()?;
        if new_mark.is_some() && new_mark == *mark {
            return Ok(());
        }
        for (name, version) in setup::versions(database)? {
            let Some(served) = self.find(&name) else { continue };
            if matches!(served.watch, Watch::Triggers(_)) && served.versions.saw(version) {
                self.stats.foreign_changes.add();
            }
        }
        *mark = new_mark;
        Ok(())
    }
}

fn allows(control: &Control, age_ms: i64, fresh_ms: i64) -> bool {
    let (age, fresh) = (age_ms as u64, fresh_ms.max(0) as u64);
    let stale = (-fresh_ms).max(0) as u64;
    !control.no_cache
        && control.max_age_ms.is_none_or(|most| age <= most && most > 0)
        && (control.min_fresh_ms == 0 || fresh >= control.min_fresh_ms)
        && control.max_stale_ms.is_none_or(|most| stale <= most)
}
