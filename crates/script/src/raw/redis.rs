//! The `redis` table: commands, replies, log, and the rest of what scripts ask their server for.

use std::ffi::c_int;

use mlua::ffi as lua;

use super::reply::{self, Reader};
use super::stack::{State, bytes_at, format_number, pop, push_bytes, push_error, raise_error};
use super::stack::{set_field, set_function, set_number, type_of};
use super::state::inner_of;
use super::wanted::{is_returned, wants_nothing};
use crate::run::Called;
use crate::{LUA_REDIS_VERSION, LUA_REDIS_VERSION_NUMBER};
use commands::sha1::hex_digest;

const LEVELS: [(&str, c_int); 4] =
    [("LOG_DEBUG", 0), ("LOG_VERBOSE", 1), ("LOG_NOTICE", 2), ("LOG_WARNING", 3)];
const REPLICATION: [(&str, c_int); 5] =
    [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)];

/// Pushes the table.
pub unsafe fn open(l: State) {
    lua::lua_createtable(l, 0, 32);
    set_function(l, -1, "call", call);
    set_function(l, -1, "pcall", pcall);
    set_function(l, -1, "error_reply", error_reply);
    set_function(l, -1, "status_reply", status_reply);
    set_function(l, -1, "sha1hex", sha1hex);
    set_function(l, -1, "setresp", setresp);
    set_function(l, -1, "set_repl", set_repl);
    set_function(l, -1, "replicate_commands", replicate_commands);
    set_function(l, -1, "breakpoint", breakpoint);
    set_function(l, -1, "debug", debug);
    set_function(l, -1, "acl_check_cmd", acl_check_cmd);
    for (name, value) in REPLICATION {
        set_number(l, -1, name, f64::from(value));
    }
    add_log_and_version(l);
}

/// Adds to the table at the top what libraries find there, too, while they are loaded.
pub unsafe fn add_log_and_version(l: State) {
    set_function(l, -1, "log", log);
    for (name, value) in LEVELS {
        set_number(l, -1, name, f64::from(value));
    }
    push_bytes(l, LUA_REDIS_VERSION.as_bytes());
    set_field(l, -2, b"REDIS_VERSION");
    set_number(l, -1, "REDIS_VERSION_NUM", f64::from(LUA_REDIS_VERSION_NUMBER));
}

unsafe fn need_run(l: State, name: &str) {
    let inner = inner_of(l);
    if (*inner).run.is_null() {
        (*inner).message.clear();
        (*inner).message.push_str("ERR redis.");
        (*inner).message.push_str(name);
        (*inner).message.push_str(" can only be called inside a script invocation");
        raise_error(l, (*inner).message.as_bytes());
    }
}

/// Takes the arguments as a command's words; what is wrong with them, if anything is.
unsafe fn take_words(l: State) -> Option<&'static [u8]> {
    let words = &raw mut (*inner_of(l)).words;
    (*words).clear();
    let count = lua::lua_gettop(l);
    if count == 0 {
        return Some(b"ERR Please specify at least one argument for this redis lib call");
    }
    for index in 1..=count {
        if type_of(l, index) == lua::LUA_TNUMBER {
            let number = lua::lua_tonumber(l, index);
            let is_integer = number.trunc() == number && number.abs() < 1e15 && number != 0.0;
            if is_integer {
                (*words).push(itoa::Buffer::new().format(number as i64).as_bytes());
            } else {
                (*words).push(format_number(number, 17, &mut [0; 64]));
            }
        } else if let Some(word) = bytes_at(l, index) {
            (*words).push(word);
        } else {
            return Some(b"ERR Lua redis lib command arguments must be strings or integers");
        }
    }
    None
}

unsafe extern "C-unwind" fn call(l: State) -> c_int {
    run_command(l, true)
}

unsafe extern "C-unwind" fn pcall(l: State) -> c_int {
    run_command(l, false)
}

unsafe fn run_command(l: State, raises: bool) -> c_int {
    let inner = inner_of(l);
    if (*inner).run.is_null() {
        const OUTSIDE: &[u8] =
            b"ERR redis.call/pcall can only be called inside a script invocation";
        raise_error(l, OUTSIDE);
    }
    let wrong = take_words(l);
    lua::lua_settop(l, 0);
    if let Some(text) = wrong {
        push_error(l, text);
        if raises {
            lua::lua_error(l);
        }
        return 1;
    }
    let run = (*inner).run;
    let called = (*run).call((*inner).words.args());
    let failed = match called {
        Called::Replied => {
            let bytes = (*run).reply(&mut (*inner).buffer);
            let is_error = bytes.first() == Some(&b'-');
            if !is_error && wants_nothing(l) {
                return 0;
            }
            if reply::passes_unchanged(bytes) && is_returned(l) {
                (*run).gives_reply = true;
                return 0;
            }
            reply::push(l, &mut Reader::new(bytes));
            is_error
        }
        Called::Refused => {
            push_error(l, (*run).message.as_bytes());
            lua::lua_pushboolean(l, 1);
            set_field(l, -2, b"ignore_error_stats_update");
            true
        }
        Called::Aborted => {
            lua::lua_pushnil(l);
            lua::lua_error(l);
        }
    };
    if failed && raises {
        lua::lua_error(l);
    }
    1
}

/// One string, or the error that it is none.
unsafe fn only_string<'s>(l: State) -> Option<&'s [u8]> {
    if lua::lua_gettop(l) != 1 || type_of(l, 1) != lua::LUA_TSTRING {
        push_error(l, b"ERR wrong number or type of arguments");
        return None;
    }
    bytes_at(l, 1)
}

unsafe extern "C-unwind" fn error_reply(l: State) -> c_int {
    let Some(text) = only_string(l) else { return 1 };
    let text = text.strip_prefix(b"-").unwrap_or(text);
    // Up to a zero byte, without line ends behind it.
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let inner = inner_of(l);
    (*inner).buffer.clear();
    match text.iter().position(|byte| *byte == b' ') {
        None => {
            (*inner).buffer.extend_from_slice(b"ERR ");
            (*inner).buffer.extend_from_slice(trimmed(text));
        }
        Some(space) => {
            (*inner).buffer.extend_from_slice(&text[..=space]);
            (*inner).buffer.extend_from_slice(trimmed(&text[space + 1..]));
        }
    }
    push_error(l, &(*inner).buffer);
    1
}

fn trimmed(text: &[u8]) -> &[u8] {
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let start = text.iter().position(|byte| !is_end(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_end(byte)).map_or(start, |last| last + 1);
    &text[start..end]
}

unsafe extern "C-unwind" fn status_reply(l: State) -> c_int {
    let Some(text) = only_string(l) else { return 1 };
    lua::lua_createtable(l, 0, 1);
    push_bytes(l, text);
    set_field(l, -2, b"ok");
    1
}

unsafe extern "C-unwind" fn sha1hex(l: State) -> c_int {
    if lua::lua_gettop(l) != 1 {
        raise_error(l, b"ERR wrong number of arguments");
    }
    let digest = hex_digest(bytes_at(l, 1).unwrap_or_default());
    push_bytes(l, &digest);
    1
}

unsafe extern "C-unwind" fn setresp(l: State) -> c_int {
    need_run(l, "setresp");
    if lua::lua_gettop(l) != 1 {
        raise_error(l, b"ERR redis.setresp() requires one argument.");
    }
    let version = lua::lua_tonumber(l, 1) as i64;
    if !matches!(version, 2 | 3) {
        raise_error(l, b"ERR RESP version must be 2 or 3.");
    }
    (*(*inner_of(l)).run).resp3 = version == 3;
    0
}

/// Says where the writes that follow go. They go everywhere: a log that lacks some of them would
/// not lead to the same keys.
unsafe extern "C-unwind" fn set_repl(l: State) -> c_int {
    need_run(l, "set_repl");
    if lua::lua_gettop(l) != 1 {
        raise_error(l, b"ERR redis.set_repl() requires two arguments.");
    }
    let flags = lua::lua_tonumber(l, 1) as i64;
    if !(0..=3).contains(&flags) {
        const BAD: &[u8] = b"ERR Invalid replication flags. \
            Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.";
        raise_error(l, BAD);
    }
    0
}

unsafe extern "C-unwind" fn replicate_commands(l: State) -> c_int {
    lua::lua_pushboolean(l, 1);
    1
}

/// There is no debugger to stop in.
unsafe extern "C-unwind" fn breakpoint(l: State) -> c_int {
    lua::lua_pushboolean(l, 0);
    1
}

unsafe extern "C-unwind" fn debug(_: State) -> c_int {
    0
}

unsafe extern "C-unwind" fn acl_check_cmd(l: State) -> c_int {
    need_run(l, "acl_check_cmd");
    if let Some(text) = take_words(l) {
        raise_error(l, text);
    }
    let inner = inner_of(l);
    match (*(*inner).run).may_call((*inner).words.args()) {
        Some(truth) => lua::lua_pushboolean(l, c_int::from(truth)),
        None => raise_error(l, b"ERR Invalid command passed to redis.acl_check_cmd()"),
    }
    1
}

unsafe extern "C-unwind" fn log(l: State) -> c_int {
    let count = lua::lua_gettop(l);
    if count < 2 {
        raise_error(l, b"ERR redis.log() requires two arguments or more.");
    }
    if lua::lua_isnumber(l, 1) == 0 {
        raise_error(l, b"ERR First argument must be a number (log level).");
    }
    let level = lua::lua_tonumber(l, 1) as i64;
    if !(0..=3).contains(&level) {
        raise_error(l, b"ERR Invalid debug level.");
    }
    let inner = inner_of(l);
    (*inner).buffer.clear();
    for index in 2..=count {
        if let Some(text) = bytes_at(l, index) {
            if index > 2 {
                (*inner).buffer.push(b' ');
            }
            (*inner).buffer.extend_from_slice(text);
        }
    }
    if let Some(host) = super::run::host(inner) {
        host.script_log(level as usize, &(*inner).buffer);
    }
    pop(l, count);
    0
}
