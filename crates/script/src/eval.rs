//! EVAL, EVALSHA, their read-only forms, and SCRIPT.

use std::sync::atomic::Ordering;

use commands::command::{
    ALLOW_BUSY, Command, Family, Flags as CommandFlags, Group, KeySpec, MAY_REPLICATE,
    NO_MANDATORY_KEYS, NO_SCRIPT, READONLY, RO, RW, SCRIPT, STALE, counted,
};
use commands::context::{Context, Script as Running};
use commands::error::Error;
use commands::help::HELP;
use commands::words::is;
use resp::{Args, number};

use crate::engines::{self, Engines, NoCode};
use crate::raw::run::{Failure, Job};
use crate::run::Run;
use crate::scripts::Scripts;
use crate::shebang::Flags;
use commands::sha1::from_hex;

const EVAL_FLAGS: CommandFlags = NO_SCRIPT.with(STALE).with(NO_MANDATORY_KEYS).with(SCRIPT);
const KEYS: &[KeySpec] = &[counted(2, RW)];
const KEYS_RO: &[KeySpec] = &[counted(2, RO)];

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Scripting,
    commands: &[
        Command {
            name: "EVAL",
            run: eval,
            flags: EVAL_FLAGS.with(MAY_REPLICATE),
            keys: KEYS,
            usage: "script numkeys [key [key ...]] [arg [arg ...]]",
            summary: "Runs a script.",
            complexity: "Depends on the script",
            since: "2.6.0",
            ..Command::DEFAULT
        },
        Command {
            name: "EVALSHA",
            run: evalsha,
            flags: EVAL_FLAGS.with(MAY_REPLICATE),
            keys: KEYS,
            usage: "sha1 numkeys [key [key ...]] [arg [arg ...]]",
            summary: "Runs a script that the server knows, by its digest.",
            complexity: "Depends on the script",
            since: "2.6.0",
            ..Command::DEFAULT
        },
        Command {
            name: "EVAL_RO",
            run: eval_ro,
            flags: EVAL_FLAGS.with(READONLY),
            keys: KEYS_RO,
            usage: "script numkeys [key [key ...]] [arg [arg ...]]",
            summary: "Runs a script that changes nothing.",
            complexity: "Depends on the script",
            since: "7.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "EVALSHA_RO",
            run: evalsha_ro,
            flags: EVAL_FLAGS.with(READONLY),
            keys: KEYS_RO,
            usage: "sha1 numkeys [key [key ...]] [arg [arg ...]]",
            summary: "Runs a script that the server knows and that changes nothing.",
            complexity: "Depends on the script",
            since: "7.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "SCRIPT",
            summary: "Manages the scripts that the server knows.",
            complexity: "Depends on the subcommand",
            since: "2.6.0",
            sub: SUBCOMMANDS,
            ..Command::DEFAULT
        },
    ],
};

const SUBCOMMANDS: &[Command] = &[
    Command {
        name: "LOAD",
        run: script_load,
        flags: NO_SCRIPT.with(STALE),
        usage: "script",
        summary: "Keeps a script, so that EVALSHA can run it; its digest.",
        complexity: "O(N), N = the script's length",
        since: "2.6.0",
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        ..Command::DEFAULT
    },
    Command {
        name: "EXISTS",
        run: script_exists,
        flags: NO_SCRIPT,
        usage: "sha1 [sha1 ...]",
        summary: "Says which scripts the server knows.",
        complexity: "O(N), N = digests",
        since: "2.6.0",
        tips: &["request_policy:all_shards", "response_policy:agg_logical_and"],
        ..Command::DEFAULT
    },
    Command {
        name: "FLUSH",
        run: script_flush,
        flags: NO_SCRIPT,
        usage: "[ASYNC | SYNC]",
        summary: "Forgets all scripts.",
        complexity: "O(N), N = scripts",
        since: "2.6.0",
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        ..Command::DEFAULT
    },
    Command {
        name: "KILL",
        run: script_kill,
        flags: NO_SCRIPT.with(ALLOW_BUSY),
        summary: "Ends the script that runs, if it has not changed anything.",
        since: "2.6.0",
        tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
        ..Command::DEFAULT
    },
    Command {
        name: "SHOW",
        run: script_show,
        flags: NO_SCRIPT,
        usage: "sha1",
        summary: "Shows the source of a script.",
        since: "8.0.0",
        ..Command::DEFAULT
    },
    Command {
        name: "DEBUG",
        run: script_debug,
        flags: NO_SCRIPT,
        usage: "<YES | SYNC | NO>",
        summary: "Turns the debugger off; there is none to turn on.",
        since: "3.2.0",
        ..Command::DEFAULT
    },
    Command { since: "5.0.0", ..HELP },
];

/// The text of an error that has no code of its own.
pub(crate) fn generic(text: &str) -> Error {
    Error::new(format!("ERR {text}"))
}

/// The number of keys among the words, with the texts that EVAL and FCALL share.
pub(crate) fn key_count(args: Args<'_>, not_a_number: Error) -> Result<usize, Error> {
    let count = number::integer(args.word(2)).ok_or(not_a_number)?;
    if count > args.len() as i64 - 3 {
        const MANY: &str = "ERR Number of keys can't be greater than number of args";
        return Err(Error::text(MANY));
    }
    usize::try_from(count).map_err(|_| Error::text("ERR Number of keys can't be negative"))
}

/// Whether a script or function with these flags may run now; what it may do then.
pub(crate) fn prepare(run: &mut Run<'_, '_>, flags: Flags, is_ro: bool) -> Result<(), Error> {
    let is_short = run.cx.host.is_memory_short();
    let is_compatible = flags.has(Flags::COMPATIBLE);
    if !is_compatible {
        if is_ro && !flags.has(Flags::NO_WRITES) {
            const TEXT: &str = "ERR Can not execute a script with write flag using *_ro command.";
            return Err(Error::text(TEXT));
        }
        if !flags.has(Flags::NO_WRITES)
            && let Some(refusal) = run.cx.host.write_refusal()
        {
            return Err(refusal.script);
        }
        if is_short && !flags.has(Flags::ALLOW_OOM) && !flags.has(Flags::NO_WRITES) {
            return Err(Error::text(
                "OOM allow-oom flag is not set on the script, can not run it when used memory > \
                 'maxmemory'",
            ));
        }
    }
    run.is_read_only = is_ro || !is_compatible && flags.has(Flags::NO_WRITES);
    run.is_memory_short = is_short && (is_compatible || !flags.has(Flags::ALLOW_OOM));
    Ok(())
}

/// Runs a prepared script or function, again if others hold what it needs: the session acts as
/// inside EXEC meanwhile. The reply is written, or `Err` is it.
pub(crate) fn perform(
    run: &mut Run<'_, '_>,
    mut act: impl FnMut(&mut Run<'_, '_>) -> Result<(), Failure>,
) -> Result<(), Error> {
    let session = &mut *run.cx.session;
    let (db, in_exec, resp3) = (session.db, session.in_exec, session.resp3);
    let mark = run.cx.out.bytes().len();
    run.cx.begin_script();
    let result = loop {
        run.cx.session.in_exec = true;
        let result = act(run);
        let session = &mut *run.cx.session;
        (session.db, session.in_exec, session.resp3) = (db, in_exec, resp3);
        run.cx.keys.select(db);
        if result.is_err() {
            run.cx.out.truncate(mark);
        }
        if !run.begin_again() {
            break result;
        }
    };
    run.cx.end_script();
    match result {
        Ok(()) => returned_error(run, mark),
        Err(failure) if failure.is_counted => Err(Error::new(failure.text).counted()),
        Err(failure) => Err(Error::new(failure.text)),
    }
}

/// An error that the script returned is one of its command.
fn returned_error(run: &mut Run<'_, '_>, mark: usize) -> Result<(), Error> {
    let reply = &run.cx.out.bytes()[mark..];
    if reply.first() != Some(&b'-') {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&reply[1..reply.len() - 2]).into_owned();
    run.cx.out.truncate(mark);
    let error = Error::new(text);
    Err(if run.returns_counted { error.counted() } else { error })
}

fn eval(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    eval_either(cx, args, Named::Body, false)
}

fn eval_ro(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    eval_either(cx, args, Named::Body, true)
}

fn evalsha(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    eval_either(cx, args, Named::Digest, false)
}

fn evalsha_ro(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    eval_either(cx, args, Named::Digest, true)
}

/// How a script is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    Body,
    Digest,
}

fn eval_either(
    cx: &mut Context<'_>,
    args: Args<'_>,
    named: Named,
    is_ro: bool,
) -> Result<(), Error> {
    let key_count = key_count(args, Error::NOT_AN_INTEGER)?;
    let scripts: &Scripts = cx.core.registry.state();
    engines::with(scripts, |engines| {
        let now_ms = cx.keys.now_ms();
        let found = match named {
            Named::Body => engines.by_body(scripts, args.word(1), now_ms),
            Named::Digest => engines.by_hex(scripts, args.word(1), now_ms),
        };
        let found = found.map_err(|error| match error {
            NoCode::Unknown => NO_SCRIPT_ERROR,
            NoCode::Wrong(text) => generic(&text),
        })?;
        let limit = cx.host.script_memory_max();
        let job = Job { reference: found.reference, words: args, key_count };
        let out = std::mem::take(engines.spare());
        let mut run = Run::new(cx, out, &found.hex, args);
        let result = prepare(&mut run, found.flags, is_ro)
            .and_then(|()| perform(&mut run, |run| engines.run_script(run, &job, limit)));
        *engines.spare() = run.end();
        result
    })
}

const NO_SCRIPT_ERROR: Error = Error::text("NOSCRIPT No matching script. Please use EVAL.");

fn script_load(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let scripts: &Scripts = cx.core.registry.state();
    let now_ms = cx.keys.now_ms();
    let found = engines::with(scripts, |engines: &mut Engines| {
        engines.by_body(scripts, args.word(2), now_ms)
    });
    match found {
        Ok(found) => {
            let digest = from_hex(&found.hex).unwrap_or_default();
            if let Some(script) = scripts.get(&digest) {
                script.is_loaded.store(true, Ordering::Relaxed);
            }
            cx.out.bulk(&found.hex);
            Ok(())
        }
        Err(NoCode::Wrong(text)) => Err(generic(&text)),
        Err(NoCode::Unknown) => Err(NO_SCRIPT_ERROR),
    }
}

fn script_exists(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let scripts: &Scripts = cx.core.registry.state();
    cx.out.array(args.len() - 2);
    for word in args.from(2).iter() {
        let is_known = from_hex(word).is_some_and(|digest| scripts.get(&digest).is_some());
        cx.out.flag(is_known);
    }
    Ok(())
}

fn script_show(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let scripts: &Scripts = cx.core.registry.state();
    let script = from_hex(args.word(2)).and_then(|digest| scripts.get(&digest));
    cx.out.bulk(&script.ok_or(NO_SCRIPT_ERROR)?.body);
    Ok(())
}

fn script_flush(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let is_mode = |word| is(word, "ASYNC") || is(word, "SYNC");
    if args.len() > 3 || args.get(2).is_some_and(|word| !is_mode(word)) {
        return Err(Error::text("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    cx.core.registry.state::<Scripts>().flush();
    cx.out.ok();
    Ok(())
}

fn script_debug(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    match args.word(2) {
        word if is(word, "NO") => {
            cx.out.ok();
            Ok(())
        }
        word if is(word, "YES") || is(word, "SYNC") => {
            Err(Error::text("ERR there is no debugger for scripts in this server"))
        }
        _ => Err(Error::text("ERR Use SCRIPT DEBUG YES/SYNC/NO")),
    }
}

fn script_kill(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    kill(cx, true)
}

const UNKILLABLE: &str = "UNKILLABLE Sorry the script already executed write commands against the \
                          dataset. You can either wait the script termination or kill the server \
                          in a hard way using the SHUTDOWN NOSAVE command.";

/// Ends the scripts (`is_eval`) or functions that run and have not changed anything.
pub(crate) fn kill(cx: &mut Context<'_>, is_eval: bool) -> Result<(), Error> {
    let running = cx.core.registry.state::<Scripts>().running();
    if running.is_empty() {
        return Err(Error::text("NOTBUSY No scripts in execution right now."));
    }
    let has_written = |script: &Running| script.has_written.load(Ordering::Relaxed);
    if running.iter().all(|script| has_written(script)) {
        return Err(Error::text(UNKILLABLE));
    }
    let wanted: Vec<_> = running.iter().filter(|script| script.is_eval == is_eval).collect();
    if wanted.is_empty() {
        let other = if is_eval { "FUNCTION KILL" } else { "SCRIPT KILL" };
        return Err(Error::new(format!(
            "BUSY Redis is busy running a script. You can only call {other} or SHUTDOWN NOSAVE."
        )));
    }
    if wanted.iter().all(|script| has_written(script)) {
        return Err(Error::text(UNKILLABLE));
    }
    for script in wanted.into_iter().filter(|script| !has_written(script)) {
        script.must_end.store(true, Ordering::Relaxed);
    }
    cx.out.ok();
    Ok(())
}
