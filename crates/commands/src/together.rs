//! Commands that run together: those of a pipeline that have one key and are cheaper together, and
//! transactions that are all or nothing.
//!
//! **Invariant:** a transaction with a command that is `ATOMIC` has happened whole or not at all,
//! in the keys, in what takes part besides them, and in the log.

use keyspace::hasher::hash;
use keyspace::keys::Keys;
use keyspace::keyspace::shard_of;
use keyspace::raw::shards::ShardSet;
use resp::{Args, OwnedArgs, Requests, Writer};

use crate::command::Pipeline;
use crate::context::{Context, Session};
use crate::engine::{BATCH, Locks, Turn, call, finish};
use crate::registry::{Entry, each_key};

/// Whether the first word of a call is its only key.
fn has_one_key(entry: &Entry, args: Args<'_>) -> bool {
    let mut count = 0;
    entry.one_key || each_key(&entry.command, args, |_, _| count += 1).is_ok() && count == 1
}

impl<'a> Turn<'a> {
    /// Runs commands from `first` (`entry`) on that have one key, the same, and one function for
    /// all of them together; returns how many.
    pub(crate) fn run_alike(
        &mut self,
        session: &mut Session,
        out: &mut Writer,
        requests: &Requests,
        input: &[u8],
        first: usize,
        entry: &'a Entry,
    ) -> usize {
        let core = self.core;
        let head = requests.command(first, input);
        let group = entry.group;
        let Some(run_many) = entry.command.run_many else { return 0 };
        if !has_one_key(entry, head) || !self.host.allows_batch(session) {
            return 0;
        }
        let mut entries = [entry; BATCH];
        let mut count = 1;
        while count < BATCH && first + count < requests.len() {
            let args = requests.command(first + count, input);
            let is_same = args.len() == head.len() && args.word(0) == head.word(0);
            let found = if is_same { Ok(entry) } else { core.registry.find(args) };
            let Ok(found) = found else { break };
            let is_alike = found.group == group && found.command.run_many.is_some();
            let has_one = is_same && entry.one_key || has_one_key(found, args);
            if !is_alike || args.word(1) != head.word(1) || !has_one {
                break;
            }
            entries[count] = found;
            count += 1;
        }
        if count < 2 {
            return 0;
        }
        let keys = self.keys(&Locks::One(shard_of(hash(head.word(1)))));
        let mut cx = Context::new(keys, out, session, &mut *self.host, core, entry);
        cx.keys.select(cx.session.db);
        cx.keys.touch = !cx.session.no_touch;
        let entries = &entries[..count];
        let (count, failed) = run_many(&mut cx, &Pipeline { entries, requests, input, first });
        cx.host.batch_ran(cx.session, &entries[..count], failed);
        let deferred = finish(&mut cx);
        drop(cx);
        self.after(session, out, deferred);
        count
    }

    /// Looks at a database of keys with every shard held for the moment.
    pub fn with_all_keys<T>(&mut self, db: usize, look: impl FnOnce(&Keys<'_>) -> T) -> T {
        let mut keys = self.keys(&Locks::Set(ShardSet::ALL));
        keys.select(db);
        look(&keys)
    }

    /// Runs something for a key in the client's place, with its shard locked, as a command would:
    /// what it changes is logged and announced, and wakes whom it makes ready.
    pub fn with_keys(
        &mut self,
        session: &mut Session,
        out: &mut Writer,
        keys: &[&[u8]],
        run: impl FnOnce(&mut Context<'_>),
    ) {
        let mut set = ShardSet::default();
        keys.iter().for_each(|key| set.add(shard_of(hash(key))));
        let keys = self.keys(&Locks::Set(set));
        let (core, host) = (self.core, &mut *self.host);
        let mut cx = Context::new(keys, out, session, host, core, &core.registry.entries()[0]);
        cx.keys.select(cx.session.db);
        run(&mut cx);
        let deferred = finish(&mut cx);
        drop(cx);
        self.after(session, out, deferred);
    }
}

/// Runs the commands of a transaction that is all or nothing: the first error undoes it.
pub(crate) fn run_atomic<'a>(cx: &mut Context<'a>, queue: &[(usize, OwnedArgs)]) {
    let (core, start, log, db) = (cx.core, cx.out.bytes().len(), cx.log.mark(), cx.session.db);
    cx.out.array(queue.len());
    cx.keys.record();
    let mut failed = false;
    for (index, owned) in queue {
        let reply = cx.out.bytes().len();
        failed = call(cx, &core.registry.entries()[*index], owned.args());
        if failed {
            let text = String::from_utf8_lossy(&cx.out.bytes()[reply + 1..]).trim().to_string();
            cx.out.truncate(start);
            cx.out.error(&format!("EXECABORT Transaction undone because of: {text}"));
            break;
        }
    }
    let mut unit = std::mem::take(&mut cx.session.unit);
    let refused = unit.iter_mut().find_map(|participant| participant.prepare().err());
    if let (Some(text), false) = (&refused, failed) {
        cx.out.truncate(start);
        cx.out.error(&format!("EXECABORT Transaction undone because of: {text}"));
    }
    let keep = !failed && refused.is_none();
    if keep {
        cx.keys.keep_changes();
    } else {
        cx.keys.undo();
        cx.log.back_to(log);
        cx.session.db = db;
        cx.late.clear();
    }
    unit.into_iter().for_each(|participant| participant.end(keep));
    cx.run_late();
}
