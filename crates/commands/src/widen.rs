//! Locks for scripts: the keys that a script touches are known for certain only as it runs.
//!
//! ```text
//! start: locks of the declared keys, changes are recorded
//!   a command's shards are held, or free to be taken  -> go on
//!   they are not free                                 -> undo, lock all that was wanted, run again
//!   the command cannot be undone at little cost       -> take the widener, go on
//!   the widener is taken                              -> undo, wait for it, run again
//! with the widener: wait for any lock; others make way; nothing has to be undone any more
//! ```
//!
//! **Invariant:** a script that holds locks and has done something waits for a lock only with the
//! widener, and there is one of those: nobody waits in a circle. A script either runs to its end on
//! keys that nobody else touches meanwhile, or leaves nothing behind and runs again.
//! **Invariant:** a script without the widener has changed only what is recorded.

use std::time::{Duration, Instant};

use keyspace::hasher::hash;
use keyspace::keyspace::shard_of;
use keyspace::raw::shards::{ShardSet, Widener};
use resp::{Args, Writer};

use crate::command::{PUBSUB, VISITS_ALL, WRITE};
use crate::context::Context;
use crate::engine::{call_inside, locks_of};
use crate::log::Mark;
use crate::registry::{Entry, each_key};

/// After this many runs the script takes the widener from the start.
const RUNS_MAX: u32 = 4;

/// A script that runs.
pub struct ScriptLocks<'a> {
    widener: Option<Widener<'a>>,
    /// Every shard is held.
    holds_all: bool,
    /// Shards that the next run shall start with.
    wanted: ShardSet,
    wants_widener: bool,
    /// A command of it could not have its locks.
    must_run_again: bool,
    log: Mark,
    /// Commands for the end that were there when it began.
    late: usize,
    runs: u32,
}

/// The script cannot go on: end it, whatever it does to catch errors, and call
/// [`Context::again`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Again;

impl<'a> Context<'a> {
    /// Begins a script. Its declared keys are locked already.
    pub fn begin_script(&mut self) {
        let is_single = self.keys.space().runners() == 1;
        let widener = if is_single { self.keys.try_widener() } else { None };
        let holds_all = self.keys.held().has_all(&ShardSet::ALL);
        self.log.open();
        if widener.is_none() && !holds_all {
            self.keys.record();
        }
        self.script = Some(ScriptLocks {
            widener,
            holds_all,
            wanted: ShardSet::default(),
            wants_widener: false,
            must_run_again: false,
            log: self.log.mark(),
            late: self.late.len(),
            runs: 1,
        });
    }

    /// Makes sure that a command may run inside the script: its shards are held, and it can be
    /// undone or need not be.
    pub fn prepare(&mut self, entry: &Entry, args: Args<'_>) -> Result<(), Again> {
        let Some(script) = &mut self.script else { return Ok(()) };
        let may_do_all = script.widener.is_some() || script.holds_all;
        if may_do_all && entry.one_key && self.keys.held().has(shard_of(hash(args.word(1)))) {
            return Ok(());
        }
        let mut set = ShardSet::default();
        locks_of(entry, args, &mut set);
        if entry.command.flags.has(VISITS_ALL) {
            set = ShardSet::ALL;
        }
        let held = self.keys.held();
        if !held.has_all(&set) {
            match &script.widener {
                Some(widener) => held.extend(&set, widener),
                None if held.try_extend(&set) => {}
                None => {
                    script.wanted = held.set();
                    script.wanted.union(&set);
                    return Err(Again);
                }
            }
            self.keys.after_locking();
        }
        if script.holds_all || script.widener.is_some() || self.can_undo(entry, args) {
            return Ok(());
        }
        let widener = self.keys.try_widener();
        let Some(script) = &mut self.script else { return Ok(()) };
        script.wants_widener = widener.is_none();
        script.wanted = self.keys.held().set();
        script.widener = widener;
        if script.wants_widener {
            return Err(Again);
        }
        self.keys.keep_changes();
        Ok(())
    }

    /// As [`Context::prepare`], for a command inside a command: the script, if there is one, learns
    /// that it must run again.
    ///
    /// # Errors
    /// [`Again`]: the command around it must end with an error.
    pub fn prepare_inner(&mut self, entry: &Entry, args: Args<'_>) -> Result<(), Again> {
        self.prepare(entry, args).inspect_err(|Again| self.note_again())
    }

    /// Takes the locks of `set` besides those held, for a command that learns what it needs as it
    /// runs. Outside of scripts it waits at most so long for the widener.
    ///
    /// # Errors
    /// [`Again`]: the command must end with an error, and may be tried again. A script that runs it
    /// is.
    pub fn take_more(&mut self, set: &ShardSet, wait: Duration) -> Result<(), Again> {
        let held = self.keys.held();
        if held.has_all(set) {
            return Ok(());
        }
        if let Some(script) = &mut self.script {
            match &script.widener {
                Some(widener) => held.extend(set, widener),
                None if held.try_extend(set) => {}
                None => {
                    script.wanted = held.set();
                    script.wanted.union(set);
                    self.note_again();
                    return Err(Again);
                }
            }
            self.keys.after_locking();
            return Ok(());
        }
        let until = Instant::now() + wait;
        while !self.keys.held().try_extend(set) {
            // Others may wait for what is held here: only with the widener do they make way.
            if let Some(widener) = self.keys.try_widener() {
                self.keys.held().extend(set, &widener);
                break;
            }
            if Instant::now() >= until {
                return Err(Again);
            }
            std::thread::yield_now();
        }
        self.keys.after_locking();
        Ok(())
    }

    fn note_again(&mut self) {
        if let Some(script) = &mut self.script {
            script.must_run_again = true;
        }
    }

    /// Whether the script that runs must run again, because of locks that a command of it needs.
    pub fn must_run_again(&self) -> bool {
        self.script.as_ref().is_some_and(|script| script.must_run_again)
    }

    /// Runs what was left for the end of the transaction or script, which is whole now.
    pub fn run_late(&mut self) {
        let core = self.core;
        for words in std::mem::take(&mut self.late) {
            let args = words.args();
            if let Ok(entry) = core.registry.named(args) {
                self.run_in_script(entry, args, &mut Writer::new(false));
            }
        }
    }

    /// Whether what the command will do can be taken back at little cost.
    fn can_undo(&self, entry: &Entry, args: Args<'_>) -> bool {
        let flags = entry.command.flags;
        if flags.has(PUBSUB) {
            return false;
        }
        if !flags.has(WRITE) {
            return true;
        }
        let (mut keys, mut small) = (0, true);
        let _ = each_key(&entry.command, args, |index, _| {
            keys += 1;
            small &= self.keys.is_undoable(args.word(index));
        });
        keys > 0 && small
    }

    /// Runs one command of the script, for which [`Context::prepare`] made ready; its reply goes to
    /// `out`. True if it failed.
    pub fn run_in_script(&mut self, entry: &'a Entry, args: Args<'_>, out: &mut Writer) -> bool {
        std::mem::swap(self.out, out);
        let was = self.entry;
        let failed = call_inside(self, entry, args);
        self.entry = was;
        std::mem::swap(self.out, out);
        failed
    }

    /// Takes back what the script did and makes ready to run it again, with the locks it wanted.
    pub fn again(&mut self) {
        let Some(mut script) = self.script.take() else { return };
        self.end_unit(false);
        self.keys.undo();
        self.log.back_to(script.log);
        self.late.truncate(script.late);
        script.must_run_again = false;
        script.runs += 1;
        let wait = script.wants_widener || script.runs > RUNS_MAX;
        script.widener = self.keys.relock(&script.wanted, wait);
        script.wants_widener = false;
        if script.widener.is_none() {
            self.keys.record();
        }
        self.script = Some(script);
    }

    /// Ends what takes part besides the keys.
    fn end_unit(&mut self, keep: bool) {
        let unit = std::mem::take(&mut self.session.unit);
        unit.into_iter().for_each(|participant| participant.end(keep));
    }

    /// Ends the script: what it did stays, and is in the log by its commands.
    pub fn end_script(&mut self) {
        self.script = None;
        if !self.session.in_exec {
            self.end_unit(true);
            self.run_late();
        }
        self.keys.rewrite_to_nothing();
        self.keys.keep_changes();
        self.log.close();
    }
}
