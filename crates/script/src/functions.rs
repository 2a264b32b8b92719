//! FCALL, FCALL_RO and FUNCTION.
//!
//! Commands that change the libraries take every lock and are logged as they came: the log has them
//! in their place among the writes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use commands::command::{
    ALL_KEYS, ALLOW_BUSY, Command, DENY_OOM, Family, Flags as CommandFlags, Group, KeySpec,
    MAY_REPLICATE, NO_MANDATORY_KEYS, NO_SCRIPT, READONLY, RO, RW, SCRIPT, STALE, WRITE, counted,
};
use commands::context::{Context, Host};
use commands::error::Error;
use commands::help::HELP;
use commands::pattern::matches;
use commands::registry::Registry;
use commands::words::is;
use resp::Args;

use crate::dump;
use crate::engines::{self, Engines, NoCode};
use crate::eval::{generic, key_count, kill, perform, prepare};
use crate::libraries::{Function, Library, Set};
use crate::raw::library::{BAD_NAME, is_name};
use crate::raw::run::Job;
use crate::run::Run;
use crate::scripts::Scripts;
use crate::shebang::{self, Flags, Header};

const FCALL_FLAGS: CommandFlags = NO_SCRIPT.with(STALE).with(NO_MANDATORY_KEYS).with(SCRIPT);
const CHANGES: CommandFlags = NO_SCRIPT.with(WRITE).with(ALL_KEYS);
const KEYS: &[KeySpec] = &[counted(2, RW)];
const KEYS_RO: &[KeySpec] = &[counted(2, RO)];
const TO_ALL: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Scripting,
    commands: &[
        Command {
            name: "FCALL",
            run: fcall,
            flags: FCALL_FLAGS.with(MAY_REPLICATE),
            keys: KEYS,
            usage: "function numkeys [key [key ...]] [arg [arg ...]]",
            summary: "Runs a function.",
            complexity: "Depends on the function",
            since: "7.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "FCALL_RO",
            run: fcall_ro,
            flags: FCALL_FLAGS.with(READONLY),
            keys: KEYS_RO,
            usage: "function numkeys [key [key ...]] [arg [arg ...]]",
            summary: "Runs a function that changes nothing.",
            complexity: "Depends on the function",
            since: "7.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "FUNCTION",
            summary: "Manages libraries of functions.",
            complexity: "Depends on the subcommand",
            since: "7.0.0",
            sub: SUBCOMMANDS,
            ..Command::DEFAULT
        },
    ],
};

const ROW: Command = Command { since: "7.0.0", ..Command::DEFAULT };

const SUBCOMMANDS: &[Command] = &[
    Command {
        name: "LOAD",
        run: load,
        flags: CHANGES.with(DENY_OOM),
        usage: "[REPLACE] function-code",
        summary: "Adds a library; its name.",
        complexity: "O(N), N = the library's length",
        tips: TO_ALL,
        ..ROW
    },
    Command {
        name: "DELETE",
        run: delete,
        flags: CHANGES,
        usage: "library-name",
        summary: "Removes a library and its functions.",
        tips: TO_ALL,
        ..ROW
    },
    Command {
        name: "FLUSH",
        run: flush,
        flags: CHANGES,
        usage: "[ASYNC | SYNC]",
        summary: "Removes all libraries.",
        complexity: "O(N), N = libraries",
        tips: TO_ALL,
        ..ROW
    },
    Command {
        name: "LIST",
        run: list,
        flags: NO_SCRIPT,
        usage: "[LIBRARYNAME library-name-pattern] [WITHCODE]",
        summary: "Lists libraries and their functions.",
        complexity: "O(N), N = functions",
        tips: &["nondeterministic_output_order"],
        ..ROW
    },
    Command {
        name: "DUMP",
        run: dump_all,
        flags: NO_SCRIPT,
        summary: "All libraries as one value, for FUNCTION RESTORE.",
        complexity: "O(N), N = libraries",
        ..ROW
    },
    Command {
        name: "RESTORE",
        run: restore,
        flags: CHANGES.with(DENY_OOM),
        usage: "serialized-value [FLUSH | APPEND | REPLACE]",
        summary: "Adds the libraries that FUNCTION DUMP gave.",
        complexity: "O(N), N = libraries",
        tips: TO_ALL,
        ..ROW
    },
    Command {
        name: "STATS",
        run: stats,
        flags: NO_SCRIPT.with(ALLOW_BUSY),
        summary: "What runs, and how many libraries and functions there are.",
        tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        ..ROW
    },
    Command {
        name: "KILL",
        run: function_kill,
        flags: NO_SCRIPT.with(ALLOW_BUSY),
        summary: "Ends the function that runs, if it has not changed anything.",
        tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
        ..ROW
    },
    Command { since: "7.0.0", ..HELP },
];

fn fcall(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    call(cx, args, false)
}

fn fcall_ro(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    call(cx, args, true)
}

fn call(cx: &mut Context<'_>, args: Args<'_>, is_ro: bool) -> Result<(), Error> {
    let scripts: &Scripts = cx.core.registry.state();
    engines::with(scripts, |engines| {
        let callable = engines.callable(cx, scripts, args.word(1)).map_err(|error| {
            let text = match error {
                NoCode::Wrong(text) => text,
                NoCode::Unknown => "Function not found".to_string(),
            };
            generic(&text)
        })?;
        let key_count = key_count(args, Error::text("ERR Bad number of keys provided"))?;
        let reference = callable.reference;
        let limit = cx.host.script_memory_max();
        let job = Job { reference, words: args, key_count };
        let out = std::mem::take(engines.spare());
        let mut run = Run::new(cx, out, callable.name.as_bytes(), args);
        run.is_eval = false;
        let result = prepare(&mut run, callable.flags, is_ro)
            .and_then(|()| perform(&mut run, |run| engines.run_function(run, &job, limit)));
        *engines.spare() = run.end();
        result
    })
}

/// A library's first line, if it can be loaded.
fn header_of(code: &[u8]) -> Result<Header<'_>, String> {
    let header = shebang::of_library(code)?;
    if !is_name(&header.name) {
        return Err(BAD_NAME.into());
    }
    if !header.engine.eq_ignore_ascii_case(b"lua") {
        let engine = String::from_utf8_lossy(&header.engine).into_owned();
        return Err(format!("Engine '{engine}' not found"));
    }
    Ok(header)
}

/// Runs a library's code; the library, and where its functions are in this thread's state.
fn build(
    engines: &mut Engines,
    scripts: &Scripts,
    code: &[u8],
    host: &mut dyn Host,
) -> Result<(Arc<Library>, Vec<i32>), String> {
    let header = header_of(code)?;
    let mut registered = engines.load(scripts, header.code, host)?;
    if registered.is_empty() {
        return Err("No functions registered".into());
    }
    registered.sort_by(|one, other| one.name.cmp(&other.name));
    let references = registered.iter().map(|function| function.reference).collect();
    let functions = registered.into_iter().map(|it| Function {
        name: it.name,
        description: it.description,
        flags: it.flags,
    });
    let functions = functions.collect();
    let library = Library { name: header.name, code: code.to_vec(), functions };
    Ok((Arc::new(library), references))
}

/// Adds a library to those of the server; its name.
pub fn add(
    scripts: &Scripts,
    code: &[u8],
    replace: bool,
    host: &mut dyn Host,
) -> Result<Arc<Library>, String> {
    engines::with(scripts, |engines| {
        let header = header_of(code)?;
        let exists = |set: &Set| set.iter().any(|library| library.name == header.name);
        if !replace && scripts.libraries.look(exists) {
            let name = String::from_utf8_lossy(&header.name).into_owned();
            return Err(format!("Library '{name}' already exists"));
        }
        let (library, references) = build(engines, scripts, code, host)?;
        let added = scripts.libraries.change(|set| set.add(Arc::clone(&library), replace));
        match added {
            Ok(()) => engines.keep(&library, references),
            Err(_) => engines.forget(&references),
        }
        added.map(|()| library)
    })
}

/// A library that comes from a file, when there is no client.
struct FromFile;

impl Host for FromFile {}

/// Adds a library from a file, in the place of one of its name.
pub fn load_source(registry: &Registry, code: &[u8]) -> Result<(), String> {
    add(registry.state(), code, true, &mut FromFile).map(|_| ())
}

fn load(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let mut replace = false;
    for word in args.iter().take(args.len() - 1).skip(2) {
        if !is(word, "REPLACE") {
            let option = String::from_utf8_lossy(word);
            return Err(generic(&format!("Unknown option given: {option}")));
        }
        replace = true;
    }
    let scripts: &Scripts = cx.core.registry.state();
    let added = add(scripts, args.word(args.len() - 1), replace, cx.host);
    let library = added.map_err(|text| generic(&text))?;
    cx.keys.effects.dirty += 1;
    cx.out.bulk(&library.name);
    Ok(())
}

fn delete(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let scripts: &Scripts = cx.core.registry.state();
    if !scripts.libraries.change(|set| set.remove(args.word(2))) {
        return Err(Error::text("ERR Library not found"));
    }
    cx.keys.effects.dirty += 1;
    cx.out.ok();
    Ok(())
}

fn flush(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let is_mode = |word| is(word, "ASYNC") || is(word, "SYNC");
    if args.len() > 3 {
        return Err(wrong_words(args));
    }
    if args.get(2).is_some_and(|word| !is_mode(word)) {
        return Err(Error::text("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    let scripts: &Scripts = cx.core.registry.state();
    scripts.libraries.change(|set| *set = Set::default());
    cx.keys.effects.dirty += 1;
    cx.out.ok();
    Ok(())
}

fn list(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let (mut pattern, mut with_code) = (None, false);
    let mut at = 2;
    while let Some(word) = args.get(at) {
        at += 1;
        if !with_code && is(word, "WITHCODE") {
            with_code = true;
        } else if pattern.is_none() && is(word, "LIBRARYNAME") {
            pattern = args.get(at);
            at += 1;
            if pattern.is_none() {
                return Err(Error::text("ERR library name argument was not given"));
            }
        } else {
            let word = String::from_utf8_lossy(word);
            return Err(generic(&format!("Unknown argument {word}")));
        }
    }
    let set = cx.core.registry.state::<Scripts>().libraries.snapshot();
    let lower = |text: &[u8]| text.to_ascii_lowercase();
    let shown = |library: &&Arc<Library>| {
        pattern.is_none_or(|pattern| matches(&lower(pattern), &lower(&library.name)))
    };
    let place = cx.out.later();
    let mut count = 0;
    for library in set.iter().filter(shown) {
        count += 1;
        write_library(cx, library, with_code);
    }
    cx.out.array_at(place, count);
    Ok(())
}

fn write_library(cx: &mut Context<'_>, library: &Library, with_code: bool) {
    cx.out.map(if with_code { 4 } else { 3 });
    cx.out.text("library_name");
    cx.out.bulk(&library.name);
    cx.out.text("engine");
    cx.out.text("LUA");
    cx.out.text("functions");
    cx.out.array(library.functions.len());
    for function in &library.functions {
        cx.out.map(3);
        cx.out.text("name");
        cx.out.bulk(&function.name);
        cx.out.text("description");
        match &function.description {
            Some(text) => cx.out.bulk(text),
            None => cx.out.null(),
        }
        cx.out.text("flags");
        let named = Flags::NAMES.iter().filter(|(flag, _)| function.flags.has(*flag));
        cx.out.set(named.clone().count());
        named.for_each(|(_, name)| cx.out.simple(name));
    }
    if with_code {
        cx.out.text("library_code");
        cx.out.bulk(&library.code);
    }
}

fn dump_all(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let set = cx.core.registry.state::<Scripts>().libraries.snapshot();
    let payload = dump::dump(set.iter().map(|library| library.code.as_slice()));
    cx.out.bulk(&payload);
    Ok(())
}

/// Too many words for a subcommand.
fn wrong_words(args: Args<'_>) -> Error {
    let name = String::from_utf8_lossy(args.word(1));
    generic(&format!(
        "unknown subcommand or wrong number of arguments for '{name}'. Try FUNCTION HELP."
    ))
}

fn restore(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if args.len() > 4 {
        return Err(wrong_words(args));
    }
    let (mut replace, mut flush) = (false, false);
    match args.get(3) {
        None => {}
        Some(word) if is(word, "APPEND") => {}
        Some(word) if is(word, "REPLACE") => replace = true,
        Some(word) if is(word, "FLUSH") => flush = true,
        Some(_) => {
            return Err(Error::text(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ));
        }
    }
    let sources = dump::sources(args.word(2)).map_err(|text| generic(&text))?;
    let scripts: &Scripts = cx.core.registry.state();
    let result = engines::with(scripts, |engines| {
        let mut set = if flush { Set::default() } else { scripts.libraries.snapshot() };
        let mut built = Vec::new();
        let result = sources.iter().try_for_each(|code| {
            let (library, references) = build(engines, scripts, code, cx.host)?;
            built.push((Arc::clone(&library), references));
            let added = set.add(library, replace);
            added.map_err(|text| text.replace('\'', ""))
        });
        if result.is_ok() {
            scripts.libraries.change(|current| *current = set);
        }
        for (library, references) in built {
            match &result {
                Ok(()) => engines.keep(&library, references),
                Err(_) => engines.forget(&references),
            }
        }
        result
    });
    result.map_err(|text| generic(&text))?;
    cx.keys.effects.dirty += 1;
    cx.out.ok();
    Ok(())
}

fn stats(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let scripts: &Scripts = cx.core.registry.state();
    let running = scripts.running();
    if !running.is_empty() && running.iter().all(|script| script.is_eval) {
        return Err(cx.host.busy_error());
    }
    cx.out.map(2);
    cx.out.text("running_script");
    match running.iter().find(|script| !script.is_eval) {
        None => cx.out.null(),
        Some(script) => {
            cx.out.map(3);
            cx.out.text("name");
            cx.out.text(&script.name);
            cx.out.text("command");
            cx.out.array(script.command.len());
            script.command.iter().for_each(|word| cx.out.bulk(word));
            cx.out.text("duration_ms");
            cx.out.int(script.ran_ms.load(Ordering::Relaxed));
        }
    }
    let (libraries, functions) = scripts.libraries.look(|set| (set.len(), set.function_count()));
    cx.out.text("engines");
    cx.out.map(1);
    cx.out.text("LUA");
    cx.out.map(2);
    cx.out.text("libraries_count");
    cx.out.count(libraries);
    cx.out.text("functions_count");
    cx.out.count(functions);
    Ok(())
}

fn function_kill(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    kill(cx, false)
}
