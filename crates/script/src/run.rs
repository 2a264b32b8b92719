//! One run of a script or function: what its `redis.call` may do, and how it ends.
//!
//! **Invariant:** a script that must run again ([`Abort::Again`]) has had no effect outside of its
//! keys so far: the reply of the client is written at the end only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use commands::command::{DENY_OOM, MAY_REPLICATE, NO_SCRIPT, WRITE};
use commands::context::{Context, Script, Tick};
use commands::error::Error;
use commands::registry::Entry;
use resp::{Args, Writer};

use crate::scripts::Scripts;

/// What became of a command that a script called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Called {
    /// It ran: its reply, maybe an error, is there.
    Replied,
    /// It may not run: `message` says why.
    Refused,
    /// The script must end at once.
    Aborted,
}

/// Why a script ends before its time, whatever it catches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abort {
    /// SCRIPT KILL or FUNCTION KILL.
    Killed,
    /// It needs locks that it cannot have without giving back what it holds: it is undone and runs
    /// again ([`commands::widen`]).
    Again,
}

/// See the module.
pub struct Run<'r, 'c> {
    /// The handler's own.
    pub cx: &'r mut Context<'c>,
    /// The replies of the script's commands.
    pub out: Writer,
    /// The script's digest or the function's name.
    pub name: &'r [u8],
    /// The command that runs it.
    pub words: Args<'r>,
    /// Whether it is a script, not a function.
    pub is_eval: bool,
    /// No command that writes may be called.
    pub is_read_only: bool,
    /// Commands that take memory are refused.
    pub is_memory_short: bool,
    /// A command that writes has been called.
    pub has_written: bool,
    /// Which protocol's types the script wants.
    pub resp3: bool,
    /// The error that the script returns comes from its command, which has counted it.
    pub returns_counted: bool,
    /// The script's value is the reply of its last command, as it stands in `out`.
    pub gives_reply: bool,
    /// Why a command was refused.
    pub message: String,
    abort: Option<Abort>,
    ticking: Option<Arc<Script>>,
}

impl<'r, 'c> Run<'r, 'c> {
    /// A run that begins; `out` takes the replies of the script's commands.
    pub fn new(cx: &'r mut Context<'c>, out: Writer, name: &'r [u8], words: Args<'r>) -> Self {
        Run {
            cx,
            out,
            name,
            words,
            is_eval: true,
            is_read_only: false,
            is_memory_short: false,
            has_written: false,
            resp3: false,
            returns_counted: false,
            gives_reply: false,
            message: String::new(),
            abort: None,
            ticking: None,
        }
    }

    /// Makes ready to run again from the start; false if nothing asks for that.
    pub fn begin_again(&mut self) -> bool {
        if self.abort != Some(Abort::Again) {
            return false;
        }
        self.abort = None;
        self.has_written = false;
        self.resp3 = false;
        self.returns_counted = false;
        self.gives_reply = false;
        self.cx.again();
        true
    }

    /// The run is over; what took the commands' replies, to be used again.
    pub fn end(mut self) -> Writer {
        if let Some(script) = self.ticking.take() {
            self.cx.core.registry.state::<Scripts>().stopped(&script);
            self.cx.host.script_ended(&script);
        }
        self.out.clear();
        self.out
    }

    /// Whether the script is being ended.
    #[inline]
    pub fn is_aborted(&self) -> bool {
        self.abort.is_some()
    }

    fn refuse(&mut self, text: &str) -> Called {
        self.message.clear();
        self.message.push_str(text);
        Called::Refused
    }

    /// Runs a command for the script.
    pub fn call(&mut self, args: Args<'_>) -> Called {
        if self.is_aborted() {
            return Called::Aborted;
        }
        let core = self.cx.core;
        let Ok(entry) = core.registry.named(args) else {
            return self.refuse("ERR Unknown Redis command called from script");
        };
        if !entry.takes(args.len()) {
            return self.refuse("ERR Wrong number of args calling Redis command from script");
        }
        if let Err(error) = self.check(entry, args) {
            self.cx.host.error(&error);
            self.cx.host.reject(entry);
            return self.refuse(error.message());
        }
        if self.cx.prepare(entry, args).is_err() {
            self.abort = Some(Abort::Again);
            return Called::Aborted;
        }
        if entry.command.flags.has(WRITE) {
            self.note_write();
        }
        self.out.clear();
        self.out.set_resp3(self.resp3);
        self.cx.run_in_script(entry, args, &mut self.out);
        if self.cx.must_run_again() {
            self.abort = Some(Abort::Again);
            return Called::Aborted;
        }
        Called::Replied
    }

    fn check(&mut self, entry: &Entry, args: Args<'_>) -> Result<(), Error> {
        let flags = entry.command.flags;
        if flags.has(NO_SCRIPT) {
            return Err(Error::text("ERR This Redis command is not allowed from script"));
        }
        self.cx.host.admit_inside(self.cx.session, entry, args)?;
        if self.is_read_only && (flags.has(WRITE) || flags.has(MAY_REPLICATE)) {
            const TEXT: &str = "ERR Write commands are not allowed from read-only scripts.";
            return Err(Error::text(TEXT));
        }
        if flags.has(WRITE)
            && !self.has_written
            && let Some(refusal) = self.cx.host.write_refusal()
        {
            return Err(refusal.command);
        }
        if self.is_memory_short && !self.has_written && flags.has(DENY_OOM) {
            return Err(Error::text("OOM command not allowed when used memory > 'maxmemory'."));
        }
        Ok(())
    }

    fn note_write(&mut self) {
        self.has_written = true;
        if let Some(script) = &self.ticking {
            script.has_written.store(true, Ordering::Relaxed);
        }
    }

    /// The reply of the last command; `scratch` is used if it is in pieces.
    pub fn reply<'b>(&'b self, scratch: &'b mut Vec<u8>) -> &'b [u8] {
        if !self.out.has_shared() {
            return self.out.bytes();
        }
        scratch.clear();
        self.out.pieces().for_each(|piece| scratch.extend_from_slice(piece));
        scratch
    }

    /// Whether the client's rights allow this command; `None` if there is no such command.
    pub fn may_call(&mut self, args: Args<'_>) -> Option<bool> {
        let entry = self.cx.core.registry.named(args).ok()?;
        Some(self.cx.host.admit_inside(self.cx.session, entry, args).is_ok())
    }

    /// Called from time to time while the script runs; whether it must end.
    pub fn must_end(&mut self) -> bool {
        if self.is_aborted() {
            return true;
        }
        let script = match &self.ticking {
            Some(script) => Arc::clone(script),
            None => {
                let script = Arc::new(self.description());
                self.cx.core.registry.state::<Scripts>().started(&script);
                self.ticking = Some(Arc::clone(&script));
                script
            }
        };
        let ends = match self.cx.host.script_tick(&script) {
            Tick::GoOn => false,
            Tick::End => !self.has_written,
            Tick::EndNow => true,
        };
        if ends {
            self.abort = Some(Abort::Killed);
        }
        self.is_aborted()
    }

    fn description(&self) -> Script {
        Script {
            name: String::from_utf8_lossy(self.name).into_owned(),
            is_eval: self.is_eval,
            command: self.words.iter().map(<[u8]>::to_vec).collect(),
            started_ms: self.cx.keys.now_ms(),
            is_busy: AtomicBool::new(false),
            has_written: AtomicBool::new(self.has_written),
            must_end: AtomicBool::new(false),
            ran_ms: AtomicI64::new(0),
        }
    }
}
