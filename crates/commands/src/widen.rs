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
    log: Mark,
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
            log: self.log.mark(),
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
        }
        self.keys.rewrite_to_nothing();
        self.keys.keep_changes();
        self.log.close();
    }
}
